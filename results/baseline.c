/* baseline.c: one baseline as a file. */
#include "dpb_baseline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "baseline_private.h"
#include "dpb_import.h"
#include "dpb_log.h"

#define BASELINE_BYTES_MAX ((size_t)64 << 20)

/* ---- to JSON ---- */

static dpb_json *run_json(const struct dpb_gate_run *run)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_real(json, "order", run->order);
    dpb_json_set_real(json, "time_s", run->time_s);
    dpb_json_set_int(json, "pair", run->pair);
    dpb_json_set_string(json, "session", run->session);
    dpb_json_set_string(json, "hash", run->hash);
    return json;
}

static dpb_json *cell_json(const struct dpb_gate_cell *cell)
{
    dpb_json *json = dpb_json_object(), *facts = dpb_json_object(), *runs = dpb_json_array();
    dpb_json *metrics = dpb_json_object();

    dpb_json_set_string(json, "name", cell->name);
    dpb_json_set_string(json, "series", cell->series);
    for (size_t i = 0; i < cell->fact_count; i++)
        dpb_json_set_string(facts, cell->facts[i].key, cell->facts[i].text);
    dpb_json_set(json, "facts", facts);
    for (size_t i = 0; i < cell->run_count; i++)
        dpb_json_append(runs, run_json(&cell->runs[i]));
    dpb_json_set(json, "runs", runs);
    dpb_json_set_int(json, "busy_runs", (int64_t)cell->busy_runs);
    for (size_t i = 0; i < cell->metric_count; i++)
        dpb_json_set(metrics, cell->metrics[i].metric->name,
                     dpb_json_reals(cell->metrics[i].values, cell->run_count));
    dpb_json_set(json, "metrics", metrics);
    return json;
}

dpb_json *baseline_content(const struct dpb_gate_set *set, const struct dpb_baseline_about *about)
{
    dpb_json *json = dpb_json_object(), *cells = dpb_json_array();

    dpb_json_set_string(json, "name", about->name);
    dpb_json_set_string(json, "commit", about->commit);
    dpb_json_set_string(json, "date", about->date);
    dpb_json_set_string(json, "tool", about->tool);
    dpb_json_set_real(json, "price_usd_per_h", about->price);
    dpb_json_set_string(json, "price_date", about->price_date);
    for (size_t i = 0; i < set->cell_count; i++)
        dpb_json_append(cells, cell_json(&set->cells[i]));
    dpb_json_set(json, "cells", cells);
    return json;
}

dpb_status baseline_hash(const dpb_json *content, char sha256[DPB_SHA256_TEXT_BYTES])
{
    struct dpb_str line = {0};
    const dpb_status st = dpb_json_write(content, false, &line);

    if (st == DPB_OK)
        dpb_sha256_text(line.text, line.length, sha256);
    dpb_str_release(&line);
    return st;
}

/* ---- from JSON ---- */

static const char *text_of(const dpb_json *object, const char *key)
{
    return dpb_json_as_string(dpb_json_get(object, key), "");
}

static dpb_status read_run(const dpb_json *json, struct dpb_gate_cell *cell)
{
    struct dpb_gate_run run = {
            .order = dpb_json_as_real(dpb_json_get(json, "order"), NAN),
            .time_s = dpb_json_as_real(dpb_json_get(json, "time_s"), NAN),
            .pair = dpb_json_as_int(dpb_json_get(json, "pair"), -1),
    };
    size_t number;

    snprintf(run.session, sizeof(run.session), "%s", text_of(json, "session"));
    snprintf(run.hash, sizeof(run.hash), "%s", text_of(json, "hash"));
    return dpb_gate_cell_add_run(cell, &run, &number);
}

static dpb_status read_metric(const char *path, const char *name, const dpb_json *values,
                              struct dpb_gate_cell *cell)
{
    const struct dpb_gate_metric *metric = dpb_import_metric_find(name);

