/* Where processes that somebody else started meet: at an address that their launcher's variables
 * give, at one that the user gives, or by a file that only this user can read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "crew_private.h"
#include "dpb_clock.h"
#include "dpb_json.h"
#include "dpb_log.h"

#define FILE_PREFIX    "file:"
#define FILE_NAME      "dpbench-%u-%d-%016" PRIx64 /* user, launcher, job */
#define FILE_BYTES_MAX 4096
#define LOCK_NS        2000000000ll /* for who only looks whether a file's rank 0 is dead */
#define LOCK_AGAIN_NS  1000000ll
#define LOOK_NS        100000000ll /* between two looks at the file */
#define TRY_NS         2000000000ll /* for a connection, before the file is read again: it may be old */
#define PORT_LEAST     20000
#define PORTS          12000 /* below those that Linux hands out by itself */

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

/* ---- which place ---- */

/* What tells one job of this user from another on this host. */
static uint64_t job_number(const struct dpb_launched *launched)
{
    char id[512];
    switch (launched->by) {
    case DPB_LAUNCHED_BY_SLURM:
        snprintf(id, sizeof(id), "%s.%s", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"));
        break;
    case DPB_LAUNCHED_BY_TORCHRUN:
        snprintf(id, sizeof(id), "%s.%s.%s", variable("TORCHELASTIC_RUN_ID"),
                 variable("MASTER_ADDR"), variable("MASTER_PORT"));
        break;
    case DPB_LAUNCHED_BY_OPEN_MPI:
        snprintf(id, sizeof(id), "%s.%s", variable("PMIX_NAMESPACE"),
                 variable("OMPI_MCA_ess_base_jobid"));
        break;
    default: /* Hydra's proxy is the parent of all ranks of a host */
        snprintf(id, sizeof(id), "%d", (int)getppid());
        break;
    }
    return XXH3_64bits(id, strlen(id));
}

static void name_file(const struct dpb_launched *launched, struct crew_meeting *meeting)
{
    const char *folder = variable("XDG_RUNTIME_DIR");
    snprintf(meeting->folder, sizeof(meeting->folder), "%s", folder[0] ? folder : "/tmp");
    snprintf(meeting->file, sizeof(meeting->file), "%s/" FILE_NAME, meeting->folder,
             (unsigned)geteuid(), (int)launched->by, job_number(launched));
}

static dpb_status take_address(const char *text, const char *origin, struct crew_meeting *meeting)
{
    char why[256];
    if (dpb_net_address_parse(text, -1, &meeting->address, why, sizeof(why)) == DPB_OK &&
        meeting->address.port > 0)
        return DPB_OK;
    dpb_error("%s: \"%s\" is no place to meet: %s", origin, text, why[0] ? why : "no port");
    dpb_log_hint("write HOST:PORT, a free port of the host that has rank 0, or file:PATH");
    return DPB_ERR_USAGE;
}

static dpb_status by_option(const char *text, struct crew_meeting *meeting)
{
    if (strncmp(text, FILE_PREFIX, strlen(FILE_PREFIX)) != 0)
        return take_address(text, "--rendezvous", meeting);
    snprintf(meeting->file, sizeof(meeting->file), "%s", text + strlen(FILE_PREFIX));
    if (meeting->file[0])
        return DPB_OK;
    dpb_error("--rendezvous %s: the path is empty", text);
    dpb_log_hint("write file:PATH, on a file system that all hosts share");
    return DPB_ERR_USAGE;
}

/* torchrun's own store holds MASTER_PORT. */
static dpb_status by_torchrun(struct crew_meeting *meeting)
{
    char text[DPB_NET_ADDRESS_BYTES];
    const char *host = variable("MASTER_ADDR");
    snprintf(text, sizeof(text), strchr(host, ':') ? "[%.250s]:%ld" : "%.250s:%ld", host,
             strtol(variable("MASTER_PORT"), NULL, 10) + 1);
    return take_address(text, "MASTER_ADDR and MASTER_PORT + 1", meeting);
}

static dpb_status by_slurm(struct crew_meeting *meeting)
{
    char id[128];
    if (crew_nodelist_at(variable("SLURM_STEP_NODELIST"), 0, meeting->address.host,
                         sizeof(meeting->address.host)) != DPB_OK) {
        dpb_error("SLURM_STEP_NODELIST=%s names no node", variable("SLURM_STEP_NODELIST"));
        dpb_log_hint("give --rendezvous HOST:PORT, of the host that has rank 0");
        return DPB_ERR_UNAVAILABLE;
    }
    snprintf(id, sizeof(id), "%.60s.%.60s", variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"));
    meeting->address.port = PORT_LEAST + (int)(XXH3_64bits(id, strlen(id)) % PORTS);
    return DPB_OK;
}

static bool is_on_one_host(const struct dpb_launched *launched)
{
    if (launched->local_size >= 0)
        return launched->local_size == launched->size;
    return launched->size == 1 ||
           (launched->by == DPB_LAUNCHED_BY_TORCHRUN && crew_is_this_host(variable("MASTER_ADDR")));
}

/* Processes on several hosts have no secret of their own. */
static dpb_status take_token(struct crew_meeting *meeting)
{
    const char *text = getenv(DPB_CREW_TOKEN_VARIABLE);
    meeting->has_token = text && text[0];
    if (meeting->has_token)
        return dpb_net_token_from_text(text, &meeting->token);
    if (meeting->file[0])
        return DPB_OK;
    dpb_error("processes on several hosts need a secret that they share: %s is not set",
              DPB_CREW_TOKEN_VARIABLE);
    dpb_log_hint("set it to the same random text, of 16 characters at least, for all of them, such "
                 "as the output of `openssl rand -hex 32`; or meet by a file that they all see: "
                 "--rendezvous file:PATH");
    return DPB_ERR_UNAVAILABLE;
}

dpb_status crew_meeting_find(const struct dpb_crew_options *options,
                             const struct dpb_launched *launched, struct crew_meeting *meeting)
{
    *meeting = (struct crew_meeting){.file_fd = -1, .one_host = is_on_one_host(launched)};
    if (options->rendezvous[0]) {
        DPB_TRY(by_option(options->rendezvous, meeting));
    } else if (meeting->one_host) {
        name_file(launched, meeting);
    } else if (launched->by == DPB_LAUNCHED_BY_TORCHRUN && variable("MASTER_ADDR")[0]) {
        DPB_TRY(by_torchrun(meeting));
    } else if (launched->by == DPB_LAUNCHED_BY_SLURM) {
        DPB_TRY(by_slurm(meeting));
    } else {
        dpb_error("the variables of %s do not tell %d processes on several hosts where to meet",
                  dpb_launched_by_text(launched->by), launched->size);
        dpb_log_hint("give --rendezvous HOST:PORT, of the host that has rank 0, or file:PATH");
        return DPB_ERR_UNAVAILABLE;
    }
    return take_token(meeting);
}

/* ---- rank 0 ---- */

/* A plain file of this user's that nobody else can read. */
static bool is_private(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_uid == geteuid() && S_ISREG(info.st_mode) &&
           !(info.st_mode & 077);
}

/* Another rank 0 has the lock for as long as it lives, remove_if_left() for an instant. */
static bool is_held(int fd)
{
    const int64_t until_ns = dpb_clock_now_ns() + LOCK_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) /* a file system without locks */
            return false;
        if (dpb_clock_now_ns() >= until_ns)
            return true;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + LOCK_AGAIN_NS);
    }
    return false;
}

