/* Strategy `ddp`: PyTorch's DistributedDataParallel with its default flags, as of the 2.x releases
 * (reducer.cpp). Gradients are packed in buckets of --bucket bytes (bucket_cap_mb, 25 MiB); a
 * bucket is all-reduced as soon as its last gradient is ready and every earlier bucket has been
 * launched, so communication runs behind the rest of backward; a complete bucket behind an
 * incomplete one waits (head-of-line blocking, as the reducer's next_bucket). In the first step
 * there is one bucket per type, so nothing overlaps; after it the buckets are rebuilt, once, in the
 * order in which gradients really became ready, the first of them smaller (1 MiB) so that
 * communication starts early. The optimizer starts when all buckets have been reduced. With
 * overlap off all buckets are launched after backward: the cost of the same messages, exposed. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "ready_set.h"
#include "unit_coll.h"

#define FIRST_BUCKET_BYTES (INT64_C(1) << 20) /* kDefaultFirstBucketBytes */

struct ddp {
    struct dpb_strategy_base base;
    int world_size;
    struct dpb_sync_services services;
    int64_t bucket_bytes, first_bucket_bytes;
    bool overlap, rebuilt;

    const struct dpb_unit_plan *plan; /* the engine's */
    struct ready_set ready;
    int *pending;    /* per unit: gradients that are not ready */
    int *handle;     /* per unit: its collective */
    int next_bucket; /* the first that has not been launched */
};

static dpb_status ddp_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_ddp_options *options = config->options;
    struct ddp *self;

    if (!options || options->bucket_bytes < 1 ||
        (options->first_bucket_bytes < 1 && options->first_bucket_bytes != DPB_AUTO)) {
        dpb_error("strategy \"ddp\": bucket sizes must be at least 1 byte");
        return DPB_ERR_USAGE;
    }
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"ddp\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = &dpb_strategy_ddp_ops;
    self->world_size = config->world_size;
    self->services = config->services;
    self->bucket_bytes = options->bucket_bytes;
    self->first_bucket_bytes = options->first_bucket_bytes;
    if (self->first_bucket_bytes == DPB_AUTO)
        self->first_bucket_bytes = config->bucket_given ? self->bucket_bytes : FIRST_BUCKET_BYTES;
    self->overlap = options->overlap;
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static void ddp_close(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    if (!self)
        return;
    ready_set_release(&self->ready);
    free(self->handle);
    free(self->pending);
    free(self);
}

static void reset(struct ddp *self)
{
    ready_set_clear(&self->ready);
    for (int u = 0; u < self->plan->unit_count; u++)
        self->pending[u] = self->plan->units[u].member_count;
    self->next_bucket = 0;
}

static dpb_status ddp_plan(dpb_strategy *strategy, const struct dpb_model *model,
                           const int *ready_order, struct dpb_unit_plan *plan)
{
    struct ddp *self = (struct ddp *)strategy;
    const int64_t limits_bytes[] = {self->first_bucket_bytes, self->bucket_bytes};
    struct dpb_unit_plan made;
    int *pending;

    if (ready_order)
        DPB_TRY(dpb_unit_plan_by_size(model->params, model->param_count, ready_order, limits_bytes,
                                      2, &made));
    else
        DPB_TRY(dpb_unit_plan_fused(model->params, model->param_count, NULL, &made));

    int *handle = calloc((size_t)made.unit_count + 1, sizeof(*handle));
    pending = calloc((size_t)made.unit_count + 1, sizeof(*pending));
    const dpb_status st =
            pending && handle ? ready_set_init(&self->ready, model) : DPB_ERR_NO_MEMORY;
    if (st < 0) {
        dpb_error("strategy \"ddp\": no room for a plan of %d buckets", made.unit_count);
        free(pending);
        free(handle);
        dpb_unit_plan_release(&made);
        return st;
    }

    free(self->pending);
    free(self->handle);
    self->pending = pending;
    self->handle = handle;
    self->rebuilt = ready_order != NULL;
    *plan = made;
    self->plan = plan;
    reset(self);
    return DPB_OK;
}

