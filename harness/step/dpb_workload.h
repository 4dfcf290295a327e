/* dpb_workload.h: the workload interface: a network with its parameters, forward and backward pass.
 *
 * A workload owns its activations; parameters and gradients belong to the step engine, which binds
 * them (a strategy decides where gradients lie). Backward reports each parameter as soon as its
 * gradient is complete, in the order in which a framework's autograd would. */
#ifndef DPB_WORKLOAD_H
#define DPB_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_device.h"
#include "dpb_optimizer.h"
#include "dpb_options.h"
#include "dpb_recorder.h"
#include "dpb_status.h"
#include "dpb_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_WORKLOAD_OPS_VERSION 3

struct dpb_param_info {
    const char *name; /* "conv1.weight" */
    enum dpb_dtype dtype;
    int rank;
    int64_t dim[DPB_TENSOR_RANK_MAX];
    int64_t numel;
    int layer;  /* index in dpb_model.layers */
    bool table; /* an embedding table [rows, columns], of which a batch uses some rows */
    /* Another layer uses it, too (BERT's decoder the word embedding): its gradient is written first
     * long before it is complete */
    bool shared;
};

struct dpb_layer_info {
    const char *name;                /* "conv1" */
    const char *kind;                /* "conv2d", "linear", "batchnorm2d", ... */
    int64_t fwd_macs_per_sample;     /* multiply-accumulates; 1 MAC = 2 FLOP */
    int64_t out_elements_per_sample; /* of its output */
};

/* What a sample is made of. */
enum dpb_input_kind {
    DPB_INPUT_IMAGES,      /* x and label */
    DPB_INPUT_TOKENS,      /* tokens, segments, predict_position, predict_token, label */
    DPB_INPUT_INTERACTIONS /* x (dense features), indices, label */
};

/* What is known of a network without running it. Static or owned by the workload's table. */
struct dpb_model {
    const struct dpb_param_info *params; /* registration order */
    int param_count;
    const struct dpb_layer_info *layers;
    int layer_count;
    const int *ready_order; /* param_count indices, the order in which gradients become ready */
    enum dpb_input_kind input;
    int64_t sample_dim[3]; /* IMAGES: height, width, channels */
    /* TOKENS: tokens of a sample, the words they are taken from, and how many of a sample are to be
     * predicted. With `next_token` that is all of them: position i predicts token i + 1, and there
     * are no segments. Otherwise they are words hidden from a pair of segments, whose label says
     * whether the second follows the first. */
    int64_t sequence, vocabulary, predicted;
    bool next_token;
    /* INTERACTIONS: dense features, how many rows each table has, and the numbers of a row. */
    int64_t features;
    int tables;
    const int64_t *table_rows; /* [tables] */
    int64_t table_columns;
    int classes; /* of the label */
    /* Running statistics and the like, which training changes without a gradient (PyTorch calls
     * them buffers): state number 0 to buffer_count - 1, of that many elements. */
    int buffer_count;
    const int64_t *buffer_numel;
};

/* Sums over a model: parameters, and MACs of one sample forward. */
int64_t dpb_model_param_elements(const struct dpb_model *model);
int64_t dpb_model_fwd_macs_per_sample(const struct dpb_model *model);
/* Elements of embedding tables that are not parameters: the network's own, on one rank or on all.
 */
int64_t dpb_model_own_table_elements(const struct dpb_model *model);
/* Has it embedding tables, among its parameters or beside them? */
bool dpb_model_has_tables(const struct dpb_model *model);

/* One rank's share of a global batch. The arrays are where operators read them: in the device's
 * memory, which the host must not touch on an accelerator (dpb_batch_on_host()). */