/* Only this user's, and only one rank 0's: the lock goes with the process. */
static dpb_status check_file(const struct crew_meeting *meeting, int fd)
{
    if (fd < 0) {
        dpb_error("cannot write \"%s\", where the ranks meet: %s", meeting->file, strerror(errno));
        dpb_log_hint("give another: --rendezvous file:PATH");
        return DPB_ERR_IO;
    }
    if (!is_private(fd)) {
        dpb_error("\"%s\", where the ranks meet, may be another user's work", meeting->file);
        dpb_log_hint("it must be a plain file that only this user can read; or give another: "
                     "--rendezvous file:PATH");
        return DPB_ERR_IO;
    }
    if (!is_held(fd))
        return DPB_OK;
    dpb_error("rank 0 is claimed twice: another process holds \"%s\", where the ranks meet",
              meeting->file);
    dpb_log_hint("every process needs a rank of its own; for two runs at a time give each its "
                 "--rendezvous file:PATH");
    return DPB_ERR_UNAVAILABLE;
}

/* An earlier rank 0 removes its file at its end: a lock on that is a lock on nothing. */
static bool is_there(const char *path, int fd)
{
    struct stat here, there;
    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

static dpb_status lock_file(struct crew_meeting *meeting)
{
    for (;;) {
        int fd = open(meeting->file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        dpb_status st = check_file(meeting, fd);
        if (st == DPB_OK && is_there(meeting->file, fd)) {
            meeting->file_fd = fd;
            return DPB_OK;
        }
        if (fd >= 0)
            close(fd);
        DPB_TRY(st);
    }
}

static bool is_meeting(const char *name)
{
    char again[128];
    unsigned user;
    uint64_t job;
    int by;
    if (sscanf(name, "dpbench-%u-%d-%" SCNx64, &user, &by, &job) != 3 || user != geteuid())
        return false;
    snprintf(again, sizeof(again), FILE_NAME, user, by, job);
    return strcmp(name, again) == 0;
}

/* A rank 0 that was killed leaves its file, with the secret of its run; who can lock it knows that
 * no process has it. (A pid would not tell: containers with pids of their own may share /tmp.) */
static void remove_if_left(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (is_private(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_there(path, fd) &&
        unlink(path) == 0)
        dpb_debug("removed \"%s\": the rank 0 that made it is dead", path);
    close(fd);
}

static void remove_what_is_left(const char *folder)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096 + sizeof(entry->d_name)];
        if (!is_meeting(entry->d_name))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        remove_if_left(path);
    }
    if (dir)
        closedir(dir);
}

