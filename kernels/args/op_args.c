/* The one place that knows what fits an operator; devices and the reference call it. */
#include "op_args.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "dpb_log.h"

#define SHAPE_BYTES 128

/* ---- the table ---- */

struct rules {
    bool (*ok)(char *why, enum dpb_op op, const void *args);
    void (*text)(struct dpb_args_text *text, enum dpb_op op, const void *args);
    bool has_tensors, takes_narrow;
    /* Offsets in the arguments of element types; narrow is what has one of them so. */
    size_t dtype_at[2];
};

#define DTYPE_AT(family, tensor) offsetof(struct dpb_##family##_args, tensor.dtype)
/* An operator of dpb_<family>_args; `a` and `b` are members that it always has. */
#define RULES_2(family, takes_narrow, a, b)                                                        \
    {                                                                                              \
        dpb_args_##family##_ok, dpb_args_##family##_text, true, takes_narrow,                      \
        {                                                                                          \
            DTYPE_AT(family, a), DTYPE_AT(family, b)                                               \
        }                                                                                          \
    }
/* `tensor` tells the element type: it is narrow where any is. */
#define RULES(family, tensor) RULES_2(family, true, tensor, tensor)
/* Not in bf16 or fp16: `cast` lies before and after. */
#define RULES_FP32(family, tensor) RULES_2(family, false, tensor, tensor)
/* Without tensors: fp32 always. */
#define RULES_F32(family)                                                                          \
    {                                                                                              \
        dpb_args_##family##_ok, dpb_args_##family##_text, false, false,                            \
        {                                                                                          \
            0, 0                                                                                   \
        }                                                                                          \
    }

static const struct rules rules_of[] = {
        [DPB_OP_MATMUL] = RULES(matmul, a),
        [DPB_OP_CONV_FWD] = RULES(conv, y),
        [DPB_OP_CONV_BWD_DATA] = RULES(conv, y),
        [DPB_OP_CONV_BWD_WEIGHTS] = RULES(conv, y),
        [DPB_OP_POOL_MAX_FWD] = RULES(pool, y),
        [DPB_OP_POOL_MAX_BWD] = RULES(pool, y),
        [DPB_OP_POOL_AVG_FWD] = RULES(pool, y),
        [DPB_OP_POOL_AVG_BWD] = RULES(pool, y),
        [DPB_OP_RELU_FWD] = RULES(relu, y),
        [DPB_OP_RELU_BWD] = RULES(relu, y),
        [DPB_OP_BIAS_FWD] = RULES(bias, y),
        [DPB_OP_BIAS_BWD] = RULES(bias, y),
        [DPB_OP_BATCHNORM_FWD] = RULES(batchnorm, x),
        [DPB_OP_BATCHNORM_BWD] = RULES(batchnorm, x),
        [DPB_OP_BATCHNORM_STATS] = RULES(batchnorm, x),
        [DPB_OP_BATCHNORM_APPLY] = RULES(batchnorm, x),
        [DPB_OP_BATCHNORM_BWD_SUMS] = RULES(batchnorm, x),
        [DPB_OP_BATCHNORM_BWD_APPLY] = RULES(batchnorm, x),
        [DPB_OP_SOFTMAX_XENT_FWD] = RULES_FP32(softmax_xent, prob),
        [DPB_OP_SOFTMAX_XENT_BWD] = RULES_FP32(softmax_xent, prob),
        [DPB_OP_INTERACTION_FWD] = RULES_FP32(interaction, x),
        [DPB_OP_INTERACTION_BWD] = RULES_FP32(interaction, x),
        [DPB_OP_SIGMOID_BCE_FWD] = RULES_FP32(sigmoid_bce, logits),
        [DPB_OP_SIGMOID_BCE_BWD] = RULES_FP32(sigmoid_bce, logits),
        [DPB_OP_SGD_MOMENTUM] = RULES_F32(sgd),
        [DPB_OP_ADAMW] = RULES_FP32(adam, param),
        [DPB_OP_LAMB] = RULES_FP32(adam, param),
        [DPB_OP_LARS] = RULES_FP32(lars, param),
        [DPB_OP_ADAGRAD] = RULES_FP32(adagrad, param),
        [DPB_OP_ROWWISE_ADAGRAD] = RULES_FP32(adagrad, param),
        [DPB_OP_SCALE] = RULES_F32(scale),
        [DPB_OP_FINITE] = RULES_F32(finite_test),
        [DPB_OP_CAST] = RULES_2(cast, true, from, to),
        [DPB_OP_ADD] = RULES(add, y),
        [DPB_OP_ORTHOGONALIZE] = RULES_FP32(orthogonalize, x),
        [DPB_OP_GELU_FWD] = RULES(activation, x),
        [DPB_OP_GELU_BWD] = RULES(activation, x),
        [DPB_OP_TANH_FWD] = RULES(activation, y),
        [DPB_OP_TANH_BWD] = RULES(activation, y),
        [DPB_OP_DROPOUT_FWD] = RULES(dropout, y),
        [DPB_OP_DROPOUT_BWD] = RULES(dropout, dy),
        [DPB_OP_LAYERNORM_FWD] = RULES(layernorm, x),
        [DPB_OP_LAYERNORM_BWD] = RULES(layernorm, x),
        [DPB_OP_EMBEDDING_FWD] = RULES(embedding, y),
        [DPB_OP_EMBEDDING_BWD] = RULES(embedding, dy),
        [DPB_OP_ATTENTION_FWD] = RULES(attention, q),
        [DPB_OP_ATTENTION_BWD] = RULES(attention, q),
};

