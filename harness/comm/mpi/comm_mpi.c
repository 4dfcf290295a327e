/* comm_mpi.c: opening and closing the MPI backend, and its table. */
#include "mpi_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_mpi_start.h"
#include "dpb_str.h"
#include "mpi_piece.h"

#define HELLO_TAG 7341

/* What ranks tell each other when they open. */
struct hello {
    int64_t algorithm, ranks_per_node;
    char host[DPB_MPI_HOST_BYTES];
};

static dpb_status probe(char *why, size_t why_bytes)
{
    struct dpb_mpi_start start;
    int is_started = 0;
    MPI_Initialized(&is_started);
    return is_started ? DPB_OK : dpb_mpi_start_find(&start, why, why_bytes);
}

static dpb_status check_config(const struct dpb_comm_config *config)
{
    const char *problem = NULL;
    if (config->size < 1)
        problem = "there is no rank";
    else if (config->rank < 0 || config->rank >= config->size)
        problem = "the rank is not among the ranks";
    else if (config->timeout_ns <= 0)
        problem = "the time-out must be positive";
    if (!problem)
        return DPB_OK;
    dpb_error("rank %d of %d: cannot open comm \"mpi\": %s", config->rank, config->size, problem);
    return DPB_ERR_USAGE;
}

static dpb_status refuse_world(const struct dpb_comm_config *config, int rank, int size)
{
    dpb_error("rank %d of %d: cannot open comm \"mpi\": MPI says that this is rank %d of %d",
              config->rank, config->size, rank, size);
    dpb_log_hint("mpirun starts the ranks: give it as many, and of the MPI that dpbench is built "
                 "with");
    return DPB_ERR_MISMATCH;
}

/* Before MPI starts, where the launcher has told: a wrong one would wait for the others in vain. */
static dpb_status check_launcher(const struct dpb_comm_config *config)
{
    struct dpb_mpi_start start;
    char why[DPB_MPI_TEXT];
    int is_started = 0;
    MPI_Initialized(&is_started);
    if (is_started)
        return DPB_OK;
    dpb_status st = dpb_mpi_start_find(&start, why, sizeof(why));
    if (st < 0) {
        dpb_error("comm \"mpi\" is %s", why);
        return st;
    }
    if (start.rank != config->rank || start.size != config->size)
        return refuse_world(config, start.rank, start.size);
    return DPB_OK;
}

static dpb_status check_world(const struct dpb_comm_config *config)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return rank == config->rank && size == config->size ? DPB_OK : refuse_world(config, rank, size);
}

static dpb_status choose_algorithm(struct dpb_mpi_comm *comm)
{
    char why[DPB_MPI_TEXT];
    bool is_library = comm->options.algorithm == DPB_COMM_MPI_LIBRARY;
    if (!is_library)
        comm->setup.algorithm = (enum dpb_algorithm)comm->options.algorithm;
    if (!is_library && comm->setup.algorithm == DPB_ALGORITHM_DIRECT)
        snprintf(why, sizeof(why), "there is no algorithm \"direct\" over messages");
    else if (dpb_algorithm_check(&comm->setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)) == DPB_OK)
        return DPB_OK;
    dpb_error("rank %d: cannot open comm \"mpi\": %s", comm->base.rank, why);
    dpb_log_hint("choose another --mpi-algorithm, or --ranks-per-node so that every node has as "
                 "many ranks");
    return DPB_ERR_USAGE;
}

static dpb_status compare(const struct dpb_mpi_comm *comm, const struct hello *all)
{
    const struct hello *mine = &all[comm->base.rank];
    for (int r = 0; r < comm->base.size; r++) {
        if (all[r].algorithm == mine->algorithm && all[r].ranks_per_node == mine->ranks_per_node)
            continue;
        dpb_error("rank %d: open: ranks disagree: rank %d has algorithm number %d and %d ranks per "
                  "node, rank %d has %d and %d",
                  comm->base.rank, comm->base.rank, (int)mine->algorithm, (int)mine->ranks_per_node,
                  r, (int)all[r].algorithm, (int)all[r].ranks_per_node);
        dpb_log_hint("start all ranks with the same options");
        return DPB_ERR_MISMATCH;
    }
    return DPB_OK;
}

