/* horovod_world.h: strategy `horovod` on a clock of the test's own. One thread plays the step and
 * the coordinator, and one rank plays all, which always agree. */
#ifndef DPB_HOROVOD_WORLD_H
#define DPB_HOROVOD_WORLD_H

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_strategies.h"

#define RANKS      2
#define PARAMS_MAX 64
#define FLOATS     8192
#define MS         INT64_C(1000000)
#define US         INT64_C(1000)

struct world {
    const struct dpb_strategy_ops *ops;
    dpb_strategy *strategy;
    const struct dpb_model *model;
    struct dpb_unit_plan plan;
    struct dpb_launcher launcher;
    struct dpb_str log; /* "d" gradient d; "3.4" a reduction of 4 elements, whose last tensor is in
                           unit 3; "w0" a wait for the step's first reduction */
    int64_t now_ns, tick_ns;
    int64_t gradient_ns; /* time that a gradient takes */
    int64_t reduce_ns;   /* time that a reduction takes */
    int started, exchanges, ticks, shared_allocs, fail_start, errors;
    int64_t elements;         /* reduced in the step */
    int64_t noted, awaited;   /* gradients in the step */
    int64_t awaited_elements; /* since the last reduction */
    int joins;
    int64_t end_ns[PARAMS_MAX];
    int64_t offset_bytes[PARAMS_MAX]; /* where each was reduced */
    int64_t last_end_ns;
    int64_t shared_bytes;
    int word_count[6];
    float memory[FLOATS];
};

/* Does the device cast to fp16? */
extern bool world_has_fp16;

/* The status is that of placing the strategy, for which world_close() is due in any case. */
dpb_status world_open(struct world *world, const struct dpb_model *model, int world_size,
                      const struct dpb_horovod_options *options);
void world_close(struct world *world);

/* One step from the tick with which the engine begins it. */
dpb_status world_step(struct world *world);
/* world_step(), with this log, and the sum in every gradient. */
void expect_step(struct world *world, const char *expected);

/* A gradient as it lies in memory, and an element of it before the reduction. */
float *fake_grad(void *ctx, int param);
float gradient_of(int param, int64_t element);

/* A sink of the log: counts errors in an int. */
void count_error(void *ctx, enum dpb_log_level level, const char *line);

#endif
