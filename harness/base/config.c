/* A config: the options of one cell, resolved into the structs of its tables. */
#include "config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

void dpb_config_free(dpb_config *config)
{
    size_t i;

    if (!config)
        return;
    for (i = 0; i < config->table_count; i++) {
        free(config->tables[i].data);
        free(config->tables[i].is_explicit);
    }
    free(config->tables);
    for (i = 0; i < config->dropped_count; i++)
        free(config->dropped[i]);
    free(config->dropped);
    free(config);
}

static dpb_config *config_alloc(const struct dpb_option_set *set)
{
    dpb_config *config = calloc(1, sizeof(*config));

    if (!config)
        return NULL;
    config->set = set;
    config->tables = calloc(set->table_count + 1, sizeof(*config->tables));
    if (!config->tables) {
        free(config);
        return NULL;
    }
    return config;
}

static bool active_table_init(struct dpb_active_table *active, const struct dpb_option_table *table)
{
    active->table = table;
    active->data = calloc(1, table->config_bytes + 1);
    active->is_explicit = calloc(table->row_count + 1, sizeof(*active->is_explicit));
    return active->data && active->is_explicit;
}

static dpb_status assign(const struct dpb_option_set *set, struct dpb_active_table *active,
                         size_t row, const char *text, const char *origin)
{
    struct dpb_option_complaint complaint;
    struct dpb_option_value value;

    if (dpb_option_value_parse(&active->table->rows[row], set, text, &value, &complaint) < 0) {
        dpb_option_log(active->table->rows[row].name, origin, &complaint);
        return DPB_ERR_USAGE;
    }
    dpb_option_value_store(&active->table->rows[row], &value, active->data);
    return DPB_OK;
}

/* Make a table count: defaults first, then the assignments to its rows, marked in `used`. */
static dpb_status activate(dpb_config *config, const struct dpb_option_table *table,
                           const struct dpb_assignment *assignments, size_t count, bool *used)
{
    struct dpb_active_table *active = &config->tables[config->table_count++];
    dpb_status result = DPB_OK;
    size_t row, i;

    if (!active_table_init(active, table))
        return dpb_option_log_no_memory();
    DPB_TRY(dpb_option_table_defaults(table, config->set, active->data));
    for (row = 0; row < table->row_count; row++) {
        for (i = 0; i < count; i++) {
            if (strcmp(assignments[i].name, table->rows[row].name) != 0)
                continue;
            DPB_KEEP(result,
                     assign(config->set, active, row, assignments[i].text, assignments[i].origin));
            active->is_explicit[row] = true;
            used[i] = true;
        }
    }
    return result;
}

const char *dpb_config_part(const dpb_config *config, const char *kind)
{
    size_t i, row;

    for (i = 0; i < config->table_count; i++) {
        const struct dpb_active_table *active = &config->tables[i];

        for (row = 0; active->table->owner[0] == '\0' && row < active->table->row_count; row++) {
            const struct dpb_option *option = &active->table->rows[row];

            if (option->type == DPB_OPT_PART && strcmp(option->name, kind) == 0)
                return (const char *)active->data + option->offset;
        }
    }
    return NULL;
}

/* The part that "auto" is: the one made for the cell's device, else the first of its kind. */
static const char *part_for_device(const dpb_config *config, const char *kind)
{
    const struct dpb_option_set *set = config->set;
    const char *device = dpb_config_part(config, "device"), *first = NULL;
    size_t i;

    for (i = 0; i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, kind) != 0)
            continue;
        if (device && set->parts[i].auto_for && strcmp(set->parts[i].auto_for, device) == 0)
            return set->parts[i].name;
        first = first ? first : set->parts[i].name;
    }
    return first;
}

/* No part is "auto" any more when the parts' tables are activated. */
static void resolve_parts(dpb_config *config)
{
    size_t i, row;

    for (i = 0; i < config->table_count; i++) {
        const struct dpb_option_table *table = config->tables[i].table;

        for (row = 0; row < table->row_count; row++) {
            const struct dpb_option *option = &table->rows[row];
            char *member = (char *)config->tables[i].data + option->offset;
            const char *name;

            if (option->type != DPB_OPT_PART || !(option->flags & DPB_OPT_AUTO) ||
                strcmp(member, "auto") != 0)
                continue;
            name = part_for_device(config, option->name);
            snprintf(member, DPB_OPTION_TEXT_BYTES, "%s", name ? name : "");
        }
    }
}

/* The core tables first, for they choose the parts whose tables follow. */
static dpb_status activate_all(dpb_config *config, const struct dpb_assignment *assignments,
                               size_t count, bool *used)
{
    const struct dpb_option_set *set = config->set;
    dpb_status result = DPB_OK;
    bool core = true;
    size_t i;

    for (;;) {
        for (i = 0; i < set->table_count; i++) {
            const struct dpb_option_table *table = set->tables[i];
            const char *chosen;

            if (!dpb_option_table_is_experiment(table) || (table->owner[0] == '\0') != core)
                continue;
            if (!core) {
                chosen = dpb_config_part(config, table->kind);
                if (!chosen || strcmp(chosen, table->owner) != 0)
                    continue;
            }
            DPB_KEEP(result, activate(config, table, assignments, count, used));
        }
        /* With a part that is not known the rest would be blamed for it. */
        if (!core || result < 0)
            return result;
        resolve_parts(config);
        core = false;
    }
}

