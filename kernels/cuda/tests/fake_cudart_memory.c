/* The faked runtime's memory. Two reserves of addresses, for the device and for pinned host memory;
 * no address is given out twice. An allocation ends where its page ends, and a page without access
 * follows. Pages of the device are accessible only between fake_memory_open() and
 * fake_memory_close(), from when they are first touched; pages that were freed never. */
#include "fake_cudart_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVE_BYTES   ((size_t)16 << 30)
#define ALIGNMENT_BYTES 256 /* what cudaMalloc() promises */
#define PAGE_BYTES      4096
#define POISONED_BYTES  ((size_t)4 << 20) /* at most, of an allocation: pages cost time */

struct region {
    struct region *next;
    enum fake_place place;
    char *start, *pages;
    size_t bytes, pages_bytes; /* 0 pages: registered, not ours */
    bool live, reached;        /* reached: accessible since work on the device touched it */
};

static struct {
    char *start;
    size_t used;
} reserves[3];
static struct region *regions;
static size_t device_bytes, device_peak_bytes;
static volatile sig_atomic_t opened; /* depth */

/* ---- faults ---- */

/* Work on the device touched an allocation for the first time since fake_memory_open(). */
static bool reach(const char *at)
{
    for (struct region *region = regions; region; region = region->next) {
        if (at < region->pages || at >= region->pages + region->pages_bytes)
            continue;
        if (!region->live || region->reached)
            return false;
        region->reached = true;
        return mprotect(region->pages, region->pages_bytes, PROT_READ | PROT_WRITE) == 0;
    }
    return false;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    char *at = info->si_addr;

    (void)context;
    for (int place = FAKE_PINNED; place <= FAKE_DEVICE; place++) {
        if (!reserves[place].start || at < reserves[place].start ||
            at >= reserves[place].start + RESERVE_BYTES)
            continue;
        if (place == FAKE_PINNED)
            fake_cuda_stop(FAKE_EXIT_FAULT, "fake: pinned memory at %p is freed, or beyond its end",
                           (void *)at);
        if (opened && reach(at))
            return;
        if (opened)
            fake_cuda_stop(FAKE_EXIT_FAULT,
                           "fake: work on the device touched %p, which is freed, or beyond the end "
                           "of its allocation",
                           (void *)at);
        fake_cuda_stop(FAKE_EXIT_FAULT, "fake: the host touched device memory at %p", (void *)at);
    }
    sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void catch_faults(void)
{
    sigaction(SIGSEGV,
              &(struct sigaction){.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER},
              NULL);
}

void fake_memory_reset(void)
{
    while (regions) {
        struct region *next = regions->next;

        if (regions->pages_bytes)
            munmap(regions->pages, regions->pages_bytes);
        free(regions);
        regions = next;
    }
    for (int place = FAKE_PINNED; place <= FAKE_DEVICE; place++) {
        if (reserves[place].start)
            munmap(reserves[place].start, RESERVE_BYTES);
        reserves[place].used = 0;
        reserves[place].start = mmap(NULL, RESERVE_BYTES, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserves[place].start == MAP_FAILED)
            fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: no addresses for memory");
    }
    device_bytes = device_peak_bytes = 0;
    opened = 0;
    catch_faults();
}

/* ---- regions ---- */

static struct region *region_of(const void *memory)
{
    const char *at = memory;

    for (struct region *region = regions; region; region = region->next) {
        if (at >= region->start && at < region->start + region->bytes)
            return region;
    }
    return NULL;
}

static bool in_reserve(const void *memory)
{
    const char *at = memory;

    for (int place = FAKE_PINNED; place <= FAKE_DEVICE; place++) {
        if (reserves[place].start && at >= reserves[place].start &&
            at < reserves[place].start + RESERVE_BYTES)
            return true;
    }
    return false;
}

enum fake_place fake_memory_place(const char *what, const void *memory, size_t bytes)
{
    struct region *region = region_of(memory);

    if (!region) {
        if (in_reserve(memory))
            fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: %s: %p lies in no allocation", what, memory);
        return FAKE_PAGEABLE;
    }
    if (!region->live)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: %s: the memory at %p has been freed", what, memory);
    if ((const char *)memory + bytes > region->start + region->bytes)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: %s: %zu bytes at %p are more than its allocation",
                       what, bytes, memory);
    return region->place;
}

void fake_cuda_check_device(const char *what, const void *memory, size_t bytes)
{
    enum fake_place place;

    if (bytes == 0)
        return;
    fake_lock();
    place = fake_memory_place(what, memory, bytes);
    fake_unlock();
    if (place != FAKE_DEVICE)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: %s: %p is not device memory", what, memory);
}

