/* Ranks meet, in a segment and over TCP, and nobody hangs: late, missing, dead, stopped, ended and
 * failing ranks. */
#include "dpb_test.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"
#include "rendezvous.h"

/* Long enough for all to come to a call on a busy machine, but for those who are to be missed. */
#define SHORT_NS ((int64_t)2000 * 1000000)

static struct dpb_rendezvous_config config_of(const struct ranks_self *self)
{
    return (struct dpb_rendezvous_config){.owner = "comm \"test\"",
                                          .rank = self->config.rank,
                                          .size = self->config.size,
                                          .segment_fd = self->config.segment_fd,
                                          .server = self->config.server,
                                          .timeout_ns = self->config.timeout_ns};
}

static dpb_rendezvous *meet(const struct ranks_self *self)
{
    const struct dpb_rendezvous_config config = config_of(self);
    dpb_rendezvous *rendezvous;
    RANK_EQUAL(dpb_rendezvous_open(&config, &rendezvous), DPB_OK);
    return rendezvous;
}

/* Run the body in ranks that meet in a segment, and in ranks that meet over TCP. */
static void run_both(struct ranks_plan plan, ranks_body body, void *argument)
{
    plan.no_open = true;
    for (int tcp = 0; tcp <= 1; tcp++) {
        plan.tcp = tcp != 0;
        if (ranks_run(&plan, body, argument) != 0)
            fail_msg("%s", tcp ? "over TCP" : "in a segment");
    }
}

/* "rank 1", and over TCP where it is. */
static const char *rank_text(const struct ranks_self *self, int rank)
{
    static char text[HOST_NAME_MAX + 32];
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof(host) - 1);
    if (self->plan->tcp)
        snprintf(text, sizeof(text), "rank %d (%.64s)", rank, host);
    else
        snprintf(text, sizeof(text), "rank %d", rank);
    return text;
}

static bool logged_of_rank(const struct ranks_self *self, const char *before, int rank,
                           const char *after)
{
    char text[512];
    snprintf(text, sizeof(text), "%s%s%s", before, rank_text(self, rank), after);
    return ranks_logged(self, text);
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
    struct dpb_rendezvous_seen seen[DPB_COMM_RANKS_MAX];
    dpb_rendezvous_survey(rendezvous, seen);
    for (int r = 0; r < size; r++) {
        RANK_EQUAL(seen[r].started, r + 10);
        RANK_EQUAL(seen[r].done, r + 5);
        RANK_CHECK(seen[r].called >= 1 + 200 + 29);
        RANK_CHECK(seen[r].pid > 0);
        RANK_EQUAL(seen[r].host[0] != '\0', self->plan->tcp);
        RANK_CHECK(!seen[r].closed);
    }
    RANK_EQUAL(seen[rank].pid, getpid());
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    dpb_rendezvous_close(rendezvous);
}

static void test_exchange(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++)
        run_both((struct ranks_plan){.ranks = ranks}, exchange_often, NULL);
}

/* The ranks leave a barrier only when the last has come to it. */
static void come_late(struct ranks_self *self, void *argument)
{
    _Atomic int *came = (_Atomic int *)argument + self->plan->tcp;
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
    run_both((struct ranks_plan){.ranks = 4}, come_late, ranks_shared(2 * sizeof(int)));
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
    run_both((struct ranks_plan){.ranks = 2}, exchange_too_much, NULL);
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
    RANK_CHECK(ranks_logged(self, "open #1 timed out after 2s: ranks 0 and 3 did not come "
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
    RANK_CHECK(ranks_logged(self, "rank 1 was told that there are 3 ranks") ||
               ranks_logged(self, "another rank was told 3"));
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
    bad.size = (self->plan->tcp ? DPB_COMM_WORLD_RANKS_MAX : DPB_COMM_RANKS_MAX) + 1;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    bad = good;
    bad.timeout_ns = 0;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    RANK_CHECK(rendezvous == NULL);
    dpb_rendezvous_close(NULL);
}

static void open_badly_in_segment(struct ranks_self *self, void *argument)
{
    (void)argument;
    const struct dpb_rendezvous_config good = config_of(self);
    struct dpb_rendezvous_config bad = good;
    dpb_rendezvous *rendezvous = NULL;
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
}

static void open_badly_over_tcp(struct ranks_self *self, void *argument)
{
    (void)argument;
    const struct dpb_rendezvous_config good = config_of(self);
    const struct dpb_comm_server nowhere = {"127.0.0.1", good.server->token};
    const struct dpb_comm_server other_token = {good.server->address, "another secret text"};
    const struct dpb_comm_server nobody = {"127.0.0.1:1", good.server->token};
    struct dpb_rendezvous_config bad = good;
    dpb_rendezvous *rendezvous = NULL;
    bad.server = &nowhere;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "cannot open comm \"test\": \"127.0.0.1\" is no address"));
    bad.server = &other_token;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "it has another token"));
    bad.server = &nobody;
    bad.timeout_ns = SHORT_NS;
    RANK_EQUAL(dpb_rendezvous_open(&bad, &rendezvous), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "cannot connect to 127.0.0.1:1 as rendezvous"));
    RANK_CHECK(rendezvous == NULL);
}

