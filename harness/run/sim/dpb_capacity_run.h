/* dpb_capacity_run.h: `dpbench plan`: how many accelerators, of which machine, with which strategy,
 * for how long and how much: simulated training steps and the arithmetic of dpb_capacity.h.
 * docs/planning.md has the formulas and says what they leave out. */
#ifndef DPB_CAPACITY_RUN_H
#define DPB_CAPACITY_RUN_H

#include <stdint.h>

#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_sweep_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The options of a plan: its own, and those of an experiment that a simulation depends on. */
const struct dpb_option_set *dpb_capacity_option_set(const struct dpb_registry *registry);

struct dpb_capacity_input {
    const struct dpb_registry *registry;
    const struct dpb_sweep_file *file; /* NULL: flags only; read with the set above */
    const struct dpb_settings *flags;  /* the command line; over the file */
    int64_t now_s;                     /* since 1970, UTC: what a deadline's date is counted from */
    const char *name;                  /* when the file gives none */
};

/* The report, as "dpb.plan/1": question, answer, options, alternatives, sensitivity, warnings,
 * provenance. The same for the same input. DPB_ERR_USAGE for a question that cannot be answered,
 * logged. Caller owns. */
dpb_status dpb_capacity_run(const struct dpb_capacity_input *input, dpb_json **plan);

#ifdef __cplusplus
}
#endif
#endif
