/* The pure parts of strategy `horovod`: fusion, response cache, negotiation, autotuning. */
#include "dpb_test.h"

#include <pthread.h>

#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "strategies/horovod_negotiate.h"
#include "strategies/horovod_tune.h"

#define MIB (INT64_C(1) << 20)
#define MS  INT64_C(1000000)

/* ---- fusion ---- */

static enum dpb_dtype dtype_of_bytes(int64_t bytes)
{
    return bytes == 2 ? DPB_F16 : bytes == 8 ? DPB_F64 : DPB_F32;
}

static void compare_groups(const struct fusion *fusion, const dpb_json *tensors,
                           const dpb_json *groups)
{
    assert_int_equal(fusion->count, dpb_json_size(groups));
    for (int g = 0; g < fusion->count; g++) {
        const dpb_json *group = dpb_json_at(groups, (size_t)g);
        const int first = fusion->first[g];

        assert_int_equal(fusion->first[g + 1] - first, dpb_json_size(group));
        for (size_t m = 0; m < dpb_json_size(group); m++) {
            const dpb_json *tensor = dpb_json_at(tensors, (size_t)fusion->member[first + (int)m]);

            assert_string_equal(dpb_json_as_string(dpb_json_get(tensor, "name"), ""),
                                dpb_json_as_string(dpb_json_at(group, m), "?"));
        }
    }
}

static void run_fuse_case(const dpb_json *vector)
{
    const dpb_json *tensors = dpb_json_get(vector, "tensors");
    const int count = (int)dpb_json_size(tensors);
    const bool pads = dpb_json_as_bool(dpb_json_get(vector, "batch_d2d_padding16"), false);
    const int64_t threshold_bytes =
            fusion_threshold_bytes(dpb_json_as_int(dpb_json_get(vector, "threshold_bytes"), -1),
                                   (int)dpb_json_as_int(dpb_json_get(vector, "local_size"), 0));
    struct fusion_tensor *tensor = calloc((size_t)count, sizeof(*tensor));
    struct fusion fusion;

    assert_non_null(tensor);
    for (int i = 0; i < count; i++) {
        const dpb_json *from = dpb_json_at(tensors, (size_t)i);
        const int64_t element_bytes = dpb_json_as_int(dpb_json_get(from, "dtype_bytes"), 0);

        tensor[i] = (struct fusion_tensor){
                .bytes = element_bytes * dpb_json_as_int(dpb_json_get(from, "numel"), 0),
                .dtype = dtype_of_bytes(element_bytes),
                .prescale = 1.0,
                .postscale = dpb_json_as_real(dpb_json_get(from, "postscale"), 0.0),
        };
    }
    assert_int_equal(threshold_bytes,
                     dpb_json_as_int(dpb_json_get(vector, "effective_threshold"), -1));
    assert_int_equal(fusion_init(&fusion, count), DPB_OK);
    fusion_groups(&fusion, tensor, count, threshold_bytes, pads);
    compare_groups(&fusion, tensors, dpb_json_get(vector, "expected_groups"));
    fusion_release(&fusion);
    free(tensor);
}

static void test_groups_that_horovod_makes(void **state)
{
    dpb_json *file = NULL;
    const dpb_json *cases;

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/horovod_fuse_cases.json", &file), DPB_OK);
    cases = dpb_json_get(file, "cases");
    assert_int_equal(dpb_json_size(cases), 24);
    for (size_t i = 0; i < dpb_json_size(cases); i++) {
        print_message("%s\n", dpb_json_as_string(dpb_json_get(dpb_json_at(cases, i), "name"), "?"));
        run_fuse_case(dpb_json_at(cases, i));
    }
    dpb_json_free(file);
}

static void test_prescale_separates_too(void **state)
{
    const struct fusion_tensor tensors[] = {
            {.bytes = 16, .dtype = DPB_F32, .prescale = 1.0, .postscale = 1.0},
            {.bytes = 16, .dtype = DPB_F32, .prescale = 0.5, .postscale = 1.0},
    };
    struct fusion fusion;

    (void)state;
    assert_int_equal(fusion_init(&fusion, 2), DPB_OK);
    fusion_groups(&fusion, tensors, 2, MIB, true);
    assert_int_equal(fusion.count, 2);
    fusion_groups(&fusion, tensors, 0, MIB, true);
    assert_int_equal(fusion.count, 0);
    fusion_release(&fusion);
}

