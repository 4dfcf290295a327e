#include "dpb_timeline.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "dpb_rng.h"

struct transfer {
    struct dpb_timeline_transfer is;
    double ready_ns; /* of the last rank */
    double watched_ready_ns;
    double start_ns, end_ns; /* NAN until then */
    double at_ns, left_ns;   /* how far it has been followed, and what is left of alone_ns */
};

struct dpb_timeline {
    struct dpb_timeline_config config;
    int lanes;           /* the ranks, or 1 for all of them when nothing makes them differ */
    int watched;         /* the lane of the watched rank */
    double *clock;       /* [lanes] when the compute stream has done all that was launched */
    double *host;        /* [lanes] but for host_ns, the part that all have in common */
    double *factor;      /* [lanes] of this step: an operator takes alone_ns times this */
    double mean_factor;  /* of those */
    double host_ns;      /* since `host` was written */
    double channel_ns;   /* when the last transfer that has ended did */
    int64_t first, next; /* numbers of transfers: the first that has not ended, the next to start */
    struct transfer transfer[DPB_TIMELINE_TRANSFERS_KEPT];
    double busy_ns, alone_ns;
};

/* ---- new and free ---- */

static dpb_status bad(const char *what, double value, const char *remedy)
{
    dpb_error("simulation: %s is %g", what, value);
    dpb_log_hint("%s", remedy);
    return DPB_ERR_USAGE;
}

static dpb_status check(const struct dpb_timeline_config *config)
{
    const struct {
        const char *what;
        double value, most;
    } shares[] = {
            {"the noise of a rank", config->noise.rank_sd, 1},
            {"the noise of a step", config->noise.common_sd, 1},
            {"the share of delayed rank-steps", config->noise.tail_share, 1},
            {"the mean delay", config->noise.tail_mean, INFINITY},
            {"how much slower slow ranks are", config->noise.slow_by, INFINITY},
            {"the time of a launch", config->launch_ns, INFINITY},
    };

    if (config->ranks < 1)
        return bad("the number of ranks", config->ranks, "give at least 1");
    if (config->watched < 0 || config->watched >= config->ranks)
        return bad("the rank that is watched", config->watched, "give one of the ranks, from 0");
    if (config->noise.slow_ranks < 0 || config->noise.slow_ranks > config->ranks)
        return bad("the number of slow ranks", config->noise.slow_ranks,
                   "give at least 0 and at most the number of ranks");
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        if (!isfinite(shares[i].value) || shares[i].value < 0 || shares[i].value > shares[i].most)
            return bad(shares[i].what, shares[i].value, "give a share of 0 or more");
    return DPB_OK;
}

static bool are_alike(const struct dpb_timeline_noise *noise)
{
    return noise->rank_sd == 0 && noise->tail_share == 0 && noise->slow_ranks == 0;
}

dpb_status dpb_timeline_new(const struct dpb_timeline_config *config, dpb_timeline **timeline)
{
    DPB_TRY(check(config));
    const size_t lanes = are_alike(&config->noise) ? 1 : (size_t)config->ranks;
    dpb_timeline *t = calloc(1, sizeof(*t));
    double *arrays = malloc(3 * lanes * sizeof(*arrays));

    if (!t || !arrays) {
        free(t);
        free(arrays);
        dpb_error("simulation: no memory for the clocks of %d ranks", config->ranks);
        return DPB_ERR_NO_MEMORY;
    }
    t->config = *config;
    t->lanes = (int)lanes;
    t->watched = lanes > 1 ? config->watched : 0;
    t->clock = arrays;
    t->host = arrays + lanes;
    t->factor = arrays + 2 * lanes;
    t->mean_factor = 1;
    for (size_t r = 0; r < lanes; r++) {
        t->clock[r] = t->host[r] = 0;
        t->factor[r] = 1;
    }
    *timeline = t;
    return DPB_OK;
}

void dpb_timeline_free(dpb_timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->clock);
    free(timeline);
}

int dpb_timeline_ranks(const dpb_timeline *timeline)
{
    return timeline->config.ranks;
}

/* ---- noise ---- */

static double exponential(struct dpb_rng *rng)
{
    return -log1p(-dpb_rng_uniform(rng));
}

/* Streams of numbers: one per step, and the common part's beside them. */
#define COMMON_STREAM (UINT64_C(1) << 62)

void dpb_timeline_step_begin(dpb_timeline *timeline, int64_t step)
{
    const struct dpb_timeline_noise *noise = &timeline->config.noise;
    const int lanes = timeline->lanes;
    struct dpb_rng rng, common_rng;
    double sum = 0;

    dpb_rng_init(&rng, timeline->config.seed, (uint64_t)step);
    dpb_rng_init(&common_rng, timeline->config.seed, COMMON_STREAM + (uint64_t)step);
    const double common =
            noise->common_sd > 0 ? 1 + noise->common_sd * dpb_rng_normal(&common_rng) : 1;
    for (int r = 0; r < lanes; r++) {
        double factor = 1;

        if (noise->rank_sd > 0)
            factor += noise->rank_sd * dpb_rng_normal(&rng);
        if (noise->tail_share > 0 && dpb_rng_uniform(&rng) < noise->tail_share)
            factor += noise->tail_mean * exponential(&rng);
        if (r >= lanes - noise->slow_ranks)
            factor *= 1 + noise->slow_by;
        factor *= common;
        timeline->factor[r] = factor > 0 ? factor : 0;
        sum += timeline->factor[r];
    }
    timeline->mean_factor = sum / lanes;
}

