// dpb_micro_sim: how fast training steps are simulated: ResNet-50 under ddp on 64 to 65,536 ranks
// that each have noise of their own, on one core; and, with --dpbench=PROGRAM, a plan over 20
// numbers of accelerators, 5 strategies and 8 bucket sizes by `dpbench plan`.
//
// `of_limit` is the time over the one that is promised: 50 ms for a step of 4,096 ranks, 1 s for
// 65,536, 10 s for the plan; below 1 is kept. ns_per_rank stays the same where cost is linear in
// ranks. Nothing is timed that was not checked: without noise and with a free network a step of
// many ranks is as long as one of two, and with noise it is longer.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "dpb_clock.h"
// A C function may be called as a struct is; C++ says so.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "dpb_comm_sim.h"
#include "dpb_device_sim.h"
#include "dpb_options.h"
#include "dpb_sim_step.h"
#pragma GCC diagnostic pop
#include "dpb_strategies.h"
#include "dpb_workloads.h"

namespace
{

bool any_failed = false;
std::string dpbench;

void fail(benchmark::State &state, const char *why)
{
    any_failed = true;
    state.SkipWithError(why);
}

// ---- options as they are when nobody says anything ----

struct Core {
    char workload[DPB_OPTION_TEXT_BYTES], strategy[DPB_OPTION_TEXT_BYTES];
};

const dpb_config *defaults()
{
    static dpb_option rows[2] = {};
    static dpb_option_table core = {"experiment", "", rows, 2, sizeof(Core)};
    static const dpb_option_table *tables[] = {&core, dpb_workload_resnet50_ops.options,
                                               dpb_strategy_ddp_ops.options};
    static const dpb_part_name parts[] = {{"workload", "resnet50", "", nullptr},
                                          {"strategy", "ddp", "", nullptr}};
    static const dpb_option_set set = {tables, 3, parts, 2};
    static dpb_config *config = nullptr;
    if (config)
        return config;
    for (int r = 0; r < 2; r++) {
        rows[r].name = parts[r].kind;
        rows[r].type = DPB_OPT_PART;
        rows[r].offset = r ? offsetof(Core, strategy) : offsetof(Core, workload);
        rows[r].default_text = parts[r].name;
        rows[r].category = "Benchmark";
        rows[r].help = "which";
    }
    return dpb_config_new(&set, nullptr, 0, false, &config) == DPB_OK ? config : nullptr;
}

// ---- an accelerator like an A100 in bf16, 8 of them in a node ----

dpb_sim_rates rates()
{
    dpb_sim_rates made = {};
    made.flop_per_s[DPB_F32] = 17e12;
    made.flop_per_s[DPB_BF16] = 271e12;
    made.flop_per_s[DPB_F16] = 271e12;
    made.bytes_per_s = 1.6e12;
    made.floor_ns = 5000;
    return made;
}

struct Network {
    double bytes_per_s, latency_ns;
    int ranks;
};

dpb_status price(void *ctx, dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                 double *compute_slowdown, double *slowdown)
{
    const auto *network = static_cast<const Network *>(ctx);
    *alone_ns = network->latency_ns + 1e9 * dpb_coll_busbw_factor(kind, network->ranks) *
                                              static_cast<double>(bytes) / network->bytes_per_s;
    *compute_slowdown = 0.02;
    *slowdown = 0.1;
    return DPB_OK;
}

double exchange_ns(void *ctx, int64_t)
{
    return static_cast<const Network *>(ctx)->latency_ns;
}

// ---- steps ----

class Simulation
{
  public:
    Simulation(int ranks, double noise, double bytes_per_s, double latency_ns)
        : network_{bytes_per_s, latency_ns, ranks}, rates_(rates())
    {
        const dpb_config *config = defaults();
        if (!config || dpb_schedule_from_model(dpb_workload_resnet50_ops.model(
                                                       dpb_config_struct(config, "workload")),
                                               &rates_, DPB_BF16, 256, &schedule_) != DPB_OK)
            return;
        dpb_sim_step_config step = {};
        step.device_ops = &dpb_device_sim_ops;
        step.comm_ops = &dpb_comm_sim_ops;
        step.timeline.ranks = ranks;
        step.timeline.seed = 1;
        step.timeline.noise.rank_sd = noise;
        step.rates = &rates_;
        step.network = {&network_, price, exchange_ns};
        step.schedule = &schedule_;
        step.strategy = &dpb_strategy_ddp_ops;
        step.strategy_options = dpb_config_struct(config, "strategy");
        step.ranks_per_node = std::min(ranks, 8);
        step.is_gpu = true;
        step.accumulate = 1;
        step.optimizer.kind = DPB_OPTIMIZER_SGD;
        step.optimizer.lr = 0.1;
        step.fused_optimizer = true;
        if (dpb_sim_step_open(&step, &sim_) != DPB_OK)
            sim_ = nullptr;
    }
    ~Simulation()
    {
        dpb_sim_step_close(sim_);
        dpb_schedule_release(&schedule_);
    }
    Simulation(const Simulation &) = delete;
    Simulation &operator=(const Simulation &) = delete;

