/* Batch normalisation of the CPU device against the reference. */
#include "cpu_ops.h"
#include "cpu_pair.h"
#include "op_data.h"

struct batchnorm_case {
    int rank;
    int64_t dim[4];
};

static const struct batchnorm_case batchnorm_cases[] = {
        {4, {4, 12, 12, 64}}, {4, {2, 7, 7, 33}},   {4, {1, 5, 3, 1}}, {4, {2, 1, 1, 16}},
        {2, {37, 20}},        {4, {3, 9, 11, 130}}, {2, {70, 515}},
};

/* Outputs of one run: y, dx, mask; running and saved mean and variance, dgamma, dbeta. */
struct batchnorm_out {
    float *y, *dx, *dresidual, *channel[6];
    uint8_t *mask;
};

struct batchnorm_data {
    struct op_data data;
    struct dpb_tensor shape;
    int64_t c, numel, m;
    double terms;
    float *x, *dy, *residual, *gamma, *beta, *mean0, *var0;
    bool has_residual;
    struct batchnorm_out out[2]; /* reference, device */
};

static void batchnorm_open(struct batchnorm_data *d, const struct batchnorm_case *s)
{
    *d = (struct batchnorm_data){.shape = {.dtype = DPB_F32, .rank = s->rank}};
    memcpy(d->shape.dim, s->dim, sizeof(s->dim));
    d->c = s->dim[s->rank - 1];
    d->numel = dpb_tensor_numel(&d->shape);
    d->m = d->numel / d->c;
    d->terms = op_ulps_of_sum(d->m);
    d->x = op_data_f32(&d->data, d->numel);
    d->dy = op_data_f32(&d->data, d->numel);
    d->residual = op_data_f32(&d->data, d->numel);
    d->gamma = op_data_f32(&d->data, d->c);
    d->beta = op_data_f32(&d->data, d->c);
    d->mean0 = op_data_f32(&d->data, d->c);
    d->var0 = op_data_abs(&d->data, op_data_f32(&d->data, d->c), d->c);
    for (int64_t i = 0; i < d->numel; i++)
        d->x[i] += 0.5f; /* a mean to subtract */
    for (int set = 0; set < 2; set++) {
        d->out[set].y = op_data_f32(&d->data, d->numel);
        d->out[set].dx = op_data_f32(&d->data, d->numel);
        d->out[set].dresidual = op_data_f32(&d->data, d->numel);
        d->out[set].mask = op_data_bytes(&d->data, (size_t)d->numel);
        for (int i = 0; i < 6; i++)
            d->out[set].channel[i] = op_data_f32(&d->data, d->c);
    }
}

static struct dpb_batchnorm_args batchnorm_args(const struct batchnorm_data *d, int set, bool relu)
{
    const struct batchnorm_out *out = &d->out[set];
    struct dpb_batchnorm_args args = {.x = d->shape,
                                      .y = d->shape,
                                      .dy = d->shape,
                                      .dx = d->shape,
                                      .gamma = d->gamma,
                                      .beta = d->beta,
                                      .running_mean = out->channel[0],
                                      .running_var = out->channel[1],
                                      .save_mean = out->channel[2],
                                      .save_var = out->channel[3],
                                      .dgamma = out->channel[4],
                                      .dbeta = out->channel[5],
                                      .mask = relu ? out->mask : NULL,
                                      .count = (double)d->m,
                                      .eps = 1e-5f,
                                      .momentum = 0.1f,
                                      .training = true,
                                      .relu = relu};

    args.x.data = d->x;
    args.y.data = out->y;
    args.dy.data = d->dy;
    args.dx.data = out->dx;
    if (d->has_residual) {
        args.residual = args.dresidual = d->shape;
        args.residual.data = d->residual;
        args.dresidual.data = out->dresidual;
    }
    return args;
}

/* Values are of order 1, their standard deviation about 0.6: what a mean or variance is off by
 * comes back up to a few times in y and dx. dgamma and dbeta are sums of m such terms. */
