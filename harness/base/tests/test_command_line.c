#include <unistd.h>

#include "dpb_test.h"
#include "log_capture.h"
#include "sample_options.h"

struct report_config {
    char output[DPB_OPTION_TEXT_BYTES];
    bool json, strict;
    int64_t top;
};

/* clang-format off */
static const struct dpb_option report_rows[] = {
    {"output", DPB_OPT_TEXT, offsetof(struct report_config, output), "", 0, 0, NULL, "Output", NULL, "folder to write to", 0, 'o'},
    {"json", DPB_OPT_BOOL, offsetof(struct report_config, json), "off", 0, 0, NULL, "Output", NULL, "print JSON", 0, 0},
    {"strict", DPB_OPT_BOOL, offsetof(struct report_config, strict), "off", 0, 0, NULL, "Checks", NULL, "warnings are errors", 0, 's'},
    {"top", DPB_OPT_INT, offsetof(struct report_config, top), "10", 1, 100, NULL, "Output", "rows", "rows of a table, a sentence long enough that eighty columns do not hold it", 0, 0},
};
/* clang-format on */

static const struct dpb_option_table report_table = {"command", "report", ROWS(report_rows),
                                                     sizeof(struct report_config)};
static const struct dpb_command report = {
        .name = "report",
        .arguments = "RUN OTHER...",
        .summary = "tables of one or more runs",
        .description = "Reads records and prints them.",
        .table = &report_table,
        .takes_experiment = false,
        .min_arguments = 2,
        .max_arguments = 3,
};
static const struct dpb_command sweep = {
        .name = "sweep",
        .arguments = "[FILE]",
        .summary = "run the cells of a sweep",
        .table = &report_table,
        .takes_experiment = true,
        .max_arguments = 1,
};

static struct report_config config;
static struct dpb_command_line line;

/* Parse the words up to NULL behind the verb. */
static dpb_status parse(const struct dpb_command *command, ...)
{
    char *argv[80];
    int argc = 0;
    char *word;
    va_list args;

    argv[argc++] = (char *)(uintptr_t)command->name;
    va_start(args, command);
    while ((word = va_arg(args, char *)))
        argv[argc++] = word;
    va_end(args);
    argv[argc] = NULL;
    capture_start();
    dpb_settings_release(&line.experiment);
    line = (struct dpb_command_line){0};
    return dpb_command_line_parse(command, &sample_set, argc, argv, &config, &line);
}

static int setup(void **state)
{
    (void)state;
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dpb_settings_release(&line.experiment);
    capture_stop();
    return 0;
}

static const char *experiment(const char *name)
{
    const struct dpb_setting *setting = dpb_settings_find(&line.experiment, name);

    return setting ? setting->values[0] : "(absent)";
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse(&report, "a", "b", NULL), DPB_OK);
    assert_string_equal(config.output, "");
    assert_false(config.json);
    assert_int_equal(config.top, 10);
    assert_int_equal(line.argument_count, 2);
    assert_string_equal(line.arguments[0], "a");
    assert_string_equal(line.arguments[1], "b");
    assert_false(line.help);
    assert_int_equal(parse(&sweep, NULL), DPB_OK);
    assert_int_equal(line.argument_count, 0);
    assert_int_equal(line.experiment.count, 0);
    assert_string_equal(captured.text, "");
}

static void test_own_options(void **state)
{
    (void)state;
    assert_int_equal(parse(&report, "-o", "dir", "a", "--json", "b", "--top=5", NULL), DPB_OK);
    assert_string_equal(config.output, "dir");
    assert_true(config.json);
    assert_false(config.strict);
    assert_int_equal(config.top, 5);
    assert_int_equal(line.argument_count, 2);
    assert_int_equal(parse(&report, "-sodir", "a", "b", NULL), DPB_OK);
    assert_true(config.strict);
    assert_string_equal(config.output, "dir");
    assert_int_equal(parse(&report, "--output", "--json", "a", "b", NULL), DPB_OK);
    assert_string_equal(config.output, "--json");
    assert_false(config.json);
}

static void test_experiment_options(void **state)
{
    (void)state;
    assert_int_equal(parse(&sweep, "--ranks", "1,2", "file.yaml", "--bucket=1MiB", "--overlap",
                           "off", "--gather=on", "--seed", "-5", "--strict", NULL),
                     DPB_OK);
    assert_int_equal(dpb_settings_find(&line.experiment, "ranks")->value_count, 2);
    assert_string_equal(dpb_settings_find(&line.experiment, "ranks")->origin, "--ranks");
    assert_string_equal(experiment("bucket"), "1MiB");
    assert_string_equal(experiment("overlap"), "off");
    assert_string_equal(experiment("gather"), "on");
    assert_string_equal(experiment("seed"), "-5");
    assert_string_equal(experiment("workload"), "(absent)");
    assert_true(config.strict);
    assert_string_equal(line.arguments[0], "file.yaml");
}

