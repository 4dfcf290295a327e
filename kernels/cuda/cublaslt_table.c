#include "cublaslt_table.h"

#include <stdio.h>

#include "dpb_library.h"
#include "dpb_log.h"

static const char *const names[] = {"libcublasLt.so.13", NULL};

#define SYMBOL(member) DPB_LIBRARY_SYMBOL(dpb_cublaslt, member)
static const struct dpb_library_symbol symbols[] = {
        SYMBOL(cublasLtGetVersion),
        SYMBOL(cublasLtGetStatusName),
        SYMBOL(cublasLtCreate),
        SYMBOL(cublasLtDestroy),
        SYMBOL(cublasLtMatmulDescCreate),
        SYMBOL(cublasLtMatmulDescDestroy),
        SYMBOL(cublasLtMatmulDescSetAttribute),
        SYMBOL(cublasLtMatrixLayoutCreate),
        SYMBOL(cublasLtMatrixLayoutDestroy),
        SYMBOL(cublasLtMatrixLayoutSetAttribute),
        SYMBOL(cublasLtMatmulPreferenceCreate),
        SYMBOL(cublasLtMatmulPreferenceDestroy),
        SYMBOL(cublasLtMatmulPreferenceSetAttribute),
        SYMBOL(cublasLtMatmulAlgoGetHeuristic),
        SYMBOL(cublasLtMatmul),
};
#define SYMBOL_COUNT (sizeof(symbols) / sizeof(symbols[0]))
_Static_assert(sizeof(struct dpb_cublaslt) == SYMBOL_COUNT * sizeof(void *),
               "a row for each member");

static const struct dpb_library library = {
        .what = "cuBLASLt",
        .names = names,
        .variable = "DPB_CUBLASLT_LIBRARY",
        .remedy = "install cuBLAS 13, or add its folder to LD_LIBRARY_PATH",
        .symbols = symbols,
        .symbol_count = SYMBOL_COUNT,
};

static const struct dpb_cublaslt *other; /* of dpb_cublaslt_use() */

void dpb_cublaslt_use(const struct dpb_cublaslt *table)
{
    other = table;
}

/* CUBLAS_VERSION's form: 10000 per major and 100 per minor version. */
void dpb_cublaslt_version_text(size_t version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

dpb_status dpb_cublaslt_open(struct dpb_cublaslt *table, char *why, size_t why_bytes)
{
    struct dpb_cublaslt found;
    size_t version;

    if (other)
        found = *other;
    else
        DPB_TRY(dpb_library_open(&library, &found, why, why_bytes));
    version = found.cublasLtGetVersion();
    if (version / 10000 != CUBLAS_VER_MAJOR) {
        snprintf(why, why_bytes, "cuBLASLt: the library is version %zu, needs %d; %s",
                 version / 10000, CUBLAS_VER_MAJOR, library.remedy);
        return DPB_ERR_UNAVAILABLE;
    }
    *table = found;
    return DPB_OK;
}

static dpb_status status_of(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return DPB_OK;
    case CUBLAS_STATUS_ALLOC_FAILED:
        return DPB_ERR_NO_MEMORY;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return DPB_ERR_UNSUPPORTED;
    default:
        return DPB_ERR_VENDOR;
    }
}

static const char *remedy(dpb_status st)
{
    switch (st) {
    case DPB_ERR_NO_MEMORY:
        return "take a smaller batch or model, and look at nvidia-smi for who else has memory";
    case DPB_ERR_UNSUPPORTED:
        return "try another --precision, or a newer cuBLAS for this GPU";
    default:
        return "set CUBLASLT_LOG_LEVEL=5 for cuBLASLt's own reason";
    }
}

dpb_status dpb_cublaslt_check(const struct dpb_cublaslt *lt, cublasStatus_t status,
                              const char *call, const char *what)
{
    dpb_status st = status_of(status);

    if (st == DPB_OK)
        return DPB_OK;
    dpb_error("cuda: %s: %s: %s", what, call, lt->cublasLtGetStatusName(status));
    dpb_log_hint("%s", remedy(st));
    return st;
}
