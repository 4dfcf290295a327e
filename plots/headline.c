#include "headline.h"

#include <math.h>
#include <string.h>

#include "view.h"

/* The best efficiency at the most ranks of one kind of scaling; NULL without any of several ranks.
 */
static const struct dpb_cell_summary *best_cell(const struct dpb_summary *summary, bool weak,
                                                bool simulated)
{
    const struct dpb_cell_summary *best = NULL;
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];

        if (cell->weak != weak || cell->simulated != simulated || cell->ranks < 2 ||
            !isfinite(cell->efficiency) || cell->baseline == cell)
            continue;
        if (!best || cell->ranks > best->ranks ||
            (cell->ranks == best->ranks && cell->efficiency > best->efficiency))
            best = cell;
    }
    return best;
}

static void append_efficiency(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                              struct dpb_str *out)
{
    struct dpb_str setting = {0};

    if (cell->simulated) {
        dpb_str_append(out, "In simulation, ");
    } else if (cell->emulated) {
        dpb_str_append(out, "On an emulated link (");
        dpb_view_link(cell, out);
        dpb_str_append(out, "), ");
    }
    dpb_str_appendf(out, "%s scaling to %d ranks reaches %.1f %% efficiency",
                    cell->weak ? "weak" : "strong", cell->ranks, 100 * cell->efficiency);
    if (isfinite(cell->efficiency_ci95.low)) {
        dpb_str_append(out, " (95 % interval ");
        dpb_ratio_interval_text(cell->efficiency_ci95, 100, 1, " %", out);
        dpb_str_append(out, ")");
    }
    dpb_str_appendf(out, ", %.2f times the throughput of %d rank%s",
                    cell->speedup / cell->baseline_ranks, cell->baseline_ranks,
                    cell->baseline_ranks == 1 ? "" : "s");
    dpb_view_axes(axes, cell, NULL, &setting);
    if (setting.length > 0)
        dpb_str_appendf(out, ", at its best with %s", setting.text);
    dpb_str_append(out, ".");
    dpb_str_release(&setting);
}

/* Buckets whose step time differs from the best one's by no more than the repeats do. */
static void append_equal_buckets(const struct dpb_summary *summary,
                                 const struct dpb_cell_summary *best, struct dpb_str *out)
{
    const char *bucket = dpb_cell_axis(best, "bucket");
    bool first = true, few_repeats = false;
    size_t i;

    if (!bucket)
        return;
    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];
        const char *other = dpb_cell_axis(cell, "bucket");
        struct dpb_interval95 ci95;

        if (cell == best || cell->ranks != best->ranks || !other || cell->repeats_ok == 0 ||
            dpb_summary_twin(summary, best, "bucket", other) != cell)
            continue;
        dpb_cell_speedup(best, cell, &ci95);
        if (ci95.low > 1)
            continue;
        few_repeats = few_repeats || !isfinite(ci95.low);
        dpb_str_appendf(out, first ? " The repeats do not tell bucket %s from %s" : ", %s",
                        first ? bucket : other, other);
        first = false;
    }
    if (!first)
        dpb_str_append(out, few_repeats ? " (fewer than two repeats)." : ".");
}

static void append_overlap(const struct dpb_summary *summary, const struct dpb_cell_summary *best,
                           struct dpb_str *out)
{
    bool best_is_on = dpb_view_overlap_is_on(best);
    const struct dpb_cell_summary *twin =
            dpb_summary_twin(summary, best, "overlap", best_is_on ? "off" : "on");
    const struct dpb_cell_summary *on = best_is_on ? best : twin, *off = best_is_on ? twin : best;
    struct dpb_interval95 ci95;
    double speedup;

    if (!twin || twin->repeats_ok == 0)
        return;
    speedup = dpb_cell_speedup(on, off, &ci95);
    dpb_str_appendf(out, " %s overlap %s: T_off / T_on = %.3f",
                    dpb_cell_axis(best, "bucket") ? "At that bucket," : "There,",
                    speedup >= 1 ? "makes a step faster" : "makes a step slower", speedup);
    if (isfinite(ci95.low)) {
        dpb_str_append(out, " (95 % interval ");
        dpb_ratio_interval_text(ci95, 1, 3, "", out);
        dpb_str_append(out, ci95.low <= 1 && ci95.high >= 1 ? ", so this may be noise)" : ")");
    }
    dpb_str_append(out, ".");
}

/* What must be said in the same breath as the number. */
static void append_caution(const struct dpb_cell_summary *best, struct dpb_str *out)
{
    if (best->flagged || best->baseline->flagged) {
        dpb_str_append(out, " Caution: other work kept the machine busy beside these cells "
                            "(flagged), so do not rely on these numbers; repeat on a quiet "
                            "machine.");
    } else if (best->efficiency > 1.05) {
        dpb_str_append(out, " More than 100 % is suspicious: see the notes.");
    }
}

/* Nothing scaled: the fastest cell, or how it all failed. */
static void append_without_scaling(const struct dpb_summary *summary, struct dpb_str *out)
{
    const struct dpb_cell_summary *fastest = NULL;
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];

        if (cell->repeats_ok > 0 &&
            (!fastest || cell->samples_per_s_total > fastest->samples_per_s_total))
            fastest = cell;
    }
    if (!fastest) {
        dpb_str_appendf(out,
                        "No cell finished: none of %zu has an ok repeat; the reasons are below.",
                        summary->cell_count);
        return;
    }
    dpb_str_append(out, summary->cell_count > 1 ? "The fastest cell (" : "The cell (");
    dpb_cell_label(summary, fastest, out);
    dpb_str_append(out, ") trains ");
    dpb_view_rate(fastest->samples_per_s_total, out);
    dpb_str_append(out, " samples/s in steps of ");
    dpb_view_ms(fastest->step_median_ns, out);
    dpb_str_append(out, " ms (");
    dpb_view_how(fastest, out);
    dpb_str_append(out, "). There is no scaling efficiency: no two ok cells differ in ranks only.");
}

void dpb_headline(const struct dpb_summary *summary, struct dpb_str *out)
{
    struct dpb_axes axes = dpb_axes_of(summary);
    bool any = false;
    int kind;

    for (kind = 0; kind < 4; kind++) {
        const struct dpb_cell_summary *best = best_cell(summary, kind < 2, kind % 2 == 1);
        size_t start = out->length + (any ? 1 : 0);

        if (!best)
            continue;
        dpb_str_append(out, any ? " " : "");
        append_efficiency(&axes, best, out);
        append_equal_buckets(summary, best, out);
        append_overlap(summary, best, out);
        append_caution(best, out);
        if (!out->failed && out->text[start] >= 'a' && out->text[start] <= 'z')
            out->text[start] -= 'a' - 'A';
        any = true;
    }
    if (!any)
        append_without_scaling(summary, out);
}
