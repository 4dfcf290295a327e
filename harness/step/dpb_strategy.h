/* dpb_strategy.h: the strategy interface: which gradients travel together, when, and when the
 * optimizer may go.
 *
 * A strategy owns no thread and reads no clock: it is told what happens (hooks) and asks for
 * collectives through services. So the same code drives real ranks and, with one instance for all
 * ranks, a simulated cluster. */
#ifndef DPB_STRATEGY_H
#define DPB_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_bucket.h"
#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_STRATEGY_OPS_VERSION 2

/* A collective that a strategy asks for. */
struct dpb_sync_coll {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    void *buffer;  /* in the place of a unit, or in memory of shared_alloc() */
    int64_t count; /* elements, as struct dpb_coll counts them */
    int root;
    float scale;      /* reductions: each rank's contribution times this; 1 for a plain sum */
    int unit;         /* the bucket's number in messages and traces; -1: none */
    const char *name; /* in traces, static; NULL: the kind's text */
    /* It works on what collectives that were started before leave in this memory: they may still be
     * under way */
    bool follows;
};

/* What a strategy may ask of the step engine. All fail with a status that the strategy passes on.
 * Thread-safe where it says so, for tick(). */
struct dpb_sync_services {
    void *ctx;
    struct dpb_launcher *launcher; /* the compute stream, for casts, copies and scaling */
    /* What each rank's contribution is multiplied by so that the sum is what the optimizer wants:
     * 1/P; 1 when gradients are summed (verification with integers). */
    float average;

    /* Memory that collectives work on, zeroed: collective over the ranks, in place() only. It lasts
     * until place() is called again, or close(). */
    dpb_status (*shared_alloc)(void *ctx, size_t bytes, void **buffer);
    /* The place of a unit of the plan in force, of its dtype and elements. */
    void *(*unit_data)(void *ctx, int unit);
    /* Where the workload finds a parameter and puts its gradient now: the device's memory, as all
     * that follows and what shared_alloc() gives; the host copies (dpb_device_ops.copy), and waits
     * for the stream where it has to know. */
    float *(*param)(void *ctx, int param);
    float *(*grad)(void *ctx, int param);
    /* From now on they are here (NULL: where they were). The caller keeps what they held. */
    void (*bind)(void *ctx, int param, float *value, float *grad);
    /* Array `array`, from 0, of the optimizer's state of a parameter that this rank updates whole:
     * how many elements it has, at most the parameter's, and where they are. 0: there is none. */
    int64_t (*optimizer_state)(void *ctx, int param, int array, float **values);
    /* What the workload keeps beside parameters (dpb_workload_ops.state). */
    bool (*state)(void *ctx, int index, struct dpb_workload_state *state);

    /* Where copies go that tick() launches: beside the compute stream where a device computes later
     * than its host launches, else the same as `launcher`. note_gradient(), from a hook: what the
     * compute stream has been given so far makes the gradient of `param`. await_gradient(), from
     * tick(): what is launched here next sees it. join_background(), from a hook while no tick() is
     * running: later work of the compute stream sees what was launched here. */
    struct dpb_launcher *background;
    dpb_status (*note_gradient)(void *ctx, int param);
    dpb_status (*await_gradient)(void *ctx, int param);
    dpb_status (*join_background)(void *ctx);

    /* Start a collective on what the compute stream has computed so far; from tick(), on what the
     * background has been given and has awaited. Every rank starts the same ones in the same order.
     * Thread-safe. */
    dpb_status (*start)(void *ctx, const struct dpb_sync_coll *coll, int *handle);
    /* DPB_OK: complete, DPB_PENDING: not yet, or the failure. Thread-safe. */
    dpb_status (*test)(void *ctx, int handle);
    /* Later work of the compute stream sees the result. Every handle is waited for once. */
    dpb_status (*wait)(void *ctx, int handle);
    /* The caller's thread sees it: what a host-blocking synchronize() does. Then wait() need not be
     * called. Thread-safe. */
    dpb_status (*wait_on_host)(void *ctx, int handle);

    /* A few host bytes of every rank, all[r * bytes]: small talk between coordinators, at most
     * DPB_COMM_EXCHANGE_BYTES. From tick(), or from hooks where no tick() is running. */
    dpb_status (*exchange)(void *ctx, const void *mine, size_t bytes, void *all);
    /* Between tick() and the hooks. await(), with the lock held: let it go until a tick has ended;
     * a failure of tick(). */
    void (*lock)(void *ctx);
    void (*unlock)(void *ctx);
    dpb_status (*await)(void *ctx);
    /* A span of the strategy's own in the trace ("QUEUE"), unit -1: none. Any thread; `name` is
     * static. begin() gives what end() takes. */
    int64_t (*span_begin)(void *ctx);
    void (*span_end)(void *ctx, int64_t begin, const char *name, int unit);
};

