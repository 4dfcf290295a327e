#include "dpb_meter_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "nvml_table.h"

struct dpb_meter {
    struct dpb_nvml nvml;
    nvmlDevice_t device;
};

static dpb_status nvml_probe(char *why, size_t why_bytes)
{
    struct dpb_nvml nvml;
    char reason[512] = "";

    if (dpb_nvml_open(&nvml, reason, sizeof(reason)) == DPB_OK)
        return DPB_OK;
    snprintf(why, why_bytes, "not available here, because %s", reason);
    return DPB_ERR_UNAVAILABLE;
}

static dpb_status meter_open(const struct dpb_meter_config *config, dpb_meter **meter, char *why,
                             size_t why_bytes)
{
    const char *id = config->device ? config->device : "";
    bool is_uuid = strncmp(id, "GPU-", 4) == 0 || strncmp(id, "MIG-", 4) == 0;
    struct dpb_meter opened;
    int result;

    DPB_TRY(dpb_nvml_open(&opened.nvml, why, why_bytes));
    result = is_uuid ? opened.nvml.nvmlDeviceGetHandleByUUID(id, &opened.device)
                     : opened.nvml.nvmlDeviceGetHandleByPciBusId_v2(id, &opened.device);
    if (result != NVML_SUCCESS) {
        snprintf(why, why_bytes, "NVML does not find the GPU \"%s\": %s (%d)", id,
                 opened.nvml.nvmlErrorString(result), result);
        return DPB_ERR_UNAVAILABLE;
    }
    *meter = malloc(sizeof(opened));
    if (!*meter) {
        snprintf(why, why_bytes, "out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    **meter = opened;
    return DPB_OK;
}

/* nvmlDeviceGetPowerUsage() is the mean of a second since Ampere. */
static int64_t power_mw(const struct dpb_meter *meter)
{
    struct nvml_field_value field = {.field_id = NVML_FI_DEV_POWER_INSTANT};
    unsigned mean_mw;

    if (meter->nvml.nvmlDeviceGetFieldValues(meter->device, 1, &field) == NVML_SUCCESS &&
        field.result == NVML_SUCCESS)
        return field.value_type == 3 ? (int64_t)field.value.ull : field.value.ui;
    if (meter->nvml.nvmlDeviceGetPowerUsage(meter->device, &mean_mw) == NVML_SUCCESS)
        return mean_mw;
    return DPB_METER_NONE;
}

static int64_t clock_mhz(const struct dpb_meter *meter, int type)
{
    unsigned mhz;

    return meter->nvml.nvmlDeviceGetClockInfo(meter->device, type, &mhz) == NVML_SUCCESS
                   ? mhz
                   : DPB_METER_NONE;
}

static void meter_poll(dpb_meter *meter, struct dpb_meter_sample *sample)
{
    unsigned long long reasons;

    *sample = (struct dpb_meter_sample){
            .time_ns = dpb_clock_now_ns(),
            .energy_mj = DPB_METER_NONE,
            .power_mw = DPB_METER_NONE,
            .clock_mhz = clock_mhz(meter, NVML_CLOCK_SM),
            .memory_clock_mhz = DPB_METER_NONE,
            .temperature_c = DPB_METER_NONE,
            .throttle = DPB_METER_NONE,
    };
    if (meter->nvml.nvmlDeviceGetCurrentClocksEventReasons(meter->device, &reasons) == NVML_SUCCESS)
        sample->throttle = (int64_t)reasons;
}

static void meter_read(dpb_meter *meter, struct dpb_meter_sample *sample)
{
    const struct dpb_nvml *nvml = &meter->nvml;
    unsigned long long energy_mj;
    unsigned celsius;

    meter_poll(meter, sample);
    sample->power_mw = power_mw(meter);
    sample->memory_clock_mhz = clock_mhz(meter, NVML_CLOCK_MEM);
    if (nvml->nvmlDeviceGetTotalEnergyConsumption(meter->device, &energy_mj) == NVML_SUCCESS)
        sample->energy_mj = (int64_t)energy_mj;
    if (nvml->nvmlDeviceGetTemperature(meter->device, NVML_TEMPERATURE_GPU, &celsius) ==
        NVML_SUCCESS)
        sample->temperature_c = celsius;
}

static void meter_close(dpb_meter *meter)
{
    free(meter);
}

const struct dpb_meter_ops dpb_meter_nvml_ops = {
        .version = DPB_METER_OPS_VERSION,
        .name = "nvml",
        .summary = "energy, power, clocks and temperature of a GPU, by NVML",
        .probe = nvml_probe,
        .open = meter_open,
        .read = meter_read,
        .poll = meter_poll,
        .close = meter_close,
};
