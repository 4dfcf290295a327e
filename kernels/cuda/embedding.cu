/* Embedding: rows of a table by number, and the scatter-add that is its gradient.
 *
 * Backward adds the rows of dy that have one number in their order, without atomics. The positions
 * are sorted by a hash of their number, in an order that is kept (three kernels). Then a warp takes
 * each position, and looks for its number among those of the same hash. Where an earlier position
 * has it, it stops; else it adds up this one and all later ones that have it. */
#include "dialect.h"

namespace dpb
{
/* ---- forward ---- */

template <class From, class To> struct gather_of {
    const From *table;
    To *y;
    const int32_t *ids;
    int64_t rows, columns, count; /* of the table; of ids */
    bool accumulate;
    struct dpb_cuda_faults *faults;
};

/* A warp for each row. */
template <class From, class To, int WIDTH> DPB_KERNEL embedding_fwd(struct gather_of<From, To> a)
{
    int64_t step = (int64_t)WARPS * blocks_x();
    float values[WIDTH], held[WIDTH] = {};

    for (int64_t i = (int64_t)block_x() * WARPS + thread() / WARP; i < a.count; i += step) {
        int32_t id = a.ids[i];

        if (id < 0 || id >= a.rows) {
            if (thread() % WARP == 0)
                note_fault(a.faults, DPB_CUDA_FAULT_EMBEDDING_FWD, i, id);
            continue;
        }
        for (int64_t j = thread() % WARP * WIDTH; j < a.columns; j += WARP * WIDTH) {
            load(a.table + id * a.columns + j, values);
            if (a.accumulate)
                load(a.y + i * a.columns + j, held);
            for (int k = 0; k < WIDTH; k++)
                values[k] += held[k];
            store(a.y + i * a.columns + j, values);
        }
    }
}

/* ---- backward: order ---- */

constexpr int BUCKETS = 1024, BUCKETS_EACH = BUCKETS / (int)THREADS;
constexpr int64_t TILES_MOST = 256, IDS_MOST = 1 << 20;

/* In the workspace. */
struct buckets {
    int *at;                   /* [tile, bucket]: how many, then where they begin */
    int *begin;                /* BUCKETS + 1 */
    int *order;                /* positions by bucket */
    int64_t count, rows, tile; /* of ids; of the table; ids of a tile */
};

/* Numbers that follow each other go to different buckets; so do those with a common factor. */
DPB_DEVICE int bucket_of(int32_t id)
{
    return (int)((uint32_t)id * 2654435769u >> 22);
}

/* A thread has some buckets, and looks at all ids of the tile: their order is kept by itself.
 * `place`: begins are known, write the order; else count. */
template <bool PLACE>
DPB_KERNEL sort_tile(const int32_t *ids, struct buckets b, struct dpb_cuda_faults *faults)
{
    DPB_SHARED(int, bucket, THREADS);
    int *at = b.at + (int64_t)block_x() * BUCKETS + thread() * BUCKETS_EACH;
    int64_t begin = block_x() * b.tile, end = begin + b.tile < b.count ? begin + b.tile : b.count;
    int next[BUCKETS_EACH];

    for (int k = 0; k < BUCKETS_EACH; k++)
        next[k] = PLACE ? at[k] : 0;
    for (int64_t i0 = begin; i0 < end; i0 += THREADS) {
        int some = (int)(end - i0 < (int64_t)THREADS ? end - i0 : (int64_t)THREADS);

        DPB_SYNC(); /* the last round's readers */
        if ((int)thread() < some) {
            int32_t id = ids[i0 + thread()];
            bool ok = id >= 0 && id < b.rows;

            bucket[thread()] = ok ? bucket_of(id) : -1;
            if (!ok && !PLACE)
                note_fault(faults, DPB_CUDA_FAULT_EMBEDDING_BWD, i0 + thread(), id);
        }
        DPB_SYNC();
        for (int i = 0; i < some; i++) {
            int mine = bucket[i] - (int)thread() * BUCKETS_EACH;

            for (int k = 0; k < BUCKETS_EACH; k++) {
                if (PLACE && mine == k)
                    b.order[next[k]] = (int)(i0 + i);
                next[k] += mine == k;
            }
        }
    }
    for (int k = 0; !PLACE && k < BUCKETS_EACH; k++)
        at[k] = next[k];
}

/* One block: counts become begins, bucket by bucket, in a bucket tile by tile. */
DPB_KERNEL place_buckets(struct buckets b, int tiles)
{
    DPB_SHARED(int, total, THREADS);
    int sum[BUCKETS_EACH] = {}, mine = 0, before = 0;

    for (int tile = 0; tile < tiles; tile++)
        for (int k = 0; k < BUCKETS_EACH; k++)
            sum[k] += b.at[(int64_t)tile * BUCKETS + thread() * BUCKETS_EACH + k];
    for (int k = 0; k < BUCKETS_EACH; k++)
        mine += sum[k];
    total[thread()] = mine;
    DPB_SYNC();
    for (unsigned i = 0; i < thread(); i++)
        before += total[i];
    for (int k = 0; k < BUCKETS_EACH; k++) {
        int next = before;

        b.begin[thread() * BUCKETS_EACH + k] = before;
        before += sum[k];
        for (int tile = 0; tile < tiles; tile++) {
            int *at = b.at + (int64_t)tile * BUCKETS + thread() * BUCKETS_EACH + k;
            int here = *at;

            *at = next;
            next += here;
        }
    }
    if (thread() == THREADS - 1)
        b.begin[BUCKETS] = before;
}

/* ---- backward: sums ---- */

template <class T> struct scatter_of {
    const T *dy;
    float *dtable;
    const int32_t *ids;
    int64_t columns;
};

constexpr int SCATTER_WIDTH = 4, AHEAD = 8; /* rows whose elements are on their way at a time */

/* Adds the first `many` of some rows, in order. */
template <class T, int WIDTH>
DPB_DEVICE void add_rows(const struct scatter_of<T> &a, const int (&row)[AHEAD], int many,
                         int64_t column, float (&sum)[WIDTH])
{
    float values[AHEAD][WIDTH];

    for (int k = 0; k < AHEAD; k++)
        if (k < many)
            load(a.dy + row[k] * a.columns + column, values[k]);
    for (int k = 0; k < AHEAD; k++)
        for (int i = 0; k < many && i < WIDTH; i++)
            sum[i] += values[k][i];
}

template <class T, int WIDTH> DPB_KERNEL embedding_bwd(struct scatter_of<T> a, struct buckets b)
{
    unsigned lane = thread() % WARP;
    int64_t place = (int64_t)block_x() * WARPS + thread() / WARP;
    int64_t column = ((int64_t)block_y() * WARP + lane) * WIDTH;
    float sum[WIDTH] = {};

    if (place >= b.begin[BUCKETS])
        return; /* the whole warp */
    int32_t id = a.ids[b.order[place]];
    int begin = b.begin[bucket_of(id)], end = b.begin[bucket_of(id) + 1];

    for (int64_t i = begin; i < place; i += WARP)
        if (ballot(i + lane < place && a.ids[b.order[i + lane]] == id))
            return;
    bool has_column = column < a.columns;
    float *to = a.dtable + id * a.columns + column;

    if (has_column)
        load(to, sum);
    for (int64_t i = place; i < end; i += WARP) {
        int position = i + lane < end ? b.order[i + lane] : -1;
        uint32_t found = ballot(position >= 0 && a.ids[position] == id);
        int many = 0;

        while (found) {
            int row[AHEAD];

            for (int k = 0; k < AHEAD; k++) {
                row[k] = found ? shuffle(position, (unsigned)lowest_bit(found)) : 0;
                many = found ? k + 1 : many;
                found &= found - 1;
            }
            if (has_column)
                add_rows(a, row, many, column, sum);
        }
    }
    if (has_column)
        store(to, sum);
}

template <class T>
static int run_scatter(const struct dpb_embedding_args *args, const struct buckets &b,
                       const struct dpb_cuda_queue *queue)
{
    int64_t columns = args->dy.dim[1];
    const struct scatter_of<T> a = {
        (const T *)args->dy.data, (float *)args->dtable.data, args->ids, columns
    };
    bool wide = columns % SCATTER_WIDTH == 0 && aligned(args->dy.data, args->dtable.data);

    return by_width<SCATTER_WIDTH>(wide, [&](auto width) {
        constexpr int WIDTH = decltype(width)::value;

        return launch(dpb::embedding_bwd<T, WIDTH>, (unsigned)divide_up(b.count, WARPS),
                      (unsigned)divide_up(columns, WARP * WIDTH), THREADS, queue, a, b);
    });
}

static int run_sort(const struct dpb_embedding_args *args, const struct buckets &b,
                    const struct dpb_cuda_queue *queue)
{
    unsigned tiles = (unsigned)divide_up(b.count, b.tile);
    int rc = launch(sort_tile<false>, tiles, 1, THREADS, queue, args->ids, b, queue->faults);

    if (!rc)
        rc = launch(place_buckets, 1, 1, THREADS, queue, b, (int)tiles);
    return rc ? rc : launch(sort_tile<true>, tiles, 1, THREADS, queue, args->ids, b, queue->faults);
}

template <class From, class To>
static int run_gather(const struct dpb_embedding_args *args, const struct dpb_cuda_queue *queue)
{
    const struct gather_of<From, To> a = {
        (const From *)args->table.data, (To *)args->y.data, args->ids, args->table.dim[0],
                args->table.dim[1], args->y.dim[0], args->accumulate, queue->faults
    };
    bool wide = a.columns % pack_of<To> == 0 && aligned(args->table.data, args->y.data);

    return by_width<pack_of<To>>(wide, [&](auto width) {
        constexpr int WIDTH = decltype(width)::value;

        return launch(dpb::embedding_fwd<From, To, WIDTH>, blocks_for(a.count * WARP), 1, THREADS,
                      queue, a);
    });
}
} // namespace dpb