struct dpb_strategy_config {
    int rank, world_size;
    int ranks_per_node;  /* divides world_size, or world_size: one node */
    bool is_gpu;         /* MirroredStrategy chooses its algorithm by that */
    const void *options; /* the strategy's own option struct */
    bool bucket_given; /* did the user give --bucket? PyTorch 2.x decides the first bucket by it */
    /* How the optimizer sees a parameter: element by element (so that any part of it can be updated
     * alone), or as a whole (LAMB, LARS, row-wise Adagrad). */
    bool optimizer_is_elementwise;
    int optimizer_arrays;              /* that it keeps of a parameter */
    struct dpb_sync_services services; /* ctx NULL: only plan(), messages() and describe() */
};

typedef struct dpb_strategy dpb_strategy;

/* A part of a parameter that this rank updates. */
struct dpb_update {
    int param;
    int64_t first, count; /* elements of the parameter */
    float *value;         /* where element `first` is; NULL: in the parameter's place */
    const float *grad;    /* and its gradient; NULL: in the gradient's place */
};

/* When a message of a step can go at the earliest. */
enum dpb_sync_when {
    DPB_SYNC_BEFORE_FORWARD,
    DPB_SYNC_FORWARD,        /* before the first use of `param` in the forward pass */
    DPB_SYNC_BACKWARD_USE,   /* before the first use of `param` in the backward pass */
    DPB_SYNC_GRADIENT,       /* when the gradient of `param` is complete */
    DPB_SYNC_AFTER_BACKWARD, /* when every gradient is */
    DPB_SYNC_AFTER_OPTIMIZER
};

/* One message of a step, as dpbench explain tells it and tests count its bytes. */
struct dpb_sync_message {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int64_t count;
    int root; /* as struct dpb_coll has it */
    enum dpb_sync_when when;
    int param;
    int unit;         /* -1: of no unit */
    const char *name; /* static; NULL: the kind's text */
    int64_t every;    /* it goes in one of so many steps; 0: in each */
};

enum dpb_strategy_flags {
    /* A rank holds its own part of the parameters only: take_params() and give_params() are there
     */
    DPB_STRATEGY_SHARDS_PARAMETERS = 1 << 0,
    /* Replicas may differ between synchronisations: in_sync() says when they may not */
    DPB_STRATEGY_REPLICAS_DIFFER = 1 << 1,
    /* Rounds or leaves out a part of what it sends, so that the result is not that of one big batch
     * (compression) */
    DPB_STRATEGY_LOSSY = 1 << 2,
    /* All parameters are in memory of the strategy's, where place() binds them: the engine has none
     */
    DPB_STRATEGY_HOLDS_PARAMETERS = 1 << 5,
    /* With gradient accumulation it wants grad_ready() in every micro-batch, all of which have
     * `sync` true, and adds up what it has reduced (units that share memory cannot wait) */
    DPB_STRATEGY_SYNCS_MICRO_BATCHES = 1 << 3,
    /* A pass may leave parameters out, whose use the workload then does not announce: it gets by
     * without grad_ready() for them. Otherwise that is an error. */
    DPB_STRATEGY_FINDS_UNUSED = 1 << 4,
    /* Starts collectives when others have ended: their order with what the workload exchanges
     * itself would differ between ranks, so that is refused */
    DPB_STRATEGY_CHAINS = 1 << 6,
    /* The host waits for a collective, or reads or makes what travels, in the middle of a step:
     * none can be captured as a graph */
    DPB_STRATEGY_NEEDS_HOST = 1 << 7
};

struct dpb_strategy_memory {
    int64_t parameters_bytes; /* -1: every parameter, whole */
    int64_t shared_bytes;     /* of shared_alloc() */
    int64_t private_bytes;    /* of its own */
};

struct dpb_strategy_ops {
    int version; /* DPB_STRATEGY_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;                         /* enum dpb_strategy_flags */
    const struct dpb_option_table *options; /* optional: NULL */

    dpb_status (*open)(const struct dpb_strategy_config *config, dpb_strategy **strategy);
    void (*close)(dpb_strategy *strategy);
    /* Optional: the flags with these options (a hook that compresses); NULL: `flags`. */
    unsigned (*flags_of)(const void *options);

