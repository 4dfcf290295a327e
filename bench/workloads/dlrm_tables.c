#include "dlrm_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlrm_distinct.h"
#include "dlrm_placement.h"
#include "dpb_log.h"

/* How memory is laid out, the same on every rank. A block is what one rank sends to another or to
 * all; it begins with as much as the sender has samples for:
 *   numbers  samples, [slots, samples] of int32
 *   rows     [slots, samples, length] of float */
struct layout {
    int ranks;
    int64_t samples_max;             /* of a rank */
    int64_t number_block, row_block; /* elements */
};

enum what {
    NUMBERS,
    ROWS,
    GRADIENTS,
    WHATS
};

#define BOTTOM_MLP "the bottom MLP"

/* What travels when; the others need nothing of the tables meanwhile. */
static const struct dpb_workload_exchange of_shards[WHATS] = {
        [NUMBERS] = {.name = "row-numbers",
                     .kind = DPB_COLL_ALL_TO_ALL,
                     .dtype = DPB_I32,
                     .pass = DPB_PASS_FORWARD},
        [ROWS] = {.name = "rows",
                  .kind = DPB_COLL_ALL_TO_ALL,
                  .dtype = DPB_F32,
                  .pass = DPB_PASS_FORWARD,
                  .meanwhile = BOTTOM_MLP},
        [GRADIENTS] = {.name = "row-gradients",
                       .kind = DPB_COLL_ALL_TO_ALL,
                       .dtype = DPB_F32,
                       .pass = DPB_PASS_BACKWARD,
                       .meanwhile = BOTTOM_MLP},
};
static const struct dpb_workload_exchange of_replicas[WHATS] = {
        [NUMBERS] = {.name = "row-numbers",
                     .kind = DPB_COLL_ALL_GATHER,
                     .dtype = DPB_I32,
                     .pass = DPB_PASS_BACKWARD,
                     .meanwhile = BOTTOM_MLP},
        [GRADIENTS] = {.name = "row-gradients",
                       .kind = DPB_COLL_ALL_GATHER,
                       .dtype = DPB_F32,
                       .pass = DPB_PASS_BACKWARD,
                       .meanwhile = BOTTOM_MLP},
};

struct dpb_dlrm_tables {
    const char *name;
    const struct dpb_dlrm_list *list;
    struct dpb_launcher *launcher;
    const struct dpb_rank_services *ranks;
    struct dpb_optimizer_config optimizer;
    struct dpb_dlrm_placement placement;
    struct layout layout;
    float *table[DPB_DLRM_TABLES_MAX];   /* NULL: on another rank */
    float *squares[DPB_DLRM_TABLES_MAX]; /* Adagrad's sums, per element or per row */
    int32_t *number;                     /* [ranks] blocks; shared memory, as `row` */
    /* What the host has of `number`: on an accelerator a copy, else the same memory. */
    int32_t *host_number;
    float *row;      /* [ranks] blocks: rows on their way forward, gradients on their way back */
    float *gradient; /* of the distinct rows of one table: [ranks * samples_max, length] */
    int32_t *which;  /* the row there of every occurrence */
    int32_t *host_which; /* as host_number */
    void *host_memory;   /* of these two; NULL where they are the device's */
    struct dpb_dlrm_distinct distinct;
    int64_t samples; /* of this rank in the last batch */
    int numbers_under_way, rows_under_way;
};

/* ---- sizes ---- */

static struct layout layout_of(const struct dpb_dlrm_list *list, int slots, int64_t batch_max,
                               int64_t global_batch, int ranks)
{
    int64_t samples = ranks == 1 ? batch_max : (global_batch + ranks - 1) / ranks;

    return (struct layout){.ranks = ranks,
                           .samples_max = samples,
                           .number_block = 1 + slots * samples,
                           .row_block = slots * samples * list->shape.length};
}

static int64_t occurrences_max(const struct layout *layout)
{
    return layout->ranks * layout->samples_max;
}

/* Elements of the sums of squares of table t. */
static int64_t squares_elements(const struct dpb_dlrm_shape *shape,
                                const struct dpb_optimizer_config *optimizer, int t)
{
    switch (optimizer->kind) {
    case DPB_OPTIMIZER_ADAGRAD:
        return shape->table_rows[t] * shape->length;
    case DPB_OPTIMIZER_ROWWISE_ADAGRAD:
        return shape->table_rows[t];
    default:
        return 0;
    }
}

