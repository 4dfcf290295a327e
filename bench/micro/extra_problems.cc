#include "extra_problems.h"

#include <algorithm>
#include <cstdint>

#include "dpb_workloads.h"

namespace
{

// Addresses that lead nowhere, far from each other.
class addresses
{
  public:
    void *next()
    {
        at_ += uintptr_t(1) << 36;
        return reinterpret_cast<void *>(at_);
    }
    float *floats()
    {
        return static_cast<float *>(next());
    }

  private:
    uintptr_t at_ = uintptr_t(1) << 40;
};

template <typename T>
void put(std::vector<extra_problem> &to, const char *network, dpb_op op, const T &args)
{
    const char *bytes = reinterpret_cast<const char *>(&args);

    to.push_back({network, op, std::vector<char>(bytes, bytes + sizeof(args))});
}

// The largest parameter, or the largest embedding table; NULL when there is none.
const dpb_param_info *largest_param(const dpb_model *model, bool table)
{
    const dpb_param_info *largest = nullptr;

    for (int p = 0; p < model->param_count; p++)
        if ((model->params[p].table || !table) &&
            (!largest || model->params[p].numel > largest->numel))
            largest = &model->params[p];
    return largest;
}

dpb_tensor param_tensor(const dpb_param_info &param, void *data)
{
    dpb_tensor tensor = {};

    tensor.data = data;
    tensor.dtype = DPB_F32;
    tensor.rank = param.rank;
    std::copy(param.dim, param.dim + param.rank, tensor.dim);
    return tensor;
}

// A step launches them once per parameter: here is the largest of each network.
void put_optimizers(std::vector<extra_problem> &to, const dpb_workload_ops &workload)
{
    const dpb_param_info &param = *largest_param(workload.model(nullptr), false);
    addresses at;
    dpb_tensor tensor = param_tensor(param, at.next());
    dpb_sgd_args sgd = {};
    dpb_adam_args adam = {};
    dpb_lars_args lars = {};
    dpb_adagrad_args adagrad = {};

    sgd.param = at.floats();
    sgd.grad = at.floats();
    sgd.momentum = at.floats();
    sgd.count = param.numel;
    sgd.lr = 1e-4f;
    sgd.mu = 0.9f;
    sgd.weight_decay = 1e-4f;
    put(to, workload.name, DPB_OP_SGD_MOMENTUM, sgd);

    adam.param = tensor;
    adam.grad = at.floats();
    adam.m = at.floats();
    adam.v = at.floats();
    adam.step = 10;
    adam.lr = 1e-4;
    adam.beta1 = 0.9;
    adam.beta2 = 0.999;
    adam.eps = 1e-8;
    adam.weight_decay = 0.01;
    put(to, workload.name, DPB_OP_ADAMW, adam);
    adam.adapt = true;
    put(to, workload.name, DPB_OP_LAMB, adam);

    lars.param = tensor;
    lars.grad = at.floats();
    lars.momentum = at.floats();
    lars.lr = 1e-3;
    lars.mu = 0.9;
    lars.weight_decay = 1e-4;
    lars.trust = 1e-3;
    lars.adapt = true;
    put(to, workload.name, DPB_OP_LARS, lars);

    adagrad.param = tensor;
    adagrad.grad = at.floats();
    adagrad.state = at.floats();
    adagrad.lr = 1e-4;
    adagrad.eps = 1e-10;
    put(to, workload.name, DPB_OP_ADAGRAD, adagrad);
    if (const dpb_param_info *table = largest_param(workload.model(nullptr), true)) {
        adagrad.param = param_tensor(*table, at.next());
        put(to, workload.name, DPB_OP_ROWWISE_ADAGRAD, adagrad);
    }
}

// Weights to bf16, and what comes back.
void put_casts(std::vector<extra_problem> &to, const dpb_workload_ops &workload)
{
    const dpb_param_info &param = *largest_param(workload.model(nullptr), false);
    addresses at;
    dpb_cast_args cast = {};

    cast.from = param_tensor(param, at.next());
    cast.to = param_tensor(param, at.next());
    cast.to.dtype = DPB_BF16;
    put(to, workload.name, DPB_OP_CAST, cast);
    std::swap(cast.from.dtype, cast.to.dtype);
    put(to, workload.name, DPB_OP_CAST, cast);
}

// What ResNet-50 normalises first, for 4 images: its largest values.
dpb_tensor first_images(addresses &at)
{
    const int64_t size = dpb_workload_resnet50_ops.model(nullptr)->sample_dim[0] / 2;

    return dpb_tensor_4d(at.next(), 4, size, size, 64);
}

void put_batchnorm_halves(std::vector<extra_problem> &to)
{
    addresses at;
    dpb_batchnorm_args args = {};

    args.x = first_images(at);
    args.y = first_images(at);
    args.dy = first_images(at);
    args.dx = first_images(at);
    args.gamma = at.floats();
    args.beta = at.floats();
    args.dgamma = at.floats();
    args.dbeta = at.floats();
    args.save_mean = at.floats();
    args.save_var = at.floats();
    args.mask = static_cast<uint8_t *>(at.next());
    args.count = double(dpb_tensor_numel(&args.x) / args.x.dim[3]);
    args.eps = 1e-5f;
    args.training = args.relu = true;
    for (dpb_op op : {DPB_OP_BATCHNORM_STATS, DPB_OP_BATCHNORM_APPLY, DPB_OP_BATCHNORM_BWD_SUMS,
                      DPB_OP_BATCHNORM_BWD_APPLY})
        put(to, dpb_workload_resnet50_ops.name, op, args);
}

// By itself: networks have it in the operator before it.
void put_relu(std::vector<extra_problem> &to)
{
    addresses at;
    dpb_relu_args args = {};

    args.x = first_images(at);
    args.y = first_images(at);
    args.dy = first_images(at);
    args.dx = first_images(at);
    put(to, dpb_workload_resnet50_ops.name, DPB_OP_RELU_FWD, args);
    put(to, dpb_workload_resnet50_ops.name, DPB_OP_RELU_BWD, args);
}

// A block's output in BERT-base, for 4 sequences.
void put_dropout(std::vector<extra_problem> &to)
{
    const int64_t rows = 4 * dpb_workload_bert_base_ops.model(nullptr)->sequence, width = 768;
    addresses at;
    dpb_dropout_args args = {};

    args.x = dpb_tensor_2d(at.next(), rows, width);
    args.y = dpb_tensor_2d(at.next(), rows, width);
    args.dy = dpb_tensor_2d(at.next(), rows, width);
    args.dx = dpb_tensor_2d(at.next(), rows, width);
    args.keep = 0.9f;
    put(to, dpb_workload_bert_base_ops.name, DPB_OP_DROPOUT_FWD, args);
    put(to, dpb_workload_bert_base_ops.name, DPB_OP_DROPOUT_BWD, args);
}

// The same block's inner layer: matrix products add their bias themselves, so no network asks.
void put_bias(std::vector<extra_problem> &to)
{
    const int64_t rows = 4 * dpb_workload_bert_base_ops.model(nullptr)->sequence, width = 3072;
    addresses at;
    dpb_bias_args args = {};

    args.x = dpb_tensor_2d(at.next(), rows, width);
    args.y = dpb_tensor_2d(at.next(), rows, width);
    args.bias = at.floats();
    put(to, dpb_workload_bert_base_ops.name, DPB_OP_BIAS_FWD, args);
}

// All gradients of ResNet-50.
void put_scale(std::vector<extra_problem> &to)
{
    addresses at;
    dpb_scale_args args = {};

    args.x = at.floats();
    args.count = dpb_model_param_elements(dpb_workload_resnet50_ops.model(nullptr));
    args.factor = 0.9999f;
    put(to, dpb_workload_resnet50_ops.name, DPB_OP_SCALE, args);
}

void put_finite(std::vector<extra_problem> &to)
{
    addresses at;
    dpb_finite_args args = {};

    args.x = at.floats();
    args.count = dpb_model_param_elements(dpb_workload_resnet50_ops.model(nullptr));
    args.found = static_cast<int32_t *>(at.next());
    put(to, dpb_workload_resnet50_ops.name, DPB_OP_FINITE, args);
}

// The factor of rank 4 of ResNet-50's largest gradient, as PowerSGD has it.
void put_orthogonalize(std::vector<extra_problem> &to)
{
    addresses at;
    dpb_orthogonalize_args args = {};

    args.x = dpb_tensor_2d(at.next(), 4608, 4);
    put(to, dpb_workload_resnet50_ops.name, DPB_OP_ORTHOGONALIZE, args);
}

} // namespace

std::vector<extra_problem> extra_problems()
{
    std::vector<extra_problem> made;

    for (const dpb_workload_ops *workload :
         {&dpb_workload_resnet50_ops, &dpb_workload_bert_base_ops, &dpb_workload_dlrm_small_ops})
        put_optimizers(made, *workload);
    put_casts(made, dpb_workload_resnet50_ops);
    put_casts(made, dpb_workload_bert_base_ops);
    put_batchnorm_halves(made);
    put_relu(made);
    put_dropout(made);
    put_bias(made);
    put_scale(made);
    put_finite(made);
    put_orthogonalize(made);
    return made;
}
