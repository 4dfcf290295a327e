/* The reference against values worked out by hand, so that it is anchored in something else. */
#include <float.h>
#include <math.h>

#include "dpb_log.h"
#include "dpb_reference.h"
#include "dpb_test.h"

static void assert_values(const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * (1.0f + fabsf(want[i]))))
            fail_msg("element %lld is %.9g, by hand %.9g", (long long)i, (double)got[i],
                     (double)want[i]);
}

static void run(enum dpb_op op, const void *args)
{
    assert_int_equal(dpb_reference_op(op, args), DPB_OK);
}

static void test_matmul(void **state)
{
    float a[] = {1, 2, 3, 4, 5, 6};  /* [2,3], or [3,2] transposed: rows (1,3,5) (2,4,6) */
    float b[] = {1, 0, -1, 2, 3, 1}; /* [3,2], or [2,3] transposed */
    float bias[] = {10, -40}, c[4];
    struct dpb_matmul_args args = {
            .a = dpb_tensor_2d(a, 2, 3), .b = dpb_tensor_2d(b, 3, 2), .c = dpb_tensor_2d(c, 2, 2)};

    (void)state;
    c[0] = NAN; /* beta 0: not read */
    run(DPB_OP_MATMUL, &args);
    assert_values(c, (float[]){8, 7, 17, 16}, 4);
    args.beta = 1.0f;
    run(DPB_OP_MATMUL, &args);
    assert_values(c, (float[]){16, 14, 34, 32}, 4);
    args.beta = 0.0f;
    args.bias = bias;
    args.relu = true;
    run(DPB_OP_MATMUL, &args);
    assert_values(c, (float[]){18, 0, 27, 0}, 4);
    args.bias = NULL;
    args.relu = false;
    args.a = dpb_tensor_2d(a, 3, 2);
    args.trans_a = true;
    run(DPB_OP_MATMUL, &args); /* (1,3,5)(2,4,6) times b */
    assert_values(c, (float[]){13, 11, 16, 14}, 4);
    args.b = dpb_tensor_2d(b, 2, 3);
    args.trans_b = true;
    run(DPB_OP_MATMUL, &args); /* b^T columns (1,0,-1) and (2,3,1) */
    assert_values(c, (float[]){-4, 16, -4, 22}, 4);
}

static void test_conv(void **state)
{
    /* 3x3 image of 1 channel, two 2x2 filters, the second picks the lower left */
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float w[] = {1, 2, 3, 4, 0, 0, 1, 0};
    float bias[] = {100, -6}, y[8];
    struct dpb_conv_args args = {.x = dpb_tensor_4d(x, 1, 3, 3, 1),
                                 .w = dpb_tensor_4d(w, 2, 1, 2, 2),
                                 .y = dpb_tensor_4d(y, 1, 2, 2, 2),
                                 .bias = bias,
                                 .stride = 1};
    float dy[] = {1, 0, 0, 1, 0, 0, 2, 1}, dx[9], dw[8], dbias[2];

    (void)state;
    run(DPB_OP_CONV_FWD, &args);
    /* 1+4+12+20 = 37, 2+6+15+24 = 47, 4+10+21+32 = 67, 5+12+24+36 = 77 */
    assert_values(y, (float[]){137, -2, 147, -1, 167, 1, 177, 2}, 8);
    args.relu = true;
    run(DPB_OP_CONV_FWD, &args);
    assert_values(y, (float[]){137, 0, 147, 0, 167, 1, 177, 2}, 8);

    args.y.data = dy;
    args.x.data = dx;
    run(DPB_OP_CONV_BWD_DATA, &args);
    /* filter 1 at (0,0) once and at (1,1) twice; filter 2's one weight at (0,1) and (1,1) */
    assert_values(dx, (float[]){1, 2, 0, 3, 4 + 1 + 2, 4, 0, 6 + 1, 8}, 9);

    args.x.data = x;
    args.w.data = dw;
    args.bias = dbias;
    run(DPB_OP_CONV_BWD_WEIGHTS, &args);
    /* filter 1: x patch at (0,0) + 2 at (1,1); filter 2: patches at (0,1) and (1,1) */
    assert_values(dw, (float[]){11, 14, 20, 23, 7, 9, 13, 15}, 8);
    assert_values(dbias, (float[]){3, 2}, 2);
}

