#include "dpb_explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_link_model.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "explain_notes.h"

static dpb_status no_memory(void)
{
    dpb_error("explain: out of memory");
    return DPB_ERR_NO_MEMORY;
}

const char *dpb_sync_when_text(enum dpb_sync_when when)
{
    static const char *const texts[] = {
            [DPB_SYNC_BEFORE_FORWARD] = "before-forward",
            [DPB_SYNC_FORWARD] = "forward",
            [DPB_SYNC_BACKWARD_USE] = "backward-use",
            [DPB_SYNC_GRADIENT] = "gradient",
            [DPB_SYNC_AFTER_BACKWARD] = "after-backward",
            [DPB_SYNC_AFTER_OPTIMIZER] = "after-optimizer",
    };
    return texts[when];
}

int64_t dpb_step_memory_sum(const struct dpb_step_memory *memory)
{
    return memory->parameters + memory->gradients + memory->optimizer + memory->communication +
           memory->strategy;
}

/* ---- how far backward is ---- */

/* Positions in the order in which gradients become ready, and the FLOP that are done by then. */
struct progress {
    int *position; /* per parameter */
    double *done;  /* per position: share of the backward pass's FLOP */
};

static void progress_release(struct progress *progress)
{
    free(progress->position);
    free(progress->done);
}

/* When each layer's products are through: with its largest gradient. A layer without parameters
 * lies before the first gradient of an earlier layer. */
static void layer_ends(const struct dpb_model *model, const int *position, int *end)
{
    int next_earlier = model->param_count - 1;

    for (int l = 0; l < model->layer_count; l++) {
        int64_t largest = 0;
        int first = next_earlier;

        end[l] = next_earlier;
        for (int p = 0; p < model->param_count; p++) {
            if (model->params[p].layer != l)
                continue;
            first = position[p] < first ? position[p] : first;
            if (model->params[p].numel > largest) {
                largest = model->params[p].numel;
                end[l] = position[p];
            }
        }
        next_earlier = first;
    }
}

/* The backward pass of a layer takes twice its forward MACs, one product for the gradient of its
 * weights and one for that of its input; so shares are those of forward MACs. */
static dpb_status progress_make(const struct dpb_model *model, struct progress *progress)
{
    int *end = calloc((size_t)model->layer_count + 1, sizeof(*end));
    progress->position = calloc((size_t)model->param_count + 1, sizeof(*progress->position));
    progress->done = calloc((size_t)model->param_count + 1, sizeof(*progress->done));
    if (!end || !progress->position || !progress->done) {
        free(end);
        return no_memory();
    }
    for (int i = 0; i < model->param_count; i++)
        progress->position[model->ready_order[i]] = i;
    layer_ends(model, progress->position, end);
    double total = (double)dpb_model_fwd_macs_per_sample(model);
    for (int l = 0; l < model->layer_count && total > 0; l++)
        progress->done[end[l]] += (double)model->layers[l].fwd_macs_per_sample / total;
    for (int i = 1; i < model->param_count; i++)
        progress->done[i] += progress->done[i - 1];
    free(end);
    return DPB_OK;
}

/* Position of the gradient that lets a message go. */
static int last_position(const struct progress *progress, const struct dpb_unit_plan *plan,
                         const struct dpb_sync_message *what)
{
    int last = what->param >= 0 ? progress->position[what->param] : -1;
    if (what->unit < 0 || what->unit >= plan->unit_count)
        return last;
    const struct dpb_unit *unit = &plan->units[what->unit];
    for (int m = 0; m < unit->member_count; m++) {
        int position = progress->position[plan->member[unit->first_member + m]];
        last = position > last ? position : last;
    }
    return last;
}

/* ---- messages ---- */

/* Does it go only before the use of what it brings itself? Then the layer waits for it; a message
 * that goes before the use of another unit's parameter is there early. */
