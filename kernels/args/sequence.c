/* Layer normalisation, embedding, attention. */
#include "op_args.h"

#include <math.h>

#include "dpb_log.h"

bool dpb_args_layernorm_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_layernorm_args *a = args;

    if (!dpb_args_tensor_ok(why, "x", &a->x, 2, a->x.dtype) ||
        !dpb_args_pointer_ok(why, "gamma", a->gamma))
        return false;
    if (!isfinite(a->eps) || a->eps <= 0.0f)
        return dpb_args_no(why, "eps is not above 0");
    if (op == DPB_OP_LAYERNORM_FWD) {
        if (!a->save_mean != !a->save_rstd)
            return dpb_args_no(why, "one of save_mean and save_rstd is NULL");
        return dpb_args_same_shape_ok(why, "y", &a->y, &a->x) &&
               dpb_args_pointer_ok(why, "beta", a->beta);
    }
    return dpb_args_same_shape_ok(why, "dy", &a->dy, &a->x) &&
           dpb_args_same_shape_ok(why, "dx", &a->dx, &a->x) &&
           dpb_args_pointer_ok(why, "dgamma", a->dgamma) &&
           dpb_args_pointer_ok(why, "dbeta", a->dbeta) &&
           dpb_args_pointer_ok(why, "save_mean", a->save_mean) &&
           dpb_args_pointer_ok(why, "save_rstd", a->save_rstd);
}

void dpb_args_layernorm_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_layernorm_args *a = args;

    dpb_args_put_tensor(text, "x", &a->x);
    if (op == DPB_OP_LAYERNORM_FWD) {
        dpb_args_put_tensor(text, "y", &a->y);
    } else {
        dpb_args_put_tensor(text, "dy", &a->dy);
        dpb_args_put_tensor(text, "dx", &a->dx);
    }
}

bool dpb_args_embedding_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_embedding_args *a = args;
    bool fwd = op == DPB_OP_EMBEDDING_FWD;
    const struct dpb_tensor *table = fwd ? &a->table : &a->dtable, *y = fwd ? &a->y : &a->dy;

    bool f32 = dpb_args_is_narrow(y->dtype) && (!fwd || table->dtype == DPB_F32);

    if (!dpb_args_tensor_ok(why, fwd ? "y" : "dy", y, 2, y->dtype) ||
        !dpb_args_tensor_ok(why, fwd ? "table" : "dtable", table, 2, f32 ? DPB_F32 : y->dtype) ||
        !dpb_args_pointer_ok(why, "ids", a->ids))
        return false;
    if (table->dim[1] != y->dim[1])
        return dpb_args_no(why, "the table's rows have %lld elements, those of %s %lld",
                           (long long)table->dim[1], fwd ? "y" : "dy", (long long)y->dim[1]);
    return true;
}

void dpb_args_embedding_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_embedding_args *a = args;
    bool fwd = op == DPB_OP_EMBEDDING_FWD;

    dpb_args_put_tensor(text, fwd ? "table" : "dtable", fwd ? &a->table : &a->dtable);
    dpb_args_put_tensor(text, fwd ? "y" : "dy", fwd ? &a->y : &a->dy);
    dpb_args_put(text, "%s", a->accumulate ? " accumulate" : "");
}

dpb_status dpb_op_ids_check(enum dpb_op op, const int32_t *ids, int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= rows) {
            dpb_error("operator \"%s\": row number %d at position %lld is not below the %lld rows "
                      "of the table",
                      dpb_op_text(op), ids[i], (long long)i, (long long)rows);
            dpb_log_hint("check the data set against the model's vocabulary and table sizes");
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}

static bool attention_bwd_ok(char *why, const struct dpb_attention_args *a)
{
    return dpb_args_same_shape_ok(why, "dq", &a->dq, &a->q) &&
           dpb_args_same_shape_ok(why, "dk", &a->dk, &a->q) &&
           dpb_args_same_shape_ok(why, "dv", &a->dv, &a->q) &&
           dpb_args_pointer_ok(why, "workspace", a->workspace);
}

bool dpb_args_attention_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_attention_args *a = args;
    bool fwd = op == DPB_OP_ATTENTION_FWD;
    enum dpb_dtype dtype = a->q.dtype;
    const int64_t *dim = a->q.dim;

    if (!dpb_args_tensor_ok(why, "q", &a->q, 4, dtype) ||
        !dpb_args_same_shape_ok(why, "k", &a->k, &a->q) ||
        !dpb_args_same_shape_ok(why, "v", &a->v, &a->q) ||
        !dpb_args_same_shape_ok(why, fwd ? "y" : "dy", fwd ? &a->y : &a->dy, &a->q) ||
        !dpb_args_shape_ok(why, "prob", &a->prob, dtype, 4,
                           (int64_t[]){dim[0], dim[2], dim[1], dim[1]}))
        return false;
    if (a->stride < dim[2] * dim[3])
        return dpb_args_no(why, "stride is below the %lld elements of all heads",
                           (long long)(dim[2] * dim[3]));
    if (a->stride > INT64_MAX / 8 / dim[0] / dim[1])
        return dpb_args_no(why, "stride is too large");
    if (a->keep != 0.0f && !(a->keep > 0.0f && a->keep <= 1.0f))
        return dpb_args_no(why, "keep is neither 0 nor above 0 and at most 1");
    return dpb_args_finite_ok(why, "scale", a->scale) && (fwd || attention_bwd_ok(why, a));
}

void dpb_args_attention_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_attention_args *a = args;
    bool fwd = op == DPB_OP_ATTENTION_FWD;

    dpb_args_put_tensor(text, "q", &a->q);
    dpb_args_put_tensor(text, "k", &a->k);
    dpb_args_put_tensor(text, "v", &a->v);
    dpb_args_put_tensor(text, fwd ? "y" : "dy", fwd ? &a->y : &a->dy);
    dpb_args_put_tensor(text, "prob", &a->prob);
    dpb_args_put(text, " stride %lld%s%s", (long long)a->stride, a->key_mask ? " key-mask" : "",
                 a->causal ? " causal" : "");
    if (a->keep != 0.0f && a->keep != 1.0f)
        dpb_args_put(text, " keep %g", (double)a->keep);
}
