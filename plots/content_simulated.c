/* Simulated cells: what they stand on, and how far they are from what was measured. */
#include "content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_stats.h"
#include "dpb_text_table.h"
#include "view.h"

static const dpb_json *simulation_of(const struct dpb_cell_summary *cell)
{
    const dpb_json *simulation = dpb_json_get(cell->first, "simulation");

    return cell->repeats_ok > 0 && dpb_json_type(simulation) == DPB_JSON_OBJECT ? simulation : NULL;
}

static const char *text_at(const dpb_json *object, const char *path)
{
    return dpb_json_as_string(dpb_json_path(object, path), "");
}

static bool any(const struct dpb_cell_summary *const *cells, size_t count,
                const dpb_json *(*of)(const struct dpb_cell_summary *))
{
    for (size_t c = 0; c < count; c++)
        if (of(cells[c]))
            return true;
    return false;
}

static void take_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                       struct dpb_document *document)
{
    struct dpb_str label = {0};

    dpb_cell_label(summary, cell, &label);
    dpb_document_take(document, &label);
}

/* ---- where the numbers come from ---- */

/* " (up to 4 times beyond, to 1/64 below what was measured)" */
static void append_distance(const dpb_json *network, struct dpb_str *text)
{
    const double beyond = dpb_json_as_real(dpb_json_get(network, "extrapolated_by"), NAN),
                 below = dpb_json_as_real(dpb_json_get(network, "extrapolated_below"), NAN);

    if (isnan(beyond) && isnan(below))
        return;
    dpb_str_append(text, " (");
    if (!isnan(beyond))
        dpb_str_appendf(text, "up to %.3g times beyond%s", beyond, isnan(below) ? "" : ", ");
    if (!isnan(below))
        dpb_str_appendf(text, "down to 1/%.0f below", below);
    dpb_str_append(text, " what was measured)");
}

/* "measured 20 %, extrapolated 80 % (up to 4 times beyond what was measured)" */
static void take_origins(const dpb_json *simulation, struct dpb_document *document)
{
    static const char *const origins[] = {"measured", "interpolated", "extrapolated", "assumed"};
    const dpb_json *network = dpb_json_get(simulation, "network");
    struct dpb_str text = {0};

    for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++) {
        char key[64];

        snprintf(key, sizeof(key), "%s_share", origins[i]);
        const double share = dpb_json_as_real(dpb_json_get(network, key), 0);
        if (share > 0)
            dpb_str_appendf(&text, "%s%s %.0f %%", text.length ? ", " : "", origins[i],
                            100 * share);
        if (share > 0 && strcmp(origins[i], "extrapolated") == 0)
            append_distance(network, &text);
    }
    if (text.length == 0)
        dpb_str_append(&text, DPB_VIEW_ABSENT);
    dpb_document_take(document, &text);
}

static void take_compute(const dpb_json *simulation, struct dpb_document *document)
{
    const dpb_json *profile = dpb_json_get(simulation, "profile");
    const double scaled_by = dpb_json_as_real(dpb_json_get(profile, "scaled_by"), 1);
    struct dpb_str text = {0};

    if (dpb_json_type(profile) != DPB_JSON_OBJECT) {
        dpb_document_cell(document, "roofline");
        return;
    }
    dpb_str_appendf(&text, "profile %s, batch %s", text_at(profile, "file"),
                    text_at(profile, "batch"));
    if (scaled_by != 1)
        dpb_str_appendf(&text, ", times %.3g (assumed) for another precision", scaled_by);
    dpb_document_take(document, &text);
}

void dpb_content_simulated_machine(const struct dpb_summary *summary, struct dpb_str *out)
{
    dpb_str_append(out, "Machine: simulated, by the profile ");
    for (size_t c = 0, told = 0; c < summary->cell_count; c++) {
        const char *name = text_at(simulation_of(&summary->cells[c]), "machine");
        size_t before = 0;

        while (before < c &&
               strcmp(text_at(simulation_of(&summary->cells[before]), "machine"), name) != 0)
            before++;
        if (before == c && name[0])
            dpb_str_appendf(out, "%s%s", told++ ? ", " : "", name);
    }
    dpb_str_append(out, ". Simulated on this host, which changes no result: ");
}

static void take_unused(const dpb_json *simulation, struct dpb_document *document)
{
    const dpb_json *unused = dpb_json_get(simulation, "figures_without_effect");
    struct dpb_str text = {0};

    for (size_t i = 0; i < dpb_json_size(unused); i++)
        dpb_str_appendf(&text, "%s%s", i ? ", " : "",
                        dpb_json_as_string(dpb_json_at(unused, i), ""));
    if (text.length == 0)
        dpb_str_append(&text, DPB_VIEW_ABSENT);
    dpb_document_take(document, &text);
}

static void take_count(const dpb_json *simulation, const char *key, struct dpb_document *document)
{
    struct dpb_str text = {0};

    dpb_str_appendf(&text, "%" PRId64, dpb_json_as_int(dpb_json_get(simulation, key), 0));
    dpb_document_take(document, &text);
}

static void add_origins(const struct dpb_summary *summary,
                        const struct dpb_cell_summary *const *cells, struct dpb_document *document)
{
    static const char *const columns[] = {"simulated cell",
                                          "machine",
                                          "compute",
                                          "time of collectives",
                                          "figures without effect",
                                          "figures with a source",
                                          "figures assumed"};

    dpb_document_heading(document, 3, "What the simulation stands on");
    dpb_document_table(document, sizeof(columns) / sizeof(columns[0]), 5);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        dpb_document_cell(document, columns[i]);
    for (size_t c = 0; c < summary->cell_count; c++) {
        const dpb_json *simulation = simulation_of(cells[c]);

        if (!simulation)
            continue;
        take_label(summary, cells[c], document);
        dpb_document_cell(document, text_at(simulation, "machine"));
        take_compute(simulation, document);
        take_origins(simulation, document);
        take_unused(simulation, document);
        take_count(simulation, "figures_with_source", document);
        take_count(simulation, "figures_assumed", document);
    }
}

