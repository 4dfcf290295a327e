/* dpbench list: what there is. */
#include "dpb_cli.h"

#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

struct list_options {
    bool json;
    bool markdown;
};

#define AT(member) offsetof(struct list_options, member)

static const struct dpb_option rows[] = {
        DPB_ROW_JSON(struct list_options, "print JSON"),
        {.name = "markdown",
         .type = DPB_OPT_BOOL,
         .offset = AT(markdown),
         .default_text = "off",
         .category = "Output",
         .help = "print Markdown (options only): docs/options.md"},
};

static const struct dpb_option_table table = {
        "command", "list", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct list_options)};

/* word of the command line -> kind of part */
static const char *const kinds[][2] = {{"workloads", "workload"},
                                       {"strategies", "strategy"},
                                       {"devices", "device"},
                                       {"comms", "comm"}};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static dpb_status list_options(const struct dpb_option_set *set, const struct list_options *o)
{
    if (o->json)
        return dpb_json_print(dpb_options_json(set));
    if (o->markdown) {
        struct dpb_str text = {0};
        dpb_status st = dpb_options_markdown(set, &text);
        if (st == DPB_OK)
            fputs(text.text, stdout);
        dpb_str_release(&text);
        return st;
    }
    for (size_t t = 0; t < set->table_count; t++) {
        const struct dpb_option_table *options = set->tables[t];
        if (options->owner[0])
            printf("%s %s:\n", options->kind, options->owner);
        for (size_t r = 0; r < options->row_count; r++)
            printf("  --%-18s %s (default %s)\n", options->rows[r].name, options->rows[r].help,
                   options->rows[r].default_text[0] ? options->rows[r].default_text : "empty");
    }
    return DPB_OK;
}

static dpb_status list_parts(const struct dpb_option_set *set, const char *kind, bool json)
{
    dpb_json *parts = dpb_json_array();
    for (size_t i = 0; i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, kind) != 0)
            continue;
        dpb_json *part = dpb_json_object();
        dpb_json_set_string(part, "name", set->parts[i].name);
        dpb_json_set_string(part, "summary", set->parts[i].summary);
        dpb_json_append(parts, part);
        if (!json)
            printf("%-16s %s\n", set->parts[i].name, set->parts[i].summary);
    }
    if (json)
        return dpb_json_print(parts);
    dpb_json_free(parts);
    return DPB_OK;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct list_options *o = options;
    const char *word = line->arguments[0];
    if (strcmp(word, "options") == 0)
        return list_options(registry->options, o);
    if (o->markdown) {
        dpb_error("--markdown: cannot take effect for \"%s\"", word);
        dpb_log_hint("only `dpbench list options` can be printed as Markdown");
        return DPB_ERR_USAGE;
    }
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (strcmp(word, kinds[i][0]) == 0)
            return list_parts(registry->options, kinds[i][1], o->json);
    dpb_error("there is no list of \"%s\"", word);
    dpb_log_hint("list one of: workloads, strategies, devices, comms, options");
    return DPB_ERR_USAGE;
}

const struct dpb_verb dpb_verb_list = {
        .command = {.name = "list",
                    .arguments = "workloads|strategies|devices|comms|options",
                    .summary = "name the workloads, strategies, devices, comms and options",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 1},
        .run = run,
};
