#include "curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As many families as have a colour of their own; more lines could not be told apart. */
#define FAMILIES_MAX 7

static bool is_in_set(const struct dpb_curve_set *set, const struct dpb_cell_summary *cell)
{
    return cell->weak == set->weak && cell->simulated == set->simulated;
}

static bool same_series(const struct dpb_cell_summary *a, const struct dpb_cell_summary *b)
{
    return strcmp(a->series, b->series) == 0 && strcmp(a->run_id, b->run_id) == 0;
}

static char *label_of(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                      const char *without)
{
    struct dpb_str text = {0};

    dpb_view_axes(axes, cell, without, &text);
    if (text.length == 0)
        dpb_str_append(&text, "this configuration");
    if (text.failed)
        dpb_str_release(&text);
    return text.text; /* owned by the caller now */
}

/* Does any cell of several ranks belong to the set? Then cells of one rank are baselines only. */
static bool has_many_ranks(const struct dpb_summary *summary, const struct dpb_curve_set *set)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        if (is_in_set(set, &summary->cells[i]) && summary->cells[i].ranks > 1)
            return true;
    }
    return false;
}

/* Every cell of the series of cell `first`, and the baseline when it lies in another. */
static bool fill_curve(const struct dpb_summary *summary, size_t first, struct dpb_curve *curve)
{
    const struct dpb_cell_summary *baseline = NULL;
    size_t i;

    curve->points = calloc(summary->cell_count + 1, sizeof(*curve->points));
    if (!curve->points)
        return false;
    curve->key = &summary->cells[first];
    for (i = first; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];

        if (!same_series(cell, &summary->cells[first]))
            continue;
        if (cell->ranks > curve->key->ranks)
            curve->key = cell;
        if (!isfinite(cell->efficiency))
            continue;
        if (!baseline && cell->baseline != cell) {
            baseline = cell->baseline;
            if (curve->count == 0)
                curve->points[curve->count++] = baseline;
        }
        curve->points[curve->count++] = cell;
    }
    return true;
}

static bool add_curves(const struct dpb_summary *summary, const struct dpb_axes *axes,
                       struct dpb_curve_set *set)
{
    bool many_ranks = has_many_ranks(summary, set);
    size_t i, j;

    set->curves = calloc(summary->cell_count + 1, sizeof(*set->curves));
    if (!set->curves)
        return false;
    for (i = 0; i < summary->cell_count; i++) {
        struct dpb_curve *curve = &set->curves[set->count];

        if (!is_in_set(set, &summary->cells[i]))
            continue;
        for (j = 0; j < set->count; j++) {
            if (same_series(set->curves[j].key, &summary->cells[i]))
                break;
        }
        if (j < set->count)
            continue;
        if (!fill_curve(summary, i, curve))
            return false;
        if (many_ranks && curve->key->ranks == 1) {
            free(curve->points);
            *curve = (struct dpb_curve){0};
            continue;
        }
        set->count++;
        curve->label = label_of(axes, curve->key, NULL);
        curve->family = label_of(axes, curve->key, "overlap");
        curve->overlap_varies = dpb_cell_axis(curve->key, "overlap") != NULL;
        curve->overlap_on = dpb_view_overlap_is_on(curve->key);
        if (!curve->label || !curve->family)
            return false;
    }
    return true;
}

static void remove_curve(struct dpb_curve_set *set, size_t index)
{
    free(set->curves[index].points);
    free(set->curves[index].label);
    free(set->curves[index].family);
    set->count--;
    memmove(&set->curves[index], &set->curves[index + 1],
            (set->count - index) * sizeof(set->curves[0]));
}

static void drop_empty(struct dpb_curve_set *set)
{
    size_t i = 0;

    while (i < set->count) {
        if (set->curves[i].count > 0) {
            i++;
            continue;
        }
        dpb_str_appendf(&set->left_out, " Left out for lack of a valid point: %s.",
                        set->curves[i].label);
        remove_curve(set, i);
    }
}

