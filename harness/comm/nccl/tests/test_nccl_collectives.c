/* Every kind of collective, on the faked runtime in adversarial orders: results for every count,
 * also where shards are not equal, nothing outside of them touched, nothing leaked. */
#include "dpb_test.h"

#include <math.h>

#include "nccl_private.h"
#include "nccl_rank.h"

#define GUARD 5 /* elements before and after, which nobody may change */
#define MOST  512

/* Element i of rank r: exact in every type, also summed over 8 ranks. */
static double value_of(int rank, int64_t i)
{
    return (double)((rank * 3 + i * 5) % 7);
}

static double load(const void *from, enum dpb_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DPB_F32:
        return ((const float *)from)[i];
    case DPB_F64:
        return ((const double *)from)[i];
    case DPB_I32:
        return ((const int32_t *)from)[i];
    case DPB_I64:
        return (double)((const int64_t *)from)[i];
    default:
        return ((const uint8_t *)from)[i];
    }
}

static void store(void *to, enum dpb_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case DPB_F32:
        ((float *)to)[i] = (float)value;
        break;
    case DPB_F64:
        ((double *)to)[i] = value;
        break;
    case DPB_I32:
        ((int32_t *)to)[i] = (int32_t)value;
        break;
    case DPB_I64:
        ((int64_t *)to)[i] = (int64_t)value;
        break;
    default:
        ((uint8_t *)to)[i] = (uint8_t)value;
        break;
    }
}

static double sum_of(const struct dpb_coll *coll, int ranks, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += value_of(r, i) * (double)coll->scale;
    return sum;
}

/* Element i of what `rank` must have afterwards; NaN: anything. */
static double expected(const struct dpb_coll *coll, int ranks, int rank, int64_t i)
{
    int64_t first;
    const int64_t each = coll->count / ranks + (coll->count % ranks != 0);
    const int64_t part = coll->count / ranks;
    const int64_t mine = dpb_coll_shard(coll->count, ranks, rank, &first);
    switch (coll->kind) {
    case DPB_COLL_ALL_REDUCE:
        return sum_of(coll, ranks, i);
    case DPB_COLL_REDUCE_SCATTER:
        return i >= first && i < first + mine ? sum_of(coll, ranks, i) : NAN;
    case DPB_COLL_ALL_GATHER:
        return value_of((int)(i / each), i);
    case DPB_COLL_BROADCAST:
        return value_of(coll->root, i);
    case DPB_COLL_REDUCE:
        return rank == coll->root ? sum_of(coll, ranks, i) : NAN;
    default:
        return value_of((int)(i / part), rank * part + i % part);
    }
}

static void check(const struct nccl_rank *self, const struct dpb_coll *coll, const void *got)
{
    for (int64_t i = -GUARD; i < coll->count + GUARD; i++) {
        const bool inside = i >= 0 && i < coll->count;
        const double wanted = inside ? expected(coll, self->config.size, self->config.rank, i) : 77;
        const double is = load(got, coll->dtype, i + GUARD);
        if (isnan(wanted) || is == wanted)
            continue;
        fprintf(stderr, "%s of %lld %s, %d ranks, seed %llu: element %lld is %g, not %g\n",
                dpb_coll_text(coll->kind), (long long)coll->count, dpb_dtype_text(coll->dtype),
                self->config.size, (unsigned long long)self->plan->seed, (long long)i, is, wanted);
        RANK_CHECK(!"the result is right");
    }
}

/* Fill, start behind the filling, wait on the stream, read back behind the wait. */
static void run(const struct nccl_rank *self, void *buffer, struct dpb_coll coll)
{
    double host[MOST + 2 * GUARD];
    const size_t bytes = (size_t)(coll.count + 2 * GUARD) * dpb_dtype_bytes(coll.dtype);
    dpb_request *request;
    for (int64_t i = -GUARD; i < coll.count + GUARD; i++)
        store(host, coll.dtype, i + GUARD,
              i >= 0 && i < coll.count ? value_of(self->config.rank, i) : 77);
    coll.buffer = (char *)buffer + GUARD * dpb_dtype_bytes(coll.dtype);
    nccl_rank_write(self, buffer, host, bytes);
    RANK_EQUAL(self->ops->start(self->comm, &coll, nccl_rank_stream(self), &request), DPB_OK);
    RANK_EQUAL(self->ops->wait(self->comm, request, nccl_rank_stream(self), NULL), DPB_OK);
    memset(host, 0, sizeof(host));
    nccl_rank_read(self, host, buffer, bytes);
    check(self, &coll, host);
}

