/* dpb_launched.h: what the program that started this process says about it: mpirun, srun, torchrun.
 *
 * Read from the environment alone, so it holds without any of their libraries, and before any of
 * them is initialised:
 *   torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
 *   Open MPI   OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
 *   Hydra      PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS       (MPICH, Intel MPI)
 *   MVAPICH    MV2_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
 *   Slurm      SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_NODEID
 *              SLURM_STEP_TASKS_PER_NODE, only inside a step: an sbatch script is not a task
 * A launcher speaks of a process only when both its rank and its size are there. PMIX_RANK has no
 * size beside it, so it is nobody's word here. OMPI_COMM_WORLD_NODE_RANK is no node's number. */
#ifndef DPB_LAUNCHED_H
#define DPB_LAUNCHED_H

#include <stddef.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_launched_by {
    DPB_LAUNCHED_BY_NOBODY,
    DPB_LAUNCHED_BY_TORCHRUN,
    DPB_LAUNCHED_BY_OPEN_MPI,
    DPB_LAUNCHED_BY_HYDRA,
    DPB_LAUNCHED_BY_MVAPICH,
    DPB_LAUNCHED_BY_SLURM,
    DPB_LAUNCHED_BY_COUNT
};

struct dpb_launched {
    enum dpb_launched_by by;
    int rank, size;                            /* 0 and 1 when nobody did */
    int local_rank, local_size;                /* -1: not said */
    int node;                                  /* -1: not said */
    const char *rank_variable, *size_variable; /* their names; NULL when nobody did */
};

/* "torchrun", "Open MPI", "Hydra", "MVAPICH", "Slurm"; "nobody". */
const char *dpb_launched_by_text(enum dpb_launched_by by);

/* The variable that holds its rank; NULL for nobody. */
const char *dpb_launched_rank_variable(enum dpb_launched_by by);

/* The innermost launcher that speaks of this process. Several may be nested. One whose size is 1
 * gives way, and so does one that started a single process on every node and has fewer of them:
 * that process is the other's daemon or torchrun itself. Two that both claim more than one process
 * and still disagree about rank or size are DPB_ERR_MISMATCH, and so are variables that are no
 * numbers, or a rank outside its size; `why` is one line that names variables and values. What one
 * does not say about node and local rank another that agrees with it may. */
dpb_status dpb_launched_find(struct dpb_launched *launched, char *why, size_t why_bytes);

/* How many processes a launcher counts that did not number this one: its size variable stands alone
 * (its name in `variable`), as where a launcher and its ranks do not speak the same protocol. 1,
 * and NULL, where there is none; SLURM_NTASKS counts, too, except in an allocation that is no step.
 * DPB_ERR_MISMATCH, with `why`, for what is no number. */
dpb_status dpb_launched_size_alone(int *size, const char **variable, char *why, size_t why_bytes);

/* What one launcher says, whatever the others do; DPB_ERR_UNAVAILABLE when it says nothing. */
dpb_status dpb_launched_find_by(enum dpb_launched_by by, struct dpb_launched *launched, char *why,
                                size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
