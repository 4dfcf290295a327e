# The kernels on the host (shim.h), on every machine: no CUDA is needed.
list(TRANSFORM DPB_CUDA_KERNEL_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/../
    OUTPUT_VARIABLE dpb_cuda_kernels)
set_source_files_properties(${dpb_cuda_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")

# Fibers.
add_library(dpb_shim STATIC shim.cc ${dpb_cuda_kernels})
target_include_directories(dpb_shim PUBLIC ..)
target_link_libraries(dpb_shim PUBLIC dpb_kernels PRIVATE dpb_flags m)

# A fiber leaves frames of functions that it comes back to: they must stay on its stack.
if(DPB_SANITIZE MATCHES address)
    target_compile_options(dpb_shim PUBLIC
        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=asan-use-after-return=0>
        $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fsanitize-address-use-after-return=never>)
endif()

# The same, a thread of the host for each thread of a block.
add_library(dpb_shim_threads STATIC shim.cc ${dpb_cuda_kernels})
target_include_directories(dpb_shim_threads PUBLIC ..)
target_compile_definitions(dpb_shim_threads PUBLIC DPB_SHIM_PTHREAD DPB_CUDA_THREADS=64)
target_link_libraries(dpb_shim_threads PUBLIC dpb_kernels Threads::Threads PRIVATE dpb_flags m)

# The operators' tests, as the CPU device has them. `aligned`: arrays at 64-byte boundaries, so that
# kernels take 16 bytes at a time; the others' are 4 bytes off.
set(op_tests ${CMAKE_CURRENT_SOURCE_DIR}/../../tests)
function(dpb_shim_op_test name test)
    cmake_parse_arguments(OP "" "" "DEFINITIONS" ${ARGN})
    dpb_test(${name}
        SOURCES ${op_tests}/${test}.c ${${test}_parts} ${op_tests}/op_data.c ${op_tests}/op_bf16.c
            shim_pair.c shim_device.c
        LINK dpb_shim dpb_kernels_cpu m TIMEOUT 600) # fibers are slow under AddressSanitizer
    if(DPB_TESTS)
        target_include_directories(${name} PRIVATE ${op_tests})
        target_compile_definitions(${name} PRIVATE ${OP_DEFINITIONS})
    endif()
endfunction()

foreach(test ops recommend sequence)
    dpb_shim_op_test(test_cuda_shim_${test} test_cpu_${test})
    dpb_shim_op_test(test_cuda_shim_${test}_aligned test_cpu_${test}
        DEFINITIONS OP_DATA_SHIFT_BYTES=0)
endforeach()
foreach(test bf16 sequence_bf16)
    dpb_shim_op_test(test_cuda_shim_${test} test_cpu_${test})
    dpb_shim_op_test(test_cuda_shim_${test}_as_fp16 test_cpu_${test} DEFINITIONS SHIM_FP16)
endforeach()
dpb_shim_op_test(test_cuda_shim_optimizers test_optimizers
    DEFINITIONS DPB_TEST_DATA="${op_tests}/data")

dpb_test(test_cuda_shim SOURCES test_shim.c planted.cc LINK dpb_shim m)

dpb_test(test_cuda_kernels SOURCES test_kernels.c shim_device.c ${op_tests}/op_data.c
    LINK dpb_shim dpb_kernels_cpu m TIMEOUT 600)
if(DPB_TESTS)
    target_include_directories(test_cuda_kernels PRIVATE ${op_tests})
endif()
dpb_test(test_cuda_kernels_threads SOURCES test_kernels_threads.c shim_device.c
        ${op_tests}/op_data.c
    LINK dpb_shim_threads m LABELS threads)
if(DPB_TESTS)
    target_include_directories(test_cuda_kernels_threads PRIVATE ${op_tests})
endif()
