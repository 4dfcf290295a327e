/* Every network uses its layers in one order, which is known beforehand: forward the ready order
 * backwards, backward as it is; with samples and without, in fp32 and bf16. Strategies that gather
 * parameters rely on it. What is used again later is marked as shared. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "dpb_workloads.h"
#include "tiny_dlrm.h"
#include "tiny_network.h"
#include "tiny_transformers.h"

#define SAMPLES  2
#define USES_MAX 2048

static struct dpb_workload_ops dlrm_ops;

static const struct dpb_model *dlrm_model(const void *options)
{
    (void)options;
    return &tiny_dlrm_list(DPB_DLRM_TABLES_DENSE)->model;
}

static dpb_status dlrm_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_dlrm_open(&dlrm_ops, tiny_dlrm_list(DPB_DLRM_TABLES_DENSE), config, workload);
}

static const struct dpb_workload_ops *const networks[] = {
        &tiny_bert_ops,
        &tiny_gpt2_ops,
        &tiny_network_ops,
        &dpb_workload_integers_ops,
        &dpb_workload_mnist_cnn_ops,
        &dlrm_ops,
};
#define NETWORK_COUNT (sizeof(networks) / sizeof(networks[0]))

/* Layers in the order of their use, without repetitions of the last one. */
struct uses {
    const struct dpb_model *model;
    int layer[USES_MAX];
    int count;
    enum dpb_pass pass;
};

static void add_use(struct uses *uses, int param)
{
    const int layer = uses->model->params[param].layer;

    if (uses->model->params[param].shared ||
        (uses->count > 0 && uses->layer[uses->count - 1] == layer))
        return;
    assert_true(uses->count < USES_MAX);
    uses->layer[uses->count++] = layer;
}

static dpb_status note_use(void *ctx, int param, enum dpb_pass pass)
{
    struct uses *uses = ctx;

    if (pass == uses->pass)
        add_use(uses, param);
    return DPB_OK;
}

static dpb_status ignore_ready(void *ctx, int param)
{
    (void)ctx;
    (void)param;
    return DPB_OK;
}

static void expect_ready_order(const struct uses *uses, const char *name)
{
    const struct dpb_model *model = uses->model;
    struct uses expected = {.model = model};

    for (int i = 0; i < model->param_count; i++)
        add_use(&expected,
                model->ready_order[uses->pass == DPB_PASS_BACKWARD ? i
                                                                   : model->param_count - 1 - i]);
    if (uses->count != expected.count)
        fail_msg("%s uses %d layers in turn, %d were expected", name, uses->count, expected.count);
    for (int i = 0; i < expected.count; i++)
        if (uses->layer[i] != expected.layer[i])
            fail_msg("%s uses layer \"%s\", not \"%s\"", name, model->layers[uses->layer[i]].name,
                     model->layers[expected.layer[i]].name);
}

static void check(const struct dpb_workload_ops *network, int64_t samples, enum dpb_dtype precision)
{
    struct uses uses = {0};
    const struct dpb_param_watch watch = {.ctx = &uses, .use = note_use};
    const struct dpb_workload_config config = {
            .batch_max = SAMPLES,
            .global_batch = SAMPLES,
            .watch = &watch,
            .precision = precision,
    };

    for (uses.pass = DPB_PASS_FORWARD; uses.pass <= DPB_PASS_BACKWARD; uses.pass++) {
        struct dpb_forward_result result;
        struct fixture fixture;

        fixture_open_with(&fixture, &dpb_device_cpu_ops, network, &config, 0);
        uses.model = fixture.model;
        uses.count = 0;
        fixture.batch.samples = samples;
        assert_int_equal(dpb_forward_and_read(network, &fixture.launcher, fixture.workload,
                                              &fixture.batch, true, &result),
                         DPB_OK);
        assert_int_equal(
                network->backward(fixture.workload, &fixture.batch, 1.0f, ignore_ready, NULL),
                DPB_OK);
        expect_ready_order(&uses, network->name);
        fixture_close(&fixture);
    }
}

static void test_with_samples(void **state)
{
    (void)state;
    for (size_t n = 0; n < NETWORK_COUNT; n++)
        check(networks[n], SAMPLES, DPB_F32);
}

static void test_without_samples(void **state)
{
    (void)state;
    for (size_t n = 0; n < NETWORK_COUNT; n++)
        check(networks[n], 0, DPB_F32);
}

static bool cpu_has_bf16(void)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device;

    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    const bool has = dpb_device_cpu_ops.op_supported(device, DPB_OP_CONV_FWD, DPB_BF16) &&
                     dpb_device_cpu_ops.op_supported(device, DPB_OP_MATMUL, DPB_BF16);
    dpb_device_cpu_ops.close(device);
    return has;
}

static void test_in_mixed_precision(void **state)
{
    (void)state;
    if (!cpu_has_bf16())
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    for (size_t n = 0; n < NETWORK_COUNT; n++)
        if (networks[n]->flags & DPB_WORKLOAD_MIXED)
            check(networks[n], SAMPLES, DPB_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_with_samples),
            cmocka_unit_test(test_without_samples),
            cmocka_unit_test(test_in_mixed_precision),
    };

    dlrm_ops = dpb_workload_dlrm_small_ops;
    dlrm_ops.model = dlrm_model;
    dlrm_ops.open = dlrm_open;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
