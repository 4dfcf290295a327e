/* The CPU device's operators of image networks in bf16 (op_bf16.h says how closely). */
#include <math.h>

#include "cpu_pair.h"
#include "dpb_reference.h"
#include "op_bf16.h"

#define PART_COUNT(parts) ((int)(sizeof(parts) / sizeof((parts)[0])))

/* ---- convolution ---- */

struct conv_case {
    int64_t n, h, w, i, o, k;
    int stride, pad;
    bool bias, relu;
};

static const struct conv_case conv_cases[] = {
        /* ResNet: stem, 3x3, 3x3 strided, 1x1, 1x1 strided, last stage */
        {1, 40, 40, 3, 64, 7, 2, 3, false, false},
        {2, 14, 14, 64, 64, 3, 1, 1, false, false},
        {2, 28, 28, 32, 48, 3, 2, 1, false, false},
        {2, 14, 14, 64, 32, 1, 1, 0, false, false},
        {1, 14, 14, 32, 64, 1, 2, 0, false, false},
        {3, 7, 7, 64, 64, 3, 1, 1, false, false},
        /* mnist-cnn; odd numbers of everything */
        {2, 28, 28, 1, 32, 3, 1, 0, true, true},
        {2, 26, 26, 32, 64, 3, 1, 0, true, true},
        {1, 5, 7, 5, 7, 3, 1, 1, true, false},
        {2, 11, 11, 7, 17, 5, 3, 2, true, true},
        {3, 5, 5, 9, 11, 1, 1, 0, true, true},
        {1, 1, 1, 1, 1, 1, 1, 0, true, false},
        /* packed activations */
        {1, 26, 31, 32, 16, 3, 1, 1, true, true},
        {1, 17, 15, 48, 32, 3, 2, 1, true, false},
};

static struct dpb_conv_args conv_args(struct op_data *data, const struct conv_case *s)
{
    int64_t oh = (s->h + 2 * s->pad - s->k) / s->stride + 1;
    int64_t ow = (s->w + 2 * s->pad - s->k) / s->stride + 1;
    float *x = op_data_f32(data, s->n * s->h * s->w * s->i);
    float *w = op_data_f32(data, s->o * s->i * s->k * s->k);
    float *y = op_data_f32(data, s->n * oh * ow * s->o);

    return (struct dpb_conv_args){.x = dpb_tensor_4d(x, s->n, s->h, s->w, s->i),
                                  .w = dpb_tensor_4d(w, s->o, s->i, s->k, s->k),
                                  .y = dpb_tensor_4d(y, s->n, oh, ow, s->o),
                                  .bias = s->bias ? op_data_f32(data, s->o) : NULL,
                                  .stride = s->stride,
                                  .pad = s->pad,
                                  .relu = s->relu};
}

/* Values are below 1: the sum of the terms' absolute values is at most their number. */
static void check_conv(const struct conv_case *s)
{
    struct op_data data = {0};
    int64_t window = s->k * s->k;

    for (int i = 0; i < 3; i++) {
        static const enum dpb_op ops[] = {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA,
                                          DPB_OP_CONV_BWD_WEIGHTS};
        bool fwd = i == 0, bwd_data = i == 1, bwd_weights = i == 2;
        struct dpb_conv_args args = conv_args(&data, s);
        int64_t rows = dpb_tensor_numel(&args.y) / s->o;
        double terms = (double)(fwd ? window * s->i : bwd_data ? window * s->o : rows);
        double ulps = op_ulps_of_sum((int64_t)terms) * terms;
        const struct op_part parts[] = {
                {OP_TENSOR(dpb_conv_args, x), .use = bwd_data ? OP_WRITES : OP_READS, .ulps = ulps},
                {OP_TENSOR(dpb_conv_args, w), .use = bwd_weights ? OP_WRITES : OP_READS,
                 .fp32 = bwd_weights, .ulps = ulps},
                {OP_TENSOR(dpb_conv_args, y), .use = fwd ? OP_WRITES : OP_READS, .ulps = ulps},
                {OP_FLOATS(dpb_conv_args, bias, s->o), .use = bwd_weights ? OP_WRITES : OP_READS,
                 .ulps = ulps},
        };

        if (bwd_data)
            args.bias = NULL;
        op_check_bf16(ops[i], &args, sizeof(args), parts, args.bias ? 4 : 3);
    }
    op_data_release(&data);
}

static void test_conv(void **state)
{
    (void)state;
    op_half_need(DPB_OP_CONV_FWD);
    for (int i = 0; i < PART_COUNT(conv_cases); i++)
        check_conv(&conv_cases[i]);
}

/* ---- pooling ---- */

