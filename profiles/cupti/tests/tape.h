/* tape.h: buffers of activity records made by hand, as CUPTI would have filled them. Tests only. */
#ifndef TAPE_H
#define TAPE_H

#include <stddef.h>
#include <stdint.h>

#include "cupti_records.h"
#include "cupti_table.h"

struct tape {
    _Alignas(8) uint8_t bytes[1 << 16];
    size_t length;
};

/* Append a record. Names and domains are kept as pointers. */
void tape_kernel(struct tape *tape, const char *name, uint32_t correlation, uint64_t start_ns,
                 uint64_t end_ns);
void tape_graph_kernel(struct tape *tape, const char *name, uint32_t correlation, uint64_t node,
                       uint64_t start_ns, uint64_t end_ns);
void tape_copy(struct tape *tape, uint8_t copy_kind, uint64_t bytes, uint32_t correlation,
               uint64_t start_ns, uint64_t end_ns);
void tape_fill(struct tape *tape, uint64_t bytes, uint32_t correlation, uint64_t start_ns,
               uint64_t end_ns);
void tape_call(struct tape *tape, CUpti_ActivityKind kind, CUpti_CallbackId function,
               uint32_t correlation, uint32_t returned);
void tape_external(struct tape *tape, uint32_t correlation, CUpti_ExternalCorrelationKind kind,
                   uint64_t id);
void tape_marker(struct tape *tape, uint32_t flags, uint32_t id, const char *name,
                 const char *domain, uint64_t at_ns);
/* `details`: memory that the decoder must free, or NULL. */
void tape_overhead(struct tape *tape, CUpti_ActivityOverheadKind kind, uint64_t start_ns,
                   uint64_t end_ns, void *details);
void tape_sync(struct tape *tape, uint64_t start_ns, uint64_t end_ns);
/* `bytes` bytes that begin with this kind. */
void tape_raw(struct tape *tape, uint32_t kind, size_t bytes);

/* A launch by the runtime, as the step `step`, bucket -1 for none, in the host's range `range`
 * (from 1; 0 for none) makes it. */
void tape_launch(struct tape *tape, uint32_t correlation, int32_t step, int32_t bucket,
                 uint64_t range);

/* The size of a kind's records as the library walks them; 0: it knows no such kind. */
size_t tape_record_bytes(const struct cupti_table *table, uint32_t kind);

/* CUPTI itself, or the whole test program is skipped. */
void tape_need_cupti(struct cupti_table *table);

#endif
