/* The CPU device against the reference, with one and two threads: sum, GELU, tanh, dropout, layer
 * normalisation, embedding, attention. Limits as in test_cpu_ops.c. */
#include <math.h>

#include "cpu_pair.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_data.h"
#include "vector_exp.h"

/* Run 0 is the reference's, with output set 0; runs 1 and 2 the devices', with set 1. */
#define RUNS 3

static dpb_device *device_of(int run)
{
    return run > 0 ? cpu_pair[run - 1] : NULL;
}

/* ---- elementwise ---- */

static void check_add(int64_t numel)
{
    struct op_data data = {0};
    float *a = op_data_f32(&data, numel), *b = op_data_f32(&data, numel);
    float *y[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};
    float *sum[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};

    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        struct dpb_add_args args = {.a = dpb_tensor_1d(a, numel),
                                    .b = dpb_tensor_1d(b, numel),
                                    .y = dpb_tensor_1d(sum[set], numel)};
        const struct op_output sum_out[] = {FLOATS(sum[set], numel)};
        const struct op_output y_over_a[] = {{y[set], (size_t)numel * sizeof(float), a}};

        op_run(device_of(run), DPB_OP_ADD, &args, sum_out, 1);
        args.a.data = args.y.data = y[set];
        args.relu = true;
        op_run(device_of(run), DPB_OP_ADD, &args, y_over_a, 1);
        op_assert_same(sum[set], sum[0], numel); /* one sum, rounded once */
        op_assert_same(y[set], y[0], numel);
    }
    op_data_release(&data);
}

static void check_activation(enum dpb_op fwd_op, enum dpb_op bwd_op, bool tanh_form, int64_t numel)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, numel), *dy = op_data_f32(&data, numel);
    float *y[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};
    float *dx[2] = {op_data_f32(&data, numel), op_data_f32(&data, numel)};

    for (int64_t i = 0; i < numel; i++)
        x[i] *= 6.0f;
    x[0] = -30.0f; /* no overflow */
    x[numel / 2] = 0.0f;
    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        struct dpb_activation_args args = {.x = dpb_tensor_1d(x, numel),
                                           .y = dpb_tensor_1d(y[set], numel),
                                           .dy = dpb_tensor_1d(dy, numel),
                                           .dx = dpb_tensor_1d(dx[set], numel),
                                           .tanh_form = tanh_form};
        const struct op_output y_out[] = {FLOATS(y[set], numel)};
        const struct op_output dx_out[] = {FLOATS(dx[set], numel)};
        const struct op_output y_over_x[] = {{y[set], (size_t)numel * sizeof(float), x}};
        const struct op_output dx_over_dy[] = {{dx[set], (size_t)numel * sizeof(float), dy}};

        op_run(device_of(run), fwd_op, &args, y_out, 1);
        /* |y| is at most 6; oneDNN's erf is a polynomial with an error of 1.5e-7 */
        op_assert_close(dpb_op_text(fwd_op), y[set], y[0], NULL, numel, 16.0);
        memcpy(y[set], y[0], (size_t)numel * sizeof(float));
        op_run(device_of(run), bwd_op, &args, dx_out, 1);
        op_assert_close(dpb_op_text(bwd_op), dx[set], dx[0], NULL, numel, 16.0);
        args.dy.data = dx[set];
        op_run(device_of(run), bwd_op, &args, dx_over_dy, 1);
        op_assert_close("bwd in place", dx[set], dx[0], NULL, numel, 16.0);
        args.x.data = y[set];
        op_run(device_of(run), fwd_op, &args, y_over_x, 1);
        op_assert_close("fwd in place", y[set], y[0], NULL, numel, 16.0);
    }
    op_data_release(&data);
}

static void test_elementwise(void **state)
{
    static const int64_t counts[] = {1, 1003, 100003}; /* the last: parts for two threads */

    (void)state;
    for (int i = 0; i < 3; i++) {
        check_add(counts[i]);
        check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, false, counts[i]);
        check_activation(DPB_OP_GELU_FWD, DPB_OP_GELU_BWD, true, counts[i]);
        check_activation(DPB_OP_TANH_FWD, DPB_OP_TANH_BWD, false, counts[i]);
    }
}

