/* The device "cuda" apart from its operators' results, on the faked runtime and libraries: opening,
 * memory, plans, graphs, what kernels find wrong, and every call failing once. */
#include "dpb_device_cuda.h"

#include <stdbool.h>

#include "cuda_status.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "dpb_test.h"
#include "fake_cudnn.h"
#include "fake_kernels.h"
#include "nvml_table.h"

static const struct dpb_device_ops *const ops = &dpb_device_cuda_ops;

static char first_error[1024];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", line);
}

static void catch_errors(void)
{
    first_error[0] = '\0';
    dpb_log_set_sink(keep_error, NULL);
}

/* The errors since catch_errors() begin with one that has this in it. */
static void expect_error(const char *part)
{
    dpb_log_set_sink(NULL, NULL);
    if (!strstr(first_error, part))
        fail_msg("\"%s\" does not have \"%s\"", first_error, part);
}

/* In the test itself: cmocka has handlers of its own for signals outside of it. */
static void begin(void)
{
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .devices = 2});
}

static int end(void **state)
{
    char text[256];

    (void)state;
    fake_cuda_end();
    if (fake_cuda_leaks(text, sizeof(text)) == 0)
        return 0;
    print_error("not given back: %s\n", text);
    return -1;
}

static dpb_device *open_device(void)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device = NULL;

    assert_int_equal(ops->open(&config, &device), DPB_OK);
    assert_non_null(device);
    return device;
}

static dpb_device *begin_and_open(void)
{
    begin();
    return open_device();
}

/* ---- opening ---- */

static void test_table(void **state)
{
    char why[512] = "";

    (void)state;
    begin();
    assert_int_equal(dpb_device_ops_check(ops), DPB_OK);
    assert_string_equal(ops->name, "cuda");
    assert_int_equal(ops->flags, DPB_DEVICE_ACCELERATOR);
    assert_int_equal(ops->probe(why, sizeof(why)), DPB_OK);
    assert_string_equal(why, "");
}

static void test_no_driver(void **state)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    char why[512] = "";
    dpb_device *device = NULL;

    (void)state;
    begin();
    dpb_cuda_driver_use("libcuda-that-nobody-has.so");
    assert_int_equal(ops->probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "there is no NVIDIA driver"));
    catch_errors();
    assert_int_equal(ops->open(&config, &device), DPB_ERR_UNAVAILABLE);
    expect_error("there is no NVIDIA driver");
    assert_null(device);
    assert_int_equal(fake_cuda_calls(), 0); /* nothing heavy before the driver is found */
}

static void test_old_driver(void **state)
{
    char why[512] = "";

    (void)state;
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .driver_version = 12040});
    assert_int_equal(ops->probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "the NVIDIA driver is for CUDA 12.4, and this dpbench needs 13."));
}

static void test_open_refuses(void **state)
{
    static const struct {
        struct dpb_device_config config;
        int64_t asked;
        const char *error;
    } cases[] = {
            {{.local_size = 1, .threads = 0}, DPB_AUTO, "cannot open for local rank 0 of 1"},
            {{.local_size = 1, .threads = 1, .local_rank = 1}, DPB_AUTO, "cannot open"},
            {{.local_size = 3, .threads = 1}, DPB_AUTO, "3 ranks on this machine, and 2 visible"},
            {{.local_size = 1, .threads = 1}, 2, "no device 2"},
    };

    (void)state;
    begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct dpb_device_cuda_options options = {.device = cases[i].asked};
        struct dpb_device_config config = cases[i].config;
        dpb_device *device = NULL;

        config.options = &options;
        catch_errors();
        assert_int_equal(ops->open(&config, &device), DPB_ERR_USAGE);
        expect_error(cases[i].error);
        assert_null(device);
    }
}

static const char *text_of(const dpb_json *json, const char *key)
{
    return dpb_json_as_string(dpb_json_get(json, key), "");
}

