/* horovod_fusion.h: which tensors Horovod reduces together (controller.cc, FuseResponses and
 * TensorFusionThresholdBytes). Pure; nothing is allocated after init(). */
#ifndef DPB_HOROVOD_FUSION_H
#define DPB_HOROVOD_FUSION_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_types.h"

/* A tensor that every rank has ready. */
struct fusion_tensor {
    int64_t bytes;
    enum dpb_dtype dtype;
    double prescale, postscale;
};

/* Groups of tensors, by their index: group g holds member[first[g] .. first[g + 1]). */
struct fusion {
    int *member, *first;
    bool *is_taken;
    int capacity, count;
};

/* For at most `tensors` tensors at a time. DPB_ERR_NO_MEMORY, logged. */
dpb_status fusion_init(struct fusion *fusion, int tensors);
void fusion_release(struct fusion *fusion);

/* The threshold that counts when `asked` was asked for: rounded up to a multiple of 64 doubles for
 * each rank of a node; 0, which switches fusion off, stays 0. */
int64_t fusion_threshold_bytes(int64_t asked_bytes, int ranks_per_node);

/* What a tensor takes in a fusion buffer: with `pads`, up to a multiple of 16 bytes. */
int64_t fusion_place_bytes(int64_t bytes, bool pads);

/* Group tensors that are ready in this order. The front one begins a group; a later one of the same
 * type and scales joins it while the group stays within the threshold; any other is skipped while
 * the group and all that was skipped are within it, and ends the search beyond that. Sizes are
 * fusion_place_bytes(). What was skipped keeps its order for the next group. */
void fusion_groups(struct fusion *fusion, const struct fusion_tensor *tensors, int count,
                   int64_t threshold_bytes, bool pads);

#endif
