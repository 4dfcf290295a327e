/* launch_local.c: ranks that are forked here, and inherit their files. */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_channel.h"
#include "dpb_clock.h"
#include "dpb_comm.h"
#include "dpb_log.h"

#define REAP_NS 5000000000ll /* after its result, for a rank to exit */
#define KILLED_NS                                                                                  \
    20000000000ll  /* for ranks that are killed to be gone; they may hold much memory */
#define HIGH_FD 20 /* above every fixed descriptor */

struct child {
    pid_t pid;
    bool reaped;
    int wait_status;
};

struct local {
    int board_fd, segment_fd;
    pid_t group;
    struct sigaction sigchld_before;
    struct child child[];
};

/* ---- start ---- */

static dpb_status open_board(struct launch *l, struct local *own)
{
    const size_t bytes = (size_t)l->config->ranks * sizeof(*l->board);
    DPB_TRY(launch_memory_file("dpbench-board", bytes, &own->board_fd));
    l->board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->board_fd, 0);
    if (l->board != MAP_FAILED)
        return DPB_OK;
    l->board = NULL;
    dpb_error("cannot map the ranks' board: %s", strerror(errno));
    return DPB_ERR_NO_MEMORY;
}

/* Tell the launcher why there will be no rank; it is the parent of this fork. */
static _Noreturn void give_up(int channel, const char *what)
{
    char text[256];
    snprintf(text, sizeof(text), "%s: %s%s", what, strerror(errno),
             errno == EMFILE || errno == EINVAL
                     ? "; raise the limit on open files (ulimit -n), 64 are enough for few ranks"
                     : "");
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "error");
    dpb_json_set_int(message, "status", DPB_ERR_UNAVAILABLE);
    dpb_json_set_string(message, "text", text);
    (void)dpb_message_send(channel, message); /* a launcher that is gone has nothing to hear */
    _exit(127);
}

static _Noreturn void become_rank(const struct launch *l, int channel, pid_t launcher)
{
    const struct local *own = l->own;
    /* The launcher's death must end the ranks; it may already have happened. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_IGN);  /* the launcher decides what Ctrl-C means */
    signal(SIGTTOU, SIG_IGN); /* a terminal with `tostop` must not stop ranks that log */
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) != 0 || dup2(null, 1) != 1)
        give_up(channel, "cannot open /dev/null");
    /* First all away from the fixed numbers, then each to its own. */
    int from[] = {fcntl(channel, F_DUPFD, HIGH_FD), fcntl(own->board_fd, F_DUPFD, HIGH_FD),
                  fcntl(own->segment_fd, F_DUPFD, HIGH_FD),
                  l->bulk_fd < 0 ? -1 : fcntl(l->bulk_fd, F_DUPFD, HIGH_FD)};
    int to[] = {DPB_WORKER_FD_CHANNEL, DPB_WORKER_FD_BOARD, DPB_WORKER_FD_SEGMENT,
                DPB_WORKER_FD_BULK};
    for (int i = 0; i < 4; i++)
        if (from[i] < 0 && (i < 3 || l->bulk_fd >= 0))
            give_up(channel, "cannot hand a rank its files");
    for (int i = 0; i < 4; i++)
        if (from[i] >= 0 && dup2(from[i], to[i]) != to[i])
            give_up(from[0], "cannot hand a rank its files");
    /* Nothing else of the launcher's stays open, above all no sibling's channel. */
    close_range(DPB_WORKER_FD_BULK + (l->bulk_fd >= 0 ? 1 : 0), ~0u, 0);
    char *argv[] = {(char *)"dpbench", (char *)DPB_WORKER_VERB, NULL};
    execv("/proc/self/exe", argv);
    give_up(DPB_WORKER_FD_CHANNEL, "cannot start dpbench again as a rank");
}

static dpb_status start_rank(struct launch *l, int r)
{
    struct local *own = l->own;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        dpb_error("cannot make a socket for rank %d: %s", r, strerror(errno));
        dpb_log_hint("raise the limit on open files (ulimit -n)");
        return DPB_ERR_UNAVAILABLE;
    }
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, own->group);
        become_rank(l, pair[1], launcher);
    }
    close(pair[1]);
    if (pid < 0) {
        dpb_error("cannot start rank %d: %s", r, strerror(errno));
        dpb_log_hint("lower --ranks, or raise the limit on processes (ulimit -u)");
        close(pair[0]);
        return DPB_ERR_UNAVAILABLE;
    }
    if (own->group == 0)
        own->group = pid;
    setpgid(pid, own->group); /* both sides, whoever comes first */
    own->child[r].pid = pid;
    l->rank[r].pid = pid;
    l->rank[r].fd = pair[0];
    return DPB_OK;
}

static dpb_status send_job(struct launch *l, int r)
{
    dpb_json *job = dpb_json_copy(l->config->job);
    dpb_json_set_int(job, "rank", r);
    dpb_json_set_int(job, "size", l->config->ranks);
    dpb_status st = job ? dpb_message_send(l->rank[r].fd, job) : DPB_ERR_NO_MEMORY;
    dpb_json_free(job);
    /* A rank that is already gone is found and named by the watch. */
    return st == DPB_ERR_RANK_FAILED ? DPB_OK : st;
}