static void test_describe(void **state)
{
    const struct dpb_device_cuda_options options = {.device = 1, .tf32 = true};
    const struct dpb_device_config config = {.local_size = 1, .threads = 1, .options = &options};
    dpb_device *device;
    dpb_json *json;

    (void)state;
    begin();
    assert_int_equal(ops->open(&config, &device), DPB_OK);
    json = ops->describe(device);
    assert_string_equal(text_of(json, "name"), "cuda");
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "ordinal"), -1), 1);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "visible"), -1), 2);
    assert_int_equal(strlen(text_of(json, "uuid")), 40);
    assert_int_equal(strncmp(text_of(json, "uuid"), "GPU-", 4), 0);
    assert_non_null(strstr(text_of(json, "isa"), "sm_"));
    assert_int_equal(strncmp(text_of(json, "cublaslt"), "13.", 3), 0);
    assert_int_equal(strncmp(text_of(json, "cudnn"), "9.", 2), 0);
    assert_string_equal(text_of(json, "algorithm"), "measured");
    assert_string_equal(getenv("CUDA_MODULE_LOADING"), "EAGER");
    assert_true(dpb_json_as_bool(dpb_json_get(json, "tf32"), false));
    assert_true(dpb_json_as_int(dpb_json_get(json, "memory_bytes"), 0) > 0);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "allocations_in_steps"), -1), 0);
    assert_true(dpb_json_ok(json));
    dpb_json_free(json);
    ops->close(device);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    static const size_t sizes[] = {0, 1, 255, 256, 257, 100003};
    static unsigned char host[100003];
    dpb_device *device = begin_and_open();
    void *memory;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(ops->alloc(device, sizes[i], &memory), DPB_OK);
        assert_int_equal((uintptr_t)memory % 256, 0);
        memset(host, 1, sizeof(host));
        assert_int_equal(ops->copy(device, host, memory, sizes[i], NULL), DPB_OK);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(host[j], 0);
        ops->free(device, memory);
    }
    ops->free(device, NULL);
    ops->close(device);
}

/* What is freed is given out again, zeroed, without asking the driver. */
static void test_blocks_are_kept(void **state)
{
    unsigned char ones[1000], host[1000];
    dpb_device *device = begin_and_open();
    struct dpb_device_cuda_counts before, after;
    int64_t available, more, total;
    void *first, *second;

    (void)state;
    memset(ones, 1, sizeof(ones));
    assert_int_equal(ops->alloc(device, sizeof(ones), &first), DPB_OK);
    assert_int_equal(ops->copy(device, first, ones, sizeof(ones), NULL), DPB_OK);
    assert_int_equal(ops->memory_bytes(device, &available, &total), DPB_OK);
    ops->free(device, first);
    assert_int_equal(ops->memory_bytes(device, &more, &total), DPB_OK);
    assert_int_equal(more - available, 1024);
    assert_true(more <= total);
    before = dpb_device_cuda_get_counts(device);
    assert_int_equal(ops->alloc(device, 990, &second), DPB_OK);
    after = dpb_device_cuda_get_counts(device);
    assert_ptr_equal(second, first);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(ops->copy(device, host, second, 990, NULL), DPB_OK);
    for (int i = 0; i < 990; i++)
        assert_int_equal(host[i], 0);
    ops->free(device, second);
    /* An eighth of a block is the most that is wasted. */
    assert_int_equal(ops->alloc(device, 512, &second), DPB_OK);
    assert_ptr_not_equal(second, first);
    ops->free(device, second);
    ops->close(device);
}

/* ---- memory of a device that is not open ---- */

/* NVML tells of two GPUs, at the places where the faked runtime has them; handles are from 1. */
static unsigned long long free_of[2];

static int start_nvml(void)
{
    return NVML_SUCCESS;
}

static const char *nvml_error(int result)
{
    (void)result;
    return "an error";
}

static int by_bus_id(const char *bus_id, nvmlDevice_t *device)
{
    unsigned bus;

    if (sscanf(bus_id, "00000000:%02x:00.0", &bus) != 1 || bus < 1 || bus > 2)
        return NVML_ERROR_NOT_FOUND;
    *device = (nvmlDevice_t)(uintptr_t)bus;
    return NVML_SUCCESS;
}

