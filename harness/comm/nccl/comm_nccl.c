/* comm_nccl.c: opening and closing comm "nccl", what it says about itself, and its table. */
#include "nccl_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "nccl_environment.h"
#include "nccl_profile.h"

static dpb_status probe(char *why, size_t why_bytes)
{
    const struct dpb_nccl_table *table;
    char reason[DPB_NCCL_WHY];
    int devices = 0;
    if (dpb_nccl_table_get(&table, reason, sizeof(reason)) < 0) {
        snprintf(why, why_bytes, "not available here, because %s", reason);
        return DPB_ERR_UNAVAILABLE;
    }
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        snprintf(why, why_bytes, "not available here, because there is no GPU: %s",
                 error != cudaSuccess ? cudaGetErrorString(error) : "CUDA sees none");
        return DPB_ERR_UNAVAILABLE;
    }
    return DPB_OK;
}

/* ---- open ---- */

static dpb_status check_config(const struct dpb_comm_config *config)
{
    const char *problem = NULL;
    if (!config->device || !(dpb_device_get_ops(config->device)->flags & DPB_DEVICE_ACCELERATOR) ||
        !dpb_device_get_ops(config->device)->stream_native)
        problem = "it moves memory of GPUs, so it needs device \"cuda\" (--device cuda)";
    else if (!config->server && config->size > DPB_COMM_RANKS_MAX)
        problem = "at most 64 ranks of one machine find each other in its memory";
    if (!problem)
        return DPB_OK;
    dpb_error("rank %d of %d: cannot open comm \"nccl\": %s", config->rank, config->size, problem);
    return DPB_ERR_USAGE;
}

/* What all ranks must be told alike; compared bytewise, so without padding. */
struct greeting {
    int64_t version, algo, proto, min_ctas, max_ctas, cta_policy, registration, profile;
};

static dpb_status greet(struct dpb_nccl_comm *comm)
{
    const struct dpb_comm_nccl_options *options = &comm->options;
    const struct greeting mine = {comm->version,         options->algo,     options->proto,
                                  options->min_ctas,     options->max_ctas, options->cta_policy,
                                  options->registration, options->profile};
    struct greeting *all = comm->gathered;
    _Static_assert(sizeof(*all) <= DPB_NCCL_GATHER_BYTES, "as many as are gathered");
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "options", &mine, sizeof(mine), all));
    for (int r = 0; r < comm->base.size; r++) {
        if (all[r].version != mine.version)
            return dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_MISMATCH,
                                       "use one installation of NCCL for all ranks",
                                       "rank %d has NCCL %d, rank %d has %d (NCCL_VERSION_CODE)",
                                       comm->base.rank, comm->version, r, (int)all[r].version);
        if (memcmp(&all[r], &mine, sizeof(mine)) != 0)
            return dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_MISMATCH,
                                       "start all ranks with the same options",
                                       "rank %d: open: ranks disagree: ranks %d and %d have other "
                                       "--nccl options",
                                       comm->base.rank, comm->base.rank, r);
    }
    return DPB_OK;
}

static ncclConfig_t nccl_config(const struct dpb_comm_nccl_options *options)
{
    static const int policy[] = {
            [DPB_COMM_NCCL_CTA_DEFAULT] = NCCL_CTA_POLICY_DEFAULT,
            [DPB_COMM_NCCL_CTA_EFFICIENCY] = NCCL_CTA_POLICY_EFFICIENCY,
            [DPB_COMM_NCCL_CTA_ZERO] = NCCL_CTA_POLICY_ZERO,
    };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options->min_ctas > 0) /* not auto */
        config.minCTAs = (int)options->min_ctas;
    if (options->max_ctas > 0)
        config.maxCTAs = (int)options->max_ctas;
    if (options->cta_policy != DPB_COMM_NCCL_CTA_DEFAULT)
        config.CTAPolicy = policy[options->cta_policy];
    return config;
}

