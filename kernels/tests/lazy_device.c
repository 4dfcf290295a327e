#include "lazy_device.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_pointers.h"

#define RANGES_MAX 1024
#define PAGE_BYTES ((size_t)4096)
#define NUDGE_NS   200000

enum what {
    RUN_OP,
    RUN_COPY,
    RUN_RECORD,
    RUN_WAIT,
    RUN_CALL
};

struct item {
    struct item *next;
    enum what what;
    enum dpb_op op;
    int count;
    void *args; /* of operators: copied when they are launched */
    void *to;
    const void *from;
    size_t bytes;
    dpb_event_mark *mark;
    int64_t version;
    dpb_status (*call)(void *ctx);
    void *ctx;
};

struct dpb_stream {
    dpb_device *device;
    dpb_stream *next;
    struct item *first, **last;
    int64_t queued, done;
    int64_t forked; /* items that came while a graph is captured, and no wait has taken in */
};

struct dpb_event_mark {
    dpb_device *device;
    dpb_stream *stream; /* where it was recorded last */
    int64_t recorded, done;
    int64_t time_ns;
};

/* Addresses that the program knows, and what is there; real NULL: of host_alloc(). */
struct range {
    char *begin;
    size_t bytes;
    char *real;
    bool is_adopted;
};

struct dpb_device {
    struct dpb_device_base base;
    struct dpb_device_ops ops;
    dpb_device *inner;
    dpb_stream *inner_stream;
    enum lazy_fault fault;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int blocked; /* callers that wait: while there is one, what is queued runs */
    bool stop, is_running;
    dpb_stream *capturing;
    dpb_status failed;
    uint64_t random;
    dpb_stream *streams;
    int64_t graphs, runs;
    int64_t bytes, host_bytes; /* taken now; by the thread that opens and closes */
};

/* ---- memory ---- */

/* Of all devices of the process, so that a signal handler finds them. */
static struct range ranges[RANGES_MAX];
static pthread_mutex_t ranges_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct range *range_of(const void *address)
{
    for (int i = 0; i < RANGES_MAX; i++) {
        struct range *range = &ranges[i];

        if (range->begin && (const char *)address >= range->begin &&
            (const char *)address < range->begin + range->bytes)
            return range;
    }
    return NULL;
}

static void on_touch(int number, siginfo_t *info, void *context)
{
    static const char text[] = "lazy device: the host touches memory of the device\n";
    const struct range *range = range_of(info->si_addr);

    (void)context;
    if (range && range->real && write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(98);
    signal(number, SIG_DFL); /* and again */
}

static void watch_touches(void)
{
    struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};

    sigaction(SIGSEGV, &action, NULL);
}

static dpb_status add_range(char *begin, size_t bytes, char *real, bool is_adopted)
{
    dpb_status st = DPB_ERR_NO_MEMORY;

    pthread_mutex_lock(&ranges_mutex);
    for (int i = 0; i < RANGES_MAX && st < 0; i++) {
        if (ranges[i].begin)
            continue;
        ranges[i] = (struct range){begin, bytes, real, is_adopted};
        st = DPB_OK;
    }
    pthread_mutex_unlock(&ranges_mutex);
    return st;
}

/* Addresses with nothing behind them. */
static dpb_status give_addresses(char *real, size_t bytes, bool is_adopted, void **memory)
{
    const size_t room = (bytes / PAGE_BYTES + 2) * PAGE_BYTES;
    char *begin = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (begin == MAP_FAILED)
        return DPB_ERR_NO_MEMORY;
    *memory = begin;
    return add_range(begin, bytes > 0 ? bytes : 1, real, is_adopted);
}

static char *take_addresses(void *memory, size_t *bytes)
{
    struct range *range;
    char *real;

    pthread_mutex_lock(&ranges_mutex);
    range = range_of(memory);
    real = range->real;
    *bytes = range->bytes;
    munmap(range->begin, (range->bytes / PAGE_BYTES + 1) * PAGE_BYTES);
    *range = (struct range){0};
    pthread_mutex_unlock(&ranges_mutex);
    return real;
}

void *lazy_device_real(dpb_device *device, const void *memory)
{
    const struct range *range;
    char *real;

    (void)device;
    pthread_mutex_lock(&ranges_mutex);
    range = range_of(memory);
    real = range && range->real ? range->real + ((const char *)memory - range->begin)
                                : (char *)memory;
    pthread_mutex_unlock(&ranges_mutex);
    return real;
}

