/* A launcher's process, or a rank's: started in a group of its own, listened to, ended. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew_private.h"
#include "dpb_clock.h"
#include "dpb_log.h"

#define TERM_NS       3000000000ll /* between SIGTERM and SIGKILL: mpirun ends its ranks meanwhile */
#define KILLED_NS     10000000000ll /* after SIGKILL, to be gone */
#define KEEPER_NS     20000000000ll /* for ranks without a driver to end: DPB_LAUNCHER_SILENCE_NS */
#define SLICE_NS      10000000ll
#define PASS_ON_BYTES (1u << 20) /* at once: who writes without end must not keep this process */

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- the end of a launcher whose driver was killed ---- */

enum {
    LIFELINE,
    LAUNCHER,
    OUTPUT,
    OTHERS
};

/* Reads what it writes meanwhile: without a reader that would end it. */
static bool launcher_ends_within(int64_t within_ns)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + within_ns;
    struct pollfd fds[] = {{.fd = LAUNCHER, .events = POLLIN}, {.fd = OUTPUT, .events = POLLIN}};
    char bytes[4096];
    while (!fds[0].revents && dpb_clock_now_ns() < deadline_ns) {
        (void)poll(fds, 2, SLICE_NS / 1000000);
        if (fds[1].revents && read(OUTPUT, bytes, sizeof(bytes)) == 0)
            fds[1].fd = -1;
    }
    return fds[0].revents != 0;
}

/* Ranks end by themselves then, and mpirun, seeing that, removes its files and shared memory: told
 * to end meanwhile, it leaves them. Of what else was inherited nothing stays open: not the driver's
 * locks. */
static _Noreturn void keep(int lifeline, int launcher, int output)
{
    lifeline = fcntl(lifeline, F_DUPFD, OTHERS);
    launcher = fcntl(launcher, F_DUPFD, OTHERS);
    output = fcntl(output, F_DUPFD, OTHERS);
    if (dup2(lifeline, LIFELINE) < 0 || dup2(launcher, LAUNCHER) < 0 || dup2(output, OUTPUT) < 0)
        _exit(1);
    close_range(OTHERS, ~0u, 0);
    struct pollfd fds[] = {{.fd = LIFELINE, .events = POLLIN}, {.fd = LAUNCHER, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    if (fds[1].revents) /* what it has written is the driver's */
        _exit(0);
    if (!launcher_ends_within(KEEPER_NS))
        syscall(SYS_pidfd_send_signal, LAUNCHER, SIGTERM, NULL, 0);
    (void)launcher_ends_within(KEEPER_NS);
    _exit(0);
}

/* In the process that is about to become the launcher, which another one then watches: no child of
 * its, that it would wonder about. PR_SET_PDEATHSIG would come at once, and once for each thread
 * that the driver had. */
static bool start_keeper(int lifeline, int output)
{
    const int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0)
        return false;
    const pid_t between = fork();
    if (between == 0) {
        if (fork() == 0)
            keep(lifeline, self, output);
        _exit(0);
    }
    close(self);
    return between > 0 && waitpid(between, NULL, 0) == between;
}

static _Noreturn void become(const char *path, char *const *argv, char *const *environment,
                             int output, const int keeper[2], pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGTTOU, SIG_IGN); /* in a background group; a terminal with `tostop` must not stop it */
    setpgid(0, 0);
    if (keeper[0] < 0 || !start_keeper(keeper[0], keeper[1]))
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it has died before that */
        _exit(127);
    int input = open("/dev/null", O_RDONLY);
    if (input >= 0)
        dup2(input, STDIN_FILENO);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    execve(path, argv, environment);
    _exit(127);
}

