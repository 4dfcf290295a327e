#include "dpb_workloads.h"

#include "dlrm.h"

#define NAME                   "dlrm-mlperf"
#define TABLE_ROWS_MAX_DEFAULT 100000

struct dlrm_mlperf_options {
    int64_t table_rows_max;
};

static const struct dpb_option rows[] = {
        {.name = "table-rows-max",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct dlrm_mlperf_options, table_rows_max),
         .default_text = "100000",
         .min = 1,
         .max = 40000000,
         .category = "Training",
         .unit = "rows",
         .help = "larger embedding tables are cut to so many rows; 40000000 cuts none: 97.4 GiB in "
                 "all, the default is 0.44 GiB"},
};

static const struct dpb_option_table options_table = {"workload", NAME, rows, 1,
                                                      sizeof(struct dlrm_mlperf_options)};

/* MLPerf training v1's network for Criteo's 1 TB of clicks: facebookresearch/dlrm,
 * bench/run_and_time.sh. Rows of its tables, at most 40 million: mlcommons/training,
 * recommendation_v2. */
static const struct dpb_dlrm_shape published = {
        .where = DPB_DLRM_TABLES_SHARDED,
        .features = 13,
        .tables = 26,
        .table_rows = {40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
                       40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
                       14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36},
        .length = 128,
        .bottom_count = 3,
        .bottom = {512, 256, 128},
        .top_count = 5,
        .top = {1024, 1024, 512, 256, 1}};

static const struct dpb_dlrm_list *list_for(const void *options)
{
    const struct dlrm_mlperf_options *given = options;
    int64_t most = given ? given->table_rows_max : TABLE_ROWS_MAX_DEFAULT;
    struct dpb_dlrm_shape shape = published;

    for (int t = 0; t < shape.tables; t++) {
        if (shape.table_rows[t] > most)
            shape.table_rows[t] = most;
    }
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

    return list ? dpb_dlrm_open(&dpb_workload_dlrm_mlperf_ops, list, config, workload)
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

const struct dpb_workload_ops dpb_workload_dlrm_mlperf_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = NAME,
        .summary = "recommendation: tables spread over the ranks, whose rows all-to-all exchanges",
        .flags = DPB_WORKLOAD_MIXED,
        .options = &options_table,
        /* the script's, whose batch of 2048 is for one machine */
        .training = {.lr = 1.0, .momentum = 0.0, .weight_decay = 0.0, .batch_per_rank = 256},
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
