/* cpu_device.h: what the files of the CPU device share. Private to this folder. */
#ifndef DPB_CPU_DEVICE_H
#define DPB_CPU_DEVICE_H

#include <pthread.h>

#include "dpb_device_cpu.h"
#include "dpb_reference.h"
#include "onednn.h"

/* ---- threads: the OpenMP pool that oneDNN uses, for our own loops too ---- */

typedef void (*dpb_cpu_body)(void *ctx, int64_t begin, int64_t end);

/* Threads that oneDNN's regions and ours take when the calling thread starts them. Cheap; called
 * before every operator, because OpenMP keeps the number per thread. */
void dpb_cpu_threads_set(int threads);

/* How many threads a region gets that asks for `threads`: fewer with OMP_THREAD_LIMIT or
 * OMP_MAX_ACTIVE_LEVELS. oneDNN 2.6 then leaves out the parts of the others. Turns off OMP_DYNAMIC,
 * which may give fewer at any time. */
int dpb_cpu_threads_given(int threads);

/* Has OMP_PROC_BIND or OMP_PLACES made OpenMP bind its threads itself? */
bool dpb_cpu_threads_bound_by_openmp(void);

/* Call body(ctx, begin, end) over [0, count) in equal parts on up to `threads` threads, with at
 * least `grain` elements each; returns when all are done. */
void dpb_cpu_parallel(int threads, int64_t count, int64_t grain, dpb_cpu_body body, void *ctx);

/* Call body(ctx, i, i + 1) with thread i of the pool, for each of `threads` threads. */
void dpb_cpu_each_thread(int threads, dpb_cpu_body body, void *ctx);

/* ---- memory ---- */

/* Zero new memory, so that all its pages are there, in huge pages where the system gives them. */
void dpb_cpu_pages_touch(void *memory, size_t bytes);

/* ---- binding ---- */

struct dpb_cpu_binding {
    int *pu; /* operating system's numbers of the CPUs the threads are bound to, `count` of them */
    int count;
    int cores;       /* cores this process may use */
    int numa_node;   /* of the first CPU; -1 when not known */
    bool shared;     /* the ranks' threads do not fit the cores: some share one */
    char reason[96]; /* why count is 0 */
    struct dpb_cpu_binding_state *state; /* what close needs to undo it; NULL when nothing is */
};

/* Bind thread i of the pool to core local_rank * threads + i, modulo the cores this process may
 * use. A system that refuses is no failure: warned of, and said in `reason`. */
dpb_status dpb_cpu_binding_open(struct dpb_cpu_binding *binding,
                                const struct dpb_device_config *config);
/* Give the threads back the CPUs they had before. */
void dpb_cpu_binding_close(struct dpb_cpu_binding *binding);

/* ---- oneDNN primitives, made once for each operator and shapes ---- */

/* Of fp32 and bf16. */
static inline dnnl_data_type_t dpb_cpu_data_type(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? dnnl_bf16 : dnnl_f32;
}

#define DPB_CPU_SLOTS 10

#define DPB_CPU_PACKINGS 3

/* What tells two primitives apart. Compared as bytes: zero it before filling. */
struct dpb_cpu_key {
    int32_t op;
    uint32_t flags;
    int64_t dim[14];
    float number[2]; /* matmul: beta; batchnorm: eps */
};

/* A plain tensor of ours and the layout a primitive wants it in. */
struct dpb_cpu_packing {
    dnnl_primitive_t reorder;
    dnnl_memory_t plain, packed; /* packed is borrowed from the kernel's args */
    size_t offset;               /* of packed, in the device's buffer */
    bool is_output;              /* plain is made from packed, after the primitive */
};

struct dpb_cpu_kernel {
    struct dpb_cpu_key key;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[DPB_CPU_SLOTS]; /* own their memory objects, without data */
    int arg_count;
    dnnl_memory_t scratchpad; /* one of args; NULL when none is needed */
    struct dpb_cpu_packing packing[DPB_CPU_PACKINGS];
    int packing_count;
    size_t packed_bytes;
    struct dpb_cpu_kernel *next; /* in its bucket */
};

/* Memory that all kernels use in turn: it stays in the cache, and grows only when a kernel is
 * made. */
struct dpb_cpu_buffer {
    void *memory;
    size_t bytes;
};

#define DPB_CPU_BUCKETS 256

struct dpb_device {
    struct dpb_device_base base;
    struct dpb_device_cpu_options options;
    int threads;
    bool has_avx512; /* and oneDNN may use it */
    struct dpb_cpu_binding binding;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    pthread_mutex_t lock; /* over kernels, buffers and the oneDNN stream */
    struct dpb_cpu_kernel *bucket[DPB_CPU_BUCKETS];
    /* between: what an operator of several steps hands from one to the next */
    struct dpb_cpu_buffer scratch, packed, between;
    struct dpb_device_cpu_counts counts;
};

