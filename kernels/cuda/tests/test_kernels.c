/* What the operators' tests do not reach: helpers around the libraries, tables of many tensors,
 * faults in the data, limits, long rows, and bits. */
#include <math.h>

#include "cuda_kernels.h"
#include "dpb_device_cpu.h"
#include "dpb_reference.h"
#include "op_data.h"
#include "shim.h"
#include "shim_device.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct dpb_cuda_queue queue;

static int open_queue(void **state)
{
    (void)state;
    queue = shim_queue_open();
    return 0;
}

static int close_queue(void **state)
{
    (void)state;
    shim_queue_close(&queue);
    return 0;
}

static const enum dpb_dtype dtypes[] = {DPB_F32, DPB_BF16, DPB_F16};

/* `numel` floats as `dtype`, at a 16-byte boundary or an element after it. */
static void *as(struct op_data *data, const float *values, enum dpb_dtype dtype, int64_t numel,
                bool is_aligned)
{
    size_t bytes = dpb_dtype_bytes(dtype);
    uintptr_t memory = (uintptr_t)op_data_bytes(data, (size_t)numel * bytes + 32);
    char *to = (char *)((memory + 15) & ~(uintptr_t)15) + (is_aligned ? 0 : bytes);
    struct dpb_cast_args args = {dpb_tensor_1d((void *)(uintptr_t)values, numel),
                                 {to, dtype, 1, {numel}}};

    assert_int_equal(dpb_reference_op(DPB_OP_CAST, &args), DPB_OK);
    return to;
}

static float *floats_of(struct op_data *data, const void *from, enum dpb_dtype dtype, int64_t numel)
{
    float *to = op_data_f32(data, numel);
    struct dpb_cast_args args = {{(void *)(uintptr_t)from, dtype, 1, {numel}},
                                 dpb_tensor_1d(to, numel)};

    assert_int_equal(dpb_reference_op(DPB_OP_CAST, &args), DPB_OK);
    return to;
}

/* What `dtype` makes of values. */
static float *rounded(struct op_data *data, const float *values, enum dpb_dtype dtype,
                      int64_t numel)
{
    return floats_of(data, as(data, values, dtype, numel, true), dtype, numel);
}

/* ---- layouts ---- */

static void check_weights(enum dpb_dtype oihw, enum dpb_dtype krsc, const int64_t *s)
{
    struct op_data data = {0};
    int64_t o = s[0], i = s[1], kh = s[2], kw = s[3], o_padded = s[4], i_padded = s[5];
    int64_t numel = o * i * kh * kw, padded = o_padded * i_padded * kh * kw;
    float *values = rounded(&data, op_data_f32(&data, numel), krsc, numel), *got;
    struct dpb_cuda_weights args = {
            .oihw = as(&data, values, oihw, numel, false),
            .krsc = as(&data, op_data_f32(&data, padded), krsc, padded, true),
            .oihw_dtype = oihw,
            .krsc_dtype = krsc,
            .o = o,
            .i = i,
            .kh = kh,
            .kw = kw,
            .o_padded = o_padded,
            .i_padded = i_padded};

    values = floats_of(&data, args.oihw, oihw, numel);
    assert_int_equal(dpb_cuda_weights_to_krsc(&args, &queue), 0);
    got = floats_of(&data, args.krsc, krsc, padded);
    for (int64_t at = 0; at < padded; at++) {
        int64_t c = at % i_padded, k = at / i_padded % (kh * kw), n = at / i_padded / (kh * kw);
        float want = n < o && c < i ? values[(n * i + c) * kh * kw + k] : 0.0f;

        assert_memory_equal(&got[at], &want, sizeof(want));
    }
    memset(args.oihw, 0xff, (size_t)numel * dpb_dtype_bytes(oihw));
    assert_int_equal(dpb_cuda_weights_to_oihw(&args, &queue), 0);
    op_assert_same(floats_of(&data, args.oihw, oihw, numel), values, numel);
    op_data_release(&data);
}

static void test_weights(void **state)
{
    static const int64_t shapes[][6] = {{5, 3, 3, 3, 5, 8},
                                        {4, 8, 1, 1, 8, 8},
                                        {16, 3, 7, 7, 16, 8},
                                        {1, 1, 1, 1, 1, 1},
                                        {3, 17, 2, 5, 8, 24}};

    (void)state;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int from = 0; from < 3; from++)
            for (int to = 0; to < 3; to++)
                check_weights(dtypes[from], dtypes[to], shapes[i]);
}

