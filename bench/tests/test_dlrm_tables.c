/* Tables that are not parameters: where they are, what ranks exchange, and that any number of ranks
 * learns what PyTorch learns with EmbeddingBag(sparse=True). */
#include "dpb_test.h"

#include <math.h>

#include "dlrm_distinct.h"
#include "dlrm_placement.h"
#include "dlrm_tables.h"
#include "dpb_dataset.h"
#include "dpb_device_cpu.h"
#include "dpb_rng.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "rank_group.h"
#include "tiny_dlrm.h"

#define SAMPLES_MAX 24

/* ---- ranks that train together ---- */

struct team;

struct member {
    struct team *team;
    dpb_device *device;
    dpb_stream *stream;
    dpb_recorder *recorder;
    struct dpb_launcher launcher;
    dpb_workload *workload;
    float *param[DPB_DLRM_PARAMS_MAX], *grad[DPB_DLRM_PARAMS_MAX];
    float *memory;
    struct dpb_batch batch;
    struct dpb_forward_result result;
    int rank;
    int ready[DPB_DLRM_PARAMS_MAX], ready_count;
    int under_way[DPB_DLRM_PARAMS_MAX]; /* exchanges, when a gradient became ready */
};

struct team {
    const struct dpb_dlrm_list *list;
    struct dpb_optimizer_config optimizer;
    struct dpb_workload_ops ops;
    struct rank_group group;
    struct member member[RANK_GROUP_MAX];
    int64_t samples;
    float scale; /* of the gradient of the loss's sum over all ranks */
    float x[SAMPLES_MAX * 4];
    int32_t index[SAMPLES_MAX * DPB_DLRM_TABLES_MAX], label[SAMPLES_MAX];
};

static void *must_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes);

    assert_non_null(memory);
    return memory;
}

static void member_open(struct team *team, int rank)
{
    const struct dpb_model *model = &team->list->model;
    const struct dpb_device_ops *device = &dpb_device_cpu_ops;
    const struct dpb_device_config device_config = {.local_size = 1, .threads = 1};
    const struct dpb_recorder_config recorder_config = {.events_per_lane = 1024};
    struct member *member = &team->member[rank];
    const struct dpb_workload_config config = {.launcher = &member->launcher,
                                               .batch_max = (team->samples + team->group.size - 1) /
                                                            team->group.size,
                                               .global_batch = team->samples,
                                               .ranks = &team->group.seat[rank].services,
                                               .optimizer = team->optimizer};
    int64_t first, elements = dpb_model_param_elements(model);

    member->team = team;
    member->rank = rank;
    assert_int_equal(device->open(&device_config, &member->device), DPB_OK);
    assert_int_equal(device->stream_open(member->device, &member->stream), DPB_OK);
    assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &member->recorder), DPB_OK);
    member->launcher = (struct dpb_launcher){
            .device = member->device, .stream = member->stream, .recorder = member->recorder};
    member->memory = must_alloc(2 * (size_t)elements * sizeof(float));
    for (int64_t p = 0, at = 0; p < model->param_count; at += model->params[p++].numel) {
        member->param[p] = member->memory + at;
        member->grad[p] = member->memory + elements + at;
    }
    assert_int_equal(dpb_dlrm_open(&team->ops, team->list, &config, &member->workload), DPB_OK);
    dpb_dlrm_bind(member->workload, member->param, member->grad);
    assert_int_equal(dpb_dlrm_init_params(member->workload, 1), DPB_OK);
    assert_int_equal(dpb_shard_of_batch(team->samples, team->group.size, rank, true, &first,
                                        &member->batch.samples),
                     DPB_OK);
    member->batch.first = first;
    member->batch.x = team->x + first * model->features;
    member->batch.indices = team->index + first * model->tables;
    member->batch.label = team->label + first;
}

