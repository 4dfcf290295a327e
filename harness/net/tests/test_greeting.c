/* Who gets in: guests with the token, whatever strangers do meanwhile. */
#include "dpb_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "greeting.h"
#include "net_log.h"
#include "net_private.h"

#define SECOND_NS ((int64_t)1000000000)
#define LONG_NS   (120 * SECOND_NS) /* which no test that passes waits for */
#define SHORT_NS  (SECOND_NS / 5)
#define GUESTS    64

/* A door in a thread of its own, which keeps every guest. */
struct host {
    struct dpb_net_token token;
    struct dpb_net_address address;
    dpb_net_door *door;
    pthread_t thread;
    _Atomic bool stops;
    _Atomic int guests;
    int fd[GUESTS];
    char role[GUESTS][DPB_NET_ROLE_BYTES];
    struct dpb_net_address from[GUESTS];
};

static void *serve(void *argument)
{
    struct host *host = argument;
    while (!atomic_load(&host->stops)) {
        int fds[256];
        struct pollfd ready[256];
        const size_t count = dpb_net_door_fds(host->door, fds, 256);
        for (size_t i = 0; i < count; i++)
            ready[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        poll(ready, count, 10);
        const int guest = atomic_load(&host->guests);
        if (dpb_net_door_admit(host->door, &host->fd[guest], host->role[guest],
                               &host->from[guest]) == DPB_OK)
            atomic_store(&host->guests, guest + 1);
    }
    return NULL;
}

static void host_begin(struct host *host, int64_t patience_ns)
{
    int listening;
    *host = (struct host){0};
    assert_int_equal(dpb_net_token_new(&host->token), DPB_OK);
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &host->address), DPB_OK);
    assert_int_equal(dpb_net_door_open(listening, &host->token, &host->door), DPB_OK);
    dpb_net_door_set_patience(host->door, patience_ns);
    assert_int_equal(pthread_create(&host->thread, NULL, serve, host), 0);
}

static void host_end(struct host *host)
{
    atomic_store(&host->stops, true);
    pthread_join(host->thread, NULL);
    dpb_net_door_close(host->door);
    for (int i = 0; i < atomic_load(&host->guests); i++)
        close(host->fd[i]);
}

static void wait_for_guests(struct host *host, int guests)
{
    while (atomic_load(&host->guests) < guests)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SECOND_NS / 1000);
}

static int come_in(struct host *host, const char *role)
{
    int fd = -1;
    assert_int_equal(
            dpb_net_connect(&host->address, &host->token, role, dpb_clock_now_ns() + LONG_NS, &fd),
            DPB_OK);
    return fd;
}

/* ---- by hand ---- */

static int knock(const struct dpb_net_address *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, address->host, &to.sin_addr), 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

static void say(int fd, const void *bytes, size_t count)
{
    assert_int_equal(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

/* Byte by byte, to a host that may hang up before the last. Returns how many it took. */
static size_t say_while_heard(int fd, const void *bytes, size_t count)
{
    size_t said = 0;
    while (said < count && send(fd, (const char *)bytes + said, 1, MSG_NOSIGNAL) == 1) {
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SECOND_NS / 2000);
        said++;
    }
    return said;
}

static void say_slowly(int fd, const void *bytes, size_t count)
{
    assert_int_equal(say_while_heard(fd, bytes, count), count);
}

static void hear(int fd, void *bytes, size_t count)
{
    assert_int_equal(recv(fd, bytes, count, MSG_WAITALL), count);
}

static void hear_the_end(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, 0);
    assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
    close(fd);
}

/* ---- guests ---- */

