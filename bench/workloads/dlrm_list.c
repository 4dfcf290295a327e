#include "dlrm_list.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("para"); the lower is the parameter. */
#define PARAM_STREAM ((uint64_t)0x70617261 << 32)

static bool fits(const struct dpb_dlrm_shape *shape)
{
    return shape->features >= 1 && shape->tables >= 1 && shape->tables <= DPB_DLRM_TABLES_MAX &&
           shape->table_rows >= 1 && shape->length >= 1 && shape->bottom_count >= 1 &&
           shape->bottom_count <= DPB_DLRM_MLP_MAX && shape->top_count >= 1 &&
           shape->top_count <= DPB_DLRM_MLP_MAX &&
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

        list->table_rows[t] = shape->table_rows;
        snprintf(list->table_name[t], sizeof(list->table_name[t]), "emb_l.%d", t);
        snprintf(list->table_weight[t], sizeof(list->table_weight[t]), "emb_l.%d.weight", t);
        snprintf(op->fwd, sizeof(op->fwd), "emb_l.%d.fwd", t);
        snprintf(op->bwd_weights, sizeof(op->bwd_weights), "emb_l.%d.bwd-weights", t);
        list->param[t] = (struct dpb_param_info){.name = list->table_weight[t],
                                                 .dtype = DPB_F32,
                                                 .rank = 2,
                                                 .dim = {shape->table_rows, shape->length},
                                                 .numel = shape->table_rows * shape->length,
                                                 .table = true,
                                                 .layer = t};
        list->info[t] = (struct dpb_layer_info){.name = list->table_name[t],
                                                .kind = "embedding",
                                                .out_elements_per_sample = shape->length};
    }
    list->model.param_count = list->model.layer_count = shape->tables;
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
    for (int t = shape->tables - 1; t >= 0; t--)
        list->ready_order[ready++] = t;
    order_mlp(&list->bottom, list->ready_order + ready);
    model->params = list->param;
    model->layers = list->info;
    model->ready_order = list->ready_order;
    model->input = DPB_INPUT_INTERACTIONS;
    model->features = shape->features;
    model->tables = shape->tables;
    model->table_rows = list->table_rows;
    model->classes = 2;
    return DPB_OK;
}

void dpb_dlrm_list_init_params(const struct dpb_dlrm_list *list, uint64_t seed, float *const *param)
{
    for (int p = 0; p < list->model.param_count; p++) {
        const struct dpb_param_info *info = &list->param[p];
        bool table = p < list->shape.tables;
        double spread = table            ? 1.0 / sqrt((double)info->dim[0])
                        : info->rank > 1 ? sqrt(2.0 / (double)(info->dim[0] + info->dim[1]))
                                         : 1.0 / sqrt((double)info->dim[0]);
        struct dpb_rng rng;

        dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)p);
        for (int64_t i = 0; i < info->numel; i++)
            param[p][i] = (float)(spread * (table ? 2.0 * dpb_rng_uniform(&rng) - 1.0
                                                  : dpb_rng_normal(&rng)));
    }
}
