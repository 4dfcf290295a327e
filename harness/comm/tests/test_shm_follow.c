/* Who is named when a schedule does not go on: the rank that could and does not, not those that
 * wait for it. In one process: how far the ranks are is written into the segment by hand. */
#include "dpb_test.h"

#include <stdlib.h>

#include "../shm/shm_private.h"
#include "dpb_clock.h"
#include "dpb_log.h"

#define RANKS   4
#define EARLIER 10 /* ticks of collectives before this one */

static char logged[4096];

static void keep(void *context, enum dpb_log_level level, const char *line)
{
    (void)context, (void)level;
    snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

/* Rank 0 waits for what its next step needs, with a deadline that is over. */
static void follow(enum dpb_algorithm algorithm, enum dpb_coll_kind kind, int root,
                   const uint64_t ticks[RANKS], const char *expected)
{
    size_t bytes = sizeof(struct dpb_shm_control);
    struct dpb_shm_control *control = aligned_alloc(DPB_SHARED_LINE, bytes);
    struct dpb_shm_comm *comm = aligned_alloc(DPB_SHARED_LINE, sizeof(*comm));
    assert_true(control && comm);
    memset(control, 0, bytes);
    memset(comm, 0, sizeof(*comm));
    comm->base.size = RANKS;
    comm->setup = (struct dpb_algorithm_setup){.algorithm = algorithm, .ranks = RANKS};
    comm->timeout_ns = 1000000;
    comm->control = control;
    comm->self = &control->rank[0];
    comm->ticks_base = EARLIER;
    pthread_mutex_init(&comm->fail_lock, NULL);
    for (int r = 0; r < RANKS; r++) {
        dpb_shared_word_advance(&control->rank[r].ticks, EARLIER + ticks[r]);
        control->rank[r].ready = 7;
    }
    struct dpb_schedule schedule;
    struct dpb_schedule_step step;
    dpb_schedule_init(&schedule, &comm->setup, kind, 0, root, 100, 4);
    dpb_schedule_step(&schedule, (int64_t)(ticks[0] / 2), &step);
    assert_true(step.from >= 0);

    const struct dpb_shm_subject subject = {dpb_coll_text(kind), "collective", 7, -1};
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    dpb_status st =
            dpb_shm_follow(comm, step.from, ticks[0], &schedule, &subject, dpb_clock_now_ns() - 1);
    dpb_log_set_sink(NULL, NULL);
    if (expected) {
        assert_int_equal(st, DPB_ERR_TIMEOUT);
        if (!strstr(logged, expected))
            fail_msg("\"%s\" is not in: %s", expected, logged);
    } else {
        assert_int_equal(st, DPB_OK);
        assert_string_equal(logged, "");
    }
    pthread_mutex_destroy(&comm->fail_lock);
    free(comm);
    free(control);
}

static void test_ring(void **state)
{
    (void)state;
    /* Rank 2 has not begun: 3 waits for it, 0 for 3, and 1 for 0. */
    follow(DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 0, (const uint64_t[]){4, 6, 0, 2},
           ": rank 2 did not go on (last seen at collective #7)");
    /* What it needs is there. */
    follow(DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 0, (const uint64_t[]){4, 6, 4, 4}, NULL);
}

static void test_broadcast(void **state)
{
    (void)state;
    /* From rank 1, which has not begun; rank 0 is the last to get it, from rank 2. */
    follow(DPB_ALGORITHM_DIRECT, DPB_COLL_BROADCAST, 1, (const uint64_t[]){2, 0, 0, 2},
           ": ranks 1 and 2 did not go on");
    /* The root and rank 3 are through, and rank 2 does not take what is there. */
    follow(DPB_ALGORITHM_DIRECT, DPB_COLL_BROADCAST, 1, (const uint64_t[]){2, 4, 0, 4},
           ": rank 2 did not go on");
}

static void test_exchange(void **state)
{
    (void)state;
    /* Between ticks: rank 0 has made its half of round 0, rank 1 has not. */
    follow(DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 0, (const uint64_t[]){1, 0, 2, 2},
           "rank 1 did not go on");
    follow(DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 0, (const uint64_t[]){1, 1, 2, 2},
           NULL);
    /* In round 1 it needs rank 2, which needs rank 3. */
    follow(DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 0, (const uint64_t[]){2, 2, 1, 0},
           "rank 3 did not go on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_ring),
            cmocka_unit_test(test_broadcast),
            cmocka_unit_test(test_exchange),
    };
    return DPB_RUN_TESTS(tests);
}
