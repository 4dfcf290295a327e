/* Nobody hangs, and nothing leaks: GPUs that two ranks have, ranks that do not come, errors in the
 * background, an abort that does not end, and every call failing once. */
#include "dpb_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_private.h"
#include "nccl_rank.h"

/* Long enough for all to come to a call on a busy machine, but for those who are to be missed. */
#define SHORT_NS ((int64_t)1000 * 1000000)

static const char *gpu_name; /* NULL: as the fake has it */

cudaError_t __real_cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);

cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = __real_cudaGetDeviceProperties(properties, device);
    if (gpu_name)
        snprintf(properties->name, sizeof(properties->name), "%s", gpu_name);
    return error;
}

static void open_rank(struct ranks_self *self, const struct nccl_plan *plan, struct nccl_rank *rank)
{
    nccl_rank_begin(self, plan, rank);
    RANK_EQUAL(rank->ops->open(&rank->config, &rank->comm), DPB_OK);
}

/* open() fails on this rank with `st`, and leaks nothing. */
static void open_fails(struct ranks_self *self, struct nccl_rank *rank, dpb_status st,
                       const char *text)
{
    RANK_EQUAL(rank->ops->open(&rank->config, &rank->comm), st);
    RANK_CHECK(rank->comm == NULL);
    RANK_CHECK(ranks_logged(self, text));
    nccl_rank_end(rank);
}

static int run_ranks(int ranks, int64_t timeout_ns, ranks_body body, struct nccl_plan *plan)
{
    const struct ranks_plan how = {
            .ranks = ranks, .no_open = true, .tcp = plan->tcp, .timeout_ns = timeout_ns};
    plan->world = fake_nccl_world_new();
    if (plan->seed == 0)
        plan->seed = 1;
    int failed = ranks_run(&how, body, plan);
    fake_nccl_world_free(plan->world);
    return failed;
}

/* ---- open ---- */

static void same_gpu(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    nccl_rank_begin(self, argument, &rank);
    open_fails(self, &rank, DPB_ERR_USAGE,
               "ranks 1 and 2 have the same GPU: "
               "GPU-64706265-6e63-6820-6661-6b6520475010 (0000:09:00");
}

static void mig(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    if (self->config.rank == 1)
        gpu_name = "NVIDIA H100 MIG 1g.10gb";
    nccl_rank_begin(self, argument, &rank);
    if (self->config.size > 1) {
        open_fails(self, &rank, DPB_ERR_UNSUPPORTED,
                   "rank 1 has a MIG instance (NVIDIA H100 MIG 1g.10gb)");
        return;
    }
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_OK);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void other_options(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct nccl_rank rank;
    plan.options.max_ctas = self->config.rank == 2 ? 8 : 16;
    nccl_rank_begin(self, &plan, &rank);
    open_fails(self, &rank, DPB_ERR_MISMATCH, "have other --nccl options");
}

static int version;

static ncclResult_t tell_version(int *told)
{
    *told = version;
    return ncclSuccess;
}

static void other_version(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct dpb_nccl_table table = fake_nccl;
    struct nccl_rank rank;
    table.ncclGetVersion = tell_version;
    plan.table = &table;
    version = self->config.rank == 0 ? NCCL_VERSION_CODE : 22703;
    nccl_rank_begin(self, &plan, &rank);
    open_fails(self, &rank, DPB_ERR_MISMATCH, "rank");
    RANK_CHECK(ranks_logged(self, "22703"));
}

static void no_device(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    nccl_rank_begin(self, argument, &rank);
    rank.config.device = NULL;
    open_fails(self, &rank, DPB_ERR_USAGE, "it needs device \"cuda\"");
}

