#include "tiny_workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define TINY_RESULTS 16 /* micro-batches of a step, at most */

struct dpb_workload {
    struct dpb_workload_base base;
    struct tiny_options options;
    struct dpb_launcher *launcher;
    float *param[TINY_PARAMS], *grad[TINY_PARAMS];
    int64_t forwards, backwards;
    const struct dpb_rank_services *ranks;
    const struct dpb_param_watch *watch;
    int32_t *exchanged[2]; /* one element each */
    float kept[TINY_STATES][TINY_STATE_ELEMENTS];
    int64_t updates;
    struct dpb_forward_result result[TINY_RESULTS];
};

const int tiny_ready_order[TINY_PARAMS] = {4, 2, 3, 0, 1};
static const int registration_order[TINY_PARAMS] = {0, 1, 2, 3, 4};

/* Sizes that no number of ranks divides and that are no multiples of a cache line. */
#define TINY_PARAM(text, n, of)                                                                    \
    {                                                                                              \
        .name = (text), .dtype = DPB_F32, .rank = 1, .dim = {(n)}, .numel = (n), .layer = (of)     \
    }
#define TINY_MATRIX(text, rows, columns, is_table, of)                                             \
    {                                                                                              \
        .name = (text), .dtype = DPB_F32, .rank = 2, .dim = {(rows), (columns)},                   \
        .numel = (rows) * (columns), .table = (is_table), .layer = (of)                            \
    }
static const struct dpb_param_info tiny_params[TINY_PARAMS] = {
        TINY_MATRIX("in.weight", 6, 8, false, 0),   TINY_PARAM("in.bias", 3, 0),
        TINY_MATRIX("mid.weight", 17, 59, true, 1), TINY_PARAM("mid.bias", 1, 1),
        TINY_MATRIX("out.weight", 47, 1, false, 2),
};
static const struct dpb_layer_info tiny_layers[] = {
        {.name = "in", .kind = "test", .fwd_macs_per_sample = 10, .out_elements_per_sample = 1},
        {.name = "mid", .kind = "test", .out_elements_per_sample = 1},
        {.name = "out", .kind = "test", .fwd_macs_per_sample = 5, .out_elements_per_sample = 1},
};

int64_t tiny_numel(int param)
{
    return tiny_params[param].numel;
}

float tiny_initial(int param, int64_t element, uint64_t seed)
{
    return (float)((element * 13 + param * 5 + (int64_t)seed) % 11 - 5);
}

int tiny_gradient(int param, int64_t element, float value, int64_t id)
{
    const int64_t mixed = id * 31 + element * 7 + param * 3 + 5 * (int64_t)floorf(value);

    return (int)((mixed % 17 + 17) % 17) - 8;
}

float tiny_target(int param, int64_t element, int64_t id)
{
    return (float)((element * 7 + param) % 5 - 2) + (id % 2 ? 0.25f : -0.25f);
}

double tiny_loss(int64_t id)
{
    return 0.25 * (double)(id % 9);
}

bool tiny_is_correct(int64_t id)
{
    return id % 3 == 0;
}

static const struct dpb_model *tied_model(const struct dpb_model *sound)
{
    static struct dpb_param_info params[TINY_PARAMS];
    static struct dpb_model tied;

    memcpy(params, tiny_params, sizeof(params));
    params[0].shared = true;
    tied = *sound;
    tied.params = params;
    return &tied;
}

