/* The rows as --help, as Markdown, and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_private.h"

#define HELP_COLUMN 28

/* What a row says about its value, in parentheses behind the help: "(default 25MiB; at least 1KiB,
 * or auto)". */
static void row_notes(const struct dpb_option *row, const struct dpb_option_set *set,
                      struct dpb_str *out)
{
    char range[128];
    size_t i, count = 0;

    dpb_str_appendf(out, "default %s", row->default_text[0] ? row->default_text : "none");
    dpb_option_range_text(row, range, sizeof(range));
    if (range[0])
        dpb_str_appendf(out, "; %s", range);
    if (row->unit)
        dpb_str_appendf(out, "%s%s", range[0] ? " " : "; ", row->unit);
    if (row->type == DPB_OPT_ENUM) {
        for (i = 0; row->choices[i].name; i++)
            dpb_str_appendf(out, "%s%s", i ? ", " : "; one of ", row->choices[i].name);
    }
    for (i = 0; row->type == DPB_OPT_PART && set && i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, row->name) == 0)
            dpb_str_appendf(out, "%s%s", count++ ? ", " : "; one of ", set->parts[i].name);
    }
    if ((row->flags & DPB_OPT_AUTO) && strcmp(row->default_text, "auto") != 0)
        dpb_str_append(out, ", or auto");
}

/* ---- help ---- */

