/* Every kind, algorithm, element type and number of ranks, against sums computed here. */
#include "dpb_test.h"

#include <math.h>

#include "half_reference.h"
#include "ranks.h"

#define COUNT_MOST 1000003
#define GUARD      64 /* elements behind the last one, which must stay as they are */

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
    RANK_EQUAL(times.wire_bytes,
               dpb_algorithm_wire_bytes(self->plan->algorithm, coll.kind, ranks, rank, coll.root,
                                        coll.count, dpb_dtype_bytes(coll.dtype)));
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
    int64_t wire_bytes = 0;
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
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
                wire_bytes += dpb_algorithm_wire_bytes(
                        self->plan->algorithm, coll.kind, self->config.size, self->config.rank,
                        coll.root, coll.count, dpb_dtype_bytes(coll.dtype));
                RANK_EQUAL(self->ops->barrier(self->comm), DPB_OK);
            }
    struct dpb_comm_stats stats;
    self->ops->stats(self->comm, &stats);
    RANK_EQUAL(stats.collectives, round);
    RANK_EQUAL(stats.wire_bytes, wire_bytes);
    RANK_CHECK(stats.progress_cpu_ns > 0);
    RANK_EQUAL(stats.wakeups, 0);
    RANK_EQUAL(stats.link_late, 0);
    RANK_EQUAL(stats.wake_late_max_ns, 0);
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void test_all_kinds(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < 2; algorithm++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            struct ranks_plan plan = {.ranks = ranks, .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, all_kinds, NULL), 0);
        }
}

static void large(struct ranks_self *self, void *argument)
{
    (void)argument;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, (COUNT_MOST + GUARD) * sizeof(float), &buffer),
               DPB_OK);
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
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
    for (int algorithm = 0; algorithm < 2; algorithm++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            struct ranks_plan plan = {.ranks = ranks, .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, large, NULL), 0);
        }
}

/* The documented order of summation: direct 0, 1, 2, ...; ring, for shard c: c + 1, ..., c. */
static int first_rank(const struct ranks_self *self, int64_t count, int64_t i)
{
    if (self->plan->algorithm == DPB_ALGORITHM_DIRECT)
        return 0;
    return (owner_of(count, self->config.size, i) + 1) % self->config.size;
}

static float ordered_f32(const struct ranks_self *self, int64_t count, int64_t i, float scale)
{
    int first = first_rank(self, count, i);
    float sum = (float)fraction(first, i) * scale;
    for (int k = 1; k < self->config.size; k++) {
        float term = (float)fraction((first + k) % self->config.size, i) * scale;
        sum = sum + term;
    }
    return sum;
}

static double ordered_f64(const struct ranks_self *self, int64_t count, int64_t i, float scale)
{
    int first = first_rank(self, count, i);
    double sum = fraction(first, i) * (double)scale;
    for (int k = 1; k < self->config.size; k++) {
        double term = fraction((first + k) % self->config.size, i) * (double)scale;
        sum = sum + term;
    }
    return sum;
}

