/* Ranks' results with known numbers -> the record's numbers. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_cell_record.h"
#include "dpb_log.h"
#include "dpb_losses.h"
#include "dpb_trace.h"
#include "registry_for_tests.h"

#define STEPS 4
#define MS    1000000ll

struct fixture {
    struct dpb_plan plan;
    struct dpb_launch_result result;
    dpb_json *host;
    struct dpb_attempt attempt;
    struct dpb_memory memory;
    struct dpb_memory_limits limits;
    struct dpb_cell_outcome outcome;
    char folder[64];
};

/* When each rank was through with step s, in ms after they started together. They take turns at
 * being last, and go on at once: the last rank's ends lie 12, 13, 14 and 15 ms apart, while the
 * longest step of any rank takes 12, 15, 17 and 19. The traced step is written down below. */
static const int64_t end_ms[2][STEPS] = {{10, 25, 35, 54}, {12, 22, 39, 50}};

static dpb_json *rank_result(int r, double loss)
{
    dpb_json *json = dpb_json_object();
    static const char *const phases[] = {"data_ns", "forward_ns", "backward_ns", "sync_ns",
                                         "optimizer_ns"};
    dpb_json *start = dpb_json_array(), *end = dpb_json_array(), *losses = dpb_json_array();
    dpb_json *samples = dpb_json_array();
    for (int s = 0; s < STEPS; s++) {
        dpb_json_append(start, dpb_json_int((1000 + (s == 0 ? 0 : end_ms[r][s - 1])) * MS));
        dpb_json_append(end, dpb_json_int((1000 + end_ms[r][s]) * MS));
        dpb_json_append(losses, dpb_json_real(loss * (s + 1)));
        dpb_json_append(samples, dpb_json_int(64));
    }
    for (int p = 0; p < 5; p++) {
        dpb_json *values = dpb_json_array();
        for (int s = 0; s < STEPS; s++)
            dpb_json_append(values, dpb_json_int((p + 1) * MS + r * MS));
        dpb_json_set(json, phases[p], values);
    }
    const struct dpb_event events[] = {
            {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
            {0, 10 * MS, "conv", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_HOST, (int16_t)r},
            {8 * MS, 18 * MS, "all-reduce", 5, 0, 1000000, DPB_EVENT_COMM, DPB_LANE_COMM,
             (int16_t)r},
            {8 * MS, 11 * MS, "wait", 5, 0, 0, DPB_EVENT_COMM_WAIT, DPB_LANE_COMM, (int16_t)r},
            /* the network's own, inside the other one's time, so that only the sums change */
            {9 * MS, 10 * MS, "bn1.sums", 5, -1, 4096, DPB_EVENT_COMM, DPB_LANE_COMM, (int16_t)r},
    };
    const int64_t traced_start[] = {2000 * MS, 2023 * MS + r * MS};
    const int64_t traced_end[] = {2023 * MS + r * MS, 2048 * MS};
    dpb_json *device = dpb_json_object(), *comm = dpb_json_object();
    dpb_json_set_string(device, "name", "cpu");
    dpb_json_set_bool(comm, "emulated", true);
    dpb_json_set(json, "start_ns", start);
    dpb_json_set(json, "end_ns", end);
    dpb_json_set(json, "loss_sum", losses);
    dpb_json_set(json, "samples", samples);
    dpb_json_set(json, "traced_start_ns", dpb_json_ints(traced_start, 2));
    dpb_json_set(json, "traced_end_ns", dpb_json_ints(traced_end, 2));
    dpb_json_set(json, "events", dpb_events_to_json(events, 5));
    dpb_json_set_int(json, "traced_wire_bytes", 1000000 + 2048);
    dpb_json_set_int(json, "traced_between_bytes", 400000 + 200000 * r);
    dpb_json_set(json, "device", device);
    dpb_json_set(json, "comm", comm);
    dpb_json *stats = dpb_json_object();
    dpb_json_set_int(stats, "collectives", 10);
    dpb_json_set_int(stats, "progress_cpu_ns", (10 + 20 * r) * MS);
    dpb_json_set_int(stats, "wake_late_p50_ns", 100 + r);
    dpb_json_set_int(stats, "wake_late_p99_ns", 3 * MS - r);
    dpb_json_set_int(stats, "wake_late_max_ns", 4 * MS + r);
    dpb_json_set_int(stats, "link_late", 1 + r);
    dpb_json_set(json, "comm_stats", stats);
    dpb_json *exchanges = dpb_json_object();
    dpb_json_set_int(exchanges, "count", 1);
    dpb_json_set_int(exchanges, "payload_bytes", 4096);
    dpb_json_set_real(exchanges, "wire_bytes", 2048);
    dpb_json_set(json, "exchanges", exchanges);
    dpb_json_set(json, "plan", dpb_json_object());
    dpb_json_set(json, "memory", dpb_json_object());
    dpb_json_set(json, "dataset", dpb_json_object());
    dpb_json_set_int(json, "peak_bytes", 1000 + r);
    dpb_json_set_string(json, "param_hash", "00ff");
    dpb_json_set_int(json, "test_correct", 40);
    dpb_json_set_int(json, "test_samples", 50);
    return json;
}

static void open_fixture(struct fixture *f, double loss)
{
    memset(f, 0, sizeof(*f));
    const struct dpb_registry *registry = registry_for_tests();
    struct dpb_settings flags = {0};
    assert_int_equal(dpb_settings_add(&flags, registry->options, "ranks", "2", "--ranks"), DPB_OK);
    struct dpb_plan_input input = {registry, NULL, &flags, false, 2, "t"};
    assert_int_equal(dpb_plan_build(&input, &f->plan), DPB_OK);
    dpb_settings_release(&flags);
    snprintf(f->folder, sizeof(f->folder), "/tmp/dpb-record-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->result.rank_count = 2;
    f->result.ranks = calloc(2, sizeof(*f->result.ranks));
    for (int r = 0; r < 2; r++)
        f->result.ranks[r] = rank_result(r, loss);
    f->host = dpb_json_object();
    dpb_json_set_int(f->host, "cores", 2);
    f->attempt = (struct dpb_attempt){0.97, 0.95, 0.95, 15e6};
    dpb_memory_predict(registry, f->plan.cells[0].config, &f->memory);
    f->limits = (struct dpb_memory_limits){1 << 30, {.free_bytes = INT64_MAX}};
    f->outcome = (struct dpb_cell_outcome){
            .run_id = "t",
            .run_folder = f->folder,
            .registry = registry,
            .plan = &f->plan,
            .memory = &f->memory,
            .memory_limits = &f->limits,
            .result = &f->result,
            .host = f->host,
            .attempts = &f->attempt,
            .attempt_count = 1,
            .probe_limit = 0.85,
    };
}

static void close_fixture(struct fixture *f)
{
    char command[128];
    dpb_plan_release(&f->plan);
    for (int r = 0; r < f->result.rank_count; r++)
        dpb_json_free(f->result.ranks[r]);
    free(f->result.ranks);
    dpb_json_free(f->host);
    snprintf(command, sizeof(command), "rm -r %s", f->folder);
    assert_int_equal(system(command), 0);
}

static int64_t number(const dpb_json *record, const char *path)
{
    return dpb_json_as_int(dpb_json_path(record, path), -1);
}

static double real(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

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

/* ---- several hosts, each with a clock of its own ---- */

#define APART_NS (1000 * 1000 * MS) /* 1000 s */

/* Every instant in a rank's result, by so much. */
static void move_rank(dpb_json *rank, int64_t by_ns)
{
    static const char *const keys[] = {"start_ns", "end_ns", "traced_start_ns", "traced_end_ns"};
    for (int k = 0; k < 4; k++) {
        const dpb_json *old = dpb_json_get(rank, keys[k]);
        dpb_json *moved = dpb_json_array();
        for (size_t i = 0; i < dpb_json_size(old); i++)
            dpb_json_append(moved, dpb_json_int(dpb_json_as_int(dpb_json_at(old, i), 0) + by_ns));
        dpb_json_set(rank, keys[k], moved);
    }
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    assert_int_equal(dpb_events_from_json(dpb_json_get(rank, "events"), &events, &count, &names),
                     DPB_OK);
    for (size_t i = 0; i < count; i++) {
        events[i].start_ns += by_ns;
        events[i].end_ns += by_ns;
    }
    dpb_json_set(rank, "events", dpb_events_to_json(events, count));
    free(events);
    free(names);
}

static void say_clock(dpb_json *rank, const char *host, int64_t offset_ns, int64_t error_ns,
                      int64_t drift_ns)
{
    dpb_json *place = dpb_json_object(), *clock = dpb_json_object();
    dpb_json_set_string(place, "host", host);
    dpb_json_set_string(clock, "domain", host);
    dpb_json_set_int(clock, "offset_ns", offset_ns);
    dpb_json_set_int(clock, "error_ns", error_ns);
    dpb_json_set_int(clock, "drift_ns", drift_ns);
    dpb_json_set(rank, "place", place);
    dpb_json_set(rank, "clock", clock);
}

/* Four ranks, the last two doing what the first two do. */
static void open_four(struct fixture *f)
{
    open_fixture(f, 64.0);
    f->result.ranks = realloc(f->result.ranks, 4 * sizeof(*f->result.ranks));
    assert_non_null(f->result.ranks);
    for (int r = 2; r < 4; r++) {
        struct dpb_event *events = NULL;
        char *names = NULL;
        size_t count = 0;
        f->result.ranks[r] = rank_result(r - 2, 64.0);
        assert_int_equal(dpb_events_from_json(dpb_json_get(f->result.ranks[r], "events"), &events,
                                              &count, &names),
                         DPB_OK);
        for (size_t i = 0; i < count; i++)
            events[i].rank = (int16_t)r;
        dpb_json_set(f->result.ranks[r], "events", dpb_events_to_json(events, count));
        free(events);
        free(names);
    }
    f->result.rank_count = 4;
}

/* All figures of a record, without what says where it was made. */
static char *figures(const dpb_json *record)
{
    static const char *const keys[] = {
            "samples_step_ns", "rank_median_step_ns", "phases",  "throughput",
            "overlap",         "communication",       "waiting", "progress"};
    dpb_json *all = dpb_json_object();
    struct dpb_str text = {0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set(all, keys[i], dpb_json_copy(dpb_json_get(record, keys[i])));
    assert_int_equal(dpb_json_write(all, true, &text), DPB_OK);
    dpb_json_free(all);
    return text.text;
}

static dpb_json *build_four(struct fixture *f, int64_t by_ns, bool says_clocks, int64_t drift_ns)
{
    dpb_json *record = NULL;
    char why[256];
    open_four(f);
    for (int r = 0; r < 4; r++) {
        if (r >= 2)
            move_rank(f->result.ranks[r], by_ns);
        if (says_clocks)
            say_clock(f->result.ranks[r], r < 2 ? "a" : "b", r < 2 ? 0 : -by_ns + 500 * (r - 1),
                      r < 2 ? 0 : 2000 * (r - 1), r < 2 ? 0 : drift_ns);
        else
            dpb_json_set(f->result.ranks[r], "place", dpb_json_object());
    }
    f->result.wall_ns = 1000 * MS;
    assert_int_equal(dpb_cell_record_build(&f->outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    return record;
}

static dpb_json *read_trace(const struct fixture *f, const dpb_json *record)
{
    dpb_json *trace = NULL;
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", f->folder,
             dpb_json_as_string(dpb_json_path(record, "trace/file"), "?"));
    assert_int_equal(dpb_json_read_file(path, &trace), DPB_OK);
    return trace;
}

/* Where the hosts' clocks are 1000 s apart, every figure is what it is on one clock. */
static void test_clocks_of_two_hosts(void **state)
{
    (void)state;
    struct fixture one, two;
    dpb_json *on_one = build_four(&one, 0, false, 0);
    dpb_json *on_two = build_four(&two, APART_NS, true, 30 * 1000);
    /* Hosts' names differ, and nothing else. */
    dpb_json *named = dpb_json_copy(on_two);
    const dpb_json *late = dpb_json_path(on_one, "waiting/late_ranks");
    assert_int_equal(dpb_json_size(late),
                     dpb_json_size(dpb_json_path(on_two, "waiting/late_ranks")));
    dpb_json *waiting = dpb_json_copy(dpb_json_get(on_two, "waiting"));
    dpb_json_set(waiting, "late_ranks", dpb_json_copy(late));
    dpb_json_set(named, "waiting", waiting);
    char *expected = figures(on_one), *got = figures(named);
    assert_string_equal(got, expected);
    free(expected);
    free(got);

    assert_int_equal(dpb_json_type(dpb_json_get(on_one, "clocks")), DPB_JSON_NULL);
    assert_int_equal(number(on_two, "clocks/domains"), 2);
    const dpb_json *other = dpb_json_at(dpb_json_path(on_two, "clocks/ranks"), 3);
    assert_string_equal(dpb_json_as_string(dpb_json_get(other, "host"), ""), "b");
    /* rank 2's estimate is the better one, and is that of both */
    assert_int_equal(number(other, "shift_ns"), -APART_NS + 500);
    assert_int_equal(number(other, "error_ns"), 2000);
    assert_int_equal(number(other, "drift_ns"), 30 * 1000);

    /* In the trace they stand beside each other, and it says how well that is known. */
    dpb_json *trace = read_trace(&two, on_two);
    assert_int_equal(number(trace, "dpbench/host_clocks/domains"), 2);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_path(trace, "dpbench/clock"), ""),
                           "no duration is between two hosts"));
    char path[160];
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    uint64_t lost = 0;
    snprintf(path, sizeof(path), "%s/%s", two.folder,
             dpb_json_as_string(dpb_json_path(on_two, "trace/file"), "?"));
    assert_int_equal(dpb_trace_read(path, &events, &count, &names, &lost), DPB_OK);
    assert_int_equal(count, 20);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(events[i].start_ns - events[i % 5].start_ns,
                         events[i].rank >= 2 ? 500 : 0);
    free(events);
    free(names);
    dpb_json_free(trace);
    dpb_json_free(named);
    dpb_json_free(on_one);
    dpb_json_free(on_two);
    close_fixture(&one);
    close_fixture(&two);
}

/* A host that did not answer: nothing says where its events belong, and no 0 stands for it. */
static void test_clocks_that_are_not_known(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    move_rank(f.result.ranks[1], APART_NS);
    for (int r = 0; r < 2; r++) {
        say_clock(f.result.ranks[r], r ? "b" : "a", 0, 0, 0);
        if (r == 0)
            continue;
        dpb_json *clock = dpb_json_object();
        dpb_json_set_string(clock, "domain", "b");
        dpb_json_set_absent(clock, "offset_ns", "no answer");
        dpb_json_set_absent(clock, "error_ns", "no answer");
        dpb_json_set_absent(clock, "drift_ns", "no answer");
        dpb_json_set(f.result.ranks[r], "clock", clock);
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    static const char *const keys[] = {"shift_ns", "error_ns", "drift_ns"};
    const dpb_json *ranks = dpb_json_path(record, "clocks/ranks");
    for (int k = 0; k < 3; k++) {
        assert_int_equal(number(dpb_json_at(ranks, 0), keys[k]), 0);
        assert_int_equal(dpb_json_type(dpb_json_get(dpb_json_at(ranks, 1), keys[k])),
                         DPB_JSON_NULL);
    }
    dpb_json_free(record);
    close_fixture(&f);
}

/* The same instants taken for those of one clock, as if nobody had asked whose they are: the test
 * above would see it. */
static void test_mixed_clocks_are_seen(void **state)
{
    (void)state;
    struct fixture one, mixed;
    dpb_json *on_one = build_four(&one, 0, false, 0);
    dpb_json *on_mixed = build_four(&mixed, APART_NS, false, 0);
    char *expected = figures(on_one), *got = figures(on_mixed);
    assert_string_not_equal(got, expected);
    assert_true(dpb_json_as_int(dpb_json_at(dpb_json_get(on_mixed, "samples_step_ns"), 0), 0) >=
                APART_NS);
    free(expected);
    free(got);
    dpb_json_free(on_one);
    dpb_json_free(on_mixed);
    close_fixture(&one);
    close_fixture(&mixed);
}

static bool has_warning(const dpb_json *record, const char *text)
{
    const dpb_json *warnings = dpb_json_get(record, "warnings");
    for (size_t i = 0; i < dpb_json_size(warnings); i++)
        if (strstr(dpb_json_as_string(dpb_json_at(warnings, i), ""), text))
            return true;
    return false;
}

/* 30 us in a launch of 1 s is a quartz; 3 ms is a clock whose seconds are others, once and for both
 * ranks of the host. Below the error of the estimates it is not known. */
static void test_drift(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = build_four(&f, APART_NS, true, 30 * 1000);
    assert_false(has_warning(record, "ran"));
    dpb_json_free(record);
    close_fixture(&f);
    record = build_four(&f, APART_NS, true, -3 * MS);
    assert_true(has_warning(record, "the clock of rank 2's host (b) ran -3.000 ms off"));
    assert_false(has_warning(record, "rank 3's host"));
    dpb_json_free(record);
    close_fixture(&f);
}

static void trace_device(struct fixture *f, int r, int64_t zero_time);

/* Rank 1 comes late to both buckets: its kernels are 3 and 1 ms shorter than rank 0's. On clocks of
 * their own it is the same. */
static void test_late_ranks(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        for (int r = 0; r < 2; r++) {
            trace_device(&f, r, 0);
            if (apart)
                say_clock(f.result.ranks[r], r ? "b" : "a", 0, 0, 0);
        }
        if (apart)
            move_rank(f.result.ranks[1], APART_NS);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_int_equal(number(record, "waiting/collectives"), 2);
        const dpb_json *late = dpb_json_path(record, "waiting/late_ranks");
        assert_int_equal(dpb_json_size(late), 1);
        assert_int_equal(number(dpb_json_at(late, 0), "rank"), 1);
        assert_string_equal(dpb_json_as_string(dpb_json_get(dpb_json_at(late, 0), "host"), ""),
                            apart ? "b" : "");
        assert_true(real(dpb_json_at(late, 0), "last_share") == 1);
        assert_int_equal(number(dpb_json_at(late, 0), "others_waited_ns"), 4 * MS);
        const dpb_json *counts = dpb_json_path(record, "waiting/wait_counts");
        static const int64_t expected[2][6] = {{0, 0, 0, 2, 0, 0}, {2, 0, 0, 0, 0, 0}};
        for (size_t r = 0; r < 2; r++)
            for (size_t c = 0; c < 6; c++)
                assert_int_equal(dpb_json_as_int(dpb_json_at(dpb_json_at(counts, r), c), -1),
                                 expected[r][c]);
        dpb_json_free(record);
        close_fixture(&f);
    }
}

/* Where the comm tells of waiting, that counts, and not what moving took. */
static void test_late_ranks_of_a_comm_that_tells(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        /* rank 0 moves for longer; it is rank 1 that did not wait */
        const struct dpb_event events[] = {
                {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
                {8 * MS, 12 * MS + r * MS, "all-reduce", 5, 0, 1000, DPB_EVENT_COMM, DPB_LANE_COMM,
                 (int16_t)r},
                {8 * MS, 10 * MS, "wait", 5, 0, 0, DPB_EVENT_COMM_WAIT, DPB_LANE_COMM, (int16_t)r},
        };
        dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(events, r == 0 ? 3 : 2));
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    const dpb_json *late = dpb_json_path(record, "waiting/late_ranks");
    assert_int_equal(dpb_json_size(late), 1);
    assert_int_equal(number(dpb_json_at(late, 0), "rank"), 1);
    assert_true(real(dpb_json_at(late, 0), "last_share") == 1);
    assert_int_equal(number(dpb_json_at(late, 0), "others_waited_ns"), 2 * MS);
    dpb_json_free(record);
    close_fixture(&f);
}

/* What rank `r` of a device traced: one step of 20 ms, on the device until 22 ms; of the bucket's
 * kernel rank 0 waits 3 ms for rank 1, of the second one rank 1 waits 1 ms for rank 0. */
static void trace_device(struct fixture *f, int r, int64_t zero_time)
{
    const int64_t late = r * 3 * MS;
    const struct dpb_event events[] = {
            {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
            {0, 2 * MS, "conv", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_HOST, (int16_t)r},
            {1 * MS, 10 * MS, "conv: k", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_DEVICE, (int16_t)r},
            {5 * MS + late, 12 * MS, "nccl", 5, 0, 0, DPB_EVENT_COMM, DPB_LANE_DEVICE_COMM,
             (int16_t)r},
            {13 * MS, 15 * MS + (1 - r) * MS, "nccl", 5, 1, 0, DPB_EVENT_COMM, DPB_LANE_DEVICE_COMM,
             (int16_t)r},
            {18 * MS, 19 * MS, "memset", 5, -1, 64, DPB_EVENT_COPY, DPB_LANE_COPY, (int16_t)r},
            {20 * MS, 22 * MS, "sgd: k", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_DEVICE, (int16_t)r},
    };
    const struct dpb_losses losses = {.kernels = 1000, .zero_time = zero_time};
    dpb_json_set(f->result.ranks[r], "events", dpb_events_to_json(events, 7));
    dpb_json *recorder = dpb_losses_to_json(&losses), *clocks = dpb_json_object();
    dpb_json_set_int(clocks, "cupti_ns", INT64_C(1800000000000000001) + r);
    dpb_json_set(recorder, "clocks_before", clocks);
    dpb_json_set(recorder, "clocks_after", dpb_json_copy(clocks));
    dpb_json_set(f->result.ranks[r], "recorder", recorder);
}

static void check_device_clocks(const struct fixture *f, const dpb_json *record)
{
    dpb_json *trace = NULL;
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", f->folder,
             dpb_json_as_string(dpb_json_path(record, "trace/file"), "?"));
    assert_int_equal(dpb_json_read_file(path, &trace), DPB_OK);
    const dpb_json *clocks = dpb_json_path(trace, "dpbench/device_clocks");
    assert_int_equal(dpb_json_size(clocks), 2);
    assert_true(number(dpb_json_at(clocks, 1), "clocks_before/cupti_ns") ==
                INT64_C(1800000000000000002));
    assert_int_equal(number(dpb_json_at(clocks, 1), "rank"), 1);
    dpb_json_free(trace);
}

/* As MPI has it: no event says when the peers came. */
static void test_wait_that_is_not_known(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++) {
        const struct dpb_event events[] = {
                {0, 20 * MS, "step", 5, -1, 0, DPB_EVENT_STEP, DPB_LANE_HOST, (int16_t)r},
                {0, 10 * MS, "conv", 5, -1, 0, DPB_EVENT_COMPUTE, DPB_LANE_HOST, (int16_t)r},
                {8 * MS, 18 * MS, "all-reduce", 5, 0, 1000000, DPB_EVENT_COMM, DPB_LANE_COMM,
                 (int16_t)r},
        };
        dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(events, 3));
    }
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(number(record, "overlap/exposed_ns"), 2 * 8 * MS);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "overlap/comm_wait_ns")), DPB_JSON_NULL);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_device(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++)
        trace_device(&f, r, 1);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(number(record, "overlap/span_ns"), 2 * 22 * MS);
    assert_int_equal(number(record, "overlap/compute_ns"), 2 * 11 * MS);
    assert_int_equal(number(record, "overlap/comm_ns"), (7 + 3) * MS + (4 + 2) * MS);
    assert_int_equal(number(record, "overlap/overlap_ns"), 5 * MS + 2 * MS);
    assert_int_equal(number(record, "overlap/launch_ns"), 2 * MS);
    assert_int_equal(number(record, "overlap/copy_ns"), 2 * MS);
    /* when peers came is not known, but who waited least is: 2 x (4 + 2) ms of moving */
    assert_int_equal(dpb_json_type(dpb_json_path(record, "overlap/comm_wait_ns")), DPB_JSON_NULL);
    assert_true(fabs(real(record, "communication/busbw_bytes_per_s") - 2 * 1e6 / 0.012) < 1e-3);
    assert_true(real(record, "communication/collectives_per_step") == 2 + 1);
    assert_int_equal(dpb_json_type(dpb_json_path(record, "communication/payload_bytes_per_step")),
                     DPB_JSON_NULL);
    assert_int_equal(number(record, "trace/device/kernels"), 2000);
    check_device_clocks(&f, record);
    assert_int_equal(number(record, "trace/device/zero_time"), 2);
    dpb_json_free(record);
    close_fixture(&f);
}