static const struct dpb_model *tiny_model(const void *opaque)
{
    static const struct dpb_param_info wrong_type[] = {
            {.name = "double", .dtype = DPB_F64, .rank = 1, .dim = {3}, .numel = 3}};
    static const struct dpb_param_info no_elements[] = {TINY_PARAM("empty", 0, 0)};
    static const struct dpb_param_info flat_table[] = {
            {.name = "flat", .dtype = DPB_F32, .rank = 1, .dim = {3}, .numel = 3, .table = true}};
    static const struct dpb_model sound = {
            .params = tiny_params,
            .param_count = TINY_PARAMS,
            .layers = tiny_layers,
            .layer_count = 3,
            .ready_order = tiny_ready_order,
    };
    static const struct dpb_model bad_dtype = {.params = wrong_type, .param_count = 1},
                                  empty = {.params = no_elements, .param_count = 1},
                                  bad_shape = {.params = flat_table, .param_count = 1};
    static struct dpb_model shorter, buffered;
    static const int64_t buffer_numel[] = {TINY_STATE_ELEMENTS, TINY_STATE_ELEMENTS};
    const struct tiny_options *options = opaque;

    if (options->bad_dtype)
        return &bad_dtype;
    if (options->empty_param)
        return &empty;
    if (options->bad_shape)
        return &bad_shape;
    if (options->has_buffers) {
        buffered = sound;
        buffered.buffer_count = 2;
        buffered.buffer_numel = buffer_numel;
        return &buffered;
    }
    if (options->tied)
        return tied_model(&sound);
    if (options->param_count == 0)
        return &sound;
    shorter = sound;
    shorter.param_count = options->param_count;
    return &shorter;
}

static dpb_status open_exchange(dpb_workload *self)
{
    for (int i = 0; i < 2 && self->options.exchange; i++) {
        void *memory;

        DPB_TRY(self->ranks->alloc(self->ranks->ctx, sizeof(int32_t), &memory));
        self->exchanged[i] = memory;
    }
    return DPB_OK;
}

static dpb_status tiny_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    dpb_workload *self = calloc(1, sizeof(*self));

    if (!self)
        return DPB_ERR_NO_MEMORY;
    self->ranks = config->ranks;
    self->watch = config->watch;
    self->base.ops = &tiny_workload_ops;
    self->launcher = config->launcher;
    self->options = *(const struct tiny_options *)config->options;
    self->kept[1][0] = self->kept[2][0] = (float)config->ranks->rank;
    *workload = self;
    return open_exchange(self);
}

static void tiny_close(dpb_workload *workload)
{
    free(workload);
}

static int param_count(const dpb_workload *workload)
{
    return tiny_model(&workload->options)->param_count;
}

/* Copies, so that it notices when it is not bound again. */
static void tiny_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    for (int p = 0; p < param_count(workload); p++) {
        workload->param[p] = param[p];
        workload->grad[p] = grad[p];
    }
}

static dpb_status tiny_init(dpb_workload *workload, uint64_t seed)
{
    for (int p = 0; p < param_count(workload); p++)
        for (int64_t i = 0; workload->param[p] && i < tiny_params[p].numel; i++)
            workload->param[p][i] = tiny_initial(p, i, seed);
    return DPB_OK;
}

static double squared_distance(const dpb_workload *workload, int64_t id)
{
    double sum = 0.0;

    for (int p = 0; p < param_count(workload); p++) {
        for (int64_t i = 0; i < tiny_params[p].numel; i++) {
            const double apart = (double)(workload->param[p][i] - tiny_target(p, i, id));

            sum += 0.5 * apart * apart;
        }
    }
    return sum;
}

static dpb_status start_sum(dpb_workload *workload, int which, int64_t value, int *exchange)
{
    const struct dpb_rank_services *ranks = workload->ranks;

    *workload->exchanged[which] = (int32_t)value;
    return ranks->start(ranks->ctx, DPB_COLL_ALL_REDUCE, DPB_I32, workload->exchanged[which], 1,
                        which == 0 ? "tiny.first" : "tiny.second", exchange);
}

