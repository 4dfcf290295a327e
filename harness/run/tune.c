#include "dpb_tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_record.h"
#include "dpb_rng.h"
#include "dpb_run_folder.h"
#include "tune_candidates.h"

#define PAIRS_MIN    5          /* of the comparison: t with 4 degrees of freedom */
#define PAIRS_SHARE  6          /* of the budget, one part in so many is the number of pairs */
#define ORDER_STREAM 0x74756e65 /* "tune" */

static dpb_status no_memory(void)
{
    dpb_error("tune: out of memory");
    return DPB_ERR_NO_MEMORY;
}

/* ---- the budget ---- */

static int half(int count)
{
    return (count + 1) / 2;
}

/* Rounds until one of `count` is left, and their launches when each candidate is launched once. */
static int rounds_for(int count, int64_t *launches)
{
    int rounds = 0;

    *launches = 0;
    for (; count > 1; count = half(count)) {
        *launches += count;
        rounds++;
    }
    return rounds;
}

static void release_cell(struct dpb_plan_cell *cell)
{
    dpb_config_free(cell->config);
    free(cell->label);
    free(cell->series);
    free(cell->compute_series);
}

/* As many candidates as the budget can launch in every round, spread evenly over all. */
static void fit_budget(struct dpb_tune *tune)
{
    struct dpb_plan *plan = &tune->plan;
    int count = (int)plan->cell_count, fits = count;
    int64_t launches;

    while (fits > 2 && (rounds_for(fits, &launches), launches > tune->selection_launches))
        fits--;
    int kept = 1; /* the default */
    for (int i = 1; i < count; i++) {
        bool keep =
                (int64_t)i * (fits - 1) / (count - 1) > (int64_t)(i - 1) * (fits - 1) / (count - 1);
        if (keep)
            plan->cells[kept++] = plan->cells[i];
        else
            release_cell(&plan->cells[i]);
    }
    tune->left_out = (size_t)(count - kept);
    plan->cell_count = (size_t)kept;
    tune->rounds = rounds_for(kept, &launches);
}

