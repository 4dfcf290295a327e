#include "op_data.h"

#include <math.h>

#include "dpb_log.h"
#include "dpb_reference.h"
#include "dpb_rng.h"

/* Of arrays of floats, behind a 64-byte boundary. */
#ifndef OP_DATA_SHIFT_BYTES
#define OP_DATA_SHIFT_BYTES 4
#endif

void op_data_release(struct op_data *data)
{
    for (int i = 0; i < data->count; i++)
        free(data->memory[i]);
    data->count = 0;
}

void *op_data_bytes(struct op_data *data, size_t bytes)
{
    void *memory = calloc(1, bytes);

    assert_non_null(memory);
    assert_true(data->count < (int)(sizeof(data->memory) / sizeof(data->memory[0])));
    data->memory[data->count++] = memory;
    return memory;
}

static struct dpb_rng next_rng(struct op_data *data)
{
    struct dpb_rng rng;

    dpb_rng_init(&rng, 20261201, data->stream++);
    return rng;
}

float *op_data_f32(struct op_data *data, int64_t numel)
{
    struct dpb_rng rng = next_rng(data);
    /* 64 to find the boundary, the rest to leave it */
    uintptr_t memory = (uintptr_t)op_data_bytes(data, (size_t)numel * sizeof(float) + 68);
    float *values = (float *)(((memory + 63) & ~(uintptr_t)63) + OP_DATA_SHIFT_BYTES);

    for (int64_t i = 0; i < numel; i++)
        values[i] = (float)(2.0 * dpb_rng_uniform(&rng) - 1.0);
    return values;
}

double *op_data_f64(struct op_data *data, int64_t numel)
{
    struct dpb_rng rng = next_rng(data);
    double *values = op_data_bytes(data, (size_t)numel * sizeof(double));

    for (int64_t i = 0; i < numel; i++)
        values[i] = 2.0 * dpb_rng_uniform(&rng) - 1.0;
    return values;
}

double *op_data_distinct(struct op_data *data, int64_t numel)
{
    struct dpb_rng rng = next_rng(data);
    int64_t *order = op_data_bytes(data, (size_t)numel * sizeof(int64_t));
    double *values = op_data_bytes(data, (size_t)numel * sizeof(double));

    for (int64_t i = 0; i < numel; i++)
        order[i] = i;
    dpb_rng_shuffle_i64(&rng, order, numel);
    for (int64_t i = 0; i < numel; i++)
        values[i] = (2.0 * (double)order[i] + 0.5) / (double)numel - 1.0;
    return values;
}

float *op_data_abs(struct op_data *data, const float *values, int64_t numel)
{
    float *result;

    if (!values)
        return NULL;
    result = op_data_f32(data, numel);
    for (int64_t i = 0; i < numel; i++)
        result[i] = fabsf(values[i]);
    return result;
}

int32_t *op_data_labels(struct op_data *data, int64_t numel, int64_t classes)
{
    struct dpb_rng rng = next_rng(data);
    int32_t *labels = op_data_bytes(data, (size_t)numel * sizeof(int32_t));

    for (int64_t i = 0; i < numel; i++)
        labels[i] = (int32_t)dpb_rng_below(&rng, (uint64_t)classes);
    return labels;
}

static void prepare(const struct op_output *outputs, int count)
{
    for (int i = 0; i < count; i++) {
        if (outputs[i].start)
            memcpy(outputs[i].to, outputs[i].start, outputs[i].bytes);
        else
            memset(outputs[i].to, 0xff, outputs[i].bytes); /* NaN in fp32 and fp64 */
    }
}

void op_run(dpb_device *device, enum dpb_op op, const void *args, const struct op_output *outputs,
            int output_count)
{
    void *first[8] = {NULL};

    assert_true(output_count <= 8);
    prepare(outputs, output_count);
    if (!device) {
        assert_int_equal(dpb_reference_op(op, args), DPB_OK);
        return;
    }
    assert_int_equal(dpb_op_launch(device, op, args, NULL), DPB_OK);
    for (int i = 0; i < output_count; i++) {
        first[i] = malloc(outputs[i].bytes);
        assert_non_null(first[i]);
        memcpy(first[i], outputs[i].to, outputs[i].bytes);
    }
    prepare(outputs, output_count);
    assert_int_equal(dpb_op_launch(device, op, args, NULL), DPB_OK);
    for (int i = 0; i < output_count; i++) {
        assert_memory_equal(first[i], outputs[i].to, outputs[i].bytes);
        free(first[i]);
    }
}

void op_assert_close(const char *what, const float *got, const float *want, const float *bound,
                     int64_t numel, double ulps)
{
    for (int64_t i = 0; i < numel; i++) {
        double scale = bound ? (double)bound[i] : 1.0;
        double limit = ulps * 0x1p-24 * scale + 1e-30;

        /* written so that NaN fails */
        if (!(fabs((double)got[i] - (double)want[i]) <= limit))
            fail_msg("%s: element %lld of %lld is %.9g, reference %.9g, limit %.3g", what,
                     (long long)i, (long long)numel, (double)got[i], (double)want[i], limit);
    }
}

double op_ulps_of_sum(int64_t terms)
{
    return 8.0 + sqrt((double)terms);
}

void op_assert_same(const float *got, const float *want, int64_t numel)
{
    assert_memory_equal(got, want, (size_t)numel * sizeof(*got));
}

static void keep_first_error(void *ctx, enum dpb_log_level level, const char *line)
{
    char *first = ctx;

    if (level == DPB_LOG_ERROR && !first[0])
        snprintf(first, 512, "%s", line);
}

void op_assert_misfit(enum dpb_op op, const void *args, const char *reason)
{
    char error[512] = "";

    dpb_log_set_sink(keep_first_error, error);
    assert_int_equal(dpb_op_args_check(op, args), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    if (!strstr(error, reason) || (args && !strstr(error, dpb_op_text(op))))
        fail_msg("\"%s\" does not say \"%s\"", error, reason);
}