    // Nanoseconds of virtual time; NaN when it fails.
    double step()
    {
        dpb_sim_step_times times = {};
        return sim_ && dpb_sim_step_run(sim_, &times) == DPB_OK ? times.step_ns : NAN;
    }
    int segments() const
    {
        return schedule_.forward_count + schedule_.backward_count;
    }

  private:
    Network network_;
    dpb_sim_rates rates_;
    dpb_schedule schedule_ = {};
    dpb_sim_step *sim_ = nullptr;
};

// The third step, whose plan is settled.
double third_step(int ranks, double noise, double bytes_per_s, double latency_ns)
{
    Simulation simulation(ranks, noise, bytes_per_s, latency_ns);
    simulation.step();
    simulation.step();
    return simulation.step();
}

const char *what_is_wrong(int ranks)
{
    const double two = third_step(2, 0, 1e30, 0);
    const double free = third_step(ranks, 0, 1e30, 0);
    const double real = third_step(ranks, 0, 20e9, 50000);
    const double noisy = third_step(ranks, 0.01, 20e9, 50000);
    if (!(std::fabs(free / two - 1) < 1e-9))
        return "a free network costs time";
    if (!(real > free && noisy > real))
        return "network or noise cost nothing";
    return nullptr;
}

void steps(benchmark::State &state, int ranks, double limit_ns)
{
    if (const char *why = what_is_wrong(ranks)) {
        fail(state, why);
        return;
    }
    Simulation simulation(ranks, 0.01, 20e9, 50000);
    simulation.step();
    simulation.step();
    double best_ns = INFINITY;
    for (auto _ : state) {
        const int64_t begin = dpb_clock_now_ns();
        const double step_ns = simulation.step();
        const auto ns = static_cast<double>(dpb_clock_now_ns() - begin);
        if (std::isnan(step_ns)) {
            fail(state, "a step fails");
            return;
        }
        best_ns = std::min(best_ns, ns);
        state.SetIterationTime(ns / 1e9);
    }
    state.counters["best_ms"] = best_ns / 1e6;
    state.counters["ns_per_rank"] = best_ns / ranks;
    state.counters["ns_per_rank_segment"] = best_ns / ranks / simulation.segments();
    if (limit_ns > 0)
        state.counters["of_limit"] = best_ns / limit_ns;
}

// ---- a plan ----

constexpr double kPlanLimitS = 10;

// CPU seconds of the program and exit status 0, or NaN.
double run_plan(const std::string &folder)
{
    std::vector<std::string> words = {
            dpbench,
            "plan",
            "--workload",
            "resnet50",
            "--precision",
            "bf16",
            "--machine",
            "dgx-a100",
            "--samples",
            "1281167",
            "--epochs",
            "90",
            "--deadline",
            "12h",
            "--ranks",
            "8,16,24,32,40,48,64,80,96,128,160,192,256,320,384,512,640,768,896,1024",
            "--strategy",
            "ddp,zero1,zero2,horovod,mirrored",
            "--bucket",
            "1MiB,2MiB,5MiB,10MiB,25MiB,50MiB,100MiB,200MiB",
            "--fusion-threshold",
            "1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB",
            "--num-packs",
            "1,2,3,4,5,6,7,8",
            "-o",
            folder};
    std::vector<char *> arguments;
    for (std::string &word : words)
        arguments.push_back(&word[0]);
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(126);
        execv(arguments[0], arguments.data());
        _exit(127);
    }
    int status = 0;
    rusage usage = {};
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0)
        return NAN;
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void plan(benchmark::State &state)
{
    char folder[] = "/tmp/dpb-micro-sim-XXXXXX";
    if (!mkdtemp(folder)) {
        fail(state, "no folder can be made below /tmp");
        return;
    }
    double best_s = INFINITY;
    for (auto _ : state) {
        const double seconds = run_plan(folder);
        if (std::isnan(seconds)) {
            fail(state, "dpbench plan fails");
            break;
        }
        best_s = std::min(best_s, seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["best_ms"] = best_s * 1e3;
    state.counters["of_limit"] = best_s / kPlanLimitS;
    printf("# the plan is left in %s\n", folder);
}

void add(int ranks, double limit_ns)
{
    benchmark::RegisterBenchmark(("step/resnet50/ddp/" + std::to_string(ranks)).c_str(),
                                 [=](benchmark::State &state) {
                                     steps(state, ranks, limit_ns);
                                 })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
}

} // namespace

int main(int argc, char **argv)
{
    const char flag[] = "--dpbench=";
    benchmark::Initialize(&argc, argv);
    if (argc > 1 && strncmp(argv[1], flag, strlen(flag)) == 0) {
        dpbench = argv[1] + strlen(flag);
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    add(64, 0);
    add(512, 0);
    add(4096, 50e6);
    add(65536, 1e9);
    if (!dpbench.empty())
        benchmark::RegisterBenchmark("plan/20x5x8", plan)
                ->UseManualTime()
                ->Unit(benchmark::kMillisecond);
    if (benchmark::RunSpecifiedBenchmarks() == 0) {
        fprintf(stderr, "dpb_micro_sim: no case matches\n");
        return 1;
    }
    benchmark::Shutdown();
    return any_failed;
}
