/* Tables and settings. */
#include "dpb_test.h"
#include "log_capture.h"
#include "sample_options.h"

static int setup(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    capture_stop();
    return 0;
}

/* ---- tables ---- */

static void test_good_tables_pass(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < sample_set.table_count; i++) {
        if (sample_tables[i])
            assert_int_equal(dpb_option_table_check(sample_tables[i], &sample_set), DPB_OK);
    }
    /* a part's own test knows no other parts */
    assert_int_equal(dpb_option_table_check(&sample_core_table, NULL), DPB_OK);
    assert_string_equal(captured.text, "");
}

static struct dpb_option good_row(void)
{
    return (struct dpb_option){"name", DPB_OPT_INT, 0,    "1",        0, 10,
                               NULL,   "Run",       NULL, "a number", 0, 0};
}

static void assert_bad_table(const char *kind, const struct dpb_option *rows, size_t count,
                             const char *reason)
{
    const struct dpb_option_table table = {kind, "part", rows, count, 64};

    capture_start();
    assert_int_equal(dpb_option_table_check(&table, &sample_set), DPB_ERR_INTERNAL);
    assert_logged(reason);
}

static void test_bad_tables_are_found(void **state)
{
    struct dpb_option rows[2] = {good_row(), good_row()};
    const struct dpb_option_table none = {0};

    (void)state;
    assert_int_equal(dpb_option_table_check(NULL, NULL), DPB_ERR_INTERNAL);
    assert_int_equal(dpb_option_table_check(&none, NULL), DPB_ERR_INTERNAL);
    assert_bad_table("comm", rows, 2, "occurs twice");
    rows[1].name = "other";
    assert_bad_table("comm", rows, 2, "overlaps");
    rows[1].offset = 60;
    assert_bad_table("comm", rows, 2, "outside the config struct");
    rows[1].offset = SIZE_MAX;
    assert_bad_table("comm", rows, 2, "outside the config struct");

#define BAD(member, value, reason)                                                                 \
    rows[0] = good_row();                                                                          \
    rows[0].member = value;                                                                        \
    assert_bad_table("comm", rows, 1, reason)
    BAD(name, "Upper", "lower-case");
    BAD(name, "-x", "lower-case");
    BAD(name, NULL, "lower-case");
    BAD(name, "help", "--help already");
    BAD(default_text, NULL, "no default");
    BAD(default_text, "11", "out of range: at most 10");
    BAD(default_text, "x", "not a whole number");
    BAD(help, "", "help or category");
    BAD(category, NULL, "help or category");
    BAD(choices, sample_precisions, "choices belong to ENUM");
    BAD(type, DPB_OPT_ENUM, "ENUM needs them");
    BAD(min, 11, "range is empty");
    BAD(short_flag, 'n', "commands only");
#undef BAD
    rows[0] = good_row();
    rows[0].type = DPB_OPT_BOOL;
    rows[0].default_text = "on";
    assert_bad_table("command", rows, 1, "starts off");
    rows[0].flags = DPB_OPT_AUTO;
    assert_bad_table("comm", rows, 1, "cannot be auto");
    rows[0] = good_row();
    rows[0].short_flag = 'h';
    assert_bad_table("command", rows, 1, "the h of --help");
    rows[0] = sample_core_rows[12]; /* workload */
    rows[0].offset = 0;
    rows[0].default_text = "mpl";
    {
        const struct dpb_option_table table = {"experiment", "", rows, 1,
                                               sizeof(struct sample_core)};

        capture_start();
        assert_int_equal(dpb_option_table_check(&table, &sample_set), DPB_ERR_INTERNAL);
        assert_logged("did you mean \"mlp\"?");
    }
}

static void test_find(void **state)
{
    const struct dpb_option_table *table = NULL;

    (void)state;
    assert_ptr_equal(dpb_option_find(&sample_set, "bucket", &table), &sample_ddp_rows[0]);
    assert_ptr_equal(table, &sample_ddp_table);
    assert_ptr_equal(dpb_option_find(&sample_set, "gather", NULL), &sample_zero1_rows[1]);
    assert_null(dpb_option_find(&sample_set, "nothing", &table));
}

/* ---- settings ---- */

