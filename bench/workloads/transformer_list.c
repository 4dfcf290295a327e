#include "transformer_list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("para"); the lower is the parameter. */
#define PARAM_STREAM   ((uint64_t)0x70617261 << 32)
#define INIT_DEVIATION 0.02f

/* ---- one layer ---- */

static void join_name(struct dpb_transformer_list *list, char name[DPB_TRANSFORMER_NAME_BYTES],
                      const char *layer, const char *suffix)
{
    size_t head = strlen(layer), tail = strlen(suffix);

    if (head + tail + 2 > DPB_TRANSFORMER_NAME_BYTES) {
        list->damaged = true;
        return;
    }
    memcpy(name, layer, head);
    name[head] = '.';
    memcpy(name + head + 1, suffix, tail + 1);
}

/* A layer without parameters. */
static int add_layer(struct dpb_transformer_list *list, const char *kind, const char *name,
                     int64_t rows, int64_t in, int64_t out)
{
    int index = list->layer_count++;
    struct dpb_transformer_layer *layer = &list->layer[index];

    *layer = (struct dpb_transformer_layer){
            .rows = rows, .in = in, .out = out, .weight = -1, .bias = -1};
    snprintf(layer->name, sizeof(layer->name), "%s", name);
    join_name(list, layer->op.fwd, name, "fwd");
    join_name(list, layer->op.add, name, "add");
    join_name(list, layer->op.cast, name, "cast");
    join_name(list, layer->op.drop, name, "drop");
    join_name(list, layer->op.bwd, name, "bwd");
    join_name(list, layer->op.bwd_drop, name, "bwd-drop");
    join_name(list, layer->op.bwd_bias, name, "bwd-bias");
    join_name(list, layer->op.bwd_weights, name, "bwd-weights");
    join_name(list, layer->op.bwd_data, name, "bwd-data");
    list->info[index] = (struct dpb_layer_info){
            .name = layer->name, .kind = kind, .out_elements_per_sample = rows * out};
    return index;
}

static int add_param(struct dpb_transformer_list *list, int layer, const char *suffix, int rank,
                     int64_t rows, int64_t columns)
{
    int index = list->param_count++;

    join_name(list, list->param_name[index], list->layer[layer].name, suffix);
    list->param[index] = (struct dpb_param_info){.name = list->param_name[index],
                                                 .dtype = DPB_F32,
                                                 .rank = rank,
                                                 .dim = {rows, rank == 2 ? columns : 0},
                                                 .numel = rank == 2 ? rows * columns : rows,
                                                 .layer = layer};
    return index;
}

static int add_embedding(struct dpb_transformer_list *list, const char *name, int64_t entries)
{
    int64_t hidden = list->shape.hidden;
    int index = add_layer(list, "embedding", name, list->shape.sequence, 1, hidden);

    list->layer[index].weight = add_param(list, index, "weight", 2, entries, hidden);
    return index;
}

static int add_norm(struct dpb_transformer_list *list, const char *name, int64_t rows)
{
    int64_t hidden = list->shape.hidden;
    int index = add_layer(list, "layernorm", name, rows, hidden, hidden);

    list->layer[index].weight = add_param(list, index, "weight", 1, hidden, 0);
    list->layer[index].bias = add_param(list, index, "bias", 1, hidden, 0);
    return index;
}

/* GPT-2's weights are [in, out], as those of the convolutions they were once written as. */
static int add_linear(struct dpb_transformer_list *list, const char *name, int64_t rows, int64_t in,
                      int64_t out)
{
    int index = add_layer(list, "linear", name, rows, in, out);
    struct dpb_transformer_layer *layer = &list->layer[index];

    layer->in_first = list->shape.family == DPB_TRANSFORMER_GPT2;
    layer->weight = layer->in_first ? add_param(list, index, "weight", 2, in, out)
                                    : add_param(list, index, "weight", 2, out, in);
    layer->bias = add_param(list, index, "bias", 1, out, 0);
    list->info[index].fwd_macs_per_sample = rows * in * out;
    return index;
}

