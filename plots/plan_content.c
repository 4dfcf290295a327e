/* What the report of a plan says. */
#include <math.h>
#include <string.h>

#include "dpb_units.h"
#include "plan_view.h"
#include "view.h"

static const dpb_json *options_of(const dpb_json *plan)
{
    return dpb_json_get(plan, "options");
}

static void headers(struct dpb_document *document, const char *const *texts, size_t count,
                    size_t text_columns)
{
    dpb_document_table(document, count, text_columns);
    for (size_t c = 0; c < count; c++)
        dpb_document_cell(document, texts[c]);
}

static void cell_number(struct dpb_document *document, double value)
{
    struct dpb_str cell = {0};

    dpb_view_rate(value, &cell);
    dpb_document_take(document, &cell);
}

static void cell_percent(struct dpb_document *document, double ratio)
{
    struct dpb_str cell = {0};

    dpb_view_percent(ratio, &cell);
    dpb_document_take(document, &cell);
}

static void cell_ms(struct dpb_document *document, double ns)
{
    struct dpb_str cell = {0};

    dpb_view_ms(ns, &cell);
    dpb_document_take(document, &cell);
}

/* "2.31 (2.29 to 2.33)" */
static void cell_interval(struct dpb_document *document, double value, double low, double high)
{
    struct dpb_str cell = {0};

    dpb_view_rate(value, &cell);
    if (isfinite(low) && isfinite(high)) {
        dpb_str_append(&cell, " (");
        dpb_view_rate(low, &cell);
        dpb_str_append(&cell, " to ");
        dpb_view_rate(high, &cell);
        dpb_str_append(&cell, ")");
    }
    dpb_document_take(document, &cell);
}

static void cell_money(struct dpb_document *document, double amount)
{
    struct dpb_str cell = {0};

    dpb_view_number(amount, amount < 100 ? 2 : 0, &cell);
    dpb_document_take(document, &cell);
}

static void cell_size(struct dpb_document *document, double bytes)
{
    char text[DPB_UNIT_TEXT_BYTES] = DPB_VIEW_ABSENT;

    if (isfinite(bytes))
        dpb_human_size(bytes, 3, text, sizeof(text));
    dpb_document_cell(document, text);
}

static void cell_int(struct dpb_document *document, const dpb_json *object, const char *key)
{
    struct dpb_str cell = {0};

    dpb_str_appendf(&cell, "%lld", (long long)dpb_json_as_int(dpb_json_get(object, key), 0));
    dpb_document_take(document, &cell);
}

static bool is_chosen(const dpb_json *plan, size_t index)
{
    return dpb_json_as_int(dpb_json_path(plan, "answer/option"), -1) == (int64_t)index;
}

/* ---- the answer ---- */

static void add_answer(const dpb_json *plan, struct dpb_document *document)
{
    const dpb_json *sentences = dpb_json_path(plan, "answer/sentences");

    dpb_document_lead(document, plan_text(dpb_json_get(plan, "answer"), "text"));
    if (dpb_json_size(sentences) > 0)
        dpb_document_list(document);
    for (size_t i = 0; i < dpb_json_size(sentences); i++)
        dpb_document_cell(document, dpb_json_as_string(dpb_json_at(sentences, i), ""));
    dpb_document_paragraph(document,
                           "All times are simulated: the code of the strategies on a virtual "
                           "clock, with the figures of the machines as below. Nothing was measured "
                           "for this plan.");
}

/* ---- the question ---- */

static void append_value(const dpb_json *value, struct dpb_str *out)
{
    char number[DPB_UNIT_TEXT_BYTES];

    switch (dpb_json_type(value)) {
    case DPB_JSON_STRING:
        dpb_str_append(out, dpb_json_as_string(value, ""));
        break;
    case DPB_JSON_INT:
        dpb_str_appendf(out, "%lld", (long long)dpb_json_as_int(value, 0));
        break;
    case DPB_JSON_REAL:
        dpb_format_f64(dpb_json_as_real(value, NAN), number, sizeof(number));
        dpb_str_append(out, number);
        break;
    case DPB_JSON_ARRAY:
        for (size_t i = 0; i < dpb_json_size(value); i++) {
            dpb_str_append(out, i ? ", " : "");
            append_value(dpb_json_at(value, i), out);
        }
        break;
    default:
        dpb_str_append(out, DPB_VIEW_ABSENT);
    }
}

