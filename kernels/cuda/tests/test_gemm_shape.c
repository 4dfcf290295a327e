/* What cuBLASLt is told of row-major products, against a column-major product computed from nothing
 * else, and the operators' reference. No vendor's header. */
#include "dpb_reference.h"
#include "dpb_test.h"
#include "gemm_shape.h"

enum {
    M = 5,
    N = 7,
    K = 3,
    NUMBERS = 4096
};

static float number(int64_t i)
{
    return (float)((i * 37 + 11) % 23 - 11) / 8.0f;
}

static void fill(float *x, int64_t count, int64_t from)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = number(i + from);
}

/* Element (row, column) of a factor or the result as it lies, column-major. */
static int64_t at(const struct dpb_gemm_shape *shape, int index, int64_t batch, int64_t row,
                  int64_t column)
{
    assert_true(row < shape->rows[index] && column < shape->columns[index]);
    assert_true(shape->ld[index] >= shape->rows[index]);
    return batch * shape->batch_stride[index] + column * shape->ld[index] + row;
}

/* Element (row, column) of op(factor). */
static float factor_at(const struct dpb_gemm_shape *shape, int index, const float *data,
                       int64_t batch, int64_t row, int64_t column)
{
    return shape->trans[index] ? data[at(shape, index, batch, column, row)]
                               : data[at(shape, index, batch, row, column)];
}

/* cuBLASLt's product: column-major, the bias along rows, and the factors in its order. */
static void multiply(const struct dpb_gemm_shape *shape, const struct dpb_gemm_product *product)
{
    const float *left = product->b.data, *right = product->a.data;
    float *result = product->c.data;

    for (int64_t b = 0; b < shape->batch; b++) {
        for (int64_t column = 0; column < shape->n; column++) {
            for (int64_t row = 0; row < shape->m; row++) {
                float *to = &result[at(shape, 2, b, row, column)];
                double sum = 0;

                for (int64_t k = 0; k < shape->k; k++)
                    sum += (double)factor_at(shape, 0, left, b, row, k) *
                           (double)factor_at(shape, 1, right, b, k, column);
                sum = (double)product->alpha * sum +
                      (product->beta == 0.0f ? 0.0 : (double)product->beta * (double)*to);
                sum += shape->bias ? (double)product->bias[row] : 0.0;
                *to = shape->relu && sum < 0 ? 0.0f : (float)sum;
            }
        }
    }
}

static void check_matmul(bool trans_a, bool trans_b, bool bias, bool relu, float beta)
{
    float a[M * K], b[K * N], c[M * N], expected[M * N], biases[N];
    struct dpb_matmul_args args = {
            .a = trans_a ? dpb_tensor_2d(a, K, M) : dpb_tensor_2d(a, M, K),
            .b = trans_b ? dpb_tensor_2d(b, N, K) : dpb_tensor_2d(b, K, N),
            .c = dpb_tensor_2d(expected, M, N),
            .bias = bias ? biases : NULL,
            .trans_a = trans_a,
            .trans_b = trans_b,
            .relu = relu,
            .beta = beta,
    };
    struct dpb_gemm_product product;
    struct dpb_gemm_shape shape;

    fill(a, M * K, 0);
    fill(b, K * N, 100);
    fill(c, M * N, 200);
    fill(biases, N, 300);
    memcpy(expected, c, sizeof(c));
    assert_int_equal(dpb_reference_op(DPB_OP_MATMUL, &args), DPB_OK);

    args.c.data = c;
    product = dpb_gemm_of_matmul(&args);
    shape = dpb_gemm_shape_of(&product, false);
    multiply(&shape, &product);
    for (int i = 0; i < M * N; i++)
        assert_float_equal(c[i], expected[i], 1e-5);
}

static void test_matmul(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++)
        check_matmul(i & 1, i & 2, i & 4, i & 8, i & 16 ? 1.0f : 0.0f);
}

/* ---- attention ---- */

enum {
    TOKENS = 4,
    DEPTH = 3,
    GAP = 5 /* elements between a token's heads and the next token */
};

struct heads_case {
    int64_t sequences, heads;
};

