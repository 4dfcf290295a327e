/* The recorder against a CUPTI of the test's own, whose device runs at once what is launched; only
 * the walk through the buffers is the real library's. What it shows is the order of calls and what
 * becomes of records, not CUPTI. */
#include "dpb_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "cupti_buffers.h"
#include "cupti_session.h"
#include "dpb_log.h"
#include "dpb_losses.h"
#include "dpb_recorder_cupti.h"
#include "nvtx.h"
#include "tape.h"
#include "../../tests/nvtx_seen.h"

#define STACK_DEPTH 64

/* One kind of external correlation of a thread. */
struct stack {
    uint64_t id[STACK_DEPTH];
    int depth;
};

static struct {
    struct cupti_table real;
    /* what it answers */
    CUptiResult subscribe_result, flush_result, enable_result;
    CUpti_ActivityKind refused_kind;
    size_t dropped;
    /* what it was told */
    CUpti_BuffersCallbackRequestFunc requested;
    CUpti_BuffersCallbackCompleteFunc completed;
    bool enabled[CUPTI_ACTIVITY_KIND_COUNT], ever_enabled[CUPTI_ACTIVITY_KIND_COUNT];
    bool set_attribute[32], set_after_enable;
    int driver_functions;
    uint32_t flushes; /* the flags of each, one bit per call from the lowest */
    int flush_count;
    /* its device */
    struct tape tape;
    uint32_t correlation;
} fake;

/* CUPTI keeps them per thread. */
static _Thread_local struct stack stacks[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];

static char log_lines[4096];

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    strncat(log_lines, line, sizeof(log_lines) - strlen(log_lines) - 2);
    strcat(log_lines, "\n");
}

/* ---- the fake ---- */

static CUptiResult fake_subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                  void *data, CUpti_SubscriberParams *params)
{
    (void)callback;
    (void)data;
    *subscriber = NULL;
    assert_true(params->oldSubscriberSize >= CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN);
    if (fake.subscribe_result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        snprintf(params->oldSubscriberName, params->oldSubscriberSize, "Nsight Systems");
    return fake.subscribe_result;
}

static CUptiResult fake_unsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    fail_msg("taking CUPTI out of a process has crashed many");
    return CUPTI_SUCCESS;
}

static CUptiResult fake_set_attribute(CUpti_ActivityAttribute attribute, size_t *bytes, void *value)
{
    const bool is_zeroed = attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER;

    assert_int_equal(*bytes, is_zeroed ? sizeof(uint8_t) : sizeof(size_t));
    assert_non_null(value);
    fake.set_attribute[attribute] = true;
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++)
        fake.set_after_enable |= fake.ever_enabled[kind];
    return CUPTI_SUCCESS;
}

