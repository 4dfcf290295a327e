/* Interval unions and breakdowns: known vectors, edges, and thousands of random sets against a
 * count nanosecond by nanosecond. */
#include "dpb_test.h"

#include <stdbool.h>

#include "dpb_overlap.h"

#define US(x) ((int64_t)(x)*1000)

static struct dpb_event event_of(enum dpb_event_kind kind, int64_t start_ns, int64_t end_ns)
{
    return (struct dpb_event){
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = "event",
            .bucket = -1,
            .kind = (uint8_t)kind,
            .lane = kind == DPB_EVENT_COMM || kind == DPB_EVENT_COMM_WAIT ? DPB_LANE_COMM
                                                                          : DPB_LANE_HOST,
    };
}

static void test_union(void **state)
{
    struct dpb_interval set[] = {{30, 40}, {0, 10},  {5, 12}, {12, 15}, {50, 50},
                                 {60, 55}, {31, 33}, {0, 10}, {-5, -1}};
    size_t count = dpb_intervals_union(set, 9);

    (void)state;
    assert_int_equal(count, 3);
    assert_int_equal(set[0].start_ns, -5);
    assert_int_equal(set[0].end_ns, -1);
    assert_int_equal(set[1].start_ns, 0);
    assert_int_equal(set[1].end_ns, 15); /* touching ones have merged */
    assert_int_equal(set[2].start_ns, 30);
    assert_int_equal(set[2].end_ns, 40);
    assert_int_equal(dpb_intervals_length_ns(set, count), 4 + 15 + 10);

    assert_int_equal(dpb_intervals_union(NULL, 0), 0);
    assert_int_equal(dpb_intervals_length_ns(NULL, 0), 0);
    assert_int_equal(dpb_intervals_overlap_ns(NULL, 0, set, count), 0);

    struct dpb_interval empty[] = {{3, 3}, {9, 2}};

    assert_int_equal(dpb_intervals_union(empty, 2), 0);
}

static void test_overlap_of_sets(void **state)
{
    const struct dpb_interval a[] = {{0, 10}, {12, 20}};
    const struct dpb_interval b[] = {{8, 13}, {18, 24}};
    const struct dpb_interval touching[] = {{10, 12}};

    (void)state;
    assert_int_equal(dpb_intervals_overlap_ns(a, 2, b, 2), 5);
    assert_int_equal(dpb_intervals_overlap_ns(b, 2, a, 2), 5);
    assert_int_equal(dpb_intervals_overlap_ns(a, 2, a, 2), 18);
    assert_int_equal(dpb_intervals_overlap_ns(a, 2, touching, 1), 0);
}

/* The one row of events that have one step of one rank. */
static struct dpb_breakdown only_row(const struct dpb_event *events, size_t count)
{
    struct dpb_breakdown *rows = NULL, row;
    size_t row_count = 0, stray = 9, negative = 9;

    assert_int_equal(dpb_breakdown_compute(events, count, &rows, &row_count, &stray, &negative),
                     DPB_OK);
    assert_int_equal(row_count, 1);
    assert_int_equal(stray, 0);
    assert_int_equal(negative, 0);
    row = rows[0];
    free(rows);
    assert_int_equal(row.compute_ns + row.exposed_ns + row.idle_ns, row.span_ns);
    assert_int_equal(row.overlap_ns + row.exposed_ns, row.comm_ns);
    return row;
}

/* Comp [0,10],[12,20]; comm [8,13],[18,24] and [19,22] on another stream; span [0,25]. */
static void test_published_vector(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_COMM, 19, 22), event_of(DPB_EVENT_COMPUTE, 0, 10),
            event_of(DPB_EVENT_COMM, 18, 24), event_of(DPB_EVENT_COMPUTE, 12, 20),
            event_of(DPB_EVENT_COMM, 8, 13),  event_of(DPB_EVENT_STEP, 0, 25),
    };
    struct dpb_breakdown row = only_row(events, 6);

    (void)state;
    assert_int_equal(row.span_ns, 25);
    assert_int_equal(row.compute_ns, 18);
    assert_int_equal(row.comm_ns, 11);
    assert_int_equal(row.overlap_ns, 5);
    assert_int_equal(row.exposed_ns, 6);
    assert_int_equal(row.idle_ns, 1);
    assert_int_equal(row.collectives, 3);
    assert_int_equal(row.comm_wait_ns, 0);
    assert_int_equal(row.data_ns, 0);
}

