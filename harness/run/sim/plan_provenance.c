/* What a plan was asked and what it was made of. */
#include "plan_question.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_units.h"

/* ---- the question ---- */

static void set_list(const struct plan_question *question, const char *name, dpb_json *json)
{
    dpb_json *list = dpb_json_array();

    for (size_t c = 0; c < question->cell_count; c++) {
        struct dpb_str text = {0};
        bool is_there = false;

        if (dpb_config_text(question->cells[c], name, &text) == DPB_OK && !text.failed) {
            for (size_t i = 0; i < dpb_json_size(list); i++)
                is_there = is_there ||
                           strcmp(dpb_json_as_string(dpb_json_at(list, i), ""), text.text) == 0;
            if (!is_there)
                dpb_json_append(list, dpb_json_string(text.text));
        }
        dpb_str_release(&text);
    }
    dpb_json_set(json, name, list);
}

bool plan_option_is_told(const struct dpb_setting *setting)
{
    static const char *const columns[] = {"machine",        "ranks",        "strategy",  "bucket",
                                          "batch-per-rank", "global-batch", "accumulate"};

    for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
        if (strcmp(setting->name, columns[c]) == 0)
            return false;
    return setting->value_count > 1 && !plan_option_is_own(setting->name);
}

static void set_targets(const struct plan_question *question, dpb_json *json)
{
    static const char *const keys[] = {"deadline_s", "budget", "efficiency", "step_p99_ns"};
    dpb_json *targets = dpb_json_object();

    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        if (!isnan(question->target[t]))
            dpb_json_set_real(targets, keys[t], question->target[t]);
    if (question->options->quality[0])
        dpb_json_set_string(targets, "quality", question->options->quality);
    dpb_json_set(json, "targets", targets);
}

dpb_json *plan_question_json(const struct plan_question *question)
{
    static const char *const lists[] = {"workload", "precision", "optimizer", "ranks",
                                        "strategy", "bucket",    "accumulate"};
    const struct plan_options *o = question->options;
    const dpb_config *first = question->cells[0];
    const struct dpb_experiment *e = dpb_config_struct(first, "experiment");
    dpb_json *json = dpb_json_object(), *machines = dpb_json_array();

    for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
        set_list(question, lists[l], json);
    dpb_json_set_string(json, "scaling", dpb_experiment_is_weak(first) ? "weak" : "strong");
    set_list(question, dpb_experiment_is_weak(first) ? "batch-per-rank" : "global-batch", json);
    for (size_t i = 0; i < question->settings.count; i++)
        if (plan_option_is_told(&question->settings.items[i]))
            set_list(question, question->settings.items[i].name, json);
    for (int m = 0; m < question->machine_count; m++)
        dpb_json_append(machines, dpb_json_string(question->machines[m].machine.name));
    dpb_json_set(json, "machines", machines);
    if (o->samples_to_quality != DPB_AUTO) {
        dpb_json_set_int(json, "samples_to_quality", o->samples_to_quality);
        if (!isnan(o->critical_batch))
            dpb_json_set_real(json, "critical_batch", o->critical_batch);
        else
            dpb_json_set_absent(json, "critical_batch", "not given: the batch does not matter");
    } else {
        dpb_json_set_int(json, "samples", o->samples);
        dpb_json_set_real(json, "epochs", o->epochs);
    }
    set_targets(question, json);
    dpb_json_set_int(json, "seed", e->seed);
    return json;
}

/* ---- provenance ---- */

static void add_row(dpb_json *list, const char *machine, const char *what, const char *value,
                    const char *kind, const char *source, const char *date)
{
    dpb_json *row = dpb_json_object();

    dpb_json_set_string(row, "machine", machine);
    dpb_json_set_string(row, "figure", what);
    dpb_json_set_string(row, "value", value);
    dpb_json_set_string(row, "kind", kind);
    dpb_json_set_string(row, "source", source ? source : "");
    dpb_json_set_string(row, "date", date ? date : "");
    dpb_json_append(list, row);
}

static void add_figures(const struct plan_question *question, const struct plan_machine *machine,
                        dpb_json *list)
{
    for (int id = 0; id < DPB_FIGURE_COUNT; id++) {
        const struct dpb_figure *figure = &machine->machine.figure[id];
        struct dpb_str value = {0};

        if (id == DPB_FIGURE_PRICE ||
            (id == DPB_FIGURE_MTBF && question->options->mtbf_ns != DPB_AUTO))
            continue;
        if (isnan(figure->value)) {
            add_row(list, machine->machine.name, dpb_figure_key(id), "-", "absent",
                    "not in the profile: what docs/machines.md says for that", NULL);
            continue;
        }
        dpb_figure_text(id, figure->value, &value);
        add_row(list, machine->machine.name, dpb_figure_key(id), value.failed ? "?" : value.text,
                figure->is_assumed ? "assumed" : "published", figure->source, figure->date);
        dpb_str_release(&value);
    }
}

