/* targets.c: limits, and the evidence for and against them. */
#include "dpb_targets.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_stats.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "dpb_yaml.h"

#define ALPHA      0.05
#define RUNS_LEAST 3
#define PARITY     "loss-parity" /* |loss - mean loss of the reference| of a run */
#define OF_SIZES   "comm-bus-bandwidth"

/* ---- one line ---- */

static const char *unit_of(const char *metric)
{
    const struct dpb_gate_metric *known = dpb_gate_metric_find(metric);

    if (strcmp(metric, PARITY) == 0)
        return "";
    return known && known->scale != DPB_GATE_EXACT ? known->unit : NULL;
}

/* "12 USD" -> "12": the unit is the metric's, written or not. */
static void cut_unit(char *text, const char *unit)
{
    const size_t length = strlen(text), unit_length = strlen(unit);

    if (unit_length == 0 || length <= unit_length || strcmp(text + length - unit_length, unit) != 0)
        return;
    size_t end = length - unit_length;
    while (end > 0 && text[end - 1] == ' ')
        end--;
    text[end] = '\0';
}

static dpb_status parse_limit(const char *text, const char *unit, double *limit,
                              char why[DPB_WHY_BYTES])
{
    char copy[64];
    int64_t whole;

    snprintf(copy, sizeof(copy), "%s", text);
    if (strcmp(unit, "ns") == 0 || strcmp(unit, "bytes") == 0) {
        DPB_TRY(unit[0] == 'n' ? dpb_parse_duration(copy, &whole, why)
                               : dpb_parse_size(copy, &whole, why));
        *limit = (double)whole;
        return DPB_OK;
    }
    if (strcmp(unit, "B/s") == 0)
        return dpb_parse_rate(copy, limit, why);
    if (unit[0] == '\0')
        return dpb_parse_ratio(copy, limit, why);
    cut_unit(copy, unit);
    return dpb_parse_f64(copy, limit, why);
}

/* ">= 0.90" -> at_least, and what follows. NULL: no operator. */
static const char *parse_operator(const char *rule, struct dpb_target *target)
{
    if (*rule != '<' && *rule != '>')
        return NULL;
    target->at_least = *rule++ == '>';
    target->is_strict = *rule != '=';
    rule += !target->is_strict;
    return rule + strspn(rule, " ");
}

static dpb_status parse_price(const char *text, const char *origin, double *price)
{
    char copy[64], why[DPB_WHY_BYTES];

    snprintf(copy, sizeof(copy), "%s", text);
    cut_unit(copy, "USD/h");
    if (dpb_parse_f64(copy, price, why) == DPB_OK && *price > 0)
        return DPB_OK;
    dpb_error("%s: price \"%s\" is not dollars per accelerator and hour", origin, text);
    dpb_log_hint("write price: \"2.5 USD/h\"");
    return DPB_ERR_USAGE;
}

static dpb_status refuse_target(const char *origin, const char *metric, const char *rule,
                                const char *why)
{
    dpb_error("%s: target %s: \"%s\": %s", origin, metric, rule, why);
    dpb_log_hint("for example efficiency: \">= 0.90\", step-time-p99: \"<= 250ms\", "
                 "cost-per-epoch: \"<= 12 USD\"; docs/gate.md lists the metrics");
    return DPB_ERR_USAGE;
}

/* "16MiB..1GiB" or "16MiB"; false: it is neither. */
static bool parse_sizes(const char *text, struct dpb_target *target)
{
    char copy[64];

    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return false;
    char *dots = strstr(copy, "..");
    if (dots)
        *dots = '\0';
    if (dpb_parse_size(copy, &target->size_least, NULL) < 0 ||
        dpb_parse_size(dots ? dots + 2 : copy, &target->size_most, NULL) < 0)
        return false;
    return target->size_least > 0 && target->size_most >= target->size_least;
}

