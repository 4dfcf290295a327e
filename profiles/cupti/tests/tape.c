#include "tape.h"

#include "dpb_test.h"

#include "device_events.h"

static void put(struct tape *tape, const void *record, size_t bytes)
{
    assert_true(tape->length + bytes <= sizeof(tape->bytes));
    memcpy(tape->bytes + tape->length, record, bytes);
    tape->length += bytes;
}

#define PUT(tape, ...) put((tape), &(__VA_ARGS__), sizeof(__VA_ARGS__))

void tape_graph_kernel(struct tape *tape, const char *name, uint32_t correlation, uint64_t node,
                       uint64_t start_ns, uint64_t end_ns)
{
    const CUpti_ActivityKernel10 kernel = {
            .kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
            .start = start_ns,
            .end = end_ns,
            .completed = end_ns,
            .streamId = 7,
            .correlationId = correlation,
            .graphNodeId = node,
            .name = name,
    };

    PUT(tape, kernel);
}

void tape_kernel(struct tape *tape, const char *name, uint32_t correlation, uint64_t start_ns,
                 uint64_t end_ns)
{
    tape_graph_kernel(tape, name, correlation, 0, start_ns, end_ns);
}

void tape_copy(struct tape *tape, uint8_t copy_kind, uint64_t bytes, uint32_t correlation,
               uint64_t start_ns, uint64_t end_ns)
{
    const CUpti_ActivityMemcpy6 copy = {
            .kind = CUPTI_ACTIVITY_KIND_MEMCPY,
            .copyKind = copy_kind,
            .bytes = bytes,
            .start = start_ns,
            .end = end_ns,
            .correlationId = correlation,
            .copyCount = 1,
    };

    PUT(tape, copy);
}

void tape_fill(struct tape *tape, uint64_t bytes, uint32_t correlation, uint64_t start_ns,
               uint64_t end_ns)
{
    const CUpti_ActivityMemset4 fill = {
            .kind = CUPTI_ACTIVITY_KIND_MEMSET,
            .bytes = bytes,
            .start = start_ns,
            .end = end_ns,
            .correlationId = correlation,
    };

    PUT(tape, fill);
}

void tape_call(struct tape *tape, CUpti_ActivityKind kind, CUpti_CallbackId function,
               uint32_t correlation, uint32_t returned)
{
    const CUpti_ActivityAPI call = {
            .kind = kind,
            .cbid = function,
            .start = 1,
            .end = 2,
            .correlationId = correlation,
            .returnValue = returned,
    };

    PUT(tape, call);
}

void tape_external(struct tape *tape, uint32_t correlation, CUpti_ExternalCorrelationKind kind,
                   uint64_t id)
{
    const CUpti_ActivityExternalCorrelation external = {
            .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            .externalKind = kind,
            .externalId = id,
            .correlationId = correlation,
    };

    PUT(tape, external);
}

void tape_marker(struct tape *tape, uint32_t flags, uint32_t id, const char *name,
                 const char *domain, uint64_t at_ns)
{
    const CUpti_ActivityMarker2 marker = {
            .kind = CUPTI_ACTIVITY_KIND_MARKER,
            .flags = (CUpti_ActivityFlag)flags,
            .timestamp = at_ns,
            .id = id,
            .name = name,
            .domain = domain,
    };

    PUT(tape, marker);
}

void tape_overhead(struct tape *tape, CUpti_ActivityOverheadKind kind, uint64_t start_ns,
                   uint64_t end_ns, void *details)
{
    const CUpti_ActivityOverhead3 overhead = {
            .kind = CUPTI_ACTIVITY_KIND_OVERHEAD,
            .overheadKind = kind,
            .start = start_ns,
            .end = end_ns,
            .overheadData = details,
    };

    PUT(tape, overhead);
}

void tape_sync(struct tape *tape, uint64_t start_ns, uint64_t end_ns)
{
    const CUpti_ActivitySynchronization2 sync = {
            .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
            .type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
            .start = start_ns,
            .end = end_ns,
    };

    PUT(tape, sync);
}

void tape_raw(struct tape *tape, uint32_t kind, size_t bytes)
{
    assert_true(tape->length + bytes <= sizeof(tape->bytes));
    memset(tape->bytes + tape->length, 0x5a, bytes);
    memcpy(tape->bytes + tape->length, &kind, sizeof(kind));
    tape->length += bytes;
}

void tape_launch(struct tape *tape, uint32_t correlation, int32_t step, int32_t bucket,
                 uint64_t range)
{
    tape_external(tape, correlation, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                  cupti_place(step, bucket));
    tape_external(tape, correlation, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, range);
    tape_call(tape, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
              correlation, 0);
}

size_t tape_record_bytes(const struct cupti_table *table, uint32_t kind)
{
    _Alignas(8) uint8_t bytes[4096];
    CUpti_Activity *record = NULL;

    /* Whatever its size, a record of a kind that is known seems to follow. */
    for (size_t i = 0; i < sizeof(bytes); i += 8)
        memcpy(bytes + i, &(uint64_t){CUPTI_ACTIVITY_KIND_RUNTIME}, 8);
    memcpy(bytes, &kind, sizeof(kind));
    if (table->cuptiActivityGetNextRecord(bytes, sizeof(bytes), &record) != CUPTI_SUCCESS ||
        table->cuptiActivityGetNextRecord(bytes, sizeof(bytes), &record) != CUPTI_SUCCESS)
        return 0;
    return (size_t)((uint8_t *)record - bytes);
}

void tape_need_cupti(struct cupti_table *table)
{
    char why[512];

    if (cupti_open(table, why, sizeof(why)) < 0)
        dpb_test_skip_all(why);
}
