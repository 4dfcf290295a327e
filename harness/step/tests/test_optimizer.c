/* Optimizers in the engine: the right operator with the right settings on every parameter, the
 * memory that it takes, and training that works. The operators themselves are tested in kernels. */
#include "dpb_test.h"

#include <math.h>

#include "rig.h"
#include "dpb_strategies.h"

enum {
    IN_WEIGHT,
    IN_BIAS,
    MID_WEIGHT,
    MID_BIAS,
    OUT_WEIGHT
};

static const struct dpb_param_info *info_of(int param)
{
    static const struct tiny_options sound;

    return &tiny_workload_ops.model(&sound)->params[param];
}

/* ---- settings ---- */

static void test_settings(void **state)
{
    (void)state;
    for (int k = 0; k < DPB_OPTIMIZER_COUNT; k++) {
        struct dpb_optimizer_config config = dpb_optimizer_defaults((enum dpb_optimizer_kind)k);

        assert_int_equal(config.kind, k);
        assert_string_not_equal(dpb_optimizer_text(config.kind), "unknown");
        assert_int_equal(dpb_optimizer_config_check(&config), DPB_OK);
        assert_true(config.lr > 0.0);
    }
    assert_true(isnan(dpb_optimizer_defaults(DPB_OPTIMIZER_ADAMW).momentum));
    assert_true(isnan(dpb_optimizer_defaults(DPB_OPTIMIZER_SGD).eps));
    assert_string_equal(dpb_optimizer_text(DPB_OPTIMIZER_ROWWISE_ADAGRAD), "rowwise-adagrad");
    assert_string_equal(dpb_optimizer_text(DPB_OPTIMIZER_COUNT), "unknown");
}

static void test_settings_of_a_workload(void **state)
{
    struct dpb_training_defaults training = {
            .optimizer = DPB_OPTIMIZER_SGD, .lr = 0.5, .momentum = 0.25, .weight_decay = 0.125};
    struct dpb_optimizer_config config = dpb_training_optimizer(&training);

    (void)state;
    assert_int_equal(config.kind, DPB_OPTIMIZER_SGD);
    assert_true(config.lr == 0.5 && config.momentum == 0.25 && config.weight_decay == 0.125);
    training.optimizer = DPB_OPTIMIZER_LAMB;
    config = dpb_training_optimizer(&training);
    assert_true(config.lr == 0.5 && config.weight_decay == 0.125 && config.beta2 == 0.999);
    assert_true(isnan(config.momentum));
}

static void refused(enum dpb_optimizer_kind kind, size_t member, double value, const char *why)
{
    struct rig rig;

    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.config.optimizer = dpb_optimizer_defaults(kind);
    memcpy((char *)&rig.config.optimizer + member, &value, sizeof(value));
    assert_int_equal(dpb_step_open(&rig.config, &rig.engine), DPB_ERR_USAGE);
    if (!rig_has_logged(&rig, why) || !rig_has_logged(&rig, dpb_optimizer_text(kind)))
        fail_msg("\"%s\" does not say \"%s\"", rig.log.text, why);
    rig_release(&rig);
}

#define REFUSED(kind, member, value, why)                                                          \
    refused((kind), offsetof(struct dpb_optimizer_config, member), (value), (why))

static void test_settings_that_are_refused(void **state)
{
    (void)state;
    REFUSED(DPB_OPTIMIZER_SGD, lr, -0.5, "lr -0.5");
    REFUSED(DPB_OPTIMIZER_SGD, momentum, NAN, "momentum nan");
    REFUSED(DPB_OPTIMIZER_SGD, momentum, 1.5, "momentum 1.5 is above 1");
    REFUSED(DPB_OPTIMIZER_ADAMW, beta1, 1.0, "beta1 1 is not below 1");
    REFUSED(DPB_OPTIMIZER_LAMB, beta2, 1.0, "beta2 1 is not below 1");
    REFUSED(DPB_OPTIMIZER_ADAGRAD, eps, 0.0, "eps 0 is not above 0");
    REFUSED(DPB_OPTIMIZER_LARS, weight_decay, INFINITY, "weight-decay inf");
    REFUSED(DPB_OPTIMIZER_LARS, trust, 0.0, "trust 0 is not above 0");
}

/* ---- memory ---- */

static int64_t aligned(int64_t elements)
{
    return (elements * 4 + 63) / 64 * 64;
}

static void expect_state(struct dpb_optimizer_config optimizer, int64_t bytes)
{
    struct dpb_step_memory predicted;
    struct rig rig;
    dpb_json *memory;

    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.config.optimizer = optimizer;
    rig_open(&rig);
    rig_steps(&rig, 2);
    memory = dpb_step_memory_json(rig.engine);
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "optimizer"), -1), bytes);
    dpb_json_free(memory);
    rig_predict(&rig, &predicted);
    assert_int_equal(predicted.optimizer, bytes);
    rig_release(&rig);
}

