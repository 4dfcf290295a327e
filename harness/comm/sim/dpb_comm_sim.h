/* dpb_comm_sim.h: the communicator that moves nothing, and says how long it would have taken: one
 * instance for all ranks of a timeline (kernels/sim/dpb_timeline.h). Needs the device "sim".
 *
 * A collective begins when the last rank is ready and those before it have ended. */
#ifndef DPB_COMM_SIM_H
#define DPB_COMM_SIM_H

#include "dpb_sim_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_comm_ops dpb_comm_sim_ops;

#ifdef __cplusplus
}
#endif
#endif
