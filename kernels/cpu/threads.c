/* The OpenMP runtime that oneDNN brings (GNU's), called by its stable entry points.
 *
 * Not by pragmas: clang would bring its own OpenMP runtime beside oneDNN's, two pools of threads
 * that fight for the same cores. */
#include "cpu_device.h"

#include <stdatomic.h>

extern void GOMP_parallel(void (*body)(void *), void *ctx, unsigned threads, unsigned flags);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_proc_bind(void);
extern void omp_set_num_threads(int threads);
extern void omp_set_dynamic(int dynamic);

static _Thread_local int threads_set;

void dpb_cpu_threads_set(int threads)
{
    if (threads_set == threads)
        return;
    omp_set_num_threads(threads);
    threads_set = threads;
}

bool dpb_cpu_threads_bound_by_openmp(void)
{
    return omp_get_proc_bind() != 0;
}

/* OpenMP orders what comes before, in and after a region, but out of ThreadSanitizer's sight; the
 * two atomics say it again. */
struct region {
    dpb_cpu_body body;
    void *ctx;
    int64_t count;
    atomic_int begun, ended;
};

static void run_part(void *ctx)
{
    struct region *region = ctx;
    int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
    int64_t each, rest, begin, end;

    atomic_load_explicit(&region->begun, memory_order_acquire);
    each = region->count / parts;
    rest = region->count % parts;
    begin = part * each + (part < rest ? part : rest);
    end = begin + each + (part < rest);
    if (begin < end)
        region->body(region->ctx, begin, end);
    atomic_fetch_add_explicit(&region->ended, 1, memory_order_release);
}

void dpb_cpu_parallel(int threads, int64_t count, int64_t grain, dpb_cpu_body body, void *ctx)
{
    struct region region = {.body = body, .ctx = ctx, .count = count};
    int64_t parts = count / (grain > 0 ? grain : 1);

    if (parts > threads)
        parts = threads;
    if (parts <= 1) {
        if (count > 0)
            body(ctx, 0, count);
        return;
    }
    atomic_store_explicit(&region.begun, 1, memory_order_release);
    GOMP_parallel(run_part, &region, (unsigned)parts, 0);
    atomic_load_explicit(&region.ended, memory_order_acquire);
}

void dpb_cpu_each_thread(int threads, dpb_cpu_body body, void *ctx)
{
    dpb_cpu_parallel(threads, threads, 1, body, ctx);
}

static void count_part(void *ctx, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    atomic_fetch_add_explicit((atomic_int *)ctx, 1, memory_order_relaxed);
}

int dpb_cpu_threads_given(int threads)
{
    atomic_int given = 0;

    omp_set_dynamic(0);
    dpb_cpu_each_thread(threads, count_part, &given);
    return atomic_load_explicit(&given, memory_order_relaxed);
}
