/* Progress none: nothing happens between start() and wait(), so nothing can overlap. */
#include "dpb_test.h"

#include "dpb_clock.h"
#include "ranks.h"

enum {
    COUNT = 4096,
    MANY = 6
};

static struct dpb_coll sum_of(float *buffer, int tag)
{
    return (struct dpb_coll){.kind = DPB_COLL_ALL_REDUCE,
                             .dtype = DPB_F32,
                             .buffer = buffer,
                             .count = COUNT,
                             .scale = 1,
                             .tag = tag};
}

static void *filled(struct ranks_self *self)
{
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, MANY * COUNT * sizeof(float), &memory), DPB_OK);
    for (int i = 0; i < MANY * COUNT; i++)
        ((float *)memory)[i] = (float)(self->config.rank + 1);
    return memory;
}

static float triangle(const struct ranks_self *self)
{
    return (float)(self->config.size * (self->config.size + 1) / 2);
}

/* All ranks have started and nobody has waited: nothing has moved. Then the first wait is for the
 * last one but one, and begins everything up to it, in order. */
static void untouched_until_wait(struct ranks_self *self, void *argument)
{
    (void)argument;
    float *values = filled(self);
    float mine = (float)(self->config.rank + 1);
    dpb_request *request[MANY];
    int64_t waited_ns[DPB_COMM_RANKS_MAX];
    for (int k = 0; k < MANY; k++) {
        struct dpb_coll coll = sum_of(values + k * COUNT, k);
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request[k]), DPB_OK);
    }
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
    for (int i = 0; i < MANY * COUNT; i++)
        RANK_EQUAL(values[i], mine);
    for (int k = 0; k < MANY; k++)
        RANK_EQUAL(self->ops->test(self->comm, request[k]), DPB_PENDING);
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);

    int64_t now_ns = dpb_clock_now_ns();
    RANK_EQUAL(self->ops->exchange(self->comm, &now_ns, sizeof(now_ns), waited_ns), DPB_OK);
    struct dpb_coll_times times[MANY];
    RANK_EQUAL(self->ops->wait(self->comm, request[MANY - 2], NULL, &times[MANY - 2]), DPB_OK);
    for (int i = 0; i < (MANY - 1) * COUNT; i++)
        RANK_EQUAL(values[i], triangle(self));
    for (int k = 0; k < MANY - 2; k++) {
        RANK_EQUAL(self->ops->test(self->comm, request[k]), DPB_OK);
        RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, &times[k]), DPB_OK);
    }
    RANK_EQUAL(self->ops->test(self->comm, request[MANY - 1]), DPB_PENDING);
    RANK_EQUAL(self->ops->wait(self->comm, request[MANY - 1], NULL, &times[MANY - 1]), DPB_OK);
    for (int k = 0; k < MANY; k++) {
        int64_t bytes = COUNT * (int64_t)sizeof(float);
        int64_t wire_ns = self->ops->wire_ns(self->comm, DPB_COLL_ALL_REDUCE, bytes);
        /* The whole of it, with the emulated link, lies after the last rank's beginning to wait. */
        for (int r = 0; r < self->config.size; r++)
            RANK_CHECK(times[k].all_ready_ns > waited_ns[r]);
        RANK_CHECK(times[k].start_ns > now_ns);
        RANK_CHECK(times[k].end_ns >= times[k].all_ready_ns + (wire_ns > 0 ? wire_ns : 0));
        RANK_CHECK(k == 0 || times[k].all_ready_ns >= times[k - 1].all_ready_ns);
    }
    struct dpb_comm_stats stats;
    self->ops->stats(self->comm, &stats);
    RANK_EQUAL(stats.collectives, MANY);
    RANK_EQUAL(stats.progress_cpu_ns, 0);
    dpb_json *json = self->ops->describe(self->comm);
    RANK_EQUAL(strcmp(dpb_json_as_string(dpb_json_get(json, "progress"), ""), "none"), 0);
    dpb_json_free(json);
    RANK_EQUAL(self->ops->buffer_free(self->comm, values), DPB_OK);
}

static void test_untouched_until_wait(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5};
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            for (int emulated = 0; emulated < 2; emulated++) {
                struct ranks_plan plan = {.ranks = sizes[i],
                                          .algorithm = (enum dpb_algorithm)algorithm,
                                          .link = {emulated ? 250e6 : 0, 50000},
                                          .progress = DPB_COMM_SHM_NONE};
                assert_int_equal(ranks_run(&plan, untouched_until_wait, NULL), 0);
            }
}

/* With a thread the same ranks see the sums without waiting: the test above can fail. */
static void moved_before_wait(struct ranks_self *self, void *argument)
{
    (void)argument;
    float *values = filled(self);
    struct dpb_coll coll = sum_of(values, 0);
    dpb_request *request;
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_OK);
    while (self->ops->test(self->comm, request) == DPB_PENDING)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 100000);
    for (int i = 0; i < COUNT; i++)
        RANK_EQUAL(values[i], triangle(self));
    RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_OK);
}

static void test_moved_before_wait(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, moved_before_wait, NULL), 0);
}

/* run() comes after what was started, and executes that too. */
static void run_drains(struct ranks_self *self, void *argument)
{
    (void)argument;
    float *values = filled(self);
    for (int round = 0; round < 2000; round++) {
        dpb_request *request;
        struct dpb_coll started = sum_of(values, 0), run = sum_of(values, 1);
        for (int i = 0; i < COUNT; i += 64)
            values[i] = (float)(self->config.rank + 1);
        RANK_EQUAL(self->ops->start(self->comm, &started, NULL, &request), DPB_OK);
        RANK_EQUAL(dpb_comm_run(self->comm, &run, NULL), DPB_OK);
        for (int i = 0; i < COUNT; i += 64)
            RANK_EQUAL(values[i], triangle(self) * (float)self->config.size);
        RANK_EQUAL(self->ops->test(self->comm, request), DPB_OK);
        RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_OK);
        for (int i = 0; i < COUNT; i++)
            values[i] = 0;
    }
}

static void test_run_drains(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .progress = DPB_COMM_SHM_NONE};
    assert_int_equal(ranks_run(&plan, run_drains, NULL), 0);
}

/* What is in flight when a rank closes is carried through; a failure is the same as with a thread.
 */
static void closes(struct ranks_self *self, void *argument)
{
    _Atomic int *sums = argument;
    float *values = filled(self);
    dpb_request *request;
    struct dpb_coll coll = sum_of(values, 0);
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_OK);
    if (self->config.rank == 1)
        return;
    RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_OK);
    *sums = (int)values[0];
}

static void fails(struct ranks_self *self, void *argument)
{
    (void)argument;
    float *values = filled(self);
    dpb_request *request;
    struct dpb_coll coll = sum_of(values, 0);
    coll.count -= self->config.rank;
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_OK);
    RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_ERR_MISMATCH);
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_ERR_MISMATCH);
    RANK_EQUAL(dpb_comm_run(self->comm, &coll, NULL), DPB_ERR_MISMATCH);
}

static void test_ends(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .progress = DPB_COMM_SHM_NONE};
    _Atomic int *sums = ranks_shared(sizeof(int));
    assert_int_equal(ranks_run(&plan, closes, (void *)sums), 0);
    assert_int_equal(*sums, 3);
    assert_int_equal(ranks_run(&plan, fails, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_untouched_until_wait),
            cmocka_unit_test(test_moved_before_wait),
            cmocka_unit_test(test_run_drains),
            cmocka_unit_test(test_ends),
    };
    return DPB_RUN_TESTS(tests);
}
