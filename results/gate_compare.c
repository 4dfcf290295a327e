/* gate_compare.c: two sides -> findings -> one verdict. */
#include "dpb_gate_compare.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_stats.h"
#include "dpb_units.h"
#include "gate_order.h"

#define DRIFT_P   0.01
#define BH_Q      0.10
#define PER_MILLE 1000 /* counters that are means over steps are compared to three decimals */

#define COUNTER_MAX 9e18 /* what an int64_t holds, a little less */

/* ---- options ---- */

bool dpb_gate_list_has(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; at && *at;) {
        size_t i = 0;

        at += strspn(at, ", ");
        const size_t item = strcspn(at, ", ");
        while (i < item && i < length && (at[i] == word[i] || (at[i] == '_' && word[i] == '-')))
            i++;
        if (item > 0 && i == item && i == length)
            return true;
        at += item;
    }
    return false;
}

static dpb_status parse_margin(const char *text, size_t length, struct dpb_gate_margin *margin)
{
    char copy[128], why[DPB_WHY_BYTES] = "write metric=margin";
    const char *value;
    dpb_status st = DPB_ERR_USAGE;

    snprintf(copy, sizeof(copy), "%.*s", (int)length, text);
    char *equals = strchr(copy, '=');
    if (equals) {
        *equals = '\0';
        value = equals + 1;
        margin->is_absolute = *value == '+';
        st = dpb_parse_ratio(value + margin->is_absolute, &margin->value, why);
    }
    if (st == DPB_OK && (!isfinite(margin->value) || margin->value < 0)) {
        snprintf(why, sizeof(why), "a margin is not below 0");
        st = DPB_ERR_USAGE;
    }
    if (st == DPB_OK && !dpb_gate_metric_find(copy)) {
        snprintf(why, sizeof(why), "no metric is called so");
        st = DPB_ERR_USAGE;
    }
    if (st < 0) {
        dpb_error("margin \"%.*s\": %s", (int)length, text, why);
        dpb_log_hint("for example step-time-median=3%%, loss=0.02, energy-per-sample=+0.5; "
                     "`dpbench gate --help` names the metrics");
        return st;
    }
    snprintf(margin->metric, sizeof(margin->metric), "%.63s", copy);
    return DPB_OK;
}

dpb_status dpb_gate_margins_parse(const char *text, struct dpb_gate_margins *margins)
{
    margins->count = 0;
    while (*text) {
        const size_t length = strcspn(text, ",");

        if (margins->count == DPB_GATE_MARGINS_MAX) {
            dpb_error("more than %d margins", DPB_GATE_MARGINS_MAX);
            return DPB_ERR_USAGE;
        }
        DPB_TRY(parse_margin(text, length, &margins->items[margins->count]));
        margins->count++;
        text += length + (text[length] == ',');
    }
    return DPB_OK;
}

/* Every word of the list of gating metrics must name one: a gate on nothing cannot fail. */
static dpb_status check_gating(const char *list)
{
    for (const char *at = list; at && *at;) {
        char word[64];

        at += strspn(at, ", ");
        const size_t length = strcspn(at, ", ");
        if (length == 0)
            break;
        snprintf(word, sizeof(word), "%.*s", (int)length, at);
        if (!dpb_gate_metric_find(word)) {
            dpb_error("\"%s\" is no metric that a gate knows", word);
            dpb_log_hint("`dpbench gate --help` names them");
            return DPB_ERR_USAGE;
        }
        at += length;
    }
    return DPB_OK;
}

/* ---- report ---- */

const char *dpb_gate_order_text(enum dpb_gate_order order)
{
    static const char *const texts[] = {"unknown", "one side after the other", "interleaved",
                                        "pairs"};

    return texts[order];
}

struct comparison {
    const struct dpb_gate_set *base, *candidate;
    const struct dpb_gate_options *options;
    struct dpb_gate_report *report;
    bool *is_matched; /* per cell of the candidate */
};

static struct dpb_gate_finding *add_finding(struct comparison *c, const char *cell)
{
    struct dpb_gate_report *report = c->report;
    struct dpb_gate_finding *findings =
            realloc(report->findings, (report->finding_count + 1) * sizeof(*findings));

