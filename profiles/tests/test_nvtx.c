/* The ranges that a tool of NVIDIA gets, as a tool of the test's own sees them. */
#include "dpb_test.h"

#include "dpb_event.h"
#include "nvtx.h"
#include "nvtx_seen.h"

static void test_a_tool_that_is_there_stays(void **state)
{
    (void)state;
    setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
    assert_true(nvtx_offer(DPB_NVTX_INJECTION));
    assert_string_equal(getenv("NVTX_INJECTION64_PATH"), "/opt/nsys/libToolsInjection64.so");
    unsetenv("NVTX_INJECTION64_PATH");
    assert_true(nvtx_offer(DPB_NVTX_INJECTION));
    assert_string_equal(getenv("NVTX_INJECTION64_PATH"), DPB_NVTX_INJECTION);
}

static void test_ranges(void **state)
{
    char expected[1024] = "";
    size_t length = 0;

    (void)state;
    nvtx_begin(DPB_EVENT_STEP, "step", -1);
    nvtx_begin(DPB_EVENT_BACKWARD, "backward", -1);
    nvtx_begin(DPB_EVENT_COMPUTE, "layer3.conv2.bwd-weights", -1);
    nvtx_end();
    nvtx_begin(DPB_EVENT_NOTE, "all-reduce", 4);
    nvtx_end();
    nvtx_end();
    nvtx_end();
    for (int kind = 0; kind < DPB_EVENT_KIND_COUNT; kind++)
        length += (size_t)snprintf(expected + length, sizeof(expected) - length, "category %d %s\n",
                                   kind + 1, dpb_event_kind_text((enum dpb_event_kind)kind));
    snprintf(expected + length, sizeof(expected) - length,
             "push dpbench %d - step\n"
             "push dpbench %d - backward\n"
             "push dpbench %d - layer3.conv2.bwd-weights\n"
             "pop dpbench\n"
             "push dpbench %d 4 all-reduce\n"
             "pop dpbench\npop dpbench\npop dpbench\n",
             DPB_EVENT_STEP + 1, DPB_EVENT_BACKWARD + 1, DPB_EVENT_COMPUTE + 1, DPB_EVENT_NOTE + 1);
    assert_string_equal(nvtx_seen_text(), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_a_tool_that_is_there_stays),
            cmocka_unit_test(test_ranges),
    };

    if (!nvtx_is_built_in())
        dpb_test_skip_all("built without NVTX's headers");
    return DPB_RUN_TESTS(tests);
}
