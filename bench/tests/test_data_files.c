/* Data from files that a user names: CIFAR-10, interactions; good, damaged, missing. */
#include "dpb_test.h"
#include "dpb_dataset.h"
#include "fixture.h"

#include <math.h>
#include <unistd.h>

#define RECORD 3073

static char folder[] = "/tmp/dpb-data-files-XXXXXX";

static void path_of(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *bytes, size_t count)
{
    char path[256];
    FILE *file;

    path_of(path, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    char path[256];

    path_of(path, name);
    unlink(path);
}

/* Opening fails with the status, and the log has all the texts. */
static void check_fails(const struct dpb_dataset_config *config, dpb_status expected,
                        const char *const *texts)
{
    dpb_dataset *dataset = NULL;

    log_collect();
    assert_int_equal(dpb_dataset_open(config, DPB_SPLIT_TRAIN, &dataset), expected);
    assert_null(dataset);
    for (; *texts; texts++)
        assert_true(log_has(*texts));
    log_stop();
}

#define CHECK_FAILS(config, expected, ...)                                                         \
    check_fails(config, expected, (const char *const[]){__VA_ARGS__, NULL})

/* ---- CIFAR-10 ---- */

static const char *const cifar_names[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin", "test_batch.bin"};
static const struct dpb_model colour = {.sample_dim = {32, 32, 3}, .classes = 10};
static const struct dpb_dataset_config cifar = {
        .kind = "cifar10", .model = &colour, .folder = folder};

/* Two records a file; in record r of all, byte b of a plane is r + b + 100 * channel. */
static void write_cifar(void)
{
    uint8_t bytes[2 * RECORD];

    for (int f = 0; f < 6; f++) {
        for (int r = 0; r < 2; r++) {
            uint8_t *record = bytes + r * RECORD;

            record[0] = (uint8_t)(2 * f + r) % 10;
            for (int i = 0; i < 3 * 1024; i++)
                record[1 + i] = (uint8_t)(2 * f + r + i % 1024 + 100 * (i / 1024));
        }
        write_file(cifar_names[f], bytes, sizeof(bytes));
    }
}

static void check_cifar(enum dpb_split split, int64_t samples, int64_t id, int record)
{
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.2470, 0.2435, 0.2616};
    struct dpb_batch_arrays arrays;
    struct dpb_dataset_info info;
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&cifar, split, &dataset), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_false(info.synthetic);
    assert_string_equal(info.kind, "cifar10");
    assert_string_equal(info.source + strlen(folder) + 1,
                        cifar_names[split == DPB_SPLIT_TRAIN ? 0 : 5]);
    assert_int_equal(info.samples, samples);
    assert_int_equal(dpb_batch_arrays_open(&colour, 2, &arrays), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(dataset, (const int64_t[]){0, id}, 2, &arrays), DPB_OK);
    assert_int_equal(arrays.label[1], record % 10);
    for (int p = 0; p < 1024; p++) {
        for (int c = 0; c < 3; c++) {
            double pixel = (record + p + 100 * c) % 256 / 255.0;
            double expected = (pixel - mean[c]) / deviation[c];

            assert_true(fabs((double)arrays.x[3072 + p * 3 + c] - expected) < 1e-5);
        }
    }
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(dataset);
}

static void test_cifar(void **state)
{
    (void)state;
    write_cifar();
    check_cifar(DPB_SPLIT_TRAIN, 10, 0, 0);
    check_cifar(DPB_SPLIT_TRAIN, 10, 7, 7);
    check_cifar(DPB_SPLIT_TEST, 2, 1, 11);
}

static void test_cifar_damaged(void **state)
{
    struct dpb_dataset_config config = cifar;
    struct dpb_model model = colour;
    uint8_t bytes[2 * RECORD + 1] = {0};

    (void)state;
    write_cifar();
    write_file(cifar_names[2], bytes, 2 * RECORD - 1);
    CHECK_FAILS(&cifar, DPB_ERR_CORRUPT,
                "data_batch_3.bin\": it ends at byte 6145, within record 1 of", "hint: ");
    write_file(cifar_names[2], bytes, 2 * RECORD + 1);
    CHECK_FAILS(&cifar, DPB_ERR_CORRUPT, "it ends at byte 6147, within record 2");
    write_file(cifar_names[2], bytes, 0);
    CHECK_FAILS(&cifar, DPB_ERR_CORRUPT, "it ends at byte 0, within record 0");
    bytes[RECORD] = 10;
    write_file(cifar_names[2], bytes, 2 * RECORD);
    CHECK_FAILS(&cifar, DPB_ERR_CORRUPT,
                "data_batch_3.bin\": label 10 of record 1 (byte 3073) is not below 10");
    remove_file(cifar_names[2]);
    CHECK_FAILS(&cifar, DPB_ERR_NOT_FOUND, "there is no \"data_batch_3.bin\" in \"", folder,
                "--data-dir", "--data synthetic");
    config.folder = "";
    CHECK_FAILS(&config, DPB_ERR_NOT_FOUND, "no folder is given");
    config.folder = folder;
    config.model = &model;
    model.sample_dim[0] = 64;
    CHECK_FAILS(&config, DPB_ERR_USAGE, "the workload takes 64x32x3 in 10");
    for (int f = 0; f < 6; f++)
        remove_file(cifar_names[f]);
}

/* ---- interactions ---- */

static const int64_t rows[] = {1, 7, 1000000};
static const struct dpb_model clicks = {.input = DPB_INPUT_INTERACTIONS,
                                        .features = 2,
                                        .tables = 3,
                                        .table_rows = rows,
                                        .classes = 2};
