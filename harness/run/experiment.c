#include "dpb_experiment.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_dataset.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_units.h"

#define AT(member)     offsetof(struct dpb_experiment, member)
#define ALGORITHM_TEXT 256

static const struct dpb_choice evaluate_choices[] = {
        {"auto", DPB_EVALUATE_AUTO, "on when --epochs is given"},
        {"on", DPB_EVALUATE_ON, "measure test accuracy after training"},
        {"off", DPB_EVALUATE_OFF, "do not"},
        {NULL, 0, NULL},
};

/* clang-format off */
static const struct dpb_choice optimizer_choices[] = {
        {"auto", DPB_OPTIMIZER_AUTO, "the workload's"},
#define CHOICE(name, text, help) {text, name, help},
        DPB_OPTIMIZER_MAP(CHOICE)
#undef CHOICE
        {NULL, 0, NULL},
};
/* clang-format on */

static const struct dpb_choice precision_choices[] = {
        {"fp32", DPB_F32, "everything in fp32"},
        {"bf16", DPB_BF16, "computes in bf16 from fp32 parameters, with fp32 gradients"},
        {"fp16", DPB_F16, "the same in fp16, with a scaled loss; for devices that can"},
        {NULL, 0, NULL},
};

static const struct dpb_choice data_choices[] = {
        {"auto", DPB_DATA_AUTO,
         "fashion-mnist for networks of 28x28x1 images, synthetic for the others"},
        {"fashion-mnist", DPB_DATA_FASHION_MNIST,
         "60,000 real images (Debian: dataset-fashion-mnist)"},
        {"mnist", DPB_DATA_MNIST, "60,000 real images, from --data-dir"},
        {"cifar10", DPB_DATA_CIFAR10, "50,000 real images, binary version, from --data-dir"},
        {"text", DPB_DATA_TEXT, "any text, --data-file, as byte-pair tokens learnt from it"},
        {"interactions", DPB_DATA_INTERACTIONS, "rows of a CSV file, --data-file"},
        {"synthetic", DPB_DATA_SYNTHETIC, "made up by seed; recorded as such"},
        {"packed", DPB_DATA_PACKED, "shards that `dpbench data pack` wrote, from --data-dir"},
        {NULL, 0, NULL},
};

static const struct dpb_choice sharding_choices[] = {
        {"auto", DPB_SHARDING_AUTO,
         "shards where every one of several ranks has as many of them, and as many samples; else "
         "samples"},
        {"samples", DPB_SHARDING_SAMPLES, "each takes its slice of one shuffled order of them all"},
        {"shards", DPB_SHARDING_SHARDS,
         "rank r of n opens the shards s with s mod n = r only (packed data)"},
        {NULL, 0, NULL},
};

#define TRAIN "Training"
#define SCALE "Scaling"
#define DATA  "Data"
#define MEAS  "Measurement"

