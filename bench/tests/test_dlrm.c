/* Recommendation models: tables, order and gradients against PyTorch, and the workload's duties. */
#include "dpb_test.h"

#include <math.h>

#include "dlrm.h"
#include "dpb_device_cpu.h"
#include "dpb_json.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "reference_device.h"
#include "tiny_dlrm.h"

/* ---- the model of dlrm_tiny.json, whose tables are parameters ---- */

static const struct dpb_dlrm_list *tiny_list;
static struct dpb_workload_ops tiny_ops;

static const struct dpb_model *tiny_model(const void *options)
{
    (void)options;
    return &tiny_list->model;
}

static dpb_status tiny_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_dlrm_open(&tiny_ops, tiny_list, config, workload);
}

static void make_tiny(void)
{
    tiny_list = tiny_dlrm_list(DPB_DLRM_TABLES_DENSE);
    tiny_ops = dpb_workload_dlrm_small_ops;
    tiny_ops.name = "tiny";
    tiny_ops.model = tiny_model;
    tiny_ops.open = tiny_open;
}

/* ---- tables ---- */

/* Parameters from `first` on, against a file of the framework's. */
static void check_mlps(const struct dpb_model *model, int first, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256], name[64], shape[64], want[64];
    int index, rows = 0;
    long long numel, bytes, macs;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    while (fgets(line, sizeof(line), file)) {
        const struct dpb_param_info *param;

        assert_int_equal(sscanf(line, "%d,%63[^,],%63[^,],%lld,%lld,Linear,%lld", &index, name,
                                shape, &numel, &bytes, &macs),
                         6);
        param = &model->params[first + index];
        snprintf(want, sizeof(want), param->rank == 2 ? "%lldx%lld" : "%lld",
                 (long long)param->dim[0], (long long)param->dim[1]);
        assert_string_equal(param->name, name);
        assert_string_equal(want, shape);
        assert_int_equal(param->numel, numel);
        assert_false(param->table);
        if (param->rank == 2)
            assert_int_equal(model->layers[param->layer].fwd_macs_per_sample, macs);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, model->param_count - first);
}

static void test_parameters_are_dlrms(void **state)
{
    const struct dpb_model *model = dpb_workload_dlrm_small_ops.model(NULL);

    (void)state;
    assert_int_equal(model->param_count, 40);
    assert_int_equal(dpb_model_param_elements(model), 4635985);
    assert_int_equal(dpb_model_own_table_elements(model), 0);
    /* the MLPs' products, and 351 pairs of 16 elements */
    assert_int_equal(dpb_model_fwd_macs_per_sample(model), 474368 + 351 * 16);
    assert_string_equal(model->params[0].name, "emb_l.0.weight");
    assert_string_equal(model->params[25].name, "emb_l.25.weight");
    for (int t = 0; t < 26; t++) {
        assert_int_equal(model->params[t].dim[0], 10000);
        assert_int_equal(model->params[t].dim[1], 16);
        assert_true(model->params[t].table);
        assert_int_equal(model->table_rows[t], 10000);
    }
    check_mlps(model, 26, DPB_TEST_DATA "/dlrm_kaggle_dense.csv");
}

static void test_parameters_are_mlperfs(void **state)
{
    const struct dpb_workload_ops *ops = &dpb_workload_dlrm_mlperf_ops;
    const int64_t uncut = 40000000; /* the options struct's only member */
    const struct dpb_model *model = ops->model(NULL);
    int64_t rows = 0;

    (void)state;
    assert_int_equal(model->param_count, 16);
    assert_int_equal(dpb_model_param_elements(model), 2368897);
    assert_int_equal(dpb_model_fwd_macs_per_sample(model), 2365184 + 351 * 128);
    check_mlps(model, 0, DPB_TEST_DATA "/dlrm_mlperf_dense.csv");
    for (int i = 0; i < 16; i++)
        assert_int_equal(model->ready_order[i], 15 - i);
    assert_true(dpb_model_has_tables(model));
    assert_int_equal(model->tables, 26);
    assert_int_equal(model->table_rows[0], 100000);
    assert_int_equal(model->table_rows[1], 39060);
    assert_int_equal(ops->options->config_bytes, sizeof(uncut));
    model = ops->model(&uncut);
    for (int t = 0; t < 26; t++)
        rows += model->table_rows[t];
    assert_int_equal(rows, 204184588);
    assert_int_equal(dpb_model_own_table_elements(model), 26135627264);
}

/* As the option struct of dlrm-small. */
struct small_options {
    int64_t table_rows;
    int gradients;
};

