/* dpb_capacity.h: the arithmetic of capacity planning: how long, how much, what is lost on the way.
 * Formulas with sources; docs/planning.md puts them together. */
#ifndef DPB_CAPACITY_H
#define DPB_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the slowest of many ---- */

/* Mean of the largest of n standard normals, by numerical integration (relative error below 1e-6
 * up to 1e7). 0 for n = 1; NaN below 1. */
double dpb_capacity_normal_max(double n);
/* Mean of the largest of n delays, each Exp(1) with probability `share` and else 0:
 * sum over k of Binomial(n, share)(k) H_k. About ln(n share) + 0.577 for many. */
double dpb_capacity_tail_max(double n, double share);
/* From step times of a job of some ranks (each already the largest of its ranks) to those of
 * `factor` times as many: mean of the largest of `factor` of them,
 * sum over the ascending x_(i) of x_(i) ((i/m)^factor - ((i-1)/m)^factor). NaN without values. Good
 * while factor is below a twentieth of m. */
double dpb_capacity_extrapolate_max(const double *values, size_t count, double factor);

/* ---- training time ---- */

/* Steps of so many epochs: ceil(samples epochs / batch). */
double dpb_capacity_steps(double samples, double epochs, double global_batch);
/* Samples to the same quality at a batch size, of `samples` at a small one, where B_crit is the
 * critical batch size: samples (1 + B / B_crit) (McCandlish et al. 2018, arXiv:1812.06162).
 * Infinite B_crit: the batch size does not matter. */
double dpb_capacity_samples_to_quality(double samples, double global_batch, double critical_batch);

/* What checkpoints and failures take. */
struct dpb_capacity_failures {
    double mtbf_s;       /* of the whole job: a node's over the number of nodes; infinite: none */
    double checkpoint_s; /* that training stands still for one */
    double restart_s;    /* from a failure until training goes on */
};
struct dpb_capacity_goodput {
    double interval_s; /* between checkpoints, sqrt(2 C M) (Young 1974); infinite without failures
                        */
    double checkpoint_share, rework_share, restart_share; /* of the time that training takes */
    double goodput; /* useful time over all time: 1 / (1 + the shares) */
};
/* Of a training that takes `training_s` without all that: C/tau + tau/(2M) + R/M, each as a share
 * of it. */
struct dpb_capacity_goodput dpb_capacity_goodput(double training_s,
                                                 const struct dpb_capacity_failures *failures);

/* ---- money and energy ---- */

/* accelerators price hours */
double dpb_capacity_cost(double accelerators, double price_per_hour, double seconds);
/* kWh of so many accelerators that draw `watts` each. */
double dpb_capacity_energy_kwh(double accelerators, double watts, double seconds);

/* ---- memory ---- */

struct dpb_memory_fit {
    double needed_bytes;  /* (held + per sample times samples + reserve) (1 + fragmentation) */
    double margin_bytes;  /* what is left; negative: it does not fit */
    double largest_batch; /* per rank, whole; 0: not even one sample */
};
/* `held` whatever the batch, `per_sample` for each of `samples`; `reserve`: of the driver and
 * libraries. */
struct dpb_memory_fit dpb_memory_fit(double held_bytes, double per_sample_bytes, double samples,
                                     double reserve_bytes, double fragmentation,
                                     double memory_bytes);

#ifdef __cplusplus
}
#endif
#endif
