#include "open_files.h"

#include <dirent.h>
#include <sys/resource.h>

#include "dpb_log.h"

#define OTHER_FILES 128

static rlim_t count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    rlim_t count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

dpb_status open_files_allow(int ranks, int per_rank)
{
    const rlim_t needed = count_open() + (rlim_t)ranks * (rlim_t)per_rank + OTHER_FILES;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return DPB_OK;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == needed)
        return DPB_OK;
    dpb_error("%d ranks need %llu open files here, and the limit is %llu", ranks,
              (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    dpb_log_hint("raise the limit on open files (ulimit -n)");
    return DPB_ERR_UNAVAILABLE;
}
