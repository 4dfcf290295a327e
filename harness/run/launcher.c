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
#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_units.h"
#include "launch.h"

#define POLL_MS     50
#define TICK_NS     100000000ll
#define LISTED_MOST 16
#define GRACE_NS    300000000ll /* for other ranks' errors to arrive, to find the root cause */

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

void launch_say(struct launch *l, const char *format, ...)
{
    if (l->result->reason[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(l->result->reason, sizeof(l->result->reason), format, args);
    va_end(args);
}

const char *launch_name(const struct launch *l, int r, char name[LAUNCH_NAME_BYTES])
{
    const struct launch_rank *rank = &l->rank[r];
    snprintf(name, LAUNCH_NAME_BYTES, "rank %d (pid %ld%s%s)", r, rank->pid,
             rank->host ? " on " : "", rank->host ? rank->host : "");
    return name;
}

dpb_status launch_check_interrupt(struct launch *l)
{
    const volatile sig_atomic_t *interrupted = l->config->interrupted;
    if (!interrupted || !*interrupted)
        return DPB_OK;
    launch_say(l, "interrupted by signal %d (%s)", (int)*interrupted, strsignal((int)*interrupted));
    return DPB_ERR_INTERRUPTED;
}

/* ---- messages ---- */

static void take_message(struct launch_rank *rank, dpb_json *message)
{
    const char *type = dpb_json_as_string(dpb_json_get(message, "type"), "");
    if (strcmp(type, "result") == 0) {
        dpb_json_free(rank->result);
        rank->result = message;
        return;
    }
    rank->error = (dpb_status)dpb_json_as_int(dpb_json_get(message, "status"), DPB_ERR_INTERNAL);
    rank->ended = dpb_json_as_bool(dpb_json_get(message, "ended"), false);
    snprintf(rank->error_text, sizeof(rank->error_text), "%s",
             dpb_json_as_string(dpb_json_get(message, "text"), ""));
    dpb_json_free(message);
}

static dpb_status take_frame(struct launch *l, int r, const struct dpb_frame *frame)
{
    dpb_json *message = NULL;
    char why[256];
    if (frame->kind != DPB_FRAME_MESSAGE)
        return l->way->frame ? l->way->frame(l, r, frame) : DPB_ERR_CORRUPT;
    DPB_TRY(dpb_json_parse(frame->bytes, frame->count, &message, why));
    take_message(&l->rank[r], message);
    return DPB_OK;
}

static dpb_status take_frames(struct launch *l, int r)
{
    struct launch_rank *rank = &l->rank[r];
    struct dpb_frame frame;
    dpb_status st;
    while ((st = dpb_inbox_peek(&rank->inbox, &frame)) == DPB_OK) {
        DPB_TRY(take_frame(l, r, &frame));
        dpb_inbox_drop(&rank->inbox, &frame);
    }
    return st;
}

static void close_channel(const struct launch *l, struct launch_rank *rank, int why)
{
    close(rank->fd);
    rank->fd = -1;
    if (rank->error != DPB_OK || (rank->result && (rank->closed || !l->way->says_closed)))
        return;
    rank->lost_ns = dpb_clock_now_ns();
    rank->lost_errno = why;
}

dpb_status launch_take(struct launch *l, int r)
{
    struct launch_rank *rank = &l->rank[r];
    char name[LAUNCH_NAME_BYTES];
    const size_t before = rank->inbox.length;
    if (rank->fd < 0)
        return DPB_OK;
    dpb_status open = dpb_inbox_fill(rank->fd, &rank->inbox);
    const int why = errno;
    if (rank->inbox.length > before)
        rank->heard_ns = dpb_clock_now_ns();
    dpb_status taken = take_frames(l, r);
    if (taken < 0) {
        launch_say(l, "%s sent a message that cannot be read", launch_name(l, r, name));
        dpb_error("%s", l->result->reason);
        return taken;
    }
    if (open == DPB_END)
        close_channel(l, rank, why);
    return open < 0 ? open : DPB_OK;
}

void launch_flush(struct launch *l, int r)
{
    struct launch_rank *rank = &l->rank[r];
    if (rank->fd >= 0 && rank->outbox.length > 0)
        (void)dpb_outbox_flush(rank->fd, &rank->outbox); /* who is gone is found by reading */
}

/* ---- verdicts ---- */

/* What the ranks that have reported an error say: who was missing where. */
static void list_errors(const struct launch *l, int but)
{
    char name[LAUNCH_NAME_BYTES];
    int listed = 0;
    for (int r = 0; r < l->config->ranks && listed < LISTED_MOST; r++)
        if (r != but && l->rank[r].error != DPB_OK && !l->rank[r].ended && ++listed)
            dpb_info("  %s: %s", launch_name(l, r, name), l->rank[r].error_text);
}

static dpb_status rank_is_gone(struct launch *l, int r)
{
    char name[LAUNCH_NAME_BYTES], where[96], how[LAUNCH_TEXT_BYTES], waiting[LAUNCH_WAITING_BYTES];
    dpb_board_text(&l->board[r], where, sizeof(where));
    l->way->how_it_ended(l, r, how);
    launch_waiting_text(l, r, waiting, sizeof(waiting));
    launch_say(l, "%s %s in %s%s%s%s", launch_name(l, r, name), how, where, waiting,
               l->crew_how[0] ? "; " : "", l->crew_how);
    dpb_error("%s%s", l->result->reason,
              l->config->ranks > 1 ? "; the other ranks were ended" : "");
    dpb_log_hint(
            "its own messages stand above; `dmesg` tells whether the kernel killed it for want "
            "of memory");
    list_errors(l, r);
    return DPB_ERR_RANK_FAILED;
}

/* The rank that keeps the others waiting: a stopped one, else the one that is least far. */
static int find_culprit(const struct launch *l)
{
    char how[LAUNCH_TEXT_BYTES];
    int worst = -1;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].result)
            continue;
        if (l->way->is_stopped(l, r, how))
            return r;
        const struct dpb_board_line *line = &l->board[r];
        if (worst < 0 || line->step < l->board[worst].step ||
            (line->step == l->board[worst].step && line->phase < l->board[worst].phase))
            worst = r;
    }
    return worst;
}