static dpb_status drop(dpb_config *config, const char *name)
{
    char **dropped = realloc(config->dropped, (config->dropped_count + 1) * sizeof(*dropped));
    char *copy = strdup(name);

    if (dropped)
        config->dropped = dropped;
    if (!dropped || !copy) {
        free(copy);
        return dpb_option_log_no_memory();
    }
    dropped[config->dropped_count++] = copy;
    return DPB_OK;
}

void dpb_option_owners(const struct dpb_option_set *set, const char *name, const char *kind,
                       const char *quote, struct dpb_str *out)
{
    struct dpb_option_walk walk = {0};
    const struct dpb_option_table *table;
    size_t count = 0;

    dpb_str_appendf(out, "%s ", kind);
    while (dpb_option_next(set, name, &walk, &table)) {
        if (strcmp(table->kind, kind) == 0)
            dpb_str_appendf(out, "%s%s%s%s", count++ ? " or " : "", quote, table->owner, quote);
    }
}

static dpb_status refuse_inactive(const dpb_config *config, const struct dpb_assignment *assignment)
{
    const struct dpb_option_table *table = NULL;
    struct dpb_str subject = {0}, owners = {0}, remedy = {0};
    const char *chosen;

    dpb_option_find(config->set, assignment->name, &table);
    chosen = dpb_config_part(config, table->kind);
    dpb_option_subject(assignment->name, assignment->origin, &subject);
    dpb_option_owners(config->set, assignment->name, table->kind, "\"", &owners);
    dpb_option_owners(config->set, assignment->name, table->kind, "", &remedy);
    if (subject.failed || owners.failed || remedy.failed) {
        (void)dpb_option_log_no_memory();
    } else if (chosen) {
        dpb_error("%s cannot take effect: it belongs to %s, and this cell uses %s \"%s\"",
                  subject.text, owners.text, table->kind, chosen);
        dpb_log_hint("leave it out, or choose %s", remedy.text);
    } else {
        dpb_error("%s cannot take effect: it belongs to %s, which this cell does not use",
                  subject.text, owners.text);
        dpb_log_hint("leave it out");
    }
    dpb_str_release(&subject);
    dpb_str_release(&owners);
    dpb_str_release(&remedy);
    return DPB_ERR_USAGE;
}

/* Names that no table has, and names given twice. */
static dpb_status check_names(const struct dpb_option_set *set,
                              const struct dpb_assignment *assignments, size_t count)
{
    dpb_status result = DPB_OK;
    size_t i, j;

    for (i = 0; i < count; i++) {
        if (!dpb_option_find(set, assignments[i].name, NULL))
            DPB_KEEP(result,
                     dpb_option_log_unknown(set, assignments[i].name, assignments[i].origin));
        for (j = 0; j < i; j++) {
            if (strcmp(assignments[i].name, assignments[j].name) != 0)
                continue;
            dpb_error("option \"%s\" is given twice: %s and %s", assignments[i].name,
                      assignments[j].origin, assignments[i].origin);
            dpb_log_hint("give it once");
            result = DPB_ERR_USAGE;
        }
    }
    return result;
}

dpb_status dpb_config_new(const struct dpb_option_set *set,
                          const struct dpb_assignment *assignments, size_t count,
                          bool drop_inactive, dpb_config **config)
{
    dpb_config *made = NULL;
    bool *used = NULL;
    dpb_status st;
    size_t i;

    DPB_TRY(check_names(set, assignments, count));
    made = config_alloc(set);
    used = calloc(count + 1, sizeof(*used));
    if (!made || !used) {
        st = dpb_option_log_no_memory();
        goto err;
    }
    DPB_TRY_GOTO(st, activate_all(made, assignments, count, used), err);
    for (i = 0; i < count; i++) {
        if (used[i])
            continue;
        DPB_KEEP(st, drop_inactive ? drop(made, assignments[i].name)
                                   : refuse_inactive(made, &assignments[i]));
    }
    if (st < 0)
        goto err;
    free(used);
    *config = made;
    return DPB_OK;

err:
    free(used);
    dpb_config_free(made);
    return st;
}

dpb_status dpb_config_copy(const dpb_config *config, dpb_config **copy)
{
    dpb_config *made = config_alloc(config->set);
    size_t i;

    if (!made)
        return dpb_option_log_no_memory();
    for (i = 0; i < config->table_count; i++) {
        const struct dpb_active_table *from = &config->tables[i];
        struct dpb_active_table *to = &made->tables[made->table_count++];

        if (!active_table_init(to, from->table)) {
            dpb_config_free(made);
            return dpb_option_log_no_memory();
        }
        memcpy(to->data, from->data, from->table->config_bytes);
        memcpy(to->is_explicit, from->is_explicit, from->table->row_count * sizeof(bool));
    }
    for (i = 0; i < config->dropped_count; i++) {
        dpb_status st = drop(made, config->dropped[i]);

        if (st < 0) {
            dpb_config_free(made);
            return st;
        }
    }
    *copy = made;
    return DPB_OK;
}

