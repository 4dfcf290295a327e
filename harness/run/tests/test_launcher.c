/* The launcher against ranks that do well, die, hang, report errors, or are interrupted. The test's
 * own binary is the rank: the launcher starts /proc/self/exe with the worker verb. */
#include "dpb_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_board.h"
#include "dpb_clock.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "worker_link.h"

#define RANKS 3

/* ---- the rank ---- */

static void note_pid(worker_link *link, int rank)
{
    pid_t pid = getpid();
    if (worker_link_put(link, &pid, sizeof(pid), rank * (int64_t)sizeof(pid)) != DPB_OK)
        _exit(9);
}

static void send_error(worker_link *link, dpb_status st, const char *text)
{
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "error");
    dpb_json_set_int(message, "status", st);
    dpb_json_set_string(message, "text", text);
    worker_link_send(link, message);
    dpb_json_free(message);
}

static void send_garbage(void)
{
    for (int i = 0; i < 100; i++)
        if (write(DPB_WORKER_FD_CHANNEL, "no message at all", 17) != 17)
            _exit(9);
}

static void send_result(worker_link *link, int rank, const char *pad)
{
    dpb_json *result = dpb_json_object();
    dpb_json_set_string(result, "type", "result");
    dpb_json_set_int(result, "rank", rank);
    dpb_json_set_string(result, "big", pad);
    worker_link_send(link, result);
    dpb_json_free(result);
}

static int be_a_rank(void)
{
    worker_link *link;
    if (worker_link_open(&link) != DPB_OK)
        return 9;
    const dpb_json *job = worker_link_job(link);
    const int rank = worker_link_place(link)->rank;
    const char *act = dpb_json_as_string(dpb_json_get(job, "act"), "");
    struct dpb_board_line *line = worker_link_line(link);
    note_pid(link, rank);
    dpb_board_write(line, rank == 1 ? 17 : 18, DPB_PHASE_BACKWARD, 2);
    if (rank == 1 && strcmp(act, "kill") == 0)
        raise(SIGKILL);
    if (rank == 1 && strcmp(act, "stop") == 0)
        raise(SIGSTOP);
    if (rank == 1 && strcmp(act, "exit") == 0)
        _exit(3);
    if (rank == 1 && strcmp(act, "error") == 0)
        send_error(link, DPB_ERR_MISMATCH, "the plans differ");
    if (rank != 1 && strcmp(act, "error") == 0)
        send_error(link, DPB_ERR_RANK_FAILED, "rank 1 gave up");
    if (rank == 1 && strcmp(act, "garbage") == 0)
        send_garbage();
    while (strcmp(act, "slow") == 0) {
        dpb_board_write(line, 17, DPB_PHASE_BACKWARD, 2);
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 20000000);
    }
    if (strcmp(act, "ok") != 0 && strcmp(act, "crash") != 0)
        for (;;)
            pause();
    send_result(link, rank, dpb_json_as_string(dpb_json_get(job, "pad"), ""));
    if (rank == 1 && strcmp(act, "crash") == 0)
        raise(SIGKILL);
    worker_link_close(link, DPB_OK);
    return 0;
}

/* ---- the launcher's side ---- */

struct outcome {
    dpb_status st;
    struct dpb_launch_result result;
    pid_t pid[RANKS];
};

