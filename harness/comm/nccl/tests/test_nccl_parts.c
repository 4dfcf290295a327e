/* What needs no stream: options and environment, the ring of last collectives, the RAS client, the
 * profiler plug-in. */
#include "dpb_test.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "nccl_environment.h"
#include "nccl_profile.h"
#include "nccl_ras.h"
#include "nccl_ring.h"

static const char *plugin_path;
static char logged[8192];

static void keep_log(void *context, enum dpb_log_level level, const char *line)
{
    (void)context, (void)level;
    size_t length = strlen(logged);
    snprintf(logged + length, sizeof(logged) - length, "%s\n", line);
}

static int begin(void **state)
{
    (void)state;
    static const char *const variables[] = {
            "NCCL_ALGO",     "NCCL_PROTO",           "NCCL_MIN_CTAS",   "NCCL_MAX_CTAS",
            "NCCL_COMM_ID",  "CUDA_LAUNCH_BLOCKING", "NCCL_CTA_POLICY", "NCCL_PROFILER_PLUGIN",
            "NCCL_RAS_ADDR", "DPBENCH_NCCL_PROFILER"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    logged[0] = '\0';
    dpb_log_set_sink(keep_log, NULL);
    return 0;
}

static void assert_logged(const char *text)
{
    if (!strstr(logged, text))
        fail_msg("\"%s\" is not in the log:\n%s", text, logged);
}

/* ---- options and environment ---- */

static void test_options(void **state)
{
    (void)state;
    assert_int_equal(dpb_comm_ops_check(&dpb_comm_nccl_ops), DPB_OK);
    assert_int_equal(dpb_comm_nccl_ops.flags, DPB_COMM_DEVICE_MEMORY | DPB_COMM_SEGMENT);
}

static void test_environment_set(void **state)
{
    (void)state;
    struct dpb_comm_nccl_options options = {.min_ctas = DPB_AUTO, .max_ctas = DPB_AUTO};
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_OK);
    assert_null(getenv("NCCL_ALGO"));
    assert_null(getenv("NCCL_PROTO"));
    options.algo = DPB_COMM_NCCL_ALGO_TREE;
    options.proto = DPB_COMM_NCCL_PROTO_LL;
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_OK);
    assert_string_equal(getenv("NCCL_ALGO"), "allreduce:Tree");
    assert_string_equal(getenv("NCCL_PROTO"), "LL");
    /* The same again is no contradiction. */
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_OK);
    options.algo = DPB_COMM_NCCL_ALGO_RING;
    assert_int_equal(dpb_nccl_environment_apply(&options, 3, 4), DPB_ERR_USAGE);
    assert_logged("rank 3: cannot open comm \"nccl\": --nccl-algo asks for \"Ring\", but the "
                  "environment says NCCL_ALGO=\"allreduce:Tree\"");
    assert_logged("hint: unset NCCL_ALGO, or leave --nccl-algo out");
}

static void test_environment_refused(void **state)
{
    (void)state;
    static const struct {
        const char *proto;
        dpb_status st;
    } protos[] = {
            {"LL128", DPB_ERR_USAGE},
            {"Simple,ll128", DPB_ERR_USAGE},
            {"allreduce:LL;broadcast:LL128", DPB_ERR_USAGE},
            {"^LL;allreduce:LL128", DPB_ERR_USAGE},
            {"^LL128", DPB_OK},
            {"^LL,LL128", DPB_OK},
            {"allreduce:^LL128", DPB_OK},
            {"LL,Simple", DPB_OK},
            {"", DPB_OK},
    };
    struct dpb_comm_nccl_options options = {0};
    for (size_t i = 0; i < sizeof(protos) / sizeof(protos[0]); i++) {
        setenv("NCCL_PROTO", protos[i].proto, 1);
        assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), protos[i].st);
    }
    assert_logged("NCCL_PROTO=\"LL128\" forces LL128");
    assert_logged("damages data silently");
    unsetenv("NCCL_PROTO");

    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 1), DPB_OK);
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_ERR_USAGE);
    assert_logged("unset CUDA_LAUNCH_BLOCKING");
    unsetenv("CUDA_LAUNCH_BLOCKING");

    options = (struct dpb_comm_nccl_options){.min_ctas = 8, .max_ctas = 4};
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_ERR_USAGE);
    assert_logged("--nccl-min-ctas 8 is more than --nccl-max-ctas 4");
    options.max_ctas = 16;
    setenv("NCCL_MAX_CTAS", "32", 1);
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_ERR_USAGE);
    assert_logged("--nccl-max-ctas asks for \"16\"");
    setenv("NCCL_MAX_CTAS", "16", 1);
    assert_int_equal(dpb_nccl_environment_apply(&options, 0, 2), DPB_OK);
}

