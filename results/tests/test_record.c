#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_comma_locale.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_str.h"
#include "dpb_test.h"
#include "dpb_sample_record.h"

static char log_text[4096]; /* the last lines */

static void keep_log(void *ctx, enum dpb_log_level level, const char *line)
{
    size_t used = strlen(log_text);

    (void)ctx;
    (void)level;
    if (used + strlen(line) + 2 > sizeof(log_text))
        used = 0;
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static char folder[64];
static char path[96];

static int set_up(void **state)
{
    (void)state;
    log_text[0] = '\0';
    dpb_log_set_sink(keep_log, NULL);
    strcpy(folder, "/tmp/dpb-record-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/records.jsonl", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dpb_log_set_sink(NULL, NULL);
    unlink(path);
    return rmdir(folder);
}

static dpb_json *make(int64_t cell)
{
    struct sample_record sample = sample_record_default;

    sample.cell = cell;
    return sample_record_make(&sample);
}

static void append(int64_t cell)
{
    dpb_json *record = make(cell);

    assert_int_equal(dpb_records_append(path, record), DPB_OK);
    dpb_json_free(record);
}

static void write_bytes(const char *text, size_t count)
{
    FILE *file = fopen(path, "w"); /* as it is, a file that is not synced: thousands are written */

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

static int64_t cell_of(const dpb_json *record)
{
    return dpb_json_as_int(dpb_json_get(record, "cell"), -1);
}

static void expect_why(dpb_json *record, const char *text)
{
    char why[256] = "";

    assert_int_equal(dpb_record_check(record, why), DPB_ERR_CORRUPT);
    if (!strstr(why, text))
        fail_msg("\"%s\" is not in \"%s\"", text, why);
    dpb_json_free(record);
}

static dpb_json *with(const char *key, dpb_json *value)
{
    dpb_json *record = make(0);

    dpb_json_set(record, key, value);
    return record;
}

static dpb_json *without(const char *left_out)
{
    dpb_json *record = make(0), *copy = dpb_json_object();
    const dpb_json *value;
    dpb_json_walk walk = {0};
    const char *key;

    while ((value = dpb_json_next(record, &walk, &key))) {
        if (strcmp(key, left_out) != 0)
            dpb_json_set(copy, key, dpb_json_copy(value));
    }
    dpb_json_free(record);
    return copy;
}

static void test_check_accepts(void **state)
{
    struct sample_record sample = sample_record_default;
    dpb_json *record = make(3);
    char why[256];

    (void)state;
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    dpb_json_set_string(record, "a_key_of_the_future", "x");
    dpb_json_set_string(record, "schema", "dpb.record/1.3");
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    dpb_json_free(record);
    sample.status = "timeout";
    sample.reason = "no step within 30s";
    record = sample_record_make(&sample);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    dpb_json_free(record);
}

static void test_check_names_the_missing_key(void **state)
{
    static const char *const keys[] = {
            "schema",       "run_id",   "cell",           "repeat",         "status",
            "tool",         "config",   "time_utc",       "fingerprint",    "repro",
            "axes",         "series",   "compute_series", "ranks",          "scaling",
            "global_batch", "emulated", "simulated",      "batch_per_rank", "samples_step_ns",
            "warnings"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char text[64];

        snprintf(text, sizeof(text), "\"%s\"", keys[i]);
        expect_why(without(keys[i]), text);
        expect_why(with(keys[i], dpb_json_null()), keys[i]);
    }
}

static void test_check_refuses(void **state)
{
    const double zero[] = {20e6, 0}, negative[] = {-1, 20e6};
    dpb_json *samples;

    (void)state;
    expect_why(dpb_json_array(), "not a JSON object");
    expect_why(with("schema", dpb_json_string("dpb.record/2")), "dpb.record/2");
    expect_why(with("schema", dpb_json_string("dpb.record/10")), "dpb.record/10");
    expect_why(with("schema", dpb_json_int(1)), "schema");
    expect_why(with("status", dpb_json_string("fine")), "fine");
    expect_why(with("scaling", dpb_json_string("none")), "none");
    expect_why(with("ranks", dpb_json_int(0)), "1 or more");
    expect_why(with("ranks", dpb_json_real(2.5)), "ranks");
    expect_why(with("ranks", dpb_json_int(INT64_C(1) << 40)), "at most 2147483647");
    expect_why(with("cell", dpb_json_int(-1)), "cell");
    expect_why(with("emulated", dpb_json_string("yes")), "emulated");
    expect_why(with("samples_step_ns", dpb_json_array()), "empty");
    expect_why(with("samples_step_ns", dpb_json_reals(zero, 2)), "[1]");
    expect_why(with("samples_step_ns", dpb_json_reals(negative, 2)), "[0]");
    samples = dpb_json_array();
    dpb_json_append(samples, dpb_json_null());
    expect_why(with("samples_step_ns", samples), "[0]");
    samples = dpb_json_array();
    dpb_json_append(samples, dpb_json_string("20"));
    expect_why(with("samples_step_ns", samples), "[0]");
}

static void test_append_and_read(void **state)
{
    struct dpb_records records = {0};
    struct dpb_str content = {0};

    (void)state;
    append(0);
    append(1);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(records.count, 2);
    assert_int_equal(records.torn, 0);
    assert_int_equal(cell_of(records.items[1]), 1);
    /* a folder that holds them, into the same records */
    assert_int_equal(dpb_records_read(folder, &records), DPB_OK);
    assert_int_equal(records.count, 4);
    assert_int_equal(cell_of(records.items[2]), 0);
    dpb_records_release(&records);
    assert_int_equal(records.count, 0);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    assert_int_equal(content.text[content.length - 1], '\n');
    dpb_str_release(&content);
}

/* The linker puts this in place of the system's, which `lock_error` stands for. */
static int lock_error;
int __wrap_flock(int fd, int operation);
int __real_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    if (lock_error == 0)
        return __real_flock(fd, operation);
    errno = lock_error;
    return -1;
}

static void test_file_systems_without_locks(void **state)
{
    struct dpb_records records = {0};

    (void)state;
    lock_error = ENOSYS;
    append(0);
    append(1);
    lock_error = EIO;
    dpb_json *record = make(2);
    assert_int_equal(dpb_records_append(path, record), DPB_ERR_IO);
    dpb_json_free(record);
    lock_error = 0;
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(records.count, 2);
    dpb_records_release(&records);
}

static void test_append_refuses_invalid(void **state)
{
    dpb_json *record = with("ranks", dpb_json_int(0));

    (void)state;
    append(0);
    assert_int_equal(dpb_records_append(path, record), DPB_ERR_CORRUPT);
    assert_non_null(strstr(log_text, path));
    assert_non_null(strstr(log_text, "ranks"));
    dpb_json_free(record);
}

static void test_append_cannot_write(void **state)
{
    dpb_json *record = make(0);

    (void)state;
    assert_int_equal(dpb_records_append("/nonexistent/records.jsonl", record), DPB_ERR_IO);
    assert_non_null(strstr(log_text, "/nonexistent/records.jsonl"));
    assert_int_equal(dpb_records_append("/dev/full", record), DPB_ERR_IO);
    assert_non_null(strstr(log_text, "No space left"));
    dpb_json_free(record);
}

static void test_cut_at_every_byte(void **state)
{
    struct dpb_str content = {0};
    size_t last_start, length;

    (void)state;
    append(0);
    append(1);
    append(2);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    last_start = content.length - 1;
    while (content.text[last_start - 1] != '\n')
        last_start--;
    for (length = last_start + 1; length < content.length; length++) {
        struct dpb_records records = {0};

        write_bytes(content.text, length);
        assert_int_equal(dpb_records_read(path, &records), DPB_OK);
        assert_int_equal(records.count, 2);
        assert_int_equal(records.torn, 1);
        assert_int_equal(cell_of(records.items[0]), 0);
        assert_int_equal(cell_of(records.items[1]), 1);
        dpb_records_release(&records);
    }
    dpb_str_release(&content);
}

static void test_append_after_a_torn_line(void **state)
{
    struct dpb_records records = {0};
    struct dpb_str content = {0};
    size_t whole, torn_lengths[] = {1, 7, 300, 0};
    size_t i;

    (void)state;
    append(0);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    whole = content.length;
    torn_lengths[3] = whole - 1; /* all but the newline */
    for (i = 0; i < 4; i++) {
        struct dpb_str torn = {0};

        dpb_str_append_bytes(&torn, content.text, whole);
        dpb_str_append_bytes(&torn, content.text, torn_lengths[i]);
        write_bytes(torn.text, torn.length);
        dpb_str_release(&torn);
        append(5);
        assert_int_equal(dpb_records_read(path, &records), DPB_OK);
        assert_int_equal(records.count, 2);
        assert_int_equal(records.torn, 0);
        assert_int_equal(cell_of(records.items[0]), 0);
        assert_int_equal(cell_of(records.items[1]), 5);
        dpb_records_release(&records);
    }
    dpb_str_release(&content);
    /* nothing but a torn line, longer than one chunk of the search */
    for (i = 0; i < 10000; i++)
        dpb_str_append(&content, "{");
    write_bytes(content.text, content.length);
    dpb_str_release(&content);
    append(6);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(records.count, 1);
    assert_int_equal(cell_of(records.items[0]), 6);
    dpb_records_release(&records);
    assert_non_null(strstr(log_text, "torn"));
}

static void append_many(int64_t first)
{
    int64_t i;

    for (i = 0; i < 40; i++) {
        dpb_json *record = make(first + i);

        if (dpb_records_append(path, record) != DPB_OK)
            _exit(1);
        dpb_json_free(record);
    }
}

static void test_two_writers(void **state)
{
    struct dpb_records records = {0};
    bool seen[80] = {false};
    pid_t child = fork();
    int child_status = -1;
    size_t i;

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        append_many(40);
        _exit(0);
    }
    append_many(0);
    assert_int_equal(waitpid(child, &child_status, 0), child);
    assert_int_equal(child_status, 0);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(records.count, 80);
    assert_int_equal(records.torn, 0);
    for (i = 0; i < records.count; i++)
        seen[cell_of(records.items[i])] = true;
    for (i = 0; i < 80; i++)
        assert_true(seen[i]);
    dpb_records_release(&records);
}

static void expect_damage(const char *bad_line, const char *in_log)
{
    struct dpb_records records = {0};
    struct dpb_str content = {0};

    append(0);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    dpb_str_append(&content, bad_line);
    dpb_str_append(&content, "\n");
    write_text(content.text);
    log_text[0] = '\0';
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_CORRUPT);
    /* all or nothing */
    assert_int_equal(records.count, 0);
    if (!strstr(log_text, "line 2") || !strstr(log_text, path) || !strstr(log_text, in_log))
        fail_msg("\"%s\", line 2 or the path is not in \"%s\"", in_log, log_text);
    dpb_records_release(&records);
    dpb_str_release(&content);
    unlink(path);
}

