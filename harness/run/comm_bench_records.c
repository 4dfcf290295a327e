/* comm_bench_records.c: the records of `dpbench comm`. */
#include "comm_bench_records.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm_bench_levels.h"
#include "dpb_cell_record.h"
#include "dpb_clock.h"
#include "dpb_comm_bench.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_run_folder.h"
#include "dpb_stats.h"
#include "dpb_units.h"

static const char *status_text(dpb_status st)
{
    return st == DPB_OK                ? "ok"
           : st == DPB_ERR_TIMEOUT     ? "timeout"
           : st == DPB_ERR_INTERRUPTED ? "interrupted"
                                       : "failed";
}

static bool sums(enum dpb_coll_kind kind)
{
    return kind == DPB_COLL_ALL_REDUCE || kind == DPB_COLL_REDUCE_SCATTER ||
           kind == DPB_COLL_REDUCE;
}

static bool has_root(enum dpb_coll_kind kind)
{
    return kind == DPB_COLL_BROADCAST || kind == DPB_COLL_REDUCE;
}

static const struct dpb_comm_bench_options *options_of(const struct comm_launch *launch)
{
    return dpb_config_struct(launch->config, "experiment");
}

static const dpb_json *world_of(const struct comm_launch *launch)
{
    return launch->result ? launch->result->world : NULL;
}

/* What every record of a launch says. */
static dpb_json *record_new(const struct comm_records *records, const struct comm_launch *launch,
                            dpb_status st, const char *reason)
{
    char now[32];
    dpb_json *record = dpb_json_object();
    dpb_clock_utc_text(now, sizeof(now));
    dpb_json_set_string(record, "schema", DPB_COMM_BENCH_SCHEMA);
    dpb_json_set_string(record, "run_id", records->run_id);
    dpb_json_set_int(record, "cell", (int64_t)launch->cell);
    dpb_json_set_string(record, "label", launch->label);
    dpb_json_set_string(record, "status", status_text(st));
    if (st == DPB_OK)
        dpb_json_set(record, "reason", dpb_json_null());
    else
        dpb_json_set_string(record, "reason", reason[0] ? reason : dpb_status_text(st));
    dpb_json_set(record, "tool", dpb_tool_json());
    dpb_json_set_string(record, "time_utc", now);
    dpb_json_set(record, "host", dpb_json_copy(records->host));
    dpb_cell_record_where(records->crew, world_of(launch), record);
    dpb_json_set_int(record, "ranks", options_of(launch)->ranks);
    return record;
}

/* Options of the launch, with the collective, type and size of this row. */
static dpb_json *row_config(const struct comm_records *records, const struct comm_launch *launch,
                            const struct comm_row *row)
{
    dpb_config *config = NULL;
    char size[DPB_UNIT_TEXT_BYTES];
    dpb_json *json = NULL;
    dpb_format_size(row->count * (int64_t)dpb_dtype_bytes(row->dtype), size, sizeof(size));
    if (dpb_config_copy(launch->config, &config) == DPB_OK &&
        dpb_config_set(config, "collective", dpb_coll_text(row->kind)) == DPB_OK &&
        dpb_config_set(config, "dtype", dpb_dtype_text(row->dtype)) == DPB_OK &&
        dpb_config_set(config, "sizes", size) == DPB_OK)
        json = dpb_cell_record_config(config, launch->result ? records->crew : NULL,
                                      world_of(launch));
    dpb_config_free(config);
    return json;
}

static const dpb_json *rank_row(const struct dpb_launch_result *result, int rank, size_t row)
{
    return dpb_json_at(dpb_json_get(result->ranks[rank], "rows"), row);
}

/* An iteration takes as long as its slowest rank says. Fresh arrays, `count` long. */
static dpb_status samples_of(const struct dpb_launch_result *result, size_t row, int64_t **samples,
                             double **reals, size_t *count)
{
    size_t n = dpb_json_size(dpb_json_get(rank_row(result, 0, row), "samples_ns"));
    int64_t *most = calloc(n + 1, sizeof(*most));
    double *copy = calloc(n + 1, sizeof(*copy));
    if (!most || !copy) {
        free(most);
        free(copy);
        return DPB_ERR_NO_MEMORY;
    }
    for (int r = 0; r < result->rank_count; r++) {
        dpb_json_walk walk = {0};
        const dpb_json *list = dpb_json_get(rank_row(result, r, row), "samples_ns"), *value;
        for (size_t i = 0; i < n && (value = dpb_json_next(list, &walk, NULL)); i++) {
            int64_t ns = dpb_json_as_int(value, 0);
            most[i] = ns > most[i] ? ns : most[i];
            copy[i] = (double)most[i];
        }
    }
    *samples = most;
    *reals = copy;
    *count = n;
    return DPB_OK;
}