static int memory_info(nvmlDevice_t device, struct nvml_memory *memory)
{
    memory->free = free_of[(uintptr_t)device - 1];
    return memory->free ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

static void test_room(void **state)
{
    static const struct dpb_nvml nvml = {.nvmlInit_v2 = start_nvml,
                                         .nvmlErrorString = nvml_error,
                                         .nvmlDeviceGetHandleByPciBusId_v2 = by_bus_id,
                                         .nvmlDeviceGetMemoryInfo = memory_info};
    const struct dpb_device_cuda_options first = {.device = 0};
    struct dpb_device_config config = {.local_rank = 1, .local_size = 2, .threads = 1};
    struct dpb_device_room room;

    (void)state;
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .devices = 2, .memory_bytes = 64 << 20});
    dpb_nvml_use(&nvml);
    free_of[0] = 10 << 20;
    free_of[1] = 20 << 20;
    assert_int_equal(ops->room(&config, &room), DPB_OK);
    assert_int_equal(room.free_bytes, 20 << 20);
    assert_int_equal(room.total_bytes, 64 << 20);
    assert_string_equal(room.name, "GPU 1, faked device, 00000000:02:00.0");
    config = (struct dpb_device_config){.local_size = 1, .threads = 1, .options = &first};
    assert_int_equal(ops->room(&config, &room), DPB_OK);
    assert_int_equal(room.free_bytes, 10 << 20);
    /* What NVML says of a whole GPU is more than a part of it (MIG) has. */
    free_of[0] = 80 << 20;
    assert_int_equal(ops->room(&config, &room), DPB_OK);
    assert_int_equal(room.free_bytes, 64 << 20);
    free_of[0] = 0;
    catch_errors();
    assert_int_equal(ops->room(&config, &room), DPB_ERR_UNAVAILABLE);
    /* Ranks that are elsewhere. */
    config = (struct dpb_device_config){.local_size = 3, .threads = 1};
    assert_int_equal(ops->room(&config, &room), DPB_ERR_UNAVAILABLE);
    dpb_log_set_sink(NULL, NULL);
    assert_string_equal(first_error, "");
    assert_int_equal(fake_cuda_device_bytes(NULL), 0);
    dpb_nvml_use(NULL);
}

/* Kept blocks go back to the driver before there is too little memory. */
static void test_out_of_memory(void **state)
{
    dpb_device *device;
    void *memory = NULL;

    (void)state;
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .memory_bytes = 16 << 20});
    device = open_device();
    assert_int_equal(ops->alloc(device, 12 << 20, &memory), DPB_OK);
    ops->free(device, memory);
    assert_int_equal(ops->alloc(device, 6 << 20, &memory), DPB_OK);
    ops->free(device, memory);
    memory = NULL;
    catch_errors();
    assert_int_equal(ops->alloc(device, 17 << 20, &memory), DPB_ERR_NO_MEMORY);
    expect_error("out of memory for 17825792 bytes: the device has 16777216");
    catch_errors();
    assert_int_equal(ops->alloc(device, SIZE_MAX, &memory), DPB_ERR_NO_MEMORY);
    expect_error("out of memory");
    assert_null(memory);
    ops->close(device);
}

/* ---- operators ---- */

/* Two matrices and their product. */
struct product {
    dpb_device *device;
    dpb_stream *stream;
    void *memory;
    struct dpb_matmul_args args;
    float a[6], b[6], c[4];
};

static void product_open(struct product *p, dpb_device *device)
{
    *p = (struct product){
            .device = device, .a = {1, 2, 3, 4, 5, 6}, .b = {1, 0, 2, 0, 1, 3}, .c = {1, 1, 1, 1}};
    assert_int_equal(ops->stream_open(device, &p->stream), DPB_OK);
    assert_int_equal(ops->alloc(device, 3 * 256, &p->memory), DPB_OK);
    p->args.a = dpb_tensor_2d(p->memory, 2, 3);
    p->args.b = dpb_tensor_2d((char *)p->memory + 256, 3, 2);
    p->args.c = dpb_tensor_2d((char *)p->memory + 512, 2, 2);
    assert_int_equal(ops->copy(device, p->args.a.data, p->a, sizeof(p->a), p->stream), DPB_OK);
    assert_int_equal(ops->copy(device, p->args.b.data, p->b, sizeof(p->b), p->stream), DPB_OK);
    assert_int_equal(ops->copy(device, p->args.c.data, p->c, sizeof(p->c), p->stream), DPB_OK);
}

static void product_close(struct product *p)
{
    ops->free(p->device, p->memory);
    ops->stream_close(p->stream);
}

/* [1 2 3; 4 5 6] [1 0; 2 0; 1 3], added `times` times to ones. */
static void product_check(struct product *p, float times)
{
    static const float sum[4] = {8, 9, 20, 18};

    assert_int_equal(ops->copy(p->device, p->c, p->args.c.data, sizeof(p->c), p->stream), DPB_OK);
    assert_int_equal(ops->stream_sync(p->stream), DPB_OK);
    for (int i = 0; i < 4; i++)
        assert_float_equal(p->c[i], 1.0f + times * sum[i], 1e-6);
}

