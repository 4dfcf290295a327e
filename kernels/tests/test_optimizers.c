/* The optimizers: the reference against values worked out by hand and against PyTorch's figures,
 * the CPU device against the reference. tests/data/optimizer_vectors.json is made by
 * bench/peers/optimizer_vectors.py, which says what comes from where. */
#include <math.h>

#include "cpu_pair.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_data.h"

/* An optimizer and its settings, for any of the argument structs. */
struct rule {
    enum dpb_op op;
    double lr, mu, beta1, beta2, eps, weight_decay, trust;
    bool adapt;
};

union update {
    struct dpb_sgd_args sgd;
    struct dpb_adam_args adam;
    struct dpb_lars_args lars;
    struct dpb_adagrad_args adagrad;
};

/* `state`: two arrays, of which an optimizer uses the first it needs; NULL for SGD without one. */
static union update update_of(const struct rule *rule, struct dpb_tensor param, const void *grad,
                              void *const state[2], int64_t step)
{
    switch (rule->op) {
    case DPB_OP_SGD_MOMENTUM:
        return (union update){.sgd = {.param = param.data,
                                      .grad = grad,
                                      .momentum = state[0],
                                      .count = dpb_tensor_numel(&param),
                                      .lr = (float)rule->lr,
                                      .mu = (float)rule->mu,
                                      .weight_decay = (float)rule->weight_decay}};
    case DPB_OP_LARS:
        return (union update){.lars = {.param = param,
                                       .grad = grad,
                                       .momentum = state[0],
                                       .lr = rule->lr,
                                       .mu = rule->mu,
                                       .weight_decay = rule->weight_decay,
                                       .trust = rule->trust,
                                       .eps = rule->eps,
                                       .adapt = rule->adapt}};
    case DPB_OP_ADAMW:
    case DPB_OP_LAMB:
        return (union update){.adam = {.param = param,
                                       .grad = grad,
                                       .m = state[0],
                                       .v = state[1],
                                       .step = step,
                                       .lr = rule->lr,
                                       .beta1 = rule->beta1,
                                       .beta2 = rule->beta2,
                                       .eps = rule->eps,
                                       .weight_decay = rule->weight_decay,
                                       .adapt = rule->adapt}};
    default:
        return (union update){.adagrad = {.param = param,
                                          .grad = grad,
                                          .state = state[0],
                                          .lr = rule->lr,
                                          .eps = rule->eps,
                                          .weight_decay = rule->weight_decay}};
    }
}

/* ---- by hand: two elements, powers of two, so that fp32 is exact ---- */

static void step_by_hand(const struct rule *rule, float param[2], float g0, float g1,
                         float state[2][2], int64_t step)
{
    const float grad[2] = {g0, g1};
    const struct dpb_tensor tensor = rule->op == DPB_OP_ROWWISE_ADAGRAD ? dpb_tensor_2d(param, 1, 2)
                                                                        : dpb_tensor_1d(param, 2);
    void *const arrays[2] = {state[0], state[1]};
    const union update args = update_of(rule, tensor, grad, arrays, step);

    assert_int_equal(dpb_reference_op(rule->op, &args), DPB_OK);
    assert_true(grad[0] == g0 && grad[1] == g1);
}

static void assert_pair(const float got[2], double first, double second)
{
    if (!(fabs((double)got[0] - first) <= 1e-6 && fabs((double)got[1] - second) <= 1e-6))
        fail_msg("(%.9g, %.9g), by hand (%.9g, %.9g)", (double)got[0], (double)got[1], first,
                 second);
}

static void test_adamw_by_hand(void **unused)
{
    const struct rule rule = {.op = DPB_OP_ADAMW,
                              .lr = 0.5,
                              .beta1 = 0.5,
                              .beta2 = 0.75,
                              .eps = 2.0,
                              .weight_decay = 0.5,
                              .adapt = true}; /* not read */
    float param[2] = {1, 8}, state[2][2] = {{0}};

    (void)unused;
    /* m = 1, v = 1; corrected 2 and 4; direction 2 / (2 + 2); decay by 1 - 0.5 * 0.5 */
    step_by_hand(&rule, param, 2, 0, state, 1);
    assert_pair(state[0], 1, 0);
    assert_pair(state[1], 1, 0);
    assert_pair(param, 0.75 - 0.25, 6);
    /* the same gradient again: the corrected moments stay 2 and 4 */
    step_by_hand(&rule, param, 2, 0, state, 2);
    assert_pair(state[0], 1.5, 0);
    assert_pair(state[1], 1.75, 0);
    assert_pair(param, 0.375 - 0.25, 4.5);
}

