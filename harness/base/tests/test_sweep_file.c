#include "dpb_rng.h"
#include "dpb_sweep_file.h"
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

static dpb_status parse(const char *text, struct dpb_sweep_file *sweep)
{
    return dpb_sweep_file_parse(text, strlen(text), "s.yaml", &sample_set, sweep);
}

static void assert_refused(const char *text, const char *message)
{
    struct dpb_sweep_file sweep = {0};

    capture_start();
    if (parse(text, &sweep) != DPB_ERR_USAGE)
        fail_msg("taken: %s", text);
    assert_null(sweep.name);
    assert_logged(message);
    assert_logged("\ndpbench: hint: ");
}

static void assert_setting(const struct dpb_setting *setting, const char *name, const char *values,
                           const char *origin)
{
    struct dpb_str joined = {0};
    size_t i;

    assert_string_equal(setting->name, name);
    for (i = 0; i < setting->value_count; i++)
        dpb_str_appendf(&joined, "%s%s", i ? "|" : "", setting->values[i]);
    assert_string_equal(joined.text, values);
    assert_string_equal(setting->origin, origin);
    dpb_str_release(&joined);
}

static void test_full_file(void **state)
{
    struct dpb_sweep_file sweep;

    (void)state;
    assert_int_equal(dpb_sweep_file_read(TEST_DATA "/full.yaml", &sample_set, &sweep), DPB_OK);
    assert_string_equal(sweep.name, "ddp-8x32");
    assert_int_equal(sweep.base.count, 3);
    assert_setting(&sweep.base.items[0], "workload", "resnet50", TEST_DATA "/full.yaml:5:13");
    assert_setting(&sweep.base.items[1], "seed", "7", TEST_DATA "/full.yaml:6:9");
    assert_setting(&sweep.base.items[2], "link", "25Gbps,5us", TEST_DATA "/full.yaml:7:9");
    assert_int_equal(sweep.axes.count, 3);
    assert_setting(&sweep.axes.items[0], "ranks", "1|2|4|8", TEST_DATA "/full.yaml:9:10");
    assert_setting(&sweep.axes.items[1], "bucket", "1MiB|25MiB", TEST_DATA "/full.yaml:11:5");
    assert_setting(&sweep.axes.items[2], "overlap", "on|off", TEST_DATA "/full.yaml:13:12");
    assert_int_equal(sweep.exclude_count, 2);
    assert_int_equal(sweep.excludes[0].count, 2);
    assert_setting(&sweep.excludes[1].items[0], "bucket", "1MiB|25MiB",
                   TEST_DATA "/full.yaml:16:14");
    assert_int_equal(sweep.target_count, 2);
    assert_string_equal(sweep.targets[0].metric, "efficiency");
    assert_string_equal(sweep.targets[0].rule, ">= 0.90");
    assert_string_equal(sweep.targets[1].origin, TEST_DATA "/full.yaml:17:49");
    assert_string_equal(captured.text, "");
    dpb_sweep_file_release(&sweep);
    assert_null(sweep.name);
}

static void test_small_files(void **state)
{
    struct dpb_sweep_file sweep;

    (void)state;
    assert_int_equal(parse("version: 1", &sweep), DPB_OK);
    assert_string_equal(sweep.name, "s"); /* of the file */
    assert_int_equal(sweep.axes.count, 0);
    dpb_sweep_file_release(&sweep);
    assert_int_equal(
            dpb_sweep_file_parse("version: 1", 10, "/a/-odd name!.v2.yaml", &sample_set, &sweep),
            DPB_OK);
    assert_string_equal(sweep.name, "_odd_name_");
    dpb_sweep_file_release(&sweep);
    assert_int_equal(
            parse("--- \nversion: 1\naxes: {ranks: 4, label: [~, 'true', 1e2]}\n...\n", &sweep),
            DPB_OK);
    assert_setting(&sweep.axes.items[0], "ranks", "4", "s.yaml:3:15");
    assert_setting(&sweep.axes.items[1], "label", "~|true|1e2", "s.yaml:3:25"); /* text as it is */
    dpb_sweep_file_release(&sweep);
}

