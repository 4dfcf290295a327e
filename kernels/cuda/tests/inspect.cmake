# NVML and doctor's findings, against a faked NVML and a few faked functions of the runtime.
dpb_test(test_cuda_meter_nvml
    SOURCES test_meter_nvml.c fake_nvml.c ../meter_nvml.c ../nvml_table.c LINK dpb_kernels
    LABELS cuda-fake)
dpb_test(test_cuda_inspect
    SOURCES test_inspect.c fake_nvml.c ../cublaslt_table.c ../cuda_status.c ../cudnn_table.c
        ../inspect.c ../nvml_table.c ../ranks_fit.c
    LINK dpb_kernels dpb_cuda_headers LABELS cuda-fake)
foreach(test meter_nvml inspect)
    if(DPB_TESTS)
        target_include_directories(test_cuda_${test} PRIVATE ..)
    endif()
endforeach()
