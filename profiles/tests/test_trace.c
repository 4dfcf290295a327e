/* Trace files: what is written is read to the nanosecond, what is damaged is refused; and the
 * events' way through JSON. tests/check_trace.py looks at the files with other eyes. */
#include "dpb_test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_trace.h"

static char folder[] = "/tmp/dpb-test-trace-XXXXXX";
static char path[128];
static char last_error[512];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !strstr(line, "hint: "))
        snprintf(last_error, sizeof(last_error), "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/trace.json", folder);
    dpb_log_set_sink(keep_error, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dpb_log_set_sink(NULL, NULL);
    unlink(path);
    return rmdir(folder);
}

static struct dpb_event event_of(enum dpb_event_kind kind, int rank, int64_t start_ns,
                                 int64_t end_ns, const char *name)
{
    return (struct dpb_event){
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = name,
            .step = 3,
            .bucket = -1,
            .kind = (uint8_t)kind,
            .lane = kind == DPB_EVENT_COMM || kind == DPB_EVENT_COMM_WAIT ? DPB_LANE_COMM
                                                                          : DPB_LANE_HOST,
            .rank = (int16_t)rank,
    };
}

static void assert_events_equal(const struct dpb_event *a, const struct dpb_event *b)
{
    assert_true(a->start_ns == b->start_ns);
    assert_true(a->end_ns == b->end_ns);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->bucket, b->bucket);
    assert_true(a->bytes == b->bytes);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->rank, b->rank);
}

/* Write the events, read them back, and compare with `expected`, which is in order. */
static void round_trip(const struct dpb_event *given, const struct dpb_event *expected,
                       size_t count, uint64_t lost)
{
    const struct dpb_trace_info info = {.title = "a \"cell\"", .world_size = 2, .lost = lost};
    struct dpb_event *events = NULL;
    uint64_t read_lost = 99;
    size_t read_count = 99;
    char *names = NULL;

    assert_int_equal(dpb_trace_write(path, &info, given, count), DPB_OK);
    assert_int_equal(dpb_trace_read(path, &events, &read_count, &names, &read_lost), DPB_OK);
    assert_int_equal(read_count, count);
    assert_int_equal(read_lost, lost);
    assert_non_null(events);
    assert_non_null(names);
    for (size_t i = 0; i < count; i++)
        assert_events_equal(&events[i], &expected[i]);
    free(events);
    free(names);
}

static void test_round_trip_orders(void **state)
{
    struct dpb_event expected[] = {
            event_of(DPB_EVENT_STEP, 0, 1000, 9000, "step"),
            event_of(DPB_EVENT_BACKWARD, 0, 1000, 9000, "backward"), /* equal times: by kind */
            event_of(DPB_EVENT_COMPUTE, 0, 1001, 2000, "conv"),
            event_of(DPB_EVENT_COMPUTE, 0, 1001, 1002, "relu"),
            event_of(DPB_EVENT_READY, 0, 2000, 2000, "bucket ready"),
            event_of(DPB_EVENT_COMM, 0, 2001, 5000, "all-reduce"),
            event_of(DPB_EVENT_COMM_WAIT, 0, 2001, 4000, "wait"),
            event_of(DPB_EVENT_STEP, 1, 999, 9001, "step"),
    };
    struct dpb_event given[8];

    (void)state;
    expected[4].bucket = expected[5].bucket = 0;
    expected[5].bytes = (int64_t)1 << 40;
    expected[6].bytes = -1;
    expected[7].step = INT32_MIN;
    expected[7].bucket = INT32_MAX;
    for (size_t i = 0; i < 8; i++)
        given[i] = expected[(i * 5) % 8];
    round_trip(given, expected, 8, 17);
}

static void test_round_trip_of_a_device(void **state)
{
    struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 0, 0, 9000, "step"),
            event_of(DPB_EVENT_OVERHEAD, 0, 8000, 9500, "cupti: flush"),
            event_of(DPB_EVENT_COMPUTE, 0, 100, 200, "conv: sm90_gemm"),
            event_of(DPB_EVENT_COMPUTE, 0, 150, 300, "conv: sm90_epilogue"),
            event_of(DPB_EVENT_COMM, 0, 250, 400, "ncclDevKernel"),
            event_of(DPB_EVENT_COPY, 0, 50, 90, "memcpy host to device"),
    };

    (void)state;
    events[2].lane = events[3].lane = DPB_LANE_DEVICE;
    events[4].lane = DPB_LANE_DEVICE_COMM;
    events[5].lane = DPB_LANE_COPY;
    events[5].bytes = 4096;
    events[1].step = -1;
    round_trip(events, events, 6, 0);
}