static void quiet(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static struct outcome launch(const char *act, const volatile sig_atomic_t *interrupted,
                             const char *pad)
{
    struct outcome o;
    dpb_json *job = dpb_json_object();
    dpb_json_set_string(job, "act", act);
    dpb_json_set_string(job, "pad", pad);
    struct dpb_launch_config config = {
            .ranks = RANKS,
            .job = job,
            .timeout_ns = strcmp(act, "slow") == 0 ? 1000000000 : 60000000000,
            .stall_timeout_ns = 1500000000,
            .wants_bulk = true,
            .interrupted = interrupted,
    };
    dpb_log_set_sink(quiet, NULL);
    o.st = dpb_launch_run(&config, &o.result);
    dpb_log_set_sink(NULL, NULL);
    dpb_json_free(job);
    return o;
}

/* The launcher has reaped them all: it has no child left, of any state. */
static void assert_no_child(void)
{
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_results_come_back(void **state)
{
    (void)state;
    static char pad[300001]; /* more than a socket buffer holds */
    memset(pad, 'x', sizeof(pad) - 1);
    struct outcome o = launch("ok", NULL, pad);
    assert_int_equal(o.st, DPB_OK);
    assert_int_equal(o.result.rank_count, RANKS);
    assert_string_equal(o.result.reason, "");
    const pid_t *pid = o.result.bulk;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(dpb_json_as_int(dpb_json_get(o.result.ranks[r], "rank"), -1), r);
        assert_int_equal(strlen(dpb_json_as_string(dpb_json_get(o.result.ranks[r], "big"), "")),
                         sizeof(pad) - 1);
        assert_true(pid[r] > 0 && pid[r] != getpid());
        assert_int_equal(kill(pid[r], 0), -1);
    }
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_killed_rank_is_named(void **state)
{
    (void)state;
    struct outcome o = launch("kill", NULL, "");
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "killed by signal 9"));
    assert_non_null(strstr(o.result.reason, "step 17 (backward, bucket 2)"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

/* Some parents start programs with SIGCHLD ignored, and then the kernel keeps no exit status. */
static void test_killed_rank_is_named_with_sigchld_ignored(void **state)
{
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    struct outcome o = launch("kill", NULL, "");
    assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN); /* as it was */
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, "killed by signal 9"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

/* What a rank reported counts only if it came to its end: a crash while closing says that memory
 * was overwritten before. */
static void test_crash_after_the_result(void **state)
{
    (void)state;
    struct outcome o = launch("crash", NULL, "");
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "killed by signal 9"));
    assert_non_null(strstr(o.result.reason, "after its result"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

/* Not a time-out, whose message would blame a rank for making no progress. */
static void test_message_that_is_none(void **state)
{
    (void)state;
    struct outcome o = launch("garbage", NULL, "");
    assert_int_equal(o.st, DPB_ERR_CORRUPT);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "cannot be read"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_stopped_rank_is_named(void **state)
{
    (void)state;
    struct outcome o = launch("stop", NULL, "");
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "is stopped"));
    assert_non_null(strstr(o.result.reason, "--stall-timeout 1500ms"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

/* Who still works is not accused of making no progress. */
static void test_slow_launch_is_too_long(void **state)
{
    (void)state;
    struct outcome o = launch("slow", NULL, "");
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "--timeout 1s"));
    assert_non_null(strstr(o.result.reason, "in step 17 (backward, bucket 2)"));
    assert_null(strstr(o.result.reason, "no progress"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_hanging_rank_is_the_least_far(void **state)
{
    (void)state;
    struct outcome o = launch("hang", NULL, "");
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "makes no progress in step 17"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_exit_without_result(void **state)
{
    (void)state;
    struct outcome o = launch("exit", NULL, "");
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, "exited with code 3 without a result"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_root_cause_wins_over_echoes(void **state)
{
    (void)state;
    struct outcome o = launch("error", NULL, "");
    assert_int_equal(o.st, DPB_ERR_MISMATCH);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "the plans differ"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_interrupt_ends_all(void **state)
{
    (void)state;
    const volatile sig_atomic_t interrupted = SIGINT;
    struct outcome o = launch("hang", &interrupted, "");
    assert_int_equal(o.st, DPB_ERR_INTERRUPTED);
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0)
        return be_a_rank();
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_results_come_back),
            cmocka_unit_test(test_killed_rank_is_named),
            cmocka_unit_test(test_killed_rank_is_named_with_sigchld_ignored),
            cmocka_unit_test(test_crash_after_the_result),
            cmocka_unit_test(test_message_that_is_none),
            cmocka_unit_test(test_stopped_rank_is_named),
            cmocka_unit_test(test_slow_launch_is_too_long),
            cmocka_unit_test(test_hanging_rank_is_the_least_far),
            cmocka_unit_test(test_exit_without_result),
            cmocka_unit_test(test_root_cause_wins_over_echoes),
            cmocka_unit_test(test_interrupt_ends_all),
    };
    return DPB_RUN_TESTS(tests);
}
