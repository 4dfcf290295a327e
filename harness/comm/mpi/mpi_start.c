#include "dpb_mpi_start.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *text, *rank, *size;
} launchers[] = {
        [DPB_MPI_OPEN_MPI] = {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        [DPB_MPI_MPICH] = {"mpich", "PMI_RANK", "PMI_SIZE"},
};

const char *dpb_mpi_library_text(enum dpb_mpi_library library)
{
    return launchers[library].text;
}

static bool read_number(const char *text, int *number)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < 0 || value > INT_MAX)
        return false;
    *number = (int)value;
    return true;
}

dpb_status dpb_mpi_start_find(struct dpb_mpi_start *start, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *rank = getenv(launchers[i].rank);
        const char *size = getenv(launchers[i].size);
        if (!rank || !size)
            continue;
        start->library = (enum dpb_mpi_library)i;
        if (read_number(rank, &start->rank) && read_number(size, &start->size) &&
            start->rank < start->size)
            return DPB_OK;
        snprintf(why, why_bytes,
                 "not available here, because %s=%s and %s=%s are no rank and number of ranks",
                 launchers[i].rank, rank, launchers[i].size, size);
        return DPB_ERR_UNAVAILABLE;
    }
    snprintf(why, why_bytes,
             "not available here, because this process was started without mpirun (neither %s nor "
             "%s is set)",
             launchers[0].rank, launchers[1].rank);
    return DPB_ERR_UNAVAILABLE;
}
