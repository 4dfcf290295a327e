/* dpbench gate: is a candidate worse than a baseline, by runs, and how many runs tell? */
#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dpb_baseline.h"
#include "dpb_gate_compare.h"
#include "dpb_gate_report.h"
#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_stats.h"
#include "dpb_str.h"
#include "dpb_targets.h"
#include "gate_measure.h"

enum inconclusive {
    INCONCLUSIVE_AS_IS,
    INCONCLUSIVE_FAIL,
    INCONCLUSIVE_PASS
};

struct gate_options {
    char baseline[DPB_OPTION_TEXT_BYTES], targets[DPB_OPTION_TEXT_BYTES];
    char margin[DPB_OPTION_TEXT_BYTES], metrics[DPB_OPTION_TEXT_BYTES];
    char allow[DPB_OPTION_TEXT_BYTES];
    double alpha, price;
    int64_t looks, baseline_days;
    int inconclusive;
    bool require_interleaved;
    char json[DPB_OPTION_TEXT_BYTES], junit[DPB_OPTION_TEXT_BYTES];
    char markdown[DPB_OPTION_TEXT_BYTES], prometheus[DPB_OPTION_TEXT_BYTES];
    bool github;
    int64_t runs;
    char out[DPB_OPTION_TEXT_BYTES];
    char baseline_build[DPB_OPTION_TEXT_BYTES], candidate_build[DPB_OPTION_TEXT_BYTES];
    char baseline_revision[DPB_OPTION_TEXT_BYTES], candidate_revision[DPB_OPTION_TEXT_BYTES];
    char baseline_options[DPB_OPTION_TEXT_BYTES], candidate_options[DPB_OPTION_TEXT_BYTES];
    double mde, power, sd;
    char from[DPB_OPTION_TEXT_BYTES];
    bool self_test;
    double inject;
    int64_t splits;
};

#define AT(member) offsetof(struct gate_options, member)
#define TEXT_ROW(flag, member, heading, text)                                                      \
    {                                                                                              \
        .name = (flag), .type = DPB_OPT_TEXT, .offset = AT(member), .default_text = "",            \
        .category = (heading), .help = (text)                                                      \
    }

static const struct dpb_choice inconclusive_choices[] = {
        {"exit-5", INCONCLUSIVE_AS_IS, "neither a pass nor a failure"},
        {"fail", INCONCLUSIVE_FAIL, "what was not shown to be fine is not"},
        {"pass", INCONCLUSIVE_PASS, "what was not shown to be worse is fine"},
        {NULL, 0, NULL},
};

#define DECIDE  "Decision"
#define OUTPUTS "Output"
#define MEASURE "gate measure"
#define HOW     "gate plan, gate calibrate, --self-test"

