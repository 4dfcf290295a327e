#include "dpb_verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_worker.h"
#include "kept_values.h"

#define PLANT_STEP 2

/* How far N ranks may be from one big batch, after the first and after the last step. */
struct bounds {
    double first_loss_rtol, loss_rtol;
    struct {
        struct kept_bounds params, state;
    } first, last;
    double beyond_ratio; /* of the elements may lie beyond; 0: none */
};

/* What is compared: N ranks, and one with the whole batch. */
struct launches {
    const struct dpb_launch_result *many, *one;
    int64_t steps;
};

struct verifier {
    const struct dpb_verify_config *config;
    struct bounds bounds;
    unsigned strategy_flags; /* enum dpb_strategy_flags */
    bool amplifies;          /* the training amplifies roundings: bounds are measured */
    struct dpb_verify_result *result;
    const struct dpb_experiment *e;
};

static struct dpb_verify_check *add_check(struct verifier *v, const char *name, bool passed,
                                          const char *format, ...)
        __attribute__((format(printf, 4, 5)));

static struct dpb_verify_check *add_check(struct verifier *v, const char *name, bool passed,
                                          const char *format, ...)
{
    struct dpb_verify_check *check = &v->result->check[v->result->count++];
    va_list args;
    va_start(args, format);
    check->name = name;
    check->passed = passed;
    check->skipped = false;
    vsnprintf(check->detail, sizeof(check->detail), format, args);
    va_end(args);
    return check;
}

static void tell(const struct verifier *v, const char *what)
{
    if (v->config->progress)
        v->config->progress(v->config->progress_ctx, what);
}

/* Train as `job` says, over `config`'s ranks. */
static dpb_status train(const struct verifier *v, const struct dpb_job *job,
                        struct dpb_launch_result *result)
{
    const struct dpb_experiment *e = dpb_config_struct(job->config, "experiment");
    dpb_json *json = dpb_job_to_json(job);
    struct dpb_launch_config launch = {
            .ranks = (int)e->ranks,
            .crew = v->config->crew,
            .job = json,
            .timeout_ns = e->timeout_ns,
            .stall_timeout_ns = e->stall_timeout_ns,
            .wants_bulk = job->keep_values,
            .interrupted = v->config->interrupted,
    };
    dpb_status st = dpb_launch_run(&launch, result);
    dpb_json_free(json);
    return st;
}

/* The same training on one rank with the whole batch. */
static dpb_status alone(const dpb_config *config, dpb_config **one)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    char batch[32];
    dpb_status st;
    dpb_config *copy = NULL;
    DPB_TRY(dpb_config_copy(config, &copy));
    snprintf(batch, sizeof(batch), "%" PRId64, e->global_batch);
    DPB_TRY_GOTO(st, dpb_config_set(copy, "ranks", "1"), err);
    DPB_TRY_GOTO(st, dpb_config_set(copy, "ranks-per-node", "1"), err);
    DPB_TRY_GOTO(st, dpb_config_set(copy, "accumulate", "1"), err);
    DPB_TRY_GOTO(st, dpb_config_set(copy, "batch-per-rank", batch), err);
    *one = copy;
    return DPB_OK;
err:
    dpb_config_free(copy);
    return st;
}

/* Loss of the global batch of step s. */
static double loss_of_step(const struct dpb_launch_result *result, size_t s)
{
    double sum = 0;
    for (int r = 0; r < result->rank_count; r++)
        sum += dpb_json_as_real(dpb_json_at(dpb_json_get(result->ranks[r], "loss_sum"), s), NAN);
    return sum;
}

static const char *replicas_name(bool integers)
{
    return integers ? "integer replicas identical after every step"
                    : "replicas identical after every step";
}

static const char *losses_name(bool integers)
{
    return integers ? "integer losses equal one big batch, bit by bit"
                    : "losses follow one big batch";
}

static const char *params_name(bool integers)
{
    return integers ? "integer parameters equal one big batch, bit by bit"
                    : "parameters follow one big batch";
}

static const char state_name[] = "values beside the parameters follow one big batch";

static void skip(struct verifier *v, const char *name, const char *why)
{
    add_check(v, name, true, "skipped: %s", why)->skipped = true;
}

static int64_t steps_of(const struct dpb_launch_result *result)
{
    return (int64_t)dpb_json_size(dpb_json_get(result->ranks[0], "loss_sum"));
}

