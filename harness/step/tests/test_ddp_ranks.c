/* `ddp` on real ranks: PyTorch's own numbers, the bits of strategy `none` whatever the options,
 * parameters that a step leaves out, and the broadcast of buffers. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_strategies.h"

#include "forked.h"
#include "golden.h"
#include "strategy_ranks.h"
#include "whole_params.h"

/* Nearly every tensor is a bucket. */
#define SMALL .bucket_bytes = 64, .first_bucket_bytes = 16

/* ---- PyTorch's numbers ---- */

static void expect_golden(const struct dpb_ddp_options *options, const char *key)
{
    struct golden_run *run = golden_run_new(&dpb_strategy_ddp_ops, options, 2);
    float expected[GOLDEN_ELEMENTS];

    golden_run_all(run);
    for (int step = 0; step < run->steps; step++) {
        golden_read(key, step, expected);
        for (int r = 0; r < run->ranks; r++)
            assert_memory_equal(run->report[r].reduced[step], expected, sizeof(expected));
    }
    golden_run_free(run);
}

/* One bucket in step 1 and four in step 2. */
static void test_golden_all_reduce(void **state)
{
    static const struct dpb_ddp_options copies = {SMALL, .overlap = true},
                                        view = {SMALL, .overlap = true,
                                                .gradient_as_bucket_view = true},
                                        hook = {SMALL, .overlap = true,
                                                .hook = DPB_DDP_HOOK_ALLREDUCE},
                                        late = {SMALL};

    (void)state;
    expect_golden(&copies, "allreduce_default");
    expect_golden(&view, "allreduce_bucket_view");
    expect_golden(&hook, "allreduce_default");
    expect_golden(&late, "allreduce_default");
}

static void test_golden_fp16(void **state)
{
    static const struct dpb_ddp_options copies = {SMALL, .overlap = true,
                                                  .hook = DPB_DDP_HOOK_FP16},
                                        view = {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_FP16,
                                                .gradient_as_bucket_view = true};
    float fp32[GOLDEN_ELEMENTS], fp16[GOLDEN_ELEMENTS];

    (void)state;
    golden_read("allreduce_default", 0, fp32);
    golden_read("fp16_compress_hook", 0, fp16);
    assert_memory_not_equal(fp32, fp16, sizeof(fp32));
    expect_golden(&copies, "fp16_compress_hook");
    expect_golden(&view, "fp16_compress_hook");
}

/* Nothing is sent for the first micro-batch; the second sends the sum of both. */
static void test_golden_no_sync(void **state)
{
    static const struct dpb_ddp_options modes[] = {
            {SMALL, .overlap = true}, {SMALL, .overlap = true, .gradient_as_bucket_view = true}};

    (void)state;
    for (int m = 0; m < 2; m++) {
        struct golden_run *run = golden_run_new(&dpb_strategy_ddp_ops, &modes[m], 1);
        float expected[GOLDEN_ELEMENTS];

        run->accumulate = 2;
        golden_run_all(run);
        for (int r = 0; r < run->ranks; r++) {
            golden_read_of_rank("no_sync_after_local", r, -1, expected);
            assert_memory_equal(run->report[r].local, expected, sizeof(expected));
            golden_read("no_sync_final", -1, expected);
            for (int i = 0; i < GOLDEN_ELEMENTS; i++)
                assert_true(fabsf(run->report[r].reduced[0][i] - expected[i]) <= 5e-7f);
        }
        golden_run_free(run);
    }
}

/* Three ranks: each contribution is multiplied by 1/3 in fp32, then they are added (DDP divides
 * before it adds). Three times 2e38 would overflow if they were added first. */
