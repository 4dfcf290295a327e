/* dpbench baseline: what candidates are compared with, and who decided so. */
#include "dpb_cli.h"

#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_baseline.h"
#include "dpb_clock.h"
#include "dpb_gate_report.h"
#include "dpb_host.h"
#include "dpb_import.h"
#include "dpb_log.h"

struct baseline_options {
    char store[DPB_OPTION_TEXT_BYTES], name[DPB_OPTION_TEXT_BYTES];
    char reason[DPB_OPTION_TEXT_BYTES], commit[DPB_OPTION_TEXT_BYTES];
    char price_date[DPB_OPTION_TEXT_BYTES], format[DPB_OPTION_TEXT_BYTES];
    double price;
    bool higher_is_better, json;
};

#define AT(member) offsetof(struct baseline_options, member)
#define TEXT_ROW(row_name, member, default_value, heading, text)                                   \
    {                                                                                              \
        .name = row_name, .type = DPB_OPT_TEXT, .offset = AT(member),                              \
        .default_text = default_value, .category = heading, .help = text                           \
    }

static const struct dpb_option rows[] = {
        TEXT_ROW("store", store, DPB_BASELINE_STORE, "Baseline", "folder of the baselines"),
        TEXT_ROW("name", name, "main", "Baseline", "what the baseline is called (save)"),
        TEXT_ROW("reason", reason, "", "Baseline", "why (promote, rollback); kept for ever"),
        TEXT_ROW("commit", commit, "", "Baseline",
                 "commit that was measured (save); default: none is told"),
        {.name = "price",
         .type = DPB_OPT_FLOAT,
         .offset = AT(price),
         .default_text = "auto",
         .max = 1e6,
         .category = "Baseline",
         .unit = "USD/h",
         .help = "USD per accelerator and hour (save); auto: none, no costs",
         .flags = DPB_OPT_AUTO},
        TEXT_ROW("price-date", price_date, "", "Baseline", "day of that price (save)"),
        TEXT_ROW("format", format, "", "Input", "format of other tools' files (save)"),
        {.name = "higher-is-better",
         .type = DPB_OPT_BOOL,
         .offset = AT(higher_is_better),
         .default_text = "off",
         .category = "Input",
         .help = "values of a csv are rates, not times (save)"},
        DPB_ROW_JSON(struct baseline_options, "print JSON"),
};

static const struct dpb_option_table table = {"command", "baseline", rows,
                                              sizeof(rows) / sizeof(rows[0]),
                                              sizeof(struct baseline_options)};

static const char *who(void)
{
    const struct passwd *user = getpwuid(getuid());

    return user ? user->pw_name : "";
}

static dpb_status need(const char *action, size_t have, size_t least, size_t most,
                       const char *arguments)
{
    if (have >= least && have <= most)
        return DPB_OK;
    dpb_error("baseline %s: %zu arguments", action, have);
    dpb_log_hint("`dpbench baseline %s %s`", action, arguments);
    return DPB_ERR_USAGE;
}

static dpb_status save(const struct baseline_options *o, const char *const *files, size_t count)
{
    struct dpb_gate_set set = {.price = o->price};
    struct dpb_baseline_about about = {.price = o->price};
    char id[DPB_BASELINE_ID_BYTES];
    dpb_status st = need("save", count, 1, 64, "RUN... --name NAME");

    snprintf(about.name, sizeof(about.name), "%.63s", o->name);
    snprintf(about.commit, sizeof(about.commit), "%.64s", o->commit);
    snprintf(about.price_date, sizeof(about.price_date), "%.31s", o->price_date);
    dpb_clock_utc_text(about.date, sizeof(about.date));
    dpb_tool_version_long(about.tool, sizeof(about.tool));
    for (size_t i = 0; st == DPB_OK && i < count; i++)
        st = dpb_import_side(files[i], o->format[0] ? o->format : NULL, o->higher_is_better,
                             DPB_GATE_SIDE_ALL, o->price, &set);
    if (st == DPB_OK)
        st = dpb_baseline_save(o->store, &set, &about, id);
    dpb_gate_set_release(&set);
    if (st < 0)
        return st;
    printf("%s\n", id);
    dpb_info("saved; `dpbench baseline promote %s %s --reason ...` makes it the anchor", o->name,
             id);
    return DPB_OK;
}

