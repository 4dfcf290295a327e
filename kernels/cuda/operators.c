/* The table of operators: which of them are one launch of our own kernels, and which are not. */
#include "cuda_device.h"

#include <stdio.h>

#include "dpb_log.h"
#include "dpb_reference.h"

#include "operators.h"

/* Our kernels, behind one form of call. */
#define KERNEL(name)                                                                               \
    static int run_##name(const void *args, const struct dpb_cuda_queue *queue)                    \
    {                                                                                              \
        return dpb_cuda_##name(args, queue);                                                       \
    }
KERNEL(pool_max_fwd)
KERNEL(pool_max_bwd)
KERNEL(pool_avg_fwd)
KERNEL(pool_avg_bwd)
KERNEL(relu_fwd)
KERNEL(relu_bwd)
KERNEL(bias_fwd)
KERNEL(bias_bwd)
KERNEL(batchnorm_fwd)
KERNEL(batchnorm_bwd)
KERNEL(batchnorm_stats)
KERNEL(batchnorm_apply)
KERNEL(batchnorm_bwd_sums)
KERNEL(batchnorm_bwd_apply)
KERNEL(softmax_xent_fwd)
KERNEL(softmax_xent_bwd)
KERNEL(interaction_fwd)
KERNEL(interaction_bwd)
KERNEL(sigmoid_bce_fwd)
KERNEL(sigmoid_bce_bwd)
KERNEL(scale)
KERNEL(cast)
KERNEL(add)
KERNEL(orthogonalize)
KERNEL(gelu_fwd)
KERNEL(gelu_bwd)
KERNEL(tanh_fwd)
KERNEL(tanh_bwd)
KERNEL(dropout_fwd)
KERNEL(dropout_bwd)
KERNEL(layernorm_fwd)
KERNEL(layernorm_bwd)
KERNEL(embedding_fwd)
KERNEL(embedding_bwd)

static int run_finite(const void *args, const struct dpb_cuda_queue *queue)
{
    const struct dpb_finite_args *a = args;

    return dpb_cuda_find_nonfinite(a->x, DPB_F32, a->count, a->found, queue);
}

/* Optimizers, for several tensors at once. */
#define KERNEL_MANY(name)                                                                          \
    static int run_##name(const void *args, int count, const struct dpb_cuda_queue *queue)         \
    {                                                                                              \
        return dpb_cuda_##name##_many(args, count, queue);                                         \
    }
KERNEL_MANY(sgd_momentum)
KERNEL_MANY(adamw)
KERNEL_MANY(lamb)
KERNEL_MANY(lars)
KERNEL_MANY(adagrad)
KERNEL_MANY(rowwise_adagrad)

struct operator
{
    /* One of them. */
    int (*kernel)(const void *args, const struct dpb_cuda_queue *queue);
    int (*many)(const void *args, int count, const struct dpb_cuda_queue *queue);
    dpb_status (*library)(dpb_stream * stream, enum dpb_op op, const void *args);
    bool half; /* takes bf16 and fp16 */
};

#define OURS(name)                                                                                 \
    {                                                                                              \
        .kernel = run_##name, .half = true                                                         \
    }
#define OURS_F32(name)                                                                             \
    {                                                                                              \
        .kernel = run_##name                                                                       \
    }
#define OURS_MANY(name)                                                                            \
    {                                                                                              \
        .many = run_##name                                                                         \
    }
#define LIBRARY(function)                                                                          \
    {                                                                                              \
        .library = function, .half = true                                                          \
    }

