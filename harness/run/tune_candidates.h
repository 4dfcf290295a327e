/* tune_candidates.h (private): which settings are worth a launch. */
#ifndef DPB_TUNE_CANDIDATES_H
#define DPB_TUNE_CANDIDATES_H

#include "dpb_tune.h"

/* Fill the plan's cells (0: the default), the knobs, and how many were the same. */
dpb_status tune_candidates(const struct dpb_tune_input *input, struct dpb_tune *tune);

/* Fill first_bucket_bytes of every candidate. */
dpb_status tune_first_buckets(const struct dpb_registry *registry, struct dpb_tune *tune);

#endif
