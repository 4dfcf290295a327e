/* Ranks' traces -> the record's figures of overlap, waiting and clocks. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_losses.h"
#include "dpb_trace.h"
#include "record_for_tests.h"
#include "registry_for_tests.h"

/* ---- several hosts, each with a clock of its own ---- */

#define APART_NS (1000 * 1000 * MS) /* 1000 s */

/* Every instant in a rank's result, by so much. */
static void move_rank(dpb_json *rank, int64_t by_ns)
{
    static const char *const keys[] = {"start_ns", "end_ns", "traced_start_ns", "traced_end_ns"};
    for (int k = 0; k < 4; k++) {
        const dpb_json *old = dpb_json_get(rank, keys[k]);
        dpb_json *moved = dpb_json_array();
        for (size_t i = 0; i < dpb_json_size(old); i++)
            dpb_json_append(moved, dpb_json_int(dpb_json_as_int(dpb_json_at(old, i), 0) + by_ns));
        dpb_json_set(rank, keys[k], moved);
    }
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    assert_int_equal(dpb_events_from_json(dpb_json_get(rank, "events"), &events, &count, &names),
                     DPB_OK);
    for (size_t i = 0; i < count; i++) {
        events[i].start_ns += by_ns;
        events[i].end_ns += by_ns;
    }
    dpb_json_set(rank, "events", dpb_events_to_json(events, count));
    free(events);
    free(names);
}

static void say_clock(dpb_json *rank, const char *host, int64_t offset_ns, int64_t error_ns,
                      int64_t drift_ns)
{
    dpb_json *place = dpb_json_object(), *clock = dpb_json_object();
    dpb_json_set_string(place, "host", host);
    dpb_json_set_string(clock, "domain", host);
    dpb_json_set_int(clock, "offset_ns", offset_ns);
    dpb_json_set_int(clock, "error_ns", error_ns);
    dpb_json_set_int(clock, "drift_ns", drift_ns);
    dpb_json_set(rank, "place", place);
    dpb_json_set(rank, "clock", clock);
}

/* Four ranks, the last two doing what the first two do. */
static void open_four(struct fixture *f)
{
    open_fixture(f, 64.0);
    f->result.ranks = realloc(f->result.ranks, 4 * sizeof(*f->result.ranks));
    assert_non_null(f->result.ranks);
    for (int r = 2; r < 4; r++) {
        struct dpb_event *events = NULL;
        char *names = NULL;
        size_t count = 0;
        f->result.ranks[r] = rank_result(r - 2, 64.0);
        assert_int_equal(dpb_events_from_json(dpb_json_get(f->result.ranks[r], "events"), &events,
                                              &count, &names),
                         DPB_OK);
        for (size_t i = 0; i < count; i++)
            events[i].rank = (int16_t)r;
        dpb_json_set(f->result.ranks[r], "events", dpb_events_to_json(events, count));
        free(events);
        free(names);
    }
    f->result.rank_count = 4;
}

