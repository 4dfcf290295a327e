/* BERT and GPT-2 by rule: parameters, ready order and bucket plans against PyTorch's, and the work
 * of a sample against formulas. */
#include "dpb_test.h"
#include "fixture.h"
#include "oracle.h"
#include "transformer.h"
#include "transformer_list.h"

#include <math.h>

static const struct dpb_transformer_shape bert_base = {.family = DPB_TRANSFORMER_BERT,
                                                       .blocks = 12,
                                                       .heads = 12,
                                                       .hidden = 768,
                                                       .inner = 3072,
                                                       .vocabulary = 30522,
                                                       .positions = 512,
                                                       .sequence = 128,
                                                       .predicted = 20};

static const struct dpb_transformer_shape bert_large = {.family = DPB_TRANSFORMER_BERT,
                                                        .blocks = 24,
                                                        .heads = 16,
                                                        .hidden = 1024,
                                                        .inner = 4096,
                                                        .vocabulary = 30522,
                                                        .positions = 512,
                                                        .sequence = 512,
                                                        .predicted = 80};

static const struct dpb_transformer_shape gpt2_small = {.family = DPB_TRANSFORMER_GPT2,
                                                        .blocks = 12,
                                                        .heads = 12,
                                                        .hidden = 768,
                                                        .inner = 3072,
                                                        .vocabulary = 50257,
                                                        .positions = 1024,
                                                        .sequence = 1024,
                                                        .predicted = 1024};

static const struct dpb_model *checked(const struct dpb_transformer_shape *shape)
{
    const struct dpb_transformer_list *list = dpb_transformer_list_of(shape);

    assert_int_equal(dpb_transformer_list_check(list, "test"), DPB_OK);
    return &list->model;
}

static void test_against_pytorch(void **state)
{
    (void)state;
    assert_int_equal(oracle_check(checked(&bert_base), "bert_base_pretrain"), 2);
    assert_int_equal(oracle_check(checked(&bert_large), "bert_large_pretrain"), 1);
    assert_int_equal(oracle_check(checked(&gpt2_small), "gpt2_small"), 1);
}

static void test_parameters(void **state)
{
    (void)state;
    assert_int_equal(dpb_model_param_elements(checked(&bert_base)), 110106428);
    assert_int_equal(dpb_model_param_elements(checked(&bert_large)), 336226108);
    assert_int_equal(dpb_model_param_elements(checked(&gpt2_small)), 124439808);
}

/* Blocks, the heads of the predicted positions, the pooler and the sentence head. */
static int64_t bert_macs(const struct dpb_transformer_shape *s)
{
    int64_t h = s->hidden;

    return s->blocks * (s->sequence * (4 * h * h + 2 * h * s->inner) +
                        2 * s->sequence * s->sequence * h) +
           s->predicted * (h * h + h * s->vocabulary) + h * h + 2 * h;
}

static int64_t gpt2_macs(const struct dpb_transformer_shape *s)
{
    int64_t h = s->hidden;

    return s->blocks * (12 * s->sequence * h * h + 2 * s->sequence * s->sequence * h) +
           s->sequence * h * s->vocabulary;
}

static void test_work(void **state)
{
    (void)state;
    assert_int_equal(dpb_model_fwd_macs_per_sample(checked(&bert_base)), bert_macs(&bert_base));
    assert_int_equal(dpb_model_fwd_macs_per_sample(checked(&bert_large)), bert_macs(&bert_large));
    assert_int_equal(dpb_model_fwd_macs_per_sample(checked(&gpt2_small)), gpt2_macs(&gpt2_small));
    /* published: 11.655, 170.09 and 145.82 GMAC */
    assert_int_equal(lround((double)bert_macs(&bert_base) / 1e6), 11655);
    assert_int_equal(lround((double)bert_macs(&bert_large) / 1e7), 17009);
    assert_int_equal(lround((double)gpt2_macs(&gpt2_small) / 1e7), 14582);
}

/* Korthikanti et al. 2022 (arXiv:2205.05198): a block keeps s b h (34 + 5 a s / h) bytes in 16
 * bits. Of these, masks of dropout are 2 + a s / h, which are drawn again here, and what dropout
 * made of the attention is 2 a s / h, which the operator makes again. Normalisations keep two fp32
 * a row. */
