/* Dot interaction, sigmoid with binary cross-entropy. */
#include "op_args.h"

#include "dpb_log.h"

bool dpb_args_interaction_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_interaction_args *a = args;
    enum dpb_dtype dtype = a->x.dtype;
    int64_t tables, columns;

    if (!dpb_args_tensor_ok(why, "x", &a->x, 2, dtype) ||
        !dpb_args_tensor_ok(why, "e", &a->e, 3, dtype))
        return false;
    tables = a->e.dim[0];
    columns = a->x.dim[1] + tables * (tables + 1) / 2;
    if (!dpb_args_shape_ok(why, "e", &a->e, dtype, 3,
                           (int64_t[]){tables, a->x.dim[0], a->x.dim[1]}) ||
        !dpb_args_shape_ok(why, "y", &a->y, dtype, 2, (int64_t[]){a->x.dim[0], columns}))
        return false;
    return op == DPB_OP_INTERACTION_FWD || (dpb_args_same_shape_ok(why, "dx", &a->dx, &a->x) &&
                                            dpb_args_same_shape_ok(why, "de", &a->de, &a->e));
}

void dpb_args_interaction_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_interaction_args *a = args;

    dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put_tensor(text, "e", &a->e);
    dpb_args_put_tensor(text, "y", &a->y);
    if (op == DPB_OP_INTERACTION_BWD) {
        dpb_args_put_tensor(text, "dx", &a->dx);
        dpb_args_put_tensor(text, "de", &a->de);
    }
}

bool dpb_args_sigmoid_bce_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_sigmoid_bce_args *a = args;

    if (!dpb_args_any_rank_ok(why, "logits", &a->logits) ||
        !dpb_args_pointer_ok(why, "label", a->label))
        return false;
    return op == DPB_OP_SIGMOID_BCE_FWD
                   ? dpb_args_pointer_ok(why, "loss", a->loss)
                   : dpb_args_same_shape_ok(why, "dlogits", &a->dlogits, &a->logits);
}

void dpb_args_sigmoid_bce_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_sigmoid_bce_args *a = args;

    dpb_args_put_tensor(text, "logits", &a->logits);
    if (op == DPB_OP_SIGMOID_BCE_BWD)
        dpb_args_put_tensor(text, "dlogits", &a->dlogits);
}

dpb_status dpb_binary_labels_check(const int32_t *label, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (label[i] != 0 && label[i] != 1) {
            dpb_error("label %d of sample %lld is neither 0 nor 1", label[i], (long long)i);
            dpb_log_hint("this network tells two classes apart: check the data set");
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}
