/* Writes the files of a plan, and prints it. */
#include "dpb_plan_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_text_table.h"
#include "gnuplot.h"
#include "plan_view.h"
#include "view.h"

static dpb_status no_memory(void)
{
    dpb_error("cannot write the plan: out of memory");
    return DPB_ERR_NO_MEMORY;
}

double plan_number(const dpb_json *object, const char *key)
{
    return dpb_json_as_real(dpb_json_get(object, key), NAN);
}

const char *plan_text(const dpb_json *object, const char *key)
{
    return dpb_json_as_string(dpb_json_get(object, key), "");
}

void plan_strategy_name(const dpb_json *option, struct dpb_str *out)
{
    static const char *const more[] = {"bucket", "settings"};

    dpb_str_append(out, plan_text(option, "strategy"));
    for (size_t m = 0; m < sizeof(more) / sizeof(more[0]); m++)
        if (plan_text(option, more[m])[0])
            dpb_str_appendf(out, " %s", plan_text(option, more[m]));
}

struct plan_unit plan_time_unit(const dpb_json *plan)
{
    const dpb_json *options = dpb_json_get(plan, "options");
    double shortest_s = INFINITY;

    for (size_t i = 0; i < dpb_json_size(options); i++)
        shortest_s = fmin(shortest_s, plan_number(dpb_json_at(options, i), "wall_s"));
    return shortest_s >= 86400  ? (struct plan_unit){"days", 86400}
           : shortest_s >= 3600 ? (struct plan_unit){"hours", 3600}
                                : (struct plan_unit){"minutes", 60};
}

/* ---- files ---- */

static dpb_status make_plots(const dpb_json *plan, const char *folder, const char *wanted,
                             struct dpb_plot_list *plots, struct dpb_report_result *result)
{
    char *inside = dpb_path_join(folder, "plots");
    char *gnuplot = dpb_gnuplot_find(wanted);
    dpb_status st = inside ? dpb_mkdir_p(inside) : no_memory();

    plan_plots_build(plan, plots);
    if (st == DPB_OK && plots->failed)
        st = no_memory();
    if (st == DPB_OK && !gnuplot) {
        dpb_warn("\"%s\" cannot be run, so the plan has no plots", wanted ? wanted : "gnuplot");
        dpb_log_hint("install gnuplot-nox and make the plan again; data and scripts of the plots "
                     "are written");
    }
    if (st == DPB_OK)
        st = dpb_plots_draw(plots, inside, gnuplot);
    for (size_t i = 0; i < plots->count; i++) {
        result->plots += plots->items[i].drawn;
        result->plots_skipped += !plots->items[i].drawn;
    }
    free(inside);
    free(gnuplot);
    return st;
}

static dpb_status write_text(const struct dpb_str *text, const char *path)
{
    return text->failed ? no_memory() : dpb_file_write_atomic(path, text->text, text->length);
}

static dpb_status write_document(const struct dpb_document *document, const char *title,
                                 const char *folder, const struct dpb_report_result *result)
{
    struct dpb_str markdown = {0}, html = {0};
    dpb_status st = document->failed ? no_memory() : DPB_OK;

    if (st == DPB_OK) {
        dpb_document_markdown(document, &markdown);
        st = write_text(&markdown, result->markdown_path);
    }
    if (st == DPB_OK)
        st = dpb_document_html(document, title, folder, &html);
    if (st == DPB_OK)
        st = write_text(&html, result->html_path);
    dpb_str_release(&markdown);
    dpb_str_release(&html);
    return st;
}

static dpb_status write_json(const dpb_json *plan, const char *folder)
{
    char *path = dpb_path_join(folder, "report.json");
    const dpb_status st = path ? dpb_json_write_file(plan, path) : no_memory();

    free(path);
    return st;
}

dpb_status dpb_plan_page_write(const dpb_json *plan, const char *folder, const char *gnuplot,
                               struct dpb_report_result *result)
{
    struct dpb_report_result made = {0};
    struct dpb_plot_list plots = {0};
    struct dpb_document document = {0};
    dpb_status st;

    if (snprintf(made.markdown_path, sizeof(made.markdown_path), "%s/report.md", folder) >=
                (int)sizeof(made.markdown_path) ||
        snprintf(made.html_path, sizeof(made.html_path), "%s/report.html", folder) >=
                (int)sizeof(made.html_path)) {
        dpb_error("cannot write the plan in \"%s\": the path is too long", folder);
        return DPB_ERR_USAGE;
    }
    DPB_TRY_GOTO(st, make_plots(plan, folder, gnuplot, &plots, &made), out);
    plan_content_build(plan, &plots, &document);
    DPB_TRY_GOTO(st, write_document(&document, plan_text(plan, "name"), folder, &made), out);
    DPB_TRY_GOTO(st, write_json(plan, folder), out);
    *result = made;
out:
    dpb_document_release(&document);
    dpb_plot_list_release(&plots);
    return st;
}