static void test_open(void **state)
{
    (void)state;
    struct nccl_plan plan = {.same_gpu = 1};
    assert_int_equal(run_ranks(3, 0, same_gpu, &plan), 0);
    plan = (struct nccl_plan){0};
    assert_int_equal(run_ranks(3, 0, mig, &plan), 0);
    assert_int_equal(run_ranks(1, 0, mig, &plan), 0);
    assert_int_equal(run_ranks(3, 0, other_options, &plan), 0);
    assert_int_equal(run_ranks(2, 0, other_version, &plan), 0);
    assert_int_equal(run_ranks(1, 0, no_device, &plan), 0);
}

/* One GPU of one machine; of another machine it is another, whatever it is called. */
static void test_same_gpu(void **state)
{
    (void)state;
    struct dpb_nccl_identity a = {.uuid = "a", .machine = "here"}, b = a;
    b.bus = 9; /* as another container numbers it */
    assert_true(dpb_nccl_same_gpu(&a, &b));
    b.uuid[0] = 'b';
    assert_false(dpb_nccl_same_gpu(&a, &b));
    b = a;
    b.machine[15] = 1;
    assert_false(dpb_nccl_same_gpu(&a, &b));
    b = a;
    memset(a.machine, 0, sizeof(a.machine)); /* nobody knows where: better refused */
    memset(b.machine, 0, sizeof(b.machine));
    assert_true(dpb_nccl_same_gpu(&a, &b));
}

static void test_version(void **state)
{
    (void)state;
    struct dpb_nccl_table table = fake_nccl;
    char why[512] = "";
    table.ncclGetVersion = tell_version;
    dpb_nccl_table_install(&table);
    fake_cuda_begin(&(struct fake_cuda_config){.seed = 1});
    version = 22605;
    assert_int_equal(dpb_comm_nccl_ops.probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "not available here, because NCCL 2.26.5 is installed, 2.27"));
    version = 30000;
    assert_int_equal(dpb_comm_nccl_ops.probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    version = 22700;
    assert_int_equal(dpb_comm_nccl_ops.probe(why, sizeof(why)), DPB_OK);
    fake_cuda_end();
    dpb_nccl_table_install(NULL);
}

static ncclResult_t always_in_progress(ncclComm_t comm, ncclResult_t *state)
{
    (void)comm;
    *state = ncclInProgress;
    return ncclSuccess;
}

static void init_never_ends(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct dpb_nccl_table table = fake_nccl;
    struct nccl_rank rank;
    table.ncclCommGetAsyncError = always_in_progress;
    plan.table = &table;
    nccl_rank_begin(self, &plan, &rank);
    open_fails(self, &rank, DPB_ERR_TIMEOUT,
               "open timed out: ncclCommInitRankConfig was not through after 1s");
}

static ncclResult_t init_fails(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                               ncclConfig_t *config)
{
    (void)comm, (void)ranks, (void)id, (void)rank, (void)config;
    return ncclInvalidUsage;
}

static void init_fails_on_1(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct dpb_nccl_table table = fake_nccl;
    struct nccl_rank rank;
    if (self->config.rank == 1)
        table.ncclCommInitRankConfig = init_fails;
    plan.table = &table;
    nccl_rank_begin(self, &plan, &rank);
    open_fails(self, &rank, DPB_ERR_VENDOR, "rank 1: open: ncclCommInitRankConfig: invalid usage");
}

static void test_init(void **state)
{
    (void)state;
    struct nccl_plan plan = {0};
    assert_int_equal(run_ranks(2, SHORT_NS, init_never_ends, &plan), 0);
    assert_int_equal(run_ranks(3, 0, init_fails_on_1, &plan), 0);
}

/* ---- registration ---- */

static ncclResult_t register_fails(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm, (void)memory, (void)bytes, (void)handle;
    return ncclInvalidUsage;
}

static ncclResult_t mem_alloc_fails(void **memory, size_t bytes)
{
    (void)memory, (void)bytes;
    return ncclSystemError;
}

static int64_t described(const struct nccl_rank *rank, const char *key)
{
    dpb_json *json = rank->ops->describe(rank->comm);
    RANK_CHECK(dpb_json_ok(json));
    int64_t value = dpb_json_as_int(dpb_json_get(json, key), -1);
    dpb_json_free(json);
    return value;
}

