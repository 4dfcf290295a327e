/* dpb_verify.h: does data-parallel training do what one big batch does?
 *
 * N ranks with batch B/N and one rank with batch B see the same samples in every step; the losses
 * and the parameters afterwards must agree: within a bound for a real network (the sums are
 * associated differently), bit by bit with integer-valued gradients. Replicas are compared after
 * every step, and a planted divergence must be found by that comparison.
 *
 * A strategy may make some of that impossible (enum dpb_strategy_flags): what it leaves out is
 * skipped, and said to be. With compressed gradients, or replicas that train by themselves between
 * synchronisations, N ranks are no one big batch; the latter are compared after the steps that
 * synchronise them. Where ranks hold parts of the parameters there are no replicas to plant a
 * divergence in.
 *
 * With batch normalisation this holds when its statistics are synchronised (--sync-bn on); else a
 * rank normalises by the samples of its own batch, and those comparisons are skipped, and said to
 * be. State beside the parameters is compared too, where ranks have it alike (running statistics,
 * replicated tables) or each a part of it (sharded tables, wherever they lie); what is a rank's own
 * is not.
 *
 * Small batches under batch normalisation, and rounding to bf16, amplify roundings from step to
 * step, beyond any fixed bound (cifar-resnet20, 8 samples, learning rate 0.1, fp32: a factor of
 * about 2.5 per step). Their bounds are measured in place: one rank trains DPB_VERIFY_WAYS times
 * again with every initial parameter moved by sixteen roundings, about as many as a value meets in
 * the network, up or down in another way each time, and N ranks may be DPB_VERIFY_FACTOR times as
 * far from one big batch as the farthest of those trainings is. So that the check stays sharp,
 * loss, parameters and state of the first step are compared too, when little is amplified yet. */
#ifndef DPB_VERIFY_H
#define DPB_VERIFY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpb_crew.h"
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
/* As described above; never below the bounds that other trainings have. */
#define DPB_VERIFY_FACTOR 10
#define DPB_VERIFY_WAYS   4

struct dpb_verify_check {
    const char *name; /* static */
    bool passed;
    bool skipped;
    char detail[640]; /* what was seen, against which bound */
};

#define DPB_VERIFY_CHECKS_MAX 8

struct dpb_verify_result {
    struct dpb_verify_check check[DPB_VERIFY_CHECKS_MAX];
    int count;
};

struct dpb_verify_config {
    const struct dpb_registry *registry;
    const dpb_config *config; /* resolved, N ranks */
    dpb_crew *crew;           /* who starts the ranks; NULL: this process. Borrowed */
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
