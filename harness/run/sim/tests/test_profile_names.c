/* Every operator of every workload finds its layer: networks run on a device that computes nothing,
 * with a recorder that only looks at names. (dlrm-mlperf is dlrm-small with tables of 24 GB, which
 * are filled.) */
#include "dpb_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "dpb_log.h"
#include "dpb_profile.h"
#include "dpb_workloads.h"

#define SAMPLES 2

/* ---- a device that does nothing ---- */

struct dpb_device {
    struct dpb_device_base base;
};

/* Networks are gigabytes; pages that nobody touches cost nothing. The length is in front. */
static void *reserve(size_t bytes)
{
    const size_t all = bytes + 4096;
    char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    *(size_t *)(void *)memory = all;
    return memory + 4096;
}

static void give_back(void *memory)
{
    if (memory)
        munmap((char *)memory - 4096, *(size_t *)(void *)((char *)memory - 4096));
}

static dpb_status null_alloc(dpb_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = reserve(bytes);
    return *memory ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static void null_free(dpb_device *device, void *memory)
{
    (void)device;
    give_back(memory);
}

static dpb_status null_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                            dpb_stream *stream)
{
    (void)device;
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return DPB_OK;
}

static dpb_status null_sync(dpb_stream *stream)
{
    (void)stream;
    return DPB_OK;
}

static bool null_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    (void)op;
    (void)dtype;
    return true;
}

static dpb_status null_launch(dpb_device *device, enum dpb_op op, const void *args,
                              dpb_stream *stream)
{
    (void)device;
    (void)op;
    (void)args;
    (void)stream;
    return DPB_OK;
}

static const struct dpb_device_ops null_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "null",
        .summary = "computes nothing",
        .alloc = null_alloc,
        .free = null_free,
        .host_alloc = null_alloc,
        .host_free = null_free,
        .copy = null_copy,
        .stream_sync = null_sync,
        .op_supported = null_supported,
        .op_launch = null_launch,
};

/* ---- a recorder that looks at names ---- */

struct dpb_recorder {
    struct dpb_recorder_base base;
    const struct dpb_profile *profile;
    const char *workload;
    int operators, in_pass[2];
    bool *has[2]; /* the layer had an operator in that pass */
};

