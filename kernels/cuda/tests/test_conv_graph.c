/* The choice, the cache and the clean-up of convolution plans, against a library that only counts.
 * What the real one says to real shapes is in test_conv_plans.c. */
#include "dpb_test.h"

#include "conv_graph.h"
#include "dpb_log.h"

/* ---- a cuDNN that proposes engines 0, 1, 2, ... ---- */

#define ENGINES 6

struct descriptor {
    cudnnBackendDescriptorType_t type;
    int64_t engine;
    bool finalized;
};

static struct {
    int live, calls, fail_at; /* descriptors; library calls; the call that fails, 0: none */
    int proposed, made, executed;
    int operations;     /* of the last graph */
    int operations_max; /* graphs of more have no engine */
    unsigned notes[ENGINES];
    int64_t workspace[ENGINES];
    bool refuses[ENGINES]; /* to finalise */
    size_t version;
} fake;

static void reset(void)
{
    memset(&fake, 0, sizeof(fake));
    fake.proposed = ENGINES;
    fake.operations_max = 3;
    fake.version = CUDNN_VERSION;
}

static bool fails_now(void)
{
    return ++fake.calls == fake.fail_at;
}

static size_t fake_version(void)
{
    return fake.version;
}

static const char *fake_error_string(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_EXECUTION_FAILED ? "EXECUTION_FAILED" : "BAD";
}

static void fake_last_error(char *message, size_t bytes)
{
    snprintf(message, bytes, "because\nof a test");
}

static cudnnStatus_t fake_create(cudnnHandle_t *handle)
{
    *handle = NULL;
    return CUDNN_STATUS_NOT_INITIALIZED;
}

static cudnnStatus_t fake_destroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_create_descriptor(cudnnBackendDescriptorType_t type,
                                            cudnnBackendDescriptor_t *descriptor)
{
    if (fails_now())
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    struct descriptor *made = calloc(1, sizeof(*made));
    made->type = type;
    fake.live++;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_destroy_descriptor(cudnnBackendDescriptor_t descriptor)
{
    assert_non_null(descriptor);
    free(descriptor);
    fake.live--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_finalize(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *self = descriptor;
    if (fails_now())
        return CUDNN_STATUS_BAD_PARAM;
    assert_false(self->finalized);
    if (self->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (fake.refuses[self->engine])
            return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
        fake.made++;
    }
    self->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    struct descriptor *self = descriptor;
    (void)type;
    if (fails_now())
        return CUDNN_STATUS_BAD_PARAM;
    assert_non_null(self);
    assert_false(self->finalized);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        self->engine = (*(struct descriptor *const *)elements)->engine;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
        fake.operations = (int)count;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t propose(int64_t requested, int64_t *count, void *elements)
{
    *count = fake.operations > fake.operations_max ? 0 : fake.proposed;
    struct descriptor **configs = elements;
    for (int64_t i = 0; i < requested && i < *count; i++) {
        configs[i]->engine = i;
        configs[i]->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                              void *elements)
{
    const struct descriptor *self = descriptor;
    (void)type;
    if (fails_now())
        return CUDNN_STATUS_BAD_PARAM;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return propose(requested, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct descriptor **)elements)->engine = self->engine;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)elements = self->engine;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = 0;
        for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; note++) {
            if (fake.notes[self->engine] & 1U << note)
                ((cudnnBackendNumericalNote_t *)elements)[(*count)++] = note;
        }
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)elements = fake.workspace[self->engine];
        break;
    default:
        fail_msg("attribute %d is read", (int)name);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    assert_non_null(handle);
    assert_true(((struct descriptor *)plan)->finalized && ((struct descriptor *)pack)->finalized);
    if (fails_now())
        return CUDNN_STATUS_EXECUTION_FAILED;
    fake.executed++;
    return CUDNN_STATUS_SUCCESS;
}

static const struct dpb_cudnn FAKE = {
        .cudnnGetVersion = fake_version,
        .cudnnGetErrorString = fake_error_string,
        .cudnnGetLastErrorString = fake_last_error,
        .cudnnCreate = fake_create,
        .cudnnDestroy = fake_destroy,
        .cudnnSetStream = fake_set_stream,
        .cudnnBackendCreateDescriptor = fake_create_descriptor,
        .cudnnBackendDestroyDescriptor = fake_destroy_descriptor,
        .cudnnBackendFinalize = fake_finalize,
        .cudnnBackendSetAttribute = fake_set,
        .cudnnBackendGetAttribute = fake_get,
        .cudnnBackendExecute = fake_execute,
};

/* ---- what tests share ---- */

static char logged[1024];

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR)
        snprintf(logged, sizeof(logged), "%s", line);
}

