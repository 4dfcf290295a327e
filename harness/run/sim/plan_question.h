/* plan_question.h (private): a plan's question, checked: what to train, on what, until when. */
#ifndef PLAN_QUESTION_H
#define PLAN_QUESTION_H

#include "dpb_capacity_plan.h"
#include "dpb_machine.h"
#include "dpb_machine_model.h"
#include "dpb_plan.h"
#include "plan_options.h"

struct plan_machine {
    struct dpb_machine machine;
    struct dpb_machine_model model;
    double price;                          /* of an accelerator and hour; NaN: none is known */
    const char *price_date, *price_source; /* borrowed; NULL: not given */
    double throughput;                     /* measured, of one accelerator; NaN: the roofline's */
    double mtbf_s;                         /* of a node; NaN: not known */
    double power_w;                        /* NaN: not known */
};

struct plan_question {
    const struct dpb_registry *registry;
    struct dpb_settings settings; /* file and flags; what machines and texts borrow from */
    dpb_config *config;
    const struct plan_options *options;
    double target[DPB_TARGET_COUNT];
    struct plan_machine *machines;
    int machine_count;
    const char *name;
    /* ranks, strategies, buckets, ... for each machine */
    struct dpb_plan *plans; /* one per strategy, what the cells belong to */
    size_t plan_count;
    const dpb_config **cells;
    size_t cell_count;
    const struct dpb_workload_ops *workload;
    const struct dpb_model *model;
    int64_t largest_batch; /* per accelerator, of all cells: that of the accelerator alone */
    dpb_json *warnings;    /* array of texts */
};

/* Logged; released by plan_question_release(), after a failure too. */
dpb_status plan_question_make(const struct dpb_capacity_input *input,
                              struct plan_question *question);
void plan_question_release(struct plan_question *question);

void plan_warn(const struct plan_question *question, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Does the option vary between cells, and has no column of its own in a plan's report? */
bool plan_option_is_told(const struct dpb_setting *setting);

/* The question as a report repeats it. Caller owns. */
dpb_json *plan_question_json(const struct plan_question *question);
/* Every figure that went in: of machines, their curves, prices, of what was assumed. Caller owns.
 */
dpb_json *plan_provenance_json(const struct plan_question *question);

#endif