static void check_block_activations(const struct dpb_transformer_shape *shape)
{
    const struct dpb_workload_sizes sizes = {.precision = DPB_BF16, .batch_max = 4};
    const struct dpb_transformer_list *list = dpb_transformer_list_of(shape);
    struct dpb_transformer_list fewer = *list;
    const int64_t hidden = shape->hidden, sequence = shape->sequence;
    const int64_t published = 34 * hidden + 5 * shape->heads * sequence;
    const int64_t made_again = 2 * hidden + 3 * shape->heads * sequence;

    fewer.shape.blocks--;
    const int64_t block = dpb_transformer_activation_bytes_for(list, &sizes) -
                          dpb_transformer_activation_bytes_for(&fewer, &sizes);
    const int64_t expected = 4 * sequence * (published - made_again + 2 * 2 * 4);

    /* arrays begin at multiples of some bytes */
    assert_true(block >= expected && block < expected + 14 * 4096);
}

static void test_activations_of_a_block(void **state)
{
    (void)state;
    check_block_activations(&bert_base);
    check_block_activations(&bert_large);
    check_block_activations(&gpt2_small);
}

static const struct dpb_layer_info *layer_named(const struct dpb_model *model, const char *name)
{
    for (int i = 0; i < model->layer_count; i++) {
        if (strcmp(model->layers[i].name, name) == 0)
            return &model->layers[i];
    }
    fail_msg("no layer %s", name);
    return NULL;
}

static void test_layers(void **state)
{
    const struct dpb_transformer_list *list = dpb_transformer_list_of(&bert_base);
    const struct dpb_model *bert = &list->model, *gpt2 = checked(&gpt2_small);
    const struct dpb_layer_info *layer;

    (void)state;
    layer = layer_named(bert, "bert.encoder.layer.11.attention.self");
    assert_string_equal(layer->kind, "attention");
    assert_int_equal(layer->fwd_macs_per_sample, 2 * 128 * 128 * 768);
    assert_int_equal(layer->out_elements_per_sample, 128 * 768);
    layer = layer_named(bert, "cls.predictions");
    assert_int_equal(layer->fwd_macs_per_sample, (int64_t)20 * 768 * 30522);
    assert_int_equal(layer->out_elements_per_sample, 20 * 30522);
    assert_int_equal(layer_named(bert, "bert.pooler.dense")->out_elements_per_sample, 768);
    assert_int_equal(layer_named(gpt2, "lm_head")->out_elements_per_sample, 1024 * 50257);

    assert_string_equal(list->layer[list->block[11].attention_output].op.bwd_weights,
                        "bert.encoder.layer.11.attention.output.dense.bwd-weights");
    assert_int_equal(list->layer[list->decoder].weight, 0);
    assert_string_equal(list->param[list->layer[list->decoder].bias].name, "cls.predictions.bias");
}

static void test_models_say_what_a_sample_is(void **state)
{
    const struct dpb_model *bert = checked(&bert_base), *gpt2 = checked(&gpt2_small);

    (void)state;
    assert_int_equal(bert->input, DPB_INPUT_TOKENS);
    assert_int_equal(bert->sequence, 128);
    assert_int_equal(bert->predicted, 20);
    assert_int_equal(bert->vocabulary, 30522);
    assert_int_equal(bert->classes, 2);
    assert_false(bert->next_token);
    assert_int_equal(gpt2->input, DPB_INPUT_TOKENS);
    assert_int_equal(gpt2->predicted, 1024);
    assert_true(gpt2->next_token);
}

static void test_a_list_is_made_once(void **state)
{
    struct dpb_transformer_shape shorter = bert_base;

    (void)state;
    shorter.sequence = 64;
    shorter.predicted = 10;
    assert_ptr_equal(dpb_transformer_list_of(&bert_base), dpb_transformer_list_of(&bert_base));
    assert_ptr_not_equal(dpb_transformer_list_of(&shorter), dpb_transformer_list_of(&bert_base));
    assert_int_equal(dpb_transformer_list_of(&shorter)->model.sequence, 64);
    /* the parameters do not depend on the sequence, the work does */
    assert_int_equal(dpb_model_param_elements(checked(&shorter)), 110106428);
    assert_int_equal(dpb_model_fwd_macs_per_sample(checked(&shorter)), bert_macs(&shorter));
}

