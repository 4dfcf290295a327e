/* cell_trace.h: the traced steps of a launch -> the record's overlap, communication, waiting and
 * trace. */
#ifndef CELL_TRACE_H
#define CELL_TRACE_H

#include "dpb_cell_record.h"

/* Write the trace file below the run folder and set the keys `overlap`, `communication`,
 * `waiting` and `trace`; absent with the reason when no steps were traced. */
dpb_status dpb_cell_trace_put(const struct dpb_cell_outcome *outcome, dpb_json *record);

#endif
