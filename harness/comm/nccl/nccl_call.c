/* nccl_call.c: calls of NCCL and cudart: what they say when they fail, and how long they may take.
 */
#include "nccl_private.h"

#include <sched.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_units.h"

#define LOOKS_AWAKE   2000
#define LOOKS_SHORTLY 10000
#define SHORTLY_NS    20000
#define LONGER_NS     500000

void dpb_nccl_pause(int looks)
{
    const struct timespec time = {0, looks < LOOKS_SHORTLY ? SHORTLY_NS : LONGER_NS};
    if (looks < LOOKS_AWAKE)
        sched_yield();
    else
        nanosleep(&time, NULL);
}

dpb_status dpb_nccl_cuda(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                         cudaError_t error)
{
    if (error == cudaSuccess)
        return DPB_OK;
    return dpb_rendezvous_fail(
            comm->rendezvous,
            error == cudaErrorMemoryAllocation ? DPB_ERR_NO_MEMORY : DPB_ERR_VENDOR, NULL,
            "%s: %s: %s (%s)", subject, call, cudaGetErrorString(error), cudaGetErrorName(error));
}

dpb_status dpb_nccl_failed(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                           ncclResult_t result)
{
    const char *last = comm->nccl->ncclGetLastError(comm->comm);
    const bool is_remote = result == ncclRemoteError;
    return dpb_rendezvous_fail(comm->rendezvous, is_remote ? DPB_ERR_RANK_FAILED : DPB_ERR_VENDOR,
                               is_remote ? "another rank, or the network to it, failed: see its log"
                                         : "NCCL_DEBUG=WARN shows what NCCL has to say about it",
                               "%s: %s: %s%s%s", subject, call,
                               comm->nccl->ncclGetErrorString(result), last && last[0] ? ": " : "",
                               last ? last : "");
}

static dpb_status late(struct dpb_nccl_comm *comm, const char *subject, const char *call)
{
    char timeout[DPB_UNIT_TEXT_BYTES];
    dpb_format_duration(comm->timeout_ns, timeout, sizeof(timeout));
    return dpb_rendezvous_fail(
            comm->rendezvous, DPB_ERR_TIMEOUT,
            "are all ranks there, and can they reach each other? NCCL_DEBUG=INFO "
            "shows what NCCL does; --timeout sets how long it may take",
            "%s timed out: %s was not through after %s", subject, call, timeout);
}

dpb_status dpb_nccl_settle(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                           ncclResult_t result)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + comm->timeout_ns;
    if (result != ncclSuccess && result != ncclInProgress)
        return dpb_nccl_failed(comm, subject, call, result);
    for (int looks = 0;; looks++) {
        ncclResult_t state = ncclSuccess;
        result = comm->nccl->ncclCommGetAsyncError(comm->comm, &state);
        if (result != ncclSuccess)
            return dpb_nccl_failed(comm, subject, "ncclCommGetAsyncError", result);
        if (state == ncclSuccess)
            return DPB_OK;
        if (state != ncclInProgress)
            return dpb_nccl_failed(comm, subject, call, state);
        DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
        if (dpb_clock_now_ns() >= deadline_ns)
            return late(comm, subject, call);
        dpb_nccl_pause(looks);
    }
}

cudaError_t dpb_nccl_query(cudaEvent_t event)
{
    cudaError_t error = cudaEventQuery(event);
    /* It stays behind as the thread's last error, and a later check of a launch would find it. */
    if (error == cudaErrorNotReady)
        (void)cudaGetLastError();
    return error;
}

dpb_status dpb_nccl_host_wait(struct dpb_nccl_comm *comm, const char *subject, cudaEvent_t event)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + comm->timeout_ns;
    for (int looks = 0;; looks++) {
        cudaError_t error = dpb_nccl_query(event);
        if (error != cudaErrorNotReady)
            return dpb_nccl_cuda(comm, subject, "cudaEventQuery", error);
        DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
        if (dpb_clock_now_ns() >= deadline_ns)
            return late(comm, subject, "the GPU");
        dpb_nccl_pause(looks);
    }
}
