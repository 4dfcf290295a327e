/* Convolutions and pooling of the CPU device against the reference. */
#include "cpu_ops.h"
#include "cpu_pair.h"
#include "dpb_device_cpu.h"
#include "op_data.h"

struct conv_case {
    int64_t n, h, w, i, o, kh, kw;
    int stride, pad;
    bool bias, relu;
};

static const struct conv_case conv_cases[] = {
        /* mnist-cnn */
        {4, 28, 28, 1, 32, 3, 3, 1, 0, true, true},
        {4, 26, 26, 32, 64, 3, 3, 1, 0, true, true},
        /* ResNet: stem, 3x3, 3x3 strided, 1x1, 1x1 strided */
        {1, 64, 64, 3, 64, 7, 7, 2, 3, false, false},
        {1, 28, 28, 64, 64, 3, 3, 1, 1, false, false},
        {2, 28, 28, 32, 48, 3, 3, 2, 1, false, false},
        {2, 14, 14, 64, 32, 1, 1, 1, 0, false, false},
        {1, 14, 14, 32, 64, 1, 1, 2, 0, false, false},
        {2, 9, 7, 5, 6, 1, 1, 3, 0, true, true},
        {2, 7, 7, 64, 64, 3, 3, 1, 1, false, false},
        /* CIFAR ResNet-20 */
        {3, 32, 32, 3, 16, 3, 3, 1, 1, false, true},
        {2, 32, 32, 16, 32, 3, 3, 2, 1, true, false},
        /* odd numbers of everything */
        {1, 5, 7, 5, 7, 3, 3, 1, 1, true, false},
        {3, 9, 8, 3, 5, 2, 3, 2, 1, true, true},
        {2, 11, 11, 7, 17, 5, 5, 3, 2, true, false},
        {1, 13, 9, 1, 1, 3, 3, 1, 0, true, true},
        /* rows and columns that no window covers; padding 3 */
        {2, 10, 10, 4, 4, 3, 3, 2, 0, true, false},
        /* the same but for one thing each: they need kernels of their own */
        {2, 10, 10, 4, 4, 3, 3, 2, 1, true, false},
        {2, 10, 10, 4, 4, 3, 3, 1, 0, true, false},
        {2, 10, 10, 4, 4, 3, 3, 2, 0, false, false},
        {2, 10, 10, 4, 4, 3, 3, 2, 0, true, true},
        {1, 8, 8, 2, 3, 7, 7, 1, 3, true, true},
        /* single pixels and elements */
        {1, 1, 1, 1, 1, 1, 1, 1, 0, true, false},
        {1, 1, 1, 3, 2, 3, 3, 1, 1, true, true},
        /* 1x1 with bias and ReLU; with padding; with many rows, dnnl_sgemm's turn */
        {3, 5, 5, 9, 11, 1, 1, 1, 0, true, true},
        {1, 4, 4, 3, 2, 1, 1, 1, 1, true, false},
        {2, 72, 64, 16, 9, 1, 1, 1, 0, true, false},
        /* packed activations */
        {1, 26, 31, 32, 16, 3, 3, 1, 1, true, true},
        {1, 17, 15, 48, 32, 3, 3, 2, 1, true, false},
        /* unfolded: several blocks and a rest; with and without bias and ReLU; kernels wider than
         * the image; no padding; pixels that no window covers */
        {3, 13, 14, 32, 33, 3, 3, 1, 1, true, true},
        {1, 13, 14, 40, 32, 2, 3, 1, 2, true, false},
        {1, 13, 14, 32, 47, 3, 3, 1, 0, false, true},
        {2, 3, 2, 32, 40, 5, 5, 1, 2, false, false},
        {2, 12, 12, 35, 32, 3, 2, 3, 0, true, false},
        {1, 6, 1, 32, 32, 5, 5, 1, 3, false, false},
        {2, 12, 13, 128, 130, 1, 1, 1, 0, true, false},
        {2, 29, 30, 130, 128, 1, 1, 2, 0, false, false},
};