/* The values of a setting that is taken, joined by '|'. */
static void assert_taken(const char *name, const char *text, const char *expected)
{
    struct dpb_settings settings = {0};
    const struct dpb_setting *setting;
    struct dpb_str joined = {0};
    size_t i;

    capture_start();
    if (dpb_settings_add(&settings, &sample_set, name, text, "--x") != DPB_OK)
        fail_msg("--%s %s was refused: %s", name, text, captured.text);
    setting = dpb_settings_find(&settings, name);
    assert_non_null(setting);
    assert_string_equal(setting->origin, "--x");
    for (i = 0; i < setting->value_count; i++)
        dpb_str_appendf(&joined, "%s%s", i ? "|" : "", setting->values[i]);
    assert_string_equal(joined.text, expected);
    dpb_str_release(&joined);
    dpb_settings_release(&settings);
    assert_null(settings.items);
}

static void assert_refused(const char *name, const char *text, const char *message)
{
    struct dpb_settings settings = {0};
    char flag[64];

    capture_start();
    snprintf(flag, sizeof(flag), "--%s", name);
    assert_int_equal(dpb_settings_add(&settings, &sample_set, name, text, flag), DPB_ERR_USAGE);
    assert_int_equal(settings.count, 0);
    assert_logged(message);
    assert_logged("\ndpbench: hint: ");
    dpb_settings_release(&settings);
}

static void test_values(void **state)
{
    (void)state;
    assert_taken("ranks", "1", "1");
    assert_taken("ranks", "1,2,4", "1|2|4");
    assert_taken("ranks", "1e2", "100");
    assert_taken("bucket", "1024KiB,25MiB,auto", "1MiB|25MiB|auto");
    assert_taken("timeout", "1500ms", "1500ms");
    assert_taken("efficiency", "85%,0.9", "0.85|0.9");
    assert_taken("disk", "3GB/s", "24Gbps");
    assert_taken("noise", "0.10", "0.1");
    assert_taken("noise", "auto", "auto");
    assert_taken("overlap", "true,0", "on|off");
    assert_taken("precision", "bf16,fp32", "bf16|fp32");
    assert_taken("strategy", "none,ddp", "none|ddp");
    assert_taken("label", "a,b", "a|b");
    assert_taken("hosts", "a,b", "a,b"); /* one text, for it is no axis */
    assert_taken("link", "none", "none");
    assert_taken("link", "25Gbps,5us", "25Gbps,5us");
    assert_taken("link", "25Gbps,5us,none", "25Gbps,5us|none");
    assert_taken("link", "none,25Gbps,5us,1Gbps,0", "none|25Gbps,5us|1Gbps,0");
    /* zero1 takes what ddp refuses */
    assert_taken("bucket", "100B", "100B");
}

static void test_ranges(void **state)
{
    (void)state;
    assert_taken("ranks", "1..4", "1|2|3|4");
    assert_taken("ranks", "8..4096:x2", "8|16|32|64|128|256|512|1024|2048|4096");
    assert_taken("ranks", "8..36:+8", "8|16|24|32");
    assert_taken("ranks", "3..3", "3");
    assert_taken("ranks", "1..2,8..32:x4,100", "1|2|8|32|100");
    assert_taken("seed", "-1..1", "-1|0|1");
    assert_taken("seed", "9223372036854775806..9223372036854775807",
                 "9223372036854775806|9223372036854775807");
    assert_taken("label", "1..4", "1..4"); /* a text */
    assert_refused("ranks", "1..4,2", "the list has \"2\" twice");
    assert_refused("ranks", "0..4", "\"0\" is out of range: at least 1");
    assert_refused("ranks", "4..2", "\"4..2\" is not a range: it ends below its start");
    assert_refused("ranks", "1..", "is not a range: both ends must be whole numbers");
    assert_refused("ranks", "..", "is not a range: both ends must be whole numbers");
    assert_refused("ranks", "1..8:2", "the step must be a factor such as :x2");
    assert_refused("ranks", "1..8:x", "the step must be a whole number");
    assert_refused("ranks", "1..8:x1", "the factor must be at least 2");
    assert_refused("ranks", "1..8:+0", "the step must be at least 1");
    assert_refused("seed", "0..8:x2", "what is multiplied must start at 1 or above");
    assert_refused("ranks", "1..65536", "it has too many values");
    assert_refused("seed", "-9e18..9e18", "it has too many values");
}

