/* The meter of a GPU, against a faked NVML. */
#include "dpb_test.h"

#include "dpb_meter_nvml.h"
#include "fake_nvml.h"

static int setup(void **state)
{
    (void)state;
    fake_nvml_reset();
    dpb_nvml_use(&fake_nvml_table);
    return 0;
}

static dpb_status open_meter(const char *device, dpb_meter **meter, char *why)
{
    strcpy(why, "");
    return dpb_meter_nvml_ops.open(&(struct dpb_meter_config){device}, meter, why, 256);
}

static void test_readings(void **state)
{
    struct dpb_meter_sample sample;
    dpb_meter *meter = NULL;
    char why[256];

    (void)state;
    assert_int_equal(dpb_meter_ops_check(&dpb_meter_nvml_ops), DPB_OK);
    assert_int_equal(dpb_meter_nvml_ops.probe(why, sizeof(why)), DPB_OK);
    fake_nvml.gpus[1].energy_mj = 123456;
    fake_nvml.gpus[1].reasons = 0x44;
    assert_int_equal(open_meter("0000:43:00.0", &meter, why), DPB_OK);
    dpb_meter_nvml_ops.read(meter, &sample);
    assert_int_equal(sample.energy_mj, 123456);
    assert_int_equal(sample.power_mw, 650000); /* now, not the mean of a second */
    assert_int_equal(sample.clock_mhz, 1980);
    assert_int_equal(sample.memory_clock_mhz, 3201);
    assert_int_equal(sample.temperature_c, 58);
    assert_int_equal(sample.throttle, 0x44);
    assert_true(sample.time_ns > 0);
    fake_nvml.gpus[1].no_field = fake_nvml.gpus[1].no_energy = true;
    dpb_meter_nvml_ops.read(meter, &sample);
    assert_int_equal(sample.power_mw, 600000);
    assert_int_equal(sample.energy_mj, DPB_METER_NONE);
    dpb_meter_nvml_ops.poll(meter, &sample);
    assert_int_equal(sample.clock_mhz, 1980);
    assert_int_equal(sample.throttle, 0x44);
    assert_int_equal(sample.temperature_c, DPB_METER_NONE);
    dpb_meter_nvml_ops.close(meter);
}

static void test_which_gpu(void **state)
{
    dpb_meter *meter = NULL;
    char why[256];

    (void)state;
    assert_int_equal(open_meter("GPU-1", &meter, why), DPB_OK);
    dpb_meter_nvml_ops.close(meter);
    assert_int_equal(open_meter("0000:99:00.0", &meter, why), DPB_ERR_UNAVAILABLE);
    assert_string_equal(why, "NVML does not find the GPU \"0000:99:00.0\": an error (6)");
    fake_nvml.start_result = 9;
    assert_int_equal(open_meter("GPU-1", &meter, why), DPB_ERR_UNAVAILABLE);
    assert_string_equal(why, "NVML does not start: Driver Not Loaded (9)");
    assert_int_equal(dpb_meter_nvml_ops.probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "not available here, because NVML does not start"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_readings, setup),
            cmocka_unit_test_setup(test_which_gpu, setup),
    };

    return DPB_RUN_TESTS(tests);
}
