/* Backward operators of the reference against differences of their forward operators: images,
 * matrix products, losses. */
#include "dpb_reference.h"
#include "op_gradient.h"

static void check_conv(const int64_t *s) /* n h w i o kh kw stride pad */
{
    struct op_data data = {0};
    int stride = (int)s[7], pad = (int)s[8];
    int64_t oh = (s[1] + 2 * pad - s[5]) / stride + 1, ow = (s[2] + 2 * pad - s[6]) / stride + 1;
    int64_t xn = s[0] * s[1] * s[2] * s[3], wn = s[4] * s[3] * s[5] * s[6];
    int64_t yn = s[0] * oh * ow * s[4];
    double *x = op_data_f64(&data, xn), *w = op_data_f64(&data, wn);
    double *bias = op_data_f64(&data, s[4]), *y = op_data_f64(&data, yn);
    double *r = op_data_f64(&data, yn), *dx = op_data_f64(&data, xn);
    double *dw = op_data_f64(&data, wn), *dbias = op_data_f64(&data, s[4]);
    struct dpb_conv_args fwd = {.x = OP_T4(x, s[0], s[1], s[2], s[3]),
                                .w = OP_T4(w, s[4], s[3], s[5], s[6]),
                                .y = OP_T4(y, s[0], oh, ow, s[4]),
                                .bias = (float *)bias,
                                .stride = stride,
                                .pad = pad};
    struct dpb_conv_args bwd_data = fwd, bwd_weights = fwd;
    struct op_forward forward = {DPB_OP_CONV_FWD, &fwd, y, r, yn};

    bwd_data.x.data = dx;
    bwd_data.y.data = bwd_weights.y.data = r;
    bwd_weights.w.data = dw;
    bwd_weights.bias = (float *)dbias;
    assert_int_equal(dpb_reference_op(DPB_OP_CONV_BWD_DATA, &bwd_data), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_CONV_BWD_WEIGHTS, &bwd_weights), DPB_OK);
    op_assert_gradient("conv x", &forward, x, dx, xn);
    op_assert_gradient("conv w", &forward, w, dw, wn);
    op_assert_gradient("conv bias", &forward, bias, dbias, s[4]);
    op_data_release(&data);
}

static void test_conv(void **state)
{
    static const int64_t shapes[][9] = {
            {2, 5, 5, 2, 3, 3, 3, 1, 0}, /* plain */
            {2, 5, 6, 2, 3, 3, 3, 1, 1}, /* padded, not square */
            {1, 7, 6, 2, 2, 3, 2, 2, 1}, /* strided, odd, rows and columns differ */
            {1, 6, 6, 1, 2, 3, 3, 2, 0}, /* a last row and column that no window covers */
            {2, 3, 3, 3, 2, 1, 1, 1, 0}, /* 1x1 */
            {2, 5, 5, 2, 2, 1, 1, 2, 0}, /* 1x1 strided */
            {1, 6, 6, 1, 2, 5, 5, 3, 3}, /* more padding than stride */
            {1, 1, 1, 2, 2, 3, 3, 1, 1}, /* one pixel */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        check_conv(shapes[i]);
}

/* dA and dB of C = op(A) op(B), as linear layers take them. */
static void test_matmul(void **state)
{
    enum {
        M = 3,
        N = 4,
        K = 5
    };
    struct op_data data = {0};
    double *x = op_data_f64(&data, M * K), *w = op_data_f64(&data, N * K);
    double *bias = op_data_f64(&data, N), *y = op_data_f64(&data, M * N);
    double *r = op_data_f64(&data, M * N), *dx = op_data_f64(&data, M * K);
    double *dw = op_data_f64(&data, N * K), *dbias = op_data_f64(&data, N);
    struct dpb_matmul_args fwd = {.a = OP_T2(x, M, K),
                                  .b = OP_T2(w, N, K),
                                  .c = OP_T2(y, M, N),
                                  .bias = (const float *)bias,
                                  .trans_b = true};
    struct dpb_matmul_args bwd_data = {
            .a = OP_T2(r, M, N), .b = OP_T2(w, N, K), .c = OP_T2(dx, M, K)};
    struct dpb_matmul_args bwd_weights = {
            .a = OP_T2(r, M, N), .b = OP_T2(x, M, K), .c = OP_T2(dw, N, K), .trans_a = true};
    struct dpb_bias_args bwd_bias = {.y = OP_T2(r, M, N), .bias = (float *)dbias};
    struct op_forward forward = {DPB_OP_MATMUL, &fwd, y, r, M * N};

    (void)state;
    assert_int_equal(dpb_reference_op(DPB_OP_MATMUL, &bwd_data), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_MATMUL, &bwd_weights), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_BIAS_BWD, &bwd_bias), DPB_OK);
    op_assert_gradient("matmul x", &forward, x, dx, M * K);
    op_assert_gradient("matmul w", &forward, w, dw, N * K);
    op_assert_gradient("matmul bias", &forward, bias, dbias, N);
    op_data_release(&data);
}