/* Of the first `steps` steps. */
static double losses_apart(const struct dpb_launch_result *many,
                           const struct dpb_launch_result *one, size_t steps)
{
    double worst = 0;
    for (size_t s = 0; s < steps; s++) {
        double a = loss_of_step(many, s), b = loss_of_step(one, s);
        double difference = a == b ? 0 : fabs(a - b) / fmax(fabs(b), 1e-30);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    return worst;
}

static void compare_losses(struct verifier *v, const struct dpb_launch_result *many,
                           const struct dpb_launch_result *one, bool exact)
{
    const size_t steps = (size_t)steps_of(one);
    const double worst = losses_apart(many, one, steps), first = losses_apart(many, one, 1);
    if (exact)
        add_check(v, losses_name(exact), worst == 0,
                  "largest relative difference %.3g over %zu steps", worst, steps);
    else
        add_check(v, losses_name(exact),
                  worst <= v->bounds.loss_rtol && first <= v->bounds.first_loss_rtol,
                  "largest relative difference %.3g over %zu steps, bound %.3g; %.3g in the first, "
                  "bound %.3g",
                  worst, steps, v->bounds.loss_rtol, first, v->bounds.first_loss_rtol);
}

/* Parameters, or the state beside them, after step `step`; a text of how far they are apart. */
static bool values_agree(struct verifier *v, const char *what, const struct launches *l,
                         int64_t step, const struct kept_bounds *bounds, char *text,
                         size_t text_bytes)
{
    const struct kept_difference d = kept_values_compare(l->many, l->one, what, step, bounds);
    if (d.missing) {
        snprintf(text, text_bytes, "no rank has left \"%s\" of the size that it has alone",
                 d.missing);
        return false;
    }
    snprintf(text, text_bytes,
             "largest difference %.3g%s%s, %zu of %zu elements beyond %.3g + %.3g |p|", d.largest,
             d.where[0] ? " in " : "", d.where, d.outside, d.elements, bounds->atol, bounds->rtol);
    return isfinite(d.largest) && (double)d.outside <= v->bounds.beyond_ratio * (double)d.elements;
}

/* The same bits. */
static void compare_bits(struct verifier *v, const struct launches *l)
{
    const struct kept_difference d =
            kept_values_compare(l->many, l->one, "parameter", l->steps, &v->bounds.last.params);
    add_check(v, params_name(true), d.differing == 0 && !d.missing, "%zu of %zu elements differ",
              d.differing, d.elements);
}

static void compare_values(struct verifier *v, const char *name, const char *what,
                           const struct launches *l, const struct kept_bounds *first_bounds,
                           const struct kept_bounds *last_bounds)
{
    char first[200] = "", last[200], allowed[120] = "";
    bool agree = values_agree(v, what, l, l->steps, last_bounds, last, sizeof(last));
    if (v->amplifies && !values_agree(v, what, l, 1, first_bounds, first, sizeof(first)))
        agree = false;
    if (v->bounds.beyond_ratio > 0)
        snprintf(allowed, sizeof(allowed),
                 "; %g %% may be, since %s divides gradients by their size, rounding included",
                 100 * v->bounds.beyond_ratio,
                 dpb_optimizer_text((enum dpb_optimizer_kind)v->e->optimizer));
    add_check(v, name, agree, "%s%s%s%s", last, first[0] ? "; after the first step: " : "", first,
              allowed);
}

/* Did the ranks stop because their replicas differed? Then that is a result, not an accident. */
static bool differed(struct verifier *v, const char *name, dpb_status st,
                     const struct dpb_launch_result *result)
{
    if (st == DPB_ERR_CHECK)
        add_check(v, name, false, "%s", result->reason);
    return st == DPB_ERR_CHECK;
}

static void add_replicas(struct verifier *v, bool integers, const struct dpb_launch_result *many)
{
    const int64_t compared = dpb_json_as_int(dpb_json_get(many->ranks[0], "replicas_compared"), 0);
    if (compared == 0) {
        skip(v, replicas_name(integers), "they were not synchronised in so few steps");
        return;
    }
    if (v->strategy_flags & DPB_STRATEGY_REPLICAS_DIFFER) {
        add_check(v, replicas_name(integers), true,
                  "after the %" PRId64 " of %zu steps that synchronise them, on %" PRId64
                  " ranks, XXH3 of all parameters",
                  compared, dpb_json_size(dpb_json_get(many->ranks[0], "loss_sum")), v->e->ranks);
        return;
    }
    add_check(v, replicas_name(integers), true,
              "%zu steps on %" PRId64 " ranks, XXH3 of all parameters",
              dpb_json_size(dpb_json_get(many->ranks[0], "loss_sum")), v->e->ranks);
}

/* Why N ranks do not compute what one rank with the whole batch computes; NULL: they do. */
static const char *why_no_big_batch(const struct verifier *v, bool integers)
{
    const struct dpb_workload_ops *workload =
            dpb_registry_workload(v->config->registry, v->e->workload);
    if (v->strategy_flags & DPB_STRATEGY_REPLICAS_DIFFER)
        return "between synchronisations every rank trains by itself, which one big batch does not";
    if (v->strategy_flags & DPB_STRATEGY_LOSSY)
        return "compressed gradients are rounded, or lack a part, so that one rank with the whole "
               "batch computes something else";
    if (integers || !(workload->flags & DPB_WORKLOAD_BATCH_STATISTICS))
        return NULL;
    if (!v->e->sync_bn)
        return "with --sync-bn off batch normalisation sees the samples of its rank only, so that "
               "one rank with the whole batch computes something else";
    if (v->e->accumulate > 1)
        return "batch normalisation sees the samples of one micro-batch only, so that one rank "
               "with the whole batch computes something else";
    return NULL;
}

static struct bounds bounds_of(const struct dpb_experiment *e)
{
    const bool scale_free = dpb_optimizer_is_scale_free((enum dpb_optimizer_kind)e->optimizer);
    const struct kept_bounds usual = {DPB_VERIFY_PARAM_ATOL, DPB_VERIFY_PARAM_RTOL};
    return (struct bounds){
            .first_loss_rtol = DPB_VERIFY_LOSS_RTOL,
            .loss_rtol = DPB_VERIFY_LOSS_RTOL,
            .first = {usual, usual},
            .last = {usual, usual},
            .beyond_ratio = scale_free ? DPB_VERIFY_BEYOND_RATIO : 0,
    };
}

/* Small batches under batch normalisation, and rounding to bf16, make much of little. */
static bool amplifies_roundings(const struct verifier *v)
{
    const struct dpb_workload_ops *workload =
            dpb_registry_workload(v->config->registry, v->e->workload);
    return (workload->flags & DPB_WORKLOAD_BATCH_STATISTICS) || v->e->precision != DPB_F32;
}

static double at_least(double bound, double aside)
{
    const double measured = DPB_VERIFY_FACTOR * aside;
    return measured > bound || isnan(measured) ? measured : bound;
}

static void widen(const struct launches *l, const char *what, int64_t step,
                  struct kept_bounds *bounds)
{
    bounds->atol = at_least(bounds->atol,
                            kept_values_compare(l->many, l->one, what, step, bounds).largest);
}

/* Let the same training begin some roundings aside: N ranks may be DPB_VERIFY_FACTOR times as far
 * from it as it is from itself, in the widest of some ways: what makes a ReLU flip in one of them
 * makes none in another. */
static dpb_status widen_bounds(struct verifier *v, const struct dpb_job *alone_job,
                               const struct dpb_launch_result *one)
{
    struct dpb_job job = *alone_job;
    dpb_status st = DPB_OK;
    tell(v, "one rank, some roundings aside");
    for (job.nudge = 1; st == DPB_OK && job.nudge <= DPB_VERIFY_WAYS; job.nudge++) {
        struct dpb_launch_result aside = {0};
        st = train(v, &job, &aside);
        if (st == DPB_OK) {
            const struct launches l = {&aside, one, steps_of(one)};
            struct bounds *b = &v->bounds;
            b->first_loss_rtol = at_least(b->first_loss_rtol, losses_apart(&aside, one, 1));
            b->loss_rtol = at_least(b->loss_rtol, losses_apart(&aside, one, (size_t)l.steps));
            widen(&l, "parameter", 1, &b->first.params);
            widen(&l, "state", 1, &b->first.state);
            widen(&l, "parameter", l.steps, &b->last.params);
            widen(&l, "state", l.steps, &b->last.state);
        }
        dpb_launch_result_release(&aside);
    }
    return st;
}

static dpb_status compare_with_alone(struct verifier *v, bool integers)
{
    struct dpb_launch_result many = {0}, one = {0};
    dpb_config *alone_config = NULL;
    struct dpb_job job = {.config = v->config->config,
                          .verify = true,
                          .integers = integers,
                          .plant_rank = -1,
                          .keep_values = true,
                          .keep_first = !integers && v->amplifies};
    const char *why = why_no_big_batch(v, integers);
    if (v->e->ranks < 2) {
        skip(v, replicas_name(integers), "one rank has no replica");
        skip(v, losses_name(integers), "one rank is the one big batch");
        skip(v, params_name(integers), "one rank is the one big batch");
        return DPB_OK;
    }
    tell(v, integers ? "integer gradients, all ranks" : "all ranks");
    dpb_status st = train(v, &job, &many);
    if (differed(v, replicas_name(integers), st, &many)) {
        st = DPB_OK;
        goto out;
    }
    if (st < 0)
        goto out;
    add_replicas(v, integers, &many);
    if (why) {
        skip(v, losses_name(integers), why);
        skip(v, params_name(integers), why);
        goto out;
    }
    DPB_TRY_GOTO(st, alone(v->config->config, &alone_config), out);
    tell(v, integers ? "integer gradients, one rank" : "one rank with the whole batch");
    job.config = alone_config;
    job.data_ranks = (int)v->e->ranks;
    job.data_batches = v->e->accumulate;
    DPB_TRY_GOTO(st, train(v, &job, &one), out);
    if (!integers && v->amplifies)
        DPB_TRY_GOTO(st, widen_bounds(v, &job, &one), out);
    compare_losses(v, &many, &one, integers);
    const struct launches l = {&many, &one, steps_of(&one)};
    if (integers) {
        compare_bits(v, &l);
        goto out;
    }
    compare_values(v, params_name(false), "parameter", &l, &v->bounds.first.params,
                   &v->bounds.last.params);
    if (kept_values_compare(&one, &one, "state", l.steps, &v->bounds.last.state).tensors > 0)
        compare_values(v, state_name, "state", &l, &v->bounds.first.state, &v->bounds.last.state);
out:
    dpb_config_free(alone_config);
    dpb_launch_result_release(&many);
    dpb_launch_result_release(&one);
    return st;
}

static void swallow(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* The check of replicas must be able to fail: flip one bit on the last rank, and see it named. */
static dpb_status plant_divergence(struct verifier *v)
{
    const char *name = "a planted divergence is found";
    if (v->e->ranks < 2) {
        skip(v, name, "one rank has no replica to differ from");
        return DPB_OK;
    }
    if (v->strategy_flags & DPB_STRATEGY_SHARDS_PARAMETERS) {
        skip(v, name, "ranks hold parts of the parameters, and no copies that could differ");
        return DPB_OK;
    }
    struct dpb_launch_result result = {0};
    int rank = (int)v->e->ranks - 1;
    struct dpb_job job = {.config = v->config->config,
                          .verify = true,
                          .plant_rank = rank,
                          .plant_step = PLANT_STEP,
                          .quiet = true};
    tell(v, "planted divergence");
    dpb_log_set_sink(swallow, NULL); /* its error is what we want to see, and no alarm */
    dpb_status st = train(v, &job, &result);
    dpb_log_set_sink(NULL, NULL);
    if (st == DPB_OK && !dpb_json_as_bool(dpb_json_get(result.ranks[rank], "planted"), false))
        skip(v, name, "replicas were not synchronised in so few steps");
    else if (st == DPB_OK)
        add_check(v, name, false,
                  "one bit of rank %d was flipped after step %d, and nothing said so", rank,
                  PLANT_STEP);
    else if (st == DPB_ERR_CHECK)
        add_check(v, name, true, "%s", result.reason);
    dpb_launch_result_release(&result);
    return st == DPB_ERR_CHECK ? DPB_OK : st;
}

dpb_status dpb_verify_run(const struct dpb_verify_config *config, struct dpb_verify_result *result)
{
    struct verifier v = {.config = config,
                         .result = result,
                         .e = dpb_config_struct(config->config, "experiment")};
    memset(result, 0, sizeof(*result));
    v.strategy_flags = dpb_strategy_flags(dpb_registry_strategy(config->registry, v.e->strategy),
                                          dpb_config_struct(config->config, "strategy"));
    v.bounds = bounds_of(v.e);
    v.amplifies = amplifies_roundings(&v);
    DPB_TRY(compare_with_alone(&v, false));
    DPB_TRY(compare_with_alone(&v, true));
    DPB_TRY(plant_divergence(&v));
    for (int i = 0; i < result->count; i++)
        if (!result->check[i].passed)
            return DPB_ERR_CHECK;
    return DPB_OK;
}
