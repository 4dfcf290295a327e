/* Plots of a capacity plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_view.h"

static const dpb_json *options_of(const dpb_json *plan)
{
    return dpb_json_get(plan, "options");
}

static bool fits(const dpb_json *option)
{
    return dpb_json_as_bool(dpb_json_get(option, "fits"), false);
}

static double accelerators_of(const dpb_json *option)
{
    return plan_number(option, "accelerators");
}

static const dpb_json *machines_of(const dpb_json *plan)
{
    return dpb_json_path(plan, "question/machines");
}

static bool is_of(const dpb_json *option, const dpb_json *machine)
{
    return strcmp(plan_text(option, "machine"), dpb_json_as_string(machine, "")) == 0;
}

/* ---- against accelerators ---- */

/* One block per machine: accelerators, value, low, high. */
static void append_series(const dpb_json *plan, const char *key, const char *low, const char *high,
                          double scale, struct dpb_plot *plot)
{
    const dpb_json *machines = machines_of(plan);

    for (size_t m = 0; m < dpb_json_size(machines); m++) {
        dpb_str_append(&plot->data, m ? "\n\n# " : "# ");
        dpb_plot_quote(dpb_json_as_string(dpb_json_at(machines, m), ""), 200, &plot->data);
        dpb_str_append(&plot->data, "\n");
        for (size_t i = 0; i < dpb_json_size(options_of(plan)); i++) {
            const dpb_json *option = dpb_json_at(options_of(plan), i);
            const double value = plan_number(option, key) / scale;

            if (!is_of(option, dpb_json_at(machines, m)) || !fits(option))
                continue;
            dpb_plot_value(accelerators_of(option), &plot->data);
            dpb_plot_value(value, &plot->data);
            dpb_plot_value(plan_number(option, low) / scale, &plot->data);
            dpb_plot_value(plan_number(option, high) / scale, &plot->data);
            dpb_str_append(&plot->data, "\n");
            plot->points += isfinite(value);
        }
    }
}

/* Ticks at the numbers that were asked about, as many as have room. */
#define TICKS_MAX 14

static void append_counts_axis(const dpb_json *plan, struct dpb_str *script)
{
    const dpb_json *options = options_of(plan);
    double least = INFINITY, most = 0, last = 0;
    const char *comma = "";

    dpb_str_append(script, "set xlabel 'accelerators'\nset logscale x 2\nset xtics (");
    for (size_t i = 0; i < dpb_json_size(options); i++) {
        const double count = accelerators_of(dpb_json_at(options, i));

        least = fmin(least, count);
        most = fmax(most, count);
    }
    const double apart = pow(most / least, 1.0 / TICKS_MAX);
    for (size_t i = 0; i < dpb_json_size(options); i++) {
        const double count = accelerators_of(dpb_json_at(options, i));

        if (count < last * fmax(apart, 1.19) || count <= last)
            continue;
        dpb_str_appendf(script, "%s'%.0f' %.0f", comma, count, count);
        comma = ", ";
        last = count;
    }
    dpb_str_appendf(script, ")\nset xrange [%g:%g]\n", least / 1.25, most * 1.25);
}

/* What was asked for: a dashed line with a name of its own, within the range of the axis. */
struct target {
    const char *name, *unit;
    double value; /* NaN: nothing was */
};

static void append_curves(const dpb_json *plan, const char *name, bool has_bars,
                          const struct target *target, struct dpb_str *script)
{
    const dpb_json *machines = machines_of(plan);
    const char *comma = "";

    dpb_str_append(script, "set key outside right center vertical Left reverse samplen 3 width 1\n"
                           "plot ");
    for (size_t m = 0; m < dpb_json_size(machines); m++) {
        const char *colour = dpb_plot_series_colour(m);

        if (has_bars)
            dpb_str_appendf(script,
                            "%s'%s.dat' index %zu using 1:2:3:4 with yerrorbars pt -1 lw 1.2 lc "
                            "rgb '%s' notitle",
                            comma, name, m, colour);
        dpb_str_appendf(script,
                        "%s'%s.dat' index %zu using 1:2 with linespoints lw 2 pt 7 ps 0.9 lc rgb "
                        "'%s' title ",
                        has_bars ? ", \\\n    " : comma, name, m, colour);
        dpb_plot_quote(dpb_json_as_string(dpb_json_at(machines, m), ""), 40, script);
        comma = ", \\\n    ";
    }
    if (isfinite(target->value))
        dpb_str_appendf(script,
                        "%s%.9g with lines dt 2 lw 1.5 lc rgb '" DPB_COLOUR_IDEAL
                        "' title '%s: %.4g %s'",
                        comma, target->value, target->name, target->value, target->unit);
    dpb_str_append(script, "\n");
}

