/* shard.h: parts of parameters that lie back to back ("a flat parameter"), and units made of whole
 * layers that share memory: what strategies have in common that leave a rank a part of everything.
 */
#ifndef DPB_SHARD_H
#define DPB_SHARD_H

#include <stdbool.h>

#include "dpb_strategy.h"

/* A walk over the parts of parameters that lie in [from, to) of a row of them. */
struct shard_walk {
    const struct dpb_param_info *params;
    const int *member; /* parameters, back to back; NULL: all, in registration order */
    int member_count;
    int64_t from, to;
    /* where it is; {0} to begin with */
    int next;
    int64_t next_at; /* element of the row at which member[next] begins */
};

struct shard_part {
    int param;
    int64_t first, count; /* elements of the parameter */
    int64_t at;           /* element of the row */
};

/* The next part: false at the end. */
bool shard_next(struct shard_walk *walk, struct shard_part *part);

/* Copy elements on the compute stream, recorded as `name` (static). */
dpb_status shard_copy(const struct dpb_launcher *launcher, const char *name, float *to,
                      const float *from, int64_t count);
/* to = from with the first micro-batch of a step, to += from with the others. */
dpb_status shard_add_up(const struct dpb_launcher *launcher, const char *name, float *to,
                        float *from, int64_t count, bool is_first);

/* Device memory, zeroed, of `count` elements; NULL for 0. */
dpb_status shard_alloc(const struct dpb_launcher *launcher, int64_t count, float **memory);
void shard_free(const struct dpb_launcher *launcher, float **memory);

/* Bytes up to the next multiple of 64. */
int64_t shard_aligned(int64_t bytes);

/* When a bucket of whole layers is closed. */
enum shard_rule {
    SHARD_REACHES, /* as soon as its elements are at least the limit */
    SHARD_EXCEEDS  /* before a layer that would make it larger than the limit */
};

/* Parameters of `order`, from `begin` on and before `count`, that belong to one layer: their
 * elements; `end` gets the place behind the last. */
int64_t shard_layer(const struct dpb_model *model, const int *order, int count, int begin,
                    int *end);

/* Buckets of whole layers: `order` has every parameter, those of a layer side by side. Of a layer
 * the weight and the bias are used at the same time, so they never lie in two buckets. */
dpb_status shard_plan_layers(const struct dpb_model *model, const int *order, int64_t limit,
                             enum shard_rule rule, struct dpb_unit_plan *plan);

/* Move a unit of a plan to another place. */
void shard_move_unit(struct dpb_unit_plan *plan, int unit, int64_t offset_bytes);

/* DPB_ERR_USAGE, logged, for optimizers that must see a tensor whole. */
dpb_status shard_check_optimizer(const struct dpb_strategy_config *config, const char *strategy);

#endif
