/* dpbench plan: how many accelerators, of which machine. */
#include "dpb_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dpb_capacity_run.h"
#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_plan_page.h"
#include "dpb_str.h"
#include "dpb_sweep_file.h"

struct plan_command {
    char out[DPB_OPTION_TEXT_BYTES];
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROW_OUT(struct plan_command, "folder of the report; default runs/<UTC time>-<name>"),
        DPB_ROW_JSON(struct plan_command, "print the plan as JSON instead of the table"),
};

static const struct dpb_option_table table = {
        "command", "plan", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct plan_command)};

static dpb_status make(const struct dpb_registry *registry, const struct dpb_command_line *line,
                       dpb_json **plan)
{
    struct dpb_sweep_file file = {0};
    struct dpb_capacity_input input = {
            .registry = registry,
            .flags = &line->experiment,
            .now_s = (int64_t)time(NULL),
            .name = "plan",
    };
    dpb_status st;

    if (line->argument_count > 0) {
        DPB_TRY(dpb_sweep_file_read(line->arguments[0], dpb_capacity_option_set(registry), &file));
        input.file = &file;
    }
    st = dpb_capacity_run(&input, plan);
    dpb_sweep_file_release(&file);
    return st;
}

/* Can the report be written there? A plan may replace a plan, but not the report of a run. */
static dpb_status check_folder(const char *wanted)
{
    char *records = dpb_path_join(wanted, DPB_RECORDS_FILE);
    dpb_status st = records ? DPB_OK : DPB_ERR_NO_MEMORY;

    if (st == DPB_OK && access(records, F_OK) == 0) {
        dpb_error("\"%s\" holds the records of a run, whose report a plan would replace", wanted);
        dpb_log_hint("give another folder: -o DIR");
        st = DPB_ERR_USAGE;
    }
    if (st == DPB_OK)
        st = dpb_folder_check(wanted);
    free(records);
    return st;
}

/* The folder of the report, made. */
static dpb_status open_folder(const char *wanted, const char *name, char **folder)
{
    char stamp[32];
    struct dpb_str path = {0};
    dpb_status st;

    dpb_clock_utc_stamp(stamp, sizeof(stamp));
    if (wanted[0])
        dpb_str_append(&path, wanted);
    else
        dpb_str_appendf(&path, "runs/%s-%s", stamp, name);
    st = path.failed ? DPB_ERR_NO_MEMORY : dpb_mkdir_p(path.text);
    if (st == DPB_OK)
        *folder = path.text;
    else
        dpb_str_release(&path);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct plan_command *o = options;
    struct dpb_report_result result;
    dpb_json *plan = NULL;
    char *folder = NULL;
    dpb_status st;

    DPB_TRY(check_folder(o->out[0] ? o->out : "runs"));
    DPB_TRY(make(registry, line, &plan));
    DPB_TRY_GOTO(
            st,
            open_folder(o->out, dpb_json_as_string(dpb_json_get(plan, "name"), "plan"), &folder),
            out);
    DPB_TRY_GOTO(st, dpb_plan_page_write(plan, folder, NULL, &result), out);
    if (o->json) {
        st = dpb_json_print(plan);
        plan = NULL;
    } else {
        st = dpb_plan_page_print(plan, stdout, 0);
    }
    fflush(stdout);
    dpb_info("report: %s and .html", result.markdown_path);
out:
    dpb_json_free(plan);
    free(folder);
    return st;
}

const struct dpb_verb dpb_verb_plan = {
        .command =
                {.name = "plan",
                 .arguments = "[FILE]",
                 .summary = "plan capacity: how many GPUs, which strategy, how long, how much",
                 .description =
                         "Simulates training on machines that are described, not there, and says "
                         "how many accelerators of which one meet the targets, with which strategy "
                         "and bucket size, in what time, for what cost, and what gives way first "
                         "beyond that. FILE is a sweep file (base, axes, targets) with the options "
                         "below; options on the command line go over it. Lists, such as --machine "
                         "dgx-a100,aws-p5 or --strategy ddp,fsdp, are compared.",
                 .table = &table,
                 .takes_experiment = true,
                 .max_arguments = 1},
        .option_set = dpb_capacity_option_set,
        .run = run,
};
