/* dpb_inspect.h: what this machine is fit for: settings that make measurements worse, or runs fail.
 */
#ifndef DPB_INSPECT_H
#define DPB_INSPECT_H

#include <stdbool.h>

#include "dpb_finding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Clock governor, quota of cores, memory, pages, NUMA balancing, /dev/shm, limits on locked memory
 * and open files. `root` is "" for this machine; below another folder a test puts /proc and /sys.
 */
void dpb_inspect_host(const char *root, dpb_found found, void *ctx);

/* Is there an NVIDIA GPU on the PCI bus, whether or not a driver is loaded? */
bool dpb_inspect_has_gpu(const char *root);

#ifdef __cplusplus
}
#endif
#endif
