/* handover.h: what passes between the host and the device in a step: numbers that the host makes of
 * a batch, and what a forward pass says. On an accelerator both are copied in the stream's order,
 * through memory of the host that stays as it is until the copy has run: one place for every
 * forward pass of a step (a slot). Elsewhere nothing is copied. */
#ifndef BENCH_HANDOVER_H
#define BENCH_HANDOVER_H

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- down ---- */

struct dpb_handover {
    const struct dpb_launcher *launcher;
    char *memory; /* [slots] pieces; NULL where nothing is copied */
    size_t slot_bytes;
};

/* Room for `bytes` in each of `slots` (0: one). Close it, also when it is all zeros. */
dpb_status dpb_handover_open(struct dpb_handover *handover, const struct dpb_launcher *launcher,
                             int64_t slots, size_t bytes);
/* What that takes of an accelerator's host_alloc(). */
int64_t dpb_handover_host_bytes(int64_t slots, size_t bytes);
void dpb_handover_close(struct dpb_handover *handover);
/* Where the host writes what is to be at `device`. */
void *dpb_handover_begin(const struct dpb_handover *handover, int64_t slot, void *device);
/* It has written the first `bytes`. */
dpb_status dpb_handover_end(const struct dpb_handover *handover, int64_t slot, void *device,
                            size_t bytes);

/* Outside of steps: what the host has at `from` is there before this returns. */
dpb_status dpb_hand_down(const struct dpb_launcher *launcher, void *device, const void *from,
                         size_t bytes);

/* ---- up ---- */

/* What a forward pass leaves, by sample. */
struct dpb_said {
    int64_t samples;
    const float *loss; /* [samples, losses], of which the mean counts */
    int64_t losses;
    const float *more_loss; /* [samples], added to it; NULL: none */
    /* [samples, classes], one sample `value_stride` after the other; 1 class: click or not */
    const float *value;
    int64_t classes, value_stride;
    const int32_t *label; /* one for each sample, `label_stride` apart */
    int64_t label_stride;
};

struct dpb_results;

/* For `slots` (0: one) forward passes of at most what `most` says; its pointers count only as NULL
 * or not. */
dpb_status dpb_results_open(const struct dpb_launcher *launcher, int64_t slots,
                            const struct dpb_said *most, struct dpb_results **results);
/* What that takes of an accelerator's host_alloc(). */
int64_t dpb_results_host_bytes(int64_t slots, const struct dpb_said *most);
void dpb_results_close(struct dpb_results *results);
/* The pass of this slot leaves this, in the device's memory, which later work may overwrite. */
dpb_status dpb_results_keep(struct dpb_results *results, int64_t slot, const struct dpb_said *said);
/* dpb_workload_ops.read_result */
dpb_status dpb_results_read(const struct dpb_results *results, int64_t slot,
                            struct dpb_forward_result *result);

#ifdef __cplusplus
}
#endif
#endif