/* ---- transfers beside compute ---- */

static struct transfer *numbered(const dpb_timeline *timeline, int64_t number)
{
    return (struct transfer *)&timeline->transfer[number % DPB_TIMELINE_TRANSFERS_KEPT];
}

/* Transfers that are not kept have ended, by the time at which the oldest that is kept began. */
static bool is_kept(const dpb_timeline *timeline, int64_t number)
{
    return number >= timeline->next - DPB_TIMELINE_TRANSFERS_KEPT;
}

static double gone_by_ns(const dpb_timeline *timeline)
{
    const double began_ns = numbered(timeline, timeline->next)->start_ns; /* the oldest's place */

    return isnan(began_ns) ? timeline->channel_ns : began_ns;
}

/* It begins when all are ready and the one before has ended. */
static void begin(const dpb_timeline *timeline, struct transfer *transfer)
{
    if (!isnan(transfer->start_ns))
        return;
    transfer->start_ns = fmax(transfer->ready_ns, timeline->channel_ns);
    transfer->at_ns = transfer->start_ns;
}

static void end(dpb_timeline *timeline, struct transfer *transfer)
{
    transfer->end_ns = transfer->at_ns;
    transfer->left_ns = 0;
    timeline->channel_ns = transfer->at_ns;
    timeline->first++;
}

/* Let transfers run alone until `until_ns`; true when one is under way then. */
static bool transfers_alone(dpb_timeline *timeline, double until_ns)
{
    while (timeline->first < timeline->next) {
        struct transfer *head = numbered(timeline, timeline->first);

        begin(timeline, head);
        if (head->start_ns > until_ns)
            return false;
        const double run_ns = fmin(head->left_ns, until_ns - head->at_ns);
        head->left_ns -= run_ns;
        head->at_ns += run_ns;
        if (head->left_ns > 0)
            return true;
        end(timeline, head);
    }
    return false;
}

/* When the next transfer begins, none being under way. */
static double next_begin_ns(const dpb_timeline *timeline)
{
    return timeline->first < timeline->next ? numbered(timeline, timeline->first)->start_ns
                                            : INFINITY;
}

/* Compute that takes `alone_ns` from `from_ns` on, beside whatever is transferred: when it ends. */
static double beside_transfers(dpb_timeline *timeline, double from_ns, double alone_ns)
{
    double now_ns = from_ns;
    double left_ns = alone_ns;

    while (left_ns > 0) {
        if (!transfers_alone(timeline, now_ns)) {
            const double alone = fmin(left_ns, next_begin_ns(timeline) - now_ns);
            now_ns += alone;
            left_ns = alone < left_ns ? left_ns - alone : 0;
            continue;
        }
        struct transfer *head = numbered(timeline, timeline->first);
        const double slow = 1 + head->is.compute_slowdown, head_slow = 1 + head->is.slowdown;
        const double compute_ns = left_ns * slow, transfer_ns = head->left_ns * head_slow;
        const double both_ns = fmin(compute_ns, transfer_ns);

        now_ns += both_ns;
        head->at_ns = now_ns;
        left_ns = both_ns < compute_ns ? left_ns - both_ns / slow : 0;
        if (both_ns < transfer_ns)
            head->left_ns -= both_ns / head_slow;
        else
            end(timeline, head);
    }
    return now_ns;
}

double dpb_timeline_finish(dpb_timeline *timeline, int64_t transfer)
{
    if (!is_kept(timeline, transfer))
        return gone_by_ns(timeline);
    while (timeline->first <= transfer)
        transfers_alone(timeline, INFINITY);
    return numbered(timeline, transfer)->end_ns;
}

int64_t dpb_timeline_transfer(dpb_timeline *timeline, const struct dpb_timeline_transfer *transfer)
{
    if (timeline->next - timeline->first >= DPB_TIMELINE_TRANSFERS_KEPT)
        dpb_timeline_finish(timeline, timeline->first);
    *numbered(timeline, timeline->next) = (struct transfer){
            .is = *transfer,
            .ready_ns = fmax(dpb_timeline_last_ns(timeline), transfer->not_before_ns),
            .watched_ready_ns = fmax(dpb_timeline_watched_ns(timeline), transfer->not_before_ns),
            .start_ns = NAN,
            .end_ns = NAN,
            .left_ns = transfer->alone_ns,
    };
    return timeline->next++;
}

void dpb_timeline_wait(dpb_timeline *timeline, int64_t transfer)
{
    const double end_ns = dpb_timeline_finish(timeline, transfer);

    for (int r = 0; r < timeline->lanes; r++)
        timeline->clock[r] = fmax(timeline->clock[r], end_ns);
}

