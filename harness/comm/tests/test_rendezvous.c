/* Ranks of one machine meet, and nobody hangs: late, missing, dead, ended and failing ranks. */
#include "dpb_test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"
#include "rendezvous.h"

#define SHORT_NS ((int64_t)400 * 1000000)

static struct dpb_rendezvous_config config_of(const struct ranks_self *self)
{
    return (struct dpb_rendezvous_config){.owner = "comm \"test\"",
                                          .rank = self->config.rank,
                                          .size = self->config.size,
                                          .segment_fd = self->config.segment_fd,
                                          .timeout_ns = self->config.timeout_ns};
}

static dpb_rendezvous *meet(const struct ranks_self *self)
{
    const struct dpb_rendezvous_config config = config_of(self);
    dpb_rendezvous *rendezvous;
    RANK_EQUAL(dpb_rendezvous_open(&config, &rendezvous), DPB_OK);
    return rendezvous;
}

static void sleep_ms(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- what it is for ---- */

static void exchange_often(struct ranks_self *self, void *argument)
{
    (void)argument;
    const int rank = self->config.rank;
    const int size = self->config.size;
    dpb_rendezvous *rendezvous = meet(self);
    for (int i = 0; i < 200; i++) {
        int32_t mine[3] = {rank, i, rank * i};
        int32_t all[DPB_COMM_RANKS_MAX][3];
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "numbers", mine, sizeof(mine), all), DPB_OK);
        for (int r = 0; r < size; r++) {
            RANK_EQUAL(all[r][0], r);
            RANK_EQUAL(all[r][1], i);
            RANK_EQUAL(all[r][2], r * i);
        }
        if (i % 7 == 0)
            RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    }
    dpb_rendezvous_note(rendezvous, (uint64_t)rank + 10, (uint64_t)rank + 5);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    uint64_t started[DPB_COMM_RANKS_MAX];
    uint64_t done[DPB_COMM_RANKS_MAX];
    int32_t pid[DPB_COMM_RANKS_MAX];
    dpb_rendezvous_notes(rendezvous, started, done);
    dpb_rendezvous_pids(rendezvous, pid);
    for (int r = 0; r < size; r++) {
        RANK_EQUAL(started[r], r + 10);
        RANK_EQUAL(done[r], r + 5);
        RANK_CHECK(pid[r] > 0);
    }
    RANK_EQUAL(pid[rank], getpid());
    dpb_rendezvous_close(rendezvous);
}

static void test_exchange(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        struct ranks_plan plan = {.ranks = ranks, .no_open = true};
        assert_int_equal(ranks_run(&plan, exchange_often, NULL), 0);
    }
}

/* The ranks leave a barrier only when the last has come to it. */
static void come_late(struct ranks_self *self, void *argument)
{
    _Atomic int *came = argument;
    dpb_rendezvous *rendezvous = meet(self);
    if (self->config.rank == 2)
        sleep_ms(150);
    atomic_fetch_add(came, 1);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    RANK_EQUAL(atomic_load(came), self->config.size);
    dpb_rendezvous_close(rendezvous);
}

static void test_late(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4, .no_open = true};
    assert_int_equal(ranks_run(&plan, come_late, ranks_shared(sizeof(int))), 0);
}

static void exchange_too_much(struct ranks_self *self, void *argument)
{
    (void)argument;
    char mine[DPB_COMM_EXCHANGE_BYTES + 1] = {0};
    static char all[2 * DPB_COMM_EXCHANGE_BYTES];
    dpb_rendezvous *rendezvous = meet(self);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "all", mine, sizeof(mine), all), DPB_ERR_USAGE);
    mine[DPB_COMM_EXCHANGE_BYTES - 1] = (char)(self->config.rank + 1);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "all", mine, sizeof(mine) - 1, all), DPB_OK);
    RANK_EQUAL(all[DPB_COMM_EXCHANGE_BYTES - 1], 1);
    RANK_EQUAL(all[sizeof(all) - 1], 2);
    dpb_rendezvous_close(rendezvous);
}

