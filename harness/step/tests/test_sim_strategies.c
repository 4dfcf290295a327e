/* Every strategy, with the options that it has when nobody says anything, on virtual time. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_comm_sim.h"
#include "dpb_device_sim.h"
#include "dpb_sim_step.h"
#include "dpb_strategies.h"

/* ---- default options ---- */

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

/* ---- a network: 24 layers of 1 million parameters, each 1 ms forward ---- */

#define LAYERS 24
#define NUMEL  1000000

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
        layers[i] = (struct dpb_layer_info){
                .name = "layer", .kind = "linear", .fwd_macs_per_sample = 500000};
        params[i] = (struct dpb_param_info){
                .name = "weight", .rank = 1, .dim = {NUMEL}, .numel = NUMEL, .layer = i};
        ready_order[i] = LAYERS - 1 - i;
    }
    return 0;
}

/* 1 GFLOP/s; memory costs nothing. */
static const struct dpb_sim_rates rates = {
        .flop_per_s = {[DPB_F32] = 1e9, [DPB_F16] = 1e9, [DPB_BF16] = 1e9},
        .bytes_per_s = 1e30,
};

struct network {
    double bytes_per_s, latency_ns;
    int ranks;
};

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    const struct network *network = ctx;

    *alone_ns = network->latency_ns + 1e9 * dpb_coll_busbw_factor(kind, network->ranks) *
                                              (double)bytes / network->bytes_per_s;
    *compute_slowdown = *slowdown = 0;
    return DPB_OK;
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    (void)bytes;
    return ((const struct network *)ctx)->latency_ns;
}

#define STEPS 5

static struct dpb_sim_step_times run_noisy(const struct dpb_strategy_ops *strategy,
                                           struct network network, struct dpb_timeline_noise noise)
{
    dpb_config *config = defaults_of(strategy);
    struct dpb_schedule schedule;
    struct dpb_sim_step *sim = NULL;
    struct dpb_sim_step_times times = {0}, sum = {0};

    assert_int_equal(dpb_schedule_from_model(&model, &rates, DPB_F32, 1, &schedule), DPB_OK);
    const struct dpb_sim_step_config step = {
            .device_ops = &dpb_device_sim_ops,
            .comm_ops = &dpb_comm_sim_ops,
            .timeline = {.ranks = network.ranks, .seed = 1, .noise = noise},
            .rates = &rates,
            .network = {&network, price, exchange_ns},
            .schedule = &schedule,
            .strategy = strategy,
            .strategy_options = dpb_config_struct(config, "strategy"),
            .ranks_per_node = network.ranks < 8 ? network.ranks : 8,
            .is_gpu = true,
            .accumulate = 1,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.1},
            .fused_optimizer = true,
    };
    if (dpb_sim_step_open(&step, &sim) != DPB_OK)
        fail_msg("%s does not open", strategy->name);
    for (int s = 0; s < STEPS; s++) {
        if (dpb_sim_step_run(sim, &times) != DPB_OK)
            fail_msg("%s: step %d fails", strategy->name, s + 1);
        sum.step_ns += times.step_ns;
        sum.wire_bytes += times.wire_bytes;
        sum.collectives += times.collectives;
        sum.busy_ns += times.busy_ns;
    }
    dpb_sim_step_close(sim);
    dpb_schedule_release(&schedule);
    dpb_config_free(config);
    return sum;
}

static struct dpb_sim_step_times run(const struct dpb_strategy_ops *strategy,
                                     struct network network)
{
    return run_noisy(strategy, network, (struct dpb_timeline_noise){0});
}

static const struct dpb_strategy_ops *const strategies[] = {
        &dpb_strategy_none_ops,    &dpb_strategy_naive_ops,         &dpb_strategy_ddp_ops,
        &dpb_strategy_horovod_ops, &dpb_strategy_mirrored_ops,      &dpb_strategy_mwms_ops,
        &dpb_strategy_zero1_ops,   &dpb_strategy_local_sgd_ops,     &dpb_strategy_zero2_ops,
        &dpb_strategy_fsdp_ops,    &dpb_strategy_horovod_legacy_ops};

#define FOR_EACH(strategy)                                                                         \
    for (size_t i_ = 0; i_ < sizeof(strategies) / sizeof(strategies[0]); i_++)                     \
        for (const struct dpb_strategy_ops *strategy = strategies[i_]; strategy; strategy = NULL)

static bool shards_updates(const struct dpb_strategy_ops *strategy)
{
    return strncmp(strategy->name, "zero", 4) == 0 || strcmp(strategy->name, "fsdp") == 0;
}

/* ---- what must hold ---- */

