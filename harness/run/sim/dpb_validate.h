/* dpb_validate.h: what the simulation says of training that others measured and published.
 *
 * The rows of a table that differ in the number of accelerators only are a series. From the row
 * with the fewest accelerators, and from the profile of the machine, the efficiency of the others
 * is predicted: throughput per accelerator, as a share of that row's. docs/validation.md has the
 * rules and the results. */
#ifndef DPB_VALIDATE_H
#define DPB_VALIDATE_H

#include <stdbool.h>

#include "dpb_json.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_validate_config {
    const struct dpb_registry *registry;
    const char *file; /* a table with the columns of results/published/scaling.csv; NULL: that */
    bool fit;         /* determine the constants anew, from the same rows */
};

/* Targets, in points of efficiency and as a share of pairs. */
#define DPB_VALIDATE_MEDIAN_POINTS   5.0
#define DPB_VALIDATE_HELD_OUT_POINTS 8.0
#define DPB_VALIDATE_RANKING         0.8

struct dpb_validation {
    dpb_json *report;  /* docs/validation.md lists its keys; caller owns */
    bool targets_hold; /* all three of them */
    char *constants;   /* with `fit`: the text of results/published/constants.csv; caller frees */
};

/* DPB_ERR_USAGE, logged, for a file that is no such table. A row that nothing can be said of is
 * counted with the reason. */
dpb_status dpb_validate(const struct dpb_validate_config *config,
                        struct dpb_validation *validation);

#ifdef __cplusplus
}
#endif
#endif
