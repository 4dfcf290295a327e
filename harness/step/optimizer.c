/* The optimizers as the step engine sees them: settings, state, one operator per parameter. */
#include "optimizer.h"

#include <math.h>

#include "dpb_log.h"

const char *dpb_optimizer_text(enum dpb_optimizer_kind kind)
{
    static const char *const text_of[] = {
#define TEXT(name, text, help) [name] = text,
            DPB_OPTIMIZER_MAP(TEXT)
#undef TEXT
    };

    return (unsigned)kind < DPB_OPTIMIZER_COUNT ? text_of[kind] : "unknown";
}

/* ---- settings ---- */

/* Sources of the numbers: docs/optimizers.md. */
static const struct dpb_optimizer_config defaults[] = {
        [DPB_OPTIMIZER_SGD] = {.lr = 0.01,
                               .momentum = 0.9,
                               .beta1 = NAN,
                               .beta2 = NAN,
                               .eps = NAN,
                               .weight_decay = 0.0,
                               .trust = NAN},
        [DPB_OPTIMIZER_ADAMW] = {.lr = 1e-3,
                                 .momentum = NAN,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.01,
                                 .trust = NAN},
        [DPB_OPTIMIZER_LAMB] = {.lr = 1e-3,
                                .momentum = NAN,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-6,
                                .weight_decay = 0.01,
                                .trust = NAN},
        [DPB_OPTIMIZER_LARS] = {.lr = 1.0,
                                .momentum = 0.9,
                                .beta1 = NAN,
                                .beta2 = NAN,
                                .eps = 0.0,
                                .weight_decay = 1e-4,
                                .trust = 1e-3},
        [DPB_OPTIMIZER_ADAGRAD] = {.lr = 0.01,
                                   .momentum = NAN,
                                   .beta1 = NAN,
                                   .beta2 = NAN,
                                   .eps = 1e-10,
                                   .weight_decay = 0.0,
                                   .trust = NAN},
        [DPB_OPTIMIZER_ROWWISE_ADAGRAD] = {.lr = 0.01,
                                           .momentum = NAN,
                                           .beta1 = NAN,
                                           .beta2 = NAN,
                                           .eps = 1e-10,
                                           .weight_decay = 0.0,
                                           .trust = NAN},
};

_Static_assert(sizeof(defaults) / sizeof(defaults[0]) == DPB_OPTIMIZER_COUNT,
               "an optimizer is missing");

struct dpb_optimizer_config dpb_optimizer_defaults(enum dpb_optimizer_kind kind)
{
    struct dpb_optimizer_config config = defaults[kind];

    config.kind = kind;
    return config;
}

bool dpb_optimizer_is_scale_free(enum dpb_optimizer_kind kind)
{
    return kind != DPB_OPTIMIZER_SGD && kind != DPB_OPTIMIZER_LARS;
}

struct dpb_optimizer_config dpb_training_optimizer(const struct dpb_training_defaults *training)
{
    struct dpb_optimizer_config config = dpb_optimizer_defaults(training->optimizer);

    config.lr = training->lr;
    config.weight_decay = training->weight_decay;
    if (!isnan(config.momentum))
        config.momentum = training->momentum;
    return config;
}

static dpb_status refuse(const struct dpb_optimizer_config *config, const char *name, double value,
                         const char *why)
{
    dpb_error("optimizer \"%s\": %s %g %s", dpb_optimizer_text(config->kind), name, value, why);
    dpb_log_hint("leave it out for the usual value; docs/optimizers.md has the formulas");
    return DPB_ERR_USAGE;
}

dpb_status dpb_optimizer_config_check(const struct dpb_optimizer_config *config)
{
    const struct dpb_optimizer_config *used;

    if ((unsigned)config->kind >= DPB_OPTIMIZER_COUNT) {
        dpb_error("there is no optimizer number %d", (int)config->kind);
        return DPB_ERR_INTERNAL;
    }
    used = &defaults[config->kind];
#define NOT_NEGATIVE(member, name)                                                                 \
    if (!isnan(used->member) && !(config->member >= 0.0 && isfinite(config->member)))              \
        return refuse(config, name, config->member, "is not a number from 0 on");
    DPB_OPTIMIZER_SETTING_MAP(NOT_NEGATIVE)
#undef NOT_NEGATIVE
    if (!isnan(used->momentum) && config->momentum > 1.0)
        return refuse(config, "momentum", config->momentum, "is above 1");
    if (!isnan(used->beta1) && config->beta1 >= 1.0)
        return refuse(config, "beta1", config->beta1, "is not below 1");
    if (!isnan(used->beta2) && config->beta2 >= 1.0)
        return refuse(config, "beta2", config->beta2, "is not below 1");
    /* LARS divides by a norm too, the others by what may be a square root of 0. */
    if (!isnan(used->eps) && config->eps == 0.0 && config->kind != DPB_OPTIMIZER_LARS)
        return refuse(config, "eps", config->eps, "is not above 0");
    if (!isnan(used->trust) && config->trust == 0.0)
        return refuse(config, "trust", config->trust, "is not above 0");
    return DPB_OK;
}

/* ---- one parameter ---- */

enum dpb_optimizer_kind optimizer_of(const struct dpb_optimizer_config *config,
                                     const struct dpb_param_info *param)
{
    return config->kind == DPB_OPTIMIZER_ROWWISE_ADAGRAD && !param->table ? DPB_OPTIMIZER_ADAGRAD
                                                                          : config->kind;
}

