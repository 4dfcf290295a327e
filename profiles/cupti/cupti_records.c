#include "cupti_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_DOMAIN "dpbench"

/* Make room for one more element. */
static bool grow(struct cupti_records *records, void **array, size_t *capacity, size_t count,
                 size_t element_bytes)
{
    const size_t wanted = *capacity ? 2 * *capacity : 256;
    void *grown;

    if (count < *capacity)
        return true;
    grown = reallocarray(*array, wanted, element_bytes);
    if (!grown) {
        records->no_memory = true;
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

/* Append to one of the arrays; the value may be a compound literal. */
#define APPEND(records, array, ...)                                                                \
    do {                                                                                           \
        if (grow((records), (void **)&(records)->array.at, &(records)->array.capacity,             \
                 (records)->array.count, sizeof((records)->array.at[0])))                          \
            (records)->array.at[(records)->array.count++] = __VA_ARGS__;                           \
    } while (0)

static size_t keep_text(struct cupti_records *records, const char *prefix, const char *text)
{
    const size_t offset = records->text.length;

    dpb_str_append(&records->text, prefix);
    dpb_str_append(&records->text, text);
    dpb_str_append_bytes(&records->text, "", 1);
    records->no_memory |= records->text.failed;
    return offset;
}

/* The number of a kernel's name. All records of a kernel share CUPTI's string, and there are few
 * kernels. */
static uint32_t name_number(struct cupti_records *records, const char *given)
{
    for (size_t i = records->names.count; i-- > 0;) {
        if (records->names.at[i].given == given)
            return (uint32_t)i;
    }
    APPEND(records, names,
           (struct cupti_kernel_name){given, keep_text(records, "", given ? given : "kernel")});
    return records->names.count > 0 ? (uint32_t)(records->names.count - 1) : 0;
}

static void take_kernel(struct cupti_records *records, const CUpti_ActivityKernel10 *kernel)
{
    const uint32_t name = name_number(records, kernel->name);

    APPEND(records, work,
           (struct cupti_work){
                   .start_ns = kernel->start,
                   .end_ns = kernel->end,
                   .correlation = kernel->correlationId,
                   .name = name,
                   .kind = CUPTI_WORK_KERNEL,
                   .stream = kernel->streamId,
                   .node = kernel->graphNodeId,
           });
}

static int64_t bytes_of(uint64_t bytes)
{
    return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

static void take_copy(struct cupti_records *records, const CUpti_ActivityMemcpy6 *copy)
{
    APPEND(records, work,
           (struct cupti_work){
                   .start_ns = copy->start,
                   .end_ns = copy->end,
                   .bytes = bytes_of(copy->bytes),
                   .correlation = copy->correlationId,
                   .kind = CUPTI_WORK_COPY,
                   .copy_kind = copy->copyKind,
                   .stream = copy->streamId,
                   .node = copy->graphNodeId,
           });
}

static void take_fill(struct cupti_records *records, const CUpti_ActivityMemset4 *fill)
{
    APPEND(records, work,
           (struct cupti_work){
                   .start_ns = fill->start,
                   .end_ns = fill->end,
                   .bytes = bytes_of(fill->bytes),
                   .correlation = fill->correlationId,
                   .kind = CUPTI_WORK_FILL,
                   .stream = fill->streamId,
                   .node = fill->graphNodeId,
           });
}

static bool launches_graph(const CUpti_ActivityAPI *call)
{
    if (call->kind == CUPTI_ACTIVITY_KIND_RUNTIME)
        return call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 ||
               call->cbid == CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000;
    return call->cbid == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch ||
           call->cbid == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz;
}

static void take_call(struct cupti_records *records, const CUpti_ActivityAPI *call)
{
    APPEND(records, calls,
           (struct cupti_call){
                   .correlation = call->correlationId,
                   /* a launch that failed runs nothing */
                   .is_graph_launch = call->returnValue == 0 && launches_graph(call),
           });
}

static void take_external(struct cupti_records *records,
                          const CUpti_ActivityExternalCorrelation *external)
{
    APPEND(records, externals,
           (struct cupti_external){external->correlationId, (uint32_t)external->externalKind,
                                   external->externalId});
}

static void take_overhead(struct cupti_records *records, CUpti_ActivityOverhead3 *overhead)
{
    free(overhead->overheadData); /* ours, by the header */
    overhead->overheadData = NULL;
    APPEND(records, overheads,
           (struct cupti_overhead){overhead->start, overhead->end,
                                   (uint32_t)overhead->overheadKind});
}

static void close_marker(struct cupti_records *records, const CUpti_ActivityMarker2 *marker)
{
    for (size_t i = records->markers.count; i-- > 0;) {
        if (records->markers.at[i].id != marker->id)
            continue;
        if (records->markers.at[i].end_ns == 0)
            records->markers.at[i].end_ns = marker->timestamp;
        return;
    }
}

/* Our own ranges are known already, from the moment they began; those of libraries (NCCL) are not.
 */
static void take_marker(struct cupti_records *records, const CUpti_ActivityMarker2 *marker)
{
    char prefix[64];

    if (marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_END)
        close_marker(records, marker);
    if (!(marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_START) || !marker->name)
        return;
    if (marker->domain && strcmp(marker->domain, OWN_DOMAIN) == 0) {
        records->own_markers++;
        return;
    }
    snprintf(prefix, sizeof(prefix), "%s%s", marker->domain ? marker->domain : "",
             marker->domain ? ": " : "");
    APPEND(records, markers,
           (struct cupti_marker){
                   .start_ns = marker->timestamp,
                   .name = keep_text(records, prefix, marker->name),
                   .id = marker->id,
           });
}

static void take_sync(struct cupti_records *records, const CUpti_ActivitySynchronization2 *sync)
{
    uint64_t length_ns = sync->end - sync->start;

    if (sync->start == 0 || sync->end < sync->start || length_ns > INT64_MAX)
        return;
    if (__builtin_add_overflow(records->sync_wait_ns, (int64_t)length_ns, &records->sync_wait_ns))
        records->sync_wait_ns = INT64_MAX;
}

/* Take what the record says; its size, or 0 when its kind is not ours. */
static size_t take(struct cupti_records *records, CUpti_Activity *record)
{
    void *any = record;

    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        take_kernel(records, any);
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        take_copy(records, any);
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        take_fill(records, any);
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
        take_call(records, any);
        return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        take_external(records, any);
        return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        take_overhead(records, any);
        return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_MARKER:
        take_marker(records, any);
        return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_MARKER_DATA:
        return sizeof(CUpti_ActivityMarkerData2);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        take_sync(records, any);
        return sizeof(CUpti_ActivitySynchronization2);
    default:
        records->others++;
        return 0;
    }
}

static bool all_zero(const uint8_t *bytes, const uint8_t *end)
{
    while (bytes < end && *bytes == 0)
        bytes++;
    return bytes >= end;
}

void cupti_records_read(struct cupti_records *records, const struct cupti_table *table,
                        uint8_t *buffer, size_t valid_bytes)
{
    const uint8_t *const end = buffer + valid_bytes;
    const uint8_t *read_to = buffer; /* NULL: behind a record of unknown size */
    CUpti_Activity *record = NULL;
    CUptiResult result = CUPTI_ERROR_MAX_LIMIT_REACHED;

    while (valid_bytes > 0 && (result = table->cuptiActivityGetNextRecord(
                                       buffer, valid_bytes, &record)) == CUPTI_SUCCESS) {
        const size_t bytes = take(records, record);

        read_to = bytes > 0 ? (const uint8_t *)record + bytes : NULL;
    }
    /* A record that was cut ends the walk like the end does. Buffers are zero where nothing was
     * written, so what lies behind the last record tells them apart. */
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED || (read_to && !all_zero(read_to, end)))
        records->damaged_buffers++;
}

void cupti_records_release(struct cupti_records *records)
{
    free(records->work.at);
    free(records->calls.at);
    free(records->externals.at);
    free(records->overheads.at);
    free(records->markers.at);
    free(records->names.at);
    dpb_str_release(&records->text);
    *records = (struct cupti_records){0};
}
