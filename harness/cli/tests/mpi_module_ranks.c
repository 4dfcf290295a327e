/* A rank that finds comm "mpi" as the program does, in its module, and sums with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_cli.h"
#include "dpb_mpi_start.h"

#define TIMEOUT_NS INT64_C(30000000000)

static int fail(const char *what)
{
    fprintf(stderr, "mpi_module_ranks: %s\n", what);
    return 1;
}

int main(void)
{
    const struct dpb_comm_ops *known = dpb_registry_comm(dpb_registry_get(), "mpi"), *ops;
    struct dpb_mpi_start start;
    dpb_comm *comm;
    void *buffer;
    char why[1024] = "";
    if (dpb_mpi_start_find(&start, why, sizeof(why)) < 0 || known->probe(why, sizeof(why)) < 0)
        return fail(why);
    if (dpb_registry_use_comm(dpb_registry_get(), "mpi", &ops) < 0 || dpb_comm_ops_check(ops) < 0)
        return fail("the module's table is not usable");
    if (strcmp(ops->name, known->name) || strcmp(ops->summary, known->summary) ||
        ops->flags != known->flags || ops->options->row_count != known->options->row_count)
        return fail("the registry's table is not the module's");
    const struct dpb_comm_config config = {.rank = start.rank,
                                           .size = start.size,
                                           .local_rank = start.rank,
                                           .segment_fd = -1,
                                           .timeout_ns = TIMEOUT_NS};
    if (ops->open(&config, &comm) < 0 || ops->buffer_alloc(comm, 4096, &buffer) < 0)
        return fail("open");
    *(float *)buffer = (float)start.rank + 1;
    const struct dpb_coll coll = {DPB_COLL_ALL_REDUCE, DPB_F32, buffer, 1024, 0, 1, 0};
    if (dpb_comm_run(comm, &coll, NULL) < 0)
        return fail("all-reduce");
    const float sum = (float)(start.size * (start.size + 1)) / 2;
    if (*(const float *)buffer != sum)
        return fail("the sum is wrong");
    ops->close(comm);
    printf("rank %d: all checks passed\n", start.rank);
    return 0;
}
