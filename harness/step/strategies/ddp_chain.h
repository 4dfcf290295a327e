/* ddp_chain.h: buckets on their way through a communication hook, stage by stage, in one order on
 * every rank (ddp_hook.h). */
#ifndef DPB_DDP_CHAIN_H
#define DPB_DDP_CHAIN_H

#include "ddp_hook.h"

struct ddp_launch; /* the collectives of a bucket that were started last */

struct ddp_chain {
    const struct ddp_hook_ops *ops;
    ddp_hook *hook;
    const struct dpb_sync_services *services;
    struct ddp_launch *launch; /* per unit */
    int unit_count;
    int unit;  /* the first whose last stage has not been started */
    int stage; /* the next of its stages */
};

/* Room for a plan of `unit_count` buckets; `ops`, `hook` and `services` are set. */
dpb_status ddp_chain_plan(struct ddp_chain *chain, int unit_count);
void ddp_chain_release(struct ddp_chain *chain);

/* A step begins: nothing has been started. */
void ddp_chain_begin(struct ddp_chain *chain);
/* Start the stages of the first `complete` buckets, in order, as far as none of them has to wait
 * for a collective; with `waits` all of them. */
dpb_status ddp_chain_advance(struct ddp_chain *chain, int complete, bool waits);
/* Have all stages of all buckets been started? */
bool ddp_chain_is_through(const struct ddp_chain *chain);
/* The bucket has its averaged gradients, for later work of the compute stream. After that. */
dpb_status ddp_chain_finish(struct ddp_chain *chain, int unit);

#endif