static dpb_status exchange_correct(dpb_workload *workload, int64_t *correct)
{
    const struct dpb_rank_services *ranks = workload->ranks;
    int exchange[2];

    DPB_TRY(start_sum(workload, 0, *correct, &exchange[0]));
    DPB_TRY(start_sum(workload, 1, *correct, &exchange[1]));
    DPB_TRY(ranks->wait(ranks->ctx, exchange[0]));
    DPB_TRY(ranks->wait(ranks->ctx, exchange[1]));
    *correct = *workload->exchanged[0] == *workload->exchanged[1] ? *workload->exchanged[0] : -1;
    return DPB_OK;
}

static dpb_status exchange(dpb_workload *workload, int64_t *correct)
{
    const struct dpb_rank_services *ranks = workload->ranks;
    int number;
    void *memory;

    switch (workload->options.exchange) {
    case TINY_EXCHANGE_NOTHING:
        return DPB_OK;
    case TINY_EXCHANGE_CORRECT:
        return exchange_correct(workload, correct);
    case TINY_EXCHANGE_LATE_MEMORY:
        return ranks->alloc(ranks->ctx, 64, &memory);
    case TINY_EXCHANGE_NOT_WAITED_FOR:
        return start_sum(workload, 0, 1, &number);
    case TINY_EXCHANGE_TOO_MANY:
        for (int i = 0; i <= DPB_RANK_EXCHANGES_MAX; i++)
            DPB_TRY(start_sum(workload, 0, 1, &number));
        return DPB_OK;
    case TINY_EXCHANGE_UNKNOWN:
        return ranks->wait(ranks->ctx, 3);
    }
    return DPB_ERR_INTERNAL;
}

/* In the forward pass under way, or the last. */
static bool is_unused(const dpb_workload *workload, int param)
{
    const struct tiny_options *options = &workload->options;

    return param + 1 == options->unused && workload->forwards >= options->unused_from &&
           (options->unused_to == 0 || workload->forwards <= options->unused_to);
}

static dpb_status tiny_forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                               int64_t slot)
{
    struct dpb_forward_result sum = {0};

    if (++workload->forwards == workload->options.fail_forward) {
        dpb_error("tiny: forward fails, as it was told to");
        return DPB_ERR_VENDOR;
    }
    (void)training;
    for (int p = 0; p < param_count(workload); p++)
        if (!is_unused(workload, p))
            DPB_TRY(dpb_param_use(workload->watch, p, DPB_PASS_FORWARD));
    workload->kept[1][1] = workload->kept[1][0]; /* what it found when it began */
    dpb_range_begin(workload->launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "tiny.forward",
                    -1);
    for (int64_t s = 0; s < batch->samples; s++) {
        sum.loss_sum += workload->options.least_squares
                                ? squared_distance(workload, batch->sample_ids[s])
                                : tiny_loss(batch->sample_ids[s]);
        sum.correct += tiny_is_correct(batch->sample_ids[s]);
    }
    dpb_range_end(workload->launcher->recorder, DPB_LANE_HOST);
    if (workload->options.nan_loss)
        sum.loss_sum = NAN;
    DPB_TRY(exchange(workload, &sum.correct));
    workload->result[slot] = sum;
    return DPB_OK;
}

static dpb_status tiny_read_result(dpb_workload *workload, int64_t slot,
                                   struct dpb_forward_result *result)
{
    *result = workload->result[slot];
    return DPB_OK;
}

/* What the last layer adds to the gradient of in.weight. */
#define TIED_PART 3.0f

static dpb_status begin_tied(dpb_workload *workload)
{
    if (!workload->options.tied)
        return DPB_OK;
    DPB_TRY(dpb_param_use(workload->watch, 0, DPB_PASS_BACKWARD));
    for (int64_t i = 0; i < tiny_params[0].numel; i++)
        workload->grad[0][i] = TIED_PART;
    return DPB_OK;
}

