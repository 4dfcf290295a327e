/* The interface's own code: table check, tensor helpers, texts, argument checks. */
#include <math.h>

#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_data.h"

static void quiet(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    snprintf(ctx, 512, "%s", line);
}

static char last_line[512];
static char first_error[512];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", line);
}

/* ---- a table that is right, member by member ---- */

static dpb_status ok_probe(char *why, size_t bytes)
{
    (void)why;
    (void)bytes;
    return DPB_OK;
}

static dpb_status ok_open(const struct dpb_device_config *config, dpb_device **device)
{
    (void)config;
    (void)device;
    return DPB_OK;
}

static void ok_close(dpb_device *device)
{
    (void)device;
}

static dpb_json *ok_describe(dpb_device *device)
{
    (void)device;
    return NULL;
}

static dpb_status ok_alloc(dpb_device *device, size_t bytes, void **memory)
{
    (void)device;
    (void)bytes;
    (void)memory;
    return DPB_OK;
}

static void ok_free(dpb_device *device, void *memory)
{
    (void)device;
    (void)memory;
}

static dpb_status ok_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                          dpb_stream *stream)
{
    (void)device;
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return DPB_OK;
}

static dpb_status ok_stream_open(dpb_device *device, dpb_stream **stream)
{
    (void)device;
    (void)stream;
    return DPB_OK;
}

static void ok_stream_close(dpb_stream *stream)
{
    (void)stream;
}

static dpb_status ok_stream_sync(dpb_stream *stream)
{
    (void)stream;
    return DPB_OK;
}

static dpb_status ok_mark_open(dpb_device *device, dpb_event_mark **mark)
{
    (void)device;
    (void)mark;
    return DPB_OK;
}

static void ok_mark_close(dpb_event_mark *mark)
{
    (void)mark;
}

static dpb_status ok_mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    (void)mark;
    (void)stream;
    return DPB_OK;
}

static dpb_status ok_stream_wait(dpb_stream *stream, dpb_event_mark *mark)
{
    (void)stream;
    (void)mark;
    return DPB_OK;
}

static dpb_status ok_elapsed(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns)
{
    (void)from;
    (void)to;
    (void)ns;
    return DPB_OK;
}

static bool ok_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    (void)op;
    (void)dtype;
    return true;
}

static dpb_status ok_capture(dpb_device *device, dpb_stream *stream)
{
    (void)device;
    (void)stream;
    return DPB_OK;
}

static dpb_status ok_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    (void)device;
    (void)op;
    (void)args;
    (void)stream;
    return DPB_OK;
}

static const struct dpb_device_ops good = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "good",
        .summary = "does nothing",
        .probe = ok_probe,
        .open = ok_open,
        .close = ok_close,
        .describe = ok_describe,
        .alloc = ok_alloc,
        .free = ok_free,
        .copy = ok_copy,
        .stream_open = ok_stream_open,
        .stream_close = ok_stream_close,
        .stream_sync = ok_stream_sync,
        .mark_open = ok_mark_open,
        .mark_close = ok_mark_close,
        .mark_record = ok_mark_record,
        .stream_wait = ok_stream_wait,
        .mark_elapsed_ns = ok_elapsed,
        .op_supported = ok_supported,
        .op_launch = ok_launch,
};

static void assert_rejected(const struct dpb_device_ops *ops, const char *reason)
{
    first_error[0] = '\0';
    dpb_log_set_sink(keep_error, NULL);
    assert_int_equal(dpb_device_ops_check(ops), DPB_ERR_INTERNAL);
    dpb_log_set_sink(NULL, NULL);
    if (!strstr(first_error, reason))
        fail_msg("\"%s\" does not say \"%s\"", first_error, reason);
}

