/* plan_options.h (private): what `dpbench plan` is asked. */
#ifndef PLAN_OPTIONS_H
#define PLAN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_capacity_run.h"

/* The plan's own options that take one value; machine, price and throughput are lists. INT, SIZE
 * and DURATION are DPB_AUTO, and FLOAT and RATIO NaN, where nobody gave them. */
struct plan_options {
    int64_t samples, samples_to_quality;
    double epochs, critical_batch;
    char deadline[DPB_OPTION_TEXT_BYTES], budget[DPB_OPTION_TEXT_BYTES];
    double efficiency;
    int64_t step_p99_ns;
    char quality[DPB_OPTION_TEXT_BYTES];
    int64_t checkpoint_ns, checkpoint_bytes, restart_ns, mtbf_ns, reserve_bytes;
    double checkpoint_bytes_per_s;
    bool tf32;
    char machine[DPB_OPTION_TEXT_BYTES], price[DPB_OPTION_TEXT_BYTES],
            throughput[DPB_OPTION_TEXT_BYTES];
};

/* The registry with virtual time as its only device: what the cells of a plan are made with. */
const struct dpb_registry *plan_registry(const struct dpb_registry *registry);

/* Is it one of the plan's own? */
bool plan_option_is_own(const char *name);
/* Those of `settings` as a config of their own, which has `options`. */
dpb_status plan_options_read(const struct dpb_settings *settings, dpb_config **config,
                             const struct plan_options **options);

/* "3d", "36h" or "2w", or the date "2026-12-24" (its beginning, UTC): seconds from `now_s`. Errors
 * are logged; DPB_ERR_USAGE for one that has passed. */
dpb_status plan_deadline_parse(const char *text, int64_t now_s, double *seconds);
/* "5000USD". */
dpb_status plan_budget_parse(const char *text, double *amount);
/* "2.95USD/h@2026-11-30"; `date` NULL without one, else 10 characters within `text`. */
dpb_status plan_price_parse(const char *text, double *per_hour, const char **date);
/* "NAME=VALUE" or "VALUE", which is for every machine: does the text speak of `machine`? Then
 * `value` is what follows. */
bool plan_is_for(const char *text, const char *machine, const char **value);

#endif