int64_t dpb_dlrm_tables_bytes_for(const struct dpb_dlrm_list *list,
                                  const struct dpb_workload_sizes *sizes)
{
    const struct dpb_dlrm_shape *shape = &list->shape;
    struct dpb_dlrm_placement placement;
    struct layout layout;
    int64_t elements = 0;

    dpb_dlrm_place(shape, sizes->ranks, &placement);
    layout = layout_of(list, placement.slots, sizes->batch_max, sizes->global_batch, sizes->ranks);
    for (int t = 0; t < shape->tables; t++) {
        if (dpb_dlrm_placed_on(&placement, t, sizes->rank))
            elements += shape->table_rows[t] * shape->length +
                        squares_elements(shape, &sizes->optimizer, t);
    }
    elements += layout.ranks * (layout.number_block + layout.row_block);
    elements += occurrences_max(&layout) * (shape->length + 1);
    return elements * 4 + dpb_dlrm_distinct_bytes(occurrences_max(&layout));
}

/* The collectives of a step; those without a name are none. */
static const struct dpb_workload_exchange *travelling(const struct dpb_dlrm_shape *shape)
{
    return shape->where == DPB_DLRM_TABLES_SHARDED ? of_shards : of_replicas;
}

static int64_t elements_of(const struct layout *layout, enum what what)
{
    return layout->ranks * (what == NUMBERS ? layout->number_block : layout->row_block);
}

static void write_formula(const struct layout *layout, int slots, int64_t length, enum what what,
                          char *formula, size_t formula_bytes)
{
    if (what == NUMBERS)
        snprintf(formula, formula_bytes, "%d ranks x (1 + %d tables x %lld samples) x 4 B",
                 layout->ranks, slots, (long long)layout->samples_max);
    else
        snprintf(formula, formula_bytes, "%d ranks x %d tables x %lld samples x %lld x 4 B",
                 layout->ranks, slots, (long long)layout->samples_max, (long long)length);
}

int dpb_dlrm_tables_exchanges(const struct dpb_dlrm_list *list,
                              const struct dpb_workload_sizes *sizes,
                              struct dpb_workload_exchange *exchanges)
{
    const struct dpb_workload_exchange *all = travelling(&list->shape);
    struct dpb_dlrm_placement placement;
    struct layout layout;
    int count = 0;

    if (sizes->ranks == 1)
        return 0;
    dpb_dlrm_place(&list->shape, sizes->ranks, &placement);
    layout = layout_of(list, placement.slots, sizes->batch_max, sizes->global_batch, sizes->ranks);
    for (enum what what = 0; what < WHATS; what++) {
        if (!all[what].name)
            continue;
        if (exchanges) {
            exchanges[count] = all[what];
            exchanges[count].count = elements_of(&layout, what);
            write_formula(&layout, placement.slots, list->shape.length, what,
                          exchanges[count].formula, sizeof(exchanges[count].formula));
        }
        count++;
    }
    return count;
}

static int64_t host_numbers(const struct layout *layout)
{
    return layout->ranks * layout->number_block + occurrences_max(layout);
}

int64_t dpb_dlrm_tables_host_bytes_for(const struct dpb_dlrm_list *list,
                                       const struct dpb_workload_sizes *sizes)
{
    struct dpb_dlrm_placement placement;
    struct layout layout;

    dpb_dlrm_place(&list->shape, sizes->ranks, &placement);
    layout = layout_of(list, placement.slots, sizes->batch_max, sizes->global_batch, sizes->ranks);
    return host_numbers(&layout) * (int64_t)sizeof(int32_t);
}

/* ---- open, close ---- */

