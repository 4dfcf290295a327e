/* address.c: addresses as texts. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "net_private.h"

/* An IPv6 address, with or without the interface that it is about ("fe80::1%eth0"). */
static bool is_ipv6(const char *text)
{
    char address[DPB_NET_HOST_BYTES];
    struct in6_addr parsed;
    snprintf(address, sizeof(address), "%.*s", (int)strcspn(text, "%"), text);
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* Hexadecimal digits and several colons, with a port or without. */
static bool looks_like_ipv6(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon && strchr(colon + 1, ':') &&
           text[strspn(text, "0123456789abcdefABCDEF:.")] == '\0';
}

static bool parse_port(const char *text, int *port)
{
    int value = 0;
    const char *digit = text;
    for (; *digit >= '0' && *digit <= '9' && value <= 65535; digit++)
        value = value * 10 + (*digit - '0');
    *port = value;
    return digit != text && *digit == '\0' && value >= 1 && value <= 65535;
}

/* The host in [text, end), and what follows it: "" or ":port". */
static const char *split(const char *text, const char **host, size_t *host_bytes)
{
    const char *end;
    if (*text == '[' && (end = strchr(text, ']')) != NULL) {
        *host = text + 1;
        *host_bytes = (size_t)(end - *host);
        return end + 1;
    }
    *host = text;
    *host_bytes = strcspn(text, ":");
    return text + *host_bytes;
}

dpb_status dpb_net_address_parse(const char *text, int default_port,
                                 struct dpb_net_address *address, char *why, size_t why_bytes)
{
    struct dpb_net_address parsed = {.port = default_port};
    const char *host;
    size_t host_bytes;
    const char *rest = split(text, &host, &host_bytes);
    const bool bracketed = *text == '[';
    if (host_bytes < sizeof(parsed.host))
        memcpy(parsed.host, host, host_bytes);

    if (looks_like_ipv6(text))
        snprintf(why, why_bytes, "an IPv6 address is written in brackets: [::1]:29400");
    else if (host_bytes == 0)
        snprintf(why, why_bytes, "there is no host before the port");
    else if (host_bytes >= sizeof(parsed.host))
        snprintf(why, why_bytes, "the host has more than %d characters", DPB_NET_HOST_BYTES - 1);
    else if (strcspn(parsed.host, " \t\r\n\"'/[]") != host_bytes)
        snprintf(why, why_bytes, "\"%s\" is no host", parsed.host);
    else if (bracketed && !is_ipv6(parsed.host))
        snprintf(why, why_bytes, "\"%s\" is no IPv6 address", parsed.host);
    else if (*rest == '\0' && default_port < 0)
        snprintf(why, why_bytes, "there is no port: HOST:PORT");
    else if (*rest != '\0' && (*rest != ':' || !parse_port(rest + 1, &parsed.port)))
        snprintf(why, why_bytes, "\"%s\" is no port: 1 to 65535", *rest == ':' ? rest + 1 : rest);
    else {
        *address = parsed;
        return DPB_OK;
    }
    return DPB_ERR_USAGE;
}

void dpb_net_address_text(const struct dpb_net_address *address, char text[DPB_NET_ADDRESS_BYTES])
{
    const char *format = strchr(address->host, ':') ? "[%.*s]:%d" : "%.*s:%d";
    snprintf(text, DPB_NET_ADDRESS_BYTES, format, DPB_NET_HOST_BYTES - 1, address->host,
             address->port);
}

void dpb_net_place_text(const struct dpb_net_place *place, struct dpb_net_address *text)
{
    char port[8] = "0";
    if (getnameinfo((const struct sockaddr *)&place->address, place->bytes, text->host,
                    sizeof(text->host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text->host, sizeof(text->host), "unknown");
    if (!parse_port(port, &text->port))
        text->port = 0;
}

struct addrinfo *dpb_net_resolve(const char *host, int port, int socktype, char *why,
                                 size_t why_bytes)
{
    const struct addrinfo wanted = {
            .ai_family = AF_UNSPEC, .ai_socktype = socktype, .ai_flags = AI_NUMERICSERV};
    char service[16];
    struct addrinfo *found = NULL;
    snprintf(service, sizeof(service), "%d", port);
    int error = getaddrinfo(host, service, &wanted, &found);
    if (error != 0)
        snprintf(why, why_bytes, "\"%s\" does not resolve: %s", host, gai_strerror(error));
    return error == 0 ? found : NULL;
}
