/* One cycle of Horovod's negotiation. */
#include "horovod_negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_comm.h"
#include "dpb_log.h"
#include "dpb_str.h"

#define WORD_BITS          64
#define BIT_WORDS_MAX      (HOROVOD_CACHE_CAPACITY_MAX / WORD_BITS)
#define REQUESTS_PER_ROUND (DPB_COMM_EXCHANGE_BYTES / (int)sizeof(struct horovod_request))

/* What a rank says at the start of a cycle. */
struct state_message {
    uint32_t has_invalid;
    uint32_t uncached; /* requests that the others do not know yet */
    uint64_t bits[BIT_WORDS_MAX];
};

_Static_assert(sizeof(struct state_message) <= DPB_COMM_EXCHANGE_BYTES, "one exchange");

/* ---- life ---- */

static dpb_status alloc_tables(struct horovod_negotiation *self)
{
    const size_t tensors = (size_t)self->config.tensors + 1, ranks = (size_t)self->config.size;

    self->ready = calloc(tensors, sizeof(*self->ready));
    self->tensor = calloc(tensors, sizeof(*self->tensor));
    self->asked = calloc(tensors, sizeof(*self->asked));
    self->asker = calloc(tensors, sizeof(*self->asker));
    self->request = calloc(tensors, sizeof(*self->request));
    self->mine = calloc(1, DPB_COMM_EXCHANGE_BYTES);
    self->all = calloc(ranks, DPB_COMM_EXCHANGE_BYTES);
    self->sent = calloc(tensors, sizeof(*self->sent));
    self->told = calloc(tensors * ranks, sizeof(*self->told));
    self->common = calloc(BIT_WORDS_MAX, sizeof(*self->common));
    if (self->ready && self->tensor && self->asked && self->asker && self->request && self->mine &&
        self->all && self->sent && self->told && self->common)
        return DPB_OK;
    dpb_error("negotiation: out of memory for %d tensors of %d ranks", self->config.tensors,
              self->config.size);
    return DPB_ERR_NO_MEMORY;
}

dpb_status horovod_negotiation_init(struct horovod_negotiation *negotiation,
                                    const struct horovod_negotiation_config *config)
{
    dpb_status st;

    *negotiation = (struct horovod_negotiation){.config = *config};
    st = horovod_cache_init(&negotiation->cache, config->tensors, config->cache_capacity);
    if (st >= 0)
        st = fusion_init(&negotiation->fusion, config->tensors);
    if (st >= 0)
        st = alloc_tables(negotiation);
    if (st < 0)
        horovod_negotiation_release(negotiation);
    return st;
}

void horovod_negotiation_release(struct horovod_negotiation *negotiation)
{
    free(negotiation->common);
    free(negotiation->told);
    free(negotiation->sent);
    free(negotiation->all);
    free(negotiation->mine);
    free(negotiation->request);
    free(negotiation->asker);
    free(negotiation->asked);
    free(negotiation->tensor);
    free(negotiation->ready);
    fusion_release(&negotiation->fusion);
    horovod_cache_release(&negotiation->cache);
    *negotiation = (struct horovod_negotiation){0};
}

/* ---- bits ---- */

static bool is_set(const uint64_t *bits, int bit)
{
    return bits[bit / WORD_BITS] >> (bit % WORD_BITS) & 1;
}

static void set(uint64_t *bits, int bit)
{
    bits[bit / WORD_BITS] |= UINT64_C(1) << (bit % WORD_BITS);
}

static int words_of(const struct horovod_negotiation *self)
{
    return (self->cache.bits + WORD_BITS - 1) / WORD_BITS;
}

static size_t state_bytes(const struct horovod_negotiation *self)
{
    return offsetof(struct state_message, bits) + (size_t)words_of(self) * sizeof(uint64_t);
}

static dpb_status exchange(struct horovod_negotiation *self, size_t bytes)
{
    self->exchanges++;
    return self->config.talk.exchange(self->config.talk.ctx, self->mine, bytes, self->all);
}

static const struct state_message *state_of(const struct horovod_negotiation *self, int rank)
{
    return (const void *)((const char *)self->all + (size_t)rank * state_bytes(self));
}

/* How many requests the others do not know the rank with most of them has. */
static int most_uncached(const struct horovod_negotiation *self)
{
    uint32_t most = 0;

    for (int r = 0; r < self->config.size; r++)
        if (state_of(self, r)->uncached > most)
            most = state_of(self, r)->uncached;
    return (int)most;
}

