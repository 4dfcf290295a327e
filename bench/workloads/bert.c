#include "dpb_workloads.h"

#include "transformer.h"

struct bert_options {
    int64_t sequence;
    double dropout;
};

#define LONGEST 512 /* positions that have an embedding */
#define DROPOUT 0.1 /* in every place of the published network */

static const struct dpb_option option_rows[] = {
        {.name = "sequence",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct bert_options, sequence),
         .default_text = "128",
         .min = 8,
         .max = LONGEST,
         .category = "Training",
         .unit = "tokens",
         .help = "length of a sample; 5 of every 32 tokens are hidden and predicted"},
        {.name = "dropout",
         .type = DPB_OPT_FLOAT,
         .offset = offsetof(struct bert_options, dropout),
         .default_text = "0.1",
         .min = 0,
         .max = 0.999,
         .category = "Training",
         .help = "probability that an element is dropped in training, in every place that the "
                 "published network has; 0: no dropout"},
};

static double dropout_of(const void *options)
{
    return options ? ((const struct bert_options *)options)->dropout : DROPOUT;
}

static const struct dpb_option_table base_options = {.kind = "workload",
                                                     .owner = "bert-base",
                                                     .rows = option_rows,
                                                     .row_count = 2,
                                                     .config_bytes = sizeof(struct bert_options)};

static const struct dpb_option_table large_options = {.kind = "workload",
                                                      .owner = "bert-large",
                                                      .rows = option_rows,
                                                      .row_count = 2,
                                                      .config_bytes = sizeof(struct bert_options)};

/* 20 of 128 tokens are predicted and 80 of 512, as in BERT's pre-training data. */
static const struct dpb_transformer_list *list_of(int blocks, int heads, const void *options)
{
    int64_t sequence = options ? ((const struct bert_options *)options)->sequence : 128;
    const struct dpb_transformer_shape shape = {.family = DPB_TRANSFORMER_BERT,
                                                .blocks = blocks,
                                                .heads = heads,
                                                .hidden = 64 * heads,
                                                .inner = 4 * 64 * heads,
                                                .vocabulary = 30522,
                                                .positions = LONGEST,
                                                .sequence = sequence,
                                                .predicted = sequence * 5 / 32};

    return dpb_transformer_list_of(&shape);
}

static const struct dpb_transformer_list *base_list(const void *options)
{
    return list_of(12, 12, options);
}

static const struct dpb_transformer_list *large_list(const void *options)
{
    return list_of(24, 16, options);
}

static const struct dpb_model *base_model(const void *options)
{
    return &base_list(options)->model;
}

static const struct dpb_model *large_model(const void *options)
{
    return &large_list(options)->model;
}

static dpb_status open_base(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_transformer_open(&dpb_workload_bert_base_ops, base_list(config->options),
                                dropout_of(config->options), config, workload);
}

static dpb_status open_large(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_transformer_open(&dpb_workload_bert_large_ops, large_list(config->options),
                                dropout_of(config->options), config, workload);
}

static int64_t base_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_activation_bytes_for(base_list(options), sizes);
}

static int64_t large_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_activation_bytes_for(large_list(options), sizes);
}

static int64_t base_host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_host_bytes_for(base_list(options), sizes);
}

static uint64_t base_operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_operators(base_list(options), dropout_of(options), sizes->precision);
}

static int64_t large_host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_host_bytes_for(large_list(options), sizes);
}

static uint64_t large_operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_operators(large_list(options), dropout_of(options), sizes->precision);
}

const struct dpb_workload_ops dpb_workload_bert_base_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "bert-base",
        .summary = "BERT-base pre-training, hidden words and sentence pairs, 110 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        .options = &base_options,
        .training = {.optimizer = DPB_OPTIMIZER_ADAMW,
                     .lr = 1e-4,
                     .weight_decay = 0.01,
                     .batch_per_rank = 8},
        .model = base_model,
        .open = open_base,
        .close = dpb_transformer_close,
        .bind = dpb_transformer_bind,
        .init_params = dpb_transformer_init_params,
        .forward = dpb_transformer_forward,
        .read_result = dpb_transformer_read_result,
        .backward = dpb_transformer_backward,
        .activation_bytes = dpb_transformer_activation_bytes,
        .activation_bytes_for = base_bytes_for,
        .host_bytes_for = base_host_bytes_for,
        .operators = base_operators,
};

const struct dpb_workload_ops dpb_workload_bert_large_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "bert-large",
        .summary = "BERT-large pre-training, hidden words and sentence pairs, 336 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        .options = &large_options,
        .training = {.optimizer = DPB_OPTIMIZER_ADAMW,
                     .lr = 1e-4,
                     .weight_decay = 0.01,
                     .batch_per_rank = 4},
        .model = large_model,
        .open = open_large,
        .close = dpb_transformer_close,
        .bind = dpb_transformer_bind,
        .init_params = dpb_transformer_init_params,
        .forward = dpb_transformer_forward,
        .read_result = dpb_transformer_read_result,
        .backward = dpb_transformer_backward,
        .activation_bytes = dpb_transformer_activation_bytes,
        .activation_bytes_for = large_bytes_for,
        .host_bytes_for = large_host_bytes_for,
        .operators = large_operators,
};
