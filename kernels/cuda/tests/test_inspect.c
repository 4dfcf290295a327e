/* What doctor says of GPUs, and how many ranks fit, on faked machines. */
#include "dpb_test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cublaslt_table.h"
#include "cuda_status.h"
#include "cudnn_table.h"
#include "dpb_cuda_inspect.h"
#include "fake_nvml.h"

/* ---- the runtime, as far as it is asked ---- */

static int visible, driver_version;
static const char *device_name;

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = visible;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    snprintf(properties->name, sizeof(properties->name), "%s", device_name);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "text";
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "name";
}

static size_t version_of_lt(void)
{
    return 130100;
}

static size_t version_of_cudnn(void)
{
    return 91900;
}

/* ---- findings, as lines "level what: detail" ---- */

static char lines[16384];

static void keep(void *ctx, enum dpb_finding_level level, const char *what, const char *detail,
                 const char *remedy)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    size_t used = strlen(lines);

    (void)ctx;
    assert_true(level == DPB_FINDING_OK || (remedy && remedy[0]));
    snprintf(lines + used, sizeof(lines) - used, "%s %s: %s\n", words[level], what, detail);
}

static void inspect(void)
{
    lines[0] = '\0';
    dpb_cuda_inspect(keep, NULL);
}

#define assert_found(text)                                                                         \
    do {                                                                                           \
        if (!strstr(lines, (text)))                                                                \
            fail_msg("not found: %s\nin:\n%s", (text), lines);                                     \
    } while (0)
#define assert_not_found(text)                                                                     \
    do {                                                                                           \
        if (strstr(lines, (text)))                                                                 \
            fail_msg("found: %s\nin:\n%s", (text), lines);                                         \
    } while (0)

static char folder[] = "/tmp/dpb-inspect-XXXXXX";

static void put(const char *path, const char *text)
{
    char whole[512];

    snprintf(whole, sizeof(whole), "mkdir -p '%s'\"$(dirname '%s')\"", folder, path);
    assert_int_equal(system(whole), 0);
    snprintf(whole, sizeof(whole), "%s%s", folder, path);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static int setup(void **state)
{
    static struct dpb_cublaslt lt;
    static struct dpb_cudnn cudnn;

    (void)state;
    lt.cublasLtGetVersion = version_of_lt;
    cudnn.cudnnGetVersion = version_of_cudnn;
    fake_nvml_reset();
    dpb_nvml_use(&fake_nvml_table);
    dpb_cublaslt_use(&lt);
    dpb_cudnn_use(&cudnn);
    dpb_cuda_driver_use("libc.so.6"); /* any library that is there */
    dpb_cuda_inspect_root(folder);
    visible = 2;
    driver_version = 13000;
    device_name = "NVIDIA H200";
    return 0;
}

static void test_good_machine(void **state)
{
    (void)state;
    put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "0");
    put("/sys/bus/pci/devices/0000:43:00.0/numa_node", "1");
    put("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
    put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    put("/sys/class/infiniband/mlx5_0/device/numa_node", "0");
    put("/sys/class/infiniband/mlx5_1/ports/1/rate", "10 Gb/sec");
    put("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    put("/sys/class/infiniband/mlx5_1/device/numa_node", "1");
    inspect();
    assert_found("ok GPU driver: 580.65.06, CUDA 13.0; built with CUDA 13.");
    assert_found("2 visible of 2 GPUs");
    assert_found("ok cuBLASLt: 13.1.0");
    assert_found("ok cuDNN: 9.19.0");
    assert_found("ok GPU 0: NVIDIA H200 at 0000:1b:00.0, NUMA node 0, 140 GiB (139 GiB free), up "
                 "to 1980 MHz and 700 W, 18 NVLinks");
    assert_found("ok GPU 1: NVIDIA H200 at 0000:43:00.0, NUMA node 1,");
    assert_found("ok GPU 0: to 1 between sockets");
    assert_found("ok network: mlx5_0, 400 Gb/sec (4X NDR), 4: ACTIVE, NUMA node 0");
    assert_found("warn network: mlx5_1, 10 Gb/sec, 1: DOWN, NUMA node 1");
    assert_not_found("warn GPU");
    assert_not_found("fail");
}

/* Each trouble alone, and nothing else. */
static void test_troubles(void **state)
{
    struct fake_gpu *gpu = &fake_nvml.gpus[1];

    (void)state;
#define TROUBLE(change, text)                                                                      \
    fake_nvml_reset();                                                                             \
    change;                                                                                        \
    inspect();                                                                                     \
    assert_found(text);                                                                            \
    assert_not_found("warn GPU 0")
    TROUBLE(gpu->persistence = 0, "warn GPU 1: persistence mode is off");
    TROUBLE(gpu->mig = 1, "warn GPU 1: MIG is on");
    TROUBLE(gpu->compute_mode = NVML_COMPUTEMODE_PROHIBITED, "fail GPU 1: compute mode is proh");
    TROUBLE(gpu->compute_mode = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, "warn GPU 1: compute mode is");
    TROUBLE(gpu->ecc = 0, "warn GPU 1: ECC is off");
    TROUBLE(gpu->ecc_errors = 3, "fail GPU 1: 3 memory errors that could not be corrected");
    TROUBLE(gpu->reasons = 0x48, "warn GPU 1: its clock is held back now: heat or power, reasons "
                                 "0x48");
    TROUBLE(gpu->processes = 2, "warn GPU 1: 2 other processes compute on it");
    TROUBLE(gpu->pcie_width = 8, "warn GPU 1: PCIe 5 x8, could be 5 x16");
    fake_nvml_reset();
    fake_nvml.p2p_status = 1;
    fake_nvml.topology = NVML_TOPOLOGY_HOSTBRIDGE;
    inspect();
    assert_found("warn GPU 0: to 1 host bridge (no peer access)");
}

static void test_nothing_there(void **state)
{
    char other[] = "/tmp/dpb-inspect-empty";

    (void)state;
    fake_nvml.start_result = 9;
    dpb_cuda_inspect_root(other);
    dpb_cuda_driver_use("libnothing-of-this-name.so.1");
    inspect();
    assert_found("warn NVML: NVML does not start: Driver Not Loaded (9)");
    assert_found("fail GPU driver: there is no NVIDIA driver (libnothing-of-this-name.so.1");
    assert_found("ok network: no InfiniBand or RoCE device");
    assert_not_found("GPU 0");
}

static void test_ranks(void **state)
{
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_cuda_ranks_fit(2, why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_cuda_ranks_fit(3, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_string_equal(why, "not available here, because 3 ranks need a GPU each, and 2 are "
                             "visible");
    visible = 1;
    device_name = "NVIDIA H200 MIG 1g.18gb";
    assert_int_equal(dpb_cuda_ranks_fit(1, why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_cuda_ranks_fit(2, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "MIG mode"));
    driver_version = 12040; /* counts its devices all the same */
    assert_int_equal(dpb_cuda_ranks_fit(1, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "is for CUDA 12.4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_good_machine, setup),
            cmocka_unit_test_setup(test_troubles, setup),
            cmocka_unit_test_setup(test_nothing_there, setup),
            cmocka_unit_test_setup(test_ranks, setup),
    };

    return cmocka_run_group_tests_name("inspect", tests, make_folder, remove_folder);
}
