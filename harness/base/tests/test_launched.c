#include "dpb_test.h"

#include "dpb_launched.h"

#define VARIABLES_MAX 16

static const char *const known[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        "PMIX_RANK",
        "SLURM_PROCID",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_NTASKS",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_STEP_TASKS_PER_NODE",
};

/* An environment, and what it means. */
struct sample {
    const char *what;
    const char *variables[VARIABLES_MAX]; /* "NAME=value" */
    enum dpb_launched_by by;
    int rank, size, local_rank, local_size, node;
};

#define OMPI(rank, size) "OMPI_COMM_WORLD_RANK=" #rank, "OMPI_COMM_WORLD_SIZE=" #size
#define OMPI_LOCAL(rank, size)                                                                     \
    "OMPI_COMM_WORLD_LOCAL_RANK=" #rank, "OMPI_COMM_WORLD_LOCAL_SIZE=" #size
#define SLURM(rank, size) "SLURM_PROCID=" #rank, "SLURM_STEP_NUM_TASKS=" #size
#define SLURM_PLACE(local, node, tasks)                                                            \
    "SLURM_LOCALID=" #local, "SLURM_NODEID=" #node, "SLURM_STEP_TASKS_PER_NODE=" tasks
#define HYDRA(rank, size) "PMI_RANK=" #rank, "PMI_SIZE=" #size
#define TORCH(rank, size) "RANK=" #rank, "WORLD_SIZE=" #size

/* clang-format off */
static const struct sample good[] = {
        {"an empty one", {NULL}, DPB_LAUNCHED_BY_NOBODY, 0, 1, -1, -1, -1},
        {"torchrun", {TORCH(5, 8), "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1"},
         DPB_LAUNCHED_BY_TORCHRUN, 5, 8, 1, 4, 1},
        {"a pod with torchrun's least", {TORCH(1, 2)}, DPB_LAUNCHED_BY_TORCHRUN, 1, 2, -1, -1, -1},
        {"Open MPI", {OMPI(3, 4), OMPI_LOCAL(1, 2), "PMIX_RANK=3"},
         DPB_LAUNCHED_BY_OPEN_MPI, 3, 4, 1, 2, -1},
        {"Hydra", {HYDRA(2, 3), "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"},
         DPB_LAUNCHED_BY_HYDRA, 2, 3, 0, 1, -1},
        {"MVAPICH", {"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2"},
         DPB_LAUNCHED_BY_MVAPICH, 1, 2, -1, -1, -1},
        {"a Slurm step", {SLURM(6, 7), SLURM_PLACE(1, 2, "2(x2),3"), "SLURM_NTASKS=64"},
         DPB_LAUNCHED_BY_SLURM, 6, 7, 1, 3, 2},
        {"an sbatch script", {"SLURM_PROCID=0", "SLURM_NTASKS=16", "SLURM_LOCALID=0"},
         DPB_LAUNCHED_BY_NOBODY, 0, 1, -1, -1, -1},
        {"a step of one in a large job", {SLURM(0, 1), "SLURM_NTASKS=16"},
         DPB_LAUNCHED_BY_SLURM, 0, 1, -1, -1, -1},
        {"a Slurm step with PMI-2", {HYDRA(3, 4), SLURM(3, 4), SLURM_PLACE(1, 1, "2(x2)")},
         DPB_LAUNCHED_BY_HYDRA, 3, 4, 1, 2, 1},
        {"mpirun in a step of one", {OMPI(1, 4), SLURM(0, 1)},
         DPB_LAUNCHED_BY_OPEN_MPI, 1, 4, -1, -1, -1},
        {"mpirun with daemons that srun started", {OMPI(5, 8), SLURM(1, 2),
         SLURM_PLACE(0, 1, "1(x2)")}, DPB_LAUNCHED_BY_OPEN_MPI, 5, 8, -1, -1, -1},
        {"torchrun on every node by srun", {TORCH(5, 8), "LOCAL_RANK=1", SLURM(1, 2),
         SLURM_PLACE(0, 1, "1(x2)")}, DPB_LAUNCHED_BY_TORCHRUN, 5, 8, 1, -1, -1},
        {"Hydra inside one rank of mpirun", {HYDRA(1, 2), OMPI(0, 1)},
         DPB_LAUNCHED_BY_HYDRA, 1, 2, -1, -1, -1},
        {"a world of one inside another", {TORCH(0, 1), OMPI(2, 4)},
         DPB_LAUNCHED_BY_OPEN_MPI, 2, 4, -1, -1, -1},
        {"a size without a rank", {"WORLD_SIZE=16"}, DPB_LAUNCHED_BY_NOBODY, 0, 1, -1, -1, -1},
        {"a rank without a size", {"RANK=3", "PMIX_RANK=3"}, DPB_LAUNCHED_BY_NOBODY,
         0, 1, -1, -1, -1},
        {"a list of tasks that cannot be read", {SLURM(0, 2), SLURM_PLACE(0, 1, "x")},
         DPB_LAUNCHED_BY_SLURM, 0, 2, 0, -1, 1},
};

