#include "gate_view.h"

#include <math.h>
#include <string.h>

#include "dpb_units.h"
#include "view.h"

void dpb_gate_value_text(double value, const char *unit, char text[GATE_VIEW_BYTES])
{
    if (!isfinite(value))
        snprintf(text, GATE_VIEW_BYTES, "%s", DPB_VIEW_ABSENT);
    else if (strcmp(unit, "ns") == 0)
        dpb_human_duration(value, 4, text, GATE_VIEW_BYTES);
    else if (strcmp(unit, "bytes") == 0 && fabs(value) >= 1e6)
        dpb_human_size(value, 4, text, GATE_VIEW_BYTES);
    else if (strcmp(unit, "B/s") == 0)
        dpb_human_rate(value, 4, text, GATE_VIEW_BYTES);
    else if (value == floor(value) && fabs(value) < 1e12)
        snprintf(text, GATE_VIEW_BYTES, "%.0f%s%.20s", value, unit[0] ? " " : "", unit);
    else
        snprintf(text, GATE_VIEW_BYTES, fabs(value) < 1000 ? "%.4g%s%.20s" : "%.0f%s%.20s", value,
                 unit[0] ? " " : "", unit);
}

static void change_text(const struct dpb_gate_finding *finding, double difference,
                        char text[GATE_VIEW_BYTES])
{
    char value[GATE_VIEW_BYTES];

    if (!isfinite(difference)) {
        snprintf(text, GATE_VIEW_BYTES, "%s", DPB_VIEW_ABSENT);
    } else if (finding->is_absolute || finding->metric->scale == DPB_GATE_EXACT) {
        dpb_gate_value_text(fabs(difference), finding->metric->unit, value);
        snprintf(text, GATE_VIEW_BYTES, "%c%.60s", difference < 0 ? '-' : '+', value);
    } else {
        snprintf(text, GATE_VIEW_BYTES, "%+.2f %%", 100 * expm1(difference));
    }
}

static void margin_text(const struct dpb_gate_finding *finding, char text[GATE_VIEW_BYTES])
{
    if (finding->is_absolute || finding->metric->scale == DPB_GATE_EXACT)
        dpb_gate_value_text(finding->margin, finding->metric->unit, text);
    else
        snprintf(text, GATE_VIEW_BYTES, "%.3g %%", 100 * finding->margin);
}

static void p_text(double p, char text[GATE_VIEW_BYTES])
{
    if (!isfinite(p))
        snprintf(text, GATE_VIEW_BYTES, "%s", DPB_VIEW_ABSENT);
    else if (p < 1e-15)
        snprintf(text, GATE_VIEW_BYTES, "<1e-15");
    else
        snprintf(text, GATE_VIEW_BYTES, "%.2g", p);
}

void gate_view_finding(const struct dpb_gate_finding *finding, struct gate_view_finding *view)
{
    const struct dpb_gate_result *result = &finding->result;
    const struct dpb_gate_metric *metric = finding->metric;
    char low[GATE_VIEW_BYTES], high[GATE_VIEW_BYTES];

    *view = (struct gate_view_finding){.metric = "(cell)"};
    if (!metric)
        return;
    /* differences are of "worse": turned round for metrics of which more is better */
    const double sign = metric->higher_is_better ? -1 : 1;
    view->metric = metric->name;
    dpb_gate_value_text(finding->base, metric->unit, view->baseline);
    dpb_gate_value_text(finding->candidate, metric->unit, view->candidate);
    change_text(finding, sign * result->difference, view->change);
    change_text(finding, sign > 0 ? result->low : -result->high, low);
    change_text(finding, sign > 0 ? result->high : -result->low, high);
    snprintf(view->interval, GATE_VIEW_BYTES,
             isfinite(result->low) ? "[%.28s, %.28s]" : DPB_VIEW_ABSENT, low, high);
    margin_text(finding, view->margin);
    p_text(finding->p_adjusted, view->p);
    if (isfinite(result->mde) && !finding->is_absolute)
        snprintf(view->mde, GATE_VIEW_BYTES, "%.2f %%", 100 * result->mde);
    else
        dpb_gate_value_text(result->mde, metric->unit, view->mde);
    snprintf(view->runs, GATE_VIEW_BYTES, "%zu/%zu", finding->base_runs, finding->candidate_runs);
}

void gate_view_bounds(const struct dpb_evidence *evidence, char text[GATE_VIEW_BYTES])
{
    char low[GATE_VIEW_BYTES], high[GATE_VIEW_BYTES];

    dpb_gate_value_text(evidence->low, evidence->target->unit, low);
    dpb_gate_value_text(evidence->high, evidence->target->unit, high);
    if (isfinite(evidence->low))
        snprintf(text, GATE_VIEW_BYTES, "[%.28s, %.28s]", low, high);
    else
        snprintf(text, GATE_VIEW_BYTES, "%s", DPB_VIEW_ABSENT);
}

bool gate_view_has_efficiency(const struct dpb_evidence_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->items[i].target->metric, "efficiency") == 0)
            return true;
    return false;
}

const char *gate_view_verdict(const struct dpb_gate_finding *finding)
{
    static const char *const advisory[] = {
#define ADVISORY(name, text) text " (advisory)",
            DPB_VERDICT_MAP(ADVISORY)
#undef ADVISORY
    };

    return finding->is_gating ? dpb_verdict_text(finding->result.verdict)
                              : advisory[finding->result.verdict];
}
