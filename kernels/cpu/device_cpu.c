#include "dpb_device_cpu.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl_debug.h>

#include "cpu_device.h"
#include "dpb_clock.h"
#include "dpb_log.h"

static const struct dpb_choice conv_algorithm_choices[] = {
        {"direct", DPB_CONV_DIRECT, "sums of products in their order"},
        {"auto", DPB_CONV_AUTO,
         "also Winograd's, where oneDNN has it (to 3.1) and expects it to be faster: fewer "
         "products, larger errors"},
        {NULL, 0, NULL},
};

static const struct dpb_option option_rows[] = {
        {
                .name = "conv-algorithm",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_device_cpu_options, conv_algorithm),
                .default_text = "direct",
                .choices = conv_algorithm_choices,
                .category = "Training",
                .help = "how convolutions in fp32 are computed",
        },
};

static const struct dpb_option_table option_table = {
        .kind = "device",
        .owner = "cpu",
        .rows = option_rows,
        .row_count = sizeof(option_rows) / sizeof(option_rows[0]),
        .config_bytes = sizeof(struct dpb_device_cpu_options),
};

/* Everything is done when a call returns, so a stream carries no state. */
struct dpb_stream {
    dpb_device *device;
};

struct dpb_event_mark {
    int64_t time_ns;
    bool recorded;
};

static dpb_status no_memory(const char *what, size_t bytes)
{
    dpb_error("cpu: out of memory for %s of %zu bytes", what, bytes);
    dpb_log_hint("take a smaller batch or model, or fewer ranks on this machine");
    return DPB_ERR_NO_MEMORY;
}

static dpb_status probe(char *why, size_t why_bytes)
{
    const dnnl_version_t *version = dnnl_version();

    if (version->major != DNNL_VERSION_MAJOR) {
        snprintf(why, why_bytes, "not available here, because oneDNN is version %d, needs %d",
                 version->major, DNNL_VERSION_MAJOR);
        return DPB_ERR_UNAVAILABLE;
    }
    return DPB_OK;
}

/* ---- open and close ---- */

static void close_device(dpb_device *device)
{
    if (!device)
        return;
    dpb_cpu_kernels_free(device);
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
    dpb_cpu_binding_close(&device->binding);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* OpenMP has read its environment already; the variables are for processes that this one starts. A
 * second pool that spins on this rank's core would cost a factor (cpu.md: 6 to 40). */
static dpb_status settle_openmp(int threads)
{
    char text[16];
    int given;

    snprintf(text, sizeof(text), "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    setenv("OMP_PROC_BIND", "false", 1);
    unsetenv("OMP_PLACES");
    dpb_cpu_threads_set(threads);
    if (dpb_cpu_threads_bound_by_openmp()) {
        dpb_warn("cpu: OMP_PROC_BIND makes OpenMP bind threads to cores of its own choice");
        dpb_log_hint("unset OMP_PROC_BIND and OMP_PLACES; binding is this program's option");
    }
    given = dpb_cpu_threads_given(threads);
    if (given == threads)
        return DPB_OK;
    dpb_error("cpu: OpenMP gives %d of %d threads to a rank", given, threads);
    dpb_log_hint("unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or use --threads-per-rank %d",
                 given);
    return DPB_ERR_UNAVAILABLE;
}

static dpb_status engine_error(dnnl_status_t status)
{
    dpb_error("cpu: oneDNN cannot make its engine: %s", dnnl_status2str(status));
    return status == dnnl_out_of_memory ? DPB_ERR_NO_MEMORY : DPB_ERR_VENDOR;
}

static bool has_isa(unsigned isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & isa) == isa;
}

static dpb_status open_device(const struct dpb_device_config *config, dpb_device **opened)
{
    dnnl_status_t status;
    dpb_device *device;
    dpb_status st;

    if (config->threads < 1 || config->local_rank < 0 || config->local_rank >= config->local_size) {
        dpb_error("cpu: cannot open for local rank %d of %d with %d threads", config->local_rank,
                  config->local_size, config->threads);
        dpb_log_hint("give at least one thread, and a local rank below the local size");
        return DPB_ERR_USAGE;
    }
    device = calloc(1, sizeof(*device));
    if (!device)
        return no_memory("the device", sizeof(*device));
    device->base.ops = &dpb_device_cpu_ops;
    device->threads = config->threads;
    if (config->options)
        device->options = *(const struct dpb_device_cpu_options *)config->options;
    device->has_avx512 = has_isa(dnnl_cpu_isa_avx512_core);
    pthread_mutex_init(&device->lock, NULL);
    DPB_TRY_GOTO(st, settle_openmp(config->threads), err_device);
    DPB_TRY_GOTO(st, dpb_cpu_binding_open(&device->binding, config), err_device);

    status = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        st = engine_error(status);
        goto err_device;
    }
    *opened = device;
    return DPB_OK;

err_device:
    close_device(device);
    return st;
}

