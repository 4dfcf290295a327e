/* The real Fashion-MNIST, where Debian's package has installed it: counts, and the mean and
 * deviation that normalisation uses. */
#include "dpb_test.h"
#include "dpb_dataset.h"

#include <math.h>
#include <unistd.h>

#define FOLDER "/usr/share/datasets/fashion-mnist"

static const struct dpb_model model = {.sample_dim = {28, 28, 1}, .classes = 10};

static dpb_dataset *open_real(enum dpb_split split)
{
    struct dpb_dataset_config config = {.kind = "fashion-mnist", .model = &model};
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&config, split, &dataset), DPB_OK);
    return dataset;
}

static void test_counts(void **state)
{
    dpb_dataset *train = open_real(DPB_SPLIT_TRAIN), *test = open_real(DPB_SPLIT_TEST);
    struct dpb_dataset_info info;

    (void)state;
    dpb_dataset_describe(train, &info);
    assert_int_equal(info.samples, 60000);
    assert_string_equal(info.kind, "fashion-mnist");
    assert_non_null(strstr(info.source, FOLDER "/train-images-idx3-ubyte"));
    dpb_dataset_describe(test, &info);
    assert_int_equal(info.samples, 10000);
    dpb_dataset_close(train);
    dpb_dataset_close(test);
}

/* Back from normalised values, so that the constants are compared with the data themselves: the
 * normalised training set has mean 0 and deviation 1 to the digits that the constants have. */
static void test_mean_and_deviation(void **state)
{
    dpb_dataset *train = open_real(DPB_SPLIT_TRAIN);
    double sum = 0.0, squares = 0.0, mean, deviation;
    const double count = 60000.0 * 784.0;
    struct dpb_batch_arrays arrays;
    int of_class[10] = {0};

    (void)state;
    assert_int_equal(dpb_batch_arrays_open(&model, 1, &arrays), DPB_OK);
    for (int64_t id = 0; id < 60000; id++) {
        assert_int_equal(dpb_dataset_fetch(train, &id, 1, &arrays), DPB_OK);
        of_class[arrays.label[0]]++;
        for (int e = 0; e < 784; e++) {
            double pixel = (double)arrays.x[e] * 0.3530 + 0.2860;

            sum += pixel;
            squares += pixel * pixel;
        }
    }
    mean = sum / count;
    deviation = sqrt(squares / count - mean * mean);
    assert_true(fabs(mean - 0.2860) < 0.00005);
    assert_true(fabs(deviation - 0.3530) < 0.00005);
    for (int c = 0; c < 10; c++)
        assert_int_equal(of_class[c], 6000);
    dpb_batch_arrays_release(&arrays);
    dpb_dataset_close(train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_counts),
            cmocka_unit_test(test_mean_and_deviation),
    };

    if (access(FOLDER, R_OK) != 0)
        dpb_test_skip_all("the package dataset-fashion-mnist is not installed");
    return DPB_RUN_TESTS(tests);
}
