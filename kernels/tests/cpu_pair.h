/* cpu_pair.h: the CPU device with one and with two threads, for tests that compare both with the
 * reference. */
#ifndef DPB_CPU_PAIR_H
#define DPB_CPU_PAIR_H

#include "dpb_device.h"

extern dpb_device *cpu_pair[2];

/* Numbers that are wrong (dpb_op_ids_check()) are found by kernels: told when the host waits, after
 * what is right has been written. */
extern bool cpu_pair_tells_late;

/* Set-up and tear-down of a test. */
int cpu_pair_open(void **state);
int cpu_pair_close(void **state);

#endif
