/* dpbench: verbs first. Only this file exits. */
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_cli.h"
#include "dpb_host.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_worker.h"

#define COMMAND_OPTIONS_BYTES 16384

static const struct dpb_verb *const verbs[] = {
        &dpb_verb_run,       &dpb_verb_sweep,    &dpb_verb_report,  &dpb_verb_verify,
        &dpb_verb_explain,   &dpb_verb_tune,     &dpb_verb_comm,    &dpb_verb_list,
        &dpb_verb_data,      &dpb_verb_doctor,   &dpb_verb_gate,    &dpb_verb_validate,
        &dpb_verb_calibrate, &dpb_verb_simulate, &dpb_verb_profile, &dpb_verb_plan,
        &dpb_verb_baseline,  &dpb_verb_import,   &dpb_verb_history,
};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static void print_help(void)
{
    printf("dpbench measures how data-parallel training scales, and says why.\n\n"
           "usage: dpbench COMMAND [OPTION...] [ARGUMENT...]\n\n"
           "commands:\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        printf("  %-9s %s\n", verbs[i]->command.name, verbs[i]->command.summary);
    printf("\n`dpbench COMMAND --help` explains a command and its options; `dpbench list options`\n"
           "names every option of an experiment. `dpbench --version` tells the version.\n\n"
           "exit codes: 0 done, 1 a check failed, 2 usage, 3 nothing could run, 4 time-out or "
           "dead\n"
           "rank, 5 not enough data, 130 interrupted\n");
}

static dpb_status unknown_verb(const char *word)
{
    const char *names[VERB_COUNT];
    for (size_t i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i]->command.name;
    const char *near = dpb_suggest(word, names, VERB_COUNT);
    dpb_error("\"%s\" is no command of dpbench", word);
    if (word[0] == '-')
        dpb_log_hint("options follow the command: `dpbench run %s ...`; `dpbench --help` names all "
                     "commands",
                     word);
    else if (near)
        dpb_log_hint("did you mean `dpbench %s`? `dpbench --help` names all commands", near);
    else
        dpb_log_hint("`dpbench --help` names all commands");
    return DPB_ERR_USAGE;
}

static dpb_status run_verb(const struct dpb_verb *verb, int argc, char **argv)
{
    _Alignas(16) char options[COMMAND_OPTIONS_BYTES] = {0};
    struct dpb_command_line line = {0};
    const struct dpb_registry *registry = dpb_registry_get();
    const struct dpb_option_set *set =
            verb->option_set ? verb->option_set(registry) : registry->options;
    dpb_status st = dpb_command_line_parse(&verb->command, set, argc, argv, options, &line);
    if (st == DPB_OK && !line.help)
        st = verb->launch ? dpb_crew_run(verb, registry, &line, options)
                          : verb->run(registry, &line, options);
    dpb_settings_release(&line.experiment);
    return st;
}

static dpb_status help_of(char *word)
{
    char help[] = "--help", *arguments[] = {word, help, NULL};
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(word, verbs[i]->command.name) == 0)
            return run_verb(verbs[i], 2, arguments);
    return unknown_verb(word);
}

/* `dpbench list options | head`: that reader has had enough, and misses nothing. */
static bool reader_has_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

/* A result that did not reach its reader is no result. */
static int finish(int code)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && !reader_has_gone()) {
        dpb_error("cannot write to standard output");
        dpb_log_hint("is the disk full? Results on disk are complete");
        return code ? code : dpb_status_exit_code(DPB_ERR_IO);
    }
    return code;
}

/* A closed standard descriptor would be given to the next file that is opened: messages would go
 * into records, and the ranks would get the wrong files. What takes its place refuses what the
 * program does with it, so that output into a closed descriptor stays an error. */
static void fill_standard_descriptors(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return;
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write, and reported */
    signal(SIGPIPE, SIG_IGN); /* `dpbench sweep | head` still keeps its records and its report */
    setlocale(LC_CTYPE, "");  /* for the width of table cells; numbers never depend on the locale */
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, DPB_WORKER_VERB) == 0)
        return dpb_worker_main(dpb_registry_get());
    if (strcmp(word, "--version") == 0) {
        char version[128];
        dpb_tool_version_long(version, sizeof(version));
        printf("dpbench %s\n", version);
        return finish(0);
    }
    if (strcmp(word, "help") == 0 && argc > 2)
        return finish(dpb_status_exit_code(help_of(argv[2])));
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help();
        return finish(0);
    }
    if (argc < 2) {
        dpb_error("no command given");
        dpb_log_hint("`dpbench sweep` runs the default sweep; `dpbench --help` names all commands");
        return dpb_status_exit_code(DPB_ERR_USAGE);
    }
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(word, verbs[i]->command.name) == 0)
            return finish(dpb_status_exit_code(run_verb(verbs[i], argc - 1, argv + 1)));
    return dpb_status_exit_code(unknown_verb(word));
}
