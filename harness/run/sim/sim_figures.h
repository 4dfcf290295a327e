/* sim_figures.h (private): which figures of a machine a cell's results depend on. */
#ifndef SIM_FIGURES_H
#define SIM_FIGURES_H

#include "sim_cell.h"

/* Collectives that a cell has asked the network for. */
#define SIM_ASKED_MAX 512
struct sim_asked {
    struct {
        enum dpb_coll_kind kind;
        int64_t bytes;
    } coll[SIM_ASKED_MAX];
    int count;
    bool has_exchanges; /* a coordinator's small talk */
};
void sim_asked_note(struct sim_asked *asked, enum dpb_coll_kind kind, int64_t bytes);

/* unused[id]: the machine has the figure, and no change of it up or down changes what the cell was
 * simulated with: times of layers, of what the optimizer moves, of the collectives that it asked
 * for, noise, power, memory. */
dpb_status sim_figures_unused(struct sim_cell *cell, const struct sim_asked *asked,
                              bool unused[DPB_FIGURE_COUNT]);

#endif
