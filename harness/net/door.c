/* door.c: the listening side: greetings of many connections at a time, in one thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "greeting.h"
#include "net_private.h"

/* Whose greeting is under way: all ranks of the largest run may come at once. When there are more,
 * the one who has waited longest is dropped: a guest needs one round trip, and comes back. */
#define WAITING_MAX 5120
#define ACCEPTS_MAX 64 /* at a time, so that a flood leaves time for greetings */

enum stage {
    STAGE_HELLO,
    STAGE_PROOF
};

struct waiting {
    int fd;
    enum stage stage;
    size_t have; /* bytes of what the stage receives */
    int64_t deadline_ns;
    struct dpb_net_address from;
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct dpb_net_proof proof;
};

struct dpb_net_door {
    int listen_fd;
    struct dpb_net_token token;
    int64_t greeting_ns;
    size_t count, next;                   /* whose turn it is */
    struct waiting *waiting[WAITING_MAX]; /* in the order in which they came */
    uint64_t strangers;
    bool starved; /* no descriptors left: who comes cannot be let in */
    bool has_starved;
};

dpb_status dpb_net_door_open(int listen_fd, const struct dpb_net_token *token, dpb_net_door **door)
{
    dpb_net_door *opened = calloc(1, sizeof(*opened));
    if (!opened) {
        dpb_error("cannot listen for ranks: out of memory");
        close(listen_fd);
        return DPB_ERR_NO_MEMORY;
    }
    opened->listen_fd = listen_fd;
    opened->token = *token;
    opened->greeting_ns = DPB_NET_GREETING_NS;
    *door = opened;
    return DPB_OK;
}

void dpb_net_door_set_patience(dpb_net_door *door, int64_t greeting_ns)
{
    door->greeting_ns = greeting_ns;
}

/* Without closing its connection. */
static void forget(dpb_net_door *door, size_t index)
{
    free(door->waiting[index]);
    door->count--;
    if (index < door->next)
        door->next--;
    memmove(&door->waiting[index], &door->waiting[index + 1],
            (door->count - index) * sizeof(door->waiting[0]));
}

static void drop(dpb_net_door *door, size_t index, const char *why)
{
    const struct waiting *stranger = door->waiting[index];
    char from[DPB_NET_ADDRESS_BYTES];
    dpb_net_address_text(&stranger->from, from);
    if (door->strangers++ == 0)
        dpb_warn("a connection from %s is refused: %s", from, why);
    else
        dpb_debug("a connection from %s is refused: %s", from, why);
    close(stranger->fd);
    forget(door, index);
}

/* It may be a guest: no stranger is counted. */
static void drop_oldest(dpb_net_door *door)
{
    dpb_debug("the oldest of %zu greetings that are under way is given up", door->count);
    close(door->waiting[0]->fd);
    forget(door, 0);
}

void dpb_net_door_close(dpb_net_door *door)
{
    if (!door)
        return;
    while (door->count > 0) {
        close(door->waiting[door->count - 1]->fd);
        forget(door, door->count - 1);
    }
    if (door->strangers > 1)
        dpb_warn("%llu connections were refused", (unsigned long long)door->strangers);
    close(door->listen_fd);
    free(door);
}

size_t dpb_net_door_fds(const dpb_net_door *door, int *fds, size_t room)
{
    size_t count = 0;
    /* Starved, it stays ready without anything that could be done. */
    if (count < room && !door->starved)
        fds[count++] = door->listen_fd;
    for (size_t i = 0; i < door->count && count < room; i++)
        fds[count++] = door->waiting[i]->fd;
    return count;
}

/* ---- one greeting ---- */

