/* Ranks that own shards: each opens its own only, together they train on every sample. */
#include "dpb_dataset.h"
#include "dpb_packed.h"
#include "dpb_test.h"
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS_MAX 600

static char folder[] = "/tmp/dpb-sharding-XXXXXX";
static char packed[64], csv[64];

static const int64_t rows[] = {1000};
static const struct dpb_model clicks = {
        .input = DPB_INPUT_INTERACTIONS, .features = 1, .tables = 1, .table_rows = rows};

static void clear(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", packed);
    assert_int_equal(system(command), 0);
}

/* `count` rows, nine tenths of them to train, in `shards` files. */
static void pack_rows(int count, int shards)
{
    struct dpb_dataset_config config = {.kind = "interactions", .model = &clicks, .file = csv};
    struct dpb_packed_summary summary;
    dpb_dataset *train, *test;
    FILE *file = fopen(csv, "w");

    assert_non_null(file);
    for (int i = 0; i < count; i++)
        fprintf(file, "%d,%d,%d\n", i % 2, i, i);
    fclose(file);
    clear();
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &train), DPB_OK);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TEST, &test), DPB_OK);
    const dpb_dataset *splits[] = {[DPB_SPLIT_TRAIN] = train, [DPB_SPLIT_TEST] = test};
    assert_int_equal(dpb_packed_write(splits, shards, packed, &summary), DPB_OK);
    dpb_dataset_close(train);
    dpb_dataset_close(test);
}

static int make_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(packed, sizeof(packed), "%s/packed", folder);
    snprintf(csv, sizeof(csv), "%s/rows.csv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    clear();
    unlink(csv);
    return rmdir(folder);
}

static dpb_dataset *open_owned(enum dpb_sharding sharding, int owners, int owner)
{
    struct dpb_dataset_config config = {.kind = "packed",
                                        .model = &clicks,
                                        .folder = packed,
                                        .sharding = sharding,
                                        .owners = owners,
                                        .owner = owner};
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    return dataset;
}

/* What each rank has. */
struct party {
    dpb_dataset *dataset;
    dpb_loader *loader;
};

static struct party join(struct dpb_loader_config config, int owners, int owner)
{
    struct party party = {.dataset = open_owned(DPB_SHARDING_SHARDS, owners, owner)};

    config.dataset = party.dataset;
    config.ranks = owner == DPB_ALL_OWNERS ? 1 : owners;
    config.rank = owner == DPB_ALL_OWNERS ? 0 : owner;
    assert_int_equal(dpb_loader_open(&config, &party.loader), DPB_OK);
    return party;
}

static void leave(struct party *party)
{
    dpb_loader_close(party->loader);
    dpb_dataset_close(party->dataset);
}

static dpb_status get(const struct party *party, int64_t step, struct dpb_batch *batch)
{
    struct dpb_batch_source source = dpb_loader_source(party->loader);

    return source.next(source.ctx, step, batch);
}

/* Whose shard holds a sample, when 540 of them lie in 6 files of 90. */
static int owner_of(int64_t id, int owners)
{
    return (int)(id / 90) % owners;
}

/* Slices of all ranks are the batch of one rank that has every shard, and come from own shards. */
static void check_ranks(int owners, int64_t global_batch, bool keep_last, int64_t steps)
{
    struct dpb_loader_config config = {.global_batch = global_batch,
                                       .uneven = true,
                                       .shuffle = true,
                                       .keep_last = keep_last,
                                       .epochs = 2,
                                       .seed = 5};
    struct party whole = join(config, owners, DPB_ALL_OWNERS), part[6];
    struct dpb_batch all, mine;
    int seen[ROWS_MAX] = {0};
    int64_t total = 0;

    for (int owner = 0; owner < owners; owner++)
        part[owner] = join(config, owners, owner);
    assert_int_equal(dpb_loader_steps_per_epoch(whole.loader), steps);
    for (int64_t step = 1; step <= steps; step++) {
        int64_t at = 0;

        assert_int_equal(get(&whole, step, &all), DPB_OK);
        assert_int_equal(all.first, 0);
        for (int owner = 0; owner < owners; owner++) {
            assert_int_equal(get(&part[owner], step, &mine), DPB_OK);
            assert_int_equal(mine.first, at);
            assert_int_equal(mine.step, step);
            assert_true(mine.samples <= dpb_loader_batch_max(part[owner].loader));
            assert_memory_equal(mine.sample_ids, all.sample_ids + at,
                                (size_t)mine.samples * sizeof(int64_t));
            assert_memory_equal(mine.x, all.x + at, (size_t)mine.samples * sizeof(float));
            for (int64_t i = 0; i < mine.samples; i++) {
                assert_int_equal(owner_of(mine.sample_ids[i], owners), owner);
                assert_true(mine.x[i] == (float)mine.sample_ids[i]);
                seen[mine.sample_ids[i]]++;
            }
            at += mine.samples;
        }
        assert_int_equal(at, all.samples);
        assert_true(keep_last || at == global_batch);
        total += at;
    }
    for (int i = 0; i < 540; i++)
        assert_true(seen[i] <= 1);
    assert_int_equal(dpb_loader_dropped_per_epoch(whole.loader), 540 - total);
    for (int owner = 0; owner < owners; owner++) {
        assert_int_equal(dpb_loader_steps_per_epoch(part[owner].loader), steps);
        assert_int_equal(get(&part[owner], 2 * steps + 1, &mine), DPB_END);
        leave(&part[owner]);
    }
    leave(&whole);
}

