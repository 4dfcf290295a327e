/* The CPU device in bf16 against the reference: products, and what transformers are made of. */
#include <math.h>
#include <stddef.h>

#include "cpu_pair.h"
#include "dpb_reference.h"
#include "op_bf16.h"
#include "op_data.h"

#define CHECK(op, args, parts)                                                                     \
    op_check_bf16(op, &(args), sizeof(args), parts, (int)(sizeof(parts) / sizeof((parts)[0])))

/* ---- matmul ---- */

struct matmul_case {
    int64_t m, n, k;
    bool trans_a, trans_b, bias, relu, to_fp32;
    float beta;
};

/* The sums of the terms' absolute values. */
static void matmul_bound(const struct dpb_matmul_args *args, float *bound, int64_t m, int64_t n,
                         int64_t k)
{
    const float *a = args->a.data, *b = args->b.data, *c = args->c.data;

    for (int64_t i = 0; i < m * n; i++) {
        float sum = args->bias ? fabsf(args->bias[i % n]) : 0.0f;

        if (args->beta != 0.0f)
            sum += args->beta * fabsf(c[i]);
        for (int64_t l = 0; l < k; l++)
            sum += fabsf(a[args->trans_a ? l * m + i / n : i / n * k + l] *
                         b[args->trans_b ? i % n * k + l : l * n + i % n]);
        bound[i] = 1.01f * sum; /* the factors are rounded to bf16 after this */
    }
}

static void check_matmul(const struct matmul_case *s)
{
    struct op_data data = {0};
    int64_t m = s->m, n = s->n, k = s->k;
    float *a = op_data_f32(&data, m * k), *b = op_data_f32(&data, k * n);
    float *c = op_data_f32(&data, m * n), *bias = op_data_f32(&data, n);
    float *bound = op_data_f32(&data, m * n);
    struct dpb_matmul_args args = {
            .a = s->trans_a ? dpb_tensor_2d(a, k, m) : dpb_tensor_2d(a, m, k),
            .b = s->trans_b ? dpb_tensor_2d(b, n, k) : dpb_tensor_2d(b, k, n),
            .c = dpb_tensor_2d(c, m, n),
            .bias = s->bias ? bias : NULL,
            .trans_a = s->trans_a,
            .trans_b = s->trans_b,
            .relu = s->relu,
            .beta = s->beta};
    struct op_part parts[] = {
            {OP_TENSOR(dpb_matmul_args, a)},
            {OP_TENSOR(dpb_matmul_args, b)},
            {OP_TENSOR(dpb_matmul_args, c), .use = s->beta != 0.0f ? OP_UPDATES : OP_WRITES,
             .fp32 = s->to_fp32, .bound = bound, .ulps = op_ulps_of_sum(k + 2)},
            {OP_FLOATS(dpb_matmul_args, bias, n)},
    };

    if (op_half.bias_rounded && !s->to_fp32)
        op_half_round(bias, n);
    matmul_bound(&args, bound, m, n, k);
    op_check_bf16(DPB_OP_MATMUL, &args, sizeof(args), parts, s->bias ? 4 : 3);
    op_data_release(&data);
}

