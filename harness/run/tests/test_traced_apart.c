/* A recorder that wants processes of its own: timed steps run first, in processes that know nothing
 * of it, then a second launch warms up and traces; the record has both. */
#include "dpb_test.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_driver.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_plan.h"
#include "dpb_record.h"
#include "dpb_run_folder.h"
#include "dpb_worker.h"
#include "registry_for_tests.h"

#define LOG_VARIABLE "DPB_TEST_TRACED_APART_LOG"
#define RANKS        2

/* What happened in all processes, one letter each. */
static void note(const char *what)
{
    const char *path = getenv(LOG_VARIABLE);
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (fd < 0 || write(fd, what, strlen(what)) < 0)
        _exit(97);
    close(fd);
}

static int count(char what)
{
    char text[256] = "";
    int found = 0;
    FILE *file = fopen(getenv(LOG_VARIABLE), "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    for (const char *at = text; *at; at++)
        found += *at == what;
    return found;
}

/* ---- the recorder: the host's, which says what is asked of it ---- */

static dpb_status prepare(void)
{
    note("p");
    return DPB_OK;
}

static dpb_status start(dpb_recorder *recorder)
{
    (void)recorder;
    note("s");
    return DPB_OK;
}

static const struct dpb_registry *registry_with(unsigned flags)
{
    static struct dpb_recorder_ops ops;
    static const struct dpb_recorder_ops *const recorders[] = {&ops};
    static struct dpb_registry registry;
    ops = dpb_recorder_host_ops;
    ops.flags = flags;
    ops.prepare = prepare;
    ops.start = start;
    registry = *registry_for_tests();
    registry.recorders = recorders;
    return &registry;
}

static unsigned flags_of_environment(void)
{
    return getenv("DPB_TEST_TOGETHER") ? 0 : DPB_RECORDER_OWN_PROCESS;
}

/* ---- runs ---- */

static void ignore(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void build(const struct dpb_registry *registry, const char *trace_steps,
                  struct dpb_plan *plan)
{
    const char *const flags[][2] = {
            {"workload", "mnist-mlp"},    {"data", "synthetic"}, {"ranks", "2"},
            {"batch-per-rank", "4"},      {"steps", "4"},        {"warmup", "2"},
            {"trace-steps", trace_steps}, {"probe-limit", "0"}};
    struct dpb_settings settings = {0};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        assert_int_equal(
                dpb_settings_add(&settings, registry->options, flags[i][0], flags[i][1], "test"),
                DPB_OK);
    struct dpb_plan_input input = {registry, NULL, &settings, false, 2, "t"};
    assert_int_equal(dpb_plan_build(&input, plan), DPB_OK);
    dpb_settings_release(&settings);
}

static char folder_text[64];

/* Its log is read by the test, and then it is gone. */
static void kept_folder(const char *folder)
{
    snprintf(folder_text, sizeof(folder_text), "%s", folder);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder_text, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The run's only record; release it. */
static struct dpb_records run(const char *trace_steps)
{
    char folder[] = "/tmp/dpb-traced-XXXXXX", path[160];
    const struct dpb_registry *registry = registry_with(flags_of_environment());
    struct dpb_driver_config config = {.registry = registry, .folder = folder};
    struct dpb_driver_result result;
    struct dpb_records records = {0};
    struct dpb_plan plan;
    assert_non_null(mkdtemp(folder));
    kept_folder(folder);
    snprintf(path, sizeof(path), "%s/log", folder);
    setenv(LOG_VARIABLE, path, 1);
    build(registry, trace_steps, &plan);
    config.plan = &plan;
    if (dpb_driver_run(&config, &result) != DPB_OK)
        fail_msg("%s", result.first_reason);
    snprintf(path, sizeof(path), "%s/%s", folder, DPB_RECORDS_FILE);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(records.count, 1);
    dpb_plan_release(&plan);
    return records;
}

static int64_t number(const struct dpb_records *records, const char *path)
{
    return dpb_json_as_int(dpb_json_path(records->items[0], path), -1);
}

static void test_traced_in_processes_of_their_own(void **state)
{
    (void)state;
    unsetenv("DPB_TEST_TOGETHER");
    struct dpb_records records = run("2");
    assert_int_equal(count('w'), 2 * RANKS);
    assert_int_equal(count('p'), RANKS);
    assert_int_equal(count('s'), RANKS);
    assert_int_equal(number(&records, "overlap/rank_steps"), 2 * RANKS);
    assert_int_equal(number(&records, "training/steps"), 4);
    assert_int_equal(dpb_json_size(dpb_json_path(records.items[0], "samples_step_ns")), 2);
    dpb_records_release(&records);
}

static void test_nothing_to_trace(void **state)
{
    (void)state;
    unsetenv("DPB_TEST_TOGETHER");
    struct dpb_records records = run("0");
    assert_int_equal(count('w'), RANKS);
    assert_int_equal(count('p'), 0);
    assert_int_equal(number(&records, "overlap/rank_steps"), -1);
    dpb_records_release(&records);
}

static void test_other_recorders_stay_in_the_process(void **state)
{
    (void)state;
    setenv("DPB_TEST_TOGETHER", "1", 1);
    struct dpb_records records = run("2");
    assert_int_equal(count('w'), RANKS);
    assert_int_equal(count('p'), RANKS);
    assert_int_equal(count('s'), RANKS);
    assert_int_equal(number(&records, "overlap/rank_steps"), 2 * RANKS);
    dpb_records_release(&records);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_teardown(test_traced_in_processes_of_their_own, remove_folder),
            cmocka_unit_test_teardown(test_nothing_to_trace, remove_folder),
            cmocka_unit_test_teardown(test_other_recorders_stay_in_the_process, remove_folder),
    };
    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0) {
        note("w");
        return dpb_worker_main(registry_with(flags_of_environment()));
    }
    dpb_log_set_sink(ignore, NULL);
    return DPB_RUN_TESTS(tests);
}
