/* fake_nccl.h: NCCL's table for tests without a GPU, on the faked CUDA runtime (fake_cudart.h).
 *
 * Ranks are processes forked after fake_nccl_world_new(). A collective runs on its stream, late: it
 * takes its input when the stream comes to it, overwrites the output with NaNs, and goes on when
 * all ranks have come. Sums are in the order of the ranks, rounded once. Calls go on in the
 * background for some looks (ncclInProgress), and a call made meanwhile is refused. */
#ifndef DPB_FAKE_NCCL_H
#define DPB_FAKE_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl_table.h"

#define FAKE_NCCL_RANKS_MAX 8

extern const struct dpb_nccl_table fake_nccl;

struct fake_nccl_config {
    uint64_t seed;            /* of how long calls go on in the background */
    int looks_max;            /* most ncclCommGetAsyncError() that say ncclInProgress */
    int64_t hang_collective;  /* number, from 1, of the one that this rank does not come to; 0: none
                               */
    int64_t break_collective; /* from this one on ncclCommGetAsyncError() tells an error; 0: none */
    bool abort_hangs;         /* ncclCommAbort() does not return */
};

struct fake_nccl_world;

/* What ranks share; made before they are forked. */
struct fake_nccl_world *fake_nccl_world_new(void);
void fake_nccl_world_free(struct fake_nccl_world *world);

/* In a rank, after fake_cuda_begin(). */
void fake_nccl_begin(struct fake_nccl_world *world, const struct fake_nccl_config *config);

/* Collectives that have come to their end on this rank. */
int64_t fake_nccl_collectives(void);

#endif
