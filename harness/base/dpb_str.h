/* dpb_str.h: a growing string, and the few string helpers that several rooms need. */
#ifndef DPB_STR_H
#define DPB_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A growing, always terminated string. Zero-initialise; `text` is NULL until the first append.
 * Appending fails only for lack of memory, which sets `failed` and makes later calls no-ops, so a
 * long build is checked once at its end. */
struct dpb_str {
    char *text;
    size_t length;
    size_t capacity;
    bool failed;
};

void dpb_str_append(struct dpb_str *str, const char *text);
void dpb_str_append_bytes(struct dpb_str *str, const void *bytes, size_t count);
void dpb_str_appendf(struct dpb_str *str, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Free and zero. */
void dpb_str_release(struct dpb_str *str);

/* Read a whole file into `out` (appended). DPB_ERR_NOT_FOUND or DPB_ERR_IO, logged with the path.
 */
dpb_status dpb_file_read(const char *path, struct dpb_str *out);
/* The same of a file that has at most `most_bytes`; DPB_ERR_USAGE, logged, for a larger one, which
 * may be endless (/dev/zero). */
dpb_status dpb_file_read_most(const char *path, size_t most_bytes, struct dpb_str *out);

/* Write a file so that it is either the old one or the new one, never a part: temporary name in the
 * same folder, write, fsync, rename. Errors (full disk, read-only) are logged with the path. */
dpb_status dpb_file_write_atomic(const char *path, const void *bytes, size_t count);

/* Could dpb_file_write_atomic() write `path` now? Tried with an empty file beside it, which is
 * removed again: for whoever measures for hours first. DPB_ERR_IO, logged as there; DPB_ERR_USAGE:
 * the name is "-", which may be meant as the standard output. */
dpb_status dpb_file_check(const char *path);

/* The same of dpb_mkdir_p() and files in the folder: the nearest folder that is there is tried, and
 * none is made. DPB_ERR_IO or, for "-", DPB_ERR_USAGE, logged. */
dpb_status dpb_folder_check(const char *path);

/* Create a folder and its parents (mode 0777 & ~umask); an existing folder is fine. DPB_ERR_IO or,
 * for "-", DPB_ERR_USAGE, logged. */
dpb_status dpb_mkdir_p(const char *path);

/* "a/b" from "a" and "b" into a fresh string; caller frees. NULL when out of memory. */
char *dpb_path_join(const char *folder, const char *name);

/* The candidate nearest to `word` by edit distance (optimal string alignment, at most length/4);
 * else one that begins `word`, or that it begins, from 3 letters on; else the nearest one of at
 * most max(2, length/3); else NULL. */
const char *dpb_suggest(const char *word, const char *const *candidates, size_t count);

/* Write `text` for a POSIX shell into `out`, quoted only where needed. */
void dpb_shell_quote(const char *text, struct dpb_str *out);

#ifdef __cplusplus
}
#endif
#endif
