/* rendezvous_segment.c: ranks of one machine meet in memory that they share. */
#include "rendezvous_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"

/* ---- in the segment ---- */

/* One rank's part in an exchange. Two per rank, used in turn: a rank reaches call k + 2 only after
 * every rank has reached k + 1, hence finished reading about k. */
struct slot {
    struct dpb_rendezvous_part part;
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
    struct dpb_rendezvous_failure failure;
    struct dpb_shared_word failed;
    struct rank_area rank[DPB_COMM_RANKS_MAX];
};

/* ---- this rank's side ---- */

struct segment {
    struct area *area;
    size_t area_bytes;
    struct rank_area *self;
};

static struct segment *segment_of(const dpb_rendezvous *rendezvous)
{
    return rendezvous->state;
}

static struct area *area_of(const dpb_rendezvous *rendezvous)
{
    return segment_of(rendezvous)->area;
}

/* ---- failures ---- */

static dpb_status record(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_failure *failure)
{
    struct area *area = area_of(rendezvous);
    uint32_t unclaimed = 0;
    if (atomic_compare_exchange_strong(&area->failure_claimed, &unclaimed, 1)) {
        area->failure = *failure;
        dpb_shared_word_poison(&area->failed);
        dpb_shared_word_poison(&area->meeting.epoch);
    } else if (dpb_shared_word_is_poisoned(&area->failed)) {
        return (dpb_status)area->failure.status;
    }
    return (dpb_status)failure->status;
}

static bool failed(dpb_rendezvous *rendezvous)
{
    return dpb_shared_word_is_poisoned(&area_of(rendezvous)->failed);
}

static void read_failure(dpb_rendezvous *rendezvous, struct dpb_rendezvous_failure *failure)
{
    *failure = area_of(rendezvous)->failure;
}

/* ---- what the ranks tell each other about themselves ---- */

static void note(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done)
{
    atomic_store(&segment_of(rendezvous)->self->started, started);
    atomic_store(&segment_of(rendezvous)->self->done, done);
}

static bool survey(dpb_rendezvous *rendezvous, struct dpb_rendezvous_seen *seen)
{
    struct area *area = area_of(rendezvous);
    const uint64_t closed = atomic_load(&area->closed);
    for (int r = 0; r < rendezvous->config.size; r++)
        seen[r] = (struct dpb_rendezvous_seen){
                .called = atomic_load(&area->rank[r].called),
                .started = atomic_load(&area->rank[r].started),
                .done = atomic_load(&area->rank[r].done),
                .pid = atomic_load(&area->rank[r].pid),
                .closed = closed >> r & 1,
        };
    return true;
}

/* ---- meeting ---- */

static const struct slot *slot_of(const dpb_rendezvous *rendezvous, int rank)
{
    return &area_of(rendezvous)->rank[rank].slot[rendezvous->calls & 1];
}

static void arrive(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *part,
                   const void *data)
{
    struct segment *segment = segment_of(rendezvous);
    struct slot *slot = &segment->self->slot[rendezvous->calls & 1];
    slot->part = *part;
    if (part->bytes > 0)
        memcpy(slot->data, data, part->bytes);
    dpb_shared_barrier_arrive(&segment->area->meeting, rendezvous->calls, rendezvous->config.size);
    /* Only now: when no rank is behind, the epoch has moved. */
    atomic_store(&segment->self->called, rendezvous->calls);
}

static enum dpb_shared_wake wait_for_all(dpb_rendezvous *rendezvous, int64_t deadline_ns)
{
    struct area *area = area_of(rendezvous);
    /* Nudges before `closed`: a rank that closes sets its bit first, then nudges. */
    const unsigned nudges = dpb_shared_word_nudges(&area->meeting.epoch);
    const uint64_t closed = atomic_load(&area->closed);
    for (int r = 0; closed && r < rendezvous->config.size; r++)
        if (closed >> r & 1 && atomic_load(&area->rank[r].called) < rendezvous->calls)
            return DPB_SHARED_NUDGED;
    return dpb_shared_word_wait(&area->meeting.epoch, rendezvous->calls, nudges, deadline_ns, 0);
}

