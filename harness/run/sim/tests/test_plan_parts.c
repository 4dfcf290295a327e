/* Texts of a plan's question, and the memory that it counts with. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_step.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"
#include "plan_options.h"
#include "plan_run.h"

#define NOW 1796083200 /* 2026-12-01 00:00 UTC */
#define DAY 86400.0

/* ---- texts ---- */

static void assert_deadline(const char *text, double seconds)
{
    double found = 0;

    if (plan_deadline_parse(text, NOW, &found) != DPB_OK || !(fabs(found - seconds) < 1e-6))
        fail_msg("%s: %g s, not %g", text, found, seconds);
}

static void assert_no_deadline(const char *text)
{
    double found;

    if (plan_deadline_parse(text, NOW, &found) != DPB_ERR_USAGE)
        fail_msg("%s is taken for a deadline", text);
}

static void test_deadlines(void **state)
{
    (void)state;
    assert_deadline("3d", 3 * DAY);
    assert_deadline("1.5d", 1.5 * DAY);
    assert_deadline("2w", 14 * DAY);
    assert_deadline("36h", 1.5 * DAY);
    assert_deadline("90min", 5400);
    assert_deadline("2026-12-02", DAY);
    assert_deadline("2027-03-01", 90 * DAY);  /* 31 + 31 + 28 */
    assert_deadline("2028-03-01", 456 * DAY); /* and a leap year: 365 + 31 + 31 + 29 */
    assert_no_deadline("2026-12-01");         /* has begun */
    assert_no_deadline("2026-11-30");
    assert_no_deadline("0d");
    assert_no_deadline("-3d");
    assert_no_deadline("2027-02-29");
    assert_no_deadline("2027-13-01");
    assert_no_deadline("2027-1-1");
    assert_no_deadline("3");
    assert_no_deadline("d");
    assert_no_deadline("tomorrow");
    assert_no_deadline("");
}

static void test_money(void **state)
{
    double amount, per_hour;
    const char *date;

    (void)state;
    assert_int_equal(plan_budget_parse("5000USD", &amount), DPB_OK);
    assert_true(amount == 5000);
    assert_int_equal(plan_budget_parse("12.50 USD", &amount), DPB_OK);
    assert_true(amount == 12.5);
    assert_int_equal(plan_budget_parse("5000", &amount), DPB_ERR_USAGE);
    assert_int_equal(plan_budget_parse("-1USD", &amount), DPB_ERR_USAGE);
    assert_int_equal(plan_budget_parse("0USD", &amount), DPB_ERR_USAGE);
    assert_int_equal(plan_budget_parse("5000EUR", &amount), DPB_ERR_USAGE);
    assert_int_equal(plan_budget_parse("USD", &amount), DPB_ERR_USAGE);
    assert_int_equal(plan_price_parse("2.95USD/h@2026-11-30", &per_hour, &date), DPB_OK);
    assert_true(per_hour == 2.95);
    assert_string_equal(date, "2026-11-30");
    assert_int_equal(plan_price_parse("2.95USD/h", &per_hour, &date), DPB_OK);
    assert_null(date);
    assert_int_equal(plan_price_parse("2.95USD/h@", &per_hour, &date), DPB_ERR_USAGE);
    assert_int_equal(plan_price_parse("2.95USD/h@yesterday", &per_hour, &date), DPB_ERR_USAGE);
    assert_int_equal(plan_price_parse("2.95USD", &per_hour, &date), DPB_ERR_USAGE);
    assert_int_equal(plan_price_parse("-2USD/h", &per_hour, &date), DPB_ERR_USAGE);
    assert_int_equal(plan_price_parse("2.95", &per_hour, &date), DPB_ERR_USAGE);
}

static void test_texts_for_one_machine(void **state)
{
    const char *value;

    (void)state;
    assert_true(plan_is_for("2500", "dgx-a100", &value));
    assert_string_equal(value, "2500");
    assert_true(plan_is_for("dgx-a100=2500", "dgx-a100", &value));
    assert_string_equal(value, "2500");
    assert_false(plan_is_for("dgx-a100=2500", "dgx-a1000", &value));
    assert_false(plan_is_for("dgx-a100=2500", "dgx-a10", &value));
}

/* ---- memory ---- */

struct core {
    char strategy[DPB_OPTION_TEXT_BYTES];
};

