/* Strategy `horovod` in a world that a test winds on (horovod_world.h). */
#include "dpb_test.h"

#include "horovod_world.h"
#include "rig.h"

/* "a" to "d", of 5, 8, 8 and 4 elements, ready from the last to the first. */
static const struct dpb_param_info four_params[] = {
        {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {5}, .numel = 5},
        {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "c", .dtype = DPB_F32, .rank = 2, .dim = {2, 4}, .numel = 8},
        {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
};
static const int four_order[] = {3, 2, 1, 0};
static const struct dpb_model four = {
        .params = four_params, .param_count = 4, .ready_order = four_order};

/* Horovod's own defaults, with a cache. */
static const struct dpb_horovod_options defaults = {
        .threshold_bytes = INT64_C(128) << 20,
        .cycle_ns = MS,
        .cache_capacity = 1024,
        .predivide_factor = 1.0,
        .batch_copies = true,
        .tune_warmups = 3,
        .tune_steps = 10,
        .tune_samples = 20,
};

/* A cycle that outlasts backward: one reduction of everything, d (4), c (8), b (8) and a (5, with 3
 * elements that fill it up). */
static void test_one_cycle(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    assert_int_equal(world.shared_bytes, 512); /* 112, rounded up to the threshold's unit */
    for (int step = 0; step < 3; step++) {
        expect_step(&world, "d c b a | 3.28 w0 ");
        assert_int_equal(world.exchanges, 2 + step); /* lists of requests once, then bits */
        assert_int_equal(world.now_ns, 10 * MS * (step + 1) + 7 * US);
    }
    assert_int_equal(world.word_count[0], 3);
    assert_int_equal(world.word_count[1], 3 * 4);
    assert_int_equal(world.word_count[2], 3);
    assert_int_equal(world.word_count[3], 3);
    assert_int_equal(world.word_count[4], 3);
    world_close(&world);
}

/* A cycle of 150 us against gradients that take 70 us each: those of a cycle go together, as soon
 * as it ends. The first cycle is before the batch. */
static void test_cycles_quantise(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 150 * US;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    world.gradient_ns = 70 * US;
    expect_step(&world, "d c 1.12 w0 b a | 3.16 w1 ");
    world_close(&world);

    /* A single one is reduced where it lies, without filling up. */
    options.cycle_ns = 110 * US;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    world.gradient_ns = 100 * US;
    expect_step(&world, "d 0.4 w0 c 1.8 w1 b 2.8 w2 a | 3.5 w3 ");
    assert_int_equal(world.word_count[3] + world.word_count[4], 0);
    world_close(&world);
}

static void test_threshold(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.threshold_bytes = 0;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    assert_int_equal(world.shared_allocs, 0);
    expect_step(&world, "d c b a | 0.4 1.8 2.8 3.5 w0 w1 w2 w3 ");
    assert_int_equal(world.word_count[3] + world.word_count[4], 0);
    world_close(&world);
}

/* What is reduced must not be written to by the next response's copy: with a buffer for one of two
 * responses, the second waits until the first has been copied out. */
static const struct dpb_param_info big_params[] = {
        {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {60}, .numel = 60},
        {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {60}, .numel = 60},
        {.name = "c", .dtype = DPB_F32, .rank = 1, .dim = {60}, .numel = 60},
        {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {60}, .numel = 60},
        {.name = "e", .dtype = DPB_F32, .rank = 1, .dim = {200}, .numel = 200},
};
static const int big_order[] = {0, 1, 2, 3, 4};
static const struct dpb_model big = {
        .params = big_params, .param_count = 5, .ready_order = big_order};

static void test_fusion_buffer_is_not_overwritten(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.threshold_bytes = 512;
    assert_int_equal(world_open(&world, &big, RANKS, &options), DPB_OK);
    assert_int_equal(world.shared_bytes, 512);
    world.reduce_ns = MS;
    expect_step(&world, "a b c d e | 1.120 w0 3.120 4.200 w1 w2 ");
    expect_step(&world, "a b c d e | 1.120 w0 3.120 4.200 w1 w2 ");
    world_close(&world);
}

/* Collectives work at the same offset on every rank, so places do not depend on how far this one's
 * reductions are. */
static void test_places_do_not_depend_on_progress(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world fast, slow;

    (void)state;
    options.cycle_ns = 250 * US;
    options.threshold_bytes = 1024;
    assert_int_equal(world_open(&fast, &big, RANKS, &options), DPB_OK);
    expect_step(&fast, "a b 1.120 w0 c d 3.120 w1 e | 4.200 w2 ");
    assert_int_equal(fast.offset_bytes[1] - fast.offset_bytes[0], 480);
    assert_int_equal(world_open(&slow, &big, RANKS, &options), DPB_OK);
    slow.reduce_ns = 5 * MS;
    expect_step(&slow, "a b 1.120 c d 3.120 e | 4.200 w0 w1 w2 ");
    assert_memory_equal(fast.offset_bytes, slow.offset_bytes, sizeof(fast.offset_bytes));
    world_close(&fast);
    world_close(&slow);
}

/* Copies back happen in a later cycle when a reduction is complete by then, else at the end. */
static void test_responses_are_finished_in_later_cycles(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 100 * US;
    options.batch_copies = false;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    world.gradient_ns = 60 * US;
    world.reduce_ns = 90 * US;
    expect_step(&world, "d 0.4 c b 2.16 w0 a | 3.5 w1 w2 ");
    world.reduce_ns = 900 * US;
    assert_int_equal(world_step(&world), DPB_OK);
    assert_true(strstr(world.log.text, "| ") < strstr(world.log.text, "w0"));
    world_close(&world);
}

static void test_padding_is_an_option(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.batch_copies = false;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    expect_step(&world, "d c b a | 3.25 w0 ");
    world_close(&world);
}

static void test_no_cache_asks_in_every_step(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.cache_capacity = 0;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    for (int step = 0; step < 3; step++) {
        expect_step(&world, "d c b a | 3.28 w0 ");
        assert_int_equal(world.exchanges, 2 * (step + 1));
    }
    world_close(&world);
}

/* The sum is not touched by where the division is; the factor is taken out before it and put back
 * after it: 100 that the fake adds to the sum comes back twice as much. */
static void test_predivide(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.predivide_factor = 2.0;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    assert_int_equal(world_step(&world), DPB_OK);
    for (int p = 0; p < 4; p++)
        for (int64_t i = 0; i < four_params[p].numel; i++)
            assert_float_equal(fake_grad(&world, p)[i], gradient_of(p, i) + 200.0f, 0.0);
    world_close(&world);
    assert_int_equal(world.ops->flags_of(&options), 0);
    options.predivide_factor = 3.0;
    assert_int_equal(world.ops->flags_of(&options), DPB_STRATEGY_LOSSY);
}

/* Half of the bytes, cast when a gradient is ready and back at the end. */
static void test_compression(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct dpb_strategy_memory memory = {0};
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.compression = DPB_HOROVOD_COMPRESSION_FP16;
    assert_int_equal(dpb_strategy_horovod_ops.flags_of(&options), DPB_STRATEGY_LOSSY);
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_ERR_UNSUPPORTED);
    assert_int_equal(world.errors, 1);
    world_close(&world);

    world_has_fp16 = true;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    world_has_fp16 = false;
    assert_int_equal(world.shared_allocs, 2);
    world.ops->memory(world.strategy, &memory);
    assert_int_equal(memory.shared_bytes, world.shared_bytes);
    assert_int_equal(memory.shared_bytes, 512 + 4 * 64);
    expect_step(&world, "d c b a | 3.32 w0 "); /* multiples of 8 elements */
    expect_step(&world, "d c b a | 3.32 w0 ");
    world_close(&world);
}

