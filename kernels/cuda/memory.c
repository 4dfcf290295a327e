/* Device memory from blocks that are kept, pinned host memory, and copies. */
#include "cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

struct dpb_cuda_block {
    struct dpb_cuda_block *next;
    void *memory;
    size_t bytes;
    bool used;
};

void dpb_cuda_memory_init(struct dpb_cuda_memory *memory)
{
    *memory = (struct dpb_cuda_memory){0};
    pthread_mutex_init(&memory->lock, NULL);
}

/* Give blocks back to the driver: those that are kept, or all. */
static void give_back(struct dpb_cuda_memory *memory, bool all)
{
    struct dpb_cuda_block **link = &memory->blocks;

    while (*link) {
        struct dpb_cuda_block *block = *link;

        if (block->used && !all) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        memory->bytes -= (int64_t)block->bytes;
        dpb_cuda_check(cudaFree(block->memory), "cudaFree", "free device memory");
        free(block);
    }
}

void dpb_cuda_memory_release(struct dpb_cuda_memory *memory)
{
    give_back(memory, true);
    pthread_mutex_destroy(&memory->lock);
}

/* A kept block wastes at most an eighth of itself. */
static bool fits(const struct dpb_cuda_block *block, size_t bytes)
{
    return !block->used && block->bytes >= bytes && block->bytes - bytes <= block->bytes / 8;
}

static struct dpb_cuda_block *find_kept(struct dpb_cuda_memory *memory, size_t bytes)
{
    struct dpb_cuda_block *best = NULL;

    for (struct dpb_cuda_block *block = memory->blocks; block; block = block->next) {
        if (fits(block, bytes) && (!best || block->bytes < best->bytes))
            best = block;
    }
    return best;
}

static dpb_status no_memory(size_t bytes)
{
    size_t available = 0, total = 0;

    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError();
    dpb_error("cuda: out of memory for %zu bytes: the device has %zu, %zu of them free", bytes,
              total, available);
    dpb_log_hint("take a smaller batch or model, and look at nvidia-smi for who else has memory");
    return DPB_ERR_NO_MEMORY;
}

static dpb_status take_new(dpb_device *device, size_t bytes, void **memory)
{
    struct dpb_cuda_memory *all = &device->memory;
    struct dpb_cuda_block *block = calloc(1, sizeof(*block));
    cudaError_t error;

    if (!block)
        return DPB_ERR_NO_MEMORY;
    /* What is kept and fits nobody: never more than one size of what algorithms are measured in. */
    give_back(all, false);
    dpb_cuda_count(device, &all->allocations);
    error = cudaMalloc(&block->memory, bytes);
    if (error != cudaSuccess) {
        free(block);
        if (error != cudaErrorMemoryAllocation)
            return dpb_cuda_check(error, "cudaMalloc", "allocate device memory");
        cudaGetLastError();
        return DPB_ERR_NO_MEMORY;
    }
    block->bytes = bytes;
    block->used = true;
    block->next = all->blocks;
    all->blocks = block;
    all->bytes += (int64_t)bytes;
    *memory = block->memory;
    return DPB_OK;
}