static void test_guest(void **state)
{
    (void)state;
    struct host host;
    char text[6] = "";
    host_begin(&host, LONG_NS);
    int rank = come_in(&host, "rank");
    int other = come_in(&host, "rendezvous");
    wait_for_guests(&host, 2);
    assert_string_equal(host.role[0], "rank");
    assert_string_equal(host.role[1], "rendezvous");
    assert_string_equal(host.from[0].host, "127.0.0.1");
    assert_in_range(host.from[0].port, 1, 65535);
    /* They block, and nothing of the greeting is left in them. */
    assert_int_equal(fcntl(rank, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(host.fd[0], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(rank, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(host.fd[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    say(rank, "hello", 5);
    hear(host.fd[0], text, 5);
    assert_string_equal(text, "hello");
    say(host.fd[1], "world", 5);
    hear(other, text, 5);
    assert_string_equal(text, "world");
    host_end(&host);
    close(rank);
    close(other);
    assert_nothing_logged();
}

static void test_other_token(void **state)
{
    (void)state;
    struct host host;
    struct dpb_net_token other;
    int fd = -5;
    host_begin(&host, LONG_NS);
    assert_int_equal(dpb_net_token_new(&other), DPB_OK);
    assert_int_equal(
            dpb_net_connect(&host.address, &other, "rank", dpb_clock_now_ns() + LONG_NS, &fd),
            DPB_ERR_MISMATCH);
    assert_int_equal(fd, -5);
    host_end(&host);
    assert_int_equal(host.guests, 0);
    assert_logged("as rank: ranks disagree: it has another token");
    assert_logged("is refused: ranks disagree: it has another token");
}

/* ---- strangers ---- */

static void test_strangers(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char garbage[] = "\x00\xff\x80 anything";
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct host host;
    host_begin(&host, LONG_NS);
    int fd = knock(&host.address);
    say(fd, http, sizeof(http));
    hear_the_end(fd);
    fd = knock(&host.address);
    say(fd, garbage, sizeof(garbage));
    hear_the_end(fd);
    /* Already the first byte that is wrong is one too many. */
    fd = knock(&host.address);
    say(fd, "dpx", 3);
    hear_the_end(fd);
    /* Another protocol is told ours. */
    fd = knock(&host.address);
    assert_int_equal(dpb_net_hello_make("rank", &hello), DPB_OK);
    hello.magic[DPB_NET_MAGIC_BYTES - 1]++;
    say(fd, &hello, sizeof(hello));
    hear(fd, &challenge, sizeof(challenge));
    hear_the_end(fd);
    fd = knock(&host.address);
    assert_int_equal(dpb_net_hello_make("", &hello), DPB_OK);
    say(fd, &hello, sizeof(hello));
    hear(fd, &challenge, sizeof(challenge));
    hear_the_end(fd);
    close(knock(&host.address));
    close(come_in(&host, "rank"));
    host_end(&host);
    assert_int_equal(host.guests, 1);
    assert_logged("is refused: it is no dpbench: it begins with \"GET / HT\"");
    assert_logged("it is a dpbench with another protocol (2, not 1)");
    assert_logged("it does not say what it wants");
    /* Only the first is a warning, and all are counted. */
    char *first = strstr(net_log, "warning: a connection from 127.0.0.1:");
    assert_non_null(first);
    assert_null(strstr(first + 1, "warning: a connection"));
    assert_logged("connections were refused");
}

static void test_silence(void **state)
{
    (void)state;
    struct host host;
    struct dpb_net_hello hello;
    host_begin(&host, SHORT_NS);
    int silent = knock(&host.address);
    int half = knock(&host.address);
    assert_int_equal(dpb_net_hello_make("rank", &hello), DPB_OK);
    say_while_heard(half, &hello, sizeof(hello) / 2);
    hear_the_end(silent);
    hear_the_end(half);
    host_end(&host);
    assert_int_equal(host.guests, 0);
    assert_logged("it did not greet in time");
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    struct host host;
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct dpb_net_proof proof;
    struct dpb_net_verdict verdict;
    host_begin(&host, LONG_NS);
    int fd = knock(&host.address);
    assert_int_equal(dpb_net_hello_make("rank", &hello), DPB_OK);
    say_slowly(fd, &hello, sizeof(hello));
    hear(fd, &challenge, sizeof(challenge));
    dpb_net_prove(&host.token, DPB_NET_GUEST, &hello, &challenge, &proof);
    say_slowly(fd, &proof, sizeof(proof));
    hear(fd, &verdict, sizeof(verdict));
    assert_true(dpb_net_verdict_welcome(&verdict));
    assert_true(dpb_net_proven(&host.token, DPB_NET_HOST, &hello, &challenge, &verdict.proof));
    wait_for_guests(&host, 1);
    host_end(&host);
    close(fd);
}

/* The host's proof is no guest's: a stranger cannot have it made, and hand it back. */
static void test_sides(void **state)
{
    (void)state;
    struct dpb_net_token token;
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct dpb_net_proof proof;
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    assert_int_equal(dpb_net_hello_make("rank", &hello), DPB_OK);
    assert_int_equal(dpb_net_challenge_make(&challenge), DPB_OK);
    dpb_net_prove(&token, DPB_NET_GUEST, &hello, &challenge, &proof);
    assert_true(dpb_net_proven(&token, DPB_NET_GUEST, &hello, &challenge, &proof));
    assert_false(dpb_net_proven(&token, DPB_NET_HOST, &hello, &challenge, &proof));
    /* The role is proved too. */
    hello.role[0] = 'x';
    assert_false(dpb_net_proven(&token, DPB_NET_GUEST, &hello, &challenge, &proof));
}

static void test_many_strangers(void **state)
{
    (void)state;
    enum {
        STRANGERS = 200
    };
    int stranger[STRANGERS];
    struct host host;
    host_begin(&host, LONG_NS);
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = knock(&host.address);
        if (i % 2)
            say(stranger[i], "dpbench", 7);
    }
    int guest = come_in(&host, "rank");
    wait_for_guests(&host, 1);
    /* Nobody was dropped to let it in. */
    assert_nothing_logged();
    close(guest);
    host_end(&host);
    for (int i = 0; i < STRANGERS; i++)
        close(stranger[i]);
}

/* ---- what can be overheard ---- */

/* Hands on all bytes between one guest and the host, and keeps them. */
struct proxy {
    struct host *host;
    int listening;
    struct dpb_net_address address;
    pthread_t thread;
    unsigned char bytes[2][4096]; /* the guest's, the host's */
    size_t count[2];
};

static void *hand_on(void *argument)
{
    struct proxy *proxy = argument;
    struct pollfd wait = {.fd = proxy->listening, .events = POLLIN};
    poll(&wait, 1, -1);
    int end[2] = {accept(proxy->listening, NULL, NULL), knock(&proxy->host->address)};
    for (int open_ends = 2; open_ends == 2;) {
        struct pollfd ready[2] = {{.fd = end[0], .events = POLLIN},
                                  {.fd = end[1], .events = POLLIN}};
        poll(ready, 2, -1);
        for (int i = 0; i < 2; i++) {
            unsigned char *to = proxy->bytes[i] + proxy->count[i];
            if (!ready[i].revents)
                continue;
            ssize_t got = read(end[i], to, sizeof(proxy->bytes[i]) - proxy->count[i]);
            if (got <= 0) {
                open_ends--;
                continue;
            }
            proxy->count[i] += (size_t)got;
            say(end[!i], to, (size_t)got);
        }
    }
    close(end[0]);
    close(end[1]);
    return NULL;
}

static void proxy_begin(struct proxy *proxy, struct host *host)
{
    *proxy = (struct proxy){.host = host};
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &proxy->listening, &proxy->address), DPB_OK);
    assert_int_equal(pthread_create(&proxy->thread, NULL, hand_on, proxy), 0);
}

static void proxy_end(struct proxy *proxy)
{
    pthread_join(proxy->thread, NULL);
    close(proxy->listening);
}

static void assert_not_overheard(const struct proxy *proxy, const struct dpb_net_token *token)
{
    char text[DPB_NET_TOKEN_TEXT];
    dpb_net_token_text(token, text);
    /* A quarter of it would already be too much. */
    text[DPB_NET_TOKEN_BYTES / 2] = '\0';
    for (int i = 0; i < 2; i++) {
        assert_true(proxy->count[i] > 0);
        assert_null(memmem(proxy->bytes[i], proxy->count[i], text, strlen(text)));
        assert_null(
                memmem(proxy->bytes[i], proxy->count[i], token->bytes, DPB_NET_TOKEN_BYTES / 4));
    }
    assert_not_logged(text);
}

static void test_overheard(void **state)
{
    (void)state;
    struct host host;
    struct proxy proxy;
    struct dpb_net_token other;
    int fd;
    host_begin(&host, LONG_NS);
    proxy_begin(&proxy, &host);
    assert_int_equal(
            dpb_net_connect(&proxy.address, &host.token, "rank", dpb_clock_now_ns() + LONG_NS, &fd),
            DPB_OK);
    wait_for_guests(&host, 1);
    close(fd);
    proxy_end(&proxy);
    assert_not_overheard(&proxy, &host.token);
    assert_int_equal(proxy.count[0], sizeof(struct dpb_net_hello) + sizeof(struct dpb_net_proof));

    /* What was overheard opens nothing. */
    struct dpb_net_challenge challenge;
    struct dpb_net_verdict verdict;
    fd = knock(&host.address);
    say(fd, proxy.bytes[0], sizeof(struct dpb_net_hello));
    hear(fd, &challenge, sizeof(challenge));
    say(fd, proxy.bytes[0] + sizeof(struct dpb_net_hello), sizeof(struct dpb_net_proof));
    hear(fd, &verdict, sizeof(verdict));
    assert_false(dpb_net_verdict_welcome(&verdict));
    hear_the_end(fd);
    assert_int_equal(host.guests, 1);

    /* With two tokens, neither is heard. */
    assert_int_equal(dpb_net_token_new(&other), DPB_OK);
    proxy_begin(&proxy, &host);
    assert_int_equal(
            dpb_net_connect(&proxy.address, &other, "rank", dpb_clock_now_ns() + LONG_NS, &fd),
            DPB_ERR_MISMATCH);
    proxy_end(&proxy);
    assert_not_overheard(&proxy, &host.token);
    assert_not_overheard(&proxy, &other);
    host_end(&host);
}

/* A host that does not know the token, and says "welcome" all the same. */
struct impostor {
    int listening;
    bool http;
};

static void *pretend(void *argument)
{
    const struct impostor *impostor = argument;
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    struct dpb_net_hello hello;
    struct dpb_net_challenge challenge;
    struct dpb_net_proof proof;
    struct dpb_net_verdict verdict;
    struct pollfd wait = {.fd = impostor->listening, .events = POLLIN};
    poll(&wait, 1, -1);
    int fd = accept(impostor->listening, NULL, NULL);
    recv(fd, &hello, sizeof(hello), MSG_WAITALL);
    if (impostor->http) {
        send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
    } else if (dpb_net_challenge_make(&challenge) == DPB_OK) {
        send(fd, &challenge, sizeof(challenge), MSG_NOSIGNAL);
        recv(fd, &proof, sizeof(proof), MSG_WAITALL);
        dpb_net_verdict_make(true, &verdict);
        verdict.proof = proof; /* all it has */
        send(fd, &verdict, sizeof(verdict), MSG_NOSIGNAL);
    }
    recv(fd, &hello, 1, 0);
    close(fd);
    return NULL;
}

static void test_impostor(void **state)
{
    (void)state;
    for (int http = 0; http <= 1; http++) {
        struct impostor impostor = {.http = http != 0};
        struct dpb_net_address address;
        struct dpb_net_token token;
        pthread_t thread;
        int fd;
        net_log_begin(NULL);
        assert_int_equal(dpb_net_token_new(&token), DPB_OK);
        assert_int_equal(dpb_net_listen(NULL, NULL, 0, &impostor.listening, &address), DPB_OK);
        assert_int_equal(pthread_create(&thread, NULL, pretend, &impostor), 0);
        assert_int_equal(
                dpb_net_connect(&address, &token, "rank", dpb_clock_now_ns() + LONG_NS, &fd),
                DPB_ERR_MISMATCH);
        pthread_join(thread, NULL);
        close(impostor.listening);
        assert_logged(http ? "it is no dpbench: it begins with \"HTTP/1.1\""
                           : "it has another token");
    }
}

/* ---- waiting for the host ---- */

static void *listen_later(void *argument)
{
    struct host *host = argument;
    int listening;
    dpb_clock_sleep_until_ns(dpb_clock_now_ns() + SHORT_NS);
    if (dpb_net_listen(NULL, NULL, host->address.port, &listening, &host->address) == DPB_OK &&
        dpb_net_door_open(listening, &host->token, &host->door) == DPB_OK)
        serve(host);
    return NULL;
}

/* A port at which nobody listens, and which no other program is given until what is returned is
 * closed. Only who asks for this very port may listen there, because both allow it
 * (SO_REUSEADDR). */
static int hold_port(struct dpb_net_address *address)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(here);
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &bytes), 0);
    *address = (struct dpb_net_address){.host = "127.0.0.1", .port = ntohs(here.sin_port)};
    return fd;
}

