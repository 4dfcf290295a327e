/* The optimizers, many tensors in one launch: a table in the kernel's parameters says what they
 * are, and every block finds the tensor that its share of the blocks belongs to. Numbers that hold
 * for a whole tensor are computed in double, once, on the host. */
#include "dialect.h"

namespace dpb
{
constexpr int64_t CHUNK = 16384; /* elements of a block */
constexpr int ROWS_EACH = 128;   /* rows of a block, where rows matter */

/* What every entry begins with: `first`, the number of its first block, and elements or rows. */
struct span {
    int64_t count;
    int first, blocks;
};

template <class Entry> struct table {
    static constexpr int MOST =
            (DPB_CUDA_TABLE_BYTES - (int)sizeof(double *) * 2) / (int)sizeof(Entry);
    Entry entry[MOST];
    double *part; /* two numbers for each block */
    int count, blocks;
};

/* Number of the entry that this block belongs to. */
template <class Entry> DPB_DEVICE int find_entry(const table<Entry> &t)
{
    int low = 0, high = t.count;

    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (t.entry[middle].span.first <= (int)block_x())
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The elements of this block: [begin, end). */
struct elements {
    int64_t begin, end;
};

DPB_DEVICE struct elements elements_of(const struct span &s)
{
    int64_t begin = ((int64_t)block_x() - s.first) * CHUNK, end = begin + CHUNK;

    return {begin, end < s.count ? end : s.count};
}

/* entry.update(i) for every element, four at a time where all its arrays are aligned. */
template <class Entry> DPB_KERNEL update(table<Entry> t)
{
    const Entry entry = t.entry[find_entry(t)];
    const struct elements e = elements_of(entry.span);
    const typename Entry::ready ready = entry.prepare(t.part);

    if (entry.wide) {
        for (int64_t i = e.begin + thread() * 4; i + 4 <= e.end; i += threads() * 4)
            entry.template update<4>(ready, i);
        for (int64_t i = e.begin + (e.end - e.begin) / 4 * 4 + thread(); i < e.end; i += threads())
            entry.template update<1>(ready, i);
    } else {
        for (int64_t i = e.begin + thread(); i < e.end; i += threads())
            entry.template update<1>(ready, i);
    }
}

/* ---- norms ---- */

/* entry.measure(i, squares) for every element, and the block's two sums of squares to `part`. */
template <class Entry> DPB_KERNEL measure(table<Entry> t)
{
    const Entry entry = t.entry[find_entry(t)];
    const struct elements e = elements_of(entry.span);
    double squares[2] = {}, first, second;

    for (int64_t i = e.begin + thread(); entry.adapt && i < e.end; i += threads())
        entry.measure(i, squares);
    first = block_sum(squares[0]);
    second = block_sum(squares[1]);
    if (thread() == 0) {
        t.part[2 * (int64_t)block_x()] = first;
        t.part[2 * (int64_t)block_x() + 1] = second;
    }
}

struct norms {
    float first, second;
};

/* Of the whole tensor, the same in every block: sums of blocks in their order. */
DPB_DEVICE struct norms norms_of(const double *part, const struct span &s)
{
    double squares[2] = {};

    for (int i = (int)thread(); i < s.blocks; i += (int)threads()) {
        squares[0] += part[2 * (int64_t)(s.first + i)];
        squares[1] += part[2 * (int64_t)(s.first + i) + 1];
    }
    squares[0] = block_sum(squares[0]);
    squares[1] = block_sum(squares[1]);
    return {(float)sqrt(squares[0]), (float)sqrt(squares[1])};
}

/* ---- SGD ---- */

struct sgd_entry {
    struct span span;
    float *param, *momentum; /* NULL: no momentum */
    const float *grad;
    float lr, mu, weight_decay;
    bool wide;
    struct ready {
    };

    DPB_MEMBER struct ready prepare(const double *) const
    {
        return {};
    }

    template <int WIDTH> DPB_MEMBER void update(const struct ready &, int64_t i) const
    {
        float w[WIDTH], g[WIDTH], m[WIDTH] = {};

        load(param + i, w);
        load(grad + i, g);
        if (momentum)
            load(momentum + i, m);
        for (int k = 0; k < WIDTH; k++) {
            m[k] = mu * m[k] + (g[k] + weight_decay * w[k]);
            w[k] -= lr * m[k];
        }
        if (momentum)
            store(momentum + i, m);
        store(param + i, w);
    }
};

/* ---- AdamW and LAMB ---- */

struct adam_entry {
    struct span span;
    float *param, *m, *v;
    const float *grad;
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    float m_factor, v_factor;         /* 1 / (1 - beta1^step), 1 / sqrt(1 - beta2^step) */
    float eps, lr, weight_decay;
    float keep; /* 1 - lr weight_decay */
    bool wide, adapt;
    struct ready {
    };

    DPB_MEMBER struct ready prepare(const double *) const
    {
        return {};
    }

    /* The direction in which Adam moves an element. */
    DPB_MEMBER float direction(float new_m, float new_v) const
    {
        return new_m * m_factor / (sqrtf(new_v) * v_factor + eps);
    }

    DPB_MEMBER void moments(float g, float &new_m, float &new_v) const
    {
        new_m = beta1 * new_m + rest1 * g;
        new_v = beta2 * new_v + rest2 * g * g;
    }

    template <int WIDTH> DPB_MEMBER void update(const struct ready &, int64_t i) const
    {
        float w[WIDTH], g[WIDTH], new_m[WIDTH], new_v[WIDTH];

        load(param + i, w);
        load(grad + i, g);
        load(m + i, new_m);
        load(v + i, new_v);
        for (int k = 0; k < WIDTH; k++) {
            moments(g[k], new_m[k], new_v[k]);
            w[k] = keep * w[k] - lr * direction(new_m[k], new_v[k]);
        }
        store(m + i, new_m);
        store(v + i, new_v);
        store(param + i, w);
    }
};

/* LAMB without `adapt` is AdamW. With it, measure() makes the moments too, and the update is
 * computed again from them: keeping it would cost memory and the same number of bytes to read. */
struct lamb_entry : adam_entry {
    struct ready {
        float rate;
    };

    DPB_MEMBER struct ready prepare(const double *part) const
    {
        if (!adapt)
            return {lr};
        const struct norms n = norms_of(part, span);

        return {n.first > 0.0f && n.second > 0.0f ? lr * (n.first / n.second) : lr};
    }

    DPB_MEMBER void measure(int64_t i, double (&squares)[2]) const
    {
        float w = param[i], new_m = m[i], new_v = v[i], u;

        moments(grad[i], new_m, new_v);
        m[i] = new_m;
        v[i] = new_v;
        u = direction(new_m, new_v) + weight_decay * w;
        squares[0] += (double)w * (double)w;
        squares[1] += (double)u * (double)u;
    }

    template <int WIDTH> DPB_MEMBER void update(const struct ready &r, int64_t i) const
    {
        float w[WIDTH], new_m[WIDTH], new_v[WIDTH];

        if (!adapt) {
            adam_entry::update<WIDTH>(adam_entry::ready(), i);
            return;
        }
        load(param + i, w);
        load(m + i, new_m);
        load(v + i, new_v);
        for (int k = 0; k < WIDTH; k++)
            w[k] -= r.rate * (direction(new_m[k], new_v[k]) + weight_decay * w[k]);
        store(param + i, w);
    }
};

/* ---- LARS ---- */

struct lars_entry {
    struct span span;
    float *param, *momentum;
    const float *grad;
    double lr, trust, weight_decay_exact, eps;
    float mu, weight_decay;
    bool wide, adapt;
    struct ready {
        float rate;
    };

    DPB_MEMBER struct ready prepare(const double *part) const
    {
        double rate = lr;

        if (!adapt)
            return {(float)rate};
        const struct norms n = norms_of(part, span);

        if (n.first > 0.0f && n.second > 0.0f)
            rate *= trust * (double)n.first /
                    ((double)n.second + weight_decay_exact * (double)n.first + eps);
        return {(float)rate};
    }

    DPB_MEMBER void measure(int64_t i, double (&squares)[2]) const
    {
        squares[0] += (double)param[i] * (double)param[i];
        squares[1] += (double)grad[i] * (double)grad[i];
    }

    template <int WIDTH> DPB_MEMBER void update(const struct ready &r, int64_t i) const
    {
        float w[WIDTH], g[WIDTH], m[WIDTH];

        load(param + i, w);
        load(grad + i, g);
        load(momentum + i, m);
        for (int k = 0; k < WIDTH; k++) {
            m[k] = mu * m[k] + r.rate * (g[k] + weight_decay * w[k]);
            w[k] -= m[k];
        }
        store(momentum + i, m);
        store(param + i, w);
    }
};

/* ---- Adagrad ---- */

struct adagrad_entry {
    struct span span; /* elements, or rows */
    float *param, *state;
    const float *grad;
    int64_t columns; /* by rows only */
    float lr, eps, weight_decay;
    bool wide;
    struct ready {
    };

    DPB_MEMBER struct ready prepare(const double *) const
    {
        return {};
    }

    template <int WIDTH> DPB_MEMBER void update(const struct ready &, int64_t i) const
    {
        float w[WIDTH], g[WIDTH], s[WIDTH];

        load(param + i, w);
        load(grad + i, g);
        load(state + i, s);
        for (int k = 0; k < WIDTH; k++) {
            g[k] += weight_decay * w[k];
            s[k] += g[k] * g[k];
            w[k] -= lr * g[k] / (sqrtf(s[k]) + eps);
        }
        store(state + i, s);
        store(param + i, w);
    }

    /* A row, by the threads of a warp. */
    template <int WIDTH> DPB_MEMBER void update_row(int64_t row) const
    {
        int64_t first = thread() % WARP * WIDTH;
        float *to = param + row * columns;
        const float *from = grad + row * columns;
        float w[WIDTH], g[WIDTH], squares = 0.0f, factor;
        float s = thread() % WARP == 0 ? state[row] : 0.0f; /* who reads it writes it */

        for (int64_t j = first; j < columns; j += WARP * WIDTH) {
            load(to + j, w);
            load(from + j, g);
            for (int k = 0; k < WIDTH; k++)
                squares += (g[k] + weight_decay * w[k]) * (g[k] + weight_decay * w[k]);
        }
        s = shuffle(s, 0) + warp_sum(squares) / (float)columns;
        factor = lr / (sqrtf(s) + eps);
        for (int64_t j = first; j < columns; j += WARP * WIDTH) {
            load(to + j, w);
            load(from + j, g);
            for (int k = 0; k < WIDTH; k++)
                w[k] -= factor * (g[k] + weight_decay * w[k]);
            store(to + j, w);
        }
        if (thread() % WARP == 0)
            state[row] = s;
    }
};

DPB_KERNEL update_rows(table<adagrad_entry> t)
{
    const adagrad_entry entry = t.entry[find_entry(t)];
    int64_t begin = ((int64_t)block_x() - entry.span.first) * ROWS_EACH, end = begin + ROWS_EACH;

    end = end < entry.span.count ? end : entry.span.count;
    for (int64_t row = begin + thread() / WARP; row < end; row += WARPS) {
        if (entry.wide)
            entry.update_row<4>(row);
        else
            entry.update_row<1>(row);
    }
}

/* ---- launches ---- */

/* Fill tables with `entry_of(i)` for `count` tensors, whose blocks have `each` of what their span
 * counts, and `run(table)` each table that is full, and the last one. */
template <class Entry, class EntryOf, class Run>
static int over_tables(int count, int64_t each, const struct dpb_cuda_queue *queue,
                       EntryOf entry_of, Run run)
{
    table<Entry> t = {};

    t.part = (double *)queue->workspace;
    for (int i = 0; i < count; i++) {
        Entry entry = entry_of(i);
        int64_t blocks = divide_up(entry.span.count, each);

        if (blocks > INT32_MAX / 2)
            return DPB_CUDA_INVALID;
        if (t.count == t.MOST || t.blocks + blocks > INT32_MAX / 2) {
            int rc = run(t);

            if (rc)
                return rc;
            t.count = t.blocks = 0;
        }
        if (blocks == 0)
            continue;
        entry.span.first = t.blocks;
        entry.span.blocks = (int)blocks;
        t.entry[t.count++] = entry;
        t.blocks += (int)blocks;
    }
    return t.count > 0 ? run(t) : 0;
}

template <class Entry, class EntryOf>
static int run_update(int count, const struct dpb_cuda_queue *queue, EntryOf entry_of)
{
    static_assert(sizeof(table<Entry>) <= DPB_CUDA_TABLE_BYTES, "a table is too large");
    return over_tables<Entry>(count, CHUNK, queue, entry_of, [&](const table<Entry> &t) {
        return launch(update<Entry>, (unsigned)t.blocks, 1, THREADS, queue, t);
    });
}

/* With norms where a tensor adapts. */
template <class Entry, class EntryOf>
static int run_adaptive(int count, const struct dpb_cuda_queue *queue, EntryOf entry_of)
{
    static_assert(sizeof(table<Entry>) <= DPB_CUDA_TABLE_BYTES, "a table is too large");
    return over_tables<Entry>(count, CHUNK, queue, entry_of, [&](const table<Entry> &t) {
        bool adapt = false;
        int rc = 0;

        for (int i = 0; i < t.count; i++)
            adapt = adapt || t.entry[i].adapt;
        if (adapt && (size_t)t.blocks * 2 * sizeof(double) > queue->workspace_bytes)
            return DPB_CUDA_INVALID;
        if (adapt)
            rc = launch(measure<Entry>, (unsigned)t.blocks, 1, THREADS, queue, t);
        return rc ? rc : launch(update<Entry>, (unsigned)t.blocks, 1, THREADS, queue, t);
    });
}

static struct adam_entry adam_of(const struct dpb_adam_args *a)
{
    struct adam_entry e = {};

    e.span.count = dpb_tensor_numel(&a->param);
    e.param = (float *)a->param.data;
    e.m = a->m;
    e.v = a->v;
    e.grad = a->grad;
    e.beta1 = (float)a->beta1;
    e.rest1 = (float)(1.0 - a->beta1);
    e.beta2 = (float)a->beta2;
    e.rest2 = (float)(1.0 - a->beta2);
    e.m_factor = (float)(1.0 / (1.0 - pow(a->beta1, (double)a->step)));
    e.v_factor = (float)(1.0 / sqrt(1.0 - pow(a->beta2, (double)a->step)));
    e.eps = (float)a->eps;
    e.lr = (float)a->lr;
    e.weight_decay = (float)a->weight_decay;
    e.keep = (float)(1.0 - a->lr * a->weight_decay);
    e.wide = aligned(e.param, e.m, e.v, a->grad);
    e.adapt = a->adapt;
    return e;
}

template <class Args> static bool all_f32(const Args *args, int count)
{
    for (int i = 0; i < count; i++)
        if (args[i].param.dtype != DPB_F32)
            return false;
    return true;
}

static struct adagrad_entry adagrad_of(const struct dpb_adagrad_args *a)
{
    struct adagrad_entry e = {};

    e.span.count = dpb_tensor_numel(&a->param);
    e.param = (float *)a->param.data;
    e.state = a->state;
    e.grad = a->grad;
    e.lr = (float)a->lr;
    e.eps = (float)a->eps;
    e.weight_decay = (float)a->weight_decay;
    e.wide = aligned(e.param, e.state, a->grad);
    return e;
}
} // namespace dpb

int dpb_cuda_sgd_momentum_many(const struct dpb_sgd_args *args, int count,
                               const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return run_update<sgd_entry>(count, queue, [&](int i) {
        const struct dpb_sgd_args *a = &args[i];
        struct sgd_entry e = {};

        e.span.count = a->count;
        e.param = a->param;
        e.momentum = a->momentum;
        e.grad = a->grad;
        e.lr = a->lr;
        e.mu = a->mu;
        e.weight_decay = a->weight_decay;
        e.wide = aligned(a->param, a->momentum, a->grad);
        return e;
    });
}

int dpb_cuda_adamw_many(const struct dpb_adam_args *args, int count,
                        const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (!all_f32(args, count))
        return DPB_CUDA_INVALID;
    return run_update<adam_entry>(count, queue, [&](int i) {
        return adam_of(&args[i]);
    });
}

int dpb_cuda_lamb_many(const struct dpb_adam_args *args, int count,
                       const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (!all_f32(args, count))
        return DPB_CUDA_INVALID;
    return run_adaptive<lamb_entry>(count, queue, [&](int i) {
        struct lamb_entry e = {};

        static_cast<adam_entry &>(e) = adam_of(&args[i]);
        return e;
    });
}

int dpb_cuda_lars_many(const struct dpb_lars_args *args, int count,
                       const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (!all_f32(args, count))
        return DPB_CUDA_INVALID;
    return run_adaptive<lars_entry>(count, queue, [&](int i) {
        const struct dpb_lars_args *a = &args[i];
        struct lars_entry e = {};

        e.span.count = dpb_tensor_numel(&a->param);
        e.param = (float *)a->param.data;
        e.momentum = a->momentum;
        e.grad = a->grad;
        e.lr = a->lr;
        e.trust = a->trust;
        e.weight_decay_exact = a->weight_decay;
        e.eps = a->eps;
        e.mu = (float)a->mu;
        e.weight_decay = (float)a->weight_decay;
        e.wide = aligned(e.param, e.momentum, a->grad);
        e.adapt = a->adapt;
        return e;
    });
}

int dpb_cuda_adagrad_many(const struct dpb_adagrad_args *args, int count,
                          const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (!all_f32(args, count))
        return DPB_CUDA_INVALID;
    return run_update<adagrad_entry>(count, queue, [&](int i) {
        return adagrad_of(&args[i]);
    });
}

int dpb_cuda_rowwise_adagrad_many(const struct dpb_adagrad_args *args, int count,
                                  const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (!all_f32(args, count))
        return DPB_CUDA_INVALID;
    return over_tables<adagrad_entry>(
            count, ROWS_EACH, queue,
            [&](int i) {
                struct adagrad_entry e = adagrad_of(&args[i]);

                e.columns = args[i].param.dim[1];
                e.span.count = args[i].param.dim[0];
                e.wide = e.columns % 4 == 0 && aligned(e.param, args[i].grad);
                return e;
            },
            [&](const table<adagrad_entry> &t) {
                return launch(update_rows, (unsigned)t.blocks, 1, THREADS, queue, t);
            });
}