static void run_kinds(struct ranks_self *self, void *argument)
{
    static const enum dpb_dtype dtypes[] = {DPB_F32, DPB_F64, DPB_I32, DPB_I64, DPB_U8};
    const struct nccl_plan *plan = argument;
    const int ranks = self->config.size;
    const int64_t counts[] = {0, 1, 2, ranks - 1, ranks, ranks + 1, 4 * ranks, 7 * ranks + 3};
    struct nccl_rank rank;
    void *first;
    void *buffer;
    nccl_rank_begin(self, plan, &rank);
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, 4096, &first), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, sizeof(double) * (MOST + 2 * GUARD), &buffer),
               DPB_OK);
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            const enum dpb_dtype dtype = dtypes[(c + plan->seed) % 5];
            const bool real = dtype == DPB_F32 || dtype == DPB_F64;
            const int64_t count =
                    kind == DPB_COLL_ALL_TO_ALL ? counts[c] / ranks * ranks : counts[c];
            run(&rank, buffer,
                (struct dpb_coll){.kind = (enum dpb_coll_kind)kind,
                                  .dtype = dtype,
                                  .count = count,
                                  .root = (int)c % ranks,
                                  .scale = real && c % 2 ? 0.25f : 1,
                                  .tag = (int)c});
        }
    }
    struct dpb_comm_stats stats;
    rank.ops->stats(rank.comm, &stats);
    RANK_CHECK(ranks == 1 ? stats.wire_bytes == 0 : stats.wire_bytes > 0);
    RANK_EQUAL(rank.ops->buffer_free(rank.comm, buffer), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_free(rank.comm, first), DPB_OK);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_kinds(void **state)
{
    (void)state;
    struct dpb_nccl_table older = fake_nccl;
    older.ncclAlltoAll = NULL; /* before 2.28 */
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct ranks_plan plan = {.ranks = ranks, .no_open = true, .tcp = seed % 3 == 0};
            struct nccl_plan nccl = {.world = fake_nccl_world_new(),
                                     .seed = seed,
                                     .nccl = {.looks_max = 3},
                                     .table = seed % 2 ? NULL : &older};
            assert_int_equal(ranks_run(&plan, run_kinds, &nccl), 0);
            fake_nccl_world_free(nccl.world);
        }
    }
}

/* More at once than there are handles of scaled sums, and in the order of their start. */
static void start_many(struct ranks_self *self, void *argument)
{
    enum {
        MANY = 60
    };
    struct nccl_rank rank;
    dpb_request *request[MANY];
    float host[MANY];
    void *memory;
    nccl_rank_begin(self, argument, &rank);
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, sizeof(host), &memory), DPB_OK);
    float *buffer = memory;
    for (int i = 0; i < MANY; i++)
        host[i] = (float)(self->config.rank + i);
    nccl_rank_write(&rank, buffer, host, sizeof(host));
    for (int i = 0; i < MANY; i++) {
        const struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                      .dtype = DPB_F32,
                                      .buffer = buffer + i,
                                      .count = 1,
                                      .scale = (float)(i % 20 + 1),
                                      .tag = i};
        RANK_EQUAL(rank.ops->start(rank.comm, &coll, nccl_rank_stream(&rank), &request[i]), DPB_OK);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        struct dpb_coll_times times;
        RANK_EQUAL(rank.ops->wait(rank.comm, request[i], NULL, &times), DPB_OK);
        RANK_EQUAL(rank.ops->wait(rank.comm, request[i], NULL, NULL), DPB_ERR_USAGE);
        RANK_CHECK(times.start_ns > 0 && times.start_ns <= times.end_ns);
        RANK_EQUAL(times.all_ready_ns, times.start_ns);
        RANK_EQUAL(times.wire_bytes, 4);
    }
    nccl_rank_read(&rank, host, buffer, sizeof(host));
    for (int i = 0; i < MANY; i++)
        RANK_EQUAL(host[i], (2 * i + 1) * (i % 20 + 1));
    /* Closing frees what was not freed. */
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_many(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .no_open = true};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct nccl_plan nccl = {
                .world = fake_nccl_world_new(), .seed = seed, .nccl = {.looks_max = 2}};
        assert_int_equal(ranks_run(&plan, start_many, &nccl), 0);
        fake_nccl_world_free(nccl.world);
    }
}

/* What cannot be done is refused, and does not end the communicator. */
static void refuse_badly(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    dpb_request *request;
    void *buffer;
    nccl_rank_begin(self, argument, &rank);
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, 4096, &buffer), DPB_OK);
    const struct dpb_coll good = {
            .kind = DPB_COLL_REDUCE, .dtype = DPB_F32, .buffer = buffer, .count = 8, .scale = 1};
    struct dpb_coll bad[9] = {good, good, good, good, good, good, good, good, good};
    bad[0].kind = DPB_COLL_COUNT;
    bad[1].dtype = (enum dpb_dtype)99;
    bad[2].count = -1;
    bad[3].root = 2;
    bad[4].scale = 0;
    bad[5].count = 1025; /* beyond the buffer */
    bad[6].buffer = (char *)buffer + 2;
    bad[7].dtype = DPB_I32;
    bad[7].scale = 0.5f;
    bad[8].kind = DPB_COLL_ALL_TO_ALL;
    bad[8].count = 7;
    for (int i = 0; i < 9; i++)
        RANK_EQUAL(rank.ops->start(rank.comm, &bad[i], NULL, &request), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "reduce #1 (bucket 0) cannot be started: there is no root 2"));
    RANK_EQUAL(rank.ops->buffer_free(rank.comm, &rank), DPB_ERR_USAGE);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, 0, &buffer), DPB_ERR_USAGE);
    RANK_EQUAL(rank.ops->test(rank.comm, (dpb_request *)&rank), DPB_ERR_USAGE);
    RANK_EQUAL(rank.ops->exchange(rank.comm, &rank, 0, &rank), DPB_ERR_USAGE);
    RANK_EQUAL(rank.ops->start(rank.comm, &good, NULL, &request), DPB_OK);
    dpb_status st;
    while ((st = rank.ops->test(rank.comm, request)) == DPB_PENDING)
        ;
    RANK_EQUAL(st, DPB_OK);
    RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_OK);
    RANK_EQUAL(rank.ops->barrier(rank.comm), DPB_OK);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_refused(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .no_open = true};
    struct nccl_plan nccl = {.world = fake_nccl_world_new(), .seed = 3};
    assert_int_equal(ranks_run(&plan, refuse_badly, &nccl), 0);
    fake_nccl_world_free(nccl.world);
}

