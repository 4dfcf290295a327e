/* conv_graph.h: convolutions as cuDNN graphs. Private to kernels/cuda.
 *
 * A plan is made once for each shape (seconds for the first, then some milliseconds and what
 * measuring takes), found again by its shape, and run without allocation once it has seen its
 * buffers. So call dpb_conv_graphs_plan() and a first dpb_conv_plan_run() with every set of buffers
 * in warm-up steps.
 *
 * x and y are NHWC. Filters are KRSC: [K,R,S,C], K outputs, R rows, S columns, C inputs, where the
 * device interface has OIHW. Sums are fp32, whatever the tensors' type; a gradient of filters is
 * rounded to it at the end, because cuDNN 9.19 has no engine that keeps it in fp32 for x and y of
 * 16 bits.
 *
 * None of this is safe from two threads at a time with the same dpb_conv_graphs. */
#ifndef DPB_CUDA_CONV_GRAPH_H
#define DPB_CUDA_CONV_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudnn_table.h"
#include "dpb_status.h"
#include "dpb_types.h"

enum dpb_conv_pass {
    DPB_CONV_FWD,        /* y from x and w */
    DPB_CONV_BWD_DATA,   /* x, as a gradient, from y, a gradient, and w */
    DPB_CONV_BWD_WEIGHTS /* w, as a gradient, from x and y, a gradient */
};

/* What a plan is made for and found by. */
struct dpb_conv_shape {
    enum dpb_conv_pass pass;
    enum dpb_dtype dtype; /* of x, w and y, also as gradients: DPB_F32, DPB_BF16, DPB_F16 */
    bool tf32;            /* with DPB_F32: products may be rounded to TF32 */
    bool bias, relu;      /* with DPB_CONV_FWD: wanted in the same plan */
    int64_t n, h, w, c;   /* x; see dpb_conv_channels_padded() for c */
    int64_t k, r, s;      /* filters */
    int64_t stride, pad;  /* of rows and of columns */
    int64_t out_h, out_w; /* y is [n, out_h, out_w, k]; cuDNN refuses what does not follow */
};

/* Height or width of y. */
static inline int64_t dpb_conv_out(int64_t in, int64_t kernel, int64_t stride, int64_t pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

/* Channels that x and the filters should have for `c` inputs: the next multiple of 8, the added
 * ones zero. With 3 channels the first convolution of a ResNet asks for 51 MB of workspace and has
 * no fast kernel; with 8 it needs none. */
static inline int64_t dpb_conv_channels_padded(int64_t c)
{
    return (c + 7) / 8 * 8;
}

struct dpb_conv_graphs;
struct dpb_conv_plan;

/* Time `plan` on a stream with buffers of the caller's that fit `shape` (their contents may be
 * lost; a workspace of dpb_conv_plan_workspace_bytes() included): some runs, the least time of one
 * in `*ns`. DPB_ERR_NO_MEMORY: it cannot be timed, and is taken where no other can be; any other
 * failure takes this candidate out. Neither is an error. */
typedef dpb_status (*dpb_conv_measure)(void *ctx, const struct dpb_conv_shape *shape,
                                       struct dpb_conv_plan *plan, int64_t *ns);

struct dpb_conv_graphs_config {
    const struct dpb_cudnn *cudnn; /* the caller's, until close */
    cudnnHandle_t handle;          /* the caller's, until close; NULL: no device */
    /* Where there is no handle: what device to make plans for, as cuDNN's JSON. They cannot run. */
    const char *device_properties;
    bool deterministic;           /* only engines that give the same bits every time */
    size_t workspace_limit_bytes; /* no candidate may want more; 0: no limit */
    /* NULL: the heuristics' first candidate. Else the fastest of the first `candidates` that
     * finalise. */
    dpb_conv_measure measure;
    void *measure_ctx;
    int candidates; /* with `measure`, at least 1 */
};

/* An empty set of plans. Logged; DPB_ERR_NO_MEMORY, DPB_ERR_USAGE (neither handle nor device
 * properties, or both), DPB_ERR_VENDOR with cuDNN's reason. */
dpb_status dpb_conv_graphs_open(const struct dpb_conv_graphs_config *config,
                                struct dpb_conv_graphs **graphs);
void dpb_conv_graphs_close(struct dpb_conv_graphs *graphs); /* and its plans; NULL: nothing */

/* The plan for `shape`: found, or made. It belongs to `graphs`. With `bias` or `relu` and no plan
 * that includes them, the plan of the bare convolution (dpb_conv_plan_fused() is then false).
 * Logged, with the shape and cuDNN's reason; DPB_ERR_USAGE: cuDNN refuses the shape;
 * DPB_ERR_UNSUPPORTED: no engine for it, or none within the limit of workspace. */
dpb_status dpb_conv_graphs_plan(struct dpb_conv_graphs *graphs, const struct dpb_conv_shape *shape,
                                struct dpb_conv_plan **plan);

/* The plan for `shape` if it has been made; else NULL. */
struct dpb_conv_plan *dpb_conv_graphs_find(const struct dpb_conv_graphs *graphs,
                                           const struct dpb_conv_shape *shape);

/* Bytes that a run needs at `workspace`, aligned to 256 bytes; may be 0. */
size_t dpb_conv_plan_workspace_bytes(const struct dpb_conv_plan *plan);
/* Whether it adds the bias and applies the ReLU that its shape asks for; true where it asks for
 * neither. */
bool dpb_conv_plan_fused(const struct dpb_conv_plan *plan);
/* "engine 38, 1 of 12 candidates, measured 0.21 ms, workspace 0 B"; lives as long as the plan. */
const char *dpb_conv_plan_text(const struct dpb_conv_plan *plan);

/* Device memory, aligned to 16 bytes. */
struct dpb_conv_buffers {
    void *x, *w, *y;
    const float *bias; /* [k]; read by a fused plan with bias only */
    void *workspace;   /* may be NULL where none is needed */
};

/* Launch on the stream that the handle was given last (cudnnSetStream). A set of buffers that was
 * seen before costs no allocation. Logged; DPB_ERR_VENDOR with cuDNN's reason. */
dpb_status dpb_conv_plan_run(struct dpb_conv_plan *plan, const struct dpb_conv_buffers *buffers);

/* ---- what cuDNN could do besides ---- */

enum dpb_norm_pass {
    DPB_NORM_FWD, /* training: y, saved statistics, running statistics */
    DPB_NORM_BWD  /* dx, dgamma, dbeta */
};

/* Engines that cuDNN's heuristics propose for training batch normalisation of NHWC activations,
 * with ReLU when `relu`: behind it, or its gradient in front of backward (for which cuDNN 9.19 has
 * none). They are compiled when a plan is made: without a driver there are none at all. 0: it does
 * not do this. Nothing is logged; `why`, one line, says the reason. */
int dpb_conv_graphs_norm_engines(struct dpb_conv_graphs *graphs, enum dpb_norm_pass pass,
                                 enum dpb_dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c,
                                 bool relu, char *why, size_t why_bytes);

#endif