/* Poll until all requests are complete; who is missing at the deadline? Before there are notes. */
static dpb_status greet_until(struct dpb_mpi_comm *comm, MPI_Request *requests, int64_t deadline_ns)
{
    const int size = comm->base.size;
    struct dpb_str who = {0};
    for (unsigned polls = 0;; polls++) {
        int is_done = 0;
        if (DPB_MPI_ALONE(MPI_Testall(2 * size, requests, &is_done, MPI_STATUSES_IGNORE)) !=
            MPI_SUCCESS) {
            dpb_error("rank %d: cannot open comm \"mpi\": MPI_Testall failed", comm->base.rank);
            return DPB_ERR_VENDOR;
        }
        if (is_done)
            return DPB_OK;
        if (dpb_clock_now_ns() >= deadline_ns)
            break;
        dpb_mpi_nap(polls);
    }
    bool *missing = calloc((size_t)size, sizeof(*missing));
    for (int r = 0; r < size && missing; r++) {
        int is_done = 0;
        DPB_MPI_ALONE(MPI_Test(&requests[size + r], &is_done, MPI_STATUS_IGNORE));
        missing[r] = !is_done;
    }
    if (missing)
        dpb_mpi_append_ranks(comm, &who, missing);
    free(missing);
    dpb_error("rank %d: open: timed out after %.1f s: missing %s", comm->base.rank,
              (double)comm->timeout_ns / 1e9, who.text && !who.failed ? who.text : "ranks");
    dpb_log_hint("--timeout sets how long ranks wait for each other");
    dpb_str_release(&who);
    return DPB_ERR_TIMEOUT;
}

/* Everybody greets everybody: so a rank that does not come has a name. What is still on its way
 * when this fails is left to MPI, with its memory. */
static dpb_status greet(struct dpb_mpi_comm *comm)
{
    const int size = comm->base.size;
    struct hello *all = calloc((size_t)size + 1, sizeof(*all));
    MPI_Request *requests = calloc(2 * (size_t)size, sizeof(MPI_Request));
    if (!all || !requests) {
        dpb_error("rank %d: cannot open comm \"mpi\": out of memory", comm->base.rank);
        free(all);
        free(requests);
        return DPB_ERR_NO_MEMORY;
    }
    all[size] = (struct hello){comm->options.algorithm, comm->setup.ranks_per_node, ""};
    gethostname(all[size].host, sizeof(all[size].host) - 1);
    int code = MPI_SUCCESS;
    for (int r = 0; r < size && code == MPI_SUCCESS; r++) {
        code = DPB_MPI_ALONE(MPI_Irecv(&all[r], sizeof(*all), MPI_BYTE, r, HELLO_TAG,
                                       MPI_COMM_WORLD, &requests[size + r]));
        if (code == MPI_SUCCESS)
            code = DPB_MPI_ALONE(MPI_Isend(&all[size], sizeof(*all), MPI_BYTE, r, HELLO_TAG,
                                           MPI_COMM_WORLD, &requests[r]));
    }
    if (code != MPI_SUCCESS) {
        dpb_error("rank %d: cannot open comm \"mpi\": sending failed", comm->base.rank);
        return DPB_ERR_VENDOR;
    }
    DPB_TRY(greet_until(comm, requests, dpb_clock_now_ns() + comm->timeout_ns));
    for (int r = 0; r < size; r++)
        snprintf(comm->host[r], sizeof(comm->host[r]), "%.*s", DPB_MPI_HOST_BYTES - 1, all[r].host);
    dpb_status st = compare(comm, all);
    free(all);
    free(requests);
    return st;
}