const void *dpb_config_struct(const dpb_config *config, const char *kind)
{
    size_t i;

    for (i = 0; i < config->table_count; i++) {
        if (strcmp(config->tables[i].table->kind, kind) == 0)
            return config->tables[i].data;
    }
    return NULL;
}

/* The next active row of that name after `*table`, `*row`; start with both 0. */
static struct dpb_active_table *next_active(const dpb_config *config, const char *name,
                                            size_t *table, size_t *row)
{
    for (; *table < config->table_count; (*table)++, *row = 0) {
        struct dpb_active_table *active = &config->tables[*table];

        while (*row < active->table->row_count) {
            if (strcmp(active->table->rows[(*row)++].name, name) == 0)
                return active;
        }
    }
    return NULL;
}

bool dpb_config_is_explicit(const dpb_config *config, const char *name)
{
    struct dpb_active_table *active;
    size_t table = 0, row = 0;

    while ((active = next_active(config, name, &table, &row))) {
        if (active->is_explicit[row - 1])
            return true;
    }
    return false;
}

bool dpb_config_is_dropped(const dpb_config *config, const char *name)
{
    size_t i;

    for (i = 0; i < config->dropped_count; i++) {
        if (strcmp(config->dropped[i], name) == 0)
            return true;
    }
    return false;
}

dpb_status dpb_config_text(const dpb_config *config, const char *name, struct dpb_str *text)
{
    struct dpb_active_table *active;
    struct dpb_option_value value;
    size_t table = 0, row = 0;

    active = next_active(config, name, &table, &row);
    if (!active)
        return DPB_ERR_NOT_FOUND;
    dpb_option_value_load(&active->table->rows[row - 1], active->data, &value);
    dpb_option_value_format(&active->table->rows[row - 1], &value, text);
    dpb_str_append(text, "");
    return text->failed ? dpb_option_log_no_memory() : DPB_OK;
}

/* Another part brings another table: make the config anew from its texts. */
static dpb_status set_part(dpb_config *config, const char *name, const char *text)
{
    struct dpb_active_row *rows = NULL;
    struct dpb_assignment *assignments = NULL;
    struct dpb_str *texts = NULL;
    dpb_config *made = NULL;
    size_t count = 0, i, table, row;
    dpb_status st;

    DPB_TRY(dpb_config_active_rows(config, &rows, &count));
    assignments = calloc(count + 1, sizeof(*assignments));
    texts = calloc(count + 1, sizeof(*texts));
    if (!assignments || !texts) {
        st = dpb_option_log_no_memory();
        goto done;
    }
    for (i = 0; i < count; i++) {
        const char *row_name = rows[i].row->name;

        DPB_TRY_GOTO(st, dpb_config_text(config, row_name, &texts[i]), done);
        assignments[i].name = row_name;
        assignments[i].text = strcmp(row_name, name) == 0 ? text : texts[i].text;
        assignments[i].origin = "(config)";
    }
    DPB_TRY_GOTO(st, dpb_config_new(config->set, assignments, count, true, &made), done);
    for (table = 0; table < made->table_count; table++) {
        for (row = 0; row < made->tables[table].table->row_count; row++)
            made->tables[table].is_explicit[row] =
                    dpb_config_is_explicit(config, made->tables[table].table->rows[row].name);
    }
    for (i = 0; i < config->dropped_count && st == DPB_OK; i++)
        st = drop(made, config->dropped[i]);
    if (st == DPB_OK) {
        dpb_config swap = *config;

        *config = *made;
        *made = swap;
    }
    dpb_config_free(made);

done:
    for (i = 0; texts && i < count; i++)
        dpb_str_release(&texts[i]);
    free(texts);
    free(assignments);
    free(rows);
    return st;
}

dpb_status dpb_config_set(dpb_config *config, const char *name, const char *text)
{
    struct dpb_active_table *active;
    dpb_status result = DPB_OK;
    size_t table = 0, row = 0, found = 0;

    while ((active = next_active(config, name, &table, &row))) {
        found++;
        if (active->table->rows[row - 1].type == DPB_OPT_PART)
            return set_part(config, name, text);
        DPB_KEEP(result, assign(config->set, active, row - 1, text, "(program)"));
    }
    if (found == 0) {
        dpb_error("option \"%s\" cannot be set to \"%s\": it does not count in this cell", name,
                  text);
        return DPB_ERR_USAGE;
    }
    return result;
}

dpb_status dpb_config_pin(dpb_config *config, const char *name, const char *text)
{
    struct dpb_active_table *active;
    size_t table = 0, row = 0;

    DPB_TRY(dpb_config_set(config, name, text));
    while ((active = next_active(config, name, &table, &row)))
        active->is_explicit[row - 1] = true;
    return DPB_OK;
}
