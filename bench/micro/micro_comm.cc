// dpb_micro_comm: collectives of the shared-memory backend, two ranks, one on each of two cores.
//
// Every kind of collective, in fp32 and where sums are made in bf16, fp16 and int32 too, from 4
// bytes to 64 MiB, as a rank calls it that has nothing else to do (run), and as a training step
// does (start, then wait); every algorithm for the all-reduce. Nothing is timed that was not
// checked: the result of each case is compared, element by element, on both ranks.
//
// One process is forked for each case and is rank 1: it repeats the collective as often as rank 0,
// the one with the clock, says. Calls are timed in blocks: "Time" is that of a block, best_us that
// of a call in the fastest block.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dpb_clock.h"
#include "dpb_comm_shm.h"

namespace
{

constexpr int kRanks = 2;
constexpr int64_t kTimeoutNs = 60000000000;

bool any_failed = false;

void fail(benchmark::State &state, const char *why)
{
    any_failed = true;
    state.SkipWithError(why);
}

struct Case {
    dpb_coll_kind kind;
    dpb_dtype dtype;
    int64_t bytes;
    const char *algorithm;
    int algorithm_value;
    bool background; // start and wait
};

// What the two processes share beside the communicator.
struct Shared {
    int64_t wrong[kRanks];
};

// Small integers, exact in every type, different between ranks and neighbours.
int value_of(int64_t i, int rank)
{
    return static_cast<int>((i * 7 + rank * 13) % 31);
}

void put(dpb_dtype dtype, void *buffer, int64_t i, int value)
{
    const float wide = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    switch (dtype) {
    case DPB_F32:
        static_cast<float *>(buffer)[i] = wide;
        break;
    case DPB_BF16:
        static_cast<uint16_t *>(buffer)[i] = static_cast<uint16_t>(bits >> 16);
        break;
    case DPB_F16: {
        int exponent = 0;
        const double part = std::frexp(value, &exponent); // 0.5 <= part < 1
        static_cast<uint16_t *>(buffer)[i] =
                value == 0 ? uint16_t{0}
                           : static_cast<uint16_t>(((exponent + 14) << 10) |
                                                   (static_cast<int>(part * 2048) & 0x3ff));
        break;
    }
    default:
        static_cast<int32_t *>(buffer)[i] = value;
        break;
    }
}

bool holds(dpb_dtype dtype, const void *buffer, int64_t i, int value)
{
    alignas(4) unsigned char expected[4] = {};
    put(dtype, expected, 0, value);
    const size_t bytes = dpb_dtype_bytes(dtype);
    return memcmp(static_cast<const char *>(buffer) + static_cast<size_t>(i) * bytes, expected,
                  bytes) == 0;
}

// The element of a rank's result; -1 where the collective leaves it open.
int expected_value(const Case &c, int64_t count, int64_t i, int rank)
{
    const int64_t half = (count + 1) / 2;
    const int owner = i < half ? 0 : 1;
    const int sum = value_of(i, 0) + value_of(i, 1);
    switch (c.kind) {
    case DPB_COLL_ALL_REDUCE:
        return sum;
    case DPB_COLL_REDUCE_SCATTER:
        return owner == rank ? sum : -1;
    case DPB_COLL_REDUCE:
        return rank == 0 ? sum : -1;
    case DPB_COLL_ALL_GATHER:
        return value_of(i, owner);
    case DPB_COLL_BROADCAST:
        return value_of(i, 0);
    default: // all-to-all: part i of rank r becomes part r of rank i
        return value_of(rank * half + i % half, owner);
    }
}

class Rank
{
  public:
    Rank(const Case &c, int rank, int segment) : c_(c), rank_(rank)
    {
        cpu_set_t mine, all;
        CPU_ZERO(&mine);
        sched_getaffinity(0, sizeof(all), &all);
        int seen = 0;
        for (size_t core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &all) && seen++ == rank % CPU_COUNT(&all))
                CPU_SET(core, &mine);
        sched_setaffinity(0, sizeof(mine), &mine);
        dpb_comm_shm_options options = {};
        options.algorithm = c.algorithm_value;
        dpb_comm_config config = {};
        config.rank = config.local_rank = rank;
        config.size = kRanks;
        config.segment_fd = segment;
        config.timeout_ns = kTimeoutNs;
        config.options = &options;
        count_ = c.bytes / static_cast<int64_t>(dpb_dtype_bytes(c.dtype));
        ok_ = dpb_comm_shm_ops.open(&config, &comm_) == DPB_OK &&
              dpb_comm_shm_ops.buffer_alloc(comm_, static_cast<size_t>(c.bytes), &buffer_) ==
                      DPB_OK;
    }
    ~Rank()
    {
        dpb_comm_shm_ops.close(comm_);
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;

    bool ok() const
    {
        return ok_;
    }

    bool once()
    {
        dpb_coll coll = {};
        coll.kind = c_.kind;
        coll.dtype = c_.dtype;
        coll.buffer = buffer_;
        coll.count = count_;
        coll.scale = 1;
        coll.tag = -1;
        if (!c_.background)
            return dpb_comm_run(comm_, &coll, nullptr) == DPB_OK;
        dpb_request *request;
        return dpb_comm_shm_ops.start(comm_, &coll, nullptr, &request) == DPB_OK &&
               dpb_comm_shm_ops.wait(comm_, request, nullptr, nullptr) == DPB_OK;
    }

    // Number of wrong elements; -1 when the collective failed.
    int64_t check()
    {
        for (int64_t i = 0; i < count_; i++)
            put(c_.dtype, buffer_, i, value_of(i, rank_));
        if (dpb_comm_shm_ops.barrier(comm_) != DPB_OK || !once())
            return -1;
        int64_t wrong = 0;
        for (int64_t i = 0; i < count_; i++) {
            const int value = expected_value(c_, count_, i, rank_);
            wrong += value >= 0 && !holds(c_.dtype, buffer_, i, value);
        }
        return wrong;
    }

    // Rank 0 says how many calls follow; the others learn it. 0: no more.
    int64_t agree(int64_t calls)
    {
        int64_t all[kRanks] = {};
        if (dpb_comm_shm_ops.exchange(comm_, &calls, sizeof(calls), all) != DPB_OK)
            return 0;
        return all[0];
    }

  private:
    const Case &c_;
    int rank_;
    int64_t count_ = 0;
    dpb_comm *comm_ = nullptr;
    void *buffer_ = nullptr;
    bool ok_ = false;
};

[[noreturn]] void peer(const Case &c, int segment, Shared *shared)
{
    int code = 1;
    {
        Rank rank(c, 1, segment);
        shared->wrong[1] = rank.ok() ? rank.check() : -1;
        bool ok = rank.ok();
        for (int64_t calls; ok && (calls = rank.agree(0)) > 0;)
            for (int64_t i = 0; i < calls && ok; i++)
                ok = rank.once();
        code = ok ? 0 : 1;
    }
    _exit(code);
}

// Short ones must not pay for the clock and the agreement.
int64_t calls_in_a_block(int64_t bytes)
{
    return std::clamp<int64_t>((int64_t{1} << 22) / bytes, 1, 1000);
}

void measure(benchmark::State &state, const Case &c, Shared *shared, int segment)
{
    Rank rank(c, 0, segment);
    shared->wrong[0] = rank.ok() ? rank.check() : -1;
    // The other rank has written its own before it answers.
    const int64_t calls = calls_in_a_block(c.bytes);
    bool ok = rank.ok() && rank.agree(calls) == calls;
    for (int64_t i = 0; i < calls && ok; i++) // to warm up
        ok = rank.once();
    if (!ok || shared->wrong[0] != 0 || shared->wrong[1] != 0) {
        fail(state, ok ? "the result is wrong" : "the collective failed");
        rank.agree(0);
        return;
    }
    double best_s = INFINITY;
    for (auto _ : state) {
        ok = ok && rank.agree(calls) == calls;
        const int64_t start_ns = dpb_clock_now_ns();
        for (int64_t i = 0; i < calls && ok; i++)
            ok = rank.once();
        const double block_s = static_cast<double>(dpb_clock_now_ns() - start_ns) / 1e9;
        best_s = std::min(best_s, block_s / static_cast<double>(calls));
        state.SetIterationTime(block_s);
    }
    rank.agree(0);
    if (!ok)
        fail(state, "the collective failed");
    const double algbw = static_cast<double>(c.bytes) / best_s / 1e9;
    state.counters["calls"] = static_cast<double>(calls);
    state.counters["best_us"] = best_s * 1e6;
    state.counters["algbw_GB/s"] = algbw;
    state.counters["busbw_GB/s"] = algbw * dpb_coll_busbw_factor(c.kind, kRanks);
}

void run_case(benchmark::State &state, const Case &c)
{
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    int segment;
    if (memory == MAP_FAILED || dpb_comm_segment_new(kRanks, &segment) != DPB_OK) {
        fail(state, "no shared memory");
        return;
    }
    auto *shared = static_cast<Shared *>(memory);
    cpu_set_t before;
    sched_getaffinity(0, sizeof(before), &before);
    const pid_t child = fork();
    if (child == 0)
        peer(c, segment, shared);
    if (child > 0)
        measure(state, c, shared, segment);
    else
        fail(state, "cannot fork");
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && status != 0)
        fail(state, "rank 1 failed");
    sched_setaffinity(0, sizeof(before), &before);
    close(segment);
    munmap(memory, sizeof(Shared));
}

