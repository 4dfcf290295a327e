/* dpb_world.h: which ranks there are, and where each of them is: the one place that decides rank,
 * node and local rank. What it decided is printed before a run on several hosts, and recorded. */
#ifndef DPB_WORLD_H
#define DPB_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_WORLD_HOST_BYTES 256
#define DPB_WORLD_RANKS_MAX  4096

/* Where ranks may be: a host and how many of them. */
struct dpb_world_host {
    char name[DPB_WORLD_HOST_BYTES];
    int slots;
};

struct dpb_world_hosts {
    struct dpb_world_host *items;
    size_t count;
    int slots; /* of all */
};

/* --hosts "node1:4,node2:4,[fe80::1]:2". A host without a number has one slot. A host named twice
 * is one host with both's slots, at its first place, and a warning says so (Open MPI merges
 * silently, MPICH has crashed); some with and some without a number: a warning. Empty names, names
 * that no host can have, slots below 1, text after them: DPB_ERR_USAGE, logged with the entry. */
dpb_status dpb_world_hosts_parse(const char *text, struct dpb_world_hosts *hosts);

/* --hostfile: a line each, as Open MPI ("node1 slots=4 max_slots=8"), MPICH ("node1:4") and
 * plain lists ("node1", "node1") write it; '#' begins a comment. Same rules; messages name file
 * and line. What cannot be read is as dpb_file_read_most() says; DPB_ERR_USAGE when it holds no
 * host. */
dpb_status dpb_world_hosts_read(const char *path, struct dpb_world_hosts *hosts);

void dpb_world_hosts_release(struct dpb_world_hosts *hosts);

/* One rank's place. */
struct dpb_world_place {
    int node, local_rank;
    const char *host; /* of the node; the world's */
};

struct dpb_world {
    int ranks, nodes;
    int ranks_per_node;            /* 0: nodes have different numbers of ranks */
    struct dpb_world_place *place; /* one per rank; ranks of a node are consecutive */
    struct dpb_world_host *node;   /* its name, and how many ranks it has here */
};

/* Ranks 0.. fill the hosts in their order, each to its slots; with `ranks_per_node` > 0 each host
 * takes so many (and must have the slots). DPB_ERR_UNAVAILABLE, logged, when there are fewer slots
 * than ranks, with both numbers. */
dpb_status dpb_world_map(const struct dpb_world_hosts *hosts, int ranks, int ranks_per_node,
                         struct dpb_world *world);

/* `nodes` nodes after one another, each with as many ranks as it has slots. */
dpb_status dpb_world_from_nodes(const struct dpb_world_host *node, int nodes,
                                struct dpb_world *world);

/* What each started process says about itself. */
struct dpb_world_claim {
    int rank, size; /* as its launcher told it; -1: it was not told */
    int local_rank; /* -1: not told */
    long pid;
    char host[DPB_WORLD_HOST_BYTES]; /* its full name */
    char machine[40];                /* boot id: the same for all containers of a machine */
    char network[24];                /* network name space: two "hosts" of one machine differ */
    char time[24];                   /* time name space: with `machine`, which clock it reads */
    char build[40];                  /* of its binary: hash of the file */
    char settings[20];               /* hash of what it was asked to do; "" before it knows */
};

/* The world that `count` processes make up, claim[i] being that of the i-th to come; ranks are as
 * claimed. `expected`: from dpb_world_map(), or NULL where somebody else placed the ranks. All
 * that cannot be, each logged with the ranks it is about, DPB_ERR_UNAVAILABLE (exit 3): every
 * process is rank 0 of 1 (silent singletons), sizes that differ from `count`, a rank that is
 * missing or claimed twice, builds or settings that differ (the minority is listed, up to 8 ranks
 * and how many more), ranks of one host that are not together on it, more ranks on a host than it
 * was to have. Only warned about: hosts of different machines with one name (they stay two nodes),
 * names that are the same up to the first dot, hosts that are one machine, a host that answers to
 * another name than it was called by, ranks that are on other hosts than was asked for, a local
 * rank that is not the one that the launcher told. A node is a host's name on one machine and in
 * one network name space. */
dpb_status dpb_world_check(const struct dpb_world_claim *claim, int count,
                           const struct dpb_world *expected, struct dpb_world *world);

/* One line per node: "node 0  node1.example  ranks 0-3". For the log, and the record:
 * {"ranks", "nodes", "ranks_per_node", "hosts": [{"name", "first_rank", "ranks"}]}. */
void dpb_world_print(const struct dpb_world *world);
/* The same where there are several nodes, and only when a rank is elsewhere than the last time. */
void dpb_world_announce(const struct dpb_world *world);
dpb_json *dpb_world_json(const struct dpb_world *world);

void dpb_world_release(struct dpb_world *world);

#ifdef __cplusplus
}
#endif
#endif
