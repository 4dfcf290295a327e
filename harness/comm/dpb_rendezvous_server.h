/* dpb_rendezvous_server.h: where ranks of several machines meet: the launcher's side of
 * rendezvous.h over TCP.
 *
 * A thread of the launcher's process: it gathers every rank's part of an exchange and gives all to
 * all, keeps the first failure, what ranks note, and who has closed. A rank whose connection ends
 * without a close is a failure at once: its name, host and last call are in the text. It serves any
 * number of rendezvous of the same ranks one after the other, each with its own greeting. */
#ifndef DPB_RENDEZVOUS_SERVER_H
#define DPB_RENDEZVOUS_SERVER_H

#include <stdint.h>

#include "dpb_net.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_RENDEZVOUS_ROLE "rendezvous" /* of dpb_net_connect() */

typedef struct dpb_rendezvous_server dpb_rendezvous_server;

/* For `ranks` ranks. No port of its own: the launcher's door admits, and hands over. */
dpb_status dpb_rendezvous_server_open(int ranks, dpb_rendezvous_server **server);
/* Take over a connection that greeted as DPB_RENDEZVOUS_ROLE, from `from`. From any thread. */
dpb_status dpb_rendezvous_server_give(dpb_rendezvous_server *server, int fd,
                                      const struct dpb_net_address *from);
/* Ends all connections; ranks that still wait get DPB_ERR_RANK_FAILED. NULL is fine. */
void dpb_rendezvous_server_close(dpb_rendezvous_server *server);

#ifdef __cplusplus
}
#endif
#endif
