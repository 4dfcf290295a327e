/* mpi_world.c: MPI starts once in a process, and ends with it. */
#include "mpi_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_mpi_start.h"

pthread_mutex_t dpb_mpi_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    bool at_exit;               /* this file's handler is registered */
    bool ours;                  /* MPI was started here */
    int open;                   /* communicators */
    struct dpb_mpi_comm *broke; /* the last one that failed; all are kept until the end */
    dpb_status status;
} world;

/* MPI_Init_thread has no deadline: a thread makes the call, and writes here. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_over;
    int code;
} starting = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *start_mpi(void *unused)
{
    int provided;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    pthread_mutex_lock(&starting.lock);
    starting.code = code;
    starting.is_over = true;
    pthread_cond_signal(&starting.ended);
    pthread_mutex_unlock(&starting.lock);
    return unused;
}

static dpb_status claim(const struct dpb_comm_config *config)
{
    struct dpb_mpi_start start;
    char why[DPB_MPI_TEXT];
    dpb_status st = dpb_mpi_start_find(&start, why, sizeof(why));
    if (st == DPB_OK)
        st = dpb_mpi_start_claim(&start, why, sizeof(why));
    if (st == DPB_OK)
        return DPB_OK;
    dpb_error("rank %d: comm \"mpi\" is %s", config->rank, why);
    dpb_log_hint("--launcher mpirun and srun start new processes for every launch");
    return st;
}

static dpb_status init(const struct dpb_comm_config *config)
{
    DPB_TRY(claim(config));
    int64_t deadline_ns = dpb_clock_now_ns() + config->timeout_ns;
    const struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    pthread_condattr_t attr;
    pthread_t thread;
    int late = 0;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&starting.ended, &attr);
    pthread_condattr_destroy(&attr);
    int error = pthread_create(&thread, NULL, start_mpi, NULL);
    if (error) {
        dpb_error("rank %d: cannot start a thread for MPI_Init_thread: %s", config->rank,
                  strerror(error));
        return DPB_ERR_NO_MEMORY;
    }
    pthread_detach(thread);
    pthread_mutex_lock(&starting.lock);
    while (!starting.is_over && late == 0)
        late = pthread_cond_timedwait(&starting.ended, &starting.lock, &deadline);
    bool is_over = starting.is_over;
    int code = starting.code;
    pthread_mutex_unlock(&starting.lock);
    if (!is_over) {
        dpb_error("rank %d of %d: MPI_Init_thread has not returned after %.1f s: not all ranks "
                  "have called it",
                  config->rank, config->size, (double)config->timeout_ns / 1e9);
        dpb_log_hint("--timeout sets how long ranks wait for each other");
        return DPB_ERR_TIMEOUT;
    }
    if (code != MPI_SUCCESS) {
        dpb_error("rank %d: MPI_Init_thread failed with code %d", config->rank, code);
        return DPB_ERR_VENDOR;
    }
    world.ours = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return DPB_OK;
}

/* Is there a rank that has yet to hear of the failure? Those that gave a sign of life around it are
 * waited for longer than those that may be dead. */
static bool has_ignorant(struct dpb_mpi_comm *comm, int64_t since_ns)
{
    bool has = false;
    int64_t now_ns = dpb_clock_now_ns();
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++) {
        const struct dpb_mpi_peer *peer = &comm->peer[r];
        bool lives = peer->heard_ns > comm->failed_ns - comm->answer_ns;
        if (r != comm->base.rank && !peer->closed)
            has = has || now_ns < since_ns + (lives ? comm->living_ns : DPB_MPI_GRACE_NS);
    }
    pthread_mutex_unlock(&dpb_mpi_lock);
    return has;
}

/* The others are told by notes; MPI_Abort would end them before they have read those. */
static void let_others_hear(struct dpb_mpi_comm *comm)
{
    int64_t since_ns = dpb_clock_now_ns();
    for (unsigned polls = 0; has_ignorant(comm, since_ns); polls++) {
        (void)dpb_mpi_look(comm);
        dpb_mpi_nap(polls);
    }
}

static void end_world(void)
{
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized)
        return;
    if (world.broke)
        let_others_hear(world.broke);
    if (world.broke || world.open > 0)
        MPI_Abort(MPI_COMM_WORLD,
                  dpb_status_exit_code(world.broke ? world.status : DPB_ERR_RANK_FAILED));
    else if (world.ours)
        MPI_Finalize();
}

dpb_status dpb_mpi_world_start(const struct dpb_comm_config *config, bool has_thread)
{
    int is_started = 0, is_finalized = 0, level = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized) {
        dpb_error("rank %d: cannot open comm \"mpi\": MPI was finalized in this process",
                  config->rank);
        return DPB_ERR_USAGE;
    }
    MPI_Initialized(&is_started);
    if (!is_started)
        DPB_TRY(init(config));
    MPI_Query_thread(&level);
    const int needed = has_thread || world.ours ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
    if (level < needed) {
        dpb_error("rank %d: cannot open comm \"mpi\": MPI was started for threads of level %d, and "
                  "level %d is needed",
                  config->rank, level, needed);
        dpb_log_hint("MPI_Init_thread with MPI_THREAD_SERIALIZED, or MPI_THREAD_FUNNELED and "
                     "--mpi-progress none, with which nothing overlaps");
        return DPB_ERR_UNAVAILABLE;
    }
    if (!world.at_exit && atexit(end_world) != 0)
        return DPB_ERR_NO_MEMORY;
    world.at_exit = true;
    return DPB_OK;
}

void dpb_mpi_world_opened(void)
{
    world.open++;
}

void dpb_mpi_world_closed(void)
{
    world.open--;
}

void dpb_mpi_world_broke(struct dpb_mpi_comm *comm, dpb_status st)
{
    world.broke = comm;
    world.status = st;
}