static void test_ops_check_rejects_broken_tables(void **state)
{
    struct dpb_device_ops bad;

    (void)state;
    assert_int_equal(dpb_device_ops_check(&good), DPB_OK);
    assert_rejected(NULL, "NULL");

#define REJECT(member, value, reason)                                                              \
    bad = good;                                                                                    \
    bad.member = value;                                                                            \
    assert_rejected(&bad, reason)
    REJECT(version, DPB_DEVICE_OPS_VERSION + 1, "version");
    REJECT(version, 0, "version");
    REJECT(name, NULL, "no name");
    REJECT(name, "", "no name");
    REJECT(summary, NULL, "no summary");
    REJECT(summary, "", "no summary");
    REJECT(flags, 1u << 31, "unknown flags");
    REJECT(flags, DPB_DEVICE_ACCELERATOR, "lacks host_alloc");
    REJECT(host_alloc, ok_alloc, "one of host_alloc and host_free");
    REJECT(capture_begin, ok_capture, "one of capture_begin and capture_end");
    REJECT(probe, NULL, "lacks probe");
    REJECT(open, NULL, "lacks open");
    REJECT(close, NULL, "lacks close");
    REJECT(describe, NULL, "lacks describe");
    REJECT(alloc, NULL, "lacks alloc");
    REJECT(free, NULL, "lacks free");
    REJECT(copy, NULL, "lacks copy");
    REJECT(stream_open, NULL, "lacks stream_open");
    REJECT(stream_close, NULL, "lacks stream_close");
    REJECT(stream_sync, NULL, "lacks stream_sync");
    REJECT(mark_open, NULL, "lacks mark_open");
    REJECT(mark_close, NULL, "lacks mark_close");
    REJECT(mark_record, NULL, "lacks mark_record");
    REJECT(stream_wait, NULL, "lacks stream_wait");
    REJECT(mark_elapsed_ns, NULL, "lacks mark_elapsed_ns");
    REJECT(op_supported, NULL, "lacks op_supported");
    REJECT(op_launch, NULL, "lacks op_launch");
#undef REJECT
}

struct good_options {
    int64_t number;
};

static void test_ops_check_looks_at_the_option_table(void **state)
{
    struct dpb_option row = {.name = "good-number",
                             .type = DPB_OPT_INT,
                             .offset = offsetof(struct good_options, number),
                             .default_text = "3",
                             .min = 1,
                             .max = 9,
                             .category = "device",
                             .help = "a number"};
    struct dpb_option_table table = {.kind = "device",
                                     .owner = "good",
                                     .rows = &row,
                                     .row_count = 1,
                                     .config_bytes = sizeof(struct good_options)};
    struct dpb_device_ops ops = good;

    (void)state;
    ops.options = &table;
    assert_int_equal(dpb_device_ops_check(&ops), DPB_OK);
    table.kind = "comm";
    assert_rejected(&ops, "another kind");
    table.kind = "device";
    table.owner = "other";
    assert_rejected(&ops, "another device");
    table.owner = "good";
    row.default_text = "ten";
    assert_rejected(&ops, "");
}

/* ---- tensors and texts ---- */

static void test_tensors(void **state)
{
    float value = 0.0f;
    struct dpb_tensor scalar = {.data = &value, .dtype = DPB_F32, .rank = 0};
    struct dpb_tensor one = dpb_tensor_1d(&value, 5);
    struct dpb_tensor two = dpb_tensor_2d(&value, 5, 7);
    struct dpb_tensor four = dpb_tensor_4d(&value, 2, 3, 4, 5);

    (void)state;
    assert_int_equal(dpb_tensor_numel(&scalar), 1);
    assert_int_equal(dpb_tensor_numel(&one), 5);
    assert_int_equal(dpb_tensor_numel(&two), 35);
    assert_int_equal(dpb_tensor_numel(&four), 120);
    assert_int_equal(four.rank, 4);
    assert_int_equal(four.dtype, DPB_F32);
    assert_ptr_equal(four.data, &value);
    assert_int_equal(four.dim[3], 5);
    four = dpb_tensor_4d(NULL, 1 << 20, 1 << 20, 4, 1);
    assert_true(dpb_tensor_numel(&four) == (int64_t)1 << 42);
}