static void batchnorm_compare(const struct batchnorm_data *d)
{
    const struct batchnorm_out *want = &d->out[0], *got = &d->out[1];

    op_assert_close("batchnorm mean", got->channel[2], want->channel[2], NULL, d->c,
                    2.0 * d->terms);
    op_assert_close("batchnorm variance", got->channel[3], want->channel[3], NULL, d->c,
                    2.0 * d->terms);
    op_assert_close("batchnorm y", got->y, want->y, NULL, d->numel, 8.0 * d->terms);
    op_assert_close("batchnorm dx", got->dx, want->dx, NULL, d->numel, 16.0 * d->terms);
    if (d->has_residual)
        op_assert_close("batchnorm dresidual", got->dresidual, want->dresidual, NULL, d->numel,
                        0.0);
    op_assert_close("batchnorm dgamma", got->channel[4], want->channel[4], NULL, d->c,
                    d->terms * (double)d->m);
    op_assert_close("batchnorm dbeta", got->channel[5], want->channel[5], NULL, d->c,
                    d->terms * (double)d->m);
}

static void check_batchnorm(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;
    size_t bytes;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    bytes = (size_t)d.c * sizeof(float);
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_batchnorm_args args = batchnorm_args(&d, set, relu);
        float **channel = d.out[set].channel;
        const struct op_output fwd_out[] = {FLOATS(d.out[set].y, d.numel),
                                            {channel[0], bytes, d.mean0},
                                            {channel[1], bytes, d.var0},
                                            FLOATS(channel[2], d.c),
                                            FLOATS(channel[3], d.c)};
        const struct op_output bwd_out[] = {FLOATS(d.out[set].dx, d.numel), FLOATS(channel[4], d.c),
                                            FLOATS(channel[5], d.c),
                                            FLOATS(d.out[set].dresidual, d.numel)};

        op_run(on, DPB_OP_BATCHNORM_FWD, &args, fwd_out, 5);
        op_run(on, DPB_OP_BATCHNORM_BWD, &args, bwd_out, residual ? 4 : 3);
        if (run == 0)
            continue;
        batchnorm_compare(&d);
        for (int i = 0; i < 2; i++)
            op_assert_close("batchnorm running statistics", d.out[1].channel[i],
                            d.out[0].channel[i], NULL, d.c, 2.0 * d.terms);
    }
    op_data_release(&d.data);
}

/* From the same statistics; it may write y only. */
static void check_batchnorm_inference(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        struct dpb_batchnorm_args args = {.x = d.shape,
                                          .y = d.shape,
                                          .gamma = d.gamma,
                                          .beta = d.beta,
                                          .running_mean = d.mean0,
                                          .running_var = d.var0,
                                          .eps = 1e-2f,
                                          .relu = relu};
        const struct op_output out[] = {FLOATS(d.out[set].y, d.numel)};

        args.x.data = d.x;
        args.y.data = d.out[set].y;
        args.residual = d.shape;
        args.residual.data = residual ? d.residual : NULL;
        op_run(run > 0 ? cpu_pair[run - 1] : NULL, DPB_OP_BATCHNORM_FWD, &args, out, 1);
        if (run > 0) /* |y| < 2 + 2.5 / sqrt(eps) */
            op_assert_close("batchnorm inference", d.out[1].y, d.out[0].y, NULL, d.numel,
                            8.0 * 27.0);
    }
    op_data_release(&d.data);
}

/* In halves, with the sums of three such batches. */
static void check_batchnorm_halves(const struct batchnorm_case *s, bool relu, bool residual)
{
    struct batchnorm_data d;

    batchnorm_open(&d, s);
    d.has_residual = residual;
    for (int run = 0; run < 3; run++) {
        int set = run > 0;
        dpb_device *on = run > 0 ? cpu_pair[run - 1] : NULL;
        struct dpb_batchnorm_args args = batchnorm_args(&d, set, relu);
        float **channel = d.out[set].channel;
        const struct op_output stats[] = {FLOATS(channel[2], d.c), FLOATS(channel[3], d.c)};
        const struct op_output y[] = {FLOATS(d.out[set].y, d.numel)};
        const struct op_output sums[] = {FLOATS(channel[4], d.c), FLOATS(channel[5], d.c),
                                         FLOATS(d.out[set].dresidual, d.numel)};
        const struct op_output dx[] = {FLOATS(d.out[set].dx, d.numel)};

        args.count = 3.0 * (double)d.m;
        op_run(on, DPB_OP_BATCHNORM_STATS, &args, stats, 2);
        op_run(on, DPB_OP_BATCHNORM_APPLY, &args, y, 1);
        op_run(on, DPB_OP_BATCHNORM_BWD_SUMS, &args, sums, residual ? 3 : 2);
        op_run(on, DPB_OP_BATCHNORM_BWD_APPLY, &args, dx, 1);
        if (run > 0)
            batchnorm_compare(&d);
    }
    op_data_release(&d.data);
}

