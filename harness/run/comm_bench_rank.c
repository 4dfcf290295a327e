#include "comm_bench_rank.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm_bench_values.h"
#include "dpb_clock.h"
#include "dpb_comm_bench.h"
#include "dpb_log.h"
#include "dpb_rng.h"

/* --iterations auto: as many as fit into this time, within these limits. */
#define AUTO_NS    INT64_C(200000000)
#define AUTO_LEAST 20
#define AUTO_MOST  5000

struct bench {
    const struct dpb_registry *registry;
    worker_link *link;
    const dpb_json *job; /* the link's */
    dpb_config *config;
    const struct dpb_comm_bench_options *o;
    struct dpb_board_line *line;
    int rank, size;
    const struct dpb_device_ops *device_ops;
    const struct dpb_comm_ops *comm_ops;
    dpb_device *device;
    dpb_comm *comm;
    void *buffer;
    size_t buffer_bytes;
    void *values;       /* the buffer, or the host's copy of one in a device's memory */
    dpb_stream *stream; /* of copies between the two; NULL when they are one */
    int64_t *at_ns;     /* the start, and the end of each iteration */
    int64_t at_count;
    int64_t *each_ns; /* per rank: what a call took in the warm-up */
};

/* ---- the job ---- */

dpb_json *comm_bench_job(const dpb_config *config, const struct comm_row *rows, size_t count)
{
    dpb_json *json = dpb_json_object(), *list = dpb_json_array();
    dpb_json_set(json, "config", dpb_config_to_text_json(config));
    for (size_t i = 0; i < count; i++) {
        dpb_json *row = dpb_json_object();
        dpb_json_set_int(row, "kind", rows[i].kind);
        dpb_json_set_int(row, "dtype", rows[i].dtype);
        dpb_json_set_int(row, "count", rows[i].count);
        dpb_json_append(list, row);
    }
    dpb_json_set(json, COMM_BENCH_ROWS, list);
    return json;
}

static struct comm_row row_at(const struct bench *b, size_t i)
{
    const dpb_json *row = dpb_json_at(dpb_json_get(b->job, COMM_BENCH_ROWS), i);
    return (struct comm_row){
            .kind = (enum dpb_coll_kind)dpb_json_as_int(dpb_json_get(row, "kind"), 0),
            .dtype = (enum dpb_dtype)dpb_json_as_int(dpb_json_get(row, "dtype"), 0),
            .count = dpb_json_as_int(dpb_json_get(row, "count"), 0),
    };
}

static size_t row_count(const struct bench *b)
{
    return dpb_json_size(dpb_json_get(b->job, COMM_BENCH_ROWS));
}

/* ---- open ---- */

static dpb_status open_parts(struct bench *b)
{
    DPB_TRY(dpb_config_from_text_json(dpb_comm_bench_option_set(b->registry),
                                      dpb_json_get(b->job, "config"), &b->config));
    b->o = dpb_config_struct(b->config, "experiment");
    DPB_TRY(dpb_registry_use_device(b->registry, b->o->device, &b->device_ops));
    DPB_TRY(dpb_registry_use_comm(b->registry, b->o->comm, &b->comm_ops));
    struct dpb_device_config device = {
            .local_rank = worker_link_place(b->link)->local_rank,
            .local_size = worker_link_place(b->link)->local_size,
            .threads = 1,
            .bind = b->o->bind,
            .options = dpb_config_struct(b->config, "device"),
    };
    DPB_TRY(b->device_ops->open(&device, &b->device));
    struct dpb_comm_config comm = {
            .timeout_ns = b->o->timeout_ns,
            .device = b->device,
            .options = dpb_config_struct(b->config, "comm"),
    };
    worker_link_comm(b->link, (int)b->o->ranks_per_node, &comm);
    return b->comm_ops->open(&comm, &b->comm);
}

/* Where the host fills and reads what is in the buffer. */
static dpb_status open_values(struct bench *b)
{
    b->values = b->buffer;
    if (!(b->comm_ops->flags & DPB_COMM_DEVICE_MEMORY))
        return DPB_OK;
    b->values = NULL;
    DPB_TRY(dpb_device_host_alloc(b->device, b->buffer_bytes, &b->values));
    return b->device_ops->stream_open(b->device, &b->stream);
}