static void test_three_ranks_divide_before_they_add(void **state)
{
    static const struct dpb_ddp_options modes[] = {
            {SMALL, .overlap = true},
            {SMALL, .overlap = true, .gradient_as_bucket_view = true},
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_ALLREDUCE}};

    (void)state;
    for (int m = 0; m < 3; m++) {
        struct golden_run *run = golden_run_new(&dpb_strategy_ddp_ops, &modes[m], 2);

        run->ranks = 3;
        for (int s = 0; s < run->steps; s++)
            for (int i = 0; i < GOLDEN_ELEMENTS; i++) {
                run->input[2][s][i] = run->input[0][s][(i + 1) % GOLDEN_ELEMENTS];
                for (int r = 0; r < 3 && i % 2; r++)
                    run->input[r][s][i] = 2e38f - (float)r * 1e37f;
            }
        golden_run_all(run);
        for (int s = 0; s < run->steps; s++)
            for (int i = 0; i < GOLDEN_ELEMENTS; i++) {
                float sum = 0.0f, size = 0.0f;

                for (int r = 0; r < 3; r++) {
                    const float part = run->input[r][s][i] * (1.0f / 3.0f);

                    sum += part;
                    size += fabsf(part);
                }
                assert_true(isfinite(run->report[0].reduced[s][i]));
                assert_true(fabsf(run->report[0].reduced[s][i] - sum) <= 1e-6f * size);
            }
        golden_run_free(run);
    }
}

/* ---- the bits of `none` ---- */

static void test_same_bits_as_none(void **state)
{
    static const struct dpb_ddp_options options[] = {
            {SMALL, .overlap = true, .broadcast_buffers = true},
            {SMALL, .overlap = true, .gradient_as_bucket_view = true},
            {SMALL, .overlap = false},
            {SMALL, .overlap = true, .compat = DPB_DDP_COMPAT_1_10, .last_bucket_cap = true},
            {SMALL, .overlap = true, .find_unused = true},
            {SMALL, .overlap = true, .static_graph = true, .gradient_as_bucket_view = true},
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_ALLREDUCE, .static_graph = true},
            /* sums of at most 96: exact in fp16 and bf16 */
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_FP16},
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_BF16, .gradient_as_bucket_view = true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        print_message("options %zu\n", i);
        strategy_expect_none(&dpb_strategy_ddp_ops, &options[i]);
    }
}

/* ---- ranks with workloads of their own ---- */

#define RANKS_MAX 3
#define STEPS     4
#define ELEMENTS  1102 /* of tiny's parameters */
#define BATCH     12

struct run {
    int ranks;
    int64_t accumulate;
    struct dpb_ddp_options options;
    struct tiny_options tiny[RANKS_MAX];
    int segment_fd;

    struct report {
        dpb_status status;
        float params[STEPS][ELEMENTS];
        struct dpb_comm_stats before, after; /* of the last step */
        float replicated[TINY_STATE_ELEMENTS], local[TINY_STATE_ELEMENTS];
        char log[4096];
    } report[RANKS_MAX];
};

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    struct report *report = ctx;
    const size_t used = strlen(report->log);

    (void)level;
    snprintf(report->log + used, sizeof(report->log) - used, "%s\n", line);
}

static void keep_state(const dpb_step_engine *engine, int index, float *values)
{
    struct dpb_workload_state state;

    if (dpb_step_state(engine, index, &state))
        memcpy(values, state.data, TINY_STATE_ELEMENTS * sizeof(float));
}

static dpb_status train(struct run *run, int rank, dpb_device *device, dpb_comm *comm)
{
    struct report *report = &run->report[rank];
    const int64_t batch = BATCH / run->accumulate, each = batch / run->ranks;
    struct tiny_source source = {
            .global_batch = batch, .first = rank * each, .count = each, .steps = 1000};
    const struct dpb_step_config config = {
            .device = device,
            .comm = comm,
            .workload = &tiny_workload_ops,
            .workload_options = &run->tiny[rank],
            .strategy = &dpb_strategy_ddp_ops,
            .strategy_options = &run->options,
            .source = tiny_source_of(&source),
            .batch_max = each,
            .global_batch = BATCH,
            .accumulate = run->accumulate,
            .seed = 3,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.25, .momentum = 0.5},
            .sum_gradients = true,
    };
    dpb_step_engine *engine = NULL;
    struct dpb_step_times times;
    dpb_status st = dpb_step_open(&config, &engine);

    for (int step = 0; step < STEPS && st == DPB_OK; step++) {
        dpb_step_comm_stats(engine, &report->before);
        st = dpb_step_run(engine, &times);
        if (st != DPB_OK)
            break;
        dpb_step_comm_stats(engine, &report->after);
        st = dpb_step_check_replicas(engine);
        if (whole_params(engine, report->params[step], ELEMENTS) != ELEMENTS)
            return DPB_ERR_INTERNAL;
    }
    if (st == DPB_OK) {
        keep_state(engine, 0, report->replicated);
        keep_state(engine, 1, report->local);
    }
    dpb_step_close(engine);
    return st;
}

