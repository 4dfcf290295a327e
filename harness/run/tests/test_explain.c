#include "dpb_explain.h"

#include <math.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_strategies.h"
#include "dpb_test.h"
#include "registry_for_tests.h"

#define OPTIONS_MAX 8

/* Explain a cell of {"name", "text"} pairs, ended by NULL; `config` stays for as long as the
 * explanation. */
static void explain(const char *const options[][2], dpb_config **config, struct dpb_explanation *x)
{
    const struct dpb_registry *registry = registry_for_tests();
    struct dpb_assignment given[OPTIONS_MAX];
    size_t count = 0;

    for (; options[count][0]; count++)
        given[count] = (struct dpb_assignment){options[count][0], options[count][1], "test"};
    assert_int_equal(dpb_config_new(registry->options, given, count, false, config), DPB_OK);
    assert_int_equal(dpb_experiment_resolve(*config, registry, 2, 4), DPB_OK);
    assert_int_equal(dpb_explain(registry, *config, x), DPB_OK);
}

static void release(dpb_config *config, struct dpb_explanation *x)
{
    dpb_explanation_release(x);
    dpb_config_free(config);
}

static bool has_note(const struct dpb_explanation *x, const char *text)
{
    for (size_t i = 0; i < dpb_json_size(x->notes); i++)
        if (strstr(dpb_json_as_string(dpb_json_at(x->notes, i), ""), text))
            return true;
    return false;
}

static const char *name_of(const struct dpb_explanation *x, int param)
{
    return param < 0 ? "" : x->model->params[param].name;
}

/* mnist-cnn has 4.8 MB of gradients, of which fc1.weight is 4.7 MB. */
static void test_ddp(void **state)
{
    static const char *const options[][2] = {
            {"workload", "mnist-cnn"}, {"strategy", "ddp"},       {"ranks", "2"},
            {"bucket", "1MiB"},        {"link", "2.5Gbps,100us"}, {NULL, NULL}};
    struct dpb_explanation x;
    dpb_config *config;

    (void)state;
    explain(options, &config, &x);
    assert_true(x.replans);
    assert_int_equal(x.first.unit_count, 1);
    assert_int_equal(x.steady.unit_count, 2);
    assert_int_equal(x.message_count, 2);
    assert_string_equal(name_of(&x, x.messages[0].after), "fc1.weight");
    assert_false(x.messages[0].always_exposed);
    assert_true(x.messages[0].backward_done > 0 && x.messages[0].backward_done < 0.5);
    assert_true(x.messages[1].always_exposed);
    assert_true(fabs(x.messages[1].backward_done - 1) < 1e-12);
    /* with two ranks each sends every gradient once: 2 (P - 1) / P B */
    assert_int_equal(x.wire_bytes, x.gradient_bytes);
    assert_int_equal(x.messages[0].bytes + x.messages[1].bytes, x.gradient_bytes);
    assert_int_equal(x.wire_ns, x.messages[0].wire_ns + x.messages[1].wire_ns);
    assert_int_equal(x.exposed_wire_ns, x.messages[1].wire_ns);
    assert_true(has_note(&x, "a tensor is never split"));
    assert_true(has_note(&x, "step 1 has a plan of its own"));
    release(config, &x);
}

/* When does the last message that can hide leave the link, with a backward pass of `backward_ns`?
 */
static double hidden_end_ns(const struct dpb_explanation *x, double backward_ns)
{
    double free_ns = 0;

    for (int i = 0; i < x->message_count; i++)
        if (!x->messages[i].always_exposed)
            free_ns = fmax(free_ns, x->messages[i].backward_done * backward_ns) +
                      (double)x->messages[i].wire_ns;
    return free_ns;
}

/* The bound against the schedule itself, played message by message. */
static void test_hidden_within(void **state)
{
    static const char *const buckets[] = {"1KiB", "16KiB", "100KiB", "1MiB"};

    (void)state;
    for (int b = 0; b < 4; b++) {
        const char *const options[][2] = {
                {"workload", "cifar-resnet20"}, {"strategy", "ddp"},    {"ranks", "4"},
                {"bucket", buckets[b]},         {"link", "1Gbps,50us"}, {NULL, NULL}};
        struct dpb_explanation x;
        dpb_config *config;

        explain(options, &config, &x);
        double bound = (double)x.hidden_within_ns;
        if (x.message_count > 1) {
            assert_true(bound > 0);
            assert_true(hidden_end_ns(&x, bound) <= bound);
            assert_true(hidden_end_ns(&x, 0.99 * bound) > 0.99 * bound);
        }
        release(config, &x);
    }
}

static void test_nothing_overlaps(void **state)
{
    static const char *const strategies[] = {"none", "naive"};

    (void)state;
    for (int s = 0; s < 2; s++) {
        const char *const options[][2] = {{"workload", "mnist-cnn"},
                                          {"strategy", strategies[s]},
                                          {"ranks", "3"},
                                          {NULL, NULL}};
        struct dpb_explanation x;
        dpb_config *config;

        explain(options, &config, &x);
        assert_false(x.replans);
        assert_int_equal(x.message_count, s == 0 ? 1 : x.model->param_count);
        for (int i = 0; i < x.message_count; i++)
            assert_true(x.messages[i].always_exposed);
        assert_int_equal(x.wire_ns, -1); /* no link */
        assert_true(has_note(&x, "nothing overlaps"));
        release(config, &x);
    }
}

