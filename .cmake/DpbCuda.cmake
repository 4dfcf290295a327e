# The CUDA module: what it needs, looked for once, here, before the rooms. None of it is linked but
# the static CUDA runtime: the module opens vendors' libraries when it needs them (dpb_library.h), so
# only their headers matter here.
#
# Sets, for every room below:
#   DPB_HAVE_CUDA    toolkit of at least 13.0 with nvcc
#   DPB_HAVE_NCCL, DPB_HAVE_CUDNN, DPB_HAVE_CUPTI    those headers
#   DPB_CUDA_MODULE  all of them: libdpbench_cuda.so and its .cu files are built
# and, when DPB_HAVE_CUDA, the targets
#   dpb_cuda_headers   include folders of everything found, as system headers
#   dpb_cuda_flags     what nvcc is told for every .cu file

set(DPBENCH_CUDA AUTO CACHE STRING
    "The CUDA module: AUTO, ON, OFF, or HOST (its C code and tests as AUTO, no kernels and no module)")
set_property(CACHE DPBENCH_CUDA PROPERTY STRINGS AUTO ON OFF HOST)
set(DPBENCH_CUDA_ARCHITECTURES "80-real;90-real;100-real;90-virtual" CACHE STRING
    "GPUs that the CUDA module is compiled for; newer ones translate the virtual one")

set(DPB_HAVE_CUDA OFF)
set(DPB_HAVE_NCCL OFF)
set(DPB_HAVE_CUDNN OFF)
set(DPB_HAVE_CUPTI OFF)
set(DPB_CUDA_MODULE OFF)

# The header `header` of a vendor's package: beside the toolkit's, under $<NAME>_HOME, and where
# Python wheels put it (nvidia/<package>/ beside nvidia/cu13/).
function(dpb_cuda_find name header library package)
    find_path(DPB_${name}_INCLUDE ${header}
        HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{${name}_HOME}/include
              ${CUDAToolkit_BIN_DIR}/../extras/${name}/include
              ${CUDAToolkit_BIN_DIR}/../../${package}/include)
    # Wheels have the name with the version only.
    find_library(DPB_${name}_LIBRARY NAMES ${library}
        HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{${name}_HOME}/lib
              ${CUDAToolkit_BIN_DIR}/../extras/${name}/lib64
              ${CUDAToolkit_BIN_DIR}/../../${package}/lib)
    mark_as_advanced(DPB_${name}_INCLUDE DPB_${name}_LIBRARY)
    if(DPB_${name}_INCLUDE)
        set(DPB_HAVE_${name} ON PARENT_SCOPE)
    endif()
endfunction()

if(NOT DPBENCH_CUDA STREQUAL "OFF")
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE
            AND NOT CUDAToolkit_VERSION VERSION_LESS 13.0)
        set(DPB_HAVE_CUDA ON)
        dpb_cuda_find(NCCL nccl.h "nccl;libnccl.so.2" nccl)
        dpb_cuda_find(CUDNN cudnn_graph.h "cudnn;libcudnn.so.9" cudnn)
        dpb_cuda_find(CUPTI cupti.h "cupti;libcupti.so.13" cuda_cupti)
    endif()

    set(missing "")
    if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
        list(APPEND missing "nvcc is not found (CUDA toolkit 13: give -DCUDAToolkit_ROOT=...)")
    elseif(NOT DPB_HAVE_CUDA)
        list(APPEND missing "CUDA toolkit ${CUDAToolkit_VERSION} is too old, 13.0 is needed")
    else()
        if(NOT TARGET CUDA::cudart_static)
            list(APPEND missing "libcudart_static.a is not found")
        endif()
        foreach(part "NCCL;nccl.h" "CUDNN;cudnn_graph.h" "CUPTI;cupti.h")
            list(GET part 0 name)
            list(GET part 1 header)
            if(NOT DPB_HAVE_${name})
                list(APPEND missing "${header} is not found (give -DDPB_${name}_INCLUDE=...)")
            endif()
        endforeach()
    endif()
    list(JOIN missing "; " missing)

    if(missing AND DPBENCH_CUDA STREQUAL "ON")
        message(FATAL_ERROR "DPBENCH_CUDA=ON, but: ${missing}")
    elseif(missing)
        dpb_feature("CUDA module" FALSE "not built: ${missing}")
    elseif(DPBENCH_CUDA STREQUAL "HOST")
        dpb_feature("CUDA module" FALSE "not built: DPBENCH_CUDA=HOST")
    elseif(DPB_SANITIZE)
        # Its libraries know nothing of sanitizers; its host code is tested without it.
        dpb_feature("CUDA module" FALSE "not built with sanitizers")
    else()
        include(CheckLanguage)
        set(CMAKE_CUDA_ARCHITECTURES ${DPBENCH_CUDA_ARCHITECTURES})
        if(NOT CMAKE_CUDA_COMPILER)
            set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
        endif()
        check_language(CUDA)
        if(CMAKE_CUDA_COMPILER)
            enable_language(CUDA)
            set(CMAKE_CUDA_STANDARD 17)
            set(CMAKE_CUDA_STANDARD_REQUIRED ON)
            set(CMAKE_CUDA_EXTENSIONS OFF)
            set(DPB_CUDA_MODULE ON)
            list(JOIN DPBENCH_CUDA_ARCHITECTURES " " archs)
            dpb_feature("CUDA module" TRUE "CUDA ${CUDAToolkit_VERSION}, for ${archs}")
        elseif(DPBENCH_CUDA STREQUAL "ON")
            message(FATAL_ERROR "DPBENCH_CUDA=ON, but ${CUDAToolkit_NVCC_EXECUTABLE} compiles "
                    "nothing here: see CMakeFiles/CMakeError.log")
        else()
            dpb_feature("CUDA module" FALSE
                "not built: ${CUDAToolkit_NVCC_EXECUTABLE} compiles nothing here")
        endif()
    endif()
else()
    dpb_feature("CUDA module" FALSE "DPBENCH_CUDA=OFF")
endif()

if(DPB_HAVE_CUDA)
    add_library(dpb_cuda_headers INTERFACE)
    foreach(folder ${CUDAToolkit_INCLUDE_DIRS} ${DPB_NCCL_INCLUDE} ${DPB_CUDNN_INCLUDE}
            ${DPB_CUPTI_INCLUDE})
        if(folder)
            target_include_directories(dpb_cuda_headers SYSTEM INTERFACE ${folder})
        endif()
    endforeach()

    # Spills and local memory in our kernels are mistakes.
    add_library(dpb_cuda_flags INTERFACE)
    target_compile_options(dpb_cuda_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:
            --threads=2 -Xcompiler=-Wall -Xptxas=-warn-spills,-warn-lmem-usage>)
    if(DPB_WERROR)
        target_compile_options(dpb_cuda_flags INTERFACE
                $<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>)
    endif()
endif()