static void check_conv(const struct conv_case *s)
{
    struct op_data data = {0};
    int64_t oh = (s->h + 2 * s->pad - s->kh) / s->stride + 1;
    int64_t ow = (s->w + 2 * s->pad - s->kw) / s->stride + 1;
    int64_t xn = s->n * s->h * s->w * s->i, wn = s->o * s->i * s->kh * s->kw;
    int64_t yn = s->n * oh * ow * s->o, window = s->kh * s->kw;
    float *x = op_data_f32(&data, xn), *w = op_data_f32(&data, wn), *dy = op_data_f32(&data, yn);
    float *bias = op_data_f32(&data, s->o);
    float *x_abs = op_data_abs(&data, x, xn), *w_abs = op_data_abs(&data, w, wn);
    float *dy_abs = op_data_abs(&data, dy, yn), *bias_abs = op_data_abs(&data, bias, s->o);
    /* [0] reference, [1] its sums of absolute values, [2] device */
    float *y[3], *dx[3], *dw[3], *db[3];
    struct dpb_conv_args args = {.x = dpb_tensor_4d(x, s->n, s->h, s->w, s->i),
                                 .w = dpb_tensor_4d(w, s->o, s->i, s->kh, s->kw),
                                 .y = dpb_tensor_4d(NULL, s->n, oh, ow, s->o),
                                 .stride = s->stride,
                                 .pad = s->pad};
    char what[160];

    for (int run = 0; run < 3; run++) {
        y[run] = op_data_f32(&data, yn);
        dx[run] = op_data_f32(&data, xn);
        dw[run] = op_data_f32(&data, wn);
        db[run] = op_data_f32(&data, s->o);
    }
    for (int run = 0; run < 2 + 2; run++) {
        int set = run < 2 ? run : 2;
        dpb_device *on = run < 2 ? NULL : cpu_pair[run - 2];
        struct dpb_conv_args fwd = args, bwd_data = args, bwd_weights = args;
        const struct op_output y_out[] = {FLOATS(y[set], yn)};
        const struct op_output dx_out[] = {FLOATS(dx[set], xn)};
        const struct op_output dw_out[] = {FLOATS(dw[set], wn), FLOATS(db[set], s->o)};

        fwd.x.data = bwd_weights.x.data = run == 1 ? x_abs : x;
        fwd.w.data = bwd_data.w.data = run == 1 ? w_abs : w;
        fwd.bias = !s->bias ? NULL : run == 1 ? bias_abs : bias;
        fwd.relu = s->relu;
        fwd.y.data = y[set];
        bwd_data.y.data = bwd_weights.y.data = run == 1 ? dy_abs : dy;
        bwd_data.x.data = dx[set];
        bwd_weights.w.data = dw[set];
        bwd_weights.bias = s->bias ? db[set] : NULL;
        op_run(on, DPB_OP_CONV_FWD, &fwd, y_out, 1);
        op_run(on, DPB_OP_CONV_BWD_DATA, &bwd_data, dx_out, 1);
        op_run(on, DPB_OP_CONV_BWD_WEIGHTS, &bwd_weights, dw_out, s->bias ? 2 : 1);
        if (run < 2)
            continue;
        snprintf(what, sizeof(what), "conv %zu, device %d", (size_t)(s - conv_cases), run - 2);
        op_assert_close(what, y[2], y[0], y[1], yn, op_ulps_of_sum(window * s->i));
        op_assert_close(what, dx[2], dx[0], dx[1], xn, op_ulps_of_sum(window * s->o));
        op_assert_close(what, dw[2], dw[0], dw[1], wn, op_ulps_of_sum(s->n * oh * ow));
        if (s->bias)
            op_assert_close(what, db[2], db[0], db[1], s->o, op_ulps_of_sum(s->n * oh * ow));
    }
    op_data_release(&data);
}

void test_conv(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(conv_cases) / sizeof(conv_cases[0]); i++)
        check_conv(&conv_cases[i]);
}

