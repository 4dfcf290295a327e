#include "nccl_rank.h"

#include <stdio.h>
#include <string.h>

static void *stream_native(dpb_stream *stream)
{
    return stream;
}

/* As much of a device as the comm needs. */
static const struct dpb_device_ops device_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "test",
        .flags = DPB_DEVICE_ACCELERATOR,
        .stream_native = stream_native,
};

static struct dpb_device_base device = {&device_ops};

void nccl_rank_begin(struct ranks_self *self, const struct nccl_plan *plan, struct nccl_rank *rank)
{
    const bool shares = plan->same_gpu > 0 && self->config.rank > plan->same_gpu;
    struct fake_nccl_config nccl = plan->nccl;
    nccl.seed = plan->seed;
    fake_cuda_begin(&(struct fake_cuda_config){
            .seed = plan->seed, .rank = shares ? plan->same_gpu : self->config.rank});
    fake_nccl_begin(plan->world, &nccl);
    dpb_nccl_table_install(plan->table ? plan->table : &fake_nccl);
    *rank = (struct nccl_rank){.plan = plan, .config = self->config, .ops = &dpb_comm_nccl_ops};
    rank->config.device = (dpb_device *)&device;
    rank->config.options = &plan->options;
    RANK_EQUAL(cudaStreamCreateWithPriority(&rank->stream, cudaStreamNonBlocking, 0), cudaSuccess);
}

void nccl_rank_end(struct nccl_rank *rank)
{
    char leaks[256];
    RANK_EQUAL(cudaStreamDestroy(rank->stream), cudaSuccess);
    fake_cuda_end();
    if (fake_cuda_leaks(leaks, sizeof(leaks)) == 0)
        return;
    fprintf(stderr, "rank %d: leaks %s\n", rank->config.rank, leaks);
    RANK_CHECK(!"nothing leaks");
}

void nccl_rank_write(const struct nccl_rank *rank, void *to, const void *host, size_t bytes)
{
    RANK_EQUAL(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, rank->stream), cudaSuccess);
}

void nccl_rank_read(const struct nccl_rank *rank, void *host, const void *from, size_t bytes)
{
    RANK_EQUAL(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, rank->stream),
               cudaSuccess);
    RANK_EQUAL(cudaStreamSynchronize(rank->stream), cudaSuccess);
}
