/* dpb_types.h: element types that devices, collectives and workloads share. */
#ifndef DPB_TYPES_H
#define DPB_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, text, bytes per element */
#define DPB_DTYPE_MAP(X)                                                                           \
    X(DPB_F32, "fp32", 4)                                                                          \
    X(DPB_F64, "fp64", 8)                                                                          \
    X(DPB_BF16, "bf16", 2)                                                                         \
    X(DPB_F16, "fp16", 2)                                                                          \
    X(DPB_I32, "int32", 4)                                                                         \
    X(DPB_I64, "int64", 8)                                                                         \
    X(DPB_U8, "uint8", 1)

enum dpb_dtype {
#define DPB_DTYPE_ENUM(name, text, bytes) name,
    DPB_DTYPE_MAP(DPB_DTYPE_ENUM)
#undef DPB_DTYPE_ENUM
    DPB_DTYPE_COUNT
};

/* Bytes of one element. */
static inline size_t dpb_dtype_bytes(enum dpb_dtype dtype)
{
    static const unsigned char bytes_of[] = {
#define DPB_DTYPE_BYTES(name, text, bytes) bytes,
            DPB_DTYPE_MAP(DPB_DTYPE_BYTES)
#undef DPB_DTYPE_BYTES
    };
    return bytes_of[dtype];
}

/* "fp32", "bf16", ...; static storage. */
static inline const char *dpb_dtype_text(enum dpb_dtype dtype)
{
    static const char *const text_of[] = {
#define DPB_DTYPE_TEXT(name, text, bytes) text,
            DPB_DTYPE_MAP(DPB_DTYPE_TEXT)
#undef DPB_DTYPE_TEXT
    };
    return text_of[dtype];
}

#ifdef __cplusplus
}
#endif
#endif
