/* The device's options, apart from the device: no vendor's header is needed to know them. */
#include "dpb_device_cuda.h"

#include <stddef.h>

static const struct dpb_choice algorithm_choices[] = {
        {"measured", DPB_CUDA_ALGORITHM_MEASURED,
         "the fastest of the library's first proposals, timed when shapes are first seen"},
        {"first", DPB_CUDA_ALGORITHM_FIRST,
         "the library's first proposal: the same in every run, so the same bits"},
        {NULL, 0, NULL},
};

static const struct dpb_option option_rows[] = {
        {
                .name = "cuda-device",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_device_cuda_options, device),
                .default_text = "auto",
                .min = 0,
                .max = 1023,
                .category = "Training",
                .help = "number of the GPU among the visible ones; auto: by the local rank",
                .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
        },
        {
                .name = "tf32",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_device_cuda_options, tf32),
                .default_text = "off",
                .category = "Training",
                .help = "round the factors of fp32 matrix products and convolutions to TF32",
        },
        {
                .name = "cuda-algorithm",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_device_cuda_options, algorithm),
                .default_text = "measured",
                .choices = algorithm_choices,
                .category = "Training",
                .help = "how algorithms of matrix products and convolutions are chosen",
        },
};

const struct dpb_option_table dpb_device_cuda_option_table = {
        .kind = "device",
        .owner = "cuda",
        .rows = option_rows,
        .row_count = sizeof(option_rows) / sizeof(option_rows[0]),
        .config_bytes = sizeof(struct dpb_device_cuda_options),
};