/* The number of groups does not grow with the threshold, for tensors of one type. */
static void test_more_threshold_never_more_groups(void **state)
{
    struct fusion_tensor tensors[60];
    struct fusion fusion;
    unsigned random = 1;

    (void)state;
    for (int i = 0; i < 60; i++) {
        random = random * 1103515245u + 12345u;
        tensors[i] =
                (struct fusion_tensor){.bytes = 4 * (1 + (random >> 16) % 2000), .dtype = DPB_F32};
    }
    assert_int_equal(fusion_init(&fusion, 60), DPB_OK);
    for (int64_t threshold_bytes = 0, before = 60; threshold_bytes < 300000;
         threshold_bytes += 512) {
        fusion_groups(&fusion, tensors, 60, threshold_bytes, true);
        assert_true(fusion.count <= before);
        before = fusion.count;
    }
    assert_int_equal(fusion.count, 1);
    fusion_release(&fusion);
}

/* ---- cache ---- */

static struct horovod_request request_of(int tensor, int64_t elements)
{
    return (struct horovod_request){.tensor = tensor,
                                    .dtype = DPB_F32,
                                    .rank = 1,
                                    .dim = {elements},
                                    .prescale = 1.0,
                                    .postscale = 1.0};
}

static void put(struct horovod_cache *cache, int tensor)
{
    const struct horovod_request request = request_of(tensor, 8);

    horovod_cache_put(cache, &request);
}

static enum horovod_cached lookup(const struct horovod_cache *cache, int tensor)
{
    const struct horovod_request request = request_of(tensor, 8);

    return horovod_cache_lookup(cache, &request);
}

static void test_cache_knows_how_a_tensor_was_asked_for(void **state)
{
    struct horovod_request other = request_of(1, 8);
    struct horovod_cache cache;

    (void)state;
    assert_int_equal(horovod_cache_init(&cache, 3, 1024), DPB_OK);
    assert_int_equal(lookup(&cache, 1), HOROVOD_MISS);
    put(&cache, 1);
    assert_int_equal(lookup(&cache, 1), HOROVOD_HIT);
    assert_int_equal(lookup(&cache, 0), HOROVOD_MISS);
#define EXPECT_INVALID(change)                                                                     \
    do {                                                                                           \
        other = request_of(1, 8);                                                                  \
        change;                                                                                    \
        assert_int_equal(horovod_cache_lookup(&cache, &other), HOROVOD_INVALID);                   \
    } while (0)
    EXPECT_INVALID(other.dim[0] = 9);
    EXPECT_INVALID((other.rank = 2, other.dim[1] = 1));
    EXPECT_INVALID(other.dtype = DPB_F16);
    EXPECT_INVALID(other.prescale = 0.5);
    EXPECT_INVALID(other.postscale = 0.5);
#undef EXPECT_INVALID
    horovod_cache_release(&cache);
}

/* The least recently used one goes, and leaves its bit. */
static void test_cache_evicts_the_oldest(void **state)
{
    struct horovod_cache cache;

    (void)state;
    assert_int_equal(horovod_cache_init(&cache, 6, 3), DPB_OK);
    for (int t = 0; t < 3; t++) {
        put(&cache, t);
        assert_int_equal(horovod_cache_bit(&cache, t), t);
    }
    assert_int_equal(horovod_cache_get(&cache, 0)->tensor, 0);  /* 1 is the oldest now */
    assert_int_equal(horovod_cache_peek(&cache, 1)->tensor, 1); /* and stays it */
    put(&cache, 3);
    assert_int_equal(lookup(&cache, 1), HOROVOD_MISS);
    assert_int_equal(horovod_cache_bit(&cache, 3), 1);
    put(&cache, 2); /* again: the newest; 0 is the oldest */
    put(&cache, 4);
    assert_int_equal(lookup(&cache, 0), HOROVOD_MISS);
    assert_int_equal(horovod_cache_bit(&cache, 4), 0);
    assert_int_equal(horovod_cache_bit(&cache, 2), 2);
    assert_int_equal(cache.bits, 3);
    horovod_cache_release(&cache);
}