static int setup(void **state)
{
    (void)state;
    reset();
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dpb_log_set_sink(NULL, NULL);
    dpb_cudnn_use(NULL);
    return 0;
}

/* Any address: the fake only looks whether there is one. */
static int anything;

static struct dpb_conv_graphs_config on_device(void)
{
    return (struct dpb_conv_graphs_config){.cudnn = &FAKE, .handle = (cudnnHandle_t)&anything};
}

static struct dpb_conv_shape shape_of(enum dpb_conv_pass pass, enum dpb_dtype dtype)
{
    return (struct dpb_conv_shape){.pass = pass,
                                   .dtype = dtype,
                                   .n = 64,
                                   .h = 56,
                                   .w = 56,
                                   .c = 64,
                                   .k = 64,
                                   .r = 3,
                                   .s = 3,
                                   .stride = 1,
                                   .pad = 1,
                                   .out_h = 56,
                                   .out_w = 56};
}

static int64_t time_of[ENGINES];
static int measured;

/* Runs the candidate once, as a device would, and says what the test wants of the n-th. */
static dpb_status measure(void *ctx, const struct dpb_conv_shape *shape, struct dpb_conv_plan *plan,
                          int64_t *ns)
{
    const struct dpb_conv_buffers buffers = {.x = ctx, .w = ctx, .y = ctx};
    assert_int_equal(shape->k, 64);
    DPB_TRY(dpb_conv_plan_run(plan, &buffers));
    *ns = time_of[measured++];
    return *ns < 0 ? DPB_ERR_VENDOR : DPB_OK;
}

static struct dpb_conv_graphs *open_graphs(const struct dpb_conv_graphs_config *config)
{
    struct dpb_conv_graphs *graphs = NULL;
    assert_int_equal(dpb_conv_graphs_open(config, &graphs), DPB_OK);
    return graphs;
}

/* ---- the table ---- */

static void test_versions(void **state)
{
    (void)state;
    struct dpb_cudnn table;
    char why[512] = "", text[32];
    dpb_cudnn_use(&FAKE);
    assert_int_equal(dpb_cudnn_open(&table, why, sizeof(why)), DPB_OK);
    assert_memory_equal(&table, &FAKE, sizeof(table));

    fake.version = 80907;
    assert_int_equal(dpb_cudnn_open(&table, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "cuDNN: the library is 8.9.7, this dpbench was built with 9."));

    assert_true(dpb_cudnn_version_ok(91900, 91900));
    assert_true(dpb_cudnn_version_ok(92001, 91900));
    assert_true(dpb_cudnn_version_ok(91900, 91902)); /* a patch is no difference */
    assert_false(dpb_cudnn_version_ok(91800, 91900));
    assert_false(dpb_cudnn_version_ok(100000, 91900));
    dpb_cudnn_version_text(91902, text, sizeof(text));
    assert_string_equal(text, "9.19.2");
}

static void test_library_missing(void **state)
{
    (void)state;
    struct dpb_cudnn table;
    char why[512] = "";
    setenv("DPB_CUDNN_LIBRARY", "/nowhere/libcudnn.so.9", 1);
    assert_int_equal(dpb_cudnn_open(&table, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    unsetenv("DPB_CUDNN_LIBRARY");
    assert_non_null(strstr(why, "/nowhere/libcudnn.so.9"));
    assert_non_null(strstr(why, "install cuDNN 9"));
}

static void test_statuses(void **state)
{
    (void)state;
    assert_int_equal(dpb_cudnn_status(CUDNN_STATUS_SUCCESS), DPB_OK);
    assert_int_equal(dpb_cudnn_status(CUDNN_STATUS_NOT_INITIALIZED), DPB_ERR_VENDOR);
    assert_int_equal(dpb_cudnn_status(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH), DPB_ERR_USAGE);
    assert_int_equal(dpb_cudnn_status(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT), DPB_ERR_UNSUPPORTED);
    assert_int_equal(dpb_cudnn_status(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
                     DPB_ERR_NO_MEMORY);
    assert_int_equal(dpb_cudnn_check(&FAKE, CUDNN_STATUS_BAD_PARAM, "a test"), DPB_ERR_USAGE);
    assert_non_null(strstr(logged, "cuDNN: a test: BAD: because of a test"));
}

/* ---- choosing ---- */

static void test_first_that_finalises(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    struct dpb_conv_graphs *graphs = open_graphs(&config);
    struct dpb_conv_shape shape = shape_of(DPB_CONV_BWD_DATA, DPB_BF16);
    struct dpb_conv_plan *plan = NULL, *again = NULL;
    fake.refuses[0] = true;
    fake.notes[1] = 1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    fake.workspace[2] = 4096;
    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_OK);
    assert_int_equal(dpb_conv_plan_workspace_bytes(plan), 4096);
    assert_true(dpb_conv_plan_fused(plan));
    assert_string_equal(dpb_conv_plan_text(plan), "engine 2, candidate 1 of 1, workspace 4096 B");

    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &again), DPB_OK);
    assert_ptr_equal(again, plan);
    shape.tf32 = shape.relu = true; /* of no meaning to this pass and type */
    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &again), DPB_OK);
    assert_ptr_equal(again, plan);
    assert_int_equal(fake.made, 1);
    shape.n = 32;
    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &again), DPB_OK);
    assert_ptr_not_equal(again, plan);
    dpb_conv_graphs_close(graphs);
    assert_int_equal(fake.live, 0);
}