static void check_dropout(int64_t numel, float keep, uint64_t seed, uint64_t offset)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, numel), *y[2], *dx[2];
    int64_t kept = 0;

    for (int set = 0; set < 2; set++) {
        y[set] = op_data_f32(&data, numel);
        dx[set] = op_data_f32(&data, numel);
    }
    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        struct dpb_dropout_args args = {.x = dpb_tensor_1d(x, numel),
                                        .y = dpb_tensor_1d(y[set], numel),
                                        .keep = keep,
                                        .seed = seed,
                                        .offset = offset};
        const struct op_output y_out[] = {FLOATS(y[set], numel)};
        const struct op_output dx_over_dy[] = {{dx[set], (size_t)numel * sizeof(float), x}};

        op_run(device_of(run), DPB_OP_DROPOUT_FWD, &args, y_out, 1);
        args.dy = args.dx = dpb_tensor_1d(dx[set], numel);
        op_run(device_of(run), DPB_OP_DROPOUT_BWD, &args, dx_over_dy, 1);
        op_assert_same(dx[set], y[set], numel);
        for (int64_t i = 0; i < numel; i++) /* the same mask, a product rounded twice */
            assert_true((y[set][i] == 0.0f) == (y[0][i] == 0.0f));
        op_assert_close("dropout", y[set], y[0], NULL, numel, 2.0 / (double)keep);
    }
    for (int64_t i = 0; i < numel; i++)
        kept += y[0][i] != 0.0f;
    /* within five standard deviations */
    assert_true(fabs((double)kept - (double)keep * (double)numel) <=
                5.0 * sqrt((double)keep * (1.0 - (double)keep) * (double)numel) + 1e-9);
    op_data_release(&data);
}

static void test_dropout(void **state)
{
    (void)state;
    check_dropout(1, 1.0f, 0, 0);
    check_dropout(1003, 0.9f, 1, 0);
    check_dropout(50001, 0.9f, 1, 1);                /* parts for two threads */
    check_dropout(20002, 0.1f, UINT64_MAX, 1 << 20); /* the whole key */
    /* the counter's second word, and carries into it */
    check_dropout(1003, 0.5f, 77, ((uint64_t)1 << 34) - 502);
    check_dropout(1003, 0.5f, 77, ((uint64_t)3 << 60) + 3);
}

/* ---- layer normalisation ---- */

