/* sample_order.h: which samples a rank takes in which step. */
#ifndef BENCH_SAMPLE_ORDER_H
#define BENCH_SAMPLE_ORDER_H

#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Samples that are drawn from together: all of them, or those of one owner. */
struct dpb_sample_pool {
    int owner;
    int64_t samples;
    int64_t epoch;  /* whose order `order` holds; -1: none yet */
    int64_t *order; /* [samples] */
};

struct dpb_sample_order {
    struct dpb_loader_config config;
    struct dpb_deal deal;
    int64_t samples;        /* of the dataset */
    int64_t *owner_samples; /* [owners]; NULL when samples are dealt one by one */
    struct dpb_sample_pool *pool;
    int pool_count; /* this rank's */
    int64_t batches_per_epoch, dropped_per_epoch;
    int64_t batch_max; /* most samples of this rank in a batch */
};

/* What this rank takes of a step. */
struct dpb_sample_slice {
    int64_t first; /* place in the global batch */
    int64_t count;
};

/* Checks the config against the dataset: DPB_ERR_USAGE, logged. */
dpb_status dpb_sample_order_open(const struct dpb_loader_config *config,
                                 struct dpb_sample_order *order);
void dpb_sample_order_release(struct dpb_sample_order *order);

/* Fill `ids` with what this rank takes as batch number `number`, from 1. Makes the order of its
 * epoch where it is not there. DPB_END after the last epoch. */
dpb_status dpb_sample_order_take(struct dpb_sample_order *order, int64_t number, int64_t *ids,
                                 struct dpb_sample_slice *slice);

#ifdef __cplusplus
}
#endif
#endif
