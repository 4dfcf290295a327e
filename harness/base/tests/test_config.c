#include <math.h>

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

/* A config from name, text pairs; NULL ends them. */
static dpb_status make(bool drop_inactive, dpb_config **config, ...)
{
    struct dpb_assignment assignments[16];
    char origins[16][64];
    size_t count = 0;
    const char *name;
    va_list args;

    va_start(args, config);
    while ((name = va_arg(args, const char *))) {
        snprintf(origins[count], sizeof(origins[count]), "--%s", name);
        assignments[count].name = name;
        assignments[count].text = va_arg(args, const char *);
        assignments[count].origin = origins[count];
        count++;
    }
    va_end(args);
    return dpb_config_new(&sample_set, assignments, count, drop_inactive, config);
}

static void assert_config_text(const dpb_config *config, const char *name, const char *expected)
{
    struct dpb_str text = {0};

    assert_int_equal(dpb_config_text(config, name, &text), DPB_OK);
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
}

static void assert_json_text(dpb_json *json, const char *expected)
{
    struct dpb_str text = {0};

    assert_non_null(json);
    assert_int_equal(dpb_json_write(json, false, &text), DPB_OK);
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
    dpb_json_free(json);
}

static void test_defaults(void **state)
{
    const struct sample_core *core;
    const struct sample_ddp *ddp;
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(false, &config, NULL), DPB_OK);
    core = dpb_config_struct(config, "experiment");
    ddp = dpb_config_struct(config, "strategy");
    assert_int_equal(core->ranks, 1);
    assert_int_equal(core->timeout_ns, 60000000000);
    assert_true(core->memory_bytes == DPB_AUTO);
    assert_true(isnan(core->noise));
    assert_true(core->efficiency == 0.85);
    assert_true(core->disk_bytes_per_s == 1e9);
    assert_true(core->overlap);
    assert_int_equal(core->precision, SAMPLE_FP32);
    assert_string_equal(core->data, "");
    assert_string_equal(core->strategy, "ddp");
    assert_true(core->link.bw_bytes_per_s == 0 && core->link.latency_ns == 0);
    assert_int_equal(ddp->bucket_bytes, 26214400);
    assert_null(dpb_config_struct(config, "workload")); /* that part has no table */
    assert_string_equal(dpb_config_part(config, "strategy"), "ddp");
    assert_null(dpb_config_part(config, "comm"));
    assert_false(dpb_config_is_explicit(config, "ranks"));
    dpb_config_free(config);
}

static void test_assignments_reach_their_members(void **state)
{
    const struct sample_core *core;
    const struct sample_zero1 *zero1;
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(false, &config, "ranks", "4", "strategy", "zero1", "bucket", "1MiB",
                          "gather", "on", "overlap", "off", "precision", "bf16", "link",
                          "25Gbps,5us", "noise", "0.5", "efficiency", "90%", "disk", "8Gbps",
                          "timeout", "1s", "data", "/a b", "seed", "-3", NULL),
                     DPB_OK);
    core = dpb_config_struct(config, "experiment");
    zero1 = dpb_config_struct(config, "strategy");
    assert_int_equal(core->ranks, 4);
    assert_int_equal(core->seed, -3);
    assert_false(core->overlap);
    assert_int_equal(core->precision, SAMPLE_BF16);
    assert_true(core->link.bw_bytes_per_s == 3.125e9);
    assert_int_equal(core->link.latency_ns, 5000);
    assert_true(core->noise == 0.5 && core->efficiency == 0.9 && core->disk_bytes_per_s == 1e9);
    assert_int_equal(core->timeout_ns, 1000000000);
    assert_string_equal(core->data, "/a b");
    assert_int_equal(zero1->bucket_bytes, 1048576);
    assert_true(zero1->gather);
    assert_true(dpb_config_is_explicit(config, "bucket"));
    assert_false(dpb_config_is_explicit(config, "hosts"));
    assert_config_text(config, "link", "25Gbps,5us");
    assert_config_text(config, "bucket", "1MiB");
    assert_config_text(config, "data", "/a b");
    assert_config_text(config, "hosts", "");
    dpb_config_free(config);
}

