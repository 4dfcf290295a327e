/* The file half of dpb_str.h. */
#include "dpb_str.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"

static dpb_status status_of_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return DPB_ERR_NOT_FOUND;
    case ENOMEM:
        return DPB_ERR_NO_MEMORY;
    default:
        return DPB_ERR_IO;
    }
}

static void log_no_memory(const char *path)
{
    dpb_error("cannot handle \"%s\": out of memory", path);
}

dpb_status dpb_file_read(const char *path, struct dpb_str *out)
{
    return dpb_file_read_most(path, SIZE_MAX, out);
}

dpb_status dpb_file_read_most(const char *path, size_t most_bytes, struct dpb_str *out)
{
    struct dpb_str content = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = -1;

    if (fd >= 0) {
        char chunk[65536];

        while ((count = read(fd, chunk, sizeof(chunk))) != 0) {
            if (count < 0 && errno != EINTR)
                break;
            if (count > 0)
                dpb_str_append_bytes(&content, chunk, (size_t)count);
            if (content.length > most_bytes) {
                dpb_error("\"%s\" is too large: more than the %zu bytes that such a file may have",
                          path, most_bytes);
                close(fd);
                dpb_str_release(&content);
                return DPB_ERR_USAGE;
            }
        }
    }
    if (count < 0) {
        int error = errno;

        dpb_error("cannot read \"%s\": %s", path, strerror(error));
        if (fd >= 0)
            close(fd);
        dpb_str_release(&content);
        return status_of_errno(error);
    }
    close(fd);
    dpb_str_append_bytes(out, content.length ? content.text : "", content.length);
    if (content.failed || out->failed) {
        dpb_str_release(&content);
        log_no_memory(path);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_str_release(&content);
    return DPB_OK;
}

/* 0, or the errno of the first call that failed. Closes `fd` in every case. */
static int write_sync_close(int fd, const char *bytes, size_t count, bool sync)
{
    int error = 0;

    while (count > 0 && !error) {
        ssize_t done = write(fd, bytes, count);

        if (done < 0) {
            if (errno != EINTR)
                error = errno;
            continue;
        }
        bytes += done;
        count -= (size_t)done;
    }
    if (!error && sync && fsync(fd) != 0)
        error = errno;
    if (close(fd) != 0 && !error)
        error = errno;
    return error;
}

static dpb_status cannot_write(const char *path, int error)
{
    dpb_error("cannot write \"%s\": %s", path, strerror(error));
    if (error == ENOSPC || error == EDQUOT)
        dpb_log_hint("free some space, or choose another folder with -o");
    else
        dpb_log_hint("choose a folder that exists and may be written, for example with -o");
    return error == ENOMEM ? DPB_ERR_NO_MEMORY : DPB_ERR_IO;
}

/* A rename is on disk when its folder is; where folders cannot be synced it is some time later. */
static void sync_folder(const char *path)
{
    char *copy = strdup(path);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(copy);
}

/* Open a new file beside `target`; 0 or an errno. The caller releases `temporary` in every case. */
static int open_beside(const char *target, struct dpb_str *temporary, int *fd)
{
    static atomic_uint serial;

    /* Not mkstemp: its mode 0600 would stay with the file, and the umask cannot be read safely. */
    dpb_str_appendf(temporary, "%s.tmp-%ld-%u", target, (long)getpid(),
                    atomic_fetch_add(&serial, 1));
    if (temporary->failed)
        return ENOMEM;
    *fd = open(temporary->text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd < 0 ? errno : 0;
}

/* Write beside `target` and rename over it. */
static int replace_file(const char *target, const void *bytes, size_t count)
{
    struct dpb_str temporary = {0};
    int fd, error = open_beside(target, &temporary, &fd);

    if (!error) {
        error = write_sync_close(fd, bytes, count, true);
        if (!error && rename(temporary.text, target) != 0)
            error = errno;
        if (error)
            unlink(temporary.text);
        else
            sync_folder(target);
    }
    dpb_str_release(&temporary);
    return error;
}

dpb_status dpb_file_write_atomic(const char *path, const void *bytes, size_t count)
{
    struct stat info;
    int error;

    if (stat(path, &info) != 0) {
        error = errno == ENOENT ? replace_file(path, bytes, count) : errno;
    } else if (S_ISREG(info.st_mode)) {
        /* Through a symbolic link the file behind it is replaced, not the link. */
        char *target = realpath(path, NULL);

        error = target ? replace_file(target, bytes, count) : errno;
        free(target);
    } else if (S_ISDIR(info.st_mode)) {
        error = EISDIR;
    } else {
        /* A device or pipe, say /dev/stdout: a rename would put a file in its place. */
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        error = fd < 0 ? errno : write_sync_close(fd, bytes, count, false);
    }
    return error ? cannot_write(path, error) : DPB_OK;
}

/* A new file beside `target`, and away with it. */
static int try_beside(const char *target)
{
    struct dpb_str temporary = {0};
    int fd, error = open_beside(target, &temporary, &fd);

    if (!error) {
        close(fd);
        unlink(temporary.text);
    }
    dpb_str_release(&temporary);
    return error;
}

/* Elsewhere the name of the standard output; here a file of that name would surprise. */
static dpb_status check_name(const char *path)
{
    if (strcmp(path, "-") != 0)
        return DPB_OK;
    dpb_error("\"-\" is not written to: it may be meant as the standard output or as a name");
    dpb_log_hint("/dev/stdout is the standard output, ./- is a file or folder of that name");
    return DPB_ERR_USAGE;
}

dpb_status dpb_file_check(const char *path)
{
    struct stat info;
    int error = 0;

    DPB_TRY(check_name(path));
    if (stat(path, &info) != 0) {
        error = errno == ENOENT ? try_beside(path) : errno;
    } else if (S_ISREG(info.st_mode)) {
        char *target = realpath(path, NULL);

        error = target ? try_beside(target) : errno;
        free(target);
    } else if (S_ISDIR(info.st_mode)) {
        error = EISDIR;
    } else if (access(path, W_OK) != 0) {
        error = errno;
    }
    return error ? cannot_write(path, error) : DPB_OK;
}

static dpb_status cannot_create(const char *path, int error)
{
    dpb_error("cannot create the folder \"%s\": %s", path, strerror(error));
    dpb_log_hint("choose another folder, for example with -o");
    return error == ENOMEM ? DPB_ERR_NO_MEMORY : DPB_ERR_IO;
}

/* The nearest folder above `path` that is there, or `path`; 0 or an errno. Caller frees `found`. */
static int nearest_folder(const char *path, char **found)
{
    char *there = strdup(path);
    struct stat info;

    while (there && stat(there, &info) != 0) {
        const int error = errno;

        if (error != ENOENT) {
            free(there);
            return error;
        }
        char *above = strdup(dirname(there));

        free(there);
        there = above;
    }
    *found = there;
    return there ? 0 : ENOMEM;
}

dpb_status dpb_folder_check(const char *path)
{
    char *folder = NULL, *name = NULL;
    DPB_TRY(check_name(path));
    int error = path[0] ? nearest_folder(path, &folder) : ENOENT;
    if (!error) {
        name = dpb_path_join(folder, "check");
        error = name ? try_beside(name) : ENOMEM;
    }
    free(name);
    free(folder);
    return error ? cannot_create(path, error) : DPB_OK;
}

dpb_status dpb_mkdir_p(const char *path)
{
    DPB_TRY(check_name(path));
    char *partial = strdup(path);
    struct stat info;
    int error = 0;
    char *end;

    if (!partial) {
        log_no_memory(path);
        return DPB_ERR_NO_MEMORY;
    }
    if (!path[0])
        error = ENOENT;
    for (end = partial; *end && !error; end++) {
        bool last = end[1] == '\0';
        char kept = end[1];

        if (!last && !(kept == '/' && *end != '/'))
            continue;
        end[1] = '\0';
        if (mkdir(partial, 0777) != 0 && errno != EEXIST)
            error = errno;
        else if (stat(partial, &info) != 0)
            error = errno;
        else if (!S_ISDIR(info.st_mode))
            error = ENOTDIR;
        end[1] = kept;
    }
    free(partial);
    return error ? cannot_create(path, error) : DPB_OK;
}

char *dpb_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] != '/' ? "/" : "";
    char *joined;

    if (asprintf(&joined, "%s%s%s", folder, slash, name) < 0)
        return NULL;
    return joined;
}
