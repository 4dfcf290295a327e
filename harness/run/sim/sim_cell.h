/* sim_cell.h (private): what a simulated cell is made of: machine, schedule, network. */
#ifndef SIM_CELL_H
#define SIM_CELL_H

#include "dpb_experiment.h"
#include "dpb_machine.h"
#include "dpb_machine_model.h"
#include "dpb_profile.h"
#include "dpb_registry.h"
#include "dpb_schedule.h"
#include "dpb_simulate.h"

struct sim_cell {
    const struct dpb_registry *registry;
    const dpb_config *config;
    const struct dpb_experiment *e;
    const struct dpb_sim_options *o;
    const struct dpb_workload_ops *workload;
    const struct dpb_model *network_model; /* of the workload */
    struct dpb_machine machine;
    bool has_machine;
    struct dpb_machine_model model;
    struct dpb_profile profile;
    bool has_profile;
    struct dpb_schedule schedule;
    double scaled_by; /* a profile's layers to another precision, as the mean factor; 1: not */
};

/* Open everything that the cell's options name. DPB_ERR_USAGE and errors of files, logged. Release
 * also after errors. */
dpb_status sim_cell_open(const struct dpb_registry *registry, const dpb_config *config,
                         struct sim_cell *cell);
void sim_cell_release(struct sim_cell *cell);

/* The machine alone, with --set. Release with dpb_machine_release(). */
dpb_status sim_machine_open(const struct dpb_sim_options *options, struct dpb_machine *machine);
/* The models and the schedule that a machine gives the cell, for sim_cell_open() and for what
 * compares machines. `model` and `schedule` are to be released. */
dpb_status sim_cell_model(const struct sim_cell *cell, const struct dpb_machine *machine,
                          struct dpb_machine_model *model);
dpb_status sim_cell_schedule(struct sim_cell *cell, const struct dpb_machine_model *model,
                             struct dpb_schedule *schedule);

#endif
