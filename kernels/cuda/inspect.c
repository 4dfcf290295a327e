#include "dpb_cuda_inspect.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublaslt_table.h"
#include "cuda_status.h"
#include "cudnn_table.h"
#include "dpb_library.h"
#include "dpb_units.h"
#include "nvml_table.h"

#define TEXT_BYTES 512
#define GPUS_MAX   64

struct inspection {
    dpb_found found;
    void *ctx;
    struct dpb_nvml nvml;
    unsigned gpu_count;
    nvmlDevice_t gpus[GPUS_MAX];
};

static const char *root = "";

void dpb_cuda_inspect_root(const char *folder)
{
    root = folder ? folder : "";
}

/* A finding about `what`, with a detail that is put together. */
static void find(struct inspection *in, enum dpb_finding_level level, const char *what,
                 const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void find(struct inspection *in, enum dpb_finding_level level, const char *what,
                 const char *remedy, const char *format, ...)
{
    char detail[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(detail, sizeof(detail), format, args);
    va_end(args);
    in->found(in->ctx, level, what, detail, remedy);
}

/* The first line of a file below the root; "" when there is none. */
static void read_line(char text[TEXT_BYTES], const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void read_line(char text[TEXT_BYTES], const char *format, ...)
{
    char path[TEXT_BYTES], below[TEXT_BYTES];
    va_list args;
    FILE *file;

    va_start(args, format);
    vsnprintf(below, sizeof(below), format, args);
    va_end(args);
    text[0] = '\0';
    if (snprintf(path, sizeof(path), "%s%s", root, below) >= (int)sizeof(path))
        return;
    file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(text, TEXT_BYTES, file))
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

/* ---- driver and libraries ---- */

static void inspect_driver(struct inspection *in)
{
    char why[TEXT_BYTES] = "", version[NVML_TEXT_BYTES] = "";
    int count = 0, cuda = 0;

    if (dpb_cuda_find_devices(&count, why, sizeof(why)) < 0) {
        const char *reason = strstr(why, "because ");
        find(in, DPB_FINDING_FAIL, "GPU driver",
             "install the NVIDIA driver (580 or later for CUDA 13), and start containers with the "
             "NVIDIA runtime",
             "%s", reason ? reason + strlen("because ") : why);
        return;
    }
    if (in->nvml.nvmlSystemGetDriverVersion) {
        in->nvml.nvmlSystemGetDriverVersion(version, sizeof(version));
        in->nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda);
        find(in, DPB_FINDING_OK, "GPU driver", NULL,
             "%s, CUDA %d.%d; built with CUDA %d.%d; %d "
             "visible of %u GPUs",
             version, cuda / 1000, cuda % 1000 / 10, CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10, count, in->gpu_count);
    } else {
        find(in, DPB_FINDING_OK, "GPU driver", NULL, "built with CUDA %d.%d; %d visible GPUs",
             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, count);
    }
}

/* Functions of libraries whose own tables lie in other rooms; int is the library's result. */
struct versions {
    int (*ncclGetVersion)(int *version);
};
struct cupti_versions {
    int (*cuptiGetVersion)(uint32_t *version);
};

static void inspect_nccl(struct inspection *in)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const struct dpb_library_symbol symbols[] = {
            DPB_LIBRARY_SYMBOL(versions, ncclGetVersion)};
    static const struct dpb_library library = {
            "NCCL",  names, "DPB_NCCL_LIBRARY", "install it, or add its folder to LD_LIBRARY_PATH",
            symbols, 1};
    struct versions table;
    char why[TEXT_BYTES] = "";
    int version = 0;

    if (dpb_library_open(&library, &table, why, sizeof(why)) < 0 ||
        table.ncclGetVersion(&version) != 0)
        find(in, DPB_FINDING_WARN, "NCCL", "install NCCL 2.27 or later: several GPUs need it", "%s",
             why[0] ? why : "it does not tell its version");
    else
        find(in, DPB_FINDING_OK, "NCCL", NULL, "%d.%d.%d", version / 10000, version % 10000 / 100,
             version % 100);
}

static void inspect_cupti(struct inspection *in)
{
    static const char *const names[] = {"libcupti.so.13", NULL};
    static const struct dpb_library_symbol symbols[] = {
            DPB_LIBRARY_SYMBOL(cupti_versions, cuptiGetVersion)};
    static const struct dpb_library library = {
            "CUPTI",
            names,
            "DPB_CUPTI_LIBRARY",
            "it comes with the CUDA toolkit: add its folder to LD_LIBRARY_PATH",
            symbols,
            1};
    struct cupti_versions table;
    char why[TEXT_BYTES] = "", parameters[TEXT_BYTES] = "";
    uint32_t version = 0;

    if (dpb_library_open(&library, &table, why, sizeof(why)) < 0 ||
        table.cuptiGetVersion(&version) != 0) {
        find(in, DPB_FINDING_WARN, "CUPTI", "install it: without it no step is traced on the GPU",
             "%s", why[0] ? why : "it does not tell its version");
        return;
    }
    read_line(parameters, "/sys/module/nvidia/parameters/NVreg_RestrictProfilingToAdminUsers");
    find(in, DPB_FINDING_OK, "CUPTI", NULL, "%u%s", version,
         parameters[0] == '1' ? "; hardware counters are for root only (ncu), traces need none"
                              : "");
}

static void inspect_libraries(struct inspection *in)
{
    struct dpb_cublaslt lt;
    struct dpb_cudnn cudnn;
    char why[TEXT_BYTES] = "", text[64];

    if (dpb_cublaslt_open(&lt, why, sizeof(why)) < 0) {
        find(in, DPB_FINDING_FAIL, "cuBLASLt", "install it: it comes with the CUDA toolkit", "%s",
             why);
    } else {
        dpb_cublaslt_version_text(lt.cublasLtGetVersion(), text, sizeof(text));
        find(in, DPB_FINDING_OK, "cuBLASLt", NULL, "%s", text);
    }
    if (dpb_cudnn_open(&cudnn, why, sizeof(why)) < 0) {
        find(in, DPB_FINDING_WARN, "cuDNN", "install cuDNN 9: convolutions need it", "%s", why);
    } else {
        dpb_cudnn_version_text(cudnn.cudnnGetVersion(), text, sizeof(text));
        find(in, DPB_FINDING_OK, "cuDNN", NULL, "%s", text);
    }
    inspect_nccl(in);
    inspect_cupti(in);
}

/* ---- one GPU ---- */

static unsigned nvlinks(const struct inspection *in, nvmlDevice_t gpu)
{
    unsigned count = 0;

    for (unsigned link = 0; link < NVML_NVLINK_LINKS_MAX; link++) {
        int active = 0;

        if (in->nvml.nvmlDeviceGetNvLinkState(gpu, link, &active) == NVML_SUCCESS && active)
            count++;
    }
    return count;
}

/* "0000:1b:00.0" as sysfs writes it, of NVML's "00000000:1B:00.0". */
static void sysfs_bus_id(const struct nvml_pci_info *pci, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, "%04x:%02x:%02x.0", pci->domain, pci->bus, pci->device);
}

