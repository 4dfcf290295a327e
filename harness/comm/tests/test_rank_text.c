/* Sentences about ranks that did not come. */
#include "dpb_test.h"

#include "rank_text.h"

#define RANKS 40

static void check(void (*write)(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks),
                  const struct dpb_rank_seen *seen, const char *expected)
{
    struct dpb_str text = {0};
    write(&text, seen, RANKS);
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
}

static void last_seen(struct dpb_str *text, const struct dpb_rank_seen *seen, int ranks)
{
    dpb_rank_text_last_seen(text, seen, ranks, "call");
}

static void test_ranks(void **state)
{
    (void)state;
    struct dpb_rank_seen seen[RANKS] = {0};
    seen[3].listed = true;
    check(dpb_rank_text, seen, "rank 3");
    seen[39].listed = true;
    check(dpb_rank_text, seen, "ranks 3 and 39");
    seen[5].listed = true;
    check(dpb_rank_text, seen, "ranks 3, 5 and 39");
    for (int r = 0; r < 16; r++)
        seen[r].listed = true;
    seen[39].listed = false;
    check(dpb_rank_text, seen, "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 and 15");
    for (int r = 0; r < RANKS; r++)
        seen[r].listed = true;
    check(dpb_rank_text, seen,
          "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 24 more");
}

static void test_hosts(void **state)
{
    (void)state;
    struct dpb_rank_seen seen[RANKS] = {0};
    for (int r = 0; r < RANKS; r++)
        seen[r].host = r < 4 ? "node1" : r < 8 ? "node2" : "node3";
    seen[2].listed = true;
    check(dpb_rank_text, seen, "rank 2 (node1)");
    seen[3].listed = true;
    check(dpb_rank_text, seen, "ranks 2 and 3 (node1)");
    seen[7].listed = seen[9].listed = true;
    check(dpb_rank_text, seen, "ranks 2, 3 (node1), 7 (node2) and 9 (node3)");
    for (int r = 0; r < RANKS; r++)
        seen[r].listed = true;
    check(dpb_rank_text, seen,
          "ranks 0, 1, 2, 3 (node1), 4, 5, 6, 7 (node2), 8, 9, 10, 11, 12, 13, 14, 15 (node3) and "
          "24 more");
}

static void test_last_seen(void **state)
{
    (void)state;
    struct dpb_rank_seen seen[RANKS] = {0};
    seen[1].listed = seen[2].listed = true;
    check(last_seen, seen, "never seen");
    seen[1].at = seen[2].at = 16;
    check(last_seen, seen, "last seen at call #16");
    seen[2].at = 0;
    check(last_seen, seen, "last seen at call #16, #0");
    for (int r = 0; r < RANKS; r++)
        seen[r] = (struct dpb_rank_seen){.listed = true, .at = (uint64_t)r};
    check(last_seen, seen,
          "last seen at call #0, #1, #2, #3, #4, #5, #6, #7, #8, #9, #10, #11, #12, #13, #14, #15");
}

static void test_hint(void **state)
{
    (void)state;
    struct dpb_rank_seen seen[RANKS] = {0};
    seen[1].listed = seen[2].listed = true;
    check(dpb_rank_text_hint, seen,
          "were they started? --timeout sets how long ranks wait for each other");
    seen[2].pid = 77;
    check(dpb_rank_text_hint, seen,
          "look at process 77 (rank 2): stopped, busy or gone? --timeout sets how long ranks wait "
          "for each other");
    seen[1] = (struct dpb_rank_seen){.listed = true, .pid = 5, .host = "node1"};
    seen[2].host = "node2";
    check(dpb_rank_text_hint, seen,
          "look at process 5 (rank 1) on node1, 77 (rank 2) on node2: stopped, busy or gone? "
          "--timeout sets how long ranks wait for each other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_ranks),
            cmocka_unit_test(test_hosts),
            cmocka_unit_test(test_last_seen),
            cmocka_unit_test(test_hint),
    };
    return DPB_RUN_TESTS(tests);
}
