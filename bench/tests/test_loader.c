/* Shards and batches: who sees which sample when. */
#include "dpb_test.h"
#include "dpb_dataset.h"
#include "fixture.h"

static dpb_dataset *open_dataset(int64_t samples)
{
    static const struct dpb_model model = {.sample_dim = {4, 4, 1}, .classes = 10};
    struct dpb_dataset_config config = {
            .kind = "synthetic", .model = &model, .seed = 3, .samples = samples};
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    return dataset;
}

static dpb_loader *open_loader(const struct dpb_loader_config *config)
{
    dpb_loader *loader;

    assert_int_equal(dpb_loader_open(config, &loader), DPB_OK);
    return loader;
}

static void get(dpb_loader *loader, int64_t step, struct dpb_batch *batch)
{
    struct dpb_batch_source source = dpb_loader_source(loader);

    assert_int_equal(source.next(source.ctx, step, batch), DPB_OK);
}

static void check_shard(int64_t batch, int ranks, int rank, bool uneven, int64_t first,
                        int64_t count)
{
    int64_t got_first = -1, got_count = -1;

    assert_int_equal(dpb_shard_of_batch(batch, ranks, rank, uneven, &got_first, &got_count),
                     DPB_OK);
    assert_int_equal(got_first, first);
    assert_int_equal(got_count, count);
}

static void test_shards(void **state)
{
    (void)state;
    check_shard(128, 1, 0, false, 0, 128);
    check_shard(128, 4, 0, false, 0, 32);
    check_shard(128, 4, 3, false, 96, 32);
    check_shard(128, 4, 3, true, 96, 32); /* divisible: equal, uneven or not */
    check_shard(10, 3, 0, true, 0, 4);
    check_shard(10, 3, 1, true, 4, 3);
    check_shard(10, 3, 2, true, 7, 3);
    check_shard(2, 3, 1, true, 1, 1);
    check_shard(2, 3, 2, true, 2, 0);
    check_shard(((int64_t)1 << 40) + 1, 2, 1, true, ((int64_t)1 << 39) + 1, (int64_t)1 << 39);
}

static void test_shards_refused(void **state)
{
    static const struct {
        int64_t batch;
        int ranks, rank;
        bool uneven;
    } cases[] = {{100, 3, 0, false}, {2, 3, 0, false}, {0, 2, 0, true}, {-4, 2, 0, true},
                 {8, 0, 0, true},    {8, 2, 2, true},  {8, 2, -1, true}};
    int64_t first = 77, count = 77;

    (void)state;
    log_collect();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(dpb_shard_of_batch(cases[i].batch, cases[i].ranks, cases[i].rank,
                                            cases[i].uneven, &first, &count),
                         DPB_ERR_USAGE);
    assert_true(log_has("a global batch of 100 samples cannot be split equally over 3 ranks"));
    assert_true(log_has("use a multiple of 3, such as 99, or allow unequal shares with --uneven"));
    assert_true(log_has("a multiple of 3, such as 3,"));
    log_stop();
    assert_int_equal(first, 77);
    assert_int_equal(count, 77);
}

/* The ranks' slices are disjoint, and together the global batch that one rank alone would see;
 * over an epoch, every sample is seen at most once. */
static void check_union(int ranks, int64_t global_batch, bool uneven)
{
    dpb_dataset *dataset = open_dataset(103);
    struct dpb_loader_config config = {.dataset = dataset,
                                       .global_batch = global_batch,
                                       .ranks = 1,
                                       .shuffle = true,
                                       .uneven = uneven,
                                       .seed = 9};
    dpb_loader *whole = open_loader(&config), *part[8];
    int seen[103] = {0};

    config.ranks = ranks;
    for (config.rank = 0; config.rank < ranks; config.rank++)
        part[config.rank] = open_loader(&config);
    for (int64_t step = 1; step <= dpb_loader_steps_per_epoch(whole); step++) {
        struct dpb_batch all, mine;
        int64_t at = 0;

        get(whole, step, &all);
        assert_int_equal(all.samples, global_batch);
        assert_int_equal(all.step, step);
        assert_int_equal(all.first, 0);
        for (int rank = 0; rank < ranks; rank++) {
            get(part[rank], step, &mine);
            assert_true(mine.samples <= dpb_loader_batch_max(part[rank]));
            assert_int_equal(mine.step, step);
            assert_int_equal(mine.first, at);
            assert_memory_equal(mine.sample_ids, all.sample_ids + at,
                                (size_t)mine.samples * sizeof(int64_t));
            assert_memory_equal(mine.x, all.x + at * 16, (size_t)mine.samples * 16 * sizeof(float));
            assert_memory_equal(mine.label, all.label + at, (size_t)mine.samples * sizeof(int32_t));
            at += mine.samples;
        }
        assert_int_equal(at, global_batch);
        for (int64_t i = 0; i < all.samples; i++)
            seen[all.sample_ids[i]]++;
    }
    for (int i = 0; i < 103; i++)
        assert_true(seen[i] <= 1);
    assert_int_equal(dpb_loader_dropped_per_epoch(whole), 103 % global_batch);
    assert_int_equal(dpb_loader_steps_per_epoch(whole), 103 / global_batch);
    for (int rank = 0; rank < ranks; rank++)
        dpb_loader_close(part[rank]);
    dpb_loader_close(whole);
    dpb_dataset_close(dataset);
}