/* Erased bits are not used again before the bits are numbered anew: by age, the oldest first. */
static void test_cache_numbers_by_age_after_erasing(void **state)
{
    struct horovod_cache cache;

    (void)state;
    assert_int_equal(horovod_cache_init(&cache, 6, 4), DPB_OK);
    for (int t = 0; t < 4; t++)
        put(&cache, t);
    horovod_cache_get(&cache, 0); /* by age: 1 2 3 0 */
    horovod_cache_renumber(&cache);
    assert_int_equal(horovod_cache_bit(&cache, 0), 0); /* nothing was erased */
    horovod_cache_erase(&cache, 2);
    horovod_cache_erase(&cache, 2);
    assert_int_equal(lookup(&cache, 2), HOROVOD_MISS);
    put(&cache, 5); /* there is room for it without an eviction */
    assert_int_equal(horovod_cache_bit(&cache, 5), 4);
    horovod_cache_renumber(&cache); /* 1 3 0 5 */
    assert_int_equal(cache.bits, 4);
    assert_int_equal(horovod_cache_bit(&cache, 1), 0);
    assert_int_equal(horovod_cache_bit(&cache, 3), 1);
    assert_int_equal(horovod_cache_bit(&cache, 0), 2);
    assert_int_equal(horovod_cache_bit(&cache, 5), 3);
    horovod_cache_release(&cache);
}

static void test_no_cache(void **state)
{
    struct horovod_cache cache;

    (void)state;
    assert_int_equal(horovod_cache_init(&cache, 2, 0), DPB_OK);
    put(&cache, 1);
    assert_int_equal(lookup(&cache, 1), HOROVOD_MISS);
    assert_int_equal(cache.bits, 0);
    horovod_cache_release(&cache);
}

/* ---- negotiation: every rank is a thread ---- */

#define RANKS       3
#define TENSORS_MAX 200

/* One exchange at a time: everybody writes, everybody reads. */
struct table {
    pthread_barrier_t barrier;
    char bytes[RANKS * DPB_COMM_EXCHANGE_BYTES];
    size_t of_rank[RANKS];
};

struct seat {
    struct table *table;
    int rank;
    struct horovod_negotiation negotiation;
    struct horovod_request queue[TENSORS_MAX];
    int count;
    dpb_status status;
};

static dpb_status table_exchange(void *ctx, const void *mine, size_t bytes, void *all)
{
    const struct seat *seat = ctx;
    struct table *table = seat->table;
    bool same = bytes > 0 && bytes <= DPB_COMM_EXCHANGE_BYTES;

    pthread_barrier_wait(&table->barrier);
    memcpy(table->bytes + (size_t)seat->rank * bytes, mine, bytes);
    table->of_rank[seat->rank] = bytes;
    pthread_barrier_wait(&table->barrier);
    for (int r = 0; r < RANKS; r++)
        same = same && table->of_rank[r] == bytes;
    memcpy(all, table->bytes, RANKS * bytes);
    return same ? DPB_OK : DPB_ERR_MISMATCH;
}

static int64_t threshold_in_test;

static void *cycle_of_rank(void *ctx)
{
    struct seat *seat = ctx;

    seat->status =
            horovod_negotiate(&seat->negotiation, seat->queue, &seat->count, threshold_in_test);
    return NULL;
}

static void open_seats(struct seat *seats, struct table *table, int tensors, int capacity)
{
    assert_int_equal(pthread_barrier_init(&table->barrier, NULL, RANKS), 0);
    threshold_in_test = 0;
    for (int r = 0; r < RANKS; r++) {
        const struct horovod_negotiation_config config = {
                .rank = r,
                .size = RANKS,
                .tensors = tensors,
                .cache_capacity = capacity,
                .pads = true,
                .talk = {.ctx = &seats[r], .exchange = table_exchange},
        };

        seats[r].table = table;
        seats[r].rank = r;
        seats[r].count = 0;
        assert_int_equal(horovod_negotiation_init(&seats[r].negotiation, &config), DPB_OK);
    }
}

