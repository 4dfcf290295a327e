/* The decoder on buffers made by hand, walked by the real library, which needs no driver for it. */
#include "dpb_test.h"

#include <stdbool.h>

#include "device_events.h"
#include "tape.h"

/* CUPTI's clock is an hour ahead of ours. */
#define AHEAD_NS INT64_C(3600000000000)
#define AT(ns)   ((uint64_t)(AHEAD_NS + (ns)))

#define SUM "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

static struct cupti_table cupti;
static struct tape tape;
static struct cupti_events made;
static struct dpb_losses losses;

static const char *const ranges[] = {"conv1.fwd", "layer3.conv2.bwd-weights", "batch"};

static const struct cupti_run run = {
        .rank = 3,
        .from = {.cupti_ns = AHEAD_NS + 1000, .monotonic_ns = 1000, .uncertain_ns = 20},
        .to = {.cupti_ns = AHEAD_NS + 9000, .monotonic_ns = 9000, .uncertain_ns = 30},
        .range_names = ranges,
        .range_count = 3,
};

static int set_up(void **state)
{
    (void)state;
    memset(&tape, 0, sizeof(tape));
    losses = (struct dpb_losses){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cupti_events_release(&made);
    return 0;
}

/* Decode the first `valid_bytes` of the tape. */
static size_t decode_part(size_t valid_bytes)
{
    struct cupti_records records = {0};

    cupti_records_read(&records, &cupti, tape.bytes, valid_bytes);
    assert_int_equal(cupti_events_make(&records, &run, &made, &losses), DPB_OK);
    cupti_records_release(&records);
    return made.count;
}

static size_t decode(void)
{
    return decode_part(tape.length);
}

static void test_kernel_gets_operator_step_and_bucket(void **state)
{
    (void)state;
    tape_launch(&tape, 11, 5, -1, 2);
    tape_launch(&tape, 12, 5, 4, 0);
    tape_kernel(&tape, "_Z14wgrad_implicitPf", 11, AT(2000), AT(2500));
    tape_kernel(&tape, SUM, 12, AT(2400), AT(3000));
    assert_int_equal(decode(), 2);
    assert_string_equal(made.events[0].name, "layer3.conv2.bwd-weights: wgrad_implicit");
    assert_int_equal(made.events[0].kind, DPB_EVENT_COMPUTE);
    assert_int_equal(made.events[0].lane, DPB_LANE_DEVICE);
    assert_int_equal(made.events[0].start_ns, 2000);
    assert_int_equal(made.events[0].end_ns, 2500);
    assert_int_equal(made.events[0].step, 5);
    assert_int_equal(made.events[0].bucket, -1);
    assert_int_equal(made.events[0].rank, 3);
    assert_string_equal(made.events[1].name, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    assert_int_equal(made.events[1].kind, DPB_EVENT_COMM);
    assert_int_equal(made.events[1].lane, DPB_LANE_DEVICE_COMM);
    assert_int_equal(made.events[1].bucket, 4);
    assert_int_equal(losses.kernels, 2);
    assert_int_equal(losses.zero_time + losses.unmatched + losses.damaged_buffers, 0);
    assert_int_equal(losses.kernels_per_step_min, 2);
    assert_int_equal(losses.clock_bound_ns, 30);
}

static void test_copies_and_fills(void **state)
{
    (void)state;
    tape_launch(&tape, 1, 0, -1, 3);
    tape_launch(&tape, 2, 0, -1, 0);
    tape_copy(&tape, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, UINT64_C(5000000000), 1, AT(10), AT(20));
    tape_fill(&tape, 64, 2, AT(30), AT(30));
    assert_int_equal(decode(), 2);
    assert_string_equal(made.events[0].name, "batch: memcpy host to device");
    assert_int_equal(made.events[0].lane, DPB_LANE_COPY);
    assert_int_equal(made.events[0].kind, DPB_EVENT_COPY);
    assert_int_equal(made.events[0].bytes, 5000000000);
    assert_string_equal(made.events[1].name, "memset");
    assert_int_equal(losses.kernels, 0);
}

/* Zero means "not collected": counted, and in no sum. */
static void test_zero_times_are_counted(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 5; i++)
        tape_launch(&tape, i, 1, -1, 1);
    tape_kernel(&tape, "a", 1, 0, 0);
    tape_kernel(&tape, "a", 2, 0, AT(20));
    tape_kernel(&tape, "a", 3, AT(30), 0);
    tape_kernel(&tape, "a", 4, AT(40), AT(39)); /* ends before it starts */
    tape_kernel(&tape, "a", 5, AT(50), AT(51));
    assert_int_equal(decode(), 1);
    assert_int_equal(losses.zero_time, 4);
    assert_int_equal(losses.kernels, 5);
    assert_int_equal(losses.unmatched, 0);
}

static void test_kernel_without_launch_is_unmatched(void **state)
{
    (void)state;
    tape_kernel(&tape, "from_before", 99, AT(10), AT(20));
    tape_kernel(&tape, "no_number", 0, AT(10), AT(20));
    tape_launch(&tape, 0, 1, -1, 1); /* 0 joins nothing */
    /* a launch by the driver alone is one */
    tape_call(&tape, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 5, 0);
    tape_kernel(&tape, "by_driver", 5, AT(30), AT(40));
    tape_fill(&tape, 8, 98, AT(50), AT(51)); /* by a call that is not recorded: no loss */
    assert_int_equal(decode(), 4);
    assert_int_equal(losses.unmatched, 2);
    assert_int_equal(made.events[0].step, -1);
    assert_string_equal(made.events[1].name, "no_number");
    assert_string_equal(made.events[2].name, "by_driver");
}

/* All kernels of a launched graph share its correlation; one that ran nothing is a loss, one that
 * failed is none. */
static void test_graph_launches(void **state)
{
    const CUpti_CallbackId launch = CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000;

    (void)state;
    tape_external(&tape, 7, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, cupti_place(2, -1));
    tape_external(&tape, 7, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 1);
    tape_call(&tape, CUPTI_ACTIVITY_KIND_RUNTIME, launch, 7, 0);
    tape_call(&tape, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, 7, 0);
    for (uint64_t node = 1; node <= 20; node++)
        tape_graph_kernel(&tape, "in_graph", 7, node, AT(10 * node), AT(10 * node + 5));
    tape_call(&tape, CUPTI_ACTIVITY_KIND_RUNTIME, launch, 8, 0);
    tape_call(&tape, CUPTI_ACTIVITY_KIND_RUNTIME, launch, 9, 700);
    assert_int_equal(decode(), 20);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(made.events[i].step, 2);
        assert_string_equal(made.events[i].name, "conv1.fwd: in_graph");
    }
    assert_int_equal(losses.unmatched, 1);
    assert_int_equal(losses.kernels, 20);
}

