#include "dpb_mpi_start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_launched.h"
#include "dpb_units.h"

#define PATH_BYTES 4096

/* srun leaves the variables of PMI-2, which MPICH speaks, or of PMIx, which Open MPI speaks. */
static const struct {
    enum dpb_launched_by by;
    enum dpb_mpi_library library;
    const char *needs; /* also; NULL: nothing */
} starters[] = {
        {DPB_LAUNCHED_BY_OPEN_MPI, DPB_MPI_OPEN_MPI, NULL},
        {DPB_LAUNCHED_BY_SLURM, DPB_MPI_OPEN_MPI, "PMIX_RANK"},
        {DPB_LAUNCHED_BY_HYDRA, DPB_MPI_MPICH, NULL},
};

const char *dpb_mpi_library_text(enum dpb_mpi_library library)
{
    static const char *const texts[] = {
            [DPB_MPI_OPEN_MPI] = "openmpi",
            [DPB_MPI_MPICH] = "mpich",
    };
    return texts[library];
}

dpb_status dpb_mpi_start_find(struct dpb_mpi_start *start, char *why, size_t why_bytes)
{
    struct dpb_launched launched;
    char text[256];
    for (size_t i = 0; i < sizeof(starters) / sizeof(starters[0]); i++) {
        if (starters[i].needs && !getenv(starters[i].needs))
            continue;
        dpb_status st = dpb_launched_find_by(starters[i].by, &launched, text, sizeof(text));
        if (st == DPB_ERR_UNAVAILABLE)
            continue;
        if (st < 0) {
            snprintf(why, why_bytes, "not available here, because %s", text);
            return DPB_ERR_UNAVAILABLE;
        }
        *start = (struct dpb_mpi_start){starters[i].library, launched.rank, launched.size};
        return DPB_OK;
    }
    if (dpb_launched_find_by(DPB_LAUNCHED_BY_SLURM, &launched, text, sizeof(text)) == DPB_OK)
        snprintf(why, why_bytes,
                 "not available here, because srun started this process without PMI: give srun "
                 "--mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)");
    else
        snprintf(why, why_bytes,
                 "not available here, because this process was started without mpirun (neither "
                 "OMPI_COMM_WORLD_RANK nor PMI_RANK is set); --launcher mpirun starts ranks with "
                 "it");
    return DPB_ERR_UNAVAILABLE;
}

static bool has_left_file(const struct dpb_mpi_start *start)
{
    const char *folder = getenv("PMIX_SERVER_TMPDIR"), *job = getenv("PMIX_NAMESPACE");
    char path[PATH_BYTES];
    if (!folder || !job)
        return false;
    int length = snprintf(path, sizeof(path), "%s/dpbench-%s-%d", folder, job, start->rank);
    if (length < 0 || (size_t)length >= sizeof(path))
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST;
    close(fd);
    return false;
}

/* Hydra hangs up when a process has finished MPI. */
static bool has_hung_up(void)
{
    int64_t fd;
    char next;
    const char *text = getenv("PMI_FD");
    return text && dpb_parse_i64(text, &fd, NULL) == DPB_OK && fd >= 0 &&
           recv((int)fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

dpb_status dpb_mpi_start_claim(const struct dpb_mpi_start *start, char *why, size_t why_bytes)
{
    bool again = start->library == DPB_MPI_OPEN_MPI ? has_left_file(start) : has_hung_up();
    if (!again)
        return DPB_OK;
    snprintf(why, why_bytes,
             "not available here, because MPI was started before in what the launcher started as "
             "rank %d, and it starts once",
             start->rank);
    return DPB_ERR_UNAVAILABLE;
}
