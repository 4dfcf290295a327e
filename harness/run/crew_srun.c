/* srun: every launch is a job step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew_private.h"
#include "dpb_launcher.h"
#include "dpb_log.h"

#define OVERLAP_SINCE 2011 /* 20.11: before it steps shared their cores without being asked */

/* 2205 of "slurm 22.05.8"; 0: not told. */
static int release_of(const char *version)
{
    int year = 0, month = 0;
    return sscanf(version, "%*[^0-9]%d.%d", &year, &month) == 2 ? 100 * year + month : 0;
}

/* A node that the driver does not run on, if the job has one. */
static void find_peer(dpb_crew *crew)
{
    char name[DPB_WORLD_HOST_BYTES];
    const char *list = getenv("SLURM_JOB_NODELIST");
    for (int i = 0; crew->hosts.count == 0 && !crew->peer[0] &&
                    crew_nodelist_at(list, i, name, sizeof(name)) == DPB_OK;
         i++)
        if (!crew_is_this_host(name))
            snprintf(crew->peer, sizeof(crew->peer), "%s", name);
}

static dpb_status open_srun(dpb_crew *crew)
{
    char text[512];
    DPB_TRY(crew_find_program("srun",
                              "install Slurm's commands (Debian: slurm-client), or use "
                              "another --launcher",
                              crew->program, sizeof(crew->program)));
    if (!getenv("SLURM_JOB_ID")) {
        dpb_error("--launcher srun: this process is in no Slurm job (SLURM_JOB_ID is not set)");
        dpb_log_hint("start dpbench in an allocation: salloc, or a script for sbatch");
        return DPB_ERR_UNAVAILABLE;
    }
    DPB_TRY(crew_program_version(crew->program, text, sizeof(text)));
    text[strcspn(text, "\n")] = '\0';
    snprintf(crew->version, sizeof(crew->version), "%.120s", text);
    find_peer(crew);
    return DPB_OK;
}

static void add_nodes(const struct dpb_world *world, struct crew_words *argv)
{
    struct dpb_str list = {0};
    for (int n = 0; n < world->nodes; n++)
        dpb_str_appendf(&list, "%s%s", n > 0 ? "," : "", world->node[n].name);
    crew_words_add(argv, "--nodes=%d", world->nodes);
    crew_words_add(argv, "--nodelist=%s", list.text ? list.text : "");
    argv->failed |= list.failed;
    dpb_str_release(&list);
    if (world->ranks_per_node > 0)
        crew_words_add(argv, "--ntasks-per-node=%d", world->ranks_per_node);
}

static dpb_status command(const dpb_crew *crew, const struct dpb_world *world, int ranks,
                          struct crew_words *argv)
{
    char own[4096];
    DPB_TRY(crew_own_path(own, sizeof(own)));
    crew_words_add(argv, "%s", crew->program);
    crew_words_add(argv, "--ntasks=%d", ranks);
    if (world->ranks > 0)
        add_nodes(world, argv);
    if (!crew_words_have(&crew->arguments, "--distribution") &&
        !crew_words_have(&crew->arguments, "-m"))
        crew_words_add(argv, "--distribution=block"); /* ranks of a node are consecutive */
    crew_words_add(argv, "--export=ALL");
    crew_words_add(argv, "--kill-on-bad-exit=1");
    if (release_of(crew->version) >= OVERLAP_SINCE)
        crew_words_add(argv, "--overlap"); /* beside the step or script that this process is in */
    for (size_t i = 0; i < crew->arguments.count; i++)
        crew_words_add(argv, "%s", crew->arguments.items[i]);
    crew_words_add(argv, "%s", own);
    crew_words_add(argv, "%s", DPB_WORKER_VERB);
    return argv->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

const struct crew_ops crew_srun = {.open = open_srun, .command = command, .name = "srun"};