static dpb_status list(const struct baseline_options *o)
{
    dpb_json *items;
    const dpb_json *item;
    dpb_json_walk walk = {0};

    DPB_TRY(dpb_baseline_list(o->store, &items));
    if (o->json)
        return dpb_json_print(items);
    printf("%-20s  %-12s  %-6s  %-20s  %8s  %5s  %5s  %s\n", "name", "id", "anchor", "date",
           "age days", "cells", "runs", "commit");
    while ((item = dpb_json_next(items, &walk, NULL)))
        printf("%-20s  %-12s  %-6s  %.19sZ  %8.1f  %5lld  %5lld  %.12s\n",
               dpb_json_as_string(dpb_json_get(item, "name"), ""),
               dpb_json_as_string(dpb_json_get(item, "id"), ""),
               dpb_json_as_bool(dpb_json_get(item, "is_anchor"), false) ? "yes" : "",
               dpb_json_as_string(dpb_json_get(item, "date"), ""),
               dpb_json_as_real(dpb_json_get(item, "age_days"), NAN),
               (long long)dpb_json_as_int(dpb_json_get(item, "cells"), 0),
               (long long)dpb_json_as_int(dpb_json_get(item, "runs"), 0),
               dpb_json_as_string(dpb_json_get(item, "commit"), ""));
    dpb_json_free(items);
    return DPB_OK;
}

struct loaded {
    struct dpb_gate_set set;
    struct dpb_baseline_about about;
};

static dpb_status load(const struct baseline_options *o, const char *text, struct loaded *loaded)
{
    struct dpb_str path = {0};

    *loaded = (struct loaded){.set = {.price = NAN}};
    DPB_TRY(dpb_baseline_find(o->store, text, &path));
    const dpb_status st = dpb_baseline_read(path.text, &loaded->set, &loaded->about);
    dpb_str_release(&path);
    if (st == DPB_OK && loaded->set.notes)
        dpb_warn("%s", loaded->set.notes);
    return st;
}

static dpb_json *show_json(const struct loaded *baseline)
{
    const struct dpb_baseline_about *about = &baseline->about;
    dpb_json *json = dpb_import_json(&baseline->set);

    dpb_json_set_string(json, "name", about->name);
    dpb_json_set_string(json, "sha256", about->sha256);
    dpb_json_set_string(json, "date", about->date);
    dpb_json_set_string(json, "commit", about->commit);
    dpb_json_set_string(json, "tool", about->tool);
    dpb_json_set_real(json, "price_usd_per_h", about->price);
    dpb_json_set_string(json, "price_date", about->price_date);
    return json;
}

static void print_values(const struct dpb_gate_cell *cell)
{
    printf("\n%s\n", cell->name);
    for (size_t m = 0; m < cell->metric_count; m++) {
        printf("  %-26s %-9s", cell->metrics[m].metric->name, cell->metrics[m].metric->unit);
        for (size_t i = 0; i < cell->run_count; i++)
            printf(" %.6g", cell->metrics[m].values[i]);
        printf("\n");
    }
}

static dpb_status show(const struct baseline_options *o, const char *text)
{
    struct loaded baseline;
    dpb_status st = load(o, text, &baseline);

    if (st == DPB_OK && o->json)
        st = dpb_json_print(show_json(&baseline));
    else if (st == DPB_OK) {
        printf("%s %.12s  %s  commit %s  by %s\n", baseline.about.name, baseline.about.sha256,
               baseline.about.date, baseline.about.commit[0] ? baseline.about.commit : "not told",
               baseline.about.tool);
        for (size_t i = 0; i < baseline.set.cell_count; i++)
            print_values(&baseline.set.cells[i]);
    }
    dpb_gate_set_release(&baseline.set);
    return st;
}

static const char *text_or_dash(const dpb_json *item, const char *key)
{
    return dpb_json_as_string(dpb_json_get(item, key), "-");
}

static void print_changes(const dpb_json *list)
{
    const dpb_json *item;
    dpb_json_walk walk = {0};

    while ((item = dpb_json_next(list, &walk, NULL)))
        printf("%s%s%s: %s -> %s\n", dpb_json_get(item, "cell") ? text_or_dash(item, "cell") : "",
               dpb_json_get(item, "cell") ? ": " : "", text_or_dash(item, "key"),
               text_or_dash(item, "from"), text_or_dash(item, "to"));
}

