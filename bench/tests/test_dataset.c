/* Datasets: which fits which network, IDX files good and damaged. */
#include "dpb_test.h"
#include "dpb_dataset.h"
#include "dpb_str.h"
#include "fixture.h"

#include <math.h>
#include <unistd.h>
#include <zlib.h>

#define IMAGES_NAME "train-images-idx3-ubyte"
#define LABELS_NAME "train-labels-idx1-ubyte"
#define COUNT       3
#define IMAGE_BYTES (16 + COUNT * 6)
#define LABEL_BYTES (8 + COUNT)

/* three images of 2x3 pixels and their labels */
static const uint8_t images_file[IMAGE_BYTES] = {0, 0,  8,   3,   0,   0,   0, COUNT,
                                                 0, 0,  0,   2,   0,   0,   0, 3, /* header */
                                                 0, 51, 102, 153, 204, 255,       /* 0 */
                                                 1, 2,  3,   4,   5,   6,         /* 1 */
                                                 9, 8,  7,   6,   5,   4};        /* 2 */
static const uint8_t labels_file[LABEL_BYTES] = {0, 0, 8, 1, 0, 0, 0, COUNT, 7, 0, 9};

static char folder[] = "/tmp/dpb-dataset-XXXXXX";

static void path_of(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static void remove_files(void)
{
    static const char *const names[] = {IMAGES_NAME, IMAGES_NAME ".gz", LABELS_NAME,
                                        LABELS_NAME ".gz"};
    char path[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_of(path, names[i]);
        unlink(path);
    }
}

static void write_plain(const char *name, const uint8_t *bytes, size_t count)
{
    char path[256];
    FILE *file;

    path_of(path, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_gzip(const char *name, const uint8_t *bytes, size_t count)
{
    char path[256];
    gzFile file;

    path_of(path, name);
    file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), count);
    assert_int_equal(gzclose(file), Z_OK);
}

static void write_good(void)
{
    remove_files();
    write_plain(IMAGES_NAME, images_file, IMAGE_BYTES);
    write_plain(LABELS_NAME, labels_file, LABEL_BYTES);
}

static const struct dpb_model tiny_model = {.sample_dim = {2, 3, 1}, .classes = 10};

static struct dpb_dataset_config tiny_config(void)
{
    return (struct dpb_dataset_config){.kind = "mnist", .folder = folder, .model = &tiny_model};
}

static void check_tiny(const char *source_name)
{
    struct dpb_dataset_config config = tiny_config();
    struct dpb_dataset_info info;
    const int64_t ids[] = {2, 0, 0};
    dpb_dataset *dataset;
    struct dpb_batch_arrays arrays;
    const float *x;

    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_string_equal(info.kind, "mnist");
    assert_false(info.synthetic);
    assert_int_equal(info.samples, 3);
    assert_string_equal(info.source + strlen(folder) + 1, source_name);
    assert_ptr_equal(dpb_dataset_model(dataset), &tiny_model);
    assert_int_equal(dpb_batch_arrays_open(&tiny_model, 3, &arrays), DPB_OK);
    assert_null(arrays.tokens);
    assert_null(arrays.indices);
    assert_int_equal(dpb_dataset_fetch(dataset, ids, 3, &arrays), DPB_OK);
    assert_int_equal(arrays.label[0], 9);
    assert_int_equal(arrays.label[1], 7);
    assert_int_equal(arrays.label[2], 7);
    x = arrays.x;
    for (int i = 0; i < 18; i++) {
        const uint8_t *image = images_file + 16 + (i < 6 ? 12 : 0);
        double expected = (image[i % 6] / 255.0 - 0.1307) / 0.3081;

        assert_true(fabs((double)x[i] - expected) < 1e-6);
    }
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(dataset);
}

static void test_plain_and_gzip(void **state)
{
    (void)state;
    write_good();
    check_tiny(IMAGES_NAME);

    remove_files();
    write_gzip(IMAGES_NAME ".gz", images_file, IMAGE_BYTES);
    write_gzip(LABELS_NAME ".gz", labels_file, LABEL_BYTES);
    check_tiny(IMAGES_NAME ".gz");

    /* one of each, and compressed bytes under the plain name */
    write_plain(LABELS_NAME, labels_file, LABEL_BYTES);
    check_tiny(IMAGES_NAME ".gz");
    write_gzip(IMAGES_NAME, images_file, IMAGE_BYTES);
    check_tiny(IMAGES_NAME);
    remove_files();
}

/* Opening fails with the status, and the log has all the texts. */
static void check_fails(dpb_status expected, const char *const *texts)
{
    struct dpb_dataset_config config = tiny_config();
    dpb_dataset *dataset = NULL;

    log_collect();
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), expected);
    assert_null(dataset);
    for (; *texts; texts++)
        assert_true(log_has(*texts));
    log_stop();
}

