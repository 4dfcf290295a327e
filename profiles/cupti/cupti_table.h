/* cupti_table.h: CUPTI 13 as a table of functions. Private to profiles/cupti.
 *
 * The activity interface, without what must not be used with version 13.0: no callback for
 * timestamps (they make kernels' times wrong until 13.1), no latency timestamps, no
 * cuptiFinalize(). */
#ifndef CUPTI_TABLE_H
#define CUPTI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cupti.h>

#include "dpb_status.h"

/* Members have the functions' own names (cupti_activity.h documents them). */
struct cupti_table {
    __typeof__(cuptiGetVersion) *cuptiGetVersion;
    __typeof__(cuptiGetResultString) *cuptiGetResultString;
    __typeof__(cuptiGetTimestamp) *cuptiGetTimestamp;
    __typeof__(cuptiSubscribe_v2) *cuptiSubscribe_v2;
    __typeof__(cuptiUnsubscribe) *cuptiUnsubscribe;
    __typeof__(cuptiActivitySetAttribute) *cuptiActivitySetAttribute;
    __typeof__(cuptiActivityRegisterCallbacks) *cuptiActivityRegisterCallbacks;
    __typeof__(cuptiActivityEnable) *cuptiActivityEnable;
    __typeof__(cuptiActivityEnableDriverApi) *cuptiActivityEnableDriverApi;
    __typeof__(cuptiActivityDisable) *cuptiActivityDisable;
    __typeof__(cuptiActivityFlushAll) *cuptiActivityFlushAll;
    __typeof__(cuptiActivityGetNextRecord) *cuptiActivityGetNextRecord;
    __typeof__(cuptiActivityGetNumDroppedRecords) *cuptiActivityGetNumDroppedRecords;
    __typeof__(cuptiActivityPushExternalCorrelationId) *cuptiActivityPushExternalCorrelationId;
    __typeof__(cuptiActivityPopExternalCorrelationId) *cuptiActivityPopExternalCorrelationId;
};

/* Open libcupti.so.13 (or what DPB_CUPTI_LIBRARY names) and fill `table`. DPB_ERR_UNAVAILABLE with
 * one line in `why`: not found, or a version that does not fit. Needs no driver. */
dpb_status cupti_open(struct cupti_table *table, char *why, size_t why_bytes);

/* Is there a driver that CUPTI can ask? Without one it fails with CUPTI_ERROR_UNKNOWN whatever it
 * is asked. DPB_ERR_UNAVAILABLE with one line in `why`. Starts nothing. */
dpb_status cupti_probe_driver(char *why, size_t why_bytes);

/* From now on cupti_open() copies `table` and opens nothing, and cupti_probe_driver() finds a
 * driver; NULL: the libraries again. For tests; the caller keeps the table. */
void cupti_use(const struct cupti_table *table);

/* Does a library of version `version` serve a program built with version `built`? Its records have
 * the newest layout it knows, so not an older one; and the layout may differ in the next major
 * version. */
bool cupti_version_fits(uint32_t version, uint32_t built);

/* CUPTI's name for the result, "CUPTI_ERROR_UNKNOWN"; static storage. */
const char *cupti_text(const struct cupti_table *table, CUptiResult result);

/* DPB_OK, or a failure logged as "CUPTI: cannot `what`: NAME". */
dpb_status cupti_check(const struct cupti_table *table, CUptiResult result, const char *what);

/* The path of the library behind the table, for NVTX; NULL: not known. Static storage. */
const char *cupti_path(const struct cupti_table *table);

#endif
