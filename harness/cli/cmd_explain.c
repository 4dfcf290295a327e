/* dpbench explain: the synchronisation plan of a configuration, before it is run. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_explain.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_text_table.h"
#include "dpb_units.h"

#define ROWS_SHOWN    24 /* of a table, without --verbose */
#define MEMBERS_SHOWN 2  /* of a unit, without --verbose */
#define RANKS_DEFAULT "2"

struct explain_options {
    bool json;
    bool verbose;
};

static const struct dpb_option rows[] = {
        DPB_ROW_JSON(struct explain_options, "print the plans, messages and notes as JSON"),
        {.name = "verbose",
         .type = DPB_OPT_BOOL,
         .offset = offsetof(struct explain_options, verbose),
         .default_text = "off",
         .category = "Output",
         .help = "name every tensor of every unit, and every message"},
};

static const struct dpb_option_table table = {
        "command", "explain", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct explain_options)};

/* ---- a table that is made row by row ---- */

struct sheet {
    const struct dpb_text_column *columns;
    size_t column_count;
    char **cells;
    size_t count, capacity;
    bool failed;
};

static void take(struct sheet *sheet, struct dpb_str *cell)
{
    if (sheet->count == sheet->capacity) {
        size_t capacity = 2 * sheet->capacity + 64;
        char **cells = realloc(sheet->cells, capacity * sizeof(*cells));
        if (cells) {
            sheet->cells = cells;
            sheet->capacity = capacity;
        }
    }
    if (sheet->count == sheet->capacity || cell->failed || !cell->text) {
        sheet->failed = true;
        dpb_str_release(cell);
        return;
    }
    sheet->cells[sheet->count++] = cell->text;
    *cell = (struct dpb_str){0};
}

static void take_text(struct sheet *sheet, const char *text)
{
    struct dpb_str cell = {0};
    dpb_str_append(&cell, text);
    take(sheet, &cell);
}

static void take_size(struct sheet *sheet, int64_t bytes)
{
    char text[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)bytes, 3, text, sizeof(text));
    take_text(sheet, text);
}

static dpb_status print_sheet(struct sheet *sheet)
{
    dpb_status st = sheet->failed
                            ? DPB_ERR_NO_MEMORY
                            : dpb_text_table_print(sheet->columns, sheet->column_count,
                                                   (const char *const *)sheet->cells,
                                                   sheet->count / sheet->column_count, stdout, 0);
    for (size_t i = 0; i < sheet->count; i++)
        free(sheet->cells[i]);
    free(sheet->cells);
    return st;
}

/* Of `count` rows the first and the last ones are shown; a row of dots stands for the others. */
static bool is_elided(int row, int count, bool verbose, struct sheet *sheet)
{
    if (verbose || count <= ROWS_SHOWN || row < ROWS_SHOWN / 2 || row >= count - ROWS_SHOWN / 2)
        return false;
    for (size_t c = 0; row == ROWS_SHOWN / 2 && c < sheet->column_count; c++)
        take_text(sheet, c ? "" : "...");
    return true;
}

static void say_elided(int count, const char *what, bool verbose)
{
    if (!verbose && count > ROWS_SHOWN)
        printf("...: %d more %s; --verbose shows them\n", count - ROWS_SHOWN, what);
}

/* ---- units ---- */

static void append_members(const struct dpb_explanation *x, const struct dpb_unit *unit,
                           bool verbose, struct dpb_str *out)
{
    int shown =
            verbose || unit->member_count <= MEMBERS_SHOWN + 1 ? unit->member_count : MEMBERS_SHOWN;
    for (int m = 0; m < shown; m++)
        dpb_str_appendf(out, "%s%s", m ? ", " : "",
                        x->model->params[x->steady.member[unit->first_member + m]].name);
    if (shown < unit->member_count)
        dpb_str_appendf(
                out, ", ... %s",
                x->model->params[x->steady.member[unit->first_member + unit->member_count - 1]]
                        .name);
}

