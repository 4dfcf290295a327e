/* The CPU device against the reference, for every operator, with one and two threads.
 *
 * Limits. A sum of K products in fp32 is off by at most about K 2^-24 sum|products|, and by about
 * sqrt(K) of it when the roundings are independent; vector code sums in many short chains, which is
 * less still. So (8 + sqrt(K)) 2^-24 sum|products| is demanded, with sum|products| computed by the
 * reference on absolute values. */
#include <math.h>

#include "cpu_ops.h"
#include "cpu_pair.h"
#include "op_data.h"

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
