/* gate_ci.c: a gate's report for CI systems: JUnit, GitHub's annotations, Prometheus. */
#include <math.h>
#include <string.h>

#include "dpb_units.h"
#include "gate_view.h"

/* What a verdict that gates counts as. */
static enum dpb_verdict counted(const struct dpb_gate_outcome *outcome, enum dpb_verdict verdict)
{
    return verdict == DPB_VERDICT_INCONCLUSIVE && outcome->inconclusive_fails ? DPB_VERDICT_FAIL
                                                                              : verdict;
}

/* ---- JUnit ---- */

/* Length of the UTF-8 character at `text`, 0 when it is none, or one that XML 1.0 cannot hold. */
static size_t xml_character(const unsigned char *text)
{
    const unsigned char c = text[0];
    const size_t length = c < 0x80                ? 1
                          : c >= 0xc2 && c < 0xe0 ? 2
                          : c >= 0xe0 && c < 0xf0 ? 3
                          : c >= 0xf0 && c < 0xf5 ? 4
                                                  : 0;

    if (length == 1)
        return (c >= 0x20 && c != 0x7f) || c == '\t' || c == '\n' || c == '\r' ? 1 : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] >= 0xa0) ||
        (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] >= 0x90))
        return 0; /* overlong, surrogate, beyond U+10FFFF */
    if (c == 0xef && text[1] == 0xbf && text[2] >= 0xbe)
        return 0;
    return length;
}

static void append_xml(struct dpb_str *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        const size_t length = xml_character(p);

        if (length == 0)
            dpb_str_append(out, "\xef\xbf\xbd");
        else if (length > 1)
            dpb_str_append_bytes(out, p, length);
        else if (strchr("&<>\"'\t\n\r", *p))
            dpb_str_appendf(out, "&#%d;", *p);
        else
            dpb_str_append_bytes(out, p, 1);
        p += length > 0 ? length : 1;
    }
}

static const char *element_of(enum dpb_verdict verdict)
{
    switch (verdict) {
    case DPB_VERDICT_FAIL:
        return "failure";
    case DPB_VERDICT_ERROR:
    case DPB_VERDICT_REFUSED:
        return "error";
    case DPB_VERDICT_INCONCLUSIVE:
        return "skipped";
    default:
        return NULL;
    }
}

static void append_case(struct dpb_str *out, const char *cell, const char *name,
                        enum dpb_verdict verdict, const char *message)
{
    const char *element = element_of(verdict);

    dpb_str_append(out, "    <testcase classname=\"");
    append_xml(out, cell);
    dpb_str_append(out, "\" name=\"");
    append_xml(out, name);
    if (!element) {
        dpb_str_append(out, "\"/>\n");
        return;
    }
    dpb_str_appendf(out, "\">\n      <%s message=\"", element);
    append_xml(out, message);
    dpb_str_append(out, "\"/>\n    </testcase>\n");
}

/* "FAIL: 12.3 ms -> 13.6 ms, +10.1 % [+9.2 %, +11.0 %], margin 2 %: reason" */
static void describe(const struct dpb_gate_finding *finding, struct dpb_str *out)
{
    struct gate_view_finding v;

    gate_view_finding(finding, &v);
    dpb_str_append(out, gate_view_verdict(finding));
    if (finding->metric && isfinite(finding->base))
        dpb_str_appendf(out, ": %s -> %s, %s %s, margin %s", v.baseline, v.candidate, v.change,
                        v.interval, v.margin);
    if (finding->result.reason[0])
        dpb_str_appendf(out, ": %s", finding->result.reason);
}

static void describe_evidence(const struct dpb_evidence *evidence, struct dpb_str *out)
{
    char found[GATE_VIEW_BYTES], bounds[GATE_VIEW_BYTES];

    dpb_gate_value_text(evidence->found, evidence->target->unit, found);
    gate_view_bounds(evidence, bounds);
    dpb_str_appendf(out, "%s: %s %s, found %s %s", dpb_verdict_text(evidence->verdict),
                    evidence->target->name, evidence->target->text, found, bounds);
    if (evidence->reason[0])
        dpb_str_appendf(out, ": %s", evidence->reason);
}

struct totals {
    size_t tests, failures, errors, skipped;
};

static void count_case(enum dpb_verdict verdict, struct totals *totals)
{
    totals->tests++;
    totals->failures += verdict == DPB_VERDICT_FAIL;
    totals->errors += verdict == DPB_VERDICT_ERROR || verdict == DPB_VERDICT_REFUSED;
    totals->skipped += verdict == DPB_VERDICT_INCONCLUSIVE;
}

