#include "tune_candidates.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_explain.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_units.h"

#define VALUES_MAX 12
#define SIZES      8    /* candidates of a size, each half of the one before */
#define SIZE_MIN   4096 /* bytes: below it messages are latency */

enum values_by {
    BY_TEXT, /* those of its row */
    BY_SIZE  /* all gradient bytes, their half, ... */
};

/* Options that change when gradients travel and never what is learnt. A knob `of_the_plan` acts
 * through the plan and its messages alone: where those are the same, so is the step. */
static const struct knob {
    const char *name;
    enum values_by by;
    bool of_the_plan;
    const char *const *texts; /* BY_TEXT: its values, ended by NULL */
} knobs[] = {
        {"bucket", BY_SIZE, true, NULL},
        {"first-bucket", BY_TEXT, true, (const char *const[]){"auto", "64KiB", "1MiB", NULL}},
        {"fusion-threshold", BY_SIZE, false, NULL},
        {"cycle-time", BY_TEXT, false,
         (const char *const[]){"500us", "1ms", "2ms", "5ms", "10ms", NULL}},
        {"bytes-per-pack", BY_SIZE, true, NULL},
        {"fsdp-unit", BY_TEXT, true,
         (const char *const[]){"0", "250000", "1000000", "4000000", "16000000", NULL}},
        {"num-packs", BY_TEXT, true, (const char *const[]){"0", "1", "2", "4", "8", NULL}},
};
#define KNOB_COUNT (sizeof(knobs) / sizeof(knobs[0]))

static const struct knob *knob_named(const char *name)
{
    for (size_t k = 0; k < KNOB_COUNT; k++)
        if (strcmp(knobs[k].name, name) == 0)
            return &knobs[k];
    return NULL;
}

/* ---- the default ---- */

static dpb_status add_setting(struct dpb_settings *to, const struct dpb_option_set *set,
                              const struct dpb_setting *setting)
{
    return dpb_settings_add_list(to, set, setting->name, (const char *const *)setting->values,
                                 setting->value_count, setting->origin);
}

/* What is given, without the knobs that have several values. */
static dpb_status settings_of_default(const struct dpb_tune_input *input,
                                      struct dpb_settings *settings)
{
    for (size_t i = 0; i < input->given->count; i++) {
        const struct dpb_setting *setting = &input->given->items[i];

        if (setting->value_count > 1 && knob_named(setting->name))
            continue;
        if (setting->value_count > 1) {
            dpb_error("%s: a list makes several configurations, and tune measures one",
                      setting->origin);
            dpb_log_hint("give one value, and run tune for each of them");
            return DPB_ERR_USAGE;
        }
        DPB_TRY(add_setting(settings, input->registry->options, setting));
    }
    return DPB_OK;
}

static dpb_status plan_of(const struct dpb_tune_input *input, const struct dpb_settings *settings,
                          bool many, struct dpb_plan *plan)
{
    const struct dpb_plan_input plan_input = {
            .registry = input->registry,
            .flags = settings,
            .sweep = many,
            .cores = input->cores,
            .name = "tune",
    };

    return dpb_plan_build(&plan_input, plan);
}

static dpb_status check_ranks(const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");

    if (e->ranks > 1)
        return DPB_OK;
    dpb_error("nothing to tune: one rank exchanges nothing");
    dpb_log_hint("give --ranks 2 or more");
    return DPB_ERR_USAGE;
}

/* ---- values ---- */

struct values {
    char text[VALUES_MAX][DPB_UNIT_TEXT_BYTES];
    const char *at[VALUES_MAX];
    size_t count;
};

static void sizes_of(int64_t gradient_bytes, struct values *values)
{
    int64_t bytes = SIZE_MIN;

    while (bytes < gradient_bytes)
        bytes *= 2;
    for (int i = 0; i < SIZES && bytes >= SIZE_MIN; i++, bytes /= 2) {
        dpb_format_size(bytes, values->text[values->count], DPB_UNIT_TEXT_BYTES);
        values->at[values->count] = values->text[values->count];
        values->count++;
    }
}