#define CHECK_FAILS(expected, ...) check_fails(expected, (const char *const[]){__VA_ARGS__, NULL})

static void test_wrong_headers(void **state)
{
    uint8_t bytes[IMAGE_BYTES];

    (void)state;
    write_good();
    write_plain(IMAGES_NAME, labels_file, LABEL_BYTES); /* labels where images should be */
    CHECK_FAILS(DPB_ERR_CORRUPT, IMAGES_NAME "\" is not an IDX file of unsigned bytes with 3",
                "is 00000801, expected 00000803", "hint: ");

    memcpy(bytes, images_file, IMAGE_BYTES);
    bytes[2] = 0x0d; /* floats */
    write_plain(IMAGES_NAME, bytes, IMAGE_BYTES);
    CHECK_FAILS(DPB_ERR_CORRUPT, "is 00000d03, expected 00000803");

    memcpy(bytes, images_file, IMAGE_BYTES);
    bytes[11] = 0;
    write_plain(IMAGES_NAME, bytes, IMAGE_BYTES);
    CHECK_FAILS(DPB_ERR_CORRUPT, "dimension 1 is 0 (byte 8)");

    memset(bytes + 4, 0xff, 12); /* 2^96 elements */
    write_plain(IMAGES_NAME, bytes, IMAGE_BYTES);
    CHECK_FAILS(DPB_ERR_CORRUPT, "dimension 1 is 4294967295 (byte 8)", "cannot be");
    remove_files();
}

static void test_truncated(void **state)
{
    uint8_t bytes[IMAGE_BYTES];

    (void)state;
    write_good();
    write_plain(IMAGES_NAME, images_file, 0);
    CHECK_FAILS(DPB_ERR_CORRUPT, "it ends at byte 0 of its content, within the header");
    write_plain(IMAGES_NAME, images_file, 11);
    CHECK_FAILS(DPB_ERR_CORRUPT, "it ends at byte 11", "within the header; 16 bytes");
    write_plain(IMAGES_NAME, images_file, IMAGE_BYTES - 1);
    CHECK_FAILS(DPB_ERR_CORRUPT, IMAGES_NAME "\": it ends at byte 33", "within the elements; 34");

    /* a damaged count promises 256 GB: an error at the real end, not an allocation of that size */
    memcpy(bytes, images_file, IMAGE_BYTES);
    bytes[4] = 0xff;
    write_plain(IMAGES_NAME, bytes, IMAGE_BYTES);
    CHECK_FAILS(DPB_ERR_CORRUPT, "it ends at byte 34", "25669140514 bytes");

    write_good();
    write_plain(LABELS_NAME, labels_file, LABEL_BYTES - 1);
    CHECK_FAILS(DPB_ERR_CORRUPT, LABELS_NAME "\": it ends at byte 10");
    remove_files();
}

static void test_bytes_after_the_end(void **state)
{
    uint8_t bytes[IMAGE_BYTES + 1] = {0};

    (void)state;
    write_good();
    memcpy(bytes, images_file, IMAGE_BYTES);
    write_plain(IMAGES_NAME, bytes, IMAGE_BYTES + 1);
    CHECK_FAILS(DPB_ERR_CORRUPT, "bytes follow the last element, which ends at byte 34");
    remove_files();
}

