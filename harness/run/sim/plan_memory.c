/* Memory of an accelerator in a plan. */
#include <math.h>

#include "dpb_experiment.h"
#include "dpb_memory.h"
#include "plan_cells.h"

/* A CUDA context, and what NCCL takes when it initialises: one measurement (ml-engineering,
 * training/performance), taken for all. */
#define CONTEXT_BYTES (0.9 * 1024 * 1024 * 1024)
#define NCCL_BYTES    (1.5 * 1024 * 1024 * 1024)
#define FRAGMENTATION 0.05

static double sum_of(const struct dpb_step_memory *memory)
{
    return (double)memory->parameters + (double)memory->gradients + (double)memory->optimizer +
           (double)memory->communication + (double)memory->strategy;
}

/* Ranks may hold different parts; the first and the last are the extremes of every strategy. */
static dpb_status engine_bytes(const struct dpb_step_shape *shape, double *bytes)
{
    struct dpb_step_memory first, last;

    DPB_TRY(dpb_step_memory_predict(shape, 0, &first));
    DPB_TRY(dpb_step_memory_predict(shape, shape->ranks - 1, &last));
    *bytes = fmax(sum_of(&first), sum_of(&last));
    return DPB_OK;
}

static double activations(const struct plan_question *question, const dpb_config *config,
                          const struct dpb_optimizer_config *optimizer, int64_t batch)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_sizes sizes = {
            .batch_max = batch,
            .global_batch = batch * e->ranks * e->accumulate,
            .ranks = (int)e->ranks,
            .precision = (enum dpb_dtype)e->precision,
            .optimizer = *optimizer,
    };

    return (double)question->workload->activation_bytes_for(dpb_config_struct(config, "workload"),
                                                            &sizes);
}

static double reserve_of(const struct plan_question *question, const struct plan_machine *machine,
                         int ranks)
{
    if (question->options->reserve_bytes != DPB_AUTO)
        return (double)question->options->reserve_bytes;
    return machine->model.is_cpu ? 0 : CONTEXT_BYTES + (ranks > 1 ? NCCL_BYTES : 0);
}

static dpb_status measure(const struct plan_question *question, const struct plan_machine *machine,
                          const dpb_config *config, struct plan_memory *memory)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const int64_t batch = e->batch_per_rank, other = batch > 1 ? 1 : 2;
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;

    dpb_step_shape_of(question->registry, config, &optimizer, &shape);
    shape.ranks_per_node = plan_ranks_per_node(machine, shape.ranks);
    shape.is_gpu = !machine->model.is_cpu;
    DPB_TRY(engine_bytes(&shape, &memory->held_bytes));
    memory->per_sample_bytes = 0;
    if (question->workload->activation_bytes_for) {
        const double there = activations(question, config, &optimizer, batch);

        memory->per_sample_bytes = (there - activations(question, config, &optimizer, other)) /
                                   (double)(batch - other);
        memory->held_bytes += there - memory->per_sample_bytes * (double)batch;
    }
    memory->fit = dpb_memory_fit(memory->held_bytes, memory->per_sample_bytes, (double)batch,
                                 reserve_of(question, machine, shape.ranks), FRAGMENTATION,
                                 dpb_machine_value(&machine->machine, DPB_FIGURE_MEMORY, INFINITY));
    return DPB_OK;
}

dpb_status plan_memory_of(const struct plan_question *question, const struct plan_machine *machine,
                          const dpb_config *config, const char *strategy,
                          struct plan_memory *memory)
{
    dpb_config *other = NULL;
    dpb_status st;

    if (!strategy)
        return measure(question, machine, config, memory);
    DPB_TRY(dpb_config_copy(config, &other));
    st = dpb_config_set(other, "strategy", strategy);
    if (st >= 0)
        st = measure(question, machine, other, memory);
    dpb_config_free(other);
    return st;
}
