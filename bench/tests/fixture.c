#include "fixture.h"

#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_test.h"

#define LOG_BYTES 65536

static char log_text[LOG_BYTES];
static size_t log_used;

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    size_t length = strlen(line);

    (void)ctx;
    (void)level;
    if (log_used + length + 2 > LOG_BYTES)
        return;
    memcpy(log_text + log_used, line, length);
    log_used += length;
    log_text[log_used++] = '\n';
    log_text[log_used] = '\0';
}

void log_collect(void)
{
    log_used = 0;
    log_text[0] = '\0';
    dpb_log_set_sink(keep_line, NULL);
}

int log_has(const char *text)
{
    if (strstr(log_text, text))
        return 1;
    print_error("not in the log: %s\nthe log is:\n%s\n", text, log_text);
    return 0;
}

void log_stop(void)
{
    dpb_log_set_sink(NULL, NULL);
}

static dpb_status note_ready(void *ctx, int param)
{
    struct fixture *fixture = ctx;

    assert_true(fixture->ready_count < 2 * DPB_LAYER_PARAMS_MAX);
    fixture->ready[fixture->ready_count++] = param;
    return DPB_OK;
}

static void *must_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes);

    assert_non_null(memory);
    return memory;
}

static void open_memory(struct fixture *fixture)
{
    const struct dpb_model *model = fixture->model;
    int64_t at = 0;

    fixture->elements = dpb_model_param_elements(model);
    fixture->params = must_alloc((size_t)fixture->elements * sizeof(float));
    fixture->grads = must_alloc((size_t)fixture->elements * sizeof(float));
    for (int p = 0; p < model->param_count; p++) {
        fixture->param[p] = fixture->params + at;
        fixture->grad[p] = fixture->grads + at;
        at += model->params[p].numel;
    }
    for (int64_t i = 0; i < fixture->elements; i++)
        fixture->grads[i] = 77.0f;
}

static int32_t *random_ints(struct dpb_rng *rng, int64_t count, int64_t below)
{
    int32_t *made = must_alloc((size_t)count * sizeof(*made));

    for (int64_t i = 0; i < count; i++)
        made[i] = (int32_t)dpb_rng_below(rng, (uint64_t)below);
    return made;
}

/* One predicted position in every stretch of sequence / predicted; segments are halves. */
static void open_tokens(struct fixture *fixture, int64_t samples)
{
    const struct dpb_model *model = fixture->model;
    int64_t sequence = model->sequence, predicted = model->predicted;
    int64_t stretch = sequence / predicted;
    struct dpb_rng rng;

    dpb_rng_init(&rng, 5, 0);
    fixture->tokens = random_ints(&rng, samples * sequence, model->vocabulary);
    fixture->segments = random_ints(&rng, samples * sequence, 1);
    fixture->predict_position = random_ints(&rng, samples * predicted, stretch);
    fixture->predict_token = random_ints(&rng, samples * predicted, model->vocabulary);
    fixture->label = random_ints(&rng, samples, 2);
    for (int64_t i = 0; i < samples * predicted; i++) {
        fixture->predict_position[i] += (int32_t)(i % predicted * stretch);
        if (model->next_token && (i + 1) % sequence != 0)
            fixture->predict_token[i] = fixture->tokens[i + 1];
    }
    for (int64_t i = 0; i < samples * sequence; i++)
        fixture->segments[i] = i % sequence >= sequence / 2;
    fixture->batch = (struct dpb_batch){.samples = samples,
                                        .sample_ids = fixture->ids,
                                        .label = fixture->label,
                                        .tokens = fixture->tokens,
                                        .segments = fixture->segments,
                                        .predict_position = fixture->predict_position,
                                        .predict_token = fixture->predict_token};
}

/* Images or interactions, from the synthetic dataset. */
static void open_synthetic(struct fixture *fixture, int64_t samples)
{
    struct dpb_dataset_config config = {.kind = "synthetic", .model = fixture->model, .seed = 5};
    struct dpb_batch_arrays arrays;
    dpb_dataset *dataset;

    assert_int_equal(dpb_batch_arrays_open(fixture->model, samples, &arrays), DPB_OK);
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(dataset, fixture->ids, samples, &arrays), DPB_OK);
    dpb_dataset_close(dataset);
    fixture->x = arrays.x;
    fixture->label = arrays.label;
    fixture->indices = arrays.indices;
    fixture->batch = dpb_batch_of_arrays(&arrays, fixture->ids, samples);
}

static void open_batch(struct fixture *fixture, int64_t first, int64_t samples)
{
    fixture->ids = must_alloc((size_t)samples * sizeof(int64_t));
    for (int64_t i = 0; i < samples; i++)
        fixture->ids[i] = first + i;
    if (fixture->model->input == DPB_INPUT_TOKENS)
        open_tokens(fixture, samples);
    else
        open_synthetic(fixture, samples);
}

void fixture_open(struct fixture *fixture, const struct dpb_device_ops *device,
                  const struct dpb_workload_ops *workload, int64_t batch_max)
{
    static const struct dpb_rank_services alone = {.size = 1};
    const struct dpb_workload_config config = {
            .batch_max = batch_max, .global_batch = batch_max, .ranks = &alone};

    fixture_open_with(fixture, device, workload, &config, 0);
}

void fixture_open_with(struct fixture *fixture, const struct dpb_device_ops *device,
                       const struct dpb_workload_ops *workload,
                       const struct dpb_workload_config *wanted, int64_t first)
{
    struct dpb_device_config device_config = {.local_size = 1, .threads = 1};
    struct dpb_recorder_config recorder_config = {.events_per_lane = 1024};
    struct dpb_workload_config config = *wanted;

    memset(fixture, 0, sizeof(*fixture));
    fixture->ops = workload;
    fixture->model = workload->model(NULL);
    assert_int_equal(device->open(&device_config, &fixture->device), DPB_OK);
    assert_int_equal(device->stream_open(fixture->device, &fixture->stream), DPB_OK);
    assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &fixture->recorder), DPB_OK);
    fixture->launcher = (struct dpb_launcher){
            .device = fixture->device, .stream = fixture->stream, .recorder = fixture->recorder};
    config.launcher = &fixture->launcher;
    open_memory(fixture);
    open_batch(fixture, first, config.batch_max);
    assert_int_equal(workload->open(&config, &fixture->workload), DPB_OK);
    workload->bind(fixture->workload, fixture->param, fixture->grad);
    assert_int_equal(workload->init_params(fixture->workload, 1), DPB_OK);
}

void fixture_close(struct fixture *fixture)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(fixture->device);

    fixture->ops->close(fixture->workload);
    dpb_recorder_host_ops.close(fixture->recorder);
    device->stream_close(fixture->stream);
    device->close(fixture->device);
    free(fixture->params);
    free(fixture->grads);
    free(fixture->x);
    free(fixture->label);
    free(fixture->indices);
    free(fixture->tokens);
    free(fixture->segments);
    free(fixture->predict_position);
    free(fixture->predict_token);
    free(fixture->ids);
}

struct dpb_forward_result fixture_step(struct fixture *fixture, float grad_scale)
{
    struct dpb_forward_result result;

    fixture->ready_count = 0;
    assert_int_equal(dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                          &fixture->batch, true, &result),
                     DPB_OK);
    assert_int_equal(fixture->ops->backward(fixture->workload, &fixture->batch, grad_scale,
                                            note_ready, fixture),
                     DPB_OK);
    return result;
}

void fixture_update(struct fixture *fixture, float lr)
{
    for (int64_t i = 0; i < fixture->elements; i++)
        fixture->params[i] -= lr * fixture->grads[i];
}
