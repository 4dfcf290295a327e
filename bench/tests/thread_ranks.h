/* thread_ranks.h: ranks that are threads of a test, and what their workloads exchange. */
#ifndef BENCH_TESTS_THREAD_RANKS_H
#define BENCH_TESTS_THREAD_RANKS_H

#include <pthread.h>

#include "dpb_workload.h"

#define THREAD_RANKS_MAX   8
#define THREAD_BUFFERS_MAX 4

struct thread_ranks;

struct thread_rank {
    struct thread_ranks *all;
    struct dpb_rank_services services;
    void *buffer[THREAD_BUFFERS_MAX];
    int buffer_count;
    void *exchanged; /* by the collective under way */
};

struct thread_ranks {
    int size;
    struct thread_rank rank[THREAD_RANKS_MAX];
    pthread_barrier_t barrier;
    int exchanges; /* that rank 0 has started */
};

/* Services that gather; every rank's alloc() may be called from any thread. */
void thread_ranks_open(struct thread_ranks *ranks, int size);
void thread_ranks_close(struct thread_ranks *ranks);

/* body(ctx, rank) in a thread for each rank; returns when all have. */
void thread_ranks_run(struct thread_ranks *ranks, void (*body)(void *ctx, int rank), void *ctx);

#endif
