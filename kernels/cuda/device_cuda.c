/* The device "cuda": its table, opening and closing, and what it says of itself. */
#include "cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "dpb_log.h"
#include "operators.h"

enum {
    LEAST_MAJOR = 8, /* compute capability that kernels are compiled for from */
    HOPPER_MAJOR = 9
};

static dpb_status probe(char *why, size_t why_bytes)
{
    int count;

    return dpb_cuda_find_devices(&count, why, why_bytes);
}

dpb_status dpb_cuda_enter(dpb_device *device)
{
    return dpb_cuda_check(cudaSetDevice(device->ordinal), "cudaSetDevice", "take the device");
}

void dpb_cuda_count(dpb_device *device, atomic_llong *counter)
{
    atomic_fetch_add(counter, 1);
    if (atomic_load(&device->sealed))
        atomic_fetch_add(&device->while_sealed, 1);
}

/* ---- open and close ---- */

static void close_device(dpb_device *device)
{
    if (!device)
        return;
    /* What was launched may still use what is given back now. Whatever fails here, the rest goes
     * back as well. */
    dpb_cuda_enter(device);
    dpb_cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "close the device");
    dpb_cuda_convs_release(device);
    dpb_cuda_gemms_release(device);
    if (device->lt_handle)
        device->lt.cublasLtDestroy(device->lt_handle);
    dpb_cuda_stream_close(device->main);
    for (int i = 0; i < 2; i++) {
        if (device->timing[i])
            dpb_cuda_check(cudaEventDestroy(device->timing[i]), "cudaEventDestroy",
                           "close the device");
    }
    dpb_cuda_host_free(device, device->host_faults);
    dpb_cuda_memory_release(&device->memory);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

dpb_status dpb_cuda_choose_device(const struct dpb_device_config *config,
                                  const struct dpb_device_cuda_options *options, int *visible,
                                  int *ordinal)
{
    struct dpb_cuda_choice choice = {
            .local_rank = config->local_rank,
            .local_size = config->local_size,
            .asked = options->device,
            .one_each = dpb_cuda_launcher_shows_one_each(),
    };
    char why[512];

    if (config->threads < 1 || config->local_rank < 0 || config->local_rank >= config->local_size) {
        dpb_error("cuda: cannot open for local rank %d of %d with %d threads", config->local_rank,
                  config->local_size, config->threads);
        dpb_log_hint("give at least one thread, and a local rank below the local size");
        return DPB_ERR_USAGE;
    }
    if (dpb_cuda_find_devices(visible, why, sizeof(why)) < 0) {
        dpb_error("cuda: %s", why);
        return DPB_ERR_UNAVAILABLE;
    }
    choice.visible = *visible;
    return dpb_cuda_choose(&choice, ordinal);
}

/* What the device cannot be, before anything is opened on it. */
static dpb_status check_properties(const dpb_device *device, int local_size)
{
    const struct cudaDeviceProp *properties = &device->properties;

    if (properties->major < LEAST_MAJOR) {
        dpb_error("cuda: device %d \"%s\" has compute capability %d.%d, needs %d.0",
                  device->ordinal, properties->name, properties->major, properties->minor,
                  LEAST_MAJOR);
        dpb_log_hint("use an A100 or newer");
        return DPB_ERR_UNSUPPORTED;
    }
    if (strstr(properties->name, " MIG ") && local_size > 1) {
        dpb_error("cuda: device %d \"%s\" is a MIG instance, and there are %d ranks",
                  device->ordinal, properties->name, local_size);
        dpb_log_hint("a process sees one instance only, and NCCL does not join them: use one rank, "
                     "or switch MIG off (nvidia-smi -mig 0)");
        return DPB_ERR_UNSUPPORTED;
    }
    return DPB_OK;
}

/* The first call that opens something on the device: another process may have it. */
static dpb_status take_device(dpb_device *device, int local_size)
{
    char what[320];

    snprintf(what, sizeof(what), "look at device %d", device->ordinal);
    DPB_CUDA_TRY(what, cudaGetDeviceProperties, (&device->properties, device->ordinal));
    DPB_TRY(check_properties(device, local_size));
    snprintf(what, sizeof(what), "take device %d \"%s\"", device->ordinal, device->properties.name);
    DPB_CUDA_TRY(what, cudaSetDevice, (device->ordinal));
    return DPB_OK;
}

