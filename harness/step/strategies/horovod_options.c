/* Options of strategy `horovod`, in its two presets. */
#include "horovod.h"

#include <stddef.h>

#include "dpb_log.h"

static const struct dpb_choice compressions[] = {
        {"none", DPB_HOROVOD_COMPRESSION_NONE, "gradients travel as they are"},
        {"fp16", DPB_HOROVOD_COMPRESSION_FP16, "gradients travel as fp16 (Compression.fp16)"},
        {0},
};

#define AT(member) offsetof(struct dpb_horovod_options, member)
#define COMM       .category = "Communication", .flags = DPB_OPT_COMM_ONLY

/* Defaults of autotuning, Horovod's. */
#define TUNE_WARMUPS 3
#define TUNE_STEPS   10
#define TUNE_SAMPLES 20

#define NUMBER_TEXT(number)    NUMBER_TEXT_OF(number)
#define NUMBER_TEXT_OF(number) #number

/* The same rows with other defaults. */
#define ROWS(threshold, cycle)                                                                     \
    {                                                                                              \
        {.name = "fusion-threshold",                                                               \
         .type = DPB_OPT_SIZE,                                                                     \
         .offset = AT(threshold_bytes),                                                            \
         .default_text = threshold,                                                                \
         .min = 0,                                                                                 \
         .max = DPB_BUCKET_BYTES_MAX,                                                              \
         .help = "most bytes that are reduced together (HOROVOD_FUSION_THRESHOLD), rounded up "    \
                 "to a multiple of 512 for each rank of a node; 0: no fusion",                     \
         COMM},                                                                                    \
                {.name = "cycle-time",                                                             \
                 .type = DPB_OPT_DURATION,                                                         \
                 .offset = AT(cycle_ns),                                                           \
                 .default_text = cycle,                                                            \
                 .min = 0,                                                                         \
                 .max = 3.6e12,                                                                    \
                 .help = "time from one negotiation between ranks to the next "                    \
                         "(HOROVOD_CYCLE_TIME)",                                                   \
                 COMM},                                                                            \
                {.name = "cache-capacity",                                                         \
                 .type = DPB_OPT_INT,                                                              \
                 .offset = AT(cache_capacity),                                                     \
                 .default_text = "1024",                                                           \
                 .min = 0,                                                                         \
                 .max = HOROVOD_CACHE_CAPACITY_MAX,                                                \
                 .unit = "tensors",                                                                \
                 .help = "tensors whose negotiation is remembered (HOROVOD_CACHE_CAPACITY); 0: "   \
                         "every "                                                                  \
                         "tensor is negotiated in every step",                                     \
                 COMM},                                                                            \
                {.name = "hierarchical",                                                           \
                 .type = DPB_OPT_BOOL,                                                             \
                 .offset = AT(hierarchical),                                                       \
                 .default_text = "off",                                                            \
                 .help = "pad and block as HOROVOD_HIERARCHICAL_ALLREDUCE does, on several "       \
                         "nodes; the "                                                             \
                         "data take the way of the comm's --algorithm",                            \
                 COMM},                                                                            \
                {.name = "torus",                                                                  \
                 .type = DPB_OPT_BOOL,                                                             \
                 .offset = AT(torus),                                                              \
                 .default_text = "off",                                                            \
                 .help = "pad as HOROVOD_TORUS_ALLREDUCE does, on several nodes; the data take "   \
                         "the way "                                                                \
                         "of the comm's --algorithm",                                              \
                 COMM},                                                                            \
                {.name = "compression",                                                            \
                 .type = DPB_OPT_ENUM,                                                             \
                 .offset = AT(compression),                                                        \
                 .default_text = "none",                                                           \
                 .choices = compressions,                                                          \
                 .help = "how gradients travel",                                                   \
                 COMM},                                                                            \
                {.name = "gradient-predivide-factor",                                              \
                 .type = DPB_OPT_FLOAT,                                                            \
                 .offset = AT(predivide_factor),                                                   \
                 .default_text = "1",                                                              \
                 .min = 1e-6,                                                                      \
                 .max = 1e6,                                                                       \
                 .help = "gradients are divided by it before the sum and multiplied by it after "  \
                         "it",                                                                     \
                 COMM},                                                                            \
                {.name = "batch-d2d-memcopies",                                                    \
                 .type = DPB_OPT_BOOL,                                                             \
                 .offset = AT(batch_copies),                                                       \
                 .default_text = "on",                                                             \
                 .help = "tensors in the fusion buffer begin at multiples of 16 bytes, and what "  \
                         "is "                                                                     \
                         "between them travels too (HOROVOD_BATCH_D2D_MEMCOPIES)",                 \
                 COMM},                                                                            \
                {.name = "autotune",                                                               \
                 .type = DPB_OPT_BOOL,                                                             \
                 .offset = AT(autotune),                                                           \
                 .default_text = "off",                                                            \
                 .help = "search a fusion threshold and a cycle time in the first steps "          \
                         "(HOROVOD_AUTOTUNE)",                                                     \
                 COMM},                                                                            \
                {.name = "autotune-warmup-samples",                                                \
                 .type = DPB_OPT_INT,                                                              \
                 .offset = AT(tune_warmups),                                                       \
                 .default_text = NUMBER_TEXT(TUNE_WARMUPS),                                        \
                 .min = 0,                                                                         \
                 .max = 1000,                                                                      \
                 .unit = "samples",                                                                \
                 .help = "samples of autotuning that are thrown away",                             \
                 COMM},                                                                            \
                {.name = "autotune-steps-per-sample",                                              \
                 .type = DPB_OPT_INT,                                                              \
                 .offset = AT(tune_steps),                                                         \
                 .default_text = NUMBER_TEXT(TUNE_STEPS),                                          \
                 .min = 1,                                                                         \
                 .max = 1e6,                                                                       \
                 .unit = "steps",                                                                  \
                 .help = "training steps of one sample of autotuning",                             \
                 COMM},                                                                            \
                {.name = "autotune-samples",                                                       \
                 .type = DPB_OPT_INT,                                                              \
                 .offset = AT(tune_samples),                                                       \
                 .default_text = NUMBER_TEXT(TUNE_SAMPLES),                                        \
                 .min = 1,                                                                         \
                 .max = TUNE_POINTS,                                                               \
                 .unit = "samples",                                                                \
                 .help = "most samples of autotuning",                                             \
                 COMM},                                                                            \
    }