    if (!findings)
        return NULL;
    report->findings = findings;
    struct dpb_gate_finding *finding = &findings[report->finding_count];
    *finding = (struct dpb_gate_finding){
            .cell = strdup(cell),
            .is_gating = true,
            .margin = NAN,
            .base = NAN,
            .candidate = NAN,
            .drift_p = NAN,
            .p_adjusted = NAN,
    };
    if (!finding->cell)
        return NULL;
    dpb_gate_decide(NULL, 0, NULL, 0, &(struct dpb_gate_rule)DPB_GATE_RULE_DEFAULT,
                    &finding->result);
    report->finding_count++;
    return finding;
}

__attribute__((format(printf, 3, 4))) static void
conclude(struct dpb_gate_finding *finding, enum dpb_verdict verdict, const char *format, ...)
{
    va_list list;

    finding->result.verdict = verdict;
    va_start(list, format);
    vsnprintf(finding->result.reason, sizeof(finding->result.reason), format, list);
    va_end(list);
}

__attribute__((format(printf, 4, 5))) static dpb_status whole_cell(struct comparison *c,
                                                                   const char *cell,
                                                                   enum dpb_verdict verdict,
                                                                   const char *format, ...)
{
    struct dpb_gate_finding *finding = add_finding(c, cell);
    va_list list;

    if (!finding)
        return DPB_ERR_NO_MEMORY;
    finding->result.verdict = verdict;
    va_start(list, format);
    vsnprintf(finding->result.reason, sizeof(finding->result.reason), format, list);
    va_end(list);
    return DPB_OK;
}

__attribute__((format(printf, 2, 3))) static void note(struct comparison *c, const char *format,
                                                       ...)
{
    char text[512];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    dpb_json_append(c->report->notes, dpb_json_string(text));
}

/* ---- comparability ---- */

static void waive(struct comparison *c, const char *text)
{
    for (size_t i = 0; i < dpb_json_size(c->report->waived); i++)
        if (strcmp(dpb_json_as_string(dpb_json_at(c->report->waived, i), ""), text) == 0)
            return;
    dpb_json_append(c->report->waived, dpb_json_string(text));
}

static bool may_differ(const struct comparison *c, const char *key)
{
    return dpb_gate_list_has(c->options->allow, key) ||
           dpb_gate_list_has(c->base->by_design, key) ||
           dpb_gate_list_has(c->candidate->by_design, key);
}

/* One fact of a cell against the other's; appends to `wrong` what may not be. */
static void compare_fact(struct comparison *c, const struct dpb_gate_fact *fact, const char *other,
                         bool is_of_base, char wrong[160])
{
    const char *of_base = is_of_base ? fact->text : other;
    const char *of_candidate = is_of_base ? other : fact->text;
    char text[256];

    if (other && strcmp(other, fact->text) == 0)
        return;
    snprintf(text, sizeof(text), "%s: %.80s, %.80s", fact->key, of_base ? of_base : "(none)",
             of_candidate ? of_candidate : "(none)");
    if (may_differ(c, fact->key) || (!other && dpb_gate_list_has(c->options->allow, "absent"))) {
        waive(c, text);
    } else {
        const size_t length = strlen(wrong);

        snprintf(wrong + length, 160 - length, "%s%s", length ? "; " : "", text);
    }
}

static bool is_comparable(struct comparison *c, const struct dpb_gate_cell *base,
                          const struct dpb_gate_cell *candidate, char wrong[160])
{
    wrong[0] = '\0';
    for (size_t i = 0; i < base->fact_count; i++)
        compare_fact(c, &base->facts[i], dpb_gate_cell_fact(candidate, base->facts[i].key), true,
                     wrong);
    for (size_t i = 0; i < candidate->fact_count; i++)
        if (!dpb_gate_cell_fact(base, candidate->facts[i].key))
            compare_fact(c, &candidate->facts[i], NULL, false, wrong);
    return wrong[0] == '\0';
}

