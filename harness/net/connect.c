/* connect.c: the connecting side: trying until somebody listens, then the greeting. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_units.h"
#include "greeting.h"
#include "net_private.h"

#define PAUSE_FIRST_NS 20000000ll
#define PAUSE_MOST_NS  500000000ll
#define ATTEMPT_NS     5000000000ll /* of one address of several: another may answer */

/* One attempt. DPB_ERR_MISMATCH is final, all else is tried again. */
struct attempt {
    const struct dpb_net_token *token;
    const char *role;
    const volatile sig_atomic_t *interrupted; /* NULL: nothing interrupts it */
    int64_t deadline_ns;
    int64_t share_ns; /* until then one address may take */
    int64_t until_ns; /* of what is under way with it */
    char why[512];
};

/* ---- with a deadline ---- */

static bool is_interrupted(const struct attempt *attempt)
{
    return attempt->interrupted && *attempt->interrupted;
}

/* DPB_OK when `fd` is ready for `events`, or broken, which the next call on it tells. */
static dpb_status wait_for(struct attempt *attempt, int fd, short events)
{
    for (;;) {
        const int64_t left_ns = attempt->until_ns - dpb_clock_now_ns();
        struct pollfd ready = {.fd = fd, .events = events};
        const int64_t left_ms = left_ns <= 0 ? 0 : left_ns / 1000000 + 1;
        int count = poll(&ready, 1, left_ms > 1000 ? 1000 : (int)left_ms);
        if (is_interrupted(attempt))
            return DPB_ERR_INTERRUPTED;
        if (count > 0)
            return DPB_OK;
        if (count < 0 && errno != EINTR) {
            snprintf(attempt->why, sizeof(attempt->why), "poll: %s", strerror(errno));
            return DPB_ERR_IO;
        }
        if (dpb_clock_now_ns() >= attempt->until_ns) {
            snprintf(attempt->why, sizeof(attempt->why), "no answer");
            return DPB_ERR_TIMEOUT;
        }
    }
}

static dpb_status send_part(struct attempt *attempt, int fd, const void *part, size_t bytes)
{
    /* A greeting's parts fit into the buffer of a fresh connection. */
    if (send(fd, part, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)
        return DPB_OK;
    snprintf(attempt->why, sizeof(attempt->why), "it hung up during the greeting");
    return DPB_ERR_IO;
}

static dpb_status receive_part(struct attempt *attempt, int fd, void *part, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t got = recv(fd, (char *)part + have, bytes - have, 0);
        if (got > 0) {
            have += (size_t)got;
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            DPB_TRY(wait_for(attempt, fd, POLLIN));
            continue;
        }
        snprintf(attempt->why, sizeof(attempt->why), "it hung up during the greeting%s%s",
                 got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
        return DPB_ERR_IO;
    }
    return DPB_OK;
}

/* ---- the greeting ---- */

static dpb_status greet(struct attempt *attempt, int fd)
{
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct dpb_net_proof proof;
    struct dpb_net_verdict verdict;
    DPB_TRY(dpb_net_hello_make(attempt->role, &hello));
    DPB_TRY(send_part(attempt, fd, &hello, sizeof(hello)));
    /* Its first bytes on their own: who is no dpbench may not send as many as a challenge has. */
    DPB_TRY(receive_part(attempt, fd, challenge.magic, sizeof(challenge.magic)));
    if (!dpb_net_magic_check(challenge.magic, sizeof(challenge.magic), attempt->why,
                             sizeof(attempt->why)))
        return DPB_ERR_MISMATCH;
    DPB_TRY(receive_part(attempt, fd, challenge.nonce, sizeof(challenge.nonce)));
    dpb_net_prove(attempt->token, DPB_NET_GUEST, &hello, &challenge, &proof);
    DPB_TRY(send_part(attempt, fd, &proof, sizeof(proof)));
    DPB_TRY(receive_part(attempt, fd, &verdict, sizeof(verdict)));
    if (dpb_net_verdict_welcome(&verdict) &&
        dpb_net_proven(attempt->token, DPB_NET_HOST, &hello, &challenge, &verdict.proof))
        return DPB_OK;
    snprintf(attempt->why, sizeof(attempt->why), "it has another token");
    return DPB_ERR_MISMATCH;
}

/* ---- the connection ---- */

/* A port that nobody listens on can, by chance, be the one that this socket was given: TCP then
 * connects the socket with itself. */
static bool is_itself(int fd)
{
    struct dpb_net_place here = {.bytes = sizeof(here.address)};
    struct dpb_net_place there = {.bytes = sizeof(there.address)};
    return getsockname(fd, DPB_NET_PLACE(&here), &here.bytes) == 0 &&
           getpeername(fd, DPB_NET_PLACE(&there), &there.bytes) == 0 && here.bytes == there.bytes &&
           memcmp(&here.address, &there.address, here.bytes) == 0;
}

static dpb_status reach(struct attempt *attempt, int fd, const struct addrinfo *to)
{
    int error = 0;
    socklen_t error_bytes = sizeof(error);
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            DPB_TRY(wait_for(attempt, fd, POLLOUT));
            if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
                error = errno;
        }
    }
    if (error == 0 && is_itself(fd))
        error = ECONNREFUSED;
    if (error == 0)
        return DPB_OK;
    snprintf(attempt->why, sizeof(attempt->why), "%s", strerror(error));
    return DPB_ERR_IO;
}