static void test_one_rank_communicates_nothing(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct dpb_strategy_memory memory = {0};
    struct world world;

    (void)state;
    options.compression = DPB_HOROVOD_COMPRESSION_FP16;
    options.predivide_factor = 3.0;
    assert_int_equal(world_open(&world, &four, 1, &options), DPB_OK);
    assert_int_equal(world_step(&world), DPB_OK);
    assert_string_equal(world.log.text, "d c b a | ");
    assert_int_equal(world.exchanges + world.shared_allocs, 0);
    assert_int_equal(world.ops->messages(world.strategy, NULL), 0);
    world.ops->memory(world.strategy, &memory);
    assert_int_equal(memory.shared_bytes, 0);
    for (int p = 0; p < 4; p++)
        for (int64_t i = 0; i < four_params[p].numel; i++)
            assert_float_equal(fake_grad(&world, p)[i], gradient_of(p, i), 0.0);
    world_close(&world);
}

/* ---- the behaviour that the specification asks for ---- */

static void many_params(struct dpb_param_info *params, int *order)
{
    unsigned random = 7;

    for (int p = 0; p < PARAMS_MAX; p++) {
        random = random * 1103515245u + 12345u;
        params[p] = (struct dpb_param_info){.name = "p",
                                            .dtype = DPB_F32,
                                            .rank = 1,
                                            .dim = {1 + (random >> 16) % 50},
                                            .numel = 1 + (random >> 16) % 50};
        order[p] = PARAMS_MAX - 1 - p;
    }
}

