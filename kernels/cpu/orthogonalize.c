/* Columns of a tall, narrow matrix made orthonormal. */
#include "cpu_device.h"

#include <math.h>

/* Sums are of doubles: with few columns and thousands of rows the memory is what takes time. */
static double dot(const float *x, const float *y, int64_t rows, int64_t columns)
{
    double sum = 0.0;

    for (int64_t i = 0; i < rows; i++)
        sum += (double)x[i * columns] * (double)y[i * columns];
    return sum;
}

static void normalize(float *x, int64_t rows, int64_t columns, float eps)
{
    const double length = sqrt(dot(x, x, rows, columns)) + (double)eps;

    for (int64_t i = 0; i < rows; i++)
        x[i * columns] = length > 0.0 ? (float)((double)x[i * columns] / length) : 0.0f;
}

dpb_status dpb_cpu_orthogonalize(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_orthogonalize_args *a = args;
    const int64_t rows = a->x.dim[0], columns = a->x.dim[1];
    float *x = a->x.data;

    (void)device;
    (void)op;
    for (int64_t c = 0; c < columns; c++) {
        normalize(x + c, rows, columns, a->eps);
        for (int64_t later = c + 1; later < columns; later++) {
            const double share = dot(x + c, x + later, rows, columns);

            for (int64_t i = 0; i < rows; i++)
                x[i * columns + later] -= (float)(share * (double)x[i * columns + c]);
        }
    }
    return DPB_OK;
}
