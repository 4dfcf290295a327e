/* history.c: the SQLite file: opening, adding, asking. */
#include "dpb_history.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_units.h"

#define APPLICATION_ID  0x64706268 /* "dpbh": tells a history from other SQLite files */
#define BUSY_TIMEOUT_MS 60000
#define BUSY_AGAIN_MS   5

struct dpb_history {
    sqlite3 *db;
    char *path;
};

static dpb_status failed(const dpb_history *history, const char *what)
{
    const int code = sqlite3_errcode(history->db);

    dpb_error("%s: cannot %s: %s", history->path, what, sqlite3_errmsg(history->db));
    if (code == SQLITE_FULL || code == SQLITE_IOERR)
        dpb_log_hint("check the space and the disk, or choose another file with --db");
    else if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY)
        dpb_log_hint("--db names a SQLite file in a folder that exists and may be written, also to "
                     "be read");
    return code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? DPB_ERR_CORRUPT : DPB_ERR_IO;
}

static dpb_status execute(dpb_history *history, const char *sql)
{
    return sqlite3_exec(history->db, sql, NULL, NULL, NULL) == SQLITE_OK ? DPB_OK
                                                                         : failed(history, "write");
}

static dpb_status pragma(dpb_history *history, const char *sql, int *value)
{
    sqlite3_stmt *statement;

    if (sqlite3_prepare_v2(history->db, sql, -1, &statement, NULL) != SQLITE_OK)
        return failed(history, "read");
    const int rc = sqlite3_step(statement);
    *value = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? DPB_OK : failed(history, "read");
}

/* ---- schema ---- */

static const char schema[] =
        "CREATE TABLE run(id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, cell TEXT NOT NULL,"
        " fingerprint TEXT NOT NULL, commit_id TEXT NOT NULL, time_s REAL NOT NULL);"
        "CREATE TABLE value(run INTEGER NOT NULL REFERENCES run, metric TEXT NOT NULL,"
        " value REAL NOT NULL, PRIMARY KEY(run, metric)) WITHOUT ROWID;"
        "CREATE TABLE release(commit_id TEXT PRIMARY KEY, label TEXT NOT NULL,"
        " reason TEXT NOT NULL, time_s REAL NOT NULL);"
        "CREATE INDEX run_cell ON run(cell);";
/* Beside version 1, which programs that do not know it read as before. */
static const char settings_schema[] =
        "CREATE TABLE IF NOT EXISTS settings(run INTEGER PRIMARY KEY REFERENCES run,"
        " options TEXT NOT NULL)";

static dpb_status make_schema(dpb_history *history)
{
    char mark[96];

    snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %d;",
             APPLICATION_ID, DPB_HISTORY_VERSION);
    DPB_TRY(execute(history, schema));
    return execute(history, mark);
}

/* Within a transaction: another program may be making the same file. */
static dpb_status check_schema(dpb_history *history)
{
    int application, version, tables;

    DPB_TRY(pragma(history, "PRAGMA application_id", &application));
    DPB_TRY(pragma(history, "PRAGMA user_version", &version));
    DPB_TRY(pragma(history, "SELECT count(*) FROM sqlite_master", &tables));
    if (application == 0 && version == 0 && tables == 0) {
        DPB_TRY(make_schema(history));
        return execute(history, settings_schema);
    }
    if (application != APPLICATION_ID) {
        dpb_error("%s: it is another program's database", history->path);
        return DPB_ERR_CORRUPT;
    }
    if (version == DPB_HISTORY_VERSION)
        return execute(history, settings_schema);
    dpb_error("%s: it is a history of version %d, and this program knows version %d", history->path,
              version, DPB_HISTORY_VERSION);
    dpb_log_hint("use the dpbench that made it, or build it anew from the records");
    return DPB_ERR_UNSUPPORTED;
}

static dpb_status begin(dpb_history *history)
{
    return execute(history, "BEGIN IMMEDIATE");
}