/* The linear layer whose weight is the word embedding. */
static int add_decoder(struct dpb_transformer_list *list, const char *name)
{
    const struct dpb_transformer_shape *shape = &list->shape;
    int index = add_layer(list, "linear", name, shape->predicted, shape->hidden, shape->vocabulary);

    list->layer[index].weight = list->layer[list->word].weight;
    list->param[list->layer[index].weight].shared = true;
    list->info[index].fwd_macs_per_sample = shape->predicted * shape->hidden * shape->vocabulary;
    return index;
}

static int add_attention(struct dpb_transformer_list *list, const char *name)
{
    const struct dpb_transformer_shape *shape = &list->shape;
    int index =
            add_layer(list, "attention", name, shape->sequence, 3 * shape->hidden, shape->hidden);

    /* the scores, and the values they weigh; a causal mask is not counted as work saved */
    list->info[index].fwd_macs_per_sample = 2 * shape->sequence * shape->sequence * shape->hidden;
    return index;
}

/* "bert.encoder.layer.3.output.dense" */
static const char *block_name(char name[DPB_TRANSFORMER_NAME_BYTES], const char *blocks, int block,
                              const char *part)
{
    snprintf(name, DPB_TRANSFORMER_NAME_BYTES, "%s.%d.%s", blocks, block, part);
    return name;
}

/* ---- the two families, in registration order ---- */

static void add_bert_block(struct dpb_transformer_list *list, int b)
{
    static const char blocks[] = "bert.encoder.layer";
    struct dpb_transformer_block *block = &list->block[b];
    int64_t rows = list->shape.sequence, hidden = list->shape.hidden, inner = list->shape.inner;
    char name[DPB_TRANSFORMER_NAME_BYTES];

    block->query = add_linear(list, block_name(name, blocks, b, "attention.self.query"), rows,
                              hidden, hidden);
    block->key = add_linear(list, block_name(name, blocks, b, "attention.self.key"), rows, hidden,
                            hidden);
    block->value = add_linear(list, block_name(name, blocks, b, "attention.self.value"), rows,
                              hidden, hidden);
    block->attention = add_attention(list, block_name(name, blocks, b, "attention.self"));
    block->attention_output = add_linear(
            list, block_name(name, blocks, b, "attention.output.dense"), rows, hidden, hidden);
    block->attention_norm =
            add_norm(list, block_name(name, blocks, b, "attention.output.LayerNorm"), rows);
    block->inner = add_linear(list, block_name(name, blocks, b, "intermediate.dense"), rows, hidden,
                              inner);
    block->activation = add_layer(list, "gelu", block_name(name, blocks, b, "intermediate.gelu"),
                                  rows, inner, inner);
    block->output =
            add_linear(list, block_name(name, blocks, b, "output.dense"), rows, inner, hidden);
    block->output_norm = add_norm(list, block_name(name, blocks, b, "output.LayerNorm"), rows);
}

static void add_bert(struct dpb_transformer_list *list)
{
    const struct dpb_transformer_shape *shape = &list->shape;
    int64_t hidden = shape->hidden, predicted = shape->predicted;

    list->word = add_embedding(list, "bert.embeddings.word_embeddings", shape->vocabulary);
    list->position = add_embedding(list, "bert.embeddings.position_embeddings", shape->positions);
    list->segment = add_embedding(list, "bert.embeddings.token_type_embeddings", 2);
    list->embedding_norm = add_norm(list, "bert.embeddings.LayerNorm", shape->sequence);
    for (int b = 0; b < shape->blocks; b++)
        add_bert_block(list, b);
    list->pooler = add_linear(list, "bert.pooler.dense", 1, hidden, hidden);
    list->pooler_activation = add_layer(list, "tanh", "bert.pooler.tanh", 1, hidden, hidden);
    list->decoder = add_decoder(list, "cls.predictions");
    list->layer[list->decoder].bias =
            add_param(list, list->decoder, "bias", 1, shape->vocabulary, 0);
    list->transform =
            add_linear(list, "cls.predictions.transform.dense", predicted, hidden, hidden);
    list->transform_activation =
            add_layer(list, "gelu", "cls.predictions.transform.gelu", predicted, hidden, hidden);
    list->transform_norm = add_norm(list, "cls.predictions.transform.LayerNorm", predicted);
    list->relation = add_linear(list, "cls.seq_relationship", 1, hidden, 2);
}