static dpb_status connect_ranks(struct dpb_nccl_comm *comm, const char *subject)
{
    ncclUniqueId mine;
    ncclUniqueId *all = comm->gathered;
    _Static_assert(sizeof(*all) <= DPB_NCCL_GATHER_BYTES, "as many as are gathered");
    ncclConfig_t config = nccl_config(&comm->options);
    memset(&mine, 0, sizeof(mine));
    if (comm->base.rank == 0) {
        ncclResult_t result = comm->nccl->ncclGetUniqueId(&mine);
        if (result != ncclSuccess)
            return dpb_nccl_failed(comm, subject, "ncclGetUniqueId", result);
    }
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "unique id", &mine, sizeof(mine), all));
    pthread_mutex_lock(&comm->call_lock);
    ncclResult_t result = comm->nccl->ncclCommInitRankConfig(&comm->comm, comm->base.size, all[0],
                                                             comm->base.rank, &config);
    dpb_status st = dpb_nccl_settle(comm, subject, "ncclCommInitRankConfig", result);
    pthread_mutex_unlock(&comm->call_lock);
    return st;
}

/* Everything is made now: creating it beside a running collective may wait for that one. */
static dpb_status make_streams(struct dpb_nccl_comm *comm, const char *subject)
{
    int least;
    int greatest;
    DPB_NCCL_CUDA(comm, subject, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    DPB_NCCL_CUDA(comm, subject,
                  cudaStreamCreateWithPriority(&comm->stream, cudaStreamNonBlocking, greatest));
    DPB_NCCL_CUDA(comm, subject, cudaEventCreateWithFlags(&comm->ready, cudaEventDisableTiming));
    for (int i = 0; i < DPB_NCCL_REQUESTS; i++) {
        DPB_NCCL_CUDA(comm, subject,
                      cudaEventCreateWithFlags(&comm->request[i].begin, cudaEventDefault));
        DPB_NCCL_CUDA(comm, subject,
                      cudaEventCreateWithFlags(&comm->request[i].end, cudaEventDefault));
    }
    return dpb_nccl_clock_open(comm);
}

static void destroy_streams(struct dpb_nccl_comm *comm)
{
    dpb_nccl_clock_close(comm);
    for (int i = 0; i < DPB_NCCL_REQUESTS; i++) {
        if (comm->request[i].begin)
            cudaEventDestroy(comm->request[i].begin);
        if (comm->request[i].end)
            cudaEventDestroy(comm->request[i].end);
    }
    if (comm->ready)
        cudaEventDestroy(comm->ready);
    if (comm->stream)
        cudaStreamDestroy(comm->stream);
}

/* NCCL's communicator is gone by now, unless it was abandoned: then freeing anything of CUDA's may
 * wait for a kernel that never ends. */
static void release(struct dpb_nccl_comm *comm)
{
    if (!atomic_load(&comm->abandoned) && comm->nccl) {
        dpb_nccl_buffers_release(comm);
        destroy_streams(comm);
    }
    dpb_rendezvous_close(comm->rendezvous);
    pthread_mutex_destroy(&comm->call_lock);
    pthread_mutex_destroy(&comm->lock);
    pthread_mutex_destroy(&comm->stop_lock);
    free(comm->gathered);
    free(comm);
}

static dpb_status load_nccl(struct dpb_nccl_comm *comm)
{
    char why[DPB_NCCL_WHY];
    const struct dpb_nccl_table *table;
    DPB_TRY(dpb_nccl_environment_apply(&comm->options, comm->base.rank, comm->base.size));
    if (comm->options.profile)
        DPB_TRY(dpb_nccl_profile_enable(comm->base.rank));
    dpb_status st = dpb_nccl_table_get(&table, why, sizeof(why));
    if (st < 0) {
        dpb_error("rank %d: cannot open comm \"nccl\": %s", comm->base.rank, why);
        return st;
    }
    comm->nccl = table;
    (void)table->ncclGetVersion(&comm->version); /* it told dpb_nccl_table_get() */
    return DPB_OK;
}

static dpb_status open_ranks(struct dpb_nccl_comm *comm, const struct dpb_comm_config *config)
{
    const struct dpb_rendezvous_config meeting = {
            .owner = "comm \"nccl\"",
            .rank = config->rank,
            .size = config->size,
            .segment_fd = config->segment_fd,
            .server = config->server,
            .timeout_ns = config->timeout_ns,
    };
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: open", config->rank);
    /* First of all, so that whatever fails on one rank is told to the others. */
    DPB_TRY(dpb_rendezvous_open(&meeting, &comm->rendezvous));
    DPB_TRY(load_nccl(comm));
    DPB_TRY(greet(comm));
    DPB_NCCL_CUDA(comm, subject, cudaGetDevice(&comm->cuda_device));
    DPB_TRY(dpb_nccl_identity_check(comm));
    DPB_TRY(make_streams(comm, subject));
    DPB_TRY(connect_ranks(comm, subject));
    DPB_TRY(dpb_nccl_watchdog_start(comm));
    return dpb_rendezvous_exchange(comm->rendezvous, "opened", NULL, 0, NULL);
}

static struct dpb_nccl_comm *new_comm(const struct dpb_comm_config *config)
{
    struct dpb_nccl_comm *comm = calloc(1, sizeof(*comm));
    void *gathered = calloc((size_t)config->size, DPB_NCCL_GATHER_BYTES);
    if (!comm || !gathered) {
        free(comm);
        free(gathered);
        return NULL;
    }
    comm->gathered = gathered;
    comm->base = (struct dpb_comm_base){&dpb_comm_nccl_ops, config->rank, config->size,
                                        config->local_rank, config->node};
    if (config->options)
        comm->options = *(const struct dpb_comm_nccl_options *)config->options;
    comm->device = config->device;
    const bool is_one_node = config->ranks_per_node == 0 || config->ranks_per_node >= config->size;
    comm->wire_between_bytes = is_one_node ? 0 : DPB_WIRE_UNKNOWN;
    comm->timeout_ns = config->timeout_ns;
    comm->abort_timeout_ns =
            config->timeout_ns < DPB_NCCL_ABORT_NS ? config->timeout_ns : DPB_NCCL_ABORT_NS;
    pthread_mutex_init(&comm->call_lock, NULL);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->stop_lock, NULL);
    return comm;
}