static void test_inactive_options(void **state)
{
    struct dpb_str text = {0};
    dpb_config *config = NULL, *copy = NULL;

    (void)state;
    assert_int_equal(make(false, &config, "strategy", "none", "first-bucket", "1MiB", NULL),
                     DPB_ERR_USAGE);
    assert_null(config);
    assert_logged("error: --first-bucket cannot take effect: it belongs to strategy \"ddp\", and "
                  "this cell uses strategy \"none\"\n");
    assert_logged("hint: leave it out, or choose strategy ddp\n");
    capture_start();
    assert_int_equal(make(false, &config, "strategy", "none", "bucket", "1MiB", NULL),
                     DPB_ERR_USAGE);
    assert_logged("it belongs to strategy \"ddp\" or \"zero1\", and");
    assert_logged("hint: leave it out, or choose strategy ddp or zero1\n");

    assert_int_equal(make(true, &config, "strategy", "none", "bucket", "1MiB", NULL), DPB_OK);
    assert_true(dpb_config_is_dropped(config, "bucket"));
    assert_false(dpb_config_is_dropped(config, "strategy"));
    assert_false(dpb_config_is_explicit(config, "bucket"));
    assert_int_equal(dpb_config_text(config, "bucket", &text), DPB_ERR_NOT_FOUND);
    assert_null(dpb_config_struct(config, "strategy"));
    assert_int_equal(dpb_config_copy(config, &copy), DPB_OK);
    assert_true(dpb_config_is_dropped(copy, "bucket"));
    dpb_config_free(copy);
    dpb_config_free(config);
}

static void test_refused_assignments(void **state)
{
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(true, &config, "rnks", "1", NULL), DPB_ERR_USAGE);
    assert_logged("unknown option \"--rnks\"");
    capture_start();
    assert_int_equal(make(false, &config, "ranks", "1", "ranks", "2", NULL), DPB_ERR_USAGE);
    assert_logged("option \"ranks\" is given twice");
    capture_start();
    /* in the range of zero1, not of the strategy that is chosen */
    assert_int_equal(make(false, &config, "bucket", "100B", NULL), DPB_ERR_USAGE);
    assert_logged("--bucket: \"100B\" is out of range: at least 1KiB");
    capture_start();
    assert_int_equal(make(false, &config, "ranks", "x", "seed", "y", NULL), DPB_ERR_USAGE);
    assert_logged("--ranks: \"x\"");
    assert_logged("--seed: \"y\"");
    assert_null(config);
}

static void test_set(void **state)
{
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(true, &config, "bucket", "auto", "ranks", "2", "gather", "on", NULL),
                     DPB_OK);
    assert_config_text(config, "bucket", "auto");
    assert_int_equal(dpb_config_set(config, "bucket", "5MiB"), DPB_OK);
    assert_config_text(config, "bucket", "5MiB");
    assert_true(dpb_config_is_explicit(config, "bucket"));
    assert_int_equal(dpb_config_set(config, "memory", "1GiB"), DPB_OK);
    assert_false(dpb_config_is_explicit(config, "memory"));
    assert_int_equal(dpb_config_set(config, "memory", "much"), DPB_ERR_USAGE);
    assert_config_text(config, "memory", "1GiB");
    assert_int_equal(dpb_config_set(config, "gather", "on"), DPB_ERR_USAGE);
    assert_logged("does not count in this cell");

    /* another part brings its table */
    assert_int_equal(dpb_config_set(config, "strategy", "zero1"), DPB_OK);
    assert_config_text(config, "gather", "off");
    assert_config_text(config, "bucket", "5MiB");
    assert_config_text(config, "ranks", "2");
    assert_true(dpb_config_is_explicit(config, "ranks"));
    assert_false(dpb_config_is_explicit(config, "strategy"));
    assert_true(dpb_config_is_dropped(config, "gather"));
    assert_int_equal(dpb_config_set(config, "strategy", "nope"), DPB_ERR_USAGE);
    assert_string_equal(dpb_config_part(config, "strategy"), "zero1");
    dpb_config_free(config);
}

static void test_record_json(void **state)
{
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(false, &config, "ranks", "2", "link", "8Gbps,1ms", "label", "é", NULL),
                     DPB_OK);
    assert_json_text(dpb_config_to_json(config),
                     "{\"bucket_bytes\":26214400,\"data\":\"\",\"disk_bytes_per_s\":1000000000.0,"
                     "\"efficiency_ratio\":0.85,\"first_bucket_bytes\":1048576,\"hosts\":\"\","
                     "\"label\":\"é\",\"link\":{\"bw_bytes_per_s\":1000000000.0,"
                     "\"latency_ns\":1000000},\"memory_bytes\":null,"
                     "\"memory_bytes_reason\":\"auto\",\"noise\":null,\"noise_reason\":\"auto\","
                     "\"overlap\":true,\"precision\":\"fp32\",\"ranks\":2,\"seed\":0,"
                     "\"strategy\":\"ddp\",\"timeout_ns\":60000000000,\"workload\":\"mlp\"}");
    dpb_config_free(config);

    assert_int_equal(make(false, &config, "strategy", "none", NULL), DPB_OK);
    {
        dpb_json *json = dpb_config_to_json(config);

        assert_null(dpb_json_get(json, "bucket_bytes"));
        assert_int_equal(dpb_json_type(dpb_json_get(json, "link")), DPB_JSON_NULL);
        assert_string_equal(dpb_json_as_string(dpb_json_get(json, "link_reason"), ""), "none");
        dpb_json_free(json);
    }
    dpb_config_free(config);
}

