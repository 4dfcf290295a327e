#include "dpb_mpi_start.h"

#include <stdio.h>
#include <stdlib.h>

#include "dpb_launched.h"

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
                 "OMPI_COMM_WORLD_RANK nor PMI_RANK is set)");
    return DPB_ERR_UNAVAILABLE;
}