static void test_environment_recorded(void **state)
{
    (void)state;
    dpb_json *before = dpb_nccl_environment_json();
    setenv("NCCL_ALGO", "Ring", 1);
    setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
    setenv("NCCL_IB_HCA", "mlx5_0", 1);
    setenv("NCCL_COMM_ID", "secret-host:1", 1);
    dpb_json *json = dpb_nccl_environment_json();
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "NCCL_ALGO"), ""), "Ring");
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "NCCL_SOCKET_IFNAME"), ""), "ib0");
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "NCCL_IB_HCA"), ""), "mlx5_0");
    assert_null(dpb_json_get(json, "NCCL_COMM_ID"));
    assert_null(dpb_json_get(json, "NCCL_PROTO"));
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "others"), -1),
                     dpb_json_as_int(dpb_json_get(before, "others"), -1) + 1);
    dpb_json_free(json);
    dpb_json_free(before);
}

/* ---- the ring ---- */

static void push(struct dpb_nccl_ring *ring, enum dpb_coll_kind kind, int64_t count, int tag,
                 int64_t now_ns, bool captured)
{
    const struct dpb_coll coll = {.kind = kind, .dtype = DPB_F32, .count = count, .tag = tag};
    dpb_nccl_ring_push(ring, &coll, now_ns, captured);
}

static void test_ring_text(void **state)
{
    (void)state;
    const int64_t ms = 1000000;
    struct dpb_nccl_ring ring = {0};
    struct dpb_str text = {0};
    dpb_nccl_ring_text(&ring, 0, &text);
    assert_null(text.text);
    push(&ring, DPB_COLL_ALL_REDUCE, 262144, 3, 1000 * ms, false);
    push(&ring, DPB_COLL_REDUCE, 4, -1, 1001 * ms, true);
    push(&ring, DPB_COLL_BROADCAST, 1, 0, 1002 * ms, false);
    dpb_nccl_ring_done(&ring, 2, 1004 * ms);
    dpb_nccl_ring_done(&ring, 2, 1009 * ms); /* what was seen stays as it was */
    dpb_nccl_ring_text(&ring, 2202 * ms, &text);
    assert_string_equal(text.text,
                        "#1 all-reduce, bucket 3, 1MiB: enqueued 1.2 s ago, complete after at most "
                        "4.0 ms\n"
                        "#2 reduce, 16B: enqueued 1.2 s ago, captured into a graph\n"
                        "#3 broadcast, bucket 0, 4B: enqueued 1.2 s ago, not complete\n");
    dpb_str_release(&text);
}

static void test_ring_wraps(void **state)
{
    (void)state;
    struct dpb_nccl_ring ring = {0};
    struct dpb_str text = {0};
    for (int i = 1; i <= 3 * DPB_NCCL_RING + 5; i++)
        push(&ring, DPB_COLL_ALL_REDUCE, i, i, i, false);
    const uint64_t newest = 3 * DPB_NCCL_RING + 5;
    dpb_nccl_ring_text(&ring, (int64_t)newest, &text);
    int lines = 0;
    for (const char *at = text.text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, DPB_NCCL_RING);
    assert_int_equal(strncmp(text.text, "#134 ", 5), 0);
    assert_non_null(strstr(text.text, "\n#197 all-reduce, bucket 197, 788B: "));
    dpb_str_release(&text);
}

/* ---- RAS ---- */

enum manner {
    ANSWERS,
    STOPS_HALFWAY, /* and leaves the connection open */
    SAYS_NOTHING,
    SAYS_TOO_MUCH
};

struct server {
    enum manner manner;
    int listener, connection;
    char address[64];
    char asked[64];
    pthread_t thread;
};