static int reductions(const struct dpb_model *model, int64_t threshold_bytes, int64_t cycle_ns)
{
    struct dpb_horovod_options options = defaults;
    struct world world;
    int count;

    options.threshold_bytes = threshold_bytes;
    options.cycle_ns = cycle_ns;
    assert_int_equal(world_open(&world, model, RANKS, &options), DPB_OK);
    for (int step = 0; step < 2; step++) {
        world.now_ns = 1000 * MS * step; /* the grid begins with the step */
        assert_int_equal(world_step(&world), DPB_OK);
    }
    count = world.started;
    world_close(&world);
    return count;
}

/* Reductions per step do not become more with the cycle time (grids that contain each other), nor
 * with the threshold; a cycle longer than the step has as many as FuseResponses makes groups. */
static void test_reductions_per_step(void **state)
{
    struct dpb_param_info params[PARAMS_MAX];
    int order[PARAMS_MAX];
    const struct dpb_model model = {
            .params = params, .param_count = PARAMS_MAX, .ready_order = order};

    (void)state;
    many_params(params, order);
    for (int64_t threshold_bytes = 0; threshold_bytes <= 16384;
         threshold_bytes = 2 * threshold_bytes + 512) {
        int before = PARAMS_MAX + 1;

        for (int64_t cycle_ns = 50 * US; cycle_ns <= 30 * MS; cycle_ns *= 2) {
            const int now = reductions(&model, threshold_bytes, cycle_ns);

            assert_true(now <= before);
            assert_true(now <= reductions(&model, 0, cycle_ns));
            before = now;
        }
        struct dpb_horovod_options options = defaults;
        struct world world;

        options.threshold_bytes = threshold_bytes;
        assert_int_equal(world_open(&world, &model, RANKS, &options), DPB_OK);
        assert_int_equal(before, world.ops->messages(world.strategy, NULL));
        world_close(&world);
    }
    assert_int_equal(reductions(&model, 0, 50 * US), PARAMS_MAX);
    assert_int_equal(reductions(&model, 1 << 20, 30 * MS), 1);
}

/* What messages() says is what is reduced when one cycle has everything. */
static void test_messages_are_what_is_sent(void **state)
{
    struct dpb_param_info params[PARAMS_MAX];
    int order[PARAMS_MAX];
    const struct dpb_model model = {
            .params = params, .param_count = PARAMS_MAX, .ready_order = order};
    struct dpb_sync_message message[PARAMS_MAX];
    struct dpb_horovod_options options = defaults;

    (void)state;
    many_params(params, order);
    options.cycle_ns = 100 * MS;
    for (int pads = 0; pads < 2; pads++) {
        struct world world;
        int64_t elements = 0;

        options.threshold_bytes = 2048;
        options.batch_copies = pads;
        assert_int_equal(world_open(&world, &model, RANKS, &options), DPB_OK);
        assert_int_equal(world_step(&world), DPB_OK);
        const int count = world.ops->messages(world.strategy, message);

        assert_int_equal(count, world.started);
        for (int m = 0; m < count; m++) {
            assert_int_equal(world.plan.unit_of[message[m].param], message[m].unit);
            elements += message[m].count;
        }
        assert_int_equal(elements, world.elements);
        world_close(&world);
    }
}

/* ---- two levels ---- */

