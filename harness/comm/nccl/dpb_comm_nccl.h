/* dpb_comm_nccl.h: collectives of GPUs with NCCL, one process and one GPU per rank.
 *
 * open() is called in the thread whose current CUDA device is that of config.device. Memory of
 * buffer_alloc() is the GPU's (DPB_COMM_DEVICE_MEMORY). Ranks find each other, and tell each other
 * of failures, through the segment (DPB_COMM_SEGMENT).
 *
 * Streams. Collectives run one after the other on one stream of the comm, which has the highest
 * priority. start() makes it wait for `after`; wait() with a stream makes that stream wait for the
 * collective, and does not block; wait() without one blocks the host until the result is there.
 *
 * Times. start_ns: the GPU reached the collective, that is this rank was ready; all_ready_ns: NCCL
 * does not tell, it equals start_ns; end_ns: the result was there. They are event times put on the
 * host's clock by an anchor that is renewed every second; describe() has its error
 * ("clock_error_ns"). All three are 0 where they are not known: wait() with a stream when the
 * result is not there yet, and collectives captured into a graph. wire_bytes are those of the
 * ring algorithm (of direct for what a ring does not have), whatever NCCL chose.
 *
 * Sums are NCCL's: their order, and so their last bits, may depend on the number of ranks, the size
 * and the algorithm. `scale` is rounded to the element type before it is multiplied. Shards are
 * dpb_coll_shard(); where they are not all equal, a reduce-scatter is a group of reduces and an
 * all-gather one of broadcasts. all-to-all copies its input first, into memory that the first one
 * of that size allocates.
 *
 * Graphs. What start() finds in a stream capture is captured: test() then says DPB_PENDING for
 * ever, and only a stream can wait. Scaled sums and the memory of all-to-all must exist by then:
 * run the step once before. A graph with collectives in it must be destroyed before close(), since
 * NCCL waits for that (commDestroySync(), from 2.26 on), also in an abort.
 *
 * Deadlines. Each call of NCCL and each wait of the host has config.timeout_ns; a watchdog thread
 * does the same for what is on the stream. Whoever is late first, or sees an error, reports the
 * last collectives and the answer of NCCL's RAS service, tells the other ranks, and aborts NCCL's
 * communicator; from then on every call returns that failure. What a captured graph replays is
 * not seen by this deadline, only by NCCL's own errors and those of other ranks.
 *
 * Options (table owner "nccl"): nccl-algo, nccl-proto, nccl-min-ctas, nccl-max-ctas,
 * nccl-cta-policy, nccl-register, nccl-profile. */
#ifndef DPB_COMM_NCCL_H
#define DPB_COMM_NCCL_H

#include "dpb_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_comm_nccl_algo {
    DPB_COMM_NCCL_ALGO_AUTO,
    DPB_COMM_NCCL_ALGO_RING,
    DPB_COMM_NCCL_ALGO_TREE,
    DPB_COMM_NCCL_ALGO_NVLS
};

enum dpb_comm_nccl_proto {
    DPB_COMM_NCCL_PROTO_AUTO,
    DPB_COMM_NCCL_PROTO_SIMPLE,
    DPB_COMM_NCCL_PROTO_LL
};

enum dpb_comm_nccl_register {
    DPB_COMM_NCCL_REGISTER_AUTO, /* when NCCL can; go on without when it cannot */
    DPB_COMM_NCCL_REGISTER_ON,   /* fail when it cannot */
    DPB_COMM_NCCL_REGISTER_OFF
};

enum dpb_comm_nccl_cta_policy {
    DPB_COMM_NCCL_CTA_DEFAULT,
    DPB_COMM_NCCL_CTA_EFFICIENCY,
    DPB_COMM_NCCL_CTA_ZERO
};

struct dpb_comm_nccl_options {
    int algo;                   /* enum dpb_comm_nccl_algo */
    int proto;                  /* enum dpb_comm_nccl_proto */
    int64_t min_ctas, max_ctas; /* thread blocks per collective; DPB_AUTO or 0: NCCL chooses */
    int cta_policy;             /* enum dpb_comm_nccl_cta_policy */
    int registration;           /* enum dpb_comm_nccl_register */
    bool profile;               /* count what NCCL used, through its profiler interface */
};

extern const struct dpb_comm_ops dpb_comm_nccl_ops;
extern const struct dpb_option_table dpb_comm_nccl_table;

#ifdef __cplusplus
}
#endif
#endif
