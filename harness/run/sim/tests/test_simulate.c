/* What simulations must obey, whatever the machine. */
#include "dpb_test.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_cell_record.h"
#include "dpb_log.h"
#include "dpb_machine.h"
#include "dpb_simulate.h"
#include "sim_registry.h"

#define RESNET "workload=resnet50 batch-per-rank=32 steps=4 warmup=3 trace-steps=0 "
#define QUIET  "noise-rank=0 noise-common=0 tail-share=0 "

static char logged[8192];

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    const size_t length = strlen(logged);

    (void)ctx;
    (void)level;
    snprintf(logged + length, sizeof(logged) - length, "%s\n", line);
}

/* The sections of a cell; they are the caller's. */
static dpb_json *simulate(const char *settings)
{
    dpb_status st;
    dpb_config *config = sim_cell_of(settings, &st);
    dpb_json *sections = NULL;

    if (!config)
        fail_msg("%s is refused", settings);
    const struct dpb_simulation simulation = {.registry = sim_registry(),
                                              .config = config,
                                              .folder = ".",
                                              .trace_file = "none",
                                              .title = "test"};
    if (dpb_simulator_here.run(&simulation, &sections) != DPB_OK)
        fail_msg("%s fails", settings);
    dpb_config_free(config);
    return sections;
}

static double step_ns(const char *settings)
{
    dpb_json *sections = simulate(settings);
    const double ns = dpb_cell_sections_median_ns(sections);

    dpb_json_free(sections);
    assert_true(ns > 0);
    return ns;
}

/* "...set=KEY=VALUE": the step with a figure replaced. */
static double step_with(const char *settings, const char *set)
{
    char text[1024];

    snprintf(text, sizeof(text), "%s set=%s", settings, set);
    return step_ns(text);
}

/* What ddp copies into its buckets and out of them is no network's: one all-reduce of everything
 * shows the network alone. */
static void test_an_ideal_network_is_full_efficiency(void **state)
{
    static const char ideal[] = "inside.rate=10TB/s,inside.latency=0s,inside.floor=0s,"
                                "contention.inside=0,inside.nvls-from-ranks=1000";
    char eight[512];

    (void)state;
    snprintf(eight, sizeof(eight), RESNET QUIET "strategy=none machine=dgx-h100 ranks=8 set=%s",
             ideal);
    const double one_ns = step_ns(RESNET QUIET "strategy=none machine=dgx-h100 ranks=1");
    const double ratio = one_ns / step_ns(eight);

    if (!(ratio > 0.998 && ratio <= 1))
        fail_msg("efficiency %g", ratio);
}

static void assert_falls(const char *settings, const char *const sets[3])
{
    const double a = step_with(settings, sets[0]), b = step_with(settings, sets[1]),
                 c = step_with(settings, sets[2]);

    if (!(a >= b && b >= c && a > c))
        fail_msg("%s %s %s: %g %g %g", sets[0], sets[1], sets[2], a, b, c);
}

static void test_steps_get_shorter_with_better_figures(void **state)
{
    static const char two_nodes[] = RESNET QUIET "machine=dgx-h100 ranks=16";
    static const char one_node[] = RESNET QUIET "machine=dgx-a100 ranks=8";

    (void)state;
    assert_falls(two_nodes, (const char *[]){"between.rate=25Gbps", "between.rate=100Gbps",
                                             "between.rate=800Gbps"});
    assert_falls(two_nodes, (const char *[]){"between.latency=1ms", "between.latency=100us",
                                             "between.latency=1us"});
    assert_falls(one_node,
                 (const char *[]){"memory-rate=500GB/s", "memory-rate=1TB/s", "memory-rate=4TB/s"});
    assert_falls(one_node, (const char *[]){"compute.fp32=5TFLOPS", "compute.fp32=20TFLOPS",
                                            "compute.fp32=50TFLOPS"});
    assert_falls(one_node, (const char *[]){"contention.inside=1", "contention.inside=0.5",
                                            "contention.inside=0"});
}

