#include "dlrm_placement.h"

static void sort_largest_first(const struct dpb_dlrm_shape *shape, int *order)
{
    for (int i = 0; i < shape->tables; i++) {
        int at = i;

        for (; at > 0 && shape->table_rows[order[at - 1]] < shape->table_rows[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The rank with the fewest rows of those that have room. */
static int emptiest(const int64_t *rows, const int *tables, int ranks, int slots)
{
    int best = -1;

    for (int r = 0; r < ranks; r++) {
        if (tables[r] < slots && (best < 0 || rows[r] < rows[best]))
            best = r;
    }
    return best;
}

void dpb_dlrm_place(const struct dpb_dlrm_shape *shape, int ranks,
                    struct dpb_dlrm_placement *placement)
{
    int64_t rows[DPB_DLRM_TABLES_MAX] = {0};
    int tables[DPB_DLRM_TABLES_MAX] = {0}, order[DPB_DLRM_TABLES_MAX];
    /* Every table goes to an empty rank while there is one. */
    int used = ranks < shape->tables ? ranks : shape->tables;

    placement->slots = (shape->tables + used - 1) / used;
    if (shape->where != DPB_DLRM_TABLES_SHARDED) {
        placement->slots = shape->tables;
        for (int t = 0; t < shape->tables; t++) {
            placement->rank_of[t] = -1;
            placement->slot_of[t] = t;
        }
        return;
    }
    sort_largest_first(shape, order);
    for (int i = 0; i < shape->tables; i++) {
        int rank = emptiest(rows, tables, used, placement->slots);

        placement->rank_of[order[i]] = rank;
        rows[rank] += shape->table_rows[order[i]];
        tables[rank]++;
    }
    for (int t = shape->tables - 1; t >= 0; t--)
        placement->slot_of[t] = --tables[placement->rank_of[t]];
}