struct dpb_batch {
    int64_t samples;           /* may be 0 on a rank when the batch is uneven */
    int64_t step;              /* training step, from 1; what is drawn anew in every step */
    int64_t first;             /* place of its first sample in the global batch: dropout masks are
                                  those of the whole batch, whoever computes which part of it */
    const int64_t *sample_ids; /* [samples] index in the dataset */
    const int32_t *label;      /* [samples]: class, next sentence or not, click or not */
    const float *x;            /* IMAGES [samples, H, W, C]; INTERACTIONS [samples, features] */
    const int32_t *tokens;     /* TOKENS [samples, sequence] */
    const int32_t *segments;   /* [samples, sequence], 0 or 1 */
    const int32_t *predict_position; /* [samples, predicted], ascending, in the sequence */
    const int32_t *predict_token;    /* [samples, predicted], what stands there in truth */
    const int32_t *indices;          /* INTERACTIONS [samples, tables], row of each table */
    const struct dpb_batch *host;    /* the same in the host's memory; NULL: these are */
};

/* The batch as the host may read it, until the forward pass that gets it returns. */
static inline const struct dpb_batch *dpb_batch_on_host(const struct dpb_batch *batch)
{
    return batch->host ? batch->host : batch;
}

/* Where operators go: shared by everything that computes. */
struct dpb_launcher {
    dpb_device *device;
    dpb_stream *stream;
    dpb_recorder *recorder; /* never NULL; the none recorder when nothing is recorded */
};

/* Launch an operator inside a COMPUTE range named `name` (static). */
static inline dpb_status dpb_launch(const struct dpb_launcher *launcher, const char *name,
                                    enum dpb_op op, const void *args)
{
    dpb_range_begin(launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, name, -1);
    dpb_status st = dpb_op_launch(launcher->device, op, args, launcher->stream);
    dpb_range_end(launcher->recorder, DPB_LANE_HOST);
    return st;
}

/* Is the device's memory the host's own, in which it computes before op_launch() returns? Then what
 * the host reads and writes needs no copy. */
static inline bool dpb_device_is_host(const dpb_device *device)
{
    return !(dpb_device_get_ops(device)->flags & DPB_DEVICE_ACCELERATOR);
}

/* Copy in the stream's order, and wait for it: between memory of the host, of any kind, and of the
 * device. Not in a timed step, unless the host has to know. */
static inline dpb_status dpb_copy_now(const struct dpb_launcher *launcher, void *to,
                                      const void *from, size_t bytes)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(launcher->device);

    DPB_TRY(ops->copy(launcher->device, to, from, bytes, launcher->stream));
    return ops->stream_sync(launcher->stream);
}

typedef struct dpb_workload dpb_workload;

/* The other ranks, for what a network itself exchanges in its forward and backward pass: statistics
 * of synchronised batch normalisation, rows of embedding tables that live on other ranks. Gradients
 * of parameters are the strategy's. Every rank calls these in the same order. */
struct dpb_rank_services {
    void *ctx;
    int rank, size;
    /* Shared memory for such exchanges, zeroed; in open() only. The engine frees it. The device's,
     * as all memory that operators and collectives work on. */
    dpb_status (*alloc)(void *ctx, size_t bytes, void **buffer);
    /* Start a collective on memory from alloc(), `count` elements in all (dpb_comm.h: struct
     * dpb_coll), without scaling. `name` (static) is its text in traces. At most
     * DPB_RANK_EXCHANGES_MAX are under way. With one rank nothing happens. */
    dpb_status (*start)(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype, void *buffer,
                        int64_t count, const char *name, int *exchange);
    /* Later work of the launcher's stream sees the result. */
    dpb_status (*wait)(void *ctx, int exchange);
};

#define DPB_RANK_EXCHANGES_MAX 8

enum dpb_pass {
    DPB_PASS_FORWARD,
    DPB_PASS_BACKWARD
};

/* Told before every use of a parameter: in the forward pass before it is read, in the backward pass
 * before it is read and before its gradient is written. What is bound may change in the call, so
 * that a strategy can have parameters and gradients in memory for as long as they are used. */
struct dpb_param_watch {
    void *ctx;
    dpb_status (*use)(void *ctx, int param, enum dpb_pass pass);
};

/* NULL: nobody watches; param -1: none. */
static inline dpb_status dpb_param_use(const struct dpb_param_watch *watch, int param,
                                       enum dpb_pass pass)
{
    return watch && param >= 0 ? watch->use(watch->ctx, param, pass) : DPB_OK;
}