static void check_no_parameters(enum dpb_dlrm_where where)
{
    const struct small_options options = {.table_rows = 10000, .gradients = (int)where};
    const struct dpb_model *model = dpb_workload_dlrm_small_ops.model(&options);

    assert_int_equal(dpb_model_param_elements(model), 475985);
    assert_true(dpb_model_has_tables(model));
    assert_int_equal(dpb_model_own_table_elements(model), 4160000);
    assert_int_equal(dpb_model_fwd_macs_per_sample(model), 474368 + 351 * 16);
    assert_int_equal(model->table_rows[25], 10000);
    check_mlps(model, 0, DPB_TEST_DATA "/dlrm_kaggle_dense.csv");
}

static void test_other_tables_are_no_parameters(void **state)
{
    (void)state;
    check_no_parameters(DPB_DLRM_TABLES_SPARSE);
    check_no_parameters(DPB_DLRM_TABLES_SHARDED);
}

static void test_rows_are_an_option(void **state)
{
    const struct dpb_workload_ops *ops = &dpb_workload_dlrm_small_ops;
    struct small_options options = {.table_rows = 7};
    const struct dpb_model *few = ops->model(&options);

    (void)state;
    assert_int_equal(ops->options->config_bytes, sizeof(options));
    assert_int_equal(dpb_model_param_elements(few), 26 * 7 * 16 + 475985);
    assert_int_equal(few->table_rows[25], 7);
    assert_ptr_equal(few, ops->model(&options));
    options.table_rows = 10000;
    assert_ptr_equal(ops->model(NULL), ops->model(&options));
}

static void test_ready_order(void **state)
{
    const struct dpb_model *model = dpb_workload_dlrm_small_ops.model(NULL);
    dpb_json *json = tiny_dlrm_figures();
    int32_t order[11];
    int at = 0;

    (void)state;
    tiny_dlrm_ints(json, "ready_order", order, 11);
    assert_int_equal(tiny_list->model.param_count, 11);
    for (int i = 0; i < 11; i++)
        assert_int_equal(tiny_list->model.ready_order[i], order[i]);
    dpb_json_free(json);
    for (int p = 39; p >= 34; p--)
        assert_int_equal(model->ready_order[at++], p);
    for (int t = 25; t >= 0; t--)
        assert_int_equal(model->ready_order[at++], t);
    for (int p = 33; p >= 26; p--)
        assert_int_equal(model->ready_order[at++], p);
}

static void test_shapes_that_do_not_fit(void **state)
{
    static struct dpb_dlrm_list list;
    struct dpb_dlrm_shape shape = tiny_list->shape;

    (void)state;
    log_collect();
    shape.bottom[1] = 5;
    assert_int_equal(dpb_dlrm_list_init(&list, &shape, "odd"), DPB_ERR_INTERNAL);
    shape = tiny_list->shape;
    shape.tables = DPB_DLRM_TABLES_MAX + 1;
    assert_int_equal(dpb_dlrm_list_init(&list, &shape, "odd"), DPB_ERR_INTERNAL);
    assert_true(log_has("workload \"odd\""));
    log_stop();
}

/* ---- loss and gradients ---- */

static void load_figures(struct fixture *fixture, const dpb_json *json)
{
    const dpb_json *names = dpb_json_get(json, "names");

    tiny_dlrm_floats(json, "x", fixture->x, TINY_DLRM_SAMPLES * 3);
    tiny_dlrm_ints(json, "indices", fixture->indices, TINY_DLRM_SAMPLES * 3);
    tiny_dlrm_ints(json, "label", fixture->label, TINY_DLRM_SAMPLES);
    for (int p = 0; p < tiny_list->model.param_count; p++) {
        const struct dpb_param_info *param = &tiny_list->param[p];

        assert_string_equal(dpb_json_as_string(dpb_json_at(names, (size_t)p), ""), param->name);
        tiny_dlrm_floats(json, param->name, fixture->param[p], param->numel);
    }
}