/* Only what gates can fail. */
static enum dpb_verdict shown(const struct dpb_gate_outcome *outcome,
                              const struct dpb_gate_finding *finding)
{
    if (finding->is_gating)
        return counted(outcome, finding->result.verdict);
    return finding->result.verdict == DPB_VERDICT_PASS ? DPB_VERDICT_PASS
                                                       : DPB_VERDICT_INCONCLUSIVE;
}

static void append_suite(struct dpb_str *out, const char *name, const struct totals *totals,
                         const struct dpb_str *cases)
{
    dpb_str_appendf(out,
                    "  <testsuite name=\"%s\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" "
                    "skipped=\"%zu\">\n%s  </testsuite>\n",
                    name, totals->tests, totals->failures, totals->errors, totals->skipped,
                    cases->text ? cases->text : "");
    out->failed |= cases->failed;
}

static void append_findings(struct dpb_str *out, const struct dpb_gate_outcome *outcome)
{
    const struct dpb_gate_report *report = outcome->report;
    struct dpb_str cases = {0};
    struct totals totals = {0};

    for (size_t i = 0; i < report->finding_count; i++) {
        const struct dpb_gate_finding *finding = &report->findings[i];
        struct dpb_str message = {0};

        describe(finding, &message);
        append_case(&cases, finding->cell, finding->metric ? finding->metric->name : "cell",
                    shown(outcome, finding), message.text ? message.text : "");
        count_case(shown(outcome, finding), &totals);
        dpb_str_release(&message);
    }
    append_suite(out, "dpbench gate", &totals, &cases);
    dpb_str_release(&cases);
}

static void append_targets(struct dpb_str *out, const struct dpb_gate_outcome *outcome)
{
    const struct dpb_evidence_table *table = outcome->evidence;
    struct dpb_str cases = {0};
    struct totals totals = {0};

    for (size_t i = 0; i < table->count; i++) {
        const struct dpb_evidence *evidence = &table->items[i];
        const enum dpb_verdict verdict = counted(outcome, evidence->verdict);
        struct dpb_str message = {0}, name = {0};

        describe_evidence(evidence, &message);
        dpb_str_appendf(&name, "%s %s", evidence->target->name, evidence->target->text);
        append_case(&cases, evidence->cell, name.text ? name.text : "", verdict,
                    message.text ? message.text : "");
        count_case(verdict, &totals);
        dpb_str_release(&message);
        dpb_str_release(&name);
    }
    append_suite(out, "dpbench targets", &totals, &cases);
    dpb_str_release(&cases);
}

dpb_status dpb_gate_junit(const struct dpb_gate_outcome *outcome, struct dpb_str *out)
{
    dpb_str_append(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    if (outcome->report)
        append_findings(out, outcome);
    if (outcome->evidence)
        append_targets(out, outcome);
    dpb_str_append(out, "</testsuites>\n");
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

/* ---- GitHub ---- */

#define LINES_MOST 10 /* GitHub shows no more of a kind for one step */

/* Data of a workflow command: %, CR and LF are encoded. Other control characters are blanks. */
static void append_command_text(struct dpb_str *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '%' || *p == '\r' || *p == '\n')
            dpb_str_appendf(out, "%%%02X", (unsigned)*p);
        else
            dpb_str_append_bytes(out, (unsigned char)*p < 0x20 ? " " : p, 1);
    }
}

/* Lines of one kind, of which the last tells how many do not fit. */
struct lines {
    const char *command;
    size_t all, told;
};

static void append_line(struct dpb_str *out, struct lines *lines, const char *where,
                        const char *message)
{
    if (lines->told >= LINES_MOST - 1 && lines->all > LINES_MOST) {
        if (lines->told++ == LINES_MOST - 1)
            dpb_str_appendf(out, "::%s title=dpbench gate::%zu more\n", lines->command,
                            lines->all - (LINES_MOST - 1));
        return;
    }
    dpb_str_appendf(out, "::%s title=dpbench gate::", lines->command);
    append_command_text(out, where);
    dpb_str_append(out, ": ");
    append_command_text(out, message);
    dpb_str_append(out, "\n");
    lines->told++;
}

/* 0: an error, 1: a warning, -1: no line */
static int line_kind(enum dpb_verdict verdict, bool gating)
{
    if (verdict == DPB_VERDICT_PASS)
        return -1;
    return gating && verdict != DPB_VERDICT_INCONCLUSIVE ? 0 : 1;
}

static void github_findings(struct dpb_str *out, const struct dpb_gate_outcome *outcome,
                            struct lines lines[2], bool count_only)
{
    const struct dpb_gate_report *report = outcome->report;