static void check_layernorm(int64_t m, int64_t n)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, m * n), *dy = op_data_f32(&data, m * n);
    float *gamma = op_data_f32(&data, n), *beta = op_data_f32(&data, n);
    float *y[2], *dx[2], *mean[2], *rstd[2], *dgamma[2], *dbeta[2];
    double row = op_ulps_of_sum(n), column = op_ulps_of_sum(m);

    for (int set = 0; set < 2; set++) {
        y[set] = op_data_f32(&data, m * n);
        dx[set] = op_data_f32(&data, m * n);
        mean[set] = op_data_f32(&data, m);
        rstd[set] = op_data_f32(&data, m);
        dgamma[set] = op_data_f32(&data, n);
        dbeta[set] = op_data_f32(&data, n);
    }
    for (int64_t i = 0; i < m * n; i++)
        x[i] += 0.5f; /* a mean to subtract */
    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        dpb_device *on = device_of(run);
        struct dpb_layernorm_args args = {.x = dpb_tensor_2d(x, m, n),
                                          .y = dpb_tensor_2d(y[set], m, n),
                                          .dy = dpb_tensor_2d(dy, m, n),
                                          .dx = dpb_tensor_2d(dx[set], m, n),
                                          .gamma = gamma,
                                          .beta = beta,
                                          .dgamma = dgamma[set],
                                          .dbeta = dbeta[set],
                                          .save_mean = mean[set],
                                          .save_rstd = rstd[set],
                                          .eps = 1e-2f};
        const struct op_output fwd_out[] = {FLOATS(y[set], m * n), FLOATS(mean[set], m),
                                            FLOATS(rstd[set], m)};
        const struct op_output bwd_out[] = {FLOATS(dx[set], m * n), FLOATS(dgamma[set], n),
                                            FLOATS(dbeta[set], n)};
        const struct op_output over_dy[] = {{dx[set], (size_t)(m * n) * sizeof(float), dy},
                                            FLOATS(dgamma[set], n),
                                            FLOATS(dbeta[set], n)};

        op_run(on, DPB_OP_LAYERNORM_FWD, &args, fwd_out, 3);
        /* rstd is at most 1 / sqrt(eps) = 10, and 1.7 as a rule; dx has it, dgamma m times */
        op_assert_close("layernorm mean", mean[set], mean[0], NULL, m, 2.0 * row);
        op_assert_close("layernorm rstd", rstd[set], rstd[0], NULL, m, 10.0 * row);
        op_assert_close("layernorm y", y[set], y[0], NULL, m * n, 20.0 * row);
        memcpy(mean[set], mean[0], (size_t)m * sizeof(float));
        memcpy(rstd[set], rstd[0], (size_t)m * sizeof(float));
        for (int in_place = 0; in_place < 2; in_place++) {
            if (in_place)
                args.dy.data = dx[set];
            op_run(on, DPB_OP_LAYERNORM_BWD, &args, in_place ? over_dy : bwd_out, 3);
            op_assert_close("layernorm dx", dx[set], dx[0], NULL, m * n, 30.0 * row);
            op_assert_close("layernorm dgamma", dgamma[set], dgamma[0], NULL, n,
                            4.0 * column * (double)m);
            op_assert_close("layernorm dbeta", dbeta[set], dbeta[0], NULL, n, column * (double)m);
        }
        args.save_mean = args.save_rstd = NULL; /* inference */
        op_run(on, DPB_OP_LAYERNORM_FWD, &args, fwd_out, 1);
        op_assert_close("layernorm inference", y[set], y[0], NULL, m * n, 20.0 * row);
    }
    op_data_release(&data);
}

static void test_layernorm(void **state)
{
    (void)state;
    check_layernorm(1, 1);
    check_layernorm(3, 7);
    check_layernorm(64, 768); /* parts for two threads */
    check_layernorm(600, 65);
}

/* ---- embedding ---- */

static void check_embedding(int64_t rows, int64_t m, int64_t n, bool accumulate)
{
    struct op_data data = {0};
    float *table = op_data_f32(&data, rows * n), *y0 = op_data_f32(&data, m * n);
    float *dtable0 = op_data_f32(&data, rows * n), *dy = op_data_f32(&data, m * n);
    float *y[2] = {op_data_f32(&data, m * n), op_data_f32(&data, m * n)};
    float *dtable[2] = {op_data_f32(&data, rows * n), op_data_f32(&data, rows * n)};
    int32_t *ids = op_data_labels(&data, m, rows);

    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        struct dpb_embedding_args args = {.table = dpb_tensor_2d(table, rows, n),
                                          .dtable = dpb_tensor_2d(dtable[set], rows, n),
                                          .y = dpb_tensor_2d(y[set], m, n),
                                          .dy = dpb_tensor_2d(dy, m, n),
                                          .ids = ids,
                                          .accumulate = accumulate};
        const struct op_output y_out[] = {
                {y[set], (size_t)(m * n) * sizeof(float), accumulate ? y0 : NULL}};
        const struct op_output dtable_out[] = {
                {dtable[set], (size_t)(rows * n) * sizeof(float), accumulate ? dtable0 : NULL}};

        op_run(device_of(run), DPB_OP_EMBEDDING_FWD, &args, y_out, 1);
        op_run(device_of(run), DPB_OP_EMBEDDING_BWD, &args, dtable_out, 1);
        op_assert_same(y[set], y[0], m * n); /* a copy, or one sum */
        /* at most m + 1 values below 1 */
        op_assert_close("embedding-bwd", dtable[set], dtable[0], NULL, rows * n,
                        op_ulps_of_sum(m) * (double)(m + 1));
    }
    op_data_release(&data);
}

