/* image_networks.h: what the networks for ImageNet and CIFAR share: the --image-size option, and
 * layer lists that are made when first asked for. */
#ifndef BENCH_IMAGE_NETWORKS_H
#define BENCH_IMAGE_NETWORKS_H

#include "network.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_IMAGENET_SIZE 224
#define DPB_CIFAR_SIZE    32

/* The options of these workloads. */
struct dpb_image_options {
    int64_t image_size; /* height and width */
};

extern const struct dpb_option dpb_imagenet_rows[1], dpb_cifar_rows[1];

/* A network's list for each image size: made once, kept as long as the program lives. */
struct dpb_image_lists {
    int64_t default_size; /* where there are no options */
    void (*build)(struct dpb_layer_list *list, int64_t image_size);
    struct dpb_image_list *made; /* starts as NULL */
};

/* The list for these options (struct dpb_image_options or NULL). Without memory, logged, a list
 * that dpb_layer_list_check() refuses. */
const struct dpb_layer_list *dpb_image_lists_get(struct dpb_image_lists *lists,
                                                 const void *options);

/* The workload `dpb_workload_<id>_ops`, called `text`, from build_<id>(list, image_size); the
 * option's rows and the default size, and what the table says besides. */
#define DPB_IMAGE_NETWORK(id, text, table_rows, size, ...)                                         \
    static struct dpb_image_lists lists_##id = {.default_size = (size), .build = build_##id};      \
    static const struct dpb_model *model_##id(const void *options)                                 \
    {                                                                                              \
        return &dpb_image_lists_get(&lists_##id, options)->model;                                  \
    }                                                                                              \
    static dpb_status open_##id(const struct dpb_workload_config *config, dpb_workload **workload) \
    {                                                                                              \
        return dpb_network_open(&dpb_workload_##id##_ops,                                          \
                                dpb_image_lists_get(&lists_##id, config->options), config,         \
                                workload);                                                         \
    }                                                                                              \
    static int64_t bytes_##id(const void *options, const struct dpb_workload_sizes *sizes)         \
    {                                                                                              \
        return dpb_network_activation_bytes_for(dpb_image_lists_get(&lists_##id, options), sizes); \
    }                                                                                              \
    static int64_t host_bytes_##id(const void *options, const struct dpb_workload_sizes *sizes)    \
    {                                                                                              \
        return dpb_network_host_bytes_for(dpb_image_lists_get(&lists_##id, options), sizes);       \
    }                                                                                              \
    static int exchanges_##id(const void *options, const struct dpb_workload_sizes *sizes,         \
                              struct dpb_workload_exchange *exchanges)                             \
    {                                                                                              \
        return dpb_network_exchanges(dpb_image_lists_get(&lists_##id, options), sizes, exchanges); \
    }                                                                                              \
    static uint64_t operators_##id(const void *options, const struct dpb_workload_sizes *sizes)    \
    {                                                                                              \
        return dpb_network_operators(dpb_image_lists_get(&lists_##id, options), sizes);            \
    }                                                                                              \
    static const struct dpb_option_table table_##id = {.kind = "workload",                         \
                                                       .owner = (text),                            \
                                                       .rows = (table_rows),                       \
                                                       .row_count = 1,                             \
                                                       .config_bytes =                             \
                                                               sizeof(struct dpb_image_options)};  \
    const struct dpb_workload_ops dpb_workload_##id##_ops = {                                      \
            .version = DPB_WORKLOAD_OPS_VERSION,                                                   \
            .name = (text),                                                                        \
            .options = &table_##id,                                                                \
            .model = model_##id,                                                                   \
            .open = open_##id,                                                                     \
            .close = dpb_network_close,                                                            \
            .bind = dpb_network_bind,                                                              \
            .init_params = dpb_network_init_params,                                                \
            .forward = dpb_network_forward,                                                        \
            .read_result = dpb_network_read_result,                                                \
            .needs_host = dpb_network_needs_host,                                                  \
            .backward = dpb_network_backward,                                                      \
            .state = dpb_network_state,                                                            \
            .activation_bytes = dpb_network_activation_bytes,                                      \
            .activation_bytes_for = bytes_##id,                                                    \
            .host_bytes_for = host_bytes_##id,                                                     \
            .exchanges = exchanges_##id,                                                           \
            .operators = operators_##id,                                                           \
            __VA_ARGS__}

#ifdef __cplusplus
}
#endif
#endif
