/* What a workload exchanges itself while it computes (dpb_rank_services): memory in the
 * communicator, collectives in it, and their events. They queue behind what the strategy has
 * started: under PyTorch too, synchronised batch normalisation and DDP share one communicator. */
#include "step_private.h"

#include <stdlib.h>

#include "dpb_log.h"

/* Collectives run in the order of their start, which must be the same on every rank; a coordinator
 * starts its own whenever its ranks agree, a chain when the link before has ended. */
dpb_status dpb_step_check_exchanges(const struct dpb_strategy_ops *strategy, unsigned flags,
                                    const char *workload, int ranks)
{
    const bool has_coordinator = strategy->tick != NULL;

    if ((!has_coordinator && !(flags & DPB_STRATEGY_CHAINS)) || ranks == 1)
        return DPB_OK;
    dpb_error("strategy \"%s\" reduces gradients %s, whose order with what workload \"%s\" "
              "exchanges itself would differ between ranks",
              strategy->name,
              has_coordinator ? "from a thread of its own" : "in chains of collectives", workload);
    dpb_log_hint("use --strategy ddp%s; or let the workload exchange nothing (--sync-bn off, "
                 "--embedding-gradients dense)",
                 has_coordinator ? "" : " with another --hook");
    return DPB_ERR_USAGE;
}

static dpb_status exchange_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct dpb_step_engine *engine = ctx;
    struct exchanges *exchanges = &engine->exchanges;

    DPB_TRY(dpb_step_check_exchanges(engine->config.strategy, engine->strategy_flags,
                                     engine->config.workload->name, engine->world_size));
    if (!exchanges->is_opening || exchanges->buffer_count == EXCHANGE_BUFFERS_MAX) {
        dpb_error("workload \"%s\": asks for %zu bytes of shared memory %s",
                  engine->config.workload->name, bytes,
                  exchanges->is_opening ? "in one buffer too many" : "after open()");
        dpb_log_hint("put what is exchanged into one buffer, in open()");
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(engine->comm_ops->buffer_alloc(engine->config.comm, bytes, buffer));
    exchanges->buffer[exchanges->buffer_count++] = *buffer;
    exchanges->bytes += (int64_t)bytes;
    return DPB_OK;
}

static struct exchange *free_exchange(struct exchanges *exchanges)
{
    for (int i = 0; i < DPB_RANK_EXCHANGES_MAX; i++)
        if (!exchanges->under_way[i].request)
            return &exchanges->under_way[i];
    return NULL;
}

/* Add a collective to what this step exchanges. */
static void account(struct dpb_step_engine *engine, enum dpb_coll_kind kind, int64_t bytes)
{
    const struct dpb_comm_ops *comm = engine->comm_ops;
    struct dpb_step_exchanges *step = &engine->exchanges.step;
    const int64_t wire_ns = comm->wire_ns ? comm->wire_ns(engine->config.comm, kind, bytes) : -1;

    step->count++;
    step->payload_bytes += bytes;
    step->wire_bytes += dpb_coll_busbw_factor(kind, engine->world_size) * (double)bytes;
    step->wire_ns = wire_ns < 0 ? -1 : step->wire_ns + wire_ns;
}

static dpb_status exchange_start(void *ctx, enum dpb_coll_kind kind, enum dpb_dtype dtype,
                                 void *buffer, int64_t count, const char *name, int *number)
{
    struct dpb_step_engine *engine = ctx;
    struct exchange *exchange = free_exchange(&engine->exchanges);
    dpb_status st;

    if (engine->world_size == 1) {
        *number = NO_EXCHANGE;
        return DPB_OK;
    }
    if (!exchange) {
        dpb_error("workload \"%s\": starts exchange \"%s\" while %d are under way",
                  engine->config.workload->name, name, DPB_RANK_EXCHANGES_MAX);
        return DPB_ERR_INTERNAL;
    }
    const struct dpb_coll coll = {
            .kind = kind,
            .dtype = dtype,
            .buffer = buffer,
            .count = count,
            .scale = 1.0f,
            .tag = -1,
    };
    engine_progress(engine, -1);
    dpb_bucket_begin(engine->launcher.recorder, name, -1);
    st = engine->comm_ops->start(engine->config.comm, &coll, engine->launcher.stream,
                                 &exchange->request);
    dpb_bucket_end(engine->launcher.recorder);
    DPB_TRY(st);
    exchange->name = name;
    exchange->bytes = count * (int64_t)dpb_dtype_bytes(dtype);
    account(engine, kind, exchange->bytes);
    *number = (int)(exchange - engine->exchanges.under_way);
    return DPB_OK;
}

