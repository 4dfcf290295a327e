#include "nccl_table.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "dpb_library.h"

#define SYMBOL(member) DPB_LIBRARY_SYMBOL(dpb_nccl_table, member)

static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};

static const struct dpb_library_symbol symbols[] = {
        SYMBOL(ncclGetVersion),
        SYMBOL(ncclGetUniqueId),
        SYMBOL(ncclGetErrorString),
        SYMBOL(ncclGetLastError),
        SYMBOL(ncclCommInitRankConfig),
        SYMBOL(ncclCommGetAsyncError),
        SYMBOL(ncclCommFinalize),
        SYMBOL(ncclCommDestroy),
        SYMBOL(ncclCommAbort),
        SYMBOL(ncclMemAlloc),
        SYMBOL(ncclMemFree),
        SYMBOL(ncclCommRegister),
        SYMBOL(ncclCommDeregister),
        SYMBOL(ncclRedOpCreatePreMulSum),
        SYMBOL(ncclRedOpDestroy),
        SYMBOL(ncclAllReduce),
        SYMBOL(ncclReduceScatter),
        SYMBOL(ncclAllGather),
        SYMBOL(ncclBroadcast),
        SYMBOL(ncclReduce),
        SYMBOL(ncclSend),
        SYMBOL(ncclRecv),
        SYMBOL(ncclGroupStart),
        SYMBOL(ncclGroupEnd),
};

static const struct dpb_library_symbol newer_symbols[] = {SYMBOL(ncclAlltoAll)};

static const struct dpb_library library = {
        .what = "NCCL",
        .names = names,
        .variable = "DPB_NCCL_LIBRARY",
        .remedy = "install NCCL 2.27 or later, or add its folder to LD_LIBRARY_PATH",
        .symbols = symbols,
        .symbol_count = sizeof(symbols) / sizeof(symbols[0]),
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct dpb_nccl_table *installed;
static struct dpb_nccl_table opened;
static bool is_open;

static dpb_status check_version(const struct dpb_nccl_table *table, char *why, size_t why_bytes)
{
    int version = 0;
    ncclResult_t result = table->ncclGetVersion(&version);
    if (result != ncclSuccess) {
        snprintf(why, why_bytes, "NCCL does not tell its version: %s",
                 table->ncclGetErrorString(result));
        return DPB_ERR_UNAVAILABLE;
    }
    /* NCCL_VERSION(): major 10000, minor 100, patch 1, since 2.9. */
    if (version < DPB_NCCL_VERSION_MIN || version / 10000 != NCCL_MAJOR) {
        snprintf(why, why_bytes,
                 "NCCL %d.%d.%d is installed, 2.27 or a later 2.x is needed; install it, or add "
                 "its folder to LD_LIBRARY_PATH",
                 version / 10000, version / 100 % 100, version % 100);
        return DPB_ERR_UNAVAILABLE;
    }
    return DPB_OK;
}

static dpb_status open_library(char *why, size_t why_bytes)
{
    struct dpb_library newer = library;
    struct dpb_nccl_table table = {0};
    char ignored[512];
    newer.symbols = newer_symbols;
    newer.symbol_count = sizeof(newer_symbols) / sizeof(newer_symbols[0]);
    DPB_TRY(dpb_library_open(&library, &table, why, why_bytes));
    /* Leaves NULL what this version has not. */
    (void)dpb_library_open(&newer, &table, ignored, sizeof(ignored));
    DPB_TRY(check_version(&table, why, why_bytes));
    opened = table;
    is_open = true;
    return DPB_OK;
}

dpb_status dpb_nccl_table_get(const struct dpb_nccl_table **table, char *why, size_t why_bytes)
{
    dpb_status st = DPB_OK;
    pthread_mutex_lock(&lock);
    if (installed)
        st = check_version(installed, why, why_bytes);
    else if (!is_open)
        st = open_library(why, why_bytes);
    if (st == DPB_OK)
        *table = installed ? installed : &opened;
    pthread_mutex_unlock(&lock);
    return st;
}

void dpb_nccl_table_install(const struct dpb_nccl_table *table)
{
    pthread_mutex_lock(&lock);
    installed = table;
    pthread_mutex_unlock(&lock);
}