/* ---- drift ---- */

/* Spearman's p of one side's values against the order of its runs. */
static double side_drift(const struct dpb_gate_cell *cell, const double *values)
{
    double *at = malloc((cell->run_count + 1) * sizeof(*at));
    double p = NAN;

    if (at && dpb_gate_moments(cell, at))
        p = dpb_stats_spearman_p(at, values, cell->run_count);
    free(at);
    return p;
}

/* Of both sides, the smaller twice (Bonferroni). */
static double drift_of(const struct dpb_gate_cell *base, const double *base_values,
                       const struct dpb_gate_cell *candidate, const double *candidate_values)
{
    const double a = side_drift(base, base_values), b = side_drift(candidate, candidate_values);

    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    return fmin(1, 2 * fmin(a, b));
}

/* ---- one metric ---- */

/* Values of the candidate in the order of the baseline's pairs. */
static void put_in_pairs(const struct dpb_gate_cell *base, const struct dpb_gate_cell *candidate,
                         const double *values, double *paired)
{
    for (size_t i = 0; i < base->run_count; i++)
        for (size_t k = 0; k < candidate->run_count; k++)
            if (candidate->runs[k].pair == base->runs[i].pair)
                paired[i] = values[k];
}

static bool all_finite(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static bool all_positive(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(values[i] > 0))
            return false;
    return true;
}

static void set_margin(const struct dpb_gate_options *options, struct dpb_gate_finding *finding)
{
    const struct dpb_gate_metric *metric = finding->metric;

    finding->margin = metric->margin;
    finding->is_absolute = metric->scale == DPB_GATE_ABSOLUTE;
    for (size_t i = 0; i < options->margins.count; i++)
        if (strcmp(options->margins.items[i].metric, metric->name) == 0) {
            finding->margin = options->margins.items[i].value;
            finding->is_absolute |= options->margins.items[i].is_absolute;
        }
}

static bool all_equal(const double *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (values[i] != values[0])
            return false;
    return true;
}

static void to_counters(const double *values, size_t count, double unit, int64_t *counters)
{
    for (size_t i = 0; i < count; i++)
        counters[i] = llround(values[i] * unit);
}

