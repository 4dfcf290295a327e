/* comm_peer.h: what the all-reduces of other libraries share: arguments, known values, the loop's
 * rules, and the output, one JSON object per line. C and C++; each program includes it once. */
#ifndef COMM_PEER_H
#define COMM_PEER_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PEER_SIZES_MAX 64
/* As `dpbench comm`: five calls to warm up, then what fits into 200 ms. */
#define PEER_WARMUP  5
#define PEER_AUTO_NS INT64_C(200000000)
#define PEER_LEAST   5
#define PEER_MOST    5000

struct peer_sizes {
    int64_t bytes[PEER_SIZES_MAX];
    int count;
    int64_t most_bytes;
};

static inline int64_t peer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* "4,65536,1048576": bytes, multiples of 4. */
static inline bool peer_sizes_parse(const char *text, struct peer_sizes *sizes)
{
    sizes->count = 0;
    sizes->most_bytes = 0;
    while (*text && sizes->count < PEER_SIZES_MAX) {
        char *end;
        const int64_t bytes = strtoll(text, &end, 10);
        if (end == text || bytes <= 0 || bytes % 4 != 0 || (*end && *end != ','))
            return false;
        sizes->bytes[sizes->count++] = bytes;
        sizes->most_bytes = bytes > sizes->most_bytes ? bytes : sizes->most_bytes;
        text = *end ? end + 1 : end;
    }
    return sizes->count > 0 && !*text;
}

/* Rank r to the core number r, modulo their number, of those that this process may use; as dpbench
 * does. */
static inline void peer_bind(int rank)
{
    cpu_set_t all, mine;
    int seen = 0;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    const int slot = rank % CPU_COUNT(&all);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all) || seen++ != slot)
            continue;
        CPU_ZERO(&mine);
        CPU_SET(core, &mine);
        sched_setaffinity(0, sizeof(mine), &mine);
        return;
    }
}

static inline int peer_value(int64_t i, int rank)
{
    return (int)((i * 7 + rank * 13) % 31);
}

static inline void peer_fill(float *values, int64_t count, int rank)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)peer_value(i, rank);
}

/* How many elements are not the sum over the ranks. */
static inline int64_t peer_wrong(const float *values, int64_t count, int ranks)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        int sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += peer_value(i, r);
        wrong += values[i] != (float)sum;
    }
    return wrong;
}

static inline int64_t peer_iterations(int64_t each_ns)
{
    const int64_t fitting = PEER_AUTO_NS / (each_ns > 0 ? each_ns : 1);
    return fitting < PEER_LEAST ? PEER_LEAST : fitting > PEER_MOST ? PEER_MOST : fitting;
}

static inline void peer_print_library(const char *version, int ranks)
{
    printf("{\"library\": \"");
    for (; *version && *version != '\n'; version++) /* MPICH's has a tab */
        putchar(*version == '"' || *version == '\\' || *version < ' ' ? ' ' : *version);
    printf("\", \"ranks\": %d}\n", ranks);
}

/* `samples_ns`: of each iteration, the longest of the ranks. */
static inline void peer_print_row(int64_t bytes, int64_t wrong, const int64_t *samples_ns,
                                  int64_t count)
{
    printf("{\"size_bytes\": %lld, \"wrong\": %lld, \"samples_ns\": [", (long long)bytes,
           (long long)wrong);
    for (int64_t i = 0; i < count; i++)
        printf("%s%lld", i ? ", " : "", (long long)samples_ns[i]);
    printf("]}\n");
    fflush(stdout);
}

#endif
