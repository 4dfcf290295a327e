/* dpb_channel.h: what launcher and rank say to each other, over a stream socket.
 *
 * A frame is one word, its kind in the highest byte and its length in bytes in the others, and then
 * the bytes; numbers are in host order: both ends are the same binary, which is checked before a
 * rank gets its job. A message is a frame of JSON text. Ranks on other hosts have no memory in
 * common with the launcher, and use the other kinds too. */
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

enum dpb_frame_kind {
    DPB_FRAME_MESSAGE, /* JSON */
    DPB_FRAME_BEAT,    /* "I am there"; of a rank: struct dpb_beat, where it is */
    DPB_FRAME_CLOCK,   /* struct dpb_clock_reading: the launcher asks, the rank answers at once */
    DPB_FRAME_BULK,    /* large results: int64_t, where they begin in the bulk memory, and bytes */
    DPB_FRAME_CLOSED,  /* of a rank: all its parts are closed, nothing can crash any more */
    DPB_FRAME_LEAVE,   /* to a rank: it may end */
    DPB_FRAME_COUNT
};

/* A rank's line of the board (dpb_board.h). */
struct dpb_beat {
    int64_t changed_ns; /* on its clock; 0: not begun */
    int64_t step;
    int32_t phase, bucket;
};

struct dpb_clock_reading {
    int64_t question;
    int64_t now_ns; /* 0 in the question */
};

/* One frame of an inbox; `bytes` lie in the inbox. */
struct dpb_frame {
    enum dpb_frame_kind kind;
    const char *bytes;
    size_t count;
};

/* Append one frame to `out`; as dpb_str's functions, out of memory is remembered there. */
void dpb_frame_append(struct dpb_str *out, enum dpb_frame_kind kind, const void *bytes,
                      size_t count);
/* Append a message; DPB_ERR_NO_MEMORY. */
dpb_status dpb_message_append(struct dpb_str *out, const dpb_json *message);

/* Send bytes, blocking; a peer that is gone is DPB_ERR_RANK_FAILED (no SIGPIPE), not logged. */
dpb_status dpb_bytes_send(int fd, const void *bytes, size_t count);
/* Send what is possible without blocking, and take it out of `outbox`: DPB_OK, DPB_PENDING when
 * some is left, or DPB_ERR_RANK_FAILED. */
dpb_status dpb_outbox_flush(int fd, struct dpb_str *outbox);
/* Send one message, blocking. */
dpb_status dpb_message_send(int fd, const dpb_json *message);

/* Receive one message, blocking. DPB_END when the peer closed before one began. */
dpb_status dpb_message_receive(int fd, dpb_json **message);

/* Non-blocking side: feed what the socket has into `inbox`, a megabyte at most. DPB_OK when more
 * may come, DPB_END when the peer closed, or the connection failed (errno, else 0). */
dpb_status dpb_inbox_fill(int fd, struct dpb_str *inbox);
/* The next whole frame in `inbox`, which stays there until it is dropped: DPB_OK, or DPB_PENDING
 * when none is whole yet, or DPB_ERR_CORRUPT. */
dpb_status dpb_inbox_peek(const struct dpb_str *inbox, struct dpb_frame *frame);
void dpb_inbox_drop(struct dpb_str *inbox, const struct dpb_frame *frame);
/* Take the next message out of `inbox`: as dpb_inbox_peek(), and another frame is
 * DPB_ERR_CORRUPT. */
dpb_status dpb_inbox_take(struct dpb_str *inbox, dpb_json **message);

#ifdef __cplusplus
}
#endif
#endif