    /* The units for the next steps. `ready_order` is NULL before the first step and afterwards the
     * order in which gradients became ready in it, what had none at the end. The strategy may keep
     * `plan` and `model`: they stay where they are and unchanged until the next call has succeeded.
     * The engine releases the plan; on failure there is none. No services. */
    dpb_status (*plan)(dpb_strategy *strategy, const struct dpb_model *model,
                       const int *ready_order, struct dpb_unit_plan *plan);
    /* Optional. The plan is in force and every gradient bound to its place in its unit: get memory,
     * bind gradients elsewhere. */
    dpb_status (*place)(dpb_strategy *strategy);
    /* Optional. After step number `step` (from 1): does it want plan() again? The same answer on
     * every rank. */
    bool (*replan_after)(dpb_strategy *strategy, int64_t step);
    /* Optional: what this rank updates, `updates` being NULL or room for as many as the call with
     * NULL returned. The same at every time. NULL: every parameter, whole. */
    int (*updates)(dpb_strategy *strategy, struct dpb_update *updates);
    /* Optional, with DPB_STRATEGY_FINDS_UNUSED: has the parameter a gradient for the optimizer,
     * after before_optimizer()? If not, it is left as it is. */
    bool (*has_gradient)(dpb_strategy *strategy, int param);
    /* The messages of a step once plans do not change any more, in the order in which they go;
     * `messages` NULL or room for as many as the call with NULL returned. None with one rank. With
     * DPB_STRATEGY_SYNCS_MICRO_BATCHES all but those after the optimizer go in every micro-batch.
     */
    int (*messages)(dpb_strategy *strategy, struct dpb_sync_message *messages);

    /* Hooks, in the order of a step; all optional except grad_ready and before_optimizer. With
     * gradient accumulation the hooks from forward_begin() to backward_end() come once per
     * micro-batch; grad_ready() and backward_end() only in the last, whose `sync` is true. */
    dpb_status (*step_begin)(dpb_strategy *strategy, int64_t step);
    dpb_status (*forward_begin)(dpb_strategy *strategy, bool sync);
    /* The workload is about to read a parameter, in the backward pass also to write its gradient.
     * Once for every use; a parameter that two layers share is used twice in a pass. */
    dpb_status (*param_use)(dpb_strategy *strategy, int param, enum dpb_pass pass);
    dpb_status (*forward_end)(dpb_strategy *strategy);
    dpb_status (*grad_ready)(dpb_strategy *strategy, int param);
    dpb_status (*backward_end)(dpb_strategy *strategy);
    dpb_status (*before_optimizer)(dpb_strategy *strategy);
    dpb_status (*after_optimizer)(dpb_strategy *strategy);
    dpb_status (*step_end)(dpb_strategy *strategy);

    /* Optional: what runs beside the hooks, in a thread of the engine's, between step_begin() and
     * the end of before_optimizer(). `next_ns` gets when it wants to be called again, on the same
     * clock as `now_ns`; INT64_MAX: not before the next step. */
    dpb_status (*tick)(dpb_strategy *strategy, int64_t now_ns, int64_t *next_ns);

    /* With DPB_STRATEGY_SHARDS_PARAMETERS. take: this rank's part of the initial parameters. give:
     * they, whole, into full[param]; collective. Parameters with NULL there, the same on every
     * rank, are left out. Outside of steps. */
    dpb_status (*take_params)(dpb_strategy *strategy, float *const *full);
    dpb_status (*give_params)(dpb_strategy *strategy, float *const *full);
    /* With DPB_STRATEGY_REPLICAS_DIFFER: are all replicas the same now? */
    bool (*in_sync)(dpb_strategy *strategy);

    /* Optional. Add what the plan was made with to its description ("first_bucket_bytes"). */
    void (*describe)(dpb_strategy *strategy, dpb_json *plan);
    /* Optional. What one rank holds beside parameters, gradients in their units and the optimizer's
     * state: bytes of shared_alloc() and of the strategy's own. With
     * DPB_STRATEGY_SHARDS_PARAMETERS also what it holds instead of them. Known after plan(). */
    void (*memory)(dpb_strategy *strategy, struct dpb_strategy_memory *memory);
};

struct dpb_strategy_base {
    const struct dpb_strategy_ops *ops;
};

dpb_status dpb_strategy_ops_check(const struct dpb_strategy_ops *ops);
/* Its flags with these options of its own. */
unsigned dpb_strategy_flags(const struct dpb_strategy_ops *ops, const void *options);
/* How often such a strategy sends a message in a step of so many micro-batches. */
int64_t dpb_sync_message_times(unsigned flags, int64_t micro_batches,
                               const struct dpb_sync_message *message);

#ifdef __cplusplus
}
#endif
#endif