/* All figures of a record, without what says where it was made. */
static char *figures(const dpb_json *record)
{
    static const char *const keys[] = {
            "samples_step_ns", "rank_median_step_ns", "phases",  "throughput",
            "overlap",         "communication",       "waiting", "progress"};
    dpb_json *all = dpb_json_object();
    struct dpb_str text = {0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set(all, keys[i], dpb_json_copy(dpb_json_get(record, keys[i])));
    assert_int_equal(dpb_json_write(all, true, &text), DPB_OK);
    dpb_json_free(all);
    return text.text;
}

static dpb_json *build_four(struct fixture *f, int64_t by_ns, bool says_clocks, int64_t drift_ns)
{
    dpb_json *record = NULL;
    char why[256];
    open_four(f);
    for (int r = 0; r < 4; r++) {
        if (r >= 2)
            move_rank(f->result.ranks[r], by_ns);
        if (says_clocks)
            say_clock(f->result.ranks[r], r < 2 ? "a" : "b", r < 2 ? 0 : -by_ns + 500 * (r - 1),
                      r < 2 ? 0 : 2000 * (r - 1), r < 2 ? 0 : drift_ns);
        else
            dpb_json_set(f->result.ranks[r], "place", dpb_json_object());
    }
    f->result.wall_ns = 1000 * MS;
    assert_int_equal(dpb_cell_record_build(&f->outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    return record;
}

static dpb_json *read_trace(const struct fixture *f, const dpb_json *record)
{
    dpb_json *trace = NULL;
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", f->folder,
             dpb_json_as_string(dpb_json_path(record, "trace/file"), "?"));
    assert_int_equal(dpb_json_read_file(path, &trace), DPB_OK);
    return trace;
}

/* Where the hosts' clocks are 1000 s apart, every figure is what it is on one clock. */
static void test_clocks_of_two_hosts(void **state)
{
    (void)state;
    struct fixture one, two;
    dpb_json *on_one = build_four(&one, 0, false, 0);
    dpb_json *on_two = build_four(&two, APART_NS, true, 30 * 1000);
    /* Hosts' names differ, and nothing else. */
    dpb_json *named = dpb_json_copy(on_two);
    const dpb_json *late = dpb_json_path(on_one, "waiting/late_ranks");
    assert_int_equal(dpb_json_size(late),
                     dpb_json_size(dpb_json_path(on_two, "waiting/late_ranks")));
    dpb_json *waiting = dpb_json_copy(dpb_json_get(on_two, "waiting"));
    dpb_json_set(waiting, "late_ranks", dpb_json_copy(late));
    dpb_json_set(named, "waiting", waiting);
    char *expected = figures(on_one), *got = figures(named);
    assert_string_equal(got, expected);
    free(expected);
    free(got);

    assert_int_equal(dpb_json_type(dpb_json_get(on_one, "clocks")), DPB_JSON_NULL);
    assert_int_equal(number(on_two, "clocks/domains"), 2);
    const dpb_json *other = dpb_json_at(dpb_json_path(on_two, "clocks/ranks"), 3);
    assert_string_equal(dpb_json_as_string(dpb_json_get(other, "host"), ""), "b");
    /* rank 2's estimate is the better one, and is that of both */
    assert_int_equal(number(other, "shift_ns"), -APART_NS + 500);
    assert_int_equal(number(other, "error_ns"), 2000);
    assert_int_equal(number(other, "drift_ns"), 30 * 1000);

    /* In the trace they stand beside each other, and it says how well that is known. */
    dpb_json *trace = read_trace(&two, on_two);
    assert_int_equal(number(trace, "dpbench/host_clocks/domains"), 2);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_path(trace, "dpbench/clock"), ""),
                           "no duration is between two hosts"));
    char path[160];
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    uint64_t lost = 0;
    snprintf(path, sizeof(path), "%s/%s", two.folder,
             dpb_json_as_string(dpb_json_path(on_two, "trace/file"), "?"));
    assert_int_equal(dpb_trace_read(path, &events, &count, &names, &lost), DPB_OK);
    assert_int_equal(count, 20);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(events[i].start_ns - events[i % 5].start_ns,
                         events[i].rank >= 2 ? 500 : 0);
    free(events);
    free(names);
    dpb_json_free(trace);
    dpb_json_free(named);
    dpb_json_free(on_one);
    dpb_json_free(on_two);
    close_fixture(&one);
    close_fixture(&two);
}