static void test_names_survive(void **state)
{
    static const char *const names[] = {
            "quote \" backslash \\ slash /",
            "tab\tnewline\nreturn\rbell\abackspace\bdelete\177escape\033",
            "\x01\x02\x1f",
            "Größe, 大きさ, 🚀 and \xe2\x80\xa8",
            "\\u0041 \\n are no escapes here",
            "",
            "</script>{\"ph\":\"X\"},[",
    };
    struct dpb_event events[sizeof(names) / sizeof(names[0])];
    const size_t count = sizeof(names) / sizeof(names[0]);

    (void)state;
    for (size_t i = 0; i < count; i++)
        events[i] = event_of(DPB_EVENT_COMPUTE, 0, (int64_t)i * 10, (int64_t)i * 10 + 5, names[i]);
    round_trip(events, events, count, 0);
}

static void test_damaged_name_is_replaced(void **state)
{
    const struct dpb_event given[] = {
            event_of(DPB_EVENT_COMPUTE, 0, 0, 1, "cut \xe2\x82"),
            event_of(DPB_EVENT_COMPUTE, 0, 1, 2, NULL),
    };
    struct dpb_event expected[] = {given[0], given[1]};

    (void)state;
    expected[0].name = "cut \xef\xbf\xbd\xef\xbf\xbd";
    expected[1].name = "compute";
    round_trip(given, expected, 2, 0);
}

static void test_times_beyond_doubles(void **state)
{
    const int64_t big = ((int64_t)1 << 53) + 1; /* the first odd number a double does not have */
    const struct dpb_event small_base[] = {
            event_of(DPB_EVENT_COMPUTE, 0, 0, 1, "origin"),
            event_of(DPB_EVENT_COMPUTE, 0, big, big + 2, "far"),
            event_of(DPB_EVENT_COMPUTE, 0, 1000 * big, 1000 * big + 1, "farther"),
            event_of(DPB_EVENT_COMPUTE, 0, INT64_MAX - 1, INT64_MAX, "farthest"),
    };
    const struct dpb_event extremes[] = {
            event_of(DPB_EVENT_STEP, 0, INT64_MIN, INT64_MAX, "everything"),
            event_of(DPB_EVENT_COMPUTE, 0, INT64_MIN, INT64_MIN + 1, "first"),
            event_of(DPB_EVENT_COMPUTE, 0, -1, 1, "around zero"),
            event_of(DPB_EVENT_READY, 0, INT64_MAX, INT64_MAX, "last"),
    };

    (void)state;
    round_trip(small_base, small_base, 4, 0);
    round_trip(small_base + 1, small_base + 1, 1, 0); /* a large base */
    round_trip(extremes, extremes, 4, INT64_MAX);
}

static void test_no_events(void **state)
{
    (void)state;
    round_trip(NULL, NULL, 0, 0);
    round_trip(NULL, NULL, 0, 5);
}

static void test_random_events_round_trip(void **state)
{
    enum {
        COUNT = 300
    };
    static struct dpb_event events[COUNT];
    uint64_t random = 88172645463325252u;

    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < COUNT; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* starts differ, so that the order is known; they overlap in every way */
            events[i] = event_of((enum dpb_event_kind)(random % DPB_EVENT_KIND_COUNT), 0,
                                 i * 3 + (int64_t)(random >> 8) % 3,
                                 i * 3 + 3 + (int64_t)(random >> 16) % 40, "x");
            events[i].lane = DPB_LANE_HOST;
            events[i].bucket = (int32_t)(random >> 40) % 7 - 1;
        }
        round_trip(events, events, COUNT, 0);
    }
}

static dpb_status read_status(void)
{
    struct dpb_event *events = (struct dpb_event *)&events;
    struct dpb_event *const untouched = events;
    uint64_t lost = 99;
    size_t count = 99;
    char *names = path;
    dpb_status st;

    last_error[0] = '\0';
    st = dpb_trace_read(path, &events, &count, &names, &lost);
    if (st == DPB_OK) {
        free(events);
        free(names);
    } else {
        assert_ptr_equal(events, untouched); /* outputs only on success */
        assert_ptr_equal(names, path);
        assert_int_equal(count, 99);
        assert_int_equal(lost, 99);
        assert_non_null(strstr(last_error, path));
    }
    return st;
}