static void check_against_torch(const struct dpb_device_ops *device, double tolerance)
{
    dpb_json *json = tiny_dlrm_figures();
    double loss = dpb_json_as_real(dpb_json_get(json, "loss_sum"), NAN);
    struct dpb_forward_result result;
    struct fixture fixture;

    fixture_open(&fixture, device, &tiny_ops, TINY_DLRM_SAMPLES);
    load_figures(&fixture, json);
    result = fixture_step(&fixture, (float)dpb_json_as_real(dpb_json_get(json, "scale"), NAN));
    assert_true(fabs(result.loss_sum - loss) < tolerance * loss);
    assert_int_equal(fixture.ready_count, tiny_list->model.param_count);
    for (int p = 0; p < tiny_list->model.param_count; p++) {
        const struct dpb_param_info *param = &tiny_list->param[p];
        double largest = 0.0, worst = 0.0;
        float want[128];
        char key[80];

        assert_int_equal(fixture.ready[p], tiny_list->model.ready_order[p]);
        snprintf(key, sizeof(key), "%s.grad", param->name);
        assert_true(param->numel <= 128);
        tiny_dlrm_floats(json, key, want, param->numel);
        for (int64_t i = 0; i < param->numel; i++) {
            largest = fmax(largest, fabs((double)want[i]));
            worst = fmax(worst, fabs((double)want[i] - (double)fixture.grad[p][i]));
        }
        if (!(largest > 0.0 && worst <= tolerance * largest))
            fail_msg("%s: largest gradient %g, worst difference %g", param->name, largest, worst);
    }
    fixture_close(&fixture);
    dpb_json_free(json);
}

/* bf16 has 8 bits: a value is off by up to 2^-9 of itself, and a few layers add that up. */
static void check_mixed_against_torch(const struct dpb_device_ops *device)
{
    const struct dpb_rank_services alone = {.size = 1};
    const struct dpb_workload_config config = {
            .batch_max = TINY_DLRM_SAMPLES, .ranks = &alone, .precision = DPB_BF16};
    dpb_json *json = tiny_dlrm_figures();
    double loss = dpb_json_as_real(dpb_json_get(json, "loss_sum"), NAN), worst = 0.0;
    struct dpb_forward_result result;
    struct fixture fixture;

    fixture_open_with(&fixture, device, &tiny_ops, &config, 0);
    load_figures(&fixture, json);
    result = fixture_step(&fixture, (float)dpb_json_as_real(dpb_json_get(json, "scale"), NAN));
    assert_true(fabs(result.loss_sum - loss) < 0.01 * loss && result.loss_sum != loss);
    for (int p = 0; p < tiny_list->model.param_count; p++) {
        const struct dpb_param_info *param = &tiny_list->param[p];
        double squares = 0.0, off = 0.0;
        float want[128];
        char key[80];

        assert_int_equal(fixture.ready[p], tiny_list->model.ready_order[p]);
        snprintf(key, sizeof(key), "%s.grad", param->name);
        assert_true(param->numel <= 128);
        tiny_dlrm_floats(json, key, want, param->numel);
        for (int64_t i = 0; i < param->numel; i++) {
            double difference = (double)want[i] - (double)fixture.grad[p][i];

            squares += (double)want[i] * (double)want[i];
            off += difference * difference;
        }
        worst = fmax(worst, sqrt(off / squares));
        if (!(squares > 0.0 && off <= 0.03 * 0.03 * squares))
            fail_msg("%s: off by %g of its size", param->name, sqrt(off / squares));
    }
    print_message("gradients off by at most %g of their size\n", worst);
    assert_int_equal(tiny_ops.activation_bytes(fixture.workload),
                     dpb_dlrm_activation_bytes_for(
                             tiny_list, &(struct dpb_workload_sizes){.batch_max = TINY_DLRM_SAMPLES,
                                                                     .ranks = 1,
                                                                     .precision = DPB_BF16}));
    fixture_close(&fixture);
    dpb_json_free(json);
}

static void test_reference_device_in_bf16(void **state)
{
    (void)state;
    check_mixed_against_torch(&test_reference_device_ops);
}

static void test_cpu_device_in_bf16(void **state)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device;
    bool has;

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    has = dpb_device_cpu_ops.op_supported(device, DPB_OP_MATMUL, DPB_BF16);
    dpb_device_cpu_ops.close(device);
    if (!has)
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    check_mixed_against_torch(&dpb_device_cpu_ops);
}

static void test_reference_device_against_torch(void **state)
{
    (void)state;
    check_against_torch(&test_reference_device_ops, 2e-6);
}

static void test_cpu_device_against_torch(void **state)
{
    (void)state;
    check_against_torch(&dpb_device_cpu_ops, 1e-5);
}

static void test_loss_falls(void **state)
{
    struct fixture fixture;
    double first = 0.0, last = 0.0;

    (void)state;
    fixture_open(&fixture, &dpb_device_cpu_ops, &tiny_ops, 64);
    for (int step = 0; step < 100; step++) {
        last = fixture_step(&fixture, 1.0f / 64.0f).loss_sum;
        if (step == 0)
            first = last;
        fixture_update(&fixture, 0.3f);
    }
    if (!(last < 0.8 * first))
        fail_msg("loss %g after %g", last, first);
    fixture_close(&fixture);
}

