#include "dpb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_units.h"

#define CELLS_MAX    10000
#define SETTINGS_MAX 256
#define ORDER_STREAM 0x6f72646572ull /* rng stream of the cell order */

/* One option with the texts it takes in this plan. */
struct axis {
    const struct dpb_setting *setting;
    const char *const *values;
    size_t count;
    bool took_effect;
};

struct builder {
    const struct dpb_plan_input *input;
    struct dpb_plan *plan;
    struct axis axis[SETTINGS_MAX];
    size_t axis_count;
    char auto_ranks[3][24];
    const char *auto_values[3];
    struct dpb_setting auto_setting;
    struct dpb_str *keys; /* full key per cell, to merge equal ones */
    int64_t most_ranks;
    bool ranks_are_auto;
    size_t merged;
    bool *exclude_matched; /* per entry of the file's exclude */
};

static char *text_dup(const char *text)
{
    return strdup(text ? text : "");
}

static size_t find_axis(const struct builder *b, const char *name)
{
    for (size_t i = 0; i < b->axis_count; i++)
        if (strcmp(b->axis[i].setting->name, name) == 0)
            return i;
    return b->axis_count;
}

static dpb_status put_setting(struct builder *b, const struct dpb_setting *setting)
{
    size_t at = find_axis(b, setting->name);
    if (at == SETTINGS_MAX)
        return DPB_ERR_INTERNAL;
    b->axis[at] = (struct axis){setting, (const char *const *)setting->values, setting->value_count,
                                false};
    if (at == b->axis_count)
        b->axis_count++;
    return DPB_OK;
}

/* `ranks: auto`, given or by default, becomes the list it stands for. */
static dpb_status expand_auto_ranks(struct builder *b)
{
    size_t at = find_axis(b, "ranks");
    if (at == b->axis_count) {
        b->auto_setting =
                (struct dpb_setting){.name = (char *)"ranks", .origin = (char *)"default"};
        b->axis[b->axis_count++].setting = &b->auto_setting;
    } else if (b->axis[at].count != 1 || strcmp(b->axis[at].values[0], "auto") != 0) {
        for (size_t i = 0; i < b->axis[at].count; i++)
            if (strcmp(b->axis[at].values[i], "auto") == 0) {
                dpb_error("%s: \"auto\" stands alone, it cannot be one of several rank counts",
                          b->axis[at].setting->origin);
                dpb_log_hint("write the rank counts out, or auto alone");
                return DPB_ERR_USAGE;
            }
        return DPB_OK;
    }
    b->ranks_are_auto = true;
    int64_t ranks[3];
    int count = dpb_ranks_auto(b->input->cores, ranks);
    int first = b->input->sweep ? 0 : count - 1;
    for (int i = first; i < count; i++) {
        snprintf(b->auto_ranks[i - first], sizeof(b->auto_ranks[0]), "%" PRId64, ranks[i]);
        b->auto_values[i - first] = b->auto_ranks[i - first];
    }
    b->axis[at].values = b->auto_values;
    b->axis[at].count = (size_t)(count - first);
    return DPB_OK;
}

/* The values are numbers by now. */
static int64_t most_ranks(const struct builder *b)
{
    const struct axis *ranks = &b->axis[find_axis(b, "ranks")];
    int64_t most = 1, value;
    for (size_t i = 0; i < ranks->count; i++)
        if (dpb_parse_i64(ranks->values[i], &value, NULL) == DPB_OK && value > most)
            most = value;
    return most;
}

/* Does a cell, given by one value index per axis, match every setting of an exclude entry? */
static bool excluded_by(const struct builder *b, const size_t *index,
                        const struct dpb_settings *entry)
{
    for (size_t s = 0; s < entry->count; s++) {
        size_t at = find_axis(b, entry->items[s].name);
        if (at == b->axis_count)
            return false;
        bool match = false;
        for (size_t v = 0; v < entry->items[s].value_count; v++)
            match |= strcmp(entry->items[s].values[v], b->axis[at].values[index[at]]) == 0;
        if (!match)
            return false;
    }
    return true;
}