/* Number of the engine that is taken. */
static int engine_for(const struct dpb_conv_graphs_config *config, struct dpb_conv_shape shape)
{
    struct dpb_conv_graphs *graphs = open_graphs(config);
    struct dpb_conv_plan *plan = NULL;
    int engine = -1;
    if (dpb_conv_graphs_plan(graphs, &shape, &plan) == DPB_OK)
        assert_int_equal(sscanf(dpb_conv_plan_text(plan), "engine %d,", &engine), 1);
    dpb_conv_graphs_close(graphs);
    assert_int_equal(fake.live, 0);
    return engine;
}

static void test_numerics(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    struct dpb_conv_shape fp32 = shape_of(DPB_CONV_FWD, DPB_F32), tf32 = fp32;
    tf32.tf32 = true;
    fake.notes[0] =
            1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    fake.notes[1] = 1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    assert_int_equal(engine_for(&config, tf32), 0);
    assert_int_equal(engine_for(&config, fp32), 2);
    assert_int_equal(engine_for(&config, shape_of(DPB_CONV_FWD, DPB_F16)), 0);
    config.deterministic = true;
    assert_int_equal(engine_for(&config, tf32), 2);
}

static void test_workspace_limit(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    for (int i = 0; i < ENGINES; i++)
        fake.workspace[i] = 1000 - i;
    config.workspace_limit_bytes = 998;
    assert_int_equal(engine_for(&config, shape_of(DPB_CONV_FWD, DPB_F16)), 2);
    config.workspace_limit_bytes = 10;
    assert_int_equal(engine_for(&config, shape_of(DPB_CONV_FWD, DPB_F16)), -1);
    assert_non_null(strstr(logged, "conv-fwd x[64,56,56,64] w[64,3,3,64] y[64,56,56,64] stride 1 "
                                   "pad 1 fp16"));
    assert_non_null(strstr(logged, "the limit is 10"));
}

static void test_fastest(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    config.measure = measure;
    config.measure_ctx = &anything;
    config.candidates = 4;
    memcpy(time_of, (int64_t[ENGINES]){500, -1, 300, 400, 1, 1}, sizeof(time_of));
    measured = 0;
    assert_int_equal(engine_for(&config, shape_of(DPB_CONV_BWD_WEIGHTS, DPB_BF16)), 2);
    assert_int_equal(measured, 4);

    measured = 0; /* none of them runs */
    memcpy(time_of, (int64_t[ENGINES]){-1, -1, -1, -1, -1, -1}, sizeof(time_of));
    assert_int_equal(engine_for(&config, shape_of(DPB_CONV_BWD_WEIGHTS, DPB_BF16)), -1);
    assert_non_null(strstr(logged, "a candidate did not run"));
}

static void test_fusion(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    struct dpb_conv_shape shape = shape_of(DPB_CONV_FWD, DPB_BF16);
    shape.bias = shape.relu = true;
    for (int most = 1; most <= 3; most += 2) { /* operations of one graph */
        fake.operations_max = most;
        struct dpb_conv_graphs *graphs = open_graphs(&config);
        struct dpb_conv_plan *plan = NULL;
        assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_OK);
        assert_int_equal(fake.operations, most);
        assert_int_equal(dpb_conv_plan_fused(plan), most == 3);
        dpb_conv_graphs_close(graphs);
        assert_int_equal(fake.live, 0);
    }
}

static void test_wrong_uses(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    struct dpb_conv_graphs *graphs = NULL;
    struct dpb_conv_plan *plan = NULL;
    struct dpb_conv_shape shape = shape_of(DPB_CONV_FWD, DPB_I32);
    config.device_properties = "{}";
    assert_int_equal(dpb_conv_graphs_open(&config, &graphs), DPB_ERR_USAGE);
    config = on_device();
    config.measure = measure; /* and no candidates */
    assert_int_equal(dpb_conv_graphs_open(&config, &graphs), DPB_ERR_USAGE);
    config = on_device();
    graphs = open_graphs(&config);
    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_ERR_USAGE);
    dpb_conv_graphs_close(graphs);
    dpb_conv_graphs_close(NULL);
    assert_int_equal(dpb_conv_channels_padded(3), 8);
    assert_int_equal(dpb_conv_channels_padded(64), 64);
    assert_int_equal(dpb_conv_out(224, 7, 2, 3), 112);
}

