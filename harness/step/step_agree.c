/* What ranks compare before they trust each other: the run, the plan, the sums that the
 * communicator makes, the replicas. */
#include "step_private.h"

#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"

/* ---- hashes ---- */

static void hash_text(XXH3_state_t *state, const char *text)
{
    XXH3_64bits_update(state, text, strlen(text) + 1);
}

static void hash_i64(XXH3_state_t *state, int64_t value)
{
    XXH3_64bits_update(state, &value, sizeof(value));
}

static void hash_f64(XXH3_state_t *state, double value)
{
    XXH3_64bits_update(state, &value, sizeof(value));
}

static uint64_t hash_of_run(const struct dpb_step_engine *engine)
{
    const struct dpb_step_config *config = &engine->config;
    XXH3_state_t *state = engine->hash_state;

    XXH3_64bits_reset(state);
    hash_text(state, config->workload->name);
    hash_text(state, config->strategy->name);
    hash_i64(state, engine->world_size);
    hash_i64(state, config->global_batch);
    hash_i64(state, (int64_t)config->seed);
    hash_i64(state, config->sum_gradients);
    hash_i64(state, config->accumulate);
    hash_i64(state, config->ranks_per_node);
    hash_i64(state, config->precision);
    hash_f64(state, config->loss_scale);
    hash_i64(state, config->capture);
    hash_i64(state, config->sync_batch_statistics);
    hash_i64(state, config->optimizer.kind);
#define HASH_SETTING(member, name) hash_f64(state, config->optimizer.member);
    DPB_OPTIMIZER_SETTING_MAP(HASH_SETTING)
#undef HASH_SETTING
    hash_i64(state, engine->model->param_count);
    for (int p = 0; p < engine->model->param_count; p++) {
        hash_text(state, engine->model->params[p].name);
        hash_i64(state, engine->model->params[p].dtype);
        hash_i64(state, engine->model->params[p].numel);
    }
    return XXH3_64bits_digest(state);
}

static uint64_t hash_of_plan(const struct dpb_step_engine *engine, const struct dpb_unit_plan *plan)
{
    XXH3_state_t *state = engine->hash_state;

    XXH3_64bits_reset(state);
    hash_i64(state, plan->unit_count);
    for (int u = 0; u < plan->unit_count; u++) {
        hash_i64(state, plan->units[u].offset_bytes);
        hash_i64(state, plan->units[u].member_count);
    }
    for (int m = 0; m < plan->param_count; m++)
        hash_i64(state, plan->member[m]);
    return XXH3_64bits_digest(state);
}

static void hash_piece(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    (void)offset;
    XXH3_64bits_update(ctx, piece, (size_t)bytes);
}

static dpb_status hash_values(struct dpb_step_engine *engine, const float *values, int64_t numel)
{
    const struct pieces hash = {.use = hash_piece, .ctx = engine->hash_state, .unit = -1};

    return engine_pieces(engine, (float *)values, numel * (int64_t)sizeof(*values), PIECES_READ,
                         &hash);
}

dpb_status engine_hash_run(struct dpb_step_engine *engine, int first, int end)
{
    for (int p = first; p < end; p++)
        DPB_TRY(hash_values(engine, engine->param[p], engine->model->params[p].numel));
    return DPB_OK;
}

/* What the workload keeps beside the parameters, alike on every rank. */
static dpb_status add_replicated_state(struct dpb_step_engine *engine)
{
    struct dpb_workload_state state;

    for (int i = 0; dpb_step_state(engine, i, &state); i++)
        if (state.kind == DPB_STATE_REPLICATED)
            DPB_TRY(hash_values(engine, state.data, state.numel));
    return DPB_OK;
}

static dpb_status hash_params(struct dpb_step_engine *engine)
{
    XXH3_64bits_reset(engine->hash_state);
    return engine_each_run(engine, false, engine_hash_run);
}

static dpb_status hash_of_state(struct dpb_step_engine *engine, uint64_t *hash)
{
    XXH3_64bits_reset(engine->hash_state);
    DPB_TRY(add_replicated_state(engine));
    *hash = XXH3_64bits_digest(engine->hash_state);
    return DPB_OK;
}

dpb_status dpb_step_hash(dpb_step_engine *engine, uint64_t *hash)
{
    DPB_TRY(hash_params(engine));
    DPB_TRY(add_replicated_state(engine));
    *hash = XXH3_64bits_digest(engine->hash_state);
    return DPB_OK;
}

/* ---- comparing them ---- */

/* Gather `mine`. `differing` gets "rank 1" or "ranks 1, 3": those that differ from rank 0; it stays
 * empty when there is none. Release it. */
static dpb_status compare_hashes(struct dpb_step_engine *engine, uint64_t mine,
                                 struct dpb_str *differing)
{
    int count = 0;

    DPB_TRY(engine->comm_ops->exchange(engine->config.comm, &mine, sizeof(mine), engine->hashes));
    for (int r = 1; r < engine->world_size; r++)
        count += engine->hashes[r] != engine->hashes[0];
    if (count == 0)
        return DPB_OK;

