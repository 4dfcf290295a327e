#include "capture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dpb_dataset.h"
#include "dpb_log.h"
#include "dpb_recorder.h"

#define BLOCKS_MAX 4096

struct block {
    void *memory;
    size_t bytes;
};

struct capture_device {
    struct dpb_device_base base;
    struct dpb_capture *capture;
    struct block block[BLOCKS_MAX];
    int block_count;
};

static const size_t args_bytes[] = {
#define BYTES(name, text, args) [name] = sizeof(args),
        DPB_OP_MAP(BYTES)
#undef BYTES
};

#define FITS(name, text, args)                                                                     \
    _Static_assert(sizeof(args) <= DPB_CAPTURE_ARGS_BYTES, "more room for arguments is needed");
DPB_OP_MAP(FITS)
#undef FITS

size_t dpb_capture_args_bytes(enum dpb_op op)
{
    return args_bytes[op];
}

/* ---- a device that only writes down ---- */

static struct capture_device *self_of(dpb_device *device)
{
    return (struct capture_device *)device;
}

/* Addresses without memory behind them until somebody writes: the arrays of a network are large,
 * and nearly all of them are never touched here. */
static dpb_status take(struct capture_device *self, size_t bytes, void **memory)
{
    void *made;

    if (self->block_count == BLOCKS_MAX)
        return DPB_ERR_NO_MEMORY;
    made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (made == MAP_FAILED)
        return DPB_ERR_NO_MEMORY;
    self->block[self->block_count++] = (struct block){.memory = made, .bytes = bytes};
    *memory = made;
    return DPB_OK;
}

static void release_all(struct capture_device *self)
{
    for (int i = 0; i < self->block_count; i++)
        munmap(self->block[i].memory, self->block[i].bytes);
}

static dpb_status alloc_memory(dpb_device *device, size_t bytes, void **memory)
{
    return take(self_of(device), bytes, memory);
}

/* All memory is given back at the end: an address that came twice would look like one array. */
static void free_memory(dpb_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

static dpb_status copy(dpb_device *device, void *to, const void *from, size_t bytes,
                       dpb_stream *stream)
{
    (void)device;
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return DPB_OK;
}

static dpb_status stream_sync(dpb_stream *stream)
{
    (void)stream;
    return DPB_OK;
}

static bool op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    (void)op;
    return dtype == DPB_F32;
}

static dpb_status op_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    struct dpb_capture *capture = self_of(device)->capture;

    (void)stream;
    if (capture->count == capture->room) {
        int room = capture->room > 0 ? 2 * capture->room : 256;
        struct dpb_captured *launch = realloc(capture->launch, (size_t)room * sizeof(*launch));

        if (!launch)
            return DPB_ERR_NO_MEMORY;
        capture->launch = launch;
        capture->room = room;
    }
    capture->launch[capture->count].op = op;
    memcpy(capture->launch[capture->count++].args.bytes, args, args_bytes[op]);
    return DPB_OK;
}

/* Only what a network calls. */
static const struct dpb_device_ops device_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "capture",
        .summary = "writes down what is launched",
        .alloc = alloc_memory,
        .free = free_memory,
        .copy = copy,
        .stream_sync = stream_sync,
        .op_supported = op_supported,
        .op_launch = op_launch,
};

/* ---- one rank alone ---- */

static dpb_status alone_alloc(void *ctx, size_t bytes, void **buffer)
{
    return take(ctx, bytes, buffer);
}

static dpb_status alone_start(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype,
                              void *buffer, int64_t count, const char *name, int *exchange)
{
    (void)ctx;
    (void)kind;
    (void)dtype;
    (void)buffer;
    (void)count;
    (void)name;
    *exchange = 0;
    return DPB_OK;
}

static dpb_status alone_wait(void *ctx, int exchange)
{
    (void)ctx;
    (void)exchange;
    return DPB_OK;
}

/* ---- the step ---- */

static dpb_status gradient_ready(void *ctx, int param)
{
    (void)ctx;
    (void)param;
    return DPB_OK;
}

