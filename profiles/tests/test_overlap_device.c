/* Breakdowns of ranks with an accelerator: known vectors, and random sets against a count
 * nanosecond by nanosecond. */
#include "dpb_test.h"

#include <stdbool.h>

#include "dpb_overlap.h"

static struct dpb_event on_lane(enum dpb_lane lane, enum dpb_event_kind kind, int64_t start_ns,
                                int64_t end_ns)
{
    return (struct dpb_event){
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = "event",
            .bucket = -1,
            .kind = (uint8_t)kind,
            .lane = (uint8_t)lane,
    };
}

static struct dpb_event of_step(struct dpb_event event, int32_t step)
{
    event.step = step;
    return event;
}

static size_t rows_of(const struct dpb_event *events, size_t count, struct dpb_breakdown *into)
{
    struct dpb_breakdown *rows = NULL;
    size_t row_count = 0, stray = 0, negative = 0;

    assert_int_equal(dpb_breakdown_compute(events, count, &rows, &row_count, &stray, &negative),
                     DPB_OK);
    assert_int_equal(negative, 0);
    memcpy(into, rows, row_count * sizeof(rows[0]));
    free(rows);
    return row_count;
}

/* The host launches for 40 of 100, the device computes later; what the host calls a collective is
 * not what ran. */
static void test_compute_is_what_the_device_ran(void **state)
{
    const struct dpb_event events[] = {
            on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 0, 100),
            on_lane(DPB_LANE_HOST, DPB_EVENT_COMPUTE, 0, 40),
            on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 10, 50),
            on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 45, 60), /* on another stream */
            on_lane(DPB_LANE_COMM, DPB_EVENT_COMM, 0, 100),
            on_lane(DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM, 50, 80),
            on_lane(DPB_LANE_COPY, DPB_EVENT_COPY, 5, 12),
            on_lane(DPB_LANE_COPY, DPB_EVENT_COPY, 79, 90),
            on_lane(DPB_LANE_HOST, DPB_EVENT_OVERHEAD, 80, 100),
    };
    struct dpb_breakdown row;

    (void)state;
    assert_int_equal(rows_of(events, 9, &row), 1);
    assert_true(row.has_device);
    assert_int_equal(row.span_ns, 100);
    assert_int_equal(row.compute_ns, 50);
    assert_int_equal(row.comm_ns, 30);
    assert_int_equal(row.overlap_ns, 10);
    assert_int_equal(row.exposed_ns, 20);
    assert_int_equal(row.idle_ns, 30);
    assert_int_equal(row.launch_ns, 10); /* before the first kernel */
    assert_int_equal(row.copy_ns, 5 + 10);
    assert_int_equal(row.collectives, 1); /* the host's: it knows the bytes */
}

static void test_collectives_of_the_host_where_the_device_has_none(void **state)
{
    struct dpb_event events[] = {
            on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 0, 100),
            on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 10, 50),
            on_lane(DPB_LANE_COMM, DPB_EVENT_COMM, 40, 70),
    };
    struct dpb_breakdown row;

    (void)state;
    assert_int_equal(rows_of(events, 3, &row), 1);
    assert_int_equal(row.comm_ns, 30);
    assert_int_equal(row.overlap_ns, 10);
    events[2].lane = DPB_LANE_DEVICE_COMM; /* and the other way round */
    assert_int_equal(rows_of(events, 3, &row), 1);
    assert_int_equal(row.comm_ns, 30);
    assert_int_equal(row.collectives, 1);
}

/* The device lags behind: each step lasts until its last kernel has ended, and the next one begins
 * there. */
static void test_steps_last_until_their_last_kernel(void **state)
{
    const struct dpb_event events[] = {
            of_step(on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 0, 100), 1),
            of_step(on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 100, 200), 2),
            of_step(on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 400, 500), 3),
            of_step(on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 20, 130), 1),
            of_step(on_lane(DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM, 120, 150), 1),
            of_step(on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 160, 260), 2),
            of_step(on_lane(DPB_LANE_COPY, DPB_EVENT_COPY, 260, 300), 2), /* no kernel */
            of_step(on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 410, 490), 3),
    };
    struct dpb_breakdown rows[3];

    (void)state;
    assert_int_equal(rows_of(events, 8, rows), 3);
    assert_int_equal(rows[0].span_ns, 150);
    assert_int_equal(rows[0].compute_ns, 110);
    assert_int_equal(rows[0].exposed_ns, 20);
    assert_int_equal(rows[0].idle_ns, 20);
    assert_int_equal(rows[1].span_ns, 260 - 150);
    assert_int_equal(rows[1].compute_ns, 100);
    assert_int_equal(rows[1].idle_ns, 10);
    assert_int_equal(rows[2].span_ns, 100);
    assert_int_equal(rows[2].compute_ns, 80);
}

