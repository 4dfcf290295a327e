/* Strategy `local-sgd`: every rank trains by itself, and every --sync-every steps the parameters
 * are averaged over the ranks: local SGD (Stich 2019, arXiv:1805.09767), as PyTorch's
 * PeriodicModelAverager does it behind the hook post_localSGD. The first --local-warmup steps
 * average gradients instead, in one all-reduce after backward, as `none` does (post-local SGD, Lin
 * et al. 2020, arXiv:1808.07217: start_localSGD_iter). Averaging copies all parameters to one flat
 * buffer, the one that held the gradients, all-reduces it and copies back
 * (torch.distributed.algorithms.model_averaging.utils.average_parameters). The optimizer's moments
 * stay each rank's own, as in PyTorch, or are averaged too. A step in H sends what the others save,
 * all of it exposed, after the optimizer; between those steps replicas differ. */
#include "dpb_strategies.h"

#include "dpb_log.h"
#include "after_backward.h"
#include "launch_copy.h"
#include "unit_coll.h"

#include <stdlib.h>

#define PARAMETERS (-1) /* instead of an array of the optimizer's state */

struct local_sgd {
    struct after_backward common;
    int64_t sync_every, warmup;
    int arrays; /* of the optimizer's state that are averaged */
    const struct dpb_model *model;
    int64_t step;
    bool in_sync;
};

static dpb_status local_sgd_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_local_sgd_options *options = config->options;
    struct local_sgd *self;

    if (!options || options->sync_every < 1 || options->warmup < 0) {
        dpb_error("strategy \"local-sgd\": --sync-every must be at least 1 step, --local-warmup at "
                  "least 0");
        return DPB_ERR_USAGE;
    }
    if (options->average_moments && config->optimizer_arrays == 0) {
        dpb_error("strategy \"local-sgd\": --average-moments on cannot take effect: this optimizer "
                  "has no moments with its settings");
        dpb_log_hint("leave it out, or choose another --optimizer or --momentum");
        return DPB_ERR_USAGE;
    }
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"local-sgd\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    after_backward_init(&self->common, &dpb_strategy_local_sgd_ops, config);
    self->sync_every = options->sync_every;
    self->warmup = options->warmup;
    self->arrays = options->average_moments ? config->optimizer_arrays : 0;
    self->in_sync = true;
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static dpb_status local_sgd_plan(dpb_strategy *strategy, const struct dpb_model *model,
                                 const int *ready_order, struct dpb_unit_plan *plan)
{
    struct dpb_unit_plan fused;

    (void)ready_order; /* one unit: the order of its members changes nothing */
    DPB_TRY(dpb_unit_plan_fused(model->params, model->param_count, NULL, &fused));
    DPB_TRY(after_backward_set_plan(strategy, model, &fused, plan));
    ((struct local_sgd *)strategy)->model = model;
    return DPB_OK;
}

static int local_sgd_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct local_sgd *self = (const struct local_sgd *)strategy;
    const struct dpb_unit_plan *plan = self->common.plan;
    int count = 0;

    if (self->common.world_size == 1)
        return 0;
    for (int array = PARAMETERS; array < self->arrays; array++) {
        for (int u = 0; u < plan->unit_count; u++, count++) {
            if (!messages)
                continue;
            messages[count] =
                    unit_coll_message(plan, u, DPB_COLL_ALL_REDUCE, DPB_SYNC_AFTER_OPTIMIZER);
            messages[count].every = self->sync_every;
            messages[count].name = array == PARAMETERS ? "average-parameters" : "average-moments";
        }
    }
    return count;
}

static void local_sgd_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct local_sgd *self = (const struct local_sgd *)strategy;

    dpb_json_set_int(plan, "sync_every", self->sync_every);
    dpb_json_set_int(plan, "local_warmup", self->warmup);
}

/* Do gradients travel in this step? */
static bool is_warming_up(const struct local_sgd *self)
{
    return self->step <= self->warmup;
}

static dpb_status local_sgd_step_begin(dpb_strategy *strategy, int64_t step)
{
    ((struct local_sgd *)strategy)->step = step;
    return after_backward_step_begin(strategy, step);
}

static dpb_status local_sgd_backward_end(dpb_strategy *strategy)
{
    struct local_sgd *self = (struct local_sgd *)strategy;

    return is_warming_up(self) ? after_backward_backward_end(strategy)
                               : ready_set_check_complete(&self->common.ready);
}

static dpb_status local_sgd_before_optimizer(dpb_strategy *strategy)
{
    return is_warming_up((struct local_sgd *)strategy) ? after_backward_before_optimizer(strategy)
                                                       : DPB_OK;
}

