/* Recorders: what they keep, what they lose, and the check of their tables. */
#include "dpb_test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_recorder.h"

static dpb_recorder *open_host(int rank, size_t events_per_lane)
{
    const struct dpb_recorder_config config = {.rank = rank, .events_per_lane = events_per_lane};
    dpb_recorder *recorder = NULL;

    assert_int_equal(dpb_recorder_host_ops.open(&config, &recorder), DPB_OK);
    assert_non_null(recorder);
    return recorder;
}

/* The events and, through it, the number of lost ones; `count` is asserted. */
static const struct dpb_event *drain(dpb_recorder *recorder, size_t expected_count,
                                     uint64_t expected_lost)
{
    const struct dpb_event *events = NULL;
    uint64_t lost = 12345;
    size_t count = 12345;

    assert_int_equal(
            ((struct dpb_recorder_base *)recorder)->ops->drain(recorder, &events, &count, &lost),
            DPB_OK);
    assert_int_equal(count, expected_count);
    assert_int_equal(lost, expected_lost);
    return events;
}

static void test_kind_texts(void **state)
{
    (void)state;
    assert_string_equal(dpb_event_kind_text(DPB_EVENT_STEP), "step");
    assert_string_equal(dpb_event_kind_text(DPB_EVENT_COMM_WAIT), "comm-wait");
    assert_string_equal(dpb_event_kind_text(DPB_EVENT_READY), "ready");
    assert_string_equal(dpb_event_kind_text(DPB_EVENT_KIND_COUNT), "unknown");
    assert_string_equal(dpb_event_kind_text((enum dpb_event_kind) - 1), "unknown");
}

static void test_nested_ranges(void **state)
{
    dpb_recorder *recorder = open_host(3, 16);
    int64_t before_ns = dpb_clock_now_ns(), after_ns;
    const struct dpb_event *events;

    (void)state;
    dpb_recorder_host_ops.set_step(recorder, 7);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_STEP, "step", -1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_BACKWARD, "backward", -1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "conv", 2);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_begin(recorder, DPB_LANE_COMM, DPB_EVENT_COMM, "all-reduce", 0);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_end(recorder, DPB_LANE_COMM);
    after_ns = dpb_clock_now_ns();
    events = drain(recorder, 4, 0);

    /* by lane, then start; an outer range comes first even where the clock did not move */
    assert_int_equal(events[0].kind, DPB_EVENT_STEP);
    assert_int_equal(events[1].kind, DPB_EVENT_BACKWARD);
    assert_int_equal(events[2].kind, DPB_EVENT_COMPUTE);
    assert_int_equal(events[3].kind, DPB_EVENT_COMM);
    assert_string_equal(events[2].name, "conv");
    assert_int_equal(events[2].bucket, 2);
    assert_int_equal(events[0].bucket, -1);
    assert_int_equal(events[3].lane, DPB_LANE_COMM);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(events[i].rank, 3);
        assert_int_equal(events[i].step, 7);
        assert_int_equal(events[i].bytes, 0);
        assert_true(before_ns <= events[i].start_ns);
        assert_true(events[i].start_ns <= events[i].end_ns);
        assert_true(events[i].end_ns <= after_ns);
    }
    for (size_t i = 1; i < 3; i++) {
        assert_true(events[i - 1].start_ns <= events[i].start_ns);
        assert_true(events[i].end_ns <= events[i - 1].end_ns);
    }
    drain(recorder, 0, 0);
    dpb_recorder_host_ops.close(recorder);
}

static struct dpb_event event_at(int64_t start_ns, int64_t end_ns, const char *name)
{
    return (struct dpb_event){
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = name,
            .step = 99,
            .bucket = 4,
            .bytes = 4096,
            .kind = DPB_EVENT_COMM,
            .lane = DPB_LANE_COMM,
            .rank = 98,
    };
}

