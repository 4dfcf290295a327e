#include "dpb_launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_board.h"
#include "dpb_channel.h"
#include "dpb_clock.h"
#include "dpb_comm.h"
#include "dpb_log.h"
#include "dpb_units.h"

#define POLL_MS  50
#define TICK_NS  100000000ll
#define GRACE_NS 300000000ll  /* for other ranks' errors to arrive, to find the root cause */
#define REAP_NS  5000000000ll /* after its result, for a rank to exit */
#define HIGH_FD  20           /* above every fixed descriptor */

struct rank {
    pid_t pid;
    int fd;
    struct dpb_str inbox;
    bool reaped;
    int wait_status;
    dpb_json *result;
    dpb_status error; /* reported by the rank itself */
    char error_text[512];
};

struct launch {
    const struct dpb_launch_config *config;
    struct dpb_launch_result *result;
    struct rank *rank;
    struct dpb_board *board;
    int board_fd, segment_fd, bulk_fd;
    pid_t group;
};

/* ---- start ---- */

static dpb_status memory_file(const char *name, size_t bytes, int *fd)
{
    int made = memfd_create(name, 0);
    if (made >= 0 && ftruncate(made, (off_t)bytes) == 0) {
        *fd = made;
        return DPB_OK;
    }
    dpb_error("cannot make %zu bytes of shared memory \"%s\": %s", bytes, name, strerror(errno));
    dpb_log_hint("free memory, or raise the limit on open files (ulimit -n)");
    if (made >= 0)
        close(made);
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
    int from[] = {fcntl(channel, F_DUPFD, HIGH_FD), fcntl(l->board_fd, F_DUPFD, HIGH_FD),
                  fcntl(l->segment_fd, F_DUPFD, HIGH_FD),
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
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        dpb_error("cannot make a socket for rank %d: %s", r, strerror(errno));
        dpb_log_hint("raise the limit on open files (ulimit -n)");
        return DPB_ERR_UNAVAILABLE;
    }
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, l->group);
        become_rank(l, pair[1], launcher);
    }
    close(pair[1]);
    if (pid < 0) {
        dpb_error("cannot start rank %d: %s", r, strerror(errno));
        dpb_log_hint("lower --ranks, or raise the limit on processes (ulimit -u)");
        close(pair[0]);
        return DPB_ERR_UNAVAILABLE;
    }
    if (l->group == 0)
        l->group = pid;
    setpgid(pid, l->group); /* both sides, whoever comes first */
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

static dpb_status start_all(struct launch *l)
{
    DPB_TRY(memory_file("dpbench-board", sizeof(struct dpb_board), &l->board_fd));
    l->board = mmap(NULL, sizeof(struct dpb_board), PROT_READ | PROT_WRITE, MAP_SHARED, l->board_fd,
                    0);
    if (l->board == MAP_FAILED) {
        l->board = NULL;
        dpb_error("cannot map the ranks' board: %s", strerror(errno));
        return DPB_ERR_NO_MEMORY;
    }
    DPB_TRY(dpb_comm_segment_new(l->config->ranks, &l->segment_fd));
    if (l->config->wants_bulk)
        DPB_TRY(memory_file("dpbench-bulk", 0, &l->bulk_fd));
    for (int r = 0; r < l->config->ranks; r++)
        DPB_TRY(start_rank(l, r));
    for (int r = 0; r < l->config->ranks; r++)
        DPB_TRY(send_job(l, r));
    return DPB_OK;
}

/* ---- end ---- */

/* Wait for one rank until the deadline; true when it is reaped. */
static bool reap(struct rank *rank, int64_t deadline_ns)
{
    while (!rank->reaped) {
        pid_t got = waitpid(rank->pid, &rank->wait_status, WNOHANG);
        if (got == rank->pid || (got < 0 && errno == ECHILD)) {
            rank->reaped = true;
            break;
        }
        if (dpb_clock_now_ns() >= deadline_ns)
            return false;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 1000000);
    }
    return true;
}