static void check_pool(const int64_t *s) /* n h w c kernel stride pad */
{
    struct op_data data = {0};
    int kernel = (int)s[4], stride = (int)s[5], pad = (int)s[6];
    int64_t oh = (s[1] + 2 * pad - kernel) / stride + 1;
    int64_t ow = (s[2] + 2 * pad - kernel) / stride + 1;
    int64_t xn = s[0] * s[1] * s[2] * s[3], yn = s[0] * oh * ow * s[3];
    float *x = op_data_f32(&data, xn), *y = op_data_f32(&data, yn);
    struct dpb_pool_args args = {.x = dpb_tensor_4d(x, s[0], s[1], s[2], s[3]),
                                 .y = dpb_tensor_4d(y, s[0], oh, ow, s[3]),
                                 .index = op_data_bytes(&data, (size_t)yn),
                                 .kernel = kernel,
                                 .stride = stride,
                                 .pad = pad};
    uint8_t *index = op_data_bytes(&data, (size_t)yn);
    const struct op_part fwd[] = {
            {OP_TENSOR(dpb_pool_args, x), .use = OP_READS},
            {OP_TENSOR(dpb_pool_args, y), .use = OP_WRITES, .ulps = 8.0 + kernel},
    };
    const struct op_part bwd[] = {
            {OP_TENSOR(dpb_pool_args, x), .use = OP_WRITES, .ulps = 8.0 * kernel * kernel},
            {OP_TENSOR(dpb_pool_args, y), .use = OP_READS},
    };

    /* Rounding to bf16 makes ties by itself: the first of a window has to win. */
    op_check_bf16(DPB_OP_POOL_MAX_FWD, &args, sizeof(args), fwd, 2);
    memcpy(index, args.index, (size_t)yn);
    op_run(NULL, DPB_OP_POOL_MAX_FWD, &args, NULL, 0);
    assert_memory_equal(index, args.index, (size_t)yn);
    op_check_bf16(DPB_OP_POOL_MAX_BWD, &args, sizeof(args), bwd, 2);
    op_check_bf16(DPB_OP_POOL_AVG_FWD, &args, sizeof(args), fwd, 2);
    op_check_bf16(DPB_OP_POOL_AVG_BWD, &args, sizeof(args), bwd, 2);
    op_data_release(&data);
}

