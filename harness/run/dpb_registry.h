/* dpb_registry.h: the parts of this build, by kind. Filled in harness/cli, the only place that
 * names concrete parts; everything below finds them here by name. */
#ifndef DPB_REGISTRY_H
#define DPB_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_device.h"
#include "dpb_meter.h"
#include "dpb_options.h"
#include "dpb_recorder.h"
#include "dpb_simulator.h"
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
    const struct dpb_recorder_ops *const *recorders; /* for traced steps */
    size_t recorder_count;
    const struct dpb_meter_ops *const *meters; /* tried in this order */
    size_t meter_count;
    /* for verification with exact sums; not offered to users as a workload to measure */
    const struct dpb_workload_ops *integer_workload;
    /* virtual time (dpb_sim_step.h), also offered as device and comm "sim" */
    const struct dpb_device_ops *sim_device;
    const struct dpb_comm_ops *sim_comm;
    const struct dpb_option_set *options;
    /* Its ranks are started by somebody else (--launcher): `--comm auto` is none that needs ranks
     * that dpbench has forked. */
    bool is_launched;
    /* of devices with virtual time; NULL where the registry has none */
    const struct dpb_simulator *simulator;
};

/* Has the device virtual time, so that the simulator runs its cells? */
bool dpb_registry_is_virtual(const struct dpb_registry *registry, const char *device);

/* NULL when there is none of that name. */
const struct dpb_workload_ops *dpb_registry_workload(const struct dpb_registry *registry,
                                                     const char *name);
const struct dpb_device_ops *dpb_registry_device(const struct dpb_registry *registry,
                                                 const char *name);
const struct dpb_comm_ops *dpb_registry_comm(const struct dpb_registry *registry, const char *name);
const struct dpb_strategy_ops *dpb_registry_strategy(const struct dpb_registry *registry,
                                                     const char *name);
const struct dpb_recorder_ops *dpb_registry_recorder(const struct dpb_registry *registry,
                                                     const char *name);

/* Tables of parts that lie in a module (dpb_module.h) have `open` NULL, and only name, summary,
 * flags, options and probe. What runs them asks here for the whole table, for which the module is
 * opened. Logged; DPB_ERR_UNAVAILABLE with the reason. */
dpb_status dpb_registry_use_device(const struct dpb_registry *registry, const char *name,
                                   const struct dpb_device_ops **ops);
dpb_status dpb_registry_use_comm(const struct dpb_registry *registry, const char *name,
                                 const struct dpb_comm_ops **ops);
dpb_status dpb_registry_use_recorder(const struct dpb_registry *registry, const char *name,
                                     const struct dpb_recorder_ops **ops);

/* Does it work only through a segment that ranks inherit (DPB_COMM_SEGMENT)? GPUs' comms meet over
 * TCP where there is none. */
bool dpb_registry_needs_segment(const struct dpb_comm_ops *comm);

/* Can the two work together, wherever they may be available? Host memory and device memory that do
 * not meet: DPB_ERR_USAGE, logged. */
dpb_status dpb_registry_check_pair(const struct dpb_registry *registry, const char *device,
                                   const char *comm);

/* Can `ranks` ranks run on that device of this machine with that comm? As
 * dpb_registry_check_pair(); what is not available, or devices for fewer ranks:
 * DPB_ERR_UNAVAILABLE. Logged. */
dpb_status dpb_registry_check_parts(const struct dpb_registry *registry, const char *device,
                                    const char *comm, int64_t ranks);

#ifdef __cplusplus
}
#endif
#endif
