/* A process that is killed, and does not end: the launcher goes on without it. A debugger that does
 * not ask for its end holds it here, as the kernel holds one that waits for a device (state D). The
 * test's own binary is the rank, and the launcher's process. */
#include "dpb_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew_private.h"
#include "dpb_clock.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "worker_link.h"

#define RANKS         2
#define HOLD_VERB     "hold"
#define HELD_VARIABLE "DPB_TEST_HELD" /* the file in which the held process names both */
#define DEBUGGER_S    120             /* after which it lets go by itself */
#define LONG_NS       60000000000ll   /* which no test that passes waits for */

struct held {
    pid_t process, debugger; /* the debugger is 0: this system allows none */
};

/* ---- the process that is held ---- */

static _Noreturn void debug(pid_t process, int answer)
{
    setsid(); /* not killed with the process's group */
    alarm(DEBUGGER_S);
    const char seized = ptrace(PTRACE_SEIZE, process, NULL, NULL) == 0;
    if (write(answer, &seized, 1) != 1)
        _exit(9);
    for (;;)
        pause();
}

static struct held hold(void)
{
    struct held held = {.process = getpid()};
    int answer[2];
    char seized = 0;
    if (pipe2(answer, O_CLOEXEC) != 0)
        _exit(9);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where only descendants may be debugged */
    held.debugger = fork();
    if (held.debugger == 0)
        debug(held.process, answer[1]);
    close(answer[1]);
    if (held.debugger > 0 && read(answer[0], &seized, 1) == 1 && seized)
        return held;
    if (held.debugger > 0) {
        kill(held.debugger, SIGKILL);
        waitpid(held.debugger, NULL, 0);
    }
    held.debugger = 0;
    return held;
}

static void be_held(void)
{
    const struct held held = hold();
    int fd = open(getenv(HELD_VARIABLE), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, &held, sizeof(held)) != sizeof(held))
        _exit(9);
    close(fd);
}

/* Rank 1 is held, and then says that it is through. */
static int be_a_rank(void)
{
    worker_link *link;
    if (worker_link_open(&link) != DPB_OK)
        return 9;
    if (worker_link_place(link)->rank == 1) {
        be_held();
        dpb_json *message = dpb_json_object();
        dpb_json_set_string(message, "type", "error");
        dpb_json_set_int(message, "status", DPB_ERR_MISMATCH);
        dpb_json_set_string(message, "text", "it is held");
        worker_link_send(link, message);
    }
    for (;;)
        pause();
}

/* ---- the test's side ---- */

static char path[] = "/tmp/dpb-undying-XXXXXX";
static char log_text[8192];

static void keep_log(void *context, enum dpb_log_level level, const char *line)
{
    const size_t length = strlen(log_text);
    (void)context;
    (void)level;
    snprintf(log_text + length, sizeof(log_text) - length, "%s\n", line);
}

static int begin(void **state)
{
    (void)state;
    strcpy(path + sizeof(path) - 7, "XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    log_text[0] = '\0';
    dpb_log_set_sink(keep_log, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* the debugger's parent ends before it */
    return setenv(HELD_VARIABLE, path, 1);
}

static int end(void **state)
{
    (void)state;
    dpb_log_set_sink(NULL, NULL);
    return unlink(path);
}

/* False: nobody could be held. */
static bool read_held(struct held *held)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *held = (struct held){0};
    const bool all = read(fd, held, sizeof(*held)) == sizeof(*held);
    close(fd);
    return all;
}

/* It is there still, dead or not; and ends when the debugger does. */
static void assert_left_behind(const struct held *held)
{
    assert_int_equal(waitpid(held->process, NULL, WNOHANG), 0);
    kill(held->debugger, SIGKILL);
    assert_int_equal(waitpid(held->process, NULL, 0), held->process);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) /* the debugger, who is an orphan now */
        ;
    assert_non_null(strstr(log_text, "does not end though it was killed, and is left behind"));
}

static void test_rank(void **state)
{
    (void)state;
    struct dpb_launch_result result;
    struct held held;
    dpb_json *job = dpb_json_object();
    const struct dpb_launch_config config = {
            .ranks = RANKS, .job = job, .timeout_ns = LONG_NS, .stall_timeout_ns = LONG_NS};
    const dpb_status st = dpb_launch_run(&config, &result);
    dpb_json_free(job);
    assert_true(read_held(&held));
    if (held.debugger == 0) {
        dpb_launch_result_release(&result);
        dpb_test_skip("this system does not let a process be debugged (ptrace)");
    }
    assert_left_behind(&held);
    assert_int_equal(st, DPB_ERR_MISMATCH);
    assert_non_null(strstr(result.reason, "it is held"));
    dpb_launch_result_release(&result);
}

static void test_launcher_of_ranks(void **state)
{
    (void)state;
    char own[] = "/proc/self/exe", verb[] = HOLD_VERB;
    struct crew_child child;
    struct held held;
    assert_int_equal(crew_child_start(&child, own, (char *[]){own, verb, NULL}, environ, true),
                     DPB_OK);
    while (!read_held(&held))
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    crew_child_stop(&child);
    if (held.debugger == 0)
        dpb_test_skip("this system does not let a process be debugged (ptrace)");
    assert_left_behind(&held);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0)
        return be_a_rank();
    if (argc > 1 && strcmp(argv[1], HOLD_VERB) == 0) {
        be_held();
        for (;;)
            pause();
    }
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_rank, begin, end),
            cmocka_unit_test_setup_teardown(test_launcher_of_ranks, begin, end),
    };
    return DPB_RUN_TESTS(tests);
}
