/* comm_bench_text.c: records of collectives as a table and as CSV. */
#include "dpb_comm_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_units.h"

static const char *text_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_string(dpb_json_path(record, path), "");
}

static double real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

static int64_t int_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_int(dpb_json_path(record, path), 0);
}

static bool is_ok(const dpb_json *record)
{
    return strcmp(text_at(record, "status"), "failed") != 0 && dpb_json_path(record, "time_ns");
}

/* One table for each launch and collective. */
static bool same_table(const dpb_json *a, const dpb_json *b)
{
    return a && b && is_ok(a) && is_ok(b) && int_at(a, "cell") == int_at(b, "cell") &&
           strcmp(text_at(a, "collective"), text_at(b, "collective")) == 0;
}

static bool is_simulated(const dpb_json *record)
{
    return dpb_json_as_bool(dpb_json_get(record, "simulated"), false);
}

static bool has_nodes(const dpb_json *record)
{
    return int_at(record, "nodes") > 1;
}

/* Rates between and inside nodes stand behind what nccl-tests has, and only where there are some.
 */
static void append_columns(const dpb_json *record, struct dpb_str *out)
{
    dpb_str_appendf(out,
                    "#\n"
                    "#       size         count    type   redop  root       time   algbw   busbw  "
                    "#wrong        min        p50        p99%s%s\n"
                    "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)  "
                    "             (us)       (us)       (us)%s\n",
                    has_nodes(record) ? "  between  inside" : "",
                    is_simulated(record) ? "  x least  origin" : "",
                    has_nodes(record) ? "   (GB/s)  (GB/s)" : "");
}

static void append_sim_head(const dpb_json *record, struct dpb_str *out)
{
    const long long ranks = (long long)int_at(record, "ranks");
    const long long nodes = (long long)int_at(record, "nodes");
    dpb_str_appendf(out,
                    "# %s, %lld rank%s on %lld node%s of machine %s, in place; SIMULATED, nothing "
                    "was run\n",
                    text_at(record, "collective"), ranks, ranks == 1 ? "" : "s", nodes,
                    nodes == 1 ? "" : "s", text_at(record, "comm/machine"));
    append_columns(record, out);
}

static void append_head(const dpb_json *record, struct dpb_str *out)
{
    if (is_simulated(record)) {
        append_sim_head(record, out);
        return;
    }
    char link[2 * DPB_UNIT_TEXT_BYTES + 32] = "measured, not emulated";
    if (dpb_json_as_bool(dpb_json_get(record, "emulated"), false)) {
        char rate[DPB_UNIT_TEXT_BYTES], latency[DPB_UNIT_TEXT_BYTES];
        dpb_format_rate(real_at(record, "comm/link/bw_bytes_per_s"), rate, sizeof(rate));
        dpb_format_duration(int_at(record, "comm/link/latency_ns"), latency, sizeof(latency));
        snprintf(link, sizeof(link), "EMULATED link %s,%s", rate, latency);
    }
    dpb_str_appendf(out, "# %s, %lld rank%s, comm %s, algorithm %s, %s calls, in place; %s\n",
                    text_at(record, "collective"), (long long)int_at(record, "ranks"),
                    int_at(record, "ranks") == 1 ? "" : "s", text_at(record, "comm/name"),
                    text_at(record, "algorithm"), text_at(record, "config/call"), link);
    append_columns(record, out);
}

/* At most `width` columns: as many decimals as fit, two at most. */
static void append_number(struct dpb_str *out, double value, int width)
{
    if (isnan(value)) {
        dpb_str_appendf(out, "  %*s", width, "n/a");
        return;
    }
    int decimals = fabs(value) < 1000 ? 2 : fabs(value) < 100000 ? 1 : 0;
    char text[64];
    snprintf(text, sizeof(text), "%.*f", decimals, value);
    dpb_str_appendf(out, "  %*s", width, text);
}

/* How many times the least possible, and "extrapolated x4", "extrapolated /64" below. */
static void append_origin(const dpb_json *record, struct dpb_str *out)
{
    const double by = real_at(record, "extrapolated_by"),
                 below = real_at(record, "extrapolated_below");

    if (!is_simulated(record))
        return;
    append_number(out, real_at(record, "time_ns/mean") / real_at(record, "least_time_ns"), 7);
    dpb_str_appendf(out, "  %s", text_at(record, "origin"));
    if (!isnan(by))
        dpb_str_appendf(out, " x%.*f", by < 10 ? 1 : 0, by);
    if (!isnan(below))
        dpb_str_appendf(out, " /%.*f", below < 10 ? 1 : 0, below);
}