static void end_all(struct launch *l)
{
    for (int r = 0; r < l->config->ranks; r++)
        if (l->rank[r].pid > 0 && !l->rank[r].reaped)
            kill(l->rank[r].pid, SIGKILL);
    if (l->group > 0)
        kill(-l->group, SIGKILL); /* what a rank may have started */
    for (int r = 0; r < l->config->ranks; r++)
        if (l->rank[r].pid > 0)
            reap(&l->rank[r], INT64_MAX);
}

/* ---- watch ---- */

static void say(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keep the first reason. */
static void say(struct launch *l, const char *format, ...)
{
    if (l->result->reason[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(l->result->reason, sizeof(l->result->reason), format, args);
    va_end(args);
}

static void exit_text(int wait_status, const char *when, char *text, size_t text_bytes)
{
    if (WIFSIGNALED(wait_status))
        snprintf(text, text_bytes, "was killed by signal %d (%s)%s", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)), when);
    else
        snprintf(text, text_bytes, "exited with code %d%s", WEXITSTATUS(wait_status), when);
}

static dpb_status rank_is_gone(struct launch *l, int r)
{
    struct rank *rank = &l->rank[r];
    char where[96], how[96];
    dpb_board_text(&l->board->line[r], where, sizeof(where));
    if (reap(rank, dpb_clock_now_ns() + 1000000000))
        exit_text(rank->wait_status, WIFSIGNALED(rank->wait_status) ? "" : " without a result", how,
                  sizeof(how));
    else
        snprintf(how, sizeof(how), "closed its channel");
    say(l, "rank %d (pid %d) %s in %s", r, (int)rank->pid, how, where);
    dpb_error("%s%s", l->result->reason,
              l->config->ranks > 1 ? "; the other ranks were ended" : "");
    dpb_log_hint(
            "its own messages stand above; `dmesg` tells whether the kernel killed it for want "
            "of memory");
    return DPB_ERR_RANK_FAILED;
}

/* All have reported: see each to its end. A rank that closes slowly is only ended, but one that
 * crashes after its result has overwritten memory, and its result is worth nothing. */
static dpb_status see_off(struct launch *l)
{
    int64_t deadline_ns = dpb_clock_now_ns() + REAP_NS;
    for (int r = 0; r < l->config->ranks; r++) {
        struct rank *rank = &l->rank[r];
        char how[96];
        if (!reap(rank, deadline_ns)) {
            dpb_warn("rank %d (pid %d) does not end after its result, and is killed", r,
                     (int)rank->pid);
        } else if (rank->wait_status != 0) {
            exit_text(rank->wait_status, " after its result", how, sizeof(how));
            say(l, "rank %d (pid %d) %s", r, (int)rank->pid, how);
            dpb_error("%s", l->result->reason);
            return DPB_ERR_RANK_FAILED;
        }
    }
    return DPB_OK;
}

static dpb_status take_messages(struct launch *l, int r)
{
    struct rank *rank = &l->rank[r];
    dpb_status open = dpb_inbox_fill(rank->fd, &rank->inbox), taken;
    dpb_json *message = NULL;
    while ((taken = dpb_inbox_take(&rank->inbox, &message)) == DPB_OK) {
        const char *type = dpb_json_as_string(dpb_json_get(message, "type"), "");
        if (strcmp(type, "result") == 0) {
            dpb_json_free(rank->result);
            rank->result = message;
            message = NULL;
        } else {
            rank->error =
                    (dpb_status)dpb_json_as_int(dpb_json_get(message, "status"), DPB_ERR_INTERNAL);
            snprintf(rank->error_text, sizeof(rank->error_text), "%s",
                     dpb_json_as_string(dpb_json_get(message, "text"), ""));
        }
        dpb_json_free(message);
        message = NULL;
    }
    if (taken < 0) {
        say(l, "rank %d (pid %d) sent a message that cannot be read", r, (int)rank->pid);
        dpb_error("%s", l->result->reason);
        return taken;
    }
    if (open == DPB_END && !rank->result && rank->error == DPB_OK)
        return rank_is_gone(l, r);
    if (open == DPB_END) {
        close(rank->fd);
        rank->fd = -1;
    }
    return open < 0 ? open : DPB_OK;
}

/* R, S, T, Z ...: the process state of /proc/<pid>/stat; '?' when it cannot be read. */
static char process_state(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
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

/* The rank that keeps the others waiting: a stopped one, else the one that is least far. */
static int find_culprit(const struct launch *l)
{
    int worst = -1;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].result)
            continue;
        if (process_state(l->rank[r].pid) == 'T')
            return r;
        const struct dpb_board_line *line = &l->board->line[r];
        if (worst < 0 || line->step < l->board->line[worst].step ||
            (line->step == l->board->line[worst].step && line->phase < l->board->line[worst].phase))
            worst = r;
    }
    return worst;
}