static void run_rank(int rank, void *shared)
{
    struct run *run = shared;
    struct report *report = &run->report[rank];
    const struct dpb_comm_shm_options comm_options = {.algorithm = DPB_ALGORITHM_DIRECT};
    const struct dpb_comm_config comm_config = {
            .rank = rank,
            .size = run->ranks,
            .local_rank = rank,
            .segment_fd = run->segment_fd,
            .timeout_ns = INT64_C(30000000000),
            .options = &comm_options,
    };
    const struct dpb_device_config device_config = {
            .local_rank = rank, .local_size = run->ranks, .threads = 1};
    dpb_device *device = NULL;
    dpb_comm *comm = NULL;

    dpb_log_set_sink(keep_line, report);
    report->status = dpb_device_cpu_ops.open(&device_config, &device);
    if (report->status == DPB_OK)
        report->status = dpb_comm_shm_ops.open(&comm_config, &comm);
    if (report->status == DPB_OK)
        report->status = train(run, rank, device, comm);
    if (comm)
        dpb_comm_shm_ops.close(comm);
    if (device)
        dpb_device_cpu_ops.close(device);
    dpb_log_set_sink(NULL, NULL);
}

static struct run *run_new(int ranks, const struct dpb_ddp_options *options)
{
    struct run *run = forked_memory(sizeof(*run));

    run->ranks = ranks;
    run->accumulate = 1;
    run->options = *options;
    return run;
}

static void run_all(struct run *run)
{
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    assert_int_equal(forked_run(run->ranks, run_rank, run), 0);
    close(run->segment_fd);
}

static void run_well(struct run *run)
{
    run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        if (run->report[r].log[0])
            print_error("rank %d: %s", r, run->report[r].log);
        assert_int_equal(run->report[r].status, DPB_OK);
    }
}

static void run_free(struct run *run)
{
    forked_memory_free(run, sizeof(*run));
}

/* ---- what training must give ---- */

/* Does the rank use the parameter in that forward pass, from 1? */
static bool uses(const struct tiny_options *tiny, int param, int64_t forward)
{
    return param + 1 != tiny->unused || forward < tiny->unused_from ||
           (tiny->unused_to > 0 && forward > tiny->unused_to);
}

/* A step of SGD with lr 0.25 and momentum 0.5 on the sum of the gradients of what is used; what no
 * rank uses stays as it is. */
static void expected_step(const struct run *run, int step, int param, float *value, float *momentum)
{
    const int64_t batch = BATCH / run->accumulate, each = batch / run->ranks;
    const int64_t first_forward = step * run->accumulate + 1;
    bool is_used = false;

    for (int r = 0; r < run->ranks; r++)
        for (int64_t m = 0; m < run->accumulate; m++)
            is_used |= uses(&run->tiny[r], param, first_forward + m);
    for (int64_t i = 0; i < tiny_numel(param) && is_used; i++) {
        int sum = 0;

        for (int r = 0; r < run->ranks; r++)
            for (int64_t m = 0; m < run->accumulate; m++)
                for (int64_t s = 0; s < each && uses(&run->tiny[r], param, first_forward + m); s++)
                    sum += tiny_gradient(param, i, value[i],
                                         (step * run->accumulate + m) * batch + r * each + s);
        momentum[i] = 0.5f * momentum[i] + (float)sum;
        value[i] -= 0.25f * momentum[i];
    }
}

