#include "dpb_inspect.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dpb_host.h"
#include "dpb_units.h"

#define TEXT_BYTES 512
#define SHM_BYTES_FEW                                                                              \
    (1ll << 30) /* containers get 64 MiB; NCCL takes some 10 MiB per pair of ranks */
#define MEMORY_BYTES_FEW (2ll << 30)
#define FILES_FEW        1024

struct inspection {
    const char *root;
    dpb_found found;
    void *ctx;
};

static void find(const struct inspection *in, enum dpb_finding_level level, const char *what,
                 const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void find(const struct inspection *in, enum dpb_finding_level level, const char *what,
                 const char *remedy, const char *format, ...)
{
    char detail[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    in->found(in->ctx, level, what, detail, level == DPB_FINDING_OK ? NULL : remedy);
}

static FILE *open_below(const char *root, const char *path)
{
    char whole[TEXT_BYTES];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    return fopen(whole, "re");
}

/* The first line; false, and "", when there is none. */
static bool read_line(const struct inspection *in, const char *path, char text[TEXT_BYTES])
{
    FILE *file = open_below(in->root, path);
    text[0] = '\0';
    if (!file)
        return false;
    bool got = fgets(text, TEXT_BYTES, file) != NULL;
    text[strcspn(text, "\n")] = '\0';
    fclose(file);
    return got && text[0];
}

/* A value of /proc/meminfo, bytes; -1 when it is not there. */
static int64_t memory_value(const struct inspection *in, const char *key)
{
    char line[TEXT_BYTES];
    long long kib = -1;
    FILE *file = open_below(in->root, "/proc/meminfo");
    while (file && kib < 0 && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) != 0 || line[strlen(key)] != ':' ||
            sscanf(line + strlen(key) + 1, "%lld", &kib) != 1)
            kib = -1;
    if (file)
        fclose(file);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

static const char *human(int64_t bytes, char text[DPB_UNIT_TEXT_BYTES])
{
    dpb_human_size((double)bytes, 3, text, DPB_UNIT_TEXT_BYTES);
    return text;
}

/* ---- cores ---- */

static void inspect_governor(const struct inspection *in)
{
    char text[TEXT_BYTES];
    if (!read_line(in, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text)) {
        find(in, DPB_FINDING_OK, "clock governor", NULL, "none to be seen (a virtual machine?)");
        return;
    }
    bool good = strcmp(text, "performance") == 0;
    find(in, good ? DPB_FINDING_OK : DPB_FINDING_WARN, "clock governor",
         "cpupower frequency-set -g performance, while you measure", "%s%s", text,
         good ? "" : ": clocks follow the load, and short steps are over before they rise");
}

/* A quota stops all threads of the container for the rest of each period, in the middle of a step.
 */
static void inspect_quota(const struct inspection *in)
{
    char text[TEXT_BYTES];
    double quota_us, period_us;
    int cores = dpb_host_cores();
    if (!read_line(in, "/sys/fs/cgroup/cpu.max", text) ||
        sscanf(text, "%lf %lf", &quota_us, &period_us) != 2 || !(period_us > 0)) {
        find(in, DPB_FINDING_OK, "quota of cores", NULL, "none");
        return;
    }
    bool few = quota_us / period_us < cores;
    find(in, few ? DPB_FINDING_WARN : DPB_FINDING_OK, "quota of cores",
         "bind to cores instead: docker run --cpuset-cpus, not --cpus", "%.2f of %d cores%s",
         quota_us / period_us, cores,
         few ? ": threads are stopped in the middle of a step when it is used up" : "");
}

static void inspect_numa(const struct inspection *in)
{
    char text[TEXT_BYTES], nodes[TEXT_BYTES];
    bool several = read_line(in, "/sys/devices/system/node/online", nodes) && strchr(nodes, '-');
    if (!several || !read_line(in, "/proc/sys/kernel/numa_balancing", text))
        return;
    find(in, text[0] == '0' ? DPB_FINDING_OK : DPB_FINDING_WARN, "NUMA balancing",
         "sysctl kernel.numa_balancing=0, while you measure", "%s, NUMA nodes %s",
         text[0] == '0' ? "off" : "on: the kernel moves pages while steps are timed", nodes);
}

/* ---- memory ---- */

static void inspect_memory(const struct inspection *in)
{
    char total[DPB_UNIT_TEXT_BYTES], available[DPB_UNIT_TEXT_BYTES], limit[TEXT_BYTES];
    char limit_text[DPB_UNIT_TEXT_BYTES];
    int64_t bytes = memory_value(in, "MemAvailable"), limit_bytes = 0;
    if (bytes < 0)
        return;
    if (read_line(in, "/sys/fs/cgroup/memory.max", limit))
        (void)dpb_parse_i64(limit, &limit_bytes, NULL); /* "max": there is none */
    bool few = bytes < MEMORY_BYTES_FEW || (limit_bytes > 0 && limit_bytes < MEMORY_BYTES_FEW);
    find(in, few ? DPB_FINDING_WARN : DPB_FINDING_OK, "memory",
         "end what else uses it, or use smaller workloads: `dpbench list workloads` says what each "
         "takes",
         "%s, %s available%s%s", human(memory_value(in, "MemTotal"), total),
         human(bytes, available), limit_bytes > 0 ? ", container's limit " : "",
         limit_bytes > 0 ? human(limit_bytes, limit_text) : "");
}

static void inspect_pages(const struct inspection *in)
{
    char text[TEXT_BYTES];
    if (!read_line(in, "/sys/kernel/mm/transparent_hugepage/enabled", text))
        return;
    bool never = strstr(text, "[never]") != NULL;
    find(in, never ? DPB_FINDING_WARN : DPB_FINDING_OK, "large pages",
         "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
         "transparent large pages: %s, pages of %ld bytes%s", text, sysconf(_SC_PAGESIZE),
         never ? ": large tensors miss in the TLB" : "");
}

static void inspect_shm(const struct inspection *in)
{
    struct statvfs fs;
    char path[TEXT_BYTES], size[DPB_UNIT_TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/dev/shm", in->root);
    if (statvfs(path, &fs) != 0) {
        find(in, DPB_FINDING_WARN, "/dev/shm", "mount -t tmpfs tmpfs /dev/shm",
             "not there: NCCL needs it between GPUs without peer access");
        return;
    }
    int64_t bytes = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    bool few = bytes < SHM_BYTES_FEW;
    find(in, few ? DPB_FINDING_WARN : DPB_FINDING_OK, "/dev/shm",
         "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir of medium Memory",
         "%s%s", human(bytes, size),
         few ? ": NCCL and PyTorch's loaders fail in it with a bus error (comm \"shm\" does not "
               "use "
               "it)"
             : "");
}

/* ---- limits ---- */

static void inspect_limits(const struct inspection *in)
{
    struct rlimit limit;
    char path[TEXT_BYTES], size[DPB_UNIT_TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/sys/class/infiniband", in->root);
    bool rdma = access(path, F_OK) == 0;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        bool unlimited = limit.rlim_cur == RLIM_INFINITY;
        find(in, rdma && !unlimited ? DPB_FINDING_WARN : DPB_FINDING_OK, "locked memory",
             "ulimit -l unlimited; docker run --ulimit memlock=-1; Slurm: LimitMEMLOCK=infinity",
             "%s%s", unlimited ? "no limit" : human((int64_t)limit.rlim_cur, size),
             unlimited ? ""
             : rdma    ? ": InfiniBand and RoCE register memory, which locks it"
                       : ", which matters for InfiniBand and RoCE only");
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        bool few = limit.rlim_cur < FILES_FEW;
        if (limit.rlim_cur == RLIM_INFINITY)
            find(in, DPB_FINDING_OK, "open files", NULL, "no limit");
        else
            find(in, few ? DPB_FINDING_WARN : DPB_FINDING_OK, "open files", "ulimit -n 65536",
                 "%" PRIu64 "%s", (uint64_t)limit.rlim_cur,
                 few ? ": too few for ranks and their connections" : "");
    }
}

void dpb_inspect_host(const char *root, dpb_found found, void *ctx)
{
    const struct inspection in = {root, found, ctx};
    inspect_governor(&in);
    inspect_quota(&in);
    inspect_numa(&in);
    inspect_memory(&in);
    inspect_pages(&in);
    inspect_shm(&in);
    inspect_limits(&in);
}

/* ---- GPUs ---- */

bool dpb_inspect_has_gpu(const char *root)
{
    const struct inspection in = {.root = root};
    char path[TEXT_BYTES], vendor[TEXT_BYTES], class[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
    DIR *folder = opendir(path);
    bool there = false;
    for (const struct dirent *e; folder && !there && (e = readdir(folder));) {
        if (strlen(e->d_name) > 64)
            continue;
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/vendor", e->d_name);
        read_line(&in, path, vendor);
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/class", e->d_name);
        read_line(&in, path, class);
        there = strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
    }
    if (folder)
        closedir(folder);
    return there;
}
