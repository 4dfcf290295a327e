/* Softmax with cross-entropy, a block for each row; and the softmax of attention, a warp for each
 * row. */
#include "dropout.h"

namespace dpb
{
/* The highest of some numbers, and the sum of exp(number - highest). */
struct exp_sum {
    float highest, sum;
};

template <int WIDTH> DPB_DEVICE void add_exp(struct exp_sum &s, const float (&values)[WIDTH])
{
    float highest = s.highest, sum;

    for (int i = 0; i < WIDTH; i++)
        highest = fmaxf(highest, values[i]);
    if (highest == -INFINITY)
        return;
    sum = s.sum * expf(s.highest - highest);
    for (int i = 0; i < WIDTH; i++)
        sum += expf(values[i] - highest);
    s = {highest, sum};
}

/* ---- with cross-entropy ---- */

/* One pass for highest and sum together (Milakov, Gimelshein, "Online normalizer calculation for
 * softmax", 2018, arXiv:1805.02867), one that writes. */
template <int WIDTH>
DPB_KERNEL softmax_xent_fwd(const float *logits, float *prob, const int32_t *label, float *loss,
                            int64_t classes, struct dpb_cuda_faults *faults)
{
    int64_t row = block_x();
    const float *from = logits + row * classes;
    float *to = prob + row * classes, values[WIDTH], highest, sum, factor;
    int32_t right = label[row];
    bool label_ok = right >= 0 && right < classes;
    float of_label = label_ok ? from[right] : NAN; /* read here: prob may be logits */
    struct exp_sum mine = {-INFINITY, 0.0f};

    for (int64_t j = (int64_t)thread() * WIDTH; j < classes; j += (int64_t)threads() * WIDTH) {
        load(from + j, values);
        add_exp(mine, values);
    }
    highest = block_max(mine.highest);
    sum = block_sum(mine.sum > 0.0f ? mine.sum * expf(mine.highest - highest) : 0.0f);
    factor = 1.0f / sum;
    for (int64_t j = (int64_t)thread() * WIDTH; j < classes; j += (int64_t)threads() * WIDTH) {
        load(from + j, values);
        for (int i = 0; i < WIDTH; i++)
            values[i] = expf(values[i] - highest) * factor;
        store(to + j, values);
    }
    if (thread() != 0)
        return;
    loss[row] = logf(sum) - (of_label - highest);
    if (!label_ok)
        note_fault(faults, DPB_CUDA_FAULT_SOFTMAX_LABEL, row, right);
}

template <int WIDTH>
DPB_KERNEL softmax_xent_bwd(const float *prob, float *dlogits, const int32_t *label,
                            int64_t classes, float scale)
{
    int64_t row = block_x();
    int32_t right = label[row];
    float values[WIDTH];

    for (int64_t j = (int64_t)thread() * WIDTH; j < classes; j += (int64_t)threads() * WIDTH) {
        load(prob + row * classes + j, values);
        for (int i = 0; i < WIDTH; i++)
            values[i] = (values[i] - (j + i == right ? 1.0f : 0.0f)) * scale;
        store(dlogits + row * classes + j, values);
    }
}

/* ---- of attention ---- */

struct attention_rows {
    int64_t rows, tokens, heads;
    const uint8_t *key_mask; /* NULL: every key */
    float scale;
    bool causal;
    struct dropout dropout;
};

template <int WIDTH>
DPB_DEVICE void hide_keys(const struct attention_rows &a, const uint8_t *key_mask, int64_t token,
                          int64_t key, float (&scores)[WIDTH])
{
    for (int i = 0; i < WIDTH; i++) {
        bool hidden = (a.causal && key + i > token) || (key_mask && key_mask[key + i] == 0);

        scores[i] = hidden ? -INFINITY : scores[i] * a.scale;
    }
}

/* What `to` and `drop_to` get is the same number: rounded, then dropped. */
template <class T, int WIDTH>
DPB_DEVICE void store_dropped(const struct attention_rows &a, int64_t at, float (&prob)[WIDTH],
                              T *to)
{
    for (int i = 0; i < WIDTH; i++)
        prob[i] = to_float(from_float<T>(prob[i]));
    if (a.dropout.factor != 0.0f) {
        if constexpr (WIDTH == 4)
            drop_4(a.dropout, at, prob);
        else
            prob[0] = drop_1(a.dropout, at, prob[0]);
    }
    store(to + at, prob);
}

/* A thread reads and writes the same elements: prob may be scores. */
template <class From, class T, int WIDTH>
DPB_KERNEL attention_fwd(const From *scores, T *prob, T *dropped, struct attention_rows a)
{
    int64_t row = (int64_t)block_x() * WARPS + thread() / WARP, first = thread() % WARP * WIDTH;
    float values[WIDTH], highest, sum, factor;
    struct exp_sum mine = {-INFINITY, 0.0f};

    if (row >= a.rows)
        return; /* the whole warp */
    int64_t token = row % a.tokens, base = row * a.tokens;
    const uint8_t *key_mask = a.key_mask ? a.key_mask + row / a.tokens / a.heads * a.tokens : NULL;

    for (int64_t j = first; j < a.tokens; j += WARP * WIDTH) {
        load(scores + base + j, values);
        hide_keys(a, key_mask, token, j, values);
        add_exp(mine, values);
    }
    highest = warp_max(mine.highest);
    sum = warp_sum(mine.sum > 0.0f ? mine.sum * expf(mine.highest - highest) : 0.0f);
    factor = sum > 0.0f ? 1.0f / sum : 0.0f; /* 0: a token without any key */
    for (int64_t j = first; j < a.tokens; j += WARP * WIDTH) {
        load(scores + base + j, values);
        hide_keys(a, key_mask, token, j, values);
        for (int i = 0; i < WIDTH; i++)
            values[i] = values[i] == -INFINITY ? 0.0f : expf(values[i] - highest) * factor;
        store(prob + base + j, values);
        if (dropped)
            store_dropped(a, base + j, values, dropped);
    }
}

template <class From, int WIDTH>
DPB_DEVICE void load_dropped(const struct attention_rows &a, const From *from, int64_t at,
                             float (&to)[WIDTH])
{
    load(from + at, to);
    if (a.dropout.factor == 0.0f)
        return;
    if constexpr (WIDTH == 4)
        drop_4(a.dropout, at, to);
    else
        to[0] = drop_1(a.dropout, at, to[0]);
}

template <class From, class T, int WIDTH>
DPB_KERNEL attention_bwd(const From *dprob, const T *prob, T *ds, T *dropped,
                         struct attention_rows a)
{
    int64_t row = (int64_t)block_x() * WARPS + thread() / WARP, first = thread() % WARP * WIDTH;
    float gradient[WIDTH], p[WIDTH], mean = 0.0f;

