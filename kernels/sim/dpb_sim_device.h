/* dpb_sim_device.h: what the device "sim" is opened with, and what shares its timeline: the comm
 * "sim" and the simulated step engine. */
#ifndef DPB_SIM_DEVICE_H
#define DPB_SIM_DEVICE_H

#include "dpb_device.h"
#include "dpb_sim_rates.h"
#include "dpb_timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dpb_device_config's `options`; never NULL. Both are borrowed. */
struct dpb_device_sim_options {
    dpb_timeline *timeline;
    const struct dpb_sim_rates *rates;
};

/* The timeline and rates of a device "sim"; NULL for any other. */
dpb_timeline *dpb_device_sim_timeline(dpb_device *device);
const struct dpb_sim_rates *dpb_device_sim_rates(dpb_device *device);

#ifdef __cplusplus
}
#endif
#endif