/* "comm-bus-bandwidth 16MiB..1GiB" -> metric and sizes; NULL, or what is wrong with it. */
static const char *parse_name(const char *name, struct dpb_target *target)
{
    const size_t length = strcspn(name, " ");
    const char *sizes = name + length + strspn(name + length, " ");

    if (strlen(name) >= sizeof(target->name) || length >= sizeof(target->metric))
        return "there is no such metric";
    memcpy(target->name, name, strlen(name) + 1);
    memcpy(target->metric, name, length);
    if (!unit_of(target->metric))
        return "there is no such metric";
    if (strcmp(target->metric, OF_SIZES) != 0)
        return *sizes ? "only " OF_SIZES " is one of sizes" : NULL;
    return parse_sizes(sizes, target) ? NULL
                                      : "a bandwidth belongs to sizes of messages: write " OF_SIZES
                                        " 16MiB..1GiB";
}

dpb_status dpb_targets_add(struct dpb_targets *targets, const char *metric, const char *rule,
                           const char *origin)
{
    struct dpb_target target = {0};
    char why[DPB_WHY_BYTES];

    if (strcmp(metric, "price") == 0)
        return parse_price(rule, origin, &targets->price);
    const char *wrong = parse_name(metric, &target);
    if (wrong)
        return refuse_target(origin, metric, rule, wrong);
    const char *unit = unit_of(target.metric);
    const char *limit = parse_operator(rule, &target);
    if (!limit)
        return refuse_target(origin, metric, rule, "it does not begin with <=, <, >= or >");
    if (strlen(rule) >= sizeof(target.text))
        return refuse_target(origin, metric, rule, "it is too long");
    if (parse_limit(limit, unit, &target.limit, why) < 0 || !isfinite(target.limit))
        return refuse_target(origin, metric, rule, why);
    snprintf(target.unit, sizeof(target.unit), "%s", unit);
    snprintf(target.text, sizeof(target.text), "%s", rule);
    struct dpb_target *items =
            realloc(targets->items, (targets->count + 1) * sizeof(*targets->items));
    if (!items)
        return DPB_ERR_NO_MEMORY;
    targets->items = items;
    items[targets->count++] = target;
    return DPB_OK;
}

/* ---- a file ---- */

static dpb_status read_map(const char *path, const struct dpb_yaml *map,
                           struct dpb_targets *targets)
{
    if (map->kind != DPB_YAML_MAP) {
        dpb_error("%s:%d:%d: targets are %s, not a map", path, map->line, map->column,
                  dpb_yaml_kind_text(map->kind));
        dpb_log_hint("write lines such as efficiency: \">= 0.90\"");
        return DPB_ERR_USAGE;
    }
    for (size_t i = 0; i + 1 < map->count; i += 2) {
        const struct dpb_yaml *key = &map->items[i], *value = &map->items[i + 1];
        char origin[512];

        snprintf(origin, sizeof(origin), "%s:%d:%d", path, value->line, value->column);
        if (value->kind != DPB_YAML_SCALAR)
            return refuse_target(origin, key->text, "...", "a limit is one text");
        for (size_t k = 0; k < i; k += 2)
            if (strcmp(map->items[k].text, key->text) == 0)
                return refuse_target(origin, key->text, value->text, "it is given twice");
        DPB_TRY(dpb_targets_add(targets, key->text, value->text, origin));
    }
    return DPB_OK;
}

dpb_status dpb_targets_read(const char *path, struct dpb_targets *targets)
{
    struct dpb_yaml root = {0};

    DPB_TRY(dpb_yaml_read_file(path, &root));
    const struct dpb_yaml *inside = dpb_yaml_get(&root, "targets");
    dpb_status st = read_map(path, inside ? inside : &root, targets);
    if (st == DPB_OK && targets->count == 0) {
        dpb_error("\"%s\" sets no target", path);
        dpb_log_hint("write lines such as efficiency: \">= 0.90\"");
        st = DPB_ERR_USAGE;
    }
    dpb_yaml_release(&root);
    return st;
}

void dpb_targets_release(struct dpb_targets *targets)
{
    free(targets->items);
    *targets = (struct dpb_targets){.price = NAN};
}

