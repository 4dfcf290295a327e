#include "dpb_test.h"

#include <math.h>
#include <stdbool.h>

#include "dpb_coll_cost.h"

/* ---- data/collective_times.csv: see data/README.md ---- */

struct vector {
    char line[512];
    const char *name, *param;
    int ranks, per_node, nodes;
    double bytes, time_s;
    struct dpb_coll_link inside, between;
};

/* A field, which may be empty; the rest of the line. */
static char *field(char **rest)
{
    char *begin = *rest;

    while (**rest && **rest != ',' && **rest != '\n')
        (*rest)++;
    if (**rest)
        *(*rest)++ = '\0';
    return begin;
}

static bool vector_read(FILE *file, struct vector *vector)
{
    char *rest = vector->line;

    if (!fgets(vector->line, sizeof(vector->line), file))
        return false;
    vector->name = field(&rest);
    vector->ranks = atoi(field(&rest));
    vector->per_node = atoi(field(&rest));
    vector->nodes = atoi(field(&rest));
    vector->bytes = strtod(field(&rest), NULL);
    vector->inside.latency_s = strtod(field(&rest), NULL);
    vector->inside.bytes_per_s = strtod(field(&rest), NULL);
    vector->between.latency_s = strtod(field(&rest), NULL);
    vector->between.bytes_per_s = strtod(field(&rest), NULL);
    vector->param = field(&rest);
    vector->time_s = strtod(field(&rest), NULL);
    return true;
}

static double param(const struct vector *vector, const char *name)
{
    const char *at = strstr(vector->param, name);

    assert_non_null(at);
    return strtod(at + strlen(name) + 1, NULL);
}

static double cost(const struct vector *v)
{
    const struct {
        const char *name;
        double (*cost)(int ranks, double bytes, struct dpb_coll_link link);
    } plain[] = {
            {"ring_ar", dpb_cost_ring},
            {"ring_rs", dpb_cost_ring_half},
            {"recursive_doubling_ar", dpb_cost_recursive_doubling},
            {"rabenseifner_ar", dpb_cost_rabenseifner},
            {"sharp_ar", dpb_cost_sharp},
            {"nvls_ar", dpb_cost_nvls},
    };

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(v->name, plain[i].name) == 0)
            return plain[i].cost(v->ranks, v->bytes, v->inside);
    if (strcmp(v->name, "tree_ar") == 0)
        return dpb_cost_tree(v->ranks, v->bytes, v->inside, param(v, "chunk"));
    if (strcmp(v->name, "dbtree_ar") == 0)
        return dpb_cost_double_tree(v->ranks, v->bytes, v->inside, param(v, "chunk"));
    if (strcmp(v->name, "hier_ar") == 0)
        return dpb_cost_hierarchical(v->per_node, v->nodes, v->bytes, v->inside, v->between,
                                     param(v, "overlap"));
    if (strcmp(v->name, "flat_ring_multi") == 0)
        return dpb_cost_flat_ring(v->per_node, v->nodes, v->bytes, v->inside, v->between,
                                  (int)param(v, "nics"));
    fail_msg("no such formula: %s", v->name);
    return NAN;
}

static void test_every_vector(void **state)
{
    FILE *file = fopen(TEST_DATA "/collective_times.csv", "r");
    struct vector vector;
    int count = 0;

    (void)state;
    assert_non_null(file);
    assert_true(vector_read(file, &vector)); /* the heading */
    while (vector_read(file, &vector)) {
        const double found = cost(&vector);
        if (!(fabs(found - vector.time_s) <= 1e-6 * vector.time_s))
            fail_msg("%s of %d ranks, %g bytes: %.9g s, not %.9g", vector.name, vector.ranks,
                     vector.bytes, found, vector.time_s);
        count++;
    }
    fclose(file);
    assert_int_equal(count, 456);
}

static void test_no_ring_beats_the_lower_bound(void **state)
{
    const struct dpb_coll_link link = {1e-6, 1e11};

    (void)state;
    for (int ranks = 2; ranks <= 64; ranks++) {
        const double bound = dpb_cost_lower_bound(ranks, 1e8, link.bytes_per_s);
        assert_true(dpb_cost_ring(ranks, 1e8, link) >= bound);
        assert_true(dpb_cost_recursive_doubling(ranks, 1e8, link) >= bound);
        assert_true(dpb_cost_rabenseifner(ranks, 1e8, link) >= bound * 0.999999);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_every_vector),
            cmocka_unit_test(test_no_ring_beats_the_lower_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