/* A config keeps to its set: one at a time. */
static dpb_config *defaults_of(const struct dpb_strategy_ops *strategy)
{
    static struct dpb_option row;
    static struct dpb_option_table core;
    static const struct dpb_option_table *tables[2];
    static struct dpb_part_name part;
    static struct dpb_option_set set;
    dpb_config *config = NULL;

    row = (struct dpb_option){.name = "strategy",
                              .type = DPB_OPT_PART,
                              .offset = offsetof(struct core, strategy),
                              .default_text = strategy->name,
                              .category = "Test",
                              .help = "which"};
    core = (struct dpb_option_table){"experiment", "", &row, 1, sizeof(struct core)};
    tables[0] = &core;
    tables[1] = strategy->options;
    part = (struct dpb_part_name){"strategy", strategy->name, "", NULL};
    set = (struct dpb_option_set){tables, strategy->options ? 2 : 1, &part, 1};
    assert_int_equal(dpb_config_new(&set, NULL, 0, false, &config), DPB_OK);
    return config;
}

/* 16 layers of 4 MiB parameters each. */
#define LAYERS 16
#define NUMEL  (1 << 20)

static struct dpb_layer_info layers[LAYERS];
static struct dpb_param_info params[LAYERS];
static int ready_order[LAYERS];
static const struct dpb_model model = {
        .params = params,
        .param_count = LAYERS,
        .layers = layers,
        .layer_count = LAYERS,
        .ready_order = ready_order,
};

static int make_model(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (struct dpb_layer_info){.name = "layer", .kind = "linear"};
        params[i] = (struct dpb_param_info){
                .name = "weight", .rank = 1, .dim = {NUMEL}, .numel = NUMEL, .layer = i};
        ready_order[i] = LAYERS - 1 - i;
    }
    return 0;
}

static const struct dpb_optimizer_config adam = {
        .kind = DPB_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

/* What the step engine takes. */
static struct dpb_step_memory predicted(const struct dpb_strategy_ops *strategy, int ranks)
{
    dpb_config *config = defaults_of(strategy);
    const struct dpb_step_shape shape = {
            .model = &model,
            .optimizer = &adam,
            .strategy = strategy,
            .strategy_options = dpb_config_struct(config, "strategy"),
            .ranks = ranks,
            .ranks_per_node = ranks < 8 ? ranks : 8,
            .is_gpu = true,
            .accumulate = 1,
    };
    struct dpb_step_memory memory;

    assert_int_equal(dpb_step_memory_predict(&shape, 0, &memory), DPB_OK);
    dpb_config_free(config);
    return memory;
}

/* Bytes per parameter of one rank in fp32 with Adam: whole + divided / ranks (Megatron-LM docs,
 * user-guide/features/dist_optimizer.md; Rajbhandari et al. 2020, arXiv:1910.02054). */
struct published {
    const char *name;
    double whole, divided;
};
static const struct published replicated = {"adam", 16, 0};
static const struct published divided_optimizer = {"adam, optimizer divided", 8, 8};
static const struct published divided_all = {"ZeRO stage 3", 0, 16};

/* Alignment of units and of parts: less than a page for each parameter and array. */
static void assert_published(int64_t bytes, const struct published *as, int ranks)
{
    const double formula = (as->whole + as->divided / ranks) * LAYERS * NUMEL;

    if (!(fabs((double)bytes - formula) <= 4.0 * LAYERS * 4096))
        fail_msg("%s, %d ranks: %.0f bytes, the formula has %.0f", as->name, ranks, (double)bytes,
                 formula);
}

static void test_formulas_are_what_strategies_take(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 64; ranks *= 2) {
        const struct dpb_step_memory naive = predicted(&dpb_strategy_naive_ops, ranks);
        const struct dpb_step_memory ddp = predicted(&dpb_strategy_ddp_ops, ranks);
        const struct dpb_step_memory zero1 = predicted(&dpb_strategy_zero1_ops, ranks);
        const struct dpb_step_memory fsdp = predicted(&dpb_strategy_fsdp_ops, ranks);

        assert_published(naive.parameters + naive.gradients + naive.optimizer, &replicated, ranks);
        /* and gradients outside of their buckets, unless they are views of them */
        assert_published(ddp.parameters + ddp.gradients + ddp.optimizer, &replicated, ranks);
        assert_published(ddp.strategy + 3 * ddp.parameters, &replicated, ranks);
        /* its parameters are in memory for collectives */
        assert_published(zero1.communication + zero1.gradients + zero1.optimizer,
                         &divided_optimizer, ranks);
        /* parameters and gradients in parts, beside the buffers of units in use */
        assert_published(fsdp.parameters + fsdp.strategy + fsdp.optimizer, &divided_all, ranks);
    }
}

/* Of fewer steps than 100 there is no 99th percentile. */
static void test_steps_of_a_percentile(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 65536; ranks *= 2) {
        const int64_t steps = plan_noisy_steps(ranks);

        assert_true(steps >= 100 && steps <= PLAN_STEPS_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_deadlines),
            cmocka_unit_test(test_money),
            cmocka_unit_test(test_texts_for_one_machine),
            cmocka_unit_test(test_formulas_are_what_strategies_take),
            cmocka_unit_test(test_steps_of_a_percentile),
    };
    return cmocka_run_group_tests(tests, make_model, NULL);
}
