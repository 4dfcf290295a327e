/* schedule_recursive.c: pairs at distances that double or halve (Thakur, Rabenseifner and Gropp,
 * "Optimization of Collective Communication Operations in MPICH", 2005).
 *
 * Of P ranks, Q = 2^floor(log2 P) take part. When there are more, the first P - Q odd ranks give
 * all to the even rank before them in a round before, and get the result back in a round after.
 *
 * recursive doubling: in round k, partners at distance 2^k exchange everything and both add.
 * halving-doubling: partners at distance Q/2, Q/4, ... each keep one half of what they share, which
 * is a reduce-scatter; then all-gather with the distances the other way round. */
#include "schedule_private.h"

struct pairing {
    int log2, others;  /* log2 Q; P - Q */
    int member;        /* this rank's number among the Q; -1: it is left out */
    int left_out_peer; /* the rank that is left out and belongs to this one, or the other way round;
                          -1: none */
};

static struct pairing pair_up(const struct dpb_schedule *schedule)
{
    struct pairing p = {.log2 = dpb_schedule_log2(schedule->ranks), .left_out_peer = -1};
    int rank = schedule->rank;
    p.others = schedule->ranks - (1 << p.log2);
    if (rank >= 2 * p.others) {
        p.member = rank - p.others;
    } else {
        p.member = rank % 2 ? -1 : rank / 2;
        p.left_out_peer = rank ^ 1;
    }
    return p;
}

static int rank_of(const struct pairing *p, int member)
{
    return member < p->others ? 2 * member : member + p->others;
}

/* Has the member not yet summed anything when the rounds of pairs begin? */
static bool is_raw(const struct pairing *p, int member)
{
    return member >= p->others;
}

static struct dpb_schedule_part everything(const struct dpb_schedule *schedule)
{
    return (struct dpb_schedule_part){0, schedule->count};
}

/* Pieces [at, at + many) of the Q that the buffer is split into. */
static struct dpb_schedule_part pieces(const struct dpb_schedule *schedule, const struct pairing *p,
                                       int at, int many)
{
    struct dpb_schedule_part first = dpb_schedule_shard(everything(schedule), 1 << p->log2, at);
    struct dpb_schedule_part last =
            dpb_schedule_shard(everything(schedule), 1 << p->log2, at + many - 1);
    return (struct dpb_schedule_part){first.first, last.first + last.count - first.first};
}

static void add(const struct pairing *p, int partner, bool is_first, struct dpb_schedule_step *step)
{
    step->reduces = true;
    step->own_is_raw = is_first && is_raw(p, p->member);
    step->received_is_raw = is_first && is_raw(p, partner);
}

static void double_all(const struct dpb_schedule *schedule, const struct pairing *p, int64_t round,
                       struct dpb_schedule_step *step)
{
    int partner = p->member ^ 1 << round;
    dpb_schedule_send(step, rank_of(p, partner), everything(schedule));
    dpb_schedule_receive(step, rank_of(p, partner), everything(schedule));
    add(p, partner, round == 0, step);
}

/* Of the 2 * distance pieces that this member and its partner share, each keeps the half in which
 * its own piece is. */
static void halve(const struct dpb_schedule *schedule, const struct pairing *p, int64_t round,
                  struct dpb_schedule_step *step)
{
    int distance = 1 << (p->log2 - 1 - round);
    int partner = p->member ^ distance;
    dpb_schedule_send(step, rank_of(p, partner),
                      pieces(schedule, p, partner & -distance, distance));
    dpb_schedule_receive(step, rank_of(p, partner),
                         pieces(schedule, p, p->member & -distance, distance));
    add(p, partner, round == 0, step);
}

static void double_pieces(const struct dpb_schedule *schedule, const struct pairing *p,
                          int64_t round, struct dpb_schedule_step *step)
{
    int distance = 1 << round;
    int partner = p->member ^ distance;
    dpb_schedule_send(step, rank_of(p, partner),
                      pieces(schedule, p, p->member & -distance, distance));
    dpb_schedule_receive(step, rank_of(p, partner),
                         pieces(schedule, p, partner & -distance, distance));
}

/* The round before and the round after, for the ranks that are left out and theirs. */
static void fold(const struct dpb_schedule *schedule, const struct pairing *p, bool is_before,
                 struct dpb_schedule_step *step)
{
    if (p->left_out_peer < 0)
        return;
    if (is_before == (p->member < 0)) {
        dpb_schedule_send(step, p->left_out_peer, everything(schedule));
        return;
    }
    dpb_schedule_receive(step, p->left_out_peer, everything(schedule));
    step->reduces = step->own_is_raw = step->received_is_raw = is_before;
}

static int64_t pair_rounds(const struct dpb_schedule *schedule, const struct pairing *p)
{
    bool twice = schedule->algorithm == DPB_ALGORITHM_HALVING_DOUBLING &&
                 schedule->kind == DPB_COLL_ALL_REDUCE;
    return twice ? 2 * p->log2 : p->log2;
}

int64_t dpb_schedule_recursive_rounds(const struct dpb_schedule *schedule)
{
    const struct pairing p = pair_up(schedule);
    return pair_rounds(schedule, &p) + (p.others > 0 ? 2 : 0);
}

void dpb_schedule_recursive(const struct dpb_schedule *schedule, int64_t round,
                            struct dpb_schedule_step *step)
{
    const struct pairing p = pair_up(schedule);
    int64_t rounds = pair_rounds(schedule, &p);
    if (p.others > 0)
        round--;
    if (round < 0 || round == rounds)
        fold(schedule, &p, round < 0, step);
    else if (p.member < 0)
        return;
    else if (schedule->kind == DPB_COLL_ALL_GATHER)
        double_pieces(schedule, &p, round, step);
    else if (schedule->algorithm == DPB_ALGORITHM_RECURSIVE_DOUBLING)
        double_all(schedule, &p, round, step);
    else if (round < p.log2)
        halve(schedule, &p, round, step);
    else
        double_pieces(schedule, &p, round - p.log2, step);
}
