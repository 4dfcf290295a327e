/* Sum, GELU, tanh, dropout, layer normalisation, embedding, attention: the reference against values
 * worked out by hand, and arguments that do not fit. */
#include <math.h>

#include "dpb_log.h"
#include "dpb_reference.h"
#include "dpb_rng.h"
#include "op_data.h"

static void reference(enum dpb_op op, const void *args)
{
    assert_int_equal(dpb_reference_op(op, args), DPB_OK);
}

static void assert_values(const float *got, const float *want, int count)
{
    for (int i = 0; i < count; i++) {
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1.0f, fabsf(want[i]))))
            fail_msg("element %d is %.9g, not %.9g", i, (double)got[i], (double)want[i]);
    }
}

static void ignore(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void test_add(void **state)
{
    float a[] = {1, -2, 3}, b[] = {-2, 1, 4}, y[3];
    struct dpb_add_args args = {
            .a = dpb_tensor_1d(a, 3), .b = dpb_tensor_1d(b, 3), .y = dpb_tensor_1d(y, 3)};

    (void)state;
    reference(DPB_OP_ADD, &args);
    assert_values(y, (float[]){-1, -1, 7}, 3);
    args.relu = true;
    args.y.data = a; /* in place */
    reference(DPB_OP_ADD, &args);
    assert_values(a, (float[]){0, 0, 7}, 3);
    args.b.dim[0] = 2;
    op_assert_misfit(DPB_OP_ADD, &args, "b should be [3]");
}

static void test_activations(void **state)
{
    float x[] = {0, 1, -1, 3, -40}, y[5], dy[] = {1, 1, 2, 1, 1}, dx[5];
    struct dpb_activation_args args = {.x = dpb_tensor_1d(x, 5),
                                       .y = dpb_tensor_1d(y, 5),
                                       .dy = dpb_tensor_1d(dy, 5),
                                       .dx = dpb_tensor_1d(dx, 5)};

    (void)state;
    /* Phi(1) = 0.8413447461, phi(1) = 0.2419707245; Phi(3) = 0.9986501020, phi(3) = 0.0044318484 */
    reference(DPB_OP_GELU_FWD, &args);
    assert_values(y, (float[]){0, 0.84134475f, -0.15865525f, 2.99595031f, 0}, 5);
    reference(DPB_OP_GELU_BWD, &args);
    assert_values(dx, (float[]){0.5f, 1.08331547f, 2 * -0.08331547f, 1.01194565f, 0}, 5);
    /* sqrt(2 / pi) 1.044715 = 0.8335627, its tanh 0.6823838; the same at 3: 3.3569 and 0.9975743 */
    args.tanh_form = true;
    reference(DPB_OP_GELU_FWD, &args);
    assert_values(y, (float[]){0, 0.84119199f, -0.15880801f, 2.99636261f, 0}, 5);
    reference(DPB_OP_TANH_FWD, &args);
    assert_values(y, (float[]){0, 0.76159416f, -0.76159416f, 0.99505475f, -1}, 5);
    reference(DPB_OP_TANH_BWD, &args);
    assert_values(dx, (float[]){1, 0.41997434f, 2 * 0.41997434f, 0.00986604f, 0}, 5);

    args.x.dim[0] = 4;
    op_assert_misfit(DPB_OP_GELU_FWD, &args, "y should be [4]");
    op_assert_misfit(DPB_OP_GELU_BWD, &args, "x should be [5]");
    assert_int_equal(dpb_op_args_check(DPB_OP_TANH_BWD, &args), DPB_OK); /* needs no x */
    args.y.data = NULL;
    op_assert_misfit(DPB_OP_TANH_BWD, &args, "y is NULL");
}

static void test_dropout(void **state)
{
    /* Philox-4x32-10 of counter 0 and key 0, a known answer: 0x6627e8d5 (0.399), 0xe169c58d
     * (0.881), 0xbc57ac4c (0.736), 0x9b00dbd8 (0.605) */
    float x[] = {1, 2, 3, 4}, y[4], dx[2];
    struct dpb_dropout_args args = {
            .x = dpb_tensor_1d(x, 4), .y = dpb_tensor_1d(y, 4), .keep = 0.625f};
    uint32_t word[4];

    (void)state;
    reference(DPB_OP_DROPOUT_FWD, &args);
    assert_values(y, (float[]){1.6f, 0, 0, 6.4f}, 4);
    args.dy = dpb_tensor_1d(x, 2);
    args.dx = dpb_tensor_1d(dx, 2);
    args.offset = 2;
    reference(DPB_OP_DROPOUT_BWD, &args);
    assert_values(dx, (float[]){0, 3.2f}, 2);
    args.keep = 1.0f;
    reference(DPB_OP_DROPOUT_FWD, &args);
    assert_values(y, x, 4);

    /* the high words of offset and seed count */
    args.keep = 0.5f;
    args.offset = (uint64_t)9 << 34;
    args.seed = (uint64_t)5 << 32 | 6;
    dpb_philox4x32((uint32_t[]){0, 9, 0, 0}, (uint32_t[]){6, 5}, word);
    reference(DPB_OP_DROPOUT_FWD, &args);
    for (int i = 0; i < 4; i++)
        assert_true(y[i] == (word[i] < 0x80000000u ? 2.0f * x[i] : 0.0f));

    args.keep = 0.0f;
    op_assert_misfit(DPB_OP_DROPOUT_FWD, &args, "keep is not above 0");
    args.keep = NAN;
    op_assert_misfit(DPB_OP_DROPOUT_BWD, &args, "keep is not above 0");
}

static void test_layernorm(void **state)
{
    /* rows 1, 3 (mean 2, variance 1) and 0, 4 (2, 4); eps 3 makes 1 / rstd 2 and sqrt(7) */
    float x[] = {1, 3, 0, 4}, y[4], gamma[] = {2, 1}, beta[] = {5, -1}, mean[2], rstd[2];
    float dy[] = {1, 0, 0, 0}, dx[4], dgamma[2], dbeta[2], root7 = sqrtf(7.0f);
    struct dpb_layernorm_args args = {.x = dpb_tensor_2d(x, 2, 2),
                                      .y = dpb_tensor_2d(y, 2, 2),
                                      .dy = dpb_tensor_2d(dy, 2, 2),
                                      .dx = dpb_tensor_2d(dx, 2, 2),
                                      .gamma = gamma,
                                      .beta = beta,
                                      .dgamma = dgamma,
                                      .dbeta = dbeta,
                                      .save_mean = mean,
                                      .save_rstd = rstd,
                                      .eps = 3.0f};

    (void)state;
    reference(DPB_OP_LAYERNORM_FWD, &args);
    assert_values(mean, (float[]){2, 2}, 2);
    assert_values(rstd, (float[]){0.5f, 1 / root7}, 2);
    assert_values(y, (float[]){4, -0.5f, 5 - 4 / root7, 2 / root7 - 1}, 4);
    /* g = 2, 0, mean 1; xhat = -1/2, 1/2; mean(g xhat) = -1/2:
     * dx = (2 - 1 - 1/4) / 2 and (0 - 1 + 1/4) / 2 */
    reference(DPB_OP_LAYERNORM_BWD, &args);
    assert_values(dx, (float[]){0.375f, -0.375f, 0, 0}, 4);
    assert_values(dgamma, (float[]){-0.5f, 0}, 2);
    assert_values(dbeta, (float[]){1, 0}, 2);

    args.save_mean = NULL;
    op_assert_misfit(DPB_OP_LAYERNORM_FWD, &args, "one of save_mean and save_rstd");
    op_assert_misfit(DPB_OP_LAYERNORM_BWD, &args, "save_mean is NULL");
    args.save_rstd = NULL; /* inference */
    reference(DPB_OP_LAYERNORM_FWD, &args);
    args.eps = 0.0f;
    op_assert_misfit(DPB_OP_LAYERNORM_FWD, &args, "eps is not above 0");
}

static void keep_first_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    if (((char *)ctx)[0] == '\0')
        snprintf(ctx, 256, "%s", line);
}