static bool is_of_device(const void *memory)
{
    const struct range *range;
    bool is;

    pthread_mutex_lock(&ranges_mutex);
    range = range_of(memory);
    is = range && range->real;
    pthread_mutex_unlock(&ranges_mutex);
    return is;
}

static bool is_known(const void *memory)
{
    bool is;

    pthread_mutex_lock(&ranges_mutex);
    is = range_of(memory) != NULL;
    pthread_mutex_unlock(&ranges_mutex);
    return is;
}

static dpb_status lazy_alloc(dpb_device *device, size_t bytes, void **memory)
{
    void *real;

    DPB_TRY(dpb_device_get_ops(device->inner)->alloc(device->inner, bytes, &real));
    device->bytes += bytes > 0 ? (int64_t)bytes : 1;
    return give_addresses(real, bytes, false, memory);
}

static void lazy_free(dpb_device *device, void *memory)
{
    size_t bytes;

    (void)lazy_device_drain(device);
    dpb_device_get_ops(device->inner)->free(device->inner, take_addresses(memory, &bytes));
    device->bytes -= (int64_t)bytes;
}

static dpb_status lazy_host_alloc(dpb_device *device, size_t bytes, void **memory)
{
    DPB_TRY(dpb_device_get_ops(device->inner)->alloc(device->inner, bytes, memory));
    device->host_bytes += bytes > 0 ? (int64_t)bytes : 1;
    return add_range(*memory, bytes > 0 ? bytes : 1, NULL, false);
}

static void lazy_host_free(dpb_device *device, void *memory)
{
    (void)lazy_device_drain(device);
    pthread_mutex_lock(&ranges_mutex);
    device->host_bytes -= (int64_t)range_of(memory)->bytes;
    *range_of(memory) = (struct range){0};
    pthread_mutex_unlock(&ranges_mutex);
    dpb_device_get_ops(device->inner)->free(device->inner, memory);
}

dpb_status lazy_device_adopt(dpb_device *device, void *real, size_t bytes, void **memory)
{
    device->bytes += (int64_t)bytes;
    return give_addresses(real, bytes, true, memory);
}

void lazy_device_forget(dpb_device *device, void *memory)
{
    size_t bytes;

    take_addresses(memory, &bytes);
    device->bytes -= (int64_t)bytes;
}

/* ---- running ---- */

