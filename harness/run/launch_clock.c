#include "launch_clock.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"

#define ROUND_TRIPS 20
#define DOMAIN_NS   1000000000ll /* for all round trips with one domain, */
#define ALL_NS      5000000000ll /* and with all domains */

struct offset {
    bool known;
    int64_t offset_ns, error_ns;
};

struct domain {
    int asked; /* the rank */
    bool own;
    struct offset at[LAUNCH_CLOCK_TIMES];
};

struct launch_clocks {
    int ranks, domains;
    int *of_rank;
    struct domain *domain;
    int64_t question; /* the last one */
    bool answered;
    int64_t their_ns, answered_ns;
};

/* What a system does not tell is no proof of one clock. */
static bool same_clock(const struct dpb_world_claim *a, const struct dpb_world_claim *b)
{
    return a->machine[0] && strcmp(a->machine, b->machine) == 0 && strcmp(a->time, b->time) == 0;
}

struct launch_clocks *launch_clocks_new(const struct dpb_world_claim *claim, int ranks,
                                        const struct dpb_world_claim *own)
{
    struct launch_clocks *clocks = calloc(1, sizeof(*clocks));
    if (!clocks)
        return NULL;
    clocks->ranks = ranks;
    clocks->of_rank = calloc((size_t)ranks, sizeof(*clocks->of_rank));
    clocks->domain = calloc((size_t)ranks, sizeof(*clocks->domain));
    if (!clocks->of_rank || !clocks->domain) {
        launch_clocks_free(clocks);
        return NULL;
    }
    for (int r = 0; r < ranks; r++) {
        int d = 0;
        while (d < clocks->domains && !same_clock(&claim[clocks->domain[d].asked], &claim[r]))
            d++;
        clocks->of_rank[r] = d;
        if (d < clocks->domains)
            continue;
        struct domain *domain = &clocks->domain[clocks->domains++];
        *domain = (struct domain){.asked = r, .own = same_clock(&claim[r], own)};
        for (int i = 0; i < LAUNCH_CLOCK_TIMES; i++)
            domain->at[i].known = domain->own; /* 0, exactly */
    }
    return clocks;
}

void launch_clocks_free(struct launch_clocks *clocks)
{
    if (!clocks)
        return;
    free(clocks->of_rank);
    free(clocks->domain);
    free(clocks);
}

void launch_clocks_answer(struct launch_clocks *clocks, const struct dpb_clock_reading *reading)
{
    if (reading->question != clocks->question)
        return; /* it was waited for no longer */
    clocks->answered = true;
    clocks->their_ns = reading->now_ns;
    clocks->answered_ns = dpb_clock_now_ns();
}

/* One round trip with rank `r`; DPB_PENDING when there was no answer. */
static dpb_status ask(struct launch *l, struct launch_clocks *clocks, int r, int64_t deadline_ns,
                      struct offset *offset)
{
    struct launch_rank *rank = &l->rank[r];
    const struct dpb_clock_reading question = {.question = ++clocks->question};
    const int64_t asked_ns = dpb_clock_now_ns();
    clocks->answered = false;
    dpb_frame_append(&rank->outbox, DPB_FRAME_CLOCK, &question, sizeof(question));
    launch_flush(l, r);
    while (!clocks->answered && rank->fd >= 0 && dpb_clock_now_ns() < deadline_ns) {
        struct pollfd fd = {.fd = rank->fd, .events = POLLIN};
        (void)poll(&fd, 1, 10);
        DPB_TRY(launch_take(l, r));
    }
    if (!clocks->answered)
        return DPB_PENDING;
    const int64_t trip_ns = clocks->answered_ns - asked_ns;
    const int64_t error_ns = (trip_ns + 1) / 2;
    if (!offset->known || error_ns < offset->error_ns)
        *offset = (struct offset){true, asked_ns + trip_ns / 2 - clocks->their_ns, error_ns};
    return DPB_OK;
}

dpb_status launch_clocks_measure(struct launch *l, struct launch_clocks *clocks,
                                 enum launch_clock_when when)
{
    const int64_t end_ns = dpb_clock_now_ns() + ALL_NS;
    for (int d = 0; d < clocks->domains; d++) {
        struct domain *domain = &clocks->domain[d];
        const int64_t own_ns = dpb_clock_now_ns() + DOMAIN_NS;
        const int64_t deadline_ns = own_ns < end_ns ? own_ns : end_ns;
        dpb_status st = domain->own ? DPB_PENDING : DPB_OK;
        for (int i = 0; i < ROUND_TRIPS && st == DPB_OK; i++)
            st = ask(l, clocks, domain->asked, deadline_ns, &domain->at[when]);
        DPB_TRY(st);
    }
    return DPB_OK;
}

dpb_json *launch_clocks_json(const struct launch_clocks *clocks, int r)
{
    static const char *const no_answer = "the rank that was asked for its clock did not answer";
    const int d = clocks->of_rank[r];
    const struct offset *start = &clocks->domain[d].at[LAUNCH_CLOCK_START];
    const struct offset *end = &clocks->domain[d].at[LAUNCH_CLOCK_END];
    dpb_json *json = dpb_json_object();
    dpb_json_set_int(json, "domain", d);
    if (start->known) {
        dpb_json_set_int(json, "offset_ns", start->offset_ns);
        dpb_json_set_int(json, "error_ns", start->error_ns);
    } else {
        dpb_json_set_absent(json, "offset_ns", no_answer);
        dpb_json_set_absent(json, "error_ns", no_answer);
    }
    if (start->known && end->known)
        dpb_json_set_int(json, "drift_ns", end->offset_ns - start->offset_ns);
    else
        dpb_json_set_absent(json, "drift_ns", no_answer);
    return json;
}