static const struct dpb_option rows[] = {
        TEXT_ROW("baseline", baseline, DECIDE,
                 "what to compare with: run folders or files, separated by commas"),
        TEXT_ROW("targets", targets, DECIDE, "file of limits, or a sweep file that sets some"),
        TEXT_ROW("margin", margin, DECIDE,
                 "metric=margin, separated by commas: step-time-median=3%, loss=0.02, "
                 "energy-per-sample=+0.5 (absolute)"),
        TEXT_ROW("metrics", metrics, DECIDE,
                 "the metrics that decide, separated by commas; the others are advisory"),
        TEXT_ROW("allow-diff", allow, DECIDE,
                 "options and facts that may differ, separated by commas, and \"absent\": those "
                 "that "
                 "only one side knows, and \"busy\": runs on a machine without free cores; the "
                 "report names them"),
        {.name = "alpha",
         .type = DPB_OPT_FLOAT,
         .offset = AT(alpha),
         .default_text = "0.05",
         .min = 1e-6,
         .max = 0.5,
         .category = DECIDE,
         .help = "how often a healthy build may fail"},
        {.name = "looks",
         .type = DPB_OPT_INT,
         .offset = AT(looks),
         .default_text = "1",
         .min = 1,
         .max = 3,
         .category = DECIDE,
         .help = "looks planned before the first; only INCONCLUSIVE may be extended"},
        {.name = "inconclusive",
         .type = DPB_OPT_ENUM,
         .offset = AT(inconclusive),
         .default_text = "exit-5",
         .choices = inconclusive_choices,
         .category = DECIDE,
         .help = "what INCONCLUSIVE counts as"},
        {.name = "baseline-days",
         .type = DPB_OPT_INT,
         .offset = AT(baseline_days),
         .default_text = "0",
         .min = 0,
         .max = 36500,
         .category = DECIDE,
         .help = "refuse a baseline with a run that is older; 0: of any age"},
        {.name = "require-interleaved",
         .type = DPB_OPT_BOOL,
         .offset = AT(require_interleaved),
         .default_text = "off",
         .category = DECIDE,
         .help = "refuse sides that were measured one after the other"},
        {.name = "price",
         .type = DPB_OPT_FLOAT,
         .offset = AT(price),
         .default_text = "0",
         .min = 0,
         .max = 1e6,
         .category = DECIDE,
         .help = "dollars per accelerator and hour, where neither baseline nor targets give it"},
        TEXT_ROW("json", json, OUTPUTS, "write every number into this file"),
        TEXT_ROW("junit", junit, OUTPUTS, "write JUnit XML into this file"),
        TEXT_ROW("markdown", markdown, OUTPUTS, "write a comment of at most 64 KiB into this file"),
        TEXT_ROW("prometheus", prometheus, OUTPUTS, "write a text exposition into this file"),
        {.name = "github",
         .type = DPB_OPT_BOOL,
         .offset = AT(github),
         .default_text = "off",
         .category = OUTPUTS,
         .help = "print annotations for GitHub, at most 10 of a kind"},
        DPB_ROW_OUT(struct gate_options,
                    "folder that measure writes; default runs/<UTC time>-gate"),
        {.name = "runs",
         .type = DPB_OPT_INT,
         .offset = AT(runs),
         .default_text = "6",
         .min = 1,
         .max = 1000,
         .category = MEASURE,
         .help = "launches of each side"},
        TEXT_ROW("baseline-build", baseline_build, MEASURE, "folder of its build, or its program"),
        TEXT_ROW("candidate-build", candidate_build, MEASURE, "the same of the candidate"),
        TEXT_ROW("baseline-revision", baseline_revision, MEASURE,
                 "git revision, built in a worktree of its own"),
        TEXT_ROW("candidate-revision", candidate_revision, MEASURE, "the same of the candidate"),
        TEXT_ROW("baseline-options", baseline_options, MEASURE,
                 "options that only it gets, in one text: \"--bucket 1MiB\""),
        TEXT_ROW("candidate-options", candidate_options, MEASURE, "the same of the candidate"),
        {.name = "mde",
         .type = DPB_OPT_RATIO,
         .offset = AT(mde),
         .default_text = "2%",
         .min = 1e-6,
         .max = 10,
         .category = HOW,
         .help = "effect beyond the margin that is to be found"},
        {.name = "power",
         .type = DPB_OPT_FLOAT,
         .offset = AT(power),
         .default_text = "0.9",
         .min = 0.5,
         .max = 0.9999,
         .category = HOW,
         .help = "probability of finding it"},
        {.name = "sd",
         .type = DPB_OPT_RATIO,
         .offset = AT(sd),
         .default_text = "0",
         .min = 0,
         .max = 10,
         .category = HOW,
         .help = "standard deviation from run to run, where --from does not tell"},
        TEXT_ROW("from", from, HOW, "runs of one build, from which plan takes that"),
        {.name = "self-test",
         .type = DPB_OPT_BOOL,
         .offset = AT(self_test),
         .default_text = "off",
         .category = HOW,
         .help = "a copy of RUN that is worse must FAIL, RUN against itself must not"},
        {.name = "inject",
         .type = DPB_OPT_RATIO,
         .offset = AT(inject),
         .default_text = "20%",
         .min = 1e-4,
         .max = 10,
         .category = HOW,
         .help = "how much worse"},
        {.name = "splits",
         .type = DPB_OPT_INT,
         .offset = AT(splits),
         .default_text = "1000",
         .min = 20,
         .max = 100000,
         .category = HOW,
         .help = "random halves that calibrate compares"},
};

static const struct dpb_option_table table = {
        "command", "gate", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct gate_options)};

/* ---- sides ---- */