    if (!metric || dpb_json_size(values) != cell->run_count) {
        dpb_error("%s: cell \"%s\": \"%s\" is no metric with %zu values", path, cell->name, name,
                  cell->run_count);
        return DPB_ERR_CORRUPT;
    }
    for (size_t i = 0; i < cell->run_count; i++)
        DPB_TRY(dpb_gate_cell_set_value(cell, i, metric,
                                        dpb_json_as_real(dpb_json_at(values, i), NAN)));
    return DPB_OK;
}

static dpb_status read_cell(const char *path, const dpb_json *json, struct dpb_gate_set *set)
{
    struct dpb_gate_cell *cell =
            dpb_gate_set_cell(set, text_of(json, "name"), text_of(json, "series"));
    const dpb_json *item;
    const char *key;
    dpb_json_walk walk = {0};

    if (!cell)
        return DPB_ERR_NO_MEMORY;
    while ((item = dpb_json_next(dpb_json_get(json, "facts"), &walk, &key)))
        DPB_TRY(dpb_gate_cell_set_fact(cell, key, dpb_json_as_string(item, "")));
    walk = (dpb_json_walk){0};
    while ((item = dpb_json_next(dpb_json_get(json, "runs"), &walk, NULL)))
        DPB_TRY(read_run(item, cell));
    const int64_t busy = dpb_json_as_int(dpb_json_get(json, "busy_runs"), 0);
    if (busy < 0 || (uint64_t)busy > cell->run_count) {
        dpb_error("%s: cell \"%s\": %lld of %zu runs were on a busy machine", path, cell->name,
                  (long long)busy, cell->run_count);
        return DPB_ERR_CORRUPT;
    }
    cell->busy_runs = (size_t)busy;
    walk = (dpb_json_walk){0};
    while ((item = dpb_json_next(dpb_json_get(json, "metrics"), &walk, &key)))
        DPB_TRY(read_metric(path, key, item, cell));
    return DPB_OK;
}

