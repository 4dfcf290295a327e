#include "dpb_workloads.h"

#include "dlrm.h"

#define NAME               "dlrm-small"
#define TABLE_ROWS_DEFAULT 10000

struct dlrm_small_options {
    int64_t table_rows;
    int gradients; /* enum dpb_dlrm_where */
};

static const struct dpb_choice gradient_choices[] = {
        {"dense", DPB_DLRM_TABLES_DENSE, "of every row, as of any other parameter"},
        {"sparse", DPB_DLRM_TABLES_SPARSE,
         "of the rows that the batch used: ranks gather (row, gradient) pairs"},
        {"sharded", DPB_DLRM_TABLES_SHARDED,
         "each table is on one rank: rows travel forward, their gradients back"},
        {NULL, 0, NULL}};

static const struct dpb_option rows[] = {
        {.name = "table-rows",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct dlrm_small_options, table_rows),
         .default_text = "10000",
         .min = 1,
         .max = 10000000,
         .category = "Training",
         .unit = "rows",
         .help = "rows of each of the 26 embedding tables"},
        {.name = "embedding-gradients",
         .type = DPB_OPT_ENUM,
         .offset = offsetof(struct dlrm_small_options, gradients),
         .default_text = "dense",
         .choices = gradient_choices,
         .category = "Training",
         .help = "how gradients of the tables travel"},
};

static const struct dpb_option_table options_table = {
        "workload", NAME, rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct dlrm_small_options)};

/* facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh: 13 dense features, 26 tables. The script's
 * tables have 33.8 million rows; here they are few enough for gradients of every row. */
static const struct dpb_dlrm_list *list_for(const void *options)
{
    const struct dlrm_small_options *given = options;
    struct dpb_dlrm_shape shape = {.features = 13,
                                   .tables = 26,
                                   .length = 16,
                                   .bottom_count = 4,
                                   .bottom = {512, 256, 64, 16},
                                   .top_count = 3,
                                   .top = {512, 256, 1}};

    shape.where = given ? (enum dpb_dlrm_where)given->gradients : DPB_DLRM_TABLES_DENSE;
    for (int t = 0; t < shape.tables; t++)
        shape.table_rows[t] = given ? given->table_rows : TABLE_ROWS_DEFAULT;
    return dpb_dlrm_list_get(&shape, NAME);
}

static const struct dpb_model *model(const void *options)
{
    const struct dpb_dlrm_list *list = list_for(options);

    return list ? &list->model : NULL;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    const struct dpb_dlrm_list *list = list_for(config->options);

    return list ? dpb_dlrm_open(&dpb_workload_dlrm_small_ops, list, config, workload)
                : DPB_ERR_NO_MEMORY;
}

static int64_t activation_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    const struct dpb_dlrm_list *list = list_for(options);

    return list ? dpb_dlrm_activation_bytes_for(list, sizes) : 0;
}

static int64_t host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    const struct dpb_dlrm_list *list = list_for(options);

    return list ? dpb_dlrm_host_bytes_for(list, sizes) : 0;
}

static int exchanges(const void *options, const struct dpb_workload_sizes *sizes,
                     struct dpb_workload_exchange *list_out)
{
    const struct dpb_dlrm_list *list = list_for(options);

    return list ? dpb_dlrm_exchanges(list, sizes, list_out) : 0;
}

const struct dpb_workload_ops dpb_workload_dlrm_small_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = NAME,
        .summary = "recommendation: 26 tables trained in three ways, small MLPs, 4.6 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        .options = &options_table,
        .training = {.lr = 0.1,
                     .momentum = 0.0,
                     .weight_decay = 0.0,
                     .batch_per_rank = 128}, /* of the script */
        .model = model,
        .open = open_workload,
        .close = dpb_dlrm_close,
        .bind = dpb_dlrm_bind,
        .init_params = dpb_dlrm_init_params,
        .forward = dpb_dlrm_forward,
        .read_result = dpb_dlrm_read_result,
        .needs_host = dpb_dlrm_needs_host,
        .backward = dpb_dlrm_backward,
        .state = dpb_dlrm_state,
        .update = dpb_dlrm_update,
        .activation_bytes = dpb_dlrm_activation_bytes,
        .activation_bytes_for = activation_bytes_for,
        .host_bytes_for = host_bytes_for,
        .exchanges = exchanges,
        .operators = dpb_dlrm_operators,
};
