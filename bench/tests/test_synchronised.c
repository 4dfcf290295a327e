/* Batch normalisation over the samples of all ranks: however a batch is divided among ranks, loss,
 * gradients and running statistics are those of one rank that has all of it. */
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "reference_device.h"
#include "thread_ranks.h"
#include "tiny_network.h"

#include <math.h>

#define SCALE     0.25f
#define TOLERANCE 2e-5 /* of the largest value of a tensor: fp32 sums in another order */

struct ranks {
    struct thread_ranks threads;
    struct fixture fixture[THREAD_RANKS_MAX];
    struct dpb_forward_result result[THREAD_RANKS_MAX];
    dpb_status status[THREAD_RANKS_MAX];
};

static void open_ranks(struct ranks *ranks, const struct dpb_workload_ops *workload,
                       const int64_t *samples, int count)
{
    int64_t first = 0;

    memset(ranks, 0, sizeof(*ranks));
    thread_ranks_open(&ranks->threads, count);
    for (int r = 0; r < count; r++) {
        /* a batch of none is made of one that is not used */
        const struct dpb_workload_config config = {.batch_max = samples[r] > 0 ? samples[r] : 1,
                                                   .ranks = &ranks->threads.rank[r].services,
                                                   .sync_batch_statistics = true};

        fixture_open_with(&ranks->fixture[r], &test_reference_device_ops, workload, &config, first);
        ranks->fixture[r].batch.samples = samples[r];
        first += samples[r];
    }
}

static void close_ranks(struct ranks *ranks)
{
    for (int r = 0; r < ranks->threads.size; r++)
        fixture_close(&ranks->fixture[r]);
    thread_ranks_close(&ranks->threads);
}

static dpb_status note_ready(void *ctx, int param)
{
    struct fixture *fixture = ctx;

    if (fixture->ready_count == fixture->model->param_count)
        return DPB_ERR_INTERNAL;
    fixture->ready[fixture->ready_count++] = param;
    return DPB_OK;
}

/* Nothing that fails the test here: this is not the test's thread. */
static void step(void *ctx, int r)
{
    struct ranks *ranks = ctx;
    struct fixture *fixture = &ranks->fixture[r];

    fixture->ready_count = 0;
    ranks->status[r] = dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                            &fixture->batch, true, &ranks->result[r]);
    if (ranks->status[r] == DPB_OK)
        ranks->status[r] = fixture->ops->backward(fixture->workload, &fixture->batch, SCALE,
                                                  note_ready, fixture);
}

static void check_gradients(const struct ranks *ranks, const struct fixture *whole)
{
    for (int p = 0; p < whole->model->param_count; p++) {
        double largest = 0.0, worst = 0.0;

        for (int64_t i = 0; i < whole->model->params[p].numel; i++) {
            double sum = 0.0;

            for (int r = 0; r < ranks->threads.size; r++)
                sum += (double)ranks->fixture[r].grad[p][i];
            largest = fmax(largest, fabs((double)whole->grad[p][i]));
            worst = fmax(worst, fabs(sum - (double)whole->grad[p][i]));
        }
        if (!(largest > 0.0 && worst <= TOLERANCE * largest))
            fail_msg("%s: largest gradient %g, worst difference %g", whole->model->params[p].name,
                     largest, worst);
    }
}

static void check_statistics(const struct ranks *ranks, const struct fixture *whole)
{
    struct dpb_workload_state expected, first, found;
    int index = 0;

    for (; whole->ops->state(whole->workload, index, &expected); index++) {
        size_t bytes = (size_t)expected.numel * sizeof(float);

        assert_int_equal(expected.kind, DPB_STATE_LOCAL);
        assert_true(whole->ops->state(ranks->fixture[0].workload, index, &first));
        assert_int_equal(first.kind, DPB_STATE_REPLICATED);
        for (int64_t c = 0; c < expected.numel; c++)
            assert_true(fabs((double)(first.data[c] - expected.data[c])) < TOLERANCE);
        for (int r = 1; r < ranks->threads.size; r++) {
            assert_true(whole->ops->state(ranks->fixture[r].workload, index, &found));
            assert_memory_equal(found.data, first.data, bytes);
        }
    }
    assert_true(index > 0);
}

static void check_step(struct ranks *ranks, struct fixture *whole)
{
    double expected = fixture_step(whole, SCALE).loss_sum, loss = 0.0;

    thread_ranks_run(&ranks->threads, step, ranks);
    for (int r = 0; r < ranks->threads.size; r++) {
        const struct fixture *fixture = &ranks->fixture[r];

        assert_int_equal(ranks->status[r], DPB_OK);
        assert_int_equal(fixture->ready_count, fixture->model->param_count);
        assert_memory_equal(fixture->ready, fixture->model->ready_order,
                            (size_t)fixture->ready_count * sizeof(int));
        loss += ranks->result[r].loss_sum;
    }
    assert_true(fabs(loss - expected) < TOLERANCE * expected);
    check_gradients(ranks, whole);
    check_statistics(ranks, whole);
}

