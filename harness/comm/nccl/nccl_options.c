/* nccl_options.c: the options of comm "nccl", without a vendor's header: also in programs that load
 * the comm only when it is asked for. */
#include "dpb_comm_nccl.h"

static const struct dpb_choice algo_choices[] = {
        {"auto", DPB_COMM_NCCL_ALGO_AUTO, "NCCL chooses"},
        {"ring", DPB_COMM_NCCL_ALGO_RING, "rings, for every collective"},
        {"tree", DPB_COMM_NCCL_ALGO_TREE, "double trees, for all-reduce"},
        {"nvls", DPB_COMM_NCCL_ALGO_NVLS, "NVLink SHARP, for all-reduce"},
        {NULL, 0, NULL},
};

static const struct dpb_choice proto_choices[] = {
        {"auto", DPB_COMM_NCCL_PROTO_AUTO, "NCCL chooses"},
        {"simple", DPB_COMM_NCCL_PROTO_SIMPLE, "whole chunks, then a flag: bandwidth"},
        {"ll", DPB_COMM_NCCL_PROTO_LL, "a flag in every 8 bytes: latency"},
        {NULL, 0, NULL},
};

static const struct dpb_choice cta_policy_choices[] = {
        {"default", DPB_COMM_NCCL_CTA_DEFAULT, "as many as the collective is fastest with"},
        {"efficiency", DPB_COMM_NCCL_CTA_EFFICIENCY, "fewer, which leaves more to computing"},
        {"zero", DPB_COMM_NCCL_CTA_ZERO, "none where copy engines can do it"},
        {NULL, 0, NULL},
};

static const struct dpb_choice register_choices[] = {
        {"auto", DPB_COMM_NCCL_REGISTER_AUTO, "where NCCL can"},
        {"on", DPB_COMM_NCCL_REGISTER_ON, "or fail"},
        {"off", DPB_COMM_NCCL_REGISTER_OFF, "never"},
        {NULL, 0, NULL},
};

static const struct dpb_option rows[] = {
        {
                .name = "nccl-algo",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_nccl_options, algo),
                .default_text = "auto",
                .choices = algo_choices,
                .category = "Communication",
                .help = "ask NCCL for this algorithm (NCCL_ALGO)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "nccl-proto",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_nccl_options, proto),
                .default_text = "auto",
                .choices = proto_choices,
                .category = "Communication",
                .help = "ask NCCL for this protocol (NCCL_PROTO); LL128 cannot be asked for, since "
                        "it damages data where the machine does not support it",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "nccl-min-ctas",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_comm_nccl_options, min_ctas),
                .default_text = "auto",
                .min = 1,
                .max = 64,
                .category = "Communication",
                .help = "least thread blocks of a collective, each of which takes an SM",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "nccl-max-ctas",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_comm_nccl_options, max_ctas),
                .default_text = "auto",
                .min = 1,
                .max = 64,
                .category = "Communication",
                .help = "most thread blocks of a collective, each of which takes an SM",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "nccl-cta-policy",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_nccl_options, cta_policy),
                .default_text = "default",
                .choices = cta_policy_choices,
                .category = "Communication",
                .help = "how NCCL trades thread blocks for speed",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "nccl-register",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_nccl_options, registration),
                .default_text = "auto",
                .choices = register_choices,
                .category = "Communication",
                .help = "register buffers with NCCL, which saves copies inside it",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "nccl-profile",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_comm_nccl_options, profile),
                .default_text = "off",
                .category = "Communication",
                .help = "count the algorithms and protocols that NCCL really uses, for the record; "
                        "costs time in every collective",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

const struct dpb_option_table dpb_comm_nccl_table = {
        .kind = "comm",
        .owner = "nccl",
        .rows = rows,
        .row_count = sizeof(rows) / sizeof(rows[0]),
        .config_bytes = sizeof(struct dpb_comm_nccl_options),
};
