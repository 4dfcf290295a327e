/* The hook `powersgd`: PowerSGD (Vogels et al. 2019, arXiv:1905.13727) as PyTorch's
 * powerSGD_hook.py does it. A gradient of a bucket, as a matrix M of its first dimension by the
 * rest, is sent as two thin factors: P = M Q with last step's Q orthogonalised, summed over the
 * ranks and orthogonalised; then Q = M^T P, averaged; and every rank takes P Q^T for the gradient.
 * What that leaves out of a rank's own is added to its next gradient (error feedback). Gradients
 * that would hardly shrink, all vectors among them, travel together as they are. So a bucket has up
 * to three all-reduces, each of which waits for the one before: what is not compressed, P, Q. The
 * first steps are plain all-reduces.
 *
 * Different from PyTorch: an all-reduce of nothing is left out; a column of zeros stays zero when
 * orthogonalised, without becoming NaN; Gram-Schmidt for every rank, not QR above 2; the error of
 * what is not compressed is not kept, as it adds up to nothing over the ranks. */
#include "ddp_powersgd.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "dpb_rng.h"
#include "launch_copy.h"

#define ALIGN_ELEMENTS 16
#define Q_STREAM       ((uint64_t)0x706f7765 << 32) /* "powe" */

/* What travels of a bucket, each in one all-reduce. */
enum part {
    PART_REST,
    PART_P,
    PART_Q,
    PART_COUNT
};

/* A gradient, as a matrix. */
struct matrix {
    int64_t rows, columns;
    int64_t rank;           /* of the factors; 0: it is not compressed */
    int64_t at[PART_COUNT]; /* elements from the beginning of the part */
    int64_t error_at;
};

/* A bucket's region of a part. */
struct region {
    int64_t at, elements;
};

struct ddp_hook {
    struct dpb_powersgd_options options;
    const struct dpb_sync_services *services;
    const struct dpb_model *model;
    const struct dpb_unit_plan *plan;
    int64_t step;
    struct matrix *matrix; /* per parameter */
    struct region *region; /* per unit, PART_COUNT each */
    float *part[PART_COUNT];
    int64_t room[PART_COUNT], error_room; /* elements; the same for every plan */
    float *error;                         /* NULL without error feedback */
    float *fresh;                         /* random Q of this step; NULL with warm start */
};

/* ---- options ---- */

dpb_status ddp_powersgd_check(const struct dpb_ddp_options *options)
{
    static const struct dpb_powersgd_options usual = {.rank = DPB_POWERSGD_RANK,
                                                      .start_step = DPB_POWERSGD_START,
                                                      .min_rate = DPB_POWERSGD_MIN_RATE,
                                                      .error_feedback = true,
                                                      .warm_start = true};
    const struct dpb_powersgd_options *own = &options->powersgd;
    const bool is_usual =
            own->rank == 0 || (own->rank == usual.rank && own->start_step == usual.start_step &&
                               own->min_rate == usual.min_rate && own->epsilon == usual.epsilon &&
                               own->error_feedback && own->warm_start);

    if (options->hook != DPB_DDP_HOOK_POWERSGD) {
        if (is_usual)
            return DPB_OK;
        dpb_error("strategy \"ddp\": options of PowerSGD cannot take effect without its hook");
        dpb_log_hint("say --hook powersgd, or leave out --powersgd-...");
        return DPB_ERR_USAGE;
    }
    if (own->rank < 1 || own->start_step < 0 || !(own->min_rate > 0) || !(own->epsilon >= 0)) {
        dpb_error("strategy \"ddp\": --powersgd-rank must be at least 1, --powersgd-start and "
                  "--powersgd-epsilon at least 0, --powersgd-min-rate above 0");
        return DPB_ERR_USAGE;
    }
    if (own->start_step < 2 && (own->error_feedback || own->warm_start)) {
        dpb_error("strategy \"ddp\": --powersgd-start must be at least 2 with error feedback or "
                  "warm start, which belong to buckets: those are rebuilt after step 1");
        dpb_log_hint("use --powersgd-start 2 or more, or switch both off");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* ---- open, close, plan ---- */

static dpb_status powersgd_open(const struct ddp_hook_config *config, ddp_hook **hook)
{
    ddp_hook *self;

    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"ddp\": out of memory for a communication hook");
        return DPB_ERR_NO_MEMORY;
    }
    self->options = config->options->powersgd;
    self->services = config->services;
    *hook = self;
    return DPB_OK;
}

