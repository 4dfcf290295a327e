/* dpb_simulate.h: cells on virtual time: options of the device "sim", and the simulator that the
 * driver calls for it (dpb_simulator.h). docs/simulation.md says what is simulated. */
#ifndef DPB_SIMULATE_H
#define DPB_SIMULATE_H

#include "dpb_options.h"
#include "dpb_simulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kind "device", owner "sim" */
struct dpb_sim_options {
    char machine[DPB_OPTION_TEXT_BYTES]; /* "": none, the network is ideal */
    char profile[DPB_OPTION_TEXT_BYTES]; /* "": a roofline of the machine */
    char set[DPB_OPTION_TEXT_BYTES];     /* "inside.rate=600GB/s,launch=3us" */
    bool tf32;
    double noise_rank, noise_common, tail_share, tail_mean; /* NaN: the machine's */
    int64_t slow_ranks;
    double slow_by;
};
extern const struct dpb_option_table dpb_sim_option_table;

extern const struct dpb_simulator dpb_simulator_here;

#ifdef __cplusplus
}
#endif
#endif
