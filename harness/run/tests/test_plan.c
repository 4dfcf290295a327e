#include "dpb_test.h"

#include <math.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_plan.h"
#include "dpb_step.h"
#include "dpb_workloads.h"
#include "registry_for_tests.h"

static const struct dpb_registry *registry_under_test; /* NULL: registry_for_tests() */
static char errors[8192];                              /* what was logged since the last build */

static void collect(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    size_t length = strlen(errors);
    snprintf(errors + length, sizeof(errors) - length, "%s\n", line);
}

/* Build a plan from flags such as "ranks=1,2 bucket=1MiB" and a sweep file's text (or NULL). */
static dpb_status build_with(const char *flags, const char *yaml, bool sweep, int cores,
                             struct dpb_plan *plan)
{
    const struct dpb_registry *registry =
            registry_under_test ? registry_under_test : registry_for_tests();
    struct dpb_settings settings = {0};
    struct dpb_sweep_file file = {0};
    char copy[1024], origin[64];
    errors[0] = '\0';
    dpb_log_set_sink(collect, NULL);
    snprintf(copy, sizeof(copy), "%s", flags);
    char *rest = NULL;
    for (char *flag = strtok_r(copy, " ", &rest); flag; flag = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(flag, '=');
        *value++ = '\0';
        snprintf(origin, sizeof(origin), "--%s", flag);
        assert_int_equal(dpb_settings_add(&settings, registry->options, flag, value, origin),
                         DPB_OK);
    }
    if (yaml)
        assert_int_equal(
                dpb_sweep_file_parse(yaml, strlen(yaml), "t.yaml", registry->options, &file),
                DPB_OK);
    struct dpb_plan_input input = {registry, yaml ? &file : NULL, &settings, sweep, cores, "t"};
    dpb_status st = dpb_plan_build(&input, plan);
    dpb_log_set_sink(NULL, NULL);
    dpb_settings_release(&settings);
    if (yaml)
        dpb_sweep_file_release(&file);
    return st;
}

static const struct dpb_experiment *cell(const struct dpb_plan *plan, size_t i)
{
    return dpb_config_struct(plan->cells[i].config, "experiment");
}

/* `auto` is the data that belong to the network; what does not fit it is refused. */
static void test_data_fits_the_workload(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=1", NULL, false, 2, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 0)->data, DPB_DATA_FASHION_MNIST);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1 data=auto data-dir=/x", NULL, false, 2, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 0)->data, DPB_DATA_FASHION_MNIST);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1 data=synthetic", NULL, false, 2, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 0)->data, DPB_DATA_SYNTHETIC);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1 data=cifar10", NULL, false, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "holds 32x32x3 images of 10 classes, the workload takes "
                                   "28x28x1 images"));
    assert_non_null(strstr(errors, "--data fashion-mnist, mnist, synthetic"));
}

static void test_axes_multiply(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(
            build_with("ranks=2,3 bucket=1MiB,4MiB overlap=on,off repeats=3", NULL, true, 2, &plan),
            DPB_OK);
    assert_int_equal(plan.cell_count, 8);
    assert_int_equal(plan.launch_count, 24);
    assert_int_equal(plan.axis_count, 3);
    assert_string_equal(plan.axis_names[0], "ranks");
    assert_string_equal(plan.cells[0].label, "ranks=2 bucket=1MiB overlap=on");
    assert_string_equal(plan.cells[7].label, "ranks=3 bucket=4MiB overlap=off");
    assert_int_equal(cell(&plan, 7)->global_batch, 192);
    dpb_plan_release(&plan);
}