static void check_channels(enum dpb_dtype dtype, int64_t rows, int64_t columns, int64_t padded)
{
    struct op_data data = {0};
    float *values = rounded(&data, op_data_f32(&data, rows * columns), dtype, rows * columns);
    float *got;
    struct dpb_cuda_channels args = {
            .dense = as(&data, values, dtype, rows * columns, true),
            .padded_rows = as(&data, op_data_f32(&data, rows * padded), dtype, rows * padded, true),
            .dtype = dtype,
            .rows = rows,
            .columns = columns,
            .padded = padded};

    assert_int_equal(dpb_cuda_channels_pad(&args, &queue), 0);
    got = floats_of(&data, args.padded_rows, dtype, rows * padded);
    for (int64_t i = 0; i < rows * padded; i++)
        assert_true(got[i] ==
                    (i % padded < columns ? values[i / padded * columns + i % padded] : 0.0f));
    memset(args.dense, 0xff, (size_t)(rows * columns) * dpb_dtype_bytes(dtype));
    assert_int_equal(dpb_cuda_channels_unpad(&args, &queue), 0);
    op_assert_same(floats_of(&data, args.dense, dtype, rows * columns), values, rows * columns);
    op_data_release(&data);
}

static void test_channels(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        check_channels(dtypes[i], 50, 3, 8);
        check_channels(dtypes[i], 1, 8, 8);
        check_channels(dtypes[i], 333, 1, 16);
    }
}

/* Elements between the tokens' are not touched. */
static void check_heads(enum dpb_dtype dtype, const int64_t *s)
{
    struct op_data data = {0};
    int64_t batch = s[0], tokens = s[1], heads = s[2], depth = s[3], stride = s[4];
    int64_t extent = batch * tokens * stride, numel = batch * tokens * heads * depth;
    float *values = rounded(&data, op_data_f32(&data, extent), dtype, extent);
    float *scattered = op_data_f32(&data, extent), *got;
    struct dpb_cuda_heads args = {as(&data, values, dtype, extent, s[5]),
                                  as(&data, values, dtype, numel, true),
                                  dtype,
                                  batch,
                                  tokens,
                                  heads,
                                  depth,
                                  stride};

    assert_int_equal(dpb_cuda_heads_gather(&args, &queue), 0);
    got = floats_of(&data, args.heads_side, dtype, numel);
    memcpy(scattered, values, (size_t)extent * sizeof(float));
    for (int64_t i = 0; i < numel; i++) {
        int64_t d = i % depth, t = i / depth % tokens, a = i / depth / tokens % heads;
        int64_t at = (i / depth / tokens / heads * tokens + t) * stride + a * depth + d;

        assert_true(got[i] == values[at]);
        scattered[at] = -2.0f;
        got[i] = -2.0f;
    }
    args.heads_side = as(&data, got, dtype, numel, true);
    assert_int_equal(dpb_cuda_heads_scatter(&args, &queue), 0);
    op_assert_same(floats_of(&data, args.tokens_side, dtype, extent), scattered, extent);
    op_data_release(&data);
}

static void test_heads(void **state)
{
    static const int64_t shapes[][6] = {/* B S A D stride aligned */
                                        {2, 5, 3, 8, 72, 1},
                                        {2, 5, 3, 8, 72, 0},
                                        {1, 7, 2, 5, 11, 1},
                                        {3, 1, 1, 64, 64, 1}};

    (void)state;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < 3; k++)
            check_heads(dtypes[k], shapes[i]);
}

/* ---- around the libraries ---- */

static void check_bias_relu(enum dpb_dtype dtype, int64_t rows, int64_t columns, bool with_bias,
                            bool relu, bool is_aligned)
{
    struct op_data data = {0};
    int64_t numel = rows * columns;
    float *x = rounded(&data, op_data_f32(&data, numel), dtype, numel);
    float *bias = as(&data, op_data_f32(&data, columns), DPB_F32, columns, is_aligned);
    float *want = op_data_f32(&data, numel);
    void *y = as(&data, x, dtype, numel, is_aligned); /* in place */
    struct dpb_cuda_bias_relu_args args = {y,       y,   with_bias ? bias : NULL, dtype, rows,
                                           columns, relu};

    for (int64_t i = 0; i < numel; i++) {
        want[i] = x[i] + (with_bias ? bias[i % columns] : 0.0f);
        want[i] = relu && !(want[i] > 0.0f) ? 0.0f : want[i];
    }
    assert_int_equal(dpb_cuda_bias_relu(&args, &queue), 0);
    op_assert_same(floats_of(&data, y, dtype, numel), rounded(&data, want, dtype, numel), numel);
    op_data_release(&data);
}

