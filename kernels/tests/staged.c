#include "staged.h"

#include <sys/mman.h>
#include <unistd.h>

#include "dpb_test.h"

#include "op_pointers.h"

#define ALIGNMENT_BYTES 64

struct dpb_staged {
    struct dpb_device_base base;
    dpb_device *device;
    dpb_stream *stream;
};

/* ---- what arguments point to ---- */

struct list {
    const char *args;
    struct staged_span *spans;
    int count;
};

static void add(struct list *list, size_t at, size_t bytes)
{
    void *array;
    memcpy(&array, list->args + at, sizeof(array));
    if (!array || bytes == 0)
        return;
    assert_true(list->count < STAGED_SPANS_MAX);
    list->spans[list->count++] = (struct staged_span){at, bytes};
}

/* `at` of a tensor, whose first member is its pointer. */
static void add_tensor(struct list *list, size_t at)
{
    struct dpb_tensor tensor;
    memcpy(&tensor, list->args + at, sizeof(tensor));
    add(list, at, (size_t)dpb_tensor_numel(&tensor) * dpb_dtype_bytes(tensor.dtype));
}

#define TENSOR(member) add_tensor(list, offsetof(args_type, member))
#define ARRAY(member, count)                                                                       \
    add(list, offsetof(args_type, member), (size_t)(count) * sizeof(*a->member))
#define SPANS_OF(kind)                                                                             \
    static void spans_##kind(struct list *list, const struct dpb_##kind##_args *a)

static int64_t last_dim(const struct dpb_tensor *tensor)
{
    return tensor->dim[tensor->rank - 1];
}

#define args_type struct dpb_matmul_args
SPANS_OF(matmul)
{
    TENSOR(a);
    TENSOR(b);
    TENSOR(c);
    ARRAY(bias, a->c.dim[1]);
}
#undef args_type

#define args_type struct dpb_conv_args
SPANS_OF(conv)
{
    TENSOR(x);
    TENSOR(w);
    TENSOR(y);
    ARRAY(bias, a->w.dim[0]);
}
#undef args_type

#define args_type struct dpb_pool_args
SPANS_OF(pool)
{
    TENSOR(x);
    TENSOR(y);
    ARRAY(index, dpb_tensor_numel(&a->y));
}
#undef args_type

#define args_type struct dpb_relu_args
SPANS_OF(relu)
{
    (void)a;
    TENSOR(x);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(dx);
}
#undef args_type

#define args_type struct dpb_bias_args
SPANS_OF(bias)
{
    TENSOR(x);
    TENSOR(y);
    ARRAY(bias, a->y.dim[1]);
}
#undef args_type

#define args_type struct dpb_batchnorm_args
SPANS_OF(batchnorm)
{
    const int64_t channels = last_dim(&a->x);
    TENSOR(x);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(dx);
    TENSOR(residual);
    TENSOR(dresidual);
    ARRAY(gamma, channels);
    ARRAY(beta, channels);
    ARRAY(dgamma, channels);
    ARRAY(dbeta, channels);
    ARRAY(running_mean, channels);
    ARRAY(running_var, channels);
    ARRAY(save_mean, channels);
    ARRAY(save_var, channels);
    ARRAY(mask, dpb_tensor_numel(&a->x));
}
#undef args_type

#define args_type struct dpb_softmax_xent_args
SPANS_OF(softmax_xent)
{
    const int64_t rows = a->prob.dim[0];
    TENSOR(logits);
    TENSOR(prob);
    TENSOR(dlogits);
    ARRAY(label, rows);
    ARRAY(loss, rows);
}
#undef args_type

#define args_type struct dpb_interaction_args
SPANS_OF(interaction)
{
    (void)a;
    TENSOR(x);
    TENSOR(e);
    TENSOR(y);
    TENSOR(dx);
    TENSOR(de);
}
#undef args_type

#define args_type struct dpb_sigmoid_bce_args
SPANS_OF(sigmoid_bce)
{
    const int64_t count = dpb_tensor_numel(&a->logits);
    TENSOR(logits);
    TENSOR(dlogits);
    ARRAY(label, count);
    ARRAY(loss, count);
}
#undef args_type

#define args_type struct dpb_sgd_args
SPANS_OF(sgd)
{
    ARRAY(param, a->count);
    ARRAY(grad, a->count);
    ARRAY(momentum, a->count);
}
#undef args_type

