/* dpb_comm_mpi.h: collectives through MPI, in host memory, between ranks that mpirun started.
 *
 * Options (table owner "mpi"): mpi-algorithm, mpi-progress.
 *
 * mpi-algorithm "library": MPI's own non-blocking collectives, by an algorithm of its choice. The
 * bytes on the wire are not known then; reported is what the fewest would be (the formula of
 * "direct"). The others are the schedules of dpb_schedule.h over MPI_Isend and MPI_Irecv, whose
 * bytes are counted; all-to-all goes pair by pair.
 *
 * Every type but uint8 can be summed, bf16 and fp16 with each product and sum rounded to the type
 * (harness/comm/reduce). What an algorithm does not have is refused by start(). Counts are 64-bit:
 * what MPI's int cannot count goes in pieces (mpi_piece.h).
 *
 * Progress: a thread of each rank executes what was started, one collective after the other, and
 * polls MPI meanwhile. With "none" wait() does it, in the caller; until then nothing moves, test()
 * says that it is pending, and nothing overlaps. Calls into MPI are made by one thread at a time,
 * so MPI_THREAD_SERIALIZED is enough, and MPI_THREAD_FUNNELED without the thread.
 *
 * open() starts MPI unless the program has done so; exit() then ends it. The number of ranks and
 * this rank must be MPI's. times.all_ready_ns is times.start_ns: MPI does not tell when the last
 * rank came, so waiting for peers is part of the rest.
 *
 * The time-out is of a wait without any rank's progress, not of a whole collective. Ranks that
 * start different things get DPB_ERR_MISMATCH and a line that says who means what: those beside a
 * difference with that collective or call, the others with their next one at the latest.
 *
 * Failures end the communicator on all ranks with the status of the first one, DPB_ERR_TIMEOUT,
 * DPB_ERR_MISMATCH or DPB_ERR_RANK_FAILED, told by messages; who is missing is asked at the
 * deadline, and named with its host. After one, MPI cannot be finished in order: exit() gives the
 * others two seconds to have heard, five to those that live, and calls MPI_Abort. */
#ifndef DPB_COMM_MPI_H
#define DPB_COMM_MPI_H

#include "dpb_comm.h"
#include "dpb_link_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* After the algorithms of dpb_link_model.h. */
#define DPB_COMM_MPI_LIBRARY DPB_ALGORITHM_COUNT

enum dpb_comm_mpi_progress {
    DPB_COMM_MPI_THREAD,
    DPB_COMM_MPI_NONE
};

struct dpb_comm_mpi_options {
    int algorithm; /* DPB_COMM_MPI_LIBRARY, or enum dpb_algorithm without direct */
    int progress;  /* enum dpb_comm_mpi_progress */
};

extern const struct dpb_comm_ops dpb_comm_mpi_ops;
extern const struct dpb_option_table dpb_comm_mpi_table;

#ifdef __cplusplus
}
#endif
#endif
