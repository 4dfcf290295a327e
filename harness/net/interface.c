/* interface.c: which of this machine's addresses is meant. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "net_private.h"

#define ELSEWHERE "192.0.2.1" /* the address of nobody (RFC 5737): its route is the default one */

static bool place_of(const struct sockaddr *address, struct dpb_net_place *place)
{
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return false;
    *place = (struct dpb_net_place){.bytes = address->sa_family == AF_INET
                                                     ? sizeof(struct sockaddr_in)
                                                     : sizeof(struct sockaddr_in6)};
    memcpy(&place->address, address, place->bytes);
    return true;
}

/* The bits of an address, and how many there are. */
static const unsigned char *bits_of(const struct dpb_net_place *place, int *count)
{
    if (place->address.ss_family == AF_INET) {
        *count = 32;
        return (const unsigned char *)&((const struct sockaddr_in *)&place->address)->sin_addr;
    }
    *count = 128;
    return (const unsigned char *)&((const struct sockaddr_in6 *)&place->address)->sin6_addr;
}

static bool is_link_local(const struct dpb_net_place *place)
{
    return place->address.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)&place->address)->sin6_addr);
}

/* IPv4 first, as MPI and NCCL do; an address that is valid on one link only comes last. */
static int preference(const struct dpb_net_place *place)
{
    if (place->address.ss_family == AF_INET)
        return 3;
    return is_link_local(place) ? 1 : 2;
}

/* ---- what there is ---- */

/* "lo 127.0.0.1, eth0 10.0.0.1, eth1 (no address)" */
static void list_interfaces(const struct ifaddrs *all, struct dpb_str *list)
{
    struct dpb_net_place place;
    struct dpb_net_address text;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!(one->ifa_flags & IFF_UP) || !place_of(one->ifa_addr, &place))
            continue;
        dpb_net_place_text(&place, &text);
        dpb_str_appendf(list, "%s%s %s", list->length ? ", " : "", one->ifa_name, text.host);
    }
}

static void hint_interfaces(const struct ifaddrs *all)
{
    struct dpb_str list = {0};
    list_interfaces(all, &list);
    dpb_log_hint("this machine has %s", list.text ? list.text : "no interface that is up");
    dpb_str_release(&list);
}

void dpb_net_interfaces(struct dpb_str *list)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    list_interfaces(all, list);
    freeifaddrs(all);
}

/* ---- by interface, by network ---- */

struct network {
    struct dpb_net_place place;
    int prefix;
};

static bool parse_network(const char *text, struct network *network)
{
    const char *slash = strchr(text, '/');
    char address[INET6_ADDRSTRLEN];
    char after;
    int bits;
    if (!slash || (size_t)(slash - text) >= sizeof(address))
        return false;
    snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        place_of((struct sockaddr *)&four, &network->place);
    else if (inet_pton(AF_INET6, address, &six.sin6_addr) == 1)
        place_of((struct sockaddr *)&six, &network->place);
    else
        return false;
    (void)bits_of(&network->place, &bits);
    return sscanf(slash + 1, "%d%c", &network->prefix, &after) == 1 && network->prefix >= 0 &&
           network->prefix <= bits;
}

static bool is_in(const struct dpb_net_place *place, const struct network *network)
{
    int count;
    const unsigned char *mine = bits_of(place, &count);
    const unsigned char *theirs = bits_of(&network->place, &count);
    if (place->address.ss_family != network->place.address.ss_family)
        return false;
    for (int bit = 0; bit < network->prefix; bit++)
        if ((mine[bit / 8] ^ theirs[bit / 8]) >> (7 - bit % 8) & 1)
            return false;
    return true;
}

/* The preferred address of an interface by name, or of any that lies in `network`. */
static bool find(const struct ifaddrs *all, const char *name, const struct network *network,
                 struct dpb_net_place *best)
{
    bool found = false;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        struct dpb_net_place place;
        if (!(one->ifa_flags & IFF_UP) || !place_of(one->ifa_addr, &place) ||
            (name && strcmp(one->ifa_name, name) != 0) || (network && !is_in(&place, network)))
            continue;
        if (!found || preference(&place) > preference(best))
            *best = place;
        found = true;
    }
    return found;
}

/* ---- by address or name, and by peer ---- */

static bool is_any(const struct dpb_net_place *place)
{
    int count;
    const unsigned char *bits = bits_of(place, &count);
    for (int i = 0; i < count / 8; i++)
        if (bits[i])
            return false;
    return true;
}

static bool is_ours(const struct ifaddrs *all, const struct dpb_net_place *place)
{
    struct network exactly = {.place = *place};
    struct dpb_net_place mine;
    (void)bits_of(place, &exactly.prefix);
    /* All of 127.0.0.0/8 is this machine, whatever its interface is said to have. */
    const unsigned char *bits = bits_of(place, &exactly.prefix);
    return find(all, NULL, &exactly, &mine) || (exactly.prefix == 32 && bits[0] == 127);
}

