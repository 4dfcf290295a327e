/* rank_text.h: sentences about ranks that did not come. A mask has bit r for rank r. */
#ifndef DPB_RANK_TEXT_H
#define DPB_RANK_TEXT_H

#include <stdint.h>

#include "dpb_str.h"

/* "rank 3" or "ranks 0, 2 and 3" */
void dpb_rank_text(struct dpb_str *text, uint64_t mask);

/* "last seen at collective #16", or each one's number when they differ; "never seen" when all are
 * 0. `at` has one number per rank, `counted` says what it counts. */
void dpb_rank_text_last_seen(struct dpb_str *text, uint64_t mask, const uint64_t *at,
                             const char *counted);

/* What to do about the missing ranks: their process ids, where they are known (not 0). */
void dpb_rank_text_hint(struct dpb_str *hint, uint64_t mask, const int32_t *pid);

#endif
