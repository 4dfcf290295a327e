/* dpb_channel.h: JSON messages between the launcher and a rank, over a stream socket.
 *
 * A message is its length in bytes (8 bytes, host order: both ends are one machine) and JSON text.
 */
#ifndef DPB_CHANNEL_H
#define DPB_CHANNEL_H

#include <stddef.h>

#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_MESSAGE_BYTES_MAX (1ull << 30)

/* Send one message, blocking; a peer that is gone is DPB_ERR_RANK_FAILED (no SIGPIPE), not logged.
 */
dpb_status dpb_message_send(int fd, const dpb_json *message);

/* Receive one message, blocking. DPB_END when the peer closed before one began. */
dpb_status dpb_message_receive(int fd, dpb_json **message);

/* Non-blocking side: feed what the socket has into `inbox`. DPB_OK when more may come, DPB_END when
 * the peer closed. */
dpb_status dpb_inbox_fill(int fd, struct dpb_str *inbox);
/* Take the next whole message out of `inbox`: DPB_OK, or DPB_PENDING when none is whole yet, or
 * DPB_ERR_CORRUPT. */
dpb_status dpb_inbox_take(struct dpb_str *inbox, dpb_json **message);

#ifdef __cplusplus
}
#endif
#endif
