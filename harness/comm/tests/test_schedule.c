/* Schedules: every algorithm and kind, run by two simulated executors that take the ranks in any
 * order: one with messages, one where receivers read their peers' memory. */
#include "dpb_test.h"

#include <stdlib.h>

#include "../algorithm/dpb_schedule.h"

#define RANKS_MOST 17
#define COUNT_MOST 700

static const int64_t counts[] = {0, 1, 2, 3, 5, 16, 17, 31, 97, 256, 611};
#define COUNTS (int)(sizeof(counts) / sizeof(counts[0]))

static uint64_t random_state;

static int random_below(int most)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (unsigned)most);
}

/* Every rank's contribution is a bit of its own, shifted by what the element needs to be told from
 * its neighbours: a sum that counts a rank twice, or not at all, is another number. */
static int64_t contribution(int rank, int64_t element)
{
    return ((int64_t)1 << 2 * rank) + element % 7 * ((int64_t)1 << 40);
}

/* ---- a collective of all ranks ---- */

struct world {
    struct dpb_algorithm_setup setup;
    enum dpb_coll_kind kind;
    int root;
    int64_t count;
    struct dpb_schedule schedule[RANKS_MOST];
    int64_t data[RANKS_MOST][COUNT_MOST];
    bool raw[RANKS_MOST][COUNT_MOST]; /* not scaled, or summed, yet */
    int64_t done[RANKS_MOST];         /* rounds */
    int64_t sent[RANKS_MOST];         /* elements */
    /* how many rounds of each rank a rank knows to be done, when it has done so many itself */
    int64_t *knows; /* [rank][round + 1][peer] */
};

static int64_t *knowledge(struct world *w, int rank, int64_t done)
{
    return w->knows + ((rank * (w->schedule[0].rounds + 1)) + done) * RANKS_MOST;
}

static void begin(struct world *w)
{
    for (int r = 0; r < w->setup.ranks; r++) {
        /* Elements so large that 50 of them are a chunk of a tree. */
        dpb_schedule_init(&w->schedule[r], &w->setup, w->kind, r, w->root, w->count,
                          (size_t)(DPB_ALGORITHM_CHUNK_BYTES / 50));
        assert_true(w->schedule[r].rounds == w->schedule[0].rounds);
        w->done[r] = 0;
        w->sent[r] = 0;
        for (int64_t i = 0; i < w->count; i++) {
            w->data[r][i] = contribution(r, i);
            w->raw[r][i] = true;
        }
    }
    size_t entries = (size_t)w->setup.ranks * (size_t)(w->schedule[0].rounds + 1) * RANKS_MOST;
    w->knows = test_calloc(entries, sizeof(*w->knows));
}

static struct dpb_schedule_step step_of(const struct world *w, int rank, int64_t round)
{
    struct dpb_schedule_step step;
    dpb_schedule_step(&w->schedule[rank], round, &step);
    return step;
}

static void check_result(const struct world *w)
{
    for (int r = 0; r < w->setup.ranks; r++) {
        int64_t first = 0;
        int64_t count = w->count;
        if (w->kind == DPB_COLL_REDUCE && r != w->root)
            continue;
        if (w->kind == DPB_COLL_REDUCE_SCATTER)
            count = dpb_coll_shard(w->count, w->setup.ranks, r, &first);
        for (int64_t i = first; i < first + count; i++) {
            int64_t expected = 0;
            if (dpb_coll_reduces(w->kind))
                for (int k = 0; k < w->setup.ranks; k++)
                    expected += contribution(k, i);
            else if (w->kind == DPB_COLL_BROADCAST)
                expected = contribution(w->root, i);
            else
                expected = contribution(
                        (int)(i / (w->count / w->setup.ranks + (w->count % w->setup.ranks != 0))),
                        i);
            if (w->data[r][i] != expected)
                fail_msg("%s %s, %d ranks (%d per node), root %d, %lld elements: element %lld of "
                         "rank %d is %llx, expected %llx",
                         dpb_algorithm_text(w->setup.algorithm), dpb_coll_text(w->kind),
                         w->setup.ranks, w->setup.ranks_per_node, w->root, (long long)w->count,
                         (long long)i, r, (long long)w->data[r][i], (long long)expected);
            assert_true(!dpb_coll_reduces(w->kind) || !w->raw[r][i]);
        }
        int64_t bytes = dpb_setup_wire_bytes(&w->setup, w->kind, r, w->root, w->count, 4);
        if (w->sent[r] * 4 != bytes)
            fail_msg("%s %s, %d ranks (%d per node), root %d, %lld elements: rank %d sent %lld "
                     "bytes, formula %lld",
                     dpb_algorithm_text(w->setup.algorithm), dpb_coll_text(w->kind), w->setup.ranks,
                     w->setup.ranks_per_node, w->root, (long long)w->count, r,
                     (long long)w->sent[r] * 4, (long long)bytes);
    }
}

