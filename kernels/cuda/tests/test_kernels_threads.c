/* Kernels in which threads of a block work together, with a thread of the host for each: under
 * ThreadSanitizer, a barrier that is missing is a data race. Small shapes, which take several
 * blocks and rounds all the same: a block has 64 threads here. */
#include <math.h>

#include "dpb_reference.h"
#include "op_data.h"
#include "shim.h"
#include "shim_device.h"

#define OUTPUTS_MOST 6

static dpb_device *device;

static int open_device(void **state)
{
    (void)state;
    device = shim_device_open(0);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    shim_device_close(device);
    return 0;
}

/* What an operator writes: floats. */
struct written {
    float *to;
    int64_t numel;
};

/* The reference, then the device from the same start: the same within `ulps`. */
static void check(enum dpb_op op, const void *args, const struct written *out, int count,
                  double ulps)
{
    struct op_data data = {0};
    float *want[OUTPUTS_MOST];

    for (int i = 0; i < count; i++) {
        want[i] = op_data_f32(&data, out[i].numel);
        memcpy(want[i], out[i].to, (size_t)out[i].numel * sizeof(float));
    }
    assert_int_equal(dpb_reference_op(op, args), DPB_OK);
    for (int i = 0; i < count; i++) {
        for (int64_t k = 0; k < out[i].numel; k++) {
            float start = want[i][k];

            want[i][k] = out[i].to[k];
            out[i].to[k] = start;
        }
    }
    assert_int_equal(dpb_op_launch(device, op, args, NULL), DPB_OK);
    for (int i = 0; i < count; i++)
        op_assert_close(dpb_op_text(op), out[i].to, want[i], NULL, out[i].numel, ulps);
    op_data_release(&data);
}

#define CHECK(op, args, out, ulps)                                                                 \
    check(op, &(args), out, (int)(sizeof(out) / sizeof((out)[0])), ulps)

static void test_bias(void **state)
{
    struct op_data data = {0};
    int64_t m = 300, n = 40;
    float *y = op_data_f32(&data, m * n), *bias = op_data_f32(&data, n);
    struct dpb_bias_args args = {.y = dpb_tensor_2d(y, m, n), .bias = bias};
    const struct written out[] = {{bias, n}};

    (void)state;
    CHECK(DPB_OP_BIAS_BWD, args, out, 2000.0);
    op_data_release(&data);
}

static void test_batchnorm(void **state)
{
    struct op_data data = {0};
    int64_t n = 2, h = 9, c = 20, numel = n * h * h * c;
    float *x = op_data_f32(&data, numel), *y = op_data_f32(&data, numel);
    float *dy = op_data_f32(&data, numel), *dx = op_data_f32(&data, numel);
    struct dpb_batchnorm_args args = {.x = dpb_tensor_4d(x, n, h, h, c),
                                      .y = dpb_tensor_4d(y, n, h, h, c),
                                      .dy = dpb_tensor_4d(dy, n, h, h, c),
                                      .dx = dpb_tensor_4d(dx, n, h, h, c),
                                      .gamma = op_data_f32(&data, c),
                                      .beta = op_data_f32(&data, c),
                                      .dgamma = op_data_f32(&data, c),
                                      .dbeta = op_data_f32(&data, c),
                                      .running_mean = op_data_f32(&data, c),
                                      .running_var = op_data_f32(&data, c),
                                      .save_mean = op_data_f32(&data, c),
                                      .save_var = op_data_f32(&data, c),
                                      .eps = 1e-3f,
                                      .momentum = 0.1f,
                                      .training = true};
    const struct written fwd[] = {{y, numel},
                                  {args.save_mean, c},
                                  {args.save_var, c},
                                  {args.running_mean, c},
                                  {args.running_var, c}};
    const struct written bwd[] = {{dx, numel}, {args.dgamma, c}, {args.dbeta, c}};

    (void)state;
    CHECK(DPB_OP_BATCHNORM_FWD, args, fwd, 200.0);
    CHECK(DPB_OP_BATCHNORM_BWD, args, bwd, 2000.0);
    op_data_release(&data);
}

static void test_softmax(void **state)
{
    struct op_data data = {0};
    int64_t m = 5, c = 301;
    float *prob = op_data_f32(&data, m * c), *loss = op_data_f32(&data, m);
    struct dpb_softmax_xent_args args = {.logits = dpb_tensor_2d(op_data_f32(&data, m * c), m, c),
                                         .prob = dpb_tensor_2d(prob, m, c),
                                         .label = op_data_labels(&data, m, c),
                                         .loss = loss};
    const struct written out[] = {{prob, m * c}, {loss, m}};

    (void)state;
    CHECK(DPB_OP_SOFTMAX_XENT_FWD, args, out, 100.0);
    op_data_release(&data);
}