    if (row >= a.rows)
        return; /* the whole warp */
    int64_t base = row * a.tokens;

    for (int64_t j = first; j < a.tokens; j += WARP * WIDTH) {
        load_dropped(a, dprob, base + j, gradient);
        load(prob + base + j, p);
        for (int i = 0; i < WIDTH; i++)
            mean += p[i] * gradient[i];
    }
    mean = warp_sum(mean);
    for (int64_t j = first; j < a.tokens; j += WARP * WIDTH) {
        load_dropped(a, dprob, base + j, gradient);
        load(prob + base + j, p);
        for (int i = 0; i < WIDTH; i++)
            gradient[i] = a.scale * p[i] * (gradient[i] - mean);
        store(ds + base + j, gradient);
        if (dropped)
            store_dropped(a, base + j, p, dropped);
    }
}

/* `f(From(), T(), width)` */
template <class F> static int by_types(enum dpb_dtype from, enum dpb_dtype dtype, bool wide, F f)
{
    return by_type(dtype, [&](auto zero) {
        if (from == DPB_F32)
            return by_width<4>(wide, [&](auto width) {
                return f(float(), zero, width);
            });
        if (from != dtype)
            return DPB_CUDA_INVALID;
        return by_width<4>(wide, [&](auto width) {
            return f(zero, zero, width);
        });
    });
}

constexpr int64_t ROWS_MOST = INT32_MAX;
} // namespace dpb