int dpb_cuda_embedding_fwd(const struct dpb_embedding_args *args,
                           const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return by_type(args->y.dtype, [&](auto zero) {
        using T = decltype(zero);

        if (args->table.dtype == DPB_F32)
            return run_gather<float, T>(args, queue);
        return args->table.dtype == args->y.dtype ? run_gather<T, T>(args, queue)
                                                  : DPB_CUDA_INVALID;
    });
}

int dpb_cuda_embedding_bwd(const struct dpb_embedding_args *args,
                           const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t count = args->dy.dim[0], tile = divide_up(count, TILES_MOST);
    int *memory = (int *)queue->workspace;
    struct buckets b = {
            memory, NULL, NULL, count, args->dtable.dim[0], divide_up(tile, THREADS) * THREADS};
    int rc = 0;

    b.begin = b.at + TILES_MOST * BUCKETS;
    b.order = b.begin + BUCKETS + 1;
    if (args->dtable.dtype != DPB_F32 || count > IDS_MOST ||
        (size_t)(b.order + count - memory) * sizeof(int) > queue->workspace_bytes)
        return DPB_CUDA_INVALID;
    if (!args->accumulate)
        rc = dpb_cuda_fill(args->dtable.data, DPB_F32, dpb_tensor_numel(&args->dtable), 0.0f,
                           queue);
    if (!rc)
        rc = run_sort(args, b, queue);
    if (rc)
        return rc;
    return by_type(args->dy.dtype, [&](auto zero) {
        return run_scatter<decltype(zero)>(args, b, queue);
    });
}