static void close_seats(struct seat *seats, struct table *table)
{
    for (int r = 0; r < RANKS; r++)
        horovod_negotiation_release(&seats[r].negotiation);
    pthread_barrier_destroy(&table->barrier);
}

static void enqueue(struct seat *seat, const int *tensors, int count)
{
    for (int i = 0; i < count; i++)
        seat->queue[seat->count++] = request_of(tensors[i], 8);
}

static void cycle(struct seat *seats)
{
    pthread_t thread[RANKS];

    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, cycle_of_rank, &seats[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
}

/* Every rank has the same answer: "2+0 1" are two responses, the first of two tensors. */
static void expect_answer(struct seat *seats, const char *expected)
{
    for (int r = 0; r < RANKS; r++) {
        const struct horovod_negotiation *negotiation = &seats[r].negotiation;
        const struct fusion *fusion = &negotiation->fusion;
        struct dpb_str text = {0};

        assert_int_equal(seats[r].status, DPB_OK);
        assert_int_equal(negotiation->exchanges, seats[0].negotiation.exchanges);
        dpb_str_append(&text, "");
        for (int g = 0; g < fusion->count; g++)
            for (int m = fusion->first[g]; m < fusion->first[g + 1]; m++)
                dpb_str_appendf(&text, "%s%d",
                                m > fusion->first[g] ? "+"
                                : g > 0              ? " "
                                                     : "",
                                negotiation->ready[fusion->member[m]].tensor);
        assert_string_equal(text.text ? text.text : "", expected);
        dpb_str_release(&text);
    }
}

/* A tensor is ready when the last rank has it, in the order of rank 0's table; the second time one
 * bit each says so, and what not all ranks have stays in the queue. */
static void test_negotiation_of_lists_then_of_bits(void **state)
{
    static const int zero[] = {0, 1, 2}, one[] = {2, 0}, two[] = {2, 1, 0};
    struct seat seats[RANKS] = {0};
    struct table table;

    (void)state;
    open_seats(seats, &table, 3, 1024);
    enqueue(&seats[0], zero, 3);
    enqueue(&seats[1], one, 2);
    enqueue(&seats[2], two, 3);
    cycle(seats);
    expect_answer(seats, "2 0"); /* as rank 2's list is counted */
    assert_int_equal(seats[0].negotiation.exchanges, 2);
    enqueue(&seats[1], &zero[1], 1); /* late */
    cycle(seats);
    expect_answer(seats, "1");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(seats[r].count, 0);

    /* The next step: bit 0 is tensor 2, bit 1 is 0, bit 2 is 1. */
    enqueue(&seats[0], zero, 3);
    enqueue(&seats[1], one, 1);
    enqueue(&seats[2], two, 3);
    cycle(seats);
    expect_answer(seats, "2");
    assert_int_equal(seats[0].count, 2);
    assert_int_equal(seats[1].count, 0);
    cycle(seats); /* nothing is new */
    expect_answer(seats, "");
    enqueue(&seats[1], zero, 2);
    cycle(seats);
    expect_answer(seats, "0 1");
    assert_int_equal(seats[0].negotiation.exchanges, 4 + 3);
    assert_int_equal(seats[0].negotiation.slow_cycles, 2);
    close_seats(seats, &table);
}

static void test_negotiation_fuses(void **state)
{
    static const int all[] = {3, 2, 1, 0};
    struct seat seats[RANKS] = {0};
    struct table table;

    (void)state;
    open_seats(seats, &table, 4, 1024);
    threshold_in_test = 64; /* two of them */
    for (int step = 0; step < 3; step++) {
        for (int r = 0; r < RANKS; r++)
            enqueue(&seats[r], all, 4);
        cycle(seats);
        expect_answer(seats, "3+2 1+0");
    }
    assert_int_equal(seats[0].negotiation.slow_cycles, 1);
    close_seats(seats, &table);
}

/* Without a cache, and with one that is too small, everything is asked for in every step, or some
 * of it; the answers are as complete. */
static void test_negotiation_with_a_small_cache(void **state)
{
    static const int all[] = {0, 1, 2, 3};

    (void)state;
    for (int capacity = 0; capacity < 4; capacity++) {
        struct seat seats[RANKS] = {0};
        struct table table;

        open_seats(seats, &table, 4, capacity);
        for (int step = 0; step < 4; step++) {
            int answered = 0;

            for (int r = 0; r < RANKS; r++)
                enqueue(&seats[r], all, 4);
            while (answered < 4) {
                cycle(seats);
                for (int r = 0; r < RANKS; r++) {
                    assert_int_equal(seats[r].status, DPB_OK);
                    assert_int_equal(seats[r].negotiation.ready_count,
                                     seats[0].negotiation.ready_count);
                }
                answered += seats[0].negotiation.ready_count;
            }
            assert_int_equal(answered, 4);
            assert_int_equal(seats[0].count + seats[1].count + seats[2].count, 0);
        }
        assert_int_equal(seats[0].negotiation.slow_cycles, 4);
        close_seats(seats, &table);
    }
}

/* More requests than one exchange takes. */
static void test_negotiation_in_rounds(void **state)
{
    static struct seat seats[RANKS];
    int tensors[TENSORS_MAX];
    struct table table;

    (void)state;
    open_seats(seats, &table, TENSORS_MAX, 1024);
    for (int t = 0; t < TENSORS_MAX; t++)
        tensors[t] = t;
    enqueue(&seats[0], tensors, TENSORS_MAX);
    enqueue(&seats[1], tensors, TENSORS_MAX);
    enqueue(&seats[2], tensors + 100, 100); /* the others wait for rounds that it has nothing for */
    cycle(seats);
    assert_int_equal(seats[1].negotiation.ready_count, 100);
    assert_int_equal(seats[1].negotiation.ready[0].tensor, 100);
    assert_int_equal(seats[1].negotiation.exchanges, 1 + 4); /* 56 requests each */
    enqueue(&seats[2], tensors, 100);
    cycle(seats);
    assert_int_equal(seats[0].negotiation.ready_count, 100);
    assert_int_equal(seats[0].negotiation.ready[99].tensor, 99);
    close_seats(seats, &table);
}

/* A tensor that a rank asks for in another way than before is negotiated anew. */
static void test_negotiation_of_what_has_changed(void **state)
{
    static const int both[] = {0, 1};
    struct seat seats[RANKS] = {0};
    struct table table;

    (void)state;
    open_seats(seats, &table, 2, 1024);
    for (int r = 0; r < RANKS; r++)
        enqueue(&seats[r], both, 2);
    cycle(seats);
    expect_answer(seats, "0 1");
    for (int r = 0; r < RANKS; r++) {
        enqueue(&seats[r], both, 2);
        seats[r].queue[0].dim[0] = 9;
    }
    seats[2].queue[0] = seats[2].queue[1]; /* and rank 2 has it later */
    seats[2].count = 1;
    cycle(seats);
    expect_answer(seats, "1");
    assert_int_equal(seats[0].count, 0); /* in the table, not in the queue */
    seats[2].queue[0] = request_of(0, 9);
    seats[2].count = 1;
    cycle(seats);
    expect_answer(seats, "0");
    for (int r = 0; r < RANKS; r++) {
        enqueue(&seats[r], both, 2);
        seats[r].queue[0].dim[0] = 9;
    }
    cycle(seats);
    expect_answer(seats, "1 0"); /* from the cache: the oldest first */
    assert_int_equal(seats[0].negotiation.slow_cycles, 3);
    close_seats(seats, &table);
}

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    dpb_str_appendf(ctx, "%s\n", line);
}