static dpb_status timed_out(struct launch *l, const char *option, int64_t limit_ns)
{
    char where[96], limit[DPB_UNIT_TEXT_BYTES];
    bool stalled = strcmp(option, "stall-timeout") == 0;
    int r = find_culprit(l);
    dpb_format_duration(limit_ns, limit, sizeof(limit));
    if (r < 0) {
        say(l, "the ranks did not end within --%s %s", option, limit);
    } else {
        char state = process_state(l->rank[r].pid);
        dpb_board_text(&l->board->line[r], where, sizeof(where));
        say(l, "rank %d (pid %d) %s in %s: --%s %s is over", r, (int)l->rank[r].pid,
            state == 'T' ? "is stopped (SIGSTOP?)"
            : stalled    ? "makes no progress"
                         : "is still at work",
            where, option, limit);
    }
    dpb_error("%s; all ranks were ended", l->result->reason);
    for (int i = 0; i < l->config->ranks; i++) {
        dpb_board_text(&l->board->line[i], where, sizeof(where));
        dpb_info("  rank %d (pid %d, state %c): %s", i, (int)l->rank[i].pid,
                 process_state(l->rank[i].pid), l->rank[i].result ? "done" : where);
    }
    dpb_log_hint(stalled ? "a slow machine needs a larger --%s; a stopped or dead rank needs a "
                           "look at its host"
                         : "fewer --steps, or a larger --%s, which is for a whole launch",
                 option);
    return DPB_ERR_TIMEOUT;
}

/* The status to report when ranks reported errors: the one that is no echo of another's. */
static dpb_status root_cause(struct launch *l)
{
    int root = -1;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].error == DPB_OK)
            continue;
        bool echo = l->rank[r].error == DPB_ERR_RANK_FAILED || l->rank[r].error == DPB_ERR_TIMEOUT;
        bool root_is_echo = root >= 0 && (l->rank[root].error == DPB_ERR_RANK_FAILED ||
                                          l->rank[root].error == DPB_ERR_TIMEOUT);
        if (root < 0 || (root_is_echo && !echo))
            root = r;
    }
    if (root < 0)
        return DPB_OK;
    char where[96];
    dpb_board_text(&l->board->line[root], where, sizeof(where));
    say(l, "rank %d (pid %d) failed in %s: %s", root, (int)l->rank[root].pid, where,
        l->rank[root].error_text);
    dpb_error("%s", l->result->reason);
    return l->rank[root].error;
}

static void slowest(const struct launch *l, int64_t start_ns, int64_t *beat_ns, int64_t *step)
{
    *beat_ns = INT64_MAX;
    *step = INT64_MAX;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].result)
            continue;
        int64_t beat = l->board->line[r].beat_ns;
        *beat_ns = beat < *beat_ns ? beat : *beat_ns;
        *step = l->board->line[r].step < *step ? l->board->line[r].step : *step;
    }
    if (*beat_ns < start_ns)
        *beat_ns = start_ns;
}

