/* Nobody hangs: ranks that are missing, stopped, dead, give up, end early, or mean something else.
 */
#include "dpb_test.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "ranks.h"

/* Long enough for all to come to a call on a busy machine, but for those who are to be missed. */
#define SHORT_NS ((int64_t)1000 * 1000000)

static struct dpb_coll sum_of(void *buffer, int64_t count, int tag)
{
    return (struct dpb_coll){.kind = DPB_COLL_ALL_REDUCE,
                             .dtype = DPB_F32,
                             .buffer = buffer,
                             .count = count,
                             .scale = 1,
                             .tag = tag};
}

static void *some_buffer(struct ranks_self *self)
{
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 65536, &buffer), DPB_OK);
    return buffer;
}

/* After a failure every further call ends with the same status, at once. */
static void check_stays_failed(struct ranks_self *self, void *buffer, dpb_status st)
{
    struct dpb_coll coll = sum_of(buffer, 8, 9);
    dpb_request *request;
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), st);
    RANK_EQUAL(self->ops->barrier(self->comm), st);
    RANK_EQUAL(self->ops->barrier(self->comm), st);
}

/* ---- open ---- */

static void open_without_0_and_3(struct ranks_self *self, void *argument)
{
    (void)argument;
    if (self->config.rank == 0 || self->config.rank == 3)
        return;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_TIMEOUT);
    RANK_CHECK(self->comm == NULL);
    RANK_CHECK(ranks_logged(self, "open #1 timed out after 1s: ranks 0 and 3 did not come "
                                  "(never seen)"));
}

static void test_missing_at_open(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4, .timeout_ns = SHORT_NS, .no_open = true};
    assert_int_equal(ranks_run(&plan, open_without_0_and_3, NULL), 0);
}

static void open_with_other_options(struct ranks_self *self, void *argument)
{
    (void)argument;
    if (self->config.rank == 1)
        self->options.algorithm = DPB_ALGORITHM_RING;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "algorithm ring"));
    RANK_CHECK(ranks_logged(self, "algorithm direct"));
}

static void open_with_other_size(struct ranks_self *self, void *argument)
{
    (void)argument;
    if (self->config.rank == 1)
        self->config.size = 3;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "another rank was told"));
}

static void open_same_rank_twice(struct ranks_self *self, void *argument)
{
    (void)argument;
    self->config.rank = 0;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "rank 0 is in use by process"));
}

static void open_badly(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_comm_config bad = self->config;
    bad.rank = 1;
    RANK_EQUAL(self->ops->open(&bad, &self->comm), DPB_ERR_USAGE);
    bad = self->config;
    bad.size = 65;
    RANK_EQUAL(self->ops->open(&bad, &self->comm), DPB_ERR_USAGE);
    bad = self->config;
    bad.timeout_ns = 0;
    RANK_EQUAL(self->ops->open(&bad, &self->comm), DPB_ERR_USAGE);
    bad = self->config;
    bad.segment_fd = -1;
    RANK_EQUAL(self->ops->open(&bad, &self->comm), DPB_ERR_USAGE);
    bad.segment_fd = 1000000;
    RANK_EQUAL(self->ops->open(&bad, &self->comm), DPB_ERR_IO);
    RANK_CHECK(self->comm == NULL);
    /* A segment serves once. */
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_OK);
    self->ops->close(self->comm);
    self->comm = NULL;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_MISMATCH);
    self->ops->close(NULL);
}

static void test_open_disagrees(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .no_open = true};
    assert_int_equal(ranks_run(&plan, open_with_other_options, NULL), 0);
    plan.ranks = 2;
    assert_int_equal(ranks_run(&plan, open_with_other_size, NULL), 0);
    assert_int_equal(ranks_run(&plan, open_same_rank_twice, NULL), 0);
    plan.ranks = 1;
    assert_int_equal(ranks_run(&plan, open_badly, NULL), 0);
}

/* ---- disagreement ---- */

static const struct mismatch {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int64_t count;
    int root;
    float scale;
    int shift; /* elements */
    const char *said;
} mismatches[] = {
        {DPB_COLL_ALL_REDUCE, DPB_F32, 999, 0, 1, 0, "rank 2: all-reduce of 999 fp32, scale 1"},
        {DPB_COLL_ALL_REDUCE, DPB_I32, 1000, 0, 1, 0, "rank 2: all-reduce of 1000 int32"},
        {DPB_COLL_REDUCE_SCATTER, DPB_F32, 1000, 0, 1, 0, "rank 2: reduce-scatter of 1000 fp32"},
        {DPB_COLL_ALL_REDUCE, DPB_F32, 1000, 0, 0.5f, 0, "fp32, scale 0.5"},
        {DPB_COLL_ALL_REDUCE, DPB_F32, 1000, 0, 1, 1, "buffer 0 + 4 bytes"},
        {DPB_COLL_BROADCAST, DPB_F32, 1000, 1, 0, 0, "rank 2: broadcast of 1000 fp32, root 1"},
        {DPB_COLL_REDUCE, DPB_F32, 1000, 1, 2, 0, "rank 2: reduce of 1000 fp32, root 1, scale 2"},
        {DPB_COLL_ALL_TO_ALL, DPB_F32, 999, 0, 1, 0, "rank 2: all-to-all of 999 fp32, buffer"},
};