static void test_bias(void **state)
{
    struct op_data data = {0};
    double *x = op_data_f64(&data, 15), *y = op_data_f64(&data, 15), *r = op_data_f64(&data, 15);
    double *bias = op_data_f64(&data, 5), *dbias = op_data_f64(&data, 5);
    struct dpb_bias_args fwd = {.x = OP_T2(x, 3, 5), .y = OP_T2(y, 3, 5), .bias = (float *)bias};
    struct dpb_bias_args bwd = {.y = OP_T2(r, 3, 5), .bias = (float *)dbias};
    struct op_forward forward = {DPB_OP_BIAS_FWD, &fwd, y, r, 15};

    (void)state;
    assert_int_equal(dpb_reference_op(DPB_OP_BIAS_BWD, &bwd), DPB_OK);
    op_assert_gradient("bias", &forward, bias, dbias, 5);
    op_assert_gradient("bias x", &forward, x, r, 15);
    op_data_release(&data);
}

static void check_pool(enum dpb_op fwd_op, enum dpb_op bwd_op, const int64_t *s)
{
    struct op_data data = {0}; /* n h w c kernel stride pad */
    int kernel = (int)s[4], stride = (int)s[5], pad = (int)s[6];
    int64_t oh = (s[1] + 2 * pad - kernel) / stride + 1;
    int64_t ow = (s[2] + 2 * pad - kernel) / stride + 1;
    int64_t xn = s[0] * s[1] * s[2] * s[3], yn = s[0] * oh * ow * s[3];
    double *x = op_data_distinct(&data, xn); /* no ties within a step */
    double *y = op_data_f64(&data, yn), *r = op_data_f64(&data, yn), *dx = op_data_f64(&data, xn);
    struct dpb_pool_args fwd = {.x = OP_T4(x, s[0], s[1], s[2], s[3]),
                                .y = OP_T4(y, s[0], oh, ow, s[3]),
                                .index = op_data_bytes(&data, (size_t)yn),
                                .kernel = kernel,
                                .stride = stride,
                                .pad = pad};
    struct dpb_pool_args bwd = fwd;
    struct op_forward forward = {fwd_op, &fwd, y, r, yn};

    bwd.x.data = dx;
    bwd.y.data = r;
    assert_int_equal(dpb_reference_op(fwd_op, &fwd), DPB_OK);
    assert_int_equal(dpb_reference_op(bwd_op, &bwd), DPB_OK);
    op_assert_gradient(dpb_op_text(bwd_op), &forward, x, dx, xn);
    op_data_release(&data);
}

static void test_pool(void **state)
{
    static const int64_t shapes[][7] = {
            {2, 4, 4, 3, 2, 2, 0}, /* tiles */
            {1, 7, 5, 2, 3, 2, 1}, /* overlapping, padded, not square: ResNet's */
            {1, 5, 5, 2, 2, 3, 0}, /* gaps between the windows */
            {2, 3, 3, 2, 3, 1, 0}, /* one window: global */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_pool(DPB_OP_POOL_MAX_FWD, DPB_OP_POOL_MAX_BWD, shapes[i]);
        check_pool(DPB_OP_POOL_AVG_FWD, DPB_OP_POOL_AVG_BWD, shapes[i]);
    }
}

static void test_relu(void **state)
{
    struct op_data data = {0};
    double *x = op_data_distinct(&data, 24); /* none within a step of 0 */
    double *y = op_data_f64(&data, 24), *r = op_data_f64(&data, 24), *dx = op_data_f64(&data, 24);
    struct dpb_relu_args fwd = {.x = OP_T2(x, 4, 6), .y = OP_T2(y, 4, 6)};
    struct dpb_relu_args bwd = {.y = OP_T2(y, 4, 6), .dy = OP_T2(r, 4, 6), .dx = OP_T2(dx, 4, 6)};
    struct op_forward forward = {DPB_OP_RELU_FWD, &fwd, y, r, 24};

    (void)state;
    assert_int_equal(dpb_reference_op(DPB_OP_RELU_FWD, &fwd), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_RELU_BWD, &bwd), DPB_OK);
    op_assert_gradient("relu", &forward, x, dx, 24);
    op_data_release(&data);
}