/* A path, or the NAME of a baseline in the store of the working folder. */
static dpb_status read_baseline(const char *text, enum dpb_gate_side side, double price,
                                struct dpb_gate_set *set)
{
    struct dpb_str path = {0};

    if (access(text, F_OK) == 0 || access(DPB_BASELINE_STORE, F_OK) != 0)
        return dpb_import_side(text, NULL, false, side, price, set);
    dpb_status st = dpb_baseline_find(DPB_BASELINE_STORE, text, &path);
    if (st == DPB_OK)
        st = dpb_import_side(path.text, NULL, false, side, price, set);
    dpb_str_release(&path);
    return st;
}

/* `list`: paths separated by commas, added to one set. */
static dpb_status read_list(const char *list, enum dpb_gate_side side, double price,
                            struct dpb_gate_set *set)
{
    while (*list) {
        const size_t length = strcspn(list, ",");
        char *path = strndup(list, length);
        const dpb_status st = path ? read_baseline(path, side, price, set) : DPB_ERR_NO_MEMORY;

        free(path);
        DPB_TRY(st);
        list += length + (list[length] == ',');
    }
    return DPB_OK;
}

static dpb_status read_runs(const char *const *paths, size_t count, enum dpb_gate_side side,
                            double price, struct dpb_gate_set *set)
{
    for (size_t i = 0; i < count; i++)
        DPB_TRY(dpb_import_side(paths[i], NULL, false, side, price, set));
    return DPB_OK;
}

/* ---- outputs ---- */

static dpb_status write_text(const char *path,
                             dpb_status (*make)(const struct dpb_gate_outcome *, struct dpb_str *),
                             const struct dpb_gate_outcome *outcome)
{
    struct dpb_str text = {0};
    dpb_status st = DPB_OK;

    if (path[0]) {
        st = make(outcome, &text);
        if (st == DPB_OK)
            st = dpb_file_write_atomic(path, text.text ? text.text : "", text.length);
    }
    dpb_str_release(&text);
    return st;
}

static dpb_status make_markdown(const struct dpb_gate_outcome *outcome, struct dpb_str *out)
{
    return dpb_gate_markdown(outcome, DPB_GATE_MARKDOWN_BYTES, out);
}

static dpb_status write_json(const char *path, const struct dpb_gate_outcome *outcome)
{
    if (!path[0])
        return DPB_OK;
    dpb_json *json = outcome->report ? dpb_gate_report_json(outcome->report) : dpb_json_object();
    dpb_json_set_string(json, "schema", "dpb.gate/1");
    dpb_json_set_string(json, "outcome", dpb_verdict_text(outcome->verdict));
    if (outcome->evidence)
        dpb_json_set(json, "targets", dpb_evidence_json(outcome->evidence));
    const dpb_status st = dpb_json_write_file(json, path);
    dpb_json_free(json);
    return st;
}

/* Before anything is measured or compared. */
static dpb_status check_outputs(const struct gate_options *o)
{
    const char *const paths[] = {o->json, o->junit, o->markdown, o->prometheus};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (paths[i][0])
            DPB_TRY(dpb_file_check(paths[i]));
    return DPB_OK;
}

/* All of them, also when one cannot be written. */
static dpb_status write_outputs(const struct gate_options *o,
                                const struct dpb_gate_outcome *outcome)
{
    struct dpb_str lines = {0};
    dpb_status st = dpb_gate_print(outcome, stdout, 0);

    if (o->github && dpb_gate_github(outcome, &lines) == DPB_OK && lines.text)
        fputs(lines.text, stdout);
    dpb_str_release(&lines);
    DPB_KEEP(st, write_json(o->json, outcome));
    DPB_KEEP(st, write_text(o->junit, dpb_gate_junit, outcome));
    DPB_KEEP(st, write_text(o->markdown, make_markdown, outcome));
    DPB_KEEP(st, write_text(o->prometheus, dpb_gate_prometheus, outcome));
    return st;
}

/* ---- decide ---- */

static enum dpb_verdict resolve(enum dpb_verdict verdict, int inconclusive)
{
    if (verdict != DPB_VERDICT_INCONCLUSIVE || inconclusive == INCONCLUSIVE_AS_IS)
        return verdict;
    return inconclusive == INCONCLUSIVE_FAIL ? DPB_VERDICT_FAIL : DPB_VERDICT_PASS;
}