static void test_damaged_lines(void **state)
{
    dpb_json *record = without("ranks");
    struct dpb_str line = {0};

    (void)state;
    assert_int_equal(dpb_json_write(record, false, &line), DPB_OK);
    expect_damage(line.text, "\"ranks\" is missing");
    dpb_json_free(record);
    dpb_str_release(&line);

    record = with("schema", dpb_json_string("dpb.record/2"));
    assert_int_equal(dpb_json_write(record, false, &line), DPB_OK);
    expect_damage(line.text, "dpb.record/2");
    dpb_json_free(record);

    /* the same object with a key twice */
    line.text[line.length - 1] = '\0';
    line.length--;
    dpb_str_append(&line, ",\"cell\":1}");
    expect_damage(line.text, "duplicate");
    dpb_str_release(&line);

    expect_damage("{\"schema\": \"dpb.re", "column");
    expect_damage("[]", "not a JSON object");
}

static void test_no_records(void **state)
{
    struct dpb_records records = {0};

    (void)state;
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_NOT_FOUND);
    assert_int_equal(dpb_records_read(folder, &records), DPB_ERR_NOT_FOUND);
    write_text("");
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_NO_DATA);
    write_text("\n \r\n");
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_NO_DATA);
    write_text("{\"schema\":\"dpb.rec");
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_NO_DATA);
    assert_int_equal(records.count, 0);
    assert_non_null(strstr(log_text, "holds no record"));
    log_text[0] = '\0';
    assert_int_equal(dpb_records_read_begun(path, &records), DPB_OK);
    assert_int_equal(records.count, 0);
    assert_null(strstr(log_text, "error: "));
    dpb_records_release(&records);
}

