/* The real NCCL, as far as it goes without a driver: its functions, its version, and what a rank is
 * told that has no GPU. cudart is the fake: only NCCL itself finds out that there is none. */
#include "dpb_test.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_rank.h"

static void open_without_driver(struct ranks_self *self, void *argument)
{
    const struct nccl_plan *plan = argument;
    struct nccl_rank rank;
    nccl_rank_begin(self, plan, &rank);
    dpb_nccl_table_install(NULL);
    RANK_EQUAL(rank.ops->open(&rank.config, &rank.comm), DPB_ERR_VENDOR);
    RANK_CHECK(ranks_logged(self, "open: ncclCommInitRankConfig: unhandled cuda error"));
    RANK_CHECK(ranks_logged(self, "CUDA driver version is insufficient"));
    nccl_rank_end(&rank);
}

static void test_functions(void **state)
{
    (void)state;
    const struct dpb_nccl_table *table;
    char why[512];
    int version = 0;
    assert_int_equal(dpb_nccl_table_get(&table, why, sizeof(why)), DPB_OK);
    assert_int_equal(table->ncclGetVersion(&version), ncclSuccess);
    assert_true(version >= DPB_NCCL_VERSION_MIN);
    assert_true(version < 22800 || table->ncclAlltoAll != NULL);
    assert_string_equal(table->ncclGetErrorString(ncclSuccess), "no error");
}

static void test_no_driver(void **state)
{
    (void)state;
    struct ranks_plan plan = {.ranks = 1, .no_open = true};
    struct nccl_plan nccl = {.world = fake_nccl_world_new(), .seed = 1};
    assert_int_equal(ranks_run(&plan, open_without_driver, &nccl), 0);
    fake_nccl_world_free(nccl.world);
}

/* In a process of its own: a library that NCCL is not. */
static void test_other_library(void **state)
{
    (void)state;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        const struct dpb_nccl_table *table = NULL;
        char why[512] = "";
        setenv("DPB_NCCL_LIBRARY", "libm.so.6", 1);
        dpb_status st = dpb_nccl_table_get(&table, why, sizeof(why));
        _exit(st == DPB_ERR_UNAVAILABLE && !table && strstr(why, "NCCL has no function nccl") ? 0
                                                                                              : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_other_library),
            cmocka_unit_test(test_no_driver),
            cmocka_unit_test(test_functions),
    };
    const struct dpb_nccl_table *table;
    char why[512];
    /* In a child, which must not hand an open library on. */
    fflush(NULL);
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        if (dpb_nccl_table_get(&table, why, sizeof(why)) == DPB_OK)
            _exit(0);
        printf("SKIP: %s\n", why);
        fflush(NULL);
        _exit(77);
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 77;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        dpb_test_skip_all("there is a driver: this test is about what happens without one");
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_RAS_ENABLE", "0", 1);
    return DPB_RUN_TESTS(tests);
}
