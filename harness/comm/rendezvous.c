/* rendezvous.c: the rendezvous of ranks that share a segment. */
#include "rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "rank_text.h"
#include "shared_word.h"

#define WHAT_BYTES 32

/* ---- in the segment ---- */

/* One rank's part in an exchange. Two per rank, used in turn: a rank reaches call k + 2 only after
 * every rank has reached k + 1, hence finished reading about k. */
struct slot {
    char what[WHAT_BYTES];
    uint32_t bytes;
    _Alignas(16) unsigned char data[DPB_COMM_EXCHANGE_BYTES];
};

struct rank_area {
    _Alignas(DPB_SHARED_LINE) _Atomic int32_t pid;
    _Atomic uint64_t called;        /* the newest exchange it came to */
    _Atomic uint64_t started, done; /* dpb_rendezvous_note() */
    struct slot slot[2];
};

struct area {
    _Atomic int32_t size;
    _Atomic uint64_t closed; /* bit r: rank r has closed */
    struct dpb_shared_barrier meeting;
    /* The first failure of any rank. Written by the rank that claimed it, there when `failed` is
     * poisoned. */
    _Atomic uint32_t failure_claimed;
    int32_t failure_status;
    char failure_text[DPB_RENDEZVOUS_TEXT];
    struct dpb_shared_word failed;
    struct rank_area rank[DPB_COMM_RANKS_MAX];
};

/* ---- this rank's side ---- */

struct dpb_rendezvous {
    struct dpb_rendezvous_config config;
    struct area *area;
    size_t area_bytes;
    struct rank_area *self;
    uint64_t calls;
    pthread_mutex_t fail_lock;
    _Atomic int failure; /* a dpb_status, DPB_OK while all is well */
};

/* ---- failures ---- */

/* End this process's side with `st`, logging `text` unless it ended before. */
static dpb_status end_here(dpb_rendezvous *rendezvous, dpb_status st, const char *text,
                           const char *hint)
{
    pthread_mutex_lock(&rendezvous->fail_lock);
    dpb_status first = (dpb_status)atomic_load(&rendezvous->failure);
    if (first == DPB_OK) {
        first = st;
        dpb_error("%s", text);
        if (hint)
            dpb_log_hint("%s", hint);
        atomic_store(&rendezvous->failure, st);
    }
    pthread_mutex_unlock(&rendezvous->fail_lock);
    return first;
}