/* Plainly: there are thousands of these, and each atomic write waits for the disk. */
static void write_text(const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* A small file with everything in it, as text; the caller frees. */
static char *sample_text(size_t *length)
{
    struct dpb_event events[] = {
            event_of(DPB_EVENT_BACKWARD, 0, 0, 5000, "backward \xc3\xbc \""),
            event_of(DPB_EVENT_READY, 0, 2000, 2000, "ready"),
            event_of(DPB_EVENT_COMM, 0, 3000, 7000, "all-reduce"),
    };
    const struct dpb_trace_info info = {.title = "sample", .world_size = 1};
    struct dpb_str text = {0};

    events[1].bucket = events[2].bucket = 0;
    events[2].bytes = 4096;
    assert_int_equal(dpb_trace_write(path, &info, events, 3), DPB_OK);
    assert_int_equal(dpb_file_read(path, &text), DPB_OK);
    *length = text.length;
    return text.text;
}

static void test_every_cut_is_corrupt(void **state)
{
    size_t length;
    char *text = sample_text(&length);

    (void)state;
    assert_int_equal(read_status(), DPB_OK);
    for (size_t cut = 0; cut < length - 1; cut++) { /* the last byte is a newline */
        write_text(text, cut);
        assert_int_equal(read_status(), DPB_ERR_CORRUPT);
    }
    free(text);
}

/* The sample with the first `from` replaced by `to`. */
static dpb_status status_of_change(const char *from, const char *to)
{
    struct dpb_str changed = {0};
    size_t length;
    char *text = sample_text(&length), *at = strstr(text, from);

    assert_non_null(at);
    dpb_str_append_bytes(&changed, text, (size_t)(at - text));
    dpb_str_append(&changed, to);
    dpb_str_append(&changed, at + strlen(from));
    write_text(changed.text, changed.length);
    dpb_str_release(&changed);
    free(text);
    return read_status();
}

static void test_damage_is_named(void **state)
{
    static const struct {
        const char *from, *to;
        dpb_status expected;
        const char *word; /* in the message */
    } cases[] = {
            {"\"cat\":\"comm\"", "\"cat\":\"kernel\"", DPB_ERR_CORRUPT, "kernel"},
            {"\"ts\":3.000", "\"ts\":3.0001", DPB_ERR_CORRUPT, "3.0001"},
            {"\"ts\":3.000", "\"ts\":-3.000", DPB_ERR_CORRUPT, "-3.000"},
            {"\"ts\":3.000", "\"ts\":3e0", DPB_ERR_CORRUPT, "3e0"},
            {"\"ts\":3.000", "\"ts\":\"3\"", DPB_ERR_CORRUPT, "a number"},
            {"\"ts\":3.000", "\"ts\":03.000", DPB_ERR_CORRUPT, "begins with 0"},
            {"\"ts\":3.000", "\"ts\":99999999999999999999", DPB_ERR_CORRUPT,
             "99999999999999999999"},
            {"\"ts\":3.000", "\"ts\":9223372036854775.900", DPB_ERR_CORRUPT, "out of range"},
            {"\"dur\":4.000", "\"other\":4.000", DPB_ERR_CORRUPT, "dur"},
            {"\"pid\":0", "\"pid\":32768", DPB_ERR_CORRUPT, "32768"},
            {"\"name\":\"comm\"", "\"name\":\"stream 7\"", DPB_ERR_CORRUPT, "stream 7"},
            {"\"thread_name\"", "\"thread_label\"", DPB_ERR_CORRUPT, "has no name"},
            {"\"events\":3", "\"events\":4", DPB_ERR_CORRUPT, "4 events"},
            {"\"lost_events\":0", "\"lost_events\":-1", DPB_ERR_CORRUPT, "missing"},
            {"\"lost_events\":0", "\"lost_events\":null", DPB_ERR_CORRUPT, "missing"},
            {"baseTimeNanoseconds", "baseTime", DPB_ERR_CORRUPT, "missing"},
            {"traceEvents", "events", DPB_ERR_CORRUPT, "missing"},
            {"\"step\":3", "\"step\":2147483648", DPB_ERR_CORRUPT, "2147483648"},
            {"\"step\":3", "\"step\":3.5", DPB_ERR_CORRUPT, "3.5"},
            {"backward", "back\nward", DPB_ERR_CORRUPT, "control character"},
            {"backward", "back\\u0000ward", DPB_ERR_CORRUPT, "string"},
            {"backward", "back\\xward", DPB_ERR_CORRUPT, "string"},
            {"backward", "back\xff", DPB_ERR_CORRUPT, "string"},
            {"\n]}", "\n]} x", DPB_ERR_CORRUPT, "more text"},
            {"\n]}", ",\n]}", DPB_ERR_CORRUPT, "should be"},
            {"dpb.trace/1", "dpb.trace/2", DPB_ERR_UNSUPPORTED, "dpb.trace/2"},
            {"\"dpbench\"", "\"other\"", DPB_ERR_UNSUPPORTED, "schema"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dpb_status st = status_of_change(cases[i].from, cases[i].to);

        if (st != cases[i].expected || !strstr(last_error, cases[i].word))
            print_error("case %zu: %s: \"%s\"\n", i, dpb_status_name(st), last_error);
        assert_int_equal(st, cases[i].expected);
        assert_non_null(strstr(last_error, cases[i].word));
    }
}

static void test_other_writers_are_tolerated(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
            {"\"ts\":3.000", "\"ts\":3"},
            {"\"ts\":3.000", "\"ts\" : 3.0"},
            {"\"ts\":3.000", "\"ts\":3.000000"},
            {"{\"ph\":\"X\"",
             "{\"tdur\":1e-5,\"sf\":[{},[1,-2.5E+3,true,false,null]],\"ph\":\"X\""},
            {"\"schemaVersion\"", "\"deviceProperties\":[{\"id\":0}],\"schemaVersion\""},
            {"\"traceEvents\":[",
             "\"traceEvents\":[{\"ph\":\"C\",\"name\":\"n\",\"ts\":0,\"args\":{}},"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(status_of_change(cases[i].from, cases[i].to), DPB_OK);
}

static void test_deep_nesting_is_refused(void **state)
{
    static char deep[100000];

    (void)state;
    memset(deep, '[', sizeof(deep) - 1);
    write_text(deep, sizeof(deep) - 1);
    assert_int_equal(read_status(), DPB_ERR_CORRUPT);
    memcpy(deep, "{\"a\":", 5);
    write_text(deep, sizeof(deep) - 1);
    assert_int_equal(read_status(), DPB_ERR_CORRUPT);
    assert_non_null(strstr(last_error, "deep"));
}

static void test_missing_file(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(read_status(), DPB_ERR_NOT_FOUND);
}

static void test_write_failures(void **state)
{
    const struct dpb_event event = event_of(DPB_EVENT_STEP, 0, 0, 1, "step");
    const struct dpb_trace_info info = {.title = "t", .world_size = 1};
    struct dpb_event bad = event;
    struct stat status;

    (void)state;
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(dpb_trace_write("/dev/full", &info, &event, 1), DPB_ERR_IO);
        assert_int_equal(stat("/dev/full", &status), 0);
        assert_true(S_ISCHR(status.st_mode)); /* not replaced */
    }
    assert_int_equal(dpb_trace_write("/nonexistent/folder/t.json", &info, &event, 1), DPB_ERR_IO);
    assert_int_equal(dpb_trace_write(folder, &info, &event, 1), DPB_ERR_IO);

    /* what was there before a refused write stays */
    write_text("before", 6);
    bad.kind = DPB_EVENT_KIND_COUNT;
    assert_int_equal(dpb_trace_write(path, &info, &bad, 1), DPB_ERR_USAGE);
    bad = event;
    bad.lane = DPB_LANE_COUNT;
    assert_int_equal(dpb_trace_write(path, &info, &bad, 1), DPB_ERR_USAGE);
    bad = event;
    bad.rank = -1;
    assert_int_equal(dpb_trace_write(path, &info, &bad, 1), DPB_ERR_USAGE);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 6);
}

static const dpb_json *member(const dpb_json *root, const char *key)
{
    const dpb_json *value = dpb_json_path(root, key);

    assert_non_null(value);
    return value;
}

static void test_metadata(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 1, 5000, 6000, "step"),
            event_of(DPB_EVENT_COMPUTE, 1, 5500, 5400, "backwards"), /* left out */
    };
    dpb_json *extra = dpb_json_object(), *root = NULL;
    struct dpb_trace_info info = {
            .title = "cell \"1\"\n",
            .world_size = 4,
            .lost = 12,
            .extra = extra,
            .backend = "shm",
    };

    (void)state;
    dpb_json_set_string(extra, "clock", "virtual");
    dpb_json_set_string(extra, "run_id", "r1");
    dpb_json_set_int(extra, "lost_events", 0); /* must not win */
    assert_int_equal(dpb_trace_write(path, &info, events, 2), DPB_OK);
    dpb_json_free(extra);
    assert_int_equal(dpb_json_read_file(path, &root), DPB_OK);
    assert_int_equal(dpb_json_as_int(member(root, "schemaVersion"), -1), 1);
    assert_int_equal(dpb_json_as_int(member(root, "baseTimeNanoseconds"), -1), 5000);
    assert_string_equal(dpb_json_as_string(member(root, "displayTimeUnit"), ""), "ms");
    assert_string_equal(dpb_json_as_string(member(root, "traceName"), ""), "cell \"1\"\n");
    assert_string_equal(dpb_json_as_string(member(root, "distributedInfo/backend"), ""), "shm");
    assert_int_equal(dpb_json_as_int(member(root, "distributedInfo/rank"), -1), 1);
    assert_int_equal(dpb_json_as_int(member(root, "distributedInfo/world_size"), -1), 4);
    assert_string_equal(dpb_json_as_string(member(root, "dpbench/schema"), ""), "dpb.trace/1");
    assert_string_equal(dpb_json_as_string(member(root, "dpbench/clock"), ""), "virtual");
    assert_string_equal(dpb_json_as_string(member(root, "dpbench/run_id"), ""), "r1");
    assert_int_equal(dpb_json_as_int(member(root, "dpbench/lost_events"), -1), 12);
    assert_int_equal(dpb_json_as_int(member(root, "dpbench/negative_events"), -1), 1);
    assert_int_equal(dpb_json_as_int(member(root, "dpbench/events"), -1), 1);
    dpb_json_free(root);

    /* of several ranks it is no rank's; the clock is told by default */
    struct dpb_event two[] = {events[0], events[0]};

    two[1].rank = 2;
    info = (struct dpb_trace_info){.world_size = 4};
    assert_int_equal(dpb_trace_write(path, &info, two, 2), DPB_OK);
    assert_int_equal(dpb_json_read_file(path, &root), DPB_OK);
    assert_null(dpb_json_path(root, "distributedInfo/rank"));
    assert_null(dpb_json_path(root, "distributedInfo/backend"));
    assert_non_null(strstr(dpb_json_as_string(member(root, "dpbench/clock"), ""), "MONOTONIC"));
    dpb_json_free(root);
}

