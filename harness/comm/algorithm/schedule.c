/* schedule.c: which family of algorithms has the schedule. */
#include "schedule_private.h"

struct family {
    int64_t (*rounds)(const struct dpb_schedule *schedule);
    void (*step)(const struct dpb_schedule *schedule, int64_t round,
                 struct dpb_schedule_step *step);
};

static const struct family ring = {dpb_schedule_ring_rounds, dpb_schedule_ring};
static const struct family hierarchical = {dpb_schedule_hierarchical_rounds,
                                           dpb_schedule_hierarchical};
static const struct family recursive = {dpb_schedule_recursive_rounds, dpb_schedule_recursive};
static const struct family tree = {dpb_schedule_tree_rounds, dpb_schedule_tree};
static const struct family binomial = {dpb_schedule_binomial_rounds, dpb_schedule_binomial};

static const struct family *family_of(const struct dpb_schedule *schedule)
{
    if (schedule->kind == DPB_COLL_BROADCAST && schedule->algorithm != DPB_ALGORITHM_TREE)
        return &binomial;
    switch (schedule->algorithm) {
    case DPB_ALGORITHM_RECURSIVE_DOUBLING:
    case DPB_ALGORITHM_HALVING_DOUBLING:
        return &recursive;
    case DPB_ALGORITHM_TREE:
    case DPB_ALGORITHM_DOUBLE_TREE:
        return &tree;
    case DPB_ALGORITHM_HIERARCHICAL:
        return &hierarchical;
    case DPB_ALGORITHM_RING:
    case DPB_ALGORITHM_DIRECT:
    case DPB_ALGORITHM_COUNT:
        break;
    }
    return &ring;
}

void dpb_schedule_init(struct dpb_schedule *schedule, const struct dpb_algorithm_setup *setup,
                       enum dpb_coll_kind kind, int rank, int root, int64_t count,
                       size_t element_bytes)
{
    *schedule = (struct dpb_schedule){
            .algorithm = setup->algorithm,
            .kind = kind,
            .ranks = setup->ranks,
            .rank = rank,
            .root = root,
            .ranks_per_node = setup->ranks_per_node > 0 ? setup->ranks_per_node : setup->ranks,
            .count = count,
            .chunk = DPB_ALGORITHM_CHUNK_BYTES / (int64_t)element_bytes,
    };
    schedule->rounds = family_of(schedule)->rounds(schedule);
}

void dpb_schedule_step(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step)
{
    *step = (struct dpb_schedule_step){.to = -1, .from = -1};
    family_of(schedule)->step(schedule, round, step);
}
