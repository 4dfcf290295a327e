/* zero1.h: the parts of strategy `zero1`. Private to this folder. */
#ifndef DPB_ZERO1_H
#define DPB_ZERO1_H

#include "dpb_strategies.h"
#include "ready_set.h"

/* A collective that brings updated parameters to the ranks that did not update them. */
struct zero1_gather {
    enum dpb_coll_kind kind; /* all-gather, or broadcast from `root` */
    int root;
    int64_t first, count; /* elements in the arena of parameters; staged: of each rank's part */
    bool is_staged;       /* its pieces lie apart: they go through a buffer */
    int unit;             /* -1: none */
    int param;            /* the first parameter that it brings, in registration order */
    int handle;
    bool is_under_way;
};

struct zero1 {
    struct dpb_strategy_base base;
    int rank, world_size;
    struct dpb_sync_services services;
    enum dpb_zero1_variant variant;
    int64_t bucket_bytes, first_bucket_bytes, gather_bytes;
    bool overlaps;           /* gradients are reduced during backward */
    bool gathers_in_forward; /* parameters of the others are waited for where they are used */

    const struct dpb_model *model;
    const struct dpb_unit_plan *plan; /* the engine's */
    struct ready_set ready;
    int *pending;            /* per unit: gradients that are not ready */
    int *handle;             /* per unit: its reduction */
    int next_unit, finished; /* units whose reduction has been started, and is complete */

    /* The parameters, in shared memory. */
    int64_t *place;   /* per parameter: its first element in the arena */
    int64_t elements; /* of the arena */
    float *params;
    bool is_stale; /* those that other ranks have updated since */

    /* Per parameter: the part that this rank updates. */
    int64_t *own_first, *own_count;

    struct zero1_gather *gather;
    int gather_count;
    int64_t staged_elements; /* of the largest that is staged */
    float *staging;

    /* DeepSpeed: buckets that gradients are copied to. */
    float *bucket[2];
    int64_t bucket_elements; /* of the largest unit that is copied there */
};

/* ---- zero1_plan.c ---- */

/* Who updates which tensor: taken from the largest to the smallest, equal ones in their order, each
 * goes to the rank with the fewest elements so far, the lowest of those with as few
 * (ZeroRedundancyOptimizer._partition_parameters). `order` gets the parameters as they were taken,
 * `owner` the rank of each parameter. DPB_ERR_NO_MEMORY, logged. */
dpb_status zero1_partition(const struct dpb_param_info *params, int param_count, int ranks,
                           int *order, int *owner);

/* Units of gradients, places of parameters, this rank's parts and the collectives that bring the
 * others'. On failure there is no plan. */
dpb_status zero1_make_plan(struct zero1 *self, const struct dpb_model *model,
                           struct dpb_unit_plan *plan);
void zero1_release_plan(struct zero1 *self);

/* Is this unit copied to a bucket before it is reduced? */
bool zero1_is_copied(const struct zero1 *self, int unit);

#endif