#define args_type struct dpb_adam_args
SPANS_OF(adam)
{
    const int64_t count = dpb_tensor_numel(&a->param);
    TENSOR(param);
    ARRAY(grad, count);
    ARRAY(m, count);
    ARRAY(v, count);
}
#undef args_type

#define args_type struct dpb_lars_args
SPANS_OF(lars)
{
    const int64_t count = dpb_tensor_numel(&a->param);
    TENSOR(param);
    ARRAY(grad, count);
    ARRAY(momentum, count);
}
#undef args_type

#define args_type struct dpb_adagrad_args
static void spans_adagrad(struct list *list, const struct dpb_adagrad_args *a, bool rowwise)
{
    const int64_t count = dpb_tensor_numel(&a->param);
    TENSOR(param);
    ARRAY(grad, count);
    ARRAY(state, rowwise ? a->param.dim[0] : count);
}
#undef args_type

#define args_type struct dpb_scale_args
SPANS_OF(scale)
{
    ARRAY(x, a->count);
}
#undef args_type

#define args_type struct dpb_finite_args
SPANS_OF(finite)
{
    ARRAY(x, a->count);
    ARRAY(found, 1);
}
#undef args_type

#define args_type struct dpb_cast_args
SPANS_OF(cast)
{
    (void)a;
    TENSOR(from);
    TENSOR(to);
}
#undef args_type

#define args_type struct dpb_add_args
SPANS_OF(add)
{
    (void)a;
    TENSOR(a);
    TENSOR(b);
    TENSOR(y);
}
#undef args_type

#define args_type struct dpb_orthogonalize_args
SPANS_OF(orthogonalize)
{
    (void)a;
    TENSOR(x);
}
#undef args_type

#define args_type struct dpb_activation_args
SPANS_OF(activation)
{
    (void)a;
    TENSOR(x);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(dx);
}
#undef args_type

#define args_type struct dpb_dropout_args
SPANS_OF(dropout)
{
    (void)a;
    TENSOR(x);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(dx);
}
#undef args_type

#define args_type struct dpb_layernorm_args
SPANS_OF(layernorm)
{
    const int64_t rows = a->x.dim[0], columns = a->x.dim[1];
    TENSOR(x);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(dx);
    ARRAY(gamma, columns);
    ARRAY(beta, columns);
    ARRAY(dgamma, columns);
    ARRAY(dbeta, columns);
    ARRAY(save_mean, rows);
    ARRAY(save_rstd, rows);
}
#undef args_type

#define args_type struct dpb_embedding_args
static void spans_embedding(struct list *list, const struct dpb_embedding_args *a, bool forward)
{
    TENSOR(table);
    TENSOR(dtable);
    TENSOR(y);
    TENSOR(dy);
    ARRAY(ids, forward ? a->y.dim[0] : a->dy.dim[0]);
}
#undef args_type

#define args_type struct dpb_attention_args
/* From a token's first element to the last token's last, with the gaps between rows. */
static void add_strided(struct list *list, size_t at, int64_t stride)
{
    struct dpb_tensor t;
    memcpy(&t, list->args + at, sizeof(t));
    const int64_t tokens = t.dim[0] * t.dim[1], width = t.dim[2] * t.dim[3];
    add(list, at, (size_t)((tokens - 1) * stride + width) * dpb_dtype_bytes(t.dtype));
}

#define STRIDED(member) add_strided(list, offsetof(args_type, member), a->stride)
SPANS_OF(attention)
{
    STRIDED(q);
    STRIDED(k);
    STRIDED(v);
    STRIDED(dq);
    STRIDED(dk);
    STRIDED(dv);
    TENSOR(y);
    TENSOR(dy);
    TENSOR(prob);
    ARRAY(workspace, dpb_tensor_numel(&a->prob));
    ARRAY(key_mask, a->q.dim[0] * a->q.dim[1]);
}
#undef args_type

