#include "network_plan.h"

#include <string.h>

#include "dpb_log.h"

/* The buffers while the passes are played through. */
struct buffers {
    struct network_plan *plan;
    int uses[DPB_NETWORK_BUFFERS_MAX]; /* values that lie in it now */
    bool failed;
};

/* The smallest free buffer that is large enough, else the largest free one, which grows. */
static int take(struct buffers *buffers, int64_t elements)
{
    struct network_plan *plan = buffers->plan;
    int best = -1;

    for (int b = 0; b < plan->buffer_count; b++) {
        int64_t size = plan->buffer_elements[b];
        int64_t best_size = best < 0 ? 0 : plan->buffer_elements[best];

        if (buffers->uses[b] > 0)
            continue;
        if (best < 0 ||
            (best_size < elements ? size > best_size : size >= elements && size < best_size))
            best = b;
    }
    if (best < 0) {
        if (plan->buffer_count == DPB_NETWORK_BUFFERS_MAX) {
            buffers->failed = true;
            return 0;
        }
        best = plan->buffer_count++;
    }
    if (plan->buffer_elements[best] < elements)
        plan->buffer_elements[best] = elements;
    buffers->uses[best] = 1;
    return best;
}

static int share(struct buffers *buffers, int buffer)
{
    buffers->uses[buffer]++;
    return buffer;
}

static void drop(struct buffers *buffers, int buffer)
{
    buffers->uses[buffer]--;
}

/* Does the operator's backward pass read what it got in the forward pass? A maximum keeps positions
 * instead; averages and sums need nothing. */
static bool reads_input_again(enum dpb_layer_kind kind)
{
    return kind == DPB_LAYER_CONV2D || kind == DPB_LAYER_LINEAR || kind == DPB_LAYER_BATCHNORM2D;
}

/* Does a layer from `first` on read what layer `from` gives? */
static bool is_read_from(const struct dpb_layer_list *list, int first, int from)
{
    for (int i = first; i < list->layer_count; i++)
        for (int k = 0; k < list->layer[i].input_count; k++)
            if (list->layer[i].input[k] == from)
                return true;
    return false;
}

int dpb_network_residual_of(const struct dpb_layer_list *list, int sum)
{
    const int *input = list->layer[sum].input;

    return input[0] == sum - 1 ? input[1] : input[0];
}

int dpb_network_sum_of(const struct dpb_layer_list *list, int i)
{
    const struct dpb_layer *layer = &list->layer[i], *next = layer + 1;
    int residual;

    if (layer->kind != DPB_LAYER_BATCHNORM2D || layer->relu || i + 1 >= list->layer_count ||
        next->kind != DPB_LAYER_ADD || (next->input[0] != i) == (next->input[1] != i))
        return -1;
    residual = dpb_network_residual_of(list, i + 1);
    return residual >= 0 && !is_read_from(list, i + 2, i) && !is_read_from(list, i + 2, residual)
                   ? i + 1
                   : -1;
}

bool dpb_network_is_done_before(const struct dpb_layer_list *list, int i)
{
    return i > 0 && dpb_network_sum_of(list, i - 1) == i;
}

bool dpb_network_relu_is_apart(const struct dpb_layer_list *list, int i)
{
    return list->layer[i].relu && list->layer[i].kind != DPB_LAYER_BATCHNORM2D &&
           !dpb_network_is_done_before(list, i);
}

static void plan_forward(const struct dpb_layer_list *list, struct buffers *buffers)
{
    int last = list->layer_count - 1;
    int last_reader[DPB_LAYERS_MAX] = {0};
    bool kept[DPB_LAYERS_MAX] = {false};

    for (int i = 0; i <= last; i++) {
        const struct dpb_layer *layer = &list->layer[i];

        /* the mask; the logits; what has no memory */
        kept[i] |=
                dpb_network_relu_is_apart(list, i) || i == last || dpb_network_sum_of(list, i) >= 0;
        for (int k = 0; k < layer->input_count; k++) {
            if (layer->input[k] < 0)
                continue;
            last_reader[layer->input[k]] = i;
            kept[layer->input[k]] |= reads_input_again(layer->kind);
        }
    }
    for (int i = 0; i <= last; i++) {
        const struct dpb_layer *layer = &list->layer[i];

        buffers->plan->layer[i].output =
                kept[i] ? -1 : take(buffers, list->info[i].out_elements_per_sample);
        for (int k = 0; k < layer->input_count; k++) {
            int from = layer->input[k];

            if (from >= 0 && !kept[from] && last_reader[from] == i)
                drop(buffers, buffers->plan->layer[from].output);
        }
    }
}

static struct network_flow plan_flow(const struct dpb_layer_list *list, struct buffers *buffers,
                                     int i, int from)
{
    const struct network_layer_plan *plan = buffers->plan->layer;
    struct network_flow flow = {.before = plan[from].grad};

    flow.part = list->layer[i].kind == DPB_LAYER_ADD
                        ? share(buffers, plan[i].masked)
                        : take(buffers, list->info[from].out_elements_per_sample);
    flow.sum = flow.part;
    if (flow.before < 0)
        return flow;
    /* into one of the two, unless both hold other values as well */
    if (buffers->uses[flow.part] == 1) {
        drop(buffers, flow.before);
    } else if (buffers->uses[flow.before] == 1) {
        flow.sum = flow.before;
        drop(buffers, flow.part);
    } else {
        flow.sum = take(buffers, list->info[from].out_elements_per_sample);
        drop(buffers, flow.part);
        drop(buffers, flow.before);
    }
    return flow;
}

static void plan_backward(const struct dpb_layer_list *list, struct buffers *buffers)
{
    struct network_layer_plan *plan = buffers->plan->layer;
    int last = list->layer_count - 1;

    for (int i = 0; i <= last; i++)
        plan[i].grad = -1;
    plan[last].grad = take(buffers, list->info[last].out_elements_per_sample);
    for (int i = last; i >= 0; i--) {
        const struct dpb_layer *layer = &list->layer[i];

        plan[i].masked = plan[i].grad;
        /* What a ReLU lets through replaces the gradient, unless that is another's as well. */
        if ((dpb_network_relu_is_apart(list, i) || dpb_network_is_done_before(list, i)) &&
            buffers->uses[plan[i].grad] > 1) {
            plan[i].masked = take(buffers, list->info[i].out_elements_per_sample);
            drop(buffers, plan[i].grad);
        }
        for (int k = 0; k < DPB_LAYER_INPUTS_MAX; k++) {
            plan[i].flow[k] = (struct network_flow){-1, -1, -1};
            if (k >= layer->input_count || layer->input[k] < 0)
                continue;
            plan[i].flow[k] = plan_flow(list, buffers, i, layer->input[k]);
            plan[layer->input[k]].grad = plan[i].flow[k].sum;
        }
        drop(buffers, plan[i].masked);
    }
}

dpb_status dpb_network_plan_make(const struct dpb_layer_list *list, struct network_plan *plan)
{
    struct buffers buffers = {.plan = plan};

    memset(plan, 0, sizeof(*plan));
    plan_forward(list, &buffers);
    plan_backward(list, &buffers);
    if (buffers.failed) {
        dpb_error("a network of %d layers needs more than %d buffers at once", list->layer_count,
                  DPB_NETWORK_BUFFERS_MAX);
        return DPB_ERR_INTERNAL;
    }
    return DPB_OK;
}
