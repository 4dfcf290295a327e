/* mpi_ranks.h: one rank of a test that mpirun starts. */
#ifndef DPB_COMM_TEST_MPI_RANKS_H
#define DPB_COMM_TEST_MPI_RANKS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpb_comm_mpi.h"

#define TEST_TIMEOUT_NS INT64_C(60000000000)

struct self {
    const struct dpb_comm_ops *ops;
    dpb_comm *comm;
    int rank, size;
};

/* A check that fails says where, and ends this rank: mpirun then ends the others. */
#define RANK_TRUE(self, condition)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: not true: %s\n", __FILE__, __LINE__, (self)->rank,    \
                    #condition);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Open the comm; the status of open() is checked unless `st` takes it. */
void self_open(struct self *self, int algorithm, int progress, int64_t timeout_ns, dpb_status *st);

/* Ranks tell one another, and run_ranks, how far they are by files beside this program, its name
 * and `.WORD.RANK`: without MPI, which may be what fails, and without mpirun, which may lose what
 * ranks print before it ends them. */
void leave_word(const struct self *self, const char *word, const char *text);

/* Wait until ranks 0 to `ranks` - 1 have left that word; TEST_TIMEOUT_NS at most. */
void wait_for_words(const struct self *self, const char *word, int ranks);

/* How ranks fail (mpi_failures.c): true when there is a case of that name. */
bool failure_run(struct self *self, const char *name);

/* Ranks start different things (mpi_disagree.c). Does not return. */
void disagree_run(struct self *self);

#endif
