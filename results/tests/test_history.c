/* Histories: what was added is there, once, whoever is killed meanwhile; drift and its anchor. */
#include "dpb_test.h"

#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dpb_history.h"
#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_str.h"

static char folder[64], path[96], logged[4096];

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level;
    strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/dpb-history-XXXXXX");
    logged[0] = '\0';
    dpb_log_set_sink(keep_line, NULL);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/history.db", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    dpb_log_set_sink(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* `runs` runs of one cell that differ by `number`. */
static dpb_status add(dpb_history *history, int number, int runs, double value, const char *commit,
                      double time_s, struct dpb_history_added *added)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_str text = {0};

    for (int i = 0; i < runs; i++)
        dpb_str_appendf(&text, "%.17g\n", value + 1e-9 * (number * 100 + i));
    assert_int_equal(dpb_import_text(text.text, text.length, "values", NULL, false, &set), DPB_OK);
    const dpb_status st = dpb_history_add(history, &set, commit, time_s, added);
    dpb_gate_set_release(&set);
    dpb_str_release(&text);
    return st;
}

static dpb_history *open_it(void)
{
    dpb_history *history;

    if (dpb_history_open(path, true, &history) != DPB_OK)
        fail_msg("%s", logged);
    return history;
}

static void test_adding_twice_is_adding_once(void **state)
{
    dpb_history *history = open_it();
    struct dpb_history_added added;
    struct dpb_history_point *points;
    size_t count;

    (void)state;
    assert_int_equal(add(history, 1, 3, 2, "b", 200, &added), DPB_OK);
    assert_int_equal(added.added, 3);
    assert_int_equal(add(history, 1, 3, 2, "b", 200, &added), DPB_OK);
    assert_int_equal(added.added, 0);
    assert_int_equal(added.known, 3);
    assert_int_equal(add(history, 1, 3, 2, "c", 300, &added), DPB_OK);
    assert_int_equal(added.added, 3); /* the same values of another commit */
    assert_int_equal(add(history, 2, 2, 1, "a", 100, &added), DPB_OK);
    assert_int_equal(dpb_history_points(history, "value", "value", &points, &count), DPB_OK);
    assert_int_equal(count, 3);
    assert_string_equal(points[0].commit, "a"); /* by time, not by name or order of adding */
    assert_int_equal(points[1].runs, 3);
    assert_true(fabs(points[1].value - 2) < 1e-6);
    free(points);
    assert_int_equal(dpb_history_points(history, "none", "value", &points, &count),
                     DPB_ERR_NO_DATA);
    assert_int_equal(add(history, 3, 1, 1, "", 1, &added), DPB_ERR_USAGE);
    dpb_history_close(history);
}

static void run_sql(const char *sql)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void test_other_files_are_refused(void **state)
{
    dpb_history *history = open_it();

    (void)state;
    dpb_history_close(history);
    run_sql("PRAGMA user_version = 2");
    assert_int_equal(dpb_history_open(path, false, &history), DPB_ERR_UNSUPPORTED);
    assert_non_null(strstr(logged, "version 2"));
    run_sql("PRAGMA application_id = 7");
    assert_int_equal(dpb_history_open(path, false, &history), DPB_ERR_CORRUPT);
    assert_int_equal(dpb_file_write_atomic(path, "not a database, but a text\n", 27), DPB_OK);
    assert_int_equal(dpb_history_open(path, false, &history), DPB_ERR_CORRUPT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(dpb_history_open(path, false, &history), DPB_ERR_NOT_FOUND);
}

/* Holds the lock of a writer for a while, of a file that is not a history yet, as a program does
 * that is making one; tells through `fd` when it has it. */
static _Noreturn void hold_new_file(int fd)
{
    sqlite3 *db;

    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
        write(fd, "x", 1) != 1)
        _exit(1);
    usleep(200000);
    sqlite3_close(db);
    _exit(0);
}

static void test_a_file_that_another_program_makes_is_waited_for(void **state)
{
    int fds[2], status;
    char byte;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    const pid_t other = fork();
    if (other == 0)
        hold_new_file(fds[1]);
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    dpb_history_close(open_it());
    assert_string_equal(logged, "");
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    close(fds[0]);
}

static _Noreturn void end_writer(void)
{
    print_error("a writer could not go on: %s\n", logged);
    _exit(1);
}

/* Adds until it is killed, and tells through `fd` what has been committed. */
static void write_until_killed(int child, int fd)
{
    dpb_history *history;
    struct dpb_history_added added;

    logged[0] = '\0';
    if (dpb_history_open(path, true, &history) != DPB_OK)
        end_writer();
    for (int i = 0;; i++) {
        char commit[32];

        snprintf(commit, sizeof(commit), "c%d-%d", child, i);
        if (add(history, child * 10000 + i, 4, 1 + i, commit, i, &added) != DPB_OK ||
            write(fd, commit, sizeof(commit)) != sizeof(commit))
            end_writer();
    }
}

/* Two at once, killed at random moments: the file is whole, and every addition that was committed
 * is in it with all its runs. */