static CUptiResult fake_register(CUpti_BuffersCallbackRequestFunc requested,
                                 CUpti_BuffersCallbackCompleteFunc completed)
{
    fake.requested = requested;
    fake.completed = completed;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_enable(CUpti_ActivityKind kind)
{
    if (fake.enable_result != CUPTI_SUCCESS && kind == fake.refused_kind)
        return fake.enable_result;
    fake.enabled[kind] = fake.ever_enabled[kind] = true;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_enable_driver(CUpti_CallbackId function, uint8_t enable)
{
    (void)function;
    fake.driver_functions += enable ? 1 : -1;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_disable(CUpti_ActivityKind kind)
{
    fake.enabled[kind] = false;
    return CUPTI_SUCCESS;
}

/* Hand over what the device has, in as many buffers as it needs, as the library does: from inside
 * the call. A lock that the caller held would never be free. */
static CUptiResult fake_flush(uint32_t flag)
{
    size_t bytes, most;
    uint8_t *buffer;

    fake.flushes |= flag << fake.flush_count++;
    if (fake.flush_result != CUPTI_SUCCESS || fake.tape.length == 0)
        return fake.flush_result;
    fake.requested(&buffer, &bytes, &most);
    if (!buffer) {
        fake.dropped++;
        return CUPTI_SUCCESS;
    }
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(buffer[i], 0);
    assert_int_equal((uintptr_t)buffer % 8, 0);
    memcpy(buffer, fake.tape.bytes, fake.tape.length);
    fake.completed(NULL, 0, buffer, bytes, fake.tape.length);
    fake.tape.length = 0;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_dropped(CUcontext context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = fake.dropped;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_push(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    struct stack *stack = &stacks[kind];

    assert_true(stack->depth < STACK_DEPTH);
    stack->id[stack->depth++] = id;
    return CUPTI_SUCCESS;
}

static CUptiResult fake_pop(CUpti_ExternalCorrelationKind kind, uint64_t *id)
{
    struct stack *stack = &stacks[kind];

    if (stack->depth == 0)
        return CUPTI_ERROR_QUEUE_EMPTY;
    stack->depth--;
    if (id)
        *id = stack->id[stack->depth];
    return CUPTI_SUCCESS;
}

static uint64_t cupti_now(void)
{
    uint64_t now_ns = 0;

    fake.real.cuptiGetTimestamp(&now_ns);
    return now_ns;
}

/* A kernel is launched, and has run when this returns. */
static void launch(const char *name)
{
    const uint32_t correlation = ++fake.correlation;
    const uint64_t start_ns = cupti_now();
    uint64_t end_ns;

    for (int kind = 0; kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; kind++) {
        const struct stack *stack = &stacks[kind];

        if (stack->depth > 0)
            tape_external(&fake.tape, correlation, (CUpti_ExternalCorrelationKind)kind,
                          stack->id[stack->depth - 1]);
    }
    tape_call(&fake.tape, CUPTI_ACTIVITY_KIND_RUNTIME,
              CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, correlation, 0);
    do
        end_ns = cupti_now();
    while (end_ns == start_ns);
    tape_kernel(&fake.tape, name, correlation, start_ns, end_ns);
}

static struct cupti_table fake_table(void)
{
    struct cupti_table table = fake.real;

    table.cuptiSubscribe_v2 = fake_subscribe;
    table.cuptiUnsubscribe = fake_unsubscribe;
    table.cuptiActivitySetAttribute = fake_set_attribute;
    table.cuptiActivityRegisterCallbacks = fake_register;
    table.cuptiActivityEnable = fake_enable;
    table.cuptiActivityEnableDriverApi = fake_enable_driver;
    table.cuptiActivityDisable = fake_disable;
    table.cuptiActivityFlushAll = fake_flush;
    table.cuptiActivityGetNumDroppedRecords = fake_dropped;
    table.cuptiActivityPushExternalCorrelationId = fake_push;
    table.cuptiActivityPopExternalCorrelationId = fake_pop;
    return table;
}

/* ---- the tests ---- */

static const struct dpb_recorder_ops *const ops = &dpb_recorder_cupti_ops;

static int set_up(void **state)
{
    static struct cupti_table table;
    const struct cupti_table real = fake.real;

    (void)state;
    memset(&fake, 0, sizeof(fake));
    memset(stacks, 0, sizeof(stacks));
    fake.real = real;
    table = fake_table();
    cupti_use(&table);
    log_lines[0] = '\0';
    dpb_log_set_sink(keep_line, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cupti_session_forget();
    cupti_use(NULL);
    dpb_log_set_sink(NULL, NULL);
    return 0;
}

static dpb_recorder *open_prepared(void)
{
    const struct dpb_recorder_config config = {.rank = 2, .events_per_lane = 64, .steps = 2};
    dpb_recorder *recorder = NULL;

    assert_int_equal(ops->prepare(), DPB_OK);
    assert_int_equal(ops->open(&config, &recorder), DPB_OK);
    return recorder;
}

/* What a step on a device looks like from the host. */
static void record_step(dpb_recorder *recorder, int32_t step)
{
    ops->set_step(recorder, step);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_STEP, "step", -1);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "conv1.fwd", -1);
    launch("_Z8implicitPf");
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_NOTE, "fill", 3);
    dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "pack", -1);
    launch("pack");
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_range_end(recorder, DPB_LANE_HOST);
    dpb_bucket_begin(recorder, "all-reduce", 4);
    launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(X)");
    dpb_bucket_end(recorder);
    dpb_range_end(recorder, DPB_LANE_HOST);
}

static const struct dpb_event *drain(dpb_recorder *recorder, size_t expected)
{
    const struct dpb_event *events = NULL;
    uint64_t lost = 9;
    size_t count = 0;

    assert_int_equal(ops->drain(recorder, &events, &count, &lost), DPB_OK);
    assert_int_equal(lost, 0);
    assert_int_equal(count, expected);
    return events;
}

static struct dpb_losses losses_of(dpb_recorder *recorder)
{
    struct dpb_losses losses = {0};
    dpb_json *json = ops->describe(recorder);

    assert_true(dpb_json_ok(json));
    dpb_losses_add_json(&losses, json);
    dpb_json_free(json);
    return losses;
}

static void test_table(void **state)
{
    (void)state;
    assert_int_equal(dpb_recorder_ops_check(ops), DPB_OK);
    assert_true(ops->flags & DPB_RECORDER_OWN_PROCESS);
}

static void test_two_steps(void **state)
{
    dpb_recorder *recorder = open_prepared();
    const struct dpb_event *events;
    struct dpb_losses losses;

    (void)state;
    launch("of_warm_up");
    fake.tape.length = 0; /* before start() nothing is recorded */
    assert_int_equal(stacks[CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0].depth, 0);
    assert_int_equal(ops->start(recorder), DPB_OK);
    record_step(recorder, 7);
    record_step(recorder, 8);
    assert_int_equal(stacks[CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0].depth, 0);
    assert_int_equal(stacks[CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1].depth, 0);
    events = drain(recorder, 8 + 6);

    for (size_t i = 0; i < 14; i++) {
        assert_int_equal(events[i].rank, 2);
        assert_int_equal(events[i].step, i == 12 || i < 4 || (i >= 8 && i < 10) ? 7 : 8);
        if (i > 0 && events[i - 1].lane == events[i].lane)
            assert_true(events[i - 1].start_ns <= events[i].start_ns);
    }
    assert_string_equal(events[0].name, "step");
    assert_int_equal(events[8].lane, DPB_LANE_DEVICE);
    assert_string_equal(events[8].name, "conv1.fwd: implicit");
    assert_int_equal(events[8].bucket, -1);
    assert_string_equal(events[9].name, "pack: pack");
    assert_int_equal(events[9].bucket, 3); /* of the range around */
    assert_int_equal(events[12].lane, DPB_LANE_DEVICE_COMM);
    assert_string_equal(events[12].name, "all-reduce: ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    assert_int_equal(events[12].bucket, 4);

    losses = losses_of(recorder);
    assert_int_equal(losses.kernels, 6);
    assert_int_equal(losses.kernels_per_step_min, 3);
    assert_int_equal(losses.kernels_per_step_max, 3);
    assert_int_equal(losses.unmatched + losses.zero_time + losses.dropped, 0);
    assert_string_equal(losses.untraced, "");
    /* The kernel ran while the host was in its range, as both clocks see it. */
    assert_true(events[8].start_ns >= events[1].start_ns - losses.clock_bound_ns - 1);
    assert_true(events[8].end_ns <= events[1].end_ns + losses.clock_bound_ns + 1);
    ops->close(recorder);
}

static void test_what_is_recorded(void **state)
{
    static const CUpti_ActivityKind wanted[] = {
            CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
            CUPTI_ACTIVITY_KIND_RUNTIME,
            CUPTI_ACTIVITY_KIND_MEMCPY,
            CUPTI_ACTIVITY_KIND_MEMSET,
            CUPTI_ACTIVITY_KIND_MARKER,
            CUPTI_ACTIVITY_KIND_MARKER_DATA,
            CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            CUPTI_ACTIVITY_KIND_OVERHEAD,
            CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
    };
    dpb_recorder *recorder = open_prepared();
    size_t enabled = 0;

    (void)state;
    assert_true(fake.set_attribute[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE]);
    assert_true(fake.set_attribute[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT]);
    assert_true(fake.set_attribute[CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE]);
    assert_true(fake.set_attribute[CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER]);
    assert_int_equal(ops->start(recorder), DPB_OK);
    assert_false(fake.set_after_enable);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        assert_true(fake.enabled[wanted[i]]);
    assert_int_equal(fake.driver_functions, 6);
    drain(recorder, 0);
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++) {
        enabled += fake.ever_enabled[kind];
        assert_false(fake.enabled[kind]);
    }
    assert_int_equal(enabled, sizeof(wanted) / sizeof(wanted[0])); /* and no other kind */
    assert_int_equal(fake.driver_functions, 0);
    assert_int_equal(fake.flush_count, 2);
    assert_int_equal(fake.flushes, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED << 1); /* the last, by force */
    ops->close(recorder);
}

static void test_one_session(void **state)
{
    dpb_recorder *recorder = open_prepared(), *second = open_prepared();

    (void)state;
    assert_int_equal(ops->start(recorder), DPB_OK);
    record_step(recorder, 1);
    drain(recorder, 4 + 3);
    assert_int_equal(ops->start(second), DPB_ERR_USAGE);
    assert_non_null(strstr(log_lines, "once in a process"));
    record_step(recorder, 2); /* the host's side goes on */
    drain(recorder, 4);
    assert_non_null(strstr(losses_of(recorder).untraced, "not recorded"));
    ops->close(second);
    ops->close(recorder);
}

static int count_of(const char *text, const char *word)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

/* Under nsys or ncu: run, untraced, and say so; the ranges are for that tool. */
static void test_another_tool_is_there(void **state)
{
    dpb_recorder *recorder;
    char why[256];
    int pushes;

    (void)state;
    fake.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    pushes = count_of(nvtx_seen_text(), "push dpbench");
    recorder = open_prepared();
    assert_non_null(strstr(log_lines, "Nsight Systems"));
    assert_int_equal(ops->start(recorder), DPB_OK);
    record_step(recorder, 1);
    drain(recorder, 4);
    if (nvtx_is_built_in()) {
        assert_int_equal(count_of(nvtx_seen_text(), "push dpbench"), pushes + 5);
        assert_non_null(strstr(nvtx_seen_text(), "conv1.fwd"));
        assert_non_null(strstr(nvtx_seen_text(), " 4 all-reduce\n"));
        assert_int_equal(count_of(nvtx_seen_text(), "push dpbench"),
                         count_of(nvtx_seen_text(), "pop dpbench"));
    }
    assert_int_equal(fake.flush_count, 0);
    assert_null(fake.requested);
    {
        const struct dpb_losses losses = losses_of(recorder);

        assert_false(dpb_losses_are_small(&losses, why, sizeof(why)));
        assert_non_null(strstr(why, "Nsight Systems"));
    }
    ops->close(recorder);
}

static void test_losses_are_told(void **state)
{
    dpb_recorder *recorder = open_prepared();
    struct dpb_losses losses;
    uint64_t now_ns;
    dpb_json *json;

    (void)state;
    assert_int_equal(ops->start(recorder), DPB_OK);
    record_step(recorder, 1);
    tape_kernel(&fake.tape, "timeless", fake.correlation, 0, 0);
    now_ns = cupti_now();
    tape_kernel(&fake.tape, "stranger", 4711, now_ns, now_ns + 5);
    tape_marker(&fake.tape, CUPTI_ACTIVITY_FLAG_MARKER_START, 1, "step", "dpbench", now_ns);
    tape_raw(&fake.tape, CUPTI_ACTIVITY_KIND_STREAM,
             tape_record_bytes(&fake.real, CUPTI_ACTIVITY_KIND_STREAM));
    fake.dropped = 17;
    drain(recorder, 4 + 3 + 1);
    losses = losses_of(recorder);
    json = ops->describe(recorder);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "nvtx_ranges"), -1), 1);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "other_records"), -1), 1);
    assert_true(dpb_json_as_int(dpb_json_path(json, "clocks_after/monotonic_ns"), -1) >
                dpb_json_as_int(dpb_json_path(json, "clocks_before/monotonic_ns"), -1));
    dpb_json_free(json);
    assert_int_equal(losses.dropped, 17);
    assert_int_equal(losses.zero_time, 1);
    assert_int_equal(losses.unmatched, 1);
    assert_int_equal(losses.kernels, 5);
    ops->close(recorder);
}

