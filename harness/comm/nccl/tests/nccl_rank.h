/* nccl_rank.h: a rank of comm "nccl" in a test, on the faked CUDA runtime and the faked NCCL. */
#ifndef DPB_NCCL_TEST_RANK_H
#define DPB_NCCL_TEST_RANK_H

#include <cuda_runtime_api.h>

#include "dpb_comm_nccl.h"
#include "fake_cudart.h"
#include "fake_nccl.h"
#include "ranks.h"

/* What all ranks of a test have; the rank's number is mixed in. */
struct nccl_plan {
    struct fake_nccl_world *world;
    uint64_t seed;
    struct fake_nccl_config nccl; /* its seed is `seed` */
    struct dpb_comm_nccl_options options;
    const struct dpb_nccl_table *table; /* NULL: fake_nccl */
    bool tcp;                           /* ranks meet at a server */
    int same_gpu;                       /* ranks from this one on have that of this one; 0: none */
};

struct nccl_rank {
    const struct nccl_plan *plan;
    struct dpb_comm_config config;
    const struct dpb_comm_ops *ops;
    dpb_comm *comm;
    cudaStream_t stream; /* what computing is launched on */
};

/* Begin the fakes, and fill `rank`; its communicator is not open yet. */
void nccl_rank_begin(struct ranks_self *self, const struct nccl_plan *plan, struct nccl_rank *rank);
/* Destroy what begin() made, and require that nothing has leaked. */
void nccl_rank_end(struct nccl_rank *rank);

/* The same stream for the comm. */
static inline dpb_stream *nccl_rank_stream(const struct nccl_rank *rank)
{
    return (dpb_stream *)rank->stream;
}

/* Copies in the order of the stream; the second blocks. */
void nccl_rank_write(const struct nccl_rank *rank, void *device, const void *host, size_t bytes);
void nccl_rank_read(const struct nccl_rank *rank, void *host, const void *device, size_t bytes);

#endif
