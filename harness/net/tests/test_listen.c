/* Listening on an interface, an address, a network, or towards a peer. */
#include "dpb_test.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_net.h"
#include "net_log.h"

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const bool bound =
            fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof(loopback)) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

static void listens_on(const char *bind_to, const char *peer, const char *host)
{
    struct dpb_net_address address;
    int listening = -1;
    int on = 0;
    socklen_t on_bytes = sizeof(on);
    if (dpb_net_listen(bind_to, peer, 0, &listening, &address) != DPB_OK)
        fail_msg("%s, %s: %s", bind_to ? bind_to : "-", peer ? peer : "-", net_log);
    assert_string_equal(address.host, host);
    assert_in_range(address.port, 1, 65535);
    assert_int_equal(getsockopt(listening, SOL_SOCKET, SO_ACCEPTCONN, &on, &on_bytes), 0);
    assert_int_equal(on, 1);
    close(listening);
}

static void test_where(void **state)
{
    (void)state;
    listens_on(NULL, NULL, "127.0.0.1");
    listens_on("lo", NULL, "127.0.0.1");
    listens_on("127.0.0.1", NULL, "127.0.0.1");
    listens_on("127.0.0.2", NULL, "127.0.0.2");
    listens_on("127.0.0.0/8", NULL, "127.0.0.1");
    listens_on("127.0.0.1/32", NULL, "127.0.0.1");
    listens_on(NULL, "127.0.0.1", "127.0.0.1");
    /* What is given counts, whoever the peer is. */
    listens_on("lo", "240.0.0.1", "127.0.0.1");
    if (!has_ipv6())
        return;
    listens_on("::1", NULL, "::1");
    listens_on("::1/128", NULL, "::1");
    listens_on(NULL, "::1", "::1");
}

static void refuses(const char *bind_to, const char *peer, dpb_status st, const char *text)
{
    struct dpb_net_address address;
    int listening = -5;
    net_log_begin(NULL);
    if (dpb_net_listen(bind_to, peer, 0, &listening, &address) != st)
        fail_msg("%s, %s: another status than %s", bind_to ? bind_to : "-", peer ? peer : "-",
                 dpb_status_name(st));
    assert_int_equal(listening, -5);
    assert_logged(text);
}

static void test_nowhere(void **state)
{
    (void)state;
    /* Two dots: not asked of any name server. */
    refuses("eth..77", NULL, DPB_ERR_UNAVAILABLE,
            "cannot listen on \"eth..77\": no such interface");
    assert_logged("hint: this machine has");
    assert_logged("lo 127.0.0.1");
    refuses("240.0.0.1", NULL, DPB_ERR_UNAVAILABLE, "it is an address of another host");
    assert_logged("lo 127.0.0.1");
    refuses("240.0.0.0/24", NULL, DPB_ERR_UNAVAILABLE, "no interface is in that network");
    assert_logged("lo 127.0.0.1");
    refuses("127.0.0.0/33", NULL, DPB_ERR_USAGE, "it is no network");
    refuses("127.0.0.0/", NULL, DPB_ERR_USAGE, "it is no network");
    refuses("127.0.0.0/8x", NULL, DPB_ERR_USAGE, "it is no network");
    refuses("node/8", NULL, DPB_ERR_USAGE, "it is no network");
    refuses("0.0.0.0", NULL, DPB_ERR_USAGE, "must be told one address");
    refuses(NULL, "no..host", DPB_ERR_UNAVAILABLE,
            "cannot tell which interface leads to \"no..host\": \"no..host\" does not resolve");
}

static void test_port(void **state)
{
    (void)state;
    struct dpb_net_address address;
    struct dpb_net_address again;
    char text[64];
    int first;
    int second;
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &first, &address), DPB_OK);
    assert_int_equal(dpb_net_listen(NULL, NULL, address.port, &second, &again),
                     DPB_ERR_UNAVAILABLE);
    snprintf(text, sizeof(text), "cannot listen on 127.0.0.1:%d: bind: Address already in use",
             address.port);
    assert_logged(text);
    snprintf(text, sizeof(text), "hint: port %d is taken", address.port);
    assert_logged(text);
    /* And free again at once. */
    close(first);
    assert_int_equal(dpb_net_listen(NULL, NULL, address.port, &second, &again), DPB_OK);
    assert_int_equal(again.port, address.port);
    close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_where, net_log_begin),
            cmocka_unit_test_setup(test_nowhere, net_log_begin),
            cmocka_unit_test_setup(test_port, net_log_begin),
    };
    return DPB_RUN_TESTS(tests);
}
