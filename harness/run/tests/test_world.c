#include "dpb_test.h"

/* Samples name what they are about; the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <stdlib.h>
#include <unistd.h>

#include "../../base/tests/log_capture.h"
#include "dpb_world.h"

static int start(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    capture_stop();
    return 0;
}

#define assert_not_logged(part)                                                                    \
    do {                                                                                           \
        if (strstr(captured.text, (part)))                                                         \
            fail_msg("in the log: %s\nthe log is:\n%s", (part), captured.text);                    \
    } while (0)

/* "a:1 b:2" */
static void assert_hosts(struct dpb_world_hosts *hosts, const char *text)
{
    struct dpb_str is = {0};
    int slots = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        dpb_str_appendf(&is, "%s%s:%d", i > 0 ? " " : "", hosts->items[i].name,
                        hosts->items[i].slots);
        slots += hosts->items[i].slots;
    }
    assert_string_equal(is.text, text);
    assert_int_equal(hosts->slots, slots);
    dpb_str_release(&is);
    dpb_world_hosts_release(hosts);
}

/* ---- lists ---- */

static void test_lists(void **state)
{
    static const struct {
        const char *text, *hosts;
    } lists[] = {
            {"node1:4,node2:4", "node1:4 node2:4"},
            {"node1", "node1:1"},
            {" a:2 , b:3 ", "a:2 b:3"},
            {"[fe80::1]:2,[::1]", "fe80::1:2 ::1:1"},
            {"fe80::1%eth0", "fe80::1%eth0:1"},
            {"10.0.0.1:8,10.0.0.2:8", "10.0.0.1:8 10.0.0.2:8"},
            {"a:2,b:1,a:3", "a:5 b:1"},
            {"a:1,A:1", "a:2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct dpb_world_hosts hosts;
        assert_int_equal(dpb_world_hosts_parse(lists[i].text, &hosts), DPB_OK);
        assert_hosts(&hosts, lists[i].hosts);
    }
}

static void test_list_is_merged_and_says_so(void **state)
{
    struct dpb_world_hosts hosts;
    (void)state;
    assert_int_equal(dpb_world_hosts_parse("a:2,b:1,a:3", &hosts), DPB_OK);
    assert_logged("host \"a\" is named again: it is one host with 5 slots");
    assert_not_logged("have a number");
    dpb_world_hosts_release(&hosts);
}

static void test_list_with_and_without_numbers_warns(void **state)
{
    struct dpb_world_hosts hosts;
    (void)state;
    assert_int_equal(dpb_world_hosts_parse("a:2,b", &hosts), DPB_OK);
    assert_logged("warning: --hosts: some hosts have a number of slots (\"a\") and some have none "
                  "(\"b\"): those have one");
    dpb_world_hosts_release(&hosts);
}

static void test_lists_that_are_none(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
            {"", "\"\" is no host: the name is empty"},
            {"a,,b", "the name is empty"},
            {":4", "\":4\" is no host: the name is empty"},
            {"a:0", "\"a:0\" is no host: slots are a number from 1 to 4096"},
            {"a:-1", "slots are a number"},
            {"a:4097", "slots are a number"},
            {"a:", "slots are a number"},
            {"a:4x", "slots are a number"},
            {"a b:2", "no host has such a name"},
            {"-x:2", "no host has such a name"},
            {"a;rm", "no host has such a name"},
            {"[::1:2", "the bracket is not closed"},
            {"[::1]4", "after the bracket"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_world_hosts hosts;
        capture_start();
        assert_int_equal(dpb_world_hosts_parse(bad[i].text, &hosts), DPB_ERR_USAGE);
        assert_logged(bad[i].why);
        assert_logged("hint: ");
        assert_null(hosts.items);
    }
}

/* ---- files ---- */

static dpb_status read_text(const char *text, struct dpb_world_hosts *hosts)
{
    char path[] = "/tmp/dpb-hosts-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    dpb_status st = dpb_world_hosts_read(path, hosts);
    unlink(path);
    return st;
}

static void test_files(void **state)
{
    static const struct {
        const char *text, *hosts;
    } files[] = {
            {"node1 slots=4 max_slots=8\nnode2 slots = 2\n", "node1:4 node2:2"},
            {"# ours\nnode1:4\n\n  node2:1 # the small one\n", "node1:4 node2:1"},
            {"node1\nnode1\nnode2", "node1:2 node2:1"},
            {"[::1]:3\r\n", "::1:3"},
            {"node1\tslots=2\tmax-slots=2", "node1:2"},
            {"\xef\xbb\xbfnode1 slots=2\n", "node1:2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct dpb_world_hosts hosts;
        assert_int_equal(read_text(files[i].text, &hosts), DPB_OK);
        assert_hosts(&hosts, files[i].hosts);
    }
}

static void test_files_that_are_none(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
            {"", "names no host"},
            {"# nothing\n\n", "names no host"},
            {"node1\nnode2 slots=x\n", ":2: \"node2 slots=x\" is no host: slots are a number"},
            {"node1 slots=0\n", ":1: \"node1 slots=0\""},
            {"node1 4\n", "only slots=N may follow"},
            {"node1 cpus=4\n", "only slots=N may follow"},
            {"node1:2 slots=4\n", "its slots are given twice"},
            {"no,de\n", "no host has such a name"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_world_hosts hosts;
        capture_start();
        assert_int_equal(read_text(bad[i].text, &hosts), DPB_ERR_USAGE);
        assert_logged(bad[i].why);
        assert_logged("/tmp/dpb-hosts-");
        assert_null(hosts.items);
    }
}

static void test_file_that_is_not_there(void **state)
{
    struct dpb_world_hosts hosts;
    (void)state;
    assert_int_equal(dpb_world_hosts_read("/nowhere/hosts", &hosts), DPB_ERR_NOT_FOUND);
    assert_logged("/nowhere/hosts");
}

/* ---- mapping ---- */

/* "0.0 0.1 1.0": node and local rank of each. */
static void assert_places(const struct dpb_world *world, const char *text)
{
    struct dpb_str is = {0};
    for (int r = 0; r < world->ranks; r++) {
        const struct dpb_world_place *p = &world->place[r];
        dpb_str_appendf(&is, "%s%d.%d", r > 0 ? " " : "", p->node, p->local_rank);
        assert_string_equal(p->host, world->node[p->node].name);
    }
    assert_string_equal(is.text, text);
    dpb_str_release(&is);
}

static void test_map(void **state)
{
    static const struct {
        const char *hosts;
        int ranks, per_node;
        const char *places;
        int ranks_per_node;
    } maps[] = {
            {"a:2,b:2", 4, 0, "0.0 0.1 1.0 1.1", 2},
            {"a:2,b:2", 3, 0, "0.0 0.1 1.0", 0},
            {"a:2,b:2", 2, 0, "0.0 0.1", 2},
            {"a:2,b:2", 1, 0, "0.0", 1},
            {"a:4,b:4", 4, 2, "0.0 0.1 1.0 1.1", 2},
            {"a:4,b:4,c:4", 3, 1, "0.0 1.0 2.0", 1},
            {"a:1,b:3", 4, 0, "0.0 1.0 1.1 1.2", 0},
            {"a:4,b:4", 7, 4, "0.0 0.1 0.2 0.3 1.0 1.1 1.2", 0},
            {"a:2,b:4", 6, 0, "0.0 0.1 1.0 1.1 1.2 1.3", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        struct dpb_world_hosts hosts;
        struct dpb_world world;
        assert_int_equal(dpb_world_hosts_parse(maps[i].hosts, &hosts), DPB_OK);
        assert_int_equal(dpb_world_map(&hosts, maps[i].ranks, maps[i].per_node, &world), DPB_OK);
        assert_places(&world, maps[i].places);
        assert_int_equal(world.ranks_per_node, maps[i].ranks_per_node);
        dpb_world_release(&world);
        dpb_world_hosts_release(&hosts);
    }
}

static void test_map_with_too_few_slots(void **state)
{
    struct dpb_world_hosts hosts;
    struct dpb_world world;
    (void)state;
    assert_int_equal(dpb_world_hosts_parse("a:2,b:3", &hosts), DPB_OK);
    assert_int_equal(dpb_world_map(&hosts, 6, 0, &world), DPB_ERR_UNAVAILABLE);
    assert_logged("6 ranks do not fit on 2 hosts, which take 5");
    assert_int_equal(dpb_world_map(&hosts, 5, 2, &world), DPB_ERR_UNAVAILABLE);
    assert_logged("5 ranks do not fit on 2 hosts, which take 4");
    assert_int_equal(dpb_world_map(&hosts, 6, 3, &world), DPB_ERR_UNAVAILABLE);
    assert_logged("host \"a\" has 2 slots, too few for 3 ranks per node");
    dpb_world_hosts_release(&hosts);
}

static void test_print_and_json(void **state)
{
    struct dpb_world_hosts hosts;
    struct dpb_world world;
    struct dpb_str text = {0};
    (void)state;
    assert_int_equal(dpb_world_hosts_parse("a:2,b:2", &hosts), DPB_OK);
    assert_int_equal(dpb_world_map(&hosts, 3, 0, &world), DPB_OK);
    dpb_world_print(&world);
    assert_logged("node 0  a  ranks 0-1\n");
    assert_logged("node 1  b  rank 2\n");
    dpb_json *json = dpb_world_json(&world);
    assert_int_equal(dpb_json_write(json, false, &text), DPB_OK);
    assert_string_equal(text.text,
                        "{\"ranks\":3,\"nodes\":2,\"ranks_per_node\":null,"
                        "\"ranks_per_node_reason\":\"nodes have different numbers of ranks\","
                        "\"hosts\":[{\"name\":\"a\",\"first_rank\":0,\"ranks\":2},"
                        "{\"name\":\"b\",\"first_rank\":2,\"ranks\":1}]}");
    dpb_str_release(&text);
    dpb_json_free(json);
    dpb_world_release(&world);
    dpb_world_hosts_release(&hosts);
}

/* Is the map printed? */
static bool announces(const char *hosts_text, int ranks)
{
    struct dpb_world_hosts hosts;
    struct dpb_world world;
    assert_int_equal(dpb_world_hosts_parse(hosts_text, &hosts), DPB_OK);
    assert_int_equal(dpb_world_map(&hosts, ranks, 0, &world), DPB_OK);
    capture_start();
    dpb_world_announce(&world);
    dpb_world_release(&world);
    dpb_world_hosts_release(&hosts);
    return strstr(captured.text, "node 0") != NULL;
}

static void test_announced_when_it_changes(void **state)
{
    (void)state;
    assert_false(announces("a:8", 8));
    assert_true(announces("a:2,b:2", 3));
    assert_false(announces("a:2,b:2", 3));
    assert_false(announces("a:2,b:2", 2));
    assert_true(announces("a:2,b:2", 4));
    assert_false(announces("a.example:2,B:2", 4));
    assert_true(announces("a:1,b:3", 4));
    assert_true(announces("a:1,c:3", 4));
}

/* ---- claims ---- */

#define CLAIMS_MAX 16

/* One process of a sample; machine and network follow from the host unless given. */
struct process {
    int rank, size;
    const char *host, *machine, *build, *settings;
    int local_rank; /* plus 1; 0: not told */
};

static dpb_status check(const struct process *p, int count, const struct dpb_world *expected,
                        struct dpb_world *world)
{
    struct dpb_world_claim claims[CLAIMS_MAX];
    memset(claims, 0, sizeof(claims));
    for (int i = 0; i < count; i++) {
        struct dpb_world_claim *c = &claims[i];
        const char *host = p[i].host ? p[i].host : "a";
        c->rank = p[i].rank;
        c->size = p[i].size;
        c->pid = 100 + i;
        c->local_rank = p[i].local_rank - 1;
        snprintf(c->host, sizeof(c->host), "%s", host);
        snprintf(c->machine, sizeof(c->machine), "%.30s", p[i].machine ? p[i].machine : host);
        snprintf(c->network, sizeof(c->network), "net");
        snprintf(c->build, sizeof(c->build), "%s", p[i].build ? p[i].build : "b0");
        snprintf(c->settings, sizeof(c->settings), "%s", p[i].settings ? p[i].settings : "s0");
    }
    return dpb_world_check(claims, count, expected, world);
}

static void test_claims_make_a_world(void **state)
{
    const struct process p[] = {{3, 5, "b"}, {0, 5, "a"}, {1, 5, "a"}, {4, 5, "b"}, {2, 5, "a"}};
    const struct process one[] = {{0, 1, "a"}};
    struct dpb_world world;
    (void)state;
    assert_int_equal(check(p, 5, NULL, &world), DPB_OK);
    assert_places(&world, "0.0 0.1 0.2 1.0 1.1");
    assert_int_equal(world.ranks_per_node, 0);
    assert_string_equal(captured.text, "");
    dpb_world_release(&world);
    assert_int_equal(check(one, 1, NULL, &world), DPB_OK);
    assert_places(&world, "0.0");
    dpb_world_release(&world);
}

static void test_claims_that_cannot_be(void **state)
{
    static const struct {
        int count;
        struct process p[CLAIMS_MAX];
        const char *why;
    } bad[] = {
            {3, {{0, 1}, {0, 1}, {0, 1}}, "3 processes were started, and every one is rank 0 of 1"},
            {2, {{-1, -1}, {-1, -1}}, "2 processes were started, and every one is rank 0 of 1"},
            {2,
             {{0, 3}, {1, 3}},
             "2 processes are there, but rank 0 (pid 100 on a) was told that there are 3, rank 1 "
             "(pid 101 on a) was told that there are 3"},
            {2, {{0, 2}, {1, -1}}, "rank 1 (pid 101 on a) was told no number"},
            {3,
             {{0, 3}, {1, 3, "b"}, {1, 3, "c"}},
             "rank 1 is claimed twice: by pid 101 on b and by pid 102 on c; missing: 2"},
            {3, {{0, 2}, {1, 2}, {1, 2}}, "by pid 101 on a and by pid 102 on a\n"},
            {4, {{0, 4}, {0, 4}, {0, 4}, {0, 4}}, "; missing: 1, 2, 3"},
            {2, {{0, 2}, {2, 2}}, "rank 2 (pid 101 on a) is not one of 2; missing: 1"},
            {3,
             {{0, 3}, {1, 3, "b", NULL, "b1"}, {2, 3, "b"}},
             "rank 1 (pid 101 on b) runs another dpbench than rank 0 on a"},
            {3,
             {{0, 3, "a", NULL, "b1"}, {1, 3}, {2, 3}},
             "rank 0 (pid 100 on a) runs another dpbench than rank 1 on a"},
            {2, {{0, 2}, {1, 2, "a", NULL, "b1"}}, "rank 1 (pid 101 on a) runs another dpbench"},
            {3,
             {{0, 3}, {1, 3, NULL, NULL, NULL, "s1"}, {2, 3, NULL, NULL, NULL, "s2"}},
             "rank 1 (pid 101 on a), rank 2 (pid 102 on a) was given another command line than "
             "rank 0 on a"},
            {3,
             {{0, 3, "a"}, {1, 3, "b"}, {2, 3, "a"}},
             "rank 2 (pid 102 on a) is apart from rank 0 of its host: ranks of a host must be "
             "consecutive, and rank 1 is on b"},
    };
    struct dpb_world world;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        capture_start();
        assert_int_equal(check(bad[i].p, bad[i].count, NULL, &world), DPB_ERR_UNAVAILABLE);
        assert_logged(bad[i].why);
        assert_logged("hint: ");
    }
}

static void test_long_lists_are_cut(void **state)
{
    struct process p[CLAIMS_MAX] = {{0}};
    struct dpb_world world;
    (void)state;
    for (int i = 0; i < CLAIMS_MAX; i++)
        p[i] = (struct process){i, 99, "a", NULL, NULL, NULL, 0};
    assert_int_equal(check(p, CLAIMS_MAX, NULL, &world), DPB_ERR_UNAVAILABLE);
    assert_logged("rank 7 (pid 107 on a) was told that there are 99 and 8 more");
    assert_not_logged("rank 8");
}

static void test_hosts_that_are_warned_about(void **state)
{
    static const struct {
        struct process p[2];
        const char *what;
    } samples[] = {
            {{{0, 2, "a", "m1"}, {1, 2, "a", "m2"}},
             "hosts \"a\" (rank 0) and \"a\" (rank 1) have one name"},
            {{{0, 2, "a.x", "m1"}, {1, 2, "a.y", "m2"}},
             "hosts \"a.x\" (rank 0) and \"a.y\" (rank 1) are the same up to the first dot"},
            {{{0, 2, "a", "m1"}, {1, 2, "b", "m1"}},
             "hosts \"a\" (rank 0) and \"b\" (rank 1) are one machine"},
    };
    struct dpb_world world;
    (void)state;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        capture_start();
        assert_int_equal(check(samples[i].p, 2, NULL, &world), DPB_OK);
        assert_logged(samples[i].what);
        assert_places(&world, "0.0 1.0");
        dpb_world_release(&world);
    }
}

/* Pods, each with a name of its own, on one machine. */
static void test_many_hosts_that_are_warned_about(void **state)
{
    struct process p[CLAIMS_MAX] = {{0}};
    char names[CLAIMS_MAX][8];
    struct dpb_world world;
    (void)state;
    for (int i = 0; i < CLAIMS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "pod%d", i);
        p[i] = (struct process){i, CLAIMS_MAX, names[i], "m1", NULL, NULL, 0};
    }
    assert_int_equal(check(p, CLAIMS_MAX, NULL, &world), DPB_OK);
    assert_logged("hosts \"pod0\" (rank 0) and \"pod8\" (rank 8) are one machine");
    assert_not_logged("pod9");
    assert_logged("7 more hosts are one machine, whose cores they share");
    dpb_world_release(&world);
}

