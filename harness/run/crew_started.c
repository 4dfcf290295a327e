/* The driver's side of processes that somebody else started: they come, they are checked, and each
 * is told of launches. Rank 0 is this process, and has a rank of its own as the others do. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew_private.h"
#include "dpb_channel.h"
#include "dpb_claim.h"
#include "dpb_clock.h"
#include "dpb_log.h"
#include "open_files.h"

#define POLL_MS     20
#define DOOR_FDS    64
#define EXTRA_NS    200000000ll  /* after the last, for one too many to come */
#define FAREWELL_NS 5000000000ll /* for the others to end */
#define LISTED_MAX  8

struct member {
    int fd; /* -1: gone */
    struct dpb_str inbox;
    bool claimed;
    bool repeats; /* another has claimed the same rank before */
    bool at_work;
    struct dpb_world_claim claim;
};

struct crew_started {
    struct crew_rank rank; /* rank 0 */
    struct crew_meeting meeting;
    dpb_net_door *door;
    struct member *member; /* in the order in which they came; the first is this process */
    int count, room;
    struct dpb_world world;
    int64_t launch; /* its number */
    bool own_at_work;
    dpb_status failed; /* how the launch's first failure ended */
    char how[CREW_HOW_BYTES];
};

/* ---- they come ---- */

static dpb_status add_member(struct crew_started *s, int fd)
{
    if (s->count == s->room) {
        const int room = s->room ? 2 * s->room : 8;
        void *grown = realloc(s->member, (size_t)room * sizeof(*s->member));
        if (!grown) {
            close(fd);
            return DPB_ERR_NO_MEMORY;
        }
        s->member = grown;
        s->room = room;
    }
    s->member[s->count++] = (struct member){.fd = fd};
    return DPB_OK;
}

static dpb_status admit(struct crew_started *s)
{
    char role[DPB_NET_ROLE_BYTES];
    struct dpb_net_address from;
    int fd;
    dpb_status st;
    while ((st = dpb_net_door_admit(s->door, &fd, role, &from)) == DPB_OK)
        DPB_TRY(add_member(s, fd));
    return st < 0 ? st : DPB_OK;
}

static void part_with(struct member *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
    dpb_str_release(&m->inbox);
}

static bool is_claimed(const struct crew_started *s, int rank)
{
    for (int i = 0; i < s->count; i++)
        if (s->member[i].claimed && s->member[i].claim.rank == rank)
            return true;
    return false;
}

static void read_claims(struct crew_started *s)
{
    for (int i = 1; i < s->count; i++) {
        struct member *m = &s->member[i];
        dpb_json *json = NULL;
        if (m->claimed || m->fd < 0)
            continue;
        dpb_status open = dpb_inbox_fill(m->fd, &m->inbox);
        dpb_status taken = dpb_inbox_take(&m->inbox, &json);
        if (taken == DPB_OK) {
            dpb_claim_from_json(json, &m->claim);
            m->repeats = is_claimed(s, m->claim.rank);
            m->claimed = true;
            dpb_json_free(json);
        } else if (taken < 0 || open != DPB_OK) {
            part_with(m); /* it may come again */
        }
    }
}

static int count_claims(const struct crew_started *s)
{
    int claims = 0;
    for (int i = 0; i < s->count; i++)
        claims += s->member[i].claimed;
    return claims;
}

