#include "dpb_workloads.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"
#include "mnist_cnn_layers.h"
#include "network.h"
#include "workload_parts.h"

/* Gradient element i of parameter p for sample s is u(s, i mod GROUPS) * v(p, i), with u in
 * {-2,-1,1,2} and v in {-4..-1,1..4}: an integer in [-8, 8], never 0. Its sum over the samples of a
 * batch is v(p, i) times the sum of u, so that a step costs one multiplication per element, and
 * still a sample that is missing or counted twice changes nearly every element, and an element at a
 * wrong place is seen by its v.
 *
 * Sums over ranks are exact in fp32 as long as 8 * samples < 2^24: up to 2,097,151 samples. With a
 * grad_scale that is a power of two, scaled sums are exact as well.
 *
 * Parameters start as integers in [-8, 8]; lr and momentum are powers of two. With gradients that
 * are sums over a global batch of B, after t steps a momentum is a multiple of 2^-(t-1) below 16 B,
 * and a parameter is a multiple of 2^-(t+5) below 8 + B t / 4, so that no update is rounded while
 * (32 + B t) 2^t <= 2^21: 12 steps of 32 samples, 15 steps of one. Later updates round, but on
 * every rank alike: the optimizer works element by element, so equal gradients give equal bits.
 */
#define GROUPS         64
#define PATTERN_STREAM ((uint64_t)0x70617474 << 32) /* "patt" */
#define PARAM_STREAM   ((uint64_t)0x70617261 << 32) /* "para" */
#define GRADIENT_LIMIT 8
#define LOSS_VALUES    17

struct integers {
    struct dpb_workload_base base;
    const struct dpb_layer_list *list;
    struct dpb_launcher *launcher;
    const struct dpb_param_watch *watch;
    int64_t batch_max;
    float *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    int8_t *pattern[DPB_LAYER_PARAMS_MAX]; /* v(p, .) */
    int8_t *patterns;                      /* the memory of all of them */
    int64_t bytes;
    float *made; /* accelerator: a gradient, made on the host */
    struct dpb_forward_result *results;
};

static struct integers *integers_of(dpb_workload *workload)
{
    return (struct integers *)workload;
}

/* Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014): SplitMix64's
 * finalizer, as a hash of one number. */
static uint64_t hash(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Map 0..2n-1 to -n..-1, 1..n. */
static int without_zero(unsigned bits, int n)
{
    int value = (int)bits - n;

    return value < 0 ? value : value + 1;
}

static int sample_factor(int64_t sample, int group)
{
    return without_zero((unsigned)(hash((uint64_t)sample * GROUPS + (uint64_t)group) & 3), 2);
}

static void fill_pattern(int8_t *pattern, int param, int64_t count)
{
    struct dpb_rng rng;

    dpb_rng_init(&rng, 0, PATTERN_STREAM | (uint64_t)param);
    for (int64_t i = 0; i < count; i++)
        pattern[i] = (int8_t)without_zero(dpb_rng_u32(&rng) >> 29, 4);
}

static const struct dpb_model *model(const void *options)
{
    (void)options;
    return &dpb_mnist_cnn_layers()->model;
}

static void close_workload(dpb_workload *workload)
{
    struct integers *net = integers_of(workload);

    if (!net)
        return;
    free(net->results);
    free(net->made);
    free(net->patterns);
    free(net);
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    const struct dpb_layer_list *list = dpb_mnist_cnn_layers();
    struct integers *net;
    int64_t at = 0, largest = 0;

    DPB_TRY(dpb_layer_list_check(list, "integers"));
    net = calloc(1, sizeof(*net));
    if (!net)
        goto err_memory;
    net->base.ops = &dpb_workload_integers_ops;
    net->list = list;
    net->launcher = config->launcher;
    net->watch = config->watch;
    net->batch_max = config->batch_max;
    for (int p = 0; p < list->param_count; p++) {
        net->bytes += list->param[p].numel;
        largest = list->param[p].numel > largest ? list->param[p].numel : largest;
    }
    net->patterns = malloc((size_t)net->bytes);
    net->results =
            calloc((size_t)(config->results > 0 ? config->results : 1), sizeof(*net->results));
    if (!dpb_device_is_host(config->launcher->device))
        net->made = calloc((size_t)largest, sizeof(*net->made));
    if (!net->patterns || !net->results ||
        (!net->made && !dpb_device_is_host(config->launcher->device)))
        goto err_memory;
    for (int p = 0; p < list->param_count; p++) {
        net->pattern[p] = net->patterns + at;
        fill_pattern(net->pattern[p], p, list->param[p].numel);
        at += list->param[p].numel;
    }
    *workload = (dpb_workload *)net;
    return DPB_OK;

err_memory:
    dpb_error("workload \"integers\": out of memory");
    close_workload((dpb_workload *)net);
    return DPB_ERR_NO_MEMORY;
}

static void bind_memory(dpb_workload *workload, float *const *param, float *const *grad)
{
    struct integers *net = integers_of(workload);
    size_t bytes = (size_t)net->list->param_count * sizeof(*param);

    memcpy(net->param, param, bytes);
    memcpy(net->grad, grad, bytes);
}

static dpb_status init_params(dpb_workload *workload, uint64_t seed)
{
    struct integers *net = integers_of(workload);

    for (int p = 0; p < net->list->param_count; p++) {
        struct dpb_rng rng;

        dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)p);
        for (int64_t i = 0; net->param[p] && i < net->list->param[p].numel; i++)
            net->param[p][i] =
                    (float)dpb_rng_below(&rng, 2 * GRADIENT_LIMIT + 1) - (float)GRADIENT_LIMIT;
    }
    return DPB_OK;
}