static void set_rate(dpb_json *record, const char *key, double value)
{
    if (isfinite(value))
        dpb_json_set_real(record, key, value);
    else
        dpb_json_set_absent(record, key, "one rank has no bus");
}

static void set_times(dpb_json *record, const double *samples, size_t count, double size_bytes,
                      double factor)
{
    dpb_json *times = dpb_json_object();
    const double mean_ns = dpb_stats_mean(samples, count);
    const double p50_ns = dpb_stats_median(samples, count);
    const double p99_ns = dpb_stats_tail_quantile(samples, count, 0.99);
    dpb_json_set_real(times, "mean", mean_ns);
    dpb_json_set_real(times, "min", dpb_stats_quantile(samples, count, 0));
    dpb_json_set_real(times, "p50", p50_ns);
    if (isfinite(p99_ns))
        dpb_json_set_real(times, "p99", p99_ns);
    else
        dpb_json_set_absent(times, "p99", "fewer than 100 iterations have no 99th percentile");
    dpb_json_set(record, "time_ns", times);
    dpb_json_set_real(record, "algbw_bytes_per_s", size_bytes / mean_ns * 1e9);
    set_rate(record, "busbw_factor", factor);
    set_rate(record, "busbw_bytes_per_s", size_bytes / mean_ns * 1e9 * factor);
    set_rate(record, "busbw_p50_bytes_per_s", size_bytes / p50_ns * 1e9 * factor);
}

static void set_what(const struct comm_records *records, const struct comm_launch *launch,
                     const struct comm_row *row, dpb_json *record)
{
    dpb_json_set(record, "config", row_config(records, launch, row));
    dpb_json_set_string(record, "collective", dpb_coll_text(row->kind));
    dpb_json_set_string(record, "dtype", dpb_dtype_text(row->dtype));
    dpb_json_set_string(record, "redop", sums(row->kind) ? "sum" : "none");
    dpb_json_set_int(record, "root", has_root(row->kind) ? 0 : -1);
    dpb_json_set_bool(record, "in_place", true);
    dpb_json_set_int(record, "size_bytes", row->count * (int64_t)dpb_dtype_bytes(row->dtype));
    dpb_json_set_int(record, "count", row->count);
}

/* What was measured, or not, beside the launch. */
static void set_row(const struct comm_records *records, const struct comm_launch *launch,
                    const struct comm_row *row, dpb_json *record)
{
    const dpb_json *rank0 = launch->result->ranks[0], *comm = dpb_json_get(rank0, "comm");
    dpb_json_set_bool(record, "emulated", dpb_json_as_bool(dpb_json_get(comm, "emulated"), false));
    dpb_json_set_bool(record, "simulated", false);
    dpb_json_set(record, "comm", dpb_json_copy(comm));
    dpb_json_set(record, "device", dpb_json_copy(dpb_json_get(rank0, "device")));
    dpb_json_set(record, "algorithm", dpb_json_copy(dpb_json_get(comm, "algorithm")));
    set_what(records, launch, row, record);
}

/* The algorithm, or the comm, does not have this one; the others are measured all the same. */
static void add_skipped(struct comm_records *records, const struct comm_launch *launch,
                        const struct comm_row *row)
{
    char reason[256];
    dpb_json *record = record_new(records, launch, DPB_ERR_UNSUPPORTED, "");
    set_row(records, launch, row, record);
    snprintf(reason, sizeof(reason),
             "algorithm %s has no %s of %s here; the ranks' messages say why",
             dpb_json_as_string(dpb_json_get(record, "algorithm"), "of the comm"),
             dpb_coll_text(row->kind), dpb_dtype_text(row->dtype));
    dpb_json_set_string(record, "status", "skipped");
    dpb_json_set_string(record, "reason", reason);
    dpb_json_append(records->list, record);
    records->skipped++;
}

