/* unit_coll.h: collectives on the units of a plan, in their places: what most strategies do. */
#ifndef DPB_UNIT_COLL_H
#define DPB_UNIT_COLL_H

#include "dpb_strategy.h"

/* Start a collective on the whole of unit `unit`; reductions average. */
static inline dpb_status unit_coll_start(const struct dpb_sync_services *services,
                                         const struct dpb_unit_plan *plan, int unit,
                                         enum dpb_coll_kind kind, int *handle)
{
    const struct dpb_sync_coll coll = {
            .kind = kind,
            .dtype = plan->units[unit].dtype,
            .buffer = services->unit_data(services->ctx, unit),
            .count = plan->units[unit].elements,
            .scale = services->average,
            .unit = unit,
    };

    return services->start(services->ctx, &coll, handle);
}

/* The same as a message. */
static inline struct dpb_sync_message unit_coll_message(const struct dpb_unit_plan *plan, int unit,
                                                        enum dpb_coll_kind kind,
                                                        enum dpb_sync_when when)
{
    const struct dpb_unit *of = &plan->units[unit];

    return (struct dpb_sync_message){
            .kind = kind,
            .dtype = of->dtype,
            .count = of->elements,
            .when = when,
            .param = plan->member[of->first_member + of->member_count - 1],
            .unit = unit,
    };
}

#endif
