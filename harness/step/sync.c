#include "sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "step_private.h"

#define EVENTS_PER_HANDLE 6 /* collectives of a step, their waits, and the strategy's own spans */

/* ---- memory and places ---- */

static dpb_status sync_shared_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct dpb_step_engine *engine = ctx;
    struct sync *sync = &engine->sync;

    if (!sync->is_placing || sync->buffer_count == SYNC_BUFFERS_MAX) {
        dpb_error("strategy \"%s\": asks for %zu bytes of shared memory %s",
                  engine->config.strategy->name, bytes,
                  sync->is_placing ? "in one buffer too many" : "outside of place()");
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(engine->comm_ops->buffer_alloc(engine->config.comm, bytes, buffer));
    sync->buffer[sync->buffer_count++] = *buffer;
    sync->buffer_bytes += (int64_t)bytes;
    return DPB_OK;
}

void engine_sync_free(struct dpb_step_engine *engine)
{
    struct sync *sync = &engine->sync;

    while (sync->buffer_count > 0)
        engine->comm_ops->buffer_free(engine->config.comm, sync->buffer[--sync->buffer_count]);
    sync->buffer_bytes = 0;
}

dpb_status engine_sync_place(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;
    dpb_status st;

    engine_sync_free(engine);
    if (!strategy->place)
        return DPB_OK;
    engine->sync.is_placing = true;
    st = strategy->place(engine->strategy);
    engine->sync.is_placing = false;
    return st;
}

static void *sync_unit_data(void *ctx, int unit)
{
    struct dpb_step_engine *engine = ctx;

    return engine->gradients + engine_plan(engine)->units[unit].offset_bytes;
}

static float *sync_param(void *ctx, int param)
{
    return ((struct dpb_step_engine *)ctx)->param[param];
}

static float *sync_grad(void *ctx, int param)
{
    return ((struct dpb_step_engine *)ctx)->grad[param];
}

static void sync_bind(void *ctx, int param, float *value, float *grad)
{
    struct dpb_step_engine *engine = ctx;

    if (value)
        engine->param[param] = value;
    if (grad)
        engine->grad[param] = grad;
    engine->is_bound = false;
}

static int64_t sync_optimizer_state(void *ctx, int param, int array, float **values)
{
    struct dpb_step_engine *engine = ctx;

    for (int u = 0; u < engine->update_count; u++) {
        const struct update *update = &engine->update[u];
        int64_t elements[OPTIMIZER_ARRAYS];

        if (update->part.param != param ||
            update->part.count < engine->model->params[param].numel || array >= OPTIMIZER_ARRAYS)
            continue;
        optimizer_state_elements(&engine->config.optimizer, &update->info, elements);
        *values = update->state[array];
        return elements[array];
    }
    *values = NULL;
    return 0;
}

static bool sync_state(void *ctx, int index, struct dpb_workload_state *state)
{
    struct dpb_step_engine *engine = ctx;
    const struct dpb_workload_ops *workload = engine->config.workload;

    return workload->state && workload->state(engine->workload, index, state);
}

/* ---- events ---- */

/* With the mutex. */
static void keep_event(struct dpb_step_engine *engine, const struct dpb_event *event)
{
    struct sync_events *events = &engine->sync.events;

    if (events->count == events->capacity)
        events->lost++;
    else
        events->event[events->count++] = *event;
}

/* None when the communicator does not know when it was: a stream waits, and not the host. */
static int collective_events(const struct sync_handle *handle, const struct dpb_coll_times *times,
                             struct dpb_event event[2])
{
    if (times->end_ns == 0)
        return 0;
    event[0] = (struct dpb_event){
            .start_ns = times->start_ns,
            .end_ns = times->end_ns,
            .name = handle->name,
            .bucket = handle->unit,
            .bytes = handle->bytes,
            .kind = DPB_EVENT_COMM,
            .lane = DPB_LANE_COMM,
    };
    event[1] = event[0];
    event[1].kind = DPB_EVENT_COMM_WAIT;
    event[1].end_ns = times->all_ready_ns;
    return times->all_ready_ns > times->start_ns ? 2 : 1;
}

void engine_sync_flush(struct dpb_step_engine *engine)
{
    static const struct dpb_event nameless = {.lane = DPB_LANE_COMM}; /* counted as lost */
    struct sync_events *events = &engine->sync.events;

    pthread_mutex_lock(&engine->sync.mutex);
    for (int i = 0; i < events->count; i++)
        dpb_range_emit(engine->launcher.recorder, &events->event[i]);
    for (int i = 0; i < events->lost; i++)
        dpb_range_emit(engine->launcher.recorder, &nameless);
    events->count = events->lost = 0;
    pthread_mutex_unlock(&engine->sync.mutex);
}

