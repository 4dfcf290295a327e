#include "ddp_chain.h"

#include <stdlib.h>

#include "dpb_log.h"

struct ddp_launch {
    int handle[DDP_HOOK_COLLECTIVES_MAX];
    int count;
};

dpb_status ddp_chain_plan(struct ddp_chain *chain, int unit_count)
{
    struct ddp_launch *launch = calloc((size_t)unit_count + 1, sizeof(*launch));

    if (!launch) {
        dpb_error("strategy \"ddp\": no room for a plan of %d buckets", unit_count);
        return DPB_ERR_NO_MEMORY;
    }
    free(chain->launch);
    chain->launch = launch;
    chain->unit_count = unit_count;
    ddp_chain_begin(chain);
    return DPB_OK;
}

void ddp_chain_release(struct ddp_chain *chain)
{
    free(chain->launch);
    chain->launch = NULL;
}

void ddp_chain_begin(struct ddp_chain *chain)
{
    chain->unit = chain->stage = 0;
}

/* DPB_PENDING: one of them is not complete. */
static dpb_status test(const struct ddp_chain *chain, const struct ddp_launch *launch)
{
    for (int i = 0; i < launch->count; i++) {
        const dpb_status st = chain->services->test(chain->services->ctx, launch->handle[i]);

        if (st != DPB_OK)
            return st;
    }
    return DPB_OK;
}

static dpb_status wait(const struct ddp_chain *chain, const struct ddp_launch *launch)
{
    for (int i = 0; i < launch->count; i++)
        DPB_TRY(chain->services->wait(chain->services->ctx, launch->handle[i]));
    return DPB_OK;
}

dpb_status ddp_chain_advance(struct ddp_chain *chain, int complete, bool waits)
{
    while (chain->unit < complete) {
        struct ddp_launch *launch = &chain->launch[chain->unit];

        if (chain->stage > 0 && !waits) {
            const dpb_status st = test(chain, launch);

            if (st != DPB_OK)
                return st == DPB_PENDING ? DPB_OK : st;
        }
        if (chain->stage > 0)
            DPB_TRY(wait(chain, launch));
        DPB_TRY(chain->ops->start(chain->hook, chain->unit, chain->stage, launch->handle,
                                  &launch->count));
        chain->stage++;
        if (chain->stage == chain->ops->stages(chain->hook, chain->unit)) {
            chain->unit++;
            chain->stage = 0;
        }
    }
    return DPB_OK;
}

bool ddp_chain_is_through(const struct ddp_chain *chain)
{
    return chain->unit == chain->unit_count;
}

dpb_status ddp_chain_finish(struct ddp_chain *chain, int unit)
{
    DPB_TRY(wait(chain, &chain->launch[unit]));
    return chain->ops->finish ? chain->ops->finish(chain->hook, unit) : DPB_OK;
}