/* ---- duties of a workload ---- */

static void test_correct_counts_both_sides(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result result;
    int64_t clicks = 0;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_ops, 32);
    memset(fixture.params, 0, (size_t)fixture.elements * sizeof(float));
    for (int i = 0; i < 32; i++)
        clicks += fixture.label[i];
    assert_true(clicks > 0 && clicks < 32);
    for (int side = 0; side < 2; side++) {
        fixture.param[10][0] = side ? 1.0f : -1.0f; /* top_l.2.bias is the logit */
        result = fixture_step(&fixture, 1.0f);
        assert_int_equal(result.correct, side ? clicks : 32 - clicks);
    }
    fixture_close(&fixture);
}

static void test_no_samples(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result result;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_ops, 2);
    fixture.batch.samples = 0;
    result = fixture_step(&fixture, 1.0f);
    assert_true(result.loss_sum == 0.0 && result.correct == 0);
    assert_int_equal(fixture.ready_count, tiny_list->model.param_count);
    for (int p = 0; p < fixture.ready_count; p++)
        assert_int_equal(fixture.ready[p], tiny_list->model.ready_order[p]);
    for (int64_t i = 0; i < fixture.elements; i++)
        assert_true(fixture.grads[i] == 0.0f);
    fixture_close(&fixture);
}

static void test_batches_that_do_not_fit(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result result;

    (void)state;
    fixture_open(&fixture, &dpb_device_cpu_ops, &tiny_ops, 2);
    log_collect();
    fixture.indices[4] = 5;
    assert_int_equal(dpb_forward_and_read(&tiny_ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    fixture.indices[4] = 4;
    fixture.label[1] = 2;
    assert_int_equal(dpb_forward_and_read(&tiny_ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    assert_true(log_has("label 2"));
    fixture.label[1] = 1;
    fixture.batch.samples = 3;
    assert_int_equal(dpb_forward_and_read(&tiny_ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    log_stop();
    fixture_close(&fixture);
}

static void test_initial_parameters(void **state)
{
    struct fixture a, b;
    const double bound = 1.0 / sqrt(5.0);
    double largest = 0.0;

    (void)state;
    fixture_open(&a, &test_reference_device_ops, &tiny_ops, 1);
    fixture_open(&b, &test_reference_device_ops, &tiny_ops, 1);
    assert_memory_equal(a.params, b.params, (size_t)a.elements * sizeof(float));
    for (int64_t i = 0; i < 60; i++)
        largest = fmax(largest, fabs((double)a.params[i]));
    assert_true(largest <= bound && largest > 0.9 * bound);
    assert_int_equal(tiny_ops.init_params(b.workload, 2), DPB_OK);
    assert_memory_not_equal(a.params, b.params, (size_t)a.elements * sizeof(float));
    fixture_close(&a);
    fixture_close(&b);
}

static void test_activation_bytes(void **state)
{
    struct fixture fixture;
    /* outputs, pairs, two gradients of the widest (10 pair columns), loss; rows and their
     * gradients; indices */
    const struct dpb_workload_sizes sizes = {.batch_max = 5, .ranks = 1};
    const int64_t numbers = 6 + 4 + 7 + 1 + 10 + 2 * 10 + 1 + 2 * 12 + 3;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_ops, 5);
    assert_int_equal(tiny_ops.activation_bytes(fixture.workload), 4 * 5 * numbers + 65536);
    assert_int_equal(dpb_dlrm_activation_bytes_for(tiny_list, &sizes), 4 * 5 * numbers + 65536);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_parameters_are_dlrms),
            cmocka_unit_test(test_parameters_are_mlperfs),
            cmocka_unit_test(test_other_tables_are_no_parameters),
            cmocka_unit_test(test_rows_are_an_option),
            cmocka_unit_test(test_ready_order),
            cmocka_unit_test(test_shapes_that_do_not_fit),
            cmocka_unit_test(test_reference_device_against_torch),
            cmocka_unit_test(test_cpu_device_against_torch),
            cmocka_unit_test(test_reference_device_in_bf16),
            cmocka_unit_test(test_cpu_device_in_bf16),
            cmocka_unit_test(test_loss_falls),
            cmocka_unit_test(test_correct_counts_both_sides),
            cmocka_unit_test(test_no_samples),
            cmocka_unit_test(test_batches_that_do_not_fit),
            cmocka_unit_test(test_initial_parameters),
            cmocka_unit_test(test_activation_bytes),
    };

    make_tiny();
    return DPB_RUN_TESTS(tests);
}
