/* gate_json.c: a gate's report with every number. */
#include "dpb_gate_compare.h"

#include <math.h>

/* A number that does not exist is null with a reason. */
static void set_number(dpb_json *object, const char *key, double value)
{
    if (isfinite(value))
        dpb_json_set_real(object, key, value);
    else
        dpb_json_set_absent(object, key, "not decided by statistics");
}

static dpb_json *finding_json(const struct dpb_gate_finding *finding)
{
    const struct dpb_gate_result *result = &finding->result;
    const struct dpb_gate_metric *metric = finding->metric;
    const struct {
        const char *key;
        double value;
    } numbers[] = {
            {"baseline", finding->base},
            {"candidate", finding->candidate},
            {"margin", finding->margin},
            {"difference", result->difference},
            {"ratio", result->ratio},
            {"se", result->se},
            {"df", result->df},
            {"low", result->low},
            {"high", result->high},
            {"p_worse", result->p_worse},
            {"p_fine", result->p_fine},
            {"p_permutation", result->p_permutation},
            {"p_adjusted", finding->p_adjusted},
            {"mde", result->mde},
            {"drift_p", finding->drift_p},
    };
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "cell", finding->cell);
    dpb_json_set_string(json, "metric", metric ? metric->name : NULL);
    dpb_json_set_string(json, "unit", metric ? metric->unit : NULL);
    dpb_json_set_string(json, "verdict", dpb_verdict_text(result->verdict));
    dpb_json_set_string(json, "reason", result->reason[0] ? result->reason : NULL);
    dpb_json_set_bool(json, "gating", finding->is_gating);
    dpb_json_set_bool(json, "improved", finding->is_improved);
    dpb_json_set_bool(json, "doubtful", finding->is_doubtful);
    if (metric) {
        dpb_json_set_bool(json, "higher_is_better", metric->higher_is_better);
        dpb_json_set_string(json, "scale",
                            metric->scale == DPB_GATE_EXACT ? "exact"
                            : finding->is_absolute          ? "absolute"
                                                            : "logarithm");
        dpb_json_set_string(json, "order", dpb_gate_order_text(finding->order));
    }
    dpb_json_set_int(json, "baseline_runs", (int64_t)finding->base_runs);
    dpb_json_set_int(json, "candidate_runs", (int64_t)finding->candidate_runs);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        set_number(json, numbers[i].key, numbers[i].value);
    return json;
}

dpb_json *dpb_gate_report_json(const struct dpb_gate_report *report)
{
    dpb_json *json = dpb_json_object(), *counts = dpb_json_object(), *findings = dpb_json_array();

    dpb_json_set_string(json, "schema", "dpb.gate/1");
    dpb_json_set_string(json, "verdict", dpb_verdict_text(report->verdict));
    dpb_json_set_string(json, "baseline", report->baseline);
    dpb_json_set_string(json, "candidate", report->candidate);
    dpb_json_set_real(json, "alpha", report->alpha);
    dpb_json_set_int(json, "looks", report->looks);
    dpb_json_set_int(json, "family", (int64_t)report->family);
    for (int v = 0; v < DPB_VERDICT_COUNT; v++)
        dpb_json_set_int(counts, dpb_verdict_text(v), (int64_t)report->counts[v]);
    dpb_json_set(json, "counts", counts);
    dpb_json_set(json, "allowed_differences", dpb_json_copy(report->waived));
    dpb_json_set(json, "notes", dpb_json_copy(report->notes));
    for (size_t i = 0; i < report->finding_count; i++)
        dpb_json_append(findings, finding_json(&report->findings[i]));
    dpb_json_set(json, "findings", findings);
    return json;
}