static void append_row(const dpb_json *record, struct dpb_str *out)
{
    dpb_str_appendf(out, "%12lld  %12lld  %6s  %6s  %4lld", (long long)int_at(record, "size_bytes"),
                    (long long)int_at(record, "count"), text_at(record, "dtype"),
                    text_at(record, "redop"), (long long)int_at(record, "root"));
    append_number(out, real_at(record, "time_ns/mean") / 1e3, 9);
    append_number(out, real_at(record, "algbw_bytes_per_s") / 1e9, 6);
    append_number(out, real_at(record, "busbw_bytes_per_s") / 1e9, 6);
    if (is_simulated(record))
        dpb_str_appendf(out, "  %6s", "n/a");
    else
        dpb_str_appendf(out, "  %6lld", (long long)int_at(record, "wrong"));
    append_number(out, real_at(record, "time_ns/min") / 1e3, 9);
    append_number(out, real_at(record, "time_ns/p50") / 1e3, 9);
    append_number(out, real_at(record, "time_ns/p99") / 1e3, 9);
    if (has_nodes(record)) {
        append_number(out, real_at(record, "between_bw_bytes_per_s") / 1e9, 7);
        append_number(out, real_at(record, "inside_bw_bytes_per_s") / 1e9, 6);
    }
    append_origin(record, out);
    dpb_str_append(out, "\n");
}

/* The rows of one table: records first to last. */
struct table {
    const dpb_json *records;
    size_t first, last;
};

static bool has_text_before(const struct table *table, size_t index, const char *key,
                            const char *text)
{
    for (size_t i = table->first; i < index; i++)
        if (strcmp(text_at(dpb_json_at(table->records, i), key), text) == 0)
            return true;
    return false;
}

static bool has_warning_before(const struct table *table, size_t index, const char *text)
{
    for (size_t i = table->first; i < index; i++) {
        const dpb_json *list = dpb_json_get(dpb_json_at(table->records, i), "warnings");
        for (size_t w = 0; w < dpb_json_size(list); w++)
            if (strcmp(dpb_json_as_string(dpb_json_at(list, w), ""), text) == 0)
                return true;
    }
    return false;
}

/* What times are from, and what to be careful with, each once. */
static void append_notes(const struct table *table, struct dpb_str *out)
{
    for (size_t i = table->first; i <= table->last; i++) {
        const char *source = text_at(dpb_json_at(table->records, i), "source");
        if (source[0] && !has_text_before(table, i, "source", source))
            dpb_str_appendf(out, "# from: %s\n", source);
    }
    for (size_t i = table->first; i <= table->last; i++) {
        const dpb_json *list = dpb_json_get(dpb_json_at(table->records, i), "warnings");
        for (size_t w = 0; w < dpb_json_size(list); w++) {
            const char *text = dpb_json_as_string(dpb_json_at(list, w), "");
            if (!has_warning_before(table, i, text))
                dpb_str_appendf(out, "# warning: %s\n", text);
        }
    }
}

static void append_foot(const struct table *table, struct dpb_str *out)
{
    const size_t rows = table->last - table->first + 1;
    double busbw_sum = 0;
    int64_t wrong = 0;
    for (size_t i = table->first; i <= table->last; i++) {
        busbw_sum += real_at(dpb_json_at(table->records, i), "busbw_bytes_per_s");
        wrong += int_at(dpb_json_at(table->records, i), "wrong");
    }
    if (!is_simulated(dpb_json_at(table->records, table->first)))
        dpb_str_appendf(out, "# Out of bounds values : %lld %s\n", (long long)wrong,
                        wrong == 0 ? "OK" : "FAILED");
    append_notes(table, out);
    if (isnan(busbw_sum))
        dpb_str_append(out, "# Avg bus bandwidth    : n/a (one rank has no bus)\n\n");
    else
        dpb_str_appendf(out,
                        "# Avg bus bandwidth    : %.4f GB/s (mean over the rows%s; GB = 1e9 "
                        "bytes)\n\n",
                        busbw_sum / 1e9 / (double)rows,
                        rows > 1 ? ", whose sizes differ: no figure of a machine" : "");
}