/* ---- the terminal ---- */

#define COLUMNS 8

/* "horovod fp16" of "horovod compression=fp16": the line has no room for names. */
static void append_values(const dpb_json *option, struct dpb_str *out)
{
    struct dpb_str name = {0};

    plan_strategy_name(option, &name);
    for (const char *word = name.failed ? NULL : name.text; word; word = strchr(word, ' ')) {
        const char *text = word + strspn(word, " ");
        const char *value = text + strcspn(text, "= ");

        dpb_str_append(out, out->length > 0 ? " " : "");
        word = *value == '=' ? value + 1 : text;
        dpb_str_appendf(out, "%.*s", (int)strcspn(word, " "), word);
    }
    dpb_str_release(&name);
}

/* The chosen option has an asterisk. */
static void option_cells(const dpb_json *option, bool is_chosen, struct plan_unit unit,
                         struct dpb_str cell[COLUMNS])
{
    const double cost = plan_number(option, "cost");

    dpb_str_appendf(&cell[0], "%s%s", is_chosen ? "* " : "  ", plan_text(option, "machine"));
    dpb_str_appendf(&cell[1], "%lld",
                    (long long)dpb_json_as_int(dpb_json_get(option, "accelerators"), 0));
    append_values(option, &cell[2]);
    dpb_view_ms(plan_number(option, "step_ns"), &cell[3]);
    dpb_view_percent(plan_number(option, "efficiency"), &cell[4]);
    dpb_view_rate(plan_number(option, "wall_s") / unit.seconds, &cell[5]);
    dpb_view_number(cost, cost < 100 ? 2 : 0, &cell[6]);
    dpb_str_append(&cell[7], dpb_json_as_bool(dpb_json_get(option, "fits"), false) ? "yes" : "no");
}

static dpb_status print_options(const dpb_json *plan, FILE *out, int width)
{
    const struct plan_unit unit = plan_time_unit(plan);
    const struct dpb_text_column columns[COLUMNS] = {
            {"machine", DPB_TEXT_WORD},    {"GPUs", DPB_TEXT_NUMBER},
            {"strategy", DPB_TEXT_LONG},   {"step ms", DPB_TEXT_NUMBER},
            {"eff. %", DPB_TEXT_NUMBER},   {unit.name, DPB_TEXT_NUMBER},
            {"cost USD", DPB_TEXT_NUMBER}, {"fits", DPB_TEXT_WORD}};
    const dpb_json *options = dpb_json_get(plan, "options");
    const int64_t chosen = dpb_json_as_int(dpb_json_path(plan, "answer/option"), -1);
    const size_t count = dpb_json_size(options);
    struct dpb_str *cells = calloc(count * COLUMNS + 1, sizeof(*cells));
    const char **texts = calloc(count * COLUMNS + 1, sizeof(*texts));
    bool failed = !cells || !texts;
    dpb_status st;

    for (size_t i = 0; i < count && !failed; i++)
        option_cells(dpb_json_at(options, i), (int64_t)i == chosen, unit, &cells[i * COLUMNS]);
    for (size_t c = 0; c < count * COLUMNS && !failed; c++) {
        failed = cells[c].failed;
        texts[c] = cells[c].text;
    }
    st = failed ? no_memory() : dpb_text_table_print(columns, COLUMNS, texts, count, out, width);
    for (size_t c = 0; cells && c < count * COLUMNS; c++)
        dpb_str_release(&cells[c]);
    free(cells);
    free(texts);
    return st;
}

dpb_status dpb_plan_page_print(const dpb_json *plan, FILE *out, int width)
{
    const dpb_json *answer = dpb_json_get(plan, "answer");
    const dpb_json *sentences = dpb_json_get(answer, "sentences");
    const size_t warnings = dpb_json_size(dpb_json_get(plan, "warnings"));

    fprintf(out, "%s\n", plan_text(answer, "text"));
    for (size_t i = 0; i < dpb_json_size(sentences); i++)
        fprintf(out, "- %s\n", dpb_json_as_string(dpb_json_at(sentences, i), ""));
    fprintf(out, "\n");
    DPB_TRY(print_options(plan, out, width));
    fprintf(out, "Simulated, nothing was measured here. %zu warning%s in the report.\n", warnings,
            warnings == 1 ? "" : "s");
    return DPB_OK;
}
