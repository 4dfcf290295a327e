/* rig.h: a step engine with everything it needs, in one process: the real device, the fake
 * communicator, the tiny workload; and what it logged and reported. */
#ifndef DPB_TESTS_RIG_H
#define DPB_TESTS_RIG_H

#include "dpb_str.h"

#include "fake_comm.h"
#include "tiny_workload.h"

#define RIG_BATCH 8
#define RIG_SEED  7

struct rig {
    struct fake_comm comm;
    struct tiny_options options;
    struct tiny_source source;
    struct dpb_step_config config;
    dpb_device *device;
    dpb_step_engine *engine;
    struct dpb_str log, progress;
};

/* Rank 0 of `world_size`; change rig->config and rig->options before opening. With ddp, in the
 * order in which tiny's gradients become ready (47, 1003, 1, 48, 3 elements), the rebuilt units are
 * {out.weight, mid.weight}, {mid.bias, in.weight}, {in.bias}. */
void rig_init(struct rig *rig, const struct dpb_strategy_ops *strategy, int world_size);
void rig_open(struct rig *rig);
void rig_steps(struct rig *rig, int count);
/* What the engine says beforehand of the memory of rank 0. */
void rig_predict(const struct rig *rig, struct dpb_step_memory *memory);
void rig_release(struct rig *rig);

bool rig_has_logged(const struct rig *rig, const char *text);

#endif
