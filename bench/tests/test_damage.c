/* Files cut at every byte, and with every byte changed: an error that names the file, or the
 * samples that are there; never a crash. Worth most under the address sanitizer. */
#include "dpb_dataset.h"
#include "dpb_packed.h"
#include "dpb_test.h"
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define BYTES_MAX 4096

static char folder[] = "/tmp/dpb-damage-XXXXXX";

static const int64_t rows[] = {7, 3};
static const struct dpb_model clicks = {
        .input = DPB_INPUT_INTERACTIONS, .features = 2, .tables = 2, .table_rows = rows};
static const struct dpb_model other_clicks = {
        .input = DPB_INPUT_INTERACTIONS, .features = 3, .tables = 1, .table_rows = rows};
static const struct dpb_model colour = {.sample_dim = {32, 32, 3}, .classes = 10};
static const struct dpb_model tiny = {.sample_dim = {3, 2, 1}, .classes = 10};
static const struct dpb_model words = {.input = DPB_INPUT_TOKENS,
                                       .sequence = 8,
                                       .vocabulary = 300,
                                       .predicted = 8,
                                       .next_token = true};

/* ---- files ---- */

static void path_of(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static void put(const char *name, const void *bytes, size_t count)
{
    char path[128];
    FILE *file;

    path_of(path, name);
    unlink(path); /* file systems hurry to write a file that was cut to nothing */
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static size_t get(const char *name, uint8_t bytes[BYTES_MAX])
{
    char path[128];
    FILE *file;

    path_of(path, name);
    file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(bytes, 1, BYTES_MAX, file);
    assert_true(count < BYTES_MAX);
    fclose(file);
    return count;
}

static void shell(const char *format)
{
    char command[256];

    snprintf(command, sizeof(command), format, folder, folder);
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    shell("rm -rf '%s'");
    return 0;
}

/* ---- reading all there is ---- */

static dpb_status read_all(const struct dpb_dataset_config *config)
{
    struct dpb_batch_arrays arrays;
    struct dpb_dataset_info info;
    dpb_dataset *dataset;
    dpb_status st = dpb_dataset_open(config, DPB_SPLIT_TRAIN, &dataset);

    if (st < 0)
        return st;
    assert_int_equal(dpb_batch_arrays_open(config->model, 1, &arrays), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    for (int64_t id = 0; id < info.samples && st == DPB_OK; id++)
        st = dpb_dataset_fetch(dataset, &id, 1, &arrays);
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(dataset);
    return st;
}

/* What is wrong with `name` is told with its name. */
static dpb_status read_damaged(const struct dpb_dataset_config *config, const char *name)
{
    log_collect();
    dpb_status st = read_all(config);
    if (st < 0) {
        assert_true(log_has(name));
        assert_true(log_has("hint: "));
    }
    log_stop();
    return st;
}

/* Cut `name` at every byte; where that may leave a whole file, `sound` says so. Returns how many
 * cuts were sound. */
static int cut_everywhere(const struct dpb_dataset_config *config, const char *name)
{
    uint8_t bytes[BYTES_MAX];
    size_t count = get(name, bytes);
    int sound = 0;

    assert_int_equal(read_all(config), DPB_OK);
    for (size_t n = 0; n < count; n++) {
        put(name, bytes, n);
        sound += read_damaged(config, name) == DPB_OK;
    }
    put(name, bytes, count);
    assert_int_equal(read_all(config), DPB_OK);
    return sound;
}

/* Change every byte in turn; returns how many changes were not noticed. */
static int change_everywhere(const struct dpb_dataset_config *config, const char *name)
{
    uint8_t bytes[BYTES_MAX];
    size_t count = get(name, bytes);
    int sound = 0;

    for (size_t n = 0; n < count; n++) {
        bytes[n] ^= 0x15;
        put(name, bytes, count);
        bytes[n] ^= 0x15;
        log_collect();
        sound += read_all(config) == DPB_OK;
        log_stop();
    }
    put(name, bytes, count);
    return sound;
}

/* What is foretold of a split is what it holds; text may hold less. */
static void check_foretold(const struct dpb_dataset_config *config, bool exact)
{
    static const enum dpb_split splits[] = {DPB_SPLIT_TRAIN, DPB_SPLIT_TEST};

    for (int i = 0; i < 2; i++) {
        struct dpb_dataset_info info;
        struct dpb_dataset_size size;
        dpb_dataset *dataset;

        assert_true(dpb_dataset_predict(config, splits[i], &size));
        assert_int_equal(dpb_dataset_open(config, splits[i], &dataset), DPB_OK);
        dpb_dataset_describe(dataset, &info);
        assert_true(exact ? size.held_bytes == info.held_bytes
                          : size.held_bytes >= info.held_bytes);
        assert_true(exact ? size.samples == info.samples : size.samples >= info.samples);
        dpb_dataset_close(dataset);
    }
}

/* ---- one format each ---- */

static void test_idx(void **state)
{
    static const uint8_t images[16 + 18] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 2, 9};
    static const uint8_t labels[8 + 3] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 1, 2};
    struct dpb_dataset_config config = {.kind = "mnist", .model = &tiny, .folder = folder};
    char path[128];

    (void)state;
    put("train-images-idx3-ubyte", images, sizeof(images));
    put("train-labels-idx1-ubyte", labels, sizeof(labels));
    assert_int_equal(cut_everywhere(&config, "train-images-idx3-ubyte"), 0);
    assert_int_equal(cut_everywhere(&config, "train-labels-idx1-ubyte"), 0);
    /* 18 pixels may be anything, and labels what is below 10: none of 9, 1 and 2, with 0x15 added
     */
    assert_int_equal(change_everywhere(&config, "train-images-idx3-ubyte"), 18);
    assert_int_equal(change_everywhere(&config, "train-labels-idx1-ubyte"), 0);

    path_of(path, "train-images-idx3-ubyte");
    unlink(path);
    path_of(path, "train-images-idx3-ubyte.gz");
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, images, sizeof(images)), sizeof(images));
    assert_int_equal(gzclose(file), Z_OK);
    put("t10k-images-idx3-ubyte", images, sizeof(images));
    put("t10k-labels-idx1-ubyte", labels, sizeof(labels));
    check_foretold(&config, true);
    assert_int_equal(cut_everywhere(&config, "train-images-idx3-ubyte.gz"), 0);
    change_everywhere(&config, "train-images-idx3-ubyte.gz");
    unlink(path);
}