static dpb_status tiny_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                float grad_scale, dpb_grad_ready ready, void *ctx)
{
    const struct tiny_options *options = &workload->options;
    const int *order =
            options->other_order || options->param_count ? registration_order : tiny_ready_order;
    const int count = param_count(workload);

    if (++workload->backwards == options->fail_backward) {
        dpb_error("tiny: backward fails, as it was told to");
        return DPB_ERR_VENDOR;
    }
    DPB_TRY(begin_tied(workload));
    for (int n = 0; n < count; n++) {
        const int p = order[n];
        const bool is_begun = options->tied && p == 0;

        if (is_unused(workload, p))
            continue;
        if (!options->use_unannounced)
            DPB_TRY(dpb_param_use(workload->watch, p, DPB_PASS_BACKWARD));
        for (int64_t i = 0; i < tiny_params[p].numel; i++) {
            const float value = workload->param[p][i];
            float sum = 0.0f;

            for (int64_t s = 0; s < batch->samples; s++) {
                const int64_t id = batch->sample_ids[s];

                sum += options->least_squares ? value - tiny_target(p, i, id)
                                              : (float)tiny_gradient(p, i, value, id);
            }
            if (is_begun)
                workload->grad[p][i] += grad_scale * sum - TIED_PART;
            else
                workload->grad[p][i] = grad_scale * sum;
        }
        if (options->forget_last && n == count - 1)
            break;
        DPB_TRY(ready(ctx, p));
        if (options->report_twice && n == 0)
            DPB_TRY(ready(ctx, p));
        if (options->report_unknown && n == 0)
            DPB_TRY(ready(ctx, count));
    }
    return DPB_OK;
}

static bool tiny_state(dpb_workload *workload, int index, struct dpb_workload_state *state)
{
    static const struct dpb_workload_state states[TINY_STATES] = {
            {.name = "steps", .kind = DPB_STATE_REPLICATED},
            {.name = "rank", .kind = DPB_STATE_LOCAL},
            {.name = "part", .kind = DPB_STATE_SHARDED},
    };

    if (index < 0 || index >= TINY_STATES)
        return false;
    *state = states[index];
    state->data = workload->kept[index];
    state->numel = TINY_STATE_ELEMENTS;
    return true;
}

static dpb_status tiny_update(dpb_workload *workload, const struct dpb_optimizer_config *optimizer,
                              int64_t step)
{
    if (optimizer->lr <= 0.0)
        return DPB_ERR_INTERNAL;
    workload->kept[0][0] += (float)step;
    if (++workload->updates == workload->options.spoil_update)
        workload->kept[0][1] += 1.0f;
    return DPB_OK;
}

static int64_t tiny_activation_bytes(dpb_workload *workload)
{
    return (int64_t)sizeof(*workload);
}

const struct dpb_workload_ops tiny_workload_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "tiny",
        .summary = "integer gradients for tests",
        .flags = DPB_WORKLOAD_INTEGER_GRADIENTS,
        .training = {.lr = 0.25, .momentum = 0.5},
        .model = tiny_model,
        .open = tiny_open,
        .close = tiny_close,
        .bind = tiny_bind,
        .init_params = tiny_init,
        .forward = tiny_forward,
        .read_result = tiny_read_result,
        .backward = tiny_backward,
        .state = tiny_state,
        .update = tiny_update,
        .activation_bytes = tiny_activation_bytes,
};

uint64_t tiny_hash(dpb_step_engine *engine)
{
    uint64_t hash;

    return dpb_step_hash(engine, &hash) < 0 ? 0 : hash;
}

static dpb_status next_batch(void *ctx, int64_t step, struct dpb_batch *batch)
{
    struct tiny_source *source = ctx;

    source->asked++;
    if (step > source->steps)
        return DPB_END;
    for (int64_t s = 0; s < source->count; s++)
        source->ids[s] = (step - 1) * source->global_batch + source->first + s;
    *batch = (struct dpb_batch){.samples = source->count, .sample_ids = source->ids};
    return DPB_OK;
}

struct dpb_batch_source tiny_source_of(struct tiny_source *source)
{
    return (struct dpb_batch_source){.ctx = source, .next = next_batch};
}
