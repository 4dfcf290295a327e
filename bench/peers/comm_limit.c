/* comm_limit BYTES: what the memory of this machine gives to a += b with a thread on each core, a
 * and b of BYTES each. Reads both and writes one: 3 * BYTES per pass. */
#include <pthread.h>

#include "comm_peer.h"

#define PASSES 12

struct part {
    int core;
    float *a, *b;
    int64_t count;
    pthread_barrier_t *together;
    int64_t start_ns[PASSES], end_ns[PASSES];
};

static void add(float *restrict a, const float *restrict b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        a[i] += b[i];
}

static void *work(void *argument)
{
    struct part *part = argument;
    peer_bind(part->core);
    for (int64_t i = 0; i < part->count; i++) {
        part->a[i] = 1;
        part->b[i] = 1;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        pthread_barrier_wait(part->together);
        part->start_ns[pass] = peer_now_ns();
        add(part->a, part->b, part->count);
        part->end_ns[pass] = peer_now_ns();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct peer_sizes sizes = {0};
    cpu_set_t all;
    if (argc != 2 || !peer_sizes_parse(argv[1], &sizes) || sizes.count != 1 ||
        sched_getaffinity(0, sizeof(all), &all) != 0) {
        fprintf(stderr, "comm_limit: give bytes, such as 268435456\n");
        return 2;
    }
    const int threads = CPU_COUNT(&all);
    const int64_t count = sizes.most_bytes / 4 / threads;
    float *a = aligned_alloc(64, (size_t)count * 4 * (size_t)threads);
    float *b = aligned_alloc(64, (size_t)count * 4 * (size_t)threads);
    struct part *part = calloc((size_t)threads, sizeof(*part));
    pthread_t *thread = calloc((size_t)threads, sizeof(*thread));
    pthread_barrier_t together;
    if (!a || !b || !part || !thread)
        return 3;
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++) {
        part[t] = (struct part){.core = t,
                                .a = a + t * count,
                                .b = b + t * count,
                                .count = count,
                                .together = &together};
        if (pthread_create(&thread[t], NULL, work, &part[t]) != 0)
            return 3;
    }
    for (int t = 0; t < threads; t++)
        pthread_join(thread[t], NULL);
    int64_t wall_ns[PASSES];
    for (int pass = 0; pass < PASSES; pass++) {
        int64_t start_ns = INT64_MAX, end_ns = 0;
        for (int t = 0; t < threads; t++) {
            start_ns = part[t].start_ns[pass] < start_ns ? part[t].start_ns[pass] : start_ns;
            end_ns = part[t].end_ns[pass] > end_ns ? part[t].end_ns[pass] : end_ns;
        }
        wall_ns[pass] = end_ns - start_ns;
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < count * threads; i++)
        wrong += a[i] != 1 + PASSES;
    peer_print_row(count * threads * 4, wrong, wall_ns, PASSES);
    free(a);
    free(b);
    free(part);
    free(thread);
    return 0;
}
