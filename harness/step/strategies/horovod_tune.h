/* horovod_tune.h: the search for a fusion threshold and a cycle time (Horovod's autotuning,
 * parameter_manager.cc, has the same bounds and warm-ups, and a Bayesian search).
 *
 * A coordinate search on a grid: all thresholds at the cycle time to start with, all cycle times at
 * the best of them, all thresholds again, and so on, until a pass over both has found nothing
 * better, or as many samples were taken as are allowed. No point is measured twice. Pure. */
#ifndef DPB_HOROVOD_TUNE_H
#define DPB_HOROVOD_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#define TUNE_THRESHOLDS 8 /* 0, 1, 2, ..., 64 MiB */
#define TUNE_CYCLES     7 /* 1 to 100 ms */
#define TUNE_POINTS     (TUNE_THRESHOLDS * TUNE_CYCLES)

#define TUNE_THRESHOLD_MAX_BYTES (INT64_C(64) << 20)

struct tune_point {
    int64_t threshold_bytes, cycle_ns;
};

struct tune_trial {
    struct tune_point point;
    double bytes_per_s; /* of gradients reduced */
};

struct tune {
    int warmups;   /* samples still to be thrown away */
    int samples;   /* still allowed */
    bool is_ended; /* `best` is what it came to */

    int threshold, cycle;           /* the point under trial, on the grid */
    int best_threshold, best_cycle; /* of all so far */
    bool is_along_cycles;           /* this pass varies the cycle time */
    int quiet_passes;               /* passes that found nothing better, one after another */
    bool pass_improved;
    double score[TUNE_THRESHOLDS][TUNE_CYCLES]; /* negative: not measured */

    struct tune_trial trial[TUNE_POINTS];
    int trial_count;
};

/* Start at the grid's point nearest to `start`. */
void tune_init(struct tune *tune, struct tune_point start, int warmups, int samples);
/* What to measure now; the best point when the search has ended. */
struct tune_point tune_now(const struct tune *tune);
/* The sample of tune_now() is complete. True when the point to measure is another now. */
bool tune_score(struct tune *tune, double bytes_per_s);

#endif