static void *serve(void *argument)
{
    struct server *server = argument;
    size_t got = 0;
    int fd = accept(server->listener, NULL, NULL);
    server->connection = fd;
    while (fd >= 0 && got < sizeof(server->asked) - 1 && !strchr(server->asked, '\n')) {
        ssize_t n = recv(fd, server->asked + got, sizeof(server->asked) - 1 - got, 0);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    if (server->manner == ANSWERS || server->manner == STOPS_HALFWAY)
        send(fd, "NCCL version 2.28.9\nJob summary\n", 32, MSG_NOSIGNAL);
    for (int i = 0; server->manner == SAYS_TOO_MUCH && i < 3 * DPB_NCCL_RAS_TEXT / 32; i++)
        if (send(fd, "a line of thirty-two characters\n", 32, MSG_NOSIGNAL) < 0)
            break;
    if (server->manner == ANSWERS)
        shutdown(fd, SHUT_RDWR);
    return NULL;
}

static void server_start(struct server *server, enum manner manner)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    *server = (struct server){.manner = manner, .connection = -1};
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(server->address, sizeof(server->address), "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(struct server *server)
{
    pthread_join(server->thread, NULL);
    if (server->connection >= 0)
        close(server->connection);
    close(server->listener);
}

static dpb_status ask(const char *address, int64_t patience_ms, struct dpb_str *text, char *why)
{
    return dpb_nccl_ras_status(address, dpb_clock_now_ns() + patience_ms * 1000000, text, why, 256);
}

static void test_ras(void **state)
{
    (void)state;
    struct server server;
    struct dpb_str text = {0};
    char why[256];
    dpb_str_append(&text, "before ");
    server_start(&server, ANSWERS);
    assert_int_equal(ask(server.address, 30000, &text, why), DPB_OK);
    server_stop(&server);
    assert_string_equal(server.asked, "verbose status\n");
    assert_string_equal(text.text, "before NCCL version 2.28.9\nJob summary\n");
    dpb_str_release(&text);

    server_start(&server, STOPS_HALFWAY);
    assert_int_equal(ask(server.address, 300, &text, why), DPB_OK);
    server_stop(&server);
    assert_string_equal(text.text, "NCCL version 2.28.9\nJob summary\n");
    dpb_str_release(&text);

    server_start(&server, SAYS_NOTHING);
    assert_int_equal(ask(server.address, 100, &text, why), DPB_ERR_TIMEOUT);
    server_stop(&server);
    assert_non_null(strstr(why, "said nothing in time"));
    assert_null(text.text);

    server_start(&server, SAYS_TOO_MUCH);
    assert_int_equal(ask(server.address, 30000, &text, why), DPB_OK);
    server_stop(&server);
    assert_int_equal(text.length, DPB_NCCL_RAS_TEXT);
    dpb_str_release(&text);
}

static void test_ras_absent(void **state)
{
    (void)state;
    struct server server;
    struct dpb_str text = {0};
    char why[256];
    /* A port that nobody listens on: it was free a moment ago. */
    server_start(&server, ANSWERS);
    char address[64];
    snprintf(address, sizeof(address), "%s", server.address);
    assert_int_equal(ask(address, 30000, &text, why), DPB_OK);
    server_stop(&server);
    dpb_str_release(&text);
    assert_int_equal(ask(address, 1000, &text, why), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "no connection to 127.0.0.1:"));
    static const char *const bad[] = {"", "localhost", ":28028", "localhost:"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(ask(bad[i], 1000, &text, why), DPB_ERR_UNAVAILABLE);
        assert_non_null(strstr(why, "is no address such as localhost:28028"));
    }
    assert_string_equal(dpb_nccl_ras_address(), "localhost:28028");
    setenv("NCCL_RAS_ADDR", "[::1]:9", 1);
    assert_string_equal(dpb_nccl_ras_address(), "[::1]:9");
    assert_int_equal(ask(dpb_nccl_ras_address(), 1000, &text, why), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "no connection to [::1]:9"));
    dpb_str_release(&text);
}

/* ---- the profiler plug-in, called as NCCL does; its interface, said once more ---- */

struct profiler_event {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool captured;
        } coll_api;
        struct {
            uint64_t sequence;
            const char *func;
            void const *send;
            void *receive;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algo, *proto;
            void *group;
        } coll;
    };
};

struct profiler_v5 {
    const char *name;
    int (*init)(void **, uint64_t, int *, const char *, int, int, int, void (*)(void));
    int (*start)(void *, void **, struct profiler_event *);
    int (*stop)(void *);
    int (*record)(void *, int, void *);
    int (*finalize)(void *);
};

static void run_coll(const struct profiler_v5 *profiler, void *context, const char *func,
                     const char *algo, int channels)
{
    struct profiler_event api = {.type = 1 << 9, .coll_api = {.func = func}};
    struct profiler_event coll = {
            .type = 1 << 1,
            .coll = {.func = func, .channels = (uint8_t)channels, .algo = algo, .proto = "SIMPLE"}};
    struct profiler_event kernel = {.type = 1 << 6};
    void *handle = context;
    assert_int_equal(profiler->start(context, &handle, &api), 0);
    assert_int_equal(profiler->start(context, &handle, &coll), 0);
    assert_int_equal(profiler->stop(handle), 0);
    assert_int_equal(profiler->start(context, &handle, &kernel), 0);
    assert_int_equal(profiler->record(handle, 22, NULL), 0);
}

