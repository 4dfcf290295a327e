/* The CPU device against the reference, for every operator, with one and two threads.
 *
 * Limits. A sum of K products in fp32 is off by at most about K 2^-24 sum|products|, and by about
 * sqrt(K) of it when the roundings are independent; vector code sums in many short chains, which is
 * less still. So (8 + sqrt(K)) 2^-24 sum|products| is demanded, with sum|products| computed by the
 * reference on absolute values. */
#include <math.h>

#include "cpu_pair.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_data.h"

/* ---- convolution ---- */

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

static void test_conv(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(conv_cases) / sizeof(conv_cases[0]); i++)
        check_conv(&conv_cases[i]);
}

/* Free to choose, oneDNN to 3.1 takes Winograd's algorithm for such shapes where it has AVX-512.
 * Its transforms of 6x6 tiles multiply by up to 8 and add up to 6 terms, thrice: errors are some
 * tens of times those of the direct sum (Barabasz et al. 2020, arXiv:1803.10986), and far below
 * this. */
static void test_conv_algorithm_auto(void **state)
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

/* ---- matmul ---- */

struct matmul_case {
    int64_t m, n, k;
    bool trans_a, trans_b, bias, relu;
    float beta;
};

static const struct matmul_case matmul_cases[] = {
        /* mnist-cnn fc1: forward, data gradient, weight gradient; fc2 */
        {64, 128, 9216, false, true, true, true, 0.0f},
        {8, 9216, 128, false, false, false, false, 0.0f},
        {128, 300, 64, true, false, false, false, 0.0f},
        {64, 10, 128, false, true, true, false, 0.0f},
        /* odd, single, accumulating */
        {1, 1, 1, false, false, true, true, 0.0f},
        {7, 5, 3, false, false, true, false, 1.0f},
        {7, 5, 3, false, false, true, false, 0.5f},
        {7, 5, 3, false, false, true, false, 0.0f},
        {7, 5, 3, false, false, true, true, 1.0f},
        {7, 5, 3, false, false, false, false, 1.0f},
        {7, 5, 3, true, true, false, true, 1.0f},
        {13, 17, 19, true, true, true, true, 0.0f},
        {1, 33, 65, false, true, true, false, 1.0f},
        {31, 1, 7, true, false, false, false, 0.5f},
        {16, 16, 16, false, false, true, true, 1.0f},
        /* a weight gradient over many rows: dnnl_sgemm, also accumulating */
        {9, 16, 8200, true, false, false, false, 0.0f},
        {9, 16, 8200, true, false, false, false, 1.0f},
        /* rows of a multiple of 4096 bytes, and wide with a long sum: dnnl_sgemm too */
        {5, 1024, 33, false, false, false, false, 0.0f},
        {5, 1024, 33, true, false, false, false, 1.0f},
        {65, 513, 300, false, false, false, false, 0.5f},
        {65, 513, 300, true, false, false, false, 0.0f},
        /* rows that are spread first, of one factor and of both */
        {130, 256, 70, false, false, true, true, 0.0f},
        {130, 512, 70, false, false, false, false, 1.0f},
        {128, 512, 70, true, false, false, false, 0.5f},
        {512, 128, 70, true, false, true, false, 0.0f},
        {513, 128, 70, true, false, false, false, 1.0f},
};

static void check_matmul(const struct matmul_case *s)
{
    struct op_data data = {0};
    int64_t an = s->m * s->k, bn = s->k * s->n, cn = s->m * s->n;
    float *a = op_data_f32(&data, an), *b = op_data_f32(&data, bn), *c0 = op_data_f32(&data, cn);
    float *bias = op_data_f32(&data, s->n), *c[3];
    float *a_abs = op_data_abs(&data, a, an), *b_abs = op_data_abs(&data, b, bn);
    float *c0_abs = op_data_abs(&data, c0, cn), *bias_abs = op_data_abs(&data, bias, s->n);
    char what[64];

    for (int run = 0; run < 3; run++)
        c[run] = op_data_f32(&data, cn);
    for (int run = 0; run < 2 + 2; run++) {
        int set = run < 2 ? run : 2;
        float *a_in = run == 1 ? a_abs : a, *b_in = run == 1 ? b_abs : b;
        struct dpb_matmul_args args = {
                .a = s->trans_a ? dpb_tensor_2d(a_in, s->k, s->m) : dpb_tensor_2d(a_in, s->m, s->k),
                .b = s->trans_b ? dpb_tensor_2d(b_in, s->n, s->k) : dpb_tensor_2d(b_in, s->k, s->n),
                .c = dpb_tensor_2d(c[set], s->m, s->n),
                .bias = !s->bias   ? NULL
                        : run == 1 ? bias_abs
                                   : bias,
                .trans_a = s->trans_a,
                .trans_b = s->trans_b,
                .relu = s->relu,
                .beta = s->beta};
        const struct op_output out[] = {{c[set], (size_t)cn * sizeof(float),
                                         s->beta == 0.0f ? NULL
                                         : run == 1      ? c0_abs
                                                         : c0}};

        op_run(run < 2 ? NULL : cpu_pair[run - 2], DPB_OP_MATMUL, &args, out, 1);
        snprintf(what, sizeof(what), "matmul %zu, device %d", (size_t)(s - matmul_cases), run - 2);
        if (run >= 2)
            op_assert_close(what, c[2], c[0], c[1], cn, op_ulps_of_sum(s->k + 2));
    }
    op_data_release(&data);
}

