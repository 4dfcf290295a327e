/* view.h (private): how cells and numbers look, the same in the table, the report and the plots. */
#ifndef DPB_VIEW_H
#define DPB_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dpb_str.h"
#include "dpb_summary.h"

#define DPB_VIEW_AXES 16

/* What stands for a number that does not exist. ASCII, for terminals. */
#define DPB_VIEW_ABSENT "-"

#define DPB_VIEW_UNCUT 10000 /* columns, more than any table has */

/* Columns of the terminal that `out` is, or 80 where it does not say; DPB_VIEW_UNCUT where
 * `out` is none: what goes into a file or another program is not cut. */
size_t dpb_view_terminal_width(FILE *out);

/* The options that vary between the cells, without ranks. */
struct dpb_axes {
    const char *names[DPB_VIEW_AXES];
    size_t count;
    bool many_runs;
};

struct dpb_axes dpb_axes_of(const struct dpb_summary *summary);

/* All cells as a reader looks for them: by run, ranks, then in the order of the plan. `cell_count`
 * pointers; the caller frees. NULL when out of memory. */
const struct dpb_cell_summary **dpb_view_cells(const struct dpb_summary *summary);

/* The same within a run and a number of ranks from the fastest to the slowest; cells without an ok
 * repeat last. */
const struct dpb_cell_summary **dpb_view_ranked(const struct dpb_summary *summary);

/* Does the option vary between the cells? */
bool dpb_axes_have(const struct dpb_axes *axes, const char *name);

/* "bucket 256KiB, overlap on": the axes of a cell without ranks and without one more (may be NULL),
 * with the run in front where there are several. Nothing is appended when none is left. */
void dpb_view_axes(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                   const char *without, struct dpb_str *out);

/* "25Gbps, 5us" of an emulated cell; nothing when the record does not say. */
void dpb_view_link(const struct dpb_cell_summary *cell, struct dpb_str *out);

/* "measured", "emulated 25Gbps, 5us" or "simulated": how its numbers were obtained. */
void dpb_view_how(const struct dpb_cell_summary *cell, struct dpb_str *out);

/* "strong scaling, measured": what the cells of one plot have in common. */
void dpb_view_kind(const struct dpb_cell_summary *const *cells, size_t count, struct dpb_str *out);

/* The number with that many digits after the point, or the dash. */
void dpb_view_number(double value, int decimals, struct dpb_str *out);
/* Nanoseconds in milliseconds, three to four significant digits. */
void dpb_view_ms(double ns, struct dpb_str *out);
/* A rate in samples per second and the like, three to four significant digits. */
void dpb_view_rate(double value, struct dpb_str *out);
/* 0.873 as 87.3 */
void dpb_view_percent(double ratio, struct dpb_str *out);
/* Half the width of an interval, in the given unit, as many digits as dpb_view_ms. */
double dpb_interval_half(struct dpb_interval95 interval);

/* Does the option `overlap` of the cell say on? From its axes, else its config; true when unknown.
 */
bool dpb_view_overlap_is_on(const struct dpb_cell_summary *cell);
/* Bucket bytes of the cell from its config or axes; 0 when unknown or automatic. */
double dpb_view_bucket_bytes(const struct dpb_cell_summary *cell);

#endif
