/* The CPU device apart from its operators' results: opening, binding, memory, marks, errors. */
#include <pthread.h>
#include <sched.h>

#include "dpb_clock.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_reference.h"
#include "op_data.h"

static const struct dpb_device_ops *const ops = &dpb_device_cpu_ops;

static char first_error[1024];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", line);
}

static void catch_errors(void)
{
    first_error[0] = '\0';
    dpb_log_set_sink(keep_error, NULL);
}

static dpb_device *open_device(int local_rank, int local_size, int threads, bool bind)
{
    const struct dpb_device_config config = {
            .local_rank = local_rank, .local_size = local_size, .threads = threads, .bind = bind};
    dpb_device *device = NULL;

    assert_int_equal(ops->open(&config, &device), DPB_OK);
    assert_non_null(device);
    return device;
}

static void test_table(void **state)
{
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_device_ops_check(ops), DPB_OK);
    assert_string_equal(ops->name, "cpu");
    assert_int_equal(ops->probe(why, sizeof(why)), DPB_OK);
}

static void test_open_refuses_nonsense(void **state)
{
    static const struct dpb_device_config bad[] = {
            {.local_size = 1, .threads = 0},
            {.local_size = 1, .threads = 1, .local_rank = 1},
            {.local_size = 1, .threads = 1, .local_rank = -1},
    };
    dpb_device *device = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        catch_errors();
        assert_int_equal(ops->open(&bad[i], &device), DPB_ERR_USAGE);
        dpb_log_set_sink(NULL, NULL);
        assert_non_null(strstr(first_error, "cannot open"));
        assert_null(device);
    }
}

static void test_describe(void **state)
{
    dpb_device *device = open_device(0, 1, 2, false);
    dpb_json *json = ops->describe(device);
    const char *bf16;

    (void)state;
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "name"), ""), "cpu");
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "threads"), 0), 2);
    assert_true(strlen(dpb_json_as_string(dpb_json_get(json, "isa"), "")) > 0);
    bf16 = dpb_json_as_string(dpb_json_get(json, "bf16"), "absent");
    assert_true(strncmp(bf16, "native ", 7) == 0 || strncmp(bf16, "emulated ", 9) == 0 ||
                strcmp(bf16, "absent") == 0);
    assert_int_equal(dpb_json_as_string(dpb_json_get(json, "onednn"), "?")[1], '.');
    assert_int_equal(dpb_json_type(dpb_json_get(json, "cores")), DPB_JSON_NULL);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "cores_reason"), ""),
                        "binding is off");
    assert_string_equal(getenv("OMP_NUM_THREADS"), "2");
    assert_string_equal(getenv("OMP_PROC_BIND"), "false");
    dpb_json_free(json);
    ops->close(device);
}

/* Ranks side by side take cores side by side, wrap where there are too few, and give them back. */
static void test_binding(void **state)
{
    cpu_set_t before, during, after;
    int64_t usable = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (int rank = 0; rank < 3; rank++) {
        dpb_device *device = open_device(rank, 3, 1, true);
        dpb_json *json = ops->describe(device);
        const dpb_json *cores = dpb_json_get(json, "cores");

        if (dpb_json_type(cores) == DPB_JSON_NULL) { /* a sandbox that forbids it */
            assert_true(strlen(dpb_json_as_string(dpb_json_get(json, "cores_reason"), "")) > 0);
        } else {
            int64_t core = dpb_json_as_int(dpb_json_at(cores, 0), -1);

            usable = dpb_json_as_int(dpb_json_get(json, "cores_usable"), 0);
            assert_int_equal(dpb_json_size(cores), 1);
            assert_true(usable >= 1);
            assert_true(CPU_ISSET((size_t)core, &before));
            assert_int_equal(sched_getaffinity(0, sizeof(during), &during), 0);
            assert_int_equal(CPU_COUNT(&during), 1);
            assert_true(CPU_ISSET((size_t)core, &during));
            assert_int_equal(dpb_json_as_bool(dpb_json_get(json, "cores_shared"), false),
                             usable < 3);
        }
        dpb_json_free(json);
        ops->close(device);
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

static int64_t core_number(int rank, int threads, size_t index, int64_t *usable)
{
    dpb_device *device = open_device(rank, 2, threads, true);
    dpb_json *json = ops->describe(device);
    int64_t core = dpb_json_as_int(dpb_json_at(dpb_json_get(json, "cores"), index), -1);

    *usable = dpb_json_as_int(dpb_json_get(json, "cores_usable"), 0);
    dpb_json_free(json);
    ops->close(device);
    return core;
}

static void test_binding_places_threads_in_order(void **state)
{
    int64_t usable;
    int64_t first = core_number(0, 2, 0, &usable), second = core_number(0, 2, 1, &usable);

    (void)state;
    if (usable == 0)
        return;
    assert_int_equal(core_number(0, 1, 0, &usable), first);
    assert_int_equal(core_number(1, 1, 0, &usable), second);
    assert_int_equal(first != second, usable > 1);
    if (usable == 2) /* rank 1's threads wrap */
        assert_int_equal(core_number(1, 2, 0, &usable), first);
}

static void test_memory(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1000003};
    dpb_device *device = open_device(0, 1, 1, false);
    void *memory, *none = NULL;
    char from[100], to[100];

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(ops->alloc(device, sizes[i], &memory), DPB_OK);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(((unsigned char *)memory)[j], 0);
        memset(memory, 1, sizes[i]);
        ops->free(device, memory);
    }
    ops->free(device, NULL);
    catch_errors();
    assert_int_equal(ops->alloc(device, SIZE_MAX, &none), DPB_ERR_NO_MEMORY);
    assert_int_equal(ops->alloc(device, SIZE_MAX - 63, &none), DPB_ERR_NO_MEMORY);
    dpb_log_set_sink(NULL, NULL);
    assert_null(none);

    memset(from, 7, sizeof(from));
    memset(to, 0, sizeof(to));
    assert_int_equal(ops->copy(device, to, from, 99, NULL), DPB_OK);
    assert_memory_equal(to, from, 99);
    assert_int_equal(to[99], 0);
    assert_int_equal(ops->copy(device, NULL, NULL, 0, NULL), DPB_OK);
    ops->close(device);
}