std::string name_of(const Case &c)
{
    return std::string(dpb_coll_text(c.kind)) + "/" + dpb_dtype_text(c.dtype) + "/" + c.algorithm +
           "/" + (c.background ? "background" : "run") + "/" + std::to_string(c.bytes);
}

void add(const Case &c)
{
    benchmark::RegisterBenchmark(name_of(c).c_str(),
                                 [c](benchmark::State &state) {
                                     run_case(state, c);
                                 })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
}

// The algorithms that the backend's own option table names.
std::vector<dpb_choice> algorithms()
{
    std::vector<dpb_choice> found;
    for (size_t i = 0; i < dpb_comm_shm_table.row_count; i++)
        if (strcmp(dpb_comm_shm_table.rows[i].name, "algorithm") == 0)
            for (const dpb_choice *choice = dpb_comm_shm_table.rows[i].choices; choice->name;
                 choice++)
                found.push_back(*choice);
    return found;
}

void add_all()
{
    const int64_t sizes[] = {4, 1024, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    const dpb_choice direct = algorithms().front();
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
        for (dpb_dtype dtype : {DPB_F32, DPB_BF16, DPB_F16, DPB_I32})
            for (int64_t bytes : sizes) {
                const bool sums = dpb_coll_reduces(static_cast<dpb_coll_kind>(kind));
                // What moves only does not depend on the type; an all-to-all needs two elements.
                if ((!sums && dtype != DPB_F32) || (kind == DPB_COLL_ALL_TO_ALL && bytes == 4))
                    continue;
                Case c = {static_cast<dpb_coll_kind>(kind),
                          dtype,
                          bytes,
                          direct.name,
                          direct.value,
                          false};
                add(c);
                c.background = true;
                if (dtype == DPB_F32)
                    add(c);
            }
    for (const dpb_choice &algorithm : algorithms())
        for (int64_t bytes : sizes)
            if (algorithm.value != direct.value)
                add({DPB_COLL_ALL_REDUCE, DPB_F32, bytes, algorithm.name, algorithm.value, false});
}

} // namespace

int main(int argc, char **argv)
{
    add_all();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) {
        fprintf(stderr, "dpb_micro_comm: no case matches\n");
        return 1;
    }
    benchmark::Shutdown();
    return any_failed;
}
