/* dpb_sim_rates.h: how long an operator takes on an accelerator of which only rates are known: a
 * roofline.
 *
 *     time = floor + max(flops / (F e(flops)), bytes / (B e'(bytes)))
 *
 * F and B are what the data sheet says, e and e' the shares of it that operators of that size
 * reach, between measured points straight in the logarithm of the size, and constant outside.
 * Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
 * architectures", 2009; separate curves of efficiency as in Calculon (Isaev et al. 2023). */
#ifndef DPB_SIM_RATES_H
#define DPB_SIM_RATES_H

#include <stdbool.h>

#include "dpb_device.h"
#include "dpb_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_SIM_CURVE_POINTS 24

/* Share (0 to 1] reached at a size, sizes ascending; no point: 1 everywhere. */
struct dpb_sim_curve {
    int count;
    double size[DPB_SIM_CURVE_POINTS], share[DPB_SIM_CURVE_POINTS];
};

double dpb_sim_curve_at(const struct dpb_sim_curve *curve, double size);

struct dpb_sim_rates {
    double flop_per_s[DPB_DTYPE_COUNT]; /* 0: the type is not supported */
    struct dpb_sim_curve flop_share;    /* over the operator's flops */
    double bytes_per_s;                 /* of memory */
    struct dpb_sim_curve bytes_share;   /* over the operator's bytes */
    double floor_ns;                    /* what the shortest operator takes */
};

/* DPB_ERR_USAGE, logged: a rate or share that is not finite or not above 0, sizes not ascending. */
dpb_status dpb_sim_rates_check(const struct dpb_sim_rates *rates);

/* Nanoseconds; `dtype` says which rate of flops. */
double dpb_sim_rates_ns(const struct dpb_sim_rates *rates, enum dpb_dtype dtype, double flops,
                        double bytes);

/* What an operator does: multiply-adds count two, memory counts what has to be read and written
 * once. False for operators of networks, whose times come from layers' lists. */
struct dpb_sim_work {
    enum dpb_dtype dtype;
    double flops, bytes;
};
bool dpb_sim_has_work(enum dpb_op op);
bool dpb_sim_work_of(enum dpb_op op, const void *args, struct dpb_sim_work *work);

#ifdef __cplusplus
}
#endif
#endif