static void register_on_0_only(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct dpb_nccl_table table = fake_nccl;
    struct nccl_rank rank;
    void *buffer;
    if (self->config.rank == 1) {
        table.ncclCommRegister = register_fails;
        table.ncclMemAlloc = mem_alloc_fails;
    }
    plan.table = &table;
    open_rank(self, &plan, &rank);
    const bool must = plan.options.registration == DPB_COMM_NCCL_REGISTER_ON;
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, 1000, &buffer), must ? DPB_ERR_VENDOR : DPB_OK);
    if (!must) {
        RANK_EQUAL(described(&rank, "registered_bytes"), 0);
        RANK_EQUAL(described(&rank, "buffer_bytes"), 1000);
        if (self->config.rank == 0)
            RANK_CHECK(ranks_logged(self, "it goes unregistered"));
    }
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void register_everywhere(struct ranks_self *self, void *argument)
{
    const struct nccl_plan *plan = argument;
    struct nccl_rank rank;
    void *buffer;
    open_rank(self, plan, &rank);
    const bool off = plan->options.registration == DPB_COMM_NCCL_REGISTER_OFF;
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, 1000, &buffer), DPB_OK);
    RANK_EQUAL(described(&rank, "registered_bytes"), off ? 0 : 1000);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void alloc_other_size(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    void *buffer;
    open_rank(self, argument, &rank);
    RANK_EQUAL(rank.ops->buffer_alloc(rank.comm, self->config.rank == 0 ? 64 : 128, &buffer),
               DPB_ERR_MISMATCH);
    RANK_CHECK(ranks_logged(self, "buffer_alloc: ranks disagree"));
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_buffers(void **state)
{
    (void)state;
    struct nccl_plan plan = {0};
    assert_int_equal(run_ranks(2, 0, register_on_0_only, &plan), 0);
    plan.options.registration = DPB_COMM_NCCL_REGISTER_ON;
    assert_int_equal(run_ranks(2, 0, register_on_0_only, &plan), 0);
    for (int how = DPB_COMM_NCCL_REGISTER_AUTO; how <= DPB_COMM_NCCL_REGISTER_OFF; how++) {
        plan.options.registration = how;
        assert_int_equal(run_ranks(2, 0, register_everywhere, &plan), 0);
    }
    assert_int_equal(run_ranks(2, 0, alloc_other_size, &plan), 0);
}

/* ---- hangs ---- */

static struct dpb_coll sum_of(void *buffer, int tag)
{
    return (struct dpb_coll){.kind = DPB_COLL_ALL_REDUCE,
                             .dtype = DPB_F32,
                             .buffer = buffer,
                             .count = 16,
                             .scale = 1,
                             .tag = tag};
}

static void *some_buffer(const struct nccl_rank *rank)
{
    void *buffer;
    RANK_EQUAL(rank->ops->buffer_alloc(rank->comm, 4096, &buffer), DPB_OK);
    return buffer;
}

/* After a failure every further call ends with the same status, at once. */
static void check_stays_failed(const struct nccl_rank *rank, void *buffer, dpb_status st)
{
    const struct dpb_coll coll = sum_of(buffer, 9);
    dpb_request *request;
    RANK_EQUAL(rank->ops->start(rank->comm, &coll, NULL, &request), st);
    RANK_EQUAL(rank->ops->barrier(rank->comm), st);
    RANK_EQUAL(rank->ops->buffer_free(rank->comm, buffer), st);
}

/* Rank 1 starts one all-reduce, the others two. */
static void rank_1_stays_away(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    dpb_request *request;
    open_rank(self, argument, &rank);
    void *buffer = some_buffer(&rank);
    struct dpb_coll coll = sum_of(buffer, 4);
    RANK_EQUAL(rank.ops->start(rank.comm, &coll, NULL, &request), DPB_OK);
    RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_OK);
    coll.tag = 5;
    if (self->config.rank == 1) {
        dpb_status st;
        coll.count = -1;
        while ((st = rank.ops->start(rank.comm, &coll, NULL, &request)) == DPB_ERR_USAGE)
            usleep(5000);
        RANK_EQUAL(st, DPB_ERR_TIMEOUT);
    } else {
        RANK_EQUAL(rank.ops->start(rank.comm, &coll, NULL, &request), DPB_OK);
        RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_ERR_TIMEOUT);
    }
    RANK_CHECK(ranks_logged(self, "all-reduce #2 (bucket 5) of 64B timed out after 1s: rank 1"));
    RANK_CHECK(ranks_logged(
            self, self->plan->tcp ? ") did not start it (last seen at collective #1)"
                                  : "rank 1 did not start it (last seen at collective #1)"));
    if (self->config.rank != 1 && !strstr(self->log, "failed: rank")) { /* who noticed itself */
        RANK_CHECK(ranks_logged(self, "its last collectives, at most 64:"));
        RANK_CHECK(ranks_logged(self, "#1 all-reduce, bucket 4, 64B: enqueued"));
        RANK_CHECK(ranks_logged(self, "#2 all-reduce, bucket 5, 64B: enqueued"));
        RANK_CHECK(ranks_logged(self, "not complete"));
        RANK_CHECK(ranks_logged(self, "RAS service at 127.0.0.1:"));
        RANK_CHECK(ranks_logged(self, "  Communicators... 1 missing"));
        RANK_CHECK(ranks_logged(self, "look at process"));
    }
    check_stays_failed(&rank, buffer, DPB_ERR_TIMEOUT);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

