#include "rank_clocks.h"

#include <stdlib.h>
#include <string.h>

static const dpb_json *domain_of(const struct dpb_launch_result *result, int r)
{
    return dpb_json_path(result->ranks[r], "clock/domain");
}

/* A domain is a text or a number, whichever the launcher has. */
static bool same_domain(const dpb_json *a, const dpb_json *b)
{
    if (!a || !b || dpb_json_type(a) != dpb_json_type(b))
        return a == b;
    if (dpb_json_type(a) == DPB_JSON_STRING)
        return strcmp(dpb_json_as_string(a, ""), dpb_json_as_string(b, "")) == 0;
    return dpb_json_as_int(a, 0) == dpb_json_as_int(b, 0);
}

bool rank_clock_is_first(const struct dpb_launch_result *result, int r)
{
    return r == 0 || same_domain(domain_of(result, 0), domain_of(result, r));
}

static int64_t number(const struct dpb_launch_result *result, int r, const char *path)
{
    return dpb_json_as_int(dpb_json_path(result->ranks[r], path), 0);
}

static bool is_known(const struct dpb_launch_result *result, int r, const char *path)
{
    return dpb_json_type(dpb_json_path(result->ranks[r], path)) == DPB_JSON_INT;
}

/* Is rank a's estimate better than rank b's? */
static bool is_better(const struct dpb_launch_result *result, int a, int b)
{
    static const char *const error = "clock/error_ns";
    if (!is_known(result, a, error) || !is_known(result, b, error))
        return is_known(result, a, error) && !is_known(result, b, error);
    return number(result, a, error) < number(result, b, error);
}

/* The rank of each domain whose estimate has the smallest error: its offset counts for all of the
 * domain, so that they stay where they were to each other. */
struct domains {
    int *best;
    int count;
};

static int find_domain(const struct dpb_launch_result *result, struct domains *domains, int r)
{
    int d = 0;
    while (d < domains->count &&
           !same_domain(domain_of(result, domains->best[d]), domain_of(result, r)))
        d++;
    if (d == domains->count)
        domains->best[domains->count++] = r;
    else if (is_better(result, r, domains->best[d]))
        domains->best[d] = r;
    return d;
}

dpb_status rank_clocks_read(const struct dpb_launch_result *result, struct rank_clocks *clocks)
{
    size_t ranks = (size_t)result->rank_count;
    struct domains domains = {calloc(ranks, sizeof(*domains.best)), 0};
    *clocks = (struct rank_clocks){result->rank_count, 0, calloc(ranks, sizeof(*clocks->of))};
    if (!domains.best || !clocks->of) {
        free(domains.best);
        rank_clocks_release(clocks);
        return DPB_ERR_NO_MEMORY;
    }
    for (int r = 0; r < result->rank_count; r++)
        clocks->of[r].domain = find_domain(result, &domains, r);
    for (int r = 0; r < result->rank_count; r++) {
        struct rank_clock *clock = &clocks->of[r];
        int best = domains.best[clock->domain], first = domains.best[0];
        clock->drift_ns = number(result, r, "clock/drift_ns");
        clock->knows_drift = is_known(result, r, "clock/drift_ns");
        clock->is_placed = clock->domain == 0 || (is_known(result, best, "clock/offset_ns") &&
                                                  is_known(result, first, "clock/offset_ns"));
        if (clock->domain == 0 || !clock->is_placed)
            continue;
        clock->shift_ns =
                number(result, best, "clock/offset_ns") - number(result, first, "clock/offset_ns");
        clock->error_ns =
                number(result, best, "clock/error_ns") + number(result, first, "clock/error_ns");
    }
    clocks->domains = domains.count;
    free(domains.best);
    return DPB_OK;
}

void rank_clocks_release(struct rank_clocks *clocks)
{
    free(clocks->of);
    *clocks = (struct rank_clocks){0};
}

const char *rank_host(const struct dpb_launch_result *result, int r)
{
    return dpb_json_as_string(dpb_json_path(result->ranks[r], "place/host"), "");
}

static void put_number(dpb_json *json, const char *key, int64_t value, bool is_measured)
{
    if (is_measured)
        dpb_json_set_int(json, key, value);
    else
        dpb_json_set_absent(json, key, "not measured: its host did not answer");
}

dpb_json *rank_clocks_json(const struct dpb_launch_result *result, const struct rank_clocks *clocks)
{
    dpb_json *json = dpb_json_object(), *ranks = dpb_json_array();
    for (int r = 0; r < clocks->ranks; r++) {
        const struct rank_clock *clock = &clocks->of[r];
        dpb_json *rank = dpb_json_object();
        dpb_json_set_int(rank, "rank", r);
        dpb_json_set_string(rank, "host", rank_host(result, r));
        dpb_json_set_int(rank, "domain", clock->domain);
        put_number(rank, "shift_ns", clock->shift_ns, clock->is_placed);
        put_number(rank, "error_ns", clock->error_ns, clock->is_placed);
        put_number(rank, "drift_ns", clock->drift_ns, clock->knows_drift);
        dpb_json_append(ranks, rank);
    }
    dpb_json_set_int(json, "domains", clocks->domains);
    dpb_json_set(json, "ranks", ranks);
    return json;
}