static void ignore(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void test_embedding(void **state)
{
    float value[] = {5, 5};
    int32_t id = 2;
    struct dpb_embedding_args args = {.table = dpb_tensor_2d(value, 2, 1),
                                      .dtable = dpb_tensor_2d(value, 2, 1),
                                      .y = dpb_tensor_2d(value, 1, 1),
                                      .dy = dpb_tensor_2d(value, 1, 1),
                                      .ids = &id};

    (void)state;
    check_embedding(1, 1, 1, false);
    check_embedding(50, 97, 33, false);
    check_embedding(7, 300, 130, true);
    check_embedding(100, 40, 1000, false); /* parts for two threads: rows, columns */
    check_embedding(10, 700, 130, true);
    dpb_log_set_sink(ignore, NULL);
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_EMBEDDING_FWD, &args, NULL), DPB_ERR_USAGE);
    id = -1;
    assert_int_equal(dpb_op_launch(cpu_pair[1], DPB_OP_EMBEDDING_BWD, &args, NULL), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_true(cpu_pair_tells_late || (value[0] == 5.0f && value[1] == 5.0f));
}

/* ---- attention ---- */

static void test_vector_exp(void **state)
{
    (void)state;
    for (int i = -87 * 128; i <= 88 * 128; i++) {
        float x = (float)i / 128.0f;
        double want = exp((double)x);

        if (!(fabs((double)dpb_cpu_exp(x) - want) <= 2.0 * 0x1p-23 * want))
            fail_msg("exp(%g) is %.9g, not %.9g", (double)x, (double)dpb_cpu_exp(x), want);
    }
    assert_true(dpb_cpu_exp(0.0f) == 1.0f);
    assert_true(dpb_cpu_exp(-87.01f) == 0.0f);
    assert_true(dpb_cpu_exp(-INFINITY) == 0.0f);
    assert_true(isnan(dpb_cpu_exp(NAN)));
}

struct attention_case {
    int64_t batch, tokens, heads, depth;
    int64_t gap; /* -1: q, k and v in buffers of their own */
    bool causal, masked;
    float keep;
};

/* Three tensors that lie as a case says, in `memory`. */
static void place(const struct attention_case *s, float *memory, struct dpb_tensor x[3])
{
    int64_t width = s->heads * s->depth, rows = s->batch * s->tokens;

    for (int i = 0; i < 3; i++)
        x[i] = dpb_tensor_4d(memory + i * (s->gap < 0 ? rows * width : width), s->batch, s->tokens,
                             s->heads, s->depth);
}

