/* launch_remote.c: ranks that a crew starts, anywhere; they call back over TCP. */
#include "launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_claim.h"
#include "dpb_clock.h"
#include "dpb_crew.h"
#include "dpb_log.h"
#include "dpb_placement.h"
#include "dpb_units.h"
#include "launch_clock.h"
#include "launch_gather.h"
#include "open_files.h"

#define LOST_GRACE_NS 3000000000ll /* for the crew's launcher to say how a rank ended */
#define CLOSE_NS      5000000000ll /* after its result, for a rank to close its parts, */
#define LEAVE_NS      5000000000ll /* and to end */
#define SILENT_BEATS  6            /* after which a rank may be stopped */

struct remote {
    struct launch_gathering gathering;
    struct dpb_world expected, world;
    struct dpb_world_claim *claim; /* per rank */
    struct launch_clocks *clocks;
    int64_t silence_ns, next_beat_ns;
    int64_t changed_ns[]; /* per rank: its line's, on its own clock */
};

/* ---- start ---- */

static dpb_status open_door(struct launch *l, struct remote *own, struct dpb_net_address *address,
                            struct dpb_net_token *token)
{
    const char *bind_to, *peer;
    int fd;
    dpb_crew_token(l->config->crew, token);
    dpb_crew_listen_hints(l->config->crew, &bind_to, &peer);
    dpb_status st = dpb_net_listen(bind_to, peer, 0, &fd, address);
    if (st < 0) {
        launch_say(l, "there is no interface on which the ranks could reach the driver");
        return st;
    }
    DPB_TRY(dpb_net_door_open(fd, token, &own->gathering.door));
    return dpb_rendezvous_server_open(l->config->ranks, &own->gathering.server);
}

static dpb_json *place_json(const struct remote *own, int r, bool whole)
{
    const struct dpb_world *world = &own->world;
    const struct dpb_world_place *place = &world->place[r];
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "host", place->host);
    dpb_json_set_int(json, "node", place->node);
    dpb_json_set_int(json, "local_rank", place->local_rank);
    if (!whole)
        return json;
    dpb_json_set_int(json, "nodes", world->nodes);
    dpb_json_set_int(json, "local_size", world->node[place->node].slots);
    dpb_json_set_int(json, "ranks_per_node", world->ranks_per_node);
    return json;
}

static dpb_status send_job(struct launch *l, const struct remote *own, int r)
{
    dpb_json *job = dpb_json_copy(l->config->job);
    if (!job)
        return DPB_ERR_NO_MEMORY;
    dpb_json_set_int(job, "rank", r);
    dpb_json_set_int(job, "size", l->config->ranks);
    dpb_json_set(job, "place", place_json(own, r, true));
    dpb_json_set_int(job, "silence_ns", own->silence_ns);
    dpb_status st = dpb_message_append(&l->rank[r].outbox, job);
    dpb_json_free(job);
    launch_flush(l, r);
    return st;
}

static dpb_status make_room(struct launch *l, struct remote **made)
{
    const size_t ranks = (size_t)l->config->ranks;
    struct remote *own = calloc(1, sizeof(*own) + ranks * sizeof(own->changed_ns[0]));
    if (!own)
        return DPB_ERR_NO_MEMORY;
    l->own = own;
    own->silence_ns = l->config->silence_ns > 0 ? l->config->silence_ns : DPB_LAUNCHER_SILENCE_NS;
    own->claim = calloc(ranks, sizeof(*own->claim));
    own->gathering.guest = calloc(ranks, sizeof(*own->gathering.guest));
    l->board = aligned_alloc(_Alignof(struct dpb_board_line), ranks * sizeof(*l->board));
    if (!own->claim || !own->gathering.guest || !l->board)
        return DPB_ERR_NO_MEMORY;
    memset(l->board, 0, ranks * sizeof(*l->board));
    *made = own;
    return DPB_OK;
}

/* They are alike (dpb_world_check()). Frames and messages are those of one build. */
static dpb_status check_build(struct launch *l, const struct remote *own,
                              const struct dpb_world_claim *self)
{
    char name[LAUNCH_NAME_BYTES];
    if (strcmp(own->claim[0].build, self->build) == 0)
        return DPB_OK;
    launch_say(l, "%s%s run%s another dpbench than this process", launch_name(l, 0, name),
               l->config->ranks > 1 ? " and all others" : "", l->config->ranks > 1 ? "" : "s");
    dpb_error("%s", l->result->reason);
    dpb_log_hint("install one build on all hosts, this one included");
    return DPB_ERR_UNAVAILABLE;
}