/* ---- evidence ---- */

__attribute__((format(printf, 3, 4))) static void
conclude(struct dpb_evidence *evidence, enum dpb_verdict verdict, const char *format, ...)
{
    va_list list;

    evidence->verdict = verdict;
    va_start(list, format);
    vsnprintf(evidence->reason, sizeof(evidence->reason), format, list);
    va_end(list);
}

static struct dpb_evidence *add_evidence(struct dpb_evidence_table *table,
                                         const struct dpb_target *target, const char *cell)
{
    struct dpb_evidence *items = realloc(table->items, (table->count + 1) * sizeof(*items));

    if (!items)
        return NULL;
    table->items = items;
    struct dpb_evidence *evidence = &items[table->count];
    *evidence = (struct dpb_evidence){
            .target = target,
            .cell = strdup(cell),
            .how = "",
            .verdict = DPB_VERDICT_ERROR,
            .found = NAN,
            .low = NAN,
            .high = NAN,
    };
    if (!evidence->cell)
        return NULL;
    table->count++;
    return evidence;
}

static dpb_status name_records(struct dpb_evidence *evidence, const struct dpb_gate_cell *cell)
{
    evidence->how = dpb_gate_cell_how(cell);
    evidence->runs = cell->run_count;
    evidence->hashes = calloc(cell->run_count + 1, sizeof(*evidence->hashes));
    if (!evidence->hashes)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < cell->run_count; i++)
        memcpy(evidence->hashes[i], cell->runs[i].hash, sizeof(evidence->hashes[i]));
    return DPB_OK;
}

static bool keeps(const struct dpb_target *target, double value)
{
    if (target->at_least)
        return target->is_strict ? value > target->limit : value >= target->limit;
    return target->is_strict ? value < target->limit : value <= target->limit;
}

static void judge_values(struct dpb_evidence *evidence, const double *values, size_t count)
{
    const double sd = dpb_stats_stdev(values, count);

    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) {
            conclude(evidence, DPB_VERDICT_ERROR, "run %zu does not have it", i + 1);
            return;
        }
    evidence->found = dpb_stats_mean(values, count);
    if (count < RUNS_LEAST) {
        conclude(evidence, DPB_VERDICT_INCONCLUSIVE, "%zu runs, at least %d are needed", count,
                 RUNS_LEAST);
        return;
    }
    const double half =
            dpb_stats_t_quantile(1 - ALPHA, (double)count - 1) * sd / sqrt((double)count);
    evidence->low = evidence->found - half;
    evidence->high = evidence->found + half;
    const bool low = keeps(evidence->target, evidence->low);
    const bool high = keeps(evidence->target, evidence->high);
    if (low && high)
        evidence->verdict = DPB_VERDICT_PASS;
    else if (!low && !high)
        conclude(evidence, DPB_VERDICT_FAIL, "the limit is not kept");
    else
        conclude(evidence, DPB_VERDICT_INCONCLUSIVE, "the interval holds the limit");
}

/* ---- loss parity ---- */

static double ranks_of(const struct dpb_gate_cell *cell)
{
    const char *text = dpb_gate_cell_fact(cell, "ranks");

    return text ? strtod(text, NULL) : NAN;
}

static const struct dpb_gate_cell *fewest_ranks(const struct dpb_gate_set *set)
{
    const struct dpb_gate_cell *fewest = NULL;

    for (size_t i = 0; i < set->cell_count; i++)
        if (!fewest || ranks_of(&set->cells[i]) < ranks_of(fewest))
            fewest = &set->cells[i];
    return fewest;
}

static const struct dpb_gate_cell *same_cell(const struct dpb_gate_set *set,
                                             const struct dpb_gate_cell *cell)
{
    for (size_t i = 0; i < set->cell_count; i++)
        if ((cell->series[0] && strcmp(set->cells[i].series, cell->series) == 0) ||
            strcmp(set->cells[i].name, cell->name) == 0)
            return &set->cells[i];
    return NULL;
}

