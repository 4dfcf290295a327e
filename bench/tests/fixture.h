/* fixture.h: a workload on a device, with parameters, gradients and one batch of synthetic images
 * or interactions, or random tokens; and what log lines a call has written. Failures fail the test.
 */
#ifndef BENCH_TESTS_FIXTURE_H
#define BENCH_TESTS_FIXTURE_H

#include "dpb_dataset.h"
#include "dpb_workload.h"
#include "layer_list.h"

struct fixture {
    dpb_device *device;
    dpb_stream *stream;
    dpb_recorder *recorder;
    struct dpb_launcher launcher;
    const struct dpb_workload_ops *ops;
    const struct dpb_model *model;
    dpb_workload *workload;
    float *params, *grads; /* all parameters in registration order, one after the other */
    float *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    int64_t elements;
    /* the batch's memory: [batch_max] samples */
    float *x;
    int32_t *label, *indices, *tokens, *segments, *predict_position, *predict_token;
    int64_t *ids;
    struct dpb_batch batch;
    /* parameters reported by the last backward pass */
    int ready[2 * DPB_LAYER_PARAMS_MAX];
    int ready_count;
};

/* Parameters from seed 1; a full batch of samples 0, 1, ...; gradients filled with 77. */
void fixture_open(struct fixture *fixture, const struct dpb_device_ops *device,
                  const struct dpb_workload_ops *workload, int64_t batch_max);
/* The same with what `config` says, but for the launcher; samples first, first + 1, ..., as many as
 * config->batch_max. */
void fixture_open_with(struct fixture *fixture, const struct dpb_device_ops *device,
                       const struct dpb_workload_ops *workload,
                       const struct dpb_workload_config *config, int64_t first);
void fixture_close(struct fixture *fixture);

/* Forward in training mode, then backward with `grad_scale`; returns what forward said. */
struct dpb_forward_result fixture_step(struct fixture *fixture, float grad_scale);

/* params -= lr * grads */
void fixture_update(struct fixture *fixture, float lr);

/* Collect log lines from now on; `log_has` says whether one contains the text. */
void log_collect(void);
int log_has(const char *text);
void log_stop(void);

#endif
