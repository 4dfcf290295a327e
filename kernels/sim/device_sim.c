#include "dpb_device_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dpb_log.h"

struct dpb_device {
    struct dpb_device_base base;
    struct dpb_device_sim_options options;
    bool has_stream;
};

struct dpb_stream {
    dpb_device *device;
};

struct dpb_event_mark {
    double at_ns; /* of the watched rank */
};

/* A block of addresses; its size lies in a page of real memory before it. */
#define PAGE_BYTES 4096

static dpb_status sim_probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static dpb_status sim_open(const struct dpb_device_config *config, dpb_device **device)
{
    const struct dpb_device_sim_options *options = config->options;

    if (!options || !options->timeline || !options->rates) {
        dpb_error("device \"sim\": is opened without a timeline and rates");
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(dpb_sim_rates_check(options->rates));
    dpb_device *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return DPB_ERR_NO_MEMORY;
    opened->base.ops = &dpb_device_sim_ops;
    opened->options = *options;
    *device = opened;
    return DPB_OK;
}

static void sim_close(dpb_device *device)
{
    free(device);
}

static dpb_json *sim_describe(dpb_device *device)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "name", "sim");
    dpb_json_set_bool(json, "simulated", true);
    dpb_json_set_int(json, "ranks", dpb_timeline_ranks(device->options.timeline));
    return json;
}

static dpb_status sim_alloc(dpb_device *device, size_t bytes, void **memory)
{
    const size_t whole = (bytes + 2 * PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    char *block = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)device;
    if (block == MAP_FAILED || mprotect(block, PAGE_BYTES, PROT_READ | PROT_WRITE) != 0) {
        dpb_error("device \"sim\": no addresses for %zu bytes: %s", bytes, strerror(errno));
        dpb_log_hint("raise the limit of the address space (ulimit -v)");
        if (block != MAP_FAILED)
            munmap(block, whole);
        return DPB_ERR_NO_MEMORY;
    }
    memcpy(block, &whole, sizeof(whole));
    *memory = block + PAGE_BYTES;
    return DPB_OK;
}

static void sim_free(dpb_device *device, void *memory)
{
    size_t whole;

    (void)device;
    if (!memory)
        return;
    memcpy(&whole, (char *)memory - PAGE_BYTES, sizeof(whole));
    munmap((char *)memory - PAGE_BYTES, whole);
}

static dpb_status sim_host_alloc(dpb_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = calloc(1, bytes ? bytes : 1);
    return *memory ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static void sim_host_free(dpb_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static void compute(dpb_device *device, const struct dpb_sim_work *work)
{
    dpb_timeline_compute(
            device->options.timeline,
            dpb_sim_rates_ns(device->options.rates, work->dtype, work->flops, work->bytes), NULL);
}

static dpb_status sim_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                           dpb_stream *stream)
{
    const struct dpb_sim_work work = {.dtype = DPB_F32, .bytes = 2.0 * (double)bytes};

    (void)to;
    (void)from;
    (void)stream;
    compute(device, &work);
    return DPB_OK;
}

/* ---- the stream and its marks ---- */

static dpb_status sim_stream_open(dpb_device *device, dpb_stream **stream)
{
    if (device->has_stream) {
        dpb_error("device \"sim\": has one compute stream, and it is open");
        return DPB_ERR_UNSUPPORTED;
    }
    dpb_stream *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return DPB_ERR_NO_MEMORY;
    opened->device = device;
    device->has_stream = true;
    *stream = opened;
    return DPB_OK;
}

static void sim_stream_close(dpb_stream *stream)
{
    if (!stream)
        return;
    stream->device->has_stream = false;
    free(stream);
}

static dpb_status sim_stream_sync(dpb_stream *stream)
{
    dpb_timeline_host_wait_compute(stream->device->options.timeline);
    return DPB_OK;
}

static dpb_status sim_mark_open(dpb_device *device, dpb_event_mark **mark)
{
    (void)device;
    *mark = calloc(1, sizeof(**mark));
    return *mark ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static void sim_mark_close(dpb_event_mark *mark)
{
    free(mark);
}

static dpb_status sim_mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    mark->at_ns = dpb_timeline_watched_ns(stream->device->options.timeline);
    return DPB_OK;
}

/* There is one stream: what it waits for has been. */
static dpb_status sim_stream_wait(dpb_stream *stream, dpb_event_mark *mark)
{
    (void)stream;
    (void)mark;
    return DPB_OK;
}

static dpb_status sim_mark_elapsed_ns(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns)
{
    *ns = (int64_t)(to->at_ns - from->at_ns + 0.5);
    return DPB_OK;
}

/* ---- operators ---- */

static bool sim_op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    return device->options.rates->flop_per_s[dtype] > 0 && dpb_sim_has_work(op);
}