/* How many of the file's events have these phase, name and thread. */
static int count_events(const char *phase, const char *name, int64_t tid)
{
    dpb_json *root = NULL;
    const dpb_json *all;
    int found = 0;

    assert_int_equal(dpb_json_read_file(path, &root), DPB_OK);
    all = member(root, "traceEvents");
    for (size_t i = 0; i < dpb_json_size(all); i++) {
        const dpb_json *event = dpb_json_at(all, i);

        found += strcmp(dpb_json_as_string(dpb_json_get(event, "ph"), ""), phase) == 0 &&
                 strcmp(dpb_json_as_string(dpb_json_get(event, "name"), ""), name) == 0 &&
                 dpb_json_as_int(dpb_json_get(event, "tid"), -1) == tid;
    }
    dpb_json_free(root);
    return found;
}

static void test_overlap_goes_to_further_threads(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_COMM, 0, 0, 10, "a"),  event_of(DPB_EVENT_COMM, 0, 2, 6, "in a"),
            event_of(DPB_EVENT_COMM, 0, 5, 12, "b"),  event_of(DPB_EVENT_COMM, 0, 8, 14, "c"),
            event_of(DPB_EVENT_COMM, 0, 10, 11, "d"), /* touches a: the first thread again */
            event_of(DPB_EVENT_COMM, 0, 12, 13, "e"),
    };
    const struct dpb_trace_info info = {.world_size = 1};

    (void)state;
    assert_int_equal(dpb_trace_write(path, &info, events, 6), DPB_OK);
    assert_int_equal(count_events("X", "a", 2), 1);
    assert_int_equal(count_events("X", "in a", 2), 1);
    assert_int_equal(count_events("X", "b", 2 + DPB_LANE_COUNT), 1);
    assert_int_equal(count_events("X", "c", 2 + 2 * DPB_LANE_COUNT), 1);
    assert_int_equal(count_events("X", "d", 2), 1);
    assert_int_equal(count_events("X", "e", 2), 1);
    assert_int_equal(count_events("M", "thread_name", 2 + 2 * DPB_LANE_COUNT), 1);
    assert_int_equal(count_events("M", "thread_name", 1), 0); /* nothing on the host's lane */
    round_trip(events, events, 6, 0);
}

