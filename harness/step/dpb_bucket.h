/* dpb_bucket.h: which gradients travel together: communication units, and PyTorch's bucket rule.
 *
 * A pure planner: no device, no comm. A unit's members lie back to back without padding, as in a
 * DDP bucket; units begin at multiples of 64 bytes in the gradient arena. */
#ifndef DPB_BUCKET_H
#define DPB_BUCKET_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_types.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest limit of bytes that an option takes: more than the gradients of any network. */
#define DPB_BUCKET_BYTES_MAX ((double)(INT64_C(1) << 40))

/* ---- compute_bucket_assignment_by_size ---- */

struct dpb_bucket_input {
    const int64_t *numel;        /* by position: tensors in filling order */
    const enum dpb_dtype *dtype; /* by position */
    int count;
    const int64_t *limits_bytes; /* at least one; each dtype walks them with its own cursor */
    int limit_count;
    const bool *expect_sparse; /* by label; NULL: none */
    const int *labels;         /* by position; NULL: position is the label, and the result is
                                  sorted by each bucket's smallest label */
};

struct dpb_bucket_assignment {
    int bucket_count;
    int *first; /* bucket b holds label[first[b] .. first[b + 1]) */
    int *label;
    int64_t *limit_bytes; /* per bucket: the limit that closed it, 0 for a sparse tensor */
};

/* The greedy rule of PyTorch's reducer (reducer.cpp, compute_bucket_assignment_by_size; its words
 * in docs/strategies.md): add a tensor to its dtype's open bucket, close the bucket when its bytes
 * are at least the limit, move to the next limit. A tensor is never split. Release after use. */
dpb_status dpb_bucket_assign(const struct dpb_bucket_input *input,
                             struct dpb_bucket_assignment *assignment);
void dpb_bucket_assignment_release(struct dpb_bucket_assignment *assignment);

/* ---- units of communication ---- */

struct dpb_unit {
    int first_member, member_count; /* in dpb_unit_plan.member */
    enum dpb_dtype dtype;
    int64_t elements;
    int64_t bytes;
    int64_t offset_bytes; /* in the gradient arena, a multiple of 64 */
};

struct dpb_unit_plan {
    struct dpb_unit *units; /* launch order */
    int unit_count;
    int *member;           /* parameter indices, unit by unit */
    int *unit_of;          /* per parameter */
    int64_t *offset_bytes; /* per parameter, in the gradient arena */
    int param_count;
    int64_t arena_bytes;
};

/* Lay out units from an assignment (labels are parameter indices; every parameter exactly once, or
 * DPB_ERR_INTERNAL). */
dpb_status dpb_unit_plan_from_buckets(const struct dpb_param_info *params, int param_count,
                                      const struct dpb_bucket_assignment *assignment,
                                      struct dpb_unit_plan *plan);
/* The greedy rule over `order` (NULL: registration order, and units sorted by smallest index). */
dpb_status dpb_unit_plan_by_size(const struct dpb_param_info *params, int param_count,
                                 const int *order, const int64_t *limits_bytes, int limit_count,
                                 struct dpb_unit_plan *plan);
/* One unit per parameter, in the given order (NULL: reverse registration order). */
dpb_status dpb_unit_plan_per_param(const struct dpb_param_info *params, int param_count,
                                   const int *order, struct dpb_unit_plan *plan);
/* One unit per dtype with everything, in the given order (NULL: registration order). */
dpb_status dpb_unit_plan_fused(const struct dpb_param_info *params, int param_count,
                               const int *order, struct dpb_unit_plan *plan);
/* The arena bytes that any plan of these parameters fits in. */
int64_t dpb_unit_plan_arena_bound(const struct dpb_param_info *params, int param_count);
void dpb_unit_plan_release(struct dpb_unit_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
