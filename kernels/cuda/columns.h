/* columns.h: loops over [rows, columns] in which a thread stays with its columns, and sums over
 * rows. NHWC images are such matrices, with channels as columns.
 *
 * A block's threads: `lanes` side by side, WIDTH columns each, the others on further rows. A grid's
 * blocks: x over columns, y over parts of the rows. Sums of parts lie in the workspace, [part, sum,
 * column], and a second kernel adds them up, in fp64: the same bits whatever order blocks run in.
 */
#ifndef DPB_CUDA_COLUMNS_H
#define DPB_CUDA_COLUMNS_H

#include "dialect.h"

namespace dpb
{
struct column_shape {
    int64_t rows, columns;
    int64_t rows_each; /* of a part */
    unsigned lanes;
};

struct column_walk {
    int64_t column;         /* the thread's first */
    int64_t row, step, end; /* its rows; none where it has no column */
};

template <int WIDTH> DPB_DEVICE struct column_walk walk_of(const struct column_shape &s)
{
    int64_t column = ((int64_t)block_x() * s.lanes + thread() % s.lanes) * WIDTH;
    int64_t first = block_y() * s.rows_each, end = first + s.rows_each;

    end = end < s.rows ? end : s.rows;
    return {column, first + thread() / s.lanes, threads() / s.lanes, column < s.columns ? end : 0};
}

/* A partial sum of every column. `terms`: SUMS; begin(column), what the thread keeps of its
 * columns; add(kept, row, column, sums), the terms of a row. */
template <int WIDTH, class Terms>
DPB_KERNEL column_sums(Terms terms, struct column_shape s, float *part)
{
    constexpr int SUMS = Terms::SUMS;
    DPB_SHARED(float, shared, SUMS *WIDTH *THREADS);
    const struct column_walk w = walk_of<WIDTH>(s);
    float sums[SUMS][WIDTH] = {};

    if (w.row < w.end) {
        const auto kept = terms.begin(w.column);

        for (int64_t row = w.row; row < w.end; row += w.step)
            terms.add(kept, row, w.column, sums);
    }
    for (int i = 0; i < SUMS * WIDTH; i++)
        shared[i * THREADS + thread()] = sums[i / WIDTH][i % WIDTH];
    for (unsigned half = THREADS / 2; half >= s.lanes; half /= 2) {
        DPB_SYNC();
        for (int i = 0; thread() < half && i < SUMS * WIDTH; i++)
            shared[i * THREADS + thread()] += shared[i * THREADS + thread() + half];
    }
    if (thread() < s.lanes && w.column < s.columns)
        for (int i = 0; i < SUMS * WIDTH; i++)
            part[((int64_t)block_y() * SUMS + i / WIDTH) * s.columns + w.column + i % WIDTH] =
                    shared[i * THREADS + thread()];
}

constexpr unsigned FINISH_LANES = 8;

/* The sums of all parts; `finish`(column, sums) does with them what is wanted. */
template <int SUMS, class Finish>
DPB_KERNEL column_finish(const float *part, int64_t columns, int parts, Finish finish)
{
    DPB_SHARED(double, shared, SUMS *THREADS);
    int64_t column = (int64_t)block_x() * FINISH_LANES + thread() % FINISH_LANES;
    double sums[SUMS] = {};

    for (int64_t p = thread() / FINISH_LANES; column < columns && p < parts;
         p += THREADS / FINISH_LANES)
        for (int i = 0; i < SUMS; i++)
            sums[i] += (double)part[(p * SUMS + i) * columns + column];
    for (int i = 0; i < SUMS; i++)
        shared[i * THREADS + thread()] = sums[i];
    for (unsigned half = THREADS / 2; half >= FINISH_LANES; half /= 2) {
        DPB_SYNC();
        for (int i = 0; thread() < half && i < SUMS; i++)
            shared[i * THREADS + thread()] += shared[i * THREADS + thread() + half];
    }
    if (thread() < FINISH_LANES && column < columns) {
        for (int i = 0; i < SUMS; i++)
            sums[i] = shared[i * THREADS + thread()];
        finish(column, sums);
    }
}

/* ---- on the host ---- */

struct column_grid {
    struct column_shape shape;
    unsigned blocks_x, blocks_y;
};

constexpr int64_t COLUMN_BLOCKS = 1024;       /* about, in all */
constexpr int64_t SUM_COLUMNS_MOST = 1 << 17; /* what the workspace is enough for */

static inline struct column_grid column_grid_of(int64_t rows, int64_t columns, int width)
{
    int64_t groups = divide_up(columns, width), parts, parts_most, across;
    unsigned lanes = 1;

    while (lanes < WARP && lanes < groups)
        lanes *= 2;
    across = divide_up(groups, lanes);
    parts_most = across < COLUMN_BLOCKS ? COLUMN_BLOCKS / across : 1;
    parts = divide_up(rows, (int64_t)(THREADS / lanes) * 4); /* some rows for each thread */
    parts = parts < parts_most ? parts : parts_most;
    return {{rows, columns, divide_up(rows, parts), lanes},
            (unsigned)across,
            (unsigned)divide_up(rows, divide_up(rows, parts))};
}

/* Launch both kernels. */
template <int WIDTH, class Terms, class Finish>
static int run_column_sums(int64_t rows, int64_t columns, Terms terms, Finish finish,
                           const struct dpb_cuda_queue *queue)
{
    const struct column_grid grid = column_grid_of(rows, columns, WIDTH);
    size_t floats = (size_t)grid.blocks_y * Terms::SUMS * (size_t)columns;
    float *part = (float *)queue->workspace;
    int rc;

    if (columns > SUM_COLUMNS_MOST || floats * sizeof(float) > queue->workspace_bytes)
        return DPB_CUDA_INVALID;
    rc = launch(column_sums<WIDTH, Terms>, grid.blocks_x, grid.blocks_y, THREADS, queue, terms,
                grid.shape, part);
    return rc ? rc
              : launch(column_finish<Terms::SUMS, Finish>,
                       (unsigned)divide_up(columns, FINISH_LANES), 1, THREADS, queue, part, columns,
                       (int)grid.blocks_y, finish);
}
} // namespace dpb

#endif