static void test_wait_data_and_host_spans(void **state)
{
    struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, US(100), US(200)),
            event_of(DPB_EVENT_DATA, US(95), US(110)), /* begins before the step */
            event_of(DPB_EVENT_FORWARD, US(110), US(130)),
            event_of(DPB_EVENT_BACKWARD, US(130), US(170)),
            event_of(DPB_EVENT_SYNC, US(170), US(190)),
            event_of(DPB_EVENT_OPTIMIZER, US(190), US(205)), /* ends after it */
            event_of(DPB_EVENT_COMPUTE, US(108), US(170)),
            event_of(DPB_EVENT_COMM, US(150), US(188)),
            event_of(DPB_EVENT_COMM_WAIT, US(150), US(180)), /* ten of it exposed */
            event_of(DPB_EVENT_COMPUTE, US(191), US(199)),
            event_of(DPB_EVENT_READY, US(200), US(200)), /* in the last moment of the step */
    };
    struct dpb_breakdown row;

    (void)state;
    events[7].bytes = 5000000000; /* beyond 32 bits */
    row = only_row(events, 11);
    assert_int_equal(row.span_ns, US(100));
    assert_int_equal(row.compute_ns, US(62 + 8));
    assert_int_equal(row.comm_ns, US(38));
    assert_int_equal(row.overlap_ns, US(20));
    assert_int_equal(row.exposed_ns, US(18));
    assert_int_equal(row.comm_wait_ns, US(10));
    assert_int_equal(row.idle_ns, US(100 - 70 - 18));
    assert_int_equal(row.data_ns, US(8));
    assert_int_equal(row.forward_ns, US(20));
    assert_int_equal(row.backward_ns, US(40));
    assert_int_equal(row.sync_ns, US(20));
    assert_int_equal(row.optimizer_ns, US(10));
    assert_int_equal(row.comm_bytes, 5000000000);
    assert_int_equal(row.collectives, 1);
}

static void test_concurrent_work_never_exceeds_the_step(void **state)
{
    struct dpb_event events[5] = {event_of(DPB_EVENT_STEP, 0, 10)};
    struct dpb_breakdown row;

    (void)state;
    for (int i = 1; i < 5; i++)
        events[i] = event_of(DPB_EVENT_COMPUTE, 0, 10);
    row = only_row(events, 5);
    assert_int_equal(row.compute_ns, 10);
    assert_int_equal(row.idle_ns, 0);
}

static void test_wait_without_collective_is_not_exposed(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 0, 10),
            event_of(DPB_EVENT_COMM, 4, 6),
            event_of(DPB_EVENT_COMM_WAIT, 2, 5),
    };
    struct dpb_breakdown row = only_row(events, 3);

    (void)state;
    assert_int_equal(row.comm_wait_ns, 1);
    assert_int_equal(row.exposed_ns, 2);
    assert_int_equal(row.idle_ns, 8);
}

