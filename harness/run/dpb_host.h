/* dpb_host.h: this machine and this build, as records describe them. */
#ifndef DPB_HOST_H
#define DPB_HOST_H

#include <stdint.h>

#include "dpb_json.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Cores this process may run on (its affinity mask), at least 1. */
int dpb_host_cores(void);

/* {"name", "cpu_model", "cores", "packages", "numa_nodes", "memory_bytes", "kernel", "os",
 * "environment": {allow-listed variables that are set, none that looks like a
 * secret}}. Caller owns. */
dpb_json *dpb_host_json(void);

/* 16 hex digits over what makes two machines comparable: CPU model, cores, memory to the GiB,
 * kernel release, libraries that compute. Not the host's name. */
void dpb_host_fingerprint(const dpb_json *host, const dpb_json *device, char text[17]);

/* {"version", "git_sha", "dirty", "build": {"type", "compiler", "flags"}}. Caller owns. */
dpb_json *dpb_tool_json(void);

/* "0.1.0 (1a2b3c4d5e6f, dirty)". */
void dpb_tool_version_long(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
