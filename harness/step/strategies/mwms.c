/* Strategy `mwms`: TensorFlow's MultiWorkerMirroredStrategy (CollectiveAllReduce,
 * cross_device_utils.group_by_size): the list of gradients is reversed, so that it begins with
 * those that are ready first, and filled into packs, each closed when it is larger than
 * --bytes-per-pack (CommunicationOptions.bytes_per_pack; 0, the default, is one pack of
 * everything). A pack whose gradients are all there is concatenated and all-reduced, behind all
 * packs before it: a control dependency lets each start when the one before it has ended. With more
 * than one pack communication runs during backward. When all packs are there they are split again,
 * and the optimizer starts. Gradients are summed, the loss having been divided by the global batch,
 * as Keras has it. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "mirrored_packs.h"

struct mwms {
    struct mirrored_packs packs;
    int64_t bytes_per_pack;
};

static dpb_status mwms_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_mwms_options *options = config->options;
    struct mwms *self;

    if (!options || options->bytes_per_pack < 0) {
        dpb_error("strategy \"mwms\": --bytes-per-pack must be 0 or more");
        return DPB_ERR_USAGE;
    }
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"mwms\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->bytes_per_pack = options->bytes_per_pack;
    self->packs.copies_from = 1;
    self->packs.overlaps = options->bytes_per_pack > 0;
    self->packs.roots = 1;
    mirrored_packs_open(&self->packs, &dpb_strategy_mwms_ops, config);
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

/* Room for three arrays of a plan's length, and their use. */
struct grouping {
    int64_t *bytes; /* of the reversed list */
    int *label, *first;
};

static dpb_status make_plan(const struct mwms *self, const struct dpb_model *model,
                            const struct grouping *grouping, struct dpb_unit_plan *made)
{
    struct dpb_bucket_assignment packs = {.first = grouping->first, .label = grouping->label};

    for (int i = 0; i < model->param_count; i++) {
        const int p = model->param_count - 1 - i;

        grouping->label[i] = p;
        grouping->bytes[i] =
                model->params[p].numel * (int64_t)dpb_dtype_bytes(model->params[p].dtype);
    }
    packs.bucket_count = mwms_group_by_size(grouping->bytes, model->param_count,
                                            self->bytes_per_pack, grouping->first);
    return dpb_unit_plan_from_buckets(model->params, model->param_count, &packs, made);
}

static dpb_status mwms_plan(dpb_strategy *strategy, const struct dpb_model *model,
                            const int *ready_order, struct dpb_unit_plan *plan)
{
    struct mwms *self = (struct mwms *)strategy;
    const size_t params = (size_t)model->param_count + 1;
    const struct grouping grouping = {
            .bytes = calloc(params, sizeof(*grouping.bytes)),
            .label = calloc(params, sizeof(*grouping.label)),
            .first = calloc(params, sizeof(*grouping.first)),
    };
    struct dpb_unit_plan made;
    dpb_status st = DPB_ERR_NO_MEMORY;

    (void)ready_order; /* a graph is made once, before any step */
    if (grouping.bytes && grouping.label && grouping.first)
        st = make_plan(self, model, &grouping, &made);
    else
        dpb_error("strategy \"mwms\": out of memory for %d parameters", model->param_count);
    free(grouping.first);
    free(grouping.label);
    free(grouping.bytes);
    DPB_TRY(st);
    return mirrored_packs_set_plan(&self->packs, model, 1, &made, plan);
}

static void mwms_describe(dpb_strategy *strategy, dpb_json *plan)
{
    dpb_json_set_int(plan, "bytes_per_pack", ((const struct mwms *)strategy)->bytes_per_pack);
}

static const struct dpb_option mwms_rows[] = {
        {
                .name = "bytes-per-pack",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_mwms_options, bytes_per_pack),
                .default_text = "0",
                .min = 0,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "a pack of gradients is closed when it is larger; 0: one pack",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table mwms_table = {
        .kind = "strategy",
        .owner = "mwms",
        .rows = mwms_rows,
        .row_count = sizeof(mwms_rows) / sizeof(mwms_rows[0]),
        .config_bytes = sizeof(struct dpb_mwms_options),
};

const struct dpb_strategy_ops dpb_strategy_mwms_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "mwms",
        .summary = "packs in reverse order, as TensorFlow's MultiWorkerMirroredStrategy",
        .options = &mwms_table,
        .open = mwms_open,
        .close = mirrored_packs_close,
        .plan = mwms_plan,
        .place = mirrored_packs_place,
        .messages = mirrored_packs_messages,
        .step_begin = mirrored_packs_step_begin,
        .grad_ready = mirrored_packs_grad_ready,
        .backward_end = mirrored_packs_backward_end,
        .before_optimizer = mirrored_packs_before_optimizer,
        .describe = mwms_describe,
        .memory = mirrored_packs_memory,
};
