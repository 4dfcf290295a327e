/* virtual_recorder.h (private): a recorder whose ranges are on a timeline: the watched rank's. */
#ifndef VIRTUAL_RECORDER_H
#define VIRTUAL_RECORDER_H

#include <stdbool.h>

#include "dpb_recorder.h"
#include "dpb_timeline.h"

/* Recording begins with virtual_recorder_start(). Close with its ops. */
dpb_status virtual_recorder_open(dpb_recorder **recorder);
/* `launch_ns`: an operator cannot begin earlier than so long after the host launches it. The
 * timeline is borrowed. */
void virtual_recorder_start(dpb_recorder *recorder, dpb_timeline *timeline, double launch_ns);

#endif