void test_batchnorm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(batchnorm_cases) / sizeof(batchnorm_cases[0]); i++) {
        for (int variant = 0; variant < 4; variant++) {
            bool relu = variant & 1, residual = variant & 2;

            check_batchnorm(&batchnorm_cases[i], relu, residual);
            check_batchnorm_inference(&batchnorm_cases[i], relu, residual);
            check_batchnorm_halves(&batchnorm_cases[i], relu, residual);
        }
    }
}

void test_batchnorm_threads_change_no_bit(void **state)
{
    static const struct batchnorm_case shape = {2, {70, 515}}; /* work for two, in odd parts */
    struct batchnorm_data d;

    (void)state;
    batchnorm_open(&d, &shape);
    d.has_residual = true;
    for (int run = 0; run < 2; run++) {
        struct dpb_batchnorm_args args = batchnorm_args(&d, run, true);

        assert_int_equal(dpb_op_launch(cpu_pair[run], DPB_OP_BATCHNORM_FWD, &args, NULL), DPB_OK);
        assert_int_equal(dpb_op_launch(cpu_pair[run], DPB_OP_BATCHNORM_BWD, &args, NULL), DPB_OK);
    }
    for (int i = 2; i < 6; i++)
        assert_memory_equal(d.out[0].channel[i], d.out[1].channel[i], (size_t)d.c * sizeof(float));
    assert_memory_equal(d.out[0].y, d.out[1].y, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dx, d.out[1].dx, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dresidual, d.out[1].dresidual, (size_t)d.numel * sizeof(float));
    op_data_release(&d.data);
}

/* dresidual may be dy itself. */
void test_batchnorm_residual_in_place(void **state)
{
    struct batchnorm_data d;

    (void)state;
    batchnorm_open(&d, &batchnorm_cases[0]);
    d.has_residual = true;
    for (int run = 0; run < 2; run++) {
        struct dpb_batchnorm_args args = batchnorm_args(&d, 1, true);

        assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_FWD, &args, NULL), DPB_OK);
        if (run == 1)
            args.dresidual.data = d.dy;
        args.dx.data = d.out[run].dx;
        args.dgamma = d.out[run].channel[4];
        args.dbeta = d.out[run].channel[5];
        assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_BWD, &args, NULL), DPB_OK);
    }
    assert_memory_equal(d.dy, d.out[1].dresidual, (size_t)d.numel * sizeof(float));
    assert_memory_equal(d.out[0].dx, d.out[1].dx, (size_t)d.numel * sizeof(float));
    for (int i = 4; i < 6; i++)
        assert_memory_equal(d.out[0].channel[i], d.out[1].channel[i], (size_t)d.c * sizeof(float));
    op_data_release(&d.data);
}

/* All channels are constant, far from 0: the variance is 0, and no rounding may make it negative or
 * a NaN. */
void test_batchnorm_statistics_do_not_cancel(void **state)
{
    struct op_data data = {0};
    float *x = op_data_f32(&data, 1000 * 24), *mean = op_data_f32(&data, 24);
    float *var = op_data_f32(&data, 24);
    struct dpb_batchnorm_args args = {
            .x = dpb_tensor_2d(x, 1000, 24), .save_mean = mean, .save_var = var};

    (void)state;
    for (int64_t i = 0; i < 1000 * 24; i++)
        x[i] = 4096.0f;
    assert_int_equal(dpb_op_launch(cpu_pair[0], DPB_OP_BATCHNORM_STATS, &args, NULL), DPB_OK);
    for (int j = 0; j < 24; j++) {
        assert_true(mean[j] == 4096.0f);
        assert_true(var[j] == 0.0f);
    }
    op_data_release(&data);
}