static void wait_for_news(const struct crew_started *s)
{
    int fds[DOOR_FDS];
    struct pollfd poll_fds[DOOR_FDS];
    const size_t count = dpb_net_door_fds(s->door, fds, DOOR_FDS);
    for (size_t i = 0; i < count; i++)
        poll_fds[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    (void)poll(poll_fds, count, POLL_MS);
}

static dpb_status say_missing(const struct crew_started *s, int size)
{
    struct dpb_str list = {0};
    int missing = 0;
    for (int r = 0; r < size; r++)
        if (!is_claimed(s, r) && missing++ < LISTED_MAX)
            dpb_str_appendf(&list, "%s%d", missing > 1 ? ", " : "", r);
    if (missing > LISTED_MAX)
        dpb_str_appendf(&list, " and %d more", missing - LISTED_MAX);
    dpb_error("%d of %d ranks did not come within --rendezvous-timeout: %s", missing, size,
              list.text ? list.text : "");
    dpb_log_hint("was every process started, with the same --rendezvous, and can it reach this "
                 "host? A slow start needs a longer --rendezvous-timeout");
    dpb_str_release(&list);
    return DPB_ERR_TIMEOUT;
}

/* All that there must be, and those that are too many. */
static dpb_status gather(struct crew_started *s, const struct crew_opening *opening)
{
    const int size = opening->launched.size;
    int64_t complete_ns = 0;
    for (;;) {
        DPB_TRY(admit(s));
        read_claims(s);
        const int claims = count_claims(s);
        const int64_t now_ns = dpb_clock_now_ns();
        if (claims >= size && complete_ns == 0)
            complete_ns = now_ns;
        if (claims > size || (complete_ns > 0 && now_ns - complete_ns > EXTRA_NS))
            return DPB_OK;
        for (int i = 1; i < s->count; i++)
            if (s->member[i].repeats)
                return DPB_OK; /* the one whose rank it is will not come */
        if (opening->interrupted && *opening->interrupted)
            return DPB_ERR_INTERRUPTED;
        if (now_ns >= opening->deadline_ns)
            return say_missing(s, size);
        wait_for_news(s);
    }
}

static dpb_status check(struct crew_started *s)
{
    const int count = count_claims(s);
    struct dpb_world_claim *claims = calloc((size_t)count, sizeof(*claims));
    if (!claims)
        return DPB_ERR_NO_MEMORY;
    for (int i = 0, n = 0; i < s->count; i++)
        if (s->member[i].claimed)
            claims[n++] = s->member[i].claim;
    dpb_status st = dpb_world_check(claims, count, NULL, &s->world);
    free(claims);
    return st;
}

static dpb_status claim_rank_zero(struct crew_started *s, const struct crew_opening *opening)
{
    struct dpb_world_claim claim;
    DPB_TRY(dpb_claim_self(&claim));
    snprintf(claim.settings, sizeof(claim.settings), "%s", opening->settings_hash);
    DPB_TRY(add_member(s, -1));
    s->member[0].claim = claim;
    s->member[0].claimed = true;
    return DPB_OK;
}

static dpb_status be_driver(dpb_crew *crew, const struct crew_opening *opening)
{
    struct crew_started *s = crew->started;
    int listen_fd = -1;
    DPB_TRY(open_files_allow(opening->launched.size, 1));
    DPB_TRY(claim_rank_zero(s, opening));
    DPB_TRY(crew_meeting_host(&s->meeting, &crew->options, &listen_fd));
    crew->token = s->meeting.token;
    s->rank = (struct crew_rank){&crew->token, opening->launched};
    DPB_TRY(dpb_net_door_open(listen_fd, &crew->token, &s->door));
    DPB_TRY(gather(s, opening));
    DPB_TRY(check(s));
    dpb_net_door_close(s->door);
    s->door = NULL;
    if (s->world.nodes > 1)
        snprintf(crew->bind_to, sizeof(crew->bind_to), "%s", s->meeting.address.host);
    return DPB_OK;
}

dpb_status crew_started_open(dpb_crew *crew, const struct crew_opening *opening,
                             dpb_status *verdict)
{
    struct crew_started *s = calloc(1, sizeof(*s));
    if (!s)
        return DPB_ERR_NO_MEMORY;
    crew->started = s;
    s->meeting.file_fd = -1;
    DPB_TRY(crew_meeting_find(&crew->options, &opening->launched, &s->meeting));
    if (opening->launched.rank == 0)
        return be_driver(crew, opening);
    int fd = -1;
    DPB_TRY(crew_meeting_join(&s->meeting, opening, &fd));
    const struct crew_rank rank = {&s->meeting.token, opening->launched};
    dpb_status st = crew_member_serve(fd, &rank, opening, verdict);
    close(fd);
    return st;
}

const struct dpb_world *crew_started_world(const dpb_crew *crew)
{
    return &crew->started->world;
}

/* ---- launches ---- */

static void tell(struct member *m, const dpb_json *message)
{
    if (m->fd >= 0 && dpb_message_send(m->fd, message) < 0)
        part_with(m);
}

static void tell_all(struct crew_started *s, const dpb_json *message)
{
    for (int i = 1; i < s->count; i++)
        tell(&s->member[i], message);
}

dpb_status crew_started_start(dpb_crew *crew, int ranks, const struct dpb_net_address *address)
{
    struct crew_started *s = crew->started;
    char where[DPB_NET_ADDRESS_BYTES];
    dpb_net_address_text(address, where);
    s->failed = DPB_OK;
    s->how[0] = '\0';
    for (int i = 1; i < s->count; i++)
        s->member[i].at_work = s->member[i].claim.rank < ranks;
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "launch");
    dpb_json_set_int(message, "launch", ++s->launch);
    dpb_json_set_string(message, "address", where);
    dpb_json_set_int(message, "ranks", ranks);
    tell_all(s, message);
    dpb_json_free(message);
    DPB_TRY(crew_rank_start(&s->rank, &crew->child, ranks, where));
    s->own_at_work = true;
    return DPB_OK;
}

