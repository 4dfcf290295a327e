/* The options of the device "sim". */
#include <stddef.h>

#include "dpb_simulate.h"

#define AT(member) offsetof(struct dpb_sim_options, member)
#define SIM        "Simulation"

/* clang-format off */
static const struct dpb_option rows[] = {
    {.name = "machine", .type = DPB_OPT_TEXT, .offset = AT(machine), .default_text = "", .category = SIM,
     .help = "machine profile: a name of `dpbench list machines`, or a file (docs/machines.md); with --profile it may be left out, and the network is then ideal"},
    {.name = "profile", .type = DPB_OPT_TEXT, .offset = AT(profile), .default_text = "", .category = SIM,
     .help = "measured times of the workload's layers, from `dpbench profile`, instead of a roofline of the machine"},
    {.name = "set", .type = DPB_OPT_TEXT, .offset = AT(set), .default_text = "", .category = SIM, .flags = DPB_OPT_NO_AXIS,
     .help = "figures of the machine to replace, such as inside.rate=600GB/s,between.latency=5us"},
    {.name = "tf32", .type = DPB_OPT_BOOL, .offset = AT(tf32), .default_text = "off", .category = SIM,
     .help = "products in fp32 run at the machine's rate for TF32"},
    {.name = "noise-rank", .type = DPB_OPT_RATIO, .offset = AT(noise_rank), .default_text = "auto", .min = 0, .max = 1, .category = SIM, .flags = DPB_OPT_AUTO,
     .help = "standard deviation of a rank's compute time from step to step; auto: the machine's"},
    {.name = "noise-common", .type = DPB_OPT_RATIO, .offset = AT(noise_common), .default_text = "auto", .min = 0, .max = 1, .category = SIM, .flags = DPB_OPT_AUTO,
     .help = "the same of all ranks together; auto: the machine's"},
    {.name = "tail-share", .type = DPB_OPT_RATIO, .offset = AT(tail_share), .default_text = "auto", .min = 0, .max = 1, .category = SIM, .flags = DPB_OPT_AUTO,
     .help = "share of rank-steps that are delayed; auto: the machine's"},
    {.name = "tail-mean", .type = DPB_OPT_RATIO, .offset = AT(tail_mean), .default_text = "auto", .min = 0, .max = 100, .category = SIM, .flags = DPB_OPT_AUTO,
     .help = "by so much of a step on average (exponential); auto: the machine's"},
    {.name = "slow-ranks", .type = DPB_OPT_INT, .offset = AT(slow_ranks), .default_text = "0", .min = 0, .max = 65536, .category = SIM, .unit = "ranks",
     .help = "so many ranks are always slower by --slow-by"},
    {.name = "slow-by", .type = DPB_OPT_RATIO, .offset = AT(slow_by), .default_text = "0", .min = 0, .max = 100, .category = SIM,
     .help = "how much longer the slow ranks compute: 10% is 1.1 times"},
};
/* clang-format on */

const struct dpb_option_table dpb_sim_option_table = {
        .kind = "device",
        .owner = "sim",
        .rows = rows,
        .row_count = sizeof(rows) / sizeof(rows[0]),
        .config_bytes = sizeof(struct dpb_sim_options),
};