static void test_matmul(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(matmul_cases) / sizeof(matmul_cases[0]); i++)
        check_matmul(&matmul_cases[i]);
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

static void test_pool(void **state)
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

/* ---- batch normalisation ---- */

struct batchnorm_case {
    int rank;
    int64_t dim[4];
};

static const struct batchnorm_case batchnorm_cases[] = {
        {4, {4, 12, 12, 64}}, {4, {2, 7, 7, 33}},   {4, {1, 5, 3, 1}}, {4, {2, 1, 1, 16}},
        {2, {37, 20}},        {4, {3, 9, 11, 130}}, {2, {70, 515}},
};

/* Outputs of one run: y, dx, mask; running and saved mean and variance, dgamma, dbeta. */
struct batchnorm_out {
    float *y, *dx, *dresidual, *channel[6];
    uint8_t *mask;
};

struct batchnorm_data {
    struct op_data data;
    struct dpb_tensor shape;
    int64_t c, numel, m;
    double terms;
    float *x, *dy, *residual, *gamma, *beta, *mean0, *var0;
    bool has_residual;
    struct batchnorm_out out[2]; /* reference, device */
};

static void batchnorm_open(struct batchnorm_data *d, const struct batchnorm_case *s)
{
    *d = (struct batchnorm_data){.shape = {.dtype = DPB_F32, .rank = s->rank}};
    memcpy(d->shape.dim, s->dim, sizeof(s->dim));
    d->c = s->dim[s->rank - 1];
    d->numel = dpb_tensor_numel(&d->shape);
    d->m = d->numel / d->c;
    d->terms = op_ulps_of_sum(d->m);
    d->x = op_data_f32(&d->data, d->numel);
    d->dy = op_data_f32(&d->data, d->numel);
    d->residual = op_data_f32(&d->data, d->numel);
    d->gamma = op_data_f32(&d->data, d->c);
    d->beta = op_data_f32(&d->data, d->c);
    d->mean0 = op_data_f32(&d->data, d->c);
    d->var0 = op_data_abs(&d->data, op_data_f32(&d->data, d->c), d->c);
    for (int64_t i = 0; i < d->numel; i++)
        d->x[i] += 0.5f; /* a mean to subtract */
    for (int set = 0; set < 2; set++) {
        d->out[set].y = op_data_f32(&d->data, d->numel);
        d->out[set].dx = op_data_f32(&d->data, d->numel);
        d->out[set].dresidual = op_data_f32(&d->data, d->numel);
        d->out[set].mask = op_data_bytes(&d->data, (size_t)d->numel);
        for (int i = 0; i < 6; i++)
            d->out[set].channel[i] = op_data_f32(&d->data, d->c);
    }
}

static struct dpb_batchnorm_args batchnorm_args(const struct batchnorm_data *d, int set, bool relu)
{
    const struct batchnorm_out *out = &d->out[set];
    struct dpb_batchnorm_args args = {.x = d->shape,
                                      .y = d->shape,
                                      .dy = d->shape,
                                      .dx = d->shape,
                                      .gamma = d->gamma,
                                      .beta = d->beta,
                                      .running_mean = out->channel[0],
                                      .running_var = out->channel[1],
                                      .save_mean = out->channel[2],
                                      .save_var = out->channel[3],
                                      .dgamma = out->channel[4],
                                      .dbeta = out->channel[5],
                                      .mask = relu ? out->mask : NULL,
                                      .count = (double)d->m,
                                      .eps = 1e-5f,
                                      .momentum = 0.1f,
                                      .training = true,
                                      .relu = relu};

