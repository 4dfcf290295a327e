/* dpb_module.h: parts that lie in a module: a shared library that is opened when one of them is
 * asked for, so that the same program runs where the module, or the driver it needs, is missing.
 *
 * libdpbench_cuda.so: device "cuda", comm "nccl", recorder "cupti", meter "nvml".
 * libdpbench_openmpi.so, libdpbench_mpich.so: comm "mpi", from the one whose mpirun started the
 * program; all else in their struct is NULL.
 *
 * A module is linked with its own copy of base, exports one function, and is never closed. */
#ifndef DPB_MODULE_H
#define DPB_MODULE_H

#include <stddef.h>

#include "dpb_comm.h"
#include "dpb_device.h"
#include "dpb_finding.h"
#include "dpb_log.h"
#include "dpb_meter.h"
#include "dpb_mpi_start.h"
#include "dpb_recorder.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every struct that crosses the border: the tables of parts, their configurations, the
 * two below. A module of another number is refused. */
#define DPB_MODULE_ABI   3
#define DPB_MODULE_FILE  "libdpbench_cuda.so"
#define DPB_MODULE_ENTRY "dpb_module_entry"

/* Folders to look in instead of the usual ones, separated by ':'. */
#define DPB_MODULE_PATH_VARIABLE "DPBENCH_MODULE_PATH"

/* What the program gives its module. */
struct dpb_module_host {
    int abi;
    struct dpb_log_functions log; /* the program's log: prefix, level and sink are one */
};

/* What the module gives. Its first two members stay where they are in every ABI. */
struct dpb_module {
    int abi;
    const char *build; /* "CUDA 13.0.88, GPUs 80 90 100 and later" */
    const struct dpb_device_ops *device;
    const struct dpb_comm_ops *comm;
    const struct dpb_recorder_ops *recorder;
    const struct dpb_meter_ops *meter;
    /* Can so many ranks of this machine have a device each? DPB_ERR_UNAVAILABLE and the reason in
     * `why`, one line: fewer devices, parts of one (MIG) with several ranks, what probe() says. */
    dpb_status (*ranks_fit)(int ranks, char *why, size_t why_bytes);
    /* What the GPUs and vendors' libraries are fit for; works without a driver too. */
    void (*inspect)(dpb_found found, void *ctx);
};

/* The type of the module's one function. `host` lives as long as the program. A host of another ABI
 * gets the module too, to say so. */
typedef const struct dpb_module *dpb_module_entry_function(const struct dpb_module_host *host);

/* Open the module, once: later calls give the same answer. Looked for in the folders of
 * $DPBENCH_MODULE_PATH when it is set, else beside the program and in ../lib/dpbench from there.
 * DPB_ERR_UNAVAILABLE with one line in `why` ("not available here, because ..."): where it was
 * looked for, the loader's reason, or the two ABIs. Not logged. */
dpb_status dpb_module_open(const struct dpb_module **module, char *why, size_t why_bytes);

/* The same for the MPI that started this process (dpb_mpi_start.h); where none did, that is the
 * reason. */
dpb_status dpb_module_open_mpi(const struct dpb_module **module, char *why, size_t why_bytes);
/* Would the module of `library` open, whoever started this process? As above. */
dpb_status dpb_module_check_mpi(enum dpb_mpi_library library, char *why, size_t why_bytes);

/* Probes for the tables that stand for the module's parts in a registry (dpb_registry.h): of the
 * module, then of the device, then of the part. */
dpb_status dpb_module_probe_device(char *why, size_t why_bytes);
dpb_status dpb_module_probe_comm(char *why, size_t why_bytes);
dpb_status dpb_module_probe_recorder(char *why, size_t why_bytes);
dpb_status dpb_module_probe_meter(char *why, size_t why_bytes);
dpb_status dpb_module_probe_mpi(char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
