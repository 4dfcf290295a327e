/* The faked runtime's streams and events, and the device that works on what is in them.
 *
 * Every stream is a queue. The device takes the head of one, of those whose head can go on; which,
 * the seed says, by one of five habits. Laziness finds a host that forgets to wait, haste finds
 * work that should have been waited for. */
#include "fake_cudart_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum policy {
    POLICY_ANY,
    POLICY_LAZY,     /* what the host waits for, before all else */
    POLICY_CONTRARY, /* what the host does not wait for, before all else */
    POLICY_HIGH,     /* by priority */
    POLICY_LOW
};

#define BLOCKED_SLEEP_US 20

/* ---- parts ---- */

void fake_set_add(struct set *set, int item)
{
    for (int i = 0; i < set->count; i++) {
        if (set->item[i] == item)
            return;
    }
    int *items = realloc(set->item, (size_t)(set->count + 1) * sizeof(int));
    if (!items)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    set->item = items;
    set->item[set->count++] = item;
}

void fake_set_copy(struct set *to, const struct set *from)
{
    for (int i = 0; i < from->count; i++)
        fake_set_add(to, from->item[i]);
}

void fake_set_clear(struct set *set)
{
    free(set->item);
    *set = (struct set){0};
}

struct work *fake_work_new(const struct fake_cuda_work *given)
{
    struct work *work = calloc(1, sizeof(*work));

    if (!work)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    *work = (struct work){.references = 1, .work = *given};
    return work;
}

void fake_work_release(struct work *work)
{
    if (!work || --work->references > 0)
        return;
    if (work->work.release)
        work->work.release(work->work.context);
    free(work);
}

void fake_moment_release(struct moment *moment)
{
    if (!moment || --moment->references > 0)
        return;
    fake_set_clear(&moment->nodes);
    free(moment);
}

static struct moment *new_moment(void)
{
    struct moment *moment = calloc(1, sizeof(*moment));

    if (!moment)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    moment->references = 1;
    return moment;
}

static void remove_head(struct CUstream_st *stream)
{
    struct op *op = stream->head;

    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    fake_work_release(op->work);
    fake_moment_release(op->moment);
    fake_nodes_release(op->nodes);
    free(op->node_done);
    free(op);
}

static struct op *append_one(struct CUstream_st *stream, enum op_kind kind)
{
    struct op *op = calloc(1, sizeof(*op));

    if (!op)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    op->kind = kind;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    stream->tried = false;
    return op;
}

/* ---- the legacy stream: what is in it comes after all that is in blocking streams, and before
 * what is put there later ---- */

static struct CUstream_st *legacy(void)
{
    struct CUstream_st *stream = fake.streams;

    if (!stream) {
        stream = calloc(1, sizeof(*stream));
        if (!stream)
            fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
        fake.streams = stream;
    }
    while (stream->next)
        stream = stream->next;
    return stream;
}

static void order_after(struct CUstream_st *later, struct CUstream_st *earlier)
{
    struct moment *moment;

    if (!earlier->head)
        return;
    moment = new_moment();
    moment->references = 2;
    append_one(earlier, OP_RECORD)->moment = moment;
    append_one(later, OP_WAIT)->moment = moment;
}

struct op *fake_append(struct CUstream_st *stream, enum op_kind kind)
{
    if (stream == legacy()) {
        for (struct CUstream_st *other = fake.streams; other; other = other->next) {
            if (other->blocking)
                order_after(stream, other);
        }
    } else if (stream->blocking) {
        order_after(stream, legacy());
    }
    return append_one(stream, kind);
}

struct CUstream_st *fake_stream(cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy)
        return legacy();
    for (struct CUstream_st *stream = fake.streams; stream; stream = stream->next) {
        if (stream == handle)
            return stream;
    }
    return NULL;
}

static void free_stream(struct CUstream_st *stream)
{
    while (stream->head)
        remove_head(stream);
    fake_set_clear(&stream->after);
    free(stream);
}

void fake_streams_reset(void)
{
    while (fake.streams) {
        struct CUstream_st *next = fake.streams->next;

        free_stream(fake.streams);
        fake.streams = next;
    }
    while (fake.events) {
        struct CUevent_st *next = fake.events->next;

        fake_moment_release(fake.events->moment);
        free(fake.events);
        fake.events = next;
    }
}

/* ---- the device at work ---- */

