/* What started processes say about themselves -> a world, or why there is none. */
#include "dpb_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"

#define LISTED_MAX 8 /* ranks in a message */

typedef struct dpb_world_claim claim;

/* "rank 1 (pid 7 on node1)" */
static void append_who(const claim *c, struct dpb_str *out)
{
    dpb_str_appendf(out, "rank %d (pid %ld on %s)", c->rank, c->pid, c->host);
}

/* A list of at most LISTED_MAX, of which there are more. */
static void append_more(int listed, struct dpb_str *out)
{
    if (listed > LISTED_MAX)
        dpb_str_appendf(out, " and %d more", listed - LISTED_MAX);
}

static dpb_status refuse(struct dpb_str *what, const char *hint)
{
    if (what->failed) {
        dpb_str_release(what);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_error("%s", what->text);
    dpb_log_hint("%s", hint);
    dpb_str_release(what);
    return DPB_ERR_UNAVAILABLE;
}

/* ---- are there as many as each believes? ---- */

static dpb_status check_singletons(const claim *c, int count)
{
    for (int i = 0; i < count; i++)
        if (c[i].rank > 0 || c[i].size > 1)
            return DPB_OK;
    if (count == 1)
        return DPB_OK;
    struct dpb_str what = {0};
    dpb_str_appendf(&what,
                    "%d processes were started, and every one is rank 0 of 1: their "
                    "launcher told them of no other",
                    count);
    return refuse(&what, "start them with mpirun or torchrun, or with an srun that supports their "
                         "PMI (--mpi=pmix), so that each has a rank");
}

static dpb_status check_sizes(const claim *c, int count)
{
    struct dpb_str what = {0};
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        if (c[i].size == count)
            continue;
        if (wrong == 0)
            dpb_str_appendf(&what, "%d processes are there, but ", count);
        if (wrong++ >= LISTED_MAX)
            continue;
        dpb_str_append(&what, wrong > 1 ? ", " : "");
        append_who(&c[i], &what);
        if (c[i].size < 0)
            dpb_str_append(&what, " was told no number");
        else
            dpb_str_appendf(&what, " was told that there are %d", c[i].size);
    }
    if (wrong == 0)
        return DPB_OK;
    append_more(wrong, &what);
    return refuse(&what, "start all ranks by one launcher, and as many as --ranks says");
}

/* by_rank[r]: the claim of rank r. */
static dpb_status order_by_rank(const claim *c, int count, const claim **by_rank)
{
    struct dpb_str what = {0};
    int wrong = 0, missing = 0;
    for (int i = 0; i < count; i++) {
        const int rank = c[i].rank;
        const bool outside = rank < 0 || rank >= count;
        if (!outside && !by_rank[rank]) {
            by_rank[rank] = &c[i];
            continue;
        }
        if (wrong++ >= LISTED_MAX)
            continue;
        dpb_str_append(&what, wrong > 1 ? "; " : "");
        if (outside) {
            append_who(&c[i], &what);
            dpb_str_appendf(&what, " is not one of %d", count);
        } else {
            dpb_str_appendf(&what,
                            "rank %d is claimed twice: by pid %ld on %s and by pid %ld on %s", rank,
                            by_rank[rank]->pid, by_rank[rank]->host, c[i].pid, c[i].host);
        }
    }
    if (wrong == 0)
        return DPB_OK;
    append_more(wrong, &what);
    for (int r = 0; c[0].size == count && r < count; r++)
        if (!by_rank[r] && missing++ < LISTED_MAX)
            dpb_str_appendf(&what, "%s %d", missing > 1 ? "," : "; missing:", r);
    append_more(missing, &what);
    return refuse(&what, "every process needs a rank of its own: one launcher for all of them, and "
                         "no rank variable set by hand");
}

/* ---- do all of them do the same? ---- */

static const char *text_at(const claim *c, size_t offset)
{
    return (const char *)c + offset;
}

