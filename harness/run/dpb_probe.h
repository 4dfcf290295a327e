/* dpb_probe.h: how much of its cores this machine really gives, now.
 *
 * On a shared machine a neighbour can take most of a core without any counter of the guest showing
 * it. What shows it is work of known size: one pinned thread per core runs chunks of a fixed
 * multiply-add loop (about 50 us each), timed with CLOCK_MONOTONIC. Against the fastest chunk that
 * this probe has ever seen on any core, slower clocks and stolen time both count.
 *
 * The availability of a core is (its number of chunks * the best chunk) / (the time that passed); 1
 * is a core at full speed all the time. */
#ifndef DPB_PROBE_H
#define DPB_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_PROBE_DURATION_NS INT64_C(10000000) /* enough to see stalls of a scheduler's tick */

struct dpb_probe;

struct dpb_probe_result {
    int cores;
    int worst_core;          /* its number, of the least availability */
    double availability_min; /* over the cores, in (0, 1] */
    double availability_mean;
    int64_t chunk_best_ns;    /* fastest chunk this probe has ever seen */
    int64_t chunk_longest_ns; /* of this run: the longest stall and the chunk around it */
    int64_t chunks;           /* of this run, all cores */
};

/* Choose the size of a chunk and calibrate, about 30 ms with the cores busy. `cores` are the
 * numbers of the operating system, each once; NULL with core_count 0: all in the affinity mask of
 * the calling thread. A core that cannot be used is DPB_ERR_UNAVAILABLE, a wrong list
 * DPB_ERR_USAGE, both logged. */
dpb_status dpb_probe_open(const int *cores, int core_count, struct dpb_probe **probe);

/* Keep all cores busy for `duration_ns` (0: DPB_PROBE_DURATION_NS; at most a minute) and tell what
 * they gave. Blocks; nothing else of this program should run meanwhile. Failures are logged. */
dpb_status dpb_probe_run(struct dpb_probe *probe, int64_t duration_ns,
                         struct dpb_probe_result *result);

void dpb_probe_close(struct dpb_probe *probe);

/* The availability that these chunks, one directly after the other, tell: count * best_ns / sum,
 * at most 1; 0 without chunks. `best_ns` and all chunks are positive. */
double dpb_probe_availability(const int64_t *chunk_ns, size_t count, int64_t best_ns);

#ifdef __cplusplus
}
#endif
#endif