/* clang-format off */
static const struct dpb_option rows[] = {
    {.name = "workload", .type = DPB_OPT_PART, .offset = AT(workload), .default_text = "mnist-cnn", .category = TRAIN,
     .help = "network to train; `dpbench list workloads` names them"},
    {.name = "strategy", .type = DPB_OPT_PART, .offset = AT(strategy), .default_text = "ddp", .category = TRAIN,
     .help = "how gradients are synchronised; `dpbench list strategies`"},
    {.name = "device", .type = DPB_OPT_PART, .offset = AT(device), .default_text = "cpu", .category = TRAIN,
     .help = "what computes; `dpbench list devices`"},
    {.name = "comm", .type = DPB_OPT_PART, .offset = AT(comm), .default_text = "auto", .category = TRAIN, .flags = DPB_OPT_AUTO,
     .help = "what moves gradients; `dpbench list comms`; auto: shm with device cpu, or mpi with any --launcher but local; nccl with device cuda, sim with device sim"},
    {.name = "steps", .type = DPB_OPT_INT, .offset = AT(steps), .default_text = "50", .min = 1, .max = 1e9, .category = TRAIN, .unit = "steps",
     .help = "training steps of a run, warm-up included; with --epochs auto"  , .flags = DPB_OPT_AUTO},
    {.name = "warmup", .type = DPB_OPT_INT, .offset = AT(warmup), .default_text = "10", .min = 2, .max = 1e9, .category = TRAIN, .unit = "steps",
     .help = "first steps, trained but not timed; at least 2, since buckets are rebuilt after step 1"},
    {.name = "epochs", .type = DPB_OPT_INT, .offset = AT(epochs), .default_text = "0", .min = 0, .max = 1e6, .category = TRAIN,
     .help = "passes over the data set instead of --steps; 0 means --steps decides", .flags = DPB_OPT_REAL_ONLY},
    {.name = "evaluate", .type = DPB_OPT_ENUM, .offset = AT(evaluate), .default_text = "auto", .choices = evaluate_choices, .category = TRAIN,
     .help = "test accuracy after training", .flags = DPB_OPT_REAL_ONLY},
    {.name = "optimizer", .type = DPB_OPT_ENUM, .offset = AT(optimizer), .default_text = "auto", .choices = optimizer_choices, .category = TRAIN,
     .help = "what makes an update of a gradient; docs/optimizers.md has the formulas"},
    {.name = "lr", .type = DPB_OPT_FLOAT, .offset = AT(lr), .default_text = "auto", .min = 0, .max = 1e6, .category = TRAIN,
     .help = "learning rate; auto takes the workload's with its own optimizer, else the optimizer's", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "momentum", .type = DPB_OPT_FLOAT, .offset = AT(momentum), .default_text = "auto", .min = 0, .max = 1, .category = TRAIN,
     .help = "of sgd and lars; auto as for --lr", .flags = DPB_OPT_AUTO},
    {.name = "beta1", .type = DPB_OPT_FLOAT, .offset = AT(beta1), .default_text = "auto", .min = 0, .max = 1, .category = TRAIN,
     .help = "of adamw and lamb, decay of the mean of gradients; auto: 0.9", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "beta2", .type = DPB_OPT_FLOAT, .offset = AT(beta2), .default_text = "auto", .min = 0, .max = 1, .category = TRAIN,
     .help = "of adamw and lamb, decay of the mean of their squares; auto: 0.999", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "eps", .type = DPB_OPT_FLOAT, .offset = AT(eps), .default_text = "auto", .min = 0, .max = 1, .category = TRAIN,
     .help = "what is added to a divisor, of all but sgd; auto: adamw 1e-8, lamb 1e-6, lars 0, both adagrads 1e-10", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "weight-decay", .type = DPB_OPT_FLOAT, .offset = AT(weight_decay), .default_text = "auto", .min = 0, .max = 1, .category = TRAIN,
     .help = "pull of parameters to 0; auto as for --lr", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "trust", .type = DPB_OPT_FLOAT, .offset = AT(trust), .default_text = "auto", .min = 0, .max = 1000, .category = TRAIN,
     .help = "trust coefficient of lars; auto: 0.001", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "precision", .type = DPB_OPT_ENUM, .offset = AT(precision), .default_text = "fp32", .choices = precision_choices, .category = TRAIN,
     .help = "of what computes; bf16 and fp16 (mixed precision) for the workloads that can, as 'dpbench list workloads' shows"},
    {.name = "loss-scale", .type = DPB_OPT_TEXT, .offset = AT(loss_scale), .default_text = "auto", .category = TRAIN,
     .help = "the loss times this, gradients divided by it before the update: a number, dynamic (65536, doubled after 2000 good steps; when gradients are not finite the step is skipped and it is halved), off; auto: dynamic with fp16", .flags = DPB_OPT_REAL_ONLY},
    {.name = "capture", .type = DPB_OPT_BOOL, .offset = AT(capture), .default_text = "off", .category = TRAIN,
     .help = "run each step, from forward to the update, as one graph of the device (CUDA graphs); for devices, strategies and workloads that can", .flags = DPB_OPT_REAL_ONLY},
    {.name = "sync-bn", .type = DPB_OPT_BOOL, .offset = AT(sync_bn), .default_text = "off", .category = TRAIN, .flags = DPB_OPT_COMM_ONLY | DPB_OPT_REAL_ONLY,
     .help = "batch normalisation over the samples of all ranks instead of its rank's, exchanged in each layer; for networks that have it"},
    {.name = "seed", .type = DPB_OPT_INT, .offset = AT(seed), .default_text = "1", .min = 0, .max = 9e15, .category = TRAIN,
     .help = "of initial parameters, shuffling, synthetic data and the order of cells"},

    {.name = "ranks", .type = DPB_OPT_INT, .offset = AT(ranks), .default_text = "auto", .min = 1, .max = 65536, .category = SCALE,
     .help = "processes that train together; auto: powers of two up to the cores, at most 4", .flags = DPB_OPT_AUTO},
    {.name = "batch-per-rank", .type = DPB_OPT_INT, .offset = AT(batch_per_rank), .default_text = "auto", .min = 1, .max = 1e9, .category = SCALE, .unit = "samples",
     .help = "samples of each rank per step, or per micro-batch of it (weak scaling); auto: from --global-batch, else what suits the workload, as 'dpbench list workloads' shows", .flags = DPB_OPT_AUTO},
    {.name = "global-batch", .type = DPB_OPT_INT, .offset = AT(global_batch), .default_text = "auto", .min = 1, .max = 1e9, .category = SCALE, .unit = "samples",
     .help = "samples of all ranks together per step, all micro-batches (strong scaling)", .flags = DPB_OPT_AUTO},
    {.name = "accumulate", .type = DPB_OPT_INT, .offset = AT(accumulate), .default_text = "1", .min = 1, .max = 1e6, .category = SCALE, .unit = "micro-batches",
     .help = "micro-batches of a step, whose gradients are added up before they travel: the global batch is ranks times --batch-per-rank times this"},
    {.name = "uneven", .type = DPB_OPT_BOOL, .offset = AT(uneven), .default_text = "off", .category = SCALE,
     .help = "allow a global batch that the ranks do not divide: the first ranks take one sample more"},
    {.name = "ranks-per-node", .type = DPB_OPT_INT, .offset = AT(ranks_per_node), .default_text = "auto", .min = 1, .max = 65536, .category = SCALE,
     .help = "ranks that share a node, for what distinguishes links within nodes and between them; divides --ranks; auto: all", .flags = DPB_OPT_AUTO | DPB_OPT_COMM_ONLY},
    {.name = "threads-per-rank", .type = DPB_OPT_INT, .offset = AT(threads_per_rank), .default_text = "auto", .min = 1, .max = 1024, .category = SCALE,
     .help = "compute threads of a rank; auto: cores / largest rank count of the sweep, at least 1", .flags = DPB_OPT_AUTO | DPB_OPT_REAL_ONLY},
    {.name = "bind", .type = DPB_OPT_BOOL, .offset = AT(bind), .default_text = "on", .category = SCALE,
     .help = "bind each rank to its cores", .flags = DPB_OPT_REAL_ONLY},

    {.name = "data", .type = DPB_OPT_ENUM, .offset = AT(data), .default_text = "auto", .choices = data_choices, .category = DATA,
     .help = "what the network is trained on", .flags = DPB_OPT_REAL_ONLY},
    {.name = "data-dir", .type = DPB_OPT_TEXT, .offset = AT(data_dir), .default_text = "", .category = DATA,
     .help = "folder with the data set's files; empty: where the system installs them", .flags = DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "data-file", .type = DPB_OPT_TEXT, .offset = AT(data_file), .default_text = "", .category = DATA,
     .help = "file with the data, for the kinds of --data that are one file", .flags = DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "sharding", .type = DPB_OPT_ENUM, .offset = AT(sharding), .default_text = "auto", .choices = sharding_choices, .category = DATA,
     .help = "how samples come to ranks", .flags = DPB_OPT_REAL_ONLY},

    {.name = "repeats", .type = DPB_OPT_INT, .offset = AT(repeats), .default_text = "1", .min = 1, .max = 10000, .category = MEAS,
     .help = "fresh launches of every cell; intervals come from them", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD},
    {.name = "trace-steps", .type = DPB_OPT_INT, .offset = AT(trace_steps), .default_text = "5", .min = 0, .max = 1000, .category = MEAS, .unit = "steps",
     .help = "extra steps, recorded after the timed ones; 0: no trace", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD},
    {.name = "recorder", .type = DPB_OPT_PART, .offset = AT(recorder), .default_text = "auto", .category = MEAS,
     .help = "what records the traced steps; auto: host with device cpu, cupti with device cuda", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "timeout", .type = DPB_OPT_DURATION, .offset = AT(timeout_ns), .default_text = "10min", .min = 1e6, .max = 1e15, .category = MEAS,
     .help = "longest time for one launch of a cell", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "stall-timeout", .type = DPB_OPT_DURATION, .offset = AT(stall_timeout_ns), .default_text = "60s", .min = 1e6, .max = 1e15, .category = MEAS,
     .help = "longest time in which the slowest rank makes no progress", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "probe-limit", .type = DPB_OPT_RATIO, .offset = AT(probe_limit_ratio), .default_text = "85%", .min = 0, .max = 1, .category = MEAS,
     .help = "share of a core that must be available; below it a cell is repeated and flagged", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "probe-retries", .type = DPB_OPT_INT, .offset = AT(probe_retries), .default_text = "1", .min = 0, .max = 100, .category = MEAS,
     .help = "how often a cell below the probe limit is repeated", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
    {.name = "memory-limit", .type = DPB_OPT_SIZE, .offset = AT(memory_limit_bytes), .default_text = "auto", .min = 0x1p20, .max = 0x1p50, .category = MEAS,
     .help = "a cell predicted to need more, all ranks together, is not run; auto: what is available when it starts",
     .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD | DPB_OPT_REAL_ONLY},
};
/* clang-format on */

const struct dpb_option_table dpb_experiment_table = {
        .kind = "experiment",
        .owner = "",
        .rows = rows,
        .row_count = sizeof(rows) / sizeof(rows[0]),
        .config_bytes = sizeof(struct dpb_experiment),
};

#define BATCH_PER_RANK_DEFAULT 64         /* of a workload without a wish */
#define GLOBAL_BATCH_MAX       1000000000 /* as its row says */

const char *dpb_data_kind_text(enum dpb_data_kind kind)
{
    return data_choices[kind].name;
}

int dpb_ranks_auto(int cores, int64_t ranks[3])
{
    int count = 0;
    for (int64_t n = 1; n <= cores && n <= 4; n *= 2)
        ranks[count++] = n;
    return count;
}

static dpb_status set_int(dpb_config *config, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, value);
    return dpb_config_set(config, name, text);
}