static void test_ranks_that_ask_in_different_ways(void **state)
{
    static const int one[] = {1};
    struct seat seats[RANKS] = {0};
    struct table table;
    struct dpb_str log = {0};

    (void)state;
    open_seats(seats, &table, 2, 1024);
    for (int r = 0; r < RANKS; r++)
        enqueue(&seats[r], one, 1);
    seats[1].queue[0].dtype = DPB_F16;
    dpb_log_set_sink(keep_line, &log);
    cycle(seats);
    dpb_log_set_sink(NULL, NULL);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(seats[r].status, DPB_ERR_MISMATCH);
    assert_non_null(strstr(log.text, "rank 1 reduces tensor 1 as fp16 8, scaled by 1 before and 1 "
                                     "after; rank 0 as fp32 8"));
    dpb_str_release(&log);
    close_seats(seats, &table);
}

/* ---- autotuning ---- */

/* A score with one peak, which rises along both coordinates towards it. */
static double hill(struct tune_point point, struct tune_point peak)
{
    const double t = (double)(point.threshold_bytes - peak.threshold_bytes) / (double)MIB;
    const double c = (double)(point.cycle_ns - peak.cycle_ns) / (double)MS;

    return 1e9 / (1.0 + t * t + c * c);
}

static void test_tuning_finds_the_peak(void **state)
{
    const struct tune_point peaks[] = {
            {0, MS}, {64 * MIB, 100 * MS}, {8 * MIB, 5 * MS}, {2 * MIB, 50 * MS}};

    (void)state;
    for (size_t p = 0; p < sizeof(peaks) / sizeof(peaks[0]); p++) {
        struct tune tune;
        int samples = 0;

        tune_init(&tune, (struct tune_point){128 * MIB, MS}, 0, 30);
        assert_int_equal(tune_now(&tune).threshold_bytes, 64 * MIB);
        assert_int_equal(tune_now(&tune).cycle_ns, MS);
        while (!tune.is_ended) {
            tune_score(&tune, hill(tune_now(&tune), peaks[p]));
            samples++;
        }
        assert_int_equal(samples, tune.trial_count);
        assert_in_range(samples, TUNE_THRESHOLDS + TUNE_CYCLES - 1, 29); /* ended by itself */
        assert_int_equal(tune_now(&tune).threshold_bytes, peaks[p].threshold_bytes);
        assert_int_equal(tune_now(&tune).cycle_ns, peaks[p].cycle_ns);
        assert_false(tune_score(&tune, 1e12)); /* frozen */
        assert_int_equal(tune.trial_count, samples);
        for (int a = 0; a < samples; a++)
            for (int b = 0; b < a; b++)
                assert_true(memcmp(&tune.trial[a].point, &tune.trial[b].point,
                                   sizeof(tune.trial[a].point)) != 0);
    }
}