static void test_lamb_by_hand(void **unused)
{
    struct rule rule = {
            .op = DPB_OP_LAMB, .lr = 0.125, .beta1 = 0.5, .beta2 = 0.75, .eps = 2.0, .adapt = true};
    float param[2] = {3, 4}, zero[2] = {0}, plain[2] = {3, 4}, state[2][2] = {{0}};

    (void)unused;
    /* update (0.5, 0), ratio 5 / 0.5 */
    step_by_hand(&rule, param, 2, 0, state, 1);
    assert_pair(state[0], 1, 0);
    assert_pair(state[1], 1, 0);
    assert_pair(param, 3 - 0.125 * 10 * 0.5, 4);
    /* parameters of norm 0: ratio 1 */
    memset(state, 0, sizeof(state));
    step_by_hand(&rule, zero, 2, 0, state, 1);
    assert_pair(zero, -0.125 * 0.5, 0);
    /* an update of norm 0 */
    memset(state, 0, sizeof(state));
    step_by_hand(&rule, plain, 0, 0, state, 1);
    assert_pair(plain, 3, 4);
    /* no gradient: the update is the decay, w itself, ratio 5 / (0.5 * 5) */
    rule.weight_decay = 0.5;
    step_by_hand(&rule, plain, 0, 0, state, 1);
    assert_pair(plain, 3 - 0.125 * 2 * 1.5, 4 - 0.125 * 2 * 2);
    /* without adaptation */
    rule.adapt = false;
    param[0] = 3;
    step_by_hand(&rule, param, 2, 0, state, 1);
    assert_pair(param, 3 - 0.125 * (0.5 + 1.5), 4 - 0.125 * 2);
}

static void test_lars_by_hand(void **unused)
{
    struct rule rule = {.op = DPB_OP_LARS,
                        .lr = 2.0,
                        .mu = 0.5,
                        .weight_decay = 0.5,
                        .trust = 0.5,
                        .eps = 7.5,
                        .adapt = true};
    float param[2] = {3, 4}, zero[2] = {0}, plain[2] = {3, 4}, state[2][2] = {{0}};

    (void)unused;
    /* norms 5 and 10: ratio 0.5 * 5 / (10 + 2.5 + 7.5), local rate 0.25 */
    step_by_hand(&rule, param, 6, 8, state, 1);
    assert_pair(state[0], 0.25 * 7.5, 0.25 * 10);
    assert_pair(param, 3 - 1.875, 4 - 2.5);
    /* a gradient of norm 0: ratio 1; the momentum keeps the rate of the step that it came from */
    step_by_hand(&rule, param, 0, 0, state, 2);
    assert_pair(state[0], 0.5 * 1.875 + 2 * 0.5 * 1.125, 0.5 * 2.5 + 2 * 0.5 * 1.5);
    assert_pair(param, 1.125 - 2.0625, 1.5 - 2.75);
    /* parameters of norm 0 */
    memset(state, 0, sizeof(state));
    step_by_hand(&rule, zero, 6, 8, state, 1);
    assert_pair(zero, -12, -16);
    /* without adaptation */
    rule.adapt = false;
    memset(state, 0, sizeof(state));
    step_by_hand(&rule, plain, 6, 8, state, 1);
    assert_pair(plain, 3 - 2 * 7.5, 4 - 2 * 10);
}

