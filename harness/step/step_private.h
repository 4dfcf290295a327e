/* step_private.h: what the files of the step engine share. */
#ifndef DPB_STEP_PRIVATE_H
#define DPB_STEP_PRIVATE_H

#include <xxhash.h>

#include "background.h"
#include "dpb_step.h"
#include "optimizer.h"
#include "strategies/ready_set.h"
#include "sync.h"

/* A part of a parameter that this rank updates, with the optimizer's state of it. */
struct update {
    struct dpb_update part;
    struct dpb_param_info info; /* of the part */
    float *state[OPTIMIZER_ARRAYS];
    const char *name; /* "conv1.weight.adamw" */
};

/* A collective that the workload started. */
struct exchange {
    dpb_request *request; /* NULL: none is under way here */
    const char *name;
    int64_t bytes;
};

/* Updates by one operator, which are launched together. */
struct update_group {
    enum dpb_op op;
    int count;
    char *args; /* NULL: one by one */
};

/* Where a batch waits on the host for its copy to an accelerator (batch_stage.c). */
#define STAGE_PLACES 2

struct stage_place {
    char *host;
    dpb_event_mark *copied; /* the device has left it */
    bool is_used;
};

struct stage {
    char *device; /* what operators read; NULL: the source's memory is that */
    struct stage_place place[STAGE_PLACES];
    int next;
    dpb_stream *waiter;     /* nothing runs on it: to wait for one mark */
    struct dpb_batch batch; /* as the source gave it */
};

/* Marks of a step on an accelerator (device_times.c). */
struct marks {
    dpb_event_mark **mark;
    int64_t room, count;
};

struct loss_scale {
    double value, next;
    int64_t good_steps; /* since it changed or overflowed */
    int64_t skipped;
    int32_t *found; /* the device's; NULL: nobody looks */
    int32_t *host;  /* 0, and what was found */
};

#define EXCHANGE_BUFFERS_MAX 8
#define NO_EXCHANGE          (-1) /* its number with one rank */

/* What the workload exchanges itself, and its memory in the comm, above the gradients. */
struct exchanges {
    struct dpb_rank_services services;
    bool is_opening; /* the workload's open() is under way */
    void *buffer[EXCHANGE_BUFFERS_MAX];
    int buffer_count;
    int64_t bytes;
    struct exchange under_way[DPB_RANK_EXCHANGES_MAX];
    struct dpb_step_exchanges step; /* of the step under way, or the last */
};

struct dpb_step_engine {
    struct dpb_step_config config;
    const struct dpb_model *model;
    const struct dpb_comm_ops *comm_ops;
    int rank, world_size;
    struct dpb_launcher launcher;
    dpb_recorder *recorder_none; /* when nothing is recorded */
    dpb_workload *workload;
    dpb_strategy *strategy;

    unsigned strategy_flags; /* with its options */

    /* Memory. Parameters lie in registration order, and so does the optimizer's state, each array
     * at a multiple of 64 bytes. */
    float *params;          /* NULL when the strategy has them in parts */
    float *optimizer_state; /* NULL when the optimizer keeps none */
    float *micro_gradients; /* of one micro-batch; NULL without accumulation */
    int64_t param_arena_bytes, state_arena_bytes;
    char *gradients; /* the comm's buffer */
    int64_t gradient_arena_bytes;
    float **param, **grad; /* views, per parameter: where they are now */
    float **micro_grad;    /* in micro_gradients */
    float **parted;        /* param[], while it has the whole of what a strategy has in parts */
    bool is_bound;         /* the workload knows the views */
    struct update *update;
    int update_count;
    struct update_group group[OPTIMIZER_OPS];
    char *name_text;
    char *window; /* the host's, for what is in memory of an accelerator */
    struct stage stage;
    struct marks marks;
    struct loss_scale loss_scale;
    bool is_capturing;    /* what is launched becomes a graph */
    int64_t captured;     /* steps */
    int64_t updates_done; /* steps that were not skipped */

    struct sync sync;
    struct background background;
    struct exchanges exchanges;

