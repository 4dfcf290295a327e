// micro_ops.cc: throughput of the CPU device's operators at the shapes of the networks, one thread.
//
//   dpb_micro_ops [--benchmark_filter=REGEX] [other options of Google Benchmark]
//   dpb_micro_ops --complete    does every operator have a benchmark? Runs none
//
// Exit status: 0; 1 when a result is wrong, an operator fails or has no benchmark; 2 for a wrong
// command line or a filter that selects nothing; 3 when the device cannot be opened.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "capture.h"
#include "dpb_clock.h"
#include "dpb_device_cpu.h"
#include "dpb_reference.h"
#include "dpb_workloads.h"
#include "extra_problems.h"
#include "fma_peak.h"
#include "limits.h"
#include "op_problem.h"

namespace
{

// The reference is slow: larger problems are checked in a smaller size.
constexpr double reference_flops = 2.5e8;

dpb_device *device;
int failures;

struct bench {
    std::string name;
    dpb_op op;
    dpb_dtype dtype;
    std::vector<char> args; // its pointers lead nowhere
};

std::vector<bench> benches;

void fail(benchmark::State &state, const std::string &why)
{
    failures++;
    state.SkipWithError(why.c_str());
}

// ---- one operator ----

// The problem of the benchmark that runs: Google Benchmark calls a benchmark several times to find
// out how often to repeat it.
struct {
    const bench *of;
    std::unique_ptr<op_problem> problem;
    std::string error;
} current;

std::string check_smaller(const bench &b)
{
    std::vector<char> args = b.args;

    op_reduce(b.op, args.data(), reference_flops);

    op_problem smaller(device, b.op, args.data(), b.dtype);

    return smaller.error().empty() ? smaller.compare() : smaller.error();
}

void prepare(const bench &b)
{
    bool large = op_flops(b.op, b.args.data()) > reference_flops;

    current.problem.reset();
    current.of = &b;
    current.error = large ? check_smaller(b) : "";
    if (!current.error.empty())
        return;
    current.problem = std::make_unique<op_problem>(device, b.op, b.args.data(), b.dtype);
    current.error = current.problem->error();
    if (current.error.empty() && !large)
        current.error = current.problem->compare();
}

// What this thread can do now, for a problem like this one.
struct limits {
    double flops = 0.0, bytes = 0.0; // the problem's
    double product = 0.0, memory = 0.0;

