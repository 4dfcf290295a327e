/* dpb_strategies.h: the strategies of this room, one file each in strategies/, and their options.
 */
#ifndef DPB_STRATEGIES_H
#define DPB_STRATEGIES_H

#include "dpb_strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One fused all-reduce after backward. */
extern const struct dpb_strategy_ops dpb_strategy_none_ops;
/* One all-reduce per tensor after it. */
extern const struct dpb_strategy_ops dpb_strategy_naive_ops;
/* PyTorch DistributedDataParallel. */
extern const struct dpb_strategy_ops dpb_strategy_ddp_ops;

/* What replaces the all-reduce of a bucket (DDP's register_comm_hook). */
enum dpb_ddp_hook {
    DPB_DDP_HOOK_NONE,
    DPB_DDP_HOOK_ALLREDUCE,
    DPB_DDP_HOOK_FP16,
    DPB_DDP_HOOK_BF16,
    DPB_DDP_HOOK_POWERSGD
};

/* The releases whose rules make the buckets. */
enum dpb_ddp_compat {
    DPB_DDP_COMPAT_2_X,
    DPB_DDP_COMPAT_1_13,
    DPB_DDP_COMPAT_1_10
};

#define DPB_POWERSGD_RANK     1
#define DPB_POWERSGD_START    2 /* PyTorch: 1000 */
#define DPB_POWERSGD_MIN_RATE 2.0

/* Options of its hook powersgd; of the others: {0}. */
struct dpb_powersgd_options {
    int64_t rank, start_step; /* start_step: first steps, which are not compressed */
    double min_rate, epsilon;
    bool error_feedback, warm_start;
};

/* Options of ddp. */
struct dpb_ddp_options {
    int64_t bucket_bytes;
    int64_t first_bucket_bytes; /* DPB_AUTO: 1 MiB; with DPB_DDP_COMPAT_2_X only when --bucket was
                                   left at its default, else as --bucket (PyTorch's
                                   bucket_bytes_cap_default) */
    bool overlap;
    int hook;   /* enum dpb_ddp_hook */
    int compat; /* enum dpb_ddp_compat */
    bool gradient_as_bucket_view, broadcast_buffers, find_unused, static_graph;
    bool last_bucket_cap;
    struct dpb_powersgd_options powersgd;
};

/* TensorFlow MirroredStrategy. */
extern const struct dpb_strategy_ops dpb_strategy_mirrored_ops;
/* TensorFlow MultiWorkerMirroredStrategy. */
extern const struct dpb_strategy_ops dpb_strategy_mwms_ops;

/* Options of mirrored. */
enum dpb_cross_device_ops {
    DPB_CROSS_DEVICE_AUTO, /* one-device without GPUs, else nccl */
    DPB_CROSS_DEVICE_NCCL,
    DPB_CROSS_DEVICE_HIERARCHICAL_COPY,
    DPB_CROSS_DEVICE_ONE_DEVICE
};

#define DPB_NUM_PACKS_MAX 65536

struct dpb_mirrored_options {
    int cross_device_ops; /* enum dpb_cross_device_ops */
    int64_t num_packs;    /* 0: every gradient by itself */
    /* With num_packs 0: neighbours of at most so many bytes travel together, as long as the last of
     * them is at most so many places behind the first; 0 bytes: none */
    int64_t small_bytes, small_extent;
};

/* Local SGD. */
extern const struct dpb_strategy_ops dpb_strategy_local_sgd_ops;

/* Options of local-sgd. */
struct dpb_local_sgd_options {
    int64_t sync_every, warmup; /* steps */
    bool average_moments;
};

/* Options of mwms. */
struct dpb_mwms_options {
    int64_t bytes_per_pack; /* 0: one pack */
};

/* ZeRO stage 2. */
extern const struct dpb_strategy_ops dpb_strategy_zero2_ops;

enum dpb_zero2_variant {
    DPB_ZERO2_CANONICAL,
    DPB_ZERO2_DEEPSPEED
};

enum dpb_zero2_overlap {
    DPB_ZERO2_OVERLAP_AUTO, /* on with canonical */
    DPB_ZERO2_OVERLAP_ON,
    DPB_ZERO2_OVERLAP_OFF
};

/* Options of zero2. */
struct dpb_zero2_options {
    int variant;                 /* enum dpb_zero2_variant */
    int64_t bucket_bytes;        /* DPB_AUTO: the variant's default */
    int64_t gather_bucket_bytes; /* the same */
    int overlap;                 /* enum dpb_zero2_overlap */
};

/* PyTorch FullyShardedDataParallel, ZeRO stage 3. */
extern const struct dpb_strategy_ops dpb_strategy_fsdp_ops;

enum dpb_fsdp_sharding {
    DPB_FSDP_FULL_SHARD,
    DPB_FSDP_SHARD_GRAD_OP
};

enum dpb_fsdp_prefetch {
    DPB_FSDP_PREFETCH_PRE,
    DPB_FSDP_PREFETCH_POST,
    DPB_FSDP_PREFETCH_NONE
};

/* Options of fsdp. */
struct dpb_fsdp_options {
    int sharding;          /* enum dpb_fsdp_sharding */
    int64_t unit_elements; /* 0: every layer is a unit */
    int backward_prefetch; /* enum dpb_fsdp_prefetch */
    bool forward_prefetch, limit_all_gathers;
};

/* What fsdp divides gradients by before they are summed; the rest of the number of ranks after. */
int dpb_fsdp_predivide_factor(int world_size);

/* Horovod, with the defaults of its releases since 0.21 and of those before. */
extern const struct dpb_strategy_ops dpb_strategy_horovod_ops;
extern const struct dpb_strategy_ops dpb_strategy_horovod_legacy_ops;

enum dpb_horovod_compression {
    DPB_HOROVOD_COMPRESSION_NONE,
    DPB_HOROVOD_COMPRESSION_FP16
};

/* Options of both. */
struct dpb_horovod_options {
    int64_t threshold_bytes; /* 0: no fusion */
    int64_t cycle_ns;
    int64_t cache_capacity; /* 0: no cache */
    bool hierarchical, torus;
    int compression; /* enum dpb_horovod_compression */
    double predivide_factor;
    bool batch_copies;
    bool autotune;
    int64_t tune_warmups, tune_steps, tune_samples;
};

/* ZeRO stage 1: the optimizer's state is in parts. */
extern const struct dpb_strategy_ops dpb_strategy_zero1_ops;

/* Options of zero1. */
enum dpb_zero1_variant {
    DPB_ZERO1_CANONICAL,
    DPB_ZERO1_PYTORCH,
    DPB_ZERO1_MEGATRON,
    DPB_ZERO1_DEEPSPEED
};

enum dpb_zero1_overlap {
    DPB_ZERO1_OVERLAP_AUTO, /* off for deepspeed, else on */
    DPB_ZERO1_OVERLAP_ON,
    DPB_ZERO1_OVERLAP_OFF
};

struct dpb_zero1_options {
    int variant;          /* enum dpb_zero1_variant */
    int64_t bucket_bytes; /* DPB_AUTO: as the variant has it */
    int overlap;          /* enum dpb_zero1_overlap */
    bool overlap_param_gather;
    int64_t gather_bytes; /* deepspeed: gathered at once */
};

#ifdef __cplusplus
}
#endif
#endif
