/* Dot interaction: a block for each sample. Its vectors pass through shared memory, some elements
 * of all of them at a time. */
#include "dialect.h"

namespace dpb
{
constexpr int VECTORS_MOST = 64, DEPTH = 32; /* elements at a time */
constexpr int PAIRS_MOST = VECTORS_MOST * (VECTORS_MOST - 1) / 2;
constexpr int PAIRS_EACH = (PAIRS_MOST + (int)THREADS - 1) / (int)THREADS;
constexpr int PITCH = DEPTH + 1; /* elements of one column then lie in different banks */

struct interaction {
    const float *x, *e;
    int64_t samples, length;
    int tables;
};

/* Number of pair (i, j), j < i, and back. */
DPB_DEVICE int pair_of(int i, int j)
{
    return i * (i - 1) / 2 + j;
}

DPB_DEVICE int first_of(int pair)
{
    int i = (int)((1.0f + sqrtf(1.0f + 8.0f * (float)pair)) / 2.0f);

    while (pair_of(i, 0) > pair)
        i--;
    while (pair_of(i + 1, 0) <= pair)
        i++;
    return i;
}

/* Elements [d, d + DEPTH) of all vectors of a sample; zeros behind the end. */
DPB_DEVICE void load_vectors(const struct interaction &a, int64_t sample, int64_t d, float *to)
{
    for (int i = (int)thread(); i < (a.tables + 1) * DEPTH; i += (int)threads()) {
        int vector = i / DEPTH;
        int64_t at = d + i % DEPTH;
        const float *from = vector == 0 ? a.x + sample * a.length
                                        : a.e + ((vector - 1) * a.samples + sample) * a.length;

        to[vector * PITCH + i % DEPTH] = at < a.length ? from[at] : 0.0f;
    }
}

DPB_KERNEL interaction_fwd(struct interaction a, float *y)
{
    DPB_SHARED(float, vectors, VECTORS_MOST *PITCH);
    int64_t sample = block_x();
    int pairs = pair_of(a.tables + 1, 0);
    float *to = y + sample * (a.length + pairs), dot[PAIRS_EACH] = {};

    for (int64_t d = 0; d < a.length; d += DEPTH) {
        DPB_SYNC(); /* the last round's readers */
        load_vectors(a, sample, d, vectors);
        DPB_SYNC();
        DPB_UNROLL
        for (int k = 0; k < PAIRS_EACH; k++) {
            int pair = (int)thread() + k * (int)THREADS;

            if (pair < pairs) {
                int i = first_of(pair), j = pair - pair_of(i, 0);

                for (int c = 0; c < DEPTH; c++)
                    dot[k] += vectors[i * PITCH + c] * vectors[j * PITCH + c];
            }
        }
        if (thread() < DEPTH && d + thread() < a.length)
            to[d + thread()] = vectors[thread()];
    }
    DPB_UNROLL
    for (int k = 0; k < PAIRS_EACH; k++)
        if ((int)thread() + k * (int)THREADS < pairs)
            to[a.length + thread() + k * (int)THREADS] = dot[k];
}

DPB_KERNEL interaction_bwd(struct interaction a, const float *dy, float *dx, float *de)
{
    DPB_SHARED(float, vectors, VECTORS_MOST *PITCH);
    DPB_SHARED(float, dots, PAIRS_MOST);
    int64_t sample = block_x();
    int pairs = pair_of(a.tables + 1, 0);
    const float *from = dy + sample * (a.length + pairs);

    for (int i = (int)thread(); i < pairs; i += (int)threads())
        dots[i] = from[a.length + i];
    for (int64_t d = 0; d < a.length; d += DEPTH) {
        DPB_SYNC(); /* the last round's readers */
        load_vectors(a, sample, d, vectors);
        DPB_SYNC();
        for (int k = (int)thread(); k < (a.tables + 1) * DEPTH; k += (int)threads()) {
            int i = k / DEPTH, c = k % DEPTH;

            if (d + c >= a.length)
                continue;
            float sum = i == 0 ? from[d + c] : 0.0f;

            for (int j = 0; j <= a.tables; j++)
                if (j != i)
                    sum += dots[j < i ? pair_of(i, j) : pair_of(j, i)] * vectors[j * PITCH + c];
            float *to = i == 0 ? dx + sample * a.length
                               : de + ((i - 1) * a.samples + sample) * a.length;

            to[d + c] = sum;
        }
    }
}

static bool interaction_of(const struct dpb_interaction_args *args, struct interaction *a)
{
    *a = {(const float *)args->x.data, (const float *)args->e.data, args->x.dim[0], args->x.dim[1],
          (int)args->e.dim[0]};
    return args->x.dtype == DPB_F32 && args->e.dim[0] < VECTORS_MOST && a->samples <= INT32_MAX;
}
} // namespace dpb

int dpb_cuda_interaction_fwd(const struct dpb_interaction_args *args,
                             const struct dpb_cuda_queue *queue)
{
    struct dpb::interaction a;

    if (!dpb::interaction_of(args, &a))
        return DPB_CUDA_INVALID;
    return dpb::launch(dpb::interaction_fwd, (unsigned)a.samples, 1, dpb::THREADS, queue, a,
                       (float *)args->y.data);
}

int dpb_cuda_interaction_bwd(const struct dpb_interaction_args *args,
                             const struct dpb_cuda_queue *queue)
{
    struct dpb::interaction a;

    if (!dpb::interaction_of(args, &a))
        return DPB_CUDA_INVALID;
    return dpb::launch(dpb::interaction_bwd, (unsigned)a.samples, 1, dpb::THREADS, queue, a,
                       (const float *)args->y.data, (float *)args->dx.data, (float *)args->de.data);
}