static void test_bias_relu(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int how = 0; how < 8; how++) {
            check_bias_relu(dtypes[i], 37, 64, how & 1, how & 2, how & 4);
            check_bias_relu(dtypes[i], 300, 5, how & 1, how & 2, how & 4);
        }
        check_bias_relu(dtypes[i], 3, 2048, true, true, true);
    }
}

static void test_fill_and_search(void **state)
{
    static const float wrong[] = {INFINITY, -INFINITY, NAN};

    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int64_t numel = 0; numel < 1100; numel = numel * 2 + 1) {
            struct op_data data = {0};
            float *start = op_data_f32(&data, numel + 1);
            void *x = as(&data, start, dtypes[i], numel + 1, numel % 4 != 3);
            float *got;

            assert_int_equal(dpb_cuda_fill(x, dtypes[i], numel, -1.5f, &queue), 0);
            got = floats_of(&data, x, dtypes[i], numel + 1);
            for (int64_t k = 0; k < numel; k++)
                assert_true(got[k] == -1.5f);
            assert_true(got[numel] == rounded(&data, start, dtypes[i], numel + 1)[numel]);
            for (int64_t k = -1; k < numel; k = k * 3 + 4) {
                int32_t found = 0;

                if (k >= 0)
                    got[k] = wrong[k % 3];
                x = as(&data, got, dtypes[i], numel + 1, numel % 4 != 3);
                assert_int_equal(dpb_cuda_find_nonfinite(x, dtypes[i], numel, &found, &queue), 0);
                assert_int_equal(found, k >= 0);
                if (k >= 0)
                    got[k] = 1.0f;
            }
            op_data_release(&data);
        }
    }
}

/* ---- many tensors ---- */

#define MANY 210

static const int64_t sizes[] = {1, 3, 64, 1000, 0, 4096, 16384, 16385, 40000};

/* The size of tensor i; large ones are rare. */
static int64_t size_of(int i)
{
    return i % 50 == 49 ? sizes[6 + i / 50 % 3] : sizes[i % 6];
}

/* Element `i` of one of an optimizer's arrays, at a boundary or not. */
static float *many_floats(struct op_data *data, int i, int64_t numel)
{
    float *values = op_data_f32(data, numel + 4);

    return i % 2 ? values : values + 3;
}

static void assert_near(const float *got, const float *want, int64_t numel)
{
    for (int64_t i = 0; i < numel; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-6 * (1.0 + fabs((double)want[i]))))
            fail_msg("element %lld is %.9g, reference %.9g", (long long)i, (double)got[i],
                     (double)want[i]);
}

static void test_many_sgd(void **state)
{
    static struct op_data data[2][MANY];
    struct dpb_sgd_args args[2][MANY];
    int64_t launches = dpb_shim_launches();

    (void)state;
    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < MANY; i++) {
            struct op_data *d = &data[set][i];
            int64_t count = size_of(i);

            *d = (struct op_data){.stream = (uint64_t)i * 10};
            args[set][i] = (struct dpb_sgd_args){.param = many_floats(d, i, count),
                                                 .grad = many_floats(d, i, count),
                                                 .momentum = many_floats(d, i, count),
                                                 .count = count,
                                                 .lr = 0.1f,
                                                 .mu = i % 3 ? 0.9f : 0.0f,
                                                 .weight_decay = i % 2 ? 1e-3f : 0.0f};
            if (i % 6 == 0)
                args[set][i].momentum = NULL;
        }
    }
    assert_int_equal(dpb_cuda_sgd_momentum_many(args[0], MANY, &queue), 0);
    /* 4000 bytes of parameters hold at least 70 tensors. */
    assert_in_range(dpb_shim_launches() - launches, 1, MANY / 70);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(dpb_reference_op(DPB_OP_SGD_MOMENTUM, &args[1][i]), DPB_OK);
        assert_near(args[0][i].param, args[1][i].param, args[0][i].count);
        if (args[0][i].momentum)
            assert_near(args[0][i].momentum, args[1][i].momentum, args[0][i].count);
        op_data_release(&data[0][i]);
        op_data_release(&data[1][i]);
    }
}

static void absolute(float *values, int64_t numel)
{
    for (int64_t i = 0; i < numel; i++)
        values[i] = fabsf(values[i]);
}

