/* Every kind, algorithm, element type and number of ranks, against sums computed here. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "half_reference.h"
#include "ranks.h"
#include "shm_private.h"
#include "shm_row_distance.h"

#define COUNT_MOST 300007 /* several chunks of a tree */
#define GUARD      64     /* elements behind the last one, which must stay as they are */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccd;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53;
    return x ^ x >> 33;
}

/* Rank `rank`'s element i: small integers, whose sums every type holds exactly, different for
 * neighbouring elements and ranks. */
static int64_t whole(int rank, int64_t i, int round)
{
    return (int64_t)(mix((uint64_t)i * 64 + (uint64_t)rank + (uint64_t)round * 7919) % 2001) - 1000;
}

/* The same in a range whose sums over all ranks the type holds exactly. */
static int64_t whole_of(enum dpb_dtype dtype, int rank, int64_t i, int round)
{
    int64_t value = whole(rank, i, round);
    return dtype == DPB_BF16 || dtype == DPB_F16 ? value % 15 : value;
}

/* Fractions of either sign over some powers of two: sums depend on their order. */
static double fraction(int rank, int64_t i)
{
    uint64_t bits = mix((uint64_t)i * 64 + (uint64_t)rank + 17);
    double value = (double)(bits >> 11) / 9007199254740992.0 - 0.5;
    return ldexp(value, (int)(bits % 13) - 6);
}

static void put(void *buffer, enum dpb_dtype dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case DPB_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    case DPB_F64:
        ((double *)buffer)[i] = (double)value;
        break;
    case DPB_I32:
        ((int32_t *)buffer)[i] = (int32_t)value;
        break;
    case DPB_BF16:
    case DPB_F16:
        ((uint16_t *)buffer)[i] = half_bits(dtype, (double)value);
        break;
    default:
        ((int64_t *)buffer)[i] = value;
        break;
    }
}

static int64_t get(const void *buffer, enum dpb_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DPB_F32:
        return (int64_t)((const float *)buffer)[i];
    case DPB_F64:
        return (int64_t)((const double *)buffer)[i];
    case DPB_I32:
        return ((const int32_t *)buffer)[i];
    case DPB_BF16:
    case DPB_F16:
        return (int64_t)half_value(dtype, ((const uint16_t *)buffer)[i]);
    default:
        return ((const int64_t *)buffer)[i];
    }
}

static int owner_of(int64_t count, int ranks, int64_t i)
{
    int64_t each = count / ranks + (count % ranks != 0);
    return (int)(i / each);
}

/* What element i must be on `rank` afterwards. For reduce-scatter only the own shard is defined,
 * for reduce only the root. */
static bool expected(const struct dpb_coll *coll, int ranks, int rank, int64_t i, int round,
                     int64_t *value)
{
    int owner = coll->count ? owner_of(coll->count, ranks, i) : 0;
    *value = 0;
    switch (coll->kind) {
    case DPB_COLL_REDUCE_SCATTER:
        if (owner != rank)
            return false;
        __attribute__((fallthrough));
    case DPB_COLL_REDUCE:
        if (coll->kind == DPB_COLL_REDUCE && coll->root != rank)
            return false;
        __attribute__((fallthrough));
    case DPB_COLL_ALL_REDUCE:
        for (int r = 0; r < ranks; r++)
            *value += whole_of(coll->dtype, r, i, round);
        return true;
    case DPB_COLL_ALL_GATHER:
        *value = whole_of(coll->dtype, owner, i, round);
        return true;
    case DPB_COLL_ALL_TO_ALL: { /* part i of rank r becomes part r of rank i */
        int64_t part = coll->count / ranks;
        *value = whole_of(coll->dtype, owner, rank * part + i % part, round);
        return true;
    }
    default:
        *value = whole_of(coll->dtype, coll->root, i, round);
        return true;
    }
}

/* `count`, or what of it can be exchanged by parts. */
static int64_t possible(enum dpb_coll_kind kind, int64_t count, int ranks)
{
    return kind == DPB_COLL_ALL_TO_ALL ? count - count % ranks : count;
}

