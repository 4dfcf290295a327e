#include "dpb_probe.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"

#define CHUNK_NS        INT64_C(50000)
#define CALIBRATION_NS  INT64_C(25000000)
#define DURATION_MAX_NS INT64_C(60000000000)
#define ACCUMULATORS    64 /* independent, enough to hide the latency of an FMA on wide vectors */

#define ROUNDS_MAX (INT64_C(1) << 32) /* more than any machine does in a chunk */

enum gate {
    GATE_CLOSED,
    GATE_OPEN,
    GATE_CANCELLED
};

struct core {
    struct dpb_probe *probe;
    pthread_t thread;
    int number;
    int64_t *chunk_ns;
    size_t count;
};

struct dpb_probe {
    struct core *cores;
    int core_count;
    int64_t rounds;  /* of the loop in one chunk */
    int64_t best_ns; /* fastest chunk so far; 0: none yet */
    /* of the run in progress */
    size_t capacity; /* chunks per core */
    int64_t duration_ns;
    atomic_int arrived;
    atomic_int gate;
};

/* The work: independent multiply-adds on 256 bytes, which never leave the core. The values stay
 * near 1, so that their speed does not depend on them (no denormals). The empty assembly makes the
 * result used, and the call one that the compiler can neither leave out nor move past a reading of
 * the clock. */
__attribute__((noinline)) static void work(int64_t rounds)
{
    float values[ACCUMULATORS], sum = 0;

    for (int i = 0; i < ACCUMULATORS; i++)
        values[i] = (float)i / ACCUMULATORS;
    for (int64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < ACCUMULATORS; i++)
            values[i] = values[i] * 0.999f + 0.001f;
    }
    for (int i = 0; i < ACCUMULATORS; i++)
        sum += values[i];
    __asm__ volatile("" : : "g"(sum) : "memory");
}

double dpb_probe_availability(const int64_t *chunk_ns, size_t count, int64_t best_ns)
{
    double sum_ns = 0, availability;

    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        sum_ns += (double)chunk_ns[i];
    availability = (double)count * (double)best_ns / sum_ns;
    return availability < 1 ? availability : 1;
}

/* Start when all are here. The last to arrive opens the gate, so that the thread which waits for
 * them need not run. */
static bool pass_gate(struct dpb_probe *probe)
{
    if (atomic_fetch_add(&probe->arrived, 1) + 1 == probe->core_count)
        atomic_store(&probe->gate, GATE_OPEN);
    while (atomic_load(&probe->gate) == GATE_CLOSED)
        sched_yield();
    return atomic_load(&probe->gate) == GATE_OPEN;
}

static void *measure(void *argument)
{
    struct core *core = argument;
    const struct dpb_probe *probe = core->probe;
    int64_t begin_ns, before_ns, now_ns;

    core->count = 0;
    if (!pass_gate(core->probe))
        return NULL;
    begin_ns = before_ns = dpb_clock_now_ns();
    do {
        work(probe->rounds);
        now_ns = dpb_clock_now_ns();
        /* from the end of one chunk to that of the next, so that no time is lost between them */
        core->chunk_ns[core->count++] = now_ns > before_ns ? now_ns - before_ns : 1;
        before_ns = now_ns;
    } while (now_ns - begin_ns < probe->duration_ns && core->count < probe->capacity);
    return NULL;
}

static dpb_status start_thread(struct core *core)
{
    pthread_attr_t attributes;
    cpu_set_t set;
    int error;

    CPU_ZERO(&set);
    CPU_SET((size_t)core->number, &set);
    error = pthread_attr_init(&attributes);
    if (!error) {
        error = pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
        if (!error)
            error = pthread_create(&core->thread, &attributes, measure, core);
        pthread_attr_destroy(&attributes);
    }
    if (!error)
        return DPB_OK;
    dpb_error("cannot probe core %d: %s", core->number, strerror(error));
    dpb_log_hint(error == EAGAIN || error == ENOMEM
                         ? "allow more threads (ulimit -u) or memory (ulimit -v)"
                         : "give the program cores it may use (taskset, cgroup, --cpuset-cpus)");
    return DPB_ERR_UNAVAILABLE;
}

/* Run chunks on all cores at once and keep the fastest. */
static dpb_status run_all(struct dpb_probe *probe, int64_t duration_ns)
{
    dpb_status st = DPB_OK;
    int started = 0;

    probe->duration_ns = duration_ns;
    atomic_store(&probe->arrived, 0);
    atomic_store(&probe->gate, GATE_CLOSED);
    while (started < probe->core_count && st == DPB_OK) {
        st = start_thread(&probe->cores[started]);
        started += st == DPB_OK;
    }
    if (st < 0)
        atomic_store(&probe->gate, GATE_CANCELLED);
    for (int i = 0; i < started; i++)
        (void)pthread_join(probe->cores[i].thread, NULL);
    DPB_TRY(st);
    for (int i = 0; i < probe->core_count; i++) {
        const struct core *core = &probe->cores[i];

        for (size_t j = 0; j < core->count; j++) {
            if (probe->best_ns == 0 || core->chunk_ns[j] < probe->best_ns)
                probe->best_ns = core->chunk_ns[j];
        }
    }
    return DPB_OK;
}

/* Room for all chunks of a run, even if they were four times as fast as any before. */
static dpb_status reserve(struct dpb_probe *probe, int64_t duration_ns, int64_t chunk_ns)
{
    size_t capacity = (size_t)(4 * duration_ns / chunk_ns) + 16;

    if (capacity <= probe->capacity)
        return DPB_OK;
    for (int i = 0; i < probe->core_count; i++) {
        int64_t *grown = reallocarray(probe->cores[i].chunk_ns, capacity, sizeof(grown[0]));

        if (!grown) {
            dpb_error("cannot probe the cores: out of memory");
            return DPB_ERR_NO_MEMORY;
        }
        probe->cores[i].chunk_ns = grown;
    }
    probe->capacity = capacity;
    return DPB_OK;
}