/* "avx512_core_bf16" of "cpu_isa_avx512_core_bf16" */
static const char *isa_text(void)
{
    static const char prefix[] = "cpu_isa_";
    const char *text = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());

    return strncmp(text, prefix, sizeof(prefix) - 1) == 0 ? text + sizeof(prefix) - 1 : text;
}

/* How oneDNN trains in bf16; NULL: not at all. */
static const char *bf16_text(void)
{
    if (has_isa(dnnl_cpu_isa_avx512_core_amx))
        return "native amx_bf16";
    if (has_isa(dnnl_cpu_isa_avx512_core_bf16))
        return "native avx512_bf16";
    return has_isa(dnnl_cpu_isa_avx512_core) ? "emulated by avx512" : NULL;
}

static dpb_json *describe(dpb_device *device)
{
    const struct dpb_cpu_binding *binding = &device->binding;
    const dnnl_version_t *version = dnnl_version();
    dpb_json *json = dpb_json_object();
    char text[64];

    dpb_json_set_string(json, "name", "cpu");
    dpb_json_set_string(json, "isa", isa_text());
    dpb_json_set_int(json, "threads", device->threads);
    dpb_json_set_string(json, "conv_algorithm",
                        conv_algorithm_choices[device->options.conv_algorithm].name);
    if (binding->count > 0) {
        dpb_json *cores = dpb_json_array();

        for (int i = 0; i < binding->count; i++)
            dpb_json_append(cores, dpb_json_int(binding->pu[i]));
        dpb_json_set(json, "cores", cores);
        dpb_json_set_int(json, "cores_usable", binding->cores);
        dpb_json_set_bool(json, "cores_shared", binding->shared);
    } else {
        dpb_json_set_absent(json, "cores", binding->reason);
    }
    if (binding->numa_node >= 0)
        dpb_json_set_int(json, "numa_node", binding->numa_node);
    else
        dpb_json_set_absent(json, "numa_node", "not known");
    if (bf16_text())
        dpb_json_set_string(json, "bf16", bf16_text());
    else
        dpb_json_set_absent(json, "bf16", "oneDNN needs AVX-512 for it");
    snprintf(text, sizeof(text), "%d.%d.%d", version->major, version->minor, version->patch);
    dpb_json_set_string(json, "onednn", text);
    return json;
}

struct dpb_device_cpu_counts dpb_device_cpu_get_counts(dpb_device *device)
{
    struct dpb_device_cpu_counts counts;

    pthread_mutex_lock(&device->lock);
    counts = device->counts;
    pthread_mutex_unlock(&device->lock);
    return counts;
}

/* ---- memory ---- */

static dpb_status allocate(dpb_device *device, size_t bytes, void **memory)
{
    size_t rounded = bytes > 0 ? (bytes + 63) & ~(size_t)63 : 64;
    void *made = NULL;

    (void)device;
    if (bytes <= PTRDIFF_MAX) /* the most an object can have; also keeps `rounded` from wrapping */
        made = aligned_alloc(64, rounded);
    if (!made)
        return no_memory("a buffer", bytes);
    dpb_cpu_pages_touch(made, rounded);
    *memory = made;
    return DPB_OK;
}