/* ---- messages: all of a round leave before any is taken in ---- */

static void join(struct world *w, int rank, const struct dpb_schedule_step *step, int64_t at,
                 int64_t received, bool received_raw)
{
    int64_t i = step->receive_first + at;
    if (!step->reduces) {
        w->data[rank][i] = received;
        w->raw[rank][i] = received_raw;
        return;
    }
    assert_int_equal(step->own_is_raw, w->raw[rank][i]);
    assert_int_equal(step->received_is_raw, received_raw);
    w->data[rank][i] += received;
    w->raw[rank][i] = false;
}

static void run_messages(struct world *w)
{
    static int64_t kept[RANKS_MOST][COUNT_MOST];
    static bool kept_raw[RANKS_MOST][COUNT_MOST];
    int ranks = w->setup.ranks;
    begin(w);
    for (int64_t round = 0; round < w->schedule[0].rounds; round++) {
        memcpy(kept, w->data, sizeof(kept));
        memcpy(kept_raw, w->raw, sizeof(kept_raw));
        for (int r = 0; r < ranks; r++) {
            struct dpb_schedule_step step = step_of(w, r, round);
            if (step.to >= 0) {
                /* What is sent is what the other side expects. */
                struct dpb_schedule_step other = step_of(w, step.to, round);
                assert_true(step.to < ranks && step.to != r);
                assert_int_equal(other.from, r);
                assert_true(other.receive_first == step.send_first);
                assert_true(other.receive_count == step.send_count);
                w->sent[r] += step.send_count;
            }
            if (step.from < 0)
                continue;
            assert_true(step.from < ranks && step.from != r);
            assert_int_equal(step_of(w, step.from, round).to, r);
            assert_true(step.receive_first >= 0 && step.receive_count >= 0);
            assert_true(step.receive_first + step.receive_count <= w->count);
            for (int64_t i = 0; i < step.receive_count; i++)
                join(w, r, &step, i, kept[step.from][step.receive_first + i],
                     kept_raw[step.from][step.receive_first + i]);
        }
    }
    check_result(w);
    test_free(w->knows);
}

/* ---- memory: receivers read what peers have, whenever the peers have come so far ---- */

/* What `rank` overwrites in `step` has been read by everybody it sent it to: known to this rank
 * by what it has waited for, not by luck. */
static void check_overwrites(struct world *w, int rank, const struct dpb_schedule_step *step)
{
    const int64_t *known = knowledge(w, rank, w->done[rank]);
    if (step->receive_count == 0)
        return;
    for (int64_t round = 0; round <= w->done[rank]; round++) {
        struct dpb_schedule_step sent = step_of(w, rank, round);
        if (sent.to < 0 || sent.send_count == 0 ||
            sent.send_first >= step->receive_first + step->receive_count ||
            step->receive_first >= sent.send_first + sent.send_count)
            continue;
        if (known[sent.to] <= round)
            fail_msg("%s %s, %d ranks, %lld elements: rank %d overwrites in round %lld what rank "
                     "%d may not have read in round %lld",
                     dpb_algorithm_text(w->setup.algorithm), dpb_coll_text(w->kind), w->setup.ranks,
                     (long long)w->count, rank, (long long)w->done[rank], sent.to,
                     (long long)round);
    }
}

