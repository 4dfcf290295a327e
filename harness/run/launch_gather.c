#include "launch_gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_claim.h"
#include "dpb_clock.h"
#include "dpb_crew.h"
#include "dpb_log.h"
#include "dpb_units.h"

#define POLL_MS     50
#define LISTED_MOST 16
#define GRACE_NS    2000000000ll /* for the crew's launcher to say how it ended */

/* ---- the door ---- */

static void welcome(struct launch *l, struct launch_gathering *g, int fd,
                    const struct dpb_net_address *from)
{
    char text[DPB_NET_ADDRESS_BYTES];
    if (g->guest && g->guests < l->config->ranks) {
        g->guest[g->guests++] = (struct launch_guest){.fd = fd, .heard_ns = dpb_clock_now_ns()};
        return;
    }
    dpb_net_address_text(from, text);
    dpb_warn("one process more than the launch has ranks (%d) came from %s, and is sent away",
             l->config->ranks, text);
    close(fd);
}

dpb_status launch_admit(struct launch *l, struct launch_gathering *g)
{
    struct dpb_net_address from;
    char role[DPB_NET_ROLE_BYTES];
    dpb_status st;
    int fd;
    while ((st = dpb_net_door_admit(g->door, &fd, role, &from)) == DPB_OK) {
        if (strcmp(role, "rank") == 0)
            welcome(l, g, fd, &from);
        else if (strcmp(role, DPB_RENDEZVOUS_ROLE) == 0)
            DPB_TRY(dpb_rendezvous_server_give(g->server, fd, &from));
        else
            close(fd);
    }
    return st < 0 ? st : DPB_OK;
}

/* ---- guests ---- */

static void take_claim(struct launch_guest *guest, const dpb_json *message)
{
    if (dpb_json_get(message, "type")) { /* an error */
        snprintf(guest->error, sizeof(guest->error), "%s",
                 dpb_json_as_string(dpb_json_get(message, "text"), ""));
        return;
    }
    dpb_claim_from_json(message, &guest->claim);
    guest->has_claimed = true;
}

/* DPB_END when it has gone. */
static dpb_status listen_to(struct launch_guest *guest)
{
    struct dpb_frame frame;
    const size_t before = guest->inbox.length;
    dpb_status open = dpb_inbox_fill(guest->fd, &guest->inbox), st;
    if (guest->inbox.length > before)
        guest->heard_ns = dpb_clock_now_ns();
    while ((st = dpb_inbox_peek(&guest->inbox, &frame)) == DPB_OK) {
        dpb_json *message = NULL;
        char why[256];
        if (frame.kind == DPB_FRAME_MESSAGE) {
            DPB_TRY(dpb_json_parse(frame.bytes, frame.count, &message, why));
            take_claim(guest, message);
            dpb_json_free(message);
        }
        dpb_inbox_drop(&guest->inbox, &frame);
    }
    return st < 0 ? st : open;
}

static void guest_name(const struct launch_guest *guest, char name[LAUNCH_NAME_BYTES])
{
    const struct dpb_world_claim *claim = &guest->claim;
    if (!guest->has_claimed)
        snprintf(name, LAUNCH_NAME_BYTES, "a process that has not said its rank");
    else
        snprintf(name, LAUNCH_NAME_BYTES, "rank %d (pid %ld on %s)", claim->rank, claim->pid,
                 claim->host);
}

/* The crew's launcher ends soon after a rank of it has. */
static void wait_for_crew(struct launch *l)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + GRACE_NS;
    while (dpb_crew_check(l->config->crew, l->crew_how, sizeof(l->crew_how)) == DPB_PENDING) {
        l->crew_how[0] = '\0';
        if (dpb_clock_now_ns() >= deadline_ns)
            return;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 10000000);
    }
}

static dpb_status guest_left(struct launch *l, const struct launch_guest *guest)
{
    char name[LAUNCH_NAME_BYTES];
    guest_name(guest, name);
    wait_for_crew(l);
    launch_say(l, "%s ended before all ranks were there%s%s%s%s", name, guest->error[0] ? ": " : "",
               guest->error, l->crew_how[0] ? "; " : "", l->crew_how);
    dpb_error("%s", l->result->reason);
    return DPB_ERR_RANK_FAILED;
}