/* |loss - mean loss of the reference| per run; NULL: no reference, no loss, or no memory. Caller
 * frees. */
static double *parity_of(const struct dpb_gate_set *set, const struct dpb_gate_set *reference,
                         const struct dpb_gate_cell *cell)
{
    const struct dpb_gate_cell *with = reference ? same_cell(reference, cell) : fewest_ranks(set);
    const double *loss = dpb_gate_cell_values(cell, "loss");
    const double *other = with && with != cell ? dpb_gate_cell_values(with, "loss") : NULL;
    double *values = loss && other ? malloc((cell->run_count + 1) * sizeof(*values)) : NULL;

    for (size_t i = 0; values && i < cell->run_count; i++)
        values[i] = fabs(loss[i] - dpb_stats_mean(other, with->run_count));
    return values;
}

/* ---- one target and cell ---- */

/* Must the cell have the metric? Efficiency: every cell but that of the fewest ranks. */
static bool must_have(const struct dpb_target *target, const struct dpb_gate_set *set,
                      const struct dpb_gate_cell *cell)
{
    if (strcmp(target->metric, "efficiency") == 0)
        return ranks_of(cell) > ranks_of(fewest_ranks(set));
    return true;
}

/* What records that cannot decide a target lack, where that does not show by itself. */
static const char *what_is_missing(const struct dpb_target *target, const struct dpb_gate_set *set)
{
    static const struct {
        const char *metric, *text;
    } needs[] = {
            {"step-time-p99", ": it needs 100 steps or more of a run, behind its warm-up"},
            {"efficiency",
             ": it needs a cell of fewer ranks, otherwise alike and with as many runs"},
            {PARITY, ": it needs --baseline, or a cell of fewer ranks"},
            {"energy-per-sample", ": it needs a meter, and 2 s or more of steps"},
            {"accuracy", ": it needs an evaluation, --evaluate on"},
    };

    if (strncmp(target->metric, "cost", 4) == 0 && isnan(set->price))
        return ": there is no price";
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (strcmp(target->metric, needs[i].metric) == 0)
            return needs[i].text;
    return "";
}

static dpb_status judge_cell(const struct dpb_target *target, const struct dpb_gate_set *set,
                             const struct dpb_gate_set *reference, const struct dpb_gate_cell *cell,
                             struct dpb_evidence_table *table)
{
    const bool is_parity = strcmp(target->metric, PARITY) == 0;
    double *parity = is_parity ? parity_of(set, reference, cell) : NULL;
    const double *values = is_parity ? parity : dpb_gate_cell_values(cell, target->metric);
    const struct dpb_gate_metric *metric = dpb_gate_metric_find(target->metric);
    dpb_status st = DPB_OK;

    if (!values &&
        (is_parity ? !reference && cell == fewest_ranks(set) : !must_have(target, set, cell)))
        return DPB_OK;
    struct dpb_evidence *evidence = add_evidence(table, target, cell->name);
    if (!evidence) {
        free(parity);
        return DPB_ERR_NO_MEMORY;
    }
    st = name_records(evidence, cell);
    if (cell->trouble[0])
        conclude(evidence, DPB_VERDICT_ERROR, "%.150s", cell->trouble);
    else if (metric && metric->is_of_steps && cell->step_trouble[0])
        conclude(evidence, DPB_VERDICT_ERROR, "%.150s", cell->step_trouble);
    else if (!values)
        conclude(evidence, DPB_VERDICT_FAIL, "no record can decide it%s",
                 what_is_missing(target, set));
    else
        judge_values(evidence, values, cell->run_count);
    free(parity);
    return st;
}

static int worst_first(const void *a, const void *b)
{
    const struct dpb_evidence *x = a, *y = b;

    if (x->verdict != y->verdict)
        return (int)x->verdict - (int)y->verdict;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return strcmp(x->cell, y->cell);
}

static void set_verdict(struct dpb_evidence_table *table)
{
    table->verdict = table->count > 0 ? DPB_VERDICT_PASS : DPB_VERDICT_ERROR;
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].verdict < table->verdict)
            table->verdict = table->items[i].verdict;
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].verdict == DPB_VERDICT_FAIL)
            table->verdict = DPB_VERDICT_FAIL;
}

