/* plan_view.h (private): numbers of a plan as texts, the same in tables and plots. */
#ifndef PLAN_VIEW_H
#define PLAN_VIEW_H

#include "document.h"
#include "dpb_json.h"
#include "plot.h"

/* "days", "hours" or "minutes", whichever suits the plan's training times, and its seconds. */
struct plan_unit {
    const char *name;
    double seconds;
};
struct plan_unit plan_time_unit(const dpb_json *plan);

/* NaN where the value is absent. */
double plan_number(const dpb_json *object, const char *key);
const char *plan_text(const dpb_json *object, const char *key);
/* Appends "horovod compression=fp16" of an option: its strategy, bucket and what else varies. */
void plan_strategy_name(const dpb_json *option, struct dpb_str *out);

void plan_content_build(const dpb_json *plan, const struct dpb_plot_list *plots,
                        struct dpb_document *document);
/* Time and cost against accelerators, Pareto front, where a step's time goes. */
void plan_plots_build(const dpb_json *plan, struct dpb_plot_list *list);

#endif