/* A RAS service for all that ask, in a process of its own; its address goes to the environment. */
static pid_t ras_start(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    char address[64];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, sizeof(address), "127.0.0.1:%d", ntohs(at.sin_port));
    setenv("NCCL_RAS_ADDR", address, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            char question[64];
            int fd = accept(listener, NULL, NULL);
            if (recv(fd, question, sizeof(question), 0) > 0)
                send(fd, "Communicators... 1 missing\n", 27, MSG_NOSIGNAL);
            shutdown(fd, SHUT_RDWR);
            close(fd);
        }
    }
    close(listener);
    return pid;
}

static void ras_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    setenv("NCCL_RAS_ADDR", "127.0.0.1:1", 1);
}

/* Rank 1's GPU does not come to the second one, though it was started. */
static void gpu_1_hangs(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct nccl_rank rank;
    dpb_request *request;
    plan.nccl.hang_collective = self->config.rank == 1 ? 2 : 0;
    open_rank(self, &plan, &rank);
    void *buffer = some_buffer(&rank);
    for (int i = 0; i < 2; i++) {
        const struct dpb_coll coll = sum_of(buffer, i);
        RANK_EQUAL(rank.ops->start(rank.comm, &coll, nccl_rank_stream(&rank), &request), DPB_OK);
        /* A stream may wait; the failure ends it. */
        RANK_EQUAL(rank.ops->wait(rank.comm, request, nccl_rank_stream(&rank), NULL), DPB_OK);
    }
    RANK_EQUAL(cudaStreamSynchronize(rank.stream), cudaSuccess);
    while (rank.ops->barrier(rank.comm) == DPB_OK)
        ;
    RANK_EQUAL(rank.ops->barrier(rank.comm), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "timed out after 1s: all ranks have started it"));
    if (!plan.nccl.abort_hangs)
        check_stays_failed(&rank, buffer, DPB_ERR_TIMEOUT);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void abort_hangs(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    dpb_request *request;
    const struct nccl_plan *plan = argument;
    open_rank(self, plan, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    RANK_EQUAL(rank.ops->start(rank.comm, &coll, NULL, &request), DPB_OK);
    RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_ERR_TIMEOUT);
    check_stays_failed(&rank, buffer, DPB_ERR_TIMEOUT);
    rank.ops->close(rank.comm); /* comes back */
    RANK_CHECK(ranks_logged(self, "could not be aborted in 1s: it is left behind"));
    RANK_CHECK(fake_cuda_leaks(NULL, 0) > 0);
    /* The work on the fake's streams never ends. */
    _exit(0);
}