static struct dpb_adam_args adam_args(struct op_data *data, int i)
{
    int64_t numel = size_of(i) + 1;
    struct dpb_adam_args args = {.param = dpb_tensor_1d(many_floats(data, i, numel), numel),
                                 .grad = many_floats(data, i, numel),
                                 .m = many_floats(data, i, numel),
                                 .v = many_floats(data, i, numel),
                                 .step = 1 + i % 4,
                                 .lr = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-6,
                                 .weight_decay = i % 2 ? 0.01 : 0.0,
                                 .adapt = i % 3 != 0};

    absolute(args.v, numel);
    return args;
}

static void check_many_adam(enum dpb_op op)
{
    static struct op_data data[2][MANY];
    struct dpb_adam_args args[2][MANY];

    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < MANY; i++) {
            data[set][i] = (struct op_data){.stream = (uint64_t)i * 10};
            args[set][i] = adam_args(&data[set][i], i);
        }
    }
    assert_int_equal(
            (op == DPB_OP_LAMB ? dpb_cuda_lamb_many : dpb_cuda_adamw_many)(args[0], MANY, &queue),
            0);
    for (int i = 0; i < MANY; i++) {
        int64_t numel = dpb_tensor_numel(&args[0][i].param);

        assert_int_equal(dpb_reference_op(op, &args[1][i]), DPB_OK);
        assert_near(args[0][i].param.data, args[1][i].param.data, numel);
        assert_near(args[0][i].m, args[1][i].m, numel);
        assert_near(args[0][i].v, args[1][i].v, numel);
        op_data_release(&data[0][i]);
        op_data_release(&data[1][i]);
    }
}

static void test_many_adam(void **state)
{
    (void)state;
    check_many_adam(DPB_OP_ADAMW);
    check_many_adam(DPB_OP_LAMB);
}

static void test_many_lars(void **state)
{
    static struct op_data data[2][MANY];
    struct dpb_lars_args args[2][MANY];

    (void)state;
    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < MANY; i++) {
            struct op_data *d = &data[set][i];
            int64_t numel = size_of(i) + 1;

            *d = (struct op_data){.stream = (uint64_t)i * 10};
            args[set][i] =
                    (struct dpb_lars_args){.param = dpb_tensor_1d(many_floats(d, i, numel), numel),
                                           .grad = many_floats(d, i, numel),
                                           .momentum = many_floats(d, i, numel),
                                           .lr = 0.1,
                                           .mu = 0.9,
                                           .weight_decay = 1e-4,
                                           .trust = 1e-3,
                                           .eps = 1e-9,
                                           .adapt = i % 3 != 0};
        }
    }
    assert_int_equal(dpb_cuda_lars_many(args[0], MANY, &queue), 0);
    for (int i = 0; i < MANY; i++) {
        int64_t numel = dpb_tensor_numel(&args[0][i].param);

        assert_int_equal(dpb_reference_op(DPB_OP_LARS, &args[1][i]), DPB_OK);
        assert_near(args[0][i].param.data, args[1][i].param.data, numel);
        assert_near(args[0][i].momentum, args[1][i].momentum, numel);
        op_data_release(&data[0][i]);
        op_data_release(&data[1][i]);
    }
}

static void check_many_adagrad(enum dpb_op op)
{
    static const int64_t columns[] = {1, 16, 33, 128, 500};
    static struct op_data data[2][MANY];
    struct dpb_adagrad_args args[2][MANY];

    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < MANY; i++) {
            struct op_data *d = &data[set][i];
            int64_t rows = i % 40 == 39 ? 300 : i % 7 + 1, n = columns[i % 5];

            *d = (struct op_data){.stream = (uint64_t)i * 10};
            args[set][i] = (struct dpb_adagrad_args){
                    .param = dpb_tensor_2d(many_floats(d, i, rows * n), rows, n),
                    .grad = many_floats(d, i, rows * n),
                    .state = many_floats(d, i, rows * n),
                    .lr = 0.01,
                    .eps = 1e-8,
                    .weight_decay = i % 2 ? 0.01 : 0.0};
            absolute(args[set][i].state, rows * n);
        }
    }
    assert_int_equal((op == DPB_OP_ADAGRAD ? dpb_cuda_adagrad_many
                                           : dpb_cuda_rowwise_adagrad_many)(args[0], MANY, &queue),
                     0);
    for (int i = 0; i < MANY; i++) {
        int64_t numel = dpb_tensor_numel(&args[0][i].param);

        assert_int_equal(dpb_reference_op(op, &args[1][i]), DPB_OK);
        assert_near(args[0][i].param.data, args[1][i].param.data, numel);
        assert_near(args[0][i].state, args[1][i].state, numel);
        op_data_release(&data[0][i]);
        op_data_release(&data[1][i]);
    }
}