dpb_status dpb_cuda_memory_try(dpb_device *device, size_t bytes, void **memory)
{
    struct dpb_cuda_memory *all = &device->memory;
    struct dpb_cuda_block *block;
    dpb_status st = DPB_OK;
    size_t rounded;

    if (bytes > PTRDIFF_MAX)
        return DPB_ERR_NO_MEMORY;
    rounded = bytes ? (bytes + DPB_CUDA_ALIGNMENT - 1) / DPB_CUDA_ALIGNMENT * DPB_CUDA_ALIGNMENT
                    : DPB_CUDA_ALIGNMENT;
    pthread_mutex_lock(&all->lock);
    block = find_kept(all, rounded);
    if (block) {
        block->used = true;
        *memory = block->memory;
    } else {
        st = take_new(device, rounded, memory);
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

dpb_status dpb_cuda_memory_take(dpb_device *device, size_t bytes, void **memory)
{
    dpb_status st = dpb_cuda_memory_try(device, bytes, memory);

    return st == DPB_ERR_NO_MEMORY ? no_memory(bytes) : st;
}

void dpb_cuda_memory_put(dpb_device *device, void *memory)
{
    pthread_mutex_lock(&device->memory.lock);
    for (struct dpb_cuda_block *block = device->memory.blocks; block; block = block->next) {
        if (block->memory == memory)
            block->used = false;
    }
    pthread_mutex_unlock(&device->memory.lock);
}

int64_t dpb_cuda_memory_kept(dpb_device *device)
{
    int64_t kept = 0;

    pthread_mutex_lock(&device->memory.lock);
    for (struct dpb_cuda_block *block = device->memory.blocks; block; block = block->next)
        kept += block->used ? 0 : (int64_t)block->bytes;
    pthread_mutex_unlock(&device->memory.lock);
    return kept;
}

void dpb_cuda_memory_trim(dpb_device *device)
{
    if (dpb_cuda_enter(device) < 0)
        return;
    pthread_mutex_lock(&device->memory.lock);
    give_back(&device->memory, false);
    pthread_mutex_unlock(&device->memory.lock);
}

/* ---- members of the table ---- */

/* Work that still uses a block from before it was freed must not see it zeroed. */
static dpb_status zero(dpb_device *device, void *memory, size_t bytes)
{
    DPB_CUDA_TRY("allocate device memory", cudaDeviceSynchronize, ());
    DPB_CUDA_TRY("zero device memory", cudaMemsetAsync, (memory, 0, bytes, device->main->native));
    DPB_CUDA_TRY("zero device memory", cudaStreamSynchronize, (device->main->native));
    return DPB_OK;
}

dpb_status dpb_cuda_alloc(dpb_device *device, size_t bytes, void **memory)
{
    void *taken;
    dpb_status st;

    DPB_TRY(dpb_cuda_enter(device));
    DPB_TRY(dpb_cuda_memory_take(device, bytes, &taken));
    st = bytes ? zero(device, taken, bytes) : DPB_OK;
    if (st < 0) {
        dpb_cuda_memory_put(device, taken);
        return st;
    }
    *memory = taken;
    return DPB_OK;
}

void dpb_cuda_free(dpb_device *device, void *memory)
{
    if (memory)
        dpb_cuda_memory_put(device, memory);
}

dpb_status dpb_cuda_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                         dpb_stream *stream)
{
    cudaStream_t native = stream ? stream->native : device->main->native;
    char what[64];

    if (bytes == 0)
        return DPB_OK;
    DPB_TRY(dpb_cuda_enter(device));
    snprintf(what, sizeof(what), "copy %zu bytes", bytes);
    DPB_CUDA_TRY(what, cudaMemcpyAsync, (to, from, bytes, cudaMemcpyDefault, native));
    if (!stream)
        DPB_CUDA_TRY(what, cudaStreamSynchronize, (native));
    return DPB_OK;
}

dpb_status dpb_cuda_host_alloc(dpb_device *device, size_t bytes, void **memory)
{
    size_t rounded = bytes ? bytes : 1;
    char what[64];
    void *made;

    DPB_TRY(dpb_cuda_enter(device));
    snprintf(what, sizeof(what), "pin %zu bytes of host memory", bytes);
    dpb_cuda_count(device, &device->memory.host_allocations);
    DPB_CUDA_TRY(what, cudaHostAlloc, (&made, rounded, cudaHostAllocPortable));
    memset(made, 0, rounded);
    *memory = made;
    return DPB_OK;
}

void dpb_cuda_host_free(dpb_device *device, void *memory)
{
    if (!memory)
        return;
    dpb_cuda_enter(device);
    /* Copies of it may be under way. */
    dpb_cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "free pinned host memory");
    dpb_cuda_check(cudaFreeHost(memory), "cudaFreeHost", "free pinned host memory");
}

dpb_status dpb_cuda_memory_bytes(dpb_device *device, int64_t *available, int64_t *total)
{
    size_t free_bytes, all_bytes;

    DPB_TRY(dpb_cuda_enter(device));
    DPB_CUDA_TRY("read how much memory there is", cudaMemGetInfo, (&free_bytes, &all_bytes));
    *available = (int64_t)free_bytes + dpb_cuda_memory_kept(device);
    *total = (int64_t)all_bytes;
    return DPB_OK;
}
