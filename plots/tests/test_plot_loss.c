/* The plot of training losses: what is drawn, what is only said, what is left alone. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_test.h"
#include "gnuplot.h"
#include "plot.h"
#include "sample_sweep.h"

#define POINTS 3

struct trained {
    int ranks;
    int64_t steps;
    double accuracy; /* below 0: not evaluated */
    bool curve;
};

struct fixture {
    struct dpb_records records;
    struct dpb_summary summary;
    struct dpb_plot_list list;
};

/* A third of the steps each: losses 2.3, 1.1, and 0.25 plus an eighth per rank. */
static dpb_json *training_of(const struct trained *trained)
{
    const double losses[POINTS] = {2.3, 1.1, 0.25 + 0.125 * trained->ranks};
    dpb_json *training = dpb_json_object(), *curve = dpb_json_object(), *steps = dpb_json_array();
    int i;

    for (i = 1; i <= POINTS; i++)
        dpb_json_append(steps, dpb_json_int(i * trained->steps / POINTS));
    dpb_json_set(curve, "step", steps);
    dpb_json_set(curve, "loss", dpb_json_reals(losses, POINTS));
    dpb_json_set_int(training, "steps", trained->steps);
    if (trained->accuracy >= 0)
        dpb_json_set_real(training, "test_accuracy", trained->accuracy);
    else
        dpb_json_set_absent(training, "test_accuracy", "not evaluated");
    if (trained->curve)
        dpb_json_set(training, "loss_curve", curve);
    else
        dpb_json_free(curve);
    return training;
}

static void add_cell(struct fixture *f, const struct trained *trained, const char *status)
{
    struct sample_record sample = sample_cell((int64_t)f->records.count, trained->ranks, 10);

    sample.scaling = "strong";
    sample.status = status;
    sample_add(&f->records, &sample);
    dpb_json_set(f->records.items[f->records.count - 1], "training", training_of(trained));
}

static void plot(struct fixture *f)
{
    dpb_summary_compute(&f->records, &f->summary);
    dpb_plots_loss(&f->summary, &f->list);
    assert_false(f->list.failed);
}

static void release(struct fixture *f)
{
    dpb_plot_list_release(&f->list);
    dpb_summary_release(&f->summary);
    dpb_records_release(&f->records);
}

static void expect_in(const struct dpb_str *text, const char *wanted)
{
    if (!text->text || !strstr(text->text, wanted))
        fail_msg("\"%s\" is not in:\n%s", wanted, text->text ? text->text : "");
}

static void test_curves_are_overlaid(void **state)
{
    static const struct trained cells[] = {
            {1, 936, 0.9034, true}, {2, 936, 0.9031, true}, {4, 936, -1, true}};
    struct fixture f = {0};
    struct dpb_plot *made;
    char folder[] = "/tmp/dpb-loss-XXXXXX", path[64], *gnuplot;
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++)
        add_cell(&f, &cells[i], "ok");
    plot(&f);
    assert_int_equal(f.list.count, 1);
    made = &f.list.items[0];
    assert_string_equal(made->name, "loss");
    assert_int_equal(made->points, 3 * POINTS);
    expect_in(&made->data, "# last_step loss\n# '1 rank, test accuracy 90.34 %'\n"
                           "312 2.3 \n624 1.1 \n936 0.375 \n\n\n"
                           "# '2 ranks, test accuracy 90.31 %'\n");
    expect_in(&made->data, "# '4 ranks'\n312 2.3 \n624 1.1 \n936 0.75 \n");
    expect_in(&made->script, "set title 'Training loss against step (strong scaling, measured)'");
    expect_in(&made->script, "set xrange [0:936]");
    expect_in(&made->script, "index 1 using 1:2 with lines lw 4.0 dt 1 lc rgb '#EE6677' title "
                             "'2 ranks, test accuracy 90.31 %', \\\n");
    expect_in(&made->script, "title '4 ranks'\n");
    /* 5 % of 2.3 - 0.375 above; from 0, since 0.375 is nearly there */
    expect_in(&made->script, "set yrange [0:2.39625]");
    expect_in(&made->caption, "one line per cell");
    gnuplot = dpb_gnuplot_find(NULL);
    if (gnuplot) {
        assert_non_null(mkdtemp(folder));
        assert_int_equal(dpb_plots_draw(&f.list, folder, gnuplot), DPB_OK);
        assert_true(made->drawn);
        for (i = 0; i < 3; i++) {
            static const char *const endings[] = {"dat", "gp", "svg"};

            snprintf(path, sizeof(path), "%s/loss.%s", folder, endings[i]);
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(rmdir(folder), 0);
    }
    free(gnuplot);
    release(&f);
}

