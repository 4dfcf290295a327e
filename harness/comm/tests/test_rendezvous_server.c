/* The launcher's server: hundreds of ranks, connections that say what no rank says, its own end.
 * The ranks are threads of this program, as test_rendezvous.c has processes. */
#include "dpb_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_rendezvous_server.h"
#include "rendezvous_wire.h"

#define SECOND_NS  ((int64_t)1000000000)
#define LONG_NS    (120 * SECOND_NS) /* which no test that passes waits for */
#define RANKS_MOST 300

static char log_text[65536];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(void *context, enum dpb_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&log_lock);
    const size_t length = strlen(log_text);
    snprintf(log_text + length, sizeof(log_text) - length, "%s\n", line);
    pthread_mutex_unlock(&log_lock);
}

static bool logged(const char *text)
{
    pthread_mutex_lock(&log_lock);
    const bool found = strstr(log_text, text) != NULL;
    pthread_mutex_unlock(&log_lock);
    return found;
}

#define assert_logged(text)                                                                        \
    do {                                                                                           \
        if (!logged(text))                                                                         \
            fail_msg("\"%s\" is not in the log:\n%s", (text), log_text);                           \
    } while (0)

/* ---- the launcher ---- */

struct launcher {
    struct dpb_net_token token;
    struct dpb_net_address address;
    dpb_net_door *door;
    dpb_rendezvous_server *server;
    pthread_t thread;
    _Atomic bool stops;
    char address_text[DPB_NET_ADDRESS_BYTES];
    char token_text[DPB_NET_TOKEN_TEXT];
    struct dpb_comm_server reached_as;
};

static void *admit_all(void *argument)
{
    struct launcher *launcher = argument;
    while (!atomic_load(&launcher->stops)) {
        struct pollfd ready[512];
        char role[DPB_NET_ROLE_BYTES];
        struct dpb_net_address from;
        int fds[512];
        int fd;
        const size_t count = dpb_net_door_fds(launcher->door, fds, 512);
        for (size_t i = 0; i < count; i++)
            ready[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        poll(ready, count, 10);
        while (dpb_net_door_admit(launcher->door, &fd, role, &from) == DPB_OK)
            (void)dpb_rendezvous_server_give(launcher->server, fd, &from);
    }
    return NULL;
}

static void launcher_begin(struct launcher *launcher, int ranks)
{
    int listening;
    *launcher = (struct launcher){0};
    pthread_mutex_lock(&log_lock);
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_lock);
    assert_int_equal(dpb_net_token_new(&launcher->token), DPB_OK);
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &launcher->address), DPB_OK);
    assert_int_equal(dpb_net_door_open(listening, &launcher->token, &launcher->door), DPB_OK);
    assert_int_equal(dpb_rendezvous_server_open(ranks, &launcher->server), DPB_OK);
    dpb_net_token_text(&launcher->token, launcher->token_text);
    dpb_net_address_text(&launcher->address, launcher->address_text);
    launcher->reached_as = (struct dpb_comm_server){launcher->address_text, launcher->token_text};
    assert_int_equal(pthread_create(&launcher->thread, NULL, admit_all, launcher), 0);
}

static void launcher_end(struct launcher *launcher)
{
    atomic_store(&launcher->stops, true);
    pthread_join(launcher->thread, NULL);
    dpb_net_door_close(launcher->door);
    dpb_rendezvous_server_close(launcher->server);
}

/* ---- ranks ---- */

struct rank {
    struct launcher *launcher;
    int rank, size;
    pthread_t thread;
    void (*body)(struct rank *rank);
    dpb_rendezvous *rendezvous;
    const char *wrong; /* what has failed; the tests assert in their own thread only */
    dpb_status st;
    void *shared;
};

#define RANK_CHECK(rank, condition)                                                                \
    do {                                                                                           \
        if (!(condition) && !(rank)->wrong)                                                        \
            (rank)->wrong = #condition;                                                            \
    } while (0)

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    const struct dpb_rendezvous_config config = {.owner = "comm \"test\"",
                                                 .rank = rank->rank,
                                                 .size = rank->size,
                                                 .segment_fd = -1,
                                                 .server = &rank->launcher->reached_as,
                                                 .timeout_ns = LONG_NS};
    if (dpb_rendezvous_open(&config, &rank->rendezvous) != DPB_OK) {
        rank->wrong = "dpb_rendezvous_open()";
        return NULL;
    }
    rank->body(rank);
    dpb_rendezvous_close(rank->rendezvous);
    return NULL;
}

