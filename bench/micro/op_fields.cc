#include "op_fields.h"

#include <algorithm>

namespace
{

class collector
{
  public:
    std::vector<op_field> found;

    op_field *tensor(dpb_tensor &t, role use, content fill = content::any)
    {
        if (!t.data)
            return &none_;
        int64_t numel = dpb_tensor_numel(&t);

        return put({&t.data, &t, numel, numel, 4, use, fill, 0, true});
    }
    // An array of fp32 in every precision. Members may be pointers to const.
    op_field *floats(const float *const &member, int64_t numel, role use,
                     content fill = content::any)
    {
        return array(const_cast<float **>(const_cast<const float **>(&member)), numel, 4, use,
                     fill);
    }
    op_field *bytes(const uint8_t *const &member, int64_t numel, role use)
    {
        return array(const_cast<uint8_t **>(const_cast<const uint8_t **>(&member)), numel, 1, use,
                     content::ones);
    }
    void rows(const int32_t *const &member, int64_t numel, int64_t below)
    {
        array(const_cast<int32_t **>(const_cast<const int32_t **>(&member)), numel, 4, role::read,
              content::rows)
                ->below = below;
    }

  private:
    op_field none_ = {}; // takes what nobody reads

    template <typename T>
    op_field *array(T **member, int64_t numel, int element_bytes, role use, content fill)
    {
        if (!*member)
            return &none_;
        return put({reinterpret_cast<void **>(member), nullptr, numel, numel, element_bytes, use,
                    fill, 0, false});
    }
    op_field *put(const op_field &field)
    {
        found.push_back(field);
        return &found.back();
    }
};

// ---- the families ----

void matmul(collector &c, dpb_matmul_args &a)
{
    c.tensor(a.a, role::read);
    c.tensor(a.b, role::read);
    c.tensor(a.c, a.beta == 0.0f ? role::written : role::updated);
    c.floats(a.bias, a.c.dim[1], role::read);
}

void conv(collector &c, dpb_op op, dpb_conv_args &a)
{
    bool weights = op == DPB_OP_CONV_BWD_WEIGHTS;

    c.tensor(a.x, op == DPB_OP_CONV_BWD_DATA ? role::written : role::read);
    c.tensor(a.w, weights ? role::written : role::read)->narrow = !weights;
    c.tensor(a.y, op == DPB_OP_CONV_FWD ? role::written : role::read);
    if (op != DPB_OP_CONV_BWD_DATA)
        c.floats(a.bias, a.y.dim[3], weights ? role::written : role::read);
}

void pool(collector &c, bool forward, dpb_pool_args &a)
{
    c.tensor(a.x, forward ? role::read : role::written);
    c.tensor(a.y, forward ? role::written : role::read);
    c.bytes(a.index, dpb_tensor_numel(&a.y), forward ? role::written : role::read);
}

void relu(collector &c, bool forward, dpb_relu_args &a)
{
    if (forward)
        c.tensor(a.x, role::read);
    c.tensor(a.y, forward ? role::written : role::read);
    if (!forward) {
        c.tensor(a.dy, role::read);
        c.tensor(a.dx, role::written);
    }
}

void bias(collector &c, bool forward, dpb_bias_args &a)
{
    if (forward)
        c.tensor(a.x, role::read);
    c.tensor(a.y, forward ? role::written : role::read);
    c.floats(a.bias, a.y.dim[1], forward ? role::read : role::written);
}

void batchnorm(collector &c, dpb_op op, dpb_batchnorm_args &a)
{
    int64_t channels = a.x.dim[a.x.rank - 1];
    bool forward = op == DPB_OP_BATCHNORM_FWD, apply = op == DPB_OP_BATCHNORM_APPLY;
    bool stats = op == DPB_OP_BATCHNORM_STATS;
    bool saves = forward || stats;
    bool backward = !saves && !apply;
    bool sums = op == DPB_OP_BATCHNORM_BWD_SUMS, data = backward && !sums;

    c.tensor(a.x, role::read);
    // Backward does not read it; the forward operator before it does.
    c.tensor(a.residual, forward || apply ? role::read : role::scratch);
    if (forward || apply) {
        c.tensor(a.y, role::written);
        c.floats(a.beta, channels, role::read);
    }
    if (!stats && !sums)
        c.floats(a.gamma, channels, role::read);
    if (forward) {
        c.floats(a.running_mean, channels, role::updated);
        c.floats(a.running_var, channels, role::updated, content::positive);
    }
    c.floats(a.save_mean, channels, saves ? role::written : role::read);
    c.floats(a.save_var, channels, saves ? role::written : role::read, content::positive);
    if (backward) {
        c.tensor(a.dy, role::read);
        c.floats(a.dgamma, channels, op == DPB_OP_BATCHNORM_BWD_APPLY ? role::read : role::written);
        c.floats(a.dbeta, channels, op == DPB_OP_BATCHNORM_BWD_APPLY ? role::read : role::written);
    }
    if (data)
        c.tensor(a.dx, role::written);
    if (backward && op != DPB_OP_BATCHNORM_BWD_APPLY)
        c.tensor(a.dresidual, role::written);
    if (a.relu && !stats)
        c.bytes(a.mask, dpb_tensor_numel(&a.x), role::scratch);
}

void softmax_xent(collector &c, bool forward, dpb_softmax_xent_args &a)
{
    dpb_tensor &shape = forward ? a.logits : a.prob;

    if (forward)
        c.tensor(a.logits, role::read);
    c.tensor(a.prob, forward ? role::written : role::read, content::probability);
    c.rows(a.label, shape.dim[0], shape.dim[1]);
    if (forward)
        c.floats(a.loss, shape.dim[0], role::written);
    else
        c.tensor(a.dlogits, role::written);
}

void interaction(collector &c, bool forward, dpb_interaction_args &a)
{
    c.tensor(a.x, role::read);
    c.tensor(a.e, role::read);
    c.tensor(a.y, forward ? role::written : role::read);
    if (!forward) {
        c.tensor(a.dx, role::written);
        c.tensor(a.de, role::written);
    }
}

void sigmoid_bce(collector &c, bool forward, dpb_sigmoid_bce_args &a)
{
    c.tensor(a.logits, role::read);
    c.rows(a.label, dpb_tensor_numel(&a.logits), 2);
    if (forward)
        c.floats(a.loss, dpb_tensor_numel(&a.logits), role::written);
    else
        c.tensor(a.dlogits, role::written);
}

void sgd(collector &c, dpb_sgd_args &a)
{
    c.floats(a.param, a.count, role::updated);
    c.floats(a.grad, a.count, role::read);
    c.floats(a.momentum, a.count, role::updated);
}

void adam(collector &c, dpb_adam_args &a)
{
    int64_t numel = dpb_tensor_numel(&a.param);

    c.tensor(a.param, role::updated)->narrow = false;
    c.floats(a.grad, numel, role::read);
    c.floats(a.m, numel, role::updated);
    c.floats(a.v, numel, role::updated, content::positive);
}

void lars(collector &c, dpb_lars_args &a)
{
    c.tensor(a.param, role::updated)->narrow = false;
    c.floats(a.grad, dpb_tensor_numel(&a.param), role::read);
    c.floats(a.momentum, dpb_tensor_numel(&a.param), role::updated);
}

void adagrad(collector &c, dpb_op op, dpb_adagrad_args &a)
{
    int64_t numel = dpb_tensor_numel(&a.param);

    c.tensor(a.param, role::updated)->narrow = false;
    c.floats(a.grad, numel, role::read);
    c.floats(a.state, op == DPB_OP_ROWWISE_ADAGRAD ? a.param.dim[0] : numel, role::updated,
             content::positive);
}

void add(collector &c, dpb_add_args &a)
{
    c.tensor(a.a, role::read);
    c.tensor(a.b, role::read);
    c.tensor(a.y, role::written);
}

void activation(collector &c, dpb_op op, dpb_activation_args &a)
{
    bool forward = op == DPB_OP_GELU_FWD || op == DPB_OP_TANH_FWD;

    if (op != DPB_OP_TANH_BWD)
        c.tensor(a.x, role::read);
    if (op != DPB_OP_GELU_BWD)
        c.tensor(a.y, forward ? role::written : role::read);
    if (!forward) {
        c.tensor(a.dy, role::read);
        c.tensor(a.dx, role::written);
    }
}

void dropout(collector &c, bool forward, dpb_dropout_args &a)
{
    c.tensor(forward ? a.x : a.dy, role::read);
    c.tensor(forward ? a.y : a.dx, role::written);
}

void layernorm(collector &c, bool forward, dpb_layernorm_args &a)
{
    int64_t rows = a.x.dim[0], columns = a.x.dim[1];

    c.tensor(a.x, role::read);
    c.floats(a.gamma, columns, role::read);
    c.floats(a.save_mean, rows, forward ? role::written : role::read);
    c.floats(a.save_rstd, rows, forward ? role::written : role::read, content::positive);
    if (forward) {
        c.tensor(a.y, role::written);
        c.floats(a.beta, columns, role::read);
        return;
    }
    c.tensor(a.dy, role::read);
    c.tensor(a.dx, role::written);
    c.floats(a.dgamma, columns, role::written);
    c.floats(a.dbeta, columns, role::written);
}

void embedding(collector &c, bool forward, dpb_embedding_args &a)
{
    if (forward) {
        // Of the table only the rows that are asked for.
        c.tensor(a.table, role::read)->counted =
                std::min(dpb_tensor_numel(&a.table), dpb_tensor_numel(&a.y));
        c.tensor(a.y, a.accumulate ? role::updated : role::written);
        c.rows(a.ids, a.y.dim[0], a.table.dim[0]);
        return;
    }
    op_field *table = c.tensor(a.dtable, a.accumulate ? role::updated : role::written);

    table->narrow = false;
    if (a.accumulate)
        table->counted = std::min(dpb_tensor_numel(&a.dtable), dpb_tensor_numel(&a.dy));
    c.tensor(a.dy, role::read);
    c.rows(a.ids, a.dy.dim[0], a.dtable.dim[0]);
}

void attention(collector &c, bool forward, dpb_attention_args &a)
{
    int64_t width = a.q.dim[2] * a.q.dim[3];
    int64_t reach = (a.q.dim[0] * a.q.dim[1] - 1) * a.stride + width;

    for (dpb_tensor *t : {&a.q, &a.k, &a.v})
        c.tensor(*t, role::read)->elements = reach;
    c.tensor(a.prob, forward ? role::written : role::read, content::probability);
    c.bytes(a.key_mask, a.q.dim[0] * a.q.dim[1], role::read);
    if (forward) {
        c.tensor(a.y, role::written);
        return;
    }
    c.tensor(a.dy, role::read);
    for (dpb_tensor *t : {&a.dq, &a.dk, &a.dv})
        c.tensor(*t, role::written)->elements = reach;
    c.floats(a.workspace, dpb_tensor_numel(&a.prob), role::scratch);
}

template <typename T> T &as(void *args)
{
    return *static_cast<T *>(args);
}

template <typename T> const T &as(const void *args)
{
    return *static_cast<const T *>(args);
}

} // namespace