static void test_rows_are_ordered_and_strays_counted(void **state)
{
    struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 10, 20),    /* rank 1, step 5 */
            event_of(DPB_EVENT_STEP, 0, 10),     /* rank 0, step 5 */
            event_of(DPB_EVENT_STEP, 0, 10),     /* rank 1, step 4 */
            event_of(DPB_EVENT_STEP, 30, 40),    /* rank 1, step 5 once more: stray */
            event_of(DPB_EVENT_COMPUTE, 0, 20),  /* rank 1: ten in each step */
            event_of(DPB_EVENT_COMPUTE, 20, 25), /* rank 1, after its steps: stray */
            event_of(DPB_EVENT_COMPUTE, 0, 5),   /* rank 2 has no step: stray */
            event_of(DPB_EVENT_COMPUTE, 9, 3),   /* negative */
            event_of(DPB_EVENT_STEP, 9, 3),      /* negative */
            event_of(DPB_EVENT_COMM, 8, 12),     /* rank 1: counted in the later step */
    };
    const int16_t ranks[] = {1, 0, 1, 1, 1, 1, 2, 0, 0, 1};
    const int32_t steps[] = {5, 5, 4, 5, 4, 5, 0, 5, 6, 4};
    struct dpb_breakdown *rows = NULL;
    size_t row_count = 0, stray = 0, negative = 0;

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        events[i].rank = ranks[i];
        events[i].step = steps[i];
    }
    events[9].bytes = 64;
    assert_int_equal(dpb_breakdown_compute(events, 10, &rows, &row_count, &stray, &negative),
                     DPB_OK);
    assert_int_equal(row_count, 3);
    assert_int_equal(stray, 3);
    assert_int_equal(negative, 2);
    assert_int_equal(rows[0].step, 4);
    assert_int_equal(rows[0].rank, 1);
    assert_int_equal(rows[0].compute_ns, 10);
    assert_int_equal(rows[0].comm_ns, 2);
    assert_int_equal(rows[0].collectives, 0);
    assert_int_equal(rows[1].step, 5);
    assert_int_equal(rows[1].rank, 0);
    assert_int_equal(rows[1].compute_ns, 0);
    assert_int_equal(rows[1].idle_ns, 10);
    assert_int_equal(rows[2].step, 5);
    assert_int_equal(rows[2].rank, 1);
    assert_int_equal(rows[2].compute_ns, 10);
    assert_int_equal(rows[2].comm_ns, 2);
    assert_int_equal(rows[2].collectives, 1);
    assert_int_equal(rows[2].comm_bytes, 64);
    free(rows);
}

static void test_no_events(void **state)
{
    struct dpb_breakdown *rows = NULL;
    size_t row_count = 9, stray = 9, negative = 9;

    (void)state;
    assert_int_equal(dpb_breakdown_compute(NULL, 0, &rows, &row_count, &stray, &negative), DPB_OK);
    assert_int_equal(row_count, 0);
    assert_int_equal(stray, 0);
    assert_int_equal(negative, 0);
    assert_non_null(rows);
    free(rows);
}

static void test_empty_step(void **state)
{
    const struct dpb_event events[] = {
            event_of(DPB_EVENT_STEP, 7, 7),
            event_of(DPB_EVENT_READY, 7, 7),
    };
    struct dpb_breakdown row = only_row(events, 2);

    (void)state;
    assert_int_equal(row.span_ns, 0);
    assert_int_equal(row.idle_ns, 0);
}

/* ---- random sets against a count moment by moment ---- */

#define MOMENTS     64
#define EVENTS_MAX  40
#define RANDOM_SETS 20000
#define RANKS       2
#define STEPS       3

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static int random_below(int limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)limit);
}

static bool covered(const struct dpb_event *events, size_t count, int rank, unsigned kind, int at)
{
    for (size_t i = 0; i < count; i++) {
        if (events[i].rank == rank && events[i].kind == kind && events[i].start_ns <= at &&
            at < events[i].end_ns)
            return true;
    }
    return false;
}

/* Length of all events of a kind inside [start, end), moment by moment. */
static int64_t summed(const struct dpb_event *events, size_t count, int rank, unsigned kind,
                      const struct dpb_event *step)
{
    int64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        for (int64_t at = step->start_ns; at < step->end_ns; at++)
            sum += events[i].rank == rank && events[i].kind == kind && events[i].start_ns <= at &&
                   at < events[i].end_ns;
    }
    return sum;
}

static bool in_step(const struct dpb_event *event, const struct dpb_event *step)
{
    if (event->rank != step->rank)
        return false;
    if (event->start_ns == event->end_ns)
        return step->start_ns <= event->start_ns && event->start_ns <= step->end_ns;
    return event->start_ns < step->end_ns && event->end_ns > step->start_ns;
}

