#include "gate_measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_run_folder.h"
#include "dpb_str.h"

extern char **environ;

/* ---- programs ---- */

/* A growing argument vector; ends with NULL. */
struct words {
    char **items;
    size_t count;
    bool failed;
};

static void add_word(struct words *words, const char *text, size_t length)
{
    char **items = realloc(words->items, (words->count + 2) * sizeof(*items));

    if (items)
        words->items = items;
    if (!items || !(items[words->count] = strndup(text, length))) {
        words->failed = true;
        return;
    }
    items[++words->count] = NULL;
}

static void add_words(struct words *words, const char *text)
{
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        const size_t length = strcspn(text, " ");

        add_word(words, text, length);
        text += length;
    }
}

static void release_words(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
}

#define WAIT_MS 20

/* Wait for a program's end. What ended this process's own work ends it, too: a signal to this
 * process alone has not reached it. NULL: nothing does. */
static dpb_status wait_for(pid_t pid, const volatile sig_atomic_t *interrupted, int *status)
{
    bool is_told = false;
    pid_t ended;

    while ((ended = waitpid(pid, status, WNOHANG)) == 0) {
        if (!is_told && interrupted && *interrupted) {
            kill(pid, SIGTERM);
            is_told = true;
        }
        (void)poll(NULL, 0, WAIT_MS);
    }
    return ended == pid ? DPB_OK : DPB_ERR_IO;
}

/* Run a program to its end with its output in `log`; `code` gets its exit status, 128 + signal. */
static dpb_status run_program(char *const *argv, const char *log,
                              const volatile sig_atomic_t *interrupted, int *code)
{
    posix_spawn_file_actions_t actions;
    int error, status;
    pid_t pid;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return DPB_ERR_NO_MEMORY;
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log,
                                                 O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    if (!error)
        error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        dpb_error("cannot start \"%s\": %s", argv[0], strerror(error));
        return DPB_ERR_UNAVAILABLE;
    }
    DPB_TRY(wait_for(pid, interrupted, &status));
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return DPB_OK;
}

static dpb_status run_or_fail(char *const *argv, const char *log,
                              const volatile sig_atomic_t *interrupted, const char *what)
{
    int code;

    DPB_TRY(run_program(argv, log, interrupted, &code));
    if (code == 0)
        return DPB_OK;
    dpb_error("cannot %s: %s ended with status %d", what, argv[0], code);
    dpb_log_hint("its output is in \"%s\"", log);
    return DPB_ERR_UNAVAILABLE;
}

/* ---- the program of a side ---- */

struct side {
    const char *name;
    char *origin; /* of its program: "revision HEAD, 0123456789ab" */
    char *label;  /* what it is called: "candidate (this build, --bucket 1MiB)" */
    char *program;
    char *folder; /* of its own, removed at the end, or NULL */
    bool is_checked_out;
    struct words options;
    const volatile sig_atomic_t *interrupted; /* then what runs for it is ended */
};

/* What `git rev-parse` calls a commit; DPB_ERR_NOT_FOUND when there is none. */
static dpb_status resolve_revision(const char *revision, const char *log, const struct side *side,
                                   char commit[64])
{
    struct dpb_str wanted = {0}, text = {0};
    dpb_status st;
    int code = 1;

    dpb_str_appendf(&wanted, "%s^{commit}", revision);
    const char *const resolve[] = {"git",       "rev-parse", "--verify", "--end-of-options",
                                   wanted.text, NULL};
    DPB_TRY_GOTO(st, wanted.failed ? DPB_ERR_NO_MEMORY : DPB_OK, out);
    DPB_TRY_GOTO(st, run_program((char *const *)resolve, log, side->interrupted, &code), out);
    DPB_TRY_GOTO(st, dpb_file_read(log, &text), out);
    if (code != 0 || !text.text) {
        dpb_error("there is no revision \"%s\": %.*s", revision,
                  (int)strcspn(text.text ? text.text : "", "\n"), text.text ? text.text : "");
        dpb_log_hint("name a commit, branch or tag of the git repository around the working "
                     "folder");
        st = DPB_ERR_NOT_FOUND;
        goto out;
    }
    snprintf(commit, 64, "%.*s", (int)strcspn(text.text, "\n"), text.text);
out:
    dpb_str_release(&wanted);
    dpb_str_release(&text);
    return st;
}