/* Columns on a terminal: UTF-8 continuation bytes take none. */
static size_t columns_of(const char *text, size_t bytes)
{
    size_t columns = 0, i;

    for (i = 0; i < bytes; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

/* Append the words of `text`, broken at `width`; lines after the first start at `indent`. `column`
 * is where the first word lands. */
static void wrap(const char *text, size_t column, size_t indent, size_t width, struct dpb_str *out)
{
    bool first = true;

    for (;;) {
        size_t bytes, columns;

        text += strspn(text, " ");
        bytes = strcspn(text, " ");
        columns = columns_of(text, bytes);
        if (bytes == 0)
            break;
        if (!first && column + 1 + columns > width) {
            dpb_str_appendf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            dpb_str_append(out, " ");
            column++;
        }
        dpb_str_append_bytes(out, text, bytes);
        column += columns;
        text += bytes;
        first = false;
    }
    dpb_str_append(out, "\n");
}

static void help_entry(const char *flags, const char *help, size_t width, struct dpb_str *out)
{
    size_t used = strlen(flags);

    dpb_str_append(out, flags);
    if (used + 2 > HELP_COLUMN) {
        dpb_str_append(out, "\n");
        used = 0;
    }
    dpb_str_appendf(out, "%*s", (int)(HELP_COLUMN - used), "");
    wrap(help, HELP_COLUMN, HELP_COLUMN, width, out);
}

static void help_row(const struct dpb_option *row, const struct dpb_option_set *set, bool own,
                     const char *owners, size_t width, struct dpb_str *out)
{
    bool plain_flag = own && row->type == DPB_OPT_BOOL;
    struct dpb_str flags = {0}, help = {0};

    if (own && row->short_flag)
        dpb_str_appendf(&flags, "  -%c, --%s", row->short_flag, row->name);
    else
        dpb_str_appendf(&flags, "      --%s", row->name);
    if (!plain_flag)
        dpb_str_appendf(&flags, " %s", dpb_option_metavar(row));
    if (owners[0])
        dpb_str_appendf(&help, "[%s] ", owners);
    dpb_str_append(&help, row->help);
    if (!plain_flag) {
        dpb_str_append(&help, " (");
        row_notes(row, set, &help);
        dpb_str_append(&help, ")");
    }
    if (flags.failed || help.failed)
        out->failed = true;
    else
        help_entry(flags.text, help.text, width, out);
    dpb_str_release(&flags);
    dpb_str_release(&help);
}

/* Did an earlier row of the set show the same line? */
static bool same_entry(const struct dpb_option *a, const struct dpb_option *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->help, b->help) == 0 &&
           strcmp(a->default_text, b->default_text) == 0;
}

/* "ddp, zero1" of all tables that have a row like that of `own`; false when an earlier table had it
 * and so shows it. Tables can share their rows. */
static bool owners_of(const struct dpb_option_set *set, const struct dpb_option *row,
                      const struct dpb_option_table *own, struct dpb_str *owners)
{
    struct dpb_option_walk walk = {0};
    const struct dpb_option_table *table;
    const struct dpb_option *other;
    bool first = true;

    while ((other = dpb_option_next(set, row->name, &walk, &table))) {
        if (!same_entry(row, other))
            continue;
        if (first && (other != row || table != own))
            return false;
        first = false;
        if (table->owner[0])
            dpb_str_appendf(owners, "%s%s", owners->length ? ", " : "", table->owner);
    }
    dpb_str_append(owners, "");
    return true;
}

/* Is `row` the first of its category in the walk of a set? */
static bool first_of_category(const struct dpb_option_set *set, const struct dpb_option *row)
{
    struct dpb_option_walk walk = {0};
    const struct dpb_option *other;

    while ((other = dpb_option_next(set, NULL, &walk, NULL))) {
        if (strcmp(other->category, row->category) == 0)
            return other == row;
    }
    return false;
}

static void help_experiment(const struct dpb_option_set *set, size_t width, struct dpb_str *out)
{
    struct dpb_option_walk outer = {0};
    const struct dpb_option *heading, *row;
    const struct dpb_option_table *table;

    while ((heading = dpb_option_next(set, NULL, &outer, NULL))) {
        struct dpb_option_walk walk = {0};

        if (!first_of_category(set, heading))
            continue;
        dpb_str_appendf(out, "\n%s:\n", heading->category);
        while ((row = dpb_option_next(set, NULL, &walk, &table))) {
            struct dpb_str owners = {0};

            if (strcmp(row->category, heading->category) == 0 &&
                owners_of(set, row, table, &owners))
                help_row(row, set, false, owners.text ? owners.text : "", width, out);
            dpb_str_release(&owners);
        }
    }
}

static void help_own(const struct dpb_option_table *table, const struct dpb_option_set *set,
                     size_t width, struct dpb_str *out)
{
    size_t i, j, k;

    for (i = 0; table && i < table->row_count; i++) {
        const char *category = table->rows[i].category;

        for (j = 0; j < i && strcmp(table->rows[j].category, category) != 0; j++)
            ;
        if (j < i)
            continue; /* shown with the first row of its category */
        dpb_str_appendf(out, "\n%s:\n", category);
        for (k = i; k < table->row_count; k++) {
            if (strcmp(table->rows[k].category, category) == 0)
                help_row(&table->rows[k], set, true, "", width, out);
        }
    }
}

dpb_status dpb_command_help(const struct dpb_command *command, const struct dpb_option_set *set,
                            size_t width, struct dpb_str *out)
{
    const char *arguments = command->arguments ? command->arguments : "";

    if (width < 40)
        width = 40;
    dpb_str_appendf(out, "Usage: dpbench %s [options]%s%s\n\n", command->name,
                    arguments[0] ? " " : "", arguments);
    wrap(command->summary, 0, 0, width, out);
    if (command->description) {
        dpb_str_append(out, "\n");
        wrap(command->description, 0, 0, width, out);
    }
    help_own(command->table, set, width, out);
    dpb_str_append(out, "\nHelp:\n");
    help_entry("  -h, --help", "show this help", width, out);
    if (command->takes_experiment) {
        dpb_str_append(out, "\n");
        wrap("Options of the experiment. A list of values, such as 1,2,4, makes an axis of a "
             "sweep; [names] are the parts that have the option.",
             0, 0, width, out);
        help_experiment(set, width, out);
    }
    return out->failed ? dpb_option_log_no_memory() : DPB_OK;
}

/* ---- Markdown ---- */

static void markdown_cell(const char *text, struct dpb_str *out)
{
    for (; *text; text++) {
        if (*text == '|')
            dpb_str_append(out, "\\|");
        else
            dpb_str_append_bytes(out, text, 1);
    }
}

static void markdown_row(const struct dpb_option *row, const struct dpb_option_set *set,
                         struct dpb_str *out)
{
    struct dpb_str notes = {0};
    size_t i;

    row_notes(row, set, &notes);
    dpb_str_appendf(out, "| `--%s` | ", row->name);
    markdown_cell(dpb_option_metavar(row), out);
    dpb_str_append(out, " | ");
    markdown_cell(row->help, out);
    dpb_str_append(out, " | ");
    markdown_cell(notes.text ? notes.text : "", out);
    dpb_str_append(out, " |\n");
    if (notes.failed)
        out->failed = true;
    dpb_str_release(&notes);
    for (i = 0; row->type == DPB_OPT_ENUM && row->choices[i].name; i++) {
        if (!row->choices[i].help)
            continue;
        dpb_str_appendf(out, "| | `%s` | ", row->choices[i].name);
        markdown_cell(row->choices[i].help, out);
        dpb_str_append(out, " | |\n");
    }
}

dpb_status dpb_options_markdown(const struct dpb_option_set *set, struct dpb_str *out)
{
    size_t i, row;

    dpb_str_append(out, "# Options\n\nMade by `dpbench list options --markdown` from the tables in "
                        "the code; change them there.\n");
    for (i = 0; i < set->table_count; i++) {
        const struct dpb_option_table *table = set->tables[i];
        const char *category = "";

        if (!table || table->row_count == 0)
            continue;
        if (table->owner[0])
            dpb_str_appendf(out, "\n## %s `%s`\n", table->kind, table->owner);
        else
            dpb_str_appendf(out, "\n## %s\n", table->kind);
        for (row = 0; row < table->row_count; row++) {
            if (strcmp(category, table->rows[row].category) != 0) {
                category = table->rows[row].category;
                dpb_str_appendf(out,
                                "\n### %s\n\n| Option | Value | Meaning | Values |\n"
                                "|---|---|---|---|\n",
                                category);
            }
            markdown_row(&table->rows[row], set, out);
        }
    }
    return out->failed ? dpb_option_log_no_memory() : DPB_OK;
}

/* ---- JSON ---- */

static const char *type_text(enum dpb_option_type type)
{
    static const char *const texts[] = {
            [DPB_OPT_BOOL] = "bool",   [DPB_OPT_INT] = "int",           [DPB_OPT_FLOAT] = "float",
            [DPB_OPT_SIZE] = "size",   [DPB_OPT_DURATION] = "duration", [DPB_OPT_RATE] = "rate",
            [DPB_OPT_RATIO] = "ratio", [DPB_OPT_ENUM] = "enum",         [DPB_OPT_TEXT] = "text",
            [DPB_OPT_PART] = "part",   [DPB_OPT_LINK] = "link",
    };

    return texts[type];
}

static dpb_json *choices_json(const struct dpb_option *row, const struct dpb_option_set *set)
{
    dpb_json *array = dpb_json_array();
    size_t i;

    for (i = 0; row->type == DPB_OPT_ENUM && row->choices[i].name; i++)
        dpb_json_append(array, dpb_json_string(row->choices[i].name));
    for (i = 0; row->type == DPB_OPT_PART && i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, row->name) == 0)
            dpb_json_append(array, dpb_json_string(set->parts[i].name));
    }
    return array;
}

