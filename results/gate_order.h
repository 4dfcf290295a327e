/* gate_order.h: when the runs of a gate were made. Places count within one session only; runs of
 * several sessions are put in order by their times. */
#ifndef DPB_GATE_ORDER_H
#define DPB_GATE_ORDER_H

#include "dpb_gate_compare.h"

/* How the runs of both sides lie among each other. */
enum dpb_gate_order dpb_gate_order_of(const struct dpb_gate_cell *base,
                                      const struct dpb_gate_cell *candidate);

/* When each of a cell's runs was made, all on one scale; false when that is not known. `at` has
 * room for all. */
bool dpb_gate_moments(const struct dpb_gate_cell *cell, double *at);

#endif
