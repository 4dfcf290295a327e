/* horovod.h: what the files of strategy `horovod` share. */
#ifndef DPB_HOROVOD_H
#define DPB_HOROVOD_H

#include "dpb_strategies.h"
#include "horovod_negotiate.h"
#include "horovod_tune.h"
#include "ready_set.h"

/* An all-reduce of one response: of a tensor in its place, or of several in the fusion buffer. */
struct horovod_response {
    int handle;
    int first, count;            /* of horovod.member */
    int64_t offset_bytes, bytes; /* in the fusion buffer; 0 bytes: in its tensor's place */
};

struct horovod {
    struct dpb_strategy_base base;
    int rank, world_size, ranks_per_node;
    struct dpb_horovod_options options;
    struct dpb_sync_services services;
    const struct dpb_model *model;
    const struct dpb_unit_plan *plan; /* the engine's: a unit per tensor */
    struct horovod_request *request;  /* per tensor */
    struct ready_set ready;

    /* Memory that is reduced. */
    int64_t fusion_bytes, compressed_bytes;
    char *fusion_buffer, *compressed;
    int64_t *compressed_offset_bytes; /* per tensor */

    /* From the hooks to the coordinator; with lock(). */
    int *submitted, submitted_count;
    int64_t *submitted_at; /* per tensor: begin of its span */
    bool is_going;         /* this step has a batch, so every rank takes part in it */
    bool is_agreed;        /* the coordinator has started every reduction of this step */

    /* The coordinator's: of tick(), and of the hooks once is_agreed. */
    struct horovod_negotiation negotiation;
    struct horovod_request *queue;
    int queue_count;
    int64_t threshold_bytes, cycle_ns, last_cycle_ns;
    struct horovod_response *response; /* of this step */
    int response_count, finished_count;
    int64_t fusion_end_bytes;  /* of the place taken last */
    int *member, member_count; /* tensors, response by response */

    struct tune tune;
    int64_t sample_start_ns, sample_steps;
    bool is_sampling, step_is_counted;
    double *score; /* of every rank, for exchange() */

    /* What is told. */
    struct fusion planned; /* of model->ready_order */
    struct fusion_tensor *planned_tensor;
    int64_t reductions, steps; /* so far */
};

extern const struct dpb_option_table horovod_table, horovod_legacy_table;

/* DPB_ERR_USAGE, logged with the options that do not go together. */
dpb_status horovod_options_check(const struct dpb_horovod_options *options, const char *strategy);

/* Is the reduction the one in two levels, and so one that only works on several nodes? */
static inline bool horovod_is_two_level(const struct horovod *self)
{
    return (self->options.hierarchical || self->options.torus) &&
           self->ranks_per_node < self->world_size;
}

/* Elements that a fused reduction of `bytes` has. */
int64_t horovod_fused_elements(const struct horovod *self, int64_t bytes);

/* ---- horovod_cycle.c ---- */

/* One cycle of the coordinator: agree with the other ranks, start what was agreed on, finish what
 * is complete. Collective. */
dpb_status horovod_cycle(struct horovod *self, int64_t now_ns);
/* Wait for what was started, on the host, and put it where gradients belong. */
dpb_status horovod_finish_all(struct horovod *self);

#endif
