/* comm_shm.c: opening and closing the shared-memory backend, its options and its table. */
#include "shm_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"

/* Longer than most gaps between two ranks that were ready together, shorter than putting a thread
 * to sleep and waking it: 1 to 10 microseconds by processor. */
#define SPINS 200

/* A rank that runs a collective itself has nothing else to do. Where ranks share cores it offers
 * its core to those that are behind, which is cheaper than that they wake it. */
#define BLOCKING_SPINS 4000
#define SHARED_SPINS   20
#define SHARED_YIELDS  200
/* Where it is known that none of those is behind, it waits for another core: about as long as two
 * cores are apart that each went from one rank to the next. */
#define ALONE_SPINS 100

static const struct dpb_choice algorithm_choices[] = {
#define DPB_ALGORITHM_CHOICE(name, text, help) {text, name, help},
        DPB_ALGORITHM_MAP(DPB_ALGORITHM_CHOICE)
#undef DPB_ALGORITHM_CHOICE
                {NULL, 0, NULL},
};

static const struct dpb_choice progress_choices[] = {
        {"thread", DPB_COMM_SHM_THREAD, "a thread of each rank, in the background"},
        {"none", DPB_COMM_SHM_NONE, "nobody, until the rank waits: nothing overlaps"},
        {NULL, 0, NULL},
};

static const struct dpb_option rows[] = {
        {
                .name = "algorithm",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_shm_options, algorithm),
                .default_text = "direct",
                .choices = algorithm_choices,
                .category = "Communication",
                .help = "how collectives move the data",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "link",
                .type = DPB_OPT_LINK,
                .offset = offsetof(struct dpb_comm_shm_options, link),
                .default_text = "none",
                .category = "Communication",
                .help = "emulate a network link of this rate and latency, such as 25Gbps,5us",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "link-inside",
                .type = DPB_OPT_LINK,
                .offset = offsetof(struct dpb_comm_shm_options, link_inside),
                .default_text = "none",
                .category = "Communication",
                .help = "with --algorithm hierarchical: the link between ranks of one node, when "
                        "it "
                        "is another one than --link",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "progress",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_comm_shm_options, progress),
                .default_text = "thread",
                .choices = progress_choices,
                .category = "Communication",
                .help = "who executes collectives while the rank computes",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

const struct dpb_option_table dpb_comm_shm_table = {
        .kind = "comm",
        .owner = "shm",
        .rows = rows,
        .row_count = sizeof(rows) / sizeof(rows[0]),
        .config_bytes = sizeof(struct dpb_comm_shm_options),
};

/* What the ranks tell each other when they open; compared bytewise, so without padding. */
struct greeting {
    int64_t algorithm, ranks_per_node, progress;
    double bw_bytes_per_s, inside_bw_bytes_per_s;
    int64_t latency_ns, inside_latency_ns;
};

static dpb_status probe(char *why, size_t why_bytes)
{
    int fd = memfd_create("dpbench-probe", MFD_CLOEXEC);
    if (fd < 0) {
        snprintf(why, why_bytes, "not available here, because memfd_create failed: %s",
                 strerror(errno));
        return DPB_ERR_UNAVAILABLE;
    }
    close(fd);
    return DPB_OK;
}

static dpb_status check_config(const struct dpb_comm_config *config)
{
    const char *problem = NULL;
    if (config->size < 1 || config->size > DPB_COMM_RANKS_MAX)
        problem = "comm \"shm\" works with 1 to 64 ranks";
    else if (config->rank < 0 || config->rank >= config->size)
        problem = "the rank is not among the ranks";
    else if (config->timeout_ns <= 0)
        problem = "the time-out must be positive";
    else if (config->segment_fd < 0)
        problem = "no shared segment was given (dpb_comm_segment_new)";
    if (!problem)
        return DPB_OK;
    dpb_error("rank %d of %d: cannot open comm \"shm\": %s", config->rank, config->size, problem);
    return DPB_ERR_USAGE;
}

