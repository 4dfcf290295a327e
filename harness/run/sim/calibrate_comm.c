/* calibrate_comm.c: measured collectives as curves, and the link of the closed forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "calibrate_private.h"
#include "dpb_comm_bench.h"
#include "dpb_log.h"
#include "dpb_network.h"
#include "dpb_run_folder.h"
#include "dpb_stats.h"

/* One row of `dpbench comm`. */
struct point {
    enum dpb_coll_kind kind;
    int ranks;
    double bytes, ns;
    size_t source; /* of the texts */
};

struct points {
    struct point *items;
    size_t count;
    char **sources; /* "dpbench comm out/records.jsonl, shm direct ..., 2026-12-01" */
    size_t source_count;
    char setting[192]; /* of all: algorithm, type, ... */
    size_t other_settings, not_ok, of_nodes;
};

/* ---- reading ---- */

static bool find_kind(const char *text, enum dpb_coll_kind *kind)
{
    for (int k = 0; k < DPB_COLL_COUNT; k++)
        if (strcmp(dpb_coll_text((enum dpb_coll_kind)k), text) == 0) {
            *kind = (enum dpb_coll_kind)k;
            return true;
        }
    return false;
}

static const char *text_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_string(dpb_json_path(record, path), "");
}

static double real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

static void setting_of(const dpb_json *record, char *text, size_t text_bytes)
{
    char link[96] = "";

    if (dpb_json_as_bool(dpb_json_get(record, "emulated"), false))
        snprintf(link, sizeof(link), " EMULATED link %g GB/s, %g us",
                 real_at(record, "comm/link/bw_bytes_per_s") / 1e9,
                 real_at(record, "comm/link/latency_ns") / 1e3);
    snprintf(text, text_bytes, "%s %s, %s, %s calls%s", text_at(record, "comm/name"),
             text_at(record, "algorithm"), text_at(record, "dtype"), text_at(record, "config/call"),
             link);
}

static dpb_status add_point(struct points *points, const struct point *point)
{
    struct point *grown = realloc(points->items, (points->count + 1) * sizeof(*grown));

    if (!grown)
        return DPB_ERR_NO_MEMORY;
    points->items = grown;
    points->items[points->count++] = *point;
    return DPB_OK;
}