/* Every rank has its slice of the same made-up batch. */
static void team_open(struct team *team, const struct dpb_dlrm_list *list, int ranks,
                      int64_t samples, enum dpb_optimizer_kind optimizer)
{
    struct dpb_rng rng;

    memset(team, 0, sizeof(*team));
    assert_true(samples <= SAMPLES_MAX && list->model.features <= 4);
    team->list = list;
    team->ops = dpb_workload_dlrm_mlperf_ops;
    team->ops.name = "team";
    team->samples = samples;
    team->scale = 1.0f / (float)samples;
    team->optimizer = dpb_optimizer_defaults(optimizer);
    team->optimizer.lr = 0.25;
    if (optimizer == DPB_OPTIMIZER_SGD)
        team->optimizer.momentum = 0.0;
    dpb_rng_init(&rng, 6, 0);
    for (int64_t i = 0; i < samples; i++) {
        team->label[i] = (int32_t)dpb_rng_below(&rng, 2);
        for (int f = 0; f < list->model.features; f++)
            team->x[i * list->model.features + f] = (float)dpb_rng_normal(&rng);
        for (int t = 0; t < list->model.tables; t++)
            team->index[i * list->model.tables + t] =
                    (int32_t)dpb_rng_below(&rng, (uint64_t)list->model.table_rows[t]);
    }
    rank_group_open(&team->group, ranks);
    for (int r = 0; r < ranks; r++)
        member_open(team, r);
}

static void team_close(struct team *team)
{
    for (int r = 0; r < team->group.size; r++) {
        struct member *member = &team->member[r];

        dpb_dlrm_close(member->workload);
        dpb_recorder_host_ops.close(member->recorder);
        dpb_device_cpu_ops.stream_close(member->stream);
        dpb_device_cpu_ops.close(member->device);
        free(member->memory);
    }
    rank_group_close(&team->group);
}

static dpb_status note_ready(void *ctx, int param)
{
    struct member *member = ctx;

    if (member->ready_count == DPB_DLRM_PARAMS_MAX)
        return DPB_ERR_INTERNAL;
    member->under_way[member->ready_count] = member->team->group.seat[member->rank].under_way;
    member->ready[member->ready_count++] = param;
    return DPB_OK;
}

static dpb_status pass(void *ctx, int rank)
{
    struct team *team = ctx;
    struct member *member = &team->member[rank];

    member->ready_count = 0;
    DPB_TRY(dpb_dlrm_forward(member->workload, &member->batch, true, 0));
    DPB_TRY(dpb_dlrm_read_result(member->workload, 0, &member->result));
    return dpb_dlrm_backward(member->workload, &member->batch,
                             team->scale * (float)team->group.size, note_ready, member);
}

/* Forward and backward, then the mean of all ranks' gradients on each, as a strategy does it.
 * Returns the loss of the whole batch. */
static double team_pass(struct team *team)
{
    const struct dpb_model *model = &team->list->model;
    double loss = 0.0;

    assert_int_equal(rank_group_run(&team->group, pass, team), DPB_OK);
    for (int r = 0; r < team->group.size; r++)
        loss += team->member[r].result.loss_sum;
    for (int p = 0; p < model->param_count; p++) {
        for (int64_t i = 0; i < model->params[p].numel; i++) {
            double sum = 0.0;

            for (int r = 0; r < team->group.size; r++)
                sum += (double)team->member[r].grad[p][i];
            for (int r = 0; r < team->group.size; r++)
                team->member[r].grad[p][i] = (float)(sum / team->group.size);
        }
    }
    return loss;
}

static void team_update(struct team *team, bool mlps, int64_t step)
{
    const struct dpb_model *model = &team->list->model;

    for (int r = 0; r < team->group.size; r++) {
        struct member *member = &team->member[r];

        for (int p = 0; mlps && p < model->param_count; p++) {
            for (int64_t i = 0; i < model->params[p].numel; i++)
                member->param[p][i] -= 0.1f * member->grad[p][i];
        }
        assert_int_equal(dpb_dlrm_update(member->workload, &team->optimizer, step), DPB_OK);
    }
}

/* This rank's memory of a table or of what belongs to it; NULL when it is on another. */
static float *state_of(const struct team *team, int rank, const char *name, int64_t *numel)
{
    struct dpb_workload_state state;

    for (int i = 0; dpb_dlrm_state(team->member[rank].workload, i, &state); i++) {
        if (strcmp(state.name, name) == 0) {
            *numel = state.numel;
            return state.data;
        }
    }
    return NULL;
}

/* Table t on the first rank that has it. */
static float *table_of(const struct team *team, int t)
{
    float *table = NULL;
    int64_t numel;

    for (int r = 0; !table && r < team->group.size; r++)
        table = state_of(team, r, team->list->table_weight[t], &numel);
    assert_non_null(table);
    return table;
}