/* All memory before anything is timed. */
static dpb_status open_memory(struct bench *b)
{
    size_t most_bytes = 1;
    for (size_t i = 0; i < row_count(b); i++) {
        struct comm_row row = row_at(b, i);
        size_t bytes = (size_t)row.count * dpb_dtype_bytes(row.dtype);
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    b->buffer_bytes = most_bytes;
    DPB_TRY(b->comm_ops->buffer_alloc(b->comm, most_bytes, &b->buffer));
    DPB_TRY(open_values(b));
    b->at_count = 1 + (b->o->iterations == DPB_AUTO ? AUTO_MOST : b->o->iterations);
    b->at_ns = malloc((size_t)b->at_count * sizeof(*b->at_ns));
    b->each_ns = calloc((size_t)b->size, sizeof(*b->each_ns));
    if (!b->at_ns || !b->each_ns) {
        dpb_error("cannot keep the times of %lld iterations: out of memory",
                  (long long)b->o->iterations);
        return DPB_ERR_NO_MEMORY;
    }
    memset(b->at_ns, 0xff, (size_t)b->at_count * sizeof(*b->at_ns));
    return DPB_OK;
}

/* ---- measure ---- */

static inline dpb_status call(const struct bench *b, const struct dpb_coll *coll)
{
    if (b->o->call == DPB_COMM_CALL_BLOCKING)
        return dpb_comm_run(b->comm, coll, NULL);
    dpb_request *request;
    DPB_TRY(b->comm_ops->start(b->comm, coll, NULL, &request));
    return b->comm_ops->wait(b->comm, request, NULL, NULL);
}

/* From the host's copy to the buffer, or back. */
static dpb_status copy_values(const struct bench *b, void *to, const void *from)
{
    if (!b->stream)
        return DPB_OK;
    DPB_TRY(b->device_ops->copy(b->device, to, from, b->buffer_bytes, b->stream));
    return b->device_ops->stream_sync(b->stream);
}

/* Once on known integers. */
static dpb_status check(const struct bench *b, const struct dpb_coll *coll, int64_t *wrong)
{
    struct dpb_coll values = *coll;
    values.buffer = b->values;
    comm_values_fill(&values, b->rank, b->size);
    DPB_TRY(copy_values(b, b->buffer, b->values));
    DPB_TRY(b->comm_ops->barrier(b->comm));
    DPB_TRY(call(b, coll));
    DPB_TRY(copy_values(b, b->values, b->buffer));
    *wrong += comm_values_wrong(&values, b->rank, b->size);
    return b->comm_ops->barrier(b->comm);
}

static dpb_status iterate(struct bench *b, const struct dpb_coll *coll, int64_t iterations)
{
    DPB_TRY(b->comm_ops->barrier(b->comm));
    b->at_ns[0] = dpb_clock_now_ns();
    for (int64_t i = 0; i < iterations; i++) {
        DPB_TRY(call(b, coll));
        b->at_ns[i + 1] = dpb_clock_now_ns();
        /* Life for the launcher, from a stamp that is needed anyway. */
        atomic_store_explicit(&b->line->beat_ns, b->at_ns[i + 1], memory_order_relaxed);
    }
    return DPB_OK;
}

static dpb_status warm_up(const struct bench *b, const struct dpb_coll *coll, int64_t *each_ns)
{
    DPB_TRY(b->comm_ops->barrier(b->comm));
    int64_t start_ns = dpb_clock_now_ns();
    for (int64_t i = 0; i < b->o->warmup; i++)
        DPB_TRY(call(b, coll));
    *each_ns = (dpb_clock_now_ns() - start_ns) / b->o->warmup;
    DPB_TRY(b->comm_ops->exchange(b->comm, each_ns, sizeof(*each_ns), b->each_ns));
    for (int r = 0; r < b->size; r++)
        *each_ns = b->each_ns[r] > *each_ns ? b->each_ns[r] : *each_ns;
    return DPB_OK;
}

/* The same on all ranks. */
static int64_t iterations_of(const struct bench *b, int64_t each_ns)
{
    if (b->o->iterations != DPB_AUTO)
        return b->o->iterations;
    int64_t fitting = AUTO_NS / (each_ns > 0 ? each_ns : 1);
    return fitting < AUTO_LEAST ? AUTO_LEAST : fitting > AUTO_MOST ? AUTO_MOST : fitting;
}

/* Of one collective, from what was counted before and after so many of them. */
static int64_t between_bytes(const struct dpb_comm_stats *before,
                             const struct dpb_comm_stats *after, int64_t iterations)
{
    if (after->wire_between_bytes < 0)
        return DPB_WIRE_UNKNOWN;
    return (after->wire_between_bytes - before->wire_between_bytes) / iterations;
}

static dpb_json *row_json(const struct bench *b, int64_t iterations, int64_t wrong,
                          const struct dpb_comm_stats *before, const struct dpb_comm_stats *after)
{
    dpb_json *row = dpb_json_object(), *samples = dpb_json_array();
    for (int64_t i = 0; i < iterations; i++)
        dpb_json_append(samples, dpb_json_int(b->at_ns[i + 1] - b->at_ns[i]));
    dpb_json_set_int(row, "wrong", wrong);
    dpb_json_set_int(row, "wire_bytes", (after->wire_bytes - before->wire_bytes) / iterations);
    const int64_t between = between_bytes(before, after, iterations);
    dpb_json_set(row, "wire_between_bytes", between < 0 ? dpb_json_null() : dpb_json_int(between));
    dpb_json_set(row, "samples_ns", samples);
    return row;
}

/* `*result` is the caller's. */
static dpb_status run_row(struct bench *b, const struct comm_row *row, dpb_json **result)
{
    const struct dpb_coll coll = {
            .kind = row->kind,
            .dtype = row->dtype,
            .buffer = b->buffer,
            .count = row->count,
            .scale = 1,
            .tag = -1,
    };
    struct dpb_comm_stats before, after;
    int64_t wrong = 0, each_ns;
    dpb_status st = check(b, &coll, &wrong);
    if (st == DPB_ERR_UNSUPPORTED) { /* on all ranks, and nothing was begun */
        *result = dpb_json_object();
        dpb_json_set_bool(*result, "unsupported", true);
        return DPB_OK;
    }
    DPB_TRY(st);
    DPB_TRY(warm_up(b, &coll, &each_ns));
    int64_t iterations = iterations_of(b, each_ns);
    b->comm_ops->stats(b->comm, &before);
    DPB_TRY(iterate(b, &coll, iterations));
    b->comm_ops->stats(b->comm, &after);
    DPB_TRY(check(b, &coll, &wrong));
    *result = row_json(b, iterations, wrong, &before, &after);
    return DPB_OK;
}

/* Which row is measured when; the same on all ranks. */
static void find_order(const struct bench *b, int64_t *order, size_t count)
{
    struct dpb_rng rng;
    for (size_t i = 0; i < count; i++)
        order[i] = (int64_t)i;
    if (b->o->shuffle == 0)
        return;
    dpb_rng_init(&rng, (uint64_t)b->o->shuffle, 0);
    dpb_rng_shuffle_i64(&rng, order, (int64_t)count);
}

/* Results are in the order of the job, whatever was measured first. */
static dpb_status run_rows(struct bench *b, dpb_json *rows)
{
    const size_t count = row_count(b);
    int64_t *order = calloc(count + 1, sizeof(*order));
    dpb_json **results = calloc(count + 1, sizeof(dpb_json *));
    dpb_status st = order && results ? DPB_OK : DPB_ERR_NO_MEMORY;
    if (st == DPB_OK)
        find_order(b, order, count);
    for (size_t i = 0; st == DPB_OK && i < count; i++) {
        const size_t at = (size_t)order[i];
        struct comm_row row = row_at(b, at);
        dpb_board_write(b->line, (int64_t)i + 1, DPB_PHASE_SYNC, -1);
        st = run_row(b, &row, &results[at]);
        if (st == DPB_OK)
            dpb_json_set_int(results[at], "order", (int64_t)i);
    }
    for (size_t i = 0; results && i < count; i++)
        if (results[i])
            dpb_json_append(rows, results[i]);
    free(results);
    free(order);
    return st;
}

/* ---- report ---- */

static dpb_status report(const struct bench *b, dpb_json *rows)
{
    dpb_json *result = dpb_json_object();
    dpb_json_set_string(result, "type", "result");
    dpb_json_set_int(result, "rank", b->rank);
    dpb_json_set_int(result, "pid", (int64_t)getpid());
    dpb_json_set(result, "comm", b->comm_ops->describe(b->comm));
    dpb_json_set(result, "device", b->device_ops->describe(b->device));
    dpb_json_set(result, "rows", rows);
    dpb_status st = worker_link_send(b->link, result);
    dpb_json_free(result);
    if (st == DPB_OK)
        dpb_board_write(b->line, (int64_t)row_count(b), DPB_PHASE_DONE, -1);
    return st;
}

static void bench_close(struct bench *b)
{
    if (b->stream)
        b->device_ops->stream_close(b->stream);
    if (b->values != b->buffer)
        dpb_device_host_free(b->device, b->values);
    if (b->comm)
        b->comm_ops->close(b->comm);
    if (b->device)
        b->device_ops->close(b->device);
    dpb_config_free(b->config);
    free(b->at_ns);
    free(b->each_ns);
}

dpb_status comm_bench_rank(const struct dpb_registry *registry, worker_link *link,
                           void (*failed)(dpb_status st))
{
    struct bench b = {
            .registry = registry,
            .link = link,
            .job = worker_link_job(link),
            .line = worker_link_line(link),
            .rank = worker_link_place(link)->rank,
            .size = worker_link_place(link)->size,
    };
    dpb_json *rows = dpb_json_array();
    dpb_status st;
    DPB_TRY_GOTO(st, open_parts(&b), err);
    DPB_TRY_GOTO(st, open_memory(&b), err);
    DPB_TRY_GOTO(st, run_rows(&b, rows), err);
    st = report(&b, rows);
    rows = NULL;
    if (st == DPB_OK) {
        bench_close(&b);
        return DPB_OK;
    }
err:
    failed(st);
    dpb_json_free(rows);
    if (b.comm)
        b.comm_ops->abort(b.comm, dpb_status_text(st));
    /* Peers may be gone or stuck: closing would wait for them. */
    return st;
}