/* Compressed files cut anywhere, or with a damaged check sum, never open. */
static void test_damaged_gzip(void **state)
{
    struct dpb_str file = {0};
    struct dpb_dataset_config config = tiny_config();
    dpb_dataset *dataset = NULL;
    char path[256];

    (void)state;
    write_good();
    write_gzip(IMAGES_NAME, images_file, IMAGE_BYTES);
    path_of(path, IMAGES_NAME);
    assert_int_equal(dpb_file_read(path, &file), DPB_OK);
    log_collect();
    for (size_t count = 0; count < file.length; count++) {
        write_plain(IMAGES_NAME, (uint8_t *)file.text, count);
        assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_CORRUPT);
    }
    file.text[file.length - 6] ^= 1; /* CRC */
    write_plain(IMAGES_NAME, (uint8_t *)file.text, file.length);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_CORRUPT);
    assert_true(log_has("the compressed data is damaged"));
    assert_null(dataset);
    log_stop();
    dpb_str_release(&file);
    remove_files();
}

static void test_files_that_do_not_match(void **state)
{
    uint8_t labels[LABEL_BYTES];
    struct dpb_dataset_config config = tiny_config();
    struct dpb_model model = tiny_model;
    dpb_dataset *dataset = NULL;

    (void)state;
    write_good();
    memcpy(labels, labels_file, LABEL_BYTES);
    labels[7] = 2;
    write_plain(LABELS_NAME, labels, LABEL_BYTES - 1);
    CHECK_FAILS(DPB_ERR_CORRUPT, "holds 2 labels, but", "holds 3 images");

    memcpy(labels, labels_file, LABEL_BYTES);
    labels[9] = 10;
    write_plain(LABELS_NAME, labels, LABEL_BYTES);
    CHECK_FAILS(DPB_ERR_CORRUPT, LABELS_NAME "\": label 10 of sample 1 (byte 9) is not below 10");

    write_good();
    config.model = &model;
    model.sample_dim[0] = 28;
    log_collect();
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_USAGE);
    assert_true(log_has("holds images of 2x3x1, the workload takes 28x3x1"));
    model = tiny_model;
    model.sample_dim[2] = 3;
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_USAGE);
    log_stop();
    remove_files();
}

static void test_missing_files(void **state)
{
    struct dpb_dataset_config config = tiny_config();
    dpb_dataset *dataset = NULL;
    char path[256];

    (void)state;
    remove_files();
    CHECK_FAILS(DPB_ERR_NOT_FOUND, "there is neither \"" IMAGES_NAME "\" nor \"" IMAGES_NAME ".gz",
                folder, "--data-dir", "--data synthetic");
    write_plain(IMAGES_NAME, images_file, IMAGE_BYTES);
    CHECK_FAILS(DPB_ERR_NOT_FOUND, "neither \"" LABELS_NAME "\"");

    log_collect();
    config.kind = "fashion-mnist";
    config.folder = "/nonexistent/folder";
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TEST, &dataset), DPB_ERR_NOT_FOUND);
    assert_true(log_has("t10k-images-idx3-ubyte"));
    assert_true(log_has("/nonexistent/folder"));
    assert_true(log_has("install the Debian package \"dataset-fashion-mnist\""));
    assert_true(log_has("--data synthetic"));
    config.kind = "mnist";
    config.folder = "";
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_NOT_FOUND);
    assert_true(log_has("no folder is given"));
    config.folder = NULL;
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_NOT_FOUND);
    log_stop();

    /* a folder in the place of a file */
    remove_files();
    path_of(path, IMAGES_NAME);
    assert_int_equal(dpb_mkdir_p(path), DPB_OK);
    CHECK_FAILS(DPB_ERR_IO, IMAGES_NAME);
    rmdir(path);
    assert_null(dataset);
}

static void check_refused(const char *kind, const struct dpb_model *model, int64_t samples)
{
    struct dpb_dataset_config config = {.kind = kind, .model = model, .samples = samples};
    dpb_dataset *dataset = NULL;

    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_ERR_USAGE);
    assert_null(dataset);
}