static void test_killed_writers(void **state)
{
    struct dpb_rng rng;
    int fds[2], status;
    size_t told = 0, count;
    int waiting = 0; /* bytes of what was told */
    char commit[32];
    struct dpb_history_point *points;

    (void)state;
    dpb_rng_init(&rng, 3, 0);
    assert_int_equal(pipe(fds), 0);
    /* On a busy machine more, until one has come to commit something. */
    for (int round = 0; round < 12 || (waiting == 0 && round < 1000); round++) {
        pid_t children[2];

        for (int k = 0; k < 2; k++)
            if ((children[k] = fork()) == 0)
                write_until_killed(2 * round + k, fds[1]);
        for (int k = 0; k < 2; k++) {
            usleep((useconds_t)(5000 + dpb_rng_below(&rng, 60000)));
            kill(children[k], SIGKILL);
            waitpid(children[k], &status, 0);
            assert_true(WIFSIGNALED(status));
        }
        dpb_history *history = open_it();
        assert_int_equal(dpb_history_check(history), DPB_OK);
        dpb_history_close(history);
        assert_int_equal(ioctl(fds[0], FIONREAD, &waiting), 0);
    }
    close(fds[1]);
    dpb_history *history = open_it();
    assert_int_equal(dpb_history_points(history, "value", "value", &points, &count), DPB_OK);
    while (read(fds[0], commit, sizeof(commit)) == sizeof(commit)) {
        bool there = false;

        for (size_t i = 0; i < count; i++)
            there |= strcmp(points[i].commit, commit) == 0;
        if (!there)
            fail_msg("%s was committed and is gone", commit);
        told++;
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(points[i].runs, 4); /* all of an addition or nothing */
    assert_true(told > 0);
    free(points);
    close(fds[0]);
    dpb_history_close(history);
}

/* Every step is within what a gate lets pass; ten of them are not. */
static void test_ten_small_steps_are_an_alarm(void **state)
{
    struct dpb_history_point points[16] = {{.is_release = true, .value = 100}};
    struct dpb_history_drift drift;

    (void)state;
    for (int i = 1; i < 16; i++)
        points[i] = (struct dpb_history_point){.value = 100 * pow(1.009, i < 10 ? i : 10)};
    dpb_history_drift(points, 10, 0.05, false, 3, &drift);
    assert_true(drift.is_alarm); /* 6 to 9 are beyond 5 % */
    assert_int_equal(drift.first, 6);
    dpb_history_drift(points, 9, 0.05, false, 3, &drift);
    assert_false(drift.is_alarm); /* two follow only */
    points[15].value = 100;
    dpb_history_drift(points, 16, 0.05, false, 3, &drift);
    assert_false(drift.is_alarm); /* it has gone back */
    points[15].value = points[14].value;
    points[10].is_release = true;
    dpb_history_drift(points, 16, 0.05, false, 3, &drift);
    assert_false(drift.is_alarm); /* the new release is the level now */
    assert_int_equal(drift.anchor, 10);
    points[10].is_release = false;
    dpb_history_drift(points, 16, 0.05, true, 3, &drift);
    assert_false(drift.is_alarm); /* more is better */
}

/* A run on a machine: a value and its fingerprint. */
static void add_of(dpb_history *history, const char *machine, double value, const char *commit)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_history_added added;
    char text[32];

    snprintf(text, sizeof(text), "%.17g\n", value);
    assert_int_equal(dpb_import_text(text, strlen(text), "values", NULL, false, &set), DPB_OK);
    assert_int_equal(dpb_gate_cell_set_fact(&set.cells[0], "fingerprint", machine), DPB_OK);
    assert_int_equal(dpb_history_add(history, &set, commit, value, &added), DPB_OK);
    dpb_gate_set_release(&set);
}

static void test_runs_of_two_machines_are_warned_of(void **state)
{
    dpb_history *history = open_it();
    struct dpb_history_point *points;
    size_t count;

    (void)state;
    add_of(history, "one", 1, "a");
    add_of(history, "one", 2, "b");
    assert_int_equal(dpb_history_points(history, "value", "value", &points, &count), DPB_OK);
    free(points);
    assert_string_equal(logged, "");
    add_of(history, "other", 3, "c");
    assert_int_equal(dpb_history_points(history, "value", "value", &points, &count), DPB_OK);
    free(points);
    assert_non_null(strstr(logged, "are of 2 machines"));
    dpb_history_close(history);
}

static void add_emulated(dpb_history *history, const char *link, double value)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_history_added added;
    struct dpb_str text = {0};

    dpb_str_appendf(&text, "%.17g\n", value);
    assert_int_equal(dpb_import_text(text.text, text.length, "values", NULL, false, &set), DPB_OK);
    dpb_str_release(&text);
    dpb_gate_cell_set_fact(&set.cells[0], "simulated", "false");
    dpb_gate_cell_set_fact(&set.cells[0], "emulated", link ? "true" : "false");
    dpb_gate_cell_set_fact(&set.cells[0], "link", link ? link : "null");
    assert_int_equal(dpb_history_add(history, &set, "a", 1, &added), DPB_OK);
    dpb_gate_set_release(&set);
}