/* Where ranks were to be is known before only of hosts that were given. */
static dpb_status check_placement(struct launch *l, const struct remote *own)
{
    if (own->expected.ranks > 0)
        return DPB_OK;
    dpb_status st = dpb_placement_check(&own->world, l->config->ranks_per_node);
    if (st < 0)
        launch_say(l, "the ranks are not %d on every node", l->config->ranks_per_node);
    return st;
}

static dpb_status measure_clocks(struct launch *l, struct remote *own,
                                 const struct dpb_world_claim *self)
{
    own->clocks = launch_clocks_new(own->claim, l->config->ranks, self);
    if (!own->clocks)
        return DPB_ERR_NO_MEMORY;
    return launch_clocks_measure(l, own->clocks, LAUNCH_CLOCK_START);
}

static dpb_status start(struct launch *l)
{
    const struct dpb_launch_config *config = l->config;
    struct remote *own;
    struct dpb_net_address address;
    struct dpb_net_token token;
    struct dpb_world_claim self;
    DPB_TRY(dpb_claim_self(&self));
    DPB_TRY(open_files_allow(config->ranks, 2)); /* its channel, and where ranks meet */
    DPB_TRY(make_room(l, &own));
    DPB_TRY(dpb_crew_map(config->crew, config->ranks, config->ranks_per_node, &own->expected));
    own->gathering.expected = own->expected.ranks > 0 ? &own->expected : NULL;
    DPB_TRY(open_door(l, own, &address, &token));
    DPB_TRY(dpb_crew_start(config->crew, &own->expected, config->ranks, &address, &token));
    DPB_TRY(launch_gather(l, &own->gathering, own->claim, &own->world));
    for (int r = 0; r < config->ranks; r++)
        l->rank[r].host = own->world.place[r].host;
    DPB_TRY(check_placement(l, own));
    DPB_TRY(check_build(l, own, &self));
    l->result->world = dpb_world_json(&own->world);
    dpb_world_announce(&own->world);
    DPB_TRY(measure_clocks(l, own, &self));
    for (int r = 0; r < config->ranks; r++)
        DPB_TRY(send_job(l, own, r));
    return DPB_OK;
}

/* ---- what ranks send besides messages ---- */

/* Its clock is another one: what counts is that the line has changed since the last beat. */
static void take_beat(struct launch *l, struct remote *own, int r, const struct dpb_beat *beat)
{
    if (beat->changed_ns == own->changed_ns[r])
        return;
    own->changed_ns[r] = beat->changed_ns;
    dpb_board_write(&l->board[r], beat->step, (enum dpb_phase)beat->phase, beat->bucket);
}

static dpb_status take_bulk(struct launch *l, int r, const struct dpb_frame *frame)
{
    int64_t at;
    memcpy(&at, frame->bytes, sizeof(at));
    const char *bytes = frame->bytes + sizeof(at);
    size_t left = frame->count - sizeof(at);
    while (left > 0) {
        ssize_t written = pwrite(l->bulk_fd, bytes, left, (off_t)at);
        if (written <= 0) {
            dpb_error("cannot keep %zu bytes that rank %d left: %s", left, r, strerror(errno));
            return DPB_ERR_IO;
        }
        bytes += written;
        at += written;
        left -= (size_t)written;
    }
    /* A large result is progress. */
    atomic_store_explicit(&l->board[r].beat_ns, dpb_clock_now_ns(), memory_order_release);
    return DPB_OK;
}