static void check_one(struct ranks_self *self, struct dpb_coll coll, int round)
{
    int rank = self->config.rank;
    int ranks = self->config.size;
    const int64_t guard = 96 + rank; /* every type holds it */
    for (int64_t i = 0; i < coll.count; i++)
        put(coll.buffer, coll.dtype, i, whole_of(coll.dtype, rank, i, round));
    for (int64_t i = 0; i < GUARD; i++)
        put(coll.buffer, coll.dtype, coll.count + i, guard);
    struct dpb_coll_times times;
    RANK_EQUAL(ranks_collective(self, &coll, &times), DPB_OK);
    for (int64_t i = 0; i < coll.count; i++) {
        int64_t value;
        if (expected(&coll, ranks, rank, i, round, &value) &&
            get(coll.buffer, coll.dtype, i) != value) {
            fprintf(stderr, "%s of %lld %s, %d ranks: element %lld is %lld, expected %lld\n",
                    dpb_coll_text(coll.kind), (long long)coll.count, dpb_dtype_text(coll.dtype),
                    ranks, (long long)i, (long long)get(coll.buffer, coll.dtype, i),
                    (long long)value);
            RANK_CHECK(!"wrong element");
        }
    }
    for (int64_t i = 0; i < GUARD; i++)
        RANK_EQUAL(get(coll.buffer, coll.dtype, coll.count + i), guard);
    RANK_EQUAL(times.wire_bytes, ranks_wire_bytes(self->plan, &coll, rank));
    RANK_EQUAL(times.wire_between_bytes, ranks_wire_between_bytes(self->plan, &coll, rank));
    RANK_CHECK(times.start_ns > 0 && times.start_ns <= times.all_ready_ns &&
               times.all_ready_ns <= times.end_ns);
}

static void all_kinds(struct ranks_self *self, void *argument)
{
    static const int64_t counts[] = {1, 3, 47, 48, 0};
    static const enum dpb_dtype dtypes[] = {DPB_F32, DPB_F64, DPB_BF16, DPB_F16, DPB_I32, DPB_I64};
    (void)argument;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 4096, &buffer), DPB_OK);
    int round = 0;
    int64_t wire_bytes = 0, between_bytes = 0;
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
        if (!ranks_can(self->plan, (enum dpb_coll_kind)kind))
            continue;
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                struct dpb_coll coll = {
                        .kind = (enum dpb_coll_kind)kind,
                        .dtype = dtypes[d],
                        .buffer = (char *)buffer + 8 * (round % 5),
                        .count = possible((enum dpb_coll_kind)kind, counts[c], self->config.size),
                        .root = round % self->config.size,
                        .scale = 1,
                        .tag = round};
                check_one(self, coll, round++);
                wire_bytes += ranks_wire_bytes(self->plan, &coll, self->config.rank);
                between_bytes += ranks_wire_between_bytes(self->plan, &coll, self->config.rank);
                RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
            }
    }
    struct dpb_comm_stats stats;
    self->ops->stats(self->comm, &stats);
    RANK_EQUAL(stats.collectives, round);
    RANK_EQUAL(stats.wire_bytes, wire_bytes);
    RANK_EQUAL(stats.wire_between_bytes, between_bytes);
    RANK_CHECK(stats.progress_cpu_ns > 0);
    RANK_EQUAL(stats.wakeups, 0);
    RANK_EQUAL(stats.link_late, 0);
    RANK_EQUAL(stats.wake_late_max_ns, 0);
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

/* Every algorithm with 1 to 9 ranks and with 17, as far as `most` allows; hierarchical also with
 * every even split into nodes. */
static void each_plan(ranks_body body, int most)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && sizes[s] <= most; s++) {
            struct ranks_plan plan = {.ranks = sizes[s],
                                      .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, body, NULL), 0);
            if (plan.algorithm != DPB_ALGORITHM_HIERARCHICAL)
                continue;
            for (plan.ranks_per_node = 1; plan.ranks_per_node < plan.ranks; plan.ranks_per_node++)
                if (plan.ranks % plan.ranks_per_node == 0)
                    assert_int_equal(ranks_run(&plan, body, NULL), 0);
        }
}

