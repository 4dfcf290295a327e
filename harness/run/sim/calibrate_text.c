/* calibrate_text.c: the report of a calibration for people. */
#include <math.h>
#include <stdio.h>

#include "dpb_calibrate.h"

static void append_errors(const dpb_json *object, const char *prefix, struct dpb_str *text)
{
    char key[64];
    double median, worst;

    snprintf(key, sizeof(key), "%smedian_error", prefix);
    median = dpb_json_as_real(dpb_json_get(object, key), NAN);
    snprintf(key, sizeof(key), "%sworst_error", prefix);
    worst = dpb_json_as_real(dpb_json_get(object, key), NAN);
    if (isnan(median))
        dpb_str_append(text, "n/a");
    else
        dpb_str_appendf(text, "median %.1f %%, worst %.1f %%", 100 * median, 100 * worst);
}

static void append_curves(const dpb_json *report, struct dpb_str *text)
{
    const dpb_json *curves = dpb_json_get(report, "curves");

    if (dpb_json_size(curves) == 0)
        return;
    dpb_str_append(text, "\nEvery second size of a curve, predicted from the others:\n");
    for (size_t i = 0; i < dpb_json_size(curves); i++) {
        const dpb_json *curve = dpb_json_at(curves, i);

        dpb_str_appendf(text, "  %-14s %2lld ranks, %2lld of %2lld sizes: ",
                        dpb_json_as_string(dpb_json_get(curve, "collective"), ""),
                        (long long)dpb_json_as_int(dpb_json_get(curve, "ranks"), 0),
                        (long long)dpb_json_as_int(dpb_json_get(curve, "held_out"), 0),
                        (long long)dpb_json_as_int(dpb_json_get(curve, "points"), 0));
        append_errors(curve, "", text);
        dpb_str_append(text, "\n");
    }
    dpb_str_append(text, "  all of them: ");
    append_errors(report, "curves_", text);
    dpb_str_append(text, "\nThe closed form with the fitted link, over all points: ");
    append_errors(dpb_json_get(report, "link"), "", text);
    dpb_str_append(text, "\n");
}

static void append_steps(const dpb_json *report, struct dpb_str *text)
{
    const dpb_json *steps = dpb_json_get(report, "steps");

    if (dpb_json_size(steps) == 0)
        return;
    dpb_str_append(text, "\nStep times of each cell, predicted from the other cells:\n");
    for (size_t i = 0; i < dpb_json_size(steps); i++) {
        const dpb_json *step = dpb_json_at(steps, i);

        dpb_str_appendf(text, "  %-40s  measured %8.3f ms, predicted %8.3f ms: %+.1f %%\n",
                        dpb_json_as_string(dpb_json_get(step, "label"), ""),
                        dpb_json_as_real(dpb_json_get(step, "measured_ns"), NAN) / 1e6,
                        dpb_json_as_real(dpb_json_get(step, "predicted_ns"), NAN) / 1e6,
                        100 * dpb_json_as_real(dpb_json_get(step, "error"), NAN));
    }
    dpb_str_append(text, "  all of them: ");
    append_errors(report, "steps_", text);
    dpb_str_append(text, "\n");
}

static void append_figures(const struct dpb_machine *machine, struct dpb_str *text)
{
    dpb_str_appendf(text, "machine %s: %s, %d ranks\n\n", machine->name, machine->summary,
                    machine->accelerators_per_node);
    for (int id = 0; id < DPB_FIGURE_COUNT; id++) {
        const struct dpb_figure *figure = &machine->figure[id];
        struct dpb_str value = {0};

        if (!dpb_machine_has(machine, id))
            continue;
        dpb_figure_text(id, figure->value, &value);
        dpb_str_appendf(text, "  %-22s %22s  %s%s%s%s\n", dpb_figure_key(id), value.text,
                        figure->is_assumed ? "ASSUMED: " : "", figure->source,
                        figure->date ? ", " : "", figure->date ? figure->date : "");
        dpb_str_release(&value);
    }
}

dpb_status dpb_calibration_text(const struct dpb_calibration *calibration, struct dpb_str *text)
{
    const dpb_json *left_out = dpb_json_get(calibration->report, "left_out");

    append_figures(&calibration->machine, text);
    append_curves(calibration->report, text);
    append_steps(calibration->report, text);
    if (dpb_json_size(left_out) > 0)
        dpb_str_append(text, "\nLeft out, or assumed:\n");
    for (size_t i = 0; i < dpb_json_size(left_out); i++)
        dpb_str_appendf(text, "  %s\n", dpb_json_as_string(dpb_json_at(left_out, i), ""));
    return text->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}