static dpb_status open_cublaslt(dpb_device *device)
{
    char why[512];

    if (dpb_cublaslt_open(&device->lt, why, sizeof(why)) < 0) {
        dpb_error("cuda: no matrix products: %s", why);
        return DPB_ERR_UNAVAILABLE;
    }
    /* cuBLAS's own default is 32 MiB; twice that admits algorithms that split sums further. */
    device->gemm_workspace_bytes = (size_t)(device->properties.major >= HOPPER_MAJOR ? 64 : 32)
                                   << 20;
    return dpb_cublaslt_check(&device->lt, device->lt.cublasLtCreate(&device->lt_handle),
                              "cublasLtCreate", "open cuBLASLt");
}

static dpb_status open_parts(dpb_device *device)
{
    void *memory;

    DPB_TRY(dpb_cuda_stream_open(device, &device->main));
    for (int i = 0; i < 2; i++)
        DPB_CUDA_TRY("open the device", cudaEventCreate, (&device->timing[i]));
    DPB_TRY(dpb_cuda_alloc(device, sizeof(*device->faults), &memory));
    device->faults = memory;
    DPB_TRY(dpb_cuda_host_alloc(device, sizeof(*device->host_faults), &memory));
    device->host_faults = memory;
    return open_cublaslt(device);
}

static dpb_status open_device(const struct dpb_device_config *config, dpb_device **opened)
{
    struct dpb_device_cuda_options options = {.device = DPB_AUTO};
    int visible, ordinal;
    dpb_device *device;
    dpb_status st;

    if (config->options)
        options = *(const struct dpb_device_cuda_options *)config->options;
    DPB_TRY(dpb_cuda_choose_device(config, &options, &visible, &ordinal));
    device = calloc(1, sizeof(*device));
    if (!device) {
        dpb_error("cuda: out of host memory for the device");
        return DPB_ERR_NO_MEMORY;
    }
    device->base.ops = &dpb_device_cuda_ops;
    device->options = options;
    device->ordinal = ordinal;
    device->visible = visible;
    device->local_rank = config->local_rank;
    DPB_TRY_GOTO(st, take_device(device, config->local_size), err_untaken);
    pthread_mutex_init(&device->lock, NULL);
    dpb_cuda_memory_init(&device->memory);
    DPB_TRY_GOTO(st, open_parts(device), err_device);
    *opened = device;
    return DPB_OK;

err_device:
    close_device(device);
    return st;
err_untaken:
    free(device);
    return st;
}

/* ---- describe ---- */

struct dpb_device_cuda_counts dpb_device_cuda_get_counts(dpb_device *device)
{
    struct dpb_device_cuda_counts counts = {
            .allocations = atomic_load(&device->memory.allocations),
            .host_allocations = atomic_load(&device->memory.host_allocations),
            .plans = atomic_load(&device->plans),
            .graphs_made = atomic_load(&device->graphs_made),
            .graphs_updated = atomic_load(&device->graphs_updated),
            .while_sealed = atomic_load(&device->while_sealed),
    };

    pthread_mutex_lock(&device->memory.lock);
    counts.allocated_bytes = device->memory.bytes;
    pthread_mutex_unlock(&device->memory.lock);
    return counts;
}

static void set_version(dpb_json *json, const char *key, int version)
{
    char text[32];

    snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
    dpb_json_set_string(json, key, text);
}

/* "GPU-8a3f...", as nvidia-smi writes it. */
static void set_uuid(dpb_json *json, const cudaUUID_t *uuid)
{
    char text[64] = "GPU";
    size_t used = 3;

    for (int i = 0; i < 16; i++) {
        bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%02x", dash ? "-" : "",
                                 (unsigned char)uuid->bytes[i]);
    }
    dpb_json_set_string(json, "uuid", text);
}

static void set_attribute(dpb_json *json, const char *key, const dpb_device *device,
                          enum cudaDeviceAttr attribute)
{
    int value;

    if (cudaDeviceGetAttribute(&value, attribute, device->ordinal) == cudaSuccess) {
        dpb_json_set_int(json, key, value);
    } else {
        cudaGetLastError();
        dpb_json_set_absent(json, key, "CUDA does not tell");
    }
}