static void free_private(ddp_hook *hook)
{
    if (hook->error)
        dpb_device_get_ops(hook->services->launcher->device)
                ->free(hook->services->launcher->device, hook->error);
    hook->error = NULL;
    free(hook->fresh);
    hook->fresh = NULL;
}

static void powersgd_close(ddp_hook *hook)
{
    if (!hook)
        return;
    free_private(hook);
    free(hook->matrix);
    free(hook->region);
    free(hook);
}

/* PyTorch's _should_compress(). */
static struct matrix matrix_of(const struct dpb_powersgd_options *options,
                               const struct dpb_param_info *param)
{
    struct matrix matrix = {.rows = param->dim[0], .columns = param->numel / param->dim[0]};
    const int64_t least = matrix.rows < matrix.columns ? matrix.rows : matrix.columns;
    const int64_t rank = options->rank < least ? options->rank : least;

    if (param->rank > 1 &&
        (double)(matrix.rows + matrix.columns) * (double)rank * options->min_rate <
                (double)matrix.rows * (double)matrix.columns)
        matrix.rank = rank;
    return matrix;
}

/* Elements of a gradient in a part. */
static int64_t elements_of(const struct matrix *matrix, enum part part)
{
    if (part == PART_REST)
        return matrix->rank > 0 ? 0 : matrix->rows * matrix->columns;
    return matrix->rank * (part == PART_P ? matrix->rows : matrix->columns);
}

