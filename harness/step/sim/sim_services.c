/* What strategies may ask of the step engine (dpb_sync_services), on virtual time. */
#include "sim_private.h"

#include <math.h>

#include "dpb_log.h"

static const struct dpb_comm_ops *comm_ops(const struct dpb_sim_step *sim)
{
    return sim->config.comm_ops;
}

static dpb_status misuse(const struct dpb_sim_step *sim, const char *what, int unit)
{
    dpb_error("strategy \"%s\": %s (unit %d)", sim->config.strategy->name, what, unit);
    return DPB_ERR_INTERNAL;
}

/* ---- time ---- */

double sim_now_ns(void *ctx)
{
    const struct dpb_sim_step *sim = ctx;

    return sim->ticker.is_inside ? sim->ticker.now_ns : dpb_timeline_host_ns(sim->timeline);
}

void sim_wait_until(void *ctx, double until_ns)
{
    struct dpb_sim_step *sim = ctx;

    if (sim->ticker.is_inside)
        sim->ticker.now_ns = fmax(sim->ticker.now_ns, until_ns);
    else
        dpb_timeline_host_until(sim->timeline, until_ns);
}

/* ---- memory and places ---- */

static dpb_status shared_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct dpb_sim_step *sim = ctx;

    if (!sim->is_placing || sim->buffer_count == SIM_BUFFERS_MAX)
        return misuse(sim, "asks for memory outside of place(), or for one buffer too many", -1);
    DPB_TRY(comm_ops(sim)->buffer_alloc(sim->comm, bytes, buffer));
    sim->buffer[sim->buffer_count++] = *buffer;
    return DPB_OK;
}

void sim_free_buffers(struct dpb_sim_step *sim)
{
    while (sim->buffer_count > 0)
        comm_ops(sim)->buffer_free(sim->comm, sim->buffer[--sim->buffer_count]);
}

dpb_status sim_place(struct dpb_sim_step *sim)
{
    dpb_status st;

    sim_free_buffers(sim);
    if (!sim->config.strategy->place)
        return DPB_OK;
    sim->is_placing = true;
    st = sim->config.strategy->place(sim->strategy);
    sim->is_placing = false;
    return st;
}

static void *unit_data(void *ctx, int unit)
{
    struct dpb_sim_step *sim = ctx;

    return sim->gradients + sim->plans[sim->current].units[unit].offset_bytes;
}

static float *param(void *ctx, int index)
{
    return ((struct dpb_sim_step *)ctx)->param[index];
}

static float *grad(void *ctx, int index)
{
    return ((struct dpb_sim_step *)ctx)->grad[index];
}

static void bind(void *ctx, int index, float *value, float *gradient)
{
    struct dpb_sim_step *sim = ctx;

    if (value)
        sim->param[index] = value;
    if (gradient)
        sim->grad[index] = gradient;
}

static int64_t optimizer_state(void *ctx, int index, int array, float **values)
{
    struct dpb_sim_step *sim = ctx;
    int64_t elements[OPTIMIZER_ARRAYS];

    *values = NULL;
    if (array >= OPTIMIZER_ARRAYS)
        return 0;
    optimizer_state_elements(&sim->config.optimizer, &sim->config.schedule->model->params[index],
                             elements);
    if (elements[array] > 0)
        *values = sim->state;
    return elements[array];
}

static bool state(void *ctx, int index, struct dpb_workload_state *found)
{
    struct dpb_sim_step *sim = ctx;
    const struct dpb_model *model = sim->config.schedule->model;

    if (index >= model->buffer_count)
        return false;
    *found = (struct dpb_workload_state){
            .name = "buffer",
            .kind = DPB_STATE_LOCAL,
            .data = sim->state,
            .numel = model->buffer_numel[index],
    };
    return true;
}

/* ---- events ---- */

static int64_t span_begin(void *ctx)
{
    return (int64_t)(sim_now_ns(ctx) + 0.5);
}

static void span_end(void *ctx, int64_t begin, const char *name, int unit)
{
    struct dpb_sim_step *sim = ctx;
    const struct dpb_event event = {
            .start_ns = begin,
            .end_ns = span_begin(ctx),
            .name = name,
            .bucket = unit,
            .kind = DPB_EVENT_NOTE,
            .lane = DPB_LANE_STRATEGY,
    };

    dpb_range_emit(sim->launcher.recorder, &event);
}

static void emit_collective(struct dpb_sim_step *sim, const struct sim_handle *handle,
                            const struct dpb_coll_times *times)
{
    struct dpb_event event = {
            .start_ns = times->start_ns,
            .end_ns = times->end_ns,
            .name = handle->name,
            .bucket = handle->unit,
            .bytes = handle->bytes,
            .kind = DPB_EVENT_COMM,
            .lane = DPB_LANE_COMM,
    };

    dpb_range_emit(sim->launcher.recorder, &event);
    if (times->all_ready_ns <= times->start_ns)
        return;
    event.kind = DPB_EVENT_COMM_WAIT;
    event.end_ns = times->all_ready_ns;
    dpb_range_emit(sim->launcher.recorder, &event);
}

/* ---- collectives ---- */