    for (size_t i = 0; report && i < report->finding_count; i++) {
        const struct dpb_gate_finding *finding = &report->findings[i];
        const int kind = line_kind(counted(outcome, finding->result.verdict), finding->is_gating);
        struct dpb_str message = {0}, where = {0};

        if (kind < 0)
            continue;
        lines[kind].all += count_only;
        if (count_only)
            continue;
        describe(finding, &message);
        dpb_str_appendf(&where, "%s, %s", finding->cell,
                        finding->metric ? finding->metric->name : "the cell");
        append_line(out, &lines[kind], where.text ? where.text : "",
                    message.text ? message.text : "");
        dpb_str_release(&message);
        dpb_str_release(&where);
    }
}

static void github_targets(struct dpb_str *out, const struct dpb_gate_outcome *outcome,
                           struct lines lines[2], bool count_only)
{
    const struct dpb_evidence_table *table = outcome->evidence;

    for (size_t i = 0; table && i < table->count; i++) {
        const int kind = line_kind(counted(outcome, table->items[i].verdict), true);
        struct dpb_str message = {0};

        if (kind < 0)
            continue;
        lines[kind].all += count_only;
        if (count_only)
            continue;
        describe_evidence(&table->items[i], &message);
        append_line(out, &lines[kind], table->items[i].cell, message.text ? message.text : "");
        dpb_str_release(&message);
    }
}

dpb_status dpb_gate_github(const struct dpb_gate_outcome *outcome, struct dpb_str *out)
{
    struct lines lines[2] = {{"error", 0, 0}, {"warning", 0, 0}};

    for (int pass = 0; pass < 2; pass++) {
        github_targets(out, outcome, lines, pass == 0);
        github_findings(out, outcome, lines, pass == 0);
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

/* ---- Prometheus ---- */

static void append_label(struct dpb_str *out, const char *name, const char *text, const char *end)
{
    dpb_str_appendf(out, "%s=\"", name);
    for (const char *p = text; *p; p++) {
        if (*p == '\n')
            dpb_str_append(out, "\\n");
        else if (*p == '"' || *p == '\\')
            dpb_str_appendf(out, "\\%c", *p);
        else
            dpb_str_append_bytes(out, p, 1);
    }
    dpb_str_appendf(out, "\"%s", end);
}

static void append_family(struct dpb_str *out, const char *name, const char *help)
{
    dpb_str_appendf(out, "# HELP dpbench_gate_%s %s\n# TYPE dpbench_gate_%s gauge\n", name, help,
                    name);
}

static void append_sample(struct dpb_str *out, const char *name,
                          const struct dpb_gate_finding *finding, double value)
{
    char text[DPB_UNIT_TEXT_BYTES];

    if (!finding->metric || !isfinite(value))
        return;
    dpb_format_f64(value, text, sizeof(text));
    dpb_str_appendf(out, "dpbench_gate_%s{", name);
    append_label(out, "cell", finding->cell, ",");
    append_label(out, "metric", finding->metric->name, "}");
    dpb_str_appendf(out, " %s\n", text);
}

static void append_verdicts(struct dpb_str *out, const struct dpb_gate_report *report)
{
    append_family(out, "finding_verdict", "1 for the verdict of a cell and metric.");
    for (size_t i = 0; i < report->finding_count; i++) {
        const struct dpb_gate_finding *finding = &report->findings[i];

        dpb_str_append(out, "dpbench_gate_finding_verdict{");
        append_label(out, "cell", finding->cell, ",");
        append_label(out, "metric", finding->metric ? finding->metric->name : "", ",");
        append_label(out, "gating", finding->is_gating ? "true" : "false", ",");
        append_label(out, "verdict", dpb_verdict_text(finding->result.verdict), "} 1\n");
    }
}

dpb_status dpb_gate_prometheus(const struct dpb_gate_outcome *outcome, struct dpb_str *out)
{
    const struct dpb_gate_report *report = outcome->report;
    static const struct {
        const char *name, *help;
    } families[] = {
            {"baseline", "Mean of the baseline, in the metric's unit."},
            {"candidate", "Mean of the candidate, in the metric's unit."},
            {"ratio", "Candidate over baseline."},
            {"minimum_detectable_effect", "Effect beyond the margin found with probability 0.8."},
    };

    append_family(out, "verdict", "1 for the verdict of the whole gate.");
    for (int v = 0; v < DPB_VERDICT_COUNT; v++)
        dpb_str_appendf(out, "dpbench_gate_verdict{verdict=\"%s\"} %d\n",
                        dpb_verdict_text((enum dpb_verdict)v), (int)outcome->verdict == v);
    if (!report)
        return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
    append_verdicts(out, report);
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        append_family(out, families[f].name, families[f].help);
        for (size_t i = 0; i < report->finding_count; i++) {
            const struct dpb_gate_finding *finding = &report->findings[i];
            const double values[] = {finding->base, finding->candidate, finding->result.ratio,
                                     finding->result.mde};

            append_sample(out, families[f].name, finding, values[f]);
        }
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}
