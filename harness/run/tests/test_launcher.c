/* The launcher against ranks that do well, die, hang, report errors, or are interrupted: forked by
 * itself, and started by a crew. The test's own binary is the rank: /proc/self/exe with the worker
 * verb. */
#include "dpb_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew_for_tests.h"
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

/* To the test that killed its launcher. */
static void leave_pid(int rank)
{
    const char *folder = getenv(CREW_PIDS_VARIABLE);
    char path[4200];
    if (!folder)
        return;
    snprintf(path, sizeof(path), "%s/%d", folder, rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        _exit(9);
    close(fd);
}

/* The socket to the launcher: inherited, or the only one of a rank that a crew started. */
static int channel(void)
{
    int type;
    socklen_t bytes = sizeof(type);
    int fd = DPB_WORKER_FD_CHANNEL;
    while (fd < 64 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
        fd++;
    return fd;
}

static void send_garbage(void)
{
    for (int i = 0; i < 100; i++)
        if (write(channel(), "no message at all", 17) != 17)
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
    leave_pid(rank);
    if (getenv(DPB_WORKER_TOKEN_VARIABLE))
        return 9; /* a secret that children would inherit */
    if (rank == 1)
        dpb_board_write(line, 17, DPB_PHASE_BACKWARD, 2);
    else
        dpb_board_write(line, 18, DPB_PHASE_SYNC, 0);
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
};

/* The cases that both ways have in common are run twice. */
static bool with_crew;

static void quiet(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* Long enough for a busy machine, where a case does not wait for it to pass; where it does, for the
 * ranks to start and come to where they are to be. */
#define LONG_NS  60000000000ll
#define SHORT_NS 4000000000ll

static struct outcome launch_on(struct dpb_crew *crew, const char *act,
                                const volatile sig_atomic_t *interrupted, const char *pad)
{
    struct outcome o;
    dpb_json *job = dpb_json_object();
    dpb_json_set_string(job, "act", act);
    dpb_json_set_string(job, "pad", pad);
    const bool stalls = strcmp(act, "stop") == 0 || strcmp(act, "hang") == 0;
    struct dpb_launch_config config = {
            .ranks = RANKS,
            .crew = crew,
            .job = job,
            .start_timeout_ns = strcmp(act, "never") == 0 ? SHORT_NS : LONG_NS,
            .silence_ns = strcmp(act, "hush") == 0 ? SHORT_NS : 0,
            .timeout_ns = strcmp(act, "slow") == 0 ? SHORT_NS : LONG_NS,
            .stall_timeout_ns = stalls ? SHORT_NS : LONG_NS,
            .wants_bulk = true,
            .interrupted = interrupted,
    };
    dpb_log_set_sink(quiet, NULL);
    o.st = dpb_launch_run(&config, &o.result);
    dpb_log_set_sink(NULL, NULL);
    dpb_json_free(job);
    return o;
}

static struct outcome launch(const char *act, const volatile sig_atomic_t *interrupted,
                             const char *pad)
{
    struct dpb_crew *crew = with_crew ? crew_for_tests_new(CREW_WELL) : NULL;
    struct outcome o = launch_on(crew, act, interrupted, pad);
    crew_for_tests_free(crew);
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
    if (with_crew) { /* its last beat may be older than its last step */
        assert_non_null(strstr(o.result.reason, "ended without a result"));
        assert_non_null(strstr(o.result.reason, "the crew ended: process 1, status 0x0009"));
    } else {
        assert_non_null(strstr(o.result.reason, "killed by signal 9"));
        assert_non_null(strstr(o.result.reason, "step 17 (backward, bucket 2)"));
    }
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
    assert_non_null(strstr(o.result.reason, with_crew ? "0x0009" : "killed by signal 9"));
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
    assert_non_null(strstr(o.result.reason, "; ranks 0,2 waited in step 18 (sync, bucket 0)"));
    assert_non_null(strstr(o.result.reason, "--stall-timeout "));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

/* Who still works is not accused of making no progress. */
static void test_slow_launch_is_too_long(void **state)
{
    (void)state;
    struct outcome o = launch("slow", NULL, "");
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "--timeout 4s"));
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
    assert_non_null(strstr(o.result.reason, "; ranks 0,2 waited in step 18 (sync, bucket 0)"));
    assert_no_child();
    dpb_launch_result_release(&o.result);
}

static void test_exit_without_result(void **state)
{
    (void)state;
    struct outcome o = launch("exit", NULL, "");
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, with_crew ? "ended without a result"
                                                      : "exited with code 3 without a result"));
    assert_true(!with_crew || strstr(o.result.reason, "process 1, status 0x0300"));
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

/* ---- what only a crew's ranks can suffer ---- */

static struct outcome launch_with(enum crew_fault fault, const char *act, int *killed)
{
    struct dpb_crew *crew = crew_for_tests_new(fault);
    struct outcome o = launch_on(crew, act, NULL, "");
    if (killed)
        *killed = crew_for_tests_killed(crew);
    crew_for_tests_free(crew);
    assert_no_child();
    return o;
}

static void test_ranks_have_their_places(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_STRANGER, "ok", NULL);
    assert_int_equal(o.st, DPB_OK);
    assert_int_equal(dpb_json_as_int(dpb_json_get(o.result.world, "nodes"), 0), 1);
    for (int r = 0; r < RANKS; r++) {
        const dpb_json *rank = o.result.ranks[r];
        assert_int_equal(dpb_json_as_int(dpb_json_path(rank, "place/local_rank"), -1), r);
        assert_int_equal(dpb_json_as_int(dpb_json_path(rank, "place/node"), -1), 0);
        assert_int_equal(dpb_json_as_int(dpb_json_path(rank, "clock/domain"), -1), 0);
        assert_int_equal(dpb_json_as_int(dpb_json_path(rank, "clock/offset_ns"), -1), 0);
        assert_int_equal(dpb_json_as_int(dpb_json_path(rank, "clock/error_ns"), -1), 0);
    }
    dpb_launch_result_release(&o.result);
}