static dpb_status write_place(const struct crew_meeting *meeting)
{
    char where[DPB_NET_ADDRESS_BYTES], secret[DPB_NET_TOKEN_TEXT];
    struct dpb_str text = {0};
    dpb_net_address_text(&meeting->address, where);
    dpb_net_token_text(&meeting->token, secret);
    dpb_str_appendf(&text, "%s %s\n", where, secret);
    if (text.failed)
        return DPB_ERR_NO_MEMORY;
    const bool written =
            ftruncate(meeting->file_fd, 0) == 0 &&
            pwrite(meeting->file_fd, text.text, text.length, 0) == (ssize_t)text.length;
    if (!written)
        dpb_error("cannot write \"%s\", where the ranks meet: %s", meeting->file, strerror(errno));
    dpb_str_release(&text);
    return written ? DPB_OK : DPB_ERR_IO;
}

dpb_status crew_meeting_host(struct crew_meeting *meeting, const struct dpb_crew_options *options,
                             int *listen_fd)
{
    const char *bind_to = options->interface[0] ? options->interface : NULL;
    char outside[DPB_NET_HOST_BYTES];
    if (meeting->file[0])
        DPB_TRY(lock_file(meeting));
    else if (!bind_to)
        bind_to = meeting->address.host;
    if (!bind_to && !meeting->one_host) {
        DPB_TRY(dpb_net_outside(outside));
        bind_to = outside;
    }
    if (!meeting->has_token)
        DPB_TRY(dpb_net_token_new(&meeting->token));
    DPB_TRY(dpb_net_listen(bind_to, NULL, meeting->address.port, listen_fd, &meeting->address));
    if (!meeting->file[0])
        return DPB_OK;
    if (meeting->folder[0])
        remove_what_is_left(meeting->folder);
    dpb_status st = write_place(meeting);
    if (st < 0) {
        close(*listen_fd);
        *listen_fd = -1;
    }
    return st;
}