static void test_unknown_kind_ends_the_buffer(void **state)
{
    (void)state;
    tape_launch(&tape, 1, 0, -1, 1);
    tape_kernel(&tape, "a", 1, AT(10), AT(20));
    tape_raw(&tape, 0x7001, 64);
    tape_kernel(&tape, "unreachable", 1, AT(30), AT(40));
    assert_int_equal(decode(), 1);
    assert_int_equal(losses.damaged_buffers, 1);
}

static void test_truncated_tail(void **state)
{
    size_t whole;

    (void)state;
    tape_launch(&tape, 1, 0, -1, 1);
    tape_kernel(&tape, "a", 1, AT(10), AT(20));
    whole = tape.length;
    tape_kernel(&tape, "cut", 1, AT(30), AT(40));
    for (size_t bytes = whole + 8; bytes < tape.length; bytes += 8) {
        losses = (struct dpb_losses){0};
        assert_int_equal(decode_part(bytes), 1);
        assert_int_equal(losses.damaged_buffers, 1);
        cupti_events_release(&made);
    }
    losses = (struct dpb_losses){0};
    assert_int_equal(decode(), 2);
    assert_int_equal(losses.damaged_buffers, 0);
}

/* What was never written is zero, and no loss. */
static void test_empty_buffers_and_zero_tail(void **state)
{
    (void)state;
    assert_int_equal(decode_part(0), 0);
    assert_int_equal(losses.damaged_buffers, 0);
    cupti_events_release(&made);
    tape_launch(&tape, 1, 0, -1, 1);
    tape_kernel(&tape, "a", 1, AT(10), AT(20));
    assert_int_equal(decode_part(tape.length), 1);
    assert_int_equal(losses.damaged_buffers, 0);
}

static void test_markers_push_and_pop(void **state)
{
    const uint32_t begin = CUPTI_ACTIVITY_FLAG_MARKER_START;
    const uint32_t end = CUPTI_ACTIVITY_FLAG_MARKER_END;

    (void)state;
    tape_marker(&tape, begin, 1, "step", "dpbench", AT(10)); /* known already */
    tape_marker(&tape, begin, 2, "ncclAllReduce", "NCCL", AT(20));
    tape_marker(&tape, begin, 3, "inner", NULL, AT(25));
    tape_marker(&tape, end, 3, NULL, NULL, AT(28));
    tape_marker(&tape, end, 2, NULL, "NCCL", AT(30));
    tape_marker(&tape, begin, 4, "never ends", "NCCL", AT(35));
    tape_marker(&tape, end, 1, NULL, "dpbench", AT(40));
    tape_marker(&tape, end, 77, NULL, NULL, AT(50)); /* never began */
    tape_marker(&tape, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 5, "mark", "NCCL", AT(60));
    assert_int_equal(decode(), 2);
    assert_string_equal(made.events[0].name, "NCCL: ncclAllReduce");
    assert_int_equal(made.events[0].kind, DPB_EVENT_NOTE);
    assert_int_equal(made.events[0].lane, DPB_LANE_STRATEGY);
    assert_int_equal(made.events[0].start_ns, 20);
    assert_int_equal(made.events[0].end_ns, 30);
    assert_string_equal(made.events[1].name, "inner");
    assert_int_equal(made.events[1].end_ns, 28);
}

