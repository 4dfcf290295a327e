/* Many collectives in flight, host calls between them, the buffers' stack, and misuse. */
#include "dpb_test.h"

#include <sched.h>

#include "dpb_clock.h"
#include "ranks.h"

static struct dpb_coll sum_of(float *buffer, int64_t count, int tag)
{
    return (struct dpb_coll){.kind = DPB_COLL_ALL_REDUCE,
                             .dtype = DPB_F32,
                             .buffer = buffer,
                             .count = count,
                             .scale = 1,
                             .tag = tag};
}

/* 1 + 2 + ... + ranks: the sum when rank r holds r + 1 */
static float triangle(const struct ranks_self *self)
{
    return (float)(self->config.size * (self->config.size + 1) / 2);
}

/* Start 40, of mixed kinds and sizes, and wait in another order, with host calls in between. */
static void overlapped(struct ranks_self *self, void *argument)
{
    (void)argument;
    enum {
        MANY = 40,
        EACH = 3000
    };
    int rank = self->config.rank;
    int ranks = self->config.size;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, MANY * EACH * sizeof(float), &memory), DPB_OK);
    for (int round = 0; round < 3; round++) {
        dpb_request *request[MANY];
        struct dpb_coll coll[MANY];
        for (int k = 0; k < MANY; k++) {
            float *at = (float *)memory + k * EACH;
            coll[k] = sum_of(at, 1 + (k * 389 + round) % EACH, k);
            if (k % 3 == 1) {
                coll[k].kind = DPB_COLL_BROADCAST;
                coll[k].root = k % ranks;
            }
            for (int64_t i = 0; i < coll[k].count; i++)
                at[i] = (float)(rank + 1) * (float)(k + 1);
            RANK_EQUAL(self->ops->start(self->comm, &coll[k], NULL, &request[k]), DPB_OK);
            if (k % 7 == 0)
                RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
            if (k % 5 == 0) {
                int mine = rank * 1000 + k;
                int all[DPB_COMM_RANKS_MAX];
                RANK_EQUAL(self->ops->exchange(self->comm, &mine, sizeof(mine), all), DPB_OK);
                for (int r = 0; r < ranks; r++)
                    RANK_EQUAL(all[r], r * 1000 + k);
            }
        }
        for (int n = 0; n < MANY; n++) {
            int k = (n * 7 + 3) % MANY;
            struct dpb_coll_times times = {0};
            RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, &times), DPB_OK);
            RANK_CHECK(times.end_ns >= times.all_ready_ns);
            float sum =
                    coll[k].kind == DPB_COLL_BROADCAST ? (float)(coll[k].root + 1) : triangle(self);
            const float *at = coll[k].buffer;
            for (int64_t i = 0; i < coll[k].count; i++)
                RANK_EQUAL(at[i], sum * (float)(k + 1));
        }
    }
    RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_OK);
}

static void test_overlapped(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 6, 9};
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct ranks_plan plan = {.ranks = sizes[i],
                                      .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, overlapped, NULL), 0);
        }
}

/* Rank 1 comes to the first collective only when rank 0 has seen all three of its own pending. */
static void pending(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &memory), DPB_OK);
    float *values = memory;
    dpb_request *request[3];
    for (int k = 0; k < 3; k++)
        values[k] = (float)(self->config.rank + 1);
    if (self->config.rank == 1)
        RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
    for (int k = 0; k < 3; k++) {
        struct dpb_coll coll = sum_of(values + k, 1, k);
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request[k]), DPB_OK);
    }
    if (self->config.rank == 0) {
        for (int k = 0; k < 3; k++)
            RANK_EQUAL(self->ops->test(self->comm, request[k]), DPB_PENDING);
        RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_ERR_USAGE);
        RANK_CHECK(ranks_logged(self, "has not completed"));
        RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
    }
    /* Completion in order: when the last is complete, all are. */
    dpb_status st;
    while ((st = self->ops->test(self->comm, request[2])) == DPB_PENDING)
        sched_yield();
    RANK_EQUAL(st, DPB_OK);
    for (int k = 0; k < 3; k++) {
        RANK_EQUAL(self->ops->test(self->comm, request[k]), DPB_OK);
        struct dpb_coll_times times;
        RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, &times), DPB_OK);
        RANK_EQUAL(values[k], 3);
    }
    /* A request ends with its wait. */
    RANK_EQUAL(self->ops->wait(self->comm, request[0], NULL, NULL), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->test(self->comm, request[0]), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->test(self->comm, NULL), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_OK);
}

static void test_pending(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, pending, NULL), 0);
}