static void describe_gpu(struct inspection *in, unsigned number, nvmlDevice_t gpu)
{
    char what[32], name[NVML_TEXT_BYTES] = "", id[TEXT_BYTES], node[TEXT_BYTES];
    char total[DPB_UNIT_TEXT_BYTES], unused[DPB_UNIT_TEXT_BYTES];
    struct nvml_pci_info pci = {.bus_id = ""};
    struct nvml_memory memory = {0};
    unsigned clock = 0, limit_mw = 0;

    in->nvml.nvmlDeviceGetName(gpu, name, sizeof(name));
    in->nvml.nvmlDeviceGetPciInfo_v3(gpu, &pci);
    in->nvml.nvmlDeviceGetMemoryInfo(gpu, &memory);
    in->nvml.nvmlDeviceGetMaxClockInfo(gpu, NVML_CLOCK_SM, &clock);
    in->nvml.nvmlDeviceGetEnforcedPowerLimit(gpu, &limit_mw);
    sysfs_bus_id(&pci, id);
    read_line(node, "/sys/bus/pci/devices/%s/numa_node", id);
    dpb_human_size((double)memory.total, 3, total, sizeof(total));
    dpb_human_size((double)memory.free, 3, unused, sizeof(unused));
    snprintf(what, sizeof(what), "GPU %u", number);
    find(in, DPB_FINDING_OK, what, NULL,
         "%s at %s, NUMA node %s, %s (%s free), up to %u MHz and %u W, %u NVLinks", name, id,
         node[0] && node[0] != '-' ? node : "unknown", total, unused, clock, limit_mw / 1000,
         nvlinks(in, gpu));
}

