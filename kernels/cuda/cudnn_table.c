#include "cudnn_table.h"

#include <stdio.h>

#include "dpb_library.h"
#include "dpb_log.h"

#define LAST_ERROR_BYTES 1024

static const char *const NAMES[] = {"libcudnn.so.9", NULL};

#define SYMBOL(member) DPB_LIBRARY_SYMBOL(dpb_cudnn, member)
static const struct dpb_library_symbol SYMBOLS[] = {
        SYMBOL(cudnnGetVersion),
        SYMBOL(cudnnGetErrorString),
        SYMBOL(cudnnGetLastErrorString),
        SYMBOL(cudnnCreate),
        SYMBOL(cudnnDestroy),
        SYMBOL(cudnnSetStream),
        SYMBOL(cudnnBackendCreateDescriptor),
        SYMBOL(cudnnBackendDestroyDescriptor),
        SYMBOL(cudnnBackendFinalize),
        SYMBOL(cudnnBackendSetAttribute),
        SYMBOL(cudnnBackendGetAttribute),
        SYMBOL(cudnnBackendExecute),
};

static const struct dpb_library LIBRARY = {
        .what = "cuDNN",
        .names = NAMES,
        .variable = "DPB_CUDNN_LIBRARY",
        .remedy = "install cuDNN 9, or add its folder to LD_LIBRARY_PATH",
        .symbols = SYMBOLS,
        .symbol_count = sizeof(SYMBOLS) / sizeof(SYMBOLS[0]),
};
_Static_assert(sizeof(struct dpb_cudnn) == sizeof(SYMBOLS) / sizeof(SYMBOLS[0]) * sizeof(void *),
               "a row for each member");

static const struct dpb_cudnn *other; /* of dpb_cudnn_use() */

void dpb_cudnn_use(const struct dpb_cudnn *table)
{
    other = table;
}

/* cuDNN 9 counts 10000 per major and 100 per minor version. */
void dpb_cudnn_version_text(size_t version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

bool dpb_cudnn_version_ok(size_t version, size_t built)
{
    return version / 10000 == built / 10000 && version / 100 >= built / 100;
}

dpb_status dpb_cudnn_open(struct dpb_cudnn *table, char *why, size_t why_bytes)
{
    struct dpb_cudnn found;
    if (other)
        found = *other;
    else
        DPB_TRY(dpb_library_open(&LIBRARY, &found, why, why_bytes));

    size_t version = found.cudnnGetVersion();
    if (!dpb_cudnn_version_ok(version, CUDNN_VERSION)) {
        char is[32], built[32];
        dpb_cudnn_version_text(version, is, sizeof(is));
        dpb_cudnn_version_text(CUDNN_VERSION, built, sizeof(built));
        snprintf(
                why, why_bytes,
                "cuDNN: the library is %s, this dpbench was built with %s and needs the same major "
                "version and no older minor one; %s",
                is, built, LIBRARY.remedy);
        return DPB_ERR_UNAVAILABLE;
    }
    *table = found;
    return DPB_OK;
}

dpb_status dpb_cudnn_status(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return DPB_OK;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return DPB_ERR_NO_MEMORY;
    switch (CUDNN_STATUS_CATEGORY((int)status)) {
    case CUDNN_STATUS_BAD_PARAM:
        return DPB_ERR_USAGE;
    case CUDNN_STATUS_NOT_SUPPORTED:
        return DPB_ERR_UNSUPPORTED;
    default:
        return DPB_ERR_VENDOR;
    }
}

void dpb_cudnn_reason(const struct dpb_cudnn *cudnn, cudnnStatus_t status, char *text, size_t bytes)
{
    char last[LAST_ERROR_BYTES] = "";
    cudnn->cudnnGetLastErrorString(last, sizeof(last));
    for (char *at = last; *at; at++) {
        if (*at == '\n')
            *at = ' ';
    }
    snprintf(text, bytes, "%s%s%s", cudnn->cudnnGetErrorString(status), last[0] ? ": " : "", last);
}

dpb_status dpb_cudnn_check(const struct dpb_cudnn *cudnn, cudnnStatus_t status, const char *what)
{
    dpb_status st = dpb_cudnn_status(status);
    if (st < 0) {
        char reason[LAST_ERROR_BYTES];
        dpb_cudnn_reason(cudnn, status, reason, sizeof(reason));
        dpb_error("cuDNN: %s: %s", what, reason);
    }
    return st;
}
