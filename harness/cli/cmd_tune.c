/* dpbench tune: the best bucket size, or what else a strategy's gradients travel by. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_ability.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_record.h"
#include "dpb_report.h"
#include "dpb_summary.h"
#include "dpb_text_table.h"
#include "dpb_tune.h"
#include "dpb_units.h"

#define TUNE_FILE   "tune.json"
#define COLUMNS_MAX (DPB_TUNE_KNOBS_MAX + 5)

#define FIRST_BUCKET "first-bucket"

struct tune_options {
    struct dpb_crew_options crew;
    char out[DPB_OPTION_TEXT_BYTES];
    int64_t budget;
    bool dry_run;
    bool json;
};

static const struct dpb_option rows[] = {
        {.name = "budget",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct tune_options, budget),
         .default_text = "60",
         .min = 1,
         .max = 1e6,
         .category = "Measurement",
         .unit = "launches",
         .help = "launches in all; a third of them compares the winner with the default"},
        DPB_ROWS_CREW(struct tune_options),
        DPB_ROW_OUT(struct tune_options, "folder of the run; default runs/<UTC time>-tune"),
        {.name = "dry-run",
         .type = DPB_OPT_BOOL,
         .offset = offsetof(struct tune_options, dry_run),
         .default_text = "off",
         .category = "Output",
         .help = "name the candidates and run nothing"},
        DPB_ROW_JSON(struct tune_options, "print what was found as JSON"),
};

static const struct dpb_option_table table = {
        "command", "tune", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct tune_options)};

/* ---- the table of candidates ---- */

struct cells {
    struct dpb_str text[COLUMNS_MAX];
    size_t count;
};

static struct dpb_str *next_cell(struct cells *cells)
{
    return &cells->text[cells->count++];
}

/* A setting, and what "auto" stands for: the default's first bucket is another one than that of a
 * --bucket that is given, of whatever size. */
static void append_setting(const struct dpb_tune *tune, int cell, const char *knob,
                           struct dpb_str *out)
{
    const int64_t first_bytes = tune->candidates[cell].first_bucket_bytes;
    char size[DPB_UNIT_TEXT_BYTES];

    if (dpb_config_text(tune->plan.cells[cell].config, knob, out) < 0) {
        dpb_str_append(out, "-");
    } else if (strcmp(knob, FIRST_BUCKET) == 0 && !out->failed && strcmp(out->text, "auto") == 0) {
        dpb_format_size(first_bytes, size, sizeof(size));
        dpb_str_appendf(out, ": %s", size);
    }
}

/* Is the first bucket, which is not tuned, still another one in some candidate? */
static bool first_bucket_differs(const struct dpb_tune *tune)
{
    bool differs = false;

    for (size_t k = 0; k < tune->knob_count; k++)
        if (strcmp(tune->knobs[k], FIRST_BUCKET) == 0)
            return false;
    for (size_t c = 1; c < tune->plan.cell_count; c++)
        differs |= tune->candidates[c].first_bucket_bytes != tune->candidates[0].first_bucket_bytes;
    return differs;
}

static void candidate_cells(const struct dpb_tune *tune, int cell, struct cells *cells)
{
    const struct dpb_tune_candidate *candidate = &tune->candidates[cell];

    for (size_t k = 0; k < tune->knob_count; k++)
        append_setting(tune, cell, tune->knobs[k], next_cell(cells));
    if (first_bucket_differs(tune))
        append_setting(tune, cell, FIRST_BUCKET, next_cell(cells));
    dpb_str_appendf(next_cell(cells), "%d", candidate->rounds);
    if (isfinite(candidate->score_ns))
        dpb_str_appendf(next_cell(cells), "%.3f", candidate->score_ns / 1e6);
    else
        dpb_str_append(next_cell(cells), "-");
    if (isfinite(candidate->default_ratio))
        dpb_str_appendf(next_cell(cells), "%.3f", candidate->default_ratio);
    else
        dpb_str_append(next_cell(cells), "-");
    dpb_str_append(next_cell(cells), cell == 0              ? "default"
                                     : cell == tune->winner ? "best other"
                                                            : "");
}

/* Those that came furthest first, then the fastest. */
static bool comes_before(const struct dpb_tune *tune, int a, int b)
{
    const struct dpb_tune_candidate *one = &tune->candidates[a], *other = &tune->candidates[b];

    if (one->rounds != other->rounds)
        return one->rounds > other->rounds;
    return one->score_ns < other->score_ns;
}