    args.x.data = d->x;
    args.y.data = out->y;
    args.dy.data = d->dy;
    args.dx.data = out->dx;
    if (d->has_residual) {
        args.residual = args.dresidual = d->shape;
        args.residual.data = d->residual;
        args.dresidual.data = out->dresidual;
    }
    return args;
}

/* Values are of order 1, their standard deviation about 0.6: what a mean or variance is off by
 * comes back up to a few times in y and dx. dgamma and dbeta are sums of m such terms. */
static void batchnorm_compare(const struct batchnorm_data *d)
{
    const struct batchnorm_out *want = &d->out[0], *got = &d->out[1];

    op_assert_close("batchnorm mean", got->channel[2], want->channel[2], NULL, d->c,
                    2.0 * d->terms);
    op_assert_close("batchnorm variance", got->channel[3], want->channel[3], NULL, d->c,
                    2.0 * d->terms);
    op_assert_close("batchnorm y", got->y, want->y, NULL, d->numel, 8.0 * d->terms);
    op_assert_close("batchnorm dx", got->dx, want->dx, NULL, d->numel, 16.0 * d->terms);
    if (d->has_residual)
        op_assert_close("batchnorm dresidual", got->dresidual, want->dresidual, NULL, d->numel,
                        0.0);
    op_assert_close("batchnorm dgamma", got->channel[4], want->channel[4], NULL, d->c,
                    d->terms * (double)d->m);
    op_assert_close("batchnorm dbeta", got->channel[5], want->channel[5], NULL, d->c,
                    d->terms * (double)d->m);
}

static void check_batchnorm(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;
    size_t bytes;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    bytes = (size_t)d.c * sizeof(float);
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_batchnorm_args args = batchnorm_args(&d, set, relu);
        float **channel = d.out[set].channel;
        const struct op_output fwd_out[] = {FLOATS(d.out[set].y, d.numel),
                                            {channel[0], bytes, d.mean0},
                                            {channel[1], bytes, d.var0},
                                            FLOATS(channel[2], d.c),
                                            FLOATS(channel[3], d.c)};
        const struct op_output bwd_out[] = {FLOATS(d.out[set].dx, d.numel), FLOATS(channel[4], d.c),
                                            FLOATS(channel[5], d.c),
                                            FLOATS(d.out[set].dresidual, d.numel)};

        op_run(on, DPB_OP_BATCHNORM_FWD, &args, fwd_out, 5);
        op_run(on, DPB_OP_BATCHNORM_BWD, &args, bwd_out, residual ? 4 : 3);
        if (run == 0)
            continue;
        batchnorm_compare(&d);
        for (int i = 0; i < 2; i++)
            op_assert_close("batchnorm running statistics", d.out[1].channel[i],
                            d.out[0].channel[i], NULL, d.c, 2.0 * d.terms);
    }
    op_data_release(&d.data);
}

/* From the same statistics; it may write y only. */
static void check_batchnorm_inference(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        struct dpb_batchnorm_args args = {.x = d.shape,
                                          .y = d.shape,
                                          .gamma = d.gamma,
                                          .beta = d.beta,
                                          .running_mean = d.mean0,
                                          .running_var = d.var0,
                                          .eps = 1e-2f,
                                          .relu = relu};
        const struct op_output out[] = {FLOATS(d.out[set].y, d.numel)};

        args.x.data = d.x;
        args.y.data = d.out[set].y;
        args.residual = d.shape;
        args.residual.data = residual ? d.residual : NULL;
        op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_BATCHNORM_FWD, &args, out, 1);
        if (run > 0) /* |y| < 2 + 2.5 / sqrt(eps) */
            op_assert_close("batchnorm inference", d.out[1].y, d.out[0].y, NULL, d.numel,
                            8.0 * 27.0);
    }
    op_data_release(&d.data);
}

