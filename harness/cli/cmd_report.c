/* dpbench report: reports of runs that are there, pure functions of their records. */
#include "dpb_cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_run_folder.h"
#include "dpb_str.h"

struct report_options {
    char out[DPB_OPTION_TEXT_BYTES];
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROW_OUT(struct report_options, "folder for the report; default: the first run's"),
        DPB_ROW_JSON(struct report_options, "print the summary as JSON"),
};

static const struct dpb_option_table table = {
        "command", "report", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct report_options)};

/* Is `folder` that of a run? */
static bool is_run(const char *folder)
{
    char *path = dpb_path_join(folder, DPB_RECORDS_FILE);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static bool is_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

/* A report belongs to the run in whose folder it is. */
static dpb_status check_out(const struct dpb_command_line *line, const char *out)
{
    if (!is_run(out))
        return DPB_OK;
    for (size_t i = 0; i < line->argument_count; i++)
        if (is_same(line->arguments[i], out))
            return DPB_OK;
    dpb_error("-o \"%s\": it is the folder of another run, whose report would be overwritten", out);
    dpb_log_hint("name a folder of its own, or add \"%s\" to the runs that are reported", out);
    return DPB_ERR_USAGE;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    (void)registry;
    const struct report_options *o = options;
    if (o->out[0])
        DPB_TRY(check_out(line, o->out));
    return dpb_report_folders(line->arguments, line->argument_count, o->out[0] ? o->out : NULL,
                              o->json);
}

const struct dpb_verb dpb_verb_report = {
        .command = {.name = "report",
                    .arguments = "RUN...",
                    .summary = "write the tables, Markdown, HTML and plots of runs again",
                    .description = "RUN is the folder of a run. Several runs go into one report.",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 64},
        .run = run,
};