static void learn(struct world *w, int rank, int from, int64_t from_done)
{
    int64_t *known = knowledge(w, rank, w->done[rank]);
    const int64_t *told = knowledge(w, from, from_done);
    for (int r = 0; r < w->setup.ranks; r++)
        known[r] = told[r] > known[r] ? told[r] : known[r];
    known[from] = from_done > known[from] ? from_done : known[from];
}

static void finish_round(struct world *w, int rank)
{
    int64_t *before = knowledge(w, rank, w->done[rank]);
    int64_t *now = knowledge(w, rank, ++w->done[rank]);
    memcpy(now, before, RANKS_MOST * sizeof(*now));
    now[rank] = w->done[rank];
}

/* Both sides of an exchange at once; whether they could. */
static bool try_exchange(struct world *w, int rank, const struct dpb_schedule_step *step)
{
    int peer = step->to;
    if (w->done[peer] != w->done[rank])
        return false;
    struct dpb_schedule_step other = step_of(w, peer, w->done[peer]);
    assert_true(dpb_schedule_is_exchange(&other) && other.to == rank);
    for (int64_t i = 0; i < step->receive_count; i++) {
        int64_t at = step->receive_first + i;
        int64_t mine = w->data[rank][at];
        bool mine_raw = w->raw[rank][at];
        join(w, rank, step, i, w->data[peer][at], w->raw[peer][at]);
        join(w, peer, &other, i, mine, mine_raw);
    }
    w->sent[rank] += step->send_count;
    w->sent[peer] += step->send_count;
    int64_t done = w->done[rank];
    learn(w, rank, peer, done);
    learn(w, peer, rank, done);
    finish_round(w, rank);
    finish_round(w, peer);
    /* They part only when both have finished. */
    learn(w, rank, peer, w->done[peer]);
    learn(w, peer, rank, w->done[rank]);
    return true;
}

/* One step of a rank; whether it could. */
static bool try_step(struct world *w, int rank)
{
    if (w->done[rank] == w->schedule[rank].rounds)
        return false;
    struct dpb_schedule_step step = step_of(w, rank, w->done[rank]);
    if (dpb_schedule_is_exchange(&step))
        return try_exchange(w, rank, &step);
    if (step.from >= 0) {
        if (w->done[step.from] < w->done[rank])
            return false;
        learn(w, rank, step.from, w->done[rank]);
        check_overwrites(w, rank, &step);
        for (int64_t i = 0; i < step.receive_count; i++)
            join(w, rank, &step, i, w->data[step.from][step.receive_first + i],
                 w->raw[step.from][step.receive_first + i]);
        w->sent[step.from] += step.receive_count;
    }
    finish_round(w, rank);
    return true;
}

/* `hurry`: run one rank as far as it comes before another one is chosen. */
static void run_memory(struct world *w, bool hurry)
{
    begin(w);
    int64_t left = w->schedule[0].rounds * w->setup.ranks;
    while (left > 0) {
        int rank = random_below(w->setup.ranks);
        bool moved = try_step(w, rank);
        while (moved && hurry)
            moved = try_step(w, rank);
        left = 0;
        bool stuck = true;
        for (int r = 0; r < w->setup.ranks; r++) {
            left += w->schedule[r].rounds - w->done[r];
            if (w->done[r] == w->schedule[r].rounds)
                continue;
            struct dpb_schedule_step step = step_of(w, r, w->done[r]);
            stuck = stuck && step.from >= 0 && w->done[step.from] < w->done[r];
        }
        assert_true(left == 0 || !stuck);
    }
    check_result(w);
    test_free(w->knows);
}

/* ---- all of them ---- */

static void run_all(struct world *w)
{
    char why[512];
    for (w->setup.ranks = 2; w->setup.ranks <= RANKS_MOST; w->setup.ranks++)
        for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
            w->kind = (enum dpb_coll_kind)kind;
            if (w->kind == DPB_COLL_ALL_TO_ALL ||
                dpb_algorithm_check(&w->setup, w->kind, why, sizeof(why)) != DPB_OK)
                continue;
            for (int c = 0; c < COUNTS; c++) {
                w->count = counts[c];
                w->root = dpb_coll_has_root(w->kind) ? (c * 5 + 1) % w->setup.ranks : 0;
                run_messages(w);
                run_memory(w, true);
                run_memory(w, false);
            }
        }
}