static void add_gpt2_block(struct dpb_transformer_list *list, int b)
{
    static const char blocks[] = "transformer.h";
    struct dpb_transformer_block *block = &list->block[b];
    int64_t rows = list->shape.sequence, hidden = list->shape.hidden, inner = list->shape.inner;
    char name[DPB_TRANSFORMER_NAME_BYTES];

    block->attention_norm = add_norm(list, block_name(name, blocks, b, "ln_1"), rows);
    block->query =
            add_linear(list, block_name(name, blocks, b, "attn.c_attn"), rows, hidden, 3 * hidden);
    block->key = block->query;
    block->value = block->query;
    block->attention = add_attention(list, block_name(name, blocks, b, "attn"));
    block->attention_output =
            add_linear(list, block_name(name, blocks, b, "attn.c_proj"), rows, hidden, hidden);
    block->output_norm = add_norm(list, block_name(name, blocks, b, "ln_2"), rows);
    block->inner = add_linear(list, block_name(name, blocks, b, "mlp.c_fc"), rows, hidden, inner);
    block->activation =
            add_layer(list, "gelu", block_name(name, blocks, b, "mlp.gelu"), rows, inner, inner);
    block->output =
            add_linear(list, block_name(name, blocks, b, "mlp.c_proj"), rows, inner, hidden);
}

static void add_gpt2(struct dpb_transformer_list *list)
{
    const struct dpb_transformer_shape *shape = &list->shape;

    list->word = add_embedding(list, "transformer.wte", shape->vocabulary);
    list->position = add_embedding(list, "transformer.wpe", shape->positions);
    for (int b = 0; b < shape->blocks; b++)
        add_gpt2_block(list, b);
    list->final_norm = add_norm(list, "transformer.ln_f", shape->sequence);
    list->decoder = add_decoder(list, "lm_head");
}

/* ---- in which order gradients become ready ---- */

static void ready_param(struct dpb_transformer_list *list, int param)
{
    list->ready_order[list->ready_count++] = param;
}

static void ready_linear(struct dpb_transformer_list *list, int layer)
{
    ready_param(list, list->layer[layer].bias);
    ready_param(list, list->layer[layer].weight);
}

static void ready_norm(struct dpb_transformer_list *list, int layer)
{
    ready_param(list, list->layer[layer].weight);
    ready_param(list, list->layer[layer].bias);
}

static void ready_bert(struct dpb_transformer_list *list)
{
    ready_linear(list, list->relation);
    ready_param(list, list->layer[list->decoder].bias);
    ready_norm(list, list->transform_norm);
    ready_linear(list, list->transform);
    ready_linear(list, list->pooler);
    for (int b = list->shape.blocks - 1; b >= 0; b--) {
        const struct dpb_transformer_block *block = &list->block[b];

        ready_norm(list, block->output_norm);
        ready_linear(list, block->output);
        ready_linear(list, block->inner);
        ready_norm(list, block->attention_norm);
        ready_linear(list, block->attention_output);
        ready_linear(list, block->value);
        ready_linear(list, block->key);
        ready_linear(list, block->query);
    }
    ready_norm(list, list->embedding_norm);
    ready_param(list, list->layer[list->position].weight);
    ready_param(list, list->layer[list->segment].weight);
    ready_param(list, list->layer[list->word].weight);
}

static void ready_gpt2(struct dpb_transformer_list *list)
{
    ready_norm(list, list->final_norm);
    for (int b = list->shape.blocks - 1; b >= 0; b--) {
        const struct dpb_transformer_block *block = &list->block[b];

        ready_linear(list, block->output);
        ready_linear(list, block->inner);
        ready_norm(list, block->output_norm);
        ready_linear(list, block->attention_output);
        ready_linear(list, block->query);
        ready_norm(list, block->attention_norm);
    }
    ready_param(list, list->layer[list->position].weight);
    ready_param(list, list->layer[list->word].weight);
}

/* ---- the whole ---- */

