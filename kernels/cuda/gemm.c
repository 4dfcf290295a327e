/* Matrix products by cuBLASLt: one plan for each shape, found by it. */
#include "cuda_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "dpb_log.h"

enum {
    CANDIDATES = 8,
    TEXT_BYTES = 192
};

struct dpb_gemm_plan {
    struct dpb_gemm_shape shape;
    uint64_t hash;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3]; /* left factor, right factor, result */
    cublasLtMatmulAlgo_t algo;
    bool fused; /* the shape's bias and ReLU are in it */
};

static cudaDataType data_type(int64_t dtype)
{
    switch (dtype) {
    case DPB_BF16:
        return CUDA_R_16BF;
    case DPB_F16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

#define LT_TRY(device, what, function, args)                                                       \
    DPB_TRY(dpb_cublaslt_check(&(device)->lt, (device)->lt.function args, #function, what))

/* ---- the plan ---- */

static void free_plan(dpb_device *device, struct dpb_gemm_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < 3; i++) {
        if (plan->layout[i])
            device->lt.cublasLtMatrixLayoutDestroy(plan->layout[i]);
    }
    if (plan->desc)
        device->lt.cublasLtMatmulDescDestroy(plan->desc);
    free(plan);
}

static cublasLtEpilogue_t epilogue(const struct dpb_gemm_shape *shape)
{
    if (shape->bias)
        return shape->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return shape->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The bias has the result's type: the only one that cuBLASLt takes with it. PyTorch rounds it as
 * well under autocast; adding it apart in fp32 would read and write the whole result once more. */
static dpb_status set_epilogue(dpb_device *device, struct dpb_gemm_plan *plan, bool fused,
                               const char *what)
{
    cublasLtEpilogue_t value = fused ? epilogue(&plan->shape) : CUBLASLT_EPILOGUE_DEFAULT;
    int32_t type = (int32_t)data_type(plan->shape.to);

    plan->fused = fused || epilogue(&plan->shape) == CUBLASLT_EPILOGUE_DEFAULT;
    LT_TRY(device, what, cublasLtMatmulDescSetAttribute,
           (plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof(value)));
    if (fused && plan->shape.bias)
        LT_TRY(device, what, cublasLtMatmulDescSetAttribute,
               (plan->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)));
    return DPB_OK;
}

static dpb_status make_desc(dpb_device *device, struct dpb_gemm_plan *plan, const char *what)
{
    const struct dpb_gemm_shape *shape = &plan->shape;
    cublasComputeType_t compute = shape->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    static const cublasLtMatmulDescAttributes_t names[2] = {CUBLASLT_MATMUL_DESC_TRANSA,
                                                            CUBLASLT_MATMUL_DESC_TRANSB};

    LT_TRY(device, what, cublasLtMatmulDescCreate, (&plan->desc, compute, CUDA_R_32F));
    for (int i = 0; i < 2; i++) {
        int32_t op = shape->trans[i] ? CUBLAS_OP_T : CUBLAS_OP_N;

        LT_TRY(device, what, cublasLtMatmulDescSetAttribute,
               (plan->desc, names[i], &op, sizeof(op)));
    }
    return DPB_OK;
}

static dpb_status make_layout(dpb_device *device, struct dpb_gemm_plan *plan, int index,
                              const char *what)
{
    const struct dpb_gemm_shape *shape = &plan->shape;
    int32_t batch = (int32_t)shape->batch;
    cublasLtMatrixLayout_t *layout = &plan->layout[index];

    LT_TRY(device, what, cublasLtMatrixLayoutCreate,
           (layout, data_type(index < 2 ? shape->from : shape->to), (uint64_t)shape->rows[index],
            (uint64_t)shape->columns[index], shape->ld[index]));
    if (shape->batch == 1)
        return DPB_OK;
    LT_TRY(device, what, cublasLtMatrixLayoutSetAttribute,
           (*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)));
    LT_TRY(device, what, cublasLtMatrixLayoutSetAttribute,
           (*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &shape->batch_stride[index],
            sizeof(shape->batch_stride[index])));
    return DPB_OK;
}

static dpb_status set_preference(dpb_device *device, const struct dpb_gemm_shape *shape,
                                 cublasLtMatmulPreference_t preference, const char *what)
{
    static const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        int index;
    } alignments[] = {
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 0},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 2},
            {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 2},
    };
    uint64_t workspace_bytes = device->gemm_workspace_bytes;

    LT_TRY(device, what, cublasLtMatmulPreferenceSetAttribute,
           (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
            sizeof(workspace_bytes)));
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        uint32_t bytes = (uint32_t)shape->align_bytes[alignments[i].index];

        LT_TRY(device, what, cublasLtMatmulPreferenceSetAttribute,
               (preference, alignments[i].name, &bytes, sizeof(bytes)));
    }
    return DPB_OK;
}