    /* The plan in force is plans[current]; the strategy may point to it, so it never moves. */
    struct dpb_unit_plan plans[2];
    int current;
    bool rebuilt;

    /* One step. */
    struct ready_set ready;
    int *ready_order; /* of the step under way, or the last */
    int *unit_ready;  /* per unit: members whose gradient is complete */
    bool *is_used;    /* per parameter: announced in the backward pass under way */
    bool *has_grad;   /* per parameter: a micro-batch of the step has left a gradient in grad[] */
    struct dpb_param_watch watch;
    enum dpb_pass pass;
    int64_t micro_batch; /* of the step, from 0 */
    bool is_evaluating;
    float grad_scale;
    _Atomic int64_t steps_done; /* read by the thread of tick() too, as is the phase */
    _Atomic enum dpb_phase phase;
    int64_t phase_start_ns;

    XXH3_state_t *hash_state;
    uint64_t *hashes;   /* of every rank, for exchange() */
    bool failed;        /* no further step; the communicator is unusable */
    bool failed_by_all; /* every rank found the same failure: nobody needs to be told */
};

static inline const struct dpb_unit_plan *engine_plan(const struct dpb_step_engine *engine)
{
    return &engine->plans[engine->current];
}

/* Tell where this rank is. */
static inline void engine_progress(struct dpb_step_engine *engine, int bucket)
{
    if (engine->config.progress)
        engine->config.progress(engine->config.progress_ctx, engine->steps_done + 1, engine->phase,
                                bucket);
}

/* Ends an operation of the engine: on failure the other ranks are told, so that nobody waits for
 * this one, unless they know. Returns `st`. */
dpb_status engine_end(struct dpb_step_engine *engine, dpb_status st, const char *what);

/* dpb_param_watch.use. */
dpb_status engine_param_use(void *ctx, int param, enum dpb_pass pass);
/* Tell the workload where parameters and gradients are. */
void engine_bind(struct dpb_step_engine *engine);

/* The plan in force is new: compare it over the ranks, check the communicator in its places, bind
 * the workload's gradients to them. Collective. */
dpb_status engine_use_plan(struct dpb_step_engine *engine);

/* ---- window.c: the device's memory, as the host reads and writes it ---- */

enum {
    PIECES_READ = 1 << 0,
    PIECES_WRITE = 1 << 1
};

/* What is done with pieces of memory, in their order. `offset` is that of the piece. */
struct pieces {
    void (*use)(void *ctx, void *piece, int64_t offset, int64_t bytes);
    void *ctx;
    int unit; /* for signs of life; -1: none */
};

int64_t engine_window_bytes(void);
dpb_status engine_window_open(struct dpb_step_engine *engine);
void engine_window_close(struct dpb_step_engine *engine);
/* After what was launched before. Outside of steps. */
dpb_status engine_pieces(struct dpb_step_engine *engine, void *memory, int64_t bytes, unsigned how,
                         const struct pieces *pieces);

/* ---- batch_stage.c ---- */

dpb_status engine_stage_open(struct dpb_step_engine *engine);
void engine_stage_close(struct dpb_step_engine *engine);
/* The batch's arrays become those for operators. */
dpb_status engine_stage_batch(struct dpb_step_engine *engine, struct dpb_batch *batch);

/* ---- device_times.c ---- */

dpb_status engine_marks_open(struct dpb_step_engine *engine);
void engine_marks_close(struct dpb_step_engine *engine);
void engine_marks_begin(struct dpb_step_engine *engine);
/* The stream gets here: one after the other, as struct marks counts them. */
dpb_status engine_mark(struct dpb_step_engine *engine);
/* The step has ended: phases become those of the device, if there were marks. */
dpb_status engine_marks_read(const struct dpb_step_engine *engine, struct dpb_step_times *times);

/* ---- loss_scale.c ---- */

/* What open() takes of a device that is not the host, for a scale that is dynamic. */
void engine_loss_scale_bytes(int64_t *device_bytes, int64_t *host_bytes);
dpb_status engine_loss_scale_open(struct dpb_step_engine *engine);
void engine_loss_scale_close(struct dpb_step_engine *engine);
/* Before the updates, after what was reduced: divide by the scale, or say that the step is skipped.
 * The same on every rank; collective where each has its own part. */