static void test_one_rank(void **state)
{
    static const char *const options[][2] = {
            {"workload", "mnist-cnn"}, {"ranks", "1"}, {NULL, NULL}};
    struct dpb_explanation x;
    dpb_config *config;

    (void)state;
    explain(options, &config, &x);
    assert_int_equal(x.message_count, 0);
    assert_int_equal(x.wire_bytes, 0);
    assert_true(has_note(&x, "one rank exchanges nothing"));
    assert_memory_equal(&x.memory, &x.alone, sizeof(x.memory));
    release(config, &x);
}

static bool same(const char *bucket, const char *other, const char *other_overlap)
{
    const char *const options[][2] = {
            {"workload", "mnist-cnn"}, {"ranks", "2"}, {"bucket", bucket}, {NULL, NULL}};
    const char *const other_options[][2] = {{"workload", "mnist-cnn"},
                                            {"ranks", "2"},
                                            {"bucket", other},
                                            {"overlap", other_overlap},
                                            {NULL, NULL}};
    struct dpb_explanation a, b;
    dpb_config *config, *other_config;

    explain(options, &config, &a);
    explain(other_options, &other_config, &b);
    bool is_same = dpb_explanation_is_same(&a, &b);
    release(config, &a);
    release(other_config, &b);
    return is_same;
}

static void test_same(void **state)
{
    (void)state;
    assert_true(same("256KiB", "4MiB", "on")); /* the same two buckets */
    assert_false(same("256KiB", "4KiB", "on"));
    assert_false(same("256KiB", "256KiB", "off"));
}

static void test_json(void **state)
{
    static const char *const options[][2] = {
            {"workload", "mnist-cnn"}, {"ranks", "2"}, {"bucket", "4KiB"}, {NULL, NULL}};
    struct dpb_explanation x;
    dpb_config *config;

    (void)state;
    explain(options, &config, &x);
    dpb_json *json = dpb_explanation_json(&x);
    assert_true(dpb_json_ok(json));
    const dpb_json *units = dpb_json_path(json, "steady_plan/units");
    size_t members = 0;
    for (size_t u = 0; u < dpb_json_size(units); u++)
        members += dpb_json_size(dpb_json_get(dpb_json_at(units, u), "members"));
    assert_int_equal(members, x.model->param_count);
    assert_int_equal(dpb_json_size(dpb_json_get(json, "messages")), x.message_count);
    assert_non_null(dpb_json_get(json, "wire_ns_per_step_reason"));
    dpb_json_free(json);
    release(config, &x);
}

/* What a micro-batch sends goes as often as there are some, what follows the optimizer once. */
static int two_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    (void)strategy;
    for (int i = 0; messages && i < 2; i++)
        messages[i] = (struct dpb_sync_message){
                .kind = i ? DPB_COLL_ALL_GATHER : DPB_COLL_REDUCE_SCATTER,
                .dtype = DPB_F32,
                .count = 1000,
                .when = i ? DPB_SYNC_AFTER_OPTIMIZER : DPB_SYNC_AFTER_BACKWARD};
    return 2;
}

static void test_micro_batches_that_are_reduced(void **state)
{
    struct dpb_strategy_ops strategy = dpb_strategy_none_ops;
    const struct dpb_strategy_ops *const strategies[] = {&strategy};
    struct dpb_registry registry = *registry_for_tests();
    static const struct dpb_assignment given[] = {{"workload", "mnist-mlp", "test"},
                                                  {"strategy", "none", "test"},
                                                  {"ranks", "2", "test"},
                                                  {"link", "2.5Gbps,100us", "test"},
                                                  {"accumulate", "4", "test"}};
    struct dpb_explanation x;
    dpb_config *config;

    (void)state;
    strategy.messages = two_messages;
    strategy.flags |= DPB_STRATEGY_SYNCS_MICRO_BATCHES;
    registry.strategies = strategies;
    registry.strategy_count = 1;
    assert_int_equal(dpb_config_new(registry.options, given, 5, false, &config), DPB_OK);
    assert_int_equal(dpb_experiment_resolve(config, &registry, 2, 4), DPB_OK);
    assert_int_equal(dpb_explain(&registry, config, &x), DPB_OK);
    assert_int_equal(x.message_count, 2);
    assert_int_equal(x.sent_count, 5);
    assert_int_equal(x.wire_bytes, 5 * 2000); /* (P - 1) / P B each */
    assert_int_equal(x.wire_ns, 4 * x.messages[0].wire_ns + x.messages[1].wire_ns);
    release(config, &x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_ddp),
            cmocka_unit_test(test_micro_batches_that_are_reduced),
            cmocka_unit_test(test_hidden_within),
            cmocka_unit_test(test_nothing_overlaps),
            cmocka_unit_test(test_one_rank),
            cmocka_unit_test(test_same),
            cmocka_unit_test(test_json),
    };

    return DPB_RUN_TESTS(tests);
}