void launch_list(const struct launch *l)
{
    char name[LAUNCH_NAME_BYTES], where[96], how[LAUNCH_TEXT_BYTES];
    const int ranks = l->config->ranks, shown = ranks > LISTED_MOST ? LISTED_MOST : ranks;
    for (int r = 0; r < shown; r++) {
        dpb_board_text(&l->board[r], where, sizeof(where));
        const bool stopped = l->way->is_stopped(l, r, how);
        dpb_info("  %s: %s%s%s", launch_name(l, r, name), l->rank[r].result ? "done" : where,
                 stopped ? ", " : "", stopped ? how : "");
    }
    if (ranks > shown)
        dpb_info("  and %d more", ranks - shown);
    list_errors(l, -1);
}

static dpb_status timed_out(struct launch *l, const char *option, int64_t limit_ns)
{
    char name[LAUNCH_NAME_BYTES], where[96], limit[DPB_UNIT_TEXT_BYTES], how[LAUNCH_TEXT_BYTES],
            waiting[LAUNCH_WAITING_BYTES] = "";
    bool stalled = strcmp(option, "stall-timeout") == 0;
    int r = find_culprit(l);
    dpb_format_duration(limit_ns, limit, sizeof(limit));
    if (r < 0) {
        launch_say(l, "the ranks did not end within --%s %s", option, limit);
    } else {
        if (!l->way->is_stopped(l, r, how))
            snprintf(how, sizeof(how), stalled ? "makes no progress" : "is still at work");
        dpb_board_text(&l->board[r], where, sizeof(where));
        if (stalled)
            launch_waiting_text(l, r, waiting, sizeof(waiting));
        launch_say(l, "%s %s in %s%s: --%s %s is over", launch_name(l, r, name), how, where,
                   waiting, option, limit);
    }
    dpb_error("%s; all ranks were ended", l->result->reason);
    dpb_log_hint(stalled ? "a slow machine needs a larger --%s; a stopped or dead rank needs a "
                           "look at its host"
                         : "fewer --steps, or a larger --%s, which is for a whole launch",
                 option);
    launch_list(l);
    return DPB_ERR_TIMEOUT;
}

/* How much an error says about what went wrong. */
enum weight {
    NO_ERROR,
    ENDED,   /* for another's sake */
    FOLLOWS, /* from what another rank did, or did not */
    FIRST_HAND
};

static enum weight weight(const struct launch_rank *rank)
{
    if (rank->error == DPB_OK)
        return NO_ERROR;
    if (rank->ended)
        return ENDED;
    return rank->error == DPB_ERR_RANK_FAILED || rank->error == DPB_ERR_TIMEOUT ? FOLLOWS
                                                                                : FIRST_HAND;
}

/* Whom a rank that waited in vain may have waited for: "; rank 3 (pid 12 on node2) is stopped". */
static void stopped_text(const struct launch *l, char *text, size_t text_bytes)
{
    char name[LAUNCH_NAME_BYTES], how[LAUNCH_TEXT_BYTES];
    text[0] = '\0';
    for (int r = 0; r < l->config->ranks && !text[0]; r++)
        if (!l->rank[r].result && l->way->is_stopped(l, r, how))
            snprintf(text, text_bytes, "; %s %s", launch_name(l, r, name), how);
}

