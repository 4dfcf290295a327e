/* Notes on a summary: what a careful colleague would point out before the numbers are used. */
#include "dpb_summary.h"

#include <math.h>
#include <string.h>

#include "dpb_units.h"

#define LABELS_SHOWN 4
#define FEW_REPEATS  3

typedef bool cell_test(const struct dpb_summary *summary, const struct dpb_cell_summary *cell);

static void add_note(dpb_json *notes, struct dpb_str *text)
{
    dpb_json_append(notes, dpb_json_string(text->failed ? "out of memory" : text->text));
    dpb_str_release(text);
}

/* "label; label and 3 more" of the cells that pass, each with what `detail` adds (may be NULL), or
 * "all 12 cells"; their number. */
static size_t list_cells(const struct dpb_summary *summary, cell_test *test,
                         void (*detail)(const struct dpb_cell_summary *cell, struct dpb_str *out),
                         struct dpb_str *list)
{
    size_t count = 0, i;

    for (i = 0; i < summary->cell_count; i++)
        count += test(summary, &summary->cells[i]);
    if (count == summary->cell_count && count > LABELS_SHOWN && !detail) {
        dpb_str_appendf(list, "all %zu cells", count);
        return count;
    }
    count = 0;
    for (i = 0; i < summary->cell_count; i++) {
        if (!test(summary, &summary->cells[i]) || count++ >= LABELS_SHOWN)
            continue;
        dpb_str_append(list, count > 1 ? "; " : "");
        dpb_cell_label(summary, &summary->cells[i], list);
        if (detail)
            detail(&summary->cells[i], list);
    }
    if (count > LABELS_SHOWN)
        dpb_str_appendf(list, " and %zu more", count - LABELS_SHOWN);
    return count;
}

/* One note for all cells that pass: "<label; label>: <text>". */
static void note_cells(const struct dpb_summary *summary, cell_test *test, const char *text,
                       dpb_json *notes)
{
    struct dpb_str note = {0};

    if (list_cells(summary, test, NULL, &note) > 0) {
        dpb_str_appendf(&note, ": %s", text);
        add_note(notes, &note);
    } else {
        dpb_str_release(&note);
    }
}

static bool is_flagged(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->flagged;
}

static bool has_few_repeats(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->repeats_ok > 0 && cell->repeats_ok < FEW_REPEATS;
}

static bool has_failed(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->repeats_not_ok > 0;
}

static bool lacks_baseline(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->repeats_ok > 0 && !cell->baseline;
}

static bool was_slowed_by_trace(const struct dpb_summary *summary,
                                const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->trace_overhead > 1.10;
}

/* Scaling means more ranks of the same kind: a baseline with more threads is another kind. */
static bool has_other_threads(const struct dpb_summary *summary,
                              const struct dpb_cell_summary *cell)
{
    int64_t own, baseline;

    (void)summary;
    if (!cell->baseline)
        return false;
    own = dpb_json_as_int(dpb_json_path(cell->first, "config/threads_per_rank"), 0);
    baseline = dpb_json_as_int(dpb_json_path(cell->baseline->first, "config/threads_per_rank"), 0);
    return own != baseline;
}

static bool lost_events(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    size_t i;

    for (i = 0; i < summary->records->count; i++) {
        const dpb_json *record = summary->records->items[i];

        if (dpb_json_as_int(dpb_json_get(record, "cell"), -1) == cell->cell &&
            strcmp(dpb_json_as_string(dpb_json_get(record, "run_id"), ""), cell->run_id) == 0 &&
            dpb_json_as_int(dpb_json_path(record, "trace/lost"), 0) > 0)
            return true;
    }
    return false;
}

static bool is_above_ideal(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    (void)summary;
    return cell->efficiency > 1.05;
}

static void append_efficiency(const struct dpb_cell_summary *cell, struct dpb_str *out)
{
    dpb_str_appendf(out, ": scaling efficiency %.1f %%", 100 * cell->efficiency);
    if (isfinite(cell->efficiency_ci95.low)) {
        dpb_str_append(out, " (95 % interval ");
        dpb_ratio_interval_text(cell->efficiency_ci95, 100, 1, " %", out);
        dpb_str_append(out, ")");
    }
}

