#include "double_transformer.h"

#include <math.h>

#include "dpb_rng.h"
#include "dpb_test.h"
#include "transformer_private.h"

static double *doubles(int64_t count)
{
    double *made = calloc((size_t)count, sizeof(*made));

    assert_non_null(made);
    return made;
}

void double_transformer_open(struct double_transformer *net,
                             const struct dpb_transformer_list *list, const struct dpb_batch *batch,
                             float *const *param)
{
    const struct dpb_transformer_shape *s = &list->shape;

    memset(net, 0, sizeof(*net));
    net->list = list;
    net->batch = batch;
    for (int p = 0; p < list->param_count; p++) {
        net->param[p] = doubles(list->param[p].numel);
        for (int64_t i = 0; i < list->param[p].numel; i++)
            net->param[p][i] = (double)param[p][i];
    }
    net->stream = doubles(s->sequence * s->hidden);
    net->query = doubles(3 * s->sequence * s->hidden);
    net->context = doubles(s->sequence * s->hidden);
    net->branch = doubles(s->sequence * s->hidden);
    net->inner = doubles(s->sequence * s->inner);
    net->logits = doubles(s->vocabulary);
}

void double_transformer_close(struct double_transformer *net)
{
    for (int p = 0; p < net->list->param_count; p++)
        free(net->param[p]);
    free(net->stream);
    free(net->query);
    free(net->context);
    free(net->branch);
    free(net->inner);
    free(net->logits);
}

/* ---- dropout ---- */

/* What element `i` of the sample's `count` elements at a place is multiplied by: 1 / keep or 0. */
static double drop(const struct double_transformer *net, enum dpb_transformer_place place,
                   int block, int64_t count, int64_t i)
{
    uint64_t seed = dpb_transformer_mask_seed(net->seed, net->batch->step, place, block);
    uint64_t at = (uint64_t)((net->batch->first + net->sample) * count + i);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)(at / 4 >> 32), 0, 0};
    double keep = 1.0 - net->dropout;
    uint32_t words[4];

    if (net->dropout == 0.0)
        return 1.0;
    dpb_philox4x32(counter, key, words);
    return (double)words[at % 4] < (double)(float)keep * 0x1p32 ? 1.0 / keep : 0.0;
}

static void drop_rows(const struct double_transformer *net, enum dpb_transformer_place place,
                      int block, double *x)
{
    int64_t count = net->list->shape.sequence * net->list->shape.hidden;

    for (int64_t i = 0; i < count; i++)
        x[i] *= drop(net, place, block, count, i);
}

/* ---- layers, row by row; y must not be x ---- */

static void linear(const struct double_transformer *net, int index, int64_t rows, const double *x,
                   double *y)
{
    const struct dpb_transformer_layer *layer = &net->list->layer[index];
    const double *weight = net->param[layer->weight];
    const double *bias = layer->bias < 0 ? NULL : net->param[layer->bias];

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < layer->out; o++) {
            double sum = bias ? bias[o] : 0.0;

            for (int64_t i = 0; i < layer->in; i++)
                sum += x[r * layer->in + i] *
                       (layer->in_first ? weight[i * layer->out + o] : weight[o * layer->in + i]);
            y[r * layer->out + o] = sum;
        }
    }
}

/* in place */
static void norm(const struct double_transformer *net, int index, int64_t rows, double *x)
{
    const struct dpb_transformer_layer *layer = &net->list->layer[index];
    double eps = net->list->shape.family == DPB_TRANSFORMER_BERT ? 1e-12 : 1e-5;
    int64_t n = layer->out;

    for (int64_t r = 0; r < rows; r++, x += n) {
        double mean = 0.0, var = 0.0;

        for (int64_t i = 0; i < n; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            x[i] = net->param[layer->weight][i] * (x[i] - mean) / sqrt(var + eps) +
                   net->param[layer->bias][i];
    }
}

static void gelu(const struct double_transformer *net, int64_t count, double *x)
{
    bool exact = net->list->shape.family == DPB_TRANSFORMER_BERT;

    for (int64_t i = 0; i < count; i++) {
        double inside = sqrt(2.0 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);

        x[i] *= 0.5 * (1.0 + (exact ? erf(x[i] * M_SQRT1_2) : tanh(inside)));
    }
}

/* What position `i` of head `h` takes from the others. Row r of q, k, v begins at r * stride. */
static void attend(const struct double_transformer *net, int block, const double *q,
                   const double *k, const double *v, int64_t stride, int64_t h, int64_t i,
                   int64_t width, double *to)
{
    bool causal = net->list->shape.family == DPB_TRANSFORMER_GPT2;
    int64_t sequence = net->list->shape.sequence, count = causal ? i + 1 : sequence;
    int64_t probabilities = net->list->shape.heads * sequence * sequence;
    double sum = 0.0;

    for (int64_t d = 0; d < width; d++)
        to[d] = 0.0;
    for (int64_t j = 0; j < count; j++) {
        double score = 0.0;

        for (int64_t d = 0; d < width; d++)
            score += q[i * stride + d] * k[j * stride + d];
        score = exp(score / sqrt((double)width));
        sum += score;
        score *= drop(net, DPB_PLACE_ATTENTION, block, probabilities,
                      (h * sequence + i) * sequence + j);
        for (int64_t d = 0; d < width; d++)
            to[d] += score * v[j * stride + d];
    }
    for (int64_t d = 0; d < width; d++)
        to[d] /= sum;
}

/* Attention and its output layer: from x to branch. */
static void attention(struct double_transformer *net, int b, const double *x)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_shape *s = &net->list->shape;
    bool bert = s->family == DPB_TRANSFORMER_BERT;
    int64_t apart = bert ? s->sequence * s->hidden : s->hidden;
    int64_t stride = bert ? s->hidden : 3 * s->hidden;
    int64_t width = s->hidden / s->heads;
    double *q = net->query, *k = q + apart, *v = k + apart;

    linear(net, block->query, s->sequence, x, q);
    if (bert) {
        linear(net, block->key, s->sequence, x, k);
        linear(net, block->value, s->sequence, x, v);
    }
    for (int64_t i = 0; i < s->sequence; i++) {
        for (int64_t h = 0; h < s->heads; h++)
            attend(net, b, q + h * width, k + h * width, v + h * width, stride, h, i, width,
                   net->context + i * s->hidden + h * width);
    }
    linear(net, block->attention_output, s->sequence, net->context, net->branch);
    drop_rows(net, DPB_PLACE_ATTENDED, b, net->branch);
}

