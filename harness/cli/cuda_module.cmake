# libdpbench_cuda.so, beside the program: device "cuda", comm "nccl", recorder "cupti", meter "nvml".
# It links the static CUDA runtime and opens every other library of a vendor when it needs it, in the
# folders below after those of LD_LIBRARY_PATH: a wheel's libraries lie in none of the system's.
if(NOT DPB_CUDA_MODULE)
    return()
endif()

foreach(part dpb_kernels_cuda dpb_kernels_cuda_device dpb_comm_nccl dpb_profiles_cupti)
    if(NOT TARGET ${part})
        message(FATAL_ERROR "the CUDA module needs ${part}")
    endif()
endforeach()

list(JOIN DPBENCH_CUDA_ARCHITECTURES " " archs)
add_library(dpbench_cuda MODULE cuda_module.c)
target_compile_definitions(dpbench_cuda PRIVATE
        DPB_MODULE_BUILD="CUDA ${CUDAToolkit_VERSION}, for ${archs}")
target_include_directories(dpbench_cuda PRIVATE ${CMAKE_SOURCE_DIR}/harness/run
        ${CMAKE_SOURCE_DIR}/harness/comm/mpi) # dpb_module.h names MPI libraries
target_link_libraries(dpbench_cuda PRIVATE dpb_flags dpb_profiles_cupti dpb_comm_nccl
        dpb_kernels_cuda dpb_kernels_cuda_device dpb_profiles dpb_comm dpb_kernels dpb_base
        CUDA::cudart_static)
set_target_properties(dpbench_cuda PROPERTIES C_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX
        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda_module.map)

set(folders "")
foreach(library ${DPB_NCCL_LIBRARY} ${DPB_CUDNN_LIBRARY} ${DPB_CUPTI_LIBRARY}
        ${CUDA_cublasLt_LIBRARY} ${CUDAToolkit_LIBRARY_DIR}/.)
    get_filename_component(folder ${library} DIRECTORY)
    list(APPEND folders ${folder})
endforeach()
list(REMOVE_DUPLICATES folders)
list(JOIN folders ":" folders)
target_link_options(dpbench_cuda PRIVATE
        LINKER:-z,defs LINKER:--as-needed LINKER:--exclude-libs,ALL LINKER:--enable-new-dtags "LINKER:-rpath,${folders}"
        LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cuda_module.map)

dpb_test(test_cuda_module SOURCES tests/test_cuda_module.c registry.c
    LINK dpb_run_sim dpb_run dpb_plots dpb_results dpb_bench dpb_step dpb_profiles dpb_comm_nccl_options
        dpb_comm_shm dpb_kernels_cpu dpb_kernels_cuda_options dpb_base
    LABELS gpu-toolkit)
if(DPB_TESTS)
    add_dependencies(test_cuda_module dpbench_cuda)
    target_include_directories(test_cuda_module PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(test_cuda_module PROPERTIES
        ENVIRONMENT "DPBENCH_MODULE_PATH=$<TARGET_FILE_DIR:dpbench_cuda>")
endif()