static void test_open(void **state)
{
    (void)state;
    run_both((struct ranks_plan){.ranks = 4, .timeout_ns = SHORT_NS}, open_without_0_and_3, NULL);
    run_both((struct ranks_plan){.ranks = 2}, open_with_other_size, NULL);
    run_both((struct ranks_plan){.ranks = 2}, open_same_rank_twice, NULL);
    run_both((struct ranks_plan){.ranks = 1}, open_badly, NULL);
    struct ranks_plan plan = {.ranks = 1, .no_open = true};
    assert_int_equal(ranks_run(&plan, open_badly_in_segment, NULL), 0);
    plan.tcp = true;
    assert_int_equal(ranks_run(&plan, open_badly_over_tcp, NULL), 0);
}

/* A server serves the same ranks again and again, whoever is first. */
static void meet_again(struct ranks_self *self, void *argument)
{
    (void)argument;
    for (int i = 0; i < 5; i++) {
        int32_t mine = self->config.rank + i;
        int32_t all[3];
        dpb_rendezvous *rendezvous = meet(self);
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "number", &mine, sizeof(mine), all), DPB_OK);
        RANK_EQUAL(all[2], 2 + i);
        if (self->config.rank == i % 3)
            sleep_ms(20);
        dpb_rendezvous_close(rendezvous);
    }
}

static void test_again(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .no_open = true, .tcp = true};
    assert_int_equal(ranks_run(&plan, meet_again, NULL), 0);
}

/* ---- ranks that do not come ---- */

/* Rank 1 does not come to call #3; it is there, or does not run at all. */
static void wait_for_rank_1(struct ranks_self *self, void *argument)
{
    _Atomic int *is_awake = argument ? (_Atomic int *)argument + self->plan->tcp : NULL;
    const int rank = self->config.rank;
    char text[160];
    struct dpb_rendezvous_seen seen[3];
    dpb_rendezvous *rendezvous = meet(self);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_OK);
    dpb_rendezvous_survey(rendezvous, seen);
    RANK_CHECK(seen[1].pid > 0);
    if (rank == 1) {
        if (is_awake) {
            raise(SIGSTOP);
            atomic_store(is_awake, 1);
        }
        while (dpb_rendezvous_check(rendezvous, "waiting") == DPB_OK)
            sleep_ms(1);
        RANK_EQUAL(dpb_rendezvous_check(rendezvous, "waiting"), DPB_ERR_TIMEOUT);
    } else {
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_ERR_TIMEOUT);
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), DPB_ERR_TIMEOUT);
        RANK_CHECK(ranks_logged(self, "barrier #3"));
        RANK_CHECK(logged_of_rank(self, "timed out after 2s: ", 1,
                                  " did not come (last seen at call #2)"));
        snprintf(text, sizeof(text), "look at process %" PRId32 " (rank 1)", seen[1].pid);
        if (!strstr(self->log, "failed: rank")) /* of those that noticed themselves */
            RANK_CHECK(ranks_logged(self, text));
        while (is_awake && !atomic_load(is_awake)) { /* it may not have stopped yet */
            kill(seen[1].pid, SIGCONT);
            sleep_ms(1);
        }
    }
    dpb_rendezvous_close(rendezvous);
}

/* In a segment nobody sees that a process has ended: it is late. */
static void lose_rank_1(struct ranks_self *self, void *argument)
{
    (void)argument;
    const dpb_status st = self->plan->tcp ? DPB_ERR_RANK_FAILED : DPB_ERR_TIMEOUT;
    dpb_rendezvous *rendezvous = meet(self);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "numbers", NULL, 0, NULL), DPB_OK);
    if (self->config.rank == 1)
        _exit(0); /* without a word */
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), st);
    RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "barrier", NULL, 0, NULL), st);
    RANK_CHECK(ranks_logged(self, "barrier #3"));
    if (self->plan->tcp) {
        RANK_CHECK(ranks_logged(self, "failed: rank 1 on "));
        RANK_CHECK(ranks_logged(self, "is gone: its connection broke"));
        RANK_CHECK(ranks_logged(self, "last seen at call #2 (numbers)"));
    } else {
        RANK_CHECK(ranks_logged(self, "timed out after 2s: rank 1 did not come "
                                      "(last seen at call #2)"));
    }
    dpb_rendezvous_close(rendezvous);
}

static void close_rank_2(struct ranks_self *self, void *argument)
{
    (void)argument;
    dpb_rendezvous *rendezvous = meet(self);
    if (self->config.rank != 2) {
        RANK_EQUAL(dpb_rendezvous_exchange(rendezvous, "unique id", NULL, 0, NULL),
                   DPB_ERR_RANK_FAILED);
        RANK_CHECK(logged_of_rank(self, "", 2, " ended before it (last seen at call #1)"));
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
    const struct ranks_plan hurried = {.ranks = 3, .timeout_ns = SHORT_NS};
    run_both(hurried, wait_for_rank_1, NULL);
    run_both(hurried, wait_for_rank_1, ranks_shared(2 * sizeof(int)));
    run_both(hurried, lose_rank_1, NULL);
    run_both((struct ranks_plan){.ranks = 3}, close_rank_2, NULL);
    run_both((struct ranks_plan){.ranks = 2}, disagree, NULL);
    run_both((struct ranks_plan){.ranks = 2}, disagree, "about the name");
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
    run_both((struct ranks_plan){.ranks = 4}, give_up, NULL);
    run_both((struct ranks_plan){.ranks = 4}, look_for_failure, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_exchange), cmocka_unit_test(test_late),
            cmocka_unit_test(test_sizes),    cmocka_unit_test(test_open),
            cmocka_unit_test(test_missing),  cmocka_unit_test(test_again),
            cmocka_unit_test(test_failures),
    };
    return DPB_RUN_TESTS(tests);
}