/* The global batch is ranks times batch per rank times micro-batches, whichever is given. */
static void test_micro_batches(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=2 accumulate=1,3 batch-per-rank=8", NULL, true, 2, &plan),
                     DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    assert_int_equal(cell(&plan, 0)->global_batch, 16);
    assert_int_equal(cell(&plan, 1)->global_batch, 48);
    assert_true(dpb_experiment_is_weak(plan.cells[1].config));
    assert_string_equal(plan.cells[1].label, "accumulate=3");
    assert_string_not_equal(plan.cells[0].series, plan.cells[1].series);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1,2 accumulate=2 global-batch=24", NULL, true, 2, &plan),
                     DPB_OK);
    assert_int_equal(cell(&plan, 0)->batch_per_rank, 12);
    assert_int_equal(cell(&plan, 1)->batch_per_rank, 6);
    assert_string_equal(plan.cells[0].compute_series, plan.cells[1].compute_series);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=2 accumulate=3 batch-per-rank=8 global-batch=48", NULL,
                                false, 2, &plan),
                     DPB_OK);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=2 accumulate=3 batch-per-rank=8 global-batch=16", NULL,
                                false, 2, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "contradict each other with 2 ranks and --accumulate 3"));
    assert_int_equal(build_with("ranks=2 accumulate=3 global-batch=16", NULL, false, 2, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "has not so many equal micro-batches"));
    assert_non_null(strstr(errors, "a multiple of 6"));
    assert_int_equal(
            build_with("ranks=4 accumulate=2 global-batch=6 uneven=on", NULL, false, 4, &plan),
            DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "leaves some of 4 ranks without a sample in a micro-batch"));
}

/* Nodes have equally many ranks; when it is not said, all are on one, and that makes no series. */
static void test_ranks_per_node(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=2,4", NULL, true, 4, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 0)->ranks_per_node, 2);
    assert_int_equal(cell(&plan, 1)->ranks_per_node, 4);
    assert_string_equal(plan.cells[0].series, plan.cells[1].series);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1,4 ranks-per-node=2,4", NULL, true, 4, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 3);
    assert_int_equal(cell(&plan, 0)->ranks_per_node, 1);
    assert_int_equal(cell(&plan, 1)->ranks_per_node, 2);
    assert_string_not_equal(plan.cells[1].series, plan.cells[2].series);
    assert_string_equal(plan.cells[1].compute_series, plan.cells[0].compute_series);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=4 ranks-per-node=3", NULL, false, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--ranks-per-node 3 does not divide the 4 ranks"));
}

/* Repeats outermost, every cell once in each, shuffled, and the same for the same seed. */
static void test_order_is_interleaved_and_seeded(void **state)
{
    (void)state;
    struct dpb_plan a, b, c;
    const char *flags = "ranks=2 bucket=1KiB,2KiB,3KiB,4KiB,5KiB,6KiB,7KiB,8KiB repeats=3";
    assert_int_equal(build_with(flags, NULL, true, 2, &a), DPB_OK);
    assert_int_equal(build_with(flags, NULL, true, 2, &b), DPB_OK);
    char other[256];
    snprintf(other, sizeof(other), "%s seed=2", flags);
    assert_int_equal(build_with(other, NULL, true, 2, &c), DPB_OK);
    bool differs = false, shuffled = false;
    for (int r = 0; r < 3; r++) {
        unsigned seen = 0;
        for (int i = 0; i < 8; i++) {
            assert_int_equal(a.order[r * 8 + i].repeat, r);
            seen |= 1u << a.order[r * 8 + i].cell;
            shuffled |= a.order[r * 8 + i].cell != i;
            assert_int_equal(a.order[r * 8 + i].cell, b.order[r * 8 + i].cell);
            differs |= a.order[r * 8 + i].cell != c.order[r * 8 + i].cell;
        }
        assert_int_equal(seen, 0xff);
    }
    assert_true(shuffled);
    assert_true(differs);
    dpb_plan_release(&a);
    dpb_plan_release(&b);
    dpb_plan_release(&c);
}

/* With one rank neither bucket nor overlap acts: those cells are one, and the baseline of all. */
static void test_one_rank_is_one_cell(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=1,2 bucket=1MiB,4MiB overlap=on,off", NULL, true, 2, &plan),
                     DPB_OK);
    assert_int_equal(plan.cell_count, 5);
    assert_string_equal(plan.cells[0].label, "ranks=1");
    for (size_t i = 1; i < 5; i++) {
        assert_string_equal(plan.cells[0].compute_series, plan.cells[i].compute_series);
        assert_string_not_equal(plan.cells[0].series, plan.cells[i].series);
    }
    dpb_plan_release(&plan);
}