static void test_embedding(void **state)
{
    float table[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30, 40, 50, 60}, dy[] = {1, 2, 4, 8, 16, 32};
    float dtable[] = {100, 100, 100, 100, 100, 100};
    int32_t ids[] = {2, 0, 2};
    char line[256] = "";
    struct dpb_embedding_args args = {.table = dpb_tensor_2d(table, 3, 2),
                                      .dtable = dpb_tensor_2d(dtable, 3, 2),
                                      .y = dpb_tensor_2d(y, 3, 2),
                                      .dy = dpb_tensor_2d(dy, 3, 2),
                                      .ids = ids,
                                      .accumulate = true};

    (void)state;
    reference(DPB_OP_EMBEDDING_FWD, &args);
    assert_values(y, (float[]){15, 26, 31, 42, 55, 66}, 6);
    reference(DPB_OP_EMBEDDING_BWD, &args);
    assert_values(dtable, (float[]){104, 108, 100, 100, 117, 134}, 6);
    args.accumulate = false;
    reference(DPB_OP_EMBEDDING_FWD, &args);
    assert_values(y, (float[]){5, 6, 1, 2, 5, 6}, 6);
    reference(DPB_OP_EMBEDDING_BWD, &args);
    assert_values(dtable, (float[]){4, 8, 0, 0, 17, 34}, 6);

    ids[1] = 3;
    dpb_log_set_sink(keep_first_line, line);
    assert_int_equal(dpb_reference_op(DPB_OP_EMBEDDING_FWD, &args), DPB_ERR_USAGE);
    assert_non_null(strstr(line, "row number 3 at position 1"));
    ids[1] = -1;
    line[0] = '\0';
    assert_int_equal(dpb_reference_op(DPB_OP_EMBEDDING_BWD, &args), DPB_ERR_USAGE);
    assert_non_null(strstr(line, "row number -1 at position 1"));
    dpb_log_set_sink(ignore, NULL);
    assert_values(y, (float[]){5, 6, 1, 2, 5, 6}, 6);
    args.y.dim[1] = 3;
    op_assert_misfit(DPB_OP_EMBEDDING_FWD, &args, "rows have 2 elements, those of y 3");
    args.ids = NULL;
    op_assert_misfit(DPB_OP_EMBEDDING_BWD, &args, "ids is NULL");
}

