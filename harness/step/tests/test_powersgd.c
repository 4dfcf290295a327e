/* The hook `powersgd` of ddp: PyTorch's numbers, from PyTorch's first factors; what its options do;
 * and real ranks. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_strategies.h"

#include "ddp_powersgd.h"
#include "golden.h"

#define RANKS     2
#define PARAMS    4
#define TOLERANCE 5e-6

static const struct dpb_param_info params[PARAMS] = {
        {.name = "w1", .dtype = DPB_F32, .rank = 2, .dim = {12, 8}, .numel = 96},
        {.name = "b1", .dtype = DPB_F32, .rank = 1, .dim = {12}, .numel = 12},
        {.name = "w2", .dtype = DPB_F32, .rank = 2, .dim = {6, 20}, .numel = 120},
        {.name = "w3", .dtype = DPB_F32, .rank = 2, .dim = {4, 2}, .numel = 8},
};
static const struct dpb_model model = {.params = params, .param_count = PARAMS};
static const int first_element[PARAMS] = {0, 96, 108, 228};

#define POWERSGD(...)                                                                              \
    {                                                                                              \
        .bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 20, .overlap = true,                   \
        .hook = DPB_DDP_HOOK_POWERSGD, .powersgd = {                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define RANK_2 .rank = 2, .start_step = 2, .min_rate = 1.0
#define BOTH   .error_feedback = true, .warm_start = true

/* ---- two ranks in one process ---- */

struct rank_under_test {
    struct dpb_sync_services services;
    struct dpb_launcher launcher;
    ddp_hook *hook;
    float *bucket, *shared;
    struct dpb_sync_coll started;
    char names[256]; /* of what it started in the step */
};

struct pair {
    dpb_device *device;
    struct dpb_unit_plan plan;
    struct rank_under_test rank[RANKS];
};

static dpb_status shared_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct rank_under_test *self = ctx;

    self->shared = calloc(1, bytes);
    *buffer = self->shared;
    return self->shared ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static void *unit_data(void *ctx, int unit)
{
    assert_int_equal(unit, 0);
    return ((struct rank_under_test *)ctx)->bucket;
}

static dpb_status start(void *ctx, const struct dpb_sync_coll *coll, int *handle)
{
    struct rank_under_test *self = ctx;
    const size_t used = strlen(self->names);

    assert_int_equal(coll->kind, DPB_COLL_ALL_REDUCE);
    snprintf(self->names + used, sizeof(self->names) - used, "%s.%d ",
             coll->name ? coll->name : "plain", (int)coll->count);
    self->started = *coll;
    *handle = 0;
    return DPB_OK;
}

static void open_pair(struct pair *pair, const struct dpb_ddp_options *options)
{
    const struct dpb_device_config device = {.local_size = 1, .threads = 1};

    *pair = (struct pair){0};
    assert_int_equal(dpb_device_cpu_ops.open(&device, &pair->device), DPB_OK);
    assert_int_equal(dpb_unit_plan_fused(params, PARAMS, NULL, &pair->plan), DPB_OK);
    for (int r = 0; r < RANKS; r++) {
        struct rank_under_test *rank = &pair->rank[r];
        const struct ddp_hook_config config = {
                .rank = r, .world_size = RANKS, .options = options, .services = &rank->services};
        static const struct dpb_recorder_config none = {0};

        rank->launcher.device = pair->device;
        assert_int_equal(dpb_recorder_none_ops.open(&none, &rank->launcher.recorder), DPB_OK);
        assert_int_equal(dpb_device_cpu_ops.stream_open(pair->device, &rank->launcher.stream),
                         DPB_OK);
        rank->services = (struct dpb_sync_services){.ctx = rank,
                                                    .launcher = &rank->launcher,
                                                    .average = 0.5f,
                                                    .shared_alloc = shared_alloc,
                                                    .unit_data = unit_data,
                                                    .start = start};
        rank->bucket = calloc(GOLDEN_ELEMENTS, sizeof(float));
        assert_int_equal(ddp_hook_powersgd_ops.open(&config, &rank->hook), DPB_OK);
        assert_int_equal(ddp_hook_powersgd_ops.plan(rank->hook, &model, &pair->plan), DPB_OK);
        assert_int_equal(ddp_hook_powersgd_ops.place(rank->hook), DPB_OK);
    }
}