static bool excluded(const struct builder *b, const size_t *index)
{
    const struct dpb_sweep_file *file = b->input->file;
    bool any = false;
    for (size_t e = 0; file && e < file->exclude_count; e++)
        if (excluded_by(b, index, &file->excludes[e]))
            any = b->exclude_matched[e] = true;
    return any;
}

static bool narrowed_by_flags(const struct builder *b, const struct dpb_settings *entry)
{
    for (size_t s = 0; s < entry->count; s++)
        if (dpb_settings_find(b->input->flags, entry->items[s].name))
            return true;
    return false;
}

/* An entry that matches no cell was meant to match one, unless flags took those cells away. */
static dpb_status check_excludes(const struct builder *b)
{
    const struct dpb_sweep_file *file = b->input->file;
    dpb_status st = DPB_OK;
    for (size_t e = 0; file && e < file->exclude_count; e++) {
        const struct dpb_settings *entry = &file->excludes[e];
        if (b->exclude_matched[e] || narrowed_by_flags(b, entry))
            continue;
        dpb_error("%s: this entry of exclude matches no cell", entry->items[0].origin);
        for (size_t s = 0; s < entry->count; s++)
            if (find_axis(b, entry->items[s].name) == b->axis_count)
                dpb_info("  %s is neither an axis of this sweep nor in its base",
                         entry->items[s].name);
        dpb_log_hint("write values that stand in axes or base, or remove the entry");
        st = DPB_ERR_USAGE;
    }
    return st;
}

static bool comm_only(const struct builder *b, const char *name)
{
    const struct dpb_option *row = dpb_option_find(b->input->registry->options, name, NULL);
    return row && (row->flags & DPB_OPT_COMM_ONLY);
}