static void test_other_local_rank_is_warned_about(void **state)
{
    const struct process p[] = {{0, 2, "a", NULL, NULL, NULL, 2}, {1, 2, "a", NULL, NULL, NULL, 1}};
    struct dpb_world world;
    (void)state;
    assert_int_equal(check(p, 2, NULL, &world), DPB_OK);
    assert_logged("rank 0 was told that it is number 1 of its host, and is number 0");
    dpb_world_release(&world);
}

static void expect(const char *list, int ranks, struct dpb_world *expected)
{
    struct dpb_world_hosts hosts;
    assert_int_equal(dpb_world_hosts_parse(list, &hosts), DPB_OK);
    assert_int_equal(dpb_world_map(&hosts, ranks, 0, expected), DPB_OK);
    dpb_world_hosts_release(&hosts);
}

static void test_as_asked_for(void **state)
{
    const struct process p[] = {{0, 3, "a.example"}, {1, 3, "a.example"}, {2, 3, "other"}};
    struct dpb_world expected, world;
    (void)state;
    expect("a:2,b:2", 3, &expected);
    assert_int_equal(check(p, 3, &expected, &world), DPB_OK);
    assert_logged("rank 2 is on host \"other\", which was called \"b\"");
    assert_not_logged("a.example");
    dpb_world_release(&world);
    dpb_world_release(&expected);
    capture_start();
    expect("10.0.0.1:2,localhost:1", 3, &expected);
    assert_int_equal(check(p, 3, &expected, &world), DPB_OK);
    assert_string_equal(captured.text, "");
    dpb_world_release(&world);
    dpb_world_release(&expected);
}