/* While algorithms are timed, nothing is added to the result. */
static void test_plans(void **state)
{
    dpb_device *device = begin_and_open();
    struct dpb_device_cuda_counts counts;
    struct product p;

    (void)state;
    product_open(&p, device);
    p.args.beta = 1.0f;
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    product_check(&p, 1);
    ops->seal(device, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    product_check(&p, 4);
    counts = dpb_device_cuda_get_counts(device);
    assert_int_equal(counts.plans, 1);
    assert_int_equal(counts.while_sealed, 0);

    p.args.relu = true; /* another plan */
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    ops->seal(device, false);
    p.args.relu = false;
    p.args.trans_a = true;
    p.args.a = dpb_tensor_2d(p.memory, 3, 2);
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    counts = dpb_device_cuda_get_counts(device);
    assert_int_equal(counts.plans, 3);
    assert_int_equal(counts.while_sealed, 2); /* it, and memory to measure it in */
    product_close(&p);
    ops->close(device);
}

/* y = relu(x w + bias) of one pixel, 3 channels to 5. */
static void convolve_pixel(dpb_device *device, float y[5])
{
    const float x[3] = {1, 2, 3}, w[15] = {1, 1, 1, -1, -1, -1, 0, 1, 0, 2, 0, 0, 0, 0, -3};
    const float bias[5] = {1, 1, -3, 0.5f, 10};
    struct dpb_conv_args args = {.stride = 1, .relu = true};
    void *memory;
    char *at;

    assert_int_equal(ops->alloc(device, 4 * 256, &memory), DPB_OK);
    at = memory;
    args.x = dpb_tensor_4d(at, 1, 1, 1, 3);
    args.w = dpb_tensor_4d(at + 256, 5, 3, 1, 1);
    args.bias = (float *)(void *)(at + 512);
    args.y = dpb_tensor_4d(at + 768, 1, 1, 1, 5);
    assert_int_equal(ops->copy(device, args.x.data, x, sizeof(x), NULL), DPB_OK);
    assert_int_equal(ops->copy(device, args.w.data, w, sizeof(w), NULL), DPB_OK);
    assert_int_equal(ops->copy(device, args.bias, bias, sizeof(bias), NULL), DPB_OK);
    assert_int_equal(dpb_op_launch(device, DPB_OP_CONV_FWD, &args, NULL), DPB_OK);
    assert_int_equal(ops->copy(device, y, args.y.data, 5 * sizeof(*y), NULL), DPB_OK);
    ops->free(device, memory);
}

/* Bias and ReLU in cuDNN's plan, and behind it where no engine has them. */
static void test_convolution_not_fused(void **state)
{
    static const float expected[5] = {7, 0, 0, 2.5f, 1};

    (void)state;
    for (int fuses = 0; fuses < 2; fuses++) {
        dpb_device *device = begin_and_open();
        float y[5];

        fake_cudnn_set_fuses(fuses);
        convolve_pixel(device, y);
        fake_cudnn_set_fuses(true);
        for (int i = 0; i < 5; i++)
            assert_float_equal(y[i], expected[i], 1e-6);
        ops->close(device);
    }
}

/* A bias in bf16 that finds no place behind the workspace is added apart. */
static void test_product_not_fused(void **state)
{
    enum {
        N = 140000
    };
    dpb_device *device = begin_and_open();
    static uint16_t ones[N], c[N];
    static float bias[N];
    struct dpb_matmul_args args = {.relu = true};
    void *memory[3];

    (void)state;
    for (int i = 0; i < N; i++) {
        ones[i] = 0x3f80; /* 1 in bf16 */
        bias[i] = (float)(i % 7 - 3);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(ops->alloc(device, N * sizeof(float), &memory[i]), DPB_OK);
    args.a = (struct dpb_tensor){memory[0], DPB_BF16, 2, {1, 1}};
    args.b = (struct dpb_tensor){memory[0], DPB_BF16, 2, {1, N}};
    args.c = (struct dpb_tensor){memory[1], DPB_BF16, 2, {1, N}};
    args.bias = memory[2];
    assert_int_equal(ops->copy(device, memory[0], ones, sizeof(ones), NULL), DPB_OK);
    assert_int_equal(ops->copy(device, memory[2], bias, sizeof(bias), NULL), DPB_OK);
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &args, NULL), DPB_OK);
    assert_int_equal(ops->copy(device, c, memory[1], sizeof(c), NULL), DPB_OK);
    for (int i = 0; i < N; i++) {
        static const uint16_t sums[7] = {0, 0, 0, 0x3f80, 0x4000, 0x4040, 0x4080}; /* max(1+b,0) */

        assert_int_equal(c[i], sums[i % 7]);
    }
    for (int i = 0; i < 3; i++)
        ops->free(device, memory[i]);
    ops->close(device);
}

