#include "dlrm_distinct.h"

#include <stdlib.h>
#include <string.h>

/* At most half of the slots are taken. */
static int64_t slots_for(int64_t most)
{
    int64_t slots = 16;

    while (slots < 2 * most)
        slots *= 2;
    return slots;
}

int64_t dpb_dlrm_distinct_bytes(int64_t most)
{
    return (slots_for(most) + most) * (int64_t)sizeof(int32_t);
}

dpb_status dpb_dlrm_distinct_open(int64_t most, struct dpb_dlrm_distinct *distinct)
{
    int64_t slots = slots_for(most);
    int32_t *memory = malloc((size_t)dpb_dlrm_distinct_bytes(most));

    if (!memory)
        return DPB_ERR_NO_MEMORY;
    memset(memory, 0, (size_t)dpb_dlrm_distinct_bytes(most));
    *distinct = (struct dpb_dlrm_distinct){
            .slot = memory, .slot_mask = slots - 1, .value = memory + slots};
    dpb_dlrm_distinct_clear(distinct);
    return DPB_OK;
}

void dpb_dlrm_distinct_release(struct dpb_dlrm_distinct *distinct)
{
    free(distinct->slot);
    *distinct = (struct dpb_dlrm_distinct){0};
}

void dpb_dlrm_distinct_clear(struct dpb_dlrm_distinct *distinct)
{
    distinct->count = 0;
    memset(distinct->slot, 0xff, (size_t)(distinct->slot_mask + 1) * sizeof(*distinct->slot));
}

void dpb_dlrm_distinct_add(struct dpb_dlrm_distinct *distinct, const int32_t *number, int64_t count,
                           int32_t *which)
{
    for (int64_t i = 0; i < count; i++) {
        /* Fibonacci hashing: the upper half of the product, where every bit of the number acts */
        int64_t at = (int64_t)(((uint64_t)(uint32_t)number[i] * 0x9e3779b97f4a7c15u) >> 32) &
                     distinct->slot_mask;

        while (distinct->slot[at] >= 0 && distinct->value[distinct->slot[at]] != number[i])
            at = (at + 1) & distinct->slot_mask;
        if (distinct->slot[at] < 0) {
            distinct->slot[at] = distinct->count;
            distinct->value[distinct->count++] = number[i];
        }
        which[i] = distinct->slot[at];
    }
}
