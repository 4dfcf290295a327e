/* dpb_net.h: TCP between processes of one run, on any number of hosts: addresses, listening on a
 * chosen interface, connecting with a deadline, and proof that both ends know the run's token.
 *
 * The token never travels: each end sends a random number and gets it back authenticated
 * (HMAC-SHA-256, libsodium), so a stranger who can reach the port learns nothing, is refused, and
 * delays nobody. What follows the greeting is neither encrypted nor authenticated: it is for
 * networks inside a cluster, as NCCL's and MPI's own traffic is.
 *
 * All sockets are close-on-exec, without delay (TCP_NODELAY), and notice a peer that is cut off
 * (TCP_USER_TIMEOUT, keep-alive). */
#ifndef DPB_NET_H
#define DPB_NET_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_NET_TOKEN_BYTES   32
#define DPB_NET_TOKEN_TEXT    (2 * DPB_NET_TOKEN_BYTES + 1)
#define DPB_NET_HOST_BYTES    256
#define DPB_NET_ADDRESS_BYTES (DPB_NET_HOST_BYTES + 16)
#define DPB_NET_ROLE_BYTES    16 /* of a greeting's role, with its end */

struct dpb_net_token {
    unsigned char bytes[DPB_NET_TOKEN_BYTES];
};

struct dpb_net_address {
    char host[DPB_NET_HOST_BYTES]; /* a name, an IPv4 or an IPv6 address without brackets */
    int port;                      /* 1 to 65535; 0 where any will do */
};

/* A token nobody knows yet, and one from a secret text that all processes were given: at least 16
 * characters (DPB_ERR_USAGE, logged, without the text). */
dpb_status dpb_net_token_new(struct dpb_net_token *token);
dpb_status dpb_net_token_from_text(const char *text, struct dpb_net_token *token);
/* Hexadecimal; dpb_net_token_from_text() of it gives the same token. */
void dpb_net_token_text(const struct dpb_net_token *token, char text[DPB_NET_TOKEN_TEXT]);

/* "host:port", "10.0.0.1:29400", "[fe80::1]:29400"; a missing port is `default_port`, unless that
 * is negative. DPB_ERR_USAGE, and the reason in one line in `why`. */
dpb_status dpb_net_address_parse(const char *text, int default_port,
                                 struct dpb_net_address *address, char *why, size_t why_bytes);
void dpb_net_address_text(const struct dpb_net_address *address, char text[DPB_NET_ADDRESS_BYTES]);

/* Listen. `bind_to`: an interface ("eth0"), an address or a name of this host, a network
 * ("10.1.0.0/16": the interface in it), or NULL: the interface that leads to `peer` (a host's
 * name, a route is looked up, nothing is sent), or without a peer the loopback one only. `address`
 * gets what others connect to: a numeric address and the real port. The socket does not block.
 * DPB_ERR_UNAVAILABLE: no such interface (with the list of those there are), an address of another
 * host, a port that is taken; DPB_ERR_USAGE: "0.0.0.0", which nobody can connect to, no network;
 * logged. */
dpb_status dpb_net_listen(const char *bind_to, const char *peer, int port, int *fd,
                          struct dpb_net_address *address);

/* The address by which hosts that are not known yet most likely reach this one: of the interface of
 * the default route, else of the first interface that is up and not the loopback one.
 * DPB_ERR_UNAVAILABLE, logged, without any. */
dpb_status dpb_net_outside(char host[DPB_NET_HOST_BYTES]);

/* "lo 127.0.0.1, eth0 10.0.0.1": the addresses of the interfaces that are up, appended. */
void dpb_net_interfaces(struct dpb_str *list);

/* Connect and greet as `role` ("rank", "rendezvous"), trying again until `deadline_ns`
 * (dpb_clock_now_ns()) while nobody listens yet, or the host cannot be reached or says nothing for
 * DPB_NET_GREETING_NS; each of several addresses gets an equal share of the time that is left.
 * DPB_ERR_TIMEOUT with the last reason, DPB_ERR_UNAVAILABLE (a name that does not resolve; it may
 * until then), DPB_ERR_MISMATCH at once (the other end has another token, or is no dpbench or one
 * of another protocol); logged. The socket blocks. */
dpb_status dpb_net_connect(const struct dpb_net_address *to, const struct dpb_net_token *token,
                           const char *role, int64_t deadline_ns, int *fd);
/* The same, until a signal's handler has set `*interrupted` (NULL: none does): DPB_ERR_INTERRUPTED,
 * not logged, within a second, unless a name server takes longer. */
dpb_status dpb_net_connect_unless(const struct dpb_net_address *to,
                                  const struct dpb_net_token *token, const char *role,
                                  int64_t deadline_ns, const volatile sig_atomic_t *interrupted,
                                  int *fd);

/* The listening side, in one thread with others: connections whose greeting is under way wait
 * inside, none holds up another, and each is dropped after DPB_NET_GREETING_NS, by the next call of
 * dpb_net_door_admit(): make one a second also when poll() has nothing. */
#define DPB_NET_GREETING_NS 5000000000ll
typedef struct dpb_net_door dpb_net_door;
/* Takes over `listen_fd`, also on failure. */
dpb_status dpb_net_door_open(int listen_fd, const struct dpb_net_token *token, dpb_net_door **door);
void dpb_net_door_close(dpb_net_door *door); /* NULL is fine */
/* File descriptors to poll() for reading, ask anew each time: at most `room` are written to `fds`;
 * returns how many. Where this process can open no more, nobody who knocks is among them. */
size_t dpb_net_door_fds(const dpb_net_door *door, int *fds, size_t room);
/* Go on with everything that is possible without blocking. DPB_OK: a guest with the right token is
 * in (`fd`, which blocks and is the caller's, `role`, and its numeric address `from`), and there
 * may be more: call again. DPB_PENDING: nobody yet. Strangers are counted and the first is logged
 * as a warning, with its address and the reason. */
dpb_status dpb_net_door_admit(dpb_net_door *door, int *fd, char role[DPB_NET_ROLE_BYTES],
                              struct dpb_net_address *from);

#ifdef __cplusplus
}
#endif
#endif
