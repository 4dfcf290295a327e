/* gemm_shape.h: matrix products of row-major matrices as cuBLASLt sees them. Private to
 * kernels/cuda; no vendor's header is needed, so that it is tested everywhere.
 *
 * cuBLASLt is column-major. A row-major matrix [rows, columns] is, byte for byte, the column-major
 * [columns, rows] with the same leading dimension: its transpose. So C = op(A) op(B) is computed as
 * C^T = op(B)^T op(A)^T: the factors change places, each keeps its own transposition, and C's bias
 * of one number per column becomes cuBLASLt's of one per row. */
#ifndef DPB_CUDA_GEMM_SHAPE_H
#define DPB_CUDA_GEMM_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_device.h"

/* A row-major matrix, or `batch` of them, in memory. */
struct dpb_gemm_matrix {
    void *data;
    int64_t ld;           /* elements from a row to the next */
    int64_t batch_stride; /* elements from a matrix to the next; 0 with one */
};

/* c[m,n] = op(a)[m,k] op(b)[k,n] alpha + beta c (+ bias[n], then ReLU), for each of `batch`. */
struct dpb_gemm_product {
    struct dpb_gemm_matrix a, b, c;
    enum dpb_dtype from, to; /* of a and b; of c */
    int64_t m, n, k, batch;
    bool trans_a, trans_b; /* a is [k,m] in memory; b is [n,k] */
    bool relu;
    const float *bias; /* n, or NULL */
    float alpha, beta;
};

/* What an algorithm is chosen for, and found by: all that it may depend on, in cuBLASLt's own order
 * and form. All int64_t: no padding, so that it is compared and hashed as it lies. Index 0 is the
 * left factor, 1 the right one, 2 the result, 3 the bias. */
struct dpb_gemm_shape {
    int64_t m, n, k, batch;         /* of the column-major product */
    int64_t rows[3], columns[3];    /* of the matrices as they lie, column-major */
    int64_t ld[3], batch_stride[3]; /* elements */
    int64_t align_bytes[4];         /* that the memory has: a power of two up to 256 */
    int64_t from, to;               /* enum dpb_dtype of the factors; of the result */
    int64_t trans[2];               /* 0 or 1, and so the rest */
    int64_t bias, relu, tf32;
};

/* The operator's product. */
struct dpb_gemm_product dpb_gemm_of_matmul(const struct dpb_matmul_args *args);

/* `tf32`: fp32 factors may be rounded. */
struct dpb_gemm_shape dpb_gemm_shape_of(const struct dpb_gemm_product *product, bool tf32);

bool dpb_gemm_shape_equal(const struct dpb_gemm_shape *a, const struct dpb_gemm_shape *b);
uint64_t dpb_gemm_shape_hash(const struct dpb_gemm_shape *shape); /* FNV-1a, by numbers */

/* "m 512 n 3072 k 768 b^T bf16 -> bf16 bias relu": the row-major product, for messages. */
void dpb_gemm_shape_text(const struct dpb_gemm_shape *shape, char *text, size_t bytes);

/* ---- attention's products ---- */

/* All of them are over tensors of B sequences and A heads: 4-d arrays whose (sequence, head) lies
 * at b * by_sequence + a * by_head. cuBLASLt's batches have one stride, so one of the two is its
 * batch and the other a loop of launches: the smaller number. */
struct dpb_gemm_heads {
    void *data;
    int64_t ld, by_sequence, by_head; /* elements */
};

struct dpb_gemm_loop {
    bool over_heads; /* launches go over heads, and a launch's batch over sequences */
    int64_t launches, batch;
};
struct dpb_gemm_loop dpb_gemm_loop_of(int64_t sequences, int64_t heads);

/* The matrix that launch number `launch` starts at. `bytes`: of an element. */
struct dpb_gemm_matrix dpb_gemm_heads_at(const struct dpb_gemm_heads *heads,
                                         const struct dpb_gemm_loop *loop, int64_t launch,
                                         size_t bytes);

#endif
