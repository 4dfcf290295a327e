/* dpb_sim_comm.h: what the comm "sim" is opened with. */
#ifndef DPB_SIM_COMM_H
#define DPB_SIM_COMM_H

#include "dpb_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A collective on an idle network, and what it and compute do to each other. */
struct dpb_comm_sim_price {
    double alone_ns;
    double compute_slowdown, slowdown; /* dpb_timeline.h */
    int64_t wire_bytes;                /* that the watched rank sends */
};

/* dpb_comm_config's `options`; never NULL, borrowed. */
struct dpb_comm_sim_options {
    void *ctx;
    dpb_status (*price)(void *ctx, enum dpb_coll_kind kind, int64_t bytes,
                        struct dpb_comm_sim_price *price);
    /* Of whoever calls: no collective begins earlier, and test() answers for this moment. */
    double (*now_ns)(void *ctx);
    /* Who calls wait() without a stream waits until then. */
    void (*wait_until)(void *ctx, double until_ns);
};

#ifdef __cplusplus
}
#endif
#endif
