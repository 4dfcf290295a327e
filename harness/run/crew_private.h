/* crew_private.h: a crew, as its kinds (crew_mpirun.c, crew_srun.c, crew_started.c) share it. */
#ifndef DPB_CREW_PRIVATE_H
#define DPB_CREW_PRIVATE_H

#include <sys/types.h>

#include "dpb_crew.h"
#include "dpb_launched.h"
#include "dpb_mpi_start.h"
#include "dpb_str.h"

/* ---- a process and what it says (crew_child.c) ---- */

#define CREW_HOW_BYTES 512

/* Of what it has written, the message that tells most: one that is known, else the first
 * (crew_said.c). Zeroed: nothing yet. */
struct crew_said {
    char line[256]; /* that it has begun */
    size_t line_bytes;
    char message[256]; /* that it has begun, its lines joined */
    bool is_known;
    char kept[256];
    bool kept_known;
    const char *remedy; /* of a known one; or NULL */
};

void crew_said_note(struct crew_said *said, const char *bytes, size_t count);
/* What is kept when nothing more comes; "" for nothing. */
const char *crew_said_text(struct crew_said *said);

struct crew_child {
    pid_t pid;     /* 0: none; leader of a process group of its own */
    int output_fd; /* its stdout and stderr; -1: they are ours */
    int lifeline;  /* open for as long as this process lives; -1: none */
    struct crew_said said;
};

/* Start `path`, without input. With `captured` its output goes to our stderr through this process,
 * so that its message is known. It ends when this process does; a captured one, which ends by
 * itself with its ranks, is told to only after a while. Logged. */
dpb_status crew_child_start(struct crew_child *child, const char *path, char *const *argv,
                            char *const *environment, bool captured);
/* DPB_PENDING: at work; DPB_OK: ended well, or there is none; DPB_ERR_RANK_FAILED: "<name> exited
 * with code 1: <its message>" in `how`. Passes its output on. */
dpb_status crew_child_check(struct crew_child *child, const char *name, char *how,
                            size_t how_bytes);
/* End it and its group: SIGTERM, then SIGKILL; reaped when this returns, unless the kernel or a
 * debugger does not let it end, which is logged. */
void crew_child_stop(struct crew_child *child);

/* This environment without the `drop` and with the `set` ("NAME=value"), both ended by NULL. Caller
 * frees with crew_strings_free(). NULL when out of memory. */
char **crew_environment(const char *const *drop, const char *const *set);
void crew_strings_free(char **strings); /* ended by NULL; NULL is fine */

/* ---- words (crew_words.c) ---- */

/* Words of a command line, growing, ended by NULL. */
struct crew_words {
    char **items;
    size_t count;
    bool failed; /* out of memory */
};

void crew_words_add(struct crew_words *words, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Split as a shell does: blanks part, quotes and backslashes keep together; nothing is expanded.
 * DPB_ERR_USAGE, logged, when a quote is not closed. */
dpb_status crew_words_split(const char *text, struct crew_words *words);
void crew_words_release(struct crew_words *words);
/* Is there a word that begins so? */
bool crew_words_have(const struct crew_words *words, const char *beginning);

/* The first executable `name` in PATH; logged, with the hint. */
dpb_status crew_find_program(const char *name, const char *hint, char *path, size_t path_bytes);
/* The first lines of what `path --version` prints. Logged. */
dpb_status crew_program_version(const char *path, char *text, size_t text_bytes);
/* This binary, to be started anywhere. */
dpb_status crew_own_path(char *path, size_t path_bytes);

/* ---- lists of nodes (crew_nodelist.c) ---- */

/* Name number `index` of Slurm's "node[01-03,07],other"; DPB_END beyond the last, and for what is
 * no such list. */
dpb_status crew_nodelist_at(const char *list, int index, char *name, size_t name_bytes);
/* Does `host` mean this machine? */
bool crew_is_this_host(const char *host);

/* ---- crews ---- */

struct crew_ops {
    dpb_status (*open)(dpb_crew *crew);
    /* argv of a launch; NULL: it is no command (started processes). */
    dpb_status (*command)(const dpb_crew *crew, const struct dpb_world *world, int ranks,
                          struct crew_words *argv);
    const char *name; /* of the program */
};

struct crew_started; /* crew_started.c */

struct dpb_crew {
    struct dpb_crew_options options;
    const struct crew_ops *ops;
    struct dpb_world_hosts hosts; /* none: not given */
    struct crew_words arguments;  /* --launcher-args */
    struct dpb_net_token token;
    char program[4096], version[128];
    char peer[DPB_WORLD_HOST_BYTES];  /* a host that must reach the driver; "": this one is all */
    char bind_to[DPB_NET_HOST_BYTES]; /* what launches listen on; "": by the peer */
    struct crew_words command;        /* of the last launch */
    struct crew_child child;          /* mpirun or srun; of started processes: rank 0's rank */
    struct crew_started *started;
};

extern const struct crew_ops crew_mpirun, crew_srun;

/* The first mpirun in PATH. DPB_ERR_UNAVAILABLE, logged: there is none (`program` is ""), or it is
 * of no MPI that --launcher mpirun knows. */
struct crew_mpirun_found {
    char program[4096], version[128]; /* as in struct dpb_crew */
    enum dpb_mpi_library library;
};
dpb_status crew_mpirun_find(struct crew_mpirun_found *mpirun);

/* ---- started processes ---- */

struct crew_opening {
    const char *settings_hash;
    const volatile sig_atomic_t *interrupted;
    struct dpb_launched launched;
    int64_t deadline_ns; /* until which all must have come */
};

/* As dpb_crew_open(), after the options were checked: in rank 0 all have come and are a world, in
 * another one all is over (DPB_END). */
dpb_status crew_started_open(dpb_crew *crew, const struct crew_opening *opening,
                             dpb_status *verdict);
void crew_started_close(dpb_crew *crew, dpb_status verdict);
const struct dpb_world *crew_started_world(const dpb_crew *crew);
dpb_status crew_started_start(dpb_crew *crew, int ranks, const struct dpb_net_address *address);
dpb_status crew_started_check(dpb_crew *crew, char *how, size_t how_bytes);
void crew_started_stop(dpb_crew *crew);

/* The rank of this process in a launch of `ranks`. */
struct crew_rank {
    const struct dpb_net_token *token;
    struct dpb_launched launched;
};
dpb_status crew_rank_start(const struct crew_rank *rank, struct crew_child *child, int ranks,
                           const char *address);

/* What the others do (crew_member.c): serve launches until the driver says that it is over. */
dpb_status crew_member_serve(int fd, const struct crew_rank *rank,
                             const struct crew_opening *opening, dpb_status *verdict);

/* Where they meet (crew_meeting.c). */
struct crew_meeting {
    struct dpb_net_address address; /* port 0: it is in the file */
    char file[4096];                /* "": none */
    char folder[3900];              /* of the file, where its name is the job's; "": it is not */
    bool one_host;                  /* all are on this one */
    bool has_token;
    struct dpb_net_token token;
    int file_fd; /* of rank 0, locked */
};
dpb_status crew_meeting_find(const struct dpb_crew_options *options,
                             const struct dpb_launched *launched, struct crew_meeting *meeting);
/* Rank 0: listen, and make it known. */
dpb_status crew_meeting_host(struct crew_meeting *meeting, const struct dpb_crew_options *options,
                             int *listen_fd);
/* Another rank: connect; `meeting` then has the token. */
dpb_status crew_meeting_join(struct crew_meeting *meeting, const struct crew_opening *opening,
                             int *fd);
void crew_meeting_end(struct crew_meeting *meeting);

#endif
