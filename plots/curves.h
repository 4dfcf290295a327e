/* curves.h (private): the scaling curves of a summary, one per series, with label and look. */
#ifndef DPB_CURVES_H
#define DPB_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_str.h"
#include "dpb_summary.h"
#include "view.h"

struct dpb_curve {
    const struct dpb_cell_summary **points; /* with an efficiency, by ranks; the baseline first */
    size_t count;
    const struct dpb_cell_summary *key; /* its cell with the most ranks, ok or not */
    char *label;                        /* "bucket 256KiB, overlap on" */
    char *family;                       /* the same without overlap: curves of one colour */
    int style;                          /* colour and marker: the number of its family */
    bool overlap_varies, overlap_on;
};

/* The curves that can be compared in one plot: same scaling, all simulated or none. */
struct dpb_curve_set {
    struct dpb_curve *curves;
    size_t count;
    bool weak, simulated;
    int max_ranks;
    struct dpb_str how; /* "measured", "emulated link 25Gbps, 5us", "simulated", or a mixture */
    struct dpb_str left_out; /* sentences on what is not drawn; may be empty */
};

/* Fill `set` with the curves of weak or strong scaling; count 0 when there are none. Returns false
 * when out of memory. Release after use. */
bool dpb_curves_find(const struct dpb_summary *summary, bool weak, bool simulated,
                     struct dpb_curve_set *set);
void dpb_curves_release(struct dpb_curve_set *set);

#endif
