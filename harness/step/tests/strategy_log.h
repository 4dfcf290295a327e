/* strategy_log.h: a strategy on a model of four small tensors, against a log of what it asks for.
 */
#ifndef DPB_TESTS_STRATEGY_LOG_H
#define DPB_TESTS_STRATEGY_LOG_H

#include "dpb_str.h"
#include "dpb_strategy.h"

/* "a" to "d", of 4, 8, 8 and 4 elements, ready from the last to the first. */
#define LOG_PARAMS 4

extern const struct dpb_model log_model;
extern const int log_reverse_order[LOG_PARAMS];

/* The log of a step: "d" gradient d is ready; "all-reduce0.16@1" of 16 elements of unit 0 with root
 * 1 ("@0" is left out); "~" before it where it follows another in its memory; "wait3" for the
 * collective that was the third of the step; "concat" an operator or a copy of that name; "|" ends
 * the forward pass, the backward pass, the wait for gradients, and the optimizer. */
struct strategy_log {
    struct dpb_str text;
    const struct dpb_strategy_ops *ops;
    dpb_strategy *strategy;
    struct dpb_unit_plan plan;
    struct dpb_launcher launcher;
    int started;    /* in the step */
    int fail_start; /* number of the collective that fails, from 1; 0: none */
    int fail_wait;
    int shared_allocs, errors;
    int64_t shared_bytes;
    float memory[4096]; /* everything is here */
    float *value[LOG_PARAMS];
};

/* Opened, planned and placed for rank `rank`; average is 1 / world_size. */
void strategy_log_open(struct strategy_log *log, const struct dpb_strategy_ops *ops,
                       const void *options, int rank, int world_size);
void strategy_log_close(struct strategy_log *log);

/* What open() says of options on a device that is a GPU, or is not. */
dpb_status strategy_log_try(const struct dpb_strategy_ops *ops, const void *options, bool is_gpu,
                            bool elementwise, struct dpb_str *errors);

/* A step, number 1 or `step`; gradients come in `order`. The first failure. */
dpb_status strategy_log_step(struct strategy_log *log, const int *order);
dpb_status strategy_log_step_number(struct strategy_log *log, int64_t step, const int *order);

/* What it describes, under `key`; -1: nothing. */
int64_t strategy_log_described(const struct strategy_log *log, const char *key);

#endif
