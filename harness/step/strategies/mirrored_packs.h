/* mirrored_packs.h: what `mirrored` and `mwms` share: gradients that are concatenated in packs, or
 * not, and reduced pack by pack, in one order on all ranks. They differ in their plan. */
#ifndef DPB_MIRRORED_PACKS_H
#define DPB_MIRRORED_PACKS_H

#include "dpb_strategy.h"
#include "ready_set.h"

/* A part of a unit that is reduced by itself. */
struct mirrored_pack {
    int unit;
    int64_t first, count; /* elements of the unit */
    int root;             /* of its reduction, where it has one */
    int param;            /* the unit's gradient that is ready last */
    int handle[2];        /* its collectives */
};

struct mirrored_packs {
    struct dpb_strategy_base base;
    int world_size;
    struct dpb_sync_services services;
    int copies_from; /* units of so many gradients are copied into shared memory and back; 0: none
                      */
    bool overlaps;   /* packs go during backward */
    bool has_roots;  /* reduce to a rank and broadcast, instead of all-reduce */
    int roots;       /* so many ranks take turns */

    const struct dpb_unit_plan *plan; /* the engine's */
    struct ready_set ready;
    int *pending; /* per unit: gradients that are not ready */
    struct mirrored_pack *pack;
    int pack_count;
    int next_pack, waited; /* started so far, and waited for */
    int64_t *copy_offset;  /* per unit, in `copies`; -1: it is reduced in its place */
    int64_t copy_bytes;
    char *copies;
};

/* Elements of pack `index` when `elements` are cut in `packs` (_ConcatAndSplitPacker): the last one
 * takes the remainder, so packs are empty where there are more of them than elements. `first` gets
 * its first element. */
int64_t mirrored_pack_elements(int64_t elements, int64_t packs, int64_t index, int64_t *first);

/* The main devices of pack `index` in a hierarchical copy between `devices`: two groups of
 * devices / 2, the first main is index mod devices, the second devices / 2 further, in the other
 * group. With an odd number the second group has one more, and device 0 is the second main of the
 * pack whose two mains would be in one group; TensorFlow forgets the last device. */
void mirrored_main_devices(int64_t index, int devices, int main_device[2]);

/* Where packs start when tensors of these bytes are filled in one after the other (group_by_size):
 * a pack is closed when it is larger than `bytes_per_pack`; 0: one pack. Returns how many; `first`
 * has room for count + 1, and pack i holds first[i] to first[i + 1] - 1. */
int mwms_group_by_size(const int64_t *bytes, int count, int64_t bytes_per_pack, int *first);

/* Runs of consecutive numbers in an ascending list (extract_ranges of tf_cnn_benchmarks): a run
 * goes on while its last and its first number are at most `extent_max` apart, so it ends up to one
 * further away. `run_of` gets the run of each number, -1 for one that has no neighbour; returns how
 * many runs there are. */
int mirrored_extract_runs(const int *number, int count, int64_t extent_max, int *run_of);

/* `self` is zeroed but for the four settings. */
void mirrored_packs_open(struct mirrored_packs *self, const struct dpb_strategy_ops *ops,
                         const struct dpb_strategy_config *config);
void mirrored_packs_close(dpb_strategy *strategy);

/* Take over a plan that was made for `model`, each unit cut in `packs_per_unit`, and put it in
 * *plan; on failure it is released. */
dpb_status mirrored_packs_set_plan(struct mirrored_packs *self, const struct dpb_model *model,
                                   int64_t packs_per_unit, struct dpb_unit_plan *made,
                                   struct dpb_unit_plan *plan);

/* The rest of a strategy's table. */
dpb_status mirrored_packs_place(dpb_strategy *strategy);
int mirrored_packs_messages(dpb_strategy *strategy, struct dpb_sync_message *messages);
void mirrored_packs_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory);
dpb_status mirrored_packs_step_begin(dpb_strategy *strategy, int64_t step);
dpb_status mirrored_packs_grad_ready(dpb_strategy *strategy, int param);
dpb_status mirrored_packs_backward_end(dpb_strategy *strategy);
dpb_status mirrored_packs_before_optimizer(dpb_strategy *strategy);

#endif
