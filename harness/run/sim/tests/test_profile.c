/* Profiles: from events to layers, to a file and back, to a schedule. */
#include "dpb_test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_cell_record.h"
#include "dpb_log.h"
#include "dpb_profile.h"
#include "dpb_simulate.h"
#include "dpb_workloads.h"
#include "sim_registry.h"

#define PATH "test_profile.json"

static const struct dpb_model *mnist_cnn(void)
{
    return dpb_workload_mnist_cnn_ops.model(NULL);
}

static struct dpb_event event(enum dpb_event_kind kind, const char *name, int64_t start_ns,
                              int64_t end_ns)
{
    return (struct dpb_event){.start_ns = start_ns,
                              .end_ns = end_ns,
                              .name = name,
                              .step = 1,
                              .bucket = -1,
                              .kind = (uint8_t)kind,
                              .lane = DPB_LANE_HOST};
}

/* One step of 1000 ns with gaps; operators of two layers, a loss, an optimizer. */
static size_t one_step(const char *first, const char *last, struct dpb_event *events)
{
    static char fwd[2][64], bwd[2][64], add[64];
    size_t count = 0;

    snprintf(fwd[0], sizeof(fwd[0]), "%s.fwd", first);
    snprintf(fwd[1], sizeof(fwd[1]), "%s.fwd-stats", last);
    snprintf(add, sizeof(add), "%s.add", first);
    snprintf(bwd[0], sizeof(bwd[0]), "%s.bwd-weights", last);
    snprintf(bwd[1], sizeof(bwd[1]), "%s.bwd-weights", first);
    events[count++] = event(DPB_EVENT_STEP, "step", 0, 1000);
    events[count++] = event(DPB_EVENT_DATA, "data", 0, 10);
    events[count++] = event(DPB_EVENT_FORWARD, "forward", 20, 400);
    events[count++] = event(DPB_EVENT_COMPUTE, fwd[0], 30, 130);  /* 120 with its gap */
    events[count++] = event(DPB_EVENT_COMPUTE, fwd[1], 150, 250); /* 120 */
    events[count++] = event(DPB_EVENT_COMPUTE, "loss.fwd", 260, 300);
    events[count++] = event(DPB_EVENT_COMPUTE, bwd[0], 400, 600);
    events[count++] = event(DPB_EVENT_COMPUTE, bwd[1], 610, 700);
    events[count++] = event(DPB_EVENT_COMPUTE, add, 700, 800); /* of the pass under way */
    events[count++] = event(DPB_EVENT_COMPUTE, "sgd", 800, 950);
    return count;
}

static dpb_json *record(int64_t batch, int64_t timed_ns, double overhead)
{
    dpb_json *json = dpb_json_object(), *trace = dpb_json_object();

    dpb_json_set_int(json, "ranks", 1);
    dpb_json_set_int(json, "batch_per_rank", batch);
    dpb_json_set(json, "samples_step_ns", dpb_json_ints(&timed_ns, 1));
    dpb_json_set_real(trace, "overhead_ratio", overhead);
    dpb_json_set(json, "trace", trace);
    return json;
}

static double sum_of(const struct dpb_profile *profile, int b)
{
    double sum = profile->data_ns[b] + profile->optimizer_ns[b] + profile->rest_ns[b];

    for (int l = 0; l < profile->layer_count; l++)
        sum += profile->layers[l].ns[0][b] + profile->layers[l].ns[1][b];
    return sum;
}

static void about(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-6 * fmax(1, fabs(expected))))
        fail_msg("%.9g, not %.9g", found, expected);
}

/* Two batches: `add` to every time of the second. */
static void make(struct dpb_profile *profile)
{
    const struct dpb_model *model = mnist_cnn();
    struct dpb_event events[16];
    const size_t count =
            one_step(model->layers[0].name, model->layers[model->layer_count - 1].name, events);
    dpb_json *small = record(8, 500, 2), *large = record(16, 1000, 1);

    assert_int_equal(dpb_profile_new(model, "mnist-cnn", profile), DPB_OK);
    profile->device = strdup("cpu");
    profile->optimizer = strdup("sgd");
    profile->is_cpu = true;
    assert_int_equal(dpb_profile_add(profile, small, events, count, 0), DPB_OK);
    assert_int_equal(dpb_profile_add(profile, large, events, count, 0), DPB_OK);
    dpb_json_free(small);
    dpb_json_free(large);
}

static void test_a_step_is_cut_into_layers(void **state)
{
    struct dpb_profile profile;

    (void)state;
    make(&profile);
    const int last = profile.layer_count - 1;
    /* the second batch has a recorder that costs nothing */
    about(profile.layers[0].ns[DPB_PASS_FORWARD][1], 120);
    about(profile.layers[last].ns[DPB_PASS_FORWARD][1], 120 + 50); /* and the loss */
    about(profile.layers[last].ns[DPB_PASS_BACKWARD][1], 300);
    about(profile.layers[0].ns[DPB_PASS_BACKWARD][1], 200);
    about(profile.data_ns[1], 10);
    about(profile.optimizer_ns[1], 150);
    about(profile.rest_ns[1], 50);
    about(sum_of(&profile, 1), 1000);
    /* the first one's took half of a traced step */
    about(profile.layers[0].ns[DPB_PASS_FORWARD][0], 60);
    about(sum_of(&profile, 0), 500);
    assert_int_equal(profile.unmapped_count, 1);
    assert_string_equal(profile.unmapped[0], "loss.fwd");
    dpb_profile_release(&profile);
}