static void test_stragglers_cost_time(void **state)
{
    (void)state;
    const double quiet = step_ns(RESNET QUIET "machine=dgx-h100 ranks=64");

    assert_true(step_ns(RESNET "noise-rank=5% machine=dgx-h100 ranks=64") > 1.03 * quiet);
    assert_true(step_ns(RESNET "noise-rank=0 slow-ranks=1 slow-by=20% machine=dgx-h100 ranks=64") >
                1.15 * quiet);
    /* repeats differ by noise, the same seed does not */
    assert_true(step_ns(RESNET "seed=1 machine=dgx-h100 ranks=64") ==
                step_ns(RESNET "seed=1 machine=dgx-h100 ranks=64"));
    assert_true(step_ns(RESNET "seed=1 machine=dgx-h100 ranks=64") !=
                step_ns(RESNET "seed=2 machine=dgx-h100 ranks=64"));
}

/* ---- every figure of a machine ---- */

/* All that a figure can change, as a text; and whether the figure is reported as without effect. */
static char *outcome(const char *settings, const char *key, bool *is_unused)
{
    dpb_json *sections = simulate(settings);
    const dpb_json *unused = dpb_json_path(sections, "simulation/figures_without_effect");
    struct dpb_str text = {0};
    dpb_status st;
    dpb_config *config = sim_cell_of(settings, &st);
    int64_t memory;

    *is_unused = false;
    for (size_t i = 0; i < dpb_json_size(unused); i++)
        *is_unused |= strcmp(dpb_json_as_string(dpb_json_at(unused, i), ""), key) == 0;
    assert_int_equal(dpb_simulator_here.memory_bytes(config, &memory), DPB_OK);
    dpb_json_set_int(sections, "memory", memory);
    dpb_json_set(sections, "simulation", dpb_json_null());
    dpb_json_set(sections, "warnings", dpb_json_null());
    assert_int_equal(dpb_json_write(sections, false, &text), DPB_OK);
    dpb_json_free(sections);
    dpb_config_free(config);
    return text.text;
}

static double changed(enum dpb_figure_id id, double value, bool up)
{
    if (id == DPB_FIGURE_NICS || id == DPB_FIGURE_NVLS_RANKS)
        return up ? 2 * value : fmax(id == DPB_FIGURE_NVLS_RANKS ? 2 : 1, floor(value / 2));
    if (up && (id == DPB_FIGURE_COMPUTE_SHARE || id == DPB_FIGURE_MEMORY_SHARE ||
               id == DPB_FIGURE_NIC_SHARE))
        return fmin(1, 1.25 * value);
    return up ? 1.25 * value : 0.75 * value;
}

static void check_figure(const char *settings, const struct dpb_machine *machine,
                         enum dpb_figure_id id)
{
    const char *key = dpb_figure_key(id);
    bool is_unused, ignored, moves = false;
    char *own = outcome(settings, key, &is_unused);

    for (int up = 0; up < 2; up++) {
        struct dpb_str text = {0};
        char *other;

        dpb_str_appendf(&text, "%s set=%s=", settings, key);
        dpb_figure_text(id, changed(id, machine->figure[id].value, up), &text);
        other = outcome(text.text, key, &ignored);
        moves |= strcmp(own, other) != 0;
        free(other);
        dpb_str_release(&text);
    }
    if (moves == is_unused)
        fail_msg("%s: %s %s the result, and is reported as %s", settings, key,
                 moves ? "changes" : "does not change", is_unused ? "without effect" : "used");
    free(own);
}

static void check_machine(const char *name, const char *settings)
{
    struct dpb_machine machine;
    char text[1024];
    int checked = 0;

    assert_int_equal(dpb_machine_find(name, &machine), DPB_OK);
    snprintf(text, sizeof(text), RESNET "machine=%s %s", name, settings);
    for (int id = 0; id < DPB_FIGURE_COUNT; id++) {
        if (!dpb_machine_has(&machine, (enum dpb_figure_id)id) || !(machine.figure[id].value > 0))
            continue;
        check_figure(text, &machine, (enum dpb_figure_id)id);
        checked++;
    }
    assert_true(checked > 15);
    dpb_machine_release(&machine);
}

static void test_every_figure_moves_the_result_or_is_reported(void **state)
{
    (void)state;
    check_machine("dgx-h100", "ranks=8");
    check_machine("dgx-h100", "ranks=16 precision=bf16");
    check_machine("dgx-h100", "ranks=1 tf32=on");
    check_machine("dgx-a100", "ranks=16 strategy=horovod");
}