static const struct operator operators[] = {
        [DPB_OP_MATMUL] = LIBRARY(dpb_cuda_matmul),
        [DPB_OP_CONV_FWD] = LIBRARY(dpb_cuda_conv),
        [DPB_OP_CONV_BWD_DATA] = LIBRARY(dpb_cuda_conv),
        [DPB_OP_CONV_BWD_WEIGHTS] = LIBRARY(dpb_cuda_conv),
        [DPB_OP_POOL_MAX_FWD] = OURS(pool_max_fwd),
        [DPB_OP_POOL_MAX_BWD] = OURS(pool_max_bwd),
        [DPB_OP_POOL_AVG_FWD] = OURS(pool_avg_fwd),
        [DPB_OP_POOL_AVG_BWD] = OURS(pool_avg_bwd),
        [DPB_OP_RELU_FWD] = OURS(relu_fwd),
        [DPB_OP_RELU_BWD] = OURS(relu_bwd),
        [DPB_OP_BIAS_FWD] = OURS(bias_fwd),
        [DPB_OP_BIAS_BWD] = OURS(bias_bwd),
        [DPB_OP_BATCHNORM_FWD] = OURS(batchnorm_fwd),
        [DPB_OP_BATCHNORM_BWD] = OURS(batchnorm_bwd),
        [DPB_OP_BATCHNORM_STATS] = OURS(batchnorm_stats),
        [DPB_OP_BATCHNORM_APPLY] = OURS(batchnorm_apply),
        [DPB_OP_BATCHNORM_BWD_SUMS] = OURS(batchnorm_bwd_sums),
        [DPB_OP_BATCHNORM_BWD_APPLY] = OURS(batchnorm_bwd_apply),
        [DPB_OP_SOFTMAX_XENT_FWD] = OURS_F32(softmax_xent_fwd),
        [DPB_OP_SOFTMAX_XENT_BWD] = OURS_F32(softmax_xent_bwd),
        [DPB_OP_INTERACTION_FWD] = OURS_F32(interaction_fwd),
        [DPB_OP_INTERACTION_BWD] = OURS_F32(interaction_bwd),
        [DPB_OP_SIGMOID_BCE_FWD] = OURS_F32(sigmoid_bce_fwd),
        [DPB_OP_SIGMOID_BCE_BWD] = OURS_F32(sigmoid_bce_bwd),
        [DPB_OP_SGD_MOMENTUM] = OURS_MANY(sgd_momentum),
        [DPB_OP_ADAMW] = OURS_MANY(adamw),
        [DPB_OP_LAMB] = OURS_MANY(lamb),
        [DPB_OP_LARS] = OURS_MANY(lars),
        [DPB_OP_ADAGRAD] = OURS_MANY(adagrad),
        [DPB_OP_ROWWISE_ADAGRAD] = OURS_MANY(rowwise_adagrad),
        [DPB_OP_SCALE] = OURS_F32(scale),
        [DPB_OP_FINITE] = OURS_F32(finite),
        [DPB_OP_CAST] = OURS(cast),
        [DPB_OP_ADD] = OURS(add),
        [DPB_OP_ORTHOGONALIZE] = OURS_F32(orthogonalize),
        [DPB_OP_GELU_FWD] = OURS(gelu_fwd),
        [DPB_OP_GELU_BWD] = OURS(gelu_bwd),
        [DPB_OP_TANH_FWD] = OURS(tanh_fwd),
        [DPB_OP_TANH_BWD] = OURS(tanh_bwd),
        [DPB_OP_DROPOUT_FWD] = OURS(dropout_fwd),
        [DPB_OP_DROPOUT_BWD] = OURS(dropout_bwd),
        [DPB_OP_LAYERNORM_FWD] = OURS(layernorm_fwd),
        [DPB_OP_LAYERNORM_BWD] = OURS(layernorm_bwd),
        [DPB_OP_EMBEDDING_FWD] = OURS(embedding_fwd),
        [DPB_OP_EMBEDDING_BWD] = OURS(embedding_bwd),
        [DPB_OP_ATTENTION_FWD] = LIBRARY(dpb_cuda_attention),
        [DPB_OP_ATTENTION_BWD] = LIBRARY(dpb_cuda_attention),
};
_Static_assert(sizeof(operators) / sizeof(operators[0]) == DPB_OP_COUNT, "an operator is missing");

dpb_status dpb_cuda_kernel_check(int error, const char *what)
{
    if (error == DPB_CUDA_INVALID) {
        dpb_error("cuda: operator \"%s\": its kernel does not take these shapes", what);
        dpb_log_hint("kernels/cuda/cuda_kernels.h says the limits; take a smaller batch or model");
        return DPB_ERR_UNSUPPORTED;
    }
    return dpb_cuda_check((cudaError_t)error, "kernel launch", what);
}

bool dpb_cuda_op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    if ((unsigned)op >= DPB_OP_COUNT)
        return false;
    return dtype == DPB_F32 || (operators[op].half && (dtype == DPB_BF16 || dtype == DPB_F16));
}

/* Do the arguments fit, and does the device have the operator for their type? */
static dpb_status check(dpb_device *device, enum dpb_op op, const void *args)
{
    enum dpb_dtype dtype;

    DPB_TRY(dpb_op_args_check(op, args));
    dtype = dpb_op_args_dtype(op, args);
    if (dpb_cuda_op_supported(device, op, dtype))
        return DPB_OK;
    dpb_error("cuda: operator \"%s\" does not do %s", dpb_op_text(op), dpb_dtype_text(dtype));
    dpb_log_hint("compute in fp32");
    return DPB_ERR_UNSUPPORTED;
}

static dpb_status launch_library(dpb_stream *stream, enum dpb_op op, const void *args)
{
    dpb_device *device = stream->device;
    dpb_status st;

    pthread_mutex_lock(&device->lock);
    st = operators[op].library(stream, op, args);
    pthread_mutex_unlock(&device->lock);
    return st;
}

/* `count` of them where the operator does many at once, else one. */
static dpb_status launch_checked(dpb_stream *stream, enum dpb_op op, const void *args, int count)
{
    const struct operator* operator= & operators[op];
    struct dpb_cuda_queue queue;
    int error;

    atomic_store_explicit(&stream->last_op, (int)op, memory_order_relaxed);
    if (operator->library)
        return launch_library(stream, op, args);
    DPB_TRY(dpb_cuda_stream_queue(stream, &queue));
    error = operator->many ? operator->many(args, count, &queue) : operator->kernel(args, &queue);
    return dpb_cuda_kernel_check(error, dpb_op_text(op));
}

dpb_status dpb_cuda_op_launch(dpb_device *device, enum dpb_op op, const void *args,
                              dpb_stream *stream)
{
    DPB_TRY(check(device, op, args));
    DPB_TRY(dpb_cuda_enter(device));
    return launch_checked(stream ? stream : device->main, op, args, 1);
}

dpb_status dpb_cuda_op_launch_many(dpb_device *device, enum dpb_op op, const void *args, int count,
                                   dpb_stream *stream)
{
    size_t bytes = (unsigned)op < DPB_OP_COUNT ? dpb_op_args_bytes(op) : 0;

    if (count < 1)
        return DPB_OK;
    for (int i = 0; i < count; i++)
        DPB_TRY(check(device, op, args ? (const char *)args + (size_t)i * bytes : NULL));
    DPB_TRY(dpb_cuda_enter(device));
    if (operators[op].many)
        return launch_checked(stream ? stream : device->main, op, args, count);
    for (int i = 0; i < count; i++)
        DPB_TRY(launch_checked(stream ? stream : device->main, op,
                               (const char *)args + (size_t)i * bytes, 1));
    return DPB_OK;
}