/* A host that did not answer: nothing says where its events belong, and no 0 stands for it. */
static void test_clocks_that_are_not_known(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    move_rank(f.result.ranks[1], APART_NS);
    for (int r = 0; r < 2; r++) {
        say_clock(f.result.ranks[r], r ? "b" : "a", 0, 0, 0);
        if (r == 0)
            continue;
        dpb_json *clock = dpb_json_object();
        dpb_json_set_string(clock, "domain", "b");
        dpb_json_set_absent(clock, "offset_ns", "no answer");
        dpb_json_set_absent(clock, "error_ns", "no answer");
        dpb_json_set_absent(clock, "drift_ns", "no answer");
        dpb_json_set(f.result.ranks[r], "clock", clock);
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    static const char *const keys[] = {"shift_ns", "error_ns", "drift_ns"};
    const dpb_json *ranks = dpb_json_path(record, "clocks/ranks");
    for (int k = 0; k < 3; k++) {
        assert_int_equal(number(dpb_json_at(ranks, 0), keys[k]), 0);
        assert_int_equal(dpb_json_type(dpb_json_get(dpb_json_at(ranks, 1), keys[k])),
                         DPB_JSON_NULL);
    }
    dpb_json_free(record);
    close_fixture(&f);
}

/* The same instants taken for those of one clock, as if nobody had asked whose they are: the test
 * above would see it. */
static void test_mixed_clocks_are_seen(void **state)
{
    (void)state;
    struct fixture one, mixed;
    dpb_json *on_one = build_four(&one, 0, false, 0);
    dpb_json *on_mixed = build_four(&mixed, APART_NS, false, 0);
    char *expected = figures(on_one), *got = figures(on_mixed);
    assert_string_not_equal(got, expected);
    assert_true(dpb_json_as_int(dpb_json_at(dpb_json_get(on_mixed, "samples_step_ns"), 0), 0) >=
                APART_NS);
    free(expected);
    free(got);
    dpb_json_free(on_one);
    dpb_json_free(on_mixed);
    close_fixture(&one);
    close_fixture(&mixed);
}

static bool has_warning(const dpb_json *record, const char *text)
{
    const dpb_json *warnings = dpb_json_get(record, "warnings");
    for (size_t i = 0; i < dpb_json_size(warnings); i++)
        if (strstr(dpb_json_as_string(dpb_json_at(warnings, i), ""), text))
            return true;
    return false;
}

/* 30 us in a launch of 1 s is a quartz; 3 ms is a clock whose seconds are others, once and for both
 * ranks of the host. Below the error of the estimates it is not known. */
static void test_drift(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = build_four(&f, APART_NS, true, 30 * 1000);
    assert_false(has_warning(record, "ran"));
    dpb_json_free(record);
    close_fixture(&f);
    record = build_four(&f, APART_NS, true, -3 * MS);
    assert_true(has_warning(record, "the clock of rank 2's host (b) ran -3.000 ms off"));
    assert_false(has_warning(record, "rank 3's host"));
    dpb_json_free(record);
    close_fixture(&f);
}

static void trace_device(struct fixture *f, int r, int64_t zero_time);

/* Rank 1 comes late to both buckets: its kernels are 3 and 1 ms shorter than rank 0's. On clocks of
 * their own it is the same. */
static void test_late_ranks(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        for (int r = 0; r < 2; r++) {
            trace_device(&f, r, 0);
            if (apart)
                say_clock(f.result.ranks[r], r ? "b" : "a", 0, 0, 0);
        }
        if (apart)
            move_rank(f.result.ranks[1], APART_NS);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_int_equal(number(record, "waiting/collectives"), 2);
        const dpb_json *late = dpb_json_path(record, "waiting/late_ranks");
        assert_int_equal(dpb_json_size(late), 1);
        assert_int_equal(number(dpb_json_at(late, 0), "rank"), 1);
        assert_string_equal(dpb_json_as_string(dpb_json_get(dpb_json_at(late, 0), "host"), ""),
                            apart ? "b" : "");
        assert_true(real(dpb_json_at(late, 0), "last_share") == 1);
        assert_int_equal(number(dpb_json_at(late, 0), "others_waited_ns"), 4 * MS);
        const dpb_json *counts = dpb_json_path(record, "waiting/wait_counts");
        static const int64_t expected[2][6] = {{0, 0, 0, 2, 0, 0}, {2, 0, 0, 0, 0, 0}};
        for (size_t r = 0; r < 2; r++)
            for (size_t c = 0; c < 6; c++)
                assert_int_equal(dpb_json_as_int(dpb_json_at(dpb_json_at(counts, r), c), -1),
                                 expected[r][c]);
        dpb_json_free(record);
        close_fixture(&f);
    }
}

/* Where the comm tells of waiting, that counts, and not what moving took. */
static void test_late_ranks_of_a_comm_that_tells(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        /* rank 0 moves for longer; it is rank 1 that did not wait */
        const struct dpb_event events[] = {
                {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
                {8 * MS, 12 * MS + r * MS, "all-reduce", 5, 0, 1000, DPB_EVENT_COMM, DPB_LANE_COMM,
                 (int16_t)r},
                {8 * MS, 10 * MS, "wait", 5, 0, 0, DPB_EVENT_COMM_WAIT, DPB_LANE_COMM, (int16_t)r},
        };
        dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(events, r == 0 ? 3 : 2));
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    const dpb_json *late = dpb_json_path(record, "waiting/late_ranks");
    assert_int_equal(dpb_json_size(late), 1);
    assert_int_equal(number(dpb_json_at(late, 0), "rank"), 1);
    assert_true(real(dpb_json_at(late, 0), "last_share") == 1);
    assert_int_equal(number(dpb_json_at(late, 0), "others_waited_ns"), 2 * MS);
    dpb_json_free(record);
    close_fixture(&f);
}

