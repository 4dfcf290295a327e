/* Strategy `mirrored`: TensorFlow's MirroredStrategy (cross_device_ops.py): after the backward pass
 * all gradients of a replica are concatenated into one tensor and cut in --num-packs packs
 * (_ConcatAndSplitPacker; 1 by default), whatever tensors the cuts go through; the packs are
 * reduced, and the result is copied back into the gradients. So nothing overlaps with backward, and
 * the gradients make two more passes through memory. --cross-device-ops says how a pack is reduced:
 * `nccl` (NcclAllReduce) all-reduces it; `hierarchical-copy` (HierarchicalCopyAllReduce, made for
 * the links of a DGX-1) sums it on a main device, another one for each pack, and copies the sum
 * back; `one-device` (ReductionToOneDevice) has no packs: every gradient goes to device 0 by
 * itself, as soon as it is there, and back. `auto` is what MirroredStrategy chooses: one-device
 * where devices are no GPUs, else nccl. --num-packs 0 leaves packing out, but for runs of small
 * gradients, with --agg-small-grads-max-bytes (tf_cnn_benchmarks, allreduce.py). Gradients are
 * summed, the loss having been divided by the global batch, as Keras has it. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "mirrored_packs.h"

struct mirrored {
    struct mirrored_packs packs;
    enum dpb_cross_device_ops ops;
    int64_t num_packs; /* 0: no packing */
    int64_t small_bytes, small_extent;
};

static const char *ops_text(enum dpb_cross_device_ops ops)
{
    static const char *const text_of[] = {
            [DPB_CROSS_DEVICE_AUTO] = "auto",
            [DPB_CROSS_DEVICE_NCCL] = "nccl",
            [DPB_CROSS_DEVICE_HIERARCHICAL_COPY] = "hierarchical-copy",
            [DPB_CROSS_DEVICE_ONE_DEVICE] = "one-device",
    };

    return text_of[ops];
}

/* select_cross_device_ops() */
static enum dpb_cross_device_ops chosen_ops(const struct dpb_strategy_config *config)
{
    const struct dpb_mirrored_options *options = config->options;

    if (options->cross_device_ops != DPB_CROSS_DEVICE_AUTO)
        return (enum dpb_cross_device_ops)options->cross_device_ops;
    return config->is_gpu ? DPB_CROSS_DEVICE_NCCL : DPB_CROSS_DEVICE_ONE_DEVICE;
}

static int64_t num_packs(const struct dpb_strategy_config *config)
{
    const struct dpb_mirrored_options *options = config->options;

    return chosen_ops(config) == DPB_CROSS_DEVICE_ONE_DEVICE ? 0 : options->num_packs;
}