static int64_t threads_of(int cores, int64_t ranks)
{
    return cores > ranks ? cores / ranks : 1;
}

/* What a cell got because of other cells of its sweep belongs to the command that repeats it. */
static dpb_status set_threads(dpb_config *config, int64_t threads, int64_t threads_alone)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, threads);
    return threads == threads_alone ? dpb_config_set(config, "threads-per-rank", text)
                                    : dpb_config_pin(config, "threads-per-rank", text);
}

static dpb_status check_batch(const struct dpb_experiment *e, int64_t global)
{
    if (global > GLOBAL_BATCH_MAX) {
        dpb_error("--batch-per-rank %" PRId64 " with %" PRId64 " ranks and --accumulate %" PRId64
                  " is a global batch of %" PRId64 " samples, above the largest, %d",
                  e->batch_per_rank, e->ranks, e->accumulate, global, GLOBAL_BATCH_MAX);
        dpb_log_hint("use a smaller batch");
        return DPB_ERR_USAGE;
    }
    if (global % e->accumulate != 0) {
        dpb_error("--accumulate %" PRId64 ": a global batch of %" PRId64
                  " samples has not so many equal micro-batches",
                  e->accumulate, global);
        dpb_log_hint("use a --global-batch that is a multiple of %" PRId64,
                     e->accumulate * e->ranks);
        return DPB_ERR_USAGE;
    }
    if (global < e->ranks * e->accumulate) {
        dpb_error("a global batch of %" PRId64 " leaves some of %" PRId64
                  " ranks without a sample%s",
                  global, e->ranks, e->accumulate > 1 ? " in a micro-batch" : "");
        dpb_log_hint("use --global-batch %" PRId64 " or more, or fewer ranks%s",
                     e->ranks * e->accumulate, e->accumulate > 1 ? " or micro-batches" : "");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* Tables of the network's own are updated from the rows of the last batch. */
static dpb_status check_accumulate(const dpb_config *config,
                                   const struct dpb_workload_ops *workload)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_model *model = workload->model(dpb_config_struct(config, "workload"));
    if (e->accumulate == 1 || dpb_model_own_table_elements(model) == 0)
        return DPB_OK;
    dpb_error("--accumulate %" PRId64 " cannot take effect: workload \"%s\" updates its embedding "
              "tables by the rows of one batch",
              e->accumulate, workload->name);
    dpb_log_hint("leave --accumulate out, or let the gradients of all rows travel (dlrm-small's "
                 "--embedding-gradients dense)");
    return DPB_ERR_USAGE;
}

static dpb_status resolve_nodes(dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    if (e->ranks_per_node == DPB_AUTO)
        return set_int(config, "ranks-per-node", e->ranks);
    if (e->ranks % e->ranks_per_node == 0)
        return DPB_OK;
    dpb_error("--ranks-per-node %" PRId64 " does not divide the %" PRId64 " ranks",
              e->ranks_per_node, e->ranks);
    dpb_log_hint("every node has as many ranks: use a divisor of %" PRId64, e->ranks);
    return DPB_ERR_USAGE;
}

/* Fill in whichever of the two batch sizes was left open. */
static dpb_status resolve_batch(dpb_config *config, const struct dpb_workload_ops *workload)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    bool global_given = e->global_batch != DPB_AUTO;
    bool local_given = e->batch_per_rank != DPB_AUTO;
    int64_t global = e->global_batch, local = e->batch_per_rank;
    int64_t wish = workload->training.batch_per_rank;
    if (global_given && local_given && global != local * e->ranks * e->accumulate) {
        dpb_error("--global-batch %" PRId64 " and --batch-per-rank %" PRId64
                  " contradict each other with %" PRId64 " ranks and --accumulate %" PRId64,
                  global, local, e->ranks, e->accumulate);
        dpb_log_hint("give one of them: --batch-per-rank for weak scaling, --global-batch for "
                     "strong scaling");
        return DPB_ERR_USAGE;
    }
    if (!global_given && !local_given)
        local = wish > 0 ? wish : BATCH_PER_RANK_DEFAULT;
    if (!global_given)
        global = local * e->ranks * e->accumulate;
    DPB_TRY(check_batch(e, global));
    int64_t first;
    DPB_TRY(dpb_shard_of_batch(global / e->accumulate, (int)e->ranks, 0, e->uneven, &first,
                               &local));
    if (!global_given)
        DPB_TRY(set_int(config, "global-batch", global));
    if (!local_given)
        DPB_TRY(set_int(config, "batch-per-rank", local));
    return DPB_OK;
}

