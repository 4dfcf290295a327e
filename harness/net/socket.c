/* socket.c: what all connections have in common. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "net_private.h"

/* A peer that is cut off is noticed by data that is not acknowledged, and by silence. */
#define CUT_OFF_MS       15000
#define KEEPALIVE_IDLE_S 5
#define KEEPALIVE_STEP_S 3

static void set(int fd, int level, int option, int value)
{
    /* Refused by none of the kernels that have it; where it is missing, nothing can be done. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void dpb_net_tune(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, CUT_OFF_MS);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, CUT_OFF_MS / 1000 / KEEPALIVE_STEP_S);
}

void dpb_net_set_blocking(int fd, bool blocking)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}