static bool keeps_graph; /* beyond the communicator */

/* Into a graph that is launched twice. */
static void capture(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    struct dpb_coll_times times;
    dpb_request *request;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float host[4];
    void *buffer;
    nccl_rank_begin(self, argument, &rank);
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_OK);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, sizeof(host), &buffer), DPB_OK);
    for (int i = 0; i < 4; i++)
        host[i] = (float)(self->config.rank + 1);
    nccl_rank_write(&rank, buffer, host, sizeof(host));
    const struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                  .dtype = DPB_F32,
                                  .buffer = buffer,
                                  .count = 4,
                                  .scale = 1,
                                  .tag = -1};
    RANK_EQUAL(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    RANK_EQUAL(rank.ops->start(rank.comm, &coll, nccl_rank_stream(&rank), &request), DPB_OK);
    RANK_EQUAL(rank.ops->test(rank.comm, request), DPB_PENDING);
    RANK_EQUAL(rank.ops->wait(rank.comm, request, nccl_rank_stream(&rank), &times), DPB_OK);
    RANK_EQUAL(times.start_ns, 0);
    RANK_EQUAL(times.end_ns, 0);
    RANK_EQUAL(cudaStreamEndCapture(rank.stream, &graph), cudaSuccess);
    RANK_EQUAL(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    RANK_EQUAL(cudaGraphDestroy(graph), cudaSuccess);
    for (int i = 0; i < 2; i++)
        RANK_EQUAL(cudaGraphLaunch(exec, rank.stream), cudaSuccess);
    nccl_rank_read(&rank, host, buffer, sizeof(host));
    RANK_EQUAL(host[0], 6); /* (1 + 2) + (1 + 2) */
    RANK_EQUAL(host[3], 6);
    if (!keeps_graph)
        RANK_EQUAL(cudaGraphExecDestroy(exec), cudaSuccess);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_capture(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 2, .no_open = true};
    struct nccl_plan nccl = {.world = fake_nccl_world_new(), .seed = 5};
    assert_int_equal(ranks_run(&plan, capture, &nccl), 0);
    fake_nccl_world_free(nccl.world);
    /* Closed before its graphs it would never end; the fake ends the process. */
    nccl.world = fake_nccl_world_new();
    keeps_graph = true;
    assert_int_equal(ranks_run(&plan, capture, &nccl), 2);
    keeps_graph = false;
    fake_nccl_world_free(nccl.world);
}

/* ---- scalars ---- */

static void test_scalars(void **state)
{
    (void)state;
    static const struct {
        float scale;
        uint16_t fp16, bf16;
    } known[] = {
            {1, 0x3c00, 0x3f80},
            {-2, 0xc000, 0xc000},
            {0.5f, 0x3800, 0x3f00},
            {1.0f / 3, 0x3555, 0x3eab},
            {65504, 0x7bff, 0x4780},
            {65520, 0x7c00, 0x4780},
            {0x1p-14f, 0x0400, 0x3880},
            {0x1p-24f, 0x0001, 0x3380},
            {0x1.ffcp-15f, 0x0400, 0x3880},
            {1 + 0x1p-11f, 0x3c00, 0x3f80},
            {1 + 0x1.8p-10f, 0x3c02, 0x3f80},
            {1 + 0x1.8p-7f, 0x3c0c, 0x3f82},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint16_t half[4];
        float single[2];
        double wide;
        dpb_nccl_scalar(known[i].scale, DPB_F16, half);
        assert_int_equal(half[0], known[i].fp16);
        assert_int_equal(half[1], 0);
        dpb_nccl_scalar(known[i].scale, DPB_BF16, half);
        assert_int_equal(half[0], known[i].bf16);
        dpb_nccl_scalar(known[i].scale, DPB_F32, single);
        assert_true(single[0] == known[i].scale && single[1] == 0);
        dpb_nccl_scalar(known[i].scale, DPB_F64, &wide);
        assert_true(wide == (double)known[i].scale);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_scalars), cmocka_unit_test(test_kinds),
            cmocka_unit_test(test_many),    cmocka_unit_test(test_refused),
            cmocka_unit_test(test_capture),
    };
    return DPB_RUN_TESTS(tests);
}
