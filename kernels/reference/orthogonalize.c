#include "reference_arrays.h"

#include <math.h>

dpb_status dpb_ref_orthogonalize(enum dpb_op op, const void *op_args)
{
    const struct dpb_orthogonalize_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t rows = args->x.dim[0], columns = args->x.dim[1];
    double *x = dpb_ref_update_tensor(&arrays, &args->x);

    (void)op;
    for (int64_t c = 0; !arrays.failed && c < columns; c++) {
        double squares = 0.0, length;

        for (int64_t i = 0; i < rows; i++)
            squares += x[i * columns + c] * x[i * columns + c];
        length = sqrt(squares) + (double)args->eps;
        for (int64_t i = 0; i < rows; i++)
            x[i * columns + c] = length > 0.0 ? x[i * columns + c] / length : 0.0;
        for (int64_t later = c + 1; later < columns; later++) {
            double share = 0.0;

            for (int64_t i = 0; i < rows; i++)
                share += x[i * columns + c] * x[i * columns + later];
            for (int64_t i = 0; i < rows; i++)
                x[i * columns + later] -= share * x[i * columns + c];
        }
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}
