/* profiler_plugin.c: a profiler plug-in for NCCL, interface version 5 (NCCL 2.28), as a library of
 * its own: NCCL finds it by NCCL_PROFILER_PLUGIN. It counts, and changes nothing.
 *
 * The types below state version 5's binary interface; only the members that are read have their
 * names. Only calls and collectives are asked for: events inside kernels cost time, and have
 * crashed. */
#include "profiler_plugin.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    EVENT_COLL = 1 << 1,
    EVENT_COLL_API = 1 << 9
};

struct event_coll {
    uint64_t number;
    const char *function;
    const void *from;
    void *to;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels;
    uint8_t warps;
    const char *algorithm;
    const char *protocol;
    void *parent_group;
};

struct event {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct event_coll coll;
        void *as_large_as[16];
    } of;
};

struct profiler {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, int *activation, const char *comm_name, int nodes,
                int ranks, int rank, void (*log)(void));
    int (*start_event)(void *context, void **handle, struct event *event);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, void *arguments);
    int (*finalize)(void *context);
};

extern const struct profiler ncclProfiler_v5;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dpb_nccl_profile_count counted[DPB_NCCL_PROFILE_KINDS];
static size_t kinds;
static int64_t api_calls, lost_collectives;

static void copy_text(char *to, size_t to_bytes, const char *from)
{
    snprintf(to, to_bytes, "%s", from ? from : "unknown");
}

static bool is_same(const struct dpb_nccl_profile_count *a, const struct dpb_nccl_profile_count *b)
{
    return strcmp(a->function, b->function) == 0 && strcmp(a->algorithm, b->algorithm) == 0 &&
           strcmp(a->protocol, b->protocol) == 0 && a->channels == b->channels;
}

/* With the lock. */
static void count(const struct event_coll *coll)
{
    struct dpb_nccl_profile_count row = {.channels = coll->channels, .collectives = 1};
    copy_text(row.function, sizeof(row.function), coll->function);
    copy_text(row.algorithm, sizeof(row.algorithm), coll->algorithm);
    copy_text(row.protocol, sizeof(row.protocol), coll->protocol);
    for (size_t i = 0; i < kinds; i++) {
        if (is_same(&counted[i], &row)) {
            counted[i].collectives++;
            return;
        }
    }
    if (kinds == DPB_NCCL_PROFILE_KINDS)
        lost_collectives++;
    else
        counted[kinds++] = row;
}

EXPORT size_t dpb_nccl_profile_read(struct dpb_nccl_profile_count *rows, size_t capacity,
                                    int64_t *calls, int64_t *lost)
{
    pthread_mutex_lock(&lock);
    size_t copied = kinds < capacity ? kinds : capacity;
    memcpy(rows, counted, copied * sizeof(*rows));
    *calls = api_calls;
    *lost = lost_collectives;
    size_t all = kinds;
    pthread_mutex_unlock(&lock);
    return all;
}

/* ---- what NCCL calls; 0 is ncclSuccess ---- */

static int init(void **context, uint64_t comm_id, int *activation, const char *comm_name, int nodes,
                int ranks, int rank, void (*log)(void))
{
    (void)comm_id, (void)comm_name, (void)nodes, (void)ranks, (void)rank, (void)log;
    *context = counted; /* one for all communicators, but not NULL */
    *activation = EVENT_COLL | EVENT_COLL_API;
    return 0;
}

static int start_event(void *context, void **handle, struct event *event)
{
    (void)context;
    *handle = NULL; /* nobody needs to know when it ends */
    pthread_mutex_lock(&lock);
    if (event->type == EVENT_COLL)
        count(&event->of.coll);
    else if (event->type == EVENT_COLL_API)
        api_calls++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int stop_event(void *handle)
{
    (void)handle;
    return 0;
}

static int record_event_state(void *handle, int state, void *arguments)
{
    (void)handle, (void)state, (void)arguments;
    return 0;
}

static int finalize(void *context)
{
    (void)context;
    return 0;
}

EXPORT const struct profiler ncclProfiler_v5 = {
        .name = "dpbench",
        .init = init,
        .start_event = start_event,
        .stop_event = stop_event,
        .record_event_state = record_event_state,
        .finalize = finalize,
};
