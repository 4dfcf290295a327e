#include "fake_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cudart.h"
#include "fake_number.h"

#define ATTRIBUTES_MAX  24
#define OPERATIONS_MAX  4
#define TENSORS_MAX     16
#define ENGINES         2
#define WORKSPACE_BYTES 512 /* of the engine 1; the engine 0 needs none */

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *data;
};

struct descriptor {
    int references; /* the caller's, and attributes of others */
    cudnnBackendDescriptorType_t type;
    bool finalized;
    int count;
    struct attribute attribute[ATTRIBUTES_MAX];
    int64_t engine; /* of a configuration, an engine and a plan */
};

struct handle {
    cudaStream_t stream;
};

static char last_error[256];
static bool fuses = true;
static int64_t launches;

void fake_cudnn_set_fuses(bool given)
{
    fuses = given;
}

int64_t fake_cudnn_launches(void)
{
    return launches;
}

static cudnnStatus_t refuse(cudnnStatus_t status, const char *why)
{
    snprintf(last_error, sizeof(last_error), "%s", why);
    return status;
}

static cudnnStatus_t begin(const char *call)
{
    return fake_cuda_fails(call) ? refuse(CUDNN_STATUS_INTERNAL_ERROR, "made to fail")
                                 : CUDNN_STATUS_SUCCESS;
}

#define BEGIN(call)                                                                                \
    do {                                                                                           \
        cudnnStatus_t begun_ = begin(call);                                                        \
        if (begun_ != CUDNN_STATUS_SUCCESS)                                                        \
            return begun_;                                                                         \
    } while (0)

/* ---- the library ---- */

static size_t get_version(void)
{
    return CUDNN_VERSION;
}

static const char *error_string(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

static void last_error_string(char *message, size_t bytes)
{
    snprintf(message, bytes, "%s", last_error);
    last_error[0] = '\0';
}

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    struct handle *made;

    BEGIN("cudnnCreate");
    made = calloc(1, sizeof(*made));
    if (!made)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    fake_cuda_handle(FAKE_CUDNN, 1);
    *handle = (cudnnHandle_t)made;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    cudnnStatus_t status = begin("cudnnDestroy");

    free(handle);
    fake_cuda_handle(FAKE_CUDNN, -1);
    return status;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    BEGIN("cudnnSetStream");
    ((struct handle *)handle)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

static size_t element_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4; /* float, int32 and enumerations */
    }
}

static void release(struct descriptor *descriptor);

static void drop_attribute(struct attribute *attribute)
{
    if (attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < attribute->count; i++)
            release(((struct descriptor **)attribute->data)[i]);
    }
    free(attribute->data);
}

static void release(struct descriptor *descriptor)
{
    if (--descriptor->references > 0)
        return;
    for (int i = 0; i < descriptor->count; i++)
        drop_attribute(&descriptor->attribute[i]);
    free(descriptor);
}

static cudnnStatus_t make_descriptor(cudnnBackendDescriptorType_t type,
                                     cudnnBackendDescriptor_t *descriptor)
{
    struct descriptor *made;

    BEGIN("cudnnBackendCreateDescriptor");
    made = calloc(1, sizeof(*made));
    if (!made)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    *made = (struct descriptor){.references = 1, .type = type};
    fake_cuda_handle(FAKE_CUDNN, 1);
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor)
{
    cudnnStatus_t status = begin("cudnnBackendDestroyDescriptor");

    if (!descriptor)
        return refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor");
    release(descriptor);
    fake_cuda_handle(FAKE_CUDNN, -1);
    return status;
}

static const struct attribute *find(const struct descriptor *descriptor,
                                    cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < descriptor->count; i++) {
        if (descriptor->attribute[i].name == name)
            return &descriptor->attribute[i];
    }
    return NULL;
}

static struct descriptor *child(const struct descriptor *descriptor,
                                cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = find(descriptor, name);

    return attribute && attribute->count > 0 ? *(struct descriptor **)attribute->data : NULL;
}

static int64_t number(const struct descriptor *descriptor, cudnnBackendAttributeName_t name,
                      int index, int64_t otherwise)
{
    const struct attribute *attribute = find(descriptor, name);
    int32_t narrow;

    if (!attribute || index >= attribute->count)
        return otherwise;
    if (element_bytes(attribute->type) == 8)
        return ((const int64_t *)attribute->data)[index];
    if (element_bytes(attribute->type) == 1)
        return ((const unsigned char *)attribute->data)[index];
    memcpy(&narrow, (const char *)attribute->data + 4 * index, sizeof(narrow));
    return narrow;
}

