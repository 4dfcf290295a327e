/* worker_tcp.h (private): a rank that a crew started calls the launcher back over TCP.
 *
 * A thread of its own listens to the launcher: it answers clock questions at once, says four times
 * a second where the rank is, and ends the process when the launcher is gone, silent, or asks for
 * it, so that nothing is left on a host that was cut off. */
#ifndef DPB_RUN_WORKER_TCP_H
#define DPB_RUN_WORKER_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_board.h"
#include "dpb_channel.h"
#include "dpb_json.h"
#include "dpb_net.h"
#include "dpb_status.h"

struct worker_tcp;

/* Connect, and say who this is (dpb_claim.h). `line` is what beats tell; borrowed. Logged. */
dpb_status worker_tcp_open(const struct dpb_net_address *to, const struct dpb_net_token *token,
                           const struct dpb_board_line *line, struct worker_tcp **tcp);

/* Wait for the job; caller owns it. */
dpb_json *worker_tcp_job(struct worker_tcp *tcp);
/* After which the launcher is given up; DPB_LAUNCHER_SILENCE_NS at first. */
void worker_tcp_set_silence(struct worker_tcp *tcp, int64_t silence_ns);

/* Send one or more whole frames, blocking. From any thread. DPB_ERR_RANK_FAILED: nobody hears. */
dpb_status worker_tcp_send(struct worker_tcp *tcp, const struct dpb_str *frames);

/* All was said, and with DPB_OK all parts of this rank are closed. Wait until the launcher lets it
 * go, and close; after a failure only for some seconds: false when the thread is still there, and
 * the process must end now. */
bool worker_tcp_close(struct worker_tcp *tcp, dpb_status st);

#endif