static void test_matmul(void **state)
{
    static const struct matmul_case cases[] = {
            /* a linear layer: forward, data gradient, weight gradient; accumulating */
            {64, 96, 80, false, true, true, false, false, 0.0f},
            {64, 80, 96, false, false, false, false, false, 0.0f},
            {64, 80, 96, false, false, false, false, false, 1.0f},
            {96, 80, 64, true, false, false, false, true, 0.0f},
            {96, 80, 64, true, false, false, false, true, 1.0f},
            {40, 1024, 300, true, false, false, false, true, 0.0f},
            {64, 64, 128, false, true, true, true, false, 0.0f},
            /* odd, single */
            {1, 1, 1, false, false, true, true, false, 0.0f},
            {7, 5, 3, false, false, true, false, false, 0.5f},
            {13, 17, 19, true, true, true, true, false, 0.0f},
            {13, 17, 19, true, true, false, false, true, 1.0f},
            {1, 33, 65, false, true, true, false, true, 1.0f},
            {31, 1, 7, true, false, false, false, false, 0.5f},
    };

    (void)state;
    op_half_need(DPB_OP_MATMUL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_matmul(&cases[i]);
}

/* ---- elementwise ---- */

static void check_activation(enum dpb_op fwd, enum dpb_op bwd, bool tanh_form, int64_t numel)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, numel);
    struct dpb_activation_args args = {.x = dpb_tensor_1d(x, numel),
                                       .y = dpb_tensor_1d(op_data_f32(&data, numel), numel),
                                       .dy = dpb_tensor_1d(op_data_f32(&data, numel), numel),
                                       .dx = dpb_tensor_1d(op_data_f32(&data, numel), numel),
                                       .tanh_form = tanh_form};
    const struct op_part fwd_parts[] = {
            {OP_TENSOR(dpb_activation_args, x)},
            {OP_TENSOR(dpb_activation_args, y), .use = OP_WRITES, .ulps = 16.0},
    };
    struct op_part bwd_parts[] = {
            {OP_TENSOR(dpb_activation_args, x)},
            {OP_TENSOR(dpb_activation_args, dy)},
            {OP_TENSOR(dpb_activation_args, dx), .use = OP_WRITES, .ulps = 16.0},
    };

    for (int64_t i = 0; i < numel; i++)
        x[i] *= 4.0f;
    if (bwd == DPB_OP_TANH_BWD)
        bwd_parts[0] = (struct op_part){OP_TENSOR(dpb_activation_args, y)};
    CHECK(fwd, args, fwd_parts);
    CHECK(bwd, args, bwd_parts);
    op_data_release(&data);
}

static void check_dropout(int64_t numel, uint64_t offset)
{
    struct op_data data = {0};
    struct dpb_dropout_args args = {.x = dpb_tensor_1d(op_data_f32(&data, numel), numel),
                                    .y = dpb_tensor_1d(op_data_f32(&data, numel), numel),
                                    .keep = 0.9f,
                                    .seed = 3,
                                    .offset = offset};
    const struct op_part fwd[] = {
            {OP_TENSOR(dpb_dropout_args, x)},
            {OP_TENSOR(dpb_dropout_args, y), .use = OP_WRITES, .ulps = 4.0},
    };
    const struct op_part bwd[] = {
            {OP_TENSOR(dpb_dropout_args, dy)},
            {OP_TENSOR(dpb_dropout_args, dx), .use = OP_WRITES, .ulps = 4.0},
    };

    CHECK(DPB_OP_DROPOUT_FWD, args, fwd);
    args.dy = args.x;
    args.dx = args.y;
    CHECK(DPB_OP_DROPOUT_BWD, args, bwd);
    op_data_release(&data);
}

static const int64_t counts[] = {1, 1003, 50001};

static void test_activation(void **state)
{
    (void)state;
    op_half_need(DPB_OP_GELU_FWD);
    for (int i = 0; i < 3; i++) {
        check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, false, counts[i]);
        check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, true, counts[i]);
        check_activation(DPB_OP_TANH_FWD, DPB_OP_TANH_BWD, false, counts[i]);
    }
}

static void test_dropout(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        check_dropout(counts[i], (uint64_t)i);
}

/* ---- rows ---- */

static void check_layernorm(int64_t m, int64_t n)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, m * n);
    struct dpb_layernorm_args args = {.x = dpb_tensor_2d(x, m, n),
                                      .y = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .dy = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .dx = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .gamma = op_data_f32(&data, n),
                                      .beta = op_data_f32(&data, n),
                                      .dgamma = op_data_f32(&data, n),
                                      .dbeta = op_data_f32(&data, n),
                                      .save_mean = op_data_f32(&data, m),
                                      .save_rstd = op_data_f32(&data, m),
                                      .eps = 1e-2f};
    double row = op_ulps_of_sum(n), column = op_ulps_of_sum(m) * (double)m;
    const struct op_part fwd[] = {
            {OP_TENSOR(dpb_layernorm_args, x)},
            {OP_FLOATS(dpb_layernorm_args, gamma, n)},
            {OP_FLOATS(dpb_layernorm_args, beta, n)},
            {OP_TENSOR(dpb_layernorm_args, y), .use = OP_WRITES, .ulps = 20.0 * row},
            {OP_FLOATS(dpb_layernorm_args, save_mean, m), .use = OP_WRITES, .ulps = 2.0 * row},
            {OP_FLOATS(dpb_layernorm_args, save_rstd, m), .use = OP_WRITES, .ulps = 10.0 * row},
    };
    const struct op_part bwd[] = {
            {OP_TENSOR(dpb_layernorm_args, x)},
            {OP_TENSOR(dpb_layernorm_args, dy)},
            {OP_FLOATS(dpb_layernorm_args, gamma, n)},
            {OP_FLOATS(dpb_layernorm_args, save_mean, m)},
            {OP_FLOATS(dpb_layernorm_args, save_rstd, m)},
            {OP_TENSOR(dpb_layernorm_args, dx), .use = OP_WRITES, .ulps = 30.0 * row},
            {OP_FLOATS(dpb_layernorm_args, dgamma, n), .use = OP_WRITES, .ulps = 4.0 * column},
            {OP_FLOATS(dpb_layernorm_args, dbeta, n), .use = OP_WRITES, .ulps = column},
    };

    for (int64_t i = 0; i < m * n; i++)
        x[i] += 0.5f; /* a mean to subtract */
    CHECK(DPB_OP_LAYERNORM_FWD, args, fwd);
    CHECK(DPB_OP_LAYERNORM_BWD, args, bwd);
    op_data_release(&data);
}