static void spans_of(struct list *list, enum dpb_op op, const void *args)
{
    switch (op) {
    case DPB_OP_MATMUL:
        return spans_matmul(list, args);
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS:
        return spans_conv(list, args);
    case DPB_OP_POOL_MAX_FWD:
    case DPB_OP_POOL_MAX_BWD:
    case DPB_OP_POOL_AVG_FWD:
    case DPB_OP_POOL_AVG_BWD:
        return spans_pool(list, args);
    case DPB_OP_RELU_FWD:
    case DPB_OP_RELU_BWD:
        return spans_relu(list, args);
    case DPB_OP_BIAS_FWD:
    case DPB_OP_BIAS_BWD:
        return spans_bias(list, args);
    case DPB_OP_BATCHNORM_FWD:
    case DPB_OP_BATCHNORM_BWD:
    case DPB_OP_BATCHNORM_STATS:
    case DPB_OP_BATCHNORM_APPLY:
    case DPB_OP_BATCHNORM_BWD_SUMS:
    case DPB_OP_BATCHNORM_BWD_APPLY:
        return spans_batchnorm(list, args);
    case DPB_OP_SOFTMAX_XENT_FWD:
    case DPB_OP_SOFTMAX_XENT_BWD:
        return spans_softmax_xent(list, args);
    case DPB_OP_INTERACTION_FWD:
    case DPB_OP_INTERACTION_BWD:
        return spans_interaction(list, args);
    case DPB_OP_SIGMOID_BCE_FWD:
    case DPB_OP_SIGMOID_BCE_BWD:
        return spans_sigmoid_bce(list, args);
    case DPB_OP_SGD_MOMENTUM:
        return spans_sgd(list, args);
    case DPB_OP_ADAMW:
    case DPB_OP_LAMB:
        return spans_adam(list, args);
    case DPB_OP_LARS:
        return spans_lars(list, args);
    case DPB_OP_ADAGRAD:
    case DPB_OP_ROWWISE_ADAGRAD:
        return spans_adagrad(list, args, op == DPB_OP_ROWWISE_ADAGRAD);
    case DPB_OP_SCALE:
        return spans_scale(list, args);
    case DPB_OP_FINITE:
        return spans_finite(list, args);
    case DPB_OP_CAST:
        return spans_cast(list, args);
    case DPB_OP_ADD:
        return spans_add(list, args);
    case DPB_OP_ORTHOGONALIZE:
        return spans_orthogonalize(list, args);
    case DPB_OP_GELU_FWD:
    case DPB_OP_GELU_BWD:
    case DPB_OP_TANH_FWD:
    case DPB_OP_TANH_BWD:
        return spans_activation(list, args);
    case DPB_OP_DROPOUT_FWD:
    case DPB_OP_DROPOUT_BWD:
        return spans_dropout(list, args);
    case DPB_OP_LAYERNORM_FWD:
    case DPB_OP_LAYERNORM_BWD:
        return spans_layernorm(list, args);
    case DPB_OP_EMBEDDING_FWD:
    case DPB_OP_EMBEDDING_BWD:
        return spans_embedding(list, args, op == DPB_OP_EMBEDDING_FWD);
    case DPB_OP_ATTENTION_FWD:
    case DPB_OP_ATTENTION_BWD:
        return spans_attention(list, args);
    case DPB_OP_COUNT:
        break;
    }
    fail_msg("no operator %d", (int)op);
}

int staged_spans(enum dpb_op op, const void *args, struct staged_span spans[STAGED_SPANS_MAX])
{
    struct list list = {.args = args, .spans = spans};
    spans_of(&list, op, args);
    return list.count;
}

/* ---- memory ---- */

/* Host memory of spans that overlap, and where it is on the device. */
struct region {
    char *host, *end;
    void *memory; /* of the device; the region starts at `device` in it */
    char *device;
};

struct stage {
    struct dpb_staged *staged;
    struct region region[STAGED_SPANS_MAX];
    int count;
};

static int by_address(const void *a, const void *b)
{
    const struct region *one = a, *other = b;
    return (one->host > other->host) - (one->host < other->host);
}

static char *pointer_at(const void *args, size_t at)
{
    char *pointer;
    memcpy(&pointer, (const char *)args + at, sizeof(pointer));
    return pointer;
}

/* One region for spans that share a byte. */
static void find_regions(struct stage *stage, const void *args, const struct staged_span *spans,
                         int count)
{
    struct region *region = stage->region;
    int merged = 0;
    for (int i = 0; i < count; i++) {
        char *host = pointer_at(args, spans[i].at);
        region[i] = (struct region){.host = host, .end = host + spans[i].bytes};
    }
    qsort(region, (size_t)count, sizeof(region[0]), by_address);
    for (int i = 0; i < count; i++) {
        if (merged > 0 && region[i].host < region[merged - 1].end) {
            if (region[i].end > region[merged - 1].end)
                region[merged - 1].end = region[i].end;
        } else {
            region[merged++] = region[i];
        }
    }
    stage->count = merged;
}

