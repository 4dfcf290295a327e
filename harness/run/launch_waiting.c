/* Who waited in vain, and where: the collective in which the ranks that are gone were missing. */
#include <inttypes.h>
#include <stdio.h>

#include "launch.h"

/* Waits for others, as far as its line on the board tells. */
static bool waits(const struct launch *l, int r, int missing)
{
    char how[LAUNCH_TEXT_BYTES];
    return r != missing && !l->rank[r].result && l->board[r].phase == DPB_PHASE_SYNC &&
           !l->way->is_stopped(l, r, how);
}

static bool is_before(const struct dpb_board_line *a, const struct dpb_board_line *b)
{
    return a->step < b->step || (a->step == b->step && a->bucket < b->bucket);
}

static bool is_beside(const struct launch *l, int r, int first)
{
    return !is_before(&l->board[r], &l->board[first]) && !is_before(&l->board[first], &l->board[r]);
}

/* The one that waits for what was due first; -1: nobody waits. */
static int find_first(const struct launch *l, int missing)
{
    int first = -1;
    for (int r = 0; r < l->config->ranks; r++)
        if (waits(l, r, missing) && (first < 0 || is_before(&l->board[r], &l->board[first])))
            first = r;
    return first;
}

void launch_waiting_text(const struct launch *l, int missing, char *text, size_t text_bytes)
{
    const int first = find_first(l, missing);
    struct dpb_str list = {0};
    char where[96];
    int count = 0;
    text[0] = '\0';
    if (first < 0)
        return;
    for (int r = 0, end; r < l->config->ranks; r = end + 1) {
        for (end = r; end < l->config->ranks && waits(l, end, missing) && is_beside(l, end, first);)
            end++;
        if (end == r)
            continue;
        dpb_str_appendf(&list, "%s%d", count > 0 ? "," : "", r);
        if (end - r > 1)
            dpb_str_appendf(&list, "-%d", end - 1);
        count += end - r;
    }
    dpb_board_text(&l->board[first], where, sizeof(where));
    if (!list.failed)
        snprintf(text, text_bytes, "; %s %s waited in %s", count > 1 ? "ranks" : "rank",
                 list.text ? list.text : "", where);
    dpb_str_release(&list);
}