static dpb_status start(struct launch *l)
{
    const int ranks = l->config->ranks;
    /* Ignored, as some parents leave it, the kernel would throw the ranks' exit statuses away. */
    const struct sigaction keep_statuses = {.sa_handler = SIG_DFL};
    struct local *own = calloc(1, sizeof(*own) + (size_t)ranks * sizeof(own->child[0]));
    if (!own)
        return DPB_ERR_NO_MEMORY;
    own->board_fd = own->segment_fd = -1;
    l->own = own;
    sigaction(SIGCHLD, &keep_statuses, &own->sigchld_before);
    DPB_TRY(open_board(l, own));
    DPB_TRY(dpb_comm_segment_new(ranks, &own->segment_fd));
    for (int r = 0; r < ranks; r++)
        DPB_TRY(start_rank(l, r));
    for (int r = 0; r < ranks; r++)
        DPB_TRY(send_job(l, r));
    return DPB_OK;
}

/* ---- watch ---- */

/* Wait for one rank until the deadline; true when it is reaped. */
static bool reap(struct child *child, int64_t deadline_ns)
{
    while (!child->reaped) {
        pid_t got = waitpid(child->pid, &child->wait_status, WNOHANG);
        if (got == child->pid || (got < 0 && errno == ECHILD)) {
            child->reaped = true;
            break;
        }
        if (dpb_clock_now_ns() >= deadline_ns)
            return false;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 1000000);
    }
    return true;
}

static void exit_text(int wait_status, const char *when, char *text, size_t text_bytes)
{
    if (WIFSIGNALED(wait_status))
        snprintf(text, text_bytes, "was killed by signal %d (%s)%s", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)), when);
    else
        snprintf(text, text_bytes, "exited with code %d%s", WEXITSTATUS(wait_status), when);
}

static void how_it_ended(struct launch *l, int r, char how[LAUNCH_TEXT_BYTES])
{
    struct child *child = &((struct local *)l->own)->child[r];
    if (reap(child, dpb_clock_now_ns() + 1000000000))
        exit_text(child->wait_status, WIFSIGNALED(child->wait_status) ? "" : " without a result",
                  how, LAUNCH_TEXT_BYTES);
    else
        snprintf(how, LAUNCH_TEXT_BYTES, "closed its channel");
}

/* R, S, T, Z ...: its state in /proc/<pid>/stat; '?' when it cannot be read. */
static char process_state(long pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return '?';
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0)
        return '?';
    text[got] = '\0';
    const char *end = strrchr(text, ')'); /* the name before it may hold anything */
    return end && end[1] == ' ' ? end[2] : '?';
}

static bool is_stopped(const struct launch *l, int r, char how[LAUNCH_TEXT_BYTES])
{
    snprintf(how, LAUNCH_TEXT_BYTES, "is stopped (SIGSTOP?)");
    return process_state(l->rank[r].pid) == 'T';
}

/* ---- end ---- */

static dpb_status see_off(struct launch *l)
{
    struct local *own = l->own;
    int64_t deadline_ns = dpb_clock_now_ns() + REAP_NS;
    for (int r = 0; r < l->config->ranks; r++) {
        struct child *child = &own->child[r];
        char how[LAUNCH_TEXT_BYTES];
        if (!reap(child, deadline_ns)) {
            dpb_warn("rank %d (pid %d) does not end after its result, and is killed", r,
                     (int)child->pid);
        } else if (child->wait_status != 0) {
            exit_text(child->wait_status, " after its result", how, sizeof(how));
            launch_say(l, "rank %d (pid %d) %s", r, (int)child->pid, how);
            dpb_error("%s", l->result->reason);
            return DPB_ERR_RANK_FAILED;
        }
    }
    return DPB_OK;
}

/* One that waits in the kernel for a device that does not answer (state D), or that a debugger
 * holds, cannot be waited for. */
static void reap_killed(struct launch *l)
{
    struct local *own = l->own;
    const int64_t deadline_ns = dpb_clock_now_ns() + KILLED_NS;
    for (int r = 0; r < l->config->ranks; r++) {
        struct child *child = &own->child[r];
        if (child->pid <= 0 || reap(child, deadline_ns))
            continue;
        dpb_error("rank %d (pid %d) does not end though it was killed, and is left behind; it is "
                  "in state %c",
                  r, (int)child->pid, process_state(child->pid));
        dpb_log_hint("state D: a device or file system does not answer it; Z or t: a debugger "
                     "holds it. What it uses is not free for what comes next");
    }
}

static void end(struct launch *l)
{
    struct local *own = l->own;
    if (!own)
        return;
    for (int r = 0; r < l->config->ranks; r++)
        if (own->child[r].pid > 0 && !own->child[r].reaped)
            kill(own->child[r].pid, SIGKILL);
    if (own->group > 0)
        kill(-own->group, SIGKILL); /* what a rank may have started */
    reap_killed(l);
    sigaction(SIGCHLD, &own->sigchld_before, NULL);
    if (l->board)
        munmap(l->board, (size_t)l->config->ranks * sizeof(*l->board));
    if (own->board_fd >= 0)
        close(own->board_fd);
    if (own->segment_fd >= 0)
        close(own->segment_fd);
    free(own);
}

const struct launch_way launch_local = {
        .start = start,
        .how_it_ended = how_it_ended,
        .is_stopped = is_stopped,
        .see_off = see_off,
        .end = end,
};