static void test_slices_come_from_own_shards(void **state)
{
    (void)state;
    pack_rows(600, 6);
    check_ranks(1, 50, false, 10);
    check_ranks(2, 20, false, 27);
    check_ranks(3, 180, false, 3);
    check_ranks(6, 7, false, 45); /* the first rank takes two samples a step */
    check_ranks(4, 40, false, 9); /* two ranks have one shard, two have two */
    check_ranks(4, 40, true, 18); /* the others go on */
    check_ranks(3, 100, true, 6); /* 34, 33 and 33 a step, of 180 */
    check_ranks(2, 540, false, 1);
}

static void test_order_depends_on_seed_epoch_and_owner(void **state)
{
    struct dpb_loader_config config = {.global_batch = 540, .shuffle = true, .seed = 5};
    struct party a = join(config, 2, DPB_ALL_OWNERS);
    struct dpb_batch batch;
    int64_t ids[540];
    int same = 0;

    (void)state;
    assert_int_equal(get(&a, 1, &batch), DPB_OK);
    memcpy(ids, batch.sample_ids, sizeof(ids));
    /* Shards 0, 2, 4 in one half, 1, 3, 5 in the other: 90 apart when the orders are the same. */
    for (int i = 0; i < 270; i++)
        same += ids[270 + i] == ids[i] + 90;
    assert_true(same < 30);
    assert_int_equal(get(&a, 2, &batch), DPB_OK);
    assert_memory_not_equal(batch.sample_ids, ids, sizeof(ids));
    leave(&a);
    config.seed = 6;
    a = join(config, 2, DPB_ALL_OWNERS);
    assert_int_equal(get(&a, 1, &batch), DPB_OK);
    assert_memory_not_equal(batch.sample_ids, ids, sizeof(ids));
    leave(&a);
    config.seed = 5;
    a = join(config, 2, DPB_ALL_OWNERS);
    assert_int_equal(get(&a, 1, &batch), DPB_OK);
    assert_memory_equal(batch.sample_ids, ids, sizeof(ids));
    leave(&a);
}

static void remove_shard(int shard)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/train-%05d.dpbs", packed, shard);
    assert_int_equal(unlink(path), 0);
}

