/* sync.h: the services that strategies get (dpb_sync_services), and the thread that calls tick().
 * Private to this folder. */
#ifndef DPB_STEP_SYNC_H
#define DPB_STEP_SYNC_H

#include <pthread.h>
#include <stdbool.h>

#include "dpb_recorder.h"
#include "dpb_strategy.h"

struct dpb_step_engine;

#define SYNC_BUFFERS_MAX 16

/* A collective that the strategy started. */
struct sync_handle {
    dpb_request *request; /* NULL: this handle is free */
    enum dpb_coll_kind kind;
    const char *name;
    int unit;
    const char *buffer;
    int64_t bytes;
};

/* Events of spans, and of collectives that were waited for on the host, from any thread, until the
 * main thread hands them over. */
struct sync_events {
    struct dpb_event *event;
    int count, capacity;
    int lost;
};

/* The thread that calls the strategy's tick(). It works between sync_ticks_begin() and
 * sync_ticks_end(), and waits for the next step otherwise. */
struct sync_ticker {
    pthread_t thread;
    bool is_running; /* the thread exists */
    bool is_active, is_inside, stop;
    bool is_fresh;  /* a step has begun since the last tick: whatever that wanted, tick now */
    uint64_t ticks; /* that have ended */
    dpb_status status;
    pthread_mutex_t mutex; /* of this struct, and the strategy's lock() */
    pthread_cond_t changed;
};

struct sync {
    pthread_mutex_t mutex; /* of handles and events */
    struct sync_handle *handle;
    int handle_count, under_way;
    void *buffer[SYNC_BUFFERS_MAX]; /* of shared_alloc(), in the order in which they were made */
    int buffer_count;
    int64_t buffer_bytes;
    bool is_placing;
    struct sync_events events;
    struct sync_ticker ticker;
};

/* First of all, so that release() may come at any time. */
void engine_sync_prepare(struct dpb_step_engine *engine);
/* Room for the handles and events of `params` parameters; the thread of tick(). */
dpb_status engine_sync_init(struct dpb_step_engine *engine, int params);
/* Ends the ticking thread; the comm has been aborted or nothing is under way. */
void engine_sync_release(struct dpb_step_engine *engine);
struct dpb_sync_services engine_sync_services(struct dpb_step_engine *engine);

/* Let the strategy take its places (dpb_strategy_ops.place); what it had before is given back. */
dpb_status engine_sync_place(struct dpb_step_engine *engine);
/* Collective: give back what shared_alloc() gave. */
void engine_sync_free(struct dpb_step_engine *engine);

/* Hand the events that were collected to the recorder. By the main thread. */
void engine_sync_flush(struct dpb_step_engine *engine);
/* Has the strategy waited for all that it started? DPB_ERR_INTERNAL, logged. */
dpb_status engine_sync_check_done(struct dpb_step_engine *engine);

/* Let the strategy's tick() be called from now on; and not any more, when that returns: with the
 * failure of tick(), if it failed. Nothing without tick(). */
void engine_sync_ticks_begin(struct dpb_step_engine *engine);
dpb_status engine_sync_ticks_end(struct dpb_step_engine *engine);

#endif