/* The rank whose text most others share; the first such. */
static int majority(const claim *const *by_rank, int count, size_t offset)
{
    int best = 0, best_votes = 0;
    for (int r = 0; r < count && best_votes * 2 <= count; r++) {
        int votes = 0;
        for (int other = 0; other < count; other++)
            votes += strcmp(text_at(by_rank[r], offset), text_at(by_rank[other], offset)) == 0;
        if (votes > best_votes) {
            best = r;
            best_votes = votes;
        }
    }
    return best;
}

static dpb_status check_same(const claim *const *by_rank, int count, size_t offset,
                             const char *what_differs, const char *hint)
{
    struct dpb_str what = {0};
    const int most = majority(by_rank, count, offset);
    const char *usual = text_at(by_rank[most], offset);
    int wrong = 0;
    for (int r = 0; r < count; r++) {
        if (strcmp(text_at(by_rank[r], offset), usual) == 0 || wrong++ >= LISTED_MAX)
            continue;
        dpb_str_append(&what, wrong > 1 ? ", " : "");
        append_who(by_rank[r], &what);
    }
    if (wrong == 0)
        return DPB_OK;
    append_more(wrong, &what);
    dpb_str_appendf(&what, " %s than rank %d on %s", what_differs, most, by_rank[most]->host);
    return refuse(&what, hint);
}

/* ---- where are they? ---- */

/* Is it a node with that one? */
static bool together(const claim *a, const claim *b)
{
    return strcasecmp(a->host, b->host) == 0 && strcmp(a->machine, b->machine) == 0 &&
           strcmp(a->network, b->network) == 0;
}

/* Is the text an address, or this machine's name for itself? Then another name is to be expected.
 */
static bool is_no_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strchr(host, ':') ||
           strspn(host, "0123456789.") == strlen(host);
}

static bool same_short_name(const char *a, const char *b)
{
    const size_t length = strcspn(a, ".");
    return length == strcspn(b, ".") && strncasecmp(a, b, length) == 0;
}

/* Nodes in the order of their ranks; `node` has room for `count`. */
static dpb_status group(const claim *const *by_rank, int count, struct dpb_world_host *node,
                        const claim **of_node, int *nodes)
{
    *nodes = 0;
    for (int r = 0; r < count; r++) {
        int n = 0;
        while (n < *nodes && !together(of_node[n], by_rank[r]))
            n++;
        if (n < *nodes - 1) {
            struct dpb_str what = {0};
            append_who(by_rank[r], &what);
            dpb_str_appendf(&what,
                            " is apart from rank %d of its host: ranks of a host must be "
                            "consecutive, and rank %d is on %s",
                            of_node[n]->rank, r - 1, by_rank[r - 1]->host);
            return refuse(&what, "mpirun --map-by slot, srun --distribution=block, or another "
                                 "order of the hosts");
        }
        if (n == *nodes) {
            of_node[n] = by_rank[r];
            snprintf(node[n].name, sizeof(node[n].name), "%s", by_rank[r]->host);
            node[n].slots = 0;
            ++*nodes;
        }
        node[n].slots++;
    }
    return DPB_OK;
}

static bool same_name(const claim *a, const claim *b)
{
    return strcasecmp(a->host, b->host) == 0;
}

static bool short_names_collapse(const claim *a, const claim *b)
{
    return !same_name(a, b) && !is_no_name(a->host) && same_short_name(a->host, b->host);
}

static bool same_machine(const claim *a, const claim *b)
{
    return a->machine[0] && strcmp(a->machine, b->machine) == 0;
}

static void warn_of_hosts(const claim *const *of_node, int nodes)
{
    static const struct {
        bool (*are_alike)(const claim *a, const claim *b);
        const char *what;
    } kinds[] = {
            {same_name, "have one name, and are two nodes all the same"},
            {short_names_collapse, "are the same up to the first dot"},
            {same_machine, "are one machine, whose cores they share"},
    };
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        int found = 0;
        for (int b = 1; b < nodes; b++) {
            int a = 0;
            while (a < b && !kinds[k].are_alike(of_node[a], of_node[b]))
                a++;
            if (a < b && found++ < LISTED_MAX)
                dpb_warn("hosts \"%s\" (rank %d) and \"%s\" (rank %d) %s", of_node[a]->host,
                         of_node[a]->rank, of_node[b]->host, of_node[b]->rank, kinds[k].what);
        }
        if (found > LISTED_MAX)
            dpb_warn("%d more hosts %s", found - LISTED_MAX, kinds[k].what);
    }
}