/* Steele, Lea, Flood 2014: SplitMix64 */
static uint64_t draw(dpb_device *device)
{
    uint64_t value = device->random += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static bool is_mapped(uintptr_t address)
{
    unsigned char resident;

    return address >= OP_LEAST_ADDRESS && address < UINT64_C(1) << 47 &&
           mincore((void *)(address & ~(uintptr_t)(PAGE_BYTES - 1)), 1, &resident) == 0;
}

/* Addresses of the device become real ones. */
static dpb_status resolve(dpb_device *device, enum dpb_op op, void *args)
{
    const size_t bytes = op_pointers_end(op);

    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;

        memcpy(&word, (char *)args + at, sizeof(word));
        if (is_of_device((void *)word)) {
            word = (uintptr_t)lazy_device_real(device, (void *)word);
            memcpy((char *)args + at, &word, sizeof(word));
        } else if (is_mapped(word)) {
            dpb_error("lazy device: operator \"%s\" is given memory of the host (byte %zu of its "
                      "arguments)",
                      dpb_op_text(op), at);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

static dpb_status run_op(dpb_device *device, const struct item *item)
{
    const size_t bytes = dpb_op_args_bytes(item->op);

    for (int i = 0; i < item->count; i++) {
        char *args = (char *)item->args + (size_t)i * bytes;

        DPB_TRY(resolve(device, item->op, args));
        DPB_TRY(dpb_op_launch(device->inner, item->op, args, device->inner_stream));
    }
    return DPB_OK;
}

static dpb_status run(dpb_device *device, const struct item *item)
{
    switch (item->what) {
    case RUN_OP:
        return run_op(device, item);
    case RUN_COPY:
        return dpb_device_get_ops(device->inner)
                ->copy(device->inner, lazy_device_real(device, item->to),
                       lazy_device_real(device, item->from), item->bytes, device->inner_stream);
    case RUN_CALL:
        return item->call(item->ctx);
    case RUN_RECORD:
    case RUN_WAIT:
        break;
    }
    return DPB_OK;
}

static bool can_run(const dpb_stream *stream)
{
    const struct item *item = stream->first;

    return item && (item->what != RUN_WAIT || item->mark->done >= item->version);
}

/* With the mutex. NULL: nothing can run. */
static dpb_stream *pick(dpb_device *device)
{
    dpb_stream *picked = NULL;
    uint64_t count = 0;

    for (dpb_stream *stream = device->streams; stream; stream = stream->next)
        if (can_run(stream) && draw(device) % ++count == 0)
            picked = stream;
    return picked;
}

static void run_next(dpb_device *device, dpb_stream *stream)
{
    struct item *item = stream->first;
    dpb_status st;

    stream->first = item->next;
    if (!stream->first)
        stream->last = &stream->first;
    pthread_mutex_unlock(&device->mutex);
    st = run(device, item);
    pthread_mutex_lock(&device->mutex);
    if (item->what == RUN_RECORD) {
        item->mark->done = item->version;
        item->mark->time_ns = dpb_clock_now_ns();
    }
    device->runs += item->what == RUN_OP || item->what == RUN_COPY;
    if (st < 0 && device->failed >= 0)
        device->failed = st;
    stream->done++;
    free(item->args);
    free(item);
    pthread_cond_broadcast(&device->changed);
}

static void *work(void *ctx)
{
    dpb_device *device = ctx;

    pthread_mutex_lock(&device->mutex);
    while (!device->stop) {
        dpb_stream *stream = device->blocked > 0 && !device->capturing ? pick(device) : NULL;

        if (stream)
            run_next(device, stream);
        else
            pthread_cond_wait(&device->changed, &device->mutex);
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

/* ---- blocking ---- */

static void block(dpb_device *device, int change)
{
    device->blocked += change;
    pthread_cond_broadcast(&device->changed);
}

void lazy_device_block_begin(dpb_device *device)
{
    pthread_mutex_lock(&device->mutex);
    block(device, 1);
    pthread_mutex_unlock(&device->mutex);
}

void lazy_device_block_end(dpb_device *device)
{
    pthread_mutex_lock(&device->mutex);
    block(device, -1);
    pthread_mutex_unlock(&device->mutex);
}

static dpb_status no_wait_in_graph(void)
{
    dpb_error("lazy device: the host waits while a graph is captured");
    return DPB_ERR_INTERNAL;
}

/* With the mutex: until the stream has done so much. */
static dpb_status await_stream(dpb_device *device, dpb_stream *stream, int64_t target)
{
    if (device->capturing)
        return no_wait_in_graph();
    block(device, 1);
    while (stream->done < target)
        pthread_cond_wait(&device->changed, &device->mutex);
    block(device, -1);
    return device->failed;
}

static dpb_status lazy_stream_sync(dpb_stream *stream)
{
    dpb_device *device = stream->device;
    dpb_status st = DPB_OK;

    pthread_mutex_lock(&device->mutex);
    if (device->fault != LAZY_NO_SYNC)
        st = await_stream(device, stream, stream->queued);
    pthread_mutex_unlock(&device->mutex);
    return st;
}

dpb_status lazy_device_drain(dpb_device *device)
{
    dpb_status st = DPB_OK;

    pthread_mutex_lock(&device->mutex);
    for (dpb_stream *stream = device->streams; stream && st >= 0; stream = stream->next)
        st = await_stream(device, stream, stream->queued);
    pthread_mutex_unlock(&device->mutex);
    return st;
}

dpb_status lazy_device_await(dpb_device *device, const _Atomic int *flag)
{
    dpb_status st = DPB_OK;

    pthread_mutex_lock(&device->mutex);
    if (device->capturing)
        st = no_wait_in_graph();
    block(device, 1);
    while (st >= 0 && !atomic_load(flag))
        pthread_cond_wait(&device->changed, &device->mutex);
    block(device, -1);
    st = st < 0 ? st : device->failed;
    pthread_mutex_unlock(&device->mutex);
    return st;
}

void lazy_device_nudge(dpb_device *device)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NUDGE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&device->mutex);
    block(device, 1);
    pthread_cond_timedwait(&device->changed, &device->mutex, &until);
    block(device, -1);
    pthread_mutex_unlock(&device->mutex);
}

/* ---- launching ---- */

static dpb_status enqueue(dpb_stream *stream, const struct item *like)
{
    dpb_device *device = stream->device;
    struct item *item = malloc(sizeof(*item));

    if (!item)
        return DPB_ERR_NO_MEMORY;
    *item = *like;
    item->next = NULL;
    pthread_mutex_lock(&device->mutex);
    if (item->what == RUN_RECORD) {
        item->version = ++item->mark->recorded;
        item->mark->stream = stream;
    } else if (item->what == RUN_WAIT) {
        item->version = item->mark->recorded;
        if (item->mark->stream)
            item->mark->stream->forked = 0;
    }
    if (device->capturing && item->what != RUN_RECORD && stream != device->capturing)
        stream->forked++;
    *stream->last = item;
    stream->last = &item->next;
    stream->queued++;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    return DPB_OK;
}

static dpb_status lazy_launch_many(dpb_device *device, enum dpb_op op, const void *args, int count,
                                   dpb_stream *stream)
{
    const size_t bytes = dpb_op_args_bytes(op);
    void *kept;

    (void)device;
    for (int i = 0; i < count; i++)
        DPB_TRY(dpb_op_args_check(op, (const char *)args + (size_t)i * bytes));
    kept = malloc((size_t)count * bytes);
    if (!kept)
        return DPB_ERR_NO_MEMORY;
    memcpy(kept, args, (size_t)count * bytes);
    return enqueue(stream, &(struct item){.what = RUN_OP, .op = op, .args = kept, .count = count});
}

static dpb_status lazy_launch(dpb_device *device, enum dpb_op op, const void *args,
                              dpb_stream *stream)
{
    return lazy_launch_many(device, op, args, 1, stream);
}

static dpb_status lazy_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                            dpb_stream *stream)
{
    const bool is_pageable = !is_known(to) || !is_known(from);
    bool blocks;
    dpb_status st;

    DPB_TRY(enqueue(stream,
                    &(struct item){.what = RUN_COPY, .to = to, .from = from, .bytes = bytes}));
    pthread_mutex_lock(&device->mutex);
    blocks = is_pageable && draw(device) & 1;
    st = blocks ? await_stream(device, stream, stream->queued) : DPB_OK;
    pthread_mutex_unlock(&device->mutex);
    return st;
}

dpb_status lazy_device_call(dpb_stream *stream, dpb_status (*call)(void *ctx), void *ctx)
{
    return enqueue(stream, &(struct item){.what = RUN_CALL, .call = call, .ctx = ctx});
}

/* ---- streams and marks ---- */

static dpb_status lazy_stream_open(dpb_device *device, dpb_stream **stream)
{
    dpb_stream *made = calloc(1, sizeof(*made));

    if (!made)
        return DPB_ERR_NO_MEMORY;
    made->device = device;
    made->last = &made->first;
    pthread_mutex_lock(&device->mutex);
    made->next = device->streams;
    device->streams = made;
    pthread_mutex_unlock(&device->mutex);
    *stream = made;
    return DPB_OK;
}

static void lazy_stream_close(dpb_stream *stream)
{
    dpb_device *device = stream->device;
    dpb_stream **at = &device->streams;

    (void)lazy_device_drain(device);
    pthread_mutex_lock(&device->mutex);
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&device->mutex);
    free(stream);
}

static dpb_status lazy_mark_open(dpb_device *device, dpb_event_mark **mark)
{
    dpb_event_mark *made = calloc(1, sizeof(*made));

    if (!made)
        return DPB_ERR_NO_MEMORY;
    made->device = device;
    *mark = made;
    return DPB_OK;
}

static void lazy_mark_close(dpb_event_mark *mark)
{
    (void)lazy_device_drain(mark->device);
    free(mark);
}

static dpb_status lazy_mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    return enqueue(stream, &(struct item){.what = RUN_RECORD, .mark = mark});
}

