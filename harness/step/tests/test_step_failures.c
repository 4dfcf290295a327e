/* What the step engine does when a part of it misbehaves. */
#include "dpb_test.h"

#include <stdlib.h>

#include "rig.h"
#include "dpb_strategies.h"

/* Opening fails with `expected`; the log says why. */
static void expect_open(struct rig *rig, dpb_status expected, const char *logged, int aborts)
{
    assert_int_equal(dpb_step_open(&rig->config, &rig->engine), expected);
    assert_null(rig->engine);
    assert_true(rig_has_logged(rig, logged));
    assert_int_equal(rig->comm.aborts, aborts);
}

/* The next step fails with `expected`, and no step is possible afterwards. */
static void expect_step(struct rig *rig, dpb_status expected, const char *logged)
{
    struct dpb_step_times times = {.start_ns = -1};

    assert_int_equal(dpb_step_run(rig->engine, &times), expected);
    assert_int_equal(times.start_ns, -1); /* set on success only */
    if (logged)
        assert_true(rig_has_logged(rig, logged));
    assert_int_equal(rig->comm.aborts, 1);
    assert_int_equal(dpb_step_run(rig->engine, &times), DPB_ERR_INTERNAL);
    assert_int_equal(rig->comm.aborts, 1);
}

/* ---- what is asked for ---- */

static void test_bad_settings(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.batch_max = RIG_BATCH + 1;
    expect_open(&rig, DPB_ERR_USAGE, "global batch of 8 samples, at most 9", 1);
    assert_non_null(strstr(rig.comm.abort_reason, "setting up failed"));
    rig_release(&rig);

    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.global_batch = 0;
    expect_open(&rig, DPB_ERR_USAGE, "global batch of 0", 1);
    rig_release(&rig);

    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.options.bad_dtype = true;
    expect_open(&rig, DPB_ERR_UNSUPPORTED, "fp64", 1);
    rig_release(&rig);

    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.options.empty_param = true;
    expect_open(&rig, DPB_ERR_UNSUPPORTED, "\"empty\" has 0 elements", 1);
    rig_release(&rig);
}

static void test_bad_tables(void **state)
{
    struct dpb_strategy_ops strategy = dpb_strategy_none_ops;
    struct dpb_workload_ops workload = tiny_workload_ops;
    struct rig rig;

    (void)state;
    strategy.version = 99;
    rig_init(&rig, &strategy, 2);
    expect_open(&rig, DPB_ERR_INTERNAL, "version 99", 1);
    rig_release(&rig);

    workload.backward = NULL;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.workload = &workload;
    expect_open(&rig, DPB_ERR_INTERNAL, "\"backward\" is missing", 1);
    rig_release(&rig);
}

/* ---- ranks disagree; nobody is aborted, because everybody knows ---- */

static void test_ranks_that_run_something_else(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 4);
    rig.comm.differ_exchange = 1;
    rig.comm.peer_from = 2;
    expect_open(&rig, DPB_ERR_MISMATCH, "settings of ranks 2, 3 are not those of rank 0", 0);
    assert_int_equal(rig.comm.buffer_count, 0);
    rig_release(&rig);
}

static void test_ranks_with_another_plan(void **state)
{
    struct dpb_step_times times;
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 4);
    rig.comm.differ_exchange = 2;
    rig.comm.peer_from = 3;
    expect_open(&rig, DPB_ERR_MISMATCH, "rank 3 made another communication plan than rank 0", 0);
    assert_int_equal(rig.comm.buffer_count, 0); /* freed together */
    rig_release(&rig);

    /* The same when the plan is rebuilt. */
    rig_init(&rig, &dpb_strategy_ddp_ops, 4);
    rig_open(&rig);
    rig.comm.differ_exchange = rig.comm.exchanges + 1;
    rig.comm.peer_from = 1;
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_ERR_MISMATCH);
    assert_true(rig_has_logged(&rig, "ranks 1, 2, 3 made another communication plan"));
    assert_int_equal(rig.comm.aborts, 0);
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_ERR_INTERNAL);
    rig_release(&rig);
}

