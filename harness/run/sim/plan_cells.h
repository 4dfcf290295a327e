/* plan_cells.h (private): what one configuration takes on a number of a machine's accelerators:
 * time of simulated steps, and memory. */
#ifndef PLAN_CELLS_H
#define PLAN_CELLS_H

#include "dpb_capacity.h"
#include "dpb_capacity_plan.h"
#include "plan_question.h"

/* ---- time ---- */

/* Schedules of a machine, one for each batch per accelerator that was asked for. */
struct plan_schedules {
    const struct plan_question *question;
    const struct plan_machine *machine;
    double factor; /* of the roofline's times, so that a measured throughput is met; 1: none was */
    struct dpb_schedule *items;
    int count;
};

/* The result belongs to `schedules`, and stays until the next call. */
dpb_status plan_schedule_get(struct plan_schedules *schedules, int64_t batch,
                             const struct dpb_schedule **schedule);
void plan_schedules_release(struct plan_schedules *schedules);

/* What the network is taken to be: its own, or changed. */
struct plan_network_change {
    double bandwidth, latency; /* times those of the machine */
    bool is_free;              /* no collective takes any time */
};

struct plan_simulation {
    struct plan_schedules *schedules;
    const dpb_config *config;
    const struct dpb_strategy_ops *strategy;
    const void *strategy_options;
    int ranks;
    struct plan_network_change network;
    struct dpb_timeline_noise noise;
    int64_t steps; /* measured; 0: one period of the strategy */
};

#define PLAN_STEPS_MAX 256 /* those of plan_noisy_steps() and the longest period */

struct plan_times {
    double step_ns[PLAN_STEPS_MAX];
    int64_t count;
    double mean_ns;
    double origin_ns[4]; /* network times by enum dpb_network_origin */
    /* the largest factors, at least 1: beyond what was measured, below the smallest size of it */
    double extrapolated_by, extrapolated_below;
};

/* The two steps in which plans settle are not measured. */
dpb_status plan_simulate(const struct plan_simulation *simulation, struct plan_times *times);

/* ---- memory ---- */

struct plan_memory {
    double held_bytes, per_sample_bytes; /* straight in the batch */
    struct dpb_memory_fit fit;           /* at the batch that is asked about */
};

/* Parameters, gradients, optimizer and buffers as the strategy predicts them for its first and its
 * last rank, activations as the workload does. `strategy`: another one than the cell's, with its
 * defaults; NULL: the cell's. */
dpb_status plan_memory_of(const struct plan_question *question, const struct plan_machine *machine,
                          const dpb_config *config, const char *strategy,
                          struct plan_memory *memory);

/* Accelerators of a node that `ranks` of them use, and the nodes. */
int plan_ranks_per_node(const struct plan_machine *machine, int ranks);
int plan_nodes(const struct plan_machine *machine, int ranks);

#endif
