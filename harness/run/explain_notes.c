#include "explain_notes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_str.h"
#include "dpb_units.h"

#define LARGE_SHARE   0.2 /* of all gradient bytes, in one gradient */
#define LATENCY_SHARE 0.5 /* of the wire time */
#define LARGE_NAMED   2   /* units in one note */

static void take(struct dpb_explanation *x, struct dpb_str *note)
{
    if (!note->failed && note->length > 0)
        dpb_json_append(x->notes, dpb_json_string(note->text));
    dpb_str_release(note);
}

static void append_size(struct dpb_str *out, int64_t bytes)
{
    char text[DPB_UNIT_TEXT_BYTES];

    dpb_human_size((double)bytes, 3, text, sizeof(text));
    dpb_str_append(out, text);
}

static int64_t param_bytes(const struct dpb_param_info *param)
{
    return param->numel * (int64_t)dpb_dtype_bytes(param->dtype);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void note_no_messages(struct dpb_explanation *x)
{
    struct dpb_str note = {0};

    if (x->message_count > 0)
        return;
    dpb_str_append(&note, x->ranks == 1 ? "one rank exchanges nothing; give --ranks to see what "
                                          "several would send"
                                        : "this strategy sends nothing");
    take(x, &note);
}

static void note_first_step(struct dpb_explanation *x)
{
    struct dpb_str note = {0};

    if (!x->replans || x->ranks == 1)
        return;
    dpb_str_appendf(
            &note,
            "step 1 has a plan of its own, %d unit%s; the plan listed holds from step 2 on, "
            "in the order in which gradients became ready in step 1. The time of step 1 "
            "says nothing about the others, so it is warm-up",
            x->first.unit_count, plural(x->first.unit_count));
    take(x, &note);
}

static const struct dpb_param_info *largest_member(const struct dpb_explanation *x, int u)
{
    const struct dpb_unit *unit = &x->steady.units[u];
    const struct dpb_param_info *largest = &x->model->params[x->steady.member[unit->first_member]];

    for (int m = 1; m < unit->member_count; m++) {
        const struct dpb_param_info *param =
                &x->model->params[x->steady.member[unit->first_member + m]];
        if (param_bytes(param) > param_bytes(largest))
            largest = param;
    }
    return largest;
}

/* A tensor is never split: which units are above the limit because of one. */
static void note_large_tensors(struct dpb_explanation *x)
{
    int64_t limit = dpb_json_as_int(dpb_json_get(x->described, "bucket_bytes"), INT64_MAX);
    struct dpb_str note = {0};
    int found = 0;

    for (int u = 0; u < x->steady.unit_count; u++) {
        const struct dpb_param_info *largest = largest_member(x, u);

        if (param_bytes(largest) <= limit || ++found > LARGE_NAMED)
            continue;
        dpb_str_appendf(&note, "%sunit %d (", found > 1 ? ", " : "", u);
        append_size(&note, x->steady.units[u].bytes);
        dpb_str_appendf(&note, ", of which %s has ", largest->name);
        append_size(&note, param_bytes(largest));
        dpb_str_append(&note, ")");
    }
    if (found > LARGE_NAMED)
        dpb_str_appendf(&note, " and %d more", found - LARGE_NAMED);
    if (found > 0) {
        dpb_str_appendf(&note, " %s above the limit of ", found > 1 ? "are" : "is");
        append_size(&note, limit);
        dpb_str_append(&note, " because of one tensor: a tensor is never split");
        take(x, &note);
    }
}

static int units_when_given(const struct explain_subject *subject, bool bucket_given)
{
    struct dpb_step_shape other = *subject->shape;
    struct dpb_unit_plan plan = {0};
    dpb_strategy *strategy = NULL;

    other.bucket_given = bucket_given;
    if (dpb_step_plan_offline(&other, 0, other.model->ready_order, &strategy, &plan) < 0)
        return -1;
    other.strategy->close(strategy);
    int units = plan.unit_count;
    dpb_unit_plan_release(&plan);
    return units;
}

/* Asking for the default bucket size is not the same as getting it by default
 * (pytorch/pytorch#121640). */
static void note_first_bucket(const struct explain_subject *subject)
{
    struct dpb_explanation *x = subject->explanation;
    const dpb_json *first = dpb_json_get(x->described, "first_bucket_bytes");
    bool given = subject->shape->bucket_given;
    struct dpb_str note = {0};

    if (!x->replans || !first || dpb_config_is_explicit(subject->config, "first-bucket"))
        return;
    int other = units_when_given(subject, !given);
    dpb_str_appendf(&note, "--bucket was %s, so the first bucket is closed at ",
                    given ? "given" : "left at its default");
    append_size(&note, dpb_json_as_int(first, 0));
    dpb_str_appendf(&note,
                    "%s; the same size %s would give %d unit%s, not %d. --first-bucket "
                    "decides apart from it",
                    given ? ", too" : "", given ? "by default" : "given with --bucket", other,
                    plural(other), x->steady.unit_count);
    if (other >= 0 && other != x->steady.unit_count)
        take(x, &note);
    dpb_str_release(&note);
}

static int exposed_count(const struct dpb_explanation *x)
{
    int count = 0;

    for (int i = 0; i < x->message_count; i++)
        count += x->messages[i].always_exposed;
    return count;
}

/* Where a thread beside the hooks forms the messages (Horovod's cycle), the plan cannot know them.
 */
static bool is_decided_in_run(const struct explain_subject *subject)
{
    return subject->shape->strategy->tick != NULL;
}

static void note_decided_in_run(const struct explain_subject *subject)
{
    struct dpb_str note = {0};

    if (subject->explanation->message_count == 0 || !is_decided_in_run(subject))
        return;
    dpb_str_append(&note, "what travels together is decided in the run, by what is ready on every "
                          "rank when a cycle begins; listed is the worst case, in which all is "
                          "ready at once. Messages that form earlier are smaller, and may hide");
    take(subject->explanation, &note);
}

static void note_no_overlap(const struct explain_subject *subject)
{
    struct dpb_explanation *x = subject->explanation;
    struct dpb_str note = {0};

    if (x->message_count == 0 || exposed_count(x) < x->message_count || is_decided_in_run(subject))
        return;
    dpb_str_append(&note, "nothing overlaps: no message can go while the rank still computes "
                          "gradients");
    take(x, &note);
}

/* Word embeddings that the output layer shares get their gradient last, and they are large. */
static void note_large_last(struct dpb_explanation *x)
{
    const struct dpb_param_info *last =
            &x->model->params[x->model->ready_order[x->model->param_count - 1]];
    double share = (double)param_bytes(last) / (double)x->gradient_bytes;
    struct dpb_str note = {0};

    if (share < LARGE_SHARE || x->message_count == 0 || exposed_count(x) == x->message_count)
        return;
    dpb_str_appendf(&note, "%s, ", last->name);
    append_size(&note, param_bytes(last));
    dpb_str_appendf(&note,
                    " or %.0f %% of all gradient bytes, is ready only when backward ends: no "
                    "bucket size hides it",
                    100 * share);
    take(x, &note);
}

static void note_latency(struct dpb_explanation *x)
{
    struct dpb_str note = {0};
    double bandwidth_ns;

    if (!x->has_link || x->wire_ns <= 0)
        return;
    bandwidth_ns = (double)x->wire_bytes / x->link.bw_bytes_per_s * 1e9;
    double share = 1 - bandwidth_ns / (double)x->wire_ns;
    if (share < LATENCY_SHARE || x->message_count < 2)
        return;
    dpb_str_appendf(&note,
                    "%.0f %% of the wire time is latency: fewer, larger messages would take less",
                    100 * share);
    take(x, &note);
}

static void note_exchanges(struct dpb_explanation *x)
{
    struct dpb_str note = {0};

    if (x->exchange_count > 0)
        dpb_str_append(&note, "what the network exchanges itself is sent under every strategy; no "
                              "--bucket and no --overlap changes it");
    take(x, &note);
}

/* As zero1, whose ranks gather parameters in place. */
static void note_shared_parameters(struct dpb_explanation *x)
{
    struct dpb_str note = {0};

    if (x->memory.parameters > 0)
        return;
    dpb_str_append(&note, "parameters lie where collectives find them, so their memory is counted "
                          "as communication");
    take(x, &note);
}

void explain_notes(const struct explain_subject *subject)
{
    struct dpb_explanation *x = subject->explanation;

    note_no_messages(x);
    note_first_step(x);
    note_large_tensors(x);
    note_first_bucket(subject);
    note_decided_in_run(subject);
    note_no_overlap(subject);
    note_large_last(x);
    note_latency(x);
    note_exchanges(x);
    note_shared_parameters(x);
}
