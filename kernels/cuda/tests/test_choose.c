/* Which device a rank takes, and when none. No vendor's header. */
#include "choose.h"
#include "dpb_log.h"
#include "dpb_options.h"
#include "dpb_test.h"

static char first_error[1024];

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    if (level == DPB_LOG_ERROR && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", line);
}

static const struct {
    struct dpb_cuda_choice choice;
    int ordinal;       /* -1: none */
    const char *error; /* a part of it */
} cases[] = {
        {{.local_rank = 0, .local_size = 1, .visible = 1, .asked = DPB_AUTO}, 0, NULL},
        {{.local_rank = 3, .local_size = 8, .visible = 8, .asked = DPB_AUTO}, 3, NULL},
        {{.local_rank = 1, .local_size = 2, .visible = 8, .asked = DPB_AUTO}, 1, NULL},
        {{.local_rank = 0, .local_size = 1, .visible = 8, .asked = 5}, 5, NULL},
        {{.local_rank = 3, .local_size = 4, .visible = 1, .asked = DPB_AUTO, .one_each = true},
         0,
         NULL},
        {{.local_rank = 0, .local_size = 2, .visible = 1, .asked = DPB_AUTO},
         -1,
         "2 ranks on this machine, and 1 visible device:"},
        {{.local_rank = 0, .local_size = 9, .visible = 8, .asked = DPB_AUTO, .one_each = true},
         -1,
         "9 ranks on this machine, and 8 visible devices:"},
        {{.local_rank = 0, .local_size = 1, .visible = 8, .asked = 8},
         -1,
         "no device 8: 8 visible"},
        {{.local_rank = 1, .local_size = 2, .visible = 8, .asked = 0}, -1, "one device to 2 ranks"},
};

static void test_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int ordinal = -1;
        dpb_status st;

        first_error[0] = '\0';
        dpb_log_set_sink(keep_error, NULL);
        st = dpb_cuda_choose(&cases[i].choice, &ordinal);
        dpb_log_set_sink(NULL, NULL);
        assert_int_equal(st, cases[i].error ? DPB_ERR_USAGE : DPB_OK);
        assert_int_equal(ordinal, cases[i].ordinal);
        if (cases[i].error)
            assert_non_null(strstr(first_error, cases[i].error));
        else
            assert_string_equal(first_error, "");
    }
}

static const char *const variables[] = {
        "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_PER_TASK",
        "SLURM_LOCALID",        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",      "PMI_RANK",
        "LOCAL_RANK",           "MV2_COMM_WORLD_LOCAL_RANK",
};

/* A device that a user hides from our own launcher is not one for each rank. */
static void test_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    assert_false(dpb_cuda_launcher_shows_one_each());
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    assert_false(dpb_cuda_launcher_shows_one_each());
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
    assert_true(dpb_cuda_launcher_shows_one_each());
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_false(dpb_cuda_launcher_shows_one_each());
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    setenv("LOCAL_RANK", "3", 1);
    assert_true(dpb_cuda_launcher_shows_one_each());
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("SLURM_GPUS_PER_TASK", "1", 1);
    assert_true(dpb_cuda_launcher_shows_one_each());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_launchers)};
    return DPB_RUN_TESTS(tests);
}
