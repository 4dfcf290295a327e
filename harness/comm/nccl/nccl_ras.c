#include "nccl_ras.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_clock.h"

static const char question[] = "verbose status\n";

const char *dpb_nccl_ras_address(void)
{
    const char *given = getenv("NCCL_RAS_ADDR");
    return given && given[0] ? given : DPB_NCCL_RAS_ADDRESS;
}

/* "host:port" in two; false when it is not one. */
static bool split_address(const char *address, char *host, size_t host_bytes, const char **port)
{
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (!colon || !colon[1] || length == 0 || length >= host_bytes)
        return false;
    if (address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    memcpy(host, address, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

/* Wait until the socket can do `events`: 1, 0 when it is too late, -1 with errno. */
static int wait_for(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ns = deadline_ns - dpb_clock_now_ns();
        struct pollfd poll_fd = {.fd = fd, .events = events};
        if (left_ns <= 0)
            return 0;
        int ready = poll(&poll_fd, 1, (int)((left_ns + 999999) / 1000000));
        if (ready > 0)
            return 1;
        if (ready < 0 && errno != EINTR)
            return -1;
    }
}

/* A connected socket, or -1 with errno. */
static int connect_to(const struct addrinfo *at, int64_t deadline_ns)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    int fd = socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
        return fd;
    if (errno == EINPROGRESS) {
        int ready = wait_for(fd, POLLOUT, deadline_ns);
        if (ready == 0)
            errno = ETIMEDOUT;
        else if (ready > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) == 0) {
            if (error == 0)
                return fd;
            errno = error;
        }
    }
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int connect_any(const char *host, const char *port, int64_t deadline_ns, const char **reason)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int fd = -1;
    int rc = getaddrinfo(host, port, &wanted, &list);
    if (rc != 0) {
        *reason = gai_strerror(rc);
        return -1;
    }
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
        fd = connect_to(at, deadline_ns);
    if (fd < 0)
        *reason = strerror(errno);
    freeaddrinfo(list);
    return fd;
}

static bool send_question(int fd, int64_t deadline_ns)
{
    size_t sent = 0;
    while (sent < sizeof(question) - 1) {
        if (wait_for(fd, POLLOUT, deadline_ns) <= 0)
            return false;
        ssize_t n = send(fd, question + sent, sizeof(question) - 1 - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        sent += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Until the end, the deadline, an error, or enough. */
static void receive(int fd, int64_t deadline_ns, struct dpb_str *text)
{
    char piece[4096];
    size_t got = 0;
    while (got < DPB_NCCL_RAS_TEXT && wait_for(fd, POLLIN, deadline_ns) > 0) {
        ssize_t n = recv(fd, piece, sizeof(piece), 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return;
        size_t taken = (size_t)n < DPB_NCCL_RAS_TEXT - got ? (size_t)n : DPB_NCCL_RAS_TEXT - got;
        dpb_str_append_bytes(text, piece, taken);
        got += taken;
    }
}

dpb_status dpb_nccl_ras_status(const char *address, int64_t deadline_ns, struct dpb_str *text,
                               char *why, size_t why_bytes)
{
    char host[256];
    const char *port;
    const char *reason = "";
    const size_t before = text->length;
    if (!split_address(address, host, sizeof(host), &port)) {
        snprintf(why, why_bytes, "\"%s\" is no address such as %s", address, DPB_NCCL_RAS_ADDRESS);
        return DPB_ERR_UNAVAILABLE;
    }
    int fd = connect_any(host, port, deadline_ns, &reason);
    if (fd < 0) {
        snprintf(why, why_bytes, "no connection to %s: %s", address, reason);
        return DPB_ERR_UNAVAILABLE;
    }
    if (send_question(fd, deadline_ns))
        receive(fd, deadline_ns, text);
    close(fd);
    if (text->length > before)
        return DPB_OK;
    snprintf(why, why_bytes, "%s said nothing in time", address);
    return DPB_ERR_TIMEOUT;
}
