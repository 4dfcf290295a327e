/* Batch normalisation in a network: over a rank's own samples, or over those of all ranks. */
#include "network.h"
#include "network_private.h"

#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

#define BATCHNORM_EPS      1e-5f /* PyTorch's defaults */
#define BATCHNORM_MOMENTUM 0.1f

static dpb_status launch(struct network *net, const char *name, enum dpb_op op, const void *args)
{
    return dpb_launch(net->launcher, name, op, args);
}

bool dpb_network_batchnorm_has_relu(const struct dpb_layer_list *list, int i)
{
    int sum = dpb_network_sum_of(list, i);

    return sum < 0 ? list->layer[i].relu : list->layer[sum].relu;
}

static struct dpb_batchnorm_args batchnorm_args(const struct network *net, int i, int64_t samples,
                                                const void *x)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct network_extra *extra = &net->extra[i];
    int64_t channels = layer->out[2];
    int sum = dpb_network_sum_of(net->list, i);
    const void *residual = sum < 0 ? NULL : net->output[dpb_network_residual_of(net->list, sum)];

    return (struct dpb_batchnorm_args){
            .x = dpb_network_images(net, x, samples, layer->in),
            .gamma = net->param[layer->weight],
            .beta = net->param[layer->bias],
            .running_mean = extra->running,
            .running_var = extra->running + channels,
            .save_mean = extra->saved,
            .save_var = extra->saved + channels,
            .mask = extra->mask,
            .residual = dpb_network_images(net, residual, samples, layer->out),
            .relu = dpb_network_batchnorm_has_relu(net->list, i),
            .eps = BATCHNORM_EPS,
            .momentum = BATCHNORM_MOMENTUM};
}

/* The variance of one value is 0, and there is none of the data set to be had from it. */
static dpb_status check_count(const struct network *net, const struct dpb_layer *layer,
                              double samples)
{
    if (samples * (double)(layer->out[0] * layer->out[1]) > 1.0)
        return DPB_OK;
    dpb_error("workload \"%s\": one sample of %lldx%lld pixels leaves layer \"%s\" one value per "
              "channel, and batch normalisation needs two",
              net->base.ops->name, (long long)net->list->model.sample_dim[0],
              (long long)net->list->model.sample_dim[1], layer->name);
    dpb_log_hint("use at least 2 samples per %s, or a larger --image-size",
                 net->sync ? "global batch" : "rank");
    return DPB_ERR_USAGE;
}

/* ---- over all ranks: what each has of a layer is gathered, and every rank combines it in the
 * order of ranks, in double, so that all have the same bits ---- */

static int64_t most_channels(const struct dpb_layer_list *list)
{
    int64_t most = 0;

    for (int i = 0; i < list->layer_count; i++) {
        const struct dpb_layer *layer = &list->layer[i];

        if (layer->kind == DPB_LAYER_BATCHNORM2D && layer->out[2] > most)
            most = layer->out[2];
    }
    return most;
}

int64_t dpb_network_batchnorm_sums(const struct dpb_layer_list *list)
{
    return 2 * most_channels(list);
}

int64_t dpb_network_batchnorm_parts(const struct dpb_layer_list *list, int ranks)
{
    int64_t most = most_channels(list);

    return most > 0 ? ranks * (1 + 2 * most) : 0;
}

/* Floats of a rank that a layer's pass gathers: statistics after how many samples they are of, or
 * the two sums of the gradient. */
static int64_t gathered_floats(const struct dpb_layer *layer, enum dpb_pass pass)
{
    return (pass == DPB_PASS_FORWARD ? 1 : 0) + 2 * layer->out[2];
}

static struct dpb_workload_exchange exchange_of(const struct dpb_layer *layer, int ranks,
                                                enum dpb_pass pass)
{
    const bool forward = pass == DPB_PASS_FORWARD;
    struct dpb_workload_exchange exchange = {
            .name = forward ? layer->op.fwd_gather : layer->op.bwd_gather,
            .kind = DPB_COLL_ALL_GATHER,
            .dtype = DPB_F32,
            .count = ranks * gathered_floats(layer, pass),
            .pass = pass,
    };

    snprintf(exchange.formula, sizeof(exchange.formula), "%d ranks x %s2 x %lld channels%s x 4 B",
             ranks, forward ? "(1 + " : "", (long long)layer->out[2], forward ? ")" : "");
    return exchange;
}

int dpb_network_exchanges(const struct dpb_layer_list *list, const struct dpb_workload_sizes *sizes,
                          struct dpb_workload_exchange *exchanges)
{
    int layers = 0, at = 0;

    if (!sizes->sync_batch_statistics || sizes->ranks == 1)
        return 0;
    for (int i = 0; i < list->layer_count; i++)
        layers += list->layer[i].kind == DPB_LAYER_BATCHNORM2D;
    for (int i = 0; exchanges && i < list->layer_count; i++) {
        const struct dpb_layer *layer = &list->layer[i];

        if (layer->kind != DPB_LAYER_BATCHNORM2D)
            continue;
        exchanges[at] = exchange_of(layer, sizes->ranks, DPB_PASS_FORWARD);
        exchanges[2 * layers - 1 - at] = exchange_of(layer, sizes->ranks, DPB_PASS_BACKWARD);
        at++;
    }
    return 2 * layers;
}