static double largest(const double *values, size_t count)
{
    double most = 0;

    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

/* To three decimals as long as an int64_t holds them; counters above are whole. */
static void decide_exact(struct dpb_gate_finding *finding, const double *base, size_t base_count,
                         const double *candidate, size_t candidate_count, int64_t *counters)
{
    const double most = fmax(largest(base, base_count), largest(candidate, candidate_count));
    const double unit = most * PER_MILLE < COUNTER_MAX ? PER_MILLE : 1;

    if (!all_equal(base, base_count) && finding->margin == 0) {
        conclude(finding, DPB_VERDICT_INCONCLUSIVE,
                 "runs of the baseline differ among themselves: give it a margin");
        return;
    }
    if (!(most < COUNTER_MAX)) {
        conclude(finding, DPB_VERDICT_ERROR, "%g is too large for a counter", most);
        return;
    }
    to_counters(base, base_count, unit, counters);
    to_counters(candidate, candidate_count, unit, counters + base_count);
    dpb_gate_decide_exact(counters, base_count, counters + base_count, candidate_count,
                          llround(fmin(finding->margin * unit, COUNTER_MAX)), &finding->result);
    finding->result.difference /= unit;
    if (finding->result.verdict == DPB_VERDICT_FAIL)
        conclude(finding, DPB_VERDICT_FAIL, "it differs by %g, by %g it may",
                 finding->result.difference, finding->margin);
}

static void decide_statistically(const struct comparison *c, struct dpb_gate_finding *finding,
                                 const double *base, size_t base_count, const double *candidate,
                                 size_t candidate_count)
{
    const double level = dpb_stats_median(base, base_count);
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;

    rule.alpha = c->report->alpha;
    rule.margin = finding->margin;
    rule.is_absolute = finding->is_absolute;
    rule.higher_is_better = finding->metric->higher_is_better;
    rule.is_paired = finding->order == DPB_GATE_ORDER_PAIRED;
    if (rule.is_absolute) /* the floor of relative values, at the metric's level */
        rule.floor *= fmax(fabs(level), 1e-6);
    dpb_gate_decide(base, base_count, candidate, candidate_count, &rule, &finding->result);
    const double margin = rule.is_absolute ? rule.margin : log1p(rule.margin);
    finding->is_improved = finding->result.high < -margin;
    finding->is_doubtful = finding->is_improved && !rule.is_absolute &&
                           finding->result.difference < log1p(-DPB_GATE_DOUBTFUL);
}

/* The sides are mixed only by design; drift that falls on one side alone looks like a change. */
static void heed_drift(struct dpb_gate_finding *finding)
{
    if (finding->order == DPB_GATE_ORDER_PAIRED || finding->order == DPB_GATE_ORDER_INTERLEAVED ||
        !(finding->drift_p < DRIFT_P) ||
        (finding->result.verdict != DPB_VERDICT_FAIL &&
         finding->result.verdict != DPB_VERDICT_PASS))
        return;
    conclude(finding, DPB_VERDICT_INCONCLUSIVE,
             "the runs drift (p %.2g) and the sides were not interleaved: use `dpbench gate "
             "measure`",
             finding->drift_p);
}

/* Without free cores the scheduler decides how long a step takes: a program that spins keeps its
 * core and looks faster. */
static void heed_neighbours(struct comparison *c, struct dpb_gate_finding *finding,
                            const struct dpb_gate_cell *base, const struct dpb_gate_cell *candidate)
{
    const size_t busy = base->busy_runs + candidate->busy_runs;
    const size_t runs = base->run_count + candidate->run_count;
    const enum dpb_verdict verdict = finding->result.verdict;

    if (!finding->metric->is_of_steps || busy == 0)
        return;
    if (dpb_gate_list_has(c->options->allow, "busy")) {
        waive(c, "busy: runs on a machine with less of its cores free than their limit");
        return;
    }
    if (verdict == DPB_VERDICT_INCONCLUSIVE) { /* more runs would not help */
        char *reason = finding->result.reason;
        const size_t length = strlen(reason);

        snprintf(reason + length, sizeof(finding->result.reason) - length,
                 "; the machine was busy in %zu of %zu runs", busy, runs);
    }
    if (verdict == DPB_VERDICT_FAIL || verdict == DPB_VERDICT_PASS)
        conclude(finding, DPB_VERDICT_INCONCLUSIVE,
                 "the machine was busy in %zu of %zu runs (%zu of the baseline's %zu): repeat when "
                 "it is quieter",
                 busy, runs, base->busy_runs, base->run_count);
}

static double middle(const struct dpb_gate_finding *finding, const double *values, size_t count)
{
    return finding->is_absolute || finding->metric->scale == DPB_GATE_EXACT
                   ? dpb_stats_mean(values, count)
                   : exp(dpb_stats_mean(values, count));
}

/* Room: base values, then the candidate's in pairs, then counters. */
static void decide(struct comparison *c, struct dpb_gate_finding *finding,
                   const struct dpb_gate_cell *base, const double *base_values,
                   const struct dpb_gate_cell *candidate, const double *candidate_values,
                   double *room)
{
    const size_t nb = base->run_count, nc = candidate->run_count;
    double *b = room, *k = room + nb;

    memcpy(b, base_values, nb * sizeof(*b));
    memcpy(k, candidate_values, nc * sizeof(*k));
    if (finding->order == DPB_GATE_ORDER_PAIRED)
        put_in_pairs(base, candidate, candidate_values, k);
    if (!all_finite(b, nb) || !all_finite(k, nc)) {
        conclude(finding, DPB_VERDICT_ERROR, "a run of the %s does not have it",
                 all_finite(b, nb) ? "candidate" : "baseline");
        return;
    }
    if (finding->metric->scale == DPB_GATE_EXACT) {
        decide_exact(finding, b, nb, k, nc, (int64_t *)(void *)(room + nb + nc));
    } else if (!finding->is_absolute && (!all_positive(b, nb) || !all_positive(k, nc))) {
        conclude(finding, DPB_VERDICT_ERROR,
                 "a value is not above 0, and has no ratio: give an absolute margin, %s=+VALUE",
                 finding->metric->name);
        return;
    } else {
        for (size_t i = 0; !finding->is_absolute && i < nb + nc; i++)
            room[i] = log(room[i]);
        finding->drift_p = drift_of(base, base_values, candidate, candidate_values);
        decide_statistically(c, finding, b, nb, k, nc);
        heed_drift(finding);
        heed_neighbours(c, finding, base, candidate);
    }
    finding->base = middle(finding, b, nb);
    finding->candidate = middle(finding, k, nc);
}

static bool gates(const struct comparison *c, const struct dpb_gate_metric *metric)
{
    const char *list = c->options->gating;

    return list ? dpb_gate_list_has(list, metric->name) : metric->is_gating;
}

static dpb_status compare_metric(struct comparison *c, const struct dpb_gate_cell *base,
                                 const struct dpb_gate_cell *candidate,
                                 const struct dpb_gate_metric *metric, enum dpb_gate_order order)
{
    const double *base_values = dpb_gate_cell_values(base, metric->name);
    const double *candidate_values = dpb_gate_cell_values(candidate, metric->name);
    const char *trouble = base->step_trouble[0] ? base->step_trouble : candidate->step_trouble;
    const bool is_asked = c->options->gating && gates(c, metric);
    const bool has_trouble = metric->is_of_steps && trouble[0];

    if (!base_values && !candidate_values && !is_asked &&
        !(has_trouble && strcmp(metric->name, "step-time-median") == 0))
        return DPB_OK;
    struct dpb_gate_finding *finding = add_finding(c, candidate->name);
    if (!finding)
        return DPB_ERR_NO_MEMORY;
    finding->metric = metric;
    finding->is_gating = gates(c, metric);
    finding->base_runs = base->run_count;
    finding->candidate_runs = candidate->run_count;
    finding->order = order;
    set_margin(c->options, finding);
    if (has_trouble) {
        conclude(finding, DPB_VERDICT_ERROR, "%s: %.120s",
                 base->step_trouble[0] ? "baseline" : "candidate", trouble);
    } else if (!base_values || !candidate_values) {
        conclude(finding, DPB_VERDICT_ERROR, "%s has it",
                 !base_values && !candidate_values ? "no record"
                 : base_values                     ? "only the baseline"
                                                   : "only the candidate");
    } else {
        double *room = malloc(2 * (base->run_count + candidate->run_count + 1) * sizeof(*room));

        if (!room)
            return DPB_ERR_NO_MEMORY;
        decide(c, finding, base, base_values, candidate, candidate_values, room);
        free(room);
    }
    return DPB_OK;
}

/* ---- one cell ---- */

static dpb_status compare_metrics(struct comparison *c, const struct dpb_gate_cell *base,
                                  const struct dpb_gate_cell *candidate, enum dpb_gate_order order)
{
    for (const struct dpb_gate_metric *metric = dpb_gate_metrics; metric->name; metric++)
        DPB_TRY(compare_metric(c, base, candidate, metric, order));
    /* metrics of importers, which the table does not have */
    for (size_t i = 0; i < base->metric_count; i++)
        if (dpb_gate_metric_find(base->metrics[i].metric->name) != base->metrics[i].metric)
            DPB_TRY(compare_metric(c, base, candidate, base->metrics[i].metric, order));
    for (size_t i = 0; i < candidate->metric_count; i++) {
        const struct dpb_gate_metric *metric = candidate->metrics[i].metric;

        if (dpb_gate_metric_find(metric->name) != metric &&
            !dpb_gate_cell_values(base, metric->name))
            DPB_TRY(compare_metric(c, base, candidate, metric, order));
    }
    return DPB_OK;
}

/* A run against itself shows nothing. */
static bool share_a_record(const struct dpb_gate_cell *base, const struct dpb_gate_cell *candidate)
{
    for (size_t i = 0; i < base->run_count; i++)
        for (size_t k = 0; k < candidate->run_count; k++)
            if (base->runs[i].hash[0] && strcmp(base->runs[i].hash, candidate->runs[k].hash) == 0)
                return true;
    return false;
}

static dpb_status compare_cell(struct comparison *c, const struct dpb_gate_cell *base,
                               const struct dpb_gate_cell *candidate)
{
    const enum dpb_gate_order order = dpb_gate_order_of(base, candidate);
    char wrong[160];

    if (base->trouble[0] || candidate->trouble[0])
        return whole_cell(c, candidate->name, DPB_VERDICT_ERROR, "%s: %.130s",
                          base->trouble[0] ? "baseline" : "candidate",
                          base->trouble[0] ? base->trouble : candidate->trouble);
    if (share_a_record(base, candidate))
        return whole_cell(c, candidate->name, DPB_VERDICT_ERROR,
                          "the same record is in both sides: nothing new was measured");
    if (!is_comparable(c, base, candidate, wrong))
        return whole_cell(c, candidate->name, DPB_VERDICT_REFUSED, "%s", wrong);
    if (c->options->require_interleaved && order != DPB_GATE_ORDER_PAIRED &&
        order != DPB_GATE_ORDER_INTERLEAVED)
        return whole_cell(c, candidate->name, DPB_VERDICT_REFUSED,
                          "the sides are not interleaved (%s): use `dpbench gate measure`",
                          dpb_gate_order_text(order));
    if (order == DPB_GATE_ORDER_SEQUENTIAL)
        note(c,
             "%s: all runs of one side were made before all of the other: a machine that "
             "changed meanwhile looks like a change of the program",
             candidate->name);
    return compare_metrics(c, base, candidate, order);
}

static bool has_series(const struct dpb_gate_set *set, const char *series)
{
    for (size_t i = 0; i < set->cell_count; i++)
        if (series[0] && strcmp(set->cells[i].series, series) == 0)
            return true;
    return false;
}

/* The cell of the candidate that is the baseline's: the same series, else the same name of a series
 * that the baseline does not have. */
static const struct dpb_gate_cell *match(struct comparison *c, const struct dpb_gate_cell *base)
{
    const bool by_series = base->series[0] && has_series(c->candidate, base->series);

    for (size_t i = 0; i < c->candidate->cell_count; i++) {
        const struct dpb_gate_cell *cell = &c->candidate->cells[i];

        if (c->is_matched[i] ||
            (by_series ? strcmp(cell->series, base->series) != 0
                       : strcmp(cell->name, base->name) != 0 || has_series(c->base, cell->series)))
            continue;
        c->is_matched[i] = true;
        return cell;
    }
    return NULL;
}

static dpb_status compare_cells(struct comparison *c)
{
    for (size_t i = 0; i < c->base->cell_count; i++) {
        const struct dpb_gate_cell *base = &c->base->cells[i], *candidate = match(c, base);

        DPB_TRY(candidate ? compare_cell(c, base, candidate)
                          : whole_cell(c, base->name, DPB_VERDICT_ERROR,
                                       "the candidate has no such cell: renamed, or not run"));
    }
    for (size_t i = 0; i < c->candidate->cell_count; i++)
        if (!c->is_matched[i])
            DPB_TRY(whole_cell(c, c->candidate->cells[i].name, DPB_VERDICT_ERROR,
                               "the baseline has no such cell: nothing to compare it with"));
    if (c->report->finding_count == 0)
        return whole_cell(c, "(none)", DPB_VERDICT_ERROR, "there is nothing to compare");
    return DPB_OK;
}

/* ---- many metrics ---- */

/* Adjust p of all findings that are gating, or that are not; a FAIL that does not stand becomes
 * INCONCLUSIVE. */
static dpb_status adjust(struct dpb_gate_report *report, bool gating)
{
    size_t *index = malloc((report->finding_count + 1) * sizeof(*index)), count = 0;
    double *p = malloc((report->finding_count + 1) * sizeof(*p));
    dpb_status st = index && p ? DPB_OK : DPB_ERR_NO_MEMORY;

    DPB_TRY_GOTO(st, st, out);
    for (size_t i = 0; i < report->finding_count; i++)
        if (report->findings[i].is_gating == gating &&
            isfinite(report->findings[i].result.p_worse)) {
            p[count] = report->findings[i].result.p_worse;
            index[count++] = i;
        }
    DPB_TRY_GOTO(st, gating ? dpb_gate_holm(p, count, p) : dpb_gate_bh(p, count, p), out);
    for (size_t i = 0; i < count; i++) {
        struct dpb_gate_finding *finding = &report->findings[index[i]];

        finding->p_adjusted = p[i];
        if (finding->result.verdict == DPB_VERDICT_FAIL &&
            !(p[i] <= (gating ? report->alpha : BH_Q)))
            conclude(finding, DPB_VERDICT_INCONCLUSIVE,
                     "beyond the margin alone (p %.2g), not as one of %zu (p %.2g)",
                     finding->result.p_worse, count, p[i]);
    }
    if (gating)
        report->family = count;
out:
    free(index);
    free(p);
    return st;
}

/* ---- the verdict ---- */

/* How far beyond the margin, in margins: for sorting only. */
static double badness(const struct dpb_gate_finding *finding)
{
    const double margin = finding->is_absolute ? finding->margin : log1p(finding->margin);

    return isfinite(finding->result.difference) ? finding->result.difference / fmax(margin, 1e-9)
                                                : -INFINITY;
}

static int worst_first(const void *a, const void *b)
{
    const struct dpb_gate_finding *x = a, *y = b;
    const double of_x = badness(x), of_y = badness(y);

    if (x->is_gating != y->is_gating)
        return x->is_gating ? -1 : 1;
    if (x->result.verdict != y->result.verdict)
        return (int)x->result.verdict - (int)y->result.verdict;
    if (of_x != of_y)
        return of_x > of_y ? -1 : 1;
    const int cell = strcmp(x->cell, y->cell);
    return cell || !x->metric || !y->metric ? cell : strcmp(x->metric->name, y->metric->name);
}

static void set_verdict(struct dpb_gate_report *report)
{
    size_t gating = 0;

    for (size_t i = 0; i < report->finding_count; i++)
        if (report->findings[i].is_gating) {
            report->counts[report->findings[i].result.verdict]++;
            gating++;
        }
    report->verdict = gating > 0 ? DPB_VERDICT_PASS : DPB_VERDICT_ERROR;
    for (int v = DPB_VERDICT_COUNT - 1; v >= 0; v--)
        if (report->counts[v] > 0)
            report->verdict = v;
    if (report->counts[DPB_VERDICT_FAIL] > 0)
        report->verdict = DPB_VERDICT_FAIL;
}

static void note_how(struct comparison *c, const char *how, const char *what)
{
    size_t count = 0;

    for (size_t i = 0; i < c->candidate->cell_count; i++)
        count += strcmp(dpb_gate_cell_how(&c->candidate->cells[i]), how) == 0;
    if (count > 0)
        note(c, "%zu of %zu cells %s %s: %s", count, c->candidate->cell_count,
             count == 1 ? "is" : "are", how, what);
}

static void note_doubtful(struct comparison *c)
{
    const struct dpb_gate_finding *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < c->report->finding_count; i++)
        if (c->report->findings[i].is_doubtful) {
            count++;
            if (!first || c->report->findings[i].result.difference < first->result.difference)
                first = &c->report->findings[i];
        }
    if (first)
        note(c,
             "the baseline is doubtful: %zu of the metrics %s better by %.0f %% or more, most of "
             "all %s of %s; a baseline from a busy or throttled machine, or made differently, "
             "lets nothing fail: measure it again",
             count, count == 1 ? "is" : "are", 100 * DPB_GATE_DOUBTFUL, first->metric->name,
             first->cell);
}

