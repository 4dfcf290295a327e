# What the device "cuda" is made of, one file a line, sorted.

# C; links no CUDA library: tests put functions of their own in its place.
set(DPB_CUDA_HOST_SOURCES
    attention.c
    choose.c
    conv.c
    conv_graph.c
    cublaslt_table.c
    cuda_status.c
    cudnn_table.c
    device_cuda.c
    gemm.c
    gemm_shape.c
    graph.c
    inspect.c
    memory.c
    meter_nvml.c
    norm_graph.c
    nvml_table.c
    operators.c
    ranks_fit.c
    room.c
    stream.c
)

# CUDA C++, for nvcc.
set(DPB_CUDA_KERNEL_SOURCES
    batchnorm.cu
    bias.cu
    dropout.cu
    elementwise.cu
    embedding.cu
    interaction.cu
    layernorm.cu
    layout.cu
    optimizers.cu
    orthogonalize.cu
    pool.cu
    softmax.cu
)
