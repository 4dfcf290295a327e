/* launch.h (private): one launch, as the watch (launcher.c) and the ways to start ranks
 * (launch_local.c) share it. */
#ifndef DPB_RUN_LAUNCH_H
#define DPB_RUN_LAUNCH_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_board.h"
#include "dpb_launcher.h"
#include "dpb_str.h"

#define LAUNCH_HOW_BYTES 96

struct launch_rank {
    long pid;
    int fd; /* its channel; -1: closed */
    struct dpb_str inbox;
    dpb_json *result;
    dpb_status error; /* reported by the rank itself */
    char error_text[512];
};

struct launch {
    const struct dpb_launch_config *config;
    struct dpb_launch_result *result;
    const struct launch_way *way;
    struct launch_rank *rank;
    struct pollfd *fds;           /* room for one of every rank */
    struct dpb_board_line *board; /* one per rank */
    int bulk_fd;                  /* -1: nobody wants bulk */
    void *own;                    /* the way's */
};

/* How ranks are started and ended. */
struct launch_way {
    /* Every rank has a channel and its job. */
    dpb_status (*start)(struct launch *l);
    /* How a rank whose channel closed without a result has ended: "was killed by signal 9". */
    void (*how_it_ended)(struct launch *l, int r, char how[LAUNCH_HOW_BYTES]);
    /* R, S, T, Z ...: the state of its process; '?' when it cannot be told. */
    char (*state)(const struct launch *l, int r);
    /* All have reported: see each to its end. A rank that closes slowly is only ended, but one that
     * crashes after its result has overwritten memory, and its result is worth nothing. */
    dpb_status (*see_off)(struct launch *l);
    /* Whatever came before: end all ranks, and release what start() made. */
    void (*end)(struct launch *l);
};

extern const struct launch_way launch_local;

/* An anonymous file in memory; logged. */
dpb_status launch_memory_file(const char *name, size_t bytes, int *fd);

/* Keep the first reason. */
void launch_say(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
