/* comm_bench_values.h: known integers for every element type, and what a collective makes of them.
 *
 * They are small enough for every partial sum to be exact in bf16 (integers up to 256), whatever
 * the order of summation, so results are compared bit by bit. */
#ifndef COMM_BENCH_VALUES_H
#define COMM_BENCH_VALUES_H

#include <stdint.h>

#include "dpb_comm.h"

/* Fill this rank's buffer: the elements that the collective reads. Others get what is wrong in the
 * result. */
void comm_values_fill(const struct dpb_coll *coll, int rank, int ranks);

/* Elements of this rank's result that are not what they must be. */
int64_t comm_values_wrong(const struct dpb_coll *coll, int rank, int ranks);

#endif