static struct dpb_event bucket_event(enum dpb_event_kind kind, int rank, int step, int bucket,
                                     int64_t start_ns, int64_t end_ns)
{
    struct dpb_event event = event_of(kind, rank, start_ns, end_ns, "bucket event");

    event.step = step;
    event.bucket = bucket;
    return event;
}

static void test_flows(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_BACKWARD, 0, 0, 100, "backward"),
            event_of(DPB_EVENT_BACKWARD, 1, 0, 100, "backward"),
            bucket_event(DPB_EVENT_READY, 0, 1, 0, 10, 10), /* joined */
            bucket_event(DPB_EVENT_COMM, 0, 1, 0, 12, 30),
            bucket_event(DPB_EVENT_READY, 0, 1, 1, 20, 20), /* joined, with the first of two */
            bucket_event(DPB_EVENT_COMM, 0, 1, 1, 30, 40),
            bucket_event(DPB_EVENT_COMM, 0, 1, 1, 50, 60),
            bucket_event(DPB_EVENT_READY, 0, 2, 0, 40, 40),   /* no collective of that step */
            bucket_event(DPB_EVENT_READY, 1, 1, 0, 150, 150), /* no slice around it */
            bucket_event(DPB_EVENT_COMM, 1, 1, 0, 160, 170),
            bucket_event(DPB_EVENT_READY, 1, 1, 2, 50, 50), /* its collective has no length */
            bucket_event(DPB_EVENT_COMM, 1, 1, 2, 60, 60),
            bucket_event(DPB_EVENT_READY, 1, 1, 3, 70, 70), /* its collective was earlier */
            bucket_event(DPB_EVENT_COMM, 1, 1, 3, 60, 65),
    };
    const struct dpb_trace_info info = {.world_size = 2};

    (void)state;
    assert_int_equal(dpb_trace_write(path, &info, events, sizeof(events) / sizeof(events[0])),
                     DPB_OK);
    assert_int_equal(count_events("s", "bucket", 1), 2);
    assert_int_equal(count_events("f", "bucket", 2), 2);
}