/* The data that fits the network. A place that the user names is never passed over. */
static dpb_status resolve_data(dpb_config *config, const struct dpb_workload_ops *workload)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_model *model = workload->model(dpb_config_struct(config, "workload"));
    bool place_given = e->data_dir[0] || e->data_file[0];
    const char *kind;
    DPB_TRY(dpb_dataset_kind_for(dpb_data_kind_text(e->data), model, &kind));
    if (e->data != DPB_DATA_AUTO)
        return DPB_OK;
    if (place_given && strcmp(kind, dpb_data_kind_text(DPB_DATA_SYNTHETIC)) == 0) {
        dpb_error("--data auto means synthetic data for workload \"%s\", which reads no \"%s\"",
                  workload->name, e->data_dir[0] ? e->data_dir : e->data_file);
        dpb_log_hint("say with --data what is there, or leave out --data-dir and --data-file");
        return DPB_ERR_USAGE;
    }
    return dpb_config_set(config, "data", kind);
}

/* What `name`, now `current`, is: as given, or `usual`, which is NaN when the optimizer does not
 * use it. */
static dpb_status resolve_setting(dpb_config *config, const char *optimizer, const char *name,
                                  double current, double usual)
{
    char text[DPB_UNIT_TEXT_BYTES];
    if (isnan(usual) && !isnan(current)) {
        dpb_error("--%s cannot take effect: optimizer \"%s\" does not use it", name, optimizer);
        dpb_log_hint("leave --%s out, or choose another --optimizer", name);
        return DPB_ERR_USAGE;
    }
    if (isnan(usual) || !isnan(current))
        return DPB_OK;
    dpb_format_f64(usual, text, sizeof(text));
    return dpb_config_set(config, name, text);
}