static void test_what_is_no_measurement_is_refused(void **state)
{
    struct dpb_profile profile;
    struct dpb_event events[16];
    const size_t count = one_step("conv1", "fc", events);
    dpb_json *again = record(16, 1000, 1), *later = record(32, 1000, 1);

    (void)state;
    make(&profile);
    assert_int_equal(dpb_profile_add(&profile, again, events, count, 0), DPB_ERR_NO_DATA);
    assert_int_equal(dpb_profile_add(&profile, later, events, count, 1), DPB_ERR_NO_DATA);
    assert_int_equal(dpb_profile_add(&profile, later, events + 1, count - 1, 0), DPB_ERR_NO_DATA);
    dpb_json_free(again);
    dpb_json_free(later);
    dpb_profile_release(&profile);
}

static void test_written_and_read_back(void **state)
{
    struct dpb_profile profile, back;

    (void)state;
    make(&profile);
    dpb_json *json = dpb_profile_to_json(&profile, NULL);
    assert_int_equal(dpb_json_write_file(json, PATH), DPB_OK);
    assert_int_equal(dpb_profile_read(PATH, &back), DPB_OK);
    assert_string_equal(back.workload, "mnist-cnn");
    assert_int_equal(back.layer_count, profile.layer_count);
    assert_int_equal(back.precision, profile.precision);
    assert_true(back.is_cpu);
    for (int b = 0; b < 2; b++) {
        assert_int_equal(back.batch[b], profile.batch[b]);
        about(sum_of(&back, b), sum_of(&profile, b));
        about(back.step_ns[b], profile.step_ns[b]);
    }
    dpb_profile_release(&back);
    dpb_json_set_string(json, "schema", "dpb.profile/2");
    assert_int_equal(dpb_json_write_file(json, PATH), DPB_OK);
    assert_int_equal(dpb_profile_read(PATH, &back), DPB_ERR_CORRUPT);
    dpb_json_free(json);
    unlink(PATH);
    dpb_profile_release(&profile);
}

static void test_other_batches(void **state)
{
    struct dpb_profile profile = {.batch_count = 3, .batch = {4, 8, 16}};
    const double line[] = {14, 18, 26}; /* 10 + batch */

    (void)state;
    about(dpb_profile_at(&profile, line, 8), 18);
    about(dpb_profile_at(&profile, line, 12), 22);
    about(dpb_profile_at(&profile, line, 32), 42);
    assert_int_equal(dpb_profile_origin_of(&profile, 8), DPB_PROFILE_MEASURED);
    assert_int_equal(dpb_profile_origin_of(&profile, 12), DPB_PROFILE_FITTED);
    assert_int_equal(dpb_profile_origin_of(&profile, 32), DPB_PROFILE_EXTRAPOLATED);
    profile.batch_count = 1; /* in proportion */
    about(dpb_profile_at(&profile, line, 8), 28);
    assert_int_equal(dpb_profile_origin_of(&profile, 8), DPB_PROFILE_EXTRAPOLATED);
}

static void test_a_schedule_has_the_profiles_times(void **state)
{
    struct dpb_profile profile;
    struct dpb_schedule schedule;

    (void)state;
    make(&profile);
    assert_int_equal(dpb_schedule_from_profile(mnist_cnn(), "mnist-cnn", &profile, 16, &schedule),
                     DPB_OK);
    about(dpb_schedule_forward_ns(&schedule), 290);
    about(dpb_schedule_backward_ns(&schedule), 500);
    about(schedule.data_ns, 60);
    dpb_schedule_release(&schedule);
    assert_int_equal(dpb_schedule_from_profile(dpb_workload_mnist_mlp_ops.model(NULL), "mnist-mlp",
                                               &profile, 16, &schedule),
                     DPB_ERR_USAGE);
    dpb_profile_release(&profile);
}

/* ---- replayed ---- */

static double replay_ns(const char *settings)
{
    char text[512];
    dpb_status st;
    dpb_json *sections = NULL;

    snprintf(text, sizeof(text), "workload=mnist-cnn profile=%s steps=4 warmup=3 trace-steps=0 %s",
             PATH, settings);
    dpb_config *config = sim_cell_of(text, &st);
    assert_non_null(config);
    const struct dpb_simulation simulation = {.registry = sim_registry(),
                                              .config = config,
                                              .folder = ".",
                                              .trace_file = "none",
                                              .title = "test"};
    assert_int_equal(dpb_simulator_here.run(&simulation, &sections), DPB_OK);
    const double ns = dpb_cell_sections_median_ns(sections);
    dpb_json_free(sections);
    dpb_config_free(config);
    return ns;
}

static void test_the_measured_step_comes_back(void **state)
{
    struct dpb_profile profile;

    (void)state;
    make(&profile);
    dpb_json *json = dpb_profile_to_json(&profile, NULL);
    assert_int_equal(dpb_json_write_file(json, PATH), DPB_OK);
    dpb_json_free(json);
    dpb_profile_release(&profile);
    const double one_ns = replay_ns("strategy=none ranks=1 batch-per-rank=16");

    if (!(fabs(one_ns - 1000) <= 2))
        fail_msg("%g ns", one_ns);
    assert_true(fabs(replay_ns("strategy=none ranks=1 batch-per-rank=8") - 500) <= 2);
    /* without a machine the network is ideal */
    assert_true(fabs(replay_ns("strategy=none ranks=64 batch-per-rank=16") - one_ns) <= 2);
    assert_true(replay_ns("ranks=8 batch-per-rank=16 machine=dgx-a100") > 10 * one_ns);
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_a_step_is_cut_into_layers),
            cmocka_unit_test(test_what_is_no_measurement_is_refused),
            cmocka_unit_test(test_written_and_read_back),
            cmocka_unit_test(test_other_batches),
            cmocka_unit_test(test_a_schedule_has_the_profiles_times),
            cmocka_unit_test(test_the_measured_step_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