static struct dpb_breakdown brute_row(const struct dpb_event *events, size_t count,
                                      const struct dpb_event *step, const struct dpb_event *steps,
                                      size_t step_count)
{
    struct dpb_breakdown row = {.rank = step->rank, .step = step->step};

    for (int64_t at = step->start_ns; at < step->end_ns; at++) {
        bool compute = covered(events, count, step->rank, DPB_EVENT_COMPUTE, (int)at);
        bool comm = covered(events, count, step->rank, DPB_EVENT_COMM, (int)at);
        bool wait = covered(events, count, step->rank, DPB_EVENT_COMM_WAIT, (int)at);
        bool data = covered(events, count, step->rank, DPB_EVENT_DATA, (int)at);

        row.span_ns++;
        row.compute_ns += compute;
        row.comm_ns += comm;
        row.overlap_ns += comm && compute;
        row.exposed_ns += comm && !compute;
        row.comm_wait_ns += comm && wait && !compute;
        row.idle_ns += !comm && !compute;
        row.data_ns += data && !comm && !compute;
    }
    row.forward_ns = summed(events, count, step->rank, DPB_EVENT_FORWARD, step);
    row.backward_ns = summed(events, count, step->rank, DPB_EVENT_BACKWARD, step);
    row.optimizer_ns = summed(events, count, step->rank, DPB_EVENT_OPTIMIZER, step);
    row.sync_ns = summed(events, count, step->rank, DPB_EVENT_SYNC, step);
    for (size_t i = 0; i < count; i++) {
        bool later = false; /* steps are in order of start here: the last one counts it */

        if (events[i].kind != DPB_EVENT_COMM || !in_step(&events[i], step))
            continue;
        for (const struct dpb_event *other = step + 1; other < steps + step_count; other++)
            later = later || in_step(&events[i], other);
        if (!later) {
            row.collectives++;
            row.comm_bytes += events[i].bytes;
        }
    }
    return row;
}

/* Up to STEPS spans per rank, in order, with gaps, touching or empty; sometimes overlapping. */
static size_t random_steps(struct dpb_event *steps)
{
    size_t count = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        int64_t at = random_below(8);
        int here = random_below(STEPS + 1);

        for (int i = 0; i < here; i++) {
            int64_t end = at + random_below(20);

            steps[count] = event_of(DPB_EVENT_STEP, at, end);
            steps[count].rank = (int16_t)rank;
            steps[count++].step = i * 3 + rank;
            /* starts must differ, so that "the last step" is the same one for both sides */
            at = random_below(4) == 0 ? at + 1 : end + 1 + random_below(3) - 1;
            if (at == steps[count - 1].start_ns)
                at++;
        }
    }
    return count;
}

static void shuffle(struct dpb_event *events, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)random_below((int)i);
        struct dpb_event kept = events[i - 1];

        events[i - 1] = events[j];
        events[j] = kept;
    }
}

static void assert_rows_equal(const struct dpb_breakdown *a, const struct dpb_breakdown *b)
{
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->span_ns, b->span_ns);
    assert_int_equal(a->compute_ns, b->compute_ns);
    assert_int_equal(a->comm_ns, b->comm_ns);
    assert_int_equal(a->overlap_ns, b->overlap_ns);
    assert_int_equal(a->exposed_ns, b->exposed_ns);
    assert_int_equal(a->comm_wait_ns, b->comm_wait_ns);
    assert_int_equal(a->idle_ns, b->idle_ns);
    assert_int_equal(a->data_ns, b->data_ns);
    assert_int_equal(a->forward_ns, b->forward_ns);
    assert_int_equal(a->backward_ns, b->backward_ns);
    assert_int_equal(a->optimizer_ns, b->optimizer_ns);
    assert_int_equal(a->sync_ns, b->sync_ns);
    assert_int_equal(a->comm_bytes, b->comm_bytes);
    assert_int_equal(a->collectives, b->collectives);
}