static void test_attention(void **state)
{
    /* Two tokens of q, k, v and one element that belongs to nobody. With scale ln(3) / 2, token 0
     * scores 0 and ln(3) (prob 1/4, 3/4), token 1 the same twice. */
    float ln3 = logf(3.0f);
    float qkv[] = {1, 1, 8, -9, 2, 3, 4, -9}, y[2], dy[] = {1, 0}, prob[4], workspace[4];
    float dqkv[] = {0, 0, 0, -9, 0, 0, 0, -9};
    uint8_t mask[] = {1, 0};
    struct dpb_attention_args args = {.q = dpb_tensor_4d(qkv, 1, 2, 1, 1),
                                      .k = dpb_tensor_4d(qkv + 1, 1, 2, 1, 1),
                                      .v = dpb_tensor_4d(qkv + 2, 1, 2, 1, 1),
                                      .dq = dpb_tensor_4d(dqkv, 1, 2, 1, 1),
                                      .dk = dpb_tensor_4d(dqkv + 1, 1, 2, 1, 1),
                                      .dv = dpb_tensor_4d(dqkv + 2, 1, 2, 1, 1),
                                      .y = dpb_tensor_4d(y, 1, 2, 1, 1),
                                      .dy = dpb_tensor_4d(dy, 1, 2, 1, 1),
                                      .prob = dpb_tensor_4d(prob, 1, 1, 2, 2),
                                      .workspace = workspace,
                                      .stride = 4,
                                      .scale = ln3 / 2};

    (void)state;
    reference(DPB_OP_ATTENTION_FWD, &args);
    /* the differences of the scores are ln(3) and 2 ln(3): odds 1 : 3 and 1 : 9 */
    assert_values(prob, (float[]){0.25f, 0.75f, 0.1f, 0.9f}, 4);
    assert_values(y, (float[]){2 + 3, 0.8f + 3.6f}, 2);
    /* dv = prob of token 0; dprob = 8, 4, mean 5: ds = scale (3/4, -3/4); dq = ds k, dk = ds q */
    reference(DPB_OP_ATTENTION_BWD, &args);
    assert_values(dqkv,
                  (float[]){-0.75f * ln3, 0.375f * ln3, 0.25f, -9, 0, -0.375f * ln3, 0.75f, -9}, 8);
    args.causal = true;
    reference(DPB_OP_ATTENTION_FWD, &args);
    assert_values(prob, (float[]){1, 0, 0.1f, 0.9f}, 4);
    args.key_mask = mask;
    reference(DPB_OP_ATTENTION_FWD, &args);
    assert_values(prob, (float[]){1, 0, 1, 0}, 4);
    mask[0] = 0; /* no key for anybody */
    reference(DPB_OP_ATTENTION_FWD, &args);
    assert_values(prob, (float[]){0, 0, 0, 0}, 4);
    assert_values(y, (float[]){0, 0}, 2);

    args.keep = 1.5f;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "keep is neither 0 nor above 0 and at most 1");
    args.keep = -0.5f;
    op_assert_misfit(DPB_OP_ATTENTION_BWD, &args, "keep is neither 0 nor above 0 and at most 1");
    args.keep = NAN;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "keep is neither 0 nor above 0 and at most 1");
    args.keep = 0.0f;
    args.stride = 0;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "stride is below the 1 elements");
    args.stride = INT64_MAX / 4;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "stride is too large");
    args.stride = 1;
    args.workspace = NULL;
    assert_int_equal(dpb_op_args_check(DPB_OP_ATTENTION_FWD, &args), DPB_OK);
    op_assert_misfit(DPB_OP_ATTENTION_BWD, &args, "workspace is NULL");
    args.prob.dim[1] = 2;
    op_assert_misfit(DPB_OP_ATTENTION_BWD, &args, "prob should be [1,1,2,2]");
    args.k.dim[1] = 3;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "k should be [1,2,1,1]");
    args.scale = INFINITY;
    args.k.dim[1] = 2;
    args.prob.dim[1] = 1;
    op_assert_misfit(DPB_OP_ATTENTION_FWD, &args, "scale is not finite");
}