static dpb_status make_label(const struct builder *b, const struct dpb_plan_cell *cell,
                             const struct dpb_assignment *given, size_t given_count,
                             struct dpb_str *label)
{
    for (size_t i = 0; i < b->axis_count; i++) {
        if (b->axis[i].count < 2)
            continue;
        const char *name = b->axis[i].setting->name;
        bool in_cell = false;
        for (size_t g = 0; g < given_count; g++)
            in_cell |= strcmp(given[g].name, name) == 0;
        struct dpb_str text = {0};
        if (in_cell && dpb_config_text(cell->config, name, &text) == DPB_OK)
            dpb_str_appendf(label, "%s%s=%s", label->length ? " " : "", name, text.text);
        dpb_str_release(&text);
    }
    dpb_str_append(label, "");
    return label->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

static void cell_release(struct dpb_plan_cell *cell)
{
    dpb_config_free(cell->config);
    free(cell->label);
    free(cell->series);
    free(cell->compute_series);
}

/* The texts of one cell; `effective` of them first, without what cannot act between ranks. */
static size_t gather(struct builder *b, const size_t *index, struct dpb_assignment *given)
{
    size_t count = 0;
    bool alone = false;
    for (size_t i = 0; i < b->axis_count; i++)
        alone |= strcmp(b->axis[i].setting->name, "ranks") == 0 &&
                 strcmp(b->axis[i].values[index[i]], "1") == 0;
    for (size_t i = 0; i < b->axis_count; i++) {
        const struct dpb_setting *setting = b->axis[i].setting;
        if (alone && comm_only(b, setting->name))
            continue;
        given[count++] = (struct dpb_assignment){setting->name, b->axis[i].values[index[i]],
                                                 setting->origin};
    }
    return count;
}

static dpb_status keep_cell(struct builder *b, struct dpb_plan_cell *cell, struct dpb_str *key)
{
    struct dpb_plan *plan = b->plan;
    for (size_t i = 0; i < plan->cell_count; i++)
        if (strcmp(b->keys[i].text, key->text) == 0) {
            b->merged++;
            cell_release(cell);
            dpb_str_release(key);
            return DPB_OK;
        }
    if (plan->cell_count == CELLS_MAX) {
        dpb_error("the sweep has more than %d cells", CELLS_MAX);
        dpb_log_hint("shorten its axes, or split it into several sweeps");
        return DPB_ERR_USAGE;
    }
    size_t bytes = (plan->cell_count + 1) * sizeof(*plan->cells);
    struct dpb_plan_cell *cells = realloc(plan->cells, bytes);
    if (!cells)
        return DPB_ERR_NO_MEMORY;
    plan->cells = cells;
    struct dpb_str *keys = realloc(b->keys, (plan->cell_count + 1) * sizeof(*keys));
    if (!keys)
        return DPB_ERR_NO_MEMORY;
    b->keys = keys;
    b->keys[plan->cell_count] = *key;
    plan->cells[plan->cell_count++] = *cell;
    return DPB_OK;
}

static dpb_status add_cell(struct builder *b, const size_t *index)
{
    struct dpb_assignment given[SETTINGS_MAX];
    size_t given_count = gather(b, index, given);
    struct dpb_plan_cell cell = {0};
    struct dpb_str label = {0}, series = {0}, compute_series = {0}, key = {0};
    dpb_status st;
    DPB_TRY_GOTO(
            st, dpb_config_new(b->input->registry->options, given, given_count, true, &cell.config),
            err);
    DPB_TRY_GOTO(
            st,
            dpb_experiment_resolve(cell.config, b->input->registry, b->input->cores, b->most_ranks),
            err);
    for (size_t i = 0; i < b->axis_count; i++)
        b->axis[i].took_effect |= dpb_config_is_explicit(cell.config, b->axis[i].setting->name);
    DPB_TRY_GOTO(st, make_label(b, &cell, given, given_count, &label), err);
    DPB_TRY_GOTO(st, dpb_experiment_series(cell.config, &series, &compute_series), err);
    DPB_TRY_GOTO(st, dpb_config_key(cell.config, 0, NULL, 0, &key), err);
    cell.label = text_dup(label.text);
    cell.series = text_dup(series.text);
    cell.compute_series = text_dup(compute_series.text);
    dpb_str_release(&label);
    dpb_str_release(&series);
    dpb_str_release(&compute_series);
    DPB_TRY_GOTO(st, keep_cell(b, &cell, &key), err);
    return DPB_OK;
err:
    cell_release(&cell);
    dpb_str_release(&label);
    dpb_str_release(&series);
    dpb_str_release(&compute_series);
    dpb_str_release(&key);
    return st;
}

/* Walk the cross product, the first axis slowest. */
static dpb_status expand(struct builder *b)
{
    size_t index[SETTINGS_MAX] = {0};
    size_t total = 1;
    for (size_t i = 0; i < b->axis_count; i++) {
        total *= b->axis[i].count;
        if (total > 100 * CELLS_MAX) {
            dpb_error("the sweep's axes multiply to more than %d cells", 100 * CELLS_MAX);
            dpb_log_hint("shorten its axes, or split it into several sweeps");
            return DPB_ERR_USAGE;
        }
    }
    size_t left_out = 0;
    for (size_t n = 0; n < total; n++) {
        size_t rest = n;
        for (size_t i = b->axis_count; i-- > 0;) {
            index[i] = rest % b->axis[i].count;
            rest /= b->axis[i].count;
        }
        if (excluded(b, index))
            left_out++;
        else
            DPB_TRY(add_cell(b, index));
    }
    if (b->plan->cell_count == 0) {
        dpb_error("exclude leaves none of the %zu cells", left_out);
        dpb_log_hint("remove an entry of exclude");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static bool one_rank_everywhere(const struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[i].config, "experiment");
        if (e->ranks > 1)
            return false;
    }
    return true;
}

static bool synthetic_everywhere(const struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[i].config, "experiment");
        if (e->data != DPB_DATA_SYNTHETIC)
            return false;
    }
    return true;
}

