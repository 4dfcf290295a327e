/* dpb_step.h: the step engine of one rank: full training steps through a workload and a strategy.
 *
 * It owns parameters, gradient arena (in the comm's shared buffers, so that no staging copy is
 * needed) and optimizer state, binds them to the workload, calls the strategy's hooks, and
 * measures. Everything a step touches is allocated and touched by open(). */
#ifndef DPB_STEP_H
#define DPB_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_optimizer.h"
#include "dpb_recorder.h"
#include "dpb_strategy.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where batches come from. Batches are valid until the next call. */
struct dpb_batch_source {
    void *ctx;
    /* The batch of this rank for training step `step` (from 1). DPB_END: there is none. */
    dpb_status (*next)(void *ctx, int64_t step, struct dpb_batch *batch);
};

enum dpb_phase {
    DPB_PHASE_SETUP,
    DPB_PHASE_DATA,
    DPB_PHASE_FORWARD,
    DPB_PHASE_BACKWARD,
    DPB_PHASE_SYNC,
    DPB_PHASE_OPTIMIZER,
    DPB_PHASE_DONE,
    DPB_PHASE_COUNT
};
const char *dpb_phase_text(enum dpb_phase phase);

struct dpb_step_config {
    dpb_device *device;
    dpb_comm *comm;
    const struct dpb_workload_ops *workload;
    const void *workload_options;
    const struct dpb_strategy_ops *strategy;
    const void *strategy_options;
    bool bucket_given;
    struct dpb_batch_source source;
    int64_t batch_max;    /* most samples of this rank in a micro-batch */
    int64_t global_batch; /* the loss is the mean over it; of all micro-batches together */
    int64_t accumulate;   /* micro-batches of a step; the source gives them one by one: step s gets
                             its batches (s - 1) accumulate + 1 to s accumulate */
    int ranks_per_node;   /* 0: all ranks are on one */
    uint64_t seed;
    enum dpb_dtype precision; /* DPB_F32, or DPB_BF16 or DPB_F16 where workload and device can */
    /* The loss is multiplied by it, and reduced gradients are divided by it before they are used.
     * 0: neither. DPB_LOSS_SCALE_DYNAMIC: from 65536 on, twice as much after 2000 good steps; when
     * gradients are not finite, the step's update is skipped and it becomes half */
    double loss_scale;
    bool capture; /* record each step from forward to the update as a graph, from step 3 on */
    bool sync_batch_statistics; /* batch normalisation over the samples of all ranks */
    struct dpb_optimizer_config optimizer;
    bool sum_gradients; /* verification with integer gradients: sum, do not average */
    /* Told where this rank is, for messages about ranks that died or hang; cheap, may be NULL. */
    void (*progress)(void *ctx, int64_t step, enum dpb_phase phase, int bucket);
    void *progress_ctx;
};

#define DPB_LOSS_SCALE_DYNAMIC (-1.0)

/* Times of one step of this rank, dpb_clock_now_ns(). On a device that computes in the host, phases
 * are the host's and contiguous. On an accelerator they are the device's, between marks on its
 * stream, but for data, which is the host's; they overlap what the host does. A step ends when the
 * stream is empty. A captured step is one graph, all of which counts as forward. */
struct dpb_step_times {
    int64_t start_ns;
    int64_t data_ns, forward_ns, backward_ns, sync_ns, optimizer_ns; /* durations */
    int64_t end_ns;
    double loss_sum; /* over the local samples, before the update */
    int64_t correct;
    int64_t samples; /* local */
};

typedef struct dpb_step_engine dpb_step_engine;

/* Collective over the comm. Initialises the parameters from the seed. Before that the ranks compare
 * what they are about to do (network, strategy, settings, plan; DPB_ERR_MISMATCH names the ranks
 * that differ from rank 0), and the comm all-reduces known integers in every place where it will
 * work (DPB_ERR_CHECK). A failure of this rank alone aborts the comm. */
