#include "dpb_comm_sim.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_sim_device.h"
#include "dpb_log.h"

#define REQUESTS_MAX 1024 /* under way at a time */
#define BUFFERS_MAX  64

struct dpb_request {
    bool is_used;
    int64_t transfer; /* its number on the timeline */
    int64_t wire_bytes;
};

struct dpb_comm {
    struct dpb_comm_base base;
    struct dpb_comm_sim_options options;
    dpb_device *device;
    dpb_timeline *timeline;
    void *buffer[BUFFERS_MAX];
    int buffer_count;
    struct dpb_request request[REQUESTS_MAX];
    struct dpb_comm_stats stats;
};

static dpb_status sim_probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static dpb_status sim_open(const struct dpb_comm_config *config, dpb_comm **comm)
{
    const struct dpb_comm_sim_options *options = config->options;
    dpb_timeline *timeline = config->device ? dpb_device_sim_timeline(config->device) : NULL;

    if (!timeline || !options || !options->price || !options->now_ns || !options->wait_until) {
        dpb_error("comm \"sim\": works with the device \"sim\" only");
        return DPB_ERR_USAGE;
    }
    if (config->size != dpb_timeline_ranks(timeline)) {
        dpb_error("comm \"sim\": %d ranks on a timeline of %d", config->size,
                  dpb_timeline_ranks(timeline));
        return DPB_ERR_INTERNAL;
    }
    dpb_comm *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return DPB_ERR_NO_MEMORY;
    opened->base = (struct dpb_comm_base){&dpb_comm_sim_ops, config->rank, config->size,
                                          config->local_rank, config->node};
    opened->options = *options;
    opened->device = config->device;
    opened->timeline = timeline;
    *comm = opened;
    return DPB_OK;
}

static dpb_status sim_buffer_free(dpb_comm *comm, void *buffer)
{
    if (comm->buffer_count == 0 || comm->buffer[comm->buffer_count - 1] != buffer) {
        dpb_error("comm \"sim\": buffers are freed in the reverse order");
        return DPB_ERR_INTERNAL;
    }
    comm->buffer_count--;
    dpb_device_get_ops(comm->device)->free(comm->device, buffer);
    return DPB_OK;
}

static void sim_close(dpb_comm *comm)
{
    while (comm->buffer_count > 0)
        sim_buffer_free(comm, comm->buffer[comm->buffer_count - 1]);
    free(comm);
}

static dpb_json *sim_describe(dpb_comm *comm)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "name", "sim");
    dpb_json_set_bool(json, "simulated", true);
    dpb_json_set_int(json, "ranks", comm->base.size);
    return json;
}

static dpb_status sim_buffer_alloc(dpb_comm *comm, size_t bytes, void **buffer)
{
    if (comm->buffer_count == BUFFERS_MAX) {
        dpb_error("comm \"sim\": more than %d buffers", BUFFERS_MAX);
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(dpb_device_get_ops(comm->device)->alloc(comm->device, bytes, buffer));
    comm->buffer[comm->buffer_count++] = *buffer;
    return DPB_OK;
}

static dpb_status sim_barrier(dpb_comm *comm)
{
    dpb_timeline_align(comm->timeline);
    return DPB_OK;
}

/* All ranks say the same. */
static dpb_status sim_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all)
{
    if (bytes > DPB_COMM_EXCHANGE_BYTES) {
        dpb_error("comm \"sim\": an exchange of %zu bytes, at most %d are possible", bytes,
                  DPB_COMM_EXCHANGE_BYTES);
        return DPB_ERR_USAGE;
    }
    for (int r = 0; r < comm->base.size; r++)
        memcpy((char *)all + (size_t)r * bytes, mine, bytes);
    return DPB_OK;
}

/* ---- collectives ---- */

static struct dpb_request *unused_request(dpb_comm *comm)
{
    for (int i = 0; i < REQUESTS_MAX; i++)
        if (!comm->request[i].is_used)
            return &comm->request[i];
    dpb_error("comm \"sim\": more than %d collectives are under way", REQUESTS_MAX);
    return NULL;
}

static dpb_status sim_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                            dpb_request **request)
{
    struct dpb_request *taken = unused_request(comm);
    struct dpb_comm_sim_price price = {0};

    (void)after; /* there is one stream */
    if (!taken)
        return DPB_ERR_INTERNAL;
    if (comm->base.size > 1)
        DPB_TRY(comm->options.price(comm->options.ctx, coll->kind,
                                    coll->count * (int64_t)dpb_dtype_bytes(coll->dtype), &price));
    const struct dpb_timeline_transfer transfer = {
            .alone_ns = price.alone_ns,
            .compute_slowdown = price.compute_slowdown,
            .slowdown = price.slowdown,
            .not_before_ns = comm->options.now_ns(comm->options.ctx),
    };
    *taken = (struct dpb_request){
            .is_used = true,
            .transfer = dpb_timeline_transfer(comm->timeline, &transfer),
            .wire_bytes = price.wire_bytes,
    };
    comm->stats.collectives++;
    comm->stats.wire_bytes += price.wire_bytes;
    comm->stats.wire_between_bytes = DPB_WIRE_UNKNOWN;
    *request = taken;
    return DPB_OK;
}

static dpb_status sim_test(dpb_comm *comm, dpb_request *request)
{
    return dpb_timeline_has_ended(comm->timeline, request->transfer,
                                  comm->options.now_ns(comm->options.ctx))
                   ? DPB_OK
                   : DPB_PENDING;
}

static dpb_status sim_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                           struct dpb_coll_times *times)
{
    struct dpb_timeline_transfer_times on_timeline;

    if (stream)
        dpb_timeline_wait(comm->timeline, request->transfer);
    else
        comm->options.wait_until(comm->options.ctx,
                                 dpb_timeline_finish(comm->timeline, request->transfer));
    dpb_timeline_transfer_times(comm->timeline, request->transfer, &on_timeline);
    if (times)
        *times = (struct dpb_coll_times){
                .start_ns = (int64_t)(on_timeline.ready_ns + 0.5),
                .all_ready_ns = (int64_t)(on_timeline.start_ns + 0.5),
                .end_ns = (int64_t)(on_timeline.end_ns + 0.5),
                .wire_bytes = request->wire_bytes,
                .wire_between_bytes = DPB_WIRE_UNKNOWN, /* the price tells no algorithm */
        };
    request->is_used = false;
    return DPB_OK;
}

/* One process is all ranks: who gives up need not tell anybody. */
static void sim_abort(dpb_comm *comm, const char *reason)
{
    (void)comm;
    (void)reason;
}

static void sim_stats(dpb_comm *comm, struct dpb_comm_stats *stats)
{
    *stats = comm->stats;
}

const struct dpb_comm_ops dpb_comm_sim_ops = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "sim",
        .summary = "moves nothing: the times of collectives of virtual ranks",
        .flags = DPB_COMM_SIMULATED | DPB_COMM_DEVICE_MEMORY,
        .probe = sim_probe,
        .open = sim_open,
        .close = sim_close,
        .describe = sim_describe,
        .buffer_alloc = sim_buffer_alloc,
        .buffer_free = sim_buffer_free,
        .barrier = sim_barrier,
        .exchange = sim_exchange,
        .start = sim_start,
        .test = sim_test,
        .wait = sim_wait,
        .abort = sim_abort,
        .stats = sim_stats,
};
