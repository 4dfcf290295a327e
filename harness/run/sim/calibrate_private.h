/* calibrate_private.h: what the files of the calibration share. */
#ifndef CALIBRATE_PRIVATE_H
#define CALIBRATE_PRIVATE_H

#include <stdbool.h>

#include "dpb_calibrate.h"
#include "dpb_plan.h"
#include "dpb_record.h"

struct calibrate_items;

struct calibrating {
    const struct dpb_calibrate_config *config;
    struct dpb_machine machine;
    dpb_json *report, *left_out;
    dpb_json *host; /* of the records; NULL until the first */
    bool is_here;   /* it is this machine */
    int most_ranks;
    char today[16];
    double loop_bytes_per_s; /* a loop over memory here; 0: not this machine */
    struct dpb_records records;
    struct dpb_plan *plans;        /* of config->runs */
    struct calibrate_items *items; /* records that count; calibrate_runs.c */
};

/* Set a figure; the source is printf's, with `assumed` it is the reason. */
__attribute__((format(printf, 6, 7))) void calibrate_figure(struct calibrating *c,
                                                            enum dpb_figure_id id, double value,
                                                            bool is_assumed, const char *date,
                                                            const char *format, ...);
/* Tell that something was left out. */
__attribute__((format(printf, 2, 3))) void calibrate_left_out(struct calibrating *c,
                                                              const char *format, ...);
/* All records are of one machine. DPB_ERR_USAGE, logged. */
dpb_status calibrate_host(struct calibrating *c, const dpb_json *record, const char *file);

/* "median_error" and "worst_error" of `object`, with a prefix; absent with none. */
void calibrate_put_errors(dpb_json *object, const char *prefix, const double *errors, size_t count,
                          const char *why_none);

/* Curves, and the link of the closed forms. */
dpb_status calibrate_comm(struct calibrating *c);
/* Rates of compute, noise, contention; then the other cells from each. */
dpb_status calibrate_runs(struct calibrating *c);
dpb_status calibrate_check_steps(struct calibrating *c);
void calibrate_runs_release(struct calibrating *c);

/* Variance of the largest of n standard normal numbers. */
double calibrate_maximum_variance(int n);
/* What takes `lost` longer in all while it shares `both` of its time is slower by this share there;
 * NAN where almost all of `both` is lost: then it waited for something else. */
double calibrate_slower_by(double lost, double both);

/* Bytes per second that one core reads and writes, over arrays that no cache holds: the best of
 * some passes of a = b + s c. NAN without memory. Flops per second of multiply-adds in registers.
 */
double calibrate_memory_loop(void);
double calibrate_flop_loop(void);

#endif
