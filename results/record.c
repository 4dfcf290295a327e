/* What a record must hold, and the files of records: append one line, read them all. */
#include "dpb_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"

static const char *const status_texts[] = {"ok",      "skipped", "failed",
                                           "timeout", "invalid", "interrupted"};
_Static_assert(sizeof(status_texts) / sizeof(status_texts[0]) == DPB_RECORD_INTERRUPTED + 1,
               "one text per status");

const char *dpb_record_status_text(enum dpb_record_status status)
{
    if (status < DPB_RECORD_OK || status > DPB_RECORD_INTERRUPTED)
        return "unknown";
    return status_texts[status];
}

/* ---- what a record must hold ---- */

enum field_kind {
    TEXT,     /* string, not empty */
    COUNT,    /* integer, 0 or more */
    POSITIVE, /* integer, 1 or more */
    RANKS,    /* as many as an int holds */
    FLAG,     /* true or false */
    OBJECT,
    ARRAY
};

static const struct field {
    const char *key;
    enum field_kind kind;
} required[] = {
        {"run_id", TEXT},           {"cell", COUNT},     {"repeat", COUNT},
        {"status", TEXT},           {"tool", OBJECT},    {"time_utc", TEXT},
        {"fingerprint", TEXT},      {"config", OBJECT},  {"repro", TEXT},
        {"axes", OBJECT},           {"series", TEXT},    {"compute_series", TEXT},
        {"ranks", RANKS},           {"scaling", TEXT},   {"global_batch", POSITIVE},
        {"batch_per_rank", COUNT},  {"emulated", FLAG},  {"simulated", FLAG},
        {"samples_step_ns", ARRAY}, {"warnings", ARRAY},
};

static const char *wrong_kind(const dpb_json *value, enum field_kind kind)
{
    enum dpb_json_type type = dpb_json_type(value);

    switch (kind) {
    case TEXT:
        return type == DPB_JSON_STRING && dpb_json_as_string(value, "")[0]
                       ? NULL
                       : "is not a text, or is empty";
    case COUNT:
        return type == DPB_JSON_INT && dpb_json_as_int(value, -1) >= 0
                       ? NULL
                       : "is not an integer of 0 or more";
    case POSITIVE:
        return type == DPB_JSON_INT && dpb_json_as_int(value, -1) >= 1
                       ? NULL
                       : "is not an integer of 1 or more";
    case RANKS:
        return type == DPB_JSON_INT && dpb_json_as_int(value, -1) >= 1 &&
                               dpb_json_as_int(value, -1) <= INT_MAX
                       ? NULL
                       : "is not an integer of 1 or more, at most 2147483647";
    case FLAG:
        return type == DPB_JSON_BOOL ? NULL : "is not true or false";
    case OBJECT:
        return type == DPB_JSON_OBJECT ? NULL : "is not an object";
    case ARRAY:
        return type == DPB_JSON_ARRAY ? NULL : "is not an array";
    }
    return "has an unknown kind";
}

/* "dpb.record/1", or a minor version of it: "dpb.record/1.2" */
static bool schema_is_known(const char *schema)
{
    size_t length = strlen(DPB_RECORD_SCHEMA);

    return strncmp(schema, DPB_RECORD_SCHEMA, length) == 0 &&
           (schema[length] == '\0' || schema[length] == '.');
}

static dpb_status check_schema(const dpb_json *record, char why[256])
{
    const dpb_json *schema = dpb_json_get(record, "schema");

    if (dpb_json_type(record) != DPB_JSON_OBJECT) {
        snprintf(why, 256, "it is not a JSON object");
        return DPB_ERR_CORRUPT;
    }
    if (!schema) {
        snprintf(why, 256, "required key \"schema\" is missing");
        return DPB_ERR_CORRUPT;
    }
    if (!schema_is_known(dpb_json_as_string(schema, ""))) {
        snprintf(why, 256, "schema \"%.100s\" is not known; this build reads \"%s\"",
                 dpb_json_as_string(schema, "(not a text)"), DPB_RECORD_SCHEMA);
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

static bool is_one_of(const char *text, const char *const *choices, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(text, choices[i]) == 0)
            return true;
    }
    return false;
}

