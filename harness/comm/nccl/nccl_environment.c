#include "nccl_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "dpb_log.h"

static const char *const recorded[] = {
        "NCCL_ALGO",
        "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
        "NCCL_BUFFSIZE",
        "NCCL_CGA_CLUSTER_SIZE",
        "NCCL_COLLNET_ENABLE",
        "NCCL_CROSS_NIC",
        "NCCL_CTA_POLICY",
        "NCCL_CUMEM_ENABLE",
        "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_DEBUG",
        "NCCL_DMABUF_ENABLE",
        "NCCL_GRAPH_MIXING_SUPPORT",
        "NCCL_GRAPH_REGISTER",
        "NCCL_IB_ADAPTIVE_ROUTING",
        "NCCL_IB_ADDR_FAMILY",
        "NCCL_IB_DATA_DIRECT",
        "NCCL_IB_DISABLE",
        "NCCL_IB_ECE_ENABLE",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "NCCL_IB_MERGE_NICS",
        "NCCL_IB_PCI_RELAXED_ORDERING",
        "NCCL_IB_QPS_PER_CONNECTION",
        "NCCL_IB_RETRY_CNT",
        "NCCL_IB_ROCE_VERSION_NUM",
        "NCCL_IB_SL",
        "NCCL_IB_SPLIT_DATA_ON_QPS",
        "NCCL_IB_TC",
        "NCCL_IB_TIMEOUT",
        "NCCL_IGNORE_CPU_AFFINITY",
        "NCCL_LAUNCH_MODE",
        "NCCL_LAUNCH_ORDER_IMPLICIT",
        "NCCL_LOCAL_REGISTER",
        "NCCL_MAX_CTAS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MAX_P2P_NCHANNELS",
        "NCCL_MIN_CTAS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MIN_P2P_NCHANNELS",
        "NCCL_MNNVL_ENABLE",
        "NCCL_NCHANNELS_PER_NET_PEER",
        "NCCL_NET",
        "NCCL_NET_DISABLE_INTRA",
        "NCCL_NET_GDR_C2C",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_NET_GDR_READ",
        "NCCL_NET_MERGE_LEVEL",
        "NCCL_NET_PLUGIN",
        "NCCL_NSOCKS_PERTHREAD",
        "NCCL_NTHREADS",
        "NCCL_NVB_DISABLE",
        "NCCL_NVLSTREE_MAX_CHUNKSIZE",
        "NCCL_NVLS_ENABLE",
        "NCCL_NVLS_NCHANNELS",
        "NCCL_NVTX_DISABLE",
        "NCCL_OOB_NET_ENABLE",
        "NCCL_OOB_NET_IFNAME",
        "NCCL_P2P_DIRECT_DISABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_P2P_NVL_CHUNKSIZE",
        "NCCL_P2P_PXN_LEVEL",
        "NCCL_PROTO",
        "NCCL_PXN_DISABLE",
        "NCCL_RAS_ENABLE",
        "NCCL_RUNTIME_CONNECT",
        "NCCL_SHM_DISABLE",
        "NCCL_SHM_USE_CUDA_MEMCPY",
        "NCCL_SINGLE_RING_THRESHOLD",
        "NCCL_SOCKET_FAMILY",
        "NCCL_SOCKET_IFNAME",
        "NCCL_SOCKET_NTHREADS",
        "NCCL_WIN_ENABLE",
        "NCCL_WORK_FIFO_BYTES",
};

static bool is_recorded(const char *entry, size_t name_length)
{
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++)
        if (strlen(recorded[i]) == name_length && memcmp(recorded[i], entry, name_length) == 0)
            return true;
    return false;
}

dpb_json *dpb_nccl_environment_json(void)
{
    dpb_json *json = dpb_json_object();
    int64_t others = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, "NCCL_", 5) == 0 && equals &&
            !is_recorded(*entry, (size_t)(equals - *entry)))
            others++;
    }
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        const char *value = getenv(recorded[i]);
        if (value)
            dpb_json_set_string(json, recorded[i], value);
    }
    dpb_json_set_int(json, "others", others);
    return json;
}

/* ---- options ---- */

/* In NCCL's words; a list per collective where an algorithm has only some of them. */
static const char *const algo_text[] = {
        [DPB_COMM_NCCL_ALGO_AUTO] = NULL,
        [DPB_COMM_NCCL_ALGO_RING] = "Ring",
        [DPB_COMM_NCCL_ALGO_TREE] = "allreduce:Tree",
        [DPB_COMM_NCCL_ALGO_NVLS] = "allreduce:NVLS",
};