/* ---- events through JSON ---- */

static void test_events_json_round_trip(void **state)
{
    struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 3, INT64_MIN, INT64_MAX, "step"),
            event_of(DPB_EVENT_COMM, 3, 7, 9, "all-reduce"),
            event_of(DPB_EVENT_COMPUTE, 3, 9, 7, "step"), /* negative: for the analysis to count */
            event_of(DPB_EVENT_READY, INT16_MAX, 0, 0, "\"\n\xc3\xbc"),
            event_of(DPB_EVENT_DATA, 0, 0, 1, NULL),
    };
    struct dpb_event *read = NULL;
    struct dpb_str text = {0};
    dpb_json *json, *parsed = NULL;
    size_t count = 0;
    char *names = NULL;

    (void)state;
    events[1].bucket = INT32_MAX;
    events[1].bytes = INT64_MAX;
    events[2].step = INT32_MIN;
    json = dpb_events_to_json(events, 5);
    assert_non_null(json);
    assert_int_equal(dpb_json_size(dpb_json_get(json, "names")), 4); /* each name once */
    assert_int_equal(dpb_json_write(json, false, &text), DPB_OK);
    dpb_json_free(json);
    assert_int_equal(dpb_json_parse(text.text, text.length, &parsed, NULL), DPB_OK);
    dpb_str_release(&text);
    assert_int_equal(dpb_events_from_json(parsed, &read, &count, &names), DPB_OK);
    dpb_json_free(parsed);
    assert_int_equal(count, 5);
    events[4].name = "data";
    for (size_t i = 0; i < 5; i++)
        assert_events_equal(&read[i], &events[i]);
    free(read);
    free(names);
}

