/* op_args.h: what the checks and texts of operators share. Private to this folder.
 *
 * A new operator: one row in the table of op_args.c, and its two functions in the file of its
 * family. */
#ifndef DPB_OP_ARGS_H
#define DPB_OP_ARGS_H

#include "dpb_reference.h"

#define DPB_WHY_BYTES 256 /* of every `why` */

/* ---- text ---- */

struct dpb_args_text {
    char *to;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) void dpb_args_put(struct dpb_args_text *text,
                                                        const char *format, ...);
/* "x[64,26,26,32]", after a space when it is not the first. */
void dpb_args_put_tensor(struct dpb_args_text *text, const char *name,
                         const struct dpb_tensor *tensor);

/* bf16 or fp16: takes the place of fp32 under mixed precision. */
static inline bool dpb_args_is_narrow(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 || dtype == DPB_F16;
}

/* ---- checks: each says false and the reason in `why` ---- */

__attribute__((format(printf, 2, 3))) bool dpb_args_no(char *why, const char *format, ...);
bool dpb_args_pointer_ok(char *why, const char *name, const void *pointer);
bool dpb_args_finite_ok(char *why, const char *name, double value);
bool dpb_args_count_ok(char *why, int64_t count);
bool dpb_args_tensor_ok(char *why, const char *name, const struct dpb_tensor *tensor, int rank,
                        enum dpb_dtype dtype);
bool dpb_args_shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                       enum dpb_dtype dtype, int rank, const int64_t *dim);
/* Any rank from 1; `like` has been checked. */
bool dpb_args_same_shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                            const struct dpb_tensor *like);
bool dpb_args_any_rank_ok(char *why, const char *name, const struct dpb_tensor *tensor);

/* ---- the operators, by file ---- */

#define DPB_ARGS_FAMILY(name)                                                                      \
    bool dpb_args_##name##_ok(char *why, enum dpb_op op, const void *args);                        \
    void dpb_args_##name##_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
DPB_ARGS_FAMILY(matmul); /* dense.c */
DPB_ARGS_FAMILY(orthogonalize);
DPB_ARGS_FAMILY(relu);
DPB_ARGS_FAMILY(bias);
DPB_ARGS_FAMILY(softmax_xent);
DPB_ARGS_FAMILY(conv); /* image.c */
DPB_ARGS_FAMILY(pool);
DPB_ARGS_FAMILY(batchnorm);
DPB_ARGS_FAMILY(interaction); /* recommend.c */
DPB_ARGS_FAMILY(sigmoid_bce);
DPB_ARGS_FAMILY(sgd); /* update.c */
DPB_ARGS_FAMILY(adam);
DPB_ARGS_FAMILY(lars);
DPB_ARGS_FAMILY(adagrad);
DPB_ARGS_FAMILY(scale);
DPB_ARGS_FAMILY(finite_test);
DPB_ARGS_FAMILY(cast); /* elementwise.c */
DPB_ARGS_FAMILY(add);
DPB_ARGS_FAMILY(activation);
DPB_ARGS_FAMILY(dropout);
DPB_ARGS_FAMILY(layernorm); /* sequence.c */
DPB_ARGS_FAMILY(embedding);
DPB_ARGS_FAMILY(attention);
#undef DPB_ARGS_FAMILY

#endif
