/* rendezvous.c: how ranks meet, whatever carries it: calls, failures, and what is said about them.
 */
#include "rendezvous_private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "rank_text.h"

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
    struct dpb_rendezvous_failure failure = {.status = st};
    va_list args;
    va_start(args, format);
    vsnprintf(failure.text, sizeof(failure.text), format, args);
    va_end(args);
    /* When two ranks find out at the same time: one status for all, each with its own words. */
    st = rendezvous->transport->record(rendezvous, &failure);
    return end_here(rendezvous, st, failure.text, hint);
}

/* Take over the failure that another rank recorded. */
static dpb_status adopt(dpb_rendezvous *rendezvous, const char *subject)
{
    struct dpb_rendezvous_failure failure;
    char text[DPB_RENDEZVOUS_TEXT + 256];
    rendezvous->transport->read_failure(rendezvous, &failure);
    /* The record came from elsewhere: its text is bounded here, whatever is in it. */
    snprintf(text, sizeof(text), "%.200s failed: %.*s", subject, DPB_RENDEZVOUS_TEXT - 1,
             failure.text);
    return end_here(rendezvous, failure.status < 0 ? (dpb_status)failure.status : DPB_ERR_INTERNAL,
                    text, NULL);
}

dpb_status dpb_rendezvous_check(dpb_rendezvous *rendezvous, const char *subject)
{
    dpb_status st = (dpb_status)atomic_load(&rendezvous->failure);
    if (st == DPB_OK && rendezvous->transport->failed(rendezvous))
        st = adopt(rendezvous, subject);
    return st;
}

/* ---- what the ranks tell each other about themselves ---- */

void dpb_rendezvous_note(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done)
{
    rendezvous->transport->note(rendezvous, started, done);
}

void dpb_rendezvous_survey(dpb_rendezvous *rendezvous, struct dpb_rendezvous_seen *seen)
{
    memset(seen, 0, (size_t)rendezvous->config.size * sizeof(*seen));
    (void)rendezvous->transport->survey(rendezvous, seen);
}

/* ---- meeting ---- */

/* Those who have not come to this call; with `closed`, of them those who never will. */
struct behind {
    struct dpb_rendezvous_seen *seen;
    struct dpb_rank_seen *rank;
    int count;
};

static void behind_release(struct behind *behind)
{
    free(behind->seen);
    free(behind->rank);
}

static dpb_status find_behind(dpb_rendezvous *rendezvous, bool closed, const char *subject,
                              struct behind *behind)
{
    const size_t size = (size_t)rendezvous->config.size;
    *behind = (struct behind){calloc(size, sizeof(*behind->seen)),
                              calloc(size, sizeof(*behind->rank)), 0};
    if (!behind->seen || !behind->rank)
        return dpb_rendezvous_fail(rendezvous, DPB_ERR_NO_MEMORY, NULL, "%s: out of memory",
                                   subject);
    if (!rendezvous->transport->survey(rendezvous, behind->seen))
        return dpb_rendezvous_check(rendezvous, subject);
    for (size_t r = 0; r < size; r++) {
        const struct dpb_rendezvous_seen *seen = &behind->seen[r];
        const bool listed = seen->called < rendezvous->calls && (seen->closed || !closed);
        behind->rank[r] = (struct dpb_rank_seen){.listed = listed,
                                                 .at = seen->called,
                                                 .pid = seen->pid,
                                                 .host = seen->host[0] ? seen->host : NULL};
        behind->count += listed;
    }
    return DPB_OK;
}

/* "rank 3 did not come (last seen at call #4)" */
static void append_missing(const dpb_rendezvous *rendezvous, struct dpb_str *text,
                           const struct dpb_rank_seen *rank, const char *what_they_did)
{
    const int size = rendezvous->config.size;
    dpb_rank_text(text, rank, size);
    dpb_str_appendf(text, " %s (", what_they_did);
    dpb_rank_text_last_seen(text, rank, size, "call");
    dpb_str_append(text, ")");
}

static dpb_status fail_late(dpb_rendezvous *rendezvous, const struct dpb_rank_seen *rank,
                            const char *subject)
{
    char timeout[DPB_UNIT_TEXT_BYTES];
    struct dpb_str text = {0};
    struct dpb_str hint = {0};
    dpb_format_duration(rendezvous->config.timeout_ns, timeout, sizeof(timeout));
    append_missing(rendezvous, &text, rank, "did not come");
    dpb_rank_text_hint(&hint, rank, rendezvous->config.size);
    dpb_status st =
            dpb_rendezvous_fail(rendezvous, DPB_ERR_TIMEOUT, hint.text, "%s timed out after %s: %s",
                                subject, timeout, text.text ? text.text : "peers did not come");
    dpb_str_release(&text);
    dpb_str_release(&hint);
    return st;
}

static dpb_status fail_closed(dpb_rendezvous *rendezvous, const struct dpb_rank_seen *rank,
                              const char *subject)
{
    struct dpb_str text = {0};
    append_missing(rendezvous, &text, rank, "ended before it");
    dpb_status st = dpb_rendezvous_fail(rendezvous, DPB_ERR_RANK_FAILED,
                                        "every rank must make the same calls in the same order",
                                        "%s cannot complete: %s", subject,
                                        text.text ? text.text : "a rank ended");
    dpb_str_release(&text);
    return st;
}