static void close_pair(struct pair *pair)
{
    for (int r = 0; r < RANKS; r++) {
        struct rank_under_test *rank = &pair->rank[r];

        ddp_hook_powersgd_ops.close(rank->hook);
        dpb_device_cpu_ops.stream_close(rank->launcher.stream);
        dpb_recorder_none_ops.close(rank->launcher.recorder);
        free(rank->bucket);
        free(rank->shared);
    }
    dpb_unit_plan_release(&pair->plan);
    dpb_device_cpu_ops.close(pair->device);
}

static void reduce(struct pair *pair)
{
    const struct dpb_sync_coll *coll[RANKS] = {&pair->rank[0].started, &pair->rank[1].started};

    assert_int_equal(coll[0]->count, coll[1]->count);
    for (int64_t i = 0; i < coll[0]->count; i++) {
        float *a = (float *)coll[0]->buffer + i, *b = (float *)coll[1]->buffer + i;

        *a = *b = *a * coll[0]->scale + *b * coll[1]->scale;
    }
}

/* Step `step`, from 1, with the file's gradients. */
static void run_step(struct pair *pair, int step)
{
    int stages = 0;

    for (int r = 0; r < RANKS; r++) {
        struct rank_under_test *rank = &pair->rank[r];

        rank->names[0] = '\0';
        golden_read_of_rank("rank_inputs", r, step - 1, rank->bucket);
        ddp_hook_powersgd_ops.step_begin(rank->hook, step);
        stages = ddp_hook_powersgd_ops.stages(rank->hook, 0);
    }
    for (int stage = 0; stage < stages; stage++) {
        for (int r = 0; r < RANKS; r++) {
            int handle[DDP_HOOK_COLLECTIVES_MAX], count;

            assert_int_equal(
                    ddp_hook_powersgd_ops.start(pair->rank[r].hook, 0, stage, handle, &count),
                    DPB_OK);
            assert_int_equal(count, 1);
        }
        reduce(pair);
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ddp_hook_powersgd_ops.finish(pair->rank[r].hook, 0), DPB_OK);
    assert_memory_equal(pair->rank[0].bucket, pair->rank[1].bucket,
                        GOLDEN_ELEMENTS * sizeof(float));
}

/* A matrix of a recorded call of PyTorch's _orthogonalize(): before (0) or after (1) it. */
static const dpb_json *call_matrix(const dpb_json *file, int call, int which)
{
    const dpb_json *calls = dpb_json_get(file, "powersgd_orth_calls");

    assert_int_equal(dpb_json_size(calls), 12);
    return dpb_json_at(dpb_json_at(dpb_json_at(calls, (size_t)call), (size_t)which), 0);
}

static double value_at(const dpb_json *matrix, int64_t row, int64_t column)
{
    return dpb_json_as_real(dpb_json_at(dpb_json_at(matrix, (size_t)row), (size_t)column), NAN);
}

static dpb_json *read_file(void)
{
    dpb_json *file = NULL;

    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/golden_ddp_hooks_ws2.json", &file), DPB_OK);
    return file;
}

/* PyTorch's first random factors; in its calls w2 comes before w1. */
static void take_first_factors(struct pair *pair, const dpb_json *file)
{
    static const int call_of[PARAMS] = {1, -1, 0, -1};

    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < PARAMS; p++) {
            int64_t columns, rank;
            float *q = ddp_powersgd_q(pair->rank[r].hook, p, &columns, &rank);

            assert_int_equal(q != NULL, call_of[p] >= 0);
            if (!q)
                continue;
            assert_int_equal(rank, 2);
            assert_int_equal(columns, params[p].numel / params[p].dim[0]);
            for (int64_t i = 0; i < columns * rank; i++)
                q[i] = (float)value_at(call_matrix(file, call_of[p], 0), i / rank, i % rank);
        }
    }
}

static double apart(const struct pair *pair, const float *expected, int param)
{
    double worst = 0;

    for (int64_t i = 0; i < params[param].numel; i++) {
        const int64_t at = first_element[param] + i;

        worst = fmax(worst, fabs((double)pair->rank[0].bucket[at] - (double)expected[at]));
    }
    return worst;
}

