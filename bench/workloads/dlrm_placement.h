/* dlrm_placement.h: which rank has which embedding table.
 *
 * Whole tables, the largest first, each to the rank with the fewest bytes so far among those that
 * have fewer than ceil(tables / ranks) tables; the lower number decides between equals. It is the
 * rule of NVIDIA's DeepLearningExamples DLRM, but that there no table shares a rank with the bottom
 * MLP: here every rank computes the MLPs. */
#ifndef BENCH_DLRM_PLACEMENT_H
#define BENCH_DLRM_PLACEMENT_H

#include "dlrm_list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_dlrm_placement {
    int slots;                        /* most tables of a rank */
    int rank_of[DPB_DLRM_TABLES_MAX]; /* -1: on every rank */
    int slot_of[DPB_DLRM_TABLES_MAX]; /* among the tables of its rank, by number */
};

/* Tables that are not sharded are on every rank, each in the slot of its number. */
void dpb_dlrm_place(const struct dpb_dlrm_shape *shape, int ranks,
                    struct dpb_dlrm_placement *placement);

/* Is table t on this rank? */
static inline bool dpb_dlrm_placed_on(const struct dpb_dlrm_placement *placement, int t, int rank)
{
    return placement->rank_of[t] < 0 || placement->rank_of[t] == rank;
}

#ifdef __cplusplus
}
#endif
#endif
