/* gate_text.c: a gate's report on a terminal. */
#include <math.h>
#include <stdlib.h>

#include "dpb_text_table.h"
#include "gate_view.h"
#include "view.h"

static const struct dpb_text_column finding_columns[] = {
        {"verdict", DPB_TEXT_WORD},     {"metric", DPB_TEXT_WORD},   {"baseline", DPB_TEXT_NUMBER},
        {"candidate", DPB_TEXT_NUMBER}, {"change", DPB_TEXT_NUMBER}, {"interval", DPB_TEXT_NUMBER},
        {"margin", DPB_TEXT_NUMBER},    {"p", DPB_TEXT_NUMBER},      {"MDE", DPB_TEXT_NUMBER},
        {"runs", DPB_TEXT_NUMBER},      {"cell", DPB_TEXT_LONG},
};
#define FINDING_COLUMNS (sizeof(finding_columns) / sizeof(finding_columns[0]))

static const char *or_absent(const char *text)
{
    return text[0] ? text : DPB_VIEW_ABSENT;
}

static dpb_status print_findings(const struct dpb_gate_report *report, FILE *out, int width)
{
    const size_t count = report->finding_count;
    struct gate_view_finding *views = calloc(count + 1, sizeof(*views));
    const char **cells = calloc(count * FINDING_COLUMNS + 1, sizeof(*cells));
    dpb_status st = views && cells ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t i = 0; st == DPB_OK && i < count; i++) {
        struct gate_view_finding *v = &views[i];

        gate_view_finding(&report->findings[i], v);
        const char *row[] = {gate_view_verdict(&report->findings[i]),
                             v->metric,
                             or_absent(v->baseline),
                             or_absent(v->candidate),
                             or_absent(v->change),
                             or_absent(v->interval),
                             or_absent(v->margin),
                             or_absent(v->p),
                             or_absent(v->mde),
                             or_absent(v->runs),
                             report->findings[i].cell};
        for (size_t c = 0; c < FINDING_COLUMNS; c++)
            cells[i * FINDING_COLUMNS + c] = row[c];
    }
    if (st == DPB_OK)
        st = dpb_text_table_print(finding_columns, FINDING_COLUMNS, cells, count, out, width);
    free(cells);
    free(views);
    return st;
}

/* Why those that are neither PASS nor FAIL are what they are; each reason once. */
#define REASONS_MOST 20

static void print_reasons(const struct dpb_gate_report *report, FILE *out)
{
    size_t told = 0, more = 0;

    for (size_t i = 0; i < report->finding_count; i++) {
        const struct dpb_gate_finding *finding = &report->findings[i];

        if (!finding->result.reason[0])
            continue;
        if (told++ < REASONS_MOST)
            fprintf(out, "  %s, %s: %s: %s\n", finding->cell,
                    finding->metric ? finding->metric->name : "the cell",
                    gate_view_verdict(finding), finding->result.reason);
        else
            more++;
    }
    if (more > 0)
        fprintf(out, "  and %zu more\n", more);
}

static void print_list(const dpb_json *list, const char *head, FILE *out)
{
    for (size_t i = 0; i < dpb_json_size(list); i++)
        fprintf(out, "%s%s\n", head, dpb_json_as_string(dpb_json_at(list, i), ""));
}

static const struct dpb_gate_finding *first_with(const struct dpb_gate_report *report, bool drift)
{
    for (size_t i = 0; i < report->finding_count; i++)
        if (report->findings[i].metric && (!drift || isfinite(report->findings[i].drift_p)))
            return &report->findings[i];
    return NULL;
}

static double least_drift(const struct dpb_gate_report *report)
{
    double least = NAN;

    for (size_t i = 0; i < report->finding_count; i++)
        least = fmin(least, report->findings[i].drift_p); /* fmin() leaves NaN out */
    return least;
}

