/* horovod_negotiate.h: how Horovod's background threads agree in each cycle on what is reduced next
 * (controller.cc, ComputeResponseList): which tensors all ranks have ready, in which groups, in
 * which order.
 *
 * Ranks talk through one function that gathers a few bytes of every rank everywhere. So each rank
 * works out for itself what Horovod's rank 0 works out and sends around; the result is the same,
 * and the same everywhere. */
#ifndef DPB_HOROVOD_NEGOTIATE_H
#define DPB_HOROVOD_NEGOTIATE_H

#include "horovod_cache.h"
#include "horovod_fusion.h"

/* Most entries of a cache whose bits fit in one exchange. */
#define HOROVOD_CACHE_CAPACITY_MAX 32512

struct horovod_talk {
    void *ctx;
    /* As dpb_sync_services.exchange. */
    dpb_status (*exchange)(void *ctx, const void *mine, size_t bytes, void *all);
};

struct horovod_negotiation_config {
    int rank, size;
    int tensors; /* numbers of tensors are 0 to tensors - 1 */
    int cache_capacity;
    bool pads; /* fusion_place_bytes() */
    struct horovod_talk talk;
};

struct horovod_negotiation {
    struct horovod_negotiation_config config;
    struct horovod_cache cache;
    struct fusion fusion; /* of `ready`: the responses of the last cycle */

    /* A cycle. */
    struct horovod_request *ready; /* what every rank has ready, in order */
    struct fusion_tensor *tensor;  /* the same, for fusion */
    int ready_count;

    /* Of each tensor: how many ranks have asked for it since it was last ready; the first who did,
     * and how. */
    int *asked, *asker;
    struct horovod_request *request;

    /* Messages. */
    void *mine, *all;
    struct horovod_request *sent; /* to be sent */
    struct horovod_request *told; /* [rank][tensor]: what ranks have sent */
    uint64_t *common;             /* bits that every rank has set */

    int64_t cycles, slow_cycles, exchanges; /* so far */
};

dpb_status horovod_negotiation_init(struct horovod_negotiation *negotiation,
                                    const struct horovod_negotiation_config *config);
void horovod_negotiation_release(struct horovod_negotiation *negotiation);

/* One cycle: what this rank has queued (`count` requests, in order) against what the others have.
 * Collective: every rank makes as many exchanges as the others. The responses are in `fusion`,
 * groups of `ready`; `queue` and `count` get what is to be tried again in the next cycle.
 * DPB_ERR_MISMATCH, on every rank, where ranks ask for one tensor in different ways. */
dpb_status horovod_negotiate(struct horovod_negotiation *negotiation, struct horovod_request *queue,
                             int *count, int64_t threshold_bytes);

#endif