static dpb_status rank_reported(struct launch *l, int r)
{
    char name[LAUNCH_NAME_BYTES], where[96],
            stopped[LAUNCH_NAME_BYTES + LAUNCH_TEXT_BYTES + 16] = "";
    if (weight(&l->rank[r]) < FIRST_HAND)
        stopped_text(l, stopped, sizeof(stopped));
    dpb_board_text(&l->board[r], where, sizeof(where));
    launch_say(l, "%s failed in %s: %s%s", launch_name(l, r, name), where, l->rank[r].error_text,
               stopped);
    dpb_error("%s", l->result->reason);
    return l->rank[r].error;
}

int launch_first_lost(const struct launch *l)
{
    int lost = -1;
    for (int r = 0; r < l->config->ranks; r++)
        if (l->rank[r].lost_ns && (lost < 0 || l->rank[r].lost_ns < l->rank[lost].lost_ns))
            lost = r;
    return lost;
}

/* DPB_OK while nothing is wrong, or more may still be heard of it. */
static dpb_status judge(struct launch *l, int64_t now_ns, int64_t *error_ns)
{
    const int lost = launch_first_lost(l);
    int root = -1;
    for (int r = 0; r < l->config->ranks; r++) {
        const struct launch_rank *rank = &l->rank[r];
        if (weight(rank) > (root < 0 ? NO_ERROR : weight(&l->rank[root])))
            root = r;
    }
    if (root >= 0 && *error_ns == 0)
        *error_ns = now_ns;
    const bool says_all = root >= 0 && weight(&l->rank[root]) == FIRST_HAND;
    if (lost >= 0 && !says_all) {
        const bool settled =
                l->crew_how[0] || now_ns - l->rank[lost].lost_ns >= l->way->lost_grace_ns;
        return settled ? rank_is_gone(l, lost) : DPB_OK;
    }
    return root >= 0 && now_ns - *error_ns >= GRACE_NS ? rank_reported(l, root) : DPB_OK;
}

/* ---- watch ---- */

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

/* Until one of the ranks says something, or somebody knocks. */
static void wait_for_news(struct launch *l)
{
    int more[LAUNCH_MORE_FDS];
    const int ranks = l->config->ranks;
    const size_t count = l->way->fds ? l->way->fds(l, more) : 0;
    for (int r = 0; r < ranks; r++) {
        const short unsent = l->rank[r].outbox.length > 0 ? POLLOUT : 0;
        l->fds[r] = (struct pollfd){.fd = l->rank[r].fd, .events = (short)(POLLIN | unsent)};
    }
    for (size_t i = 0; i < count; i++)
        l->fds[(size_t)ranks + i] = (struct pollfd){.fd = more[i], .events = POLLIN};
    (void)poll(l->fds, (nfds_t)((size_t)ranks + count), POLL_MS);
}

dpb_status launch_turn(struct launch *l)
{
    wait_for_news(l);
    DPB_TRY(launch_check_interrupt(l));
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->fds[r].revents & POLLOUT)
            launch_flush(l, r);
        if (l->fds[r].revents & ~POLLOUT)
            DPB_TRY(launch_take(l, r));
    }
    return l->way->turn ? l->way->turn(l, dpb_clock_now_ns()) : DPB_OK;
}

static bool all_reported(const struct launch *l)
{
    int done = 0;
    for (int r = 0; r < l->config->ranks; r++)
        done += l->rank[r].result != NULL;
    return done == l->config->ranks;
}

static dpb_status watch(struct launch *l)
{
    const struct dpb_launch_config *config = l->config;
    int64_t start_ns = dpb_clock_now_ns(), next_tick_ns = start_ns, error_ns = 0;
    while (!all_reported(l)) {
        DPB_TRY(launch_turn(l));
        int64_t now_ns = dpb_clock_now_ns(), beat_ns, step;
        DPB_TRY(judge(l, now_ns, &error_ns));
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
    return DPB_OK;
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
    struct launch l = {.config = config,
                       .result = result,
                       .way = config->crew ? &launch_remote : &launch_local,
                       .bulk_fd = -1};
    int64_t start_ns = dpb_clock_now_ns();
    result->ranks = calloc((size_t)config->ranks, sizeof(*result->ranks));
    l.rank = calloc((size_t)config->ranks, sizeof(*l.rank));
    l.fds = calloc((size_t)config->ranks + LAUNCH_MORE_FDS, sizeof(*l.fds));
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
        dpb_str_release(&l.rank[r].outbox);
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
    dpb_json_free(result->world);
    if (result->bulk)
        munmap(result->bulk, result->bulk_bytes);
    memset(result, 0, sizeof(*result));
}