/* More than fit are refused, and those that were started still complete. */
static void full(struct ranks_self *self, void *argument)
{
    (void)argument;
    enum {
        MOST = 1024
    };
    static dpb_request *request[MOST + 1];
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, (MOST + 1) * sizeof(float), &memory), DPB_OK);
    float *values = memory;
    for (int k = 0; k < MOST; k++) {
        values[k] = (float)(self->config.rank + 1);
        struct dpb_coll coll = sum_of(values + k, 1, k);
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request[k]), DPB_OK);
    }
    struct dpb_coll more = sum_of(values + MOST, 1, MOST);
    RANK_EQUAL(self->ops->start(self->comm, &more, NULL, &request[MOST]), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "all-reduce #1025 (bucket 1024) cannot be started: 1024 "
                                  "collectives were started"));
    RANK_EQUAL(self->ops->wait(self->comm, request[0], NULL, NULL), DPB_OK);
    values[MOST] = (float)(self->config.rank + 1);
    RANK_EQUAL(self->ops->start(self->comm, &more, NULL, &request[MOST]), DPB_OK);
    for (int k = 1; k <= MOST; k++)
        RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, NULL), DPB_OK);
    for (int k = 0; k <= MOST; k++)
        RANK_EQUAL(values[k], 3);
}

static void test_full(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, full, NULL), 0);
}

/* What is still in flight when a rank closes is carried through, because its peers count on it. */
static void closing(struct ranks_self *self, void *argument)
{
    float *results = argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &memory), DPB_OK);
    float *values = memory;
    dpb_request *request[8];
    for (int k = 0; k < 8; k++) {
        values[k] = (float)(self->config.rank + 1);
        struct dpb_coll coll = sum_of(values + k, 1, k);
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request[k]), DPB_OK);
    }
    if (self->config.rank == 1)
        return;
    for (int k = 0; k < 8; k++)
        RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, NULL), DPB_OK);
    memcpy(results, values, 8 * sizeof(float));
}

static void test_closing_carries_through(void **state)
{
    (void)state;
    float *results = ranks_shared(8 * sizeof(float));
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, closing, results), 0);
    for (int k = 0; k < 8; k++)
        assert_true(results[k] == 3);
}

static void buffers(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *a;
    void *b;
    void *c;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 1, &a), DPB_OK);
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 10000, &b), DPB_OK);
    RANK_EQUAL((uintptr_t)a % 4096, 0);
    RANK_EQUAL((uintptr_t)b % 4096, 0);
    for (int i = 0; i < 10000; i++)
        RANK_EQUAL(((char *)b)[i], 0);
    memset(b, 0x5a, 10000);
    /* a stack: only the newest one goes */
    RANK_EQUAL(self->ops->buffer_free(self->comm, a), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "not the newest"));
    RANK_EQUAL(self->ops->buffer_free(self->comm, NULL), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->buffer_free(self->comm, b), DPB_OK);
    /* Memory that was used before comes back as zeros, also with rows of another size. */
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 30000, &c), DPB_OK);
    for (int i = 0; i < 30000; i++)
        RANK_EQUAL(((char *)c)[i], 0);
    float *values = (float *)((char *)c + 29996);
    *values = (float)(self->config.rank + 1);
    struct dpb_coll coll = sum_of(values, 1, 0);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(*values, triangle(self));
    /* One byte over the end, outside, not aligned: refused before anything is touched. */
    coll.count = 2;
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_USAGE);
    coll = sum_of((float *)((char *)c + 2), 1, 0);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_USAGE);
    float elsewhere = 0;
    coll = sum_of(&elsewhere, 1, 0);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->buffer_free(self->comm, c), DPB_OK);
    RANK_EQUAL(self->ops->buffer_free(self->comm, a), DPB_OK);
    RANK_EQUAL(self->ops->buffer_free(self->comm, a), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 0, &a), DPB_ERR_USAGE);
    /* More than any machine has: refused, and the communicator still works. */
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, (size_t)1 << 60, &a), DPB_ERR_USAGE);
    void *stack[64];
    for (int i = 0; i < 64; i++)
        RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &stack[i]), DPB_OK);
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &a), DPB_ERR_USAGE);
    for (int i = 63; i >= 0; i--)
        RANK_EQUAL(self->ops->buffer_free(self->comm, stack[i]), DPB_OK);
}

static void test_buffers(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3};
    assert_int_equal(ranks_run(&plan, buffers, NULL), 0);
}

static void misuse(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &memory), DPB_OK);
    struct dpb_coll coll = sum_of(memory, 8, 2);
    dpb_request *request = NULL;
