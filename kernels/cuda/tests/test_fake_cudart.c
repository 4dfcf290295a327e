/* The faked runtime itself: what runs late, what is found, what is counted. */
#include "dpb_test.h"
#include "fake_cudart.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 50
#define COUNT 64

#define OK(call) assert_int_equal(call, cudaSuccess)

/* to[i] = from[i] + 1: a kernel. */
struct increment {
    float *to;
    const float *from;
};

static bool run_increment(void *context)
{
    const struct increment *increment = context;

    for (int i = 0; i < COUNT; i++)
        increment->to[i] = increment->from[i] + 1;
    return true;
}

static void launch_increment(float *to, const float *from, cudaStream_t stream)
{
    struct increment *increment = malloc(sizeof(*increment));

    assert_non_null(increment);
    *increment = (struct increment){to, from};
    OK(fake_cuda_enqueue(stream,
                         &(struct fake_cuda_work){"increment", run_increment, free, increment}));
}

struct rig {
    cudaStream_t compute, comm;
    cudaEvent_t event[2];
    float *device[2], *pinned;
};

static void rig_open(struct rig *rig, const struct fake_cuda_config *config)
{
    fake_cuda_begin(config);
    OK(cudaStreamCreateWithFlags(&rig->compute, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&rig->comm, cudaStreamNonBlocking, -5));
    for (int i = 0; i < 2; i++) {
        OK(cudaEventCreate(&rig->event[i]));
        OK(cudaMalloc((void **)&rig->device[i], COUNT * sizeof(float)));
    }
    OK(cudaHostAlloc((void **)&rig->pinned, COUNT * sizeof(float), cudaHostAllocDefault));
}

static void rig_close(struct rig *rig)
{
    char text[256];

    OK(cudaStreamDestroy(rig->compute));
    OK(cudaStreamDestroy(rig->comm));
    for (int i = 0; i < 2; i++) {
        OK(cudaEventDestroy(rig->event[i]));
        OK(cudaFree(rig->device[i]));
    }
    OK(cudaFreeHost(rig->pinned));
    assert_int_equal(fake_cuda_leaks(text, sizeof(text)), 0);
    fake_cuda_end();
}

/* device[1] = device[0] + 1 on compute, device[0] = device[1] + 1 on comm, back on compute, `turns`
 * times; what comes out has 2 * turns more than what went in. */
static float there_and_back(struct rig *rig, int turns)
{
    for (int i = 0; i < COUNT; i++)
        rig->pinned[i] = 1;
    OK(cudaMemcpyAsync(rig->device[0], rig->pinned, COUNT * sizeof(float), cudaMemcpyHostToDevice,
                       rig->compute));
    for (int turn = 0; turn < turns; turn++) {
        launch_increment(rig->device[1], rig->device[0], rig->compute);
        OK(cudaEventRecord(rig->event[0], rig->compute));
        OK(cudaStreamWaitEvent(rig->comm, rig->event[0], 0));
        launch_increment(rig->device[0], rig->device[1], rig->comm);
        OK(cudaEventRecord(rig->event[1], rig->comm));
        OK(cudaStreamWaitEvent(rig->compute, rig->event[1], 0));
    }
    OK(cudaMemcpyAsync(rig->pinned, rig->device[0], COUNT * sizeof(float), cudaMemcpyDeviceToHost,
                       rig->compute));
    OK(cudaStreamSynchronize(rig->compute));
    return rig->pinned[COUNT - 1];
}

static int wrong_seeds(enum fake_cuda_plant plant)
{
    int wrong = 0;

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct rig rig;

        rig_open(&rig, &(struct fake_cuda_config){.seed = seed});
        fake_cuda_set_plant(plant, 0);
        wrong += there_and_back(&rig, 3) != 7;
        rig_close(&rig);
    }
    return wrong;
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(wrong_seeds(FAKE_PLANT_NONE), 0);
}

static void test_missing_waits(void **state)
{
    static const enum fake_cuda_plant plants[] = {FAKE_PLANT_COMPUTE_WAIT, FAKE_PLANT_COMM_WAIT,
                                                  FAKE_PLANT_RECORD, FAKE_PLANT_STREAM_SYNC};

    (void)state;
    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        int wrong = wrong_seeds(plants[i]);

        print_message("%s: wrong in %d of %d seeds\n", fake_cuda_plant_text(plants[i]), wrong,
                      SEEDS);
        assert_true(wrong > SEEDS / 2);
    }
}

static void test_same_seed(void **state)
{
    char first[2] = {0};
    struct rig rig;

    (void)state;
    for (int run = 0; run < 2; run++) {
        rig_open(&rig, &(struct fake_cuda_config){.seed = 3});
        for (int i = 0; i < 8; i++)
            first[run] = (char)(first[run] * 2 + (char)fake_cuda_random(2));
        rig_close(&rig);
    }
    assert_int_equal(first[0], first[1]);
}

/* ---- memory ---- */

/* The exit status of a child that does `body`. */
static int ends_with(void (*body)(void))
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static volatile float seen;

