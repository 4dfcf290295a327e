#include "cupti_session.h"

#include <stdio.h>

#include "cupti_buffers.h"
#include "dpb_log.h"
#include "nvtx.h"

/* Memory of the device for times of kernels, copies and fills, 32 bytes each. Allocated in the
 * thread that launches, where it stalls and may wait for a kernel of NCCL: so before the first
 * step, enough for all. */
#define DEVICE_BUFFER_BYTES    ((size_t)8 << 20)
#define DEVICE_BUFFERS_AT_ONCE ((size_t)4)
#define DEVICE_BUFFERS_MOST    ((size_t)16)

enum state {
    UNPREPARED,
    PREPARED,
    STARTED,
    STOPPED
};

static struct {
    enum state state;
    struct cupti_table table;
    CUpti_SubscriberHandle subscriber;
    bool has_other_tool;
    char other_tool[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
} session;

/* What is recorded. CONCURRENT_KERNEL, never KERNEL, which runs one kernel after the other and
 * hangs NCCL; no GRAPH_TRACE, which replaces the kernels of a graph. */
static const struct {
    CUpti_ActivityKind kind;
    bool is_needed;
    const char *text;
} kinds[] = {
        {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, true, "record external correlation"},
        {CUPTI_ACTIVITY_KIND_RUNTIME, true, "record calls of the runtime"},
        {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, true, "record kernels"},
        {CUPTI_ACTIVITY_KIND_MEMCPY, true, "record copies"},
        {CUPTI_ACTIVITY_KIND_MEMSET, true, "record fills"},
        {CUPTI_ACTIVITY_KIND_MARKER, false, "record NVTX ranges"},
        {CUPTI_ACTIVITY_KIND_MARKER_DATA, false, "record data of NVTX ranges"},
        {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, false, "record synchronisation"},
        {CUPTI_ACTIVITY_KIND_OVERHEAD, false, "record its overhead"},
};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* Calls of the driver that launch: libraries make them without the runtime. The others are not
 * recorded. */
static const CUpti_CallbackId driver_launches[] = {
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,   CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
};

#define DRIVER_LAUNCH_COUNT (sizeof(driver_launches) / sizeof(driver_launches[0]))

const struct cupti_table *cupti_session_table(void)
{
    return session.state == UNPREPARED ? NULL : &session.table;
}

const char *cupti_session_other_tool(void)
{
    if (!session.has_other_tool)
        return NULL;
    return session.other_tool[0] ? session.other_tool : "another tool";
}

void cupti_session_forget(void)
{
    cupti_buffers_close();
    session.state = UNPREPARED;
    session.has_other_tool = false;
    session.other_tool[0] = '\0';
}

/* CUPTI wants a subscriber; no callback is ever enabled. */
static void CUPTIAPI ignore_callback(void *ctx, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                     const void *data)
{
    (void)ctx;
    (void)domain;
    (void)id;
    (void)data;
}

static dpb_status subscribe(void)
{
    CUpti_SubscriberParams params = {
            .structSize = CUpti_SubscriberParams_STRUCT_SIZE,
            .subscriberName = "dpbench",
            .oldSubscriberName = session.other_tool,
            .oldSubscriberSize = sizeof(session.other_tool),
    };
    const CUptiResult result =
            session.table.cuptiSubscribe_v2(&session.subscriber, ignore_callback, NULL, &params);

    session.other_tool[sizeof(session.other_tool) - 1] = '\0';
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
        session.has_other_tool = true;
        dpb_warn("the device is not traced: \"%s\" traces this process already",
                 cupti_session_other_tool());
        dpb_log_hint("it gets dpbench's NVTX ranges; for a trace of dpbench run without it");
        return DPB_OK;
    }
    return cupti_check(&session.table, result, "trace this process");
}

static dpb_status set_size(CUpti_ActivityAttribute attribute, size_t value, const char *what)
{
    size_t bytes = sizeof(value);

    return cupti_check(&session.table,
                       session.table.cuptiActivitySetAttribute(attribute, &bytes, &value), what);
}