static void test_failing_flush_costs_the_device_only(void **state)
{
    dpb_recorder *recorder = open_prepared();

    (void)state;
    assert_int_equal(ops->start(recorder), DPB_OK);
    record_step(recorder, 1);
    fake.flush_result = CUPTI_ERROR_UNKNOWN;
    drain(recorder, 4);
    assert_non_null(strstr(log_lines, "flush"));
    assert_non_null(strstr(losses_of(recorder).untraced, "did not give"));
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++)
        assert_false(fake.enabled[kind]);
    ops->close(recorder);
}

static void test_steps_are_bounded(void **state)
{
    const struct dpb_recorder_config config = {.events_per_lane = 512,
                                               .steps = DPB_CUPTI_STEPS_MAX + 1};
    const struct dpb_recorder_config unknown = {.events_per_lane = 512};
    dpb_recorder *recorder = NULL;

    (void)state;
    assert_int_equal(ops->prepare(), DPB_OK);
    assert_int_equal(ops->open(&config, &recorder), DPB_ERR_USAGE);
    assert_non_null(strstr(log_lines, "--trace-steps 20"));
    assert_int_equal(ops->open(&unknown, &recorder), DPB_OK);
    assert_int_equal(ops->start(recorder), DPB_OK);
    for (int32_t step = 0; step <= DPB_CUPTI_STEPS_MAX; step++)
        record_step(recorder, step);
    drain(recorder, 7 * (DPB_CUPTI_STEPS_MAX + 1));
    assert_non_null(strstr(losses_of(recorder).untraced, "more than 20 steps"));
    ops->close(recorder);
}