_Static_assert(sizeof(rules_of) / sizeof(rules_of[0]) == DPB_OP_COUNT, "an operator is missing");

/* NULL for a number that is no operator's. */
static const struct rules *find(enum dpb_op op)
{
    return (unsigned)op < DPB_OP_COUNT && rules_of[op].ok ? &rules_of[op] : NULL;
}

void dpb_op_args_text(enum dpb_op op, const void *args, char *text, size_t text_bytes)
{
    struct dpb_args_text out = {.to = text, .bytes = text_bytes};
    const struct rules *rules = find(op);

    if (text_bytes > 0)
        text[0] = '\0';
    if (!args)
        dpb_args_put(&out, "no arguments");
    else if (rules)
        rules->text(&out, op, args);
}

enum dpb_dtype dpb_op_args_dtype(enum dpb_op op, const void *args)
{
    const struct rules *rules = find(op);

    enum dpb_dtype dtype[2];

    if (!rules || !rules->has_tensors)
        return DPB_F32;
    for (int i = 0; i < 2; i++)
        dtype[i] = *(const enum dpb_dtype *)((const char *)args + rules->dtype_at[i]);
    return dpb_args_is_narrow(dtype[1]) ? dtype[1] : dtype[0];
}

static bool args_ok(char *why, enum dpb_op op, const void *args)
{
    const struct rules *rules = find(op);

    if (!args)
        return dpb_args_no(why, "arguments are NULL");
    if (!rules)
        return dpb_args_no(why, "there is no operator number %d", (int)op);
    if (!rules->takes_narrow && dpb_args_is_narrow(dpb_op_args_dtype(op, args)))
        return dpb_args_no(why, "it does not take %s; cast to fp32",
                           dpb_dtype_text(dpb_op_args_dtype(op, args)));
    return rules->ok(why, op, args);
}

dpb_status dpb_op_args_check(enum dpb_op op, const void *args)
{
    char why[DPB_WHY_BYTES], shapes[DPB_WHY_BYTES];

    if (args_ok(why, op, args))
        return DPB_OK;
    dpb_op_args_text(op, args, shapes, sizeof(shapes));
    dpb_error("cannot run operator \"%s\" on %s: %s", dpb_op_text(op), shapes, why);
    dpb_log_hint("check the layer's shapes: images are NHWC, convolution weights OIHW");
    return DPB_ERR_USAGE;
}