/* Free to choose, oneDNN to 3.1 takes Winograd's algorithm for such shapes where it has AVX-512.
 * Its transforms of 6x6 tiles multiply by up to 8 and add up to 6 terms, thrice: errors are some
 * tens of times those of the direct sum (Barabasz et al. 2020, arXiv:1803.10986), and far below
 * this. */
void test_conv_algorithm_auto(void **state)
{
    const struct dpb_device_cpu_options options = {.conv_algorithm = DPB_CONV_AUTO};
    const struct dpb_device_config config = {.local_size = 1, .threads = 1, .options = &options};
    static const enum dpb_op ops[] = {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA,
                                      DPB_OP_CONV_BWD_WEIGHTS};
    const int64_t numel = 16 * 28 * 28 * 64, weights = 64 * 64 * 9, terms = 16 * 28 * 28;
    struct op_data data = {0};
    dpb_device *device;
    dpb_json *json;

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    json = dpb_device_cpu_ops.describe(device);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "conv_algorithm"), ""), "auto");
    for (int i = 0; i < 3; i++) {
        float *x = op_data_f32(&data, numel), *w = op_data_f32(&data, weights);
        float *y = op_data_f32(&data, numel), *other = op_data_f32(&data, numel);
        struct dpb_conv_args args = {.x = dpb_tensor_4d(x, 16, 28, 28, 64),
                                     .w = dpb_tensor_4d(w, 64, 64, 3, 3),
                                     .y = dpb_tensor_4d(y, 16, 28, 28, 64),
                                     .stride = 1,
                                     .pad = 1};
        struct dpb_tensor *out = i == 0 ? &args.y : i == 1 ? &args.x : &args.w;
        int64_t count = dpb_tensor_numel(out);
        float *direct = out->data;
        const struct op_output from_direct[] = {FLOATS(direct, count)};
        const struct op_output from_auto[] = {FLOATS(other, count)};

        op_run(cpu_pair[0], ops[i], &args, from_direct, 1);
        out->data = other;
        op_run(device, ops[i], &args, from_auto, 1);
        op_assert_close("conv, algorithm auto", other, direct, NULL, count,
                        100.0 * (double)(i == 2 ? terms : 576));
    }
    dpb_json_free(json);
    dpb_device_cpu_ops.close(device);
    op_data_release(&data);
}

/* Kernels share buffers: one that is made later, and is larger, must not disturb an earlier one. */
void test_kernels_share_buffers(void **state)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, 4L * 26 * 26 * 32), *w = op_data_f32(&data, 64L * 32 * 9);
    float *y = op_data_f32(&data, 4L * 24 * 24 * 64), *first = op_data_f32(&data, 16L * 16 * 9);
    float *again = op_data_f32(&data, 16L * 16 * 9);
    dpb_device *fresh = NULL;
    struct dpb_device_config config = {.local_size = 1, .threads = 1};
    struct dpb_conv_args small = {.x = dpb_tensor_4d(x, 1, 6, 6, 16),
                                  .w = dpb_tensor_4d(first, 16, 16, 3, 3),
                                  .y = dpb_tensor_4d(y, 1, 4, 4, 16),
                                  .stride = 1};
    struct dpb_conv_args large = {.x = dpb_tensor_4d(x, 4, 26, 26, 32),
                                  .w = dpb_tensor_4d(w, 64, 32, 3, 3),
                                  .y = dpb_tensor_4d(y, 4, 24, 24, 64),
                                  .stride = 1};

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &fresh), DPB_OK);
    assert_int_equal(dpb_op_launch(fresh, DPB_OP_CONV_BWD_WEIGHTS, &small, NULL), DPB_OK);
    assert_int_equal(dpb_op_launch(fresh, DPB_OP_CONV_BWD_WEIGHTS, &large, NULL), DPB_OK);
    small.w.data = again;
    assert_int_equal(dpb_op_launch(fresh, DPB_OP_CONV_BWD_WEIGHTS, &small, NULL), DPB_OK);
    op_assert_same(again, first, 16L * 16 * 9);
    dpb_device_cpu_ops.close(fresh);
    op_data_release(&data);
}

/* ---- pooling ---- */