static const struct dpb_option horovod_rows[] = ROWS("128MiB", "1ms");
static const struct dpb_option legacy_rows[] = ROWS("64MiB", "5ms");

const struct dpb_option_table horovod_table = {
        .kind = "strategy",
        .owner = "horovod",
        .rows = horovod_rows,
        .row_count = sizeof(horovod_rows) / sizeof(horovod_rows[0]),
        .config_bytes = sizeof(struct dpb_horovod_options),
};

const struct dpb_option_table horovod_legacy_table = {
        .kind = "strategy",
        .owner = "horovod-legacy",
        .rows = legacy_rows,
        .row_count = sizeof(legacy_rows) / sizeof(legacy_rows[0]),
        .config_bytes = sizeof(struct dpb_horovod_options),
};

dpb_status horovod_options_check(const struct dpb_horovod_options *options, const char *strategy)
{
    if (!options || options->threshold_bytes < 0 || options->cycle_ns < 0 ||
        options->cache_capacity < 0 || options->cache_capacity > HOROVOD_CACHE_CAPACITY_MAX ||
        !(options->predivide_factor > 0)) {
        dpb_error("strategy \"%s\": a threshold, a cycle time or a cache capacity below 0, or a "
                  "predivide factor that is not above it",
                  strategy);
        return DPB_ERR_USAGE;
    }
    if (options->hierarchical && options->torus) {
        dpb_error("strategy \"%s\": --hierarchical on and --torus on are two ways of one reduction",
                  strategy);
        dpb_log_hint("leave one of them off");
        return DPB_ERR_USAGE;
    }
    /* 0 samples: not read from options. */
    if (!options->autotune && options->tune_samples != 0 &&
        (options->tune_warmups != TUNE_WARMUPS || options->tune_steps != TUNE_STEPS ||
         options->tune_samples != TUNE_SAMPLES)) {
        dpb_error("strategy \"%s\": --autotune-... cannot take effect with --autotune off",
                  strategy);
        dpb_log_hint("say --autotune on, or leave out --autotune-...");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}
