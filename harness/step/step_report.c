/* What the step engine tells about itself. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "plan_report.h"

const char *dpb_phase_text(enum dpb_phase phase)
{
    static const char *const text_of[] = {
            [DPB_PHASE_SETUP] = "setup",     [DPB_PHASE_DATA] = "data",
            [DPB_PHASE_FORWARD] = "forward", [DPB_PHASE_BACKWARD] = "backward",
            [DPB_PHASE_SYNC] = "sync",       [DPB_PHASE_OPTIMIZER] = "optimizer",
            [DPB_PHASE_DONE] = "done",
    };

    _Static_assert(sizeof(text_of) / sizeof(text_of[0]) == DPB_PHASE_COUNT, "one text per phase");
    return (unsigned)phase < DPB_PHASE_COUNT ? text_of[phase] : "unknown";
}

int64_t dpb_step_count(const dpb_step_engine *engine)
{
    return engine->steps_done;
}

dpb_json *dpb_step_plan_json(const dpb_step_engine *engine)
{
    return plan_report(engine->model, engine_plan(engine), engine->rebuilt, engine->config.strategy,
                       engine->strategy);
}

int dpb_step_messages(const dpb_step_engine *engine, struct dpb_sync_message *messages)
{
    return engine->config.strategy->messages(engine->strategy, messages);
}

/* Of what the workload keeps beside its parameters. */
static int64_t state_bytes(const struct dpb_step_engine *engine)
{
    struct dpb_workload_state state;
    int64_t bytes = 0;

    for (int i = 0; dpb_step_state(engine, i, &state); i++)
        bytes += state.numel * (int64_t)sizeof(float);
    return bytes;
}

dpb_json *dpb_step_memory_json(const dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;
    struct dpb_strategy_memory extra = {.parameters_bytes = -1};
    dpb_json *json = dpb_json_object();

    if (strategy->memory)
        strategy->memory(engine->strategy, &extra);
    if (engine->micro_grad)
        extra.private_bytes += engine->param_arena_bytes;
    dpb_json_set_int(json, "parameters",
                     extra.parameters_bytes < 0 ? engine->param_arena_bytes
                                                : extra.parameters_bytes);
    dpb_json_set_int(json, "gradients", engine->gradient_arena_bytes);
    dpb_json_set_int(json, "optimizer", engine->state_arena_bytes);
    dpb_json_set_int(json, "activations",
                     engine->config.workload->activation_bytes(engine->workload));
    dpb_json_set_int(json, "state", state_bytes(engine));
    dpb_json_set_int(json, "exchange", engine->exchanges.bytes);
    dpb_json_set_int(json, "communication", engine->sync.buffer_bytes);
    dpb_json_set_int(json, "strategy", extra.private_bytes);
    return json;
}

dpb_status dpb_step_params_begin(dpb_step_engine *engine)
{
    return engine_full_params_begin(engine);
}

void dpb_step_params_end(dpb_step_engine *engine)
{
    engine_full_params_end(engine);
}

const float *dpb_step_param(const dpb_step_engine *engine, int index)
{
    return engine->param[index];
}

const struct dpb_model *dpb_step_model(const dpb_step_engine *engine)
{
    return engine->model;
}

bool dpb_step_state(const dpb_step_engine *engine, int index, struct dpb_workload_state *state)
{
    const struct dpb_workload_ops *workload = engine->config.workload;

    return workload->state && workload->state(engine->workload, index, state);
}

dpb_status dpb_step_read(const dpb_step_engine *engine, void *to, const void *from, size_t bytes)
{
    return dpb_copy_now(&engine->launcher, to, from, bytes);
}

int64_t dpb_step_captured(const dpb_step_engine *engine)
{
    return engine->captured;
}

static void flip_bit(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    (void)ctx;
    (void)offset;
    (void)bytes;
    *(unsigned char *)piece ^= 1; /* the lowest of a little-endian float */
}

dpb_status dpb_step_plant_divergence(dpb_step_engine *engine)
{
    const struct dpb_update *part = &engine->update[0].part;
    float *first = part->value ? part->value : engine->param[part->param] + part->first;
    const struct pieces flip = {.use = flip_bit, .unit = -1};

    return engine_pieces(engine, first, sizeof(*first), PIECES_READ | PIECES_WRITE, &flip);
}

void dpb_step_exchanges(const dpb_step_engine *engine, struct dpb_step_exchanges *exchanges)
{
    *exchanges = engine->exchanges.step;
}

static void nudge_piece(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    uint64_t bits = *(uint64_t *)ctx;
    float *value = piece;

    (void)offset;
    for (int64_t i = 0; i < bytes / (int64_t)sizeof(*value); i++) {
        /* xorshift64: Marsaglia, "Xorshift RNGs", 2003 */
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        value[i] *= bits >> 63 ? 1.0f + 0x1p-20f : 1.0f - 0x1p-20f;
    }
    *(uint64_t *)ctx = bits;
}

static dpb_status nudge(struct dpb_step_engine *engine, int way)
{
    uint64_t bits = 0x9e3779b97f4a7c15 * (2 * (uint64_t)way + 1); /* odd: never 0 */
    const struct pieces some = {.use = nudge_piece, .ctx = &bits, .unit = -1};

    for (int p = 0; p < engine->model->param_count; p++)
        DPB_TRY(engine_pieces(engine, engine->param[p],
                              engine->model->params[p].numel * (int64_t)sizeof(float),
                              PIECES_READ | PIECES_WRITE, &some));
    return DPB_OK;
}

dpb_status dpb_step_nudge_params(dpb_step_engine *engine, int way)
{
    dpb_status st = engine_full_params_begin(engine);

    if (st < 0)
        return st;
    st = nudge(engine, way);
    if (st >= 0)
        st = engine_take_params(engine);
    engine_full_params_end(engine);
    return st;
}

void dpb_step_comm_stats(const dpb_step_engine *engine, struct dpb_comm_stats *stats)
{
    engine->comm_ops->stats(engine->config.comm, stats);
}
