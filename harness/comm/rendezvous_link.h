/* rendezvous_link.h: messages of the server to and from one rank, without ever blocking. */
#ifndef DPB_RENDEZVOUS_LINK_H
#define DPB_RENDEZVOUS_LINK_H

#include "rendezvous_wire.h"

/* A message that several links may still have to send: the last one frees it. */
struct dpb_meet_message;

/* `bytes` of a message's body, to be filled; NULL when out of memory. */
struct dpb_meet_message *dpb_meet_message_new(enum dpb_rendezvous_message kind, size_t bytes,
                                              void **body);
/* Whoever made it lets go of it. NULL is fine. */
void dpb_meet_message_release(struct dpb_meet_message *message);

struct dpb_meet_link {
    int fd;
    const char *broken; /* why nothing goes through any more; NULL while it does */
    struct dpb_meet_out *out, **out_end;
    size_t out_sent; /* of the first in `out` */
    size_t have;
    unsigned char in[DPB_MEET_RANK_BYTES];
};

void dpb_meet_link_init(struct dpb_meet_link *link, int fd);
/* Closes the connection, whatever is still to be sent. */
void dpb_meet_link_release(struct dpb_meet_link *link);

/* Send what can be sent now, and the rest from dpb_meet_link_flush(). A NULL message, or no memory,
 * breaks the link. */
void dpb_meet_link_send(struct dpb_meet_link *link, struct dpb_meet_message *message);
void dpb_meet_link_flush(struct dpb_meet_link *link);
bool dpb_meet_link_has_more(const struct dpb_meet_link *link);

/* Read what is there, then hand over each whole message; `take` returns false for one that no rank
 * sends, which breaks the link, as its end does. */
void dpb_meet_link_read(struct dpb_meet_link *link,
                        bool (*take)(void *ctx, enum dpb_rendezvous_message kind, const void *body,
                                     size_t bytes),
                        void *ctx);

#endif