/* A node that holds its own files only trains all the same; one that needs another's says which. */
static void test_other_shards_are_not_needed(void **state)
{
    struct dpb_dataset_info info;
    struct dpb_dataset_config missing = {.kind = "packed",
                                         .model = &clicks,
                                         .folder = packed,
                                         .sharding = DPB_SHARDING_SHARDS,
                                         .owners = 3,
                                         .owner = 2};
    struct party party;
    struct dpb_batch batch;
    dpb_dataset *dataset = NULL;

    (void)state;
    pack_rows(600, 6);
    remove_shard(0);
    remove_shard(2);
    remove_shard(3);
    remove_shard(5);
    party = join((struct dpb_loader_config){.global_batch = 90, .shuffle = true}, 3, 1);
    dpb_dataset_describe(party.dataset, &info);
    assert_int_equal(info.files, 2);
    assert_int_equal(info.file_bytes, 2 * (192 + 90 * 64));
    assert_int_equal(info.samples, 540);
    assert_int_equal(info.deal.sharding, DPB_SHARDING_SHARDS);
    assert_non_null(strstr(info.source, "train-00001.dpbs"));
    for (int64_t step = 1; step <= 12; step++)
        assert_int_equal(get(&party, step, &batch), DPB_OK);
    log_collect();
    struct dpb_batch_arrays arrays;
    assert_int_equal(dpb_batch_arrays_open(&clicks, 1, &arrays), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(party.dataset, (const int64_t[]){180}, 1, &arrays),
                     DPB_ERR_INTERNAL);
    assert_true(log_has("sample 180 lies in"));
    dpb_batch_arrays_release(&arrays);
    assert_int_equal(dpb_dataset_open(&missing, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_NOT_FOUND);
    assert_true(log_has("train-00002.dpbs\": No such file"));
    log_stop();
    leave(&party);
}

static void check_auto(int owners, enum dpb_sharding expected, int files)
{
    dpb_dataset *dataset = open_owned(DPB_SHARDING_AUTO, owners, 0);
    struct dpb_dataset_info info;

    dpb_dataset_describe(dataset, &info);
    assert_int_equal(info.deal.sharding, expected);
    assert_int_equal(info.files, files);
    dpb_dataset_close(dataset);
}

static void test_auto(void **state)
{
    (void)state;
    pack_rows(599, 6); /* 540 in 6 */
    check_auto(1, DPB_SHARDING_SAMPLES, 6);
    check_auto(2, DPB_SHARDING_SHARDS, 3);
    check_auto(3, DPB_SHARDING_SHARDS, 2);
    check_auto(4, DPB_SHARDING_SAMPLES, 6); /* half of two ranks' samples would be left out */
    check_auto(6, DPB_SHARDING_SHARDS, 1);
    check_auto(12, DPB_SHARDING_SAMPLES, 6);
}

static void check_refused(const struct dpb_dataset_config *config, const char *why,
                          const char *remedy)
{
    dpb_dataset *dataset = NULL;

    log_collect();
    assert_int_equal(dpb_dataset_open(config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_USAGE);
    assert_true(log_has(why));
    assert_true(log_has(remedy));
    log_stop();
    assert_null(dataset);
}

static void test_refused(void **state)
{
    struct dpb_dataset_config config = {.kind = "packed",
                                        .model = &clicks,
                                        .folder = packed,
                                        .sharding = DPB_SHARDING_SHARDS,
                                        .owners = 7};
    struct dpb_loader_config loader_config = {.global_batch = 10, .ranks = 3};
    dpb_loader *loader = NULL;

    (void)state;
    pack_rows(600, 6);
    check_refused(&config, "has 6 shards of \"train\", too few for 7 ranks",
                  "dpbench data pack --shards 7");
    config.kind = "synthetic";
    check_refused(&config, "--data synthetic has no shards", "dpbench data pack --shards 7");

    dpb_dataset *dataset = open_owned(DPB_SHARDING_SHARDS, 2, 1);
    loader_config.dataset = dataset;
    log_collect();
    loader_config.uneven = true;
    assert_int_equal(dpb_loader_open(&loader_config, &loader), DPB_ERR_USAGE);
    assert_true(log_has("rank 0 of 3 cannot read the shards of rank 1 of 2"));
    loader_config.ranks = 2;
    loader_config.rank = 1;
    loader_config.global_batch = 1;
    assert_int_equal(dpb_loader_open(&loader_config, &loader), DPB_ERR_USAGE);
    assert_true(log_has("rank 1 has 270 samples in its shards, a step takes 0"));
    log_stop();
    dpb_dataset_close(dataset);
    dataset = open_owned(DPB_SHARDING_SHARDS, 4, 3);
    loader_config = (struct dpb_loader_config){
            .dataset = dataset, .global_batch = 480, .ranks = 4, .rank = 3};
    log_collect();
    assert_int_equal(dpb_loader_open(&loader_config, &loader), DPB_ERR_USAGE);
    assert_true(log_has("rank 2 has 90 samples in its shards, a step takes 120"));
    log_stop();
    dpb_dataset_close(dataset);
    assert_null(loader);
}

/* ---- files that become shorter ---- */

static void cut(int shard, long bytes)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/train-%05d.dpbs", packed, shard);
    assert_int_equal(truncate(path, bytes), 0);
}

/* Pages that are gone would end the process (SIGBUS); what is gone of a page that is not would be
 * zeroes. 180 samples of a shard are three pages. */
static void check_cut(long bytes, bool background)
{
    struct party party;
    struct dpb_batch batch;
    dpb_status st = DPB_OK;

    pack_rows(600, 3);
    party = join((struct dpb_loader_config){.global_batch = 18, .background = background}, 3, 1);
    assert_int_equal(get(&party, 1, &batch), DPB_OK);
    log_collect();
    cut(1, bytes);
    for (int64_t step = 2; step <= 30 && st == DPB_OK; step++)
        st = get(&party, step, &batch);
    assert_int_equal(st, DPB_ERR_CORRUPT);
    assert_true(log_has("train-00001.dpbs\": it has become shorter while it is in use: what was at "
                        "byte "));
    log_stop();
    leave(&party);
}

static void test_file_becomes_shorter(void **state)
{
    (void)state;
    for (int background = 0; background < 2; background++) {
        check_cut(0, background);
        check_cut(193, background);
        check_cut(4096, background);
        check_cut(9000, background);
        check_cut(192 + 180 * 64 - 1, background);
    }
}

/* A new file under the old name is no harm: what is mapped is the old one. */
static void test_file_is_replaced(void **state)
{
    struct party party;
    struct dpb_batch batch;

    (void)state;
    pack_rows(600, 3);
    party = join((struct dpb_loader_config){.global_batch = 18}, 3, 1);
    pack_rows(100, 3);
    for (int64_t step = 1; step <= 30; step++)
        assert_int_equal(get(&party, step, &batch), DPB_OK);
    remove_shard(1);
    assert_int_equal(get(&party, 31, &batch), DPB_OK);
    leave(&party);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_slices_come_from_own_shards, make_folder),
            cmocka_unit_test(test_order_depends_on_seed_epoch_and_owner),
            cmocka_unit_test(test_other_shards_are_not_needed),
            cmocka_unit_test(test_auto),
            cmocka_unit_test(test_refused),
            cmocka_unit_test(test_file_becomes_shorter),
            cmocka_unit_test_teardown(test_file_is_replaced, remove_folder),
    };

    return DPB_RUN_TESTS(tests);
}
