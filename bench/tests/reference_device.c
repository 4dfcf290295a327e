#include "reference_device.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_reference.h"

struct reference_device {
    struct dpb_device_base base;
    int launches[DPB_OP_COUNT];
    int pool_indices;
    int blocks, limit;
    enum dpb_op lacking; /* in bf16; none: DPB_OP_COUNT */
};

/* Everything is done when a call returns, so a stream and a mark need no state. */
struct dpb_stream {
    dpb_device *device;
};

struct dpb_event_mark {
    dpb_device *device;
};

static struct reference_device *self_of(dpb_device *device)
{
    return (struct reference_device *)device;
}

static dpb_status probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static dpb_status open_device(const struct dpb_device_config *config, dpb_device **device)
{
    struct reference_device *self = calloc(1, sizeof(*self));

    (void)config;
    if (!self)
        return DPB_ERR_NO_MEMORY;
    self->base.ops = &test_reference_device_ops;
    self->limit = -1;
    self->lacking = DPB_OP_COUNT;
    *device = (dpb_device *)self;
    return DPB_OK;
}

static void close_device(dpb_device *device)
{
    free(device);
}

static dpb_json *describe(dpb_device *device)
{
    (void)device;
    return dpb_json_object();
}

static dpb_status alloc_memory(dpb_device *device, size_t bytes, void **memory)
{
    struct reference_device *self = self_of(device);
    void *block;

    if (self->limit == 0) {
        dpb_error("cannot allocate %zu bytes: told so", bytes);
        return DPB_ERR_NO_MEMORY;
    }
    block = calloc(1, bytes);
    if (!block)
        return DPB_ERR_NO_MEMORY;
    if (self->limit > 0)
        self->limit--;
    self->blocks++;
    *memory = block;
    return DPB_OK;
}

static void free_memory(dpb_device *device, void *memory)
{
    self_of(device)->blocks--;
    free(memory);
}

static dpb_status copy(dpb_device *device, void *to, const void *from, size_t bytes,
                       dpb_stream *stream)
{
    (void)device;
    (void)stream;
    memcpy(to, from, bytes);
    return DPB_OK;
}

static dpb_status stream_open(dpb_device *device, dpb_stream **stream)
{
    dpb_stream *opened = malloc(sizeof(*opened));

    if (!opened)
        return DPB_ERR_NO_MEMORY;
    opened->device = device;
    *stream = opened;
    return DPB_OK;
}

static void stream_close(dpb_stream *stream)
{
    free(stream);
}

static dpb_status stream_sync(dpb_stream *stream)
{
    (void)stream;
    return DPB_OK;
}

static dpb_status mark_open(dpb_device *device, dpb_event_mark **mark)
{
    dpb_event_mark *opened = malloc(sizeof(*opened));

    if (!opened)
        return DPB_ERR_NO_MEMORY;
    opened->device = device;
    *mark = opened;
    return DPB_OK;
}

static void mark_close(dpb_event_mark *mark)
{
    free(mark);
}

static dpb_status mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    (void)mark;
    (void)stream;
    return DPB_OK;
}

static dpb_status stream_wait(dpb_stream *stream, dpb_event_mark *mark)
{
    (void)stream;
    (void)mark;
    return DPB_OK;
}

static dpb_status mark_elapsed_ns(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns)
{
    (void)from;
    (void)to;
    *ns = 0;
    return DPB_OK;
}

static bool op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    return dtype == DPB_F32 || dtype == DPB_F64 ||
           (dtype == DPB_BF16 && op != self_of(device)->lacking);
}

static dpb_status op_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    (void)stream;
    self_of(device)->launches[op]++;
    if (op == DPB_OP_POOL_MAX_FWD && ((const struct dpb_pool_args *)args)->index)
        self_of(device)->pool_indices++;
    return dpb_reference_op(op, args);
}

int test_reference_device_launches(dpb_device *device, enum dpb_op op)
{
    return self_of(device)->launches[op];
}

int test_reference_device_pool_indices(dpb_device *device)
{
    return self_of(device)->pool_indices;
}

int test_reference_device_blocks(dpb_device *device)
{
    return self_of(device)->blocks;
}

void test_reference_device_limit(dpb_device *device, int blocks)
{
    self_of(device)->limit = blocks;
}

void test_reference_device_lacks(dpb_device *device, enum dpb_op op)
{
    self_of(device)->lacking = op;
}

const struct dpb_device_ops test_reference_device_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "reference",
        .summary = "the reference operators, for tests",
        .probe = probe,
        .open = open_device,
        .close = close_device,
        .describe = describe,
        .alloc = alloc_memory,
        .free = free_memory,
        .copy = copy,
        .stream_open = stream_open,
        .stream_close = stream_close,
        .stream_sync = stream_sync,
        .mark_open = mark_open,
        .mark_close = mark_close,
        .mark_record = mark_record,
        .stream_wait = stream_wait,
        .mark_elapsed_ns = mark_elapsed_ns,
        .op_supported = op_supported,
        .op_launch = op_launch,
};