static void disagree(struct ranks_self *self, void *argument)
{
    const struct mismatch *other = argument;
    float *buffer = some_buffer(self);
    struct dpb_coll coll = sum_of(buffer, 1000, 3);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    if (self->config.rank == 2)
        coll = (struct dpb_coll){other->kind,
                                 other->dtype,
                                 buffer + other->shift,
                                 other->count,
                                 other->root,
                                 other->scale,
                                 3};
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "#2 (bucket 3)"));
    RANK_CHECK(ranks_logged(self, "ranks disagree: rank 0: all-reduce of 1000 fp32, scale 1, "
                                  "buffer 0 + 0 bytes; rank 2: "));
    RANK_CHECK(ranks_logged(self, other->said));
    check_stays_failed(self, buffer, DPB_ERR_MISMATCH);
}

static void test_collectives_disagree(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (size_t i = 0; i < sizeof(mismatches) / sizeof(mismatches[0]); i++) {
            struct ranks_plan plan = {.ranks = 3, .algorithm = (enum dpb_algorithm)algorithm};
            struct mismatch other = mismatches[i];
            if (!ranks_can(&plan, other.kind))
                continue;
            assert_int_equal(ranks_run(&plan, disagree, &other), 0);
        }
}

/* Roots differ: both are broadcasts. */
static void disagree_root(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_coll coll = sum_of(some_buffer(self), 10, -1);
    coll.kind = DPB_COLL_BROADCAST;
    coll.root = self->config.rank;
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "broadcast #1: ranks disagree: rank 0: broadcast of 10 fp32, "
                                  "root 0"));
}

static void disagree_call(struct ranks_self *self, void *argument)
{
    (void)argument;
    char data[8] = "";
    char all[24];
    dpb_status st = self->config.rank == 0 ? self->ops->barrier(self->comm)
                                           : self->ops->exchange(self->comm, data, 8, all);
    RANK_EQUAL(st, DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "ranks disagree"));
    RANK_CHECK(ranks_logged(self, "barrier of 0 bytes"));
}

static void disagree_bytes(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer = NULL;
    size_t bytes = self->config.rank == 0 ? 4096 : 8192;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, bytes, &buffer), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "8192 bytes"));
    RANK_CHECK(buffer == NULL);
}

static void test_calls_disagree(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3};
    assert_int_equal(ranks_run(&plan, disagree_root, NULL), 0);
    assert_int_equal(ranks_run(&plan, disagree_call, NULL), 0);
    assert_int_equal(ranks_run(&plan, disagree_bytes, NULL), 0);
}

/* ---- who does not come ---- */

struct stopped {
    _Atomic pid_t pid;
    _Atomic bool is_awake;
};

/* Rank 1 stops, dead or merely stopped, before collective 3; what the others say. */
static void stop_one(struct ranks_self *self, void *argument)
{
    struct stopped *stopped = argument;
    void *buffer = some_buffer(self);
    struct dpb_coll coll = sum_of(buffer, 1000, 5);
    for (int k = 0; k < 2; k++)
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    if (self->config.rank == 1) {
        stopped->pid = getpid();
        kill(getpid(), SIGSTOP);
        stopped->is_awake = true;
        /* Woken up much later: it learns what happened meanwhile. */
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_TIMEOUT);
        return;
    }
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "all-reduce #3 (bucket 5) timed out after 1s: rank 1 did not "
                                  "come (last seen at collective #2)"));
    check_stays_failed(self, buffer, DPB_ERR_TIMEOUT);
    while (self->config.rank == 0 && !stopped->is_awake) { /* it may stop later than it says */
        if (stopped->pid != 0)
            kill(stopped->pid, SIGCONT);
        usleep(1000);
    }
}

static void test_stopped_rank(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++) {
        struct ranks_plan plan = {
                .ranks = 3, .algorithm = (enum dpb_algorithm)algorithm, .timeout_ns = SHORT_NS};
        assert_int_equal(ranks_run(&plan, stop_one, ranks_shared(sizeof(struct stopped))), 0);
    }
}

/* Rank 2 ends like a crash, without closing: it cannot tell anybody. */
static void die(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_coll coll = sum_of(some_buffer(self), 1000, -1);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    if (self->config.rank == 2)
        _exit(0);
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, " timed out after 1s: rank 2 did not come (last seen at call"));
    /* who found out says where to look */
    if (!strstr(self->log, " failed: "))
        RANK_CHECK(ranks_logged(self, "hint: look at process"));
}

static void test_dead_rank(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .timeout_ns = SHORT_NS};
    assert_int_equal(ranks_run(&plan, die, NULL), 0);
}

