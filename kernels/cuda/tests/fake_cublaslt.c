#include "fake_cublaslt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cudart.h"
#include "fake_number.h"

#define WORKSPACE_BYTES 4096 /* that every algorithm asks for, where the preference allows it */
#define ALGORITHM_MAGIC UINT64_C(0x616c676f72697468)
#define PROPOSALS_MAX   3

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t trans_a, trans_b, pointer_mode, bias_type;
    uint32_t epilogue;
    const void *bias;
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld, batch_stride;
    int32_t batch, order;
};

struct preference {
    uint64_t workspace_bytes;
    uint32_t align_bytes[4]; /* of a, b, c, d */
};

/* What cublasLtMatmulAlgo_t holds here. */
struct algorithm {
    uint64_t magic, shape; /* a hash of all that it was proposed for */
    uint32_t align_bytes[4];
    uint64_t workspace_bytes, number;
    uint64_t rest[2];
};
_Static_assert(sizeof(struct algorithm) == sizeof(cublasLtMatmulAlgo_t), "the same place");

static int64_t products;

int64_t fake_cublaslt_products(void)
{
    return products;
}

/* ---- descriptors ---- */

static size_t get_version(void)
{
    return CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH;
}

static const char *status_name(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

/* A counted call makes a descriptor: the caller's pointer to it is only a handle. */
static cublasStatus_t make(const char *call, size_t bytes, void **made)
{
    if (fake_cuda_fails(call))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    *made = calloc(1, bytes);
    if (!*made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    fake_cuda_handle(FAKE_CUBLASLT, 1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(const char *call, void *made)
{
    bool fails = fake_cuda_fails(call);

    if (!made)
        return CUBLAS_STATUS_INVALID_VALUE;
    free(made);
    fake_cuda_handle(FAKE_CUBLASLT, -1);
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t to_bytes, const void *value, size_t bytes)
{
    if (bytes != to_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    return make("cublasLtCreate", 1, (void **)handle);
}

static cublasStatus_t destroy_handle(cublasLtHandle_t handle)
{
    return destroy("cublasLtDestroy", handle);
}

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                  cudaDataType_t scale)
{
    cublasStatus_t status = make("cublasLtMatmulDescCreate", sizeof(struct desc), (void **)made);

    if (status == CUBLAS_STATUS_SUCCESS)
        *(struct desc *)*made = (struct desc){.compute = compute,
                                              .scale = scale,
                                              .bias_type = -1,
                                              .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return status;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc)
{
    return destroy("cublasLtMatmulDescDestroy", desc);
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t name,
                               const void *value, size_t bytes)
{
    struct desc *desc = (struct desc *)handle;

    if (fake_cuda_fails("cublasLtMatmulDescSetAttribute"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&desc->trans_a, sizeof(desc->trans_a), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->trans_b, sizeof(desc->trans_b), value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return set(&desc->pointer_mode, sizeof(desc->pointer_mode), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, sizeof(desc->epilogue), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->bias, sizeof(desc->bias), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&desc->bias_type, sizeof(desc->bias_type), value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                    uint64_t columns, int64_t ld)
{
    cublasStatus_t status =
            make("cublasLtMatrixLayoutCreate", sizeof(struct layout), (void **)made);

    if (status == CUBLAS_STATUS_SUCCESS)
        *(struct layout *)*made = (struct layout){.type = type,
                                                  .rows = rows,
                                                  .columns = columns,
                                                  .ld = ld,
                                                  .batch = 1,
                                                  .order = CUBLASLT_ORDER_COL};
    return status;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout)
{
    return destroy("cublasLtMatrixLayoutDestroy", layout);
}

static cublasStatus_t layout_set(cublasLtMatrixLayout_t handle,
                                 cublasLtMatrixLayoutAttribute_t name, const void *value,
                                 size_t bytes)
{
    struct layout *layout = (struct layout *)handle;

    if (fake_cuda_fails("cublasLtMatrixLayoutSetAttribute"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&layout->batch, sizeof(layout->batch), value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&layout->batch_stride, sizeof(layout->batch_stride), value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(&layout->order, sizeof(layout->order), value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(&layout->ld, sizeof(layout->ld), value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *made)
{
    cublasStatus_t status =
            make("cublasLtMatmulPreferenceCreate", sizeof(struct preference), (void **)made);

    if (status == CUBLAS_STATUS_SUCCESS)
        *(struct preference *)*made = (struct preference){.align_bytes = {256, 256, 256, 256}};
    return status;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference)
{
    return destroy("cublasLtMatmulPreferenceDestroy", preference);
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t handle,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t bytes)
{
    struct preference *preference = (struct preference *)handle;
    uint32_t *align = preference->align_bytes;

    if (fake_cuda_fails("cublasLtMatmulPreferenceSetAttribute"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace_bytes, sizeof(preference->workspace_bytes), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&align[0], sizeof(align[0]), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&align[1], sizeof(align[1]), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&align[2], sizeof(align[2]), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&align[3], sizeof(align[3]), value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- what fits ---- */

static bool dtype_of(cudaDataType_t type, enum dpb_dtype *dtype)
{
    *dtype = type == CUDA_R_16BF ? DPB_BF16 : type == CUDA_R_16F ? DPB_F16 : DPB_F32;
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

/* A product with everything that describes it. */
struct product {
    struct desc desc;
    struct layout a, b, c, d;
    enum dpb_dtype from, to;
    int64_t m, n, k;
    float alpha, beta;
    const void *a_data, *b_data, *c_data;
    void *d_data;
};

static bool layout_ok(const struct layout *layout)
{
    return layout->order == CUBLASLT_ORDER_COL && layout->rows > 0 && layout->columns > 0 &&
           layout->ld >= (int64_t)layout->rows && layout->batch >= 1;
}

static bool same_shape(const struct layout *x, const struct layout *y)
{
    return x->rows == y->rows && x->columns == y->columns && x->type == y->type &&
           x->batch == y->batch && x->ld == y->ld && x->batch_stride == y->batch_stride;
}

static cublasStatus_t describe(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                               cublasLtMatrixLayout_t d, struct product *product)
{
    enum dpb_dtype of_b;
    uint64_t k_of_b;

    memset(product, 0, sizeof(*product));
    product->desc = *(struct desc *)desc;
    product->a = *(struct layout *)a;
    product->b = *(struct layout *)b;
    product->c = *(struct layout *)c;
    product->d = *(struct layout *)d;
    if (!layout_ok(&product->a) || !layout_ok(&product->b) || !layout_ok(&product->c) ||
        !layout_ok(&product->d) || !same_shape(&product->c, &product->d) ||
        product->a.batch != product->d.batch || product->b.batch != product->d.batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    product->m = (int64_t)(product->desc.trans_a ? product->a.columns : product->a.rows);
    product->k = (int64_t)(product->desc.trans_a ? product->a.rows : product->a.columns);
    product->n = (int64_t)(product->desc.trans_b ? product->b.rows : product->b.columns);
    k_of_b = product->desc.trans_b ? product->b.columns : product->b.rows;
    if ((uint64_t)product->k != k_of_b || (uint64_t)product->m != product->d.rows ||
        (uint64_t)product->n != product->d.columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!dtype_of(product->a.type, &product->from) || !dtype_of(product->b.type, &of_b) ||
        !dtype_of(product->d.type, &product->to) || product->from != of_b ||
        (product->to != product->from && product->to != DPB_F32))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (product->desc.scale != CUDA_R_32F ||
        (product->desc.compute != CUBLAS_COMPUTE_32F &&
         product->desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
         product->desc.compute != CUBLAS_COMPUTE_32F_PEDANTIC) ||
        product->desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    switch (product->desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        /* "the same type as the elements of output matrix" */
        return product->desc.bias_type == -1 || product->desc.bias_type == (int32_t)product->d.type
                       ? CUBLAS_STATUS_SUCCESS
                       : CUBLAS_STATUS_NOT_SUPPORTED;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* FNV-1a of what an algorithm may depend on. */
static uint64_t hash_of(const struct product *p)
{
    const uint64_t values[] = {(uint64_t)p->m,
                               (uint64_t)p->n,
                               (uint64_t)p->k,
                               (uint64_t)p->a.ld,
                               (uint64_t)p->b.ld,
                               (uint64_t)p->d.ld,
                               (uint64_t)p->a.batch_stride,
                               (uint64_t)p->b.batch_stride,
                               (uint64_t)p->d.batch_stride,
                               (uint64_t)p->d.batch,
                               (uint64_t)p->desc.trans_a * 2 + (uint64_t)p->desc.trans_b,
                               p->desc.epilogue,
                               (uint64_t)p->desc.compute,
                               (uint64_t)p->a.type * 64 + (uint64_t)p->d.type};
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof(values); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int requested,
                                cublasLtMatmulHeuristicResult_t results[], int *returned)
{
    const struct preference *wanted = (const struct preference *)preference;
    struct product product;
    cublasStatus_t status;
    int count = 0;

    (void)handle;
    if (fake_cuda_fails("cublasLtMatmulAlgoGetHeuristic"))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    *returned = 0;
    status = describe(desc, a, b, c, d, &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (; count < requested && count < PROPOSALS_MAX; count++) {
        struct algorithm algorithm = {
                .magic = ALGORITHM_MAGIC, .shape = hash_of(&product), .number = (uint64_t)count};

        memcpy(algorithm.align_bytes, wanted->align_bytes, sizeof(algorithm.align_bytes));
        algorithm.workspace_bytes =
                wanted->workspace_bytes >= WORKSPACE_BYTES ? WORKSPACE_BYTES : 0;
        memset(&results[count], 0, sizeof(results[count]));
        memcpy(&results[count].algo, &algorithm, sizeof(algorithm));
        results[count].workspaceSize = algorithm.workspace_bytes;
        results[count].state = CUBLAS_STATUS_SUCCESS;
        results[count].wavesCount = 1.0f;
    }
    *returned = count;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

/* op(x) of one of the batch, [outer][inner] with the summed dimension inner. */
static double *gather(const void *data, const struct layout *layout, enum dpb_dtype dtype,
                      int32_t batch, bool inner_is_rows)
{
    int64_t rows = (int64_t)layout->rows, columns = (int64_t)layout->columns;
    double *values = malloc((size_t)(rows * columns) * sizeof(*values));

    if (!values)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    for (int64_t column = 0; column < columns; column++) {
        for (int64_t row = 0; row < rows; row++) {
            int64_t to = inner_is_rows ? column * rows + row : row * columns + column;

            values[to] = fake_load(data, dtype,
                                   batch * layout->batch_stride + column * layout->ld + row);
        }
    }
    return values;
}

static double finish(const struct product *p, double value, int64_t row)
{
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS ||
        p->desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        value += fake_load(p->desc.bias, p->to, row);
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_RELU ||
        p->desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        value = value > 0 ? value : 0;
    return value;
}

static void multiply(const struct product *p, int32_t batch)
{
    double *a = gather(p->a_data, &p->a, p->from, batch, p->desc.trans_a);
    double *b = gather(p->b_data, &p->b, p->from, batch, !p->desc.trans_b);

    for (int64_t column = 0; column < p->n; column++) {
        for (int64_t row = 0; row < p->m; row++) {
            const double *x = a + row * p->k, *y = b + column * p->k;
            int64_t at = batch * p->d.batch_stride + column * p->d.ld + row;
            double sum = fake_dot(x, y, p->k);

            sum *= p->alpha;
            if (p->beta != 0)
                sum += p->beta * fake_load(p->c_data, p->to, at);
            fake_store(p->d_data, p->to, at, finish(p, sum, row));
        }
    }
    free(a);
    free(b);
}

static bool run(void *context)
{
    const struct product *product = context;

    for (int32_t batch = 0; batch < product->d.batch; batch++)
        multiply(product, batch);
    return true;
}

static void check_matrix(const char *what, const void *data, const struct layout *layout,
                         uint32_t align_bytes)
{
    int64_t last = (layout->batch - 1) * layout->batch_stride +
                   ((int64_t)layout->columns - 1) * layout->ld + (int64_t)layout->rows;

    fake_cuda_check_device(what, data, (size_t)last * (layout->type == CUDA_R_32F ? 4 : 2));
    if ((uintptr_t)data % align_bytes != 0)
        fake_cuda_stop(FAKE_EXIT_MISUSE,
                       "fake: cublasLtMatmul: %s at %p has not the %u bytes of alignment that its "
                       "algorithm was asked for with",
                       what, data, align_bytes);
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t a_of, const void *b,
                             cublasLtMatrixLayout_t b_of, const void *beta, const void *c,
                             cublasLtMatrixLayout_t c_of, void *d, cublasLtMatrixLayout_t d_of,
                             const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t workspace_bytes, cudaStream_t stream)
{
    struct algorithm algorithm;
    struct product *product;
    cublasStatus_t status;

    (void)handle;
    if (fake_cuda_fails("cublasLtMatmul"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    product = malloc(sizeof(*product));
    if (!product)
        return CUBLAS_STATUS_ALLOC_FAILED;
    status = describe(desc, a_of, b_of, c_of, d_of, product);
    if (algo)
        memcpy(&algorithm, algo, sizeof(algorithm));
    else
        algorithm = (struct algorithm){.magic = ALGORITHM_MAGIC,
                                       .shape = hash_of(product),
                                       .align_bytes = {16, 16, 16, 16}};
    if (status == CUBLAS_STATUS_SUCCESS &&
        (algorithm.magic != ALGORITHM_MAGIC || algorithm.shape != hash_of(product) ||
         algorithm.workspace_bytes > workspace_bytes))
        status = CUBLAS_STATUS_INVALID_VALUE;
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(product);
        return status;
    }
    product->alpha = *(const float *)alpha;
    product->beta = *(const float *)beta;
    product->a_data = a;
    product->b_data = b;
    product->c_data = c;
    product->d_data = d;
    check_matrix("the left factor", a, &product->a, algorithm.align_bytes[0]);
    check_matrix("the right factor", b, &product->b, algorithm.align_bytes[1]);
    check_matrix("the result", d, &product->d, algorithm.align_bytes[3]);
    if (product->beta != 0)
        check_matrix("the matrix that is added", c, &product->c, algorithm.align_bytes[2]);
    if (algorithm.workspace_bytes > 0)
        fake_cuda_check_device("cublasLtMatmul's workspace", workspace, workspace_bytes);
    if (product->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
        fake_cuda_check_device("the bias", product->desc.bias,
                               (size_t)product->m * (product->to == DPB_F32 ? 4 : 2));
    products++;
    return fake_cuda_enqueue(stream, &(struct fake_cuda_work){.name = "product",
                                                              .run = run,
                                                              .release = free,
                                                              .context = product}) == cudaSuccess
                   ? CUBLAS_STATUS_SUCCESS
                   : CUBLAS_STATUS_EXECUTION_FAILED;
}

const struct dpb_cublaslt fake_cublaslt = {
        .cublasLtGetVersion = get_version,
        .cublasLtGetStatusName = status_name,
        .cublasLtCreate = create,
        .cublasLtDestroy = destroy_handle,
        .cublasLtMatmulDescCreate = desc_create,
        .cublasLtMatmulDescDestroy = desc_destroy,
        .cublasLtMatmulDescSetAttribute = desc_set,
        .cublasLtMatrixLayoutCreate = layout_create,
        .cublasLtMatrixLayoutDestroy = layout_destroy,
        .cublasLtMatrixLayoutSetAttribute = layout_set,
        .cublasLtMatmulPreferenceCreate = preference_create,
        .cublasLtMatmulPreferenceDestroy = preference_destroy,
        .cublasLtMatmulPreferenceSetAttribute = preference_set,
        .cublasLtMatmulAlgoGetHeuristic = heuristic,
        .cublasLtMatmul = matmul,
};