/* The workload's settings suit its own optimizer only. */
static dpb_status resolve_optimizer(dpb_config *config, const struct dpb_workload_ops *workload)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    enum dpb_optimizer_kind own = workload->training.optimizer;
    enum dpb_optimizer_kind kind =
            e->optimizer == DPB_OPTIMIZER_AUTO ? own : (enum dpb_optimizer_kind)e->optimizer;
    const char *text = dpb_optimizer_text(kind);
    struct dpb_optimizer_config usual = kind == own ? dpb_training_optimizer(&workload->training)
                                                    : dpb_optimizer_defaults(kind);
    if (kind == DPB_OPTIMIZER_ROWWISE_ADAGRAD &&
        !dpb_model_has_tables(workload->model(dpb_config_struct(config, "workload")))) {
        dpb_error("--optimizer: \"%s\" cannot take effect: workload \"%s\" has no embedding tables",
                  text, workload->name);
        dpb_log_hint("use --optimizer adagrad, which it is for everything else");
        return DPB_ERR_USAGE;
    }
    if (e->optimizer == DPB_OPTIMIZER_AUTO)
        DPB_TRY(dpb_config_set(config, "optimizer", text));
#define RESOLVE(member, name) DPB_TRY(resolve_setting(config, text, name, e->member, usual.member));
    DPB_OPTIMIZER_SETTING_MAP(RESOLVE)