static void print_names(const char *what, const dpb_json *list)
{
    for (size_t i = 0; i < dpb_json_size(list); i++)
        printf("%s: %s\n", what, dpb_json_as_string(dpb_json_at(list, i), ""));
}

static void print_metric(const dpb_json *item)
{
    const char *unit = dpb_json_as_string(dpb_json_get(item, "unit"), "");
    char from[DPB_GATE_VALUE_BYTES], to[DPB_GATE_VALUE_BYTES];

    dpb_gate_value_text(dpb_json_as_real(dpb_json_get(item, "from"), NAN), unit, from);
    dpb_gate_value_text(dpb_json_as_real(dpb_json_get(item, "to"), NAN), unit, to);
    printf("%s: %s: %s -> %s (x %.4f; %lld -> %lld runs)\n", text_or_dash(item, "cell"),
           text_or_dash(item, "metric"), from, to,
           dpb_json_as_real(dpb_json_get(item, "ratio"), NAN),
           (long long)dpb_json_as_int(dpb_json_get(item, "runs_from"), 0),
           (long long)dpb_json_as_int(dpb_json_get(item, "runs_to"), 0));
}

static void print_diff(const dpb_json *diff)
{
    const dpb_json *item;
    dpb_json_walk walk = {0};

    print_changes(dpb_json_get(diff, "about"));
    print_changes(dpb_json_get(diff, "facts"));
    print_names("gone", dpb_json_get(diff, "cells_gone"));
    print_names("new", dpb_json_get(diff, "cells_new"));
    while ((item = dpb_json_next(dpb_json_get(diff, "metrics"), &walk, NULL)))
        print_metric(item);
}

static dpb_status diff(const struct baseline_options *o, const char *from_text, const char *to_text)
{
    struct loaded from = {0}, to = {0};
    dpb_status st = load(o, from_text, &from);

    if (st == DPB_OK)
        st = load(o, to_text, &to);
    if (st == DPB_OK) {
        dpb_json *json = dpb_baseline_diff(&from.set, &from.about, &to.set, &to.about);

        if (o->json) {
            st = dpb_json_print(json);
        } else {
            print_diff(json);
            dpb_json_free(json);
        }
    }
    dpb_gate_set_release(&from.set);
    dpb_gate_set_release(&to.set);
    return st;
}

static dpb_status rollback(const struct baseline_options *o, const char *name)
{
    char id[DPB_BASELINE_ID_BYTES];

    DPB_TRY(dpb_baseline_rollback(o->store, name, o->reason, who(), id));
    printf("%s\n", id);
    return DPB_OK;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct baseline_options *o = options;
    const char *action = line->arguments[0], *const *rest = line->arguments + 1;
    const size_t count = line->argument_count - 1;

    (void)registry;
    if (strcmp(action, "save") == 0)
        return save(o, rest, count);
    if (strcmp(action, "list") == 0) {
        DPB_TRY(need(action, count, 0, 0, ""));
        return list(o);
    }
    if (strcmp(action, "show") == 0) {
        DPB_TRY(need(action, count, 1, 1, "FILE|NAME|NAME@ID"));
        return show(o, rest[0]);
    }
    if (strcmp(action, "promote") == 0) {
        DPB_TRY(need(action, count, 2, 2, "NAME ID --reason TEXT"));
        return dpb_baseline_promote(o->store, rest[0], rest[1], o->reason, who());
    }
    if (strcmp(action, "rollback") == 0) {
        DPB_TRY(need(action, count, 1, 1, "NAME --reason TEXT"));
        return rollback(o, rest[0]);
    }
    if (strcmp(action, "diff") == 0) {
        DPB_TRY(need(action, count, 2, 2, "FROM TO"));
        return diff(o, rest[0], rest[1]);
    }
    dpb_error("baseline \"%s\": it is no action", action);
    dpb_log_hint("actions are save, list, show, promote, rollback and diff");
    return DPB_ERR_USAGE;
}

const struct dpb_verb dpb_verb_baseline = {
        .command = {.name = "baseline",
                    .arguments = "save|list|show|promote|rollback|diff [ARGUMENT...]",
                    .summary = "keep what candidates are compared with",
                    .description =
                            "save RUN... keeps the values of runs, or of other tools' files, and "
                            "prints an ID. promote NAME ID makes it the anchor that gates compare "
                            "with, rollback NAME the one before; both need --reason and are "
                            "logged. show, diff: FILE, NAME or NAME@ID.",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 64},
        .run = run,
};