static void test_conv_with_stride_and_pad(void **state)
{
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float w[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, y[4];
    struct dpb_conv_args args = {.x = dpb_tensor_4d(x, 1, 3, 3, 1),
                                 .w = dpb_tensor_4d(w, 1, 1, 3, 3),
                                 .y = dpb_tensor_4d(y, 1, 2, 2, 1),
                                 .stride = 2,
                                 .pad = 1};

    (void)state;
    run(DPB_OP_CONV_FWD, &args);
    assert_values(y, (float[]){12, 16, 24, 28}, 4);
}

static void test_conv_layouts(void **state)
{
    /* 1x1 filters over two channels tell NHWC and OIHW from every other order */
    float x[] = {1, 10, 2, 20}; /* pixels (1,10) and (2,20) */
    float w[] = {1, 2, 3, 4};   /* output 0: 1 and 2, output 1: 3 and 4 */
    float y[4];
    struct dpb_conv_args args = {.x = dpb_tensor_4d(x, 1, 1, 2, 2),
                                 .w = dpb_tensor_4d(w, 2, 2, 1, 1),
                                 .y = dpb_tensor_4d(y, 1, 1, 2, 2),
                                 .stride = 1};

    (void)state;
    run(DPB_OP_CONV_FWD, &args);
    assert_values(y, (float[]){21, 43, 42, 86}, 4);
}

static void test_pool_max(void **state)
{
    /* two channels; in channel 1 the tie 5, 5 takes the first, and -1 beats the padding's nothing
     */
    float x[] = {1, 5, 4, 5, 3, -1, 2, -1}; /* 2x2 pixels */
    float y[2], dy[] = {10, 20}, dx[8];
    uint8_t index[2] = {9, 9};
    struct dpb_pool_args args = {.x = dpb_tensor_4d(x, 1, 2, 2, 2),
                                 .y = dpb_tensor_4d(y, 1, 1, 1, 2),
                                 .index = index,
                                 .kernel = 2,
                                 .stride = 2};

    (void)state;
    run(DPB_OP_POOL_MAX_FWD, &args);
    assert_values(y, (float[]){4, 5}, 2);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 0);
    args.x.data = dx;
    args.y.data = dy;
    run(DPB_OP_POOL_MAX_BWD, &args);
    assert_values(dx, (float[]){0, 20, 10, 0, 0, 0, 0, 0}, 8);
}

static void test_pool_max_pads_with_nothing(void **state)
{
    float x[] = {-3, -1, -2, -4}, y[1]; /* 2x2, kernel 3, pad 1: one window over all */
    uint8_t index[1];
    struct dpb_pool_args args = {.x = dpb_tensor_4d(x, 1, 2, 2, 1),
                                 .y = dpb_tensor_4d(y, 1, 1, 1, 1),
                                 .index = index,
                                 .kernel = 3,
                                 .stride = 2,
                                 .pad = 1};

    (void)state;
    run(DPB_OP_POOL_MAX_FWD, &args);
    assert_values(y, (float[]){-1}, 1);
    assert_int_equal(index[0], 5); /* position (1,2) of the window */
    args.index = NULL;
    y[0] = 0.0f;
    run(DPB_OP_POOL_MAX_FWD, &args);
    assert_values(y, (float[]){-1}, 1);
}

static void test_pool_max_bwd_refuses_a_strange_index(void **state)
{
    float x[4], y[1] = {1};
    uint8_t index[1] = {0}; /* the padded corner */
    struct dpb_pool_args args = {.x = dpb_tensor_4d(x, 1, 2, 2, 1),
                                 .y = dpb_tensor_4d(y, 1, 1, 1, 1),
                                 .index = index,
                                 .kernel = 3,
                                 .stride = 2,
                                 .pad = 1};

    (void)state;
    assert_int_equal(dpb_reference_op(DPB_OP_POOL_MAX_BWD, &args), DPB_ERR_USAGE);
    index[0] = 9;
    assert_int_equal(dpb_reference_op(DPB_OP_POOL_MAX_BWD, &args), DPB_ERR_USAGE);
    index[0] = 8;
    assert_int_equal(dpb_reference_op(DPB_OP_POOL_MAX_BWD, &args), DPB_OK);
    assert_values(x, (float[]){0, 0, 0, 1}, 4);
}