static void test_untraced_has_the_reason(void **state)
{
    (void)state;
    static const char *const steps[] = {"5", "0"};
    static const char *const words[] = {"the launch for it failed", "--trace-steps 0"};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        dpb_json *record = NULL;
        open_fixture(&f, 64.0);
        for (int r = 0; r < 2; r++)
            dpb_json_set(f.result.ranks[r], "events", dpb_events_to_json(NULL, 0));
        assert_int_equal(dpb_config_set(f.plan.cells[0].config, "trace-steps", steps[i]), DPB_OK);
        assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
        assert_int_equal(dpb_json_type(dpb_json_get(record, "overlap")), DPB_JSON_NULL);
        assert_non_null(
                strstr(dpb_json_as_string(dpb_json_get(record, "overlap_reason"), ""), words[i]));
        dpb_json_free(record);
        close_fixture(&f);
    }
}

/* Above 1 kernel in 1000 without times there is no figure, but the reason. */
static void test_losses_refuse_figures(void **state)
{
    (void)state;
    struct fixture f;
    dpb_json *record = NULL;
    char why[256];
    open_fixture(&f, 64.0);
    for (int r = 0; r < 2; r++)
        trace_device(&f, r, 1 + r);
    assert_int_equal(dpb_cell_record_build(&f.outcome, &record), DPB_OK);
    assert_int_equal(dpb_record_check(record, why), DPB_OK);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "overlap")), DPB_JSON_NULL);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_get(record, "overlap_reason"), ""),
                           "3 without times"));
    assert_int_equal(dpb_json_type(dpb_json_get(record, "communication")), DPB_JSON_NULL);
    assert_int_equal(number(record, "trace/device/zero_time"), 3);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_at(dpb_json_get(record, "warnings"), 0), ""),
                           "no figures of overlap: the trace lacks too much"));
    dpb_json_free(record);
    close_fixture(&f);
}

/* What was not checked is not said to be right, and what there is not is not 0. */
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
            cmocka_unit_test(test_unknown_levels),
            cmocka_unit_test(test_clocks_of_two_hosts),
            cmocka_unit_test(test_clocks_that_are_not_known),
            cmocka_unit_test(test_mixed_clocks_are_seen),
            cmocka_unit_test(test_drift),
            cmocka_unit_test(test_late_ranks),
            cmocka_unit_test(test_late_ranks_of_a_comm_that_tells),
            cmocka_unit_test(test_wait_that_is_not_known),
            cmocka_unit_test(test_device),
            cmocka_unit_test(test_untraced_has_the_reason),
            cmocka_unit_test(test_losses_refuse_figures),
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
