#include "rank_steps.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_stats.h"
#include "rank_clocks.h"

/* Keys of the instants in a rank's result. */
static const struct instants {
    const char *start, *end;
} instants_of[] = {
        [DPB_STEPS_TIMED] = {"start_ns", "end_ns"},
        [DPB_STEPS_TRACED] = {"traced_start_ns", "traced_end_ns"},
};

static int64_t at(const dpb_json *rank, const char *key, size_t index)
{
    return dpb_json_as_int(dpb_json_at(dpb_json_get(rank, key), index), 0);
}

size_t dpb_rank_steps_count(const struct dpb_launch_result *result, enum dpb_step_series series)
{
    if (result->rank_count == 0)
        return 0;
    return dpb_json_size(dpb_json_get(result->ranks[0], instants_of[series].start));
}

/* When the last rank was through with step s, of those whose clock is rank 0's. */
static int64_t end_ns(const struct dpb_launch_result *result, const struct instants *instants,
                      size_t s)
{
    int64_t last = INT64_MIN;
    for (int r = 0; r < result->rank_count; r++) {
        if (!rank_clock_is_first(result, r))
            continue;
        int64_t end = at(result->ranks[r], instants->end, s);
        last = end > last ? end : last;
    }
    return last;
}

/* When the first of them began the first step. */
static int64_t begin_ns(const struct dpb_launch_result *result, const struct instants *instants)
{
    int64_t first = INT64_MAX;
    for (int r = 0; r < result->rank_count; r++) {
        if (!rank_clock_is_first(result, r))
            continue;
        int64_t start = at(result->ranks[r], instants->start, 0);
        first = start < first ? start : first;
    }
    return first;
}

int64_t dpb_rank_steps_ns(const struct dpb_launch_result *result, enum dpb_step_series series,
                          size_t s)
{
    const struct instants *instants = &instants_of[series];
    int64_t begin = s > 0 ? end_ns(result, instants, s - 1) : begin_ns(result, instants);
    return end_ns(result, instants, s) - begin;
}

double dpb_rank_steps_median_ns(const struct dpb_launch_result *result, enum dpb_step_series series)
{
    size_t steps = dpb_rank_steps_count(result, series);
    double *values = malloc((steps + 1) * sizeof(*values));
    for (size_t s = 0; values && s < steps; s++)
        values[s] = (double)dpb_rank_steps_ns(result, series, s);
    double median = values && steps ? dpb_stats_median(values, steps) : NAN;
    free(values);
    return median;
}
