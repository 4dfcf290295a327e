/* gnuplot.h (private): run gnuplot on a script in a folder. */
#ifndef DPB_GNUPLOT_H
#define DPB_GNUPLOT_H

#include "dpb_status.h"

/* The path of gnuplot: `wanted`, or looked for in PATH when that is NULL. NULL when there is none;
 * nothing is logged. Caller frees. */
char *dpb_gnuplot_find(const char *wanted);

/* Run `<folder>/<name>.gp` in `folder` with LC_ALL=C and without the user's own settings, and wait
 * for it, at most half a minute. The script writes the file in its variable `out`; it gets a
 * temporary name and takes the place of `<folder>/<name>.svg` only when all went well. Warns with
 * what gnuplot said: DPB_ERR_TIMEOUT, DPB_ERR_VENDOR when it fails, DPB_ERR_UNAVAILABLE when it
 * cannot be started, DPB_ERR_IO. */
dpb_status dpb_gnuplot_run(const char *gnuplot, const char *folder, const char *name);

#endif