static void note_failure(struct crew_started *s, dpb_status st, const char *how)
{
    if (st >= 0 || s->failed < 0)
        return;
    s->failed = DPB_ERR_RANK_FAILED;
    snprintf(s->how, sizeof(s->how), "%s", how);
}

/* A rank that ends while it is told to stop is told of twice: the second time may come when the
 * next launch is at work. */
static void take_end(struct crew_started *s, struct member *m, const dpb_json *message)
{
    char how[CREW_HOW_BYTES];
    if (dpb_json_as_int(dpb_json_get(message, "launch"), 0) != s->launch)
        return;
    m->at_work = false;
    snprintf(how, sizeof(how), "%.400s on %.80s",
             dpb_json_as_string(dpb_json_get(message, "how"), ""), m->claim.host);
    note_failure(s, (dpb_status)dpb_json_as_int(dpb_json_get(message, "status"), DPB_OK), how);
}

static void hear(struct crew_started *s, struct member *m)
{
    dpb_json *message = NULL;
    char how[CREW_HOW_BYTES];
    dpb_status open = dpb_inbox_fill(m->fd, &m->inbox), taken;
    while ((taken = dpb_inbox_take(&m->inbox, &message)) == DPB_OK) {
        take_end(s, m, message);
        dpb_json_free(message);
        message = NULL;
    }
    if (open == DPB_OK && taken >= 0)
        return;
    snprintf(how, sizeof(how), "rank %d's process (pid %ld on %s), which starts its ranks, is gone",
             m->claim.rank, m->claim.pid, m->claim.host);
    m->at_work = false;
    part_with(m);
    note_failure(s, DPB_ERR_RANK_FAILED, how);
}

/* News of everybody; true while one is at work. */
static bool hear_all(dpb_crew *crew)
{
    struct crew_started *s = crew->started;
    bool at_work = false;
    for (int i = 1; i < s->count; i++) {
        struct member *m = &s->member[i];
        if (m->fd >= 0)
            hear(s, m);
        else if (m->at_work)
            note_failure(s, DPB_ERR_RANK_FAILED, "a process that starts ranks is gone");
        at_work |= m->fd >= 0 && m->at_work;
    }
    if (s->own_at_work) {
        char how[CREW_HOW_BYTES] = "";
        dpb_status own = crew_child_check(&crew->child, "rank 0", how, sizeof(how));
        s->own_at_work = own == DPB_PENDING;
        note_failure(s, own, how);
    }
    return at_work || s->own_at_work;
}

dpb_status crew_started_check(dpb_crew *crew, char *how, size_t how_bytes)
{
    struct crew_started *s = crew->started;
    const bool at_work = hear_all(crew);
    if (s->failed < 0)
        snprintf(how, how_bytes, "%s", s->how);
    return s->failed < 0 ? s->failed : at_work ? DPB_PENDING : DPB_OK;
}

void crew_started_stop(dpb_crew *crew)
{
    struct crew_started *s = crew->started;
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "stop");
    hear_all(crew);
    for (int i = 1; i < s->count; i++)
        if (s->member[i].at_work)
            tell(&s->member[i], message);
    dpb_json_free(message);
    crew_child_stop(&crew->child);
    s->own_at_work = false;
    const int64_t deadline_ns = dpb_clock_now_ns() + FAREWELL_NS;
    while (hear_all(crew) && dpb_clock_now_ns() < deadline_ns)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + POLL_MS * 1000000ll);
}

/* ---- the end ---- */

/* Until they have closed: a launcher that sees rank 0 end first would end them by a signal. */
static void see_off(struct crew_started *s)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + FAREWELL_NS;
    for (int i = 1; i < s->count; i++) {
        struct member *m = &s->member[i];
        while (m->fd >= 0 && dpb_clock_now_ns() < deadline_ns) {
            struct pollfd poll_fd = {.fd = m->fd, .events = POLLIN};
            (void)poll(&poll_fd, 1, POLL_MS);
            if (dpb_inbox_fill(m->fd, &m->inbox) != DPB_OK)
                part_with(m);
            else
                s->member[i].inbox.length = 0;
        }
        part_with(m);
    }
}

void crew_started_close(dpb_crew *crew, dpb_status verdict)
{
    struct crew_started *s = crew->started;
    if (!s)
        return;
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "end");
    dpb_json_set_int(message, "status", verdict);
    tell_all(s, message);
    dpb_json_free(message);
    see_off(s);
    dpb_net_door_close(s->door);
    crew_meeting_end(&s->meeting);
    dpb_world_release(&s->world);
    free(s->member);
    free(s);
    crew->started = NULL;
}