static void test_texts(void **state)
{
    float value = 0.0f;
    struct dpb_conv_args conv = {.x = dpb_tensor_4d(&value, 64, 26, 26, 32),
                                 .w = dpb_tensor_4d(&value, 64, 32, 3, 3),
                                 .y = dpb_tensor_4d(&value, 64, 24, 24, 64),
                                 .stride = 1};
    char text[256], tiny[8];

    (void)state;
    assert_string_equal(dpb_op_text(DPB_OP_CONV_FWD), "conv-fwd");
    assert_string_equal(dpb_op_text(DPB_OP_SCALE), "scale");
    assert_string_equal(dpb_op_text(DPB_OP_COUNT), "unknown operator");
    assert_string_equal(dpb_op_text((enum dpb_op) - 1), "unknown operator");
    dpb_op_args_text(DPB_OP_CONV_FWD, &conv, text, sizeof(text));
    assert_string_equal(text, "x[64,26,26,32] w[64,32,3,3] y[64,24,24,64] stride 1 pad 0");
    dpb_op_args_text(DPB_OP_CONV_FWD, &conv, tiny, sizeof(tiny));
    assert_string_equal(tiny, "x[64,26");
    dpb_op_args_text(DPB_OP_CONV_FWD, NULL, text, sizeof(text));
    assert_string_equal(text, "no arguments");
}

/* ---- arguments ---- */

static void test_args_in_general(void **state)
{
    (void)state;
    op_assert_misfit(DPB_OP_CONV_FWD, NULL, "NULL");
    op_assert_misfit(DPB_OP_COUNT, &(struct dpb_scale_args){0}, "no operator number");
    dpb_log_set_sink(quiet, last_line);
    assert_int_equal(dpb_op_args_check(DPB_OP_COUNT, &(struct dpb_scale_args){0}), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(last_line, "hint: "));
}

/* Every table has every operator: arguments that are all zero are refused, or run as nothing. */
static void test_args_of_zeros(void **state)
{
    static const long double zeros[64]; /* as large, and as aligned, as any arguments */
    char text[256];

    (void)state;
#define ZEROS_ARE_LARGE_ENOUGH(name, text, args)                                                   \
    _Static_assert(sizeof(args) <= sizeof(zeros), "make zeros larger");
    DPB_OP_MAP(ZEROS_ARE_LARGE_ENOUGH)
#undef ZEROS_ARE_LARGE_ENOUGH
    for (int op = 0; op < DPB_OP_COUNT; op++) {
        dpb_op_args_text((enum dpb_op)op, zeros, text, sizeof(text));
        assert_string_not_equal(text, "");
        first_error[0] = '\0';
        dpb_log_set_sink(keep_error, NULL);
        if (dpb_reference_op((enum dpb_op)op, zeros) == DPB_OK)
            assert_non_null(strstr(text, "count 0"));
        else
            assert_non_null(strstr(first_error, dpb_op_text((enum dpb_op)op)));
        dpb_log_set_sink(NULL, NULL);
    }
}