static void values_of(const struct knob *knob, int64_t gradient_bytes, struct values *values)
{
    values->count = 0;
    if (knob->by == BY_SIZE)
        sizes_of(gradient_bytes, values);
    for (size_t i = 0; knob->by == BY_TEXT && knob->texts[i]; i++)
        values->at[values->count++] = knob->texts[i];
}

static bool has_option(const dpb_config *config, const char *name)
{
    struct dpb_str text = {0};
    bool has = dpb_config_text(config, name, &text) == DPB_OK;

    dpb_str_release(&text);
    return has;
}

/* The settings whose cross product are the candidates; and which knobs they vary. */
static dpb_status settings_of_candidates(const struct dpb_tune_input *input,
                                         const dpb_config *config, struct dpb_settings *settings,
                                         struct dpb_tune *tune)
{
    const struct dpb_option_set *set = input->registry->options;
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;

    dpb_step_shape_of(input->registry, config, &optimizer, &shape);
    int64_t gradient_bytes = dpb_model_param_elements(shape.model) * (int64_t)sizeof(float);
    for (size_t k = 0; k < KNOB_COUNT; k++) {
        const struct dpb_setting *given = dpb_settings_find(input->given, knobs[k].name);
        struct values values;

        if (!has_option(config, knobs[k].name) || (given && given->value_count == 1))
            continue;
        if (tune->knob_count == DPB_TUNE_KNOBS_MAX)
            return DPB_ERR_INTERNAL;
        tune->knobs[tune->knob_count++] = knobs[k].name;
        values_of(&knobs[k], gradient_bytes, &values);
        if (given)
            DPB_TRY(add_setting(settings, set, given));
        else
            DPB_TRY(dpb_settings_add_list(settings, set, knobs[k].name, values.at, values.count,
                                          "candidates of tune"));
    }
    return DPB_OK;
}

static dpb_status nothing_to_tune(const struct dpb_tune_input *input, const dpb_config *config)
{
    struct dpb_str names = {0};

    for (size_t k = 0; k < KNOB_COUNT; k++)
        if (has_option(config, knobs[k].name))
            dpb_str_appendf(&names, "%s--%s", names.length ? ", " : "", knobs[k].name);
    dpb_error("nothing to tune: %s %s%s", dpb_config_part(config, "strategy"),
              names.length ? "has one value given for each of "
                           : "has no setting of when "
                             "gradients travel",
              names.length ? names.text : "");
    dpb_log_hint(names.length ? "leave one of them out, or give a list of candidates"
                              : "take a strategy with buckets, packs or a fusion threshold");
    dpb_str_release(&names);
    (void)input;
    return DPB_ERR_USAGE;
}

/* ---- what is the same ---- */

static void release_cell(struct dpb_plan_cell *cell)
{
    dpb_config_free(cell->config);
    free(cell->label);
    free(cell->series);
    free(cell->compute_series);
    *cell = (struct dpb_plan_cell){0};
}

/* Have both cells the same values of the knobs that act beside the plan? */
static bool same_timing(const struct dpb_tune *tune, const dpb_config *a, const dpb_config *b)
{
    bool same = true;

    for (size_t k = 0; k < tune->knob_count; k++) {
        struct dpb_str one = {0}, other = {0};

        if (knob_named(tune->knobs[k])->of_the_plan)
            continue;
        same &= dpb_config_text(a, tune->knobs[k], &one) == DPB_OK &&
                dpb_config_text(b, tune->knobs[k], &other) == DPB_OK &&
                strcmp(one.text, other.text) == 0;
        dpb_str_release(&one);
        dpb_str_release(&other);
    }
    return same;
}

/* Does a cell with the same messages at the same times stand before cell `at`? Of a strategy that
 * decides in the run what travels together, with the same settings. */
static bool stands_before(const struct dpb_tune *tune, const struct dpb_explanation *explained,
                          size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (explained[i].model &&
            same_timing(tune, tune->plan.cells[i].config, tune->plan.cells[at].config) &&
            dpb_explanation_is_same(&explained[i], &explained[at]))
            return true;
    return false;
}