static void test_launch_refuses(void **state)
{
    float v[16] = {0};
    struct dpb_matmul_args shapes = {
            .a = dpb_tensor_2d(v, 2, 3), .b = dpb_tensor_2d(v, 2, 3), .c = dpb_tensor_2d(v, 2, 3)};
    struct dpb_relu_args wide = {.x = dpb_tensor_1d(v, 2), .y = dpb_tensor_1d(v, 2)};
    dpb_device *device = begin_and_open();

    (void)state;
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &shapes, NULL), DPB_ERR_USAGE);
    expect_error("a[2,3] b[2,3] c[2,3]");
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_COUNT, &shapes, NULL), DPB_ERR_USAGE);
    assert_int_equal(ops->op_launch_many(device, DPB_OP_COUNT, &shapes, 1, NULL), DPB_ERR_USAGE);
    assert_int_equal(dpb_op_launch(device, DPB_OP_RELU_FWD, NULL, NULL), DPB_ERR_USAGE);
    wide.x.dtype = wide.y.dtype = DPB_F64;
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_RELU_FWD, &wide, NULL), DPB_ERR_UNSUPPORTED);
    expect_error("\"relu-fwd\" does not do fp64");
    ops->close(device);
}

static void test_op_supported(void **state)
{
    dpb_device *device = begin_and_open();

    (void)state;
    for (int op = 0; op < DPB_OP_COUNT; op++) {
        assert_true(ops->op_supported(device, (enum dpb_op)op, DPB_F32));
        assert_false(ops->op_supported(device, (enum dpb_op)op, DPB_F64));
        assert_int_equal(ops->op_supported(device, (enum dpb_op)op, DPB_BF16),
                         ops->op_supported(device, (enum dpb_op)op, DPB_F16));
    }
    assert_true(ops->op_supported(device, DPB_OP_MATMUL, DPB_F16));
    assert_false(ops->op_supported(device, DPB_OP_SOFTMAX_XENT_FWD, DPB_BF16));
    assert_false(ops->op_supported(device, DPB_OP_SGD_MOMENTUM, DPB_BF16));
    assert_false(ops->op_supported(device, DPB_OP_COUNT, DPB_F32));
    ops->close(device);
}

/* A number that is no row is found when the host waits, and told once. */
static void test_faults(void **state)
{
    const int32_t host_ids[3] = {1, 0, 7};
    dpb_device *device = begin_and_open();
    struct dpb_embedding_args args = {0};
    dpb_stream *stream;
    void *memory;

    (void)state;
    assert_int_equal(ops->stream_open(device, &stream), DPB_OK);
    assert_int_equal(ops->alloc(device, 3 * 256, &memory), DPB_OK);
    args.table = dpb_tensor_2d(memory, 2, 4);
    args.y = dpb_tensor_2d((char *)memory + 256, 3, 4);
    args.ids = (const int32_t *)(void *)((char *)memory + 512);
    assert_int_equal(ops->copy(device, (char *)memory + 512, host_ids, sizeof(host_ids), stream),
                     DPB_OK);
    assert_int_equal(dpb_op_launch(device, DPB_OP_EMBEDDING_FWD, &args, stream), DPB_OK);
    catch_errors();
    assert_int_equal(ops->stream_sync(stream), DPB_ERR_USAGE);
    expect_error("operator \"embedding-fwd\": row number 7 at position 2 is no row of the table");
    assert_int_equal(ops->stream_sync(stream), DPB_OK);
    ops->free(device, memory);
    ops->stream_close(stream);
    ops->close(device);
}