static void test_streams_and_marks(void **state)
{
    dpb_device *device = open_device(0, 1, 1, false);
    dpb_stream *stream = NULL;
    dpb_event_mark *from = NULL, *to = NULL;
    int64_t ns = -7, before, after;

    (void)state;
    assert_int_equal(ops->stream_open(device, &stream), DPB_OK);
    assert_int_equal(ops->mark_open(device, &from), DPB_OK);
    assert_int_equal(ops->mark_open(device, &to), DPB_OK);
    catch_errors();
    assert_int_equal(ops->mark_elapsed_ns(from, to, &ns), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(first_error, "first has not been recorded"));
    assert_int_equal(ns, -7);

    before = dpb_clock_now_ns();
    assert_int_equal(ops->mark_record(from, stream), DPB_OK);
    dpb_clock_sleep_until_ns(before + 2000000);
    assert_int_equal(ops->mark_record(to, stream), DPB_OK);
    after = dpb_clock_now_ns();
    assert_int_equal(ops->stream_wait(stream, to), DPB_OK);
    assert_int_equal(ops->stream_sync(stream), DPB_OK);
    assert_int_equal(ops->mark_elapsed_ns(from, to, &ns), DPB_OK);
    assert_true(ns > 0 && ns <= after - before);
    assert_int_equal(ops->mark_elapsed_ns(to, from, &after), DPB_OK);
    assert_int_equal(after, -ns);
    ops->mark_close(from);
    ops->mark_close(to);
    ops->stream_close(stream);
    ops->close(device);
}

static void test_op_supported(void **state)
{
    dpb_device *device = open_device(0, 1, 1, false);

    (void)state;
    for (int op = 0; op < DPB_OP_COUNT; op++) {
        assert_true(ops->op_supported(device, (enum dpb_op)op, DPB_F32));
        assert_false(ops->op_supported(device, (enum dpb_op)op, DPB_F64));
    }
    assert_true(ops->op_supported(device, DPB_OP_CAST, DPB_BF16));
    assert_true(ops->op_supported(device, DPB_OP_CAST, DPB_F16));
    assert_false(ops->op_supported(device, DPB_OP_ADD, DPB_F16));
    assert_false(ops->op_supported(device, DPB_OP_SOFTMAX_XENT_FWD, DPB_BF16));
    assert_false(ops->op_supported(device, DPB_OP_SGD_MOMENTUM, DPB_BF16));
    assert_false(ops->op_supported(device, DPB_OP_COUNT, DPB_F32));
    ops->close(device);
}