/* The two wide layers: from x to branch. */
static void feed_forward(struct double_transformer *net, int b, const double *x)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_shape *s = &net->list->shape;

    linear(net, block->inner, s->sequence, x, net->inner);
    gelu(net, s->sequence * s->inner, net->inner);
    linear(net, block->output, s->sequence, net->inner, net->branch);
    drop_rows(net, DPB_PLACE_WIDE, b, net->branch);
}

static void add_branch(struct double_transformer *net)
{
    for (int64_t i = 0; i < net->list->shape.sequence * net->list->shape.hidden; i++)
        net->stream[i] += net->branch[i];
}

static void bert_block(struct double_transformer *net, int b)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    int64_t rows = net->list->shape.sequence;

    attention(net, b, net->stream);
    add_branch(net);
    norm(net, block->attention_norm, rows, net->stream);
    feed_forward(net, b, net->stream);
    add_branch(net);
    norm(net, block->output_norm, rows, net->stream);
}

static void gpt2_block(struct double_transformer *net, int b)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    int64_t rows = net->list->shape.sequence;
    size_t bytes = (size_t)(rows * net->list->shape.hidden) * sizeof(double);

    memcpy(net->context, net->stream, bytes);
    norm(net, block->attention_norm, rows, net->context);
    attention(net, b, net->context);
    add_branch(net);
    memcpy(net->context, net->stream, bytes);
    norm(net, block->output_norm, rows, net->context);
    feed_forward(net, b, net->context);
    add_branch(net);
}

/* ---- the network ---- */

static void embed(struct double_transformer *net, int64_t sample)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t hidden = list->shape.hidden;

    for (int64_t i = 0; i < list->shape.sequence; i++) {
        int64_t at = sample * list->shape.sequence + i;

        for (int64_t d = 0; d < hidden; d++) {
            double sum = net->param[list->layer[list->word].weight]
                                   [net->batch->tokens[at] * hidden + d] +
                         net->param[list->layer[list->position].weight][i * hidden + d];

            if (list->segment >= 0)
                sum += net->param[list->layer[list->segment].weight]
                                 [net->batch->segments[at] * hidden + d];
            net->stream[i * hidden + d] = sum;
        }
    }
}

static double cross_entropy(const double *logits, int64_t classes, int32_t label)
{
    double sum = 0.0;

    for (int64_t c = 0; c < classes; c++)
        sum += exp(logits[c] - logits[label]);
    return log(sum);
}

static double bert_heads(struct double_transformer *net, int64_t sample)
{
    const struct dpb_transformer_list *list = net->list;
    const struct dpb_transformer_shape *s = &list->shape;
    double *transformed = net->branch, *pooled = net->context, words = 0.0;

    for (int64_t i = 0; i < s->predicted; i++) {
        int64_t at = sample * s->predicted + i;

        linear(net, list->transform, 1, net->stream + net->batch->predict_position[at] * s->hidden,
               transformed);
        gelu(net, s->hidden, transformed);
        norm(net, list->transform_norm, 1, transformed);
        linear(net, list->decoder, 1, transformed, net->logits);
        words += cross_entropy(net->logits, s->vocabulary, net->batch->predict_token[at]);
    }
    linear(net, list->pooler, 1, net->stream, pooled);
    for (int64_t d = 0; d < s->hidden; d++)
        pooled[d] = tanh(pooled[d]);
    linear(net, list->relation, 1, pooled, net->logits);
    return words / (double)s->predicted + cross_entropy(net->logits, 2, net->batch->label[sample]);
}

static double gpt2_head(struct double_transformer *net, int64_t sample)
{
    const struct dpb_transformer_list *list = net->list;
    const struct dpb_transformer_shape *s = &list->shape;
    double words = 0.0;

    norm(net, list->final_norm, s->sequence, net->stream);
    for (int64_t i = 0; i < s->sequence; i++) {
        linear(net, list->decoder, 1, net->stream + i * s->hidden, net->logits);
        words += cross_entropy(net->logits, s->vocabulary,
                               net->batch->predict_token[sample * s->sequence + i]);
    }
    return words / (double)s->sequence;
}

double double_transformer_loss(struct double_transformer *net)
{
    const struct dpb_transformer_list *list = net->list;
    bool bert = list->shape.family == DPB_TRANSFORMER_BERT;
    double sum = 0.0;

    for (int64_t sample = 0; sample < net->batch->samples; sample++) {
        net->sample = sample;
        embed(net, sample);
        if (bert)
            norm(net, list->embedding_norm, list->shape.sequence, net->stream);
        drop_rows(net, DPB_PLACE_EMBEDDED, 0, net->stream);
        for (int b = 0; b < list->shape.blocks; b++) {
            if (bert)
                bert_block(net, b);
            else
                gpt2_block(net, b);
        }
        sum += bert ? bert_heads(net, sample) : gpt2_head(net, sample);
    }
    return sum;
}