static void test_many_adagrad(void **state)
{
    (void)state;
    check_many_adagrad(DPB_OP_ADAGRAD);
    check_many_adagrad(DPB_OP_ROWWISE_ADAGRAD);
}

/* ---- embedding ---- */

static bool fault(enum dpb_cuda_fault kind, int64_t *position, int32_t *value)
{
    bool is = dpb_cuda_fault_read(queue.faults, kind, position, value);

    *queue.faults = (struct dpb_cuda_faults){0};
    return is;
}

/* Rows are added in the order of positions: to the bit. */
static void check_scatter(int64_t count, int64_t rows, int64_t columns, bool accumulate)
{
    struct op_data data = {0};
    int32_t *ids = op_data_labels(&data, count, rows);
    float *dy = op_data_f32(&data, count * columns);
    float *got = op_data_f32(&data, rows * columns), *want = op_data_f32(&data, rows * columns);
    struct dpb_embedding_args args = {.dtable = dpb_tensor_2d(got, rows, columns),
                                      .dy = dpb_tensor_2d(dy, count, columns),
                                      .ids = ids,
                                      .accumulate = accumulate};

    memcpy(want, got, (size_t)(rows * columns) * sizeof(float));
    if (!accumulate)
        memset(want, 0, (size_t)(rows * columns) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < columns; j++)
            want[ids[i] * columns + j] += dy[i * columns + j];
    assert_int_equal(dpb_cuda_embedding_bwd(&args, &queue), 0);
    op_assert_same(got, want, rows * columns);
    op_data_release(&data);
}

static void test_scatter(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 4; order++) {
        dpb_shim_set_order(order);
        check_scatter(1, 1, 1, false);
        check_scatter(1000, 2, 12, false); /* the two segments of BERT */
        check_scatter(700, 50, 130, true);
        check_scatter(2000, 100000, 3, false); /* hardly any number twice */
        check_scatter(257, 31, 8, true);
    }
    dpb_shim_set_order(0);
    check_scatter(70000, 7, 2, false); /* tiles of more than one round */
}

static void test_faults_of_embedding(void **state)
{
    static int32_t ids[] = {3, 7, -1, 0, 4, 99};
    struct op_data data = {0};
    float *table = op_data_f32(&data, 4 * 5), *y = op_data_f32(&data, 6 * 5);
    float before[6 * 5];
    struct dpb_embedding_args args = {.table = dpb_tensor_2d(table, 4, 5),
                                      .dtable = dpb_tensor_2d(table, 4, 5),
                                      .y = dpb_tensor_2d(y, 6, 5),
                                      .dy = dpb_tensor_2d(y, 6, 5),
                                      .ids = ids};
    int64_t position;
    int32_t value;

    (void)state;
    for (unsigned order = 0; order < 4; order++) {
        dpb_shim_set_order(order);
        memcpy(before, y, sizeof(before));
        assert_int_equal(dpb_cuda_embedding_fwd(&args, &queue), 0);
        assert_true(fault(DPB_CUDA_FAULT_EMBEDDING_FWD, &position, &value));
        assert_int_equal(position, 1);
        assert_int_equal(value, 7);
        op_assert_same(y, table + 3 * 5, 5);
        op_assert_same(y + 5, before + 5, 2 * 5);
        assert_false(fault(DPB_CUDA_FAULT_EMBEDDING_FWD, &position, &value));

        assert_int_equal(dpb_cuda_embedding_bwd(&args, &queue), 0);
        assert_true(fault(DPB_CUDA_FAULT_EMBEDDING_BWD, &position, &value));
        assert_int_equal(position, 1);
        assert_int_equal(value, 7);
        op_assert_same(table, y + 3 * 5, 5);
        op_assert_same(table + 3 * 5, y, 5);
    }
    dpb_shim_set_order(0);
    ids[1] = -5;
    assert_int_equal(dpb_cuda_embedding_fwd(&args, &queue), 0);
    assert_true(fault(DPB_CUDA_FAULT_EMBEDDING_FWD, &position, &value));
    assert_int_equal(value, -5);
    op_data_release(&data);
}

/* ---- softmax ---- */