static void check_near(const float *got, const float *want, int64_t count, double tolerance,
                       const char *what)
{
    for (int64_t i = 0; i < count; i++) {
        double off = fabs((double)got[i] - (double)want[i]);

        if (!(off <= tolerance))
            fail_msg("%s[%d]: %.9g, not %.9g", what, (int)i, (double)got[i], (double)want[i]);
    }
}

/* ---- against PyTorch ---- */

static void load_figures(struct team *team, const dpb_json *json)
{
    tiny_dlrm_floats(json, "x", team->x, TINY_DLRM_SAMPLES * 3);
    tiny_dlrm_ints(json, "indices", team->index, TINY_DLRM_SAMPLES * 3);
    tiny_dlrm_ints(json, "label", team->label, TINY_DLRM_SAMPLES);
    team->scale = (float)dpb_json_as_real(dpb_json_get(json, "scale"), NAN);
    for (int r = 0; r < team->group.size; r++) {
        for (int p = 0; p < team->list->model.param_count; p++)
            tiny_dlrm_floats(json, team->list->param[p].name, team->member[r].param[p],
                             team->list->param[p].numel);
        for (int t = 0; t < 3; t++) {
            int64_t numel;
            float *table = state_of(team, r, team->list->table_weight[t], &numel);

            if (table)
                tiny_dlrm_floats(json, team->list->table_weight[t], table, numel);
        }
    }
}

static void check_torch(enum dpb_dlrm_where where, int ranks, enum dpb_optimizer_kind optimizer)
{
    dpb_json *json = tiny_dlrm_figures();
    const dpb_json *all = dpb_json_get(json, "sparse");
    const dpb_json *want = dpb_json_get(all, dpb_optimizer_text(optimizer));
    float losses[3], tables[60], gradient[64];
    char key[80];
    struct team team;

    team_open(&team, tiny_dlrm_list(where), ranks, TINY_DLRM_SAMPLES, optimizer);
    team.optimizer.lr = dpb_json_as_real(dpb_json_get(all, "lr"), NAN);
    assert_true(team.optimizer.lr > 0.0);
    load_figures(&team, json);
    tiny_dlrm_floats(want, "losses", losses, 3);
    tiny_dlrm_floats(want, "tables", tables, 60);
    for (int step = 0; step < 3; step++) {
        float loss = (float)team_pass(&team);

        check_near(&loss, &losses[step], 1, 3e-6, "loss");
        for (int p = 0; step == 0 && p < team.list->model.param_count; p++) {
            const struct dpb_param_info *param = &team.list->param[p];

            snprintf(key, sizeof(key), "%s.grad", param->name);
            assert_true(param->numel <= 64 || strstr(key, "top_l.0"));
            if (param->numel > 64)
                continue;
            tiny_dlrm_floats(json, key, gradient, param->numel);
            for (int r = 0; r < ranks; r++)
                check_near(team.member[r].grad[p], gradient, param->numel, 1e-6, key);
        }
        team_update(&team, false, step + 1);
    }
    for (int t = 0; t < 3; t++)
        check_near(table_of(&team, t), tables + 20 * t, 20, 2e-6, team.list->table_weight[t]);
    team_close(&team);
    dpb_json_free(json);
}

static void test_learns_as_torch(void **state)
{
    static const enum dpb_optimizer_kind optimizers[] = {DPB_OPTIMIZER_SGD, DPB_OPTIMIZER_ADAGRAD,
                                                         DPB_OPTIMIZER_ROWWISE_ADAGRAD};

    (void)state;
    /* 4 ranks: two samples, two, one, one; 8 ranks: two have none; from 4 on some have no table */
    for (int ranks = 1; ranks <= RANK_GROUP_MAX; ranks++) {
        for (int o = 0; o < 3; o++) {
            check_torch(DPB_DLRM_TABLES_SPARSE, ranks, optimizers[o]);
            check_torch(DPB_DLRM_TABLES_SHARDED, ranks, optimizers[o]);
        }
    }
}

/* ---- tables of different sizes ---- */

static const struct dpb_dlrm_list *mixed_list(enum dpb_dlrm_where where)
{
    const struct dpb_dlrm_shape shape = {.where = where,
                                         .features = 4,
                                         .tables = 5,
                                         .table_rows = {7, 3, 50, 1, 20},
                                         .length = 8,
                                         .bottom_count = 1,
                                         .bottom = {8},
                                         .top_count = 2,
                                         .top = {9, 1}};
    const struct dpb_dlrm_list *list = dpb_dlrm_list_get(&shape, "mixed");

    assert_non_null(list);
    return list;
}