static dpb_status status_of(enum dpb_verdict verdict)
{
    switch (verdict) {
    case DPB_VERDICT_PASS:
        return DPB_OK;
    case DPB_VERDICT_FAIL:
        return DPB_ERR_CHECK;
    default:
        return DPB_ERR_NO_DATA;
    }
}

static enum dpb_verdict worse_of(enum dpb_verdict a, enum dpb_verdict b)
{
    if (a == DPB_VERDICT_FAIL || b == DPB_VERDICT_FAIL)
        return DPB_VERDICT_FAIL;
    return a < b ? a : b;
}

/* What is compared, and what comes of it. */
struct deciding {
    const struct gate_options *o;
    struct dpb_gate_set baseline, candidate;
    bool has_baseline;
    struct dpb_targets targets;
    struct dpb_gate_report report;
    struct dpb_evidence_table evidence;
};

/* A pin that nobody has looked at for so long says little about this machine. */
static dpb_status check_age(const struct gate_options *o, const struct dpb_gate_set *baseline)
{
    const double days = dpb_gate_set_age_days(baseline, (double)time(NULL));

    if (o->baseline_days == 0 || days <= (double)o->baseline_days)
        return DPB_OK;
    if (isnan(days))
        dpb_error("--baseline-days %" PRId64 ": the baseline does not say when its runs were made",
                  o->baseline_days);
    else
        dpb_error("--baseline-days %" PRId64 ": the oldest run of the baseline is %.1f days old",
                  o->baseline_days, days);
    dpb_log_hint("measure it again, and promote what was measured: `dpbench baseline save` and "
                 "`promote`");
    return DPB_ERR_NO_DATA;
}

static dpb_status read_sides(struct deciding *d, const char *const *paths, size_t count)
{
    const struct gate_options *o = d->o;
    double price = o->price > 0 ? o->price : NAN;

    if (o->targets[0])
        DPB_TRY(dpb_targets_read(o->targets, &d->targets));
    if (!isnan(d->targets.price))
        price = d->targets.price;
    if (o->baseline[0]) {
        d->has_baseline = true;
        DPB_TRY(read_list(o->baseline, DPB_GATE_SIDE_ALL, price, &d->baseline));
        DPB_TRY(check_age(o, &d->baseline));
        if (!isnan(d->baseline.price))
            price = d->baseline.price;
        return read_runs(paths, count, DPB_GATE_SIDE_ALL, price, &d->candidate);
    }
    if (count == 1 && dpb_gate_has_sides(paths[0])) {
        d->has_baseline = true;
        DPB_TRY(read_runs(paths, 1, DPB_GATE_SIDE_BASELINE, price, &d->baseline));
        return read_runs(paths, 1, DPB_GATE_SIDE_CANDIDATE, price, &d->candidate);
    }
    if (!o->targets[0]) {
        dpb_error("\"%s\" has nothing to be compared with", paths[0]);
        dpb_log_hint("name --baseline RUN, or --targets FILE, or measure both sides with `dpbench "
                     "gate measure`");
        return DPB_ERR_USAGE;
    }
    return read_runs(paths, count, DPB_GATE_SIDE_ALL, price, &d->candidate);
}

static dpb_status options_of(const struct gate_options *o, struct dpb_gate_options *options)
{
    *options = (struct dpb_gate_options){
            .alpha = o->alpha,
            .looks = (int)o->looks,
            .gating = o->metrics[0] ? o->metrics : NULL,
            .allow = o->allow[0] ? o->allow : NULL,
            .require_interleaved = o->require_interleaved,
    };
    if (o->baseline_days > 0 && !o->baseline[0]) {
        dpb_error("--baseline-days cannot take effect without --baseline");
        dpb_log_hint("name the baseline, or leave it out");
        return DPB_ERR_USAGE;
    }
    if (o->looks > 1 && o->alpha != 0.05) {
        dpb_error("--alpha cannot take effect with --looks %" PRId64 ": levels of several looks "
                  "are known for 0.05",
                  o->looks);
        dpb_log_hint("leave one of them out");
        return DPB_ERR_USAGE;
    }
    return dpb_gate_margins_parse(o->margin, &options->margins);
}