/* A target as --deadline, --budget, ... have it, with its unit. */
static void append_target(const dpb_json *plan, const char *key, const dpb_json *value,
                          struct dpb_str *out)
{
    const struct plan_unit unit = plan_time_unit(plan);
    const double number = dpb_json_as_real(value, NAN);
    char text[DPB_UNIT_TEXT_BYTES];

    if (strcmp(key, "deadline_s") == 0) {
        dpb_str_appendf(out, "%.4g %s", number / unit.seconds, unit.name);
    } else if (strcmp(key, "budget") == 0) {
        dpb_view_number(number, number < 100 ? 2 : 0, out);
        dpb_str_append(out, " USD");
    } else if (strcmp(key, "efficiency") == 0) {
        dpb_view_percent(number, out);
        dpb_str_append(out, " %");
    } else if (strcmp(key, "step_p99_ns") == 0) {
        dpb_human_duration(number, 4, text, sizeof(text));
        dpb_str_append(out, text);
    } else {
        append_value(value, out);
    }
}

static const char *name_of_target(const char *key)
{
    return strcmp(key, "deadline_s") == 0    ? "deadline"
           : strcmp(key, "step_p99_ns") == 0 ? "step-p99"
                                             : key;
}

static void add_targets(const dpb_json *plan, const dpb_json *targets,
                        struct dpb_document *document)
{
    dpb_json_walk walk = {0};
    const char *key;

    for (const dpb_json *value = dpb_json_next(targets, &walk, &key); value;
         value = dpb_json_next(targets, &walk, &key)) {
        struct dpb_str cell = {0};

        dpb_str_appendf(&cell, "target: %s", name_of_target(key));
        dpb_document_take(document, &cell);
        append_target(plan, key, value, &cell);
        dpb_document_take(document, &cell);
    }
}

/* Why a value is absent stands beside it and is no answer of its own. */
static bool is_reason(const char *key)
{
    static const char end[] = "_reason";
    const size_t length = strlen(key);

    return length > strlen(end) && strcmp(key + length - strlen(end), end) == 0;
}

static void add_pairs(const dpb_json *plan, const dpb_json *object, struct dpb_document *document)
{
    dpb_json_walk walk = {0};
    const char *key;

    for (const dpb_json *value = dpb_json_next(object, &walk, &key); value;
         value = dpb_json_next(object, &walk, &key)) {
        struct dpb_str cell = {0};

        if (dpb_json_type(value) == DPB_JSON_OBJECT) {
            add_targets(plan, value, document);
            continue;
        }
        if (is_reason(key) || (dpb_json_type(value) == DPB_JSON_ARRAY && dpb_json_size(value) == 0))
            continue;
        dpb_document_cell(document, key);
        append_value(value, &cell);
        if (dpb_json_type(value) == DPB_JSON_NULL) {
            struct dpb_str reason = {0};

            dpb_str_appendf(&reason, "%s_reason", key);
            dpb_str_appendf(&cell, " (%s)", plan_text(object, reason.text ? reason.text : ""));
            dpb_str_release(&reason);
        }
        dpb_document_take(document, &cell);
    }
}

static void add_question(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const texts[] = {"question", "value"};

    dpb_document_heading(document, 2, "Question");
    headers(document, texts, 2, 2);
    add_pairs(plan, dpb_json_get(plan, "question"), document);
}

/* ---- options ---- */

static void add_name(const dpb_json *plan, size_t index, struct dpb_document *document)
{
    const dpb_json *option = dpb_json_at(options_of(plan), index);
    struct dpb_str cell = {0};

    dpb_str_appendf(&cell, "%s%s", plan_text(option, "machine"),
                    is_chosen(plan, index) ? " (answer)" : "");
    dpb_document_take(document, &cell);
}

static void add_strategy(const dpb_json *row, struct dpb_document *document)
{
    struct dpb_str cell = {0};

    plan_strategy_name(row, &cell);
    dpb_document_take(document, &cell);
}

