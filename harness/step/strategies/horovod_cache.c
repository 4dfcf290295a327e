/* Horovod's response cache. */
#include "horovod_cache.h"

#include <stdlib.h>

#include "dpb_log.h"

#define NONE (-1)

bool horovod_request_same(const struct horovod_request *a, const struct horovod_request *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->prescale != b->prescale ||
        a->postscale != b->postscale)
        return false;
    for (int64_t i = 0; i < a->rank && i < DPB_TENSOR_RANK_MAX; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

dpb_status horovod_cache_init(struct horovod_cache *cache, int tensors, int capacity)
{
    const size_t room = (size_t)tensors + 1;

    *cache = (struct horovod_cache){
            .capacity = capacity < tensors ? capacity : tensors,
            .tensors = tensors,
            /* erased bits stay in use until renumber() */
            .tensor_of = calloc(2 * room, sizeof(*cache->tensor_of)),
            .bit_of = calloc(room, sizeof(*cache->bit_of)),
            .newer = calloc(room, sizeof(*cache->newer)),
            .older = calloc(room, sizeof(*cache->older)),
            .newest = NONE,
            .oldest = NONE,
            .request = calloc(room, sizeof(*cache->request)),
    };
    if (!cache->tensor_of || !cache->bit_of || !cache->newer || !cache->older || !cache->request) {
        horovod_cache_release(cache);
        dpb_error("response cache: out of memory for %d tensors", tensors);
        return DPB_ERR_NO_MEMORY;
    }
    for (int t = 0; t < tensors; t++)
        cache->bit_of[t] = NONE;
    return DPB_OK;
}

void horovod_cache_release(struct horovod_cache *cache)
{
    free(cache->request);
    free(cache->older);
    free(cache->newer);
    free(cache->bit_of);
    free(cache->tensor_of);
    *cache = (struct horovod_cache){0};
}

enum horovod_cached horovod_cache_lookup(const struct horovod_cache *cache,
                                         const struct horovod_request *request)
{
    if (cache->bit_of[request->tensor] == NONE)
        return HOROVOD_MISS;
    return horovod_request_same(&cache->request[request->tensor], request) ? HOROVOD_HIT
                                                                           : HOROVOD_INVALID;
}

int horovod_cache_bit(const struct horovod_cache *cache, int tensor)
{
    return cache->bit_of[tensor];
}

const struct horovod_request *horovod_cache_peek(const struct horovod_cache *cache, int bit)
{
    return &cache->request[cache->tensor_of[bit]];
}

/* ---- the list by age ---- */

static void unlink_tensor(struct horovod_cache *cache, int tensor)
{
    const int newer = cache->newer[tensor], older = cache->older[tensor];

    *(newer == NONE ? &cache->newest : &cache->older[newer]) = older;
    *(older == NONE ? &cache->oldest : &cache->newer[older]) = newer;
}

static void make_newest(struct horovod_cache *cache, int tensor)
{
    cache->newer[tensor] = NONE;
    cache->older[tensor] = cache->newest;
    *(cache->newest == NONE ? &cache->oldest : &cache->newer[cache->newest]) = tensor;
    cache->newest = tensor;
}

const struct horovod_request *horovod_cache_get(struct horovod_cache *cache, int bit)
{
    const int tensor = cache->tensor_of[bit];

    unlink_tensor(cache, tensor);
    make_newest(cache, tensor);
    return &cache->request[tensor];
}

/* ---- changes ---- */

void horovod_cache_put(struct horovod_cache *cache, const struct horovod_request *request)
{
    const int tensor = request->tensor;
    int bit = cache->bit_of[tensor];

    if (cache->capacity == 0)
        return;
    if (bit != NONE) {
        unlink_tensor(cache, tensor);
    } else if (cache->count < cache->capacity) {
        bit = cache->bits++;
        cache->count++;
    } else {
        const int evicted = cache->oldest;

        bit = cache->bit_of[evicted];
        cache->bit_of[evicted] = NONE;
        unlink_tensor(cache, evicted);
    }
    make_newest(cache, tensor);
    cache->request[tensor] = *request;
    cache->tensor_of[bit] = tensor;
    cache->bit_of[tensor] = bit;
}

void horovod_cache_erase(struct horovod_cache *cache, int bit)
{
    const int tensor = cache->tensor_of[bit];

    if (tensor == NONE)
        return;
    unlink_tensor(cache, tensor);
    cache->bit_of[tensor] = NONE;
    cache->tensor_of[bit] = NONE;
    cache->count--;
    cache->is_outdated = true;
}

void horovod_cache_renumber(struct horovod_cache *cache)
{
    if (!cache->is_outdated)
        return;
    cache->bits = 0;
    for (int tensor = cache->oldest; tensor != NONE; tensor = cache->newer[tensor]) {
        cache->tensor_of[cache->bits] = tensor;
        cache->bit_of[tensor] = cache->bits++;
    }
    cache->is_outdated = false;
}
