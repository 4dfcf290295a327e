/* calibrate_items.h: records of steps, and what is estimated from them. */
#ifndef CALIBRATE_ITEMS_H
#define CALIBRATE_ITEMS_H

#include "calibrate_private.h"
#include "dpb_experiment.h"
#include "dpb_link_model.h"
#include "dpb_machine_model.h"
#include "dpb_schedule.h"
#include "dpb_sim_step.h"

/* One record that counts. */
struct calibrate_item {
    const dpb_json *record;
    const dpb_config *config;
    const struct dpb_experiment *e;
    const struct dpb_model *model;
    const char *run;
    size_t cell;                         /* equal for repeats of one cell of one run */
    double step_ns, compute_ns, data_ns; /* compute: both passes of a micro-batch */
    bool emulated;
};

struct calibrate_items {
    struct calibrate_item *items;
    size_t count, cells;
};

double calibrate_real_at(const dpb_json *record, const char *path);      /* NAN: it is not there */
const char *calibrate_text_at(const dpb_json *record, const char *path); /* "" */
/* The steps' samples; caller frees. NULL without memory. */
double *calibrate_samples(const dpb_json *record, size_t *count);

/* ---- estimates: calibrate_estimate.c ---- */

#define CALIBRATE_ALL_CELLS SIZE_MAX

/* What cells say; NAN: nothing does. */
struct calibrate_estimate {
    double flop_per_s, bytes_per_s;
    double compute_ns; /* of the cell that is asked about: what others of its kind took */
    double data_ns;
    double rank_sd, common_sd;
    bool is_split; /* noise: into the two */
    double slow_inside, slow_collective;
    size_t rate_cells, noise_cells, pairs, collective_pairs;
};

/* Rates and contention, from all cells but `without`. */
dpb_status calibrate_estimate_all(const struct calibrating *c, const struct calibrate_items *items,
                                  size_t without, struct calibrate_estimate *estimate);
/* Noise, from all cells. */
void calibrate_estimate_noise(const struct calibrate_items *items,
                              struct calibrate_estimate *estimate);
/* The passes of other cells that compute the same as `asked`. */
dpb_status calibrate_estimate_passes(const struct calibrate_items *items,
                                     const struct calibrate_item *asked,
                                     struct calibrate_estimate *estimate);

/* ---- cells on virtual time: calibrate_steps.c ---- */

/* The network of a cell: this machine's, or the link that it emulated. */
struct calibrate_network {
    struct dpb_model_network ours; /* without a network: nothing takes time */
    struct dpb_algorithm_setup setup;
    bool is_emulated;
};

/* The times of a step of the cell, with its own strategy, ranks and optimizer. */
dpb_status calibrate_simulate(const struct calibrating *c, const struct calibrate_item *item,
                              struct calibrate_network *network, const struct dpb_sim_rates *rates,
                              const struct dpb_schedule *schedule,
                              struct dpb_sim_step_times *times);

#endif