static void start_ranks(struct rank *rank, struct launcher *launcher, int ranks,
                        void (*body)(struct rank *rank), void *shared)
{
    for (int r = 0; r < ranks; r++) {
        rank[r] = (struct rank){
                .launcher = launcher, .rank = r, .size = ranks, .body = body, .shared = shared};
        assert_int_equal(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    }
}

static void join_ranks(struct rank *rank, int ranks)
{
    const struct rank *wrong = NULL;
    for (int r = 0; r < ranks; r++) {
        pthread_join(rank[r].thread, NULL);
        if (rank[r].wrong)
            wrong = &rank[r];
    }
    if (wrong)
        fail_msg("rank %d: %s; the log:\n%s", wrong->rank, wrong->wrong, log_text);
}

/* ---- many ---- */

static void meet_many(struct rank *self)
{
    enum {
        NUMBERS = 32
    };
    const size_t size = (size_t)self->size;
    int32_t mine[NUMBERS];
    int32_t(*all)[NUMBERS] = calloc(size, sizeof(*all));
    struct dpb_rendezvous_seen *seen = calloc(size, sizeof(*seen));
    for (int i = 0; i < NUMBERS; i++)
        mine[i] = self->rank * NUMBERS + i;
    dpb_rendezvous_note(self->rendezvous, (uint64_t)self->rank, 7);
    RANK_CHECK(self, dpb_rendezvous_exchange(self->rendezvous, "numbers", mine, sizeof(mine),
                                             all) == DPB_OK);
    for (int r = 0; r < self->size; r++)
        for (int i = 0; i < NUMBERS; i++)
            RANK_CHECK(self, all[r][i] == r * NUMBERS + i);
    if (self->rank % 100 == 50) {
        dpb_rendezvous_survey(self->rendezvous, seen);
        for (int r = 0; r < self->size; r++)
            RANK_CHECK(self, seen[r].started == (uint64_t)r && seen[r].called >= 2);
    }
    RANK_CHECK(self, dpb_rendezvous_exchange(self->rendezvous, "end", NULL, 0, NULL) == DPB_OK);
    free(seen);
    free(all);
}

static void test_many(void **state)
{
    (void)state;
    static struct rank rank[RANKS_MOST];
    struct launcher launcher;
    launcher_begin(&launcher, RANKS_MOST);
    start_ranks(rank, &launcher, RANKS_MOST, meet_many, NULL);
    join_ranks(rank, RANKS_MOST);
    launcher_end(&launcher);
    assert_string_equal(log_text, "");
}

/* One of many is missed, and named. */
static void miss_one(struct rank *self)
{
    if (self->rank == 77) {
        RANK_CHECK(self, dpb_rendezvous_fail(self->rendezvous, DPB_ERR_IO, NULL,
                                             "rank 77 has no disk") == DPB_ERR_IO);
        return;
    }
    RANK_CHECK(self, dpb_rendezvous_exchange(self->rendezvous, "end", NULL, 0, NULL) == DPB_ERR_IO);
}

static void test_many_fail(void **state)
{
    (void)state;
    static struct rank rank[RANKS_MOST];
    struct launcher launcher;
    launcher_begin(&launcher, 200);
    start_ranks(rank, &launcher, 200, miss_one, NULL);
    join_ranks(rank, 200);
    launcher_end(&launcher);
    assert_logged("rank 199: end #2 failed: rank 77 has no disk");
}

/* ---- failures ---- */

/* Of two failures at once one is the first, for both. */
static void fail_both(struct rank *self)
{
    const dpb_status mine = self->rank == 0 ? DPB_ERR_IO : DPB_ERR_VENDOR;
    self->st = dpb_rendezvous_fail(self->rendezvous, mine, NULL, "rank %d fails", self->rank);
}

static void test_first(void **state)
{
    (void)state;
    struct rank rank[2];
    struct launcher launcher;
    launcher_begin(&launcher, 2);
    start_ranks(rank, &launcher, 2, fail_both, NULL);
    join_ranks(rank, 2);
    launcher_end(&launcher);
    assert_true(rank[0].st == DPB_ERR_IO || rank[0].st == DPB_ERR_VENDOR);
    assert_int_equal(rank[0].st, rank[1].st);
}

static void lose_launcher(struct rank *self)
{
    _Atomic int *waiting = self->shared;
    atomic_fetch_add(waiting, 1);
    if (self->rank == 2) {
        while (dpb_rendezvous_check(self->rendezvous, "looking") == DPB_OK)
            dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SECOND_NS / 1000);
        RANK_CHECK(self, dpb_rendezvous_check(self->rendezvous, "looking") == DPB_ERR_RANK_FAILED);
        return;
    }
    RANK_CHECK(self, dpb_rendezvous_exchange(self->rendezvous, "end", NULL, 0, NULL) ==
                             DPB_ERR_RANK_FAILED);
    /* There is nobody to tell. */
    RANK_CHECK(self, dpb_rendezvous_fail(self->rendezvous, DPB_ERR_IO, NULL, "more") ==
                             DPB_ERR_RANK_FAILED);
}