void fake_memory_open(void)
{
    if (opened++ == 0)
        catch_faults(); /* again: cmocka puts a handler of its own in place for every test */
}

void fake_memory_close(void)
{
    if (--opened > 0)
        return;
    for (struct region *region = regions; region; region = region->next) {
        if (region->reached && region->live)
            mprotect(region->pages, region->pages_bytes, PROT_NONE);
        region->reached = false;
    }
}

static struct region *allocate(enum fake_place place, size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    size_t pages = (rounded + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct region *region;

    if (reserves[place].used + pages + PAGE_BYTES > RESERVE_BYTES)
        return NULL;
    region = calloc(1, sizeof(*region));
    if (!region)
        return NULL;
    region->place = place;
    region->pages = reserves[place].start + reserves[place].used;
    region->pages_bytes = pages;
    region->start = region->pages + pages - rounded;
    region->bytes = bytes;
    region->live = true;
    region->next = regions;
    regions = region;
    reserves[place].used += pages + PAGE_BYTES;
    mprotect(region->pages, pages, PROT_READ | PROT_WRITE);
    memset(region->start, 0xff, rounded < POISONED_BYTES ? rounded : POISONED_BYTES); /* NaNs */
    if (place == FAKE_DEVICE)
        mprotect(region->pages, pages, PROT_NONE);
    return region;
}

static void give_back(struct region *region)
{
    region->live = false;
    madvise(region->pages, region->pages_bytes, MADV_DONTNEED);
    mprotect(region->pages, region->pages_bytes, PROT_NONE);
}

int64_t fake_cuda_device_bytes(int64_t *peak)
{
    int64_t bytes;

    fake_lock();
    bytes = (int64_t)device_bytes;
    if (peak)
        *peak = (int64_t)device_peak_bytes;
    fake_unlock();
    return bytes;
}

/* ---- the calls ---- */

/* Lock and count; leave with the failure when the call has to fail. Every way out unlocks. */
#define BEGIN()                                                                                    \
    do {                                                                                           \
        fake_lock();                                                                               \
        cudaError_t failed_ = fake_call(__func__);                                                 \
        if (failed_ != cudaSuccess)                                                                \
            return end(failed_);                                                                   \
    } while (0)

static cudaError_t end(cudaError_t error)
{
    fake_unlock();
    return fake_result(error);
}

static cudaError_t make(enum fake_place place, void **memory, size_t bytes)
{
    struct region *region;
    cudaError_t error = fake_capture_spoils();

    if (error != cudaSuccess)
        return error;
    if (bytes == 0) {
        *memory = NULL;
        return cudaSuccess;
    }
    if (place == FAKE_DEVICE && bytes > fake.config.memory_bytes - device_bytes)
        return cudaErrorMemoryAllocation;
    region = allocate(place, bytes);
    if (!region)
        return cudaErrorMemoryAllocation;
    if (place == FAKE_DEVICE)
        device_bytes += bytes;
    if (device_bytes > device_peak_bytes)
        device_peak_bytes = device_bytes;
    fake.live[place == FAKE_DEVICE ? FAKE_DEVICE_MEMORY : FAKE_HOST_MEMORY]++;
    *memory = region->start;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    BEGIN();
    return end(make(FAKE_DEVICE, memory, bytes));
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    BEGIN();
    return end(make(FAKE_PINNED, memory, bytes));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    BEGIN();
    return end(make(FAKE_PINNED, memory, bytes));
}

static cudaError_t unmake(enum fake_place place, void *memory, const char *call)
{
    struct region *region = region_of(memory);
    cudaError_t failed = fake_call(call);

    if (!memory)
        return failed;
    if (!region || region->start != (char *)memory || region->place != place || !region->live)
        return cudaErrorInvalidValue;
    if (fake_capture_spoils() != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    /* The device is waited for; pinned memory is not promised that. */
    if (place == FAKE_DEVICE) {
        fake_drain(NULL, call);
        device_bytes -= region->bytes;
    }
    give_back(region);
    fake.live[place == FAKE_DEVICE ? FAKE_DEVICE_MEMORY : FAKE_HOST_MEMORY]--;
    return failed;
}

cudaError_t cudaFree(void *memory)
{
    fake_lock();
    return end(unmake(FAKE_DEVICE, memory, __func__));
}

cudaError_t cudaFreeHost(void *memory)
{
    fake_lock();
    return end(unmake(FAKE_PINNED, memory, __func__));
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    struct region *region;

    (void)flags;
    BEGIN();
    region = calloc(1, sizeof(*region));
    if (!region)
        return end(cudaErrorMemoryAllocation);
    *region = (struct region){
            .next = regions, .place = FAKE_PINNED, .start = memory, .bytes = bytes, .live = true};
    regions = region;
    fake.live[FAKE_HOST_MEMORY]++;
    return end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t failed;

    fake_lock();
    failed = fake_call(__func__);
    for (struct region **at = &regions; *at; at = &(*at)->next) {
        struct region *region = *at;

        if (region->start != (char *)memory || region->pages_bytes)
            continue;
        *at = region->next;
        free(region);
        fake.live[FAKE_HOST_MEMORY]--;
        return end(failed);
    }
    return end(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    BEGIN();
    *available = fake.config.memory_bytes - device_bytes;
    *total = fake.config.memory_bytes;
    return end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    struct region *region;

    BEGIN();
    memset(attributes, 0, sizeof(*attributes));
    region = region_of(memory);
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -1;
    if (region && region->live) {
        bool device = region->place == FAKE_DEVICE;

        attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        attributes->device = 0;
        attributes->devicePointer = (void *)memory;
        attributes->hostPointer = device ? NULL : (void *)memory;
    }
    return end(cudaSuccess);
}

/* ---- copies ---- */

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;
    char staged[]; /* what pageable memory held when the call was made */
};

static bool run_copy(void *context)
{
    struct copy *copy = context;

    memmove(copy->to, copy->from, copy->bytes);
    return true;
}

static bool run_set(void *context)
{
    struct copy *set = context;

    memset(set->to, set->value, set->bytes);
    return true;
}

static bool kind_fits(enum cudaMemcpyKind kind, enum fake_place to, enum fake_place from)
{
    bool to_device = to == FAKE_DEVICE, from_device = from == FAKE_DEVICE;

    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

/* As "API synchronization behavior" in the runtime's manual has it: pageable memory is read before
 * the call returns, and written before it returns; pinned memory whenever the stream comes to it.
 */
static cudaError_t copy_later(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                              struct CUstream_st *stream, const char *call)
{
    enum fake_place to_place = fake_memory_place(call, to, bytes);
    enum fake_place from_place = fake_memory_place(call, from, bytes);
    bool stages = from_place == FAKE_PAGEABLE && !stream->capture;
    bool waits =
            to_place == FAKE_PAGEABLE || (to_place != FAKE_DEVICE && from_place != FAKE_DEVICE);
    struct copy *copy;
    cudaError_t error;

    if (!kind_fits(kind, to_place, from_place))
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: %s: the direction %d is not that of %p and %p",
                       call, (int)kind, to, from);
    if (stages && fake_cuda_random(2) == 0)
        fake_drain(stream, call);
    copy = malloc(sizeof(*copy) + (stages ? bytes : 0));
    if (!copy)
        return cudaErrorMemoryAllocation;
    *copy = (struct copy){.to = to, .from = from, .bytes = bytes};
    if (stages) {
        memcpy(copy->staged, from, bytes);
        copy->from = copy->staged;
    }
    fake_unlock();
    error = fake_cuda_enqueue(
            stream, &(struct fake_cuda_work){
                            .name = "copy", .run = run_copy, .release = free, .context = copy});
    fake_lock();
    if (error == cudaSuccess && waits && !stream->capture && !fake_planted(FAKE_PLANT_COPY_SYNC))
        fake_drain(stream, call);
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    struct CUstream_st *stream;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    if (bytes == 0)
        return end(cudaSuccess);
    return end(copy_later(to, from, bytes, kind, stream, __func__));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct CUstream_st *stream;
    cudaError_t error;

    BEGIN();
    error = fake_capture_spoils();
    if (error != cudaSuccess || bytes == 0)
        return end(error);
    stream = fake_stream(NULL);
    error = copy_later(to, from, bytes, kind, stream, __func__);
    fake_drain(stream, __func__);
    return end(error);
}

static cudaError_t set_later(void *memory, int value, size_t bytes, struct CUstream_st *stream,
                             const char *call)
{
    struct copy *set;
    cudaError_t error;

    if (bytes == 0)
        return cudaSuccess;
    fake_memory_place(call, memory, bytes);
    set = malloc(sizeof(*set));
    if (!set)
        return cudaErrorMemoryAllocation;
    *set = (struct copy){.to = memory, .value = value, .bytes = bytes};
    fake_unlock();
    error = fake_cuda_enqueue(
            stream, &(struct fake_cuda_work){
                            .name = "set", .run = run_set, .release = free, .context = set});
    fake_lock();
    return error;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t handle)
{
    struct CUstream_st *stream;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    return end(set_later(memory, value, bytes, stream, __func__));
}

/* Asynchronous as to the host for device memory, as the manual says. */
cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    BEGIN();
    return end(set_later(memory, value, bytes, fake_stream(NULL), __func__));
}