static dpb_status check_options(const struct dpb_strategy_config *config)
{
    const struct dpb_mirrored_options *options = config->options;

    if (!options || options->num_packs < 0 || options->num_packs > DPB_NUM_PACKS_MAX) {
        dpb_error("strategy \"mirrored\": --num-packs must be 0 to %d", DPB_NUM_PACKS_MAX);
        return DPB_ERR_USAGE;
    }
    if (chosen_ops(config) == DPB_CROSS_DEVICE_ONE_DEVICE && options->num_packs > 1) {
        dpb_error("strategy \"mirrored\": --num-packs %lld, but --cross-device-ops %s%s packs no "
                  "gradients",
                  (long long)options->num_packs,
                  ops_text((enum dpb_cross_device_ops)options->cross_device_ops),
                  options->cross_device_ops == DPB_CROSS_DEVICE_AUTO
                          ? ", which is one-device without a GPU,"
                          : "");
        dpb_log_hint("give --cross-device-ops nccl or hierarchical-copy, or leave --num-packs out");
        return DPB_ERR_USAGE;
    }
    if (options->small_bytes < 0 || options->small_extent < 0) {
        dpb_error("strategy \"mirrored\": --agg-small-grads-max-bytes and -max-group must be 0 or "
                  "more");
        return DPB_ERR_USAGE;
    }
    if (options->small_bytes > 0 && num_packs(config) > 0) {
        dpb_error("strategy \"mirrored\": --agg-small-grads-max-bytes with --num-packs %lld, which "
                  "packs all gradients",
                  (long long)options->num_packs);
        dpb_log_hint("give --num-packs 0");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status mirrored_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_mirrored_options *options = config->options;
    struct mirrored *self;

    DPB_TRY(check_options(config));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"mirrored\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->ops = chosen_ops(config);
    self->num_packs = num_packs(config);
    self->small_bytes = options->small_bytes;
    self->small_extent = options->small_extent;
    self->packs.copies_from = self->num_packs > 0 ? 1 : 2;
    self->packs.overlaps = self->num_packs == 0;
    self->packs.has_roots = self->ops != DPB_CROSS_DEVICE_NCCL;
    self->packs.roots = self->ops == DPB_CROSS_DEVICE_HIERARCHICAL_COPY ? config->world_size : 1;
    mirrored_packs_open(&self->packs, &dpb_strategy_mirrored_ops, config);
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

/* ---- runs of small gradients (pack_small_tensors) ---- */

struct small_runs {
    int *number, *run_of_number; /* of the small gradients */
    int *run;                    /* per parameter; -1: none */
    int *missing;                /* per run: gradients that are not ready */
    int *first, *label;          /* of the units */
};

static void find_runs(const struct mirrored *self, const struct dpb_model *model,
                      struct small_runs *runs)
{
    int count = 0;

    for (int p = 0; p < model->param_count; p++) {
        const struct dpb_param_info *param = &model->params[p];

        runs->run[p] = -1;
        if (param->dtype == DPB_F32 &&
            param->numel * (int64_t)dpb_dtype_bytes(param->dtype) <= self->small_bytes)
            runs->number[count++] = p;
    }
    mirrored_extract_runs(runs->number, count, self->small_extent, runs->run_of_number);
    for (int i = 0; i < count; i++) {
        runs->run[runs->number[i]] = runs->run_of_number[i];
        if (runs->run_of_number[i] >= 0)
            runs->missing[runs->run_of_number[i]]++;
    }
}

/* Units in the order in which they become complete. */
static int list_units(const struct dpb_model *model, struct small_runs *runs)
{
    int units = 0, labels = 0;

    for (int i = 0; i < model->param_count; i++) {
        const int last = model->ready_order ? model->ready_order[i] : model->param_count - 1 - i;
        const int run = runs->run[last];

        if (run >= 0 && --runs->missing[run] > 0)
            continue;
        runs->first[units++] = labels;
        for (int p = 0; p < model->param_count; p++)
            if (p == last || (run >= 0 && runs->run[p] == run))
                runs->label[labels++] = p;
    }
    runs->first[units] = labels;
    return units;
}

static dpb_status plan_values(const struct mirrored *self, const struct dpb_model *model,
                              struct dpb_unit_plan *made)
{
    const size_t params = (size_t)model->param_count + 1;
    int *memory = calloc(6 * params, sizeof(*memory));
    struct small_runs runs = {
            .number = memory,
            .run_of_number = memory + params,
            .run = memory + 2 * params,
            .missing = memory + 3 * params,
            .first = memory + 4 * params,
            .label = memory + 5 * params,
    };
    struct dpb_bucket_assignment units = {.first = runs.first, .label = runs.label};
    dpb_status st;

    if (!memory) {
        dpb_error("strategy \"mirrored\": out of memory for %d parameters", model->param_count);
        return DPB_ERR_NO_MEMORY;
    }
    find_runs(self, model, &runs);
    units.bucket_count = list_units(model, &runs);
    st = dpb_unit_plan_from_buckets(model->params, model->param_count, &units, made);
    free(memory);
    return st;
}

static dpb_status mirrored_plan(dpb_strategy *strategy, const struct dpb_model *model,
                                const int *ready_order, struct dpb_unit_plan *plan)
{
    struct mirrored *self = (struct mirrored *)strategy;
    const bool packs = self->num_packs > 0;
    struct dpb_unit_plan made;

    (void)ready_order; /* a graph is made once, before any step */
    if (packs)
        DPB_TRY(dpb_unit_plan_fused(model->params, model->param_count, NULL, &made));
    else
        DPB_TRY(plan_values(self, model, &made));
    return mirrored_packs_set_plan(&self->packs, model, packs ? self->num_packs : 1, &made, plan);
}

/* Of each pack. */
static dpb_json *main_devices(const struct mirrored *self)
{
    dpb_json *packs = dpb_json_array();

    for (int i = 0; i < self->packs.pack_count; i++) {
        dpb_json *pair = dpb_json_array();
        int main_device[2];

        mirrored_main_devices(self->packs.pack[i].root, self->packs.world_size, main_device);
        dpb_json_append(pair, dpb_json_int(main_device[0]));
        dpb_json_append(pair, dpb_json_int(main_device[1]));
        dpb_json_append(packs, pair);
    }
    return packs;
}

static void mirrored_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct mirrored *self = (const struct mirrored *)strategy;
    dpb_json *packs = dpb_json_array();

    for (int i = 0; i < self->packs.pack_count; i++)
        dpb_json_append(packs, dpb_json_int(self->packs.pack[i].count));
    dpb_json_set_string(plan, "cross_device_ops", ops_text(self->ops));
    dpb_json_set_int(plan, "num_packs", self->num_packs);
    dpb_json_set(plan, "pack_elements", packs);
    if (self->ops == DPB_CROSS_DEVICE_HIERARCHICAL_COPY)
        dpb_json_set(plan, "main_devices", main_devices(self));
}

static const struct dpb_choice cross_device_choices[] = {
        {"auto", DPB_CROSS_DEVICE_AUTO, "one-device without GPUs, else nccl"},
        {"nccl", DPB_CROSS_DEVICE_NCCL, "all-reduce packs"},
        {"hierarchical-copy", DPB_CROSS_DEVICE_HIERARCHICAL_COPY,
         "sum each pack on another main device, copy back"},
        {"one-device", DPB_CROSS_DEVICE_ONE_DEVICE, "sum each gradient on device 0, copy back"},
        {NULL, 0, NULL},
};

static const struct dpb_option mirrored_rows[] = {
        {
                .name = "cross-device-ops",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_mirrored_options, cross_device_ops),
                .default_text = "auto",
                .choices = cross_device_choices,
                .category = "Communication",
                .help = "how MirroredStrategy reduces gradients",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "num-packs",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_mirrored_options, num_packs),
                .default_text = "1",
                .min = 0,
                .max = DPB_NUM_PACKS_MAX,
                .category = "Communication",
                .help = "packs that all gradients are concatenated and cut into; 0: each gradient "
                        "by itself, as soon as it is there",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "agg-small-grads-max-bytes",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_mirrored_options, small_bytes),
                .default_text = "0",
                .min = 0,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "with --num-packs 0: neighbouring gradients of at most so many bytes each "
                        "travel together",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "agg-small-grads-max-group",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_mirrored_options, small_extent),
                .default_text = "10",
                .min = 0,
                .max = 1e6,
                .category = "Communication",
                .help = "such a group goes on while its last variable is at most so many behind "
                        "its first",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table mirrored_table = {
        .kind = "strategy",
        .owner = "mirrored",
        .rows = mirrored_rows,
        .row_count = sizeof(mirrored_rows) / sizeof(mirrored_rows[0]),
        .config_bytes = sizeof(struct dpb_mirrored_options),
};

const struct dpb_strategy_ops dpb_strategy_mirrored_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "mirrored",
        .summary = "gradients in packs, or one by one on a CPU, as TensorFlow's MirroredStrategy",
        .options = &mirrored_table,
        .open = mirrored_open,
        .close = mirrored_packs_close,
        .plan = mirrored_plan,
        .place = mirrored_packs_place,
        .messages = mirrored_packs_messages,
        .step_begin = mirrored_packs_step_begin,
        .grad_ready = mirrored_packs_grad_ready,
        .backward_end = mirrored_packs_backward_end,
        .before_optimizer = mirrored_packs_before_optimizer,
        .describe = mirrored_describe,
        .memory = mirrored_packs_memory,
};