/* Ranks of node n are `first` and those after it. */
static dpb_status check_node(const struct dpb_world *expected, const struct dpb_world_host *node,
                             int first)
{
    const struct dpb_world_place *place = &expected->place[first];
    const int last = first + node->slots - 1, planned = expected->node[place->node].slots;
    if (node->slots > planned || expected->place[last].node != place->node) {
        struct dpb_str what = {0};
        dpb_str_appendf(&what,
                        "host %s has ranks %d to %d, but \"%s\" was to have %d of them, and "
                        "rank %d was to be on \"%s\"",
                        node->name, first, last, place->host, planned, last,
                        expected->place[last].host);
        return refuse(&what, "the hosts of --hosts may be one machine, or the launcher has placed "
                             "ranks by itself: look at its options in --launcher-args");
    }
    if (!same_short_name(place->host, node->name) && !is_no_name(place->host))
        dpb_warn("rank %d is on host \"%s\", which was called \"%s\"", first, node->name,
                 place->host);
    if (node->slots < planned && place->local_rank == 0)
        dpb_warn("\"%s\" was to have %d ranks; %d are together on \"%s\"", place->host, planned,
                 node->slots, node->name);
    return DPB_OK;
}

static dpb_status check_expected(const struct dpb_world *expected,
                                 const struct dpb_world_host *node, int nodes)
{
    for (int n = 0, first = 0; n < nodes; first += node[n++].slots)
        DPB_TRY(check_node(expected, &node[n], first));
    return DPB_OK;
}

static void warn_of_local_ranks(const claim *const *by_rank, const struct dpb_world *world)
{
    for (int r = 0; r < world->ranks; r++)
        if (by_rank[r]->local_rank >= 0 && by_rank[r]->local_rank != world->place[r].local_rank) {
            dpb_warn("rank %d was told that it is number %d of its host, and is number %d", r,
                     by_rank[r]->local_rank, world->place[r].local_rank);
            return;
        }
}

dpb_status dpb_world_check(const struct dpb_world_claim *claims, int count,
                           const struct dpb_world *expected, struct dpb_world *world)
{
    const claim **by_rank = calloc((size_t)count, sizeof(*by_rank));
    const claim **of_node = calloc((size_t)count, sizeof(*of_node));
    struct dpb_world_host *node = calloc((size_t)count, sizeof(*node));
    dpb_status st = by_rank && of_node && node ? DPB_OK : DPB_ERR_NO_MEMORY;
    int nodes = 0;
    DPB_TRY_GOTO(st, st, out);
    DPB_TRY_GOTO(st, check_singletons(claims, count), out);
    DPB_TRY_GOTO(st, order_by_rank(claims, count, by_rank), out);
    DPB_TRY_GOTO(st, check_sizes(claims, count), out);
    DPB_TRY_GOTO(st,
                 check_same(by_rank, count, offsetof(claim, build), "runs another dpbench",
                            "install one build on all hosts"),
                 out);
    DPB_TRY_GOTO(st,
                 check_same(by_rank, count, offsetof(claim, settings),
                            "was given another command line",
                            "give every process the same arguments, in the same order"),
                 out);
    DPB_TRY_GOTO(st, group(by_rank, count, node, of_node, &nodes), out);
    if (expected)
        DPB_TRY_GOTO(st, check_expected(expected, node, nodes), out);
    warn_of_hosts(of_node, nodes);
    DPB_TRY_GOTO(st, dpb_world_from_nodes(node, nodes, world), out);
    warn_of_local_ranks(by_rank, world);
out:
    free(by_rank);
    free(of_node);
    free(node);
    return st;
}
