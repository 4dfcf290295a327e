/* net_private.h: what the files of this room share about sockets. */
#ifndef DPB_NET_PRIVATE_H
#define DPB_NET_PRIVATE_H

#include <sys/socket.h>

#include "dpb_net.h"

/* A socket's address of any family. */
struct dpb_net_place {
    struct sockaddr_storage address;
    socklen_t bytes;
};

#define DPB_NET_PLACE(place) ((struct sockaddr *)&(place)->address)

/* The numeric address and port. */
void dpb_net_place_text(const struct dpb_net_place *place, struct dpb_net_address *text);

/* The options that every connection has. */
void dpb_net_tune(int fd);
void dpb_net_set_blocking(int fd, bool blocking);

/* Where to listen, as dpb_net_listen() says. */
dpb_status dpb_net_place_find(const char *bind_to, const char *peer, int port,
                              struct dpb_net_place *place);

/* The addresses of `host`, to be freed with freeaddrinfo(); NULL, and the reason in `why`. */
struct addrinfo *dpb_net_resolve(const char *host, int port, int socktype, char *why,
                                 size_t why_bytes);

/* How long a door waits for a greeting, instead of DPB_NET_GREETING_NS. */
void dpb_net_door_set_patience(dpb_net_door *door, int64_t greeting_ns);

#endif
