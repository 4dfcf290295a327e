/* dpb_simulator.h: what runs the cells of a device with virtual time, in this process and without
 * ranks: harness/run/sim. The driver finds it in the registry. */
#ifndef DPB_SIMULATOR_H
#define DPB_SIMULATOR_H

#include <signal.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_registry;

/* One cell and repeat. */
struct dpb_simulation {
    const struct dpb_registry *registry;
    const dpb_config *config; /* resolved */
    const char *folder;       /* the run's */
    const char *trace_file;   /* for the traced steps, in that folder: "traces/..." */
    const char *title;
    int64_t repeat;                           /* noise differs between repeats */
    const volatile sig_atomic_t *interrupted; /* may be NULL */
    void (*tick)(void *ctx, int64_t step);    /* after every step; may be NULL */
    void *tick_ctx;
};

struct dpb_simulator {
    /* Decide what a real machine would (ranks of a node, threads), and refuse what cannot be
     * simulated: an unknown machine or figure, ranks that do not fit its nodes. DPB_ERR_USAGE,
     * logged. */
    dpb_status (*resolve)(const struct dpb_registry *registry, dpb_config *config);
    /* Memory of an accelerator for the cell; INT64_MAX where the machine does not tell. */
    dpb_status (*memory_bytes)(const dpb_config *config, int64_t *bytes);
    /* The sections of a record (dpb_record.h), as an object: device, comm, samples_step_ns,
     * rank_median_step_ns, phases, overlap, communication, throughput, energy, plan, trace,
     * simulation, warnings. Caller owns. */
    dpb_status (*run)(const struct dpb_simulation *simulation, dpb_json **sections);
};

#ifdef __cplusplus
}
#endif
#endif
