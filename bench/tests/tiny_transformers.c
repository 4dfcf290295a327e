#include "tiny_transformers.h"

#include "dpb_rng.h"
#include "dpb_test.h"
#include "transformer.h"

const struct dpb_transformer_list *tiny_bert_list(void)
{
    static const struct dpb_transformer_shape shape = {.family = DPB_TRANSFORMER_BERT,
                                                       .blocks = 2,
                                                       .heads = 2,
                                                       .hidden = 16,
                                                       .inner = 64,
                                                       .vocabulary = 37,
                                                       .positions = 12,
                                                       .sequence = 8,
                                                       .predicted = 2};

    return dpb_transformer_list_of(&shape);
}

const struct dpb_transformer_list *tiny_gpt2_list(void)
{
    static const struct dpb_transformer_shape shape = {.family = DPB_TRANSFORMER_GPT2,
                                                       .blocks = 2,
                                                       .heads = 2,
                                                       .hidden = 16,
                                                       .inner = 64,
                                                       .vocabulary = 37,
                                                       .positions = 12,
                                                       .sequence = 8,
                                                       .predicted = 8};

    return dpb_transformer_list_of(&shape);
}

static const struct dpb_model *bert_model(const void *options)
{
    (void)options;
    return &tiny_bert_list()->model;
}

static const struct dpb_model *gpt2_model(const void *options)
{
    (void)options;
    return &tiny_gpt2_list()->model;
}

static double dropout_of(const struct dpb_workload_config *config)
{
    const struct tiny_transformer_options *options = config->options;

    return options ? options->dropout : 0.0;
}

static dpb_status bert_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_transformer_open(&tiny_bert_ops, tiny_bert_list(), dropout_of(config), config,
                                workload);
}

static dpb_status gpt2_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_transformer_open(&tiny_gpt2_ops, tiny_gpt2_list(), dropout_of(config), config,
                                workload);
}

void tiny_transformer_reopen(struct fixture *fixture, double dropout, enum dpb_dtype precision)
{
    const struct tiny_transformer_options options = {.dropout = dropout};
    const struct dpb_workload_config config = {.launcher = &fixture->launcher,
                                               .batch_max = fixture->batch.samples,
                                               .global_batch = fixture->batch.samples,
                                               .options = &options,
                                               .precision = precision,
                                               .seed = TINY_TRANSFORMER_SEED};

    fixture->ops->close(fixture->workload);
    fixture->workload = NULL;
    assert_int_equal(fixture->ops->open(&config, &fixture->workload), DPB_OK);
    fixture->ops->bind(fixture->workload, fixture->param, fixture->grad);
}

void tiny_transformer_spread(struct fixture *fixture)
{
    struct dpb_rng rng;

    dpb_rng_init(&rng, 17, 0);
    for (int p = 0; p < fixture->model->param_count; p++) {
        bool matrix = fixture->model->params[p].rank == 2;
        float deviation = matrix ? 0.25f : 0.1f;

        for (int64_t i = 0; i < fixture->model->params[p].numel; i++) {
            float kept = matrix ? 0.0f : fixture->param[p][i];

            fixture->param[p][i] = kept + deviation * (float)dpb_rng_normal(&rng);
        }
    }
}

static int64_t bert_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_transformer_activation_bytes_for(tiny_bert_list(), sizes);
}

static int64_t bert_host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_transformer_host_bytes_for(tiny_bert_list(), sizes);
}

const struct dpb_workload_ops tiny_bert_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "tiny-bert",
        .summary = "for tests",
        .flags = DPB_WORKLOAD_MIXED,
        .model = bert_model,
        .open = bert_open,
        .close = dpb_transformer_close,
        .bind = dpb_transformer_bind,
        .init_params = dpb_transformer_init_params,
        .forward = dpb_transformer_forward,
        .read_result = dpb_transformer_read_result,
        .backward = dpb_transformer_backward,
        .activation_bytes = dpb_transformer_activation_bytes,
        .activation_bytes_for = bert_bytes_for,
        .host_bytes_for = bert_host_bytes_for,
};

static int64_t gpt2_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_transformer_activation_bytes_for(tiny_gpt2_list(), sizes);
}

static int64_t gpt2_host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_transformer_host_bytes_for(tiny_gpt2_list(), sizes);
}

const struct dpb_workload_ops tiny_gpt2_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "tiny-gpt2",
        .summary = "for tests",
        .flags = DPB_WORKLOAD_MIXED,
        .model = gpt2_model,
        .open = gpt2_open,
        .close = dpb_transformer_close,
        .bind = dpb_transformer_bind,
        .init_params = dpb_transformer_init_params,
        .forward = dpb_transformer_forward,
        .read_result = dpb_transformer_read_result,
        .backward = dpb_transformer_backward,
        .activation_bytes = dpb_transformer_activation_bytes,
        .activation_bytes_for = gpt2_bytes_for,
        .host_bytes_for = gpt2_host_bytes_for,
};