static void test_layernorm(void **state)
{
    (void)state;
    check_layernorm(1, 1);
    check_layernorm(3, 7);
    check_layernorm(64, 768);
    check_layernorm(300, 65);
}

static void check_embedding(int64_t rows, int64_t m, int64_t n, bool accumulate, bool fp32_table)
{
    struct op_data data = {0};
    struct dpb_embedding_args args = {.table = dpb_tensor_2d(op_data_f32(&data, rows * n), rows, n),
                                      .dtable =
                                              dpb_tensor_2d(op_data_f32(&data, rows * n), rows, n),
                                      .y = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .dy = dpb_tensor_2d(op_data_f32(&data, m * n), m, n),
                                      .ids = op_data_labels(&data, m, rows),
                                      .accumulate = accumulate};
    enum op_part_use use = accumulate ? OP_UPDATES : OP_WRITES;
    const struct op_part fwd[] = {
            {OP_TENSOR(dpb_embedding_args, table), .fp32 = fp32_table},
            {OP_TENSOR(dpb_embedding_args, y), .use = use, .ulps = 2.0},
    };
    const struct op_part bwd[] = {
            {OP_TENSOR(dpb_embedding_args, dy)},
            {OP_TENSOR(dpb_embedding_args, dtable), .use = use, .fp32 = true,
             .ulps = op_ulps_of_sum(m) * (double)(m + 1)},
    };

    CHECK(DPB_OP_EMBEDDING_FWD, args, fwd);
    CHECK(DPB_OP_EMBEDDING_BWD, args, bwd);
    op_data_release(&data);
}

static void test_embedding(void **state)
{
    (void)state;
    for (int fp32_table = 0; fp32_table < 2; fp32_table++) {
        check_embedding(1, 1, 1, false, fp32_table);
        check_embedding(50, 97, 33, false, fp32_table);
        check_embedding(7, 300, 130, true, fp32_table);
    }
}

/* ---- attention ---- */

struct attention_case {
    int64_t batch, tokens, heads, depth;
    int64_t gap; /* between one token's elements and the next one's */
    bool causal, masked;
    float keep;
};

struct attention_data {
    struct op_data data;
    struct dpb_attention_args args;
    int64_t extent; /* of a tensor with gaps */
};

static struct dpb_tensor tensor_of(const struct attention_case *s, float *memory)
{
    return dpb_tensor_4d(memory, s->batch, s->tokens, s->heads, s->depth);
}

