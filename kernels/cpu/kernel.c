/* A oneDNN primitive with its memory objects, and the table that keeps one per operator and
 * shapes. */
#include "cpu_device.h"

#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl_debug.h>

#include "dpb_log.h"

dpb_status dpb_cpu_vendor_error(dnnl_status_t status, const char *what, enum dpb_op op,
                                const void *args)
{
    char shapes[256];

    dpb_op_args_text(op, args, shapes, sizeof(shapes));
    dpb_error("oneDNN cannot %s operator \"%s\" on %s: %s", what, dpb_op_text(op), shapes,
              dnnl_status2str(status));
    dpb_log_hint("set DNNL_VERBOSE=2 to see what oneDNN tries");
    return status == dnnl_out_of_memory ? DPB_ERR_NO_MEMORY : DPB_ERR_VENDOR;
}

/* ---- one kernel ---- */

dnnl_status_t dpb_cpu_buffer_reserve(dpb_device *device, struct dpb_cpu_buffer *buffer,
                                     size_t bytes)
{
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    void *memory;

    if (bytes <= buffer->bytes)
        return dnnl_success;
    memory = aligned_alloc(4096, rounded);
    if (!memory)
        return dnnl_out_of_memory;
    free(buffer->memory); /* before the new pages are touched: both would be the peak */
    dpb_cpu_pages_touch(memory, rounded);
    buffer->memory = memory;
    buffer->bytes = rounded;
    device->counts.buffer_growths++;
    return dnnl_success;
}

/* The kernel frees `memory`, now or when the call fails. */
static dnnl_status_t add_memory(struct dpb_cpu_kernel *kernel, int dnnl_arg, dnnl_memory_t memory)
{
    if (kernel->arg_count == DPB_CPU_SLOTS) {
        dnnl_memory_destroy(memory);
        return dnnl_invalid_arguments;
    }
    kernel->args[kernel->arg_count++] = (dnnl_exec_arg_t){.arg = dnnl_arg, .memory = memory};
    return dnnl_success;
}

dnnl_status_t dpb_cpu_kernel_add(dpb_device *device, struct dpb_cpu_kernel *kernel, int dnnl_arg,
                                 const struct dpb_cpu_layout *layout)
{
    dnnl_memory_t memory;

    DNNL_TRY(dpb_onednn_memory_create(&memory, layout, device->engine));
    return add_memory(kernel, dnnl_arg, memory);
}

/* The same for a description of the primitive's own. */
static dnnl_status_t add_described(dpb_device *device, struct dpb_cpu_kernel *kernel, int dnnl_arg,
                                   dpb_onednn_memory_desc desc)
{
    dnnl_memory_t memory;

    DNNL_TRY(dnnl_memory_create(&memory, desc, device->engine, DNNL_MEMORY_NONE));
    return add_memory(kernel, dnnl_arg, memory);
}

/* The primitive's description of an argument. */
static dpb_onednn_memory_desc query(const struct dpb_cpu_kernel *kernel, int dnnl_arg)
{
    const_dnnl_primitive_desc_t desc;

    if (dnnl_primitive_get_primitive_desc(kernel->primitive, &desc) != dnnl_success)
        return NULL;
    return dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, dnnl_arg);
}

static dnnl_status_t add_scratchpad(dpb_device *device, struct dpb_cpu_kernel *kernel)
{
    dpb_onednn_memory_desc desc = query(kernel, DNNL_ARG_SCRATCHPAD);
    size_t bytes = desc ? dnnl_memory_desc_get_size(desc) : 0;

    if (bytes == 0)
        return dnnl_success;
    DNNL_TRY(dpb_cpu_buffer_reserve(device, &device->scratch, bytes));
    DNNL_TRY(add_described(device, kernel, DNNL_ARG_SCRATCHPAD, desc));
    kernel->scratchpad = kernel->args[kernel->arg_count - 1].memory;
    return dnnl_success;
}