static const struct {
    const char *variables[VARIABLES_MAX];
    const char *why;
} bad[] = {
        {{"RANK=x", "WORLD_SIZE=4"}, "RANK=x is no number"},
        {{"RANK=1", "WORLD_SIZE="}, "WORLD_SIZE= is no number"},
        {{"RANK=-1", "WORLD_SIZE=4"}, "RANK=-1 is no number"},
        {{"RANK=1x", "WORLD_SIZE=4"}, "RANK=1x is no number"},
        {{OMPI(0, 99999999999)}, "OMPI_COMM_WORLD_SIZE=99999999999 is no number"},
        {{HYDRA(4, 4)}, "PMI_RANK=4 is no rank of PMI_SIZE=4"},
        {{SLURM(0, 0)}, "SLURM_PROCID=0 is no rank of SLURM_STEP_NUM_TASKS=0"},
        {{TORCH(0, 2), "LOCAL_RANK=one"}, "LOCAL_RANK=one is no number"},
        {{OMPI(1, 4), SLURM(1, 2), SLURM_PLACE(1, 0, "2")},
         "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4, but SLURM_PROCID=1 and "
         "SLURM_STEP_NUM_TASKS=2"},
        {{TORCH(0, 2), OMPI(1, 2)}, "RANK=0 and WORLD_SIZE=2, but OMPI_COMM_WORLD_RANK=1"},
        {{TORCH(0, 2), OMPI(0, 4), OMPI_LOCAL(0, 1)}, "WORLD_SIZE=2, but"},
};
/* clang-format on */

static void set_environment(const char *const *variables)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        unsetenv(known[i]);
    for (size_t i = 0; i < VARIABLES_MAX && variables[i]; i++) {
        char name[64];
        const char *equals = strchr(variables[i], '=');
        snprintf(name, sizeof(name), "%.*s", (int)(equals - variables[i]), variables[i]);
        assert_int_equal(setenv(name, equals + 1, 1), 0);
    }
}

static void test_environments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const struct sample *s = &good[i];
        struct dpb_launched l;
        char why[256] = "";
        set_environment(s->variables);
        if (dpb_launched_find(&l, why, sizeof(why)) < 0)
            fail_msg("%s: %s", s->what, why);
        if (l.by != s->by || l.rank != s->rank || l.size != s->size ||
            l.local_rank != s->local_rank || l.local_size != s->local_size || l.node != s->node)
            fail_msg("%s: by %s rank %d of %d, local %d of %d, node %d", s->what,
                     dpb_launched_by_text(l.by), l.rank, l.size, l.local_rank, l.local_size,
                     l.node);
        assert_int_equal(l.rank_variable != NULL, l.by != DPB_LAUNCHED_BY_NOBODY);
        assert_int_equal(l.size_variable != NULL, l.by != DPB_LAUNCHED_BY_NOBODY);
    }
}

static void test_what_cannot_be(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_launched l;
        char why[256] = "";
        set_environment(bad[i].variables);
        assert_int_equal(dpb_launched_find(&l, why, sizeof(why)), DPB_ERR_MISMATCH);
        if (!strstr(why, bad[i].why))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].why, why);
    }
}

static void test_one_launcher(void **state)
{
    (void)state;
    const char *const both[VARIABLES_MAX] = {OMPI(1, 4), SLURM(0, 2)};
    struct dpb_launched l;
    char why[256] = "";
    set_environment(both);
    assert_int_equal(dpb_launched_find_by(DPB_LAUNCHED_BY_SLURM, &l, why, sizeof(why)), DPB_OK);
    assert_int_equal(l.size, 2);
    assert_string_equal(l.size_variable, "SLURM_STEP_NUM_TASKS");
    assert_int_equal(dpb_launched_find_by(DPB_LAUNCHED_BY_HYDRA, &l, why, sizeof(why)),
                     DPB_ERR_UNAVAILABLE);
    assert_string_equal(why, "Hydra says nothing about this process");
    assert_int_equal(dpb_launched_find_by(DPB_LAUNCHED_BY_NOBODY, &l, why, sizeof(why)),
                     DPB_ERR_UNAVAILABLE);
}

static void test_size_alone(void **state)
{
    static const struct {
        const char *variables[VARIABLES_MAX];
        int size;
        const char *variable;
    } samples[] = {
            {{NULL}, 1, NULL},
            {{"WORLD_SIZE=16"}, 16, "WORLD_SIZE"},
            {{"WORLD_SIZE=16", "RANK=0"}, 1, NULL},
            {{"PMI_SIZE=1"}, 1, NULL},
            {{"SLURM_NTASKS=16"}, 16, "SLURM_NTASKS"},
            {{"SLURM_NTASKS=16", "SLURM_JOB_ID=7"}, 1, NULL},
            {{"SLURM_NTASKS=16", "SLURM_PROCID=0"}, 1, NULL},
            {{"SLURM_NTASKS=16", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"}, 16, "SLURM_NTASKS"},
            {{"SLURM_NTASKS=16", "SLURM_STEP_NUM_TASKS=1"}, 1, NULL},
    };
    char why[256] = "";
    const char *variable;
    int size;
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        set_environment(samples[i].variables);
        assert_int_equal(dpb_launched_size_alone(&size, &variable, why, sizeof(why)), DPB_OK);
        assert_int_equal(size, samples[i].size);
        assert_int_equal(variable != NULL, samples[i].variable != NULL);
        if (variable)
            assert_string_equal(variable, samples[i].variable);
    }
    set_environment((const char *const[VARIABLES_MAX]){"MV2_COMM_WORLD_SIZE=x"});
    assert_int_equal(dpb_launched_size_alone(&size, &variable, why, sizeof(why)), DPB_ERR_MISMATCH);
    assert_string_equal(why, "MV2_COMM_WORLD_SIZE=x is no number of processes or rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_environments),
            cmocka_unit_test(test_what_cannot_be),
            cmocka_unit_test(test_one_launcher),
            cmocka_unit_test(test_size_alone),
    };
    return DPB_RUN_TESTS(tests);
}
