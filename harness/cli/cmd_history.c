/* dpbench history: values commit after commit, where they changed, and how far they have gone. */
#include "dpb_cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "dpb_changepoint.h"
#include "dpb_history.h"
#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_trend.h"

struct history_options {
    char db[DPB_OPTION_TEXT_BYTES], commit[DPB_OPTION_TEXT_BYTES], format[DPB_OPTION_TEXT_BYTES];
    char metric[DPB_OPTION_TEXT_BYTES], label[DPB_OPTION_TEXT_BYTES];
    char reason[DPB_OPTION_TEXT_BYTES], out[DPB_OPTION_TEXT_BYTES];
    double margin, least_change;
    int64_t seed;
    bool json;
};

#define AT(member) offsetof(struct history_options, member)
#define TEXT_ROW(row_name, member, default_value, heading, text)                                   \
    {                                                                                              \
        .name = row_name, .type = DPB_OPT_TEXT, .offset = AT(member),                              \
        .default_text = default_value, .category = heading, .help = text                           \
    }
#define RATIO_ROW(row_name, member, default_value, text)                                           \
    {                                                                                              \
        .name = row_name, .type = DPB_OPT_RATIO, .offset = AT(member),                             \
        .default_text = default_value, .min = 0, .max = 10, .category = "History", .help = text    \
    }

static const struct dpb_option rows[] = {
        TEXT_ROW("db", db, "history.db", "History", "the SQLite file"),
        TEXT_ROW("commit", commit, "", "Input",
                 "commit that was measured (add); default: that of the dpbench of each record"),
        TEXT_ROW("format", format, "", "Input", "format of other tools' files (add)"),
        TEXT_ROW("metric", metric, "step-time-median", "History", "what is looked at"),
        RATIO_ROW("margin", margin, "5%",
                  "worse than the last release by this is an alarm (drift)"),
        RATIO_ROW("least-change", least_change, "0", "smaller changes are not shown (trend)"),
        {.name = "seed",
         .type = DPB_OPT_INT,
         .offset = AT(seed),
         .default_text = "1",
         .min = 0,
         .max = 1e15,
         .category = "History",
         .help = "of the permutations that tell changes from chance (trend)"},
        TEXT_ROW("label", label, "", "History", "name of a release (release)"),
        TEXT_ROW("reason", reason, "", "History", "why it is the anchor from now on (release)"),
        DPB_ROW_OUT(struct history_options, "folder of the plot (trend), or file (export)"),
        DPB_ROW_JSON(struct history_options, "print JSON (list, trend, drift, export)"),
};

static const struct dpb_option_table table = {
        "command", "history", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct history_options)};

/* ---- add ---- */

/* Files of others do not tell when they were made: now, so that additions stay in order. */
static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool is_records(const char *path)
{
    const char *dot = strrchr(path, '.');
    struct stat about;

    return (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) ||
           (dot && strcmp(dot, ".jsonl") == 0);
}

/* What is added from one path: records, or the values of another tool's file. */
struct input {
    bool is_records;
    struct dpb_records records;
    struct dpb_gate_set set;
};

static void release_input(struct input *input)
{
    dpb_records_release(&input->records);
    dpb_gate_set_release(&input->set);
}

static dpb_status read_input(const struct history_options *o, const char *path, struct input *input)
{
    const char *commit = o->commit[0] ? o->commit : NULL;

    *input = (struct input){.is_records = is_records(path), .set = {.price = NAN}};
    if (!input->is_records) {
        DPB_TRY(dpb_import_side(path, o->format[0] ? o->format : NULL, false, DPB_GATE_SIDE_ALL,
                                NAN, &input->set));
        return dpb_history_check_commit(commit);
    }
    DPB_TRY(dpb_records_read(path, &input->records));
    for (size_t i = 0; i < input->records.count; i++)
        DPB_TRY(dpb_history_check_commit(dpb_history_commit_of(input->records.items[i], commit)));
    return DPB_OK;
}