static void test_events_json_empty(void **state)
{
    dpb_json *json = dpb_events_to_json(NULL, 0);
    struct dpb_event *read = NULL;
    size_t count = 9;
    char *names = NULL;

    (void)state;
    assert_non_null(json);
    assert_int_equal(dpb_events_from_json(json, &read, &count, &names), DPB_OK);
    assert_int_equal(count, 0);
    assert_non_null(read);
    assert_non_null(names);
    dpb_json_free(json);
    free(read);
    free(names);
}

static void damage_count(dpb_json *json)
{
    dpb_json_set_int(json, "count", INT64_MAX);
}
static void damage_count_type(dpb_json *json)
{
    dpb_json_set_string(json, "count", "2");
}
static void damage_column(dpb_json *json)
{
    dpb_json_set(json, "end_ns", dpb_json_null());
}
static void damage_length(dpb_json *json)
{
    dpb_json_set(json, "bytes", dpb_json_ints((const int64_t[]){0}, 1));
}
static void damage_kind(dpb_json *json)
{
    dpb_json_set(json, "kind", dpb_json_ints((const int64_t[]){0, DPB_EVENT_KIND_COUNT}, 2));
}
static void damage_lane(dpb_json *json)
{
    dpb_json_set(json, "lane", dpb_json_ints((const int64_t[]){-1, 0}, 2));
}
static void damage_real(dpb_json *json)
{
    dpb_json_set(json, "start_ns", dpb_json_reals((const double[]){0.5, 1}, 2));
}
static void damage_name(dpb_json *json)
{
    dpb_json_set(json, "name", dpb_json_ints((const int64_t[]){0, 2}, 2));
}
static void damage_names(dpb_json *json)
{
    dpb_json_set(json, "names", dpb_json_ints((const int64_t[]){0, 1}, 2));
}

static void test_events_json_damage(void **state)
{
    static void (*const damages[])(dpb_json *) = {
            damage_count, damage_count_type, damage_column, damage_length, damage_kind,
            damage_lane,  damage_real,       damage_name,   damage_names,
    };
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 0, 0, 9, "step"),
            event_of(DPB_EVENT_COMPUTE, 0, 1, 2, "conv"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        dpb_json *json = dpb_events_to_json(events, 2);
        struct dpb_event *read = NULL;
        size_t count = 9;
        char *names = NULL;

        damages[i](json);
        assert_int_equal(dpb_events_from_json(json, &read, &count, &names), DPB_ERR_CORRUPT);
        assert_null(read);
        assert_null(names);
        assert_int_equal(count, 9);
        dpb_json_free(json);
    }
    struct dpb_event *none = NULL;
    size_t none_count;
    char *none_names;

    assert_int_equal(dpb_events_from_json(NULL, &none, &none_count, &none_names), DPB_ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_round_trip_orders),
            cmocka_unit_test(test_round_trip_of_a_device),
            cmocka_unit_test(test_names_survive),
            cmocka_unit_test(test_damaged_name_is_replaced),
            cmocka_unit_test(test_times_beyond_doubles),
            cmocka_unit_test(test_no_events),
            cmocka_unit_test(test_random_events_round_trip),
            cmocka_unit_test(test_every_cut_is_corrupt),
            cmocka_unit_test(test_damage_is_named),
            cmocka_unit_test(test_other_writers_are_tolerated),
            cmocka_unit_test(test_deep_nesting_is_refused),
            cmocka_unit_test(test_missing_file),
            cmocka_unit_test(test_write_failures),
            cmocka_unit_test(test_metadata),
            cmocka_unit_test(test_overlap_goes_to_further_threads),
            cmocka_unit_test(test_flows),
            cmocka_unit_test(test_events_json_round_trip),
            cmocka_unit_test(test_events_json_empty),
            cmocka_unit_test(test_events_json_damage),
    };
    const char *unused = NULL;

    if (set_up((void **)&unused) != 0)
        return 1;
    int failed = DPB_RUN_TESTS(tests);

    return tear_down((void **)&unused) != 0 ? 1 : failed;
}