static dpb_status check_options(const struct dpb_shm_comm *comm)
{
    const struct dpb_comm_shm_options *options = &comm->options;
    bool has_inside = options->link_inside.bw_bytes_per_s > 0;
    char why[DPB_SHM_TEXT];
    if (dpb_algorithm_check(&comm->setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)) < 0) {
        dpb_error("rank %d: cannot open comm \"shm\": %s", comm->base.rank, why);
        dpb_log_hint("choose --ranks-per-node so that every node has as many ranks");
        return DPB_ERR_USAGE;
    }
    if (has_inside && (comm->setup.algorithm != DPB_ALGORITHM_HIERARCHICAL ||
                       !(options->link.bw_bytes_per_s > 0))) {
        dpb_error("rank %d: cannot open comm \"shm\": --link-inside has no effect without "
                  "--algorithm hierarchical and --link",
                  comm->base.rank);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status map_control(struct dpb_shm_comm *comm)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = offsetof(struct dpb_shm_control, rank) +
                   (size_t)comm->base.size * sizeof(struct dpb_shm_rank);
    bytes = (bytes + page - 1) / page * page;
    struct stat segment;
    void *control = MAP_FAILED;
    /* All ranks grow it to the same size, and nobody ever makes it smaller. */
    if (fstat(comm->fd, &segment) == 0 &&
        (segment.st_size >= (off_t)bytes || ftruncate(comm->fd, (off_t)bytes) == 0))
        control = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, comm->fd, 0);
    if (control == MAP_FAILED) {
        dpb_error("rank %d: cannot map the shared segment (descriptor %d): %s", comm->base.rank,
                  comm->fd, strerror(errno));
        dpb_log_hint("the launcher must pass on the descriptor that dpb_comm_segment_new() made");
        return DPB_ERR_IO;
    }
    comm->control = control;
    comm->control_bytes = bytes;
    comm->self = &comm->control->rank[comm->base.rank];
    comm->file_end = (int64_t)bytes;
    dpb_shm_populate(control, bytes);
    return DPB_OK;
}

/* One world: the same size on all ranks, and every rank once. */
static dpb_status take_place(struct dpb_shm_comm *comm)
{
    int32_t size = 0;
    if (!atomic_compare_exchange_strong(&comm->control->size, &size, comm->base.size) &&
        size != comm->base.size)
        return dpb_shm_fail(comm, DPB_ERR_MISMATCH, "start all ranks with the same --ranks",
                            "rank %d was told that there are %d ranks, another rank was told %d",
                            comm->base.rank, comm->base.size, size);
    int32_t pid = 0;
    if (!atomic_compare_exchange_strong(&comm->self->pid, &pid, (int32_t)getpid()))
        return dpb_shm_fail(comm, DPB_ERR_MISMATCH,
                            "every rank opens once, and a segment serves one communicator only",
                            "rank %d is in use by process %d, so process %d cannot be it",
                            comm->base.rank, pid, (int)getpid());
    return DPB_OK;
}

static void append_greeting(struct dpb_str *text, int rank, const struct greeting *said)
{
    dpb_str_appendf(text, "%srank %d: algorithm %s, %" PRId64 " ranks per node, progress %s, ",
                    text->length ? "; " : "", rank,
                    dpb_algorithm_text((enum dpb_algorithm)said->algorithm), said->ranks_per_node,
                    said->progress == DPB_COMM_SHM_THREAD ? "thread" : "none");
    dpb_str_appendf(text, "link %g B/s, %" PRId64 " ns", said->bw_bytes_per_s, said->latency_ns);
    if (said->inside_bw_bytes_per_s > 0)
        dpb_str_appendf(text, ", inside nodes %g B/s, %" PRId64 " ns", said->inside_bw_bytes_per_s,
                        said->inside_latency_ns);
}

static dpb_status greet(struct dpb_shm_comm *comm)
{
    const struct dpb_comm_shm_options *options = &comm->options;
    const struct greeting mine = {options->algorithm,
                                  comm->setup.ranks_per_node,
                                  options->progress,
                                  options->link.bw_bytes_per_s,
                                  options->link_inside.bw_bytes_per_s,
                                  options->link.latency_ns,
                                  options->link_inside.latency_ns};
    DPB_TRY(dpb_shm_call_all(comm, DPB_SHM_CALL_OPEN, &mine, sizeof(mine)));
    for (int r = 0; r < comm->base.size; r++) {
        struct greeting other;
        struct dpb_str text = {0};
        memcpy(&other, dpb_shm_call_data(comm, r), sizeof(other));
        if (memcmp(&other, &mine, sizeof(mine)) == 0)
            continue;
        append_greeting(&text, comm->base.rank, &mine);
        append_greeting(&text, r, &other);
        dpb_status st = dpb_shm_fail(
                comm, DPB_ERR_MISMATCH, "start all ranks with the same options",
                "rank %d: open: ranks disagree: %s", comm->base.rank, text.text ? text.text : "");
        dpb_str_release(&text);
        return st;
    }
    return DPB_OK;
}