int dpb_cuda_softmax_xent_fwd(const struct dpb_softmax_xent_args *args,
                              const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->prob.dim[0], classes = args->prob.dim[1];

    if (args->prob.dtype != DPB_F32 || rows > ROWS_MOST)
        return DPB_CUDA_INVALID;
    return by_width<4>(classes % 4 == 0 && aligned(args->logits.data, args->prob.data),
                       [&](auto width) {
                           return launch(dpb::softmax_xent_fwd<decltype(width)::value>,
                                         (unsigned)rows, 1, THREADS, queue,
                                         (const float *)args->logits.data, (float *)args->prob.data,
                                         args->label, args->loss, classes, queue->faults);
                       });
}

int dpb_cuda_softmax_xent_bwd(const struct dpb_softmax_xent_args *args,
                              const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->prob.dim[0], classes = args->prob.dim[1];

    if (args->prob.dtype != DPB_F32 || rows > ROWS_MOST)
        return DPB_CUDA_INVALID;
    return by_width<4>(
            classes % 4 == 0 && aligned(args->dlogits.data, args->prob.data), [&](auto width) {
                return launch(dpb::softmax_xent_bwd<decltype(width)::value>, (unsigned)rows, 1,
                              THREADS, queue, (const float *)args->prob.data,
                              (float *)args->dlogits.data, args->label, classes, args->scale);
            });
}

int dpb_cuda_attention_softmax_fwd(const struct dpb_cuda_attention_fwd *args,
                                   const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->batch * args->heads * args->tokens, blocks = divide_up(rows, WARPS);
    bool wide = args->tokens % 4 == 0 && aligned(args->scores, args->prob, args->dropped);
    const struct attention_rows a = {rows,
                                     args->tokens,
                                     args->heads,
                                     args->key_mask,
                                     args->scale,
                                     args->causal,
                                     dropout_of(args->keep, args->seed, args->offset)};

    if (blocks > ROWS_MOST)
        return DPB_CUDA_INVALID;
    return by_types(args->scores_dtype, args->dtype, wide, [&](auto from, auto zero, auto width) {
        using From = decltype(from);
        using T = decltype(zero);

        return launch(attention_fwd<From, T, decltype(width)::value>, (unsigned)blocks, 1, THREADS,
                      queue, (const From *)args->scores, (T *)args->prob, (T *)args->dropped, a);
    });
}

int dpb_cuda_attention_softmax_bwd(const struct dpb_cuda_attention_bwd *args,
                                   const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->batch * args->heads * args->tokens, blocks = divide_up(rows, WARPS);
    bool wide = args->tokens % 4 == 0 && aligned(args->dprob, args->prob, args->ds, args->dropped);
    const struct attention_rows a = {rows,
                                     args->tokens,
                                     args->heads,
                                     NULL,
                                     args->scale,
                                     false,
                                     dropout_of(args->keep, args->seed, args->offset)};

    if (blocks > ROWS_MOST)
        return DPB_CUDA_INVALID;
    return by_types(args->dprob_dtype, args->dtype, wide, [&](auto from, auto zero, auto width) {
        using From = decltype(from);
        using T = decltype(zero);

        return launch(attention_bwd<From, T, decltype(width)::value>, (unsigned)blocks, 1, THREADS,
                      queue, (const From *)args->dprob, (const T *)args->prob, (T *)args->ds,
                      (T *)args->dropped, a);
    });
}