static dpb_status add_row_record(struct comm_records *records, const struct comm_launch *launch,
                                 size_t i, int64_t *wrong)
{
    const struct dpb_launch_result *result = launch->result;
    const struct comm_row *row = &launch->rows[i];
    const int64_t size_bytes = row->count * (int64_t)dpb_dtype_bytes(row->dtype);
    int64_t *samples = NULL, wrong_here = 0;
    double *reals = NULL;
    size_t count = 0;
    struct comm_levels levels;
    if (dpb_json_get(rank_row(result, 0, i), "unsupported")) {
        add_skipped(records, launch, row);
        return DPB_OK;
    }
    DPB_TRY(samples_of(result, i, &samples, &reals, &count));
    dpb_json *record = record_new(records, launch, DPB_OK, ""), *wire = dpb_json_array();
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *of_rank = rank_row(result, r, i);
        wrong_here += dpb_json_as_int(dpb_json_get(of_rank, "wrong"), 0);
        dpb_json_append(wire, dpb_json_copy(dpb_json_get(of_rank, "wire_bytes")));
    }
    if (wrong_here > 0) {
        dpb_json_set_string(record, "status", "invalid");
        dpb_json_set_string(record, "reason", "elements of the result are wrong");
    }
    set_row(records, launch, row, record);
    dpb_json_set_int(record, "wrong", wrong_here);
    dpb_json_set(record, "order", dpb_json_copy(dpb_json_get(rank_row(result, 0, i), "order")));
    dpb_json_set(record, "wire_bytes_per_rank", wire);
    dpb_json_set_int(record, "iterations", (int64_t)count);
    set_times(record, reals, count, (double)size_bytes,
              dpb_coll_busbw_factor(row->kind, result->rank_count));
    comm_levels_measured(result, i, (int)options_of(launch)->ranks_per_node, &levels);
    comm_levels_put(&levels, dpb_stats_mean(reals, count), record);
    dpb_json_set(record, "samples_ns", dpb_json_ints(samples, count));
    free(samples);
    free(reals);
    dpb_json_append(records->list, record);
    *wrong += wrong_here;
    return DPB_OK;
}

/* All records so far, as a whole: a reader finds the old file or the new one. */
static dpb_status write_records(struct comm_records *records, size_t from)
{
    for (size_t i = from; i < dpb_json_size(records->list); i++) {
        DPB_TRY(dpb_json_write(dpb_json_at(records->list, i), false, &records->lines));
        dpb_str_append(&records->lines, "\n");
    }
    return dpb_file_write_atomic(records->path, records->lines.text, records->lines.length);
}

dpb_status comm_records_add(struct comm_records *records, const struct comm_launch *launch,
                            dpb_status launched)
{
    const size_t from = dpb_json_size(records->list);
    int64_t wrong = 0;
    dpb_status st = DPB_OK;
    for (size_t i = 0; launched == DPB_OK && st == DPB_OK && i < launch->row_count; i++)
        st = add_row_record(records, launch, i, &wrong);
    if (launched < 0)
        dpb_json_append(records->list,
                        record_new(records, launch, launched, launch->result->reason));
    DPB_KEEP(st, write_records(records, from));
    if (wrong > 0) {
        dpb_error("%" PRId64 " elements of the results are wrong", wrong);
        dpb_log_hint("the column #wrong says where; times of wrong results mean nothing");
    }
    DPB_TRY(st);
    return launched < 0 ? launched : wrong > 0 ? DPB_ERR_CHECK : DPB_OK;
}

dpb_status comm_records_skip(struct comm_records *records, const struct comm_launch *launch,
                             const struct comm_row *row, const char *reason)
{
    static const char *const unknown[] = {"emulated", "comm", "device", "algorithm"};
    const size_t from = dpb_json_size(records->list);
    dpb_json *record = record_new(records, launch, DPB_ERR_NO_MEMORY, reason);
    dpb_json_set_string(record, "status", "skipped");
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        dpb_json_set_absent(record, unknown[i], "it was not launched");
    dpb_json_set_bool(record, "simulated", false);
    set_what(records, launch, row, record);
    dpb_json_append(records->list, record);
    records->too_large++;
    return write_records(records, from);
}

dpb_status comm_records_simulate(struct comm_records *records, const struct comm_launch *launch,
                                 const struct comm_sim_machine *machine)
{
    const size_t from = dpb_json_size(records->list);
    dpb_status st = DPB_OK;
    for (size_t i = 0; st == DPB_OK && i < launch->row_count; i++) {
        dpb_json *record = record_new(records, launch, DPB_OK, "");
        dpb_json_set_bool(record, "emulated", false);
        dpb_json_set_bool(record, "simulated", true);
        dpb_json_set_absent(record, "algorithm", "simulated: `source` says what the time is from");
        set_what(records, launch, &launch->rows[i], record);
        st = comm_sim_put(machine, &launch->rows[i], options_of(launch)->ranks, record);
        dpb_json_append(records->list, record);
    }
    DPB_KEEP(st, write_records(records, from));
    return st;
}

dpb_status comm_records_open(struct comm_records *records, const char *folder)
{
    DPB_TRY(dpb_run_folder_name(folder, false, &records->run_id));
    records->path = dpb_path_join(folder, DPB_RECORDS_FILE);
    records->host = dpb_host_json();
    return records->path ? DPB_OK : DPB_ERR_NO_MEMORY;
}

void comm_records_release(struct comm_records *records)
{
    free(records->run_id);
    free(records->path);
    dpb_json_free(records->host);
    dpb_str_release(&records->lines);
}
