#include "dpb_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../calibrate_private.h"
#include "dpb_log.h"
#include "dpb_machine_model.h"

#define LATENCY_S   2e-6
#define BYTES_PER_S 10e9

/* ---- records as `dpbench comm` writes them ---- */

struct row {
    int ranks;
    double bytes, ns;
    const char *host, *algorithm, *status;
    bool simulated, uneven_nodes;
};

static struct row plain(int ranks, double bytes, double ns)
{
    return (struct row){.ranks = ranks,
                        .bytes = bytes,
                        .ns = ns,
                        .host = "elsewhere",
                        .algorithm = "ring",
                        .status = "ok"};
}

static void put(FILE *file, const struct row *row)
{
    char each[16];

    snprintf(each, sizeof(each), "%d", row->ranks);
    fprintf(file,
            "{\"schema\": \"dpb.comm/1\", \"run_id\": \"r\", \"status\": \"%s\", \"time_utc\": "
            "\"2026-11-30T10:00:00.000Z\", \"host\": {\"name\": \"%s\", \"cpu_model\": "
            "\"Example\", "
            "\"cores\": 2, \"memory_bytes\": 8589934592}, \"ranks\": %d, \"emulated\": false, "
            "\"simulated\": %s, \"comm\": {\"name\": \"shm\"}, \"device\": {\"name\": \"cpu\"}, "
            "\"algorithm\": \"%s\", \"collective\": \"all-reduce\", \"dtype\": \"fp32\", "
            "\"config\": "
            "{\"call\": \"blocking\", \"ranks_per_node\": %s}, \"size_bytes\": %.0f, \"wrong\": 0, "
            "\"time_ns\": {\"p50\": %.17g}}\n",
            row->status, row->host, row->ranks, row->simulated ? "true" : "false", row->algorithm,
            row->uneven_nodes ? "null" : each, row->bytes, row->ns);
}

static char path[64];

static FILE *begin(void)
{
    strcpy(path, "/tmp/dpb-calibrate-XXXXXX");
    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    return fdopen(fd, "w");
}

static dpb_status calibrate(struct dpb_calibration *calibration)
{
    const char *const comms[] = {path};
    const struct dpb_calibrate_config config = {.name = "ours", .comms = comms, .comm_count = 1};
    const dpb_status st = dpb_calibrate(&config, calibration);

    unlink(path);
    return st;
}

static double ring_ns(int ranks, double bytes)
{
    return 1e9 * 2 * (ranks - 1) * (LATENCY_S + bytes / ranks / BYTES_PER_S);
}

static void assert_about(double found, double expected, double share)
{
    if (!(fabs(found / expected - 1) <= share))
        fail_msg("%.12g, not %.12g", found, expected);
}

static void put_rings(FILE *file)
{
    for (int ranks = 2; ranks <= 4; ranks += 2)
        for (double bytes = 1024; bytes <= 64 * 1024 * 1024; bytes *= 4) {
            const struct row row = plain(ranks, bytes, ring_ns(ranks, bytes));
            put(file, &row);
        }
}

/* ---- what is found ---- */

static void test_link_of_a_ring(void **state)
{
    FILE *file = begin();
    struct dpb_calibration found;

    (void)state;
    put_rings(file);
    fclose(file);
    assert_int_equal(calibrate(&found), DPB_OK);
    const struct dpb_machine *machine = &found.machine;
    assert_int_equal(machine->accelerators_per_node, 4);
    assert_int_equal(machine->curve_count, 2);
    assert_true(machine->is_cpu);
    assert_about(dpb_machine_value(machine, DPB_FIGURE_INSIDE_LATENCY, 0), LATENCY_S, 1e-3);
    assert_about(dpb_machine_value(machine, DPB_FIGURE_INSIDE_RATE, 0) *
                         dpb_machine_value(machine, DPB_FIGURE_INSIDE_SHARE, 0),
                 BYTES_PER_S, 2e-3);
    assert_about(dpb_machine_value(machine, DPB_FIGURE_INSIDE_FLOOR, 0), ring_ns(2, 1024) * 1e-9,
                 1e-3);
    assert_non_null(strstr(machine->figure[DPB_FIGURE_INSIDE_RATE].source, path));
    assert_non_null(strstr(machine->figure[DPB_FIGURE_INSIDE_RATE].source, "2026-11-30"));
    /* Nothing was measured for these. */
    assert_true(machine->figure[DPB_FIGURE_FP32].is_assumed);
    assert_false(dpb_machine_has(machine, DPB_FIGURE_NOISE_RANK));
    assert_true(dpb_json_size(dpb_json_get(found.report, "left_out")) > 0);
    assert_int_equal(dpb_json_type(dpb_json_get(found.report, "steps_median_error")),
                     DPB_JSON_NULL);
    dpb_calibration_release(&found);
}

static void test_held_out_sizes_are_predicted(void **state)
{
    FILE *file = begin();
    struct dpb_calibration found;
    double ns = 1000;

    (void)state;
    /* A straight line in the logarithms, but for one size. */
    for (int i = 0; i < 7; i++, ns *= 2) {
        const struct row row = plain(2, 1024 << (2 * i), i == 3 ? 1.5 * ns : ns);
        put(file, &row);
    }
    fclose(file);
    assert_int_equal(calibrate(&found), DPB_OK);
    const dpb_json *curve = dpb_json_at(dpb_json_get(found.report, "curves"), 0);
    assert_int_equal(dpb_json_as_int(dpb_json_get(curve, "held_out"), 0), 3);
    assert_true(dpb_json_as_real(dpb_json_get(curve, "median_error"), 1) < 1e-9);
    assert_about(dpb_json_as_real(dpb_json_get(curve, "worst_error"), 0), 1.0 / 3, 1e-9);
    dpb_calibration_release(&found);
}

