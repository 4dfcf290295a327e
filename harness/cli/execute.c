#include "dpb_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_report.h"
#include "dpb_summary.h"

/* The manifest of a run, for the report's header; NULL when there is none: records are enough. */
static dpb_json *read_manifest(const char *folder)
{
    char *path = dpb_path_join(folder, "manifest.json");
    dpb_json *manifest = NULL;
    if (path && access(path, F_OK) == 0 && dpb_json_read_file(path, &manifest) < 0)
        manifest = NULL;
    free(path);
    return manifest;
}

dpb_status dpb_json_print(dpb_json *value)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_json_write(value, true, &text);
    if (st == DPB_OK)
        printf("%s\n", text.text);
    dpb_json_free(value);
    dpb_str_release(&text);
    return st;
}

/* The folder of a run that is named by its folder or by its file of records. Caller frees. */
static char *folder_of(const char *run)
{
    struct stat info;
    char *folder = strdup(run);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (!folder || stat(run, &info) != 0 || S_ISDIR(info.st_mode))
        return folder;
    if (slash) {
        slash[slash == folder] = '\0';
        return folder;
    }
    free(folder);
    return strdup(".");
}

/* Has everything been launched that should be? Else its targets are not to be judged. */
static bool is_complete(const dpb_json *manifest)
{
    const char *state = dpb_json_as_string(dpb_json_get(manifest, "state"), "");

    return strcmp(state, "complete") == 0 || strcmp(state, "failed") == 0;
}

static void hint_resume(const char *when, const char *folder, const char *options)
{
    struct dpb_str command = {0};
    dpb_run_resume_command(folder, options, &command);
    dpb_log_hint("%scontinue with `%s`", when, command.failed ? "" : command.text);
    dpb_str_release(&command);
}

dpb_status dpb_report_folders(const char *const *folders, size_t count, const char *out_folder,
                              bool json)
{
    struct dpb_records records = {0};
    struct dpb_summary summary = {0};
    struct dpb_run_targets targets = {0};
    dpb_json *manifest = NULL;
    char *first_folder = folder_of(folders[0]);
    dpb_status st = first_folder ? DPB_OK : DPB_ERR_NO_MEMORY, data = DPB_OK, judged = DPB_OK;
    DPB_TRY_GOTO(st, st, out);
    for (size_t i = 0; i < count; i++)
        DPB_TRY_GOTO(st, dpb_records_read(folders[i], &records), out);
    data = dpb_summary_compute(&records, &summary);
    if (data < 0 && data != DPB_ERR_NO_DATA) {
        st = data;
        goto out;
    }
    if (count == 1)
        manifest = read_manifest(first_folder);
    if (strcmp(dpb_json_as_string(dpb_json_get(manifest, "state"), ""), "running") == 0) {
        dpb_warn("the run in \"%s\" is not complete: it still runs, or its driver died",
                 first_folder);
        hint_resume("if it died, ", first_folder,
                    dpb_json_as_string(dpb_json_path(manifest, "launcher/options"), ""));
    }
    if (is_complete(manifest))
        judged = dpb_run_targets_judge(first_folder, &targets);
    struct dpb_report_config config = {
            .folder = out_folder ? out_folder : first_folder,
            .title = dpb_json_as_string(dpb_json_path(manifest, "plan/name"), "dpbench"),
            .manifest = manifest,
            .evidence = targets.are_judged ? &targets.evidence : NULL,
    };
    struct dpb_report_result result = {0};
    /* A full disk is no reason to keep the table back. */
    st = dpb_report_write(&summary, &config, &result);
    dpb_status written = st;
    DPB_KEEP(st, json ? dpb_json_print(dpb_summary_json(&summary))
                      : dpb_report_table(&summary, stdout, 0));
    if (!json)
        DPB_KEEP(st, dpb_report_against(&summary, stdout));
    fflush(stdout);
    if (written == DPB_OK) {
        dpb_info("report: %s", result.html_path);
        dpb_info("        %s", result.markdown_path);
    }
    DPB_KEEP(st, judged);
    DPB_TRY_GOTO(st, st, out);
    st = data; /* a report of failures only is no success */
out:
    free(first_folder);
    dpb_json_free(manifest);
    dpb_run_targets_release(&targets);
    dpb_summary_release(&summary);
    dpb_records_release(&records);
    return st;
}

static void hint_resume_interrupted(const struct dpb_execute_config *config)
{
    dpb_json *launcher = dpb_crew_json(config->crew);
    hint_resume("", config->folder, dpb_json_as_string(dpb_json_get(launcher, "options"), ""));
    dpb_json_free(launcher);
}

dpb_status dpb_execute(const struct dpb_execute_config *config)
{
    struct dpb_driver_config driver = {
            .registry = config->registry,
            .plan = config->plan,
            .folder = config->folder,
            .resume = config->resume,
            .crew = config->crew,
            .interrupted = dpb_interrupt_watch(),
            .progress = dpb_progress_show,
            .annotate = config->annotate,
            .annotate_ctx = config->annotate_ctx,
    };
    struct dpb_driver_result result;
    dpb_status st = dpb_driver_run(&driver, &result);
    dpb_progress_end();
    if (result.skipped_done > 0)
        dpb_info("%zu launch%s done before", result.skipped_done,
                 result.skipped_done == 1 ? " was" : "es were");
    /* The report is written whatever happened, from what there is. */
    dpb_status reported = DPB_OK;
    if (result.ok + result.not_ok + result.skipped_done > 0)
        reported = dpb_report_folders(&config->folder, 1, config->folder, config->json);
    if (st == DPB_ERR_INTERRUPTED) {
        const size_t recorded = result.ok + result.skipped_done;

        dpb_warn("interrupted: %zu launch%s recorded", recorded, recorded == 1 ? " is" : "es are");
        hint_resume_interrupted(config);
    } else if (result.not_ok > 0 && result.ok > 0) { /* with none ok the report has said so */
        dpb_error("%zu of %zu launches are not ok; the first: %s", result.not_ok,
                  result.ok + result.not_ok, result.first_reason);
    }
    return st < 0 ? st : reported;
}

dpb_status dpb_plan_print(const struct dpb_plan *plan, bool json)
{
    struct dpb_str text = {0};
    dpb_status st;

    if (json)
        return dpb_json_print(dpb_plan_to_json(plan));
    st = dpb_plan_text(plan, &text);
    if (st == DPB_OK)
        fputs(text.text, stdout);
    dpb_str_release(&text);
    return st;
}