/* DPB_OK: all of it is there. DPB_PENDING: not yet. DPB_ERR_IO and `why`: it will not be. */
static dpb_status receive(struct waiting *guest, void *part, size_t bytes, char *why,
                          size_t why_bytes)
{
    while (guest->have < bytes) {
        ssize_t got = recv(guest->fd, (char *)part + guest->have, bytes - guest->have, 0);
        if (got > 0) {
            guest->have += (size_t)got;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return DPB_PENDING;
        snprintf(why, why_bytes, "it hung up during the greeting%s%s", got < 0 ? ": " : "",
                 got < 0 ? strerror(errno) : "");
        return DPB_ERR_IO;
    }
    guest->have = 0;
    return DPB_OK;
}

/* A greeting's parts fit into the buffer of a fresh connection. */
static bool reply(const struct waiting *guest, const void *part, size_t bytes)
{
    return send(guest->fd, part, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static dpb_status hear_hello(struct waiting *guest, char *why, size_t why_bytes)
{
    struct dpb_net_hello *hello = &guest->hello;
    dpb_status st = receive(guest, hello, sizeof(*hello), why, why_bytes);
    const size_t heard = st == DPB_OK ? sizeof(*hello) : guest->have;
    const bool ours = dpb_net_magic_check(hello->magic, heard, why, why_bytes);
    if (st != DPB_OK && ours)
        return st;
    DPB_TRY(dpb_net_challenge_make(&guest->challenge));
    /* Also to a dpbench of another protocol, so that it can say what is wrong. */
    const bool sent = st == DPB_OK && reply(guest, &guest->challenge, sizeof(guest->challenge));
    if (!ours)
        return DPB_ERR_MISMATCH;
    if (!memchr(hello->role, '\0', sizeof(hello->role)) || hello->role[0] == '\0') {
        snprintf(why, why_bytes, "it does not say what it wants");
        return DPB_ERR_MISMATCH;
    }
    if (!sent) {
        snprintf(why, why_bytes, "it takes no answer");
        return DPB_ERR_IO;
    }
    guest->stage = STAGE_PROOF;
    return DPB_OK;
}

static dpb_status hear_proof(const dpb_net_door *door, struct waiting *guest, char *why,
                             size_t why_bytes)
{
    struct dpb_net_verdict verdict;
    dpb_status st = receive(guest, &guest->proof, sizeof(guest->proof), why, why_bytes);
    if (st != DPB_OK)
        return st;
    const bool welcome = dpb_net_proven(&door->token, DPB_NET_GUEST, &guest->hello,
                                        &guest->challenge, &guest->proof);
    dpb_net_verdict_make(welcome, &verdict);
    if (welcome)
        dpb_net_prove(&door->token, DPB_NET_HOST, &guest->hello, &guest->challenge, &verdict.proof);
    const bool sent = reply(guest, &verdict, sizeof(verdict));
    if (welcome && sent)
        return DPB_OK;
    snprintf(why, why_bytes, "%s",
             welcome ? "it takes no answer" : "ranks disagree: it has another token");
    return DPB_ERR_MISMATCH;
}

/* DPB_OK: it is in. DPB_PENDING: it has more to say. Else `why` it is none of ours. */
static dpb_status go_on(const dpb_net_door *door, struct waiting *guest, int64_t now_ns, char *why,
                        size_t why_bytes)
{
    dpb_status st = DPB_OK;
    if (guest->stage == STAGE_HELLO)
        st = hear_hello(guest, why, why_bytes);
    if (st == DPB_OK)
        st = hear_proof(door, guest, why, why_bytes);
    if (st == DPB_PENDING && now_ns >= guest->deadline_ns) {
        snprintf(why, why_bytes, "it did not greet in time");
        return DPB_ERR_TIMEOUT;
    }
    return st;
}

/* ---- who comes ---- */

static bool wait_for(dpb_net_door *door, int fd, const struct dpb_net_place *from, int64_t now_ns)
{
    struct waiting *guest = calloc(1, sizeof(*guest));
    if (!guest)
        return false;
    guest->fd = fd;
    guest->deadline_ns = now_ns + door->greeting_ns;
    dpb_net_place_text(from, &guest->from);
    dpb_net_tune(fd);
    door->waiting[door->count++] = guest;
    return true;
}

/* No descriptors, or no memory: whoever waits makes room, the connection stays in the queue. */
static bool make_room(dpb_net_door *door)
{
    if (door->count > 0) {
        drop_oldest(door);
        return true;
    }
    if (!door->has_starved)
        dpb_error("cannot accept a connection: %s", strerror(errno));
    door->starved = door->has_starved = true;
    return false;
}

static void accept_some(dpb_net_door *door, int64_t now_ns)
{
    door->starved = false;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct dpb_net_place from = {.bytes = sizeof(from.address)};
        int fd = accept4(door->listen_fd, DPB_NET_PLACE(&from), &from.bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0) {
            const bool full =
                    errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            if (full && !make_room(door))
                return;
            continue; /* else that connection has ended already */
        }
        if (door->count == WAITING_MAX)
            drop_oldest(door);
        if (!wait_for(door, fd, &from, now_ns))
            close(fd);
    }
}

static dpb_status let_in(dpb_net_door *door, size_t index, int *fd, char role[DPB_NET_ROLE_BYTES],
                         struct dpb_net_address *from)
{
    const struct waiting *guest = door->waiting[index];
    *fd = guest->fd;
    *from = guest->from;
    memcpy(role, guest->hello.role, DPB_NET_ROLE_BYTES);
    dpb_net_set_blocking(guest->fd, true);
    forget(door, index);
    return DPB_OK;
}

dpb_status dpb_net_door_admit(dpb_net_door *door, int *fd, char role[DPB_NET_ROLE_BYTES],
                              struct dpb_net_address *from)
{
    const int64_t now_ns = dpb_clock_now_ns();
    char why[256];
    accept_some(door, now_ns);
    /* Everyone once, beginning after the guest who came in last: thousands come in one after the
     * other without each of them being asked again for each. */
    for (size_t left = door->count; left > 0 && door->count > 0; left--) {
        if (door->next >= door->count)
            door->next = 0;
        dpb_status st = go_on(door, door->waiting[door->next], now_ns, why, sizeof(why));
        if (st == DPB_OK)
            return let_in(door, door->next, fd, role, from);
        if (st == DPB_PENDING)
            door->next++;
        else
            drop(door, door->next, why);
    }
    return DPB_PENDING;
}
