#include "gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"

#define TIME_LIMIT_NS INT64_C(30000000000)
#define POLL_NS       INT64_C(2000000)

extern char **environ;

char *dpb_gnuplot_find(const char *wanted)
{
    const char *path = getenv("PATH");

    if (wanted)
        return access(wanted, X_OK) == 0 ? strdup(wanted) : NULL;
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char *candidate;

        if (asprintf(&candidate, "%.*s/gnuplot", (int)length, path) < 0)
            return NULL;
        /* an empty entry means the current folder, where nobody keeps gnuplot on purpose */
        if (length > 0 && access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
        path += length + (path[length] == ':');
    }
    return NULL;
}

/* The environment with LC_ALL=C instead of its own; the texts stay borrowed. Caller frees. */
static char **c_environment(void)
{
    size_t count = 0, kept = 0, i;
    char **copy;

    while (environ && environ[count])
        count++;
    copy = calloc(count + 2, sizeof(*copy));
    if (!copy)
        return NULL;
    for (i = 0; i < count; i++) {
        if (strncmp(environ[i], "LC_ALL=", 7) != 0)
            copy[kept++] = environ[i];
    }
    copy[kept] = (char *)(uintptr_t) "LC_ALL=C";
    return copy;
}

/* Start gnuplot with its messages in `messages`; an errno, or 0. */
static int start(const char *gnuplot, const char *folder, const char *script, const char *setting,
                 int messages, pid_t *pid)
{
    char *const arguments[] = {(char *)(uintptr_t) "gnuplot", (char *)(uintptr_t) "-d",
                               (char *)(uintptr_t) "-e",      (char *)(uintptr_t)setting,
                               (char *)(uintptr_t)script,     NULL};
    char **environment = c_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = environment ? posix_spawn_file_actions_init(&actions) : ENOMEM;

    if (error) {
        free(environment);
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        /* a group of its own, so that a time-out ends whatever it started too */
        error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        if (!error)
            error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        if (!error)
            error = posix_spawn_file_actions_adddup2(&actions, messages, 1);
        if (!error)
            error = posix_spawn_file_actions_adddup2(&actions, messages, 2);
        if (!error)
            error = posix_spawn_file_actions_addchdir_np(&actions, folder);
        if (!error)
            error = posix_spawn(pid, gnuplot, &actions, &attributes, arguments, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return error;
}

/* Wait for the process; false when it did not end in time and was killed. */
static bool wait_for(pid_t pid, int *exit_status)
{
    int64_t deadline_ns = dpb_clock_now_ns() + TIME_LIMIT_NS;

    for (;;) {
        pid_t ended = waitpid(pid, exit_status, WNOHANG);

        if (ended == pid)
            return true;
        if (ended < 0 && errno != EINTR) {
            *exit_status = 0; /* somebody else has waited for it: the file tells how it went */
            return true;
        }
        if (dpb_clock_now_ns() > deadline_ns) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, exit_status, 0) < 0 && errno == EINTR)
                ;
            return false;
        }
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + POLL_NS);
    }
}

/* What gnuplot said, on one line. */
static void read_messages(int fd, char *text, size_t text_bytes)
{
    ssize_t count = pread(fd, text, text_bytes - 1, 0);
    char *p;

    text[count > 0 ? count : 0] = '\0';
    for (p = text; *p; p++) {
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    }
}

static dpb_status run_script(const char *gnuplot, const char *folder, const char *name,
                             const char *temporary, int messages)
{
    char script[256], setting[512], said[512];
    int exit_status = 0, error;
    pid_t pid;

    snprintf(script, sizeof(script), "%s.gp", name);
    snprintf(setting, sizeof(setting), "out='%s'", temporary);
    error = start(gnuplot, folder, script, setting, messages, &pid);
    if (error) {
        dpb_warn("cannot start \"%s\": %s; the plot \"%s\" is left out", gnuplot, strerror(error),
                 name);
        return DPB_ERR_UNAVAILABLE;
    }
    if (!wait_for(pid, &exit_status)) {
        dpb_warn("gnuplot did not finish the plot \"%s\" within %d seconds; it is left out", name,
                 (int)(TIME_LIMIT_NS / 1000000000));
        return DPB_ERR_TIMEOUT;
    }
    if (exit_status != 0) {
        read_messages(messages, said, sizeof(said));
        dpb_warn("gnuplot failed on \"%s/%s\": %s", folder, script,
                 said[0] ? said : "it said nothing");
        dpb_log_hint("the script and its data are kept; run it by hand to see more");
        return DPB_ERR_VENDOR;
    }
    return DPB_OK;
}

dpb_status dpb_gnuplot_run(const char *gnuplot, const char *folder, const char *name)
{
    char temporary[300];
    struct dpb_str from = {0}, to = {0};
    int messages = memfd_create("gnuplot", MFD_CLOEXEC);
    dpb_status st;

    if (messages < 0) {
        dpb_warn("cannot keep gnuplot's messages: %s", strerror(errno));
        return DPB_ERR_IO;
    }
    snprintf(temporary, sizeof(temporary), "%s.svg.tmp-%ld", name, (long)getpid());
    dpb_str_appendf(&from, "%s/%s", folder, temporary);
    dpb_str_appendf(&to, "%s/%s.svg", folder, name);
    st = from.failed || to.failed ? DPB_ERR_NO_MEMORY
                                  : run_script(gnuplot, folder, name, temporary, messages);
    if (st == DPB_OK && rename(from.text, to.text) != 0) {
        dpb_warn("cannot write \"%s\": %s", to.text, strerror(errno));
        st = DPB_ERR_IO;
    }
    if (st < 0 && from.text)
        unlink(from.text);
    dpb_str_release(&from);
    dpb_str_release(&to);
    close(messages);
    return st;
}