enum outcome {
    DONE,    /* a piece of work was done */
    WAITING, /* all that could go on waits for something outside of this process */
    NOTHING  /* there is nothing that could go on */
};

static bool run_work(struct work *work)
{
    bool done;

    fake_memory_open();
    done = work->work.run(work->work.context);
    fake_memory_close();
    return done;
}

static bool node_ready(const struct op *op, int index)
{
    const struct set *after = &op->nodes->node[index].after;

    if (op->node_done[index])
        return false;
    for (int i = 0; i < after->count; i++) {
        if (!op->node_done[after->item[i]])
            return false;
    }
    return true;
}

/* One node of a launched graph: any that may run, from a random one on. */
static bool run_node(struct op *op)
{
    int count = op->nodes->count, first = (int)fake_cuda_random((uint32_t)count);

    for (int i = 0; i < count; i++) {
        int index = (first + i) % count;

        if (!node_ready(op, index) || !run_work(op->nodes->node[index].work))
            continue;
        op->node_done[index] = true;
        op->nodes_left--;
        return true;
    }
    return false;
}

/* Has the head gone on? */
static bool run_head(struct CUstream_st *stream)
{
    struct op *op = stream->head;

    switch (op->kind) {
    case OP_WORK:
        if (!run_work(op->work))
            return false;
        break;
    case OP_RECORD:
        op->moment->done = true;
        op->moment->time_ns = fake_now_ns();
        break;
    case OP_WAIT:
        break;
    case OP_GRAPH:
        if (op->nodes_left > 0 && !run_node(op))
            return false;
        if (op->nodes_left > 0)
            return true;
        break;
    }
    remove_head(stream);
    return true;
}

static bool can_go_on(const struct CUstream_st *stream)
{
    return stream->head && !stream->tried &&
           (stream->head->kind != OP_WAIT || stream->head->moment->done);
}

static bool preferred(const struct CUstream_st *stream, const struct CUstream_st *than,
                      const struct CUstream_st *target)
{
    switch ((enum policy)fake.policy) {
    case POLICY_LAZY:
        return stream == target;
    case POLICY_CONTRARY:
        return than == target;
    case POLICY_HIGH:
        return stream->priority < than->priority;
    case POLICY_LOW:
        return stream->priority > than->priority;
    case POLICY_ANY:
        break;
    }
    return false;
}

static struct CUstream_st *choose(const struct CUstream_st *target)
{
    struct CUstream_st *chosen = NULL;
    uint32_t count = 0;
    bool any = fake_cuda_random(8) == 0;

    for (struct CUstream_st *stream = fake.streams; stream; stream = stream->next) {
        if (!can_go_on(stream))
            continue;
        count++;
        if (!chosen || (!any && preferred(stream, chosen, target)) ||
            ((any || !preferred(chosen, stream, target)) && fake_cuda_random(count) == 0))
            chosen = stream;
    }
    return chosen;
}

static enum outcome go_on(const struct CUstream_st *target)
{
    struct CUstream_st *stream;
    bool waiting = false;

    while ((stream = choose(target))) {
        bool went_on = run_head(stream);

        for (struct CUstream_st *other = fake.streams; went_on && other; other = other->next)
            other->tried = false;
        if (went_on)
            return DONE;
        stream->tried = true;
    }
    for (stream = fake.streams; stream; stream = stream->next) {
        waiting = waiting || stream->tried;
        stream->tried = false;
    }
    return waiting ? WAITING : NOTHING;
}

static bool has_work(const struct CUstream_st *target)
{
    if (target)
        return target->head != NULL;
    for (struct CUstream_st *stream = fake.streams; stream; stream = stream->next) {
        if (stream->head)
            return true;
    }
    return false;
}

void fake_drift(int count)
{
    if (!has_work(NULL))
        return;
    fake_memory_open();
    while (count-- > 0 && go_on(NULL) == DONE)
        continue;
    fake_memory_close();
}

