/* ddp_buckets.h: which buckets DDP makes of a model's parameters, before the first step and after
 * it. Pure. */
#ifndef DPB_DDP_BUCKETS_H
#define DPB_DDP_BUCKETS_H

#include <stdbool.h>

#include "dpb_bucket.h"

struct ddp_bucket_rules {
    int64_t first_bytes, other_bytes; /* limits */
    bool is_one_at_first; /* one bucket per type in the first step (PyTorch since 1.11, unless it
                             looks for unused parameters) */
    bool is_small_last;   /* DDP_SET_LAST_BUCKET_CAP: the first limit is that of the last bucket */
};

/* Before the first step: the greedy rule over parameters in registration order, then the buckets
 * in reverse, which is about the order in which their gradients come; or one bucket per type. */
dpb_status ddp_buckets_initial(const struct ddp_bucket_rules *rules, const struct dpb_model *model,
                               struct dpb_unit_plan *plan);
/* Rebuilt: the greedy rule over parameters in the order in which gradients became ready; with
 * is_small_last in the opposite order, and the buckets in reverse. */
dpb_status ddp_buckets_rebuilt(const struct ddp_bucket_rules *rules, const struct dpb_model *model,
                               const int *ready_order, struct dpb_unit_plan *plan);

#endif
