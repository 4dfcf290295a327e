#include "dpb_run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_str.h"

#define MANIFEST        "manifest.json"
#define MANIFEST_SCHEMA "dpb.manifest/1"
#define SPACE_CHECK     ".space-check"

enum hold {
    HELD, /* by this process */
    HELD_BY_OTHER,
    CANNOT_TELL /* a folder that is not there, a file system that cannot lock */
};

/* Until `fd` is closed, or the process ends in whatever way. */
static enum hold hold(const char *folder, int *fd)
{
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return CANNOT_TELL;
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return HELD;
    return errno == EWOULDBLOCK ? HELD_BY_OTHER : CANNOT_TELL;
}

/* The last part of the folder's full path, so that "x", "x/" and "." in it are one name. */
static char *folder_name(const char *folder)
{
    char *path = realpath(folder, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;
    char *name = strdup(slash && slash[1] ? slash + 1 : "run");
    free(path);
    return name;
}

static bool exists(const char *folder, const char *name)
{
    char *path = dpb_path_join(folder, name);
    bool yes = path && access(path, F_OK) == 0;
    free(path);
    return yes;
}

void dpb_run_resume_command(const char *folder, const char *options, struct dpb_str *command)
{
    dpb_str_append(command, "dpbench sweep --resume ");
    dpb_shell_quote(folder, command);
    dpb_str_append(command, options);
}

/* Only the claim of a run that was killed before it had written anything else. */
static bool is_abandoned(const char *folder, const char *claimed)
{
    struct stat info;
    int fd;
    if (stat(claimed, &info) != 0 || info.st_size > 0 || exists(folder, MANIFEST))
        return false;
    const bool nobody = hold(folder, &fd) == HELD;
    if (fd >= 0)
        close(fd);
    return nobody;
}

/* Make the record file, which only one program can: DPB_END when it is another run's already. */
static dpb_status claim(const char *folder)
{
    char *path = dpb_path_join(folder, DPB_RECORDS_FILE);
    if (!path)
        return DPB_ERR_NO_MEMORY;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    dpb_status st = fd >= 0 ? DPB_OK : errno == EEXIST ? DPB_END : DPB_ERR_IO;
    if (st == DPB_END && is_abandoned(folder, path))
        st = DPB_OK;
    if (st < 0) {
        dpb_error("cannot write \"%s\": %s", path, strerror(errno));
        dpb_log_hint("give a folder with space and write permission: -o DIR");
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return st;
}

/* Space, tested by using it. */
static dpb_status check_space(const char *folder)
{
    static const char filler[65536];
    char *path = dpb_path_join(folder, SPACE_CHECK);
    if (!path)
        return DPB_ERR_NO_MEMORY;
    dpb_status st = dpb_file_write_atomic(path, filler, sizeof(filler));
    unlink(path);
    free(path);
    if (st < 0) {
        dpb_log_hint("give a folder with space and write permission: -o DIR");
        path = dpb_path_join(folder, DPB_RECORDS_FILE);
        if (path)
            unlink(path); /* the claim: the folder holds no run after all */
        free(path);
    }
    return st;
}

dpb_status dpb_run_folder_new(const char *wanted, const char *name, char **folder)
{
    char made[4096], stamp[32];
    dpb_status st;
    dpb_clock_utc_stamp(stamp, sizeof(stamp));
    snprintf(made, sizeof(made), "%s", wanted ? wanted : "");
    for (int n = 1;; n++) {
        if (!wanted)
            snprintf(made, sizeof(made), n == 1 ? "runs/%s-%s" : "runs/%s-%s-%d", stamp, name, n);
        DPB_TRY(dpb_mkdir_p(made));
        st = exists(made, MANIFEST) ? DPB_END : claim(made);
        if (wanted || st != DPB_END)
            break;
    }
    if (st == DPB_END) {
        struct dpb_str command = {0};
        dpb_run_resume_command(made, "", &command);
        dpb_error("\"%s\" already holds a run", made);
        dpb_log_hint("continue it with `%s`, or choose another folder",
                     command.failed ? "" : command.text);
        dpb_str_release(&command);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(st);
    DPB_TRY(check_space(made));
    char *copy = strdup(made);
    if (!copy)
        return DPB_ERR_NO_MEMORY;
    *folder = copy;
    return DPB_OK;
}

dpb_status dpb_manifest_write(const char *folder, const struct dpb_manifest *manifest)
{
    char now[32];
    char *path = dpb_path_join(folder, MANIFEST);
    if (!path)
        return DPB_ERR_NO_MEMORY;
    dpb_clock_utc_text(now, sizeof(now));
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "schema", MANIFEST_SCHEMA);
    dpb_json_set_string(json, "run_id", manifest->run_id);
    dpb_json_set_string(json, "state", manifest->state);
    dpb_json_set_string(json, "written_utc", now);
    dpb_json_set(json, "tool", dpb_tool_json());
    dpb_json_set(json, "host", dpb_json_copy(manifest->host));
    dpb_json_set(json, "launcher", dpb_crew_json(manifest->crew));
    dpb_json_set(json, "plan", dpb_plan_to_json(manifest->plan));
    dpb_status st = dpb_json_write_file(json, path);
    dpb_json_free(json);
    free(path);
    return st;
}

dpb_status dpb_run_plan_read(const struct dpb_registry *registry, const char *folder,
                             struct dpb_plan *plan)
{
    char *path = dpb_path_join(folder, MANIFEST);
    dpb_json *manifest = NULL;
    dpb_status st = path ? dpb_json_read_file(path, &manifest) : DPB_ERR_NO_MEMORY;
    if (st == DPB_ERR_NOT_FOUND)
        dpb_log_hint("name the folder of a run, such as runs/20261201T120000Z-quick");
    if (st == DPB_OK &&
        strcmp(dpb_json_as_string(dpb_json_get(manifest, "schema"), ""), MANIFEST_SCHEMA) != 0) {
        dpb_error("\"%s\" is no manifest of a run (schema %s expected)", path, MANIFEST_SCHEMA);
        dpb_log_hint("name the folder of a run, such as runs/20261201T120000Z-quick");
        st = DPB_ERR_CORRUPT;
    }
    if (st == DPB_OK)
        st = dpb_plan_from_json(registry, dpb_json_get(manifest, "plan"), plan);
    dpb_json_free(manifest);
    free(path);
    return st;
}

static void refuse_without(const char *launcher, const char *folder, const dpb_json *manifest)
{
    struct dpb_str command = {0};
    dpb_run_resume_command(
            folder, dpb_json_as_string(dpb_json_path(manifest, "launcher/options"), ""), &command);
    dpb_error("ranks of the run in \"%s\" were started with --launcher %s, and now there is none",
              folder, launcher);
    dpb_log_hint("`%s`; or start a new sweep for this machine alone",
                 command.failed ? "" : command.text);
    dpb_str_release(&command);
}

dpb_status dpb_run_crew_check(const char *folder, const dpb_crew *crew)
{
    const char *local = dpb_launcher_text(DPB_LAUNCHER_LOCAL);
    dpb_json *manifest = NULL;
    if (crew)
        return DPB_OK;
    char *path = dpb_path_join(folder, MANIFEST);
    dpb_status st = path ? dpb_json_read_file(path, &manifest) : DPB_ERR_NO_MEMORY;
    free(path);
    DPB_TRY(st);
    const char *launcher = dpb_json_as_string(dpb_json_path(manifest, "launcher/launcher"), local);
    if (strcmp(launcher, local) != 0) {
        refuse_without(launcher, folder, manifest);
        st = DPB_ERR_USAGE;
    }
    dpb_json_free(manifest);
    return st;
}

/* What only who holds the folder writes, half written: of one that was killed. */
static void remove_half_written(const char *folder)
{
    static const char *const begins[] = {DPB_RECORDS_FILE ".tmp-", MANIFEST ".tmp-", SPACE_CHECK};
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
            if (strncmp(entry->d_name, begins[i], strlen(begins[i])) == 0)
                unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}

dpb_status dpb_run_folder_lock(const char *folder, int *fd)
{
    switch (hold(folder, fd)) {
    case HELD:
        remove_half_written(folder);
        return DPB_OK;
    case CANNOT_TELL: /* no reason not to measure */
        return DPB_OK;
    case HELD_BY_OTHER:
        break;
    }
    dpb_error("another dpbench is running in \"%s\"", folder);
    dpb_log_hint("wait until it has ended, or choose another folder");
    return DPB_ERR_UNAVAILABLE;
}

dpb_status dpb_run_folder_name(const char *folder, bool resume, char **run_id)
{
    char *name = NULL;
    if (resume) {
        char *path = dpb_path_join(folder, MANIFEST);
        dpb_json *manifest = NULL;
        dpb_status st = path ? dpb_json_read_file(path, &manifest) : DPB_ERR_NO_MEMORY;
        free(path);
        DPB_TRY(st);
        const char *kept = dpb_json_as_string(dpb_json_get(manifest, "run_id"), "");
        name = kept[0] ? strdup(kept) : folder_name(folder);
        dpb_json_free(manifest);
    } else {
        name = folder_name(folder);
    }
    if (!name)
        return DPB_ERR_NO_MEMORY;
    *run_id = name;
    return DPB_OK;
}