static void test_written_machine_gives_the_measured_times(void **state)
{
    FILE *file = begin();
    struct dpb_calibration found;
    struct dpb_machine machine;
    struct dpb_machine_model model;
    struct dpb_network_time time;
    struct dpb_str text = {0};

    (void)state;
    put_rings(file);
    fclose(file);
    assert_int_equal(calibrate(&found), DPB_OK);
    dpb_machine_write(&found.machine, &text);
    assert_int_equal(dpb_machine_parse(text.text, text.length, "m.yaml", &machine), DPB_OK);
    assert_int_equal(dpb_machine_model_init(&machine, false, &model), DPB_OK);
    assert_int_equal(dpb_network_time(&model.network, DPB_COLL_ALL_REDUCE, 4, 65536, &time),
                     DPB_OK);
    assert_int_equal(time.origin, DPB_ORIGIN_MEASURED);
    assert_true(fabs(time.ns - ring_ns(4, 65536)) < 0.51);
    dpb_machine_model_release(&model);
    dpb_machine_release(&machine);
    dpb_str_release(&text);
    dpb_calibration_release(&found);
}

static void test_of_several_runs_the_median_counts(void **state)
{
    const double ns[] = {900, 5000, 1000};
    FILE *file = begin();
    struct dpb_calibration found;

    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct row row = plain(2, 1024, ns[i]);
        put(file, &row);
    }
    fclose(file);
    assert_int_equal(calibrate(&found), DPB_OK);
    assert_int_equal(found.machine.curves[0].count, 1);
    assert_about(found.machine.curves[0].seconds[0], 1000e-9, 1e-9);
    dpb_calibration_release(&found);
}

/* ---- what is not used, and what is refused ---- */

static void test_other_records_are_left_out_and_told(void **state)
{
    struct row rows[] = {plain(2, 1024, 1000),  plain(2, 4096, 1000), plain(2, 8192, 1000),
                         plain(2, 16384, 1000), plain(1, 1024, 1000), plain(3, 1024, 1000)};
    FILE *file = begin();
    struct dpb_calibration found;

    (void)state;
    rows[1].algorithm = "direct";
    rows[2].simulated = true;
    rows[3].status = "invalid";
    rows[5].uneven_nodes = true;
    for (int i = 0; i < 6; i++)
        put(file, &rows[i]);
    fclose(file);
    assert_int_equal(calibrate(&found), DPB_OK);
    assert_int_equal(found.machine.curves[0].count, 1);
    const dpb_json *left_out = dpb_json_get(found.report, "left_out");
    assert_string_equal(dpb_json_as_string(dpb_json_at(left_out, 0), ""),
                        "2 records of collectives: not ok, or simulated");
    assert_string_equal(dpb_json_as_string(dpb_json_at(left_out, 1), ""),
                        "1 record of collectives with other settings than \"shm ring, fp32, "
                        "blocking calls\"");
    assert_string_equal(dpb_json_as_string(dpb_json_at(left_out, 2), ""),
                        "1 record of collectives over several nodes");
    dpb_calibration_release(&found);
}

static void assert_refused(const struct row *rows, int count, const char *tail, dpb_status status)
{
    FILE *file = begin();
    struct dpb_calibration found;

    for (int i = 0; i < count; i++)
        put(file, &rows[i]);
    fputs(tail, file);
    fclose(file);
    assert_int_equal(calibrate(&found), status);
}

static void test_refuses(void **state)
{
    struct row rows[] = {plain(2, 1024, 1000), plain(2, 4096, 1000)};

    (void)state;
    rows[1].host = "another";
    assert_refused(rows, 2, "", DPB_ERR_USAGE);
    assert_refused(rows, 1, "{\"schema\": \"dpb.record/1\"}\n", DPB_ERR_CORRUPT);
    assert_refused(rows, 1, "{\"schema\": \n", DPB_ERR_CORRUPT);
    assert_refused(rows, 0, "", DPB_ERR_NO_DATA);
    rows[0].simulated = true;
    assert_refused(rows, 1, "", DPB_ERR_NO_DATA);
    rows[0] = plain(2, 1024, -1);
    assert_refused(rows, 1, "", DPB_ERR_CORRUPT);
}

/* ---- formulas ---- */

static void test_variance_of_the_largest(void **state)
{
    (void)state;
    assert_about(calibrate_maximum_variance(1), 1, 1e-9);
    assert_about(calibrate_maximum_variance(2), 1 - 1 / M_PI, 1e-9);
    assert_about(calibrate_maximum_variance(4), 0.4917, 1e-4); /* tables of order statistics */
}

static void test_time_that_contention_takes(void **state)
{
    (void)state;
    /* 115 for the work of 100, all of it beside a collective */
    assert_about(calibrate_slower_by(15, 115), 0.15, 1e-12);
    assert_true(calibrate_slower_by(-1, 100) == 0);
    assert_true(isnan(calibrate_slower_by(95, 100)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_link_of_a_ring),
            cmocka_unit_test(test_held_out_sizes_are_predicted),
            cmocka_unit_test(test_written_machine_gives_the_measured_times),
            cmocka_unit_test(test_of_several_runs_the_median_counts),
            cmocka_unit_test(test_other_records_are_left_out_and_told),
            cmocka_unit_test(test_refuses),
            cmocka_unit_test(test_variance_of_the_largest),
            cmocka_unit_test(test_time_that_contention_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