static dpb_status frame(struct launch *l, int r, const struct dpb_frame *got)
{
    struct remote *own = l->own;
    struct dpb_beat beat;
    struct dpb_clock_reading reading;
    if (got->kind == DPB_FRAME_BEAT && got->count == sizeof(beat)) {
        memcpy(&beat, got->bytes, sizeof(beat));
        take_beat(l, own, r, &beat);
    } else if (got->kind == DPB_FRAME_CLOCK && got->count == sizeof(reading)) {
        memcpy(&reading, got->bytes, sizeof(reading));
        launch_clocks_answer(own->clocks, &reading);
    } else if (got->kind == DPB_FRAME_BULK && got->count >= sizeof(int64_t) && l->bulk_fd >= 0) {
        return take_bulk(l, r, got);
    } else if (got->kind == DPB_FRAME_CLOSED) {
        l->rank[r].closed = true;
    } else {
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

/* ---- watch ---- */

static size_t fds(const struct launch *l, int *more)
{
    const struct remote *own = l->own;
    return dpb_net_door_fds(own->gathering.door, more, LAUNCH_MORE_FDS);
}

static bool is_silent(const struct launch *l, int r, int64_t now_ns, int64_t for_ns)
{
    return l->rank[r].fd >= 0 && now_ns - l->rank[r].heard_ns > for_ns;
}

/* Nothing has come from any rank of the node that is still there. */
static bool node_is_silent(const struct launch *l, int node, int64_t now_ns, int64_t for_ns)
{
    const struct remote *own = l->own;
    for (int r = 0; r < l->config->ranks; r++)
        if (own->world.place[r].node == node && l->rank[r].fd >= 0 &&
            !is_silent(l, r, now_ns, for_ns))
            return false;
    return true;
}

/* "host node2 (ranks 2-3)", "rank 2 (pid 123 on node2)" when others of its node are heard. */
static void silent_name(const struct launch *l, int r, bool whole_node,
                        char name[LAUNCH_NAME_BYTES])
{
    const struct remote *own = l->own;
    const struct dpb_world_place *place = &own->world.place[r];
    const int first = r - place->local_rank;
    const int last = first + own->world.node[place->node].slots - 1;
    if (!whole_node)
        launch_name(l, r, name);
    else if (first == last)
        snprintf(name, LAUNCH_NAME_BYTES, "host %s (rank %d)", place->host, first);
    else
        snprintf(name, LAUNCH_NAME_BYTES, "host %s (ranks %d-%d)", place->host, first, last);
}

static dpb_status rank_is_silent(struct launch *l, int r, int64_t now_ns)
{
    const struct remote *own = l->own;
    const bool whole = node_is_silent(l, own->world.place[r].node, now_ns, own->silence_ns / 2);
    char name[LAUNCH_NAME_BYTES], where[96], silence[DPB_UNIT_TEXT_BYTES],
            waiting[LAUNCH_WAITING_BYTES];
    silent_name(l, r, whole, name);
    dpb_board_text(&l->board[r], where, sizeof(where));
    dpb_format_duration(own->silence_ns, silence, sizeof(silence));
    launch_waiting_text(l, r, waiting, sizeof(waiting));
    launch_say(l, "%s has not been heard of for %s, last in %s%s%s%s", name, silence, where,
               waiting, l->crew_how[0] ? "; " : "", l->crew_how);
    dpb_error("%s; all ranks were ended", l->result->reason);
    dpb_log_hint("is the host up, its network, and are its processes not stopped? Ranks that "
                 "cannot be reached end by themselves");
    launch_list(l);
    return DPB_ERR_TIMEOUT;
}

static void beat_all(struct launch *l, struct remote *own, int64_t now_ns)
{
    if (now_ns < own->next_beat_ns)
        return;
    own->next_beat_ns = now_ns + DPB_LAUNCHER_BEAT_NS;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].fd < 0 || l->rank[r].outbox.length > 0)
            continue; /* what it has not taken yet is news enough */
        dpb_frame_append(&l->rank[r].outbox, DPB_FRAME_BEAT, NULL, 0);
        launch_flush(l, r);
    }
}

static dpb_status turn(struct launch *l, int64_t now_ns)
{
    struct remote *own = l->own;
    char how[LAUNCH_TEXT_BYTES] = "";
    DPB_TRY(launch_admit(l, &own->gathering));
    beat_all(l, own, now_ns);
    if (!l->crew_how[0] && dpb_crew_check(l->config->crew, how, sizeof(how)) < 0)
        memcpy(l->crew_how, how, sizeof(how));
    for (int r = 0; r < l->config->ranks; r++)
        if (is_silent(l, r, now_ns, own->silence_ns))
            return rank_is_silent(l, r, now_ns);
    return DPB_OK;
}

static void how_it_ended(struct launch *l, int r, char how[LAUNCH_TEXT_BYTES])
{
    const int why = l->rank[r].lost_errno;
    const char *what =
            l->rank[r].result ? "after its result, before it had closed" : "without a result";
    /* A process that ends before it has read everything resets its connection. */
    if (why == 0 || why == ECONNRESET)
        snprintf(how, LAUNCH_TEXT_BYTES, "ended %s", what);
    else
        snprintf(how, LAUNCH_TEXT_BYTES, "lost its connection (%s) %s", strerror(why), what);
}

