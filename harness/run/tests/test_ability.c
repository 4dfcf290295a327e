/* What a device cannot compute is known before anything is launched. */
#include "dpb_test.h"

#include "dpb_ability.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "registry_for_tests.h"

/* ---- a CPU that lacks one operator ---- */

static struct dpb_device_ops lacking_ops;
static enum dpb_op lacking;
static int opened;

static bool op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    return op != lacking && dpb_device_cpu_ops.op_supported(device, op, dtype);
}

static dpb_status open_lacking(const struct dpb_device_config *config, dpb_device **device)
{
    DPB_TRY(dpb_device_cpu_ops.open(config, device));
    ((struct dpb_device_base *)*device)->ops = &lacking_ops;
    opened++;
    return DPB_OK;
}

static void close_lacking(dpb_device *device)
{
    opened--;
    dpb_device_cpu_ops.close(device);
}

static const struct dpb_registry *registry_lacking(enum dpb_op op, unsigned flags)
{
    static const struct dpb_device_ops *const devices[] = {&lacking_ops};
    static struct dpb_registry registry;
    lacking_ops = dpb_device_cpu_ops;
    lacking_ops.flags |= flags;
    lacking_ops.op_supported = op_supported;
    lacking_ops.open = open_lacking;
    lacking_ops.close = close_lacking;
    lacking = op;
    registry = *registry_for_tests();
    registry.devices = devices;
    return &registry;
}

/* ---- plans ---- */

static char errors[1024];

static void collect(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    size_t length = strlen(errors);
    snprintf(errors + length, sizeof(errors) - length, "%s\n", line);
}

static void build(const struct dpb_registry *registry, const char *workloads, struct dpb_plan *plan)
{
    const char *const flags[][2] = {{"workload", workloads}, {"data", "synthetic"}, {"ranks", "1"}};
    struct dpb_settings settings = {0};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        assert_int_equal(
                dpb_settings_add(&settings, registry->options, flags[i][0], flags[i][1], "test"),
                DPB_OK);
    struct dpb_plan_input input = {registry, NULL, &settings, true, 2, "t"};
    assert_int_equal(dpb_plan_build(&input, plan), DPB_OK);
    dpb_settings_release(&settings);
}

/* ---- tests ---- */

static void test_lacking_operator_is_named(void **state)
{
    const struct dpb_registry *registry = registry_lacking(DPB_OP_CONV_BWD_DATA, 0);
    struct dpb_plan plan;
    char why[256] = "";

    (void)state;
    build(registry, "mnist-mlp,mnist-cnn", &plan);
    assert_int_equal(dpb_ability_check(registry, plan.cells[0].config, why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_ability_check(registry, plan.cells[1].config, why, sizeof(why)),
                     DPB_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "workload \"mnist-cnn\": device \"cpu\" ("));
    assert_non_null(strstr(why, "has no operator \"conv-bwd-data\" in fp32"));
    assert_int_equal(opened, 0);

    errors[0] = '\0';
    dpb_log_set_sink(collect, NULL);
    assert_int_equal(dpb_ability_check_plan(registry, &plan), DPB_ERR_UNSUPPORTED);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(errors, "\"conv-bwd-data\" in fp32"));
    assert_non_null(strstr(errors, "use another --device"));
    dpb_plan_release(&plan);
}

static void test_all_is_there(void **state)
{
    const struct dpb_registry *registry = registry_for_tests();
    struct dpb_plan plan;

    (void)state;
    build(registry, "mnist-mlp,mnist-cnn,cifar-resnet20", &plan);
    assert_int_equal(dpb_ability_check_plan(registry, &plan), DPB_OK);
    dpb_plan_release(&plan);
}

/* Opening an accelerator takes seconds, and its memory: its ranks ask. */
static void test_accelerators_are_not_opened(void **state)
{
    const struct dpb_registry *registry = registry_lacking(DPB_OP_MATMUL, DPB_DEVICE_ACCELERATOR);
    struct dpb_plan plan;
    char why[256];

    (void)state;
    build(registry, "mnist-mlp", &plan);
    assert_int_equal(dpb_ability_check(registry, plan.cells[0].config, why, sizeof(why)), DPB_OK);
    dpb_plan_release(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_lacking_operator_is_named),
            cmocka_unit_test(test_all_is_there),
            cmocka_unit_test(test_accelerators_are_not_opened),
    };
    return DPB_RUN_TESTS(tests);
}