static void test_ranks_with_other_initial_parameters(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.comm.differ_exchange = 4; /* run, plan, verdict on the comm, parameters */
    rig.comm.peer_from = 1;
    expect_open(&rig, DPB_ERR_CHECK, "the replicas differ after step 0", 0);
    rig_release(&rig);
}

/* A check that all ranks saw fail does not silence a later failure of this rank alone. */
static void test_failure_after_a_failed_check(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.options.fail_backward = 1;
    rig_open(&rig);
    rig.comm.differ_exchange = rig.comm.exchanges + 1;
    rig.comm.peer_from = 1;
    assert_int_equal(dpb_step_check_replicas(rig.engine), DPB_ERR_CHECK);
    assert_int_equal(rig.comm.aborts, 0);
    expect_step(&rig, DPB_ERR_VENDOR, "backward fails");
    rig_release(&rig);
}

/* ---- the communicator ---- */

static void test_comm_that_sums_wrongly_is_not_used(void **state)
{
    struct rig rig;

    (void)state;
    for (int unit = 0; unit < TINY_PARAMS; unit++) {
        rig_init(&rig, &dpb_strategy_naive_ops, 3);
        rig.comm.corrupt_start = unit + 1; /* only the last element is wrong */
        expect_open(&rig, DPB_ERR_CHECK, "the all-reduce gives wrong sums: element", 0);
        rig_release(&rig);
    }

    /* Value 46 + 37 * 4, summed over (1 + 2 + 3) / 2, and 1 more. */
    rig_init(&rig, &dpb_strategy_naive_ops, 3);
    rig.comm.corrupt_start = TINY_PARAMS;
    expect_open(&rig, DPB_ERR_CHECK, "element 46 of bucket 4 is 583 on rank 0, 582 was expected",
                0);
    rig_release(&rig);

    /* The places of the rebuilt plan are checked too: 1 check and 1 bucket in step 1, then the
     * broadcast, then three checks. */
    struct dpb_step_times times;
    rig_init(&rig, &dpb_strategy_ddp_ops, 3);
    rig.comm.corrupt_start = 6;
    rig_open(&rig);
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_ERR_CHECK);
    assert_true(rig_has_logged(&rig, "of bucket 2 is"));
    rig_release(&rig);
}

static void test_comm_that_fails_in_a_step(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig_open(&rig);
    rig_steps(&rig, 1);
    rig.comm.fail_start = rig.comm.starts + 2;
    expect_step(&rig, DPB_ERR_RANK_FAILED, NULL);
    assert_string_equal(rig.comm.abort_reason,
                        "a training step failed in step 2 (backward): a rank failed");
    assert_int_equal(dpb_step_count(rig.engine), 1);
    rig_release(&rig);
}

/* ---- the workload ---- */

static void expect_workload_failure(struct tiny_options options, dpb_status expected,
                                    const char *logged)
{
    struct rig rig;

    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig.options = options;
    rig_open(&rig);
    expect_step(&rig, expected, logged);
    rig_release(&rig);
}

static void test_workloads_that_misbehave(void **state)
{
    (void)state;
    expect_workload_failure((struct tiny_options){.report_twice = true}, DPB_ERR_INTERNAL,
                            "\"out.weight\" was reported ready twice");
    expect_workload_failure((struct tiny_options){.report_unknown = true}, DPB_ERR_INTERNAL,
                            "parameter number 5");
    expect_workload_failure((struct tiny_options){.forget_last = true}, DPB_ERR_INTERNAL,
                            "backward ended without parameter \"in.bias\" (4 of 5");
    expect_workload_failure((struct tiny_options){.use_unannounced = true}, DPB_ERR_INTERNAL,
                            "a gradient of \"out.weight\" whose use it has not announced");
    expect_workload_failure((struct tiny_options){.fail_forward = 1}, DPB_ERR_VENDOR,
                            "forward fails");
    expect_workload_failure((struct tiny_options){.fail_backward = 1}, DPB_ERR_VENDOR,
                            "backward fails");
}

