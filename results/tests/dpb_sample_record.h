/* dpb_sample_record.h (tests of any room): full valid records for tests, each made from a few
 * numbers. */
#ifndef DPB_SAMPLE_RECORD_H
#define DPB_SAMPLE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"

struct sample_axis {
    const char *option, *text;
};

/* What differs between records; start from sample_record_default. */
struct sample_record {
    const char *run_id;
    int64_t cell, repeat;
    const char *status; /* "ok" */
    const char *reason; /* NULL: null */
    const char *series, *compute_series, *fingerprint, *scaling;
    int ranks;
    int64_t global_batch, batch_per_rank;
    bool emulated, simulated, flagged;
    struct sample_axis axes[6]; /* ends with a NULL option */
    const double *samples_ns;
    size_t sample_count;
    double link_bytes_per_s;         /* 0: none */
    double exposed_ns, comm_wait_ns; /* per rank and step */
    double comm_ns;
    double busbw_bytes_per_s;
    double test_accuracy; /* below 0: not evaluated */
    double trace_overhead;
    int64_t trace_lost;
    double availability;
    const char *warning; /* NULL: none */
    int64_t threads_per_rank;
};

extern const struct sample_record sample_record_default;

/* Caller frees. */
dpb_json *sample_record_make(const struct sample_record *sample);

#endif
