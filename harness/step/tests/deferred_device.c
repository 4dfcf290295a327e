#include "dpb_test.h"
#include "deferred_device.h"

#include "dpb_clock.h"

#define QUEUE_MAX 64

/* stream_sync() names no device, hence one wrapper for all. */
static struct {
    struct dpb_device_base base;
    struct dpb_device_ops ops;
    dpb_device *inner;
    struct dpb_sgd_args queue[QUEUE_MAX];
    int queued;
    int64_t last_ns;
} wrapper;

static dpb_status deferred_alloc(dpb_device *device, size_t bytes, void **memory)
{
    (void)device;
    return dpb_device_get_ops(wrapper.inner)->alloc(wrapper.inner, bytes, memory);
}

static void deferred_free(dpb_device *device, void *memory)
{
    (void)device;
    dpb_device_get_ops(wrapper.inner)->free(wrapper.inner, memory);
}

static dpb_status deferred_stream_open(dpb_device *device, dpb_stream **stream)
{
    (void)device;
    return dpb_device_get_ops(wrapper.inner)->stream_open(wrapper.inner, stream);
}

static dpb_status deferred_op_launch(dpb_device *device, enum dpb_op op, const void *args,
                                     dpb_stream *stream)
{
    (void)device;
    (void)stream;
    assert_int_equal(op, DPB_OP_SGD_MOMENTUM);
    assert_in_range(wrapper.queued, 0, QUEUE_MAX - 1);
    wrapper.queue[wrapper.queued++] = *(const struct dpb_sgd_args *)args;
    return DPB_OK;
}

static dpb_status deferred_stream_sync(dpb_stream *stream)
{
    if (wrapper.queued == 0)
        return DPB_OK;
    for (int i = 0; i < wrapper.queued; i++)
        DPB_TRY(dpb_op_launch(wrapper.inner, DPB_OP_SGD_MOMENTUM, &wrapper.queue[i], stream));
    wrapper.queued = 0;
    wrapper.last_ns = dpb_clock_now_ns();
    return DPB_OK;
}

dpb_device *deferred_device_of(dpb_device *inner)
{
    wrapper.inner = inner;
    wrapper.queued = 0;
    wrapper.last_ns = 0;
    wrapper.ops = *dpb_device_get_ops(inner);
    wrapper.ops.alloc = deferred_alloc;
    wrapper.ops.free = deferred_free;
    wrapper.ops.stream_open = deferred_stream_open;
    wrapper.ops.op_launch = deferred_op_launch;
    wrapper.ops.stream_sync = deferred_stream_sync;
    wrapper.base.ops = &wrapper.ops;
    return (dpb_device *)&wrapper;
}

int64_t deferred_device_last_ns(void)
{
    return wrapper.last_ns;
}
