/* shim.h finds what it says it finds: planted mistakes, and kernels without one. */
#include <math.h>

#include "dpb_test.h"
#include "planted.h"
#include "shim.h"

#define BLOCKS  3
#define THREADS 256
#define COUNT   (BLOCKS * THREADS)

struct planted_run {
    float x[COUNT], y[COUNT];
};

static int run_in(enum planted which, unsigned order, struct planted_run *r)
{
    struct dpb_cuda_queue queue = {0};
    int rc;

    for (int i = 0; i < COUNT; i++) {
        r->x[i] = (float)(i % 7) - 2.0f;
        r->y[i] = 1.0f;
    }
    dpb_shim_set_order(order);
    rc = planted_launch(which, r->x, r->y, BLOCKS, THREADS, &queue);
    dpb_shim_set_order(0);
    return rc;
}

static bool same_in_all_orders(enum planted which)
{
    struct planted_run first, other;

    assert_int_equal(run_in(which, 0, &first), 0);
    for (unsigned order = 1; order < 4; order++) {
        assert_int_equal(run_in(which, order, &other), 0);
        if (memcmp(first.y, other.y, sizeof(first.y)) != 0)
            return false;
    }
    return true;
}

static void test_right_kernels(void **state)
{
    struct planted_run r;

    (void)state;
    for (unsigned order = 0; order < 4; order++) {
        assert_int_equal(run_in(PLANTED_REVERSE, order, &r), 0);
        for (int i = 0; i < COUNT; i++)
            assert_true(r.y[i] == r.x[i / THREADS * THREADS + THREADS - 1 - i % THREADS]);
    }
    assert_true(same_in_all_orders(PLANTED_TWO_SUMS));
    assert_int_equal(run_in(PLANTED_TOGETHER, 1, &r), 0);
    for (int i = 0; i < COUNT; i++) {
        float sum = 0.0f, above = 0.0f;

        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            sum += r.x[j];
            above += r.x[j] > 0.0f;
        }
        assert_true(r.y[i] == sum + 100.0f * above + 10000.0f * r.x[i / 32 * 32 + 5]);
    }
}

/* What is read before it is written is a NaN, whatever the order. */
static void test_missing_barrier(void **state)
{
    struct planted_run r;
    int poisoned = 0;

    (void)state;
    assert_int_equal(run_in(PLANTED_NO_SYNC, 0, &r), 0);
    for (int i = 0; i < COUNT; i++)
        poisoned += isnan(r.y[i]);
    assert_int_equal(poisoned, COUNT / 2);
    assert_false(same_in_all_orders(PLANTED_NO_SECOND_SYNC));
}

static void test_order_of_blocks(void **state)
{
    (void)state;
    assert_false(same_in_all_orders(PLANTED_BLOCKS));
}

static void assert_error(enum planted which, const char *part)
{
    struct planted_run r;

    assert_int_equal(run_in(which, 0, &r), DPB_SHIM_FAILED);
    if (!strstr(dpb_shim_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", dpb_shim_error(), part);
    /* Nothing is left of it. */
    assert_int_equal(run_in(PLANTED_REVERSE, 0, &r), 0);
    assert_true(r.y[0] == r.x[THREADS - 1]);
}

static void test_divergence(void **state)
{
    (void)state;
    assert_error(PLANTED_BLOCK_SYNC, "block (0,0): threads 0-127 wait at ");
    assert_non_null(strstr(dpb_shim_error(), "planted.cc:"));
    assert_non_null(strstr(dpb_shim_error(), ", threads 128-255 have returned"));
    assert_error(PLANTED_TWO_SITES, ", threads 128-255 wait at ");
    assert_error(PLANTED_WARP, "threads 0-15 wait at a shuffle, threads 16-31 have returned");
    assert_error(PLANTED_BLOCK_AND_WARP, ", threads 32-255 have returned");
}

static void test_bad_launches(void **state)
{
    static const unsigned grids[][3] = {/* blocks x, blocks y, threads */
                                        {0, 1, 32},          {1, 0, 32}, {1, 1, 0},
                                        {1, 1, 1056},        {1, 1, 33}, {1, 65536, 32},
                                        {2147483648u, 1, 32}};
    struct dpb_cuda_queue queue = {0};
    float y[6] = {0.0f};

    (void)state;
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++)
        assert_int_equal(planted_launch_grid(grids[i][0], grids[i][1], grids[i][2], y, &queue),
                         DPB_SHIM_BAD_LAUNCH);
    assert_int_equal(planted_launch_grid(3, 2, 1024, y, &queue), 0);
    for (int i = 0; i < 6; i++)
        assert_true(y[i] == 6.0f);
}

/* ---- launches that run later ---- */

struct later {
    struct dpb_shim_work *work[4];
    void *stream;
    int count, rc;
};

static int keep(void *ctx, void *stream, struct dpb_shim_work *work)
{
    struct later *later = ctx;

    later->stream = stream;
    if (later->rc)
        dpb_shim_work_free(work);
    else
        later->work[later->count++] = work;
    return later->rc;
}

static void test_launcher(void **state)
{
    struct later later = {0};
    int mark;
    struct dpb_cuda_queue queue = {.stream = &mark};
    float y[2] = {0.0f};
    int64_t launches = dpb_shim_launches();

    (void)state;
    dpb_shim_set_launcher(keep, &later);
    assert_int_equal(planted_launch_grid(2, 1, 32, y, &queue), 0);
    assert_ptr_equal(later.stream, &mark);
    assert_true(y[0] == 0.0f);
    later.rc = 46;
    assert_int_equal(planted_launch_grid(2, 1, 32, y, &queue), 46);
    /* A launch that CUDA refuses comes to no stream. */
    assert_int_equal(planted_launch_grid(0, 1, 32, y, &queue), DPB_SHIM_BAD_LAUNCH);
    dpb_shim_set_launcher(NULL, NULL);
    assert_int_equal(later.count, 1);
    assert_int_equal(dpb_shim_launches() - launches, 3);
    assert_int_equal(dpb_shim_work_run(later.work[0]), 0);
    assert_int_equal(dpb_shim_work_run(later.work[0]), 0);
    dpb_shim_work_free(later.work[0]);
    assert_true(y[0] == 4.0f && y[1] == 4.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_right_kernels),   cmocka_unit_test(test_missing_barrier),
            cmocka_unit_test(test_order_of_blocks), cmocka_unit_test(test_divergence),
            cmocka_unit_test(test_bad_launches),    cmocka_unit_test(test_launcher),
    };

    return DPB_RUN_TESTS(tests);
}