static void check_as_one_rank(enum dpb_dlrm_where where, int ranks, int64_t samples,
                              enum dpb_optimizer_kind optimizer)
{
    struct team one, many;

    team_open(&one, mixed_list(DPB_DLRM_TABLES_SPARSE), 1, samples, optimizer);
    team_open(&many, mixed_list(where), ranks, samples, optimizer);
    for (int step = 1; step <= 4; step++) {
        float want = (float)team_pass(&one), got = (float)team_pass(&many);

        check_near(&got, &want, 1, 1e-4, "loss");
        team_update(&one, true, step);
        team_update(&many, true, step);
    }
    for (int t = 0; t < 5; t++)
        check_near(table_of(&many, t), table_of(&one, t), one.list->shape.table_rows[t] * 8, 2e-5,
                   one.list->table_weight[t]);
    for (int p = 0; p < one.list->model.param_count; p++)
        check_near(many.member[ranks - 1].param[p], one.member[0].param[p],
                   one.list->param[p].numel, 2e-5, one.list->param[p].name);
    team_close(&one);
    team_close(&many);
}

static void test_any_number_of_ranks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks++) {
        check_as_one_rank(DPB_DLRM_TABLES_SPARSE, ranks, 24, DPB_OPTIMIZER_ADAGRAD);
        check_as_one_rank(DPB_DLRM_TABLES_SHARDED, ranks, 24, DPB_OPTIMIZER_ADAGRAD);
        check_as_one_rank(DPB_DLRM_TABLES_SHARDED, ranks, 5, DPB_OPTIMIZER_SGD);
    }
}

/* A table whose gradients are dense learns the same: a row that no sample used has gradient 0,
 * which neither optimizer acts on. */
static void check_as_dense(enum dpb_optimizer_kind optimizer, int ranks)
{
    struct team dense, sparse;
    float *squares[5];

    team_open(&dense, mixed_list(DPB_DLRM_TABLES_DENSE), 1, 24, optimizer);
    team_open(&sparse, mixed_list(DPB_DLRM_TABLES_SPARSE), ranks, 24, optimizer);
    for (int t = 0; t < 5; t++)
        squares[t] = must_alloc((size_t)dense.list->param[t].numel * sizeof(float));
    for (int step = 1; step <= 4; step++) {
        float want = (float)team_pass(&dense), got = (float)team_pass(&sparse);

        check_near(&got, &want, 1, 1e-4, "loss");
        for (int p = 0; p < dense.list->model.param_count; p++) {
            for (int64_t i = 0; i < dense.list->param[p].numel; i++) {
                float g = dense.member[0].grad[p][i];

                if (p < 5 && optimizer == DPB_OPTIMIZER_ADAGRAD) {
                    squares[p][i] += g * g;
                    g /= sqrtf(squares[p][i]) + (float)dense.optimizer.eps;
                }
                dense.member[0].param[p][i] -= (p < 5 ? 0.25f : 0.1f) * g;
            }
        }
        team_update(&sparse, true, step);
    }
    for (int t = 0; t < 5; t++) {
        check_near(table_of(&sparse, t), dense.member[0].param[t], dense.list->param[t].numel, 2e-5,
                   dense.list->param[t].name);
        free(squares[t]);
    }
    team_close(&dense);
    team_close(&sparse);
}

static void test_sparse_is_dense(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        check_as_dense(DPB_OPTIMIZER_SGD, ranks);
        check_as_dense(DPB_OPTIMIZER_ADAGRAD, ranks);
    }
}

static void test_replicas_are_identical(void **state)
{
    struct team team;

    (void)state;
    team_open(&team, mixed_list(DPB_DLRM_TABLES_SPARSE), 3, 23, DPB_OPTIMIZER_ADAGRAD);
    for (int step = 1; step <= 3; step++) {
        team_pass(&team);
        team_update(&team, true, step);
    }
    for (int r = 0; r < 3; r++) {
        struct dpb_workload_state mine, first;
        int count = 0;

        for (; dpb_dlrm_state(team.member[r].workload, count, &mine); count++) {
            assert_true(dpb_dlrm_state(team.member[0].workload, count, &first));
            assert_int_equal(mine.kind, DPB_STATE_REPLICATED);
            assert_string_equal(mine.name, first.name);
            assert_int_equal(mine.numel, first.numel);
            assert_memory_equal(mine.data, first.data, (size_t)mine.numel * sizeof(float));
        }
        assert_int_equal(count, 10); /* five tables, and Adagrad's sums of each */
    }
    team_close(&team);
}

