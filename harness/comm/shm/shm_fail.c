/* shm_fail.c: a failure is told once in each process, and to all ranks.
 *
 * The first rank that fails writes what happened into the segment and poisons every word that
 * others may be asleep on; they wake up, read it, and end with the same status. */
#include "shm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

void dpb_shm_subject_text(const struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject,
                          char *text, size_t text_bytes)
{
    char tag[32] = "";
    if (subject->tag >= 0)
        snprintf(tag, sizeof(tag), " (bucket %d)", subject->tag);
    snprintf(text, text_bytes, "rank %d: %s #%" PRIu64 "%s", comm->base.rank, subject->name,
             subject->number, tag);
}

static void poison_all(struct dpb_shm_comm *comm)
{
    struct dpb_shm_control *control = comm->control;
    dpb_shared_word_poison(&control->failed);
    dpb_shared_word_poison(&control->ready.epoch);
    dpb_shared_word_poison(&control->done.epoch);
    dpb_shared_word_poison(&control->call.epoch);
    for (int r = 0; r < comm->base.size; r++) {
        dpb_shared_word_poison(&control->rank[r].ticks);
        for (int p = 0; p < DPB_SHM_PROGRESS_COUNT; p++)
            dpb_shared_word_poison(&control->rank[r].met[p]);
    }
}

/* End this process's side with `st`, logging `text` unless it ended before. */
static dpb_status end_here(struct dpb_shm_comm *comm, dpb_status st, const char *text,
                           const char *hint)
{
    pthread_mutex_lock(&comm->fail_lock);
    dpb_status first = (dpb_status)atomic_load(&comm->failure);
    if (first == DPB_OK) {
        first = st;
        dpb_error("%s", text);
        if (hint)
            dpb_log_hint("%s", hint);
        atomic_store(&comm->failure, st);
        dpb_shared_word_poison(&comm->completed);
    }
    pthread_mutex_unlock(&comm->fail_lock);
    return first;
}

dpb_status dpb_shm_fail(struct dpb_shm_comm *comm, dpb_status st, const char *hint,
                        const char *format, ...)
{
    char text[DPB_SHM_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    struct dpb_shm_control *control = comm->control;
    uint32_t unclaimed = 0;
    if (atomic_compare_exchange_strong(&control->failure_claimed, &unclaimed, 1)) {
        control->failure_status = st;
        memcpy(control->failure_text, text, sizeof(text));
        poison_all(comm);
    } else if (dpb_shared_word_is_poisoned(&control->failed)) {
        /* Two ranks found out at the same time: one status for all, each with its own words. */
        st = (dpb_status)control->failure_status;
    }
    return end_here(comm, st, text, hint);
}

dpb_status dpb_shm_adopt(struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject)
{
    const struct dpb_shm_control *control = comm->control;
    char what[160];
    char text[DPB_SHM_TEXT + 256];
    dpb_shm_subject_text(comm, subject, what, sizeof(what));
    /* The record came through shared memory: its text is bounded here, whatever is in it. */
    snprintf(text, sizeof(text), "%s failed: %.*s", what, DPB_SHM_TEXT - 1, control->failure_text);
    return end_here(comm, (dpb_status)control->failure_status, text, NULL);
}

dpb_status dpb_shm_check(struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject)
{
    dpb_status st = (dpb_status)atomic_load(&comm->failure);
    if (st == DPB_OK && dpb_shared_word_is_poisoned(&comm->control->failed))
        st = dpb_shm_adopt(comm, subject);
    return st;
}
