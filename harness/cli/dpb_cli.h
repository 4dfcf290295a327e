/* dpb_cli.h: what the subcommands share. One file per subcommand; only registry.c names parts. */
#ifndef DPB_CLI_H
#define DPB_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpb_crew.h"
#include "dpb_driver.h"
#include "dpb_options.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_run_folder.h"
#include "dpb_status.h"
#include "dpb_sweep_file.h"
#include "dpb_targets.h"

/* A verb: how it is parsed, and what it does. Returns the status that ends the program. */
struct dpb_verb {
    struct dpb_command command;
    /* optional: the experiment's options of this verb, where they are not the registry's */
    const struct dpb_option_set *(*option_set)(const struct dpb_registry *registry);
    dpb_status (*run)(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options);
    /* in place of run, of verbs that launch ranks: `crew` is who starts them (NULL: this process),
     * by the struct dpb_crew_options at `crew_at` of the options */
    dpb_status (*launch)(const struct dpb_registry *registry, const struct dpb_command_line *line,
                         const void *options, dpb_crew *crew);
    size_t crew_at;
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
/* The same for ranks that somebody else starts (is_launched). */
const struct dpb_registry *dpb_registry_launched(void);

/* From here on SIGINT and SIGTERM set the returned flag instead of ending the program. */
const volatile sig_atomic_t *dpb_interrupt_watch(void);

/* Open the crew, launch, close it. In another process than the driver: what the driver came to. */
dpb_status dpb_crew_run(const struct dpb_verb *verb, const struct dpb_registry *registry,
                        const struct dpb_command_line *line, const void *options);

/* The flags, and as many ranks as the crew has where neither they nor the file (may be NULL) say
 * how many; a sweep takes powers of two below, too. Caller releases `settings`. */
dpb_status dpb_crew_settings(const dpb_crew *crew, const struct dpb_option_set *set,
                             const struct dpb_sweep_file *file, const struct dpb_settings *flags,
                             bool sweep, struct dpb_settings *settings);

/* Can the crew serve `launches` launches of every cell? For verbs that launch more than their plan
 * says. As dpb_crew_check_comm(). */
dpb_status dpb_crew_check_launches(const dpb_crew *crew, const struct dpb_plan *plan,
                                   size_t launches);

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
    dpb_crew *crew; /* who starts the ranks; NULL: this process */
    bool json;      /* print the summary as JSON instead of the table */
    void (*annotate)(void *ctx, const struct dpb_plan_launch *launch, dpb_json *record);
    void *annotate_ctx; /* as struct dpb_driver_config has it; may be NULL */
};
dpb_status dpb_execute(const struct dpb_execute_config *config);

/* Write the report of runs (their folders, or their files of records) into `out_folder`, NULL: the
 * first run's, and print the table, or JSON. */
dpb_status dpb_report_folders(const char *const *folders, size_t count, const char *out_folder,
                              bool json);

/* Targets of a sweep, kept in its folder. */
dpb_status dpb_run_targets_keep(const char *folder, const struct dpb_sweep_file *file);

struct dpb_run_targets {
    bool are_judged; /* false: the run has none */
    struct dpb_targets targets;
    struct dpb_evidence_table evidence; /* borrows from `targets` */
};
/* What the records of a run say of its targets. Errors are logged. Release in every case. */
dpb_status dpb_run_targets_judge(const char *folder, struct dpb_run_targets *targets);
void dpb_run_targets_release(struct dpb_run_targets *targets);

/* Print what a plan would run, as text or JSON. */
dpb_status dpb_plan_print(const struct dpb_plan *plan, bool json);

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

/* Rows of the verbs that run the cells of a plan, for an options struct with members `out`,
 * `resume`, `dry_run` and `json`. */
#define DPB_ROWS_PLANNED(struct_type)                                                              \
    DPB_ROW_OUT(struct_type, "folder of the run; default runs/<UTC time>-<name>"),                 \
            {.name = "resume",                                                                     \
             .type = DPB_OPT_TEXT,                                                                 \
             .offset = offsetof(struct_type, resume),                                              \
             .default_text = "",                                                                   \
             .category = "Output",                                                                 \
             .help = "continue the run in this folder: what is recorded as ok is not run again"},  \
            {.name = "dry-run",                                                                    \
             .type = DPB_OPT_BOOL,                                                                 \
             .offset = offsetof(struct_type, dry_run),                                             \
             .default_text = "off",                                                                \
             .category = "Output",                                                                 \
             .help = "print the plan and run nothing"},                                            \
            DPB_ROW_JSON(struct_type, "print the summary, or the plan, as JSON")

/* Rows of the verbs that launch, for a member `crew` (struct dpb_crew_options). */
#define DPB_ROW_CREW_TEXT(struct_type, member, name_text, text)                                    \
    {                                                                                              \
        .name = (name_text), .type = DPB_OPT_TEXT, .offset = offsetof(struct_type, crew.member),   \
        .default_text = "", .category = "Hosts", .help = (text)                                    \
    }
#define DPB_ROWS_CREW(struct_type)                                                                 \
    {.name = "launcher",                                                                           \
     .type = DPB_OPT_ENUM,                                                                         \
     .offset = offsetof(struct_type, crew.launcher),                                               \
     .default_text = "local",                                                                      \
     .choices = dpb_launcher_choices,                                                              \
     .category = "Hosts",                                                                          \
     .help = "who starts the ranks"},                                                              \
            DPB_ROW_CREW_TEXT(struct_type, hosts, "hosts",                                         \
                              "where mpirun or srun start ranks: node1:4,node2:4"),                \
            DPB_ROW_CREW_TEXT(struct_type, hostfile, "hostfile",                                   \
                              "the same from a file, as Open MPI and MPICH write it"),             \
            DPB_ROW_CREW_TEXT(struct_type, interface, "interface",                                 \
                              "what ranks on other hosts reach this process by: eth0, "            \
                              "10.0.0.1 or 10.0.0.0/16"),                                          \
            DPB_ROW_CREW_TEXT(struct_type, rendezvous, "rendezvous",                               \
                              "where started processes meet: HOST:PORT of rank 0, or file:PATH"),  \
            {.name = "rendezvous-timeout",                                                         \
             .type = DPB_OPT_DURATION,                                                             \
             .offset = offsetof(struct_type, crew.rendezvous_timeout_ns),                          \
             .default_text = "2min",                                                               \
             .min = 1e6,                                                                           \
             .max = 86400e9,                                                                       \
             .category = "Hosts",                                                                  \
             .help = "how long started processes may take to meet"},                               \
            DPB_ROW_CREW_TEXT(struct_type, launcher_args, "launcher-args",                         \
                              "more words for mpirun or srun, such as \"--mpi=pmix\"")
extern const struct dpb_choice dpb_launcher_choices[];
/* These rows alone, for `dpbench list options`. */
extern const struct dpb_option_table dpb_crew_option_table;

/* The default sweep, bench/sweeps/quick.yaml. */
extern const char dpb_quick_sweep[];
extern const size_t dpb_quick_sweep_bytes;

#endif
