/* dpb_plan_page.h: a plan of capacity ("dpb.plan/1") -> what people read: a terminal table,
 * report.md, report.html with SVG plots by gnuplot, and report.json. All say the same numbers. */
#ifndef DPB_PLAN_PAGE_H
#define DPB_PLAN_PAGE_H

#include <stdio.h>

#include "dpb_json.h"
#include "dpb_report.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write the files into `folder`, which is there. `gnuplot`: program; NULL: looked for in PATH; a
 * missing one is a warning. Errors are logged. */
dpb_status dpb_plan_page_write(const dpb_json *plan, const char *folder, const char *gnuplot,
                               struct dpb_report_result *result);

/* The answer and the table of options. `width` columns; 0: the terminal's, or all. */
dpb_status dpb_plan_page_print(const dpb_json *plan, FILE *out, int width);

#ifdef __cplusplus
}
#endif
#endif