static void note_high_efficiency(const struct dpb_summary *summary, dpb_json *notes)
{
    struct dpb_str note = {0};

    if (list_cells(summary, is_above_ideal, append_efficiency, &note) > 0) {
        dpb_str_append(&note,
                       ". More than the ideal 100 %: the baseline was cold or disturbed, or, "
                       "with strong scaling, a smaller batch per rank fits the caches "
                       "better; repeat the baseline before using such a number");
        add_note(notes, &note);
    } else {
        dpb_str_release(&note);
    }
}

static void note_high_bandwidth(const struct dpb_summary *summary, dpb_json *notes)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];
        double rate =
                dpb_json_as_real(dpb_json_path(cell->first, "config/link/bw_bytes_per_s"), NAN);
        char busbw_text[DPB_UNIT_TEXT_BYTES], rate_text[DPB_UNIT_TEXT_BYTES];
        struct dpb_str note = {0};

        /* 2 % for the clock's resolution */
        if (!cell->emulated || !(rate > 0) || !(cell->busbw_bytes_per_s > 1.02 * rate))
            continue;
        dpb_human_rate(cell->busbw_bytes_per_s, 3, busbw_text, sizeof(busbw_text));
        dpb_human_rate(rate, 3, rate_text, sizeof(rate_text));
        dpb_cell_label(summary, cell, &note);
        dpb_str_appendf(&note,
                        ": the bus bandwidth of %s is above the emulated link's %s, which cannot "
                        "be: a unit is wrong, or the emulation did not hold the data back",
                        busbw_text, rate_text);
        add_note(notes, &note);
    }
}

static void note_slow_overlap(const struct dpb_summary *summary, dpb_json *notes)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *off = &summary->cells[i];
        const struct dpb_cell_summary *on = dpb_summary_twin(summary, off, "overlap", "on");
        struct dpb_interval95 ci95;
        struct dpb_str note = {0};
        double speedup;

        if (!on || off->ranks == 1 || on->repeats_ok == 0 || off->repeats_ok == 0)
            continue;
        speedup = dpb_cell_speedup(on, off, &ci95);
        if (!(speedup < 1))
            continue;
        dpb_cell_label(summary, on, &note);
        dpb_str_appendf(&note, ": overlap made the step slower, T_off / T_on = %.3f", speedup);
        if (isfinite(ci95.low)) {
            dpb_str_append(&note, " (95 % interval ");
            dpb_ratio_interval_text(ci95, 1, 3, "", &note);
            dpb_str_append(&note, ci95.high < 1 ? ")" : ", so the difference may be noise)");
        }
        if (isfinite(dpb_cell_comm_inflation(on, off)))
            dpb_str_appendf(&note, "; the same bytes took %.2f times as long to move",
                            dpb_cell_comm_inflation(on, off));
        dpb_str_append(&note, "; communication and computation compete for the same cores");
        add_note(notes, &note);
    }
}

static void note_fingerprints(const struct dpb_summary *summary, dpb_json *notes)
{
    const char *first = NULL;
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const char *fingerprint =
                dpb_json_as_string(dpb_json_get(summary->cells[i].first, "fingerprint"), "");

        if (!first)
            first = fingerprint;
        if (strcmp(first, fingerprint) != 0) {
            dpb_json_append(notes,
                            dpb_json_string("the records come from machines or builds that are not "
                                            "comparable (their fingerprints differ): compare cells "
                                            "of the same fingerprint only; efficiency is computed "
                                            "within one fingerprint"));
            return;
        }
    }
}

static void note_baselines(const struct dpb_summary *summary, dpb_json *notes)
{
    int ranks = 0;
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        if (summary->cells[i].baseline_ranks > ranks)
            ranks = summary->cells[i].baseline_ranks;
    }
    if (ranks > 1) {
        struct dpb_str note = {0};

        dpb_str_appendf(&note,
                        "some efficiencies are against %d ranks, for lack of an ok cell with "
                        "fewer: what is lost between 1 and %d ranks does not show in them",
                        ranks, ranks);
        add_note(notes, &note);
    }
}

