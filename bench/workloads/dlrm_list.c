#include "dlrm_list.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("para"); the lower is the parameter. */
#define PARAM_STREAM ((uint64_t)0x70617261 << 32)

static bool fits(const struct dpb_dlrm_shape *shape)
{
    if (shape->features < 1 || shape->tables < 1 || shape->tables > DPB_DLRM_TABLES_MAX ||
        shape->length < 1)
        return false;
    for (int t = 0; t < shape->tables; t++) {
        if (shape->table_rows[t] < 1 || shape->table_rows[t] > INT32_MAX)
            return false;
    }
    return shape->bottom_count >= 1 && shape->bottom_count <= DPB_DLRM_MLP_MAX &&
           shape->top_count >= 1 && shape->top_count <= DPB_DLRM_MLP_MAX &&
           shape->bottom[shape->bottom_count - 1] == shape->length &&
           shape->top[shape->top_count - 1] == 1;
}

/* Layers of DLRM_Net's nn.Sequential: every second one is an activation. */
static void make_mlp(struct dpb_layer_list *mlp, const char *prefix, int64_t inputs,
                     const int64_t *outputs, int count, bool last_relu)
{
    dpb_layer_list_begin(mlp, 1, 1, inputs);
    for (int i = 0; i < count; i++) {
        char name[DPB_LAYER_NAME_BYTES];

        snprintf(name, sizeof(name), "%s.%d", prefix, 2 * i);
        dpb_layer_list_linear(mlp, name, outputs[i], i < count - 1 || last_relu);
    }
    dpb_layer_list_finish(mlp);
}

static void add_tables(struct dpb_dlrm_list *list)
{
    const struct dpb_dlrm_shape *shape = &list->shape;

    for (int t = 0; t < shape->tables; t++) {
        struct dpb_layer_op_names *op = &list->table_op[t];
        int64_t rows = shape->table_rows[t];

        snprintf(list->table_name[t], sizeof(list->table_name[t]), "emb_l.%d", t);
        snprintf(list->table_weight[t], sizeof(list->table_weight[t]), "emb_l.%d.weight", t);
        snprintf(list->table_update[t], sizeof(list->table_update[t]), "emb_l.%d.update", t);
        snprintf(list->table_sum[t], sizeof(list->table_sum[t]), "emb_l.%d.sum", t);
        snprintf(op->fwd, sizeof(op->fwd), "emb_l.%d.fwd", t);
        snprintf(op->bwd_weights, sizeof(op->bwd_weights), "emb_l.%d.bwd-weights", t);
        list->info[t] = (struct dpb_layer_info){.name = list->table_name[t],
                                                .kind = "embedding",
                                                .out_elements_per_sample = shape->length};
        if (shape->where != DPB_DLRM_TABLES_DENSE)
            continue;
        list->param[t] = (struct dpb_param_info){.name = list->table_weight[t],
                                                 .dtype = DPB_F32,
                                                 .rank = 2,
                                                 .dim = {rows, shape->length},
                                                 .numel = rows * shape->length,
                                                 .table = true,
                                                 .layer = t};
        list->table_params++;
    }
    list->model.param_count = list->table_params;
    list->model.layer_count = shape->tables;
}

/* Parameters and layers of an MLP behind those that are there. */
static void add_mlp(struct dpb_dlrm_list *list, struct dpb_layer_list *mlp)
{
    struct dpb_model *model = &list->model;

    for (int p = 0; p < mlp->param_count; p++) {
        list->param[model->param_count + p] = mlp->param[p];
        list->param[model->param_count + p].layer += model->layer_count;
    }
    for (int i = 0; i < mlp->layer_count; i++) {
        mlp->layer[i].weight += model->param_count;
        mlp->layer[i].bias += model->param_count;
        list->info[model->layer_count + i] = mlp->info[i];
    }
    model->param_count += mlp->param_count;
    model->layer_count += mlp->layer_count;
}

static void add_interaction(struct dpb_dlrm_list *list)
{
    int64_t columns = dpb_dlrm_pair_columns(&list->shape), length = list->shape.length;

    list->info[list->model.layer_count++] =
            (struct dpb_layer_info){.name = "interact",
                                    .kind = "interaction",
                                    .fwd_macs_per_sample = (columns - length) * length,
                                    .out_elements_per_sample = columns};
}

static int order_mlp(const struct dpb_layer_list *mlp, int *order)
{
    int count = 0;

    for (int i = mlp->layer_count - 1; i >= 0; i--) {
        order[count++] = mlp->layer[i].bias;
        order[count++] = mlp->layer[i].weight;
    }
    return count;
}