static void touch_device(void)
{
    float *memory;

    fake_cuda_begin(&(struct fake_cuda_config){.seed = 1});
    cudaMalloc((void **)&memory, 4);
    seen = *(volatile float *)memory;
}

static void touch_freed_pinned(void)
{
    float *memory;

    fake_cuda_begin(&(struct fake_cuda_config){.seed = 1});
    cudaHostAlloc((void **)&memory, 4, cudaHostAllocDefault);
    cudaFreeHost(memory);
    seen = *(volatile float *)memory;
}

static void use_freed_device(void)
{
    struct rig rig;

    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    cudaFree(rig.device[0]);
    launch_increment(rig.device[1], rig.device[0], rig.compute);
    cudaStreamSynchronize(rig.compute);
}

static void use_beyond_end(void)
{
    struct rig rig;

    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    launch_increment(rig.device[1] + 1, rig.device[0], rig.compute);
    cudaStreamSynchronize(rig.compute);
}

static void copy_beyond_end(void)
{
    struct rig rig;

    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    cudaMemcpyAsync(rig.device[0] + 1, rig.pinned, COUNT * sizeof(float), cudaMemcpyHostToDevice,
                    rig.compute);
}

static bool run_never(void *context)
{
    (void)context;
    return false;
}

static void hang(void)
{
    struct rig rig;

    rig_open(&rig, &(struct fake_cuda_config){.seed = 1, .hang_s = 1});
    fake_cuda_enqueue(rig.comm, &(struct fake_cuda_work){"never", run_never, NULL, NULL});
    cudaFree(rig.device[0]); /* waits for the device, as in CUDA */
}

static void *query(void *event)
{
    cudaEventQuery(event);
    return NULL;
}

static void *choose_and_query(void *event)
{
    cudaSetDevice(0);
    return query(event);
}

static void use_in_a_thread(void *(*use)(void *))
{
    struct rig rig;
    pthread_t thread;

    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    pthread_create(&thread, NULL, use, rig.event[0]);
    pthread_join(thread, NULL);
}

static void thread_without_device(void)
{
    use_in_a_thread(query);
}

static void thread_with_device(void)
{
    use_in_a_thread(choose_and_query);
}

static void test_faults(void **state)
{
    (void)state;
    assert_int_equal(ends_with(thread_without_device), FAKE_EXIT_MISUSE);
    assert_int_equal(ends_with(thread_with_device), 0);
    assert_int_equal(ends_with(touch_device), FAKE_EXIT_FAULT);
    assert_int_equal(ends_with(touch_freed_pinned), FAKE_EXIT_FAULT);
    assert_int_equal(ends_with(use_freed_device), FAKE_EXIT_FAULT);
    assert_int_equal(ends_with(use_beyond_end), FAKE_EXIT_FAULT);
    assert_int_equal(ends_with(copy_beyond_end), FAKE_EXIT_MISUSE);
    assert_int_equal(ends_with(hang), FAKE_EXIT_HANG);
}

/* Pageable memory is read before a copy returns and written before it returns. */
static void test_pageable_copies(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        float host[COUNT];
        struct rig rig;

        rig_open(&rig, &(struct fake_cuda_config){.seed = seed});
        for (int i = 0; i < COUNT; i++)
            host[i] = 5;
        OK(cudaMemcpyAsync(rig.device[0], host, sizeof(host), cudaMemcpyHostToDevice, rig.compute));
        memset(host, 0, sizeof(host));
        launch_increment(rig.device[1], rig.device[0], rig.compute);
        OK(cudaMemcpyAsync(host, rig.device[1], sizeof(host), cudaMemcpyDeviceToHost, rig.compute));
        assert_true(host[0] == 6);
        rig_close(&rig);
    }
}

/* Pinned memory is read when the stream comes to it, which is at the latest at its wait. */
static void test_pinned_copies(void **state)
{
    int late = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        float host[COUNT];
        struct rig rig;

        rig_open(&rig, &(struct fake_cuda_config){.seed = seed});
        rig.pinned[0] = 5;
        OK(cudaMemcpyAsync(rig.device[0], rig.pinned, sizeof(host), cudaMemcpyDefault,
                           rig.compute));
        rig.pinned[0] = 6;
        OK(cudaMemcpyAsync(host, rig.device[0], sizeof(host), cudaMemcpyDefault, rig.compute));
        late += host[0] == 6;
        rig_close(&rig);
    }
    assert_true(late > SEEDS / 2);
}

