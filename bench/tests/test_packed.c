/* Packed shards: what is read is what was packed, and every kind of damage is found. */
#include "dpb_packed.h"
#include "dpb_test.h"
#include "fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#define HEADER  192
#define TRAIN_0 "train-00000.dpbs"
#define TRAIN_1 "train-00001.dpbs"

static char folder[] = "/tmp/dpb-packed-XXXXXX";
static char packed[64], csv[64], text[64];

static const int64_t rows[] = {7, 3};
static const struct dpb_model clicks = {
        .input = DPB_INPUT_INTERACTIONS, .features = 2, .tables = 2, .table_rows = rows};
static const struct dpb_model masked = {
        .input = DPB_INPUT_TOKENS, .sequence = 17, .vocabulary = 300, .predicted = 2};
static const struct dpb_model next = {.input = DPB_INPUT_TOKENS,
                                      .sequence = 8,
                                      .vocabulary = 300,
                                      .predicted = 8,
                                      .next_token = true};

static const struct dpb_dataset_config from_csv = {
        .kind = "interactions", .model = &clicks, .file = csv};
static const struct dpb_dataset_config from_packed = {
        .kind = "packed", .model = &clicks, .folder = packed};

static FILE *must_open(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);

    assert_non_null(file);
    return file;
}

static int make_files(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(packed, sizeof(packed), "%s/packed", folder);
    snprintf(csv, sizeof(csv), "%s/clicks.csv", folder);
    snprintf(text, sizeof(text), "%s/text", folder);
    FILE *file = must_open(csv, "w");
    for (int i = 0; i < 50; i++) /* 45 to train, 5 to test */
        fprintf(file, "%d,%d.25,-%d,%d,%d\n", i % 2, i, i, i * 31, i * 17);
    fclose(file);
    file = must_open(text, "w");
    for (int i = 0; i < 400; i++)
        fprintf(file, "the %d words of line %d\n", i * i, i);
    fclose(file);
    return 0;
}

static void clear(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", packed);
    assert_int_equal(system(command), 0);
}

static int remove_files(void **state)
{
    (void)state;
    clear();
    unlink(csv);
    unlink(text);
    return rmdir(folder);
}

static dpb_status pack(const struct dpb_dataset_config *config, int shards,
                       struct dpb_packed_summary *summary)
{
    dpb_dataset *train, *test;

    assert_int_equal(dpb_dataset_open(config, DPB_SPLIT_TRAIN, &train), DPB_OK);
    assert_int_equal(dpb_dataset_open(config, DPB_SPLIT_TEST, &test), DPB_OK);
    const dpb_dataset *splits[] = {[DPB_SPLIT_TRAIN] = train, [DPB_SPLIT_TEST] = test};
    dpb_status st = dpb_packed_write(splits, shards, packed, summary);
    dpb_dataset_close(train);
    dpb_dataset_close(test);
    return st;
}

static void pack_clicks(void)
{
    struct dpb_packed_summary summary;

    clear();
    assert_int_equal(pack(&from_csv, 2, &summary), DPB_OK);
    assert_int_equal(summary.samples[DPB_SPLIT_TRAIN], 45);
    assert_int_equal(summary.samples[DPB_SPLIT_TEST], 5);
    assert_int_equal(summary.shards[DPB_SPLIT_TRAIN], 2);
    assert_int_equal(summary.bytes, 4 * HEADER + 50 * 64);
}

/* ---- the same samples ---- */

static void assert_same(const void *a, const void *b, int64_t elements)
{
    if (a || b)
        assert_memory_equal(a, b, (size_t)elements * 4);
}

static void check_same(const struct dpb_dataset_config *config, enum dpb_split split)
{
    const struct dpb_model *model = config->model;
    struct dpb_dataset_config packed_config = {.kind = "packed", .model = model, .folder = packed};
    struct dpb_batch_arrays a, b;
    struct dpb_dataset_info info, packed_info;
    dpb_dataset *from, *to;

    assert_int_equal(dpb_dataset_open(config, split, &from), DPB_OK);
    assert_int_equal(dpb_dataset_open(&packed_config, split, &to), DPB_OK);
    dpb_dataset_describe(from, &info);
    dpb_dataset_describe(to, &packed_info);
    assert_int_equal(packed_info.samples, info.samples);
    assert_string_equal(packed_info.kind, "packed");
    assert_false(packed_info.synthetic);
    assert_int_equal(dpb_batch_arrays_open(model, 2, &a), DPB_OK);
    assert_int_equal(dpb_batch_arrays_open(model, 2, &b), DPB_OK);
    for (int64_t i = 0; i < info.samples; i++) {
        const int64_t ids[] = {info.samples - 1 - i, i};
        assert_int_equal(dpb_dataset_fetch(from, ids, 2, &a), DPB_OK);
        assert_int_equal(dpb_dataset_fetch(to, ids, 2, &b), DPB_OK);
        assert_same(a.label, b.label, 2);
        if (model->input == DPB_INPUT_INTERACTIONS)
            assert_same(a.x, b.x, 2 * model->features);
        assert_same(a.indices, b.indices, 2 * model->tables);
        assert_same(a.tokens, b.tokens, 2 * model->sequence);
        assert_same(a.segments, b.segments, 2 * model->sequence);
        assert_same(a.predict_position, b.predict_position, 2 * model->predicted);
        assert_same(a.predict_token, b.predict_token, 2 * model->predicted);
    }
    dpb_batch_arrays_release(&a);
    dpb_batch_arrays_release(&b);
    dpb_dataset_close(from);
    dpb_dataset_close(to);
}