static void test_pool_avg(void **state)
{
    float x[] = {1, 2, 3, 6}, y[1], dx[4]; /* the divisor counts the padding: 12 / 9 */
    struct dpb_pool_args args = {.x = dpb_tensor_4d(x, 1, 2, 2, 1),
                                 .y = dpb_tensor_4d(y, 1, 1, 1, 1),
                                 .kernel = 3,
                                 .stride = 2,
                                 .pad = 1};

    (void)state;
    run(DPB_OP_POOL_AVG_FWD, &args);
    assert_values(y, (float[]){12.0f / 9.0f}, 1);
    args.x.data = dx;
    y[0] = 18.0f;
    run(DPB_OP_POOL_AVG_BWD, &args);
    assert_values(dx, (float[]){2, 2, 2, 2}, 4);
}

static void test_relu_and_bias(void **state)
{
    float x[] = {-1, 0, 2, -0.5f, 3, 1}, y[6], dy[] = {1, 2, 3, 4, 5, 6}, dx[6];
    float bias[] = {10, 20, 30};
    struct dpb_relu_args relu = {.x = dpb_tensor_2d(x, 2, 3),
                                 .y = dpb_tensor_2d(y, 2, 3),
                                 .dy = dpb_tensor_2d(dy, 2, 3),
                                 .dx = dpb_tensor_2d(dx, 2, 3)};
    struct dpb_bias_args add = {
            .x = dpb_tensor_2d(x, 2, 3), .y = dpb_tensor_2d(y, 2, 3), .bias = bias};

    (void)state;
    run(DPB_OP_RELU_FWD, &relu);
    assert_values(y, (float[]){0, 0, 2, 0, 3, 1}, 6);
    run(DPB_OP_RELU_BWD, &relu);
    assert_values(dx, (float[]){0, 0, 3, 0, 5, 6}, 6);
    run(DPB_OP_BIAS_FWD, &add);
    assert_values(y, (float[]){9, 20, 32, 9.5f, 23, 31}, 6);
    run(DPB_OP_BIAS_BWD, &add);
    assert_values(bias, (float[]){18.5f, 43, 63}, 3);
}

static void test_batchnorm(void **state)
{
    /* channel 0: 1, 3 (mean 2, var 1, unbiased 2); channel 1: 0, 4 (2, 4, 8); eps 3 and 0 in turn
     */
    float x[] = {1, 0, 3, 4}, y[4], gamma[] = {2, 1}, beta[] = {5, -1};
    float running_mean[] = {10, 20}, running_var[] = {1, 2}, mean[2], var[2];
    float dy[] = {1, 0, 0, 0}, dx[4], dgamma[2], dbeta[2];
    struct dpb_batchnorm_args args = {.x = dpb_tensor_2d(x, 2, 2),
                                      .y = dpb_tensor_2d(y, 2, 2),
                                      .dy = dpb_tensor_2d(dy, 2, 2),
                                      .dx = dpb_tensor_2d(dx, 2, 2),
                                      .gamma = gamma,
                                      .beta = beta,
                                      .dgamma = dgamma,
                                      .dbeta = dbeta,
                                      .running_mean = running_mean,
                                      .running_var = running_var,
                                      .save_mean = mean,
                                      .save_var = var,
                                      .eps = 3.0f,
                                      .momentum = 0.25f,
                                      .training = true};
    float root7 = sqrtf(7.0f);

    (void)state;
    run(DPB_OP_BATCHNORM_FWD, &args);
    assert_values(mean, (float[]){2, 2}, 2);
    assert_values(var, (float[]){1, 4}, 2);
    assert_values(running_mean, (float[]){8, 15.5f}, 2);
    assert_values(running_var, (float[]){1.25f, 3.5f}, 2);
    assert_values(y, (float[]){4, -2 / root7 - 1, 6, 2 / root7 - 1}, 4);

    run(DPB_OP_BATCHNORM_BWD, &args);
    /* channel 0: xhat = -1/2, +1/2; dgamma = -1/2, dbeta = 1; gamma / std = 1:
     * dx0 = 1 - 1/2 - (-1/2)(-1/2)/2 = 3/8, dx1 = 0 - 1/2 - (1/2)(-1/2)/2 = -3/8 */
    assert_values(dgamma, (float[]){-0.5f, 0}, 2);
    assert_values(dbeta, (float[]){1, 0}, 2);
    assert_values(dx, (float[]){0.375f, 0, -0.375f, 0}, 4);

    args.training = false;
    args.eps = 2.75f; /* 1.25 + 2.75 = 4 */
    run(DPB_OP_BATCHNORM_FWD, &args);
    assert_values(y,
                  (float[]){2 * (1 - 8) / 2.0f + 5, (0 - 15.5f) / sqrtf(6.25f) - 1,
                            2 * (3 - 8) / 2.0f + 5, (4 - 15.5f) / 2.5f - 1},
                  4);
    assert_values(running_mean, (float[]){8, 15.5f}, 2);
    assert_values(mean, (float[]){2, 2}, 2);
}

