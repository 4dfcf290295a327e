/* dpb_mpi_start.h: which MPI started this process, by the variables that it left. */
#ifndef DPB_MPI_START_H
#define DPB_MPI_START_H

#include <stddef.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_mpi_library {
    DPB_MPI_OPEN_MPI,
    DPB_MPI_MPICH
};

/* What its launcher said about this process. */
struct dpb_mpi_start {
    enum dpb_mpi_library library;
    int rank, size;
};

/* "openmpi", "mpich": as in the names of modules. */
const char *dpb_mpi_library_text(enum dpb_mpi_library library);

/* From the environment. DPB_ERR_UNAVAILABLE and one line in `why` ("not available here, because
 * ..."): no launcher started this process, or its variables are no numbers. */
dpb_status dpb_mpi_start_find(struct dpb_mpi_start *start, char *why, size_t why_bytes);

/* Before MPI_Init: MPI starts once in what a launcher has started, a process or one of its
 * children, and a second start ends it without a word (MPICH) or with a riddle (Open MPI). A file
 * in the launcher's own folder (PMIX_SERVER_TMPDIR), which goes with it, or the launcher's end of
 * PMI_FD, tells: DPB_ERR_UNAVAILABLE and one line. Where neither does, DPB_OK. */
dpb_status dpb_mpi_start_claim(const struct dpb_mpi_start *start, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
