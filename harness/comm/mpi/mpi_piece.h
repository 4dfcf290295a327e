/* mpi_piece.h: how more elements than one call can count go in several calls.
 *
 * Pieces are equally long but for the last one, and follow one another; all ranks split the same
 * range into the same pieces. Pure functions. */
#ifndef DPB_MPI_PIECE_H
#define DPB_MPI_PIECE_H

#include <stdbool.h>
#include <stdint.h>

/* Most bytes of one call: counts are int in MPI 3, and libraries multiply them by the size of an
 * element, some in int. Far below 2^31: each call has the whole time-out, is one step of progress,
 * and takes memory of its size inside the library. */
#define DPB_MPI_CALL_BYTES (INT64_C(1) << 26)

/* Pieces of at most `most` elements that `count` elements take; 0 for none. */
static inline int64_t dpb_mpi_piece_number(int64_t count, int64_t most)
{
    return count / most + (count % most != 0);
}

/* Elements of piece `index`, which begins at `first`; 0, and `first` at the end, for an index
 * beyond the last. */
static inline int64_t dpb_mpi_piece(int64_t count, int64_t most, int64_t index, int64_t *first)
{
    if (index >= dpb_mpi_piece_number(count, most)) {
        *first = count;
        return 0;
    }
    *first = index * most;
    return count - *first < most ? count - *first : most;
}

/* In a pairwise exchange among `ranks`, every rank has one peer in each of rounds 0 to ranks - 1,
 * each peer once: itself in one of them. */
static inline int dpb_mpi_pair(int ranks, int rank, int round)
{
    int peer = (round - rank) % ranks;
    return peer < 0 ? peer + ranks : peer;
}

#endif