/* The halves of forward and of backward, for statistics of this batch alone, have its gradient. */
static void check_batchnorm_halves(const struct op_forward *forward,
                                   const struct dpb_batchnorm_args *whole, double *x, double *dx)
{
    struct dpb_batchnorm_args args = *whole;
    int64_t c = args.x.dim[args.x.rank - 1];

    args.count = (double)forward->numel / (double)c;
    memset(dx, 0xff, (size_t)forward->numel * sizeof(*dx));
    memset(args.dgamma, 0xff, (size_t)c * sizeof(double));
    memset(args.dbeta, 0xff, (size_t)c * sizeof(double));
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_STATS, &args), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_APPLY, &args), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_BWD_SUMS, &args), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_BWD_APPLY, &args), DPB_OK);
    op_assert_gradient("batchnorm x, in halves", forward, x, dx, forward->numel);
    op_assert_gradient("batchnorm gamma, in halves", forward, (double *)(uintptr_t)args.gamma,
                       (double *)args.dgamma, c);
    op_assert_gradient("batchnorm beta, in halves", forward, (double *)(uintptr_t)args.beta,
                       (double *)args.dbeta, c);
}

static void check_batchnorm(int rank, const int64_t *dim, bool relu, bool with_residual)
{
    struct op_data data = {0};
    int64_t c = dim[rank - 1], numel = 1;
    double *x, *y, *r, *dx, *gamma, *beta, *dgamma, *dbeta, *mean, *var, *residual, *dresidual;
    struct dpb_batchnorm_args args;
    struct op_forward forward;

    for (int i = 0; i < rank; i++)
        numel *= dim[i];
    x = op_data_f64(&data, numel);
    y = op_data_f64(&data, numel);
    r = op_data_f64(&data, numel);
    dx = op_data_f64(&data, numel);
    residual = op_data_f64(&data, numel);
    dresidual = op_data_f64(&data, numel);
    gamma = op_data_f64(&data, c);
    beta = op_data_f64(&data, c);
    dgamma = op_data_f64(&data, c);
    dbeta = op_data_f64(&data, c);
    mean = op_data_f64(&data, c);
    var = op_data_f64(&data, c);
    args = (struct dpb_batchnorm_args){.x = op_tensor64(x, rank, dim),
                                       .y = op_tensor64(y, rank, dim),
                                       .dy = op_tensor64(r, rank, dim),
                                       .dx = op_tensor64(dx, rank, dim),
                                       .gamma = (float *)gamma,
                                       .beta = (float *)beta,
                                       .dgamma = (float *)dgamma,
                                       .dbeta = (float *)dbeta,
                                       .running_mean = (float *)op_data_f64(&data, c),
                                       .running_var = (float *)op_data_f64(&data, c),
                                       .save_mean = (float *)mean,
                                       .save_var = (float *)var,
                                       .eps = 1e-3f,
                                       .momentum = 0.1f,
                                       .mask = op_data_bytes(&data, (size_t)numel),
                                       .training = true,
                                       .relu = relu};
    if (with_residual) {
        args.residual = op_tensor64(residual, rank, dim);
        args.dresidual = op_tensor64(dresidual, rank, dim);
    }
    forward = (struct op_forward){DPB_OP_BATCHNORM_FWD, &args, y, r, numel};
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_FWD, &args), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_BATCHNORM_BWD, &args), DPB_OK);
    op_assert_gradient("batchnorm x", &forward, x, dx, numel);
    op_assert_gradient("batchnorm gamma", &forward, gamma, dgamma, c);
    op_assert_gradient("batchnorm beta", &forward, beta, dbeta, c);
    if (with_residual)
        op_assert_gradient("batchnorm residual", &forward, residual, dresidual, numel);
    check_batchnorm_halves(&forward, &args, x, dx);
    op_data_release(&data);
}

