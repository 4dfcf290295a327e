/* rendezvous_wire.h: what ranks and the launcher's server say to each other. All hosts have the
 * same binary (harness/run/dpb_world.h), hence the same layout. */
#ifndef DPB_RENDEZVOUS_WIRE_H
#define DPB_RENDEZVOUS_WIRE_H

#include "rendezvous_private.h"

enum dpb_rendezvous_message {
    /* from a rank */
    DPB_MEET_HELLO = 1, /* struct dpb_meet_hello; the first one */
    DPB_MEET_PART,      /* struct dpb_meet_part, then its bytes: it has come to a call */
    DPB_MEET_FAIL,      /* struct dpb_rendezvous_failure */
    DPB_MEET_NOTE,      /* struct dpb_meet_note: the answer to TELL, and now and then */
    DPB_MEET_SURVEY,    /* nothing: what is known of the ranks? */
    DPB_MEET_CLOSE,     /* nothing: the last one */
    /* from the server */
    DPB_MEET_RESULT,   /* struct dpb_meet_result, then every rank's bytes */
    DPB_MEET_DISAGREE, /* struct dpb_meet_disagree instead */
    DPB_MEET_FAILURE,  /* struct dpb_rendezvous_failure: the first one of any rank */
    DPB_MEET_NUDGE,    /* nothing: a rank has closed that this rank waits for */
    DPB_MEET_TELL,     /* nothing: where are you? */
    DPB_MEET_STATE     /* struct dpb_rendezvous_seen of every rank */
};

struct dpb_meet_head {
    uint32_t kind;  /* enum dpb_rendezvous_message */
    uint32_t bytes; /* that follow */
};

struct dpb_meet_hello {
    int32_t rank, size, pid;
    char host[DPB_RENDEZVOUS_HOST];
};

struct dpb_meet_note {
    uint64_t started, done;
};

struct dpb_meet_part {
    uint64_t call;
    struct dpb_meet_note note;
    struct dpb_rendezvous_part part;
};

struct dpb_meet_result {
    uint64_t call;
    uint64_t bytes; /* of each rank */
};

struct dpb_meet_disagree {
    uint64_t call;
    int32_t rank;
    struct dpb_rendezvous_part part;
};

/* The longest that a rank sends. */
#define DPB_MEET_RANK_BYTES                                                                        \
    (sizeof(struct dpb_meet_head) + sizeof(struct dpb_meet_part) + DPB_COMM_EXCHANGE_BYTES)

#endif