    engine->failed_by_all = true;
    dpb_str_append(differing, count == 1 ? "rank" : "ranks");
    for (int r = 1, listed = 0; r < engine->world_size; r++)
        if (engine->hashes[r] != engine->hashes[0])
            dpb_str_appendf(differing, listed++ ? ", %d" : " %d", r);
    return DPB_OK;
}

static bool is_empty(const struct dpb_str *str)
{
    return str->length == 0 && !str->failed;
}

static const char *text_of(const struct dpb_str *str)
{
    return str->text && !str->failed ? str->text : "some ranks";
}

dpb_status engine_agree_on_run(struct dpb_step_engine *engine)
{
    struct dpb_str differing = {0};
    dpb_status st = compare_hashes(engine, hash_of_run(engine), &differing);

    if (st == DPB_OK && !is_empty(&differing)) {
        dpb_error("workload \"%s\" with strategy \"%s\" on %d ranks: the network, the strategy or "
                  "the training settings of %s are not those of rank 0",
                  engine->config.workload->name, engine->config.strategy->name, engine->world_size,
                  text_of(&differing));
        dpb_log_hint("start every rank with the same options and the same build");
        st = DPB_ERR_MISMATCH;
    }
    dpb_str_release(&differing);
    return st;
}

dpb_status engine_agree_on_plan(struct dpb_step_engine *engine, const struct dpb_unit_plan *plan)
{
    struct dpb_str differing = {0};
    dpb_status st = compare_hashes(engine, hash_of_plan(engine, plan), &differing);

    if (st == DPB_OK && !is_empty(&differing)) {
        dpb_error("strategy \"%s\": %s made another communication plan than rank 0 (%d units on "
                  "this rank)",
                  engine->config.strategy->name, text_of(&differing), plan->unit_count);
        dpb_log_hint("give every rank the same --bucket and --first-bucket");
        st = DPB_ERR_MISMATCH;
    }
    dpb_str_release(&differing);
    return st;
}

static dpb_status agree_on(struct dpb_step_engine *engine, const char *what, uint64_t hash)
{
    struct dpb_str differing = {0};
    dpb_status st = compare_hashes(engine, hash, &differing);

    if (st == DPB_OK && !is_empty(&differing)) {
        dpb_error("the replicas differ after step %lld: the %s of %s are not those of rank 0",
                  (long long)engine->steps_done, what, text_of(&differing));
        dpb_log_hint("results with diverged replicas are worthless: look for a rank with bad "
                     "memory, or a kernel whose result depends on the run");
        st = DPB_ERR_CHECK;
    }
    dpb_str_release(&differing);
    return st;
}

dpb_status engine_agree_on_values(struct dpb_step_engine *engine, uint64_t hash_of_params)
{
    uint64_t hash;

    DPB_TRY(agree_on(engine, "parameters", hash_of_params));
    if (!engine->config.workload->state)
        return DPB_OK;
    DPB_TRY(hash_of_state(engine, &hash));
    return agree_on(engine, "values beside the parameters", hash);
}

bool dpb_step_is_in_sync(const dpb_step_engine *engine)
{
    return !(engine->strategy_flags & DPB_STRATEGY_REPLICAS_DIFFER) ||
           engine->config.strategy->in_sync(engine->strategy);
}

dpb_status dpb_step_check_replicas(dpb_step_engine *engine)
{
    dpb_status st;

    if (!dpb_step_is_in_sync(engine)) /* then they cannot be wrong */
        return DPB_OK;
    DPB_TRY(hash_params(engine));
    st = engine_agree_on_values(engine, XXH3_64bits_digest(engine->hash_state));

    /* The caller may go on: a later failure of this rank alone must still be told to the others. */
    engine->failed_by_all = false;
    return st;
}

/* ---- collectives outside of steps ---- */

static dpb_status run_collective(struct dpb_step_engine *engine, const struct dpb_coll *coll)
{
    dpb_comm *comm = engine->config.comm;
    dpb_request *request;

    DPB_TRY(engine->comm_ops->start(comm, coll, engine->launcher.stream, &request));
    return engine->comm_ops->wait(comm, request, engine->launcher.stream, NULL);
}

dpb_status engine_adopt_ready_order(struct dpb_step_engine *engine)
{
    /* Every parameter has an element, so the order fits into the arena. */
    const size_t bytes = (size_t)engine->model->param_count * sizeof(int32_t);
    const struct dpb_coll broadcast = {
            .kind = DPB_COLL_BROADCAST,
            .dtype = DPB_I32,
            .buffer = engine->gradients,
            .count = engine->model->param_count,
            .scale = 1.0f,
    };

    _Static_assert(sizeof(int) == sizeof(int32_t), "indices travel as int32");
    if (engine->world_size == 1)
        return DPB_OK;
    DPB_TRY(dpb_copy_now(&engine->launcher, engine->gradients, engine->ready_order, bytes));
    DPB_TRY(run_collective(engine, &broadcast));
    return dpb_copy_now(&engine->launcher, engine->ready_order, engine->gradients, bytes);
}

