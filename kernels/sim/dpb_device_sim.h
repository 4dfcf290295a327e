/* dpb_device_sim.h: the device that computes nothing, and says how long it would have taken: on a
 * timeline of virtual ranks (dpb_timeline.h).
 *
 * Memory of it are addresses without anything behind them: a touch ends the program. It has one
 * compute stream. Operators that strategies and optimizers launch are priced by rates; networks are
 * schedules of layers instead (harness/step/dpb_schedule.h). */
#ifndef DPB_DEVICE_SIM_H
#define DPB_DEVICE_SIM_H

#include "dpb_sim_device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_device_ops dpb_device_sim_ops;

#ifdef __cplusplus
}
#endif
#endif