static void check_pool(const int64_t *s) /* n h w c kernel stride pad */
{
    struct op_data data = {0};
    int kernel = (int)s[4], stride = (int)s[5], pad = (int)s[6];
    int64_t oh = (s[1] + 2 * pad - kernel) / stride + 1;
    int64_t ow = (s[2] + 2 * pad - kernel) / stride + 1;
    int64_t xn = s[0] * s[1] * s[2] * s[3], yn = s[0] * oh * ow * s[3];
    float *x = op_data_f32(&data, xn), *dy = op_data_f32(&data, yn);
    float *y[2], *dx[2], *mean[2], *dmean[2];
    uint8_t *index[2];

    /* ties: a quarter of the values; the first of a window has to win */
    for (int64_t i = 0; i < xn; i++)
        x[i] = i % 4 ? x[i] : 0.75f;
    for (int set = 0; set < 2; set++) {
        y[set] = op_data_f32(&data, yn);
        dx[set] = op_data_f32(&data, xn);
        mean[set] = op_data_f32(&data, yn);
        dmean[set] = op_data_f32(&data, xn);
        index[set] = op_data_bytes(&data, (size_t)yn);
    }
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_pool_args fwd = {.x = dpb_tensor_4d(x, s[0], s[1], s[2], s[3]),
                                    .y = dpb_tensor_4d(y[set], s[0], oh, ow, s[3]),
                                    .index = index[set],
                                    .kernel = kernel,
                                    .stride = stride,
                                    .pad = pad};
        struct dpb_pool_args bwd = fwd, avg = fwd, davg = fwd;
        const struct op_output y_out[] = {FLOATS(y[set], yn), {index[set], (size_t)yn, NULL}};
        const struct op_output dx_out[] = {FLOATS(dx[set], xn)};
        const struct op_output mean_out[] = {FLOATS(mean[set], yn)};
        const struct op_output dmean_out[] = {FLOATS(dmean[set], xn)};

        bwd.x.data = dx[set];
        davg.x.data = dmean[set];
        bwd.y.data = davg.y.data = dy;
        avg.y.data = mean[set];
        op_run(on, DPB_OP_POOL_MAX_FWD, &fwd, y_out, 2);
        op_run(on, DPB_OP_POOL_MAX_BWD, &bwd, dx_out, 1);
        op_run(on, DPB_OP_POOL_AVG_FWD, &avg, mean_out, 1);
        op_run(on, DPB_OP_POOL_AVG_BWD, &davg, dmean_out, 1);
        if (run == 0)
            continue;
        assert_memory_equal(y[1], y[0], (size_t)yn * sizeof(float)); /* chosen, not computed */
        assert_memory_equal(index[1], index[0], (size_t)yn);
        /* values below 1; a sum of kernel^2 of them, or of the windows over one element */
        op_assert_close("pool-max-bwd", dx[1], dx[0], NULL, xn, 8.0 * kernel);
        op_assert_close("pool-avg-fwd", mean[1], mean[0], NULL, yn, 8.0 + kernel);
        op_assert_close("pool-avg-bwd", dmean[1], dmean[0], NULL, xn, 8.0 + kernel);

        fwd.index = NULL; /* inference */
        op_run(on, DPB_OP_POOL_MAX_FWD, &fwd, y_out, 1);
        assert_memory_equal(y[1], y[0], (size_t)yn * sizeof(float));
    }
    op_data_release(&data);
}

void test_pool(void **state)
{
    static const int64_t shapes[][7] = {
            {4, 24, 24, 64, 2, 2, 0}, /* mnist-cnn */
            {2, 17, 15, 65, 3, 2, 1}, /* ResNet's stem, odd */
            {2, 7, 7, 130, 7, 1, 0},  /* ResNet's global average */
            {1, 9, 9, 3, 2, 2, 0},    /* a row and a column left over */
            {3, 5, 6, 1, 3, 1, 1},    /* one channel */
            {1, 11, 11, 2, 2, 4, 0},  /* gaps */
            {1, 15, 15, 2, 15, 15, 7}, {1, 4, 4, 5, 1, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        check_pool(shapes[i]);
}