static int64_t aligned(int64_t elements)
{
    return (elements + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

/* Members of a bucket lie back to back in each part, buckets at multiples of 64 bytes. */
static void lay_out(const struct dpb_unit_plan *plan, struct matrix *matrix, struct region *region)
{
    for (int part = 0; part < PART_COUNT; part++) {
        int64_t at = 0;

        for (int u = 0; u < plan->unit_count; u++) {
            struct region *of = &region[u * PART_COUNT + part];

            of->at = at = aligned(at);
            for (int m = 0; m < plan->units[u].member_count; m++) {
                struct matrix *member = &matrix[plan->member[plan->units[u].first_member + m]];

                member->at[part] = at;
                at += elements_of(member, (enum part)part);
            }
            of->elements = at - of->at;
        }
    }
}

static dpb_status powersgd_plan(ddp_hook *hook, const struct dpb_model *model,
                                const struct dpb_unit_plan *plan)
{
    struct matrix *matrix = calloc((size_t)model->param_count, sizeof(*matrix));
    struct region *region = calloc((size_t)plan->unit_count * PART_COUNT, sizeof(*region));

    if (!matrix || !region) {
        dpb_error("strategy \"ddp\": out of memory for a hook on %d buckets", plan->unit_count);
        free(matrix);
        free(region);
        return DPB_ERR_NO_MEMORY;
    }
    for (int part = 0; part < PART_COUNT; part++)
        hook->room[part] = 0;
    hook->error_room = 0;
    for (int p = 0; p < model->param_count; p++) {
        matrix[p] = matrix_of(&hook->options, &model->params[p]);
        /* Room for a bucket per parameter, which is the most that a plan can take. */
        for (int part = 0; part < PART_COUNT; part++)
            hook->room[part] += aligned(elements_of(&matrix[p], (enum part)part));
        matrix[p].error_at = hook->error_room;
        if (hook->options.error_feedback && matrix[p].rank > 0)
            hook->error_room += aligned(matrix[p].rows * matrix[p].columns);
    }
    lay_out(plan, matrix, region);
    free(hook->matrix);
    free(hook->region);
    hook->matrix = matrix;
    hook->region = region;
    hook->model = model;
    hook->plan = plan;
    return DPB_OK;
}

/* ---- where things are ---- */

static float *gradient(const ddp_hook *hook, int param)
{
    const int unit = hook->plan->unit_of[param];
    char *bucket = hook->services->unit_data(hook->services->ctx, unit);

    return (float *)(void *)(bucket + (hook->plan->offset_bytes[param] -
                                       hook->plan->units[unit].offset_bytes));
}

static struct dpb_tensor m_of(const ddp_hook *hook, int param)
{
    return dpb_tensor_2d(gradient(hook, param), hook->matrix[param].rows,
                         hook->matrix[param].columns);
}

static struct dpb_tensor error_of(const ddp_hook *hook, int param)
{
    const struct matrix *matrix = &hook->matrix[param];

    return dpb_tensor_2d(hook->error + matrix->error_at, matrix->rows, matrix->columns);
}

static struct dpb_tensor factor_of(const ddp_hook *hook, int param, enum part part)
{
    const struct matrix *matrix = &hook->matrix[param];

    return dpb_tensor_2d(hook->part[part] + matrix->at[part],
                         part == PART_P ? matrix->rows : matrix->columns, matrix->rank);
}

float *ddp_powersgd_q(ddp_hook *hook, int param, int64_t *columns, int64_t *rank)
{
    *columns = hook->matrix[param].columns;
    *rank = hook->matrix[param].rank;
    return *rank > 0 ? factor_of(hook, param, PART_Q).data : NULL;
}

/* ---- the steps of the algorithm, on one gradient ---- */

static dpb_status orthogonalize(const ddp_hook *hook, const char *name, struct dpb_tensor x)
{
    const struct dpb_orthogonalize_args args = {.x = x, .eps = (float)hook->options.epsilon};

    return dpb_launch(hook->services->launcher, name, DPB_OP_ORTHOGONALIZE, &args);
}

/* M += error; error = M: what is left of that later is the next error. */
static dpb_status feed_back_error(const ddp_hook *hook, int param)
{
    const struct dpb_tensor m = m_of(hook, param), error = error_of(hook, param);
    const struct dpb_add_args add = {.a = m, .b = error, .y = m};
    const struct dpb_cast_args keep = {.from = m, .to = error};

    DPB_TRY(dpb_launch(hook->services->launcher, "powersgd-feed-back", DPB_OP_ADD, &add));
    return dpb_launch(hook->services->launcher, "powersgd-keep", DPB_OP_CAST, &keep);
}

static dpb_status make_p(const ddp_hook *hook, int param)
{
    const struct dpb_matmul_args args = {.a = m_of(hook, param),
                                         .b = factor_of(hook, param, PART_Q),
                                         .c = factor_of(hook, param, PART_P)};

    return dpb_launch(hook->services->launcher, "powersgd-p", DPB_OP_MATMUL, &args);
}

static dpb_status make_q(const ddp_hook *hook, int param)
{
    const struct dpb_matmul_args args = {.a = m_of(hook, param),
                                         .b = factor_of(hook, param, PART_P),
                                         .c = factor_of(hook, param, PART_Q),
                                         .trans_a = true};

    return dpb_launch(hook->services->launcher, "powersgd-q", DPB_OP_MATMUL, &args);
}

/* c = P Q^T + beta c. */
static dpb_status multiply(const ddp_hook *hook, int param, const char *name, struct dpb_tensor c,
                           float beta)
{
    const struct dpb_matmul_args args = {.a = factor_of(hook, param, PART_P),
                                         .b = factor_of(hook, param, PART_Q),
                                         .c = c,
                                         .trans_b = true,
                                         .beta = beta};

    return dpb_launch(hook->services->launcher, name, DPB_OP_MATMUL, &args);
}

/* M = P Q^T; error -= P Q^T, with P turned round. */
static dpb_status decompress(const ddp_hook *hook, int param)
{
    const struct dpb_tensor p = factor_of(hook, param, PART_P);
    const struct dpb_scale_args turn = {
            .x = p.data, .count = dpb_tensor_numel(&p), .factor = -1.0f};

    DPB_TRY(multiply(hook, param, "powersgd-decompress", m_of(hook, param), 0.0f));
    if (!hook->options.error_feedback)
        return DPB_OK;
    DPB_TRY(dpb_launch(hook->services->launcher, "powersgd-turn", DPB_OP_SCALE, &turn));
    return multiply(hook, param, "powersgd-error", error_of(hook, param), 1.0f);
}

static dpb_status copy_rest(const ddp_hook *hook, int param, bool back)
{
    float *rest = hook->part[PART_REST] + hook->matrix[param].at[PART_REST];
    float *own = gradient(hook, param);

    return launch_copy(hook->services->launcher, back ? "powersgd-unpack" : "powersgd-pack",
                       back ? own : rest, back ? rest : own,
                       hook->model->params[param].numel * (int64_t)sizeof(float));
}

/* ---- place ---- */

/* The same numbers on every rank, whatever the buckets. */
static void draw(float *q, uint64_t step, int param, int64_t elements)
{
    struct dpb_rng rng;

    dpb_rng_init(&rng, step, Q_STREAM | (uint32_t)param);
    for (int64_t i = 0; i < elements; i++)
        q[i] = (float)dpb_rng_normal(&rng);
}

static dpb_status draw_all(ddp_hook *hook)
{
    const struct dpb_launcher *launcher = hook->services->launcher;

    hook->fresh = calloc((size_t)hook->room[PART_Q] + 1, sizeof(float));
    if (!hook->fresh) {
        dpb_error("strategy \"ddp\": out of memory for PowerSGD's random factors");
        return DPB_ERR_NO_MEMORY;
    }
    for (int p = 0; p < hook->model->param_count; p++)
        draw(hook->fresh + hook->matrix[p].at[PART_Q], 0, p, elements_of(&hook->matrix[p], PART_Q));
    DPB_TRY(launch_copy(launcher, "powersgd-draw", hook->part[PART_Q], hook->fresh,
                        hook->room[PART_Q] * (int64_t)sizeof(float)));
    DPB_TRY(dpb_device_get_ops(launcher->device)->stream_sync(launcher->stream));
    if (!hook->options.warm_start)
        return DPB_OK;
    free(hook->fresh);
    hook->fresh = NULL;
    return DPB_OK;
}

/* On zeros: what the device prepares for a product is prepared before steps are timed. */
static dpb_status rehearse(const ddp_hook *hook)
{
    for (int p = 0; p < hook->model->param_count; p++) {
        if (hook->matrix[p].rank == 0)
            continue;
        DPB_TRY(make_p(hook, p));
        DPB_TRY(make_q(hook, p));
        DPB_TRY(decompress(hook, p));
    }
    return DPB_OK;
}

static dpb_status powersgd_place(ddp_hook *hook)
{
    dpb_device *device = hook->services->launcher->device;
    int64_t elements = 0;
    void *memory;

    free_private(hook);
    for (int part = 0; part < PART_COUNT; part++)
        elements += hook->room[part];
    DPB_TRY(hook->services->shared_alloc(hook->services->ctx, (size_t)elements * sizeof(float),
                                         &memory));
    hook->part[PART_REST] = memory;
    for (int part = PART_P; part < PART_COUNT; part++)
        hook->part[part] = hook->part[part - 1] + hook->room[part - 1];
    if (hook->error_room > 0) {
        DPB_TRY(dpb_device_get_ops(device)->alloc(device, (size_t)hook->error_room * sizeof(float),
                                                  &memory));
        hook->error = memory;
    }
    DPB_TRY(rehearse(hook));
    return hook->room[PART_Q] > 0 ? draw_all(hook) : DPB_OK;
}

/* ---- stages ---- */

static void powersgd_step_begin(ddp_hook *hook, int64_t step)
{
    hook->step = step;
}

static bool is_plain(const ddp_hook *hook)
{
    return hook->step <= hook->options.start_step;
}

static const struct region *region_of(const ddp_hook *hook, int unit, int part)
{
    return &hook->region[unit * PART_COUNT + part];
}

static int parts_that_travel(const ddp_hook *hook, int unit)
{
    int count = 0;

    for (int part = 0; part < PART_COUNT; part++)
        count += region_of(hook, unit, part)->elements > 0;
    return count;
}

static int powersgd_stages(ddp_hook *hook, int unit)
{
    return is_plain(hook) ? 1 : parts_that_travel(hook, unit);
}

static dpb_status all_reduce(ddp_hook *hook, int unit, const char *name, void *buffer,
                             int64_t count, float scale, int *handle)
{
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = DPB_F32,
            .buffer = buffer,
            .count = count,
            .scale = scale,
            .unit = unit,
            .name = name,
    };

    return hook->services->start(hook->services->ctx, &coll, handle);
}

static int member(const ddp_hook *hook, int unit, int index)
{
    return hook->plan->member[hook->plan->units[unit].first_member + index];
}

static dpb_status begin_compressed(ddp_hook *hook, int param)
{
    const struct dpb_tensor q = factor_of(hook, param, PART_Q);
    const int64_t bytes = dpb_tensor_numel(&q) * (int64_t)sizeof(float);

    if (hook->options.error_feedback)
        DPB_TRY(feed_back_error(hook, param));
    if (hook->fresh) {
        float *fresh = hook->fresh + hook->matrix[param].at[PART_Q];

        draw(fresh, (uint64_t)hook->step, param, dpb_tensor_numel(&q));
        DPB_TRY(launch_copy(hook->services->launcher, "powersgd-draw", q.data, fresh, bytes));
    }
    DPB_TRY(orthogonalize(hook, "powersgd-orthogonalize-q", q));
    return make_p(hook, param);
}

static dpb_status begin_bucket(ddp_hook *hook, int unit)
{
    for (int m = 0; m < hook->plan->units[unit].member_count; m++) {
        const int p = member(hook, unit, m);

        DPB_TRY(hook->matrix[p].rank > 0 ? begin_compressed(hook, p) : copy_rest(hook, p, false));
    }
    return DPB_OK;
}

static dpb_status turn_to_q(ddp_hook *hook, int unit)
{
    for (int m = 0; m < hook->plan->units[unit].member_count; m++) {
        const int p = member(hook, unit, m);

        if (hook->matrix[p].rank == 0)
            continue;
        DPB_TRY(orthogonalize(hook, "powersgd-orthogonalize-p", factor_of(hook, p, PART_P)));
        DPB_TRY(make_q(hook, p));
    }
    return DPB_OK;
}

static const char *const part_names[] = {
        [PART_REST] = "powersgd-rest", [PART_P] = "powersgd-p", [PART_Q] = "powersgd-q"};

/* The part that travels in stage `stage`. */
static int part_of_stage(const ddp_hook *hook, int unit, int stage)
{
    int part = 0;

    for (;; part++)
        if (region_of(hook, unit, part)->elements > 0 && stage-- == 0)
            return part;
}

static dpb_status powersgd_start(ddp_hook *hook, int unit, int stage,
                                 int handle[DDP_HOOK_COLLECTIVES_MAX], int *count)
{
    const struct dpb_sync_services *services = hook->services;
    const struct region *region;
    int part;

    *count = 1;
    if (is_plain(hook))
        return all_reduce(hook, unit, NULL, services->unit_data(services->ctx, unit),
                          hook->plan->units[unit].elements, services->average, &handle[0]);
    if (stage == 0)
        DPB_TRY(begin_bucket(hook, unit));
    part = part_of_stage(hook, unit, stage);
    if (part == PART_Q)
        DPB_TRY(turn_to_q(hook, unit));
    region = region_of(hook, unit, part);
    return all_reduce(hook, unit, part_names[part], hook->part[part] + region->at, region->elements,
                      part == PART_P ? 1.0f : services->average, &handle[0]);
}

static dpb_status powersgd_finish(ddp_hook *hook, int unit)
{
    for (int m = 0; !is_plain(hook) && m < hook->plan->units[unit].member_count; m++) {
        const int p = member(hook, unit, m);

        DPB_TRY(hook->matrix[p].rank > 0 ? decompress(hook, p) : copy_rest(hook, p, true));
    }
    return DPB_OK;
}

/* ---- what it tells ---- */

static int powersgd_messages(const ddp_hook *hook, int unit, struct dpb_sync_message *messages)
{
    int count = 0;

    for (int part = 0; part < PART_COUNT; part++) {
        const int64_t elements = region_of(hook, unit, part)->elements;

        if (elements == 0)
            continue;
        if (messages)
            messages[count] = (struct dpb_sync_message){.kind = DPB_COLL_ALL_REDUCE,
                                                        .dtype = DPB_F32,
                                                        .count = elements,
                                                        .unit = unit,
                                                        .name = part_names[part]};
        count++;
    }
    return count;
}

static void powersgd_memory(const ddp_hook *hook, struct dpb_strategy_memory *memory)
{
    int64_t own = hook->error_room + (hook->options.warm_start ? 0 : hook->room[PART_Q]);

    for (int part = 0; part < PART_COUNT; part++)
        memory->shared_bytes += hook->room[part] * (int64_t)sizeof(float);
    memory->private_bytes += own * (int64_t)sizeof(float);
}

const struct ddp_hook_ops ddp_hook_powersgd_ops = {
        .name = "powersgd",
        .is_lossy = true,
        .has_stages = true,
        .open = powersgd_open,
        .close = powersgd_close,
        .plan = powersgd_plan,
        .place = powersgd_place,
        .step_begin = powersgd_step_begin,
        .stages = powersgd_stages,
        .start = powersgd_start,
        .finish = powersgd_finish,
        .messages = powersgd_messages,
        .memory = powersgd_memory,
};