static void test_end_of_options(void **state)
{
    (void)state;
    assert_int_equal(parse(&report, "--json", "--", "--top", "-x", NULL), DPB_OK);
    assert_true(config.json);
    assert_int_equal(line.argument_count, 2);
    assert_string_equal(line.arguments[0], "--top");
    assert_string_equal(line.arguments[1], "-x");
    assert_int_equal(parse(&report, "-", "b", NULL), DPB_OK);
    assert_string_equal(line.arguments[0], "-");
}

static void test_unknown_options(void **state)
{
    (void)state;
    assert_int_equal(parse(&sweep, "--buckt", "1MiB", NULL), DPB_ERR_USAGE);
    assert_logged("error: unknown option \"--buckt\"\n");
    assert_logged("hint: did you mean \"--bucket\"? \"dpbench sweep --help\" and \"dpbench list "
                  "options\"");
    assert_int_equal(parse(&sweep, "--buckt=1MiB", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--buckt\"\n");
    /* a beginning of a name is no name, whether it is unique or not */
    assert_int_equal(parse(&sweep, "--rank", "2", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--rank\"\n");
    assert_logged("did you mean \"--ranks\"?");
    assert_int_equal(parse(&sweep, "--rank=2", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--rank\"\n");
    assert_int_equal(parse(&sweep, "--s", "2", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--s\"\n");
    assert_int_equal(parse(&report, "--js", "a", "b", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--js\"\n");
    assert_int_equal(parse(&sweep, "-x", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"-x\"\n");
    assert_int_equal(parse(&sweep, "-sx", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"-x\"\n");
    assert_int_equal(parse(&report, "--ranks", "2", "a", "b", NULL), DPB_ERR_USAGE);
    assert_logged("option \"--ranks\" belongs to an experiment; \"dpbench report\" runs none");
}

static void test_values_and_their_lack(void **state)
{
    (void)state;
    assert_int_equal(parse(&sweep, "--ranks", NULL), DPB_ERR_USAGE);
    assert_logged("error: option \"--ranks\" needs a value: --ranks N\n");
    assert_int_equal(parse(&sweep, "--overlap", NULL), DPB_ERR_USAGE);
    assert_logged("option \"--overlap\" needs a value: --overlap on|off\n");
    assert_int_equal(parse(&sweep, "-o", NULL), DPB_ERR_USAGE);
    assert_logged("option \"-o\" needs a value: -o TEXT\n");
    assert_int_equal(parse(&report, "--json=on", "a", "b", NULL), DPB_ERR_USAGE);
    assert_logged("option \"--json\" takes no value\n");
    assert_int_equal(parse(&report, "--top", "0", "a", "b", NULL), DPB_ERR_USAGE);
    assert_logged("error: --top: \"0\" is out of range: at least 1\n");
    assert_int_equal(parse(&sweep, "--ranks=", NULL), DPB_ERR_USAGE);
    assert_logged("--ranks: the value is empty");
    /* all mistakes at once, and nothing is left in the line */
    assert_int_equal(parse(&sweep, "--ranks", "0", "--seed", "x", "--bucket", "1MiB", NULL),
                     DPB_ERR_USAGE);
    assert_logged("--ranks: \"0\"");
    assert_logged("--seed: \"x\"");
    assert_int_equal(line.experiment.count, 0);
}

static void test_repeated_options(void **state)
{
    (void)state;
    assert_int_equal(parse(&sweep, "--ranks", "1", "--ranks", "2", NULL), DPB_ERR_USAGE);
    assert_logged("error: --ranks: given twice\n");
    assert_logged("several values are one list, such as 1,2,4");
    assert_int_equal(parse(&report, "-o", "a", "--output", "b", "c", "d", NULL), DPB_ERR_USAGE);
    assert_logged("error: --output: given twice\n");
    assert_logged("hint: give it once\n");
}

static void test_argument_counts(void **state)
{
    (void)state;
    assert_int_equal(parse(&report, NULL), DPB_ERR_USAGE);
    assert_logged("error: argument RUN is missing\n");
    assert_logged("hint: usage: dpbench report RUN OTHER...\n");
    assert_int_equal(parse(&report, "a", NULL), DPB_ERR_USAGE);
    assert_logged("argument OTHER... is missing\n");
    assert_int_equal(parse(&report, "a", "b", "c", "d", NULL), DPB_ERR_USAGE);
    assert_logged("unexpected argument \"d\": \"dpbench report\" takes at most 3\n");
}

/* Run the parser in a child with an empty environment and stdout in a file. */
static dpb_status help_in_child(const struct dpb_command *command, const char *flag,
                                struct dpb_str *text)
{
    char path[] = "/tmp/dpb_test_help_XXXXXX";
    int fd = mkstemp(path), saved;
    dpb_status st;

    assert_true(fd >= 0);
    fflush(stdout);
    saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    clearenv();
    st = parse(command, flag, "--bogus", NULL);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    close(fd);
    assert_int_equal(dpb_file_read(path, text), DPB_OK);
    unlink(path);
    return st;
}

static void test_help_is_printed(void **state)
{
    struct dpb_str printed = {0}, expected = {0};

    (void)state;
    assert_int_equal(help_in_child(&report, "--help", &printed), DPB_OK);
    assert_true(line.help);
    assert_int_equal(dpb_command_help(&report, &sample_set, 80, &expected), DPB_OK);
    assert_string_equal(printed.text, expected.text);
    assert_string_equal(captured.text, "");
    dpb_str_release(&printed);
    assert_int_equal(help_in_child(&report, "-h", &printed), DPB_OK);
    assert_string_equal(printed.text, expected.text);
    dpb_str_release(&printed);
    dpb_str_release(&expected);
}

static void test_help_text(void **state)
{
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_command_help(&report, &sample_set, 80, &text), DPB_OK);
    assert_string_equal(
            text.text,
            "Usage: dpbench report [options] RUN OTHER...\n"
            "\n"
            "tables of one or more runs\n"
            "\n"
            "Reads records and prints them.\n"
            "\n"
            "Output:\n"
            "  -o, --output TEXT         folder to write to (default none)\n"
            "      --json                print JSON\n"
            "      --top N               rows of a table, a sentence long enough that eighty\n"
            "                            columns do not hold it (default 10; from 1 to 100\n"
            "                            rows)\n"
            "\n"
            "Checks:\n"
            "  -s, --strict              warnings are errors\n"
            "\n"
            "Help:\n"
            "  -h, --help                show this help\n");
    dpb_str_release(&text);
}

static void assert_within(const char *text, size_t width)
{
    while (*text) {
        size_t length = strcspn(text, "\n");

        if (length > width)
            fail_msg("longer than %zu: %.*s", width, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void test_help_of_experiments(void **state)
{
    static const char *const parts[] = {
            "\nTraining:\n",
            "\nRun:\n",
            "\nCommunication:\n",
            "      --ranks N             number of ranks (default 1; from 1 to 65536 processes)\n",
            "--bucket SIZE         [ddp] bytes of a bucket (default 25MiB; from 1KiB to 1TiB, or",
            "[zero1] bytes of a bucket (default 16MiB;",
            "--overlap on|off",
            "one of none, ddp, zero1)",
            "--precision NAME      number format (default fp32; one of fp32, bf16)",
            "--memory SIZE         memory of a rank (default auto)",
    };
    struct dpb_str text = {0};
    size_t i, width;

    (void)state;
    assert_int_equal(dpb_command_help(&sweep, &sample_set, 200, &text), DPB_OK);
    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strstr(text.text, parts[i]))
            fail_msg("the help lacks: %s\n%s", parts[i], text.text);
    }
    assert_null(strstr(strstr(text.text, "\nTraining:\n") + 1, "\nTraining:\n"));
    dpb_str_release(&text);
    for (width = 40; width <= 120; width += 20) {
        assert_int_equal(dpb_command_help(&sweep, &sample_set, width, &text), DPB_OK);
        assert_within(text.text, width);
        dpb_str_release(&text);
    }
}

static void test_reference(void **state)
{
    struct dpb_str text = {0};
    dpb_json *json = dpb_options_json(&sample_set);
    const dpb_json *entry = NULL;
    size_t i;

    (void)state;
    assert_int_equal(dpb_options_markdown(&sample_set, &text), DPB_OK);
    assert_non_null(strstr(text.text, "\n## experiment\n\n### Training\n"));
    assert_non_null(strstr(text.text, "\n## strategy `zero1`\n"));
    assert_non_null(strstr(text.text, "| `--overlap` | on\\|off | communicate while computing | "
                                      "default on |\n"));
    assert_non_null(strstr(text.text, "| | `bf16` | half of it | |\n"));
    dpb_str_release(&text);

    assert_int_equal(dpb_json_size(json), 19);
    for (i = 0; i < dpb_json_size(json); i++) {
        entry = dpb_json_at(json, i);
        if (strcmp(dpb_json_as_string(dpb_json_get(entry, "name"), ""), "ranks") == 0)
            break;
    }
    assert_string_equal(dpb_json_as_string(dpb_json_get(entry, "type"), ""), "int");
    assert_string_equal(dpb_json_as_string(dpb_json_get(entry, "default"), ""), "1");
    assert_true(dpb_json_as_real(dpb_json_get(entry, "max"), 0) == 65536);
    assert_true(dpb_json_as_bool(dpb_json_get(entry, "axis"), false));
    dpb_json_free(json);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_defaults),           TEST(test_own_options),
            TEST(test_experiment_options), TEST(test_end_of_options),
            TEST(test_unknown_options),    TEST(test_values_and_their_lack),
            TEST(test_repeated_options),   TEST(test_argument_counts),
            TEST(test_help_text),          TEST(test_help_of_experiments),
            TEST(test_reference),          TEST(test_help_is_printed),
    };

    return DPB_RUN_TESTS(tests);
}
