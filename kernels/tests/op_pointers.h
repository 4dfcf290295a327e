/* op_pointers.h: which part of an operator's arguments can hold pointers, for devices of tests that
 * look at every one of them. */
#ifndef DPB_OP_POINTERS_H
#define DPB_OP_POINTERS_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_device.h"

/* Below it are the sanitizers' shadows, in which small numbers side by side look like addresses. */
#define OP_LEAST_ADDRESS ((uintptr_t)1 << 45)

/* Where the last pointer of an operator's arguments ends. What comes behind it is numbers, and
 * padding, in which an old address may be left. 0: there is nothing but tensors and pointers. */
static inline size_t op_pointers_end(enum dpb_op op)
{
    static const size_t behind[DPB_OP_COUNT] = {
#define BEHIND(op, args, member) [op] = offsetof(struct args, member)
            BEHIND(DPB_OP_MATMUL, dpb_matmul_args, trans_a),
            BEHIND(DPB_OP_CONV_FWD, dpb_conv_args, stride),
            BEHIND(DPB_OP_CONV_BWD_DATA, dpb_conv_args, stride),
            BEHIND(DPB_OP_CONV_BWD_WEIGHTS, dpb_conv_args, stride),
            BEHIND(DPB_OP_POOL_MAX_FWD, dpb_pool_args, kernel),
            BEHIND(DPB_OP_POOL_MAX_BWD, dpb_pool_args, kernel),
            BEHIND(DPB_OP_POOL_AVG_FWD, dpb_pool_args, kernel),
            BEHIND(DPB_OP_POOL_AVG_BWD, dpb_pool_args, kernel),
            BEHIND(DPB_OP_BATCHNORM_FWD, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_BATCHNORM_BWD, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_BATCHNORM_STATS, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_BATCHNORM_APPLY, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_BATCHNORM_BWD_SUMS, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_BATCHNORM_BWD_APPLY, dpb_batchnorm_args, count),
            BEHIND(DPB_OP_SOFTMAX_XENT_FWD, dpb_softmax_xent_args, scale),
            BEHIND(DPB_OP_SOFTMAX_XENT_BWD, dpb_softmax_xent_args, scale),
            BEHIND(DPB_OP_SIGMOID_BCE_FWD, dpb_sigmoid_bce_args, scale),
            BEHIND(DPB_OP_SIGMOID_BCE_BWD, dpb_sigmoid_bce_args, scale),
            BEHIND(DPB_OP_SGD_MOMENTUM, dpb_sgd_args, count),
            BEHIND(DPB_OP_ADAMW, dpb_adam_args, step),
            BEHIND(DPB_OP_LAMB, dpb_adam_args, step),
            BEHIND(DPB_OP_LARS, dpb_lars_args, lr),
            BEHIND(DPB_OP_ADAGRAD, dpb_adagrad_args, lr),
            BEHIND(DPB_OP_ROWWISE_ADAGRAD, dpb_adagrad_args, lr),
            BEHIND(DPB_OP_SCALE, dpb_scale_args, count),
            BEHIND(DPB_OP_ADD, dpb_add_args, relu),
            BEHIND(DPB_OP_ORTHOGONALIZE, dpb_orthogonalize_args, eps),
            BEHIND(DPB_OP_GELU_FWD, dpb_activation_args, tanh_form),
            BEHIND(DPB_OP_GELU_BWD, dpb_activation_args, tanh_form),
            BEHIND(DPB_OP_TANH_FWD, dpb_activation_args, tanh_form),
            BEHIND(DPB_OP_TANH_BWD, dpb_activation_args, tanh_form),
            BEHIND(DPB_OP_DROPOUT_FWD, dpb_dropout_args, keep),
            BEHIND(DPB_OP_DROPOUT_BWD, dpb_dropout_args, keep),
            BEHIND(DPB_OP_LAYERNORM_FWD, dpb_layernorm_args, eps),
            BEHIND(DPB_OP_LAYERNORM_BWD, dpb_layernorm_args, eps),
            BEHIND(DPB_OP_EMBEDDING_FWD, dpb_embedding_args, accumulate),
            BEHIND(DPB_OP_EMBEDDING_BWD, dpb_embedding_args, accumulate),
            BEHIND(DPB_OP_ATTENTION_FWD, dpb_attention_args, stride),
            BEHIND(DPB_OP_ATTENTION_BWD, dpb_attention_args, stride),
#undef BEHIND
    };

    return behind[op] ? behind[op] : dpb_op_args_bytes(op);
}

#endif
