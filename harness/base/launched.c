#include "dpb_launched.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_units.h"

static const struct {
    const char *text;
    const char *rank, *size, *local_rank, *local_size, *node;
    const char *tasks_per_node; /* "4(x2),3" */
} launchers[DPB_LAUNCHED_BY_COUNT] = {
        [DPB_LAUNCHED_BY_NOBODY] = {.text = "nobody"},
        [DPB_LAUNCHED_BY_TORCHRUN] = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE", "GROUP_RANK", NULL},
        [DPB_LAUNCHED_BY_OPEN_MPI] = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      NULL, NULL},
        [DPB_LAUNCHED_BY_HYDRA] = {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                   "MPI_LOCALNRANKS", NULL, NULL},
        [DPB_LAUNCHED_BY_MVAPICH] = {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
                                     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", NULL,
                                     NULL},
        [DPB_LAUNCHED_BY_SLURM] = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                   NULL, "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"},
};

const char *dpb_launched_by_text(enum dpb_launched_by by)
{
    return launchers[by].text;
}

const char *dpb_launched_rank_variable(enum dpb_launched_by by)
{
    return launchers[by].rank;
}

static dpb_status read_number(const char *variable, int *number, char *why, size_t why_bytes)
{
    const char *text = getenv(variable);
    int64_t value = -1;
    if (dpb_parse_i64(text, &value, NULL) < 0 || value < 0 || value > INT_MAX) {
        snprintf(why, why_bytes, "%s=%s is no number of processes or rank", variable, text);
        return DPB_ERR_MISMATCH;
    }
    *number = (int)value;
    return DPB_OK;
}

/* -1 where the variable is not set. */
static dpb_status read_optional(const char *variable, int *number, char *why, size_t why_bytes)
{
    *number = -1;
    return variable && getenv(variable) ? read_number(variable, number, why, why_bytes) : DPB_OK;
}

/* How many tasks node number `node` has by Slurm's list "4(x2),3"; -1 when it does not say. */
static int tasks_of_node(const char *list, int node)
{
    while (list && node >= 0) {
        int tasks, nodes = 1, used = 0;
        if (sscanf(list, "%d%n", &tasks, &used) != 1)
            return -1;
        list += used;
        used = 0;
        if (sscanf(list, "(x%d)%n", &nodes, &used) == 1 && used > 0)
            list += used;
        if (node < nodes)
            return tasks;
        node -= nodes;
        list = *list == ',' ? list + 1 : NULL;
    }
    return -1;
}

dpb_status dpb_launched_find_by(enum dpb_launched_by by, struct dpb_launched *launched, char *why,
                                size_t why_bytes)
{
    const char *rank = launchers[by].rank, *size = launchers[by].size;
    if (!rank || !getenv(rank) || !getenv(size)) {
        snprintf(why, why_bytes, "%s says nothing about this process", launchers[by].text);
        return DPB_ERR_UNAVAILABLE;
    }
    struct dpb_launched l = {.by = by, .rank_variable = rank, .size_variable = size};
    DPB_TRY(read_number(rank, &l.rank, why, why_bytes));
    DPB_TRY(read_number(size, &l.size, why, why_bytes));
    if (l.rank >= l.size) {
        snprintf(why, why_bytes, "%s=%d is no rank of %s=%d", rank, l.rank, size, l.size);
        return DPB_ERR_MISMATCH;
    }
    DPB_TRY(read_optional(launchers[by].local_rank, &l.local_rank, why, why_bytes));
    DPB_TRY(read_optional(launchers[by].local_size, &l.local_size, why, why_bytes));
    DPB_TRY(read_optional(launchers[by].node, &l.node, why, why_bytes));
    if (launchers[by].tasks_per_node)
        l.local_size = tasks_of_node(getenv(launchers[by].tasks_per_node), l.node);
    *launched = l;
    return DPB_OK;
}

/* The variable in which `by` counts processes, where it is set. */
static const char *size_variable(enum dpb_launched_by by)
{
    const char *size = launchers[by].size;
    if (size && getenv(size))
        return size;
    /* Scripts of sbatch and shells of salloc have SLURM_NTASKS, too, in a job but in no step. */
    const bool in_job_only =
            !getenv("SLURM_STEP_ID") && (getenv("SLURM_JOB_ID") || getenv("SLURM_PROCID"));
    return by == DPB_LAUNCHED_BY_SLURM && getenv("SLURM_NTASKS") && !in_job_only ? "SLURM_NTASKS"
                                                                                 : NULL;
}

dpb_status dpb_launched_size_alone(int *size, const char **variable, char *why, size_t why_bytes)
{
    *size = 1;
    *variable = NULL;
    for (enum dpb_launched_by by = DPB_LAUNCHED_BY_NOBODY + 1; by < DPB_LAUNCHED_BY_COUNT; by++) {
        const char *name = size_variable(by);
        int next = 1;
        if (!name || (name == launchers[by].size && getenv(launchers[by].rank)))
            continue;
        DPB_TRY(read_number(name, &next, why, why_bytes));
        if (next <= *size)
            continue;
        *size = next;
        *variable = name;
    }
    return DPB_OK;
}

/* Did `outer` only start what started `inner`: a daemon of mpirun or a torchrun on every node? */
static bool only_carries(const struct dpb_launched *outer, const struct dpb_launched *inner)
{
    return outer->size == 1 || (outer->local_size == 1 && outer->size < inner->size);
}

static void take_place(struct dpb_launched *to, const struct dpb_launched *from)
{
    to->local_rank = to->local_rank < 0 ? from->local_rank : to->local_rank;
    to->local_size = to->local_size < 0 ? from->local_size : to->local_size;
    to->node = to->node < 0 ? from->node : to->node;
}

dpb_status dpb_launched_find(struct dpb_launched *launched, char *why, size_t why_bytes)
{
    struct dpb_launched best = {.by = DPB_LAUNCHED_BY_NOBODY,
                                .size = 1,
                                .local_rank = -1,
                                .local_size = -1,
                                .node = -1};
    for (enum dpb_launched_by by = DPB_LAUNCHED_BY_NOBODY + 1; by < DPB_LAUNCHED_BY_COUNT; by++) {
        struct dpb_launched next;
        dpb_status st = dpb_launched_find_by(by, &next, why, why_bytes);
        if (st == DPB_ERR_UNAVAILABLE)
            continue;
        DPB_TRY(st);
        if (best.by == DPB_LAUNCHED_BY_NOBODY) {
            best = next;
        } else if (best.rank == next.rank && best.size == next.size) {
            take_place(&best, &next);
        } else if (only_carries(&best, &next)) {
            best = next;
        } else if (!only_carries(&next, &best)) {
            snprintf(why, why_bytes, "%s=%d and %s=%d, but %s=%d and %s=%d", best.rank_variable,
                     best.rank, best.size_variable, best.size, next.rank_variable, next.rank,
                     next.size_variable, next.size);
            return DPB_ERR_MISMATCH;
        }
    }
    *launched = best;
    return DPB_OK;
}