static dpb_status find_address(const struct ifaddrs *all, const char *bind_to,
                               struct dpb_net_place *place)
{
    char why[512];
    struct addrinfo *found = dpb_net_resolve(bind_to, 0, SOCK_STREAM, why, sizeof(why));
    if (!found) {
        dpb_error("cannot listen on \"%s\": no such interface, and as a name %s", bind_to, why);
        hint_interfaces(all);
        return DPB_ERR_UNAVAILABLE;
    }
    bool ours = false;
    bool any = false;
    for (const struct addrinfo *one = found; one && !ours; one = one->ai_next) {
        if (!place_of(one->ai_addr, place))
            continue;
        any = any || is_any(place);
        ours = is_ours(all, place);
    }
    freeaddrinfo(found);
    if (ours)
        return DPB_OK;
    if (any) {
        dpb_error("cannot listen on \"%s\": the other hosts must be told one address", bind_to);
        hint_interfaces(all);
        return DPB_ERR_USAGE;
    }
    dpb_error("cannot listen on \"%s\": it is an address of another host", bind_to);
    hint_interfaces(all);
    return DPB_ERR_UNAVAILABLE;
}

/* The kernel's route: a datagram socket that is connected sends nothing. */
static bool has_route(const char *peer, struct dpb_net_place *place, char *why, size_t why_bytes)
{
    struct addrinfo *found = dpb_net_resolve(peer, 9, SOCK_DGRAM, why, why_bytes);
    bool routed = false;
    for (const struct addrinfo *one = found; one && !routed; one = one->ai_next) {
        int fd = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        place->bytes = sizeof(place->address);
        routed = fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
                 getsockname(fd, DPB_NET_PLACE(place), &place->bytes) == 0;
        if (!routed)
            snprintf(why, why_bytes, "no route: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    if (found)
        freeaddrinfo(found);
    return routed;
}

static dpb_status find_route(const char *peer, struct dpb_net_place *place)
{
    char why[512] = "no address of a known kind";
    if (has_route(peer, place, why, sizeof(why)))
        return DPB_OK;
    dpb_error("cannot tell which interface leads to \"%s\": %s", peer, why);
    dpb_log_hint("--interface NAME, ADDRESS or NETWORK/BITS says on which one to listen");
    return DPB_ERR_UNAVAILABLE;
}

/* IPv4 before IPv6; an address that is valid on one link only is none for others. */
static bool find_first_outside(struct dpb_net_place *place)
{
    struct ifaddrs *all = NULL;
    int best = 1;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        struct dpb_net_place next;
        if (one->ifa_flags & IFF_LOOPBACK || !(one->ifa_flags & IFF_UP) ||
            !place_of(one->ifa_addr, &next) || preference(&next) <= best)
            continue;
        best = preference(&next);
        *place = next;
    }
    freeifaddrs(all);
    return best > 1;
}

dpb_status dpb_net_outside(char host[DPB_NET_HOST_BYTES])
{
    struct dpb_net_place place;
    struct dpb_net_address text;
    char why[512] = "";
    if (!has_route(ELSEWHERE, &place, why, sizeof(why)) && !find_first_outside(&place)) {
        dpb_error("no interface but the loopback one is up: other hosts cannot reach this one");
        dpb_log_hint("--interface NAME, ADDRESS or NETWORK/BITS says on which one to listen");
        return DPB_ERR_UNAVAILABLE;
    }
    dpb_net_place_text(&place, &text);
    snprintf(host, DPB_NET_HOST_BYTES, "%s", text.host);
    return DPB_OK;
}

static dpb_status find_given(const struct ifaddrs *all, const char *bind_to,
                             struct dpb_net_place *place)
{
    struct network network;
    if (find(all, bind_to, NULL, place))
        return DPB_OK;
    if (if_nametoindex(bind_to) != 0) {
        dpb_error("cannot listen on \"%s\": the interface is down, or has no address", bind_to);
        hint_interfaces(all);
        return DPB_ERR_UNAVAILABLE;
    }
    if (!strchr(bind_to, '/'))
        return find_address(all, bind_to, place);
    if (!parse_network(bind_to, &network)) {
        dpb_error("cannot listen on \"%s\": it is no network", bind_to);
        dpb_log_hint("a network is written as 10.1.0.0/16 or fd00::/64");
        return DPB_ERR_USAGE;
    }
    if (find(all, NULL, &network, place))
        return DPB_OK;
    dpb_error("cannot listen on \"%s\": no interface is in that network", bind_to);
    hint_interfaces(all);
    return DPB_ERR_UNAVAILABLE;
}

static void set_port(struct dpb_net_place *place, int port)
{
    if (place->address.ss_family == AF_INET)
        ((struct sockaddr_in *)&place->address)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)&place->address)->sin6_port = htons((uint16_t)port);
}

dpb_status dpb_net_place_find(const char *bind_to, const char *peer, int port,
                              struct dpb_net_place *place)
{
    struct ifaddrs *all = NULL;
    dpb_status st = DPB_OK;
    if (bind_to) {
        if (getifaddrs(&all) != 0)
            all = NULL; /* then addresses only */
        st = find_given(all, bind_to, place);
        if (all)
            freeifaddrs(all);
    } else if (peer) {
        st = find_route(peer, place);
    } else {
        const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        place_of((const struct sockaddr *)&loopback, place);
    }
    DPB_TRY(st);
    set_port(place, port);
    return DPB_OK;
}
