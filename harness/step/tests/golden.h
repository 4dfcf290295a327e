/* golden.h: a workload whose gradients are given, and ranks that reduce them: what PyTorch made of
 * these gradients is in data/golden_ddp_hooks_ws2.json. */
#ifndef DPB_TESTS_GOLDEN_H
#define DPB_TESTS_GOLDEN_H

#include "dpb_step.h"

#define GOLDEN_RANKS_MAX 3
#define GOLDEN_STEPS     5   /* at most; in the file's inputs */
#define GOLDEN_ELEMENTS  236 /* of w1 [12,8], b1 [12], w2 [6,20], w3 [4,2], flat in this order */

/* One run; fill in what stands before `report`. */
struct golden_run {
    int ranks, steps;
    int64_t accumulate; /* micro-batches of a step, each with the next gradients */
    const struct dpb_strategy_ops *strategy;
    const void *options;
    float input[GOLDEN_RANKS_MAX][GOLDEN_STEPS][GOLDEN_ELEMENTS]; /* each rank's gradients */

    struct golden_report {
        dpb_status status;
        float local[GOLDEN_ELEMENTS]; /* after the first micro-batch of two */
        float reduced[GOLDEN_STEPS][GOLDEN_ELEMENTS];
        char log[4096];
    } report[GOLDEN_RANKS_MAX];
    int segment_fd;
};

/* For two ranks, with the gradients of the file. */
struct golden_run *golden_run_new(const struct dpb_strategy_ops *strategy, const void *options,
                                  int steps);
void golden_run_free(struct golden_run *run);
/* Every rank went through, or the test fails. */
void golden_run_all(struct golden_run *run);

/* Tensors of the file: those of step `step` of a key; -1: the key has no steps. */
void golden_read(const char *key, int step, float *values);
void golden_read_of_rank(const char *key, int rank, int step, float *values);

#endif