static bool shape_fits(const struct dpb_transformer_shape *shape)
{
    return shape->blocks >= 1 && shape->blocks <= DPB_TRANSFORMER_BLOCKS_MAX && shape->heads >= 1 &&
           shape->hidden >= 1 && shape->hidden % shape->heads == 0 && shape->inner >= 1 &&
           shape->vocabulary >= 1 && shape->sequence >= 1 && shape->sequence <= shape->positions &&
           shape->predicted >= 1 && shape->predicted <= shape->sequence &&
           (shape->family == DPB_TRANSFORMER_BERT || shape->predicted == shape->sequence);
}

void dpb_transformer_list_build(struct dpb_transformer_list *list,
                                const struct dpb_transformer_shape *shape)
{
    bool bert = shape->family == DPB_TRANSFORMER_BERT;

    memset(list, 0, sizeof(*list));
    list->shape = *shape;
    list->damaged = !shape_fits(shape);
    if (list->damaged)
        return;
    list->segment = list->embedding_norm = list->final_norm = -1;
    list->pooler = list->pooler_activation = list->relation = -1;
    list->transform = list->transform_activation = list->transform_norm = -1;
    if (bert) {
        add_bert(list);
        ready_bert(list);
    } else {
        add_gpt2(list);
        ready_gpt2(list);
    }
    list->model = (struct dpb_model){.params = list->param,
                                     .param_count = list->param_count,
                                     .layers = list->info,
                                     .layer_count = list->layer_count,
                                     .ready_order = list->ready_order,
                                     .input = DPB_INPUT_TOKENS,
                                     .sequence = shape->sequence,
                                     .vocabulary = shape->vocabulary,
                                     .predicted = shape->predicted,
                                     .next_token = !bert,
                                     .classes = bert ? 2 : 0};
}

static bool same_shape(const struct dpb_transformer_shape *a, const struct dpb_transformer_shape *b)
{
    return a->family == b->family && a->blocks == b->blocks && a->heads == b->heads &&
           a->hidden == b->hidden && a->inner == b->inner && a->vocabulary == b->vocabulary &&
           a->positions == b->positions && a->sequence == b->sequence &&
           a->predicted == b->predicted;
}

const struct dpb_transformer_list *
dpb_transformer_list_of(const struct dpb_transformer_shape *shape)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const struct dpb_transformer_list no_memory = {.damaged = true};
    static struct dpb_transformer_list *kept;
    struct dpb_transformer_list *list;

    pthread_mutex_lock(&mutex);
    for (list = kept; list; list = list->next) {
        if (same_shape(&list->shape, shape))
            break;
    }
    if (!list && (list = calloc(1, sizeof(*list)))) {
        dpb_transformer_list_build(list, shape);
        list->next = kept;
        kept = list;
    }
    pthread_mutex_unlock(&mutex);
    return list ? list : &no_memory;
}

dpb_status dpb_transformer_list_check(const struct dpb_transformer_list *list, const char *workload)
{
    if (!list->damaged)
        return DPB_OK;
    dpb_error("workload \"%s\": %d blocks of %lld features, %lld of at most %lld tokens, %lld of "
              "them predicted: that does not fit together",
              workload, list->shape.blocks, (long long)list->shape.hidden,
              (long long)list->shape.sequence, (long long)list->shape.positions,
              (long long)list->shape.predicted);
    dpb_log_hint("this is a mistake in the program: see bench/workloads/transformer_list.h");
    return DPB_ERR_INTERNAL;
}

void dpb_transformer_list_init_params(const struct dpb_transformer_list *list, uint64_t seed,
                                      float *const *param)
{
    for (int p = 0; p < list->param_count; p++) {
        const struct dpb_param_info *info = &list->param[p];
        bool norm = strcmp(list->info[info->layer].kind, "layernorm") == 0;
        float constant = norm && p == list->layer[info->layer].weight ? 1.0f : 0.0f;
        struct dpb_rng rng;

        dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)p);
        for (int64_t i = 0; param[p] && i < info->numel; i++)
            param[p][i] = info->rank == 2 ? INIT_DEVIATION * (float)dpb_rng_normal(&rng) : constant;
    }
}
