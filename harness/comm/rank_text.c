#include "rank_text.h"

#include <inttypes.h>
#include <stdbool.h>

#define MASK_RANKS 64

void dpb_rank_text(struct dpb_str *text, uint64_t mask)
{
    int count = __builtin_popcountll(mask);
    dpb_str_append(text, count == 1 ? "rank " : "ranks ");
    for (int r = 0, seen = 0; r < MASK_RANKS; r++) {
        if (!(mask >> r & 1))
            continue;
        const char *before = seen == 0 ? "" : seen == count - 1 ? " and " : ", ";
        dpb_str_appendf(text, "%s%d", before, r);
        seen++;
    }
}

void dpb_rank_text_last_seen(struct dpb_str *text, uint64_t mask, const uint64_t *at,
                             const char *counted)
{
    uint64_t of[MASK_RANKS] = {0};
    int count = 0;
    bool same = true;
    for (int r = 0; r < MASK_RANKS; r++) {
        if (!(mask >> r & 1))
            continue;
        of[count] = at[r];
        same = same && of[count] == of[0];
        count++;
    }
    if (same && of[0] == 0) {
        dpb_str_append(text, "never seen");
        return;
    }
    dpb_str_appendf(text, "last seen at %s", counted);
    for (int i = 0; i < (same ? 1 : count); i++)
        dpb_str_appendf(text, "%s #%" PRIu64, i == 0 ? "" : ",", of[i]);
}

void dpb_rank_text_hint(struct dpb_str *hint, uint64_t mask, const int32_t *pid)
{
    int known = 0;
    for (int r = 0; r < MASK_RANKS; r++) {
        if (!(mask >> r & 1) || pid[r] == 0)
            continue;
        dpb_str_appendf(hint, "%s %d (rank %d)", known++ == 0 ? "look at process" : ",", pid[r], r);
    }
    dpb_str_append(hint, known ? ": stopped, busy or gone? " : "were they started? ");
    dpb_str_append(hint, "--timeout sets how long ranks wait for each other");
}