dpb_status dpb_rendezvous_fail(dpb_rendezvous *rendezvous, dpb_status st, const char *hint,
                               const char *format, ...)
{
    char text[DPB_RENDEZVOUS_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct area *area = rendezvous->area;
    uint32_t unclaimed = 0;
    if (atomic_compare_exchange_strong(&area->failure_claimed, &unclaimed, 1)) {
        area->failure_status = st;
        memcpy(area->failure_text, text, sizeof(text));
        dpb_shared_word_poison(&area->failed);
        dpb_shared_word_poison(&area->meeting.epoch);
    } else if (dpb_shared_word_is_poisoned(&area->failed)) {
        /* Two ranks found out at the same time: one status for all, each with its own words. */
        st = (dpb_status)area->failure_status;
    }
    return end_here(rendezvous, st, text, hint);
}

/* Take over the failure that another rank recorded. */
static dpb_status adopt(dpb_rendezvous *rendezvous, const char *subject)
{
    char text[DPB_RENDEZVOUS_TEXT + 256];
    /* The record came through shared memory: its text is bounded here, whatever is in it. */
    snprintf(text, sizeof(text), "%.200s failed: %.*s", subject, DPB_RENDEZVOUS_TEXT - 1,
             rendezvous->area->failure_text);
    return end_here(rendezvous, (dpb_status)rendezvous->area->failure_status, text, NULL);
}

dpb_status dpb_rendezvous_check(dpb_rendezvous *rendezvous, const char *subject)
{
    dpb_status st = (dpb_status)atomic_load(&rendezvous->failure);
    if (st == DPB_OK && dpb_shared_word_is_poisoned(&rendezvous->area->failed))
        st = adopt(rendezvous, subject);
    return st;
}

/* ---- what the ranks tell each other about themselves ---- */

void dpb_rendezvous_note(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done)
{
    atomic_store(&rendezvous->self->started, started);
    atomic_store(&rendezvous->self->done, done);
}

void dpb_rendezvous_notes(dpb_rendezvous *rendezvous, uint64_t *started, uint64_t *done)
{
    memset(started, 0, DPB_COMM_RANKS_MAX * sizeof(*started));
    memset(done, 0, DPB_COMM_RANKS_MAX * sizeof(*done));
    for (int r = 0; r < rendezvous->config.size; r++) {
        started[r] = atomic_load(&rendezvous->area->rank[r].started);
        done[r] = atomic_load(&rendezvous->area->rank[r].done);
    }
}

void dpb_rendezvous_pids(dpb_rendezvous *rendezvous, int32_t *pid)
{
    memset(pid, 0, DPB_COMM_RANKS_MAX * sizeof(*pid));
    for (int r = 0; r < rendezvous->config.size; r++)
        pid[r] = atomic_load(&rendezvous->area->rank[r].pid);
}

/* ---- meeting ---- */

static uint64_t behind(const dpb_rendezvous *rendezvous)
{
    uint64_t mask = 0;
    for (int r = 0; r < rendezvous->config.size; r++)
        if (atomic_load(&rendezvous->area->rank[r].called) < rendezvous->calls)
            mask |= (uint64_t)1 << r;
    return mask;
}

/* "rank 3 did not come (last seen at call #4)" */
static void append_missing(dpb_rendezvous *rendezvous, struct dpb_str *text, uint64_t mask,
                           const char *what_they_did)
{
    uint64_t at[DPB_COMM_RANKS_MAX] = {0};
    for (int r = 0; r < rendezvous->config.size; r++)
        at[r] = atomic_load(&rendezvous->area->rank[r].called);
    dpb_rank_text(text, mask);
    dpb_str_appendf(text, " %s (", what_they_did);
    dpb_rank_text_last_seen(text, mask, at, "call");
    dpb_str_append(text, ")");
}

static dpb_status fail_late(dpb_rendezvous *rendezvous, uint64_t mask, const char *subject)
{
    int32_t pid[DPB_COMM_RANKS_MAX];
    char timeout[DPB_UNIT_TEXT_BYTES];
    struct dpb_str text = {0};
    struct dpb_str hint = {0};
    dpb_format_duration(rendezvous->config.timeout_ns, timeout, sizeof(timeout));
    append_missing(rendezvous, &text, mask, "did not come");
    dpb_rendezvous_pids(rendezvous, pid);
    dpb_rank_text_hint(&hint, mask, pid);
    dpb_status st =
            dpb_rendezvous_fail(rendezvous, DPB_ERR_TIMEOUT, hint.text, "%s timed out after %s: %s",
                                subject, timeout, text.text ? text.text : "peers did not come");
    dpb_str_release(&text);
    dpb_str_release(&hint);
    return st;
}

static dpb_status fail_closed(dpb_rendezvous *rendezvous, uint64_t mask, const char *subject)
{
    struct dpb_str text = {0};
    append_missing(rendezvous, &text, mask, "ended before it");
    dpb_status st = dpb_rendezvous_fail(rendezvous, DPB_ERR_RANK_FAILED,
                                        "every rank must make the same calls in the same order",
                                        "%s cannot complete: %s", subject,
                                        text.text ? text.text : "a rank ended");
    dpb_str_release(&text);
    return st;
}

static dpb_status meet(dpb_rendezvous *rendezvous, const char *subject)
{
    struct area *area = rendezvous->area;
    struct dpb_shared_word *epoch = &area->meeting.epoch;
    const int64_t deadline_ns = dpb_clock_now_ns() + rendezvous->config.timeout_ns;
    dpb_shared_barrier_arrive(&area->meeting, rendezvous->calls, rendezvous->config.size);
    /* Only now: when no rank is behind, the epoch has moved. */
    atomic_store(&rendezvous->self->called, rendezvous->calls);
    for (;;) {
        /* Nudges before `closed`: a rank that closes sets its bit first, then nudges. */
        unsigned nudges = dpb_shared_word_nudges(epoch);
        uint64_t closed = atomic_load(&area->closed);
        if (closed)
            closed &= behind(rendezvous);
        if (closed) {
            /* Who ends after a failure ends because of it, and the failure is what is told. */
            dpb_status failed = dpb_rendezvous_check(rendezvous, subject);
            return failed < 0 ? failed : fail_closed(rendezvous, closed, subject);
        }
        switch (dpb_shared_word_wait(epoch, rendezvous->calls, nudges, deadline_ns, 0)) {
        case DPB_SHARED_REACHED:
            return DPB_OK;
        case DPB_SHARED_POISONED:
            return adopt(rendezvous, subject);
        case DPB_SHARED_NUDGED:
            break;
        case DPB_SHARED_LATE: {
            uint64_t missing = behind(rendezvous);
            if (missing == 0) /* the last one came after this rank had looked */
                break;
            return fail_late(rendezvous, missing, subject);
        }
        }
    }
}

static const struct slot *slot_of(const dpb_rendezvous *rendezvous, int rank)
{
    return &rendezvous->area->rank[rank].slot[rendezvous->calls & 1];
}

/* All ranks must have made the same call. */
static dpb_status check_alike(dpb_rendezvous *rendezvous, const char *what, size_t bytes)
{
    for (int r = 0; r < rendezvous->config.size; r++) {
        const struct slot *other = slot_of(rendezvous, r);
        if (other->bytes == bytes && strncmp(other->what, what, WHAT_BYTES - 1) == 0)
            continue;
        return dpb_rendezvous_fail(
                rendezvous, DPB_ERR_MISMATCH,
                "every rank must make the same calls in the same order",
                "rank %d: call #%" PRIu64 ": ranks disagree: rank %d: %s of %zu bytes; "
                "rank %d: %.*s of %u bytes",
                rendezvous->config.rank, rendezvous->calls, rendezvous->config.rank, what, bytes, r,
                WHAT_BYTES - 1, other->what, other->bytes);
    }
    return DPB_OK;
}

dpb_status dpb_rendezvous_exchange(dpb_rendezvous *rendezvous, const char *what, const void *mine,
                                   size_t bytes, void *all)
{
    char subject[80];
    if (bytes > DPB_COMM_EXCHANGE_BYTES) {
        dpb_error("rank %d: cannot exchange %zu bytes: at most %d are possible",
                  rendezvous->config.rank, bytes, DPB_COMM_EXCHANGE_BYTES);
        dpb_log_hint("exchange larger data in pieces, or as a collective");
        return DPB_ERR_USAGE;
    }
    snprintf(subject, sizeof(subject), "rank %d: %s #%" PRIu64, rendezvous->config.rank, what,
             rendezvous->calls + 1);
    DPB_TRY(dpb_rendezvous_check(rendezvous, subject));
    rendezvous->calls++;
    struct slot *slot = &rendezvous->self->slot[rendezvous->calls & 1];
    snprintf(slot->what, sizeof(slot->what), "%s", what);
    slot->bytes = (uint32_t)bytes;
    if (bytes > 0)
        memcpy(slot->data, mine, bytes);
    DPB_TRY(meet(rendezvous, subject));
    DPB_TRY(check_alike(rendezvous, what, bytes));
    for (int r = 0; bytes > 0 && r < rendezvous->config.size; r++)
        memcpy((char *)all + (size_t)r * bytes, slot_of(rendezvous, r)->data, bytes);
    return DPB_OK;
}

/* ---- open and close ---- */

static dpb_status check_config(const struct dpb_rendezvous_config *config)
{
    const char *problem = NULL;
    if (config->size < 1 || config->size > DPB_COMM_RANKS_MAX)
        problem = "1 to 64 ranks can meet on one machine";
    else if (config->rank < 0 || config->rank >= config->size)
        problem = "the rank is not among the ranks";
    else if (config->timeout_ns <= 0)
        problem = "the time-out must be positive";
    else if (config->segment_fd < 0)
        problem = "no shared segment was given (dpb_comm_segment_new)";
    if (!problem)
        return DPB_OK;
    dpb_error("rank %d of %d: cannot open %s: %s", config->rank, config->size, config->owner,
              problem);
    return DPB_ERR_USAGE;
}

static dpb_status map_area(dpb_rendezvous *rendezvous)
{
    const int fd = rendezvous->config.segment_fd;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = offsetof(struct area, rank) +
                   (size_t)rendezvous->config.size * sizeof(struct rank_area);
    bytes = (bytes + page - 1) / page * page;
    struct stat segment;
    void *area = MAP_FAILED;
    /* All ranks grow it to the same size, and nobody ever makes it smaller. */
    if (fstat(fd, &segment) == 0 &&
        (segment.st_size >= (off_t)bytes || ftruncate(fd, (off_t)bytes) == 0))
        area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED) {
        dpb_error("rank %d: cannot map the shared segment (descriptor %d): %s",
                  rendezvous->config.rank, fd, strerror(errno));
        dpb_log_hint("the launcher must pass on the descriptor that dpb_comm_segment_new() made");
        return DPB_ERR_IO;
    }
    rendezvous->area = area;
    rendezvous->area_bytes = bytes;
    rendezvous->self = &rendezvous->area->rank[rendezvous->config.rank];
    return DPB_OK;
}

