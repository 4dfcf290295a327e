/* The emulated link: a virtual clock that all ranks compute alike. Only lower bounds on time. */
#include "dpb_test.h"

#include "dpb_clock.h"
#include "ranks.h"

#define MANY 20

static int64_t most(const int64_t *values, int count)
{
    int64_t max = values[0];
    for (int i = 1; i < count; i++)
        max = values[i] > max ? values[i] : max;
    return max;
}

/* Collectives of several sizes, started at once, by ranks that come at different times. */
static void timeline(struct ranks_self *self, void *argument)
{
    (void)argument;
    int rank = self->config.rank;
    int ranks = self->config.size;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 1 << 20, &memory), DPB_OK);
    dpb_request *request[MANY];
    int64_t before_ns[MANY];
    int64_t after_ns[MANY];
    int64_t wire_ns[MANY];
    for (int k = 0; k < MANY; k++) {
        enum dpb_coll_kind kind = (enum dpb_coll_kind)(k % DPB_COLL_COUNT);
        struct dpb_coll coll = {.kind = ranks_can(self->plan, kind) ? kind : DPB_COLL_ALL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = (float *)memory + k * 4096,
                                .count = ranks * (1 + k * 200 / ranks),
                                .scale = 1,
                                .root = k % ranks,
                                .tag = k};
        wire_ns[k] = self->ops->wire_ns(self->comm, coll.kind, coll.count * 4);
        RANK_EQUAL(wire_ns[k], dpb_link_wire_ns(&self->plan->link, self->plan->algorithm, coll.kind,
                                                ranks, coll.count * 4));
        if (k % ranks == rank)
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 300000);
        before_ns[k] = dpb_clock_now_ns();
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request[k]), DPB_OK);
        after_ns[k] = dpb_clock_now_ns();
    }
    int64_t link_free_ns = 0;
    for (int k = 0; k < MANY; k++) {
        struct dpb_coll_times times;
        RANK_EQUAL(self->ops->wait(self->comm, request[k], NULL, &times), DPB_OK);
        RANK_CHECK(times.start_ns <= times.all_ready_ns);
        RANK_CHECK(times.start_ns >= before_ns[k]);
        RANK_CHECK(times.end_ns >= times.all_ready_ns + wire_ns[k]);
        /* one at a time */
        RANK_CHECK(times.all_ready_ns >= link_free_ns);
        /* the same virtual start on all ranks, hence the same virtual end */
        const int64_t mine[3] = {times.all_ready_ns, before_ns[k], after_ns[k]};
        int64_t all[DPB_COMM_RANKS_MAX][3];
        RANK_EQUAL(self->ops->exchange(self->comm, mine, sizeof(mine), all), DPB_OK);
        int64_t before[DPB_COMM_RANKS_MAX] = {0};
        int64_t after[DPB_COMM_RANKS_MAX] = {0};
        for (int r = 0; r < ranks; r++) {
            RANK_EQUAL(all[r][0], times.all_ready_ns);
            before[r] = all[r][1];
            after[r] = all[r][2];
        }
        /* not before the last rank called start(), and then at once unless the link was busy */
        RANK_CHECK(times.all_ready_ns >= most(before, ranks));
        RANK_CHECK(times.all_ready_ns <= most(after, ranks) || times.all_ready_ns == link_free_ns);
        link_free_ns = times.all_ready_ns + wire_ns[k];
    }
    struct dpb_comm_stats stats;
    self->ops->stats(self->comm, &stats);
    RANK_EQUAL(stats.collectives, MANY);
    /* Each one either slept until its end or was late for it. */
    RANK_EQUAL(stats.wakeups + stats.link_late, ranks == 1 ? 0 : MANY);
    RANK_CHECK(stats.wake_late_p50_ns <= stats.wake_late_p99_ns);
    RANK_CHECK(stats.wake_late_p99_ns <= stats.wake_late_max_ns);
    RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_OK);
}

static void test_timeline(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 6};
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct ranks_plan plan = {.ranks = sizes[i],
                                      .algorithm = (enum dpb_algorithm)algorithm,
                                      .link = {25e6, 200000}};
            assert_int_equal(ranks_run(&plan, timeline, NULL), 0);
        }
}

