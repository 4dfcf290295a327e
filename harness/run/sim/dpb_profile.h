/* dpb_profile.h: how long the layers of a workload take on one device: measured by `dpbench
 * profile`, replayed by `dpbench simulate --profile` on other networks, ranks and buckets.
 *
 * File "dpb.profile/1", JSON:
 *   schema, workload, precision, optimizer, device{...}, is_cpu, host{...}, tool{...}, time_utc,
 *   steps (traced, of each batch), batches[], trace_overhead[] (traced step over timed step),
 *   step_ns[] (median timed step), data_ns[], optimizer_ns[], rest_ns[],
 *   layers[{name, forward_ns[], backward_ns[]}], fit[{name, forward{a_ns, b_ns}, ...}],
 *   unmapped[] (operators of no layer)
 * Arrays have an element per batch. A layer's time holds the gaps before its operators, all times
 * are scaled to the step without a recorder, and rest_ns is what is left, so that for each batch
 *   step = data + sum of forward + sum of backward + optimizer + rest. */
#ifndef DPB_PROFILE_H
#define DPB_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_event.h"
#include "dpb_json.h"
#include "dpb_schedule.h"
#include "dpb_status.h"
#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_PROFILE_SCHEMA      "dpb.profile/1"
#define DPB_PROFILE_BATCHES_MAX 16

struct dpb_profile_layer {
    char *name;
    double ns[2][DPB_PROFILE_BATCHES_MAX]; /* [enum dpb_pass] */
};

struct dpb_profile {
    char *workload, *device, *optimizer;
    char **unmapped; /* operators that belong to no layer of the list, and count to the one before
                      */
    int unmapped_count;
    enum dpb_dtype precision;
    bool is_cpu;
    int steps;
    int batch_count;
    int64_t batch[DPB_PROFILE_BATCHES_MAX]; /* ascending */
    double step_ns[DPB_PROFILE_BATCHES_MAX], data_ns[DPB_PROFILE_BATCHES_MAX];
    double optimizer_ns[DPB_PROFILE_BATCHES_MAX], rest_ns[DPB_PROFILE_BATCHES_MAX];
    double trace_overhead[DPB_PROFILE_BATCHES_MAX];
    struct dpb_profile_layer *layers;
    int layer_count;
};

/* An empty profile of a workload's layers. Release with dpb_profile_release(), as a read one. */
dpb_status dpb_profile_new(const struct dpb_model *model, const char *workload,
                           struct dpb_profile *profile);
void dpb_profile_release(struct dpb_profile *profile);

/* Add the record of one rank with timed and traced steps, and the events of its trace, of a batch
 * larger than those before. DPB_ERR_NO_DATA, logged, without traced steps or with lost events. */
dpb_status dpb_profile_add(struct dpb_profile *profile, const dpb_json *record,
                           const struct dpb_event *events, size_t count, uint64_t lost);

/* `more` (may be NULL) has further keys; the caller keeps it. Caller owns the result. */
dpb_json *dpb_profile_to_json(const struct dpb_profile *profile, const dpb_json *more);
/* DPB_ERR_USAGE or DPB_ERR_CORRUPT, logged with the file. */
dpb_status dpb_profile_read(const char *path, struct dpb_profile *profile);

/* How well a profile knows a batch. */
enum dpb_profile_origin {
    DPB_PROFILE_MEASURED,    /* it was measured */
    DPB_PROFILE_FITTED,      /* a + b batch through those that were, inside their range */
    DPB_PROFILE_EXTRAPOLATED /* outside of it, or in proportion to the only one */
};
enum dpb_profile_origin dpb_profile_origin_of(const struct dpb_profile *profile, int64_t batch);
const char *dpb_profile_origin_text(enum dpb_profile_origin origin);
/* A time at a batch, of an array with an element per batch. */
double dpb_profile_at(const struct dpb_profile *profile, const double *ns, int64_t batch);
/* Least squares of ns over the batches: a + b batch; with one batch a is 0. */
void dpb_profile_fit(const struct dpb_profile *profile, const double *ns, double *a_ns,
                     double *b_ns);

/* The segments of a model with a profile's times at a batch. DPB_ERR_USAGE, logged, for another
 * workload's. Release with dpb_schedule_release(). */
dpb_status dpb_schedule_from_profile(const struct dpb_model *model, const char *workload,
                                     const struct dpb_profile *profile, int64_t samples,
                                     struct dpb_schedule *schedule);

/* Which layer an operator belongs to ("conv1.bwd-weights": the layer "conv1"), -1: none of that
 * name; and in which pass, -1: its name does not tell ("ln_1.add", "sgd"). */
int dpb_profile_layer_of(const struct dpb_profile *profile, const char *operator_name, int *pass);

#ifdef __cplusplus
}
#endif
#endif