static void test_marks(void **state)
{
    dpb_device *device = begin_and_open();
    dpb_event_mark *from, *to;
    dpb_stream *stream;
    int64_t ns = -7;

    (void)state;
    assert_int_equal(ops->stream_open(device, &stream), DPB_OK);
    assert_int_equal(ops->mark_open(device, &from), DPB_OK);
    assert_int_equal(ops->mark_open(device, &to), DPB_OK);
    catch_errors();
    assert_int_equal(ops->mark_elapsed_ns(from, to, &ns), DPB_ERR_USAGE);
    expect_error("the first has not been recorded");
    assert_int_equal(ops->mark_record(from, stream), DPB_OK);
    assert_int_equal(ops->mark_record(to, stream), DPB_OK);
    assert_int_equal(ops->stream_wait(stream, to), DPB_OK);
    assert_int_equal(ns, -7);
    assert_int_equal(ops->stream_sync(stream), DPB_OK);
    assert_int_equal(ops->mark_elapsed_ns(from, to, &ns), DPB_OK);
    assert_true(ns >= 0);
    ops->mark_close(from);
    ops->mark_close(to);
    ops->stream_close(stream);
    ops->close(device);
}

/* ---- graphs ---- */

static void record(struct product *p, int products)
{
    assert_int_equal(ops->capture_begin(p->device, p->stream), DPB_OK);
    for (int i = 0; i < products; i++)
        assert_int_equal(dpb_op_launch(p->device, DPB_OP_MATMUL, &p->args, p->stream), DPB_OK);
    assert_int_equal(ops->capture_end(p->device, p->stream), DPB_OK);
}

static void test_graphs(void **state)
{
    dpb_device *device = begin_and_open();
    struct dpb_device_cuda_counts counts;
    struct product p;

    (void)state;
    product_open(&p, device);
    p.args.beta = 1.0f;
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    record(&p, 2);
    product_check(&p, 3);
    record(&p, 2);
    product_check(&p, 5);
    counts = dpb_device_cuda_get_counts(device);
    assert_int_equal(counts.graphs_made, 1);
    assert_int_equal(counts.graphs_updated, 1);
    record(&p, 3); /* of another form */
    product_check(&p, 8);
    counts = dpb_device_cuda_get_counts(device);
    assert_int_equal(counts.graphs_made, 2);
    assert_int_equal(counts.graphs_updated, 1);
    product_close(&p);
    ops->close(device);
}

/* Nothing can be prepared while a graph is recorded. */
static void test_graph_of_new_shapes(void **state)
{
    dpb_device *device = begin_and_open();
    struct product p;

    (void)state;
    product_open(&p, device);
    assert_int_equal(ops->capture_begin(device, p.stream), DPB_OK);
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_ERR_USAGE);
    expect_error("while a graph is recorded");
    assert_int_equal(ops->capture_end(device, p.stream), DPB_OK);
    product_close(&p);
    ops->close(device);
}

/* A step that failed while it was recorded. */
static void test_graph_left_open(void **state)
{
    dpb_device *device = begin_and_open();
    struct product p;

    (void)state;
    product_open(&p, device);
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    assert_int_equal(ops->capture_begin(device, p.stream), DPB_OK);
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &p.args, p.stream), DPB_OK);
    catch_errors();
    product_close(&p);
    ops->close(device);
    dpb_log_set_sink(NULL, NULL);
    assert_string_equal(first_error, "");
}

/* A convolution's forward pass and gradients, with channels that have to be filled up. */
static dpb_status convolve(dpb_device *device, dpb_stream *stream, char *memory)
{
    const struct dpb_conv_args args = {
            .x = dpb_tensor_4d(memory, 1, 4, 4, 3),
            .w = dpb_tensor_4d(memory + 1024, 5, 3, 3, 3),
            .y = dpb_tensor_4d(memory + 2048, 1, 4, 4, 5),
            .bias = (float *)(void *)(memory + 3072),
            .stride = 1,
            .pad = 1,
    };

    DPB_TRY(dpb_op_launch(device, DPB_OP_CONV_FWD, &args, stream));
    DPB_TRY(dpb_op_launch(device, DPB_OP_CONV_BWD_DATA, &args, stream));
    return dpb_op_launch(device, DPB_OP_CONV_BWD_WEIGHTS, &args, stream);
}

/* What algorithms are measured in is there once, whatever their number, and goes back; what was
 * freed goes back before timed steps, which NCCL and others may want memory in. */