static dpb_status check_optimizer(const char *name, const struct dpb_optimizer_config *optimizer)
{
    bool known = optimizer->kind == DPB_OPTIMIZER_SGD
                         ? optimizer->momentum == 0.0
                         : optimizer->kind == DPB_OPTIMIZER_ADAGRAD ||
                                   optimizer->kind == DPB_OPTIMIZER_ROWWISE_ADAGRAD;

    if (known && optimizer->weight_decay == 0.0)
        return DPB_OK;
    dpb_error("workload \"%s\": optimizer \"%s\"%s would change rows of tables that no sample used",
              name, dpb_optimizer_text(optimizer->kind),
              known                                  ? " with weight decay"
              : optimizer->kind == DPB_OPTIMIZER_SGD ? " with momentum"
                                                     : "");
    dpb_log_hint("take --optimizer sgd with --momentum 0, adagrad or rowwise-adagrad, each with "
                 "--weight-decay 0");
    return DPB_ERR_USAGE;
}

static dpb_status take(struct dpb_dlrm_tables *tables, int64_t elements, float **memory)
{
    dpb_device *device = tables->launcher->device;
    void *made = NULL;

    if (elements > 0)
        DPB_TRY(dpb_device_get_ops(device)->alloc(device, (size_t)elements * sizeof(float), &made));
    *memory = made;
    return DPB_OK;
}

static dpb_status take_shared(struct dpb_dlrm_tables *tables, int64_t elements, void **memory)
{
    return tables->ranks->alloc(tables->ranks->ctx, (size_t)elements * 4, memory);
}

static dpb_status take_host(struct dpb_dlrm_tables *tables)
{
    const int64_t numbers = tables->layout.ranks * tables->layout.number_block;
    void *memory;

    if (dpb_device_is_host(tables->launcher->device)) {
        tables->host_number = tables->number;
        tables->host_which = tables->which;
        return DPB_OK;
    }
    DPB_TRY(dpb_device_host_alloc(tables->launcher->device,
                                  (size_t)host_numbers(&tables->layout) * sizeof(int32_t),
                                  &memory));
    tables->host_memory = memory;
    tables->host_number = memory;
    tables->host_which = tables->host_number + numbers;
    return DPB_OK;
}

static dpb_status take_all(struct dpb_dlrm_tables *tables)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    const struct layout *layout = &tables->layout;
    int64_t most = occurrences_max(layout);
    void *shared, *which;

    DPB_TRY(take_shared(tables, layout->ranks * layout->number_block, &shared));
    tables->number = shared;
    DPB_TRY(take_shared(tables, layout->ranks * layout->row_block, &shared));
    tables->row = shared;
    for (int t = 0; t < shape->tables; t++) {
        if (!dpb_dlrm_placed_on(&tables->placement, t, tables->ranks->rank))
            continue;
        DPB_TRY(take(tables, shape->table_rows[t] * shape->length, &tables->table[t]));
        DPB_TRY(take(tables, squares_elements(shape, &tables->optimizer, t), &tables->squares[t]));
    }
    DPB_TRY(take(tables, most * shape->length, &tables->gradient));
    DPB_TRY(dpb_device_get_ops(tables->launcher->device)
                    ->alloc(tables->launcher->device, (size_t)most * sizeof(*tables->which),
                            &which));
    tables->which = which;
    if (dpb_dlrm_distinct_open(most, &tables->distinct) < 0) {
        dpb_error("workload \"%s\": out of memory", tables->name);
        return DPB_ERR_NO_MEMORY;
    }
    return take_host(tables);
}

static void log_placement(const struct dpb_dlrm_tables *tables)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    int64_t rows = 0;
    int count = 0;

    for (int t = 0; t < shape->tables; t++) {
        if (!tables->table[t])
            continue;
        rows += shape->table_rows[t];
        count++;
        dpb_debug("workload \"%s\": table %d, %lld rows, is on rank %d", tables->name, t,
                  (long long)shape->table_rows[t], tables->ranks->rank);
    }
    dpb_debug("workload \"%s\": rank %d has %d of %d tables, %lld rows, %lld bytes", tables->name,
              tables->ranks->rank, count, shape->tables, (long long)rows,
              (long long)(rows * shape->length * (int64_t)sizeof(float)));
}

dpb_status dpb_dlrm_tables_open(const char *name, const struct dpb_dlrm_list *list,
                                const struct dpb_workload_config *config,
                                struct dpb_dlrm_tables **tables)
{
    struct dpb_dlrm_tables *opened;
    dpb_status st;