static void add_time(const dpb_json *plan, struct dpb_plot_list *list)
{
    const struct plan_unit unit = plan_time_unit(plan);
    const struct target deadline = {
            "deadline", unit.name,
            plan_number(dpb_json_path(plan, "question/targets"), "deadline_s") / unit.seconds};
    struct dpb_plot *plot = dpb_plot_add(list, "time",
                                         "Training time against accelerators "
                                         "(simulated)",
                                         880, 430);

    if (!plot)
        return;
    append_series(plan, "wall_s", "wall_low_s", "wall_high_s", unit.seconds, plot);
    append_counts_axis(plan, &plot->script);
    dpb_str_appendf(&plot->script, "set ylabel 'training time (%s)'\nset logscale y\n", unit.name);
    append_curves(plan, plot->name, true, &deadline, &plot->script);
    dpb_str_append(&plot->caption,
                   "Training time with checkpoints and failures against the number of "
                   "accelerators, both logarithmic, a line per machine with the fastest strategy "
                   "that fits; bars are 95 % intervals over simulated steps.");
}

static void add_cost(const dpb_json *plan, struct dpb_plot_list *list)
{
    const struct target budget = {"budget", "USD",
                                  plan_number(dpb_json_path(plan, "question/targets"), "budget")};
    struct dpb_plot *plot = dpb_plot_add(list, "cost",
                                         "Cost of the training against accelerators "
                                         "(simulated)",
                                         880, 430);

    if (!plot)
        return;
    append_series(plan, "cost", "cost", "cost", 1, plot);
    append_counts_axis(plan, &plot->script);
    dpb_str_append(&plot->script, "set ylabel 'cost (USD)'\nset yrange [0:*]\n");
    append_curves(plan, plot->name, false, &budget, &plot->script);
    dpb_str_append(&plot->caption, "Cost of the whole training at the price of the table of "
                                   "figures; machines without a price are not drawn.");
}

/* ---- Pareto front ---- */

/* Blocks: a machine each (time, cost, label), then the front, by time. */
static void append_points(const dpb_json *plan, double unit_s, struct dpb_plot *plot)
{
    const dpb_json *machines = machines_of(plan);

    for (size_t m = 0; m < dpb_json_size(machines); m++) {
        dpb_str_append(&plot->data, m ? "\n\n# " : "# ");
        dpb_plot_quote(dpb_json_as_string(dpb_json_at(machines, m), ""), 200, &plot->data);
        dpb_str_append(&plot->data, "\n");
        for (size_t i = 0; i < dpb_json_size(options_of(plan)); i++) {
            const dpb_json *option = dpb_json_at(options_of(plan), i);
            const double cost = plan_number(option, "cost");

            if (!is_of(option, dpb_json_at(machines, m)) || !fits(option) || !isfinite(cost))
                continue;
            dpb_plot_value(plan_number(option, "wall_s") / unit_s, &plot->data);
            dpb_plot_value(cost, &plot->data);
            dpb_str_appendf(&plot->data, "%.0f\n", accelerators_of(option));
            plot->points++;
        }
    }
}

static int by_time(const void *a, const void *b)
{
    const double one = plan_number(*(const dpb_json *const *)a, "wall_s");
    const double other = plan_number(*(const dpb_json *const *)b, "wall_s");

    return (one > other) - (one < other);
}

static void append_front(const dpb_json *plan, double unit_s, struct dpb_plot *plot)
{
    const dpb_json *options = options_of(plan);
    const dpb_json **front = calloc(dpb_json_size(options) + 1, sizeof(*front));
    size_t count = 0;

    for (size_t i = 0; front && i < dpb_json_size(options); i++) {
        const dpb_json *option = dpb_json_at(options, i);

        if (dpb_json_as_bool(dpb_json_get(option, "on_pareto_front"), false) &&
            isfinite(plan_number(option, "cost")))
            front[count++] = option;
    }
    if (front)
        qsort(front, count, sizeof(*front), by_time);
    dpb_str_append(&plot->data, "\n\n# Pareto front\n");
    for (size_t i = 0; i < count; i++) {
        dpb_plot_value(plan_number(front[i], "wall_s") / unit_s, &plot->data);
        dpb_plot_value(plan_number(front[i], "cost"), &plot->data);
        dpb_str_append(&plot->data, "\n");
    }
    free(front);
}

static void add_pareto(const dpb_json *plan, struct dpb_plot_list *list)
{
    const struct plan_unit unit = plan_time_unit(plan);
    const dpb_json *machines = machines_of(plan);
    struct dpb_plot *plot =
            dpb_plot_add(list, "pareto", "Cost against training time (simulated)", 880, 460);

    if (!plot)
        return;
    append_points(plan, unit.seconds, plot);
    append_front(plan, unit.seconds, plot);
    dpb_str_appendf(&plot->script,
                    "set xlabel 'training time (%s)'\nset logscale x\nset ylabel 'cost (USD)'\n"
                    "set yrange [0:*]\n"
                    "set key outside right center vertical Left reverse samplen 3 width 1\n"
                    "plot '%s.dat' index %zu using 1:2 with lines dt 2 lw 1.5 lc rgb "
                    "'" DPB_COLOUR_IDEAL "' title 'Pareto front'",
                    unit.name, plot->name, dpb_json_size(machines));
    for (size_t m = 0; m < dpb_json_size(machines); m++) {
        const char *colour = dpb_plot_series_colour(m);

        dpb_str_appendf(&plot->script,
                        ", \\\n    '%s.dat' index %zu using 1:2 with points pt 7 ps 0.9 lc rgb "
                        "'%s' title ",
                        plot->name, m, colour);
        dpb_plot_quote(dpb_json_as_string(dpb_json_at(machines, m), ""), 40, &plot->script);
        dpb_str_appendf(&plot->script,
                        ", \\\n    '%s.dat' index %zu using 1:2:3 with labels offset 0,0.9 font "
                        "',11' textcolor rgb '%s' notitle",
                        plot->name, m, colour);
    }
    dpb_str_append(&plot->script, "\n");
    dpb_str_append(&plot->caption,
                   "Cost against training time; numbers are accelerators. Options on the dashed "
                   "line are beaten by no other in both.");
}

