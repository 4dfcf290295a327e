#include "dpb_dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "idx.h"
#include "synthetic.h"

#define DIM_MAX             ((int64_t)1 << 16)
#define SYNTHETIC_TRAIN     60000
#define SYNTHETIC_TEST      10000
#define FASHION_MNIST_PLACE "/usr/share/datasets/fashion-mnist" /* Debian */

struct kind {
    const char *name;
    const char *place;   /* where a package installs it; NULL: no package */
    const char *package; /* of Debian */
    double mean, std;    /* of the training set's pixels, 0..1 */
};

static const struct kind kinds[] = {
        {.name = "fashion-mnist",
         .place = FASHION_MNIST_PLACE,
         .package = "dataset-fashion-mnist",
         .mean = 0.2860,
         .std = 0.3530},
        {.name = "mnist", .mean = 0.1307, .std = 0.3081},
        {.name = "synthetic"},
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

struct dpb_dataset {
    const struct kind *kind;
    int classes;
    int64_t samples;
    int64_t elements; /* per sample */
    char *source;
    dpb_synthetic *synthetic; /* or NULL, and: */
    struct dpb_idx images, labels;
    float value_of[256]; /* a pixel's byte, normalised */
};

/* ---- IDX files ---- */

static const char *file_name(enum dpb_split split, bool images)
{
    if (split == DPB_SPLIT_TRAIN)
        return images ? "train-images-idx3-ubyte" : "train-labels-idx1-ubyte";
    return images ? "t10k-images-idx3-ubyte" : "t10k-labels-idx1-ubyte";
}

static void hint_missing(const struct kind *kind)
{
    if (kind->package)
        dpb_log_hint("install the Debian package \"%s\", name the folder of the IDX files with "
                     "--data-dir, or use --data synthetic",
                     kind->package);
    else
        dpb_log_hint("name the folder of the IDX files, plain or .gz, with --data-dir, or use "
                     "--data synthetic");
}

/* The plain file, or the compressed one. */
static dpb_status find_file(const struct kind *kind, const char *folder, const char *name,
                            char **path)
{
    struct dpb_str text = {0};
    size_t plain_length;

    dpb_str_appendf(&text, "%s/%s", folder, name);
    plain_length = text.length;
    if (!text.failed && access(text.text, F_OK) != 0)
        dpb_str_append(&text, ".gz");
    if (text.failed) {
        dpb_error("dataset \"%s\": out of memory", kind->name);
        dpb_str_release(&text);
        return DPB_ERR_NO_MEMORY;
    }
    if (text.length > plain_length && access(text.text, F_OK) != 0) {
        dpb_error("dataset \"%s\": there is neither \"%s\" nor \"%s.gz\" in \"%s\"", kind->name,
                  name, name, folder);
        hint_missing(kind);
        dpb_str_release(&text);
        return DPB_ERR_NOT_FOUND;
    }
    *path = text.text;
    return DPB_OK;
}

static dpb_status read_file(const struct kind *kind, const char *folder, const char *name, int rank,
                            char **path, struct dpb_idx *idx)
{
    dpb_status st;

    DPB_TRY(find_file(kind, folder, name, path));
    st = dpb_idx_read(*path, rank, idx);
    if (st < 0) {
        free(*path);
        *path = NULL;
    }
    return st;
}

static dpb_status check_files(const struct dpb_dataset *dataset, const char *labels_path,
                              const int64_t sample_dim[3])
{
    const struct dpb_idx *images = &dataset->images, *labels = &dataset->labels;

    if (sample_dim[2] != 1 || images->dim[1] != sample_dim[0] || images->dim[2] != sample_dim[1]) {
        dpb_error("\"%s\" holds images of %lldx%lldx1, the workload takes %lldx%lldx%lld",
                  dataset->source, (long long)images->dim[1], (long long)images->dim[2],
                  (long long)sample_dim[0], (long long)sample_dim[1], (long long)sample_dim[2]);
        dpb_log_hint("use --data synthetic, which has images of every size");
        return DPB_ERR_USAGE;
    }
    if (labels->dim[0] != images->dim[0]) {
        dpb_error("\"%s\" holds %lld labels, but \"%s\" holds %lld images", labels_path,
                  (long long)labels->dim[0], dataset->source, (long long)images->dim[0]);
        dpb_log_hint("both files must come from one dataset: get fresh copies of them");
        return DPB_ERR_CORRUPT;
    }
    for (int64_t i = 0; i < labels->dim[0]; i++) {
        if (labels->data[i] >= dataset->classes) {
            dpb_error("\"%s\": label %d of sample %lld (byte %lld) is not below %d, the number of "
                      "classes",
                      labels_path, labels->data[i], (long long)i,
                      (long long)(dpb_idx_header_bytes(1) + i), dataset->classes);
            return DPB_ERR_CORRUPT;
        }
    }
    return DPB_OK;
}

static dpb_status open_files(struct dpb_dataset *dataset, const struct dpb_dataset_config *config,
                             enum dpb_split split)
{
    const struct kind *kind = dataset->kind;
    const char *folder = config->folder && config->folder[0] ? config->folder : kind->place;
    char *labels_path = NULL;
    dpb_status st;

    if (!folder) {
        dpb_error("dataset \"%s\": no folder is given, and no package installs it", kind->name);
        hint_missing(kind);
        return DPB_ERR_NOT_FOUND;
    }
    DPB_TRY(read_file(kind, folder, file_name(split, true), 3, &dataset->source, &dataset->images));
    DPB_TRY(read_file(kind, folder, file_name(split, false), 1, &labels_path, &dataset->labels));
    st = check_files(dataset, labels_path, config->sample_dim);
    free(labels_path);
    DPB_TRY(st);
    dataset->samples = dataset->images.dim[0];
    for (int i = 0; i < 256; i++)
        dataset->value_of[i] = (float)((i / 255.0 - kind->mean) / kind->std);
    return DPB_OK;
}

/* ---- synthetic ---- */

static dpb_status open_synthetic(struct dpb_dataset *dataset,
                                 const struct dpb_dataset_config *config, enum dpb_split split)
{
    dataset->samples = config->samples;
    if (config->samples == 0)
        dataset->samples = split == DPB_SPLIT_TRAIN ? SYNTHETIC_TRAIN : SYNTHETIC_TEST;
    dataset->source = strdup("synthetic");
    if (!dataset->source) {
        dpb_error("cannot make the synthetic dataset: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    return dpb_synthetic_open(config, split, &dataset->synthetic);
}

/* ---- public ---- */

static dpb_status find_kind(const char *name, const struct kind **found)
{
    const char *names[KIND_COUNT], *near;

    for (size_t i = 0; i < KIND_COUNT; i++) {
        names[i] = kinds[i].name;
        if (strcmp(name, kinds[i].name) == 0) {
            *found = &kinds[i];
            return DPB_OK;
        }
    }
    near = dpb_suggest(name, names, KIND_COUNT);
    dpb_error("there is no dataset \"%s\"", name);
    if (near)
        dpb_log_hint("did you mean \"%s\"? There are fashion-mnist, mnist and synthetic", near);
    else
        dpb_log_hint("there are fashion-mnist, mnist and synthetic");
    return DPB_ERR_USAGE;
}

static dpb_status check_config(const struct dpb_dataset_config *config)
{
    for (int i = 0; i < 3; i++) {
        if (config->sample_dim[i] < 1 || config->sample_dim[i] > DIM_MAX) {
            dpb_error("dataset \"%s\": no image can be %lldx%lldx%lld", config->kind,
                      (long long)config->sample_dim[0], (long long)config->sample_dim[1],
                      (long long)config->sample_dim[2]);
            return DPB_ERR_USAGE;
        }
    }
    if (config->classes < 1 || config->samples < 0) {
        dpb_error("dataset \"%s\": there cannot be %d classes and %lld samples", config->kind,
                  config->classes, (long long)config->samples);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

dpb_status dpb_dataset_open(const struct dpb_dataset_config *config, enum dpb_split split,
                            dpb_dataset **dataset)
{
    const struct kind *kind = NULL;
    dpb_dataset *opened;
    dpb_status st;

    DPB_TRY(find_kind(config->kind, &kind));
    DPB_TRY(check_config(config));
    opened = calloc(1, sizeof(*opened));
    if (!opened) {
        dpb_error("dataset \"%s\": out of memory", kind->name);
        return DPB_ERR_NO_MEMORY;
    }
    opened->kind = kind;
    opened->classes = config->classes;
    opened->elements = config->sample_dim[0] * config->sample_dim[1] * config->sample_dim[2];
    st = strcmp(kind->name, "synthetic") == 0 ? open_synthetic(opened, config, split)
                                              : open_files(opened, config, split);
    if (st < 0) {
        dpb_dataset_close(opened);
        return st;
    }
    *dataset = opened;
    return DPB_OK;
}

void dpb_dataset_close(dpb_dataset *dataset)
{
    if (!dataset)
        return;
    dpb_synthetic_close(dataset->synthetic);
    dpb_idx_release(&dataset->images);
    dpb_idx_release(&dataset->labels);
    free(dataset->source);
    free(dataset);
}

void dpb_dataset_describe(const dpb_dataset *dataset, struct dpb_dataset_info *info)
{
    *info = (struct dpb_dataset_info){.kind = dataset->kind->name,
                                      .synthetic = dataset->synthetic != NULL,
                                      .source = dataset->source,
                                      .samples = dataset->samples,
                                      .classes = dataset->classes};
}

int64_t dpb_dataset_sample_elements(const dpb_dataset *dataset)
{
    return dataset->elements;
}

dpb_status dpb_dataset_fetch(const dpb_dataset *dataset, const int64_t *ids, int64_t count,
                             float *x, int32_t *label)
{
    int64_t elements = dataset->elements;

    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= dataset->samples) {
            dpb_error("dataset \"%s\": there is no sample %lld among %lld", dataset->kind->name,
                      (long long)ids[i], (long long)dataset->samples);
            return DPB_ERR_USAGE;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        float *to = x + i * elements;
        const uint8_t *from;

        if (dataset->synthetic) {
            label[i] = dpb_synthetic_fetch(dataset->synthetic, ids[i], to);
            continue;
        }
        from = dataset->images.data + ids[i] * elements;
        for (int64_t e = 0; e < elements; e++)
            to[e] = dataset->value_of[from[e]];
        label[i] = dataset->labels.data[ids[i]];
    }
    return DPB_OK;
}