static void test_adagrad_by_hand(void **unused)
{
    struct rule rule = {.op = DPB_OP_ADAGRAD, .lr = 2.0, .eps = 3.0};
    float param[2] = {1, 5}, row[2] = {1, 1}, state[2][2] = {{0}};

    (void)unused;
    step_by_hand(&rule, param, 3, 0, state, 1); /* 2 * 3 / (3 + 3) */
    assert_pair(state[0], 9, 0);
    assert_pair(param, 0, 5);
    step_by_hand(&rule, param, 4, -1, state, 2); /* 2 * 4 / (5 + 3); 2 * -1 / (1 + 3) */
    assert_pair(state[0], 25, 1);
    assert_pair(param, -1, 5.5);

    rule.op = DPB_OP_ROWWISE_ADAGRAD;
    rule.lr = 8.0;
    memset(state, 0, sizeof(state));
    step_by_hand(&rule, row, 1, 7, state, 1); /* mean of squares 25: 8 / (5 + 3) */
    assert_pair(state[0], 25, 0);             /* one number for the row */
    assert_pair(row, 0, -6);
    step_by_hand(&rule, row, 12, -12, state, 2); /* 25 + 144: 8 / (13 + 3) */
    assert_pair(state[0], 169, 0);
    assert_pair(row, -6, 0);
}

static void test_sgd_without_momentum(void **unused)
{
    const struct rule rule = {.op = DPB_OP_SGD_MOMENTUM, .lr = 0.5, .weight_decay = 0.25};
    void *const none[2] = {NULL, NULL};
    const float grad[2] = {0.5f, 1};

    (void)unused;
    for (int run = 0; run < 3; run++) {
        float param[2] = {1, -2};
        const union update args = update_of(&rule, dpb_tensor_1d(param, 2), grad, none, 1);
        const dpb_status st = run == 0 ? dpb_reference_op(rule.op, &args)
                                       : dpb_op_launch(cpu_pair[run - 1], rule.op, &args, NULL);

        assert_int_equal(st, DPB_OK);
        assert_pair(param, 1 - 0.5 * 0.75, -2 - 0.5 * 0.5);
    }
}

/* ---- PyTorch's figures ---- */

#define VECTOR_MAX 16

struct vectors {
    dpb_json *json;
    int64_t rows, columns, count;
    double param[VECTOR_MAX];
};

static void read_array(const dpb_json *array, double *to, int64_t count)
{
    assert_int_equal(dpb_json_size(array), count);
    for (int64_t i = 0; i < count; i++)
        to[i] = dpb_json_as_real(dpb_json_at(array, (size_t)i), NAN);
}

static double setting(const dpb_json *settings, const char *key)
{
    return dpb_json_as_real(dpb_json_get(settings, key), 0.0);
}

static struct rule rule_of(const dpb_json *one)
{
    const dpb_json *s = dpb_json_get(one, "settings");
    const char *op = dpb_json_as_string(dpb_json_get(one, "op"), "");
    struct rule rule = {.op = DPB_OP_COUNT,
                        .lr = setting(s, "lr"),
                        .mu = setting(s, "momentum"),
                        .beta1 = setting(s, "beta1"),
                        .beta2 = setting(s, "beta2"),
                        .eps = setting(s, "eps"),
                        .weight_decay = setting(s, "weight_decay"),
                        .trust = setting(s, "trust"),
                        .adapt = dpb_json_as_bool(dpb_json_get(s, "adapt"), false)};

    for (int i = 0; i < DPB_OP_COUNT; i++)
        if (strcmp(dpb_op_text((enum dpb_op)i), op) == 0)
            rule.op = (enum dpb_op)i;
    assert_int_not_equal(rule.op, DPB_OP_COUNT);
    return rule;
}

/* Names of the two arrays of state, in our order; NULL where there is none. */
static void state_names(const dpb_json *one, const char *names[2])
{
    static const char *const known[][2] = {{"m", "v"}, {"momentum", NULL}, {"state", NULL}};

    names[0] = names[1] = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (dpb_json_get(one, known[i][0]))
            memcpy(names, known[i], sizeof(known[i]));
}

static double value_at(const void *array, enum dpb_dtype dtype, int64_t i)
{
    return dtype == DPB_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static void set_values(void *array, enum dpb_dtype dtype, const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DPB_F64)
            ((double *)array)[i] = values[i];
        else
            ((float *)array)[i] = (float)values[i];
    }
}

static void assert_array(const dpb_json *one, const char *name, size_t step, const void *got,
                         enum dpb_dtype dtype, double rtol)
{
    const dpb_json *array = dpb_json_at(dpb_json_get(one, name), step);

