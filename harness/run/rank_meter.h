/* rank_meter.h (private): what one rank's device takes and how it is held back during timed steps.
 * A rank without a meter trains all the same, and says why it has none. */
#ifndef DPB_RANK_METER_H
#define DPB_RANK_METER_H

#include <stdbool.h>

#include "dpb_json.h"
#include "dpb_meter.h"
#include "dpb_registry.h"

struct rank_meter {
    const struct dpb_meter_ops *ops;
    dpb_meter *meter; /* NULL: none, because of `why` */
    struct dpb_meter_span span;
    bool begun;
    char why[512];
};

/* The meter that suits the device: an accelerator's own, else that of the machine, which its first
 * rank reads. `description` is the device's, with "pci_bus_id" for accelerators. */
void rank_meter_open(struct rank_meter *m, const struct dpb_registry *registry, bool accelerator,
                     const dpb_json *description, int local_rank);
void rank_meter_close(struct rank_meter *m);

/* Around the timed steps, and between two of them: at most twice a second, and only what is cheap.
 */
void rank_meter_begin(struct rank_meter *m);
void rank_meter_between(struct rank_meter *m);
void rank_meter_end(struct rank_meter *m);

/* dpb_meter_span_json() with "meter", its name; or {"meter": null, "meter_reason"}. Caller owns. */
dpb_json *rank_meter_json(const struct rank_meter *m);

/* The record's "energy", of the ranks' values of rank_meter_json(): {"meter", "scope": "device" or
 * "machine", "energy_mj", "energy_per_step_mj", "energy_per_sample_j", "throttled", "ranks"}. A sum
 * that lacks a rank's part is null. `steps` and `samples` are those of the timed steps, all ranks
 * together. NULL when no rank has a meter; the reason is then in `why`. Caller owns. */
dpb_json *rank_meters_energy(const dpb_json *const *ranks, int count, int64_t steps,
                             int64_t samples, char *why, size_t why_bytes);

#endif
