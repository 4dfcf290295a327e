/* launch_gather.h (private): the processes that a crew has started come to the launcher's door,
 * prove that they know the token, and say who they are; when all are there they get their ranks. */
#ifndef DPB_RUN_LAUNCH_GATHER_H
#define DPB_RUN_LAUNCH_GATHER_H

#include "dpb_net.h"
#include "dpb_rendezvous_server.h"
#include "dpb_world.h"
#include "launch.h"

/* A process that is in, but has no rank yet. */
struct launch_guest {
    int fd;
    struct dpb_str inbox;
    int64_t heard_ns;
    bool has_claimed;
    struct dpb_world_claim claim;
    char error[LAUNCH_TEXT_BYTES]; /* that it sent instead; "": none */
};

struct launch_gathering {
    dpb_net_door *door;
    dpb_rendezvous_server *server;
    const struct dpb_world *expected; /* NULL: somebody else placed the ranks */
    int64_t next_beat_ns;
    struct launch_guest *guest; /* room for one per rank */
    int guests;
};

/* Let in who waits at the door: ranks become guests while `gathering->guest` has room, those that
 * want to meet the others go to the server. Also for later, when nobody more is expected. */
dpb_status launch_admit(struct launch *l, struct launch_gathering *gathering);

/* Until all are there. Then every rank has its channel, pid and claim (claim[rank]), and `world` is
 * what they make up. Logged: DPB_ERR_TIMEOUT with those that did not come, DPB_ERR_RANK_FAILED when
 * one or the crew's launcher ended before, DPB_ERR_INTERRUPTED, what dpb_world_check() refuses. */
dpb_status launch_gather(struct launch *l, struct launch_gathering *gathering,
                         struct dpb_world_claim *claim, struct dpb_world *world);

void launch_gathering_release(struct launch_gathering *gathering);

#endif
