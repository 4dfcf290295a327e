/* A door where descriptors are short. */
#include "dpb_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dpb_net.h"
#include "net_log.h"

/* How many of what a caller is to wait for are ready, and of how many. */
static int ready_of(const dpb_net_door *door, size_t *count)
{
    int fds[8];
    struct pollfd ready[8];
    *count = dpb_net_door_fds(door, fds, 8);
    for (size_t i = 0; i < *count; i++)
        ready[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    return poll(ready, *count, 0);
}

/* This process can open no more, whatever the limit was. */
static struct rlimit take_descriptors(void)
{
    struct rlimit before, none;
    const int lowest = dup(STDERR_FILENO);
    assert_true(lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)lowest, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

/* Who cannot be let in stays in the queue, where poll() sees it: a caller that went on waiting for
 * that would be woken at once, again and again. */
static void test_no_descriptors(void **state)
{
    (void)state;
    struct dpb_net_token token;
    struct dpb_net_address address, from;
    struct sockaddr_in to = {.sin_family = AF_INET};
    char role[DPB_NET_ROLE_BYTES];
    dpb_net_door *door;
    int listening, fd;
    size_t count;
    assert_int_equal(dpb_net_token_new(&token), DPB_OK);
    assert_int_equal(dpb_net_listen(NULL, NULL, 0, &listening, &address), DPB_OK);
    assert_int_equal(dpb_net_door_open(listening, &token, &door), DPB_OK);
    int guest = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = htons((uint16_t)address.port);
    assert_int_equal(inet_pton(AF_INET, address.host, &to.sin_addr), 1);
    assert_int_equal(connect(guest, (struct sockaddr *)&to, sizeof(to)), 0);
    assert_int_equal(ready_of(door, &count), 1);

    const struct rlimit before = take_descriptors();
    const dpb_status st = dpb_net_door_admit(door, &fd, role, &from);
    const int ready = ready_of(door, &count);
    const dpb_status again = dpb_net_door_admit(door, &fd, role, &from);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(st, DPB_PENDING);
    assert_int_equal(again, DPB_PENDING);
    assert_logged("cannot accept a connection: Too many open files");
    assert_null(strstr(strstr(net_log, "cannot accept") + 1, "cannot accept"));
    assert_int_equal(ready, 0);

    /* The next call lets it in, and is told of others. */
    assert_int_equal(dpb_net_door_admit(door, &fd, role, &from), DPB_PENDING);
    assert_int_equal(ready_of(door, &count), 0);
    assert_int_equal(count, 2);
    dpb_net_door_close(door);
    close(guest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_no_descriptors, net_log_begin),
    };
    return DPB_RUN_TESTS(tests);
}