static int ddp_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct ddp *self = (const struct ddp *)strategy;

    if (self->world_size == 1)
        return 0;
    for (int u = 0; messages && u < self->plan->unit_count; u++)
        messages[u] =
                unit_coll_message(self->plan, u, DPB_COLL_ALL_REDUCE,
                                  self->overlap ? DPB_SYNC_GRADIENT : DPB_SYNC_AFTER_BACKWARD);
    return self->plan->unit_count;
}

static bool ddp_replan_after(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    return !((struct ddp *)strategy)->rebuilt;
}

static void ddp_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct ddp *self = (const struct ddp *)strategy;

    dpb_json_set_int(plan, "first_bucket_bytes", self->first_bucket_bytes);
    dpb_json_set_int(plan, "bucket_bytes", self->bucket_bytes);
}

static dpb_status ddp_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    reset((struct ddp *)strategy);
    return DPB_OK;
}

/* Launch the buckets that are complete, in order, up to the first that is not. */
static dpb_status launch_complete(struct ddp *self)
{
    if (self->world_size == 1)
        return DPB_OK;
    while (self->next_bucket < self->plan->unit_count && self->pending[self->next_bucket] == 0) {
        DPB_TRY(unit_coll_start(&self->services, self->plan, self->next_bucket, DPB_COLL_ALL_REDUCE,
                                &self->handle[self->next_bucket]));
        self->next_bucket++;
    }
    return DPB_OK;
}

static dpb_status ddp_grad_ready(dpb_strategy *strategy, int param)
{
    struct ddp *self = (struct ddp *)strategy;

    DPB_TRY(ready_set_add(&self->ready, param));
    self->pending[self->plan->unit_of[param]]--;
    return self->overlap ? launch_complete(self) : DPB_OK;
}

static dpb_status ddp_backward_end(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    DPB_TRY(ready_set_check_complete(&self->ready));
    return launch_complete(self);
}

static dpb_status ddp_before_optimizer(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    /* The optimizer reads every gradient: wait for what was launched, which is everything. */
    for (int u = 0; u < self->next_bucket; u++)
        DPB_TRY(self->services.wait(self->services.ctx, self->handle[u]));
    return DPB_OK;
}

static const struct dpb_option ddp_rows[] = {
        {
                .name = "bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_ddp_options, bucket_bytes),
                .default_text = "25MiB",
                .min = 1,
                .max = 1e18,
                .category = "Communication",
                .help = "bytes at which a gradient bucket is closed (DDP's bucket_cap_mb)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "first-bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_ddp_options, first_bucket_bytes),
                .default_text = "auto",
                .min = 1,
                .max = 1e18,
                .category = "Communication",
                .help = "bytes at which the first bucket is closed; auto: 1MiB, or as --bucket "
                        "when that is given",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "overlap",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, overlap),
                .default_text = "on",
                .category = "Communication",
                .help = "reduce buckets during backward; off: all of them after it",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table ddp_table = {
        .kind = "strategy",
        .owner = "ddp",
        .rows = ddp_rows,
        .row_count = sizeof(ddp_rows) / sizeof(ddp_rows[0]),
        .config_bytes = sizeof(struct dpb_ddp_options),
};

const struct dpb_strategy_ops dpb_strategy_ddp_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "ddp",
        .summary = "buckets reduced during backward, as PyTorch DistributedDataParallel",
        .options = &ddp_table,
        .open = ddp_open,
        .close = ddp_close,
        .plan = ddp_plan,
        .replan_after = ddp_replan_after,
        .messages = ddp_messages,
        .describe = ddp_describe,
        .step_begin = ddp_step_begin,
        .grad_ready = ddp_grad_ready,
        .backward_end = ddp_backward_end,
        .before_optimizer = ddp_before_optimizer,
};