static double ordered_half(const struct ranks_self *self, enum dpb_dtype dtype, int64_t count,
                           int64_t i, float scale)
{
    int first = first_rank(self, count, i);
    double sum = 0;
    for (int k = 0; k < self->config.size; k++) {
        double own = half_round(dtype, fraction((first + k) % self->config.size, i));
        double term = half_round(dtype, (double)((float)own * scale));
        sum = k == 0 ? term : half_round(dtype, sum + term);
    }
    return sum;
}

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
        COUNT = 5003
    };
    static const float scales[] = {1, 0.5f, 1.0f / 3, 1.0f / 7};
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, COUNT * sizeof(double), &buffer), DPB_OK);
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
        float *f32 = buffer;
        for (int64_t i = 0; i < COUNT; i++)
            f32[i] = (float)fraction(self->config.rank, i);
        struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = buffer,
                                .count = COUNT,
                                .scale = scales[s]};
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            float sum = ordered_f32(self, COUNT, i, scales[s]);
            RANK_EQUAL(memcmp(&f32[i], &sum, sizeof(sum)), 0);
        }
        check_same_everywhere(self, f32, COUNT * sizeof(float));

        double *f64 = buffer;
        for (int64_t i = 0; i < COUNT; i++)
            f64[i] = fraction(self->config.rank, i);
        coll.dtype = DPB_F64;
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            double sum = ordered_f64(self, COUNT, i, scales[s]);
            RANK_EQUAL(memcmp(&f64[i], &sum, sizeof(sum)), 0);
        }
        check_same_everywhere(self, f64, COUNT * sizeof(double));

        for (int d = 0; d < 2; d++) {
            uint16_t *half = buffer;
            coll.dtype = d == 0 ? DPB_BF16 : DPB_F16;
            for (int64_t i = 0; i < COUNT; i++)
                half[i] = half_bits(coll.dtype,
                                    half_round(coll.dtype, fraction(self->config.rank, i)));
            RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
            for (int64_t i = 0; i < COUNT; i++)
                RANK_EQUAL(half[i], half_bits(coll.dtype,
                                              ordered_half(self, coll.dtype, COUNT, i, scales[s])));
            check_same_everywhere(self, half, COUNT * sizeof(uint16_t));
        }
    }
    /* With two ranks DDP's mean is a * 0.5 + b * 0.5, whatever the algorithm. */
    if (self->config.size == 2) {
        float *f32 = buffer;
        for (int64_t i = 0; i < COUNT; i++)
            f32[i] = (float)fraction(self->config.rank, i);
        struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = buffer,
                                .count = COUNT,
                                .scale = 0.5f};
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            float mean = (float)fraction(0, i) * 0.5f + (float)fraction(1, i) * 0.5f;
            RANK_EQUAL(memcmp(&f32[i], &mean, sizeof(mean)), 0);
        }
    }
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

/* A reduce to a root: direct 0, 1, 2, ...; ring root + 1, ..., root. */
static void ordered_reduce(struct ranks_self *self, void *argument)
{
    (void)argument;
    enum {
        COUNT = 1009
    };
    int ranks = self->config.size;
    void *buffer;
    RANK_EQUAL(self->ops->buffer_alloc(self->comm, COUNT * sizeof(float), &buffer), DPB_OK);
    float *f32 = buffer;
    for (int root = 0; root < ranks; root++) {
        struct dpb_coll coll = {.kind = DPB_COLL_REDUCE,
                                .dtype = DPB_F32,
                                .buffer = buffer,
                                .count = COUNT,
                                .root = root,
                                .scale = 1.0f / 3};
        for (int64_t i = 0; i < COUNT; i++)
            f32[i] = (float)fraction(self->config.rank, i);
        RANK_EQUAL(ranks_collective(self, &coll, NULL), DPB_OK);
        if (self->config.rank != root)
            continue;
        int first = self->plan->algorithm == DPB_ALGORITHM_DIRECT ? 0 : (root + 1) % ranks;
        for (int64_t i = 0; i < COUNT; i++) {
            float sum = (float)fraction(first, i) * coll.scale;
            for (int k = 1; k < ranks; k++) {
                float term = (float)fraction((first + k) % ranks, i) * coll.scale;
                sum = sum + term;
            }
            RANK_EQUAL(memcmp(&f32[i], &sum, sizeof(sum)), 0);
        }
    }
    RANK_EQUAL(self->ops->buffer_free(self->comm, buffer), DPB_OK);
}

static void test_order_of_summation(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < 2; algorithm++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            struct ranks_plan plan = {.ranks = ranks, .algorithm = (enum dpb_algorithm)algorithm};
            assert_int_equal(ranks_run(&plan, ordered, NULL), 0);
            assert_int_equal(ranks_run(&plan, ordered_reduce, NULL), 0);
        }
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
    for (int algorithm = 0; algorithm < 2; algorithm++)
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
    struct ranks_plan plan = {.ranks = 2};
    assert_int_equal(ranks_run(&plan, wrap, NULL), 0);
    plan.algorithm = DPB_ALGORITHM_RING;
    assert_int_equal(ranks_run(&plan, wrap, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_all_kinds),
            cmocka_unit_test(test_large),
            cmocka_unit_test(test_order_of_summation),
            cmocka_unit_test(test_all_to_all_of_any_type),
            cmocka_unit_test(test_wrap),
    };
    return DPB_RUN_TESTS(tests);
}