static void test_slices_are_the_global_batch(void **state)
{
    (void)state;
    check_union(1, 10, false);
    check_union(2, 10, false);
    check_union(5, 20, false);
    check_union(3, 10, true);
    check_union(8, 5, true); /* three ranks get nothing */
    check_union(4, 100, false);
}

static void ids_of_epoch(uint64_t seed, bool shuffle, int64_t epoch, int64_t ids[60])
{
    dpb_dataset *dataset = open_dataset(60);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 60, .ranks = 1, .shuffle = shuffle, .seed = seed};
    dpb_loader *loader = open_loader(&config);
    struct dpb_batch batch;

    get(loader, epoch + 1, &batch);
    memcpy(ids, batch.sample_ids, 60 * sizeof(int64_t));
    dpb_loader_close(loader);
    dpb_dataset_close(dataset);
}

static void test_order_depends_on_seed_and_epoch(void **state)
{
    int64_t base[60], again[60], other_epoch[60], other_seed[60], plain[60];
    int seen[60] = {0};

    (void)state;
    ids_of_epoch(1, true, 0, base);
    ids_of_epoch(1, true, 0, again);
    ids_of_epoch(1, true, 1, other_epoch);
    ids_of_epoch(2, true, 0, other_seed);
    ids_of_epoch(1, false, 1, plain);
    assert_memory_equal(base, again, sizeof(base));
    assert_memory_not_equal(base, other_epoch, sizeof(base));
    assert_memory_not_equal(base, other_seed, sizeof(base));
    assert_memory_not_equal(other_epoch, other_seed, sizeof(base));
    for (int i = 0; i < 60; i++) {
        assert_int_equal(plain[i], i);
        seen[base[i]]++;
    }
    for (int i = 0; i < 60; i++)
        assert_int_equal(seen[i], 1);
}

/* Steps may be asked for in any order; an epoch that comes back is the same. */
static void test_steps_in_any_order(void **state)
{
    dpb_dataset *dataset = open_dataset(25);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 10, .ranks = 1, .shuffle = true, .seed = 4};
    dpb_loader *loader = open_loader(&config);
    struct dpb_batch batch;
    int64_t first[10];

    (void)state;
    get(loader, 2, &batch);
    memcpy(first, batch.sample_ids, sizeof(first));
    get(loader, 3, &batch); /* epoch 1 */
    assert_memory_not_equal(first, batch.sample_ids, sizeof(first));
    get(loader, 2, &batch);
    assert_memory_equal(first, batch.sample_ids, sizeof(first));
    dpb_loader_close(loader);
    dpb_dataset_close(dataset);
}

static void test_remainder_dropped_or_kept(void **state)
{
    dpb_dataset *dataset = open_dataset(25);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 10, .ranks = 2, .epochs = 2};
    struct dpb_batch_source source;
    struct dpb_batch batch;
    dpb_loader *loader;

    (void)state;
    loader = open_loader(&config);
    source = dpb_loader_source(loader);
    assert_int_equal(dpb_loader_steps_per_epoch(loader), 2);
    assert_int_equal(dpb_loader_dropped_per_epoch(loader), 5);
    assert_int_equal(dpb_loader_batch_max(loader), 5);
    get(loader, 4, &batch);
    assert_int_equal(batch.sample_ids[0], 10);
    batch.samples = 99;
    assert_int_equal(source.next(source.ctx, 5, &batch), DPB_END);
    assert_int_equal(batch.samples, 99);
    dpb_loader_close(loader);

    config.keep_last = true;
    config.epochs = 1;
    for (config.rank = 0; config.rank < 2; config.rank++) {
        loader = open_loader(&config);
        source = dpb_loader_source(loader);
        assert_int_equal(dpb_loader_steps_per_epoch(loader), 3);
        assert_int_equal(dpb_loader_dropped_per_epoch(loader), 0);
        get(loader, 3, &batch); /* five samples over two ranks, though uneven is off */
        assert_int_equal(batch.samples, config.rank == 0 ? 3 : 2);
        assert_int_equal(batch.sample_ids[0], config.rank == 0 ? 20 : 23);
        assert_int_equal(batch.first, config.rank == 0 ? 0 : 3);
        assert_int_equal(batch.step, 3);
        assert_int_equal(source.next(source.ctx, 4, &batch), DPB_END);
        dpb_loader_close(loader);
    }

    /* nothing left over: keep_last changes nothing */
    config.rank = 0;
    config.global_batch = 5;
    config.ranks = 1;
    loader = open_loader(&config);
    assert_int_equal(dpb_loader_steps_per_epoch(loader), 5);
    get(loader, 5, &batch);
    assert_int_equal(batch.samples, 5);
    dpb_loader_close(loader);
    dpb_dataset_close(dataset);
}

