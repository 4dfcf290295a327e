/* ddp_usage.h: which parameters a step uses (DDP's local_used_map): on this rank, from what the
 * workload announces in forward, and on any rank, by an all-reduce of one int32 per parameter. */
#ifndef DPB_DDP_USAGE_H
#define DPB_DDP_USAGE_H

#include "dpb_strategy.h"

struct ddp_usage {
    int params;       /* 0: usage is not looked at */
    bool *now;        /* used by the micro-batch under way */
    int32_t *by_rank; /* 1: used in the step by this rank, until ddp_usage_know(); then: by how many
                         ranks */
    bool *by_us;      /* used in the step by this rank */
    int32_t *shared;  /* for the all-reduce; NULL with one rank */
    int handle;
    bool is_under_way;
};

dpb_status ddp_usage_plan(struct ddp_usage *usage, const struct dpb_model *model);
void ddp_usage_release(struct ddp_usage *usage);

/* Memory that place() takes from shared_alloc(). */
int64_t ddp_usage_bytes(const struct ddp_usage *usage);
dpb_status ddp_usage_place(struct ddp_usage *usage, const struct dpb_sync_services *services);

void ddp_usage_step_begin(struct ddp_usage *usage);
void ddp_usage_forward_begin(struct ddp_usage *usage);
void ddp_usage_add(struct ddp_usage *usage, int param);

/* Start the all-reduce; wait for it; and let the host know the sums, for which it waits. */
dpb_status ddp_usage_start(struct ddp_usage *usage, const struct dpb_sync_services *services);
dpb_status ddp_usage_finish(struct ddp_usage *usage, const struct dpb_sync_services *services);
dpb_status ddp_usage_know(struct ddp_usage *usage, const struct dpb_sync_services *services);
struct dpb_sync_message ddp_usage_message(const struct ddp_usage *usage);

#endif
