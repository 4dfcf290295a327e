// micro_ops.cc: throughput of the CPU device's operators, one thread.
//
// `of_peak` is the operator's rate over the rate of fused multiply-adds in registers, both of this
// run: the peak is taken before and after each benchmark, since on a shared machine it changes. The
// fastest single launch counts for it (`best_us`), which survives stolen time where a mean does
// not.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include <benchmark/benchmark.h>

#include "dpb_clock.h"
#include "dpb_device_cpu.h"
#include "dpb_rng.h"
#include "fma_peak.h"

namespace
{

dpb_device *device;

class floats
{
  public:
    explicit floats(int64_t numel)
    {
        dpb_rng rng;
        void *memory = nullptr;

        dpb_rng_init(&rng, 1, 0);
        if (dpb_device_cpu_ops.alloc(device, size_t(numel) * sizeof(float), &memory) != DPB_OK)
            return;
        data_ = static_cast<float *>(memory);
        for (int64_t i = 0; i < numel; i++)
            data_[i] = float(dpb_rng_uniform(&rng) - 0.5);
    }
    floats(const floats &) = delete;
    floats &operator=(const floats &) = delete;
    ~floats()
    {
        dpb_device_cpu_ops.free(device, data_);
    }
    float *get() const
    {
        return data_;
    }