static void test_emit_orders_and_stamps(void **state)
{
    const struct dpb_event given[] = {
            event_at(20, 30, "late"),
            event_at(10, 15, "short"),
            event_at(10, 40, "long"),
            event_at(10, 15, "short, again"),
            event_at(INT64_MAX - 1, INT64_MAX, "last"),
    };
    const char *const expected[] = {"long", "short", "short, again", "late", "last"};
    dpb_recorder *recorder = open_host(1, 8);
    const struct dpb_event *events;

    (void)state;
    dpb_recorder_host_ops.set_step(recorder, 2);
    for (size_t i = 0; i < 5; i++)
        dpb_range_emit(recorder, &given[i]);
    events = drain(recorder, 5, 0);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(events[i].name, expected[i]);
        assert_int_equal(events[i].rank, 1);
        assert_int_equal(events[i].step, 2);
        assert_int_equal(events[i].bucket, 4);
        assert_int_equal(events[i].bytes, 4096);
    }
    assert_int_equal(events[4].end_ns, INT64_MAX);
    dpb_recorder_host_ops.close(recorder);
}

static void test_full_buffer_loses_the_newest(void **state)
{
    dpb_recorder *recorder = open_host(0, 3);
    const struct dpb_event *events;

    (void)state;
    for (int64_t i = 0; i < 10; i++) {
        struct dpb_event event = event_at(i, i + 1, "e");

        dpb_range_emit(recorder, &event);
    }
    /* the other lane has its own room */
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_FORWARD, "forward", -1);
    dpb_range_end(recorder, DPB_LANE_HOST);
    events = drain(recorder, 4, 7);
    assert_int_equal(events[0].lane, DPB_LANE_HOST);
    assert_int_equal(events[1].start_ns, 0);
    assert_int_equal(events[3].start_ns, 2);

    /* emptied: room for three again, and the count of lost events starts over */
    for (int64_t i = 0; i < 4; i++) {
        struct dpb_event event = event_at(i, i + 1, "e");

        dpb_range_emit(recorder, &event);
    }
    drain(recorder, 3, 1);
    dpb_recorder_host_ops.close(recorder);
}

static void test_too_deep_is_lost_and_matched(void **state)
{
    dpb_recorder *recorder = open_host(0, 64);
    const struct dpb_event *events;

    (void)state;
    for (int i = 0; i < DPB_RECORDER_DEPTH + 3; i++)
        dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "nested", i);
    for (int i = 0; i < DPB_RECORDER_DEPTH + 3; i++)
        dpb_range_end(recorder, DPB_LANE_HOST);
    events = drain(recorder, DPB_RECORDER_DEPTH, 3);
    for (int i = 0; i < DPB_RECORDER_DEPTH; i++)
        assert_int_equal(events[i].bucket, i);
    dpb_recorder_host_ops.close(recorder);
}

static void test_unmatched_and_invalid_are_lost(void **state)
{
    dpb_recorder *recorder = open_host(0, 8);
    struct dpb_event event = event_at(1, 2, "e");

    (void)state;
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_end(recorder, DPB_LANE_COMM);
    drain(recorder, 0, 2);

    dpb_range_begin(recorder, DPB_LANE_COUNT, DPB_EVENT_COMPUTE, "no lane", -1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_KIND_COUNT, "no kind", -1);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, NULL, -1);
    dpb_range_end(recorder, DPB_LANE_HOST);
    event.lane = DPB_LANE_COUNT;
    dpb_range_emit(recorder, &event);
    event = event_at(1, 2, NULL);
    dpb_range_emit(recorder, &event);
    event = event_at(1, 2, "e");
    event.kind = DPB_EVENT_KIND_COUNT;
    dpb_range_emit(recorder, &event);
    drain(recorder, 0, 6);
    dpb_recorder_host_ops.close(recorder);
}

static void test_open_range_survives_drain(void **state)
{
    dpb_recorder *recorder = open_host(0, 8);
    const struct dpb_event *events;

    (void)state;
    dpb_recorder_host_ops.set_step(recorder, 1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_STEP, "step", -1);
    drain(recorder, 0, 0);
    dpb_recorder_host_ops.set_step(recorder, 2);
    dpb_range_end(recorder, DPB_LANE_HOST);
    events = drain(recorder, 1, 0);
    assert_int_equal(events[0].step, 1); /* the step in which it began */
    dpb_recorder_host_ops.close(recorder);
}