static void inspect_modes(struct inspection *in, const char *what, nvmlDevice_t gpu)
{
    unsigned mig = 0, mig_pending = 0;
    int persistence = 1, compute = NVML_COMPUTEMODE_DEFAULT;

    if (in->nvml.nvmlDeviceGetPersistenceMode(gpu, &persistence) == NVML_SUCCESS && !persistence)
        find(in, DPB_FINDING_WARN, what, "nvidia-smi -pm 1, or run nvidia-persistenced",
             "persistence mode is off: the first rank waits for the driver to start the GPU");
    if (in->nvml.nvmlDeviceGetMigMode(gpu, &mig, &mig_pending) == NVML_SUCCESS && mig)
        find(in, DPB_FINDING_WARN, what, "nvidia-smi -mig 0 for runs of several ranks",
             "MIG is on: one rank only, on a part of the GPU");
    if (in->nvml.nvmlDeviceGetComputeMode(gpu, &compute) != NVML_SUCCESS)
        return;
    if (compute == NVML_COMPUTEMODE_PROHIBITED)
        find(in, DPB_FINDING_FAIL, what, "nvidia-smi -c DEFAULT", "compute mode is prohibited");
    if (compute == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        find(in, DPB_FINDING_WARN, what, "nvidia-smi -c DEFAULT, or see that nothing else uses it",
             "compute mode is exclusive: a second process gets \"device busy\"");
}

static void inspect_health(struct inspection *in, const char *what, nvmlDevice_t gpu)
{
    int ecc = 1, ecc_pending = 1;
    unsigned long long errors = 0, reasons = 0;
    unsigned processes = 0;

    if (in->nvml.nvmlDeviceGetEccMode(gpu, &ecc, &ecc_pending) == NVML_SUCCESS && !ecc)
        find(in, DPB_FINDING_WARN, what, "nvidia-smi -e 1, then restart the machine",
             "ECC is off: not comparable with GPUs that have it on");
    if (in->nvml.nvmlDeviceGetTotalEccErrors(gpu, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                                             NVML_VOLATILE_ECC, &errors) == NVML_SUCCESS &&
        errors > 0)
        find(in, DPB_FINDING_FAIL, what, "restart the GPU (nvidia-smi -r), or have it replaced",
             "%llu memory errors that could not be corrected", errors);
    if (in->nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu, &reasons) == NVML_SUCCESS &&
        (reasons & (0x8 | 0x20 | 0x40 | 0x80)))
        find(in, DPB_FINDING_WARN, what,
             "look at cooling and power supply (nvidia-smi -q -d "
             "PERFORMANCE)",
             "its clock is held back now: heat or power, reasons %#llx", reasons);
    in->nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &processes, NULL);
    if (processes > 0)
        find(in, DPB_FINDING_WARN, what, "see nvidia-smi, and measure when it is free",
             "%u other process%s compute%s on it", processes, processes == 1 ? "" : "es",
             processes == 1 ? "s" : "");
}

static void inspect_pcie(struct inspection *in, const char *what, nvmlDevice_t gpu)
{
    unsigned generation = 0, generation_max = 0, width = 0, width_max = 0;

    if (in->nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu, &generation) != NVML_SUCCESS ||
        in->nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu, &generation_max) != NVML_SUCCESS ||
        in->nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu, &width) != NVML_SUCCESS ||
        in->nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu, &width_max) != NVML_SUCCESS)
        return;
    /* The generation falls when the GPU is idle, the width does not. */
    if (width < width_max)
        find(in, DPB_FINDING_WARN, what, "look at the slot and its settings, or reseat the card",
             "PCIe %u x%u, could be %u x%u", generation, width, generation_max, width_max);
}

/* ---- between GPUs ---- */

static const char *way_text(const struct inspection *in, nvmlDevice_t a, nvmlDevice_t b)
{
    static const struct {
        int level;
        const char *text;
    } rows[] = {
            {NVML_TOPOLOGY_INTERNAL, "board"},         {NVML_TOPOLOGY_SINGLE, "PCIe switch"},
            {NVML_TOPOLOGY_MULTIPLE, "PCIe switches"}, {NVML_TOPOLOGY_HOSTBRIDGE, "host bridge"},
            {NVML_TOPOLOGY_NODE, "NUMA node"},         {NVML_TOPOLOGY_SYSTEM, "between sockets"}};
    int level = -1;

    if (in->nvml.nvmlDeviceGetTopologyCommonAncestor(a, b, &level) != NVML_SUCCESS)
        return "unknown";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].level == level)
            return rows[i].text;
    }
    return "unknown";
}

