#include "dpb_test.h"
#include "rig.h"

#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_strategies.h"

static const struct dpb_ddp_options small_buckets = {
        .bucket_bytes = 196, .first_bucket_bytes = 200, .overlap = true};

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    dpb_str_appendf(ctx, "%s\n", line);
}

static void keep_progress(void *ctx, int64_t step, enum dpb_phase phase, int bucket)
{
    dpb_str_appendf(ctx, "%d:%s:%d ", (int)step, dpb_phase_text(phase), bucket);
}

void rig_init(struct rig *rig, const struct dpb_strategy_ops *strategy, int world_size)
{
    const struct dpb_device_config device = {.local_size = 1, .threads = 1};

    *rig = (struct rig){.comm = fake_comm_of(0, world_size)};
    rig->source =
            (struct tiny_source){.global_batch = RIG_BATCH, .count = RIG_BATCH, .steps = 1000};
    dpb_log_set_sink(keep_line, &rig->log);
    assert_int_equal(dpb_device_cpu_ops.open(&device, &rig->device), DPB_OK);
    rig->config = (struct dpb_step_config){
            .device = rig->device,
            .comm = (dpb_comm *)&rig->comm,
            .workload = &tiny_workload_ops,
            .workload_options = &rig->options,
            .strategy = strategy,
            .strategy_options = strategy == &dpb_strategy_ddp_ops ? &small_buckets : NULL,
            .bucket_given = true,
            .source = tiny_source_of(&rig->source),
            .batch_max = RIG_BATCH,
            .global_batch = RIG_BATCH,
            .accumulate = 1,
            .seed = RIG_SEED,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.25, .momentum = 0.5},
            .progress = keep_progress,
            .progress_ctx = &rig->progress,
    };
}

void rig_open(struct rig *rig)
{
    assert_int_equal(dpb_step_open(&rig->config, &rig->engine), DPB_OK);
}

void rig_steps(struct rig *rig, int count)
{
    struct dpb_step_times times;

    for (int i = 0; i < count; i++)
        assert_int_equal(dpb_step_run(rig->engine, &times), DPB_OK);
}

void rig_predict(const struct rig *rig, struct dpb_step_memory *memory)
{
    const struct dpb_step_shape shape = {
            .model = rig->config.workload->model(rig->config.workload_options),
            .optimizer = &rig->config.optimizer,
            .strategy = rig->config.strategy,
            .strategy_options = rig->config.strategy_options,
            .bucket_given = rig->config.bucket_given,
            .ranks = rig->comm.base.size,
            .accumulate = rig->config.accumulate,
    };

    assert_int_equal(dpb_step_memory_predict(&shape, 0, memory), DPB_OK);
}

void rig_release(struct rig *rig)
{
    dpb_step_close(rig->engine);
    fake_comm_release(&rig->comm);
    dpb_device_cpu_ops.close(rig->device);
    dpb_log_set_sink(NULL, NULL);
    dpb_str_release(&rig->log);
    dpb_str_release(&rig->progress);
}

bool rig_has_logged(const struct rig *rig, const char *text)
{
    return rig->log.text && strstr(rig->log.text, text);
}
