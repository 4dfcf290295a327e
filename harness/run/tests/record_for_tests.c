#include "record_for_tests.h"

#include <math.h>
#include <unistd.h>

#include "dpb_test.h"
#include "dpb_trace.h"
#include "registry_for_tests.h"

/* When each rank was through with step s, in ms after they started together. They take turns at
 * being last, and go on at once: the last rank's ends lie 12, 13, 14 and 15 ms apart, while the
 * longest step of any rank takes 12, 15, 17 and 19. The traced step is written down below. */
static const int64_t end_ms[2][STEPS] = {{10, 25, 35, 54}, {12, 22, 39, 50}};

dpb_json *rank_result(int r, double loss)
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

void open_fixture(struct fixture *f, double loss)
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

void close_fixture(struct fixture *f)
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

int64_t number(const dpb_json *record, const char *path)
{
    return dpb_json_as_int(dpb_json_path(record, path), -1);
}

double real(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}