static void test_pool(void **state)
{
    static const int64_t shapes[][7] = {
            {2, 17, 15, 65, 3, 2, 1}, {2, 24, 24, 64, 2, 2, 0}, {2, 7, 7, 96, 7, 1, 0},
            {1, 9, 8, 3, 3, 1, 1},    {1, 1, 1, 1, 1, 1, 0},
    };

    (void)state;
    for (int i = 0; i < PART_COUNT(shapes); i++)
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

struct batchnorm_data {
    struct op_data data;
    int64_t c, m, numel;
    double terms;
    struct dpb_batchnorm_args args;
};

static void batchnorm_open(struct batchnorm_data *d, const struct batchnorm_case *s, bool relu,
                           bool residual)
{
    struct dpb_tensor shape = {.dtype = DPB_F32, .rank = s->rank};
    struct dpb_tensor *tensors[] = {&d->args.x,  &d->args.y,        &d->args.dy,
                                    &d->args.dx, &d->args.residual, &d->args.dresidual};
    float **channels[] = {&d->args.dgamma,    &d->args.dbeta,    &d->args.running_mean,
                          &d->args.save_mean, &d->args.save_var, &d->args.running_var};

    *d = (struct batchnorm_data){0};
    memcpy(shape.dim, s->dim, sizeof(s->dim));
    d->c = s->dim[s->rank - 1];
    d->numel = dpb_tensor_numel(&shape);
    d->m = d->numel / d->c;
    d->terms = op_ulps_of_sum(d->m);
    d->args = (struct dpb_batchnorm_args){.gamma = op_data_f32(&d->data, d->c),
                                          .beta = op_data_f32(&d->data, d->c),
                                          .count = 3.0 * (double)d->m,
                                          .eps = 1e-3f,
                                          .momentum = 0.1f,
                                          .training = true,
                                          .relu = relu};
    for (int i = 0; i < (residual ? 6 : 4); i++) {
        *tensors[i] = shape;
        tensors[i]->data = op_data_f32(&d->data, d->numel);
    }
    for (int i = 0; i < 6; i++)
        *channels[i] = op_data_f32(&d->data, d->c);
    for (int64_t i = 0; i < d->numel; i++)
        ((float *)d->args.x.data)[i] += 0.5f; /* a mean to subtract */
    for (int64_t i = 0; i < d->c; i++)
        d->args.running_var[i] = fabsf(d->args.running_var[i]);
    d->args.mask = relu ? op_data_bytes(&d->data, (size_t)d->numel) : NULL;
}

/* One operator. `mask`: the device's own. */
static void check_batchnorm_op(struct batchnorm_data *d, enum dpb_op op, dpb_device *on,
                               uint8_t *mask, const struct op_part *parts, int count)
{
    struct dpb_batchnorm_args twin;

    op_bf16_twin(&d->data, &twin, &d->args, sizeof(d->args), parts, count);
    twin.mask = d->args.relu && d->args.training ? mask : NULL;
    op_run(NULL, op, &d->args, NULL, 0);
    op_bf16_compare(on, op, &twin, &d->args, parts, count);
}

static void check_batchnorm(const struct batchnorm_case *s, bool relu, bool residual,
                            dpb_device *on)
{
    struct batchnorm_data d;
    uint8_t *mask;

    batchnorm_open(&d, s, relu, residual);
    mask = op_data_bytes(&d.data, (size_t)d.numel);
    {
        const struct op_part fwd[] = {
                {OP_TENSOR(dpb_batchnorm_args, x), .use = OP_READS},
                {OP_TENSOR(dpb_batchnorm_args, y), .use = OP_WRITES, .ulps = 8.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, running_mean, d.c), .use = OP_UPDATES,
                 .ulps = 2.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, running_var, d.c), .use = OP_UPDATES,
                 .ulps = 2.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, save_mean, d.c), .use = OP_WRITES,
                 .ulps = 2.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, save_var, d.c), .use = OP_WRITES,
                 .ulps = 2.0 * d.terms},
                {OP_TENSOR(dpb_batchnorm_args, residual), .use = OP_READS},
        };
        const struct op_part bwd[] = {
                {OP_TENSOR(dpb_batchnorm_args, x), .use = OP_READS},
                {OP_TENSOR(dpb_batchnorm_args, dy), .use = OP_READS},
                {OP_TENSOR(dpb_batchnorm_args, dx), .use = OP_WRITES, .ulps = 16.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, dgamma, d.c), .use = OP_WRITES,
                 .ulps = d.terms * (double)d.m},
                {OP_FLOATS(dpb_batchnorm_args, dbeta, d.c), .use = OP_WRITES,
                 .ulps = d.terms * (double)d.m},
                {OP_TENSOR(dpb_batchnorm_args, dresidual), .use = OP_WRITES},
        };
        int without = residual ? 0 : 1; /* the last ones */

        check_batchnorm_op(&d, DPB_OP_BATCHNORM_FWD, on, mask, fwd, PART_COUNT(fwd) - without);
        check_batchnorm_op(&d, DPB_OP_BATCHNORM_BWD, on, mask, bwd, PART_COUNT(bwd) - without);
        d.args.training = false;
        /* the standard deviation is at least sqrt(eps): |y| is below 80 */
        check_batchnorm_op(&d, DPB_OP_BATCHNORM_FWD, on, NULL,
                           (const struct op_part[]){fwd[0],
                                                    {OP_TENSOR(dpb_batchnorm_args, y),
                                                     .use = OP_WRITES, .ulps = 8.0 * 80.0},
                                                    fwd[PART_COUNT(fwd) - 1]},
                           3 - without);
    }
    op_data_release(&d.data);
}

static void check_batchnorm_halves(const struct batchnorm_case *s, bool relu, bool residual,
                                   dpb_device *on)
{
    struct batchnorm_data d;
    uint8_t *mask;

    batchnorm_open(&d, s, relu, residual);
    mask = op_data_bytes(&d.data, (size_t)d.numel);
    {
        const struct op_part x = {OP_TENSOR(dpb_batchnorm_args, x), .use = OP_READS};
        const struct op_part dy = {OP_TENSOR(dpb_batchnorm_args, dy), .use = OP_READS};
        const struct op_part stats[] = {
                x,
                {OP_FLOATS(dpb_batchnorm_args, save_mean, d.c), .use = OP_WRITES,
                 .ulps = 2.0 * d.terms},
                {OP_FLOATS(dpb_batchnorm_args, save_var, d.c), .use = OP_WRITES,
                 .ulps = 2.0 * d.terms},
        };
        const struct op_part apply[] = {
                x,
                {OP_TENSOR(dpb_batchnorm_args, y), .use = OP_WRITES, .ulps = 8.0 * d.terms},
                {OP_TENSOR(dpb_batchnorm_args, residual), .use = OP_READS},
        };
        const struct op_part sums[] = {
                x,
                dy,
                {OP_FLOATS(dpb_batchnorm_args, dgamma, d.c), .use = OP_WRITES,
                 .ulps = d.terms * (double)d.m},
                {OP_FLOATS(dpb_batchnorm_args, dbeta, d.c), .use = OP_WRITES,
                 .ulps = d.terms * (double)d.m},
                {OP_TENSOR(dpb_batchnorm_args, dresidual), .use = OP_WRITES},
        };
        const struct op_part gradient[] = {
                x,
                dy,
                {OP_TENSOR(dpb_batchnorm_args, dx), .use = OP_WRITES, .ulps = 16.0 * d.terms},
        };

        int without = residual ? 0 : 1; /* the last ones */

        check_batchnorm_op(&d, DPB_OP_BATCHNORM_STATS, on, mask, stats, PART_COUNT(stats));
        check_batchnorm_op(&d, DPB_OP_BATCHNORM_APPLY, on, mask, apply,
                           PART_COUNT(apply) - without);
        check_batchnorm_op(&d, DPB_OP_BATCHNORM_BWD_SUMS, on, mask, sums,
                           PART_COUNT(sums) - without);
        check_batchnorm_op(&d, DPB_OP_BATCHNORM_BWD_APPLY, on, mask, gradient,
                           PART_COUNT(gradient));
    }
    op_data_release(&d.data);
}