/* Seconds since 1970, NaN: it is no date. */
static double seconds_of(const char *date)
{
    struct tm tm = {0};

    if (sscanf(date, "%d-%d-%dT%d:%d:%d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) != 6)
        return NAN;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (double)timegm(&tm);
}

double baseline_age_days(const char *date)
{
    return ((double)time(NULL) - seconds_of(date)) / 86400;
}

/* A line for the set's notes when the baseline is old. */
static dpb_status note_age(const struct dpb_baseline_about *about, struct dpb_gate_set *set)
{
    const double days = baseline_age_days(about->date);
    struct dpb_str notes = {0};

    if (!(days > DPB_BASELINE_AGE_DAYS))
        return DPB_OK;
    dpb_str_appendf(&notes, "%s%sthe baseline \"%s\" is %.0f days old",
                    set->notes ? set->notes : "", set->notes ? "\n" : "", about->name, days);
    if (notes.failed)
        return DPB_ERR_NO_MEMORY;
    free(set->notes);
    set->notes = notes.text;
    return DPB_OK;
}

void baseline_about(const dpb_json *root, struct dpb_baseline_about *about)
{
    const dpb_json *content = dpb_json_get(root, "content");

    *about = (struct dpb_baseline_about){
            .price = dpb_json_as_real(dpb_json_get(content, "price_usd_per_h"), NAN)};
    snprintf(about->name, sizeof(about->name), "%s", text_of(content, "name"));
    snprintf(about->commit, sizeof(about->commit), "%s", text_of(content, "commit"));
    snprintf(about->date, sizeof(about->date), "%s", text_of(content, "date"));
    snprintf(about->tool, sizeof(about->tool), "%s", text_of(content, "tool"));
    snprintf(about->price_date, sizeof(about->price_date), "%s", text_of(content, "price_date"));
    snprintf(about->sha256, sizeof(about->sha256), "%s", text_of(root, "sha256"));
}

dpb_status baseline_load(const char *path, dpb_json **root)
{
    struct dpb_str text = {0};
    char sha256[DPB_SHA256_TEXT_BYTES], why[256];
    dpb_status st = dpb_file_read_most(path, BASELINE_BYTES_MAX, &text);

    if (st < 0)
        return st;
    st = dpb_json_parse(text.text ? text.text : "", text.length, root, why);
    dpb_str_release(&text);
    if (st < 0) {
        dpb_error("%s: %s", path, why);
        dpb_log_hint("the baseline is damaged: take it from git, or promote another one");
        return DPB_ERR_CORRUPT;
    }
    if (strcmp(text_of(*root, "schema"), DPB_BASELINE_SCHEMA) != 0) {
        dpb_error("%s: it is no baseline of this version (\"schema\" is \"%.40s\", not \"%s\")",
                  path, text_of(*root, "schema"), DPB_BASELINE_SCHEMA);
        st = DPB_ERR_CORRUPT;
    } else {
        st = baseline_hash(dpb_json_get(*root, "content"), sha256);
        if (st == DPB_OK && strcmp(sha256, text_of(*root, "sha256")) != 0) {
            dpb_error("%s: its content is not what was saved (SHA-256 %.12s..., not %.12s...)",
                      path, sha256, text_of(*root, "sha256"));
            dpb_log_hint("baselines are not edited: take it from git, or save and promote another");
            st = DPB_ERR_CORRUPT;
        }
    }
    if (st < 0)
        dpb_json_free(*root);
    return st;
}

bool dpb_baseline_is(const char *path)
{
    struct dpb_str text = {0};
    FILE *file = fopen(path, "r");
    char head[512];

    if (!file)
        return false;
    const size_t count = fread(head, 1, sizeof(head), file);
    fclose(file);
    dpb_str_append_bytes(&text, head, count);
    const bool is = text.text && strstr(text.text, "dpb.baseline/");
    dpb_str_release(&text);
    return is;
}

dpb_status dpb_baseline_read(const char *path, struct dpb_gate_set *set,
                             struct dpb_baseline_about *about)
{
    struct dpb_baseline_about own;
    dpb_json *root;
    dpb_json_walk walk = {0};
    const dpb_json *cell;

    DPB_TRY(baseline_load(path, &root));
    baseline_about(root, &own);
    dpb_status st = baseline_check_anchor(path, &own);
    set->price = own.price;
    set->saved_s = isnan(seconds_of(own.date)) ? 0 : seconds_of(own.date);
    while (st == DPB_OK &&
           (cell = dpb_json_next(dpb_json_path(root, "content/cells"), &walk, NULL)))
        st = read_cell(path, cell, set);
    dpb_json_free(root);
    if (st == DPB_OK)
        st = note_age(&own, set);
    if (st == DPB_OK && !set->source && !(set->source = strdup(path)))
        st = DPB_ERR_NO_MEMORY;
    if (st == DPB_OK && about)
        *about = own;
    return st;
}

/* ---- what changed ---- */

static void add_change(dpb_json *list, const char *cell, const char *key, const char *from,
                       const char *to)
{
    dpb_json *change = dpb_json_object();

    if (cell)
        dpb_json_set_string(change, "cell", cell);
    dpb_json_set_string(change, "key", key);
    dpb_json_set_string(change, "from", from);
    dpb_json_set_string(change, "to", to);
    dpb_json_append(list, change);
}

static dpb_json *diff_about(const struct dpb_baseline_about *from,
                            const struct dpb_baseline_about *to)
{
    char price[2][32];
    dpb_json *list = dpb_json_array();
    const char *const pairs[][3] = {{"commit", from->commit, to->commit},
                                    {"date", from->date, to->date},
                                    {"tool", from->tool, to->tool},
                                    {"price", price[0], price[1]},
                                    {"price-date", from->price_date, to->price_date}};

    snprintf(price[0], sizeof(price[0]), "%.6g", from->price);
    snprintf(price[1], sizeof(price[1]), "%.6g", to->price);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (strcmp(pairs[i][1], pairs[i][2]) != 0)
            add_change(list, NULL, pairs[i][0], pairs[i][1], pairs[i][2]);
    return list;
}

static void diff_facts(const struct dpb_gate_cell *from, const struct dpb_gate_cell *to,
                       dpb_json *list)
{
    for (size_t i = 0; i < from->fact_count; i++) {
        const char *other = dpb_gate_cell_fact(to, from->facts[i].key);

        if (!other || strcmp(other, from->facts[i].text) != 0)
            add_change(list, from->name, from->facts[i].key, from->facts[i].text, other);
    }
    for (size_t i = 0; i < to->fact_count; i++)
        if (!dpb_gate_cell_fact(from, to->facts[i].key))
            add_change(list, from->name, to->facts[i].key, NULL, to->facts[i].text);
}

/* Mean over the runs that have the metric. */
static double mean_of(const double *values, size_t count, size_t *used)
{
    double sum = 0;

    *used = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i])) {
            sum += values[i];
            ++*used;
        }
    return *used ? sum / (double)*used : NAN;
}

