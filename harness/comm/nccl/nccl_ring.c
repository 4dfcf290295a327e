#include "nccl_ring.h"

#include <inttypes.h>

#include "dpb_units.h"

static int64_t bytes_of(const struct dpb_coll *coll)
{
    return coll->count * (int64_t)dpb_dtype_bytes(coll->dtype);
}

void dpb_nccl_ring_push(struct dpb_nccl_ring *ring, const struct dpb_coll *coll, int64_t now_ns,
                        bool captured)
{
    const uint64_t number = ++ring->newest;
    ring->entry[number % DPB_NCCL_RING] = (struct dpb_nccl_ring_entry){
            .number = number,
            .kind = (int)coll->kind,
            .tag = coll->tag,
            .bytes = bytes_of(coll),
            .enqueued_ns = now_ns,
            .captured = captured,
    };
}

void dpb_nccl_ring_done(struct dpb_nccl_ring *ring, uint64_t number, int64_t now_ns)
{
    for (int i = 0; i < DPB_NCCL_RING; i++) {
        struct dpb_nccl_ring_entry *entry = &ring->entry[i];
        if (entry->number > 0 && entry->number <= number && entry->seen_ns == 0 && !entry->captured)
            entry->seen_ns = now_ns;
    }
}

static void append_entry(const struct dpb_nccl_ring_entry *entry, int64_t now_ns,
                         struct dpb_str *text)
{
    char bytes[DPB_UNIT_TEXT_BYTES];
    char age[DPB_UNIT_TEXT_BYTES];
    char took[DPB_UNIT_TEXT_BYTES];
    dpb_format_size(entry->bytes, bytes, sizeof(bytes));
    dpb_human_duration((double)(now_ns - entry->enqueued_ns), 2, age, sizeof(age));
    dpb_str_appendf(text, "#%" PRIu64 " %s, ", entry->number,
                    dpb_coll_text((enum dpb_coll_kind)entry->kind));
    if (entry->tag >= 0)
        dpb_str_appendf(text, "bucket %d, ", entry->tag);
    dpb_str_appendf(text, "%s: enqueued %s ago, ", bytes, age);
    if (entry->captured) {
        dpb_str_append(text, "captured into a graph\n");
    } else if (entry->seen_ns) {
        dpb_human_duration((double)(entry->seen_ns - entry->enqueued_ns), 2, took, sizeof(took));
        dpb_str_appendf(text, "complete after at most %s\n", took);
    } else {
        dpb_str_append(text, "not complete\n");
    }
}

void dpb_nccl_ring_text(const struct dpb_nccl_ring *ring, int64_t now_ns, struct dpb_str *text)
{
    const uint64_t first = ring->newest > DPB_NCCL_RING ? ring->newest - DPB_NCCL_RING + 1 : 1;
    for (uint64_t number = first; number <= ring->newest; number++)
        append_entry(&ring->entry[number % DPB_NCCL_RING], now_ns, text);
}