/* What comes next may take so long. */
static void allow(struct attempt *attempt, int64_t duration_ns)
{
    const int64_t until_ns = dpb_clock_now_ns() + duration_ns;
    attempt->until_ns = until_ns < attempt->share_ns ? until_ns : attempt->share_ns;
}

static dpb_status try_one(struct attempt *attempt, const struct addrinfo *to, int *connected)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        snprintf(attempt->why, sizeof(attempt->why), "socket: %s", strerror(errno));
        return DPB_ERR_IO;
    }
    dpb_net_tune(fd);
    allow(attempt, ATTEMPT_NS);
    dpb_status st = reach(attempt, fd, to);
    allow(attempt, DPB_NET_GREETING_NS); /* after which the host has forgotten it */
    if (st == DPB_OK)
        st = greet(attempt, fd);
    if (st != DPB_OK) {
        close(fd);
        return st;
    }
    dpb_net_set_blocking(fd, true);
    *connected = fd;
    return DPB_OK;
}

static dpb_status try_all(struct attempt *attempt, const struct dpb_net_address *to, int *fd)
{
    struct addrinfo *found =
            dpb_net_resolve(to->host, to->port, SOCK_STREAM, attempt->why, sizeof(attempt->why));
    /* A name may come later: pods get theirs when they are ready. */
    dpb_status st = found ? DPB_ERR_IO : DPB_ERR_UNAVAILABLE;
    int untried = 0;
    for (const struct addrinfo *one = found; one; one = one->ai_next)
        untried++;
    for (const struct addrinfo *one = found; one; one = one->ai_next) {
        const int64_t now_ns = dpb_clock_now_ns();
        /* Those that say nothing leave time for one that answers. */
        attempt->share_ns = now_ns + (attempt->deadline_ns - now_ns) / untried--;
        st = try_one(attempt, one, fd);
        if (st == DPB_OK || st == DPB_ERR_MISMATCH || st == DPB_ERR_INTERRUPTED)
            break;
    }
    if (found)
        freeaddrinfo(found);
    return st;
}

/* ---- until it works ---- */

static dpb_status give_up(const struct attempt *attempt, const char *text, dpb_status st,
                          int64_t begun_ns)
{
    char waited[DPB_UNIT_TEXT_BYTES];
    const int64_t waited_ms = (dpb_clock_now_ns() - begun_ns) / 1000000;
    dpb_format_duration(waited_ms / 100 * 100000000, waited, sizeof(waited));
    if (st == DPB_ERR_MISMATCH) {
        dpb_error("cannot connect to %s as %s: ranks disagree: %s", text, attempt->role,
                  attempt->why);
        dpb_log_hint("all processes of a run need the same dpbench and the same DPBENCH_TOKEN");
        return st;
    }
    dpb_error("cannot connect to %s as %s: gave up after %s: %s", text, attempt->role, waited,
              attempt->why);
    if (st == DPB_ERR_UNAVAILABLE)
        return st;
    dpb_log_hint("is it still there, and does a firewall let this host reach it? --interface "
                 "says where the launcher listens");
    return DPB_ERR_TIMEOUT;
}

dpb_status dpb_net_connect(const struct dpb_net_address *to, const struct dpb_net_token *token,
                           const char *role, int64_t deadline_ns, int *fd)
{
    return dpb_net_connect_unless(to, token, role, deadline_ns, NULL, fd);
}

dpb_status dpb_net_connect_unless(const struct dpb_net_address *to,
                                  const struct dpb_net_token *token, const char *role,
                                  int64_t deadline_ns, const volatile sig_atomic_t *interrupted,
                                  int *fd)
{
    struct attempt attempt = {
            .token = token, .role = role, .interrupted = interrupted, .deadline_ns = deadline_ns};
    const int64_t begun_ns = dpb_clock_now_ns();
    char text[DPB_NET_ADDRESS_BYTES];
    dpb_net_address_text(to, text);
    for (int64_t pause_ns = PAUSE_FIRST_NS;; pause_ns = 2 * pause_ns) {
        dpb_status st = try_all(&attempt, to, fd);
        if (st == DPB_OK)
            return DPB_OK;
        if (pause_ns > PAUSE_MOST_NS)
            pause_ns = PAUSE_MOST_NS;
        const int64_t now_ns = dpb_clock_now_ns();
        if (is_interrupted(&attempt))
            return DPB_ERR_INTERRUPTED;
        if (st == DPB_ERR_MISMATCH || now_ns >= deadline_ns)
            return give_up(&attempt, text, st, begun_ns);
        dpb_clock_sleep_until_ns(now_ns + pause_ns < deadline_ns ? now_ns + pause_ns : deadline_ns);
    }
}
