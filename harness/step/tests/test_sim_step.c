#include "dpb_test.h"

#include <math.h>

#include "dpb_comm_sim.h"
#include "dpb_device_sim.h"
#include "dpb_sim_step.h"
#include "dpb_strategies.h"

/* ---- a network of four layers: 10 ns each forward, 20 backward, but for the first: 10 ---- */

#define LAYERS 4

static const struct dpb_layer_info layers[LAYERS] = {
        {.name = "a", .kind = "linear", .fwd_macs_per_sample = 5},
        {.name = "b", .kind = "linear", .fwd_macs_per_sample = 5},
        {.name = "c", .kind = "linear", .fwd_macs_per_sample = 5},
        {.name = "d", .kind = "linear", .fwd_macs_per_sample = 5},
};
static const struct dpb_param_info params[LAYERS] = {
        {.name = "a.weight", .rank = 1, .dim = {1000}, .numel = 1000, .layer = 0},
        {.name = "b.weight", .rank = 1, .dim = {1000}, .numel = 1000, .layer = 1},
        {.name = "c.weight", .rank = 1, .dim = {1000}, .numel = 1000, .layer = 2},
        {.name = "d.weight", .rank = 1, .dim = {1000}, .numel = 1000, .layer = 3},
};
static const int ready_order[LAYERS] = {3, 2, 1, 0};
static const struct dpb_model model = {
        .params = params,
        .param_count = LAYERS,
        .layers = layers,
        .layer_count = LAYERS,
        .ready_order = ready_order,
};

/* A flop takes 1 ns, memory and launches nothing. */
static const struct dpb_sim_rates rates = {
        .flop_per_s = {[DPB_F32] = 1e9},
        .bytes_per_s = 1e30,
};

/* 8 ns per 4000 bytes. */
static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    (void)kind;
    *alone_ns = 8.0 * (double)bytes / 4000 * *(double *)ctx;
    *compute_slowdown = *slowdown = 0;
    return DPB_OK;
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    (void)ctx;
    (void)bytes;
    return 0.5;
}

static struct dpb_sim_step_times run(const struct dpb_strategy_ops *strategy, const void *options,
                                     struct dpb_timeline_config timeline, double network)
{
    struct dpb_schedule schedule;
    struct dpb_sim_step *sim = NULL;
    struct dpb_sim_step_times times = {0};

    assert_int_equal(dpb_schedule_from_model(&model, &rates, DPB_F32, 1, &schedule), DPB_OK);
    const struct dpb_sim_step_config config = {
            .device_ops = &dpb_device_sim_ops,
            .comm_ops = &dpb_comm_sim_ops,
            .timeline = timeline,
            .rates = &rates,
            .network = {&network, price, exchange_ns},
            .schedule = &schedule,
            .strategy = strategy,
            .strategy_options = options,
            .bucket_given = true,
            .ranks_per_node = timeline.ranks,
            .is_gpu = true,
            .accumulate = 1,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.1},
            .fused_optimizer = true,
    };
    assert_int_equal(dpb_sim_step_open(&config, &sim), DPB_OK);
    for (int s = 0; s < 3; s++)
        assert_int_equal(dpb_sim_step_run(sim, &times), DPB_OK);
    dpb_sim_step_close(sim);
    dpb_schedule_release(&schedule);
    return times;
}

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fmax(1, fabs(expected))))
        fail_msg("%.12g, not %.12g", found, expected);
}

/* Forward 40, backward 70, and the optimizer's flops. */
#define OPTIMIZER_NS (6.0 * LAYERS * 1000)
#define COMPUTE_NS   (110 + OPTIMIZER_NS)

/* One bucket per parameter. */
static const struct dpb_ddp_options per_param = {
        .bucket_bytes = 1, .first_bucket_bytes = 1, .overlap = true};

static void test_one_rank_only_computes(void **state)
{
    (void)state;
    const struct dpb_sim_step_times times =
            run(&dpb_strategy_ddp_ops, &per_param, (struct dpb_timeline_config){.ranks = 1}, 1);
    assert_near(times.step_ns, COMPUTE_NS);
    assert_near(times.forward_ns, 40);
    assert_near(times.backward_ns, 70);
    assert_near(times.sync_ns, 0);
}

static void test_ddp_exposes_the_last_bucket(void **state)
{
    (void)state;
    const struct dpb_sim_step_times times =
            run(&dpb_strategy_ddp_ops, &per_param, (struct dpb_timeline_config){.ranks = 8}, 1);
    assert_near(times.sync_ns, 8);
    assert_near(times.step_ns, COMPUTE_NS + 8);
    assert_int_equal(times.collectives, LAYERS);
    assert_int_equal(times.wire_bytes, 2 * 7 * 4000 * LAYERS / 8);
}

static void test_naive_exposes_all(void **state)
{
    (void)state;
    const struct dpb_sim_step_times times =
            run(&dpb_strategy_naive_ops, NULL, (struct dpb_timeline_config){.ranks = 8}, 1);
    assert_near(times.sync_ns, 8 * LAYERS);
}

static void test_network_bound(void **state)
{
    (void)state;
    /* Ready after 20, 40, 60 and 70 ns of the backward pass; each takes 40: 20 + 160 in all. */
    const struct dpb_sim_step_times times =
            run(&dpb_strategy_ddp_ops, &per_param, (struct dpb_timeline_config){.ranks = 8}, 5);
    assert_near(times.sync_ns, 180 - 70);
}

static void test_slow_rank_slows_all(void **state)
{
    const struct dpb_timeline_config slow = {.ranks = 8,
                                             .noise = {.slow_ranks = 1, .slow_by = 0.5}};

    (void)state;
    const struct dpb_sim_step_times times = run(&dpb_strategy_ddp_ops, &per_param, slow, 1);
    assert_near(times.step_ns, 110 * 1.5 + 8 + OPTIMIZER_NS * 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_rank_only_computes),
            cmocka_unit_test(test_ddp_exposes_the_last_bucket),
            cmocka_unit_test(test_naive_exposes_all),
            cmocka_unit_test(test_network_bound),
            cmocka_unit_test(test_slow_rank_slows_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