static void test_batch_of_no_samples(void **state)
{
    dpb_dataset *dataset = open_dataset(20);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 2, .ranks = 3, .rank = 2, .uneven = true};
    dpb_loader *loader = open_loader(&config);
    struct dpb_batch batch;

    (void)state;
    assert_int_equal(dpb_loader_batch_max(loader), 0);
    get(loader, 7, &batch);
    assert_int_equal(batch.samples, 0);
    dpb_loader_close(loader);
    dpb_dataset_close(dataset);
}

/* ---- in the background ---- */

static void check_same_batch(const struct dpb_batch *a, const struct dpb_batch *b)
{
    assert_int_equal(a->samples, b->samples);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->first, b->first);
    assert_memory_equal(a->sample_ids, b->sample_ids, (size_t)a->samples * sizeof(int64_t));
    assert_memory_equal(a->x, b->x, (size_t)a->samples * 16 * sizeof(float));
    assert_memory_equal(a->label, b->label, (size_t)a->samples * sizeof(int32_t));
}

/* What the thread makes early is what would have been made when asked: in order over several
 * epochs, again, backwards, and over the end of the last epoch. */
static void test_background_is_the_same(void **state)
{
    static const int64_t steps[] = {1, 2, 3, 4, 5, 6, 7, 8, 8, 3, 2, 9, 10, 1, 6};
    dpb_dataset *dataset = open_dataset(55);
    struct dpb_loader_config config = {.dataset = dataset,
                                       .global_batch = 10,
                                       .ranks = 2,
                                       .rank = 1,
                                       .shuffle = true,
                                       .keep_last = true,
                                       .epochs = 2,
                                       .seed = 9};
    dpb_loader *plain = open_loader(&config), *early;
    struct dpb_batch_source source;
    struct dpb_batch a, b;

    (void)state;
    config.background = true;
    early = open_loader(&config);
    source = dpb_loader_source(early);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        get(plain, steps[i], &a);
        get(early, steps[i], &b);
        check_same_batch(&a, &b);
    }
    get(early, 12, &b);
    assert_int_equal(b.samples, 2); /* of the last five */
    b.samples = 99;
    for (int i = 0; i < 3; i++)
        assert_int_equal(source.next(source.ctx, 13, &b), DPB_END);
    assert_int_equal(b.samples, 99);
    get(plain, 12, &a);
    get(early, 12, &b);
    check_same_batch(&a, &b);
    log_collect();
    assert_int_equal(source.next(source.ctx, 0, &b), DPB_ERR_USAGE);
    log_stop();
    dpb_loader_close(plain);
    dpb_loader_close(early);
    dpb_dataset_close(dataset);
}

/* A batch stays as it is until the next one is asked for, although the next is made meanwhile. */
static void test_background_leaves_the_batch_alone(void **state)
{
    dpb_dataset *dataset = open_dataset(64);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 8, .ranks = 1, .shuffle = true, .seed = 2};
    dpb_loader *plain = open_loader(&config), *early;
    struct dpb_batch a, b, before;

    (void)state;
    config.background = true;
    early = open_loader(&config);
    for (int64_t step = 1; step <= 200; step++) {
        get(early, step, &b);
        get(plain, step, &a);
        check_same_batch(&a, &b);
        if (step > 1)
            assert_ptr_not_equal(b.x, before.x);
        before = b;
    }
    dpb_loader_close(plain);
    dpb_loader_close(early);
    dpb_dataset_close(dataset);
}