static void check_softmax(int64_t rows, int64_t classes, bool is_aligned, float spread)
{
    struct op_data data = {0};
    int64_t numel = rows * classes;
    float *values = op_data_f32(&data, numel), *logits, *prob = op_data_f32(&data, numel);
    float *loss = op_data_f32(&data, rows), *want_loss = op_data_f32(&data, rows);
    struct dpb_softmax_xent_args args = {.prob = dpb_tensor_2d(prob, rows, classes),
                                         .label = op_data_labels(&data, rows, classes),
                                         .loss = want_loss};

    for (int64_t i = 0; i < numel; i++)
        values[i] *= spread;
    logits = as(&data, values, DPB_F32, numel, is_aligned);
    args.logits = dpb_tensor_2d(logits, rows, classes);
    assert_int_equal(dpb_reference_op(DPB_OP_SOFTMAX_XENT_FWD, &args), DPB_OK);
    args.prob.data = logits; /* in place */
    args.loss = loss;
    assert_int_equal(dpb_cuda_softmax_xent_fwd(&args, &queue), 0);
    op_assert_close("prob", logits, prob, NULL, numel, 32.0 * (1.0 + (double)spread));
    op_assert_close("loss", loss, want_loss, NULL, rows, 256.0 * (1.0 + (double)spread));
    op_data_release(&data);
}

static void test_softmax(void **state)
{
    (void)state;
    check_softmax(3, 30522, true, 4.0f); /* BERT's words, GPT-2's */
    check_softmax(2, 50257, true, 4.0f);
    check_softmax(2, 1000, false, 100.0f);
    check_softmax(5, 2, true, 1e4f);
    check_softmax(4, 1, false, 1.0f);
}

static void test_faults_of_labels(void **state)
{
    float logits[] = {1.0f, 2.0f, -INFINITY, 0.0f, 1.0f, 2.0f}, prob[6], loss[3];
    int32_t label[] = {1, 2, -3};
    struct dpb_softmax_xent_args softmax = {.logits = dpb_tensor_2d(logits, 3, 2),
                                            .prob = dpb_tensor_2d(prob, 3, 2),
                                            .label = label,
                                            .loss = loss};
    struct dpb_sigmoid_bce_args bce = {
            .logits = dpb_tensor_1d(logits, 3), .label = label, .loss = loss};
    int64_t position;
    int32_t value;

    (void)state;
    assert_int_equal(dpb_cuda_softmax_xent_fwd(&softmax, &queue), 0);
    assert_true(fault(DPB_CUDA_FAULT_SOFTMAX_LABEL, &position, &value));
    assert_int_equal(position, 1);
    assert_int_equal(value, 2);
    assert_true(isfinite(loss[0]) && isnan(loss[1]) && isnan(loss[2]));
    assert_true(prob[2] == 0.0f && prob[3] == 1.0f);
    assert_int_equal(dpb_cuda_sigmoid_bce_fwd(&bce, &queue), 0);
    assert_true(fault(DPB_CUDA_FAULT_BCE_LABEL, &position, &value));
    assert_int_equal(position, 1);
    assert_true(isfinite(loss[0]) && isnan(loss[1]) && isnan(loss[2]));
}

/* Scores of prob's own type, in place. */
static void check_attention(enum dpb_dtype dtype, int64_t tokens, bool causal, float keep)
{
    struct op_data data = {0};
    int64_t heads = 2, batch = 2, rows = batch * heads * tokens, numel = rows * tokens;
    double unit = dtype == DPB_F32 ? 0x1p-22 : dtype == DPB_BF16 ? 0x1p-8 : 0x1p-10;
    float *scores = rounded(&data, op_data_f32(&data, numel), dtype, numel), *prob, *dropped;
    uint8_t *key_mask = op_data_bytes(&data, (size_t)(batch * tokens));
    struct dpb_cuda_attention_fwd args = {.scores = as(&data, scores, dtype, numel, true),
                                          .dropped = as(&data, scores, dtype, numel, true),
                                          .scores_dtype = dtype,
                                          .dtype = dtype,
                                          .batch = batch,
                                          .heads = heads,
                                          .tokens = tokens,
                                          .key_mask = key_mask,
                                          .scale = 3.0f,
                                          .causal = causal,
                                          .keep = keep,
                                          .seed = 7,
                                          .offset = 5};
    struct dpb_dropout_args drop = {.keep = keep, .seed = 7, .offset = 5};

    for (int64_t i = 0; i < batch * tokens; i++)
        key_mask[i] = i % 5 != 2 && i < (2 * batch - 1) * tokens; /* all keys of no sequence */
    memset(key_mask, 0, (size_t)tokens);
    args.prob = (void *)(uintptr_t)args.scores;
    assert_int_equal(dpb_cuda_attention_softmax_fwd(&args, &queue), 0);
    prob = floats_of(&data, args.prob, dtype, numel);
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *mask = key_mask + i / tokens / heads * tokens;
        double sum = 0.0;

        for (int64_t j = 0; j < tokens; j++)
            if (mask[j] && !(causal && j > i % tokens))
                sum += exp(3.0 * (double)scores[i * tokens + j]);
        for (int64_t j = 0; j < tokens; j++) {
            bool open = mask[j] && !(causal && j > i % tokens);
            double want = open ? exp(3.0 * (double)scores[i * tokens + j]) / sum : 0.0;

            if (!(fabs((double)prob[i * tokens + j] - want) <= unit * want + 0x1p-24))
                fail_msg("prob[%lld,%lld] is %g, not %g", (long long)i, (long long)j,
                         (double)prob[i * tokens + j], want);
        }
    }
    dropped = op_data_f32(&data, numel);
    drop.x = (struct dpb_tensor){args.prob, dtype, 1, {numel}};
    drop.y = (struct dpb_tensor){as(&data, dropped, dtype, numel, true), dtype, 1, {numel}};
    if (keep == 0.0f)
        drop.y = drop.x;
    else
        assert_int_equal(dpb_cuda_dropout_fwd(&drop, &queue), 0);
    assert_memory_equal(drop.y.data, args.dropped, (size_t)numel * dpb_dtype_bytes(dtype));
    op_data_release(&data);
}