/* ---- what is exchanged ---- */

static void check_bytes(enum dpb_dlrm_where where, int ranks, int64_t samples)
{
    const struct dpb_dlrm_list *list = mixed_list(where);
    int64_t slots = where == DPB_DLRM_TABLES_SHARDED ? (5 + ranks - 1) / ranks : 5;
    int64_t each = (samples + ranks - 1) / ranks;
    int64_t numbers = 4 * (ranks - 1) * (1 + slots * each);
    int64_t rows = 4 * (ranks - 1) * slots * each * 8;
    struct team team;

    team_open(&team, list, ranks, samples, DPB_OPTIMIZER_SGD);
    team_pass(&team);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(team.group.seat[r].sent_bytes,
                         numbers + (where == DPB_DLRM_TABLES_SHARDED ? 2 : 1) * rows);
    team_close(&team);
}

static void test_bytes_are_the_formula(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 6; ranks++) {
        check_bytes(DPB_DLRM_TABLES_SHARDED, ranks, 24);
        check_bytes(DPB_DLRM_TABLES_SPARSE, ranks, 24);
        check_bytes(DPB_DLRM_TABLES_SHARDED, ranks, 13);
        check_bytes(DPB_DLRM_TABLES_SPARSE, ranks, 13);
    }
}

/* Gradients of the rows are under way while the bottom MLP goes backward, and no exchange before
 * that; also on a rank without samples. */
static void check_overlap(enum dpb_dlrm_where where)
{
    const struct dpb_dlrm_list *list = tiny_dlrm_list(where);
    const int under_way = where == DPB_DLRM_TABLES_SHARDED ? 1 : 2;
    struct team team;

    team_open(&team, list, 4, 3, DPB_OPTIMIZER_SGD);
    team_pass(&team);
    assert_int_equal(team.member[3].batch.samples, 0);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(team.member[r].ready_count, 8);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(team.member[r].ready[i], list->model.ready_order[i]);
            assert_int_equal(team.member[r].under_way[i], i < 4 ? 0 : under_way);
        }
    }
    team_close(&team);
}