/* The tracer's own time is the host's, and no computing. */
static void test_overhead_and_waiting(void **state)
{
    (void)state;
    tape_overhead(&tape, CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, AT(10), AT(17), malloc(16));
    tape_overhead(&tape, CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, 0, 0, NULL);
    tape_sync(&tape, AT(100), AT(140));
    tape_sync(&tape, 0, 0);
    assert_int_equal(decode(), 1);
    assert_string_equal(made.events[0].name, "cupti: flush");
    assert_int_equal(made.events[0].kind, DPB_EVENT_OVERHEAD);
    assert_int_equal(made.events[0].lane, DPB_LANE_HOST);
    assert_int_equal(losses.overhead_ns, 7);
    assert_int_equal(losses.sync_wait_ns, 40);
}

static void test_external_correlation_of_others(void **state)
{
    (void)state;
    tape_external(&tape, 1, CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC, 12345);
    tape_external(&tape, 1, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, 1);
    tape_external(&tape, 1, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 4); /* there are 3 */
    tape_external(&tape, 1, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, cupti_place(-7, 0xfffe));
    tape_kernel(&tape, "a", 1, AT(10), AT(20));
    assert_int_equal(decode(), 1);
    assert_string_equal(made.events[0].name, "a");
    assert_int_equal(made.events[0].step, -7);
    assert_int_equal(made.events[0].bucket, 0xfffe);
    assert_int_equal(losses.unmatched, 0);
}

/* NVIDIA/Fuser#5402: a buffer that is delivered twice does not make the device work twice; kernels
 * that look alike are kept. */
static void test_records_that_come_twice_count_once(void **state)
{
    struct cupti_records records = {0};

    (void)state;
    tape_launch(&tape, 1, 3, -1, 1);
    tape_kernel(&tape, "a", 1, AT(10), AT(20));
    tape_launch(&tape, 2, 3, -1, 1);
    tape_kernel(&tape, "a", 2, AT(10), AT(20)); /* of another launch */
    tape_graph_kernel(&tape, "g", 3, 7, AT(30), AT(40));
    tape_graph_kernel(&tape, "g", 3, 8, AT(30), AT(40)); /* of another node */
    tape_copy(&tape, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 64, 4, AT(50), AT(60));
    tape_fill(&tape, 64, 4, AT(50), AT(60)); /* of another kind */
    tape_kernel(&tape, "none", 0, AT(70), AT(80));
    tape_kernel(&tape, "none", 0, AT(70), AT(80)); /* nobody knows */
    for (int i = 0; i < 2; i++)
        cupti_records_read(&records, &cupti, tape.bytes, tape.length);
    assert_int_equal(cupti_events_make(&records, &run, &made, &losses), DPB_OK);
    cupti_records_release(&records);
    assert_int_equal(made.count, 10); /* six, and those of nobody twice */
    assert_int_equal(losses.repeated, 6);
    assert_int_equal(losses.kernels, 8);
}

static void test_kernels_of_every_step_are_counted(void **state)
{
    static const int kernels[] = {4, 2, 5}; /* of steps 10 to 12 */
    uint32_t correlation = 1;

    (void)state;
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < kernels[step]; i++, correlation++) {
            tape_launch(&tape, correlation, 10 + step, -1, 1);
            tape_kernel(&tape, "a", correlation, AT(10), AT(20));
        }
    }
    decode();
    assert_int_equal(losses.kernels_per_step_min, 2);
    assert_int_equal(losses.kernels_per_step_max, 5);
}

/* Two buffers of one run: the launch is in the one, its kernel in the other. */
static void test_records_of_several_buffers_join(void **state)
{
    struct cupti_records records = {0};

    (void)state;
    tape_kernel(&tape, "late", 1, AT(10), AT(20));
    cupti_records_read(&records, &cupti, tape.bytes, tape.length);
    memset(&tape, 0, sizeof(tape));
    tape_launch(&tape, 1, 6, -1, 1);
    cupti_records_read(&records, &cupti, tape.bytes, tape.length);
    assert_int_equal(cupti_events_make(&records, &run, &made, &losses), DPB_OK);
    cupti_records_release(&records);
    assert_int_equal(made.count, 1);
    assert_int_equal(made.events[0].step, 6);
    assert_string_equal(made.events[0].name, "conv1.fwd: late");
}

