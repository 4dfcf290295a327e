/* sample_options.h: a small set of tables that has one of everything. */
#ifndef DPB_TEST_SAMPLE_OPTIONS_H
#define DPB_TEST_SAMPLE_OPTIONS_H

#include "dpb_options.h"

struct sample_core {
    int64_t ranks, seed, timeout_ns, memory_bytes;
    double noise, efficiency, disk_bytes_per_s;
    bool overlap;
    int precision;
    char data[DPB_OPTION_TEXT_BYTES], hosts[DPB_OPTION_TEXT_BYTES], label[DPB_OPTION_TEXT_BYTES];
    char workload[DPB_OPTION_TEXT_BYTES], strategy[DPB_OPTION_TEXT_BYTES];
    struct dpb_link link;
};

enum sample_precision {
    SAMPLE_FP32 = 10,
    SAMPLE_BF16 = 20
};

struct sample_ddp {
    int64_t bucket_bytes, first_bucket_bytes;
};

struct sample_zero1 {
    int64_t bucket_bytes;
    bool gather;
};

/* clang-format off */
static const struct dpb_choice sample_precisions[] = {
    {"fp32", SAMPLE_FP32, "single precision"},
    {"bf16", SAMPLE_BF16, "half of it"},
    {NULL, 0, NULL},
};

#define CORE(member) offsetof(struct sample_core, member)
static const struct dpb_option sample_core_rows[] = {
    {"ranks", DPB_OPT_INT, CORE(ranks), "1", 1, 65536, NULL, "Training", "processes", "number of ranks", 0, 0},
    {"seed", DPB_OPT_INT, CORE(seed), "0", 0, 0, NULL, "Training", NULL, "seed of all random numbers", 0, 0},
    {"timeout", DPB_OPT_DURATION, CORE(timeout_ns), "60s", 0, 3600e9, NULL, "Run", NULL, "longest wait", DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD, 0},
    {"memory", DPB_OPT_SIZE, CORE(memory_bytes), "auto", 0, 0, NULL, "Run", NULL, "memory of a rank", DPB_OPT_AUTO, 0},
    {"noise", DPB_OPT_FLOAT, CORE(noise), "auto", 0, 10, NULL, "Training", NULL, "noise of a step", DPB_OPT_AUTO, 0},
    {"efficiency", DPB_OPT_RATIO, CORE(efficiency), "85%", 0, 1, NULL, "Training", NULL, "expected efficiency", 0, 0},
    {"disk", DPB_OPT_RATE, CORE(disk_bytes_per_s), "1GB/s", 0, 0, NULL, "Run", NULL, "speed of the disk", 0, 0},
    {"overlap", DPB_OPT_BOOL, CORE(overlap), "on", 0, 0, NULL, "Training", NULL, "communicate while computing", DPB_OPT_COMM_ONLY, 0},
    {"precision", DPB_OPT_ENUM, CORE(precision), "fp32", 0, 0, sample_precisions, "Training", NULL, "number format", 0, 0},
    {"data", DPB_OPT_TEXT, CORE(data), "", 0, 0, NULL, "Run", NULL, "folder with a dataset", 0, 0},
    {"hosts", DPB_OPT_TEXT, CORE(hosts), "", 0, 0, NULL, "Run", NULL, "names of machines", DPB_OPT_NO_AXIS, 0},
    {"label", DPB_OPT_TEXT, CORE(label), "", 0, 0, NULL, "Run", NULL, "a word for the reader", 0, 0},
    {"workload", DPB_OPT_PART, CORE(workload), "mlp", 0, 0, NULL, "Training", NULL, "what is trained", 0, 0},
    {"strategy", DPB_OPT_PART, CORE(strategy), "ddp", 0, 0, NULL, "Training", NULL, "how gradients meet", 0, 0},
    {"link", DPB_OPT_LINK, CORE(link), "none", 0, 0, NULL, "Run", NULL, "emulated link", 0, 0},
};
#undef CORE

static const struct dpb_option sample_ddp_rows[] = {
    {"bucket", DPB_OPT_SIZE, offsetof(struct sample_ddp, bucket_bytes), "25MiB", 1024, 1099511627776.0, NULL, "Communication", NULL, "bytes of a bucket", DPB_OPT_AUTO | DPB_OPT_COMM_ONLY, 0},
    {"first-bucket", DPB_OPT_SIZE, offsetof(struct sample_ddp, first_bucket_bytes), "1MiB", 0, 0, NULL, "Communication", NULL, "bytes of the first bucket", 0, 0},
};

static const struct dpb_option sample_zero1_rows[] = {
    {"bucket", DPB_OPT_SIZE, offsetof(struct sample_zero1, bucket_bytes), "16MiB", 1, 1099511627776.0, NULL, "Communication", NULL, "bytes of a bucket", 0, 0},
    {"gather", DPB_OPT_BOOL, offsetof(struct sample_zero1, gather), "off", 0, 0, NULL, "Communication", NULL, "gather at once", 0, 0},
};
/* clang-format on */

#define ROWS(rows) rows, sizeof(rows) / sizeof((rows)[0])
static const struct dpb_option_table sample_core_table = {"experiment", "", ROWS(sample_core_rows),
                                                          sizeof(struct sample_core)};
static const struct dpb_option_table sample_ddp_table = {"strategy", "ddp", ROWS(sample_ddp_rows),
                                                         sizeof(struct sample_ddp)};
static const struct dpb_option_table sample_zero1_table = {
        "strategy", "zero1", ROWS(sample_zero1_rows), sizeof(struct sample_zero1)};

static const struct dpb_option_table *const sample_tables[] = {
        &sample_ddp_table, &sample_core_table, NULL, &sample_zero1_table};

static const struct dpb_part_name sample_parts[] = {
        {"workload", "mlp", "layers", NULL},    {"workload", "resnet50", "images", NULL},
        {"strategy", "none", "no sync", NULL},  {"strategy", "ddp", "buckets", NULL},
        {"strategy", "zero1", "sharded", NULL},
};

static const struct dpb_option_set sample_set = {
        .tables = sample_tables,
        .table_count = sizeof(sample_tables) / sizeof(sample_tables[0]),
        .parts = sample_parts,
        .part_count = sizeof(sample_parts) / sizeof(sample_parts[0]),
};

#endif
