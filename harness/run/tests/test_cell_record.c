/* Ranks' results with known numbers -> the record's numbers. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "record_for_tests.h"

/* The record says how the device does bf16, and warns when it does not really. */
static void test_emulated_bf16(void **state)
{
    (void)state;
    static const char *const how[] = {"native avx512_bf16", "emulated by avx512"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        dpb_json *device = dpb_json_object();
        dpb_json_set_string(device, "bf16", how[i]);
        dpb_json_set(f.result.ranks[0], "device", device);
        assert_int_equal(dpb_config_set(f.plan.cells[0].config, "precision", "bf16"), DPB_OK);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_string_equal(dpb_json_as_string(dpb_json_path(record, "config/precision"), ""),
                            "bf16");
        assert_string_equal(dpb_json_as_string(dpb_json_path(record, "device/bf16"), ""), how[i]);
        assert_int_equal(dpb_json_size(dpb_json_get(record, "warnings")), 2 + i);
        dpb_json_free(record);
        close_fixture(&f);
    }
}

/* A device's meter: 8 J, and held back when `by` says by what; NULL: there is none. */
static dpb_json *meter_json(bool machine, const char *by)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "meter", machine ? "rapl" : "nvml");
    dpb_json_set_bool(json, "machine", machine);
    dpb_json_set_int(json, "energy_mj", 8000);
    dpb_json_set_bool(json, "throttled", by != NULL);
    dpb_json_set_string(json, "throttled_by", by ? by : "");
    return json;
}

static dpb_json *no_meter_json(const char *why)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_absent(json, "meter", why);
    return json;
}

static dpb_json *record_with_meters(dpb_json *first, dpb_json *second)
{
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    dpb_json_set(f.result.ranks[0], "meter", first);
    dpb_json_set(f.result.ranks[1], "meter", second);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    close_fixture(&f);
    return record;
}

/* 4 timed steps of 128 samples. */
static void test_energy(void **state)
{
    (void)state;
    dpb_json *record = record_with_meters(meter_json(false, NULL), meter_json(false, "heat"));
    const dpb_json *warnings = dpb_json_get(record, "warnings");
    assert_int_equal(number(record, "energy/energy_mj"), 16000);
    assert_float_equal(real(record, "energy/energy_per_step_mj"), 4000, 1e-9);
    assert_float_equal(real(record, "energy/energy_per_sample_j"), 0.03125, 1e-9);
    assert_true(dpb_json_as_bool(dpb_json_path(record, "energy/throttled"), false));
    assert_non_null(strstr(dpb_json_as_string(dpb_json_at(warnings, 0), ""),
                           "rank 1's device was held back (heat)"));
    dpb_json_free(record);

    record = record_with_meters(meter_json(true, NULL), no_meter_json("rank 0 reads it"));
    assert_int_equal(number(record, "energy/energy_mj"), 8000);
    assert_string_equal(dpb_json_as_string(dpb_json_path(record, "energy/scope"), ""), "machine");
    dpb_json_free(record);

    record = record_with_meters(meter_json(false, NULL), no_meter_json("no permission"));
    assert_int_equal(dpb_json_type(dpb_json_path(record, "energy/energy_mj")), DPB_JSON_NULL);
    assert_string_equal(dpb_json_as_string(dpb_json_path(record, "energy/energy_mj_reason"), ""),
                        "no permission");
    dpb_json_free(record);

    record = record_with_meters(no_meter_json("no counter"), no_meter_json("none here either"));
    assert_int_equal(dpb_json_type(dpb_json_get(record, "energy")), DPB_JSON_NULL);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "energy_reason"), ""),
                        "no counter");
    dpb_json_free(record);
}

/* linux-rdma/perftest#82: steps of an hour, 73 years after the machine started: no figure wraps, is
 * rounded to a double's 53 bits, or is negative. */