static void test_args_of_matmul(void **state)
{
    float v = 0.0f;
    const struct dpb_matmul_args ok = {.a = dpb_tensor_2d(&v, 2, 3),
                                       .b = dpb_tensor_2d(&v, 3, 4),
                                       .c = dpb_tensor_2d(&v, 2, 4)};
    struct dpb_matmul_args bad;

    (void)state;
    assert_int_equal(dpb_op_args_check(DPB_OP_MATMUL, &ok), DPB_OK);
    bad = ok;
    bad.trans_a = true;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "a should be [2,2]");
    bad = ok;
    bad.trans_b = true;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "b should be [4,3]");
    bad = ok;
    bad.c.dim[0] = 3;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "a should be [3,3]");
    bad = ok;
    bad.c.rank = 3;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "c has rank 3");
    bad = ok;
    bad.b.data = NULL;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "b is NULL");
    bad = ok;
    bad.b.dtype = DPB_F64;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "b is not fp32");
    bad = ok;
    bad.a.dtype = bad.b.dtype = bad.c.dtype = DPB_I32;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "none of fp32, bf16, fp16 and fp64");
    bad = ok;
    bad.c.dim[1] = 0;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "below 1");
    bad = ok;
    bad.c.dim[0] = bad.c.dim[1] = INT64_MAX / 2;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "too large");
    bad = ok;
    bad.beta = NAN;
    op_assert_misfit(DPB_OP_MATMUL, &bad, "beta is not finite");
}

static void test_args_of_conv(void **state)
{
    static const enum dpb_op ops[] = {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA,
                                      DPB_OP_CONV_BWD_WEIGHTS};
    float v = 0.0f;
    const struct dpb_conv_args ok = {.x = dpb_tensor_4d(&v, 2, 5, 6, 3),
                                     .w = dpb_tensor_4d(&v, 4, 3, 3, 2),
                                     .y = dpb_tensor_4d(&v, 2, 3, 4, 4),
                                     .stride = 2,
                                     .pad = 1};
    struct dpb_conv_args bad;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dpb_op_args_check(ops[i], &ok), DPB_OK);
        bad = ok;
        bad.y.dim[2] = 3;
        op_assert_misfit(ops[i], &bad, "y should be [2,3,4,4]");
        bad = ok;
        bad.w.dim[1] = 2;
        op_assert_misfit(ops[i], &bad, "w takes 2 channels, x has 3");
        bad = ok;
        bad.stride = 0;
        op_assert_misfit(ops[i], &bad, "stride is below 1");
        bad = ok;
        bad.pad = -1;
        op_assert_misfit(ops[i], &bad, "pad is negative");
        bad = ok;
        bad.w.dim[2] = 8;
        op_assert_misfit(ops[i], &bad, "larger than the padded image");
        bad = ok;
        bad.x.rank = 5;
        op_assert_misfit(ops[i], &bad, "x has rank 5");
    }
}

static void test_args_of_pool(void **state)
{
    float v = 0.0f;
    uint8_t index = 0;
    const struct dpb_pool_args ok = {.x = dpb_tensor_4d(&v, 2, 32, 32, 3),
                                     .y = dpb_tensor_4d(&v, 2, 16, 16, 3),
                                     .index = &index,
                                     .kernel = 3,
                                     .stride = 2,
                                     .pad = 1};
    struct dpb_pool_args bad;

    (void)state;
    assert_int_equal(dpb_op_args_check(DPB_OP_POOL_MAX_FWD, &ok), DPB_OK);
    assert_int_equal(dpb_op_args_check(DPB_OP_POOL_AVG_BWD, &ok), DPB_OK);
    bad = ok;
    bad.index = NULL;
    assert_int_equal(dpb_op_args_check(DPB_OP_POOL_MAX_FWD, &bad), DPB_OK);
    op_assert_misfit(DPB_OP_POOL_MAX_BWD, &bad, "index is NULL");
    bad = ok;
    bad.kernel = 16;
    op_assert_misfit(DPB_OP_POOL_MAX_FWD, &bad, "above 255");
    bad.stride = 16;
    bad.pad = 0;
    bad.y = dpb_tensor_4d(&v, 2, 2, 2, 3);
    assert_int_equal(dpb_op_args_check(DPB_OP_POOL_AVG_FWD, &bad), DPB_OK);
    bad = ok;
    bad.pad = 2;
    op_assert_misfit(DPB_OP_POOL_AVG_FWD, &bad, "above half the kernel");
    bad = ok;
    bad.y.dim[3] = 4;
    op_assert_misfit(DPB_OP_POOL_MAX_BWD, &bad, "y should be [2,16,16,3]");
    bad = ok;
    bad.kernel = 0;
    op_assert_misfit(DPB_OP_POOL_MAX_FWD, &bad, "kernel is below 1");
}