static dpb_status add_inputs(const struct history_options *o, const char *const *paths,
                             struct input *inputs, size_t count)
{
    dpb_history *history;
    dpb_status st = dpb_history_open(o->db, true, &history);

    if (st < 0)
        return st;
    for (size_t i = 0; st == DPB_OK && i < count; i++) {
        struct dpb_history_added added = {0};

        st = inputs[i].is_records
                     ? dpb_history_add_records(history, &inputs[i].records,
                                               o->commit[0] ? o->commit : NULL, NAN, &added)
                     : dpb_history_add(history, &inputs[i].set, o->commit, now_s(), &added);
        if (st == DPB_OK)
            printf("%s: %zu run%s added, %zu known, %zu left out\n", paths[i], added.added,
                   added.added == 1 ? "" : "s", added.known, added.left_out);
    }
    dpb_history_close(history);
    return st;
}

/* All are read before anything is made: what cannot be read makes no history. */
static dpb_status add(const struct history_options *o, const char *const *paths, size_t count)
{
    struct input *inputs = calloc(count, sizeof(*inputs));
    dpb_status st = inputs ? DPB_OK : DPB_ERR_NO_MEMORY;
    size_t read = 0;

    while (st == DPB_OK && read < count) {
        st = read_input(o, paths[read], &inputs[read]);
        read++;
    }
    if (st == DPB_OK)
        st = add_inputs(o, paths, inputs, count);
    for (size_t i = 0; i < read; i++)
        release_input(&inputs[i]);
    free(inputs);
    return st;
}

/* ---- list, export ---- */

static dpb_status list(dpb_history *history, const struct history_options *o)
{
    dpb_json *items;
    const dpb_json *item;
    dpb_json_walk walk = {0};

    DPB_TRY(dpb_history_list(history, &items));
    if (o->json)
        return dpb_json_print(items);
    printf("%8s  %6s  %-26s  %s\n", "commits", "runs", "metric", "cell");
    while ((item = dpb_json_next(items, &walk, NULL)))
        printf("%8lld  %6lld  %-26s  %s\n",
               (long long)dpb_json_as_int(dpb_json_get(item, "commits"), 0),
               (long long)dpb_json_as_int(dpb_json_get(item, "runs"), 0),
               dpb_json_as_string(dpb_json_get(item, "metric"), ""),
               dpb_json_as_string(dpb_json_get(item, "cell"), ""));
    dpb_json_free(items);
    return DPB_OK;
}

static dpb_status export(dpb_history *history, const struct history_options *o)
{
    struct dpb_str text = {0};
    dpb_json *items = NULL;
    dpb_status st = o->json ? dpb_history_export_json(history, &items)
                            : dpb_history_export_csv(history, &text);

    if (st == DPB_OK && o->json) {
        st = dpb_json_write(items, true, &text);
        dpb_str_append(&text, "\n");
        dpb_json_free(items);
    }
    if (st == DPB_OK && o->out[0])
        st = dpb_file_write_atomic(o->out, text.text, text.length);
    else if (st == DPB_OK)
        fwrite(text.text, 1, text.length, stdout);
    dpb_str_release(&text);
    return st;
}

/* ---- trend, drift ---- */

struct series {
    struct dpb_history_point *points;
    size_t count;
    const struct dpb_gate_metric *metric;
};

static dpb_status read_series(dpb_history *history, const struct history_options *o,
                              const char *cell, struct series *series)
{
    series->metric = dpb_import_metric_find(o->metric);
    if (!series->metric) {
        dpb_error("--metric \"%s\": there is no such metric", o->metric);
        dpb_log_hint("`dpbench history list` names those that there are");
        return DPB_ERR_USAGE;
    }
    return dpb_history_points(history, cell, o->metric, &series->points, &series->count);
}

static dpb_status find_changes(const struct series *series, const struct history_options *o,
                               struct dpb_changepoint **changes, size_t *count)
{
    struct dpb_changepoint_options options = DPB_CHANGEPOINT_OPTIONS_DEFAULT;
    double *values = malloc((series->count + 1) * sizeof(*values));

