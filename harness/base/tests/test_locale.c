/* Numbers under a locale with a decimal comma: all that is read or written keeps its point. */
#include <locale.h>
#include <unistd.h>

#include "dpb_options.h"
#include "dpb_sweep_file.h"
#include "dpb_test.h"
#include "dpb_units.h"
#include "log_capture.h"
#include "sample_options.h"

static bool has_comma(void)
{
    return strcmp(localeconv()->decimal_point, ",") == 0;
}

/* The locale of the machine, or one made for this run. */
static bool choose_comma_locale(char *folder)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    char command[256];
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (setlocale(LC_ALL, names[i]) && has_comma())
            return true;
    }
    if (!mkdtemp(folder))
        return false;
    snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
             folder);
    if (system(command) != 0)
        return false;
    setenv("LOCPATH", folder, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") && has_comma();
}

static void test_printf_really_uses_a_comma(void **state)
{
    char text[16];

    (void)state;
    snprintf(text, sizeof(text), "%.1f", 1.5);
    assert_string_equal(text, "1,5");
}

static void test_parsers(void **state)
{
    int64_t whole;
    double real;

    (void)state;
    assert_int_equal(dpb_parse_f64("1.5", &real, NULL), DPB_OK);
    assert_true(real == 1.5);
    assert_int_equal(dpb_parse_f64("1,5", &real, NULL), DPB_ERR_USAGE);
    assert_int_equal(dpb_parse_size("1.5MiB", &whole, NULL), DPB_OK);
    assert_int_equal(whole, 1572864);
    assert_int_equal(dpb_parse_size("1,5MiB", &whole, NULL), DPB_ERR_USAGE);
    assert_int_equal(dpb_parse_duration("2.5ms", &whole, NULL), DPB_OK);
    assert_int_equal(whole, 2500000);
    assert_int_equal(dpb_parse_rate("2.5GB/s", &real, NULL), DPB_OK);
    assert_true(real == 2.5e9);
    assert_int_equal(dpb_parse_ratio("12.5%", &real, NULL), DPB_OK);
    assert_true(real == 0.125);
    assert_int_equal(
            dpb_parse_f64("0.1000000000000000055511151231257827021181583404541015625", &real, NULL),
            DPB_OK);
    assert_true(real == 0.1);
}

static void test_writers(void **state)
{
    char text[64];
    struct dpb_str str = {0};

    (void)state;
    dpb_format_f64(0.1, text, sizeof(text));
    assert_string_equal(text, "0.1");
    dpb_format_rate(13107200, text, sizeof(text));
    assert_string_equal(text, "104.8576Mbps");
    dpb_human_duration(31.2e6, 3, text, sizeof(text));
    assert_string_equal(text, "31.2 ms");
    dpb_human_size(9.27 * 1048576, 3, text, sizeof(text));
    assert_string_equal(text, "9.27 MiB");
    dpb_str_appendf(&str, "%.2f", 1234.5);
    assert_string_equal(str.text, "1234.50");
    dpb_str_release(&str);
    capture_start();
    dpb_info("%.1f", 2.5);
    assert_string_equal(captured.text, "dpbench: 2.5\n");
    capture_stop();
    snprintf(text, sizeof(text), "%.1f", 1.5);
    assert_string_equal(text, "1,5"); /* the caller's locale is as it was */
}

static void test_json(void **state)
{
    static const char source[] = "[0.1,1e-3,2.5e300,-7.25]";
    dpb_json *value = NULL;
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_json_parse(source, strlen(source), &value, NULL), DPB_OK);
    assert_true(dpb_json_as_real(dpb_json_at(value, 0), 0) == 0.1);
    assert_true(dpb_json_as_real(dpb_json_at(value, 3), 0) == -7.25);
    assert_int_equal(dpb_json_write(value, false, &text), DPB_OK);
    assert_string_equal(text.text, "[0.1,0.001,2.5e+300,-7.25]");
    dpb_str_release(&text);
    dpb_json_free(value);
}

static void test_options(void **state)
{
    static const char source[] = "version: 1\nbase: {noise: 0.5, link: \"1.5Gbps,2.5us\"}\n";
    struct dpb_sweep_file sweep;
    struct dpb_settings settings = {0};

    (void)state;
    assert_int_equal(dpb_sweep_file_parse(source, strlen(source), "s", &sample_set, &sweep),
                     DPB_OK);
    assert_string_equal(sweep.base.items[0].values[0], "0.5");
    assert_string_equal(sweep.base.items[1].values[0], "1.5Gbps,2500ns");
    dpb_sweep_file_release(&sweep);
    assert_int_equal(dpb_settings_add(&settings, &sample_set, "noise", "0.5,1.25", "--noise"),
                     DPB_OK);
    assert_int_equal(settings.items[0].value_count, 2);
    dpb_settings_release(&settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_printf_really_uses_a_comma),
            cmocka_unit_test(test_parsers),
            cmocka_unit_test(test_writers),
            cmocka_unit_test(test_json),
            cmocka_unit_test(test_options),
    };
    char folder[] = "/tmp/dpb_test_locale_XXXXXX";
    char command[256];
    bool chosen = choose_comma_locale(folder);
    int failures = 0;

    if (chosen)
        failures = DPB_RUN_TESTS(tests);
    if (!strstr(folder, "XXXXXX")) {
        snprintf(command, sizeof(command), "rm -r %s", folder);
        if (system(command) != 0)
            fprintf(stderr, "cannot remove %s\n", folder);
    }
    if (!chosen)
        dpb_test_skip_all("no locale with a decimal comma is installed, and localedef cannot make "
                          "one (Debian: package locales)");
    return failures;
}
