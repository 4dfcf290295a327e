/* dpb_optimizer.h: which optimizer trains, with which settings. Formulas and sources: dpb_device.h
 * (the operators) and docs/optimizers.md. */
#ifndef DPB_OPTIMIZER_H
#define DPB_OPTIMIZER_H

#include <stdbool.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, text, what it is */
#define DPB_OPTIMIZER_MAP(X)                                                                       \
    X(DPB_OPTIMIZER_SGD, "sgd", "with momentum, as PyTorch's")                                     \
    X(DPB_OPTIMIZER_ADAMW, "adamw", "Adam with decoupled weight decay, as PyTorch's")              \
    X(DPB_OPTIMIZER_LAMB, "lamb", "Adam with a trust ratio per tensor (You et al. 2020)")          \
    X(DPB_OPTIMIZER_LARS, "lars", "SGD with a trust ratio per tensor (You et al. 2017)")           \
    X(DPB_OPTIMIZER_ADAGRAD, "adagrad", "divides by the root of all squares, as PyTorch's")        \
    X(DPB_OPTIMIZER_ROWWISE_ADAGRAD, "rowwise-adagrad",                                            \
      "one state per row of embedding tables, adagrad for the rest")

enum dpb_optimizer_kind {
#define DPB_OPTIMIZER_ENUM(name, text, help) name,
    DPB_OPTIMIZER_MAP(DPB_OPTIMIZER_ENUM)
#undef DPB_OPTIMIZER_ENUM
    DPB_OPTIMIZER_COUNT
};

/* "adamw"; static storage. */
const char *dpb_optimizer_text(enum dpb_optimizer_kind kind);

/* The settings: member, name of the option. An optimizer uses some of them. */
#define DPB_OPTIMIZER_SETTING_MAP(X)                                                               \
    X(lr, "lr")                                                                                    \
    X(momentum, "momentum")                                                                        \
    X(beta1, "beta1")                                                                              \
    X(beta2, "beta2")                                                                              \
    X(eps, "eps")                                                                                  \
    X(weight_decay, "weight-decay")                                                                \
    X(trust, "trust")

struct dpb_optimizer_config {
    enum dpb_optimizer_kind kind;
#define DPB_OPTIMIZER_MEMBER(member, name) double member;
    DPB_OPTIMIZER_SETTING_MAP(DPB_OPTIMIZER_MEMBER)
#undef DPB_OPTIMIZER_MEMBER
};

/* What the settings are when nobody says: PyTorch's defaults where PyTorch has the optimizer, else
 * those of docs/optimizers.md. NaN: a setting that this optimizer does not use. */
struct dpb_optimizer_config dpb_optimizer_defaults(enum dpb_optimizer_kind kind);

/* Does it divide a gradient by the gradient's own size? Then a gradient that is nothing but
 * rounding moves its parameter as far as any other. */
bool dpb_optimizer_is_scale_free(enum dpb_optimizer_kind kind);

/* Are the settings that the optimizer uses what its formulas need? DPB_ERR_USAGE, logged with the
 * setting and its value. */
dpb_status dpb_optimizer_config_check(const struct dpb_optimizer_config *config);

#ifdef __cplusplus
}
#endif
#endif