static void test_refused_values(void **state)
{
    (void)state;
    assert_refused("ranks", "0", "error: --ranks: \"0\" is out of range: at least 1\n");
    assert_logged(
            "hint: give a whole number from 1 to 65536, or a list such as 1,2,4 or 8..64:x2\n");
    assert_refused("ranks", "65537", "\"65537\" is out of range: at most 65536\n");
    assert_refused("ranks", "1e99", "\"1e99\" is out of range: at most 65536\n");
    assert_refused("ranks", "-1e99", "\"-1e99\" is out of range: at least 1\n");
    assert_refused("ranks", "-5", "\"-5\" is out of range: at least 1\n");
    assert_refused("ranks", "abc", "\"abc\" is not a whole number: a number is expected");
    assert_refused("ranks", "2.5", "\"2.5\" is not a whole number: it has a fraction");
    assert_refused("ranks", "4x", "\"4x\" is not a whole number: unexpected 'x'");
    assert_refused("ranks", "auto", "\"auto\" is not a whole number");
    assert_refused("seed", "-9223372036854775808", "is out of range");
    assert_refused("seed", "1e99", "is out of range: at most 9223372036854775807");
    assert_refused("bucket", "10XB",
                   "error: --bucket: \"10XB\" is not a size: unknown unit 'XB'; use B, KB, KiB");
    assert_logged("hint: give a size from 1KiB to 1TiB such as 25MiB, or auto\n");
    assert_refused("bucket", "true", "\"true\" is not a size");
    assert_refused("bucket", "0.3B", "\"0.3B\" is not a size: not a whole number of bytes");
    assert_refused("bucket", "0", "\"0\" is out of range: at least 1KiB");
    assert_refused("bucket", "2TiB", "at most 1TiB");
    assert_refused("bucket", "-1MiB", "it is negative");
    assert_refused("timeout", "5", "\"5\" is not a duration: the unit is missing");
    assert_refused("timeout", "2h", "\"2h\" is out of range: at most 1h");
    assert_refused("disk", "inf", "\"inf\" is not a rate");
    assert_refused("noise", "nan", "\"nan\" is not a number");
    assert_refused("noise", "inf", "\"inf\" is not a number");
    assert_refused("noise", "1e999", "is out of range: at most 10");
    assert_refused("efficiency", "101%", "is out of range: at most 1");
    assert_refused("overlap", "maybe", "\"maybe\" is neither on nor off");
    assert_refused("overlap", "False", "\"False\" is neither on nor off");
    assert_refused("precision", "bf61", "did you mean \"bf16\"?");
    assert_logged("hint: give one of: fp32, bf16\n");
    assert_refused("strategy", "dpp", "\"dpp\" is no strategy; did you mean \"ddp\"?");
    assert_logged("dpbench list strategies");
    assert_logged("hint: give one of: none, ddp, zero1\n");
    assert_refused("workload", "transformer",
                   "\"transformer\" is no workload (dpbench list workloads)");
    assert_refused("link", "25Gbps", "the latency is missing");
    assert_logged("such as 25Gbps,5us, or none");
    assert_refused("link", "25Gbps,5", "is not a link: the unit is missing; use ns");
    assert_refused("link", "fast,5us", "is not a link: a number is expected");
    assert_refused("link", "0bps,5us", "the rate must be above 0");
    assert_refused("label", "a\x1b", "has a control character in it");
    assert_refused("label", "\xff", "is not valid UTF-8");
}

static void test_text_length(void **state)
{
    char text[DPB_OPTION_TEXT_BYTES + 1];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[DPB_OPTION_TEXT_BYTES - 1] = '\0';
    assert_taken("label", text, text);
    text[DPB_OPTION_TEXT_BYTES - 1] = 'x';
    text[DPB_OPTION_TEXT_BYTES] = '\0';
    assert_refused("label", text, "is longer than 511 bytes");
}

