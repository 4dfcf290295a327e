#include "dpb_dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "source.h"

#define DIM_MAX ((int64_t)1 << 16)

struct kind {
    const char *name;
    enum dpb_input_kind input; /* of its samples */
    bool any_input;            /* or whatever the network takes */
    int64_t dim[3];            /* IMAGES: what its files hold */
    int classes;
    bool installed; /* by a package: what `auto` means for networks that it fits */
    bool shards;    /* has some, which ranks may own */
    dpb_source_open open;
    dpb_source_predict predict;
};

static const struct kind kinds[] = {
        {.name = "fashion-mnist",
         .input = DPB_INPUT_IMAGES,
         .dim = {28, 28, 1},
         .classes = 10,
         .installed = true,
         .open = dpb_source_open_idx,
         .predict = dpb_source_predict_idx},
        {.name = "mnist",
         .input = DPB_INPUT_IMAGES,
         .dim = {28, 28, 1},
         .classes = 10,
         .open = dpb_source_open_idx,
         .predict = dpb_source_predict_idx},
        {.name = "cifar10",
         .input = DPB_INPUT_IMAGES,
         .dim = {32, 32, 3},
         .classes = 10,
         .open = dpb_source_open_cifar,
         .predict = dpb_source_predict_cifar},
        {.name = "text",
         .input = DPB_INPUT_TOKENS,
         .open = dpb_source_open_text,
         .predict = dpb_source_predict_text},
        {.name = "interactions",
         .input = DPB_INPUT_INTERACTIONS,
         .open = dpb_source_open_interactions_csv,
         .predict = dpb_source_predict_interactions_csv},
        {.name = "synthetic", .any_input = true},
        {.name = "packed",
         .any_input = true,
         .shards = true,
         .open = dpb_source_open_packed,
         .predict = dpb_source_predict_packed},
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static const dpb_source_open synthetic_open[] = {
        [DPB_INPUT_IMAGES] = dpb_source_open_synthetic_images,
        [DPB_INPUT_TOKENS] = dpb_source_open_synthetic_tokens,
        [DPB_INPUT_INTERACTIONS] = dpb_source_open_synthetic_interactions,
};

struct dpb_dataset {
    const struct kind *kind;
    const struct dpb_model *model;
    struct dpb_source source;
};

static bool is_synthetic(const struct kind *kind)
{
    return !kind->open;
}

/* ---- which kind ---- */

static dpb_status find_kind(const char *name, const struct kind **found)
{
    const char *names[KIND_COUNT], *near;
    struct dpb_str list = {0};

    for (size_t i = 0; i < KIND_COUNT; i++) {
        names[i] = kinds[i].name;
        if (strcmp(name, kinds[i].name) == 0) {
            *found = &kinds[i];
            return DPB_OK;
        }
    }
    for (size_t i = 0; i < KIND_COUNT; i++)
        dpb_str_appendf(&list, "%s%s",
                        i == 0                ? ""
                        : i + 1 == KIND_COUNT ? " and "
                                              : ", ",
                        kinds[i].name);
    near = dpb_suggest(name, names, KIND_COUNT);
    dpb_error("there is no dataset \"%s\"", name);
    dpb_log_hint("%s%s%sthere are %s", near ? "did you mean \"" : "", near ? near : "",
                 near ? "\"? " : "", list.text ? list.text : "others");
    dpb_str_release(&list);
    return DPB_ERR_USAGE;
}

/* What a kind holds, or a network takes. */
static void describe_images(const int64_t dim[3], int classes, char *text, size_t bytes)
{
    snprintf(text, bytes, "%lldx%lldx%lld images of %d classes", (long long)dim[0],
             (long long)dim[1], (long long)dim[2], classes);
}

void dpb_model_describe(const struct dpb_model *model, char *text, size_t bytes)
{
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        describe_images(model->sample_dim, model->classes, text, bytes);
        return;
    case DPB_INPUT_TOKENS:
        snprintf(text, bytes, "sequences of %lld tokens of %lld, %lld predicted",
                 (long long)model->sequence, (long long)model->vocabulary,
                 (long long)model->predicted);
        return;
    case DPB_INPUT_INTERACTIONS:
        snprintf(text, bytes, "interactions of %lld numbers and %d categories",
                 (long long)model->features, model->tables);
        return;
    }
}

static bool fits(const struct kind *kind, const struct dpb_model *model)
{
    if (kind->any_input)
        return true;
    if (kind->input != model->input)
        return false;
    return kind->input != DPB_INPUT_IMAGES ||
           (memcmp(kind->dim, model->sample_dim, sizeof(kind->dim)) == 0 &&
            kind->classes <= model->classes);
}

static dpb_status does_not_fit(const struct kind *kind, const struct dpb_model *model)
{
    static const char *const held[] = {"images", "text", "interactions"};
    char takes[96], holds[96];
    struct dpb_str list = {0};

    dpb_model_describe(model, takes, sizeof(takes));
    snprintf(holds, sizeof(holds), "%s", held[kind->input]);
    if (kind->input == DPB_INPUT_IMAGES)
        describe_images(kind->dim, kind->classes, holds, sizeof(holds));
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (fits(&kinds[i], model))
            dpb_str_appendf(&list, "%s%s", list.length ? ", " : "", kinds[i].name);
    dpb_error("--data %s holds %s, the workload takes %s", kind->name, holds, takes);
    dpb_log_hint("what fits this workload: --data %s", list.text ? list.text : "synthetic");
    dpb_str_release(&list);
    return DPB_ERR_USAGE;
}

