/* What doctor says of a machine, with /proc and /sys in a folder of the test. */
#include "dpb_test.h"

#include <unistd.h>

#include "dpb_inspect.h"

static char folder[] = "/tmp/dpb-host-XXXXXX";
static char lines[8192];

static void keep(void *ctx, enum dpb_finding_level level, const char *what, const char *detail,
                 const char *remedy)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    size_t used = strlen(lines);
    (void)ctx;
    assert_int_equal(level == DPB_FINDING_OK, remedy == NULL);
    snprintf(lines + used, sizeof(lines) - used, "%s %s: %s\n", words[level], what, detail);
}

static void inspect(void)
{
    lines[0] = '\0';
    dpb_inspect_host(folder, keep, NULL);
}

#define assert_found(text)                                                                         \
    do {                                                                                           \
        if (!strstr(lines, (text)))                                                                \
            fail_msg("not found: %s\nin:\n%s", (text), lines);                                     \
    } while (0)

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "mkdir -p '%s'\"$(dirname '%s')\"", folder, path);
    assert_int_equal(system(whole), 0);
    snprintf(whole, sizeof(whole), "%s%s", folder, path);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
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

#define GOVERNOR "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"

static void test_cores(void **state)
{
    (void)state;
    inspect();
    assert_found("ok clock governor: none to be seen");
    assert_found("ok quota of cores: none");
    put(GOVERNOR, "powersave\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    put("/sys/devices/system/node/online", "0-1\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    inspect();
    assert_found("warn clock governor: powersave: clocks follow the load");
    assert_found("warn quota of cores: 0.50 of ");
    assert_found("warn NUMA balancing: on: the kernel moves pages");
    put(GOVERNOR, "performance\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/proc/sys/kernel/numa_balancing", "0\n");
    inspect();
    assert_found("ok clock governor: performance\n");
    assert_found("ok quota of cores: none");
    assert_found("ok NUMA balancing: off, NUMA nodes 0-1");
    put("/sys/fs/cgroup/cpu.max", "100000000 100000\n");
    inspect();
    assert_found("ok quota of cores: 1000.00 of ");
}

static void test_memory(void **state)
{
    (void)state;
    inspect();
    assert_null(strstr(lines, "ok memory: "));
    assert_null(strstr(lines, "warn memory: "));
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\n"
                         "MemAvailable:   33554432 kB\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    inspect();
    assert_found("ok memory: 64.0 GiB, 32.0 GiB available\n");
    assert_found("warn large pages: transparent large pages: always madvise [never]");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    inspect();
    assert_found("ok memory: 64.0 GiB, 32.0 GiB available\n");
    assert_found("ok large pages: ");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    inspect();
    assert_found("warn memory: 64.0 GiB, 32.0 GiB available, container's limit 1.00 GiB");
}

static void test_shm(void **state)
{
    (void)state;
    inspect();
    assert_found("warn /dev/shm: not there");
}

static void test_limits(void **state)
{
    (void)state;
    inspect();
    assert_found(" locked memory: ");
    assert_found(" open files: ");
    assert_null(strstr(lines, "warn locked memory"));
}

static void test_gpu(void **state)
{
    (void)state;
    assert_false(dpb_inspect_has_gpu(folder));
    put("/sys/bus/pci/devices/0000:00:03.0/vendor", "0x8086\n");
    put("/sys/bus/pci/devices/0000:00:03.0/class", "0x030000\n");
    put("/sys/bus/pci/devices/0000:1b:00.1/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:1b:00.1/class", "0x040300\n"); /* sound */
    assert_false(dpb_inspect_has_gpu(folder));
    put("/sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n");
    assert_true(dpb_inspect_has_gpu(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_cores), cmocka_unit_test(test_memory),
            cmocka_unit_test(test_shm),   cmocka_unit_test(test_limits),
            cmocka_unit_test(test_gpu),
    };
    return cmocka_run_group_tests_name("inspect", tests, make_folder, remove_folder);
}
