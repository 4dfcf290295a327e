/* rendezvous.h: how the ranks of a backend that has no channel of its own for it find each other:
 * small exchanges of host data, barriers, and the first failure of any rank, told to all.
 *
 * The ranks of one machine meet in the segment of dpb_comm_segment_new(), which serves one
 * rendezvous once; those of several at the launcher's server (dpb_rendezvous_server.h), over TCP,
 * which notices also that a rank has died or was cut off. Nothing here knows what the ranks are
 * about; what is exchanged, in which order, is the backend's affair, and the same on all ranks.
 *
 * Every wait has the deadline of the configuration and ends with a message that names who did not
 * come. The first failure ends the rendezvous on all ranks, with the same status; each process
 * logs it once. */
#ifndef DPB_RENDEZVOUS_H
#define DPB_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_comm.h"

#define DPB_RENDEZVOUS_TEXT 512 /* most bytes of a failure's text */
#define DPB_RENDEZVOUS_HOST 65  /* of a host's name */

typedef struct dpb_rendezvous dpb_rendezvous;

struct dpb_rendezvous_config {
    const char *owner; /* "comm \"nccl\"", for messages; must stay */
    int rank, size;    /* at most DPB_COMM_RANKS_MAX in a segment, else DPB_COMM_WORLD_RANKS_MAX */
    int segment_fd;    /* of ranks on one machine */
    const struct dpb_comm_server *server; /* of ranks on several; NULL: the segment */
    int64_t timeout_ns;
};

/* Returns when all ranks are there. DPB_ERR_TIMEOUT, DPB_ERR_MISMATCH (another number of ranks, a
 * rank that is taken, a segment that was used, another token), DPB_ERR_USAGE, DPB_ERR_IO,
 * DPB_ERR_RANK_FAILED; logged. */
dpb_status dpb_rendezvous_open(const struct dpb_rendezvous_config *config, dpb_rendezvous **opened);
/* Whoever waits for this rank, now or later, learns at once that it will not come. NULL is fine. */
void dpb_rendezvous_close(dpb_rendezvous *rendezvous);

/* Gather `bytes` of every rank: all[r * bytes]. At most DPB_COMM_EXCHANGE_BYTES; 0: a barrier.
 * `what` is the call's name in messages, at most 31 bytes, the same on all ranks. By one thread at
 * a time. */
dpb_status dpb_rendezvous_exchange(dpb_rendezvous *rendezvous, const char *what, const void *mine,
                                   size_t bytes, void *all);

/* Record a failure for every rank, unless there is one already; log it, and the hint unless it is
 * NULL, once in this process. Returns the status that counts: that of the first failure. Safe from
 * any thread. */
dpb_status dpb_rendezvous_fail(dpb_rendezvous *rendezvous, dpb_status st, const char *hint,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* DPB_OK, or the failure that ended the rendezvous, wherever it happened; one of another rank is
 * logged once, as what ended `subject` ("rank 2: barrier #5"). Safe from any thread, and cheap. */
dpb_status dpb_rendezvous_check(dpb_rendezvous *rendezvous, const char *subject);

/* Tell the others how far this rank is in what the backend counts, for messages about ranks that
 * are missing. Safe from any thread, and cheap. */
void dpb_rendezvous_note(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done);

/* What is known of a rank; of one that is gone, or does not run, what it told last. */
struct dpb_rendezvous_seen {
    uint64_t called;        /* the newest exchange it came to */
    uint64_t started, done; /* dpb_rendezvous_note() */
    int32_t pid;            /* 0: not known */
    bool closed;
    char host[DPB_RENDEZVOUS_HOST]; /* "" where all ranks are on one machine */
};

/* Look at all ranks: `seen` has `size` entries. Safe from any thread; over TCP it asks them, which
 * takes a second when one does not answer. */
void dpb_rendezvous_survey(dpb_rendezvous *rendezvous, struct dpb_rendezvous_seen *seen);

#endif
