/* What a strategy's autotuning has tried in the first repeat, and what came of it. */
#include "content.h"

#include <inttypes.h>
#include <stdlib.h>

#include "dpb_units.h"
#include "view.h"

#define COLUMNS 5

static const dpb_json *tuning_of(const struct dpb_cell_summary *cell)
{
    return dpb_json_get(dpb_json_get(cell->first, "plan"), "autotune");
}

static size_t best_of(const dpb_json *trials)
{
    size_t best = 0;

    for (size_t t = 1; t < dpb_json_size(trials); t++)
        if (dpb_json_as_real(dpb_json_get(dpb_json_at(trials, t), "bytes_per_s"), 0) >
            dpb_json_as_real(dpb_json_get(dpb_json_at(trials, best), "bytes_per_s"), 0))
            best = t;
    return best;
}

static void add_trial(const dpb_json *trial, size_t number, bool is_best,
                      struct dpb_document *document)
{
    char text[DPB_UNIT_TEXT_BYTES];
    struct dpb_str rate = {0};

    snprintf(text, sizeof(text), "%zu", number);
    dpb_document_cell(document, text);
    dpb_document_cell(document, is_best ? "best" : "");
    dpb_format_size(dpb_json_as_int(dpb_json_get(trial, "fusion_threshold_bytes"), 0), text,
                    sizeof(text));
    dpb_document_cell(document, text);
    dpb_format_duration(dpb_json_as_int(dpb_json_get(trial, "cycle_time_ns"), 0), text,
                        sizeof(text));
    dpb_document_cell(document, text);
    dpb_view_rate(dpb_json_as_real(dpb_json_get(trial, "bytes_per_s"), 0) / 1e6, &rate);
    dpb_document_take(document, &rate);
}

static void add_cell(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                     struct dpb_document *document)
{
    static const char *const columns[COLUMNS] = {"trial", "", "fusion threshold", "cycle time",
                                                 "gradients (MB/s)"};
    const dpb_json *trials = dpb_json_get(tuning_of(cell), "trials");
    const size_t best = best_of(trials);
    struct dpb_str heading = {0};

    dpb_str_append(&heading, "Autotuning: ");
    dpb_cell_label(summary, cell, &heading);
    if (heading.failed)
        document->failed = true;
    else
        dpb_document_heading(document, 3, heading.text);
    dpb_str_release(&heading);
    dpb_document_table(document, COLUMNS, 2);
    for (size_t c = 0; c < COLUMNS; c++)
        dpb_document_cell(document, columns[c]);
    for (size_t t = 0; t < dpb_json_size(trials); t++)
        add_trial(dpb_json_at(trials, t), t + 1, t == best, document);
    if (!dpb_json_as_bool(dpb_json_get(tuning_of(cell), "is_frozen"), false))
        dpb_document_paragraph(document, "The search had not ended when the run did: the timed "
                                         "steps are of several settings.");
}

void dpb_content_tuning(const struct dpb_summary *summary, struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);

    if (!cells) {
        document->failed = true;
        return;
    }
    for (size_t c = 0; c < summary->cell_count; c++)
        if (dpb_json_size(dpb_json_get(tuning_of(cells[c]), "trials")) > 0)
            add_cell(summary, cells[c], document);
    free(cells);
}