static void expect_training(const struct run *run)
{
    static float value[ELEMENTS], momentum[ELEMENTS];

    memset(momentum, 0, sizeof(momentum));
    for (int p = 0, at = 0; p < TINY_PARAMS; p++)
        for (int64_t i = 0; i < tiny_numel(p); i++)
            value[at++] = tiny_initial(p, i, 3);
    for (int step = 0; step < STEPS; step++) {
        for (int p = 0, at = 0; p < TINY_PARAMS; at += (int)tiny_numel(p), p++)
            expected_step(run, step, p, value + at, momentum + at);
        for (int r = 0; r < run->ranks; r++)
            for (int i = 0; i < ELEMENTS; i++)
                if (run->report[r].params[step][i] != value[i])
                    fail_msg("step %d, rank %d, element %d: %g, should be %g", step + 1, r, i,
                             (double)run->report[r].params[step][i], (double)value[i]);
    }
}

/* ---- unused parameters ---- */

static const struct dpb_ddp_options finding[] = {
        {SMALL, .overlap = true, .find_unused = true},
        {SMALL, .overlap = true, .find_unused = true, .gradient_as_bucket_view = true},
        {SMALL, .overlap = false, .find_unused = true},
        {SMALL, .overlap = true, .find_unused = true, .hook = DPB_DDP_HOOK_ALLREDUCE},
};
#define FINDING_COUNT (sizeof(finding) / sizeof(finding[0]))

static void test_parameter_that_no_rank_uses(void **state)
{
    (void)state;
    for (size_t o = 0; o < FINDING_COUNT; o++) {
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            struct run *run = run_new(ranks, &finding[o]);

            for (int r = 0; r < ranks; r++)
                run->tiny[r].unused = 1 + (int)o;
            run_well(run);
            expect_training(run);
            run_free(run);
        }
    }
}

/* Rank 1 leaves out what the others use, in steps 2 and 3. */
static void test_parameter_that_one_rank_does_not_use(void **state)
{
    (void)state;
    for (size_t o = 0; o < FINDING_COUNT; o++) {
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            struct run *run = run_new(ranks, &finding[o]);

            run->tiny[1].unused = 3;
            run->tiny[1].unused_from = 2;
            run->tiny[1].unused_to = 3;
            run_well(run);
            expect_training(run);
            run_free(run);
        }
    }
}

/* Everybody leaves it out in one step: it keeps its value and its momentum. */
static void test_parameter_that_a_step_leaves_out(void **state)
{
    (void)state;
    for (size_t o = 0; o < FINDING_COUNT; o++) {
        struct run *run = run_new(2, &finding[o]);

        for (int r = 0; r < run->ranks; r++) {
            run->tiny[r].unused = 5;
            run->tiny[r].unused_from = run->tiny[r].unused_to = 2;
        }
        run_well(run);
        expect_training(run);
        run_free(run);
    }
}

/* A parameter that only the second micro-batch uses, or only the first, has that one's gradient. */
static void test_unused_in_a_micro_batch(void **state)
{
    (void)state;
    for (size_t o = 0; o < FINDING_COUNT; o++) {
        for (int64_t which = 3; which <= 4; which++) {
            struct run *run = run_new(2, &finding[o]);

            run->accumulate = 2;
            for (int r = 0; r < run->ranks; r++) {
                run->tiny[r].unused = 4;
                run->tiny[r].unused_from = run->tiny[r].unused_to = which; /* of step 2 */
            }
            run_well(run);
            expect_training(run);
            run_free(run);
        }
    }
}

