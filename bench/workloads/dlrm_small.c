#include "dpb_workloads.h"

#include <pthread.h>
#include <stdlib.h>

#include "dlrm.h"
#include "dpb_log.h"

#define TABLE_ROWS_DEFAULT 10000

struct dlrm_small_options {
    int64_t table_rows;
};

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
};

static const struct dpb_option_table options_table = {"workload", "dlrm-small", rows, 1,
                                                      sizeof(struct dlrm_small_options)};

/* One list per size of the tables, for as long as the program lives. */
struct known_list {
    struct dpb_dlrm_list list;
    struct known_list *next;
};

static struct known_list *known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

/* facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh: 13 dense features, 26 tables. The script's
 * tables have 33.8 million rows; here they are few enough for gradients of every row. */
static struct known_list *make_list(int64_t table_rows)
{
    const struct dpb_dlrm_shape shape = {.features = 13,
                                         .tables = 26,
                                         .table_rows = table_rows,
                                         .length = 16,
                                         .bottom_count = 4,
                                         .bottom = {512, 256, 64, 16},
                                         .top_count = 3,
                                         .top = {512, 256, 1}};
    struct known_list *made = calloc(1, sizeof(*made));

    if (!made) {
        dpb_error("workload \"dlrm-small\": out of memory");
        return NULL;
    }
    if (dpb_dlrm_list_init(&made->list, &shape, "dlrm-small") < 0) {
        free(made);
        return NULL;
    }
    return made;
}

static const struct dpb_dlrm_list *list_for(const struct dlrm_small_options *options)
{
    int64_t table_rows = options ? options->table_rows : TABLE_ROWS_DEFAULT;
    struct known_list *at;

    pthread_mutex_lock(&known_lock);
    for (at = known; at && at->list.shape.table_rows != table_rows; at = at->next)
        ;
    if (!at && (at = make_list(table_rows))) {
        at->next = known;
        known = at;
    }
    pthread_mutex_unlock(&known_lock);
    return at ? &at->list : NULL;
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

    return list ? dpb_dlrm_activation_bytes_for(list, sizes->batch_max) : 0;
}

const struct dpb_workload_ops dpb_workload_dlrm_small_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "dlrm-small",
        .summary = "recommendation: 26 tables of dense gradients, small MLPs, 4.6 M parameters",
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
        .backward = dpb_dlrm_backward,
        .activation_bytes = dpb_dlrm_activation_bytes,
        .activation_bytes_for = activation_bytes_for,
};
