#include "op_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "capture.h"
#include "dpb_reference.h"
#include "dpb_rng.h"

namespace
{

uint16_t bf16_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // to nearest even; no NaNs here
}

float float_of(uint16_t bf16)
{
    uint32_t bits = uint32_t(bf16) << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

float element(const void *array, dpb_dtype dtype, int64_t i)
{
    return dtype == DPB_BF16 ? float_of(static_cast<const uint16_t *>(array)[i])
                             : static_cast<const float *>(array)[i];
}

void put_element(void *array, dpb_dtype dtype, int64_t i, float value)
{
    if (dtype == DPB_BF16)
        static_cast<uint16_t *>(array)[i] = bf16_of(value);
    else
        static_cast<float *>(array)[i] = value;
}

float draw(dpb_rng &rng, const op_field &field)
{
    float uniform = float(dpb_rng_uniform(&rng));

    switch (field.fill) {
    case content::positive:
        return 0.5f + uniform;
    case content::probability:
        return (0.5f + uniform) / float(field.tensor->dim[field.tensor->rank - 1]);
    default:
        return 2.0f * uniform - 1.0f;
    }
}

dpb_dtype dtype_of(const op_field &field)
{
    if (field.tensor)
        return field.tensor->dtype;
    return field.element_bytes == 1 ? DPB_U8 : DPB_F32;
}

bool is_written(const op_field &field)
{
    return field.use == role::written || field.use == role::updated;
}

} // namespace

op_problem::op_problem(dpb_device *device, dpb_op op, const void *args, dpb_dtype dtype)
    : device_(device), op_(op), dtype_(dtype)
{
    const char *bytes = static_cast<const char *>(args);

    original_.assign(bytes, bytes + dpb_capture_args_bytes(op));
    device_args_ = reference_args_ = original_;
    place();
    if (!error_.empty())
        return;
    fill();
    if (!prepare(true) || !prepare(false))
        error_ = "the forward operator that leaves what this one reads cannot be launched";
}

op_problem::~op_problem()
{
    for (void *memory : device_memory_)
        dpb_device_get_ops(device_)->free(device_, memory);
}

// Arrays that overlap (the same one twice; query, key and value in one) are one block.
void op_problem::place()
{
    struct piece {
        int kind;
        uintptr_t begin, end;
        size_t field;
    };
    std::vector<op_field> given = op_fields(op_, original_.data());
    std::vector<op_field> on_device = op_fields(op_, device_args_.data());
    std::vector<op_field> in_reference = op_fields(op_, reference_args_.data());
    std::vector<piece> pieces;

    for (size_t i = 0; i < given.size(); i++) {
        uintptr_t begin = reinterpret_cast<uintptr_t>(*given[i].pointer);
        size_t bytes = size_t(given[i].elements) * dpb_dtype_bytes(dtype_of(given[i]));

        pieces.push_back(
                {2 * (given[i].use != role::read) + given[i].narrow, begin, begin + bytes, i});
    }
    std::sort(pieces.begin(), pieces.end(), [](const piece &a, const piece &b) {
        return a.kind != b.kind ? a.kind < b.kind : a.begin < b.begin;
    });
    for (size_t first = 0, next; first < pieces.size(); first = next) {
        uintptr_t end = pieces[first].end;

        for (next = first + 1; next < pieces.size() && pieces[next].kind == pieces[first].kind &&
                               pieces[next].begin < end;
             next++)
            end = std::max(end, pieces[next].end);

        size_t bytes = end - pieces[first].begin;
        bool halved = dtype_ == DPB_BF16 && pieces[first].kind % 2 == 1;
        void *memory = nullptr;

        if (dpb_device_get_ops(device_)->alloc(device_, halved ? bytes / 2 : bytes, &memory) !=
            DPB_OK) {
            error_ = "there is not enough memory";
            return;
        }
        device_memory_.push_back(memory);
        reference_memory_.emplace_back(bytes);
        for (size_t p = first; p < next; p++) {
            size_t at = pieces[p].begin - pieces[first].begin, i = pieces[p].field;

            *on_device[i].pointer = static_cast<char *>(memory) + (halved ? at / 2 : at);
            *in_reference[i].pointer = reference_memory_.back().data() + at;
            if (halved)
                on_device[i].tensor->dtype = DPB_BF16;
        }
    }
    for (size_t i = 0; i < given.size(); i++)
        arrays_.push_back({on_device[i], in_reference[i]});
}

