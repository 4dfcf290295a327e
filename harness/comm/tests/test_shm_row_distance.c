#include "dpb_test.h"

#include <inttypes.h>

#include "shm_row_distance.h"

#define PAGE ((uint64_t)4096)
#define MOST ((uint64_t)2 << 20) /* above the region */

/* The hash, bit by bit as it was published. */
static unsigned tag_of(uint64_t address)
{
    static const int pair[8][2] = {{12, 27}, {13, 26}, {14, 25}, {15, 20},
                                   {16, 21}, {17, 22}, {18, 23}, {19, 24}};
    unsigned tag = 0;
    for (int i = 0; i < 8; i++)
        tag |= (unsigned)((address >> pair[i][0] ^ address >> pair[i][1]) & 1) << i;
    return tag;
}

static uint8_t tag[65536]; /* by the bits that it depends on */

static int list_tags(void **state)
{
    (void)state;
    for (uint64_t page = 0; page < 65536; page++)
        tag[page] = (uint8_t)tag_of(page * PAGE);
    return 0;
}

/* Pages, of all 65,536, that have the tag of the page so far behind them. */
static int alike(uint64_t distance)
{
    int count = 0;
    for (uint64_t page = 0; page < 65536; page++)
        count += tag[page] == tag[(page + distance / PAGE) & 0xffff];
    return count;
}

static void check(uint64_t region, int ranks)
{
    const uint64_t distance = dpb_shm_row_distance(region, PAGE, ranks);
    assert_true(distance >= region && distance < region + MOST);
    assert_int_equal(distance % PAGE, 0);
    for (int apart = 1; apart < ranks; apart++)
        if (alike((uint64_t)apart * distance) != 0)
            fail_msg("%d ranks, regions of %#" PRIx64 " bytes: %d apart, %d pages are alike", ranks,
                     region, apart, alike((uint64_t)apart * distance));
}

/* What this is for: without more pages these are alike everywhere, or every second time. */
static void test_the_tag_is_the_one_that_was_measured(void **state)
{
    (void)state;
    assert_int_equal(alike(0x10000000), 65536);
    assert_int_equal(alike(0x40000000), 65536);
    assert_int_equal(alike(0x8001000), 32770);
    assert_int_equal(alike(0x10010000), 0);
}

static void test_powers_of_two(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4, 8};
    for (uint64_t region = PAGE; region <= (uint64_t)1 << 36; region *= 2)
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
            check(region, ranks[i]);
}

static void test_sizes_that_collide_though_they_are_odd(void **state)
{
    (void)state;
    static const uint64_t regions[] = {0x7fff000, 0x8001000, 0xf8000,   0x108000,  0x1ffc000,
                                       0x4002000, 0xfe10000, 0xfef8000, 0x77bf000, 0x1a400000};
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++)
        for (int ranks = 2; ranks <= 9; ranks++)
            check(regions[i], ranks);
}

static void test_as_many_ranks_as_there_can_be(void **state)
{
    (void)state;
    static const uint64_t regions[] = {PAGE, 0x8001000, 0x10000000, 0x1234000};
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++)
        for (int ranks = 16; ranks <= 64; ranks *= 2)
            check(regions[i], ranks);
}

/* Every residue of the size: the search never gives up. */
static void test_there_is_a_distance_for_every_size(void **state)
{
    (void)state;
    for (uint64_t region = 0x10000000; region < 0x20000000; region += 61 * PAGE)
        check(region, 4);
    for (uint64_t region = 0x10000000; region < 0x20000000; region += 4099 * PAGE)
        check(region, 64);
}

/* What collides with nothing stays as it is; so does what larger pages cannot help. */
static void test_nothing_is_added_without_need(void **state)
{
    (void)state;
    assert_int_equal(dpb_shm_row_distance(0x10000000, PAGE, 1), 0x10000000);
    assert_int_equal(dpb_shm_row_distance(0x10010000, PAGE, 2), 0x10010000);
    assert_int_equal(dpb_shm_row_distance((size_t)1 << 28, (size_t)1 << 28, 2), (size_t)1 << 28);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_the_tag_is_the_one_that_was_measured),
            cmocka_unit_test(test_powers_of_two),
            cmocka_unit_test(test_sizes_that_collide_though_they_are_odd),
            cmocka_unit_test(test_as_many_ranks_as_there_can_be),
            cmocka_unit_test(test_there_is_a_distance_for_every_size),
            cmocka_unit_test(test_nothing_is_added_without_need),
    };
    return cmocka_run_group_tests(tests, list_tags, NULL);
}
