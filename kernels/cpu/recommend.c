/* Dot interaction, and sigmoid with binary cross-entropy. Threads split samples, never a sum. */
#include "cpu_device.h"

#include <math.h>
#include <string.h>

#define SAMPLE_GRAIN 16
#define LOSS_GRAIN   4096
#define LANES        16

/* In LANES sums, which vectorise without a change of order. */
static inline __attribute__((always_inline)) float dot(const float *a, const float *b,
                                                       int64_t count)
{
    float lane[LANES] = {0};
    int64_t whole = count - count % LANES;

    for (int64_t i = 0; i < whole; i += LANES) {
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    }
    for (int64_t i = whole; i < count; i++)
        lane[i - whole] += a[i] * b[i];
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

/* Vector v of sample s: row s of x, then of each table in e. */
static inline float *vector(const struct dpb_tensor *x, const struct dpb_tensor *e, int64_t v,
                            int64_t s)
{
    int64_t samples = x->dim[0], length = x->dim[1];

    return v == 0 ? (float *)x->data + s * length
                  : (float *)e->data + ((v - 1) * samples + s) * length;
}

DPB_CPU_CLONES static void interaction_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_interaction_args *a = ctx;
    int64_t length = a->x.dim[1], tables = a->e.dim[0];

    for (int64_t s = begin; s < end; s++) {
        float *y = (float *)a->y.data + s * a->y.dim[1];

        memcpy(y, vector(&a->x, &a->e, 0, s), (size_t)length * sizeof(*y));
        y += length;
        for (int64_t i = 1; i <= tables; i++) {
            for (int64_t j = 0; j < i; j++)
                *y++ = dot(vector(&a->x, &a->e, i, s), vector(&a->x, &a->e, j, s), length);
        }
    }
}

DPB_CPU_CLONES static void interaction_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_interaction_args *a = ctx;
    int64_t length = a->x.dim[1], tables = a->e.dim[0];

    for (int64_t s = begin; s < end; s++) {
        const float *dy = (const float *)a->y.data + s * a->y.dim[1];

        memcpy(vector(&a->dx, &a->de, 0, s), dy, (size_t)length * sizeof(*dy));
        dy += length;
        for (int64_t i = 1; i <= tables; i++)
            memset(vector(&a->dx, &a->de, i, s), 0, (size_t)length * sizeof(*dy));
        for (int64_t i = 1; i <= tables; i++) {
            const float *vi = vector(&a->x, &a->e, i, s);
            float *di = vector(&a->dx, &a->de, i, s);

            for (int64_t j = 0; j < i; j++, dy++) {
                const float *vj = vector(&a->x, &a->e, j, s);
                float *dj = vector(&a->dx, &a->de, j, s);

                for (int64_t d = 0; d < length; d++) {
                    di[d] += *dy * vj[d];
                    dj[d] += *dy * vi[d];
                }
            }
        }
    }
}

dpb_status dpb_cpu_interaction(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_interaction_args a = *(const struct dpb_interaction_args *)args;

    dpb_cpu_parallel(device->threads, a.x.dim[0], SAMPLE_GRAIN,
                     op == DPB_OP_INTERACTION_FWD ? interaction_fwd : interaction_bwd, &a);
    return DPB_OK;
}

static void sigmoid_bce_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_sigmoid_bce_args *a = ctx;
    const float *logits = a->logits.data;

    for (int64_t i = begin; i < end; i++) {
        double z = (double)logits[i];

        a->loss[i] = (float)(fmax(z, 0.0) - z * a->label[i] + log1p(exp(-fabs(z))));
    }
}

static void sigmoid_bce_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_sigmoid_bce_args *a = ctx;
    const float *logits = a->logits.data;
    float *dlogits = a->dlogits.data;

    for (int64_t i = begin; i < end; i++) {
        double z = (double)logits[i], decay = exp(-fabs(z));
        double sigmoid = (z < 0.0 ? decay : 1.0) / (1.0 + decay);

        dlogits[i] = (float)((sigmoid - a->label[i]) * (double)a->scale);
    }
}

dpb_status dpb_cpu_sigmoid_bce(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_sigmoid_bce_args a = *(const struct dpb_sigmoid_bce_args *)args;
    int64_t count = dpb_tensor_numel(&a.logits);

    DPB_TRY(dpb_binary_labels_check(a.label, count));
    dpb_cpu_parallel(device->threads, count, LOSS_GRAIN,
                     op == DPB_OP_SIGMOID_BCE_FWD ? sigmoid_bce_fwd : sigmoid_bce_bwd, &a);
    return DPB_OK;
}
