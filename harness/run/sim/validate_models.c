/* Networks that published tables name: those of this program, lists of layers, or so many
 * parameters in tensors of one size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "validate.h"
#include "validate_texts.h"

static dpb_status no_memory(void)
{
    dpb_error("validate: out of memory for models");
    return DPB_ERR_NO_MEMORY;
}

/* ---- results/published/models.csv ---- */

static dpb_status read_model(const struct dpb_csv *csv, size_t row, struct validate_model *model)
{
    const struct {
        const char *column;
        double *to;
    } numbers[] = {{"parameters", &model->parameters},
                   {"tensors", &model->tensors},
                   {"batch_full", &model->batch_full},
                   {"batch_reduced", &model->batch_reduced},
                   {"tokens_per_sample", &model->tokens_per_sample}};

    model->name = dpb_csv_text(csv, row, dpb_csv_column(csv, "model"));
    model->workload = dpb_csv_text(csv, row, dpb_csv_column(csv, "workload"));
    model->layers = dpb_csv_text(csv, row, dpb_csv_column(csv, "layers"));
    model->optimizer = dpb_csv_text(csv, row, dpb_csv_column(csv, "optimizer"));
    model->kind = dpb_csv_text(csv, row, dpb_csv_column(csv, "kind"));
    model->source = dpb_csv_text(csv, row, dpb_csv_column(csv, "source"));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        DPB_TRY(dpb_csv_number(csv, row, dpb_csv_column(csv, numbers[i].column), numbers[i].to));
    return DPB_OK;
}

dpb_status validate_models_read(struct validate_models *models)
{
    DPB_TRY(dpb_csv_parse(validate_models_text, validate_models_text_bytes, "models.csv",
                          &models->csv));
    models->model = calloc(models->csv.rows, sizeof(*models->model));
    if (!models->model)
        return no_memory();
    for (size_t i = 0; i < models->csv.rows; i++)
        DPB_TRY(read_model(&models->csv, i, &models->model[i]));
    return DPB_OK;
}

void validate_models_release(struct validate_models *models)
{
    for (size_t i = 0; models->model && i < models->csv.rows; i++)
        validate_model_network_free(models->model[i].made);
    free(models->model);
    dpb_csv_release(&models->csv);
    *models = (struct validate_models){0};
}

struct validate_model *validate_models_find(struct validate_models *models, const char *text)
{
    char squeezed[256];

    validate_squeeze(text, squeezed, sizeof(squeezed));
    for (size_t i = 0; i < models->csv.rows; i++)
        if (strstr(squeezed, dpb_csv_text(&models->csv, i, 0)))
            return &models->model[i];
    return NULL;
}

/* ---- networks ---- */

/* One layer per tensor: all that the schedule needs. */
struct made {
    struct dpb_model model; /* first */
    struct dpb_param_info *params;
    struct dpb_layer_info *layers;
    int *ready_order;
};

void validate_model_network_free(struct dpb_model *network)
{
    struct made *made = (struct made *)(void *)network;

    if (!made)
        return;
    free(made->params);
    free(made->layers);
    free(made->ready_order);
    free(made);
}

static struct made *make(int count)
{
    struct made *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->params = calloc((size_t)count, sizeof(*made->params));
    made->layers = calloc((size_t)count, sizeof(*made->layers));
    made->ready_order = calloc((size_t)count, sizeof(*made->ready_order));
    if (!made->params || !made->layers || !made->ready_order) {
        validate_model_network_free(&made->model);
        return NULL;
    }
    made->model = (struct dpb_model){.params = made->params,
                                     .param_count = count,
                                     .layers = made->layers,
                                     .layer_count = count,
                                     .ready_order = made->ready_order};
    return made;
}

/* A tensor without multiply-adds has its elements' additions. */
static void set_tensor(struct made *made, int i, int64_t numel, int64_t macs, int64_t out)
{
    made->params[i] = (struct dpb_param_info){
            .name = "tensor", .rank = 1, .dim = {numel}, .numel = numel, .layer = i};
    made->layers[i] = (struct dpb_layer_info){.name = "tensor",
                                              .kind = "linear",
                                              .fwd_macs_per_sample = macs > 0 ? macs : numel,
                                              .out_elements_per_sample = out};
    made->ready_order[i] = made->model.param_count - 1 - i;
}

static const struct validate_layers *find_layers(const char *name)
{
    for (size_t i = 0; i < sizeof(validate_layers) / sizeof(validate_layers[0]); i++)
        if (strcmp(validate_layers[i].name, name) == 0)
            return &validate_layers[i];
    return NULL;
}

static dpb_status network_of_layers(struct validate_model *model)
{
    const struct validate_layers *layers = find_layers(model->layers);
    struct dpb_csv csv;
    struct made *made = NULL;
    dpb_status st;

    if (!layers) {
        dpb_error("models.csv: there is no list of layers \"%s\"", model->layers);
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(dpb_csv_parse(layers->text, *layers->bytes, layers->name, &csv));
    made = make((int)csv.rows);
    st = made ? DPB_OK : no_memory();
    for (size_t i = 0; i < csv.rows && st == DPB_OK; i++) {
        double numel, macs, out;

        DPB_TRY_GOTO(st, dpb_csv_number(&csv, i, dpb_csv_column(&csv, "numel"), &numel), done);
        DPB_TRY_GOTO(st,
                     dpb_csv_number(&csv, i, dpb_csv_column(&csv, "fwd_macs_per_sample"), &macs),
                     done);
        DPB_TRY_GOTO(st,
                     dpb_csv_number(&csv, i, dpb_csv_column(&csv, "out_elems_per_sample"), &out),
                     done);
        set_tensor(made, (int)i, (int64_t)numel, isnan(macs) ? 0 : (int64_t)macs,
                   isnan(out) ? 0 : (int64_t)out);
    }
done:
    dpb_csv_release(&csv);
    if (st < 0)
        validate_model_network_free(&made->model);
    else
        model->made = &made->model;
    return st;
}

static dpb_status network_of_count(struct validate_model *model)
{
    const int tensors = (int)model->tensors;
    struct made *made = make(tensors);

    if (!made)
        return no_memory();
    for (int i = 0; i < tensors; i++)
        set_tensor(made, i, (int64_t)(model->parameters / tensors), 0, 0);
    model->made = &made->model;
    return DPB_OK;
}

dpb_status validate_model_network(struct validate_model *model)
{
    if (model->made)
        return DPB_OK;
    return model->layers[0] ? network_of_layers(model) : network_of_count(model);
}
