/* Several ranks on several nodes: what crosses between nodes, and whom the others wait for. */
#include "content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "view.h"

static double real_at(const struct dpb_cell_summary *cell, const char *path)
{
    return dpb_json_as_real(dpb_json_path(cell->first, path), NAN);
}

/* Is there more than one node, and is it known what goes between them? */
static bool crosses_nodes(const struct dpb_cell_summary *cell)
{
    return real_at(cell, "communication/wire_bytes_between_per_step") > 0;
}

static bool has_late_ranks(const struct dpb_cell_summary *cell)
{
    return dpb_json_size(dpb_json_path(cell->first, "waiting/late_ranks")) > 0;
}

static void take_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                       struct dpb_document *document)
{
    struct dpb_str label = {0};

    dpb_cell_label(summary, cell, &label);
    dpb_document_take(document, &label);
}

static void take_mega(double bytes, struct dpb_document *document)
{
    struct dpb_str text = {0};

    dpb_view_rate(bytes / 1e6, &text);
    dpb_document_take(document, &text);
}

static void headers(struct dpb_document *document, const char *heading, const char *const *columns,
                    size_t count, size_t texts)
{
    dpb_document_heading(document, 3, heading);
    dpb_document_table(document, count, texts);
    for (size_t i = 0; i < count; i++)
        dpb_document_cell(document, columns[i]);
}

static void add_levels(const struct dpb_summary *summary,
                       const struct dpb_cell_summary *const *cells, struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "inside the node (MB)", "to other nodes (MB)"};
    bool any = false;

    for (size_t i = 0; i < summary->cell_count; i++) {
        if (!crosses_nodes(cells[i]))
            continue;
        if (!any)
            headers(document, "What a rank sends in a step, mean", columns, 3, 1);
        any = true;
        take_label(summary, cells[i], document);
        take_mega(real_at(cells[i], "communication/wire_bytes_inside_per_step"), document);
        take_mega(real_at(cells[i], "communication/wire_bytes_between_per_step"), document);
    }
    if (any)
        dpb_document_paragraph(document, "MB are 10^6 bytes.");
}

/* "rank 3 (node2): last in 94 %, the others waited 12.1 ms" */
static void take_late(const struct dpb_cell_summary *cell, struct dpb_document *document)
{
    const dpb_json *late = dpb_json_path(cell->first, "waiting/late_ranks");
    struct dpb_str text = {0};

    for (size_t i = 0; i < dpb_json_size(late); i++) {
        const dpb_json *rank = dpb_json_at(late, i);
        const char *host = dpb_json_as_string(dpb_json_get(rank, "host"), "");

        dpb_str_appendf(&text, "%srank %" PRId64, i ? "; " : "",
                        dpb_json_as_int(dpb_json_get(rank, "rank"), -1));
        if (host[0])
            dpb_str_appendf(&text, " (%s)", host);
        dpb_str_append(&text, ": last in ");
        dpb_view_percent(dpb_json_as_real(dpb_json_get(rank, "last_share"), NAN), &text);
        dpb_str_append(&text, " %, ");
        dpb_view_ms(dpb_json_as_real(dpb_json_get(rank, "others_waited_ns"), NAN), &text);
        dpb_str_append(&text, " ms");
    }
    dpb_document_take(document, &text);
}

static void add_late_ranks(const struct dpb_summary *summary,
                           const struct dpb_cell_summary *const *cells,
                           struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "the last rank, and how long the others waited"};
    bool any = false;

    for (size_t i = 0; i < summary->cell_count; i++) {
        if (!has_late_ranks(cells[i]))
            continue;
        if (!any)
            headers(document, "Which ranks the others waited for", columns, 2, 2);
        any = true;
        take_label(summary, cells[i], document);
        take_late(cells[i], document);
    }
    if (any)
        dpb_document_paragraph(document,
                               "Of the traced collectives of gradients: how many a rank came to "
                               "last, and the mean wait of another rank then, summed. Most waited "
                               "for first, at most 5. Ranks that take turns are noise; one rank "
                               "in most of them is slow, or has more to do.");
}

void dpb_content_nodes(const struct dpb_summary *summary, struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);

    if (!cells) {
        document->failed = true;
        return;
    }
    add_levels(summary, cells, document);
    add_late_ranks(summary, cells, document);
    free(cells);
}
