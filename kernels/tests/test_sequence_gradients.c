/* Backward operators of the reference against differences of their forward operators: sum, GELU,
 * tanh, dropout, layer normalisation, embedding, attention. */
#include "dpb_reference.h"
#include "op_gradient.h"

static void reference(enum dpb_op op, const void *args)
{
    assert_int_equal(dpb_reference_op(op, args), DPB_OK);
}

/* The gradient of a sum is dy itself, or relu-bwd of it. */
static void check_add(bool relu)
{
    struct op_data data = {0};
    double *a = op_data_distinct(&data, 24), *b = op_data_bytes(&data, 24 * sizeof(double));
    double *y = op_data_f64(&data, 24), *r = op_data_f64(&data, 24), *dy = op_data_f64(&data, 24);
    struct dpb_add_args fwd = {
            .a = OP_T2(a, 4, 6), .b = OP_T2(b, 4, 6), .y = OP_T2(y, 4, 6), .relu = relu};
    struct dpb_relu_args bwd = {.y = OP_T2(y, 4, 6), .dy = OP_T2(r, 4, 6), .dx = OP_T2(dy, 4, 6)};
    struct op_forward forward = {DPB_OP_ADD, &fwd, y, r, 24};

    for (int i = 0; i < 24; i++)
        b[i] = a[i] > 0.0 ? 0.25 : -0.25; /* the sum stays away from 0 */
    reference(DPB_OP_ADD, &fwd);
    reference(DPB_OP_RELU_BWD, &bwd);
    op_assert_gradient("add a", &forward, a, relu ? dy : r, 24);
    op_assert_gradient("add b", &forward, b, relu ? dy : r, 24);
    op_data_release(&data);
}

static void test_add(void **state)
{
    (void)state;
    check_add(false);
    check_add(true);
}

static void check_activation(enum dpb_op fwd_op, enum dpb_op bwd_op, bool tanh_form)
{
    struct op_data data = {0};
    double *x = op_data_f64(&data, 30), *y = op_data_f64(&data, 30);
    double *r = op_data_f64(&data, 30), *dx = op_data_f64(&data, 30);
    struct dpb_activation_args args = {.x = OP_T2(x, 5, 6),
                                       .y = OP_T2(y, 5, 6),
                                       .dy = OP_T2(r, 5, 6),
                                       .dx = OP_T2(dx, 5, 6),
                                       .tanh_form = tanh_form};
    struct op_forward forward = {fwd_op, &args, y, r, 30};

    for (int i = 0; i < 30; i++)
        x[i] *= 4.0;
    reference(fwd_op, &args);
    reference(bwd_op, &args);
    op_assert_gradient(dpb_op_text(bwd_op), &forward, x, dx, 30);
    op_data_release(&data);
}

static void test_activations(void **state)
{
    (void)state;
    check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, false);
    check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, true);
    check_activation(DPB_OP_TANH_FWD, DPB_OP_TANH_BWD, false);
}

static void test_dropout(void **state)
{
    struct op_data data = {0};
    double *x = op_data_f64(&data, 30), *y = op_data_f64(&data, 30);
    double *r = op_data_f64(&data, 30), *dx = op_data_f64(&data, 30);
    struct dpb_dropout_args args = {.x = OP_T2(x, 5, 6),
                                    .y = OP_T2(y, 5, 6),
                                    .dy = OP_T2(r, 5, 6),
                                    .dx = OP_T2(dx, 5, 6),
                                    .keep = 0.75f,
                                    .seed = 7,
                                    .offset = 3};
    struct op_forward forward = {DPB_OP_DROPOUT_FWD, &args, y, r, 30};

    (void)state;
    reference(DPB_OP_DROPOUT_BWD, &args);
    op_assert_gradient("dropout", &forward, x, dx, 30);
    op_data_release(&data);
}

static void check_layernorm(int64_t m, int64_t n)
{
    struct op_data data = {0};
    double *x = op_data_f64(&data, m * n), *y = op_data_f64(&data, m * n);
    double *r = op_data_f64(&data, m * n), *dx = op_data_f64(&data, m * n);
    double *gamma = op_data_f64(&data, n), *beta = op_data_f64(&data, n);
    double *dgamma = op_data_f64(&data, n), *dbeta = op_data_f64(&data, n);
    struct dpb_layernorm_args args = {.x = OP_T2(x, m, n),
                                      .y = OP_T2(y, m, n),
                                      .dy = OP_T2(r, m, n),
                                      .dx = OP_T2(dx, m, n),
                                      .gamma = (float *)gamma,
                                      .beta = (float *)beta,
                                      .dgamma = (float *)dgamma,
                                      .dbeta = (float *)dbeta,
                                      .save_mean = (float *)op_data_f64(&data, m),
                                      .save_rstd = (float *)op_data_f64(&data, m),
                                      .eps = 1e-3f};
    struct op_forward forward = {DPB_OP_LAYERNORM_FWD, &args, y, r, m * n};

    reference(DPB_OP_LAYERNORM_FWD, &args);
    reference(DPB_OP_LAYERNORM_BWD, &args);
    op_assert_gradient("layernorm x", &forward, x, dx, m * n);
    op_assert_gradient("layernorm gamma", &forward, gamma, dgamma, n);
    op_assert_gradient("layernorm beta", &forward, beta, dbeta, n);
    op_data_release(&data);
}