static struct world world;

static void test_flat(void **state)
{
    (void)state;
    for (int a = DPB_ALGORITHM_RING; a < DPB_ALGORITHM_COUNT; a++) {
        world.setup = (struct dpb_algorithm_setup){.algorithm = (enum dpb_algorithm)a};
        run_all(&world);
    }
}

/* Every split of 2 to 17 ranks into nodes of one size. */
static void test_nodes(void **state)
{
    (void)state;
    for (int each = 1; each <= RANKS_MOST; each++) {
        world.setup = (struct dpb_algorithm_setup){.algorithm = DPB_ALGORITHM_HIERARCHICAL,
                                                   .ranks_per_node = each};
        run_all(&world);
    }
}

/* Every root, for the kinds that have one. */
static void test_roots(void **state)
{
    (void)state;
    static const enum dpb_algorithm algorithms[] = {DPB_ALGORITHM_RING, DPB_ALGORITHM_TREE};
    world.count = 131;
    for (int a = 0; a < 2; a++)
        for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
            world.setup = (struct dpb_algorithm_setup){.algorithm = algorithms[a], .ranks = ranks};
            for (world.root = 0; world.root < ranks; world.root++) {
                world.kind = DPB_COLL_BROADCAST;
                run_memory(&world, false);
                world.kind = DPB_COLL_REDUCE;
                run_memory(&world, true);
            }
        }
}

/* ---- inside a node, and between nodes ---- */

struct counted {
    int64_t inside, between;
};

static void count_message(const struct dpb_algorithm_setup *setup, int from, int to,
                          int64_t elements, struct counted *counted)
{
    int each = setup->ranks_per_node;
    if (from / each == to / each)
        counted->inside += elements;
    else
        counted->between += elements;
}

static struct counted count_schedule(const struct dpb_algorithm_setup *setup,
                                     enum dpb_coll_kind kind, int rank, int root, int64_t count)
{
    struct counted counted = {0, 0};
    struct dpb_schedule schedule;
    /* 50 elements are a chunk of a tree. */
    dpb_schedule_init(&schedule, setup, kind, rank, root, count,
                      (size_t)(DPB_ALGORITHM_CHUNK_BYTES / 50));
    for (int64_t round = 0; round < schedule.rounds; round++) {
        struct dpb_schedule_step step;
        dpb_schedule_step(&schedule, round, &step);
        if (step.to >= 0)
            count_message(setup, rank, step.to, step.send_count, &counted);
    }
    return counted;
}

/* direct and all-to-all have no schedule: element by element, who needs it of whom. */
static struct counted count_elements(const struct dpb_algorithm_setup *setup,
                                     enum dpb_coll_kind kind, int rank, int root, int64_t count)
{
    struct counted counted = {0, 0};
    int ranks = setup->ranks;
    for (int64_t i = 0; i < count; i++) {
        int owner = (int)(i / ((count + ranks - 1) / ranks));
        bool is_sum = dpb_coll_reduces(kind);
        if (kind == DPB_COLL_ALL_TO_ALL && i / (count / ranks) != rank)
            count_message(setup, rank, (int)(i / (count / ranks)), 1, &counted);
        if (is_sum && owner != rank)
            count_message(setup, rank, owner, 1, &counted);
        if (kind == DPB_COLL_REDUCE && owner == rank && rank != root)
            count_message(setup, rank, root, 1, &counted);
        bool is_gathered = kind == DPB_COLL_ALL_REDUCE || kind == DPB_COLL_ALL_GATHER;
        for (int peer = 0; is_gathered && owner == rank && peer < ranks; peer++)
            if (peer != rank)
                count_message(setup, rank, peer, 1, &counted);
    }
    return counted;
}