dpb_status dpb_dataset_kind_for(const char *name, const struct dpb_model *model, const char **kind)
{
    const struct kind *found = NULL;

    if (strcmp(name, "auto") != 0) {
        DPB_TRY(find_kind(name, &found));
        if (!fits(found, model))
            return does_not_fit(found, model);
        *kind = found->name;
        return DPB_OK;
    }
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (fits(&kinds[i], model) && (kinds[i].installed || is_synthetic(&kinds[i]))) {
            *kind = kinds[i].name;
            return DPB_OK;
        }
    }
    return DPB_ERR_INTERNAL; /* synthetic fits everything */
}

int64_t dpb_file_bytes(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

/* ---- open ---- */

static bool is_sound(const struct dpb_model *model)
{
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        for (int i = 0; i < 3; i++)
            if (model->sample_dim[i] < 1 || model->sample_dim[i] > DIM_MAX)
                return false;
        return model->classes >= 1;
    case DPB_INPUT_TOKENS:
        if (model->vocabulary <= DPB_TOKEN_WORDS || model->vocabulary > INT32_MAX)
            return false;
        if (model->next_token)
            return model->sequence >= 1 && model->predicted == model->sequence;
        /* a start, two words and two separators at least; only words are hidden */
        return model->sequence >= 5 && model->predicted >= 1 &&
               model->predicted <= model->sequence - 3;
    case DPB_INPUT_INTERACTIONS:
        for (int i = 0; i < model->tables; i++)
            if (model->table_rows[i] < 1 || model->table_rows[i] > INT32_MAX)
                return false;
        return model->features >= 0 && model->tables >= 0;
    }
    return false;
}

static dpb_status check_config(const struct dpb_dataset_config *config, const struct kind *kind)
{
    char takes[96];

    if (!is_sound(config->model) || config->samples < 0 || config->samples > UINT32_MAX) {
        dpb_model_describe(config->model, takes, sizeof(takes));
        dpb_error("dataset \"%s\": there cannot be %lld samples of %s", kind->name,
                  (long long)config->samples, takes);
        return DPB_ERR_USAGE;
    }
    if (!kind->any_input && kind->input != config->model->input)
        return does_not_fit(kind, config->model);
    if (config->sharding == DPB_SHARDING_SHARDS && !kind->shards) {
        dpb_error("--sharding shards cannot take effect: --data %s has no shards", kind->name);
        dpb_log_hint("make some with `dpbench data pack --shards %d` and use --data packed, or say "
                     "--sharding samples",
                     config->owners);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status open_kind(const struct kind *kind, const struct dpb_dataset_config *config,
                            enum dpb_split split, dpb_dataset **dataset)
{
    dpb_source_open open;
    dpb_dataset *opened = calloc(1, sizeof(*opened));
    dpb_status st;

    if (!opened) {
        dpb_error("dataset \"%s\": out of memory", kind->name);
        return DPB_ERR_NO_MEMORY;
    }
    opened->kind = kind;
    opened->model = config->model;
    open = is_synthetic(kind) ? synthetic_open[config->model->input] : kind->open;
    st = open(config, split, &opened->source);
    if (st < 0) {
        free(opened);
        return st;
    }
    *dataset = opened;
    return DPB_OK;
}

dpb_status dpb_dataset_open(const struct dpb_dataset_config *config, enum dpb_split split,
                            dpb_dataset **dataset)
{
    const struct kind *kind = NULL;
    dpb_status st;

    DPB_TRY(find_kind(config->kind, &kind));
    DPB_TRY(check_config(config, kind));
    st = open_kind(kind, config, split, dataset);
    if (st == DPB_ERR_NO_MEMORY)
        dpb_log_hint("free memory, or raise the limit that this process has (ulimit -v)");
    return st;
}

bool dpb_dataset_predict(const struct dpb_dataset_config *config, enum dpb_split split,
                         struct dpb_dataset_size *size)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(config->kind, kinds[i].name) != 0)
            continue;
        *size = (struct dpb_dataset_size){.samples = dpb_synthetic_samples(config, split)};
        return is_synthetic(&kinds[i]) || kinds[i].predict(config, split, size);
    }
    return false;
}

void dpb_dataset_close(dpb_dataset *dataset)
{
    if (!dataset)
        return;
    dataset->source.close(dataset->source.ctx);
    free(dataset->source.origin);
    free(dataset);
}

void dpb_dataset_describe(const dpb_dataset *dataset, struct dpb_dataset_info *info)
{
    *info = (struct dpb_dataset_info){.kind = dataset->kind->name,
                                      .synthetic = is_synthetic(dataset->kind) ||
                                                   dataset->source.synthetic,
                                      .source = dataset->source.origin,
                                      .samples = dataset->source.samples,
                                      .files = dataset->source.files,
                                      .file_bytes = dataset->source.file_bytes,
                                      .held_bytes = dataset->source.held_bytes,
                                      .deal = dataset->source.deal};
}

const struct dpb_model *dpb_dataset_model(const dpb_dataset *dataset)
{
    return dataset->model;
}

dpb_status dpb_dataset_fetch(const dpb_dataset *dataset, const int64_t *ids, int64_t count,
                             const struct dpb_batch_arrays *arrays)
{
    const struct dpb_source *source = &dataset->source;

    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= source->samples) {
            dpb_error("dataset \"%s\": there is no sample %lld among %lld", dataset->kind->name,
                      (long long)ids[i], (long long)source->samples);
            return DPB_ERR_USAGE;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        if (source->fetch)
            source->fetch(source->ctx, ids[i], arrays, i);
        else
            DPB_TRY(source->read(source->ctx, ids[i], arrays, i));
    }
    return source->confirm ? source->confirm(source->ctx) : DPB_OK;
}