static void test_rank_that_comes_again(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_GHOST, "ok", NULL);
    assert_int_equal(o.st, DPB_OK);
    dpb_launch_result_release(&o.result);
}

static void test_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_ONE_MISSING, "never", NULL);
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "1 of 3 ranks did not come within 4s: rank 2"));
    dpb_launch_result_release(&o.result);
}

static void test_rank_that_comes_twice(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_ONE_TWICE, "ok", NULL);
    assert_int_equal(o.st, DPB_ERR_UNAVAILABLE);
    dpb_launch_result_release(&o.result);
}

static void test_silent_singletons(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_SINGLETONS, "ok", NULL);
    assert_int_equal(o.st, DPB_ERR_UNAVAILABLE);
    dpb_launch_result_release(&o.result);
}

static void test_ranks_of_another_build(void **state)
{
    (void)state;
    struct outcome o = launch_with(CREW_OTHER_BUILD, "ok", NULL);
    assert_int_equal(o.st, DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(o.result.reason, "run another dpbench than this process"));
    dpb_launch_result_release(&o.result);
}

static void test_cut_connection(void **state)
{
    (void)state;
    int killed;
    struct outcome o = launch_with(CREW_CUT, "cut", &killed);
    assert_int_equal(o.st, DPB_ERR_RANK_FAILED);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_int_equal(killed, 0); /* the rank that was cut off has ended by itself */
    dpb_launch_result_release(&o.result);
}

static void test_silent_network(void **state)
{
    (void)state;
    int killed;
    struct outcome o = launch_with(CREW_HUSHED, "hush", &killed);
    assert_int_equal(o.st, DPB_ERR_TIMEOUT);
    assert_non_null(strstr(o.result.reason, "rank 1 (pid "));
    assert_non_null(strstr(o.result.reason, "has not been heard of for 4s"));
    assert_non_null(strstr(o.result.reason, "; ranks 0,2 waited in step 18 (sync, bucket 0)"));
    assert_int_equal(killed, 0);
    dpb_launch_result_release(&o.result);
}