/* What is computed before a collective does not end: no peer's fault. */
static bool is_over(void *context)
{
    return atomic_load((_Atomic bool *)context);
}

static void computes_too_long(struct ranks_self *self, void *argument)
{
    static _Atomic bool over;
    struct nccl_rank rank;
    dpb_request *request;
    open_rank(self, argument, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    RANK_EQUAL(fake_cuda_enqueue(rank.stream, &(struct fake_cuda_work){.name = "computing",
                                                                       .run = is_over,
                                                                       .context = &over}),
               cudaSuccess);
    RANK_EQUAL(rank.ops->start(rank.comm, &coll, nccl_rank_stream(&rank), &request), DPB_OK);
    RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_ERR_TIMEOUT);
    RANK_CHECK(ranks_logged(self, "what this rank's GPU has to do before it is not done"));
    atomic_store(&over, true);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

/* A call of NCCL that does not return before the communicator is aborted. */
static _Atomic bool aborted;

static ncclResult_t hangs_in_nccl(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)comm, (void)stream;
    while (!atomic_load(&aborted))
        usleep(1000);
    return ncclInternalError;
}

static ncclResult_t ends_what_hangs(ncclComm_t comm)
{
    ncclResult_t result = fake_nccl.ncclCommAbort(comm);
    atomic_store(&aborted, true);
    return result;
}

