/* dlrm_private.h: what the files that run a recommendation model share. */
#ifndef BENCH_DLRM_PRIVATE_H
#define BENCH_DLRM_PRIVATE_H

#include "dlrm.h"
#include "dlrm_tables.h"
#include "handover.h"

enum buffer {
    EMBEDDED,      /* [tables, samples, length] */
    EMBEDDED_GRAD, /* the same */
    PAIRS,         /* [samples, pair columns] */
    /* The gradient of one layer's output is made from the one behind it; both are needed at once,
     * never three. */
    GRAD_0,
    GRAD_1,
    LOSS,
    ZEROS,
    /* With mixed precision the MLPs are bf16, with GRAD_0, GRAD_1 and their outputs; what lies
     * between them and at their ends is fp32 and needs a copy on the other side. */
    LOW_WEIGHTS,
    LOW_X,
    LOW_PAIRS,
    WIDE_VECTOR, /* the bottom's output */
    WIDE_LOGITS,
    WIDE_PAIRS_GRAD, /* first the logits' */
    WIDE_VECTOR_GRAD,
    BOTTOM, /* outputs of its layers, after their ReLU */
    TOP = BOTTOM + DPB_DLRM_MLP_MAX,
    BUFFERS = TOP + DPB_DLRM_MLP_MAX
};

struct dlrm {
    struct dpb_workload_base base;
    const struct dpb_dlrm_list *list;
    struct dpb_launcher *launcher;
    const struct dpb_param_watch *watch;
    struct dpb_workload_sizes sizes;
    float *param[DPB_DLRM_PARAMS_MAX], *grad[DPB_DLRM_PARAMS_MAX];
    void *buffer[BUFFERS];
    /* of tables that are parameters: [tables, samples], the batch's indices turned round */
    int32_t *ids;
    struct dpb_handover handover; /* to them */
    struct dpb_results *results;
    int64_t slot;                   /* of the forward pass under way */
    struct dpb_dlrm_tables *tables; /* NULL where they are parameters */
};

/* Where the copy of parameter `param` lies in LOW_WEIGHTS; for their number, the bytes of all. */
int64_t dpb_dlrm_low_weight_at(const struct dpb_dlrm_list *list, enum dpb_dtype precision,
                               int param);

/* Of two buffers, the one in which fp32 values are: `same` where all is fp32. */
float *dpb_dlrm_wide(const struct dlrm *net, int same, int mixed);
/* fp32 values as the MLPs read them: where they are, or in buffer `low`. */
const void *dpb_dlrm_low(const struct dlrm *net, const float *values, enum buffer low);

/* Casts, which do nothing where all is fp32: fp32 values to buffer `to`, as the MLPs read them;
 * what an MLP wrote to buffer `from`, as fp32 to buffer `to`. */
dpb_status dpb_dlrm_narrow(const struct dlrm *net, const char *name, const float *values, int to,
                           int64_t rows, int64_t columns);
dpb_status dpb_dlrm_widen(const struct dlrm *net, const char *name, int from, enum buffer to,
                          int64_t rows, int64_t columns);

/* Forward: layer i writes buffer `outputs` + i. */
dpb_status dpb_dlrm_mlp_forward(const struct dlrm *net, const struct dpb_layer_list *mlp,
                                int outputs, const void *x, int64_t samples);
/* Backward: the gradient of the last output lies in GRAD_0 + *at; that of x is left in GRAD_0 +
 * *at, when `data` asks for it. */
dpb_status dpb_dlrm_mlp_backward(const struct dlrm *net, const struct dpb_layer_list *mlp,
                                 int outputs, const void *x, int64_t samples, bool data, int *at,
                                 dpb_grad_ready ready, void *ctx);

#endif