dpb_status crew_child_start(struct crew_child *child, const char *path, char *const *argv,
                            char *const *environment, bool captured)
{
    int pipe_fds[2] = {-1, -1}, lifeline[2] = {-1, -1};
    *child = (struct crew_child){.output_fd = -1, .lifeline = -1};
    signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, no child would have a status */
    if (captured && pipe2(pipe_fds, O_CLOEXEC) != 0) {
        dpb_error("cannot make a pipe for \"%s\": %s", path, strerror(errno));
        return DPB_ERR_UNAVAILABLE;
    }
    if (captured && pipe2(lifeline, O_CLOEXEC) != 0)
        lifeline[0] = lifeline[1] = -1; /* then it is told to end at once */
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        close_fd(lifeline[1]);
        become(path, argv, environment, pipe_fds[1], (const int[]){lifeline[0], pipe_fds[0]},
               parent);
    }
    close_fd(pipe_fds[1]);
    close_fd(lifeline[0]);
    if (pid < 0) {
        dpb_error("cannot start \"%s\": %s", path, strerror(errno));
        close_fd(pipe_fds[0]);
        close_fd(lifeline[1]);
        return DPB_ERR_UNAVAILABLE;
    }
    child->lifeline = lifeline[1];
    setpgid(pid, pid); /* both sides: whoever comes first */
    child->pid = pid;
    child->output_fd = pipe_fds[0];
    if (captured)
        fcntl(child->output_fd, F_SETFL, O_NONBLOCK);
    return DPB_OK;
}

static void write_out(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t wrote = write(STDERR_FILENO, bytes, count);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return; /* nobody listens to us */
        bytes += wrote;
        count -= (size_t)wrote;
    }
}

static void pass_on(struct crew_child *child)
{
    char bytes[4096];
    for (size_t passed = 0; child->output_fd >= 0 && passed < PASS_ON_BYTES;) {
        ssize_t got = read(child->output_fd, bytes, sizeof(bytes));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return; /* nothing more for now, or ever */
        crew_said_note(&child->said, bytes, (size_t)got);
        write_out(bytes, (size_t)got);
        passed += (size_t)got;
    }
}

dpb_status crew_child_check(struct crew_child *child, const char *name, char *how, size_t how_bytes)
{
    siginfo_t info = {0};
    if (child->pid == 0)
        return DPB_OK;
    pass_on(child);
    /* It is reaped by crew_child_stop() only, so that its group cannot be another's until then. */
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return DPB_PENDING;
    pass_on(child);
    if (info.si_code == CLD_EXITED && info.si_status == 0)
        return DPB_OK;
    int used = info.si_code == CLD_EXITED
                       ? snprintf(how, how_bytes, "%s exited with code %d", name, info.si_status)
                       : snprintf(how, how_bytes, "%s was killed by signal %d (%s)", name,
                                  info.si_status, strsignal(info.si_status));
    const char *said = crew_said_text(&child->said);
    if (said[0] && used > 0 && (size_t)used < how_bytes)
        snprintf(how + used, how_bytes - (size_t)used, ": %s", said);
    return DPB_ERR_RANK_FAILED;
}

static bool has_ended(struct crew_child *child, int64_t within_ns)
{
    char how[CREW_HOW_BYTES];
    const int64_t deadline_ns = dpb_clock_now_ns() + within_ns;
    while (crew_child_check(child, "", how, sizeof(how)) == DPB_PENDING) {
        if (dpb_clock_now_ns() >= deadline_ns)
            return false;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SLICE_NS);
    }
    return true;
}

void crew_child_stop(struct crew_child *child)
{
    if (child->pid == 0)
        return;
    if (!has_ended(child, 0)) {
        kill(-child->pid, SIGTERM);
        (void)has_ended(child, TERM_NS);
    }
    kill(-child->pid, SIGKILL); /* what it may have left behind, too */
    if (has_ended(child, KILLED_NS))
        (void)waitpid(child->pid, NULL, 0);
    else
        dpb_error("process %d does not end though it was killed, and is left behind: the kernel "
                  "or a debugger holds it",
                  (int)child->pid);
    pass_on(child);
    close_fd(child->output_fd);
    close_fd(child->lifeline);
    *child = (struct crew_child){.output_fd = -1, .lifeline = -1};
}

/* ---- environments ---- */

static bool is_named(const char *variable, const char *const *names)
{
    for (; *names; names++) {
        const size_t length = strcspn(*names, "=");
        if (strncmp(variable, *names, length) == 0 && variable[length] == '=')
            return true;
    }
    return false;
}

void crew_strings_free(char **strings)
{
    for (char **s = strings; s && *s; s++)
        free(*s);
    free(strings);
}

char **crew_environment(const char *const *drop, const char *const *set)
{
    struct crew_words words = {0};
    for (char **e = environ; e && *e; e++)
        if (!is_named(*e, drop) && !is_named(*e, set))
            crew_words_add(&words, "%s", *e);
    for (; *set; set++)
        crew_words_add(&words, "%s", *set);
    if (!words.failed)
        return words.items;
    crew_words_release(&words);
    return NULL;
}
