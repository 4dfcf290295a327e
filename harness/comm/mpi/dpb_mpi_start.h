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

#ifdef __cplusplus
}
#endif
#endif
