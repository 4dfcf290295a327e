/* dpb_explain.h: what a strategy is going to do with a workload's gradients, before anything runs.
 *
 * The plans are those that the step engine will make when gradients become ready in the model's
 * order; the messages are those that the strategy will send, the exchanges those that the workload
 * says it will start itself, and the bytes and wire times of both follow from the formulas of the
 * communicator's algorithm (dpb_link_model.h). Nothing is measured: how long computing takes is not
 * known here, so what can hide behind it is told as a share of it. */
#ifndef DPB_EXPLAIN_H
#define DPB_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_bucket.h"
#include "dpb_json.h"
#include "dpb_link_model.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_step.h"
#include "dpb_strategy.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_explain_message {
    struct dpb_sync_message what;
    int64_t bytes; /* of its buffer */
    int after; /* the parameter whose gradient lets it go, or before whose use it goes; -1: none */
    double backward_done; /* share of the backward pass's FLOP by then; NaN outside of that pass */
    bool always_exposed;  /* nothing is computed while it is under way, however fast the link is */
    int64_t times;      /* that it goes in a step: more than once where micro-batches are reduced */
    int64_t wire_bytes; /* sent by the rank that sends most, each time */
    int64_t wire_ns;    /* the same; -1 without a link */
};

/* What the network exchanges itself, whatever the strategy. */
struct dpb_explain_exchange {
    struct dpb_workload_exchange what;
    int64_t bytes;                      /* of its buffer */
    int64_t times, wire_bytes, wire_ns; /* as of a message */
};

struct dpb_explanation {
    const struct dpb_model *model; /* borrowed */
    int ranks;
    int64_t batch_per_rank, gradient_bytes;
    bool has_link;
    struct dpb_link link;
    char workload[DPB_OPTION_TEXT_BYTES], strategy[DPB_OPTION_TEXT_BYTES];
    char algorithm[DPB_OPTION_TEXT_BYTES]; /* "" where the communicator does not say */
    bool counts_levels; /* it is one of ours, whose bytes are known, and where they go */

    struct dpb_unit_plan first, steady; /* of step 1, and once plans do not change any more */
    bool replans;                       /* they are two plans */
    dpb_json *described;                /* what the strategy adds to the steady one */

    struct dpb_explain_message *messages; /* of a steady step, as they go */
    int message_count;
    int64_t sent_count;                     /* the same, each as often as it goes */
    struct dpb_explain_exchange *exchanges; /* of a step, as they start */
    int exchange_count;
    int64_t exchanged_count, exchange_bytes; /* the same, each as often as it goes */
    int nodes;                               /* of ranks_per_node ranks */
    int64_t wire_bytes; /* of both in a step, sent by the rank that sends most */
    struct dpb_wire_levels
            level_bytes;      /* the same at each level, by the rank that sends most there */
    int64_t node_wire_bytes;  /* of a step, to other nodes, by all ranks of the node that sends most
                               */
    int64_t wire_ns;          /* of a step; -1 without a link */
    int64_t exposed_wire_ns;  /* of it what is always exposed */
    int64_t hidden_within_ns; /* a backward pass of this length hides all the rest; -1: not known */

    struct dpb_step_memory memory; /* each part as on the rank that has most of it */
    struct dpb_step_memory alone;  /* the same of one rank that trains alone */

    dpb_json *notes; /* what a user should know; array of strings */
};

/* Explain a resolved cell, without starting ranks. Fails as the strategy's open() and plan() do;
 * `explanation` is released by dpb_explanation_release(), after a failure too. */
dpb_status dpb_explain(const struct dpb_registry *registry, const dpb_config *config,
                       struct dpb_explanation *explanation);
void dpb_explanation_release(struct dpb_explanation *explanation);

/* Do two cells of one workload send the same messages of the same gradients at the same times? */
bool dpb_explanation_is_same(const struct dpb_explanation *a, const struct dpb_explanation *b);

/* {"schema": "dpb.explain/1", "workload":..., "first_plan": {"units": [...]}, "steady_plan": ...,
 * "messages": [...], ...}. Caller owns. */
dpb_json *dpb_explanation_json(const struct dpb_explanation *explanation);

/* Bytes of all parts. */
int64_t dpb_step_memory_sum(const struct dpb_step_memory *memory);

/* "before-forward", "gradient", ... */
const char *dpb_sync_when_text(enum dpb_sync_when when);

#ifdef __cplusplus
}
#endif
#endif