/* Work while `pending(subject)`; ends the process when nothing can go on. */
static void work_until(bool (*pending)(const void *subject), const void *subject,
                       const struct CUstream_st *target, const char *call)
{
    int64_t since_ns = fake_now_ns();

    fake_memory_open();
    while (pending(subject)) {
        enum outcome outcome = go_on(target);

        if (outcome == DONE) {
            since_ns = fake_now_ns();
            continue;
        }
        if (outcome == NOTHING ||
            fake_now_ns() - since_ns > fake.config.hang_s * (int64_t)1000000000)
            fake_cuda_stop(FAKE_EXIT_HANG, "fake: %s waits for work that cannot go on%s", call,
                           outcome == WAITING ? ": a collective misses a rank" : "");
        fake_memory_close();
        fake_unlock();
        usleep(BLOCKED_SLEEP_US);
        fake_lock();
        fake_memory_open();
    }
    fake_memory_close();
}

static bool stream_pending(const void *subject)
{
    return has_work(subject);
}

static bool moment_pending(const void *subject)
{
    return !((const struct moment *)subject)->done;
}

void fake_drain(struct CUstream_st *stream, const char *call)
{
    work_until(stream_pending, stream, stream, call);
}

/* ---- calls: streams ---- */

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

static cudaError_t make_stream(cudaStream_t *made, unsigned flags, int priority)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    legacy();
    if (!stream)
        return cudaErrorMemoryAllocation;
    stream->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    stream->blocking = !(flags & cudaStreamNonBlocking);
    stream->next = fake.streams;
    fake.streams = stream;
    fake.live[FAKE_STREAM]++;
    *made = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    BEGIN();
    return end(make_stream(stream, cudaStreamDefault, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    BEGIN();
    return end(make_stream(stream, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    BEGIN();
    return end(make_stream(stream, flags, priority));
}

/* Returns at once in CUDA, and the stream goes away when its work is done. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t failed;

    fake_lock();
    failed = fake_call(__func__);
    stream = fake_stream(handle);
    if (!handle || !stream)
        return end(cudaErrorInvalidResourceHandle);
    fake_drain(stream, __func__);
    for (struct CUstream_st **at = &fake.streams; *at; at = &(*at)->next) {
        if (*at != stream)
            continue;
        *at = stream->next;
        break;
    }
    free_stream(stream);
    fake.live[FAKE_STREAM]--;
    return end(failed);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    struct CUstream_st *stream;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    *priority = stream->priority;
    return end(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    struct CUstream_st *stream;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        fake_capture_spoil(stream->capture);
        return end(cudaErrorStreamCaptureUnsupported);
    }
    if (!fake_planted(FAKE_PLANT_STREAM_SYNC))
        fake_drain(stream, __func__);
    return end(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error;

    BEGIN();
    error = fake_capture_spoils();
    if (error != cudaSuccess)
        return end(error);
    if (!fake_planted(FAKE_PLANT_STREAM_SYNC))
        fake_drain(NULL, __func__);
    return end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    struct CUstream_st *stream;
    cudaError_t error;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    error = fake_capture_spoils();
    if (error != cudaSuccess)
        return end(error);
    fake_drift((int)fake_cuda_random(3));
    return end(stream->head ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t fake_cuda_enqueue(cudaStream_t handle, const struct fake_cuda_work *work)
{
    struct CUstream_st *stream;

    fake_lock();
    fake.last_call_ns = fake_now_ns();
    stream = fake_stream(handle);
    if (!stream) {
        fake_unlock();
        if (work->release)
            work->release(work->context);
        return fake_result(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture)
        return end(fake_capture_work(stream, work));
    fake_append(stream, OP_WORK)->work = fake_work_new(work);
    return end(cudaSuccess);
}

struct host_function {
    cudaHostFn_t function;
    void *argument;
};

static bool run_host_function(void *context)
{
    struct host_function *host = context;

    host->function(host->argument);
    return true;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    struct host_function *host;

    fake_lock();
    cudaError_t failed = fake_call(__func__);
    fake_unlock();
    if (failed != cudaSuccess)
        return failed;
    host = malloc(sizeof(*host));
    if (!host)
        return fake_result(cudaErrorMemoryAllocation);
    *host = (struct host_function){function, argument};
    return fake_cuda_enqueue(stream, &(struct fake_cuda_work){.name = "host function",
                                                              .run = run_host_function,
                                                              .release = free,
                                                              .context = host});
}

/* ---- calls: events ---- */

static struct CUevent_st *find_event(cudaEvent_t handle)
{
    for (struct CUevent_st *event = fake.events; event; event = event->next) {
        if (event == handle)
            return event;
    }
    return NULL;
}

static cudaError_t make_event(cudaEvent_t *made, unsigned flags)
{
    struct CUevent_st *event = calloc(1, sizeof(*event));

    if (!event)
        return cudaErrorMemoryAllocation;
    event->flags = flags;
    event->next = fake.events;
    fake.events = event;
    fake.live[FAKE_EVENT]++;
    *made = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    BEGIN();
    return end(make_event(event, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    BEGIN();
    return end(make_event(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    cudaError_t failed;

    fake_lock();
    failed = fake_call(__func__);
    for (struct CUevent_st **at = &fake.events; *at; at = &(*at)->next) {
        struct CUevent_st *event = *at;

        if (event != handle)
            continue;
        *at = event->next;
        fake_moment_release(event->moment);
        free(event);
        fake.live[FAKE_EVENT]--;
        return end(failed);
    }
    return end(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle)
{
    struct CUstream_st *stream;
    struct CUevent_st *event;
    struct moment *moment;

    BEGIN();
    stream = fake_stream(handle);
    event = find_event(event_handle);
    if (!stream || !event)
        return end(cudaErrorInvalidResourceHandle);
    if (fake_planted(FAKE_PLANT_RECORD))
        return end(cudaSuccess);
    moment = new_moment();
    if (stream->capture) {
        moment->capture = stream->capture;
        fake_set_copy(&moment->nodes, &stream->after);
    } else {
        moment->references++;
        fake_append(stream, OP_RECORD)->moment = moment;
    }
    fake_moment_release(event->moment);
    event->moment = moment;
    return end(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if (flags != cudaEventRecordDefault)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: cudaEventRecordWithFlags: flags %#x", flags);
    return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int flags)
{
    struct CUstream_st *stream;
    struct CUevent_st *event;

    (void)flags;
    BEGIN();
    stream = fake_stream(handle);
    event = find_event(event_handle);
    if (!stream || !event)
        return end(cudaErrorInvalidResourceHandle);
    if (!event->moment)
        return end(cudaSuccess);
    if (fake_planted(stream->priority < 0 ? FAKE_PLANT_COMM_WAIT : FAKE_PLANT_COMPUTE_WAIT))
        return end(cudaSuccess);
    if (event->moment->capture)
        return end(fake_capture_join(stream, event->moment));
    if (stream->capture) {
        fake_capture_spoil(stream->capture);
        return end(cudaErrorStreamCaptureIsolation);
    }
    event->moment->references++;
    fake_append(stream, OP_WAIT)->moment = event->moment;
    return end(cudaSuccess);
}

/* Why the host cannot ask for this event. */
static cudaError_t check_asked(const struct CUevent_st *event)
{
    if (!event)
        return cudaErrorInvalidResourceHandle;
    if (event->moment && event->moment->capture)
        return cudaErrorCapturedEvent;
    return fake_capture_spoils();
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    struct CUevent_st *event;
    cudaError_t error;

    BEGIN();
    event = find_event(handle);
    error = check_asked(event);
    if (error != cudaSuccess || !event->moment)
        return end(error);
    fake_drift((int)fake_cuda_random(3));
    if (event->moment->done || fake_planted(FAKE_PLANT_EVENT_SYNC))
        return end(cudaSuccess);
    return end(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    struct CUevent_st *event;
    struct moment *moment;
    cudaError_t error;

    BEGIN();
    event = find_event(handle);
    error = check_asked(event);
    if (error != cudaSuccess || !event->moment)
        return end(error);
    moment = event->moment;
    moment->references++;
    if (!fake_planted(FAKE_PLANT_EVENT_SYNC))
        work_until(moment_pending, moment, NULL, __func__);
    fake_moment_release(moment);
    return end(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from_handle, cudaEvent_t to_handle)
{
    struct CUevent_st *from, *to;

    BEGIN();
    from = find_event(from_handle);
    to = find_event(to_handle);
    if (!from || !to || !from->moment || !to->moment ||
        ((from->flags | to->flags) & cudaEventDisableTiming))
        return end(cudaErrorInvalidResourceHandle);
    if (from->moment->capture || to->moment->capture)
        return end(cudaErrorCapturedEvent);
    if (!from->moment->done || !to->moment->done)
        return end(cudaErrorNotReady);
    *ms = (float)((double)(to->moment->time_ns - from->moment->time_ns) * 1e-6);
    return end(cudaSuccess);
}
