#include "dpb_test.h"
#include "model_table.h"

#include "dpb_str.h"

void model_table_read(const char *name, struct model_table *table)
{
    struct dpb_str file = {0};
    struct dpb_str path = {0};
    int capacity = 0;
    char *save = NULL;

    dpb_str_appendf(&path, "%s/%s.csv", DPB_TEST_DATA, name);
    assert_int_equal(dpb_file_read(path.text, &file), DPB_OK);
    dpb_str_release(&path);

    for (const char *c = file.text; *c; c++)
        capacity += *c == '\n';
    *table = (struct model_table){
            .params = calloc((size_t)capacity + 1, sizeof(*table->params)),
            .text = file.text,
    };
    assert_non_null(table->params);

    char *line = strtok_r(file.text, "\n", &save); /* the heading */
    assert_string_equal(line, "name,shape,numel");
    while ((line = strtok_r(NULL, "\n", &save))) {
        struct dpb_param_info *param = &table->params[table->param_count++];
        char *shape = strchr(line, ',');
        char *numel;
        int64_t product = 1;

        assert_non_null(shape);
        *shape++ = '\0';
        numel = strchr(shape, ',');
        assert_non_null(numel);
        *numel++ = '\0';

        param->name = line;
        param->dtype = DPB_F32;
        param->numel = strtoll(numel, NULL, 10);
        for (char *dim = shape; *dim; dim += *dim == 'x') {
            assert_true(param->rank < DPB_TENSOR_RANK_MAX);
            param->dim[param->rank] = strtoll(dim, &dim, 10);
            product *= param->dim[param->rank++];
        }
        assert_int_equal(product, param->numel);
    }
    assert_true(table->param_count > 0);
}

void model_table_release(struct model_table *table)
{
    free(table->params);
    free(table->text);
    *table = (struct model_table){0};
}