static dpb_status print_units(const struct dpb_explanation *x)
{
    static const struct dpb_text_column columns[] = {{"unit", DPB_TEXT_NUMBER},
                                                     {"bytes", DPB_TEXT_NUMBER},
                                                     {"tensors", DPB_TEXT_NUMBER},
                                                     {"which", DPB_TEXT_LONG}};
    struct sheet sheet = {.columns = columns, .column_count = 4};

    for (int u = 0; u < x->steady.unit_count; u++) {
        struct dpb_str cell = {0};
        if (is_elided(u, x->steady.unit_count, false, &sheet))
            continue;
        dpb_str_appendf(&cell, "%d", u);
        take(&sheet, &cell);
        take_size(&sheet, x->steady.units[u].bytes);
        dpb_str_appendf(&cell, "%d", x->steady.units[u].member_count);
        take(&sheet, &cell);
        append_members(x, &x->steady.units[u], false, &cell);
        take(&sheet, &cell);
    }
    DPB_TRY(print_sheet(&sheet));
    say_elided(x->steady.unit_count, "units", false);
    return DPB_OK;
}

/* Every tensor by name, however many: no table. */
static dpb_status list_units(const struct dpb_explanation *x)
{
    for (int u = 0; u < x->steady.unit_count; u++) {
        struct dpb_str line = {0};
        char size[DPB_UNIT_TEXT_BYTES];
        dpb_human_size((double)x->steady.units[u].bytes, 3, size, sizeof(size));
        append_members(x, &x->steady.units[u], true, &line);
        if (line.failed)
            return DPB_ERR_NO_MEMORY;
        printf("unit %d, %s: %s\n", u, size, line.text);
        dpb_str_release(&line);
    }
    return DPB_OK;
}

/* ---- messages ---- */

static const char *const after_texts[] = {
        [DPB_SYNC_BEFORE_FORWARD] = "step begins", [DPB_SYNC_FORWARD] = "forward to ",
        [DPB_SYNC_BACKWARD_USE] = "backward to ",  [DPB_SYNC_GRADIENT] = "",
        [DPB_SYNC_AFTER_BACKWARD] = "backward",    [DPB_SYNC_AFTER_OPTIMIZER] = "optimizer",
};

static void take_message(const struct dpb_explanation *x, const struct dpb_explain_message *message,
                         struct sheet *sheet)
{
    const struct dpb_sync_message *what = &message->what;
    struct dpb_str cell = {0};
    char text[DPB_UNIT_TEXT_BYTES];

    dpb_str_appendf(&cell, what->unit >= 0 ? "%d" : "-", what->unit);
    take(sheet, &cell);
    dpb_str_append(&cell, what->name ? what->name : dpb_coll_text(what->kind));
    if (what->dtype != DPB_F32)
        dpb_str_appendf(&cell, " (%s)", dpb_dtype_text(what->dtype));
    take(sheet, &cell);
    take_size(sheet, message->bytes);
    dpb_str_appendf(&cell, "%s%s", after_texts[what->when],
                    message->after >= 0 ? x->model->params[message->after].name : "");
    take(sheet, &cell);
    if (isfinite(message->backward_done))
        dpb_str_appendf(&cell, "%.1f %%", 100 * message->backward_done);
    else
        dpb_str_append(&cell, "-");
    take(sheet, &cell);
    take_size(sheet, message->wire_bytes);
    if (x->has_link) {
        dpb_human_duration((double)message->wire_ns, 3, text, sizeof(text));
        take_text(sheet, text);
    }
    take_text(sheet, message->always_exposed ? "never" : "may");
}

