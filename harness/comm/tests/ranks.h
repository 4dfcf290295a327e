/* ranks.h: run a test body in P processes that are the ranks of one shared-memory communicator.
 *
 * Bodies check with RANK_CHECK, never with cmocka's assertions: those would jump back into the
 * parent's copy of the test runner. A watchdog ends a process that hangs. */
#ifndef DPB_COMM_TEST_RANKS_H
#define DPB_COMM_TEST_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_comm_shm.h"

#define RANKS_WATCHDOG_S 250

struct ranks_plan {
    int ranks;
    int ranks_per_node; /* 0: all */
    enum dpb_algorithm algorithm;
    struct dpb_link link, link_inside;
    enum dpb_comm_shm_progress progress;
    int64_t timeout_ns; /* 0: 60 s, which no test that passes waits for */
    bool no_open;       /* the body opens, or does not */
    bool tcp;           /* config.server: ranks meet at a server, which is a process of its own */
    bool keep_open;     /* the body has closed, or ends without closing */
};

/* In the body: this rank's configuration and, unless plan->no_open, its communicator. */
struct ranks_self {
    const struct ranks_plan *plan;
    struct dpb_comm_shm_options options;
    struct dpb_comm_config config;
    const struct dpb_comm_ops *ops;
    dpb_comm *comm;
    char *log; /* what this rank has logged so far */
};

typedef void (*ranks_body)(struct ranks_self *self, void *argument);

/* Returns how many ranks failed. `argument` may point to memory that all ranks share. */
int ranks_run(const struct ranks_plan *plan, ranks_body body, void *argument);

/* Zeroed memory that the processes share; never freed. */
void *ranks_shared(size_t bytes);

/* Has this rank logged a line with `text` in it? */
bool ranks_logged(const struct ranks_self *self, const char *text);

/* End this rank as failed, with a line on stderr. */
void ranks_fail(const char *file, int line, const char *what, int64_t got)
        __attribute__((noreturn));

#define RANK_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ranks_fail(__FILE__, __LINE__, #condition, 0);                                         \
    } while (0)

#define RANK_EQUAL(got, expected)                                                                  \
    do {                                                                                           \
        int64_t rank_got_ = (int64_t)(got);                                                        \
        if (rank_got_ != (int64_t)(expected))                                                      \
            ranks_fail(__FILE__, __LINE__, #got " == " #expected, rank_got_);                      \
    } while (0)

/* Can the plan's algorithm do it? */
bool ranks_can(const struct ranks_plan *plan, enum dpb_coll_kind kind);

/* What the plan's algorithm sends from `rank`. */
int64_t ranks_wire_bytes(const struct ranks_plan *plan, const struct dpb_coll *coll, int rank);

/* Of them, to ranks of other nodes. */
int64_t ranks_wire_between_bytes(const struct ranks_plan *plan, const struct dpb_coll *coll,
                                 int rank);

/* Start and wait; the status of whichever failed. */
dpb_status ranks_collective(struct ranks_self *self, const struct dpb_coll *coll,
                            struct dpb_coll_times *times);

#endif