std::vector<op_field> op_fields(dpb_op op, void *args)
{
    collector c;

    c.found.reserve(16); // results are pointers into it
    switch (op) {
    case DPB_OP_MATMUL:
        matmul(c, as<dpb_matmul_args>(args));
        break;
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS:
        conv(c, op, as<dpb_conv_args>(args));
        break;
    case DPB_OP_POOL_MAX_FWD:
    case DPB_OP_POOL_MAX_BWD:
    case DPB_OP_POOL_AVG_FWD:
    case DPB_OP_POOL_AVG_BWD:
        pool(c, op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_AVG_FWD, as<dpb_pool_args>(args));
        break;
    case DPB_OP_RELU_FWD:
    case DPB_OP_RELU_BWD:
        relu(c, op == DPB_OP_RELU_FWD, as<dpb_relu_args>(args));
        break;
    case DPB_OP_BIAS_FWD:
    case DPB_OP_BIAS_BWD:
        bias(c, op == DPB_OP_BIAS_FWD, as<dpb_bias_args>(args));
        break;
    case DPB_OP_BATCHNORM_FWD:
    case DPB_OP_BATCHNORM_BWD:
    case DPB_OP_BATCHNORM_STATS:
    case DPB_OP_BATCHNORM_APPLY:
    case DPB_OP_BATCHNORM_BWD_SUMS:
    case DPB_OP_BATCHNORM_BWD_APPLY:
        batchnorm(c, op, as<dpb_batchnorm_args>(args));
        break;
    case DPB_OP_SOFTMAX_XENT_FWD:
    case DPB_OP_SOFTMAX_XENT_BWD:
        softmax_xent(c, op == DPB_OP_SOFTMAX_XENT_FWD, as<dpb_softmax_xent_args>(args));
        break;
    case DPB_OP_INTERACTION_FWD:
    case DPB_OP_INTERACTION_BWD:
        interaction(c, op == DPB_OP_INTERACTION_FWD, as<dpb_interaction_args>(args));
        break;
    case DPB_OP_SIGMOID_BCE_FWD:
    case DPB_OP_SIGMOID_BCE_BWD:
        sigmoid_bce(c, op == DPB_OP_SIGMOID_BCE_FWD, as<dpb_sigmoid_bce_args>(args));
        break;
    case DPB_OP_SGD_MOMENTUM:
        sgd(c, as<dpb_sgd_args>(args));
        break;
    case DPB_OP_ADAMW:
    case DPB_OP_LAMB:
        adam(c, as<dpb_adam_args>(args));
        break;
    case DPB_OP_LARS:
        lars(c, as<dpb_lars_args>(args));
        break;
    case DPB_OP_ADAGRAD:
    case DPB_OP_ROWWISE_ADAGRAD:
        adagrad(c, op, as<dpb_adagrad_args>(args));
        break;
    case DPB_OP_SCALE:
        c.floats(as<dpb_scale_args>(args).x, as<dpb_scale_args>(args).count, role::updated);
        break;
    case DPB_OP_FINITE:
        c.floats(as<dpb_finite_args>(args).x, as<dpb_finite_args>(args).count, role::read);
        c.rows(as<dpb_finite_args>(args).found, 1, 2);
        break;
    case DPB_OP_ORTHOGONALIZE:
        c.tensor(as<dpb_orthogonalize_args>(args).x, role::updated)->narrow = false;
        break;
    case DPB_OP_ADD:
        add(c, as<dpb_add_args>(args));
        break;
    case DPB_OP_GELU_FWD:
    case DPB_OP_GELU_BWD:
    case DPB_OP_TANH_FWD:
    case DPB_OP_TANH_BWD:
        activation(c, op, as<dpb_activation_args>(args));
        break;
    case DPB_OP_DROPOUT_FWD:
    case DPB_OP_DROPOUT_BWD:
        dropout(c, op == DPB_OP_DROPOUT_FWD, as<dpb_dropout_args>(args));
        break;
    case DPB_OP_LAYERNORM_FWD:
    case DPB_OP_LAYERNORM_BWD:
        layernorm(c, op == DPB_OP_LAYERNORM_FWD, as<dpb_layernorm_args>(args));
        break;
    case DPB_OP_EMBEDDING_FWD:
    case DPB_OP_EMBEDDING_BWD:
        embedding(c, op == DPB_OP_EMBEDDING_FWD, as<dpb_embedding_args>(args));
        break;
    case DPB_OP_ATTENTION_FWD:
    case DPB_OP_ATTENTION_BWD:
        attention(c, op == DPB_OP_ATTENTION_FWD, as<dpb_attention_args>(args));
        break;
    case DPB_OP_CAST:
        c.tensor(as<dpb_cast_args>(args).from, role::read)->narrow = false;
        c.tensor(as<dpb_cast_args>(args).to, role::written)->narrow = false;
        break;
    default:
        break; // the check that every operator has a benchmark finds it
    }
    return c.found;
}

