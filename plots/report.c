/* Writes the files of a report. */
#include "dpb_report.h"

#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "document.h"
#include "dpb_log.h"
#include "gnuplot.h"
#include "plot.h"

static dpb_status no_memory(const char *folder)
{
    dpb_error("cannot write the report in \"%s\": out of memory", folder);
    return DPB_ERR_NO_MEMORY;
}

static dpb_status make_plots(const struct dpb_summary *summary,
                             const struct dpb_report_config *config, struct dpb_plot_list *plots,
                             struct dpb_report_result *result)
{
    char *folder = dpb_path_join(config->folder, "plots");
    char *gnuplot = dpb_gnuplot_find(config->gnuplot);
    dpb_status st = folder ? dpb_mkdir_p(folder) : no_memory(config->folder);
    size_t i;

    if (st == DPB_OK) {
        dpb_plots_scaling(summary, plots);
        dpb_plots_bucket(summary, plots);
        dpb_plots_breakdown(summary, plots);
        dpb_plots_loss(summary, plots);
        if (plots->failed)
            st = no_memory(config->folder);
    }
    if (st == DPB_OK && !gnuplot && plots->count > 0) {
        dpb_warn("\"%s\" cannot be run, so the report has no plots",
                 config->gnuplot ? config->gnuplot : "gnuplot");
        dpb_log_hint("install gnuplot-nox and make the report again; data and scripts of the plots "
                     "are written");
    }
    if (st == DPB_OK)
        st = dpb_plots_draw(plots, folder, gnuplot);
    for (i = 0; i < plots->count; i++) {
        result->plots += plots->items[i].drawn;
        result->plots_skipped += !plots->items[i].drawn;
    }
    free(folder);
    free(gnuplot);
    return st;
}

static dpb_status write_json(const struct dpb_summary *summary,
                             const struct dpb_report_config *config, const dpb_json *notes)
{
    char *path = dpb_path_join(config->folder, "report.json");
    dpb_json *json = dpb_summary_json(summary);
    dpb_status st;

    dpb_json_set_string(json, "title", config->title);
    dpb_json_set(json, "notes", dpb_json_copy(notes));
    if (config->evidence)
        dpb_json_set(json, "targets", dpb_evidence_json(config->evidence));
    else
        dpb_json_set_absent(json, "targets", "the run has none, or is not complete");
    st = path && dpb_json_ok(json) ? dpb_json_write_file(json, path) : no_memory(config->folder);
    dpb_json_free(json);
    free(path);
    return st;
}

static dpb_status write_texts(const struct dpb_document *document,
                              const struct dpb_report_config *config,
                              const struct dpb_report_result *result)
{
    struct dpb_str text = {0};
    dpb_status st;

    dpb_document_markdown(document, &text);
    st = text.failed ? no_memory(config->folder)
                     : dpb_file_write_atomic(result->markdown_path, text.text, text.length);
    dpb_str_release(&text);
    if (st < 0)
        return st;
    st = dpb_document_html(document, config->title ? config->title : "dpbench report",
                           config->folder, &text);
    if (st == DPB_ERR_NO_MEMORY)
        no_memory(config->folder);
    if (st == DPB_OK)
        st = dpb_file_write_atomic(result->html_path, text.text, text.length);
    dpb_str_release(&text);
    return st;
}

/* False when the path is too long for `path`. */
static bool join(const char *folder, const char *name, char path[4096])
{
    return snprintf(path, 4096, "%s/%s", folder, name) < 4096;
}

dpb_status dpb_report_write(const struct dpb_summary *summary,
                            const struct dpb_report_config *config,
                            struct dpb_report_result *result)
{
    struct dpb_report_result made = {0};
    struct dpb_plot_list plots = {0};
    struct dpb_document document = {0};
    dpb_json *notes = dpb_summary_notes(summary);
    dpb_status st;

    if (!join(config->folder, "report.md", made.markdown_path) ||
        !join(config->folder, "report.html", made.html_path)) {
        dpb_error("cannot write the report in \"%s\": the path is too long", config->folder);
        st = DPB_ERR_USAGE;
        goto out;
    }
    DPB_TRY_GOTO(st, make_plots(summary, config, &plots, &made), out);
    dpb_content_build(summary, config, &plots, notes, &document);
    st = document.failed ? no_memory(config->folder) : write_texts(&document, config, &made);
    if (st == DPB_OK)
        st = write_json(summary, config, notes);
    if (st == DPB_OK)
        *result = made;
out:
    dpb_document_release(&document);
    dpb_plot_list_release(&plots);
    dpb_json_free(notes);
    return st;
}
