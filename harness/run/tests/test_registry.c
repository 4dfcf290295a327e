/* Parts of a module in a registry, where there is no module. */
#include "dpb_test.h"

#include "../../base/tests/log_capture.h"
#include "dpb_module.h"
#include "registry_for_tests.h"

static const struct dpb_device_ops device = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "gpu",
        .summary = "a device of the module",
        .flags = DPB_DEVICE_ACCELERATOR,
        .probe = dpb_module_probe_device,
};
static const struct dpb_comm_ops comm = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "between",
        .summary = "a comm of the module",
        .flags = DPB_COMM_DEVICE_MEMORY,
        .probe = dpb_module_probe_comm,
};

static struct dpb_registry registry(void)
{
    static const struct dpb_device_ops *devices[2] = {NULL, &device};
    static const struct dpb_comm_ops *comms[2] = {NULL, &comm};
    struct dpb_registry made = *registry_for_tests();
    devices[0] = made.devices[0];
    comms[0] = made.comms[0];
    made.devices = devices;
    made.comms = comms;
    made.device_count = made.comm_count = 2;
    return made;
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(setenv(DPB_MODULE_PATH_VARIABLE, "/nowhere", 1), 0);
    capture_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    capture_stop();
    return 0;
}

static void test_use(void **state)
{
    const struct dpb_device_ops *devices = NULL;
    const struct dpb_comm_ops *comms = NULL;
    const struct dpb_recorder_ops *recorders = NULL;
    struct dpb_registry r = registry();
    (void)state;
    assert_int_equal(dpb_registry_use_device(&r, "cpu", &devices), DPB_OK);
    assert_ptr_equal(devices, r.devices[0]);
    assert_int_equal(dpb_registry_use_comm(&r, "shm", &comms), DPB_OK);
    assert_ptr_equal(comms, r.comms[0]);
    assert_int_equal(dpb_registry_use_recorder(&r, "host", &recorders), DPB_OK);
    assert_ptr_equal(recorders, r.recorders[0]);
    assert_string_equal(captured.text, "");
    assert_int_equal(dpb_registry_use_device(&r, "gpu", &devices), DPB_ERR_UNAVAILABLE);
    assert_logged("device \"gpu\" is not available here, because libdpbench_cuda.so is not there "
                  "(tried /nowhere/libdpbench_cuda.so)");
    assert_int_equal(dpb_registry_use_comm(&r, "between", &comms), DPB_ERR_UNAVAILABLE);
    assert_logged("comm \"between\" is not available here");
}

static void test_check_parts(void **state)
{
    struct dpb_registry r = registry();
    (void)state;
    assert_int_equal(dpb_registry_check_parts(&r, "cpu", "shm", 64), DPB_OK);
    assert_string_equal(captured.text, "");
    assert_int_equal(dpb_registry_check_parts(&r, "gpu", "shm", 1), DPB_ERR_USAGE);
    assert_logged("--device gpu cannot train with --comm shm: it computes in its own memory");
    assert_int_equal(dpb_registry_check_parts(&r, "cpu", "between", 1), DPB_ERR_USAGE);
    assert_logged("and between moves a GPU's");
    assert_int_equal(dpb_registry_check_parts(&r, "gpu", "between", 1), DPB_ERR_UNAVAILABLE);
    assert_logged("device \"gpu\" is not available here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup_teardown(test_use, setup, teardown),
            cmocka_unit_test_setup_teardown(test_check_parts, setup, teardown),
    };
    return DPB_RUN_TESTS(tests);
}