static void test_two_levels(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct dpb_strategy_config config = {.world_size = 4, .ranks_per_node = 2, .options = &options};
    struct dpb_unit_plan plan;
    struct dpb_sync_message message;
    dpb_strategy *strategy;

    (void)state;
    options.torus = true;
    for (int two_nodes = 0; two_nodes < 2; two_nodes++) {
        config.ranks_per_node = two_nodes ? 2 : 4;
        assert_int_equal(dpb_strategy_horovod_ops.open(&config, &strategy), DPB_OK);
        assert_int_equal(dpb_strategy_horovod_ops.plan(strategy, &four, NULL, &plan), DPB_OK);
        assert_int_equal(dpb_strategy_horovod_ops.messages(strategy, &message), 1);
        assert_int_equal(message.count, two_nodes ? 128 : 28); /* a multiple of 2 x 64 */
        dpb_strategy_horovod_ops.close(strategy);
        dpb_unit_plan_release(&plan);
    }
}

/* The hierarchical reduction blocks the coordinator: each one is waited for before the next. */
static void test_hierarchical_blocks(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    options.threshold_bytes = 512;
    options.hierarchical = true;
    assert_int_equal(world_open(&world, &big, RANKS, &options), DPB_OK);
    world.reduce_ns = MS;
    expect_step(&world, "a b c d e | 1.128 w0 3.128 w1 4.200 w2 ");
    world_close(&world);
}

/* ---- autotuning ---- */

static void test_autotune(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;
    dpb_json *plan;
    const dpb_json *trials;

    (void)state;
    options.autotune = true;
    options.tune_warmups = 1;
    options.tune_steps = 2;
    options.tune_samples = 4;
    options.threshold_bytes = 0;
    options.cycle_ns = 50 * MS;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    assert_int_equal(world.shared_bytes, 512);
    for (int step = 0; step < 10; step++) {
        assert_int_equal(world_step(&world), DPB_OK);
        /* The samples' first steps: 1 and 3 at the start, 5, 7 and 9 on other thresholds. */
        assert_int_equal(world.started, step < 4 ? 4 : 1);
    }
    plan = dpb_json_object();
    world.ops->describe(world.strategy, plan);
    trials = dpb_json_get(dpb_json_get(plan, "autotune"), "trials");
    assert_int_equal(dpb_json_size(trials), 3);
    assert_false(dpb_json_as_bool(dpb_json_get(dpb_json_get(plan, "autotune"), "is_frozen"), true));
    /* Two steps of 25 floats, each ended by a cycle of 50 ms. */
    assert_float_equal(dpb_json_as_real(dpb_json_get(dpb_json_at(trials, 0), "bytes_per_s"), 0.0),
                       2 * 100 / 0.1, 2 * 100 / 0.1 * 0.01);
    dpb_json_free(plan);

    assert_int_equal(world_step(&world), DPB_OK);
    plan = dpb_json_object();
    world.ops->describe(world.strategy, plan);
    assert_true(dpb_json_as_bool(dpb_json_get(dpb_json_get(plan, "autotune"), "is_frozen"), false));
    assert_int_equal(dpb_json_as_int(dpb_json_get(plan, "cycle_time_ns"), 0), 50 * MS);
    dpb_json_free(plan);
    const int exchanges = world.exchanges;

    for (int step = 0; step < 4; step++)
        assert_int_equal(world_step(&world), DPB_OK);
    assert_int_equal(world.exchanges, exchanges + 4); /* nothing but bits */
    world_close(&world);
}

/* ---- mistakes ---- */

static void test_bad_options(void **state)
{
    struct dpb_horovod_options options;
    struct dpb_strategy_config config = {.world_size = 2, .ranks_per_node = 2, .options = &options};
    dpb_strategy *strategy = NULL;
    int errors = 0;

    (void)state;
    dpb_log_set_sink(count_error, &errors);
#define EXPECT_REFUSED(change)                                                                     \
    do {                                                                                           \
        options = defaults;                                                                        \
        change;                                                                                    \
        assert_int_equal(dpb_strategy_horovod_ops.open(&config, &strategy), DPB_ERR_USAGE);        \
    } while (0)
    EXPECT_REFUSED(options.threshold_bytes = -1);
    EXPECT_REFUSED(options.cycle_ns = -1);
    EXPECT_REFUSED(options.cache_capacity = -1);
    EXPECT_REFUSED(options.predivide_factor = 0.0);
    EXPECT_REFUSED(options.hierarchical = options.torus = true);
    EXPECT_REFUSED(options.tune_samples = 5);
    EXPECT_REFUSED(config.options = NULL);
#undef EXPECT_REFUSED
    assert_int_equal(errors, 7);
    dpb_log_set_sink(NULL, NULL);
}