static void test_cifar(void **state)
{
    static const uint8_t record[3073] = {3};
    struct dpb_dataset_config config = {.kind = "cifar10", .model = &colour, .folder = folder};
    char name[] = "data_batch_0.bin";

    (void)state;
    for (name[11] = '1'; name[11] <= '5'; name[11]++)
        put(name, record, sizeof(record));
    put("test_batch.bin", record, sizeof(record));
    check_foretold(&config, true);
    assert_int_equal(cut_everywhere(&config, "data_batch_3.bin"), 0);
}

static void test_csv(void **state)
{
    static const char text[] = "0,1.5,-2,3,4\n1,,1e3,-7,\n0,3,3,3,3\r\n1,0,0,123456789,9\n";
    char path[128];
    struct dpb_dataset_config config = {.kind = "interactions", .model = &clicks, .file = path};

    (void)state;
    path_of(path, "clicks.csv");
    put("clicks.csv", "# a comment\n1,2,3,4,5\n0,2,3,4,5\n0,1,1,1,1", 41);
    check_foretold(&config, true);
    put("clicks.csv", text, strlen(text));
    check_foretold(&config, true);
    int sound = cut_everywhere(&config, "clicks.csv");
    /* Within the last integer of a row, and after it; two rows at least. */
    assert_true(sound >= 3 && sound <= 20);
    assert_true(change_everywhere(&config, "clicks.csv") < (int)strlen(text) / 2);
}

static void test_text(void **state)
{
    char path[128], text[700] = "";
    struct dpb_dataset_config config = {.kind = "text", .model = &words, .file = path};

    (void)state;
    for (int i = 0; strlen(text) < 600; i++)
        sprintf(text + strlen(text), "line %d of \xc3\xa4 text\n", i * i);
    path_of(path, "book.txt");
    put("book.txt", text, strlen(text));
    check_foretold(&config, false);
    assert_true(cut_everywhere(&config, "book.txt") > 100);
    change_everywhere(&config, "book.txt");
}

/* ---- packed ---- */

