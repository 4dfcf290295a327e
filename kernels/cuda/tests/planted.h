/* planted.h: small kernels, right ones and ones with a mistake, for the tests of shim.h. */
#ifndef DPB_CUDA_PLANTED_H
#define DPB_CUDA_PLANTED_H

#include "cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum planted {
    PLANTED_REVERSE,        /* y: x of the block's threads in reverse, through shared memory */
    PLANTED_NO_SYNC,        /* the same without the barrier between writing and reading */
    PLANTED_TWO_SUMS,       /* y: of each block, sum of x, then of -x, through one array */
    PLANTED_NO_SECOND_SYNC, /* without the barrier before the array is used again */
    PLANTED_BLOCK_SYNC,     /* the upper half of each block leaves before a barrier */
    PLANTED_TWO_SITES,      /* each half of a block waits at a barrier of its own */
    PLANTED_WARP,           /* the upper half of each warp leaves before a shuffle */
    PLANTED_BLOCK_AND_WARP, /* the first warp waits for the block, the others within their warps */
    PLANTED_BLOCKS,         /* a block reads what the next one writes */
    PLANTED_TOGETHER        /* y: shuffles and ballots, see planted.cc */
};

/* `blocks` of `threads` threads; x and y have as many elements. */
int planted_launch(enum planted which, const float *x, float *y, unsigned blocks, unsigned threads,
                   const struct dpb_cuda_queue *queue);
int planted_launch_grid(unsigned blocks_x, unsigned blocks_y, unsigned threads, float *y,
                        const struct dpb_cuda_queue *queue);

#ifdef __cplusplus
}
#endif
#endif