/* What rank `r` of a device traced: one step of 20 ms, on the device until 22 ms; of the bucket's
 * kernel rank 0 waits 3 ms for rank 1, of the second one rank 1 waits 1 ms for rank 0. */
static void trace_device(struct fixture *f, int r, int64_t zero_time)
{
    const int64_t late = r * 3 * MS;
    const struct dpb_event events[] = {
            {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
            {0, 2 * MS, "conv", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_HOST, (int16_t)r},
            {1 * MS, 10 * MS, "conv: k", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_DEVICE, (int16_t)r},
            {5 * MS + late, 12 * MS, "nccl", 5, 0, 0, DPB_EVENT_COMM, DPB_LANE_DEVICE_COMM,
             (int16_t)r},
            {13 * MS, 15 * MS + (1 - r) * MS, "nccl", 5, 1, 0, DPB_EVENT_COMM, DPB_LANE_DEVICE_COMM,
             (int16_t)r},
            {18 * MS, 19 * MS, "memset", 5, -1, 64, DPB_EVENT_COPY, DPB_LANE_COPY, (int16_t)r},
            {20 * MS, 22 * MS, "sgd: k", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_DEVICE, (int16_t)r},
    };
    const struct dpb_losses losses = {.kernels = 1000, .zero_time = zero_time};
    dpb_json_set(f->result.ranks[r], "events", dpb_events_to_json(events, 7));
    dpb_json *recorder = dpb_losses_to_json(&losses), *clocks = dpb_json_object();
    dpb_json_set_int(clocks, "cupti_ns", INT64_C(1800000000000000001) + r);
    dpb_json_set(recorder, "clocks_before", clocks);
    dpb_json_set(recorder, "clocks_after", dpb_json_copy(clocks));
    dpb_json_set(f->result.ranks[r], "recorder", recorder);
}

static void check_device_clocks(const struct fixture *f, const dpb_json *record)
{
    dpb_json *trace = NULL;
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", f->folder,
             dpb_json_as_string(dpb_json_path(record, "trace/file"), "?"));
    assert_int_equal(dpb_json_read_file(path, &trace), DPB_OK);
    const dpb_json *clocks = dpb_json_path(trace, "dpbench/device_clocks");
    assert_int_equal(dpb_json_size(clocks), 2);
    assert_true(number(dpb_json_at(clocks, 1), "clocks_before/cupti_ns") ==
                INT64_C(1800000000000000002));
    assert_int_equal(number(dpb_json_at(clocks, 1), "rank"), 1);
    dpb_json_free(trace);
}

/* As MPI has it: no event says when the peers came. */
static void test_wait_that_is_not_known(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        const struct dpb_event events[] = {
                {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
                {0, 10 * MS, "conv", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_HOST, (int16_t)r},
                {8 * MS, 18 * MS, "all-reduce", 5, 0, 1000000, DPB_EVENT_COMM, DPB_LANE_COMM,
                 (int16_t)r},
        };
        dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(events, 3));
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(number(record, "overlap/exposed_ns"), 2 * 8 * MS);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "overlap/comm_wait_ns")), DPB_JSON_NULL);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_device(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++)
        trace_device(&f, r, 1);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(number(record, "overlap/span_ns"), 2 * 22 * MS);
    assert_int_equal(number(record, "overlap/compute_ns"), 2 * 11 * MS);
    assert_int_equal(number(record, "overlap/comm_ns"), (7 + 3) * MS + (4 + 2) * MS);
    assert_int_equal(number(record, "overlap/overlap_ns"), 5 * MS + 2 * MS);
    assert_int_equal(number(record, "overlap/launch_ns"), 2 * MS);
    assert_int_equal(number(record, "overlap/copy_ns"), 2 * MS);
    /* when peers came is not known, but who waited least is: 2 x (4 + 2) ms of moving */
    assert_int_equal(dpb_json_type(dpb_json_path(record, "overlap/comm_wait_ns")), DPB_JSON_NULL);
    assert_true(fabs(real(record, "communication/busbw_bytes_per_s") - 2 * 1e6 / 0.012) < 1e-3);
    assert_true(real(record, "communication/collectives_per_step") == 2 + 1);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "communication/payload_bytes_per_step")),
                     DPB_JSON_NULL);
    assert_int_equal(number(record, "trace/device/kernels"), 2000);
    check_device_clocks(&f, record);
    assert_int_equal(number(record, "trace/device/zero_time"), 2);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_untraced_has_the_reason(void **state)
{
    (void)state;
    static const char *const steps[] = {"5", "0"};
    static const char *const words[] = {"the launch for it failed", "--trace-steps 0"};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        for (int r = 0; r < 2; r++)
            dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(NULL, 0));
        assert_int_equal(dpb_config_set(f.plan.cells[0].config, "trace-steps", steps[i]), DPB_OK);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_int_equal(dpb_json_type(dpb_json_get(record, "overlap")), DPB_JSON_NULL);
        assert_non_null(
                strstr(dpb_json_as_string(dpb_json_get(record, "overlap_reason"), ""), words[i]));
        dpb_json_free(record);
        close_fixture(&f);
    }
}

