/* dlrm_list.h: a deep learning recommendation model as tables of dpb_model, by rule.
 *
 * Naumov et al. 2019 (arXiv:1906.00091): dense features go through a bottom MLP, every categorical
 * feature picks a row of its table, the dot products of all pairs of these vectors go behind the
 * bottom's output through a top MLP to one logit. Names, shapes and order of registration are those
 * of facebookresearch/dlrm (DLRM_Net): emb_l, bot_l, top_l. */
#ifndef BENCH_DLRM_LIST_H
#define BENCH_DLRM_LIST_H

#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_DLRM_TABLES_MAX 32
#define DPB_DLRM_MLP_MAX    6 /* layers of one MLP */
#define DPB_DLRM_PARAMS_MAX (DPB_DLRM_TABLES_MAX + 4 * DPB_DLRM_MLP_MAX)

/* Where tables are, and what becomes of their gradients. */
enum dpb_dlrm_where {
    DPB_DLRM_TABLES_DENSE,  /* parameters, whose gradients have every row: the strategy's */
    DPB_DLRM_TABLES_SPARSE, /* the same on every rank; gradients are the rows that batches used */
    DPB_DLRM_TABLES_SHARDED /* each on one rank (dlrm_placement.h) */
};

struct dpb_dlrm_shape {
    enum dpb_dlrm_where where;
    int64_t features; /* dense */
    int tables;
    int64_t table_rows[DPB_DLRM_TABLES_MAX];
    int64_t length; /* elements of a row, and of the bottom's output */
    int bottom_count, top_count;
    int64_t bottom[DPB_DLRM_MLP_MAX]; /* outputs of each layer; the last is `length` */
    int64_t top[DPB_DLRM_MLP_MAX];    /* the last is 1 */
};

struct dpb_dlrm_list {
    struct dpb_model model; /* points into what follows: the list must stay where it is */
    struct dpb_dlrm_shape shape;
    int table_params;                  /* parameters that are tables; they come first */
    struct dpb_layer_list bottom, top; /* their layers number parameters in the whole network */
    struct dpb_param_info param[DPB_DLRM_PARAMS_MAX];
    struct dpb_layer_info info[DPB_DLRM_PARAMS_MAX];
    int ready_order[DPB_DLRM_PARAMS_MAX];
    char table_name[DPB_DLRM_TABLES_MAX][DPB_LAYER_NAME_BYTES];
    char table_weight[DPB_DLRM_TABLES_MAX][DPB_LAYER_OP_NAME_BYTES];
    struct dpb_layer_op_names table_op[DPB_DLRM_TABLES_MAX]; /* fwd and bwd_weights */
    char table_update[DPB_DLRM_TABLES_MAX][DPB_LAYER_OP_NAME_BYTES];
    char table_sum[DPB_DLRM_TABLES_MAX][DPB_LAYER_OP_NAME_BYTES]; /* of squares: Adagrad's */
};

/* Elements of a sample between interaction and top MLP: the bottom's output and every pair. */
static inline int64_t dpb_dlrm_pair_columns(const struct dpb_dlrm_shape *shape)
{
    return shape->length + (int64_t)shape->tables * (shape->tables + 1) / 2;
}

/* Gradients become ready as autograd computes them (bench/tests/data/README.md): the top MLP from
 * its last layer, the tables from the last, the bottom MLP; a bias before its weight. Tables are
 * parameters with DPB_DLRM_TABLES_DENSE only.
 * DPB_ERR_INTERNAL, logged, for a shape that does not fit together: a mistake in the workload. */
dpb_status dpb_dlrm_list_init(struct dpb_dlrm_list *list, const struct dpb_dlrm_shape *shape,
                              const char *workload);

/* The list of a shape, made when it is first asked for; it lives as long as the program. `workload`
 * (static) is its name. NULL, logged, without memory. */
const struct dpb_dlrm_list *dpb_dlrm_list_get(const struct dpb_dlrm_shape *shape,
                                              const char *workload);

/* DLRM_Net's initialisation: weights of the MLPs normal with variance 2 / (in + out), biases normal
 * with variance 1 / out, tables uniform in +-1 / sqrt(rows); every parameter from its own stream,
 * so that a table starts the same wherever it is.
 */
void dpb_dlrm_list_init_params(const struct dpb_dlrm_list *list, uint64_t seed,
                               float *const *param);
void dpb_dlrm_list_init_table(const struct dpb_dlrm_list *list, int table, uint64_t seed,
                              float *rows);

#ifdef __cplusplus
}
#endif
#endif
