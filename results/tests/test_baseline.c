/* Baselines: what is saved is read back, what is changed is refused, decisions are kept. */
#include "dpb_test.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_baseline.h"
#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_str.h"

static char store[64], logged[8192];

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level;
    strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(store, sizeof(store), "/tmp/dpb-baseline-XXXXXX");
    logged[0] = '\0';
    dpb_log_set_sink(keep_line, NULL);
    return mkdtemp(store) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    dpb_log_set_sink(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", store);
    return system(command);
}

static void save(const char *values, const char *date, char id[DPB_BASELINE_ID_BYTES])
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_baseline_about about = {.name = "main", .commit = "abc", .price = 2.5};

    snprintf(about.date, sizeof(about.date), "%s", date);
    assert_int_equal(dpb_import_text(values, strlen(values), "values", NULL, false, &set), DPB_OK);
    assert_int_equal(dpb_baseline_save(store, &set, &about, id), DPB_OK);
    dpb_gate_set_release(&set);
}

static dpb_status read_named(const char *name, struct dpb_gate_set *set,
                             struct dpb_baseline_about *about)
{
    struct dpb_str path = {0};
    dpb_status st = dpb_baseline_find(store, name, &path);

    *set = (struct dpb_gate_set){.price = NAN};
    if (st == DPB_OK)
        st = dpb_baseline_read(path.text, set, about);
    dpb_str_release(&path);
    return st;
}

static double first_value(const char *name)
{
    struct dpb_gate_set set;

    assert_int_equal(read_named(name, &set, NULL), DPB_OK);
    const double value = dpb_gate_cell_values(&set.cells[0], "value")[0];
    dpb_gate_set_release(&set);
    return value;
}

static void replace(const char *name, const char *what, const char *by)
{
    struct dpb_str path = {0}, text = {0}, out = {0};

    dpb_str_appendf(&path, "%s/%s", store, name);
    assert_int_equal(dpb_file_read(path.text, &text), DPB_OK);
    char *at = strstr(text.text, what);
    assert_non_null(at);
    dpb_str_append_bytes(&out, text.text, (size_t)(at - text.text));
    dpb_str_append(&out, by);
    dpb_str_append(&out, at + strlen(what));
    assert_int_equal(dpb_file_write_atomic(path.text, out.text, out.length), DPB_OK);
    dpb_str_release(&path);
    dpb_str_release(&text);
    dpb_str_release(&out);
}

static void test_values_are_kept(void **state)
{
    struct dpb_gate_set set;
    struct dpb_baseline_about about;
    char id[DPB_BASELINE_ID_BYTES], again[DPB_BASELINE_ID_BYTES], name[32];

    (void)state;
    save("0.1\n1e-300\n3\n", "2020-01-01T00:00:00.000Z", id);
    save("0.1\n1e-300\n3\n", "2020-01-01T00:00:00.000Z", again);
    assert_string_equal(id, again);
    snprintf(name, sizeof(name), "main@%s", id);
    assert_int_equal(read_named(name, &set, &about), DPB_OK);
    const double *values = dpb_gate_cell_values(&set.cells[0], "value");
    assert_true(values[0] == 0.1 && values[1] == 1e-300 && values[2] == 3);
    assert_true(set.price == 2.5);
    assert_string_equal(about.commit, "abc");
    assert_non_null(strstr(set.notes, "days old"));
    dpb_gate_set_release(&set);
}

/* By the oldest run; where a run has no date of its own, by when it was saved. 1577836800: the
 * first second of 2020. */
static void test_age(void **state)
{
    struct dpb_gate_run run = {.order = NAN, .time_s = 1577836800 - 3 * 86400.0, .pair = -1};
    struct dpb_gate_set set, none = {.price = NAN};
    char id[DPB_BASELINE_ID_BYTES], name[32];
    size_t number;

    (void)state;
    save("1\n2\n3\n", "2020-01-01T00:00:00.000Z", id);
    snprintf(name, sizeof(name), "main@%s", id);
    assert_int_equal(read_named(name, &set, NULL), DPB_OK);
    assert_true(dpb_gate_set_age_days(&set, 1577836800 + 7 * 86400.0) == 7);
    assert_int_equal(dpb_gate_cell_add_run(&set.cells[0], &run, &number), DPB_OK);
    assert_true(dpb_gate_set_age_days(&set, 1577836800 + 7 * 86400.0) == 10);
    set.saved_s = 0;
    assert_true(isnan(dpb_gate_set_age_days(&set, 1577836800)));
    assert_true(isnan(dpb_gate_set_age_days(&none, 1577836800)));
    dpb_gate_set_release(&set);
}

static void test_promote_and_rollback(void **state)
{
    char one[DPB_BASELINE_ID_BYTES], two[DPB_BASELINE_ID_BYTES], back[DPB_BASELINE_ID_BYTES];
    dpb_json *decisions;

    (void)state;
    save("1\n", "2026-12-01T00:00:00.000Z", one);
    save("2\n", "2026-12-01T00:00:00.000Z", two);
    assert_int_equal(dpb_baseline_promote(store, "main", one, " ", "me"), DPB_ERR_USAGE);
    assert_int_equal(dpb_baseline_promote(store, "main", "nothing", "r", "me"), DPB_ERR_NOT_FOUND);
    assert_int_equal(dpb_baseline_promote(store, "main", one, "first", "me"), DPB_OK);
    assert_int_equal(dpb_baseline_rollback(store, "main", "none before", "me", back),
                     DPB_ERR_NO_DATA);
    assert_int_equal(dpb_baseline_promote(store, "main", two, "faster", "me"), DPB_OK);
    assert_true(first_value("main") == 2);
    assert_int_equal(dpb_baseline_rollback(store, "main", "was wrong", "me", back), DPB_OK);
    assert_string_equal(back, one);
    assert_true(first_value("main") == 1);
    assert_int_equal(dpb_baseline_decisions(store, &decisions), DPB_OK);
    assert_int_equal(dpb_json_size(decisions), 3);
    dpb_json_free(decisions);
}

