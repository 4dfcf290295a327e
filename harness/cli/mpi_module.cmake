# libdpbench_openmpi.so and libdpbench_mpich.so, beside the program: comm "mpi" of that library
# (docs/decisions/0011-mpi-modules.md).
foreach(mpi ${DPB_MPI_LIBRARIES})
    add_library(dpbench_${mpi} MODULE mpi_module.c)
    target_compile_definitions(dpbench_${mpi} PRIVATE
            DPB_MODULE_BUILD="${mpi} ${DPB_MPI_${mpi}_VERSION}")
    target_include_directories(dpbench_${mpi} PRIVATE ${CMAKE_SOURCE_DIR}/harness/run)
    target_link_libraries(dpbench_${mpi} PRIVATE dpb_flags dpb_comm_${mpi} dpb_profiles dpb_comm
            dpb_kernels dpb_base)
    set_target_properties(dpbench_${mpi} PROPERTIES C_VISIBILITY_PRESET hidden
            LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda_module.map)
    target_link_options(dpbench_${mpi} PRIVATE LINKER:-z,defs LINKER:--exclude-libs,ALL
            LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cuda_module.map)

    if(NOT DPB_TESTS)
        continue()
    endif()
    # The loader's way to the comm: two ranks under that library's mpirun.
    add_executable(mpi_module_ranks_${mpi} tests/mpi_module_ranks.c registry.c)
    target_link_libraries(mpi_module_ranks_${mpi} PRIVATE dpb_flags dpb_run_sim dpb_run dpb_plots
            dpb_results dpb_bench dpb_step dpb_profiles dpb_comm_mpi_options dpb_comm_nccl_options
            dpb_comm_shm dpb_kernels_cpu dpb_kernels_cuda_options dpb_base)
    target_include_directories(mpi_module_ranks_${mpi} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    add_dependencies(mpi_module_ranks_${mpi} dpbench_${mpi})
    if(DPB_MPI_${mpi}_RUN)
        add_test(NAME mpi_${mpi}_module
            COMMAND ${CMAKE_SOURCE_DIR}/harness/comm/mpi/tests/run_ranks ${mpi}
                ${DPB_MPI_${mpi}_RUN} $<TARGET_FILE:mpi_module_ranks_${mpi}> 2 module)
        set_tests_properties(mpi_${mpi}_module PROPERTIES TIMEOUT 400 LABELS "unit;mpi"
            ENVIRONMENT "DPBENCH_MODULE_PATH=$<TARGET_FILE_DIR:dpbench_${mpi}>")
    endif()
endforeach()
