/* dpbench report: reports of runs that are there, pure functions of their records. */
#include "dpb_cli.h"

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

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    (void)registry;
    const struct report_options *o = options;
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