static void test_launch_refuses_what_does_not_fit(void **state)
{
    dpb_device *device = open_device(0, 1, 1, false);
    float v[16] = {0};
    int32_t label[] = {0, 3};
    struct dpb_matmul_args shapes = {
            .a = dpb_tensor_2d(v, 2, 3), .b = dpb_tensor_2d(v, 2, 3), .c = dpb_tensor_2d(v, 2, 3)};
    struct dpb_relu_args wide = {.x = dpb_tensor_1d(v, 2), .y = dpb_tensor_1d(v, 2)};
    struct dpb_softmax_xent_args labels = {.logits = dpb_tensor_2d(v, 2, 3),
                                           .prob = dpb_tensor_2d(v + 6, 2, 3),
                                           .label = label,
                                           .loss = v + 12};

    (void)state;
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_MATMUL, &shapes, NULL), DPB_ERR_USAGE);
    assert_non_null(strstr(first_error, "matmul"));
    assert_non_null(strstr(first_error, "a[2,3] b[2,3] c[2,3]"));
    assert_int_equal(dpb_op_launch(device, DPB_OP_COUNT, &shapes, NULL), DPB_ERR_USAGE);
    assert_int_equal(dpb_op_launch(device, DPB_OP_RELU_FWD, NULL, NULL), DPB_ERR_USAGE);
    catch_errors();
    wide.x.dtype = wide.y.dtype = DPB_F64;
    assert_int_equal(dpb_op_launch(device, DPB_OP_RELU_FWD, &wide, NULL), DPB_ERR_UNSUPPORTED);
    assert_non_null(strstr(first_error, "does not do fp64"));
    catch_errors();
    assert_int_equal(dpb_op_launch(device, DPB_OP_SOFTMAX_XENT_FWD, &labels, NULL), DPB_ERR_USAGE);
    assert_non_null(strstr(first_error, "label 3 of sample 1"));
    dpb_log_set_sink(NULL, NULL);
    ops->close(device);
}

enum {
    PIXELS = 16 * 16,
    CHANNELS = 8,
    USER_RUNS = 4000
};

/* One host thread: convolves its own x, over and over, and compares with what it had alone. */
struct user {
    dpb_device *device;
    float *x, *w, *y, *alone;
    pthread_barrier_t *start; /* so that the two really run side by side */
    int wrong;
};

static dpb_status convolve(struct user *user)
{
    struct dpb_conv_args conv = {.x = dpb_tensor_4d(user->x, 1, 18, 18, CHANNELS),
                                 .w = dpb_tensor_4d(user->w, CHANNELS, CHANNELS, 3, 3),
                                 .y = dpb_tensor_4d(user->y, 1, 16, 16, CHANNELS),
                                 .stride = 1};

    return dpb_op_launch(user->device, DPB_OP_CONV_FWD, &conv, NULL);
}

static void *use(void *ctx)
{
    struct user *user = ctx;
    size_t bytes = sizeof(float) * PIXELS * CHANNELS;

    pthread_barrier_wait(user->start);
    for (int i = 0; i < USER_RUNS; i++) {
        memset(user->y, 0xff, bytes);
        if (convolve(user) != DPB_OK || memcmp(user->y, user->alone, bytes) != 0)
            user->wrong++;
    }
    return NULL;
}

/* A helper thread may launch beside the step's thread, though kernels and buffers are shared. */
static void test_two_host_threads(void **state)
{
    struct op_data data = {0};
    dpb_device *device = open_device(0, 1, 1, false);
    struct user user[2] = {{.device = device}, {.device = device}};
    pthread_barrier_t start;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
    for (int i = 0; i < 2; i++) {
        user[i].start = &start;
        user[i].x = op_data_f32(&data, 18 * 18 * CHANNELS);
        user[i].w = op_data_f32(&data, CHANNELS * CHANNELS * 9);
        user[i].y = op_data_f32(&data, PIXELS * CHANNELS);
        assert_int_equal(convolve(&user[i]), DPB_OK);
        user[i].alone = user[i].y;
        user[i].y = op_data_f32(&data, PIXELS * CHANNELS);
    }
    assert_int_equal(pthread_create(&thread, NULL, use, &user[1]), 0);
    use(&user[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&start);
    assert_int_equal(user[0].wrong, 0);
    assert_int_equal(user[1].wrong, 0);
    ops->close(device);
    op_data_release(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_table),
            cmocka_unit_test(test_open_refuses_nonsense),
            cmocka_unit_test(test_describe),
            cmocka_unit_test(test_binding),
            cmocka_unit_test(test_binding_places_threads_in_order),
            cmocka_unit_test(test_memory),
            cmocka_unit_test(test_streams_and_marks),
            cmocka_unit_test(test_op_supported),
            cmocka_unit_test(test_launch_refuses_what_does_not_fit),
            cmocka_unit_test(test_two_host_threads),
    };

    return DPB_RUN_TESTS(tests);
}