/* Every rank's `count` floats, one rank after the other; this rank's are there already. */
static dpb_status gather(struct network *net, int64_t count, const char *name)
{
    const struct dpb_rank_services *ranks = net->sync;
    int exchange;

    DPB_TRY(ranks->start(ranks->ctx, DPB_COLL_ALL_GATHER, DPB_F32, net->parts, ranks->size * count,
                         name, &exchange));
    return ranks->wait(ranks->ctx, exchange);
}

static float *part_of(float *parts, int rank, int64_t count)
{
    return parts + rank * count;
}

/* Where the host has parts, a layer's running statistics, and what it makes of the parts: in the
 * device's own memory, unless the device is an accelerator. */
struct on_host {
    float *parts, *running, *made;
};

static struct on_host on_host(const struct network *net, float *running, float *made)
{
    const int64_t most = most_channels(net->list);
    float *memory = net->host_parts;

    if (!memory)
        return (struct on_host){net->parts, running, made};
    running = memory + dpb_network_batchnorm_parts(net->list, net->sync->size);
    return (struct on_host){memory, running, running + 2 * most};
}

/* What is on the device, for the host to read, and the other way. */
static dpb_status fetch(const struct network *net, float *host, const float *device, int64_t count)
{
    if (host == device)
        return dpb_device_get_ops(net->launcher->device)->stream_sync(net->launcher->stream);
    return dpb_copy_now(net->launcher, host, device, (size_t)count * sizeof(float));
}

static dpb_status store(const struct network *net, float *device, const float *host, int64_t count)
{
    return host == device
                   ? DPB_OK
                   : dpb_copy_now(net->launcher, device, host, (size_t)count * sizeof(float));
}

static dpb_status move(const struct network *net, float *to, const float *from, int64_t count)
{
    return dpb_device_get_ops(net->launcher->device)
            ->copy(net->launcher->device, to, from, (size_t)count * sizeof(float),
                   net->launcher->stream);
}

/* A channel's mean and sum of squared deviations, of so many values. */
struct moments {
    double count, mean, squares;
};

/* Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979. */
static void add_moments(struct moments *to, struct moments part)
{
    double count = to->count + part.count, delta = part.mean - to->mean;

    if (part.count == 0.0)
        return;
    to->mean += delta * part.count / count;
    to->squares += part.squares + delta * delta * to->count * part.count / count;
    to->count = count;
}

static void set_statistics(const struct on_host *host, int64_t channels, int64_t c,
                           const struct moments *all)
{
    double momentum = (double)BATCHNORM_MOMENTUM;
    float *mean = &host->running[c], *var = &host->running[channels + c];

    host->made[c] = (float)all->mean;
    host->made[channels + c] = (float)(all->squares / all->count);
    *mean = (float)((1.0 - momentum) * (double)*mean + momentum * all->mean);
    *var = (float)((1.0 - momentum) * (double)*var + momentum * all->squares / (all->count - 1.0));
}

/* A part: its samples, which are few enough to be exact, then means, then biased variances. */
static dpb_status combine_statistics(struct network *net, int i, const struct on_host *host)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    int64_t channels = layer->out[2], count = gathered_floats(layer, DPB_PASS_FORWARD);
    double pixels = (double)(layer->out[0] * layer->out[1]);

    net->global_samples = 0.0;
    for (int r = 0; r < net->sync->size; r++)
        net->global_samples += (double)part_of(host->parts, r, count)[0];
    DPB_TRY(check_count(net, layer, net->global_samples));
    for (int64_t c = 0; c < channels; c++) {
        struct moments all = {0};

        for (int r = 0; r < net->sync->size; r++) {
            const float *part = part_of(host->parts, r, count);
            double values = (double)part[0] * pixels;

            add_moments(&all, (struct moments){values, (double)part[1 + c],
                                               (double)part[1 + channels + c] * values});
        }
        set_statistics(host, channels, c, &all);
    }
    return DPB_OK;
}

/* Saved statistics become those of the whole batch, and running statistics learn of them. Ranks
 * without samples take part. */
