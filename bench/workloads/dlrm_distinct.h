/* dlrm_distinct.h: the distinct numbers in a list, and which of them each place of the list has. */
#ifndef BENCH_DLRM_DISTINCT_H
#define BENCH_DLRM_DISTINCT_H

#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_dlrm_distinct {
    int32_t *value; /* the distinct numbers, in the order in which they came first */
    int32_t count;
    int32_t *slot; /* a table with open addressing: index in value, or -1 */
    int64_t slot_mask;
};

/* Bytes of memory for lists of at most `most` numbers. */
int64_t dpb_dlrm_distinct_bytes(int64_t most);
/* Room for as many, touched. DPB_ERR_NO_MEMORY, not logged. */
dpb_status dpb_dlrm_distinct_open(int64_t most, struct dpb_dlrm_distinct *distinct);
void dpb_dlrm_distinct_release(struct dpb_dlrm_distinct *distinct);

/* Forget all numbers. */
void dpb_dlrm_distinct_clear(struct dpb_dlrm_distinct *distinct);
/* Add number[0..count), each from 0; which[i] := index of number[i] among the distinct ones. */
void dpb_dlrm_distinct_add(struct dpb_dlrm_distinct *distinct, const int32_t *number, int64_t count,
                           int32_t *which);

#ifdef __cplusplus
}
#endif
#endif
