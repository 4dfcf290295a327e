/* comm_mpi_schedule SIZES ALGORITHM: dpbench's all-reduce by one of its own algorithms over MPI's
 * messages, timed as comm_mpi times MPI_Allreduce: in the caller, without a progress thread. */
#include <mpi.h>

#include "comm_peer.h"

#include "dpb_comm_mpi.h"

#define TIMEOUT_NS INT64_C(60000000000)

struct ranks {
    int rank, size;
    dpb_comm *comm;
    float *values;
    int64_t at_ns[PEER_MOST + 1], most_ns[PEER_MOST];
};

static void end(const char *why)
{
    fprintf(stderr, "comm_mpi_schedule: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void all_reduce(const struct ranks *r, int64_t count)
{
    const struct dpb_coll coll = {DPB_COLL_ALL_REDUCE, DPB_F32, r->values, count, 0, 1, -1};
    if (dpb_comm_run(r->comm, &coll, NULL) < 0)
        end("the all-reduce failed");
}

static int64_t check(const struct ranks *r, int64_t count)
{
    peer_fill(r->values, count, r->rank);
    all_reduce(r, count);
    int64_t wrong = peer_wrong(r->values, count, r->size);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

static void run_size(struct ranks *r, int64_t bytes)
{
    const int64_t count = bytes / 4;
    int64_t wrong = check(r, count);
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t start_ns = peer_now_ns();
    for (int i = 0; i < PEER_WARMUP; i++)
        all_reduce(r, count);
    int64_t each_ns = (peer_now_ns() - start_ns) / PEER_WARMUP;
    MPI_Allreduce(MPI_IN_PLACE, &each_ns, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    const int64_t iterations = peer_iterations(each_ns);
    MPI_Barrier(MPI_COMM_WORLD);
    r->at_ns[0] = peer_now_ns();
    for (int64_t i = 0; i < iterations; i++) {
        all_reduce(r, count);
        r->at_ns[i + 1] = peer_now_ns();
    }
    for (int64_t i = 0; i < iterations; i++)
        r->at_ns[i] = r->at_ns[i + 1] - r->at_ns[i];
    MPI_Reduce(r->at_ns, r->most_ns, (int)iterations, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    wrong += check(r, count);
    if (r->rank == 0)
        peer_print_row(bytes, wrong, r->most_ns, iterations);
}

static void open_comm(struct ranks *r, enum dpb_algorithm algorithm, int64_t bytes)
{
    const struct dpb_comm_mpi_options options = {algorithm, DPB_COMM_MPI_NONE};
    const struct dpb_comm_config config = {.rank = r->rank,
                                           .size = r->size,
                                           .local_rank = r->rank,
                                           .segment_fd = -1,
                                           .timeout_ns = TIMEOUT_NS,
                                           .options = &options};
    void *buffer;
    if (dpb_comm_mpi_ops.open(&config, &r->comm) < 0 ||
        dpb_comm_mpi_ops.buffer_alloc(r->comm, (size_t)bytes, &buffer) < 0)
        end("the comm does not open");
    r->values = buffer;
}

int main(int argc, char **argv)
{
    static struct ranks r;
    struct peer_sizes sizes = {0};
    enum dpb_algorithm algorithm;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    if (argc != 3 || !peer_sizes_parse(argv[1], &sizes) || !dpb_algorithm_find(argv[2], &algorithm))
        end("give sizes in bytes, such as 4,65536, and an algorithm, such as ring");
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    MPI_Get_library_version(version, &length);
    peer_bind(r.rank);
    open_comm(&r, algorithm, sizes.most_bytes);
    if (r.rank == 0)
        peer_print_library(version, r.size);
    for (int i = 0; i < sizes.count; i++)
        run_size(&r, sizes.bytes[i]);
    dpb_comm_mpi_ops.close(r.comm);
    MPI_Finalize();
    return 0;
}
