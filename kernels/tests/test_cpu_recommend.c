/* The operators of recommendation networks on the CPU device against the reference. */
#include "cpu_pair.h"
#include "op_data.h"

static struct dpb_tensor tensor_3d(float *data, int64_t a, int64_t b, int64_t c)
{
    return (struct dpb_tensor){.data = data, .dtype = DPB_F32, .rank = 3, .dim = {a, b, c}};
}

static void check_interaction(int64_t n, int64_t t, int64_t d)
{
    struct op_data data = {0};
    int64_t columns = d + t * (t + 1) / 2;
    float *x = op_data_f32(&data, n * d), *e = op_data_f32(&data, t * n * d);
    float *dy = op_data_f32(&data, n * columns);
    float *y[2] = {op_data_f32(&data, n * columns), op_data_f32(&data, n * columns)};
    float *dx[2] = {op_data_f32(&data, n * d), op_data_f32(&data, n * d)};
    float *de[2] = {op_data_f32(&data, t * n * d), op_data_f32(&data, t * n * d)};

    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_interaction_args args = {.x = dpb_tensor_2d(x, n, d),
                                            .e = tensor_3d(e, t, n, d),
                                            .y = dpb_tensor_2d(y[set], n, columns),
                                            .dx = dpb_tensor_2d(dx[set], n, d),
                                            .de = tensor_3d(de[set], t, n, d)};
        const struct op_output fwd_out[] = {FLOATS(y[set], n * columns)};
        const struct op_output bwd_out[] = {FLOATS(dx[set], n * d), FLOATS(de[set], t * n * d)};

        op_run(on, DPB_OP_INTERACTION_FWD, &args, fwd_out, 1);
        op_assert_close("interaction", y[set], y[0], NULL, n * columns, 2.0 * (double)d);
        args.y.data = dy;
        op_run(on, DPB_OP_INTERACTION_BWD, &args, bwd_out, 2);
        op_assert_close("interaction dx", dx[set], dx[0], NULL, n * d, 2.0 * (double)(t + 1));
        op_assert_close("interaction de", de[set], de[0], NULL, t * n * d, 2.0 * (double)(t + 1));
    }
    op_data_release(&data);
}

static void check_sigmoid_bce(int64_t m)
{
    struct op_data data = {0};
    float *logits = op_data_f32(&data, m);
    float *loss[2] = {op_data_f32(&data, m), op_data_f32(&data, m)};
    float *dlogits[2] = {op_data_f32(&data, m), op_data_f32(&data, m)};
    int32_t *label = op_data_labels(&data, m, 2);
    size_t bytes = (size_t)m * sizeof(float);

    for (int64_t i = 0; i < m; i++)
        logits[i] *= i == 0 ? 1000.0f : 8.0f;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_sigmoid_bce_args args = {.logits = dpb_tensor_2d(logits, m, 1),
                                            .dlogits = dpb_tensor_2d(dlogits[set], m, 1),
                                            .label = label,
                                            .loss = loss[set],
                                            .scale = 1.0f / (float)m};
        const struct op_output fwd_out[] = {FLOATS(loss[set], m)};
        const struct op_output bwd_out[] = {FLOATS(dlogits[set], m)};
        const struct op_output over_logits[] = {{dlogits[set], bytes, logits}};

        op_run(on, DPB_OP_SIGMOID_BCE_FWD, &args, fwd_out, 1);
        op_assert_close("sigmoid-bce", loss[set], loss[0], loss[0], m, 2.0);
        op_run(on, DPB_OP_SIGMOID_BCE_BWD, &args, bwd_out, 1);
        op_assert_close("sigmoid-bce-bwd", dlogits[set], dlogits[0], NULL, m, 2.0);
        args.logits.data = dlogits[set];
        op_run(on, DPB_OP_SIGMOID_BCE_BWD, &args, over_logits, 1);
        op_assert_close("sigmoid-bce-bwd in place", dlogits[set], dlogits[0], NULL, m, 2.0);
    }
    op_data_release(&data);
}

static void test_interaction(void **state)
{
    (void)state;
    check_interaction(3, 1, 1);
    check_interaction(5, 4, 19); /* a length that no vector has */
    check_interaction(40, 26, 16);
}

static void test_sigmoid_bce(void **state)
{
    (void)state;
    check_sigmoid_bce(1);
    check_sigmoid_bce(9001);
}

static void test_labels_of_other_classes(void **state)
{
    float logit = 0.0f, loss = 7.0f, dlogit = 7.0f;
    int32_t label = 2;
    struct dpb_sigmoid_bce_args args = {.logits = dpb_tensor_1d(&logit, 1),
                                        .dlogits = dpb_tensor_1d(&dlogit, 1),
                                        .label = &label,
                                        .loss = &loss,
                                        .scale = 1.0f};

    (void)state;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_SIGMOID_BCE_FWD, &args, NULL),
                     DPB_ERR_USAGE);
    if (cpu_pair_tells_late) /* of what forward has found, backward says nothing more */
        return;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_SIGMOID_BCE_BWD, &args, NULL),
                     DPB_ERR_USAGE);
    assert_true(loss == 7.0f && dlogit == 7.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_interaction, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_sigmoid_bce, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_labels_of_other_classes, cpu_pair_open,
                                            cpu_pair_close),
    };

    return DPB_RUN_TESTS(tests);
}
