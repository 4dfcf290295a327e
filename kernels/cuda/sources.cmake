# What the device "cuda" is made of, one file a line, sorted.

# C; links no CUDA library: tests put functions of their own in its place.
set(DPB_CUDA_HOST_SOURCES
    conv_graph.c
    cudnn_table.c
    graph.c
    norm_graph.c
)

# CUDA C++, for nvcc.
set(DPB_CUDA_KERNEL_SOURCES
)
