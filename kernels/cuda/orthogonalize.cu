/* Modified Gram-Schmidt over the columns of a matrix, which are few: one block. */
#include "dialect.h"

namespace dpb
{
constexpr unsigned ORTHOGONALIZE_THREADS = THREADS < 256 ? THREADS : 1024;
constexpr int TOGETHER = 4; /* later columns whose shares one pass computes */

DPB_KERNEL orthogonalize(float *x, int64_t rows, int64_t columns, float eps)
{
    for (int64_t c = 0; c < columns; c++) {
        float squares = 0.0f, length;

        for (int64_t i = thread(); i < rows; i += threads())
            squares += x[i * columns + c] * x[i * columns + c];
        length = sqrtf(block_sum(squares)) + eps;
        /* A thread has the same rows in every pass: what it wrote it reads itself. */
        for (int64_t i = thread(); i < rows; i += threads())
            x[i * columns + c] = length > 0.0f ? x[i * columns + c] / length : 0.0f;
        for (int64_t later = c + 1; later < columns; later += TOGETHER) {
            int some = columns - later < TOGETHER ? (int)(columns - later) : TOGETHER;
            float share[TOGETHER] = {};

            for (int64_t i = thread(); i < rows; i += threads())
                for (int k = 0; k < TOGETHER; k++)
                    share[k] += k < some ? x[i * columns + c] * x[i * columns + later + k] : 0.0f;
            for (int k = 0; k < TOGETHER; k++)
                share[k] = block_sum(share[k]);
            for (int64_t i = thread(); i < rows; i += threads())
                for (int k = 0; k < TOGETHER; k++)
                    if (k < some)
                        x[i * columns + later + k] -= share[k] * x[i * columns + c];
        }
    }
}
} // namespace dpb

int dpb_cuda_orthogonalize(const struct dpb_orthogonalize_args *args,
                           const struct dpb_cuda_queue *queue)
{
    if (args->x.dtype != DPB_F32)
        return DPB_CUDA_INVALID;
    return dpb::launch(dpb::orthogonalize, 1, 1, dpb::ORTHOGONALIZE_THREADS, queue,
                       (float *)args->x.data, args->x.dim[0], args->x.dim[1], args->eps);
}