/* ---- running ---- */

static void test_buffers_are_bound_once(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config config = on_device();
    struct dpb_conv_graphs *graphs = open_graphs(&config);
    struct dpb_conv_shape shape = shape_of(DPB_CONV_FWD, DPB_BF16);
    struct dpb_conv_plan *plan = NULL;
    char memory[2000];
    assert_int_equal(dpb_conv_graphs_plan(graphs, &shape, &plan), DPB_OK);
    const int before = fake.live;
    for (int turn = 0; turn < 3; turn++) {
        for (int set = 0; set < 100; set++) {
            const struct dpb_conv_buffers buffers = {.x = &memory[set], .w = memory, .y = memory};
            assert_int_equal(dpb_conv_plan_run(plan, &buffers), DPB_OK);
        }
        assert_int_equal(fake.live, before + 100);
    }
    assert_int_equal(fake.executed, 300);
    /* Without an end, old sets give way. */
    for (int set = 0; set < 2000; set++) {
        const struct dpb_conv_buffers buffers = {.x = &memory[set], .w = memory, .y = memory};
        assert_int_equal(dpb_conv_plan_run(plan, &buffers), DPB_OK);
    }
    assert_in_range(fake.live, before + 100, before + 600);

    const struct dpb_conv_buffers last = {.x = &memory[1999], .w = memory, .y = memory};
    fake.fail_at = fake.calls + 1;
    assert_int_equal(dpb_conv_plan_run(plan, &last), DPB_ERR_VENDOR);
    assert_non_null(strstr(logged, "cuDNN does not run conv-fwd x[64,56,56,64]"));
    assert_non_null(strstr(logged, "EXECUTION_FAILED: because of a test"));
    dpb_conv_graphs_close(graphs);
    assert_int_equal(fake.live, 0);
}

/* A whole life, in which call number `fail_at` of the library fails. */
static dpb_status live_with(const struct dpb_conv_graphs_config *config)
{
    struct dpb_conv_graphs *graphs = NULL;
    struct dpb_conv_plan *plan = NULL;
    struct dpb_conv_shape shape = shape_of(DPB_CONV_FWD, DPB_BF16);
    const struct dpb_conv_buffers buffers = {.x = &anything, .w = &anything, .y = &anything};
    shape.bias = shape.relu = true;
    dpb_status st = dpb_conv_graphs_open(config, &graphs);
    if (st == DPB_OK)
        st = dpb_conv_graphs_plan(graphs, &shape, &plan);
    if (st == DPB_OK && config->handle)
        st = dpb_conv_plan_run(plan, &buffers);
    dpb_conv_graphs_close(graphs);
    return st;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    struct dpb_conv_graphs_config configs[2] = {on_device(), on_device()};
    configs[1].handle = NULL;
    configs[1].device_properties = "{\"deviceVer\": 900}";
    for (int i = 0; i < 2; i++) {
        int refused = 0;
        reset();
        assert_int_equal(live_with(&configs[i]), DPB_OK);
        const int calls = fake.calls;
        assert_true(calls > 100);
        for (int at = 1; at <= calls; at++) {
            reset();
            fake.fail_at = at;
            logged[0] = '\0';
            dpb_status st = live_with(&configs[i]);
            assert_int_equal(fake.live, 0);
            /* A candidate or a fusion less is no error; what is one has been said. */
            assert_true((st < 0) == (logged[0] != '\0'));
            refused += st < 0;
        }
        assert_in_range(refused, 1, calls - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
            cmocka_unit_test_setup_teardown(test_library_missing, setup, teardown),
            cmocka_unit_test_setup_teardown(test_statuses, setup, teardown),
            cmocka_unit_test_setup_teardown(test_first_that_finalises, setup, teardown),
            cmocka_unit_test_setup_teardown(test_numerics, setup, teardown),
            cmocka_unit_test_setup_teardown(test_workspace_limit, setup, teardown),
            cmocka_unit_test_setup_teardown(test_fastest, setup, teardown),
            cmocka_unit_test_setup_teardown(test_fusion, setup, teardown),
            cmocka_unit_test_setup_teardown(test_wrong_uses, setup, teardown),
            cmocka_unit_test_setup_teardown(test_buffers_are_bound_once, setup, teardown),
            cmocka_unit_test_setup_teardown(test_every_call_fails_once, setup, teardown),
    };
    return DPB_RUN_TESTS(tests);
}