static void test_batchnorm(void **state)
{
    (void)state;
    for (int i = 0; i < PART_COUNT(batchnorm_cases); i++) {
        for (int run = 0; run < 8; run++) {
            bool relu = run & 1, residual = run & 2;

            check_batchnorm(&batchnorm_cases[i], relu, residual, cpu_pair[run / 4]);
            check_batchnorm_halves(&batchnorm_cases[i], relu, residual, cpu_pair[run / 4]);
        }
    }
}

/* ---- elementwise ---- */

static void check_elementwise(int64_t rows, int64_t columns)
{
    struct op_data data = {0};
    int64_t numel = rows * columns;
    struct dpb_tensor t[4];
    struct dpb_relu_args relu;
    struct dpb_add_args add;
    struct dpb_bias_args bias;
    const struct op_part relu_fwd[] = {
            {OP_TENSOR(dpb_relu_args, x), .use = OP_READS},
            {OP_TENSOR(dpb_relu_args, y), .use = OP_WRITES},
    };
    const struct op_part relu_bwd[] = {
            {OP_TENSOR(dpb_relu_args, y), .use = OP_READS},
            {OP_TENSOR(dpb_relu_args, dy), .use = OP_READS},
            {OP_TENSOR(dpb_relu_args, dx), .use = OP_WRITES},
    };
    const struct op_part sum[] = {
            {OP_TENSOR(dpb_add_args, a), .use = OP_READS},
            {OP_TENSOR(dpb_add_args, b), .use = OP_READS},
            {OP_TENSOR(dpb_add_args, y), .use = OP_WRITES, .ulps = 2.0},
    };
    const struct op_part bias_fwd[] = {
            {OP_TENSOR(dpb_bias_args, x), .use = OP_READS},
            {OP_FLOATS(dpb_bias_args, bias, columns), .use = OP_READS},
            {OP_TENSOR(dpb_bias_args, y), .use = OP_WRITES, .ulps = 2.0},
    };
    const struct op_part bias_bwd[] = {
            {OP_TENSOR(dpb_bias_args, y), .use = OP_READS},
            {OP_FLOATS(dpb_bias_args, bias, columns), .use = OP_WRITES,
             .ulps = op_ulps_of_sum(rows) * (double)rows},
    };

    for (int i = 0; i < 4; i++)
        t[i] = dpb_tensor_2d(op_data_f32(&data, numel), rows, columns);
    relu = (struct dpb_relu_args){t[0], t[1], t[2], t[3]};
    bias = (struct dpb_bias_args){t[0], t[1], op_data_f32(&data, columns)};
    op_check_bf16(DPB_OP_RELU_FWD, &relu, sizeof(relu), relu_fwd, PART_COUNT(relu_fwd));
    op_check_bf16(DPB_OP_RELU_BWD, &relu, sizeof(relu), relu_bwd, PART_COUNT(relu_bwd));
    for (int with_relu = 0; with_relu < 2; with_relu++) {
        add = (struct dpb_add_args){t[0], t[2], t[3], with_relu};
        op_check_bf16(DPB_OP_ADD, &add, sizeof(add), sum, PART_COUNT(sum));
    }
    op_check_bf16(DPB_OP_BIAS_FWD, &bias, sizeof(bias), bias_fwd, PART_COUNT(bias_fwd));
    op_check_bf16(DPB_OP_BIAS_BWD, &bias, sizeof(bias), bias_bwd, PART_COUNT(bias_bwd));
    op_data_release(&data);
}

static void test_elementwise(void **state)
{
    (void)state;
    check_elementwise(1, 1);
    check_elementwise(3, 67);
    check_elementwise(700, 129);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_conv, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_pool, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_batchnorm, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_elementwise, cpu_pair_open, cpu_pair_close),
    };

    return DPB_RUN_TESTS(tests);
}