/* End what NCCL has, in one way or the other. */
static void disconnect(struct dpb_nccl_comm *comm, bool failed)
{
    const bool watched = comm->watchdog_runs;
    if (failed && comm->rendezvous && dpb_rendezvous_check(comm->rendezvous, "open") == DPB_OK)
        /* Logged already, by who knew; the others must not wait. */
        dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_RANK_FAILED, NULL, "rank %d cannot go on",
                            comm->base.rank);
    dpb_nccl_watchdog_stop(comm);
    if (!watched && comm->comm)
        dpb_nccl_abort_now(comm);
}

static dpb_status open_nccl(const struct dpb_comm_config *config, dpb_comm **opened)
{
    dpb_status st;
    DPB_TRY(check_config(config));
    struct dpb_nccl_comm *comm = new_comm(config);
    if (!comm) {
        dpb_error("rank %d: cannot open comm \"nccl\": out of memory", config->rank);
        return DPB_ERR_NO_MEMORY;
    }
    DPB_TRY_GOTO(st, open_ranks(comm, config), err);
    *opened = (dpb_comm *)comm;
    return DPB_OK;

err:
    disconnect(comm, true);
    release(comm);
    return st;
}

/* ---- close ---- */

/* Orderly: everything that was started ends, then NCCL. Holds call_lock. */
static dpb_status finalize(struct dpb_nccl_comm *comm, const char *subject)
{
    DPB_NCCL_CUDA(comm, subject, cudaSetDevice(comm->cuda_device));
    DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
    DPB_TRY(dpb_nccl_buffers_deregister(comm, subject));
    dpb_nccl_ops_release(comm);
    DPB_TRY(dpb_nccl_settle(comm, subject, "ncclCommFinalize",
                            comm->nccl->ncclCommFinalize(comm->comm)));
    ncclComm_t gone = comm->comm;
    comm->comm = NULL; /* also when this fails: nobody may touch it again */
    ncclResult_t result = comm->nccl->ncclCommDestroy(gone);
    if (result != ncclSuccess && result != ncclInProgress)
        return dpb_nccl_failed(comm, subject, "ncclCommDestroy", result);
    return DPB_OK;
}