static void describe_hardware(dpb_json *json, const dpb_device *device)
{
    const struct cudaDeviceProp *properties = &device->properties;
    char text[320], bus_id[32];

    dpb_json_set_string(json, "name", "cuda");
    snprintf(text, sizeof(text), "%s, sm_%d%d", properties->name, properties->major,
             properties->minor);
    dpb_json_set_string(json, "isa", text);
    dpb_json_set_string(json, "model", properties->name);
    snprintf(text, sizeof(text), "%d.%d", properties->major, properties->minor);
    dpb_json_set_string(json, "compute_capability", text);
    dpb_json_set_int(json, "ordinal", device->ordinal);
    dpb_json_set_int(json, "visible", device->visible);
    set_uuid(json, &properties->uuid);
    if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device->ordinal) == cudaSuccess) {
        dpb_json_set_string(json, "pci_bus_id", bus_id);
    } else {
        cudaGetLastError();
        dpb_json_set_absent(json, "pci_bus_id", "CUDA does not tell");
    }
    dpb_json_set_int(json, "multiprocessors", properties->multiProcessorCount);
    dpb_json_set_int(json, "memory_bytes", (int64_t)properties->totalGlobalMem);
    dpb_json_set_int(json, "memory_bus_bits", properties->memoryBusWidth);
    dpb_json_set_bool(json, "ecc", properties->ECCEnabled != 0);
    set_attribute(json, "clock_khz", device, cudaDevAttrClockRate);
    set_attribute(json, "memory_clock_khz", device, cudaDevAttrMemoryClockRate);
}

static void describe_cudnn(dpb_json *json)
{
    struct dpb_cudnn cudnn;
    char why[512], text[32];

    if (dpb_cudnn_open(&cudnn, why, sizeof(why)) < 0) {
        dpb_json_set_absent(json, "cudnn", why);
        return;
    }
    dpb_cudnn_version_text(cudnn.cudnnGetVersion(), text, sizeof(text));
    dpb_json_set_string(json, "cudnn", text);
}

static void describe_software(dpb_json *json, dpb_device *device)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    int driver = 0, runtime = 0;
    char text[32];

    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    set_version(json, "driver_cuda", driver);
    set_version(json, "runtime_cuda", runtime);
    dpb_cublaslt_version_text(device->lt.cublasLtGetVersion(), text, sizeof(text));
    dpb_json_set_string(json, "cublaslt", text);
    describe_cudnn(json);
    dpb_json_set_string(json, "module_loading", loading ? loading : "");
    dpb_json_set_bool(json, "tf32", device->options.tf32);
    dpb_json_set_string(json, "algorithm",
                        device->options.algorithm == DPB_CUDA_ALGORITHM_FIRST ? "first"
                                                                              : "measured");
}

static dpb_json *describe(dpb_device *device)
{
    struct dpb_device_cuda_counts counts = dpb_device_cuda_get_counts(device);
    dpb_json *json = dpb_json_object();

    if (dpb_cuda_enter(device) < 0) {
        dpb_json_set_string(json, "name", "cuda");
        return json;
    }
    describe_hardware(json, device);
    describe_software(json, device);
    dpb_json_set_int(json, "allocations", counts.allocations);
    dpb_json_set_int(json, "allocated_bytes", counts.allocated_bytes);
    dpb_json_set_int(json, "host_allocations", counts.host_allocations);
    dpb_json_set_int(json, "plans", counts.plans);
    dpb_json_set_int(json, "allocations_in_steps", counts.while_sealed);
    dpb_json_set_int(json, "graphs_made", counts.graphs_made);
    dpb_json_set_int(json, "graphs_updated", counts.graphs_updated);
    return json;
}

/* Before the caller's clock starts: giving back takes time. */
static void seal(dpb_device *device, bool sealed)
{
    if (sealed)
        dpb_cuda_memory_trim(device);
    atomic_store(&device->sealed, sealed);
}

const struct dpb_device_ops dpb_device_cuda_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "cuda",
        .summary = "an NVIDIA GPU, with cuBLASLt and cuDNN",
        .flags = DPB_DEVICE_ACCELERATOR,
        .options = &dpb_device_cuda_option_table,
        .probe = probe,
        .open = open_device,
        .close = close_device,
        .describe = describe,
        .alloc = dpb_cuda_alloc,
        .free = dpb_cuda_free,
        .copy = dpb_cuda_copy,
        .host_alloc = dpb_cuda_host_alloc,
        .host_free = dpb_cuda_host_free,
        .memory_bytes = dpb_cuda_memory_bytes,
        .room = dpb_cuda_room,
        .stream_open = dpb_cuda_stream_open,
        .stream_close = dpb_cuda_stream_close,
        .stream_native = dpb_cuda_stream_native,
        .stream_sync = dpb_cuda_stream_sync,
        .mark_open = dpb_cuda_mark_open,
        .mark_close = dpb_cuda_mark_close,
        .mark_record = dpb_cuda_mark_record,
        .stream_wait = dpb_cuda_stream_wait,
        .mark_elapsed_ns = dpb_cuda_mark_elapsed_ns,
        .op_supported = dpb_cuda_op_supported,
        .op_launch = dpb_cuda_op_launch,
        .op_launch_many = dpb_cuda_op_launch_many,
        .capture_begin = dpb_cuda_capture_begin,
        .capture_end = dpb_cuda_capture_end,
        .seal = seal,
};