/* A rank of the CPU beside one with a device: nothing of the one changes the other. */
static void test_ranks_do_not_mix(void **state)
{
    struct dpb_event events[] = {
            on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 0, 100),
            on_lane(DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, 50, 120),
            on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, 0, 100),
            on_lane(DPB_LANE_HOST, DPB_EVENT_COMPUTE, 10, 40),
            on_lane(DPB_LANE_COMM, DPB_EVENT_COMM, 30, 60),
    };
    struct dpb_breakdown rows[2];

    (void)state;
    events[2].rank = events[3].rank = events[4].rank = 1;
    assert_int_equal(rows_of(events, 5, rows), 2);
    assert_int_equal(rows[0].span_ns, 120);
    assert_int_equal(rows[0].compute_ns, 70);
    assert_false(rows[1].has_device);
    assert_int_equal(rows[1].span_ns, 100);
    assert_int_equal(rows[1].compute_ns, 30);
    assert_int_equal(rows[1].overlap_ns, 10);
    assert_int_equal(rows[1].launch_ns, 0);
}

/* ---- random sets against a count moment by moment ---- */

#define MOMENTS     90
#define EVENTS_MAX  30
#define STEPS       3
#define RANDOM_SETS 20000

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static int random_below(int limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)limit);
}

struct set {
    struct dpb_event steps[STEPS], events[EVENTS_MAX];
    int step_count, count;
};

/* Of one rank; every event is of a kind that its lane has. */
static struct dpb_event random_event(void)
{
    static const struct {
        enum dpb_lane lane;
        enum dpb_event_kind kind;
    } choices[] = {
            {DPB_LANE_HOST, DPB_EVENT_COMPUTE},     {DPB_LANE_HOST, DPB_EVENT_DATA},
            {DPB_LANE_HOST, DPB_EVENT_OVERHEAD},    {DPB_LANE_COMM, DPB_EVENT_COMM},
            {DPB_LANE_COMM, DPB_EVENT_COMM_WAIT},   {DPB_LANE_DEVICE, DPB_EVENT_COMPUTE},
            {DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM}, {DPB_LANE_COPY, DPB_EVENT_COPY},
            {DPB_LANE_STRATEGY, DPB_EVENT_NOTE},
    };
    const int choice = random_below((int)(sizeof(choices) / sizeof(choices[0])));
    const int64_t start_ns = random_below(MOMENTS);
    struct dpb_event event = on_lane(choices[choice].lane, choices[choice].kind, start_ns,
                                     start_ns + random_below(12));

    event.step = random_below(STEPS + 1) - 1; /* -1: not known */
    event.bytes = random_below(1000);
    return event;
}

static void make_set(struct set *set)
{
    int64_t at = random_below(8);

    set->step_count = random_below(STEPS) + 1;
    for (int i = 0; i < set->step_count; i++) {
        set->steps[i] =
                of_step(on_lane(DPB_LANE_HOST, DPB_EVENT_STEP, at, at + random_below(25)), i);
        at = set->steps[i].end_ns + random_below(3);
    }
    set->count = random_below(EVENTS_MAX + 1);
    for (int i = 0; i < set->count; i++)
        set->events[i] = random_event();
}

static bool has_lane(const struct set *set, enum dpb_lane lane, enum dpb_event_kind kind)
{
    for (int i = 0; i < set->count; i++) {
        if (set->events[i].lane == lane && set->events[i].kind == kind)
            return true;
    }
    return false;
}

static bool covers(const struct set *set, enum dpb_lane lane, enum dpb_event_kind kind, int64_t at)
{
    for (int i = 0; i < set->count; i++) {
        const struct dpb_event *event = &set->events[i];

        if (event->lane == lane && event->kind == kind && event->start_ns <= at &&
            at < event->end_ns)
            return true;
    }
    return false;
}

/* The spans that the header describes, from the set alone. */
static void stretch(const struct set *set, int64_t start_ns[STEPS], int64_t end_ns[STEPS])
{
    int64_t before_ns = INT64_MIN;

    for (int i = 0; i < set->step_count; i++) {
        start_ns[i] = set->steps[i].start_ns > before_ns ? set->steps[i].start_ns : before_ns;
        end_ns[i] = set->steps[i].end_ns > start_ns[i] ? set->steps[i].end_ns : start_ns[i];
        for (int j = 0; j < set->count; j++) {
            const struct dpb_event *event = &set->events[j];

            if ((event->lane == DPB_LANE_DEVICE || event->lane == DPB_LANE_DEVICE_COMM) &&
                event->step == i && event->end_ns > end_ns[i])
                end_ns[i] = event->end_ns;
        }
        before_ns = end_ns[i];
    }
}

