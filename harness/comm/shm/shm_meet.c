/* shm_meet.c: waiting for peers, with a deadline and a message that names who did not come. */
#include "shm_private.h"

#include <inttypes.h>
#include <stdio.h>

#include "dpb_clock.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "rank_text.h"

static struct dpb_shared_barrier *barrier_of(struct dpb_shm_comm *comm,
                                             enum dpb_shm_progress progress)
{
    switch (progress) {
    case DPB_SHM_READY:
        return &comm->control->ready;
    case DPB_SHM_DONE:
        return &comm->control->done;
    case DPB_SHM_CALLED:
    case DPB_SHM_PROGRESS_COUNT:
        break;
    }
    return &comm->control->call;
}

static _Atomic uint64_t *counter_of(struct dpb_shm_comm *comm, int rank,
                                    enum dpb_shm_progress progress)
{
    struct dpb_shm_rank *r = &comm->control->rank[rank];
    switch (progress) {
    case DPB_SHM_READY:
        return &r->ready;
    case DPB_SHM_DONE:
        return &r->done;
    case DPB_SHM_CALLED:
    case DPB_SHM_PROGRESS_COUNT:
        break;
    }
    return &r->called;
}

static uint64_t behind(struct dpb_shm_comm *comm, enum dpb_shm_progress progress, uint64_t number)
{
    uint64_t mask = 0;
    for (int r = 0; r < comm->base.size; r++)
        if (atomic_load(counter_of(comm, r, progress)) < number)
            mask |= (uint64_t)1 << r;
    return mask;
}

/* What is known of the ranks of `mask`, by what `progress` counts. */
static void look_at(struct dpb_shm_comm *comm, uint64_t mask, enum dpb_shm_progress progress,
                    struct dpb_rank_seen seen[DPB_COMM_RANKS_MAX])
{
    if (progress == DPB_SHM_DONE)
        progress = DPB_SHM_READY;
    for (int r = 0; r < comm->base.size; r++)
        seen[r] = (struct dpb_rank_seen){
                .listed = mask >> r & 1,
                .at = atomic_load(counter_of(comm, r, progress)),
                .pid = atomic_load(&comm->control->rank[r].pid),
        };
}

/* "rank 3 did not come (last seen at collective #16)" */
static void append_missing(struct dpb_shm_comm *comm, struct dpb_str *text,
                           const struct dpb_rank_seen *seen, const char *what_they_did,
                           const char *counted)
{
    dpb_rank_text(text, seen, comm->base.size);
    dpb_str_appendf(text, " %s (", what_they_did);
    dpb_rank_text_last_seen(text, seen, comm->base.size, counted);
    dpb_str_append(text, ")");
}

static dpb_status fail_late(struct dpb_shm_comm *comm, enum dpb_shm_progress progress,
                            uint64_t mask, const char *did_not,
                            const struct dpb_shm_subject *subject)
{
    struct dpb_rank_seen seen[DPB_COMM_RANKS_MAX];
    char what[160];
    char timeout[DPB_UNIT_TEXT_BYTES];
    dpb_shm_subject_text(comm, subject, what, sizeof(what));
    dpb_format_duration(comm->timeout_ns, timeout, sizeof(timeout));
    struct dpb_str text = {0};
    struct dpb_str hint = {0};
    look_at(comm, mask, progress, seen);
    append_missing(comm, &text, seen, did_not, subject->counted);
    dpb_rank_text_hint(&hint, seen, comm->base.size);
    dpb_status st = dpb_shm_fail(comm, DPB_ERR_TIMEOUT, hint.text, "%s timed out after %s: %s",
                                 what, timeout, text.text ? text.text : "peers did not come");
    dpb_str_release(&text);
    dpb_str_release(&hint);
    return st;
}

static dpb_status fail_closed(struct dpb_shm_comm *comm, enum dpb_shm_progress progress,
                              uint64_t mask, const struct dpb_shm_subject *subject)
{
    struct dpb_rank_seen seen[DPB_COMM_RANKS_MAX];
    char what[160];
    dpb_shm_subject_text(comm, subject, what, sizeof(what));
    struct dpb_str text = {0};
    look_at(comm, mask, progress, seen);
    append_missing(comm, &text, seen, "ended before it", subject->counted);
    dpb_status st =
            dpb_shm_fail(comm, DPB_ERR_RANK_FAILED,
                         "every rank must take part in the same collectives and calls",
                         "%s cannot complete: %s", what, text.text ? text.text : "a rank ended");
    dpb_str_release(&text);
    return st;
}

/* Tell the others that this rank is there. Returns the word that says when all are. */
static struct dpb_shared_word *arrive(struct dpb_shm_comm *comm, enum dpb_shm_progress progress,
                                      uint64_t meeting)
{
    struct dpb_shared_word *word;
    if (comm->base.size == 2) {
        if (progress == DPB_SHM_READY)
            atomic_store_explicit(&dpb_shm_slot_of(comm, comm->base.rank, meeting)->number, meeting,
                                  memory_order_release);
        dpb_shared_word_post(&comm->self->met[progress]);
        word = &comm->control->rank[1 - comm->base.rank].met[progress];
    } else {
        struct dpb_shared_barrier *barrier = barrier_of(comm, progress);
        dpb_shared_barrier_arrive(barrier, meeting, comm->base.size);
        word = &barrier->epoch;
    }
    /* Only now: when no rank is behind, the word has moved. */
    atomic_store_explicit(counter_of(comm, comm->base.rank, progress), meeting,
                          memory_order_release);
    return word;
}