#undef RESOLVE
    usual = dpb_experiment_optimizer(e);
    return dpb_optimizer_config_check(&usual);
}

/* "resnet18, resnet50": the workloads with this flag. */
static void list_workloads(const struct dpb_registry *registry, unsigned flag, struct dpb_str *text)
{
    for (size_t i = 0; i < registry->workload_count; i++)
        if (registry->workloads[i]->flags & flag)
            dpb_str_appendf(text, text->length ? ", %s" : "%s", registry->workloads[i]->name);
}

/* Can the workload do what is asked for? */
static dpb_status check_ability(const struct dpb_registry *registry,
                                const struct dpb_workload_ops *workload, unsigned flag,
                                const char *setting, const char *why)
{
    struct dpb_str able = {0};
    if (workload->flags & flag)
        return DPB_OK;
    list_workloads(registry, flag, &able);
    dpb_error("%s cannot take effect: workload \"%s\" %s", setting, workload->name, why);
    if (able.length && !able.failed)
        dpb_log_hint("leave it out, or take one of: %s", able.text);
    else
        dpb_log_hint("leave it out: no workload of this build can");
    dpb_str_release(&able);
    return DPB_ERR_USAGE;
}

dpb_status dpb_experiment_loss_scale(const struct dpb_experiment *e, double *scale)
{
    const bool is_auto = strcmp(e->loss_scale, "auto") == 0;
    char *end;
    *scale = 0.0;
    if (strcmp(e->loss_scale, "off") == 0 || (is_auto && e->precision != DPB_F16))
        return DPB_OK;
    if (strcmp(e->loss_scale, "dynamic") == 0 || is_auto) {
        *scale = DPB_LOSS_SCALE_DYNAMIC;
        return DPB_OK;
    }
    *scale = strtod(e->loss_scale, &end);
    if (end != e->loss_scale && *end == '\0' && *scale >= 0x1p-126 && *scale <= 0x1p127)
        return DPB_OK;
    dpb_error("--loss-scale \"%s\" is not a number above 0", e->loss_scale);
    dpb_log_hint("give auto, dynamic, off or a number such as 1024");
    return DPB_ERR_USAGE;
}

static dpb_status check_abilities(const struct dpb_experiment *e,
                                  const struct dpb_registry *registry,
                                  const struct dpb_workload_ops *workload)
{
    double scale;
    if (e->precision != DPB_F32)
        DPB_TRY(check_ability(registry, workload, DPB_WORKLOAD_MIXED,
                              e->precision == DPB_BF16 ? "--precision bf16" : "--precision fp16",
                              "computes in fp32 only"));
    DPB_TRY(dpb_experiment_loss_scale(e, &scale));
    if (e->sync_bn)
        DPB_TRY(check_ability(registry, workload, DPB_WORKLOAD_BATCH_STATISTICS, "--sync-bn on",
                              "has no batch normalisation"));
    return DPB_OK;
}

/* A rank would find it, too, but after the timed steps. */
static dpb_status check_traced(const struct dpb_experiment *e, const struct dpb_registry *registry)
{
    const struct dpb_recorder_ops *recorder = dpb_registry_recorder(registry, e->recorder);
    if (!recorder || recorder->steps_max == 0 || e->trace_steps <= recorder->steps_max ||
        dpb_registry_is_virtual(registry, e->device))
        return DPB_OK;
    dpb_error("--trace-steps %" PRId64 ": recorder \"%s\" records at most %" PRId64 " steps",
              e->trace_steps, recorder->name, recorder->steps_max);
    dpb_log_hint("use --trace-steps %" PRId64 ", or fewer", recorder->steps_max);
    return DPB_ERR_USAGE;
}