static float single(const struct descriptor *descriptor, cudnnBackendAttributeName_t name,
                    float otherwise)
{
    const struct attribute *attribute = find(descriptor, name);

    return attribute && attribute->type == CUDNN_TYPE_FLOAT ? *(const float *)attribute->data
                                                            : otherwise;
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t handle,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *elements)
{
    struct descriptor *descriptor = handle;
    size_t bytes = (size_t)count * element_bytes(type);
    struct attribute attribute = {name, type, count, NULL};
    int at = 0;

    BEGIN("cudnnBackendSetAttribute");
    if (descriptor->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const struct descriptor *given = ((struct descriptor *const *)elements)[i];

        if (!given || !given->finalized)
            return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
    }
    while (at < descriptor->count && descriptor->attribute[at].name != name)
        at++;
    if (at == ATTRIBUTES_MAX)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "too many attributes for this fake");
    attribute.data = malloc(bytes + 1);
    if (!attribute.data)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(attribute.data, elements, bytes);
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        ((struct descriptor **)attribute.data)[i]->references++;
    if (at < descriptor->count)
        drop_attribute(&descriptor->attribute[at]);
    else
        descriptor->count++;
    descriptor->attribute[at] = attribute;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- operations: what each reads and writes ---- */

struct slot {
    cudnnBackendAttributeName_t name;
    bool writes;
};

struct operation_form {
    cudnnBackendDescriptorType_t type;
    struct slot slot[3]; /* convolutions: x, w, y */
    cudnnBackendAttributeName_t conv;
    cudnnBackendAttributeName_t alpha, beta;
};

static const struct operation_form forms[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, true}},
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, true},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, false}},
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, false},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, true},
          {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, false}},
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static const struct operation_form *form_of(const struct descriptor *operation)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (forms[i].type == operation->type)
            return &forms[i];
    }
    return NULL;
}

static int64_t dim(const struct descriptor *tensor, int index)
{
    return number(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, index, 0);
}

static bool is_virtual(const struct descriptor *tensor)
{
    return number(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0, 0) != 0;
}