static bool tells(const struct dpb_gate_set *set, const char *word)
{
    for (size_t i = 0; i < set->cell_count; i++)
        for (size_t k = 0; k < set->cells[i].fact_count; k++)
            if (dpb_gate_list_has(word, set->cells[i].facts[k].key))
                return true;
    return false;
}

/* A misspelt word allows nothing. */
static void note_allowed(struct comparison *c)
{
    for (const char *at = c->options->allow; at && *(at += strspn(at, ", "));) {
        const size_t length = strcspn(at, ", ");
        char word[64];

        snprintf(word, sizeof(word), "%.*s", (int)length, at);
        if (!dpb_gate_list_has(word, "absent") && !dpb_gate_list_has(word, "busy") &&
            !tells(c->base, word) && !tells(c->candidate, word))
            note(c, "\"%s\" was to be allowed to differ, but no run tells anything of that name",
                 word);
        at += length;
    }
}

static void add_notes(struct comparison *c)
{
    size_t improved = 0, gating = 0;

    for (size_t i = 0; i < c->report->finding_count; i++) {
        improved += c->report->findings[i].is_improved;
        gating += c->report->findings[i].is_gating;
    }
    if (gating == 0)
        note(c, "no metric of any cell decides: a gate on nothing is no gate");
    if (improved > 0)
        note(c, "%zu better by more than the margin: refresh the baseline to hold what was gained",
             improved);
    note_doubtful(c);
    note_allowed(c);
    note_how(c, "emulated",
             "their times are those of the link that was given, and not of this "
             "machine's network");
    note_how(c, "simulated", "nothing of them was measured");
    if (c->report->looks > 1)
        note(c,
             "%d looks are planned: each at alpha %.4f (Pocock). Only INCONCLUSIVE may be "
             "extended by more runs, and runs must be independent",
             c->report->looks, c->report->alpha);
    if (c->base->notes)
        note(c, "%s", c->base->notes);
    if (c->candidate->notes)
        note(c, "%s", c->candidate->notes);
}