void crew_meeting_end(struct crew_meeting *meeting)
{
    if (meeting->file_fd < 0)
        return;
    unlink(meeting->file);
    close(meeting->file_fd);
    meeting->file_fd = -1;
}

/* ---- the others ---- */

/* NULL when rank 0 has written where it is, else what is wrong with the file by now. */
static const char *read_place(struct crew_meeting *meeting)
{
    static const char nothing[] = "does not say where rank 0 is";
    char text[FILE_BYTES_MAX], why[256];
    int fd = open(meeting->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? "is not there" : "cannot be opened";
    const bool ours = is_private(fd);
    const ssize_t got = ours ? read(fd, text, sizeof(text) - 1) : -1;
    close(fd);
    if (!ours)
        return "is no plain file of this user that nobody else can read";
    text[got > 0 ? got : 0] = '\0';
    char *secret = strchr(text, ' '), *end = strchr(text, '\n');
    if (!secret || !end)
        return nothing;
    *secret++ = '\0';
    *end = '\0';
    const bool known =
            dpb_net_address_parse(text, -1, &meeting->address, why, sizeof(why)) == DPB_OK &&
            dpb_net_token_from_text(secret, &meeting->token) == DPB_OK;
    return known ? NULL : nothing;
}

static void keep_quiet(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static bool is_over(const struct crew_opening *opening)
{
    return dpb_clock_now_ns() >= opening->deadline_ns ||
           (opening->interrupted && *opening->interrupted);
}

/* NULL when connected, else why not by now. */
static const char *try_file(struct crew_meeting *meeting, const struct crew_opening *opening,
                            int *fd)
{
    const int64_t until_ns = dpb_clock_now_ns() + TRY_NS;
    const char *wrong = read_place(meeting);
    if (wrong)
        return wrong;
    return dpb_net_connect(&meeting->address, &meeting->token, "member",
                           until_ns < opening->deadline_ns ? until_ns : opening->deadline_ns,
                           fd) == DPB_OK
                   ? NULL
                   : "names a place where nobody answers";
}

/* The file may be of an earlier run: what does not answer is looked up again. It is looked at once
 * at least, however late it is. */
static dpb_status join_by_file(struct crew_meeting *meeting, const struct crew_opening *opening,
                               int *fd)
{
    const char *wrong;
    void *sink_ctx;
    const dpb_log_sink sink = dpb_log_get_sink(&sink_ctx);
    do {
        const int64_t now_ns = dpb_clock_now_ns();
        dpb_log_set_sink(keep_quiet, NULL);
        wrong = try_file(meeting, opening, fd);
        dpb_log_set_sink(sink, sink_ctx);
        if (!wrong)
            return DPB_OK;
        dpb_clock_sleep_until_ns(now_ns + LOOK_NS);
    } while (!is_over(opening));
    if (opening->interrupted && *opening->interrupted)
        return DPB_ERR_INTERRUPTED;
    dpb_error("rank %d did not meet rank 0 within --rendezvous-timeout: \"%s\" %s",
              opening->launched.rank, meeting->file, wrong);
    dpb_log_hint("look at rank 0's messages; processes on several hosts need a --rendezvous that "
                 "they all reach");
    return DPB_ERR_TIMEOUT;
}

dpb_status crew_meeting_join(struct crew_meeting *meeting, const struct crew_opening *opening,
                             int *fd)
{
    if (meeting->file[0])
        return join_by_file(meeting, opening, fd);
    return dpb_net_connect_unless(&meeting->address, &meeting->token, "member",
                                  opening->deadline_ns, opening->interrupted, fd);
}
