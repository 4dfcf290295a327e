/* plan_run.h (private): a plan while it is made. */
#ifndef PLAN_RUN_H
#define PLAN_RUN_H

#include "dpb_str.h"
#include "plan_cells.h"

/* A configuration on a machine, as undisturbed steps show it. */
struct plan_found {
    bool is_there; /* its accelerators are whole nodes of the machine */
    double quiet_ns;
    struct plan_memory memory;
};

struct plan_run {
    struct plan_question question;
    struct plan_schedules *schedules; /* [machines] */
    double *alone_ns;                 /* [machines] a step of one accelerator, largest batch */
    struct plan_found *found;         /* [machines * cells] */
    struct dpb_capacity_option *options;
    int *cell_of;                    /* [options] the cell that was chosen */
    double *quiet_ns;                /* [options] its undisturbed step */
    char **bucket_of, **settings_of; /* [options] owned */
    int option_count;
    double checkpoint_s;
    struct dpb_capacity_answer answer;
};

static inline const dpb_config *plan_config(const struct plan_run *run, int cell)
{
    return run->question.cells[cell];
}

/* A simulation of a cell, of undisturbed steps on the machine's own network. */
struct plan_simulation plan_simulation_of(const struct plan_run *run, int machine, int cell);

/* How long training stands still for a checkpoint. */
dpb_status plan_checkpoint_s(const struct plan_run *run, double *seconds);

/* Samples per second and efficiency of option->step_ns, against accelerators that work alone. */
void plan_rates(const struct plan_run *run, struct dpb_capacity_option *option);
/* Steps, time, losses, cost and energy of a training whose step takes option->step_ns. */
void plan_economy(const struct plan_run *run, struct dpb_capacity_option *option);

/* Does the answer change when a figure is 20 % off? Array; caller owns. */
dpb_status plan_sensitivity(struct plan_run *run, dpb_json **list);

/* "64 x dgx-a100". */
void plan_option_name(const struct dpb_capacity_option *option, struct dpb_str *out);
/* The answer in words and numbers; what else to warn of. Caller owns. */
dpb_status plan_answer_json(struct plan_run *run, dpb_json **answer);
void plan_warn_of_options(const struct plan_run *run);

/* Simulated steps that make a mean, an interval and a percentile for so many ranks. */
int64_t plan_noisy_steps(int ranks);

#endif
