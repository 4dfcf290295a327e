#include "nccl_profile.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_library.h"
#include "dpb_log.h"
#include "profiler_plugin.h"

#define FILE_NAME "libdpbench_nccl_profiler.so"

struct table {
    size_t (*dpb_nccl_profile_read)(struct dpb_nccl_profile_count *rows, size_t capacity,
                                    int64_t *calls, int64_t *lost);
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table plugin;

/* The library's path: beside the module, or beside the program that this is linked into. */
static dpb_status find_file(char path[PATH_MAX])
{
    const char *given = getenv("DPBENCH_NCCL_PROFILER");
    Dl_info info;
    char here[PATH_MAX];
    if (given && given[0]) {
        snprintf(path, PATH_MAX, "%s", given);
        return DPB_OK;
    }
    /* The address of a variable: that of a function is no object pointer in C. */
    if (!dladdr(&plugin, &info) || !info.dli_fname || !realpath(info.dli_fname, here))
        return DPB_ERR_NOT_FOUND;
    char *slash = strrchr(here, '/');
    if (!slash || (size_t)(slash - here) + sizeof(FILE_NAME) + 1 > PATH_MAX)
        return DPB_ERR_NOT_FOUND;
    slash[1] = '\0';
    snprintf(path, PATH_MAX, "%.*s%s", (int)(slash + 1 - here), here, FILE_NAME);
    return DPB_OK;
}

static dpb_status open_plugin(const char *path, char *why, size_t why_bytes)
{
    static const struct dpb_library_symbol symbols[] = {
            DPB_LIBRARY_SYMBOL(table, dpb_nccl_profile_read),
    };
    const char *const names[] = {path, NULL};
    const struct dpb_library library = {
            .what = "NCCL's profiler plug-in",
            .names = names,
            .remedy = "leave --nccl-profile out, or say where it is: DPBENCH_NCCL_PROFILER",
            .symbols = symbols,
            .symbol_count = sizeof(symbols) / sizeof(symbols[0]),
    };
    dpb_status st = DPB_OK;
    pthread_mutex_lock(&lock);
    if (!plugin.dpb_nccl_profile_read)
        st = dpb_library_open(&library, &plugin, why, why_bytes);
    pthread_mutex_unlock(&lock);
    return st;
}

dpb_status dpb_nccl_profile_enable(int rank)
{
    char path[PATH_MAX];
    char why[512] = "its place is not known";
    const char *present = getenv("NCCL_PROFILER_PLUGIN");
    dpb_status st = find_file(path);
    if (st == DPB_OK)
        st = open_plugin(path, why, sizeof(why));
    if (st < 0) {
        dpb_error("rank %d: --nccl-profile cannot count what NCCL uses: %s", rank, why);
        return st;
    }
    if (present && strcmp(present, path) != 0) {
        dpb_error("rank %d: --nccl-profile cannot count what NCCL uses: the environment says "
                  "NCCL_PROFILER_PLUGIN=\"%s\"",
                  rank, present);
        dpb_log_hint("unset NCCL_PROFILER_PLUGIN, or leave --nccl-profile out");
        return DPB_ERR_USAGE;
    }
    if (setenv("NCCL_PROFILER_PLUGIN", path, 1) < 0) {
        dpb_error("rank %d: cannot set NCCL_PROFILER_PLUGIN: out of memory", rank);
        return DPB_ERR_NO_MEMORY;
    }
    return DPB_OK;
}

dpb_json *dpb_nccl_profile_json(void)
{
    static struct dpb_nccl_profile_count rows[DPB_NCCL_PROFILE_KINDS];
    dpb_json *json = dpb_json_array();
    int64_t calls = 0;
    int64_t lost = 0;
    pthread_mutex_lock(&lock);
    size_t count =
            plugin.dpb_nccl_profile_read
                    ? plugin.dpb_nccl_profile_read(rows, DPB_NCCL_PROFILE_KINDS, &calls, &lost)
                    : 0;
    for (size_t i = 0; i < count && i < DPB_NCCL_PROFILE_KINDS; i++) {
        dpb_json *row = dpb_json_object();
        dpb_json_set_string(row, "function", rows[i].function);
        dpb_json_set_string(row, "algorithm", rows[i].algorithm);
        dpb_json_set_string(row, "protocol", rows[i].protocol);
        dpb_json_set_int(row, "channels", rows[i].channels);
        dpb_json_set_int(row, "collectives", rows[i].collectives);
        dpb_json_append(json, row);
    }
    pthread_mutex_unlock(&lock);
    if (lost > 0)
        dpb_warn("NCCL used more kinds of collectives than the record has room for: %lld of %lld "
                 "calls are not in it",
                 (long long)lost, (long long)calls);
    return json;
}