static dpb_status fetch_batch(const struct dpb_model *model, int64_t samples,
                              const struct dpb_batch_arrays *arrays, const int64_t *ids)
{
    struct dpb_dataset_config config = {.kind = "synthetic", .model = model, .seed = 1};
    dpb_dataset *dataset;
    dpb_status st;

    DPB_TRY(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset));
    st = dpb_dataset_fetch(dataset, ids, samples, arrays);
    dpb_dataset_close(dataset);
    return st;
}

static dpb_status bind_parameters(struct capture_device *self, const struct dpb_model *model,
                                  const struct dpb_workload_ops *ops, dpb_workload *workload)
{
    size_t count = (size_t)model->param_count;
    float **param = calloc(2 * count, sizeof(*param));
    dpb_status st = param ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t i = 0; st == DPB_OK && i < 2 * count; i++)
        st = take(self, (size_t)model->params[i % count].numel * sizeof(float), (void **)&param[i]);
    if (st == DPB_OK)
        ops->bind(workload, param, param + count);
    free(param);
    return st;
}

static dpb_status step_on(struct capture_device *self, const struct dpb_workload_ops *ops,
                          const struct dpb_batch *batch)
{
    struct dpb_launcher launcher = {.device = (dpb_device *)self};
    const struct dpb_rank_services alone = {
            .ctx = self, .size = 1, .alloc = alone_alloc, .start = alone_start, .wait = alone_wait};
    const struct dpb_workload_config config = {.launcher = &launcher,
                                               .batch_max = batch->samples,
                                               .global_batch = batch->samples,
                                               .ranks = &alone,
                                               .seed = 1};
    const struct dpb_recorder_config recorder = {.events_per_lane = 1};
    struct dpb_forward_result result;
    dpb_workload *workload;
    dpb_status st;

    DPB_TRY(dpb_recorder_none_ops.open(&recorder, &launcher.recorder));
    DPB_TRY_GOTO(st, ops->open(&config, &workload), err_workload);
    DPB_TRY_GOTO(st, bind_parameters(self, ops->model(NULL), ops, workload), err_step);
    DPB_TRY_GOTO(st, dpb_forward_and_read(ops, &launcher, workload, batch, true, &result),
                 err_step);
    st = ops->backward(workload, batch, 1.0f, gradient_ready, NULL);
err_step:
    ops->close(workload);
err_workload:
    dpb_recorder_none_ops.close(launcher.recorder);
    return st;
}

dpb_status dpb_capture_step(const struct dpb_workload_ops *workload, int64_t samples,
                            struct dpb_capture *capture)
{
    const struct dpb_model *model = workload->model(NULL);
    struct capture_device *self = calloc(1, sizeof(*self));
    int64_t *ids = calloc((size_t)samples, sizeof(*ids));
    struct dpb_batch_arrays arrays = {0};
    struct dpb_batch batch;
    dpb_status st = DPB_ERR_NO_MEMORY;

    *capture = (struct dpb_capture){0};
    if (!self || !ids)
        goto err_memory;
    self->base.ops = &device_ops;
    self->capture = capture;
    DPB_TRY_GOTO(st, dpb_batch_arrays_open(model, samples, &arrays), err_memory);
    for (int64_t i = 0; i < samples; i++)
        ids[i] = i;
    DPB_TRY_GOTO(st, fetch_batch(model, samples, &arrays, ids), err_batch);
    batch = dpb_batch_of_arrays(&arrays, ids, samples);
    batch.step = 1;
    st = step_on(self, workload, &batch);
    release_all(self);
err_batch:
    dpb_batch_arrays_release(&arrays);
err_memory:
    free(ids);
    free(self);
    if (st != DPB_OK) {
        dpb_error("workload \"%s\": its step cannot be written down", workload->name);
        dpb_capture_release(capture);
    }
    return st;
}

void dpb_capture_release(struct dpb_capture *capture)
{
    free(capture->launch);
    *capture = (struct dpb_capture){0};
}