/* A rank gives its greeting up when the answer comes too late, and comes again: who leaves without
 * a word was none yet. Should it not come again, the crew tells, or the time-out. */
static void forget_guest(struct launch_guest *guest)
{
    dpb_debug("a process that has not said its rank has left");
    close(guest->fd);
    guest->fd = -1;
    dpb_str_release(&guest->inbox);
}

static void close_ranks(struct launch_gathering *g)
{
    int left = 0;
    for (int i = 0; i < g->guests; i++)
        if (g->guest[i].fd >= 0)
            g->guest[left++] = g->guest[i];
    g->guests = left;
}

/* All were asked for news in l->fds. */
static dpb_status listen_to_all(struct launch *l, struct launch_gathering *g)
{
    for (int i = 0; i < g->guests; i++) {
        struct launch_guest *guest = &g->guest[i];
        if (l->fds[i].revents == 0)
            continue;
        dpb_status st = listen_to(guest);
        if (st == DPB_END && !guest->has_claimed && !guest->error[0] && guest->inbox.length == 0)
            forget_guest(guest);
        else if (st == DPB_END || guest->error[0])
            return guest_left(l, guest);
        if (st >= 0)
            continue;
        launch_say(l, "a process that came as a rank sent a message that cannot be read");
        dpb_error("%s", l->result->reason);
        return st;
    }
    close_ranks(g);
    return DPB_OK;
}

/* Eight bytes: a socket takes them whole, or is so full that they are not needed. */
static void tell_all(struct launch_gathering *g, enum dpb_frame_kind kind)
{
    for (int i = 0; i < g->guests; i++) {
        struct dpb_str frame = {0};
        dpb_frame_append(&frame, kind, NULL, 0);
        (void)dpb_outbox_flush(g->guest[i].fd, &frame);
        dpb_str_release(&frame);
    }
}

/* They may have to wait for long, and give up a launcher that is silent. */
static void beat(struct launch_gathering *g)
{
    const int64_t now_ns = dpb_clock_now_ns();
    if (now_ns < g->next_beat_ns)
        return;
    g->next_beat_ns = now_ns + DPB_LAUNCHER_BEAT_NS;
    tell_all(g, DPB_FRAME_BEAT);
}

/* ---- all there? ---- */

static int claims(const struct launch_gathering *g)
{
    int count = 0;
    for (int i = 0; i < g->guests; i++)
        count += g->guest[i].has_claimed;
    return count;
}

static bool has_come(const struct launch_gathering *g, int rank)
{
    for (int i = 0; i < g->guests; i++)
        if (g->guest[i].has_claimed && g->guest[i].claim.rank == rank)
            return true;
    return false;
}

/* "ranks 2 (node2), 3 (node2)" */
static void missing_text(const struct launch *l, const struct launch_gathering *g,
                         struct dpb_str *text)
{
    int listed = 0, missing = 0;
    for (int r = 0; r < l->config->ranks; r++) {
        if (has_come(g, r) || ++missing > LISTED_MOST)
            continue;
        dpb_str_appendf(text, "%s%d", listed++ ? ", " : "rank ", r);
        if (g->expected)
            dpb_str_appendf(text, " (%s)", g->expected->place[r].host);
    }
    if (missing > listed)
        dpb_str_appendf(text, " and %d more", missing - listed);
}

/* mpirun may have been given fewer. */
static int told_size(const struct launch *l, const struct launch_gathering *g)
{
    for (int i = 0; i < g->guests; i++)
        if (g->guest[i].has_claimed && g->guest[i].claim.size != l->config->ranks)
            return g->guest[i].claim.size;
    return l->config->ranks;
}

static dpb_status not_all_came(struct launch *l, const struct launch_gathering *g, dpb_status st,
                               const char *why)
{
    struct dpb_str text = {0};
    const int size = told_size(l, g);
    const char *remedy = dpb_crew_remedy(l->config->crew);
    missing_text(l, g, &text);
    launch_say(l, "%d of %d ranks did not come %s: %s", l->config->ranks - claims(g),
               l->config->ranks, why, text.text ? text.text : "");
    dpb_str_release(&text);
    dpb_error("%s", l->result->reason);
    if (remedy)
        dpb_log_hint("%s", remedy);
    else if (size != l->config->ranks)
        dpb_log_hint("those that came were told that they are %d", size);
    else
        dpb_log_hint("every host must reach this one (--interface chooses the network), and have "
                     "this dpbench");
    return st;
}