/* Times of an emulated link are compared with those of the same link only. */
static void test_emulated_runs_are_a_series_of_their_own(void **state)
{
    static const char *const names[] = {"value", "value, emulated 1Gbps,5ms",
                                        "value, emulated 10Gbps,5ms"};
    dpb_history *history = open_it();

    (void)state;
    add_emulated(history, NULL, 1);
    add_emulated(history, "{\"bw_bytes_per_s\":125000000.0,\"latency_ns\":5000000}", 20);
    add_emulated(history, "{\"bw_bytes_per_s\":1250000000.0,\"latency_ns\":5000000}", 300);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct dpb_history_point *points;
        size_t count;

        if (dpb_history_points(history, names[i], "value", &points, &count) != DPB_OK)
            fail_msg("%s", logged);
        assert_int_equal(points[0].runs, 1);
        free(points);
    }
    dpb_history_close(history);
}

static void add_with(dpb_history *history, const char *options, const char *commit, double value)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_gate_run run = {.order = NAN, .time_s = value, .pair = -1};
    struct dpb_gate_cell *cell = dpb_gate_set_cell(&set, "cell", options);
    struct dpb_history_added added;
    size_t number;

    assert_non_null(cell);
    snprintf(run.hash, sizeof(run.hash), "%s%g", commit, value);
    assert_int_equal(dpb_gate_cell_add_run(cell, &run, &number), DPB_OK);
    assert_int_equal(dpb_gate_cell_set_value(cell, number, dpb_gate_metric_find("loss"), value),
                     DPB_OK);
    assert_int_equal(dpb_history_add(history, &set, commit, value, &added), DPB_OK);
    dpb_gate_set_release(&set);
}

static void test_runs_with_other_options_are_warned_of(void **state)
{
    dpb_history *history = open_it();
    struct dpb_history_point *points;
    size_t count;

    (void)state;
    dpb_history_close(history);
    run_sql("DROP TABLE settings"); /* a history that was made before there were any */
    history = open_it();
    add_with(history, "batch-per-rank=8 lr=0.1 profile='' ranks=2", "a", 1);
    add_with(history, "batch-per-rank=8 lr=0.1 new=on ranks=2", "b", 2);
    assert_int_equal(dpb_history_points(history, "cell", "loss", &points, &count), DPB_OK);
    free(points);
    assert_string_equal(logged, ""); /* an option that is new is no difference */
    add_with(history, "batch-per-rank=64 lr=0.1 ranks=2", "c", 3);
    assert_int_equal(dpb_history_points(history, "cell", "loss", &points, &count), DPB_OK);
    free(points);
    assert_non_null(strstr(logged, "differ in batch-per-rank (8, 64): "));
    dpb_history_close(history);
}

static void test_drift_from_zero_is_no_ratio(void **state)
{
    const struct dpb_history_point points[] = {
            {.value = 0}, {.value = 1e-9}, {.value = 1e-9}, {.value = 1e-9}, {.value = 1e-9}};
    struct dpb_history_drift drift;

    (void)state;
    dpb_history_drift(points, 5, 0.05, false, 3, &drift);
    assert_false(drift.is_alarm);
    assert_true(isnan(drift.ratio));
}

static void test_release_and_export(void **state)
{
    dpb_history *history = open_it();
    struct dpb_history_added added;
    struct dpb_history_point *points;
    struct dpb_str csv = {0};
    dpb_json *json;
    size_t count;

    (void)state;
    assert_int_equal(add(history, 1, 2, 1, "a", 1, &added), DPB_OK);
    assert_int_equal(dpb_history_release(history, "a", "1.0", ""), DPB_ERR_USAGE);
    assert_int_equal(dpb_history_release(history, "a", "1.0", "first"), DPB_OK);
    assert_int_equal(dpb_history_points(history, "value", "value", &points, &count), DPB_OK);
    assert_true(points[0].is_release);
    free(points);
    assert_int_equal(dpb_history_export_csv(history, &csv), DPB_OK);
    assert_ptr_equal(strstr(csv.text, "commit,time_s,cell,fingerprint,metric,value,hash\n"),
                     csv.text);
    assert_non_null(strstr(csv.text, "\"a\",1,\"value\",\"\",\"value\",1.0000001"));
    assert_int_equal(dpb_history_export_json(history, &json), DPB_OK);
    assert_int_equal(dpb_json_size(json), 2);
    dpb_json_free(json);
    dpb_str_release(&csv);
    dpb_history_close(history);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            TEST(test_adding_twice_is_adding_once),
            TEST(test_other_files_are_refused),
            TEST(test_killed_writers),
            TEST(test_a_file_that_another_program_makes_is_waited_for),
            TEST(test_ten_small_steps_are_an_alarm),
            TEST(test_runs_of_two_machines_are_warned_of),
            TEST(test_emulated_runs_are_a_series_of_their_own),
            TEST(test_runs_with_other_options_are_warned_of),
            TEST(test_drift_from_zero_is_no_ratio),
            TEST(test_release_and_export),
    };
    return DPB_RUN_TESTS(tests);
}