static bool anybody_has_invalid(const struct horovod_negotiation *self)
{
    for (int r = 0; r < self->config.size; r++)
        if (state_of(self, r)->has_invalid)
            return true;
    return false;
}

/* Bits of the requests that the cache knows as `cached`, and how many it does not know. */
static void fill_state(struct horovod_negotiation *self, const struct horovod_request *queue,
                       int count, enum horovod_cached cached)
{
    struct state_message *mine = self->mine;

    memset(mine, 0, state_bytes(self));
    for (int i = 0; i < count; i++) {
        const enum horovod_cached is = horovod_cache_lookup(&self->cache, &queue[i]);

        if (is == cached)
            set(mine->bits, horovod_cache_bit(&self->cache, queue[i].tensor));
        mine->uncached += is != HOROVOD_HIT;
        mine->has_invalid |= is == HOROVOD_INVALID;
    }
}

/* Each rank erases what any rank has found changed; whoever had it ready asks anew. `uncached` is
 * exchanged again, for it may have grown. */
static dpb_status drop_invalid(struct horovod_negotiation *self,
                               const struct horovod_request *queue, int count)
{
    const int bits = self->cache.bits;

    fill_state(self, queue, count, HOROVOD_INVALID);
    DPB_TRY(exchange(self, state_bytes(self)));
    for (int bit = 0; bit < bits; bit++) {
        for (int r = 0; r < self->config.size; r++) {
            if (!is_set(state_of(self, r)->bits, bit))
                continue;
            horovod_cache_erase(&self->cache, bit);
            self->common[bit / WORD_BITS] &= ~(UINT64_C(1) << (bit % WORD_BITS));
        }
    }
    fill_state(self, queue, count, HOROVOD_HIT);
    return exchange(self, state_bytes(self));
}

/* Which responses every rank has ready (`common`), and whether there is more to talk about. */
static dpb_status share_state(struct horovod_negotiation *self, const struct horovod_request *queue,
                              int count, int *uncached)
{
    const int words = words_of(self);

    fill_state(self, queue, count, HOROVOD_HIT);
    DPB_TRY(exchange(self, state_bytes(self)));
    memcpy(self->common, state_of(self, 0)->bits, (size_t)words * sizeof(uint64_t));
    for (int r = 1; r < self->config.size; r++)
        for (int w = 0; w < words; w++)
            self->common[w] &= state_of(self, r)->bits[w];
    if (anybody_has_invalid(self))
        DPB_TRY(drop_invalid(self, queue, count));
    *uncached = most_uncached(self);
    return DPB_OK;
}

/* ---- requests ---- */

static struct horovod_request *told_by(struct horovod_negotiation *self, int rank)
{
    return &self->told[(size_t)rank * ((size_t)self->config.tensors + 1)];
}

/* Gather every rank's requests, `most` of one at most, in as many rounds as they take. */
static dpb_status share_requests(struct horovod_negotiation *self, int count, int most)
{
    for (int first = 0; first < most; first += REQUESTS_PER_ROUND) {
        const int in_round = most - first < REQUESTS_PER_ROUND ? most - first : REQUESTS_PER_ROUND;
        struct horovod_request *mine = self->mine;

        for (int i = 0; i < in_round; i++) {
            if (first + i < count)
                mine[i] = self->sent[first + i];
            else
                mine[i] = (struct horovod_request){.tensor = -1};
        }
        DPB_TRY(exchange(self, (size_t)in_round * sizeof(*mine)));
        for (int r = 0; r < self->config.size; r++)
            memcpy(told_by(self, r) + first,
                   (const struct horovod_request *)self->all + (size_t)r * (size_t)in_round,
                   (size_t)in_round * sizeof(*mine));
    }
    return DPB_OK;
}

static void append_request(struct dpb_str *text, const struct horovod_request *request)
{
    dpb_str_append(text, (unsigned)request->dtype < DPB_DTYPE_COUNT
                                 ? dpb_dtype_text((enum dpb_dtype)request->dtype)
                                 : "unknown type");
    for (int64_t i = 0; i < request->rank && i < DPB_TENSOR_RANK_MAX; i++)
        dpb_str_appendf(text, "%s%lld", i ? "x" : " ", (long long)request->dim[i]);
    dpb_str_appendf(text, ", scaled by %g before and %g after", request->prescale,
                    request->postscale);
}