/* With one value for all keys, y is that value times the sum of the weights that are left: those of
 * dropout-fwd on prob. */
static void test_attention_drops_as_dropout_does(void **state)
{
    enum {
        TOKENS = 6,
        SCORES = TOKENS * TOKENS
    };
    float q[TOKENS], y[TOKENS], v[TOKENS], prob[SCORES], dropped[SCORES];
    struct dpb_attention_args args = {.q = dpb_tensor_4d(q, 1, TOKENS, 1, 1),
                                      .k = dpb_tensor_4d(q, 1, TOKENS, 1, 1),
                                      .v = dpb_tensor_4d(v, 1, TOKENS, 1, 1),
                                      .y = dpb_tensor_4d(y, 1, TOKENS, 1, 1),
                                      .prob = dpb_tensor_4d(prob, 1, 1, TOKENS, TOKENS),
                                      .stride = 1,
                                      .scale = 1,
                                      .keep = 0.7f,
                                      .seed = 9,
                                      .offset = 1};
    struct dpb_dropout_args dropout = {.x = dpb_tensor_1d(prob, SCORES),
                                       .y = dpb_tensor_1d(dropped, SCORES),
                                       .keep = 0.7f,
                                       .seed = 9,
                                       .offset = 1};
    int zeros = 0;

    (void)state;
    for (int i = 0; i < TOKENS; i++) {
        q[i] = (float)i / TOKENS;
        v[i] = 1.0f;
    }
    reference(DPB_OP_ATTENTION_FWD, &args);
    reference(DPB_OP_DROPOUT_FWD, &dropout);
    for (int i = 0; i < TOKENS; i++) {
        float sum = 0.0f, before = 0.0f;

        for (int j = 0; j < TOKENS; j++) {
            sum += dropped[i * TOKENS + j];
            before += prob[i * TOKENS + j];
            zeros += dropped[i * TOKENS + j] == 0.0f;
        }
        assert_float_equal(before, 1.0f, 1e-6f);
        assert_float_equal(y[i], sum, 1e-6f);
    }
    assert_in_range(zeros, 1, SCORES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_add),
            cmocka_unit_test(test_activations),
            cmocka_unit_test(test_dropout),
            cmocka_unit_test(test_layernorm),
            cmocka_unit_test(test_embedding),
            cmocka_unit_test(test_attention),
            cmocka_unit_test(test_attention_drops_as_dropout_does),
    };

    dpb_log_set_sink(ignore, NULL);
    return DPB_RUN_TESTS(tests);
}