/* In halves, with the sums of three such batches. */
static void check_batchnorm_halves(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_batchnorm_args args = batchnorm_args(&d, set, relu);
        float **channel = d.out[set].channel;
        const struct op_output stats[] = {FLOATS(channel[2], d.c), FLOATS(channel[3], d.c)};
        const struct op_output y[] = {FLOATS(d.out[set].y, d.numel)};
        const struct op_output sums[] = {FLOATS(channel[4], d.c), FLOATS(channel[5], d.c),
                                         FLOATS(d.out[set].dresidual, d.numel)};
        const struct op_output dx[] = {FLOATS(d.out[set].dx, d.numel)};

        args.count = 3.0 * (double)d.m;
        op_run(on, DPB_OP_BATCHNORM_STATS, &args, stats, 2);
        op_run(on, DPB_OP_BATCHNORM_APPLY, &args, y, 1);
        op_run(on, DPB_OP_BATCHNORM_BWD_SUMS, &args, sums, residual ? 3 : 2);
        op_run(on, DPB_OP_BATCHNORM_BWD_APPLY, &args, dx, 1);
        if (run > 0)
            batchnorm_compare(&d);
    }
    op_data_release(&d.data);
}

static void test_batchnorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(batchnorm_cases) / sizeof(batchnorm_cases[0]); i++) {
        for (int variant = 0; variant < 4; variant++) {
            bool relu = variant & 1, residual = variant & 2;

            check_batchnorm(&batchnorm_cases[i], relu, residual);
            check_batchnorm_inference(&batchnorm_cases[i], relu, residual);
            check_batchnorm_halves(&batchnorm_cases[i], relu, residual);
        }
    }
}

static void test_batchnorm_threads_change_no_bit(void **state)
{
    static const struct batchnorm_case shape = {2, {70, 515}}; /* work for two, in odd parts */
    struct batchnorm_data d;

    (void)state;
    batchnorm_open(&d, &shape);
    d.has_residual = true;
    for (int run = 0; run < 2; run++) {
        struct dpb_batchnorm_args args = batchnorm_args(&d, run, true);

        assert_int_equal(dpb_op_launch(cpu_pair[run], DPB_OP_BATCHNORM_FWD, &args, NULL), DPB_OK);
        assert_int_equal(dpb_op_launch(cpu_pair[run], DPB_OP_BATCHNORM_BWD, &args, NULL), DPB_OK);
    }
    for (int i = 2; i < 6; i++)
        assert_memory_equal(d.out[0].channel[i], d.out[1].channel[i], (size_t)d.c * sizeof(float));
    assert_memory_equal(d.out[0].y, d.out[1].y, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dx, d.out[1].dx, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dresidual, d.out[1].dresidual, (size_t)d.numel * sizeof(float));
    op_data_release(&d.data);
}

/* dresidual may be dy itself. */
static void test_batchnorm_residual_in_place(void **state)
{
    struct batchnorm_data d;

    (void)state;
    batchnorm_open(&d, &batchnorm_cases[0]);
    d.has_residual = true;
    for (int run = 0; run < 2; run++) {
        struct dpb_batchnorm_args args = batchnorm_args(&d, 1, true);

        assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_FWD, &args, NULL), DPB_OK);
        if (run == 1)
            args.dresidual.data = d.dy;
        args.dx.data = d.out[run].dx;
        args.dgamma = d.out[run].channel[4];
        args.dbeta = d.out[run].channel[5];
        assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_BWD, &args, NULL), DPB_OK);
    }
    assert_memory_equal(d.dy, d.out[1].dresidual, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dx, d.out[1].dx, (size_t)d.numel * sizeof(float));
    for (int i = 4; i < 6; i++)
        assert_memory_equal(d.out[0].channel[i], d.out[1].channel[i], (size_t)d.c * sizeof(float));
    op_data_release(&d.data);
}

/* All channels are constant, far from 0: the variance is 0, and no rounding may make it negative or
 * a NaN. */
static void test_batchnorm_statistics_do_not_cancel(void **state)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, 1000 * 24), *mean = op_data_f32(&data, 24);
    float *var = op_data_f32(&data, 24);
    struct dpb_batchnorm_args args = {
            .x = dpb_tensor_2d(x, 1000, 24), .save_mean = mean, .save_var = var};

    (void)state;
    for (int64_t i = 0; i < 1000 * 24; i++)
        x[i] = 4096.0f;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_STATS, &args, NULL), DPB_OK);
    for (int j = 0; j < 24; j++) {
        assert_true(mean[j] == 4096.0f);
        assert_true(var[j] == 0.0f);
    }
    op_data_release(&data);
}

/* ---- cast ---- */