/* Algorithms in the order of the time that cuBLASLt expects of them; none is no error here. */
static dpb_status propose(dpb_device *device, struct dpb_gemm_plan *plan,
                          cublasLtMatmulHeuristicResult_t *found, int *count, const char *what)
{
    cublasLtMatmulPreference_t preference;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    int returned = 0;
    dpb_status st;

    LT_TRY(device, what, cublasLtMatmulPreferenceCreate, (&preference));
    st = set_preference(device, &plan->shape, preference, what);
    if (st == DPB_OK)
        status = device->lt.cublasLtMatmulAlgoGetHeuristic(
                device->lt_handle, plan->desc, plan->layout[0], plan->layout[1], plan->layout[2],
                plan->layout[2], preference, CANDIDATES, found, &returned);
    device->lt.cublasLtMatmulPreferenceDestroy(preference);
    DPB_TRY(st);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        returned = 0;
    else
        DPB_TRY(dpb_cublaslt_check(&device->lt, status, "cublasLtMatmulAlgoGetHeuristic", what));
    *count = 0;
    for (int i = 0; i < returned; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[(*count)++] = found[i];
    }
    return DPB_OK;
}

/* ---- running ---- */

struct run {
    dpb_stream *stream;
    const struct dpb_gemm_product *product;
    const struct dpb_gemm_plan *plan;
    const cublasLtMatmulAlgo_t *algo;
    void *result; /* the product's c, or memory in its place while it must not be changed */
    cublasStatus_t status;
};

static cublasStatus_t launch(const struct run *run)
{
    const struct dpb_gemm_product *product = run->product;
    const struct dpb_gemm_plan *plan = run->plan;
    dpb_device *device = run->stream->device;

    return device->lt.cublasLtMatmul(
            device->lt_handle, plan->desc, &product->alpha, product->b.data, plan->layout[0],
            product->a.data, plan->layout[1], &product->beta, product->c.data, plan->layout[2],
            run->result, plan->layout[2], run->algo, run->stream->gemm_workspace,
            device->gemm_workspace_bytes, run->stream->native);
}

/* Of one algorithm of several: what it cannot do is no error. */
static dpb_status attempt(void *ctx)
{
    struct run *run = ctx;

    run->status = launch(run);
    return run->status == CUBLAS_STATUS_SUCCESS ? DPB_OK : DPB_ERR_UNSUPPORTED;
}

/* The bias where the plan's epilogue reads it: as it is, or in the result's type behind the
 * workspace, where the stream's order keeps it until it has been read. */
