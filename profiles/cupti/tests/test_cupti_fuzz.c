/* The decoder on damaged buffers, walked by the real library: whatever the records say, nothing
 * outside them is read or written (AddressSanitizer), no sum overflows (UBSan), and every kernel is
 * either an event or counted. Seeded, a fixed number of rounds. */
#include "dpb_test.h"

#include <stdbool.h>

#include "device_events.h"
#include "tape.h"

#define ROUNDS       20000
#define RECORDS_MOST 60

static struct cupti_table cupti;
static int64_t event_count, damaged_count, zero_count; /* over all rounds */
static uint64_t random_state = 0x243f6a8885a308d3u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t below(uint32_t limit)
{
    return (uint32_t)(random_bits() % limit);
}

/* Times as they are, none, and any bits. */
static uint64_t any_time(void)
{
    switch (below(8)) {
    case 0:
        return 0;
    case 1:
        return random_bits();
    default:
        return UINT64_C(1800000000000000000) + below(1000000);
    }
}

static const char *any_name(void)
{
    static const char *const names[] = {NULL,           "",     "_Z",       "_ZN", "_Z3abcPf",
                                        "void a<b>(c)", "<<<(", "_Z9999xx", "::",  "ncclX",
                                        "\xff\xfe"};

    return names[below((uint32_t)(sizeof(names) / sizeof(names[0])))];
}

static void put_any(struct tape *tape)
{
    static const uint32_t flags[] = {0, 1, 2, 4, 6, 0x7f};

    switch (below(10)) {
    case 0:
    case 1:
    case 2:
        tape_graph_kernel(tape, any_name(), below(12), random_bits(), any_time(), any_time());
        break;
    case 3:
        tape_copy(tape, (uint8_t)below(256), random_bits(), below(12), any_time(), any_time());
        break;
    case 4:
        tape_fill(tape, random_bits(), below(12), any_time(), any_time());
        break;
    case 5:
        tape_call(tape, below(2) ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER,
                  below(2) ? below(1000) : CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
                  below(12), below(2));
        break;
    case 6:
        tape_external(tape, below(12), (CUpti_ExternalCorrelationKind)below(7),
                      below(2) ? random_bits() : below(5));
        break;
    case 7:
        tape_marker(tape, flags[below(6)], below(6), any_name(), any_name(), any_time());
        break;
    case 8:
        tape_overhead(tape, (CUpti_ActivityOverheadKind)(int)(below(10) << 16), any_time(),
                      any_time(), NULL);
        break;
    default:
        tape_sync(tape, any_time(), any_time());
    }
}

/* Records of kinds that nobody asked for, of the size that the library knows, and of kinds that are
 * none, of any size: their bytes are any, for nothing of them is followed. */
static void put_foreign(struct tape *tape)
{
    static const uint32_t followed[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MARKER, CUPTI_ACTIVITY_KIND_OVERHEAD};
    const uint32_t kind =
            below(3) ? below(CUPTI_ACTIVITY_KIND_COUNT) : (uint32_t)random_bits() | 1u << 20;
    const size_t bytes = tape_record_bytes(&cupti, kind);

    for (size_t i = 0; i < sizeof(followed) / sizeof(followed[0]); i++) {
        if (kind == followed[i])
            return; /* they hold pointers; put_any() makes them */
    }
    tape_raw(tape, kind, bytes > 0 ? bytes : 8 * (below(30) + 1));
}

/* The makers above make any numbers but no wild pointers; here the end is cut anywhere, and the
 * memory ends with the buffer, so that a read behind it is seen. */
static void check_round(void)
{
    static const char *const ranges[] = {"a", "b"};
    const struct cupti_run run = {
            .rank = 1,
            .from = {.cupti_ns = INT64_C(1800000000000000000), .monotonic_ns = 77},
            .to = {.cupti_ns = INT64_C(1800000000001000000), .monotonic_ns = 1000077},
            .range_names = ranges,
            .range_count = 2,
    };
    static struct tape tape;
    struct cupti_records records = {0};
    struct cupti_events made = {0};
    struct dpb_losses losses = {0};
    const uint32_t count = below(RECORDS_MOST);
    int64_t kernels = 0;
    uint8_t *buffer;
    size_t length;

    memset(&tape, 0, sizeof(tape));
    for (uint32_t i = 0; i < count; i++) {
        if (below(60) == 0)
            put_foreign(&tape);
        else
            put_any(&tape);
    }
    length = below(3) ? tape.length : below((uint32_t)tape.length + 1) / 8 * 8;
    buffer = malloc(length > 0 ? length : 1);
    assert_non_null(buffer);
    memcpy(buffer, tape.bytes, length);
    cupti_records_read(&records, &cupti, buffer, length);
    for (size_t i = 0; i < records.work.count; i++)
        kernels += records.work.at[i].kind == CUPTI_WORK_KERNEL;
    assert_int_equal(cupti_events_make(&records, &run, &made, &losses), DPB_OK);
    assert_int_equal(losses.kernels, kernels);
    for (size_t i = 0; i < made.count; i++) {
        assert_true(made.events[i].end_ns >= made.events[i].start_ns);
        assert_true(made.events[i].kind < DPB_EVENT_KIND_COUNT);
        assert_true(made.events[i].lane < DPB_LANE_COUNT);
        assert_true(strlen(made.events[i].name) < 200);
        kernels -= made.events[i].lane == DPB_LANE_DEVICE ||
                   made.events[i].lane == DPB_LANE_DEVICE_COMM;
    }
    event_count += (int64_t)made.count;
    damaged_count += losses.damaged_buffers;
    zero_count += losses.zero_time;
    assert_true(kernels >= 0 && kernels <= losses.zero_time);
    cupti_events_release(&made);
    cupti_records_release(&records);
    free(buffer);
}

static void test_damaged_buffers(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++)
        check_round();
    /* the rounds were what they should be: some whole, some not */
    assert_true(event_count > ROUNDS && zero_count > ROUNDS);
    assert_true(damaged_count > ROUNDS / 10 && damaged_count < ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged_buffers)};

    tape_need_cupti(&cupti);
    return DPB_RUN_TESTS(tests);
}
