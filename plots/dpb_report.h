/* dpb_report.h: summaries -> what people read: a terminal table, report.md, report.html with SVG
 * plots by gnuplot, and report.json. Missing gnuplot is a warning; the rest is still written. */
#ifndef DPB_REPORT_H
#define DPB_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_summary.h"
#include "dpb_targets.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_report_config {
    const char *folder; /* written here: report.md, report.html, report.json, plots/<name>.svg */
    const char *title;  /* the run's name */
    const dpb_json *manifest;                  /* of the run, or NULL; borrowed */
    const struct dpb_evidence_table *evidence; /* of its targets, or NULL; borrowed */
    const char *gnuplot;                       /* program; NULL: looked for in PATH */
};

/* Paths and outcome of a report. */
struct dpb_report_result {
    char markdown_path[4096];
    char html_path[4096]; /* self-contained: plots are inlined */
    int plots;            /* SVG files drawn */
    int plots_skipped;    /* no valid point, or no gnuplot */
};

dpb_status dpb_report_write(const struct dpb_summary *summary,
                            const struct dpb_report_config *config,
                            struct dpb_report_result *result);

/* The table of cells on `out` (libsmartcols): what varies, step time with interval, throughput,
 * efficiency, exposed share, how it was obtained. `width` columns; 0: the terminal's, or all. */
dpb_status dpb_report_table(const struct dpb_summary *summary, FILE *out, int width);

/* Predicted and measured step times with the error of each cell that was simulated against a
 * measured run, and the median; nothing where there is none. */
dpb_status dpb_report_against(const struct dpb_summary *summary, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