    assert_in_range(dpb_json_size(array), 1, VECTOR_MAX);
    for (size_t i = 0; i < dpb_json_size(array); i++) {
        double want = dpb_json_as_real(dpb_json_at(array, i), NAN);
        double is = value_at(got, dtype, (int64_t)i);

        if (!(fabs(is - want) <= rtol * (fabs(want) + 0.01)))
            fail_msg("%s: %s[%zu] after step %zu is %.17g, in the file %.17g",
                     dpb_json_as_string(dpb_json_get(one, "op"), ""), name, i, step + 1, is, want);
    }
}

/* All steps of one case, on `on` or, when NULL, on the reference. */
static void check_case(const struct vectors *vectors, const dpb_json *one, dpb_device *on,
                       enum dpb_dtype dtype, double rtol)
{
    const dpb_json *grads = dpb_json_get(vectors->json, "grad");
    const struct rule rule = rule_of(one);
    double param[VECTOR_MAX], grad[VECTOR_MAX], state[2][VECTOR_MAX] = {{0}}; /* or floats */
    struct dpb_tensor tensor = dpb_tensor_2d(param, vectors->rows, vectors->columns);
    double values[VECTOR_MAX];
    const char *names[2];
    void *arrays[2];
    size_t steps = dpb_json_size(grads);

    tensor.dtype = dtype;
    state_names(one, names);
    for (int i = 0; i < 2; i++)
        arrays[i] = names[i] ? state[i] : NULL;
    set_values(param, dtype, vectors->param, vectors->count);
    for (size_t step = 0; step < steps; step++) {
        union update args;

        read_array(dpb_json_at(grads, step), values, vectors->count);
        set_values(grad, dtype, values, vectors->count);
        args = update_of(&rule, tensor, grad, arrays, (int64_t)step + 1);
        assert_int_equal(on ? dpb_op_launch(on, rule.op, &args, NULL)
                            : dpb_reference_op(rule.op, &args),
                         DPB_OK);
        assert_array(one, "param", step, param, dtype, rtol);
    }
    for (int i = 0; i < 2; i++)
        if (names[i])
            assert_array(one, names[i], 0, state[i], dtype, rtol);
}

static void test_pytorch_figures(void **unused)
{
    struct vectors vectors = {0};
    const dpb_json *cases;

    (void)unused;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/optimizer_vectors.json", &vectors.json),
                     DPB_OK);
    vectors.rows = dpb_json_as_int(dpb_json_get(vectors.json, "rows"), 0);
    vectors.columns = dpb_json_as_int(dpb_json_get(vectors.json, "columns"), 0);
    vectors.count = vectors.rows * vectors.columns;
    assert_in_range(vectors.count, 1, VECTOR_MAX);
    read_array(dpb_json_get(vectors.json, "param"), vectors.param, vectors.count);
    cases = dpb_json_get(vectors.json, "cases");
    assert_int_equal(dpb_json_size(cases), 13);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);

        /* The formula, to double's precision; SGD has no fp64. */
        if (rule_of(one).op != DPB_OP_SGD_MOMENTUM)
            check_case(&vectors, one, NULL, DPB_F64, 1e-13);
        check_case(&vectors, one, NULL, DPB_F32, 1e-6);
        check_case(&vectors, one, cpu_pair[0], DPB_F32, 2e-6);
        check_case(&vectors, one, cpu_pair[1], DPB_F32, 2e-6);
    }
    dpb_json_free(vectors.json);
}

/* ---- the device against the reference ---- */

/* Typical settings. */
static const struct rule rules[] = {
        {.op = DPB_OP_ADAMW,
         .lr = 0.1,
         .beta1 = 0.9,
         .beta2 = 0.999,
         .eps = 1e-8,
         .weight_decay = 0.01},
        {.op = DPB_OP_LAMB,
         .lr = 0.1,
         .beta1 = 0.9,
         .beta2 = 0.999,
         .eps = 1e-6,
         .weight_decay = 0.01,
         .adapt = true},
        {.op = DPB_OP_LAMB,
         .lr = 0.1,
         .beta1 = 0.9,
         .beta2 = 0.999,
         .eps = 1e-6,
         .weight_decay = 0.01},
        {.op = DPB_OP_LARS,
         .lr = 100.0,
         .mu = 0.9,
         .weight_decay = 0.01,
         .trust = 0.001,
         .adapt = true},
        {.op = DPB_OP_LARS, .lr = 0.1, .mu = 0.9, .weight_decay = 0.01, .trust = 0.001},
        {.op = DPB_OP_ADAGRAD, .lr = 0.1, .eps = 1e-10, .weight_decay = 0.01},
        {.op = DPB_OP_ROWWISE_ADAGRAD, .lr = 0.1, .eps = 1e-10, .weight_decay = 0.01},
};