static void test_lists(void **state)
{
    (void)state;
    assert_refused("ranks", "", "--ranks: the value is empty");
    assert_refused("ranks", "1,,2", "--ranks: an element of the list is empty");
    assert_refused("ranks", "1,", "--ranks: an element of the list is empty");
    assert_refused("ranks", "1,2,1", "--ranks: the list has \"1\" twice");
    assert_refused("bucket", "1MiB,1024KiB", "the list has \"1024KiB\" twice");
    assert_refused("link", "25Gbps,5us,25Gbps,5us", "the list has \"25Gbps,5us\" twice");
    assert_refused("timeout", "1s,2s",
                   "--timeout: a list is given, but the option takes one value");
    /* every mistake of a list is told */
    assert_refused("ranks", "0,x", "\"0\" is out of range");
    assert_logged("\"x\" is not a whole number");
}

static void test_names(void **state)
{
    struct dpb_settings settings = {0};

    (void)state;
    assert_refused("buckt", "1MiB", "unknown option \"--buckt\"");
    assert_logged("did you mean \"--bucket\"?");
    assert_logged("dpbench list options");
    assert_refused("qqqqqqqq", "1", "unknown option \"--qqqqqqqq\"");

    capture_start();
    assert_int_equal(dpb_settings_add(&settings, &sample_set, "buckt", "1MiB", "a.yaml:3:4"),
                     DPB_ERR_USAGE);
    assert_logged("error: a.yaml:3:4: unknown option \"buckt\"\n");
    assert_logged("did you mean \"bucket\"?");
    assert_int_equal(dpb_settings_add(&settings, &sample_set, "ranks", "2", "a.yaml:1:2"), DPB_OK);
    assert_int_equal(dpb_settings_add(&settings, &sample_set, "ranks", "4", "a.yaml:3:4"),
                     DPB_ERR_USAGE);
    assert_logged("error: a.yaml:3:4: ranks: given already at a.yaml:1:2\n");
    assert_int_equal(settings.count, 1);
    assert_string_equal(settings.items[0].values[0], "2");
    dpb_settings_release(&settings);
}

static void test_separate_values(void **state)
{
    const char *const two[] = {"1", "2"}, *const links[] = {"25Gbps,5us", "none"};
    struct dpb_settings settings = {0};

    (void)state;
    assert_int_equal(dpb_settings_add_list(&settings, &sample_set, "ranks", two, 2, "f:1:1"),
                     DPB_OK);
    assert_int_equal(dpb_settings_add_list(&settings, &sample_set, "link", links, 2, "f:2:1"),
                     DPB_OK);
    assert_int_equal(settings.items[1].value_count, 2);
    assert_int_equal(dpb_settings_add_list(&settings, &sample_set, "seed", two, 0, "f:3:1"),
                     DPB_ERR_USAGE);
    assert_logged("f:3:1: seed: the list is empty");
    dpb_settings_release(&settings);
}

static void test_override(void **state)
{
    struct dpb_settings file = {0}, flags = {0};

    (void)state;
    assert_int_equal(dpb_settings_add(&file, &sample_set, "ranks", "1,2", "f:1:1"), DPB_OK);
    assert_int_equal(dpb_settings_add(&file, &sample_set, "seed", "1", "f:1:2"), DPB_OK);
    assert_int_equal(dpb_settings_add(&flags, &sample_set, "ranks", "8", "--ranks"), DPB_OK);
    assert_int_equal(dpb_settings_add(&flags, &sample_set, "overlap", "off", "--overlap"), DPB_OK);
    assert_int_equal(dpb_settings_override(&file, &flags), DPB_OK);
    dpb_settings_release(&flags);
    assert_int_equal(file.count, 3);
    assert_int_equal(dpb_settings_find(&file, "ranks")->value_count, 1);
    assert_string_equal(dpb_settings_find(&file, "ranks")->values[0], "8");
    assert_string_equal(dpb_settings_find(&file, "ranks")->origin, "--ranks");
    assert_string_equal(dpb_settings_find(&file, "seed")->values[0], "1");
    assert_string_equal(dpb_settings_find(&file, "overlap")->values[0], "off");
    assert_null(dpb_settings_find(&file, "bucket"));
    dpb_settings_release(&file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_good_tables_pass),
            TEST(test_bad_tables_are_found),
            TEST(test_find),
            TEST(test_values),
            TEST(test_ranges),
            TEST(test_refused_values),
            TEST(test_text_length),
            TEST(test_lists),
            TEST(test_names),
            TEST(test_separate_values),
            TEST(test_override),
    };

    return DPB_RUN_TESTS(tests);
}
