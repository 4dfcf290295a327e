/* Horovod's fusion of tensors that are ready. */
#include "horovod_fusion.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define ATOMIC_UNIT      64 /* FUSION_BUFFER_ATOMIC_UNIT: elements, of the largest type */
#define BATCHED_COPY_PAD 16 /* bytes: the batched copies move 16 at a time */

dpb_status fusion_init(struct fusion *fusion, int tensors)
{
    const size_t room = (size_t)tensors + 1;

    *fusion = (struct fusion){
            .member = calloc(room, sizeof(*fusion->member)),
            .first = calloc(room, sizeof(*fusion->first)),
            .is_taken = calloc(room, sizeof(*fusion->is_taken)),
            .capacity = tensors,
    };
    if (fusion->member && fusion->first && fusion->is_taken)
        return DPB_OK;
    fusion_release(fusion);
    dpb_error("fusion of tensors: out of memory for %d of them", tensors);
    return DPB_ERR_NO_MEMORY;
}

void fusion_release(struct fusion *fusion)
{
    free(fusion->is_taken);
    free(fusion->first);
    free(fusion->member);
    *fusion = (struct fusion){0};
}

static int64_t round_up(int64_t bytes, int64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

int64_t fusion_threshold_bytes(int64_t asked_bytes, int ranks_per_node)
{
    return round_up(asked_bytes, (int64_t)ranks_per_node * (int64_t)sizeof(double) * ATOMIC_UNIT);
}

int64_t fusion_place_bytes(int64_t bytes, bool pads)
{
    return pads ? round_up(bytes, BATCHED_COPY_PAD) : bytes;
}

static bool go_together(const struct fusion_tensor *a, const struct fusion_tensor *b)
{
    return a->dtype == b->dtype && a->prescale == b->prescale && a->postscale == b->postscale;
}

void fusion_groups(struct fusion *fusion, const struct fusion_tensor *tensors, int count,
                   int64_t threshold_bytes, bool pads)
{
    int members = 0;

    fusion->count = 0;
    fusion->first[0] = 0;
    memset(fusion->is_taken, 0, (size_t)count * sizeof(*fusion->is_taken));
    for (int front = 0; front < count; front++) {
        int64_t bytes = fusion_place_bytes(tensors[front].bytes, pads), skipped_bytes = 0;

        if (fusion->is_taken[front])
            continue;
        fusion->member[members++] = front;
        for (int i = front + 1; i < count; i++) {
            const int64_t place_bytes = fusion_place_bytes(tensors[i].bytes, pads);

            if (fusion->is_taken[i])
                continue;
            if (go_together(&tensors[front], &tensors[i]) &&
                bytes + place_bytes <= threshold_bytes) {
                fusion->is_taken[i] = true;
                fusion->member[members++] = i;
                bytes += place_bytes;
            } else {
                skipped_bytes += place_bytes;
                if (bytes + skipped_bytes > threshold_bytes)
                    break;
            }
        }
        fusion->first[++fusion->count] = members;
    }
}
