/* oracle.h: what PyTorch has said of a network (harness/step/tests/data): its parameters in
 * registration order, the order in which its gradients become ready, and its bucket plans. */
#ifndef BENCH_TESTS_ORACLE_H
#define BENCH_TESTS_ORACLE_H

#include "dpb_workload.h"

/* Compare the model with everything known of `name` ("resnet50"). Differences fail the test.
 * Returns how many bucket plans were compared. */
int oracle_check(const struct dpb_model *model, const char *name);

#endif
