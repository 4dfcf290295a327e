#include "dpb_interactions_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_units.h"
#include "source.h"

#define DECIMALS 1e6 /* of numbers */

static dpb_status cannot_write(const char *path)
{
    dpb_error("cannot write \"%s\": %s", path, strerror(errno));
    dpb_log_hint("name a new file with -o, in a folder that can be written, on a disk with room");
    return errno == EEXIST ? DPB_ERR_USAGE : DPB_ERR_IO;
}

static void write_row(FILE *file, const struct dpb_model *model, const struct dpb_batch_arrays *row)
{
    char text[DPB_UNIT_TEXT_BYTES];

    fprintf(file, "%d", row->label[0]);
    for (int64_t i = 0; i < model->features; i++) {
        dpb_format_f64(round(row->x[i] * DECIMALS) / DECIMALS, text, sizeof(text));
        fprintf(file, ",%s", text);
    }
    for (int t = 0; t < model->tables; t++)
        fprintf(file, ",%d", row->indices[t]);
    fputc('\n', file);
}

static dpb_status write_rows(const dpb_dataset *dataset, const char *path, FILE *file)
{
    const struct dpb_model *model = dpb_dataset_model(dataset);
    struct dpb_batch_arrays row;
    struct dpb_dataset_info info;
    dpb_status st = DPB_OK;

    dpb_dataset_describe(dataset, &info);
    DPB_TRY(dpb_batch_arrays_open(model, 1, &row));
    for (int64_t id = 0; id < info.samples && st == DPB_OK; id++) {
        st = dpb_dataset_fetch(dataset, &id, 1, &row);
        if (st == DPB_OK)
            write_row(file, model, &row);
        if (ferror(file))
            st = cannot_write(path);
    }
    dpb_batch_arrays_release(&row);
    return st;
}

static dpb_status write_file(const dpb_dataset *dataset, uint64_t seed, const char *path)
{
    FILE *file = fopen(path, "wxe");

    if (!file)
        return cannot_write(path);
    fprintf(file, DPB_INTERACTIONS_SYNTHETIC ": made by dpbench with seed %" PRIu64 "\n", seed);
    dpb_status st = write_rows(dataset, path, file);
    if (fclose(file) != 0 && st == DPB_OK)
        st = cannot_write(path);
    if (st < 0)
        unlink(path);
    return st;
}

dpb_status dpb_interactions_csv_write(const struct dpb_model *model, uint64_t seed, int64_t rows,
                                      const char *path)
{
    struct dpb_dataset_config config = {
            .kind = "synthetic", .model = model, .seed = seed, .samples = rows};
    dpb_dataset *dataset;
    char takes[96];

    if (model->input != DPB_INPUT_INTERACTIONS || rows < 2) {
        dpb_model_describe(model, takes, sizeof(takes));
        dpb_error("%" PRId64 " interactions cannot be made for a workload that takes %s", rows,
                  takes);
        dpb_log_hint("name a recommendation network with --workload, such as dlrm-small, and at "
                     "least 2 --samples");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset));
    dpb_status st = write_file(dataset, seed, path);
    dpb_dataset_close(dataset);
    return st;
}