static int64_t sync_span_begin(void *ctx)
{
    (void)ctx;
    return dpb_clock_now_ns();
}

static void sync_span_end(void *ctx, int64_t begin, const char *name, int unit)
{
    struct dpb_step_engine *engine = ctx;
    const struct dpb_event event = {
            .start_ns = begin,
            .end_ns = dpb_clock_now_ns(),
            .name = name,
            .bucket = unit,
            .kind = DPB_EVENT_NOTE,
            .lane = DPB_LANE_STRATEGY,
    };

    pthread_mutex_lock(&engine->sync.mutex);
    keep_event(engine, &event);
    pthread_mutex_unlock(&engine->sync.mutex);
}

/* ---- collectives ---- */

static dpb_status misuse(const struct dpb_step_engine *engine, const char *what, int unit)
{
    dpb_error("strategy \"%s\": %s (unit %d)", engine->config.strategy->name, what, unit);
    return DPB_ERR_INTERNAL;
}

/* Nothing is reduced in a unit's place before all its gradients are there. */
static dpb_status check_coll(const struct dpb_step_engine *engine, const struct dpb_sync_coll *coll)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);
    const struct dpb_unit *unit;
    const char *place;

    if ((unsigned)coll->kind >= DPB_COLL_COUNT)
        return misuse(engine, "starts a collective of no kind", coll->unit);
    if (coll->unit >= plan->unit_count)
        return misuse(engine, "names a unit that the plan has not", coll->unit);
    if (coll->unit < 0)
        return DPB_OK;
    unit = &plan->units[coll->unit];
    place = engine->gradients + unit->offset_bytes;
    if (dpb_coll_reduces(coll->kind) && (const char *)coll->buffer >= place &&
        (const char *)coll->buffer < place + unit->bytes &&
        !(engine->strategy_flags & DPB_STRATEGY_FINDS_UNUSED) &&
        engine->unit_ready[coll->unit] < unit->member_count)
        return misuse(engine, "reduces a unit before all its gradients are ready", coll->unit);
    return DPB_OK;
}

/* A free handle; with the mutex. Two collectives work on the same memory only when the second is to
 * follow the first: they run in the order of their start. */
static dpb_status take_handle(struct dpb_step_engine *engine, const struct dpb_sync_coll *coll,
                              struct sync_handle **taken)
{
    struct sync *sync = &engine->sync;
    struct sync_handle *unused = NULL;
    const char *begin = coll->buffer;
    const int64_t bytes = coll->count * (int64_t)dpb_dtype_bytes(coll->dtype);

    for (int h = 0; h < sync->handle_count; h++) {
        struct sync_handle *handle = &sync->handle[h];

        if (!handle->request)
            unused = unused ? unused : handle;
        else if (!coll->follows && begin < handle->buffer + handle->bytes &&
                 handle->buffer < begin + bytes)
            return misuse(engine, "starts a collective where one is under way", coll->unit);
    }
    if (!unused)
        return misuse(engine, "has too many collectives under way", coll->unit);
    *unused = (struct sync_handle){
            .kind = coll->kind,
            .name = coll->name ? coll->name : dpb_coll_text(coll->kind),
            .unit = coll->unit,
            .buffer = begin,
            .bytes = bytes,
    };
    *taken = unused;
    return DPB_OK;
}

static dpb_status sync_start(void *ctx, const struct dpb_sync_coll *asked, int *handle)
{
    struct dpb_step_engine *engine = ctx;
    struct sync *sync = &engine->sync;
    const struct dpb_coll coll = {
            .kind = asked->kind,
            .dtype = asked->dtype,
            .buffer = asked->buffer,
            .count = asked->count,
            .root = asked->root,
            .scale = asked->scale,
            .tag = asked->unit,
    };
    struct sync_handle *taken;
    dpb_status st;

    DPB_TRY(check_coll(engine, asked));
    engine_progress(engine, asked->unit);
    pthread_mutex_lock(&sync->mutex);
    st = take_handle(engine, asked, &taken);
    if (st >= 0) {
        dpb_bucket_begin(engine->launcher.recorder, taken->name, asked->unit);
        st = engine->comm_ops->start(engine->config.comm, &coll, engine_background_stream(engine),
                                     &taken->request);
        dpb_bucket_end(engine->launcher.recorder);
    }
    if (st >= 0) {
        sync->under_way++;
        *handle = (int)(taken - sync->handle);
    }
    pthread_mutex_unlock(&sync->mutex);
    return st;
}

static dpb_request *request_of(struct dpb_step_engine *engine, int handle)
{
    struct sync *sync = &engine->sync;
    dpb_request *request = NULL;

    pthread_mutex_lock(&sync->mutex);
    if (handle >= 0 && handle < sync->handle_count)
        request = sync->handle[handle].request;
    pthread_mutex_unlock(&sync->mutex);
    if (!request)
        dpb_error("strategy \"%s\": waits for collective %d, which is not under way",
                  engine->config.strategy->name, handle);
    return request;
}

