/* dpb_placement.h: where the ranks of a cell will be, before they are started, and what that makes
 * of the cell's options. */
#ifndef DPB_PLACEMENT_H
#define DPB_PLACEMENT_H

#include "dpb_crew.h"
#include "dpb_options.h"
#include "dpb_world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks of a node --ranks-per-node asks for; 0: as many as hosts have slots. */
int dpb_placement_asked(const dpb_config *config, int64_t ranks_per_node);

/* DPB_ERR_UNAVAILABLE, logged, where somebody else has placed ranks on several nodes, and not
 * `asked` on each (0: nobody asked). */
dpb_status dpb_placement_check(const struct dpb_world *world, int asked);

/* The world of a cell with `ranks` ranks, as dpb_crew_map() has it; caller releases. What a node is
 * goes into the cell's ranks-per-node, unless that was given. DPB_ERR_USAGE, logged, for options
 * that need as many ranks on every node (the hierarchical algorithms), where that cannot be. */
dpb_status dpb_placement_find(const dpb_crew *crew, dpb_config *config, int ranks, int asked,
                              struct dpb_world *world);

#ifdef __cplusplus
}
#endif
#endif