static void test_layernorm(void **state)
{
    (void)state;
    check_layernorm(4, 7);
    check_layernorm(1, 5);
    check_layernorm(6, 2);
}

static void test_embedding(void **state)
{
    static const int32_t ids[] = {2, 0, 2, 4, 2};
    struct op_data data = {0};
    double *table = op_data_f64(&data, 15), *dtable = op_data_f64(&data, 15);
    double *y = op_data_f64(&data, 15), *r = op_data_f64(&data, 15);
    struct dpb_embedding_args args = {.table = OP_T2(table, 5, 3),
                                      .dtable = OP_T2(dtable, 5, 3),
                                      .y = OP_T2(y, 5, 3),
                                      .dy = OP_T2(r, 5, 3),
                                      .ids = ids};
    struct op_forward forward = {DPB_OP_EMBEDDING_FWD, &args, y, r, 15};

    (void)state;
    reference(DPB_OP_EMBEDDING_BWD, &args);
    op_assert_gradient("embedding", &forward, table, dtable, 15);
    op_data_release(&data);
}

struct attention_case {
    int64_t batch, tokens, heads, depth;
    int64_t gap; /* elements between a token's q, k, v and the next token's */
    bool causal, masked;
    float keep;
};

/* q, k and v side by side in one buffer, as are their gradients. */
static void check_attention(const struct attention_case *s)
{
    struct op_data data = {0};
    int64_t width = s->heads * s->depth, stride = 3 * width + s->gap, rows = s->batch * s->tokens;
    int64_t scores = s->batch * s->heads * s->tokens * s->tokens;
    double *qkv = op_data_f64(&data, rows * stride);
    double *dqkv = op_data_bytes(&data, (size_t)(rows * stride) * sizeof(double));
    double *y = op_data_f64(&data, rows * width), *r = op_data_f64(&data, rows * width);
    uint8_t *mask = op_data_bytes(&data, (size_t)rows);
    struct dpb_attention_args args = {
            .q = OP_T4(qkv, s->batch, s->tokens, s->heads, s->depth),
            .y = OP_T4(y, s->batch, s->tokens, s->heads, s->depth),
            .dy = OP_T4(r, s->batch, s->tokens, s->heads, s->depth),
            .prob = OP_T4(op_data_f64(&data, scores), s->batch, s->heads, s->tokens, s->tokens),
            .workspace = (float *)op_data_f64(&data, scores),
            .key_mask = s->masked ? mask : NULL,
            .stride = stride,
            .scale = 0.7f,
            .causal = s->causal,
            .keep = s->keep,
            .seed = 5,
            .offset = 3};
    struct op_forward forward = {DPB_OP_ATTENTION_FWD, &args, y, r, rows * width};

    for (int64_t i = 0; i < rows; i++)
        mask[i] = i % s->tokens != 0 && i % 5 != 4; /* causal: the first token has no key */
    args.k = args.v = args.dq = args.dk = args.dv = args.q;
    args.k.data = qkv + width;
    args.v.data = qkv + 2 * width;
    args.dq.data = dqkv;
    args.dk.data = dqkv + width;
    args.dv.data = dqkv + 2 * width;
    reference(DPB_OP_ATTENTION_FWD, &args);
    reference(DPB_OP_ATTENTION_BWD, &args);
    op_assert_gradient("attention", &forward, qkv, dqkv, rows * stride);
    op_data_release(&data);
}

static void test_attention(void **state)
{
    static const struct attention_case cases[] = {
            {2, 4, 2, 3, 0, false, false, 0.0f}, {1, 5, 1, 2, 3, false, false, 1.0f},
            {1, 4, 3, 2, 0, true, false, 0.0f},  {2, 5, 2, 2, 1, false, true, 0.0f},
            {2, 5, 1, 3, 0, true, true, 0.0f},   {2, 4, 2, 3, 0, false, false, 0.6f},
            {2, 5, 2, 2, 1, true, true, 0.8f},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_attention(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_add),       cmocka_unit_test(test_activations),
            cmocka_unit_test(test_dropout),   cmocka_unit_test(test_layernorm),
            cmocka_unit_test(test_embedding), cmocka_unit_test(test_attention),
    };

    return DPB_RUN_TESTS(tests);
}