static void test_same_samples(void **state)
{
    const struct dpb_model *const models[] = {&clicks, &masked, &next};
    struct dpb_packed_summary summary;

    (void)state;
    for (size_t m = 0; m < 3; m++) {
        struct dpb_dataset_config config = {.kind = m == 0 ? "interactions" : "text",
                                            .model = models[m],
                                            .file = m == 0 ? csv : text,
                                            .seed = 9};
        for (int shards = 1; shards <= 5; shards += 2) {
            clear();
            assert_int_equal(pack(&config, shards, &summary), DPB_OK);
            check_same(&config, DPB_SPLIT_TRAIN);
            check_same(&config, DPB_SPLIT_TEST);
            assert_int_equal(dpb_packed_check(packed, &summary), DPB_OK);
            assert_int_equal(summary.shards[DPB_SPLIT_TEST], shards);
        }
    }
}

/* ---- damage ---- */

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", packed, name);
}

static void flip(const char *name, long offset)
{
    char path[128];

    path_of(path, name);
    FILE *file = must_open(path, "r+");
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    fclose(file);
}

static void check_open_fails(const struct dpb_dataset_config *config, dpb_status expected,
                             const char *what, const char *where)
{
    dpb_dataset *dataset = NULL;

    log_collect();
    assert_int_equal(dpb_dataset_open(config, DPB_SPLIT_TRAIN, &dataset), expected);
    assert_null(dataset);
    assert_true(log_has(what));
    assert_true(log_has(where));
    assert_true(log_has("hint: "));
    log_stop();
}

static void test_truncated(void **state)
{
    static const struct {
        long bytes;
        const char *text;
    } cuts[] = {
            {0, "it ends at byte 0, within the header of 192 bytes"},
            {191, "it ends at byte 191, within the header"},
            {192, "it ends at byte 192, within sample 0 of 23"},
            {192 + 64 * 3 + 1, "it ends at byte 385, within sample 3 of 23"},
            {192 + 64 * 23 - 1, "it ends at byte 1663, within sample 22 of 23"},
            {192 + 64 * 23 + 1, "its samples end at byte 1664, but it has 1665 bytes"},
    };
    char path[128];

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        pack_clicks();
        path_of(path, TRAIN_1);
        assert_int_equal(truncate(path, cuts[i].bytes), 0);
        check_open_fails(&from_packed, DPB_ERR_CORRUPT, cuts[i].text, path);
    }
}

