#include "dpb_sim_rates.h"

#include <math.h>

#include "dpb_log.h"

double dpb_sim_curve_at(const struct dpb_sim_curve *curve, double size)
{
    const int last = curve->count - 1;
    int i = 0;

    if (curve->count == 0)
        return 1;
    if (size <= curve->size[0])
        return curve->share[0];
    if (size >= curve->size[last])
        return curve->share[last];
    while (size > curve->size[i + 1])
        i++;
    const double along = log(size / curve->size[i]) / log(curve->size[i + 1] / curve->size[i]);
    return curve->share[i] + along * (curve->share[i + 1] - curve->share[i]);
}

double dpb_sim_rates_ns(const struct dpb_sim_rates *rates, enum dpb_dtype dtype, double flops,
                        double bytes)
{
    const double flops_s = flops > 0 ? flops / (rates->flop_per_s[dtype] *
                                                dpb_sim_curve_at(&rates->flop_share, flops))
                                     : 0;
    const double bytes_s =
            bytes > 0 ? bytes / (rates->bytes_per_s * dpb_sim_curve_at(&rates->bytes_share, bytes))
                      : 0;

    return rates->floor_ns + 1e9 * fmax(flops_s, bytes_s);
}

/* ---- check ---- */

static dpb_status bad(const char *what, double value)
{
    dpb_error("simulated device: %s is %g", what, value);
    dpb_log_hint("give a number above 0, and sizes in ascending order");
    return DPB_ERR_USAGE;
}

static dpb_status check_curve(const struct dpb_sim_curve *curve, const char *what)
{
    if (curve->count < 0 || curve->count > DPB_SIM_CURVE_POINTS)
        return bad("a number of points of a curve", curve->count);
    for (int i = 0; i < curve->count; i++) {
        if (!(curve->share[i] > 0 && curve->share[i] <= 1))
            return bad(what, curve->share[i]);
        if (!isfinite(curve->size[i]) || !(curve->size[i] > (i > 0 ? curve->size[i - 1] : 0)))
            return bad(what, curve->size[i]);
    }
    return DPB_OK;
}

dpb_status dpb_sim_rates_check(const struct dpb_sim_rates *rates)
{
    for (int d = 0; d < DPB_DTYPE_COUNT; d++)
        if (!isfinite(rates->flop_per_s[d]) || rates->flop_per_s[d] < 0)
            return bad("a rate of flops", rates->flop_per_s[d]);
    if (!isfinite(rates->bytes_per_s) || !(rates->bytes_per_s > 0))
        return bad("the memory's rate", rates->bytes_per_s);
    if (!isfinite(rates->floor_ns) || rates->floor_ns < 0)
        return bad("the time of the shortest operator", rates->floor_ns);
    DPB_TRY(check_curve(&rates->flop_share, "a share of the flops"));
    return check_curve(&rates->bytes_share, "a share of the memory's rate");
}

/* ---- the work of operators ---- */

static double numel(const struct dpb_tensor *tensor)
{
    return (double)dpb_tensor_numel(tensor);
}

static double bytes_of(const struct dpb_tensor *tensor)
{
    return numel(tensor) * (double)dpb_dtype_bytes(tensor->dtype);
}

static void matmul(const void *args, struct dpb_sim_work *work)
{
    const struct dpb_matmul_args *a = args;
    const double inner = (double)a->a.dim[a->trans_a ? 0 : 1];

    work->dtype = a->a.dtype;
    work->flops = 2 * numel(&a->c) * inner;
    work->bytes = bytes_of(&a->a) + bytes_of(&a->b) + (a->beta != 0 ? 2 : 1) * bytes_of(&a->c);
}

static void orthogonalize(const void *args, struct dpb_sim_work *work)
{
    const struct dpb_orthogonalize_args *a = args;
    const double columns = (double)a->x.dim[1];

    work->flops = 2 * numel(&a->x) * columns; /* each column into each later one, and out of it */
    work->bytes = bytes_of(&a->x) * (1 + columns);
}

/* Arrays of fp32 that are read or written, and flops, per element of the parameter. */
static void update(double elements, double arrays, double flops, struct dpb_sim_work *work)
{
    work->flops = flops * elements;
    work->bytes = arrays * 4 * elements;
}

static void sgd(const void *args, struct dpb_sim_work *work)
{
    const struct dpb_sgd_args *a = args;
    update((double)a->count, a->momentum ? 5 : 3, 6, work);
}

static void adamw(const void *args, struct dpb_sim_work *work)
{
    update(numel(&((const struct dpb_adam_args *)args)->param), 7, 15, work);
}

/* The norms read what the update reads once more. */
static void lamb(const void *args, struct dpb_sim_work *work)
{
    update(numel(&((const struct dpb_adam_args *)args)->param), 11, 25, work);
}

static void lars(const void *args, struct dpb_sim_work *work)
{
    update(numel(&((const struct dpb_lars_args *)args)->param), 7, 12, work);
}

static void adagrad(const void *args, struct dpb_sim_work *work)
{
    update(numel(&((const struct dpb_adagrad_args *)args)->param), 5, 8, work);
}

static void rowwise_adagrad(const void *args, struct dpb_sim_work *work)
{
    update(numel(&((const struct dpb_adagrad_args *)args)->param), 4, 8, work);
}

static void scale(const void *args, struct dpb_sim_work *work)
{
    update((double)((const struct dpb_scale_args *)args)->count, 2, 1, work);
}

static void test_finite(const void *args, struct dpb_sim_work *work)
{
    update((double)((const struct dpb_finite_args *)args)->count, 1, 1, work);
}

static void cast(const void *args, struct dpb_sim_work *work)
{
    const struct dpb_cast_args *a = args;
    work->bytes = bytes_of(&a->from) + bytes_of(&a->to);
}

static void add(const void *args, struct dpb_sim_work *work)
{
    const struct dpb_add_args *a = args;
    work->flops = numel(&a->y);
    work->bytes = bytes_of(&a->a) + bytes_of(&a->b) + bytes_of(&a->y);
}

typedef void (*work_function)(const void *args, struct dpb_sim_work *work);

static work_function work_of(enum dpb_op op)
{
    static const work_function functions[DPB_OP_COUNT] = {
            [DPB_OP_MATMUL] = matmul,
            [DPB_OP_SGD_MOMENTUM] = sgd,
            [DPB_OP_ADAMW] = adamw,
            [DPB_OP_LAMB] = lamb,
            [DPB_OP_LARS] = lars,
            [DPB_OP_ADAGRAD] = adagrad,
            [DPB_OP_ROWWISE_ADAGRAD] = rowwise_adagrad,
            [DPB_OP_SCALE] = scale,
            [DPB_OP_FINITE] = test_finite,
            [DPB_OP_CAST] = cast,
            [DPB_OP_ADD] = add,
            [DPB_OP_ORTHOGONALIZE] = orthogonalize,
    };

    return (unsigned)op < DPB_OP_COUNT ? functions[op] : NULL;
}

bool dpb_sim_has_work(enum dpb_op op)
{
    return work_of(op) != NULL;
}

bool dpb_sim_work_of(enum dpb_op op, const void *args, struct dpb_sim_work *work)
{
    const work_function function = work_of(op);

    if (!function)
        return false;
    *work = (struct dpb_sim_work){.dtype = DPB_F32};
    function(args, work);
    return true;
}