static dpb_status sleep_for(struct dpb_shm_comm *comm, struct dpb_shared_word *word,
                            enum dpb_shm_progress progress, uint64_t meeting,
                            const struct dpb_shm_subject *subject, int64_t deadline_ns)
{
    for (;;) {
        /* Nudges before `closed`: a rank that closes sets its bit first, then nudges. */
        unsigned nudges = dpb_shared_word_nudges(word);
        uint64_t closed = atomic_load(&comm->control->closed);
        if (closed)
            closed &= behind(comm, progress, meeting);
        if (closed) {
            /* Who ends after a failure ends because of it, and the failure is what is told. */
            dpb_status failed = dpb_shm_check(comm, subject);
            return failed < 0 ? failed : fail_closed(comm, progress, closed, subject);
        }
        switch (dpb_shared_word_wait(word, meeting, nudges, deadline_ns, 0)) {
        case DPB_SHARED_REACHED:
            return DPB_OK;
        case DPB_SHARED_POISONED:
            return dpb_shm_adopt(comm, subject);
        case DPB_SHARED_NUDGED:
            break;
        case DPB_SHARED_LATE: {
            uint64_t missing = behind(comm, progress, meeting);
            if (missing == 0) /* the last one came after we had looked */
                break;
            return fail_late(comm, progress, missing,
                             progress == DPB_SHM_DONE ? "did not finish" : "did not come", subject);
        }
        }
    }
}

/* None while a rank that is behind waits for the core that this one would spin on. */
static int spins_of(struct dpb_shm_comm *comm, const struct dpb_shm_patience *patience,
                    enum dpb_shm_progress progress, uint64_t meeting)
{
    if (comm->neighbours == 0)
        return patience->spins;
    for (uint64_t rest = comm->neighbours; rest != 0; rest &= rest - 1)
        if (atomic_load_explicit(counter_of(comm, __builtin_ctzll(rest), progress),
                                 memory_order_relaxed) < meeting)
            return 0;
    return patience->alone_spins;
}

static bool spin(struct dpb_shm_comm *comm, struct dpb_shared_word *word,
                 enum dpb_shm_progress progress, uint64_t meeting, int spins)
{
    if (progress == DPB_SHM_READY && comm->base.size == 2)
        return dpb_shared_spin(&dpb_shm_slot_of(comm, 1 - comm->base.rank, meeting)->number,
                               meeting, spins);
    return dpb_shared_word_spin(word, meeting, spins, 0);
}

dpb_status dpb_shm_meet(struct dpb_shm_comm *comm, enum dpb_shm_progress progress, uint64_t meeting,
                        const struct dpb_shm_subject *subject, int64_t deadline_ns)
{
    struct dpb_shared_word *word = arrive(comm, progress, meeting);
    const struct dpb_shm_patience *patience =
            progress == DPB_SHM_CALLED ? &comm->background : &comm->patience;
    int yields = patience->yields;
    do {
        if (spin(comm, word, progress, meeting, spins_of(comm, patience, progress, meeting)))
            return DPB_OK;
    } while (yields-- > 0 && sched_yield() == 0);
    if (deadline_ns == DPB_SHM_LAZY)
        deadline_ns = dpb_clock_now_ns() + comm->timeout_ns;
    return sleep_for(comm, word, progress, meeting, subject, deadline_ns);
}

/* The ranks that hold up the others: those that are not through, and for whose next step
 * everything is there. */
static uint64_t laggards(struct dpb_shm_comm *comm, const struct dpb_schedule *schedule)
{
    struct dpb_schedule other = *schedule;
    uint64_t ticks[DPB_COMM_RANKS_MAX];
    uint64_t mask = 0;
    for (int r = 0; r < comm->base.size; r++)
        ticks[r] = dpb_shared_word_count(&comm->control->rank[r].ticks) - comm->ticks_base;
    for (int r = 0; r < comm->base.size; r++) {
        struct dpb_schedule_step step;
        if (ticks[r] >= 2 * (uint64_t)schedule->rounds)
            continue;
        other.rank = r;
        dpb_schedule_step(&other, (int64_t)(ticks[r] / 2), &step);
        if (step.from < 0 || ticks[step.from] >= ticks[r])
            mask |= (uint64_t)1 << r;
    }
    return mask;
}

dpb_status dpb_shm_follow(struct dpb_shm_comm *comm, int peer, uint64_t ticks,
                          const struct dpb_schedule *schedule,
                          const struct dpb_shm_subject *subject, int64_t deadline_ns)
{
    struct dpb_shared_word *word = &comm->control->rank[peer].ticks;
    ticks += comm->ticks_base;
    if (dpb_shared_word_spin(word, ticks, comm->patience.spins, comm->patience.yields))
        return DPB_OK;
    for (;;) {
        switch (dpb_shared_word_wait(word, ticks, 0, deadline_ns, 0)) {
        case DPB_SHARED_REACHED:
            return DPB_OK;
        case DPB_SHARED_POISONED:
            return dpb_shm_adopt(comm, subject);
        case DPB_SHARED_NUDGED: /* nobody nudges these words */
        case DPB_SHARED_LATE:
            break;
        }
        uint64_t missing = laggards(comm, schedule);
        if (missing & (uint64_t)1 << comm->base.rank) /* it came after we had looked */
            continue;
        return fail_late(comm, DPB_SHM_READY, missing, "did not go on", subject);
    }
}