static void test_recording_does_not_allocate(void **state)
{
    dpb_recorder *recorder = open_host(0, 100);
    size_t before = mallinfo2().uordblks;

    (void)state;
    for (int i = 0; i < 300; i++) {
        dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "op", -1);
        dpb_range_end(recorder, DPB_LANE_HOST);
    }
    assert_int_equal(mallinfo2().uordblks, before);
    drain(recorder, 100, 200);
    dpb_recorder_host_ops.close(recorder);
}

#define THREAD_EVENTS 5000

static void *record_comm(void *argument)
{
    for (int i = 0; i < THREAD_EVENTS; i++) {
        struct dpb_event event = event_at(i, i + 1, "all-reduce");

        dpb_range_emit(argument, &event);
    }
    return NULL;
}

static void test_one_writer_per_lane(void **state)
{
    dpb_recorder *recorder = open_host(0, THREAD_EVENTS);
    const struct dpb_event *events;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, record_comm, recorder), 0);
    for (int i = 0; i < THREAD_EVENTS; i++) {
        dpb_recorder_host_ops.set_step(recorder, i);
        dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "op", i);
        dpb_range_end(recorder, DPB_LANE_HOST);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    events = drain(recorder, 2 * THREAD_EVENTS, 0);
    for (int i = 0; i < THREAD_EVENTS; i++) {
        assert_int_equal(events[i].bucket, i);
        assert_int_equal(events[i].step, i);
        assert_int_equal(events[THREAD_EVENTS + i].start_ns, i);
    }
    dpb_recorder_host_ops.close(recorder);
}

static void ignore_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void test_open_refuses(void **state)
{
    static const struct {
        struct dpb_recorder_config config;
        dpb_status expected;
    } cases[] = {
            {{.rank = -1, .events_per_lane = 8}, DPB_ERR_USAGE},
            {{.rank = INT16_MAX + 1, .events_per_lane = 8}, DPB_ERR_USAGE},
            {{.rank = 0, .events_per_lane = 0}, DPB_ERR_USAGE},
            {{.rank = 0, .events_per_lane = SIZE_MAX / 2}, DPB_ERR_NO_MEMORY},
    };

    (void)state;
    dpb_log_set_sink(ignore_line, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dpb_recorder *recorder = NULL;

        assert_int_equal(dpb_recorder_host_ops.open(&cases[i].config, &recorder),
                         cases[i].expected);
        assert_null(recorder);
    }
    dpb_log_set_sink(NULL, NULL);
    dpb_recorder_host_ops.close(NULL);
}

static void test_none_keeps_nothing(void **state)
{
    const struct dpb_recorder_config config = {.rank = 0, .events_per_lane = 8};
    struct dpb_event event = event_at(1, 2, "e");
    dpb_recorder *recorder = NULL;
    char why[64] = "";

    (void)state;
    assert_int_equal(dpb_recorder_none_ops.probe(why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_recorder_none_ops.open(&config, &recorder), DPB_OK);
    dpb_recorder_none_ops.set_step(recorder, 1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_STEP, "step", -1);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_emit(recorder, &event);
    drain(recorder, 0, 0);
    dpb_recorder_none_ops.close(recorder);
}

static void remove_version(struct dpb_recorder_ops *ops)
{
    ops->version++;
}
static void remove_name(struct dpb_recorder_ops *ops)
{
    ops->name = "";
}
static void remove_summary(struct dpb_recorder_ops *ops)
{
    ops->summary = NULL;
}
static void remove_probe(struct dpb_recorder_ops *ops)
{
    ops->probe = NULL;
}
static void remove_open(struct dpb_recorder_ops *ops)
{
    ops->open = NULL;
}
static void remove_range_begin(struct dpb_recorder_ops *ops)
{
    ops->range_begin = NULL;
}
static void remove_range_end(struct dpb_recorder_ops *ops)
{
    ops->range_end = NULL;
}
static void remove_emit(struct dpb_recorder_ops *ops)
{
    ops->emit = NULL;
}
static void remove_set_step(struct dpb_recorder_ops *ops)
{
    ops->set_step = NULL;
}
static void remove_drain(struct dpb_recorder_ops *ops)
{
    ops->drain = NULL;
}
static void remove_close(struct dpb_recorder_ops *ops)
{
    ops->close = NULL;
}

static void remove_bucket_end(struct dpb_recorder_ops *ops)
{
    ops->bucket_begin = (void (*)(dpb_recorder *, const char *, int32_t))abort;
}

static void negative_steps_max(struct dpb_recorder_ops *ops)
{
    ops->steps_max = -1;
}

static void keep_last_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    snprintf(ctx, 256, "%s", line);
}