static void test_free_network_scales_perfectly(void **state)
{
    const struct network alone = {1e30, 0, 1}, many = {1e30, 0, 64};

    (void)state;
    FOR_EACH(strategy)
    {
        const double one_ns = run(strategy, alone).step_ns, all_ns = run(strategy, many).step_ns;
        /* A coordinator that wakes every millisecond delays the end of a step by up to one. */
        const double late_ns = strategy->tick ? STEPS * 5.1e6 : 1;
        if (!(all_ns <= one_ns + late_ns))
            fail_msg("%s: %.0f ns with 64 ranks, %.0f with one", strategy->name, all_ns, one_ns);
        if (!shards_updates(strategy) && !(all_ns >= one_ns - 1))
            fail_msg("%s: %.0f ns with 64 ranks, less than %.0f", strategy->name, all_ns, one_ns);
    }
}

static void test_one_rank_sends_nothing(void **state)
{
    (void)state;
    FOR_EACH(strategy)
    {
        const struct dpb_sim_step_times times = run(strategy, (struct network){1e9, 1000, 1});
        if (times.wire_bytes != 0)
            fail_msg("%s: one rank sends %lld bytes", strategy->name, (long long)times.wire_bytes);
    }
}

static void test_slower_networks_are_not_faster(void **state)
{
    (void)state;
    FOR_EACH(strategy)
    {
        double before_ns = 0;
        for (double rate = 1e12; rate > 1e7; rate /= 10) {
            const double step_ns = run(strategy, (struct network){rate, 1000, 16}).step_ns;
            /* Fusion by what is there when a cycle comes may differ by a cycle. */
            const double slack_ns = strategy->tick ? STEPS * 5.1e6 : 1;
            if (!(step_ns >= before_ns - slack_ns))
                fail_msg("%s: %.0f ns at %.0e B/s, %.0f at ten times that", strategy->name, step_ns,
                         rate, before_ns);
            before_ns = step_ns;
        }
    }
}

static void test_latency_counts(void **state)
{
    (void)state;
    FOR_EACH(strategy)
    {
        const double less_ns = run(strategy, (struct network){1e10, 1000, 16}).step_ns;
        const double more_ns = run(strategy, (struct network){1e10, 50e6, 16}).step_ns;
        if (strcmp(strategy->name, "local-sgd") != 0 && !(more_ns > less_ns))
            fail_msg("%s: latency changes nothing", strategy->name);
    }
}

static void test_all_reduces_send_the_lower_bound(void **state)
{
    const int64_t bytes = (int64_t)LAYERS * NUMEL * 4;

    (void)state;
    FOR_EACH(strategy)
    {
        const struct dpb_sim_step_times times = run(strategy, (struct network){1e10, 1000, 16});
        const int64_t bound = 2 * 15 * bytes / 16 * STEPS;
        if (strcmp(strategy->name, "local-sgd") == 0)
            continue;
        if (!(times.wire_bytes >= bound - 1000 * STEPS &&
              (double)times.wire_bytes <= 1.51 * (double)bound + 1e6))
            fail_msg("%s: sends %lld bytes, the least is %lld", strategy->name,
                     (long long)times.wire_bytes, (long long)bound);
    }
}

static void test_overlap_hides_and_no_overlap_does_not(void **state)
{
    /* 96 MB take 18 ms; the backward pass 47. */
    const struct network network = {1e10, 1000, 16};
    const double compute_ns = run(&dpb_strategy_ddp_ops, (struct network){1e30, 0, 16}).step_ns;

    (void)state;
    const double ddp_ns = run(&dpb_strategy_ddp_ops, network).step_ns - compute_ns;
    const double naive_ns = run(&dpb_strategy_naive_ops, network).step_ns - compute_ns;
    assert_true(ddp_ns < 0.5 * naive_ns);
    assert_true(fabs(naive_ns / (STEPS * 18e6) - 1) < 0.01);
}

static void test_noise_costs_and_is_the_same_every_time(void **state)
{
    const struct network network = {1e10, 1000, 64};
    const struct dpb_timeline_noise noise = {.rank_sd = 0.02};

    (void)state;
    FOR_EACH(strategy)
    {
        const double still_ns = run(strategy, network).step_ns;
        const double noisy_ns = run_noisy(strategy, network, noise).step_ns;
        if (!(noisy_ns > still_ns))
            fail_msg("%s: noise costs nothing", strategy->name);
        assert_true(noisy_ns == run_noisy(strategy, network, noise).step_ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_free_network_scales_perfectly),
            cmocka_unit_test(test_one_rank_sends_nothing),
            cmocka_unit_test(test_slower_networks_are_not_faster),
            cmocka_unit_test(test_latency_counts),
            cmocka_unit_test(test_all_reduces_send_the_lower_bound),
            cmocka_unit_test(test_overlap_hides_and_no_overlap_does_not),
            cmocka_unit_test(test_noise_costs_and_is_the_same_every_time),
    };
    return cmocka_run_group_tests(tests, make_model, NULL);
}
