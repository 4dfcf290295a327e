#include "layer_table.h"

#include "dpb_test.h"

struct row {
    int index;
    char name[64];
    int rank;
    int64_t dim[DPB_TENSOR_RANK_MAX];
    int64_t numel, bytes;
    char kind[32];
    int64_t macs, out_elements;
};

static const char *torch_kind(const char *kind)
{
    if (strcmp(kind, "conv2d") == 0)
        return "Conv2d";
    if (strcmp(kind, "linear") == 0)
        return "Linear";
    if (strcmp(kind, "batchnorm2d") == 0)
        return "BatchNorm2d";
    return kind;
}

static void parse_row(const char *line, struct row *row)
{
    char shape[64], in[64], out[64], *at = shape;
    long long numel, bytes, macs, elements;

    assert_int_equal(sscanf(line, "%d,%63[^,],%63[^,],%lld,%lld,%31[^,],%63[^,],%63[^,],%lld,%lld",
                            &row->index, row->name, shape, &numel, &bytes, row->kind, in, out,
                            &macs, &elements),
                     10);
    row->numel = numel;
    row->bytes = bytes;
    row->macs = macs;
    row->out_elements = elements;
    for (row->rank = 0; *at; row->rank++) {
        assert_true(row->rank < DPB_TENSOR_RANK_MAX);
        row->dim[row->rank] = strtoll(at, &at, 10);
        if (*at == 'x')
            at++;
    }
}

/* The first parameter of a layer carries the layer's MACs and output elements, the others 0. */
static void check_row(const struct dpb_model *model, const struct row *row)
{
    const struct dpb_param_info *param = &model->params[row->index];
    const struct dpb_layer_info *layer = &model->layers[param->layer];
    bool first = row->index == 0 || model->params[row->index - 1].layer != param->layer;

    assert_string_equal(param->name, row->name);
    assert_int_equal(param->dtype, DPB_F32);
    assert_int_equal(param->rank, row->rank);
    for (int i = 0; i < row->rank; i++)
        assert_int_equal(param->dim[i], row->dim[i]);
    assert_int_equal(param->numel, row->numel);
    assert_int_equal(4 * param->numel, row->bytes);
    assert_string_equal(torch_kind(layer->kind), row->kind);
    assert_int_equal(row->macs, first ? layer->fwd_macs_per_sample : 0);
    assert_int_equal(row->out_elements, first ? layer->out_elements_per_sample : 0);
    assert_memory_equal(param->name, layer->name, strlen(layer->name));
    assert_int_equal(param->name[strlen(layer->name)], '.');
}

void layer_table_check(const struct dpb_model *model, const char *name)
{
    char path[1024], line[512];
    int rows = 0;
    FILE *table;

    snprintf(path, sizeof(path), "%s/%s.csv", DPB_TEST_DATA, name);
    table = fopen(path, "r");
    assert_non_null(table);
    assert_non_null(fgets(line, sizeof(line), table));
    while (fgets(line, sizeof(line), table)) {
        struct row row;

        parse_row(line, &row);
        assert_int_equal(row.index, rows);
        assert_true(rows < model->param_count);
        check_row(model, &row);
        rows++;
    }
    fclose(table);
    assert_int_equal(rows, model->param_count);
}