static void add_curves(const struct plan_machine *machine, dpb_json *list)
{
    for (int c = 0; c < machine->machine.curve_count; c++) {
        const struct dpb_machine_curve *curve = &machine->machine.curves[c];
        struct dpb_str what = {0}, value = {0};
        char from[DPB_UNIT_TEXT_BYTES], to[DPB_UNIT_TEXT_BYTES];

        dpb_human_size(curve->bytes[0], 3, from, sizeof(from));
        dpb_human_size(curve->bytes[curve->count - 1], 3, to, sizeof(to));
        dpb_str_appendf(&what, "%s of %d on %d node%s", curve->collective, curve->ranks,
                        curve->nodes, curve->nodes == 1 ? "" : "s");
        dpb_str_appendf(&value, "%d size%s, %s to %s", curve->count, curve->count == 1 ? "" : "s",
                        from, to);
        add_row(list, machine->machine.name, what.failed ? "curve" : what.text,
                value.failed ? "" : value.text, "measured", curve->source, NULL);
        dpb_str_release(&what);
        dpb_str_release(&value);
    }
}

static void add_given(const struct plan_question *question, const struct plan_machine *machine,
                      dpb_json *list)
{
    char text[DPB_UNIT_TEXT_BYTES];

    if (!isnan(machine->price)) {
        snprintf(text, sizeof(text), "%.10gUSD/h", machine->price);
        add_row(list, machine->machine.name, "price", text,
                strcmp(machine->price_source ? machine->price_source : "", "--price") == 0
                        ? "given"
                        : "published",
                machine->price_source, machine->price_date ? machine->price_date : "no date");
    }
    if (!isnan(machine->throughput)) {
        snprintf(text, sizeof(text), "%.10g samples/s", machine->throughput);
        add_row(list, machine->machine.name, "throughput of one accelerator", text, "given",
                "--throughput", NULL);
    } else {
        add_row(list, machine->machine.name, "times of layers", "-", "modelled",
                "roofline of the list of layers and the figures above", NULL);
    }
    if (question->options->mtbf_ns != DPB_AUTO) {
        dpb_format_duration(question->options->mtbf_ns, text, sizeof(text));
        add_row(list, machine->machine.name, "mtbf-node", text, "given", "--mtbf", NULL);
    }
}

static void add_failures(const struct plan_question *question, dpb_json *list)
{
    const struct plan_options *o = question->options;
    const bool is_given = dpb_settings_find(&question->settings, "checkpoint-rate") != NULL;
    char text[DPB_UNIT_TEXT_BYTES];

    dpb_format_duration(o->restart_ns, text, sizeof(text));
    add_row(list, "all", "restart", text,
            dpb_settings_find(&question->settings, "restart") ? "given" : "assumed", "--restart",
            NULL);
    if (o->checkpoint_ns != DPB_AUTO) {
        dpb_format_duration(o->checkpoint_ns, text, sizeof(text));
        add_row(list, "all", "checkpoint", text, "given", "--checkpoint", NULL);
        return;
    }
    dpb_format_rate(o->checkpoint_bytes_per_s, text, sizeof(text));
    add_row(list, "all", "checkpoint-rate", text, is_given ? "given" : "assumed",
            "--checkpoint-rate", NULL);
}

static void add_memory(const struct plan_question *question, dpb_json *list)
{
    const int64_t reserve = question->options->reserve_bytes;
    char text[DPB_UNIT_TEXT_BYTES] = "2.4GiB";

    if (reserve != DPB_AUTO)
        dpb_format_size(reserve, text, sizeof(text));
    add_row(list, "all", "reserve of memory", text, reserve == DPB_AUTO ? "assumed" : "given",
            reserve == DPB_AUTO ? "0.9 GiB of a CUDA context, 1.5 GiB of NCCL (ml-engineering, one "
                                  "measurement); nothing on CPUs"
                                : "--reserve",
            NULL);
    add_row(list, "all", "fragmentation of memory", "5%", "assumed", "a planning figure", NULL);
}

dpb_json *plan_provenance_json(const struct plan_question *question)
{
    dpb_json *list = dpb_json_array();

    for (int m = 0; m < question->machine_count; m++) {
        add_figures(question, &question->machines[m], list);
        add_curves(&question->machines[m], list);
        add_given(question, &question->machines[m], list);
    }
    add_failures(question, list);
    add_memory(question, list);
    return list;
}
