/* What kernels are by their names, and whether a trace that lacks some may have figures. */
#include "dpb_test.h"

#include <stdbool.h>

#include "dpb_losses.h"
#include "kernel_name.h"

static void test_kernels_that_communicate(void **state)
{
    static const struct {
        const char *name;
        bool is_comm;
    } cases[] = {
            {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", true},
            {"ncclKernel_AllReduce_RING_LL_Sum_int8_t(ncclWorkElem)", true},
            {"_Z43ncclKernel_AllReduce_RING_SIMPLE_Sum_float11ncclDevComm", true},
            {"ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32", true},
            {"void (anonymous namespace)::oneRankReduce<FuncPreMulSum<float> >()", true},
            {"multimem_all_reduce_kernel", true},
            {"sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", false},
            {"_Z12sgd_momentumPfPKf", false},
            {"", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(kernel_name_is_comm(cases[i].name), cases[i].is_comm);
}

static void test_short_names(void **state)
{
    static const struct {
        const char *name, *expected;
    } cases[] = {
            /* mangled */
            {"_Z12sgd_momentumPfPKfS_lff", "sgd_momentum"},
            {"_ZN3dpb9layernormEPfPKf", "layernorm"},
            {"_ZN12_GLOBAL__N_17softmaxEPf", "softmax"},
            {"_ZL6staticPf", "static"},
            {"_Z9pack_castI13__nv_bfloat16fEvPT_PKT0_l", "pack_cast"},
            {"_ZN7cutlass7Kernel2I67cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_tn_"
             "align8EEvNT_6ParamsE",
             "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_tn_align8"},
            {"_ZN7cutlass13device_kernelIN4gemm6kernel13GemmUniversalIiEEEEvNT_6ParamsE",
             "GemmUniversal"},
            {"_ZSt4moveIRiEvOT_", "move"},
            /* demangled */
            {"void dpb::layernorm<float, 4>(float*, float const*)", "layernorm"},
            {"(anonymous namespace)::softmax(float*)", "softmax"},
            {"void cutlass::Kernel2<cutlass_80_wmma_tensorop>(Params)", "cutlass_80_wmma_tensorop"},
            {"void cutlass::device_kernel<cutlass::gemm::GemmUniversal<int> >(P)", "GemmUniversal"},
            {"void at::native::Loop<int>::run(float)", "run"},
            {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
             "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
            /* plain, or what is no name of C++ */
            {"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN",
             "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN"},
            {"Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"},
            {"[CUDA memset]", "[CUDA memset]"},
            {"_Z", "_Z"},
            {"_Z99short", "_Z99short"}, /* cut: the name says 99 bytes */
            {"_Z99999999999999999999x", "_Z99999999999999999999x"},
            {"_ZN", "_ZN"},
            {"", ""},
    };
    char text[96];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        kernel_name_shorten(cases[i].name, text, sizeof(text));
        assert_string_equal(text, cases[i].expected);
    }
    kernel_name_shorten("_Z12sgd_momentumPf", text, 4);
    assert_string_equal(text, "sgd");
}

static void assert_refused(const struct dpb_losses *losses, const char *word)
{
    char why[256] = "";

    assert_false(dpb_losses_are_small(losses, why, sizeof(why)));
    assert_non_null(strstr(why, word));
}

static void test_limit_of_losses(void **state)
{
    struct dpb_losses losses = {.kernels = 10000, .dropped = 3, .zero_time = 4, .unmatched = 3};
    char why[256] = "";

    (void)state;
    assert_true(dpb_losses_are_small(&losses, why, sizeof(why)));
    assert_string_equal(why, "");
    losses.unmatched++; /* 11 of 10000: above 1 in 1000 */
    assert_refused(&losses, "4 without a launch");
    losses = (struct dpb_losses){.kernels = 999, .zero_time = 1};
    assert_refused(&losses, "1 without times");
    losses = (struct dpb_losses){.kernels = 100000, .dropped = 101};
    assert_refused(&losses, "101 records dropped");
    losses = (struct dpb_losses){0};
    assert_refused(&losses, "no kernel");
    losses = (struct dpb_losses){.kernels = 100000, .damaged_buffers = 1};
    assert_refused(&losses, "cannot read");
    losses = (struct dpb_losses){.kernels = 100000, .untraced = "\"nsys\" is here"};
    assert_refused(&losses, "nsys");
}

static void test_losses_of_ranks_add_up(void **state)
{
    const struct dpb_losses first = {.kernels = 100,
                                     .dropped = 1,
                                     .kernels_per_step_min = 9,
                                     .kernels_per_step_max = 11,
                                     .clock_bound_ns = 500,
                                     .sync_wait_ns = 7};
    const struct dpb_losses second = {.kernels = 50,
                                      .zero_time = 2,
                                      .unmatched = 3,
                                      .damaged_buffers = 4,
                                      .kernels_per_step_min = 8,
                                      .kernels_per_step_max = 10,
                                      .clock_bound_ns = 400,
                                      .overhead_ns = 6,
                                      .untraced = "why"};
    struct dpb_losses sum = {0};
    dpb_json *json = dpb_losses_to_json(&first);

    (void)state;
    assert_int_equal(dpb_json_type(dpb_json_get(json, "untraced")), DPB_JSON_NULL);
    dpb_losses_add_json(&sum, json);
    dpb_json_free(json);
    assert_int_equal(sum.kernels_per_step_min, 9);
    json = dpb_losses_to_json(&second);
    dpb_losses_add_json(&sum, json);
    dpb_json_free(json);
    assert_int_equal(sum.kernels, 150);
    assert_int_equal(sum.dropped, 1);
    assert_int_equal(sum.zero_time, 2);
    assert_int_equal(sum.unmatched, 3);
    assert_int_equal(sum.damaged_buffers, 4);
    assert_int_equal(sum.kernels_per_step_min, 8);
    assert_int_equal(sum.kernels_per_step_max, 11);
    assert_int_equal(sum.clock_bound_ns, 500);
    assert_int_equal(sum.sync_wait_ns, 7);
    assert_int_equal(sum.overhead_ns, 6);
    assert_string_equal(sum.untraced, "why");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_kernels_that_communicate),
            cmocka_unit_test(test_short_names),
            cmocka_unit_test(test_limit_of_losses),
            cmocka_unit_test(test_losses_of_ranks_add_up),
    };

    return DPB_RUN_TESTS(tests);
}
