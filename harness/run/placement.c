#include "dpb_placement.h"

#include <stdio.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"

/* What has two levels: ranks of a node, and nodes. */
static const struct {
    const char *option, *value;
} two_levels[] = {
        {"algorithm", "hierarchical"},
        {"mpi-algorithm", "hierarchical"},
        {"hierarchical", "on"},
        {"torus", "on"},
};

int dpb_placement_asked(const dpb_config *config, int64_t ranks_per_node)
{
    return dpb_config_is_explicit(config, "ranks-per-node") ? (int)ranks_per_node : 0;
}

/* "node1 2, node2 1" */
static void list_nodes(const struct dpb_world *world, struct dpb_str *list)
{
    const int listed = world->nodes < 8 ? world->nodes : 8;
    for (int n = 0; n < listed; n++)
        dpb_str_appendf(list, "%s%s %d", n > 0 ? ", " : "", world->node[n].name,
                        world->node[n].slots);
    if (world->nodes > listed)
        dpb_str_appendf(list, " and %d more", world->nodes - listed);
}

static dpb_status refuse_uneven(const struct dpb_world *world, const char *option,
                                const char *value)
{
    struct dpb_str list = {0};
    list_nodes(world, &list);
    dpb_error(
            "--%s %s needs as many ranks on every node, and %d ranks are to be on %d nodes so: %s",
            option, value, world->ranks, world->nodes, list.text ? list.text : "");
    dpb_log_hint("give the hosts as many slots each, or --ranks-per-node, or leave --%s out",
                 option);
    dpb_str_release(&list);
    return DPB_ERR_USAGE;
}

static dpb_status check_uneven(const struct dpb_world *world, const dpb_config *config)
{
    dpb_status st = DPB_OK;
    for (size_t i = 0; st == DPB_OK && i < sizeof(two_levels) / sizeof(two_levels[0]); i++) {
        struct dpb_str value = {0};
        if (dpb_config_is_explicit(config, two_levels[i].option) &&
            dpb_config_text(config, two_levels[i].option, &value) == DPB_OK &&
            strcmp(value.text, two_levels[i].value) == 0)
            st = refuse_uneven(world, two_levels[i].option, value.text);
        dpb_str_release(&value);
    }
    return st;
}

dpb_status dpb_placement_check(const struct dpb_world *world, int asked)
{
    struct dpb_str list = {0};
    if (asked == 0 || world->nodes < 2 || world->ranks_per_node == asked)
        return DPB_OK;
    list_nodes(world, &list);
    dpb_error("--ranks-per-node %d cannot take effect: %d ranks are on %d nodes so: %s", asked,
              world->ranks, world->nodes, list.text ? list.text : "");
    dpb_log_hint("leave it out, or have them started so: --hosts, or an option of the launcher "
                 "(srun --ntasks-per-node, mpirun --map-by ppr:%d:node)",
                 asked);
    dpb_str_release(&list);
    return DPB_ERR_UNAVAILABLE;
}

dpb_status dpb_placement_find(const dpb_crew *crew, dpb_config *config, int ranks, int asked,
                              struct dpb_world *world)
{
    char text[32];
    DPB_TRY(dpb_crew_map(crew, ranks, asked, world));
    DPB_TRY(dpb_placement_check(world, asked));
    if (world->nodes > 1 && world->ranks_per_node == 0)
        return check_uneven(world, config);
    if (asked > 0 || world->ranks_per_node == 0)
        return DPB_OK;
    snprintf(text, sizeof(text), "%d", world->ranks_per_node);
    return dpb_config_set(config, "ranks-per-node", text);
}
