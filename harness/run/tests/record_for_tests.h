/* record_for_tests.h: a launch of two ranks with known numbers, of which a record is made. */
#ifndef DPB_RECORD_FOR_TESTS_H
#define DPB_RECORD_FOR_TESTS_H

#include "dpb_cell_record.h"

#define STEPS 4
#define MS    1000000ll

struct fixture {
    struct dpb_plan plan;
    struct dpb_launch_result result;
    dpb_json *host;
    struct dpb_attempt attempt;
    struct dpb_memory memory;
    struct dpb_memory_limits limits;
    struct dpb_cell_outcome outcome;
    char folder[64];
};

/* Its losses are `loss` times 1, 2, ... The launch went well; a test changes what it is about. */
void open_fixture(struct fixture *f, double loss);
void close_fixture(struct fixture *f);

/* What rank `r`, 0 or 1, says after the launch; the caller's. */
dpb_json *rank_result(int r, double loss);

/* What is at a path of the record; -1 and NaN where nothing is. */
int64_t number(const dpb_json *record, const char *path);
double real(const dpb_json *record, const char *path);

#endif
