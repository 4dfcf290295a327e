/* gate_markdown.c: a gate's report as a comment on a pull request, within its size. */
#include <string.h>

#include "gate_view.h"
#include "view.h"

#define TAIL_BYTES 256 /* for the line that counts what was left out */

/* Text that shows as it is within a table of GitHub. */
static void append_escaped(struct dpb_str *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            dpb_str_append(out, " ");
        else if (*p == '&' || *p == '<' || *p == '>')
            dpb_str_append(out, *p == '&' ? "&amp;" : *p == '<' ? "&lt;" : "&gt;");
        else if (strchr("\\`*[]|~#@_", *p))
            dpb_str_appendf(out, "\\%c", *p);
        else
            dpb_str_append_bytes(out, p, 1);
    }
}

static void append_cell(struct dpb_str *out, const char *text)
{
    dpb_str_append(out, "| ");
    append_escaped(out, text[0] ? text : DPB_VIEW_ABSENT);
    dpb_str_append(out, " ");
}

static void append_finding(struct dpb_str *out, const struct dpb_gate_finding *finding)
{
    struct gate_view_finding v;

    gate_view_finding(finding, &v);
    const char *const cells[] = {gate_view_verdict(finding),
                                 finding->cell,
                                 v.metric,
                                 v.baseline,
                                 v.candidate,
                                 v.change,
                                 v.interval,
                                 v.margin,
                                 v.p,
                                 v.mde,
                                 v.runs,
                                 finding->result.reason};
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        append_cell(out, cells[i]);
    dpb_str_append(out, "|\n");
}

static void append_evidence(struct dpb_str *out, const struct dpb_evidence *evidence)
{
    char found[GATE_VIEW_BYTES], bounds[GATE_VIEW_BYTES];
    struct dpb_str records = {0};

    dpb_gate_value_text(evidence->found, evidence->target->unit, found);
    gate_view_bounds(evidence, bounds);
    for (size_t i = 0; i < evidence->runs && i < 10; i++)
        dpb_str_appendf(&records, "%s%.12s", i > 0 ? " " : "", evidence->hashes[i]);
    if (evidence->runs > 10)
        dpb_str_appendf(&records, " and %zu more", evidence->runs - 10);
    const char *const cells[] = {dpb_verdict_text(evidence->verdict),
                                 evidence->target->name,
                                 evidence->target->text,
                                 evidence->cell,
                                 found,
                                 bounds,
                                 evidence->how,
                                 records.text ? records.text : "",
                                 evidence->reason};
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        append_cell(out, cells[i]);
    dpb_str_append(out, "|\n");
    dpb_str_release(&records);
}

static void append_list(struct dpb_str *out, const dpb_json *list, const char *head, size_t most)
{
    size_t omitted = 0;

    for (size_t i = 0; i < dpb_json_size(list); i++) {
        struct dpb_str line = {0};

        dpb_str_appendf(&line, "- %s", head);
        append_escaped(&line, dpb_json_as_string(dpb_json_at(list, i), ""));
        dpb_str_append(&line, "\n");
        if (out->length + line.length < most)
            dpb_str_append(out, line.text ? line.text : "");
        else
            omitted++;
        out->failed |= line.failed;
        dpb_str_release(&line);
    }
    if (omitted > 0)
        dpb_str_appendf(out, "- %zu more\n", omitted);
}

/* Append `row` if it fits; count it if not. */
static void add_row(struct dpb_str *out, struct dpb_str *row, size_t most, size_t *omitted)
{
    out->failed |= row->failed;
    if (*omitted == 0 && row->text && out->length + row->length <= most)
        dpb_str_append(out, row->text);
    else
        (*omitted)++;
    dpb_str_release(row);
}

static void append_findings(struct dpb_str *out, const struct dpb_gate_report *report, size_t most)
{
    size_t omitted = 0;

    dpb_str_append(out, "| verdict | cell | metric | baseline | candidate | change | interval "
                        "| margin | p | MDE | runs | reason |\n"
                        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
    for (size_t i = 0; i < report->finding_count; i++) {
        struct dpb_str row = {0};

        append_finding(&row, &report->findings[i]);
        add_row(out, &row, most, &omitted);
    }
    if (omitted > 0)
        dpb_str_appendf(out, "\n%zu rows are left out, the best ones.\n", omitted);
}

static void append_targets(struct dpb_str *out, const struct dpb_evidence_table *table, size_t most)
{
    size_t omitted = 0;

    dpb_str_append(out,
                   "\n### Targets\n\n| verdict | target | limit | cell | found | interval | how "
                   "| records (SHA-256) | reason |\n"
                   "|---|---|---|---|--:|--:|---|---|---|\n");
    for (size_t i = 0; i < table->count; i++) {
        struct dpb_str row = {0};

        append_evidence(&row, &table->items[i]);
        add_row(out, &row, most, &omitted);
    }
    if (omitted > 0)
        dpb_str_appendf(out, "\n%zu rows are left out, the best ones.\n", omitted);
    if (gate_view_has_efficiency(table))
        dpb_str_append(out, "\n" GATE_VIEW_EFFICIENCY "\n");
}

static void append_counts(struct dpb_str *out, const struct dpb_gate_report *report)
{
    for (int v = 0; v < DPB_VERDICT_COUNT; v++)
        dpb_str_appendf(out, "%s%zu %s", v > 0 ? ", " : "", report->counts[v],
                        dpb_verdict_text((enum dpb_verdict)v));
    dpb_str_appendf(out, ". Family of %zu, Holm at alpha %.4g.\n\n", report->family, report->alpha);
}

dpb_status dpb_gate_markdown(const struct dpb_gate_outcome *outcome, size_t most_bytes,
                             struct dpb_str *out)
{
    const struct dpb_gate_report *report = outcome->report;
    /* targets first: they are few, and were set by people */
    const size_t most = most_bytes > 4 * TAIL_BYTES ? most_bytes - 2 * TAIL_BYTES : 0;

    if (most == 0)
        return DPB_ERR_USAGE;
    dpb_str_appendf(out, "## Performance gate: %s\n\n", dpb_verdict_text(outcome->verdict));
    if (report)
        append_counts(out, report);
    if (outcome->evidence)
        append_targets(out, outcome->evidence, report ? most / 2 : most);
    if (report) {
        if (outcome->evidence)
            dpb_str_append(out, "\n### Against the baseline\n\n");
        append_list(out, report->waived, "allowed to differ: ", most / 4 * 3);
        append_list(out, report->notes, "", most / 4 * 3);
        dpb_str_append(out, "\n");
        append_findings(out, report, most);
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}