static void test_tuning_throws_warmups_away_and_ends(void **state)
{
    struct tune tune;

    (void)state;
    tune_init(&tune, (struct tune_point){4 * MIB, 10 * MS}, 3, 2);
    for (int i = 0; i < 3; i++)
        assert_false(tune_score(&tune, 1e15));
    assert_int_equal(tune.trial_count, 0);
    assert_true(tune_score(&tune, 20.0));
    assert_true(tune_now(&tune).threshold_bytes != 4 * MIB);
    assert_true(tune_score(&tune, 10.0)); /* worse, and the last one */
    assert_true(tune.is_ended);
    assert_int_equal(tune_now(&tune).threshold_bytes, 4 * MIB);
    assert_int_equal(tune_now(&tune).cycle_ns, 10 * MS);
    assert_float_equal(tune.trial[1].bytes_per_s, 10.0, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_groups_that_horovod_makes),
            cmocka_unit_test(test_prescale_separates_too),
            cmocka_unit_test(test_more_threshold_never_more_groups),
            cmocka_unit_test(test_cache_knows_how_a_tensor_was_asked_for),
            cmocka_unit_test(test_cache_evicts_the_oldest),
            cmocka_unit_test(test_cache_numbers_by_age_after_erasing),
            cmocka_unit_test(test_no_cache),
            cmocka_unit_test(test_negotiation_of_lists_then_of_bits),
            cmocka_unit_test(test_negotiation_fuses),
            cmocka_unit_test(test_negotiation_with_a_small_cache),
            cmocka_unit_test(test_negotiation_in_rounds),
            cmocka_unit_test(test_negotiation_of_what_has_changed),
            cmocka_unit_test(test_ranks_that_ask_in_different_ways),
            cmocka_unit_test(test_tuning_finds_the_peak),
            cmocka_unit_test(test_tuning_throws_warmups_away_and_ends),
    };

    return DPB_RUN_TESTS(tests);
}
