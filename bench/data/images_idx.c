/* Fashion-MNIST and MNIST: images and labels in a pair of IDX files. */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "idx.h"

struct collection {
    const char *name;
    const char *place;   /* where a package installs it; NULL: no package */
    const char *package; /* of Debian */
    double mean, std;    /* of the training set's pixels, 0..1 */
};

static const struct collection collections[] = {
        {.name = "fashion-mnist",
         .place = "/usr/share/datasets/fashion-mnist", /* Debian */
         .package = "dataset-fashion-mnist",
         .mean = 0.2860,
         .std = 0.3530},
        {.name = "mnist", .mean = 0.1307, .std = 0.3081},
};

struct idx_images {
    const struct collection *collection;
    const struct dpb_model *model;
    int64_t elements; /* per image */
    struct dpb_idx images, labels;
    int64_t file_bytes;  /* of both files */
    float value_of[256]; /* a pixel's byte, normalised */
};

static const char *file_name(enum dpb_split split, bool images)
{
    if (split == DPB_SPLIT_TRAIN)
        return images ? "train-images-idx3-ubyte" : "train-labels-idx1-ubyte";
    return images ? "t10k-images-idx3-ubyte" : "t10k-labels-idx1-ubyte";
}

static void hint_missing(const struct collection *collection)
{
    if (collection->package)
        dpb_log_hint("install the Debian package \"%s\", name the folder of the IDX files with "
                     "--data-dir, or use --data synthetic",
                     collection->package);
    else
        dpb_log_hint("name the folder of the IDX files, plain or .gz, with --data-dir, or use "
                     "--data synthetic");
}

/* The plain file, or the compressed one. */
static dpb_status find_file(const struct collection *collection, const char *folder,
                            const char *name, char **path)
{
    struct dpb_str text = {0};
    size_t plain_length;

    dpb_str_appendf(&text, "%s/%s", folder, name);
    plain_length = text.length;
    if (!text.failed && access(text.text, F_OK) != 0)
        dpb_str_append(&text, ".gz");
    if (text.failed) {
        dpb_error("dataset \"%s\": out of memory", collection->name);
        dpb_str_release(&text);
        return DPB_ERR_NO_MEMORY;
    }
    if (text.length > plain_length && access(text.text, F_OK) != 0) {
        dpb_error("dataset \"%s\": there is neither \"%s\" nor \"%s.gz\" in \"%s\"",
                  collection->name, name, name, folder);
        hint_missing(collection);
        dpb_str_release(&text);
        return DPB_ERR_NOT_FOUND;
    }
    *path = text.text;
    return DPB_OK;
}

static dpb_status read_file(const struct collection *collection, const char *folder,
                            const char *name, int rank, char **path, struct dpb_idx *idx)
{
    dpb_status st;

    DPB_TRY(find_file(collection, folder, name, path));
    st = dpb_idx_read(*path, rank, idx);
    if (st < 0) {
        free(*path);
        *path = NULL;
    }
    return st;
}

static dpb_status check_files(const struct idx_images *set, const char *images_path,
                              const char *labels_path)
{
    const struct dpb_idx *images = &set->images, *labels = &set->labels;
    const int64_t *dim = set->model->sample_dim;
    int classes = set->model->classes;

    if (dim[2] != 1 || images->dim[1] != dim[0] || images->dim[2] != dim[1]) {
        dpb_error("\"%s\" holds images of %lldx%lldx1, the workload takes %lldx%lldx%lld",
                  images_path, (long long)images->dim[1], (long long)images->dim[2],
                  (long long)dim[0], (long long)dim[1], (long long)dim[2]);
        dpb_log_hint("use --data synthetic, which has images of every size");
        return DPB_ERR_USAGE;
    }
    if (labels->dim[0] != images->dim[0]) {
        dpb_error("\"%s\" holds %lld labels, but \"%s\" holds %lld images", labels_path,
                  (long long)labels->dim[0], images_path, (long long)images->dim[0]);
        dpb_log_hint("both files must come from one dataset: get fresh copies of them");
        return DPB_ERR_CORRUPT;
    }
    for (int64_t i = 0; i < labels->dim[0]; i++) {
        if (labels->data[i] >= classes) {
            dpb_error("\"%s\": label %d of sample %lld (byte %lld) is not below %d, the number of "
                      "classes",
                      labels_path, labels->data[i], (long long)i,
                      (long long)(dpb_idx_header_bytes(1) + i), classes);
            return DPB_ERR_CORRUPT;
        }
    }
    return DPB_OK;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct idx_images *set = ctx;
    const uint8_t *from = set->images.data + id * set->elements;
    float *to = arrays->x + at * set->elements;

    for (int64_t i = 0; i < set->elements; i++)
        to[i] = set->value_of[from[i]];
    arrays->label[at] = set->labels.data[id];
}