static void test_configs_refused(void **state)
{
    const struct dpb_model good = {.sample_dim = {28, 28, 1}, .classes = 10};
    const struct dpb_model tokens = {
            .input = DPB_INPUT_TOKENS, .sequence = 16, .vocabulary = 50, .predicted = 3};
    const int64_t rows[2] = {5, 0};
    struct dpb_model model = good;

    (void)state;
    log_collect();
    check_refused("syntetic", &model, 0);
    assert_true(log_has("there is no dataset \"syntetic\""));
    assert_true(log_has("did you mean \"synthetic\"? there are fashion-mnist, mnist"));
    check_refused("auto", &model, 0); /* is for dpb_dataset_kind_for() */
    check_refused("synthetic", &model, -1);
    check_refused("synthetic", &model, (int64_t)1 << 32);
    model.sample_dim[1] = 0;
    check_refused("synthetic", &model, 0);
    assert_true(log_has("there cannot be 0 samples of 28x0x1 images of 10 classes"));
    model = good;
    model.classes = 0;
    check_refused("synthetic", &model, 0);

    check_refused("fashion-mnist", &tokens, 0);
    assert_true(log_has("--data fashion-mnist holds 28x28x1 images of 10 classes, the workload "
                        "takes sequences of 16 tokens"));
    model = tokens;
    model.predicted = 14; /* of 13 words */
    check_refused("synthetic", &model, 0);
    model.predicted = 0;
    check_refused("synthetic", &model, 0);
    model = tokens;
    model.vocabulary = DPB_TOKEN_WORDS;
    check_refused("synthetic", &model, 0);
    model = tokens;
    model.next_token = true; /* but not all tokens are predicted */
    check_refused("synthetic", &model, 0);
    model = (struct dpb_model){
            .input = DPB_INPUT_INTERACTIONS, .features = 3, .tables = 2, .table_rows = rows};
    check_refused("synthetic", &model, 0);
    log_stop();
}

static void check_kind(const char *name, const struct dpb_model *model, const char *expected)
{
    const char *kind = NULL;

    if (!expected) {
        assert_int_equal(dpb_dataset_kind_for(name, model, &kind), DPB_ERR_USAGE);
        assert_null(kind);
        return;
    }
    assert_int_equal(dpb_dataset_kind_for(name, model, &kind), DPB_OK);
    assert_string_equal(kind, expected);
}

static void test_kinds_that_fit(void **state)
{
    const struct dpb_model grey = {.sample_dim = {28, 28, 1}, .classes = 10};
    const struct dpb_model small = {.sample_dim = {32, 32, 3}, .classes = 10};
    const struct dpb_model colour = {.sample_dim = {224, 224, 3}, .classes = 1000};
    const struct dpb_model clicks = {.input = DPB_INPUT_INTERACTIONS, .features = 13};
    const struct dpb_model tokens = {
            .input = DPB_INPUT_TOKENS, .sequence = 16, .vocabulary = 50, .predicted = 3};

    (void)state;
    check_kind("auto", &grey, "fashion-mnist");
    check_kind("auto", &colour, "synthetic");
    check_kind("auto", &tokens, "synthetic");
    check_kind("mnist", &grey, "mnist");
    check_kind("synthetic", &grey, "synthetic");
    check_kind("cifar10", &small, "cifar10");
    check_kind("auto", &small, "synthetic"); /* no package installs CIFAR-10 */
    check_kind("interactions", &clicks, "interactions");
    check_kind("text", &tokens, "text");
    log_collect();
    check_kind("fashion-mnist", &colour, NULL);
    assert_true(log_has("--data fashion-mnist holds 28x28x1 images of 10 classes, the workload "
                        "takes 224x224x3 images of 1000 classes"));
    assert_true(log_has("what fits this workload: --data synthetic"));
    check_kind("text", &grey, NULL);
    assert_true(log_has("--data text holds text, the workload takes 28x28x1 images"));
    check_kind("mnist", &tokens, NULL);
    assert_true(log_has("what fits this workload: --data text, synthetic"));
    check_kind("interactions", &small, NULL);
    assert_true(log_has("--data interactions holds interactions, the workload takes 32x32x3"));
    assert_true(log_has("what fits this workload: --data cifar10, synthetic"));
    check_kind("fashion", &grey, NULL);
    log_stop();
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_plain_and_gzip, make_folder),
            cmocka_unit_test(test_wrong_headers),
            cmocka_unit_test(test_truncated),
            cmocka_unit_test(test_bytes_after_the_end),
            cmocka_unit_test(test_damaged_gzip),
            cmocka_unit_test(test_files_that_do_not_match),
            cmocka_unit_test_teardown(test_missing_files, remove_folder),
            cmocka_unit_test(test_configs_refused),
            cmocka_unit_test(test_kinds_that_fit),
    };

    return DPB_RUN_TESTS(tests);
}
