/* cupti_session.h: CUPTI's one session of a process: what it traces and when. Private to
 * profiles/cupti.
 *
 * Exactly one, because of CUPTI 13.0: graph launches of later sessions have wrong correlation
 * numbers, and taking CUPTI out of a process (cuptiFinalize) has crashed many. */
#ifndef CUPTI_SESSION_H
#define CUPTI_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "cupti_clock.h"
#include "cupti_table.h"

/* Before CUDA is initialised: open the library, become its only subscriber, set what the device's
 * buffers are to be, and have NVTX's ranges come too. DPB_ERR_UNAVAILABLE and DPB_ERR_VENDOR,
 * logged. A tool that is there already is no error (cupti_session_other_tool()). */
dpb_status cupti_session_prepare(void);

/* The name of the tool that traces this process already, or NULL. */
const char *cupti_session_other_tool(void);

/* The table after prepare(); NULL before. */
const struct cupti_table *cupti_session_table(void);

/* Records from now on, into `buffers` buffers (cupti_buffers.h). Once. DPB_ERR_USAGE,
 * DPB_ERR_NO_MEMORY, DPB_ERR_VENDOR, logged. */
dpb_status cupti_session_start(size_t buffers, struct cupti_moment *moment);

/* The end of the records: flushed, by force at last, and all kinds disabled. `dropped`: records for
 * which there was no room. With the device idle. */
dpb_status cupti_session_stop(struct cupti_moment *moment, int64_t *dropped);

/* Forget the session, so that a test may have another. */
void cupti_session_forget(void);

#endif