static dpb_status print_messages(const struct dpb_explanation *x, bool verbose)
{
    static const struct dpb_text_column with_link[] = {
            {"unit", DPB_TEXT_NUMBER}, {"message", DPB_TEXT_WORD},    {"bytes", DPB_TEXT_NUMBER},
            {"after", DPB_TEXT_LONG},  {"backward", DPB_TEXT_NUMBER}, {"sent", DPB_TEXT_NUMBER},
            {"link", DPB_TEXT_NUMBER}, {"hides", DPB_TEXT_WORD}};
    static const struct dpb_text_column without_link[] = {
            {"unit", DPB_TEXT_NUMBER}, {"message", DPB_TEXT_WORD},    {"bytes", DPB_TEXT_NUMBER},
            {"after", DPB_TEXT_LONG},  {"backward", DPB_TEXT_NUMBER}, {"sent", DPB_TEXT_NUMBER},
            {"hides", DPB_TEXT_WORD}};
    struct sheet sheet = {.columns = x->has_link ? with_link : without_link,
                          .column_count = x->has_link ? 8 : 7};

    printf("\n");
    for (int i = 0; i < x->message_count; i++)
        if (!is_elided(i, x->message_count, verbose, &sheet))
            take_message(x, &x->messages[i], &sheet);
    DPB_TRY(print_sheet(&sheet));
    say_elided(x->message_count, "messages", verbose);
    printf("backward: share of that pass's FLOP that is done by then; sent: by each rank; hides: "
           "may,\n"
           "behind the rest of the pass; never, since nothing is computed meanwhile.\n");
    return DPB_OK;
}

/* ---- exchanges ---- */

static void take_exchange(const struct dpb_explanation *x,
                          const struct dpb_explain_exchange *exchange, struct sheet *sheet)
{
    const struct dpb_workload_exchange *what = &exchange->what;
    char text[DPB_UNIT_TEXT_BYTES];

    take_text(sheet, what->name);
    take_text(sheet, dpb_coll_text(what->kind));
    take_size(sheet, exchange->bytes);
    take_text(sheet, what->pass == DPB_PASS_FORWARD ? "forward" : "backward");
    take_size(sheet, exchange->wire_bytes);
    if (x->has_link) {
        dpb_human_duration((double)exchange->wire_ns, 3, text, sizeof(text));
        take_text(sheet, text);
    }
    take_text(sheet, what->meanwhile ? what->meanwhile : "never");
}

static bool is_first_of_formula(const struct dpb_explanation *x, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(x->exchanges[k].what.formula, x->exchanges[i].what.formula) == 0)
            return false;
    return true;
}

static void print_formulas(const struct dpb_explanation *x)
{
    char size[DPB_UNIT_TEXT_BYTES];

    for (int i = 0; i < x->exchange_count; i++) {
        if (!is_first_of_formula(x, i))
            continue;
        dpb_human_size((double)x->exchanges[i].bytes, 3, size, sizeof(size));
        printf("%s%s = %s\n", i ? "       " : "bytes: ", size, x->exchanges[i].what.formula);
    }
}

static dpb_status print_exchanges(const struct dpb_explanation *x, bool verbose)
{
    static const struct dpb_text_column with_link[] = {
            {"exchange", DPB_TEXT_LONG},    {"collective", DPB_TEXT_WORD},
            {"bytes", DPB_TEXT_NUMBER},     {"pass", DPB_TEXT_WORD},
            {"sent", DPB_TEXT_NUMBER},      {"link", DPB_TEXT_NUMBER},
            {"hides behind", DPB_TEXT_WORD}};
    static const struct dpb_text_column without_link[] = {
            {"exchange", DPB_TEXT_LONG}, {"collective", DPB_TEXT_WORD},
            {"bytes", DPB_TEXT_NUMBER},  {"pass", DPB_TEXT_WORD},
            {"sent", DPB_TEXT_NUMBER},   {"hides behind", DPB_TEXT_WORD}};
    struct sheet sheet = {.columns = x->has_link ? with_link : without_link,
                          .column_count = x->has_link ? 7 : 6};

    printf("\nthe network itself exchanges, in every %s:\n\n",
           x->exchanges[0].times > 1 ? "micro-batch" : "step");
    for (int i = 0; i < x->exchange_count; i++)
        if (!is_elided(i, x->exchange_count, verbose, &sheet))
            take_exchange(x, &x->exchanges[i], &sheet);
    DPB_TRY(print_sheet(&sheet));
    say_elided(x->exchange_count, "exchanges", verbose);
    print_formulas(x);
    return DPB_OK;
}