/* ---- where a step's time goes ---- */

static const struct {
    const char *key, *title, *colour;
} parts[] = {
        {"ideal_ns", "computing", DPB_COLOUR_COMPUTE},
        {"small_batch_ns", "small batch", DPB_COLOUR_DATA},
        {"strategy_ns", "strategy", DPB_COLOUR_OVERLAP_ON},
        {"latency_ns", "network latency", DPB_COLOUR_WAIT},
        {"bandwidth_ns", "network bandwidth", DPB_COLOUR_EXPOSED},
        {"stragglers_ns", "stragglers", DPB_COLOUR_IDLE},
};
#define PARTS    (sizeof(parts) / sizeof(parts[0]))
#define BARS_MAX 40

static bool append_bar(const dpb_json *option, size_t row, struct dpb_plot *plot,
                       struct dpb_str *labels)
{
    const dpb_json *breakdown = dpb_json_get(option, "breakdown");
    double sum = 0, end = 0;
    struct dpb_str label = {0};

    for (size_t p = 0; p < PARTS; p++)
        sum += plan_number(breakdown, parts[p].key);
    if (!(sum > 0))
        return false;
    dpb_str_appendf(&plot->data, "%zu 0 ", row);
    for (size_t p = 0; p < PARTS; p++) {
        end += 100 * plan_number(breakdown, parts[p].key) / sum;
        dpb_plot_value(end, &plot->data);
    }
    dpb_str_append(&plot->data, "\n");
    dpb_str_appendf(&label, "%.0f on %s", accelerators_of(option), plan_text(option, "machine"));
    dpb_str_append(labels, row > 1 ? ", " : "");
    dpb_plot_quote(label.failed ? "" : label.text, 36, labels);
    dpb_str_appendf(labels, " %zu", row);
    dpb_str_release(&label);
    plot->points++;
    return true;
}

static void add_breakdown(const dpb_json *plan, struct dpb_plot_list *list)
{
    const dpb_json *options = options_of(plan);
    const size_t count = dpb_json_size(options) < BARS_MAX ? dpb_json_size(options) : BARS_MAX;
    struct dpb_str labels = {0};
    struct dpb_plot *plot = dpb_plot_add(list, "breakdown",
                                         "Where the time of a step goes "
                                         "(simulated)",
                                         960, 170 + 24 * (int)count);
    size_t rows = 0;

    if (!plot)
        return;
    dpb_str_append(&plot->data,
                   "# per cent of a step: ends of the stacked parts\n"
                   "# row 0 computing small_batch strategy latency bandwidth stragglers\n");
    for (size_t i = 0; i < count; i++)
        rows += append_bar(dpb_json_at(options, i), rows + 1, plot, &labels);
    dpb_str_appendf(&plot->script,
                    "set xlabel 'share of a step (%%)'\nset xrange [0:100]\n"
                    "set yrange [%zu.6:0.4]\nset ytics (%s) scale 0\n"
                    "unset grid\nset grid xtics lc rgb '" DPB_COLOUR_IDEAL "' lw 0.4 dt 1\n"
                    "set style fill solid 1.0 noborder\n"
                    "set bmargin 7\nset key outside below horizontal Left reverse samplen 1.5\n"
                    "plot \\\n",
                    rows, labels.failed ? "" : labels.text);
    for (size_t p = 0; p < PARTS; p++)
        dpb_str_appendf(&plot->script,
                        "    '%s.dat' using %zu:1:%zu:%zu:($1-0.36):($1+0.36) with boxxyerror lc "
                        "rgb '%s' title '%s'%s\n",
                        plot->name, p + 2, p + 2, p + 3, parts[p].colour, parts[p].title,
                        p + 1 < PARTS ? ", \\" : "");
    dpb_str_append(&plot->caption, "Shares of a step, of the fastest strategy that fits. What the "
                                   "network hides behind computing lengthens nothing and is not "
                                   "shown.");
    if (count < dpb_json_size(options))
        dpb_str_appendf(&plot->caption, " %zu more options are in the table.",
                        dpb_json_size(options) - count);
    dpb_str_release(&labels);
}

void plan_plots_build(const dpb_json *plan, struct dpb_plot_list *list)
{
    add_time(plan, list);
    add_cost(plan, list);
    add_pareto(plan, list);
    add_breakdown(plan, list);
}