static void close_nccl(dpb_comm *handle)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    char subject[DPB_NCCL_SUBJECT];
    if (!comm)
        return;
    snprintf(subject, sizeof(subject), "rank %d: close", comm->base.rank);
    if (dpb_nccl_drain(comm, UINT64_MAX, subject) == DPB_OK) {
        pthread_mutex_lock(&comm->call_lock);
        /* A failure is logged, and the watchdog aborts what is left. */
        (void)finalize(comm, subject);
        pthread_mutex_unlock(&comm->call_lock);
    }
    disconnect(comm, false);
    release(comm);
}

/* ---- describe, stats, the rest ---- */

static void describe_gpu(const struct dpb_nccl_comm *comm, dpb_json *json)
{
    char uuid[48];
    char bus[32];
    dpb_nccl_uuid_text(comm->identity.uuid, uuid);
    snprintf(bus, sizeof(bus), "%04x:%02x:%02x", (unsigned)comm->identity.domain,
             (unsigned)comm->identity.bus, (unsigned)comm->identity.slot);
    dpb_json_set_string(json, "gpu", comm->identity.name);
    dpb_json_set_string(json, "gpu_uuid", uuid);
    dpb_json_set_string(json, "gpu_pci", bus);
}

static dpb_json *choice_or_absent(int64_t count)
{
    return count > 0 ? dpb_json_int(count) : dpb_json_null();
}

static const char *choice_name(const char *option, int value)
{
    for (size_t i = 0; i < dpb_comm_nccl_table.row_count; i++) {
        const struct dpb_option *row = &dpb_comm_nccl_table.rows[i];
        if (strcmp(row->name, option) != 0)
            continue;
        for (const struct dpb_choice *choice = row->choices; choice->name; choice++)
            if (choice->value == value)
                return choice->name;
    }
    return "unknown";
}

static void describe_asked(const struct dpb_nccl_comm *comm, dpb_json *json)
{
    const struct dpb_comm_nccl_options *options = &comm->options;
    dpb_json *asked = dpb_json_object();
    dpb_json_set_string(asked, "algorithm", choice_name("nccl-algo", options->algo));
    dpb_json_set_string(asked, "protocol", choice_name("nccl-proto", options->proto));
    dpb_json_set(asked, "min_ctas", choice_or_absent(options->min_ctas));
    dpb_json_set(asked, "max_ctas", choice_or_absent(options->max_ctas));
    dpb_json_set_string(asked, "cta_policy", choice_name("nccl-cta-policy", options->cta_policy));
    dpb_json_set_string(asked, "register", choice_name("nccl-register", options->registration));
    dpb_json_set(json, "asked", asked);
}

