#include "dpb_workloads.h"

#include "transformer.h"

struct gpt2_options {
    int64_t sequence;
    double dropout;
};

#define LONGEST 1024 /* positions that have an embedding */
#define DROPOUT 0.1  /* in every place of the published network */

static const struct dpb_option option_rows[] = {
        {.name = "sequence",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct gpt2_options, sequence),
         .default_text = "1024",
         .min = 8,
         .max = LONGEST,
         .category = "Training",
         .unit = "tokens",
         .help = "length of a sample; every token predicts the next"},
        {.name = "dropout",
         .type = DPB_OPT_FLOAT,
         .offset = offsetof(struct gpt2_options, dropout),
         .default_text = "0.1",
         .min = 0,
         .max = 0.999,
         .category = "Training",
         .help = "probability that an element is dropped in training, in every place that the "
                 "published network has; 0: no dropout"},
};

static double dropout_of(const void *options)
{
    return options ? ((const struct gpt2_options *)options)->dropout : DROPOUT;
}

static const struct dpb_option_table option_table = {.kind = "workload",
                                                     .owner = "gpt2-small",
                                                     .rows = option_rows,
                                                     .row_count = 2,
                                                     .config_bytes = sizeof(struct gpt2_options)};

static const struct dpb_transformer_list *list_of(const void *options)
{
    int64_t sequence = options ? ((const struct gpt2_options *)options)->sequence : LONGEST;
    const struct dpb_transformer_shape shape = {.family = DPB_TRANSFORMER_GPT2,
                                                .blocks = 12,
                                                .heads = 12,
                                                .hidden = 768,
                                                .inner = 3072,
                                                .vocabulary = 50257,
                                                .positions = LONGEST,
                                                .sequence = sequence,
                                                .predicted = sequence};

    return dpb_transformer_list_of(&shape);
}

static const struct dpb_model *model(const void *options)
{
    return &list_of(options)->model;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_transformer_open(&dpb_workload_gpt2_small_ops, list_of(config->options),
                                dropout_of(config->options), config, workload);
}

static int64_t bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_activation_bytes_for(list_of(options), sizes);
}

static int64_t host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_host_bytes_for(list_of(options), sizes);
}

static uint64_t operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    return dpb_transformer_operators(list_of(options), dropout_of(options), sizes->precision);
}

const struct dpb_workload_ops dpb_workload_gpt2_small_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "gpt2-small",
        .summary = "GPT-2 small, every token predicts the next, 124 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        .options = &option_table,
        .training = {.optimizer = DPB_OPTIMIZER_ADAMW,
                     .lr = 1e-4,
                     .weight_decay = 0.01,
                     .batch_per_rank = 4},
        .model = model,
        .open = open_workload,
        .close = dpb_transformer_close,
        .bind = dpb_transformer_bind,
        .init_params = dpb_transformer_init_params,
        .forward = dpb_transformer_forward,
        .read_result = dpb_transformer_read_result,
        .backward = dpb_transformer_backward,
        .activation_bytes = dpb_transformer_activation_bytes,
        .activation_bytes_for = bytes_for,
        .host_bytes_for = host_bytes_for,
        .operators = operators,
};