static void test_auto_ranks(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("steps=20", NULL, true, 4, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 3);
    assert_int_equal(cell(&plan, 2)->ranks, 4);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=auto", NULL, true, 64, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 3); /* at most 4 */
    dpb_plan_release(&plan);
    assert_int_equal(build_with("steps=20", NULL, false, 2, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 1);
    assert_int_equal(cell(&plan, 0)->ranks, 2);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=auto,2", NULL, true, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "stands alone"));
}

/* A curve over ranks compares ranks of one size: the largest count decides it. */
static void test_ranks_keep_their_size(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=1,2,4", NULL, true, 16, &plan), DPB_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(cell(&plan, i)->threads_per_rank, 4);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1", NULL, true, 16, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 0)->threads_per_rank, 16);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1,8", NULL, true, 2, &plan), DPB_OK);
    assert_int_equal(cell(&plan, 1)->threads_per_rank, 1);
    dpb_plan_release(&plan);
}

static void test_strategy_options_stay_with_their_strategy(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(
            build_with("ranks=2 strategy=none,naive,ddp bucket=1MiB,4MiB", NULL, true, 2, &plan),
            DPB_OK);
    assert_int_equal(plan.cell_count, 4); /* none, naive, ddp twice */
    assert_string_equal(plan.cells[0].label, "strategy=none");
    assert_string_equal(plan.cells[3].label, "strategy=ddp bucket=4MiB");
    dpb_plan_release(&plan);
}

static void test_what_acts_nowhere_is_an_error(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=1 bucket=1MiB", NULL, true, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--bucket: cannot take effect with one rank"));
    assert_int_equal(build_with("ranks=2 strategy=none bucket=1MiB", NULL, true, 2, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "it belongs to strategy \"ddp\""));
    assert_int_equal(build_with("ranks=2,4", NULL, false, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "dpbench sweep"));
}

static void test_file_and_flags(void **state)
{
    (void)state;
    struct dpb_plan plan;
    const char *yaml = "version: 1\nname: mine\n"
                       "base: {strategy: ddp, batch-per-rank: 32, repeats: 2}\n"
                       "axes: {ranks: [2, 4], bucket: [1MiB, 4MiB]}\n"
                       "exclude:\n  - {ranks: 4, bucket: 1024KiB}\n";
    assert_int_equal(build_with("batch-per-rank=16", yaml, true, 4, &plan), DPB_OK);
    assert_string_equal(plan.name, "mine");
    assert_int_equal(plan.cell_count, 3);
    assert_int_equal(plan.repeats, 2);
    assert_int_equal(cell(&plan, 0)->batch_per_rank, 16);
    assert_string_equal(plan.cells[2].label, "ranks=4 bucket=4MiB");
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=4 bucket=1MiB", yaml, true, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "exclude leaves none"));
}

