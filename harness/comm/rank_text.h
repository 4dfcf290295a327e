/* rank_text.h: sentences about ranks, most of all about those that did not come. */
#ifndef DPB_RANK_TEXT_H
#define DPB_RANK_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_str.h"

/* What a sentence may say about a rank. */
struct dpb_rank_seen {
    bool listed;      /* the sentence is about it */
    uint64_t at;      /* how far it has been seen */
    int32_t pid;      /* 0: not known */
    const char *host; /* NULL: all ranks are on this one */
};

/* "rank 3", "ranks 0, 2 and 3 (node2)"; of many the first 16, and how many more. Of each host's
 * ranks the last one that is listed before another host's has its name. */
void dpb_rank_text(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks);

/* "last seen at collective #16", or each one's number when they differ; "never seen" when all are
 * 0. `counted` says what is counted. */
void dpb_rank_text_last_seen(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks,
                             const char *counted);

/* What to do about the missing ranks: their processes, where they are known. */
void dpb_rank_text_hint(struct dpb_str *hint, const struct dpb_rank_seen *seen, int ranks);

#endif