static void check_refused(struct dpb_transformer_shape shape)
{
    static struct dpb_transformer_list list;

    dpb_transformer_list_build(&list, &shape);
    assert_int_equal(dpb_transformer_list_check(&list, "odd"), DPB_ERR_INTERNAL);
}

static void test_shapes_that_do_not_fit(void **state)
{
    struct dpb_transformer_shape shape;

    (void)state;
    log_collect();
    shape = bert_base;
    shape.sequence = 513;
    check_refused(shape);
    assert_true(log_has("workload \"odd\": 12 blocks of 768 features, 513 of at most 512 tokens"));
    shape = bert_base;
    shape.blocks = DPB_TRANSFORMER_BLOCKS_MAX + 1;
    check_refused(shape);
    shape = bert_base;
    shape.heads = 7;
    check_refused(shape);
    shape = bert_base;
    shape.predicted = 129;
    check_refused(shape);
    shape = bert_base;
    shape.predicted = 0;
    check_refused(shape);
    shape = gpt2_small;
    shape.predicted = 1023;
    check_refused(shape);
    log_stop();
}

/* Deviation 0.02 for weights and embeddings, 1 and 0 for norms, 0 for biases. */
static void test_initial_values(void **state)
{
    static const struct dpb_transformer_shape small = {.family = DPB_TRANSFORMER_BERT,
                                                       .blocks = 1,
                                                       .heads = 2,
                                                       .hidden = 64,
                                                       .inner = 128,
                                                       .vocabulary = 100,
                                                       .positions = 32,
                                                       .sequence = 16,
                                                       .predicted = 2};
    const struct dpb_transformer_list *list = dpb_transformer_list_of(&small);
    float *param[DPB_TRANSFORMER_PARAMS_MAX], *again;

    (void)state;
    for (int p = 0; p < list->param_count; p++) {
        param[p] = calloc((size_t)list->param[p].numel, sizeof(float));
        assert_non_null(param[p]);
    }
    dpb_transformer_list_init_params(list, 3, param);
    for (int p = 0; p < list->param_count; p++) {
        int64_t count = list->param[p].numel;
        double sum = 0.0, squares = 0.0;

        for (int64_t i = 0; i < count; i++) {
            sum += (double)param[p][i];
            squares += (double)param[p][i] * (double)param[p][i];
        }
        if (list->param[p].rank == 2) {
            /* five standard errors */
            assert_true(fabs(sum / (double)count) < 5.0 * 0.02 / sqrt((double)count));
            assert_true(fabs(squares / (double)count / 4e-4 - 1.0) <
                        5.0 * sqrt(2.0 / (double)count));
        } else {
            bool ones = strstr(list->param[p].name, "LayerNorm.weight") != NULL;

            assert_true(sum == (ones ? (double)count : 0.0));
            assert_true(squares == (ones ? (double)count : 0.0));
        }
    }
    /* query and key have the same shape and differ, the same seed gives the same values */
    assert_memory_not_equal(param[5], param[7], 64 * 64 * sizeof(float));
    again = param[5];
    param[5] = calloc(64 * 64, sizeof(float));
    assert_non_null(param[5]);
    dpb_transformer_list_init_params(list, 3, param);
    assert_memory_equal(param[5], again, 64 * 64 * sizeof(float));
    dpb_transformer_list_init_params(list, 4, param);
    assert_memory_not_equal(param[5], again, 64 * 64 * sizeof(float));
    free(again);
    for (int p = 0; p < list->param_count; p++)
        free(param[p]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_against_pytorch),
            cmocka_unit_test(test_parameters),
            cmocka_unit_test(test_work),
            cmocka_unit_test(test_layers),
            cmocka_unit_test(test_models_say_what_a_sample_is),
            cmocka_unit_test(test_activations_of_a_block),
            cmocka_unit_test(test_a_list_is_made_once),
            cmocka_unit_test(test_shapes_that_do_not_fit),
            cmocka_unit_test(test_initial_values),
    };

    return DPB_RUN_TESTS(tests);
}