static dpb_status mismatch(const struct horovod_negotiation *self, int rank,
                           const struct horovod_request *request)
{
    struct dpb_str theirs = {0}, first = {0};

    append_request(&theirs, request);
    append_request(&first, &self->request[request->tensor]);
    dpb_error("negotiation: rank %d reduces tensor %d as %s; rank %d as %s", rank, request->tensor,
              theirs.text ? theirs.text : "?", self->asker[request->tensor],
              first.text ? first.text : "?");
    dpb_log_hint("give every rank the same model and options");
    dpb_str_release(&theirs);
    dpb_str_release(&first);
    return DPB_ERR_MISMATCH;
}

static void add_ready(struct horovod_negotiation *self, const struct horovod_request *request)
{
    int64_t elements = 1;

    for (int64_t i = 0; i < request->rank; i++)
        elements *= request->dim[i];
    self->tensor[self->ready_count] = (struct fusion_tensor){
            .bytes = elements * (int64_t)dpb_dtype_bytes((enum dpb_dtype)request->dtype),
            .dtype = (enum dpb_dtype)request->dtype,
            .prescale = request->prescale,
            .postscale = request->postscale,
    };
    self->ready[self->ready_count++] = *request;
}

/* Rank `rank` has a tensor ready: it is reduced when the last one has. */
static dpb_status count_request(struct horovod_negotiation *self, int rank,
                                const struct horovod_request *request)
{
    const int tensor = request->tensor;

    if (tensor >= self->config.tensors) {
        dpb_error("negotiation: rank %d asks for tensor %d of %d", rank, tensor,
                  self->config.tensors);
        return DPB_ERR_INTERNAL;
    }
    if (self->asked[tensor] == 0) {
        self->request[tensor] = *request;
        self->asker[tensor] = rank;
    } else if (!horovod_request_same(&self->request[tensor], request)) {
        return mismatch(self, rank, request);
    }
    if (++self->asked[tensor] == self->config.size) {
        self->asked[tensor] = 0;
        add_ready(self, request);
    }
    return DPB_OK;
}

/* ---- the two paths ---- */

/* Everything that anybody has ready is known: the bits have said it all. */
static void answer_from_cache(struct horovod_negotiation *self, int bits)
{
    for (int bit = 0; bit < bits; bit++)
        if (is_set(self->common, bit))
            add_ready(self, horovod_cache_get(&self->cache, bit));
}

/* The order of rank 0's table: first what is known, then what becomes complete as the requests of
 * rank 0, 1, 2, ... are counted. */
static dpb_status answer_requests(struct horovod_negotiation *self, int bits, int count, int most)
{
    DPB_TRY(share_requests(self, count, most));
    for (int bit = 0; bit < bits; bit++)
        if (is_set(self->common, bit))
            add_ready(self, horovod_cache_peek(&self->cache, bit));
    for (int r = 0; r < self->config.size; r++)
        for (int i = 0; i < most && told_by(self, r)[i].tensor >= 0; i++)
            DPB_TRY(count_request(self, r, &told_by(self, r)[i]));
    return DPB_OK;
}

/* What the others know, but have not all ready, stays in the queue; what they do not know is to be
 * sent. How many of these there are. */
static int sort_queue(struct horovod_negotiation *self, struct horovod_request *queue, int *count)
{
    int kept = 0, sent = 0;

    for (int i = 0; i < *count; i++) {
        if (horovod_cache_lookup(&self->cache, &queue[i]) != HOROVOD_HIT)
            self->sent[sent++] = queue[i];
        else if (!is_set(self->common, horovod_cache_bit(&self->cache, queue[i].tensor)))
            queue[kept++] = queue[i];
    }
    *count = kept;
    return sent;
}

dpb_status horovod_negotiate(struct horovod_negotiation *negotiation, struct horovod_request *queue,
                             int *count, int64_t threshold_bytes)
{
    struct horovod_negotiation *const self = negotiation;
    const int bits = self->cache.bits;
    int most;

    self->cycles++;
    self->ready_count = 0;
    DPB_TRY(share_state(self, queue, *count, &most));
    const int sent = sort_queue(self, queue, count);
    if (most == 0)
        answer_from_cache(self, bits);
    else
        DPB_TRY(answer_requests(self, bits, sent, most));
    fusion_groups(&self->fusion, self->tensor, self->ready_count, threshold_bytes,
                  self->config.pads);
    if (most > 0) {
        self->slow_cycles++;
        for (int i = 0; i < self->ready_count; i++)
            horovod_cache_put(&self->cache, &self->ready[self->fusion.member[i]]);
    }
    horovod_cache_renumber(&self->cache);
    return DPB_OK;
}