static void check_levels(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind, int root,
                         int64_t count)
{
    bool by_element = kind == DPB_COLL_ALL_TO_ALL ||
                      (setup->algorithm == DPB_ALGORITHM_DIRECT && kind != DPB_COLL_BROADCAST);
    for (int r = 0; r < setup->ranks; r++) {
        struct counted counted = by_element ? count_elements(setup, kind, r, root, count)
                                            : count_schedule(setup, kind, r, root, count);
        struct dpb_wire_levels levels = dpb_setup_wire_levels(setup, kind, r, root, count, 4);
        if (levels.inside_bytes != 4 * counted.inside ||
            levels.between_bytes != 4 * counted.between)
            fail_msg("%s %s, %d ranks (%d per node), root %d, %lld elements: rank %d sent %lld and "
                     "%lld bytes, formula %lld and %lld",
                     dpb_algorithm_text(setup->algorithm), dpb_coll_text(kind), setup->ranks,
                     setup->ranks_per_node, root, (long long)count, r,
                     (long long)counted.inside * 4, (long long)counted.between * 4,
                     (long long)levels.inside_bytes, (long long)levels.between_bytes);
        assert_true(levels.inside_bytes + levels.between_bytes ==
                    dpb_setup_wire_bytes(setup, kind, r, root, count, 4));
    }
}

/* Every algorithm and kind, 2 to 17 ranks in nodes of every size; the last may be smaller. */
static void test_levels(void **state)
{
    (void)state;
    char why[512];
    int checked = 0;
    struct dpb_algorithm_setup setup = {0};
    for (int a = 0; a < DPB_ALGORITHM_COUNT; a++)
        for (setup.ranks = 2; setup.ranks <= RANKS_MOST; setup.ranks++)
            for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
                for (int each = 1; each <= setup.ranks; each++) {
                    setup.algorithm = (enum dpb_algorithm)a;
                    setup.ranks_per_node = each;
                    if (dpb_algorithm_check(&setup, (enum dpb_coll_kind)kind, why, sizeof(why)) !=
                        DPB_OK)
                        continue;
                    for (int c = 0; c < COUNTS; c++) {
                        int64_t count = counts[c];
                        if (kind == DPB_COLL_ALL_TO_ALL)
                            count -= count % setup.ranks;
                        int root = dpb_coll_has_root((enum dpb_coll_kind)kind)
                                           ? (c * 5 + each) % setup.ranks
                                           : 0;
                        check_levels(&setup, (enum dpb_coll_kind)kind, root, count);
                        checked++;
                    }
                }
    assert_true(checked > 10000);
}

/* 4 nodes of 2 ranks, 800 elements of 4 bytes, by hand. A flat ring: of each node one rank sends
 * all it sends, 2 * 7/8 of the buffer, to the next node. Hierarchical: every rank sends 2 * 3/4 of
 * its half between nodes, and 2 * 1/2 of the buffer inside. */
static void test_levels_by_hand(void **state)
{
    (void)state;
    struct dpb_algorithm_setup setup = {
            .algorithm = DPB_ALGORITHM_RING, .ranks = 8, .ranks_per_node = 2};
    struct dpb_wire_levels levels;
    for (int r = 0; r < 8; r++) {
        setup.algorithm = DPB_ALGORITHM_RING;
        levels = dpb_setup_wire_levels(&setup, DPB_COLL_ALL_REDUCE, r, 0, 800, 4);
        assert_int_equal(levels.inside_bytes, r % 2 == 0 ? 5600 : 0);
        assert_int_equal(levels.between_bytes, r % 2 == 0 ? 0 : 5600);
        setup.algorithm = DPB_ALGORITHM_HIERARCHICAL;
        levels = dpb_setup_wire_levels(&setup, DPB_COLL_ALL_REDUCE, r, 0, 800, 4);
        assert_int_equal(levels.inside_bytes, 3200);
        assert_int_equal(levels.between_bytes, 2400);
    }
}