static int find_other(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *mine,
                      struct dpb_rendezvous_part *other)
{
    for (int r = 0; r < rendezvous->config.size; r++) {
        *other = slot_of(rendezvous, r)->part;
        if (other->bytes != mine->bytes ||
            strncmp(other->what, mine->what, DPB_RENDEZVOUS_WHAT - 1) != 0)
            return r;
    }
    return -1;
}

static void collect(dpb_rendezvous *rendezvous, size_t bytes, void *all)
{
    for (int r = 0; r < rendezvous->config.size; r++)
        memcpy((char *)all + (size_t)r * bytes, slot_of(rendezvous, r)->data, bytes);
}

/* ---- open and close ---- */

static dpb_status map_area(dpb_rendezvous *rendezvous)
{
    const int fd = rendezvous->config.segment_fd;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = offsetof(struct area, rank) +
                   (size_t)rendezvous->config.size * sizeof(struct rank_area);
    bytes = (bytes + page - 1) / page * page;
    struct stat file;
    void *area = MAP_FAILED;
    /* All ranks grow it to the same size, and nobody ever makes it smaller. */
    if (fstat(fd, &file) == 0 && (file.st_size >= (off_t)bytes || ftruncate(fd, (off_t)bytes) == 0))
        area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED) {
        dpb_error("rank %d: cannot map the shared segment (descriptor %d): %s",
                  rendezvous->config.rank, fd, strerror(errno));
        dpb_log_hint("the launcher must pass on the descriptor that dpb_comm_segment_new() made");
        return DPB_ERR_IO;
    }
    struct segment *segment = segment_of(rendezvous);
    segment->area = area;
    segment->area_bytes = bytes;
    segment->self = &segment->area->rank[rendezvous->config.rank];
    return DPB_OK;
}

/* One world: the same size on all ranks, and every rank once. */
static dpb_status take_place(dpb_rendezvous *rendezvous)
{
    const struct dpb_rendezvous_config *config = &rendezvous->config;
    int32_t size = 0;
    if (!atomic_compare_exchange_strong(&area_of(rendezvous)->size, &size, config->size) &&
        size != config->size)
        return dpb_rendezvous_fail(rendezvous, DPB_ERR_MISMATCH,
                                   "start all ranks with the same --ranks",
                                   "rank %d was told that there are %d ranks, another rank was "
                                   "told %d",
                                   config->rank, config->size, size);
    int32_t pid = 0;
    if (!atomic_compare_exchange_strong(&segment_of(rendezvous)->self->pid, &pid,
                                        (int32_t)getpid()))
        return dpb_rendezvous_fail(rendezvous, DPB_ERR_MISMATCH,
                                   "every rank opens once, and a segment serves one communicator "
                                   "only",
                                   "rank %d is in use by process %d, so process %d cannot be it",
                                   config->rank, pid, (int)getpid());
    return DPB_OK;
}

static dpb_status open_segment(dpb_rendezvous *rendezvous)
{
    rendezvous->state = calloc(1, sizeof(struct segment));
    if (!rendezvous->state) {
        dpb_error("rank %d: cannot open %s: out of memory", rendezvous->config.rank,
                  rendezvous->config.owner);
        return DPB_ERR_NO_MEMORY;
    }
    DPB_TRY(map_area(rendezvous));
    return take_place(rendezvous);
}

static void release(dpb_rendezvous *rendezvous)
{
    struct segment *segment = segment_of(rendezvous);
    if (segment->area)
        munmap(segment->area, segment->area_bytes);
    free(segment);
}

static void close_segment(dpb_rendezvous *rendezvous)
{
    struct area *area = area_of(rendezvous);
    atomic_fetch_or(&area->closed, (uint64_t)1 << rendezvous->config.rank);
    dpb_shared_word_nudge(&area->meeting.epoch);
}

const struct dpb_rendezvous_transport dpb_rendezvous_segment = {
        .open = open_segment,
        .close = close_segment,
        .release = release,
        .arrive = arrive,
        .wait = wait_for_all,
        .find_other = find_other,
        .collect = collect,
        .record = record,
        .failed = failed,
        .read_failure = read_failure,
        .note = note,
        .survey = survey,
};