/* ---- the rest ---- */

static void print_head(const struct dpb_explanation *x)
{
    char size[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)x->gradient_bytes, 3, size, sizeof(size));
    printf("%s, strategy %s, %d rank%s of %" PRId64 " samples: %d gradients, %s\n", x->workload,
           x->strategy, x->ranks, x->ranks == 1 ? "" : "s", x->batch_per_rank,
           x->model->param_count, size);
    if (x->replans)
        printf("step 1: %d unit%s; from step 2 on:\n\n", x->first.unit_count,
               x->first.unit_count == 1 ? "" : "s");
    else if (x->message_count > 0 && x->messages[0].what.every > 1)
        printf("one step in %" PRId64 ":\n\n", x->messages[0].what.every);
    else
        printf("every step:\n\n");
}

static void print_levels(const struct dpb_explanation *x)
{
    char inside[DPB_UNIT_TEXT_BYTES], between[DPB_UNIT_TEXT_BYTES], node[DPB_UNIT_TEXT_BYTES];
    if (x->nodes < 2 || !x->counts_levels)
        return;
    dpb_human_size((double)x->level_bytes.inside_bytes, 3, inside, sizeof(inside));
    dpb_human_size((double)x->level_bytes.between_bytes, 3, between, sizeof(between));
    dpb_human_size((double)x->node_wire_bytes, 3, node, sizeof(node));
    printf("on %d nodes: a rank sends at most %s inside its node and %s to others, a node %s\n",
           x->nodes, inside, between, node);
}

static void print_totals(const struct dpb_explanation *x)
{
    char text[DPB_UNIT_TEXT_BYTES], exposed[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)x->wire_bytes, 3, text, sizeof(text));
    printf("\nper step and rank: %" PRId64 " message%s", x->sent_count,
           x->sent_count == 1 ? "" : "s");
    if (x->message_count > 0 && x->messages[0].what.every > 1)
        printf(" in %" PRId64 " steps", x->messages[0].what.every);
    if (x->exchange_count > 0)
        printf(" and %" PRId64 " exchanges", x->exchanged_count);
    printf(", %s%s sent (algorithm %s)\n", x->counts_levels ? "" : "at least ", text,
           x->algorithm[0] ? x->algorithm : "unknown");
    print_levels(x);
    if (x->has_link) {
        char rate[DPB_UNIT_TEXT_BYTES], latency[DPB_UNIT_TEXT_BYTES];
        dpb_format_rate(x->link.bw_bytes_per_s, rate, sizeof(rate));
        dpb_format_duration(x->link.latency_ns, latency, sizeof(latency));
        dpb_human_duration((double)x->wire_ns, 3, text, sizeof(text));
        dpb_human_duration((double)x->exposed_wire_ns, 3, exposed, sizeof(exposed));
        printf("on a link of %s, %s: %s, of which %s can never hide\n", rate, latency, text,
               exposed);
    }
    if (x->hidden_within_ns > 0) {
        dpb_human_duration((double)x->hidden_within_ns, 3, text, sizeof(text));
        printf("the rest hides behind a backward pass of %s or more\n", text);
    }
}

static void print_part(const char *name, int64_t bytes, int64_t alone)
{
    char text[DPB_UNIT_TEXT_BYTES], other[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)bytes, 3, text, sizeof(text));
    dpb_human_size((double)alone, 3, other, sizeof(other));
    printf("  %-14s %10s   %10s\n", name, text, other);
}

static void print_memory(const struct dpb_explanation *x)
{
    const struct dpb_step_memory *m = &x->memory, *alone = &x->alone;
    printf("\nmemory per rank, without activations   one rank alone\n");
    print_part("parameters", m->parameters, alone->parameters);
    print_part("gradients", m->gradients, alone->gradients);
    print_part("optimizer", m->optimizer, alone->optimizer);
    print_part("communication", m->communication, alone->communication);
    print_part("strategy", m->strategy, alone->strategy);
    print_part("sum", dpb_step_memory_sum(m), dpb_step_memory_sum(alone));
}

