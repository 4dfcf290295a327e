#include "cpu_device.h"

enum {
    TRANS_A = 1 << 0,
    TRANS_B = 1 << 1,
    WITH_BIAS = 1 << 2,
    WITH_RELU = 1 << 3,
    FROM_BF16 = 1 << 4,
    TO_BF16 = 1 << 5
};

/* A row-major matrix [rows, columns], or its transpose seen as one. */
static struct dpb_cpu_layout matrix(int64_t rows, int64_t columns, enum dpb_dtype dtype,
                                    bool transposed)
{
    return (struct dpb_cpu_layout){.ndims = 2,
                                   .dims = {rows, columns},
                                   .type = dpb_cpu_data_type(dtype),
                                   .tag = transposed ? dnnl_ba : dnnl_ab};
}

/* The same matrix [rows, columns], or transposed [columns, rows], with 64 bytes between rows. */
static struct dpb_cpu_layout spread(struct dpb_cpu_layout matrix, bool transposed)
{
    int row = transposed ? 1 : 0;

    matrix.strides[row] = matrix.dims[1 - row] + 16;
    matrix.strides[1 - row] = 1;
    matrix.tag = dnnl_format_tag_undef;
    return matrix;
}

/* Without AVX-512, oneDNN multiplies in place, instead of copying blocks of A and B as it needs
 * them, where 1/m + 1/n >= 0.0038. Rows that are 512 bytes or a multiple of it apart then share a
 * few sets of the cache, and reading down a column costs up to half of the speed. Spreading the
 * rows first costs one copy (GFLOP/s in place and spread, one thread, Zen 3, oneDNN 2.6):
 *   C = A B    256x3072x768: 46, 90    196x2048x512: 46, 91    784x256x1024: 87, 92
 *   C = A^T B  1024x256x784: 41, 87    256x512x3136: 63, 85    512x128x3136: 65, 80
 * It pays where the copied matrix is used often enough. */
static bool multiplies_in_place(const dpb_device *device, const struct dpb_matmul_args *args)
{
    double m = (double)args->c.dim[0], n = (double)args->c.dim[1];

    return !device->has_avx512 && args->a.dtype == DPB_F32 && 1 / m + 1 / n >= 0.0038;
}

static bool shares_sets(int64_t row)
{
    return row % 128 == 0;
}

static bool spreads_a(const dpb_device *device, const struct dpb_matmul_args *args)
{
    int64_t m = args->c.dim[0], n = args->c.dim[1];

    return args->trans_a && !args->trans_b && shares_sets(m) && (n >= 512 || m >= 512) &&
           multiplies_in_place(device, args);
}

static bool spreads_b(const dpb_device *device, const struct dpb_matmul_args *args)
{
    int64_t m = args->c.dim[0], n = args->c.dim[1];

    if (args->trans_b || !shares_sets(n) || !multiplies_in_place(device, args))
        return false;
    return args->trans_a ? n >= 512 || m >= 512 : n % 256 == 0 && m >= 128;
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    const struct dpb_matmul_args *a = args;
    int64_t m = a->c.dim[0], n = a->c.dim[1], k = a->a.dim[a->trans_a ? 0 : 1];
    struct dpb_cpu_layout src = matrix(m, k, a->a.dtype, a->trans_a);
    struct dpb_cpu_layout weights = matrix(k, n, a->b.dtype, a->trans_b);
    struct dpb_cpu_operation product = {
            .kind = dnnl_matmul,
            .src = spreads_a(device, a) ? spread(src, true) : src,
            .weights = spreads_b(device, a) ? spread(weights, false) : weights,
            .dst = matrix(m, n, a->c.dtype, false),
            .sum = a->beta,
            .relu = a->relu,
    };

    (void)op;
    if (a->bias)
        product.bias = matrix(1, n, DPB_F32, false);
    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &product));
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_SRC, &src, false));
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_WEIGHTS, &weights, false));
    if (a->bias)
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_BIAS, &product.bias));
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &product.dst);
}

/* Products that dnnl_sgemm does better than the primitive in AVX-512, measured on one thread:
 * - B's rows are a multiple of 4096 bytes: the primitive reads them from the same few sets of the
 *   cache (512x3072x768: 163 against 85 GFLOP/s, Sapphire Rapids);
 * - wide B and long sums, as in BERT's gradients (512x768x3072: 171 against 156, Sapphire Rapids);
 * - a weight gradient over many rows (190-241 against 132-187 for K from 12,544, Zen 5).
 * Elsewhere the primitive is as fast or faster, and it has the bias, ReLU and bf16; without AVX-512
 * both are the same code. */
static bool prefers_sgemm(const dpb_device *device, const struct dpb_matmul_args *args)
{
    int64_t m = args->c.dim[0], n = args->c.dim[1], k = args->a.dim[args->trans_a ? 0 : 1];

    if (!device->has_avx512 || args->a.dtype != DPB_F32 || args->trans_b || args->bias ||
        args->relu)
        return false;
    return n % 1024 == 0 || (m >= 64 && n >= 512 && k >= 256) ||
           (args->trans_a && k >= 8192 && k >= 8 * m);
}

static dnnl_status_t run_sgemm(const struct dpb_matmul_args *args)
{
    int64_t m = args->c.dim[0], n = args->c.dim[1], k = args->a.dim[args->trans_a ? 0 : 1];

    return dnnl_sgemm(args->trans_a ? 'T' : 'N', 'N', m, n, k, 1.0f, args->a.data,
                      args->trans_a ? m : k, args->b.data, n, args->beta, args->c.data, n);
}

dpb_status dpb_cpu_matmul(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_matmul_args *a = args;
    struct dpb_cpu_key key = {.op = (int32_t)op};
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    if (prefers_sgemm(device, a)) {
        status = run_sgemm(a);
        return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
    }
    key.flags = (a->trans_a ? TRANS_A : 0u) | (a->trans_b ? TRANS_B : 0u) |
                (a->bias ? WITH_BIAS : 0u) | (a->relu ? WITH_RELU : 0u) |
                (a->a.dtype == DPB_BF16 ? FROM_BF16 : 0u) | (a->c.dtype == DPB_BF16 ? TO_BF16 : 0u);
    key.dim[0] = a->c.dim[0];
    key.dim[1] = a->c.dim[1];
    key.dim[2] = a->a.dim[a->trans_a ? 0 : 1];
    key.number[0] = a->beta;
    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->a.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_WEIGHTS, a->b.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_BIAS, a->bias);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, a->c.data);
    status = dpb_cpu_kernel_run(device, kernel);
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}