static void test_state_takes_what_the_optimizer_needs(void **state)
{
    struct dpb_optimizer_config plain = dpb_optimizer_defaults(DPB_OPTIMIZER_SGD);
    int64_t once = 0, rowwise = 0;

    (void)state;
    for (int p = 0; p < TINY_PARAMS; p++) {
        once += aligned(tiny_numel(p));
        rowwise += aligned(p == MID_WEIGHT ? 17 : tiny_numel(p));
    }
    plain.momentum = 0.0;
    expect_state(plain, 0);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_SGD), once);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_LARS), once);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_ADAGRAD), once);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_ADAMW), 2 * once);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_LAMB), 2 * once);
    expect_state(dpb_optimizer_defaults(DPB_OPTIMIZER_ROWWISE_ADAGRAD), rowwise);
}

static void test_shapes_that_are_refused(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.options.bad_shape = true;
    assert_int_equal(dpb_step_open(&rig.config, &rig.engine), DPB_ERR_INTERNAL);
    assert_true(rig_has_logged(&rig, "parameter \"flat\""));
    rig_release(&rig);
}

/* ---- arithmetic: the first step from zero state, in closed form ---- */

/* The gradient of the first batch, and the initial value. */
static double gradient_of(int param, int64_t element)
{
    int sum = 0;

    for (int64_t id = 0; id < RIG_BATCH; id++)
        sum += tiny_gradient(param, element, tiny_initial(param, element, RIG_SEED), id);
    return (double)sum / RIG_BATCH;
}

static double value_of(int param, int64_t element)
{
    return (double)tiny_initial(param, element, RIG_SEED);
}

/* After one step m / (1 - beta1) is the gradient g, and v / (1 - beta2) its square. */
static double direction_of(const struct dpb_optimizer_config *c, double g)
{
    return g / (fabs(g) + c->eps);
}

static double lamb_update(const struct dpb_optimizer_config *c, int param, int64_t i)
{
    const double decay = info_of(param)->rank > 1 ? c->weight_decay : 0.0;

    return direction_of(c, gradient_of(param, i)) + decay * value_of(param, i);
}

static double norm_of_param(int param)
{
    double sum = 0.0;

    for (int64_t i = 0; i < tiny_numel(param); i++)
        sum += value_of(param, i) * value_of(param, i);
    return sqrt(sum);
}

static double decayed_gradient(const struct dpb_optimizer_config *c, int param, int64_t i)
{
    return gradient_of(param, i) + c->weight_decay * value_of(param, i);
}

/* Row-wise on the table only. */
static double adagrad_update(const struct dpb_optimizer_config *c, int param, int64_t i)
{
    const double g = decayed_gradient(c, param, i);
    double squares = g * g;

    if (c->kind == DPB_OPTIMIZER_ROWWISE_ADAGRAD && param == MID_WEIGHT) {
        const int64_t columns = info_of(param)->dim[1], first = i / columns * columns;

        squares = 0.0;
        for (int64_t j = first; j < first + columns; j++)
            squares += decayed_gradient(c, param, j) * decayed_gradient(c, param, j);
        squares /= (double)columns;
    }
    return g / (sqrt(squares) + c->eps);
}

/* Of all elements of a parameter in one call. */
static void first_step(const struct dpb_optimizer_config *c, int param, double *value)
{
    const int64_t count = tiny_numel(param);
    const bool matrix = info_of(param)->rank > 1;
    double grad_squares = 0.0, update_squares = 0.0, ratio = 1.0;

    for (int64_t i = 0; i < count; i++) {
        grad_squares += gradient_of(param, i) * gradient_of(param, i);
        update_squares += lamb_update(c, param, i) * lamb_update(c, param, i);
    }
    if (matrix && c->kind == DPB_OPTIMIZER_LAMB)
        ratio = norm_of_param(param) / sqrt(update_squares);
    if (matrix && c->kind == DPB_OPTIMIZER_LARS)
        ratio = c->trust * norm_of_param(param) /
                (sqrt(grad_squares) + c->weight_decay * norm_of_param(param) + c->eps);
    for (int64_t i = 0; i < count; i++) {
        const double w = value_of(param, i), g = gradient_of(param, i);

        switch (c->kind) {
        case DPB_OPTIMIZER_SGD:
            value[i] = w - c->lr * (g + c->weight_decay * w);
            break;
        case DPB_OPTIMIZER_ADAMW:
            value[i] = w - c->lr * (direction_of(c, g) + c->weight_decay * w);
            break;
        case DPB_OPTIMIZER_LAMB:
            value[i] = w - c->lr * ratio * lamb_update(c, param, i);
            break;
        case DPB_OPTIMIZER_LARS:
            value[i] = w - c->lr * ratio * (g + (matrix ? c->weight_decay * w : 0.0));
            break;
        default:
            value[i] = w - c->lr * adagrad_update(c, param, i);
            break;
        }
    }
}

