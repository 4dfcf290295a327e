/* A guest of a host whose name has several addresses. */
#include "dpb_test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "net_log.h"
#include "net_private.h"

#define SECOND_NS ((int64_t)1000000000)
#define LONG_NS   (120 * SECOND_NS) /* which no test that passes waits for */
#define SHORT_NS  (SECOND_NS / 5)
#define ADDRESSES 3

/* ---- the name ---- */

static struct sockaddr_in places[ADDRESSES];
static struct addrinfo found[ADDRESSES];

/* With the linker's --wrap: no name server has such a name. */
struct addrinfo *__wrap_dpb_net_resolve(const char *host, int port, int socktype, char *why,
                                        size_t why_bytes);
void __wrap_freeaddrinfo(struct addrinfo *list);

struct addrinfo *__wrap_dpb_net_resolve(const char *host, int port, int socktype, char *why,
                                        size_t why_bytes)
{
    (void)host;
    (void)port;
    (void)why;
    (void)why_bytes;
    for (int i = 0; i < ADDRESSES; i++)
        found[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_socktype = socktype,
                                     .ai_addrlen = sizeof(places[i]),
                                     .ai_addr = (struct sockaddr *)&places[i],
                                     .ai_next = i + 1 < ADDRESSES ? &found[i + 1] : NULL};
    return found;
}

void __wrap_freeaddrinfo(struct addrinfo *list)
{
    assert_ptr_equal(list, found);
}

static const struct dpb_net_address name = {.host = "name", .port = 1};

static void put(int index, const struct dpb_net_address *address)
{
    places[index] =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)address->port)};
    assert_int_equal(inet_pton(AF_INET, address->host, &places[index].sin_addr), 1);
}

/* ---- a host that listens, and says nothing ---- */

static int listen_silently(int first, int last)
{
    struct dpb_net_address address;
    int listening;
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &address), DPB_OK);
    for (int i = first; i <= last; i++)
        put(i, &address);
    return listening;
}

static int count_guests(int listening)
{
    int count = 0;
    assert_int_equal(fcntl(listening, F_SETFL, O_NONBLOCK), 0);
    for (int fd; (fd = accept(listening, NULL, NULL)) >= 0; count++)
        close(fd);
    return count;
}

/* ---- tests ---- */

static volatile sig_atomic_t interrupted;

static void *interrupt(void *argument)
{
    struct pollfd comes = {.fd = *(int *)argument, .events = POLLIN};
    poll(&comes, 1, -1);
    interrupted = 1;
    return NULL;
}

/* While it waits for the first address; the others are not tried. */
static void test_interrupted(void **state)
{
    (void)state;
    struct dpb_net_token token;
    pthread_t thread;
    int listening = listen_silently(0, ADDRESSES - 1), fd = -5;
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    interrupted = 0;
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &listening), 0);
    assert_int_equal(dpb_net_connect_unless(&name, &token, "rank", dpb_clock_now_ns() + LONG_NS,
                                            &interrupted, &fd),
                     DPB_ERR_INTERRUPTED);
    pthread_join(thread, NULL);
    assert_int_equal(fd, -5);
    assert_int_equal(count_guests(listening), 1);
    close(listening);
    assert_nothing_logged();
}

struct host {
    struct dpb_net_token token;
    dpb_net_door *door;
    _Atomic bool stops;
};

static void *serve(void *argument)
{
    struct host *host = argument;
    struct dpb_net_address from;
    char role[DPB_NET_ROLE_BYTES];
    int guest = -1;
    while (!atomic_load(&host->stops)) {
        int fds[8];
        struct pollfd ready[8];
        const size_t count = dpb_net_door_fds(host->door, fds, 8);
        for (size_t i = 0; i < count; i++)
            ready[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        poll(ready, count, 10);
        if (guest < 0)
            (void)dpb_net_door_admit(host->door, &guest, role, &from);
    }
    if (guest >= 0)
        close(guest);
    return NULL;
}

/* Addresses that say nothing leave time for the one that answers: two of them for 5 s each would
 * take all that there is. */
static void test_last_address_answers(void **state)
{
    (void)state;
    struct host host = {0};
    struct dpb_net_address address;
    pthread_t thread;
    int listening, fd = -1, silent = listen_silently(0, ADDRESSES - 2);
    assert_int_equal(dpb_net_token_new(&host.token), DPB_OK);
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &address), DPB_OK);
    assert_int_equal(dpb_net_door_open(listening, &host.token, &host.door), DPB_OK);
    put(ADDRESSES - 1, &address);
    assert_int_equal(pthread_create(&thread, NULL, serve, &host), 0);
    const dpb_status st = dpb_net_connect(&name, &host.token, "rank",
                                          dpb_clock_now_ns() + 2 * DPB_NET_GREETING_NS, &fd);
    atomic_store(&host.stops, true);
    pthread_join(thread, NULL);
    dpb_net_door_close(host.door);
    assert_int_equal(st, DPB_OK);
    close(silent);
    close(fd);
}

/* The deadline is one of all addresses. */
static void test_no_address_answers(void **state)
{
    (void)state;
    struct dpb_net_token token;
    int listening = listen_silently(0, ADDRESSES - 1), fd = -5;
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    assert_int_equal(dpb_net_connect(&name, &token, "rank", dpb_clock_now_ns() + SHORT_NS, &fd),
                     DPB_ERR_TIMEOUT);
    assert_int_equal(count_guests(listening), ADDRESSES);
    assert_logged("cannot connect to name:1 as rank: gave up after");
    assert_logged("no answer");
    close(listening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_interrupted, net_log_begin),
            cmocka_unit_test_setup(test_last_address_answers, net_log_begin),
            cmocka_unit_test_setup(test_no_address_answers, net_log_begin),
    };
    return DPB_RUN_TESTS(tests);
}