static void add_time_row(const dpb_json *plan, size_t index, struct plan_unit unit,
                         struct dpb_document *document)
{
    const dpb_json *option = dpb_json_at(options_of(plan), index);

    add_name(plan, index, document);
    add_strategy(option, document);
    cell_int(document, option, "accelerators");
    cell_int(document, option, "batch_per_rank");
    cell_interval(document, plan_number(option, "step_ns") / 1e6,
                  plan_number(option, "step_low_ns") / 1e6,
                  plan_number(option, "step_high_ns") / 1e6);
    cell_ms(document, plan_number(option, "step_p99_ns"));
    cell_interval(document, 100 * plan_number(option, "efficiency"),
                  100 * plan_number(option, "efficiency_low"),
                  100 * plan_number(option, "efficiency_high"));
    cell_number(document, plan_number(option, "samples_per_s"));
    cell_interval(document, plan_number(option, "wall_s") / unit.seconds,
                  plan_number(option, "wall_low_s") / unit.seconds,
                  plan_number(option, "wall_high_s") / unit.seconds);
    cell_money(document, plan_number(option, "cost"));
    cell_number(document, plan_number(option, "energy_kwh"));
}

static void add_times(const dpb_json *plan, struct dpb_document *document)
{
    const struct plan_unit unit = plan_time_unit(plan);
    const char *const texts[] = {"machine", "strategy", "GPUs",      "batch/GPU",
                                 "step ms", "p99 ms",   "eff. %",    "samples/s",
                                 unit.name, "cost USD", "energy kWh"};

    dpb_document_heading(document, 2, "Time and cost");
    headers(document, texts, sizeof(texts) / sizeof(texts[0]), 2);
    for (size_t i = 0; i < dpb_json_size(options_of(plan)); i++)
        add_time_row(plan, i, unit, document);
    dpb_document_paragraph(
            document,
            "The strategy of a row is the fastest that fits in memory there. Intervals are 95 % "
            "intervals of the mean over simulated steps: they cover the noise of ranks, and "
            "neither errors of the machine's figures nor of the model. The 99th percentile of "
            "fewer than 100 steps lies near the largest of them. Efficiency is throughput against "
            "as many accelerators that each work alone, with the largest batch per accelerator of "
            "the plan. Times include checkpoints and failures.");
}

/* "x4" beyond what was measured, "/64" below the smallest size of it */
static void cell_extrapolated(const dpb_json *option, struct dpb_document *document)
{
    const double beyond = plan_number(option, "extrapolated_by"),
                 below = plan_number(option, "extrapolated_below");
    struct dpb_str cell = {0};

    if (beyond > 1)
        dpb_str_appendf(&cell, "x%.*f", beyond < 10 ? 1 : 0, beyond);
    if (below > 1)
        dpb_str_appendf(&cell, "%s/%.0f", cell.length ? " " : "", below);
    if (cell.length == 0)
        dpb_str_append(&cell, "no");
    dpb_document_take(document, &cell);
}

static void add_memory(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const texts[] = {"machine",       "strategy",   "GPUs",
                                        "memory needed", "memory",     "fits",
                                        "largest batch", "goodput %",  "checkpoints %",
                                        "lost work %",   "restarts %", "extrapolated"};

    dpb_document_heading(document, 2, "Memory, failures, network");
    headers(document, texts, sizeof(texts) / sizeof(texts[0]), 2);
    for (size_t i = 0; i < dpb_json_size(options_of(plan)); i++) {
        const dpb_json *option = dpb_json_at(options_of(plan), i);
        const double largest = plan_number(option, "largest_batch");
        struct dpb_str cell = {0};

        add_name(plan, i, document);
        add_strategy(option, document);
        cell_int(document, option, "accelerators");
        cell_size(document, plan_number(option, "memory_needed_bytes"));
        cell_size(document, plan_number(option, "memory_bytes"));
        dpb_document_cell(document,
                          dpb_json_as_bool(dpb_json_get(option, "fits"), false) ? "yes" : "no");
        dpb_view_number(largest, 0, &cell);
        dpb_document_take(document, &cell);
        cell_percent(document, plan_number(option, "goodput"));
        cell_percent(document, plan_number(option, "checkpoint_share"));
        cell_percent(document, plan_number(option, "rework_share"));
        cell_percent(document, plan_number(option, "restart_share"));
        cell_extrapolated(option, document);
    }
    dpb_document_paragraph(
            document,
            "Memory is parameters, gradients, optimizer and buffers as the strategy "
            "predicts them, activations as the workload does, and the reserve, with 5 % "
            "for fragmentation. Checkpoints are as far apart as sqrt(2 C M) says (Young "
            "1974); shares are of the time that training takes. Extrapolated: x4, numbers "
            "of nodes or bytes are 4 times those measured; /64, messages are a 64th of "
            "the smallest size measured, with times between the shortest of a "
            "collective and that size's.");
}