static void thread_hangs_in_nccl(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct dpb_nccl_table table = fake_nccl;
    struct nccl_rank rank;
    dpb_request *request;
    table.ncclCommAbort = ends_what_hangs;
    if (self->config.rank == 1)
        table.ncclAllReduce = hangs_in_nccl;
    plan.table = &table;
    open_rank(self, &plan, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    if (self->config.rank == 1) {
        RANK_EQUAL(rank.ops->start(rank.comm, &coll, NULL, &request), DPB_ERR_TIMEOUT);
    } else {
        RANK_EQUAL(rank.ops->start(rank.comm, &coll, NULL, &request), DPB_OK);
        RANK_EQUAL(rank.ops->wait(rank.comm, request, NULL, NULL), DPB_ERR_TIMEOUT);
    }
    RANK_CHECK(ranks_logged(self, "rank 1 did not start it (never seen)"));
    rank.ops->close(rank.comm);
    if (self->config.rank == 0) {
        nccl_rank_end(&rank);
        return;
    }
    RANK_CHECK(ranks_logged(self, "because a thread hangs in NCCL: it is left behind"));
    _exit(0); /* with what is left behind */
}

static void test_hangs(void **state)
{
    (void)state;
    struct nccl_plan plan = {0};
    pid_t ras = ras_start();
    assert_int_equal(run_ranks(3, SHORT_NS, rank_1_stays_away, &plan), 0);
    plan.tcp = true;
    assert_int_equal(run_ranks(3, SHORT_NS, rank_1_stays_away, &plan), 0);
    plan.tcp = false;
    ras_stop(ras);
    assert_int_equal(run_ranks(2, SHORT_NS, gpu_1_hangs, &plan), 0);
    plan = (struct nccl_plan){.nccl = {.abort_hangs = true, .hang_collective = 1}};
    assert_int_equal(run_ranks(2, SHORT_NS, abort_hangs, &plan), 0);
    plan = (struct nccl_plan){0};
    assert_int_equal(run_ranks(1, SHORT_NS, computes_too_long, &plan), 0);
    assert_int_equal(run_ranks(2, SHORT_NS, thread_hangs_in_nccl, &plan), 0);
}

/* ---- errors, and giving up ---- */

static void error_on_1(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct nccl_rank rank;
    dpb_request *request;
    plan.nccl.break_collective = self->config.rank == 1 ? 3 : 0;
    open_rank(self, &plan, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    dpb_status st = DPB_OK;
    while (st == DPB_OK) {
        st = rank.ops->start(rank.comm, &coll, NULL, &request);
        if (st == DPB_OK)
            st = rank.ops->wait(rank.comm, request, NULL, NULL);
    }
    RANK_EQUAL(st, DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "remote process exited or there was a network error: a rank is "
                                  "gone"));
    check_stays_failed(&rank, buffer, DPB_ERR_RANK_FAILED);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void *give_up(void *argument)
{
    const struct nccl_rank *rank = argument;
    usleep(20000);
    rank->ops->abort(rank->comm, "its data ran out");
    return NULL;
}

/* In another thread, while this rank waits; the others wait on the GPU. */
static void rank_2_gives_up(struct ranks_self *self, void *argument)
{
    struct nccl_plan plan = *(const struct nccl_plan *)argument;
    struct nccl_rank rank;
    dpb_request *request;
    pthread_t thread;
    plan.nccl.hang_collective = 1;
    open_rank(self, &plan, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    dpb_status st = rank.ops->start(rank.comm, &coll, NULL, &request);
    if (self->config.rank == 2) {
        RANK_EQUAL(st, DPB_OK);
        RANK_EQUAL(pthread_create(&thread, NULL, give_up, &rank), 0);
    }
    if (st == DPB_OK) /* else this rank was so late that it is told already */
        st = rank.ops->wait(rank.comm, request, NULL, NULL);
    RANK_EQUAL(st, DPB_ERR_RANK_FAILED);
    if (self->config.rank == 2)
        pthread_join(thread, NULL);
    RANK_CHECK(ranks_logged(self, "rank 2 gave up: its data ran out"));
    check_stays_failed(&rank, buffer, DPB_ERR_RANK_FAILED);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

/* The server sees it at once, and the others wait on the GPU no longer. */
static void rank_1_dies(struct ranks_self *self, void *argument)
{
    struct nccl_rank rank;
    dpb_request *request;
    open_rank(self, argument, &rank);
    void *buffer = some_buffer(&rank);
    const struct dpb_coll coll = sum_of(buffer, 0);
    if (self->config.rank == 1)
        _exit(0);
    dpb_status st = rank.ops->start(rank.comm, &coll, NULL, &request);
    if (st == DPB_OK) /* else it is known already */
        st = rank.ops->wait(rank.comm, request, NULL, NULL);
    RANK_EQUAL(st, DPB_ERR_RANK_FAILED);
    RANK_CHECK(ranks_logged(self, "failed: rank 1 on "));
    RANK_CHECK(ranks_logged(self, "is gone: its connection broke"));
    check_stays_failed(&rank, buffer, DPB_ERR_RANK_FAILED);
    rank.ops->close(rank.comm);
    nccl_rank_end(&rank);
}

static void test_errors(void **state)
{
    (void)state;
    struct nccl_plan plan = {.nccl = {.looks_max = 2}};
    assert_int_equal(run_ranks(3, 0, error_on_1, &plan), 0);
    assert_int_equal(run_ranks(3, 0, rank_2_gives_up, &plan), 0);
    plan = (struct nccl_plan){.tcp = true};
    assert_int_equal(run_ranks(3, 0, rank_1_dies, &plan), 0);
}

/* ---- every call fails once ---- */

struct failing {
    struct nccl_plan plan;
    int64_t call; /* of rank 1; 0: none */
    struct {
        int64_t calls;  /* that rank 1 made */
        int64_t failed; /* its runs in which something returned an error */
    } * seen;           /* shared */
};

static dpb_status use(const struct nccl_rank *rank, void *buffer)
{
    static const enum dpb_coll_kind kinds[] = {DPB_COLL_ALL_REDUCE, DPB_COLL_REDUCE_SCATTER,
                                               DPB_COLL_ALL_TO_ALL};
    struct dpb_coll_times times;
    dpb_request *request;
    for (int i = 0; i < 3; i++) {
        struct dpb_coll coll = sum_of(buffer, i);
        coll.kind = kinds[i];
        coll.scale = coll.kind == DPB_COLL_ALL_REDUCE ? 0.5f : 1;
        coll.count = coll.kind == DPB_COLL_REDUCE_SCATTER ? 7 : 8;
        DPB_TRY(rank->ops->start(rank->comm, &coll, nccl_rank_stream(rank), &request));
        DPB_TRY(rank->ops->wait(rank->comm, request, i == 1 ? nccl_rank_stream(rank) : NULL,
                                &times));
    }
    return rank->ops->barrier(rank->comm);
}

static void fail_once(struct ranks_self *self, void *argument)
{
    const struct failing *failing = argument;
    struct nccl_rank rank;
    void *buffer = NULL;
    nccl_rank_begin(self, &failing->plan, &rank);
    if (self->config.rank == 1) { /* its own stream is not what is tested */
        RANK_EQUAL(cudaStreamDestroy(rank.stream), cudaSuccess);
        fake_cuda_begin(
                &(struct fake_cuda_config){.seed = failing->plan.seed,
                                           .rank = 1,
                                           .fail_call = failing->call > 0 ? failing->call + 1 : 0});
        RANK_EQUAL(cudaStreamCreateWithPriority(&rank.stream, cudaStreamNonBlocking, 0),
                   cudaSuccess);
    }
    dpb_status st = rank.ops->open(&rank.config, &rank.comm);
    if (st == DPB_OK) {
        st = rank.ops->buffer_alloc(rank.comm, 256, &buffer);
        if (st == DPB_OK)
            st = use(&rank, buffer);
        if (st == DPB_OK)
            st = rank.ops->buffer_free(rank.comm, buffer);
        rank.ops->close(rank.comm);
    }
    if (self->config.rank == 1) {
        failing->seen->calls = fake_cuda_calls();
        failing->seen->failed += st != DPB_OK;
        if (st != DPB_OK)
            RANK_CHECK(ranks_logged(self, "error:"));
    }
    nccl_rank_end(&rank);
}

/* The next call to fail: of the 2048 events, made and destroyed in two loops, only some. */
static int64_t next_call(int64_t call, int64_t last)
{
    const bool makes_events = call > 40 && call < 2000;
    const bool destroys_events = call > last - 2040 && call < last - 10;
    return call + (makes_events || destroys_events ? 197 : 1);
}

static void test_every_call(void **state)
{
    (void)state;
    struct failing failing = {.plan = {.seed = 1}};
    const struct ranks_plan how = {.ranks = 2, .no_open = true};
    failing.seen = ranks_shared(sizeof(*failing.seen));
    int64_t last = 1;
    for (int64_t call = 0; call <= last; call = next_call(call, last)) {
        failing.call = call;
        failing.plan.world = fake_nccl_world_new();
        if (ranks_run(&how, fail_once, &failing) != 0)
            fail_msg("call %lld of %lld", (long long)call, (long long)last);
        fake_nccl_world_free(failing.plan.world);
        if (call == 0) {
            assert_int_equal(failing.seen->failed, 0);
            /* Without those of this test's own stream. */
            last = failing.seen->calls - 1;
        }
    }
    assert_true(failing.seen->failed > 40);
}

int main(void)
{
    setenv("NCCL_RAS_ADDR", "127.0.0.1:1", 1);
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_open),    cmocka_unit_test(test_same_gpu),
            cmocka_unit_test(test_version), cmocka_unit_test(test_init),
            cmocka_unit_test(test_buffers), cmocka_unit_test(test_hangs),
            cmocka_unit_test(test_errors),  cmocka_unit_test(test_every_call),
    };
    return DPB_RUN_TESTS(tests);
}
