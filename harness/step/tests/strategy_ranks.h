/* strategy_ranks.h: train the tiny workload with a strategy on several ranks, processes that share
 * memory, and compare with one rank that has the whole batch and strategy `none`. Gradients are
 * integers and are summed: every strategy must give the same bits. */
#ifndef DPB_TESTS_STRATEGY_RANKS_H
#define DPB_TESTS_STRATEGY_RANKS_H

#include "tiny_workload.h"

#define STRATEGY_RANKS_MAX    4
#define STRATEGY_STEPS        5
#define STRATEGY_ELEMENTS_MAX 2048

/* What one rank did and saw. */
struct strategy_report {
    dpb_status open, step, replicas; /* the last of each */
    int64_t steps;
    int64_t elements;
    float params[STRATEGY_STEPS][STRATEGY_ELEMENTS_MAX]; /* after each step, all of them */
    uint64_t hash;                                       /* of them, after the last */
    int64_t correct;                                     /* of an evaluation after the last step */
    /* of the last step */
    int64_t collectives, wire_bytes;
    int64_t messages, message_bytes; /* that the strategy tells, and the bytes by the formula */
    /* that the engine has */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes, communication_bytes, strategy_bytes;
    struct dpb_step_memory predicted;
    char log[4096];
};

/* One run; {0} but for what follows is 12 samples in one batch, SGD with momentum. */
struct strategy_run {
    int ranks;
    const struct dpb_strategy_ops *strategy;
    const void *options;
    int64_t accumulate; /* 0: 1 */
    struct dpb_optimizer_config optimizer;
    int other_order_rank; /* whose gradients are ready in another order; 0: none */
    int fail_rank;        /* whose third backward pass fails; 0: none */
    int plant_rank;       /* who has a wrong bit after step 2; 0: none */
    bool trains;          /* least squares, and the mean of gradients */
    bool averages;        /* the mean of gradients */
    bool tied;            /* as in struct tiny_options */
    /* Samples of each rank in a batch of 12; all 0: the same for each */
    int64_t share[STRATEGY_RANKS_MAX];

    int segment_fd;
    struct strategy_report report[STRATEGY_RANKS_MAX];
};

/* In shared memory; change what is to be changed, then run. Free it. */
struct strategy_run *strategy_run_new(int ranks, const struct dpb_strategy_ops *strategy,
                                      const void *options);
void strategy_run_free(struct strategy_run *run);
void strategy_run_all(struct strategy_run *run);

/* All ranks went through, have the same parameters after every step as one rank with `none`, sent
 * what the strategy's messages say, and hold the memory that was predicted. */
void strategy_run_expect_none(struct strategy_run *run);
/* The same for 1 to 4 ranks, and for 2 with gradients in another order, with two micro-batches (a
 * strategy that reduces once per step), and with a rank that fails and takes the others with it. */
void strategy_expect_none(const struct dpb_strategy_ops *strategy, const void *options);

#endif
