/* dpb_trend.h: a metric from commit to commit, its levels and changes, as table and plot. */
#ifndef DPB_TREND_H
#define DPB_TREND_H

#include <stdio.h>

#include "dpb_changepoint.h"
#include "dpb_gate_set.h"
#include "dpb_history.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All borrowed. */
struct dpb_trend {
    const char *cell;
    const struct dpb_gate_metric *metric;
    const struct dpb_history_point *points;
    size_t point_count;
    const struct dpb_changepoint *changes;
    size_t change_count;
};

/* A row for every level: its first commit, how many it has, their mean, and by how much it differs
 * from the level before. DPB_ERR_IO, DPB_ERR_NO_MEMORY. */
dpb_status dpb_trend_print(const struct dpb_trend *trend, FILE *out);

/* Write trend.gp and trend.dat into `folder`, which is made when absent, and trend.svg when gnuplot
 * is there. DPB_ERR_IO, DPB_ERR_NO_MEMORY. */
dpb_status dpb_trend_plot(const struct dpb_trend *trend, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
