/* The faked runtime: its beginning, the calls' count and failures, device queries. */
#include "fake_cudart_private.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* So long without a call of the host, and the device goes on by itself. */
#define DRIFT_AFTER_NS 5000000
#define DRIFT_SLEEP_US 1000

struct fake_cuda fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t drifter;
static bool drifts, drifting;
static _Thread_local cudaError_t last_error;
static _Thread_local int current_device;
static _Thread_local bool has_chosen; /* a device */

static const char *const plant_texts[FAKE_PLANT_COUNT] = {
        [FAKE_PLANT_NONE] = "nothing",
        [FAKE_PLANT_COMPUTE_WAIT] = "the compute stream does not wait",
        [FAKE_PLANT_COMM_WAIT] = "the communication stream does not wait",
        [FAKE_PLANT_RECORD] = "an event is not recorded",
        [FAKE_PLANT_STREAM_SYNC] = "the host does not wait for a stream",
        [FAKE_PLANT_EVENT_SYNC] = "the host does not wait for an event",
        [FAKE_PLANT_COPY_SYNC] = "a copy to the host is not waited for",
};

static const char *const handle_texts[FAKE_HANDLE_COUNT] = {
        [FAKE_STREAM] = "streams",
        [FAKE_EVENT] = "events",
        [FAKE_DEVICE_MEMORY] = "device allocations",
        [FAKE_HOST_MEMORY] = "pinned allocations",
        [FAKE_GRAPH] = "graphs",
        [FAKE_GRAPH_EXEC] = "executable graphs",
        [FAKE_CUBLASLT] = "cuBLASLt handles",
        [FAKE_CUDNN] = "cuDNN handles",
        [FAKE_COMMUNICATOR] = "communicators",
        [FAKE_REDUCTION] = "reduction operators",
        [FAKE_REGISTRATION] = "registrations",
};

const char *fake_cuda_plant_text(enum fake_cuda_plant plant)
{
    return plant_texts[plant];
}

