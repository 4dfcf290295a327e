# Host code of the CUDA module against a faked runtime and faked libraries (README.md); label
# cuda-fake. The kernels are the device's own, compiled for the host (shim.h).
add_library(dpb_fake_cudart STATIC fake_cudart.c fake_cudart_graph.c fake_cudart_memory.c
    fake_cudart_stream.c)
target_include_directories(dpb_fake_cudart PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(dpb_fake_cudart PUBLIC dpb_cuda_headers PRIVATE dpb_flags Threads::Threads)

dpb_test(test_fake_cudart SOURCES test_fake_cudart.c LINK dpb_fake_cudart LABELS cuda-fake)