static void test_workloads_that_exchange_wrongly(void **state)
{
    (void)state;
    expect_workload_failure((struct tiny_options){.exchange = TINY_EXCHANGE_LATE_MEMORY},
                            DPB_ERR_INTERNAL, "asks for 64 bytes of shared memory after open()");
    expect_workload_failure((struct tiny_options){.exchange = TINY_EXCHANGE_NOT_WAITED_FOR},
                            DPB_ERR_INTERNAL,
                            "lets the step end while exchange \"tiny.first\" is under way");
    expect_workload_failure((struct tiny_options){.exchange = TINY_EXCHANGE_TOO_MANY},
                            DPB_ERR_INTERNAL,
                            "starts exchange \"tiny.first\" while 8 are under way");
    expect_workload_failure((struct tiny_options){.exchange = TINY_EXCHANGE_UNKNOWN},
                            DPB_ERR_INTERNAL, "exchange number 3, which is not under way");
}

static void test_what_the_workload_cannot(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.precision = DPB_BF16;
    expect_open(&rig, DPB_ERR_USAGE, "workload \"tiny\" cannot compute in precision \"bf16\"", 1);
    rig_release(&rig);

    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.sync_batch_statistics = true;
    expect_open(&rig, DPB_ERR_USAGE, "workload \"tiny\" has no batch normalisation", 1);
    rig_release(&rig);
}

static void test_evaluation_that_fails(void **state)
{
    struct tiny_source source = {.global_batch = 2, .count = 2, .steps = 2};
    const struct dpb_batch_source batches = tiny_source_of(&source);
    int64_t correct = -1, samples = -1;
    double loss_sum = -1.0;
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.options.fail_forward = 2;
    rig_open(&rig);
    assert_int_equal(dpb_step_evaluate(rig.engine, &batches, &correct, &samples, &loss_sum),
                     DPB_ERR_VENDOR);
    assert_int_equal(samples, -1);
    assert_int_equal(correct, -1);
    assert_int_equal(rig.comm.aborts, 1);
    rig_release(&rig);
}

/* ---- batches ---- */

static void test_end_of_data_does_nothing(void **state)
{
    struct dpb_step_times times = {.start_ns = -1};
    struct rig rig;
    uint64_t hash;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.source.steps = 1;
    rig_open(&rig);
    rig_steps(&rig, 1);
    hash = tiny_hash(rig.engine);
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_END);
    assert_int_equal(dpb_step_count(rig.engine), 1);
    assert_int_equal(times.start_ns, -1);
    assert_true(hash == tiny_hash(rig.engine));
    assert_int_equal(rig.comm.aborts, 0);
    rig.source.steps = 2; /* data are there again */
    rig_steps(&rig, 1);
    rig_release(&rig);
}

static void test_end_of_data_within_a_step_is_a_failure(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.accumulate = 2;
    rig.source.steps = 3;
    rig_open(&rig);
    rig_steps(&rig, 1);
    expect_step(&rig, DPB_ERR_INTERNAL, "step 2: the batches end after 1 of its 2 micro-batches");
    rig_release(&rig);
}

static void test_batch_larger_than_announced(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig.config.batch_max = 3;
    rig_open(&rig);
    expect_step(&rig, DPB_ERR_INTERNAL, "a batch of 8 samples on rank 0, at most 3");
    rig_release(&rig);
}

/* ---- strategies that misbehave ---- */

enum misdeed {
    LAUNCH_TOO_EARLY,
    LAUNCH_TWICE,
    LAUNCH_UNKNOWN,
    WAIT_FOR_NOTHING,
    WAIT_UNKNOWN,
    ALLOC_TOO_LATE,
    FORGET_TO_WAIT
};

struct bad_strategy {
    struct dpb_strategy_base base;
    struct dpb_sync_services services;
    enum misdeed misdeed;
    int ready_count;
};

static dpb_status bad_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    struct bad_strategy *self = calloc(1, sizeof(*self));

    if (!self)
        return DPB_ERR_NO_MEMORY;
    self->services = config->services;
    self->misdeed = *(const enum misdeed *)config->options;
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static void bad_close(dpb_strategy *strategy)
{
    free(strategy);
}

static dpb_status bad_plan(dpb_strategy *strategy, const struct dpb_model *model,
                           const int *ready_order, struct dpb_unit_plan *plan)
{
    (void)strategy;
    return dpb_unit_plan_fused(model->params, model->param_count, ready_order, plan);
}

