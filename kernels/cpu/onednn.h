/* onednn.h: where the C interfaces of oneDNN 2 and 3 differ. CMake compiles onednn2.c or onednn3.c
 * for the one that it finds. Private to this folder. */
#ifndef DPB_ONEDNN_H
#define DPB_ONEDNN_H

#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

#define DNNL_TRY(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t dnnl_try_st_ = (call);                                                       \
        if (dnnl_try_st_ != dnnl_success)                                                          \
            return dnnl_try_st_;                                                                   \
    } while (0)

/* oneDNN's own description of a tensor, borrowed from the memory or primitive that holds it. */
#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *dpb_onednn_memory_desc;
#else
typedef const_dnnl_memory_desc_t dpb_onednn_memory_desc;
#endif

/* Ours, a plain value: how a tensor lies, or dnnl_format_tag_any for as oneDNN likes it. */
struct dpb_cpu_layout {
    int ndims; /* 0: there is no such tensor */
    dnnl_dims_t dims;
    dnnl_data_type_t type;
    dnnl_format_tag_t tag; /* dnnl_format_tag_undef: `strides` say it */
    dnnl_dims_t strides;   /* in elements */
};

/* What a primitive computes. Of a backward pass, each tensor that it makes or takes a gradient of
 * stands for that gradient. */
struct dpb_cpu_operation {
    dnnl_primitive_kind_t kind; /* dnnl_matmul, dnnl_eltwise or dnnl_convolution */
    dnnl_prop_kind_t prop;      /* not of dnnl_matmul */
    dnnl_alg_kind_t algorithm;  /* not of dnnl_matmul */
    struct dpb_cpu_layout src, weights, bias, dst;
    dnnl_dims_t strides, pads; /* of dnnl_convolution; pads at both ends */
    float sum;                 /* times dst as it was, added to the result; 0: nothing is added */
    bool relu;                 /* of the result, at last */
};

/* Memory that lies so, without data: dnnl_memory_set_data_handle() gives it. The caller destroys
 * it. */
dnnl_status_t dpb_onednn_memory_create(dnnl_memory_t *memory, const struct dpb_cpu_layout *layout,
                                       dnnl_engine_t engine);

/* Append operation->sum and operation->relu. */
dnnl_status_t dpb_onednn_post_ops_append(dnnl_post_ops_t post_ops,
                                         const struct dpb_cpu_operation *operation);

/* The descriptor of a primitive, which the caller destroys. `hint` is that of the forward pass, for
 * a backward one; else NULL. */
dnnl_status_t dpb_onednn_primitive_desc_create(dnnl_primitive_desc_t *desc,
                                               const struct dpb_cpu_operation *operation,
                                               const_dnnl_primitive_attr_t attr,
                                               dnnl_engine_t engine,
                                               const_dnnl_primitive_desc_t hint);

#endif