void fake_cuda_stop(int status, const char *format, ...)
{
    char line[512];
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line, sizeof(line) - 1, format, list);
    va_end(list);
    if (length < 0 || length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) != length)
        _exit(FAKE_EXIT_MISUSE);
    _exit(status);
}

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int64_t fake_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* xorshift64*, Vigna 2016 (arXiv:1402.6246). */
uint32_t fake_cuda_random(uint32_t limit)
{
    fake.random ^= fake.random >> 12;
    fake.random ^= fake.random << 25;
    fake.random ^= fake.random >> 27;
    return (uint32_t)((fake.random * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % limit;
}

/* ---- beginning and end ---- */

/* A device works on while its host does something else. Without this, ranks that wait for each
 * other's hosts would hang where real ones do not. */
static void *drift(void *unused)
{
    (void)unused;
    for (;;) {
        usleep(DRIFT_SLEEP_US);
        fake_lock();
        if (!drifts) {
            fake_unlock();
            return NULL;
        }
        if (fake_now_ns() - fake.last_call_ns > DRIFT_AFTER_NS)
            fake_drift(8);
        fake_unlock();
    }
}

void fake_cuda_begin(const struct fake_cuda_config *config)
{
    fake_cuda_end();
    fake_streams_reset();
    fake_graphs_reset();
    fake_memory_reset();
    memset(&fake, 0, sizeof(fake));
    fake.config = *config;
    if (fake.config.devices == 0)
        fake.config.devices = 1;
    if (fake.config.memory_bytes == 0)
        fake.config.memory_bytes = (size_t)1 << 30;
    if (fake.config.driver_version == 0)
        fake.config.driver_version = CUDART_VERSION;
    if (fake.config.hang_s == 0)
        fake.config.hang_s = 20;
    fake.policy = (int)(config->seed % 5);
    fake.random = (config->seed * 2 + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)config->rank;
    for (int i = 0; i < 8; i++)
        fake_cuda_random(2);
    last_error = cudaSuccess;
    current_device = 0;
    has_chosen = true; /* a test need not; threads that the program starts have to */
    drifts = true;
    drifting = pthread_create(&drifter, NULL, drift, NULL) == 0;
}

void fake_cuda_end(void)
{
    if (!drifting)
        return;
    fake_lock();
    drifts = false;
    fake_unlock();
    pthread_join(drifter, NULL);
    drifting = false;
}

/* ---- calls ---- */

cudaError_t fake_result(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

/* Other calls take device 0 where the thread has not chosen, and some hundred MB of it. */
static bool needs_a_device(const char *name)
{
    static const char *const need_none[] = {"cudaSetDevice", "cudaGet",    "cudaDeviceGet",
                                            "cudaDeviceCan", "cudaDriver", "cudaRuntime",
                                            "cudaPeek"};

    for (size_t i = 0; i < sizeof(need_none) / sizeof(need_none[0]); i++) {
        if (strncmp(name, need_none[i], strlen(need_none[i])) == 0)
            return false;
    }
    return strncmp(name, "cuda", 4) == 0;
}

cudaError_t fake_call(const char *name)
{
    if (!has_chosen && needs_a_device(name))
        fake_cuda_stop(FAKE_EXIT_MISUSE, "%s in a thread that has chosen no device", name);
    fake.last_call_ns = fake_now_ns();
    if (++fake.calls != fake.config.fail_call)
        return cudaSuccess;
    fake.failed_call = name;
    return fake_result(cudaErrorUnknown);
}

bool fake_cuda_fails(const char *call)
{
    cudaError_t error;

    fake_lock();
    error = fake_call(call);
    fake_unlock();
    return error != cudaSuccess;
}

void fake_cuda_handle(enum fake_cuda_handle kind, int change)
{
    fake_lock();
    fake.live[kind] += change;
    fake_unlock();
}

bool fake_planted(enum fake_cuda_plant plant)
{
    int64_t call = ++fake.plant_calls[plant];

    return fake.plant == plant && (fake.plant_call == 0 || fake.plant_call == call);
}

void fake_cuda_set_plant(enum fake_cuda_plant plant, int64_t call)
{
    fake_lock();
    fake.plant = plant;
    fake.plant_call = call;
    memset(fake.plant_calls, 0, sizeof(fake.plant_calls));
    fake_unlock();
}

int64_t fake_cuda_calls(void)
{
    return fake.calls;
}

const char *fake_cuda_failed_call(void)
{
    return fake.failed_call;
}

int64_t fake_cuda_plant_calls(enum fake_cuda_plant plant)
{
    return fake.plant_calls[plant];
}

int64_t fake_cuda_leaks(char *text, size_t text_bytes)
{
    int64_t sum = 0;
    size_t length = 0;

    if (text && text_bytes > 0)
        text[0] = '\0';
    for (int kind = 0; kind < FAKE_HANDLE_COUNT; kind++) {
        if (fake.live[kind] == 0)
            continue;
        if (text && length < text_bytes)
            length += (size_t)snprintf(text + length, text_bytes - length, "%s%lld %s",
                                       sum ? ", " : "", (long long)fake.live[kind],
                                       handle_texts[kind]);
        sum += fake.live[kind];
    }
    return sum;
}

/* ---- errors and versions ---- */

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorUnknown:
        return "unknown error";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    default:
        return "an error that the faked runtime has no text for";
    }
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorUnknown:
        return "cudaErrorUnknown";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    default:
        return "cudaErrorOther";
    }
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* Lock, count, and leave when the call has to fail. */
#define BEGIN()                                                                                    \
    do {                                                                                           \
        fake_lock();                                                                               \
        cudaError_t failed_ = fake_call(__func__);                                                 \
        fake_unlock();                                                                             \
        if (failed_ != cudaSuccess)                                                                \
            return failed_;                                                                        \
    } while (0)

cudaError_t cudaDriverGetVersion(int *version)
{
    BEGIN();
    *version = fake.config.driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    BEGIN();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    BEGIN();
    *count = fake.config.devices;
    return cudaSuccess;
}

static cudaError_t check_device(int device)
{
    bool known = device >= 0 && device < fake.config.devices;

    return fake_result(known ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDevice(int device)
{
    BEGIN();
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    current_device = device;
    has_chosen = true;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    BEGIN();
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    (void)device_flags;
    (void)flags;
    BEGIN();
    return check_device(device);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    (void)flags;
    BEGIN();
    return cudaSuccess;
}

/* Shaped as an H200, for what the host asks of it. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    BEGIN();
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    memset(properties, 0, sizeof(*properties));
    snprintf(properties->name, sizeof(properties->name), "faked device");
    memcpy(properties->uuid.bytes, "dpbench fake GPU", 16);
    properties->uuid.bytes[15] = (char)(16 * fake.config.rank + device);
    properties->totalGlobalMem = fake.config.memory_bytes;
    properties->sharedMemPerBlock = 49152;
    properties->sharedMemPerBlockOptin = 232448;
    properties->sharedMemPerMultiprocessor = 233472;
    properties->regsPerBlock = 65536;
    properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 132;
    properties->l2CacheSize = 60 << 20;
    properties->memoryBusWidth = 6144;
    properties->concurrentKernels = 1;
    properties->asyncEngineCount = 3;
    properties->unifiedAddressing = 1;
    properties->streamPrioritiesSupported = 1;
    properties->pciBusID = 1 + fake.config.rank * 8 + device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    BEGIN();
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 132;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 232448;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
    case cudaDevAttrL2CacheSize:
        *value = 60 << 20;
        break;
    case cudaDevAttrClockRate:
        *value = 1980000;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 3201000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 6144;
        break;
    case cudaDevAttrPciBusId:
        *value = 1 + fake.config.rank * 8 + device;
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    BEGIN();
    if (check_device(device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    snprintf(text, (size_t)length, "00000000:%02x:00.0", 1 + fake.config.rank * 8 + device);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    BEGIN();
    *can = device != peer;
    return check_device(peer);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* ---- functions of the driver ---- */

static int driver_get_uuid(char *uuid, int device)
{
    memcpy(uuid, "dpbench fake GPU", 16);
    uuid[15] = (char)(16 * fake.config.rank + device);
    return 0;
}

static int driver_get_device(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

static int driver_get_version(int *version)
{
    *version = fake.config.driver_version;
    return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } known[] = {
            {"cuDeviceGetUuid", (void (*)(void))driver_get_uuid},
            {"cuDeviceGet", (void (*)(void))driver_get_device},
            {"cuDriverGetVersion", (void (*)(void))driver_get_version},
    };

    (void)version;
    (void)flags;
    BEGIN();
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(symbol, known[i].name) != 0)
            continue;
        memcpy(function, &known[i].function, sizeof(*function));
        if (status)
            *status = cudaDriverEntryPointSuccess;
        return cudaSuccess;
    }
    *function = NULL;
    if (status)
        *status = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
