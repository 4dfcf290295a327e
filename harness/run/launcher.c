#include "dpb_launcher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_board.h"
#include "dpb_channel.h"
#include "dpb_clock.h"
#include "dpb_comm.h"
#include "dpb_log.h"
#include "dpb_units.h"
#include "launch.h"

#define POLL_MS  50
#define TICK_NS  100000000ll
#define GRACE_NS 300000000ll /* for other ranks' errors to arrive, to find the root cause */

dpb_status launch_memory_file(const char *name, size_t bytes, int *fd)
{
    int made = memfd_create(name, MFD_CLOEXEC);
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

/* ---- watch ---- */

void launch_say(struct launch *l, const char *format, ...)
{
    if (l->result->reason[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(l->result->reason, sizeof(l->result->reason), format, args);
    va_end(args);
}

static dpb_status rank_is_gone(struct launch *l, int r)
{
    struct launch_rank *rank = &l->rank[r];
    char where[96], how[LAUNCH_HOW_BYTES];
    dpb_board_text(&l->board[r], where, sizeof(where));
    l->way->how_it_ended(l, r, how);
    launch_say(l, "rank %d (pid %ld) %s in %s", r, rank->pid, how, where);
    dpb_error("%s%s", l->result->reason,
              l->config->ranks > 1 ? "; the other ranks were ended" : "");
    dpb_log_hint(
            "its own messages stand above; `dmesg` tells whether the kernel killed it for want "
            "of memory");
    return DPB_ERR_RANK_FAILED;
}

static dpb_status take_messages(struct launch *l, int r)
{
    struct launch_rank *rank = &l->rank[r];
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
        launch_say(l, "rank %d (pid %ld) sent a message that cannot be read", r, rank->pid);
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

/* The rank that keeps the others waiting: a stopped one, else the one that is least far. */
static int find_culprit(const struct launch *l)
{
    int worst = -1;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].result)
            continue;
        if (l->way->state(l, r) == 'T')
            return r;
        const struct dpb_board_line *line = &l->board[r];
        if (worst < 0 || line->step < l->board[worst].step ||
            (line->step == l->board[worst].step && line->phase < l->board[worst].phase))
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
        launch_say(l, "the ranks did not end within --%s %s", option, limit);
    } else {
        char state = l->way->state(l, r);
        dpb_board_text(&l->board[r], where, sizeof(where));
        launch_say(l, "rank %d (pid %ld) %s in %s: --%s %s is over", r, l->rank[r].pid,
                   state == 'T' ? "is stopped (SIGSTOP?)"
                   : stalled    ? "makes no progress"
                                : "is still at work",
                   where, option, limit);
    }
    dpb_error("%s; all ranks were ended", l->result->reason);
    for (int i = 0; i < l->config->ranks; i++) {
        dpb_board_text(&l->board[i], where, sizeof(where));
        dpb_info("  rank %d (pid %ld, state %c): %s", i, l->rank[i].pid, l->way->state(l, i),
                 l->rank[i].result ? "done" : where);
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
    dpb_board_text(&l->board[root], where, sizeof(where));
    launch_say(l, "rank %d (pid %ld) failed in %s: %s", root, l->rank[root].pid, where,
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
        int64_t beat = l->board[r].beat_ns;
        *beat_ns = beat < *beat_ns ? beat : *beat_ns;
        *step = l->board[r].step < *step ? l->board[r].step : *step;
    }
    if (*beat_ns < start_ns)
        *beat_ns = start_ns;
}

static dpb_status watch(struct launch *l)
{
    const struct dpb_launch_config *config = l->config;
    struct pollfd *fds = l->fds;
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
            launch_say(l, "interrupted by signal %d (%s)", (int)*config->interrupted,
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
    struct launch l = {.config = config, .result = result, .way = &launch_local, .bulk_fd = -1};
    int64_t start_ns = dpb_clock_now_ns();
    result->ranks = calloc((size_t)config->ranks, sizeof(*result->ranks));
    l.rank = calloc((size_t)config->ranks, sizeof(*l.rank));
    l.fds = calloc((size_t)config->ranks, sizeof(*l.fds));
    if (!result->ranks || !l.rank || !l.fds) {
        free(l.rank);
        free(l.fds);
        return DPB_ERR_NO_MEMORY;
    }
    result->rank_count = config->ranks;
    for (int r = 0; r < config->ranks; r++)
        l.rank[r].fd = -1;
    dpb_status st = DPB_OK;
    if (config->wants_bulk)
        DPB_TRY_GOTO(st, launch_memory_file("dpbench-bulk", 0, &l.bulk_fd), out);
    DPB_TRY_GOTO(st, l.way->start(&l), out);
    DPB_TRY_GOTO(st, watch(&l), out);
    DPB_TRY_GOTO(st, l.way->see_off(&l), out);
    DPB_TRY_GOTO(st, take_bulk(&l), out);
out:
    l.way->end(&l);
    if (st < 0)
        launch_say(&l, "%s", dpb_status_text(st));
    for (int r = 0; r < config->ranks; r++) {
        result->ranks[r] = l.rank[r].result;
        dpb_str_release(&l.rank[r].inbox);
        if (l.rank[r].fd >= 0)
            close(l.rank[r].fd);
    }
    if (l.bulk_fd >= 0)
        close(l.bulk_fd);
    free(l.rank);
    free(l.fds);
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