/* scores[b,a,i,j] = sum_d q[b,i,a,d] k[b,j,a,d], over strided tokens. */
static void check_scores(struct heads_case c)
{
    static float q[NUMBERS], k[NUMBERS], scores[NUMBERS];
    int64_t stride = c.heads * DEPTH + GAP, by_sequence = TOKENS * stride, one = TOKENS * TOKENS;
    struct dpb_gemm_heads a = {q, stride, by_sequence, DEPTH}, b = {k, stride, by_sequence, DEPTH};
    struct dpb_gemm_heads to = {scores, TOKENS, c.heads * one, one};
    struct dpb_gemm_loop loop = dpb_gemm_loop_of(c.sequences, c.heads);

    assert_true(c.sequences * by_sequence <= NUMBERS && c.sequences * c.heads * one <= NUMBERS);
    assert_int_equal(loop.launches, c.sequences < c.heads ? c.sequences : c.heads);
    assert_int_equal(loop.launches * loop.batch, c.sequences * c.heads);
    fill(q, NUMBERS, 0);
    fill(k, NUMBERS, 1000);
    fill(scores, NUMBERS, 2000);
    for (int64_t i = 0; i < loop.launches; i++) {
        struct dpb_gemm_product product = {
                .a = dpb_gemm_heads_at(&a, &loop, i, sizeof(float)),
                .b = dpb_gemm_heads_at(&b, &loop, i, sizeof(float)),
                .c = dpb_gemm_heads_at(&to, &loop, i, sizeof(float)),
                .m = TOKENS,
                .n = TOKENS,
                .k = DEPTH,
                .batch = loop.batch,
                .trans_b = true,
                .alpha = 1.0f,
        };
        struct dpb_gemm_shape shape = dpb_gemm_shape_of(&product, false);

        multiply(&shape, &product);
    }
    for (int64_t i = 0; i < c.sequences * c.heads * one; i++) {
        int64_t head = i / one % c.heads, sequence = i / one / c.heads;
        int64_t token = i / TOKENS % TOKENS, key = i % TOKENS;
        const float *from = q + (sequence * TOKENS + token) * stride + head * DEPTH;
        const float *with = k + (sequence * TOKENS + key) * stride + head * DEPTH;
        double sum = 0;

        for (int64_t d = 0; d < DEPTH; d++)
            sum += (double)from[d] * (double)with[d];
        assert_float_equal(scores[i], sum, 1e-5);
    }
    /* What is behind the last of them was not written. */
    assert_float_equal(scores[c.sequences * c.heads * one],
                       number(2000 + c.sequences * c.heads * one), 0);
}

static void test_heads(void **state)
{
    static const struct heads_case cases[] = {{1, 1}, {2, 5}, {5, 2}, {3, 3}, {1, 4}, {4, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_scores(cases[i]);
}

/* ---- keys ---- */

static struct dpb_gemm_product sample(void)
{
    return (struct dpb_gemm_product){
            .a = {(void *)4096, 64, 0},
            .b = {(void *)8192, 64, 0},
            .c = {(void *)12288, 32, 0},
            .from = DPB_BF16,
            .to = DPB_BF16,
            .m = 16,
            .n = 32,
            .k = 64,
            .batch = 1,
            .trans_b = true,
            .bias = (const float *)16384,
            .relu = true,
            .alpha = 1.0f,
    };
}

/* What an algorithm depends on makes another key; what it does not makes none. */
static void test_keys(void **state)
{
    struct dpb_gemm_product base = sample(), others[9];
    struct dpb_gemm_shape key = dpb_gemm_shape_of(&base, false), same;

    (void)state;
    for (int i = 0; i < 9; i++)
        others[i] = base;
    others[0].m = 17;
    others[1].trans_b = false;
    others[2].to = DPB_F32;
    others[3].relu = false;
    others[4].bias = NULL;
    others[5].a.data = (void *)4098; /* less aligned */
    others[6].c.ld = 40;
    others[7].batch = 2;
    others[7].a.batch_stride = 1024;
    others[8].from = DPB_F16;
    for (int i = 0; i < 9; i++) {
        struct dpb_gemm_shape other = dpb_gemm_shape_of(&others[i], false);

        assert_false(dpb_gemm_shape_equal(&key, &other));
        assert_true(dpb_gemm_shape_hash(&key) != dpb_gemm_shape_hash(&other));
    }
    base.a.data = (void *)(4096 * 7); /* other memory, as aligned */
    base.bias = (const float *)16388; /* it is cast, and not read where it lies */
    base.beta = 1.0f;
    same = dpb_gemm_shape_of(&base, true); /* bf16 has no TF32 */
    assert_true(dpb_gemm_shape_equal(&key, &same));
    assert_true(dpb_gemm_shape_hash(&key) == dpb_gemm_shape_hash(&same));

    base.from = base.to = DPB_F32;
    key = dpb_gemm_shape_of(&base, false);
    same = dpb_gemm_shape_of(&base, true);
    assert_false(dpb_gemm_shape_equal(&key, &same));
    assert_int_equal(key.align_bytes[3], 4);
}

static void test_alignment(void **state)
{
    struct dpb_gemm_product product = sample();
    struct dpb_gemm_shape shape;

    (void)state;
    product.a.data = (void *)(uintptr_t)(4096 + 16);
    product.b.batch_stride = 4; /* 8 bytes apart */
    shape = dpb_gemm_shape_of(&product, false);
    assert_int_equal(shape.align_bytes[0], 8);
    assert_int_equal(shape.align_bytes[1], 16);
    assert_int_equal(shape.align_bytes[2], 256);
    assert_int_equal(shape.align_bytes[3], 256);
}

static void test_text(void **state)
{
    struct dpb_gemm_product product = sample();
    struct dpb_gemm_shape shape = dpb_gemm_shape_of(&product, false);
    char text[192];

    (void)state;
    dpb_gemm_shape_text(&shape, text, sizeof(text));
    assert_string_equal(text, "m 16 n 32 k 64 b^T bf16 -> bf16 bias relu");
    product.batch = 12;
    product.bias = NULL;
    product.relu = false;
    product.trans_a = true;
    product.from = product.to = DPB_F32;
    shape = dpb_gemm_shape_of(&product, true);
    dpb_gemm_shape_text(&shape, text, sizeof(text));
    assert_string_equal(text, "12 times m 16 n 32 k 64 a^T b^T fp32 -> fp32 tf32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_matmul), cmocka_unit_test(test_heads),
            cmocka_unit_test(test_keys),   cmocka_unit_test(test_alignment),
            cmocka_unit_test(test_text),
    };
    return DPB_RUN_TESTS(tests);
}
