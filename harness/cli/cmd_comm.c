/* dpbench comm: collectives alone. */
#include "dpb_cli.h"

#include <stdio.h>
#include <stdlib.h>

#include "dpb_comm_bench.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_machine_model.h"
#include "dpb_str.h"

struct comm_options {
    struct dpb_crew_options crew;
    char out[DPB_OPTION_TEXT_BYTES];
    char csv[DPB_OPTION_TEXT_BYTES];
    bool json;
};

static const struct dpb_option options_rows[] = {
        DPB_ROWS_CREW(struct comm_options),
        DPB_ROW_OUT(struct comm_options, "folder of the records; default runs/<UTC time>-comm"),
        {.name = "csv",
         .type = DPB_OPT_TEXT,
         .offset = offsetof(struct comm_options, csv),
         .default_text = "",
         .category = "Output",
         .help = "also write a CSV file"},
        DPB_ROW_JSON(struct comm_options, "print the records as JSON"),
};

static const struct dpb_option_table table = {"command", "comm", options_rows,
                                              sizeof(options_rows) / sizeof(options_rows[0]),
                                              sizeof(struct comm_options)};

static void say(void *ctx, const char *label, size_t launch, size_t launches)
{
    (void)ctx;
    if (launches > 1)
        dpb_info("comm: %s (%zu of %zu)", label, launch + 1, launches);
}

static dpb_status print_text(const dpb_json *records)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_comm_bench_text(records, &text);
    if (st == DPB_OK && text.text)
        fputs(text.text, stdout);
    dpb_str_release(&text);
    return st;
}

static dpb_status write_csv(const dpb_json *records, const char *path)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_comm_bench_csv(records, &text);
    if (st == DPB_OK)
        st = dpb_file_write_atomic(path, text.text, text.length);
    dpb_str_release(&text);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options, dpb_crew *crew)
{
    const struct comm_options *o = options;
    struct dpb_settings settings = {0};
    struct dpb_comm_bench_config config = {
            .registry = registry,
            .settings = &settings,
            .crew = crew,
            .out = o->out[0] ? o->out : NULL,
            .interrupted = dpb_interrupt_watch(),
            .cores = dpb_host_cores(),
            .machines = &dpb_machine_networks,
            .progress = say,
    };
    struct dpb_comm_bench_result result = {0};
    dpb_status st = dpb_crew_settings(crew, dpb_comm_bench_option_set(registry), NULL,
                                      &line->experiment, false, &settings);
    if (st == DPB_OK && o->csv[0])
        st = dpb_file_check(o->csv);
    if (st == DPB_OK)
        st = dpb_comm_bench_run(&config, &result);
    /* What was measured is shown whatever happened then. */
    if (dpb_json_size(result.records) > 0) {
        if (o->csv[0])
            DPB_KEEP(st, write_csv(result.records, o->csv));
        if (o->json)
            DPB_KEEP(st, dpb_json_print(dpb_json_copy(result.records)));
        else
            DPB_KEEP(st, print_text(result.records));
        fflush(stdout);
        dpb_info("records: %s/" DPB_RECORDS_FILE, result.folder);
    }
    dpb_json_free(result.records);
    free(result.folder);
    dpb_settings_release(&settings);
    return st;
}

const struct dpb_verb dpb_verb_comm = {
        .command =
                {.name = "comm",
                 .arguments = "",
                 .summary = "measure collectives alone, in the terms of nccl-tests",
                 .description =
                         "Runs collectives in place on real ranks and prints, for every size, the "
                         "time, algbw and busbw as nccl-tests defines them (GB = 1e9 bytes), and "
                         "the number of wrong elements: before and after the timed calls of a size "
                         "the results for known integers are compared. Lists, such as --collective "
                         "all-reduce,all-gather or --algorithm direct,ring, measure every "
                         "combination. With --device sim --machine NAME nothing is run: the times "
                         "are those of a machine profile, each with where it is from.",
                 .table = &table,
                 .takes_experiment = true},
        .option_set = dpb_comm_bench_option_set,
        .launch = run,
        .crew_at = offsetof(struct comm_options, crew),
};