/* A file for many ranks serves a machine with one core, and flags that narrow it. */
static void test_a_file_may_say_more_than_acts(void **state)
{
    (void)state;
    struct dpb_plan plan;
    const char *yaml = "version: 1\nname: mine\n"
                       "base: {strategy: ddp, link: \"2.5Gbps,100us\"}\n"
                       "axes: {ranks: auto, bucket: [1MiB, 4MiB]}\n";
    assert_int_equal(build_with("", yaml, true, 1, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 1);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1", yaml, true, 4, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 1);
    assert_non_null(strstr(errors, "bucket takes no effect in this sweep"));
    dpb_plan_release(&plan);
    assert_int_equal(build_with("strategy=none", yaml, true, 2, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    dpb_plan_release(&plan);
    /* but a flag that acts nowhere, or a file that does by itself, is a mistake */
    assert_int_equal(build_with("ranks=1 overlap=off", yaml, true, 4, &plan), DPB_ERR_USAGE);
    assert_int_equal(build_with("",
                                "version: 1\nname: mine\n"
                                "base: {ranks: 1, bucket: 1MiB}\n",
                                true, 4, &plan),
                     DPB_ERR_USAGE);
}

static void test_batches(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=1,2,4 global-batch=256", NULL, true, 4, &plan), DPB_OK);
    assert_false(dpb_experiment_is_weak(plan.cells[2].config));
    assert_int_equal(cell(&plan, 2)->batch_per_rank, 64);
    assert_string_equal(plan.cells[1].series, plan.cells[2].series);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=3 global-batch=256", NULL, true, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "hint:"));
    assert_int_equal(build_with("ranks=3 global-batch=256 uneven=on", NULL, true, 4, &plan),
                     DPB_OK);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=2 global-batch=256 batch-per-rank=64", NULL, true, 4, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "contradict"));
    assert_int_equal(build_with("ranks=2 steps=10 warmup=10", NULL, true, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "no timed step"));
    assert_int_equal(build_with("ranks=2 steps=20 epochs=1", NULL, true, 4, &plan), DPB_ERR_USAGE);
    assert_int_equal(build_with("ranks=65", NULL, true, 4, &plan), DPB_ERR_USAGE);
    assert_int_equal(build_with("ranks=3 global-batch=2 uneven=on", NULL, true, 4, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "without a sample"));
    assert_int_equal(build_with("ranks=2 batch-per-rank=1000000000", NULL, true, 4, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--batch-per-rank 1000000000 with 2 ranks"));
}

/* Each workload brings its own, in a sweep over workloads too; what the user says comes first. */
static void test_batches_of_the_workload(void **state)
{
    (void)state;
    struct dpb_plan plan;
    assert_int_equal(build_with("ranks=2 workload=mnist-cnn,cifar-resnet20", NULL, true, 4, &plan),
                     DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    assert_int_equal(cell(&plan, 0)->batch_per_rank, 64);
    assert_int_equal(cell(&plan, 1)->batch_per_rank, 128);
    assert_int_equal(cell(&plan, 1)->global_batch, 256);
    dpb_plan_release(&plan);
    assert_int_equal(
            build_with("ranks=2 workload=cifar-resnet20 global-batch=32", NULL, false, 4, &plan),
            DPB_OK);
    assert_int_equal(cell(&plan, 0)->batch_per_rank, 16);
    dpb_plan_release(&plan);
    assert_int_equal(
            build_with("ranks=2 workload=cifar-resnet20 batch-per-rank=8", NULL, false, 4, &plan),
            DPB_OK);
    assert_int_equal(cell(&plan, 0)->batch_per_rank, 8);
    dpb_plan_release(&plan);
}

/* ---- what a workload can ---- */

/* Batch normalisation over all ranks: for networks that have it, and part of the series of the
 * cells with several ranks only. */
static void test_synchronised_statistics(void **state)
{
    struct dpb_plan plan;
    (void)state;
    assert_int_equal(build_with("ranks=2 sync-bn=on", NULL, true, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--sync-bn on cannot take effect: workload \"mnist-cnn\" has no "
                                   "batch normalisation"));
    assert_non_null(strstr(errors, "take one of: cifar-resnet20"));
    assert_int_equal(build_with("workload=cifar-resnet20 ranks=1 sync-bn=on", NULL, true, 2, &plan),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--sync-bn: cannot take effect with one rank"));
    assert_int_equal(
            build_with("workload=cifar-resnet20 ranks=2 sync-bn=off,on", NULL, true, 2, &plan),
            DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    assert_int_not_equal(cell(&plan, 0)->sync_bn, cell(&plan, 1)->sync_bn);
    assert_string_not_equal(plan.cells[0].series, plan.cells[1].series);
    assert_string_equal(plan.cells[0].compute_series, plan.cells[1].compute_series);
    dpb_plan_release(&plan);
}

static void test_precision(void **state)
{
    struct dpb_workload_ops able = dpb_workload_mnist_mlp_ops;
    struct dpb_workload_ops unable = dpb_workload_mnist_cnn_ops;
    const struct dpb_workload_ops *const workloads[] = {&able, &unable};
    struct dpb_registry with = *registry_for_tests();
    struct dpb_plan plan;
    (void)state;
    able.flags |= DPB_WORKLOAD_MIXED;
    unable.flags &= ~(unsigned)DPB_WORKLOAD_MIXED;
    with.workloads = workloads;
    with.workload_count = 2;
    registry_under_test = &with;
    assert_int_equal(
            build_with("workload=mnist-mlp ranks=1 precision=fp32,bf16", NULL, true, 2, &plan),
            DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    assert_int_equal(cell(&plan, 0)->precision, DPB_F32);
    assert_int_equal(cell(&plan, 1)->precision, DPB_BF16);
    assert_string_not_equal(plan.cells[0].compute_series, plan.cells[1].compute_series);
    dpb_plan_release(&plan);
    with.workloads = &workloads[1];
    with.workload_count = 1;
    assert_int_equal(build_with("ranks=1 precision=bf16", NULL, true, 2, &plan), DPB_ERR_USAGE);
    registry_under_test = NULL;
    assert_non_null(strstr(errors, "--precision bf16 cannot take effect: workload \"mnist-cnn\" "
                                   "computes in fp32 only"));
    assert_non_null(strstr(errors, "no workload of this build can"));
}

static double loss_scale_of(const char *flags)
{
    double scale = NAN;
    struct dpb_plan plan;
    assert_int_equal(build_with(flags, NULL, true, 2, &plan), DPB_OK);
    assert_int_equal(dpb_experiment_loss_scale(cell(&plan, 0), &scale), DPB_OK);
    dpb_plan_release(&plan);
    return scale;
}

static void test_loss_scale(void **state)
{
    struct dpb_plan plan;
    (void)state;
    assert_true(loss_scale_of("ranks=1") == 0.0);
    assert_true(loss_scale_of("ranks=1 precision=bf16") == 0.0);
    assert_true(loss_scale_of("ranks=1 precision=fp16") == DPB_LOSS_SCALE_DYNAMIC);
    assert_true(loss_scale_of("ranks=1 precision=fp16 loss-scale=off") == 0.0);
    assert_true(loss_scale_of("ranks=1 loss-scale=dynamic") == DPB_LOSS_SCALE_DYNAMIC);
    assert_true(loss_scale_of("ranks=1 loss-scale=1024") == 1024.0);
    assert_int_equal(build_with("ranks=1 loss-scale=0", NULL, true, 2, &plan), DPB_ERR_USAGE);
    assert_int_equal(build_with("ranks=1 loss-scale=2x", NULL, true, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--loss-scale \"2x\" is not a number above 0"));
}

/* ---- the optimizer ---- */

static void expect_optimizer(const char *flags, const struct dpb_optimizer_config *expected)
{
    struct dpb_plan plan;
    assert_int_equal(build_with(flags, NULL, true, 2, &plan), DPB_OK);
    struct dpb_optimizer_config got = dpb_experiment_optimizer(cell(&plan, 0));
    assert_int_equal(got.kind, expected->kind);
    assert_int_equal(cell(&plan, 0)->optimizer, expected->kind);
#define SAME(member, name)                                                                         \
    if (!(got.member == expected->member || (isnan(got.member) && isnan(expected->member))))       \
        fail_msg("%s: %s is %g, expected %g", flags, name, got.member, expected->member);
    DPB_OPTIMIZER_SETTING_MAP(SAME)
#undef SAME
    dpb_plan_release(&plan);
}

static void test_optimizer_settings(void **state)
{
    (void)state;
    struct dpb_optimizer_config expected = dpb_optimizer_defaults(DPB_OPTIMIZER_SGD);
    expected.lr = 0.02; /* of mnist-cnn; its momentum is 0.9 */
    expect_optimizer("ranks=2", &expected);
    expect_optimizer("ranks=2 optimizer=sgd momentum=auto", &expected);
    expected.momentum = 0.5;
    expect_optimizer("ranks=2 momentum=0.5", &expected);
    expected = dpb_optimizer_defaults(DPB_OPTIMIZER_ADAMW); /* not the workload's rate for sgd */
    expect_optimizer("ranks=2 optimizer=adamw", &expected);
    expected.eps = 0.5;
    expected.beta1 = 0.25;
    expected.weight_decay = 0;
    expect_optimizer("ranks=2 optimizer=adamw eps=0.5 beta1=0.25 weight-decay=0 momentum=auto",
                     &expected);
    expected = dpb_optimizer_defaults(DPB_OPTIMIZER_LARS);
    expected.trust = 0.25;
    expected.momentum = 0.5;
    expect_optimizer("ranks=2 optimizer=lars trust=0.25 momentum=0.5", &expected);
    expected = dpb_optimizer_defaults(DPB_OPTIMIZER_ADAGRAD);
    expect_optimizer("ranks=2 optimizer=adagrad", &expected);
}

static void test_optimizer_settings_without_effect(void **state)
{
    static const struct {
        const char *flags, *error;
    } cases[] = {
            {"optimizer=adamw momentum=0.9", "--momentum cannot take effect"},
            {"optimizer=lamb trust=0.1", "--trust cannot take effect: optimizer \"lamb\""},
            {"optimizer=lars beta1=0.9", "--beta1 cannot take effect"},
            {"optimizer=adagrad beta2=0.9", "--beta2 cannot take effect"},
            {"eps=0.1", "--eps cannot take effect: optimizer \"sgd\""},
            {"optimizer=sgd,adamw momentum=0.9", "--momentum cannot take effect"},
            {"optimizer=rowwise-adagrad", "workload \"mnist-cnn\" has no embedding tables"},
            {"optimizer=adamw beta1=1", "beta1 1 is not below 1"},
            {"optimizer=adagrad eps=0", "eps 0 is not above 0"},
    };
    struct dpb_plan plan;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(build_with(cases[i].flags, NULL, true, 2, &plan), DPB_ERR_USAGE);
        if (!strstr(errors, cases[i].error) || !strstr(errors, "hint:"))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].flags, errors, cases[i].error);
    }
}

static void test_json_round_trip(void **state)
{
    (void)state;
    struct dpb_plan plan, back;
    assert_int_equal(build_with("ranks=1,2 bucket=1MiB,4MiB repeats=2 link=2.5Gbps,100us", NULL,
                                true, 2, &plan),
                     DPB_OK);
    dpb_json *json = dpb_plan_to_json(&plan);
    assert_int_equal(dpb_plan_from_json(registry_for_tests(), json, &back), DPB_OK);
    assert_int_equal(back.cell_count, plan.cell_count);
    assert_int_equal(back.launch_count, plan.launch_count);
    for (size_t i = 0; i < plan.cell_count; i++) {
        struct dpb_str a = {0}, b = {0};
        assert_string_equal(back.cells[i].label, plan.cells[i].label);
        assert_string_equal(back.cells[i].series, plan.cells[i].series);
        assert_int_equal(dpb_config_key(plan.cells[i].config, 0, NULL, 0, &a), DPB_OK);
        assert_int_equal(dpb_config_key(back.cells[i].config, 0, NULL, 0, &b), DPB_OK);
        assert_string_equal(a.text, b.text);
        assert_int_equal(dpb_config_is_explicit(plan.cells[i].config, "bucket"),
                         dpb_config_is_explicit(back.cells[i].config, "bucket"));
        dpb_str_release(&a);
        dpb_str_release(&b);
    }
    for (size_t i = 0; i < plan.launch_count; i++)
        assert_int_equal(back.order[i].cell, plan.order[i].cell);
    dpb_plan_release(&back);
    dpb_json_set(json, "order", dpb_json_array());
    dpb_log_set_sink(collect, NULL);
    assert_int_equal(dpb_plan_from_json(registry_for_tests(), json, &back), DPB_ERR_CORRUPT);
    dpb_log_set_sink(NULL, NULL);
    dpb_json_free(json);
    dpb_plan_release(&plan);
}

static void test_repro_line_names_what_was_given(void **state)
{
    (void)state;
    struct dpb_plan plan;
    struct dpb_str line = {0};
    assert_int_equal(
            build_with("ranks=2 bucket=1MiB link=2.5Gbps,100us steps=30", NULL, true, 2, &plan),
            DPB_OK);
    assert_int_equal(dpb_config_repro(plan.cells[0].config, &line), DPB_OK);
    assert_string_equal(line.text, " --bucket 1MiB --link 2.5Gbps,100us --ranks 2 --steps 30");
    dpb_str_release(&line);
    dpb_plan_release(&plan);
}

/* Threads that a cell has because of its sweep are part of the command that repeats it alone. */
static void test_repro_line_names_threads_of_the_sweep(void **state)
{
    (void)state;
    struct dpb_plan plan, back;
    struct dpb_str one = {0}, four = {0}, resumed = {0};
    assert_int_equal(build_with("ranks=1,4", NULL, true, 4, &plan), DPB_OK);
    assert_int_equal(dpb_config_repro(plan.cells[0].config, &one), DPB_OK);
    assert_string_equal(one.text, " --ranks 1 --threads-per-rank 1");
    assert_int_equal(dpb_config_repro(plan.cells[1].config, &four), DPB_OK);
    assert_string_equal(four.text, " --ranks 4");
    dpb_json *json = dpb_plan_to_json(&plan);
    assert_int_equal(dpb_plan_from_json(registry_for_tests(), json, &back), DPB_OK);
    assert_int_equal(dpb_config_repro(back.cells[0].config, &resumed), DPB_OK);
    assert_string_equal(resumed.text, one.text);
    dpb_json_free(json);
    dpb_str_release(&one);
    dpb_str_release(&four);
    dpb_str_release(&resumed);
    dpb_plan_release(&back);
    dpb_plan_release(&plan);
}

/* exclude with values that no cell has, or options that stand nowhere, is a mistake; cells that
 * flags took away are none. */
static void test_excludes_that_match_nothing(void **state)
{
    (void)state;
    struct dpb_plan plan;
    const char *value = "version: 1\nname: x\naxes: {ranks: [1, 2]}\nexclude: [{ranks: 7}]\n";
    const char *option = "version: 1\nname: x\naxes: {ranks: [1, 2]}\n"
                         "exclude: [{ranks: 1}, {overlap: on}]\n";
    const char *narrowed = "version: 1\nname: x\naxes: {ranks: [1, 2], overlap: [on, off]}\n"
                           "exclude: [{ranks: 1, overlap: off}]\n";
    assert_int_equal(build_with("", value, true, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "this entry of exclude matches no cell"));
    assert_non_null(strstr(errors, "t.yaml:4:"));
    assert_int_equal(build_with("", option, true, 4, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "overlap is neither an axis"));
    assert_int_equal(build_with("ranks=2", narrowed, true, 4, &plan), DPB_OK);
    assert_int_equal(plan.cell_count, 2);
    dpb_plan_release(&plan);
}

/* More traced steps than the recorder can hold: said before anything runs. */
static void test_traced_steps(void **state)
{
    (void)state;
    struct dpb_recorder_ops ops = dpb_recorder_host_ops;
    const struct dpb_recorder_ops *const recorders[] = {&ops};
    struct dpb_registry registry = *registry_for_tests();
    struct dpb_plan plan;
    registry.recorders = recorders;
    registry_under_test = &registry;
    assert_int_equal(build_with("ranks=1 trace-steps=1000", NULL, false, 2, &plan), DPB_OK);
    dpb_plan_release(&plan);
    ops.steps_max = 20;
    assert_int_equal(build_with("ranks=1 trace-steps=20", NULL, false, 2, &plan), DPB_OK);
    dpb_plan_release(&plan);
    assert_int_equal(build_with("ranks=1 trace-steps=21", NULL, false, 2, &plan), DPB_ERR_USAGE);
    assert_non_null(strstr(errors, "--trace-steps 21: recorder \"host\" records at most 20 steps"));
    assert_non_null(strstr(errors, "use --trace-steps 20, or fewer"));
    registry_under_test = NULL;
}

static void ignore_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* The config with an option of a part, or of none, as records have it; `text` NULL: its default.
 * False: that is no value. */
static bool record_with(const struct dpb_option_table *table, const char *name, const char *text,
                        struct dpb_str *out)
{
    const struct dpb_assignment given[] = {{table->kind, table->owner, "the test"},
                                           {name, text, "the test"}};
    const bool is_core = !table->owner[0];
    const size_t count = (is_core ? 0 : 1) + (text ? 1 : 0);
    dpb_config *config;
    if (dpb_config_new(registry_for_tests()->options, given + is_core, count, false, &config) < 0)
        return false;
    dpb_json *json = dpb_config_to_json(config);
    assert_int_equal(dpb_json_write(json, false, out), DPB_OK);
    dpb_json_free(json);
    dpb_config_free(config);
    return true;
}

static bool changes_record(const struct dpb_option_table *table, const char *name, const char *text)
{
    struct dpb_str was = {0}, is = {0};
    assert_true(record_with(table, name, NULL, &was));
    const bool changes = record_with(table, name, text, &is) && strcmp(was.text, is.text) != 0;
    dpb_str_release(&was);
    dpb_str_release(&is);
    return changes;
}

/* Some value of a row: one of its choices, a part, or one of these. */
static bool some_value_changes_record(const struct dpb_option_table *table,
                                      const struct dpb_option *row)
{
    static const char *const texts[] = {"on",  "off",  "1",   "2",     "7",  "0.25", "3MiB",
                                        "7ms", "7min", "70%", "1GB/s", "64", "x",    "10Gbps,5us"};
    const struct dpb_option_set *set = registry_for_tests()->options;
    size_t parts = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (changes_record(table, row->name, texts[i]))
            return true;
    for (const struct dpb_choice *choice = row->choices; choice && choice->name; choice++)
        if (changes_record(table, row->name, choice->name))
            return true;
    for (size_t i = 0; i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, row->name) != 0)
            continue;
        if (changes_record(table, row->name, set->parts[i].name))
            return true;
        parts++;
    }
    return parts == 1; /* the tests' registry has one device only: no other value */
}

/* vllm-project/tpu-inference#3389, pytorch/benchmark#1082: an option that is accepted shows in what
 * the record says was run. */
static void test_every_option_is_in_the_record(void **state)
{
    (void)state;
    const struct dpb_option_set *set = registry_for_tests()->options;
    size_t rows = 0;
    dpb_log_set_sink(ignore_line, NULL);
    for (size_t t = 0; t < set->table_count; t++)
        for (size_t i = 0; i < set->tables[t]->row_count; i++, rows++)
            if (!some_value_changes_record(set->tables[t], &set->tables[t]->rows[i]))
                fail_msg("no value of %s %s --%s is in the record", set->tables[t]->kind,
                         set->tables[t]->owner, set->tables[t]->rows[i].name);
    dpb_log_set_sink(NULL, NULL);
    assert_true(rows > 40);
}

static void test_tables_keep_their_promises(void **state)
{
    (void)state;
    const struct dpb_registry *registry = registry_for_tests();
    assert_int_equal(dpb_option_table_check(&dpb_experiment_table, registry->options), DPB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_axes_multiply),
            cmocka_unit_test(test_micro_batches),
            cmocka_unit_test(test_ranks_per_node),
            cmocka_unit_test(test_order_is_interleaved_and_seeded),
            cmocka_unit_test(test_one_rank_is_one_cell),
            cmocka_unit_test(test_auto_ranks),
            cmocka_unit_test(test_ranks_keep_their_size),
            cmocka_unit_test(test_strategy_options_stay_with_their_strategy),
            cmocka_unit_test(test_what_acts_nowhere_is_an_error),
            cmocka_unit_test(test_file_and_flags),
            cmocka_unit_test(test_a_file_may_say_more_than_acts),
            cmocka_unit_test(test_batches),
            cmocka_unit_test(test_batches_of_the_workload),
            cmocka_unit_test(test_synchronised_statistics),
            cmocka_unit_test(test_precision),
            cmocka_unit_test(test_loss_scale),
            cmocka_unit_test(test_optimizer_settings),
            cmocka_unit_test(test_optimizer_settings_without_effect),
            cmocka_unit_test(test_json_round_trip),
            cmocka_unit_test(test_repro_line_names_what_was_given),
            cmocka_unit_test(test_repro_line_names_threads_of_the_sweep),
            cmocka_unit_test(test_excludes_that_match_nothing),
            cmocka_unit_test(test_traced_steps),
            cmocka_unit_test(test_every_option_is_in_the_record),
            cmocka_unit_test(test_tables_keep_their_promises),
            cmocka_unit_test(test_data_fits_the_workload),
    };
    return DPB_RUN_TESTS(tests);
}
