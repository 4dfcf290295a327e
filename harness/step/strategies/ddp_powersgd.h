/* ddp_powersgd.h: the hook `powersgd`, for ddp.c and tests. */
#ifndef DPB_DDP_POWERSGD_H
#define DPB_DDP_POWERSGD_H

#include "ddp_hook.h"

extern const struct ddp_hook_ops ddp_hook_powersgd_ops;

/* Options of PowerSGD that contradict each other, or other hooks: DPB_ERR_USAGE, logged. */
dpb_status ddp_powersgd_check(const struct dpb_ddp_options *options);

/* Where factor Q of a parameter is after place(), [columns, rank], and rank; NULL of one that is
 * not compressed. A test puts another's random numbers there. */
float *ddp_powersgd_q(ddp_hook *hook, int param, int64_t *columns, int64_t *rank);

#endif