static dpb_status start(void *ctx, const struct dpb_sync_coll *asked, int *handle)
{
    struct dpb_sim_step *sim = ctx;
    const struct dpb_coll coll = {
            .kind = asked->kind,
            .dtype = asked->dtype,
            .buffer = asked->buffer,
            .count = asked->count,
            .root = asked->root,
            .scale = asked->scale,
            .tag = asked->unit,
    };
    int free_one = 0;

    while (free_one < SIM_HANDLES_MAX && sim->handle[free_one].request)
        free_one++;
    if (free_one == SIM_HANDLES_MAX)
        return misuse(sim, "has too many collectives under way", asked->unit);
    struct sim_handle *taken = &sim->handle[free_one];
    DPB_TRY(comm_ops(sim)->start(sim->comm, &coll, sim->launcher.stream, &taken->request));
    taken->name = asked->name ? asked->name : dpb_coll_text(asked->kind);
    taken->unit = asked->unit;
    taken->bytes = asked->count * (int64_t)dpb_dtype_bytes(asked->dtype);
    sim->under_way++;
    *handle = free_one;
    return DPB_OK;
}

static struct sim_handle *find(struct dpb_sim_step *sim, int handle)
{
    if (handle >= 0 && handle < SIM_HANDLES_MAX && sim->handle[handle].request)
        return &sim->handle[handle];
    misuse(sim, "waits for a collective that is not under way", handle);
    return NULL;
}

static dpb_status test(void *ctx, int handle)
{
    struct dpb_sim_step *sim = ctx;
    struct sim_handle *found = find(sim, handle);

    return found ? comm_ops(sim)->test(sim->comm, found->request) : DPB_ERR_INTERNAL;
}

static dpb_status finish(struct dpb_sim_step *sim, int handle, dpb_stream *stream)
{
    struct sim_handle *found = find(sim, handle);
    struct dpb_coll_times times;

    if (!found)
        return DPB_ERR_INTERNAL;
    DPB_TRY(comm_ops(sim)->wait(sim->comm, found->request, stream, &times));
    emit_collective(sim, found, &times);
    sim->wire_bytes += times.wire_bytes;
    sim->collectives++;
    found->request = NULL;
    sim->under_way--;
    return DPB_OK;
}

static dpb_status wait(void *ctx, int handle)
{
    struct dpb_sim_step *sim = ctx;

    return finish(sim, handle, sim->launcher.stream);
}

static dpb_status wait_on_host(void *ctx, int handle)
{
    return finish(ctx, handle, NULL);
}

static dpb_status exchange(void *ctx, const void *mine, size_t bytes, void *all)
{
    struct dpb_sim_step *sim = ctx;
    const struct dpb_sim_network *network = &sim->config.network;

    DPB_TRY(comm_ops(sim)->exchange(sim->comm, mine, bytes, all));
    sim_wait_until(sim, sim_now_ns(sim) + network->exchange_ns(network->ctx, (int64_t)bytes));
    return DPB_OK;
}

/* ---- ticks ---- */

static dpb_status one_tick(struct dpb_sim_step *sim)
{
    struct sim_ticker *ticker = &sim->ticker;
    int64_t next_ns = INT64_MAX;

    ticker->is_inside = true;
    ticker->now_ns = ticker->next_ns;
    ticker->status =
            sim->config.strategy->tick(sim->strategy, (int64_t)(ticker->now_ns + 0.5), &next_ns);
    ticker->is_inside = false;
    /* A tick that took longer than its period is followed by the next at once. */
    ticker->next_ns = next_ns == INT64_MAX ? INFINITY : fmax((double)next_ns, ticker->now_ns);
    return ticker->status < 0 ? ticker->status : DPB_OK;
}

void sim_ticks_begin(struct dpb_sim_step *sim)
{
    sim->ticker = (struct sim_ticker){
            .is_active = sim->config.strategy->tick != NULL && sim->config.timeline.ranks > 0,
            .next_ns = dpb_timeline_host_ns(sim->timeline),
    };
}

dpb_status sim_ticks_run(struct dpb_sim_step *sim, double until_ns)
{
    while (sim->ticker.is_active && sim->ticker.next_ns <= until_ns)
        DPB_TRY(one_tick(sim));
    return DPB_OK;
}

dpb_status sim_ticks_end(struct dpb_sim_step *sim)
{
    sim->ticker.is_active = false;
    return sim->ticker.status < 0 ? sim->ticker.status : DPB_OK;
}

/* One thread is all: nothing runs beside a hook. */
static void lock(void *ctx)
{
    (void)ctx;
}

static dpb_status await(void *ctx)
{
    struct dpb_sim_step *sim = ctx;

    if (!sim->ticker.is_active || isinf(sim->ticker.next_ns))
        return misuse(sim, "waits for a tick that does not come", -1);
    DPB_TRY(one_tick(sim));
    dpb_timeline_host_until(sim->timeline, sim->ticker.now_ns);
    return DPB_OK;
}

/* There is one compute stream, and tick() comes when the gradients are there. */
static dpb_status nothing_apart(void *ctx, int param)
{
    (void)ctx;
    (void)param;
    return DPB_OK;
}

static dpb_status nothing_to_join(void *ctx)
{
    (void)ctx;
    return DPB_OK;
}

struct dpb_sync_services sim_services(struct dpb_sim_step *sim)
{
    return (struct dpb_sync_services){
            .ctx = sim,
            .launcher = &sim->launcher,
            .background = &sim->launcher,
            .note_gradient = nothing_apart,
            .await_gradient = nothing_apart,
            .join_background = nothing_to_join,
            .average = 1.0F / (float)sim->config.timeline.ranks,
            .shared_alloc = shared_alloc,
            .unit_data = unit_data,
            .param = param,
            .grad = grad,
            .bind = bind,
            .optimizer_state = optimizer_state,
            .state = state,
            .start = start,
            .test = test,
            .wait = wait,
            .wait_on_host = wait_on_host,
            .exchange = exchange,
            .lock = lock,
            .unlock = lock,
            .await = await,
            .span_begin = span_begin,
            .span_end = span_end,
    };
}