/* What belongs to no layer of the list: losses, and positions that are picked out for them. */
static bool is_of_no_layer(const char *name)
{
    static const char *const known[] = {"loss.", "relation-loss.", "first.", "predicted."};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

static void look(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                 const char *name, int32_t bucket)
{
    int pass, layer;

    (void)lane;
    (void)bucket;
    if (kind != DPB_EVENT_COMPUTE)
        return;
    layer = dpb_profile_layer_of(recorder->profile, name, &pass);
    recorder->operators++;
    if (pass >= 0)
        recorder->in_pass[pass]++;
    if (layer >= 0 && pass >= 0)
        recorder->has[pass][layer] = true;
    if (layer < 0 && !is_of_no_layer(name))
        fail_msg("%s: operator \"%s\" has no layer", recorder->workload, name);
}

static void look_away(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static const struct dpb_recorder_ops look_ops = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "look",
        .range_begin = look,
        .range_end = look_away,
};

/* ---- one rank, alone ---- */

static dpb_status alone_alloc(void *ctx, size_t bytes, void **buffer)
{
    return null_alloc(ctx, bytes, buffer);
}

static dpb_status alone_start(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype,
                              void *buffer, int64_t count, const char *name, int *exchange)
{
    (void)ctx;
    (void)kind;
    (void)dtype;
    (void)buffer;
    (void)count;
    (void)name;
    *exchange = 0;
    return DPB_OK;
}

static dpb_status alone_wait(void *ctx, int exchange)
{
    (void)ctx;
    (void)exchange;
    return DPB_OK;
}

static dpb_status count_ready(void *ctx, int param)
{
    (void)param;
    ++*(int *)ctx;
    return DPB_OK;
}

static void one_step(const struct dpb_workload_ops *ops, struct dpb_launcher *launcher)
{
    const struct dpb_model *model = ops->model(NULL);
    const struct dpb_rank_services ranks = {
            .size = 1, .alloc = alone_alloc, .start = alone_start, .wait = alone_wait};
    const struct dpb_workload_config config = {
            .launcher = launcher,
            .batch_max = SAMPLES,
            .global_batch = SAMPLES,
            .ranks = &ranks,
            .precision = DPB_F32,
            .results = 1,
            .optimizer = dpb_training_optimizer(&ops->training),
    };
    int32_t *positions = reserve((size_t)(SAMPLES * model->predicted + 1) * sizeof(int32_t));
    float **param = calloc((size_t)model->param_count, sizeof(*param));
    float **grad = calloc((size_t)model->param_count, sizeof(*grad));
    void *zeros = reserve(64 << 20);
    const struct dpb_batch batch = {.samples = SAMPLES,
                                    .step = 1,
                                    .sample_ids = zeros,
                                    .label = zeros,
                                    .x = zeros,
                                    .tokens = zeros,
                                    .segments = zeros,
                                    .predict_position = positions,
                                    .predict_token = zeros,
                                    .indices = zeros};
    dpb_workload *workload;
    int ready = 0;

    for (int64_t i = 0; i < SAMPLES * model->predicted; i++)
        positions[i] = (int32_t)(i % model->predicted);
    for (int p = 0; p < model->param_count; p++) {
        param[p] = reserve((size_t)model->params[p].numel * sizeof(float));
        grad[p] = reserve((size_t)model->params[p].numel * sizeof(float));
    }
    assert_int_equal(ops->open(&config, &workload), DPB_OK);
    ops->bind(workload, param, grad);
    assert_int_equal(ops->forward(workload, &batch, true, 0), DPB_OK);
    assert_int_equal(ops->backward(workload, &batch, 1.0f, count_ready, &ready), DPB_OK);
    assert_int_equal(ready, model->param_count);
    ops->close(workload);
    for (int p = 0; p < model->param_count; p++) {
        give_back(param[p]);
        give_back(grad[p]);
    }
    give_back(zeros);
    give_back(positions);
    free(grad);
    free(param);
}

static void check(const struct dpb_workload_ops *ops)
{
    struct dpb_device device = {.base.ops = &null_ops};
    struct dpb_profile profile;
    struct dpb_recorder recorder = {
            .base.ops = &look_ops, .profile = &profile, .workload = ops->name};
    struct dpb_launcher launcher = {.device = &device, .recorder = &recorder};
    const struct dpb_model *model = ops->model(NULL);
    int without = 0;

    assert_int_equal(dpb_profile_new(model, ops->name, &profile), DPB_OK);
    for (int pass = 0; pass < 2; pass++)
        recorder.has[pass] = calloc((size_t)model->layer_count, sizeof(bool));
    one_step(ops, &launcher);
    assert_true(recorder.in_pass[DPB_PASS_FORWARD] > 0 &&
                recorder.in_pass[DPB_PASS_BACKWARD] > recorder.in_pass[DPB_PASS_FORWARD] / 2);
    /* every layer that computes has its time */
    for (int l = 0; l < model->layer_count; l++)
        if (model->layers[l].fwd_macs_per_sample > 0) {
            if (!recorder.has[0][l] || !recorder.has[1][l])
                fail_msg("%s: layer \"%s\" has no operator", ops->name, model->layers[l].name);
        } else {
            without += !recorder.has[0][l];
        }
    print_message("%s: %d operators, %d of %d layers without one forward\n", ops->name,
                  recorder.operators, without, model->layer_count);
    for (int pass = 0; pass < 2; pass++)
        free(recorder.has[pass]);
    dpb_profile_release(&profile);
}

static void test_every_operator_has_a_layer(void **state)
{
    static const struct dpb_workload_ops *const workloads[] = {
            &dpb_workload_mnist_cnn_ops,      &dpb_workload_mnist_mlp_ops,
            &dpb_workload_cifar_resnet20_ops, &dpb_workload_resnet18_ops,
            &dpb_workload_resnet50_ops,       &dpb_workload_resnet101_ops,
            &dpb_workload_resnet152_ops,      &dpb_workload_vgg16_ops,
            &dpb_workload_dlrm_small_ops,     &dpb_workload_bert_base_ops,
            &dpb_workload_bert_large_ops,     &dpb_workload_gpt2_small_ops,
    };

    (void)state;
    for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
        check(workloads[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_every_operator_has_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