static int64_t time_work(int64_t rounds)
{
    int64_t best_ns = INT64_MAX;

    for (int i = 0; i < 4; i++) { /* the best of some, because the machine may be busy */
        int64_t before_ns = dpb_clock_now_ns(), took_ns;

        work(rounds);
        took_ns = dpb_clock_now_ns() - before_ns;
        if (took_ns < best_ns)
            best_ns = took_ns;
    }
    return best_ns > 0 ? best_ns : 1;
}

static int64_t choose_rounds(void)
{
    int64_t rounds = 64, took_ns = time_work(rounds);

    while (took_ns < CHUNK_NS / 2 && rounds < ROUNDS_MAX) {
        rounds *= 2;
        took_ns = time_work(rounds);
    }
    rounds = rounds * CHUNK_NS / took_ns;
    return rounds > 0 ? rounds : 1;
}

static dpb_status use_affinity_mask(struct dpb_probe *probe)
{
    cpu_set_t set;
    int count = 0;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        dpb_error("cannot read which cores this program may use: %s", strerror(errno));
        return DPB_ERR_UNAVAILABLE;
    }
    probe->core_count = CPU_COUNT(&set);
    probe->cores = calloc((size_t)probe->core_count, sizeof(probe->cores[0]));
    if (!probe->cores)
        return DPB_ERR_NO_MEMORY;
    for (int i = 0; i < CPU_SETSIZE && count < probe->core_count; i++) {
        if (CPU_ISSET((size_t)i, &set))
            probe->cores[count++].number = i;
    }
    return DPB_OK;
}

static dpb_status use_list(struct dpb_probe *probe, const int *cores, int core_count)
{
    cpu_set_t seen;

    CPU_ZERO(&seen);
    for (int i = 0; i < core_count; i++) {
        if (cores[i] < 0 || cores[i] >= CPU_SETSIZE || CPU_ISSET((size_t)cores[i], &seen)) {
            dpb_error("cannot probe core %d: cores are 0 to %d, each named once", cores[i],
                      CPU_SETSIZE - 1);
            return DPB_ERR_USAGE;
        }
        CPU_SET((size_t)cores[i], &seen);
    }
    probe->cores = calloc((size_t)core_count, sizeof(probe->cores[0]));
    if (!probe->cores)
        return DPB_ERR_NO_MEMORY;
    probe->core_count = core_count;
    for (int i = 0; i < core_count; i++)
        probe->cores[i].number = cores[i];
    return DPB_OK;
}

dpb_status dpb_probe_open(const int *cores, int core_count, struct dpb_probe **probe)
{
    struct dpb_probe *opened;
    dpb_status st;

    if (core_count < 0 || (core_count == 0) != (cores == NULL)) {
        dpb_error("cannot probe %d cores", core_count);
        return DPB_ERR_USAGE;
    }
    opened = calloc(1, sizeof(*opened));
    st = opened ? DPB_OK : DPB_ERR_NO_MEMORY;
    if (st == DPB_OK)
        st = cores ? use_list(opened, cores, core_count) : use_affinity_mask(opened);
    if (st == DPB_ERR_NO_MEMORY)
        dpb_error("cannot probe the cores: out of memory");
    DPB_TRY_GOTO(st, st, failed);
    for (int i = 0; i < opened->core_count; i++)
        opened->cores[i].probe = opened;
    opened->rounds = choose_rounds();
    DPB_TRY_GOTO(st, reserve(opened, CALIBRATION_NS, CHUNK_NS), failed);
    DPB_TRY_GOTO(st, run_all(opened, CALIBRATION_NS), failed);
    *probe = opened;
    return DPB_OK;

failed:
    dpb_probe_close(opened);
    return st;
}

dpb_status dpb_probe_run(struct dpb_probe *probe, int64_t duration_ns,
                         struct dpb_probe_result *result)
{
    struct dpb_probe_result made = {.cores = probe->core_count, .availability_min = 2};

    if (duration_ns < 0 || duration_ns > DURATION_MAX_NS) {
        dpb_error("cannot probe for %lld ns: a minute is the most", (long long)duration_ns);
        return DPB_ERR_USAGE;
    }
    if (duration_ns == 0)
        duration_ns = DPB_PROBE_DURATION_NS;
    DPB_TRY(reserve(probe, duration_ns, probe->best_ns));
    DPB_TRY(run_all(probe, duration_ns));
    made.chunk_best_ns = probe->best_ns;
    for (int i = 0; i < probe->core_count; i++) {
        const struct core *core = &probe->cores[i];
        double availability = dpb_probe_availability(core->chunk_ns, core->count, probe->best_ns);

        made.availability_mean += availability / probe->core_count;
        if (availability < made.availability_min) {
            made.availability_min = availability;
            made.worst_core = core->number;
        }
        made.chunks += (int64_t)core->count;
        for (size_t j = 0; j < core->count; j++) {
            if (core->chunk_ns[j] > made.chunk_longest_ns)
                made.chunk_longest_ns = core->chunk_ns[j];
        }
    }
    *result = made;
    return DPB_OK;
}

void dpb_probe_close(struct dpb_probe *probe)
{
    if (!probe)
        return;
    for (int i = 0; i < probe->core_count; i++)
        free(probe->cores[i].chunk_ns);
    free(probe->cores);
    free(probe);
}