/* Where the values of a parameter are that are averaged, and how many. */
static int64_t values_of(const struct local_sgd *self, int param, int array, float **values)
{
    const struct dpb_sync_services *services = &self->common.services;

    if (array != PARAMETERS)
        return services->optimizer_state(services->ctx, param, array, values);
    *values = services->param(services->ctx, param);
    return self->model->params[param].numel;
}

/* Gradients are used up: their places are the flat buffer. */
static dpb_status copy_all(const struct local_sgd *self, int array, bool back)
{
    const struct dpb_sync_services *services = &self->common.services;

    for (int p = 0; p < self->model->param_count; p++) {
        float *values = NULL, *place = services->grad(services->ctx, p);
        const int64_t bytes = values_of(self, p, array, &values) * (int64_t)sizeof(float);

        if (bytes > 0)
            DPB_TRY(launch_copy(services->launcher, back ? "unflatten" : "flatten",
                                back ? values : place, back ? place : values, bytes));
    }
    return DPB_OK;
}

static dpb_status average(struct local_sgd *self, int array)
{
    const struct dpb_sync_services *services = &self->common.services;
    const struct dpb_unit_plan *plan = self->common.plan;

    DPB_TRY(copy_all(self, array, false));
    for (int u = 0; u < plan->unit_count; u++) {
        const struct dpb_sync_coll coll = {
                .kind = DPB_COLL_ALL_REDUCE,
                .dtype = plan->units[u].dtype,
                .buffer = services->unit_data(services->ctx, u),
                .count = plan->units[u].elements,
                .scale = 1.0f / (float)self->common.world_size, /* also of summed gradients */
                .unit = u,
                .name = array == PARAMETERS ? "average-parameters" : "average-moments",
        };

        DPB_TRY(services->start(services->ctx, &coll, &self->common.handle[u]));
    }
    for (int u = 0; u < plan->unit_count; u++)
        DPB_TRY(services->wait(services->ctx, self->common.handle[u]));
    return copy_all(self, array, true);
}

static dpb_status local_sgd_after_optimizer(dpb_strategy *strategy)
{
    struct local_sgd *self = (struct local_sgd *)strategy;
    const bool is_due = (self->step - self->warmup) % self->sync_every == 0;

    self->in_sync = self->common.world_size == 1 || is_warming_up(self) || is_due;
    if (self->common.world_size == 1 || is_warming_up(self) || !is_due)
        return DPB_OK;
    for (int array = PARAMETERS; array < self->arrays; array++)
        DPB_TRY(average(self, array));
    return DPB_OK;
}

static bool local_sgd_in_sync(dpb_strategy *strategy)
{
    return ((struct local_sgd *)strategy)->in_sync;
}

static const struct dpb_option local_sgd_rows[] = {
        {
                .name = "sync-every",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_local_sgd_options, sync_every),
                .default_text = "8",
                .min = 1,
                .max = 1e9,
                .category = "Communication",
                .unit = "steps",
                .help = "steps that every rank takes by itself before parameters are averaged "
                        "(PeriodicModelAverager's period)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "local-warmup",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_local_sgd_options, warmup),
                .default_text = "0",
                .min = 0,
                .max = 1e9,
                .category = "Communication",
                .unit = "steps",
                .help = "first steps, which average gradients as strategy none does "
                        "(start_localSGD_iter)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "average-moments",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_local_sgd_options, average_moments),
                .default_text = "off",
                .category = "Communication",
                .help = "average the optimizer's moments with the parameters; off: they stay each "
                        "rank's own",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table local_sgd_table = {
        .kind = "strategy",
        .owner = "local-sgd",
        .rows = local_sgd_rows,
        .row_count = sizeof(local_sgd_rows) / sizeof(local_sgd_rows[0]),
        .config_bytes = sizeof(struct dpb_local_sgd_options),
};

const struct dpb_strategy_ops dpb_strategy_local_sgd_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "local-sgd",
        .summary = "ranks train by themselves; parameters averaged every so many steps",
        .flags = DPB_STRATEGY_REPLICAS_DIFFER,
        .options = &local_sgd_table,
        .open = local_sgd_open,
        .close = after_backward_close,
        .plan = local_sgd_plan,
        .messages = local_sgd_messages,
        .describe = local_sgd_describe,
        .step_begin = local_sgd_step_begin,
        .grad_ready = after_backward_grad_ready,
        .backward_end = local_sgd_backward_end,
        .before_optimizer = local_sgd_before_optimizer,
        .after_optimizer = local_sgd_after_optimizer,
        .in_sync = local_sgd_in_sync,
};