static dpb_status sim_op_launch(dpb_device *device, enum dpb_op op, const void *args,
                                dpb_stream *stream)
{
    struct dpb_sim_work work;

    (void)stream;
    if (!dpb_sim_work_of(op, args, &work)) {
        dpb_error("device \"sim\": has no price for the operator %s", dpb_op_text(op));
        return DPB_ERR_UNSUPPORTED;
    }
    if (work.flops > 0 && !(device->options.rates->flop_per_s[work.dtype] > 0)) {
        dpb_error("device \"sim\": the machine has no rate for %s, which %s needs",
                  dpb_dtype_text(work.dtype), dpb_op_text(op));
        dpb_log_hint("take another --precision, or a machine profile that has it");
        return DPB_ERR_UNSUPPORTED;
    }
    compute(device, &work);
    return DPB_OK;
}

/* One launch, as fused optimizers are: the work adds up, the floor counts once. */
static dpb_status sim_op_launch_many(dpb_device *device, enum dpb_op op, const void *args,
                                     int count, dpb_stream *stream)
{
    struct dpb_sim_work sum = {.dtype = DPB_F32};

    if (count == 1)
        return sim_op_launch(device, op, args, stream);
    for (int i = 0; i < count; i++) {
        struct dpb_sim_work one;
        const void *at = (const char *)args + (size_t)i * dpb_op_args_bytes(op);

        if (!dpb_sim_work_of(op, at, &one))
            return sim_op_launch(device, op, at, stream);
        sum.dtype = one.dtype;
        sum.flops += one.flops;
        sum.bytes += one.bytes;
    }
    if (count > 0)
        compute(device, &sum);
    return DPB_OK;
}

const struct dpb_device_ops dpb_device_sim_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "sim",
        .summary = "computes nothing: the times of virtual ranks on a machine profile",
        .flags = DPB_DEVICE_VIRTUAL_TIME | DPB_DEVICE_ACCELERATOR,
        .probe = sim_probe,
        .open = sim_open,
        .close = sim_close,
        .describe = sim_describe,
        .alloc = sim_alloc,
        .free = sim_free,
        .copy = sim_copy,
        .host_alloc = sim_host_alloc,
        .host_free = sim_host_free,
        .stream_open = sim_stream_open,
        .stream_close = sim_stream_close,
        .stream_sync = sim_stream_sync,
        .mark_open = sim_mark_open,
        .mark_close = sim_mark_close,
        .mark_record = sim_mark_record,
        .stream_wait = sim_stream_wait,
        .mark_elapsed_ns = sim_mark_elapsed_ns,
        .op_supported = sim_op_supported,
        .op_launch = sim_op_launch,
        .op_launch_many = sim_op_launch_many,
};

dpb_timeline *dpb_device_sim_timeline(dpb_device *device)
{
    return dpb_device_get_ops(device) == &dpb_device_sim_ops ? device->options.timeline : NULL;
}

const struct dpb_sim_rates *dpb_device_sim_rates(dpb_device *device)
{
    return dpb_device_get_ops(device) == &dpb_device_sim_ops ? device->options.rates : NULL;
}