static void order_cells(const struct dpb_tune *tune, int *order)
{
    for (int i = 0; i < (int)tune->plan.cell_count; i++) {
        int at = i;

        for (; at > 0 && comes_before(tune, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static dpb_status print_candidates(const struct dpb_tune *tune)
{
    struct dpb_text_column columns[COLUMNS_MAX];
    size_t count = 0, rows_count = tune->plan.cell_count;

    for (size_t k = 0; k < tune->knob_count; k++)
        columns[count++] = (struct dpb_text_column){tune->knobs[k], DPB_TEXT_NUMBER};
    if (first_bucket_differs(tune))
        columns[count++] = (struct dpb_text_column){FIRST_BUCKET, DPB_TEXT_NUMBER};
    columns[count++] = (struct dpb_text_column){"rounds", DPB_TEXT_NUMBER};
    columns[count++] = (struct dpb_text_column){"step ms", DPB_TEXT_NUMBER};
    columns[count++] = (struct dpb_text_column){"default/this", DPB_TEXT_NUMBER};
    columns[count++] = (struct dpb_text_column){"", DPB_TEXT_WORD};
    struct cells *cells = calloc(rows_count, sizeof(*cells));
    const char **texts = calloc(rows_count * count, sizeof(*texts));
    int *order = calloc(rows_count, sizeof(*order));
    dpb_status st = cells && texts && order ? DPB_OK : DPB_ERR_NO_MEMORY;
    if (st == DPB_OK)
        order_cells(tune, order);
    for (size_t r = 0; st == DPB_OK && r < rows_count; r++) {
        candidate_cells(tune, order[r], &cells[r]);
        for (size_t c = 0; c < count; c++)
            texts[r * count + c] = cells[r].text[c].text ? cells[r].text[c].text : "";
    }
    if (st == DPB_OK)
        st = dpb_text_table_print(columns, count, texts, rows_count, stdout, 0);
    for (size_t r = 0; cells && r < rows_count; r++)
        for (size_t c = 0; c < cells[r].count; c++)
            dpb_str_release(&cells[r].text[c]);
    free(cells);
    free(texts);
    free(order);
    return st;
}

/* ---- what is said ---- */

static void append_option(const dpb_config *config, const char *name, struct dpb_str *out)
{
    if (dpb_config_text(config, name, out) < 0)
        dpb_str_append(out, "none");
}

static void print_head(const struct dpb_tune *tune)
{
    const dpb_config *config = tune->plan.cells[0].config;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    struct dpb_str link = {0};

    append_option(config, "link", &link);
    bool has_link = !link.failed && strcmp(link.text, "none") != 0;
    printf("%s, strategy %s, %" PRId64 " ranks of %" PRId64 " samples, %s%s\n", e->workload,
           e->strategy, e->ranks, e->batch_per_rank, has_link ? "emulated link " : "measured",
           has_link ? link.text : "");
    dpb_str_release(&link);
    printf("%zu candidates in %d rounds of halving, then %d pairs of winner and default\n",
           tune->plan.cell_count, tune->rounds, tune->pairs);
    if (tune->same > 0)
        printf("%zu combinations more send the same messages as one of them\n", tune->same);
    if (tune->left_out > 0)
        printf("%zu candidates more are beyond the budget: --budget raises it\n", tune->left_out);
    printf("\n");
}

static void print_knobs(const struct dpb_tune *tune, int cell)
{
    for (size_t k = 0; k < tune->knob_count; k++) {
        struct dpb_str text = {0};
        append_option(tune->plan.cells[cell].config, tune->knobs[k], &text);
        printf(" --%s %s", tune->knobs[k], text.failed ? "" : text.text);
        dpb_str_release(&text);
    }
}

static void print_verdict(const struct dpb_tune *tune)
{
    const struct dpb_tune_comparison *c = &tune->comparison;

    if (c->verdict == DPB_TUNE_NOT_COMPARED)
        return;
    printf("\nin %d fresh pairs a step with", c->pairs);
    print_knobs(tune, tune->winner);
    printf("\nis %.3f times as fast as with the default (95 %% interval %.3f to %.3f)%s\n",
           c->ratio, c->ci95.low, c->ci95.high, tune->emulated ? ", on the emulated link" : "");
    switch (c->verdict) {
    case DPB_TUNE_BETTER: {
        struct dpb_str repro = {0};
        printf("use:");
        print_knobs(tune, tune->winner);
        if (dpb_config_repro(tune->plan.cells[tune->winner].config, &repro) == DPB_OK)
            printf("\nrepeat: dpbench run%s", repro.text);
        printf("\n");
        dpb_str_release(&repro);
        break;
    }
    case DPB_TUNE_NO_DIFFERENCE:
        printf("no claim: the interval contains 1. Keep the default, or raise --budget\n");
        break;
    case DPB_TUNE_WORSE:
        printf("keep the default: nothing that was tried is faster\n");
        break;
    case DPB_TUNE_NOT_COMPARED:
        break;
    }
    if (tune->flagged > 0)
        printf("caution: in %zu launches other work kept the machine busy (flagged)\n",
               tune->flagged);
}

static dpb_status say(const struct dpb_tune *tune, bool json)
{
    if (json)
        return dpb_json_print(dpb_tune_json(tune));
    print_head(tune);
    dpb_status st = print_candidates(tune);
    print_verdict(tune);
    return st;
}

/* ---- files ---- */

static dpb_status write_json(const struct dpb_tune *tune, const char *folder)
{
    char *path = dpb_path_join(folder, TUNE_FILE);
    dpb_json *json = dpb_tune_json(tune);
    dpb_status st = path ? dpb_json_write_file(json, path) : DPB_ERR_NO_MEMORY;
    dpb_json_free(json);
    free(path);
    return st;
}

/* The report of all launches; the table of candidates is printed in place of its own. */
static dpb_status write_report(const char *folder)
{
    struct dpb_records records = {0};
    struct dpb_summary summary = {0};
    struct dpb_report_result result = {0};
    char *path = dpb_path_join(folder, "manifest.json");
    dpb_json *manifest = NULL;
    dpb_status st = path ? dpb_json_read_file(path, &manifest) : DPB_ERR_NO_MEMORY;
    struct dpb_report_config config = {.folder = folder, .title = "tune", .manifest = manifest};
    DPB_TRY_GOTO(st, st, out);
    DPB_TRY_GOTO(st, dpb_records_read(folder, &records), out);
    DPB_TRY_GOTO(st, dpb_summary_compute(&records, &summary), out);
    DPB_TRY_GOTO(st, dpb_report_write(&summary, &config, &result), out);
    dpb_info("report: %s", result.html_path);
out:
    dpb_summary_release(&summary);
    dpb_records_release(&records);
    dpb_json_free(manifest);
    free(path);
    return st;
}

/* ---- the verb ---- */

static dpb_status refuse_repeats(const struct dpb_settings *given)
{
    if (!dpb_settings_find(given, "repeats"))
        return DPB_OK;
    dpb_error("--repeats: cannot take effect: tune launches every candidate as often as its budget "
              "allows");
    dpb_log_hint("leave it out, and give --budget");
    return DPB_ERR_USAGE;
}

static dpb_status measure(const struct dpb_registry *registry, const struct tune_options *o,
                          dpb_crew *crew, struct dpb_tune *tune)
{
    char *folder = NULL;
    struct dpb_driver_result result = {0};
    DPB_TRY(dpb_driver_preflight(registry, &tune->plan, crew));
    DPB_TRY(dpb_ability_check_plan(registry, &tune->plan));
    DPB_TRY(dpb_crew_check_launches(crew, &tune->plan, (size_t)o->budget));
    if (!crew)
        DPB_TRY(dpb_memory_check_plan(registry, &tune->plan));
    DPB_TRY(dpb_run_folder_new(o->out[0] ? o->out : NULL, "tune", &folder));
    dpb_info("%zu candidate%s, at most %" PRId64 " launches, into %s", tune->plan.cell_count,
             tune->plan.cell_count == 1 ? "" : "s", o->budget, folder);
    struct dpb_driver_config driver = {
            .registry = registry,
            .folder = folder,
            .crew = crew,
            .interrupted = dpb_interrupt_watch(),
            .progress = dpb_progress_show,
    };
    dpb_status st = dpb_tune_run(tune, &driver, &result);
    dpb_progress_end();
    if (st == DPB_ERR_INTERRUPTED)
        dpb_warn("interrupted: what was launched is recorded in %s", folder);
    else if (st < 0)
        dpb_error("tuning ended early: a launch is not ok: %s", result.first_reason);
    DPB_KEEP(st, write_json(tune, folder));
    DPB_KEEP(st, say(tune, o->json));
    fflush(stdout);
    DPB_KEEP(st, write_report(folder));
    free(folder);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options, dpb_crew *crew)
{
    const struct tune_options *o = options;
    struct dpb_settings settings = {0};
    const struct dpb_tune_input input = {
            .registry = registry,
            .given = &settings,
            .cores = dpb_host_cores(),
            .budget = o->budget,
    };
    struct dpb_tune tune = {0};
    DPB_TRY(refuse_repeats(&line->experiment));
    dpb_status st =
            dpb_crew_settings(crew, registry->options, NULL, &line->experiment, false, &settings);
    if (st == DPB_OK)
        st = dpb_tune_prepare(&input, &tune);
    if (st == DPB_OK)
        st = o->dry_run ? say(&tune, o->json) : measure(registry, o, crew, &tune);
    dpb_tune_release(&tune);
    dpb_settings_release(&settings);
    return st;
}

const struct dpb_verb dpb_verb_tune = {
        .command = {.name = "tune",
                    .arguments = "",
                    .summary = "find the bucket size, or the like, that suits a workload here",
                    .description =
                            "Launches candidates for the strategy's bucket sizes, packs, fusion "
                            "threshold and cycle time, keeps the better half, launches those "
                            "again, and so on; then compares the winner with the default in fresh "
                            "pairs, and claims nothing when the 95 % interval contains 1. A list, "
                            "such as --bucket 1MiB,4MiB,16MiB, names the candidates; one value "
                            "fixes the setting.",
                    .table = &table,
                    .takes_experiment = true},
        .launch = run,
        .crew_at = offsetof(struct tune_options, crew),
};