static dpb_status give_bias(dpb_stream *stream, const struct dpb_gemm_product *product,
                            const struct dpb_gemm_plan *plan, const char *what)
{
    dpb_device *device = stream->device;
    const void *bias = product->bias;

    if (!plan->fused || !plan->shape.bias)
        return DPB_OK;
    if (product->to != DPB_F32) {
        struct dpb_cast_args cast = {.from = dpb_tensor_1d((void *)(uintptr_t)bias, product->n)};
        struct dpb_cuda_queue queue;

        cast.to = cast.from;
        cast.to.data = (char *)stream->gemm_workspace + device->gemm_workspace_bytes;
        cast.to.dtype = product->to;
        DPB_TRY(dpb_cuda_stream_queue(stream, &queue));
        DPB_TRY(dpb_cuda_kernel_check(dpb_cuda_cast(&cast, &queue), what));
        bias = cast.to.data;
    }
    LT_TRY(device, what, cublasLtMatmulDescSetAttribute,
           (plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    return DPB_OK;
}

/* What the epilogue could not do. A product without fused ReLU or bias is one matrix, not a batch.
 */
static dpb_status finish(dpb_stream *stream, const struct dpb_gemm_product *product,
                         const struct dpb_gemm_plan *plan, const char *what)
{
    const struct dpb_cuda_bias_relu_args args = {
            .x = product->c.data,
            .y = product->c.data,
            .bias = product->bias,
            .dtype = product->to,
            .rows = product->m,
            .columns = product->n,
            .relu = product->relu,
    };
    struct dpb_cuda_queue queue;

    if (plan->fused)
        return DPB_OK;
    DPB_TRY(dpb_cuda_stream_queue(stream, &queue));
    return dpb_cuda_kernel_check(dpb_cuda_bias_relu(&args, &queue), what);
}

/* ---- choosing ---- */

/* A product that adds to c is timed into other memory: it must be added once. Not logged: the first
 * algorithm does without. */
static dpb_status measuring_result(dpb_stream *stream, const struct dpb_gemm_product *product,
                                   void **result)
{
    size_t elements = (size_t)(product->m * product->c.ld);

    *result = product->c.data;
    if (product->beta == 0.0f)
        return DPB_OK;
    if (product->batch > 1)
        elements += (size_t)((product->batch - 1) * product->c.batch_stride);
    return dpb_cuda_memory_try(stream->device, elements * dpb_dtype_bytes(product->to), result);
}

static dpb_status measure(dpb_stream *stream, const struct dpb_gemm_product *product,
                          struct dpb_gemm_plan *plan, const cublasLtMatmulHeuristicResult_t *found,
                          int count, const char *what)
{
    struct run run = {.stream = stream, .product = product, .plan = plan};
    int64_t best = INT64_MAX;
    dpb_status st;

    st = measuring_result(stream, product, &run.result);
    if (st == DPB_ERR_NO_MEMORY) {
        dpb_debug("cuda: %s: no memory to measure algorithms in: the first is taken", what);
        return DPB_OK;
    }
    DPB_TRY(st);
    for (int i = 0; i < count; i++) {
        int64_t ns;

        run.algo = &found[i].algo;
        st = dpb_cuda_time(stream, attempt, &run, &ns);
        if (st == DPB_ERR_UNSUPPORTED)
            continue;
        if (st < 0)
            goto out;
        if (ns < best) {
            best = ns;
            plan->algo = found[i].algo;
        }
    }
    st = DPB_OK;
    if (best == INT64_MAX)
        st = dpb_cublaslt_check(&stream->device->lt, run.status, "cublasLtMatmul", what);
    dpb_debug("cuda: %s: %lld ns, the best of %d algorithms", what, (long long)best, count);
out:
    if (run.result != product->c.data) {
        dpb_cuda_memory_put(stream->device, run.result);
        dpb_cuda_memory_trim(stream->device);
    }
    return st;
}

static bool bias_fits(const struct dpb_gemm_product *product)
{
    return !product->bias || product->to == DPB_F32 ||
           (size_t)product->n * dpb_dtype_bytes(product->to) <= DPB_CUDA_BIAS_BYTES;
}

static dpb_status choose(dpb_stream *stream, const struct dpb_gemm_product *product,
                         struct dpb_gemm_plan *plan, const char *what)
{
    dpb_device *device = stream->device;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    bool wants = epilogue(&plan->shape) != CUBLASLT_EPILOGUE_DEFAULT;
    int count = 0;

    if (wants && bias_fits(product)) {
        DPB_TRY(set_epilogue(device, plan, true, what));
        DPB_TRY(give_bias(stream, product, plan, what)); /* proposals look at its alignment */
        DPB_TRY(propose(device, plan, found, &count, what));
    }
    if (count == 0) {
        DPB_TRY(set_epilogue(device, plan, false, what));
        DPB_TRY(propose(device, plan, found, &count, what));
    }
    if (count == 0) {
        dpb_error("cuda: %s: cuBLASLt has no algorithm for it on this device", what);
        dpb_log_hint("try another --precision or batch size, or a newer cuBLAS for this GPU");
        return DPB_ERR_UNSUPPORTED;
    }
    plan->algo = found[0].algo;
    if (count == 1 || device->options.algorithm == DPB_CUDA_ALGORITHM_FIRST)
        return DPB_OK;
    return measure(stream, product, plan, found, count, what);
}

/* ---- the table of plans ---- */

static dpb_status grow(struct dpb_cuda_gemms *gemms)
{
    size_t places = gemms->places ? 2 * gemms->places : 64;
    struct dpb_gemm_plan **plans;

    if (2 * (gemms->count + 1) <= gemms->places)
        return DPB_OK;
    plans = calloc(places, sizeof(*plans));
    if (!plans) {
        dpb_error("cuda: out of host memory for plans of matrix products");
        return DPB_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < gemms->places; i++) {
        size_t at;

        if (!gemms->plans[i])
            continue;
        for (at = gemms->plans[i]->hash & (places - 1); plans[at]; at = (at + 1) & (places - 1))
            ;
        plans[at] = gemms->plans[i];
    }
    free(gemms->plans);
    gemms->plans = plans;
    gemms->places = places;
    return DPB_OK;
}

/* Where the shape's plan is, or belongs. */
static struct dpb_gemm_plan **place_of(struct dpb_cuda_gemms *gemms,
                                       const struct dpb_gemm_shape *shape, uint64_t hash)
{
    size_t at = hash & (gemms->places - 1);

    while (gemms->plans[at] && (gemms->plans[at]->hash != hash ||
                                !dpb_gemm_shape_equal(&gemms->plans[at]->shape, shape)))
        at = (at + 1) & (gemms->places - 1);
    return &gemms->plans[at];
}

static dpb_status make_plan(dpb_stream *stream, const struct dpb_gemm_product *product,
                            const struct dpb_gemm_shape *shape, uint64_t hash, const char *name,
                            struct dpb_gemm_plan **made)
{
    dpb_device *device = stream->device;
    char what[TEXT_BYTES];
    struct dpb_gemm_plan *plan = calloc(1, sizeof(*plan));
    int used;
    dpb_status st;

    if (!plan) {
        dpb_error("cuda: out of host memory for a plan of a matrix product");
        return DPB_ERR_NO_MEMORY;
    }
    used = snprintf(what, sizeof(what), "%s of ", name);
    dpb_gemm_shape_text(shape, what + used, sizeof(what) - (size_t)used);
    plan->shape = *shape;
    plan->hash = hash;
    DPB_TRY_GOTO(st, dpb_cuda_stream_may_prepare(stream, what), err_plan);
    dpb_cuda_count(device, &device->plans);
    DPB_TRY_GOTO(st, make_desc(device, plan, what), err_plan);
    for (int i = 0; i < 3; i++)
        DPB_TRY_GOTO(st, make_layout(device, plan, i, what), err_plan);
    DPB_TRY_GOTO(st, choose(stream, product, plan, what), err_plan);
    *made = plan;
    return DPB_OK;

err_plan:
    free_plan(device, plan);
    return st;
}

static dpb_status have_workspace(dpb_stream *stream)
{
    if (stream->gemm_workspace)
        return DPB_OK;
    DPB_TRY(dpb_cuda_stream_may_prepare(stream, "cuBLASLt's workspace"));
    return dpb_cuda_memory_take(stream->device,
                                stream->device->gemm_workspace_bytes + DPB_CUDA_BIAS_BYTES,
                                &stream->gemm_workspace);
}

dpb_status dpb_cuda_gemm(dpb_stream *stream, const struct dpb_gemm_product *product,
                         const char *what)
{
    dpb_device *device = stream->device;
    struct dpb_gemm_shape shape = dpb_gemm_shape_of(product, device->options.tf32);
    uint64_t hash = dpb_gemm_shape_hash(&shape);
    struct dpb_gemm_plan **place;
    struct run run;

    DPB_TRY(have_workspace(stream));
    DPB_TRY(grow(&device->gemms));
    place = place_of(&device->gemms, &shape, hash);
    if (!*place) {
        DPB_TRY(make_plan(stream, product, &shape, hash, what, place));
        device->gemms.count++;
    }
    DPB_TRY(give_bias(stream, product, *place, what));
    run = (struct run){.stream = stream,
                       .product = product,
                       .plan = *place,
                       .algo = &(*place)->algo,
                       .result = product->c.data};
    DPB_TRY(dpb_cublaslt_check(&device->lt, launch(&run), "cublasLtMatmul", what));
    return finish(stream, product, *place, what);
}

void dpb_cuda_gemms_release(dpb_device *device)
{
    for (size_t i = 0; i < device->gemms.places; i++)
        free_plan(device, device->gemms.plans[i]);
    free(device->gemms.plans);
    device->gemms = (struct dpb_cuda_gemms){0};
}

/* ---- the operator ---- */

dpb_status dpb_cuda_matmul(dpb_stream *stream, enum dpb_op op, const void *args)
{
    const struct dpb_gemm_product product = dpb_gemm_of_matmul(args);

    return dpb_cuda_gemm(stream, &product, dpb_op_text(op));
}