/* One source for each file. */
static dpb_status add_source(struct points *points, const char *file, const dpb_json *record)
{
    char **grown = realloc(points->sources, (points->source_count + 1) * sizeof(*grown));
    struct dpb_str text = {0};

    if (!grown)
        return DPB_ERR_NO_MEMORY;
    points->sources = grown;
    dpb_str_appendf(&text, "dpbench comm %s: %s, %.10s", file, points->setting,
                    text_at(record, "time_utc"));
    points->sources[points->source_count] = text.text;
    return text.failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

static bool is_usable(const dpb_json *record, struct points *points)
{
    const bool is_real = !dpb_json_as_bool(dpb_json_get(record, "simulated"), false);

    if (strcmp(text_at(record, "status"), "ok") != 0 || !is_real ||
        dpb_json_as_int(dpb_json_get(record, "wrong"), 1) != 0) {
        points->not_ok++;
        return false;
    }
    return dpb_json_as_int(dpb_json_get(record, "ranks"), 1) > 1;
}

/* On several nodes, which may have different numbers of ranks? */
static bool is_of_nodes(const dpb_json *record, int ranks)
{
    const dpb_json *each = dpb_json_path(record, "config/ranks_per_node");

    return each && (dpb_json_type(each) == DPB_JSON_NULL || dpb_json_as_int(each, ranks) < ranks);
}

static dpb_status take_record(struct calibrating *c, struct points *points, const char *file,
                              const dpb_json *record, bool *has_source)
{
    struct point point;
    char setting[sizeof(points->setting)];

    if (strcmp(text_at(record, "schema"), DPB_COMM_BENCH_SCHEMA) != 0) {
        dpb_error("\"%s\" has no records of `dpbench comm`: its schema is \"%s\"", file,
                  text_at(record, "schema"));
        dpb_log_hint("--comm takes what `dpbench comm` wrote, --run what run and sweep did");
        return DPB_ERR_CORRUPT;
    }
    if (!is_usable(record, points))
        return DPB_OK;
    DPB_TRY(calibrate_host(c, record, file));
    point = (struct point){.ranks = (int)real_at(record, "ranks"),
                           .bytes = real_at(record, "size_bytes"),
                           .ns = real_at(record, "time_ns/p50")};
    setting_of(record, setting, sizeof(setting));
    if (!points->setting[0])
        memcpy(points->setting, setting, sizeof(setting));
    if (strcmp(points->setting, setting) != 0) {
        points->other_settings++;
        return DPB_OK;
    }
    if (is_of_nodes(record, point.ranks)) {
        points->of_nodes++;
        return DPB_OK;
    }
    if (!find_kind(text_at(record, "collective"), &point.kind) || !(point.ns > 0) ||
        !(point.bytes > 0) || point.ranks > DPB_COMM_RANKS_MAX) {
        dpb_error("\"%s\": a record without collective, size or time", file);
        return DPB_ERR_CORRUPT;
    }
    if (!*has_source)
        DPB_TRY(add_source(points, file, record));
    *has_source = true;
    point.source = points->source_count;
    return add_point(points, &point);
}

/* JSON Lines, or the array that --json prints. */
static dpb_status parse_records(const char *file, const char *text, size_t length, dpb_json **list)
{
    dpb_json *array = NULL;
    char why[256];
    int line = 1;

    if (length > 0 && text[0] == '[') {
        if (dpb_json_parse(text, length, list, why) == DPB_OK)
            return DPB_OK;
        dpb_error("\"%s\": %s", file, why);
        return DPB_ERR_CORRUPT;
    }
    array = dpb_json_array();
    for (const char *at = text, *end; at < text + length; at = end + 1, line++) {
        dpb_json *record = NULL;

        end = memchr(at, '\n', (size_t)(text + length - at));
        if (!end)
            break; /* a line that was cut */
        if (dpb_json_parse(at, (size_t)(end - at), &record, why) != DPB_OK) {
            dpb_error("%s:%d: %s", file, line, why);
            dpb_json_free(array);
            return DPB_ERR_CORRUPT;
        }
        dpb_json_append(array, record);
    }
    *list = array;
    return DPB_OK;
}

static dpb_status read_file(struct calibrating *c, struct points *points, const char *path)
{
    struct stat info;
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    char *file = is_folder ? dpb_path_join(path, DPB_RECORDS_FILE) : strdup(path);
    struct dpb_str text = {0};
    dpb_json *list = NULL;
    bool has_source = false;
    dpb_status st = file ? DPB_OK : DPB_ERR_NO_MEMORY;

    DPB_TRY_GOTO(st, st, out);
    DPB_TRY_GOTO(st, dpb_file_read(file, &text), out);
    DPB_TRY_GOTO(st, parse_records(file, text.text ? text.text : "", text.length, &list), out);
    for (size_t i = 0; st == DPB_OK && i < dpb_json_size(list); i++)
        st = take_record(c, points, file, dpb_json_at(list, i), &has_source);
    points->source_count += has_source;
out:
    dpb_json_free(list);
    dpb_str_release(&text);
    free(file);
    return st;
}

/* ---- curves ---- */

static int by_place(const void *a, const void *b)
{
    const struct point *p = a, *q = b;

    if (p->kind != q->kind)
        return p->kind < q->kind ? -1 : 1;
    if (p->ranks != q->ranks)
        return p->ranks < q->ranks ? -1 : 1;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? -1 : 1;
    return (p->ns > q->ns) - (p->ns < q->ns);
}

/* Of several runs of one size, the median. */
static void merge(struct points *points)
{
    size_t kept = 0;

    qsort(points->items, points->count, sizeof(*points->items), by_place);
    for (size_t i = 0, end; i < points->count; i = end) {
        const struct point *first = &points->items[i];

        for (end = i; end < points->count && points->items[end].kind == first->kind &&
                      points->items[end].ranks == first->ranks &&
                      points->items[end].bytes == first->bytes;)
            end++;
        points->items[kept] = points->items[(i + end - 1) / 2];
        kept++;
    }
    points->count = kept;
}

static dpb_status add_curve(struct calibrating *c, const struct points *points, size_t first,
                            size_t end)
{
    const size_t all = end - first;
    const size_t step = (all + DPB_NETWORK_POINTS - 1) / DPB_NETWORK_POINTS;
    struct dpb_machine *machine = &c->machine;
    struct dpb_machine_curve *curve = &machine->curves[machine->curve_count++];

    if (step > 1)
        calibrate_left_out(c, "%s with %d ranks: of %zu sizes every %zuth is kept",
                           dpb_coll_text(points->items[first].kind), points->items[first].ranks,
                           all, step);
    *curve = (struct dpb_machine_curve){
            .collective = strdup(dpb_coll_text(points->items[first].kind)),
            .ranks = points->items[first].ranks,
            .nodes = 1,
            .source = strdup(points->sources[points->items[first].source]),
            .bytes = calloc(all, sizeof(*curve->bytes)),
            .seconds = calloc(all, sizeof(*curve->seconds)),
    };
    if (!curve->collective || !curve->source || !curve->bytes || !curve->seconds)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = first; i < end; i += step) {
        curve->bytes[curve->count] = points->items[i].bytes;
        curve->seconds[curve->count++] = points->items[i].ns * 1e-9;
    }
    c->most_ranks = curve->ranks > c->most_ranks ? curve->ranks : c->most_ranks;
    return DPB_OK;
}