/* The data is right, too, and a wire of no length makes everything late, not wrong. */
static void instant(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 1 << 16, &memory), DPB_OK);
    float *values = memory;
    int64_t link_free_ns = 0;
    for (int k = 0; k < 10; k++) {
        for (int i = 0; i < 10000; i++)
            values[i] = (float)(self->config.rank + 1 + i);
        struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = memory,
                                .count = 10000,
                                .scale = 1};
        struct dpb_coll_times times;
        RANK_EQUAL(ranks_collective(self, &coll, &times), DPB_OK);
        for (int i = 0; i < 10000; i++)
            RANK_EQUAL(values[i], 3 + 2 * i);
        RANK_CHECK(times.all_ready_ns >= link_free_ns);
        link_free_ns = times.all_ready_ns + 1;
    }
    struct dpb_comm_stats stats;
    self->ops->stats(self->comm, &stats);
    RANK_EQUAL(stats.link_late, 10);
    RANK_EQUAL(stats.wakeups, 0);
}

static void test_late_for_the_link(void **state)
{
    (void)state;
    /* 40000 bytes in 1 ns (rounded): no memory is so fast. */
    struct ranks_plan plan = {.ranks = 2, .link = {4e13, 0}};
    assert_int_equal(ranks_run(&plan, instant, NULL), 0);
}

/* Between nodes --link, inside them --link-inside: the wire time that is told and that passes. */
static void on_nodes(struct ranks_self *self, void *argument)
{
    const int64_t *expected_ns = argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &memory), DPB_OK);
    RANK_EQUAL(self->ops->wire_ns(self->comm, DPB_COLL_ALL_REDUCE, 4000), *expected_ns);
    struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                            .dtype = DPB_F32,
                            .buffer = memory,
                            .count = 1000,
                            .scale = 1};
    struct dpb_coll_times times;
    RANK_EQUAL(ranks_collective(self, &coll, &times), DPB_OK);
    RANK_CHECK(times.end_ns - times.all_ready_ns >= *expected_ns);
    dpb_json *json = self->ops->describe(self->comm);
    RANK_EQUAL(dpb_json_as_int(dpb_json_get(json, "ranks_per_node"), 0), 2);
    bool has_inside = self->plan->link_inside.bw_bytes_per_s > 0;
    RANK_EQUAL(dpb_json_as_int(dpb_json_path(json, "link_inside/latency_ns"), -1),
               has_inside ? 1000 : -1);
    dpb_json_free(json);
}

static void test_link_inside(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4,
                              .ranks_per_node = 2,
                              .algorithm = DPB_ALGORITHM_HIERARCHICAL,
                              .link = {25e6, 200000},
                              .link_inside = {250e6, 1000}};
    /* 2 * 1 us + 4000 B at 250 B/us, 2 * 200 us + 2000 B at 25 B/us */
    int64_t expected_ns = 2000 + 16000 + 400000 + 80000;
    assert_int_equal(ranks_run(&plan, on_nodes, &expected_ns), 0);
    /* one link for both: 4 * 200 us + 6000 B */
    plan.link_inside.bw_bytes_per_s = 0;
    expected_ns = 800000 + 240000;
    assert_int_equal(ranks_run(&plan, on_nodes, &expected_ns), 0);
}

static void described(struct ranks_self *self, void *argument)
{
    (void)argument;
    bool emulated = self->plan->link.bw_bytes_per_s > 0;
    dpb_json *json = self->ops->describe(self->comm);
    RANK_EQUAL(strcmp(dpb_json_as_string(dpb_json_get(json, "name"), ""), "shm"), 0);
    RANK_EQUAL(strcmp(dpb_json_as_string(dpb_json_get(json, "algorithm"), ""), "ring"), 0);
    RANK_EQUAL(dpb_json_as_bool(dpb_json_get(json, "emulated"), !emulated), emulated);
    if (emulated) {
        RANK_CHECK(dpb_json_as_real(dpb_json_path(json, "link/bw_bytes_per_s"), 0) == 25e6);
        RANK_EQUAL(dpb_json_as_int(dpb_json_path(json, "link/latency_ns"), 0), 200000);
        /* The ranks' cores are for computing while the link is busy. */
        RANK_EQUAL(dpb_json_as_int(dpb_json_get(json, "spins"), -1), 0);
    } else {
        RANK_CHECK(dpb_json_type(dpb_json_get(json, "link")) == DPB_JSON_NULL);
        RANK_EQUAL(self->ops->wire_ns(self->comm, DPB_COLL_ALL_REDUCE, 1000), -1);
    }
    dpb_json_free(json);
}

static void test_describe(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .algorithm = DPB_ALGORITHM_RING, .link = {25e6, 200000}};
    assert_int_equal(ranks_run(&plan, described, NULL), 0);
    plan.link.bw_bytes_per_s = 0;
    assert_int_equal(ranks_run(&plan, described, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_timeline),
            cmocka_unit_test(test_late_for_the_link),
            cmocka_unit_test(test_link_inside),
            cmocka_unit_test(test_describe),
    };
    return DPB_RUN_TESTS(tests);
}