static const char *const proto_text[] = {
        [DPB_COMM_NCCL_PROTO_AUTO] = NULL,
        [DPB_COMM_NCCL_PROTO_SIMPLE] = "Simple",
        [DPB_COMM_NCCL_PROTO_LL] = "LL",
};

/* NCCL prefers the variable to what a program asks for, so one of them would have no effect. */
static dpb_status check_one_source(const char *option, const char *asked, const char *variable,
                                   int rank)
{
    const char *present = getenv(variable);
    if (!asked || !present || strcasecmp(present, asked) == 0)
        return DPB_OK;
    dpb_error("rank %d: cannot open comm \"nccl\": --%s asks for \"%s\", but the environment says "
              "%s=\"%s\"",
              rank, option, asked, variable, present);
    dpb_log_hint("unset %s, or leave --%s out", variable, option);
    return DPB_ERR_USAGE;
}

static dpb_status check_count(const char *option, int64_t count, const char *variable, int rank)
{
    char text[24];
    if (count <= 0) /* auto */
        return DPB_OK;
    snprintf(text, sizeof(text), "%d", (int)count);
    return check_one_source(option, text, variable, rank);
}

/* Does a list such as "^LL,Simple" or "allreduce:ll128;broadcast:ll" force LL128? A list that
 * begins with ^ takes its members away. */
static bool forces_ll128(const char *value)
{
    bool takes_away = false;
    const char *at = value;
    while (*at) {
        const size_t length = strcspn(at, ",;: ^");
        if (length == 5 && strncasecmp(at, "LL128", 5) == 0 && !takes_away)
            return true;
        at += length;
        if (*at == ';' || *at == ':')
            takes_away = false;
        else if (*at == '^')
            takes_away = true;
        at += *at != '\0';
    }
    return false;
}

static dpb_status check_environment(int rank, int size)
{
    const char *proto = getenv("NCCL_PROTO");
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (proto && forces_ll128(proto)) {
        dpb_error("rank %d: cannot open comm \"nccl\": NCCL_PROTO=\"%s\" forces LL128", rank,
                  proto);
        dpb_log_hint("it damages data silently where the machine does not support it; NCCL uses "
                     "it by itself where it does: unset NCCL_PROTO");
        return DPB_ERR_USAGE;
    }
    if (size > 1 && blocking && blocking[0] && strcmp(blocking, "0") != 0) {
        dpb_error("rank %d: cannot open comm \"nccl\": CUDA_LAUNCH_BLOCKING=%s makes ranks wait "
                  "for each other for ever",
                  rank, blocking);
        dpb_log_hint("unset CUDA_LAUNCH_BLOCKING");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status set_variable(const char *variable, const char *value, int rank)
{
    if (!value || setenv(variable, value, 1) == 0)
        return DPB_OK;
    dpb_error("rank %d: cannot set %s: out of memory", rank, variable);
    return DPB_ERR_NO_MEMORY;
}

dpb_status dpb_nccl_environment_apply(const struct dpb_comm_nccl_options *options, int rank,
                                      int size)
{
    if (options->min_ctas > 0 && options->max_ctas > 0 && options->min_ctas > options->max_ctas) {
        dpb_error("rank %d: cannot open comm \"nccl\": --nccl-min-ctas %d is more than "
                  "--nccl-max-ctas %d",
                  rank, (int)options->min_ctas, (int)options->max_ctas);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(check_environment(rank, size));
    DPB_TRY(check_one_source("nccl-algo", algo_text[options->algo], "NCCL_ALGO", rank));
    DPB_TRY(check_one_source("nccl-proto", proto_text[options->proto], "NCCL_PROTO", rank));
    DPB_TRY(check_count("nccl-min-ctas", options->min_ctas, "NCCL_MIN_CTAS", rank));
    DPB_TRY(check_count("nccl-max-ctas", options->max_ctas, "NCCL_MAX_CTAS", rank));
    if (options->cta_policy != DPB_COMM_NCCL_CTA_DEFAULT)
        DPB_TRY(check_count("nccl-cta-policy", options->cta_policy, "NCCL_CTA_POLICY", rank));
    DPB_TRY(set_variable("NCCL_ALGO", algo_text[options->algo], rank));
    return set_variable("NCCL_PROTO", proto_text[options->proto], rank);
}