static void note_files(const struct dpb_summary *summary, dpb_json *notes)
{
    struct dpb_str note = {0};

    if (summary->records->torn > 0) {
        dpb_str_appendf(&note, "%zu record%s cut short by an interruption and left out",
                        summary->records->torn, summary->records->torn == 1 ? " was" : "s were");
        add_note(notes, &note);
    }
    if (summary->superseded > 0) {
        dpb_str_appendf(&note,
                        "%zu record%s replaced by a later one of the same run, cell and repeat",
                        summary->superseded, summary->superseded == 1 ? " was" : "s were");
        add_note(notes, &note);
    }
}

/* The same warning, whatever its numbers? */
static bool is_alike(const char *a, const char *b)
{
    static const char number[] = "0123456789.";

    while (*a && *b) {
        size_t a_digits = strspn(a, number), b_digits = strspn(b, number);

        if ((a_digits > 0) != (b_digits > 0) || (a_digits == 0 && *a != *b))
            return false;
        a += a_digits ? a_digits : 1;
        b += b_digits ? b_digits : 1;
    }
    return *a == *b;
}

static bool holds_alike(const dpb_json *texts, const char *text)
{
    const dpb_json *known;
    dpb_json_walk walk = {0};

    while ((known = dpb_json_next(texts, &walk, NULL))) {
        if (is_alike(dpb_json_as_string(known, ""), text))
            return true;
    }
    return false;
}

/* The records' own warnings, each once, as it was first put, with how many records have its like.
 */
static void note_warnings(const struct dpb_summary *summary, dpb_json *notes)
{
    dpb_json *texts = dpb_json_array();
    size_t i, j;

    for (i = 0; i < summary->records->count; i++) {
        const dpb_json *warnings = dpb_json_get(summary->records->items[i], "warnings");
        const dpb_json *warning;
        dpb_json_walk walk = {0};

        while ((warning = dpb_json_next(warnings, &walk, NULL))) {
            const char *text = dpb_json_as_string(warning, NULL);
            struct dpb_str note = {0};
            size_t count = 0;

            if (!text || holds_alike(texts, text))
                continue;
            dpb_json_append(texts, dpb_json_string(text));
            for (j = i; j < summary->records->count; j++) {
                if (holds_alike(dpb_json_get(summary->records->items[j], "warnings"), text))
                    count++;
            }
            dpb_str_appendf(&note, "%zu of %zu records: %s", count, summary->records->count, text);
            add_note(notes, &note);
        }
    }
    dpb_json_free(texts);
}

dpb_json *dpb_summary_notes(const struct dpb_summary *summary)
{
    dpb_json *notes = dpb_json_array();

    note_cells(summary, has_failed, "not every repeat is ok; see the reasons", notes);
    note_cells(summary, is_flagged,
               "the machine did not give them all the cores they asked for; other work ran beside, "
               "so times are too long: repeat on a quiet machine",
               notes);
    note_high_efficiency(summary, notes);
    note_high_bandwidth(summary, notes);
    note_slow_overlap(summary, notes);
    note_cells(summary, lacks_baseline,
               "no scaling efficiency, since no ok cell with fewer ranks and the same options and "
               "batch is there to compare with",
               notes);
    note_baselines(summary, notes);
    note_cells(summary, has_other_threads,
               "the baseline computed with another number of threads per rank, so the efficiency "
               "mixes scaling over ranks with scaling over threads; set --threads-per-rank to "
               "tell them apart",
               notes);
    note_cells(summary, has_few_repeats,
               "fewer than 3 ok repeats, so there is no interval or a very wide one; ask for more "
               "with --repeats",
               notes);
    note_cells(summary, lost_events,
               "the trace lost events, so its breakdown of the step is not complete", notes);
    note_cells(summary, was_slowed_by_trace,
               "traced steps took over 10 % longer than timed ones, so shares of the breakdown are "
               "approximate",
               notes);
    note_warnings(summary, notes);
    note_fingerprints(summary, notes);
    note_files(summary, notes);
    return notes;
}
