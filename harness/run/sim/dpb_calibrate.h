/* dpb_calibrate.h: a machine profile (dpb_machine.h) from measurements: of collectives
 * (`dpbench comm`) and of training steps (`run`, `sweep`). docs/machines.md says which figure is
 * from what.
 *
 * Nothing is taken on trust: every second size of a curve is predicted from the others, and every
 * cell's step time from the other cells, by the same code that simulates clusters; the errors are
 * in the report. */
#ifndef DPB_CALIBRATE_H
#define DPB_CALIBRATE_H

#include <stddef.h>

#include "dpb_json.h"
#include "dpb_machine.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_calibrate_config {
    const struct dpb_registry *registry;
    const char *name;         /* of the machine */
    const char *const *comms; /* folders or files of `dpbench comm`: JSON or JSON Lines */
    size_t comm_count;
    const char *const *runs; /* folders of `dpbench run` and `sweep` */
    size_t run_count;
};

struct dpb_calibration {
    struct dpb_machine machine;
    /* {"machine", "curves": [{"collective", "ranks", "points", "held_out", "median_error",
     * "worst_error"}], "curves_median_error", "curves_worst_error", "link": {"points",
     * "median_error", "worst_error"} (of the closed form), "steps": [{"run", "cell", "label",
     * "ranks", "emulated", "measured_ns", "predicted_ns", "error"}], "steps_median_error",
     * "steps_worst_error", "left_out": [texts]}: shares; null with a reason where there is none */
    dpb_json *report;
};

/* Only records of real ranks with status ok count; of several settings of collectives (algorithm,
 * type, link) the first. What nothing was measured for is left out, or marked as assumed, and told.
 * DPB_ERR_NO_DATA: nothing to calibrate from; DPB_ERR_CORRUPT: not records of that kind; DPB_ERR_
 * USAGE: records of several machines, or of a device that is no CPU. Logged. Takes about 0.3 s on
 * the machine itself for its memory's rate. Release after use. */
dpb_status dpb_calibrate(const struct dpb_calibrate_config *config,
                         struct dpb_calibration *calibration);
void dpb_calibration_release(struct dpb_calibration *calibration);

/* The report for people. */
dpb_status dpb_calibration_text(const struct dpb_calibration *calibration, struct dpb_str *text);

#ifdef __cplusplus
}
#endif
#endif
