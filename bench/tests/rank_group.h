/* rank_group.h: ranks as threads of a test, with services that exchange between their memory and
 * count what they send. Exchanges run in wait(), in the order of the waits. */
#ifndef BENCH_TESTS_RANK_GROUP_H
#define BENCH_TESTS_RANK_GROUP_H

#include <pthread.h>

#include "dpb_workload.h"

#define RANK_GROUP_MAX         8
#define RANK_GROUP_BUFFERS_MAX 4

struct rank_group;

struct rank_exchange {
    bool under_way;
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int buffer;
    int64_t count;
};

struct rank_seat {
    struct rank_group *group;
    struct dpb_rank_services services;
    void *buffer[RANK_GROUP_BUFFERS_MAX];
    size_t bytes[RANK_GROUP_BUFFERS_MAX];
    int buffer_count;
    struct rank_exchange exchange[DPB_RANK_EXCHANGES_MAX];
    int under_way;      /* exchanges */
    int64_t sent_bytes; /* to other ranks; all-gather hands every part round once */
};

struct rank_group {
    int size;
    pthread_barrier_t barrier;
    struct rank_seat seat[RANK_GROUP_MAX];
};

void rank_group_open(struct rank_group *group, int size);
void rank_group_close(struct rank_group *group);

/* Run `body` once per rank, each in a thread; DPB_OK when it was that in all. Not for assertions of
 * cmocka, which belong to the test's thread. */
dpb_status rank_group_run(struct rank_group *group, dpb_status (*body)(void *ctx, int rank),
                          void *ctx);

#endif
