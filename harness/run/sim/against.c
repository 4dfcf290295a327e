#include "dpb_against.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_cell_record.h"
#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_run_folder.h"
#include "dpb_stats.h"

#define SETTINGS_MAX 256
#define REPEATS_MAX  10000 /* as --repeats */

static dpb_status no_memory(void)
{
    dpb_error("simulation: out of memory");
    return DPB_ERR_NO_MEMORY;
}

/* ---- what was measured ---- */

static bool is_ok(const dpb_json *record)
{
    return strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") == 0;
}

static double measured_ns(const struct dpb_records *records, size_t cell, double *medians)
{
    size_t count = 0;

    for (size_t i = 0; i < records->count && count < REPEATS_MAX; i++) {
        const dpb_json *record = records->items[i];

        if (is_ok(record) && dpb_json_as_int(dpb_json_get(record, "cell"), -1) == (int64_t)cell)
            medians[count++] = dpb_cell_sections_median_ns(record);
    }
    return count > 0 ? dpb_stats_median(medians, count) : NAN;
}

static dpb_status read_measured(const char *folder, size_t cells, struct dpb_against *against)
{
    struct dpb_records records = {0};
    double *medians = calloc(REPEATS_MAX, sizeof(*medians));
    dpb_status st;

    against->folder = strdup(folder);
    against->measured_ns = calloc(cells + 1, sizeof(*against->measured_ns));
    st = medians && against->folder && against->measured_ns ? dpb_records_read(folder, &records)
                                                            : no_memory();
    for (size_t c = 0; c < cells && st == DPB_OK; c++)
        against->measured_ns[against->count++] = measured_ns(&records, c, medians);
    free(medians);
    dpb_records_release(&records);
    return st;
}

void dpb_against_release(struct dpb_against *against)
{
    free(against->folder);
    free(against->measured_ns);
    *against = (struct dpb_against){0};
}

/* ---- the same cells, simulated ---- */

static dpb_status one_value_each(const struct dpb_settings *flags)
{
    for (size_t i = 0; i < flags->count; i++) {
        if (flags->items[i].value_count == 1)
            continue;
        dpb_error("%s: a list cannot take effect with --against: the cells are those of the run",
                  flags->items[i].origin);
        dpb_log_hint("give one value");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* What the run's cell was given and a simulation can use, and the flags. */
static size_t gather(const struct dpb_registry *registry, const dpb_json *config,
                     const struct dpb_settings *flags, struct dpb_assignment *given)
{
    const dpb_json *explicit_names = dpb_json_get(config, "explicit");
    size_t count = 0;

    for (size_t i = 0; i < dpb_json_size(explicit_names) && count < SETTINGS_MAX; i++) {
        const char *name = dpb_json_as_string(dpb_json_at(explicit_names, i), "");
        const struct dpb_option_table *table = NULL;
        const struct dpb_option *row = dpb_option_find(registry->options, name, &table);

        if (!row || (row->flags & DPB_OPT_REAL_ONLY) || strcmp(table->kind, "comm") == 0 ||
            strcmp(table->kind, "device") == 0 || dpb_settings_find(flags, name))
            continue;
        given[count++] = (struct dpb_assignment){
                name, dpb_json_as_string(dpb_json_path(dpb_json_get(config, "options"), name), ""),
                "--against"};
    }
    for (size_t i = 0; i < flags->count && count < SETTINGS_MAX; i++)
        given[count++] = (struct dpb_assignment){flags->items[i].name, flags->items[i].values[0],
                                                 flags->items[i].origin};
    return count;
}

static dpb_status simulated_cell(const struct dpb_registry *registry,
                                 const struct dpb_plan_cell *measured,
                                 const struct dpb_settings *flags, struct dpb_plan_cell *cell)
{
    struct dpb_assignment given[SETTINGS_MAX];
    struct dpb_str series = {0}, compute_series = {0};
    dpb_json *config = dpb_config_to_text_json(measured->config);
    dpb_status st;

    DPB_TRY_GOTO(st,
                 dpb_config_new(registry->options, given, gather(registry, config, flags, given),
                                true, &cell->config),
                 out);
    DPB_TRY_GOTO(st, dpb_experiment_resolve(cell->config, registry, 1, 1), out);
    DPB_TRY_GOTO(st, dpb_experiment_series(cell->config, &series, &compute_series), out);
    cell->label = strdup(measured->label);
    cell->series = strdup(series.text);
    cell->compute_series = strdup(compute_series.text);
    if (!cell->label || !cell->series || !cell->compute_series)
        st = no_memory();
out:
    dpb_str_release(&compute_series);
    dpb_str_release(&series);
    dpb_json_free(config);
    return st;
}

static dpb_status copy_axes(const struct dpb_plan *measured, struct dpb_plan *plan)
{
    plan->axis_names = calloc(measured->axis_count + 1, sizeof(*plan->axis_names));
    if (!plan->axis_names)
        return no_memory();
    for (size_t i = 0; i < measured->axis_count; i++)
        plan->axis_names[plan->axis_count++] = strdup(measured->axis_names[i]);
    return DPB_OK;
}

static dpb_status simulated_plan(const struct dpb_registry *registry,
                                 const struct dpb_plan *measured, const struct dpb_settings *flags,
                                 struct dpb_plan *plan)
{
    *plan = (struct dpb_plan){
            .name = strdup("against"),
            .cells = calloc(measured->cell_count + 1, sizeof(*plan->cells)),
            .order = calloc(measured->cell_count + 1, sizeof(*plan->order)),
            .repeats = 1,
            .seed = measured->seed,
    };
    if (!plan->name || !plan->cells || !plan->order)
        return no_memory();
    DPB_TRY(copy_axes(measured, plan));
    for (size_t c = 0; c < measured->cell_count; c++) {
        plan->cell_count++;
        DPB_TRY(simulated_cell(registry, &measured->cells[c], flags, &plan->cells[c]));
        plan->order[plan->launch_count++] = (struct dpb_plan_launch){(int32_t)c, 0};
    }
    return DPB_OK;
}

dpb_status dpb_against_open(const struct dpb_registry *registry, const char *folder,
                            const struct dpb_settings *flags, struct dpb_against *against,
                            struct dpb_plan *plan)
{
    struct dpb_plan measured = {0};
    dpb_status st;

    DPB_TRY(one_value_each(flags));
    DPB_TRY(dpb_run_plan_read(registry, folder, &measured));
    st = simulated_plan(registry, &measured, flags, plan);
    if (st == DPB_OK)
        st = read_measured(folder, measured.cell_count, against);
    dpb_plan_release(&measured);
    return st;
}

/* ---- how far off ---- */

void dpb_against_annotate(void *ctx, const struct dpb_plan_launch *launch, dpb_json *record)
{
    const struct dpb_against *against = ctx;
    const double measured = against->measured_ns[launch->cell];
    const double predicted = dpb_cell_sections_median_ns(record);

    if (!(measured > 0) || !(predicted > 0)) {
        dpb_json_set_absent(record, "against",
                            measured > 0 ? "it was not simulated" : "the run has no result of it");
        return;
    }
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "run", against->folder);
    dpb_json_set_real(json, "measured_step_ns", measured);
    dpb_json_set_real(json, "predicted_step_ns", predicted);
    dpb_json_set_real(json, "error_ratio", predicted / measured - 1);
    dpb_json_set(record, "against", json);
}