static dpb_status check_samples(const dpb_json *record, char why[256])
{
    const dpb_json *samples = dpb_json_get(record, "samples_step_ns");
    bool ok = strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") == 0;
    const dpb_json *sample;
    dpb_json_walk walk = {0};

    while ((sample = dpb_json_next(samples, &walk, NULL))) {
        double ns = dpb_json_as_real(sample, NAN);

        if (!isfinite(ns) || ns <= 0) {
            snprintf(why, 256, "\"samples_step_ns\"[%zu] is not a positive number", walk.index - 1);
            return DPB_ERR_CORRUPT;
        }
    }
    if (ok && dpb_json_size(samples) == 0) {
        snprintf(why, 256, "status is \"ok\", but \"samples_step_ns\" is empty");
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

dpb_status dpb_record_check(const dpb_json *record, char why[256])
{
    static const char *const scalings[] = {"weak", "strong"};
    const char *status, *scaling;
    size_t i;

    DPB_TRY(check_schema(record, why));
    for (i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        const dpb_json *value = dpb_json_get(record, required[i].key);
        const char *wrong;

        if (!value) {
            snprintf(why, 256, "required key \"%s\" is missing", required[i].key);
            return DPB_ERR_CORRUPT;
        }
        wrong = wrong_kind(value, required[i].kind);
        if (wrong) {
            snprintf(why, 256, "required key \"%s\" %s", required[i].key, wrong);
            return DPB_ERR_CORRUPT;
        }
    }
    status = dpb_json_as_string(dpb_json_get(record, "status"), "");
    if (!is_one_of(status, status_texts, sizeof(status_texts) / sizeof(status_texts[0]))) {
        snprintf(why, 256,
                 "status \"%.60s\" is not ok, skipped, failed, timeout, invalid or interrupted",
                 status);
        return DPB_ERR_CORRUPT;
    }
    scaling = dpb_json_as_string(dpb_json_get(record, "scaling"), "");
    if (!is_one_of(scaling, scalings, 2)) {
        snprintf(why, 256, "scaling \"%.60s\" is neither weak nor strong", scaling);
        return DPB_ERR_CORRUPT;
    }
    return check_samples(record, why);
}

/* ---- append ---- */

/* Length of the file up to and with its last newline. */
static int whole_length(int fd, off_t length, off_t *whole)
{
    char chunk[4096];

    while (length > 0) {
        size_t wanted = length < (off_t)sizeof(chunk) ? (size_t)length : sizeof(chunk);
        ssize_t got = pread(fd, chunk, wanted, length - (off_t)wanted);
        const char *newline;

        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)wanted)
            return got < 0 ? errno : EIO;
        newline = memrchr(chunk, '\n', wanted);
        if (newline) {
            *whole = length - (off_t)wanted + (newline - chunk) + 1;
            return 0;
        }
        length -= (off_t)wanted;
    }
    *whole = 0;
    return 0;
}

/* Cut off what an earlier death left behind; `end` gets the length that remains. */
static int repair(int fd, const char *path, off_t *end)
{
    struct stat info;
    off_t whole;
    int error;

    if (fstat(fd, &info) != 0)
        return errno;
    error = whole_length(fd, info.st_size, &whole);
    if (error)
        return error;
    if (whole < info.st_size) {
        if (ftruncate(fd, whole) != 0)
            return errno;
        dpb_warn("\"%s\": cut off a torn last line of %lld bytes", path,
                 (long long)(info.st_size - whole));
    }
    *end = whole;
    return 0;
}

/* 0, or errno. File systems of clusters may have no locks (Lustre without them, NFS without their
 * daemon): that is no reason to lose a result, one process writes all records of a run. */
static int lock(int fd, const char *path)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK)
            return errno;
        if (!atomic_flag_test_and_set(&told))
            dpb_warn("\"%s\" is on a file system without locks (%s): no other run may append to it "
                     "at the same time",
                     path, strerror(errno));
        return 0;
    }
    return 0;
}

/* Append under the lock with one write, so that neither a second writer nor a death tears an
 * earlier line; a line that does not fit whole is taken back. */