static dpb_status sync_test(void *ctx, int handle)
{
    struct dpb_step_engine *engine = ctx;
    dpb_request *request = request_of(engine, handle);

    return request ? engine->comm_ops->test(engine->config.comm, request) : DPB_ERR_INTERNAL;
}

/* The collective has ended; its handle is free. `ended` gets what it was. */
static dpb_status finish(struct dpb_step_engine *engine, int handle, dpb_stream *stream,
                         struct sync_handle *ended, struct dpb_coll_times *times)
{
    struct sync *sync = &engine->sync;
    dpb_request *request = request_of(engine, handle);

    if (!request)
        return DPB_ERR_INTERNAL;
    engine_progress(engine, sync->handle[handle].unit);
    DPB_TRY(engine->comm_ops->wait(engine->config.comm, request, stream, times));
    pthread_mutex_lock(&sync->mutex);
    *ended = sync->handle[handle];
    sync->handle[handle].request = NULL;
    sync->under_way--;
    pthread_mutex_unlock(&sync->mutex);
    return DPB_OK;
}

/* By the main thread, which hands its events over at once: however many collectives a step has,
 * none is lost. */
static dpb_status sync_wait(void *ctx, int handle)
{
    struct dpb_step_engine *engine = ctx;
    struct sync_handle ended;
    struct dpb_coll_times times;
    struct dpb_event event[2];

    DPB_TRY(finish(engine, handle, engine->launcher.stream, &ended, &times));
    for (int i = 0, count = collective_events(&ended, &times, event); i < count; i++)
        dpb_range_emit(engine->launcher.recorder, &event[i]);
    return DPB_OK;
}

static dpb_status sync_wait_on_host(void *ctx, int handle)
{
    struct dpb_step_engine *engine = ctx;
    struct sync_handle ended;
    struct dpb_coll_times times;
    struct dpb_event event[2];

    DPB_TRY(finish(engine, handle, NULL, &ended, &times));
    pthread_mutex_lock(&engine->sync.mutex);
    for (int i = 0, count = collective_events(&ended, &times, event); i < count; i++)
        keep_event(engine, &event[i]);
    pthread_mutex_unlock(&engine->sync.mutex);
    return DPB_OK;
}

dpb_status engine_sync_check_done(struct dpb_step_engine *engine)
{
    const struct sync *sync = &engine->sync;

    for (int h = 0; h < sync->handle_count && sync->under_way > 0; h++)
        if (sync->handle[h].request)
            return misuse(engine, "lets the optimizer start while a collective is under way",
                          sync->handle[h].unit);
    return DPB_OK;
}

static dpb_status sync_exchange(void *ctx, const void *mine, size_t bytes, void *all)
{
    struct dpb_step_engine *engine = ctx;

    return engine->comm_ops->exchange(engine->config.comm, mine, bytes, all);
}

/* ---- the thread of tick() ---- */

static void sync_lock(void *ctx)
{
    pthread_mutex_lock(&((struct dpb_step_engine *)ctx)->sync.ticker.mutex);
}

static void sync_unlock(void *ctx)
{
    pthread_mutex_unlock(&((struct dpb_step_engine *)ctx)->sync.ticker.mutex);
}

static dpb_status sync_await(void *ctx)
{
    struct sync_ticker *ticker = &((struct dpb_step_engine *)ctx)->sync.ticker;
    const uint64_t before = ticker->ticks;

    while (ticker->ticks == before && ticker->status >= 0 && ticker->is_active)
        pthread_cond_wait(&ticker->changed, &ticker->mutex);
    return ticker->status;
}

static void wait_until(struct sync_ticker *ticker, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};

    if (until_ns == INT64_MAX)
        pthread_cond_wait(&ticker->changed, &ticker->mutex);
    else
        pthread_cond_timedwait(&ticker->changed, &ticker->mutex, &until);
}

static void *tick(void *ctx)
{
    struct dpb_step_engine *engine = ctx;
    struct sync_ticker *ticker = &engine->sync.ticker;
    int64_t next_ns = 0;

    pthread_setname_np(pthread_self(), "dpb-tick");
    pthread_mutex_lock(&ticker->mutex);
    while (!ticker->stop) {
        if (!ticker->is_active || ticker->status < 0) {
            pthread_cond_wait(&ticker->changed, &ticker->mutex);
            continue;
        }
        if (ticker->is_fresh)
            next_ns = 0;
        ticker->is_fresh = false;
        const int64_t now_ns = dpb_clock_now_ns();
        if (now_ns < next_ns) {
            wait_until(ticker, next_ns);
            continue;
        }
        ticker->is_inside = true;
        pthread_mutex_unlock(&ticker->mutex);
        const dpb_status st = engine->config.strategy->tick(engine->strategy, now_ns, &next_ns);
        pthread_mutex_lock(&ticker->mutex);
        ticker->is_inside = false;
        ticker->status = st < 0 ? st : DPB_OK;
        ticker->ticks++;
        pthread_cond_broadcast(&ticker->changed);
    }
    pthread_mutex_unlock(&ticker->mutex);
    return NULL;
}