static void print_method(const struct dpb_gate_report *report, FILE *out)
{
    const struct dpb_gate_finding *first = first_with(report, false);

    fprintf(out,
            "family of %zu, Holm at alpha %.4g: a healthy build fails in at most %.3g %% of "
            "gates; intervals have %.4g %%; MDE is beyond the margin, with power 0.8\n",
            report->family, report->alpha, 100 * report->alpha, 100 - 200 * report->alpha);
    if (first)
        fprintf(out, "order: %s", dpb_gate_order_text(first->order));
    if (first_with(report, true))
        fprintf(out, "; least drift p of a metric %.2g", least_drift(report));
    if (first)
        fputc('\n', out);
}

static const struct dpb_text_column evidence_columns[] = {
        {"verdict", DPB_TEXT_WORD}, {"target", DPB_TEXT_WORD},     {"limit", DPB_TEXT_WORD},
        {"found", DPB_TEXT_NUMBER}, {"interval", DPB_TEXT_NUMBER}, {"how", DPB_TEXT_WORD},
        {"records", DPB_TEXT_WORD}, {"cell", DPB_TEXT_LONG},
};
#define EVIDENCE_COLUMNS (sizeof(evidence_columns) / sizeof(evidence_columns[0]))

struct evidence_texts {
    char found[GATE_VIEW_BYTES], bounds[GATE_VIEW_BYTES], records[GATE_VIEW_BYTES];
};

static dpb_status print_evidence(const struct dpb_evidence_table *table, FILE *out, int width)
{
    struct evidence_texts *texts = calloc(table->count + 1, sizeof(*texts));
    const char **cells = calloc(table->count * EVIDENCE_COLUMNS + 1, sizeof(*cells));
    dpb_status st = texts && cells ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t i = 0; st == DPB_OK && i < table->count; i++) {
        const struct dpb_evidence *evidence = &table->items[i];
        struct evidence_texts *t = &texts[i];

        dpb_gate_value_text(evidence->found, evidence->target->unit, t->found);
        gate_view_bounds(evidence, t->bounds);
        if (evidence->runs > 0)
            snprintf(t->records, sizeof(t->records), "%.8s%s", evidence->hashes[0],
                     evidence->runs > 1 ? ",..." : "");
        const char *row[] = {dpb_verdict_text(evidence->verdict),
                             evidence->target->name,
                             evidence->target->text,
                             t->found,
                             t->bounds,
                             or_absent(evidence->how),
                             or_absent(t->records),
                             evidence->cell};
        for (size_t c = 0; c < EVIDENCE_COLUMNS; c++)
            cells[i * EVIDENCE_COLUMNS + c] = row[c];
    }
    if (st == DPB_OK)
        st = dpb_text_table_print(evidence_columns, EVIDENCE_COLUMNS, cells, table->count, out,
                                  width);
    for (size_t i = 0; st == DPB_OK && i < table->count; i++)
        if (table->items[i].reason[0])
            fprintf(out, "  %s, %s: %s: %s\n", table->items[i].cell, table->items[i].target->name,
                    dpb_verdict_text(table->items[i].verdict), table->items[i].reason);
    free(cells);
    free(texts);
    return st;
}

dpb_status dpb_gate_print(const struct dpb_gate_outcome *outcome, FILE *out, int width)
{
    const struct dpb_gate_report *report = outcome->report;

    if (report) {
        fprintf(out, "%s against %s\n", report->candidate, report->baseline);
        DPB_TRY(print_findings(report, out, width));
        print_reasons(report, out);
        print_method(report, out);
        print_list(report->waived, "allowed to differ: ", out);
        print_list(report->notes, "note: ", out);
    }
    if (outcome->evidence) {
        fprintf(out, "%stargets\n", report ? "\n" : "");
        DPB_TRY(print_evidence(outcome->evidence, out, width));
        if (gate_view_has_efficiency(outcome->evidence))
            fprintf(out, "%s\n", GATE_VIEW_EFFICIENCY);
    }
    fprintf(out, "%s\n", dpb_verdict_text(outcome->verdict));
    return DPB_OK;
}
