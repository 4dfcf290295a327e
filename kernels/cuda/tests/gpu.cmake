# What runs on a GPU: the tests of operators that the CPU device has, staged (kernels/tests/staged.h),
# and the ceiling of matrix products. Label gpu; they skip with the probe's reason without one.
# tests/gpu/check.sh runs them.
set(kernel_tests ${CMAKE_SOURCE_DIR}/kernels/tests)
set(staged ${kernel_tests}/op_data.c ${kernel_tests}/op_bf16.c ${kernel_tests}/staged.c
    ${kernel_tests}/staged_pair.c)

# The ceiling's arithmetic and output, with the CPU device in the place of a GPU: fp32, which every CPU
# has.
add_executable(cpu_ceiling gpu_ceiling.c ${kernel_tests}/staged_pair_cpu.c)
target_include_directories(cpu_ceiling PRIVATE ${kernel_tests})
target_link_libraries(cpu_ceiling PRIVATE dpb_flags dpb_testing dpb_kernels_cpu)
add_test(NAME test_gpu_ceiling_output COMMAND cpu_ceiling 64)
set_tests_properties(test_gpu_ceiling_output PROPERTIES TIMEOUT 120 LABELS unit
    PASS_REGULAR_EXPRESSION "\"dtype\": \"fp32\", \"size\": 64, \"tflops\": [0-9.e-]*[1-9]")

if(NOT TARGET dpb_kernels_cuda_device OR NOT TARGET dpb_kernels_cuda)
    return()
endif()

add_library(dpb_gpu_device INTERFACE)
target_link_libraries(dpb_gpu_device INTERFACE dpb_kernels_cuda dpb_kernels_cuda_device
    CUDA::cudart_static)

# gpu_test(NAME TEST [DEFINITION...])
function(gpu_test name test)
    dpb_test(${name} SOURCES ${kernel_tests}/${test}.c ${${test}_parts} ${staged} staged_pair_cuda.c
        LINK dpb_gpu_device dpb_kernels_cpu m LABELS gpu TIMEOUT 120)
    target_include_directories(${name} PRIVATE ${kernel_tests})
    target_compile_definitions(${name} PRIVATE ${ARGN})
endfunction()

gpu_test(test_gpu_ops test_cpu_ops)
gpu_test(test_gpu_recommend test_cpu_recommend)
gpu_test(test_gpu_sequence test_cpu_sequence)
gpu_test(test_gpu_optimizers test_optimizers DPB_TEST_DATA="${kernel_tests}/data")
gpu_test(test_gpu_bf16 test_cpu_bf16)
gpu_test(test_gpu_sequence_bf16 test_cpu_sequence_bf16)
gpu_test(test_gpu_fp16 test_cpu_bf16 DPB_OP_HALF_F16)
gpu_test(test_gpu_sequence_fp16 test_cpu_sequence_bf16 DPB_OP_HALF_F16)

add_executable(gpu_ceiling gpu_ceiling.c staged_pair_cuda.c)
target_include_directories(gpu_ceiling PRIVATE ${kernel_tests})
target_link_libraries(gpu_ceiling PRIVATE dpb_flags dpb_testing dpb_gpu_device)

# Everything that tests/gpu/check.sh runs, and nothing else.
add_custom_target(gpu_check)
add_dependencies(gpu_check dpbench dpbench_cuda dpb_peer_start gpu_ceiling test_gpu_ops
    test_gpu_recommend test_gpu_sequence test_gpu_optimizers test_gpu_bf16 test_gpu_sequence_bf16
    test_gpu_fp16 test_gpu_sequence_fp16)