/* Fifty steps, or an accuracy; nothing is drawn or said of less, or of what is not ok. */
static void test_short_runs_have_no_plot(void **state)
{
    static const struct {
        struct trained cell;
        const char *status;
        size_t plots;
    } cases[] = {
            {{1, 49, -1, true}, "ok", 0},
            {{1, 50, -1, true}, "ok", 1},
            {{1, 26, 0.8, true}, "ok", 1},
            {{1, 936, 0.9, true}, "invalid", 0},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f = {0};

        add_cell(&f, &cases[i].cell, cases[i].status);
        plot(&f);
        assert_int_equal(f.list.count, cases[i].plots);
        release(&f);
    }
}

static void test_records_without_a_curve_are_named(void **state)
{
    static const struct trained old = {1, 936, 0.9, false};
    struct fixture f = {0};

    (void)state;
    add_cell(&f, &old, "ok");
    plot(&f);
    assert_int_equal(f.list.count, 1);
    assert_int_equal(f.list.items[0].points, 0);
    expect_in(&f.list.items[0].caption, "the records have no loss curve");
    release(&f);
}

static void test_more_lines_than_can_be_told_apart(void **state)
{
    struct fixture f = {0};
    int ranks;

    (void)state;
    for (ranks = 1; ranks <= 8; ranks++)
        add_cell(&f, &(struct trained){ranks, 100, -1, true}, "ok");
    plot(&f);
    assert_int_equal(f.list.items[0].points, 8 * POINTS);
    /* the eighth has the first one's colour, and dashes */
    expect_in(&f.list.items[0].script, "index 7 using 1:2 with lines lw 1.5 dt 2 lc rgb '#4477AA'");
    dpb_plot_list_release(&f.list);
    dpb_summary_release(&f.summary);
    add_cell(&f, &(struct trained){9, 100, -1, true}, "ok");
    plot(&f);
    assert_int_equal(f.list.count, 1);
    assert_int_equal(f.list.items[0].points, 0);
    expect_in(&f.list.items[0].caption, "more cells than lines");
    release(&f);
}

/* Records are files that anybody may have edited. */
static void test_damaged_curves(void **state)
{
    static const struct trained cell = {1, 90, -1, true};
    struct fixture f = {0};
    dpb_json *training = dpb_json_object(), *curve = dpb_json_object(), *steps = dpb_json_array();
    const double losses[] = {0.5};

    (void)state;
    add_cell(&f, &cell, "ok");
    dpb_json_append(steps, dpb_json_int(10));
    dpb_json_append(steps, dpb_json_string("x"));
    dpb_json_set(curve, "step", steps);
    dpb_json_set(curve, "loss", dpb_json_reals(losses, 1));
    dpb_json_set_int(training, "steps", 90);
    dpb_json_set(training, "loss_curve", curve);
    dpb_json_set(f.records.items[0], "training", training);
    plot(&f);
    assert_int_equal(f.list.items[0].points, 1);
    expect_in(&f.list.items[0].script, "set yrange [0.45:0.55]");
    release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_curves_are_overlaid),
            cmocka_unit_test(test_short_runs_have_no_plot),
            cmocka_unit_test(test_records_without_a_curve_are_named),
            cmocka_unit_test(test_more_lines_than_can_be_told_apart),
            cmocka_unit_test(test_damaged_curves),
    };

    return DPB_RUN_TESTS(tests);
}