dpb_status dpb_step_open(const struct dpb_step_config *config, dpb_step_engine **engine);
/* Collective, before the comm is closed; not after a failure, when memory in the comm is left to
 * the comm's close. */
void dpb_step_close(dpb_step_engine *engine);

/* Record into `recorder` from the next step on; NULL: nothing. Borrowed; its events name operators
 * by text of this engine: drain it before dpb_step_close(). */
void dpb_step_set_recorder(dpb_step_engine *engine, dpb_recorder *recorder);

/* Run one training step. A loss that is not finite is not an error here: the caller judges. After
 * step 1 a strategy may rebuild its plan; that is not part of the step's times. DPB_END: the source
 * has no batch; nothing was done. On failure the comm has been aborted and no further step is
 * possible. Ranks are not aligned before the step: the caller puts a barrier where it wants one. */
dpb_status dpb_step_run(dpb_step_engine *engine, struct dpb_step_times *times);

/* Number of steps run so far. */
int64_t dpb_step_count(const dpb_step_engine *engine);

/* The plan in force: {"units": [{"bytes":..., "members": ["fc2.bias", ...]}, ...],
 * "rebuilt": true}, and what the strategy adds: ddp its limits, "first_bucket_bytes" and
 * "bucket_bytes". Caller owns. */
dpb_json *dpb_step_plan_json(const dpb_step_engine *engine);

/* What the workload exchanged itself in the last training step (dpb_rank_services). */
struct dpb_step_exchanges {
    int64_t count;
    int64_t payload_bytes; /* of the whole buffers */
    double wire_bytes;     /* the same, each times the bus-bandwidth factor of its kind */
    int64_t wire_ns;       /* on the emulated link; -1 without one */
};
void dpb_step_exchanges(const dpb_step_engine *engine, struct dpb_step_exchanges *exchanges);

/* The messages of a step under the plan in force: how many, and, unless NULL, which (room for as
 * many). */
int dpb_step_messages(const dpb_step_engine *engine, struct dpb_sync_message *messages);

/* Bytes this rank holds, alignment included: {"parameters": ..., "gradients": ...,
 * "optimizer": ..., "communication": ..., "strategy": ..., "activations": ...}, as
 * dpb_step_memory_predict() says; among the activations are "state", what the workload keeps beside
 * its parameters, and "exchange", what it exchanges itself. Caller owns. */
dpb_json *dpb_step_memory_json(const dpb_step_engine *engine);

/* What the memory of an engine depends on, beside its workload's. */
struct dpb_step_shape {
    const struct dpb_model *model;
    const struct dpb_optimizer_config *optimizer;
    const struct dpb_strategy_ops *strategy;
    const void *strategy_options;
    bool bucket_given;
    int ranks;
    int ranks_per_node; /* 0: all */
    bool is_gpu;
    int64_t accumulate;
};

/* The same before there is an engine, exactly: bytes of rank `rank`, without the workload's
 * activations. Fails as the strategy's open() and plan() do. */
struct dpb_step_memory {
    int64_t parameters, gradients, optimizer;
    int64_t communication; /* what the strategy has for its collectives, in shared memory */
    int64_t strategy;      /* what it has of its own; micro-batches' gradients */
    int64_t evaluation;    /* more, for as long as one runs: whole parameters that are in parts */
};
dpb_status dpb_step_memory_predict(const struct dpb_step_shape *shape, int rank,
                                   struct dpb_step_memory *memory);

/* What the engine takes beside that on an accelerator, whose memory the host must not touch: the
 * batch as the device reads it, and memory of host_alloc() for copies (two batches on their way, a
 * window for what the host reads, flags of a dynamic loss scale). Exactly. */
struct dpb_step_staging {
    int64_t device_bytes, host_bytes;
};
void dpb_step_staging_predict(const struct dpb_model *model, int64_t batch_max,
                              bool dynamic_loss_scale, struct dpb_step_staging *staging);

