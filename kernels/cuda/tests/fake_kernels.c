#include "fake_kernels.h"

#include "cuda_status.h"
#include "cuda_status.h"
#include "fake_cublaslt.h"
#include "fake_cudnn.h"
#include "shim.h"

static bool run(void *context)
{
    if (dpb_shim_work_run(context) != 0)
        fake_cuda_stop(FAKE_EXIT_FAULT, "fake: a kernel failed: %s", dpb_shim_error());
    return true;
}

static void release(void *context)
{
    dpb_shim_work_free(context);
}

static int launch(void *unused, void *stream, struct dpb_shim_work *work)
{
    (void)unused;
    if (fake_cuda_fails("kernel launch")) {
        dpb_shim_work_free(work);
        return cudaErrorUnknown;
    }
    return (int)fake_cuda_enqueue(
            stream, &(struct fake_cuda_work){
                            .name = "kernel", .run = run, .release = release, .context = work});
}

void fake_gpu_begin(const struct fake_cuda_config *config)
{
    fake_cuda_begin(config);
    dpb_cuda_driver_use("libc.so.6"); /* any library: there is no driver */
    dpb_cuda_driver_use("libc.so.6"); /* a library that is there */
    dpb_shim_set_launcher(launch, NULL);
    dpb_cublaslt_use(&fake_cublaslt);
    dpb_cudnn_use(&fake_cudnn);
}
