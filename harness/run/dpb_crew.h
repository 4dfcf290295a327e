/* dpb_crew.h: who starts a launch's ranks when they are not forked here: mpirun or srun for every
 * launch, or processes that somebody else has already started, one per rank.
 *
 *   driver (this process)                         rank (dpbench worker, anywhere)
 *   listens, makes a token          crew starts   connects with the token, says who it is
 *   all there? dpb_world_check()  <------------   (struct dpb_world_claim)
 *   job, beats                    <----------->   beats (where it is), messages, result
 *
 * dpb_launch_run() does the talking; a crew only starts processes and ends them. */
#ifndef DPB_CREW_H
#define DPB_CREW_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_finding.h"
#include "dpb_json.h"
#include "dpb_net.h"
#include "dpb_options.h"
#include "dpb_status.h"
#include "dpb_world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, text, help */
#define DPB_LAUNCHER_MAP(X)                                                                        \
    X(DPB_LAUNCHER_LOCAL, "local", "dpbench starts its ranks itself, on this machine")             \
    X(DPB_LAUNCHER_MPIRUN, "mpirun",                                                               \
      "every launch is an mpirun (Open MPI or MPICH) of its own, on --hosts or --hostfile")        \
    X(DPB_LAUNCHER_SRUN, "srun", "every launch is a job step of its own, inside a Slurm job")      \
    X(DPB_LAUNCHER_TORCHRUN, "torchrun-env",                                                       \
      "torchrun, or pods with its variables, started a dpbench for every rank")                    \
    X(DPB_LAUNCHER_NONE, "none",                                                                   \
      "mpirun, srun or anything with their variables started a dpbench for every rank")

enum dpb_launcher_kind {
#define DPB_LAUNCHER_ENUM(name, text, help) name,
    DPB_LAUNCHER_MAP(DPB_LAUNCHER_ENUM)
#undef DPB_LAUNCHER_ENUM
};

const char *dpb_launcher_text(enum dpb_launcher_kind kind);

/* The options of every verb that launches: DPB_ROWS_CREW() (harness/cli/dpb_cli.h) has their rows.
 */
struct dpb_crew_options {
    int launcher;                           /* enum dpb_launcher_kind */
    char hosts[DPB_OPTION_TEXT_BYTES];      /* --hosts */
    char hostfile[DPB_OPTION_TEXT_BYTES];   /* --hostfile */
    char interface[DPB_OPTION_TEXT_BYTES];  /* --interface: what the driver listens on, as
                                               dpb_net_listen() takes it */
    char rendezvous[DPB_OPTION_TEXT_BYTES]; /* --rendezvous HOST:PORT or file:PATH: where processes
                                               that somebody else started meet */
    int64_t rendezvous_timeout_ns;          /* --rendezvous-timeout: how long they may take to */
    char launcher_args[DPB_OPTION_TEXT_BYTES]; /* --launcher-args: words for mpirun or srun, split
                                                  as a shell does, without expansion */
};

#define DPB_CREW_TOKEN_VARIABLE "DPBENCH_TOKEN" /* the user's secret for started processes */

typedef struct dpb_crew dpb_crew;

/* DPB_OK and a crew; DPB_OK and NULL for `local`; DPB_END in a process that is not the driver but
 * one of several that somebody else started: it has served all launches and is done, and `verdict`
 * is what the driver's run came to, as far as it was told (else why it ended; the driver's messages
 * are the driver's). `settings_hash` is of the command line: all started processes must have the
 * same. Refused, logged: an option that cannot take effect (--hosts with local, --rendezvous with
 * mpirun ...: DPB_ERR_USAGE), variables that disagree, a process that was started as one of several
 * with `local`, no launcher found (mpirun, srun missing: with the package to install), no token
 * where processes on several hosts need one, ranks that do not come (DPB_ERR_TIMEOUT, with their
 * numbers), and what dpb_world_check() refuses. */
dpb_status dpb_crew_open(const struct dpb_crew_options *options, const char *settings_hash,
                         const volatile sig_atomic_t *interrupted, dpb_crew **crew,
                         dpb_status *verdict);
/* DPB_ERR_UNAVAILABLE, logged, when a launcher such as mpirun started more than this process. */
dpb_status dpb_crew_check_alone(void);

/* Started processes are told that there is no more to do and what came of it, and end. NULL is
 * fine. */
void dpb_crew_close(dpb_crew *crew, dpb_status verdict);

enum dpb_launcher_kind dpb_crew_kind(const dpb_crew *crew); /* NULL: local */
/* Did somebody else start the processes, one for every rank? */
bool dpb_crew_is_started(const dpb_crew *crew);
/* Is it known that all ranks are on this host, which has their data? */
bool dpb_crew_is_here(const dpb_crew *crew);
/* The most ranks a launch can have; 0: only the launcher will tell. */
int dpb_crew_ranks_max(const dpb_crew *crew);
/* Can comm `name` be used in `launches` launches of this crew? MPI starts once in a process, so
 * processes that somebody else started can serve it in one launch with all of them; what
 * `needs_segment` needs ranks that inherit it. DPB_ERR_USAGE, logged, with the remedy. */
dpb_status dpb_crew_check_comm(const dpb_crew *crew, const char *name, bool needs_segment,
                               size_t launches, int ranks_least, int ranks_most);
/* For manifest and records: {"launcher", "version" (of mpirun or srun), "command" (argv, without
 * secrets; both null without them), "hosts" ([{"name", "slots"}], null where not given), "options"
 * (" --launcher mpirun --hosts node1:2" for a shell, "" without a crew)}. */
dpb_json *dpb_crew_json(const dpb_crew *crew);

/* What launchers find on this machine: the first mpirun in PATH and whether the module for it
 * loads, srun and the Slurm job, addresses that a driver can listen on. */
void dpb_crew_inspect(dpb_found found, void *ctx);

/* ---- for dpb_launch_run() ---- */

/* Where ranks will be, as far as it is known before they are started: `world` as by
 * dpb_world_map(), or ranks = 0. Caller releases. */
dpb_status dpb_crew_map(const dpb_crew *crew, int ranks, int ranks_per_node,
                        struct dpb_world *world);
/* The interface to listen on and the host to be reachable from, for dpb_net_listen(); both may be
 * NULL. */
void dpb_crew_listen_hints(const dpb_crew *crew, const char **bind_to, const char **peer);
/* What ranks of this crew must know: random, or of the secret that started processes were given. */
void dpb_crew_token(const dpb_crew *crew, struct dpb_net_token *token);
/* Start `ranks` processes that call back to `address` with `token`. */
dpb_status dpb_crew_start(dpb_crew *crew, const struct dpb_world *world, int ranks,
                          const struct dpb_net_address *address, const struct dpb_net_token *token);
/* What has become of them: DPB_PENDING: at work. DPB_OK: all ended well. DPB_ERR_RANK_FAILED: the
 * launcher ended otherwise; `how` is one line ("mpirun exited with code 1: <its message>"). */
dpb_status dpb_crew_check(dpb_crew *crew, char *how, size_t how_bytes);
/* What helps against that, where it is known; else NULL. */
const char *dpb_crew_remedy(const dpb_crew *crew);
/* End those that are left, with SIGTERM, then SIGKILL; returns when the launcher is reaped. What it
 * cannot reach ends by itself (DPB_LAUNCHER_SILENCE_NS). `ending`: ranks have failed or were let
 * go, so that mpirun or srun is likely to end by itself, and has two seconds to before it is told.
 */
void dpb_crew_stop(dpb_crew *crew, bool ending);

#ifdef __cplusplus
}
#endif
#endif
