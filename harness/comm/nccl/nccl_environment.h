/* nccl_environment.h: what NCCL reads from the environment: set from options, checked, recorded. */
#ifndef DPB_NCCL_ENVIRONMENT_H
#define DPB_NCCL_ENVIRONMENT_H

#include "dpb_comm_nccl.h"

/* Check the options against each other and against the environment, and set NCCL_ALGO and
 * NCCL_PROTO; before the first call of NCCL in this process, which reads them once.
 * DPB_ERR_USAGE, logged: minimum above maximum, an option and a variable that say two things,
 * LL128 forced, CUDA_LAUNCH_BLOCKING with more than one rank. */
dpb_status dpb_nccl_environment_apply(const struct dpb_comm_nccl_options *options, int rank,
                                      int size);

/* The NCCL_* variables that change how fast NCCL is, as they are set; of the others, which may name
 * machines and files, only how many there are ("others"). Caller owns. */
dpb_json *dpb_nccl_environment_json(void);

#endif