static int append_locked(int fd, const char *path, const struct dpb_str *line)
{
    off_t end = 0;
    ssize_t done;
    int error = lock(fd, path);

    if (error)
        return error;
    error = repair(fd, path, &end);
    if (error)
        return error;
    do {
        done = write(fd, line->text, line->length);
    } while (done < 0 && errno == EINTR);
    if (done != (ssize_t)line->length) {
        error = done < 0 ? errno : ENOSPC;
        /* best effort: should it fail too, the next append and every reader drop the torn line */
        if (ftruncate(fd, end) != 0)
            dpb_debug("\"%s\": cannot take back a torn line: %s", path, strerror(errno));
        return error;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

/* The lock goes with the descriptor. */
static int append_line(const char *path, const struct dpb_str *line)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    struct stat info;
    int error = 0;

    if (fd < 0)
        return errno;
    if (fstat(fd, &info) != 0) {
        error = errno;
    } else if (S_ISREG(info.st_mode)) {
        error = append_locked(fd, path, line);
    } else {
        /* a device, say /dev/null: nothing to lock or to repair */
        ssize_t done = write(fd, line->text, line->length);

        if (done != (ssize_t)line->length)
            error = done < 0 ? errno : ENOSPC;
    }
    if (close(fd) != 0 && !error)
        error = errno;
    return error;
}

dpb_status dpb_records_append(const char *path, const dpb_json *record)
{
    struct dpb_str line = {0};
    char why[256];
    dpb_status st = dpb_record_check(record, why);
    int error;

    if (st < 0) {
        dpb_error("cannot append to \"%s\": the record is not valid: %s", path, why);
        return st;
    }
    st = dpb_json_write(record, false, &line);
    dpb_str_append(&line, "\n");
    if (st < 0 || line.failed) {
        dpb_error("cannot append to \"%s\": out of memory", path);
        dpb_str_release(&line);
        return st < 0 ? st : DPB_ERR_NO_MEMORY;
    }
    error = append_line(path, &line);
    dpb_str_release(&line);
    if (error) {
        dpb_error("cannot append to \"%s\": %s", path, strerror(error));
        dpb_log_hint("check that the folder exists, may be written and has space left");
        return DPB_ERR_IO;
    }
    return DPB_OK;
}

/* ---- read ---- */

static dpb_status keep(struct dpb_records *records, size_t *capacity, dpb_json *record)
{
    if (records->count == *capacity) {
        size_t larger = *capacity ? 2 * *capacity : 64;
        dpb_json **items = realloc(records->items, larger * sizeof(*items));

        if (!items)
            return DPB_ERR_NO_MEMORY;
        records->items = items;
        *capacity = larger;
    }
    records->items[records->count++] = record;
    return DPB_OK;
}

/* One line that ends with a newline; blank ones count for nothing. */
static dpb_status read_line(const char *path, size_t number, const char *text, size_t length,
                            struct dpb_records *records, size_t *capacity)
{
    dpb_json *record = NULL;
    char why[256];
    const char *reason = why;
    dpb_status st;

    if (strspn(text, " \t\r") >= length)
        return DPB_OK;
    st = dpb_json_parse(text, length, &record, why);
    if (st == DPB_OK)
        st = dpb_record_check(record, why);
    else if (strncmp(why, "line 1, ", 8) == 0)
        reason = why + 8; /* the line of the file is named below */
    if (st == DPB_OK) {
        st = keep(records, capacity, record);
        if (st == DPB_OK)
            return DPB_OK;
        dpb_error("cannot read \"%s\": out of memory", path);
    } else {
        dpb_error("\"%s\", line %zu: not a record: %s", path, number, reason);
        if (strncmp(dpb_json_as_string(dpb_json_get(record, "schema"), ""), "dpb.comm/", 9) == 0)
            dpb_log_hint("it is of `dpbench comm`, which `dpbench gate`, `import` and "
                         "`calibrate --comm` read");
        else
            dpb_log_hint("remove that line to use the others, or read it with the dpbench that "
                         "wrote it");
    }
    dpb_json_free(record);
    return st;
}

static dpb_status read_lines(const char *path, const struct dpb_str *content, bool begun,
                             struct dpb_records *records)
{
    size_t capacity = records->count;
    size_t before = records->count, start = 0, number = 1;
    bool torn = false;

    while (start < content->length) {
        const char *text = content->text + start;
        const char *newline = memchr(text, '\n', content->length - start);

        if (!newline) {
            torn = true;
            break;
        }
        DPB_TRY(read_line(path, number, text, (size_t)(newline - text), records, &capacity));
        start += (size_t)(newline - text) + 1;
        number++;
    }
    if (torn)
        dpb_warn("\"%s\", line %zu: the line is cut short and left out", path, number);
    if (records->count == before && !begun) {
        dpb_error("\"%s\" holds no record", path);
        dpb_log_hint("the run may have ended before its first cell; resume or repeat it");
        return DPB_ERR_NO_DATA;
    }
    records->torn += torn;
    return DPB_OK;
}

static dpb_status read_records(const char *path, bool begun, struct dpb_records *records)
{
    struct dpb_str content = {0};
    struct stat info;
    char *file = NULL;
    size_t before = records->count;
    dpb_status st;

    file = stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? dpb_path_join(path, "records.jsonl")
                                                           : strdup(path);
    if (!file) {
        dpb_error("cannot read \"%s\": out of memory", path);
        return DPB_ERR_NO_MEMORY;
    }
    st = dpb_file_read(file, &content);
    if (st < 0) {
        dpb_log_hint("name the folder of a run, such as runs/20261201T120000Z-quick");
        goto out;
    }
    st = read_lines(file, &content, begun, records);
    if (st < 0) {
        while (records->count > before)
            dpb_json_free(records->items[--records->count]);
    }
out:
    dpb_str_release(&content);
    free(file);
    return st;
}

dpb_status dpb_records_read(const char *path, struct dpb_records *records)
{
    return read_records(path, false, records);
}

dpb_status dpb_records_read_begun(const char *path, struct dpb_records *records)
{
    return read_records(path, true, records);
}

void dpb_records_release(struct dpb_records *records)
{
    size_t i;

    for (i = 0; i < records->count; i++)
        dpb_json_free(records->items[i]);
    free(records->items);
    memset(records, 0, sizeof(*records));
}