static struct dpb_link read_link(const dpb_json *link)
{
    return (struct dpb_link){
            .bw_bytes_per_s = dpb_json_as_real(dpb_json_get(link, "bw_bytes_per_s"), 0),
            .latency_ns = dpb_json_as_int(dpb_json_get(link, "latency_ns"), 0),
    };
}

static bool take_text(const dpb_config *config, const char *name, struct dpb_str *text)
{
    *text = (struct dpb_str){0};
    return dpb_config_text(config, name, text) == DPB_OK && !text->failed;
}

const char *dpb_experiment_algorithm_option(const dpb_config *config)
{
    static const char *const names[] = {"algorithm", "mpi-algorithm"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct dpb_str text;
        bool has_it = take_text(config, names[i], &text);
        dpb_str_release(&text);
        if (has_it)
            return names[i];
    }
    return NULL;
}

struct dpb_algorithm_setup dpb_experiment_algorithm(const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    dpb_json *options = dpb_config_to_json(config);
    struct dpb_algorithm_setup setup = {
            .ranks = (int)e->ranks,
            .ranks_per_node = (int)e->ranks_per_node,
            .link = read_link(dpb_json_get(options, "link")),
            .inside = read_link(dpb_json_get(options, "link_inside")),
    };
    const char *option = dpb_experiment_algorithm_option(config);
    struct dpb_str algorithm = {0};
    if (option && take_text(config, option, &algorithm))
        dpb_algorithm_find(algorithm.text, &setup.algorithm);
    dpb_str_release(&algorithm);
    dpb_json_free(options);
    return setup;
}

static dpb_status check_link_inside(const struct dpb_algorithm_setup *setup)
{
    if (setup->ranks == 1 || !(setup->inside.bw_bytes_per_s > 0) ||
        (setup->algorithm == DPB_ALGORITHM_HIERARCHICAL && setup->link.bw_bytes_per_s > 0))
        return DPB_OK;
    dpb_error("--link-inside: cannot take effect without --algorithm hierarchical and --link");
    dpb_log_hint("leave --link-inside out, or give both");
    return DPB_ERR_USAGE;
}

/* Has the algorithm, chosen by `option`, every collective that the strategy sends? */
static dpb_status check_collectives(const struct dpb_strategy_ops *ops, dpb_strategy *strategy,
                                    const struct dpb_algorithm_setup *setup, const char *option)
{
    int count = ops->messages(strategy, NULL);
    struct dpb_sync_message *messages = calloc((size_t)count + 1, sizeof(*messages));
    char why[ALGORITHM_TEXT];
    dpb_status st = messages ? DPB_OK : DPB_ERR_NO_MEMORY;
    if (messages)
        ops->messages(strategy, messages);
    for (int i = 0; i < count && st == DPB_OK; i++)
        st = dpb_algorithm_check(setup, messages[i].kind, why, sizeof(why));
    if (st == DPB_ERR_NO_MEMORY) {
        dpb_error("out of memory for the messages of strategy \"%s\"", ops->name);
    } else if (st < 0) {
        dpb_error("--%s: strategy \"%s\" on %d ranks: %s", option, ops->name, setup->ranks, why);
        dpb_log_hint("give --%s another value, or take another --strategy", option);
        st = DPB_ERR_USAGE;
    }
    free(messages);
    return st;
}

/* The rows of tables of the network's own go to other ranks and come from them. */
static bool exchanges_itself(const struct dpb_experiment *e, const struct dpb_model *model)
{
    return e->sync_bn || dpb_model_own_table_elements(model) > 0;
}

/* What the strategy says of its options, and of the plan that they make. */
static dpb_status check_strategy(const dpb_config *config, const struct dpb_registry *registry)
{
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    struct dpb_algorithm_setup setup = dpb_experiment_algorithm(config);
    DPB_TRY(check_link_inside(&setup));
    dpb_step_shape_of(registry, config, &optimizer, &shape);
    if (exchanges_itself(e, shape.model))
        DPB_TRY(dpb_step_check_exchanges(shape.strategy,
                                         dpb_strategy_flags(shape.strategy, shape.strategy_options),
                                         e->workload, shape.ranks));
    DPB_TRY(dpb_step_plan_offline(&shape, 0, NULL, &strategy, &plan));
    dpb_status st = check_collectives(shape.strategy, strategy, &setup,
                                      dpb_experiment_algorithm_option(config));
    shape.strategy->close(strategy);
    dpb_unit_plan_release(&plan);
    return st;
}