static dpb_status make_curves(struct calibrating *c, const struct points *points)
{
    c->machine.curves = calloc(points->count + 1, sizeof(*c->machine.curves));
    if (!c->machine.curves)
        return DPB_ERR_NO_MEMORY;
    for (size_t first = 0, end; first < points->count; first = end) {
        for (end = first; end < points->count &&
                          points->items[end].kind == points->items[first].kind &&
                          points->items[end].ranks == points->items[first].ranks;)
            end++;
        DPB_TRY(add_curve(c, points, first, end));
    }
    return DPB_OK;
}

/* ---- every second size from the others ---- */

static dpb_status predict(const struct dpb_network_curve *kept, double bytes, double *ns)
{
    const struct dpb_network network = {
            .name = "held out",
            .ranks_per_node = kept->ranks,
            .inside = {.share = 1},
            .between = {.share = 1},
            .curves = kept,
            .curve_count = 1,
    };
    struct dpb_network_time time;

    DPB_TRY(dpb_network_time(&network, kept->kind, kept->ranks, bytes, &time));
    *ns = time.ns;
    return DPB_OK;
}

/* The last size stays: beyond it nothing is interpolated. */
static bool is_held_out(const struct dpb_machine_curve *curve, int i)
{
    return i % 2 == 1 && i < curve->count - 1;
}

static dpb_status hold_out(const struct dpb_machine_curve *curve, double *errors, size_t *count)
{
    struct dpb_network_curve kept = {.ranks = curve->ranks, .nodes = 1, .source = curve->source};
    double ns;

    find_kind(curve->collective, &kept.kind);
    for (int i = 0; i < curve->count; i++) {
        if (is_held_out(curve, i))
            continue;
        kept.bytes[kept.count] = curve->bytes[i];
        kept.ns[kept.count++] = curve->seconds[i] * 1e9;
    }
    *count = 0;
    for (int i = 0; i < curve->count; i++) {
        if (!is_held_out(curve, i))
            continue;
        DPB_TRY(predict(&kept, curve->bytes[i], &ns));
        errors[(*count)++] = fabs(ns / (curve->seconds[i] * 1e9) - 1);
    }
    return DPB_OK;
}

static dpb_json *curve_json(const struct dpb_machine_curve *curve, const double *errors,
                            size_t count)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "collective", curve->collective);
    dpb_json_set_int(json, "ranks", curve->ranks);
    dpb_json_set_int(json, "points", curve->count);
    dpb_json_set_int(json, "held_out", (int64_t)count);
    calibrate_put_errors(json, "", errors, count, "fewer than 3 sizes");
    return json;
}

static dpb_status check_curves(struct calibrating *c)
{
    const struct dpb_machine *machine = &c->machine;
    dpb_json *list = dpb_json_array();
    double *all = calloc((size_t)machine->curve_count * DPB_NETWORK_POINTS + 1, sizeof(*all));
    size_t total = 0, count;
    dpb_status st = all ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (int i = 0; st == DPB_OK && i < machine->curve_count; i++) {
        st = hold_out(&machine->curves[i], all + total, &count);
        if (st < 0)
            break;
        dpb_json_append(list, curve_json(&machine->curves[i], all + total, count));
        total += count;
    }
    dpb_json_set(c->report, "curves", list);
    if (st >= 0)
        calibrate_put_errors(c->report, "curves_", all, total, "no curve of 3 sizes");
    free(all);
    return st;
}

/* ---- the link of the closed forms ---- */

/* T = steps a + factor S / B. */
static double steps_of(const struct dpb_machine_curve *curve, enum dpb_coll_kind kind)
{
    return (kind == DPB_COLL_ALL_REDUCE ? 2.0 : 1.0) * (curve->ranks - 1);
}

struct fit {
    double latency_s, bytes_per_s;
    double busbw, floor_s; /* the best busbw, the least time */
    size_t points;
};