struct dpb_workload_config {
    struct dpb_launcher *launcher; /* borrowed; its recorder may change between steps */
    int64_t batch_max;             /* most samples this rank ever gets in one batch */
    int64_t global_batch;
    const void *options;                   /* the workload's own option struct */
    const struct dpb_rank_services *ranks; /* borrowed; never NULL */
    const struct dpb_param_watch *watch;   /* borrowed; NULL: nobody watches */
    /* DPB_F32, or DPB_BF16 or DPB_F16: compute in that from fp32 parameters, with fp32 gradients
     * (mixed precision; only with DPB_WORKLOAD_MIXED, and where the device can) */
    enum dpb_dtype precision;
    int64_t results; /* of how many forward passes read_result() can tell; 0: of one */
    /* Batch normalisation over the samples of all ranks (only with
     * DPB_WORKLOAD_BATCH_STATISTICS) */
    bool sync_batch_statistics;
    uint64_t seed;                         /* of what is drawn in steps */
    struct dpb_optimizer_config optimizer; /* what update() is going to be given */
};

/* What a workload keeps beside its parameters. */
enum dpb_state_kind {
    DPB_STATE_REPLICATED, /* the same on every rank, as parameters are (a replicated table) */
    DPB_STATE_LOCAL,      /* each rank its own (running statistics of its own samples) */
    DPB_STATE_SHARDED     /* a part of something that no rank has whole (rows of a table) */
};

struct dpb_workload_state {
    const char *name; /* "bn1.running_mean" */
    enum dpb_state_kind kind;
    float *data; /* the device's memory */
    int64_t numel;
};

/* What a forward pass says. */
struct dpb_forward_result {
    double loss_sum; /* over the local samples */
    int64_t correct; /* samples whose largest logit is the label's */
};

/* A gradient is complete on the launcher's stream. A failure stops the backward pass. */
typedef dpb_status (*dpb_grad_ready)(void *ctx, int param);

/* Suggested training: what --optimizer auto, and with that optimizer --lr auto and its like,
 * resolve to. Momentum counts where the optimizer has one. */
struct dpb_training_defaults {
    enum dpb_optimizer_kind optimizer;
    double lr, momentum, weight_decay;
    int64_t batch_per_rank; /* what --batch-per-rank auto resolves to; 0: no wish, 64 */
};

/* Settings of the optimizer that the workload suggests. */
struct dpb_optimizer_config dpb_training_optimizer(const struct dpb_training_defaults *training);

/* What the memory of a workload depends on beside its options. */
struct dpb_workload_sizes {
    int64_t batch_max, global_batch;
    int rank, ranks;
    enum dpb_dtype precision;
    bool sync_batch_statistics;
    struct dpb_optimizer_config optimizer;
    int64_t results; /* as in dpb_workload_config */
};

/* A collective that a network starts itself in every training step (dpb_rank_services). */
struct dpb_workload_exchange {
    const char *name; /* static: its text in traces */
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int64_t count; /* elements of the whole buffer */
    enum dpb_pass pass;
    const char *meanwhile; /* static: what is computed while it is under way; NULL: nothing */
    char formula[128];     /* the bytes of the buffer: "2 ranks x (1 + 2 x 64 channels) x 4 B" */
};

struct dpb_workload_ops {
    int version; /* DPB_WORKLOAD_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;                         /* enum dpb_workload_flags */
    const struct dpb_option_table *options; /* optional: NULL */
    struct dpb_training_defaults training;

    /* The network for these options; static data or data that lives as long as the program. */
    const struct dpb_model *(*model)(const void *options);