static bool is_stopped(const struct launch *l, int r, char how[LAUNCH_TEXT_BYTES])
{
    const int64_t now_ns = dpb_clock_now_ns();
    char silence[DPB_UNIT_TEXT_BYTES];
    if (!is_silent(l, r, now_ns, SILENT_BEATS * DPB_LAUNCHER_BEAT_NS))
        return false;
    dpb_format_duration((now_ns - l->rank[r].heard_ns) / 100000000 * 100000000, silence,
                        sizeof(silence));
    snprintf(how, LAUNCH_TEXT_BYTES, "is stopped or cut off (not heard of for %s)", silence);
    return true;
}

/* ---- end ---- */

static dpb_status crashed_after_result(struct launch *l, int r)
{
    char name[LAUNCH_NAME_BYTES], how[LAUNCH_TEXT_BYTES];
    const int64_t deadline_ns = dpb_clock_now_ns() + LOST_GRACE_NS;
    while (!l->crew_how[0] && dpb_clock_now_ns() < deadline_ns)
        DPB_TRY(launch_turn(l));
    how_it_ended(l, r, how);
    launch_say(l, "%s %s%s%s", launch_name(l, r, name), how, l->crew_how[0] ? "; " : "",
               l->crew_how);
    dpb_error("%s", l->result->reason);
    return DPB_ERR_RANK_FAILED;
}

static dpb_status wait_until_closed(struct launch *l)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + CLOSE_NS;
    char name[LAUNCH_NAME_BYTES];
    for (int r = 0; r < l->config->ranks;) {
        if (l->rank[r].closed) {
            r++;
        } else if (l->rank[r].fd < 0) {
            const int lost = launch_first_lost(l); /* others were ended for its sake */
            return crashed_after_result(l, lost < 0 ? r : lost);
        } else if (dpb_clock_now_ns() >= deadline_ns) {
            dpb_warn("%s does not end after its result, and is killed", launch_name(l, r, name));
            r++;
        } else {
            DPB_TRY(launch_turn(l));
        }
    }
    return DPB_OK;
}

static void let_go(struct launch *l)
{
    for (int r = 0; r < l->config->ranks; r++) {
        dpb_frame_append(&l->rank[r].outbox, DPB_FRAME_LEAVE, NULL, 0);
        launch_flush(l, r);
    }
}

/* All processes are gone when the crew's launcher is. */
static void wait_for_crew(struct launch *l)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + LEAVE_NS;
    char how[LAUNCH_TEXT_BYTES] = "";
    dpb_status st;
    while ((st = dpb_crew_check(l->config->crew, how, sizeof(how))) == DPB_PENDING &&
           dpb_clock_now_ns() < deadline_ns)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + 5000000);
    if (st < 0)
        dpb_warn("after all ranks had ended well: %s", how);
}

static dpb_status see_off(struct launch *l)
{
    struct remote *own = l->own;
    DPB_TRY(wait_until_closed(l));
    DPB_TRY(launch_clocks_measure(l, own->clocks, LAUNCH_CLOCK_END));
    for (int r = 0; r < l->config->ranks; r++) {
        dpb_json_set(l->rank[r].result, "place", place_json(own, r, false));
        dpb_json_set(l->rank[r].result, "clock", launch_clocks_json(own->clocks, r));
    }
    let_go(l);
    wait_for_crew(l);
    return DPB_OK;
}

static bool is_interrupted(const struct launch *l)
{
    return l->config->interrupted && *l->config->interrupted;
}

static void end(struct launch *l)
{
    struct remote *own = l->own;
    if (!own)
        return;
    /* A launcher ends its ranks, or sees them end: told to do the one during the other it crashes,
     * with a stack (Open MPI 4.1). When the user has interrupted it need not tell how they ended.
     */
    const bool sees_end = own->world.ranks > 0 && !is_interrupted(l);
    if (!sees_end)
        dpb_crew_stop(l->config->crew, false);
    let_go(l);
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->rank[r].fd >= 0)
            close(l->rank[r].fd);
        l->rank[r].fd = -1;
    }
    launch_gathering_release(&own->gathering);
    if (sees_end)
        dpb_crew_stop(l->config->crew, true);
    launch_clocks_free(own->clocks);
    dpb_world_release(&own->expected);
    dpb_world_release(&own->world);
    free(own->claim);
    free(l->board);
    free(own);
}

const struct launch_way launch_remote = {
        .says_closed = true,
        .lost_grace_ns = LOST_GRACE_NS,
        .start = start,
        .fds = fds,
        .turn = turn,
        .frame = frame,
        .how_it_ended = how_it_ended,
        .is_stopped = is_stopped,
        .see_off = see_off,
        .end = end,
};