/* A static graph finds out in step 1, and rebuilds its buckets with the unused one at the end. */
static void test_static_graph_with_an_unused_parameter(void **state)
{
    struct dpb_ddp_options options = {SMALL, .overlap = true, .static_graph = true};

    (void)state;
    for (int view = 0; view < 2; view++) {
        options.gradient_as_bucket_view = view;
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            struct run *run = run_new(ranks, &options);

            run->tiny[0].unused = 5;
            for (int r = 1; r < ranks; r++) /* with several, the last rank uses it */
                run->tiny[r].unused = r < ranks - 1 ? 5 : 0;
            run_well(run);
            expect_training(run);
            run_free(run);
        }
    }
}

static void test_unused_without_looking_is_an_error(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true};
    struct run *run = run_new(2, &options);

    (void)state;
    run->tiny[1].unused = 2;
    run_all(run);
    assert_int_equal(run->report[1].status, DPB_ERR_INTERNAL);
    assert_int_equal(run->report[0].status, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(run->report[1].log, "backward ended without parameter \"in.bias\""));
    run_free(run);
}

/* ---- buffers ---- */

/* Every rank computes with rank 0's: forward finds 0 where rank r put r. */
static void test_buffers_become_those_of_rank_0(void **state)
{
    struct dpb_ddp_options options = {SMALL, .overlap = true};

    (void)state;
    for (int broadcasts = 0; broadcasts < 2; broadcasts++) {
        for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
            struct run *run = run_new(3, &options);

            run->options.broadcast_buffers = broadcasts;
            run->accumulate = accumulate;
            for (int r = 0; r < run->ranks; r++)
                run->tiny[r].has_buffers = true;
            run_well(run);
            expect_training(run);
            for (int r = 0; r < run->ranks; r++) {
                const struct report *report = &run->report[r];

                assert_true(report->local[0] == (broadcasts ? 0.0f : (float)r));
                assert_true(report->local[1] == report->local[0]);
                assert_true(report->replicated[0] == 1.0f + 2.0f + 3.0f + 4.0f);
                /* one for all buffers, once per step, beside the four buckets */
                assert_int_equal(report->after.collectives - report->before.collectives,
                                 4 + broadcasts);
            }
            run_free(run);
        }
    }
}

/* ---- beside what the workload exchanges itself ---- */

/* A hook of one stage starts its collectives at the same place on every rank; one of several starts
 * them when others have ended, and is refused. */
static void test_hooks_beside_exchanges_of_the_workload(void **state)
{
    static const struct dpb_ddp_options options[] = {
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_BF16},
            {SMALL, .overlap = true, .hook = DPB_DDP_HOOK_POWERSGD,
             .powersgd = {.rank = 1, .start_step = 2, .min_rate = 2.0}},
    };

    (void)state;
    for (int o = 0; o < 2; o++) {
        struct run *run = run_new(2, &options[o]);

        for (int r = 0; r < run->ranks; r++)
            run->tiny[r].exchange = TINY_EXCHANGE_CORRECT;
        run_all(run);
        for (int r = 0; r < run->ranks; r++) {
            assert_int_equal(run->report[r].status, o == 0 ? DPB_OK : DPB_ERR_USAGE);
            if (o == 1)
                assert_non_null(strstr(run->report[r].log, "in chains of collectives"));
        }
        run_free(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_golden_all_reduce),
            cmocka_unit_test(test_golden_fp16),
            cmocka_unit_test(test_golden_no_sync),
            cmocka_unit_test(test_three_ranks_divide_before_they_add),
            cmocka_unit_test(test_same_bits_as_none),
            cmocka_unit_test(test_parameter_that_no_rank_uses),
            cmocka_unit_test(test_parameter_that_one_rank_does_not_use),
            cmocka_unit_test(test_parameter_that_a_step_leaves_out),
            cmocka_unit_test(test_unused_in_a_micro_batch),
            cmocka_unit_test(test_static_graph_with_an_unused_parameter),
            cmocka_unit_test(test_unused_without_looking_is_an_error),
            cmocka_unit_test(test_buffers_become_those_of_rank_0),
            cmocka_unit_test(test_hooks_beside_exchanges_of_the_workload),
    };

    return DPB_RUN_TESTS(tests);
}