static void test_misuse_and_failures(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct world world;

    (void)state;
    options.cycle_ns = 10 * MS;
    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    assert_int_equal(world.ops->step_begin(world.strategy, 1), DPB_OK);
    assert_int_equal(world.ops->grad_ready(world.strategy, 3), DPB_OK);
    assert_int_equal(world.ops->grad_ready(world.strategy, 3), DPB_ERR_INTERNAL);
    assert_int_equal(world.ops->grad_ready(world.strategy, 4), DPB_ERR_INTERNAL);
    assert_int_equal(world.ops->backward_end(world.strategy), DPB_ERR_INTERNAL);
    assert_int_equal(world.errors, 3);
    assert_int_equal(world.started, 0);
    world_close(&world);

    assert_int_equal(world_open(&world, &four, RANKS, &options), DPB_OK);
    world.fail_start = 1;
    assert_int_equal(world_step(&world), DPB_ERR_RANK_FAILED);
    world_close(&world);
}

/* Its collectives and the coordinator's would be started in another order on every rank. */
static void test_workload_that_exchanges_is_refused(void **state)
{
    struct rig rig;

    (void)state;
    for (int world_size = 1; world_size <= 2; world_size++) {
        rig_init(&rig, &dpb_strategy_horovod_ops, world_size);
        rig.config.strategy_options = &defaults;
        rig.options.exchange = TINY_EXCHANGE_CORRECT;
        assert_int_equal(dpb_step_open(&rig.config, &rig.engine),
                         world_size == 1 ? DPB_OK : DPB_ERR_USAGE);
        assert_int_equal(rig_has_logged(&rig, "from a thread of its own"), world_size == 2);
        rig_release(&rig);
    }
}

static void test_presets(void **state)
{
    const struct {
        const struct dpb_strategy_ops *ops;
        const char *threshold, *cycle;
    } presets[] = {
            {&dpb_strategy_horovod_ops, "128MiB", "1ms"},
            {&dpb_strategy_horovod_legacy_ops, "64MiB", "5ms"},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct dpb_option_table *table = presets[i].ops->options;

        assert_int_equal(dpb_strategy_ops_check(presets[i].ops), DPB_OK);
        assert_int_equal(table->row_count, 12);
        assert_string_equal(table->rows[0].name, "fusion-threshold");
        assert_string_equal(table->rows[0].default_text, presets[i].threshold);
        assert_string_equal(table->rows[1].name, "cycle-time");
        assert_string_equal(table->rows[1].default_text, presets[i].cycle);
        for (size_t row = 0; row < table->row_count; row++)
            assert_true(table->rows[row].flags & DPB_OPT_COMM_ONLY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_cycle),
            cmocka_unit_test(test_cycles_quantise),
            cmocka_unit_test(test_threshold),
            cmocka_unit_test(test_fusion_buffer_is_not_overwritten),
            cmocka_unit_test(test_places_do_not_depend_on_progress),
            cmocka_unit_test(test_responses_are_finished_in_later_cycles),
            cmocka_unit_test(test_padding_is_an_option),
            cmocka_unit_test(test_no_cache_asks_in_every_step),
            cmocka_unit_test(test_predivide),
            cmocka_unit_test(test_compression),
            cmocka_unit_test(test_one_rank_communicates_nothing),
            cmocka_unit_test(test_reductions_per_step),
            cmocka_unit_test(test_messages_are_what_is_sent),
            cmocka_unit_test(test_two_levels),
            cmocka_unit_test(test_hierarchical_blocks),
            cmocka_unit_test(test_autotune),
            cmocka_unit_test(test_bad_options),
            cmocka_unit_test(test_misuse_and_failures),
            cmocka_unit_test(test_workload_that_exchanges_is_refused),
            cmocka_unit_test(test_presets),
    };

    return DPB_RUN_TESTS(tests);
}
