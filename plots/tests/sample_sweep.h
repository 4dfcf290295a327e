/* sample_sweep.h: a whole sweep of synthetic records: ranks x bucket x overlap, three repeats. */
#ifndef DPB_SAMPLE_SWEEP_H
#define DPB_SAMPLE_SWEEP_H

#include "dpb_record.h"
#include "dpb_sample_record.h"

/* Append one record; the test ends when memory does. */
void sample_add(struct dpb_records *records, const struct sample_record *sample);

/* One-rank baseline and `ranks` (a list that ends with 0) x four buckets x overlap on and off on an
 * emulated link of 1 GB/s; step times follow a simple model. */
void sample_sweep(struct dpb_records *records, const int *ranks);

/* One cell without axes besides ranks, all steps of `step_ms`. */
struct sample_record sample_cell(int64_t cell, int ranks, double step_ms);

#endif