static dpb_status start_ticker(struct dpb_step_engine *engine)
{
    struct sync_ticker *ticker = &engine->sync.ticker;
    const int error = pthread_create(&ticker->thread, NULL, tick, engine);

    if (error != 0) {
        dpb_error("strategy \"%s\": cannot start its coordinator thread: %s",
                  engine->config.strategy->name, strerror(error));
        dpb_log_hint("raise the limit of processes (ulimit -u)");
        return DPB_ERR_NO_MEMORY;
    }
    ticker->is_running = true;
    return DPB_OK;
}

void engine_sync_ticks_begin(struct dpb_step_engine *engine)
{
    struct sync_ticker *ticker = &engine->sync.ticker;

    if (!ticker->is_running)
        return;
    pthread_mutex_lock(&ticker->mutex);
    ticker->is_active = true;
    ticker->is_fresh = true;
    pthread_cond_broadcast(&ticker->changed);
    pthread_mutex_unlock(&ticker->mutex);
}

dpb_status engine_sync_ticks_end(struct dpb_step_engine *engine)
{
    struct sync_ticker *ticker = &engine->sync.ticker;
    dpb_status st;

    if (!ticker->is_running)
        return DPB_OK;
    pthread_mutex_lock(&ticker->mutex);
    ticker->is_active = false;
    pthread_cond_broadcast(&ticker->changed);
    while (ticker->is_inside)
        pthread_cond_wait(&ticker->changed, &ticker->mutex);
    st = ticker->status;
    pthread_mutex_unlock(&ticker->mutex);
    return st;
}

/* ---- all of it ---- */

static void init_ticker(struct sync_ticker *ticker)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&ticker->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* that of dpb_clock_now_ns() */
    pthread_cond_init(&ticker->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

dpb_status engine_sync_init(struct dpb_step_engine *engine, int params)
{
    struct sync *sync = &engine->sync;

    sync->handle_count = 2 * params + 64;
    sync->events.capacity = EVENTS_PER_HANDLE * sync->handle_count;
    sync->handle = calloc((size_t)sync->handle_count, sizeof(*sync->handle));
    sync->events.event = calloc((size_t)sync->events.capacity, sizeof(*sync->events.event));
    if (!sync->handle || !sync->events.event) {
        dpb_error("step engine: out of memory for the collectives of %d parameters", params);
        return DPB_ERR_NO_MEMORY;
    }
    return engine->config.strategy->tick ? start_ticker(engine) : DPB_OK;
}

void engine_sync_prepare(struct dpb_step_engine *engine)
{
    pthread_mutex_init(&engine->sync.mutex, NULL);
    init_ticker(&engine->sync.ticker);
}

void engine_sync_release(struct dpb_step_engine *engine)
{
    struct sync *sync = &engine->sync;
    struct sync_ticker *ticker = &sync->ticker;

    if (ticker->is_running) {
        pthread_mutex_lock(&ticker->mutex);
        ticker->stop = true;
        pthread_cond_broadcast(&ticker->changed);
        pthread_mutex_unlock(&ticker->mutex);
        pthread_join(ticker->thread, NULL);
    }
    pthread_cond_destroy(&ticker->changed);
    pthread_mutex_destroy(&ticker->mutex);
    pthread_mutex_destroy(&sync->mutex);
    free(sync->events.event);
    free(sync->handle);
}

struct dpb_sync_services engine_sync_services(struct dpb_step_engine *engine)
{
    return (struct dpb_sync_services){
            .ctx = engine,
            .launcher = &engine->launcher,
            .background = &engine->background.launcher,
            .note_gradient = engine_background_note,
            .await_gradient = engine_background_await,
            .join_background = engine_background_join,
            .average = engine->config.sum_gradients ? 1.0f : 1.0f / (float)engine->world_size,
            .shared_alloc = sync_shared_alloc,
            .unit_data = sync_unit_data,
            .param = sync_param,
            .grad = sync_grad,
            .bind = sync_bind,
            .optimizer_state = sync_optimizer_state,
            .state = sync_state,
            .start = sync_start,
            .test = sync_test,
            .wait = sync_wait,
            .wait_on_host = sync_wait_on_host,
            .exchange = sync_exchange,
            .lock = sync_lock,
            .unlock = sync_unlock,
            .await = sync_await,
            .span_begin = sync_span_begin,
            .span_end = sync_span_end,
    };
}
