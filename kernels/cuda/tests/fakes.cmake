# Host code of the CUDA module against a faked runtime and faked libraries (README.md); label
# cuda-fake. The kernels are the device's own, compiled for the host (shim.h).
add_library(dpb_fake_cudart STATIC fake_cudart.c fake_cudart_graph.c fake_cudart_memory.c
    fake_cudart_stream.c)
target_include_directories(dpb_fake_cudart PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dpb_fake_cudart PUBLIC dpb_cuda_headers PRIVATE dpb_flags Threads::Threads)

dpb_test(test_fake_cudart SOURCES test_fake_cudart.c LINK dpb_fake_cudart LABELS cuda-fake)

if(NOT DPB_HAVE_CUDNN)
    return()
endif()

# Sums of products in any order: they are in double, and there are many.
set_source_files_properties(fake_cublaslt.c fake_cudnn.c PROPERTIES
    COMPILE_OPTIONS "-O3;-fassociative-math;-fno-signed-zeros;-fno-trapping-math")
# The device "cuda" with all that it needs; nothing of it is a vendor's.
add_library(dpb_fake_gpu STATIC fake_cublaslt.c fake_cudnn.c fake_kernels.c)
target_include_directories(dpb_fake_gpu PUBLIC ..)
target_link_libraries(dpb_fake_gpu PUBLIC dpb_kernels_cuda dpb_shim dpb_fake_cudart
    PRIVATE dpb_flags m)

# The operators' tests, as the CPU device has them.
set(op_tests ${CMAKE_CURRENT_SOURCE_DIR}/../../tests)
foreach(test ops bf16 recommend sequence sequence_bf16)
    dpb_test(test_cuda_fake_${test}
        SOURCES ${op_tests}/test_cpu_${test}.c ${test_cpu_${test}_parts} ${op_tests}/op_data.c
            ${op_tests}/op_bf16.c ${op_tests}/staged.c ${op_tests}/staged_pair.c staged_pair_fake.c
        LINK dpb_fake_gpu dpb_kernels_cpu m LABELS cuda-fake)
    if(DPB_TESTS)
        target_include_directories(test_cuda_fake_${test} PRIVATE ${op_tests})
    endif()
endforeach()
