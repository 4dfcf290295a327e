/* Interactions written to a file: Zipf-distributed, read back and packed as made up. */
#include "dpb_interactions_csv.h"
#include "dpb_packed.h"
#include "dpb_test.h"
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS   20000
#define TABLE  1000
#define RANKED 50 /* the most frequent categories, each seen often enough to count */

static char folder[] = "/tmp/dpb-clicks-XXXXXX";
static char csv[64], packed[64];

static const int64_t rows[] = {TABLE, 10};
static const struct dpb_model clicks = {
        .input = DPB_INPUT_INTERACTIONS, .features = 2, .tables = 2, .table_rows = rows};

static int make_file(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(csv, sizeof(csv), "%s/clicks.csv", folder);
    snprintf(packed, sizeof(packed), "%s/packed", folder);
    assert_int_equal(dpb_interactions_csv_write(&clicks, 4, ROWS, csv), DPB_OK);
    return 0;
}

static int remove_folder(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* A row of the file. */
struct row {
    int label, first, second;
    double x[2];
};

static void read_rows(struct row row[ROWS])
{
    FILE *file = fopen(csv, "r");
    char line[256];

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    assert_string_equal(line, "# synthetic: made by dpbench with seed 4\n");
    for (int i = 0; i < ROWS; i++) {
        assert_non_null(fgets(line, sizeof(line), file));
        assert_int_equal(sscanf(line, "%d,%lf,%lf,%d,%d", &row[i].label, &row[i].x[0], &row[i].x[1],
                                &row[i].first, &row[i].second),
                         5);
    }
    assert_null(fgets(line, sizeof(line), file));
    fclose(file);
}

/* The k-th most frequent category is seen in proportion to about 1 / k: a line of slope -1 through
 * the logarithms, by least squares. */
static void test_categories_are_zipf_distributed(void **state)
{
    static struct row row[ROWS];
    double count[TABLE] = {0}, sx = 0, sy = 0, sxx = 0, sxy = 0;

    (void)state;
    read_rows(row);
    for (int i = 0; i < ROWS; i++) {
        assert_true(row[i].first >= 0 && row[i].first < TABLE);
        assert_true(row[i].second >= 0 && row[i].second < 10);
        count[row[i].first]++;
    }
    for (int k = 0; k < RANKED; k++) {
        double x = log(k + 1.5), y = log(count[k]); /* dpb_zipf(): log((k + 2) / (k + 1)) */

        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    double slope = (RANKED * sxy - sx * sy) / (RANKED * sxx - sx * sx);
    print_message("slope %.3f\n", slope);
    assert_true(slope > -1.1 && slope < -0.9);
}

/* What is read is what was written, and the numbers tell something of the label. */
static void test_read_back(void **state)
{
    static struct row row[ROWS];
    const struct dpb_dataset_config config = {
            .kind = "interactions", .model = &clicks, .file = csv};
    struct dpb_batch_arrays arrays;
    struct dpb_dataset_info info;
    dpb_dataset *dataset;
    double mean[2][2] = {{0}};
    int clicked = 0;

    (void)state;
    read_rows(row);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_true(info.synthetic);
    assert_int_equal(info.samples, ROWS * 9 / 10);
    assert_int_equal(dpb_batch_arrays_open(&clicks, 1, &arrays), DPB_OK);
    for (int64_t id = 0; id < info.samples; id++) {
        assert_int_equal(dpb_dataset_fetch(dataset, &id, 1, &arrays), DPB_OK);
        assert_int_equal(arrays.label[0], row[id].label);
        assert_true(arrays.x[0] == (float)row[id].x[0] && arrays.x[1] == (float)row[id].x[1]);
        clicked += arrays.label[0];
        for (int f = 0; f < 2; f++)
            mean[arrays.label[0]][f] += arrays.x[f];
    }
    assert_true(clicked > info.samples / 4 && clicked < info.samples * 3 / 4);
    for (int f = 0; f < 2; f++)
        assert_true(fabs(mean[1][f] / clicked - mean[0][f] / (double)(info.samples - clicked)) >
                    0.2);
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(dataset);
}

static void test_packed_is_still_synthetic(void **state)
{
    struct dpb_dataset_config config = {.kind = "interactions", .model = &clicks, .file = csv};
    struct dpb_packed_summary summary;
    struct dpb_dataset_info info;
    dpb_dataset *train, *test;

    (void)state;
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &train), DPB_OK);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TEST, &test), DPB_OK);
    const dpb_dataset *splits[] = {[DPB_SPLIT_TRAIN] = train, [DPB_SPLIT_TEST] = test};
    assert_int_equal(dpb_packed_write(splits, 2, packed, &summary), DPB_OK);
    dpb_dataset_close(train);
    dpb_dataset_close(test);
    config = (struct dpb_dataset_config){.kind = "packed", .model = &clicks, .folder = packed};
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TEST, &test), DPB_OK);
    dpb_dataset_describe(test, &info);
    assert_true(info.synthetic);
    assert_string_equal(info.kind, "packed");
    dpb_dataset_close(test);
}

static void test_refused(void **state)
{
    static const struct dpb_model images = {.sample_dim = {4, 4, 1}, .classes = 10};
    char path[80];

    (void)state;
    snprintf(path, sizeof(path), "%s/new.csv", folder);
    log_collect();
    assert_int_equal(dpb_interactions_csv_write(&images, 1, 10, path), DPB_ERR_USAGE);
    assert_true(log_has("cannot be made for a workload that takes 4x4x1 images of 10 classes"));
    assert_int_equal(dpb_interactions_csv_write(&clicks, 1, 1, path), DPB_ERR_USAGE);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(dpb_interactions_csv_write(&clicks, 1, 10, csv), DPB_ERR_USAGE);
    assert_true(log_has("File exists"));
    assert_int_equal(dpb_interactions_csv_write(&clicks, 1, 10, "/dev/null/x"), DPB_ERR_IO);
    log_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_categories_are_zipf_distributed, make_file),
            cmocka_unit_test(test_read_back),
            cmocka_unit_test(test_packed_is_still_synthetic),
            cmocka_unit_test_teardown(test_refused, remove_folder),
    };

    return DPB_RUN_TESTS(tests);
}
