/* Kernels on the host: a fiber, or with DPB_SHIM_PTHREAD a thread of the host, for each thread of a
 * block; blocks one after another. */

/* Its longjmp() takes a jump to another stack for a mistake. */
#undef _FORTIFY_SOURCE

#include "../dialect.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef DPB_SHIM_PTHREAD
#include <pthread.h>
#else
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace
{
constexpr unsigned THREADS_MOST = 1024, WARP_LANES = 32, ARRAYS_MOST = 16;
constexpr size_t SHARED_MOST = 48 << 10; /* what every GPU has without asking for more */

enum state {
    RUNS,
    WAITS_FOR_BLOCK,
    WAITS_FOR_WARP,
    RETURNED
};

struct array {
    const void *key;
    void *memory;
};

/* The launch that runs. */
struct {
    const struct dpb_shim_call *call;
    struct dpb_shim_lane lane[THREADS_MOST];
    unsigned threads, blocks_x, blocks_y;
    struct array array[ARRAYS_MOST];
    unsigned arrays;
    size_t shared_bytes;
    /* Of exchanges; two, since a thread may be one exchange ahead of the others. */
    uint64_t exchanged[2][THREADS_MOST];
    unsigned exchanges[THREADS_MOST];
} now;

char error_text[1024];
int64_t launches;
unsigned order;
dpb_shim_launcher launcher;
void *launcher_ctx;

void *find_array(const void *key, size_t bytes)
{
    for (unsigned i = 0; i < now.arrays; i++)
        if (now.array[i].key == key)
            return now.array[i].memory;
    if (now.arrays == ARRAYS_MOST || now.shared_bytes + bytes > SHARED_MOST) {
        fprintf(stderr, "shim: more shared memory than a block can have\n");
        abort();
    }
    void *memory = malloc(bytes);

    if (!memory)
        abort();
    memset(memory, 0xff, bytes); /* NaNs */
    now.array[now.arrays++] = {key, memory};
    now.shared_bytes += bytes;
    return memory;
}

void free_arrays()
{
    for (unsigned i = 0; i < now.arrays; i++)
        free(now.array[i].memory);
    now.arrays = 0;
    now.shared_bytes = 0;
}

void start_block(unsigned x, unsigned y)
{
    for (unsigned i = 0; i < now.threads; i++) {
        now.lane[i] = {i, now.threads, x, y, now.blocks_x, now.blocks_y};
        now.exchanges[i] = 0;
    }
}

/* Block number `i` in the order asked for. */
void locate_block(uint64_t i, unsigned *x, unsigned *y)
{
    uint64_t all = (uint64_t)now.blocks_x * now.blocks_y;

    if (order & DPB_SHIM_BLOCKS_BACKWARD)
        i = all - 1 - i;
    *x = (unsigned)(i % now.blocks_x);
    *y = (unsigned)(i / now.blocks_x);
}

void wait_for_warp();
} // namespace

DPB_SHIM_LOCAL const struct dpb_shim_lane *dpb_shim_now;

#ifndef DPB_SHIM_PTHREAD

/* ---- fibers ---- */

