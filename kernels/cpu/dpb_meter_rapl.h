/* dpb_meter_rapl.h: energy of this machine's processor packages, from the counters (RAPL) that
 * Linux shows under /sys/class/powercap. Since 2020 only root may read them by default. */
#ifndef DPB_METER_RAPL_H
#define DPB_METER_RAPL_H

#include "dpb_meter.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A counter starts again at 0 some minutes after it did so last, so readings must not lie further
 * apart than DPB_RAPL_GAP_NS_MAX: the energy of such a span is not known. */
#define DPB_RAPL_GAP_NS_MAX 200000000000

extern const struct dpb_meter_ops dpb_meter_rapl_ops;

/* Read the counters of `folder` instead; NULL: the system's. For tests; the caller keeps the text.
 */
void dpb_meter_rapl_use(const char *folder);

#ifdef __cplusplus
}
#endif
#endif