  private:
    float *data_ = nullptr; // NULL when there is no memory: the launch then refuses
};

void measure(benchmark::State &state, dpb_op op, const void *args, double flops)
{
    double peak = dpb_fma_peak_flops_per_s();
    int64_t best_ns = std::numeric_limits<int64_t>::max();

    // The first launch makes the kernel.
    if (dpb_op_launch(device, op, args, nullptr) != DPB_OK) {
        state.SkipWithError("the operator cannot be launched");
        return;
    }
    for (auto _ : state) {
        int64_t begin_ns = dpb_clock_now_ns();

        if (dpb_op_launch(device, op, args, nullptr) != DPB_OK) {
            state.SkipWithError("the operator failed");
            return;
        }
        best_ns = std::min(best_ns, dpb_clock_now_ns() - begin_ns);
    }
    peak = std::max(peak, dpb_fma_peak_flops_per_s());
    best_ns = std::max<int64_t>(best_ns, 1);
    state.counters["best_us"] = double(best_ns) / 1e3;
    if (flops > 0.0)
        state.counters["best_GFLOP/s"] = flops / double(best_ns);
    // Above 1 the peak was taken while somebody else had the core, or is wrong: say nothing then.
    if (flops > 0.0 && peak > 0.0 && 1e9 * flops / double(best_ns) > peak)
        state.SkipWithError("faster than the peak that was measured: run again on a quieter core");
    else if (flops > 0.0 && peak > 0.0)
        state.counters["of_peak"] = 1e9 * flops / double(best_ns) / peak;
}

struct conv_shape {
    const char *name;
    int64_t n, size, in, out, kernel;
    int stride, pad;
};

const conv_shape convs[] = {
        {"mnist-cnn/conv1", 64, 28, 1, 32, 3, 1, 0},  {"mnist-cnn/conv2", 64, 26, 32, 64, 3, 1, 0},
        {"resnet50/3x3/56", 4, 56, 64, 64, 3, 1, 1},  {"resnet50/1x1/56", 4, 56, 64, 256, 1, 1, 0},
        {"resnet50/3x3s2", 4, 56, 128, 128, 3, 2, 1}, {"resnet50/3x3/7", 4, 7, 512, 512, 3, 1, 1},
};

void run_conv(benchmark::State &state, const conv_shape &s, dpb_op op)
{
    int64_t out_size = (s.size + 2 * s.pad - s.kernel) / s.stride + 1;
    floats x(s.n * s.size * s.size * s.in), w(s.out * s.in * s.kernel * s.kernel);
    floats y(s.n * out_size * out_size * s.out), bias(s.out);
    dpb_conv_args args = {};

    args.x = dpb_tensor_4d(x.get(), s.n, s.size, s.size, s.in);
    args.w = dpb_tensor_4d(w.get(), s.out, s.in, s.kernel, s.kernel);
    args.y = dpb_tensor_4d(y.get(), s.n, out_size, out_size, s.out);
    args.bias = bias.get();
    args.stride = s.stride;
    args.pad = s.pad;
    measure(state, op, &args,
            2.0 * double(s.n * out_size * out_size * s.out * s.in * s.kernel * s.kernel));
}

struct matmul_shape {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
};

const matmul_shape matmuls[] = {
        {"mnist-cnn/fc1/fwd", 64, 128, 9216, false, true},
        {"mnist-cnn/fc1/bwd-data", 64, 9216, 128, false, false},
        {"mnist-cnn/fc1/bwd-weights", 128, 9216, 64, true, false},
};

void run_matmul(benchmark::State &state, const matmul_shape &s)
{
    floats a(s.m * s.k), b(s.k * s.n), c(s.m * s.n);
    dpb_matmul_args args = {};

    args.a = s.trans_a ? dpb_tensor_2d(a.get(), s.k, s.m) : dpb_tensor_2d(a.get(), s.m, s.k);
    args.b = s.trans_b ? dpb_tensor_2d(b.get(), s.n, s.k) : dpb_tensor_2d(b.get(), s.k, s.n);
    args.c = dpb_tensor_2d(c.get(), s.m, s.n);
    args.trans_a = s.trans_a;
    args.trans_b = s.trans_b;
    measure(state, DPB_OP_MATMUL, &args, 2.0 * double(s.m * s.n * s.k));
}

// Limited by memory: bytes count, not operations.
void run_sgd(benchmark::State &state)
{
    const int64_t count = 1199882; // mnist-cnn
    floats param(count), grad(count), momentum(count);
    dpb_sgd_args args = {};

    args.param = param.get();
    args.grad = grad.get();
    args.momentum = momentum.get();
    args.count = count;
    args.lr = 1e-6f;
    args.mu = 0.9f;
    measure(state, DPB_OP_SGD_MOMENTUM, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * count * 20); // 3 reads, 2 writes
}

// One layer of BERT-base on 8 sequences of 128 tokens. Where memory limits, bytes are counted that
// an operator must read and write once.
const int64_t tokens = 8 * 128, width = 768, vocabulary = 30522;

void run_attention(benchmark::State &state, dpb_op op)
{
    const int64_t heads = 12, depth = 64, scores = 8 * heads * 128 * 128;
    floats qkv(tokens * 3 * width), dqkv(tokens * 3 * width), y(tokens * width), dy(tokens * width);
    floats prob(scores), workspace(scores);
    dpb_attention_args args = {};
    auto view = [&](float *data) {
        return dpb_tensor_4d(data, 8, 128, heads, depth);
    };

    args.q = view(qkv.get());
    args.k = view(qkv.get() + width);
    args.v = view(qkv.get() + 2 * width);
    args.dq = view(dqkv.get());
    args.dk = view(dqkv.get() + width);
    args.dv = view(dqkv.get() + 2 * width);
    args.y = view(y.get());
    args.dy = view(dy.get());
    args.prob = dpb_tensor_4d(prob.get(), 8, heads, 128, 128);
    args.workspace = workspace.get();
    args.stride = 3 * width;
    args.scale = 0.125f;
    measure(state, op, &args,
            (op == DPB_OP_ATTENTION_FWD ? 2.0 : 4.0) * 2.0 * double(scores * depth));
}

void run_layernorm(benchmark::State &state, dpb_op op)
{
    floats x(tokens * width), y(tokens * width), dy(tokens * width), dx(tokens * width);
    floats gamma(width), beta(width), dgamma(width), dbeta(width), mean(tokens), rstd(tokens);
    dpb_layernorm_args args = {};

    args.x = dpb_tensor_2d(x.get(), tokens, width);
    args.y = dpb_tensor_2d(y.get(), tokens, width);
    args.dy = dpb_tensor_2d(dy.get(), tokens, width);
    args.dx = dpb_tensor_2d(dx.get(), tokens, width);
    args.gamma = gamma.get();
    args.beta = beta.get();
    args.dgamma = dgamma.get();
    args.dbeta = dbeta.get();
    args.save_mean = mean.get();
    args.save_rstd = rstd.get();
    args.eps = 1e-5f;
    measure(state, op, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * tokens * width *
                            (op == DPB_OP_LAYERNORM_FWD ? 8 : 12));
}

void run_gelu(benchmark::State &state, dpb_op op)
{
    const int64_t count = tokens * 4 * width;
    floats x(count), y(count), dy(count), dx(count);
    dpb_activation_args args = {};

    args.x = dpb_tensor_1d(x.get(), count);
    args.y = dpb_tensor_1d(y.get(), count);
    args.dy = dpb_tensor_1d(dy.get(), count);
    args.dx = dpb_tensor_1d(dx.get(), count);
    measure(state, op, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * count * (op == DPB_OP_GELU_FWD ? 8 : 12));
}

void run_dropout(benchmark::State &state)
{
    floats x(tokens * width), y(tokens * width);
    dpb_dropout_args args = {};

    args.x = dpb_tensor_1d(x.get(), tokens * width);
    args.y = dpb_tensor_1d(y.get(), tokens * width);
    args.keep = 0.9f;
    measure(state, DPB_OP_DROPOUT_FWD, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * tokens * width * 8);
}

void run_embedding(benchmark::State &state, dpb_op op)
{
    floats table(vocabulary * width), y(tokens * width);
    std::vector<int32_t> ids(tokens);
    dpb_embedding_args args = {};
    dpb_rng rng;

    dpb_rng_init(&rng, 1, 1);
    for (int32_t &id : ids)
        id = int32_t(dpb_rng_below(&rng, vocabulary));
    args.table = args.dtable = dpb_tensor_2d(table.get(), vocabulary, width);
    args.y = args.dy = dpb_tensor_2d(y.get(), tokens, width);
    args.ids = ids.data();
    measure(state, op, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * width * 4 *
                            (op == DPB_OP_EMBEDDING_FWD ? 2 * tokens : vocabulary + 3 * tokens));
}

// The masked positions' words, 20 for a sequence.
void run_softmax_xent(benchmark::State &state, dpb_op op)
{
    const int64_t rows = 8 * 20;
    floats logits(rows * vocabulary), prob(rows * vocabulary), dlogits(rows * vocabulary);
    floats loss(rows);
    std::vector<int32_t> label(rows);
    dpb_softmax_xent_args args = {};

    args.logits = dpb_tensor_2d(logits.get(), rows, vocabulary);
    args.prob = dpb_tensor_2d(prob.get(), rows, vocabulary);
    args.dlogits = dpb_tensor_2d(dlogits.get(), rows, vocabulary);
    args.label = label.data();
    args.loss = loss.get();
    args.scale = 1.0f / float(rows);
    measure(state, op, &args, 0.0);
    state.SetBytesProcessed(state.iterations() * rows * vocabulary * 8);
}

struct sequence_bench {
    dpb_op op;
    void (*run)(benchmark::State &state, dpb_op op);
};

const sequence_bench sequence_benches[] = {
        {DPB_OP_ATTENTION_FWD, run_attention},
        {DPB_OP_ATTENTION_BWD, run_attention},
        {DPB_OP_LAYERNORM_FWD, run_layernorm},
        {DPB_OP_LAYERNORM_BWD, run_layernorm},
        {DPB_OP_GELU_FWD, run_gelu},
        {DPB_OP_GELU_BWD, run_gelu},
        {DPB_OP_EMBEDDING_FWD, run_embedding},
        {DPB_OP_EMBEDDING_BWD, run_embedding},
        {DPB_OP_SOFTMAX_XENT_FWD, run_softmax_xent},
        {DPB_OP_SOFTMAX_XENT_BWD, run_softmax_xent},
};

void add_benchmarks()
{
    const dpb_op conv_ops[] = {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA, DPB_OP_CONV_BWD_WEIGHTS};
    char name[128];

    for (const auto &shape : convs) {
        for (dpb_op op : conv_ops) {
            snprintf(name, sizeof(name), "%s/%s", shape.name, dpb_op_text(op));
            benchmark::RegisterBenchmark(name, [&shape, op](benchmark::State &state) {
                run_conv(state, shape, op);
            });
        }
    }
    for (const auto &shape : matmuls)
        benchmark::RegisterBenchmark(shape.name, [&shape](benchmark::State &state) {
            run_matmul(state, shape);
        });
    benchmark::RegisterBenchmark("mnist-cnn/sgd-momentum", run_sgd);
    for (const auto &bench : sequence_benches) {
        snprintf(name, sizeof(name), "bert-base/%s", dpb_op_text(bench.op));
        benchmark::RegisterBenchmark(name, [&bench](benchmark::State &state) {
            bench.run(state, bench.op);
        });
    }
    benchmark::RegisterBenchmark("bert-base/dropout-fwd", run_dropout);
}

} // namespace

int main(int argc, char **argv)
{
    dpb_device_config config = {};

    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    config.local_size = 1;
    config.threads = 1;
    config.bind = true;
    if (dpb_device_cpu_ops.open(&config, &device) != DPB_OK)
        return 3;
    add_benchmarks();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    dpb_device_cpu_ops.close(device);
    return 0;
}