static void test_out_of_memory(void **state)
{
    void *memory = NULL;
    size_t available, total;

    (void)state;
    fake_cuda_begin(&(struct fake_cuda_config){.seed = 1, .memory_bytes = 8192});
    assert_int_equal(cudaMalloc(&memory, 8193), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    OK(cudaMalloc(&memory, 8000));
    OK(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, 192);
    assert_int_equal(total, 8192);
    OK(cudaFree(memory));
    fake_cuda_end();
}

/* ---- graphs ---- */

static cudaGraph_t capture(struct rig *rig, bool join)
{
    cudaGraph_t graph = NULL;

    OK(cudaStreamBeginCapture(rig->compute, cudaStreamCaptureModeThreadLocal));
    launch_increment(rig->device[1], rig->device[0], rig->compute);
    OK(cudaEventRecord(rig->event[0], rig->compute));
    OK(cudaStreamWaitEvent(rig->comm, rig->event[0], 0));
    launch_increment(rig->device[0], rig->device[1], rig->comm);
    OK(cudaEventRecord(rig->event[1], rig->comm));
    if (join)
        OK(cudaStreamWaitEvent(rig->compute, rig->event[1], 0));
    assert_int_equal(cudaStreamEndCapture(rig->compute, &graph),
                     join ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    return graph;
}

static void test_graph(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        cudaGraphExecUpdateResultInfo result;
        cudaGraphExec_t exec;
        cudaGraph_t graph;
        struct rig rig;

        rig_open(&rig, &(struct fake_cuda_config){.seed = seed});
        there_and_back(&rig, 0);
        graph = capture(&rig, true);
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph));
        OK(cudaGraphLaunch(exec, rig.compute));
        graph = capture(&rig, true);
        OK(cudaGraphExecUpdate(exec, graph, &result));
        OK(cudaGraphDestroy(graph));
        OK(cudaGraphLaunch(exec, rig.compute));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaMemcpyAsync(rig.pinned, rig.device[0], COUNT * sizeof(float), cudaMemcpyDeviceToHost,
                           rig.compute));
        OK(cudaStreamSynchronize(rig.compute));
        assert_true(rig.pinned[0] == 5);
        rig_close(&rig);
    }
}

static void test_spoilt_captures(void **state)
{
    cudaGraph_t graph;
    void *memory;
    struct rig rig;

    (void)state;
    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    assert_null(capture(&rig, false));
    OK(cudaStreamBeginCapture(rig.compute, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(rig.compute, &graph), cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(rig.compute, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamSynchronize(rig.compute), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(rig.compute, &graph), cudaErrorStreamCaptureInvalidated);
    there_and_back(&rig, 1);
    rig_close(&rig);
}

/* ---- failures and counts ---- */

static void test_failures(void **state)
{
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    char text[256];

    (void)state;
    fake_cuda_begin(&(struct fake_cuda_config){.seed = 1, .fail_call = 2});
    OK(cudaStreamCreate(&stream));
    assert_int_equal(cudaEventCreate(&event), cudaErrorUnknown);
    assert_string_equal(fake_cuda_failed_call(), "cudaEventCreate");
    OK(cudaEventCreate(&event));
    assert_int_equal(fake_cuda_leaks(text, sizeof(text)), 2);
    assert_string_equal(text, "1 streams, 1 events");
    assert_int_equal(fake_cuda_calls(), 3);
    OK(cudaEventDestroy(event));
    assert_int_equal(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    OK(cudaStreamDestroy(stream));
    fake_cuda_end();
}

/* Work on the legacy stream comes after what is in blocking streams, and before what follows. */
static void test_legacy_stream(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        cudaStream_t blocking;
        float host[COUNT];
        struct rig rig;

        rig_open(&rig, &(struct fake_cuda_config){.seed = seed});
        OK(cudaStreamCreate(&blocking));
        OK(cudaMemset(rig.device[0], 0, sizeof(host)));
        launch_increment(rig.device[1], rig.device[0], blocking);
        launch_increment(rig.device[0], rig.device[1], NULL);
        launch_increment(rig.device[1], rig.device[0], blocking);
        OK(cudaMemcpy(host, rig.device[1], sizeof(host), cudaMemcpyDeviceToHost));
        assert_true(host[0] == 3);
        OK(cudaStreamDestroy(blocking));
        rig_close(&rig);
    }
}

static void test_event_times(void **state)
{
    float ms = -1;
    struct rig rig;

    (void)state;
    rig_open(&rig, &(struct fake_cuda_config){.seed = 1});
    assert_int_equal(cudaEventElapsedTime(&ms, rig.event[0], rig.event[1]),
                     cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(rig.event[0], rig.compute));
    launch_increment(rig.device[1], rig.device[0], rig.compute);
    OK(cudaEventRecord(rig.event[1], rig.compute));
    OK(cudaEventSynchronize(rig.event[1]));
    OK(cudaEventQuery(rig.event[1]));
    OK(cudaEventElapsedTime(&ms, rig.event[0], rig.event[1]));
    assert_true(ms >= 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_order),           cmocka_unit_test(test_missing_waits),
            cmocka_unit_test(test_same_seed),       cmocka_unit_test(test_faults),
            cmocka_unit_test(test_pageable_copies), cmocka_unit_test(test_pinned_copies),
            cmocka_unit_test(test_out_of_memory),   cmocka_unit_test(test_graph),
            cmocka_unit_test(test_spoilt_captures), cmocka_unit_test(test_failures),
            cmocka_unit_test(test_legacy_stream),   cmocka_unit_test(test_event_times),
    };
    return DPB_RUN_TESTS(tests);
}
