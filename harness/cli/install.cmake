# cmake --install: the program, its modules where harness/run/module.c looks for them, what NCCL
# loads beside them, the sweep files of the scenarios, and the documentation.
install(TARGETS dpbench RUNTIME DESTINATION bin)
foreach(module dpbench_cuda dpbench_openmpi dpbench_mpich dpbench_nccl_profiler)
    if(TARGET ${module})
        install(TARGETS ${module} LIBRARY DESTINATION lib/dpbench)
    endif()
endforeach()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/bench/sweeps DESTINATION share/dpbench)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/ DESTINATION share/doc/dpbench)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/dpbench)