/* Iterations 0 and 1 plain, bit by bit; 2 to 4 compressed. */
static void test_golden(void **state)
{
    static const struct dpb_ddp_options options = POWERSGD(RANK_2, BOTH);
    dpb_json *file = read_file();
    float expected[GOLDEN_ELEMENTS];
    struct pair pair;

    (void)state;
    open_pair(&pair, &options);
    take_first_factors(&pair, file);
    for (int step = 1; step <= GOLDEN_STEPS; step++) {
        run_step(&pair, step);
        golden_read("powersgd_rank2", step - 1, expected);
        if (step <= 2) {
            assert_memory_equal(pair.rank[0].bucket, expected, sizeof(expected));
            assert_string_equal(pair.rank[0].names, "plain.236 ");
            continue;
        }
        for (int p = 0; p < PARAMS; p++)
            assert_true(apart(&pair, expected, p) <= TOLERANCE);
        assert_string_equal(pair.rank[0].names, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 ");
    }
    close_pair(&pair);
    dpb_json_free(file);
}

/* Every recorded call of _orthogonalize(). */
static void test_golden_orthogonalize(void **state)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_json *file = read_file();
    dpb_device *device;

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    for (int call = 0; call < 12; call++) {
        const dpb_json *before = call_matrix(file, call, 0), *after = call_matrix(file, call, 1);
        const int64_t rows = (int64_t)dpb_json_size(before);
        float x[40];
        const struct dpb_orthogonalize_args args = {.x = dpb_tensor_2d(x, rows, 2)};

        assert_in_range(rows, 6, 20);
        for (int64_t i = 0; i < rows * 2; i++)
            x[i] = (float)value_at(before, i / 2, i % 2);
        assert_int_equal(dpb_op_launch(device, DPB_OP_ORTHOGONALIZE, &args, NULL), DPB_OK);
        for (int64_t i = 0; i < rows * 2; i++)
            assert_true(fabs((double)x[i] - value_at(after, i / 2, i % 2)) <= TOLERANCE);
    }
    dpb_device_cpu_ops.close(device);
    dpb_json_free(file);
}

/* ---- what options do ---- */

static void run_steps(const struct dpb_ddp_options *options, int steps, float *last, char *names,
                      size_t names_bytes)
{
    struct pair pair;

    open_pair(&pair, options);
    for (int step = 1; step <= steps; step++)
        run_step(&pair, step);
    memcpy(last, pair.rank[0].bucket, GOLDEN_ELEMENTS * sizeof(float));
    snprintf(names, names_bytes, "%s", pair.rank[0].names);
    close_pair(&pair);
}

static double apart_in(const float *a, const float *b, int param)
{
    double worst = 0;

    for (int64_t i = 0; i < params[param].numel; i++)
        worst = fmax(worst, fabs((double)a[first_element[param] + i] -
                                 (double)b[first_element[param] + i]));
    return worst;
}

/* With factors as wide as the matrices nothing is left out. */
static void test_full_rank_is_the_mean(void **state)
{
    static const struct dpb_ddp_options full =
            POWERSGD(.rank = 8, .start_step = 2, .min_rate = 0.1, BOTH);
    float mean[GOLDEN_ELEMENTS], b[GOLDEN_ELEMENTS], last[GOLDEN_ELEMENTS];
    char names[256];

    (void)state;
    run_steps(&full, 3, last, names, sizeof(names));
    golden_read_of_rank("rank_inputs", 0, 2, mean);
    golden_read_of_rank("rank_inputs", 1, 2, b);
    for (int i = 0; i < GOLDEN_ELEMENTS; i++)
        mean[i] = 0.5f * (mean[i] + b[i]);
    for (int p = 0; p < PARAMS; p++)
        assert_true(apart_in(last, mean, p) <= 1e-5);
    assert_string_equal(names, "powersgd-rest.12 powersgd-p.140 powersgd-q.188 ");
}

