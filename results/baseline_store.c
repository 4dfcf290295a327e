/* baseline_store.c: the folder of baselines, its anchors and the decisions that made them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "baseline_private.h"
#include "dpb_clock.h"
#include "dpb_log.h"

#define DECISIONS "decisions.jsonl"

static dpb_status join(struct dpb_str *path, const char *store, const char *suffix,
                       const char *name, const char *id)
{
    dpb_str_appendf(path, "%s/", store);
    dpb_str_appendf(path, "%s", name);
    if (id)
        dpb_str_appendf(path, "/%s", id);
    dpb_str_append(path, suffix);
    return path->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

/* Names become files: letters, digits, '_' and '-'. */
static dpb_status check_name(const char *what, const char *name)
{
    const size_t length = strlen(name);

    if (length > 0 && length < 64 &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length)
        return DPB_OK;
    dpb_error("%s \"%s\": it has 1 to 63 letters, digits, '_' or '-'", what, name);
    return DPB_ERR_USAGE;
}

/* ---- decisions ---- */

static const char *text_of(const dpb_json *object, const char *key)
{
    return dpb_json_as_string(dpb_json_get(object, key), "");
}

static dpb_status broken_chain(const char *path, int line)
{
    dpb_error("%s:%d: the line does not follow from the one before it", path, line);
    dpb_log_hint("a decision was changed or taken away: take the file from git");
    return DPB_ERR_CORRUPT;
}

/* Lines of the log into `list`; `last` gets the hash of the last one. */
static dpb_status read_decisions(const char *path, const struct dpb_str *text, dpb_json *list,
                                 char last[DPB_SHA256_TEXT_BYTES])
{
    const char *at = text->text, *end = at + text->length;
    int line = 1;

    for (; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        dpb_json *decision;

        if (!stop || dpb_json_parse(at, (size_t)(stop - at), &decision, NULL) < 0) {
            dpb_error("%s:%d: the line is cut or damaged", path, line);
            return DPB_ERR_CORRUPT;
        }
        dpb_json_append(list, decision);
        if (strcmp(text_of(decision, "before"), last) != 0 ||
            dpb_json_as_int(dpb_json_get(decision, "number"), 0) != line)
            return broken_chain(path, line);
        dpb_sha256_text(at, (size_t)(stop - at), last);
        at = stop + 1;
    }
    return DPB_OK;
}

static dpb_status load_decisions(const char *store, struct dpb_str *text, dpb_json **list,
                                 char last[DPB_SHA256_TEXT_BYTES])
{
    char *path = dpb_path_join(store, DECISIONS);
    dpb_status st = path ? DPB_OK : DPB_ERR_NO_MEMORY;

    last[0] = '\0';
    *list = dpb_json_array();
    if (path && access(path, F_OK) == 0) {
        st = dpb_file_read(path, text);
        if (st == DPB_OK && text->length > 0)
            st = read_decisions(path, text, *list, last);
    }
    free(path);
    if (st < 0)
        dpb_json_free(*list);
    return st;
}

dpb_status dpb_baseline_decisions(const char *store, dpb_json **decisions)
{
    struct dpb_str text = {0};
    char last[DPB_SHA256_TEXT_BYTES];
    const dpb_status st = load_decisions(store, &text, decisions, last);

    dpb_str_release(&text);
    return st;
}

/* The anchors of a name so far, the present one last: promotions put one on, rollbacks take one
 * off. */
static size_t anchors_of(const dpb_json *decisions, const char *name, const char **hashes)
{
    dpb_json_walk walk = {0};
    const dpb_json *decision;
    size_t depth = 0;

    while ((decision = dpb_json_next(decisions, &walk, NULL))) {
        if (strcmp(text_of(decision, "name"), name) != 0)
            continue;
        if (strcmp(text_of(decision, "action"), "rollback") == 0)
            depth -= depth > 0;
        else
            hashes[depth++] = text_of(decision, "sha256");
    }
    return depth;
}

dpb_status baseline_check_anchor(const char *path, const struct dpb_baseline_about *about)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    char store[4096], anchor[80];
    dpb_json *decisions;
    dpb_status st = DPB_OK;

    snprintf(store, sizeof(store), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    snprintf(anchor, sizeof(anchor), "%s.json", about->name);
    if (strcmp(anchor, file) != 0)
        return DPB_OK; /* a copy, or one that was saved: its own hash is what it has */
    DPB_TRY(dpb_baseline_decisions(store, &decisions));
    const size_t count = dpb_json_size(decisions);
    const char **hashes = malloc((count + 1) * sizeof(*hashes));
    const size_t depth = hashes ? anchors_of(decisions, about->name, hashes) : 0;
    if (!hashes) {
        st = DPB_ERR_NO_MEMORY;
    } else if (count > 0 && (depth == 0 || strcmp(hashes[depth - 1], about->sha256) != 0)) {
        dpb_error("%s: it is %.12s, but the last decision made %.12s the anchor", path,
                  about->sha256, depth ? hashes[depth - 1] : "none");
        dpb_log_hint("`dpbench baseline promote %s ID --reason ...` decides anew", about->name);
        st = DPB_ERR_CORRUPT;
    }
    free(hashes);
    dpb_json_free(decisions);
    return st;
}

