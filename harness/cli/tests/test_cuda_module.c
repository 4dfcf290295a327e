/* The real module, opened without a driver: its parts are whole, and those that stand for them in
 * the registry tell the truth about them. */
#include "dpb_test.h"

#include "../../base/tests/log_capture.h"
#include "dpb_cli.h"
#include "dpb_module.h"

static const struct dpb_module *module;

static int setup(void **state)
{
    char why[1024] = "";

    (void)state;
    if (dpb_module_open(&module, why, sizeof(why)) < 0)
        fail_msg("%s", why);
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    capture_stop();
    return 0;
}

/* The same rows, as they lie in two libraries. */
static void assert_options(const struct dpb_option_table *here,
                           const struct dpb_option_table *there)
{
    assert_int_equal(here != NULL, there != NULL);
    if (!here)
        return;
    assert_string_equal(here->owner, there->owner);
    assert_int_equal(here->config_bytes, there->config_bytes);
    assert_int_equal(here->row_count, there->row_count);
    for (size_t i = 0; i < here->row_count; i++) {
        assert_string_equal(here->rows[i].name, there->rows[i].name);
        assert_int_equal(here->rows[i].offset, there->rows[i].offset);
    }
}

static void test_device(void **state)
{
    const struct dpb_device_ops *here = dpb_registry_device(dpb_registry_get(), "cuda");

    (void)state;
    assert_int_equal(dpb_device_ops_check(module->device), DPB_OK);
    assert_string_equal(here->name, module->device->name);
    assert_int_equal(here->flags, module->device->flags);
    assert_options(here->options, module->device->options);
}

static void test_comm(void **state)
{
    const struct dpb_comm_ops *here = dpb_registry_comm(dpb_registry_get(), "nccl");

    (void)state;
    assert_int_equal(dpb_comm_ops_check(module->comm), DPB_OK);
    assert_string_equal(here->name, module->comm->name);
    assert_int_equal(here->flags, module->comm->flags);
    assert_options(here->options, module->comm->options);
}

static void test_recorder(void **state)
{
    const struct dpb_recorder_ops *here = dpb_registry_recorder(dpb_registry_get(), "cupti");

    (void)state;
    assert_int_equal(dpb_recorder_ops_check(module->recorder), DPB_OK);
    assert_string_equal(here->name, module->recorder->name);
    assert_int_equal(here->flags, module->recorder->flags);
    assert_options(here->options, module->recorder->options);
}

static void test_meter(void **state)
{
    const struct dpb_registry *registry = dpb_registry_get();
    const struct dpb_meter_ops *here = registry->meters[registry->meter_count - 1];

    (void)state;
    assert_int_equal(dpb_meter_ops_check(module->meter), DPB_OK);
    assert_string_equal(here->name, module->meter->name);
    assert_int_equal(here->flags, module->meter->flags);
}

/* What the module logs comes out of the program's log: here, into its sink. */
static void test_log(void **state)
{
    struct dpb_device_config config = {.local_rank = 0, .local_size = 1, .threads = 1};
    dpb_device *device = NULL;
    char why[1024] = "";

    (void)state;
    if (module->device->probe(why, sizeof(why)) == DPB_OK)
        dpb_test_skip("there is an NVIDIA driver");
    dpb_log_set_prefix("rank 7");
    assert_int_not_equal(module->device->open(&config, &device), DPB_OK);
    dpb_log_set_prefix(NULL);
    assert_logged("dpbench: rank 7: error: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_device, setup, teardown),
            cmocka_unit_test_setup_teardown(test_comm, setup, teardown),
            cmocka_unit_test_setup_teardown(test_recorder, setup, teardown),
            cmocka_unit_test_setup_teardown(test_meter, setup, teardown),
            cmocka_unit_test_setup_teardown(test_log, setup, teardown),
    };

    return DPB_RUN_TESTS(tests);
}