dpb_status dpb_comm_bench_text(const dpb_json *records, struct dpb_str *out)
{
    struct table table = {.records = records};
    for (size_t i = 0; i < dpb_json_size(records); i++) {
        const dpb_json *record = dpb_json_at(records, i);
        if (!is_ok(record)) {
            const char *label = text_at(record, "label");
            dpb_str_appendf(out, "# %s%s%s: %s\n\n", label, label[0] ? ": " : "",
                            text_at(record, "status"), text_at(record, "reason"));
            continue;
        }
        if (i == 0 || !same_table(record, dpb_json_at(records, i - 1))) {
            append_head(record, out);
            table.first = i;
        }
        table.last = i;
        append_row(record, out);
        if (!same_table(record, dpb_json_at(records, i + 1)))
            append_foot(&table, out);
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

/* ---- CSV ---- */

enum field_type {
    FIELD_TEXT,
    FIELD_QUOTED, /* may hold anything */
    FIELD_INT,
    FIELD_REAL,
    FIELD_BOOL
};

static const struct field {
    const char *name, *path;
    enum field_type type;
} fields[] = {
        {"collective", "collective", FIELD_TEXT},
        {"comm", "comm/name", FIELD_TEXT},
        {"algorithm", "algorithm", FIELD_TEXT},
        {"call", "config/call", FIELD_TEXT},
        {"emulated", "emulated", FIELD_BOOL},
        {"link_bw_bytes_per_s", "comm/link/bw_bytes_per_s", FIELD_REAL},
        {"link_latency_ns", "comm/link/latency_ns", FIELD_INT},
        {"ranks", "ranks", FIELD_INT},
        {"size_bytes", "size_bytes", FIELD_INT},
        {"count", "count", FIELD_INT},
        {"dtype", "dtype", FIELD_TEXT},
        {"redop", "redop", FIELD_TEXT},
        {"root", "root", FIELD_INT},
        {"iterations", "iterations", FIELD_INT},
        {"time_mean_ns", "time_ns/mean", FIELD_REAL},
        {"time_min_ns", "time_ns/min", FIELD_REAL},
        {"time_p50_ns", "time_ns/p50", FIELD_REAL},
        {"time_p99_ns", "time_ns/p99", FIELD_REAL},
        {"busbw_factor", "busbw_factor", FIELD_REAL},
        {"algbw_bytes_per_s", "algbw_bytes_per_s", FIELD_REAL},
        {"busbw_bytes_per_s", "busbw_bytes_per_s", FIELD_REAL},
        {"busbw_p50_bytes_per_s", "busbw_p50_bytes_per_s", FIELD_REAL},
        {"wrong", "wrong", FIELD_INT},
        {"simulated", "simulated", FIELD_BOOL},
        {"machine", "comm/machine", FIELD_QUOTED},
        {"origin", "origin", FIELD_TEXT},
        {"extrapolated_by", "extrapolated_by", FIELD_REAL},
        {"extrapolated_below", "extrapolated_below", FIELD_REAL},
        {"source", "source", FIELD_QUOTED},
        {"nodes", "nodes", FIELD_INT},
        {"between_bw_bytes_per_s", "between_bw_bytes_per_s", FIELD_REAL},
        {"inside_bw_bytes_per_s", "inside_bw_bytes_per_s", FIELD_REAL},
};

static void append_quoted(const char *text, struct dpb_str *out)
{
    dpb_str_append(out, "\"");
    for (const char *c = text; *c; c++)
        dpb_str_appendf(out, *c == '"' ? "\"\"" : "%c", *c);
    dpb_str_append(out, "\"");
}

/* An absent value is an empty field. */
static void append_field(const dpb_json *record, const struct field *field, struct dpb_str *out)
{
    const dpb_json *value = dpb_json_path(record, field->path);
    char number[DPB_UNIT_TEXT_BYTES];
    if (!value || dpb_json_type(value) == DPB_JSON_NULL)
        return;
    switch (field->type) {
    case FIELD_TEXT: /* names of this program: nothing to quote */
        dpb_str_append(out, dpb_json_as_string(value, ""));
        break;
    case FIELD_QUOTED:
        append_quoted(dpb_json_as_string(value, ""), out);
        break;
    case FIELD_INT:
        dpb_str_appendf(out, "%lld", (long long)dpb_json_as_int(value, 0));
        break;
    case FIELD_REAL:
        dpb_format_f64(dpb_json_as_real(value, NAN), number, sizeof(number));
        dpb_str_append(out, number);
        break;
    case FIELD_BOOL:
        dpb_str_append(out, dpb_json_as_bool(value, false) ? "true" : "false");
        break;
    }
}

dpb_status dpb_comm_bench_csv(const dpb_json *records, struct dpb_str *out)
{
    const size_t count = sizeof(fields) / sizeof(fields[0]);
    for (size_t f = 0; f < count; f++)
        dpb_str_appendf(out, "%s%s", f ? "," : "", fields[f].name);
    dpb_str_append(out, "\n");
    for (size_t i = 0; i < dpb_json_size(records); i++) {
        const dpb_json *record = dpb_json_at(records, i);
        if (!is_ok(record))
            continue;
        for (size_t f = 0; f < count; f++) {
            dpb_str_append(out, f ? "," : "");
            append_field(record, &fields[f], out);
        }
        dpb_str_append(out, "\n");
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}