static bool is_waited_for(const struct dpb_explanation *x, const struct dpb_sync_message *what)
{
    return what->param >= 0 && x->steady.unit_of[what->param] == what->unit;
}

/* Gathers that all go when the step begins arrive while earlier layers compute, but for the first.
 */
static bool is_first_of_forward(const struct dpb_explanation *x,
                                const struct dpb_explain_message *message)
{
    for (const struct dpb_explain_message *m = x->messages; m < message; m++)
        if (m->what.when == DPB_SYNC_FORWARD)
            return false;
    return true;
}

/* Collectives run in the order in which they are started, so a message goes no earlier than the
 * one before it: `last` is the latest position so far. */
static void time_message(const struct dpb_explanation *x, const struct progress *progress,
                         struct dpb_explain_message *message, int *last)
{
    const struct dpb_sync_message *what = &message->what;
    int final = x->model->param_count - 1, position;

    message->after = -1;
    message->backward_done = NAN;
    switch (what->when) {
    case DPB_SYNC_GRADIENT:
        position = last_position(progress, &x->steady, what);
        *last = position > *last ? position : *last;
        message->after = x->model->ready_order[*last];
        message->backward_done = progress->done[*last];
        message->always_exposed = *last == final;
        break;
    case DPB_SYNC_BACKWARD_USE:
        message->after = what->param;
        message->always_exposed = is_waited_for(x, what);
        if (what->param >= 0) {
            position = progress->position[what->param];
            message->backward_done = position > 0 ? progress->done[position - 1] : 0;
        }
        break;
    case DPB_SYNC_FORWARD:
        message->after = what->param;
        message->always_exposed = is_waited_for(x, what) && is_first_of_forward(x, message);
        break;
    case DPB_SYNC_AFTER_BACKWARD:
        message->backward_done = 1;
        message->always_exposed = true;
        break;
    case DPB_SYNC_BEFORE_FORWARD:
    case DPB_SYNC_AFTER_OPTIMIZER:
        message->always_exposed = true;
        break;
    }
}

/* One of the strategy's messages, or of the network's exchanges, which follow them in number. */
struct collective {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int root;
    int64_t count, bytes;
    int64_t times, every; /* so often in one of so many steps */
    bool always_exposed;
    int64_t *wire_bytes, *wire_ns;
};

static int collective_count(const struct dpb_explanation *x)
{
    return x->message_count + x->exchange_count;
}

static struct collective collective_at(const struct dpb_explanation *x, int i)
{
    if (i < x->message_count) {
        struct dpb_explain_message *message = &x->messages[i];
        const struct dpb_sync_message *what = &message->what;
        return (struct collective){.kind = what->kind,
                                   .dtype = what->dtype,
                                   .root = what->root,
                                   .count = what->count,
                                   .bytes = message->bytes,
                                   .times = message->times,
                                   .every = what->every > 0 ? what->every : 1,
                                   .always_exposed = message->always_exposed,
                                   .wire_bytes = &message->wire_bytes,
                                   .wire_ns = &message->wire_ns};
    }
    struct dpb_explain_exchange *exchange = &x->exchanges[i - x->message_count];
    return (struct collective){.kind = exchange->what.kind,
                               .dtype = exchange->what.dtype,
                               .count = exchange->what.count,
                               .bytes = exchange->bytes,
                               .times = exchange->times,
                               .every = 1,
                               .always_exposed = !exchange->what.meanwhile,
                               .wire_bytes = &exchange->wire_bytes,
                               .wire_ns = &exchange->wire_ns};
}