/* May a workload on so many ranks exchange something itself beside a strategy with these flags
 * (dpb_strategy_flags())? DPB_ERR_USAGE: their collectives would be in another order on each rank.
 */
dpb_status dpb_step_check_exchanges(const struct dpb_strategy_ops *strategy, unsigned flags,
                                    const char *workload, int ranks);

/* The strategy for a shape, opened and planned without services: for what it tells of itself
 * (messages, describe, updates). `plan` is as before the first step, or as with gradients ready in
 * `ready_order`. Close it with its ops' close(), then release the plan. */
dpb_status dpb_step_plan_offline(const struct dpb_step_shape *shape, int rank,
                                 const int *ready_order, dpb_strategy **strategy,
                                 struct dpb_unit_plan *plan);

/* XXH3 of all parameters in registration order, then of the workload's replicated state. Outside of
 * steps; collective with a strategy that has parameters in parts. */
dpb_status dpb_step_hash(dpb_step_engine *engine, uint64_t *hash);

/* Exchange hashes of the parameters, and of the replicated state: DPB_OK when all replicas are
 * identical; DPB_ERR_CHECK when not, logged with the ranks that differ from rank 0. Local and
 * sharded state is not compared. Collective. */
dpb_status dpb_step_check_replicas(dpb_step_engine *engine);
/* Is there something to compare? Not where the strategy lets replicas differ at present. */
bool dpb_step_is_in_sync(const dpb_step_engine *engine);

/* Between these two dpb_step_param() has all parameters, whole, whatever the strategy; collective
 * with one that has them in parts. Outside of steps. */
dpb_status dpb_step_params_begin(dpb_step_engine *engine);
void dpb_step_params_end(dpb_step_engine *engine);
/* Parameter `index` where it is, in the device's memory: its numel elements (borrowed). Between the
 * two above, where a strategy has parameters in parts. */
const float *dpb_step_param(const dpb_step_engine *engine, int index);
/* Copy a parameter, or a part of one, or of a state, to memory of the host. Outside of steps. */
dpb_status dpb_step_read(const dpb_step_engine *engine, void *to, const void *from, size_t bytes);

/* The loss scale of the next step, 0: none; and steps whose update was skipped so far. */
void dpb_step_loss_scale(const dpb_step_engine *engine, double *scale, int64_t *skipped);
/* Steps that ran as graphs. */
int64_t dpb_step_captured(const dpb_step_engine *engine);

/* The model that is trained (borrowed). */
const struct dpb_model *dpb_step_model(const dpb_step_engine *engine);
/* State number `index` of what the workload keeps beside its parameters, from 0: false when there
 * is none. */
bool dpb_step_state(const dpb_step_engine *engine, int index, struct dpb_workload_state *state);

/* Change one bit of one parameter of this rank: a planted divergence for tests of the check. */
dpb_status dpb_step_plant_divergence(dpb_step_engine *engine);

/* Move every parameter by 2^-20 of itself, up or down by its place and by `way`, 0 or above: as
 * much as sixteen roundings, to see what a training makes of them. The same on every rank.
 * Collective where a strategy has parameters in parts. */
dpb_status dpb_step_nudge_params(dpb_step_engine *engine, int way);

/* Inference over a source until DPB_END; sums over this rank only. `samples` may be 0. The source
 * is asked for batches 1, 2, ...; nothing is recorded. Collective with a strategy that has
 * parameters in parts; so are the three above. */
dpb_status dpb_step_evaluate(dpb_step_engine *engine, const struct dpb_batch_source *source,
                             int64_t *correct, int64_t *samples, double *loss_sum);

/* Statistics of the communicator since it was opened. The engine's own collectives outside of steps
 * are in them: one all-reduce per unit of each plan (the check of the communicator), and one
 * broadcast when the plan is rebuilt. Of one step: the difference of two calls. */
void dpb_step_comm_stats(const dpb_step_engine *engine, struct dpb_comm_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