static void test_options_matter(void **state)
{
    static const struct dpb_ddp_options usual = POWERSGD(RANK_2, BOTH),
                                        cold = POWERSGD(RANK_2, .error_feedback = true),
                                        forgetful = POWERSGD(RANK_2, .warm_start = true),
                                        rough = POWERSGD(RANK_2, BOTH, .epsilon = 0.1),
                                        thin = POWERSGD(.rank = 1, .start_step = 2, .min_rate = 1,
                                                        BOTH),
                                        late = POWERSGD(.rank = 2, .start_step = 4, .min_rate = 1,
                                                        BOTH),
                                        picky = POWERSGD(.rank = 2, .start_step = 2,
                                                         .min_rate = 2.35, BOTH),
                                        neither = POWERSGD(.rank = 2, .min_rate = 1);
    static const struct {
        const struct dpb_ddp_options *options;
        const char *names;
    } others[] = {
            {&cold, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 "},
            {&forgetful, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 "},
            {&rough, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 "},
            {&thin, "powersgd-rest.12 powersgd-p.22 powersgd-q.30 "},
            {&late, "plain.236 "},
            {&picky, "powersgd-rest.140 powersgd-p.24 powersgd-q.16 "},
            {&neither, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 "},
    };
    float expected[GOLDEN_ELEMENTS], got[GOLDEN_ELEMENTS];
    char names[256];

    (void)state;
    run_steps(&usual, 4, expected, names, sizeof(names));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        run_steps(others[i].options, 4, got, names, sizeof(names));
        if (fmax(apart_in(got, expected, 0), apart_in(got, expected, 2)) <= 1e-3)
            fail_msg("case %zu changes nothing", i);
        if (strcmp(names, others[i].names) != 0)
            fail_msg("case %zu sends \"%s\"", i, names);
        run_steps(others[i].options, 4, expected, names, sizeof(names)); /* and again the same */
        assert_memory_equal(got, expected, sizeof(got));
        run_steps(&usual, 4, expected, names, sizeof(names));
    }
    run_steps(&neither, 1, got, names, sizeof(names)); /* from the first step on */
    assert_string_equal(names, "powersgd-rest.20 powersgd-p.36 powersgd-q.56 ");
}

/* Memory and messages, by hand: factors of w1 [12,8] and w2 [6,20], every part of a gradient a
 * multiple of 16 elements. */
static void test_memory_and_messages(void **state)
{
    static const struct dpb_ddp_options both = POWERSGD(RANK_2, BOTH),
                                        neither = POWERSGD(.rank = 2, .min_rate = 1);
    const int64_t rest = 16 + 16, p = 32 + 16, q = 16 + 48, error = 96 + 128;
    struct dpb_strategy_memory memory = {0};
    struct dpb_sync_message message[3];
    struct pair pair;

    (void)state;
    open_pair(&pair, &both);
    ddp_hook_powersgd_ops.memory(pair.rank[0].hook, &memory);
    assert_int_equal(memory.shared_bytes, (rest + p + q) * 4);
    assert_int_equal(memory.private_bytes, error * 4);
    assert_int_equal(ddp_hook_powersgd_ops.messages(pair.rank[0].hook, 0, NULL), 3);
    assert_int_equal(ddp_hook_powersgd_ops.messages(pair.rank[0].hook, 0, message), 3);
    assert_int_equal(message[0].count, 20);
    assert_int_equal(message[1].count, 36);
    assert_int_equal(message[2].count, 56);
    close_pair(&pair);
    open_pair(&pair, &neither);
    memory = (struct dpb_strategy_memory){0};
    ddp_hook_powersgd_ops.memory(pair.rank[0].hook, &memory);
    assert_int_equal(memory.private_bytes, q * 4);
    close_pair(&pair);
}

static void collect(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    snprintf(ctx, 512, "%s", line);
}

static void test_bad_options(void **state)
{
    static const struct dpb_ddp_options
            no_rank = POWERSGD(.start_step = 2, .min_rate = 1, BOTH),
            early = POWERSGD(.rank = 1, .start_step = 1, .min_rate = 1, .warm_start = true),
            no_hook = {.bucket_bytes = 1, .first_bucket_bytes = 1, .powersgd = {RANK_2, BOTH}},
            usual = {.bucket_bytes = 1,
                     .first_bucket_bytes = 1,
                     .powersgd = {.rank = 1, .start_step = 2, .min_rate = 2, BOTH}},
            early_alone = POWERSGD(.rank = 1, .min_rate = 1);
    const struct dpb_ddp_options *const bad[] = {&no_rank, &early, &no_hook};
    char error[512] = "";

    (void)state;
    dpb_log_set_sink(collect, error);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ddp_powersgd_check(bad[i]), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_int_equal(ddp_powersgd_check(&usual), DPB_OK);
    assert_int_equal(ddp_powersgd_check(&early_alone), DPB_OK);
    assert_true(dpb_strategy_flags(&dpb_strategy_ddp_ops, &early_alone) & DPB_STRATEGY_LOSSY);
    assert_false(dpb_strategy_flags(&dpb_strategy_ddp_ops, &usual) & DPB_STRATEGY_LOSSY);
}

/* ---- real ranks ---- */

/* Replicas are compared after every step. What is not compressed is the mean, and what is comes
 * nearer to it over the steps than one step's gradient is, since errors are fed back. */
static void test_ranks(void **state)
{
    static const struct dpb_ddp_options options[] = {POWERSGD(RANK_2, BOTH),
                                                     POWERSGD(.rank = 2, .min_rate = 1),
                                                     {.bucket_bytes = 64,
                                                      .first_bucket_bytes = 16,
                                                      .overlap = true,
                                                      .hook = DPB_DDP_HOOK_POWERSGD,
                                                      .powersgd = {RANK_2, BOTH}},
                                                     {.bucket_bytes = 64,
                                                      .first_bucket_bytes = 16,
                                                      .gradient_as_bucket_view = true,
                                                      .hook = DPB_DDP_HOOK_POWERSGD,
                                                      .powersgd = {RANK_2, BOTH}}};

    (void)state;
    for (size_t o = 0; o < sizeof(options) / sizeof(options[0]); o++) {
        struct golden_run *run = golden_run_new(&dpb_strategy_ddp_ops, &options[o], GOLDEN_STEPS);

        golden_run_all(run);
        for (int step = 0; step < GOLDEN_STEPS; step++) {
            const float *got = run->report[0].reduced[step];
            float mean[GOLDEN_ELEMENTS];

            for (int i = 0; i < GOLDEN_ELEMENTS; i++)
                mean[i] = 0.5f * (run->input[0][step][i] + run->input[1][step][i]);
            assert_memory_equal(got, run->report[1].reduced[step], sizeof(mean));
            assert_true(apart_in(got, mean, 1) <= 1e-6);
            assert_true(apart_in(got, mean, 3) <= 1e-6);
            if (step < options[o].powersgd.start_step)
                assert_memory_equal(got, mean, sizeof(mean));
            else
                assert_true(apart_in(got, mean, 0) > 1e-3 && apart_in(got, mean, 2) > 1e-3);
        }
        golden_run_free(run);
    }
}

/* Buckets of their own: the same factors, hence the same gradients. */
static void test_buckets_change_nothing(void **state)
{
    static const struct dpb_ddp_options one = POWERSGD(RANK_2, BOTH),
                                        many = {.bucket_bytes = 64,
                                                .first_bucket_bytes = 16,
                                                .overlap = true,
                                                .hook = DPB_DDP_HOOK_POWERSGD,
                                                .powersgd = {RANK_2, BOTH}};
    struct golden_run *a = golden_run_new(&dpb_strategy_ddp_ops, &one, GOLDEN_STEPS);
    struct golden_run *b = golden_run_new(&dpb_strategy_ddp_ops, &many, GOLDEN_STEPS);

    (void)state;
    golden_run_all(a);
    golden_run_all(b);
    for (int p = 0; p < PARAMS; p++)
        assert_true(apart_in(a->report[0].reduced[4], b->report[0].reduced[4], p) <= 1e-5);
    golden_run_free(a);
    golden_run_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_golden),
            cmocka_unit_test(test_golden_orthogonalize),
            cmocka_unit_test(test_full_rank_is_the_mean),
            cmocka_unit_test(test_options_matter),
            cmocka_unit_test(test_memory_and_messages),
            cmocka_unit_test(test_bad_options),
            cmocka_unit_test(test_ranks),
            cmocka_unit_test(test_buckets_change_nothing),
    };

    return DPB_RUN_TESTS(tests);
}