static void test_listens_later(void **state)
{
    (void)state;
    struct host host = {0};
    int held = hold_port(&host.address);
    const struct dpb_net_address address = host.address;
    int fd = -1;
    assert_int_equal(dpb_net_token_new(&host.token), DPB_OK);
    assert_int_equal(pthread_create(&host.thread, NULL, listen_later, &host), 0);
    assert_int_equal(
            dpb_net_connect(&address, &host.token, "rank", dpb_clock_now_ns() + LONG_NS, &fd),
            DPB_OK);
    wait_for_guests(&host, 1);
    host_end(&host);
    close(fd);
    close(held);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct dpb_net_address address;
    struct dpb_net_token token;
    int fd = -5;
    int held = hold_port(&address);
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    assert_int_equal(dpb_net_connect(&address, &token, "rank", dpb_clock_now_ns() + SHORT_NS, &fd),
                     DPB_ERR_TIMEOUT);
    assert_logged("as rank: gave up after");
    assert_logged("Connection refused");
    close(held);

    /* A name; two dots: not asked of any name server. */
    address = (struct dpb_net_address){.host = "no..host", .port = 1};
    assert_int_equal(dpb_net_connect(&address, &token, "rank", dpb_clock_now_ns() + SHORT_NS, &fd),
                     DPB_ERR_UNAVAILABLE);
    assert_logged("cannot connect to no..host:1 as rank");
    assert_logged("\"no..host\" does not resolve");
    assert_int_equal(fd, -5);
}