/* The clocks drift apart by 80 ns: times between get their share, those outside none. */
static void test_clocks(void **state)
{
    const struct cupti_moment from = {.cupti_ns = 5000, .monotonic_ns = 1000, .uncertain_ns = 3};
    const struct cupti_moment to = {.cupti_ns = 13000, .monotonic_ns = 9080, .uncertain_ns = 2};
    const struct cupti_moment back = {.cupti_ns = 4000, .monotonic_ns = 9000, .uncertain_ns = 2};

    (void)state;
    assert_int_equal(cupti_clock_to_monotonic(&from, &to, 5000), 1000);
    assert_int_equal(cupti_clock_to_monotonic(&from, &to, 9000), 5040);
    assert_int_equal(cupti_clock_to_monotonic(&from, &to, 13000), 9080);
    assert_int_equal(cupti_clock_to_monotonic(&from, &to, 14000), 10080);
    assert_int_equal(cupti_clock_to_monotonic(&from, &to, 4000), 0);
    assert_int_equal(cupti_clock_bound_ns(&from, &to), 83);
    assert_int_equal(cupti_clock_bound_ns(&to, &from), 83);
    /* set back by more than passed: nothing to interpolate, and the bound says so */
    assert_int_equal(cupti_clock_to_monotonic(&from, &back, 5010), 1010);
    assert_int_equal(cupti_clock_bound_ns(&from, &back), 9003);
}

/* The library's own clock, which it has without a driver. */
static void test_moment_is_of_the_realtime_clock(void **state)
{
    struct cupti_moment first, second;

    (void)state;
    assert_int_equal(cupti_moment_read(&cupti, &first), DPB_OK);
    assert_int_equal(cupti_moment_read(&cupti, &second), DPB_OK);
    assert_true(first.uncertain_ns >= 0);
    assert_true(second.monotonic_ns > first.monotonic_ns);
    assert_true(llabs(first.cupti_ns - first.realtime_ns) <= 2 * first.uncertain_ns + 1);
}

/* The library writes the newest layout it knows: it must be the one that is read here. */
static void test_layout_of_records(void **state)
{
    static const struct {
        CUpti_ActivityKind kind;
        size_t bytes;
    } cases[] = {
            {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(CUpti_ActivityKernel10)},
            {CUPTI_ACTIVITY_KIND_MEMCPY, sizeof(CUpti_ActivityMemcpy6)},
            {CUPTI_ACTIVITY_KIND_MEMSET, sizeof(CUpti_ActivityMemset4)},
            {CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI)},
            {CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI)},
            {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, sizeof(CUpti_ActivityExternalCorrelation)},
            {CUPTI_ACTIVITY_KIND_MARKER, sizeof(CUpti_ActivityMarker2)},
            {CUPTI_ACTIVITY_KIND_MARKER_DATA, sizeof(CUpti_ActivityMarkerData2)},
            {CUPTI_ACTIVITY_KIND_OVERHEAD, sizeof(CUpti_ActivityOverhead3)},
            {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sizeof(CUpti_ActivitySynchronization2)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(tape_record_bytes(&cupti, cases[i].kind), cases[i].bytes);
    assert_int_equal(tape_record_bytes(&cupti, 0x7001), 0);
}

static void test_versions(void **state)
{
    (void)state;
    assert_true(cupti_version_fits(130001, 130001));
    assert_true(cupti_version_fits(130100, 130001));
    assert_false(cupti_version_fits(130000, 130001)); /* deadlocks that the update mended */
    assert_false(cupti_version_fits(140000, 130001)); /* other records */
    assert_false(cupti_version_fits(120800, 130001));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_kernel_gets_operator_step_and_bucket),
            TEST(test_copies_and_fills),
            TEST(test_zero_times_are_counted),
            TEST(test_kernel_without_launch_is_unmatched),
            TEST(test_graph_launches),
            TEST(test_unknown_kind_ends_the_buffer),
            TEST(test_truncated_tail),
            TEST(test_empty_buffers_and_zero_tail),
            TEST(test_markers_push_and_pop),
            TEST(test_overhead_and_waiting),
            TEST(test_external_correlation_of_others),
            TEST(test_kernels_of_every_step_are_counted),
            TEST(test_records_of_several_buffers_join),
            TEST(test_records_that_come_twice_count_once),
            TEST(test_clocks),
            TEST(test_moment_is_of_the_realtime_clock),
            TEST(test_layout_of_records),
            TEST(test_versions),
    };

    tape_need_cupti(&cupti);
    return DPB_RUN_TESTS(tests);
}
