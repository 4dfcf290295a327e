/* The check of a backend's table, and the shared segment. */
#include "dpb_test.h"

#include <fcntl.h>
#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_log.h"
#include "dpb_units.h"

static char logged[4096];

static void keep(void *context, enum dpb_log_level level, const char *line)
{
    (void)context, (void)level;
    snprintf(logged, sizeof(logged), "%s", line);
}

static void refuse(const struct dpb_comm_ops *ops, const char *because)
{
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    dpb_status st = dpb_comm_ops_check(ops);
    dpb_log_set_sink(NULL, NULL);
    assert_int_equal(st, DPB_ERR_INTERNAL);
    if (!strstr(logged, because))
        fail_msg("\"%s\" is not in: %s", because, logged);
}

static void test_good_table(void **state)
{
    (void)state;
    assert_int_equal(dpb_comm_ops_check(&dpb_comm_shm_ops), DPB_OK);
    char why[DPB_WHY_BYTES] = "";
    assert_int_equal(dpb_comm_shm_ops.probe(why, sizeof(why)), DPB_OK);
    /* without an emulated link, wire_ns is optional, and so is the option table */
    struct dpb_comm_ops ops = dpb_comm_shm_ops;
    ops.flags = 0;
    ops.wire_ns = NULL;
    ops.options = NULL;
    assert_int_equal(dpb_comm_ops_check(&ops), DPB_OK);
}

static void test_broken_tables(void **state)
{
    (void)state;
    refuse(NULL, "NULL");
    struct dpb_comm_ops ops = dpb_comm_shm_ops;
    ops.version = DPB_COMM_OPS_VERSION + 1;
    refuse(&ops, "version");

#define REFUSE_WITHOUT(member)                                                                     \
    do {                                                                                           \
        ops = dpb_comm_shm_ops;                                                                    \
        ops.member = NULL;                                                                         \
        refuse(&ops, "lacks " #member);                                                            \
    } while (0)
    REFUSE_WITHOUT(name);
    REFUSE_WITHOUT(summary);
    REFUSE_WITHOUT(probe);
    REFUSE_WITHOUT(open);
    REFUSE_WITHOUT(close);
    REFUSE_WITHOUT(describe);
    REFUSE_WITHOUT(buffer_alloc);
    REFUSE_WITHOUT(buffer_free);
    REFUSE_WITHOUT(barrier);
    REFUSE_WITHOUT(exchange);
    REFUSE_WITHOUT(start);
    REFUSE_WITHOUT(test);
    REFUSE_WITHOUT(wait);
    REFUSE_WITHOUT(abort);
    REFUSE_WITHOUT(stats);
    REFUSE_WITHOUT(wire_ns);

    struct dpb_option_table table = dpb_comm_shm_table;
    ops = dpb_comm_shm_ops;
    ops.options = &table;
    table.owner = "mpi";
    refuse(&ops, "owner \"mpi\"");
    table = dpb_comm_shm_table;
    table.kind = "device";
    refuse(&ops, "kind \"device\"");
    struct dpb_option row = dpb_comm_shm_table.rows[0];
    row.default_text = "carrier-pigeon";
    table = dpb_comm_shm_table;
    table.rows = &row;
    table.row_count = 1;
    refuse(&ops, "carrier-pigeon");
}

static void test_segment(void **state)
{
    (void)state;
    int fd = -1;
    assert_int_equal(dpb_comm_segment_new(2, &fd), DPB_OK);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    close(fd);
    fd = -7;
    dpb_log_set_sink(keep, NULL);
    assert_int_equal(dpb_comm_segment_new(0, &fd), DPB_ERR_USAGE);
    assert_int_equal(dpb_comm_segment_new(65, &fd), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_int_equal(fd, -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_good_table),
            cmocka_unit_test(test_broken_tables),
            cmocka_unit_test(test_segment),
    };
    return DPB_RUN_TESTS(tests);
}