static dpb_status put_regions(struct stage *stage)
{
    dpb_device *device = stage->staged->device;
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);
    for (int i = 0; i < stage->count; i++) {
        struct region *region = &stage->region[i];
        const size_t bytes = (size_t)(region->end - region->host);
        const size_t shift = (uintptr_t)region->host % ALIGNMENT_BYTES;
        DPB_TRY(ops->alloc(device, bytes + shift, &region->memory));
        region->device = (char *)region->memory + shift;
        DPB_TRY(ops->copy(device, region->device, region->host, bytes, stage->staged->stream));
    }
    return DPB_OK;
}

static dpb_status get_regions(struct stage *stage)
{
    dpb_device *device = stage->staged->device;
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);
    for (int i = 0; i < stage->count; i++) {
        const struct region *region = &stage->region[i];
        DPB_TRY(ops->copy(device, region->host, region->device,
                          (size_t)(region->end - region->host), stage->staged->stream));
    }
    return ops->stream_sync(stage->staged->stream);
}

static void translate(const struct stage *stage, void *args, const struct staged_span *spans,
                      int count)
{
    for (int i = 0; i < count; i++) {
        char *host = pointer_at(args, spans[i].at);
        for (int r = 0; r < stage->count; r++) {
            const struct region *region = &stage->region[r];
            if (host >= region->host && host < region->end) {
                char *device = region->device + (host - region->host);
                memcpy((char *)args + spans[i].at, &device, sizeof(device));
            }
        }
    }
}

/* Is `word` an address of this process? Not every one that could be is: padding behind a small
 * number holds what was there before. */
static bool is_pointer(uintptr_t word)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char resident;
    return word >= OP_LEAST_ADDRESS && (word & 0xff) > 1 && word < (uintptr_t)1 << 47 &&
           mincore((void *)(word / page * page), 1, &resident) == 0;
}

/* Fails when the operator would be given a pointer of the host: one that staged_spans() lacks. */
static void assert_all_translated(const struct stage *stage, enum dpb_op op, const void *args)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= op_pointers_end(op); at += sizeof(uint64_t)) {
        const char *pointer = pointer_at(args, at);
        bool known = !is_pointer((uintptr_t)pointer);
        for (int i = 0; i < stage->count && !known; i++) {
            const struct region *region = &stage->region[i];
            known = pointer >= region->device &&
                    pointer < region->device + (region->end - region->host);
        }
        if (!known)
            fail_msg("%s: the array at byte %zu of its arguments is not staged", dpb_op_text(op),
                     at);
    }
}

static dpb_status op_launch(dpb_device *self, enum dpb_op op, const void *args, dpb_stream *stream)
{
    struct dpb_staged *staged = (struct dpb_staged *)self;
    const struct dpb_device_ops *ops = dpb_device_get_ops(staged->device);
    struct staged_span spans[STAGED_SPANS_MAX];
    struct stage stage = {.staged = staged};
    const size_t bytes = dpb_op_args_bytes(op);
    dpb_status st;
    (void)stream;

    const int count = staged_spans(op, args, spans);
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, args, bytes);
    find_regions(&stage, args, spans, count);
    DPB_TRY_GOTO(st, put_regions(&stage), done);
    translate(&stage, copy, spans, count);
    assert_all_translated(&stage, op, copy);
    DPB_TRY_GOTO(st, ops->op_launch(staged->device, op, copy, staged->stream), done);
    st = get_regions(&stage);
done:
    for (int i = 0; i < stage.count; i++) {
        if (stage.region[i].memory)
            ops->free(staged->device, stage.region[i].memory);
    }
    free(copy);
    return st;
}

static bool op_supported(dpb_device *self, enum dpb_op op, enum dpb_dtype dtype)
{
    struct dpb_staged *staged = (struct dpb_staged *)self;
    return dpb_device_get_ops(staged->device)->op_supported(staged->device, op, dtype);
}

static const struct dpb_device_ops STAGED = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "staged",
        .summary = "another device, from memory of the host",
        .op_supported = op_supported,
        .op_launch = op_launch,
};

dpb_device *staged_open(dpb_device *device)
{
    struct dpb_staged *staged = calloc(1, sizeof(*staged));
    if (!staged)
        return NULL;
    staged->base.ops = &STAGED;
    staged->device = device;
    if (dpb_device_get_ops(device)->stream_open(device, &staged->stream) != DPB_OK) {
        free(staged);
        return NULL;
    }
    return (dpb_device *)staged;
}

void staged_close(dpb_device *self)
{
    struct dpb_staged *staged = (struct dpb_staged *)self;
    if (!staged)
        return;
    dpb_device_get_ops(staged->device)->stream_close(staged->stream);
    free(staged);
}