static cudnnStatus_t check_convolution(const struct descriptor *operation,
                                       const struct operation_form *form)
{
    const struct descriptor *tensor[3], *conv = child(operation, form->conv);

    for (int i = 0; i < 3; i++) {
        tensor[i] = child(operation, form->slot[i].name);
        if (!tensor[i])
            return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution lacks a tensor");
    }
    if (!conv || number(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0, -1) != CUDNN_CROSS_CORRELATION)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not a cross-correlation");
    if (dim(tensor[0], 0) != dim(tensor[2], 0) || dim(tensor[0], 1) != dim(tensor[1], 1) ||
        dim(tensor[1], 0) != dim(tensor[2], 1))
        return refuse(CUDNN_STATUS_BAD_PARAM, "channels or images of a convolution do not fit");
    for (int i = 0; i < 2; i++) {
        int64_t padded = dim(tensor[0], 2 + i) +
                         number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i, 0) +
                         number(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i, 0);
        int64_t stride = number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i, 0);

        if (number(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, i, 1) != 1)
            return refuse(CUDNN_STATUS_NOT_SUPPORTED, "dilation");
        if (stride < 1 || padded < dim(tensor[1], 2 + i) ||
            (padded - dim(tensor[1], 2 + i)) / stride + 1 != dim(tensor[2], 2 + i))
            return refuse(CUDNN_STATUS_BAD_PARAM, "is_valid_spatial_dim");
    }
    if (single(operation, form->alpha, 0) != 1 || single(operation, form->beta, -1) != 0)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "alpha is not 1 or beta is not 0");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_tensor(const struct descriptor *tensor)
{
    const struct attribute *dims = find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const struct attribute *strides = find(tensor, CUDNN_ATTR_TENSOR_STRIDES);

    if (!dims || !strides || dims->count != 4 || strides->count != 4 ||
        !find(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID) || !find(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE))
        return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor lacks dimensions, strides, type or number");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t handle)
{
    struct descriptor *descriptor = handle;
    const struct operation_form *form = form_of(descriptor);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    BEGIN("cudnnBackendFinalize");
    if (form)
        status = check_convolution(descriptor, form);
    else if (descriptor->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        status = check_tensor(descriptor);
    else if (descriptor->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        descriptor->engine = child(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
    descriptor->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* ---- engines ---- */

static bool engine_can(const struct descriptor *graph)
{
    const struct attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct descriptor *const *list = operations ? operations->data : NULL;

    if (!operations || operations->count < 1 || operations->count > OPERATIONS_MAX ||
        (operations->count > 1 && !fuses) || !form_of(list[0]))
        return false;
    for (int64_t i = 1; i < operations->count; i++) {
        if (list[i]->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            return false;
    }
    return true;
}

static cudnnStatus_t take_configs(const struct descriptor *heuristics, int64_t requested,
                                  int64_t *count, struct descriptor **configs)
{
    struct descriptor *graph = child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t engines = graph && engine_can(graph) ? ENGINES : 0;

    *count = requested == 0 || engines < requested ? engines : requested;
    for (int64_t i = 0; i < *count && requested > 0; i++) {
        struct attribute *attribute = &configs[i]->attribute[0];

        *attribute = (struct attribute){CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, malloc(sizeof(graph))};
        if (!attribute->data)
            return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        memcpy(attribute->data, &graph, sizeof(graph));
        graph->references++;
        configs[i]->count = 1;
        configs[i]->engine = i;
        configs[i]->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t handle,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t requested,
                                   int64_t *count, void *elements)
{
    const struct descriptor *descriptor = handle;

    (void)type;
    BEGIN("cudnnBackendGetAttribute");
    if (!descriptor->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return take_configs(descriptor, requested, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct descriptor **)elements)->engine = descriptor->engine;
        (*(struct descriptor **)elements)->finalized = true;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)elements = descriptor->engine;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = 0;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)elements = descriptor->engine * WORKSPACE_BYTES;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    default:
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this fake does not know the attribute");
    }
}

/* ---- running: a copy of the graph with memory in place of numbers ---- */

struct tensor {
    int64_t uid, dim[4], stride[4];
    enum dpb_dtype dtype;
    void *data;     /* NULL: virtual */
    double *values; /* dense, n h w c, while it runs */
};

struct operation {
    const struct operation_form *form; /* NULL: pointwise */
    int mode;                          /* cudnnPointwiseMode_t */
    int tensor[3];                     /* pointwise: x or dy, b or x or none (-1), y */
    int64_t pad[2], step[2];
};

struct launch {
    struct tensor tensor[TENSORS_MAX];
    struct operation operation[OPERATIONS_MAX];
    int tensors, operations;
};

static int64_t numel(const struct tensor *tensor)
{
    return tensor->dim[0] * tensor->dim[1] * tensor->dim[2] * tensor->dim[3];
}

static void move(struct tensor *t, bool to_memory)
{
    int64_t at = 0;

    for (int64_t n = 0; n < t->dim[0]; n++)
        for (int64_t h = 0; h < t->dim[2]; h++)
            for (int64_t w = 0; w < t->dim[3]; w++)
                for (int64_t c = 0; c < t->dim[1]; c++, at++) {
                    int64_t place = n * t->stride[0] + c * t->stride[1] + h * t->stride[2] +
                                    w * t->stride[3];

                    if (to_memory)
                        fake_store(t->data, t->dtype, place, t->values[at]);
                    else
                        t->values[at] = fake_load(t->data, t->dtype, place);
                }
}

static double *need(struct tensor *tensor, bool load)
{
    if (tensor->values)
        return tensor->values;
    tensor->values = calloc((size_t)numel(tensor), sizeof(double));
    if (!tensor->values)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    if (load && tensor->data)
        move(tensor, false);
    return tensor->values;
}

/* One of x, w and y is summed to: y += x w, x += y w, or w += x y, at every place where a filter
 * meets an image. */
static void meet(const struct slot slot[3], double *x, double *w, double *y, int64_t channels)
{
    if (slot[2].writes)
        *y += fake_dot(x, w, channels);
    else if (slot[0].writes)
        fake_add_scaled(x, *y, w, channels);
    else
        fake_add_scaled(w, *y, x, channels);
}

static void convolve(struct launch *launch, const struct operation *operation)
{
    struct tensor *x = &launch->tensor[operation->tensor[0]];
    struct tensor *w = &launch->tensor[operation->tensor[1]];
    struct tensor *y = &launch->tensor[operation->tensor[2]];
    const struct slot *slot = operation->form->slot;
    double *xs = need(x, !slot[0].writes), *ws = need(w, !slot[1].writes);
    double *ys = need(y, !slot[2].writes);
    const int64_t channels = x->dim[1], rows = w->dim[2], columns = w->dim[3];

    for (int64_t n = 0; n < y->dim[0]; n++)
        for (int64_t p = 0; p < y->dim[2]; p++)
            for (int64_t q = 0; q < y->dim[3]; q++)
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t s = 0; s < columns; s++) {
                        int64_t h = p * operation->step[0] - operation->pad[0] + r;
                        int64_t v = q * operation->step[1] - operation->pad[1] + s;

                        if (h < 0 || h >= x->dim[2] || v < 0 || v >= x->dim[3])
                            continue;
                        for (int64_t k = 0; k < y->dim[1]; k++)
                            meet(slot, xs + ((n * x->dim[2] + h) * x->dim[3] + v) * channels,
                                 ws + ((k * rows + r) * columns + s) * channels,
                                 ys + ((n * y->dim[2] + p) * y->dim[3] + q) * y->dim[1] + k,
                                 channels);
                    }
}

/* Element `at` of a tensor in one that may have 1 in place of a dimension. */
static int64_t broadcast(const struct tensor *from, const struct tensor *to, int64_t at)
{
    static const int order[4] = {1, 3, 2, 0}; /* fastest first */
    int64_t place = 0, scale = 1;

    for (int i = 0; i < 4; i++) {
        int d = order[i];
        int64_t index = at % to->dim[d];

        at /= to->dim[d];
        if (from->dim[d] > 1)
            place += index * scale;
        scale *= from->dim[d];
    }
    return place;
}

static void point(struct launch *launch, const struct operation *operation)
{
    struct tensor *x = &launch->tensor[operation->tensor[0]];
    struct tensor *b = operation->tensor[1] < 0 ? NULL : &launch->tensor[operation->tensor[1]];
    struct tensor *y = &launch->tensor[operation->tensor[2]];
    double *xs = need(x, true), *bs = b ? need(b, true) : NULL, *ys = need(y, false);

    for (int64_t i = 0; i < numel(y); i++) {
        double first = xs[broadcast(x, y, i)], second = b ? bs[broadcast(b, y, i)] : 0;

        if (operation->mode == CUDNN_POINTWISE_ADD)
            ys[i] = first + second;
        else if (operation->mode == CUDNN_POINTWISE_RELU_FWD)
            ys[i] = first > 0 ? first : 0;
        else
            ys[i] = second > 0 ? first : 0; /* dy where x was above 0 */
    }
}

static bool run(void *context)
{
    struct launch *launch = context;

    for (int i = 0; i < launch->operations; i++) {
        struct operation *operation = &launch->operation[i];
        struct tensor *written;

        if (operation->form)
            convolve(launch, operation);
        else
            point(launch, operation);
        for (int s = 0; s < 3; s++) {
            if (operation->form ? !operation->form->slot[s].writes : s != 2)
                continue;
            written = &launch->tensor[operation->tensor[s]];
            if (written->data)
                move(written, true);
        }
    }
    for (int i = 0; i < launch->tensors; i++) {
        free(launch->tensor[i].values);
        launch->tensor[i].values = NULL;
    }
    return true;
}

/* ---- launching ---- */

static cudnnStatus_t place_tensor(struct launch *launch, const struct descriptor *tensor,
                                  const struct descriptor *pack, int *placed)
{
    const struct attribute *uids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t uid = number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0, 0), last = 0;
    int64_t alignment = number(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 1);
    struct tensor *made = &launch->tensor[launch->tensors];

    for (*placed = 0; *placed < launch->tensors; (*placed)++) {
        if (launch->tensor[*placed].uid == uid)
            return CUDNN_STATUS_SUCCESS;
    }
    if (launch->tensors == TENSORS_MAX)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "too many tensors for this fake");
    *made = (struct tensor){.uid = uid};
    for (int d = 0; d < 4; d++) {
        made->dim[d] = dim(tensor, d);
        made->stride[d] = number(tensor, CUDNN_ATTR_TENSOR_STRIDES, d, 0);
        last += (made->dim[d] - 1) * made->stride[d];
    }
    switch (number(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, -1)) {
    case CUDNN_DATA_FLOAT:
        made->dtype = DPB_F32;
        break;
    case CUDNN_DATA_BFLOAT16:
        made->dtype = DPB_BF16;
        break;
    case CUDNN_DATA_HALF:
        made->dtype = DPB_F16;
        break;
    default:
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a type that this fake does not know");
    }
    for (int64_t i = 0; uids && pointers && !is_virtual(tensor) && i < uids->count; i++) {
        if (((const int64_t *)uids->data)[i] == uid)
            made->data = ((void *const *)pointers->data)[i];
    }
    if (!is_virtual(tensor)) {
        if (!made->data)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has no memory");
        if ((uintptr_t)made->data % (uintptr_t)alignment != 0)
            return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                          "memory has not the alignment of its descriptor");
        fake_cuda_check_device("a tensor of cuDNN", made->data,
                               (size_t)(last + 1) * dpb_dtype_bytes(made->dtype));
    }
    launch->tensors++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t place_operation(struct launch *launch, const struct descriptor *given,
                                     const struct descriptor *pack)
{
    struct operation *operation = &launch->operation[launch->operations++];
    const struct descriptor *tensor[3];

    operation->form = form_of(given);
    if (operation->form) {
        const struct descriptor *conv = child(given, operation->form->conv);

        for (int i = 0; i < 3; i++)
            tensor[i] = child(given, operation->form->slot[i].name);
        for (int i = 0; i < 2; i++) {
            operation->pad[i] = number(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i, 0);
            operation->step[i] = number(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i, 1);
        }
    } else {
        operation->mode = (int)number(child(given, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                                      CUDNN_ATTR_POINTWISE_MODE, 0, -1);
        if (operation->mode == CUDNN_POINTWISE_RELU_BWD) {
            tensor[0] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
            tensor[1] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
            tensor[2] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
        } else {
            tensor[0] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
            tensor[1] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
            tensor[2] = child(given, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        }
        if (operation->mode != CUDNN_POINTWISE_ADD && operation->mode != CUDNN_POINTWISE_RELU_FWD &&
            operation->mode != CUDNN_POINTWISE_RELU_BWD)
            return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a pointwise mode that is not modelled");
    }
    for (int i = 0; i < 3; i++) {
        cudnnStatus_t status;

        operation->tensor[i] = -1;
        if (!tensor[i])
            continue;
        status = place_tensor(launch, tensor[i], pack, &operation->tensor[i]);
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_workspace(const struct descriptor *plan, const struct descriptor *pack)
{
    const struct attribute *workspace = find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    size_t bytes = (size_t)plan->engine * WORKSPACE_BYTES;

    if (bytes == 0)
        return CUDNN_STATUS_SUCCESS;
    if (!workspace || !*(void *const *)workspace->data)
        return refuse(CUDNN_STATUS_BAD_PARAM, "no workspace");
    fake_cuda_check_device("cuDNN's workspace", *(void *const *)workspace->data, bytes);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                             cudnnBackendDescriptor_t pack_handle)
{
    const struct descriptor *plan = plan_handle, *pack = pack_handle;
    const struct descriptor *config, *graph;
    const struct attribute *operations;
    struct launch *launch;
    cudnnStatus_t status;

    BEGIN("cudnnBackendExecute");
    if (!plan->finalized || !pack->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
    config = child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    graph = child(config, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    status = check_workspace(plan, pack);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    launch = calloc(1, sizeof(*launch));
    if (!launch)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    for (int64_t i = 0; status == CUDNN_STATUS_SUCCESS && i < operations->count; i++)
        status = place_operation(launch, ((struct descriptor **)operations->data)[i], pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        free(launch);
        return status;
    }
    launches++;
    return fake_cuda_enqueue(((struct handle *)handle)->stream,
                             &(struct fake_cuda_work){.name = "graph of cuDNN",
                                                      .run = run,
                                                      .release = free,
                                                      .context = launch}) == cudaSuccess
                   ? CUDNN_STATUS_SUCCESS
                   : CUDNN_STATUS_EXECUTION_FAILED;
}

const struct dpb_cudnn fake_cudnn = {
        .cudnnGetVersion = get_version,
        .cudnnGetErrorString = error_string,
        .cudnnGetLastErrorString = last_error_string,
        .cudnnCreate = create,
        .cudnnDestroy = destroy,
        .cudnnSetStream = set_stream,
        .cudnnBackendCreateDescriptor = make_descriptor,
        .cudnnBackendDestroyDescriptor = destroy_descriptor,
        .cudnnBackendFinalize = finalize,
        .cudnnBackendSetAttribute = set_attribute,
        .cudnnBackendGetAttribute = get_attribute,
        .cudnnBackendExecute = execute,
};
