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

#define PLANT_STEP 2

struct verifier {
    const struct dpb_verify_config *config;
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
    const struct dpb_workload_ops *workload =
            job->integers ? v->config->registry->integer_workload
                          : dpb_registry_workload(v->config->registry, e->workload);
    const struct dpb_model *model =
            workload->model(job->integers ? NULL : dpb_config_struct(job->config, "workload"));
    dpb_json *json = dpb_job_to_json(job);
    struct dpb_launch_config launch = {
            .ranks = (int)e->ranks,
            .job = json,
            .timeout_ns = e->timeout_ns,
            .stall_timeout_ns = e->stall_timeout_ns,
            .bulk_bytes =
                    job->keep_params ? (size_t)dpb_model_param_elements(model) * sizeof(float) : 0,
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

static void skip(struct verifier *v, const char *name, const char *why)
{
    add_check(v, name, true, "skipped: %s", why)->skipped = true;
}

static void compare_losses(struct verifier *v, const struct dpb_launch_result *many,
                           const struct dpb_launch_result *one, bool exact)
{
    size_t steps = dpb_json_size(dpb_json_get(one->ranks[0], "loss_sum"));
    double worst = 0;
    for (size_t s = 0; s < steps; s++) {
        double a = loss_of_step(many, s), b = loss_of_step(one, s);
        double difference = a == b ? 0 : fabs(a - b) / fmax(fabs(b), 1e-30);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    if (exact)
        add_check(v, losses_name(exact), worst == 0,
                  "largest relative difference %.3g over %zu steps", worst, steps);
    else
        add_check(v, losses_name(exact), worst <= DPB_VERIFY_LOSS_RTOL,
                  "largest relative difference %.3g over %zu steps, bound %.3g", worst, steps,
                  DPB_VERIFY_LOSS_RTOL);
}

static void compare_params(struct verifier *v, const struct dpb_launch_result *many,
                           const struct dpb_launch_result *one, bool exact)
{
    const enum dpb_optimizer_kind optimizer = (enum dpb_optimizer_kind)v->e->optimizer;
    const float *a = many->bulk, *b = one->bulk;
    size_t elements = many->bulk_bytes / sizeof(float), differing = 0, outside = 0;
    double worst = 0;
    for (size_t i = 0; i < elements; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        differing += memcmp(&a[i], &b[i], sizeof(float)) != 0;
        outside +=
                !(difference <= DPB_VERIFY_PARAM_ATOL + DPB_VERIFY_PARAM_RTOL * fabs((double)b[i]));
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    if (exact)
        add_check(v, params_name(exact), differing == 0, "%zu of %zu elements differ", differing,
                  elements);
    else if (!dpb_optimizer_is_scale_free(optimizer))
        add_check(v, params_name(exact), outside == 0,
                  "largest difference %.3g, %zu of %zu elements beyond %.3g + %.3g |p|", worst,
                  outside, elements, DPB_VERIFY_PARAM_ATOL, DPB_VERIFY_PARAM_RTOL);
    else
        add_check(v, params_name(exact),
                  isfinite(worst) && (double)outside <= DPB_VERIFY_BEYOND_RATIO * (double)elements,
                  "largest difference %.3g, %zu of %zu elements beyond %.3g + %.3g |p|; %g %% may "
                  "be, since %s divides gradients by their size, rounding included",
                  worst, outside, elements, DPB_VERIFY_PARAM_ATOL, DPB_VERIFY_PARAM_RTOL,
                  100 * DPB_VERIFY_BEYOND_RATIO, dpb_optimizer_text(optimizer));
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
    add_check(v, replicas_name(integers), true,
              "%zu steps on %" PRId64 " ranks, XXH3 of all parameters",
              dpb_json_size(dpb_json_get(many->ranks[0], "loss_sum")), v->e->ranks);
}

/* Does each rank compute what it would have computed as a part of the whole batch? */
static bool has_one_big_batch(const struct verifier *v)
{
    const struct dpb_workload_ops *workload =
            dpb_registry_workload(v->config->registry, v->e->workload);
    return !(workload->flags & DPB_WORKLOAD_BATCH_STATISTICS);
}

static dpb_status compare_with_alone(struct verifier *v, bool integers)
{
    struct dpb_launch_result many = {0}, one = {0};
    dpb_config *alone_config = NULL;
    struct dpb_job job = {.config = v->config->config,
                          .verify = true,
                          .integers = integers,
                          .plant_rank = -1,
                          .keep_params = true};
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
    if (!integers && !has_one_big_batch(v)) {
        const char *why = "batch normalisation sees the samples of its rank only, so that one rank "
                          "with the whole batch computes something else";
        skip(v, losses_name(integers), why);
        skip(v, params_name(integers), why);
        goto out;
    }
    DPB_TRY_GOTO(st, alone(v->config->config, &alone_config), out);
    tell(v, integers ? "integer gradients, one rank" : "one rank with the whole batch");
    job.config = alone_config;
    job.data_ranks = (int)v->e->ranks;
    DPB_TRY_GOTO(st, train(v, &job, &one), out);
    compare_losses(v, &many, &one, integers);
    compare_params(v, &many, &one, integers);
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
    if (st == DPB_OK)
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
    DPB_TRY(compare_with_alone(&v, false));
    DPB_TRY(compare_with_alone(&v, true));
    DPB_TRY(plant_divergence(&v));
    for (int i = 0; i < result->count; i++)
        if (!result->check[i].passed)
            return DPB_ERR_CHECK;
    return DPB_OK;
}