namespace
{
constexpr size_t STACK_BYTES = 64 << 10;

struct {
    bool made;
    char *stacks;
    jmp_buf at[THREADS_MOST], home;
    ucontext_t context[THREADS_MOST], maker;
    enum state state[THREADS_MOST];
    const char *site[THREADS_MOST]; /* of the barrier where it waits */
} fibers;

/* From a fiber to the scheduler, until it is chosen again. */
void leave(unsigned i)
{
    if (!_setjmp(fibers.at[i]))
        _longjmp(fibers.home, 1);
}

void fiber(unsigned i)
{
    if (!_setjmp(fibers.at[i]))
        swapcontext(&fibers.context[i], &fibers.maker);
    for (;;) {
        now.call->run();
        fibers.state[i] = RETURNED;
        leave(i);
    }
}

void make_fibers()
{
    if (!fibers.stacks)
        fibers.stacks = static_cast<char *>(aligned_alloc(4096, THREADS_MOST * STACK_BYTES));
    if (!fibers.stacks)
        abort();
    for (unsigned i = 0; i < THREADS_MOST; i++) {
        ucontext_t context;

        getcontext(&context);
        context.uc_stack.ss_sp = fibers.stacks + i * STACK_BYTES;
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = NULL;
        makecontext(&context, reinterpret_cast<void (*)()>(fiber), 1, i);
        swapcontext(&fibers.maker, &context);
    }
    fibers.made = true;
}

void wait_for(enum state state, const char *site)
{
    unsigned i = dpb_shim_now->thread;

    fibers.state[i] = state;
    fibers.site[i] = site;
    leave(i);
}

void wait_for_warp()
{
    wait_for(WAITS_FOR_WARP, "a shuffle");
}

void run_fiber(unsigned i)
{
    dpb_shim_now = &now.lane[i];
    if (!_setjmp(fibers.home))
        _longjmp(fibers.at[i], 1);
}

/* Do threads [begin, end) all wait for the same at the same place? */
bool all_wait(unsigned begin, unsigned end, enum state state)
{
    for (unsigned i = begin; i < end; i++)
        if (fibers.state[i] != state || fibers.site[i] != fibers.site[begin])
            return false;
    return true;
}

/* Let those go on who have met; false: nobody can. */
bool release()
{
    bool any = false;

    for (unsigned i = 0; i < now.threads; i += WARP_LANES) {
        if (!all_wait(i, i + WARP_LANES, WAITS_FOR_WARP))
            continue;
        for (unsigned j = i; j < i + WARP_LANES; j++)
            fibers.state[j] = RUNS;
        any = true;
    }
    if (any || !all_wait(0, now.threads, WAITS_FOR_BLOCK))
        return any;
    for (unsigned i = 0; i < now.threads; i++)
        fibers.state[i] = RUNS;
    return true;
}

bool all_returned()
{
    for (unsigned i = 0; i < now.threads; i++)
        if (fibers.state[i] != RETURNED)
            return false;
    return true;
}

/* "block (3,0): threads 0-31 wait at x.cu:12, threads 32-63 have returned" */
void describe_divergence()
{
    size_t used = (size_t)snprintf(error_text, sizeof(error_text),
                                   "block (%u,%u): ", now.lane[0].block_x, now.lane[0].block_y);

    for (unsigned i = 0, end; i < now.threads && used < sizeof(error_text); i = end) {
        bool is_back = fibers.state[i] == RETURNED;

        for (end = i + 1; end < now.threads && fibers.state[end] == fibers.state[i] &&
                          (is_back || fibers.site[end] == fibers.site[i]);)
            end++;
        used += (size_t)snprintf(
                error_text + used, sizeof(error_text) - used, "%sthreads %u-%u %s%s", i ? ", " : "",
                i, end - 1, is_back ? "have returned" : "wait at ", is_back ? "" : fibers.site[i]);
    }
}

int run_block()
{
    for (unsigned i = 0; i < now.threads; i++)
        fibers.state[i] = RUNS;
    while (!all_returned()) {
        for (unsigned k = 0; k < now.threads; k++) {
            unsigned i = order & DPB_SHIM_THREADS_BACKWARD ? now.threads - 1 - k : k;

            if (fibers.state[i] == RUNS)
                run_fiber(i);
        }
        if (!all_returned() && !release()) {
            describe_divergence();
            fibers.made = false; /* they are in the middle of the kernel */
            return DPB_SHIM_FAILED;
        }
    }
    return 0;
}

int run_blocks()
{
    int rc = 0;

    if (!fibers.made)
        make_fibers();
    for (uint64_t i = 0; !rc && i < (uint64_t)now.blocks_x * now.blocks_y; i++) {
        unsigned x, y;

        locate_block(i, &x, &y);
        start_block(x, y);
        rc = run_block();
        free_arrays();
    }
    dpb_shim_now = NULL;
    return rc;
}
} // namespace

void dpb_shim_sync(const char *site)
{
    wait_for(WAITS_FOR_BLOCK, site);
}

void *dpb_shim_shared(const void *key, size_t bytes)
{
    return find_array(key, bytes);
}

#else

/* ---- threads of the host ---- */

