#include <math.h>

#include "dpb_rng.h"
#include "dpb_test.h"

/* Known answers of Random123's kat_vectors, philox4x32 10 (D. E. Shaw Research). */
static void test_philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } vectors[] = {
            {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
            {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
             {0xffffffff, 0xffffffff},
             {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
             {0xa4093822, 0x299f31d0},
             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        uint32_t out[4];

        dpb_philox4x32(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].answer, sizeof(out));
    }
}

static void test_stream_is_the_blocks_in_order(void **state)
{
    const uint32_t key[2] = {7, 1};
    uint32_t counter[4] = {0, 0, 5, 2}, block[4];
    struct dpb_rng rng;
    uint32_t i, j;

    (void)state;
    dpb_rng_init(&rng, UINT64_C(0x100000007), UINT64_C(0x200000005));
    for (i = 0; i < 3; i++) {
        counter[0] = i;
        dpb_philox4x32(counter, key, block);
        for (j = 0; j < 4; j++)
            assert_int_equal(dpb_rng_u32(&rng), block[j]);
    }
    /* the running half carries */
    rng.counter[0] = UINT32_MAX;
    rng.used = 4;
    dpb_rng_u32(&rng);
    assert_int_equal(rng.counter[0], 0);
    assert_int_equal(rng.counter[1], 1);
}

static void test_streams_differ(void **state)
{
    struct dpb_rng a, b, c;
    int i, same_stream = 0, same_seed = 0;

    (void)state;
    dpb_rng_init(&a, 1, 0);
    dpb_rng_init(&b, 1, 1);
    dpb_rng_init(&c, 2, 0);
    for (i = 0; i < 1000; i++) {
        uint64_t x = dpb_rng_u64(&a);

        same_seed += x == dpb_rng_u64(&b);
        same_stream += x == dpb_rng_u64(&c);
    }
    assert_int_equal(same_seed, 0);
    assert_int_equal(same_stream, 0);
}

static void test_below(void **state)
{
    struct dpb_rng rng;
    int counts[7] = {0}, i;

    (void)state;
    dpb_rng_init(&rng, 3, 0);
    assert_int_equal(dpb_rng_below(&rng, 0), 0);
    for (i = 0; i < 100; i++)
        assert_int_equal(dpb_rng_below(&rng, 1), 0);
    for (i = 0; i < 70000; i++) {
        uint64_t value = dpb_rng_below(&rng, 7);

        assert_true(value < 7);
        counts[value]++;
    }
    /* 10000 expected, standard deviation 93: five of them */
    for (i = 0; i < 7; i++)
        assert_in_range(counts[i], 9535, 10465);
    for (i = 0; i < 1000; i++)
        assert_true(dpb_rng_below(&rng, UINT64_C(0x8000000000000001)) <=
                    UINT64_C(0x8000000000000000));
}

static void test_uniform_and_normal(void **state)
{
    const int count = 100000;
    double sum = 0, squares = 0, lowest = 1, highest = 0;
    struct dpb_rng rng;
    int i;

    (void)state;
    dpb_rng_init(&rng, 4, 0);
    for (i = 0; i < count; i++) {
        double u = dpb_rng_uniform(&rng);

        assert_true(u >= 0 && u < 1);
        lowest = fmin(lowest, u);
        highest = fmax(highest, u);
        sum += u;
    }
    assert_true(fabs(sum / count - 0.5) < 0.005);
    assert_true(lowest < 0.001 && highest > 0.999);
    sum = 0;
    for (i = 0; i < count; i++) {
        double x = dpb_rng_normal(&rng);

        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / count) < 0.02);
    assert_true(fabs(squares / count - 1) < 0.03);
}

static void test_shuffle(void **state)
{
    int64_t values[100], again[100];
    int seen[100] = {0}, moved = 0, i;
    struct dpb_rng rng;

    (void)state;
    for (i = 0; i < 100; i++)
        values[i] = again[i] = i;
    dpb_rng_init(&rng, 5, 9);
    dpb_rng_shuffle_i64(&rng, values, 100);
    dpb_rng_init(&rng, 5, 9);
    dpb_rng_shuffle_i64(&rng, again, 100);
    assert_memory_equal(values, again, sizeof(values));
    for (i = 0; i < 100; i++) {
        seen[values[i]]++;
        moved += values[i] != i;
    }
    for (i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_true(moved > 80);
    dpb_rng_shuffle_i64(&rng, values, 0);
    dpb_rng_shuffle_i64(&rng, values, 1);
    assert_int_equal(values[0], again[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_philox_known_answers),
            cmocka_unit_test(test_stream_is_the_blocks_in_order),
            cmocka_unit_test(test_streams_differ),
            cmocka_unit_test(test_below),
            cmocka_unit_test(test_uniform_and_normal),
            cmocka_unit_test(test_shuffle),
    };

    return DPB_RUN_TESTS(tests);
}
