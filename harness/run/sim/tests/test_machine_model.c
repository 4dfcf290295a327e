#include "dpb_test.h"

#include <math.h>

#include "dpb_machine_model.h"

#define GIB (1024.0 * 1024 * 1024)

static void find(const char *name, struct dpb_machine *machine, struct dpb_machine_model *model)
{
    assert_int_equal(dpb_machine_find(name, machine), DPB_OK);
    assert_int_equal(dpb_machine_model_init(machine, true, model), DPB_OK);
}

static double busbw(const char *name, int ranks, double bytes, enum dpb_network_origin origin)
{
    struct dpb_machine machine;
    struct dpb_machine_model model;
    struct dpb_network_time time;

    find(name, &machine, &model);
    assert_int_equal(dpb_network_time(&model.network, DPB_COLL_ALL_REDUCE, ranks, bytes, &time),
                     DPB_OK);
    if (time.origin != origin)
        fail_msg("%s, %d ranks: %s", name, ranks, dpb_network_origin_text(time.origin));
    dpb_machine_model_release(&model);
    dpb_machine_release(&machine);
    return time.busbw_bytes_per_s / 1e9;
}

static void assert_about(double found, double expected, double share)
{
    if (!(fabs(found / expected - 1) <= share))
        fail_msg("%g, not %g", found, expected);
}

static void test_every_machine_makes_a_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < dpb_machine_builtin_count(); i++) {
        struct dpb_machine machine;
        struct dpb_machine_model model;

        find(dpb_machine_builtin_name(i), &machine, &model);
        assert_true(model.rates.flop_per_s[DPB_F32] > 0 && model.rates.bytes_per_s > 0);
        assert_int_equal(model.network.ranks_per_node, machine.accelerators_per_node);
        dpb_machine_model_release(&model);
        dpb_machine_release(&machine);
    }
}

static void test_rates_are_shares_of_peaks(void **state)
{
    struct dpb_machine machine;
    struct dpb_machine_model model;

    (void)state;
    find("dgx-a100", &machine, &model);
    assert_about(model.rates.flop_per_s[DPB_BF16], 0.87 * 312e12, 1e-9);
    assert_about(model.rates.flop_per_s[DPB_F32], 0.87 * 156e12, 1e-9);
    dpb_machine_model_release(&model);
    assert_int_equal(dpb_machine_model_init(&machine, false, &model), DPB_OK);
    assert_about(model.rates.flop_per_s[DPB_F32], 0.87 * 19.5e12, 1e-9);
    dpb_machine_model_release(&model);
    dpb_machine_release(&machine);
}

static void test_dip_of_the_cube_mesh_is_there(void **state)
{
    /* 8 V100 of a DGX-1, 1 GiB: 85.4 GB/s with 4, 37.2 with 5, 45.7 with 6, 134.5 with 8. */
    (void)state;
    assert_about(busbw("dgx-1v", 4, GIB, DPB_ORIGIN_MEASURED), 85.4, 0.02);
    assert_about(busbw("dgx-1v", 5, GIB, DPB_ORIGIN_MEASURED), 37.2, 0.02);
    assert_about(busbw("dgx-1v", 6, GIB, DPB_ORIGIN_MEASURED), 45.7, 0.02);
    assert_about(busbw("dgx-1v", 8, GIB, DPB_ORIGIN_MEASURED), 134.5, 0.02);
}

static void test_clusters_as_measured(void **state)
{
    (void)state;
    assert_about(busbw("aws-p4d", 16, GIB, DPB_ORIGIN_MEASURED), 57.17, 1e-3);
    assert_about(busbw("aws-p4d", 32, GIB, DPB_ORIGIN_MEASURED), 29.61, 1e-3);
    assert_about(busbw("aws-p4d", 64, GIB, DPB_ORIGIN_EXTRAPOLATED), 29.61, 0.1);
    assert_about(busbw("b200-p6", 32, 4 * GIB, DPB_ORIGIN_MEASURED), 375, 0.05);
    assert_about(busbw("h200-p5en", 8, 4 * GIB, DPB_ORIGIN_MEASURED), 473, 0.01);
}

static void test_origins_are_counted(void **state)
{
    struct dpb_machine machine;
    struct dpb_machine_model model;
    double alone_ns, compute_slowdown, slowdown;

    (void)state;
    find("aws-p4d", &machine, &model);
    struct dpb_model_network asked = {.network = &model.network, .ranks = 64};
    const struct dpb_sim_network services = dpb_model_network_services(&asked);
    assert_int_equal(services.price(services.ctx, DPB_COLL_ALL_REDUCE, 1 << 30, &alone_ns,
                                    &compute_slowdown, &slowdown),
                     DPB_OK);
    assert_about(asked.ns_of_origin[DPB_ORIGIN_EXTRAPOLATED], alone_ns, 1e-12);
    assert_about(asked.farthest, 2, 1e-12);
    assert_true(services.exchange_ns(services.ctx, 100) > 0);
    dpb_machine_model_release(&model);
    dpb_machine_release(&machine);
}

static void test_small_talk_inside_a_node_is_not_on_its_network_cards(void **state)
{
    struct dpb_machine machine;
    struct dpb_machine_model model;

    (void)state;
    find("aws-p4d", &machine, &model);
    struct dpb_model_network inside = {.network = &model.network, .ranks = 8};
    struct dpb_model_network across = {.network = &model.network, .ranks = 16};
    struct dpb_sim_network services = dpb_model_network_services(&inside);
    assert_about(services.exchange_ns(services.ctx, 1000), 2 * 3 * 3000 + 8000 / 300.0, 1e-9);
    services = dpb_model_network_services(&across);
    assert_about(services.exchange_ns(services.ctx, 1000), 2 * 4 * 15000 + 16000 / 12.5, 1e-9);
    dpb_machine_model_release(&model);
    dpb_machine_release(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_every_machine_makes_a_model),
            cmocka_unit_test(test_rates_are_shares_of_peaks),
            cmocka_unit_test(test_dip_of_the_cube_mesh_is_there),
            cmocka_unit_test(test_clusters_as_measured),
            cmocka_unit_test(test_origins_are_counted),
            cmocka_unit_test(test_small_talk_inside_a_node_is_not_on_its_network_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