static void test_nothing_is_kept_for_timed_steps(void **state)
{
    dpb_device *device = begin_and_open();
    int64_t before, held, peak, available, total;
    dpb_stream *stream;
    void *memory, *freed;

    (void)state;
    assert_int_equal(ops->stream_open(device, &stream), DPB_OK);
    assert_int_equal(ops->alloc(device, 4096, &memory), DPB_OK);
    before = fake_cuda_device_bytes(NULL);
    assert_int_equal(convolve(device, stream, memory), DPB_OK);
    held = fake_cuda_device_bytes(&peak);
    print_message("convolutions: %lld bytes are held, %lld at most while they were measured\n",
                  (long long)(held - before), (long long)(peak - before));
    assert_int_equal(ops->memory_bytes(device, &available, &total), DPB_OK);
    assert_int_equal(available, total - held); /* nothing is kept for later */
    assert_true(peak - held <= 4096);          /* one candidate's tensors and workspace */
    assert_int_equal(ops->alloc(device, 1 << 20, &freed), DPB_OK);
    ops->free(device, freed);
    assert_int_equal(fake_cuda_device_bytes(NULL), held + (1 << 20));
    ops->seal(device, true);
    assert_int_equal(fake_cuda_device_bytes(NULL), held);
    assert_int_equal(dpb_device_cuda_get_counts(device).allocated_bytes, held);
    assert_int_equal(convolve(device, stream, memory), DPB_OK);
    assert_int_equal(dpb_device_cuda_get_counts(device).while_sealed, 0);
    ops->seal(device, false);
    ops->free(device, memory);
    ops->stream_close(stream);
    ops->close(device);
}

/* Where there is no room to measure, the first proposals are taken, and nothing is amiss. */
static void test_no_room_to_measure(void **state)
{
    enum {
        SIDE = 64,
        CHANNELS = 16,
        IMAGE_BYTES = SIDE * SIDE * CHANNELS * 4,
        LEFT_BYTES = 128 << 10
    };
    struct dpb_conv_args args = {.stride = 1};
    struct dpb_matmul_args product = {.beta = 1.0f};
    dpb_device *device;
    dpb_stream *stream;
    void *memory, *rest;
    int64_t available, total;
    char *at;

    (void)state;
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .memory_bytes = 256 << 20});
    device = open_device();
    assert_int_equal(ops->stream_open(device, &stream), DPB_OK);
    assert_int_equal(ops->alloc(device, 3 * IMAGE_BYTES, &memory), DPB_OK);
    at = memory;
    /* What a stream needs for itself. */
    product.a = product.b = dpb_tensor_2d(at, 4, 4);
    product.c = dpb_tensor_2d(at + IMAGE_BYTES, 4, 4);
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &product, stream), DPB_OK);
    assert_int_equal(convolve(device, stream, memory), DPB_OK);
    assert_int_equal(ops->memory_bytes(device, &available, &total), DPB_OK);
    assert_int_equal(ops->alloc(device, (size_t)available - LEFT_BYTES, &rest), DPB_OK);
    catch_errors();
    args.x = dpb_tensor_4d(at, 1, SIDE, SIDE, CHANNELS);
    args.y = dpb_tensor_4d(at + IMAGE_BYTES, 1, SIDE, SIDE, CHANNELS);
    args.w = dpb_tensor_4d(at + 2 * IMAGE_BYTES, CHANNELS, CHANNELS, 1, 1);
    assert_int_equal(dpb_op_launch(device, DPB_OP_CONV_FWD, &args, stream), DPB_OK);
    product.a = dpb_tensor_2d(at, 256, 4);
    product.b = dpb_tensor_2d(at + IMAGE_BYTES, 4, 256);
    product.c = dpb_tensor_2d(at + 2 * IMAGE_BYTES, 256, 256); /* more than is left */
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &product, stream), DPB_OK);
    assert_int_equal(ops->stream_sync(stream), DPB_OK);
    dpb_log_set_sink(NULL, NULL);
    assert_string_equal(first_error, "");
    ops->free(device, rest);
    ops->free(device, memory);
    ops->stream_close(stream);
    ops->close(device);
}

/* ---- every call fails once ---- */

static dpb_status multiply(dpb_device *device, dpb_stream *stream, char *memory)
{
    const struct dpb_matmul_args args = {
            .a = dpb_tensor_2d(memory, 4, 8),
            .b = dpb_tensor_2d(memory + 1024, 8, 4),
            .c = dpb_tensor_2d(memory + 2048, 4, 4),
            .bias = (const float *)(const void *)(memory + 3072),
            .beta = 1.0f,
    };
    dpb_status st;

    DPB_TRY(dpb_op_launch(device, DPB_OP_MATMUL, &args, stream));
    DPB_TRY(ops->capture_begin(device, stream));
    st = dpb_op_launch(device, DPB_OP_MATMUL, &args, stream);
    DPB_KEEP(st, ops->capture_end(device, stream));
    return st;
}

