#include "thread_ranks.h"

#include "dpb_log.h"
#include "dpb_test.h"

static dpb_status alloc_buffer(void *ctx, size_t bytes, void **buffer)
{
    struct thread_rank *rank = ctx;

    assert_true(rank->buffer_count < THREAD_BUFFERS_MAX);
    *buffer = rank->buffer[rank->buffer_count++] = calloc(1, bytes);
    return *buffer ? DPB_OK : DPB_ERR_NO_MEMORY;
}

/* Done when it returns; nobody leaves before all have what they want. */
static dpb_status start(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype, void *buffer,
                        int64_t count, const char *name, int *exchange)
{
    struct thread_rank *rank = ctx;
    struct thread_ranks *all = rank->all;
    size_t part = (size_t)(count / all->size) * dpb_dtype_bytes(dtype);

    if (kind != DPB_COLL_ALL_GATHER || count % all->size != 0 || !name[0])
        return DPB_ERR_INTERNAL;
    if (rank->services.rank == 0)
        all->exchanges++;
    rank->exchanged = buffer;
    pthread_barrier_wait(&all->barrier);
    for (int r = 0; r < all->size; r++) {
        size_t at = (size_t)r * part;

        if (r != rank->services.rank)
            memcpy((char *)buffer + at, (const char *)all->rank[r].exchanged + at, part);
    }
    pthread_barrier_wait(&all->barrier);
    *exchange = 5;
    return DPB_OK;
}

static dpb_status wait_for(void *ctx, int exchange)
{
    (void)ctx;
    return exchange == 5 ? DPB_OK : DPB_ERR_INTERNAL;
}

void thread_ranks_open(struct thread_ranks *ranks, int size)
{
    memset(ranks, 0, sizeof(*ranks));
    ranks->size = size;
    assert_int_equal(pthread_barrier_init(&ranks->barrier, NULL, (unsigned)size), 0);
    for (int r = 0; r < size; r++) {
        ranks->rank[r].all = ranks;
        ranks->rank[r].services = (struct dpb_rank_services){.ctx = &ranks->rank[r],
                                                             .rank = r,
                                                             .size = size,
                                                             .alloc = alloc_buffer,
                                                             .start = start,
                                                             .wait = wait_for};
    }
}

void thread_ranks_close(struct thread_ranks *ranks)
{
    for (int r = 0; r < ranks->size; r++) {
        for (int b = 0; b < ranks->rank[r].buffer_count; b++)
            free(ranks->rank[r].buffer[b]);
    }
    pthread_barrier_destroy(&ranks->barrier);
}

struct thread {
    pthread_t id;
    void (*body)(void *ctx, int rank);
    void *ctx;
    int rank;
};

static void *run(void *of)
{
    const struct thread *thread = of;

    thread->body(thread->ctx, thread->rank);
    return NULL;
}

void thread_ranks_run(struct thread_ranks *ranks, void (*body)(void *ctx, int rank), void *ctx)
{
    struct thread thread[THREAD_RANKS_MAX];

    for (int r = 0; r < ranks->size; r++) {
        thread[r] = (struct thread){.body = body, .ctx = ctx, .rank = r};
        assert_int_equal(pthread_create(&thread[r].id, NULL, run, &thread[r]), 0);
    }
    for (int r = 0; r < ranks->size; r++)
        assert_int_equal(pthread_join(thread[r].id, NULL), 0);
}
