/* rendezvous_link.c: whole messages over a socket that does not block. */
#include "rendezvous_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct dpb_meet_message {
    int holders;
    size_t bytes; /* with the head */
    unsigned char data[];
};

struct dpb_meet_out {
    struct dpb_meet_out *next;
    struct dpb_meet_message *message;
};

struct dpb_meet_message *dpb_meet_message_new(enum dpb_rendezvous_message kind, size_t bytes,
                                              void **body)
{
    const struct dpb_meet_head head = {kind, (uint32_t)bytes};
    struct dpb_meet_message *message = malloc(sizeof(*message) + sizeof(head) + bytes);
    if (!message)
        return NULL;
    message->holders = 1;
    message->bytes = sizeof(head) + bytes;
    memcpy(message->data, &head, sizeof(head));
    if (body)
        *body = message->data + sizeof(head);
    return message;
}

void dpb_meet_message_release(struct dpb_meet_message *message)
{
    if (message && --message->holders == 0)
        free(message);
}

void dpb_meet_link_init(struct dpb_meet_link *link, int fd)
{
    link->fd = fd;
    link->broken = NULL;
    link->out = NULL;
    link->out_end = &link->out;
    link->out_sent = 0;
    link->have = 0;
}

static void remove_first(struct dpb_meet_link *link)
{
    struct dpb_meet_out *first = link->out;
    link->out = first->next;
    if (!link->out)
        link->out_end = &link->out;
    link->out_sent = 0;
    dpb_meet_message_release(first->message);
    free(first);
}

void dpb_meet_link_release(struct dpb_meet_link *link)
{
    while (link->out)
        remove_first(link);
    close(link->fd);
}

bool dpb_meet_link_has_more(const struct dpb_meet_link *link)
{
    return link->out != NULL;
}

void dpb_meet_link_flush(struct dpb_meet_link *link)
{
    while (link->out && !link->broken) {
        const struct dpb_meet_message *message = link->out->message;
        ssize_t sent = send(link->fd, message->data + link->out_sent,
                            message->bytes - link->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (sent < 0) {
            link->broken = strerror(errno);
            return;
        }
        link->out_sent += (size_t)sent;
        if (link->out_sent == message->bytes)
            remove_first(link);
    }
}

void dpb_meet_link_send(struct dpb_meet_link *link, struct dpb_meet_message *message)
{
    struct dpb_meet_out *out = message ? calloc(1, sizeof(*out)) : NULL;
    if (!out) {
        link->broken = "the launcher is out of memory";
        return;
    }
    out->message = message;
    message->holders++;
    *link->out_end = out;
    link->out_end = &out->next;
    dpb_meet_link_flush(link);
}

/* Hand over the whole messages at the front; false when one is none. */
static bool take_whole(struct dpb_meet_link *link,
                       bool (*take)(void *ctx, enum dpb_rendezvous_message kind, const void *body,
                                    size_t bytes),
                       void *ctx)
{
    size_t at = 0;
    bool fine = true;
    while (fine && link->have - at >= sizeof(struct dpb_meet_head)) {
        struct dpb_meet_head head;
        memcpy(&head, link->in + at, sizeof(head));
        fine = head.bytes <= sizeof(link->in) - sizeof(head);
        if (!fine || link->have - at < sizeof(head) + head.bytes)
            break;
        fine = take(ctx, (enum dpb_rendezvous_message)head.kind, link->in + at + sizeof(head),
                    head.bytes);
        at += sizeof(head) + head.bytes;
    }
    link->have -= at;
    memmove(link->in, link->in + at, link->have);
    return fine;
}

void dpb_meet_link_read(struct dpb_meet_link *link,
                        bool (*take)(void *ctx, enum dpb_rendezvous_message kind, const void *body,
                                     size_t bytes),
                        void *ctx)
{
    while (!link->broken) {
        ssize_t got = recv(link->fd, link->in + link->have, sizeof(link->in) - link->have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            link->broken = got == 0 ? "it was closed" : strerror(errno);
            return;
        }
        link->have += (size_t)got;
        if (!take_whole(link, take, ctx))
            link->broken = "it said what no rank says";
    }
}