static void emit(struct dpb_step_engine *engine, const struct exchange *exchange,
                 enum dpb_event_kind kind, int64_t start_ns, int64_t end_ns)
{
    const struct dpb_event event = {
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = exchange->name,
            .bucket = -1,
            .bytes = exchange->bytes,
            .kind = (uint8_t)kind,
            .lane = DPB_LANE_COMM,
    };

    dpb_range_emit(engine->launcher.recorder, &event);
}

static dpb_status exchange_wait(void *ctx, int number)
{
    struct dpb_step_engine *engine = ctx;
    struct exchange *exchange;
    struct dpb_coll_times times;

    if (engine->world_size == 1)
        return DPB_OK;
    if (number < 0 || number >= DPB_RANK_EXCHANGES_MAX ||
        !engine->exchanges.under_way[number].request) {
        dpb_error("workload \"%s\": waits for exchange number %d, which is not under way",
                  engine->config.workload->name, number);
        return DPB_ERR_INTERNAL;
    }
    exchange = &engine->exchanges.under_way[number];
    engine_progress(engine, -1);
    DPB_TRY(engine->comm_ops->wait(engine->config.comm, exchange->request, engine->launcher.stream,
                                   &times));
    exchange->request = NULL;
    if (times.end_ns == 0) /* not known: a stream waits, and not the host */
        return DPB_OK;
    emit(engine, exchange, DPB_EVENT_COMM, times.start_ns, times.end_ns);
    if (times.all_ready_ns > times.start_ns)
        emit(engine, exchange, DPB_EVENT_COMM_WAIT, times.start_ns, times.all_ready_ns);
    return DPB_OK;
}

void engine_exchanges_init(struct dpb_step_engine *engine)
{
    engine->exchanges.services = (struct dpb_rank_services){
            .ctx = engine,
            .rank = engine->rank,
            .size = engine->world_size,
            .alloc = exchange_alloc,
            .start = exchange_start,
            .wait = exchange_wait,
    };
}

void engine_exchanges_begin(struct dpb_step_engine *engine)
{
    const struct dpb_comm_ops *comm = engine->comm_ops;
    const bool has_link =
            comm->wire_ns && comm->wire_ns(engine->config.comm, DPB_COLL_ALL_REDUCE, 0) >= 0;

    engine->exchanges.step = (struct dpb_step_exchanges){.wire_ns = has_link ? 0 : -1};
}

dpb_status engine_exchanges_check_done(const struct dpb_step_engine *engine)
{
    for (int i = 0; i < DPB_RANK_EXCHANGES_MAX; i++) {
        if (!engine->exchanges.under_way[i].request)
            continue;
        dpb_error("workload \"%s\": lets the step end while exchange \"%s\" is under way",
                  engine->config.workload->name, engine->exchanges.under_way[i].name);
        return DPB_ERR_INTERNAL;
    }
    return DPB_OK;
}

void engine_exchanges_free(struct dpb_step_engine *engine)
{
    struct exchanges *exchanges = &engine->exchanges;

    while (exchanges->buffer_count > 0)
        engine->comm_ops->buffer_free(engine->config.comm,
                                      exchanges->buffer[--exchanges->buffer_count]);
}
