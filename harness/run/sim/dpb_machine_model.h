/* dpb_machine_model.h: a machine profile as what the simulation asks: rates of operators, a
 * network, noise. Figures that a profile does not have are assumed as said here. */
#ifndef DPB_MACHINE_MODEL_H
#define DPB_MACHINE_MODEL_H

#include <stdbool.h>

#include "dpb_comm_bench.h"
#include "dpb_machine.h"
#include "dpb_network.h"
#include "dpb_sim_rates.h"
#include "dpb_sim_step.h"
#include "dpb_timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_machine_model {
    struct dpb_sim_rates rates;
    struct dpb_network network;
    struct dpb_network_curve *curves; /* network.curves */
    struct dpb_timeline_noise noise;
    double launch_ns;
    bool is_cpu;
};

/* `tf32`: products in fp32 run at the peak of TF32, where there is one. Borrows the machine's
 * texts. Assumed where the profile is silent: share of the peaks 0.8, share of links 0.8 inside a
 * node and 0.73 between, latencies 3 us and 15 us, floors 45 us and 100 us, no contention, no
 * noise, no launches. Release after use. */
dpb_status dpb_machine_model_init(const struct dpb_machine *machine, bool tf32,
                                  struct dpb_machine_model *model);
void dpb_machine_model_release(struct dpb_machine_model *model);

/* For `dpbench comm --device sim`. */
extern const struct dpb_comm_bench_machines dpb_machine_networks;

/* The network as the simulated step asks for it: all of `ranks` ranks. Origins of the times it was
 * asked for are kept. */
struct dpb_model_network {
    const struct dpb_network *network;
    int ranks;
    /* of all times since it was zeroed */
    double ns_of_origin[DPB_ORIGIN_ASSUMED + 1];
    double farthest;    /* extrapolation: the largest factor beyond what was measured */
    double below_least; /* ... and below the smallest size that was; both 1 or 0: nowhere */
};
struct dpb_sim_network dpb_model_network_services(struct dpb_model_network *network);

#ifdef __cplusplus
}
#endif
#endif