static bool virtual_everywhere(const struct builder *b)
{
    for (size_t i = 0; i < b->plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(b->plan->cells[i].config, "experiment");
        if (!dpb_registry_is_virtual(b->input->registry, e->device))
            return false;
    }
    return true;
}

static dpb_status check_data_place(const struct builder *b)
{
    static const char *const names[] = {"data-dir", "data-file"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t at = find_axis(b, names[i]);
        if (at == b->axis_count || !synthetic_everywhere(b->plan) || virtual_everywhere(b))
            continue;
        dpb_error("%s: cannot take effect: synthetic data is not read from anywhere",
                  b->axis[at].setting->origin);
        dpb_log_hint("leave %s out, or choose other data", names[i]);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static void refuse_unused(const struct builder *b, const struct dpb_setting *setting,
                          const char *kind)
{
    struct dpb_str owners = {0};
    dpb_option_owners(b->input->registry->options, setting->name, kind, "\"", &owners);
    dpb_error("%s: cannot take effect: it belongs to %s, which no cell uses", setting->origin,
              owners.failed ? kind : owners.text);
    dpb_str_release(&owners);
}

/* A sweep file speaks for the machine and the parts that its author had: where flags, or a machine
 * with one core, leave nothing for a setting of it to act on, that is said, and no mistake. */
static bool outgrown(const struct builder *b, const struct dpb_setting *setting)
{
    bool of_file = b->input->file && !dpb_settings_find(b->input->flags, setting->name);
    return of_file && (b->input->flags->count > 0 || b->ranks_are_auto);
}

/* What acts only where something is computed: a mistake on the command line of a simulation; a
 * sweep file may be one for real runs, too. */
static dpb_status check_virtual(const struct builder *b)
{
    dpb_status st = DPB_OK;
    if (!virtual_everywhere(b))
        return DPB_OK;
    for (size_t i = 0; i < b->axis_count; i++) {
        const struct dpb_setting *setting = b->axis[i].setting;
        const struct dpb_option *row =
                dpb_option_find(b->input->registry->options, setting->name, NULL);
        if (!row || !(row->flags & DPB_OPT_REAL_ONLY))
            continue;
        if (!dpb_settings_find(b->input->flags, setting->name)) {
            dpb_info("%s: %s takes no effect in a simulation", setting->origin, setting->name);
            continue;
        }
        dpb_error("%s: cannot take effect in a simulation, in which nothing is computed",
                  setting->origin);
        dpb_log_hint("leave %s out", row->name);
        st = DPB_ERR_USAGE;
    }
    return st;
}

/* What was asked for and acts nowhere is a mistake, never silence. */
static dpb_status check_effect(const struct builder *b)
{
    dpb_status st = check_virtual(b);
    DPB_KEEP(st, check_data_place(b));
    bool alone = one_rank_everywhere(b->plan);
    for (size_t i = 0; i < b->axis_count; i++) {
        const struct dpb_setting *setting = b->axis[i].setting;
        if (b->axis[i].took_effect || setting == &b->auto_setting)
            continue;
        if (outgrown(b, setting)) {
            dpb_info("%s: %s takes no effect in this sweep", setting->origin, setting->name);
            continue;
        }
        const struct dpb_option_table *table = NULL;
        const struct dpb_option *row =
                dpb_option_find(b->input->registry->options, setting->name, &table);
        if (alone && comm_only(b, setting->name))
            dpb_error("%s: cannot take effect with one rank, and no cell has more",
                      setting->origin);
        else
            refuse_unused(b, setting, table->kind);
        dpb_log_hint("leave %s out, or choose %s", row->name,
                     alone && comm_only(b, setting->name) ? "more ranks" : "what it acts on");
        st = DPB_ERR_USAGE;
    }
    return st;
}

static dpb_status note_axes(struct builder *b)
{
    struct dpb_plan *plan = b->plan;
    plan->axis_names = calloc(b->axis_count + 1, sizeof(char *));
    if (!plan->axis_names)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < b->axis_count; i++)
        if (b->axis[i].count > 1)
            plan->axis_names[plan->axis_count++] = text_dup(b->axis[i].setting->name);
    return DPB_OK;
}

/* Repeats outermost, so that a slow phase of the machine hits all cells alike. */
static dpb_status make_order(struct dpb_plan *plan)
{
    plan->launch_count = plan->cell_count * (size_t)plan->repeats;
    plan->order = calloc(plan->launch_count, sizeof(*plan->order));
    int64_t *cells = calloc(plan->cell_count, sizeof(*cells));
    if (!plan->order || !cells) {
        free(cells);
        return DPB_ERR_NO_MEMORY;
    }
    struct dpb_rng rng;
    dpb_rng_init(&rng, plan->seed, ORDER_STREAM);
    size_t n = 0;
    for (int64_t r = 0; r < plan->repeats; r++) {
        for (size_t i = 0; i < plan->cell_count; i++)
            cells[i] = (int64_t)i;
        dpb_rng_shuffle_i64(&rng, cells, (int64_t)plan->cell_count);
        for (size_t i = 0; i < plan->cell_count; i++)
            plan->order[n++] = (struct dpb_plan_launch){(int32_t)cells[i], (int32_t)r};
    }
    free(cells);
    return DPB_OK;
}

static dpb_status one_cell_only(const struct builder *b)
{
    for (size_t i = 0; i < b->axis_count; i++)
        if (b->axis[i].count > 1) {
            dpb_error("%s: a list makes several cells, and `dpbench run` runs one",
                      b->axis[i].setting->origin);
            dpb_log_hint("give one value, or use `dpbench sweep`");
            return DPB_ERR_USAGE;
        }
    return DPB_OK;
}

dpb_status dpb_plan_build(const struct dpb_plan_input *input, struct dpb_plan *plan)
{
    struct dpb_plan built = {0};
    struct builder *b = calloc(1, sizeof(*b));
    if (!b)
        return DPB_ERR_NO_MEMORY;
    b->input = input;
    b->plan = &built;
    dpb_status st = DPB_OK;
    const struct dpb_settings *sources[] = {input->file ? &input->file->base : NULL,
                                            input->file ? &input->file->axes : NULL, input->flags};
    for (size_t s = 0; s < 3; s++)
        for (size_t i = 0; sources[s] && i < sources[s]->count; i++)
            DPB_TRY_GOTO(st, put_setting(b, &sources[s]->items[i]), out);
    DPB_TRY_GOTO(st, expand_auto_ranks(b), out);
    b->most_ranks = most_ranks(b);
    if (!input->sweep)
        DPB_TRY_GOTO(st, one_cell_only(b), out);
    b->exclude_matched = calloc(input->file ? input->file->exclude_count + 1 : 1, sizeof(bool));
    DPB_TRY_GOTO(st, b->exclude_matched ? DPB_OK : DPB_ERR_NO_MEMORY, out);
    DPB_TRY_GOTO(st, expand(b), out);
    DPB_TRY_GOTO(st, check_excludes(b), out);
    DPB_TRY_GOTO(st, check_effect(b), out);
    DPB_TRY_GOTO(st, note_axes(b), out);
    const struct dpb_experiment *e = dpb_config_struct(built.cells[0].config, "experiment");
    built.name = text_dup(input->file && input->file->name ? input->file->name : input->name);
    built.repeats = e->repeats;
    built.seed = (uint64_t)e->seed;
    DPB_TRY_GOTO(st, make_order(&built), out);
out:
    for (size_t i = 0; i < built.cell_count; i++)
        dpb_str_release(&b->keys[i]);
    free(b->keys);
    free(b->exclude_matched);
    free(b);
    if (st < 0)
        dpb_plan_release(&built);
    else
        *plan = built;
    return st;
}

void dpb_plan_release(struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++)
        cell_release(&plan->cells[i]);
    for (size_t i = 0; i < plan->axis_count; i++)
        free(plan->axis_names[i]);
    free(plan->axis_names);
    free(plan->cells);
    free(plan->order);
    free(plan->name);
    memset(plan, 0, sizeof(*plan));
}