static const char *text_at(const dpb_json *rows, size_t row, const char *key)
{
    return dpb_json_as_string(dpb_json_get(dpb_json_at(rows, row), key), "");
}

static int64_t int_at(const dpb_json *rows, size_t row, const char *key)
{
    return dpb_json_as_int(dpb_json_get(dpb_json_at(rows, row), key), -1);
}

static void test_profiler(void **state)
{
    (void)state;
    void *context = NULL;
    int mask = 0;
    dpb_json *rows = dpb_nccl_profile_json();
    assert_int_equal(dpb_json_size(rows), 0);
    dpb_json_free(rows);

    setenv("DPBENCH_NCCL_PROFILER", "./no/such/plugin.so", 1);
    assert_true(dpb_nccl_profile_enable(1) < 0);
    assert_logged("rank 1: --nccl-profile cannot count what NCCL uses: NCCL's profiler plug-in");
    setenv("DPBENCH_NCCL_PROFILER", plugin_path, 1);
    setenv("NCCL_PROFILER_PLUGIN", "inspector", 1);
    assert_int_equal(dpb_nccl_profile_enable(1), DPB_ERR_USAGE);
    assert_logged("NCCL_PROFILER_PLUGIN=\"inspector\"");
    unsetenv("NCCL_PROFILER_PLUGIN");
    assert_int_equal(dpb_nccl_profile_enable(1), DPB_OK);
    assert_string_equal(getenv("NCCL_PROFILER_PLUGIN"), plugin_path);

    void *library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    const struct profiler_v5 *profiler = dlsym(library, "ncclProfiler_v5");
    assert_non_null(profiler);
    assert_int_equal(profiler->init(&context, 7, &mask, "world", 1, 8, 3, NULL), 0);
    assert_int_equal(mask, 1 << 1 | 1 << 9); /* nothing inside kernels */
    assert_non_null(context);
    run_coll(profiler, context, "AllReduce", "RING", 16);
    run_coll(profiler, context, "AllReduce", "RING", 16);
    run_coll(profiler, context, "AllReduce", "TREE", 16);
    run_coll(profiler, context, "AllReduce", "RING", 8);
    run_coll(profiler, context, "ReduceScatter", NULL, 8);
    rows = dpb_nccl_profile_json();
    assert_int_equal(dpb_json_size(rows), 4);
    assert_string_equal(text_at(rows, 0, "function"), "AllReduce");
    assert_string_equal(text_at(rows, 0, "algorithm"), "RING");
    assert_string_equal(text_at(rows, 0, "protocol"), "SIMPLE");
    assert_int_equal(int_at(rows, 0, "channels"), 16);
    assert_int_equal(int_at(rows, 0, "collectives"), 2);
    assert_string_equal(text_at(rows, 1, "algorithm"), "TREE");
    assert_int_equal(int_at(rows, 2, "channels"), 8);
    assert_int_equal(int_at(rows, 2, "collectives"), 1);
    assert_string_equal(text_at(rows, 3, "algorithm"), "unknown");
    dpb_json_free(rows);

    for (int i = 0; i < 200; i++) /* more kinds than there is room for */
        run_coll(profiler, context, "AllGather", "RING", i);
    rows = dpb_nccl_profile_json();
    assert_int_equal(dpb_json_size(rows), 128);
    dpb_json_free(rows);
    assert_logged("76 of 205 calls are not in it");
    assert_int_equal(profiler->finalize(context), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_options, begin),
            cmocka_unit_test_setup(test_environment_set, begin),
            cmocka_unit_test_setup(test_environment_refused, begin),
            cmocka_unit_test_setup(test_environment_recorded, begin),
            cmocka_unit_test_setup(test_ring_text, begin),
            cmocka_unit_test_setup(test_ring_wraps, begin),
            cmocka_unit_test_setup(test_ras, begin),
            cmocka_unit_test_setup(test_ras_absent, begin),
            cmocka_unit_test_setup(test_profiler, begin),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s PLUGIN\n", argv[0]);
        return 2;
    }
    plugin_path = argv[1];
    return DPB_RUN_TESTS(tests);
}