/* Rows are under way while the bottom MLP goes forward: it comes between look-up and unpacking. */
static void check_order_of_launches(void)
{
    static const char *const want[] = {"emb_l.0.fwd", "emb_l.1.fwd", "emb_l.2.fwd",
                                       "bot_l.0.fwd", "bot_l.2.fwd", "emb_l.unpack"};
    const struct dpb_event *event;
    struct team team;
    size_t count;
    uint64_t lost;

    team_open(&team, tiny_dlrm_list(DPB_DLRM_TABLES_SHARDED), 1, 3, DPB_OPTIMIZER_SGD);
    team_pass(&team);
    assert_int_equal(dpb_recorder_host_ops.drain(team.member[0].recorder, &event, &count, &lost),
                     DPB_OK);
    assert_true(count >= 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(event[i].name, want[i]);
    team_close(&team);
}

static void test_exchanges_overlap_the_bottom_mlp(void **state)
{
    (void)state;
    check_overlap(DPB_DLRM_TABLES_SHARDED);
    check_overlap(DPB_DLRM_TABLES_SPARSE);
    check_order_of_launches();
}

/* ---- where tables are ---- */

static void check_placement(const struct dpb_dlrm_shape *shape, int ranks)
{
    struct dpb_dlrm_placement placement;
    bool taken[64][DPB_DLRM_TABLES_MAX] = {{false}};
    int count[64] = {0};

    dpb_dlrm_place(shape, ranks, &placement);
    assert_int_equal(placement.slots, (26 + ranks - 1) / ranks);
    for (int t = 0; t < shape->tables; t++) {
        int rank = placement.rank_of[t], slot = placement.slot_of[t];

        assert_true(rank >= 0 && rank < ranks && slot >= 0 && slot < placement.slots);
        assert_false(taken[rank][slot]);
        taken[rank][slot] = true;
        count[rank]++;
    }
    for (int r = 0; r < ranks; r++) {
        for (int slot = 0; slot < count[r]; slot++)
            assert_true(taken[r][slot]);
    }
}

static void test_placement(void **state)
{
    const int64_t uncut = 40000000;
    const struct dpb_model *model = dpb_workload_dlrm_mlperf_ops.model(&uncut);
    struct dpb_dlrm_shape shape = {.where = DPB_DLRM_TABLES_SHARDED, .tables = 26, .length = 128};
    struct dpb_dlrm_shape few = {
            .where = DPB_DLRM_TABLES_SHARDED, .tables = 5, .table_rows = {7, 3, 50, 1, 20}};
    struct dpb_dlrm_placement placement;

    (void)state;
    memcpy(shape.table_rows, model->table_rows, 26 * sizeof(int64_t));
    for (int ranks = 1; ranks <= 64; ranks++)
        check_placement(&shape, ranks);
    /* 50 to rank 0; 20, 7 and 3 to rank 1, which is full; 1 to rank 0 */
    dpb_dlrm_place(&few, 2, &placement);
    assert_memory_equal(placement.rank_of, ((int[]){1, 1, 0, 0, 1}), 5 * sizeof(int));
    assert_memory_equal(placement.slot_of, ((int[]){0, 1, 0, 1, 2}), 5 * sizeof(int));
}

static void test_shards_are_the_whole(void **state)
{
    const struct dpb_dlrm_list *list = mixed_list(DPB_DLRM_TABLES_SHARDED);
    struct dpb_workload_state shard;
    int seen[5] = {0};
    struct team team;
    float *want = must_alloc(50 * 8 * sizeof(float));

    (void)state;
    team_open(&team, list, 3, 6, DPB_OPTIMIZER_SGD);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; dpb_dlrm_state(team.member[r].workload, i, &shard); i++) {
            int t = 0;

            while (t < 5 && strcmp(shard.name, list->table_weight[t]) != 0)
                t++;
            assert_true(t < 5);
            seen[t]++;
            assert_int_equal(shard.kind, DPB_STATE_SHARDED);
            assert_int_equal(shard.numel, list->shape.table_rows[t] * 8);
            dpb_dlrm_list_init_table(list, t, 1, want);
            assert_memory_equal(shard.data, want, (size_t)shard.numel * sizeof(float));
        }
    }
    for (int t = 0; t < 5; t++)
        assert_int_equal(seen[t], 1);
    team_close(&team);
    free(want);
}

static void test_memory_is_predicted(void **state)
{
    static const enum dpb_optimizer_kind optimizers[] = {DPB_OPTIMIZER_SGD, DPB_OPTIMIZER_ADAGRAD,
                                                         DPB_OPTIMIZER_ROWWISE_ADAGRAD};

    (void)state;
    for (int o = 0; o < 3; o++) {
        const struct dpb_dlrm_list *list = mixed_list(DPB_DLRM_TABLES_SHARDED);
        int64_t bytes[3];
        struct team team;

        team_open(&team, list, 3, 7, optimizers[o]);
        for (int r = 0; r < 3; r++) {
            const struct dpb_workload_sizes sizes = {.batch_max = 3,
                                                     .global_batch = 7,
                                                     .rank = r,
                                                     .ranks = 3,
                                                     .optimizer = team.optimizer};

            bytes[r] = dpb_dlrm_activation_bytes(team.member[r].workload);
            assert_int_equal(bytes[r], dpb_dlrm_activation_bytes_for(list, &sizes));
        }
        /* rank 0 has 50 rows, rank 1 20 and 1, rank 2 7 and 3: of 8, and of sums */
        assert_int_equal(bytes[0] - bytes[2], 4 * 40 * (o == 0 ? 8 : o == 1 ? 16 : 9));
        team_close(&team);
    }
}

/* ---- the rest ---- */

static void test_distinct(void **state)
{
    const int32_t numbers[] = {9, 39999999, 9, 0, 39999999, 16, 32, 0};
    const int32_t want[] = {0, 1, 0, 2, 1, 3, 4, 2};
    struct dpb_dlrm_distinct distinct;
    int32_t which[8];

    (void)state;
    assert_int_equal(dpb_dlrm_distinct_open(8, &distinct), DPB_OK);
    for (int twice = 0; twice < 2; twice++) {
        dpb_dlrm_distinct_clear(&distinct);
        dpb_dlrm_distinct_add(&distinct, numbers, 3, which);
        dpb_dlrm_distinct_add(&distinct, numbers + 3, 5, which + 3);
        assert_int_equal(distinct.count, 5);
        assert_memory_equal(which, want, sizeof(want));
        for (int i = 0; i < 8; i++)
            assert_int_equal(distinct.value[which[i]], numbers[i]);
    }
    dpb_dlrm_distinct_release(&distinct);
}

