/* Tables of options: search, checks, and the messages about names. */
#include "option_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

bool dpb_option_table_is_experiment(const struct dpb_option_table *table)
{
    return table && strcmp(table->kind, "command") != 0;
}

const struct dpb_option *dpb_option_next(const struct dpb_option_set *set, const char *name,
                                         struct dpb_option_walk *walk,
                                         const struct dpb_option_table **table)
{
    for (; walk->table < set->table_count; walk->table++, walk->row = 0) {
        const struct dpb_option_table *candidate = set->tables[walk->table];

        if (!dpb_option_table_is_experiment(candidate))
            continue;
        while (walk->row < candidate->row_count) {
            const struct dpb_option *row = &candidate->rows[walk->row++];

            if (name && strcmp(row->name, name) != 0)
                continue;
            if (table)
                *table = candidate;
            return row;
        }
    }
    return NULL;
}

const struct dpb_option *dpb_option_find(const struct dpb_option_set *set, const char *name,
                                         const struct dpb_option_table **table)
{
    struct dpb_option_walk walk = {0};

    return dpb_option_next(set, name, &walk, table);
}

dpb_status dpb_option_table_defaults(const struct dpb_option_table *table,
                                     const struct dpb_option_set *set, void *config_struct)
{
    struct dpb_option_complaint complaint;
    struct dpb_option_value value;
    size_t i;

    for (i = 0; i < table->row_count; i++) {
        const struct dpb_option *row = &table->rows[i];

        if (dpb_option_value_parse(row, set, row->default_text, &value, &complaint) < 0) {
            dpb_error("the default of option \"%s\" of %s \"%s\" is bad: %s", row->name,
                      table->kind, table->owner, complaint.reason);
            return DPB_ERR_INTERNAL;
        }
        dpb_option_value_store(row, &value, config_struct);
    }
    return DPB_OK;
}

/* ---- check ---- */

static bool is_option_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    return name && name[0] && strchr(letters, name[0]) && strspn(name, all) == strlen(name) &&
           name[strlen(name) - 1] != '-';
}

static bool may_be_auto(enum dpb_option_type type)
{
    return type == DPB_OPT_INT || type == DPB_OPT_SIZE || type == DPB_OPT_DURATION ||
           type == DPB_OPT_FLOAT || type == DPB_OPT_RATE || type == DPB_OPT_RATIO ||
           type == DPB_OPT_PART;
}

static bool set_has_kind(const struct dpb_option_set *set, const char *kind)
{
    size_t i;

    for (i = 0; set && i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, kind) == 0)
            return true;
    }
    return false;
}

/* NULL, or what is wrong with the row by itself. */
static const char *row_fault(const struct dpb_option_table *table, const struct dpb_option *row)
{
    size_t bytes = dpb_option_member_bytes(row->type);
    bool command = strcmp(table->kind, "command") == 0;

    if (!is_option_name(row->name))
        return "its name is not made of lower-case letters, digits and '-'";
    if (strcmp(row->name, "help") == 0)
        return "every command has --help already";
    if (bytes == 0)
        return "its type is unknown";
    if (row->offset > table->config_bytes || bytes > table->config_bytes - row->offset)
        return "its member lies outside the config struct";
    if (!row->default_text)
        return "it has no default";
    if (!row->help || !row->help[0] || !row->category || !row->category[0])
        return "its help or category is missing";
    if (row->type == DPB_OPT_ENUM ? !row->choices || !row->choices[0].name : row->choices != NULL)
        return "choices belong to ENUM, and ENUM needs them";
    if ((row->flags & DPB_OPT_AUTO) && !may_be_auto(row->type))
        return "its type cannot be auto";
    if (!(row->min <= row->max))
        return "its range is empty";
    if (row->short_flag && !command)
        return "short flags are for commands only";
    if (row->short_flag &&
        !strchr("abcdefgijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", row->short_flag))
        return "its short flag is no letter, or the h of --help";
    if (command && row->type == DPB_OPT_BOOL && strcmp(row->default_text, "off") != 0)
        return "a flag of a command starts off";
    return NULL;
}

