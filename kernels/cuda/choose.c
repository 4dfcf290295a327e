#include "choose.h"

#include <stddef.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "dpb_options.h"

bool dpb_cuda_launcher_shows_one_each(void)
{
    static const char *const launchers[] = {
            "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
            "PMI_RANK",      "LOCAL_RANK" /* torchrun */,  "MV2_COMM_WORLD_LOCAL_RANK"};

    if (getenv("SLURM_GPUS_PER_TASK"))
        return true;
    if (!getenv("CUDA_VISIBLE_DEVICES"))
        return false;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (getenv(launchers[i]))
            return true;
    }
    return false;
}

static dpb_status choose_asked(const struct dpb_cuda_choice *choice, int *ordinal)
{
    if (choice->asked < 0 || choice->asked >= choice->visible) {
        dpb_error("cuda: there is no device %lld: %d visible, counted from 0",
                  (long long)choice->asked, choice->visible);
        dpb_log_hint("give --cuda-device a number that nvidia-smi shows, or auto; "
                     "CUDA_VISIBLE_DEVICES renumbers them");
        return DPB_ERR_USAGE;
    }
    if (choice->local_size > 1) {
        dpb_error("cuda: --cuda-device %lld gives one device to %d ranks", (long long)choice->asked,
                  choice->local_size);
        dpb_log_hint("leave --cuda-device at auto, and set CUDA_VISIBLE_DEVICES to the devices "
                     "that the ranks should take");
        return DPB_ERR_USAGE;
    }
    *ordinal = (int)choice->asked;
    return DPB_OK;
}

dpb_status dpb_cuda_choose(const struct dpb_cuda_choice *choice, int *ordinal)
{
    bool one_each = choice->visible == 1 && choice->one_each;

    if (choice->asked != DPB_AUTO)
        return choose_asked(choice, ordinal);
    if (choice->local_size > choice->visible && !one_each) {
        dpb_error("cuda: %d ranks on this machine, and %d visible device%s: each rank needs one of "
                  "its own",
                  choice->local_size, choice->visible, choice->visible == 1 ? "" : "s");
        dpb_log_hint("use fewer --ranks here, or more machines; CUDA_VISIBLE_DEVICES may hide "
                     "devices");
        return DPB_ERR_USAGE;
    }
    *ordinal = choice->local_rank % choice->visible;
    return DPB_OK;
}