static void test_sizes(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .no_open = true};
    assert_int_equal(ranks_run(&plan, exchange_too_much, NULL), 0);
}

/* ---- opening ---- */

static void open_without_0_and_3(struct ranks_self *self, void *argument)
{
    (void)argument;
    const struct dpb_rendezvous_config config = config_of(self);
    dpb_rendezvous *rendezvous = NULL;
    if (self->config.rank == 0 || self->config.rank == 3)
        return;
    RANK_EQUAL(dpb_rendezvous_open(&config, &rendezvous), DPB_ERR_TIMEOUT);
    RANK_CHECK(rendezvous == NULL);
    RANK_CHECK(ranks_logged(self, "open #1 timed out after 400ms: ranks 0 and 3 did not come "
                                  "(never seen)"));
    if (!strstr(self->log, "failed: rank")) /* of those that noticed themselves */
        RANK_CHECK(ranks_logged(self, "were they started? --timeout"));
}

static void open_with_other_size(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_rendezvous_config config = config_of(self);
    dpb_rendezvous *rendezvous;
    if (config.rank == 1)
        config.size = 3;
    RANK_EQUAL(dpb_rendezvous_open(&config, &rendezvous), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "another rank was told"));
}

static void open_same_rank_twice(struct ranks_self *self, void *argument)
{
    (void)argument;
    struct dpb_rendezvous_config config = config_of(self);
    dpb_rendezvous *rendezvous;
    config.rank = 0;
    RANK_EQUAL(dpb_rendezvous_open(&config, &rendezvous), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "rank 0 is in use by process"));
}

static void open_badly(struct ranks_self *self, void *argument)
{
    (void)argument;
    const struct dpb_rendezvous_config good = config_of(self);
    struct dpb_rendezvous_config bad = good;
    dpb_rendezvous *rendezvous = NULL;
    bad.rank = 1;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    bad = good;
    bad.size = 65;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    bad = good;
    bad.timeout_ns = 0;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    bad = good;
    bad.segment_fd = -1;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "cannot open comm \"test\": no shared segment"));
    bad.segment_fd = 1000000;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_IO);
    RANK_CHECK(rendezvous == NULL);
    /* A segment serves once. */
    RANK_EQUAL(dpb_rendezvous_open(&good, &rendezvous), DPB_OK);
    dpb_rendezvous_close(rendezvous);
    RANK_EQUAL(dpb_rendezvous_open(&good, &rendezvous), DPB_ERR_MISMATCH);
    dpb_rendezvous_close(NULL);
}

static void test_open(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4, .no_open = true, .timeout_ns = SHORT_NS};
    assert_int_equal(ranks_run(&plan, open_without_0_and_3, NULL), 0);
    plan = (struct ranks_plan){.ranks = 2, .no_open = true};
    assert_int_equal(ranks_run(&plan, open_with_other_size, NULL), 0);
    assert_int_equal(ranks_run(&plan, open_same_rank_twice, NULL), 0);
    plan.ranks = 1;
    assert_int_equal(ranks_run(&plan, open_badly, NULL), 0);
}

/* ---- ranks that do not come ---- */

static void lose_rank_1(struct ranks_self *self, void *argument)
{
    (void)argument;
    const int rank = self->config.rank;
    char text[160];
    dpb_rendezvous *rendezvous = meet(self);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    if (rank == 1)
        _exit(0); /* without a word */
    int32_t pid[DPB_COMM_RANKS_MAX];
    dpb_rendezvous_pids(rendezvous, pid);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_ERR_TIMEOUT);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "barrier #3"));
    RANK_CHECK(ranks_logged(self, "timed out after 400ms: rank 1 did not come "
                                  "(last seen at call #2)"));
    snprintf(text, sizeof(text), "look at process %" PRId32 " (rank 1)", pid[1]);
    if (!strstr(self->log, "failed: rank")) /* of those that noticed themselves */
        RANK_CHECK(ranks_logged(self, text));
    dpb_rendezvous_close(rendezvous);
}