    if (!values)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < series->count; i++)
        values[i] = series->points[i].value;
    options.seed = (uint64_t)o->seed;
    options.least_change = o->least_change;
    const dpb_status st = dpb_changepoints_find(values, series->count, &options, changes, count);
    free(values);
    return st;
}

static dpb_json *trend_json(const struct series *series, const struct history_options *o,
                            const struct dpb_changepoint *changes, size_t change_count)
{
    dpb_json *json = dpb_json_object(), *points = dpb_json_array(), *list = dpb_json_array();

    for (size_t i = 0; i < series->count; i++) {
        dpb_json *point = dpb_json_object();

        dpb_json_set_string(point, "commit", series->points[i].commit);
        dpb_json_set_real(point, "time_s", series->points[i].time_s);
        dpb_json_set_int(point, "runs", (int64_t)series->points[i].runs);
        dpb_json_set_real(point, "value", series->points[i].value);
        dpb_json_append(points, point);
    }
    for (size_t i = 0; i < change_count; i++) {
        dpb_json *change = dpb_json_object();

        dpb_json_set_int(change, "index", (int64_t)changes[i].index);
        dpb_json_set_string(change, "commit", series->points[changes[i].index].commit);
        dpb_json_set_real(change, "change", changes[i].change);
        dpb_json_set_real(change, "p", changes[i].p);
        dpb_json_set_int(change, "block", (int64_t)changes[i].block);
        dpb_json_set_bool(change, "is_confirmed", changes[i].is_confirmed);
        dpb_json_append(list, change);
    }
    dpb_json_set_string(json, "metric", series->metric->name);
    dpb_json_set_string(json, "unit", series->metric->unit);
    dpb_json_set_int(json, "seed", o->seed);
    dpb_json_set(json, "points", points);
    dpb_json_set(json, "changes", list);
    return json;
}

static dpb_status trend(dpb_history *history, const struct history_options *o, const char *cell)
{
    struct series series = {0};
    struct dpb_changepoint *changes = NULL;
    size_t count = 0;

    dpb_status st = read_series(history, o, cell, &series);
    if (st == DPB_OK)
        st = find_changes(&series, o, &changes, &count);
    const struct dpb_trend found = {cell,         series.metric, series.points,
                                    series.count, changes,       count};
    if (st == DPB_OK)
        st = o->json ? dpb_json_print(trend_json(&series, o, changes, count))
                     : dpb_trend_print(&found, stdout);
    if (st == DPB_OK && o->out[0])
        st = dpb_trend_plot(&found, o->out);
    free(changes);
    free(series.points);
    return st;
}

static dpb_json *drift_json(const struct series *series, const struct history_options *o,
                            const char *cell, const struct dpb_history_drift *found)
{
    const struct dpb_history_point *anchor = &series->points[found->anchor];
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "cell", cell);
    dpb_json_set_string(json, "metric", series->metric->name);
    dpb_json_set_string(json, "anchor", anchor->commit);
    dpb_json_set_bool(json, "anchor_is_release", anchor->is_release);
    dpb_json_set_int(json, "commits_since", (int64_t)(series->count - 1 - found->anchor));
    dpb_json_set_real(json, "ratio", found->ratio);
    dpb_json_set_real(json, "margin_ratio", o->margin);
    dpb_json_set_bool(json, "is_alarm", found->is_alarm);
    if (found->is_alarm)
        dpb_json_set_string(json, "beyond_since", series->points[found->first].commit);
    else
        dpb_json_set_absent(json, "beyond_since", "the level is within the margin");
    return json;
}

static void print_drift(const struct series *series, const struct history_options *o,
                        const char *cell, const struct dpb_history_drift *found)
{
    const struct dpb_history_point *anchor = &series->points[found->anchor];
    const size_t since = series->count - 1 - found->anchor;

    printf("%s of \"%s\": x %.4f since %s %.12s, %zu commit%s ago: %s\n", o->metric, cell,
           found->ratio, anchor->is_release ? "release" : "the first commit", anchor->commit, since,
           since == 1 ? "" : "s", found->is_alarm ? "ALARM" : "within the margin");
    if (found->is_alarm)
        printf("beyond %.3g %% since %.12s, and in every one of the %zu commits after it\n",
               100 * o->margin, series->points[found->first].commit,
               series->count - 1 - found->first);
}

