/* mpi_options.c: the options, without MPI's header: also in programs that load the comm only when
 * it is asked for. */
#include "dpb_comm_mpi.h"

static const struct dpb_choice algorithm_choices[] = {
        {"library", DPB_COMM_MPI_LIBRARY, "MPI's own collectives"},
        {"ring", DPB_ALGORITHM_RING, "shards go round, 2 (P - 1) steps between neighbours"},
        {"recursive-doubling", DPB_ALGORITHM_RECURSIVE_DOUBLING,
         "pairs at distance 1, 2, 4, ... exchange everything: few steps, many bytes"},
        {"halving-doubling", DPB_ALGORITHM_HALVING_DOUBLING,
         "pairs exchange halves, quarters, ... and back: few steps, few bytes"},
        {"tree", DPB_ALGORITHM_TREE, "sums go up a binary tree, and back down, in chunks"},
        {"double-tree", DPB_ALGORITHM_DOUBLE_TREE,
         "two binary trees, half of the data in each, no rank inside both"},
        {"hierarchical", DPB_ALGORITHM_HIERARCHICAL,
         "rings in each node, and rings across nodes for the shards"},
        {NULL, 0, NULL},
};

static const struct dpb_choice progress_choices[] = {
        {"thread", DPB_COMM_MPI_THREAD, "a thread of each rank polls MPI in the background"},
        {"none", DPB_COMM_MPI_NONE, "nobody, until the rank waits: nothing overlaps"},
        {NULL, 0, NULL},
};

static const struct dpb_option rows[] = {
        {
                .name = "mpi-algorithm",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_mpi_options, algorithm),
                .default_text = "library",
                .choices = algorithm_choices,
                .category = "Communication",
                .help = "MPI's collectives, or ours over its point-to-point messages",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "mpi-progress",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_mpi_options, progress),
                .default_text = "thread",
                .choices = progress_choices,
                .category = "Communication",
                .help = "who executes collectives while the rank computes",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

const struct dpb_option_table dpb_comm_mpi_table = {
        .kind = "comm",
        .owner = "mpi",
        .rows = rows,
        .row_count = sizeof(rows) / sizeof(rows[0]),
        .config_bytes = sizeof(struct dpb_comm_mpi_options),
};
