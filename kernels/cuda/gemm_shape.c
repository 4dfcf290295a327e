#include "gemm_shape.h"

#include <stdio.h>
#include <string.h>

#define SHAPE_NUMBERS (sizeof(struct dpb_gemm_shape) / sizeof(int64_t))
_Static_assert(SHAPE_NUMBERS == 4 + 4 * 3 + 4 + 2 + 2 + 3, "compared as it lies: no padding");

struct dpb_gemm_product dpb_gemm_of_matmul(const struct dpb_matmul_args *args)
{
    return (struct dpb_gemm_product){
            .a = {args->a.data, args->a.dim[1], 0},
            .b = {args->b.data, args->b.dim[1], 0},
            .c = {args->c.data, args->c.dim[1], 0},
            .from = args->a.dtype,
            .to = args->c.dtype,
            .m = args->c.dim[0],
            .n = args->c.dim[1],
            .k = args->a.dim[args->trans_a ? 0 : 1],
            .batch = 1,
            .trans_a = args->trans_a,
            .trans_b = args->trans_b,
            .relu = args->relu,
            .bias = args->bias,
            .alpha = 1.0f,
            .beta = args->beta,
    };
}

/* The largest power of two up to 256 that divides the address, and the distance between the
 * matrices of a batch. */
static int64_t alignment(const void *data, uint64_t distance_bytes)
{
    uint64_t at = (uint64_t)(uintptr_t)data | distance_bytes | 256;

    return (int64_t)(at & (~at + 1));
}

static void set_matrix(struct dpb_gemm_shape *shape, int index,
                       const struct dpb_gemm_matrix *matrix, int64_t rows, int64_t columns,
                       enum dpb_dtype dtype)
{
    shape->rows[index] = rows;
    shape->columns[index] = columns;
    shape->ld[index] = matrix->ld;
    shape->batch_stride[index] = matrix->batch_stride;
    shape->align_bytes[index] =
            alignment(matrix->data, (uint64_t)matrix->batch_stride * dpb_dtype_bytes(dtype));
}

struct dpb_gemm_shape dpb_gemm_shape_of(const struct dpb_gemm_product *product, bool tf32)
{
    struct dpb_gemm_shape shape;
    int64_t m = product->m, n = product->n, k = product->k;

    memset(&shape, 0, sizeof(shape));
    shape.m = n;
    shape.n = m;
    shape.k = k;
    shape.batch = product->batch;
    shape.trans[0] = product->trans_b;
    shape.trans[1] = product->trans_a;
    set_matrix(&shape, 0, &product->b, product->trans_b ? k : n, product->trans_b ? n : k,
               product->from);
    set_matrix(&shape, 1, &product->a, product->trans_a ? m : k, product->trans_a ? k : m,
               product->from);
    set_matrix(&shape, 2, &product->c, n, m, product->to);
    /* A bias that has to be cast goes to memory of the device's own. */
    shape.align_bytes[3] = alignment(product->to == DPB_F32 ? product->bias : NULL, 0);
    shape.from = product->from;
    shape.to = product->to;
    shape.bias = product->bias != NULL;
    shape.relu = product->relu;
    shape.tf32 = tf32 && product->from == DPB_F32;
    return shape;
}

bool dpb_gemm_shape_equal(const struct dpb_gemm_shape *a, const struct dpb_gemm_shape *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

uint64_t dpb_gemm_shape_hash(const struct dpb_gemm_shape *shape)
{
    uint64_t numbers[SHAPE_NUMBERS], hash = 14695981039346656037u;

    memcpy(numbers, shape, sizeof(numbers));
    for (size_t i = 0; i < SHAPE_NUMBERS; i++) {
        hash = (hash ^ numbers[i]) * 1099511628211u;
        hash ^= hash >> 32; /* low bits must not depend on low bits only */
    }
    return hash;
}

void dpb_gemm_shape_text(const struct dpb_gemm_shape *shape, char *text, size_t bytes)
{
    char batch[32] = "";

    if (shape->batch > 1)
        snprintf(batch, sizeof(batch), "%lld times ", (long long)shape->batch);
    snprintf(text, bytes, "%sm %lld n %lld k %lld%s%s %s -> %s%s%s%s", batch, (long long)shape->n,
             (long long)shape->m, (long long)shape->k, shape->trans[1] ? " a^T" : "",
             shape->trans[0] ? " b^T" : "", dpb_dtype_text((enum dpb_dtype)shape->from),
             dpb_dtype_text((enum dpb_dtype)shape->to), shape->bias ? " bias" : "",
             shape->relu ? " relu" : "", shape->tf32 ? " tf32" : "");
}

struct dpb_gemm_loop dpb_gemm_loop_of(int64_t sequences, int64_t heads)
{
    bool over_heads = heads <= sequences;

    return (struct dpb_gemm_loop){over_heads, over_heads ? heads : sequences,
                                  over_heads ? sequences : heads};
}

struct dpb_gemm_matrix dpb_gemm_heads_at(const struct dpb_gemm_heads *heads,
                                         const struct dpb_gemm_loop *loop, int64_t launch,
                                         size_t bytes)
{
    int64_t step = loop->over_heads ? heads->by_head : heads->by_sequence;

    return (struct dpb_gemm_matrix){
            .data = (char *)heads->data + launch * step * (int64_t)bytes,
            .ld = heads->ld,
            .batch_stride = loop->over_heads ? heads->by_sequence : heads->by_head,
    };
}