static dpb_status decide(struct deciding *d)
{
    const struct gate_options *o = d->o;
    struct dpb_gate_options options;
    struct dpb_gate_outcome outcome = {.verdict = DPB_VERDICT_PASS};

    DPB_TRY(options_of(o, &options));
    if (d->has_baseline) {
        DPB_TRY(dpb_gate_compare(&d->baseline, &d->candidate, &options, &d->report));
        outcome.report = &d->report;
        outcome.verdict = d->report.verdict;
    }
    if (o->targets[0]) {
        DPB_TRY(dpb_targets_judge(&d->targets, &d->candidate, d->has_baseline ? &d->baseline : NULL,
                                  &d->evidence));
        outcome.evidence = &d->evidence;
        outcome.verdict = d->has_baseline ? worse_of(outcome.verdict, d->evidence.verdict)
                                          : d->evidence.verdict;
    }
    outcome.inconclusive_fails = o->inconclusive == INCONCLUSIVE_FAIL;
    outcome.verdict = resolve(outcome.verdict, o->inconclusive);
    DPB_TRY(write_outputs(o, &outcome));
    return status_of(outcome.verdict);
}

static dpb_status gate(const struct gate_options *o, const char *const *paths, size_t count)
{
    struct deciding d = {.o = o, .targets = {.price = NAN}};
    dpb_status st;

    d.baseline.price = d.candidate.price = NAN;
    DPB_TRY_GOTO(st, read_sides(&d, paths, count), out);
    st = decide(&d);
out:
    dpb_gate_report_release(&d.report);
    dpb_evidence_release(&d.evidence);
    dpb_targets_release(&d.targets);
    dpb_gate_set_release(&d.baseline);
    dpb_gate_set_release(&d.candidate);
    return st;
}

/* ---- measure ---- */

