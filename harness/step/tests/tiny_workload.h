/* tiny_workload.h: a workload whose gradients are small integers that depend on the samples and on
 * the parameters, so that sums are exact in any order and stale parameters show. Host code only. */
#ifndef DPB_TESTS_TINY_WORKLOAD_H
#define DPB_TESTS_TINY_WORKLOAD_H

#include "dpb_step.h"

#define TINY_PARAMS 5

/* What the workload exchanges itself. */
enum tiny_exchange {
    TINY_EXCHANGE_NOTHING,
    TINY_EXCHANGE_CORRECT, /* `correct` is that of all ranks: two sums in two buffers, the second
                              under way while the first is waited for */
    /* mistakes, in the forward pass */
    TINY_EXCHANGE_LATE_MEMORY,
    TINY_EXCHANGE_NOT_WAITED_FOR,
    TINY_EXCHANGE_TOO_MANY,
    TINY_EXCHANGE_UNKNOWN
};

/* What may go wrong; {0} is a sound workload of all parameters. */
struct tiny_options {
    int param_count;      /* 0: all */
    bool other_order;     /* gradients become ready in registration order */
    bool report_twice;    /* the first ready parameter, again */
    bool forget_last;     /* do not report the last ready parameter */
    bool report_unknown;  /* a parameter that is not there */
    bool use_unannounced; /* gradients of parameters whose use it did not announce */
    bool nan_loss;
    int64_t fail_forward;  /* number of the forward pass that fails, from 1; 0: none */
    int64_t fail_backward; /* the same of the backward pass */
    bool bad_dtype, empty_param, bad_shape;
    /* Training makes sense: the loss of a sample is half the squared distance of all parameters
     * from tiny_target(), and gradients are its gradients. */
    bool least_squares;
    /* The last layer uses in.weight, too: backward begins with a part of its gradient */
    bool tied;
    enum tiny_exchange exchange;
    int unused;                     /* number, from 1, of a parameter that no pass uses; 0: none */
    int64_t unused_from, unused_to; /* in these forward passes, from 1; 0: in all */
    bool has_buffers;               /* the model tells of its first two states as buffers */
    int64_t spoil_update; /* number of the update that changes replicated state as no other rank's
                             does; 0: none */
};

/* What it keeps beside its parameters, in this order: "steps", replicated, the sum of the numbers
 * of the steps whose update it made; "rank", local, and "part", sharded: numbers of the rank, and
 * of "rank" behind it what the last forward pass found there. */
#define TINY_STATES         3
#define TINY_STATE_ELEMENTS 2 /* of each */

extern const struct dpb_workload_ops tiny_workload_ops;

/* The order in which gradients become ready, unless other_order. */
extern const int tiny_ready_order[TINY_PARAMS];

/* Elements of parameter `param`, and the initial value of one of them. */
int64_t tiny_numel(int param);
float tiny_initial(int param, int64_t element, uint64_t seed);
/* The gradient that sample `id` adds to an element whose value is `value`. */
int tiny_gradient(int param, int64_t element, float value, int64_t id);
/* Where least_squares wants an element to be. */
float tiny_target(int param, int64_t element, int64_t id);
/* The loss and correctness of sample `id`. */
double tiny_loss(int64_t id);
bool tiny_is_correct(int64_t id);

/* dpb_step_hash(), 0 after a failure. */
uint64_t tiny_hash(dpb_step_engine *engine);

/* A source of batches: of every global batch of `global_batch` consecutive samples the `count` from
 * `first` on. DPB_END after `steps` batches. */
#define TINY_BATCH_MAX 64
struct tiny_source {
    int64_t global_batch, first, count, steps;
    int64_t ids[TINY_BATCH_MAX];
    int64_t asked; /* calls */
};
struct dpb_batch_source tiny_source_of(struct tiny_source *source);

#endif