bool dpb_timeline_has_ended(const dpb_timeline *timeline, int64_t transfer, double now_ns)
{
    double at_ns = timeline->channel_ns;

    if (!is_kept(timeline, transfer))
        return gone_by_ns(timeline) <= now_ns;
    if (transfer < timeline->first)
        return numbered(timeline, transfer)->end_ns <= now_ns;
    for (int64_t i = timeline->first; i <= transfer; i++) {
        const struct transfer *before = numbered(timeline, i);
        at_ns = isnan(before->start_ns) ? fmax(before->ready_ns, at_ns) : before->at_ns;
        at_ns += before->left_ns;
    }
    return at_ns <= now_ns;
}

void dpb_timeline_transfer_times(const dpb_timeline *timeline, int64_t transfer,
                                 struct dpb_timeline_transfer_times *times)
{
    const struct transfer *was = numbered(timeline, transfer);

    if (!is_kept(timeline, transfer)) {
        times->ready_ns = times->start_ns = times->end_ns = gone_by_ns(timeline);
        return;
    }
    times->start_ns = was->start_ns;
    times->end_ns = was->end_ns;
    times->ready_ns = fmin(was->start_ns, was->watched_ready_ns);
}

/* ---- compute and hosts ---- */

void dpb_timeline_host(dpb_timeline *timeline, double ns)
{
    timeline->host_ns += ns;
}

void dpb_timeline_compute(dpb_timeline *timeline, double alone_ns, struct dpb_timeline_span *span)
{
    const int lanes = timeline->lanes, watched = timeline->watched;
    double *clock = timeline->clock;
    const double *host = timeline->host, *factor = timeline->factor;
    double from_ns = 0;

    timeline->host_ns += timeline->config.launch_ns;
    const double launched_ns = timeline->host_ns;
    for (int r = 0; r < lanes; r++) {
        const double at_ns = host[r] + launched_ns;
        clock[r] = clock[r] > at_ns ? clock[r] : at_ns;
        from_ns += clock[r];
    }
    from_ns /= lanes;
    const double mean_ns = alone_ns * timeline->mean_factor;
    const double took_ns = beside_transfers(timeline, from_ns, mean_ns) - from_ns;
    const double stretched_ns = mean_ns > 0 ? alone_ns * (took_ns / mean_ns) : 0;

    if (span)
        span->start_ns = clock[watched];
    for (int r = 0; r < lanes; r++)
        clock[r] += stretched_ns * factor[r];
    if (span)
        span->end_ns = clock[watched];
    timeline->busy_ns += took_ns;
    timeline->alone_ns += mean_ns;
    if (timeline->config.in_thread)
        dpb_timeline_host_wait_compute(timeline);
}

void dpb_timeline_host_wait_compute(dpb_timeline *timeline)
{
    for (int r = 0; r < timeline->lanes; r++)
        timeline->host[r] = fmax(timeline->host[r] + timeline->host_ns, timeline->clock[r]);
    timeline->host_ns = 0;
}

void dpb_timeline_host_until(dpb_timeline *timeline, double until_ns)
{
    for (int r = 0; r < timeline->lanes; r++)
        timeline->host[r] = fmax(timeline->host[r] + timeline->host_ns, until_ns);
    timeline->host_ns = 0;
}

/* ---- what time it is ---- */

double dpb_timeline_host_ns(const dpb_timeline *timeline)
{
    return timeline->host[timeline->watched] + timeline->host_ns;
}

double dpb_timeline_watched_ns(const dpb_timeline *timeline)
{
    return timeline->clock[timeline->watched];
}

double dpb_timeline_rank_ns(const dpb_timeline *timeline, int rank)
{
    return timeline->clock[timeline->lanes > 1 ? rank : 0];
}

double dpb_timeline_last_ns(const dpb_timeline *timeline)
{
    double last_ns = timeline->clock[0];

    for (int r = 1; r < timeline->lanes; r++)
        last_ns = timeline->clock[r] > last_ns ? timeline->clock[r] : last_ns;
    return last_ns;
}

double dpb_timeline_mean_ns(const dpb_timeline *timeline)
{
    double sum_ns = 0;

    for (int r = 0; r < timeline->lanes; r++)
        sum_ns += timeline->clock[r];
    return sum_ns / timeline->lanes;
}

void dpb_timeline_align(dpb_timeline *timeline)
{
    dpb_timeline_host_wait_compute(timeline);
    double last_ns = 0;
    for (int r = 0; r < timeline->lanes; r++)
        last_ns = fmax(last_ns, timeline->host[r]);
    for (int r = 0; r < timeline->lanes; r++)
        timeline->clock[r] = timeline->host[r] = last_ns;
}

double dpb_timeline_busy_ns(const dpb_timeline *timeline)
{
    return timeline->busy_ns;
}

double dpb_timeline_alone_ns(const dpb_timeline *timeline)
{
    return timeline->alone_ns;
}