static void test_args_of_the_others(void **state)
{
    float v = 0.0f;
    int32_t label = 0;
    struct dpb_tensor t = dpb_tensor_2d(&v, 3, 4), wrong = dpb_tensor_2d(&v, 4, 3);
    struct dpb_relu_args relu = {.x = t, .y = t, .dy = t, .dx = t};
    struct dpb_bias_args bias = {.x = t, .y = t, .bias = &v};
    struct dpb_softmax_xent_args soft = {
            .logits = t, .prob = t, .dlogits = t, .label = &label, .loss = &v};
    struct dpb_interaction_args pairs = {
            .x = t,
            .e = {.data = &v, .dtype = DPB_F32, .rank = 3, .dim = {2, 3, 4}},
            .y = dpb_tensor_2d(&v, 3, 7)};
    struct dpb_sigmoid_bce_args binary = {.logits = t, .dlogits = t, .label = &label, .loss = &v};
    struct dpb_sgd_args sgd = {.param = &v, .grad = &v, .momentum = &v, .count = 1};
    struct dpb_scale_args scale = {.x = &v, .count = 1};
    int32_t found = 0;
    struct dpb_finite_args finite = {.x = &v, .count = 1, .found = &found};
    struct dpb_orthogonalize_args narrow = {.x = dpb_tensor_2d(&v, 1, 1)};

    (void)state;
    assert_int_equal(dpb_op_args_check(DPB_OP_RELU_FWD, &relu), DPB_OK);
    relu.x = wrong;
    op_assert_misfit(DPB_OP_RELU_FWD, &relu, "x should be [3,4]");
    assert_int_equal(dpb_op_args_check(DPB_OP_RELU_BWD, &relu), DPB_OK);
    relu.dx = wrong;
    op_assert_misfit(DPB_OP_RELU_BWD, &relu, "dx should be [3,4]");
    relu.y.rank = 0;
    op_assert_misfit(DPB_OP_RELU_BWD, &relu, "y has rank 0");

    assert_int_equal(dpb_op_args_check(DPB_OP_BIAS_FWD, &bias), DPB_OK);
    bias.x = wrong;
    op_assert_misfit(DPB_OP_BIAS_FWD, &bias, "x should be [3,4]");
    assert_int_equal(dpb_op_args_check(DPB_OP_BIAS_BWD, &bias), DPB_OK);
    bias.bias = NULL;
    op_assert_misfit(DPB_OP_BIAS_BWD, &bias, "bias is NULL");

    assert_int_equal(dpb_op_args_check(DPB_OP_SOFTMAX_XENT_FWD, &soft), DPB_OK);
    soft.loss = NULL;
    op_assert_misfit(DPB_OP_SOFTMAX_XENT_FWD, &soft, "loss is NULL");
    assert_int_equal(dpb_op_args_check(DPB_OP_SOFTMAX_XENT_BWD, &soft), DPB_OK);
    soft.label = NULL;
    op_assert_misfit(DPB_OP_SOFTMAX_XENT_BWD, &soft, "label is NULL");

    assert_int_equal(dpb_op_args_check(DPB_OP_INTERACTION_FWD, &pairs), DPB_OK);
    op_assert_misfit(DPB_OP_INTERACTION_BWD, &pairs, "dx ");
    pairs.dx = t;
    pairs.de = pairs.e;
    assert_int_equal(dpb_op_args_check(DPB_OP_INTERACTION_BWD, &pairs), DPB_OK);
    pairs.y = t;
    op_assert_misfit(DPB_OP_INTERACTION_BWD, &pairs, "y should be [3,7]");
    pairs.e.dim[1] = 2;
    op_assert_misfit(DPB_OP_INTERACTION_FWD, &pairs, "e should be [2,3,4]");

    assert_int_equal(dpb_op_args_check(DPB_OP_SIGMOID_BCE_FWD, &binary), DPB_OK);
    binary.loss = NULL;
    op_assert_misfit(DPB_OP_SIGMOID_BCE_FWD, &binary, "loss is NULL");
    assert_int_equal(dpb_op_args_check(DPB_OP_SIGMOID_BCE_BWD, &binary), DPB_OK);
    binary.dlogits = wrong;
    op_assert_misfit(DPB_OP_SIGMOID_BCE_BWD, &binary, "dlogits should be [3,4]");

    assert_int_equal(dpb_op_args_check(DPB_OP_SGD_MOMENTUM, &sgd), DPB_OK);
    sgd.momentum = NULL;
    assert_int_equal(dpb_op_args_check(DPB_OP_SGD_MOMENTUM, &sgd), DPB_OK);
    sgd.mu = 0.5f;
    op_assert_misfit(DPB_OP_SGD_MOMENTUM, &sgd, "momentum is NULL");
    sgd.count = 0;
    assert_int_equal(dpb_op_args_check(DPB_OP_SGD_MOMENTUM, &sgd), DPB_OK);
    sgd.count = -1;
    op_assert_misfit(DPB_OP_SGD_MOMENTUM, &sgd, "count is negative");

    assert_int_equal(dpb_op_args_check(DPB_OP_ORTHOGONALIZE, &narrow), DPB_OK);
    narrow.eps = -1.0f;
    op_assert_misfit(DPB_OP_ORTHOGONALIZE, &narrow, "eps is not a number from 0 on");
    narrow.x.data = NULL;
    op_assert_misfit(DPB_OP_ORTHOGONALIZE, &narrow, "x");

    assert_int_equal(dpb_op_args_check(DPB_OP_FINITE, &finite), DPB_OK);
    finite.found = NULL;
    op_assert_misfit(DPB_OP_FINITE, &finite, "found is NULL");

    assert_int_equal(dpb_op_args_check(DPB_OP_SCALE, &scale), DPB_OK);
    scale.x = NULL;
    op_assert_misfit(DPB_OP_SCALE, &scale, "x is NULL");
}