static void test_ops_check(void **state)
{
    static const struct {
        void (*damage)(struct dpb_recorder_ops *ops);
        const char *word; /* in the message */
    } cases[] = {
            {remove_version, "version"},
            {remove_name, "name"},
            {remove_summary, "summary"},
            {remove_probe, "probe"},
            {remove_open, "open"},
            {remove_range_begin, "range_begin"},
            {remove_range_end, "range_end"},
            {remove_emit, "emit"},
            {remove_set_step, "set_step"},
            {remove_drain, "drain"},
            {remove_close, "close"},
            {remove_bucket_end, "bucket_end"},
            {negative_steps_max, "steps_max"},
    };
    char line[256];

    (void)state;
    assert_int_equal(dpb_recorder_ops_check(&dpb_recorder_none_ops), DPB_OK);
    assert_int_equal(dpb_recorder_ops_check(&dpb_recorder_host_ops), DPB_OK);
    dpb_log_set_sink(keep_last_line, line);
    assert_int_equal(dpb_recorder_ops_check(NULL), DPB_ERR_INTERNAL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_recorder_ops ops = dpb_recorder_host_ops;

        line[0] = '\0';
        cases[i].damage(&ops);
        assert_int_equal(dpb_recorder_ops_check(&ops), DPB_ERR_INTERNAL);
        assert_non_null(strstr(line, cases[i].word));
    }
    dpb_log_set_sink(NULL, NULL);
}

struct sample_options {
    int64_t depth;
};

static void test_ops_check_options(void **state)
{
    static const struct dpb_option rows[] = {{
            .name = "depth",
            .type = DPB_OPT_INT,
            .offset = offsetof(struct sample_options, depth),
            .default_text = "4",
            .min = 1,
            .max = 16,
            .category = "Recorder",
            .unit = "ranges",
            .help = "deepest range that is kept",
    }};
    struct dpb_option_table table = {
            .kind = "recorder",
            .owner = "host",
            .rows = rows,
            .row_count = 1,
            .config_bytes = sizeof(struct sample_options),
    };
    struct dpb_recorder_ops ops = dpb_recorder_host_ops;

    (void)state;
    ops.options = &table;
    assert_int_equal(dpb_recorder_ops_check(&ops), DPB_OK);
    dpb_log_set_sink(ignore_line, NULL);
    table.owner = "none";
    assert_int_equal(dpb_recorder_ops_check(&ops), DPB_ERR_INTERNAL);
    table.owner = "host";
    table.kind = "device";
    assert_int_equal(dpb_recorder_ops_check(&ops), DPB_ERR_INTERNAL);
    table.kind = "recorder";
    table.config_bytes = 4; /* the member does not fit */
    assert_int_equal(dpb_recorder_ops_check(&ops), DPB_ERR_INTERNAL);
    dpb_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_kind_texts),
            cmocka_unit_test(test_nested_ranges),
            cmocka_unit_test(test_emit_orders_and_stamps),
            cmocka_unit_test(test_full_buffer_loses_the_newest),
            cmocka_unit_test(test_too_deep_is_lost_and_matched),
            cmocka_unit_test(test_unmatched_and_invalid_are_lost),
            cmocka_unit_test(test_open_range_survives_drain),
            cmocka_unit_test(test_recording_does_not_allocate),
            cmocka_unit_test(test_one_writer_per_lane),
            cmocka_unit_test(test_open_refuses),
            cmocka_unit_test(test_none_keeps_nothing),
            cmocka_unit_test(test_ops_check),
            cmocka_unit_test(test_ops_check_options),
    };

    return DPB_RUN_TESTS(tests);
}