namespace
{
/* Of each two, in turn: to ThreadSanitizer, who leaves a barrier late has seen what happened before
 * others came to it again. */
pthread_barrier_t block_barrier[2], warp_barrier[THREADS_MOST / WARP_LANES][2];
thread_local unsigned block_waits, warp_waits;
pthread_mutex_t arrays_mutex = PTHREAD_MUTEX_INITIALIZER;

void wait_for_block()
{
    pthread_barrier_wait(&block_barrier[block_waits++ % 2]);
}

void wait_for_warp()
{
    pthread_barrier_wait(&warp_barrier[dpb_shim_now->thread / WARP_LANES][warp_waits++ % 2]);
}

void *run_thread(void *arg)
{
    dpb_shim_now = static_cast<const struct dpb_shim_lane *>(arg);
    for (uint64_t i = 0; i < (uint64_t)now.blocks_x * now.blocks_y; i++) {
        if (dpb_shim_now == now.lane) {
            unsigned x, y;

            locate_block(i, &x, &y);
            free_arrays();
            start_block(x, y);
        }
        wait_for_block();
        now.call->run();
        wait_for_block();
    }
    return NULL;
}

int run_blocks()
{
    static pthread_t thread[THREADS_MOST];
    unsigned warps = now.threads / WARP_LANES;

    for (unsigned k = 0; k < 2; k++) {
        pthread_barrier_init(&block_barrier[k], NULL, now.threads);
        for (unsigned i = 0; i < warps; i++)
            pthread_barrier_init(&warp_barrier[i][k], NULL, WARP_LANES);
    }
    for (unsigned i = 0; i < now.threads; i++)
        if (pthread_create(&thread[i], NULL, run_thread, &now.lane[i]))
            abort();
    for (unsigned i = 0; i < now.threads; i++)
        pthread_join(thread[i], NULL);
    free_arrays();
    for (unsigned k = 0; k < 2; k++) {
        pthread_barrier_destroy(&block_barrier[k]);
        for (unsigned i = 0; i < warps; i++)
            pthread_barrier_destroy(&warp_barrier[i][k]);
    }
    return 0;
}
} // namespace

void dpb_shim_sync(const char *)
{
    wait_for_block();
}

void *dpb_shim_shared(const void *key, size_t bytes)
{
    pthread_mutex_lock(&arrays_mutex);
    void *memory = find_array(key, bytes);

    pthread_mutex_unlock(&arrays_mutex);
    return memory;
}

#endif

/* ---- warps ---- */

/* All values of the warp, when all threads have given theirs. */
static const uint64_t *exchange(uint64_t value)
{
    unsigned i = dpb_shim_now->thread;
    uint64_t *values = now.exchanged[now.exchanges[i]++ % 2];

    values[i] = value;
    wait_for_warp();
    return values + i / WARP_LANES * WARP_LANES;
}

uint64_t dpb_shim_exchange(uint64_t value, unsigned from)
{
    return exchange(value)[from % WARP_LANES];
}

uint32_t dpb_shim_ballot(bool value)
{
    const uint64_t *values = exchange(value);
    uint32_t bits = 0;

    for (unsigned i = 0; i < WARP_LANES; i++)
        bits |= (uint32_t)(values[i] != 0) << i;
    return bits;
}

/* ---- launch ---- */

struct dpb_shim_work {
    const struct dpb_shim_call *call;
    unsigned blocks_x, blocks_y, threads;
};

int dpb_shim_work_run(struct dpb_shim_work *work)
{
    now.call = work->call;
    now.threads = work->threads;
    now.blocks_x = work->blocks_x;
    now.blocks_y = work->blocks_y;
    return run_blocks();
}

void dpb_shim_work_free(struct dpb_shim_work *work)
{
    if (work)
        delete work->call;
    delete work;
}

int dpb_shim_launch(void *stream, unsigned blocks_x, unsigned blocks_y, unsigned threads,
                    const struct dpb_shim_call *call)
{
    struct dpb_shim_work *work = new dpb_shim_work{call, blocks_x, blocks_y, threads};
    int rc = DPB_SHIM_BAD_LAUNCH;

    launches++;
    /* CUDA's limits, and whole warps, which is our own. */
    if (blocks_x > 0 && blocks_x <= INT32_MAX && blocks_y > 0 && blocks_y <= UINT16_MAX &&
        threads > 0 && threads <= THREADS_MOST && threads % WARP_LANES == 0) {
        if (launcher)
            return launcher(launcher_ctx, stream, work);
        rc = dpb_shim_work_run(work);
    }
    dpb_shim_work_free(work);
    return rc;
}

void dpb_shim_set_launcher(dpb_shim_launcher new_launcher, void *ctx)
{
    launcher = new_launcher;
    launcher_ctx = ctx;
}

void dpb_shim_set_order(unsigned new_order)
{
    order = new_order;
}

const char *dpb_shim_error(void)
{
    return error_text;
}

int64_t dpb_shim_launches(void)
{
    return launches;
}