static void test_args_of_batchnorm(void **state)
{
    float v = 0.0f;
    struct dpb_tensor t = dpb_tensor_4d(&v, 2, 3, 3, 4), one = dpb_tensor_2d(&v, 1, 4);
    const struct dpb_batchnorm_args ok = {.x = t,
                                          .y = t,
                                          .dy = t,
                                          .dx = t,
                                          .gamma = &v,
                                          .beta = &v,
                                          .dgamma = &v,
                                          .dbeta = &v,
                                          .running_mean = &v,
                                          .running_var = &v,
                                          .save_mean = &v,
                                          .save_var = &v,
                                          .eps = 1e-5f,
                                          .momentum = 0.1f,
                                          .training = true};
    struct dpb_batchnorm_args bad;

    (void)state;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_FWD, &ok), DPB_OK);
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_BWD, &ok), DPB_OK);
    bad = ok;
    bad.x.rank = 3;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &bad, "needs 2 or 4");
    bad = ok;
    bad.eps = 0.0f;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &bad, "eps is not above 0");
    bad = ok;
    bad.save_var = NULL;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &bad, "save_var is NULL");
    bad.training = false;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_FWD, &bad), DPB_OK);
    bad.running_mean = NULL;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &bad, "running_mean is NULL");
    bad = ok;
    bad.dgamma = NULL;
    op_assert_misfit(DPB_OP_BATCHNORM_BWD, &bad, "dgamma is NULL");
    bad = ok;
    bad.x = bad.y = one;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &bad, "more than one value per channel");
    bad.training = false;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_FWD, &bad), DPB_OK);
}