static dpb_status measure(const struct dpb_command_line *line, const struct gate_options *o)
{
    char *folder = NULL;

    if (line->argument_count > 1 || o->baseline[0]) {
        dpb_error("gate measure makes both sides, and takes no runs");
        dpb_log_hint("`dpbench gate measure --candidate-build FOLDER --workload mnist-cnn`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_run_folder_new(o->out[0] ? o->out : NULL, "gate", &folder));
    const struct gate_measure_config config = {
            .baseline = {o->baseline_build, o->baseline_revision, o->baseline_options},
            .candidate = {o->candidate_build, o->candidate_revision, o->candidate_options},
            .experiment = &line->experiment,
            .runs = o->runs,
            .folder = folder,
            .interrupted = dpb_interrupt_watch(),
    };
    dpb_status st = gate_measure(&config);
    if (st == DPB_OK) {
        const char *const paths[] = {folder};

        dpb_info("both sides are in %s", folder);
        st = gate(o, paths, 1);
    }
    free(folder);
    return st;
}

/* ---- plan ---- */

static double largest_sd(const struct dpb_gate_set *set)
{
    double largest = NAN;

    for (size_t c = 0; c < set->cell_count; c++) {
        const struct dpb_gate_cell *cell = &set->cells[c];
        const double *values = dpb_gate_cell_values(cell, "step-time-median");
        double *logs = values ? malloc((cell->run_count + 1) * sizeof(*logs)) : NULL;

        for (size_t i = 0; logs && i < cell->run_count; i++)
            logs[i] = log(values[i]);
        if (logs) /* fmax() leaves NaN out */
            largest = fmax(largest, dpb_stats_stdev(logs, cell->run_count));
        free(logs);
    }
    return largest;
}

static dpb_status sd_of(const struct gate_options *o, double *sd)
{
    struct dpb_gate_set set = {.price = NAN};
    dpb_status st = DPB_OK;

    *sd = o->sd;
    if (o->from[0]) {
        st = dpb_gate_set_read(
                o->from, dpb_gate_has_sides(o->from) ? DPB_GATE_SIDE_BASELINE : DPB_GATE_SIDE_ALL,
                NAN, &set);
        *sd = st == DPB_OK ? largest_sd(&set) : NAN;
        dpb_gate_set_release(&set);
        DPB_TRY(st);
    }
    if (*sd > 0)
        return DPB_OK;
    if (o->from[0])
        dpb_error("\"%s\" has no cell with two runs: the noise from run to run is not known",
                  o->from);
    else
        dpb_error("gate plan must know the noise from run to run");
    dpb_log_hint("name runs of one build with --from RUN (`dpbench run --repeats 10` makes some), "
                 "or give --sd 1%%");
    return o->from[0] ? DPB_ERR_NO_DATA : DPB_ERR_USAGE;
}

#define RUNS_MOST 10000

static dpb_status plan(const struct dpb_command_line *line, const struct gate_options *o)
{
    const double effect = log1p(o->mde);
    double sd;

    if (line->argument_count > 1 || line->experiment.count > 0) {
        dpb_error("gate plan takes --mde, --power, --alpha, and --from RUN or --sd");
        dpb_log_hint("`dpbench gate plan --mde 2%% --power 0.9 --from RUN`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(sd_of(o, &sd));
    const size_t runs = dpb_gate_runs(effect, sd, o->alpha, o->power, RUNS_MOST);
    if (runs == 0) {
        dpb_error("more than %d runs a side would be needed for %g %% at a noise of %g %%",
                  RUNS_MOST, 100 * o->mde, 100 * sd);
        dpb_log_hint("a quieter machine, pairs (`dpbench gate measure`), or a larger effect");
        return DPB_ERR_NO_DATA;
    }
    const size_t least = runs > 3 ? runs : 3;
    printf("%zu runs a side find %.3g %% beyond the margin with probability %.3f (exact, "
           "noncentral "
           "t), at alpha %g and a noise of %.3g %% from run to run\n",
           least, 100 * o->mde, dpb_gate_power(least, effect, sd, o->alpha), o->alpha, 100 * sd);
    if (runs < least)
        printf("%zu would do; below 3 no gate decides\n", runs);
    return DPB_OK;
}

/* ---- calibrate ---- */

static void print_calibration(const struct dpb_gate_calibration *cell, double margin)
{
    printf("%s: %zu runs\n", cell->cell, cell->runs);
    if (isfinite(cell->fail_share)) {
        printf("  A/A at margin 0: %.1f %% of %zu random halves FAIL (alpha 5 %%; %.1f to %.1f %% "
               "were they independent, which halves of the same runs are not)\n",
               100 * cell->fail_share, cell->splits, 100 * cell->accept_low,
               100 * cell->accept_high);
        printf("  noise: %.3g %% from run to run, %.3g %% from step to step, lag-1 correlation "
               "%.2f; drift p %.2g\n",
               100 * cell->sd_run, 100 * cell->sd_step, cell->rho, cell->drift_p);
        if (isfinite(cell->se_step))
            printf("  a run's median is known to %.2g %% from its steps (block bootstrap): %s\n",
                   100 * cell->se_step,
                   cell->se_step > cell->sd_run / 2
                           ? "longer runs would make the noise from run to run smaller"
                           : "longer runs would not help, more runs do");
        printf("  half of these runs a side find %.2f %% beyond the margin with probability 0.8: "
               "the smallest margin that can be defended\n",
               100 * cell->least_margin);
        if (cell->recommended > 0)
            printf("  runs a side that find %.3g %%: %zu\n", 100 * margin, cell->recommended);
        else
            printf("  no 1000 runs a side find %.3g %%\n", 100 * margin);
    }
    if (cell->may_block)
        printf("  may block\n");
    else
        printf("  REFUSED: may not block: %s\n", cell->why);
}

static dpb_json *calibration_json(const struct dpb_gate_calibration *cells, size_t count)
{
    dpb_json *json = dpb_json_object(), *all = dpb_json_array();

    for (size_t i = 0; i < count; i++) {
        const struct dpb_gate_calibration *cell = &cells[i];
        dpb_json *one = dpb_json_object();

        dpb_json_set_string(one, "cell", cell->cell);
        dpb_json_set_int(one, "runs", (int64_t)cell->runs);
        dpb_json_set_int(one, "splits", (int64_t)cell->splits);
        dpb_json_set_int(one, "failed", (int64_t)cell->failed);
        dpb_json_set_real(one, "sd_run", cell->sd_run);
        dpb_json_set_real(one, "sd_step", cell->sd_step);
        dpb_json_set_real(one, "rho", cell->rho);
        dpb_json_set_real(one, "se_step", cell->se_step);
        dpb_json_set_real(one, "drift_p", cell->drift_p);
        dpb_json_set_int(one, "recommended_runs", (int64_t)cell->recommended);
        dpb_json_set_real(one, "least_margin", cell->least_margin);
        dpb_json_set_bool(one, "may_block", cell->may_block);
        dpb_json_set_string(one, "reason", cell->why[0] ? cell->why : NULL);
        dpb_json_append(all, one);
    }
    dpb_json_set_string(json, "schema", "dpb.gate-calibration/1");
    dpb_json_set(json, "cells", all);
    return json;
}

#define CALIBRATE_SEED   1
#define CALIBRATE_MARGIN 0.02 /* the default one of step times */

static dpb_status tell_calibration(const struct gate_options *o,
                                   const struct dpb_gate_calibration *cells, size_t count)
{
    bool all = count > 0;

    for (size_t i = 0; i < count; i++) {
        print_calibration(&cells[i], CALIBRATE_MARGIN);
        all &= cells[i].may_block;
    }
    if (o->json[0]) {
        dpb_json *json = calibration_json(cells, count);
        const dpb_status st = dpb_json_write_file(json, o->json);

        dpb_json_free(json);
        DPB_TRY(st);
    }
    return all ? DPB_OK : DPB_ERR_NO_DATA;
}

static dpb_status calibrate(const struct dpb_command_line *line, const struct gate_options *o)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_records records = {0};
    struct dpb_gate_calibration *cells = NULL;
    size_t count = 0;
    dpb_status st;

    if (line->argument_count < 2 || line->experiment.count > 0) {
        dpb_error("gate calibrate takes the runs of one build");
        dpb_log_hint("`dpbench run --repeats 12 -o RUN`, then `dpbench gate calibrate RUN`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY_GOTO(
            st,
            read_runs(line->arguments + 1, line->argument_count - 1, DPB_GATE_SIDE_ALL, NAN, &set),
            out);
    /* the steps, where the file holds steps */
    if (set.cells[0].run_count > 0 && dpb_gate_cell_values(&set.cells[0], "step-time-median"))
        for (size_t i = 1; i < line->argument_count; i++)
            DPB_TRY_GOTO(st, dpb_records_read(line->arguments[i], &records), out);
    DPB_TRY_GOTO(st,
                 dpb_gate_calibrate(&set, records.count > 0 ? &records : NULL, CALIBRATE_MARGIN,
                                    (size_t)o->splits, CALIBRATE_SEED, &cells, &count),
                 out);
    st = tell_calibration(o, cells, count);
out:
    dpb_gate_calibration_free(cells, count);
    dpb_records_release(&records);
    dpb_gate_set_release(&set);
    return st;
}

/* ---- self-test ---- */

/* Compare one half (0: all) of the runs with another that is worse by `share`. */
static dpb_status compare_copies(const struct dpb_gate_set *set, double share, int base_half,
                                 int candidate_half, const struct dpb_gate_options *options,
                                 struct dpb_gate_report *report)
{
    struct dpb_gate_set base, candidate = {.price = NAN};
    dpb_status st;

    DPB_TRY(dpb_gate_set_worsened(set, 0, base_half, &base));
    DPB_TRY_GOTO(st, dpb_gate_set_worsened(set, share, candidate_half, &candidate), out);
    st = dpb_gate_compare(&base, &candidate, options, report);
out:
    dpb_gate_set_release(&base);
    dpb_gate_set_release(&candidate);
    return st;
}

static bool is_counter(const struct dpb_gate_finding *finding)
{
    return finding->metric && finding->metric->scale == DPB_GATE_EXACT;
}

/* Is the injection noticed in the cell of `finding`? Any counter notices any difference, so one
 * that is measured must, where the cell has such a one. */
static bool is_noticed(const struct dpb_gate_report *report, const struct dpb_gate_finding *finding)
{
    bool measured = false, noticed = false, counted = false;

    for (size_t i = 0; i < report->finding_count; i++) {
        const struct dpb_gate_finding *other = &report->findings[i];
        const bool fails = other->result.verdict == DPB_VERDICT_FAIL;

        if (!other->is_gating || strcmp(other->cell, finding->cell) != 0)
            continue;
        measured |= !is_counter(other);
        noticed |= !is_counter(other) && fails;
        counted |= is_counter(other) && fails;
    }
    return measured ? noticed : counted;
}

/* Print what does not notice; is there a cell in which nothing does? */
static bool tell_injection(const struct dpb_gate_report *report, double inject)
{
    bool all = report->finding_count > 0;

    printf("a copy that is %.3g %% worse:\n", 100 * inject);
    for (size_t i = 0; i < report->finding_count; i++) {
        const struct dpb_gate_finding *finding = &report->findings[i];

        if (!finding->is_gating)
            continue;
        all &= is_noticed(report, finding);
        printf("  %-12s %s, %s\n", dpb_verdict_text(finding->result.verdict), finding->cell,
               finding->metric ? finding->metric->name : finding->result.reason);
    }
    return all;
}

static dpb_status judge_gate(const struct dpb_gate_set *set, const struct dpb_gate_options *options,
                             double inject)
{
    struct dpb_gate_report report;

    DPB_TRY(compare_copies(set, inject, 0, 0, options, &report));
    const bool notices = tell_injection(&report, inject);
    dpb_gate_report_release(&report);
    DPB_TRY(compare_copies(set, 0, 1, 2, options, &report));
    const bool wolf = report.verdict == DPB_VERDICT_FAIL;
    printf("every other run against the rest: %s (not FAIL is right)\n",
           dpb_verdict_text(report.verdict));
    dpb_gate_report_release(&report);
    if (notices && !wolf)
        return DPB_OK;
    dpb_error("this gate on these runs %s",
              wolf ? "fails where nothing changed"
                   : "cannot fail: in some cell no measured metric notices");
    dpb_log_hint("more runs, or a quieter machine: `dpbench gate calibrate` has the numbers");
    return DPB_ERR_CHECK;
}

static dpb_status self_test(const struct gate_options *o, const char *const *paths, size_t count)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_gate_options options;
    dpb_status st;

    DPB_TRY(options_of(o, &options));
    options.require_interleaved = false;
    st = read_runs(paths, count, DPB_GATE_SIDE_ALL, o->price > 0 ? o->price : NAN, &set);
    if (st == DPB_OK)
        st = judge_gate(&set, &options, o->inject);
    dpb_gate_set_release(&set);
    return st;
}

/* ---- the verb ---- */

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct gate_options *o = options;
    const char *word = line->arguments[0];

    (void)registry;
    DPB_TRY(check_outputs(o));
    if (strcmp(word, "measure") == 0)
        return measure(line, o);
    if (strcmp(word, "plan") == 0)
        return plan(line, o);
    if (strcmp(word, "calibrate") == 0)
        return calibrate(line, o);
    if (line->experiment.count > 0) {
        dpb_error("%s: cannot take effect: runs that are there are compared",
                  line->experiment.items[0].origin);
        dpb_log_hint("`dpbench gate measure` runs what it compares");
        return DPB_ERR_USAGE;
    }
    return o->self_test ? self_test(o, line->arguments, line->argument_count)
                        : gate(o, line->arguments, line->argument_count);
}

const struct dpb_verb dpb_verb_gate = {
        .command =
                {.name = "gate",
                 .arguments = "RUN...|measure|plan|calibrate RUN",
                 .summary = "decide whether runs are worse than a baseline, or miss targets",
                 .description =
                         "Compares RUN with --baseline, or the two sides of a RUN that `gate "
                         "measure` made, cell by cell: a run is one observation, FAIL and PASS are "
                         "shown at 95 %, everything else is INCONCLUSIVE. `measure` launches both "
                         "sides in turn (A B B A) and decides; `plan` says how many runs find an "
                         "effect; `calibrate` compares a build with itself. Metrics: "
                         "step-time-median, step-time-mean, step-time-p95, step-time-p99, "
                         "throughput, exposed-share, memory-peak, energy-per-sample, "
                         "cost-per-million-samples, cost-per-epoch, efficiency, bus-bandwidth, "
                         "comm-bus-bandwidth, wire-bytes, collectives, buckets, loss, accuracy. "
                         "Exit codes: 0 PASS, 1 FAIL, 5 INCONCLUSIVE, ERROR or REFUSED.",
                 .table = &table,
                 .takes_experiment = true,
                 .min_arguments = 1,
                 .max_arguments = 64},
        .run = run,
};