static void check_cast(int64_t numel, enum dpb_dtype dtype)
{
    struct op_data data = {0};
    float *wide = op_data_f32(&data, numel), *back[2];
    uint16_t *narrow[2];

    for (int set = 0; set < 2; set++) {
        narrow[set] = op_data_bytes(&data, (size_t)numel * sizeof(uint16_t));
        back[set] = op_data_f32(&data, numel);
    }
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_tensor from = dpb_tensor_1d(wide, numel), to = dpb_tensor_1d(NULL, numel);
        struct dpb_tensor half = {narrow[set], dtype, 1, {numel}};
        const struct op_output halves[] = {{narrow[set], (size_t)numel * sizeof(uint16_t), NULL}};
        const struct op_output floats[] = {FLOATS(back[set], numel)};

        to.data = back[set];
        op_run(on, DPB_OP_CAST, &(struct dpb_cast_args){from, half}, halves, 1);
        op_run(on, DPB_OP_CAST, &(struct dpb_cast_args){half, to}, floats, 1);
        assert_memory_equal(narrow[0], narrow[set], (size_t)numel * sizeof(uint16_t));
        op_assert_same(back[set], back[0], numel);
    }
    /* The same type: a copy. */
    for (int run = 0; run < 3; run++) {
        struct dpb_cast_args args = {dpb_tensor_1d(wide, numel), dpb_tensor_1d(back[0], numel)};
        const struct op_output floats[] = {FLOATS(back[0], numel)};

        op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_CAST, &args, floats, 1);
        op_assert_same(back[0], wide, numel);
    }
    op_data_release(&data);
}

static void test_cast(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum dpb_dtype dtype = i ? DPB_F16 : DPB_BF16;

        check_cast(1, dtype);
        check_cast(67, dtype);
        check_cast(100003, dtype);
    }
}

/* Ties, infinities, the largest numbers, subnormal ones, NaN: device and reference alike. */
static void test_cast_of_special_values(void **state)
{
    static const uint32_t bits[] = {
            0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0xbf808000,
            0x7f800000, 0xff800000, 0x7f7fffff, 0x7f7f7fff, 0x00000001, 0x00008000,
            0x00018000, 0x80018001, 0x007fffff, 0x80000000, 0x7fc00000, 0x7f800001,
    };
    static const uint16_t want[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf80, 0x7f80, 0xff80,
                                    0x7f80, 0x7f7f, 0x0000, 0x0000, 0x0002, 0x8002, 0x0080, 0x8000};
    enum {
        N = sizeof(bits) / sizeof(bits[0])
    };
    float from[N];
    uint16_t to[2][N];

    (void)state;
    memcpy(from, bits, sizeof(from));
    for (int set = 0; set < 2; set++) {
        struct dpb_cast_args args = {dpb_tensor_1d(from, N), {to[set], DPB_BF16, 1, {N}}};

        assert_int_equal(set ? dpb_op_launch(cpu_pair[0], DPB_OP_CAST, &args, NULL)
                             : dpb_reference_op(DPB_OP_CAST, &args),
                         DPB_OK);
        /* The last two are not a number, of whatever bits. */
        assert_memory_equal(to[set], want, (N - 2) * sizeof(want[0]));
        for (int i = N - 2; i < N; i++)
            assert_true((to[set][i] & 0x7fffu) > 0x7f80u);
    }
}

