/* CIFAR-10 in its binary version: data_batch_1.bin to data_batch_5.bin, test_batch.bin, each a row
 * of records of one label byte and 32x32 red, then green, then blue bytes
 * (cs.toronto.edu/~kriz/cifar.html). */
#include "source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"

#define PLANE        (32 * 32)
#define CHANNELS     3
#define RECORD_BYTES (1 + CHANNELS * PLANE)
#define CLASSES      10
#define FILE_RECORDS 10000 /* of each published file */

/* Of the training set's pixels, 0..1: the usual published values. */
static const double mean_of[CHANNELS] = {0.4914, 0.4822, 0.4465};
static const double std_of[CHANNELS] = {0.2470, 0.2435, 0.2616};

struct cifar {
    struct dpb_str records;
    float value_of[CHANNELS][256]; /* a pixel's byte, normalised */
};

static void hint_missing(void)
{
    dpb_log_hint("name the folder of the binary version (cifar-10-batches-bin) with --data-dir, or "
                 "use --data synthetic");
}

static dpb_status check_records(const struct cifar *set, size_t from, const char *path)
{
    size_t bytes = set->records.length - from;

    if (bytes % RECORD_BYTES != 0 || bytes == 0) {
        dpb_error("cannot read \"%s\": it ends at byte %zu, within record %zu of %d bytes each",
                  path, bytes, bytes / RECORD_BYTES, RECORD_BYTES);
        dpb_log_hint("the file is damaged: get a fresh copy of it");
        return DPB_ERR_CORRUPT;
    }
    for (size_t at = 0; at < bytes; at += RECORD_BYTES) {
        uint8_t label = (uint8_t)set->records.text[from + at];

        if (label >= CLASSES) {
            dpb_error("\"%s\": label %d of record %zu (byte %zu) is not below %d, the number of "
                      "classes",
                      path, label, at / RECORD_BYTES, at, CLASSES);
            dpb_log_hint("the file is damaged, or not CIFAR-10's binary version");
            return DPB_ERR_CORRUPT;
        }
    }
    return DPB_OK;
}

/* Append the records of one file; tells its path. */
static dpb_status read_file(struct cifar *set, const char *folder, const char *name, char **path)
{
    size_t from = set->records.length;

    *path = dpb_path_join(folder, name);
    if (!*path) {
        dpb_error("dataset \"cifar10\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    if (access(*path, F_OK) != 0) {
        dpb_error("dataset \"cifar10\": there is no \"%s\" in \"%s\"", name, folder);
        hint_missing();
        return DPB_ERR_NOT_FOUND;
    }
    DPB_TRY(dpb_file_read(*path, &set->records));
    return check_records(set, from, *path);
}

static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/* Train is five files, test is one. */
static void names_of(enum dpb_split split, int *first, int *end)
{
    *first = split == DPB_SPLIT_TRAIN ? 0 : 5;
    *end = split == DPB_SPLIT_TRAIN ? 5 : 6;
}

/* `origin` is the first one's path. */
static dpb_status read_files(struct cifar *set, const char *folder, enum dpb_split split,
                             char **origin)
{
    int first, end;

    names_of(split, &first, &end);
    if (!folder || !folder[0]) {
        dpb_error("dataset \"cifar10\": no folder is given, and no package installs it");
        hint_missing();
        return DPB_ERR_NOT_FOUND;
    }
    DPB_TRY(read_file(set, folder, names[first], origin));
    for (int i = first + 1; i < end; i++) {
        char *path = NULL;
        dpb_status st = read_file(set, folder, names[i], &path);

        free(path);
        DPB_TRY(st);
    }
    return DPB_OK;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct cifar *set = ctx;
    const uint8_t *record = (const uint8_t *)set->records.text + id * RECORD_BYTES;
    float *x = arrays->x + at * CHANNELS * PLANE;

    arrays->label[at] = record[0];
    for (int p = 0; p < PLANE; p++)
        for (int c = 0; c < CHANNELS; c++)
            x[p * CHANNELS + c] = set->value_of[c][record[1 + c * PLANE + p]];
}

static void close_cifar(void *ctx)
{
    struct cifar *set = ctx;

    dpb_str_release(&set->records);
    free(set);
}

static dpb_status check_model(const struct dpb_model *model)
{
    const int64_t *dim = model->sample_dim;

    if (dim[0] == 32 && dim[1] == 32 && dim[2] == CHANNELS && model->classes >= CLASSES)
        return DPB_OK;
    dpb_error("CIFAR-10 holds images of 32x32x3 in 10 classes, the workload takes %lldx%lldx%lld "
              "in %d",
              (long long)dim[0], (long long)dim[1], (long long)dim[2], model->classes);
    dpb_log_hint("use --data synthetic, which has images of every size");
    return DPB_ERR_USAGE;
}

dpb_status dpb_source_open_cifar(const struct dpb_dataset_config *config, enum dpb_split split,
                                 struct dpb_source *source)
{
    struct cifar *set;
    char *origin = NULL;
    dpb_status st;

    DPB_TRY(check_model(config->model));
    set = calloc(1, sizeof(*set));
    if (!set) {
        dpb_error("dataset \"cifar10\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    st = read_files(set, config->folder, split, &origin);
    if (st < 0) {
        free(origin);
        close_cifar(set);
        return st;
    }
    for (int c = 0; c < CHANNELS; c++)
        for (int i = 0; i < 256; i++)
            set->value_of[c][i] = (float)((i / 255.0 - mean_of[c]) / std_of[c]);
    *source = (struct dpb_source){.ctx = set,
                                  .samples = (int64_t)set->records.length / RECORD_BYTES,
                                  .origin = origin,
                                  .files = split == DPB_SPLIT_TRAIN ? 5 : 1,
                                  .file_bytes = (int64_t)set->records.length,
                                  .held_bytes = (int64_t)set->records.length,
                                  .fetch = fetch,
                                  .close = close_cifar};
    return DPB_OK;
}

bool dpb_source_predict_cifar(const struct dpb_dataset_config *config, enum dpb_split split,
                              struct dpb_dataset_size *size)
{
    int64_t bytes = 0;
    int first, end;

    names_of(split, &first, &end);
    for (int i = first; i < end && config->folder; i++) {
        char *path = dpb_path_join(config->folder, names[i]);

        bytes += path ? dpb_file_bytes(path) : 0;
        free(path);
    }
    size->samples = bytes > 0 ? bytes / RECORD_BYTES : (end - first) * (int64_t)FILE_RECORDS;
    size->held_bytes = size->samples * RECORD_BYTES;
    return true;
}