/* A sample's loss is an integer in [0, 16] of its own; nothing is classified. */
static dpb_status forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                          int64_t slot)
{
    struct integers *net = integers_of(workload);
    struct dpb_forward_result sum = {0};

    (void)training;
    DPB_TRY(dpb_batch_check(net->base.ops, &net->list->model, net->batch_max, batch));
    DPB_TRY(dpb_params_use_all(net->watch, &net->list->model));
    for (int64_t i = 0; i < batch->samples; i++)
        sum.loss_sum += (double)(hash(~(uint64_t)batch->sample_ids[i]) % LOSS_VALUES);
    net->results[slot] = sum;
    return DPB_OK;
}

static dpb_status read_result(dpb_workload *workload, int64_t slot,
                              struct dpb_forward_result *result)
{
    *result = integers_of(workload)->results[slot];
    return DPB_OK;
}

static bool needs_host(dpb_workload *workload)
{
    (void)workload;
    return true;
}

static dpb_status fill_gradient(const struct integers *net, int param, const int32_t sum[GROUPS],
                                float scale)
{
    const int8_t *pattern = net->pattern[param];
    float *grad = net->made ? net->made : net->grad[param];
    int64_t count = net->list->param[param].numel;
    int64_t whole = count - count % GROUPS;

    /* Multiplied as integers: 0 * -1 in floats is -0, which a sum over ranks would turn into 0. */
    for (int64_t at = 0; at < whole; at += GROUPS) {
        for (int g = 0; g < GROUPS; g++)
            grad[at + g] = (float)(sum[g] * pattern[at + g]) * scale;
    }
    for (int64_t i = whole; i < count; i++)
        grad[i] = (float)(sum[i % GROUPS] * pattern[i]) * scale;
    return net->made ? dpb_copy_now(net->launcher, net->grad[param], grad,
                                    (size_t)count * sizeof(*grad))
                     : DPB_OK;
}

static dpb_status backward(dpb_workload *workload, const struct dpb_batch *batch, float grad_scale,
                           dpb_grad_ready ready, void *ctx)
{
    struct integers *net = integers_of(workload);
    int32_t sum[GROUPS] = {0};
    dpb_status st;

    for (int64_t i = 0; i < batch->samples; i++) {
        for (int g = 0; g < GROUPS; g++)
            sum[g] += sample_factor(batch->sample_ids[i], g);
    }
    for (int r = 0; r < net->list->param_count; r++) {
        int p = net->list->ready_order[r];
        const struct dpb_layer *layer = &net->list->layer[net->list->param[p].layer];

        DPB_TRY(dpb_param_use(net->watch, p, DPB_PASS_BACKWARD));
        dpb_range_begin(net->launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE,
                        p == layer->bias ? layer->op.bwd_bias : layer->op.bwd_weights, -1);
        st = fill_gradient(net, p, sum, grad_scale);
        dpb_range_end(net->launcher->recorder, DPB_LANE_HOST);
        DPB_TRY(st);
        DPB_TRY(ready(ctx, p));
    }
    return DPB_OK;
}

static int64_t activation_bytes(dpb_workload *workload)
{
    return integers_of(workload)->bytes;
}

const struct dpb_workload_ops dpb_workload_integers_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "integers",
        .summary = "mnist-cnn's shapes with small integers as gradients, for bitwise checks",
        .flags = DPB_WORKLOAD_INTEGER_GRADIENTS,
        .training = {.lr = 0x1p-6, .momentum = 0.5, .weight_decay = 0.0},
        .model = model,
        .open = open_workload,
        .close = close_workload,
        .bind = bind_memory,
        .init_params = init_params,
        .forward = forward,
        .read_result = read_result,
        .needs_host = needs_host,
        .backward = backward,
        .activation_bytes = activation_bytes,
};