/* Spinning this short pays only where no other rank waits for the core. With an emulated link it
 * could gain nothing, since results are held back anyway, and would take computing time. */
static dpb_status choose_spins(struct dpb_shm_comm *comm)
{
    cpu_set_t mine;
    cpu_set_t all;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    /* Fails on machines with more processors than the set holds: no spinning there. */
    if (sched_getaffinity(0, sizeof(mine), &mine) < 0)
        CPU_ZERO(&mine);
    DPB_TRY(dpb_shm_call_all(comm, DPB_SHM_CALL_OPEN, &mine, sizeof(mine)));
    for (int r = 0; r < comm->base.size; r++) {
        cpu_set_t other;
        memcpy(&other, dpb_shm_call_data(comm, r), sizeof(other));
        CPU_OR(&all, &all, &other);
        if (r != comm->base.rank && CPU_COUNT(&mine) == 1 && CPU_EQUAL(&mine, &other))
            comm->neighbours |= (uint64_t)1 << r;
    }
    bool emulated = comm->options.link.bw_bytes_per_s > 0;
    bool own_cores = CPU_COUNT(&all) >= comm->base.size;
    if (!emulated && own_cores) {
        comm->background = (struct dpb_shm_patience){SPINS, SPINS, 0};
        comm->blocking = (struct dpb_shm_patience){BLOCKING_SPINS, BLOCKING_SPINS, 0};
    } else if (!emulated) {
        comm->blocking = (struct dpb_shm_patience){SHARED_SPINS, ALONE_SPINS, SHARED_YIELDS};
    }
    comm->patience = comm->background;
    return DPB_OK;
}

static void release(struct dpb_shm_comm *comm)
{
    dpb_shm_buffers_unmap(comm);
    if (comm->control)
        munmap(comm->control, comm->control_bytes);
    pthread_mutex_destroy(&comm->start_lock);
    pthread_mutex_destroy(&comm->fail_lock);
    pthread_mutex_destroy(&comm->execute_lock);
    free(comm);
}

static dpb_status open_shm(const struct dpb_comm_config *config, dpb_comm **opened)
{
    DPB_TRY(check_config(config));
    struct dpb_shm_comm *comm = aligned_alloc(DPB_SHARED_LINE, sizeof(*comm));
    if (!comm) {
        dpb_error("rank %d: cannot open comm \"shm\": out of memory", config->rank);
        return DPB_ERR_NO_MEMORY;
    }
    memset(comm, 0, sizeof(*comm));
    comm->base = (struct dpb_comm_base){&dpb_comm_shm_ops, config->rank, config->size,
                                        config->local_rank, config->node};
    if (config->options)
        comm->options = *(const struct dpb_comm_shm_options *)config->options;
    comm->setup = (struct dpb_algorithm_setup){
            .algorithm = (enum dpb_algorithm)comm->options.algorithm,
            .ranks = config->size,
            .ranks_per_node = config->ranks_per_node > 0 ? config->ranks_per_node : config->size,
            .link = comm->options.link,
            .inside = comm->options.link_inside,
    };
    comm->timeout_ns = config->timeout_ns;
    comm->fd = config->segment_fd;
    comm->queued.local = 1;
    comm->completed.local = 1;
    pthread_mutex_init(&comm->start_lock, NULL);
    pthread_mutex_init(&comm->fail_lock, NULL);
    pthread_mutex_init(&comm->execute_lock, NULL);

    dpb_status st;
    DPB_TRY_GOTO(st, check_options(comm), err);
    DPB_TRY_GOTO(st, map_control(comm), err);
    DPB_TRY_GOTO(st, take_place(comm), err);
    DPB_TRY_GOTO(st, greet(comm), err);
    DPB_TRY_GOTO(st, choose_spins(comm), err);
    if (comm->options.progress == DPB_COMM_SHM_THREAD)
        DPB_TRY_GOTO(st, dpb_shm_progress_start(comm), err);
    *opened = (dpb_comm *)comm;
    return DPB_OK;

err:
    release(comm);
    return st;
}