/* The same of fp16: also what is too large for it, the smallest numbers and halves of them. */
static void test_cast_of_special_values_to_fp16(void **state)
{
    static const struct {
        float from;
        uint16_t to;
        float back;
    } cases[] = {
            {1.0f, 0x3c00, 1.0f},
            {-2.0f, 0xc000, -2.0f},
            {1.0f + 0x1p-11f, 0x3c00, 1.0f}, /* ties */
            {1.0f + 0x3p-11f, 0x3c02, 1.0f + 0x1p-9f},
            {1.0f + 0x1p-11f + 0x1p-20f, 0x3c01, 1.0f + 0x1p-10f},
            {2047.5f, 0x6800, 2048.0f}, /* carries into the exponent */
            {65504.0f, 0x7bff, 65504.0f},
            {65519.0f, 0x7bff, 65504.0f},
            {65520.0f, 0x7c00, INFINITY},
            {-1e30f, 0xfc00, -INFINITY},
            {INFINITY, 0x7c00, INFINITY},
            {0x1p-14f, 0x0400, 0x1p-14f},
            {0x1p-14f - 0x1p-25f, 0x0400, 0x1p-14f},
            {0x1p-24f, 0x0001, 0x1p-24f},
            {-0x3p-24f, 0x8003, -0x3p-24f},
            {0x1p-25f, 0x0000, 0.0f},
            {0x3p-25f, 0x0002, 0x1p-23f},
            {0x1.01p-25f, 0x0001, 0x1p-24f},
            {1e-38f, 0x0000, 0.0f},
            {-0.0f, 0x8000, -0.0f},
    };
    enum {
        N = sizeof(cases) / sizeof(cases[0])
    };
    float from[N + 1], back[N + 1];
    uint16_t to[N + 1];

    (void)state;
    for (int i = 0; i < N; i++)
        from[i] = cases[i].from;
    from[N] = NAN;
    for (int set = 0; set < 2; set++) {
        struct dpb_tensor half = {to, DPB_F16, 1, {N + 1}};
        struct dpb_cast_args narrow = {dpb_tensor_1d(from, N + 1), half};
        struct dpb_cast_args widen = {half, dpb_tensor_1d(back, N + 1)};
        const struct dpb_cast_args *casts[] = {&narrow, &widen};

        for (int i = 0; i < 2; i++)
            assert_int_equal(set ? dpb_op_launch(cpu_pair[0], DPB_OP_CAST, casts[i], NULL)
                                 : dpb_reference_op(DPB_OP_CAST, casts[i]),
                             DPB_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(to[i], cases[i].to);
            assert_memory_equal(&back[i], &cases[i].back, sizeof(float));
        }
        assert_true(isnan(back[N]));
    }
}

/* ---- the rest ---- */

static void check_relu(int64_t numel)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, numel), *dy = op_data_f32(&data, numel);
    float *y[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};
    float *dx[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};

    x[0] = 0.0f;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_relu_args args = {.x = dpb_tensor_1d(x, numel),
                                     .y = dpb_tensor_1d(y[set], numel),
                                     .dy = dpb_tensor_1d(dy, numel),
                                     .dx = dpb_tensor_1d(dx[set], numel)};
        const struct op_output y_out[] = {FLOATS(y[set], numel)};
        const struct op_output dx_out[] = {FLOATS(dx[set], numel)};
        const struct op_output y_over_x[] = {{y[set], (size_t)numel * sizeof(float), x}};
        const struct op_output dx_over_dy[] = {{dx[set], (size_t)numel * sizeof(float), dy}};

        op_run(on, DPB_OP_RELU_FWD, &args, y_out, 1);
        op_run(on, DPB_OP_RELU_BWD, &args, dx_out, 1);
        op_assert_same(y[set], y[0], numel);
        op_assert_same(dx[set], dx[0], numel);
        args.x.data = y[set];
        op_run(on, DPB_OP_RELU_FWD, &args, y_over_x, 1);
        args.dy.data = dx[set];
        op_run(on, DPB_OP_RELU_BWD, &args, dx_over_dy, 1);
        op_assert_same(y[set], y[0], numel);
        op_assert_same(dx[set], dx[0], numel);
    }
    op_data_release(&data);
}

static void check_bias(int64_t m, int64_t n)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, m * n), *bias = op_data_f32(&data, n);
    float *y[2] = {op_data_f32(&data, m * n), op_data_f32(&data, m * n)};
    float *db[2] = {op_data_f32(&data, n), op_data_f32(&data, n)};

    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_bias_args fwd = {
                .x = dpb_tensor_2d(x, m, n), .y = dpb_tensor_2d(y[set], m, n), .bias = bias};
        struct dpb_bias_args bwd = {.y = dpb_tensor_2d(x, m, n), .bias = db[set]};
        const struct op_output y_out[] = {FLOATS(y[set], m * n)};
        const struct op_output y_over_x[] = {{y[set], (size_t)(m * n) * sizeof(float), x}};
        const struct op_output db_out[] = {FLOATS(db[set], n)};

        op_run(on, DPB_OP_BIAS_FWD, &fwd, y_out, 1);
        op_run(on, DPB_OP_BIAS_BWD, &bwd, db_out, 1);
        /* one rounding of a sum below 2; a sum of m values below 1 */
        op_assert_close("bias-fwd", y[set], y[0], NULL, m * n, 2.0);
        op_assert_close("bias-bwd", db[set], db[0], NULL, n, op_ulps_of_sum(m) * (double)m);
        fwd.x.data = y[set];
        op_run(on, DPB_OP_BIAS_FWD, &fwd, y_over_x, 1);
        op_assert_close("bias-fwd in place", y[set], y[0], NULL, m * n, 2.0);
    }
    op_data_release(&data);
}

