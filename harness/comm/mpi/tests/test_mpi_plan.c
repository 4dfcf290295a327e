/* What needs no MPI: pieces, pairs, schedules' ranges, and launchers' variables. */
#include "dpb_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../mpi_piece.h"
#include "dpb_mpi_start.h"
#include "dpb_schedule.h"

/* Pieces follow one another without a gap and end at the end; returns how many there are. */
static int64_t check_pieces(int64_t count, int64_t most)
{
    int64_t pieces = dpb_mpi_piece_number(count, most), end = 0;
    for (int64_t i = 0; i < pieces; i++) {
        int64_t first;
        int64_t n = dpb_mpi_piece(count, most, i, &first);
        assert_int_equal(first, end);
        assert_true(n > 0 && n <= most && n <= INT32_MAX);
        end = first + n;
    }
    assert_int_equal(end, count);
    int64_t beyond;
    assert_int_equal(dpb_mpi_piece(count, most, pieces, &beyond), 0);
    assert_int_equal(beyond, count);
    return pieces;
}

static void test_pieces(void **state)
{
    (void)state;
    assert_int_equal(check_pieces(0, 7), 0);
    assert_int_equal(check_pieces(1, 7), 1);
    assert_int_equal(check_pieces(7, 7), 1);
    assert_int_equal(check_pieces(8, 7), 2);
    assert_int_equal(check_pieces(21, 7), 3);
}

/* 2^31 + 3 bytes and 2^31 + 3 elements of every size: more than an int counts. */
static void test_large_counts(void **state)
{
    (void)state;
    const int64_t large = (INT64_C(1) << 31) + 3;
    const int64_t pieces_of[] = {33, 65, 0, 129, 0, 0, 0, 257};
    for (int64_t bytes = 1; bytes <= 8; bytes *= 2) {
        int64_t most = DPB_MPI_CALL_BYTES / bytes;
        assert_true(most * bytes <= INT32_MAX);
        assert_int_equal(check_pieces(large, most), pieces_of[bytes - 1]);
        check_pieces(large / bytes, most);
    }
    /* and the shards of such a buffer */
    for (int ranks = 1; ranks <= 9; ranks++) {
        int64_t whole = 0;
        for (int r = 0; r < ranks; r++) {
            int64_t first;
            int64_t count = dpb_coll_shard(large, ranks, r, &first);
            assert_int_equal(first, whole);
            check_pieces(count, DPB_MPI_CALL_BYTES / 4);
            whole += count;
        }
        assert_int_equal(whole, large);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 17; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            uint32_t seen = 0;
            for (int round = 0; round < ranks; round++) {
                int peer = dpb_mpi_pair(ranks, rank, round);
                assert_in_range(peer, 0, ranks - 1);
                assert_int_equal(dpb_mpi_pair(ranks, peer, round), rank);
                seen |= 1u << peer;
            }
            assert_int_equal(seen, (1u << ranks) - 1);
        }
}

/* A range that is sent may be the received one, but not a shifted one: pieces go in lockstep. What
 * is put in its place at once must not be what is being sent. */
static void check_step(const struct dpb_schedule_step *step)
{
    if (step->to < 0 || step->from < 0 || step->send_count == 0 || step->receive_count == 0)
        return;
    bool same = step->send_first == step->receive_first && step->send_count == step->receive_count;
    bool apart = step->send_first + step->send_count <= step->receive_first ||
                 step->receive_first + step->receive_count <= step->send_first;
    assert_true(apart || (same && step->reduces));
}

static void check_schedule(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                           int64_t count)
{
    char why[256];
    if (dpb_algorithm_check(setup, kind, why, sizeof(why)) < 0)
        return;
    for (int rank = 0; rank < setup->ranks; rank++) {
        struct dpb_schedule schedule;
        struct dpb_schedule_step step;
        dpb_schedule_init(&schedule, setup, kind, rank, setup->ranks / 2, count, 4);
        for (int64_t round = 0; round < schedule.rounds; round++) {
            dpb_schedule_step(&schedule, round, &step);
            check_step(&step);
        }
    }
}

static void test_ranges(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 7, 1000, 600001};
    for (int algorithm = DPB_ALGORITHM_RING; algorithm < DPB_ALGORITHM_COUNT; algorithm++)
        for (int kind = 0; kind < DPB_COLL_ALL_TO_ALL; kind++)
            for (int ranks = 2; ranks <= 17; ranks++)
                for (int node = 0; node <= 4; node++)
                    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                        const struct dpb_algorithm_setup setup = {
                                .algorithm = (enum dpb_algorithm)algorithm,
                                .ranks = ranks,
                                .ranks_per_node = node};
                        check_schedule(&setup, (enum dpb_coll_kind)kind, counts[c]);
                    }
}

static void clear_environment(void)
{
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
}

static void test_start(void **state)
{
    (void)state;
    struct dpb_mpi_start start;
    char why[256];
    clear_environment();
    assert_int_equal(dpb_mpi_start_find(&start, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "started without mpirun"));
    setenv("PMI_RANK", "2", 1);
    assert_int_equal(dpb_mpi_start_find(&start, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    setenv("PMI_SIZE", "3", 1);
    assert_int_equal(dpb_mpi_start_find(&start, why, sizeof(why)), DPB_OK);
    assert_int_equal(start.library, DPB_MPI_MPICH);
    assert_int_equal(start.rank, 2);
    assert_int_equal(start.size, 3);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(dpb_mpi_start_find(&start, why, sizeof(why)), DPB_OK);
    assert_int_equal(start.library, DPB_MPI_OPEN_MPI);
    assert_int_equal(start.size, 4);
    const char *const wrong[] = {"4", "-1", "x", "1x", "", "99999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("OMPI_COMM_WORLD_RANK", wrong[i], 1);
        assert_int_equal(dpb_mpi_start_find(&start, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
        assert_non_null(strstr(why, "OMPI_COMM_WORLD_RANK"));
    }
    clear_environment();
}

/* A second start is known by the file that the first one left in the launcher's folder. */
static void test_claim_open_mpi(void **state)
{
    (void)state;
    struct dpb_mpi_start start = {DPB_MPI_OPEN_MPI, 1, 2};
    char why[256], folder[] = "/tmp/dpb-mpi-XXXXXX", path[128];
    assert_non_null(mkdtemp(folder));
    setenv("PMIX_SERVER_TMPDIR", folder, 1);
    setenv("PMIX_NAMESPACE", "job", 1);
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "rank 1, and it starts once"));
    start.rank = 0;
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof(path), "%s/dpbench-job-%d", folder, rank);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    /* No such folder, or none named: nothing is known. */
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    unsetenv("PMIX_SERVER_TMPDIR");
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    unsetenv("PMIX_NAMESPACE");
}

static void test_claim_mpich(void **state)
{
    (void)state;
    const struct dpb_mpi_start start = {DPB_MPI_MPICH, 0, 2};
    char why[256], number[16];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    snprintf(number, sizeof(number), "%d", pair[0]);
    setenv("PMI_FD", number, 1);
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    assert_int_equal(close(pair[1]), 0);
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_int_equal(close(pair[0]), 0);
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
    unsetenv("PMI_FD");
    assert_int_equal(dpb_mpi_start_claim(&start, why, sizeof(why)), DPB_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_pieces),      cmocka_unit_test(test_large_counts),
            cmocka_unit_test(test_pairs),       cmocka_unit_test(test_ranges),
            cmocka_unit_test(test_start),       cmocka_unit_test(test_claim_open_mpi),
            cmocka_unit_test(test_claim_mpich),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
