/* optimizer.h: what an optimizer keeps for a parameter, and how it updates one. Private to this
 * folder. */
#ifndef DPB_STEP_OPTIMIZER_H
#define DPB_STEP_OPTIMIZER_H

#include "dpb_optimizer.h"
#include "dpb_workload.h"

#define OPTIMIZER_ARRAYS 2 /* of state, at most */

/* The optimizer that acts on `param`: row-wise Adagrad acts on embedding tables only. */
enum dpb_optimizer_kind optimizer_of(const struct dpb_optimizer_config *config,
                                     const struct dpb_param_info *param);

/* Elements of each array of state of `param`; 0 for an array that there is not. */
void optimizer_state_elements(const struct dpb_optimizer_config *config,
                              const struct dpb_param_info *param,
                              int64_t elements[OPTIMIZER_ARRAYS]);

/* Arrays that it keeps of a parameter, one after the other from the first. */
int optimizer_arrays(const struct dpb_optimizer_config *config);

/* Does it update an element from that element's gradient and state alone? LAMB, LARS and row-wise
 * Adagrad need the whole tensor or row. */
bool optimizer_is_elementwise(const struct dpb_optimizer_config *config);

/* One parameter and its state, where they are. */
struct optimizer_place {
    const struct dpb_param_info *param;
    float *value;
    const float *grad;
    float *state[OPTIMIZER_ARRAYS]; /* NULL for an array that there is not */
};

/* Arguments of any optimizer's operators. */
union optimizer_args {
    struct dpb_sgd_args sgd;
    struct dpb_adam_args adam;
    struct dpb_lars_args lars;
    struct dpb_adagrad_args adagrad;
};

/* Most operators that one optimizer has: row-wise Adagrad has Adagrad's for what is no table. */
#define OPTIMIZER_OPS 2

/* The operator that updates one parameter in update number `step`, from 1, and its arguments. */
enum dpb_op optimizer_args_of(const struct dpb_optimizer_config *config,
                              const struct optimizer_place *place, int64_t step,
                              union optimizer_args *args);
/* Launch that, recorded as `name`. */
dpb_status optimizer_launch(const struct dpb_optimizer_config *config,
                            const struct optimizer_place *place, int64_t step,
                            const struct dpb_launcher *launcher, const char *name);

#endif