static dpb_status end(dpb_history *history, dpb_status st)
{
    if (st == DPB_OK)
        return execute(history, "COMMIT");
    sqlite3_exec(history->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

/* Waits, as a busy time-out does, which SQLite does not apply here: it has read the file when it
 * finds another program writing that makes the same file, and two that wait so would wait for each
 * other. */
static dpb_status enter_wal(dpb_history *history)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + BUSY_TIMEOUT_MS * INT64_C(1000000);
    int rc;

    while ((rc = sqlite3_exec(history->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL)) ==
                   SQLITE_BUSY &&
           dpb_clock_now_ns() < deadline_ns)
        sqlite3_sleep(BUSY_AGAIN_MS);
    return rc == SQLITE_OK ? DPB_OK : failed(history, "write");
}

static dpb_status prepare_file(dpb_history *history)
{
    sqlite3_busy_timeout(history->db, BUSY_TIMEOUT_MS);
    DPB_TRY(enter_wal(history));
    DPB_TRY(execute(history, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"));
    DPB_TRY(begin(history));
    return end(history, check_schema(history));
}

dpb_status dpb_history_open(const char *path, bool create, dpb_history **history)
{
    dpb_history *opened;

    if (!create && access(path, F_OK) != 0) {
        dpb_error("there is no history \"%s\"", path);
        dpb_log_hint("`dpbench history add RUN... --db %s` makes one", path);
        return DPB_ERR_NOT_FOUND;
    }
    opened = calloc(1, sizeof(*opened));
    if (!opened || !(opened->path = strdup(path))) {
        free(opened);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_status st;
    if (sqlite3_open_v2(path, &opened->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) ==
        SQLITE_OK) {
        st = prepare_file(opened);
    } else {
        st = failed(opened, "open");
    }
    if (st < 0)
        dpb_history_close(opened);
    else
        *history = opened;
    return st;
}

void dpb_history_close(dpb_history *history)
{
    if (!history)
        return;
    sqlite3_close(history->db);
    free(history->path);
    free(history);
}

/* ---- adding ---- */

static dpb_status prepare(dpb_history *history, const char *sql, sqlite3_stmt **statement)
{
    return sqlite3_prepare_v2(history->db, sql, -1, statement, NULL) == SQLITE_OK
                   ? DPB_OK
                   : failed(history, "prepare a query");
}

static dpb_status step(dpb_history *history, sqlite3_stmt *statement)
{
    const int rc = sqlite3_step(statement);

    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? DPB_OK : failed(history, "write");
}

struct writer {
    dpb_history *history;
    sqlite3_stmt *run, *value, *settings;
};

static dpb_status writer_open(dpb_history *history, struct writer *w)
{
    *w = (struct writer){.history = history};
    DPB_TRY(prepare(history,
                    "INSERT OR IGNORE INTO run(hash, cell, fingerprint, commit_id, time_s)"
                    " VALUES(?, ?, ?, ?, ?)",
                    &w->run));
    DPB_TRY(prepare(history, "INSERT INTO settings(run, options) VALUES(?, ?)", &w->settings));
    return prepare(history, "INSERT INTO value(run, metric, value) VALUES(?, ?, ?)", &w->value);
}

static void writer_close(struct writer *w)
{
    sqlite3_finalize(w->run);
    sqlite3_finalize(w->value);
    sqlite3_finalize(w->settings);
}

static dpb_status write_values(struct writer *w, const struct dpb_gate_cell *cell, size_t run)
{
    const sqlite3_int64 id = sqlite3_last_insert_rowid(w->history->db);

    if (cell->series[0]) {
        sqlite3_bind_int64(w->settings, 1, id);
        sqlite3_bind_text(w->settings, 2, cell->series, -1, SQLITE_STATIC);
        DPB_TRY(step(w->history, w->settings));
    }
    for (size_t m = 0; m < cell->metric_count; m++) {
        if (!isfinite(cell->metrics[m].values[run]))
            continue;
        sqlite3_bind_int64(w->value, 1, id);
        sqlite3_bind_text(w->value, 2, cell->metrics[m].metric->name, -1, SQLITE_STATIC);
        sqlite3_bind_double(w->value, 3, cell->metrics[m].values[run]);
        DPB_TRY(step(w->history, w->value));
    }
    return DPB_OK;
}

/* What a run is known by. A record is unique; another tool's file may be the same for two commits,
 * as exact counters are. */
static dpb_status run_key(const struct dpb_gate_run *run, const char *commit,
                          char key[DPB_SHA256_TEXT_BYTES])
{
    struct dpb_str text = {0};

    if (run->session[0]) {
        memcpy(key, run->hash, DPB_SHA256_TEXT_BYTES);
        return DPB_OK;
    }
    dpb_str_appendf(&text, "%s\n%s", run->hash, commit);
    if (text.failed)
        return DPB_ERR_NO_MEMORY;
    dpb_sha256_text(text.text, text.length, key);
    dpb_str_release(&text);
    return DPB_OK;
}

static void append_link(const char *fact, struct dpb_str *out)
{
    char rate[DPB_UNIT_TEXT_BYTES], latency[DPB_UNIT_TEXT_BYTES];
    dpb_json *link;

    if (!fact || dpb_json_parse(fact, strlen(fact), &link, NULL) < 0)
        return;
    const double bytes_per_s = dpb_json_as_real(dpb_json_get(link, "bw_bytes_per_s"), NAN);
    if (isfinite(bytes_per_s)) {
        dpb_format_rate(bytes_per_s, rate, sizeof(rate));
        dpb_format_duration(dpb_json_as_int(dpb_json_get(link, "latency_ns"), 0), latency,
                            sizeof(latency));
        dpb_str_appendf(out, " %s,%s", rate, latency);
    }
    dpb_json_free(link);
}

/* A cell's name, and how its numbers were obtained unless they were measured: an emulated link or a
 * simulated machine makes another series. */
static void append_series_name(const struct dpb_gate_cell *cell, struct dpb_str *out)
{
    const char *how = dpb_gate_cell_how(cell), *machine = dpb_gate_cell_fact(cell, "machine");

    dpb_str_append(out, cell->name);
    if (strcmp(how, "emulated") == 0) {
        dpb_str_append(out, ", emulated");
        append_link(dpb_gate_cell_fact(cell, "link"), out);
    } else if (strcmp(how, "simulated") == 0) {
        dpb_str_appendf(out, ", simulated %s", machine ? machine : "");
    }
}

static dpb_status write_run(struct writer *w, const struct dpb_gate_cell *cell, const char *name,
                            size_t run, const char *commit, double time_s,
                            struct dpb_history_added *added)
{
    const struct dpb_gate_run *about = &cell->runs[run];
    const char *fingerprint = dpb_gate_cell_fact(cell, "fingerprint");
    char key[DPB_SHA256_TEXT_BYTES];

    DPB_TRY(run_key(about, commit, key));
    sqlite3_bind_text(w->run, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(w->run, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(w->run, 3, fingerprint ? fingerprint : "", -1, SQLITE_STATIC);
    sqlite3_bind_text(w->run, 4, commit, -1, SQLITE_STATIC);
    sqlite3_bind_double(w->run, 5, isnan(about->time_s) ? time_s : about->time_s);
    DPB_TRY(step(w->history, w->run));
    if (sqlite3_changes(w->history->db) == 0) {
        added->known++;
        return DPB_OK;
    }
    added->added++;
    return write_values(w, cell, run);
}

static dpb_status write_cell(struct writer *w, const struct dpb_gate_cell *cell, const char *commit,
                             double time_s, struct dpb_history_added *added)
{
    struct dpb_str name = {0};
    dpb_status st;

    append_series_name(cell, &name);
    st = name.failed ? DPB_ERR_NO_MEMORY : DPB_OK;
    for (size_t run = 0; st == DPB_OK && run < cell->run_count; run++)
        st = write_run(w, cell, name.text, run, commit, time_s, added);
    dpb_str_release(&name);
    return st;
}

static dpb_status write_set(struct writer *w, const struct dpb_gate_set *set, const char *commit,
                            double time_s, struct dpb_history_added *added)
{
    for (size_t i = 0; i < set->cell_count; i++) {
        const struct dpb_gate_cell *cell = &set->cells[i];

        if (cell->trouble[0]) {
            dpb_warn("\"%s\" of %.12s is left out: %s", cell->name, commit, cell->trouble);
            added->left_out += cell->run_count > 0 ? cell->run_count : 1;
            continue;
        }
        DPB_TRY(write_cell(w, cell, commit, time_s, added));
    }
    return DPB_OK;
}

dpb_status dpb_history_check_commit(const char *commit)
{
    if (commit && commit[0] && strlen(commit) < 65)
        return DPB_OK;
    dpb_error("it is not known which commit was measured");
    dpb_log_hint("`--commit $(git rev-parse HEAD)`, of the code that was measured");
    return DPB_ERR_USAGE;
}

dpb_status dpb_history_add(dpb_history *history, const struct dpb_gate_set *set, const char *commit,
                           double time_s, struct dpb_history_added *added)
{
    struct writer w;

    *added = (struct dpb_history_added){0};
    DPB_TRY(dpb_history_check_commit(commit));
    DPB_TRY(begin(history));
    dpb_status st = writer_open(history, &w);
    if (st == DPB_OK)
        st = write_set(&w, set, commit, time_s, added);
    writer_close(&w);
    return end(history, st);
}

const char *dpb_history_commit_of(const dpb_json *record, const char *commit)
{
    return commit ? commit : dpb_json_as_string(dpb_json_path(record, "tool/git_sha"), NULL);
}

static dpb_status write_record(struct writer *w, dpb_json *record, const char *commit, double price,
                               struct dpb_history_added *added)
{
    struct dpb_records one = {.items = &record, .count = 1};
    struct dpb_gate_set set = {.price = NAN};

    commit = dpb_history_commit_of(record, commit);
    DPB_TRY(dpb_history_check_commit(commit));
    dpb_status st = dpb_gate_set_from_records(&one, DPB_GATE_SIDE_ALL, price, &set);
    if (st == DPB_OK)
        st = write_set(w, &set, commit, (double)time(NULL), added);
    dpb_gate_set_release(&set);
    return st;
}

dpb_status dpb_history_add_records(dpb_history *history, const struct dpb_records *records,
                                   const char *commit, double price,
                                   struct dpb_history_added *added)
{
    struct writer w;

    *added = (struct dpb_history_added){0};
    DPB_TRY(begin(history));
    dpb_status st = writer_open(history, &w);
    for (size_t i = 0; st == DPB_OK && i < records->count; i++)
        st = write_record(&w, records->items[i], commit, price, added);
    writer_close(&w);
    return end(history, st);
}

dpb_status dpb_history_release(dpb_history *history, const char *commit, const char *label,
                               const char *reason)
{
    sqlite3_stmt *statement;

    DPB_TRY(dpb_history_check_commit(commit));
    if (!reason || !reason[0]) {
        dpb_error("a release anchor is not set without a reason");
        dpb_log_hint("`--reason 'version 1.2'`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(prepare(history, "INSERT OR REPLACE INTO release VALUES(?, ?, ?, ?)", &statement));
    sqlite3_bind_text(statement, 1, commit, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, label, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, reason, -1, SQLITE_STATIC);
    sqlite3_bind_double(statement, 4, (double)time(NULL));
    const dpb_status st = step(history, statement);
    sqlite3_finalize(statement);
    return st;
}

/* ---- one series ---- */

static dpb_status keep_point(struct dpb_history_point **points, size_t *count,
                             const struct dpb_history_point *point)
{
    if ((*count & (*count + 1)) == 0) {
        struct dpb_history_point *more = realloc(*points, (2 * *count + 2) * sizeof(*more));

        if (!more)
            return DPB_ERR_NO_MEMORY;
        *points = more;
    }
    (*points)[(*count)++] = *point;
    return DPB_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct dpb_history_point *x = a, *y = b;

    return x->time_s != y->time_s ? (x->time_s > y->time_s) - (x->time_s < y->time_s)
                                  : strcmp(x->commit, y->commit);
}

/* Rows come by commit; sums become means as a commit ends. */
static dpb_status read_points(sqlite3_stmt *statement, bool is_relative,
                              struct dpb_history_point **points, size_t *count)
{
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *commit = (const char *)sqlite3_column_text(statement, 0);
        const double time_s = sqlite3_column_double(statement, 1);
        const double value = sqlite3_column_double(statement, 2);

        if (*count == 0 || strcmp((*points)[*count - 1].commit, commit) != 0) {
            struct dpb_history_point point = {.time_s = time_s,
                                              .is_release = sqlite3_column_int(statement, 3)};

            snprintf(point.commit, sizeof(point.commit), "%.64s", commit);
            DPB_TRY(keep_point(points, count, &point));
        }
        struct dpb_history_point *point = &(*points)[*count - 1];
        point->time_s = fmin(point->time_s, time_s);
        point->value += is_relative ? log(value) : value;
        point->runs++;
    }
    for (size_t i = 0; i < *count; i++) {
        struct dpb_history_point *point = &(*points)[i];
        const double mean = point->value / (double)point->runs;

        point->value = is_relative ? exp(mean) : mean;
    }
    return DPB_OK;
}

/* A change between commits that were measured on two machines is none of the code. */
static dpb_status warn_of_machines(dpb_history *history, const char *cell, const char *metric)
{
    sqlite3_stmt *statement;
    int machines = 0;

    DPB_TRY(prepare(history,
                    "SELECT count(DISTINCT fingerprint) FROM run JOIN value ON run = id"
                    " WHERE cell = ? AND metric = ? AND fingerprint <> ''",
                    &statement));
    sqlite3_bind_text(statement, 1, cell, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, metric, -1, SQLITE_STATIC);
    if (sqlite3_step(statement) == SQLITE_ROW)
        machines = sqlite3_column_int(statement, 0);
    if (sqlite3_finalize(statement) != SQLITE_OK)
        return failed(history, "read");
    if (machines > 1) {
        dpb_warn("%s: the runs of \"%s\" are of %d machines: a change may be that of the machine",
                 history->path, cell, machines);
        dpb_log_hint("keep a history for each (--db); `dpbench history export` has fingerprints");
    }
    return DPB_OK;
}

/* The value of an option in "accumulate=1 bucket=25MiB ..."; NULL: it is not among them. */
static const char *value_of(const char *options, const char *name, size_t name_length)
{
    for (const char *at = options; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, name_length) == 0 && at[name_length] == '=')
            return at + name_length + 1;
    }
    return NULL;
}

/* "batch-per-rank (8, 64)": options that both name, with different values. One that only one names
 * is new since, and tells nothing. */
static void append_differences(const char *one, const char *other, struct dpb_str *out)
{
    for (const char *at = one; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        const size_t name = strcspn(at, "= "), whole = strcspn(at, " ");
        const char *value = at[name] == '=' ? value_of(other, at, name) : NULL;
        const size_t length = value ? strcspn(value, " ") : 0;

        if (value && (length != whole - name - 1 || memcmp(at + name + 1, value, length) != 0))
            dpb_str_appendf(out, "%s%.*s (%.*s, %.*s)", out->length ? ", " : "", (int)name, at,
                            (int)(whole - name - 1), at + name + 1, (int)length, value);
    }
}

/* Cells are named by what varies within a run: what was the same in each of two runs is not told.
 */
static dpb_status warn_of_settings(dpb_history *history, const char *cell, const char *metric)
{
    struct dpb_str first = {0}, differences = {0};
    sqlite3_stmt *statement;

    DPB_TRY(prepare(history,
                    "SELECT options FROM settings JOIN run ON settings.run = run.id"
                    " JOIN value ON value.run = run.id WHERE cell = ? AND metric = ?"
                    " GROUP BY options ORDER BY min(time_s), options",
                    &statement));
    sqlite3_bind_text(statement, 1, cell, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, metric, -1, SQLITE_STATIC);
    while (sqlite3_step(statement) == SQLITE_ROW && differences.length == 0) {
        const char *options = (const char *)sqlite3_column_text(statement, 0);

        if (first.length == 0)
            dpb_str_append(&first, options);
        else
            append_differences(first.text, options, &differences);
    }
    if (differences.length > 0) {
        dpb_warn("%s: the runs of \"%s\" differ in %s: a change may be that of the options",
                 history->path, cell, differences.text);
        dpb_log_hint("keep a history for each (--db), or sweep over what varies");
    }
    dpb_str_release(&first);
    dpb_str_release(&differences);
    return sqlite3_finalize(statement) == SQLITE_OK ? DPB_OK : failed(history, "read");
}

dpb_status dpb_history_points(dpb_history *history, const char *cell, const char *metric,
                              struct dpb_history_point **points, size_t *count)
{
    const struct dpb_gate_metric *about = dpb_import_metric_find(metric);
    sqlite3_stmt *statement;

    *points = NULL;
    *count = 0;
    DPB_TRY(prepare(history,
                    "SELECT commit_id, time_s, value, commit_id IN (SELECT commit_id FROM release)"
                    " FROM run JOIN value ON run = id WHERE cell = ? AND metric = ?"
                    " ORDER BY commit_id",
                    &statement));
    sqlite3_bind_text(statement, 1, cell, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, metric, -1, SQLITE_STATIC);
    dpb_status st =
            read_points(statement, about && about->scale == DPB_GATE_RELATIVE, points, count);
    if (sqlite3_finalize(statement) != SQLITE_OK)
        st = failed(history, "read");
    if (st == DPB_OK && *count == 0) {
        dpb_error("%s: there is no %s of \"%s\"", history->path, metric, cell);
        dpb_log_hint("`dpbench history list` names what there is");
        st = DPB_ERR_NO_DATA;
    }
    if (st == DPB_OK)
        st = warn_of_machines(history, cell, metric);
    if (st == DPB_OK)
        st = warn_of_settings(history, cell, metric);
    if (st < 0) {
        free(*points);
        return st;
    }
    qsort(*points, *count, sizeof(**points), by_time);
    return DPB_OK;
}

void dpb_history_drift(const struct dpb_history_point *points, size_t count, double margin,
                       bool higher_is_better, size_t confirm, struct dpb_history_drift *drift)
{
    *drift = (struct dpb_history_drift){.first = count, .ratio = NAN};
    for (size_t i = 0; i < count; i++)
        if (points[i].is_release)
            drift->anchor = i;
    const double anchor = count > 0 ? points[drift->anchor].value : 0;
    if (!(anchor > 0))
        return;
    drift->ratio = points[count - 1].value / anchor;
    while (drift->first > drift->anchor + 1) {
        const double ratio = points[drift->first - 1].value / anchor;

        if (!(higher_is_better ? ratio < 1 / (1 + margin) : ratio > 1 + margin))
            break;
        drift->first--;
    }
    drift->is_alarm = count - drift->first > confirm;
}

/* ---- everything ---- */

dpb_status dpb_history_list(dpb_history *history, dpb_json **list)
{
    sqlite3_stmt *statement;

    DPB_TRY(prepare(history,
                    "SELECT cell, metric, count(DISTINCT commit_id), count(*) FROM run JOIN value"
                    " ON run = id GROUP BY cell, metric ORDER BY cell, metric",
                    &statement));
    *list = dpb_json_array();
    while (sqlite3_step(statement) == SQLITE_ROW) {
        dpb_json *item = dpb_json_object();

        dpb_json_set_string(item, "cell", (const char *)sqlite3_column_text(statement, 0));
        dpb_json_set_string(item, "metric", (const char *)sqlite3_column_text(statement, 1));
        dpb_json_set_int(item, "commits", sqlite3_column_int64(statement, 2));
        dpb_json_set_int(item, "runs", sqlite3_column_int64(statement, 3));
        dpb_json_append(*list, item);
    }
    if (sqlite3_finalize(statement) == SQLITE_OK)
        return DPB_OK;
    dpb_json_free(*list);
    return failed(history, "read");
}

static const char all[] = "SELECT commit_id, time_s, cell, fingerprint, metric, value, hash"
                          " FROM run JOIN value ON run = id ORDER BY time_s, id, metric";
static const char *const columns[] = {"commit", "time_s", "cell", "fingerprint",
                                      "metric", "value",  "hash"};
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

/* RFC 4180. */
static void append_field(struct dpb_str *out, const char *text)
{
    dpb_str_append(out, "\"");
    for (const char *at = text; *at; at++)
        dpb_str_append_bytes(out, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
    dpb_str_append(out, "\"");
}

dpb_status dpb_history_export_csv(dpb_history *history, struct dpb_str *out)
{
    sqlite3_stmt *statement;

    DPB_TRY(prepare(history, all, &statement));
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        dpb_str_appendf(out, "%s%s", i ? "," : "", columns[i]);
    dpb_str_append(out, "\n");
    while (sqlite3_step(statement) == SQLITE_ROW)
        for (size_t i = 0; i < COLUMN_COUNT; i++) {
            char number[DPB_UNIT_TEXT_BYTES];

            if (sqlite3_column_type(statement, (int)i) == SQLITE_FLOAT) {
                dpb_format_f64(sqlite3_column_double(statement, (int)i), number, sizeof(number));
                dpb_str_append(out, number);
            } else {
                append_field(out, (const char *)sqlite3_column_text(statement, (int)i));
            }
            dpb_str_append(out, i + 1 < COLUMN_COUNT ? "," : "\n");
        }
    if (sqlite3_finalize(statement) != SQLITE_OK)
        return failed(history, "read");
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

dpb_status dpb_history_export_json(dpb_history *history, dpb_json **list)
{
    sqlite3_stmt *statement;

    DPB_TRY(prepare(history, all, &statement));
    *list = dpb_json_array();
    while (sqlite3_step(statement) == SQLITE_ROW) {
        dpb_json *item = dpb_json_object();

        for (size_t i = 0; i < COLUMN_COUNT; i++)
            if (sqlite3_column_type(statement, (int)i) == SQLITE_FLOAT)
                dpb_json_set_real(item, columns[i], sqlite3_column_double(statement, (int)i));
            else
                dpb_json_set_string(item, columns[i],
                                    (const char *)sqlite3_column_text(statement, (int)i));
        dpb_json_append(*list, item);
    }
    if (sqlite3_finalize(statement) == SQLITE_OK)
        return DPB_OK;
    dpb_json_free(*list);
    return failed(history, "read");
}

dpb_status dpb_history_check(dpb_history *history)
{
    sqlite3_stmt *statement;
    dpb_status st = DPB_OK;

    DPB_TRY(prepare(history, "PRAGMA integrity_check", &statement));
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);

        if (strcmp(text, "ok") != 0) {
            dpb_error("%s: %s", history->path, text);
            st = DPB_ERR_CORRUPT;
        }
    }
    sqlite3_finalize(statement);
    return st;
}