/* A rank has closed, or it is late: DPB_PENDING when there is no reason to end. */
static dpb_status look_around(dpb_rendezvous *rendezvous, bool late, const char *subject)
{
    struct behind behind;
    dpb_status st = find_behind(rendezvous, !late, subject, &behind);
    if (st == DPB_OK) {
        /* Who ends after a failure ends because of it, and the failure is what is told. */
        st = dpb_rendezvous_check(rendezvous, subject);
        if (st == DPB_OK && behind.count == 0) /* the last one came after this rank had looked */
            st = DPB_PENDING;
        else if (st == DPB_OK)
            st = late ? fail_late(rendezvous, behind.rank, subject)
                      : fail_closed(rendezvous, behind.rank, subject);
    }
    behind_release(&behind);
    return st;
}

static dpb_status meet(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *part,
                       const void *data, const char *subject)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + rendezvous->config.timeout_ns;
    rendezvous->transport->arrive(rendezvous, part, data);
    for (;;) {
        enum dpb_shared_wake wake = rendezvous->transport->wait(rendezvous, deadline_ns);
        if (wake == DPB_SHARED_REACHED)
            return DPB_OK;
        if (wake == DPB_SHARED_POISONED)
            return adopt(rendezvous, subject);
        DPB_TRY(look_around(rendezvous, wake == DPB_SHARED_LATE, subject));
    }
}

/* All ranks must have made the same call. */
static dpb_status check_alike(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *mine)
{
    struct dpb_rendezvous_part other;
    const int rank = rendezvous->transport->find_other(rendezvous, mine, &other);
    if (rank < 0)
        return DPB_OK;
    return dpb_rendezvous_fail(
            rendezvous, DPB_ERR_MISMATCH, "every rank must make the same calls in the same order",
            "rank %d: call #%" PRIu64 ": ranks disagree: rank %d: %s of %" PRIu32
            " bytes; rank %d: %.*s of %" PRIu32 " bytes",
            rendezvous->config.rank, rendezvous->calls, rendezvous->config.rank, mine->what,
            mine->bytes, rank, DPB_RENDEZVOUS_WHAT - 1, other.what, other.bytes);
}

dpb_status dpb_rendezvous_exchange(dpb_rendezvous *rendezvous, const char *what, const void *mine,
                                   size_t bytes, void *all)
{
    struct dpb_rendezvous_part part = {.bytes = (uint32_t)bytes};
    char subject[80];
    if (bytes > DPB_COMM_EXCHANGE_BYTES) {
        dpb_error("rank %d: cannot exchange %zu bytes: at most %d are possible",
                  rendezvous->config.rank, bytes, DPB_COMM_EXCHANGE_BYTES);
        dpb_log_hint("exchange larger data in pieces, or as a collective");
        return DPB_ERR_USAGE;
    }
    snprintf(part.what, sizeof(part.what), "%s", what);
    snprintf(subject, sizeof(subject), "rank %d: %s #%" PRIu64, rendezvous->config.rank, what,
             rendezvous->calls + 1);
    DPB_TRY(dpb_rendezvous_check(rendezvous, subject));
    rendezvous->calls++;
    DPB_TRY(meet(rendezvous, &part, mine, subject));
    DPB_TRY(check_alike(rendezvous, &part));
    if (bytes > 0)
        rendezvous->transport->collect(rendezvous, bytes, all);
    return DPB_OK;
}

/* ---- open and close ---- */

static dpb_status check_config(const struct dpb_rendezvous_config *config)
{
    const char *problem = NULL;
    if (config->size < 1 || config->size > DPB_COMM_WORLD_RANKS_MAX)
        problem = "1 to 4096 ranks can meet";
    else if (!config->server && config->size > DPB_COMM_RANKS_MAX)
        problem = "1 to 64 ranks can meet in one machine's memory";
    else if (config->rank < 0 || config->rank >= config->size)
        problem = "the rank is not among the ranks";
    else if (config->timeout_ns <= 0)
        problem = "the time-out must be positive";
    else if (!config->server && config->segment_fd < 0)
        problem = "no shared segment was given (dpb_comm_segment_new)";
    if (!problem)
        return DPB_OK;
    dpb_error("rank %d of %d: cannot open %s: %s", config->rank, config->size, config->owner,
              problem);
    return DPB_ERR_USAGE;
}

static void release(dpb_rendezvous *rendezvous)
{
    if (rendezvous->state)
        rendezvous->transport->release(rendezvous);
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
    rendezvous->transport = config->server ? &dpb_rendezvous_tcp : &dpb_rendezvous_segment;
    pthread_mutex_init(&rendezvous->fail_lock, NULL);
    DPB_TRY_GOTO(st, rendezvous->transport->open(rendezvous), err);
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
    rendezvous->transport->close(rendezvous);
    release(rendezvous);
}
