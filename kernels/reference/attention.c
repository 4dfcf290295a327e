/* Vaswani et al., "Attention is all you need", 2017: scaled dot-product attention in heads. */
#include "reference_arrays.h"

#include <math.h>

/* Rows of dense [B,S,A,D] and [B,A,S,S] arrays of one sequence and head. */
struct head {
    int64_t b, a, tokens, heads, depth;
};

static int64_t row_at(const struct head *head, int64_t token)
{
    return ((head->b * head->tokens + token) * head->heads + head->a) * head->depth;
}

static int64_t prob_at(const struct head *head, int64_t token)
{
    return ((head->b * head->heads + head->a) * head->tokens + token) * head->tokens;
}

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add_scaled(double *to, const double *from, double factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

/* What dropout makes of an attention weight: a factor. */
static double dropout_at(const struct dpb_attention_args *args, int64_t element)
{
    if (args->keep == 0.0f)
        return 1.0;
    return dpb_ref_dropout_factor(args->keep, args->seed, args->offset, element);
}

static bool allowed(const struct dpb_attention_args *args, const struct head *head, int64_t token,
                    int64_t key)
{
    return !(args->causal && key > token) &&
           !(args->key_mask && args->key_mask[head->b * head->tokens + key] == 0);
}

static void head_fwd(const struct dpb_attention_args *args, const struct head *head,
                     const double *q, const double *k, const double *v, double *prob, double *y)
{
    for (int64_t i = 0; i < head->tokens; i++) {
        double *p = prob + prob_at(head, i), highest = -INFINITY, sum = 0.0;

        for (int64_t j = 0; j < head->tokens; j++) {
            p[j] = !allowed(args, head, i, j)
                           ? -INFINITY
                           : (double)args->scale *
                                     dot(q + row_at(head, i), k + row_at(head, j), head->depth);
            highest = fmax(highest, p[j]);
        }
        for (int64_t j = 0; j < head->tokens; j++) {
            p[j] = p[j] == -INFINITY ? 0.0 : exp(p[j] - highest);
            sum += p[j];
        }
        for (int64_t j = 0; sum > 0.0 && j < head->tokens; j++) {
            p[j] /= sum;
            add_scaled(y + row_at(head, i), v + row_at(head, j),
                       p[j] * dropout_at(args, prob_at(head, i) + j), head->depth);
        }
    }
}

static dpb_status forward(const struct dpb_attention_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->q.dtype};
    const int64_t *dim = args->q.dim;
    int64_t rows = dim[0] * dim[1], width = dim[2] * dim[3];
    const double *q = dpb_ref_read_rows(&arrays, &args->q, rows, width, args->stride);
    const double *k = dpb_ref_read_rows(&arrays, &args->k, rows, width, args->stride);
    const double *v = dpb_ref_read_rows(&arrays, &args->v, rows, width, args->stride);
    double *y = dpb_ref_write_tensor(&arrays, &args->y);
    double *prob = dpb_ref_write_tensor(&arrays, &args->prob);

    for (int64_t i = 0; !arrays.failed && i < dim[0] * dim[2]; i++) {
        struct head head = {i / dim[2], i % dim[2], dim[1], dim[2], dim[3]};

        head_fwd(args, &head, q, k, v, prob, y);
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

struct backward {
    const double *q, *k, *v, *dy, *prob;
    double *dq, *dk, *dv;
};

static void head_bwd(const struct dpb_attention_args *args, const struct backward *at,
                     const struct head *head)
{
    for (int64_t i = 0; i < head->tokens; i++) {
        const double *p = at->prob + prob_at(head, i), *dy = at->dy + row_at(head, i);
        double mean = 0.0;

        for (int64_t j = 0; j < head->tokens; j++)
            mean += p[j] * dropout_at(args, prob_at(head, i) + j) *
                    dot(dy, at->v + row_at(head, j), head->depth);
        for (int64_t j = 0; j < head->tokens; j++) {
            double factor = dropout_at(args, prob_at(head, i) + j);
            double dprob = factor * dot(dy, at->v + row_at(head, j), head->depth);
            double ds = (double)args->scale * p[j] * (dprob - mean);

            add_scaled(at->dv + row_at(head, j), dy, factor * p[j], head->depth);
            add_scaled(at->dq + row_at(head, i), at->k + row_at(head, j), ds, head->depth);
            add_scaled(at->dk + row_at(head, j), at->q + row_at(head, i), ds, head->depth);
        }
    }
}

static dpb_status backward(const struct dpb_attention_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->q.dtype};
    const int64_t *dim = args->q.dim;
    int64_t rows = dim[0] * dim[1], width = dim[2] * dim[3];
    struct backward at = {
            .q = dpb_ref_read_rows(&arrays, &args->q, rows, width, args->stride),
            .k = dpb_ref_read_rows(&arrays, &args->k, rows, width, args->stride),
            .v = dpb_ref_read_rows(&arrays, &args->v, rows, width, args->stride),
            .dy = dpb_ref_read_tensor(&arrays, &args->dy),
            .prob = dpb_ref_read_tensor(&arrays, &args->prob),
            .dq = dpb_ref_write_rows(&arrays, &args->dq, rows, width, args->stride),
            .dk = dpb_ref_write_rows(&arrays, &args->dk, rows, width, args->stride),
            .dv = dpb_ref_write_rows(&arrays, &args->dv, rows, width, args->stride),
    };

    for (int64_t i = 0; !arrays.failed && i < dim[0] * dim[2]; i++) {
        struct head head = {i / dim[2], i % dim[2], dim[1], dim[2], dim[3]};

        head_bwd(args, &at, &head);
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_attention(enum dpb_op op, const void *args)
{
    return op == DPB_OP_ATTENTION_FWD ? forward(args) : backward(args);
}