/* Closing does not wait for a batch that nobody will take, and works at any moment. */
static void test_background_closes_at_any_time(void **state)
{
    dpb_dataset *dataset = open_dataset(64);
    struct dpb_loader_config config = {
            .dataset = dataset, .global_batch = 64, .ranks = 1, .background = true};
    struct dpb_batch batch;

    (void)state;
    for (int64_t steps = 0; steps < 20; steps++) {
        dpb_loader *loader = open_loader(&config);

        for (int64_t step = 1; step <= steps % 4; step++)
            get(loader, step, &batch);
        dpb_loader_close(loader);
    }
    dpb_dataset_close(dataset);
}

/* Micro-batches of two ranks, one after the other, are what one rank gets joined; an epoch has
 * whole steps. */
static void test_micro_batches(void **state)
{
    dpb_dataset *dataset = open_dataset(52);
    struct dpb_loader_config config = {.dataset = dataset,
                                       .global_batch = 6,
                                       .batches_per_step = 3,
                                       .joined = true,
                                       .ranks = 1,
                                       .shuffle = true,
                                       .seed = 9};
    dpb_loader *whole = open_loader(&config), *part[2];

    (void)state;
    config.joined = false;
    config.ranks = 2;
    for (config.rank = 0; config.rank < 2; config.rank++)
        part[config.rank] = open_loader(&config);
    assert_int_equal(dpb_loader_steps_per_epoch(whole), 2);
    assert_int_equal(dpb_loader_steps_per_epoch(part[0]), 2);
    assert_int_equal(dpb_loader_dropped_per_epoch(part[1]), 52 - 36);
    assert_int_equal(dpb_loader_batch_max(whole), 18);
    assert_int_equal(dpb_loader_batch_max(part[0]), 3);
    for (int64_t step = 1; step <= 5; step++) { /* beyond two epochs */
        struct dpb_batch all, mine;
        int64_t at = 0;

        get(whole, step, &all);
        assert_int_equal(all.samples, 18);
        for (int64_t number = 3 * step - 2; number <= 3 * step; number++) {
            for (int rank = 0; rank < 2; rank++) {
                get(part[rank], number, &mine);
                assert_int_equal(mine.samples, 3);
                assert_int_equal(mine.first, 3 * rank);
                assert_memory_equal(mine.sample_ids, all.sample_ids + at, 3 * sizeof(int64_t));
                at += 3;
            }
        }
    }
    for (int rank = 0; rank < 2; rank++)
        dpb_loader_close(part[rank]);
    dpb_loader_close(whole);
    dpb_dataset_close(dataset);
}

static void test_configs_refused(void **state)
{
    dpb_dataset *dataset = open_dataset(20);
    struct dpb_loader_config config = {.dataset = dataset, .global_batch = 21, .ranks = 1};
    struct dpb_batch_source source;
    struct dpb_batch batch;
    dpb_loader *loader = NULL;

    (void)state;
    log_collect();
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    assert_true(log_has("a global batch of 21 samples is larger than the dataset of 20"));
    config.keep_last = true;
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    config.global_batch = 9;
    config.ranks = 2;
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    config.ranks = 3;
    config.epochs = -1;
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    assert_null(loader);
    config.epochs = 0;
    config.batches_per_step = 2; /* and keep_last */
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    config.keep_last = false;
    config.joined = true; /* with 3 ranks */
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    config.joined = false;
    config.batches_per_step = 3; /* 27 samples of 20 */
    assert_int_equal(dpb_loader_open(&config, &loader), DPB_ERR_USAGE);
    config.batches_per_step = 1;
    loader = open_loader(&config);
    source = dpb_loader_source(loader);
    assert_int_equal(source.next(source.ctx, 0, &batch), DPB_ERR_USAGE);
    log_stop();
    /* without end */
    get(loader, 1000001, &batch);
    assert_int_equal(batch.samples, 3);
    dpb_loader_close(loader);
    dpb_loader_close(NULL);
    dpb_dataset_close(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_shards),
            cmocka_unit_test(test_shards_refused),
            cmocka_unit_test(test_slices_are_the_global_batch),
            cmocka_unit_test(test_order_depends_on_seed_and_epoch),
            cmocka_unit_test(test_steps_in_any_order),
            cmocka_unit_test(test_remainder_dropped_or_kept),
            cmocka_unit_test(test_batch_of_no_samples),
            cmocka_unit_test(test_background_is_the_same),
            cmocka_unit_test(test_background_leaves_the_batch_alone),
            cmocka_unit_test(test_background_closes_at_any_time),
            cmocka_unit_test(test_micro_batches),
            cmocka_unit_test(test_configs_refused),
    };

    return DPB_RUN_TESTS(tests);
}