double op_flops(dpb_op op, const void *args)
{
    switch (op) {
    case DPB_OP_MATMUL: {
        const auto &a = as<dpb_matmul_args>(args);

        return 2.0 * double(dpb_tensor_numel(&a.c)) * double(a.a.dim[a.trans_a ? 0 : 1]);
    }
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS: {
        const auto &a = as<dpb_conv_args>(args);

        return 2.0 * double(dpb_tensor_numel(&a.y)) * double(a.w.dim[1] * a.w.dim[2] * a.w.dim[3]);
    }
    case DPB_OP_ATTENTION_FWD:
    case DPB_OP_ATTENTION_BWD: {
        const auto &a = as<dpb_attention_args>(args);
        double product = 2.0 * double(dpb_tensor_numel(&a.prob)) * double(a.q.dim[3]);

        return product * (op == DPB_OP_ATTENTION_FWD ? 2.0 : 4.0);
    }
    case DPB_OP_INTERACTION_FWD:
    case DPB_OP_INTERACTION_BWD: {
        const auto &a = as<dpb_interaction_args>(args);
        double pairs = double(a.y.dim[1] - a.x.dim[1]) * double(dpb_tensor_numel(&a.x));

        return pairs * (op == DPB_OP_INTERACTION_FWD ? 2.0 : 4.0);
    }
    default:
        return 0.0;
    }
}