/* Collectives, calls and notes do not meet: each has its own communicator. */
static dpb_status make_communicators(struct dpb_mpi_comm *comm)
{
    MPI_Comm *const made[] = {&comm->notes, &comm->data, &comm->meet};
    int64_t deadline_ns = dpb_clock_now_ns() + comm->timeout_ns;
    for (int i = 0; i < 3; i++) {
        MPI_Request request;
        if (DPB_MPI_ALONE(MPI_Comm_idup(MPI_COMM_WORLD, made[i], &request)) != MPI_SUCCESS) {
            dpb_error("rank %d: cannot open comm \"mpi\": MPI_Comm_idup failed", comm->base.rank);
            return DPB_ERR_VENDOR;
        }
        int is_done = 0;
        for (unsigned polls = 0; !is_done; polls++) {
            DPB_MPI_ALONE(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
            if (!is_done && dpb_clock_now_ns() >= deadline_ns) {
                dpb_error("rank %d: open: timed out after %.1f s in MPI_Comm_idup", comm->base.rank,
                          (double)comm->timeout_ns / 1e9);
                return DPB_ERR_TIMEOUT;
            }
            dpb_mpi_nap(polls);
        }
        DPB_MPI_ALONE(MPI_Comm_set_errhandler(*made[i], MPI_ERRORS_RETURN));
    }
    return DPB_OK;
}

static dpb_status get_memory(struct dpb_mpi_comm *comm)
{
    comm->counts = calloc((size_t)comm->base.size, sizeof(int));
    comm->firsts = calloc((size_t)comm->base.size, sizeof(int));
    comm->host = calloc((size_t)comm->base.size, sizeof(*comm->host));
    bool has_all = comm->counts && comm->firsts && comm->host;
    for (int i = 0; i < DPB_MPI_WINDOW && has_all; i++) {
        comm->scratch[i] = aligned_alloc(4096, DPB_MPI_STEP_BYTES);
        has_all = comm->scratch[i] != NULL;
        if (has_all)
            memset(comm->scratch[i], 0, DPB_MPI_STEP_BYTES);
    }
    if (has_all)
        return DPB_OK;
    dpb_error("rank %d: cannot open comm \"mpi\": out of memory", comm->base.rank);
    return DPB_ERR_NO_MEMORY;
}

static struct dpb_mpi_comm *new_comm(const struct dpb_comm_config *config)
{
    struct dpb_mpi_comm *comm = calloc(1, sizeof(*comm));
    pthread_condattr_t attr;
    if (!comm)
        return NULL;
    comm->base = (struct dpb_comm_base){&dpb_comm_mpi_ops, config->rank, config->size,
                                        config->local_rank, config->node};
    comm->options = (struct dpb_comm_mpi_options){DPB_COMM_MPI_LIBRARY, DPB_COMM_MPI_THREAD};
    if (config->options)
        comm->options = *(const struct dpb_comm_mpi_options *)config->options;
    comm->setup = (struct dpb_algorithm_setup){
            .algorithm = DPB_ALGORITHM_DIRECT,
            .ranks = config->size,
            .ranks_per_node = config->ranks_per_node != 0 ? config->ranks_per_node : config->size,
    };
    comm->timeout_ns = config->timeout_ns;
    comm->answer_ns = DPB_MPI_ANSWER_NS;
    comm->living_ns = DPB_MPI_LIVING_NS;
    comm->piece_bytes = DPB_MPI_CALL_BYTES;
    comm->step_bytes = DPB_MPI_STEP_BYTES;
    comm->data = comm->meet = comm->notes = MPI_COMM_NULL;
    comm->note_request = MPI_REQUEST_NULL;
    pthread_mutex_init(&comm->state_lock, NULL);
    pthread_mutex_init(&comm->execute_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->changed, &attr);
    pthread_condattr_destroy(&attr);
    return comm;
}

static void free_memory(struct dpb_mpi_comm *comm)
{
    dpb_mpi_buffers_free(comm);
    for (int k = 0; k < DPB_MPI_NOTE_COUNT; k++)
        free(comm->letter[k]);
    free(comm->peer);
    free(comm->counts);
    free(comm->firsts);
    free(comm->host);
    for (int i = 0; i < DPB_MPI_WINDOW; i++)
        free(comm->scratch[i]);
    pthread_mutex_destroy(&comm->state_lock);
    pthread_mutex_destroy(&comm->execute_lock);
    pthread_cond_destroy(&comm->changed);
    free(comm);
}

static dpb_status open_mpi(const struct dpb_comm_config *config, dpb_comm **opened)
{
    DPB_TRY(check_config(config));
    DPB_TRY(check_launcher(config));
    struct dpb_mpi_comm *comm = new_comm(config);
    if (!comm) {
        dpb_error("rank %d: cannot open comm \"mpi\": out of memory", config->rank);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_status st;
    DPB_TRY_GOTO(st, choose_algorithm(comm), err);
    DPB_TRY_GOTO(st, get_memory(comm), err);
    DPB_TRY_GOTO(st, dpb_mpi_world_start(config, comm->options.progress == DPB_COMM_MPI_THREAD),
                 err);
    DPB_TRY_GOTO(st, check_world(config), err);
    /* From here on other ranks may wait for this one: a program that ends has to tell MPI. */
    dpb_mpi_world_opened();
    DPB_TRY(greet(comm));
    DPB_TRY(make_communicators(comm));
    DPB_TRY(dpb_mpi_notes_open(comm));
    DPB_TRY(dpb_mpi_sums_new(comm));
    if (comm->options.progress == DPB_COMM_MPI_THREAD)
        DPB_TRY(dpb_mpi_progress_start(comm));
    *opened = (dpb_comm *)comm;
    return DPB_OK;
err:
    free_memory(comm);
    return st;
}

/* A rank that is still at work may need what this one has yet to send: all close together. */
static void part(struct dpb_mpi_comm *comm)
{
    int64_t deadline_ns = dpb_clock_now_ns() + comm->timeout_ns;
    for (unsigned polls = 0; !dpb_mpi_all_closed(comm); polls++) {
        if (dpb_mpi_look(comm) < 0)
            return;
        if (dpb_clock_now_ns() >= deadline_ns) {
            dpb_mpi_fail(comm, DPB_ERR_TIMEOUT, NULL,
                         "rank %d: close: not all ranks have closed after %.1f s", comm->base.rank,
                         (double)comm->timeout_ns / 1e9);
            return;
        }
        dpb_mpi_nap(polls);
    }
}

/* After a failure MPI may still read and write our memory, and no call that all ranks must make
 * would end: everything stays until the program ends. */
static void close_mpi(dpb_comm *handle)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    dpb_mpi_progress_stop(comm);
    dpb_mpi_tell(comm, DPB_MPI_CLOSED);
    if (atomic_load(&comm->failure) == DPB_OK)
        part(comm);
    if (atomic_load(&comm->failure) != DPB_OK)
        return;
    dpb_mpi_notes_close(comm);
    dpb_mpi_sums_free(comm);
    DPB_MPI_ALONE(MPI_Comm_free(&comm->notes));
    DPB_MPI_ALONE(MPI_Comm_free(&comm->meet));
    DPB_MPI_ALONE(MPI_Comm_free(&comm->data));
    dpb_mpi_world_closed();
    free_memory(comm);
}

static dpb_json *describe(dpb_comm *handle)
{
    const struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    bool is_library = comm->options.algorithm == DPB_COMM_MPI_LIBRARY;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length, major = 0, minor = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = '\0';
    MPI_Get_version(&major, &minor);
    dpb_json *object = dpb_json_object();
    dpb_json_set_string(object, "name", "mpi");
    dpb_json_set_string(object, "algorithm",
                        is_library ? "library" : dpb_algorithm_text(comm->setup.algorithm));
    dpb_json_set_string(object, "progress",
                        comm->options.progress == DPB_COMM_MPI_THREAD ? "thread" : "none");
    dpb_json_set_absent(object, "link", "the machine's own");
    dpb_json_set_bool(object, "emulated", false);
    dpb_json_set_string(object, "library", version);
    dpb_json_set_int(object, "mpi_version_major", major);
    dpb_json_set_int(object, "mpi_version_minor", minor);
    dpb_json_set_string(object, "wire_bytes",
                        is_library ? "the fewest that are possible" : "counted");
    return object;
}

static void abort_mpi(dpb_comm *handle, const char *reason)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    dpb_mpi_fail(comm, DPB_ERR_RANK_FAILED, NULL, "rank %d gave up: %s", comm->base.rank,
                 reason ? reason : "no reason given");
}

static void stats(dpb_comm *handle, struct dpb_comm_stats *out)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
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
    };
}

const struct dpb_comm_ops dpb_comm_mpi_ops = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "mpi",
        .summary = "MPI between ranks that mpirun started, on one machine or several",
        .options = &dpb_comm_mpi_table,
        .probe = probe,
        .open = open_mpi,
        .close = close_mpi,
        .describe = describe,
        .buffer_alloc = dpb_mpi_buffer_alloc,
        .buffer_free = dpb_mpi_buffer_free,
        .barrier = dpb_mpi_barrier,
        .exchange = dpb_mpi_exchange,
        .start = dpb_mpi_start,
        .test = dpb_mpi_test,
        .wait = dpb_mpi_wait,
        .abort = abort_mpi,
        .stats = stats,
};
