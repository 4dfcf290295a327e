/* dpb_memory.h: how much memory a cell will need, before anything is launched, and how much there
 * is. What cannot fit is refused with the arithmetic, instead of ending in the middle of a run.
 *
 * Parameters, gradients, optimizer state and activations are exact: they are the sizes that the
 * step engine and the workload will allocate. Workspace and runtime are estimates from measured
 * processes (memory.c says which). */
#ifndef DPB_MEMORY_H
#define DPB_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_step.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_memory_part {
    DPB_MEMORY_PARAMETERS,
    DPB_MEMORY_GRADIENTS, /* the arena that buckets lie in */
    DPB_MEMORY_OPTIMIZER,
    DPB_MEMORY_COMMUNICATION, /* what the strategy has for collectives beside the gradients */
    DPB_MEMORY_STRATEGY,      /* what it has of its own; gradients of micro-batches; parameters that
                                 it has in parts, whole, where an evaluation needs them */
    DPB_MEMORY_ACTIVATIONS,   /* and what else the workload saves or works in */
    DPB_MEMORY_STAGING,       /* batches as an accelerator reads them */
    DPB_MEMORY_WORKSPACE,     /* of the device */
    DPB_MEMORY_PINNED,        /* the host's, for copies to and from an accelerator */
    DPB_MEMORY_DATA,          /* the data set as a rank holds it, and its batches */
    DPB_MEMORY_RUNTIME,       /* code, libraries, the comm's control area */
    DPB_MEMORY_PEERS, /* gradients and communication memory of the other ranks that this one has
                         mapped: resident here too, but there once */
    DPB_MEMORY_PARTS
};

#define DPB_MEMORY_UNKNOWN (-1)

struct dpb_memory {
    int64_t ranks;
    int64_t part_bytes[DPB_MEMORY_PARTS];      /* of the rank with the largest batch, or UNKNOWN */
    const char *why_unknown[DPB_MEMORY_PARTS]; /* static; NULL for a part that is known */
    int64_t rank_bytes;                        /* resident in one rank: the known parts */
    int64_t total_bytes;                       /* of all ranks, what they share counted once */
    bool at_least;                             /* some part is not known */
    /* With an accelerator that has memory of its own, what lies there (parts up to WORKSPACE) is in
     * neither of the sums above, which are the host's, but in these. */
    bool has_device;
    int64_t device_bytes; /* of one rank: the known parts */
};

/* What there is for it. */
struct dpb_memory_limits {
    int64_t host_bytes;            /* for all ranks; INT64_MAX: nothing tells */
    struct dpb_device_room device; /* where least is free; free_bytes INT64_MAX: as above */
};

/* What the step engine's memory and plan depend on, of a resolved cell; `shape` borrows `optimizer`
 * and the config's option structs. */
void dpb_step_shape_of(const struct dpb_registry *registry, const dpb_config *config,
                       struct dpb_optimizer_config *optimizer, struct dpb_step_shape *shape);

/* Predict a resolved cell. Sums beyond int64_t stay at its maximum. */
void dpb_memory_predict(const struct dpb_registry *registry, const dpb_config *config,
                        struct dpb_memory *memory);

/* Bytes that new processes can still have here: MemAvailable of /proc/meminfo, or less where a
 * control group of this process has a limit (version 2 or 1, its ancestors included; page cache
 * that the kernel gives back is no use). Files are read below `root`, "" for those of this machine.
 * INT64_MAX when nothing tells. */
int64_t dpb_memory_available(const char *root);

/* What a cell may use: its --memory-limit, or what is available now. */
int64_t dpb_memory_limit(const dpb_config *config);

/* The same, and what the accelerators of `ranks_here` ranks on this machine have free, those of
 * other machines being taken to be like them. Where ranks are simulated, the memory of one
 * accelerator: each has its own, and a prediction is then of one rank. Errors of the machine
 * profile and of choosing accelerators, logged. */
dpb_status dpb_memory_limits_of(const struct dpb_registry *registry, const dpb_config *config,
                                int ranks_here, struct dpb_memory_limits *limits);

/* An accelerator of `ranks_here` ranks on this machine. */
struct dpb_memory_device {
    const char *name;
    const void *options; /* as dpb_device_config.options */
    int ranks_here;
};

/* The device with least free memory, of those that the ranks would open; free_bytes INT64_MAX where
 * it computes in the host's, is simulated, or nothing tells. Logged. */
dpb_status dpb_memory_device_room(const struct dpb_registry *registry,
                                  const struct dpb_memory_device *which,
                                  struct dpb_device_room *room);

bool dpb_memory_fits(const struct dpb_memory *memory, const struct dpb_memory_limits *limits);

/* Why a cell does not fit, with the arithmetic: "memory: 2 ranks need ...", or, where it is the
 * accelerator's, "memory: a rank needs ... of its GPU"; appended to `out`. */
void dpb_memory_refusal(const struct dpb_memory *memory, const struct dpb_memory_limits *limits,
                        struct dpb_str *out);

/* Every cell of the plan must fit: DPB_ERR_NO_MEMORY for the first that does not, logged with the
 * arithmetic and the remedy. */
dpb_status dpb_memory_check_plan(const struct dpb_registry *registry, const struct dpb_plan *plan);

/* "predicted_bytes", "predicted" {a part each}, "predicted_total_bytes", "predicted_at_least" and
 * "limit_bytes" of a record's "memory"; with an accelerator "predicted_device_bytes",
 * "device_free_bytes" and "device" (which one) besides. */
void dpb_memory_to_json(const struct dpb_memory *memory, const struct dpb_memory_limits *limits,
                        dpb_json *json);

#ifdef __cplusplus
}
#endif
#endif