/* Above 1 kernel in 1000 without times there is no figure, but the reason. */
static void test_losses_refuse_figures(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++)
        trace_device(&f, r, 1 + r);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "overlap")), DPB_JSON_NULL);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_get(record, "overlap_reason"), ""),
                           "3 without times"));
    assert_int_equal(dpb_json_type(dpb_json_get(record, "communication")), DPB_JSON_NULL);
    assert_int_equal(number(record, "trace/device/zero_time"), 3);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_at(dpb_json_get(record, "warnings"), 0), ""),
                           "no figures of overlap: the trace lacks too much"));
    dpb_json_free(record);
    close_fixture(&f);
}

/* As the recorder takes kernels whose names it does not know. */
static void rename_collectives(dpb_json *rank)
{
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    assert_int_equal(dpb_events_from_json(dpb_json_get(rank, "events"), &events, &count, &names),
                     DPB_OK);
    for (size_t i = 0; i < count; i++)
        if (events[i].lane == DPB_LANE_DEVICE_COMM) {
            events[i].lane = DPB_LANE_DEVICE;
            events[i].kind = DPB_EVENT_COMPUTE;
        }
    dpb_json_set(rank, "events", dpb_events_to_json(events, count));
    free(events);
    free(names);
}

/* NCCL's kernels were renamed once (facebookresearch/HolisticTraceAnalysis#109). */
static void test_kernels_of_collectives_under_other_names(void **state)
{
    (void)state;
    struct dpb_comm_ops comm = *registry_for_tests()->comms[0];
    const struct dpb_comm_ops *const comms[] = {&comm};
    struct dpb_registry registry = *registry_for_tests();
    registry.comms = comms;
    for (int in_device = 0; in_device < 2; in_device++) {
        struct fixture f;
        dpb_json *record = NULL;
        char why[256];
        open_fixture(&f, 64.0);
        f.outcome.registry = &registry;
        comm.flags |= in_device ? DPB_COMM_DEVICE_MEMORY : 0;
        for (int r = 0; r < 2; r++) {
            trace_device(&f, r, 0);
            rename_collectives(f.result.ranks[r]);
        }
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_int_equal(dpb_record_check(record, why), DPB_OK);
        const dpb_json *reason = dpb_json_get(record, "overlap_reason");
        if (in_device)
            assert_non_null(strstr(dpb_json_as_string(reason, ""),
                                   "no communication kernels were recognised"));
        else /* a comm of host memory has none */
            assert_null(reason);
        dpb_json_free(record);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_clocks_of_two_hosts),
            cmocka_unit_test(test_clocks_that_are_not_known),
            cmocka_unit_test(test_mixed_clocks_are_seen),
            cmocka_unit_test(test_drift),
            cmocka_unit_test(test_late_ranks),
            cmocka_unit_test(test_late_ranks_of_a_comm_that_tells),
            cmocka_unit_test(test_wait_that_is_not_known),
            cmocka_unit_test(test_device),
            cmocka_unit_test(test_untraced_has_the_reason),
            cmocka_unit_test(test_losses_refuse_figures),
            cmocka_unit_test(test_kernels_of_collectives_under_other_names),
    };
    return DPB_RUN_TESTS(tests);
}