static char csv_path[256];
static const struct dpb_dataset_config csv = {
        .kind = "interactions", .model = &clicks, .file = csv_path};

static void write_csv(const char *text)
{
    write_file("rows.csv", text, strlen(text));
    path_of(csv_path, "rows.csv");
}

static void fetch_all(enum dpb_split split, int64_t samples, struct dpb_batch_arrays *arrays)
{
    const int64_t ids[] = {0, 1, 2, 3};
    struct dpb_dataset_info info;
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&csv, split, &dataset), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_string_equal(info.source, csv_path);
    assert_false(info.synthetic);
    assert_int_equal(info.samples, samples);
    assert_int_equal(dpb_batch_arrays_open(&clicks, 4, arrays), DPB_OK);
    assert_null(arrays->tokens);
    assert_int_equal(dpb_dataset_fetch(dataset, ids, samples, arrays), DPB_OK);
    dpb_dataset_close(dataset);
}

/* Both kinds of line ends, empty fields, no line end at the end; equal integers get equal rows. */
static void test_interactions(void **state)
{
    struct dpb_batch_arrays train, test;

    (void)state;
    write_csv("1,0.5,-2e3,5,6,7\r\n"
              "0,,3,5,-6,7\n"
              "1,1,2,,6,8\n"
              "0,0.25,4,9223372036854775807,6,7");
    fetch_all(DPB_SPLIT_TRAIN, 3, &train);
    fetch_all(DPB_SPLIT_TEST, 1, &test);
    assert_int_equal(train.label[0], 1);
    assert_int_equal(train.label[1], 0);
    assert_int_equal(train.label[2], 1);
    assert_int_equal(test.label[0], 0);
    assert_true(train.x[0] == 0.5f && train.x[1] == -2000.0f && train.x[2] == 0.0f);
    assert_true(train.x[3] == 3.0f && test.x[0] == 0.25f && test.x[1] == 4.0f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(train.indices[i * 3], 0);
        assert_in_range(train.indices[i * 3 + 1], 0, 6);
        assert_in_range(train.indices[i * 3 + 2], 0, 999999);
    }
    assert_int_equal(train.indices[1], train.indices[7]);
    assert_int_equal(train.indices[1], test.indices[1]);
    assert_int_equal(train.indices[2], train.indices[5]);
    assert_int_equal(train.indices[2], test.indices[2]);
    assert_int_not_equal(train.indices[2], train.indices[8]);
    dpb_batch_arrays_release(&train);
    dpb_batch_arrays_release(&test);
}

/* More rows than the first allocation holds; a tenth is for testing. */
static void test_many_interactions(void **state)
{
    static char text[5000 * 16];
    struct dpb_batch_arrays train;
    size_t length = 0;
    dpb_dataset *dataset;
    const int64_t last = 4499;

    (void)state;
    for (int i = 0; i < 5000; i++)
        length += (size_t)sprintf(text + length, "%d,%d,1,1,1,1\n", i % 2, i % 100);
    write_csv(text);
    assert_int_equal(dpb_dataset_open(&csv, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    assert_int_equal(dpb_batch_arrays_open(&clicks, 1, &train), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(dataset, &last, 1, &train), DPB_OK);
    assert_int_equal(train.label[0], 1);
    assert_true(train.x[0] == 99.0f);
    dpb_batch_arrays_release(&train);
    dpb_dataset_close(dataset);
}

static void test_interactions_damaged(void **state)
{
    struct dpb_dataset_config config = csv;

    (void)state;
    write_csv("1,0.5,1,5,6,7\n0,1,1,5,6\n");
    CHECK_FAILS(
            &csv, DPB_ERR_CORRUPT,
            "rows.csv\": line 2, byte 14: 5 fields, but the workload takes 6: a label, 2 numbers, "
            "3 categories",
            "hint: ");
    write_csv("1,0.5,1,5,6,7\n0,1,1,5,6,7,8\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 2, byte 14: 7 fields");
    write_csv("1,0.5,1,5,6,7\n2,1,1,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 2, byte 14: \"2\": a label is 0 or 1");
    write_csv("1,0.5,1,5,6,7\n1,1,x,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 2, byte 18: \"x\": ");
    write_csv("1,0.5,1,5,6,7\n1,1,nan,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 2, byte 18: \"nan\": ");
    write_csv("1,0.5,1,5,6.5,7\n1,1,1,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 1, byte 10: \"6.5\": ");
    write_csv("label,a,b,c,d,e\n1,1,1,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 1, byte 0: \"label\": ", "there is no header");
    write_csv("1,0.5,1,5,6,7\n\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "line 2, byte 14");
    write_csv("1,0.5,1,5,6,7\n");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "holds 1 rows, at least 2 are needed");
    write_csv("");
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "holds 0 rows");
    write_file("rows.csv", "1,0.5,1,5,6,7\n1\0", 16);
    CHECK_FAILS(&csv, DPB_ERR_CORRUPT, "rows.csv\": byte 15 is zero");
    remove_file("rows.csv");
    CHECK_FAILS(&csv, DPB_ERR_NOT_FOUND, "rows.csv");
    config.file = NULL;
    CHECK_FAILS(&config, DPB_ERR_USAGE, "no file is given", "--data-file");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_cifar, make_folder),
            cmocka_unit_test(test_cifar_damaged),
            cmocka_unit_test(test_interactions),
            cmocka_unit_test(test_many_interactions),
            cmocka_unit_test_teardown(test_interactions_damaged, remove_folder),
    };

    return DPB_RUN_TESTS(tests);
}
