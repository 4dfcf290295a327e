/* listen.c: a listening socket on the address that was meant. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "net_private.h"

#define BACKLOG 4096 /* all ranks may come at once; the kernel has a limit of its own */

static dpb_status fail(const struct dpb_net_place *place, const char *what)
{
    const int error = errno;
    struct dpb_net_address wanted;
    char text[DPB_NET_ADDRESS_BYTES];
    dpb_net_place_text(place, &wanted);
    dpb_net_address_text(&wanted, text);
    dpb_error("cannot listen on %s: %s: %s", text, what, strerror(error));
    if (error == EADDRINUSE)
        dpb_log_hint("port %d is taken (ss -tlnp says by whom): choose another, or none",
                     wanted.port);
    else if (error == EACCES)
        dpb_log_hint("ports below 1024 are the system's: choose another, or none");
    return DPB_ERR_UNAVAILABLE;
}

dpb_status dpb_net_listen(const char *bind_to, const char *peer, int port, int *fd,
                          struct dpb_net_address *address)
{
    struct dpb_net_place place;
    const int yes = 1;
    dpb_status st = DPB_OK;
    DPB_TRY(dpb_net_place_find(bind_to, peer, port, &place));
    int listening = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening < 0)
        return fail(&place, "socket");
    /* A port that an earlier run had is free again at once. */
    (void)setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listening, DPB_NET_PLACE(&place), place.bytes) != 0)
        st = fail(&place, "bind");
    else if (listen(listening, BACKLOG) != 0)
        st = fail(&place, "listen");
    else if (getsockname(listening, DPB_NET_PLACE(&place), &place.bytes) != 0)
        st = fail(&place, "getsockname");
    if (st < 0) {
        close(listening);
        return st;
    }
    dpb_net_place_text(&place, address);
    *fd = listening;
    return DPB_OK;
}
