#include "cupti_table.h"

#include <dlfcn.h>
#include <stdio.h>

#include <cuda.h>

#include "dpb_library.h"
#include "dpb_log.h"

#define TOOLKIT_MAJOR 10000 /* of CUPTI's version numbers: 130001 is 13.0, the second */

static const struct cupti_table *replacement;

static const struct dpb_library_symbol symbols[] = {
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiGetVersion),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiGetResultString),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiGetTimestamp),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiSubscribe_v2),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiUnsubscribe),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivitySetAttribute),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityRegisterCallbacks),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityEnable),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityEnableDriverApi),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityDisable),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityFlushAll),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityGetNextRecord),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityGetNumDroppedRecords),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityPushExternalCorrelationId),
        DPB_LIBRARY_SYMBOL(cupti_table, cuptiActivityPopExternalCorrelationId),
};

_Static_assert(sizeof(symbols) / sizeof(symbols[0]) * sizeof(void (*)(void)) ==
                       sizeof(struct cupti_table),
               "one symbol per member");

static const char *const names[] = {"libcupti.so.13", NULL};

static const struct dpb_library library = {
        .what = "CUPTI",
        .names = names,
        .variable = "DPB_CUPTI_LIBRARY",
        .remedy = "install CUPTI of CUDA 13, or add its folder to LD_LIBRARY_PATH",
        .symbols = symbols,
        .symbol_count = sizeof(symbols) / sizeof(symbols[0]),
};

struct driver_table {
    CUresult (*cuDriverGetVersion)(int *version);
};

static const struct dpb_library_symbol driver_symbols[] = {
        DPB_LIBRARY_SYMBOL(driver_table, cuDriverGetVersion),
};

static const char *const driver_names[] = {"libcuda.so.1", NULL};

static const struct dpb_library driver_library = {
        .what = "NVIDIA's driver",
        .names = driver_names,
        .remedy = "install the driver, or run where there is a GPU",
        .symbols = driver_symbols,
        .symbol_count = sizeof(driver_symbols) / sizeof(driver_symbols[0]),
};

void cupti_use(const struct cupti_table *table)
{
    replacement = table;
}

bool cupti_version_fits(uint32_t version, uint32_t built)
{
    return version / TOOLKIT_MAJOR == built / TOOLKIT_MAJOR && version >= built;
}

dpb_status cupti_open(struct cupti_table *table, char *why, size_t why_bytes)
{
    struct cupti_table opened;
    uint32_t version = 0;

    if (replacement)
        opened = *replacement;
    else
        DPB_TRY(dpb_library_open(&library, &opened, why, why_bytes));
    opened.cuptiGetVersion(&version);
    if (!cupti_version_fits(version, CUPTI_API_VERSION)) {
        snprintf(why, why_bytes,
                 "CUPTI has interface %u, this was built for %d: install CUDA %d's, not older",
                 version, CUPTI_API_VERSION, CUPTI_API_VERSION / TOOLKIT_MAJOR);
        return DPB_ERR_UNAVAILABLE;
    }
    *table = opened;
    return DPB_OK;
}

dpb_status cupti_probe_driver(char *why, size_t why_bytes)
{
    struct driver_table driver;
    CUresult result;
    int version = 0;

    if (replacement)
        return DPB_OK;
    DPB_TRY(dpb_library_open(&driver_library, &driver, why, why_bytes));
    result = driver.cuDriverGetVersion(&version);
    if (result == CUDA_SUCCESS)
        return DPB_OK;
    if (result == CUDA_ERROR_STUB_LIBRARY)
        snprintf(why, why_bytes,
                 "libcuda.so.1 is the toolkit's stub, no driver: take its folder out of "
                 "LD_LIBRARY_PATH");
    else
        snprintf(why, why_bytes, "NVIDIA's driver does not tell its version: CUDA error %d",
                 (int)result);
    return DPB_ERR_UNAVAILABLE;
}

const char *cupti_text(const struct cupti_table *table, CUptiResult result)
{
    const char *text = NULL;

    table->cuptiGetResultString(result, &text);
    return text ? text : "unknown result";
}

dpb_status cupti_check(const struct cupti_table *table, CUptiResult result, const char *what)
{
    if (result == CUPTI_SUCCESS)
        return DPB_OK;
    dpb_error("CUPTI: cannot %s: %s", what, cupti_text(table, result));
    return DPB_ERR_VENDOR;
}

const char *cupti_path(const struct cupti_table *table)
{
    void *function;
    Dl_info info;

    _Static_assert(sizeof(function) == sizeof(table->cuptiGetVersion), "POSIX has them alike");
    __builtin_memcpy(&function, &table->cuptiGetVersion, sizeof(function));
    return dladdr(function, &info) ? info.dli_fname : NULL;
}