static dpb_status use(dpb_device *device, dpb_stream *stream, dpb_event_mark *mark, void *memory,
                      void *host)
{
    int64_t available, total;

    DPB_TRY(ops->memory_bytes(device, &available, &total));
    DPB_TRY(ops->copy(device, memory, host, 4096, stream));
    DPB_TRY(convolve(device, stream, memory));
    DPB_TRY(multiply(device, stream, memory));
    DPB_TRY(ops->mark_record(mark, stream));
    DPB_TRY(ops->stream_wait(stream, mark));
    DPB_TRY(ops->copy(device, host, memory, 4096, stream));
    return ops->stream_sync(stream);
}

/* Everything that there is, opened, used and closed. */
static dpb_status session(void)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_event_mark *mark;
    dpb_stream *stream;
    dpb_device *device;
    void *memory, *host;
    dpb_status st;

    DPB_TRY(ops->open(&config, &device));
    DPB_TRY_GOTO(st, ops->stream_open(device, &stream), err_device);
    DPB_TRY_GOTO(st, ops->mark_open(device, &mark), err_stream);
    DPB_TRY_GOTO(st, ops->alloc(device, 4096, &memory), err_mark);
    DPB_TRY_GOTO(st, ops->host_alloc(device, 4096, &host), err_memory);
    st = use(device, stream, mark, memory, host);
    ops->host_free(device, host);
err_memory:
    ops->free(device, memory);
err_mark:
    ops->mark_close(mark);
err_stream:
    ops->stream_close(stream);
err_device:
    ops->close(device);
    return st;
}

/* Failures that are no error: an algorithm that fails is not taken, a graph that cannot be updated
 * is made anew, and what fails while all is closed is told only. */
static bool may_go_on(const char *call)
{
    static const char *const calls[] = {"cudaDriverGetVersion", "cublasLtMatmul",
                                        "cublasLtMatmulAlgoGetHeuristic", "cudaGraphExecUpdate"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strcmp(call, calls[i]) == 0)
            return true;
    }
    return strstr(call, "Destroy") || strstr(call, "Free") || strncmp(call, "cudnn", 5) == 0;
}

static void test_every_call_fails_once(void **state)
{
    int64_t calls, told = 0;

    (void)state;
    fake_gpu_begin(&(struct fake_cuda_config){.seed = 1});
    assert_int_equal(session(), DPB_OK);
    calls = fake_cuda_calls();
    assert_true(calls > 100);
    for (int64_t i = 1; i <= calls; i++) {
        const char *failed;
        char leaks[256];
        dpb_status st;

        fake_gpu_begin(&(struct fake_cuda_config){.seed = 1, .fail_call = i});
        catch_errors();
        st = session();
        dpb_log_set_sink(NULL, NULL);
        failed = fake_cuda_failed_call();
        if (!failed) /* fewer candidates were tried */
            continue;
        if (st >= 0 && !first_error[0] && !may_go_on(failed))
            fail_msg("call %lld, %s, failed and nobody was told", (long long)i, failed);
        if (st < 0) {
            told++;
            if (!first_error[0])
                fail_msg("call %lld, %s: %s, without a message", (long long)i, failed,
                         dpb_status_text(st));
        }
        fake_cuda_end();
        if (fake_cuda_leaks(leaks, sizeof(leaks)) != 0)
            fail_msg("call %lld, %s: not given back: %s", (long long)i, failed, leaks);
    }
    print_message("%lld calls, each failed once: %lld ended with an error\n", (long long)calls,
                  (long long)told);
    assert_true(told > calls / 4); /* most others are of algorithms that were not taken */
}

#define TEST(function) cmocka_unit_test_teardown(function, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_table),
            TEST(test_no_driver),
            TEST(test_old_driver),
            TEST(test_open_refuses),
            TEST(test_describe),
            TEST(test_memory),
            TEST(test_blocks_are_kept),
            TEST(test_room),
            TEST(test_out_of_memory),
            TEST(test_convolution_not_fused),
            TEST(test_product_not_fused),
            TEST(test_plans),
            TEST(test_launch_refuses),
            TEST(test_op_supported),
            TEST(test_faults),
            TEST(test_marks),
            TEST(test_graphs),
            TEST(test_graph_of_new_shapes),
            TEST(test_graph_left_open),
            TEST(test_nothing_is_kept_for_timed_steps),
            TEST(test_no_room_to_measure),
            TEST(test_every_call_fails_once),
    };
    return DPB_RUN_TESTS(tests);
}