static void test_softmax_xent(void **state)
{
    float ln3 = logf(3.0f);
    float logits[] = {0, ln3, 1000, 1000}; /* the second row overflows a naive exp */
    float prob[4], loss[2], dlogits[4];
    int32_t label[] = {0, 1};
    struct dpb_softmax_xent_args args = {.logits = dpb_tensor_2d(logits, 2, 2),
                                         .prob = dpb_tensor_2d(prob, 2, 2),
                                         .dlogits = dpb_tensor_2d(dlogits, 2, 2),
                                         .label = label,
                                         .loss = loss,
                                         .scale = 0.5f};

    (void)state;
    run(DPB_OP_SOFTMAX_XENT_FWD, &args);
    assert_values(prob, (float[]){0.25f, 0.75f, 0.5f, 0.5f}, 4);
    assert_values(loss, (float[]){logf(4.0f), logf(2.0f)}, 2);
    run(DPB_OP_SOFTMAX_XENT_BWD, &args);
    assert_values(dlogits, (float[]){-0.375f, 0.375f, 0.25f, -0.25f}, 4);
    label[1] = 2;
    assert_int_equal(dpb_reference_op(DPB_OP_SOFTMAX_XENT_FWD, &args), DPB_ERR_USAGE);
    label[1] = -1;
    assert_int_equal(dpb_reference_op(DPB_OP_SOFTMAX_XENT_BWD, &args), DPB_ERR_USAGE);
}

/* Three vectors (1,2) (3,4) (-1,5): the pairs in the order of interact_features(). */
static void test_interaction(void **state)
{
    float x[] = {1, 2}, e[] = {3, 4, -1, 5}, y[5], dx[2], de[4];
    float dy[] = {10, 20, 1, 2, 3};
    const struct dpb_tensor tables = {.data = e, .dtype = DPB_F32, .rank = 3, .dim = {2, 1, 2}};
    struct dpb_interaction_args args = {.x = dpb_tensor_2d(x, 1, 2),
                                        .e = tables,
                                        .y = dpb_tensor_2d(y, 1, 5),
                                        .dx = dpb_tensor_2d(dx, 1, 2),
                                        .de = tables};

    (void)state;
    run(DPB_OP_INTERACTION_FWD, &args);
    assert_values(y, (float[]){1, 2, 11, 9, 17}, 5);
    args.y.data = dy;
    args.de.data = de;
    run(DPB_OP_INTERACTION_BWD, &args);
    assert_values(dx, (float[]){10 + 3 - 2, 20 + 4 + 10}, 2); /* dy + 1 v1 + 2 v2 */
    assert_values(de, (float[]){1 - 3, 2 + 15, 2 + 9, 4 + 12}, 4);
}

static void test_sigmoid_bce(void **state)
{
    float ln3 = logf(3.0f);
    float logits[] = {0, ln3, -ln3, 1000, -1000}; /* the last two overflow a naive exp */
    float loss[5], dlogits[5];
    int32_t label[] = {0, 1, 1, 0, 0};
    struct dpb_sigmoid_bce_args args = {.logits = dpb_tensor_1d(logits, 5),
                                        .dlogits = dpb_tensor_1d(dlogits, 5),
                                        .label = label,
                                        .loss = loss,
                                        .scale = 0.5f};

    (void)state;
    run(DPB_OP_SIGMOID_BCE_FWD, &args);
    assert_values(loss, (float[]){logf(2.0f), logf(4.0f / 3.0f), logf(4.0f), 1000, 0}, 5);
    run(DPB_OP_SIGMOID_BCE_BWD, &args);
    assert_values(dlogits, (float[]){0.25f, -0.125f, -0.375f, 0.5f, 0}, 5);
    label[1] = 2;
    assert_int_equal(dpb_reference_op(DPB_OP_SIGMOID_BCE_FWD, &args), DPB_ERR_USAGE);
    label[1] = -1;
    assert_int_equal(dpb_reference_op(DPB_OP_SIGMOID_BCE_BWD, &args), DPB_ERR_USAGE);
}

