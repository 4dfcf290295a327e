/* Strategy `horovod` on real ranks, against one rank that has the whole batch. When cycles fall is
 * up to the machine, so what is compared must hold for every way of fusing. */
#include "dpb_test.h"

#include "dpb_link_model.h"
#include "dpb_strategies.h"
#include "strategy_ranks.h"

#define MS INT64_C(1000000)

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

static void run(struct strategy_run *run)
{
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        const struct strategy_report *report = &run->report[r];

        if (report->log[0])
            print_error("rank %d: %s", r, report->log);
        assert_int_equal(report->open, DPB_OK);
        assert_int_equal(report->step, DPB_OK);
        assert_int_equal(report->replicas, DPB_OK);
        assert_int_equal(report->steps, STRATEGY_STEPS);
    }
}

static struct strategy_run *reference_run(void)
{
    struct strategy_run *reference = strategy_run_new(1, &dpb_strategy_none_ops, NULL);

    run(reference);
    return reference;
}

static void expect_same_parameters(const struct strategy_run *run,
                                   const struct strategy_run *reference)
{
    for (int r = 0; r < run->ranks; r++)
        for (int step = 0; step < STRATEGY_STEPS; step++)
            assert_memory_equal(run->report[r].params[step], reference->report[0].params[step],
                                (size_t)reference->report[0].elements * sizeof(float));
}

/* Bytes of an all-reduce of `elements` floats, of all ranks together. */
static int64_t wire_bytes(int ranks, int64_t elements)
{
    int64_t bytes = 0;

    for (int r = 0; r < ranks; r++)
        bytes += dpb_algorithm_wire_bytes(DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_REDUCE, ranks, r, 0,
                                          elements, sizeof(float));
    return bytes;
}

/* What travels is the gradients, between not filled up at all and each to a multiple of 16 bytes.
 */
static void expect_bytes(const struct strategy_run *run)
{
    int64_t all = 0, least = 0, most = 0;

    for (int r = 0; r < run->ranks; r++) {
        assert_in_range(run->report[r].collectives, 1, TINY_PARAMS);
        assert_int_equal(run->report[r].communication_bytes,
                         run->report[r].predicted.communication);
        all += run->report[r].wire_bytes;
    }
    for (int p = 0; p < TINY_PARAMS; p++) {
        least += tiny_numel(p);
        most += (tiny_numel(p) + 3) / 4 * 4;
    }
    assert_in_range(all, wire_bytes(run->ranks, least), wire_bytes(run->ranks, most));
}

/* Without fusion every message is known: all that is promised of any strategy. */
static void test_without_fusion(void **state)
{
    struct dpb_horovod_options options = defaults;

    (void)state;
    options.threshold_bytes = 0;
    options.cycle_ns = MS / 10;
    strategy_expect_none(&dpb_strategy_horovod_ops, &options);
}

/* Every way of cycles and fusion gives the bits of one rank. */
static void test_fused(void **state)
{
    struct strategy_run *reference = reference_run();
    struct dpb_horovod_options variant[7];
    const int variants = (int)(sizeof(variant) / sizeof(variant[0]));

    (void)state;
    for (int v = 0; v < variants; v++)
        variant[v] = defaults;
    variant[0].cycle_ns = 0;
    variant[1].cycle_ns = 20 * MS; /* one cycle takes all, as a rule */
    variant[2].threshold_bytes = 512;
    variant[2].cycle_ns = 5 * MS;
    variant[3].cache_capacity = 2;
    variant[4].cache_capacity = 0;
    variant[5].batch_copies = false;
    variant[6].predivide_factor = 4.0;
    for (int v = 0; v < variants; v++) {
        for (int ranks = 2; ranks <= STRATEGY_RANKS_MAX; ranks++) {
            struct strategy_run *fused =
                    strategy_run_new(ranks, &dpb_strategy_horovod_ops, &variant[v]);

            print_message("variant %d, %d ranks\n", v, ranks);
            fused->other_order_rank = ranks - 1;
            run(fused);
            expect_same_parameters(fused, reference);
            expect_bytes(fused);
            strategy_run_free(fused);
        }
    }
    strategy_run_free(reference);
}

static void test_legacy(void **state)
{
    struct strategy_run *reference = reference_run();
    struct strategy_run *legacy = strategy_run_new(2, &dpb_strategy_horovod_legacy_ops, &defaults);

    (void)state;
    run(legacy);
    expect_same_parameters(legacy, reference);
    strategy_run_free(legacy);
    strategy_run_free(reference);
}

/* All ranks go from sample to sample together. */
static void test_autotune(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct strategy_run *reference = reference_run();
    struct strategy_run *tuned;

    (void)state;
    options.autotune = true;
    options.tune_warmups = 1;
    options.tune_steps = 1;
    options.tune_samples = 2;
    tuned = strategy_run_new(3, &dpb_strategy_horovod_ops, &options);
    run(tuned);
    expect_same_parameters(tuned, reference);
    strategy_run_free(tuned);
    strategy_run_free(reference);
}

/* Half of the bytes; sums of integers this small are exact in fp16 too. */
static void test_compression(void **state)
{
    struct dpb_horovod_options options = defaults;
    struct strategy_run *plain, *compressed;

    (void)state;
    options.threshold_bytes = 0;
    plain = strategy_run_new(2, &dpb_strategy_horovod_ops, &options);
    run(plain);
    options.compression = DPB_HOROVOD_COMPRESSION_FP16;
    compressed = strategy_run_new(2, &dpb_strategy_horovod_ops, &options);
    run(compressed);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(2 * compressed->report[r].wire_bytes, plain->report[r].wire_bytes);
        assert_int_equal(compressed->report[r].wire_bytes, compressed->report[r].message_bytes);
        assert_int_equal(compressed->report[r].communication_bytes,
                         compressed->report[r].predicted.communication);
        assert_true(compressed->report[r].communication_bytes > 0);
    }
    assert_memory_equal(compressed->report[0].params, compressed->report[1].params,
                        sizeof(compressed->report[0].params));
    strategy_run_free(compressed);
    strategy_run_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_without_fusion), cmocka_unit_test(test_fused),
            cmocka_unit_test(test_legacy),         cmocka_unit_test(test_autotune),
            cmocka_unit_test(test_compression),
    };

    return DPB_RUN_TESTS(tests);
}