static dpb_status drift(dpb_history *history, const struct history_options *o, const char *cell)
{
    struct series series = {0};
    struct dpb_history_drift found;

    DPB_TRY(read_series(history, o, cell, &series));
    dpb_history_drift(series.points, series.count, o->margin, series.metric->higher_is_better, 3,
                      &found);
    if (isnan(found.ratio)) {
        dpb_error("%s of \"%s\" was 0 at %.12s: there is no ratio to it", o->metric, cell,
                  series.points[found.anchor].commit);
        dpb_log_hint("`dpbench history release COMMIT` sets another commit to compare with");
        free(series.points);
        return DPB_ERR_NO_DATA;
    }
    dpb_status st = DPB_OK;
    if (o->json)
        st = dpb_json_print(drift_json(&series, o, cell, &found));
    else
        print_drift(&series, o, cell, &found);
    free(series.points);
    return st == DPB_OK && found.is_alarm ? DPB_ERR_CHECK : st;
}

/* ---- the verb ---- */

static const struct {
    const char *name, *arguments;
    size_t least, most;
} actions[] = {{"add", "RUN...", 1, 63}, {"list", "", 0, 0},   {"trend", "CELL", 1, 1},
               {"drift", "CELL", 1, 1},  {"export", "", 0, 0}, {"release", "COMMIT", 1, 1},
               {"check", "", 0, 0}};
#define ACTION_COUNT (sizeof(actions) / sizeof(actions[0]))

static dpb_status act(dpb_history *history, const struct history_options *o, const char *action,
                      const char *argument)
{
    if (strcmp(action, "list") == 0)
        return list(history, o);
    if (strcmp(action, "trend") == 0)
        return trend(history, o, argument);
    if (strcmp(action, "drift") == 0)
        return drift(history, o, argument);
    if (strcmp(action, "export") == 0)
        return export(history, o);
    if (strcmp(action, "release") == 0)
        return dpb_history_release(history, argument, o->label, o->reason);
    return dpb_history_check(history);
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct history_options *o = options;
    const char *action = line->arguments[0];
    const size_t count = line->argument_count - 1;
    dpb_history *history;
    size_t i = 0;

    (void)registry;
    while (i < ACTION_COUNT && strcmp(actions[i].name, action) != 0)
        i++;
    if (i == ACTION_COUNT || count < actions[i].least || count > actions[i].most) {
        dpb_error("history %s: %s", action,
                  i == ACTION_COUNT ? "it is no action" : "the number of arguments is wrong");
        if (i == ACTION_COUNT)
            dpb_log_hint("actions are add, list, trend, drift, export, release and check");
        else
            dpb_log_hint("`dpbench history %s %s`", action, actions[i].arguments);
        return DPB_ERR_USAGE;
    }
    if (strcmp(action, "add") == 0)
        return add(o, line->arguments + 1, count);
    DPB_TRY(dpb_history_open(o->db, false, &history));
    const dpb_status st = act(history, o, action, count > 0 ? line->arguments[1] : NULL);
    dpb_history_close(history);
    return st;
}

const struct dpb_verb dpb_verb_history = {
        .command = {.name = "history",
                    .arguments = "add|list|trend|drift|export|release|check [ARGUMENT...]",
                    .summary = "follow results from commit to commit",
                    .description =
                            "add RUN... puts records, or other tools' files, into the history; "
                            "list names cells and metrics; trend CELL finds commits at which the "
                            "level changed, and plots them into -o; drift CELL fails when the "
                            "level has gone from the last release's; release COMMIT sets that; "
                            "export writes every value; check reads the whole file.",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 64},
        .run = run,
};