static void test_distinct_of_many(void **state)
{
    enum {
        MANY = 5000
    };
    static int32_t numbers[MANY], which[MANY];
    struct dpb_dlrm_distinct distinct;
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 3, 0);
    assert_int_equal(dpb_dlrm_distinct_open(MANY, &distinct), DPB_OK);
    for (int i = 0; i < MANY; i++)
        numbers[i] = (int32_t)dpb_rng_below(&rng, 3000);
    dpb_dlrm_distinct_add(&distinct, numbers, MANY, which);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(distinct.value[which[i]], numbers[i]);
    for (int i = 0; i < distinct.count; i++) {
        for (int j = 0; j < i; j++)
            assert_true(distinct.value[i] != distinct.value[j]);
    }
    dpb_dlrm_distinct_release(&distinct);
}

static void refuse(struct dpb_optimizer_config optimizer, const char *text)
{
    struct rank_group group;
    struct dpb_launcher launcher = {0};
    struct dpb_dlrm_tables *tables;

    rank_group_open(&group, 1);
    log_collect();
    assert_int_equal(
            dpb_dlrm_tables_open("team", tiny_dlrm_list(DPB_DLRM_TABLES_SHARDED),
                                 &(struct dpb_workload_config){.launcher = &launcher,
                                                               .batch_max = 2,
                                                               .global_batch = 2,
                                                               .ranks = &group.seat[0].services,
                                                               .optimizer = optimizer},
                                 &tables),
            DPB_ERR_USAGE);
    assert_true(log_has(text));
    assert_true(log_has("--optimizer sgd with --momentum 0"));
    log_stop();
    rank_group_close(&group);
}

static void test_optimizers_that_change_every_row(void **state)
{
    struct dpb_optimizer_config optimizer = dpb_optimizer_defaults(DPB_OPTIMIZER_SGD);

    (void)state;
    refuse(optimizer, "optimizer \"sgd\" with momentum would change rows");
    refuse(dpb_optimizer_defaults(DPB_OPTIMIZER_ADAMW), "optimizer \"adamw\" would change rows");
    refuse(dpb_optimizer_defaults(DPB_OPTIMIZER_LARS), "optimizer \"lars\"");
    optimizer = dpb_optimizer_defaults(DPB_OPTIMIZER_ADAGRAD);
    optimizer.weight_decay = 0.1;
    refuse(optimizer, "optimizer \"adagrad\" with weight decay would change rows");
}

static void test_rows_that_no_sample_used(void **state)
{
    struct team team;
    float *before = must_alloc(50 * 8 * sizeof(float));

    (void)state;
    team_open(&team, mixed_list(DPB_DLRM_TABLES_SHARDED), 2, 6, DPB_OPTIMIZER_ADAGRAD);
    memcpy(before, table_of(&team, 2), 50 * 8 * sizeof(float));
    team_pass(&team);
    team_update(&team, false, 1);
    for (int row = 0; row < 50; row++) {
        bool used = false;

        for (int i = 0; i < 6; i++)
            used = used || team.index[i * 5 + 2] == row;
        assert_true(used == (memcmp(before + 8 * row, table_of(&team, 2) + 8 * row,
                                    8 * sizeof(float)) != 0));
    }
    team_close(&team);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_placement),
            cmocka_unit_test(test_distinct),
            cmocka_unit_test(test_distinct_of_many),
            cmocka_unit_test(test_learns_as_torch),
            cmocka_unit_test(test_any_number_of_ranks),
            cmocka_unit_test(test_sparse_is_dense),
            cmocka_unit_test(test_replicas_are_identical),
            cmocka_unit_test(test_bytes_are_the_formula),
            cmocka_unit_test(test_exchanges_overlap_the_bottom_mlp),
            cmocka_unit_test(test_shards_are_the_whole),
            cmocka_unit_test(test_memory_is_predicted),
            cmocka_unit_test(test_optimizers_that_change_every_row),
            cmocka_unit_test(test_rows_that_no_sample_used),
    };

    return DPB_RUN_TESTS(tests);
}