static void test_all_kinds(void **state)
{
    (void)state;
    each_plan(all_kinds, 17);
}

static void large(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, (COUNT_MOST + GUARD) * sizeof(float), &buffer),
               DPB_OK);
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
        if (ranks_can(self->plan, (enum dpb_coll_kind)kind))
            check_one(self,
                      (struct dpb_coll){.kind = (enum dpb_coll_kind)kind,
                                        .dtype = DPB_F32,
                                        .buffer = buffer,
                                        .count = possible((enum dpb_coll_kind)kind, COUNT_MOST,
                                                          self->config.size),
                                        .root = self->config.size - 1,
                                        .scale = 1},
                      kind);
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void test_large(void **state)
{
    (void)state;
    each_plan(large, 8);
}

/* ---- the documented orders of summation (docs/collectives.md), by recursion ---- */

static double rounded(enum dpb_dtype dtype, double value)
{
    if (dtype == DPB_F64)
        return value;
    return dtype == DPB_F32 ? (double)(float)value : half_round(dtype, value);
}

/* One element of all ranks, and how its sums are rounded. */
struct column {
    enum dpb_dtype dtype;
    float scale;
    int64_t element;
};

static double own(const struct column *c, int rank)
{
    return rounded(c->dtype, fraction(rank, c->element));
}

static double term(const struct column *c, int rank)
{
    if (c->dtype == DPB_F64)
        return own(c, rank) * (double)c->scale;
    return rounded(c->dtype, (double)((float)own(c, rank) * c->scale));
}

static double sum(const struct column *c, double a, double b)
{
    return rounded(c->dtype, a + b);
}

/* Ranks first, first + stride, ... of `size` in a circle. */
static double in_circle(const struct column *c, int first, int size)
{
    double total = term(c, first);
    for (int k = 1; k < size; k++)
        total = sum(c, total, term(c, (first + k) % size));
    return total;
}

/* Members of a pairing: the first `others` have taken in the rank behind them. */
static double member(const struct column *c, int others, int m)
{
    return m < others ? sum(c, term(c, 2 * m), term(c, 2 * m + 1)) : term(c, m + others);
}

static double doubled(const struct column *c, int others, int first, int many)
{
    if (many == 1)
        return member(c, others, first);
    return sum(c, doubled(c, others, first, many / 2),
               doubled(c, others, first + many / 2, many / 2));
}

static double halved(const struct column *c, int others, int m, int distance, int members)
{
    if (distance == members)
        return member(c, others, m);
    return sum(c, halved(c, others, m, 2 * distance, members),
               halved(c, others, m + distance, 2 * distance, members));
}

/* Numbers [number - reach, number + reach) that are there, under `number`: itself, then those
 * before it, then those behind. `add` and `mirror` make ranks of numbers. */
static double in_tree(const struct column *c, int number, int reach, int ranks, int add,
                      bool mirror)
{
    double total = term(c, mirror ? ranks - 1 - number : (number + add) % ranks);
    int behind = number + reach / 2;
    if (reach == 1)
        return total;
    total = sum(c, total, in_tree(c, number - reach / 2, reach / 2, ranks, add, mirror));
    int behind_reach = reach / 2;
    while (behind >= ranks && behind_reach > 1) {
        behind_reach /= 2;
        behind = number + behind_reach;
    }
    if (behind < ranks)
        total = sum(c, total, in_tree(c, behind, behind_reach, ranks, add, mirror));
    return total;
}

/* Number 0 and the tree under the largest power of two. */
static double whole_tree(const struct column *c, int ranks, int add, bool mirror)
{
    int top = 1;
    while (top * 2 < ranks)
        top *= 2;
    double total = term(c, mirror ? ranks - 1 : add);
    return ranks == 1 ? total : sum(c, total, in_tree(c, top, top, ranks, add, mirror));
}