static void test_other_clock_is_measured(void **state)
{
    (void)state;
    const int64_t ahead_ns = 1000000000000;
    if (!crew_can_shift_clocks()) {
        dpb_test_skip("this user cannot make a time name space with another clock");
    }
    struct outcome o = launch_with(CREW_OTHER_CLOCK, "ok", NULL);
    assert_int_equal(o.st, DPB_OK);
    const dpb_json *clock = dpb_json_get(o.result.ranks[1], "clock");
    const int64_t offset_ns = dpb_json_as_int(dpb_json_get(clock, "offset_ns"), 0);
    const int64_t error_ns = dpb_json_as_int(dpb_json_get(clock, "error_ns"), 0);
    assert_int_not_equal(dpb_json_as_int(dpb_json_get(clock, "domain"), -1),
                         dpb_json_as_int(dpb_json_path(o.result.ranks[0], "clock/domain"), -1));
    assert_true(error_ns > 0 && error_ns < ahead_ns);
    assert_true(llabs(offset_ns + ahead_ns) <= error_ns);
    /* two estimates of one offset, each within its error */
    assert_int_equal(dpb_json_type(dpb_json_get(clock, "drift_ns")), DPB_JSON_INT);
    dpb_launch_result_release(&o.result);
}

static int files_in(const char *folder)
{
    char path[4200];
    int count = 0;
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof(path), "%s/%d", folder, r);
        count += access(path, F_OK) == 0;
    }
    return count;
}

static void remove_files(const char *folder)
{
    char path[4200];
    for (int r = 0; r < RANKS; r++) {
        snprintf(path, sizeof(path), "%s/%d", folder, r);
        unlink(path);
    }
    rmdir(folder);
}

/* Ranks of other hosts are nobody's children: they end because they lose the launcher. */
static void test_killed_launcher_takes_its_ranks_along(void **state)
{
    (void)state;
    char folder[] = "/tmp/dpb-launcher-XXXXXX";
    assert_non_null(mkdtemp(folder));
    setenv(CREW_PIDS_VARIABLE, folder, 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come here */
    pid_t launcher = fork();
    if (launcher == 0) {
        struct outcome o = launch_on(crew_for_tests_new(CREW_WELL), "wait", NULL, "");
        _exit(o.st == DPB_OK ? 0 : 1);
    }
    const int64_t deadline_ns = dpb_clock_now_ns() + LONG_NS;
    while (files_in(folder) < RANKS && dpb_clock_now_ns() < deadline_ns)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 10000000);
    kill(launcher, SIGKILL);
    int ended = 0;
    while (ended < RANKS + 1 && waitpid(-1, NULL, 0) > 0) /* for ever, if one does not end */
        ended++;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    unsetenv(CREW_PIDS_VARIABLE);
    assert_int_equal(files_in(folder), RANKS);
    assert_int_equal(ended, RANKS + 1);
    assert_no_child();
    remove_files(folder);
}

static int start_with_crew(void **state)
{
    (void)state;
    with_crew = true;
    return 0;
}

static int start_without_crew(void **state)
{
    (void)state;
    with_crew = false;
    return 0;
}

/* A case of both ways. */
#define BOTH(test)                                                                                 \
    {#test, test, start_without_crew, NULL, NULL},                                                 \
    {                                                                                              \
#test "_with_a_crew", test, start_with_crew, NULL, NULL                                    \
    }

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0)
        return be_a_rank();
    const struct CMUnitTest tests[] = {
            BOTH(test_results_come_back),
            BOTH(test_killed_rank_is_named),
            cmocka_unit_test_setup(test_killed_rank_is_named_with_sigchld_ignored,
                                   start_without_crew),
            BOTH(test_crash_after_the_result),
            BOTH(test_message_that_is_none),
            BOTH(test_stopped_rank_is_named),
            BOTH(test_slow_launch_is_too_long),
            BOTH(test_hanging_rank_is_the_least_far),
            BOTH(test_exit_without_result),
            BOTH(test_root_cause_wins_over_echoes),
            BOTH(test_interrupt_ends_all),
            cmocka_unit_test(test_ranks_have_their_places),
            cmocka_unit_test(test_rank_that_comes_again),
            cmocka_unit_test(test_rank_that_never_comes_is_named),
            cmocka_unit_test(test_rank_that_comes_twice),
            cmocka_unit_test(test_silent_singletons),
            cmocka_unit_test(test_ranks_of_another_build),
            cmocka_unit_test(test_cut_connection),
            cmocka_unit_test(test_silent_network),
            cmocka_unit_test(test_other_clock_is_measured),
            cmocka_unit_test(test_killed_launcher_takes_its_ranks_along),
    };
    return DPB_RUN_TESTS(tests);
}
