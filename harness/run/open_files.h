/* open_files.h (private): room for one socket and more of every rank. */
#ifndef DPB_RUN_OPEN_FILES_H
#define DPB_RUN_OPEN_FILES_H

#include "dpb_status.h"

/* Raise this process's limit on open files, which a user may up to the hard one, so that besides
 * those that are open `per_rank` can be opened for each of `ranks`, and some more.
 * DPB_ERR_UNAVAILABLE, logged, when the hard one is too low. */
dpb_status open_files_allow(int ranks, int per_rank);

#endif
