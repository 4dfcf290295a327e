/* The last rank starts something else: every rank ends, and is told who means what. */
#include "mpi_ranks.h"

#include <string.h>

#include "dpb_log.h"

static char seen[8192]; /* what was logged */

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level;
    strncat(seen, line, sizeof(seen) - strlen(seen) - 1);
}

static const struct mismatch {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int64_t count;
    int root;
    float scale;
    const char *said;
} mismatches[] = {
        {DPB_COLL_ALL_REDUCE, DPB_F32, 999, 0, 1, "rank 2: all-reduce of 999 fp32, scale 1"},
        {DPB_COLL_ALL_REDUCE, DPB_F32, 100000, 0, 1, "rank 2: all-reduce of 100000 fp32"},
        {DPB_COLL_ALL_REDUCE, DPB_I32, 1000, 0, 1, "rank 2: all-reduce of 1000 int32"},
        {DPB_COLL_ALL_REDUCE, DPB_F32, 1000, 0, 0.5f, "fp32, scale 0.5"},
        {DPB_COLL_BROADCAST, DPB_F32, 1000, 1, 1, "rank 2: broadcast of 1000 fp32, root 1"},
        {DPB_COLL_ALL_GATHER, DPB_F32, 1000, 0, 1, "rank 2: all-gather of 1000 fp32"},
};

/* A rank between two that agree with it may get through, and is told at its next call. */
static dpb_status end(struct self *self, dpb_status st)
{
    return st == DPB_OK && self->rank == 1 ? self->ops->barrier(self->comm) : st;
}

static void disagree(struct self *self, const struct mismatch *other, int algorithm)
{
    void *buffer;
    dpb_status st;
    seen[0] = '\0';
    self_open(self, algorithm, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
    RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 400000, &buffer) == DPB_OK);
    struct dpb_coll coll = {DPB_COLL_ALL_REDUCE, DPB_F32, buffer, 1000, 0, 1, 3};
    st = dpb_comm_run(self->comm, &coll, NULL);
    /* Others may be in the second one, and have failed there. */
    RANK_TRUE(self, st == DPB_OK || self->rank != self->size - 1);
    if (self->rank == self->size - 1)
        coll = (struct dpb_coll){other->kind, other->dtype, buffer, other->count,
                                 other->root, other->scale, 3};
    st = end(self, st == DPB_OK ? dpb_comm_run(self->comm, &coll, NULL) : st);
    if (st == DPB_ERR_UNSUPPORTED) { /* this algorithm has none: the others wait in vain */
        self->ops->abort(self->comm, "not supported");
        return;
    }
    if (st == DPB_ERR_RANK_FAILED && strstr(seen, "not supported"))
        return;
    if (st != DPB_ERR_MISMATCH || !strstr(seen, "#2 (bucket 3): ranks disagree: ") ||
        !strstr(seen, other->said) || !strstr(seen, ": all-reduce of 1000 fp32, scale 1")) {
        fprintf(stderr, "rank %d: algorithm %d, %s: %s: %s\n", self->rank, algorithm, other->said,
                dpb_status_name(st), seen);
        exit(1);
    }
    self->ops->close(self->comm);
}

/* Calls of all ranks too: the last one does not meet the others, or has another size in mind. */
static void disagree_call(struct self *self)
{
    char mine[16] = "", all[3 * 16];
    void *buffer;
    const bool is_last = self->rank == self->size - 1;
    dpb_status st;
    for (int i = 0; i < 3; i++) {
        seen[0] = '\0';
        self_open(self, DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD, TEST_TIMEOUT_NS, NULL);
        if (i == 0)
            st = is_last ? self->ops->barrier(self->comm)
                         : self->ops->exchange(self->comm, mine, 16, all);
        else if (i == 1)
            st = self->ops->exchange(self->comm, mine, is_last ? 8 : 16, all);
        else
            st = self->ops->buffer_alloc(self->comm, is_last ? 1000 : 2000, &buffer);
        st = end(self, st);
        RANK_TRUE(self, st == DPB_ERR_MISMATCH && strstr(seen, "#1: ranks disagree: rank "));
        RANK_TRUE(self, strstr(seen, i == 0   ? "rank 2: barrier of 0 bytes"
                                     : i == 1 ? "rank 2: exchange of 8 bytes"
                                              : "rank 2: buffer_alloc of 1000 bytes"));
        self->ops->close(self->comm);
    }
}

void disagree_run(struct self *self)
{
    const int algorithms[] = {DPB_COMM_MPI_LIBRARY, DPB_ALGORITHM_RING,
                              DPB_ALGORITHM_HALVING_DOUBLING, DPB_ALGORITHM_TREE};
    dpb_log_set_sink(keep, NULL);
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++)
        for (size_t i = 0; i < sizeof(mismatches) / sizeof(mismatches[0]); i++)
            disagree(self, &mismatches[i], algorithms[a]);
    disagree_call(self);
    leave_word(self, "said", "disagree: DPB_ERR_MISMATCH, named");
    wait_for_words(self, "said", self->size); /* the first to end ends all */
    exit(dpb_status_exit_code(DPB_ERR_MISMATCH));
}