    DPB_TRY(check_optimizer(name, &config->optimizer));
    opened = calloc(1, sizeof(*opened));
    if (!opened) {
        dpb_error("workload \"%s\": out of memory", name);
        return DPB_ERR_NO_MEMORY;
    }
    opened->name = name;
    opened->list = list;
    opened->launcher = config->launcher;
    opened->ranks = config->ranks;
    opened->optimizer = config->optimizer;
    dpb_dlrm_place(&list->shape, config->ranks->size, &opened->placement);
    opened->layout = layout_of(list, opened->placement.slots, config->batch_max,
                               config->global_batch, config->ranks->size);
    if (config->batch_max > opened->layout.samples_max) {
        dpb_error("workload \"%s\": %lld samples on a rank are more than %d ranks share of %lld",
                  name, (long long)config->batch_max, config->ranks->size,
                  (long long)config->global_batch);
        st = DPB_ERR_INTERNAL;
        goto err;
    }
    DPB_TRY_GOTO(st, take_all(opened), err);
    log_placement(opened);
    *tables = opened;
    return DPB_OK;

err:
    dpb_dlrm_tables_close(opened);
    return st;
}

void dpb_dlrm_tables_close(struct dpb_dlrm_tables *tables)
{
    dpb_device *device;

    if (!tables)
        return;
    device = tables->launcher->device;
    for (int t = 0; t < DPB_DLRM_TABLES_MAX; t++) {
        if (tables->table[t])
            dpb_device_get_ops(device)->free(device, tables->table[t]);
        if (tables->squares[t])
            dpb_device_get_ops(device)->free(device, tables->squares[t]);
    }
    if (tables->gradient)
        dpb_device_get_ops(device)->free(device, tables->gradient);
    if (tables->which)
        dpb_device_get_ops(device)->free(device, tables->which);
    if (tables->host_memory)
        dpb_device_host_free(device, tables->host_memory);
    dpb_dlrm_distinct_release(&tables->distinct);
    free(tables);
}

/* Through memory of the host's, unless the device's is that. */
static dpb_status init_table(struct dpb_dlrm_tables *tables, int t, uint64_t seed)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    const size_t bytes = (size_t)(shape->table_rows[t] * shape->length) * sizeof(float);
    float *made;
    dpb_status st;

    if (dpb_device_is_host(tables->launcher->device)) {
        dpb_dlrm_list_init_table(tables->list, t, seed, tables->table[t]);
        return DPB_OK;
    }
    made = malloc(bytes);
    if (!made) {
        dpb_error("workload \"%s\": out of memory for %zu bytes of table %d", tables->name, bytes,
                  t);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_dlrm_list_init_table(tables->list, t, seed, made);
    st = dpb_copy_now(tables->launcher, tables->table[t], made, bytes);
    free(made);
    return st;
}

dpb_status dpb_dlrm_tables_init(struct dpb_dlrm_tables *tables, uint64_t seed)
{
    for (int t = 0; t < tables->list->shape.tables; t++)
        if (tables->table[t])
            DPB_TRY(init_table(tables, t, seed));
    return DPB_OK;
}

bool dpb_dlrm_tables_state(const struct dpb_dlrm_tables *tables, int index,
                           struct dpb_workload_state *state)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;

    for (int t = 0; t < shape->tables; t++) {
        const int64_t squares = squares_elements(shape, &tables->optimizer, t);

        state->kind =
                shape->where == DPB_DLRM_TABLES_SHARDED ? DPB_STATE_SHARDED : DPB_STATE_REPLICATED;
        if (!tables->table[t])
            continue;
        if (index-- == 0) {
            state->name = tables->list->table_weight[t];
            state->data = tables->table[t];
            state->numel = shape->table_rows[t] * shape->length;
            return true;
        }
        if (squares > 0 && index-- == 0) {
            state->name = tables->list->table_sum[t];
            state->data = tables->squares[t];
            state->numel = squares;
            return true;
        }
    }
    return false;
}

/* ---- where things are ---- */

static int32_t *numbers_of(const struct dpb_dlrm_tables *tables, int rank)
{
    return tables->number + rank * tables->layout.number_block;
}