static void test_first_step_in_closed_form(void **state)
{
    double expected[1003];

    (void)state;
    for (int k = 0; k < DPB_OPTIMIZER_COUNT; k++) {
        struct rig rig;

        rig_init(&rig, &dpb_strategy_ddp_ops, 1);
        rig.config.optimizer = dpb_optimizer_defaults((enum dpb_optimizer_kind)k);
        rig.config.optimizer.lr = 0.25;
        rig.config.optimizer.weight_decay = 0.125;
        rig_open(&rig);
        rig_steps(&rig, 1);
        for (int p = 0; p < TINY_PARAMS; p++) {
            const float *got = dpb_step_param(rig.engine, p);

            first_step(&rig.config.optimizer, p, expected);
            for (int64_t i = 0; i < tiny_numel(p); i++)
                if (!(fabs((double)got[i] - expected[i]) <= 1e-5))
                    fail_msg("%s: element %d of %s is %.9g, expected %.9g",
                             dpb_optimizer_text(rig.config.optimizer.kind), (int)i,
                             info_of(p)->name, (double)got[i], expected[i]);
        }
        rig_release(&rig);
    }
}

/* Later steps know their number, which the bias correction needs. */
static void test_steps_are_counted(void **state)
{
    const struct dpb_optimizer_config c = {.kind = DPB_OPTIMIZER_ADAMW,
                                           .lr = 0.25,
                                           .beta1 = 0.5,
                                           .beta2 = 0.75,
                                           .eps = 1e-8,
                                           .weight_decay = 0.0};
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.config.optimizer = c;
    rig_open(&rig);
    rig_steps(&rig, 3);
    for (int64_t i = 0; i < tiny_numel(IN_BIAS); i++) {
        double w = value_of(IN_BIAS, i), m = 0.0, v = 0.0;

        for (int step = 1; step <= 3; step++) {
            int sum = 0;

            for (int64_t id = (step - 1) * RIG_BATCH; id < step * RIG_BATCH; id++)
                sum += tiny_gradient(IN_BIAS, i, (float)w, id);
            m = 0.5 * m + 0.5 * sum / RIG_BATCH;
            v = 0.75 * v + 0.25 * sum * sum / (RIG_BATCH * RIG_BATCH);
            w -= 0.25 * (m / (1.0 - pow(0.5, step))) / (sqrt(v / (1.0 - pow(0.75, step))) + 1e-8);
        }
        assert_float_equal(dpb_step_param(rig.engine, IN_BIAS)[i], w, 1e-5);
    }
    rig_release(&rig);
}

/* ---- names ---- */

static void test_operators_are_named(void **state)
{
    const struct dpb_recorder_config config = {.events_per_lane = 64};
    const struct dpb_event *events;
    dpb_recorder *recorder;
    bool table = false, bias = false;
    uint64_t lost;
    struct rig rig;
    size_t count;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.config.optimizer = dpb_optimizer_defaults(DPB_OPTIMIZER_ROWWISE_ADAGRAD);
    rig_open(&rig);
    assert_int_equal(dpb_recorder_host_ops.open(&config, &recorder), DPB_OK);
    dpb_step_set_recorder(rig.engine, recorder);
    rig_steps(&rig, 1);
    assert_int_equal(dpb_recorder_host_ops.drain(recorder, &events, &count, &lost), DPB_OK);
    for (size_t i = 0; i < count; i++) {
        table |= strcmp(events[i].name, "mid.weight.rowwise-adagrad") == 0;
        bias |= strcmp(events[i].name, "mid.bias.adagrad") == 0;
    }
    assert_true(table);
    assert_true(bias);
    dpb_step_set_recorder(rig.engine, NULL);
    dpb_recorder_host_ops.close(recorder);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_settings),
            cmocka_unit_test(test_settings_of_a_workload),
            cmocka_unit_test(test_settings_that_are_refused),
            cmocka_unit_test(test_state_takes_what_the_optimizer_needs),
            cmocka_unit_test(test_shapes_that_are_refused),
            cmocka_unit_test(test_first_step_in_closed_form),
            cmocka_unit_test(test_steps_are_counted),
            cmocka_unit_test(test_operators_are_named),
    };

    return DPB_RUN_TESTS(tests);
}