#define REFUSE(change, status, because)                                                            \
    do {                                                                                           \
        struct dpb_coll bad = coll;                                                                \
        change;                                                                                    \
        RANK_EQUAL(self->ops->start(self->comm, &bad, NULL, &request), status);                    \
        RANK_CHECK(ranks_logged(self, because));                                                   \
        RANK_CHECK(request == NULL);                                                               \
    } while (0)
    REFUSE(bad.count = -1, DPB_ERR_USAGE, "the count is -1");
    REFUSE(bad.count = INT64_MAX, DPB_ERR_USAGE, "the count is 9223372036854775807");
    REFUSE(bad.kind = (enum dpb_coll_kind)77, DPB_ERR_USAGE, "no kind 77");
    REFUSE(bad.dtype = (enum dpb_dtype)77, DPB_ERR_USAGE, "no element type 77");
    REFUSE(bad.dtype = DPB_U8, DPB_ERR_UNSUPPORTED, "cannot sum uint8");
    REFUSE(bad.scale = 0, DPB_ERR_USAGE, "the scale is 0");
    REFUSE(bad.scale = 1.0f / 0.0f, DPB_ERR_USAGE, "the scale is inf");
    REFUSE((bad.dtype = DPB_I32, bad.scale = 0.5f), DPB_ERR_USAGE, "int32 cannot be scaled");
    REFUSE((bad.kind = DPB_COLL_BROADCAST, bad.root = 2), DPB_ERR_USAGE, "no root 2");
    REFUSE((bad.kind = DPB_COLL_BROADCAST, bad.root = -1), DPB_ERR_USAGE, "no root -1");
    REFUSE((bad.kind = DPB_COLL_REDUCE, bad.root = 2), DPB_ERR_USAGE, "no root 2");
    REFUSE((bad.kind = DPB_COLL_REDUCE, bad.scale = 0), DPB_ERR_USAGE, "the scale is 0");
    REFUSE((bad.kind = DPB_COLL_ALL_TO_ALL, bad.count = 7), DPB_ERR_USAGE,
           "its 7 elements are no multiple of the 2 ranks");
    char data[8] = "";
    char all[64];
    RANK_EQUAL(self->ops->exchange(self->comm, data, 0, all), DPB_ERR_USAGE);
    RANK_EQUAL(self->ops->exchange(self->comm, data, DPB_COMM_EXCHANGE_BYTES + 1, all),
               DPB_ERR_USAGE);
    /* Nothing of this has hurt. */
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
}

static void test_misuse(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, misuse, NULL), 0);
}

/* Each rank in turn comes late: nobody may leave the barrier before the last one has come. */
static void barriers(struct ranks_self *self, void *argument)
{
    _Atomic int *arrivals = argument;
    int ranks = self->config.size;
    for (int round = 0; round < 3 * ranks; round++) {
        if (round % ranks == self->config.rank)
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 2000000);
        arrivals[round]++;
        RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
        RANK_EQUAL(arrivals[round], ranks);
    }
    unsigned char mine[DPB_COMM_EXCHANGE_BYTES];
    static unsigned char all[DPB_COMM_EXCHANGE_BYTES * DPB_COMM_RANKS_MAX];
    for (int round = 0; round < 50; round++) {
        memset(mine, self->config.rank * 3 + round, sizeof(mine));
        RANK_EQUAL(self->ops->exchange(self->comm, mine, sizeof(mine), all), DPB_OK);
        for (int r = 0; r < ranks; r++) {
            RANK_EQUAL(all[r * DPB_COMM_EXCHANGE_BYTES], (unsigned char)(r * 3 + round));
            RANK_EQUAL(all[(r + 1) * DPB_COMM_EXCHANGE_BYTES - 1], (unsigned char)(r * 3 + round));
        }
    }
}

static void test_barriers(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        struct ranks_plan plan = {.ranks = ranks};
        assert_int_equal(ranks_run(&plan, barriers, ranks_shared(64 * sizeof(int))), 0);
    }
    struct ranks_plan most = {.ranks = 64};
    assert_int_equal(ranks_run(&most, barriers, ranks_shared(256 * sizeof(int))), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_overlapped), cmocka_unit_test(test_pending),
            cmocka_unit_test(test_full),       cmocka_unit_test(test_closing_carries_through),
            cmocka_unit_test(test_buffers),    cmocka_unit_test(test_misuse),
            cmocka_unit_test(test_barriers),
    };
    return DPB_RUN_TESTS(tests);
}