/* NULL, or how two rows of a table clash. */
static const char *pair_fault(const struct dpb_option *a, const struct dpb_option *b)
{
    if (strcmp(a->name, b->name) == 0)
        return "its name occurs twice";
    if (a->short_flag && a->short_flag == b->short_flag)
        return "its short flag occurs twice";
    if (a->offset < b->offset + dpb_option_member_bytes(b->type) &&
        b->offset < a->offset + dpb_option_member_bytes(a->type))
        return "its member overlaps that of another row";
    return NULL;
}

dpb_status dpb_option_table_check(const struct dpb_option_table *table,
                                  const struct dpb_option_set *set)
{
    struct dpb_option_complaint complaint;
    struct dpb_option_value value;
    size_t i, j;

    if (!table || !table->kind || !table->owner || (table->row_count > 0 && !table->rows)) {
        dpb_error("a table of options is incomplete: kind, owner and rows are needed");
        return DPB_ERR_INTERNAL;
    }
    for (i = 0; i < table->row_count; i++) {
        const struct dpb_option *row = &table->rows[i];
        const char *fault = row_fault(table, row);

        for (j = 0; j < i && !fault; j++)
            fault = pair_fault(row, &table->rows[j]);
        /* Part names can be checked only by a set that knows the kind. */
        if (!fault &&
            dpb_option_value_parse(
                    row, row->type == DPB_OPT_PART && !set_has_kind(set, row->name) ? NULL : set,
                    row->default_text, &value, &complaint) < 0)
            fault = complaint.reason;
        if (fault) {
            dpb_error("option \"%s\" of %s \"%s\" is bad: %s", row->name ? row->name : "(no name)",
                      table->kind, table->owner, fault);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

/* ---- messages ---- */

static bool is_flag(const char *origin)
{
    return origin[0] == '-';
}

void dpb_option_subject(const char *name, const char *origin, struct dpb_str *out)
{
    dpb_str_append(out, origin);
    if (!is_flag(origin))
        dpb_str_appendf(out, ": %s", name);
}

void dpb_option_log(const char *name, const char *origin,
                    const struct dpb_option_complaint *complaint)
{
    struct dpb_str subject = {0};

    dpb_option_subject(name, origin, &subject);
    dpb_error("%s: %s", subject.text ? subject.text : name, complaint->reason);
    dpb_log_hint("%s", complaint->hint);
    dpb_str_release(&subject);
}

dpb_status dpb_option_log_unknown(const struct dpb_option_set *set, const char *name,
                                  const char *origin)
{
    struct dpb_option_walk walk = {0};
    const struct dpb_option *row;
    const char **names = NULL;
    const char *near = NULL;
    const char *dashes = is_flag(origin) ? "--" : "";
    size_t count = 0;

    while (dpb_option_next(set, NULL, &walk, NULL))
        count++;
    names = count ? malloc(count * sizeof(*names)) : NULL;
    if (names) {
        walk = (struct dpb_option_walk){0};
        count = 0;
        while ((row = dpb_option_next(set, NULL, &walk, NULL)))
            names[count++] = row->name;
        near = dpb_suggest(name, names, count);
        free(names);
    }
    if (is_flag(origin))
        dpb_error("unknown option \"%s\"", origin);
    else
        dpb_error("%s: unknown option \"%s\"", origin, name);
    if (near)
        dpb_log_hint("did you mean \"%s%s\"? \"dpbench list options\" shows all options", dashes,
                     near);
    else
        dpb_log_hint("\"dpbench list options\" shows all options");
    return DPB_ERR_USAGE;
}

dpb_status dpb_option_log_no_memory(void)
{
    dpb_error("out of memory");
    return DPB_ERR_NO_MEMORY;
}
