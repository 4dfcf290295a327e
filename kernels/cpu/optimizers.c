/* The optimizers: SGD, AdamW, LAMB, LARS, Adagrad and its row-wise form.
 *
 * One pass over the data where the update of an element needs that element only, two where it needs
 * a norm of the whole tensor. Numbers that hold for all elements are computed in double, once. */
#include "cpu_device.h"

#include <math.h>

#define GRAIN 16384 /* elements of a thread, below which starting it costs more */

/* ---- sums of squares ----
 *
 * In double, in an order that depends on the number of elements only: the same bits for any number
 * of threads. A tensor is cut into PARTS parts, a part into chunks of CHUNK elements, in a chunk
 * element i goes to lane i modulo LANES. */

#define PARTS 64
#define CHUNK 256
#define LANES 16

static inline double sum_of_squares(const float *x, int64_t count)
{
    double lane[LANES] = {0.0}, sum = 0.0;
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < count; i++)
        lane[i % LANES] += (double)x[i] * (double)x[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static int64_t part_elements(int64_t count)
{
    int64_t each = (count + PARTS - 1) / PARTS;

    return (each + LANES - 1) / LANES * LANES;
}

/* Elements [begin, end) of part p, empty when the elements do not reach it. */
static inline void part_of(int64_t count, int64_t p, int64_t *begin, int64_t *end)
{
    int64_t each = part_elements(count);

    *begin = p * each < count ? p * each : count;
    *end = *begin + each < count ? *begin + each : count;
}

static void over_parts(const dpb_device *device, int64_t count, dpb_cpu_body body, void *ctx)
{
    dpb_cpu_parallel(device->threads, PARTS, GRAIN / part_elements(count) + 1, body, ctx);
}

static double norm_of(const double part[PARTS])
{
    double sum = 0.0;

    for (int p = 0; p < PARTS; p++)
        sum += part[p];
    return sqrt(sum);
}

/* ---- SGD ---- */

DPB_CPU_CLONES static void sgd_momentum(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_sgd_args *a = ctx;
    float *restrict param = a->param, *restrict momentum = a->momentum;
    const float *restrict grad = a->grad;
    float lr = a->lr, mu = a->mu, weight_decay = a->weight_decay;

    for (int64_t i = begin; i < end; i++) {
        float m = mu * momentum[i] + (grad[i] + weight_decay * param[i]);

        momentum[i] = m;
        param[i] -= lr * m;
    }
}

DPB_CPU_CLONES static void sgd_plain(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_sgd_args *a = ctx;
    float *restrict param = a->param;
    const float *restrict grad = a->grad;
    float lr = a->lr, weight_decay = a->weight_decay;

    for (int64_t i = begin; i < end; i++)
        param[i] -= lr * (grad[i] + weight_decay * param[i]);
}

dpb_status dpb_cpu_sgd(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_sgd_args a = *(const struct dpb_sgd_args *)args;

    (void)op;
    dpb_cpu_parallel(device->threads, a.count, GRAIN, a.momentum ? sgd_momentum : sgd_plain, &a);
    return DPB_OK;
}

/* ---- AdamW and LAMB ---- */

struct adam {
    float *param, *m, *v;
    const float *grad;
    int64_t count;
    float beta1, rest1, beta2, rest2;  /* rest = 1 - beta */
    float m_factor;                    /* 1 / (1 - beta1^step) */
    float v_factor;                    /* 1 / sqrt(1 - beta2^step) */
    float eps, lr, weight_decay, keep; /* keep = 1 - lr weight_decay */
};

static struct adam adam_of(const struct dpb_adam_args *a)
{
    return (struct adam){
            .param = a->param.data,
            .m = a->m,
            .v = a->v,
            .grad = a->grad,
            .count = dpb_tensor_numel(&a->param),
            .beta1 = (float)a->beta1,
            .rest1 = (float)(1.0 - a->beta1),
            .beta2 = (float)a->beta2,
            .rest2 = (float)(1.0 - a->beta2),
            .m_factor = (float)(1.0 / (1.0 - pow(a->beta1, (double)a->step))),
            .v_factor = (float)(1.0 / sqrt(1.0 - pow(a->beta2, (double)a->step))),
            .eps = (float)a->eps,
            .lr = (float)a->lr,
            .weight_decay = (float)a->weight_decay,
            .keep = (float)(1.0 - a->lr * a->weight_decay),
    };
}

/* The direction in which Adam moves an element. */
static inline float adam_direction(const struct adam *a, float m, float v)
{
    return m * a->m_factor / (sqrtf(v) * a->v_factor + a->eps);
}

DPB_CPU_CLONES static void adamw(void *ctx, int64_t begin, int64_t end)
{
    const struct adam a = *(const struct adam *)ctx;
    float *restrict param = a.param, *restrict m = a.m, *restrict v = a.v;
    const float *restrict grad = a.grad;

    for (int64_t i = begin; i < end; i++) {
        m[i] = a.beta1 * m[i] + a.rest1 * grad[i];
        v[i] = a.beta2 * v[i] + a.rest2 * grad[i] * grad[i];
        param[i] = a.keep * param[i] - a.lr * adam_direction(&a, m[i], v[i]);
    }
}

dpb_status dpb_cpu_adamw(dpb_device *device, enum dpb_op op, const void *args)
{
    struct adam a = adam_of(args);

    (void)op;
    dpb_cpu_parallel(device->threads, a.count, GRAIN, adamw, &a);
    return DPB_OK;
}

struct lamb {
    struct adam adam;
    double w_squares[PARTS], update_squares[PARTS];
};

/* Parts: the moments, and the squares of parameters and updates. */
DPB_CPU_CLONES static void lamb_measure(void *ctx, int64_t begin, int64_t end)
{
    struct lamb *lamb = ctx;
    const struct adam a = lamb->adam;
    float update[CHUNK];

    for (int64_t p = begin; p < end; p++) {
        double w_squares = 0.0, update_squares = 0.0;
        int64_t first, last;

        part_of(a.count, p, &first, &last);
        for (int64_t i0 = first; i0 < last; i0 += CHUNK) {
            int64_t count = last - i0 < CHUNK ? last - i0 : CHUNK;
            const float *restrict param = a.param + i0, *restrict grad = a.grad + i0;
            float *restrict m = a.m + i0, *restrict v = a.v + i0;

            for (int64_t i = 0; i < count; i++) {
                m[i] = a.beta1 * m[i] + a.rest1 * grad[i];
                v[i] = a.beta2 * v[i] + a.rest2 * grad[i] * grad[i];
                update[i] = adam_direction(&a, m[i], v[i]) + a.weight_decay * param[i];
            }
            w_squares += sum_of_squares(param, count);
            update_squares += sum_of_squares(update, count);
        }
        lamb->w_squares[p] = w_squares;
        lamb->update_squares[p] = update_squares;
    }
}

/* Computing the update again costs less than keeping it: it would need memory of the tensor's size
 * and the same number of bytes to read. */
DPB_CPU_CLONES static void lamb_apply(void *ctx, int64_t begin, int64_t end)
{
    const struct adam a = *(const struct adam *)ctx;
    float *restrict param = a.param;
    const float *restrict m = a.m, *restrict v = a.v;

    for (int64_t i = begin; i < end; i++)
        param[i] -= a.lr * (adam_direction(&a, m[i], v[i]) + a.weight_decay * param[i]);
}

dpb_status dpb_cpu_lamb(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_adam_args *given = args;
    struct lamb lamb = {.adam = adam_of(given)};
    double w_norm, update_norm;

    /* Without the ratio it is AdamW. */
    if (!given->adapt)
        return dpb_cpu_adamw(device, op, args);
    over_parts(device, lamb.adam.count, lamb_measure, &lamb);
    w_norm = norm_of(lamb.w_squares);
    update_norm = norm_of(lamb.update_squares);
    if (w_norm > 0.0 && update_norm > 0.0)
        lamb.adam.lr = (float)(given->lr * (w_norm / update_norm));
    dpb_cpu_parallel(device->threads, lamb.adam.count, GRAIN, lamb_apply, &lamb.adam);
    return DPB_OK;
}

/* ---- LARS ---- */

struct lars {
    float *param, *momentum;
    const float *grad;
    int64_t count;
    float lr, mu, weight_decay;
    double w_squares[PARTS], grad_squares[PARTS];
};

DPB_CPU_CLONES static void lars_measure(void *ctx, int64_t begin, int64_t end)
{
    struct lars *a = ctx;

    for (int64_t p = begin; p < end; p++) {
        double w_squares = 0.0, grad_squares = 0.0;
        int64_t first, last;

        part_of(a->count, p, &first, &last);
        for (int64_t i = first; i < last; i += CHUNK) {
            int64_t count = last - i < CHUNK ? last - i : CHUNK;

            w_squares += sum_of_squares(a->param + i, count);
            grad_squares += sum_of_squares(a->grad + i, count);
        }
        a->w_squares[p] = w_squares;
        a->grad_squares[p] = grad_squares;
    }
}

DPB_CPU_CLONES static void lars_apply(void *ctx, int64_t begin, int64_t end)
{
    const struct lars *a = ctx;
    float *restrict param = a->param, *restrict momentum = a->momentum;
    const float *restrict grad = a->grad;
    float lr = a->lr, mu = a->mu, weight_decay = a->weight_decay;

    for (int64_t i = begin; i < end; i++) {
        float m = mu * momentum[i] + lr * (grad[i] + weight_decay * param[i]);

        momentum[i] = m;
        param[i] -= m;
    }
}

dpb_status dpb_cpu_lars(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_lars_args *given = args;
    struct lars a = {
            .param = given->param.data,
            .momentum = given->momentum,
            .grad = given->grad,
            .count = dpb_tensor_numel(&given->param),
            .lr = (float)given->lr,
            .mu = (float)given->mu,
            .weight_decay = (float)given->weight_decay,
    };
    double w_norm, grad_norm;

    (void)op;
    if (given->adapt) {
        over_parts(device, a.count, lars_measure, &a);
        w_norm = norm_of(a.w_squares);
        grad_norm = norm_of(a.grad_squares);
        if (w_norm > 0.0 && grad_norm > 0.0)
            a.lr = (float)(given->lr * given->trust * w_norm /
                           (grad_norm + given->weight_decay * w_norm + given->eps));
    }
    dpb_cpu_parallel(device->threads, a.count, GRAIN, lars_apply, &a);
    return DPB_OK;
}

/* ---- Adagrad ---- */

struct adagrad {
    float *param, *state;
    const float *grad;
    int64_t columns;
    float lr, eps, weight_decay;
};

DPB_CPU_CLONES static void adagrad(void *ctx, int64_t begin, int64_t end)
{
    const struct adagrad a = *(const struct adagrad *)ctx;
    float *restrict param = a.param, *restrict state = a.state;
    const float *restrict grad = a.grad;

    for (int64_t i = begin; i < end; i++) {
        float g = grad[i] + a.weight_decay * param[i];

        state[i] += g * g;
        param[i] -= a.lr * g / (sqrtf(state[i]) + a.eps);
    }
}

/* Rows. */
DPB_CPU_CLONES static void rowwise_adagrad(void *ctx, int64_t begin, int64_t end)
{
    const struct adagrad a = *(const struct adagrad *)ctx;
    float g[CHUNK];

    for (int64_t row = begin; row < end; row++) {
        float *restrict param = a.param + row * a.columns;
        const float *restrict grad = a.grad + row * a.columns;
        double squares = 0.0;
        float factor;

        for (int64_t j0 = 0; j0 < a.columns; j0 += CHUNK) {
            int64_t count = a.columns - j0 < CHUNK ? a.columns - j0 : CHUNK;

            for (int64_t j = 0; j < count; j++)
                g[j] = grad[j0 + j] + a.weight_decay * param[j0 + j];
            squares += sum_of_squares(g, count);
        }
        a.state[row] += (float)(squares / (double)a.columns);
        factor = a.lr / (sqrtf(a.state[row]) + a.eps);
        for (int64_t j = 0; j < a.columns; j++)
            param[j] -= factor * (grad[j] + a.weight_decay * param[j]);
    }
}

dpb_status dpb_cpu_adagrad(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_adagrad_args *given = args;
    bool is_rowwise = op == DPB_OP_ROWWISE_ADAGRAD;
    int64_t numel = dpb_tensor_numel(&given->param);
    struct adagrad a = {
            .param = given->param.data,
            .state = given->state,
            .grad = given->grad,
            .columns = is_rowwise ? given->param.dim[1] : 1,
            .lr = (float)given->lr,
            .eps = (float)given->eps,
            .weight_decay = (float)given->weight_decay,
    };

    dpb_cpu_parallel(device->threads, numel / a.columns, GRAIN / a.columns + 1,
                     is_rowwise ? rowwise_adagrad : adagrad, &a);
    return DPB_OK;
}