static void release(dpb_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static dpb_status copy(dpb_device *device, void *to, const void *from, size_t bytes,
                       dpb_stream *stream)
{
    (void)device;
    (void)stream;
    if (bytes > 0)
        memmove(to, from, bytes);
    return DPB_OK;
}

/* ---- streams and marks ---- */

static dpb_status stream_open(dpb_device *device, dpb_stream **stream)
{
    dpb_stream *made = calloc(1, sizeof(*made));

    if (!made)
        return no_memory("a stream", sizeof(*made));
    made->device = device;
    *stream = made;
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
    dpb_event_mark *made = calloc(1, sizeof(*made));

    (void)device;
    if (!made)
        return no_memory("a mark", sizeof(*made));
    *mark = made;
    return DPB_OK;
}

static void mark_close(dpb_event_mark *mark)
{
    free(mark);
}

static dpb_status mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    (void)stream;
    mark->time_ns = dpb_clock_now_ns();
    mark->recorded = true;
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
    if (!from->recorded || !to->recorded) {
        dpb_error("cpu: no time between marks: the %s has not been recorded",
                  from->recorded ? "second" : "first");
        dpb_log_hint("record both marks on a stream before asking for the time between them");
        return DPB_ERR_USAGE;
    }
    *ns = to->time_ns - from->time_ns;
    return DPB_OK;
}

/* ---- operators ---- */

/* Where an operator takes bf16. */
enum bf16_support {
    NO_BF16,
    BF16,       /* everywhere: loops of ours */
    BF16_ONEDNN /* where oneDNN does: with AVX-512 and more */
};

struct operator
{
    dpb_status (*run)(dpb_device * device, enum dpb_op op, const void *args);
    bool locked; /* uses the device's kernels and buffers */
    enum bf16_support bf16;
};

static const struct operator operators[] = {
        [DPB_OP_MATMUL] = {dpb_cpu_matmul, true, BF16_ONEDNN},
        [DPB_OP_CONV_FWD] = {dpb_cpu_conv, true, BF16_ONEDNN},
        [DPB_OP_CONV_BWD_DATA] = {dpb_cpu_conv, true, BF16_ONEDNN},
        [DPB_OP_CONV_BWD_WEIGHTS] = {dpb_cpu_conv, true, BF16_ONEDNN},
        [DPB_OP_POOL_MAX_FWD] = {dpb_cpu_pool, false, BF16},
        [DPB_OP_POOL_MAX_BWD] = {dpb_cpu_pool, false, BF16},
        [DPB_OP_POOL_AVG_FWD] = {dpb_cpu_pool, false, BF16},
        [DPB_OP_POOL_AVG_BWD] = {dpb_cpu_pool, false, BF16},
        [DPB_OP_RELU_FWD] = {dpb_cpu_relu, false, BF16},
        [DPB_OP_RELU_BWD] = {dpb_cpu_relu, false, BF16},
        [DPB_OP_BIAS_FWD] = {dpb_cpu_bias, false, BF16},
        [DPB_OP_BIAS_BWD] = {dpb_cpu_bias, false, BF16},
        [DPB_OP_BATCHNORM_FWD] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_BATCHNORM_BWD] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_BATCHNORM_STATS] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_BATCHNORM_APPLY] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_BATCHNORM_BWD_SUMS] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_BATCHNORM_BWD_APPLY] = {dpb_cpu_batchnorm, false, BF16},
        [DPB_OP_SOFTMAX_XENT_FWD] = {dpb_cpu_softmax_xent, false, NO_BF16},
        [DPB_OP_SOFTMAX_XENT_BWD] = {dpb_cpu_softmax_xent, false, NO_BF16},
        [DPB_OP_INTERACTION_FWD] = {dpb_cpu_interaction, false, NO_BF16},
        [DPB_OP_INTERACTION_BWD] = {dpb_cpu_interaction, false, NO_BF16},
        [DPB_OP_SIGMOID_BCE_FWD] = {dpb_cpu_sigmoid_bce, false, NO_BF16},
        [DPB_OP_SIGMOID_BCE_BWD] = {dpb_cpu_sigmoid_bce, false, NO_BF16},
        [DPB_OP_SGD_MOMENTUM] = {dpb_cpu_sgd, false, NO_BF16},
        [DPB_OP_ADAMW] = {dpb_cpu_adamw, false, NO_BF16},
        [DPB_OP_LAMB] = {dpb_cpu_lamb, false, NO_BF16},
        [DPB_OP_LARS] = {dpb_cpu_lars, false, NO_BF16},
        [DPB_OP_ADAGRAD] = {dpb_cpu_adagrad, false, NO_BF16},
        [DPB_OP_ROWWISE_ADAGRAD] = {dpb_cpu_adagrad, false, NO_BF16},
        [DPB_OP_SCALE] = {dpb_cpu_scale, false, NO_BF16},
        [DPB_OP_FINITE] = {dpb_cpu_finite, false, NO_BF16},
        [DPB_OP_CAST] = {dpb_cpu_cast, false, BF16},
        [DPB_OP_ADD] = {dpb_cpu_add, false, BF16},
        [DPB_OP_ORTHOGONALIZE] = {dpb_cpu_orthogonalize, false, NO_BF16},
        [DPB_OP_GELU_FWD] = {dpb_cpu_activation, true, BF16_ONEDNN},
        [DPB_OP_GELU_BWD] = {dpb_cpu_activation, true, BF16_ONEDNN},
        [DPB_OP_TANH_FWD] = {dpb_cpu_activation, true, BF16_ONEDNN},
        [DPB_OP_TANH_BWD] = {dpb_cpu_activation, true, BF16_ONEDNN},
        [DPB_OP_DROPOUT_FWD] = {dpb_cpu_dropout, false, BF16},
        [DPB_OP_DROPOUT_BWD] = {dpb_cpu_dropout, false, BF16},
        [DPB_OP_LAYERNORM_FWD] = {dpb_cpu_layernorm, false, BF16},
        [DPB_OP_LAYERNORM_BWD] = {dpb_cpu_layernorm, false, BF16},
        [DPB_OP_EMBEDDING_FWD] = {dpb_cpu_embedding, false, BF16},
        [DPB_OP_EMBEDDING_BWD] = {dpb_cpu_embedding, false, BF16},
        [DPB_OP_ATTENTION_FWD] = {dpb_cpu_attention, true, BF16_ONEDNN},
        [DPB_OP_ATTENTION_BWD] = {dpb_cpu_attention, true, BF16_ONEDNN},
};