static void test_header_damaged(void **state)
{
    static const struct {
        long at;
        dpb_status expected;
        const char *text;
    } flips[] = {
            {0, DPB_ERR_CORRUPT, "byte 0: this is no shard"},
            {8, DPB_ERR_UNSUPPORTED, "byte 8: version 17 of the format; this program reads 1"},
            {12, DPB_ERR_CORRUPT, "byte 184: the hash of the header"},
            {100, DPB_ERR_CORRUPT, "byte 184: the hash of the header"},
            {191, DPB_ERR_CORRUPT, "byte 184: the hash of the header"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        pack_clicks();
        flip(TRAIN_0, flips[i].at);
        check_open_fails(&from_packed, flips[i].expected, flips[i].text, TRAIN_0);
    }
}

static void test_samples_damaged(void **state)
{
    struct dpb_packed_summary summary;
    struct dpb_batch_arrays arrays;
    dpb_dataset *dataset;

    (void)state;
    for (long at = HEADER; at < HEADER + 64 * 23; at += 97) {
        pack_clicks();
        flip(TRAIN_1, at);
        log_collect();
        assert_int_equal(dpb_packed_check(packed, &summary), DPB_ERR_CORRUPT);
        assert_true(log_has(TRAIN_1 "\": the samples from byte 192 to 1664 are damaged"));
        log_stop();
    }
    /* Table 1's row in sample 22 + 2: opening does not read it, fetching does. */
    pack_clicks();
    flip(TRAIN_1, HEADER + 2 * 64 + 4 * 4);
    assert_int_equal(dpb_dataset_open(&from_packed, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    assert_int_equal(dpb_batch_arrays_open(&clicks, 1, &arrays), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(dataset, (const int64_t[]){23}, 1, &arrays), DPB_OK);
    log_collect();
    assert_int_equal(dpb_dataset_fetch(dataset, (const int64_t[]){24}, 1, &arrays),
                     DPB_ERR_CORRUPT);
    assert_true(log_has(TRAIN_1 "\": "));
    assert_true(log_has("in sample 24 (byte 336) is not from 0 to below 3"));
    log_stop();
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(dataset);
}

static void test_shards_mixed(void **state)
{
    char first[128], second[128];

    (void)state;
    pack_clicks();
    path_of(first, TRAIN_0);
    path_of(second, TRAIN_1);
    assert_int_equal(rename(second, first), 0);
    check_open_fails(&from_packed, DPB_ERR_CORRUPT, "another shard than its name says", TRAIN_0);
    pack_clicks();
    assert_int_equal(unlink(second), 0);
    check_open_fails(&from_packed, DPB_ERR_NOT_FOUND, "cannot read", TRAIN_1);
    pack_clicks();
    path_of(first, "index.json");
    assert_int_equal(unlink(first), 0);
    check_open_fails(&from_packed, DPB_ERR_NOT_FOUND, "there is no packed data set in", packed);
    FILE *file = must_open(first, "w");
    fputs("{\"format\": \"dpb.packed/1\", \"train\": []}\n", file);
    fclose(file);
    check_open_fails(&from_packed, DPB_ERR_CORRUPT, "names shards of \"train\"", "index.json");
}

/* ---- what does not fit ---- */

static void test_other_models(void **state)
{
    static const int64_t other_rows[] = {7, 4};
    struct dpb_dataset_config config = from_packed;
    struct dpb_model model = clicks;

    (void)state;
    pack_clicks();
    config.model = &model;
    model.features = 3;
    check_open_fails(&config, DPB_ERR_USAGE, "holds interactions of 2 numbers and 2 categories",
                     "the workload takes interactions of 3 numbers and 2 categories");
    model = clicks;
    model.table_rows = other_rows;
    check_open_fails(&config, DPB_ERR_USAGE, "and tables of other rows", TRAIN_0);
    config.model = &next;
    check_open_fails(&config, DPB_ERR_USAGE, "the workload takes sequences of 8 tokens", TRAIN_0);
    config.folder = "";
    check_open_fails(&config, DPB_ERR_NOT_FOUND, "no folder is given", "--data-dir");
}

static void check_refused(const struct dpb_dataset_config *config, int shards, const char *why)
{
    struct dpb_packed_summary summary;

    log_collect();
    assert_int_equal(pack(config, shards, &summary), DPB_ERR_USAGE);
    assert_true(log_has(why));
    log_stop();
}

static void test_not_packed(void **state)
{
    (void)state;
    clear();
    check_refused(&from_csv, 6, "6 shards cannot be made of the 5 samples of split \"test\"");
    check_refused(&from_csv, 0, "0 shards cannot be made");
    assert_int_not_equal(access(packed, F_OK), 0);
    pack_clicks();
    check_refused(&from_csv, 2, "nothing is written over");
}

/* A folder where the second split's shard should be: nothing is left of the first. */
static void test_write_fails(void **state)
{
    struct dpb_packed_summary summary;
    char path[128];

    (void)state;
    clear();
    assert_int_equal(mkdir(packed, 0777), 0);
    path_of(path, "test-00000.dpbs");
    assert_int_equal(mkdir(path, 0777), 0);
    log_collect();
    assert_int_equal(pack(&from_csv, 1, &summary), DPB_ERR_IO);
    assert_true(log_has("cannot write"));
    assert_true(log_has(path));
    log_stop();
    path_of(path, TRAIN_0);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_same_samples, make_files),
            cmocka_unit_test(test_truncated),
            cmocka_unit_test(test_header_damaged),
            cmocka_unit_test(test_samples_damaged),
            cmocka_unit_test(test_shards_mixed),
            cmocka_unit_test(test_other_models),
            cmocka_unit_test(test_not_packed),
            cmocka_unit_test_teardown(test_write_fails, remove_files),
    };

    return DPB_RUN_TESTS(tests);
}
