/* headline.h (private): the answer in a sentence or two. */
#ifndef DPB_HEADLINE_H
#define DPB_HEADLINE_H

#include "dpb_str.h"
#include "dpb_summary.h"

/* Append the answer: best efficiency at the most ranks, the best bucket, what overlap brings; or
 * why there is none. */
void dpb_headline(const struct dpb_summary *summary, struct dpb_str *out);

#endif
