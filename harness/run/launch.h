/* launch.h (private): one launch, as the watch (launcher.c) and the ways to start ranks
 * (launch_local.c, launch_remote.c) share it. */
#ifndef DPB_RUN_LAUNCH_H
#define DPB_RUN_LAUNCH_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_board.h"
#include "dpb_channel.h"
#include "dpb_launcher.h"
#include "dpb_str.h"

#define LAUNCH_TEXT_BYTES 512
#define LAUNCH_NAME_BYTES 320
#define LAUNCH_MORE_FDS   64 /* that a way wants polled, besides the ranks' */

struct launch_rank {
    long pid;
    const char *host; /* NULL: this machine */
    int fd;           /* its channel; -1: closed */
    struct dpb_str inbox, outbox;
    int64_t heard_ns; /* when anything came last */
    dpb_json *result;
    dpb_status error; /* reported by the rank itself */
    bool ended;       /* by a signal of whoever ends ranks when one has failed */
    char error_text[512];
    bool closed;     /* all its parts: nothing can crash any more */
    int64_t lost_ns; /* when its channel closed without result or error, or before `closed`; 0: it
                        did not */
    int lost_errno;
};

struct launch {
    const struct dpb_launch_config *config;
    struct dpb_launch_result *result;
    const struct launch_way *way;
    struct launch_rank *rank;
    struct pollfd *fds;               /* one of every rank, and LAUNCH_MORE_FDS */
    struct dpb_board_line *board;     /* one per rank */
    int bulk_fd;                      /* -1: nobody wants bulk */
    char crew_how[LAUNCH_TEXT_BYTES]; /* how the crew's launcher ended; "": it has not */
    void *own;                        /* the way's */
};

/* How ranks are started and ended. */
struct launch_way {
    /* Its ranks say when they have closed; of others the exit status tells how they ended. */
    bool says_closed;
    /* After a rank is lost, for more to be heard of it. */
    int64_t lost_grace_ns;
    /* Every rank has a channel and its job. */
    dpb_status (*start)(struct launch *l);
    /* optional: more descriptors to poll for reading, at most LAUNCH_MORE_FDS */
    size_t (*fds)(const struct launch *l, int *fds);
    /* optional: what is to do between two polls */
    dpb_status (*turn)(struct launch *l, int64_t now_ns);
    /* optional: a frame that is no message; DPB_ERR_CORRUPT */
    dpb_status (*frame)(struct launch *l, int r, const struct dpb_frame *frame);
    /* How a rank that is lost has ended: "was killed by signal 9". */
    void (*how_it_ended)(struct launch *l, int r, char how[LAUNCH_TEXT_BYTES]);
    /* Is it stopped, as far as can be told? `how`: "is stopped (SIGSTOP?)". */
    bool (*is_stopped)(const struct launch *l, int r, char how[LAUNCH_TEXT_BYTES]);
    /* All have reported: see each to its end. A rank that closes slowly is only ended, but one that
     * crashes after its result has overwritten memory, and its result is worth nothing. */
    dpb_status (*see_off)(struct launch *l);
    /* Whatever came before: end all ranks, and release what start() made. */
    void (*end)(struct launch *l);
};

extern const struct launch_way launch_local, launch_remote;

/* An anonymous file in memory; logged. */
dpb_status launch_memory_file(const char *name, size_t bytes, int *fd);

/* Keep the first reason. */
void launch_say(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "rank 5 (pid 123 on node2)". */
const char *launch_name(const struct launch *l, int r, char name[LAUNCH_NAME_BYTES]);

/* Send it what is in its outbox, as far as it takes it. */
void launch_flush(struct launch *l, int r);

/* Take everything that has come from a rank. Logged: what cannot be read (DPB_ERR_CORRUPT). */
dpb_status launch_take(struct launch *l, int r);

/* Wait for what comes, for a moment, and deal with it, until there is a reason to end. */
dpb_status launch_turn(struct launch *l);

/* "; ranks 0-1,4 waited in step 7 (sync, bucket 0)": those that wait for what was due first while
 * `missing` and stopped ranks are not there. "" where nobody waits. */
#define LAUNCH_WAITING_BYTES 256
void launch_waiting_text(const struct launch *l, int missing, char *text, size_t text_bytes);

/* The rank that was lost before all others; -1: none was. */
int launch_first_lost(const struct launch *l);

/* One line in the log for every rank, where it is and what it reported. */
void launch_list(const struct launch *l);

/* DPB_ERR_INTERRUPTED, with the reason kept, when the user has interrupted. */
dpb_status launch_check_interrupt(struct launch *l);

#endif