    dpb_status (*open)(const struct dpb_workload_config *config, dpb_workload **workload);
    void (*close)(dpb_workload *workload);
    /* param[i] and grad[i]: this rank's memory of parameter i, numel elements, any 4-byte
     * alignment. May be called again between steps (buckets were rebuilt). */
    void (*bind)(dpb_workload *workload, float *const *param, float *const *grad);
    /* Initial values into the bound parameters, which are the host's memory during this call; the
     * same on every rank for the same seed. Where NULL is bound, that parameter is left out. */
    dpb_status (*init_params)(dpb_workload *workload, uint64_t seed);
    /* training false: inference behaviour (running statistics, no dropout). What it says is kept as
     * number `slot`, below config.results. It does not wait for what it launches, unless what is
     * launched next depends on it. */
    dpb_status (*forward)(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                          int64_t slot);
    /* What the last forward pass with this slot said, once; all that was launched up to it must
     * have been waited for (stream_sync). */
    dpb_status (*read_result)(dpb_workload *workload, int64_t slot,
                              struct dpb_forward_result *result);
    /* Gradients (overwritten, not accumulated) of grad_scale * sum over samples of the loss, for
     * the batch of the last forward. With 0 samples every gradient is zero and still reported. */
    dpb_status (*backward)(dpb_workload *workload, const struct dpb_batch *batch, float grad_scale,
                           dpb_grad_ready ready, void *ctx);
    /* Optional. State number `index`, from 0: false when there is none. */
    bool (*state)(dpb_workload *workload, int index, struct dpb_workload_state *state);
    /* Optional. Update what is not a parameter but learns (tables that a workload exchanges
     * itself), in the optimizer phase of training step `step`, from 1, after the last backward. */
    dpb_status (*update)(dpb_workload *workload, const struct dpb_optimizer_config *optimizer,
                         int64_t step);
    /* Optional. Does the host compute or read values of the device in the middle of a step, so that
     * none can be captured as a graph? NULL: no. */
    bool (*needs_host)(dpb_workload *workload);
    /* Bytes of activations, saved values and workspace that open() allocated. */
    int64_t (*activation_bytes)(dpb_workload *workload);
    /* The same without opening, exactly, so that what cannot fit is refused before it runs.
     * Optional: NULL where nobody can tell. */
    int64_t (*activation_bytes_for)(const void *options, const struct dpb_workload_sizes *sizes);
    /* Optional. Bytes of host_alloc() that open() takes beside them on an accelerator, exactly:
     * what the host hands down to it, and what it reads back. */
    int64_t (*host_bytes_for)(const void *options, const struct dpb_workload_sizes *sizes);
    /* Optional: NULL where the network exchanges nothing itself. What it starts in a forward and a
     * backward pass, in that order: how many collectives, and, unless NULL, which (room for as
     * many). The same on every rank; none with one rank. */
    int (*exchanges)(const void *options, const struct dpb_workload_sizes *sizes,
                     struct dpb_workload_exchange *exchanges);
    /* Optional. The operators that are launched in the precision of `sizes`, as a set of
     * DPB_OPERATOR()s, so that what a device cannot do is refused before anything runs. */
    uint64_t (*operators)(const void *options, const struct dpb_workload_sizes *sizes);
};

#define DPB_OPERATOR(op) (UINT64_C(1) << (op))

enum dpb_workload_flags {
    DPB_WORKLOAD_INTEGER_GRADIENTS = 1 << 0, /* gradients are small integers: sums are exact */
    /* A sample's gradient depends on what else is in its rank's batch (batch normalisation), so
     * that the gradients of N ranks do not add up to the one of the whole batch. */
    DPB_WORKLOAD_BATCH_STATISTICS = 1 << 1,
    DPB_WORKLOAD_MIXED = 1 << 2 /* can compute in bf16 and fp16, where the device can */
};

struct dpb_workload_base {
    const struct dpb_workload_ops *ops;
};

dpb_status dpb_workload_ops_check(const struct dpb_workload_ops *ops);

/* Has the device these operators in that precision? DPB_ERR_UNSUPPORTED with one line in `why`,
 * which names the first that it has not, the device, and, where the device tells, the reason. */
dpb_status dpb_workload_can_run(const char *workload, uint64_t operators, enum dpb_dtype precision,
                                dpb_device *device, char *why, size_t why_bytes);
/* The same, logged with the remedy. */
dpb_status dpb_workload_check_operators(const char *workload, uint64_t operators,
                                        enum dpb_dtype precision, dpb_device *device);

/* forward() in slot 0, and what it says: for who has nothing else to do. */
dpb_status dpb_forward_and_read(const struct dpb_workload_ops *ops,
                                const struct dpb_launcher *launcher, dpb_workload *workload,
                                const struct dpb_batch *batch, bool training,
                                struct dpb_forward_result *result);

#ifdef __cplusplus
}
#endif
#endif
