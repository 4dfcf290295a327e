/* Ioffe, Szegedy, "Batch Normalization", 2015; running statistics as PyTorch keeps them. The
 * operators are made of four parts, which are operators too. */
#include "reference_arrays.h"

#include <math.h>

struct channels {
    int64_t c, m; /* channels, values of each */
};

static struct channels channels_of(const struct dpb_batchnorm_args *args)
{
    int64_t c = args->x.dim[args->x.rank - 1];

    return (struct channels){c, dpb_tensor_numel(&args->x) / c};
}

/* mean and var (biased), which are 0, of x. */
static void statistics(struct channels s, const double *x, double *mean, double *var)
{
    for (int64_t i = 0; i < s.m * s.c; i++)
        mean[i % s.c] += x[i] / (double)s.m;
    for (int64_t i = 0; i < s.m * s.c; i++)
        var[i % s.c] += (x[i] - mean[i % s.c]) * (x[i] - mean[i % s.c]) / (double)s.m;
}

static void apply(const struct dpb_batchnorm_args *args, struct dpb_ref_arrays *arrays,
                  const double *x, const double *mean, const double *var)
{
    struct channels s = channels_of(args);
    const double *gamma = dpb_ref_read(arrays, args->gamma, s.c);
    const double *beta = dpb_ref_read(arrays, args->beta, s.c);
    const double *residual =
            args->residual.data ? dpb_ref_read_tensor(arrays, &args->residual) : NULL;
    double *y = dpb_ref_write_tensor(arrays, &args->y);

    for (int64_t i = 0; !arrays->failed && i < s.m * s.c; i++) {
        int64_t j = i % s.c;
        double value = gamma[j] * (x[i] - mean[j]) / sqrt(var[j] + (double)args->eps) + beta[j];

        value += residual ? residual[i] : 0.0;
        y[i] = args->relu && !(value > 0.0) ? 0.0 : value;
        if (args->relu && args->mask)
            args->mask[i] = value > 0.0;
    }
}

static dpb_status forward(const struct dpb_batchnorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    struct channels s = channels_of(args);
    const double *x = dpb_ref_read_tensor(&arrays, &args->x);
    double *running_mean = dpb_ref_update(&arrays, args->running_mean, s.c);
    double *running_var = dpb_ref_update(&arrays, args->running_var, s.c);
    double *mean = dpb_ref_write(&arrays, args->training ? args->save_mean : NULL, s.c);
    double *var = dpb_ref_write(&arrays, args->training ? args->save_var : NULL, s.c);
    double keep = 1.0 - (double)args->momentum;

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    if (args->training)
        statistics(s, x, mean, var);
    for (int64_t j = 0; args->training && j < s.c; j++) {
        running_mean[j] = keep * running_mean[j] + (double)args->momentum * mean[j];
        running_var[j] = keep * running_var[j] +
                         (double)args->momentum * var[j] * (double)s.m / (double)(s.m - 1);
    }
    apply(args, &arrays, x, args->training ? mean : running_mean,
          args->training ? var : running_var);
    return dpb_ref_finish(&arrays, DPB_OK);
}

static dpb_status halves_of_forward(enum dpb_op op, const struct dpb_batchnorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    struct channels s = channels_of(args);
    const double *x = dpb_ref_read_tensor(&arrays, &args->x);
    bool is_stats = op == DPB_OP_BATCHNORM_STATS;
    double *mean = is_stats ? dpb_ref_write(&arrays, args->save_mean, s.c) : NULL;
    double *var = is_stats ? dpb_ref_write(&arrays, args->save_var, s.c) : NULL;

    if (is_stats && !arrays.failed)
        statistics(s, x, mean, var);
    if (!is_stats)
        apply(args, &arrays, x, dpb_ref_read(&arrays, args->save_mean, s.c),
              dpb_ref_read(&arrays, args->save_var, s.c));
    return dpb_ref_finish(&arrays, DPB_OK);
}

/* What the parts of backward read. */
struct gradient {
    struct channels s;
    const double *x, *dy, *mean, *var;
    const struct dpb_batchnorm_args *args;
};

static double dy_at(const struct gradient *g, int64_t i)
{
    return g->args->relu && !g->args->mask[i] ? 0.0 : g->dy[i];
}

static double xhat_at(const struct gradient *g, int64_t i)
{
    int64_t j = i % g->s.c;

    return (g->x[i] - g->mean[j]) / sqrt(g->var[j] + (double)g->args->eps);
}

/* dgamma and dbeta are 0. */
static void sums(const struct gradient *g, double *dgamma, double *dbeta)
{
    for (int64_t i = 0; i < g->s.m * g->s.c; i++) {
        dgamma[i % g->s.c] += dy_at(g, i) * xhat_at(g, i);
        dbeta[i % g->s.c] += dy_at(g, i);
    }
}

static void gradient_of_residual(const struct gradient *g, struct dpb_ref_arrays *arrays)
{
    double *dresidual = dpb_ref_write_tensor(arrays, &g->args->dresidual);

    for (int64_t i = 0; !arrays->failed && i < g->s.m * g->s.c; i++)
        dresidual[i] = dy_at(g, i);
}

static void gradient_of_x(const struct gradient *g, struct dpb_ref_arrays *arrays,
                          const double *dgamma, const double *dbeta, double count)
{
    const double *gamma = dpb_ref_read(arrays, g->args->gamma, g->s.c);
    double *dx = dpb_ref_write_tensor(arrays, &g->args->dx);

    for (int64_t i = 0; !arrays->failed && i < g->s.m * g->s.c; i++) {
        int64_t j = i % g->s.c;

        dx[i] = gamma[j] / sqrt(g->var[j] + (double)g->args->eps) *
                (dy_at(g, i) - dbeta[j] / count - xhat_at(g, i) * dgamma[j] / count);
    }
}

static dpb_status backward(enum dpb_op op, const struct dpb_batchnorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    struct gradient g = {
            .s = channels_of(args),
            .x = dpb_ref_read_tensor(&arrays, &args->x),
            .dy = dpb_ref_read_tensor(&arrays, &args->dy),
            .mean = dpb_ref_read(&arrays, args->save_mean, channels_of(args).c),
            .var = dpb_ref_read(&arrays, args->save_var, channels_of(args).c),
            .args = args,
    };
    bool given = op == DPB_OP_BATCHNORM_BWD_APPLY;
    double *dgamma = given ? NULL : dpb_ref_write(&arrays, args->dgamma, g.s.c);
    double *dbeta = given ? NULL : dpb_ref_write(&arrays, args->dbeta, g.s.c);

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    if (!given)
        sums(&g, dgamma, dbeta);
    if (!given && args->residual.data)
        gradient_of_residual(&g, &arrays);
    if (op == DPB_OP_BATCHNORM_BWD)
        gradient_of_x(&g, &arrays, dgamma, dbeta, (double)g.s.m);
    if (given)
        gradient_of_x(&g, &arrays, dpb_ref_read(&arrays, args->dgamma, g.s.c),
                      dpb_ref_read(&arrays, args->dbeta, g.s.c), args->count);
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_batchnorm(enum dpb_op op, const void *args)
{
    if (op == DPB_OP_BATCHNORM_FWD)
        return forward(args);
    if (op == DPB_OP_BATCHNORM_STATS || op == DPB_OP_BATCHNORM_APPLY)
        return halves_of_forward(op, args);
    return backward(op, args);
}