dpb_status dpb_experiment_resolve(dpb_config *config, const struct dpb_registry *registry,
                                  int cores, int64_t most_ranks)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    const struct dpb_comm_ops *comm = dpb_registry_comm(registry, e->comm);
    if ((comm->flags & DPB_COMM_SEGMENT) && e->ranks > DPB_COMM_RANKS_MAX) {
        dpb_error("--ranks: %" PRId64 " is more than comm \"%s\" can hold, %d on one machine",
                  e->ranks, comm->name, DPB_COMM_RANKS_MAX);
        dpb_log_hint("use at most %d ranks, or `dpbench simulate` with a machine that is described",
                     DPB_COMM_RANKS_MAX);
        return DPB_ERR_USAGE;
    }
    if (dpb_registry_is_virtual(registry, e->device))
        DPB_TRY(registry->simulator->resolve(registry, config));
    DPB_TRY(check_abilities(e, registry, workload));
    DPB_TRY(check_traced(e, registry));
    if (e->epochs > 0 && dpb_config_is_explicit(config, "steps") && e->steps != DPB_AUTO) {
        dpb_error("--steps and --epochs exclude each other: both say how long to train");
        dpb_log_hint("leave out --steps %" PRId64 ", or --epochs %" PRId64, e->steps, e->epochs);
        return DPB_ERR_USAGE;
    }
    if (e->epochs == 0 && e->steps == DPB_AUTO) {
        dpb_error("--steps auto needs --epochs");
        dpb_log_hint("give a number of steps, or --epochs");
        return DPB_ERR_USAGE;
    }
    if (e->epochs == 0 && e->warmup >= e->steps) {
        dpb_error("--warmup %" PRId64 " leaves no timed step of --steps %" PRId64
                  ", which counts the warm-up",
                  e->warmup, e->steps);
        dpb_log_hint("use --steps above %" PRId64 ", or a smaller --warmup (at least 2)",
                     e->warmup);
        return DPB_ERR_USAGE;
    }
    if (e->epochs > 0 && e->steps != DPB_AUTO)
        DPB_TRY(dpb_config_set(config, "steps", "auto"));
    DPB_TRY(resolve_batch(config, workload));
    DPB_TRY(check_accumulate(config, workload));
    DPB_TRY(resolve_nodes(config));
    DPB_TRY(resolve_data(config, workload));
    if (e->threads_per_rank == DPB_AUTO)
        DPB_TRY(set_threads(config, threads_of(cores, most_ranks), threads_of(cores, e->ranks)));
    DPB_TRY(resolve_optimizer(config, workload));
    return check_strategy(config, registry);
}

struct dpb_optimizer_config dpb_experiment_optimizer(const struct dpb_experiment *e)
{
    struct dpb_optimizer_config config = {.kind = (enum dpb_optimizer_kind)e->optimizer};
#define COPY(member, name) config.member = e->member;
    DPB_OPTIMIZER_SETTING_MAP(COPY)
#undef COPY
    return config;
}

bool dpb_experiment_is_weak(const dpb_config *config)
{
    return !dpb_config_is_explicit(config, "global-batch");
}

dpb_status dpb_experiment_series(const dpb_config *config, struct dpb_str *series,
                                 struct dpb_str *compute_series)
{
    const char *without[8] = {"ranks"};
    size_t count = 1;
    without[count++] = dpb_experiment_is_weak(config) ? "global-batch" : "batch-per-rank";
    if (!dpb_config_is_explicit(config, "ranks-per-node"))
        without[count++] = "ranks-per-node"; /* it is the ranks */
    DPB_TRY(dpb_config_key(config, DPB_OPT_NO_RECORD, without, count, series));
    without[count++] = "strategy";
    without[count++] = "comm";
    return dpb_config_key(config, DPB_OPT_NO_RECORD | DPB_OPT_COMM_ONLY, without, count,
                          compute_series);
}