/* Local ranks local + 1, ..., local of each node, then nodes node + 1, ..., node. */
static double in_nodes(const struct column *c, int64_t count, int ranks, int each)
{
    int nodes = ranks / each;
    int local = owner_of(count, each, c->element);
    int64_t first;
    int64_t shard = dpb_coll_shard(count, each, local, &first);
    int node = owner_of(shard, nodes, c->element - first);
    double total = 0;
    for (int n = 1; n <= nodes; n++) {
        int base = (node + n) % nodes * each;
        double inside = term(c, base + (local + 1) % each);
        for (int k = 2; k <= each; k++)
            inside = sum(c, inside, term(c, base + (local + k) % each));
        total = n == 1 ? inside : sum(c, total, inside);
    }
    return total;
}

static double in_order(const struct ranks_plan *plan, const struct column *c, int64_t count)
{
    int ranks = plan->ranks;
    int members = 1;
    while (members * 2 <= ranks)
        members *= 2;
    switch (plan->algorithm) {
    case DPB_ALGORITHM_RING:
        return in_circle(c, (owner_of(count, ranks, c->element) + 1) % ranks, ranks);
    case DPB_ALGORITHM_RECURSIVE_DOUBLING:
        return doubled(c, ranks - members, 0, members);
    case DPB_ALGORITHM_HALVING_DOUBLING:
        return halved(c, ranks - members, 0, 1, members);
    case DPB_ALGORITHM_TREE:
        return whole_tree(c, ranks, 0, false);
    case DPB_ALGORITHM_DOUBLE_TREE:
        if (owner_of(count, 2, c->element) == 0 || ranks == 1)
            return whole_tree(c, ranks, 0, false);
        return whole_tree(c, ranks, 1, ranks % 2 == 0);
    case DPB_ALGORITHM_HIERARCHICAL:
        return in_nodes(c, count, ranks, plan->ranks_per_node ? plan->ranks_per_node : ranks);
    case DPB_ALGORITHM_DIRECT:
    case DPB_ALGORITHM_COUNT:
        break;
    }
    return in_circle(c, 0, ranks);
}

static double in_order_to_root(const struct ranks_plan *plan, const struct column *c, int root)
{
    if (plan->algorithm == DPB_ALGORITHM_TREE)
        return whole_tree(c, plan->ranks, root, false);
    return in_circle(c, plan->algorithm == DPB_ALGORITHM_RING ? (root + 1) % plan->ranks : 0,
                     plan->ranks);
}

static void put_real(void *buffer, enum dpb_dtype dtype, int64_t i, double value)
{
    if (dtype == DPB_F64)
        ((double *)buffer)[i] = value;
    else if (dtype == DPB_F32)
        ((float *)buffer)[i] = (float)value;
    else
        ((uint16_t *)buffer)[i] = half_bits(dtype, value);
}

static double get_real(const void *buffer, enum dpb_dtype dtype, int64_t i)
{
    if (dtype == DPB_F64)
        return ((const double *)buffer)[i];
    if (dtype == DPB_F32)
        return (double)((const float *)buffer)[i];
    return half_value(dtype, ((const uint16_t *)buffer)[i]);
}

static const enum dpb_dtype reals[] = {DPB_F32, DPB_F64, DPB_BF16, DPB_F16};

static void check_same_everywhere(struct ranks_self *self, const void *bytes, size_t count)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        hash = mix(hash ^ ((const unsigned char *)bytes)[i]);
    uint64_t all[DPB_COMM_RANKS_MAX];
    RANK_EQUAL(self->ops->exchange(self->comm, &hash, sizeof(hash), all), DPB_OK);
    for (int r = 0; r < self->config.size; r++)
        RANK_CHECK(all[r] == hash);
}

