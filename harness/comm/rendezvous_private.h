/* rendezvous_private.h: the two ways in which ranks can meet, below rendezvous.c, which has all
 * that they have in common: what is a failure, what is said about it, and who is waited for. */
#ifndef DPB_RENDEZVOUS_PRIVATE_H
#define DPB_RENDEZVOUS_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "rendezvous.h"
#include "shared_word.h"

#define DPB_RENDEZVOUS_WHAT 32 /* bytes of a call's name, with its end */

/* The part of one rank in one call. */
struct dpb_rendezvous_part {
    char what[DPB_RENDEZVOUS_WHAT];
    uint32_t bytes;
};

struct dpb_rendezvous_failure {
    int32_t status; /* a dpb_status */
    char text[DPB_RENDEZVOUS_TEXT];
};

struct dpb_rendezvous_transport {
    /* Take this rank's place and set rendezvous->state, also on failure unless there is nothing to
     * release. */
    dpb_status (*open)(dpb_rendezvous *rendezvous);
    /* Tell the others that this rank will not come any more. */
    void (*close)(dpb_rendezvous *rendezvous);
    void (*release)(dpb_rendezvous *rendezvous);

    /* Come to call number rendezvous->calls. */
    void (*arrive)(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *part,
                   const void *data);
    /* Wait until all have come to it. NUDGED: a rank has closed. */
    enum dpb_shared_wake (*wait)(dpb_rendezvous *rendezvous, int64_t deadline_ns);
    /* After REACHED: a rank that came to another call than this one, -1 when there is none. */
    int (*find_other)(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_part *mine,
                      struct dpb_rendezvous_part *other);
    /* After that: the parts of all, `bytes` each. */
    void (*collect)(dpb_rendezvous *rendezvous, size_t bytes, void *all);

    /* Make it the failure of all ranks, unless there is one. The status of whichever counts. */
    dpb_status (*record)(dpb_rendezvous *rendezvous, const struct dpb_rendezvous_failure *failure);
    /* Is there one? Cheap. */
    bool (*failed)(dpb_rendezvous *rendezvous);
    void (*read_failure)(dpb_rendezvous *rendezvous, struct dpb_rendezvous_failure *failure);

    void (*note)(dpb_rendezvous *rendezvous, uint64_t started, uint64_t done);
    /* False when it could not be found out: then there is a failure. */
    bool (*survey)(dpb_rendezvous *rendezvous, struct dpb_rendezvous_seen *seen);
};

struct dpb_rendezvous {
    struct dpb_rendezvous_config config;
    const struct dpb_rendezvous_transport *transport;
    void *state; /* the transport's */
    uint64_t calls;
    pthread_mutex_t fail_lock;
    _Atomic int failure; /* a dpb_status, DPB_OK while all is well */
};

extern const struct dpb_rendezvous_transport dpb_rendezvous_segment, dpb_rendezvous_tcp;

#endif