static void close_images(void *ctx)
{
    struct idx_images *set = ctx;

    dpb_idx_release(&set->images);
    dpb_idx_release(&set->labels);
    free(set);
}

static dpb_status read_files(struct idx_images *set, const char *folder, enum dpb_split split,
                             char **images_path)
{
    const struct collection *collection = set->collection;
    char *labels_path = NULL;
    dpb_status st;

    if (!folder || !folder[0])
        folder = collection->place;
    if (!folder) {
        dpb_error("dataset \"%s\": no folder is given, and no package installs it",
                  collection->name);
        hint_missing(collection);
        return DPB_ERR_NOT_FOUND;
    }
    DPB_TRY(read_file(collection, folder, file_name(split, true), 3, images_path, &set->images));
    st = read_file(collection, folder, file_name(split, false), 1, &labels_path, &set->labels);
    if (st == DPB_OK)
        st = check_files(set, *images_path, labels_path);
    if (st == DPB_OK)
        set->file_bytes = dpb_file_bytes(*images_path) + dpb_file_bytes(labels_path);
    free(labels_path);
    return st;
}

dpb_status dpb_source_open_idx(const struct dpb_dataset_config *config, enum dpb_split split,
                               struct dpb_source *source)
{
    struct idx_images *set = calloc(1, sizeof(*set));
    char *images_path = NULL;
    dpb_status st;

    if (!set) {
        dpb_error("dataset \"%s\": out of memory", config->kind);
        return DPB_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < sizeof(collections) / sizeof(collections[0]); i++)
        if (strcmp(config->kind, collections[i].name) == 0)
            set->collection = &collections[i];
    set->model = config->model;
    set->elements = dpb_image_elements(config->model);
    st = read_files(set, config->folder, split, &images_path);
    if (st < 0) {
        free(images_path);
        close_images(set);
        return st;
    }
    for (int i = 0; i < 256; i++)
        set->value_of[i] = (float)((i / 255.0 - set->collection->mean) / set->collection->std);
    *source = (struct dpb_source){.ctx = set,
                                  .samples = set->images.dim[0],
                                  .origin = images_path,
                                  .files = 2,
                                  .held_bytes = set->images.dim[0] * (set->elements + 1),
                                  .file_bytes = set->file_bytes,
                                  .fetch = fetch,
                                  .close = close_images};
    return DPB_OK;
}

/* Of both sets. */
static int64_t known_samples(enum dpb_split split)
{
    return split == DPB_SPLIT_TRAIN ? 60000 : 10000;
}

/* The first dimension of the plain file, or of the compressed one; 0 when it cannot be read. */
static int64_t samples_in(const char *folder, const char *name)
{
    static const char *const suffixes[] = {"", ".gz"};
    char path[4096];
    uint8_t header[8];

    for (int i = 0; i < 2; i++) {
        if (snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffixes[i]) >= (int)sizeof(path))
            return 0;
        gzFile file = gzopen(path, "rbe");
        if (!file)
            continue;
        int got = gzread(file, header, sizeof(header));
        gzclose_r(file);
        return got < (int)sizeof(header)
                       ? 0
                       : (int64_t)header[4] << 24 | header[5] << 16 | header[6] << 8 | header[7];
    }
    return 0;
}

bool dpb_source_predict_idx(const struct dpb_dataset_config *config, enum dpb_split split,
                            struct dpb_dataset_size *size)
{
    const char *folder = config->folder;
    int64_t samples = 0;

    for (size_t i = 0; i < sizeof(collections) / sizeof(collections[0]); i++)
        if (strcmp(config->kind, collections[i].name) == 0 && (!folder || !folder[0]))
            folder = collections[i].place;
    if (folder)
        samples = samples_in(folder, file_name(split, true));
    size->samples = samples > 0 ? samples : known_samples(split);
    size->held_bytes = size->samples * (dpb_image_elements(config->model) + 1);
    return true;
}