static dpb_status start_report(struct comparison *c)
{
    struct dpb_gate_report *report = c->report;

    *report = (struct dpb_gate_report){
            .looks = c->options->looks,
            .alpha = c->options->looks == 1 ? c->options->alpha
                                            : dpb_gate_look_alpha(c->options->looks),
            .baseline = strdup(c->base->source ? c->base->source : "baseline"),
            .candidate = strdup(c->candidate->source ? c->candidate->source : "candidate"),
            .waived = dpb_json_array(),
            .notes = dpb_json_array(),
    };
    c->is_matched = calloc(c->candidate->cell_count + 1, sizeof(*c->is_matched));
    return report->baseline && report->candidate && report->waived && report->notes && c->is_matched
                   ? DPB_OK
                   : DPB_ERR_NO_MEMORY;
}

dpb_status dpb_gate_compare(const struct dpb_gate_set *baseline,
                            const struct dpb_gate_set *candidate,
                            const struct dpb_gate_options *options, struct dpb_gate_report *report)
{
    struct comparison c = {baseline, candidate, options, report, NULL};
    dpb_status st;

    if (options->looks != 1 && isnan(dpb_gate_look_alpha(options->looks))) {
        dpb_error("%d looks: levels are known for 1 to 3", options->looks);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(check_gating(options->gating));
    DPB_TRY_GOTO(st, start_report(&c), out);
    DPB_TRY_GOTO(st, compare_cells(&c), out);
    DPB_TRY_GOTO(st, adjust(report, true), out);
    DPB_TRY_GOTO(st, adjust(report, false), out);
    if (report->finding_count > 1)
        qsort(report->findings, report->finding_count, sizeof(*report->findings), worst_first);
    set_verdict(report);
    add_notes(&c);
out:
    free(c.is_matched);
    if (st < 0)
        dpb_gate_report_release(report);
    return st;
}

void dpb_gate_report_release(struct dpb_gate_report *report)
{
    for (size_t i = 0; i < report->finding_count; i++)
        free(report->findings[i].cell);
    free(report->findings);
    free(report->baseline);
    free(report->candidate);
    dpb_json_free(report->waived);
    dpb_json_free(report->notes);
    *report = (struct dpb_gate_report){.verdict = DPB_VERDICT_ERROR};
}