static void test_structure_mistakes(void **state)
{
    (void)state;
    assert_refused("", "s.yaml:1:1: the file is empty");
    assert_refused("# only a comment\n", "s.yaml:1:1: the file is empty");
    assert_refused("---\n", "the file is empty");
    assert_refused("name: x", "s.yaml:1:1: version is missing");
    assert_refused("version: 2", "s.yaml:1:10: version \"2\" of the sweep format is not known");
    assert_refused("version: [1]", "s.yaml:1:10: version must be a single value, and is a list");
    assert_refused("version: 1\nversion: 1",
                   "s.yaml:2:1: key \"version\" is given already at line 1");
    assert_refused("version: 1\naxis: {ranks: 1}", "s.yaml:2:1: unknown key \"axis\"");
    assert_logged("did you mean \"axes\"?");
    assert_refused("version: 1\nranks: 1", "s.yaml:2:1: unknown key \"ranks\"");
    assert_logged("put the options under base or axes");
    assert_refused("version: 1\ncomputer: 1", "the keys are version, name, base");
    assert_refused("- a\n- b",
                   "s.yaml:1:1: a sweep file must be a map of keys and values, and is a list");
    assert_refused("hello", "a sweep file must be a map of keys and values, and is a single value");
    assert_refused("version: 1\nbase: 3", "s.yaml:2:7: base must be a map");
    assert_refused("version: 1\nbase:\n", "base must be a map of keys and values, and is empty");
    assert_refused("version: 1\naxes: [ranks]", "s.yaml:2:7: axes must be a map");
    assert_refused("version: 1\nexclude: {ranks: 1}", "s.yaml:2:10: exclude must be a list");
    assert_refused("version: 1\nexclude: [ranks]", "s.yaml:2:11: an exclusion must be a map");
    assert_refused("version: 1\nexclude: [{}]", "s.yaml:2:11: an empty exclusion");
    assert_refused("version: 1\ntargets: x", "s.yaml:2:10: targets must be a map");
    assert_refused("version: 1\ntargets: {a: [1]}", "s.yaml:2:14: a target must be a single value");
    assert_refused("version: 1\ntargets: {a: 1, a: 2}",
                   "target \"a\" is given already at s.yaml:2:14");
    assert_refused("version: 1\ntargets: {a: }", "target \"a\" has no rule");
    assert_refused("version: 1\nname: a/b", "s.yaml:2:7: name: \"a/b\" cannot be the name");
    assert_refused("version: 1\nname: ..", "cannot be the name");
    assert_refused("version: 1\nname: ''", "cannot be the name");
    assert_refused("version: 1\nname: [a]", "name must be a single value");
}

static void test_option_mistakes(void **state)
{
    (void)state;
    assert_refused("version: 1\nbase: {buckt: 1MiB}", "s.yaml:2:8: unknown option \"buckt\"");
    assert_logged("did you mean \"bucket\"?");
    assert_refused("version: 1\nbase: {bucket: 10XB}",
                   "s.yaml:2:16: bucket: \"10XB\" is not a size: unknown unit 'XB'");
    assert_refused("version: 1\nbase: {bucket: true}",
                   "s.yaml:2:16: bucket: \"true\" is not a size");
    assert_refused("version: 1\nbase: {ranks: }", "s.yaml:2:8: ranks: the value is empty");
    assert_refused("version: 1\nbase: {ranks: [1, 2]}",
                   "ranks: base takes one value, and this is a list");
    assert_refused("version: 1\nbase: {ranks: 1..4}",
                   "ranks: base takes one value, and this is a range");
    assert_refused("version: 1\naxes: {ranks: [8, 64..8]}", "s.yaml:2:19: ranks: \"64..8\" is not");
    assert_refused("version: 1\nbase: {ranks: {a: 1}}",
                   "s.yaml:2:15: ranks must be a value or a list");
    assert_refused("version: 1\nbase: {ranks: 1, ranks: 2}",
                   "s.yaml:2:18: ranks: given already at s.yaml:2:15");
    assert_refused("version: 1\nbase: {ranks: \"1,2\"}", "is not a whole number: unexpected ',2'");
    assert_refused("version: 1\naxes:\n  ranks:\n  - 1\n  - 0\n",
                   "s.yaml:5:5: ranks: \"0\" is out of range: at least 1");
    assert_refused("version: 1\naxes: {ranks: [1, [2]]}",
                   "s.yaml:2:19: an element of a list must be");
    assert_refused("version: 1\naxes: {ranks: []}", "s.yaml:2:15: ranks: the list is empty");
    assert_refused("version: 1\naxes: {ranks: [4, 4]}",
                   "s.yaml:2:19: ranks: the list has \"4\" twice");
    assert_refused("version: 1\naxes: {timeout: 1s}", "s.yaml:2:8: timeout cannot be an axis");
    assert_refused("version: 1\naxes: {ranks: [1, 2]}\nbase: {ranks: 1}",
                   "s.yaml:2:15: ranks is an axis, and has one value in base at s.yaml:3:15");
    assert_refused("version: 1\nexclude: [{ranks: x}]", "s.yaml:2:19: ranks: \"x\"");
    assert_refused("version: 1\nexclude: [{rank: 1}]", "s.yaml:2:12: unknown option \"rank\"");
    /* all mistakes are told */
    assert_refused("version: 3\nbase: {ranks: 0, bogus: 1}\naxes: {overlap: [maybe]}",
                   "version \"3\"");
    assert_logged("s.yaml:2:15: ranks: \"0\"");
    assert_logged("s.yaml:2:18: unknown option \"bogus\"");
    assert_logged("s.yaml:3:18: overlap: \"maybe\" is neither on nor off");
}

