/* peer_start: where dpbench's training starts, for bench/peers/compare: a workload's initial
 * parameters and its first global batch.
 *
 *   peer_start WORKLOAD SEED GLOBAL_BATCH FILE [--option value]...    options of the workload
 *
 * FILE: a line of JSON, {"parameters": [{"name", "dtype", "shape", "numel"}, ...], "batch": [...]},
 * then the arrays in that order, 4 bytes per element. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_dataset.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_options.h"
#include "dpb_recorder.h"
#include "dpb_workloads.h"

#define BATCH_ARRAYS 7 /* at most */

struct start {
    const struct dpb_workload_ops *ops;
    const struct dpb_model *model;
    void *options;
    uint64_t seed;
    int64_t batch;
    FILE *file;
};

static const struct dpb_workload_ops *find_workload(const char *name)
{
    static const struct dpb_workload_ops *const known[] = {
            &dpb_workload_resnet50_ops, &dpb_workload_bert_base_ops, &dpb_workload_bert_large_ops,
            &dpb_workload_gpt2_small_ops, &dpb_workload_dlrm_small_ops};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    }
    dpb_error("no start of workload \"%s\" is known here", name);
    return NULL;
}

/* Options that are not given are 0. */
static dpb_status set_option(const struct dpb_option_table *table, const char *name,
                             const char *value, void *options)
{
    for (size_t i = 0; i < table->row_count; i++) {
        const struct dpb_option *row = &table->rows[i];
        char *member = (char *)options + row->offset;

        if (strncmp(name, "--", 2) != 0 || strcmp(row->name, name + 2) != 0)
            continue;
        if (row->type == DPB_OPT_INT)
            *(int64_t *)(void *)member = strtoll(value, NULL, 10);
        else
            *(double *)(void *)member = strtod(value, NULL);
        return DPB_OK;
    }
    dpb_error("workload \"%s\" has no option \"%s\"", table->owner, name);
    return DPB_ERR_USAGE;
}

/* ---- writing ---- */

static void put_array(FILE *file, const char *before, const char *name, const char *dtype, int rank,
                      const int64_t *dim)
{
    int64_t numel = 1;

    fprintf(file, "%s{\"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [", before, name, dtype);
    for (int i = 0; i < rank; i++) {
        fprintf(file, "%s%lld", i > 0 ? ", " : "", (long long)dim[i]);
        numel *= dim[i];
    }
    fprintf(file, "], \"numel\": %lld}", (long long)numel);
}

struct batch_array {
    const char *name, *dtype;
    const void *data;
    int rank;
    int64_t dim[4];
};

/* The arrays that the model's batches have. */
static int list_batch(const struct start *start, const struct dpb_batch *batch,
                      struct batch_array to[BATCH_ARRAYS])
{
    const struct dpb_model *model = start->model;
    int64_t n = start->batch, *image = (int64_t *)model->sample_dim;
    const bool interactions = model->input == DPB_INPUT_INTERACTIONS;
    const struct batch_array all[] = {
            {"label", "int32", batch->label, 1, {n}},
            {"x",
             "float32",
             batch->x,
             interactions ? 2 : 4,
             {n, interactions ? model->features : image[0], image[1], image[2]}},
            {"tokens", "int32", batch->tokens, 2, {n, model->sequence}},
            {"segments", "int32", batch->segments, 2, {n, model->sequence}},
            {"predict_position", "int32", batch->predict_position, 2, {n, model->predicted}},
            {"predict_token", "int32", batch->predict_token, 2, {n, model->predicted}},
            {"indices", "int32", batch->indices, 2, {n, model->tables}},
    };
    int count = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].data)
            to[count++] = all[i];
    }
    return count;
}

static dpb_status write_all(const struct start *start, const struct dpb_batch *batch,
                            float *const *param)
{
    const struct dpb_model *model = start->model;
    struct batch_array arrays[BATCH_ARRAYS];
    int count = list_batch(start, batch, arrays);

    for (int p = 0; p < model->param_count; p++)
        put_array(start->file, p > 0 ? ", " : "{\"parameters\": [", model->params[p].name,
                  "float32", model->params[p].rank, model->params[p].dim);
    for (int i = 0; i < count; i++)
        put_array(start->file, i > 0 ? ", " : "], \"batch\": [", arrays[i].name, arrays[i].dtype,
                  arrays[i].rank, arrays[i].dim);
    fputs("]}\n", start->file);
    for (int p = 0; p < model->param_count; p++)
        fwrite(param[p], sizeof(float), (size_t)model->params[p].numel, start->file);
    for (int i = 0; i < count; i++) {
        size_t numel = 1;

        for (int d = 0; d < arrays[i].rank; d++)
            numel *= (size_t)arrays[i].dim[d];
        fwrite(arrays[i].data, 4, numel, start->file);
    }
    return ferror(start->file) ? DPB_ERR_IO : DPB_OK;
}

