/* dpb_schedule.h: what one rank computes in a step, as segments with times: a network without its
 * numbers, for simulation.
 *
 * Segments come from a list of layers and rates (a roofline), or from a measured profile. The
 * forward pass is the segments of layers in their order; the backward pass follows the order in
 * which gradients become ready. */
#ifndef DPB_SCHEDULE_H
#define DPB_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_sim_rates.h"
#include "dpb_status.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_segment {
    const char *name; /* the layer's, in the network's memory */
    double alone_ns;  /* undisturbed, of one micro-batch */
    int first, count; /* of the schedule's `param`: forward: that it uses; backward: that it uses
                         and completes the gradients of, in this order */
};

struct dpb_schedule {
    const struct dpb_model *model; /* borrowed */
    struct dpb_segment *forward, *backward;
    int forward_count, backward_count;
    int *param;
    double data_ns;          /* waiting for the batch, before the forward pass */
    int64_t samples;         /* of the micro-batch that the times are for */
    double activation_bytes; /* that the forward pass leaves for the backward pass */
    const char *source;      /* static: "roofline", "measured profile", ... */
};

/* From the model's layers: a segment takes as long as its multiply-adds or its bytes of memory,
 * whatever takes longer (dpb_sim_rates.h). Forward, per sample: 2 macs flops; the bytes of what
 * layer before it and this one put out, and of its parameters. Backward: twice both, but for the
 * first layer, which has no gradient of its input to make. Release after use. */
dpb_status dpb_schedule_from_model(const struct dpb_model *model, const struct dpb_sim_rates *rates,
                                   enum dpb_dtype precision, int64_t samples,
                                   struct dpb_schedule *schedule);
void dpb_schedule_release(struct dpb_schedule *schedule);

/* Sums over the segments. */
double dpb_schedule_forward_ns(const struct dpb_schedule *schedule);
double dpb_schedule_backward_ns(const struct dpb_schedule *schedule);
/* Make all segments longer or shorter by one factor, so that both passes together take `ns`: what a
 * measured throughput of one accelerator says. */
void dpb_schedule_scale(struct dpb_schedule *schedule, double ns);

#ifdef __cplusplus
}
#endif
#endif