static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        check_attention(dtypes[i], 36, false, 0.9f);
        check_attention(dtypes[i], 17, true, 0.5f);
        check_attention(dtypes[i], 140, true, 0.0f);
        check_attention(dtypes[i], 1, false, 1.0f);
    }
}

/* ---- dropout: the CPU device's bits ---- */

static void test_dropout(void **state)
{
    static const uint64_t offsets[] = {0, 1, 6, 3, 0x1234567890ull, 0xfffffffffff00000ull};
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *cpu;

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &cpu), DPB_OK);
    for (int i = 0; i < COUNT_OF(offsets); i++) {
        for (int narrow = 0; narrow < 2; narrow++) {
            struct op_data data = {0};
            enum dpb_dtype dtype = narrow ? DPB_BF16 : DPB_F32;
            int64_t numel = 1000 + i;
            float *x = op_data_f32(&data, numel);
            struct dpb_tensor from = {as(&data, x, dtype, numel, i % 2), dtype, 1, {numel}};
            struct dpb_tensor to[2] = {from, from};
            struct dpb_dropout_args args = {.x = from,
                                            .keep = i % 2 ? 0.9f : 0.1f,
                                            .seed = 0x123456789abcdefull * (uint64_t)(i + 1),
                                            .offset = offsets[i]};

            for (int k = 0; k < 2; k++) {
                to[k].data = as(&data, x, dtype, numel, i % 2);
                args.y = to[k];
                if (k)
                    assert_int_equal(dpb_cuda_dropout_fwd(&args, &queue), 0);
                else
                    assert_int_equal(dpb_op_launch(cpu, DPB_OP_DROPOUT_FWD, &args, NULL), DPB_OK);
            }
            assert_memory_equal(to[0].data, to[1].data, (size_t)numel * dpb_dtype_bytes(dtype));
            op_data_release(&data);
        }
    }
    dpb_device_cpu_ops.close(cpu);
}

/* ---- limits ---- */

static void test_limits(void **state)
{
    static float x[8], y[8];
    struct dpb_bias_args bias = {.y = dpb_tensor_2d(x, 2, (1 << 17) + 1), .bias = y};
    struct dpb_embedding_args embedding = {.dtable = dpb_tensor_2d(x, 2, 1),
                                           .dy = dpb_tensor_2d(y, (1 << 20) + 1, 1)};
    struct dpb_interaction_args interaction = {.x = dpb_tensor_2d(x, 1, 1),
                                               .e = {y, DPB_F32, 3, {64, 1, 1}}};
    struct dpb_lars_args lars = {.param = dpb_tensor_1d(x, 8), .adapt = true};
    struct dpb_relu_args relu = {.x = {x, DPB_F64, 1, {4}}, .y = {y, DPB_F64, 1, {4}}};
    struct dpb_cuda_queue small = queue;
    int64_t launches = dpb_shim_launches();

    (void)state;
    small.workspace_bytes = 8;
    assert_int_equal(dpb_cuda_bias_bwd(&bias, &queue), DPB_CUDA_INVALID);
    bias.y.dim[1] = 4;
    assert_int_equal(dpb_cuda_bias_bwd(&bias, &small), DPB_CUDA_INVALID);
    assert_int_equal(dpb_cuda_embedding_bwd(&embedding, &queue), DPB_CUDA_INVALID);
    embedding.dy.dim[0] = 8;
    assert_int_equal(dpb_cuda_embedding_bwd(&embedding, &small), DPB_CUDA_INVALID);
    assert_int_equal(dpb_cuda_interaction_fwd(&interaction, &queue), DPB_CUDA_INVALID);
    assert_int_equal(dpb_cuda_lars_many(&lars, 1, &small), DPB_CUDA_INVALID);
    assert_int_equal(dpb_cuda_relu_fwd(&relu, &queue), DPB_CUDA_INVALID);
    assert_int_equal(dpb_shim_launches(), launches);
}