static void check_softmax_xent(int64_t m, int64_t c)
{
    struct op_data data = {0};
    float *logits = op_data_f32(&data, m * c);
    float *prob[2] = {op_data_f32(&data, m * c), op_data_f32(&data, m * c)};
    float *dlogits[2] = {op_data_f32(&data, m * c), op_data_f32(&data, m * c)};
    float *loss[2] = {op_data_f32(&data, m), op_data_f32(&data, m)};
    float *place = op_data_f32(&data, m * c);
    int32_t *label = op_data_labels(&data, m, c);
    size_t bytes = (size_t)(m * c) * sizeof(float);

    for (int64_t i = 0; i < m * c; i++)
        logits[i] = 8.0f * logits[i] + (i == 0 ? 1000.0f : 0.0f); /* no overflow */
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_softmax_xent_args args = {.logits = dpb_tensor_2d(logits, m, c),
                                             .prob = dpb_tensor_2d(prob[set], m, c),
                                             .dlogits = dpb_tensor_2d(dlogits[set], m, c),
                                             .label = label,
                                             .loss = loss[set],
                                             .scale = 1.0f / (float)m};
        const struct op_output fwd_out[] = {FLOATS(prob[set], m * c), FLOATS(loss[set], m)};
        const struct op_output bwd_out[] = {FLOATS(dlogits[set], m * c)};
        const struct op_output over_prob[] = {{dlogits[set], bytes, prob[set]}};
        const struct op_output over_logits[] = {{place, bytes, logits}, FLOATS(loss[set], m)};

        op_run(on, DPB_OP_SOFTMAX_XENT_FWD, &args, fwd_out, 2);
        /* The same probabilities for both, to see the backward operator's own error. */
        op_assert_close("softmax", prob[set], prob[0], NULL, m * c, 32.0);
        op_assert_close("cross-entropy", loss[set], loss[0], NULL, 1, 32.0 * 1000.0);
        op_assert_close("cross-entropy", loss[set] + 1, loss[0] + 1, NULL, m - 1, 32.0 * 16.0);
        memcpy(prob[set], prob[0], bytes);
        op_run(on, DPB_OP_SOFTMAX_XENT_BWD, &args, bwd_out, 1);
        op_assert_close("softmax-xent-bwd", dlogits[set], dlogits[0], NULL, m * c, 4.0);
        args.prob.data = dlogits[set];
        op_run(on, DPB_OP_SOFTMAX_XENT_BWD, &args, over_prob, 1);
        op_assert_close("softmax-xent-bwd in place", dlogits[set], dlogits[0], NULL, m * c, 4.0);
        args.logits.data = place;
        args.prob.data = place;
        op_run(on, DPB_OP_SOFTMAX_XENT_FWD, &args, over_logits, 2);
        op_assert_close("softmax in place", place, prob[0], NULL, m * c, 32.0);
    }
    op_data_release(&data);
}

static void check_sgd_and_scale(int64_t count)
{
    struct op_data data = {0};
    float *param0 = op_data_f32(&data, count), *momentum0 = op_data_f32(&data, count);
    float *grad = op_data_f32(&data, count), *kept = op_data_f32(&data, count);
    float *param[2] = {op_data_f32(&data, count), op_data_f32(&data, count)};
    float *momentum[2] = {op_data_f32(&data, count), op_data_f32(&data, count)};
    float *scaled = op_data_f32(&data, count);
    size_t bytes = (size_t)count * sizeof(float);

    memcpy(kept, grad, bytes);
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_sgd_args sgd = {.param = param[set],
                                   .grad = grad,
                                   .momentum = momentum[set],
                                   .count = count,
                                   .lr = 0.1f,
                                   .mu = 0.9f,
                                   .weight_decay = 1e-2f};
        struct dpb_scale_args scale = {.x = scaled, .count = count, .factor = 1.0f / 3.0f};
        const struct op_output sgd_out[] = {{param[set], bytes, param0},
                                            {momentum[set], bytes, momentum0}};
        const struct op_output scale_out[] = {{scaled, bytes, param0}};

        op_run(on, DPB_OP_SGD_MOMENTUM, &sgd, sgd_out, 2);
        /* four roundings of values below 2 */
        op_assert_close("sgd momentum", momentum[set], momentum[0], NULL, count, 8.0);
        op_assert_close("sgd param", param[set], param[0], NULL, count, 4.0);
        op_assert_same(grad, kept, count);
        op_run(on, DPB_OP_SCALE, &scale, scale_out, 1);
        for (int64_t i = 0; i < count; i++) /* one product, rounded once */
            assert_true(scaled[i] == param0[i] * (1.0f / 3.0f));
    }
    op_data_release(&data);
}

