/* Schedules from lists of layers. */
#include "dpb_schedule.h"

#include <stdlib.h>

#include "dpb_log.h"

static dpb_status alloc(const struct dpb_model *model, struct dpb_schedule *schedule)
{
    const size_t layers = (size_t)model->layer_count + 1;
    /* Backward, a layer can come as often as it has parameters, when they do not follow each other;
     * forward, every parameter has one place. */
    const size_t most = layers + (size_t)model->param_count;

    *schedule = (struct dpb_schedule){
            .model = model,
            .forward = calloc(layers, sizeof(*schedule->forward)),
            .backward = calloc(most, sizeof(*schedule->backward)),
            .param = calloc(2 * (size_t)model->param_count + 1, sizeof(*schedule->param)),
    };
    if (schedule->forward && schedule->backward && schedule->param)
        return DPB_OK;
    dpb_error("simulation: out of memory for a schedule of %d layers", model->layer_count);
    return DPB_ERR_NO_MEMORY;
}

void dpb_schedule_release(struct dpb_schedule *schedule)
{
    free(schedule->forward);
    free(schedule->backward);
    free(schedule->param);
    *schedule = (struct dpb_schedule){0};
}

/* ---- the time of a layer ---- */

struct pricing {
    const struct dpb_model *model;
    const struct dpb_sim_rates *rates;
    enum dpb_dtype precision;
    double samples;
};

static double param_elements(const struct dpb_model *model, int layer)
{
    double elements = 0;

    for (int p = 0; p < model->param_count; p++)
        if (model->params[p].layer == layer && !model->params[p].table)
            elements += (double)model->params[p].numel;
    return elements;
}

static double sample_elements(const struct dpb_model *model)
{
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        return (double)(model->sample_dim[0] * model->sample_dim[1] * model->sample_dim[2]);
    case DPB_INPUT_TOKENS:
        return (double)model->sequence;
    case DPB_INPUT_INTERACTIONS:
        return (double)(model->features + model->tables);
    }
    return 0;
}

/* Forward `times` 1; backward 2, or 1 where nothing before needs a gradient. */
static double layer_ns(const struct pricing *pricing, int layer, double times)
{
    const struct dpb_layer_info *info = &pricing->model->layers[layer];
    const double in = layer > 0 ? (double)pricing->model->layers[layer - 1].out_elements_per_sample
                                : sample_elements(pricing->model);
    const double elements = pricing->samples * (in + (double)info->out_elements_per_sample) +
                            param_elements(pricing->model, layer);
    const double flops = 2 * pricing->samples * (double)info->fwd_macs_per_sample;

    return dpb_sim_rates_ns(pricing->rates, pricing->precision, times * flops,
                            times * elements * (double)dpb_dtype_bytes(pricing->precision));
}

/* ---- the two passes ---- */

static void forward(const struct pricing *pricing, struct dpb_schedule *schedule, int *params)
{
    const struct dpb_model *model = pricing->model;

    for (int layer = 0; layer < model->layer_count; layer++) {
        struct dpb_segment *segment = &schedule->forward[schedule->forward_count++];

        *segment = (struct dpb_segment){.name = model->layers[layer].name,
                                        .alone_ns = layer_ns(pricing, layer, 1),
                                        .first = *params};
        for (int p = 0; p < model->param_count; p++)
            if (model->params[p].layer == layer)
                schedule->param[(*params)++] = p;
        segment->count = *params - segment->first;
        schedule->activation_bytes += pricing->samples *
                                      (double)model->layers[layer].out_elements_per_sample *
                                      (double)dpb_dtype_bytes(pricing->precision);
    }
}

static struct dpb_segment *backward_segment(const struct pricing *pricing,
                                            struct dpb_schedule *schedule, int layer, int first)
{
    struct dpb_segment *segment = &schedule->backward[schedule->backward_count++];

    *segment = (struct dpb_segment){.name = pricing->model->layers[layer].name,
                                    .alone_ns = layer_ns(pricing, layer, layer > 0 ? 2 : 1),
                                    .first = first};
    return segment;
}

/* Layers from the last to the first; those of parameters when the first of their gradients is due.
 * A gradient that comes apart from its layer's (of a parameter that two layers share) takes no time
 * of its own. */
static dpb_status backward(const struct pricing *pricing, struct dpb_schedule *schedule, int params)
{
    const struct dpb_model *model = pricing->model;
    bool *is_done = calloc((size_t)model->layer_count + 1, sizeof(*is_done));
    struct dpb_segment *segment = NULL;
    int at = -1, before = model->layer_count;

    if (!is_done)
        return DPB_ERR_NO_MEMORY;
    for (int i = 0; i < model->param_count; i++) {
        const int param = model->ready_order[i], layer = model->params[param].layer;

        if (layer != at) {
            for (int l = before - 1; l > layer; l--) {
                if (!is_done[l] && param_elements(model, l) == 0)
                    backward_segment(pricing, schedule, l, params);
                is_done[l] = is_done[l] || param_elements(model, l) == 0;
            }
            segment = backward_segment(pricing, schedule, layer, params);
            if (is_done[layer])
                segment->alone_ns = 0;
            is_done[layer] = true;
            before = layer < before ? layer : before;
            at = layer;
        }
        schedule->param[params++] = param;
        segment->count++;
    }
    for (int l = before - 1; l >= 0; l--)
        if (!is_done[l])
            backward_segment(pricing, schedule, l, params);
    free(is_done);
    return DPB_OK;
}

dpb_status dpb_schedule_from_model(const struct dpb_model *model, const struct dpb_sim_rates *rates,
                                   enum dpb_dtype precision, int64_t samples,
                                   struct dpb_schedule *schedule)
{
    const struct pricing pricing = {model, rates, precision, (double)samples};
    int params = 0;
    dpb_status st;

    DPB_TRY(dpb_sim_rates_check(rates));
    if (!(rates->flop_per_s[precision] > 0)) {
        dpb_error("simulation: the machine has no rate for precision \"%s\"",
                  dpb_dtype_text(precision));
        dpb_log_hint("take another --precision, or a machine profile that has it");
        return DPB_ERR_USAGE;
    }
    st = alloc(model, schedule);
    if (st >= 0) {
        schedule->samples = samples;
        schedule->source = "roofline";
        forward(&pricing, schedule, &params);
        st = backward(&pricing, schedule, params);
    }
    if (st < 0)
        dpb_schedule_release(schedule);
    return st;
}

/* ---- sums ---- */

static double sum_ns(const struct dpb_segment *segments, int count)
{
    double sum = 0;

    for (int s = 0; s < count; s++)
        sum += segments[s].alone_ns;
    return sum;
}

double dpb_schedule_forward_ns(const struct dpb_schedule *schedule)
{
    return sum_ns(schedule->forward, schedule->forward_count);
}

double dpb_schedule_backward_ns(const struct dpb_schedule *schedule)
{
    return sum_ns(schedule->backward, schedule->backward_count);
}

void dpb_schedule_scale(struct dpb_schedule *schedule, double ns)
{
    const double factor =
            ns / (dpb_schedule_forward_ns(schedule) + dpb_schedule_backward_ns(schedule));

    for (int s = 0; s < schedule->forward_count; s++)
        schedule->forward[s].alone_ns *= factor;
    for (int s = 0; s < schedule->backward_count; s++)
        schedule->backward[s].alone_ns *= factor;
}
