/* The search for a fusion threshold and a cycle time. */
#include "horovod_tune.h"

#define MIB          (INT64_C(1) << 20)
#define MS           INT64_C(1000000)
#define NOT_YET      (-1.0)
#define QUIET_TO_END 2 /* one pass over each coordinate */

static const int64_t thresholds[TUNE_THRESHOLDS] = {
        0, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, TUNE_THRESHOLD_MAX_BYTES};
static const int64_t cycles[TUNE_CYCLES] = {MS,      2 * MS,  5 * MS,  10 * MS,
                                            20 * MS, 50 * MS, 100 * MS};

static int nearest(const int64_t *grid, int count, int64_t value)
{
    int best = 0;

    for (int i = 1; i < count; i++) {
        const int64_t here = grid[i] > value ? grid[i] - value : value - grid[i];
        const int64_t there = grid[best] > value ? grid[best] - value : value - grid[best];

        if (here < there)
            best = i;
    }
    return best;
}

void tune_init(struct tune *tune, struct tune_point start, int warmups, int samples)
{
    *tune = (struct tune){.warmups = warmups, .samples = samples, .is_ended = samples == 0};
    tune->threshold = nearest(thresholds, TUNE_THRESHOLDS, start.threshold_bytes);
    tune->cycle = nearest(cycles, TUNE_CYCLES, start.cycle_ns);
    tune->best_threshold = tune->threshold;
    tune->best_cycle = tune->cycle;
    for (int t = 0; t < TUNE_THRESHOLDS; t++)
        for (int c = 0; c < TUNE_CYCLES; c++)
            tune->score[t][c] = NOT_YET;
}

struct tune_point tune_now(const struct tune *tune)
{
    return (struct tune_point){
            .threshold_bytes = thresholds[tune->is_ended ? tune->best_threshold : tune->threshold],
            .cycle_ns = cycles[tune->is_ended ? tune->best_cycle : tune->cycle],
    };
}

/* Another point of the line through the best one that has not been measured. */
static bool next_on_line(struct tune *tune)
{
    for (int i = 0; i < (tune->is_along_cycles ? TUNE_CYCLES : TUNE_THRESHOLDS); i++) {
        const int t = tune->is_along_cycles ? tune->best_threshold : i;
        const int c = tune->is_along_cycles ? i : tune->best_cycle;

        if (tune->score[t][c] >= 0)
            continue;
        tune->threshold = t;
        tune->cycle = c;
        return true;
    }
    return false;
}

/* The next point, of this pass or of the next that has one; none: the search has ended. */
static void move_on(struct tune *tune)
{
    while (!next_on_line(tune)) {
        tune->quiet_passes = tune->pass_improved ? 0 : tune->quiet_passes + 1;
        tune->pass_improved = false;
        tune->is_along_cycles = !tune->is_along_cycles;
        if (tune->quiet_passes == QUIET_TO_END) {
            tune->is_ended = true;
            return;
        }
    }
}

bool tune_score(struct tune *tune, double bytes_per_s)
{
    const double best = tune->score[tune->best_threshold][tune->best_cycle];

    if (tune->is_ended)
        return false;
    if (tune->warmups > 0) {
        tune->warmups--;
        return false;
    }
    tune->score[tune->threshold][tune->cycle] = bytes_per_s;
    tune->trial[tune->trial_count++] =
            (struct tune_trial){.point = tune_now(tune), .bytes_per_s = bytes_per_s};
    if (bytes_per_s > best) {
        tune->best_threshold = tune->threshold;
        tune->best_cycle = tune->cycle;
        tune->pass_improved = true;
    }
    if (--tune->samples == 0)
        tune->is_ended = true;
    else
        move_on(tune);
    return true;
}