static dpb_json *describe(dpb_comm *handle)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    dpb_json *json = dpb_json_object();
    char version[32];
    int64_t registered_bytes = 0;
    int64_t buffer_bytes = 0;
    pthread_mutex_lock(&comm->call_lock);
    for (int i = 0; i < comm->buffer_count; i++) {
        buffer_bytes += (int64_t)comm->buffer[i].bytes;
        registered_bytes += comm->buffer[i].handle ? (int64_t)comm->buffer[i].bytes : 0;
    }
    const int64_t staging_bytes = (int64_t)comm->staging_bytes;
    const int64_t uneven = comm->uneven;
    const int64_t error_ns = comm->clock.anchor[comm->clock.newer].error_ns;
    pthread_mutex_unlock(&comm->call_lock);

    snprintf(version, sizeof(version), "%d.%d.%d", comm->version / 10000, comm->version / 100 % 100,
             comm->version % 100);
    dpb_json_set_string(json, "name", comm->base.ops->name);
    dpb_json_set_string(json, "nccl_version", version);
    dpb_json_set_int(json, "nccl_header_version_code", NCCL_VERSION_CODE);
    dpb_json_set_string(json, "algorithm", choice_name("nccl-algo", comm->options.algo));
    describe_asked(comm, json);
    dpb_json_set_bool(json, "profiled", comm->options.profile);
    if (comm->options.profile)
        dpb_json_set(json, "used", dpb_nccl_profile_json());
    else
        dpb_json_set_absent(json, "used", "NCCL tells it only with --nccl-profile on");
    dpb_json_set_bool(json, "emulated", false);
    dpb_json_set_absent(json, "link", "no link is emulated: NCCL moves the data");
    describe_gpu(comm, json);
    dpb_json_set_int(json, "buffer_bytes", buffer_bytes);
    dpb_json_set_int(json, "registered_bytes", registered_bytes);
    dpb_json_set_int(json, "staging_bytes", staging_bytes);
    dpb_json_set_int(json, "uneven_collectives", uneven);
    dpb_json_set_int(json, "clock_error_ns", error_ns);
    dpb_json_set(json, "environment", dpb_nccl_environment_json());
    return json;
}

static dpb_status barrier(dpb_comm *handle)
{
    return dpb_rendezvous_exchange(dpb_nccl_of(handle)->rendezvous, "barrier", NULL, 0, NULL);
}

static dpb_status exchange(dpb_comm *handle, const void *mine, size_t bytes, void *all)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    if (bytes == 0) {
        dpb_error("rank %d: cannot exchange 0 bytes: 1 to %d are possible", comm->base.rank,
                  DPB_COMM_EXCHANGE_BYTES);
        return DPB_ERR_USAGE;
    }
    return dpb_rendezvous_exchange(comm->rendezvous, "exchange", mine, bytes, all);
}

static void abort_nccl(dpb_comm *handle, const char *reason)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    /* The watchdog of every rank sees it, and aborts NCCL there. */
    dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_RANK_FAILED, NULL, "rank %d gave up: %s",
                        comm->base.rank, reason ? reason : "no reason given");
}

static void stats(dpb_comm *handle, struct dpb_comm_stats *out)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    clockid_t clock;
    struct timespec time;
    int64_t cpu_ns = 0;
    if (comm->watchdog_runs && pthread_getcpuclockid(comm->watchdog, &clock) == 0 &&
        clock_gettime(clock, &time) == 0)
        cpu_ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    pthread_mutex_lock(&comm->lock);
    *out = (struct dpb_comm_stats){.collectives = (int64_t)comm->completed,
                                   .wire_bytes = comm->wire_bytes,
                                   .wire_between_bytes = comm->wire_between_bytes,
                                   .progress_cpu_ns = cpu_ns};
    pthread_mutex_unlock(&comm->lock);
}

const struct dpb_comm_ops dpb_comm_nccl_ops = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "nccl",
        .summary = "NVIDIA's NCCL between the GPUs of one machine, one process per GPU",
        .flags = DPB_COMM_DEVICE_MEMORY | DPB_COMM_SEGMENT,
        .options = &dpb_comm_nccl_table,
        .probe = probe,
        .open = open_nccl,
        .close = close_nccl,
        .describe = describe,
        .buffer_alloc = dpb_nccl_buffer_alloc,
        .buffer_free = dpb_nccl_buffer_free,
        .barrier = barrier,
        .exchange = exchange,
        .start = dpb_nccl_start,
        .test = dpb_nccl_test,
        .wait = dpb_nccl_wait,
        .abort = abort_nccl,
        .stats = stats,
};