static void test_sgd_and_scale(void **state)
{
    float param[] = {1, -2}, grad[] = {0.5f, 1}, momentum[] = {0, 0};
    struct dpb_sgd_args sgd = {.param = param,
                               .grad = grad,
                               .momentum = momentum,
                               .count = 2,
                               .lr = 0.5f,
                               .mu = 0.5f,
                               .weight_decay = 0.25f};
    struct dpb_scale_args scale = {.x = param, .count = 2, .factor = 4.0f};

    (void)state;
    run(DPB_OP_SGD_MOMENTUM, &sgd); /* g = 0.75, 0.5 */
    assert_values(momentum, (float[]){0.75f, 0.5f}, 2);
    assert_values(param, (float[]){0.625f, -2.25f}, 2);
    run(DPB_OP_SGD_MOMENTUM, &sgd); /* g = 0.65625, 0.4375; momentum 1.03125, 0.6875 */
    assert_values(momentum, (float[]){1.03125f, 0.6875f}, 2);
    assert_values(param, (float[]){0.109375f, -2.59375f}, 2);
    assert_values(grad, (float[]){0.5f, 1}, 2);
    run(DPB_OP_SCALE, &scale);
    assert_values(param, (float[]){0.4375f, -10.375f}, 2);
    scale.count = 0;
    scale.x = NULL;
    run(DPB_OP_SCALE, &scale);
}

static void test_finite(void **state)
{
    float x[] = {3.0f, -FLT_MAX, 0.0f, 1e-45f, 0.0f};
    int32_t found[] = {0, 0};
    struct dpb_finite_args args = {.x = x, .count = 5, .found = found};

    (void)state;
    run(DPB_OP_FINITE, &args);
    assert_int_equal(found[0], 0);
    for (int bad = 0; bad < 3; bad++) {
        x[4] = bad == 0 ? NAN : bad == 1 ? INFINITY : -INFINITY;
        found[0] = 0;
        args.count = 4;
        run(DPB_OP_FINITE, &args);
        assert_int_equal(found[0], 0);
        args.count = 5;
        run(DPB_OP_FINITE, &args);
        assert_int_equal(found[0], 1);
    }
    x[4] = 0.0f; /* what was found stays */
    run(DPB_OP_FINITE, &args);
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], 0);
}

static void test_orthogonalize(void **state)
{
    float x[] = {3, 1, 4, 2}, zero[] = {0, 1, 0, 1};
    struct dpb_orthogonalize_args args = {.x = dpb_tensor_2d(x, 2, 2)};

    (void)state;
    run(DPB_OP_ORTHOGONALIZE, &args); /* (3, 4) / 5; (1, 2) - 2.2 (0.6, 0.8) = (-0.32, 0.24) */
    assert_float_equal(x[0], 0.6f, 1e-7);
    assert_float_equal(x[2], 0.8f, 1e-7);
    assert_float_equal(x[1], -0.8f, 1e-6);
    assert_float_equal(x[3], 0.6f, 1e-6);
    args.x = dpb_tensor_2d(zero, 2, 2);
    args.eps = 1.0f;
    run(DPB_OP_ORTHOGONALIZE, &args); /* divided by sqrt(2) + 1 */
    assert_values(zero, (float[]){0, 0.41421356f, 0, 0.41421356f}, 4);
}

static void ignore(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_matmul),
            cmocka_unit_test(test_conv),
            cmocka_unit_test(test_conv_with_stride_and_pad),
            cmocka_unit_test(test_conv_layouts),
            cmocka_unit_test(test_pool_max),
            cmocka_unit_test(test_pool_max_pads_with_nothing),
            cmocka_unit_test(test_pool_max_bwd_refuses_a_strange_index),
            cmocka_unit_test(test_pool_avg),
            cmocka_unit_test(test_relu_and_bias),
            cmocka_unit_test(test_batchnorm),
            cmocka_unit_test(test_softmax_xent),
            cmocka_unit_test(test_interaction),
            cmocka_unit_test(test_sigmoid_bce),
            cmocka_unit_test(test_sgd_and_scale),
            cmocka_unit_test(test_finite),
            cmocka_unit_test(test_orthogonalize),
    };

    dpb_log_set_sink(ignore, NULL);
    return DPB_RUN_TESTS(tests);
}