/* A host that listens and says nothing. */
static void test_silent_host(void **state)
{
    (void)state;
    struct dpb_net_address address;
    struct dpb_net_token token;
    int listening;
    int fd;
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &address), DPB_OK);
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    assert_int_equal(dpb_net_connect(&address, &token, "rank", dpb_clock_now_ns() + SHORT_NS, &fd),
                     DPB_ERR_TIMEOUT);
    assert_logged("no answer");
    close(listening);
}

/* Says nothing to the first guest, as a host that is stopped, or a port of something else. */
static void *wake_up_later(void *argument)
{
    struct host *host = argument;
    struct pollfd wait = {.fd = host->fd[0], .events = POLLIN};
    poll(&wait, 1, -1);
    int silent = accept(host->fd[0], NULL, NULL);
    if (dpb_net_door_open(host->fd[0], &host->token, &host->door) == DPB_OK)
        serve(host);
    close(silent);
    return NULL;
}

static void test_host_wakes_up(void **state)
{
    (void)state;
    struct host host = {0};
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &host.fd[0], &host.address), DPB_OK);
    assert_int_equal(dpb_net_token_new(&host.token), DPB_OK);
    assert_int_equal(pthread_create(&host.thread, NULL, wake_up_later, &host), 0);
    int fd = come_in(&host, "rank");
    wait_for_guests(&host, 1);
    host_end(&host);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_guest, net_log_begin),
            cmocka_unit_test_setup(test_other_token, net_log_begin),
            cmocka_unit_test_setup(test_strangers, net_log_begin),
            cmocka_unit_test_setup(test_silence, net_log_begin),
            cmocka_unit_test_setup(test_byte_by_byte, net_log_begin),
            cmocka_unit_test_setup(test_sides, net_log_begin),
            cmocka_unit_test_setup(test_many_strangers, net_log_begin),
            cmocka_unit_test_setup(test_overheard, net_log_begin),
            cmocka_unit_test_setup(test_impostor, net_log_begin),
            cmocka_unit_test_setup(test_listens_later, net_log_begin),
            cmocka_unit_test_setup(test_nobody_listens, net_log_begin),
            cmocka_unit_test_setup(test_silent_host, net_log_begin),
            cmocka_unit_test_setup(test_host_wakes_up, net_log_begin),
    };
    return DPB_RUN_TESTS(tests);
}