static dpb_status check_crew(struct launch *l, const struct launch_gathering *g)
{
    char why[LAUNCH_TEXT_BYTES + 32];
    dpb_status st = dpb_crew_check(l->config->crew, l->crew_how, sizeof(l->crew_how));
    if (st == DPB_PENDING) {
        l->crew_how[0] = '\0';
        return DPB_OK;
    }
    if (st == DPB_OK)
        snprintf(l->crew_how, sizeof(l->crew_how), "the ranks' launcher ended");
    snprintf(why, sizeof(why), "(%s)", l->crew_how);
    return not_all_came(l, g, DPB_ERR_RANK_FAILED, why);
}

static dpb_status wait_for_all(struct launch *l, struct launch_gathering *g)
{
    const int ranks = l->config->ranks;
    const int64_t limit_ns = l->config->start_timeout_ns > 0 ? l->config->start_timeout_ns
                                                             : l->config->stall_timeout_ns;
    const int64_t deadline_ns = dpb_clock_now_ns() + limit_ns;
    char why[64], limit[DPB_UNIT_TEXT_BYTES];
    while (claims(g) < ranks) {
        int fds[LAUNCH_MORE_FDS];
        const size_t more = dpb_net_door_fds(g->door, fds, LAUNCH_MORE_FDS);
        const int polled = g->guests;
        for (int i = 0; i < polled; i++)
            l->fds[i] = (struct pollfd){.fd = g->guest[i].fd, .events = POLLIN};
        for (size_t i = 0; i < more; i++)
            l->fds[(size_t)polled + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        (void)poll(l->fds, (nfds_t)((size_t)polled + more), POLL_MS);
        DPB_TRY(launch_check_interrupt(l));
        DPB_TRY(listen_to_all(l, g)); /* first: who has left makes room for who comes */
        DPB_TRY(launch_admit(l, g));
        beat(g);
        if (claims(g) < ranks)
            DPB_TRY(check_crew(l, g));
        if (dpb_clock_now_ns() < deadline_ns)
            continue;
        dpb_format_duration(limit_ns, limit, sizeof(limit));
        snprintf(why, sizeof(why), "within %s", limit);
        return not_all_came(l, g, DPB_ERR_TIMEOUT, why);
    }
    return DPB_OK;
}

/* Who is who: a guest's channel is a rank's now. */
static void seat(struct launch *l, struct launch_gathering *g, struct dpb_world_claim *claim)
{
    for (int i = 0; i < g->guests; i++) {
        struct launch_guest *guest = &g->guest[i];
        struct launch_rank *rank = &l->rank[guest->claim.rank];
        claim[guest->claim.rank] = guest->claim;
        rank->pid = guest->claim.pid;
        rank->fd = guest->fd;
        rank->inbox = guest->inbox;
        rank->heard_ns = guest->heard_ns;
    }
    free(g->guest);
    g->guest = NULL;
    g->guests = 0;
}

dpb_status launch_gather(struct launch *l, struct launch_gathering *g,
                         struct dpb_world_claim *claim, struct dpb_world *world)
{
    DPB_TRY(wait_for_all(l, g));
    for (int i = 0; i < g->guests; i++)
        claim[i] = g->guest[i].claim;
    dpb_status st = dpb_world_check(claim, g->guests, g->expected, world);
    if (st < 0) {
        launch_say(l, "the ranks that came are not those of one launch");
        return st;
    }
    seat(l, g, claim);
    return DPB_OK;
}

void launch_gathering_release(struct launch_gathering *g)
{
    tell_all(g, DPB_FRAME_LEAVE);
    for (int i = 0; i < g->guests; i++) {
        close(g->guest[i].fd);
        dpb_str_release(&g->guest[i].inbox);
    }
    free(g->guest);
    dpb_net_door_close(g->door);
    dpb_rendezvous_server_close(g->server);
}
