#include "cuda_status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpb_log.h"

/* ---- errors ---- */

struct error_row {
    cudaError_t error;
    dpb_status st;
    const char *remedy;
};

static const char capture_remedy[] =
        "while a graph is recorded nothing may be allocated, prepared or waited for: run warm-up "
        "steps with the same shapes first";
static const char busy_remedy[] =
        "another process has the device (nvidia-smi shows it), or its compute mode is exclusive: "
        "wait, take another one with --cuda-device, or `nvidia-smi -c DEFAULT`";
static const char kernel_remedy[] =
        "an operator that was launched before has failed on the device; run with "
        "CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see which";
static const char hardware_remedy[] =
        "the device or its link has a fault: see dmesg for Xid messages and `nvidia-smi -q`";
static const char build_remedy[] =
        "this dpbench has no kernels for this GPU: configure with -DDPBENCH_CUDA_ARCHITECTURES="
        " and its compute capability";

static const struct error_row error_rows[] = {
        {cudaErrorMemoryAllocation, DPB_ERR_NO_MEMORY,
         "take a smaller batch or model, and look at nvidia-smi for who else has memory"},
        {cudaErrorDevicesUnavailable, DPB_ERR_UNAVAILABLE, busy_remedy},
        {cudaErrorDeviceAlreadyInUse, DPB_ERR_UNAVAILABLE, busy_remedy},
        {cudaErrorInvalidDeviceFunction, DPB_ERR_UNSUPPORTED, build_remedy},
        {cudaErrorNoKernelImageForDevice, DPB_ERR_UNSUPPORTED, build_remedy},
        {cudaErrorUnsupportedPtxVersion, DPB_ERR_UNSUPPORTED,
         "the driver is older than this dpbench's CUDA: update it"},
        {cudaErrorStreamCaptureUnsupported, DPB_ERR_USAGE, capture_remedy},
        {cudaErrorStreamCaptureInvalidated, DPB_ERR_USAGE, capture_remedy},
        {cudaErrorStreamCaptureImplicit, DPB_ERR_USAGE, capture_remedy},
        {cudaErrorStreamCaptureUnjoined, DPB_ERR_USAGE,
         "a stream that joined the recording was not waited for before its end"},
        {cudaErrorStreamCaptureIsolation, DPB_ERR_USAGE,
         "a stream waited for a mark that was recorded before the graph's recording began"},
        {cudaErrorECCUncorrectable, DPB_ERR_VENDOR, hardware_remedy},
        {cudaErrorNvlinkUncorrectable, DPB_ERR_VENDOR, hardware_remedy},
        {cudaErrorHardwareStackError, DPB_ERR_VENDOR, hardware_remedy},
        {cudaErrorSystemNotReady, DPB_ERR_UNAVAILABLE,
         "start the fabric manager (systemctl status nvidia-fabricmanager)"},
        {cudaErrorIllegalAddress, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorMisalignedAddress, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorInvalidAddressSpace, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorInvalidPc, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorIllegalInstruction, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorLaunchFailure, DPB_ERR_VENDOR, kernel_remedy},
        {cudaErrorLaunchTimeout, DPB_ERR_VENDOR,
         "the GPU drives a display, whose driver ends kernels that take too long: use another one"},
        {cudaErrorAssert, DPB_ERR_VENDOR, kernel_remedy},
};

static const struct error_row *find(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(error_rows) / sizeof(error_rows[0]); i++) {
        if (error_rows[i].error == error)
            return &error_rows[i];
    }
    return NULL;
}

int dpb_cuda_is_sticky(cudaError_t error)
{
    const struct error_row *row = find(error);

    return row && (row->remedy == kernel_remedy || row->remedy == hardware_remedy ||
                   error == cudaErrorLaunchTimeout);
}

dpb_status dpb_cuda_check(cudaError_t error, const char *call, const char *what)
{
    const struct error_row *row;

    if (error == cudaSuccess)
        return DPB_OK;
    row = find(error);
    cudaGetLastError(); /* or the next call would report it again */
    dpb_error("cuda: %s: %s: %s (%s)", what, call, cudaGetErrorString(error),
              cudaGetErrorName(error));
    dpb_log_hint("%s", row ? row->remedy : "see CUDA's documentation of this error");
    return row ? row->st : DPB_ERR_VENDOR;
}

/* ---- the driver ---- */

static const char *driver_name = "libcuda.so.1";

void dpb_cuda_driver_use(const char *name)
{
    driver_name = name ? name : "libcuda.so.1";
}

void dpb_cuda_settle_environment(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

static void say_insufficient(char *why, size_t why_bytes)
{
    int driver = 0;

    cudaDriverGetVersion(&driver);
    snprintf(why, why_bytes,
             "not available here, because the NVIDIA driver is for CUDA %d.%d, and this dpbench "
             "needs %d.%d: update the driver",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/* Drivers serve every minor version of their CUDA, and older ones. */
static cudaError_t count_devices(int *count)
{
    int driver = 0;

    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 &&
        driver / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return cudaGetDeviceCount(count);
}

/* Why there is no count of devices. */
static void say_why(cudaError_t error, char *why, size_t why_bytes)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const struct error_row *row = find(error);

    switch (error) {
    case cudaErrorStubLibrary:
        snprintf(why, why_bytes,
                 "not available here, because %s is the CUDA toolkit's stub, not a driver: take "
                 ".../lib/stubs out of LD_LIBRARY_PATH",
                 driver_name);
        return;
    case cudaErrorInsufficientDriver:
        say_insufficient(why, why_bytes);
        return;
    case cudaErrorNoDevice:
        if (visible)
            snprintf(why, why_bytes,
                     "not available here, because no GPU is visible: CUDA_VISIBLE_DEVICES is "
                     "\"%s\"",
                     visible);
        else
            snprintf(why, why_bytes,
                     "not available here, because the NVIDIA driver finds no GPU: see nvidia-smi");
        return;
    case cudaErrorSystemDriverMismatch:
        snprintf(why, why_bytes,
                 "not available here, because the NVIDIA driver and its kernel module are of "
                 "different versions: restart the machine, or load the new module");
        return;
    default:
        snprintf(why, why_bytes, "not available here, because CUDA does not start: %s (%s)%s%s",
                 cudaGetErrorString(error), cudaGetErrorName(error), row ? ": " : "",
                 row ? row->remedy : "");
    }
}

dpb_status dpb_cuda_find_devices(int *count, char *why, size_t why_bytes)
{
    void *driver = dlopen(driver_name, RTLD_LAZY | RTLD_LOCAL);
    cudaError_t error;
    int found = 0;

    if (!driver) {
        snprintf(why, why_bytes, "not available here, because there is no NVIDIA driver (%s)",
                 dlerror());
        return DPB_ERR_UNAVAILABLE;
    }
    dlclose(driver);
    dpb_cuda_settle_environment();
    error = count_devices(&found);
    if (error == cudaSuccess && found < 1)
        error = cudaErrorNoDevice;
    if (error != cudaSuccess) {
        cudaGetLastError();
        say_why(error, why, why_bytes);
        return DPB_ERR_UNAVAILABLE;
    }
    *count = found;
    return DPB_OK;
}