/* ---- predicted and measured ---- */

static const dpb_json *against_of(const struct dpb_cell_summary *cell)
{
    const dpb_json *against = dpb_json_get(cell->first, "against");

    return cell->repeats_ok > 0 && dpb_json_type(against) == DPB_JSON_OBJECT ? against : NULL;
}

static double real_at(const dpb_json *object, const char *key)
{
    return dpb_json_as_real(dpb_json_get(object, key), NAN);
}

static double median_error(const struct dpb_summary *summary, size_t *count)
{
    double *errors = calloc(summary->cell_count + 1, sizeof(*errors)), median = NAN;

    *count = 0;
    for (size_t c = 0; errors && c < summary->cell_count; c++)
        if (against_of(&summary->cells[c]))
            errors[(*count)++] = fabs(real_at(against_of(&summary->cells[c]), "error_ratio"));
    if (*count > 0)
        median = dpb_stats_median(errors, *count);
    free(errors);
    return median;
}

static void take_ms(double ns, struct dpb_document *document)
{
    struct dpb_str text = {0};

    dpb_view_ms(ns, &text);
    dpb_document_take(document, &text);
}

static void add_against(const struct dpb_summary *summary,
                        const struct dpb_cell_summary *const *cells, struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "predicted (ms)", "measured (ms)", "error (%)"};
    struct dpb_str text = {0};
    size_t count;
    const double median = median_error(summary, &count);

    dpb_document_heading(document, 3, "Simulated against measured step times");
    dpb_document_table(document, sizeof(columns) / sizeof(columns[0]), 1);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        dpb_document_cell(document, columns[i]);
    for (size_t c = 0; c < summary->cell_count; c++) {
        const dpb_json *against = against_of(cells[c]);
        struct dpb_str error = {0};

        if (!against)
            continue;
        take_label(summary, cells[c], document);
        take_ms(real_at(against, "predicted_step_ns"), document);
        take_ms(real_at(against, "measured_step_ns"), document);
        dpb_str_appendf(&error, "%+.1f", 100 * real_at(against, "error_ratio"));
        dpb_document_take(document, &error);
    }
    dpb_str_appendf(&text, "Median error of %zu cell%s, regardless of its sign: %.1f %%.", count,
                    count == 1 ? "" : "s", 100 * median);
    dpb_document_paragraph(document, text.failed ? "" : text.text);
    dpb_str_release(&text);
}

void dpb_content_simulated(const struct dpb_summary *summary, struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);

    if (!cells) {
        document->failed = true;
        return;
    }
    if (any(cells, summary->cell_count, against_of))
        add_against(summary, cells, document);
    if (any(cells, summary->cell_count, simulation_of))
        add_origins(summary, cells, document);
    free(cells);
}

/* ---- the same on a terminal ---- */

#define COLUMNS 4

static dpb_status fill_row(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                           struct dpb_str row[COLUMNS])
{
    const dpb_json *against = against_of(cell);
    bool failed = false;

    dpb_cell_label(summary, cell, &row[0]);
    dpb_view_ms(real_at(against, "predicted_step_ns"), &row[1]);
    dpb_view_ms(real_at(against, "measured_step_ns"), &row[2]);
    dpb_str_appendf(&row[3], "%+.1f", 100 * real_at(against, "error_ratio"));
    for (int i = 0; i < COLUMNS; i++)
        failed = failed || row[i].failed;
    return failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

static dpb_status print_rows(const struct dpb_summary *summary,
                             const struct dpb_cell_summary *const *cells, size_t count,
                             struct dpb_str *texts, FILE *out)
{
    static const struct dpb_text_column columns[COLUMNS] = {{"cell", DPB_TEXT_WORD},
                                                            {"predicted ms", DPB_TEXT_NUMBER},
                                                            {"measured ms", DPB_TEXT_NUMBER},
                                                            {"error %", DPB_TEXT_NUMBER}};
    const char **table = calloc(COLUMNS * count + 1, sizeof(*table));
    size_t rows = 0;
    dpb_status st = table ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t c = 0; c < summary->cell_count && st == DPB_OK; c++)
        if (against_of(cells[c]))
            st = fill_row(summary, cells[c], &texts[COLUMNS * rows++]);
    for (size_t i = 0; i < COLUMNS * rows && st == DPB_OK; i++)
        table[i] = texts[i].text;
    if (st == DPB_OK)
        st = dpb_text_table_print(columns, COLUMNS, table, rows, out, 0);
    free(table);
    return st;
}

dpb_status dpb_report_against(const struct dpb_summary *summary, FILE *out)
{
    size_t count;
    const double median = median_error(summary, &count);
    const struct dpb_cell_summary **cells;
    struct dpb_str *texts;
    dpb_status st;

    if (count == 0)
        return DPB_OK;
    cells = dpb_view_cells(summary);
    texts = calloc(COLUMNS * count, sizeof(*texts));
    st = cells && texts ? print_rows(summary, cells, count, texts, out) : DPB_ERR_NO_MEMORY;
    if (st == DPB_OK)
        fprintf(out, "median error of %zu cell%s, regardless of its sign: %.1f %%\n", count,
                count == 1 ? "" : "s", 100 * median);
    for (size_t i = 0; texts && i < COLUMNS * count; i++)
        dpb_str_release(&texts[i]);
    free(texts);
    free(cells);
    return st;
}
