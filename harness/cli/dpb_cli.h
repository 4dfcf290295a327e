/* dpb_cli.h: what the subcommands share. One file per subcommand; only registry.c names parts. */
#ifndef DPB_CLI_H
#define DPB_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpb_driver.h"
#include "dpb_options.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_run_folder.h"
#include "dpb_status.h"

/* A verb: how it is parsed, and what it does. Returns the status that ends the program. */
struct dpb_verb {
    struct dpb_command command;
    /* optional: the experiment's options of this verb, where they are not the registry's */
    const struct dpb_option_set *(*option_set)(const struct dpb_registry *registry);
    dpb_status (*run)(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options);
};

extern const struct dpb_verb dpb_verb_run;
extern const struct dpb_verb dpb_verb_sweep;
extern const struct dpb_verb dpb_verb_report;
extern const struct dpb_verb dpb_verb_verify;
extern const struct dpb_verb dpb_verb_explain;
extern const struct dpb_verb dpb_verb_tune;
extern const struct dpb_verb dpb_verb_comm;
extern const struct dpb_verb dpb_verb_list;
extern const struct dpb_verb dpb_verb_data;
extern const struct dpb_verb dpb_verb_doctor;
extern const struct dpb_verb dpb_verb_baseline;
extern const struct dpb_verb dpb_verb_history;
extern const struct dpb_verb dpb_verb_import;
extern const struct dpb_verb dpb_verb_gate;
extern const struct dpb_verb dpb_verb_validate;
extern const struct dpb_verb dpb_verb_calibrate;
extern const struct dpb_verb dpb_verb_simulate;
extern const struct dpb_verb dpb_verb_profile;
extern const struct dpb_verb dpb_verb_plan;

/* The parts and option tables of this build. */
const struct dpb_registry *dpb_registry_get(void);

/* From here on SIGINT and SIGTERM set the returned flag instead of ending the program. */
const volatile sig_atomic_t *dpb_interrupt_watch(void);

/* Progress of a run: one line that is redrawn on a terminal, plain lines otherwise. */
void dpb_progress_show(void *ctx, const struct dpb_progress *progress);
/* Clear the redrawn line before other output. */
void dpb_progress_end(void);

/* Run a plan into a folder, then write and print its report: what run and sweep share. */
struct dpb_execute_config {
    const struct dpb_registry *registry;
    const struct dpb_plan *plan;
    const char *folder;
    bool resume;
    bool json; /* print the summary as JSON instead of the table */
    void (*annotate)(void *ctx, const struct dpb_plan_launch *launch, dpb_json *record);
    void *annotate_ctx; /* as struct dpb_driver_config has it; may be NULL */
};
dpb_status dpb_execute(const struct dpb_execute_config *config);

/* Write the report of runs (their folders, or their files of records) into `out_folder`, NULL: the
 * first run's, and print the table, or JSON. */
dpb_status dpb_report_folders(const char *const *folders, size_t count, const char *out_folder,
                              bool json);

/* Print a value on stdout, indented; takes it. */
dpb_status dpb_json_print(dpb_json *value);

/* Rows that several verbs have: -o and --json, for an options struct with members `out` and `json`.
 */
#define DPB_ROW_OUT(struct_type, text)                                                             \
    {                                                                                              \
        .name = "out", .type = DPB_OPT_TEXT, .offset = offsetof(struct_type, out),                 \
        .default_text = "", .category = "Output", .help = (text), .short_flag = 'o'                \
    }
#define DPB_ROW_JSON(struct_type, text)                                                            \
    {                                                                                              \
        .name = "json", .type = DPB_OPT_BOOL, .offset = offsetof(struct_type, json),               \
        .default_text = "off", .category = "Output", .help = (text)                                \
    }

/* The default sweep, bench/sweeps/quick.yaml. */
extern const char dpb_quick_sweep[];
extern const size_t dpb_quick_sweep_bytes;

#endif