static void test_a_long_run_on_an_old_machine(void **state)
{
    const int64_t begin = (INT64_C(1) << 61) + 1, hour = INT64_C(3600000000000);
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    (void)state;
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        int64_t start[STEPS], end[STEPS];
        for (int s = 0; s < STEPS; s++) {
            start[s] = begin + s * (hour + 1);
            end[s] = start[s] + hour + 1;
        }
        dpb_json_set(f.result.ranks[r], "start_ns", dpb_json_ints(start, STEPS));
        dpb_json_set(f.result.ranks[r], "end_ns", dpb_json_ints(end, STEPS));
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    for (size_t s = 0; s < STEPS; s++)
        assert_int_equal(
                dpb_json_as_int(dpb_json_at(dpb_json_get(record, "samples_step_ns"), s), 0),
                hour + 1);
    const double per_s = 128 / 3600.0;
    assert_true(fabs(real(record, "throughput/samples_per_s_total") - per_s) < 1e-9 * per_s);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_numbers(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok");
    /* a step is over when its last rank is, and begins where the one before was over */
    for (size_t s = 0; s < STEPS; s++)
        assert_int_equal(
                dpb_json_as_int(dpb_json_at(dpb_json_get(record, "samples_step_ns"), s), 0),
                (12 + (int64_t)s) * MS);
    assert_true(real(record, "phases/forward_ns") == 2.5e6);
    /* 4 steps of 128 samples in 12 + 13 + 14 + 15 ms */
    assert_true(fabs(real(record, "throughput/samples_per_s_total") - 4 * 128 / 0.054) < 1e-6);
    assert_true(fabs(real(record, "throughput/samples_per_s_per_rank") - 2 * 128 / 0.054) < 1e-6);
    /* both ranks' traced step: 20 ms, compute 10, comm 10 of which 2 under compute */
    assert_int_equal(number(record, "overlap/rank_steps"), 2);
    assert_int_equal(number(record, "overlap/span_ns"), 40 * MS);
    assert_int_equal(number(record, "overlap/compute_ns"), 20 * MS);
    assert_int_equal(number(record, "overlap/exposed_ns"), 16 * MS);
    assert_int_equal(number(record, "overlap/comm_wait_ns"), 2 * MS);
    assert_int_equal(number(record, "overlap/idle_ns"), 4 * MS);
    /* 1 MB moved in 10 - 3 ms; the factor of two ranks is 1 */
    assert_true(fabs(real(record, "communication/busbw_bytes_per_s") - 1e6 / 0.007) < 1e-3);
    assert_true(real(record, "communication/collectives_per_step") == 2);
    assert_true(real(record, "communication/payload_bytes_per_step") == 1e6 + 4096);
    assert_true(real(record, "communication/wire_bytes_per_step") == 1e6 + 2048);
    assert_true(real(record, "communication/wire_bytes_between_per_step") == 5e5);
    assert_true(real(record, "communication/wire_bytes_inside_per_step") == 5e5 + 2048);
    assert_int_equal(number(record, "communication/exchanges_per_step"), 1);
    assert_int_equal(number(record, "communication/exchange_bytes_per_step"), 4096);
    /* the background threads: mean cost, worst punctuality, and a warning about it */
    assert_true(real(record, "progress/cpu_ns_per_collective") == 2e6);
    assert_int_equal(number(record, "progress/wake_late_p50_ns"), 101);
    assert_int_equal(number(record, "progress/wake_late_p99_ns"), 3 * MS);
    assert_int_equal(number(record, "progress/wake_late_max_ns"), 4 * MS + 1);
    assert_int_equal(number(record, "progress/link_late"), 3);
    assert_int_equal(dpb_json_size(dpb_json_get(record, "warnings")), 2);
    assert_true(real(record, "training/loss_first") == 1.0);
    assert_true(real(record, "training/loss_last") == 4.0);
    assert_true(real(record, "training/test_accuracy") == 0.8);
    assert_int_equal(number(record, "memory/measured_bytes"), 1001);
    assert_int_equal(number(record, "memory/predicted/activations"),
                     f.memory.part_bytes[DPB_MEMORY_ACTIVATIONS]);
    assert_true(fabs(real(record, "trace/overhead_ratio") - 24 / 13.5) < 1e-12);
    assert_true(dpb_json_as_bool(dpb_json_get(record, "emulated"), false));
    assert_false(dpb_json_as_bool(dpb_json_path(record, "probe/flagged"), true));
    const dpb_json *attempt = dpb_json_at(dpb_json_path(record, "probe/attempts"), 0);
    assert_true(real(attempt, "before_ratio") == 0.97);
    assert_true(real(attempt, "after_ratio") == 0.95);
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", f.folder,
             dpb_json_as_string(dpb_json_path(record, "trace/file"), "?"));
    assert_int_equal(access(path, R_OK), 0);
    dpb_json_free(record);
    close_fixture(&f);
}