static void test_order_of_calls(void **state)
{
    const struct dpb_recorder_config config = {.events_per_lane = 64};
    dpb_recorder *recorder = NULL;

    (void)state;
    assert_int_equal(ops->open(&config, &recorder), DPB_ERR_USAGE);
    assert_non_null(strstr(log_lines, "before the device was opened"));
    recorder = open_prepared();
    dpb_range_end(recorder, DPB_LANE_HOST); /* without a begin: lost, and nothing is popped */
    record_step(recorder, 1);               /* not started */
    {
        const struct dpb_event *events = NULL;
        uint64_t lost = 0;
        size_t count = 0;

        assert_int_equal(ops->drain(recorder, &events, &count, &lost), DPB_OK);
        assert_int_equal(count, 4);
        assert_int_equal(lost, 1);
    }
    ops->close(recorder);
    ops->close(NULL);
}

static void test_refused_kinds(void **state)
{
    dpb_recorder *recorder = open_prepared();

    (void)state;
    fake.enable_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    fake.refused_kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    assert_int_equal(ops->start(recorder), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(log_lines, "NVreg_RestrictProfilingToAdminUsers"));
    ops->close(recorder);
    cupti_session_forget();

    recorder = open_prepared();
    fake.enable_result = CUPTI_ERROR_NOT_COMPATIBLE;
    fake.refused_kind = CUPTI_ACTIVITY_KIND_OVERHEAD; /* not needed */
    assert_int_equal(ops->start(recorder), DPB_OK);
    drain(recorder, 0);
    ops->close(recorder);
}

