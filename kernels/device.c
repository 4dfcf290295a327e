#include "dpb_device.h"

#include <string.h>

#include "dpb_log.h"

int64_t dpb_tensor_numel(const struct dpb_tensor *tensor)
{
    int64_t numel = 1;

    for (int i = 0; i < tensor->rank; i++)
        numel *= tensor->dim[i];
    return numel;
}

struct dpb_tensor dpb_tensor_1d(void *data, int64_t n)
{
    return (struct dpb_tensor){.data = data, .dtype = DPB_F32, .rank = 1, .dim = {n}};
}

struct dpb_tensor dpb_tensor_2d(void *data, int64_t rows, int64_t columns)
{
    return (struct dpb_tensor){.data = data, .dtype = DPB_F32, .rank = 2, .dim = {rows, columns}};
}

struct dpb_tensor dpb_tensor_4d(void *data, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct dpb_tensor){.data = data, .dtype = DPB_F32, .rank = 4, .dim = {a, b, c, d}};
}

const char *dpb_op_text(enum dpb_op op)
{
    static const char *const text_of[] = {
#define DPB_OP_TEXT(name, text, args) text,
            DPB_OP_MAP(DPB_OP_TEXT)
#undef DPB_OP_TEXT
    };

    if ((unsigned)op >= DPB_OP_COUNT)
        return "unknown operator";
    return text_of[op];
}

size_t dpb_op_args_bytes(enum dpb_op op)
{
    static const size_t bytes_of[] = {
#define DPB_OP_BYTES(name, text, args) sizeof(args),
            DPB_OP_MAP(DPB_OP_BYTES)
#undef DPB_OP_BYTES
    };

    return (unsigned)op < DPB_OP_COUNT ? bytes_of[op] : 0;
}

dpb_status dpb_device_host_alloc(dpb_device *device, size_t bytes, void **memory)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);

    return ops->host_alloc ? ops->host_alloc(device, bytes, memory)
                           : ops->alloc(device, bytes, memory);
}

void dpb_device_host_free(dpb_device *device, void *memory)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);

    if (ops->host_free)
        ops->host_free(device, memory);
    else
        ops->free(device, memory);
}

dpb_status dpb_op_launch_many(dpb_device *device, enum dpb_op op, const void *args, int count,
                              dpb_stream *stream)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);

    if (ops->op_launch_many)
        return ops->op_launch_many(device, op, args, count, stream);
    for (int i = 0; i < count; i++) {
        const char *one = (const char *)args + (size_t)i * dpb_op_args_bytes(op);
        DPB_TRY(ops->op_launch(device, op, one, stream));
    }
    return DPB_OK;
}

static dpb_status bad_table(const char *name, const char *what)
{
    dpb_error("device table \"%s\": %s", name, what);
    return DPB_ERR_INTERNAL;
}

dpb_status dpb_device_ops_check(const struct dpb_device_ops *ops)
{
    const char *name;

    if (!ops)
        return bad_table("?", "is NULL");
    name = ops->name && ops->name[0] ? ops->name : "?";
    if (ops->version != DPB_DEVICE_OPS_VERSION) {
        dpb_error("device table \"%s\": has version %d, this program needs %d", name, ops->version,
                  DPB_DEVICE_OPS_VERSION);
        return DPB_ERR_INTERNAL;
    }
    if (name[0] == '?')
        return bad_table(name, "has no name");
    if (!ops->summary || !ops->summary[0])
        return bad_table(name, "has no summary");
    if (ops->flags & ~(unsigned)(DPB_DEVICE_VIRTUAL_TIME | DPB_DEVICE_ACCELERATOR))
        return bad_table(name, "has unknown flags");

#define NEED(member)                                                                               \
    if (!ops->member)                                                                              \
    return bad_table(name, "lacks " #member)
    NEED(probe);
    NEED(open);
    NEED(close);
    NEED(describe);
    NEED(alloc);
    NEED(free);
    NEED(copy);
    NEED(stream_open);
    NEED(stream_close);
    NEED(stream_sync);
    NEED(mark_open);
    NEED(mark_close);
    NEED(mark_record);
    NEED(stream_wait);
    NEED(mark_elapsed_ns);
    NEED(op_supported);
    NEED(op_launch);
#undef NEED
    if (!ops->host_alloc != !ops->host_free)
        return bad_table(name, "has one of host_alloc and host_free");
    if (!ops->capture_begin != !ops->capture_end)
        return bad_table(name, "has one of capture_begin and capture_end");
    if ((ops->flags & DPB_DEVICE_ACCELERATOR) && !ops->host_alloc)
        return bad_table(name, "is an accelerator and lacks host_alloc");

    if (ops->options) {
        const struct dpb_option_set set = {.tables = &ops->options, .table_count = 1};

        if (!ops->options->kind || strcmp(ops->options->kind, "device") != 0)
            return bad_table(name, "has an option table of another kind");
        if (!ops->options->owner || strcmp(ops->options->owner, name) != 0)
            return bad_table(name, "has the option table of another device");
        DPB_TRY(dpb_option_table_check(ops->options, &set));
    }
    return DPB_OK;
}
