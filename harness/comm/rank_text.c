#include "rank_text.h"

#include <inttypes.h>
#include <string.h>

#define LISTED_MOST 16 /* a text about thousands of ranks is read by nobody */

/* The next rank that is listed, from `rank` on; `ranks`: there is none. */
static int next(const struct dpb_rank_seen *seen, int ranks, int rank)
{
    while (rank < ranks && !seen[rank].listed)
        rank++;
    return rank;
}

static int count_listed(const struct dpb_rank_seen *seen, int ranks)
{
    int count = 0;
    for (int r = next(seen, ranks, 0); r < ranks; r = next(seen, ranks, r + 1))
        count++;
    return count;
}

static bool same_host(const struct dpb_rank_seen *a, const struct dpb_rank_seen *b)
{
    return a->host && b->host && strcmp(a->host, b->host) == 0;
}

void dpb_rank_text(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks)
{
    const int count = count_listed(seen, ranks);
    const int shown = count > LISTED_MOST ? LISTED_MOST : count;
    int r = next(seen, ranks, 0);
    dpb_str_append(text, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < shown; i++) {
        const char *before = i == 0 ? "" : i == count - 1 ? " and " : ", ";
        const int after = next(seen, ranks, r + 1);
        dpb_str_appendf(text, "%s%d", before, r);
        if (seen[r].host && (i == shown - 1 || !same_host(&seen[r], &seen[after])))
            dpb_str_appendf(text, " (%s)", seen[r].host);
        r = after;
    }
    if (count > shown)
        dpb_str_appendf(text, " and %d more", count - shown);
}

void dpb_rank_text_last_seen(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks,
                             const char *counted)
{
    const int first = next(seen, ranks, 0);
    bool same = true;
    for (int r = first; r < ranks; r = next(seen, ranks, r + 1))
        same = same && seen[r].at == seen[first].at;
    if (first == ranks || (same && seen[first].at == 0)) {
        dpb_str_append(text, "never seen");
        return;
    }
    dpb_str_appendf(text, "last seen at %s", counted);
    const int most = same ? 1 : LISTED_MOST;
    for (int r = first, i = 0; r < ranks && i < most; r = next(seen, ranks, r + 1), i++)
        dpb_str_appendf(text, "%s #%" PRIu64, i == 0 ? "" : ",", seen[r].at);
}

void dpb_rank_text_hint(struct dpb_str *hint, const struct dpb_rank_seen *seen, int ranks)
{
    int known = 0;
    for (int r = next(seen, ranks, 0); r < ranks && known < LISTED_MOST;
         r = next(seen, ranks, r + 1)) {
        if (seen[r].pid == 0)
            continue;
        dpb_str_appendf(hint, "%s %d (rank %d)", known++ == 0 ? "look at process" : ",",
                        seen[r].pid, r);
        if (seen[r].host)
            dpb_str_appendf(hint, " on %s", seen[r].host);
    }
    dpb_str_append(hint, known ? ": stopped, busy or gone? " : "were they started? ");
    dpb_str_append(hint, "--timeout sets how long ranks wait for each other");
}
