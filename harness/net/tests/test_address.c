/* Addresses and tokens as texts. */
#include "dpb_test.h"

#include "dpb_net.h"
#include "net_log.h"

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int default_port;
        const char *host;
        int port;
        const char *again;
    } good[] = {
            {"node1:29400", -1, "node1", 29400, "node1:29400"},
            {"10.0.0.1:1", -1, "10.0.0.1", 1, "10.0.0.1:1"},
            {"10.0.0.1:65535", 7, "10.0.0.1", 65535, "10.0.0.1:65535"},
            {"node1.example", 29400, "node1.example", 29400, "node1.example:29400"},
            {"node1", 0, "node1", 0, "node1:0"},
            {"[::1]:29400", -1, "::1", 29400, "[::1]:29400"},
            {"[fe80::1%eth0]:2", -1, "fe80::1%eth0", 2, "[fe80::1%eth0]:2"},
            {"[2001:db8::7]", 99, "2001:db8::7", 99, "[2001:db8::7]:99"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct dpb_net_address address;
        char why[256] = "";
        char text[DPB_NET_ADDRESS_BYTES];
        if (dpb_net_address_parse(good[i].text, good[i].default_port, &address, why, sizeof(why)) !=
            DPB_OK)
            fail_msg("%s: %s", good[i].text, why);
        assert_string_equal(address.host, good[i].host);
        assert_int_equal(address.port, good[i].port);
        dpb_net_address_text(&address, text);
        assert_string_equal(text, good[i].again);
    }
}

static void test_parse_errors(void **state)
{
    (void)state;
    char long_host[DPB_NET_HOST_BYTES + 8];
    memset(long_host, 'a', sizeof(long_host));
    snprintf(long_host + DPB_NET_HOST_BYTES, 8, ":1");
    const struct {
        const char *text;
        int default_port;
        const char *why;
    } bad[] = {
            {"", 1, "no host"},
            {":29400", 1, "no host"},
            {"[]:29400", 1, "no host"},
            {"node1", -1, "there is no port"},
            {"[::1]", -1, "there is no port"},
            {"node1:", 1, "\"\" is no port"},
            {"node1:0", 1, "\"0\" is no port"},
            {"node1:65536", 1, "\"65536\" is no port"},
            {"node1:99999999999999999999", 1, "is no port"},
            {"node1:-5", 1, "\"-5\" is no port"},
            {"node1:80x", 1, "\"80x\" is no port"},
            {"node1: 80", 1, "\" 80\" is no port"},
            {"node 1:80", 1, "\"node 1\" is no host"},
            {"http://node1:80", 1, "is no port"},
            {"::1", 1, "in brackets: [::1]:29400"},
            {"fe80::1:29400", 1, "in brackets"},
            {"[node1]:80", 1, "\"node1\" is no IPv6 address"},
            {"[::1:80", 1, "is no host"},
            {"[::1]80", 1, "\"80\" is no port"},
            {long_host, 1, "more than 255 characters"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_net_address address = {.host = "kept", .port = 5};
        char why[256] = "";
        assert_int_equal(
                dpb_net_address_parse(bad[i].text, bad[i].default_port, &address, why, sizeof(why)),
                DPB_ERR_USAGE);
        if (!strstr(why, bad[i].why))
            fail_msg("%s: %s", bad[i].text, why);
        assert_string_equal(address.host, "kept");
        assert_int_equal(address.port, 5);
    }
}

static void test_token(void **state)
{
    (void)state;
    struct dpb_net_token one;
    struct dpb_net_token other;
    char text[DPB_NET_TOKEN_TEXT];
    assert_int_equal(dpb_net_token_new(&one), DPB_OK);
    assert_int_equal(dpb_net_token_new(&other), DPB_OK);
    assert_memory_not_equal(one.bytes, other.bytes, DPB_NET_TOKEN_BYTES);

    dpb_net_token_text(&one, text);
    assert_int_equal(strlen(text), DPB_NET_TOKEN_TEXT - 1);
    assert_int_equal(strspn(text, "0123456789abcdef"), DPB_NET_TOKEN_TEXT - 1);
    assert_int_equal(dpb_net_token_from_text(text, &other), DPB_OK);
    assert_memory_equal(one.bytes, other.bytes, DPB_NET_TOKEN_BYTES);

    assert_int_equal(dpb_net_token_from_text("a secret of users", &one), DPB_OK);
    assert_int_equal(dpb_net_token_from_text("a secret of users", &other), DPB_OK);
    assert_memory_equal(one.bytes, other.bytes, DPB_NET_TOKEN_BYTES);
    assert_int_equal(dpb_net_token_from_text("a secret of users!", &other), DPB_OK);
    assert_memory_not_equal(one.bytes, other.bytes, DPB_NET_TOKEN_BYTES);
    assert_nothing_logged();
}

static void test_token_too_short(void **state)
{
    (void)state;
    struct dpb_net_token token;
    assert_int_equal(dpb_net_token_from_text("", &token), DPB_ERR_USAGE);
    assert_int_equal(dpb_net_token_from_text("fifteen-letters", &token), DPB_ERR_USAGE);
    assert_int_equal(dpb_net_token_from_text("sixteen--letters", &token), DPB_OK);
    assert_logged("has 15 characters");
    assert_not_logged("fifteen");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_parse),
            cmocka_unit_test(test_parse_errors),
            cmocka_unit_test_setup(test_token, net_log_begin),
            cmocka_unit_test_setup(test_token_too_short, net_log_begin),
    };
    return DPB_RUN_TESTS(tests);
}