dpb_status dpb_dlrm_list_init(struct dpb_dlrm_list *list, const struct dpb_dlrm_shape *shape,
                              const char *workload)
{
    struct dpb_model *model = &list->model;
    int ready = 0;

    memset(list, 0, sizeof(*list));
    if (!fits(shape)) {
        dpb_error("workload \"%s\": the sizes of its layers do not fit together", workload);
        return DPB_ERR_INTERNAL;
    }
    list->shape = *shape;
    make_mlp(&list->bottom, "bot_l", shape->features, shape->bottom, shape->bottom_count, true);
    make_mlp(&list->top, "top_l", dpb_dlrm_pair_columns(shape), shape->top, shape->top_count,
             false);
    DPB_TRY(dpb_layer_list_check(&list->bottom, workload));
    DPB_TRY(dpb_layer_list_check(&list->top, workload));
    add_tables(list);
    add_mlp(list, &list->bottom);
    add_interaction(list);
    add_mlp(list, &list->top);

    ready += order_mlp(&list->top, list->ready_order);
    for (int t = list->table_params - 1; t >= 0; t--)
        list->ready_order[ready++] = t;
    order_mlp(&list->bottom, list->ready_order + ready);
    model->params = list->param;
    model->layers = list->info;
    model->ready_order = list->ready_order;
    model->input = DPB_INPUT_INTERACTIONS;
    model->features = shape->features;
    model->tables = shape->tables;
    model->table_rows = list->shape.table_rows;
    model->table_columns = shape->length;
    model->classes = 2;
    return DPB_OK;
}

/* ---- lists by shape ---- */

struct known_list {
    struct dpb_dlrm_list list;
    const char *workload;
    struct known_list *next;
};

static struct known_list *known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

/* A workload's shapes differ in their tables. */
static bool is_of(const struct known_list *at, const struct dpb_dlrm_shape *shape,
                  const char *workload)
{
    return strcmp(at->workload, workload) == 0 && at->list.shape.where == shape->where &&
           memcmp(at->list.shape.table_rows, shape->table_rows, sizeof(shape->table_rows)) == 0;
}

static struct known_list *make_known(const struct dpb_dlrm_shape *shape, const char *workload)
{
    struct known_list *made = malloc(sizeof(*made));

    if (!made) {
        dpb_error("workload \"%s\": out of memory", workload);
        return NULL;
    }
    if (dpb_dlrm_list_init(&made->list, shape, workload) < 0) {
        free(made);
        return NULL;
    }
    made->workload = workload;
    made->next = known;
    known = made;
    return made;
}

const struct dpb_dlrm_list *dpb_dlrm_list_get(const struct dpb_dlrm_shape *shape,
                                              const char *workload)
{
    struct known_list *at;

    pthread_mutex_lock(&known_lock);
    for (at = known; at && !is_of(at, shape, workload); at = at->next)
        continue;
    if (!at)
        at = make_known(shape, workload);
    pthread_mutex_unlock(&known_lock);
    return at ? &at->list : NULL;
}

/* ---- initial values ---- */

void dpb_dlrm_list_init_table(const struct dpb_dlrm_list *list, int table, uint64_t seed,
                              float *rows)
{
    int64_t count = list->shape.table_rows[table];
    double spread = 1.0 / sqrt((double)count);
    struct dpb_rng rng;

    dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)table);
    for (int64_t i = 0; i < count * list->shape.length; i++)
        rows[i] = (float)(spread * (2.0 * dpb_rng_uniform(&rng) - 1.0));
}

void dpb_dlrm_list_init_params(const struct dpb_dlrm_list *list, uint64_t seed, float *const *param)
{
    /* Streams are numbered as if all tables were parameters. */
    int elsewhere = list->shape.tables - list->table_params;

    for (int t = 0; t < list->table_params; t++)
        if (param[t])
            dpb_dlrm_list_init_table(list, t, seed, param[t]);
    for (int p = list->table_params; p < list->model.param_count; p++) {
        const struct dpb_param_info *info = &list->param[p];
        double spread = info->rank > 1 ? sqrt(2.0 / (double)(info->dim[0] + info->dim[1]))
                                       : 1.0 / sqrt((double)info->dim[0]);
        struct dpb_rng rng;

        dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)(p + elsewhere));
        for (int64_t i = 0; param[p] && i < info->numel; i++)
            param[p][i] = (float)(spread * dpb_rng_normal(&rng));
    }
}