_Static_assert(sizeof(operators) / sizeof(operators[0]) == DPB_OP_COUNT, "an operator is missing");

static bool op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    if ((unsigned)op >= DPB_OP_COUNT)
        return false;
    return dtype == DPB_F32 || (dtype == DPB_F16 && op == DPB_OP_CAST) ||
           (dtype == DPB_BF16 &&
            (operators[op].bf16 == BF16 || (operators[op].bf16 == BF16_ONEDNN && bf16_text())));
}

static dpb_status unsupported(enum dpb_op op, enum dpb_dtype dtype)
{
    dpb_error("cpu: operator \"%s\" does not do %s", dpb_op_text(op), dpb_dtype_text(dtype));
    dpb_log_hint(dtype == DPB_BF16 && operators[op].bf16 == BF16_ONEDNN
                         ? "this CPU has no AVX-512, which oneDNN needs for bf16: compute in fp32"
                         : "compute in fp32");
    return DPB_ERR_UNSUPPORTED;
}

static dpb_status op_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    enum dpb_dtype dtype;
    dpb_status st;

    (void)stream;
    DPB_TRY(dpb_op_args_check(op, args));
    dtype = dpb_op_args_dtype(op, args);
    if (!op_supported(device, op, dtype))
        return unsupported(op, dtype);
    dpb_cpu_threads_set(device->threads);
    if (!operators[op].locked)
        return operators[op].run(device, op, args);
    pthread_mutex_lock(&device->lock);
    st = operators[op].run(device, op, args);
    pthread_mutex_unlock(&device->lock);
    return st;
}

const struct dpb_device_ops dpb_device_cpu_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "cpu",
        .summary = "this machine's cores, on oneDNN",
        .options = &option_table,
        .probe = probe,
        .open = open_device,
        .close = close_device,
        .describe = describe,
        .alloc = allocate,
        .free = release,
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