/* ---- the lock: one decision at a time ---- */

static dpb_status lock(const char *store, int *fd)
{
    char *path = dpb_path_join(store, ".lock");

    if (!path)
        return DPB_ERR_NO_MEMORY;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int failed = *fd < 0;
    while (!failed && flock(*fd, LOCK_EX) != 0)
        failed = errno != EINTR;
    if (failed) {
        dpb_error("cannot lock \"%s\": %m", path);
        if (*fd >= 0)
            close(*fd);
    }
    free(path);
    return failed ? DPB_ERR_IO : DPB_OK;
}

/* ---- saving ---- */

static dpb_status check_set(const struct dpb_gate_set *set)
{
    size_t runs = 0;

    for (size_t i = 0; i < set->cell_count; i++) {
        const struct dpb_gate_cell *cell = &set->cells[i];
        const char *why = cell->trouble[0] ? cell->trouble : cell->step_trouble;

        if (why[0]) {
            dpb_error("\"%s\" cannot be in a baseline: %s", cell->name, why);
            return DPB_ERR_NO_DATA;
        }
        runs += cell->run_count;
    }
    if (runs > 0)
        return DPB_OK;
    dpb_error("there is no run to make a baseline of");
    return DPB_ERR_NO_DATA;
}

dpb_status dpb_baseline_save(const char *store, const struct dpb_gate_set *set,
                             const struct dpb_baseline_about *about, char id[DPB_BASELINE_ID_BYTES])
{
    dpb_json *root = NULL;
    struct dpb_str folder = {0}, path = {0};
    char sha256[DPB_SHA256_TEXT_BYTES];
    dpb_status st;

    DPB_TRY(check_name("--name", about->name));
    DPB_TRY(check_set(set));
    dpb_json *content = baseline_content(set, about);
    DPB_TRY_GOTO(st, baseline_hash(content, sha256), out);
    snprintf(id, DPB_BASELINE_ID_BYTES, "%.12s", sha256);
    root = dpb_json_object();
    dpb_json_set_string(root, "schema", DPB_BASELINE_SCHEMA);
    dpb_json_set_string(root, "sha256", sha256);
    dpb_json_set(root, "content", content);
    content = NULL;
    DPB_TRY_GOTO(st, join(&folder, store, "", about->name, NULL), out);
    DPB_TRY_GOTO(st, dpb_mkdir_p(folder.text), out);
    DPB_TRY_GOTO(st, join(&path, store, ".json", about->name, id), out);
    st = dpb_json_write_file(root, path.text);
out:
    dpb_json_free(content);
    dpb_json_free(root);
    dpb_str_release(&folder);
    dpb_str_release(&path);
    return st;
}

/* ---- deciding ---- */

struct decision {
    const char *store, *name, *action, *reason, *who;
    char sha256[DPB_SHA256_TEXT_BYTES], previous[DPB_SHA256_TEXT_BYTES];
};

static dpb_status append_decision(const struct decision *d, struct dpb_str *log, size_t number,
                                  const char *before)
{
    dpb_json *json = dpb_json_object();
    char now[32], *path = dpb_path_join(d->store, DECISIONS);

    dpb_clock_utc_text(now, sizeof(now));
    dpb_json_set_int(json, "number", (int64_t)number);
    dpb_json_set_string(json, "time_utc", now);
    dpb_json_set_string(json, "action", d->action);
    dpb_json_set_string(json, "name", d->name);
    dpb_json_set_string(json, "sha256", d->sha256);
    dpb_json_set_string(json, "previous", d->previous);
    dpb_json_set_string(json, "reason", d->reason);
    dpb_json_set_string(json, "who", d->who);
    dpb_json_set_string(json, "before", before);
    dpb_status st = path ? dpb_json_write(json, false, log) : DPB_ERR_NO_MEMORY;
    dpb_str_append(log, "\n");
    if (st == DPB_OK)
        st = log->failed ? DPB_ERR_NO_MEMORY : dpb_file_write_atomic(path, log->text, log->length);
    free(path);
    dpb_json_free(json);
    return st;
}

/* The saved file becomes NAME.json, byte by byte. The log goes first: an anchor that did not follow
 * is refused by whoever reads it. */