/* The same as the host has it. */
static int32_t *host_numbers_of(const struct dpb_dlrm_tables *tables, int rank)
{
    return tables->host_number + rank * tables->layout.number_block;
}

/* Samples of the rank that a block of numbers came from. */
static int64_t samples_of(const struct dpb_dlrm_tables *tables, int rank)
{
    return host_numbers_of(tables, rank)[0];
}

/* What block `rank` of a sender with so many samples has for table t. */
static int32_t *table_numbers(const struct dpb_dlrm_tables *tables, int rank, int t,
                              int64_t samples)
{
    return numbers_of(tables, rank) + 1 + tables->placement.slot_of[t] * samples;
}

static int32_t *host_table_numbers(const struct dpb_dlrm_tables *tables, int rank, int t,
                                   int64_t samples)
{
    return host_numbers_of(tables, rank) + 1 + tables->placement.slot_of[t] * samples;
}

/* All blocks of numbers between the device and the host. */
static dpb_status copy_numbers(const struct dpb_dlrm_tables *tables, bool to_host)
{
    const size_t bytes =
            (size_t)(tables->layout.ranks * tables->layout.number_block) * sizeof(*tables->number);

    if (tables->host_number == tables->number)
        return DPB_OK;
    return dpb_copy_now(tables->launcher, to_host ? tables->host_number : tables->number,
                        to_host ? tables->number : tables->host_number, bytes);
}

static float *table_rows(const struct dpb_dlrm_tables *tables, int rank, int t, int64_t samples)
{
    return tables->row + rank * tables->layout.row_block +
           tables->placement.slot_of[t] * samples * tables->list->shape.length;
}

static dpb_status start(struct dpb_dlrm_tables *tables, enum what what, int *exchange)
{
    const struct dpb_workload_exchange *coll = &travelling(&tables->list->shape)[what];
    void *buffer = what == NUMBERS ? (void *)tables->number : (void *)tables->row;

    return tables->ranks->start(tables->ranks->ctx, coll->kind, coll->dtype, buffer,
                                elements_of(&tables->layout, what), coll->name, exchange);
}

static dpb_status wait_for(struct dpb_dlrm_tables *tables, int exchange)
{
    return tables->ranks->wait(tables->ranks->ctx, exchange);
}

/* The blocks of numbers that have come say how many samples their senders have. */
static dpb_status check_numbers(const struct dpb_dlrm_tables *tables)
{
    DPB_TRY(copy_numbers(tables, true));
    for (int r = 0; r < tables->layout.ranks; r++) {
        int64_t samples = samples_of(tables, r);

        if (samples >= 0 && samples <= tables->layout.samples_max)
            continue;
        dpb_error("workload \"%s\": rank %d says that it has %lld samples, of at most %lld",
                  tables->name, r, (long long)samples, (long long)tables->layout.samples_max);
        return DPB_ERR_INTERNAL;
    }
    return DPB_OK;
}

/* Rows between the blocks and a buffer of all tables, [tables, samples, length]. */
static dpb_status copy_rows(const struct dpb_dlrm_tables *tables, float *all, bool to_blocks)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    const struct dpb_launcher *launcher = tables->launcher;
    int64_t each = tables->samples * shape->length;
    dpb_status st = DPB_OK;

    if (each == 0)
        return DPB_OK;
    dpb_range_begin(launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE,
                    to_blocks ? "emb_l.pack" : "emb_l.unpack", -1);
    for (int t = 0; st == DPB_OK && t < shape->tables; t++) {
        int owner = tables->placement.rank_of[t];
        float *block =
                table_rows(tables, owner < 0 ? tables->ranks->rank : owner, t, tables->samples);

        st = dpb_device_get_ops(launcher->device)
                     ->copy(launcher->device, to_blocks ? block : all + t * each,
                            to_blocks ? all + t * each : block, (size_t)each * sizeof(float),
                            launcher->stream);
    }
    dpb_range_end(launcher->recorder, DPB_LANE_HOST);
    return st;
}

/* ---- forward ---- */