/* ---- text ---- */

void dpb_args_put(struct dpb_args_text *text, const char *format, ...)
{
    va_list args;
    int count;

    if (text->used + 1 >= text->bytes)
        return;
    va_start(args, format);
    count = vsnprintf(text->to + text->used, text->bytes - text->used, format, args);
    va_end(args);
    if (count > 0)
        text->used += (size_t)count;
    if (text->used >= text->bytes)
        text->used = text->bytes - 1;
}

static void put_dims(struct dpb_args_text *text, int rank, const int64_t *dim)
{
    dpb_args_put(text, "[");
    for (int i = 0; i < rank && i < DPB_TENSOR_RANK_MAX; i++)
        dpb_args_put(text, "%s%lld", i ? "," : "", (long long)dim[i]);
    dpb_args_put(text, "]");
}

void dpb_args_put_tensor(struct dpb_args_text *text, const char *name,
                         const struct dpb_tensor *tensor)
{
    dpb_args_put(text, "%s%s", text->used ? " " : "", name);
    put_dims(text, tensor->rank, tensor->dim);
}

/* ---- checks ---- */

bool dpb_args_no(char *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, DPB_WHY_BYTES, format, args);
    va_end(args);
    return false;
}

bool dpb_args_pointer_ok(char *why, const char *name, const void *pointer)
{
    return pointer ? true : dpb_args_no(why, "%s is NULL", name);
}

bool dpb_args_finite_ok(char *why, const char *name, double value)
{
    return isfinite(value) ? true : dpb_args_no(why, "%s is not finite", name);
}

bool dpb_args_tensor_ok(char *why, const char *name, const struct dpb_tensor *tensor, int rank,
                        enum dpb_dtype dtype)
{
    int64_t numel = 1;

    if (dtype != DPB_F32 && dtype != DPB_BF16 && dtype != DPB_F16 && dtype != DPB_F64)
        return dpb_args_no(why, "element type number %d is none of fp32, bf16, fp16 and fp64",
                           (int)dtype);
    if (tensor->rank != rank)
        return dpb_args_no(why, "%s has rank %d, needs %d", name, tensor->rank, rank);
    if (tensor->dtype != dtype)
        return dpb_args_no(why, "%s is not %s like the others", name, dpb_dtype_text(dtype));
    for (int i = 0; i < rank; i++) {
        if (tensor->dim[i] < 1)
            return dpb_args_no(why, "dimension %d of %s is below 1", i, name);
        if (tensor->dim[i] > INT64_MAX / 8 / numel)
            return dpb_args_no(why, "%s is too large", name);
        numel *= tensor->dim[i];
    }
    return dpb_args_pointer_ok(why, name, tensor->data);
}

bool dpb_args_shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                       enum dpb_dtype dtype, int rank, const int64_t *dim)
{
    char wanted[SHAPE_BYTES];
    struct dpb_args_text text = {.to = wanted, .bytes = sizeof(wanted)};

    if (!dpb_args_tensor_ok(why, name, tensor, rank, dtype))
        return false;
    for (int i = 0; i < rank; i++) {
        if (tensor->dim[i] != dim[i]) {
            put_dims(&text, rank, dim);
            return dpb_args_no(why, "%s should be %s", name, wanted);
        }
    }
    return true;
}

bool dpb_args_same_shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                            const struct dpb_tensor *like)
{
    return dpb_args_shape_ok(why, name, tensor, like->dtype, like->rank, like->dim);
}

bool dpb_args_any_rank_ok(char *why, const char *name, const struct dpb_tensor *tensor)
{
    if (tensor->rank < 1 || tensor->rank > DPB_TENSOR_RANK_MAX)
        return dpb_args_no(why, "%s has rank %d", name, tensor->rank);
    return dpb_args_tensor_ok(why, name, tensor, tensor->rank, tensor->dtype);
}

bool dpb_args_count_ok(char *why, int64_t count)
{
    return count >= 0 ? true : dpb_args_no(why, "count is negative");
}
