/* horovod_cache.h: Horovod's response cache (response_cache.cc): what all ranks have once agreed
 * on, so that later one bit per tensor says that a rank has it ready again.
 *
 * Every rank changes its cache in the same way in the same order, so that a bit means the same
 * tensor everywhere. Pure; nothing is allocated after init(). */
#ifndef DPB_HOROVOD_CACHE_H
#define DPB_HOROVOD_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_device.h"
#include "dpb_status.h"
#include "dpb_types.h"

/* What a rank asks for: the sum of a tensor over all ranks. As it travels between ranks. */
struct horovod_request {
    int32_t tensor; /* its number */
    int32_t dtype;  /* enum dpb_dtype */
    int64_t rank;   /* dimensions, of the shape */
    int64_t dim[DPB_TENSOR_RANK_MAX];
    double prescale, postscale;
};

/* Do two requests for one tensor ask for the same? */
bool horovod_request_same(const struct horovod_request *a, const struct horovod_request *b);

enum horovod_cached {
    HOROVOD_MISS,
    HOROVOD_HIT,
    HOROVOD_INVALID /* the tensor is there, but was asked for in another way */
};

struct horovod_cache {
    int capacity, tensors;
    int count;                       /* responses that are there */
    int bits;                        /* in use: 0 to bits - 1 */
    int *tensor_of;                  /* per bit; -1: erased */
    int *bit_of;                     /* per tensor; -1: not there */
    int *newer, *older;              /* per tensor: the list from the newest to the oldest */
    int newest, oldest;              /* -1: none */
    struct horovod_request *request; /* per tensor: how it was asked for */
    bool is_outdated;                /* bits were erased */
};

/* For tensors 0 to tensors - 1, at most `capacity` of them; 0: no cache. */
dpb_status horovod_cache_init(struct horovod_cache *cache, int tensors, int capacity);
void horovod_cache_release(struct horovod_cache *cache);

enum horovod_cached horovod_cache_lookup(const struct horovod_cache *cache,
                                         const struct horovod_request *request);
/* The bit of a tensor that is there. */
int horovod_cache_bit(const struct horovod_cache *cache, int tensor);
/* What is at a bit in use. peek: without a change; get: it becomes the newest. */
const struct horovod_request *horovod_cache_peek(const struct horovod_cache *cache, int bit);
const struct horovod_request *horovod_cache_get(struct horovod_cache *cache, int bit);

/* A response that is not there as INVALID: it becomes the newest; where there is no room the oldest
 * goes, and leaves it its bit. */
void horovod_cache_put(struct horovod_cache *cache, const struct horovod_request *request);
/* Take out what is at a bit, or nothing; the other bits stay until renumber(). */
void horovod_cache_erase(struct horovod_cache *cache, int bit);
/* After erasures: number the bits anew, the oldest response first. */
void horovod_cache_renumber(struct horovod_cache *cache);

#endif