/* One world: the same size on all ranks, and every rank once. */
static dpb_status take_place(dpb_rendezvous *rendezvous)
{
    const struct dpb_rendezvous_config *config = &rendezvous->config;
    int32_t size = 0;
    if (!atomic_compare_exchange_strong(&rendezvous->area->size, &size, config->size) &&
        size != config->size)
        return dpb_rendezvous_fail(rendezvous, DPB_ERR_MISMATCH,
                                   "start all ranks with the same --ranks",
                                   "rank %d was told that there are %d ranks, another rank was "
                                   "told %d",
                                   config->rank, config->size, size);
    int32_t pid = 0;
    if (!atomic_compare_exchange_strong(&rendezvous->self->pid, &pid, (int32_t)getpid()))
        return dpb_rendezvous_fail(rendezvous, DPB_ERR_MISMATCH,
                                   "every rank opens once, and a segment serves one communicator "
                                   "only",
                                   "rank %d is in use by process %d, so process %d cannot be it",
                                   config->rank, pid, (int)getpid());
    return DPB_OK;
}

static void release(dpb_rendezvous *rendezvous)
{
    if (rendezvous->area)
        munmap(rendezvous->area, rendezvous->area_bytes);
    pthread_mutex_destroy(&rendezvous->fail_lock);
    free(rendezvous);
}

dpb_status dpb_rendezvous_open(const struct dpb_rendezvous_config *config, dpb_rendezvous **opened)
{
    dpb_status st;
    DPB_TRY(check_config(config));
    dpb_rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
    if (!rendezvous) {
        dpb_error("rank %d: cannot open %s: out of memory", config->rank, config->owner);
        return DPB_ERR_NO_MEMORY;
    }
    rendezvous->config = *config;
    pthread_mutex_init(&rendezvous->fail_lock, NULL);
    DPB_TRY_GOTO(st, map_area(rendezvous), err);
    DPB_TRY_GOTO(st, take_place(rendezvous), err);
    DPB_TRY_GOTO(st, dpb_rendezvous_exchange(rendezvous, "open", NULL, 0, NULL), err);
    *opened = rendezvous;
    return DPB_OK;

err:
    release(rendezvous);
    return st;
}

void dpb_rendezvous_close(dpb_rendezvous *rendezvous)
{
    if (!rendezvous)
        return;
    atomic_fetch_or(&rendezvous->area->closed, (uint64_t)1 << rendezvous->config.rank);
    dpb_shared_word_nudge(&rendezvous->area->meeting.epoch);
    release(rendezvous);
}