static void test_launcher_ends(void **state)
{
    (void)state;
    struct rank rank[3];
    struct launcher launcher;
    _Atomic int waiting = 0;
    launcher_begin(&launcher, 3);
    start_ranks(rank, &launcher, 3, lose_launcher, &waiting);
    while (atomic_load(&waiting) < 3)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SECOND_NS / 1000);
    launcher_end(&launcher);
    join_ranks(rank, 3);
    assert_logged("end #2 failed: rank 0 has lost the launcher at 127.0.0.1:");
    assert_logged("looking failed: rank 2 has lost the launcher at 127.0.0.1:");
}

/* ---- what no rank says ---- */

static int come_in(struct launcher *launcher)
{
    int fd = -1;
    assert_int_equal(dpb_net_connect(&launcher->address, &launcher->token, DPB_RENDEZVOUS_ROLE,
                                     dpb_clock_now_ns() + LONG_NS, &fd),
                     DPB_OK);
    return fd;
}

static void say(int fd, enum dpb_rendezvous_message kind, const void *body, size_t bytes)
{
    const struct dpb_meet_head head = {kind, (uint32_t)bytes};
    assert_int_equal(write(fd, &head, sizeof(head)), sizeof(head));
    if (bytes > 0)
        assert_int_equal(write(fd, body, bytes), bytes);
}

static void hear_the_end(int fd)
{
    char bytes[1024];
    while (read(fd, bytes, sizeof(bytes)) > 0)
        continue;
    close(fd);
}

static void meet_few(struct rank *self)
{
    RANK_CHECK(self, dpb_rendezvous_exchange(self->rendezvous, "end", NULL, 0, NULL) == DPB_OK);
}

static void test_junk(void **state)
{
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const struct dpb_meet_hello outside = {.rank = 9, .size = 3, .host = "here"};
    struct rank rank[3];
    struct launcher launcher;
    launcher_begin(&launcher, 3);
    int fd = come_in(&launcher);
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
    hear_the_end(fd);
    fd = come_in(&launcher);
    say(fd, DPB_MEET_NOTE, &outside, sizeof(struct dpb_meet_note));
    hear_the_end(fd);
    fd = come_in(&launcher);
    say(fd, DPB_MEET_HELLO, &outside, sizeof(outside));
    hear_the_end(fd);
    fd = come_in(&launcher);
    say(fd, DPB_MEET_HELLO, &outside, sizeof(outside) - 4);
    hear_the_end(fd);
    int silent = come_in(&launcher);
    /* Nobody is disturbed. */
    start_ranks(rank, &launcher, 3, meet_few, NULL);
    join_ranks(rank, 3);
    close(silent);
    launcher_end(&launcher);
}

static void wait_for_failure(struct rank *self)
{
    self->st = dpb_rendezvous_exchange(self->rendezvous, "end", NULL, 0, NULL);
}