/* One rank's comm does not know where its bytes went: then nobody does, and nothing is guessed. */
static void test_unknown_levels(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    dpb_json_set(f.result.ranks[1], "traced_between_bytes", dpb_json_null());
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    static const char *const keys[] = {"wire_bytes_inside_per_step", "wire_bytes_between_per_step"};
    for (int i = 0; i < 2; i++) {
        const dpb_json *communication = dpb_json_get(record, "communication");
        char reason[64];
        snprintf(reason, sizeof(reason), "%s_reason", keys[i]);
        assert_int_equal(dpb_json_type(dpb_json_get(communication, keys[i])), DPB_JSON_NULL);
        assert_non_null(strstr(dpb_json_as_string(dpb_json_get(communication, reason), ""),
                               "does not tell"));
    }
    assert_true(real(record, "communication/wire_bytes_per_step") == 1e6 + 2048);
    dpb_json_free(record);
    close_fixture(&f);
}

/* Every rank has 64 samples and the losses 64 l(1), 64 l(2), ..., so that the global mean of step s
 * is l(s). */
static void set_losses(struct fixture *f, size_t steps, double (*loss)(size_t step))
{
    for (int r = 0; r < 2; r++) {
        dpb_json *losses = dpb_json_array(), *samples = dpb_json_array();
        for (size_t s = 1; s <= steps; s++) {
            dpb_json_append(losses, dpb_json_real(64 * loss(s)));
            dpb_json_append(samples, dpb_json_int(64));
        }
        dpb_json_set(f->result.ranks[r], "loss_sum", losses);
        dpb_json_set(f->result.ranks[r], "samples", samples);
    }
}

static double loss_is_step(size_t step)
{
    return (double)step;
}

static double loss_breaks(size_t step)
{
    return step == 3 ? INFINITY : (double)step;
}

static double curve_at(const dpb_json *record, const char *path, size_t index)
{
    return dpb_json_as_real(dpb_json_at(dpb_json_path(record, path), index), NAN);
}

static void test_loss_curve(void **state)
{
    (void)state;
    static const struct {
        size_t steps, points;
        double first_step, first_loss, second_step, second_loss, last_loss;
    } cases[] = {
            {4, 4, 1, 1, 2, 2, 4},           /* few steps: one by one */
            {100, 100, 1, 1, 2, 2, 100},     /* just as many */
            {150, 100, 1, 1, 3, 2.5, 149.5}, /* stretches of one and two in turn */
            {1000, 100, 10, 5.5, 20, 15.5, 995.5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        set_losses(&f, cases[i].steps, loss_is_step);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        const char *step = "training/loss_curve/step", *loss = "training/loss_curve/loss";
        assert_int_equal(dpb_json_size(dpb_json_path(record, step)), cases[i].points);
        assert_int_equal(dpb_json_size(dpb_json_path(record, loss)), cases[i].points);
        assert_true(curve_at(record, step, 0) == cases[i].first_step);
        assert_true(curve_at(record, loss, 0) == cases[i].first_loss);
        assert_true(curve_at(record, step, 1) == cases[i].second_step);
        assert_true(curve_at(record, loss, 1) == cases[i].second_loss);
        assert_true(curve_at(record, step, cases[i].points - 1) == (double)cases[i].steps);
        assert_true(curve_at(record, loss, cases[i].points - 1) == cases[i].last_loss);
        dpb_json_free(record);
        close_fixture(&f);
    }
}

static void test_loss_curve_has_finite_points_only(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    set_losses(&f, 5, loss_breaks);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "invalid");
    assert_false(dpb_json_as_bool(dpb_json_path(record, "verified/loss_finite"), true));
    assert_int_equal(dpb_json_size(dpb_json_path(record, "training/loss_curve/step")), 4);
    assert_int_equal(dpb_json_size(dpb_json_path(record, "training/loss_curve/loss")), 4);
    assert_true(curve_at(record, "training/loss_curve/step", 2) == 4);
    assert_true(curve_at(record, "training/loss_curve/loss", 2) == 4);
    dpb_json_free(record);
    close_fixture(&f);
}

