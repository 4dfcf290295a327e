/* bf16 and fp16: every number, every rounding boundary, and every variant against the definition.
 */
#include "dpb_test.h"

#include "half.h"
#include "half_reference.h"

#define ALL 65536

static const enum dpb_dtype dtypes[] = {DPB_BF16, DPB_F16};

static float from_half(enum dpb_dtype dtype, uint16_t half)
{
    return dtype == DPB_BF16 ? dpb_half_from_bf16(half) : dpb_half_from_f16(half);
}

static uint16_t to_half(enum dpb_dtype dtype, float value)
{
    return dtype == DPB_BF16 ? dpb_half_to_bf16(value) : dpb_half_to_f16(value);
}

static void test_every_number(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (unsigned h = 0; h < ALL; h++) {
            double value = half_value(dtypes[d], (uint16_t)h);
            float got = from_half(dtypes[d], (uint16_t)h);
            if (isnan(value)) {
                assert_true(isnan(got));
                assert_true(isnan(half_value(dtypes[d], to_half(dtypes[d], got))));
                continue;
            }
            assert_true((double)got == value && !signbit(got) == !signbit(value));
            assert_int_equal(half_bits(dtypes[d], value), h);
            assert_int_equal(to_half(dtypes[d], got), h);
        }
}

static void check_rounding(enum dpb_dtype dtype, float value)
{
    uint16_t expected = half_bits(dtype, half_round(dtype, (double)value));
    uint16_t got = to_half(dtype, value);
    if (!half_same(dtype, got, expected))
        fail_msg("%s of %a is %04x, expected %04x", dpb_dtype_text(dtype), (double)value, got,
                 expected);
}

/* Where rounding turns: half way between neighbours, and the fp32 numbers beside that. */
static void test_every_boundary(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (unsigned h = 0; h < ALL; h++) {
            double value = half_value(dtypes[d], (uint16_t)h);
            double next = half_value(dtypes[d], (uint16_t)(h + 1));
            if (!isfinite(value))
                continue;
            if (!isfinite(next)) /* the largest: as if numbers went on */
                next = 2 * value - half_value(dtypes[d], (uint16_t)(h - 1));
            float middle = (float)((value + next) / 2);
            check_rounding(dtypes[d], middle);
            check_rounding(dtypes[d], nextafterf(middle, INFINITY));
            check_rounding(dtypes[d], nextafterf(middle, -INFINITY));
        }
    static const float others[] = {0x1p-149f,       0x1p-126f,  0x1p-25f, 0x1.8p-25f,
                                   0x1.fffffep127f, 65519.996f, 65520,    65536,
                                   1e30f,           INFINITY,   NAN};
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            check_rounding(dtypes[d], others[i]);
            check_rounding(dtypes[d], -others[i]);
        }
}

static double product(enum dpb_dtype dtype, uint16_t half, float scale)
{
    return half_round(dtype, (double)((float)half_value(dtype, half) * scale));
}

static uint16_t ordered_sum(enum dpb_dtype dtype, uint16_t a, float a_scale, uint16_t b,
                            float b_scale)
{
    /* Of two numbers of these types the sum in double is exact, or far below the last digit. */
    double sum = product(dtype, a, a_scale) + product(dtype, b, b_scale);
    return half_bits(dtype, half_round(dtype, sum));
}

static uint16_t x[ALL], y[ALL], a[ALL + 1], b[ALL + 1];

/* Every number with a partner that is near it often enough, in every variant. */
static void check_variant(enum dpb_dtype dtype, const struct dpb_half_ops *ops, float a_scale,
                          float b_scale, int64_t count)
{
    memcpy(a, x, sizeof(x));
    memcpy(b, y, sizeof(y));
    a[count] = b[count] = 0x1234;
    ops->sum(a, a_scale, b, b_scale, b, count);
    for (int64_t i = 0; i < count; i++) {
        uint16_t expected = ordered_sum(dtype, x[i], a_scale, y[i], b_scale);
        if (!half_same(dtype, a[i], expected) || a[i] != b[i])
            fail_msg("%s, %s: %04x * %g + %04x * %g is %04x and %04x, expected %04x", ops->name,
                     dpb_dtype_text(dtype), x[i], (double)a_scale, y[i], (double)b_scale, a[i],
                     b[i], expected);
    }
    assert_int_equal(a[count], 0x1234);
    assert_int_equal(b[count], 0x1234);

    memcpy(a, x, sizeof(x));
    a[count] = 0x1234;
    ops->sum(a, a_scale, y, b_scale, NULL, count);
    for (int64_t i = 0; i < count; i++)
        assert_true(half_same(dtype, a[i], ordered_sum(dtype, x[i], a_scale, y[i], b_scale)));
    assert_int_equal(a[count], 0x1234);

    b[count] = 0x4321;
    ops->scale(b, x, a_scale, count);
    for (int64_t i = 0; i < count; i++)
        assert_true(half_same(dtype, b[i], half_bits(dtype, product(dtype, x[i], a_scale))));
    assert_int_equal(b[count], 0x4321);
}

static void test_sums(void **state)
{
    (void)state;
    static const float scales[][2] = {{1, 1},         {0.5f, 0.5f}, {1.0f / 3, 1.0f / 3},
                                      {1, 1.0f / 7},  {0.3f, 1},    {1024, -3e-5f},
                                      {1e-30f, 1e30f}};
    static const int64_t counts[] = {ALL, 0, 1, 15, 16, 17, 31, 4097, 65535};
    for (unsigned i = 0; i < ALL; i++) {
        x[i] = (uint16_t)i;
        /* the exponent within 16, any fraction, any sign */
        y[i] = (uint16_t)(i ^ (i * 2654435761u >> 19 & 0x87ff));
    }
    for (int d = 0; d < 2; d++)
        for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                const struct dpb_half_ops *ops;
                for (int v = 0; (ops = dpb_half_variant(dtypes[d], v)) != NULL; v++)
                    check_variant(dtypes[d], ops, scales[s][0], scales[s][1], counts[c]);
            }
}

/* The fastest is for 16 elements where there is AVX-512, for 8 with AVX2; plain C is always there.
 */
static void test_variants(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        int count = 0;
        while (dpb_half_variant(dtypes[d], count))
            count++;
        assert_in_range(count, 1, 3);
        assert_string_equal(dpb_half_variant(dtypes[d], count - 1)->name, "portable");
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f"))
            assert_string_equal(dpb_half_variant(dtypes[d], 0)->name, "avx512");
        else if (__builtin_cpu_supports("avx2"))
            assert_string_equal(dpb_half_variant(dtypes[d], 0)->name, "avx2");
#endif
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_every_number),
            cmocka_unit_test(test_every_boundary),
            cmocka_unit_test(test_sums),
            cmocka_unit_test(test_variants),
    };
    return DPB_RUN_TESTS(tests);
}