/* ---- the start ---- */

/* What rank 0 of one computes in its first step is the first global batch. */
static dpb_status with_batch(const struct start *start, float *const *param)
{
    struct dpb_dataset_config dataset_config = {
            .kind = "synthetic", .model = start->model, .seed = start->seed};
    struct dpb_loader_config loader_config = {
            .global_batch = start->batch, .ranks = 1, .shuffle = true, .seed = start->seed};
    dpb_dataset *dataset;
    dpb_loader *loader;
    struct dpb_batch_source source;
    struct dpb_batch batch;
    dpb_status st;

    DPB_TRY(dpb_dataset_open(&dataset_config, DPB_SPLIT_TRAIN, &dataset));
    loader_config.dataset = dataset;
    DPB_TRY_GOTO(st, dpb_loader_open(&loader_config, &loader), err_loader);
    source = dpb_loader_source(loader);
    DPB_TRY_GOTO(st, source.next(source.ctx, 1, &batch), err_batch);
    st = write_all(start, &batch, param);
err_batch:
    dpb_loader_close(loader);
err_loader:
    dpb_dataset_close(dataset);
    return st;
}

static dpb_status with_params(const struct start *start, dpb_workload *workload)
{
    size_t count = (size_t)start->model->param_count;
    float **param = calloc(count, sizeof(*param));
    dpb_status st = param ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t p = 0; st == DPB_OK && p < count; p++) {
        param[p] = calloc((size_t)start->model->params[p].numel, sizeof(float));
        st = param[p] ? DPB_OK : DPB_ERR_NO_MEMORY;
    }
    if (st == DPB_OK) {
        start->ops->bind(workload, param, param); /* there is no backward pass */
        st = start->ops->init_params(workload, start->seed);
    }
    if (st == DPB_OK)
        st = with_batch(start, param);
    for (size_t p = 0; param && p < count; p++)
        free(param[p]);
    free(param);
    return st;
}

static dpb_status with_device(const struct start *start)
{
    const struct dpb_device_config device_config = {.local_size = 1, .threads = 1};
    const struct dpb_recorder_config recorder_config = {.events_per_lane = 1};
    const struct dpb_rank_services alone = {.size = 1};
    struct dpb_launcher launcher = {0};
    struct dpb_workload_config config = {.launcher = &launcher,
                                         .batch_max = 2,
                                         .global_batch = 2,
                                         .options = start->options,
                                         .ranks = &alone,
                                         .seed = start->seed};
    dpb_workload *workload;
    dpb_status st;

    DPB_TRY(dpb_device_cpu_ops.open(&device_config, &launcher.device));
    DPB_TRY_GOTO(st, dpb_recorder_none_ops.open(&recorder_config, &launcher.recorder),
                 err_recorder);
    DPB_TRY_GOTO(st, start->ops->open(&config, &workload), err_workload);
    st = with_params(start, workload);
    start->ops->close(workload);
err_workload:
    dpb_recorder_none_ops.close(launcher.recorder);
err_recorder:
    dpb_device_cpu_ops.close(launcher.device);
    return st;
}

int main(int argc, char **argv)
{
    struct start start = {0};
    dpb_status st = DPB_OK;

    if (argc < 5 || argc % 2 == 0) {
        fputs("usage: peer_start WORKLOAD SEED GLOBAL_BATCH FILE [--option value]...\n", stderr);
        return 2;
    }
    start.ops = find_workload(argv[1]);
    if (!start.ops)
        return 2;
    start.seed = strtoull(argv[2], NULL, 10);
    start.batch = strtoll(argv[3], NULL, 10);
    start.options = calloc(1, start.ops->options->config_bytes);
    for (int i = 5; start.options && st == DPB_OK && i < argc; i += 2)
        st = set_option(start.ops->options, argv[i], argv[i + 1], start.options);
    if (!start.options || st != DPB_OK)
        return 2;
    start.model = start.ops->model(start.options);
    start.file = fopen(argv[4], "wb");
    if (!start.file) {
        dpb_error("\"%s\" cannot be written", argv[4]);
        return 3;
    }
    st = with_device(&start);
    if (fclose(start.file) != 0)
        st = DPB_ERR_IO;
    free(start.options);
    return st == DPB_OK ? 0 : 3;
}