static double last_efficiency(const struct dpb_curve *curve)
{
    return curve->points[curve->count - 1]->efficiency;
}

static int compare_curves(const void *left, const void *right)
{
    const struct dpb_curve *a = left, *b = right;

    /* in the order of the plan, as the user wrote the axes */
    return (a->key->cell > b->key->cell) - (a->key->cell < b->key->cell);
}

static int compare_by_efficiency(const void *left, const void *right)
{
    double a = last_efficiency(left), b = last_efficiency(right);

    return (a < b) - (a > b);
}

/* Number the families; false when there are more than have a look of their own. */
static bool number_families(struct dpb_curve_set *set)
{
    int families = 0;
    size_t i, j;

    for (i = 0; i < set->count; i++) {
        for (j = 0; j < i; j++) {
            if (strcmp(set->curves[i].family, set->curves[j].family) == 0)
                break;
        }
        set->curves[i].style = j < i ? set->curves[j].style : families++;
    }
    return families <= FAMILIES_MAX;
}

static void keep_best_families(struct dpb_curve_set *set)
{
    size_t i = 0, dropped = 0;

    if (number_families(set))
        return;
    qsort(set->curves, set->count, sizeof(set->curves[0]), compare_by_efficiency);
    number_families(set);
    while (i < set->count) {
        if (set->curves[i].style < FAMILIES_MAX) {
            i++;
            continue;
        }
        remove_curve(set, i);
        dropped++;
    }
    dpb_str_appendf(
            &set->left_out,
            " The %zu curves with the best efficiency are drawn; %zu more are in the table.",
            set->count, dropped);
}

/* One text for how all of it was obtained. */
static void describe_how(struct dpb_curve_set *set)
{
    struct dpb_str first = {0};
    bool emulated = false, measured = false, equal = true;
    size_t i;

    for (i = 0; i < set->count; i++) {
        const struct dpb_cell_summary *key = set->curves[i].key;
        struct dpb_str link = {0};

        emulated = emulated || key->emulated;
        measured = measured || !key->emulated;
        dpb_view_link(key, &link);
        if (i == 0)
            dpb_str_append(&first, link.length ? link.text : "");
        else if (strcmp(first.length ? first.text : "", link.length ? link.text : "") != 0)
            equal = false;
        dpb_str_release(&link);
    }
    if (set->simulated)
        dpb_str_append(&set->how, "simulated");
    else if (emulated && measured)
        dpb_str_append(&set->how, "measured, some on emulated links");
    else if (emulated && equal && first.length > 0)
        dpb_str_appendf(&set->how, "emulated link %s", first.text);
    else if (emulated)
        dpb_str_append(&set->how, "emulated links");
    else
        dpb_str_append(&set->how, "measured");
    dpb_str_release(&first);
}

bool dpb_curves_find(const struct dpb_summary *summary, bool weak, bool simulated,
                     struct dpb_curve_set *set)
{
    struct dpb_axes axes = dpb_axes_of(summary);
    size_t i;

    *set = (struct dpb_curve_set){.weak = weak, .simulated = simulated};
    if (!add_curves(summary, &axes, set)) {
        set->count += set->curves && set->curves[set->count].points ? 1 : 0;
        dpb_curves_release(set);
        return false;
    }
    drop_empty(set);
    if (set->count > 1)
        qsort(set->curves, set->count, sizeof(set->curves[0]), compare_curves);
    keep_best_families(set);
    for (i = 0; i < set->count; i++) {
        const struct dpb_curve *curve = &set->curves[i];
        int ranks = curve->points[curve->count - 1]->ranks;

        set->max_ranks = ranks > set->max_ranks ? ranks : set->max_ranks;
    }
    describe_how(set);
    return true;
}

void dpb_curves_release(struct dpb_curve_set *set)
{
    while (set->count > 0)
        remove_curve(set, set->count - 1);
    free(set->curves);
    dpb_str_release(&set->how);
    dpb_str_release(&set->left_out);
    *set = (struct dpb_curve_set){0};
}
