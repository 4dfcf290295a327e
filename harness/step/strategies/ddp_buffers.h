/* ddp_buffers.h: DDP's broadcast of rank 0's buffers (running statistics) before a forward pass, as
 * torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced(), does it: packed by the bucket rule
 * with a limit of 250 MiB, at most two broadcasts under way, and forward waits for all of them. */
#ifndef DPB_DDP_BUFFERS_H
#define DPB_DDP_BUFFERS_H

#include "dpb_strategy.h"

#define DDP_BUFFERS_UNDER_WAY 2

struct ddp_buffers {
    const struct dpb_model *model;       /* NULL: there is nothing to broadcast */
    struct dpb_bucket_assignment packed; /* of the model's buffers */
    int64_t *elements;                   /* per pack */
    int64_t slot_bytes;                  /* room for any pack */
    char *slots;                         /* min(packs, DDP_BUFFERS_UNDER_WAY) of them */
};

/* For the buffers of `model` (borrowed). */
dpb_status ddp_buffers_plan(struct ddp_buffers *buffers, const struct dpb_model *model);
void ddp_buffers_release(struct ddp_buffers *buffers);

/* Memory that place() takes from shared_alloc(). */
int64_t ddp_buffers_bytes(const struct ddp_buffers *buffers);
dpb_status ddp_buffers_place(struct ddp_buffers *buffers, const struct dpb_sync_services *services);

/* Every rank's buffers become rank 0's. */
dpb_status ddp_buffers_broadcast(struct ddp_buffers *buffers,
                                 const struct dpb_sync_services *services, int rank);
/* What that sends: as many messages as there are packs. `messages` may be NULL. */
int ddp_buffers_messages(const struct ddp_buffers *buffers, struct dpb_sync_message *messages);

#endif