static void ordered(struct ranks_self *self, void *argument)
{
    (void)argument;
    enum {
        COUNT = 263
    };
    static const float scales[] = {1, 1.0f / 3};
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, COUNT * sizeof(double), &buffer), DPB_OK);
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
        for (size_t d = 0; d < sizeof(reals) / sizeof(reals[0]); d++) {
            struct column column = {reals[d], scales[s], 0};
            struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                    .dtype = reals[d],
                                    .buffer = buffer,
                                    .count = COUNT,
                                    .scale = scales[s]};
            for (column.element = 0; column.element < COUNT; column.element++)
                put_real(buffer, reals[d], column.element, own(&column, self->config.rank));
            RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
            for (column.element = 0; column.element < COUNT; column.element++)
                RANK_CHECK(get_real(buffer, reals[d], column.element) ==
                           in_order(self->plan, &column, COUNT));
            check_same_everywhere(self, buffer, COUNT * dpb_dtype_bytes(reals[d]));
        }
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void ordered_reduce(struct ranks_self *self, void *argument)
{
    (void)argument;
    enum {
        COUNT = 211
    };
    void *buffer;
    if (!ranks_can(self->plan, DPB_COLL_REDUCE))
        return;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, COUNT * sizeof(double), &buffer), DPB_OK);
    for (int root = 0; root < self->config.size; root++)
        for (size_t d = 0; d < sizeof(reals) / sizeof(reals[0]); d++) {
            struct column column = {reals[d], 1.0f / 3, 0};
            struct dpb_coll coll = {.kind = DPB_COLL_REDUCE,
                                    .dtype = reals[d],
                                    .buffer = buffer,
                                    .count = COUNT,
                                    .root = root,
                                    .scale = column.scale};
            for (column.element = 0; column.element < COUNT; column.element++)
                put_real(buffer, reals[d], column.element, own(&column, self->config.rank));
            RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
            for (column.element = 0; column.element < COUNT; column.element++)
                RANK_CHECK(self->config.rank != root ||
                           get_real(buffer, reals[d], column.element) ==
                                   in_order_to_root(self->plan, &column, root));
        }
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void test_order_of_summation(void **state)
{
    (void)state;
    each_plan(ordered, 17);
    each_plan(ordered_reduce, 9);
}

/* All-to-all moves elements of any type, in parts of any size; twice is nothing. */
static void any_type(struct ranks_self *self, void *argument)
{
    static const int64_t parts[] = {1, 2, 3, 5, 31, 64, 1000, 8191};
    int ranks = self->config.size, rank = self->config.rank;
    (void)argument;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, (size_t)(8191 * ranks * 8), &buffer), DPB_OK);
    for (int type = 0; type < DPB_DTYPE_COUNT; type++)
        for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
            int64_t part_bytes = parts[p] * (int64_t)dpb_dtype_bytes((enum dpb_dtype)type);
            unsigned char *bytes = buffer;
            struct dpb_coll coll = {.kind = DPB_COLL_ALL_TO_ALL,
                                    .dtype = (enum dpb_dtype)type,
                                    .buffer = buffer,
                                    .count = parts[p] * ranks};
            for (int64_t i = 0; i < part_bytes * ranks; i++)
                bytes[i] = (unsigned char)whole(rank, i, type);
            RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
            for (int r = 0; r < ranks; r++)
                for (int64_t i = 0; i < part_bytes; i++)
                    RANK_EQUAL(bytes[r * part_bytes + i],
                               (unsigned char)whole(r, rank * part_bytes + i, type));
            RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
            for (int64_t i = 0; i < part_bytes * ranks; i++)
                RANK_EQUAL(bytes[i], (unsigned char)whole(rank, i, type));
        }
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void test_all_to_all_of_any_type(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (int ranks = 1; ranks <= 8; ranks++) {
            struct ranks_plan plan = {.ranks = ranks, .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, any_type, NULL), 0);
        }
}

/* Integers wrap around, as unsigned ones do. */
static void wrap(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 64, &buffer), DPB_OK);
    int32_t *small = buffer;
    int64_t *big = (int64_t *)((char *)buffer + 32);
    *small = INT32_MAX;
    *big = INT64_MAX;
    struct dpb_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE, .dtype = DPB_I32, .buffer = small, .count = 1, .scale = 1};
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(*small, -2);
    coll.dtype = DPB_I64;
    coll.buffer = big;
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(*big, -2);
    /* Types that cannot be summed can still be moved. */
    uint8_t *bytes = buffer;
    for (int i = 0; i < 5; i++)
        bytes[i] = (uint8_t)(self->config.rank * 100 + i);
    coll = (struct dpb_coll){
            .kind = DPB_COLL_BROADCAST, .dtype = DPB_U8, .buffer = bytes, .count = 5, .root = 1};
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
    RANK_EQUAL(bytes[0], 100);
    RANK_EQUAL(bytes[4], 104);
}