    explicit limits(const bench &b)
        : flops(op_flops(b.op, b.args.data())), bytes(op_bytes(b.op, current.problem->args()))
    {
    }
    // Again: the best counts, since neighbours can only slow it down.
    void measure(dpb_dtype dtype)
    {
        if (flops > 0.0)
            product = std::max(product, limit_matmul(device, dtype));
        memory = std::max(memory, limit_memory(device, bytes));
    }
    bool known() const
    {
        return memory > 0.0 && (flops == 0.0 || product > 0.0);
    }
};

void report(benchmark::State &state, const limits &limits, double best_ns)
{
    double product_ns = limits.flops > 0.0 ? 1e9 * limits.flops / limits.product : 0.0;
    double memory_ns = 1e9 * limits.bytes / limits.memory;

    state.counters["best_us"] = best_ns / 1e3;
    if (limits.flops > 0.0)
        state.counters["GFLOP/s"] = limits.flops / best_ns;
    state.counters["GB/s"] = limits.bytes / best_ns;
    state.counters["share_of_limit"] = std::max(product_ns, memory_ns) / best_ns;
    state.SetLabel(product_ns > memory_ns ? "limit: matmul" : "limit: memory");
}

// The fastest launch counts, which survives stolen time where a mean does not.
void run(benchmark::State &state, const bench &b)
{
    int64_t best_ns = std::numeric_limits<int64_t>::max();

    if (current.of != &b)
        prepare(b);
    if (!current.error.empty()) {
        fail(state, current.error);
        return;
    }

    limits limits(b);

    limits.measure(b.dtype);
    // The first launch makes the kernel, where the comparison has not.
    if (!limits.known() ||
        dpb_op_launch(device, b.op, current.problem->args(), nullptr) != DPB_OK) {
        fail(state, "the operator cannot be launched, or its limits not be measured");
        return;
    }
    for (auto _ : state) {
        int64_t begin_ns = dpb_clock_now_ns();

        if (dpb_op_launch(device, b.op, current.problem->args(), nullptr) != DPB_OK) {
            fail(state, "the operator failed");
            return;
        }
        best_ns = std::min(best_ns, dpb_clock_now_ns() - begin_ns);
    }
    limits.measure(b.dtype);
    report(state, limits, double(std::max<int64_t>(best_ns, 1)));
}

// The limit of compute itself, beside what the CPU can do in registers, in fp32.
void run_limit(benchmark::State &state)
{
    double best = 0.0, peak = dpb_fma_peak_flops_per_s();

    for (auto _ : state)
        best = std::max(best, limit_matmul(device, DPB_F32));
    if (best == 0.0) {
        fail(state, "the limit cannot be measured");
        return;
    }
    state.counters["GFLOP/s"] = best / 1e9;
    if (peak > 0.0)
        state.counters["share_of_limit"] = best / peak;
    state.SetLabel("limit: multiply-adds in registers");
}

// ---- all of them ----

// Once per operator, type and shapes, under the first network that has it.
void add(const std::string &network, dpb_op op, const void *args, dpb_dtype dtype,
         std::set<std::string> &known)
{
    const char *bytes = static_cast<const char *>(args);
    bool cast = op == DPB_OP_CAST;
    dpb_dtype shown = cast ? static_cast<const dpb_cast_args *>(args)->from.dtype : dtype;
    char shapes[512];
    std::string text = std::string(dpb_op_text(op)) + "/" + dpb_dtype_text(shown) + "/";

    dpb_op_args_text(op, args, shapes, sizeof(shapes));
    text += shapes;
    std::replace(text.begin(), text.end(), ' ', '_');
    if (known.insert(text).second)
        benches.push_back({network + "/" + text, op, dtype,
                           std::vector<char>(bytes, bytes + dpb_capture_args_bytes(op))});
}

void add_both(const std::string &network, dpb_op op, const void *args, std::set<std::string> &known)
{
    const dpb_device_ops &ops = *dpb_device_get_ops(device);

    add(network, op, args, DPB_F32, known);
    if (op != DPB_OP_CAST && ops.op_supported(device, op, DPB_BF16))
        add(network, op, args, DPB_BF16, known);
}

bool add_all()
{
    const struct {
        const dpb_workload_ops *workload;
        int64_t samples;
    } networks[] = {{&dpb_workload_resnet50_ops, 4},
                    {&dpb_workload_bert_base_ops, 4},
                    {&dpb_workload_gpt2_small_ops, 1},
                    {&dpb_workload_dlrm_small_ops, 128},
                    {&dpb_workload_mnist_cnn_ops, 64}};
    std::set<std::string> known;

    for (const auto &network : networks) {
        dpb_capture capture;

        if (dpb_capture_step(network.workload, network.samples, &capture) != DPB_OK)
            return false;
        for (int i = 0; i < capture.count; i++)
            add_both(network.workload->name, capture.launch[i].op, capture.launch[i].args.bytes,
                     known);
        dpb_capture_release(&capture);
    }
    for (const extra_problem &extra : extra_problems())
        add_both(extra.network, extra.op, extra.args.data(), known);
    return true;
}

void register_all()
{
    benchmark::RegisterBenchmark("limit/matmul/fp32", run_limit);
    for (const bench &b : benches)
        benchmark::RegisterBenchmark(b.name.c_str(), [&b](benchmark::State &state) {
            run(state, b);
        });
}

// Has every operator a benchmark whose arrays are known? Says which have not.
bool complete()
{
    bool all = true;

    for (int op = 0; op < DPB_OP_COUNT; op++) {
        bool found = std::any_of(benches.begin(), benches.end(), [op](bench &b) {
            return b.op == op && !op_fields(b.op, b.args.data()).empty();
        });

        if (!found)
            fprintf(stderr, "operator \"%s\" has no benchmark: bench/micro/README.md says how\n",
                    dpb_op_text(dpb_op(op)));
        all = all && found;
    }
    return all;
}

int run_benchmarks(int argc, char **argv)
{
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    register_all();
    if (benchmark::RunSpecifiedBenchmarks() == 0)
        return 2;
    benchmark::Shutdown();
    current.problem.reset();
    limits_release(device);
    return failures > 0 ? 1 : 0;
}

} // namespace

int main(int argc, char **argv)
{
    bool only_complete = argc == 2 && strcmp(argv[1], "--complete") == 0;
    dpb_device_config config = {};
    int status = 1;

    config.local_size = 1;
    config.threads = 1;
    config.bind = true;
    if (dpb_device_cpu_ops.open(&config, &device) != DPB_OK)
        return 3;
    if (add_all())
        status = !only_complete ? run_benchmarks(argc, argv) : complete() ? 0 : 1;
    dpb_device_cpu_ops.close(device);
    return status;
}
