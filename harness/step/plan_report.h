/* plan_report.h (private): a plan as JSON, for the step engine and for simulated steps. */
#ifndef DPB_PLAN_REPORT_H
#define DPB_PLAN_REPORT_H

#include <stdbool.h>

#include "dpb_json.h"
#include "dpb_strategy.h"

/* {"units": [{"bytes", "members": [names]}], "rebuilt"} and what the strategy says besides. Caller
 * owns. */
dpb_json *plan_report(const struct dpb_model *model, const struct dpb_unit_plan *plan, bool rebuilt,
                      const struct dpb_strategy_ops *ops, dpb_strategy *strategy);

#endif