static void test_args_of_batchnorm_with_relu(void **state)
{
    float v = 0.0f;
    struct dpb_tensor t = dpb_tensor_2d(&v, 3, 4);
    struct dpb_batchnorm_args args = {.x = t,
                                      .y = t,
                                      .gamma = &v,
                                      .beta = &v,
                                      .running_mean = &v,
                                      .running_var = &v,
                                      .save_mean = &v,
                                      .save_var = &v,
                                      .eps = 1e-5f,
                                      .training = true,
                                      .relu = true};

    (void)state;
    op_assert_misfit(DPB_OP_BATCHNORM_FWD, &args, "mask is NULL");
    op_assert_misfit(DPB_OP_BATCHNORM_APPLY, &args, "mask is NULL");
    args.training = false;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_FWD, &args), DPB_OK);
    args.mask = (uint8_t *)&v;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_APPLY, &args), DPB_OK);
}

/* Each takes what the header says it reads and writes, and no more. */
static void test_args_of_batchnorm_in_halves(void **state)
{
    float v = 0.0f;
    struct dpb_tensor t = dpb_tensor_2d(&v, 1, 4);
    struct dpb_batchnorm_args stats = {.x = t, .save_mean = &v, .save_var = &v};
    struct dpb_batchnorm_args apply = stats, sums, gradient;

    (void)state;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_STATS, &stats), DPB_OK);
    stats.save_var = NULL;
    op_assert_misfit(DPB_OP_BATCHNORM_STATS, &stats, "save_var is NULL");

    apply.y = t;
    apply.gamma = apply.beta = &v;
    apply.eps = 1e-5f;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_APPLY, &apply), DPB_OK);

    sums = apply;
    sums.gamma = sums.beta = NULL;
    sums.y.data = NULL;
    sums.dy = t;
    sums.dgamma = sums.dbeta = &v;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_BWD_SUMS, &sums), DPB_OK);
    gradient = sums;
    sums.dy.dim[0] = 2;
    op_assert_misfit(DPB_OP_BATCHNORM_BWD_SUMS, &sums, "dy should be [1,4]");
    apply.eps = 0.0f;
    op_assert_misfit(DPB_OP_BATCHNORM_APPLY, &apply, "eps is not above 0");

    gradient.dx = t;
    gradient.count = 2.0;
    op_assert_misfit(DPB_OP_BATCHNORM_BWD_APPLY, &gradient, "gamma is NULL");
    gradient.gamma = &v;
    assert_int_equal(dpb_op_args_check(DPB_OP_BATCHNORM_BWD_APPLY, &gradient), DPB_OK);
    gradient.count = 0.0;
    op_assert_misfit(DPB_OP_BATCHNORM_BWD_APPLY, &gradient, "count is below 1");
}