/* What was not checked is not said to be right, and what there is not is not 0. */
static void test_one_rank_verifies_nothing(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    dpb_json_free(f.result.ranks[1]);
    f.result.rank_count = 1;
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok");
    const dpb_json *verified = dpb_json_get(record, "verified");
    assert_int_equal(dpb_json_type(dpb_json_get(verified, "replicas_identical")), DPB_JSON_NULL);
    assert_int_equal(dpb_json_type(dpb_json_get(verified, "comm_self_check")), DPB_JSON_NULL);
    assert_true(dpb_json_as_bool(dpb_json_get(verified, "loss_finite"), false));
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_without_a_link_nothing_is_late(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        dpb_json *comm = dpb_json_object();
        dpb_json_set_bool(comm, "emulated", false);
        dpb_json_set(f.result.ranks[r], "comm", comm);
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_true(dpb_json_as_bool(dpb_json_path(record, "verified/replicas_identical"), false));
    assert_true(dpb_json_as_bool(dpb_json_path(record, "verified/comm_self_check"), false));
    assert_true(real(record, "progress/cpu_ns_per_collective") == 2e6);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "progress/wake_late_p99_ns")),
                     DPB_JSON_NULL);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "progress/link_late")), DPB_JSON_NULL);
    assert_int_equal(dpb_json_size(dpb_json_get(record, "warnings")), 0);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_a_loss_that_is_not_finite_is_invalid(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, NAN);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "invalid");
    assert_int_equal(dpb_json_size(dpb_json_get(record, "samples_step_ns")), 0);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "throughput")), DPB_JSON_NULL);
    assert_non_null(dpb_json_get(record, "throughput_reason"));
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_replicas_that_differ_are_invalid(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 1.0);
    dpb_json_set_string(f.result.ranks[1], "param_hash", "00fe");
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "invalid");
    assert_non_null(strstr(dpb_json_as_string(dpb_json_get(record, "reason"), ""), "replicas"));
    dpb_json_free(record);
    close_fixture(&f);
}

/* But for a strategy that lets them, between synchronisations: nothing is claimed then. */
static void test_replicas_that_may_differ(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 1.0);
    dpb_json_set_string(f.result.ranks[1], "param_hash", "00fe");
    for (int r = 0; r < 2; r++)
        dpb_json_set_bool(f.result.ranks[r], "in_sync", false);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok");
    assert_int_equal(dpb_json_type(dpb_json_path(record, "verified/replicas_identical")),
                     DPB_JSON_NULL);
    assert_non_null(dpb_json_path(record, "verified/replicas_identical_reason"));
    dpb_json_free(record);
    close_fixture(&f);
}

/* A launch that failed has no numbers: null with the reason, never 0. */
static void test_failure_has_no_numbers(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 1.0);
    dpb_json_free(f.result.ranks[1]);
    f.result.ranks[1] = NULL;
    snprintf(f.result.reason, sizeof(f.result.reason), "rank 1 (pid 7) was killed by signal 9");
    f.outcome.status = DPB_ERR_RANK_FAILED;
    f.attempt = (struct dpb_attempt){0.9, 0.5, 0.5, NAN};
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "failed");
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "throughput_reason"), ""),
                        f.result.reason);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "throughput")), DPB_JSON_NULL);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "progress_reason"), ""),
                        f.result.reason);
    assert_true(dpb_json_as_bool(dpb_json_path(record, "probe/flagged"), false));
    assert_true(dpb_json_size(dpb_json_get(record, "warnings")) >= 1);
    dpb_json_free(record);
    close_fixture(&f);
}

/* What was not launched has a prediction, and no measurement. */
static void test_a_cell_that_does_not_fit_is_skipped(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 1.0);
    for (int r = 0; r < 2; r++)
        dpb_json_free(f.result.ranks[r]);
    f.result.rank_count = 0;
    snprintf(f.result.reason, sizeof(f.result.reason), "memory: 2 ranks need 3 GiB");
    f.outcome.status = DPB_ERR_NO_MEMORY;
    f.outcome.skipped = true;
    f.outcome.attempt_count = 0;
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "skipped");
    assert_string_equal(dpb_json_as_string(dpb_json_get(record, "reason"), ""), f.result.reason);
    assert_int_equal(number(record, "memory/predicted_bytes"), f.memory.rank_bytes);
    assert_int_equal(number(record, "memory/predicted_total_bytes"), f.memory.total_bytes);
    assert_int_equal(number(record, "memory/limit_bytes"), 1 << 30);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "memory/measured_bytes")), DPB_JSON_NULL);
    dpb_json_free(record);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_numbers),
            cmocka_unit_test(test_a_long_run_on_an_old_machine),
            cmocka_unit_test(test_unknown_levels),
            cmocka_unit_test(test_emulated_bf16),
            cmocka_unit_test(test_energy),
            cmocka_unit_test(test_loss_curve),
            cmocka_unit_test(test_loss_curve_has_finite_points_only),
            cmocka_unit_test(test_one_rank_verifies_nothing),
            cmocka_unit_test(test_without_a_link_nothing_is_late),
            cmocka_unit_test(test_a_loss_that_is_not_finite_is_invalid),
            cmocka_unit_test(test_replicas_that_differ_are_invalid),
            cmocka_unit_test(test_replicas_that_may_differ),
            cmocka_unit_test(test_failure_has_no_numbers),
            cmocka_unit_test(test_a_cell_that_does_not_fit_is_skipped),
    };
    return DPB_RUN_TESTS(tests);
}