double op_bytes(dpb_op op, void *args)
{
    double bytes = 0.0;

    for (const op_field &field : op_fields(op, args)) {
        size_t each =
                field.tensor ? dpb_dtype_bytes(field.tensor->dtype) : size_t(field.element_bytes);

        bytes += double(field.counted) * double(each) * (field.use == role::updated ? 2.0 : 1.0);
    }
    return bytes;
}

void op_reduce(dpb_op op, void *args, double flops)
{
    switch (op) {
    case DPB_OP_MATMUL: {
        auto &a = as<dpb_matmul_args>(args);
        int64_t *m[] = {&a.c.dim[0], &a.a.dim[a.trans_a ? 1 : 0]};
        int64_t *n[] = {&a.c.dim[1], &a.b.dim[a.trans_b ? 0 : 1]};
        int64_t *k[] = {&a.a.dim[a.trans_a ? 0 : 1], &a.b.dim[a.trans_b ? 1 : 0]};

        while (op_flops(op, args) > flops) {
            auto &longest = *m[0] >= *n[0] && *m[0] >= *k[0] ? m : *n[0] >= *k[0] ? n : k;

            *longest[0] = *longest[1] = (*longest[0] + 1) / 2;
        }
        break;
    }
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS: {
        auto &a = as<dpb_conv_args>(args);

        while (op_flops(op, args) > flops && a.x.dim[0] > 1)
            a.x.dim[0] = a.y.dim[0] = a.x.dim[0] / 2;
        break;
    }
    case DPB_OP_ATTENTION_FWD:
    case DPB_OP_ATTENTION_BWD: {
        auto &a = as<dpb_attention_args>(args);

        while (op_flops(op, args) > flops && a.q.dim[0] > 1) {
            int64_t samples = a.q.dim[0] / 2;

            for (dpb_tensor *t : {&a.q, &a.k, &a.v, &a.dq, &a.dk, &a.dv, &a.y, &a.dy, &a.prob})
                t->dim[0] = samples;
        }
        break;
    }
    default:
        break;
    }
}