/* Least squares of the relative errors; both are at least 0. */
static void fit_link(const struct dpb_machine *machine, struct fit *fit)
{
    double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;

    *fit = (struct fit){.floor_s = INFINITY};
    for (int c = 0; c < machine->curve_count; c++) {
        const struct dpb_machine_curve *curve = &machine->curves[c];
        enum dpb_coll_kind kind = DPB_COLL_ALL_REDUCE;

        find_kind(curve->collective, &kind);
        for (int i = 0; i < curve->count; i++) {
            const double y = curve->seconds[i];
            const double moved = dpb_coll_busbw_factor(kind, curve->ranks) * curve->bytes[i];
            const double a = steps_of(curve, kind) / y, b = moved / y;

            aa += a * a, ab += a * b, bb += b * b, ay += a, by += b;
            fit->busbw = fmax(fit->busbw, moved / y);
            fit->floor_s = fmin(fit->floor_s, y);
            fit->points++;
        }
    }
    const double det = aa * bb - ab * ab;
    double latency = det > 0 ? (ay * bb - by * ab) / det : 0;
    double slope = det > 0 ? (by * aa - ay * ab) / det : by / bb;
    if (latency < 0) {
        latency = 0;
        slope = by / bb;
    }
    if (!(slope > 0)) {
        latency = ay / aa;
        slope = 1 / fit->busbw;
    }
    fit->latency_s = latency;
    fit->bytes_per_s = 1 / slope;
}

static void put_link_errors(struct calibrating *c, const struct fit *fit)
{
    const struct dpb_machine *machine = &c->machine;
    dpb_json *json = dpb_json_object();
    double *errors = calloc(fit->points + 1, sizeof(*errors));
    size_t count = 0;

    for (int i = 0; errors && i < machine->curve_count; i++) {
        const struct dpb_machine_curve *curve = &machine->curves[i];
        enum dpb_coll_kind kind = DPB_COLL_ALL_REDUCE;

        find_kind(curve->collective, &kind);
        for (int p = 0; p < curve->count; p++) {
            const double form_s =
                    steps_of(curve, kind) * fit->latency_s +
                    dpb_coll_busbw_factor(kind, curve->ranks) * curve->bytes[p] / fit->bytes_per_s;

            errors[count++] = fabs(fmax(form_s, fit->floor_s) / curve->seconds[p] - 1);
        }
    }
    dpb_json_set_int(json, "points", (int64_t)count);
    calibrate_put_errors(json, "", errors, count, "no points");
    dpb_json_set(c->report, "link", json);
    free(errors);
}

static void put_link(struct calibrating *c, const struct points *points)
{
    const char *source = points->sources[0];
    struct fit fit;

    fit_link(&c->machine, &fit);
    calibrate_figure(c, DPB_FIGURE_INSIDE_RATE, fit.busbw, false, NULL, "largest busbw of %s",
                     source);
    calibrate_figure(c, DPB_FIGURE_INSIDE_LATENCY, fit.latency_s, false, NULL,
                     "fitted to %zu points, per step of a ring; %s", fit.points, source);
    calibrate_figure(c, DPB_FIGURE_INSIDE_SHARE, fmin(1.6, fmax(1e-3, fit.bytes_per_s / fit.busbw)),
                     false, NULL, "fitted to %zu points; %s", fit.points, source);
    calibrate_figure(c, DPB_FIGURE_INSIDE_FLOOR, fit.floor_s, false, NULL, "least time of %s",
                     source);
    put_link_errors(c, &fit);
}

/* ---- all of it ---- */

static void tell_what_was_not_used(struct calibrating *c, const struct points *points)
{
    if (points->not_ok > 0)
        calibrate_left_out(c, "%zu record%s of collectives: not ok, or simulated", points->not_ok,
                           points->not_ok == 1 ? "" : "s");
    if (points->other_settings > 0)
        calibrate_left_out(c, "%zu record%s of collectives with other settings than \"%s\"",
                           points->other_settings, points->other_settings == 1 ? "" : "s",
                           points->setting);
    if (points->of_nodes > 0)
        calibrate_left_out(c, "%zu record%s of collectives over several nodes", points->of_nodes,
                           points->of_nodes == 1 ? "" : "s");
}

static void points_release(struct points *points)
{
    for (size_t i = 0; i < points->source_count; i++)
        free(points->sources[i]);
    free(points->sources);
    free(points->items);
}

dpb_status calibrate_comm(struct calibrating *c)
{
    struct points points = {0};
    dpb_status st = DPB_OK;

    for (size_t i = 0; st == DPB_OK && i < c->config->comm_count; i++)
        st = read_file(c, &points, c->config->comms[i]);
    DPB_TRY_GOTO(st, st, out);
    tell_what_was_not_used(c, &points);
    if (points.count > 0) {
        merge(&points);
        DPB_TRY_GOTO(st, make_curves(c, &points), out);
        put_link(c, &points);
    }
    st = check_curves(c);
out:
    points_release(&points);
    return st;
}