static void pack_as(const struct dpb_model *model, const char *name)
{
    char csv[128], path[128];
    struct dpb_dataset_config config = {.kind = "interactions", .model = model, .file = csv};
    struct dpb_packed_summary summary;
    dpb_dataset *train, *test;

    path_of(csv, "rows.csv");
    FILE *file = fopen(csv, "w");
    assert_non_null(file);
    for (int i = 0; i < 20; i++)
        fprintf(file, "%d,%d,%d,%d,%d\n", i % 2, i, i + 1, i * 31, i * 17);
    fclose(file);
    path_of(path, name);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &train), DPB_OK);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TEST, &test), DPB_OK);
    const dpb_dataset *splits[] = {[DPB_SPLIT_TRAIN] = train, [DPB_SPLIT_TEST] = test};
    assert_int_equal(dpb_packed_write(splits, 2, path, &summary), DPB_OK);
    dpb_dataset_close(train);
    dpb_dataset_close(test);
}

static char packed_path[128];
static const struct dpb_dataset_config packed = {
        .kind = "packed", .model = &clicks, .folder = packed_path};

static void pack_both(void)
{
    pack_as(&clicks, "whole");
    pack_as(&other_clicks, "other");
    path_of(packed_path, "packed");
}

/* The folder `packed`, as it was packed. */
static void restore(void)
{
    shell("cd '%s' && rm -rf packed && cp -r whole packed # %s");
}

static void test_packed(void **state)
{
    struct dpb_packed_summary summary;
    uint8_t bytes[BYTES_MAX];

    (void)state;
    pack_both();
    restore();
    check_foretold(&packed, true);
    assert_int_equal(cut_everywhere(&packed, "packed/train-00000.dpbs"), 0);
    assert_int_equal(cut_everywhere(&packed, "packed/train-00001.dpbs"), 0);
    assert_true(cut_everywhere(&packed, "packed/index.json") <= 1); /* its last line end */
    change_everywhere(&packed, "packed/index.json");
    /* No change of a byte passes `check`, and none of a header is opened. */
    size_t count = get("packed/train-00001.dpbs", bytes);
    for (size_t n = 0; n < count; n++) {
        bytes[n] ^= 0x15;
        put("packed/train-00001.dpbs", bytes, count);
        bytes[n] ^= 0x15;
        log_collect();
        assert_true(dpb_packed_check(packed_path, &summary) < 0);
        assert_true(log_has("packed/train-00001.dpbs\": "));
        if (n < 192)
            assert_true(read_all(&packed) < 0);
        log_stop();
    }
    put("packed/train-00001.dpbs", bytes, count);
    assert_int_equal(dpb_packed_check(packed_path, &summary), DPB_OK);
}

/* Files of another set, each of them sound. */
static void test_packed_mixed(void **state)
{
    (void)state;
    restore();
    shell("cp '%s/other/train-00001.dpbs' '%s/packed'");
    assert_int_equal(read_damaged(&packed, "train-00001.dpbs\": byte 24: samples or hash are not"),
                     DPB_ERR_CORRUPT);
    /* the index agrees, the samples are made otherwise */
    shell("hash() { sed -n '/train-00001/,/xxh3/s/.*xxh3\": *\"\\([0-9a-f]*\\).*/\\1/p' \"$1\"; }; "
          "cd '%s' && sed -i s/$(hash packed/index.json)/$(hash other/index.json)/ "
          "packed/index.json # %s");
    assert_int_equal(read_damaged(&packed, "train-00001.dpbs\": byte 72: its samples are not made"),
                     DPB_ERR_CORRUPT);
    restore();
    shell("cp '%s/other/index.json' '%s/packed'");
    assert_int_equal(read_damaged(&packed, "train-00000.dpbs\": byte 24: samples or hash are not"),
                     DPB_ERR_CORRUPT);
    restore();
    shell("sed -i s/train-00001.dpbs/train-00002.dpbs/ '%s/packed/index.json' # %s");
    assert_int_equal(read_damaged(&packed, "index.json\": shard 1 of \"train\": file"),
                     DPB_ERR_CORRUPT);
    restore();
    shell("rm '%s/packed/train-00000.dpbs' # %s");
    assert_int_equal(read_damaged(&packed, "train-00000.dpbs\": No such file"), DPB_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_idx, make_folder),
            cmocka_unit_test(test_cifar),
            cmocka_unit_test(test_csv),
            cmocka_unit_test(test_text),
            cmocka_unit_test(test_packed),
            cmocka_unit_test_teardown(test_packed_mixed, remove_folder),
    };

    return DPB_RUN_TESTS(tests);
}
