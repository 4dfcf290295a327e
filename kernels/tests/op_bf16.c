#include "op_bf16.h"

#include <math.h>

#include "cpu_pair.h"
#include "dpb_reference.h"

#define PARTS_MAX 16

/* Of the fp32 arguments or of their twin. */
struct array {
    void *data;
    int64_t numel;
    enum dpb_dtype dtype;
};

static struct array array_of(const void *args, const struct op_part *part)
{
    const char *at = (const char *)args + part->at;
    struct dpb_tensor tensor;
    float *floats;

    if (part->floats > 0) {
        memcpy(&floats, at, sizeof(floats));
        return (struct array){floats, part->floats, DPB_F32};
    }
    memcpy(&tensor, at, sizeof(tensor));
    return (struct array){tensor.data, part->extent > 0 ? part->extent : dpb_tensor_numel(&tensor),
                          tensor.dtype};
}

static void cast(void *from, enum dpb_dtype from_dtype, void *to, enum dpb_dtype to_dtype,
                 int64_t numel)
{
    struct dpb_cast_args args = {.from = {from, from_dtype, 1, {numel}},
                                 .to = {to, to_dtype, 1, {numel}}};

    assert_int_equal(dpb_reference_op(DPB_OP_CAST, &args), DPB_OK);
}

void op_half_need(enum dpb_op op)
{
    if (dpb_device_get_ops(cpu_pair[0])->op_supported(cpu_pair[0], op, op_half.dtype))
        return;
    dpb_test_skip("%s is not possible in %s on this machine", dpb_op_text(op),
                  dpb_dtype_text(op_half.dtype));
}

void op_half_round(float *values, int64_t numel)
{
    uint16_t *narrow = malloc((size_t)numel * sizeof(*narrow));

    assert_non_null(narrow);
    cast(values, DPB_F32, narrow, op_half.dtype, numel);
    cast(narrow, op_half.dtype, values, DPB_F32, numel);
    free(narrow);
}

void op_bf16_twin(struct op_data *data, void *twin, void *args, size_t args_bytes,
                  const struct op_part *parts, int count)
{
    memcpy(twin, args, args_bytes);
    for (int i = 0; i < count; i++) {
        struct array array = array_of(args, &parts[i]);
        bool narrow = parts[i].floats == 0 && !parts[i].fp32;
        size_t bytes = (size_t)array.numel * dpb_dtype_bytes(narrow ? op_half.dtype : DPB_F32);
        void *memory = op_data_bytes(data, bytes);
        char *at = (char *)twin + parts[i].at;
        struct dpb_tensor tensor;

        assert_int_equal(array.dtype, DPB_F32);
        if (narrow && parts[i].use != OP_WRITES) {
            cast(array.data, DPB_F32, memory, op_half.dtype, array.numel);
            cast(memory, op_half.dtype, array.data, DPB_F32, array.numel);
        } else if (parts[i].use != OP_WRITES) {
            memcpy(memory, array.data, bytes);
        }
        if (parts[i].floats > 0) {
            memcpy(at, &memory, sizeof(memory));
            continue;
        }
        memcpy(&tensor, at, sizeof(tensor));
        tensor.data = memory;
        tensor.dtype = narrow ? op_half.dtype : DPB_F32;
        memcpy(at, &tensor, sizeof(tensor));
    }
}

static void compare(const struct op_part *part, enum dpb_op op, struct array got, struct array want)
{
    float *wide = malloc((size_t)got.numel * sizeof(*wide));
    const bool rounded =
            got.dtype == op_half.dtype ||
            (op == DPB_OP_CONV_BWD_WEIGHTS && op_half.filter_gradients_rounded && !part->floats);
    const double rounding = rounded ? op_half.unit : 0.0;

    assert_non_null(wide);
    cast(got.data, got.dtype, wide, DPB_F32, got.numel);
    for (int64_t i = 0; i < got.numel; i++) {
        double wanted = (double)((const float *)want.data)[i], value = (double)wide[i];
        double bound = part->bound ? (double)part->bound[i] : 1.0;
        double limit = rounding * fabs(wanted) +
                       (part->ulps * 0x1p-24 + part->roundings * op_half.unit) * bound +
                       op_half.floor;

        if (part->extent > 0 && isnan(wanted) && isnan(value))
            continue; /* a gap, not written */
        if (!(fabs(value - wanted) <= limit))
            fail_msg("%s in %s, %s: element %lld of %lld is %.9g, reference %.9g, limit %.3g",
                     dpb_op_text(op), dpb_dtype_text(op_half.dtype), part->name, (long long)i,
                     (long long)got.numel, value, wanted, limit);
    }
    free(wide);
}

/* Outputs for op_run(); `starts` are freed by the caller. */
static int outputs_of(const void *args, const struct op_part *parts, int count,
                      struct op_output *outputs, void **starts)
{
    int written = 0;

    assert_true(count <= PARTS_MAX);
    for (int i = 0; i < count; i++) {
        struct array array = array_of(args, &parts[i]);
        size_t bytes = (size_t)array.numel * dpb_dtype_bytes(array.dtype);

        if (parts[i].use == OP_READS)
            continue;
        starts[written] = NULL;
        if (parts[i].use == OP_UPDATES) {
            starts[written] = malloc(bytes);
            assert_non_null(starts[written]);
            memcpy(starts[written], array.data, bytes);
        }
        outputs[written] = (struct op_output){array.data, bytes, starts[written]};
        written++;
    }
    return written;
}

static void run(dpb_device *device, enum dpb_op op, const void *args, const struct op_part *parts,
                int count)
{
    struct op_output outputs[PARTS_MAX];
    void *starts[PARTS_MAX];
    int written = outputs_of(args, parts, count, outputs, starts);

    op_run(device, op, args, outputs, written);
    for (int i = 0; i < written; i++)
        free(starts[i]);
}

void op_bf16_compare(dpb_device *device, enum dpb_op op, const void *twin, const void *args,
                     const struct op_part *parts, int count)
{
    run(device, op, twin, parts, count);
    for (int i = 0; i < count; i++)
        if (parts[i].use != OP_READS)
            compare(&parts[i], op, array_of(twin, &parts[i]), array_of(args, &parts[i]));
}

void op_check_bf16(enum dpb_op op, void *args, size_t args_bytes, const struct op_part *parts,
                   int count)
{
    struct op_data data = {0};
    void *twins[2];

    for (int i = 0; i < 2; i++) {
        twins[i] = op_data_bytes(&data, args_bytes);
        op_bf16_twin(&data, twins[i], args, args_bytes, parts, count);
    }
    run(NULL, op, args, parts, count);
    for (int i = 0; i < 2; i++)
        op_bf16_compare(cpu_pair[i], op, twins[i], args, parts, count);
    op_data_release(&data);
}