static dpb_status look_up(const struct dpb_dlrm_tables *tables, int t, const int32_t *numbers,
                          int64_t samples, float *rows)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    struct dpb_embedding_args args = {
            .table = dpb_tensor_2d(tables->table[t], shape->table_rows[t], shape->length),
            .y = dpb_tensor_2d(rows, samples, shape->length),
            .ids = numbers};

    if (samples == 0)
        return DPB_OK;
    return dpb_launch(tables->launcher, tables->list->table_op[t].fwd, DPB_OP_EMBEDDING_FWD, &args);
}

/* The batch's numbers, turned round, in the blocks of the ranks that have the tables. */
static dpb_status write_numbers(struct dpb_dlrm_tables *tables, const struct dpb_batch *batch)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;
    const int32_t *indices = dpb_batch_on_host(batch)->indices;

    tables->samples = batch->samples;
    for (int r = 0; r < tables->layout.ranks; r++) {
        if (shape->where == DPB_DLRM_TABLES_SHARDED || r == tables->ranks->rank)
            host_numbers_of(tables, r)[0] = (int32_t)batch->samples;
    }
    for (int t = 0; t < shape->tables; t++) {
        int owner = tables->placement.rank_of[t];
        int32_t *to = host_table_numbers(tables, owner < 0 ? tables->ranks->rank : owner, t,
                                         batch->samples);

        for (int64_t i = 0; i < batch->samples; i++)
            to[i] = indices[i * shape->tables + t];
    }
    return copy_numbers(tables, false);
}

static dpb_status fetch_sharded(struct dpb_dlrm_tables *tables)
{
    DPB_TRY(start(tables, NUMBERS, &tables->numbers_under_way));
    DPB_TRY(wait_for(tables, tables->numbers_under_way));
    DPB_TRY(check_numbers(tables));
    for (int t = 0; t < tables->list->shape.tables; t++) {
        for (int r = 0; tables->table[t] && r < tables->layout.ranks; r++) {
            int64_t samples = samples_of(tables, r);

            DPB_TRY(look_up(tables, t, table_numbers(tables, r, t, samples), samples,
                            table_rows(tables, r, t, samples)));
        }
    }
    return start(tables, ROWS, &tables->rows_under_way);
}

dpb_status dpb_dlrm_tables_fetch(struct dpb_dlrm_tables *tables, const struct dpb_batch *batch,
                                 float *embedded)
{
    const struct dpb_dlrm_shape *shape = &tables->list->shape;

    DPB_TRY(write_numbers(tables, batch));
    if (shape->where == DPB_DLRM_TABLES_SHARDED)
        return fetch_sharded(tables);
    for (int t = 0; t < shape->tables; t++)
        DPB_TRY(look_up(tables, t, table_numbers(tables, tables->ranks->rank, t, batch->samples),
                        batch->samples, embedded + t * batch->samples * shape->length));
    return DPB_OK;
}

dpb_status dpb_dlrm_tables_fetched(struct dpb_dlrm_tables *tables, float *embedded)
{
    if (tables->list->shape.where != DPB_DLRM_TABLES_SHARDED)
        return DPB_OK;
    DPB_TRY(wait_for(tables, tables->rows_under_way));
    return copy_rows(tables, embedded, false);
}

/* ---- backward ---- */

dpb_status dpb_dlrm_tables_send(struct dpb_dlrm_tables *tables, const float *embedded_grad)
{
    DPB_TRY(copy_rows(tables, (float *)embedded_grad, true));
    if (tables->list->shape.where != DPB_DLRM_TABLES_SHARDED)
        DPB_TRY(start(tables, NUMBERS, &tables->numbers_under_way));
    return start(tables, GRADIENTS, &tables->rows_under_way);
}

dpb_status dpb_dlrm_tables_sent(struct dpb_dlrm_tables *tables)
{
    if (tables->list->shape.where != DPB_DLRM_TABLES_SHARDED) {
        DPB_TRY(wait_for(tables, tables->numbers_under_way));
        DPB_TRY(check_numbers(tables));
    }
    return wait_for(tables, tables->rows_under_way);
}

/* ---- update ---- */

