// comm_gloo RANKS SIZES ring|bcube FOLDER: gloo's all-reduce of fp32 over TCP on the loopback, in
// place, timed as `dpbench comm` times its own. The ranks are forked; FOLDER is where they meet.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "comm_peer.h"

namespace
{

constexpr int kRanksMax = 16;

// What the ranks tell each other beside gloo.
struct Shared {
    int64_t ns[kRanksMax][PEER_MOST];
    int64_t each_ns[kRanksMax];
    int64_t wrong[kRanksMax];
};

struct Rank {
    int rank, size;
    gloo::AllreduceOptions::Algorithm algorithm;
    std::shared_ptr<gloo::Context> context;
    std::vector<float> values;
    Shared *shared;
    uint32_t tag = 0;

    void barrier()
    {
        gloo::BarrierOptions options(context);
        options.setTag(tag++);
        gloo::barrier(options);
    }

    void all_reduce(int64_t count)
    {
        gloo::AllreduceOptions options(context);
        options.setOutput(values.data(), static_cast<size_t>(count));
        options.setReduceFunction([](void *sum, const void *a, const void *b, size_t n) {
            gloo::sum<float>(sum, a, b, n);
        });
        options.setAlgorithm(algorithm);
        options.setTag(tag++);
        gloo::allreduce(options);
    }

    void check(int64_t count)
    {
        peer_fill(values.data(), count, rank);
        barrier();
        all_reduce(count);
        shared->wrong[rank] += peer_wrong(values.data(), count, size);
        barrier();
    }

    void run_size(int64_t bytes)
    {
        const int64_t count = bytes / 4;
        shared->wrong[rank] = 0;
        check(count);
        const int64_t start_ns = peer_now_ns();
        for (int i = 0; i < PEER_WARMUP; i++)
            all_reduce(count);
        shared->each_ns[rank] = (peer_now_ns() - start_ns) / PEER_WARMUP;
        barrier();
        const int64_t iterations =
                peer_iterations(*std::max_element(shared->each_ns, shared->each_ns + size));
        barrier();
        int64_t before_ns = peer_now_ns();
        for (int64_t i = 0; i < iterations; i++) {
            all_reduce(count);
            const int64_t now_ns = peer_now_ns();
            shared->ns[rank][i] = now_ns - before_ns;
            before_ns = now_ns;
        }
        check(count);
        if (rank == 0)
            print(bytes, iterations);
        barrier();
    }

    void print(int64_t bytes, int64_t iterations)
    {
        std::vector<int64_t> most(static_cast<size_t>(iterations));
        int64_t wrong = 0;
        for (int r = 0; r < size; r++) {
            wrong += shared->wrong[r];
            for (size_t i = 0; i < most.size(); i++)
                most[i] = std::max(most[i], shared->ns[r][i]);
        }
        peer_print_row(bytes, wrong, most.data(), iterations);
    }
};

} // namespace

int main(int argc, char **argv)
{
    peer_sizes sizes = {};
    const int ranks = argc == 5 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > kRanksMax || !peer_sizes_parse(argv[2], &sizes)) {
        fprintf(stderr, "comm_gloo: give RANKS SIZES ring|bcube FOLDER\n");
        return 2;
    }
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (memory == MAP_FAILED)
        return 3;
    int rank = 0;
    for (int r = 1; r < ranks && rank == 0; r++)
        if (fork() == 0)
            rank = r;
    Rank self;
    self.rank = rank;
    self.size = ranks;
    self.shared = static_cast<Shared *>(memory);
    self.algorithm = strcmp(argv[3], "ring") == 0 ? gloo::AllreduceOptions::Algorithm::RING
                                                  : gloo::AllreduceOptions::Algorithm::BCUBE;
    self.values.assign(static_cast<size_t>(sizes.most_bytes / 4), 0.0f);
    gloo::transport::tcp::attr attr;
    attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(argv[4]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    self.context = context;
    if (rank == 0)
        peer_print_library("gloo", ranks);
    for (int i = 0; i < sizes.count; i++)
        self.run_size(sizes.bytes[i]);
    if (rank != 0)
        _exit(0);
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
