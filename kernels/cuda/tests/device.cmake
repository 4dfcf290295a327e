# The device "cuda" apart from its operators' results, on fakes (fakes.cmake).
if(TARGET dpb_fake_gpu)
    dpb_test(test_cuda_device SOURCES test_cuda_device.c LINK dpb_fake_gpu LABELS cuda-fake)
endif()
