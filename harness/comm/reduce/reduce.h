/* reduce.h: the arithmetic of reductions. Every product and sum is rounded on its own (no fused
 * multiply-add), so that results depend on the order of summation only, not on the processor.
 * Types: fp32, fp64, bf16, fp16 (half.h), int32, int64; integers wrap around and ignore scales.
 */
#ifndef DPB_COMM_REDUCE_H
#define DPB_COMM_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_types.h"

bool dpb_reduce_supports(enum dpb_dtype dtype);

/* Elements [first, first + count): scale * sources[0] + scale * sources[1] + ..., summed from left
 * to right, written to each of `outputs`, which are among the sources or overlap none of them. */
void dpb_reduce_all(enum dpb_dtype dtype, void *const *sources, int source_count,
                    void *const *outputs, int output_count, int64_t first, int64_t count,
                    float scale);

/* Elements [first, first + count): own = from_scale * from + own_scale * own. */
void dpb_reduce_join(enum dpb_dtype dtype, void *own, const void *from, int64_t first,
                     int64_t count, float own_scale, float from_scale);

/* Elements [first, first + count): a = b = a_scale * a + b_scale * b. */
void dpb_reduce_both(enum dpb_dtype dtype, void *a, void *b, int64_t first, int64_t count,
                     float a_scale, float b_scale);

#endif