static bool reaches(const struct inspection *in, nvmlDevice_t a, nvmlDevice_t b)
{
    int status = -1;

    return in->nvml.nvmlDeviceGetP2PStatus(a, b, NVML_P2P_CAPS_INDEX_READ, &status) ==
                   NVML_SUCCESS &&
           status == NVML_P2P_STATUS_OK;
}

/* One line per GPU: the ways to the GPUs behind it. */
static void inspect_ways(struct inspection *in, unsigned number)
{
    char what[32], text[TEXT_BYTES] = "";
    size_t used = 0;
    unsigned unreached = 0;

    for (unsigned other = number + 1; other < in->gpu_count && used < sizeof(text) - 64; other++) {
        bool peer = reaches(in, in->gpus[number], in->gpus[other]);

        unreached += !peer;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sto %u %s%s", used ? ", " : "",
                                 other, way_text(in, in->gpus[number], in->gpus[other]),
                                 peer ? "" : " (no peer access)");
    }
    if (!used)
        return;
    snprintf(what, sizeof(what), "GPU %u", number);
    find(in, unreached ? DPB_FINDING_WARN : DPB_FINDING_OK, what,
         "NCCL copies through the host's memory then: switch PCIe ACS and the IOMMU off, or give "
         "the virtual machine the whole board",
         "%s", text);
}

static void inspect_gpus(struct inspection *in)
{
    for (unsigned i = 0; i < in->gpu_count; i++) {
        char what[32];

        snprintf(what, sizeof(what), "GPU %u", i);
        describe_gpu(in, i, in->gpus[i]);
        inspect_modes(in, what, in->gpus[i]);
        inspect_health(in, what, in->gpus[i]);
        inspect_pcie(in, what, in->gpus[i]);
        inspect_ways(in, i);
    }
}

/* ---- network ---- */

static void inspect_network(struct inspection *in)
{
    char path[TEXT_BYTES], rate[TEXT_BYTES], state[TEXT_BYTES], node[TEXT_BYTES];
    struct dirent **names = NULL;
    int count, shown = 0;

    snprintf(path, sizeof(path), "%s/sys/class/infiniband", root);
    count = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;

        if (name[0] != '.' && strlen(name) < 64) {
            read_line(rate, "/sys/class/infiniband/%s/ports/1/rate", name);
            read_line(state, "/sys/class/infiniband/%s/ports/1/state", name);
            read_line(node, "/sys/class/infiniband/%s/device/numa_node", name);
            find(in, strstr(state, "ACTIVE") ? DPB_FINDING_OK : DPB_FINDING_WARN, "network",
                 "see ibstat, and the cable", "%s, %s, %s, NUMA node %s", name, rate, state, node);
            shown++;
        }
        free(names[i]);
    }
    free(names);
    if (!shown)
        find(in, DPB_FINDING_OK, "network", NULL,
             "no InfiniBand or RoCE device: NCCL would use TCP between machines");
}

static void open_nvml(struct inspection *in)
{
    char why[TEXT_BYTES] = "";

    if (dpb_nvml_open(&in->nvml, why, sizeof(why)) < 0) {
        find(in, DPB_FINDING_WARN, "NVML",
             "it comes with the driver; without it there are no clocks, "
             "power and energy in records",
             "%s", why);
        return;
    }
    in->nvml.nvmlDeviceGetCount_v2(&in->gpu_count);
    if (in->gpu_count > GPUS_MAX)
        in->gpu_count = GPUS_MAX;
    for (unsigned i = 0; i < in->gpu_count; i++) {
        if (in->nvml.nvmlDeviceGetHandleByIndex_v2(i, &in->gpus[i]) != NVML_SUCCESS)
            in->gpu_count = i; /* the rest is not ours to see */
    }
}

void dpb_cuda_inspect(dpb_found found, void *ctx)
{
    struct inspection in = {.found = found, .ctx = ctx};

    open_nvml(&in);
    inspect_driver(&in);
    inspect_libraries(&in);
    inspect_gpus(&in);
    inspect_network(&in);
}