/* One value that is not finite is found wherever it is. */
static void check_finite(int64_t count)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct op_data data = {0};
    float *x = op_data_f32(&data, count);

    for (int64_t at = -1; at < count; at += 1 + count / 7) {
        const float kept = at < 0 ? 0.0f : x[at];

        if (at >= 0)
            x[at] = bad[at % 3];
        for (int run = 0; run < 3; run++) {
            int32_t found = 0;
            struct dpb_finite_args args = {.x = x, .count = count, .found = &found};
            const struct op_output out[] = {{&found, sizeof(found), &(const int32_t){0}}};

            op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_FINITE, &args, out, 1);
            assert_int_equal(found, at >= 0);
        }
        if (at >= 0)
            x[at] = kept;
    }
    op_data_release(&data);
}

/* Columns of values up to `scale`, against the reference and as a basis. */
static void check_orthogonalize(int64_t rows, int64_t columns, float scale, float eps)
{
    struct op_data data = {0};
    const int64_t numel = rows * columns;
    float *start = op_data_f32(&data, numel);
    float *x[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};

    for (int64_t i = 0; i < numel; i++)
        start[i] *= scale;
    for (int run = 0; run < 3; run++) {
        const int set = run > 0;
        struct dpb_orthogonalize_args args = {.x = dpb_tensor_2d(x[set], rows, columns),
                                              .eps = eps};
        const struct op_output out[] = {{x[set], (size_t)numel * sizeof(float), start}};

        op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_ORTHOGONALIZE, &args, out, 1);
        /* values of at most 1, with a rounding for every column before, twice */
        op_assert_close("orthogonalize", x[set], x[0], NULL, numel, 4.0 * (double)columns + 4.0);
    }
    for (int64_t a = 0; a < columns && scale > 0.0f && rows >= columns; a++) {
        for (int64_t b = 0; b <= a; b++) {
            double dot = 0.0;

            for (int64_t i = 0; i < rows; i++)
                dot += (double)x[1][i * columns + a] * (double)x[1][i * columns + b];
            assert_true(fabs(dot - (a == b)) < 1e-5 + (double)eps * 4.0 / (double)scale);
        }
    }
    op_data_release(&data);
}

static void test_orthogonalize(void **state)
{
    (void)state;
    check_orthogonalize(1, 1, 1.0f, 0.0f);
    check_orthogonalize(20, 2, 1.0f, 0.0f);
    check_orthogonalize(1000, 3, 100.0f, 0.0f);
    check_orthogonalize(4608, 8, 1e-6f, 0.0f);
    check_orthogonalize(64, 4, 1.0f, 1e-3f);
    check_orthogonalize(64, 4, 0.0f, 0.0f); /* stays 0, and is no NaN */
    check_orthogonalize(64, 4, 0.0f, 1e-8f);
}

static void test_small_operators(void **state)
{
    (void)state;
    check_relu(1);
    check_relu(1001);
    check_relu(100003); /* parts for two threads */
    check_bias(1, 1);
    check_bias(64, 10);
    check_bias(700, 131);
    check_bias(3, 40000);
    check_softmax_xent(3, 7);
    check_softmax_xent(64, 10);
    check_softmax_xent(70, 1000);
    check_sgd_and_scale(1);
    check_sgd_and_scale(1003);
    check_sgd_and_scale(100003);
    check_finite(1);
    check_finite(1003);
    check_finite(100003);
}

/* Kernels share buffers: one that is made later, and is larger, must not disturb an earlier one. */
static void test_kernels_share_buffers(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_conv, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_conv_algorithm_auto, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_matmul, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_pool, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_batchnorm, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_batchnorm_threads_change_no_bit, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_batchnorm_residual_in_place, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_batchnorm_statistics_do_not_cancel, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_cast, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_cast_of_special_values, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_cast_of_special_values_to_fp16, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_small_operators, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_orthogonalize, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test(test_kernels_share_buffers),
    };

    return DPB_RUN_TESTS(tests);
}