static void test_text_json_round_trip(void **state)
{
    dpb_config *config = NULL, *again = NULL;
    dpb_json *json, *parsed = NULL;
    struct dpb_str text = {0}, key = {0}, key_again = {0};

    (void)state;
    assert_int_equal(make(false, &config, "bucket", "auto", "noise", "0.1", "disk", "0.3MB/s",
                          "efficiency", "1e-3", "link", "1.1Gbps,7ns", "label", "a 'b' \"c\"",
                          "seed", "9223372036854775807", NULL),
                     DPB_OK);
    json = dpb_config_to_text_json(config);
    assert_int_equal(dpb_json_write(json, false, &text), DPB_OK);
    assert_int_equal(dpb_json_parse(text.text, text.length, &parsed, NULL), DPB_OK);
    assert_int_equal(dpb_config_from_text_json(&sample_set, parsed, &again), DPB_OK);
    assert_memory_equal(dpb_config_struct(again, "experiment"),
                        dpb_config_struct(config, "experiment"), sizeof(struct sample_core));
    assert_memory_equal(dpb_config_struct(again, "strategy"), dpb_config_struct(config, "strategy"),
                        sizeof(struct sample_ddp));
    assert_true(dpb_config_is_explicit(again, "bucket"));
    assert_false(dpb_config_is_explicit(again, "ranks"));
    assert_int_equal(dpb_config_key(config, 0, NULL, 0, &key), DPB_OK);
    assert_int_equal(dpb_config_key(again, 0, NULL, 0, &key_again), DPB_OK);
    assert_string_equal(key.text, key_again.text);
    dpb_str_release(&text);
    dpb_str_release(&key);
    dpb_str_release(&key_again);
    dpb_json_free(parsed);
    dpb_json_free(json);
    dpb_config_free(again);
    dpb_config_free(config);
}

static void test_bad_text_json(void **state)
{
    static const char *const texts[] = {
            "{}",
            "[]",
            "{\"options\":{},\"explicit\":{}}",
            "{\"options\":{\"ranks\":3},\"explicit\":[]}",
    };
    dpb_config *config = NULL;
    dpb_json *json = NULL;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(dpb_json_parse(texts[i], strlen(texts[i]), &json, NULL), DPB_OK);
        assert_int_equal(dpb_config_from_text_json(&sample_set, json, &config), DPB_ERR_CORRUPT);
        dpb_json_free(json);
    }
    assert_int_equal(
            dpb_json_parse("{\"options\":{\"ranks\":\"0\"},\"explicit\":[]}", 39, &json, NULL),
            DPB_OK);
    assert_int_equal(dpb_config_from_text_json(&sample_set, json, &config), DPB_ERR_USAGE);
    dpb_json_free(json);
    assert_null(config);
}

static void test_key_and_repro(void **state)
{
    const char *const without[] = {"ranks"};
    struct dpb_str key = {0}, line = {0};
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(make(false, &config, "ranks", "2", "bucket", "1MiB", "data", "/a b", "noise",
                          "auto", NULL),
                     DPB_OK);
    assert_int_equal(dpb_config_key(config, 0, NULL, 0, &key), DPB_OK);
    assert_string_equal(key.text, "bucket=1MiB data='/a b' disk=8Gbps efficiency=0.85 "
                                  "first-bucket=1MiB hosts='' label='' link=none memory=auto "
                                  "noise=auto overlap=on precision=fp32 ranks=2 seed=0 "
                                  "strategy=ddp timeout=1min workload=mlp");
    dpb_str_release(&key);
    assert_int_equal(
            dpb_config_key(config, DPB_OPT_NO_RECORD | DPB_OPT_COMM_ONLY, without, 1, &key),
            DPB_OK);
    assert_string_equal(key.text, "data='/a b' disk=8Gbps efficiency=0.85 first-bucket=1MiB "
                                  "hosts='' label='' link=none memory=auto noise=auto "
                                  "precision=fp32 seed=0 strategy=ddp workload=mlp");
    dpb_str_release(&key);

    assert_int_equal(dpb_config_repro(config, &line), DPB_OK);
    assert_string_equal(line.text, " --bucket 1MiB --data '/a b' --noise auto --ranks 2");
    dpb_str_release(&line);
    /* what the program chose is not repeated: it would choose it again */
    assert_int_equal(dpb_config_set(config, "seed", "7"), DPB_OK);
    assert_int_equal(dpb_config_repro(config, &line), DPB_OK);
    assert_string_equal(line.text, " --bucket 1MiB --data '/a b' --noise auto --ranks 2");
    dpb_str_release(&line);
    dpb_config_free(config);

    /* a default that was given can mean something else than one that was not */
    assert_int_equal(make(false, &config, "ranks", "1", NULL), DPB_OK);
    assert_int_equal(dpb_config_repro(config, &line), DPB_OK);
    assert_string_equal(line.text, " --ranks 1");
    dpb_str_release(&line);
    dpb_config_free(config);
}

