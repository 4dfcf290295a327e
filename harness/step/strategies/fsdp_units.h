/* fsdp_units.h: how fsdp wraps a network: which parameters are a unit, and where units lie. */
#ifndef DPB_FSDP_UNITS_H
#define DPB_FSDP_UNITS_H

#include "dpb_strategy.h"

struct fsdp_unit {
    int64_t elements; /* of its flat parameter */
    int64_t shard;    /* elements of each rank: ceil(elements / P) */
    int64_t shard_at; /* element of this rank's shards where its shard is */
    int64_t full_at;  /* element of the memory of whole parameters */
    /* Which of the places that units share; the root has its own */
    int param_place, grad_place;
};

struct fsdp_units {
    struct fsdp_unit *unit; /* in forward order */
    int count;
    bool has_root; /* unit 0 is the root */
    int64_t shard_elements, full_elements;
    int *forward_order; /* of parameters */
};

struct fsdp_wrapping {
    int world_size;
    int64_t unit_elements; /* layers are one unit when they have so many; 0: every layer */
    int param_places;      /* that units share for their parameters; 0: each has its own */
    int grad_places;       /* for their gradients */
};

/* Free both on success. */
dpb_status fsdp_units_plan(const struct dpb_model *model, const struct fsdp_wrapping *wrapping,
                           struct fsdp_units *units, struct dpb_unit_plan *plan);
void fsdp_units_release(struct fsdp_units *units);

#endif