static dpb_status watch(struct launch *l)
{
    const struct dpb_launch_config *config = l->config;
    struct pollfd fds[DPB_COMM_RANKS_MAX];
    int64_t start_ns = dpb_clock_now_ns(), next_tick_ns = start_ns, error_ns = 0;
    for (;;) {
        int open = 0, done = 0;
        for (int r = 0; r < config->ranks; r++) {
            done += l->rank[r].result != NULL;
            if (l->rank[r].fd >= 0)
                fds[open++] = (struct pollfd){.fd = l->rank[r].fd, .events = POLLIN};
        }
        if (done == config->ranks)
            return DPB_OK;
        poll(fds, (nfds_t)open, POLL_MS);
        if (config->interrupted && *config->interrupted) {
            say(l, "interrupted by signal %d (%s)", (int)*config->interrupted,
                strsignal((int)*config->interrupted));
            return DPB_ERR_INTERRUPTED;
        }
        bool error = false;
        for (int r = 0; r < config->ranks; r++) {
            if (l->rank[r].fd >= 0)
                DPB_TRY(take_messages(l, r));
            error |= l->rank[r].error != DPB_OK;
        }
        int64_t now_ns = dpb_clock_now_ns(), beat_ns, step;
        if (error && error_ns == 0)
            error_ns = now_ns;
        if (error && now_ns - error_ns >= GRACE_NS)
            return root_cause(l);
        slowest(l, start_ns, &beat_ns, &step);
        if (now_ns - start_ns > config->timeout_ns)
            return timed_out(l, "timeout", config->timeout_ns);
        if (beat_ns != INT64_MAX && now_ns - beat_ns > config->stall_timeout_ns)
            return timed_out(l, "stall-timeout", config->stall_timeout_ns);
        if (config->tick && now_ns >= next_tick_ns && step != INT64_MAX) {
            config->tick(config->tick_ctx, step);
            next_tick_ns = now_ns + TICK_NS;
        }
    }
}

static dpb_status take_bulk(struct launch *l)
{
    struct stat file;
    if (!l->config->wants_bulk)
        return DPB_OK;
    if (fstat(l->bulk_fd, &file) < 0) {
        dpb_error("cannot tell how large the ranks' results are: %s", strerror(errno));
        return DPB_ERR_IO;
    }
    if (file.st_size == 0)
        return DPB_OK;
    void *bulk = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, l->bulk_fd, 0);
    if (bulk == MAP_FAILED) {
        dpb_error("cannot map the ranks' results: %s", strerror(errno));
        return DPB_ERR_NO_MEMORY;
    }
    l->result->bulk = bulk;
    l->result->bulk_bytes = (size_t)file.st_size;
    return DPB_OK;
}

dpb_status dpb_launch_run(const struct dpb_launch_config *config, struct dpb_launch_result *result)
{
    memset(result, 0, sizeof(*result));
    struct launch l = {
            .config = config, .result = result, .board_fd = -1, .segment_fd = -1, .bulk_fd = -1};
    int64_t start_ns = dpb_clock_now_ns();
    /* Ignored, as some parents leave it, the kernel would throw the ranks' exit statuses away. */
    struct sigaction keep_statuses = {.sa_handler = SIG_DFL}, before;
    result->ranks = calloc((size_t)config->ranks, sizeof(*result->ranks));
    l.rank = calloc((size_t)config->ranks, sizeof(*l.rank));
    if (!result->ranks || !l.rank) {
        free(l.rank);
        return DPB_ERR_NO_MEMORY;
    }
    result->rank_count = config->ranks;
    for (int r = 0; r < config->ranks; r++)
        l.rank[r].fd = -1;
    sigaction(SIGCHLD, &keep_statuses, &before);
    dpb_status st;
    DPB_TRY_GOTO(st, start_all(&l), out);
    DPB_TRY_GOTO(st, watch(&l), out);
    DPB_TRY_GOTO(st, see_off(&l), out);
    DPB_TRY_GOTO(st, take_bulk(&l), out);
out:
    end_all(&l);
    sigaction(SIGCHLD, &before, NULL);
    if (st < 0)
        say(&l, "%s", dpb_status_text(st));
    for (int r = 0; r < config->ranks; r++) {
        result->ranks[r] = l.rank[r].result;
        dpb_str_release(&l.rank[r].inbox);
        if (l.rank[r].fd >= 0)
            close(l.rank[r].fd);
    }
    if (l.board)
        munmap(l.board, sizeof(struct dpb_board));
    int fds[] = {l.board_fd, l.segment_fd, l.bulk_fd};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(l.rank);
    result->wall_ns = dpb_clock_now_ns() - start_ns;
    return st;
}

void dpb_launch_result_release(struct dpb_launch_result *result)
{
    for (int r = 0; r < result->rank_count; r++)
        dpb_json_free(result->ranks[r]);
    free(result->ranks);
    if (result->bulk)
        munmap(result->bulk, result->bulk_bytes);
    memset(result, 0, sizeof(*result));
}
