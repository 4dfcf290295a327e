/* dpb_capacity_plan.h: how a plan of capacity chooses: options that were simulated, targets, and
 * which option answers. Arithmetic only; docs/planning.md says it in words. */
#ifndef DPB_CAPACITY_PLAN_H
#define DPB_CAPACITY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, key in JSON and of the option, what it limits */
#define DPB_CAPACITY_TARGET_MAP(X)                                                                 \
    X(DPB_TARGET_DEADLINE, "deadline", "training time")                                            \
    X(DPB_TARGET_BUDGET, "budget", "cost")                                                         \
    X(DPB_TARGET_EFFICIENCY, "efficiency", "efficiency")                                           \
    X(DPB_TARGET_STEP_P99, "step-p99", "99th percentile of the step time")

enum dpb_capacity_target {
#define DPB_TARGET_ENUM(name, key, text) name,
    DPB_CAPACITY_TARGET_MAP(DPB_TARGET_ENUM)
#undef DPB_TARGET_ENUM
    DPB_TARGET_COUNT
};
/* "deadline", "training time"; static. */
const char *dpb_capacity_target_key(enum dpb_capacity_target target);
const char *dpb_capacity_target_text(enum dpb_capacity_target target);

/* What takes time of a step beyond ideal computing. */
#define DPB_CAPACITY_LOSS_MAP(X)                                                                   \
    X(DPB_LOSS_LATENCY, "latency", "network latency")                                              \
    X(DPB_LOSS_BANDWIDTH, "bandwidth", "network bandwidth")                                        \
    X(DPB_LOSS_STRAGGLERS, "stragglers", "stragglers")                                             \
    X(DPB_LOSS_SMALL_BATCH, "small_batch", "a batch per accelerator that is too small")            \
    X(DPB_LOSS_STRATEGY, "strategy", "what the strategy itself computes")

enum dpb_capacity_loss {
#define DPB_LOSS_ENUM(name, key, text) name,
    DPB_CAPACITY_LOSS_MAP(DPB_LOSS_ENUM)
#undef DPB_LOSS_ENUM
    DPB_LOSS_COUNT
};
const char *dpb_capacity_loss_text(enum dpb_capacity_loss loss);

/* A machine, a number of its accelerators, and the best strategy for them. Absent figures are NaN.
 */
struct dpb_capacity_option {
    const char *machine;  /* borrowed */
    const char *strategy; /* "ddp"; borrowed */
    const char *bucket;   /* "25MiB", or "" for a strategy without; borrowed */
    const char *settings; /* "compression=fp16": the other options that vary, or ""; borrowed */
    int machine_index;    /* options of one machine have the same */
    int accelerators, nodes;
    int64_t batch_per_rank, global_batch;
    /* a step */
    double step_ns, step_low_ns, step_high_ns; /* mean over simulated steps, and its 95 % interval
                                                */
    double p99_ns;
    int64_t steps_simulated;
    double ideal_ns; /* computing at the rate of one accelerator that works alone */
    double loss_ns[DPB_LOSS_COUNT];
    double samples_per_s;
    double efficiency, efficiency_low, efficiency_high;
    /* training */
    double steps, useful_s, goodput, wall_s, wall_low_s, wall_high_s;
    double checkpoint_interval_s, checkpoint_share, rework_share, restart_share;
    double cost, energy_kwh;
    /* memory of an accelerator */
    bool fits;
    double needed_bytes, memory_bytes, largest_batch;
    /* where the network's times are from, shares that add up to 1 (or all 0: it sends nothing) */
    double origin_share[4]; /* by enum dpb_network_origin */
    /* the largest factors, 1: nowhere; beyond what was measured, below the smallest size of it */
    double extrapolated_by, extrapolated_below;
};

struct dpb_capacity_answer {
    int option;  /* index: the answer, or what comes nearest to it; -1: nothing fits in memory */
    bool is_met; /* every target is */
    /* of that option: by what share it misses a target, 0: not at all; NaN: nobody asked */
    double missed[DPB_TARGET_COUNT];
    int best_for[DPB_TARGET_COUNT]; /* the option that comes farthest in one target alone; -1 */
    /* what gives way first with more accelerators of the answer's machine */
    struct {
        const char *what; /* "memory", "budget", or a loss's text; static */
        int option;       /* where; the answer itself, when nothing larger was asked for */
        double share;     /* of a step that it takes there; NaN for memory and budget */
        bool is_limit;    /* a target fails there; else it is the largest loss at the end */
    } strain;
};

/* `target`: values by enum dpb_capacity_target in seconds, currency, shares, nanoseconds; NaN:
 * nobody asked. Only options that fit answer. Of those that meet every target: with a deadline the
 * cheapest, and of those within 2 % of its cost the one with the fewest accelerators (which alone
 * counts where one has no cost); without one the fastest.
 * When none does, the one whose largest miss is smallest, misses being shares of the target. */
void dpb_capacity_answer(const struct dpb_capacity_option *options, size_t count,
                         const double target[DPB_TARGET_COUNT], struct dpb_capacity_answer *answer);

/* What an option comes to in a target, and by what share it misses `wanted`: 0 when it meets it,
 * infinite where the figure is absent. */
double dpb_capacity_value(const struct dpb_capacity_option *option,
                          enum dpb_capacity_target target);
double dpb_capacity_missed(const struct dpb_capacity_option *option,
                           enum dpb_capacity_target target, double wanted);

/* Is no other option that fits at least as fast and as cheap, and one of both more? By accelerator
 * hours where a cost is absent. */
bool dpb_capacity_is_on_front(const struct dpb_capacity_option *options, size_t count,
                              size_t index);

/* One option as the object that reports are made of. Caller owns. */
dpb_json *dpb_capacity_option_json(const struct dpb_capacity_option *option, bool is_on_front);

#ifdef __cplusplus
}
#endif
#endif