/* State is what squares of gradients could have left: not below 1/4, so that no quotient is large
 * and the limits below are a few roundings of values around 1. */
static void check_rule(const struct rule *rule, int64_t rows, int64_t columns, int64_t step)
{
    struct op_data data = {0};
    int64_t count = rows * columns;
    int64_t state_count = rule->op == DPB_OP_ROWWISE_ADAGRAD ? rows : count;
    size_t bytes = (size_t)count * sizeof(float), state_bytes = (size_t)state_count * sizeof(float);
    float *param0 = op_data_f32(&data, count), *state0[2];
    float *grad = op_data_f32(&data, count), *kept = op_data_f32(&data, count);
    float *param[3], *state[3][2];

    for (int i = 0; i < 2; i++) {
        state0[i] = op_data_abs(&data, op_data_f32(&data, state_count), state_count);
        for (int64_t j = 0; j < state_count; j++)
            state0[i][j] += 0.25f;
    }
    memcpy(kept, grad, bytes);
    for (int run = 0; run < 3; run++) {
        param[run] = op_data_f32(&data, count);
        for (int i = 0; i < 2; i++)
            state[run][i] = op_data_f32(&data, state_count);

        void *const arrays[2] = {state[run][0], state[run][1]};
        const union update args =
                update_of(rule, dpb_tensor_2d(param[run], rows, columns), grad, arrays, step);
        const struct op_output outputs[] = {{param[run], bytes, param0},
                                            {state[run][0], state_bytes, state0[0]},
                                            {state[run][1], state_bytes, state0[1]}};

        op_run(run > 0 ? cpu_pair[run - 1] : NULL, rule->op, &args, outputs, 3);
        op_assert_close(dpb_op_text(rule->op), param[run], param[0], NULL, count, 32.0);
        for (int i = 0; i < 2; i++)
            op_assert_close(dpb_op_text(rule->op), state[run][i], state[0][i], NULL, state_count,
                            8.0);
        assert_memory_equal(grad, kept, bytes);
        assert_memory_not_equal(param[run], param0, bytes);
    }
    /* Any number of threads gives the same bits, norms included. */
    assert_memory_equal(param[1], param[2], bytes);
    assert_memory_equal(state[1][0], state[2][0], state_bytes);
    op_data_release(&data);
}

static void test_device_follows_reference(void **unused)
{
    (void)unused;
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        check_rule(&rules[r], 1, 1, 1);
        check_rule(&rules[r], 3, 5, 1);       /* less than a vector */
        check_rule(&rules[r], 17, 59, 2);     /* parts that are not full, a last one cut short */
        check_rule(&rules[r], 3, 700, 1000);  /* rows of several chunks */
        check_rule(&rules[r], 251, 401, 100); /* parts of several chunks, for two threads */
    }
}

/* Sums of squares must not drown in rounding: 2^20 times 1/64, and one 2^10. In fp32, one after the
 * other, they would. */
static void test_norms_are_exact_enough(void **unused)
{
    const int64_t count = 1 << 20;
    struct op_data data = {0};
    float *param = op_data_f32(&data, count), *grad = op_data_f32(&data, count);
    float *momentum = op_data_f32(&data, count);
    const struct rule rule = {.op = DPB_OP_LARS, .lr = 1.0, .trust = 1.0, .adapt = true};

    (void)unused;
    for (int run = 0; run < 2; run++) {
        void *const arrays[2] = {momentum, NULL};
        const union update args = update_of(&rule, dpb_tensor_1d(param, count), grad, arrays, 1);

        for (int64_t i = 0; i < count; i++) {
            param[i] = 0.015625f;
            grad[i] = 0.0f;
            momentum[i] = 0.0f;
        }
        param[0] = 1024.0f;
        grad[1] = 2.0f;
        assert_int_equal(dpb_op_launch(cpu_pair[run], DPB_OP_LARS, &args, NULL), DPB_OK);
        /* local rate: ||w|| / 2, times the gradient 2: the momentum is ||w|| */
        assert_float_equal(momentum[1], sqrt(1048576.0 + 1048575.0 / 4096.0), 1e-4);
    }
    op_data_release(&data);
}