/* A later file that fails leaves what was read before. */
static void test_failure_keeps_earlier_records(void **state)
{
    struct dpb_records records = {0};

    (void)state;
    append(0);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_int_equal(dpb_records_read("/nonexistent", &records), DPB_ERR_NOT_FOUND);
    write_text("broken\n");
    assert_int_equal(dpb_records_read(path, &records), DPB_ERR_CORRUPT);
    assert_int_equal(records.count, 1);
    dpb_records_release(&records);
}

static void test_decimal_comma(void **state)
{
    static const double samples[] = {20000000.5, 21e6};
    struct sample_record sample = sample_record_default;
    struct dpb_records records = {0};
    struct dpb_str content = {0};
    dpb_json *record;

    (void)state;
    sample.samples_ns = samples;
    sample.sample_count = 2;
    if (!comma_locale_enter()) {
        dpb_test_skip("no locale with a decimal comma, and localedef cannot make one");
    }
    record = sample_record_make(&sample);
    assert_int_equal(dpb_records_append(path, record), DPB_OK);
    dpb_json_free(record);
    assert_int_equal(dpb_file_read(path, &content), DPB_OK);
    assert_non_null(strstr(content.text, "20000000.5"));
    dpb_str_release(&content);
    assert_int_equal(dpb_records_read(path, &records), DPB_OK);
    assert_true(dpb_json_as_real(dpb_json_at(dpb_json_get(records.items[0], "samples_step_ns"), 0),
                                 0) == 20000000.5);
    dpb_records_release(&records);
    comma_locale_leave();
}

static void test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(dpb_record_status_text(DPB_RECORD_OK), "ok");
    assert_string_equal(dpb_record_status_text(DPB_RECORD_INTERRUPTED), "interrupted");
    assert_string_equal(dpb_record_status_text((enum dpb_record_status)99), "unknown");
}

int main(void)
{
#define RECORD_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_check_accepts),
            cmocka_unit_test(test_check_names_the_missing_key),
            cmocka_unit_test(test_check_refuses),
            RECORD_TEST(test_append_and_read),
            RECORD_TEST(test_append_refuses_invalid),
            RECORD_TEST(test_append_cannot_write),
            RECORD_TEST(test_cut_at_every_byte),
            RECORD_TEST(test_append_after_a_torn_line),
            RECORD_TEST(test_two_writers),
            RECORD_TEST(test_file_systems_without_locks),
            RECORD_TEST(test_damaged_lines),
            RECORD_TEST(test_no_records),
            RECORD_TEST(test_failure_keeps_earlier_records),
            RECORD_TEST(test_decimal_comma),
            cmocka_unit_test(test_status_texts),
    };

    return DPB_RUN_TESTS(tests);
}