static dpb_status synchronise_statistics(struct network *net, int i,
                                         const struct dpb_batchnorm_args *args, int64_t samples)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct network_extra *extra = &net->extra[i];
    const struct on_host host = on_host(net, extra->running, extra->saved);
    int64_t channels = layer->out[2], count = gathered_floats(layer, DPB_PASS_FORWARD);
    float *part = part_of(net->parts, net->sync->rank, count);
    float *mine = part_of(host.parts, net->sync->rank, count);

    memset(mine, 0, (size_t)count * sizeof(*mine));
    mine[0] = (float)samples;
    DPB_TRY(store(net, part, mine, count));
    if (samples > 0) {
        DPB_TRY(launch(net, layer->op.fwd_stats, DPB_OP_BATCHNORM_STATS, args));
        DPB_TRY(move(net, part + 1, extra->saved, 2 * channels));
    }
    DPB_TRY(gather(net, count, layer->op.fwd_gather));
    DPB_TRY(fetch(net, host.parts, net->parts, net->sync->size * count));
    DPB_TRY(fetch(net, host.running, extra->running, 2 * channels));
    DPB_TRY(combine_statistics(net, i, &host));
    DPB_TRY(store(net, extra->running, host.running, 2 * channels));
    return store(net, extra->saved, host.made, 2 * channels);
}

/* The gradient's two sums over the whole batch, into net->sums; this rank's are in its part. */
static dpb_status synchronise_sums(struct network *net, int i)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct on_host host = on_host(net, NULL, net->sums);
    int64_t count = gathered_floats(layer, DPB_PASS_BACKWARD);

    DPB_TRY(gather(net, count, layer->op.bwd_gather));
    DPB_TRY(fetch(net, host.parts, net->parts, net->sync->size * count));
    for (int64_t k = 0; k < count; k++) {
        double sum = 0.0;

        for (int r = 0; r < net->sync->size; r++)
            sum += (double)part_of(host.parts, r, count)[k];
        host.made[k] = (float)sum;
    }
    return store(net, net->sums, host.made, count);
}

/* As PyTorch's SyncBatchNorm: gamma and beta get the gradients of this rank's samples, which the
 * strategy sums over ranks as all others; x gets that of the whole batch's loss. The exchange comes
 * before any bucket that these gradients may fill, or it would wait for the bucket. */
static dpb_status synchronised_backward(struct network *net, int i, struct dpb_batchnorm_args *args,
                                        dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    int64_t channels = layer->out[2];
    float *part = part_of(net->parts, net->sync->rank, 2 * channels);

    DPB_TRY(launch(net, layer->op.bwd_sums, DPB_OP_BATCHNORM_BWD_SUMS, args));
    DPB_TRY(move(net, part, args->dgamma, channels));
    DPB_TRY(move(net, part + channels, args->dbeta, channels));
    DPB_TRY(synchronise_sums(net, i));
    DPB_TRY(ready(ctx, layer->weight));
    DPB_TRY(ready(ctx, layer->bias));
    args->dgamma = net->sums;
    args->dbeta = net->sums + channels;
    args->count = net->global_samples * (double)(layer->out[0] * layer->out[1]);
    return launch(net, layer->op.bwd_data, DPB_OP_BATCHNORM_BWD_APPLY, args);
}

dpb_status dpb_network_batchnorm_forward_of_none(struct network *net, int i)
{
    return synchronise_statistics(net, i, NULL, 0);
}

dpb_status dpb_network_batchnorm_backward_of_none(struct network *net, int i)
{
    int64_t count = gathered_floats(&net->list->layer[i], DPB_PASS_BACKWARD);

    const struct on_host host = on_host(net, NULL, net->sums);
    float *mine = part_of(host.parts, net->sync->rank, count);

    memset(mine, 0, (size_t)count * sizeof(*mine));
    DPB_TRY(store(net, part_of(net->parts, net->sync->rank, count), mine, count));
    return synchronise_sums(net, i);
}

/* ---- either way ---- */

dpb_status dpb_network_batchnorm_forward(struct network *net, int i, int64_t samples, const void *x,
                                         bool training)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct dpb_batchnorm_args args = batchnorm_args(net, i, samples, x);
    enum dpb_op op = DPB_OP_BATCHNORM_FWD;
    int sum = dpb_network_sum_of(net->list, i);

    args.y = dpb_network_images(net, net->output[sum < 0 ? i : sum], samples, layer->out);
    args.training = training;
    if (training && net->sync) {
        DPB_TRY(synchronise_statistics(net, i, &args, samples));
        op = DPB_OP_BATCHNORM_APPLY;
    } else if (training) {
        DPB_TRY(check_count(net, layer, (double)samples));
    }
    if (!training)
        args.mask = NULL;
    return launch(net, layer->op.fwd, op, &args);
}

dpb_status dpb_network_batchnorm_backward(struct network *net, int i, int64_t samples,
                                          const void *x, const void *dy, void *dx,
                                          dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct dpb_batchnorm_args args = batchnorm_args(net, i, samples, x);

    args.dy = args.dresidual = dpb_network_images(net, dy, samples, layer->out);
    args.dx = dpb_network_images(net, dx, samples, layer->in);
    args.dgamma = net->grad[layer->weight];
    args.dbeta = net->grad[layer->bias];
    args.training = true;
    if (net->sync)
        return synchronised_backward(net, i, &args, ready, ctx);
    DPB_TRY(launch(net, layer->op.bwd_data, DPB_OP_BATCHNORM_BWD, &args));
    DPB_TRY(ready(ctx, layer->weight));
    return ready(ctx, layer->bias);
}
