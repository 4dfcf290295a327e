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

/* Options of ddp. */
struct dpb_ddp_options {
    int64_t bucket_bytes;
    int64_t first_bucket_bytes; /* DPB_AUTO: 1 MiB when --bucket was left at its default, else as
                                   --bucket (PyTorch 2.x, bucket_bytes_cap_default) */
    bool overlap;
    int hook; /* enum dpb_ddp_hook */
};

#ifdef __cplusplus
}
#endif
#endif