static dpb_status set_buffers(void)
{
    uint8_t zeroed = 1;
    size_t bytes = sizeof(zeroed);

    DPB_TRY(set_size(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, DEVICE_BUFFER_BYTES,
                     "set the size of its buffers on the device"));
    DPB_TRY(set_size(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, DEVICE_BUFFERS_MOST,
                     "limit its buffers on the device"));
    DPB_TRY(set_size(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, DEVICE_BUFFERS_AT_ONCE,
                     "allocate its buffers on the device ahead"));
    DPB_TRY(cupti_check(&session.table,
                        session.table.cuptiActivitySetAttribute(
                                CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed),
                        "be told that buffers are zero"));
    return cupti_check(&session.table,
                       session.table.cuptiActivityRegisterCallbacks(cupti_buffer_requested,
                                                                    cupti_buffer_completed),
                       "be given buffers");
}

static dpb_status unavailable(const char *why)
{
    dpb_error("cannot trace the device with CUPTI: %s", why);
    return DPB_ERR_UNAVAILABLE;
}

dpb_status cupti_session_prepare(void)
{
    char why[512];
    const char *path;

    if (session.state != UNPREPARED)
        return DPB_OK;
    if (cupti_probe_driver(why, sizeof(why)) < 0 ||
        cupti_open(&session.table, why, sizeof(why)) < 0)
        return unavailable(why);
    DPB_TRY(subscribe());
    if (!session.has_other_tool) {
        DPB_TRY(set_buffers());
        path = cupti_path(&session.table);
        if (path && !nvtx_offer(path))
            return DPB_ERR_NO_MEMORY;
    }
    session.state = PREPARED;
    return DPB_OK;
}

static dpb_status enable_kinds(void)
{
    for (size_t i = 0; i < DRIVER_LAUNCH_COUNT; i++)
        DPB_TRY(cupti_check(&session.table,
                            session.table.cuptiActivityEnableDriverApi(driver_launches[i], 1),
                            "record launches by the driver"));
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const CUptiResult result = session.table.cuptiActivityEnable(kinds[i].kind);

        if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES && kinds[i].is_needed) {
            dpb_error("CUPTI: cannot %s: this user may not", kinds[i].text);
            dpb_log_hint("let the driver admit everybody: NVreg_RestrictProfilingToAdminUsers=0");
            return DPB_ERR_UNAVAILABLE;
        }
        if (kinds[i].is_needed)
            DPB_TRY(cupti_check(&session.table, result, kinds[i].text));
        else if (result != CUPTI_SUCCESS)
            dpb_warn("CUPTI: cannot %s: %s", kinds[i].text, cupti_text(&session.table, result));
    }
    return DPB_OK;
}

dpb_status cupti_session_start(size_t buffers, struct cupti_moment *moment)
{
    if (session.state != PREPARED) {
        dpb_error("cannot trace the device: %s",
                  session.state == UNPREPARED
                          ? "CUPTI was not prepared before the device was opened"
                          : "CUPTI traces once in a process");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(cupti_buffers_open(buffers));
    session.state = STARTED;
    DPB_TRY(enable_kinds());
    return cupti_moment_read(&session.table, moment);
}

/* Kinds stay enabled until all records are out. */
static void disable_kinds(void)
{
    for (size_t i = KIND_COUNT; i-- > 0;)
        session.table.cuptiActivityDisable(kinds[i].kind);
    for (size_t i = 0; i < DRIVER_LAUNCH_COUNT; i++)
        session.table.cuptiActivityEnableDriverApi(driver_launches[i], 0);
}

dpb_status cupti_session_stop(struct cupti_moment *moment, int64_t *dropped)
{
    const struct cupti_table *table = &session.table;
    size_t count = 0;
    dpb_status st;

    if (session.state != STARTED)
        return DPB_ERR_INTERNAL;
    session.state = STOPPED;
    DPB_TRY_GOTO(st, cupti_moment_read(table, moment), out);
    DPB_TRY_GOTO(st, cupti_check(table, table->cuptiActivityFlushAll(0), "flush its records"), out);
    DPB_TRY_GOTO(st,
                 cupti_check(table, table->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                             "flush the last of its records"),
                 out);
    DPB_TRY_GOTO(st,
                 cupti_check(table, table->cuptiActivityGetNumDroppedRecords(NULL, 0, &count),
                             "count records that it dropped"),
                 out);
    *dropped = (int64_t)count;
out:
    disable_kinds();
    return st;
}