static void keep_most(int64_t *most, int64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

/* What one rank sends in a step, inside its node and to others. */
static struct dpb_wire_levels levels_of_rank(const struct dpb_explanation *x,
                                             const struct dpb_algorithm_setup *setup, int rank)
{
    struct dpb_wire_levels sum = {0, 0};
    for (int i = 0; i < collective_count(x); i++) {
        const struct collective c = collective_at(x, i);
        const struct dpb_wire_levels once = dpb_setup_wire_levels(
                setup, c.kind, rank, c.root, c.count, dpb_dtype_bytes(c.dtype));
        sum.inside_bytes += c.times * once.inside_bytes / c.every;
        sum.between_bytes += c.times * once.between_bytes / c.every;
    }
    return sum;
}

static void count_levels(struct dpb_explanation *x, const struct dpb_algorithm_setup *setup)
{
    const int per_node = setup->ranks_per_node > 0 ? setup->ranks_per_node : setup->ranks;
    int64_t of_node = 0;
    x->nodes = (setup->ranks + per_node - 1) / per_node;
    for (int rank = 0; rank < x->ranks; rank++) {
        const struct dpb_wire_levels of_rank = levels_of_rank(x, setup, rank);
        of_node = (rank % per_node ? of_node : 0) + of_rank.between_bytes;
        keep_most(&x->level_bytes.inside_bytes, of_rank.inside_bytes);
        keep_most(&x->level_bytes.between_bytes, of_rank.between_bytes);
        keep_most(&x->node_wire_bytes, of_node);
    }
}

static void count_wire(struct dpb_explanation *x, const struct dpb_algorithm_setup *setup)
{
    for (int rank = 0; rank < x->ranks; rank++) {
        int64_t of_rank = 0;
        for (int i = 0; i < collective_count(x); i++) {
            const struct collective c = collective_at(x, i);
            const int64_t bytes = dpb_setup_wire_bytes(setup, c.kind, rank, c.root, c.count,
                                                       dpb_dtype_bytes(c.dtype));
            keep_most(c.wire_bytes, bytes);
            of_rank += c.times * bytes / c.every;
        }
        keep_most(&x->wire_bytes, of_rank);
    }
    if (!x->has_link)
        x->wire_ns = -1;
    for (int i = 0; i < collective_count(x); i++) {
        const struct collective c = collective_at(x, i);
        *c.wire_ns = x->has_link ? dpb_setup_wire_ns(setup, c.kind, c.bytes) : -1;
        const int64_t per_step_ns = x->has_link ? c.times * *c.wire_ns / c.every : 0;
        x->wire_ns += per_step_ns;
        x->exposed_wire_ns += c.always_exposed ? per_step_ns : 0;
    }
}

/* The link carries one message after the other, and nothing of the network's own. Those from number
 * i on that can be hidden are through before backward ends, of length T, when done(i) T + their
 * wire time <= T; this for every i. */
static int64_t hidden_within_ns(const struct dpb_explanation *x)
{
    double least_ns = 0, wire_ns = 0;
    if (!x->has_link || x->exchange_count > 0)
        return -1;
    for (int i = x->message_count - 1; i >= 0; i--) {
        const struct dpb_explain_message *message = &x->messages[i];
        if (message->always_exposed)
            continue;
        if (message->what.when != DPB_SYNC_GRADIENT || message->backward_done >= 1)
            return -1; /* what hides behind forward, or behind layers whose FLOP are not known */
        wire_ns += (double)message->wire_ns;
        least_ns = fmax(least_ns, wire_ns / (1 - message->backward_done));
    }
    return least_ns < 0x1p62 ? (int64_t)ceil(least_ns) : -1;
}

static dpb_status make_messages(struct dpb_explanation *x, dpb_strategy *strategy,
                                const struct dpb_step_shape *shape)
{
    const struct dpb_strategy_ops *ops = shape->strategy;
    const unsigned flags = dpb_strategy_flags(ops, shape->strategy_options);
    struct progress progress = {0};
    struct dpb_sync_message *what = NULL;
    dpb_status st = DPB_OK;
    int last = 0;

    x->message_count = ops->messages(strategy, NULL);
    x->messages = calloc((size_t)x->message_count + 1, sizeof(*x->messages));
    what = calloc((size_t)x->message_count + 1, sizeof(*what));
    if (!x->messages || !what) {
        st = no_memory();
        goto out;
    }
    ops->messages(strategy, what);
    DPB_TRY_GOTO(st, progress_make(x->model, &progress), out);
    for (int i = 0; i < x->message_count; i++) {
        x->messages[i].what = what[i];
        x->messages[i].times = dpb_sync_message_times(flags, shape->accumulate, &what[i]);
        x->messages[i].bytes = what[i].count * (int64_t)dpb_dtype_bytes(what[i].dtype);
        time_message(x, &progress, &x->messages[i], &last);
        x->sent_count += x->messages[i].times;
    }
out:
    progress_release(&progress);
    free(what);
    return st;
}

/* ---- what the network exchanges itself ---- */

static dpb_status make_exchanges(struct dpb_explanation *x, const struct dpb_workload_ops *workload,
                                 const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const void *options = dpb_config_struct(config, "workload");
    const struct dpb_workload_sizes sizes = {.batch_max = e->batch_per_rank,
                                             .global_batch = e->global_batch,
                                             .ranks = (int)e->ranks,
                                             .precision = (enum dpb_dtype)e->precision,
                                             .sync_batch_statistics = e->sync_bn};
    const int count = workload->exchanges ? workload->exchanges(options, &sizes, NULL) : 0;

    if (count == 0)
        return DPB_OK;
    struct dpb_workload_exchange *what = calloc((size_t)count, sizeof(*what));
    x->exchanges = calloc((size_t)count, sizeof(*x->exchanges));
    if (!what || !x->exchanges) {
        free(what);
        return no_memory();
    }
    workload->exchanges(options, &sizes, what);
    for (x->exchange_count = 0; x->exchange_count < count; x->exchange_count++) {
        struct dpb_explain_exchange *exchange = &x->exchanges[x->exchange_count];

        exchange->what = what[x->exchange_count];
        exchange->bytes = exchange->what.count * (int64_t)dpb_dtype_bytes(exchange->what.dtype);
        exchange->times = e->accumulate;
        x->exchange_bytes += exchange->times * exchange->bytes;
        x->exchanged_count += exchange->times;
    }
    free(what);
    return DPB_OK;
}

/* ---- plans ---- */

/* As the step engine does it: a plan before step 1, and, where the strategy asks for it after that
 * step, one in the order in which gradients became ready. */
static dpb_status make_plans(struct dpb_explanation *x, const struct dpb_step_shape *shape)
{
    const struct dpb_strategy_ops *ops = shape->strategy;
    dpb_strategy *strategy = NULL;
    dpb_status st;

    DPB_TRY(dpb_step_plan_offline(shape, 0, NULL, &strategy, &x->first));
    x->replans = ops->replan_after && ops->replan_after(strategy, 1);
    if (x->replans) {
        ops->close(strategy);
        DPB_TRY(dpb_step_plan_offline(shape, 0, shape->model->ready_order, &strategy, &x->steady));
    } else {
        x->steady = x->first;
    }
    x->described = dpb_json_object();
    if (ops->describe)
        ops->describe(strategy, x->described);
    st = make_messages(x, strategy, shape);
    ops->close(strategy);
    return st;
}

/* The plan that strategies see lies where it was made: a plan in `first` stays there. */
static void release_plans(struct dpb_explanation *x)
{
    if (x->replans)
        dpb_unit_plan_release(&x->steady);
    dpb_unit_plan_release(&x->first);
}

/* ---- memory ---- */

static dpb_status predict_memory(const struct dpb_step_shape *shape, struct dpb_step_memory *most)
{
    *most = (struct dpb_step_memory){0};
    for (int rank = 0; rank < shape->ranks; rank++) {
        struct dpb_step_memory memory;

        DPB_TRY(dpb_step_memory_predict(shape, rank, &memory));
        keep_most(&most->parameters, memory.parameters);
        keep_most(&most->gradients, memory.gradients);
        keep_most(&most->optimizer, memory.optimizer);
        keep_most(&most->communication, memory.communication);
        keep_most(&most->strategy, memory.strategy);
    }
    return DPB_OK;
}

static dpb_status explain_memory(struct dpb_explanation *x, const struct dpb_step_shape *shape)
{
    struct dpb_step_shape alone = *shape;

    alone.ranks = alone.ranks_per_node = 1;
    DPB_TRY(predict_memory(shape, &x->memory));
    return predict_memory(&alone, &x->alone);
}

/* ---- the whole ---- */

static void take_text(const dpb_config *config, const char *name, char text[DPB_OPTION_TEXT_BYTES])
{
    struct dpb_str value = {0};

    text[0] = '\0';
    if (dpb_config_text(config, name, &value) == DPB_OK && !value.failed)
        snprintf(text, DPB_OPTION_TEXT_BYTES, "%s", value.text);
    dpb_str_release(&value);
}

static void take_algorithm(const dpb_config *config, struct dpb_explanation *x)
{
    const char *option = dpb_experiment_algorithm_option(config);
    enum dpb_algorithm ours;

    if (option)
        take_text(config, option, x->algorithm);
    x->counts_levels = dpb_algorithm_find(x->algorithm, &ours);
}

dpb_status dpb_explain(const struct dpb_registry *registry, const dpb_config *config,
                       struct dpb_explanation *x)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;
    struct dpb_algorithm_setup setup;

    dpb_step_shape_of(registry, config, &optimizer, &shape);
    *x = (struct dpb_explanation){
            .model = shape.model,
            .ranks = shape.ranks,
            .batch_per_rank = e->batch_per_rank,
            .gradient_bytes = dpb_model_param_elements(shape.model) * (int64_t)sizeof(float),
            .hidden_within_ns = -1,
            .notes = dpb_json_array(),
    };
    take_text(config, "workload", x->workload);
    take_text(config, "strategy", x->strategy);
    take_algorithm(config, x);
    setup = dpb_experiment_algorithm(config);
    x->link = setup.link;
    x->has_link = x->link.bw_bytes_per_s > 0;
    DPB_TRY(make_plans(x, &shape));
    DPB_TRY(make_exchanges(x, dpb_registry_workload(registry, e->workload), config));
    count_wire(x, &setup);
    count_levels(x, &setup);
    x->hidden_within_ns = hidden_within_ns(x);
    DPB_TRY(explain_memory(x, &shape));
    explain_notes(&(struct explain_subject){registry, config, &shape, x});
    return dpb_json_ok(x->notes) && dpb_json_ok(x->described) ? DPB_OK : no_memory();
}

void dpb_explanation_release(struct dpb_explanation *x)
{
    release_plans(x);
    free(x->messages);
    free(x->exchanges);
    dpb_json_free(x->described);
    dpb_json_free(x->notes);
    *x = (struct dpb_explanation){0};
}

static bool same_plan(const struct dpb_unit_plan *a, const struct dpb_unit_plan *b)
{
    if (a->unit_count != b->unit_count || a->param_count != b->param_count)
        return false;
    for (int u = 0; u < a->unit_count; u++)
        if (a->units[u].member_count != b->units[u].member_count)
            return false;
    return memcmp(a->member, b->member, (size_t)a->param_count * sizeof(*a->member)) == 0;
}

bool dpb_explanation_is_same(const struct dpb_explanation *a, const struct dpb_explanation *b)
{
    if (a->message_count != b->message_count || !same_plan(&a->steady, &b->steady))
        return false;
    for (int i = 0; i < a->message_count; i++) {
        const struct dpb_sync_message *one = &a->messages[i].what, *other = &b->messages[i].what;

        if (one->kind != other->kind || one->dtype != other->dtype || one->count != other->count ||
            one->when != other->when || one->param != other->param || one->unit != other->unit)
            return false;
    }
    return true;
}