static dpb_status install(const struct decision *d, struct dpb_str *log, size_t number,
                          const char *before)
{
    struct dpb_str saved = {0}, anchor = {0}, bytes = {0};
    struct dpb_baseline_about about;
    char id[DPB_BASELINE_ID_BYTES];
    dpb_json *root;
    dpb_status st;

    snprintf(id, sizeof(id), "%.12s", d->sha256);
    DPB_TRY_GOTO(st, join(&saved, d->store, ".json", d->name, id), out);
    DPB_TRY_GOTO(st, join(&anchor, d->store, ".json", d->name, NULL), out);
    DPB_TRY_GOTO(st, baseline_load(saved.text, &root), out);
    baseline_about(root, &about);
    dpb_json_free(root);
    if (strcmp(about.sha256, d->sha256) != 0 || strcmp(about.name, d->name) != 0) {
        dpb_error("%s: it is not %s %.12s", saved.text, d->name, d->sha256);
        st = DPB_ERR_CORRUPT;
        goto out;
    }
    DPB_TRY_GOTO(st, dpb_file_read(saved.text, &bytes), out);
    DPB_TRY_GOTO(st, append_decision(d, log, number, before), out);
    st = dpb_file_write_atomic(anchor.text, bytes.text, bytes.length);
out:
    dpb_str_release(&saved);
    dpb_str_release(&anchor);
    dpb_str_release(&bytes);
    return st;
}

/* The hash of a saved baseline whose id begins with `id`. */
static dpb_status find_saved(const char *store, const char *name, const char *id,
                             char sha256[DPB_SHA256_TEXT_BYTES])
{
    struct dpb_str path = {0};
    struct dpb_baseline_about about;
    dpb_json *root;

    DPB_TRY(check_name("ID", id));
    dpb_status st = join(&path, store, ".json", name, id);
    if (st == DPB_OK && access(path.text, R_OK) != 0) {
        dpb_error("there is no baseline \"%s\" of \"%s\" in \"%s\"", id, name, store);
        dpb_log_hint("`dpbench baseline list --store %s` names all", store);
        st = DPB_ERR_NOT_FOUND;
    }
    if (st == DPB_OK)
        st = baseline_load(path.text, &root);
    dpb_str_release(&path);
    if (st < 0)
        return st;
    baseline_about(root, &about);
    memcpy(sha256, about.sha256, sizeof(about.sha256));
    dpb_json_free(root);
    return DPB_OK;
}

static dpb_status check_reason(const char *reason)
{
    if (reason && strspn(reason, " \t\r\n") < strlen(reason))
        return DPB_OK;
    dpb_error("a baseline is not replaced without a reason");
    dpb_log_hint("`--reason 'why this is the level from now on'`; it is kept in %s", DECISIONS);
    return DPB_ERR_USAGE;
}

/* `id` NULL: the anchor before the present one. */
static dpb_status decide(struct decision *d, const char *id)
{
    struct dpb_str log = {0};
    char before[DPB_SHA256_TEXT_BYTES];
    dpb_json *decisions = NULL;
    const char **hashes = NULL;
    dpb_status st;

    DPB_TRY_GOTO(st, load_decisions(d->store, &log, &decisions, before), out);
    const size_t count = dpb_json_size(decisions);
    hashes = malloc((count + 1) * sizeof(*hashes));
    if (!hashes) {
        st = DPB_ERR_NO_MEMORY;
        goto free_decisions;
    }
    const size_t depth = anchors_of(decisions, d->name, hashes);
    snprintf(d->previous, sizeof(d->previous), "%s", depth ? hashes[depth - 1] : "");
    if (id) {
        DPB_TRY_GOTO(st, find_saved(d->store, d->name, id, d->sha256), free_decisions);
    } else if (depth < 2) {
        dpb_error("\"%s\" has no anchor before the present one", d->name);
        st = DPB_ERR_NO_DATA;
        goto free_decisions;
    } else {
        snprintf(d->sha256, sizeof(d->sha256), "%s", hashes[depth - 2]);
    }
    st = install(d, &log, count + 1, before);
free_decisions:
    dpb_json_free(decisions);
out:
    free(hashes);
    dpb_str_release(&log);
    return st;
}

/* Something of this name was saved: else nothing is made, no lock either. */
static dpb_status check_saved(const char *store, const char *name)
{
    struct dpb_str folder = {0};
    dpb_status st = join(&folder, store, "", name, NULL);

    if (st == DPB_OK && access(folder.text, F_OK) != 0) {
        dpb_error("there is no baseline \"%s\" in \"%s\"", name, store);
        dpb_log_hint("`dpbench baseline list --store %s` names all; `save` makes one", store);
        st = DPB_ERR_NOT_FOUND;
    }
    dpb_str_release(&folder);
    return st;
}

static dpb_status decide_locked(struct decision *d, const char *id)
{
    int fd;

    DPB_TRY(check_name("NAME", d->name));
    DPB_TRY(check_reason(d->reason));
    DPB_TRY(check_saved(d->store, d->name));
    DPB_TRY(lock(d->store, &fd));
    const dpb_status st = decide(d, id);
    close(fd);
    return st;
}

