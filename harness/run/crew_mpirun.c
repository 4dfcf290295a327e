/* mpirun, of Open MPI or of MPICH (Hydra; Intel MPI's and MVAPICH's are of its family). */
#include <stdio.h>
#include <string.h>

#include "crew_private.h"
#include "dpb_launcher.h"
#include "dpb_log.h"

#define IS_OPEN_MPI "Open MPI"

static bool is_open_mpi(const char *version)
{
    return strstr(version, IS_OPEN_MPI) || strstr(version, "OpenRTE");
}

dpb_status crew_mpirun_find(struct crew_mpirun_found *mpirun)
{
    char text[2048];
    *mpirun = (struct crew_mpirun_found){.library = DPB_MPI_MPICH};
    dpb_status st =
            crew_find_program("mpirun", "install Open MPI (Debian: openmpi-bin) or MPICH (mpich)",
                              mpirun->program, sizeof(mpirun->program));
    if (st < 0)
        mpirun->program[0] = '\0';
    DPB_TRY(st);
    DPB_TRY(crew_program_version(mpirun->program, text, sizeof(text)));
    const char *hydra = strcasestr(text, "hydra"), *version = strstr(text, "Version:");
    text[strcspn(text, "\n")] = '\0';
    if (hydra) /* its first line is "HYDRA build details:" */
        snprintf(mpirun->version, sizeof(mpirun->version), "Hydra %.64s",
                 version ? version + 8 + strspn(version + 8, " ") : "");
    else
        snprintf(mpirun->version, sizeof(mpirun->version), "%.120s", text);
    mpirun->version[strcspn(mpirun->version, "\n")] = '\0';
    if (is_open_mpi(mpirun->version))
        mpirun->library = DPB_MPI_OPEN_MPI;
    if (hydra || is_open_mpi(mpirun->version) || strstr(mpirun->version, "Intel"))
        return DPB_OK;
    dpb_error("--launcher mpirun: \"%s\" is neither Open MPI's nor MPICH's: \"%s\"",
              mpirun->program, mpirun->version);
    dpb_log_hint("put theirs first in PATH, or start every rank yourself: mpirun ... dpbench ... "
                 "--launcher none");
    return DPB_ERR_UNAVAILABLE;
}

static dpb_status open_mpirun(dpb_crew *crew)
{
    struct crew_mpirun_found mpirun;
    DPB_TRY(crew_mpirun_find(&mpirun));
    memcpy(crew->program, mpirun.program, sizeof(crew->program));
    memcpy(crew->version, mpirun.version, sizeof(crew->version));
    return DPB_OK;
}

/* "node1:4,node2:2" */
static void add_hosts(const struct dpb_world *world, const char *option, struct crew_words *argv)
{
    struct dpb_str list = {0};
    for (int n = 0; n < world->nodes; n++)
        dpb_str_appendf(&list, "%s%s:%d", n > 0 ? "," : "", world->node[n].name,
                        world->node[n].slots);
    crew_words_add(argv, "%s", option);
    crew_words_add(argv, "%s", list.text ? list.text : "");
    argv->failed |= list.failed;
    dpb_str_release(&list);
}

static void add_words(const struct crew_words *from, struct crew_words *argv)
{
    for (size_t i = 0; i < from->count; i++)
        crew_words_add(argv, "%s", from->items[i]);
}

/* Ranks of a node are consecutive, and bind themselves (--bind), unless the user wants another
 * thing of mpirun. */
static void add_open_mpi(const dpb_crew *crew, struct crew_words *argv)
{
    const struct crew_words *own = &crew->arguments;
    if (!crew_words_have(own, "--map-by") && !crew_words_have(own, "-map-by")) {
        crew_words_add(argv, "--map-by");
        crew_words_add(argv, "slot");
    }
    if (!crew_words_have(own, "--bind-to") && !crew_words_have(own, "-bind-to")) {
        crew_words_add(argv, "--bind-to");
        crew_words_add(argv, "none");
    }
    crew_words_add(argv, "-x");
    crew_words_add(argv, "%s", DPB_WORKER_ADDRESS_VARIABLE);
    crew_words_add(argv, "-x");
    crew_words_add(argv, "%s", DPB_WORKER_TOKEN_VARIABLE);
}

static void add_hydra(struct crew_words *argv)
{
    crew_words_add(argv, "-genvlist");
    crew_words_add(argv, "%s,%s", DPB_WORKER_ADDRESS_VARIABLE, DPB_WORKER_TOKEN_VARIABLE);
}

static dpb_status command(const dpb_crew *crew, const struct dpb_world *world, int ranks,
                          struct crew_words *argv)
{
    char own[4096];
    DPB_TRY(crew_own_path(own, sizeof(own)));
    crew_words_add(argv, "%s", crew->program);
    crew_words_add(argv, "-np");
    crew_words_add(argv, "%d", ranks);
    if (world->ranks > 0)
        add_hosts(world, is_open_mpi(crew->version) ? "--host" : "-hosts", argv);
    if (is_open_mpi(crew->version))
        add_open_mpi(crew, argv);
    else
        add_hydra(argv);
    add_words(&crew->arguments, argv);
    crew_words_add(argv, "%s", own);
    crew_words_add(argv, "%s", DPB_WORKER_VERB);
    return argv->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

const struct crew_ops crew_mpirun = {.open = open_mpirun, .command = command, .name = "mpirun"};
