/* Strategies from the fastest to the slowest, and where the difference lies. */
#include "content.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "view.h"

#define COLUMNS 9

/* Cells of one run and number of ranks, the fastest first. */
struct group {
    const struct dpb_cell_summary *const *cells;
    size_t count;
};

static bool is_ranked(const struct dpb_cell_summary *cell)
{
    return cell->ranks > 1 && cell->repeats_ok > 0 && dpb_cell_axis(cell, "strategy");
}

static bool is_traced(const struct dpb_cell_summary *cell)
{
    return isfinite(cell->span_ns) && isfinite(cell->exposed_ns) && isfinite(cell->compute_ns) &&
           isfinite(cell->idle_ns);
}

static bool are_together(const struct dpb_cell_summary *a, const struct dpb_cell_summary *b)
{
    return strcmp(a->run_id, b->run_id) == 0 && a->ranks == b->ranks;
}

static void take_ms(struct dpb_document *document, double ns)
{
    struct dpb_str text = {0};

    dpb_view_ms(ns, &text);
    dpb_document_take(document, &text);
}

/* "+3.20", "-0.41": how much longer than the first's. */
static void append_more(double ns, struct dpb_str *out)
{
    if (isfinite(ns))
        dpb_str_appendf(out, "%+.2f", ns / 1e6);
    else
        dpb_str_append(out, DPB_VIEW_ABSENT);
}

static void take_more(struct dpb_document *document, double ns, bool is_first)
{
    struct dpb_str text = {0};

    if (is_first)
        dpb_str_append(&text, DPB_VIEW_ABSENT);
    else
        append_more(ns, &text);
    dpb_document_take(document, &text);
}

/* "ddp", or "ddp, bucket 1MiB" where more varies. */
static void append_name(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                        struct dpb_str *out)
{
    struct dpb_axes others = *axes;
    struct dpb_str rest = {0};

    others.many_runs = false; /* the heading names the run */
    dpb_view_axes(&others, cell, "strategy", &rest);
    dpb_str_append(out, dpb_cell_axis(cell, "strategy"));
    if (rest.length > 0)
        dpb_str_appendf(out, ", %s", rest.text);
    dpb_str_release(&rest);
}

static void add_row(const struct group *group, size_t row, const struct dpb_axes *axes,
                    struct dpb_document *document)
{
    const struct dpb_cell_summary *cell = group->cells[row], *first = group->cells[0];
    struct dpb_str text = {0};

    append_name(axes, cell, &text);
    dpb_document_take(document, &text);
    take_ms(document, cell->step_median_ns);
    take_ms(document, dpb_interval_half(cell->step_ci95_ns));
    take_ms(document, cell->exposed_ns);
    dpb_view_percent(cell->overlap_fraction, &text);
    dpb_document_take(document, &text);
    take_more(document, cell->span_ns - first->span_ns, row == 0);
    take_more(document, cell->exposed_ns - first->exposed_ns, row == 0);
    take_more(document, cell->compute_ns - first->compute_ns, row == 0);
    take_more(document, cell->idle_ns - first->idle_ns, row == 0);
}

/* Pairs that stand the other way round when they are ordered by exposed communication. */
static size_t pairs_turned(const struct group *group)
{
    size_t turned = 0;

    for (size_t i = 0; i < group->count; i++)
        for (size_t k = i + 1; k < group->count; k++)
            turned += group->cells[i]->exposed_ns > group->cells[k]->exposed_ns;
    return turned;
}

/* Those whose repeats are not told apart from the first's. */
static void add_caution(const struct group *group, const struct dpb_axes *axes,
                        struct dpb_document *document)
{
    struct dpb_str text = {0};
    bool few = false;
    size_t found = 0;

    for (size_t i = 1; i < group->count; i++) {
        struct dpb_interval95 ci95;

        dpb_cell_speedup(group->cells[0], group->cells[i], &ci95);
        if (ci95.low > 1)
            continue;
        few = few || !isfinite(ci95.low);
        dpb_str_append(&text, found++ ? "; " : "The repeats do not tell the first from: ");
        append_name(axes, group->cells[i], &text);
    }
    if (found == 0)
        return;
    dpb_str_append(&text, few ? " (an interval takes two repeats)." : ".");
    if (text.failed)
        document->failed = true;
    else
        dpb_document_paragraph(document, text.text);
    dpb_str_release(&text);
}

static void add_explanation(const struct group *group, struct dpb_document *document)
{
    const struct dpb_cell_summary *first = group->cells[0], *last = group->cells[group->count - 1];
    size_t pairs = group->count * (group->count - 1) / 2, turned = pairs_turned(group);
    struct dpb_str text = {0};

    dpb_str_append(&text, "From the first to the last of them a traced step gets longer by ");
    dpb_view_number((last->span_ns - first->span_ns) / 1e6, 2, &text);
    dpb_str_append(&text, " ms: exposed communication ");
    append_more(last->exposed_ns - first->exposed_ns, &text);
    dpb_str_append(&text, " ms, computing ");
    append_more(last->compute_ns - first->compute_ns, &text);
    dpb_str_append(&text, " ms, idle ");
    append_more(last->idle_ns - first->idle_ns, &text);
    dpb_str_appendf(&text,
                    " ms. Ordered by exposed communication alone, %zu of the %zu pairs would stand "
                    "the other way round.",
                    turned, pairs);
    if (text.failed)
        document->failed = true;
    else
        dpb_document_paragraph(document, text.text);
    dpb_str_release(&text);
}

static void add_group(const struct group *group, const struct dpb_axes *axes,
                      struct dpb_document *document)
{
    static const char *const columns[COLUMNS] = {"strategy",
                                                 "step time, median (ms)",
                                                 "\xc2\xb1 95 % (ms)",
                                                 "exposed comm. (ms)",
                                                 "overlapped (% of comm.)",
                                                 "span above the first's (ms)",
                                                 "of it exposed comm. (ms)",
                                                 "of it compute (ms)",
                                                 "of it idle (ms)"};
    struct dpb_str heading = {0};
    bool traced = true;

    dpb_str_appendf(&heading, "Strategies with %d ranks, from the fastest to the slowest",
                    group->cells[0]->ranks);
    if (axes->many_runs)
        dpb_str_appendf(&heading, " (run %s)", group->cells[0]->run_id);
    if (heading.failed)
        document->failed = true;
    else
        dpb_document_heading(document, 3, heading.text);
    dpb_str_release(&heading);
    dpb_document_table(document, COLUMNS, 1);
    for (size_t c = 0; c < COLUMNS; c++)
        dpb_document_cell(document, columns[c]);
    for (size_t row = 0; row < group->count; row++) {
        add_row(group, row, axes, document);
        traced = traced && is_traced(group->cells[row]);
    }
    if (traced)
        add_explanation(group, document);
    add_caution(group, axes, document);
}

void dpb_content_strategies(const struct dpb_summary *summary, struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_ranked(summary);
    struct dpb_axes axes = dpb_axes_of(summary);
    size_t count = 0, end;

    if (!cells)
        document->failed = true;
    for (size_t i = 0; cells && i < summary->cell_count; i++)
        if (is_ranked(cells[i]))
            cells[count++] = cells[i];
    for (size_t begin = 0; cells && begin < count; begin = end) {
        for (end = begin + 1; end < count && are_together(cells[begin], cells[end]); end++)
            ;
        if (end - begin > 1)
            add_group(&(struct group){cells + begin, end - begin}, &axes, document);
    }
    free(cells);
}