static void attention_open(struct attention_data *d, const struct attention_case *s)
{
    int64_t width = s->heads * s->depth, rows = s->batch * s->tokens, stride = width + s->gap;
    int64_t scores = s->batch * s->heads * s->tokens * s->tokens;
    uint8_t *mask;

    *d = (struct attention_data){.extent = (rows - 1) * stride + width};
    mask = op_data_bytes(&d->data, (size_t)rows);
    for (int64_t i = 0; i < rows; i++)
        mask[i] = i % s->tokens != 0 && i % 7 != 5;
    d->args = (struct dpb_attention_args){.q = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .k = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .v = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .dq = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .dk = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .dv = tensor_of(s, op_data_f32(&d->data, rows * stride)),
                                          .y = tensor_of(s, op_data_f32(&d->data, rows * width)),
                                          .dy = tensor_of(s, op_data_f32(&d->data, rows * width)),
                                          .prob = dpb_tensor_4d(op_data_f32(&d->data, scores),
                                                                s->batch, s->heads, s->tokens,
                                                                s->tokens),
                                          .workspace = op_data_f32(&d->data, scores),
                                          .key_mask = s->masked ? mask : NULL,
                                          .stride = stride,
                                          .scale = 1.0f / sqrtf((float)s->depth),
                                          .causal = s->causal,
                                          .keep = s->keep,
                                          .seed = 11,
                                          .offset = 3};
}

/* As many times the largest |value| of `of`. */
static const float *constant_bound(struct attention_data *d, const struct dpb_tensor *of)
{
    float *bound = op_data_f32(&d->data, d->extent), highest = 0.0f;
    int64_t width = of->dim[2] * of->dim[3], rows = of->dim[0] * of->dim[1];

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j++)
            highest = fmaxf(highest, fabsf(((float *)of->data)[i * d->args.stride + j]));
    for (int64_t i = 0; i < d->extent; i++)
        bound[i] = highest;
    return bound;
}

static void check_attention(const struct attention_case *s)
{
    struct attention_data d;
    double ulps = 8.0 * (op_ulps_of_sum(s->depth) + op_ulps_of_sum(s->tokens));
    double keep = s->keep > 0.0f ? (double)s->keep : 1.0;

    attention_open(&d, s);
    /* y is a mean of values below 1 with weights that are rounded, with dropout twice and larger */
    const struct op_part fwd[] = {
            {OP_TENSOR(dpb_attention_args, q), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, k), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, v), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, prob), .use = OP_WRITES, .ulps = ulps},
            {OP_TENSOR(dpb_attention_args, y), .use = OP_WRITES, .ulps = ulps / keep,
             .roundings = keep < 1.0 ? 2.0 / keep : 1.0},
    };

    CHECK(DPB_OP_ATTENTION_FWD, d.args, fwd);
    assert_int_equal(dpb_reference_op(DPB_OP_ATTENTION_BWD, &d.args), DPB_OK);
    /* sums of terms that are rounded to bf16 each */
    const struct op_part bwd[] = {
            {OP_TENSOR(dpb_attention_args, q), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, k), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, v), .extent = d.extent},
            {OP_TENSOR(dpb_attention_args, prob)},
            {OP_TENSOR(dpb_attention_args, dy)},
            {OP_TENSOR(dpb_attention_args, dq), .use = OP_WRITES, .extent = d.extent,
             .bound = constant_bound(&d, &d.args.dq), .ulps = ulps, .roundings = 1.0},
            {OP_TENSOR(dpb_attention_args, dk), .use = OP_WRITES, .extent = d.extent,
             .bound = constant_bound(&d, &d.args.dk), .ulps = ulps, .roundings = 1.0},
            {OP_TENSOR(dpb_attention_args, dv), .use = OP_WRITES, .extent = d.extent,
             .bound = constant_bound(&d, &d.args.dv), .ulps = ulps, .roundings = 1.0},
    };

    CHECK(DPB_OP_ATTENTION_BWD, d.args, bwd);
    op_data_release(&d.data);
}

static void test_attention(void **state)
{
    static const struct attention_case cases[] = {
            {1, 1, 1, 1, 0, false, false, 0.0f},   {2, 5, 3, 7, 0, false, true, 1.0f},
            {2, 5, 3, 8, 4, true, false, 0.0f},    {1, 17, 2, 8, 5, true, true, 0.9f},
            {3, 16, 4, 16, 0, false, true, 0.5f},  {1, 130, 2, 64, 0, true, false, 0.9f},
            {2, 64, 4, 32, 0, false, false, 0.0f}, {2, 64, 4, 32, 0, false, false, 0.9f},
    };

    (void)state;
    op_half_need(DPB_OP_ATTENTION_FWD);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_attention(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_matmul, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_activation, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_dropout, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_layernorm, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_embedding, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_attention, cpu_pair_open, cpu_pair_close),
    };

    return DPB_RUN_TESTS(tests);
}