static const struct {
    const char *key, *text;
} parts[] = {
        {"ideal_ns", "computing"},     {"small_batch_ns", "small batch"},
        {"strategy_ns", "strategy"},   {"latency_ns", "latency"},
        {"bandwidth_ns", "bandwidth"}, {"stragglers_ns", "stragglers"},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void add_breakdown(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const origins[] = {"measured", "interpolated", "extrapolated", "assumed"};

    dpb_document_heading(document, 2, "Where the time of a step goes");
    dpb_document_table(document, 3 + PARTS + 4, 2);
    dpb_document_cell(document, "machine");
    dpb_document_cell(document, "strategy");
    dpb_document_cell(document, "GPUs");
    for (size_t p = 0; p < PARTS; p++) {
        struct dpb_str cell = {0};

        dpb_str_appendf(&cell, "%s ms", parts[p].text);
        dpb_document_take(document, &cell);
    }
    for (size_t o = 0; o < 4; o++) {
        struct dpb_str cell = {0};

        dpb_str_appendf(&cell, "%s %%", origins[o]);
        dpb_document_take(document, &cell);
    }
    for (size_t i = 0; i < dpb_json_size(options_of(plan)); i++) {
        const dpb_json *option = dpb_json_at(options_of(plan), i);
        const dpb_json *breakdown = dpb_json_get(option, "breakdown");
        const dpb_json *shares = dpb_json_get(option, "network_time_by_origin");

        add_name(plan, i, document);
        add_strategy(option, document);
        cell_int(document, option, "accelerators");
        for (size_t p = 0; p < PARTS; p++)
            cell_ms(document, plan_number(breakdown, parts[p].key));
        for (size_t o = 0; o < 4; o++)
            cell_percent(document, plan_number(shares, origins[o]));
    }
    dpb_document_paragraph(
            document, "Computing is what one accelerator with the largest batch would take; small "
                      "batch, what a smaller one takes beyond that; strategy, what it computes "
                      "itself, such as copies into buckets. Latency and bandwidth are what the "
                      "network adds to a step, by simulating it without them. The last four "
                      "columns are shares of the network's time by where they are from.");
}

static void add_alternatives(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const texts[] = {"strategy", "fits", "batch/GPU", "step ms, no noise",
                                        "memory needed"};
    const dpb_json *rows = dpb_json_get(plan, "alternatives");

    if (dpb_json_size(rows) < 2)
        return;
    dpb_document_heading(document, 2, "Strategies and buckets where the answer is");
    headers(document, texts, sizeof(texts) / sizeof(texts[0]), 2);
    for (size_t i = 0; i < dpb_json_size(rows); i++) {
        const dpb_json *row = dpb_json_at(rows, i);

        add_strategy(row, document);
        dpb_document_cell(document, dpb_json_as_bool(dpb_json_get(row, "chosen"), false) ? "chosen"
                                    : dpb_json_as_bool(dpb_json_get(row, "fits"), false) ? "yes"
                                                                                         : "no");
        cell_int(document, row, "batch_per_rank");
        cell_ms(document, plan_number(row, "undisturbed_step_ns"));
        cell_size(document, plan_number(row, "memory_needed_bytes"));
    }
}

/* ---- the rest ---- */

static void add_sensitivity(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const texts[] = {"figure", "answer then", "changes", "change %",
                                        "eff. %", "time",        "cost USD"};
    const struct plan_unit unit = plan_time_unit(plan);
    const dpb_json *rows = dpb_json_get(plan, "sensitivity");

    dpb_document_heading(document, 2, "If a figure is 20 % off");
    headers(document, texts, sizeof(texts) / sizeof(texts[0]), 3);
    for (size_t i = 0; i < dpb_json_size(rows); i++) {
        const dpb_json *row = dpb_json_at(rows, i);
        const bool is_met = dpb_json_as_bool(dpb_json_get(row, "met"), false);
        const char *answer = plan_text(row, "answer");
        struct dpb_str cell = {0};

        dpb_document_cell(document, plan_text(row, "figure"));
        dpb_str_appendf(&cell, "%s%s", answer[0] ? answer : "nothing",
                        is_met ? "" : ", which misses a target");
        dpb_document_take(document, &cell);
        dpb_document_cell(document,
                          dpb_json_as_bool(dpb_json_get(row, "changes"), false) ? "yes" : "no");
        dpb_str_appendf(&cell, "%+.0f", 100 * plan_number(row, "change"));
        dpb_document_take(document, &cell);
        cell_percent(document, plan_number(row, "efficiency"));
        dpb_view_rate(plan_number(row, "wall_s") / unit.seconds, &cell);
        dpb_str_appendf(&cell, " %s", unit.name);
        dpb_document_take(document, &cell);
        cell_money(document, plan_number(row, "cost"));
    }
    dpb_document_paragraph(document,
                           "One figure of every machine is changed, the strategies of the "
                           "table are simulated again, and the question is answered anew.");
}

static void add_warnings(const dpb_json *plan, struct dpb_document *document)
{
    const dpb_json *warnings = dpb_json_get(plan, "warnings");

    if (dpb_json_size(warnings) == 0)
        return;
    dpb_document_heading(document, 2, "Warnings");
    dpb_document_list(document);
    for (size_t i = 0; i < dpb_json_size(warnings); i++)
        dpb_document_cell(document, dpb_json_as_string(dpb_json_at(warnings, i), ""));
}

static void add_provenance(const dpb_json *plan, struct dpb_document *document)
{
    static const char *const keys[] = {"machine", "figure", "value", "kind", "date", "source"};
    const dpb_json *rows = dpb_json_get(plan, "provenance");

    dpb_document_heading(document, 2, "Figures and their sources");
    headers(document, keys, sizeof(keys) / sizeof(keys[0]), 6);
    for (size_t i = 0; i < dpb_json_size(rows); i++)
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            dpb_document_cell(document, plan_text(dpb_json_at(rows, i), keys[k]));
    dpb_document_paragraph(document,
                           "How well such predictions meet published measurements is what "
                           "`dpbench validate` says; docs/planning.md has the formulas.");
}

static void add_plots(const struct dpb_plot_list *plots, struct dpb_document *document)
{
    for (size_t i = 0; i < plots->count; i++) {
        const struct dpb_plot *plot = &plots->items[i];
        struct dpb_str target = {0};

        if (!plot->drawn)
            continue;
        dpb_str_appendf(&target, "plots/%s.svg", plot->name);
        dpb_document_figure(document, target.failed ? "" : target.text,
                            plot->caption.failed ? "" : plot->caption.text);
        dpb_str_release(&target);
    }
}

void plan_content_build(const dpb_json *plan, const struct dpb_plot_list *plots,
                        struct dpb_document *document)
{
    struct dpb_str title = {0};

    dpb_str_appendf(&title, "Capacity plan: %s", plan_text(plan, "name"));
    dpb_document_heading(document, 1, title.failed ? "Capacity plan" : title.text);
    dpb_str_release(&title);
    add_answer(plan, document);
    add_question(plan, document);
    add_times(plan, document);
    add_plots(plots, document);
    add_memory(plan, document);
    add_breakdown(plan, document);
    add_alternatives(plan, document);
    add_sensitivity(plan, document);
    add_warnings(plan, document);
    add_provenance(plan, document);
}
