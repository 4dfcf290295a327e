/* A process that somebody else started and that is not the driver: it starts its rank for every
 * launch that the driver tells it of, ends it on command, and tells what became of it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew_private.h"
#include "dpb_channel.h"
#include "dpb_claim.h"
#include "dpb_launcher.h"
#include "dpb_log.h"

#define POLL_MS 50

struct member {
    int fd;
    const struct crew_rank *rank;
    struct crew_child child;
    struct dpb_str inbox;
    int64_t launch; /* the driver's number of the last one */
    bool at_work;   /* the driver waits to be told how it ended */
    bool over;
    dpb_status verdict;
};

/* A part of the processes makes a world of its own: what the launcher said of all of them is not
 * true of it. */
dpb_status crew_rank_start(const struct crew_rank *rank, struct crew_child *child, int ranks,
                           const char *address)
{
    const struct dpb_launched *l = &rank->launched;
    char own[4096], secret[DPB_NET_TOKEN_TEXT];
    char where[DPB_NET_ADDRESS_BYTES + 32], token[DPB_NET_TOKEN_TEXT + 32];
    char rank_text[32], size_text[32];
    const char *drop[DPB_LAUNCHED_BY_COUNT + 1] = {NULL};
    const char *set[] = {where, token, NULL, NULL, NULL};
    DPB_TRY(crew_own_path(own, sizeof(own)));
    dpb_net_token_text(rank->token, secret);
    snprintf(where, sizeof(where), "%s=%s", DPB_WORKER_ADDRESS_VARIABLE, address);
    snprintf(token, sizeof(token), "%s=%s", DPB_WORKER_TOKEN_VARIABLE, secret);
    if (ranks < l->size) {
        for (int by = DPB_LAUNCHED_BY_NOBODY + 1, n = 0; by < DPB_LAUNCHED_BY_COUNT; by++)
            drop[n++] = dpb_launched_rank_variable((enum dpb_launched_by)by);
        snprintf(rank_text, sizeof(rank_text), "RANK=%d", l->rank);
        snprintf(size_text, sizeof(size_text), "WORLD_SIZE=%d", ranks);
        set[2] = rank_text;
        set[3] = size_text;
    }
    char **environment = crew_environment(drop, set);
    if (!environment)
        return DPB_ERR_NO_MEMORY;
    char verb[] = DPB_WORKER_VERB;
    char *const argv[] = {own, verb, NULL};
    dpb_status st = crew_child_start(child, own, argv, environment, false);
    crew_strings_free(environment);
    return st;
}

static void tell_end(struct member *m, dpb_status ended, const char *how)
{
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "ended");
    dpb_json_set_int(message, "launch", m->launch);
    dpb_json_set_int(message, "status", ended);
    dpb_json_set_string(message, "how", how);
    (void)dpb_message_send(m->fd, message); /* a driver that is gone is seen by reading */
    dpb_json_free(message);
    m->at_work = false;
}

static void take(struct member *m, const dpb_json *message)
{
    const char *type = dpb_json_as_string(dpb_json_get(message, "type"), "");
    const int ranks = (int)dpb_json_as_int(dpb_json_get(message, "ranks"), 0);
    if (strcmp(type, "end") == 0) {
        m->verdict = (dpb_status)dpb_json_as_int(dpb_json_get(message, "status"), DPB_ERR_INTERNAL);
        m->over = true;
    } else if (strcmp(type, "stop") == 0) {
        crew_child_stop(&m->child);
        tell_end(m, DPB_OK, "");
    } else if (strcmp(type, "launch") == 0 && m->rank->launched.rank < ranks) {
        const char *address = dpb_json_as_string(dpb_json_get(message, "address"), "");
        m->launch = dpb_json_as_int(dpb_json_get(message, "launch"), 0);
        m->at_work = true;
        dpb_status st = crew_rank_start(m->rank, &m->child, ranks, address);
        if (st < 0)
            tell_end(m, st, "could not be started");
    }
}

static void take_messages(struct member *m)
{
    dpb_json *message = NULL;
    dpb_status open = dpb_inbox_fill(m->fd, &m->inbox), taken = DPB_PENDING;
    while (!m->over && (taken = dpb_inbox_take(&m->inbox, &message)) == DPB_OK) {
        take(m, message);
        dpb_json_free(message);
        message = NULL;
    }
    if (m->over || (open == DPB_OK && taken >= 0))
        return;
    dpb_error("rank %d: the driver (rank 0) is gone", m->rank->launched.rank);
    m->verdict = DPB_ERR_RANK_FAILED;
    m->over = true;
}

static void watch_rank(struct member *m)
{
    char how[CREW_HOW_BYTES] = "", name[32];
    snprintf(name, sizeof(name), "rank %d", m->rank->launched.rank);
    if (!m->at_work)
        return;
    dpb_status ended = crew_child_check(&m->child, name, how, sizeof(how));
    if (ended == DPB_PENDING)
        return;
    crew_child_stop(&m->child);
    tell_end(m, ended, how);
}

static dpb_status send_claim(int fd, const struct crew_opening *opening)
{
    struct dpb_world_claim claim;
    DPB_TRY(dpb_claim_self(&claim));
    snprintf(claim.settings, sizeof(claim.settings), "%s", opening->settings_hash);
    dpb_json *json = dpb_claim_to_json(&claim);
    dpb_status st = dpb_message_send(fd, json);
    dpb_json_free(json);
    if (st < 0)
        dpb_error("rank %d: rank 0 closed the connection", opening->launched.rank);
    return st;
}

dpb_status crew_member_serve(int fd, const struct crew_rank *rank,
                             const struct crew_opening *opening, dpb_status *verdict)
{
    struct member m = {.fd = fd, .rank = rank, .child = {.output_fd = -1}};
    DPB_TRY(send_claim(fd, opening));
    while (!m.over) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        (void)poll(&poll_fd, 1, POLL_MS);
        take_messages(&m);
        watch_rank(&m);
        if (!m.over && opening->interrupted && *opening->interrupted) {
            m.verdict = DPB_ERR_INTERRUPTED;
            m.over = true;
        }
    }
    crew_child_stop(&m.child);
    dpb_str_release(&m.inbox);
    *verdict = m.verdict;
    return DPB_END;
}