/* Two steps with the same parameters: statistics learn twice, and buffers are used again. */
static void check_division(const int64_t *samples, int count)
{
    struct ranks *ranks = malloc(sizeof(*ranks));
    struct fixture *whole = malloc(sizeof(*whole));
    int64_t all = 0;

    assert_non_null(ranks);
    assert_non_null(whole);
    for (int r = 0; r < count; r++)
        all += samples[r];
    open_ranks(ranks, &tiny_network_ops, samples, count);
    fixture_open(whole, &test_reference_device_ops, &tiny_network_ops, all);
    check_step(ranks, whole);
    check_step(ranks, whole);
    /* one exchange per layer and direction */
    assert_int_equal(ranks->threads.exchanges, 2 * 2 * 8);
    fixture_close(whole);
    close_ranks(ranks);
    free(whole);
    free(ranks);
}

static void test_equal_batches(void **state)
{
    (void)state;
    check_division((const int64_t[]){3, 3}, 2);
    check_division((const int64_t[]){2, 2, 2, 2}, 4);
}

static void test_uneven_batches(void **state)
{
    (void)state;
    check_division((const int64_t[]){1, 4}, 2);
    check_division((const int64_t[]){2, 1, 3}, 3);
}

static void test_ranks_without_samples(void **state)
{
    (void)state;
    check_division((const int64_t[]){0, 3, 0, 2}, 4);
    check_division((const int64_t[]){4, 0}, 2);
}

/* Without it ranks normalise by themselves, and nothing is exchanged: the sums differ. */
static void test_what_it_is_for(void **state)
{
    const int64_t samples[] = {3, 3};
    struct ranks *ranks = malloc(sizeof(*ranks));
    struct fixture *whole = malloc(sizeof(*whole));
    double expected, loss;

    (void)state;
    assert_non_null(ranks);
    assert_non_null(whole);
    open_ranks(ranks, &tiny_network_ops, samples, 2);
    fixture_open(whole, &test_reference_device_ops, &tiny_network_ops, 6);
    expected = fixture_step(whole, SCALE).loss_sum;
    fixture_close(whole);
    fixture_open(whole, &test_reference_device_ops, &tiny_network_ops, 3);
    loss = fixture_step(whole, SCALE).loss_sum;
    thread_ranks_run(&ranks->threads, step, ranks);
    assert_true(fabs(loss - ranks->result[0].loss_sum) > 1e-3);
    assert_true(fabs(ranks->result[0].loss_sum + ranks->result[1].loss_sum - expected) <
                TOLERANCE * expected);
    fixture_close(whole);
    close_ranks(ranks);
    free(whole);
    free(ranks);
}

/* Inference uses running statistics: ranks do it each by themselves. */
static void test_inference_exchanges_nothing(void **state)
{
    const int64_t samples[] = {3, 2};
    struct ranks *ranks = malloc(sizeof(*ranks));
    struct dpb_forward_result result;
    struct fixture *fixture;

    (void)state;
    assert_non_null(ranks);
    open_ranks(ranks, &tiny_network_ops, samples, 2);
    fixture = &ranks->fixture[0];
    assert_int_equal(dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                          &fixture->batch, false, &result),
                     DPB_OK);
    assert_true(result.loss_sum > 0.0);
    assert_int_equal(ranks->threads.exchanges, 0);
    close_ranks(ranks);
    free(ranks);
}

static void test_memory_is_predicted(void **state)
{
    const int64_t samples[] = {3, 2};
    struct ranks *ranks = malloc(sizeof(*ranks));

    (void)state;
    assert_non_null(ranks);
    open_ranks(ranks, &tiny_network_ops, samples, 2);
    for (int r = 0; r < 2; r++) {
        const struct dpb_workload_sizes sizes = {
                .batch_max = samples[r], .rank = r, .ranks = 2, .sync_batch_statistics = true};

        assert_int_equal(tiny_network_ops.activation_bytes_for(NULL, &sizes),
                         tiny_network_ops.activation_bytes(ranks->fixture[r].workload));
    }
    close_ranks(ranks);
    free(ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_equal_batches),
            cmocka_unit_test(test_uneven_batches),
            cmocka_unit_test(test_ranks_without_samples),
            cmocka_unit_test(test_what_it_is_for),
            cmocka_unit_test(test_inference_exchanges_nothing),
            cmocka_unit_test(test_memory_is_predicted),
    };

    return DPB_RUN_TESTS(tests);
}