/* tables->gradient := for each distinct row of table t its summed gradient, over all ranks. */
static dpb_status sum_gradients(struct dpb_dlrm_tables *tables, int t)
{
    int64_t length = tables->list->shape.length, at = 0;
    struct dpb_embedding_args args = {.accumulate = false};
    struct dpb_scale_args mean = {.x = tables->gradient,
                                  .factor = 1.0f / (float)tables->layout.ranks};

    dpb_dlrm_distinct_clear(&tables->distinct);
    for (int r = 0; r < tables->layout.ranks; r++) {
        int64_t samples = samples_of(tables, r);

        dpb_dlrm_distinct_add(&tables->distinct, host_table_numbers(tables, r, t, samples), samples,
                              tables->host_which + at);
        at += samples;
    }
    if (tables->host_which != tables->which && at > 0)
        DPB_TRY(dpb_copy_now(tables->launcher, tables->which, tables->host_which,
                             (size_t)at * sizeof(*tables->which)));
    args.dtable = dpb_tensor_2d(tables->gradient, tables->distinct.count, length);
    at = 0;
    for (int r = 0; r < tables->layout.ranks; r++) {
        int64_t samples = samples_of(tables, r);

        if (samples == 0)
            continue;
        args.dy = dpb_tensor_2d(table_rows(tables, r, t, samples), samples, length);
        args.ids = tables->which + at;
        DPB_TRY(dpb_launch(tables->launcher, tables->list->table_op[t].bwd_weights,
                           DPB_OP_EMBEDDING_BWD, &args));
        args.accumulate = true;
        at += samples;
    }
    if (tables->layout.ranks == 1 || at == 0)
        return DPB_OK;
    mean.count = tables->distinct.count * length;
    return dpb_launch(tables->launcher, tables->list->table_op[t].bwd_weights, DPB_OP_SCALE, &mean);
}

static dpb_status update_row(const struct dpb_dlrm_tables *tables,
                             const struct dpb_optimizer_config *optimizer, int t, int64_t row,
                             const float *gradient)
{
    const struct dpb_launcher *launcher = tables->launcher;
    int64_t length = tables->list->shape.length;
    float *param = tables->table[t] + row * length;
    struct dpb_adagrad_args adagrad = {.param = dpb_tensor_2d(param, 1, length),
                                       .grad = gradient,
                                       .lr = optimizer->lr,
                                       .eps = optimizer->eps};

    if (optimizer->kind == DPB_OPTIMIZER_SGD) {
        struct dpb_sgd_args sgd = {
                .param = param, .grad = gradient, .count = length, .lr = (float)optimizer->lr};

        return dpb_op_launch(launcher->device, DPB_OP_SGD_MOMENTUM, &sgd, launcher->stream);
    }
    if (optimizer->kind == DPB_OPTIMIZER_ADAGRAD) {
        adagrad.state = tables->squares[t] + row * length;
        return dpb_op_launch(launcher->device, DPB_OP_ADAGRAD, &adagrad, launcher->stream);
    }
    adagrad.state = tables->squares[t] + row;
    return dpb_op_launch(launcher->device, DPB_OP_ROWWISE_ADAGRAD, &adagrad, launcher->stream);
}

dpb_status dpb_dlrm_tables_update(struct dpb_dlrm_tables *tables,
                                  const struct dpb_optimizer_config *optimizer)
{
    const struct dpb_launcher *launcher = tables->launcher;

    if (optimizer->kind != tables->optimizer.kind) {
        dpb_error("workload \"%s\": opened for optimizer \"%s\", not \"%s\"", tables->name,
                  dpb_optimizer_text(tables->optimizer.kind), dpb_optimizer_text(optimizer->kind));
        return DPB_ERR_INTERNAL;
    }
    for (int t = 0; t < tables->list->shape.tables; t++) {
        dpb_status st = DPB_OK;

        if (!tables->table[t])
            continue;
        DPB_TRY(sum_gradients(tables, t));
        /* one range for all rows: a trace has no room for one each */
        dpb_range_begin(launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE,
                        tables->list->table_update[t], -1);
        for (int32_t i = 0; st == DPB_OK && i < tables->distinct.count; i++)
            st = update_row(tables, optimizer, t, tables->distinct.value[i],
                            tables->gradient + i * tables->list->shape.length);
        dpb_range_end(launcher->recorder, DPB_LANE_HOST);
        DPB_TRY(st);
    }
    return DPB_OK;
}