/* The program of a build folder, or the program itself, with a '/': PATH is not searched. */
static char *program_of_build(const char *build)
{
    struct stat info;

    if (stat(build, &info) == 0 && S_ISDIR(info.st_mode))
        return dpb_path_join(build, "harness/cli/dpbench");
    return strchr(build, '/') ? strdup(build) : dpb_path_join(".", build);
}

/* Check a commit out below side->folder, and build it with what is found there. */
static dpb_status build_commit(const char *commit, const char *log, struct side *side)
{
    char *source = dpb_path_join(side->folder, "source");
    char *build = dpb_path_join(side->folder, "build"), number[16];
    dpb_status st = source && build ? DPB_OK : DPB_ERR_NO_MEMORY;

    snprintf(number, sizeof(number), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    const char *const checkout[] = {"git", "worktree", "add", "--detach", source, commit, NULL};
    const char *const configure[] = {"cmake", "-S", source, "-B", build, "-DDPB_TESTS=OFF", NULL};
    const char *const compile[] = {"cmake",   "--build",    build,  "--target",
                                   "dpbench", "--parallel", number, NULL};
    DPB_TRY_GOTO(st, st, out);
    DPB_TRY_GOTO(
            st,
            run_or_fail((char *const *)checkout, log, side->interrupted, "check the revision out"),
            out);
    side->is_checked_out = true;
    DPB_TRY_GOTO(
            st,
            run_or_fail((char *const *)configure, log, side->interrupted, "configure the revision"),
            out);
    DPB_TRY_GOTO(st,
                 run_or_fail((char *const *)compile, log, side->interrupted, "build the revision"),
                 out);
    side->program = program_of_build(build);
    if (!side->program)
        st = DPB_ERR_NO_MEMORY;
out:
    free(source);
    free(build);
    return st;
}

/* Build a revision of the repository around the working folder. */
static dpb_status build_revision(const char *revision, const char *folder, struct side *side)
{
    char commit[64], name[64], *log = NULL, *found = NULL;
    const char *scratch = getenv("TMPDIR");
    struct dpb_str label = {0};
    dpb_status st = DPB_OK;

    snprintf(name, sizeof(name), "%s-build.log", side->name);
    log = dpb_path_join(folder, name);
    snprintf(name, sizeof(name), "%s-revision.log", side->name);
    found = dpb_path_join(folder, name);
    if (!log || !found) {
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    DPB_TRY_GOTO(st, resolve_revision(revision, found, side, commit), out);
    dpb_str_appendf(&label, "revision %s, %.12s", revision, commit);
    side->origin = label.text;
    DPB_TRY_GOTO(st, label.failed ? DPB_ERR_NO_MEMORY : DPB_OK, out);
    side->folder = dpb_path_join(scratch && scratch[0] ? scratch : "/tmp", "dpbench-gate.XXXXXX");
    if (!side->folder) {
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    if (!mkdtemp(side->folder)) {
        dpb_error("cannot make \"%s\": %s", side->folder, strerror(errno));
        dpb_log_hint("TMPDIR names where revisions are built");
        free(side->folder);
        side->folder = NULL;
        st = DPB_ERR_IO;
        goto out;
    }
    dpb_info("building the %s: %s", side->name, side->origin);
    st = build_commit(commit, log, side);
out:
    free(log);
    free(found);
    return st;
}

static char *own_program(void)
{
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    return length > 0 ? strndup(path, (size_t)length) : NULL;
}

static dpb_status find_program(const struct gate_side_config *config, const char *folder,
                               struct side *side)
{
    struct dpb_str origin = {0};

    if (config->build[0] && config->revision[0]) {
        dpb_error("the %s is a build and a revision", side->name);
        dpb_log_hint("give one of --%s-build and --%s-revision", side->name, side->name);
        return DPB_ERR_USAGE;
    }
    if (config->revision[0]) {
        DPB_TRY(build_revision(config->revision, folder, side));
    } else {
        dpb_str_appendf(&origin, config->build[0] ? "build %s" : "this build", config->build);
        side->origin = origin.text;
        side->program = config->build[0] ? program_of_build(config->build) : own_program();
        if (!side->program || origin.failed)
            return DPB_ERR_NO_MEMORY;
    }
    if (access(side->program, X_OK) == 0)
        return DPB_OK;
    dpb_error("the %s's program \"%s\" cannot be run: %s", side->name, side->program,
              strerror(errno));
    dpb_log_hint("name a folder in which dpbench was built, or the program");
    return DPB_ERR_NOT_FOUND;
}

static dpb_status open_side(const struct gate_side_config *config, const char *name,
                            const char *folder, struct side *side)
{
    struct dpb_str label = {0};

    side->name = name;
    add_words(&side->options, config->options);
    if (side->options.failed)
        return DPB_ERR_NO_MEMORY;
    DPB_TRY(find_program(config, folder, side));
    dpb_str_appendf(&label, "%s (%s", name, side->origin);
    for (size_t i = 0; i < side->options.count; i++)
        dpb_str_appendf(&label, "%s%s", i == 0 ? ", " : " ", side->options.items[i]);
    dpb_str_append(&label, ")");
    side->label = label.text;
    return label.failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

static void run_quietly(const char *const *argv, const char *folder)
{
    int code;

    if (run_program((char *const *)argv, "/dev/null", NULL, &code) < 0 || code != 0)
        dpb_warn("\"%s\" is left behind: %s %s failed", folder, argv[0], argv[1]);
}

static void close_side(struct side *side)
{
    char *source = side->folder ? dpb_path_join(side->folder, "source") : NULL;

    if (side->is_checked_out && source)
        run_quietly((const char *const[]){"git", "worktree", "remove", "--force", source, NULL},
                    source);
    if (side->folder)
        run_quietly((const char *const[]){"rm", "-rf", "--", side->folder, NULL}, side->folder);
    release_words(&side->options);
    free(source);
    free(side->origin);
    free(side->label);
    free(side->program);
    free(side->folder);
}

/* ---- launches ---- */

struct measurement {
    const struct gate_measure_config *config;
    struct side sides[2];
    char *run_id, *records;
    int64_t order;
};

/* Options that one side alone is given: comparing across them is what is asked for. */
static dpb_json *differing_options(const struct measurement *m)
{
    dpb_json *names = dpb_json_array();

    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < m->sides[s].options.count; i++) {
            const char *word = m->sides[s].options.items[i];
            char name[64];

            if (strncmp(word, "--", 2) != 0)
                continue;
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
            dpb_json_append(names, dpb_json_string(name));
        }
    return names;
}

static void add_experiment(struct words *words, const struct dpb_settings *experiment)
{
    for (size_t i = 0; i < experiment->count; i++) {
        const struct dpb_setting *setting = &experiment->items[i];
        struct dpb_str flag = {0};

        dpb_str_appendf(&flag, "--%s=", setting->name);
        for (size_t v = 0; v < setting->value_count; v++)
            dpb_str_appendf(&flag, "%s%s", v > 0 ? "," : "", setting->values[v]);
        words->failed |= flag.failed;
        if (flag.text)
            add_word(words, flag.text, flag.length);
        dpb_str_release(&flag);
    }
}

/* The record of a launch, as one of the whole. */
static dpb_status take_record(struct measurement *m, int s, int64_t pair, const char *folder,
                              const dpb_json *of_launch)
{
    dpb_json *record = dpb_json_copy(of_launch), *gate = dpb_json_object();
    dpb_json *axes = dpb_json_object();

    dpb_json_set_string(gate, "side", m->sides[s].name);
    dpb_json_set_int(gate, "pair", pair);
    dpb_json_set_string(gate, "label", m->sides[s].label);
    dpb_json_set_string(gate, "program", m->sides[s].program);
    dpb_json_set_string(gate, "launch", folder);
    dpb_json_set(gate, "differs", differing_options(m));
    if (m->sides[0].options.count + m->sides[1].options.count > 0)
        dpb_json_set_string(gate, "name", "baseline against candidate");
    dpb_json_set_string(axes, "side", m->sides[s].name);
    dpb_json_set_string(record, "run_id", m->run_id);
    dpb_json_set_int(record, "cell", s);
    dpb_json_set_int(record, "repeat", pair);
    dpb_json_set_int(record, "order", m->order);
    dpb_json_set(record, "axes", axes);
    dpb_json_set(record, "gate", gate);
    const dpb_status st =
            dpb_json_ok(record) ? dpb_records_append(m->records, record) : DPB_ERR_NO_MEMORY;
    dpb_json_free(record);
    return st;
}

static dpb_status take_records(struct measurement *m, int s, int64_t pair, const char *folder,
                               int code, const char *log)
{
    char *whole = dpb_path_join(m->config->folder, folder);
    struct dpb_records records = {0};
    dpb_status st = whole ? DPB_OK : DPB_ERR_NO_MEMORY;

    if (whole && access(whole, F_OK) == 0) /* a launch that was refused makes no folder */
        st = dpb_records_read_begun(whole, &records);
    free(whole);
    if (st == DPB_OK && records.count != 1) {
        dpb_error("a launch of the %s ended with status %d and left %zu records, not 1",
                  m->sides[s].name, code, records.count);
        dpb_log_hint("its output is in \"%s\"; a gate measures one configuration, so give no list "
                     "of values and no --repeats",
                     log);
        st = code == 2 ? DPB_ERR_USAGE : DPB_ERR_UNAVAILABLE;
    }
    if (st == DPB_OK)
        st = take_record(m, s, pair, folder, records.items[0]);
    dpb_records_release(&records);
    return st;
}

static dpb_status launch(struct measurement *m, int s, int64_t pair)
{
    const struct side *side = &m->sides[s];
    struct words words = {0};
    char folder[64], log_name[80], *log = NULL, *out = NULL;
    int code = 0;
    dpb_status st = DPB_OK;

    snprintf(folder, sizeof(folder), "launches/%03" PRId64 "-%s", m->order, side->name);
    snprintf(log_name, sizeof(log_name), "%s.log", folder);
    log = dpb_path_join(m->config->folder, log_name);
    out = dpb_path_join(m->config->folder, folder);
    if (!log || !out) {
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    add_word(&words, side->program, strlen(side->program));
    add_words(&words, "run -o");
    add_word(&words, out, strlen(out));
    add_experiment(&words, m->config->experiment);
    for (size_t i = 0; i < side->options.count; i++)
        add_word(&words, side->options.items[i], strlen(side->options.items[i]));
    if (words.failed) {
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    dpb_info("run %" PRId64 " of %" PRId64 ": %s", m->order + 1, 2 * m->config->runs, side->label);
    DPB_TRY_GOTO(st, run_program(words.items, log, m->config->interrupted, &code), out);
    if (*m->config->interrupted) {
        st = DPB_ERR_INTERRUPTED;
        goto out;
    }
    DPB_TRY_GOTO(st, take_records(m, s, pair, folder, code, log), out);
    m->order++;
out:
    release_words(&words);
    free(log);
    free(out);
    return st;
}

static dpb_status launch_all(struct measurement *m)
{
    for (int64_t pair = 0; pair < m->config->runs; pair++)
        for (int k = 0; k < 2; k++)
            DPB_TRY(launch(m, (int)((pair + k) % 2), pair));
    return DPB_OK;
}

dpb_status gate_measure(const struct gate_measure_config *config)
{
    struct measurement m = {
            .config = config,
            .sides = {{.interrupted = config->interrupted}, {.interrupted = config->interrupted}}};
    char *launches = dpb_path_join(config->folder, "launches");
    int lock_fd = -1;
    dpb_status st = launches ? dpb_mkdir_p(launches) : DPB_ERR_NO_MEMORY;

    free(launches);
    DPB_TRY_GOTO(st, st, out);
    DPB_TRY_GOTO(st, dpb_run_folder_lock(config->folder, &lock_fd), out);
    m.records = dpb_path_join(config->folder, DPB_RECORDS_FILE);
    if (!m.records) {
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    DPB_TRY_GOTO(st, dpb_run_folder_name(config->folder, false, &m.run_id), out);
    DPB_TRY_GOTO(st, open_side(&config->baseline, "baseline", config->folder, &m.sides[0]), out);
    DPB_TRY_GOTO(st, open_side(&config->candidate, "candidate", config->folder, &m.sides[1]), out);
    st = launch_all(&m);
out:
    if (st < 0 && *config->interrupted)
        st = DPB_ERR_INTERRUPTED; /* whatever that broke */
    close_side(&m.sides[0]);
    close_side(&m.sides[1]);
    if (lock_fd >= 0)
        close(lock_fd);
    free(m.run_id);
    free(m.records);
    return st;
}