#define THREAD_RANGES 400

/* A coordinator: its own lane, and collectives that it starts. */
static void *record_beside(void *argument)
{
    for (int i = 0; i < THREAD_RANGES; i++) {
        dpb_range_begin(argument, DPB_LANE_STRATEGY, DPB_EVENT_NOTE, "cycle", -1);
        dpb_bucket_begin(argument, "all-reduce", i);
        assert_int_equal(stacks[CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0].depth, 2);
        dpb_bucket_end(argument);
        dpb_range_end(argument, DPB_LANE_STRATEGY);
    }
    assert_int_equal(stacks[CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0].depth, 0);
    return NULL;
}

static void test_a_thread_beside(void **state)
{
    const struct dpb_recorder_config config = {.events_per_lane = 2 * THREAD_RANGES, .steps = 1};
    dpb_recorder *recorder = NULL;
    pthread_t thread;

    (void)state;
    assert_int_equal(ops->prepare(), DPB_OK);
    assert_int_equal(ops->open(&config, &recorder), DPB_OK);
    assert_int_equal(ops->start(recorder), DPB_OK);
    assert_int_equal(pthread_create(&thread, NULL, record_beside, recorder), 0);
    for (int i = 0; i < THREAD_RANGES; i++) {
        dpb_range_begin(recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "op", -1);
        dpb_range_end(recorder, DPB_LANE_HOST);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    launch("after_them");
    drain(recorder, 2 * THREAD_RANGES + 1);
    ops->close(recorder);
}

/* The pool is what bounds the number of records: when it is empty there is no buffer. */
static void test_buffers_run_out(void **state)
{
    uint8_t *buffer[3];
    size_t bytes, most, valid;

    (void)state;
    assert_int_equal(cupti_buffers_open(2), DPB_OK);
    for (int i = 0; i < 3; i++)
        cupti_buffer_requested(&buffer[i], &bytes, &most);
    assert_non_null(buffer[0]);
    assert_non_null(buffer[1]);
    assert_null(buffer[2]);
    assert_int_equal(cupti_buffers_out(), 2);
    cupti_buffer_completed(NULL, 0, buffer[1], CUPTI_BUFFER_BYTES, 40);
    cupti_buffer_completed(NULL, 0, (uint8_t *)&bytes, 8, 8); /* not ours */
    assert_int_equal(cupti_buffers_out(), 1);
    assert_ptr_equal(cupti_buffer_at(0, &valid), buffer[1]);
    assert_int_equal(valid, 40);
    assert_null(cupti_buffer_at(1, &valid));
    cupti_buffers_close();
}

/* Without a driver CUPTI says CUPTI_ERROR_UNKNOWN to everything; the reason must be a better one.
 */
static void test_no_driver(void **state)
{
    char why[512] = "";

    (void)state;
    cupti_use(NULL);
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        dpb_test_skip("there is an NVIDIA driver");
    assert_int_equal(ops->probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "libcuda.so.1"));
    assert_int_equal(ops->prepare(), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(log_lines, "libcuda.so.1"));
    assert_null(strstr(log_lines, "UNKNOWN"));
    assert_null(strstr(log_lines, "999"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_table),
            TEST(test_two_steps),
            TEST(test_what_is_recorded),
            TEST(test_one_session),
            TEST(test_another_tool_is_there),
            TEST(test_losses_are_told),
            TEST(test_failing_flush_costs_the_device_only),
            TEST(test_steps_are_bounded),
            TEST(test_order_of_calls),
            TEST(test_refused_kinds),
            TEST(test_a_thread_beside),
            TEST(test_buffers_run_out),
            TEST(test_no_driver),
    };

    tape_need_cupti(&fake.real);
    /* The ranges go to a tool of the tests: CUPTI would want a driver. */
    setenv("NVTX_INJECTION64_PATH", DPB_NVTX_INJECTION, 1);
    return DPB_RUN_TESTS(tests);
}