static void print_notes(const struct dpb_explanation *x)
{
    for (size_t i = 0; i < dpb_json_size(x->notes); i++)
        printf("%s- %s\n", i ? "" : "\nnotes\n", dpb_json_as_string(dpb_json_at(x->notes, i), ""));
}

static dpb_status print_text(const struct dpb_explanation *x, bool verbose)
{
    print_head(x);
    DPB_TRY(verbose ? list_units(x) : print_units(x));
    if (x->message_count > 0)
        DPB_TRY(print_messages(x, verbose));
    if (x->exchange_count > 0)
        DPB_TRY(print_exchanges(x, verbose));
    if (x->message_count + x->exchange_count > 0)
        print_totals(x);
    print_memory(x);
    print_notes(x);
    return DPB_OK;
}

/* ---- the verb ---- */

/* What acts on a run only; ranks have a default that shows something. */
static dpb_status settings_of(const struct dpb_registry *registry, const struct dpb_settings *given,
                              struct dpb_settings *settings)
{
    static const char *const names[] = {"repeats",      "trace-steps",   "evaluate",
                                        "probe-limit",  "probe-retries", "timeout",
                                        "stall-timeout"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!dpb_settings_find(given, names[i]))
            continue;
        dpb_error("--%s: cannot take effect: explain runs nothing", names[i]);
        dpb_log_hint("leave --%s out", names[i]);
        return DPB_ERR_USAGE;
    }
    if (!dpb_settings_find(given, "ranks"))
        DPB_TRY(dpb_settings_add(settings, registry->options, "ranks", RANKS_DEFAULT,
                                 "default of explain"));
    return dpb_settings_override(settings, given);
}

static dpb_status explain_cell(const struct dpb_registry *registry,
                               const struct dpb_plan_cell *cell, const struct explain_options *o,
                               dpb_json *all)
{
    struct dpb_explanation explanation = {0};
    dpb_status st = dpb_explain(registry, cell->config, &explanation);
    if (st == DPB_OK && all)
        dpb_json_append(all, dpb_explanation_json(&explanation));
    else if (st == DPB_OK)
        st = print_text(&explanation, o->verbose);
    dpb_explanation_release(&explanation);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct explain_options *o = options;
    struct dpb_settings settings = {0};
    struct dpb_plan plan = {0};
    dpb_json *all = o->json ? dpb_json_array() : NULL;
    dpb_status st;
    DPB_TRY_GOTO(st, settings_of(registry, &line->experiment, &settings), out);
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &settings,
            .sweep = true,
            .cores = dpb_host_cores(),
            .name = "explain",
    };
    DPB_TRY_GOTO(st, dpb_plan_build(&input, &plan), out);
    for (size_t i = 0; i < plan.cell_count; i++) {
        if (!o->json && plan.cell_count > 1)
            printf("%s==== %s ====\n", i ? "\n" : "", plan.cells[i].label);
        DPB_TRY_GOTO(st, explain_cell(registry, &plan.cells[i], o, all), out);
    }
    if (o->json) {
        st = dpb_json_print(all);
        all = NULL;
    }
out:
    dpb_json_free(all);
    dpb_plan_release(&plan);
    dpb_settings_release(&settings);
    return st;
}

const struct dpb_verb dpb_verb_explain = {
        .command = {.name = "explain",
                    .arguments = "",
                    .summary = "tell the synchronisation plan of a configuration before it is run",
                    .description =
                            "Which gradients travel together, when each message can go, what is "
                            "sent per rank, what can never hide behind computing, and what memory "
                            "the strategy takes. No rank is started. A list, such as --bucket "
                            "1MiB,25MiB, explains one configuration after the other.",
                    .table = &table,
                    .takes_experiment = true},
        .run = run,
};