/* More elements than pass through shared memory at a time, and the most tables. */
static void check_interaction(int64_t samples, int64_t length, int64_t tables)
{
    struct op_data data = {0};
    int64_t columns = length + tables * (tables + 1) / 2, numel = tables * samples * length;
    float *x = op_data_f32(&data, samples * length), *e = op_data_f32(&data, numel);
    float *y[2], *dx[2], *de[2];
    struct dpb_interaction_args args = {.x = dpb_tensor_2d(x, samples, length),
                                        .e = {e, DPB_F32, 3, {tables, samples, length}}};

    for (int i = 0; i < 2; i++) {
        y[i] = op_data_f32(&data, samples * columns);
        dx[i] = op_data_f32(&data, samples * length);
        de[i] = op_data_f32(&data, numel);
        args.y = dpb_tensor_2d(y[i], samples, columns);
        args.dx = dpb_tensor_2d(dx[i], samples, length);
        args.de = (struct dpb_tensor){de[i], DPB_F32, 3, {tables, samples, length}};
        if (i) {
            assert_int_equal(dpb_cuda_interaction_fwd(&args, &queue), 0);
            args.y.data = y[0]; /* the same gradient as the reference's */
            assert_int_equal(dpb_cuda_interaction_bwd(&args, &queue), 0);
        } else {
            assert_int_equal(dpb_reference_op(DPB_OP_INTERACTION_FWD, &args), DPB_OK);
            assert_int_equal(dpb_reference_op(DPB_OP_INTERACTION_BWD, &args), DPB_OK);
        }
    }
    op_assert_close("y", y[1], y[0], NULL, samples * columns, 16.0 * (double)length);
    op_assert_close("dx", dx[1], dx[0], NULL, samples * length, 64.0 * (double)(length + tables));
    op_assert_close("de", de[1], de[0], NULL, numel, 64.0 * (double)(length + tables));
    op_data_release(&data);
}

static void test_interaction(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 4; order++) {
        dpb_shim_set_order(order);
        check_interaction(3, 70, 5);
        check_interaction(1, 40, 63);
        check_interaction(2, 128, 26); /* DLRM */
    }
    dpb_shim_set_order(0);
}

/* The most channels in the least workspace that is promised. */
static void test_most_columns(void **state)
{
    struct op_data data = {0};
    int64_t channels = 1 << 17;
    float *x = op_data_f32(&data, 3 * channels);
    struct dpb_bias_args bias = {.y = dpb_tensor_2d(x, 3, channels),
                                 .bias = op_data_f32(&data, channels)};

    (void)state;
    assert_int_equal(dpb_cuda_bias_bwd(&bias, &queue), 0);
    for (int64_t i = 0; i < channels; i++)
        assert_true(fabsf(bias.bias[i] - (x[i] + x[channels + i] + x[2 * channels + i])) < 1e-6f);
    op_data_release(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_weights),
            cmocka_unit_test(test_channels),
            cmocka_unit_test(test_heads),
            cmocka_unit_test(test_bias_relu),
            cmocka_unit_test(test_fill_and_search),
            cmocka_unit_test(test_many_sgd),
            cmocka_unit_test(test_many_adam),
            cmocka_unit_test(test_many_lars),
            cmocka_unit_test(test_many_adagrad),
            cmocka_unit_test(test_scatter),
            cmocka_unit_test(test_faults_of_embedding),
            cmocka_unit_test(test_softmax),
            cmocka_unit_test(test_faults_of_labels),
            cmocka_unit_test(test_attention),
            cmocka_unit_test(test_dropout),
            cmocka_unit_test(test_limits),
            cmocka_unit_test(test_interaction),
            cmocka_unit_test(test_most_columns),
    };

    return cmocka_run_group_tests(tests, open_queue, close_queue);
}
