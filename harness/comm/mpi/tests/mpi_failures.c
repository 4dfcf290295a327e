/* A rank stops, stays away, gives up, closes, dies or never opens: the others end, and say who. */
#include "mpi_ranks.h"

#include "../mpi_private.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"

#define SHORT_NS INT64_C(2000000000)

static char seen[4096]; /* what was logged */

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level;
    strncat(seen, line, sizeof(seen) - strlen(seen) - 1);
}

/* Every rank does it, the last one fails. */
static dpb_status collective(struct self *self, void *buffer)
{
    const struct dpb_coll coll = {DPB_COLL_ALL_REDUCE, DPB_F32, buffer, 1000, 0, 1, 7};
    return dpb_comm_run(self->comm, &coll, NULL);
}

/* The last rank's part: it does not come back from most of them. */
static void fail(struct self *self, const char *name)
{
    if (strcmp(name, "stopped") == 0)
        raise(SIGSTOP);
    else if (strcmp(name, "killed") == 0)
        raise(SIGKILL);
    else if (strcmp(name, "gave-up") == 0)
        self->ops->abort(self->comm, "the test wants it");
    else if (strcmp(name, "closed") == 0)
        self->ops->close(self->comm);
    pause();
}

static void wait_no_longer(struct self *self)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(self->comm);
    comm->timeout_ns = comm->living_ns = SHORT_NS;
    comm->answer_ns = 2 * SHORT_NS; /* who lives answers, on a busy machine too */
}

bool failure_run(struct self *self, const char *name)
{
    static const struct {
        const char *name, *text, *who;
        dpb_status st;
    } cases[] = {
            /* On a busy machine one that is only late may be called missing as well. */
            {"stopped", "missing rank", " 2 (", DPB_ERR_TIMEOUT},
            {"absent", "missing rank", " 2 (", DPB_ERR_TIMEOUT},
            {"gave-up", "rank 2 gave up: the test wants it", "", DPB_ERR_RANK_FAILED},
            {"closed", "rank 2 closed the communicator", "", DPB_ERR_RANK_FAILED},
            {"killed", "missing rank", " 2 (", DPB_ERR_TIMEOUT},
            {"never-opens", "open: ", "", DPB_ERR_TIMEOUT},
    };
    const bool opens = strcmp(name, "never-opens") != 0;
    const bool is_last = self->rank == self->size - 1;
    char said[sizeof(seen) + 256];
    void *buffer = NULL;
    dpb_status st;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(name, cases[i].name) != 0)
            continue;
        dpb_log_set_sink(keep, NULL);
        if (!opens && is_last)
            pause();
        self_open(self, DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD,
                  opens ? TEST_TIMEOUT_NS : SHORT_NS, &st);
        if (opens) {
            RANK_TRUE(self, st == DPB_OK);
            RANK_TRUE(self, self->ops->buffer_alloc(self->comm, 4096, &buffer) == DPB_OK);
            RANK_TRUE(self, collective(self, buffer) == DPB_OK);
            leave_word(self, "through", "");
            if (is_last)
                wait_for_words(self, "through", self->size - 1);
            if (is_last)
                fail(self, name);
            if (cases[i].st == DPB_ERR_TIMEOUT)
                wait_no_longer(self);
            st = collective(self, buffer);
            RANK_TRUE(self, collective(self, buffer) == st); /* it stays failed */
            RANK_TRUE(self, self->ops->barrier(self->comm) == st);
            self->ops->close(self->comm);
        }
        /* Open MPI and MPICH differ in whether MPI_Init waits for all ranks. */
        bool named = (strstr(seen, cases[i].text) && strstr(seen, cases[i].who)) ||
                     (!opens && strstr(seen, "MPI_Init"));
        snprintf(said, sizeof(said), "%s: %s, %s", name, dpb_status_name(st),
                 named ? "named" : seen);
        leave_word(self, "said", said);
        wait_for_words(self, "said", self->size - 1); /* the first to end ends all */
        exit(st == cases[i].st && named ? dpb_status_exit_code(st) : 1);
    }
    return false;
}