/* What a backend says of a collective. */
static void test_what_is_known(void **state)
{
    (void)state;
    const struct dpb_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE, .dtype = DPB_F32, .count = 800, .scale = 1};
    struct dpb_algorithm_setup setup = {.algorithm = DPB_ALGORITHM_RING, .ranks = 8};
    assert_int_equal(dpb_setup_wire_between(&setup, false, &coll, 1), 0);
    setup.ranks_per_node = 8;
    assert_int_equal(dpb_setup_wire_between(&setup, false, &coll, 1), 0);
    setup.ranks_per_node = 2;
    assert_int_equal(dpb_setup_wire_between(&setup, true, &coll, 1), 5600);
    assert_int_equal(dpb_setup_wire_between(&setup, false, &coll, 1), DPB_WIRE_UNKNOWN);
    setup.ranks_per_node = -1;
    assert_int_equal(dpb_setup_wire_between(&setup, true, &coll, 1), DPB_WIRE_UNKNOWN);
    char why[512];
    setup.algorithm = DPB_ALGORITHM_HIERARCHICAL;
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)),
                     DPB_ERR_USAGE);
    assert_int_equal(dpb_wire_sum(3, 4), 7);
    assert_int_equal(dpb_wire_sum(3, DPB_WIRE_UNKNOWN), DPB_WIRE_UNKNOWN);
    assert_int_equal(dpb_wire_sum(DPB_WIRE_UNKNOWN, 4), DPB_WIRE_UNKNOWN);
}

/* In two trees no rank has children in both, but for one when P is odd. */
static void test_two_trees(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        const struct dpb_algorithm_setup setup = {.algorithm = DPB_ALGORITHM_DOUBLE_TREE,
                                                  .ranks = ranks};
        int inside_both = 0;
        for (int r = 0; r < ranks; r++) {
            struct dpb_schedule schedule;
            bool inside[2] = {false, false};
            dpb_schedule_init(&schedule, &setup, DPB_COLL_ALL_REDUCE, r, 0, 100, 4);
            for (int64_t round = 0; round < schedule.rounds; round++) {
                struct dpb_schedule_step step;
                dpb_schedule_step(&schedule, round, &step);
                if (step.reduces)
                    inside[step.receive_first >= 50] = true;
            }
            inside_both += inside[0] && inside[1];
        }
        assert_true(inside_both <= 1);
        if (ranks % 2 == 0)
            assert_int_equal(inside_both, 0);
    }
}

static void test_what_there_is(void **state)
{
    (void)state;
    char why[512];
    struct dpb_algorithm_setup setup = {.algorithm = DPB_ALGORITHM_TREE, .ranks = 4};
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_REDUCE_SCATTER, why, sizeof(why)),
                     DPB_ERR_UNSUPPORTED);
    assert_string_equal(why, "algorithm \"tree\" has no reduce-scatter for any number of ranks; "
                             "these have: direct, ring, halving-doubling");
    setup.algorithm = DPB_ALGORITHM_HALVING_DOUBLING;
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_REDUCE_SCATTER, why, sizeof(why)),
                     DPB_OK);
    setup.ranks = 6;
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_REDUCE_SCATTER, why, sizeof(why)),
                     DPB_ERR_UNSUPPORTED);
    assert_string_equal(why, "algorithm \"halving-doubling\" has no reduce-scatter for this number "
                             "of ranks; these have: direct, ring");
    setup.algorithm = DPB_ALGORITHM_HIERARCHICAL;
    setup.ranks_per_node = 4;
    assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(why, "6 ranks are no multiple of 4 per node"));
    /* One rank has nothing to send. */
    setup = (struct dpb_algorithm_setup){.algorithm = DPB_ALGORITHM_TREE, .ranks = 1};
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
        assert_int_equal(dpb_algorithm_check(&setup, (enum dpb_coll_kind)kind, why, sizeof(why)),
                         DPB_OK);
    /* Every algorithm sums, and gets a strategy's broadcasts and a workload's parts across. */
    for (int a = 0; a < DPB_ALGORITHM_COUNT; a++) {
        setup = (struct dpb_algorithm_setup){.algorithm = (enum dpb_algorithm)a, .ranks = 7};
        assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_ALL_REDUCE, why, sizeof(why)),
                         DPB_OK);
        assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_BROADCAST, why, sizeof(why)), DPB_OK);
        assert_int_equal(dpb_algorithm_check(&setup, DPB_COLL_ALL_TO_ALL, why, sizeof(why)),
                         DPB_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_flat),           cmocka_unit_test(test_nodes),
            cmocka_unit_test(test_roots),          cmocka_unit_test(test_two_trees),
            cmocka_unit_test(test_what_there_is),  cmocka_unit_test(test_levels),
            cmocka_unit_test(test_levels_by_hand), cmocka_unit_test(test_what_is_known),
    };
    return DPB_RUN_TESTS(tests);
}