static void check_random_set(void)
{
    struct dpb_event steps[RANKS * STEPS], events[EVENTS_MAX + RANKS * STEPS], given[EVENTS_MAX];
    size_t step_count = random_steps(steps), count = (size_t)random_below(EVENTS_MAX + 1);
    size_t expected_stray = 0, row_count = 0, stray = 0, negative = 0, used = 0;
    struct dpb_breakdown *rows = NULL;

    for (size_t i = 0; i < count; i++) {
        int kind = DPB_EVENT_DATA + random_below(DPB_EVENT_KIND_COUNT - DPB_EVENT_DATA);
        int64_t start = random_below(MOMENTS);
        bool stray_event = true;

        given[i] = event_of((enum dpb_event_kind)kind, start, start + random_below(12));
        given[i].rank = (int16_t)random_below(RANKS + 1);
        given[i].bytes = random_below(1000);
        for (size_t j = 0; j < step_count; j++)
            stray_event = stray_event && !in_step(&given[i], &steps[j]);
        expected_stray += stray_event;
    }
    if (count > 0)
        memcpy(events, given, count * sizeof(given[0]));
    if (step_count > 0)
        memcpy(events + count, steps, step_count * sizeof(steps[0]));
    shuffle(events, count + step_count);
    assert_int_equal(
            dpb_breakdown_compute(events, count + step_count, &rows, &row_count, &stray, &negative),
            DPB_OK);
    assert_int_equal(row_count, step_count);
    assert_int_equal(stray, expected_stray);
    assert_int_equal(negative, 0);
    for (size_t i = 0; i < row_count; i++) {
        assert_true(i == 0 || rows[i - 1].step < rows[i].step ||
                    (rows[i - 1].step == rows[i].step && rows[i - 1].rank < rows[i].rank));
        for (size_t j = 0; j < step_count; j++) {
            if (steps[j].rank == rows[i].rank && steps[j].step == rows[i].step) {
                struct dpb_breakdown expected =
                        brute_row(given, count, &steps[j], steps, step_count);

                assert_rows_equal(&rows[i], &expected);
                used++;
            }
        }
        assert_int_equal(rows[i].compute_ns + rows[i].exposed_ns + rows[i].idle_ns,
                         rows[i].span_ns);
        assert_true(rows[i].comm_wait_ns <= rows[i].exposed_ns);
        assert_true(rows[i].data_ns <= rows[i].idle_ns);
    }
    assert_int_equal(used, row_count);
    free(rows);
}

static void test_random_breakdowns(void **state)
{
    (void)state;
    for (int i = 0; i < RANDOM_SETS; i++)
        check_random_set();
}

static void fill_random_set(struct dpb_interval *set, size_t count, bool covers[MOMENTS + 16])
{
    memset(covers, 0, (MOMENTS + 16) * sizeof(covers[0]));
    for (size_t i = 0; i < count; i++) {
        set[i].start_ns = random_below(MOMENTS);
        set[i].end_ns = set[i].start_ns + random_below(14) - 2; /* some are empty or reversed */
        for (int64_t at = set[i].start_ns; at < set[i].end_ns; at++)
            covers[at] = true;
    }
}

static void test_random_unions(void **state)
{
    (void)state;
    for (int round = 0; round < RANDOM_SETS; round++) {
        struct dpb_interval a[12], b[12];
        bool in_a[MOMENTS + 16], in_b[MOMENTS + 16];
        size_t a_count = (size_t)random_below(13), b_count = (size_t)random_below(13);
        int64_t length = 0, overlap = 0;

        fill_random_set(a, a_count, in_a);
        fill_random_set(b, b_count, in_b);
        for (int at = 0; at < MOMENTS + 16; at++) {
            length += in_a[at];
            overlap += in_a[at] && in_b[at];
        }
        a_count = dpb_intervals_union(a, a_count);
        b_count = dpb_intervals_union(b, b_count);
        for (size_t i = 1; i < a_count; i++)
            assert_true(a[i - 1].end_ns < a[i].start_ns);
        assert_int_equal(dpb_intervals_length_ns(a, a_count), length);
        assert_int_equal(dpb_intervals_overlap_ns(a, a_count, b, b_count), overlap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_union),
            cmocka_unit_test(test_overlap_of_sets),
            cmocka_unit_test(test_published_vector),
            cmocka_unit_test(test_wait_data_and_host_spans),
            cmocka_unit_test(test_concurrent_work_never_exceeds_the_step),
            cmocka_unit_test(test_wait_without_collective_is_not_exposed),
            cmocka_unit_test(test_rows_are_ordered_and_strays_counted),
            cmocka_unit_test(test_no_events),
            cmocka_unit_test(test_empty_step),
            cmocka_unit_test(test_random_breakdowns),
            cmocka_unit_test(test_random_unions),
    };

    return DPB_RUN_TESTS(tests);
}