static void test_changed_files_are_refused(void **state)
{
    struct dpb_gate_set set;
    char id[DPB_BASELINE_ID_BYTES];

    (void)state;
    save("1.25\n2\n", "2026-12-01T00:00:00.000Z", id);
    assert_int_equal(dpb_baseline_promote(store, "main", id, "first", "me"), DPB_OK);
    replace("main.json", "1.25", "1.75");
    assert_int_equal(read_named("main", &set, NULL), DPB_ERR_CORRUPT);
    assert_non_null(strstr(logged, "main.json"));
    dpb_gate_set_release(&set);
}

/* An anchor that is good by itself, but that nobody decided for. */
static void test_anchor_without_decision_is_refused(void **state)
{
    struct dpb_gate_set set;
    char one[DPB_BASELINE_ID_BYTES], two[DPB_BASELINE_ID_BYTES], command[512];

    (void)state;
    save("1\n", "2026-12-01T00:00:00.000Z", one);
    save("2\n", "2026-12-01T00:00:00.000Z", two);
    assert_int_equal(dpb_baseline_promote(store, "main", one, "first", "me"), DPB_OK);
    snprintf(command, sizeof(command), "cp %s/main/%s.json %s/main.json", store, two, store);
    assert_int_equal(system(command), 0);
    assert_int_equal(read_named("main", &set, NULL), DPB_ERR_CORRUPT);
    assert_non_null(strstr(logged, "last decision"));
    dpb_gate_set_release(&set);
}

static void test_changed_decisions_are_noticed(void **state)
{
    char one[DPB_BASELINE_ID_BYTES], two[DPB_BASELINE_ID_BYTES];
    dpb_json *decisions;

    (void)state;
    save("1\n", "2026-12-01T00:00:00.000Z", one);
    save("2\n", "2026-12-01T00:00:00.000Z", two);
    assert_int_equal(dpb_baseline_promote(store, "main", one, "first", "me"), DPB_OK);
    assert_int_equal(dpb_baseline_promote(store, "main", two, "second", "me"), DPB_OK);
    replace("decisions.jsonl", "first", "other");
    assert_int_equal(dpb_baseline_decisions(store, &decisions), DPB_ERR_CORRUPT);
    assert_non_null(strstr(logged, "decisions.jsonl:2"));
    assert_int_equal(dpb_baseline_promote(store, "main", one, "third", "me"), DPB_ERR_CORRUPT);
}

/* Each of eight processes decides five times: no decision is lost, the anchor is the last one's. */
static void test_promotions_at_once(void **state)
{
    char ids[2][DPB_BASELINE_ID_BYTES];
    dpb_json *decisions;

    (void)state;
    save("1\n", "2026-12-01T00:00:00.000Z", ids[0]);
    save("2\n", "2026-12-01T00:00:00.000Z", ids[1]);
    for (int child = 0; child < 8; child++)
        if (fork() == 0) {
            int failed = 0;

            for (int i = 0; i < 5; i++)
                failed |= dpb_baseline_promote(store, "main", ids[(child + i) % 2], "r", "me") < 0;
            _exit(failed);
        }
    for (int child = 0; child < 8; child++) {
        int status;

        wait(&status);
        assert_int_equal(status, 0);
    }
    assert_int_equal(dpb_baseline_decisions(store, &decisions), DPB_OK);
    assert_int_equal(dpb_json_size(decisions), 40);
    dpb_json_free(decisions);
    assert_true(first_value("main") > 0); /* refused if it were not the last one's */
}

static void test_nothing_to_save(void **state)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_baseline_about about = {.name = "main", .price = NAN};
    static const char failed[] = "{\"benchmarks\": [{\"name\": \"a\", \"error_occurred\": true}]}";
    char id[DPB_BASELINE_ID_BYTES];

    (void)state;
    assert_int_equal(dpb_baseline_save(store, &set, &about, id), DPB_ERR_NO_DATA);
    assert_int_equal(dpb_import_text(failed, strlen(failed), "f", NULL, false, &set), DPB_OK);
    assert_int_equal(dpb_baseline_save(store, &set, &about, id), DPB_ERR_NO_DATA);
    snprintf(about.name, sizeof(about.name), "../main");
    assert_int_equal(dpb_baseline_save(store, &set, &about, id), DPB_ERR_USAGE);
    dpb_gate_set_release(&set);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            TEST(test_values_are_kept),
            TEST(test_age),
            TEST(test_promote_and_rollback),
            TEST(test_changed_files_are_refused),
            TEST(test_anchor_without_decision_is_refused),
            TEST(test_changed_decisions_are_noticed),
            TEST(test_promotions_at_once),
            TEST(test_nothing_to_save),
    };
    return DPB_RUN_TESTS(tests);
}