/* The check's data: rank r puts (r + 1) v at an element, where v counts 0, 1, ... 1020 and begins
 * again; the sum of the halves is then P (P + 1) / 4 v, exact in fp32 for far more ranks than there
 * are. 1021 is a prime, so that data which land at another place by a power of two are noticed, and
 * the half shows that `scale` is obeyed. */
#define CHECK_PERIOD 1021

struct check_result {
    int64_t element; /* -1: all are right */
    int unit;
    float got, expected;
};

/* One unit, whose pieces come in their order. */
struct check {
    const struct dpb_step_engine *engine;
    struct check_result *result;
    int unit, v;
};

static int check_first(int u)
{
    return (int)(37 * (int64_t)u % CHECK_PERIOD);
}

static int check_next(int v)
{
    return v + 1 == CHECK_PERIOD ? 0 : v + 1;
}

static void fill_piece(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    struct check *check = ctx;
    const int64_t times = check->engine->rank + 1;
    float *data = piece;

    (void)offset;
    for (int64_t i = 0; i < bytes / (int64_t)sizeof(*data); i++) {
        data[i] = (float)((int64_t)check->v * times);
        check->v = check_next(check->v);
    }
}

static void compare_piece(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    struct check *check = ctx;
    const int64_t ranks = check->engine->world_size;
    const float factor = (float)(ranks * (ranks + 1)) / 4.0f;
    const float *data = piece;

    for (int64_t i = 0; i < bytes / (int64_t)sizeof(*data) && check->result->element < 0; i++) {
        const float expected = factor * (float)check->v;

        if (data[i] != expected)
            *check->result = (struct check_result){offset / (int64_t)sizeof(*data) + i, check->unit,
                                                   data[i], expected};
        check->v = check_next(check->v);
    }
}

static dpb_status check_pieces(struct dpb_step_engine *engine, void *data, int64_t bytes, int u,
                               unsigned how, struct check_result *result)
{
    struct check check = {engine, result, u, check_first(u)};
    const struct pieces pieces = {
            .use = how == PIECES_WRITE ? fill_piece : compare_piece, .ctx = &check, .unit = u};

    return engine_pieces(engine, data, bytes, how, &pieces);
}

static void clear_piece(void *ctx, void *piece, int64_t offset, int64_t bytes)
{
    (void)ctx;
    (void)offset;
    memset(piece, 0, (size_t)bytes);
}

static dpb_status judge_check(struct dpb_step_engine *engine, const struct check_result *mine)
{
    const uint64_t is_wrong = mine->element >= 0;
    struct dpb_str wrong = {0};
    int count = 0;

    DPB_TRY(engine->comm_ops->exchange(engine->config.comm, &is_wrong, sizeof(is_wrong),
                                       engine->hashes));
    for (int r = 0; r < engine->world_size; r++)
        if (engine->hashes[r])
            dpb_str_appendf(&wrong, count++ ? ", %d" : "%d", r);
    if (count == 0)
        return DPB_OK;

    engine->failed_by_all = true;
    if (is_wrong)
        dpb_error("the all-reduce gives wrong sums: element %lld of bucket %d is %.9g on rank %d, "
                  "%.9g was expected",
                  (long long)mine->element, mine->unit, (double)mine->got, engine->rank,
                  (double)mine->expected);
    else
        dpb_error("the all-reduce gives wrong sums on rank(s) %s", text_of(&wrong));
    dpb_log_hint("nothing is timed with a communicator that is wrong; try another --comm or "
                 "--algorithm");
    dpb_str_release(&wrong);
    return DPB_ERR_CHECK;
}

dpb_status engine_check_comm(struct dpb_step_engine *engine, const struct dpb_unit_plan *plan)
{
    struct check_result result = {.element = -1};

    if (engine->world_size == 1)
        return DPB_OK;
    for (int u = 0; u < plan->unit_count; u++) {
        const struct dpb_unit *unit = &plan->units[u];
        float *data = (float *)(void *)(engine->gradients + unit->offset_bytes);
        const struct dpb_coll all_reduce = {
                .kind = DPB_COLL_ALL_REDUCE,
                .dtype = DPB_F32,
                .buffer = data,
                .count = unit->elements,
                .scale = 0.5f,
                .tag = u,
        };

        const int64_t bytes = unit->elements * (int64_t)sizeof(*data);

        DPB_TRY(check_pieces(engine, data, bytes, u, PIECES_WRITE, &result));
        DPB_TRY(run_collective(engine, &all_reduce));
        DPB_TRY(check_pieces(engine, data, bytes, u, PIECES_READ, &result));
    }
    DPB_TRY(judge_check(engine, &result));
    return engine_pieces(engine, engine->gradients, engine->gradient_arena_bytes, PIECES_WRITE,
                         &(struct pieces){.use = clear_piece, .unit = -1});
}