void optimizer_state_elements(const struct dpb_optimizer_config *config,
                              const struct dpb_param_info *param,
                              int64_t elements[OPTIMIZER_ARRAYS])
{
    int arrays = 1;
    int64_t each = param->numel;

    switch (optimizer_of(config, param)) {
    case DPB_OPTIMIZER_SGD:
        arrays = config->momentum > 0.0 ? 1 : 0;
        break;
    case DPB_OPTIMIZER_ADAMW:
    case DPB_OPTIMIZER_LAMB:
        arrays = 2;
        break;
    case DPB_OPTIMIZER_ROWWISE_ADAGRAD:
        each = param->dim[0];
        break;
    case DPB_OPTIMIZER_LARS:
    case DPB_OPTIMIZER_ADAGRAD:
    case DPB_OPTIMIZER_COUNT:
        break;
    }
    for (int i = 0; i < OPTIMIZER_ARRAYS; i++)
        elements[i] = i < arrays ? each : 0;
}

int optimizer_arrays(const struct dpb_optimizer_config *config)
{
    const struct dpb_param_info param = {.rank = 1, .dim = {1}, .numel = 1};
    int64_t elements[OPTIMIZER_ARRAYS];
    int count = 0;

    optimizer_state_elements(config, &param, elements);
    for (int i = 0; i < OPTIMIZER_ARRAYS; i++)
        count += elements[i] > 0;
    return count;
}

bool optimizer_is_elementwise(const struct dpb_optimizer_config *config)
{
    return config->kind != DPB_OPTIMIZER_LAMB && config->kind != DPB_OPTIMIZER_LARS &&
           config->kind != DPB_OPTIMIZER_ROWWISE_ADAGRAD;
}

static struct dpb_tensor tensor_of(const struct dpb_param_info *param, float *value)
{
    struct dpb_tensor tensor = {.data = value, .dtype = param->dtype, .rank = param->rank};

    for (int i = 0; i < param->rank; i++)
        tensor.dim[i] = param->dim[i];
    return tensor;
}

enum dpb_op optimizer_args_of(const struct dpb_optimizer_config *config,
                              const struct optimizer_place *place, int64_t step,
                              union optimizer_args *args)
{
    const struct dpb_param_info *param = place->param;
    const struct dpb_tensor tensor = tensor_of(param, place->value);
    const enum dpb_optimizer_kind kind = optimizer_of(config, param);
    /* LARS and LAMB leave biases and the parameters of normalisations alone, as MLPerf's
     * references: neither decay nor trust ratio. */
    const bool adapt = param->rank > 1, is_lamb = kind == DPB_OPTIMIZER_LAMB;

    switch (kind) {
    case DPB_OPTIMIZER_SGD:
        args->sgd = (struct dpb_sgd_args){
                .param = place->value,
                .grad = place->grad,
                .momentum = place->state[0],
                .count = param->numel,
                .lr = (float)config->lr,
                .mu = (float)config->momentum,
                .weight_decay = (float)config->weight_decay,
        };
        return DPB_OP_SGD_MOMENTUM;
    case DPB_OPTIMIZER_ADAMW:
    case DPB_OPTIMIZER_LAMB:
        args->adam = (struct dpb_adam_args){
                .param = tensor,
                .grad = place->grad,
                .m = place->state[0],
                .v = place->state[1],
                .step = step,
                .lr = config->lr,
                .beta1 = config->beta1,
                .beta2 = config->beta2,
                .eps = config->eps,
                .weight_decay = is_lamb && !adapt ? 0.0 : config->weight_decay,
                .adapt = is_lamb && adapt,
        };
        return is_lamb ? DPB_OP_LAMB : DPB_OP_ADAMW;
    case DPB_OPTIMIZER_LARS:
        args->lars = (struct dpb_lars_args){
                .param = tensor,
                .grad = place->grad,
                .momentum = place->state[0],
                .lr = config->lr,
                .mu = config->momentum,
                .weight_decay = adapt ? config->weight_decay : 0.0,
                .trust = config->trust,
                .eps = config->eps,
                .adapt = adapt,
        };
        return DPB_OP_LARS;
    case DPB_OPTIMIZER_ADAGRAD:
    case DPB_OPTIMIZER_ROWWISE_ADAGRAD:
        args->adagrad = (struct dpb_adagrad_args){
                .param = tensor,
                .grad = place->grad,
                .state = place->state[0],
                .lr = config->lr,
                .eps = config->eps,
                .weight_decay = config->weight_decay,
        };
        return kind == DPB_OPTIMIZER_ADAGRAD ? DPB_OP_ADAGRAD : DPB_OP_ROWWISE_ADAGRAD;
    case DPB_OPTIMIZER_COUNT:
        break;
    }
    return DPB_OP_COUNT; /* dpb_optimizer_config_check() refuses other numbers */
}

dpb_status optimizer_launch(const struct dpb_optimizer_config *config,
                            const struct optimizer_place *place, int64_t step,
                            const struct dpb_launcher *launcher, const char *name)
{
    union optimizer_args args;
    const enum dpb_op op = optimizer_args_of(config, place, step, &args);

    return dpb_launch(launcher, name, op, &args);
}
