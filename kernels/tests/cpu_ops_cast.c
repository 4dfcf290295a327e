/* Casts of the CPU device against the reference. */
#include <math.h>

#include "cpu_ops.h"
#include "cpu_pair.h"
#include "dpb_reference.h"
#include "op_data.h"

static void check_cast(int64_t numel, enum dpb_dtype dtype)
{
    struct op_data data = {0};
    float *wide = op_data_f32(&data, numel), *back[2];
    uint16_t *narrow[2];

    for (int set = 0; set < 2; set++) {
        narrow[set] = op_data_bytes(&data, (size_t)numel * sizeof(uint16_t));
        back[set] = op_data_f32(&data, numel);
    }
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_tensor from = dpb_tensor_1d(wide, numel), to = dpb_tensor_1d(NULL, numel);
        struct dpb_tensor half = {narrow[set], dtype, 1, {numel}};
        const struct op_output halves[] = {{narrow[set], (size_t)numel * sizeof(uint16_t), NULL}};
        const struct op_output floats[] = {FLOATS(back[set], numel)};

        to.data = back[set];
        op_run(on, DPB_OP_CAST, &(struct dpb_cast_args){from, half}, halves, 1);
        op_run(on, DPB_OP_CAST, &(struct dpb_cast_args){half, to}, floats, 1);
        assert_memory_equal(narrow[0], narrow[set], (size_t)numel * sizeof(uint16_t));
        op_assert_same(back[set], back[0], numel);
    }
    /* The same type: a copy. */
    for (int run = 0; run < 3; run++) {
        struct dpb_cast_args args = {dpb_tensor_1d(wide, numel), dpb_tensor_1d(back[0], numel)};
        const struct op_output floats[] = {FLOATS(back[0], numel)};

        op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_CAST, &args, floats, 1);
        op_assert_same(back[0], wide, numel);
    }
    op_data_release(&data);
}

void test_cast(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum dpb_dtype dtype = i ? DPB_F16 : DPB_BF16;

        check_cast(1, dtype);
        check_cast(67, dtype);
        check_cast(100003, dtype);
    }
}

/* Ties, infinities, the largest numbers, subnormal ones, NaN: device and reference alike. */
void test_cast_of_special_values(void **state)
{
    static const uint32_t bits[] = {
            0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0xbf808000,
            0x7f800000, 0xff800000, 0x7f7fffff, 0x7f7f7fff, 0x00000001, 0x00008000,
            0x00018000, 0x80018001, 0x007fffff, 0x80000000, 0x7fc00000, 0x7f800001,
    };
    static const uint16_t want[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf80, 0x7f80, 0xff80,
                                    0x7f80, 0x7f7f, 0x0000, 0x0000, 0x0002, 0x8002, 0x0080, 0x8000};
    enum {
        N = sizeof(bits) / sizeof(bits[0])
    };
    float from[N];
    uint16_t to[2][N];

    (void)state;
    memcpy(from, bits, sizeof(from));
    for (int set = 0; set < 2; set++) {
        struct dpb_cast_args args = {dpb_tensor_1d(from, N), {to[set], DPB_BF16, 1, {N}}};

        assert_int_equal(set ? dpb_op_launch(cpu_pair[0], DPB_OP_CAST, &args, NULL)
                             : dpb_reference_op(DPB_OP_CAST, &args),
                         DPB_OK);
        /* The last two are not a number, of whatever bits. */
        assert_memory_equal(to[set], want, (N - 2) * sizeof(want[0]));
        for (int i = N - 2; i < N; i++)
            assert_true((to[set][i] & 0x7fffu) > 0x7f80u);
    }
}

/* The same of fp16: also what is too large for it, the smallest numbers and halves of them. */
void test_cast_of_special_values_to_fp16(void **state)
{
    static const struct {
        float from;
        uint16_t to;
        float back;
    } cases[] = {
            {1.0f, 0x3c00, 1.0f},
            {-2.0f, 0xc000, -2.0f},
            {1.0f + 0x1p-11f, 0x3c00, 1.0f}, /* ties */
            {1.0f + 0x3p-11f, 0x3c02, 1.0f + 0x1p-9f},
            {1.0f + 0x1p-11f + 0x1p-20f, 0x3c01, 1.0f + 0x1p-10f},
            {2047.5f, 0x6800, 2048.0f}, /* carries into the exponent */
            {65504.0f, 0x7bff, 65504.0f},
            {65519.0f, 0x7bff, 65504.0f},
            {65520.0f, 0x7c00, INFINITY},
            {-1e30f, 0xfc00, -INFINITY},
            {INFINITY, 0x7c00, INFINITY},
            {0x1p-14f, 0x0400, 0x1p-14f},
            {0x1p-14f - 0x1p-25f, 0x0400, 0x1p-14f},
            {0x1p-24f, 0x0001, 0x1p-24f},
            {-0x3p-24f, 0x8003, -0x3p-24f},
            {0x1p-25f, 0x0000, 0.0f},
            {0x3p-25f, 0x0002, 0x1p-23f},
            {0x1.01p-25f, 0x0001, 0x1p-24f},
            {1e-38f, 0x0000, 0.0f},
            {-0.0f, 0x8000, -0.0f},
    };
    enum {
        N = sizeof(cases) / sizeof(cases[0])
    };
    float from[N + 1], back[N + 1];
    uint16_t to[N + 1];

    (void)state;
    for (int i = 0; i < N; i++)
        from[i] = cases[i].from;
    from[N] = NAN;
    for (int set = 0; set < 2; set++) {
        struct dpb_tensor half = {to, DPB_F16, 1, {N + 1}};
        struct dpb_cast_args narrow = {dpb_tensor_1d(from, N + 1), half};
        struct dpb_cast_args widen = {half, dpb_tensor_1d(back, N + 1)};
        const struct dpb_cast_args *casts[] = {&narrow, &widen};

        for (int i = 0; i < 2; i++)
            assert_int_equal(set ? dpb_op_launch(cpu_pair[0], DPB_OP_CAST, casts[i], NULL)
                                 : dpb_reference_op(DPB_OP_CAST, casts[i]),
                             DPB_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(to[i], cases[i].to);
            assert_memory_equal(&back[i], &cases[i].back, sizeof(float));
        }
        assert_true(isnan(back[N]));
    }
}