static void test_more_ranks_than_asked_for(void **state)
{
    const struct process p[] = {{0, 3, "a"}, {1, 3, "a"}, {2, 3, "a"}};
    struct dpb_world expected, world;
    (void)state;
    expect("a:2,b:2", 3, &expected);
    assert_int_equal(check(p, 3, &expected, &world), DPB_ERR_UNAVAILABLE);
    assert_logged("host a has ranks 0 to 2, but \"a\" was to have 2 of them, and rank 2 was to be "
                  "on \"b\"");
    dpb_world_release(&expected);
}

static void test_spread_wider_than_asked_for(void **state)
{
    const struct process p[] = {{0, 2, "a"}, {1, 2, "c"}};
    struct dpb_world expected, world;
    (void)state;
    expect("a:2", 2, &expected);
    assert_int_equal(check(p, 2, &expected, &world), DPB_OK);
    assert_logged("\"a\" was to have 2 ranks; 1 are together on \"a\"");
    dpb_world_release(&world);
    dpb_world_release(&expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_lists),
            TEST(test_list_is_merged_and_says_so),
            TEST(test_list_with_and_without_numbers_warns),
            TEST(test_lists_that_are_none),
            TEST(test_files),
            TEST(test_files_that_are_none),
            TEST(test_file_that_is_not_there),
            TEST(test_map),
            TEST(test_map_with_too_few_slots),
            TEST(test_print_and_json),
            TEST(test_announced_when_it_changes),
            TEST(test_claims_make_a_world),
            TEST(test_claims_that_cannot_be),
            TEST(test_long_lists_are_cut),
            TEST(test_hosts_that_are_warned_about),
            TEST(test_many_hosts_that_are_warned_about),
            TEST(test_other_local_rank_is_warned_about),
            TEST(test_as_asked_for),
            TEST(test_more_ranks_than_asked_for),
            TEST(test_spread_wider_than_asked_for),
    };
    return DPB_RUN_TESTS(tests);
}
