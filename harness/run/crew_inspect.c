/* What dpbench doctor says of launchers: what would be started, and what is missing for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew_private.h"
#include "dpb_log.h"
#include "dpb_module.h"

#define DETAIL_BYTES 2048

static void keep_quiet(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static void inspect_mpirun(dpb_found found, void *ctx)
{
    struct crew_mpirun_found mpirun;
    char detail[DETAIL_BYTES], why[1024] = "";
    const dpb_status st = crew_mpirun_find(&mpirun);
    if (!mpirun.program[0]) {
        found(ctx, DPB_FINDING_OK, "mpirun",
              "none in PATH: --launcher mpirun needs one (Debian: openmpi-bin or mpich)", NULL);
        return;
    }
    if (st < 0) {
        snprintf(detail, sizeof(detail), "%.1000s: not usable by --launcher mpirun: \"%s\"",
                 mpirun.program, mpirun.version);
        found(ctx, DPB_FINDING_WARN, "mpirun", detail,
              "put Open MPI's or MPICH's first in PATH, or use --launcher none");
        return;
    }
    const bool usable = dpb_module_check_mpi(mpirun.library, why, sizeof(why)) == DPB_OK;
    snprintf(detail, sizeof(detail), "%.500s: %s; the module of comm mpi for it %s", mpirun.program,
             mpirun.version, usable ? "loads" : why);
    found(ctx, usable ? DPB_FINDING_OK : DPB_FINDING_WARN, "mpirun", detail,
          "comm mpi needs the module of the MPI whose mpirun is first in PATH");
}

static void inspect_srun(dpb_found found, void *ctx)
{
    char program[4096], version[512] = "", where[96] = "not in a Slurm job", detail[DETAIL_BYTES];
    const char *job = getenv("SLURM_JOB_ID");
    const bool there = crew_find_program("srun", "", program, sizeof(program)) == DPB_OK;
    if (job)
        snprintf(where, sizeof(where), "in Slurm job %.64s", job);
    if (there)
        (void)crew_program_version(program, version, sizeof(version));
    version[strcspn(version, "\n")] = '\0';
    if (there) /* without a configuration its first line is an error */
        snprintf(detail, sizeof(detail), "%.1000s: %s; %s", program, version, where);
    else
        snprintf(detail, sizeof(detail), "none in PATH; %s", where);
    const bool works = there && strncmp(version, "slurm", strlen("slurm")) == 0;
    found(ctx, works || (!there && !job) ? DPB_FINDING_OK : DPB_FINDING_WARN, "srun", detail,
          "--launcher srun needs Slurm's commands, set up for its cluster (Debian: slurm-client)");
}

static void inspect_interfaces(dpb_found found, void *ctx)
{
    struct dpb_str list = {0};
    dpb_net_interfaces(&list);
    found(ctx, DPB_FINDING_OK, "interfaces",
          list.text && !list.failed ? list.text : "none is up: ranks cannot reach a driver", NULL);
    dpb_str_release(&list);
}

void dpb_crew_inspect(dpb_found found, void *ctx)
{
    void *sink_ctx;
    const dpb_log_sink sink = dpb_log_get_sink(&sink_ctx);
    dpb_log_set_sink(keep_quiet, NULL); /* reasons are findings here */
    inspect_mpirun(found, ctx);
    inspect_srun(found, ctx);
    inspect_interfaces(found, ctx);
    dpb_log_set_sink(sink, sink_ctx);
}