dpb_status engine_loss_scale_apply(struct dpb_step_engine *engine, bool *is_skipped);

/* ---- update.c ---- */

dpb_status engine_updates_open(struct dpb_step_engine *engine);
void engine_updates_close(struct dpb_step_engine *engine);
/* Of update number `u`: where its gradient is, and has it one in this step? */
float *engine_update_gradient(const struct dpb_step_engine *engine, int u);
bool engine_is_updated(const struct dpb_step_engine *engine, int u);
dpb_status engine_update_all(struct dpb_step_engine *engine);

/* ---- step_memory.c ---- */

struct dpb_step_shape engine_shape(const struct dpb_step_engine *engine);
/* Without services. */
struct dpb_strategy_config engine_strategy_config(const struct dpb_step_shape *shape, int rank);

/* What the first plan needs. Collective. */
dpb_status engine_alloc_arenas(struct dpb_step_engine *engine);
void engine_free_arenas(struct dpb_step_engine *engine);

/* Initial values; compared over the ranks; the strategy takes its part. Collective. */
dpb_status engine_init_params(struct dpb_step_engine *engine);
/* Between these two, param[] are all parameters, whole, also when the strategy has them in parts;
 * the workload knows them. Collective. Outside of steps. */
dpb_status engine_full_params_begin(struct dpb_step_engine *engine);
void engine_full_params_end(struct dpb_step_engine *engine);
/* The strategy takes its part of what param[] has now, between those two. */
dpb_status engine_take_params(struct dpb_step_engine *engine);
/* Call `use` for parameters `first` to `end` - 1, which are whole in param[], until all were, in
 * registration order: all at once, or, where the strategy has them in parts, those of a unit, so
 * that no rank ever has all. `is_new`: with initial values. Collective. */
typedef dpb_status (*engine_run)(struct dpb_step_engine *engine, int first, int end);
dpb_status engine_each_run(struct dpb_step_engine *engine, bool is_new, engine_run use);

/* ---- exchange.c: the services for workloads (dpb_rank_services) ---- */

void engine_exchanges_init(struct dpb_step_engine *engine);
/* A training step begins. */
void engine_exchanges_begin(struct dpb_step_engine *engine);
/* Has the workload waited for all that it started? DPB_ERR_INTERNAL, logged. */
dpb_status engine_exchanges_check_done(const struct dpb_step_engine *engine);
/* Collective: give the memory back, before the gradients'. */
void engine_exchanges_free(struct dpb_step_engine *engine);

/* ---- step_agree.c: what ranks compare; each is collective and fails on all ranks or on none ----
 */

/* Do all ranks train the same network in the same way? DPB_ERR_MISMATCH with the ranks. */
dpb_status engine_agree_on_run(struct dpb_step_engine *engine);
/* Do all ranks have this plan? DPB_ERR_MISMATCH with the ranks. */
dpb_status engine_agree_on_plan(struct dpb_step_engine *engine, const struct dpb_unit_plan *plan);
/* Add parameters to hash_state. */
dpb_status engine_hash_run(struct dpb_step_engine *engine, int first, int end);
/* Have all ranks this hash of the parameters, and the same replicated state? DPB_ERR_CHECK with the
 * ranks. */
dpb_status engine_agree_on_values(struct dpb_step_engine *engine, uint64_t hash_of_params);
/* Make rank 0's ready order everybody's, as PyTorch's reducer does with rank 0's buckets. Uses the
 * gradient arena, whose contents are lost. */
dpb_status engine_adopt_ready_order(struct dpb_step_engine *engine);
/* All-reduce integers over every unit's place in the arena and compare with the exact sums.
 * DPB_ERR_CHECK with ranks and values. The arena is zero afterwards. */
dpb_status engine_check_comm(struct dpb_step_engine *engine, const struct dpb_unit_plan *plan);

#endif