/* Two ranks do not start the second collective; the next thing they try tells them. */
static void two_missing(struct ranks_self *self, void *argument)
{
    _Atomic int *failed = argument;
    struct dpb_coll coll = sum_of(some_buffer(self), 10, -1);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    if (self->config.rank >= 2) {
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_TIMEOUT);
        RANK_CHECK(ranks_logged(self, "all-reduce #2 timed out after 1s: ranks 0 and 1 did not "
                                      "come (last seen at collective #1)"));
        atomic_fetch_add(failed, 1);
        return;
    }
    while (atomic_load(failed) < 2)
        usleep(1000);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_TIMEOUT);
}

static void test_two_missing(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4, .timeout_ns = SHORT_NS};
    assert_int_equal(ranks_run(&plan, two_missing, ranks_shared(sizeof(int))), 0);
}

/* A rank that closes is missed at once: this would wait for 60 s otherwise. */
static void end_early(struct ranks_self *self, void *argument)
{
    struct dpb_coll coll = sum_of(some_buffer(self), 10, 4);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    if (self->config.rank == 0) {
        usleep(*(const useconds_t *)argument);
        return;
    }
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "all-reduce #2 (bucket 4) cannot complete: rank 0 ended before "
                                  "it (last seen at collective #1)"));
}

static void end_early_call(struct ranks_self *self, void *argument)
{
    if (self->config.rank == 1) {
        usleep(*(const useconds_t *)argument);
        return;
    }
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "rank 1 ended before it"));
}

static void test_early_end(void **state)
{
    (void)state;
    /* before the others look, and when they are asleep */
    useconds_t pauses[] = {0, 100000};
    for (int i = 0; i < 2; i++) {
        struct ranks_plan plan = {.ranks = 3};
        assert_int_equal(ranks_run(&plan, end_early, &pauses[i]), 0);
        assert_int_equal(ranks_run(&plan, end_early_call, &pauses[i]), 0);
    }
}

/* ---- abort ---- */

/* Rank 1 gives up while rank 0 waits for a collective, the others in a barrier. */
static void give_up(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer = some_buffer(self);
    struct dpb_coll coll = sum_of(buffer, 10, 4);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
    dpb_request *request;
    if (self->config.rank == 1) {
        RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_OK);
        usleep(50000);
        self->ops->abort(self->comm, "the loss is not a number");
        RANK_EQUAL(self->ops->wait(self->comm, request, NULL, NULL), DPB_ERR_RANK_FAILED);
    } else if (self->config.rank == 0) {
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_RANK_FAILED);
    } else {
        RANK_EQUAL(self->ops->barrier(self->comm), DPB_ERR_RANK_FAILED);
    }
    RANK_CHECK(ranks_logged(self, "rank 1 gave up: the loss is not a number"));
    if (self->config.rank != 1)
        RANK_CHECK(ranks_logged(self, " failed: rank 1 gave up: "));
    check_stays_failed(self, buffer, DPB_ERR_RANK_FAILED);
    /* told once */
    char *first = strstr(self->log, "gave up");
    RANK_CHECK(first && !strstr(first + 1, "gave up"));
}

/* Asleep on the emulated link: 30 s for 10 numbers, and an abort that does not wait for it. */
static void give_up_on_link(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_coll coll = sum_of(some_buffer(self), 10, 4);
    dpb_request *request;
    dpb_status st = self->ops->start(self->comm, &coll, NULL, &request);
    if (self->config.rank == 1) {
        RANK_EQUAL(st, DPB_OK);
        usleep(50000);
        self->ops->abort(self->comm, NULL);
    }
    if (st == DPB_OK) /* else rank 0 was so late that it is told already */
        st = self->ops->wait(self->comm, request, NULL, NULL);
    RANK_EQUAL(st, DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "rank 1 gave up: no reason given"));
}

static void too_slow_link(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_coll coll = sum_of(some_buffer(self), 10, 4);
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "on the emulated link, longer than the time-out of 1s"));
}

static void test_abort(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++) {
        struct ranks_plan plan = {.ranks = 4, .algorithm = (enum dpb_algorithm)algorithm};
        assert_int_equal(ranks_run(&plan, give_up, NULL), 0);
    }
    struct ranks_plan plan = {.ranks = 2, .link = {1e9, (int64_t)15 * 1000000000}};
    assert_int_equal(ranks_run(&plan, give_up_on_link, NULL), 0);
    plan.timeout_ns = SHORT_NS;
    assert_int_equal(ranks_run(&plan, too_slow_link, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_missing_at_open),
            cmocka_unit_test(test_open_disagrees),
            cmocka_unit_test(test_collectives_disagree),
            cmocka_unit_test(test_calls_disagree),
            cmocka_unit_test(test_stopped_rank),
            cmocka_unit_test(test_dead_rank),
            cmocka_unit_test(test_two_missing),
            cmocka_unit_test(test_early_end),
            cmocka_unit_test(test_abort),
    };
    return DPB_RUN_TESTS(tests);
}
