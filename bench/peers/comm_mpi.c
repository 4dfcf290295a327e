/* comm_mpi SIZES: MPI_Allreduce of fp32, in place, timed as `dpbench comm` times its own. */
#include <mpi.h>

#include "comm_peer.h"

struct ranks {
    int rank, size;
    float *values;
    int64_t at_ns[PEER_MOST + 1], most_ns[PEER_MOST];
};

static void all_reduce(const struct ranks *r, int64_t count)
{
    MPI_Allreduce(MPI_IN_PLACE, r->values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
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

int main(int argc, char **argv)
{
    static struct ranks r;
    struct peer_sizes sizes = {0};
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Init(&argc, &argv);
    if (argc != 2 || !peer_sizes_parse(argv[1], &sizes)) {
        fprintf(stderr, "comm_mpi: give sizes in bytes, such as 4,65536\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    MPI_Get_library_version(version, &length);
    peer_bind(r.rank);
    r.values = aligned_alloc(2u << 20, ((size_t)sizes.most_bytes + (2u << 20) - 1) &
                                               ~(size_t)((2u << 20) - 1));
    if (!r.values)
        MPI_Abort(MPI_COMM_WORLD, 3);
    peer_fill(r.values, sizes.most_bytes / 4, r.rank);
    if (r.rank == 0)
        peer_print_library(version, r.size);
    for (int i = 0; i < sizes.count; i++)
        run_size(&r, sizes.bytes[i]);
    free(r.values);
    MPI_Finalize();
    return 0;
}
