/* dpb_comm_run(): the same results and the same order as start and wait, also mixed with them. */
#include "dpb_test.h"

#include <sched.h>

#include "ranks.h"
#include "shm_private.h"

enum {
    COUNT = 1000,
    ROUNDS = 3000 /* more than requests that can be started, so that their slots go round */
};

static struct dpb_coll sum_of(float *buffer)
{
    return (struct dpb_coll){.kind = DPB_COLL_ALL_REDUCE,
                             .dtype = DPB_F32,
                             .buffer = buffer,
                             .count = COUNT,
                             .scale = 1,
                             .tag = -1};
}

static float triangle(const struct ranks_self *self)
{
    return (float)(self->config.size * (self->config.size + 1) / 2);
}

static void fill(const struct ranks_self *self, float *values)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(self->config.rank + 1);
}

static void check(const float *values, float expected)
{
    for (int i = 0; i < COUNT; i++)
        RANK_EQUAL(values[i], expected);
}

/* A rank runs what another starts, and a run comes after all that were started. */
static void mixed(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 2 * COUNT * sizeof(float), &memory), DPB_OK);
    float *first = memory, *second = first + COUNT;
    struct dpb_coll started = sum_of(first), run = sum_of(second);
    for (int i = 0; i < ROUNDS; i++) {
        struct dpb_coll_times times = {0};
        dpb_request *request;
        fill(self, second);
        if ((i + self->config.rank) % 5 == 0) {
            RANK_EQUAL(self->ops->start(self->comm, &run, NULL, &request), DPB_OK);
            RANK_EQUAL(self->ops->wait(self->comm, request, NULL, &times), DPB_OK);
        } else {
            RANK_EQUAL(dpb_comm_run(self->comm, &run, &times), DPB_OK);
        }
        check(second, triangle(self));
        RANK_CHECK(times.end_ns >= times.all_ready_ns);
        if (i % 50 != 0)
            continue;
        fill(self, first);
        RANK_EQUAL(self->ops->start(self->comm, &started, NULL, &request), DPB_OK);
        RANK_EQUAL(dpb_comm_run(self->comm, &started, NULL), DPB_OK);
        RANK_EQUAL(self->ops->test(self->comm, request), DPB_OK);
        check(first, triangle(self) * (float)self->config.size);
        RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_OK);
    }
    RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_OK);
}

static void test_mixed(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        struct ranks_plan plan = {.ranks = ranks};
        assert_int_equal(ranks_run(&plan, mixed, NULL), 0);
    }
}

/* Ranks that know that they share a core offer it to each other at once; who may run on several
 * knows of nobody. */
static void on_one_core(struct ranks_self *self, void *argument)
{
    cpu_set_t all, first;
    RANK_EQUAL(sched_getaffinity(0, sizeof(all), &all), 0);
    const bool free_rank = self->config.rank == 2 && CPU_COUNT(&all) > 1;
    CPU_ZERO(&first);
    for (int core = 0; CPU_COUNT(&first) == 0; core++)
        if (CPU_ISSET(core, &all))
            CPU_SET(core, &first);
    if (!free_rank)
        RANK_EQUAL(sched_setaffinity(0, sizeof(first), &first), 0);
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_OK);
    const uint64_t bound = CPU_COUNT(&all) > 1 ? 3 : 7;
    RANK_EQUAL(dpb_shm_of(self->comm)->neighbours,
               free_rank ? 0 : bound & ~((uint64_t)1 << self->config.rank));
    mixed(self, argument);
}

static void test_on_one_core(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .no_open = true};
    assert_int_equal(ranks_run(&plan, on_one_core, NULL), 0);
}

static void misused(struct ranks_self *self, void *argument)
{
    (void)argument;
    float outside[COUNT];
    struct dpb_coll run = sum_of(outside);
    RANK_EQUAL(dpb_comm_run(self->comm, &run, NULL), DPB_ERR_USAGE);
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, sizeof(outside), &memory), DPB_OK);
    run.buffer = memory;
    fill(self, memory);
    RANK_EQUAL(dpb_comm_run(self->comm, &run, NULL), DPB_OK);
    check(memory, triangle(self));
}

static void test_misuse_ends_nothing(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, misused, NULL), 0);
}

/* Rank 1 gives up: the others are told so, by this call and the next. */
static void abandoned(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, COUNT * sizeof(float), &memory), DPB_OK);
    struct dpb_coll run = sum_of(memory);
    if (self->config.rank == 1) {
        self->ops->abort(self->comm, "tired");
        return;
    }
    RANK_EQUAL(dpb_comm_run(self->comm, &run, NULL), DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "tired"));
    RANK_EQUAL(dpb_comm_run(self->comm, &run, NULL), DPB_ERR_RANK_FAILED);
}

static void test_failure_of_a_peer(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3};
    assert_int_equal(ranks_run(&plan, abandoned, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_mixed),
            cmocka_unit_test(test_on_one_core),
            cmocka_unit_test(test_misuse_ends_nothing),
            cmocka_unit_test(test_failure_of_a_peer),
    };
    return DPB_RUN_TESTS(tests);
}
