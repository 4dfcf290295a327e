#include "workload_parts.h"

dpb_status dpb_gradients_clear(const struct dpb_launcher *launcher, const struct dpb_model *model,
                               float *const *grad, const float *zeros, dpb_grad_ready ready,
                               void *ctx)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(launcher->device);

    for (int r = 0; r < model->param_count; r++) {
        int p = model->ready_order[r];
        int64_t bytes = model->params[p].numel * (int64_t)sizeof(float);

        for (int64_t at = 0; at < bytes; at += DPB_ZEROS_BYTES) {
            int64_t count = bytes - at < DPB_ZEROS_BYTES ? bytes - at : DPB_ZEROS_BYTES;

            DPB_TRY(device->copy(launcher->device, (char *)grad[p] + at, zeros, (size_t)count,
                                 launcher->stream));
        }
        DPB_TRY(ready(ctx, p));
    }
    return DPB_OK;
}

bool dpb_label_wins(const float *value, int64_t classes, int32_t label)
{
    for (int64_t c = 0; c < classes; c++) {
        if (c < label ? !(value[label] > value[c]) : !(value[label] >= value[c]))
            return false;
    }
    return true;
}