/* A oneDNN failure as a logged DPB_ERR_VENDOR: what was tried, for which operator and shapes. */
dpb_status dpb_cpu_vendor_error(dnnl_status_t status, const char *what, enum dpb_op op,
                                const void *args);

/* Make the primitive of `kernel`; adds its scratchpad. On failure the caller frees the kernel. */
dnnl_status_t dpb_cpu_kernel_create(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                    const struct dpb_cpu_operation *operation);
/* Is the implementation that oneDNN takes for the operation called something with `part`? */
bool dpb_cpu_implementation_has(dpb_device *device, const struct dpb_cpu_operation *operation,
                                const char *part);
/* Add an argument, DNNL_ARG_SRC, ...; its data comes with dpb_cpu_kernel_set() before each run. */
dnnl_status_t dpb_cpu_kernel_add(dpb_device *device, struct dpb_cpu_kernel *kernel, int dnnl_arg,
                                 const struct dpb_cpu_layout *layout);
/* The same for a tensor that we keep as `plain`: it is packed before the primitive, or unpacked
 * after it, when the primitive prefers another layout. */
dnnl_status_t dpb_cpu_kernel_add_packed(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                        int dnnl_arg, const struct dpb_cpu_layout *plain,
                                        bool is_output);
/* No effect when the kernel has no such argument. */
void dpb_cpu_kernel_set(struct dpb_cpu_kernel *kernel, int dnnl_arg, const void *data);
/* Run and wait. */
dnnl_status_t dpb_cpu_kernel_run(dpb_device *device, struct dpb_cpu_kernel *kernel);
void dpb_cpu_kernel_free(struct dpb_cpu_kernel *kernel);

/* Make a buffer of the device at least this large, and touch it; what is in it is lost. */
dnnl_status_t dpb_cpu_buffer_reserve(dpb_device *device, struct dpb_cpu_buffer *buffer,
                                     size_t bytes);

/* Fill `kernel`, whose key is set, for an operator. */
typedef dnnl_status_t (*dpb_cpu_kernel_maker)(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                              enum dpb_op op, const void *args);

/* The kernel of `key`, made with `make` the first time. Call with the lock held. */
dpb_status dpb_cpu_kernel_get(dpb_device *device, const struct dpb_cpu_key *key,
                              dpb_cpu_kernel_maker make, enum dpb_op op, const void *args,
                              struct dpb_cpu_kernel **kernel);
void dpb_cpu_kernels_free(dpb_device *device);

/* ---- operators; arguments have been checked, in an element type that the table in device_cpu.c
 * gives the operator ---- */

dpb_status dpb_cpu_matmul(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_conv(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_batchnorm(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_pool(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_relu(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_bias(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_softmax_xent(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_interaction(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_sigmoid_bce(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_sgd(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_adamw(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_lamb(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_lars(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_adagrad(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_scale(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_finite(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_cast(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_add(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_orthogonalize(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_activation(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_dropout(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_layernorm(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_embedding(dpb_device *device, enum dpb_op op, const void *args);
dpb_status dpb_cpu_attention(dpb_device *device, enum dpb_op op, const void *args);

/* ---- a convolution as a matrix product ---- */

/* Is it done by dpb_cpu_conv_unfolded()? A rule over shapes and the instruction set. */
bool dpb_cpu_conv_unfolds(const dpb_device *device, enum dpb_op op,
                          const struct dpb_conv_args *args);
dpb_status dpb_cpu_conv_unfolded(dpb_device *device, enum dpb_op op,
                                 const struct dpb_conv_args *args);

/* ---- dropout's mask, for other operators that drop ---- */

struct dpb_cpu_dropout {
    uint64_t offset;
    uint32_t key[2];
    uint32_t highest; /* word of a kept element */
    float factor;
};

void dpb_cpu_dropout_init(struct dpb_cpu_dropout *dropout, float keep, uint64_t seed,
                          uint64_t offset);
/* Elements first, first + 1, ... of a tensor, `count` of them from `from` on; `to` may be `from`.
 */
void dpb_cpu_dropout_part(const struct dpb_cpu_dropout *dropout, int64_t first, const void *from,
                          void *to, int64_t count, enum dpb_dtype dtype);

/* Our own loops are compiled for several instruction sets, chosen when the program starts. clang 14
 * cannot; and the choice runs before a sanitizer is ready. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) &&   \
        !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DPB_CPU_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define DPB_CPU_CLONES
#endif

#endif