static void close_shm(dpb_comm *handle)
{
    if (!handle)
        return;
    struct dpb_shm_comm *comm = dpb_shm_of(handle);
    dpb_shm_progress_stop(comm);
    /* Whoever waits for this rank now, or later, learns at once that it will not come. */
    atomic_fetch_or(&comm->control->closed, (uint64_t)1 << comm->base.rank);
    dpb_shared_word_nudge(&comm->control->ready.epoch);
    dpb_shared_word_nudge(&comm->control->call.epoch);
    dpb_shared_word_nudge(&comm->self->met[DPB_SHM_READY]);
    dpb_shared_word_nudge(&comm->self->met[DPB_SHM_CALLED]);
    release(comm);
}

static dpb_json *link_json(const struct dpb_link *link)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_real(json, "bw_bytes_per_s", link->bw_bytes_per_s);
    dpb_json_set_int(json, "latency_ns", link->latency_ns);
    return json;
}

static dpb_json *describe(dpb_comm *handle)
{
    const struct dpb_shm_comm *comm = dpb_shm_of(handle);
    bool emulated = comm->options.link.bw_bytes_per_s > 0;
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "name", comm->base.ops->name);
    dpb_json_set_string(json, "algorithm", dpb_algorithm_text(comm->setup.algorithm));
    dpb_json_set_int(json, "ranks_per_node", comm->setup.ranks_per_node);
    dpb_json_set_string(json, "progress", progress_choices[comm->options.progress].name);
    dpb_json_set_bool(json, "emulated", emulated);
    if (emulated)
        dpb_json_set(json, "link", link_json(&comm->options.link));
    else
        dpb_json_set_absent(json, "link", "no link is emulated: the ranks share memory");
    if (comm->options.link_inside.bw_bytes_per_s > 0)
        dpb_json_set(json, "link_inside", link_json(&comm->options.link_inside));
    dpb_json_set_int(json, "spins", comm->background.spins);
    return json;
}

static void abort_shm(dpb_comm *handle, const char *reason)
{
    struct dpb_shm_comm *comm = dpb_shm_of(handle);
    dpb_shm_fail(comm, DPB_ERR_RANK_FAILED, NULL, "rank %d gave up: %s", comm->base.rank,
                 reason ? reason : "no reason given");
}

static void stats(dpb_comm *handle, struct dpb_comm_stats *out)
{
    struct dpb_shm_comm *comm = dpb_shm_of(handle);
    int64_t cpu_ns = 0;
    clockid_t clock;
    struct timespec time;
    if (comm->thread_runs && pthread_getcpuclockid(comm->thread, &clock) == 0 &&
        clock_gettime(clock, &time) == 0)
        cpu_ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    *out = (struct dpb_comm_stats){
            .collectives = atomic_load(&comm->collectives),
            .wire_bytes = atomic_load(&comm->wire_bytes),
            .wire_between_bytes = atomic_load(&comm->wire_between_bytes),
            .progress_cpu_ns = cpu_ns,
            .wakeups = atomic_load(&comm->lateness.count),
            .wake_late_p50_ns = dpb_shm_histogram_quantile_ns(&comm->lateness, 0.50),
            .wake_late_p99_ns = dpb_shm_histogram_quantile_ns(&comm->lateness, 0.99),
            .wake_late_max_ns = atomic_load(&comm->lateness.max_ns),
            .link_late = atomic_load(&comm->link_late),
    };
}

static int64_t wire_ns(dpb_comm *handle, enum dpb_coll_kind kind, int64_t bytes)
{
    const struct dpb_shm_comm *comm = dpb_shm_of(handle);
    if (!(comm->options.link.bw_bytes_per_s > 0))
        return -1;
    return dpb_setup_wire_ns(&comm->setup, kind, bytes);
}

const struct dpb_comm_ops dpb_comm_shm_ops = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "shm",
        .summary = "memory that the ranks of one machine share, with an optional emulated link",
        .flags = DPB_COMM_EMULATED | DPB_COMM_SEGMENT,
        .options = &dpb_comm_shm_table,
        .probe = probe,
        .open = open_shm,
        .close = close_shm,
        .describe = describe,
        .buffer_alloc = dpb_shm_buffer_alloc,
        .buffer_free = dpb_shm_buffer_free,
        .barrier = dpb_shm_barrier_call,
        .exchange = dpb_shm_exchange,
        .start = dpb_shm_start,
        .test = dpb_shm_test,
        .wait = dpb_shm_wait,
        .abort = abort_shm,
        .stats = stats,
        .wire_ns = wire_ns,
        .run = dpb_shm_run,
};