static void check_attention(const struct attention_case *s)
{
    struct op_data data = {0};
    int64_t width = s->heads * s->depth, rows = s->batch * s->tokens;
    int64_t numel = rows * (3 * width + (s->gap < 0 ? 0 : s->gap));
    int64_t scores = s->batch * s->heads * s->tokens * s->tokens;
    float *qkv = op_data_f32(&data, numel), *dy = op_data_f32(&data, rows * width);
    float *dqkv0 = op_data_f32(&data, numel), *workspace = op_data_f32(&data, scores);
    float *y[2], *prob[2], *dqkv[2];
    uint8_t *mask = op_data_bytes(&data, (size_t)rows);
    /* with dropout, weights are larger by 1 / keep */
    double ulps = 4.0 * (op_ulps_of_sum(s->depth) + op_ulps_of_sum(s->tokens)) /
                  (s->keep > 0.0f ? (double)s->keep : 1.0);
    struct dpb_tensor in[3], out[3];

    for (int set = 0; set < 2; set++) {
        y[set] = op_data_f32(&data, rows * width);
        prob[set] = op_data_f32(&data, scores);
        dqkv[set] = op_data_f32(&data, numel);
    }
    for (int64_t i = 0; i < rows; i++)
        mask[i] = i % s->tokens != 0 && i % 7 != 5; /* causal: the first token has no key */
    place(s, qkv, in);
    for (int run = 0; run < RUNS; run++) {
        int set = run > 0;
        struct dpb_attention_args args = {
                .q = in[0],
                .k = in[1],
                .v = in[2],
                .y = dpb_tensor_4d(y[set], s->batch, s->tokens, s->heads, s->depth),
                .dy = dpb_tensor_4d(dy, s->batch, s->tokens, s->heads, s->depth),
                .prob = dpb_tensor_4d(prob[set], s->batch, s->heads, s->tokens, s->tokens),
                .workspace = workspace,
                .key_mask = s->masked ? mask : NULL,
                .stride = s->gap < 0 ? width : 3 * width + s->gap,
                .scale = 1.0f / sqrtf((float)s->depth),
                .causal = s->causal,
                .keep = s->keep,
                .seed = 11,
                .offset = (uint64_t)s->tokens};
        const struct op_output fwd_out[] = {FLOATS(y[set], rows * width),
                                            FLOATS(prob[set], scores)};
        /* what lies between the tokens must stay */
        const struct op_output bwd_out[] = {{dqkv[set], (size_t)numel * sizeof(float), dqkv0}};

        place(s, dqkv[set], out);
        args.dq = out[0];
        args.dk = out[1];
        args.dv = out[2];
        op_run(device_of(run), DPB_OP_ATTENTION_FWD, &args, fwd_out, 2);
        /* y is a mean of values below 1; a score is off by its sum's error times the scale */
        op_assert_close("attention prob", prob[set], prob[0], NULL, scores, ulps);
        op_assert_close("attention y", y[set], y[0], NULL, rows * width, ulps);
        memcpy(prob[set], prob[0], (size_t)scores * sizeof(float));
        op_run(device_of(run), DPB_OP_ATTENTION_BWD, &args, bwd_out, 1);
        /* dprob is below depth, its sum over keys with weights prob as well */
        op_assert_close("attention dq, dk, dv", dqkv[set], dqkv[0], NULL, numel,
                        ulps * sqrt((double)s->depth));
        for (int64_t i = 0; s->gap > 0 && i < rows; i++)
            op_assert_same(dqkv[set] + (i + 1) * args.stride - s->gap,
                           dqkv0 + (i + 1) * args.stride - s->gap, s->gap);
    }
    op_data_release(&data);
}

static void test_attention(void **state)
{
    static const struct attention_case cases[] = {
            {1, 1, 1, 1, -1, false, false, 0.0f},
            {2, 5, 3, 7, -1, false, true, 1.0f},
            {2, 5, 3, 7, 0, true, false, 0.0f},
            {1, 17, 2, 8, 5, true, true, 0.9f},
            {3, 16, 4, 16, 0, false, true, 0.5f},
            {1, 130, 2, 64, 0, true, false, 0.9f},  /* more than dropout takes at once */
            {2, 64, 4, 32, -1, false, false, 0.0f}, /* parts for two threads */
            {2, 64, 4, 32, -1, false, false, 0.9f},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_attention(&cases[i]);
}

/* Large scores, and scores that differ by more than fp32's exponent can tell. */
static void test_attention_with_extreme_scores(void **state)
{
    float q[] = {100, 100}, k[] = {-3, 4}, v[] = {1, 2}, y[2], prob[4];
    struct dpb_attention_args args = {.q = dpb_tensor_4d(q, 1, 2, 1, 1),
                                      .k = dpb_tensor_4d(k, 1, 2, 1, 1),
                                      .v = dpb_tensor_4d(v, 1, 2, 1, 1),
                                      .y = dpb_tensor_4d(y, 1, 2, 1, 1),
                                      .prob = dpb_tensor_4d(prob, 1, 1, 2, 2),
                                      .stride = 1,
                                      .scale = 1.0f};

    (void)state;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_ATTENTION_FWD, &args, NULL), DPB_OK);
    assert_true(prob[0] == 0.0f && prob[1] == 1.0f && y[0] == 2.0f);
    args.scale = -1.0f;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_ATTENTION_FWD, &args, NULL), DPB_OK);
    assert_true(prob[2] == 1.0f && prob[3] == 0.0f && y[1] == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_elementwise, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_dropout, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_layernorm, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_embedding, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test(test_vector_exp),
            cmocka_unit_test_setup_teardown(test_attention, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_attention_with_extreme_scores, cpu_pair_open,
                                            cpu_pair_close),
    };

    return DPB_RUN_TESTS(tests);
}