void op_problem::fill()
{
    uint64_t stream = 0;

    for (const both &array : arrays_) {
        void *device = *array.on_device.pointer, *reference = *array.in_reference.pointer;
        dpb_dtype dtype = dtype_of(array.on_device), wide = dtype_of(array.in_reference);
        dpb_rng rng;

        dpb_rng_init(&rng, 1, stream++);
        for (int64_t i = 0; i < array.on_device.elements; i++) {
            if (array.on_device.fill == content::ones) {
                static_cast<uint8_t *>(device)[i] = static_cast<uint8_t *>(reference)[i] = 1;
            } else if (array.on_device.fill == content::rows) {
                int32_t row = int32_t(dpb_rng_below(&rng, uint64_t(array.on_device.below)));

                static_cast<int32_t *>(device)[i] = static_cast<int32_t *>(reference)[i] = row;
            } else {
                put_element(device, dtype, i, draw(rng, array.on_device));
                put_element(reference, wide, i, element(device, dtype, i));
            }
        }
    }
}

bool op_problem::run(bool on_device, dpb_op op, const void *args)
{
    return (on_device ? dpb_op_launch(device_, op, args, nullptr) : dpb_reference_op(op, args)) ==
           DPB_OK;
}

// What only a forward operator can leave: the places of the maxima, and masks.
bool op_problem::prepare(bool on_device)
{
    const void *args = on_device ? device_args_.data() : reference_args_.data();

    if (op_ == DPB_OP_POOL_MAX_BWD)
        return run(on_device, DPB_OP_POOL_MAX_FWD, args);
    if (op_ != DPB_OP_BATCHNORM_BWD && op_ != DPB_OP_BATCHNORM_BWD_SUMS &&
        op_ != DPB_OP_BATCHNORM_BWD_APPLY)
        return true;

    auto forward = *static_cast<const dpb_batchnorm_args *>(args);
    size_t channels = size_t(forward.x.dim[forward.x.rank - 1]);
    std::vector<float> ones(channels, 1.0f), zeros(channels), mean(channels), var(channels);
    std::vector<float> y(size_t(dpb_tensor_numel(&forward.x)));

    forward.y = forward.x;
    forward.y.data = y.data();
    forward.gamma = ones.data();
    forward.beta = zeros.data();
    forward.running_mean = mean.data();
    forward.running_var = var.data();
    forward.training = true;
    if (op_ == DPB_OP_BATCHNORM_BWD)
        return run(on_device, DPB_OP_BATCHNORM_FWD, &forward);
    return run(on_device, DPB_OP_BATCHNORM_STATS, &forward) &&
           run(on_device, DPB_OP_BATCHNORM_APPLY, &forward);
}

// Two measures: of the whole, which sees many small differences, and of each element, which sees a
// single wrong one. Behind a ReLU an element that is 0 but for rounding may be masked on one side
// only, so there the whole counts.
std::string op_problem::compare_array(const both &array) const
{
    const void *got = *array.on_device.pointer, *want = *array.in_reference.pointer;
    dpb_dtype got_type = dtype_of(array.on_device), want_type = dtype_of(array.in_reference);
    int64_t elements = array.on_device.elements;
    double square = 0.0, difference = 0.0, rms;
    double limit = dtype_ == DPB_BF16 ? 2e-2 : 1e-4;
    char text[160];

    if (got_type == DPB_U8)
        return memcmp(got, want, size_t(elements)) == 0 ? "" : "bytes differ from the reference's";
    for (int64_t i = 0; i < elements; i++) {
        double a = element(got, got_type, i), b = element(want, want_type, i);

        square += b * b;
        difference += (a - b) * (a - b);
    }
    if (!(std::sqrt(difference) <= limit * std::sqrt(square) + 1e-30)) {
        snprintf(text, sizeof(text), "off by %.2g of the reference's norm, limit %.2g",
                 std::sqrt(difference / square), limit);
        return text;
    }
    rms = std::sqrt(square / double(elements));
    for (int64_t i = 0;
         op_ != DPB_OP_BATCHNORM_BWD && op_ != DPB_OP_BATCHNORM_BWD_APPLY && i < elements; i++) {
        double a = element(got, got_type, i), b = element(want, want_type, i);

        if (!(std::fabs(a - b) <= 10.0 * limit * (std::fabs(b) + rms) + 1e-30)) {
            snprintf(text, sizeof(text), "element %lld of %lld is %.7g, reference %.7g",
                     static_cast<long long>(i), static_cast<long long>(elements), a, b);
            return text;
        }
    }
    return "";
}

std::string op_problem::compare()
{
    if (!run(true, op_, device_args_.data()))
        return "the operator cannot be launched";
    if (!run(false, op_, reference_args_.data()))
        return "the reference refuses the operator";
    for (const both &array : arrays_) {
        if (!is_written(array.on_device))
            continue;
        std::string difference = compare_array(array);

        if (!difference.empty())
            return difference;
    }
    return "";
}
