#include "dpb_test.h"

#include "dpb_log.h"
#include "dpb_machine.h"

static char logged[4096];

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    const size_t length = strlen(logged);

    (void)ctx;
    (void)level;
    snprintf(logged + length, sizeof(logged) - length, "%s\n", line);
}

static void assert_not_set(struct dpb_machine *machine, const char *key, const char *text,
                           const char *reason)
{
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    assert_int_equal(dpb_machine_set(machine, key, text, "a test"), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    if (!strstr(logged, reason))
        fail_msg("%s, not %s", logged, reason);
}

static void test_a_figure_is_set(void **state)
{
    struct dpb_machine machine;

    (void)state;
    assert_int_equal(dpb_machine_find("dgx-a100", &machine), DPB_OK);
    assert_int_equal(dpb_machine_set(&machine, "inside.rate", "600GB/s", "a test"), DPB_OK);
    assert_true(machine.figure[DPB_FIGURE_INSIDE_RATE].value == 600e9);
    assert_true(machine.figure[DPB_FIGURE_INSIDE_RATE].is_assumed);
    assert_string_equal(machine.figure[DPB_FIGURE_INSIDE_RATE].source, "a test");
    assert_int_equal(dpb_machine_set(&machine, "power", "700W", "a test"), DPB_OK);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_POWER, 0) == 700);
    assert_not_set(&machine, "inside.rat", "600GB/s", "did you mean \"inside.rate\"?");
    assert_not_set(&machine, "inside.rate", "600", "inside.rate: \"600\"");
    assert_not_set(&machine, "inside.rate", "1B/s", "is not between");
    assert_true(machine.figure[DPB_FIGURE_INSIDE_RATE].value == 600e9);
    dpb_machine_release(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_a_figure_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