static dnnl_status_t post_ops_set(dnnl_primitive_attr_t attr,
                                  const struct dpb_cpu_operation *operation)
{
    dnnl_post_ops_t post_ops;
    dnnl_status_t status;

    DNNL_TRY(dnnl_post_ops_create(&post_ops));
    status = dpb_onednn_post_ops_append(post_ops, operation);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

static dnnl_status_t desc_create(dpb_device *device, const struct dpb_cpu_operation *operation,
                                 const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status;

    DNNL_TRY(dnnl_primitive_attr_create(&attr));
    status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = post_ops_set(attr, operation);
    if (status == dnnl_success)
        status = dpb_onednn_primitive_desc_create(desc, operation, attr, device->engine, hint);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* The forward pass that oneDNN wants to see before a backward one: on tensors, none a gradient. */
static struct dpb_cpu_operation forward_of(const struct dpb_cpu_operation *backward)
{
    struct dpb_cpu_operation forward = *backward;

    forward.prop = dnnl_forward_training;
    forward.weights.type = forward.src.type; /* only the gradient of weights is fp32 always */
    forward.bias.ndims = 0;
    return forward;
}

static dnnl_status_t primitive_desc_create(dpb_device *device,
                                           const struct dpb_cpu_operation *operation,
                                           dnnl_primitive_desc_t *desc)
{
    struct dpb_cpu_operation forward;
    dnnl_primitive_desc_t hint;
    dnnl_status_t status;

    if (operation->prop != dnnl_backward_data && operation->prop != dnnl_backward_weights)
        return desc_create(device, operation, NULL, desc);
    forward = forward_of(operation);
    DNNL_TRY(desc_create(device, &forward, NULL, &hint));
    status = desc_create(device, operation, hint, desc);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

bool dpb_cpu_implementation_has(dpb_device *device, const struct dpb_cpu_operation *operation,
                                const char *part)
{
    dnnl_primitive_desc_t desc;
    const char *name = NULL;
    bool has;

    if (primitive_desc_create(device, operation, &desc) != dnnl_success)
        return false;
    has = dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
          name && strstr(name, part);
    dnnl_primitive_desc_destroy(desc);
    return has;
}

dnnl_status_t dpb_cpu_kernel_create(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                    const struct dpb_cpu_operation *operation)
{
    dnnl_primitive_desc_t desc;
    dnnl_status_t status;

    DNNL_TRY(primitive_desc_create(device, operation, &desc));
    status = dnnl_primitive_create(&kernel->primitive, desc);
    dnnl_primitive_desc_destroy(desc);
    return status == dnnl_success ? add_scratchpad(device, kernel) : status;
}

static dnnl_status_t reorder_create(dpb_device *device, struct dpb_cpu_packing *packing,
                                    dpb_onednn_memory_desc plain, dpb_onednn_memory_desc packed)
{
    dnnl_primitive_desc_t desc;
    dnnl_status_t status;

    DNNL_TRY(dnnl_reorder_primitive_desc_create(&desc, packing->is_output ? packed : plain,
                                                device->engine, packing->is_output ? plain : packed,
                                                device->engine, NULL));
    status = dnnl_primitive_create(&packing->reorder, desc);
    dnnl_primitive_desc_destroy(desc);
    return status;
}

dnnl_status_t dpb_cpu_kernel_add_packed(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                        int dnnl_arg, const struct dpb_cpu_layout *plain,
                                        bool is_output)
{
    dpb_onednn_memory_desc wanted = query(kernel, dnnl_arg), ours = NULL;
    struct dpb_cpu_packing *packing = &kernel->packing[kernel->packing_count];
    dnnl_memory_t memory;

    if (!wanted || kernel->packing_count == DPB_CPU_PACKINGS)
        return dnnl_invalid_arguments;
    DNNL_TRY(dpb_onednn_memory_create(&memory, plain, device->engine));
    if (dnnl_memory_get_memory_desc(memory, &ours) == dnnl_success &&
        dnnl_memory_desc_equal(ours, wanted))
        return add_memory(kernel, dnnl_arg, memory);

    kernel->packing_count++;
    packing->plain = memory;
    packing->is_output = is_output;
    DNNL_TRY(add_described(device, kernel, dnnl_arg, wanted));
    packing->packed = kernel->args[kernel->arg_count - 1].memory;
    packing->offset = kernel->packed_bytes;
    kernel->packed_bytes += (dnnl_memory_desc_get_size(wanted) + 4095) & ~(size_t)4095;
    DNNL_TRY(dpb_cpu_buffer_reserve(device, &device->packed, kernel->packed_bytes));
    return reorder_create(device, packing, ours, wanted);
}

void dpb_cpu_kernel_set(struct dpb_cpu_kernel *kernel, int dnnl_arg, const void *data)
{
    for (int i = 0; i < kernel->arg_count; i++) {
        dnnl_memory_t memory = kernel->args[i].memory;

        if (kernel->args[i].arg != dnnl_arg)
            continue;
        for (int j = 0; j < kernel->packing_count; j++)
            if (memory == kernel->packing[j].packed)
                memory = kernel->packing[j].plain;
        /* oneDNN has one type for inputs and outputs. It only fails for runtime shapes. */
        dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data);
        return;
    }
}

/* The reorders before the primitive (inputs), or after it (outputs). */
static dnnl_status_t run_reorders(dpb_device *device, const struct dpb_cpu_kernel *kernel,
                                  bool outputs)
{
    for (int i = 0; i < kernel->packing_count; i++) {
        const struct dpb_cpu_packing *packing = &kernel->packing[i];
        const dnnl_exec_arg_t args[] = {
                {DNNL_ARG_FROM, outputs ? packing->packed : packing->plain},
                {DNNL_ARG_TO, outputs ? packing->plain : packing->packed},
        };

        if (packing->is_output == outputs)
            DNNL_TRY(dnnl_primitive_execute(packing->reorder, device->stream, 2, args));
    }
    return dnnl_success;
}

dnnl_status_t dpb_cpu_kernel_run(dpb_device *device, struct dpb_cpu_kernel *kernel)
{
    /* The buffers may have moved since the last run: another kernel has grown them. */
    if (kernel->scratchpad)
        DNNL_TRY(dnnl_memory_set_data_handle(kernel->scratchpad, device->scratch.memory));
    for (int i = 0; i < kernel->packing_count; i++)
        DNNL_TRY(dnnl_memory_set_data_handle(kernel->packing[i].packed,
                                             (char *)device->packed.memory +
                                                     kernel->packing[i].offset));
    DNNL_TRY(run_reorders(device, kernel, false));
    DNNL_TRY(dnnl_primitive_execute(kernel->primitive, device->stream, kernel->arg_count,
                                    kernel->args));
    DNNL_TRY(run_reorders(device, kernel, true));
    return dnnl_stream_wait(device->stream);
}

void dpb_cpu_kernel_free(struct dpb_cpu_kernel *kernel)
{
    if (!kernel)
        return;
    for (int i = 0; i < kernel->arg_count; i++)
        dnnl_memory_destroy(kernel->args[i].memory);
    for (int i = 0; i < kernel->packing_count; i++) {
        if (kernel->packing[i].plain)
            dnnl_memory_destroy(kernel->packing[i].plain);
        if (kernel->packing[i].reorder)
            dnnl_primitive_destroy(kernel->packing[i].reorder);
    }
    if (kernel->primitive)
        dnnl_primitive_destroy(kernel->primitive);
    free(kernel);
}

/* ---- the table ---- */

static unsigned bucket_of(const struct dpb_cpu_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < sizeof(*key); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return (unsigned)((hash ^ hash >> 32) % DPB_CPU_BUCKETS);
}

dpb_status dpb_cpu_kernel_get(dpb_device *device, const struct dpb_cpu_key *key,
                              dpb_cpu_kernel_maker make, enum dpb_op op, const void *args,
                              struct dpb_cpu_kernel **kernel)
{
    struct dpb_cpu_kernel **bucket = &device->bucket[bucket_of(key)], *made;
    dnnl_status_t status;

    for (struct dpb_cpu_kernel *at = *bucket; at; at = at->next) {
        if (memcmp(&at->key, key, sizeof(*key)) == 0) {
            *kernel = at;
            return DPB_OK;
        }
    }
    made = calloc(1, sizeof(*made));
    if (!made)
        return dpb_cpu_vendor_error(dnnl_out_of_memory, "prepare", op, args);
    made->key = *key;
    status = make(device, made, op, args);
    if (status != dnnl_success) {
        dpb_cpu_kernel_free(made);
        return dpb_cpu_vendor_error(status, "prepare", op, args);
    }
    made->next = *bucket;
    *bucket = made;
    device->counts.kernels++;
    *kernel = made;
    return DPB_OK;
}

void dpb_cpu_kernels_free(dpb_device *device)
{
    for (int i = 0; i < DPB_CPU_BUCKETS; i++) {
        while (device->bucket[i]) {
            struct dpb_cpu_kernel *kernel = device->bucket[i];

            device->bucket[i] = kernel->next;
            dpb_cpu_kernel_free(kernel);
        }
    }
    free(device->scratch.memory);
    free(device->packed.memory);
    free(device->between.memory);
    device->scratch = device->packed = device->between = (struct dpb_cpu_buffer){0};
}
