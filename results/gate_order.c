#include "gate_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct moment {
    double at;
    bool is_base;
};

static int by_time(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static bool all_in_session(const struct dpb_gate_cell *cell, const char *session)
{
    for (size_t i = 0; i < cell->run_count; i++)
        if (strcmp(cell->runs[i].session, session) != 0)
            return false;
    return session[0] != '\0';
}

static bool have_places(const struct dpb_gate_cell *cell)
{
    for (size_t i = 0; i < cell->run_count; i++)
        if (isnan(cell->runs[i].order))
            return false;
    return true;
}

static double moment_of(const struct dpb_gate_run *run, bool by_place)
{
    return by_place ? run->order : run->time_s;
}

bool dpb_gate_moments(const struct dpb_gate_cell *cell, double *at)
{
    const bool by_place =
            cell->run_count > 0 && all_in_session(cell, cell->runs[0].session) && have_places(cell);

    for (size_t i = 0; i < cell->run_count; i++) {
        at[i] = moment_of(&cell->runs[i], by_place);
        if (isnan(at[i]))
            return false;
    }
    return true;
}

static bool all_paired(const struct dpb_gate_cell *base, const struct dpb_gate_cell *candidate)
{
    if (base->run_count != candidate->run_count)
        return false;
    for (size_t i = 0; i < base->run_count; i++) {
        size_t found = 0;

        for (size_t k = 0; k < candidate->run_count; k++)
            found += candidate->runs[k].pair == base->runs[i].pair;
        if (base->runs[i].pair < 0 || found != 1)
            return false;
    }
    return true;
}

/* Of `count` moments, which it sorts. */
static enum dpb_gate_order order_of(struct moment *moments, size_t count)
{
    size_t changes = 0;

    for (size_t i = 0; i < count; i++)
        if (isnan(moments[i].at))
            return DPB_GATE_ORDER_UNKNOWN;
    qsort(moments, count, sizeof(*moments), by_time);
    for (size_t i = 1; i < count; i++)
        changes += moments[i].is_base != moments[i - 1].is_base;
    return changes < 2 ? DPB_GATE_ORDER_SEQUENTIAL : DPB_GATE_ORDER_INTERLEAVED;
}

enum dpb_gate_order dpb_gate_order_of(const struct dpb_gate_cell *base,
                                      const struct dpb_gate_cell *candidate)
{
    const size_t count = base->run_count + candidate->run_count;

    if (base->run_count == 0 || candidate->run_count == 0)
        return DPB_GATE_ORDER_UNKNOWN;
    const char *session = base->runs[0].session;
    const bool one_session = all_in_session(base, session) && all_in_session(candidate, session);
    const bool by_place = one_session && have_places(base) && have_places(candidate);
    if (one_session && all_paired(base, candidate))
        return DPB_GATE_ORDER_PAIRED;
    struct moment *moments = malloc(count * sizeof(*moments));
    if (!moments)
        return DPB_GATE_ORDER_UNKNOWN;
    for (size_t i = 0; i < count; i++) {
        const bool is_base = i < base->run_count;
        const struct dpb_gate_run *run =
                is_base ? &base->runs[i] : &candidate->runs[i - base->run_count];

        moments[i] = (struct moment){moment_of(run, by_place), is_base};
    }
    const enum dpb_gate_order order = order_of(moments, count);
    free(moments);
    return order;
}