dpb_status dpb_baseline_promote(const char *store, const char *name, const char *id,
                                const char *reason, const char *who)
{
    struct decision d = {
            .store = store, .name = name, .action = "promote", .reason = reason, .who = who};

    return decide_locked(&d, id);
}

dpb_status dpb_baseline_rollback(const char *store, const char *name, const char *reason,
                                 const char *who, char id[DPB_BASELINE_ID_BYTES])
{
    struct decision d = {
            .store = store, .name = name, .action = "rollback", .reason = reason, .who = who};

    DPB_TRY(decide_locked(&d, NULL));
    snprintf(id, DPB_BASELINE_ID_BYTES, "%.12s", d.sha256);
    return DPB_OK;
}

/* ---- finding ---- */

dpb_status dpb_baseline_find(const char *store, const char *text, struct dpb_str *path)
{
    const char *at = strchr(text, '@');
    char name[64];

    if (access(text, F_OK) == 0) {
        dpb_str_append(path, text);
        return path->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(at ? at - text : 63), text);
    if (check_name("baseline", name) == DPB_OK &&
        join(path, store, ".json", name, at ? at + 1 : NULL) == DPB_OK &&
        access(path->text, F_OK) == 0)
        return DPB_OK;
    dpb_str_release(path);
    dpb_error("there is no baseline \"%s\", neither as a file nor in \"%s\"", text, store);
    dpb_log_hint("`dpbench baseline list --store %s` names all; `save` and `promote` make one",
                 store);
    return DPB_ERR_NOT_FOUND;
}

static dpb_status list_one(const char *path, const char *anchor, dpb_json *list)
{
    struct dpb_baseline_about about;
    dpb_json *root, *item = dpb_json_object();
    const dpb_json *cell;
    dpb_json_walk walk = {0};
    size_t runs = 0;

    const dpb_status st = baseline_load(path, &root);
    if (st < 0) {
        dpb_json_free(item);
        return st;
    }
    baseline_about(root, &about);
    while ((cell = dpb_json_next(dpb_json_path(root, "content/cells"), &walk, NULL)))
        runs += dpb_json_size(dpb_json_get(cell, "runs"));
    dpb_json_set_string(item, "name", about.name);
    about.sha256[12] = '\0';
    dpb_json_set_string(item, "id", about.sha256);
    dpb_json_set_bool(item, "is_anchor", strncmp(anchor, about.sha256, 12) == 0);
    dpb_json_set_string(item, "date", about.date);
    dpb_json_set_real(item, "age_days", baseline_age_days(about.date));
    dpb_json_set_string(item, "commit", about.commit);
    dpb_json_set_int(item, "cells", (int64_t)dpb_json_size(dpb_json_path(root, "content/cells")));
    dpb_json_set_int(item, "runs", (int64_t)runs);
    dpb_json_set_string(item, "file", path);
    dpb_json_append(list, item);
    dpb_json_free(root);
    return DPB_OK;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static dpb_status list_name(const char *store, const char *name, const char *anchor, dpb_json *list)
{
    struct dpb_str folder = {0};
    struct dirent **entries = NULL;
    dpb_status st = join(&folder, store, "", name, NULL);
    const int count = st == DPB_OK ? scandir(folder.text, &entries, is_visible, alphasort) : 0;

    for (int i = 0; i < count; i++) {
        const size_t length = strlen(entries[i]->d_name);

        if (st == DPB_OK && length > 5 && strcmp(entries[i]->d_name + length - 5, ".json") == 0) {
            char *path = dpb_path_join(folder.text, entries[i]->d_name);

            st = path ? list_one(path, anchor, list) : DPB_ERR_NO_MEMORY;
            free(path);
        }
        free(entries[i]);
    }
    free(entries);
    dpb_str_release(&folder);
    return st;
}

dpb_status dpb_baseline_list(const char *store, dpb_json **list)
{
    struct dirent **entries = NULL;
    dpb_json *decisions;
    dpb_status st = dpb_baseline_decisions(store, &decisions);

    if (st < 0)
        return st;
    const char **hashes = malloc((dpb_json_size(decisions) + 1) * sizeof(*hashes));
    const int count = scandir(store, &entries, is_visible, alphasort);
    *list = dpb_json_array();
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;

        if (st == DPB_OK && hashes && !strchr(name, '.')) {
            const size_t depth = anchors_of(decisions, name, hashes);

            st = list_name(store, name, depth ? hashes[depth - 1] : "", *list);
        }
        free(entries[i]);
    }
    free(entries);
    free(hashes);
    dpb_json_free(decisions);
    if (st < 0)
        dpb_json_free(*list);
    return st;
}