static void test_batchnorm(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        bool relu = variant & 1, residual = variant & 2;

        check_batchnorm(4, (const int64_t[]){2, 3, 3, 4}, relu, residual);
        check_batchnorm(4, (const int64_t[]){1, 5, 1, 3}, relu, residual);
        check_batchnorm(2, (const int64_t[]){7, 3}, relu, residual);
    }
}

static void test_softmax_xent(void **state)
{
    enum {
        M = 4,
        C = 5
    };
    struct op_data data = {0};
    double *logits = op_data_f64(&data, M * C), *prob = op_data_f64(&data, M * C);
    double *dlogits = op_data_f64(&data, M * C), *loss = op_data_f64(&data, M);
    double weight[M];
    struct dpb_softmax_xent_args args = {.logits = OP_T2(logits, M, C),
                                         .prob = OP_T2(prob, M, C),
                                         .dlogits = OP_T2(dlogits, M, C),
                                         .label = op_data_labels(&data, M, C),
                                         .loss = (float *)loss,
                                         .scale = 0.125f};
    struct op_forward forward = {DPB_OP_SOFTMAX_XENT_FWD, &args, loss, weight, M};

    (void)state;
    for (int i = 0; i < M; i++)
        weight[i] = 0.125;
    assert_int_equal(dpb_reference_op(DPB_OP_SOFTMAX_XENT_FWD, &args), DPB_OK);
    assert_int_equal(dpb_reference_op(DPB_OP_SOFTMAX_XENT_BWD, &args), DPB_OK);
    op_assert_gradient("softmax-xent", &forward, logits, dlogits, M * C);
    op_data_release(&data);
}

static void test_interaction(void **state)
{
    enum {
        N = 2,
        T = 3,
        D = 2,
        Y = D + T * (T + 1) / 2
    };
    struct op_data data = {0};
    double *x = op_data_f64(&data, N * D), *e = op_data_f64(&data, T * N * D);
    double *y = op_data_f64(&data, N * Y), *r = op_data_f64(&data, N * Y);
    double *dx = op_data_f64(&data, N * D), *de = op_data_f64(&data, T * N * D);
    struct dpb_interaction_args fwd = {.x = OP_T2(x, N, D),
                                       .e = op_tensor64(e, 3, (const int64_t[]){T, N, D}),
                                       .y = OP_T2(y, N, Y),
                                       .dx = OP_T2(dx, N, D),
                                       .de = op_tensor64(de, 3, (const int64_t[]){T, N, D})};
    struct dpb_interaction_args bwd = fwd;
    struct op_forward forward = {DPB_OP_INTERACTION_FWD, &fwd, y, r, N * Y};

    (void)state;
    bwd.y.data = r;
    assert_int_equal(dpb_reference_op(DPB_OP_INTERACTION_BWD, &bwd), DPB_OK);
    op_assert_gradient("interaction x", &forward, x, dx, N * D);
    op_assert_gradient("interaction e", &forward, e, de, T * N * D);
    op_data_release(&data);
}

static void test_sigmoid_bce(void **state)
{
    enum {
        M = 6
    };
    struct op_data data = {0};
    double *logits = op_data_f64(&data, M), *dlogits = op_data_f64(&data, M);
    double *loss = op_data_f64(&data, M), weight[M];
    struct dpb_sigmoid_bce_args args = {.logits = OP_T2(logits, M, 1),
                                        .dlogits = OP_T2(dlogits, M, 1),
                                        .label = op_data_labels(&data, M, 2),
                                        .loss = (float *)loss,
                                        .scale = 0.125f};
    struct op_forward forward = {DPB_OP_SIGMOID_BCE_FWD, &args, loss, weight, M};

    (void)state;
    for (int i = 0; i < M; i++) {
        logits[i] *= 4.0;
        weight[i] = 0.125;
    }
    assert_int_equal(dpb_reference_op(DPB_OP_SIGMOID_BCE_BWD, &args), DPB_OK);
    op_assert_gradient("sigmoid-bce", &forward, logits, dlogits, M);
    op_data_release(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_conv),         cmocka_unit_test(test_matmul),
            cmocka_unit_test(test_bias),         cmocka_unit_test(test_pool),
            cmocka_unit_test(test_relu),         cmocka_unit_test(test_batchnorm),
            cmocka_unit_test(test_softmax_xent), cmocka_unit_test(test_interaction),
            cmocka_unit_test(test_sigmoid_bce),
    };

    return DPB_RUN_TESTS(tests);
}