dpb_status dpb_tune_prepare(const struct dpb_tune_input *input, struct dpb_tune *tune)
{
    *tune = (struct dpb_tune){0};
    if (input->budget < DPB_TUNE_BUDGET_MIN) {
        dpb_error("--budget %" PRId64 ": too few launches to find and to compare anything",
                  input->budget);
        dpb_log_hint("give %d or more", DPB_TUNE_BUDGET_MIN);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(tune_candidates(input, tune));
    if (tune->plan.cell_count < 2) {
        dpb_error("nothing to tune: every candidate sends the same messages as the default");
        dpb_log_hint("`dpbench explain` shows them; tensors are never split");
        return DPB_ERR_USAGE;
    }
    tune->pairs = (int)(input->budget / PAIRS_SHARE);
    if (tune->pairs < PAIRS_MIN)
        tune->pairs = PAIRS_MIN;
    tune->selection_launches = input->budget - 2 * tune->pairs;
    fit_budget(tune);
    tune->candidates = calloc(tune->plan.cell_count, sizeof(*tune->candidates));
    if (!tune->candidates)
        return no_memory();
    for (size_t c = 0; c < tune->plan.cell_count; c++)
        tune->candidates[c] =
                (struct dpb_tune_candidate){.step_ns = NAN, .score_ns = NAN, .default_ratio = NAN};
    return tune_first_buckets(input->registry, tune);
}

void dpb_tune_release(struct dpb_tune *tune)
{
    dpb_plan_release(&tune->plan);
    free(tune->candidates);
    *tune = (struct dpb_tune){0};
}

/* ---- launches ---- */

struct session {
    struct dpb_tune *tune;
    struct dpb_driver_config *driver;
    struct dpb_driver_result *result;
    struct dpb_rng rng;
    int *launched; /* per cell */
    int *alive;    /* cells, best first once they are scored */
    int alive_count;
    int64_t spent;
};

static dpb_status add_launch(struct session *s, int cell)
{
    struct dpb_plan *plan = &s->tune->plan;
    size_t bytes = (plan->launch_count + 1) * sizeof(*plan->order);
    struct dpb_plan_launch *order = realloc(plan->order, bytes);

    if (!order)
        return no_memory();
    plan->order = order;
    plan->order[plan->launch_count++] = (struct dpb_plan_launch){cell, s->launched[cell]++};
    if (s->launched[cell] > plan->repeats)
        plan->repeats = s->launched[cell];
    return DPB_OK;
}

/* Repeats outermost, so that a slow phase of the machine hits all candidates alike. */
static dpb_status add_round(struct session *s, int repeats)
{
    int64_t *cells = calloc((size_t)s->alive_count, sizeof(*cells));
    dpb_status st = cells ? DPB_OK : no_memory();

    for (int r = 0; st == DPB_OK && r < repeats; r++) {
        for (int i = 0; i < s->alive_count; i++)
            cells[i] = s->alive[i];
        dpb_rng_shuffle_i64(&s->rng, cells, s->alive_count);
        for (int i = 0; st == DPB_OK && i < s->alive_count; i++)
            st = add_launch(s, (int)cells[i]);
    }
    free(cells);
    return st;
}

/* Launch what the plan has and the records have not. */
static dpb_status launch(struct session *s)
{
    s->driver->plan = &s->tune->plan;
    s->driver->resume = s->spent > 0;
    dpb_status st = dpb_driver_run(s->driver, s->result);
    s->spent = (int64_t)s->tune->plan.launch_count;
    return st;
}

/* ---- what they took ---- */

static double median_of(const dpb_json *record)
{
    const dpb_json *samples = dpb_json_get(record, "samples_step_ns");
    size_t count = dpb_json_size(samples), n = 0;
    double *ns = calloc(count + 1, sizeof(*ns)), median = NAN;
    const dpb_json *sample;
    dpb_json_walk walk = {0};

    while (ns && (sample = dpb_json_next(samples, &walk, NULL)))
        ns[n++] = dpb_json_as_real(sample, NAN);
    if (n > 0)
        median = dpb_stats_median(ns, n);
    free(ns);
    return median;
}

/* The median step of launch `repeat` of a cell; NaN when it is not there or not ok. */
static double step_of(const struct dpb_records *records, int cell, int repeat)
{
    for (size_t i = records->count; i-- > 0;) { /* the last one counts */
        const dpb_json *record = records->items[i];

        if (dpb_json_as_int(dpb_json_get(record, "cell"), -1) == cell &&
            dpb_json_as_int(dpb_json_get(record, "repeat"), -1) == repeat &&
            strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") == 0)
            return median_of(record);
    }
    return NAN;
}

static double geometric_mean(const struct dpb_records *records, int cell, int launches, int *ok)
{
    double sum = 0;

    *ok = 0;
    for (int r = 0; r < launches; r++) {
        double ns = step_of(records, cell, r);

        if (isfinite(ns) && ns > 0) {
            sum += log(ns);
            (*ok)++;
        }
    }
    return *ok > 0 ? exp(sum / *ok) : NAN;
}

/* Launches of the same number stood side by side: a candidate that left early is compared with what
 * the default took then. */
static double default_ratio(const struct dpb_records *records, int cell, int launches)
{
    double sum = 0;
    int pairs = 0;

    for (int r = 0; r < launches; r++) {
        double ratio = step_of(records, 0, r) / step_of(records, cell, r);

        if (isfinite(ratio) && ratio > 0) {
            sum += log(ratio);
            pairs++;
        }
    }
    return pairs > 0 ? exp(sum / pairs) : NAN;
}

static dpb_status read_records(const struct session *s, struct dpb_records *records)
{
    *records = (struct dpb_records){0};
    return dpb_records_read(s->driver->folder, records);
}

static void count_flagged(struct dpb_tune *tune, const struct dpb_records *records)
{
    tune->flagged = 0;
    for (size_t i = 0; i < records->count; i++) {
        tune->flagged += dpb_json_as_bool(dpb_json_path(records->items[i], "probe/flagged"), false);
        tune->emulated |= dpb_json_as_bool(dpb_json_get(records->items[i], "emulated"), false);
    }
}

/* What every candidate took so far. */
static dpb_status take_stock(struct session *s, bool of_rounds)
{
    struct dpb_records records;

    DPB_TRY(read_records(s, &records));
    for (size_t c = 0; c < s->tune->plan.cell_count; c++) {
        struct dpb_tune_candidate *candidate = &s->tune->candidates[c];

        candidate->step_ns = geometric_mean(&records, (int)c, s->launched[c], &candidate->launches);
        if (!of_rounds)
            continue;
        candidate->score_ns = candidate->step_ns;
        candidate->default_ratio = default_ratio(&records, (int)c, s->launched[c]);
    }
    count_flagged(s->tune, &records);
    dpb_records_release(&records);
    return DPB_OK;
}

/* Best first; few candidates, so sorted by insertion. */
static void sort_alive(struct session *s)
{
    const struct dpb_tune_candidate *candidates = s->tune->candidates;

    for (int i = 1; i < s->alive_count; i++) {
        int cell = s->alive[i], at = i;

        for (; at > 0 && candidates[cell].score_ns < candidates[s->alive[at - 1]].score_ns; at--)
            s->alive[at] = s->alive[at - 1];
        s->alive[at] = cell;
    }
}

/* ---- rounds and comparison ---- */

/* The default may win the rounds; then the best of the others is compared with it. */
static int best_other(const struct session *s)
{
    return s->alive[0] != 0 ? s->alive[0] : s->alive[1];
}

static dpb_status run_rounds(struct session *s)
{
    struct dpb_tune *tune = s->tune;

    s->alive_count = (int)tune->plan.cell_count;
    for (int i = 0; i < s->alive_count; i++)
        s->alive[i] = i;
    for (int round = 0; round < tune->rounds; round++) {
        int64_t share = (tune->selection_launches - s->spent) / (tune->rounds - round);
        int repeats = (int)(share / s->alive_count);

        DPB_TRY(add_round(s, repeats > 1 ? repeats : 1));
        for (int i = 0; i < s->alive_count; i++)
            tune->candidates[s->alive[i]].rounds = round + 1;
        dpb_status st = launch(s);
        DPB_KEEP(st, take_stock(s, true));
        DPB_TRY(st);
        sort_alive(s);
        tune->winner = best_other(s);
        s->alive_count = half(s->alive_count);
    }
    return DPB_OK;
}

void dpb_tune_compare(const double *default_ns, const double *winner_ns, size_t pairs,
                      struct dpb_tune_comparison *comparison)
{
    double *log_ratio = calloc(pairs + 1, sizeof(*log_ratio));

    *comparison = (struct dpb_tune_comparison){.ratio = NAN, .ci95 = {NAN, NAN}};
    for (size_t i = 0; log_ratio && i < pairs; i++)
        if (isfinite(default_ns[i]) && isfinite(winner_ns[i]))
            log_ratio[comparison->pairs++] = log(default_ns[i] / winner_ns[i]);
    if (comparison->pairs > 1) {
        const size_t count = (size_t)comparison->pairs;
        struct dpb_interval95 logs = dpb_stats_mean_ci95(log_ratio, count);

        comparison->ratio = exp(dpb_stats_mean(log_ratio, count));
        comparison->ci95 = (struct dpb_interval95){exp(logs.low), exp(logs.high)};
        comparison->verdict = comparison->ci95.low > 1    ? DPB_TUNE_BETTER
                              : comparison->ci95.high < 1 ? DPB_TUNE_WORSE
                                                          : DPB_TUNE_NO_DIFFERENCE;
    }
    free(log_ratio);
}

static dpb_status compare_fresh(struct session *s, int first_default, int first_winner)
{
    struct dpb_tune *tune = s->tune;
    double *ns = calloc(2 * (size_t)tune->pairs, sizeof(*ns));
    struct dpb_records records = {0};
    dpb_status st = ns ? read_records(s, &records) : no_memory();

    for (int i = 0; st == DPB_OK && i < tune->pairs; i++) {
        ns[i] = step_of(&records, 0, first_default + i);
        ns[tune->pairs + i] = step_of(&records, tune->winner, first_winner + i);
    }
    if (st == DPB_OK)
        dpb_tune_compare(ns, ns + tune->pairs, (size_t)tune->pairs, &tune->comparison);
    dpb_records_release(&records);
    free(ns);
    return st;
}

/* In turns, each order as often as the other, so that a drift of the machine hits both alike. */
static dpb_status run_comparison(struct session *s)
{
    int first_default = s->launched[0], first_winner = s->launched[s->tune->winner];

    for (int i = 0; i < s->tune->pairs; i++) {
        DPB_TRY(add_launch(s, i % 2 ? s->tune->winner : 0));
        DPB_TRY(add_launch(s, i % 2 ? 0 : s->tune->winner));
    }
    dpb_status st = launch(s);
    DPB_KEEP(st, take_stock(s, false));
    DPB_TRY(st);
    return compare_fresh(s, first_default, first_winner);
}

dpb_status dpb_tune_run(struct dpb_tune *tune, struct dpb_driver_config *driver,
                        struct dpb_driver_result *result)
{
    size_t cells = tune->plan.cell_count;
    struct session s = {
            .tune = tune,
            .driver = driver,
            .result = result,
            .launched = calloc(cells, sizeof(int)),
            .alive = calloc(cells, sizeof(int)),
    };
    dpb_status st = s.launched && s.alive ? DPB_OK : no_memory();

    dpb_rng_init(&s.rng, tune->plan.seed, ORDER_STREAM);
    tune->plan.repeats = 0;
    if (st == DPB_OK)
        st = run_rounds(&s);
    if (st == DPB_OK)
        st = run_comparison(&s);
    free(s.launched);
    free(s.alive);
    return st;
}