/* From a rank it is a failure that names it. */
static void test_junk_of_a_rank(void **state)
{
    (void)state;
    const struct dpb_meet_hello hello = {.rank = 2, .size = 3, .pid = 5, .host = "node7"};
    struct dpb_meet_part part = {.call = 1, .part = {.what = "open"}};
    struct rank rank[3];
    struct launcher launcher;
    launcher_begin(&launcher, 3);
    for (int r = 0; r < 2; r++) {
        rank[r] = (struct rank){.launcher = &launcher, .rank = r, .size = 3};
        rank[r].body = wait_for_failure;
        assert_int_equal(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    }
    int fd = come_in(&launcher);
    say(fd, DPB_MEET_HELLO, &hello, sizeof(hello));
    say(fd, DPB_MEET_PART, &part, sizeof(part));
    char result[sizeof(struct dpb_meet_head) + sizeof(struct dpb_meet_result)];
    assert_int_equal(recv(fd, result, sizeof(result), MSG_WAITALL), sizeof(result));
    part.call = 5;
    say(fd, DPB_MEET_PART, &part, sizeof(part));
    hear_the_end(fd);
    join_ranks(rank, 2);
    launcher_end(&launcher);
    assert_int_equal(rank[0].st, DPB_ERR_RANK_FAILED);
    assert_int_equal(rank[1].st, DPB_ERR_RANK_FAILED);
    assert_logged(
            "rank 1: end #2 failed: rank 2 on node7 (127.0.0.1, process 5) is gone: its connection "
            "broke (it said what no rank says), last seen at call #1 (open)");
}

/* ---- what the kernel does not do ---- */

/* With the linker's --wrap: the next call of the server fails, once. */
static _Atomic bool refuses_add, refuses_change, is_full;

int __real_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event);
ssize_t __real_send(int fd, const void *bytes, size_t count, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags);

int __wrap_epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    if ((operation == EPOLL_CTL_ADD && atomic_exchange(&refuses_add, false)) ||
        (operation == EPOLL_CTL_MOD && atomic_exchange(&refuses_change, false))) {
        errno = ENOSPC;
        return -1;
    }
    return __real_epoll_ctl(epoll_fd, operation, fd, event);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t count, int flags)
{
    if (atomic_exchange(&is_full, false)) {
        errno = EAGAIN;
        return -1;
    }
    return __real_send(fd, bytes, count, flags);
}

static bool ends(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    return poll(&end, 1, (int)(LONG_NS / 1000000)) == 1;
}

/* A connection that cannot be watched is ended at once: nothing would ever come of it. */
static void test_unwatched(void **state)
{
    (void)state;
    const struct dpb_meet_hello hello = {.rank = 0, .size = 1, .pid = 5, .host = "node7"};
    const struct dpb_meet_part part = {.call = 1, .part = {.what = "open"}};
    struct launcher launcher;
    launcher_begin(&launcher, 1);
    atomic_store(&refuses_add, true);
    int fd = come_in(&launcher);
    assert_true(ends(fd));
    hear_the_end(fd);
    assert_logged("the rendezvous cannot watch the connection from 127.0.0.1: No space left");

    /* One that was, until what it is told has to wait. */
    fd = come_in(&launcher);
    say(fd, DPB_MEET_HELLO, &hello, sizeof(hello));
    atomic_store(&refuses_change, true);
    atomic_store(&is_full, true);
    say(fd, DPB_MEET_PART, &part, sizeof(part));
    assert_true(ends(fd));
    hear_the_end(fd);
    assert_false(atomic_load(&is_full));
    assert_false(atomic_load(&refuses_change));
    launcher_end(&launcher);
}

static void test_open(void **state)
{
    (void)state;
    dpb_rendezvous_server *server = NULL;
    assert_int_equal(dpb_rendezvous_server_open(0, &server), DPB_ERR_USAGE);
    assert_int_equal(dpb_rendezvous_server_open(DPB_COMM_WORLD_RANKS_MAX + 1, &server),
                     DPB_ERR_USAGE);
    assert_null(server);
    assert_int_equal(dpb_rendezvous_server_open(DPB_COMM_WORLD_RANKS_MAX, &server), DPB_OK);
    dpb_rendezvous_server_close(server);
    dpb_rendezvous_server_close(NULL);
}

/* Both ends of every connection are in this process. */
static bool has_descriptors(void)
{
    struct rlimit limit;
    const rlim_t needed = 3 * RANKS_MOST + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    if (limit.rlim_cur < needed && limit.rlim_max >= needed) {
        limit.rlim_cur = needed;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= needed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_open),           cmocka_unit_test(test_many),
            cmocka_unit_test(test_many_fail),      cmocka_unit_test(test_first),
            cmocka_unit_test(test_launcher_ends),  cmocka_unit_test(test_junk),
            cmocka_unit_test(test_junk_of_a_rank), cmocka_unit_test(test_unwatched),
    };
    if (!has_descriptors())
        dpb_test_skip_all("too few file descriptors are allowed (ulimit -n)");
    dpb_log_set_sink(keep_log, NULL);
    return DPB_RUN_TESTS(tests);
}
