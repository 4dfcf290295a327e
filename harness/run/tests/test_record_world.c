/* What a record says of how many ranks share a node, on one host and on several. */
#include "dpb_cell_record.h"

#include <string.h>

#include "dpb_experiment.h"
#include "dpb_test.h"
#include "registry_for_tests.h"

/* Its address says that somebody else started the ranks; nothing looks into it. */
static const char somebody;
#define CREW ((const dpb_crew *)&somebody)

#define UNEVEN                                                                                     \
    "{\"ranks\": 4, \"nodes\": 2, \"ranks_per_node\": null, \"hosts\": [{\"ranks\": 3}, "          \
    "{\"ranks\": 1}]}"
#define EVEN     "{\"ranks\": 4, \"nodes\": 2, \"ranks_per_node\": 2}"
#define ONE_HOST "{\"ranks\": 4, \"nodes\": 1, \"ranks_per_node\": 4}"

/* Of 4 ranks: with --ranks-per-node `given`, or without (NULL). */
static dpb_json *config_json(const char *given, const dpb_crew *crew, const char *world_text)
{
    const struct dpb_registry *registry = registry_for_tests();
    const struct dpb_assignment options[] = {{"ranks", "4", "test"},
                                             {"ranks-per-node", given, "test"}};
    dpb_json *world = NULL, *json;
    dpb_config *config;
    char why[256];

    assert_int_equal(dpb_config_new(registry->options, options, given ? 2 : 1, false, &config),
                     DPB_OK);
    assert_int_equal(dpb_experiment_resolve(config, registry, 4, 4), DPB_OK);
    if (world_text)
        assert_int_equal(dpb_json_parse(world_text, strlen(world_text), &world, why), DPB_OK);
    json = dpb_cell_record_config(config, crew, world);
    assert_true(dpb_json_ok(json));
    dpb_json_free(world);
    dpb_config_free(config);
    return json;
}

static void assert_each(const char *given, const dpb_crew *crew, const char *world, int64_t each)
{
    dpb_json *json = config_json(given, crew, world);

    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "ranks_per_node"), -1), each);
    assert_null(dpb_json_get(json, "ranks_per_node_reason"));
    dpb_json_free(json);
}

static void assert_none(const char *given, const char *world, const char *reason)
{
    dpb_json *json = config_json(given, CREW, world);

    assert_int_equal(dpb_json_type(dpb_json_get(json, "ranks_per_node")), DPB_JSON_NULL);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "ranks_per_node_reason"), ""),
                        reason);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "ranks"), -1), 4);
    dpb_json_free(json);
}

static void test_one_host_has_what_was_asked_for(void **state)
{
    (void)state;
    assert_each(NULL, NULL, NULL, 4);
    assert_each("2", NULL, NULL, 2);
    assert_each(NULL, CREW, ONE_HOST, 4);
    assert_each("2", CREW, ONE_HOST, 2); /* nodes that are emulated */
}

static void test_several_nodes_have_what_was_found(void **state)
{
    (void)state;
    assert_each(NULL, CREW, EVEN, 2);
    assert_none(NULL, UNEVEN, "nodes have different numbers of ranks: world.hosts");
}

static void test_ranks_that_did_not_come(void **state)
{
    (void)state;
    assert_none(NULL, NULL, "the ranks were not all there");
    assert_each("2", CREW, NULL, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_host_has_what_was_asked_for),
            cmocka_unit_test(test_several_nodes_have_what_was_found),
            cmocka_unit_test(test_ranks_that_did_not_come),
    };

    return DPB_RUN_TESTS(tests);
}