static struct dpb_breakdown brute_row(const struct set *set, int64_t start_ns, int64_t end_ns,
                                      bool has_device)
{
    const bool has_comm = has_lane(set, DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM);
    struct dpb_breakdown row = {0};

    for (int64_t at = start_ns; at < end_ns; at++) {
        const bool host = covers(set, DPB_LANE_HOST, DPB_EVENT_COMPUTE, at);
        const bool device = covers(set, DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, at);
        const bool compute = has_device ? device : host;
        const bool comm =
                covers(set, has_comm ? DPB_LANE_DEVICE_COMM : DPB_LANE_COMM, DPB_EVENT_COMM, at);
        const bool idle = !compute && !comm;

        row.span_ns++;
        row.compute_ns += compute;
        row.comm_ns += comm;
        row.overlap_ns += comm && compute;
        row.exposed_ns += comm && !compute;
        row.comm_wait_ns += comm && !compute && covers(set, DPB_LANE_COMM, DPB_EVENT_COMM_WAIT, at);
        row.idle_ns += idle;
        row.data_ns += idle && covers(set, DPB_LANE_HOST, DPB_EVENT_DATA, at);
        row.launch_ns += idle && has_device && host;
        row.copy_ns += idle && covers(set, DPB_LANE_COPY, DPB_EVENT_COPY, at);
    }
    return row;
}

static void assert_rows_equal(const struct dpb_breakdown *a, const struct dpb_breakdown *b)
{
    assert_int_equal(a->span_ns, b->span_ns);
    assert_int_equal(a->compute_ns, b->compute_ns);
    assert_int_equal(a->comm_ns, b->comm_ns);
    assert_int_equal(a->overlap_ns, b->overlap_ns);
    assert_int_equal(a->exposed_ns, b->exposed_ns);
    assert_int_equal(a->comm_wait_ns, b->comm_wait_ns);
    assert_int_equal(a->idle_ns, b->idle_ns);
    assert_int_equal(a->data_ns, b->data_ns);
    assert_int_equal(a->launch_ns, b->launch_ns);
    assert_int_equal(a->copy_ns, b->copy_ns);
}

static void check_random_set(void)
{
    struct dpb_event given[EVENTS_MAX + STEPS];
    struct dpb_breakdown rows[STEPS];
    int64_t start_ns[STEPS], end_ns[STEPS];
    struct set set;
    bool has_device;

    make_set(&set);
    has_device = has_lane(&set, DPB_LANE_DEVICE, DPB_EVENT_COMPUTE) ||
                 has_lane(&set, DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM);
    memcpy(given, set.events, (size_t)set.count * sizeof(given[0]));
    memcpy(given + set.count, set.steps, (size_t)set.step_count * sizeof(given[0]));
    stretch(&set, start_ns, end_ns);
    assert_int_equal(rows_of(given, (size_t)(set.count + set.step_count), rows), set.step_count);
    for (int i = 0; i < set.step_count; i++) {
        const struct dpb_breakdown expected =
                has_device ? brute_row(&set, start_ns[i], end_ns[i], true)
                           : brute_row(&set, set.steps[i].start_ns, set.steps[i].end_ns, false);

        assert_int_equal(rows[i].step, i);
        assert_int_equal(rows[i].has_device, has_device);
        assert_rows_equal(&rows[i], &expected);
        assert_int_equal(rows[i].compute_ns + rows[i].exposed_ns + rows[i].idle_ns,
                         rows[i].span_ns);
        assert_true(rows[i].launch_ns <= rows[i].idle_ns && rows[i].copy_ns <= rows[i].idle_ns);
    }
}

static void test_random_breakdowns(void **state)
{
    (void)state;
    for (int i = 0; i < RANDOM_SETS; i++)
        check_random_set();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_compute_is_what_the_device_ran),
            cmocka_unit_test(test_collectives_of_the_host_where_the_device_has_none),
            cmocka_unit_test(test_steps_last_until_their_last_kernel),
            cmocka_unit_test(test_ranks_do_not_mix),
            cmocka_unit_test(test_random_breakdowns),
    };

    return DPB_RUN_TESTS(tests);
}