static dpb_status lazy_stream_wait(dpb_stream *stream, dpb_event_mark *mark)
{
    return stream->device->fault == LAZY_NO_STREAM_WAIT
                   ? DPB_OK
                   : enqueue(stream, &(struct item){.what = RUN_WAIT, .mark = mark});
}

static dpb_status lazy_mark_elapsed_ns(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns)
{
    dpb_device *device = from->device;
    dpb_status st = DPB_OK;

    pthread_mutex_lock(&device->mutex);
    if (device->fault != LAZY_NO_SYNC &&
        (from->done < from->recorded || to->done < to->recorded || to->done == 0)) {
        dpb_error("lazy device: the time between marks that are not complete");
        st = DPB_ERR_INTERNAL;
    }
    *ns = to->time_ns - from->time_ns;
    pthread_mutex_unlock(&device->mutex);
    return st;
}

/* ---- graphs ---- */

static dpb_status lazy_capture_begin(dpb_device *device, dpb_stream *stream)
{
    pthread_mutex_lock(&device->mutex);
    device->capturing = stream;
    for (dpb_stream *other = device->streams; other; other = other->next)
        other->forked = 0;
    pthread_mutex_unlock(&device->mutex);
    return DPB_OK;
}

static dpb_status lazy_capture_end(dpb_device *device, dpb_stream *stream)
{
    dpb_status st = DPB_OK;

    pthread_mutex_lock(&device->mutex);
    for (dpb_stream *other = device->streams; other; other = other->next)
        if (other->forked > 0 || device->capturing != stream)
            st = DPB_ERR_INTERNAL;
    device->capturing = NULL;
    device->graphs++;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    if (st < 0)
        dpb_error("lazy device: a graph ends while a stream that forked has not been waited for");
    return st;
}