static dpb_status drop_same(const struct dpb_tune_input *input, struct dpb_tune *tune)
{
    struct dpb_plan *plan = &tune->plan;
    struct dpb_explanation *explained = calloc(plan->cell_count, sizeof(*explained));
    dpb_status st = explained ? DPB_OK : DPB_ERR_NO_MEMORY;
    size_t kept = 0;

    for (size_t i = 0; st == DPB_OK && i < plan->cell_count; i++)
        st = dpb_explain(input->registry, plan->cells[i].config, &explained[i]);
    /* Plans are told apart before any cell moves. */
    bool *drop = calloc(plan->cell_count + 1, sizeof(*drop));
    if (!drop)
        st = DPB_ERR_NO_MEMORY;
    for (size_t i = 1; st == DPB_OK && i < plan->cell_count; i++)
        drop[i] = stands_before(tune, explained, i);
    for (size_t i = 0; explained && i < plan->cell_count; i++)
        dpb_explanation_release(&explained[i]);
    for (size_t i = 0; st == DPB_OK && i < plan->cell_count; i++) {
        if (drop[i]) {
            release_cell(&plan->cells[i]);
            tune->same++;
        } else {
            plan->cells[kept++] = plan->cells[i];
        }
    }
    if (st == DPB_OK)
        plan->cell_count = kept;
    free(drop);
    free(explained);
    return st;
}

/* ---- the whole ---- */

/* Put the default before the candidates of `plan`; the order of launches is made by rounds. */
static dpb_status join(struct dpb_plan *of_default, struct dpb_plan *plan)
{
    struct dpb_plan_cell *cells = calloc(plan->cell_count + 1, sizeof(*cells));

    if (!cells)
        return DPB_ERR_NO_MEMORY;
    cells[0] = of_default->cells[0];
    free(cells[0].label);
    cells[0].label = strdup("default");
    of_default->cells[0] = (struct dpb_plan_cell){0};
    memcpy(cells + 1, plan->cells, plan->cell_count * sizeof(*cells));
    free(plan->cells);
    plan->cells = cells;
    plan->cell_count++;
    free(plan->order);
    plan->order = NULL;
    plan->launch_count = 0;
    return cells[0].label ? DPB_OK : DPB_ERR_NO_MEMORY;
}

/* Candidates are measured with the ranks of the default. */
static dpb_status fix_ranks(const struct dpb_tune_input *input, const dpb_config *config,
                            struct dpb_settings *settings)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    struct dpb_settings ranks = {0};
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, e->ranks);
    dpb_status st = dpb_settings_add(&ranks, input->registry->options, "ranks", text, "--ranks");
    if (st == DPB_OK)
        st = dpb_settings_override(settings, &ranks);
    dpb_settings_release(&ranks);
    return st;
}

dpb_status tune_first_buckets(const struct dpb_registry *registry, struct dpb_tune *tune)
{
    for (size_t c = 0; c < tune->plan.cell_count; c++) {
        struct dpb_explanation explained = {0};
        const dpb_status st = dpb_explain(registry, tune->plan.cells[c].config, &explained);

        if (st == DPB_OK)
            tune->candidates[c].first_bucket_bytes =
                    dpb_json_as_int(dpb_json_get(explained.described, "first_bucket_bytes"), 0);
        dpb_explanation_release(&explained);
        DPB_TRY(st);
    }
    return DPB_OK;
}

dpb_status tune_candidates(const struct dpb_tune_input *input, struct dpb_tune *tune)
{
    struct dpb_settings settings = {0};
    struct dpb_plan of_default = {0};
    dpb_status st;

    DPB_TRY_GOTO(st, settings_of_default(input, &settings), out);
    DPB_TRY_GOTO(st, plan_of(input, &settings, false, &of_default), out);
    const dpb_config *config = of_default.cells[0].config;
    DPB_TRY_GOTO(st, check_ranks(config), out);
    DPB_TRY_GOTO(st, fix_ranks(input, config, &settings), out);
    DPB_TRY_GOTO(st, settings_of_candidates(input, config, &settings, tune), out);
    if (tune->knob_count == 0) {
        st = nothing_to_tune(input, config);
        goto out;
    }
    DPB_TRY_GOTO(st, plan_of(input, &settings, true, &tune->plan), out);
    DPB_TRY_GOTO(st, join(&of_default, &tune->plan), out);
    st = drop_same(input, tune);
out:
    dpb_plan_release(&of_default);
    dpb_settings_release(&settings);
    return st;
}
