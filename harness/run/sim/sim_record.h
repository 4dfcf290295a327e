/* sim_record.h (private): what was simulated, as sections of a record. */
#ifndef SIM_RECORD_H
#define SIM_RECORD_H

#include "dpb_event.h"
#include "dpb_sim_step.h"
#include "sim_cell.h"
#include "sim_figures.h"

struct sim_run {
    const struct dpb_simulation *simulation;
    struct sim_cell cell;
    struct dpb_model_network network;
    struct sim_asked asked;
    dpb_recorder *recorder;
    dpb_sim_step *sim;
    int64_t steps_done;
    struct dpb_sim_step_times *timed; /* of the timed steps */
    size_t timed_count;
    const struct dpb_event *events; /* of the traced ones, the watched rank's; the recorder's */
    size_t event_count;
    uint64_t lost;
};

/* As dpb_simulator.run says; writes the trace. */
dpb_status sim_record(struct sim_run *run, dpb_json **sections);

#endif
