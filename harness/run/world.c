#include "dpb_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

static dpb_status world_new(int ranks, int nodes, struct dpb_world *world)
{
    *world = (struct dpb_world){.ranks = ranks, .nodes = nodes};
    world->place = calloc((size_t)ranks, sizeof(*world->place));
    world->node = calloc((size_t)nodes, sizeof(*world->node));
    if (world->place && world->node)
        return DPB_OK;
    dpb_world_release(world);
    return DPB_ERR_NO_MEMORY;
}

/* Every rank's place, from how many ranks each node has (node[].slots). */
static void fill_places(struct dpb_world *world)
{
    world->ranks_per_node = world->node[0].slots;
    for (int node = 0, rank = 0; node < world->nodes; node++) {
        if (world->node[node].slots != world->ranks_per_node)
            world->ranks_per_node = 0;
        for (int local = 0; local < world->node[node].slots; local++)
            world->place[rank++] = (struct dpb_world_place){node, local, world->node[node].name};
    }
}

dpb_status dpb_world_from_nodes(const struct dpb_world_host *node, int nodes,
                                struct dpb_world *world)
{
    int ranks = 0;
    for (int i = 0; i < nodes; i++)
        ranks += node[i].slots;
    DPB_TRY(world_new(ranks, nodes, world));
    memcpy(world->node, node, (size_t)nodes * sizeof(*node));
    fill_places(world);
    return DPB_OK;
}

/* How many of `left` ranks this host gets; 0, logged, when it cannot have its share. */
static int take(const struct dpb_world_host *host, int left, int ranks_per_node)
{
    const int wanted = ranks_per_node > 0 ? ranks_per_node : host->slots;
    const int taken = wanted < left ? wanted : left;
    if (taken <= host->slots)
        return taken;
    dpb_error("host \"%s\" has %d slots, too few for %d ranks per node", host->name, host->slots,
              ranks_per_node);
    dpb_log_hint("raise its slots (%s:%d), or give a smaller --ranks-per-node", host->name,
                 ranks_per_node);
    return 0;
}

dpb_status dpb_world_map(const struct dpb_world_hosts *hosts, int ranks, int ranks_per_node,
                         struct dpb_world *world)
{
    struct dpb_world_host *node = calloc(hosts->count + 1, sizeof(*node));
    dpb_status st = node ? DPB_OK : DPB_ERR_NO_MEMORY;
    int nodes = 0, left = ranks;
    for (size_t i = 0; st == DPB_OK && left > 0 && i < hosts->count; i++) {
        const int taken = take(&hosts->items[i], left, ranks_per_node);
        if (taken == 0)
            st = DPB_ERR_UNAVAILABLE;
        node[nodes] = hosts->items[i];
        node[nodes++].slots = taken;
        left -= taken;
    }
    if (st == DPB_OK && left > 0) {
        dpb_error("%d ranks do not fit on %zu hosts, which take %d", ranks, hosts->count,
                  ranks - left);
        dpb_log_hint("name more hosts or slots (node1:4), or use fewer --ranks");
        st = DPB_ERR_UNAVAILABLE;
    }
    if (st == DPB_OK)
        st = dpb_world_from_nodes(node, nodes, world);
    free(node);
    return st;
}

static void ranks_text(const struct dpb_world *world, int node, int *first, char *text,
                       size_t text_bytes)
{
    const int last = *first + world->node[node].slots - 1;
    if (last == *first)
        snprintf(text, text_bytes, "rank %d", *first);
    else
        snprintf(text, text_bytes, "ranks %d-%d", *first, last);
    *first = last + 1;
}

void dpb_world_print(const struct dpb_world *world)
{
    for (int node = 0, first = 0; node < world->nodes; node++) {
        char text[48];
        ranks_text(world, node, &first, text, sizeof(text));
        dpb_info("node %d  %s  %s", node, world->node[node].name, text);
    }
}

/* Are the first ranks of `whole` where those of `part` are? Names count up to their first dot. */
static bool is_part_of(const struct dpb_world *part, const struct dpb_world *whole)
{
    if (part->ranks > whole->ranks)
        return false;
    for (int r = 0; r < part->ranks; r++) {
        const struct dpb_world_place *a = &part->place[r], *b = &whole->place[r];
        const size_t length = strcspn(a->host, ".");
        if (a->node != b->node || length != strcspn(b->host, ".") ||
            strncasecmp(a->host, b->host, length) != 0)
            return false;
    }
    return true;
}

void dpb_world_announce(const struct dpb_world *world)
{
    static struct dpb_world last;
    if (world->nodes < 2 || is_part_of(world, &last))
        return;
    dpb_world_print(world);
    dpb_world_release(&last);
    if (dpb_world_from_nodes(world->node, world->nodes, &last) < 0)
        last = (struct dpb_world){0}; /* it is printed again, then */
}

dpb_json *dpb_world_json(const struct dpb_world *world)
{
    dpb_json *json = dpb_json_object(), *hosts = dpb_json_array();
    dpb_json_set_int(json, "ranks", world->ranks);
    dpb_json_set_int(json, "nodes", world->nodes);
    if (world->ranks_per_node > 0)
        dpb_json_set_int(json, "ranks_per_node", world->ranks_per_node);
    else
        dpb_json_set_absent(json, "ranks_per_node", "nodes have different numbers of ranks");
    for (int node = 0, first = 0; node < world->nodes; node++) {
        dpb_json *host = dpb_json_object();
        dpb_json_set_string(host, "name", world->node[node].name);
        dpb_json_set_int(host, "first_rank", first);
        dpb_json_set_int(host, "ranks", world->node[node].slots);
        dpb_json_append(hosts, host);
        first += world->node[node].slots;
    }
    dpb_json_set(json, "hosts", hosts);
    return json;
}

void dpb_world_release(struct dpb_world *world)
{
    free(world->place);
    free(world->node);
    *world = (struct dpb_world){0};
}