static void test_wrap(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++) {
        struct ranks_plan plan = {.ranks = 2, .algorithm = (enum dpb_algorithm)algorithm};
        assert_int_equal(ranks_run(&plan, wrap, NULL), 0);
    }
}

/* What an algorithm has not is refused, with those that have it; the communicator goes on. */
static void refused(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer;
    dpb_request *request = NULL;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 64, &buffer), DPB_OK);
    struct dpb_coll coll = {.kind = DPB_COLL_REDUCE_SCATTER,
                            .dtype = DPB_F32,
                            .buffer = buffer,
                            .count = 3,
                            .scale = 1};
    RANK_EQUAL(self->ops->start(self->comm, &coll, NULL, &request), DPB_ERR_UNSUPPORTED);
    RANK_CHECK(ranks_logged(self, "reduce-scatter #1 (bucket 0) cannot be started: algorithm "
                                  "\"tree\" has no reduce-scatter for any number of ranks; these "
                                  "have: direct, ring"));
    coll.kind = DPB_COLL_ALL_REDUCE;
    RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
}

static void uneven(struct ranks_self *self, void *argument)
{
    (void)argument;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "3 ranks are no multiple of 2 per node"));
}

static void inside_without_nodes(struct ranks_self *self, void *argument)
{
    (void)argument;
    RANK_EQUAL(self->ops->open(&self->config, &self->comm), DPB_ERR_USAGE);
    RANK_CHECK(ranks_logged(self, "--link-inside has no effect"));
}

static void test_refused(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3, .algorithm = DPB_ALGORITHM_TREE};
    assert_int_equal(ranks_run(&plan, refused, NULL), 0);
    plan = (struct ranks_plan){.ranks = 3,
                               .ranks_per_node = 2,
                               .algorithm = DPB_ALGORITHM_HIERARCHICAL,
                               .no_open = true};
    assert_int_equal(ranks_run(&plan, uneven, NULL), 0);
    plan = (struct ranks_plan){
            .ranks = 2, .link = {1e9, 0}, .link_inside = {1e9, 0}, .no_open = true};
    assert_int_equal(ranks_run(&plan, inside_without_nodes, NULL), 0);
    plan.link.bw_bytes_per_s = 0;
    plan.algorithm = DPB_ALGORITHM_HIERARCHICAL;
    assert_int_equal(ranks_run(&plan, inside_without_nodes, NULL), 0);
}

/* A page each, which would be alike in the cache one after the other. */
static void apart(struct ranks_self *self, void *argument)
{
    (void)argument;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, 1, &memory), DPB_OK);
    const struct dpb_shm_buffer *buffer = &dpb_shm_of(self->comm)->buffer[0];
    RANK_EQUAL(buffer->region_bytes, page);
    RANK_EQUAL(buffer->distance_bytes, dpb_shm_row_distance(page, page, self->config.size));
    RANK_CHECK((char *)memory == buffer->row + (size_t)self->config.rank * buffer->distance_bytes);
    RANK_EQUAL(self->ops->buffer_free(self->comm, memory), DPB_OK);
}

static void test_regions_lie_apart(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 3};
    assert_int_equal(ranks_run(&plan, apart, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_all_kinds),
            cmocka_unit_test(test_large),
            cmocka_unit_test(test_order_of_summation),
            cmocka_unit_test(test_all_to_all_of_any_type),
            cmocka_unit_test(test_wrap),
            cmocka_unit_test(test_refused),
            cmocka_unit_test(test_regions_lie_apart),
    };
    return DPB_RUN_TESTS(tests);
}