/* ---- arguments ---- */

static char first_error[512];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", line);
}

static void assert_misfit(enum dpb_op op, const union update *args, const char *reason)
{
    first_error[0] = '\0';
    dpb_log_set_sink(keep_error, NULL);
    assert_int_equal(dpb_op_args_check(op, args), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    if (!strstr(first_error, reason) || !strstr(first_error, dpb_op_text(op)))
        fail_msg("\"%s\" does not say \"%s\"", first_error, reason);
}

/* Good arguments of rule `r`, to be spoiled. */
static union update good(size_t r)
{
    static float v[4];
    static void *const arrays[2] = {v, v};

    return update_of(&rules[r], dpb_tensor_2d(v, 2, 2), v, arrays, 1);
}

#define assert_spoiled(r, member, value, reason)                                                   \
    do {                                                                                           \
        union update bad_ = good(r);                                                               \
        bad_.member = (value);                                                                     \
        assert_misfit(rules[r].op, &bad_, (reason));                                               \
    } while (0)

static void test_arguments(void **unused)
{
    union update one;

    (void)unused;
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        one = good(r);
        assert_int_equal(dpb_op_args_check(rules[r].op, &one), DPB_OK);
        assert_int_equal(dpb_op_args_dtype(rules[r].op, &one), DPB_F32);
    }
    assert_spoiled(0, adam.step, 0, "step is below 1");
    assert_spoiled(0, adam.param.data, NULL, "param is NULL");
    assert_spoiled(0, adam.param.rank, 0, "param has rank 0");
    assert_spoiled(0, adam.grad, NULL, "grad is NULL");
    assert_spoiled(0, adam.m, NULL, "m is NULL");
    assert_spoiled(1, adam.v, NULL, "v is NULL");
    assert_spoiled(1, adam.beta1, 1.0, "beta1 is not in [0, 1)");
    assert_spoiled(1, adam.beta2, -0.5, "beta2 is not in [0, 1)");
    assert_spoiled(1, adam.beta2, NAN, "beta2 is not in [0, 1)");
    assert_spoiled(1, adam.eps, 0.0, "eps is not above 0");
    assert_spoiled(1, adam.lr, INFINITY, "lr is not finite");
    assert_spoiled(1, adam.weight_decay, NAN, "weight_decay is not finite");
    assert_spoiled(3, lars.momentum, NULL, "momentum is NULL");
    assert_spoiled(3, lars.eps, -1.0, "eps is below 0");
    assert_spoiled(3, lars.eps, NAN, "eps is below 0");
    assert_spoiled(3, lars.eps, INFINITY, "eps is not finite");
    assert_spoiled(3, lars.mu, NAN, "mu is not finite");
    assert_spoiled(3, lars.trust, 0.0, "trust is not above 0");
    assert_spoiled(5, adagrad.state, NULL, "state is NULL");
    assert_spoiled(5, adagrad.eps, 0.0, "eps is not above 0");
    assert_spoiled(6, adagrad.param.rank, 1, "param has rank 1, needs 2");
    one = good(3);
    one.lars.eps = 0.0; /* as MLPerf */
    assert_int_equal(dpb_op_args_check(DPB_OP_LARS, &one), DPB_OK);
    one = good(5);
    one.adagrad.param.rank = 1;
    assert_int_equal(dpb_op_args_check(DPB_OP_ADAGRAD, &one), DPB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_adamw_by_hand),
            cmocka_unit_test(test_lamb_by_hand),
            cmocka_unit_test(test_lars_by_hand),
            cmocka_unit_test(test_adagrad_by_hand),
            cmocka_unit_test_setup_teardown(test_sgd_without_momentum, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_pytorch_figures, cpu_pair_open, cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_device_follows_reference, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test_setup_teardown(test_norms_are_exact_enough, cpu_pair_open,
                                            cpu_pair_close),
            cmocka_unit_test(test_arguments),
    };

    return DPB_RUN_TESTS(tests);
}
