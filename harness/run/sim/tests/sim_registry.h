/* sim_registry.h: the parts that tests of simulations use: real tables, so that cells are what
 * users write. */
#ifndef SIM_REGISTRY_H
#define SIM_REGISTRY_H

#include "dpb_registry.h"

const struct dpb_registry *sim_registry(void);

/* A resolved cell of "name=value" texts separated by spaces; NULL with `status` where it is
 * refused. Caller frees. */
dpb_config *sim_cell_of(const char *settings, dpb_status *status);

#endif
