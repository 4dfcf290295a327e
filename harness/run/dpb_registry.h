/* dpb_registry.h: the parts of this build, by kind. Filled in harness/cli, the only place that
 * names concrete parts; everything below finds them here by name. */
#ifndef DPB_REGISTRY_H
#define DPB_REGISTRY_H

#include <stddef.h>

#include "dpb_comm.h"
#include "dpb_device.h"
#include "dpb_options.h"
#include "dpb_recorder.h"
#include "dpb_strategy.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_registry {
    const struct dpb_workload_ops *const *workloads;
    size_t workload_count;
    const struct dpb_device_ops *const *devices;
    size_t device_count;
    const struct dpb_comm_ops *const *comms;
    size_t comm_count;
    const struct dpb_strategy_ops *const *strategies;
    size_t strategy_count;
    const struct dpb_recorder_ops *recorder; /* for traced steps */
    /* for verification with exact sums; not offered to users as a workload to measure */
    const struct dpb_workload_ops *integer_workload;
    const struct dpb_option_set *options;
};

/* NULL when there is none of that name. */
const struct dpb_workload_ops *dpb_registry_workload(const struct dpb_registry *registry,
                                                     const char *name);
const struct dpb_device_ops *dpb_registry_device(const struct dpb_registry *registry,
                                                 const char *name);
const struct dpb_comm_ops *dpb_registry_comm(const struct dpb_registry *registry, const char *name);
const struct dpb_strategy_ops *dpb_registry_strategy(const struct dpb_registry *registry,
                                                     const char *name);

#ifdef __cplusplus
}
#endif
#endif