static int bad_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    (void)strategy;
    (void)messages;
    return 0;
}

static dpb_status start(const struct bad_strategy *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = DPB_F32,
            .buffer = services->unit_data(services->ctx, 0),
            .count = 1,
            .scale = 1.0f,
            .unit = unit,
    };
    int handle;

    return services->start(services->ctx, &coll, &handle);
}

static dpb_status bad_grad_ready(dpb_strategy *strategy, int param)
{
    struct bad_strategy *self = (struct bad_strategy *)strategy;

    (void)param;
    self->ready_count++;
    if (self->misdeed == LAUNCH_TOO_EARLY && self->ready_count == TINY_PARAMS - 1)
        return start(self, 0);
    return DPB_OK;
}

static dpb_status bad_before_optimizer(dpb_strategy *strategy)
{
    struct bad_strategy *self = (struct bad_strategy *)strategy;
    const struct dpb_sync_services *services = &self->services;
    void *memory;

    switch (self->misdeed) {
    case LAUNCH_TWICE:
        DPB_TRY(start(self, 0));
        return start(self, 0);
    case LAUNCH_UNKNOWN:
        return start(self, 1);
    case WAIT_FOR_NOTHING:
        return services->wait(services->ctx, 0);
    case WAIT_UNKNOWN:
        return services->wait(services->ctx, -1);
    case FORGET_TO_WAIT:
        return start(self, 0);
    case ALLOC_TOO_LATE:
        return services->shared_alloc(services->ctx, 64, &memory);
    case LAUNCH_TOO_EARLY:
        break;
    }
    return DPB_OK;
}

static const struct dpb_strategy_ops bad_strategy_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "bad",
        .summary = "does what strategies must not do",
        .open = bad_open,
        .close = bad_close,
        .plan = bad_plan,
        .messages = bad_messages,
        .grad_ready = bad_grad_ready,
        .before_optimizer = bad_before_optimizer,
};

static void test_strategies_that_misbehave(void **state)
{
    static const struct {
        enum misdeed misdeed;
        const char *logged;
    } expected[] = {
            {LAUNCH_TOO_EARLY, "reduces a unit before all its gradients are ready (unit 0)"},
            {LAUNCH_TWICE, "starts a collective where one is under way (unit 0)"},
            {LAUNCH_UNKNOWN, "names a unit that the plan has not (unit 1)"},
            {WAIT_FOR_NOTHING, "waits for collective 0, which is not under way"},
            {WAIT_UNKNOWN, "waits for collective -1, which is not under way"},
            {FORGET_TO_WAIT, "lets the optimizer start while a collective is under way (unit 0)"},
            {ALLOC_TOO_LATE, "asks for 64 bytes of shared memory outside of place()"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct rig rig;

        rig_init(&rig, &bad_strategy_ops, 2);
        rig.config.strategy_options = &expected[i].misdeed;
        rig_open(&rig);
        expect_step(&rig, DPB_ERR_INTERNAL, expected[i].logged);
        rig_release(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_bad_settings),
            cmocka_unit_test(test_bad_tables),
            cmocka_unit_test(test_ranks_that_run_something_else),
            cmocka_unit_test(test_ranks_with_another_plan),
            cmocka_unit_test(test_ranks_with_other_initial_parameters),
            cmocka_unit_test(test_failure_after_a_failed_check),
            cmocka_unit_test(test_comm_that_sums_wrongly_is_not_used),
            cmocka_unit_test(test_comm_that_fails_in_a_step),
            cmocka_unit_test(test_workloads_that_misbehave),
            cmocka_unit_test(test_workloads_that_exchange_wrongly),
            cmocka_unit_test(test_what_the_workload_cannot),
            cmocka_unit_test(test_evaluation_that_fails),
            cmocka_unit_test(test_end_of_data_does_nothing),
            cmocka_unit_test(test_end_of_data_within_a_step_is_a_failure),
            cmocka_unit_test(test_batch_larger_than_announced),
            cmocka_unit_test(test_strategies_that_misbehave),
    };

    return DPB_RUN_TESTS(tests);
}