static void diff_metrics(const struct dpb_gate_cell *from, const struct dpb_gate_cell *to,
                         dpb_json *list)
{
    for (size_t i = 0; i < from->metric_count; i++) {
        const char *name = from->metrics[i].metric->name;
        const double *other = dpb_gate_cell_values(to, name);
        size_t runs_from, runs_to = 0;
        const double a = mean_of(from->metrics[i].values, from->run_count, &runs_from);
        const double b = other ? mean_of(other, to->run_count, &runs_to) : NAN;
        dpb_json *json = dpb_json_object();

        dpb_json_set_string(json, "cell", from->name);
        dpb_json_set_string(json, "metric", name);
        dpb_json_set_string(json, "unit", from->metrics[i].metric->unit);
        dpb_json_set_real(json, "from", a);
        dpb_json_set_real(json, "to", b);
        dpb_json_set_real(json, "ratio", b / a);
        dpb_json_set_int(json, "runs_from", (int64_t)runs_from);
        dpb_json_set_int(json, "runs_to", (int64_t)runs_to);
        dpb_json_append(list, json);
    }
}

static const struct dpb_gate_cell *twin(const struct dpb_gate_set *set,
                                        const struct dpb_gate_cell *cell)
{
    for (size_t i = 0; i < set->cell_count; i++)
        if (strcmp(set->cells[i].name, cell->name) == 0)
            return &set->cells[i];
    return NULL;
}

static dpb_json *cells_without(const struct dpb_gate_set *set, const struct dpb_gate_set *other)
{
    dpb_json *list = dpb_json_array();

    for (size_t i = 0; i < set->cell_count; i++)
        if (!twin(other, &set->cells[i]))
            dpb_json_append(list, dpb_json_string(set->cells[i].name));
    return list;
}

dpb_json *dpb_baseline_diff(const struct dpb_gate_set *from,
                            const struct dpb_baseline_about *from_about,
                            const struct dpb_gate_set *to,
                            const struct dpb_baseline_about *to_about)
{
    dpb_json *json = dpb_json_object(), *facts = dpb_json_array(), *metrics = dpb_json_array();

    dpb_json_set(json, "about", diff_about(from_about, to_about));
    for (size_t i = 0; i < from->cell_count; i++) {
        const struct dpb_gate_cell *other = twin(to, &from->cells[i]);

        if (!other)
            continue;
        diff_facts(&from->cells[i], other, facts);
        diff_metrics(&from->cells[i], other, metrics);
    }
    dpb_json_set(json, "facts", facts);
    dpb_json_set(json, "cells_gone", cells_without(from, to));
    dpb_json_set(json, "cells_new", cells_without(to, from));
    dpb_json_set(json, "metrics", metrics);
    return json;
}