/* Which tensors may be bf16 beside which: the table at the head of dpb_device.h. */
static void test_args_of_bf16(void **state)
{
    float v = 0.0f;
    struct dpb_tensor wide = dpb_tensor_2d(&v, 2, 2), t = {&v, DPB_BF16, 2, {2, 2}};
    struct dpb_tensor image = {&v, DPB_BF16, 4, {1, 1, 1, 1}}, wide_image = image;
    struct dpb_matmul_args matmul = {.a = t, .b = t, .c = t};
    struct dpb_conv_args conv = {.x = image, .w = image, .y = image, .stride = 1};
    struct dpb_embedding_args rows = {
            .table = t, .dtable = t, .y = t, .dy = t, .ids = (const int32_t *)&v};
    struct dpb_cast_args cast = {.from = t, .to = wide};
    struct dpb_softmax_xent_args loss = {
            .logits = t, .prob = t, .label = (const int32_t *)&v, .loss = &v};

    (void)state;
    wide_image.dtype = DPB_F32;
    assert_int_equal(dpb_op_args_check(DPB_OP_MATMUL, &matmul), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_MATMUL, &matmul), DPB_BF16);
    matmul.c = wide;
    assert_int_equal(dpb_op_args_check(DPB_OP_MATMUL, &matmul), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_MATMUL, &matmul), DPB_BF16);
    matmul.b = wide;
    op_assert_misfit(DPB_OP_MATMUL, &matmul, "b is not bf16 like the others");

    assert_int_equal(dpb_op_args_check(DPB_OP_CONV_FWD, &conv), DPB_OK);
    op_assert_misfit(DPB_OP_CONV_BWD_WEIGHTS, &conv, "w is not fp32");
    conv.w = wide_image;
    assert_int_equal(dpb_op_args_check(DPB_OP_CONV_BWD_WEIGHTS, &conv), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_CONV_BWD_WEIGHTS, &conv), DPB_BF16);
    op_assert_misfit(DPB_OP_CONV_FWD, &conv, "w is not bf16 like the others");

    assert_int_equal(dpb_op_args_check(DPB_OP_EMBEDDING_FWD, &rows), DPB_OK);
    op_assert_misfit(DPB_OP_EMBEDDING_BWD, &rows, "dtable is not fp32");
    rows.table = rows.dtable = wide;
    assert_int_equal(dpb_op_args_check(DPB_OP_EMBEDDING_FWD, &rows), DPB_OK);
    assert_int_equal(dpb_op_args_check(DPB_OP_EMBEDDING_BWD, &rows), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_EMBEDDING_BWD, &rows), DPB_BF16);

    op_assert_misfit(DPB_OP_SOFTMAX_XENT_FWD, &loss, "it does not take bf16");
    assert_int_equal(dpb_op_args_check(DPB_OP_CAST, &cast), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_CAST, &cast), DPB_BF16);
    cast.to.dtype = DPB_F64;
    op_assert_misfit(DPB_OP_CAST, &cast, "between fp32 and bf16 or fp16 only");
    cast.to.dtype = DPB_F16;
    op_assert_misfit(DPB_OP_CAST, &cast, "between fp32 and bf16 or fp16 only");
    cast.from = wide;
    assert_int_equal(dpb_op_args_check(DPB_OP_CAST, &cast), DPB_OK);
    assert_int_equal(dpb_op_args_dtype(DPB_OP_CAST, &cast), DPB_F16);
    matmul.a.dtype = matmul.b.dtype = matmul.c.dtype = DPB_F16;
    assert_int_equal(dpb_op_args_check(DPB_OP_MATMUL, &matmul), DPB_OK);
    matmul.c.dtype = DPB_F32;
    assert_int_equal(dpb_op_args_check(DPB_OP_MATMUL, &matmul), DPB_OK);
    matmul.c.dtype = DPB_BF16;
    op_assert_misfit(DPB_OP_MATMUL, &matmul, "");
    cast.from = t;
    cast.to = dpb_tensor_1d(&v, 4);
    op_assert_misfit(DPB_OP_CAST, &cast, "to has rank 1, needs 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_ops_check_rejects_broken_tables),
            cmocka_unit_test(test_ops_check_looks_at_the_option_table),
            cmocka_unit_test(test_tensors),
            cmocka_unit_test(test_texts),
            cmocka_unit_test(test_args_in_general),
            cmocka_unit_test(test_args_of_zeros),
            cmocka_unit_test(test_args_of_matmul),
            cmocka_unit_test(test_args_of_conv),
            cmocka_unit_test(test_args_of_pool),
            cmocka_unit_test(test_args_of_the_others),
            cmocka_unit_test(test_args_of_batchnorm),
            cmocka_unit_test(test_args_of_batchnorm_with_relu),
            cmocka_unit_test(test_args_of_batchnorm_in_halves),
            cmocka_unit_test(test_args_of_bf16),
    };

    return DPB_RUN_TESTS(tests);
}
