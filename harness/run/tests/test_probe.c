/* The machine probe: its formula on known chunks, its mistakes, and that real values are in range.
 */
#include "dpb_test.h"

#include <pthread.h>
#include <sched.h>

#include "dpb_log.h"
#include "dpb_probe.h"

#define assert_close(a, b) assert_true((a) > (b)-1e-12 && (a) < (b) + 1e-12)

static void test_full_speed(void **state)
{
    const int64_t chunks[] = {50000, 50000, 50000, 50000};

    (void)state;
    assert_close(dpb_probe_availability(chunks, 4, 50000), 1.0);
    assert_close(dpb_probe_availability(chunks, 1, 50000), 1.0);
}

static void test_slower_clock(void **state)
{
    const int64_t chunks[] = {62500, 62500, 62500};

    (void)state;
    assert_close(dpb_probe_availability(chunks, 3, 50000), 0.8);
}

static void test_stolen_time(void **state)
{
    /* 200 chunks of work in 20 ms, of which a neighbour took 10 ms at once */
    int64_t chunks[200];

    (void)state;
    for (size_t i = 0; i < 200; i++)
        chunks[i] = 50000;
    chunks[77] += 10000000;
    assert_close(dpb_probe_availability(chunks, 200, 50000), 0.5);
}

static void test_edges(void **state)
{
    const int64_t one[] = {INT64_MAX};
    const int64_t faster[] = {40000};

    (void)state;
    assert_close(dpb_probe_availability(NULL, 0, 50000), 0.0);
    assert_true(dpb_probe_availability(one, 1, 1) > 0);
    assert_close(dpb_probe_availability(faster, 1, 50000), 1.0); /* never above 1 */
}

static void check_range(const struct dpb_probe_result *result, int cores)
{
    assert_int_equal(result->cores, cores);
    assert_true(result->availability_min > 0);
    assert_true(result->availability_min <= result->availability_mean + 1e-12);
    assert_true(result->availability_mean <= 1 + 1e-12);
    assert_true(result->chunks >= cores);
    assert_true(result->chunk_best_ns > 0);
    assert_true(result->chunk_best_ns <= result->chunk_longest_ns);
    assert_true(result->worst_core >= 0);
}

static void test_all_cores(void **state)
{
    struct dpb_probe_result first = {0}, second = {0};
    struct dpb_probe *probe = NULL;
    cpu_set_t before, after;
    int cores;

    (void)state;
    CPU_ZERO(&before);
    CPU_ZERO(&after);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    cores = CPU_COUNT(&before);
    assert_int_equal(dpb_probe_open(NULL, 0, &probe), DPB_OK);
    assert_int_equal(dpb_probe_run(probe, 0, &first), DPB_OK);
    check_range(&first, cores);
    assert_true(CPU_ISSET((size_t)first.worst_core, &before));
    assert_int_equal(dpb_probe_run(probe, 1000000, &second), DPB_OK);
    check_range(&second, cores);
    assert_true(second.chunk_best_ns <= first.chunk_best_ns); /* the best ever is kept */
    dpb_probe_close(probe);
    /* the caller is bound as it was */
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static int first_core(void)
{
    cpu_set_t set;
    int core = 0;

    CPU_ZERO(&set);
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    while (!CPU_ISSET((size_t)core, &set))
        core++;
    return core;
}

static void test_one_core(void **state)
{
    const int core = first_core();
    struct dpb_probe_result result = {0};
    struct dpb_probe *probe = NULL;

    (void)state;
    assert_int_equal(dpb_probe_open(&core, 1, &probe), DPB_OK);
    assert_int_equal(dpb_probe_run(probe, 1, &result), DPB_OK); /* a chunk at least */
    check_range(&result, 1);
    assert_int_equal(result.worst_core, core);
    assert_true(result.availability_min == result.availability_mean);
    dpb_probe_close(probe);
}

static void ignore_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void test_mistakes(void **state)
{
    const int core = first_core();
    const int twice[] = {core, core}, negative[] = {-1}, beyond[] = {CPU_SETSIZE};
    const int absent[] = {core, CPU_SETSIZE - 1}; /* the second one cannot be started */
    struct dpb_probe_result result = {.cores = 77};
    struct dpb_probe *probe = NULL;

    (void)state;
    dpb_log_set_sink(ignore_line, NULL);
    assert_int_equal(dpb_probe_open(twice, 2, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(negative, 1, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(beyond, 1, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(&core, 0, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(NULL, 1, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(NULL, -1, &probe), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_open(absent, 2, &probe), DPB_ERR_UNAVAILABLE);
    assert_null(probe);
    assert_int_equal(dpb_probe_open(&core, 1, &probe), DPB_OK);
    assert_int_equal(dpb_probe_run(probe, -1, &result), DPB_ERR_USAGE);
    assert_int_equal(dpb_probe_run(probe, INT64_MAX, &result), DPB_ERR_USAGE);
    assert_int_equal(result.cores, 77);
    dpb_log_set_sink(NULL, NULL);
    dpb_probe_close(probe);
    dpb_probe_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_full_speed),  cmocka_unit_test(test_slower_clock),
            cmocka_unit_test(test_stolen_time), cmocka_unit_test(test_edges),
            cmocka_unit_test(test_all_cores),   cmocka_unit_test(test_one_core),
            cmocka_unit_test(test_mistakes),
    };

    return DPB_RUN_TESTS(tests);
}