static void close_rank_2(struct ranks_self *self, void *argument)
{
    (void)argument;
    dpb_rendezvous *rendezvous = meet(self);
    if (self->config.rank != 2) {
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "unique id", NULL, 0, NULL),
                   DPB_ERR_RANK_FAILED);
        RANK_CHECK(ranks_logged(self, "rank 2 ended before it (last seen at call #1)"));
    }
    dpb_rendezvous_close(rendezvous);
}

static void disagree(struct ranks_self *self, void *argument)
{
    const bool about_name = argument != NULL;
    char all[2 * 8];
    dpb_rendezvous *rendezvous = meet(self);
    const bool odd = self->config.rank == 1;
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, about_name && odd ? "devices" : "options",
                                       "1234567", !about_name && odd ? 4 : 8, all),
               DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "ranks disagree"));
    RANK_CHECK(ranks_logged(self, about_name ? "devices of 8 bytes" : "options of 4 bytes"));
    dpb_rendezvous_close(rendezvous);
}

static void test_missing(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .no_open = true, .timeout_ns = SHORT_NS};
    assert_int_equal(ranks_run(&plan, lose_rank_1, NULL), 0);
    plan = (struct ranks_plan){.ranks = 3, .no_open = true};
    assert_int_equal(ranks_run(&plan, close_rank_2, NULL), 0);
    plan.ranks = 2;
    assert_int_equal(ranks_run(&plan, disagree, NULL), 0);
    assert_int_equal(ranks_run(&plan, disagree, &plan), 0);
}

/* ---- failures ---- */

static void give_up(struct ranks_self *self, void *argument)
{
    (void)argument;
    dpb_rendezvous *rendezvous = meet(self);
    if (self->config.rank == 1) {
        sleep_ms(50);
        RANK_EQUAL(dpb_rendezvous_fail(rendezvous, DPB_ERR_RANK_FAILED, "look at its disk",
                                       "rank %d gave up: %s", 1, "no disk"),
                   DPB_ERR_RANK_FAILED);
        RANK_CHECK(ranks_logged(self, "error: rank 1 gave up: no disk"));
        RANK_CHECK(ranks_logged(self, "hint: look at its disk"));
        /* The first one counts, and is logged once. */
        RANK_EQUAL(dpb_rendezvous_fail(rendezvous, DPB_ERR_IO, NULL, "another"),
                   DPB_ERR_RANK_FAILED);
        RANK_CHECK(strstr(self->log, "another") == NULL);
    } else {
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL),
                   DPB_ERR_RANK_FAILED);
        RANK_CHECK(ranks_logged(self, "barrier #2 failed: rank 1 gave up: no disk"));
    }
    RANK_EQUAL(dpb_rendezvous_check(rendezvous, "later"), DPB_ERR_RANK_FAILED);
    RANK_CHECK(strstr(self->log, "later") == NULL);
    dpb_rendezvous_close(rendezvous);
}

/* A rank that only looks sees it too. */
static void look_for_failure(struct ranks_self *self, void *argument)
{
    (void)argument;
    dpb_rendezvous *rendezvous = meet(self);
    if (self->config.rank == 0)
        dpb_rendezvous_fail(rendezvous, DPB_ERR_VENDOR, NULL, "rank 0: its library failed");
    while (dpb_rendezvous_check(rendezvous, "looking") == DPB_OK)
        sleep_ms(1);
    RANK_EQUAL(dpb_rendezvous_check(rendezvous, "looking"), DPB_ERR_VENDOR);
    if (self->config.rank != 0)
        RANK_CHECK(ranks_logged(self, "looking failed: rank 0: its library failed"));
    dpb_rendezvous_close(rendezvous);
}

static void test_failures(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 4, .no_open = true};
    assert_int_equal(ranks_run(&plan, give_up, NULL), 0);
    assert_int_equal(ranks_run(&plan, look_for_failure, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_exchange), cmocka_unit_test(test_late),
            cmocka_unit_test(test_sizes),    cmocka_unit_test(test_open),
            cmocka_unit_test(test_missing),  cmocka_unit_test(test_failures),
    };
    return DPB_RUN_TESTS(tests);
}