static bool is_of_its_sizes(const struct dpb_target *target, const struct dpb_gate_cell *cell)
{
    return target->size_most == 0 || (cell->size_bytes >= (double)target->size_least &&
                                      cell->size_bytes <= (double)target->size_most);
}

static dpb_status judge_target(const struct dpb_target *target, const struct dpb_gate_set *set,
                               const struct dpb_gate_set *reference,
                               struct dpb_evidence_table *table)
{
    const size_t before = table->count;

    for (size_t i = 0; i < set->cell_count; i++)
        if (is_of_its_sizes(target, &set->cells[i]))
            DPB_TRY(judge_cell(target, set, reference, &set->cells[i], table));
    if (table->count > before)
        return DPB_OK;
    struct dpb_evidence *evidence = add_evidence(table, target, "-");
    if (!evidence)
        return DPB_ERR_NO_MEMORY;
    conclude(evidence, DPB_VERDICT_FAIL, "no record can decide it%s", what_is_missing(target, set));
    return DPB_OK;
}

dpb_status dpb_targets_judge(const struct dpb_targets *targets, const struct dpb_gate_set *set,
                             const struct dpb_gate_set *reference, struct dpb_evidence_table *table)
{
    *table = (struct dpb_evidence_table){0};
    for (size_t i = 0; i < targets->count; i++) {
        const dpb_status st = judge_target(&targets->items[i], set, reference, table);

        if (st < 0) {
            dpb_evidence_release(table);
            return st;
        }
    }
    if (table->count > 1)
        qsort(table->items, table->count, sizeof(*table->items), worst_first);
    set_verdict(table);
    return DPB_OK;
}

void dpb_evidence_release(struct dpb_evidence_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->items[i].cell);
        free(table->items[i].hashes);
    }
    free(table->items);
    *table = (struct dpb_evidence_table){0};
}

static void set_number(dpb_json *object, const char *key, double value)
{
    if (isfinite(value))
        dpb_json_set_real(object, key, value);
    else
        dpb_json_set_absent(object, key, "no run decides it");
}

static void set_sizes(dpb_json *object, const struct dpb_target *target)
{
    static const char none[] = "the metric has no sizes";

    if (target->size_most > 0) {
        dpb_json_set_int(object, "size_least_bytes", target->size_least);
        dpb_json_set_int(object, "size_most_bytes", target->size_most);
        return;
    }
    dpb_json_set_absent(object, "size_least_bytes", none);
    dpb_json_set_absent(object, "size_most_bytes", none);
}

dpb_json *dpb_evidence_json(const struct dpb_evidence_table *table)
{
    dpb_json *all = dpb_json_array();

    for (size_t i = 0; i < table->count; i++) {
        const struct dpb_evidence *evidence = &table->items[i];
        dpb_json *json = dpb_json_object(), *records = dpb_json_array();

        dpb_json_set_string(json, "metric", evidence->target->metric);
        set_sizes(json, evidence->target);
        dpb_json_set_string(json, "unit", evidence->target->unit);
        dpb_json_set_string(json, "target", evidence->target->text);
        dpb_json_set_real(json, "limit", evidence->target->limit);
        dpb_json_set_string(json, "how", evidence->how);
        dpb_json_set_string(json, "cell", evidence->cell);
        dpb_json_set_string(json, "verdict", dpb_verdict_text(evidence->verdict));
        dpb_json_set_string(json, "reason", evidence->reason[0] ? evidence->reason : NULL);
        set_number(json, "found", evidence->found);
        set_number(json, "low", evidence->low);
        set_number(json, "high", evidence->high);
        for (size_t k = 0; k < evidence->runs; k++)
            dpb_json_append(records, dpb_json_string(evidence->hashes[k]));
        dpb_json_set(json, "records_sha256", records);
        dpb_json_append(all, json);
    }
    return all;
}
