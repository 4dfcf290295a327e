/* sim_resolve.h (private): members of dpb_simulator_here. */
#ifndef SIM_RESOLVE_H
#define SIM_RESOLVE_H

#include "dpb_simulator.h"

dpb_status sim_resolve(const struct dpb_registry *registry, dpb_config *config);
dpb_status sim_memory_bytes(const dpb_config *config, int64_t *bytes);

#endif
