/* nccl_clock.c: events of the GPU on the host's clock.
 *
 * An anchor is an event on a stream that is idle, and the host's time around the moment when it was
 * seen to be complete. Other events lie a measured time from it. The anchor is renewed every
 * second: the two clocks drift apart by some 10 microseconds in that time, and cudart's difference
 * is a float of milliseconds, which tells 0.1 microseconds in a second. Two anchors, because an
 * event should come after the one that it is measured from. */
#include "nccl_private.h"

#include "dpb_clock.h"

#define RENEW_NS ((int64_t)1000000000)
#define TRIES    5

static dpb_status set_anchor(struct dpb_nccl_comm *comm, int index, const char *subject)
{
    struct dpb_nccl_clock *clock = &comm->clock;
    int64_t best_error_ns = 0;
    for (int i = 0; i < TRIES; i++) {
        int64_t before_ns = dpb_clock_now_ns();
        DPB_NCCL_CUDA(comm, subject, cudaEventRecord(clock->anchor[index].event, clock->stream));
        DPB_TRY(dpb_nccl_host_wait(comm, subject, clock->anchor[index].event));
        int64_t error_ns = (dpb_clock_now_ns() - before_ns + 1) / 2;
        clock->anchor[index].host_ns = before_ns + error_ns;
        clock->anchor[index].error_ns = error_ns;
        /* The last record is the one that counts for CUDA: end with one that is hardly worse than
         * the best so far. */
        if (i > 0 && error_ns <= best_error_ns + best_error_ns / 8)
            break;
        if (i == 0 || error_ns < best_error_ns)
            best_error_ns = error_ns;
    }
    clock->newer = index;
    return DPB_OK;
}

dpb_status dpb_nccl_clock_open(struct dpb_nccl_comm *comm)
{
    static const char subject[] = "open";
    struct dpb_nccl_clock *clock = &comm->clock;
    DPB_NCCL_CUDA(comm, subject,
                  cudaStreamCreateWithPriority(&clock->stream, cudaStreamNonBlocking, 0));
    for (int i = 0; i < 2; i++)
        DPB_NCCL_CUDA(comm, subject,
                      cudaEventCreateWithFlags(&clock->anchor[i].event, cudaEventDefault));
    DPB_TRY(set_anchor(comm, 0, subject));
    return set_anchor(comm, 1, subject);
}

void dpb_nccl_clock_close(struct dpb_nccl_comm *comm)
{
    struct dpb_nccl_clock *clock = &comm->clock;
    for (int i = 0; i < 2; i++)
        if (clock->anchor[i].event)
            cudaEventDestroy(clock->anchor[i].event);
    if (clock->stream)
        cudaStreamDestroy(clock->stream);
}

static dpb_status host_time(struct dpb_nccl_comm *comm, int anchor, cudaEvent_t event,
                            const char *subject, int64_t *host_ns)
{
    float ms = 0;
    DPB_NCCL_CUDA(comm, subject,
                  cudaEventElapsedTime(&ms, comm->clock.anchor[anchor].event, event));
    *host_ns = comm->clock.anchor[anchor].host_ns + (int64_t)((double)ms * 1e6);
    return DPB_OK;
}

dpb_status dpb_nccl_clock_times(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *request,
                                const char *subject, struct dpb_coll_times *times)
{
    struct dpb_nccl_clock *clock = &comm->clock;
    const int64_t now_ns = dpb_clock_now_ns();
    const bool after_newer = request->enqueued_ns >= clock->anchor[clock->newer].host_ns;
    const int anchor = after_newer ? clock->newer : 1 - clock->newer;
    DPB_TRY(host_time(comm, anchor, request->begin, subject, &times->start_ns));
    DPB_TRY(host_time(comm, anchor, request->end, subject, &times->end_ns));
    /* What the host has seen has happened. */
    if (times->end_ns > now_ns)
        times->end_ns = now_ns;
    if (times->start_ns > times->end_ns)
        times->start_ns = times->end_ns;
    times->all_ready_ns = times->start_ns;
    if (now_ns - clock->anchor[clock->newer].host_ns >= RENEW_NS)
        return set_anchor(comm, 1 - clock->newer, subject);
    return DPB_OK;
}
