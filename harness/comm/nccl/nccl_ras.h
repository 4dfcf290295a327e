/* nccl_ras.h: NCCL's own view of a job, asked over TCP: the RAS service that every process with
 * NCCL 2.24 or later runs (NCCL user guide, "RAS"). */
#ifndef DPB_NCCL_RAS_H
#define DPB_NCCL_RAS_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_str.h"

#define DPB_NCCL_RAS_ADDRESS     "localhost:28028" /* unless NCCL_RAS_ADDR says otherwise */
#define DPB_NCCL_RAS_TEXT        65536             /* most bytes that are taken */
#define DPB_NCCL_RAS_DEADLINE_NS ((int64_t)2 * 1000000000)

/* Ask "verbose status" at `address` ("host:port", "[v6]:port"), and append what came until the
 * service closed the connection, or the deadline. DPB_OK when anything came; else
 * DPB_ERR_UNAVAILABLE or DPB_ERR_TIMEOUT with one line in `why`. Logs nothing. */
dpb_status dpb_nccl_ras_status(const char *address, int64_t deadline_ns, struct dpb_str *text,
                               char *why, size_t why_bytes);

/* The address: NCCL_RAS_ADDR, or the default. */
const char *dpb_nccl_ras_address(void);

#endif