dpb_json *dpb_options_json(const struct dpb_option_set *set)
{
    dpb_json *array = dpb_json_array();
    size_t i, j;

    for (i = 0; i < set->table_count; i++) {
        const struct dpb_option_table *table = set->tables[i];

        for (j = 0; table && j < table->row_count; j++) {
            const struct dpb_option *row = &table->rows[j];
            bool limited = !(row->min == 0 && row->max == 0);
            dpb_json *entry = dpb_json_object();

            dpb_json_set_string(entry, "name", row->name);
            dpb_json_set_string(entry, "kind", table->kind);
            dpb_json_set_string(entry, "owner", table->owner);
            dpb_json_set_string(entry, "type", type_text(row->type));
            dpb_json_set_string(entry, "default", row->default_text);
            if (limited) {
                dpb_json_set_real(entry, "min", row->min);
                dpb_json_set_real(entry, "max", row->max);
            }
            dpb_json_set_string(entry, "unit", row->unit);
            dpb_json_set(entry, "choices", choices_json(row, set));
            dpb_json_set_bool(entry, "auto", (row->flags & DPB_OPT_AUTO) != 0);
            dpb_json_set_bool(entry, "axis", (row->flags & DPB_OPT_NO_AXIS) == 0);
            dpb_json_set_string(entry, "category", row->category);
            dpb_json_set_string(entry, "help", row->help);
            dpb_json_append(array, entry);
        }
    }
    if (dpb_json_ok(array))
        return array;
    dpb_json_free(array);
    return NULL;
}