static void test_layernorm(void **state)
{
    struct op_data data = {0};
    int64_t m = 37, n = 130;
    float *y = op_data_f32(&data, m * n), *dx = op_data_f32(&data, m * n);
    struct dpb_layernorm_args args = {.x = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .y = dpb_tensor_2d(y, m, n),
                                      .dy = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .dx = dpb_tensor_2d(dx, m, n),
                                      .gamma = op_data_f32(&data, n),
                                      .beta = op_data_f32(&data, n),
                                      .dgamma = op_data_f32(&data, n),
                                      .dbeta = op_data_f32(&data, n),
                                      .save_mean = op_data_f32(&data, m),
                                      .save_rstd = op_data_f32(&data, m),
                                      .eps = 1e-5f};
    const struct written fwd[] = {{y, m * n}, {args.save_mean, m}, {args.save_rstd, m}};
    const struct written bwd[] = {{dx, m * n}, {args.dgamma, n}, {args.dbeta, n}};

    (void)state;
    CHECK(DPB_OP_LAYERNORM_FWD, args, fwd, 200.0);
    CHECK(DPB_OP_LAYERNORM_BWD, args, bwd, 2000.0);
    op_data_release(&data);
}

static void test_embedding(void **state)
{
    struct op_data data = {0};
    int64_t rows = 11, n = 40, count = 150;
    float *dtable = op_data_f32(&data, rows * n);
    struct dpb_embedding_args args = {.dtable = dpb_tensor_2d(dtable, rows, n),
                                      .dy = dpb_tensor_2d(op_data_f32(&data, count * n), count, n),
                                      .ids = op_data_labels(&data, count, rows),
                                      .accumulate = true};
    const struct written out[] = {{dtable, rows * n}};

    (void)state;
    CHECK(DPB_OP_EMBEDDING_BWD, args, out, 200.0);
    op_data_release(&data);
}

static void test_interaction(void **state)
{
    struct op_data data = {0};
    int64_t samples = 3, length = 40, tables = 5, columns = length + tables * (tables + 1) / 2;
    float *y = op_data_f32(&data, samples * columns), *dx = op_data_f32(&data, samples * length);
    float *de = op_data_f32(&data, tables * samples * length);
    struct dpb_interaction_args args = {
            .x = dpb_tensor_2d(op_data_f32(&data, samples * length), samples, length),
            .e = {op_data_f32(&data, tables * samples * length),
                  DPB_F32,
                  3,
                  {tables, samples, length}},
            .y = dpb_tensor_2d(y, samples, columns),
            .dx = dpb_tensor_2d(dx, samples, length),
            .de = {de, DPB_F32, 3, {tables, samples, length}}};
    const struct written fwd[] = {{y, samples * columns}};
    const struct written bwd[] = {{dx, samples * length}, {de, tables * samples * length}};

    (void)state;
    CHECK(DPB_OP_INTERACTION_FWD, args, fwd, 200.0);
    CHECK(DPB_OP_INTERACTION_BWD, args, bwd, 200.0);
    op_data_release(&data);
}

static void test_optimizers(void **state)
{
    struct op_data data = {0};
    int64_t numel = 17000, rows = 50; /* two chunks of the optimizers */
    float *param = op_data_f32(&data, numel), *m = op_data_f32(&data, numel);
    float *v = op_data_abs(&data, op_data_f32(&data, numel), numel);
    struct dpb_adam_args lamb = {.param = dpb_tensor_1d(param, numel),
                                 .grad = op_data_f32(&data, numel),
                                 .m = m,
                                 .v = v,
                                 .step = 2,
                                 .lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-6,
                                 .weight_decay = 0.01,
                                 .adapt = true};
    struct dpb_lars_args lars = {.param = lamb.param,
                                 .grad = lamb.grad,
                                 .momentum = m,
                                 .lr = 0.1,
                                 .mu = 0.9,
                                 .weight_decay = 1e-4,
                                 .trust = 1e-3,
                                 .eps = 1e-9,
                                 .adapt = true};
    struct dpb_adagrad_args adagrad = {.param = dpb_tensor_2d(param, rows, 68),
                                       .grad = lamb.grad,
                                       .state = v,
                                       .lr = 0.01,
                                       .eps = 1e-8};
    const struct written of_lamb[] = {{param, numel}, {m, numel}, {v, numel}};
    const struct written of_lars[] = {{param, numel}, {m, numel}};
    const struct written of_adagrad[] = {{param, numel}, {v, rows}};

    (void)state;
    CHECK(DPB_OP_LAMB, lamb, of_lamb, 64.0);
    CHECK(DPB_OP_LARS, lars, of_lars, 64.0);
    CHECK(DPB_OP_ROWWISE_ADAGRAD, adagrad, of_adagrad, 64.0);
    op_data_release(&data);
}

