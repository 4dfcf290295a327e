/* dpb_verify.h: does data-parallel training do what one big batch does?
 *
 * N ranks with batch B/N and one rank with batch B see the same samples in every step; the losses
 * and the parameters afterwards must agree: within a bound for a real network (the sums are
 * associated differently), bit by bit with integer-valued gradients. Replicas are compared after
 * every step, and a planted divergence must be found by that comparison.
 *
 * With batch normalisation a rank normalises by the samples of its own batch, and N ranks are not
 * one big batch: those two comparisons are skipped, and said to be. */
#ifndef DPB_VERIFY_H
#define DPB_VERIFY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds for networks without batch norm: PyTorch's own for its DDP tests (rtol 1.3e-6, atol 5e-5
 * on parameters, test_c10d_common.py), and 1e-4 relative on losses. */
#define DPB_VERIFY_PARAM_ATOL 5e-5
#define DPB_VERIFY_PARAM_RTOL 1.3e-6
#define DPB_VERIFY_LOSS_RTOL  1e-4
/* With an optimizer that divides a gradient by its own size, a gradient that is rounding alone
 * moves a parameter by the learning rate, to one side or the other: so many elements may lie beyond
 * the bounds (measured: Adagrad on mnist-mlp, 8 steps, 0.1 %). */
#define DPB_VERIFY_BEYOND_RATIO 0.01

struct dpb_verify_check {
    const char *name; /* static */
    bool passed;
    bool skipped;
    char detail[512]; /* what was seen, against which bound */
};

#define DPB_VERIFY_CHECKS_MAX 8

struct dpb_verify_result {
    struct dpb_verify_check check[DPB_VERIFY_CHECKS_MAX];
    int count;
};

struct dpb_verify_config {
    const struct dpb_registry *registry;
    const dpb_config *config; /* resolved, N ranks */
    const volatile sig_atomic_t *interrupted;
    void (*progress)(void *ctx, const char *what); /* may be NULL */
    void *progress_ctx;
};

/* Run all checks: DPB_OK when all passed, DPB_ERR_CHECK when some did not; other statuses when the
 * ranks could not run at all (logged). The result holds the checks made so far in every case. */
dpb_status dpb_verify_run(const struct dpb_verify_config *config, struct dpb_verify_result *result);

#ifdef __cplusplus
}
#endif
#endif