int64_t lazy_device_bytes(const dpb_device *device)
{
    return device->bytes;
}

int64_t lazy_device_host_bytes(const dpb_device *device)
{
    return device->host_bytes;
}

int64_t lazy_device_graphs(const dpb_device *device)
{
    return device->graphs;
}

int64_t lazy_device_runs(const dpb_device *device)
{
    return device->runs;
}

/* ---- the device ---- */

static dpb_json *lazy_describe(dpb_device *device)
{
    return dpb_device_get_ops(device->inner)->describe(device->inner);
}

static bool lazy_op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    return dpb_device_get_ops(device->inner)->op_supported(device->inner, op, dtype);
}

void lazy_device_set_fault(dpb_device *device, enum lazy_fault fault)
{
    pthread_mutex_lock(&device->mutex);
    device->fault = fault;
    pthread_mutex_unlock(&device->mutex);
}

void lazy_device_close(dpb_device *device)
{
    if (!device)
        return;
    if (device->is_running) {
        (void)lazy_device_drain(device);
        pthread_mutex_lock(&device->mutex);
        device->stop = true;
        pthread_cond_broadcast(&device->changed);
        pthread_mutex_unlock(&device->mutex);
        pthread_join(device->thread, NULL);
    }
    if (device->inner_stream)
        dpb_device_get_ops(device->inner)->stream_close(device->inner_stream);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->mutex);
    free(device);
}

static void fill_ops(dpb_device *device)
{
    const struct dpb_device_ops *inner = dpb_device_get_ops(device->inner);

    device->ops = (struct dpb_device_ops){
            .version = DPB_DEVICE_OPS_VERSION,
            .name = "lazy",
            .summary = "for tests: as unhelpful as an accelerator may be",
            .flags = DPB_DEVICE_ACCELERATOR,
            .probe = inner->probe,
            .open = inner->open,
            .close = lazy_device_close,
            .describe = lazy_describe,
            .alloc = lazy_alloc,
            .free = lazy_free,
            .copy = lazy_copy,
            .host_alloc = lazy_host_alloc,
            .host_free = lazy_host_free,
            .stream_open = lazy_stream_open,
            .stream_close = lazy_stream_close,
            .stream_sync = lazy_stream_sync,
            .mark_open = lazy_mark_open,
            .mark_close = lazy_mark_close,
            .mark_record = lazy_mark_record,
            .stream_wait = lazy_stream_wait,
            .mark_elapsed_ns = lazy_mark_elapsed_ns,
            .op_supported = lazy_op_supported,
            .op_launch = lazy_launch,
            .op_launch_many = lazy_launch_many,
            .capture_begin = lazy_capture_begin,
            .capture_end = lazy_capture_end,
    };
    device->base.ops = &device->ops;
}

dpb_device *lazy_device_of(dpb_device *inner, uint64_t seed)
{
    dpb_device *device = calloc(1, sizeof(*device));

    if (!device)
        return NULL;
    device->inner = inner;
    device->random = seed;
    pthread_mutex_init(&device->mutex, NULL);
    pthread_cond_init(&device->changed, NULL);
    fill_ops(device);
    watch_touches();
    if (dpb_device_get_ops(inner)->stream_open(inner, &device->inner_stream) < 0)
        device->inner_stream = NULL;
    device->is_running =
            device->inner_stream && !pthread_create(&device->thread, NULL, work, device);
    if (device->is_running)
        return device;
    lazy_device_close(device);
    return NULL;
}