static void test_yaml_mistakes(void **state)
{
    (void)state;
    assert_refused("version: 1\nbase: {ranks: 1\n", "s.yaml:3:1: ");
    assert_refused("version: 1\nname: \"x",
                   "s.yaml:2:8: double-quoted scalar without closing quote");
    assert_refused("version: 1\nname: @x", "s.yaml:2:7: plain scalar cannot start with '@'");
    assert_refused("version: 1\n\tname: x", "s.yaml:");
    assert_refused("version: &a 1", "s.yaml:1:13: anchors");
    assert_refused("version: 1\nname: *a", "s.yaml:2:7: anchors");
    assert_refused("version: !!int 1", ": tags (!) are not for sweep files");
    assert_refused("version: 1\n---\nversion: 1", "s.yaml:3:1: a second document");
    assert_refused("version: 1\n? [a]\n: b", "s.yaml:2:3: a key must be a plain word");
    assert_refused("version: 1\nbase: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", "nested too deeply");
    assert_refused("version: 1\nname: \xff", "s.yaml:2:7: byte 0xff does not belong in a text");
    assert_refused("version: 1\nname: \xc3", "s.yaml:2:7: byte 0xc3 does not belong in a text");
    assert_refused("version: 1\nbase: {label: \"a\\0b\"}", "a text with a NUL character in it");
    {
        struct dpb_sweep_file sweep;

        capture_start();
        assert_int_equal(dpb_sweep_file_parse("version: 1\0\n", 12, "s.yaml", &sample_set, &sweep),
                         DPB_ERR_USAGE);
        assert_logged("s.yaml:1:11: byte 0x00");
    }
}

static void test_absent_file(void **state)
{
    struct dpb_sweep_file sweep;

    (void)state;
    assert_int_equal(dpb_sweep_file_read("/no/such.yaml", &sample_set, &sweep), DPB_ERR_NOT_FOUND);
    assert_logged("\"/no/such.yaml\"");
}

/* One small change of a text: drop, double, replace, insert, swap or cut. */
static size_t mutate(struct dpb_rng *rng, char *text, size_t count, size_t room)
{
    static const char alphabet[] = "[]{}:,-#\"'&*!|>%@ \n\tab01~?\x01\x80\xc3\xff";
    size_t at = (size_t)dpb_rng_below(rng, count ? count : 1);
    size_t span = (size_t)dpb_rng_below(rng, 8) + 1, from;
    char c = alphabet[dpb_rng_below(rng, sizeof(alphabet))];

    if (count == 0)
        return 0;
    if (at + span > count)
        span = count - at;
    switch (dpb_rng_below(rng, 6)) {
    case 0:
        memmove(text + at, text + at + span, count - at - span);
        return count - span;
    case 1:
        if (count + span > room)
            return count;
        memmove(text + at + span, text + at, count - at);
        return count + span;
    case 2:
        text[at] = c;
        return count;
    case 3:
        if (count + 1 > room)
            return count;
        memmove(text + at + 1, text + at, count - at);
        text[at] = c;
        return count + 1;
    case 4:
        from = (size_t)dpb_rng_below(rng, count - span + 1);
        memmove(text + at, text + from, span);
        return count;
    default:
        return dpb_rng_below(rng, 8) == 0 ? at : count;
    }
}

/* Whatever the bytes, the answer is a sweep or a usage error with a place, and no crash. */
static void test_mutated_files(void **state)
{
    struct dpb_str original = {0};
    int good = 0, bad = 0, i;
    struct dpb_rng rng;

    (void)state;
    assert_int_equal(dpb_file_read(TEST_DATA "/full.yaml", &original), DPB_OK);
    dpb_rng_init(&rng, 20261201, 0);
    for (i = 0; i < 3000; i++) {
        size_t room = original.length + 64, count = original.length, k;
        char *text = malloc(room), *exact;
        struct dpb_sweep_file sweep;
        dpb_status st;

        assert_non_null(text);
        memcpy(text, original.text, count);
        for (k = dpb_rng_below(&rng, 6) + 1; k > 0; k--)
            count = mutate(&rng, text, count, room);
        /* of exactly that size, so that a sanitizer sees a read beyond it */
        exact = malloc(count ? count : 1);
        assert_non_null(exact);
        memcpy(exact, text, count);
        capture_start();
        st = dpb_sweep_file_parse(exact, count, "m.yaml", &sample_set, &sweep);
        if (st == DPB_OK) {
            good++;
            dpb_sweep_file_release(&sweep);
        } else if (st == DPB_ERR_USAGE && strstr(captured.text, "m.yaml:")) {
            bad++;
        } else {
            fail_msg("%s for:\n%.*s\n%s", dpb_status_name(st), (int)count, exact, captured.text);
        }
        free(exact);
        free(text);
    }
    assert_int_equal(good + bad, 3000);
    assert_true(good > 100 && bad > 1000); /* the changes are neither all harmless nor all fatal */
    dpb_str_release(&original);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_full_file),       TEST(test_small_files),   TEST(test_structure_mistakes),
            TEST(test_option_mistakes), TEST(test_yaml_mistakes), TEST(test_absent_file),
            TEST(test_mutated_files),
    };

    return DPB_RUN_TESTS(tests);
}