static void test_orthogonalize(void **state)
{
    struct op_data data = {0};
    int64_t rows = 150, columns = 6;
    float *x = op_data_f32(&data, rows * columns);
    struct dpb_orthogonalize_args args = {.x = dpb_tensor_2d(x, rows, columns), .eps = 1e-8f};
    const struct written out[] = {{x, rows * columns}};

    (void)state;
    CHECK(DPB_OP_ORTHOGONALIZE, args, out, 200.0);
    op_data_release(&data);
}

static void test_attention(void **state)
{
    struct op_data data = {0};
    int64_t b = 1, s = 9, a = 2, d = 4, numel = b * s * a * d, pairs = b * a * s * s;
    float *y = op_data_f32(&data, numel), *prob = op_data_f32(&data, pairs);
    float *dq = op_data_f32(&data, numel), *dk = op_data_f32(&data, numel);
    float *dv = op_data_f32(&data, numel);
    struct dpb_attention_args args = {.q = dpb_tensor_4d(op_data_f32(&data, numel), b, s, a, d),
                                      .k = dpb_tensor_4d(op_data_f32(&data, numel), b, s, a, d),
                                      .v = dpb_tensor_4d(op_data_f32(&data, numel), b, s, a, d),
                                      .dq = dpb_tensor_4d(dq, b, s, a, d),
                                      .dk = dpb_tensor_4d(dk, b, s, a, d),
                                      .dv = dpb_tensor_4d(dv, b, s, a, d),
                                      .y = dpb_tensor_4d(y, b, s, a, d),
                                      .dy = dpb_tensor_4d(op_data_f32(&data, numel), b, s, a, d),
                                      .prob = dpb_tensor_4d(prob, b, a, s, s),
                                      .workspace = op_data_f32(&data, pairs),
                                      .stride = a * d,
                                      .scale = 0.5f,
                                      .causal = true,
                                      .keep = 0.9f,
                                      .seed = 3};
    const struct written fwd[] = {{y, numel}, {prob, pairs}};
    const struct written bwd[] = {{dq, numel}, {dk, numel}, {dv, numel}};

    (void)state;
    CHECK(DPB_OP_ATTENTION_FWD, args, fwd, 200.0);
    CHECK(DPB_OP_ATTENTION_BWD, args, bwd, 400.0);
    op_data_release(&data);
}

/* Many threads raise the same flag, and note faults. */
static void test_flags(void **state)
{
    static float x[300];
    static int32_t label[300];
    struct dpb_cuda_queue queue = shim_queue_open();
    struct dpb_sigmoid_bce_args args = {.logits = dpb_tensor_1d(x, 300), .label = label, .loss = x};
    int32_t found = 0, value;
    int64_t position;

    (void)state;
    for (int i = 0; i < 300; i++) {
        x[i] = i % 2 ? (float)HUGE_VAL : 1.0f;
        label[i] = i > 7 ? i : 0;
    }
    assert_int_equal(dpb_cuda_find_nonfinite(x, DPB_F32, 300, &found, &queue), 0);
    assert_int_equal(found, 1);
    assert_int_equal(dpb_cuda_sigmoid_bce_fwd(&args, &queue), 0);
    assert_true(dpb_cuda_fault_read(queue.faults, DPB_CUDA_FAULT_BCE_LABEL, &position, &value));
    assert_int_equal(position, 8);
    assert_int_equal(value, 8);
    shim_queue_close(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_bias),       cmocka_unit_test(test_batchnorm),
            cmocka_unit_test(test_softmax),    cmocka_unit_test(test_layernorm),
            cmocka_unit_test(test_embedding),  cmocka_unit_test(test_interaction),
            cmocka_unit_test(test_optimizers), cmocka_unit_test(test_orthogonalize),
            cmocka_unit_test(test_attention),  cmocka_unit_test(test_flags),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