/* ---- mistakes ---- */

static void test_mistakes_are_refused(void **state)
{
    static const char *const rows[][2] = {
            {"ranks=8", "device \"sim\" needs --machine"},
            {"ranks=8 machine=dgx-h10", "did you mean dgx-h100?"},
            {"ranks=12 machine=dgx-h100", "do not fill nodes of machine \"dgx-h100\""},
            {"ranks=16 ranks-per-node=16 machine=dgx-h100", "has 8 accelerators"},
            {"ranks=8 machine=dgx-h100 set=inside.rat=3GB/s", "did you mean \"inside.rate\"?"},
            {"ranks=8 machine=dgx-h100 set=inside.rate", "is not figure=value"},
            {"ranks=8 machine=dgx-h100 set=inside.rate=3", "inside.rate: \"3\""},
            {"ranks=8 machine=dgx-h100 slow-ranks=9 slow-by=10%", "is more than the 8 ranks"},
            {"ranks=8 machine=dgx-h100 slow-ranks=1", "--slow-ranks cannot take effect"},
            {"ranks=8 machine=dgx-h100 slow-by=10%", "--slow-by cannot take effect"},
            {"ranks=8 machine=dgx-h100 workload=resnet50 precision=bf16 tf32=on",
             "--tf32 on cannot take effect"},
            {"ranks=8 machine=dgx-h100 epochs=1 steps=auto", "--epochs cannot be simulated"},
            {"ranks=8 machine=dgx-h100 workload=resnet50 sync-bn=on", "cannot be simulated"},
            {"ranks=0 machine=dgx-h100", "out of range: at least 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        dpb_status st;

        logged[0] = '\0';
        dpb_log_set_sink(keep, NULL);
        dpb_config *config = sim_cell_of(rows[i][0], &st);
        dpb_log_set_sink(NULL, NULL);
        if (config || st != DPB_ERR_USAGE || !strstr(logged, rows[i][1]))
            fail_msg("%s: status %d, %s", rows[i][0], st, logged);
    }
}

static void test_whole_nodes_of_fewer_ranks(void **state)
{
    dpb_status st;
    dpb_config *config = sim_cell_of("ranks=12 ranks-per-node=4 machine=dgx-h100", &st);

    (void)state;
    assert_non_null(config);
    dpb_config_free(config);
    config = sim_cell_of("ranks=32 machine=dgx-h100", &st);
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    assert_int_equal(e->ranks_per_node, 8);
    assert_int_equal(e->threads_per_rank, 1);
    dpb_config_free(config);
}

static void test_memory_is_that_of_an_accelerator(void **state)
{
    dpb_status st;
    dpb_config *config =
            sim_cell_of("ranks=4096 workload=resnet50 batch-per-rank=64 machine=dgx-h100", &st);
    struct dpb_memory one, many;
    struct dpb_memory_limits limits;

    (void)state;
    assert_int_equal(dpb_memory_limits_of(sim_registry(), config, 4096, &limits), DPB_OK);
    assert_int_equal(limits.host_bytes, INT64_C(80000000000));
    assert_int_equal(limits.device.free_bytes, INT64_MAX);
    dpb_memory_predict(sim_registry(), config, &many);
    dpb_config_free(config);
    config = sim_cell_of("ranks=2 workload=resnet50 batch-per-rank=64 machine=dgx-h100", &st);
    dpb_memory_predict(sim_registry(), config, &one);
    assert_int_equal(one.total_bytes, many.total_bytes);
    assert_int_equal(one.ranks, 1);
    assert_true(one.total_bytes > 6000000000 && one.total_bytes < 9000000000);
    dpb_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_an_ideal_network_is_full_efficiency),
            cmocka_unit_test(test_steps_get_shorter_with_better_figures),
            cmocka_unit_test(test_stragglers_cost_time),
            cmocka_unit_test(test_every_figure_moves_the_result_or_is_reported),
            cmocka_unit_test(test_mistakes_are_refused),
            cmocka_unit_test(test_whole_nodes_of_fewer_ranks),
            cmocka_unit_test(test_memory_is_that_of_an_accelerator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
