/* dpb_experiment.h: the core options of an experiment, and what they resolve to for one cell. */
#ifndef DPB_EXPERIMENT_H
#define DPB_EXPERIMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_link_model.h"
#include "dpb_optimizer.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_evaluate {
    DPB_EVALUATE_AUTO, /* on when --epochs is given */
    DPB_EVALUATE_ON,
    DPB_EVALUATE_OFF
};

/* The struct behind the core table (kind "experiment"). */
struct dpb_experiment {
    char workload[DPB_OPTION_TEXT_BYTES];
    char device[DPB_OPTION_TEXT_BYTES];
    char comm[DPB_OPTION_TEXT_BYTES];
    char strategy[DPB_OPTION_TEXT_BYTES];
    int64_t ranks;
    int64_t global_batch;
    int64_t batch_per_rank; /* of one micro-batch */
    int64_t accumulate;     /* micro-batches of a step */
    int64_t ranks_per_node;
    bool uneven;
    int64_t steps;
    int64_t warmup;
    int64_t epochs;
    int64_t trace_steps;
    char recorder[DPB_OPTION_TEXT_BYTES];
    int evaluate; /* enum dpb_evaluate */
    int64_t repeats;
    int64_t seed;
    int precision; /* enum dpb_dtype: DPB_F32, DPB_BF16 or DPB_F16 */
    char loss_scale[DPB_OPTION_TEXT_BYTES];
    bool capture;
    bool sync_bn;
    int64_t threads_per_rank;
    bool bind;
    int data; /* enum dpb_data_kind */
    char data_dir[DPB_OPTION_TEXT_BYTES], data_file[DPB_OPTION_TEXT_BYTES];
    int sharding;  /* enum dpb_sharding */
    int optimizer; /* enum dpb_optimizer_kind, or DPB_OPTIMIZER_AUTO before it is resolved */
    /* Its settings; NaN in a resolved cell for those that it does not use. */
#define DPB_EXPERIMENT_MEMBER(member, name) double member;
    DPB_OPTIMIZER_SETTING_MAP(DPB_EXPERIMENT_MEMBER)
#undef DPB_EXPERIMENT_MEMBER
    int64_t timeout_ns;
    int64_t stall_timeout_ns;
    double probe_limit_ratio;
    int64_t probe_retries;
    int64_t memory_limit_bytes; /* DPB_AUTO: what is available */
};

#define DPB_OPTIMIZER_AUTO (-1) /* the workload's */

enum dpb_data_kind {
    DPB_DATA_AUTO, /* not after dpb_experiment_resolve() */
    DPB_DATA_FASHION_MNIST,
    DPB_DATA_MNIST,
    DPB_DATA_CIFAR10,
    DPB_DATA_TEXT,
    DPB_DATA_INTERACTIONS,
    DPB_DATA_SYNTHETIC,
    DPB_DATA_PACKED
};

extern const struct dpb_option_table dpb_experiment_table;

/* --loss-scale as struct dpb_step_config has it: auto is dynamic with fp16, and off with what has
 * fp32's exponents. DPB_ERR_USAGE, logged, where it is none. */
dpb_status dpb_experiment_loss_scale(const struct dpb_experiment *e, double *scale);

/* "fashion-mnist", ...: the name datasets know. */
const char *dpb_data_kind_text(enum dpb_data_kind kind);

/* Ranks that `auto` means: powers of two up to the cores, at most 4. Fills `ranks` (at least 3
 * elements), returns how many. */
int dpb_ranks_auto(int cores, int64_t ranks[3]);

/* Decide every option that was left to the program (batch sizes, threads, the optimizer and its
 * settings, ranks of a node) and check what rows cannot: divisible batch and ranks, warm-up below
 * steps, ranks the comm can hold, settings that the optimizer does not use, options that the
 * strategy refuses. Mistakes: DPB_ERR_USAGE, logged with the remedy. Needs `ranks` to be a number.
 * `most_ranks` is the largest rank count of the plan: a rank gets the same share of the machine in
 * every cell, since a curve over ranks that change their size would not show scaling. */
dpb_status dpb_experiment_resolve(dpb_config *config, const struct dpb_registry *registry,
                                  int cores, int64_t most_ranks);

/* The optimizer of a resolved cell. */
struct dpb_optimizer_config dpb_experiment_optimizer(const struct dpb_experiment *e);

/* The option by which the communicator's algorithm is chosen, "algorithm" or "mpi-algorithm"; NULL
 * where it has none. */
const char *dpb_experiment_algorithm_option(const dpb_config *config);

/* The communicator's algorithm and links, and the ranks that they serve; direct where a library
 * chooses (the fewest bytes that are possible), no link where the communicator has no such option.
 */
struct dpb_algorithm_setup dpb_experiment_algorithm(const dpb_config *config);

/* Weak scaling: the batch per rank is given. Strong: the global batch is. */
bool dpb_experiment_is_weak(const dpb_config *config);

/* The series and compute-series texts of a record (dpb_record.h). */
dpb_status dpb_experiment_series(const dpb_config *config, struct dpb_str *series,
                                 struct dpb_str *compute_series);

#ifdef __cplusplus
}
#endif
#endif