static void test_copy_is_independent(void **state)
{
    dpb_config *config = NULL, *copy = NULL;

    (void)state;
    assert_int_equal(make(false, &config, "ranks", "2", NULL), DPB_OK);
    assert_int_equal(dpb_config_copy(config, &copy), DPB_OK);
    assert_int_equal(dpb_config_set(copy, "ranks", "8"), DPB_OK);
    assert_config_text(config, "ranks", "2");
    assert_config_text(copy, "ranks", "8");
    assert_true(dpb_config_is_explicit(copy, "ranks"));
    dpb_config_free(config);
    assert_config_text(copy, "bucket", "25MiB");
    dpb_config_free(copy);
    dpb_config_free(NULL);
}

/* "auto" is a part by the cell's device, and that part's options count. */
struct device_core {
    char device[DPB_OPTION_TEXT_BYTES], comm[DPB_OPTION_TEXT_BYTES];
};

static const struct dpb_option device_rows[] = {
        {"comm", DPB_OPT_PART, offsetof(struct device_core, comm), "auto", 0, 0, NULL, "Training",
         NULL, "what moves", DPB_OPT_AUTO, 0},
        {"device", DPB_OPT_PART, offsetof(struct device_core, device), "cpu", 0, 0, NULL,
         "Training", NULL, "what computes", 0, 0},
};
static const struct dpb_option ring_rows[] = {
        {"channels", DPB_OPT_INT, 0, "2", 1, 64, NULL, "Communication", NULL, "channels", 0, 0},
};
static const struct dpb_option_table device_table = {"experiment", "", ROWS(device_rows),
                                                     sizeof(struct device_core)};
static const struct dpb_option_table ring_table = {"comm", "ring", ROWS(ring_rows),
                                                   sizeof(int64_t)};
static const struct dpb_option_table *const device_tables[] = {&device_table, &ring_table};
static const struct dpb_part_name device_parts[] = {
        {"device", "cpu", "", NULL},   {"device", "gpu", "", NULL}, {"device", "other", "", NULL},
        {"comm", "memory", "", "cpu"}, {"comm", "ring", "", "gpu"},
};
static const struct dpb_option_set device_set = {device_tables, 2, device_parts, 5};

static void assert_comm(const char *device, const char *comm, const char *expected)
{
    const struct dpb_assignment given[] = {{"device", device, "--device"},
                                           {"comm", comm, "--comm"}};
    dpb_config *config = NULL;

    assert_int_equal(dpb_config_new(&device_set, given, comm ? 2 : 1, false, &config), DPB_OK);
    assert_config_text(config, "comm", expected);
    assert_int_equal(dpb_config_struct(config, "comm") != NULL, strcmp(expected, "ring") == 0);
    dpb_config_free(config);
}

static void test_auto_part(void **state)
{
    const struct dpb_assignment given[] = {{"channels", "4", "--channels"}};
    dpb_config *config = NULL;

    (void)state;
    assert_int_equal(dpb_option_table_check(&device_table, &device_set), DPB_OK);
    assert_comm("cpu", NULL, "memory");
    assert_comm("gpu", NULL, "ring");
    assert_comm("gpu", "auto", "ring");
    assert_comm("gpu", "memory", "memory");
    assert_comm("other", NULL, "memory");
    assert_string_equal(captured.text, "");
    assert_int_equal(dpb_config_new(&device_set, given, 1, false, &config), DPB_ERR_USAGE);
    assert_non_null(strstr(captured.text, "this cell uses comm \"memory\""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
            TEST(test_auto_part),
            TEST(test_defaults),
            TEST(test_assignments_reach_their_members),
            TEST(test_inactive_options),
            TEST(test_refused_assignments),
            TEST(test_set),
            TEST(test_record_json),
            TEST(test_text_json_round_trip),
            TEST(test_bad_text_json),
            TEST(test_key_and_repro),
            TEST(test_copy_is_independent),
    };

    return DPB_RUN_TESTS(tests);
}
